/** @file report/plan_page_part.h
 *  What the parts of a plan's page share: the layout that is told, escaping, numbers, bars.  Inside
 *  report only.
 *
 *  Every number that people read stands in a <data> whose value is the whole number, in bytes,
 *  seconds, dollars or as a share, as `plan --json` has it.  Graphics are SVG with shares of their
 *  width for coordinates, so that they grow with the page while their words do not.  Pure; local. */
#ifndef ECH_REPORT_PLAN_PAGE_PART_H
#define ECH_REPORT_PLAN_PAGE_PART_H

#include "plan/own.h"         /* ech_own_line */
#include "price/rate.h"       /* ech_step_rates */
#include "price/stage_line.h" /* ech_stage_line */
#include "report/plan_page.h" /* ech_plan_page */

/** A page being made. */
typedef struct ech_page {
    const ech_plan_page *ask;    /**< borrowed */
    const ech_candidate *told;   /**< borrowed: the winner, else the nearest; NULL: neither */
    bool has_winner;             /**< told is it */
    ech_job job;                 /**< on the GPUs of told */
    const ech_footprint *memory; /**< borrowed: of told; NULL with it */
    const ech_timeline *line;    /**< borrowed: of the winner; NULL: too many cells, or no winner */
    ech_step_rates rates;        /**< of the winner */
    ech_goal_cost goal;          /**< of the winner */
    ech_text *out;               /**< borrowed */
} ech_page;

/** One part each, in the order of the page. */
void ech_page_add_head(ech_page *p);
ECH_MUST_USE ech_status ech_page_add_type(ech_page *p);
void ech_page_add_memory(ech_page *p);
void ech_page_add_time(ech_page *p);
ECH_MUST_USE ech_status ech_page_add_line(ech_page *p);
void ech_page_add_run(ech_page *p);
void ech_page_add_front(ech_page *p);
void ech_page_add_best(ech_page *p);
void ech_page_add_cures(ech_page *p);
void ech_page_add_neighbours(ech_page *p);
void ech_page_add_rejected(ech_page *p);
void ech_page_add_derivation(ech_page *p);
void ech_page_add_question(ech_page *p);

/** The page's style and script, and the hashes by which its policy allows them (SHA-256, base 64).
 *  Static storage. */
extern const char *const ech_page_style;
extern const char *const ech_page_style_hash;
extern const char *const ech_page_script;
extern const char *const ech_page_script_hash;

/* --- words (plan_page_words.c) --- */

/** Units that numbers are told in. */
typedef enum ech_page_unit {
    ECH_PAGE_PLAIN,   /**< four digits */
    ECH_PAGE_COUNT,   /**< whole */
    ECH_PAGE_GIB,     /**< of bytes */
    ECH_PAGE_SECONDS, /**< of a step: as us, ms or s */
    ECH_PAGE_SPAN,    /**< of a run: as min, h or days too */
    ECH_PAGE_SHARE,   /**< of 1, as percent */
    ECH_PAGE_DOLLARS
} ech_page_unit;

/** Append a number with its unit as words alone: "63.23 GiB"; "not known" where it is not finite. */
void ech_page_words(ech_text *out, double x, ech_page_unit unit);

/** Append <data value="x"> around those words. */
void ech_page_data(ech_text *out, double x, ech_page_unit unit);

/** Append <td class="n"> around that. */
void ech_page_cell(ech_text *out, double x, ech_page_unit unit);

/** Append a share of a graphic's width: "12.34%". */
void ech_page_percent(ech_text *out, double share);

/** Append a coloured rectangle of a bar whose width is 10000: class "cN", from and to as shares. */
void ech_page_bar_part(ech_text *out, int colour, double from, double to);

/** Append a swatch of colour N for a legend. */
void ech_page_swatch(ech_text *out, int colour);

/** Append the command that looks closer at a layout, not escaped: "echelon sim ...".
 *  @param verb  "sim", "fit" */
void ech_page_command(const ech_page *p, const char *verb, const ech_candidate *c, ech_text *out);

/** Append options of a command line as code, each with its value on one line. */
void ech_page_options(ech_text *out, const char *text);

/** Append a button that copies a text; it is shown where scripts run.
 *  @param what  of it, for those who do not see it; escaped here
 *  @param text  escaped here */
void ech_page_copy(ech_text *out, const char *what, const char *text);

/** Where an axis of memory ends: at the capacity, or past what is told where that is more; far below it,
 *  at what is told, so that it can be seen.
 *  @param most  bytes, the most that is told */
double ech_page_memory_end(const ech_page *p, double most);

/** What the job counts: "GPU", of processors "node". */
const char *ech_page_device(const ech_page *p);

/** "fits", "on the edge", "does not fit". */
const char *ech_page_fit_words(ech_fit fit);

/** Append a verdict with its sign and colour. */
void ech_page_verdict(ech_text *out, ech_fit fit);

#endif
