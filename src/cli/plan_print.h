/** @file cli/plan_print.h
 *  The answer of plan in words and as JSON.  Local. */
#ifndef ECH_CLI_PLAN_PRINT_H
#define ECH_CLI_PLAN_PRINT_H

#include "plan/cures.h"  /* ech_cures */
#include "plan/search.h" /* ech_plan */
#include "report/jout.h" /* ech_jout */

/** What was asked and found.  All borrowed. */
typedef struct ech_plan_answer {
    const ech_search_spec *spec;
    const ech_job *job; /**< of spec */
    const ech_plan *plan;
    const ech_cures *cures;  /**< of the nearest layout where nothing fits; NULL: none looked for */
    const char *job_options; /**< the job as options again, without --gpus (cli/plan_retype.h) */
    const char *assumed;     /**< a line each, "" */
    double days;             /**< asked for at most so many; 0: no such wish */
} ech_plan_answer;

/** Append the answer in words. */
void ech_plan_words(const ech_plan_answer *a, ech_text *out);

/** Add the members of the answer to an open object. */
void ech_plan_members(const ech_plan_answer *a, ech_jout *j);

/** Why the winner won: by what its neighbours lose; one sentence. */
void ech_plan_why(const ech_plan_answer *a, ech_text *out);

#endif
