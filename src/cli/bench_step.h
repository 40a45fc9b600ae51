/** @file cli/bench_step.h
 *  `echelon bench step`: steps of a configuration, predicted beside measured by kind of op. */
#ifndef ECH_CLI_BENCH_STEP_H
#define ECH_CLI_BENCH_STEP_H

#include "cli/run_setup.h" /* ech_run_setup */

/** What is asked for; borrowed. */
typedef struct ech_bench_step_options {
    const ech_config *cfg; /**< resolved and validated */
    const char *cluster;   /**< file of a calibration; NULL: nothing is predicted */
    bool saves;            /**< put what kernels take in a step into that file */
    int64_t steps;         /**< measured, after two to warm up */
    bool json;
} ech_bench_step_options;

/** Create the run on random tokens, measure, and print on rank 0.  *Collective*, blocking.
 *  @return ECH_OK | what a session returns | ECH_E_CONFIG (the calibration does not cover the run) */
ECH_MUST_USE ech_status ech_bench_step_command(const ech_bench_step_options *o,
                                               ech_run_setup *setup);

#endif
