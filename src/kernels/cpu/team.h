/** @file kernels/cpu/team.h
 *  The threads of the cpu set: a team started once per process, each member bound to its processor
 *  and owning its scratch memory.  Work is a list of independent tasks taken in turn, so results
 *  must not (and do not) depend on which member runs a task.
 *
 *  Members wait for work a few microseconds busily, then asleep: other ranks may share the
 *  processors.  One caller at a time. */
#ifndef ECH_KERNELS_CPU_TEAM_H
#define ECH_KERNELS_CPU_TEAM_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

enum {
    ECH_TEAM_MAX = 512,
    ECH_TEAM_SCRATCH_BYTES = 1 << 20 /**< of each member, 64-byte aligned */
};

/** One task of a run; member is 0 for the calling thread. */
typedef void (*ech_team_task)(const void *ctx, int64_t task, int member);

/** Start n - 1 threads beside the caller and touch everybody's scratch.  Starting a started team
 *  stops it first.
 *  @param cpus  borrowed [n], processor of each member; NULL: nobody is bound
 *  @param n     1..ECH_TEAM_MAX
 *  @return ECH_OK | ECH_E_CONFIG | ECH_E_NOMEM | ECH_E_ENV */
ECH_MUST_USE ech_status ech_team_start(const int *cpus, int n);

/** End the threads, release scratch, unbind the caller.  Nothing if not started. */
void ech_team_stop(void);

/** Run tasks 0..n_tasks-1 on at most `threads` members of the team and return when all are done.
 *  Allocates nothing. */
void ech_team_run(int threads, int64_t n_tasks, ech_team_task task, const void *ctx);

/** The same for n_rows tasks of about row_elems elements each: members take several small ones at a
 *  time. */
void ech_team_run_rows(int threads, int64_t n_rows, int64_t row_elems, ech_team_task task,
                       const void *ctx);

/** Members that a call with `threads` gets. */
int ech_team_size(int threads);

/** Scratch of a member, ECH_TEAM_SCRATCH_BYTES. */
float *ech_team_scratch(int member);

#endif
