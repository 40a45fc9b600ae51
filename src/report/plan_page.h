/** @file report/plan_page.h
 *  The answer of a search as a page (HTML): what to type, what it holds, where its time goes, what
 *  else there is and why it loses, and the whole derivation.
 *
 *  One file that needs nothing else: no network, fonts, scripts or styles from elsewhere, and a
 *  policy in its head that forbids them.  It follows the reader's light or dark colours, is read on a
 *  phone and without scripts too, and every graphic stands beside a table of its numbers.  Names come
 *  from files of strangers and are escaped, always.  Local. */
#ifndef ECH_REPORT_PLAN_PAGE_H
#define ECH_REPORT_PLAN_PAGE_H

#include "plan/cures.h"   /* ech_cures */
#include "plan/search.h"  /* ech_plan */
#include "price/cost.h"   /* ech_calibration */
#include "price/derive.h" /* ech_derivation */

/** What is told.  All borrowed. */
typedef struct ech_plan_page {
    const ech_search_spec *spec; /**< what was asked, with its job */
    const ech_plan *plan;
    const ech_cures *cures; /**< of the nearest layout where nothing fits; NULL: none looked for */
    const ech_derivation *notes;        /**< of the winner, or of the nearest; NULL: none */
    const ech_calibration *calibration; /**< of the cluster; NULL: it has not been measured */
    const char *job_options; /**< of the command line, quoted for a shell, without --gpus and the
                                  layout: "--model x --cluster y --seq 4096" */
    const char *assumed;     /**< what was filled in, a line each, "" */
    double days;             /**< asked for at most so many; 0: no such wish */
} ech_plan_page;

/** Append the page.
 *  @param page  borrowed
 *  @param out   appended to, owned by the caller; on failure it may hold a part
 *  @return ECH_OK | ECH_E_NOMEM | as ech_own_answer, of layouts that are exact */
ECH_MUST_USE ech_status ech_plan_page_text(const ech_plan_page *page, ech_text *out);

/** Write it to a file.
 *  @param page  borrowed
 *  @param path  written whole, or what stood there stays
 *  @return as ech_plan_page_text | ECH_E_IO */
ECH_MUST_USE ech_status ech_plan_page_write(const ech_plan_page *page, const char *path);

#endif
