/** @file cli/plan_options_private.h
 *  What the files of the planner's options share.  Local. */
#ifndef ECH_CLI_PLAN_OPTIONS_PRIVATE_H
#define ECH_CLI_PLAN_OPTIONS_PRIVATE_H

#include "cli/plan_options.h" /* ech_plan_options */

/** Names of options, without dashes; static storage. */
const char *ech_plan_text_name(ech_plan_text which);
const char *ech_plan_flag_name(ech_plan_flag which);

/** Whole numbers of what. */
typedef struct ech_plan_range {
    const char *what; /**< in words */
    double least, most;
} ech_plan_range;

/** Read a whole number.  @return was it given and is one; else *out is unchanged */
bool ech_plan_read_whole(const ech_plan_options *o, ech_plan_text which, ech_plan_range range,
                         int64_t *out, ech_findings *findings);

/** Read a number, at least `least`.
 *  @param wanted  in words
 *  @return was it given and is one; else *out is unchanged */
bool ech_plan_read_real(const ech_plan_options *o, ech_plan_text which, const char *wanted,
                        double least, double *out, ech_findings *findings);

/** Number of the name that was given; -1: none was, or it is a finding, with the nearest. */
int ech_plan_read_choice(const ech_plan_options *o, ech_plan_text which, ech_findings *findings);

/** Is this bytes with their unit, such as 8GB. */
bool ech_plan_is_byte_unit(const char *text);

/** Was a dimension given. */
bool ech_plan_is_given(const ech_plan_options *o, ech_plan_dim dim);

/** Everything that is said of a layout.
 *  @return ECH_OK, also with findings | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_plan_read_pins(ech_plan_options *o, ech_findings *findings);

/** What follows from it: chunks of a list of stages, interleaving from virtual stages, and of one
 *  layout what its system leaves no choice of. */
void ech_plan_follow_pins(ech_plan_options *o, ech_plan_want want);

/** Are as many stages listed as there are. */
void ech_plan_check_stages(const ech_plan_options *o, ech_findings *findings);

#endif
