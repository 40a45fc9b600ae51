/** @file cli/sim_report.h
 *  What sim of a catalogue cluster tells, in words and as JSON.  Local. */
#ifndef ECH_CLI_SIM_REPORT_H
#define ECH_CLI_SIM_REPORT_H

#include "plan/fit.h"         /* ech_fit_word */
#include "plan/network.h"     /* ech_break_even */
#include "plan/own.h"         /* ech_own */
#include "price/rate.h"       /* ech_step_rates */
#include "price/stage_line.h" /* ech_stage_line */
#include "report/jout.h"      /* ech_jout */

/** Everything that is told. */
typedef struct ech_sim_report {
    const ech_job *job;     /**< borrowed */
    const ech_point *point; /**< borrowed */
    ech_step_price step;
    ech_step_rates rates;
    ech_own own;          /**< what Echelon's own programs say, where they could be asked */
    ech_footprint memory; /**< the same as own.memory */
    ech_fit fit;
    const char *binding;
    ech_goal_cost goal;
    ech_break_even even;
    ech_stage_line line;   /**< owned; none where own.is_timed */
    ech_own_line own_line; /**< owned: where own.is_timed and a trace is wanted */
    double line_s;         /**< that it took to price and simulate */
    double measured_s;     /**< a step's, as given; NaN: none */
    ech_step_rates measured;
    ech_implied_link link;
    ech_op_price *op; /**< owned [n_ops]; NULL: not asked for */
    int n_ops;
} ech_sim_report;

/** Append the answer in words. */
void ech_sim_words(const ech_sim_report *r, ech_text *out);

/** Add the members of the answer to an open object. */
void ech_sim_members(const ech_sim_report *r, ech_jout *j);

#endif
