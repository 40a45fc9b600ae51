/** @file measure/bench_private.h
 *  What the parts of measure/bench.h share.  Inside measure only. */
#ifndef ECH_MEASURE_BENCH_PRIVATE_H
#define ECH_MEASURE_BENCH_PRIVATE_H

#include "measure/bench.h"
#include "measure/bench_op.h"

/** A point to be measured. */
typedef struct bench_task {
    ech_op_kind kind;
    ech_bench_sizes sizes; /* of kernels */
    int64_t elems;         /* of messages: what two members exchange */
} bench_task;

/** A list of tasks in the order of their kinds' grids, last axis fastest. */
typedef struct bench_tasks {
    bench_task *task; /* owned */
    size_t n, capacity;
} bench_tasks;

/** Add one.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status bench_task_add(bench_tasks *t, const bench_task *task);

/** Seconds of calls of one task within a round: their median.  Prepares what it needs first, then
 *  meets the other ranks.
 *  @return ECH_OK | ECH_E_COMM ... */
typedef ech_status (*bench_sampler)(ech_bench *b, const bench_task *task, double *seconds);

/** Measure all tasks in rounds and make grids of them; tasks are released.
 *  @param b      open
 *  @param tasks  in/out
 *  @param sample one task, one round
 *  @param c      in/out: grids of the tasks' kinds
 *  @param found  in/out */
ECH_MUST_USE ech_status bench_run(ech_bench *b, bench_tasks *tasks, bench_sampler sample,
                                  ech_calibration *c, ech_bench_found *found);

/** Calls are timed until the round's time for a point is over, at most so many. */
enum { BENCH_MAX_CALLS = 2048 };

/** Run a kernel call round the ring: median of calls, of processor time where that tells what other
 *  processes take away.  Not collective. */
double bench_time_kernel(const ech_bench *b, const ech_op *op, double seconds);

/** Wait for one collective as the loop of training does. */
ECH_MUST_USE ech_status bench_finish(ech_bench *b, int request);

/** Everybody's value, [ranks].  @return as ech_transport.exchange */
ECH_MUST_USE ech_status bench_exchange(ech_bench *b, const double *mine, size_t n, double *all);

/** Seconds of the executor itself, beside kernels, for each op.  Not collective.
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status bench_time_executor(const ech_bench *b, double *op_s);

/** Date, host, ranks and the rest of the file's head. */
void bench_set_head(const ech_bench *b, ech_calibration *c);

#endif
