/** @file cli/plan_retype.h
 *  A job as options of a command line again, so that what an answer says can be typed.  Local. */
#ifndef ECH_CLI_PLAN_RETYPE_H
#define ECH_CLI_PLAN_RETYPE_H

#include "cli/plan_options.h" /* ech_plan_options */

/** Append a word as a POSIX shell takes it: in single quotes where it holds anything unusual. */
void ech_shell_word(ech_text *out, const char *word);

/** Append the options of the job but for --gpus: what was typed, and what was filled in of sequences,
 *  batch, precision and engine, so that fit and sim are asked about the same job.  None of a layout.
 *  @param o    read, borrowed
 *  @param out  appended to: "--model x --cluster y --seq 4096 ..." */
void ech_plan_retype(const ech_plan_options *o, ech_text *out);

#endif
