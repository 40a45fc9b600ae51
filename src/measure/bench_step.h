/** @file measure/bench_step.h
 *  A step of a real program op by op, each timed: what it takes by kind of op, beside what a cost
 *  model says of the very same ops. */
#ifndef ECH_MEASURE_BENCH_STEP_H
#define ECH_MEASURE_BENCH_STEP_H

#include "engine/engine.h"  /* ech_engine */
#include "price/simulate.h" /* ech_costs */

/** Ops of one kind in a step.  Of a message, its start and its wait count with its own kind
 *  (p2p waits with send_start). */
typedef struct ech_kind_times {
    int64_t ops;
    double measured_s;
    double cpu_s;       /**< processor time of this process in them */
    double predicted_s; /**< of waits, what their start takes by itself; NaN without costs */
} ech_kind_times;

/** One step. */
typedef struct ech_step_times {
    ech_kind_times kind[ECH_N_OPS];
    double step_s; /**< from its first op to its last */
} ech_step_times;

/** Run one training step, op by op in program order.  *Collective* over the run, blocking; what the
 *  host writes before a step must stand in the scalar table.
 *  @param e          this rank's, at rest
 *  @param p          its program number 0
 *  @param costs      borrowed; NULL: no predictions
 *  @param rank       of the world
 *  @param deadline_s of a wait, 0: none
 *  @param out        set
 *  @return ECH_OK | ECH_E_TIMEOUT | ECH_E_COMM | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_bench_step(ech_engine *e, const ech_program *p, const ech_costs *costs,
                                       int rank, double deadline_s, ech_step_times *out);

#endif
