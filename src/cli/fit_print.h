/** @file cli/fit_print.h
 *  The answer of fit in words and as JSON.  Local. */
#ifndef ECH_CLI_FIT_PRINT_H
#define ECH_CLI_FIT_PRINT_H

#include "plan/fit.h"    /* ech_fit_report */
#include "report/jout.h" /* ech_jout */

/** What was asked and answered.  All borrowed. */
typedef struct ech_fit_answer {
    const ech_job *job;
    const ech_point *point;
    const ech_fit_report *report;
} ech_fit_answer;

/** "llama-2-7b on 8 a100-sxm-80 (megatron, bf16)" and the layout in the line below. */
void ech_job_words(const ech_job *job, const ech_point *point, ech_text *out);

/** Append the answer in words. */
void ech_fit_words(const ech_fit_answer *a, ech_text *out);

/** Add the members of the answer to an open object. */
void ech_fit_members(const ech_fit_answer *a, ech_jout *j);

/** Add {"params", ..., "total"} of bytes by kind of holding.
 *  @param held   [ECH_N_HELD] borrowed */
void ech_held_members(ech_jout *j, const char *key, const double *held);

#endif
