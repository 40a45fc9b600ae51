/** @file program/schedule_private.h
 *  What the files of program/schedule.h share.  Pure; every call is local. */
#ifndef ECH_PROGRAM_SCHEDULE_PRIVATE_H
#define ECH_PROGRAM_SCHEDULE_PRIVATE_H

#include "base/text.h"        /* ech_findings */
#include "program/schedule.h" /* ech_schedule */

/** What a (stage, micro-batch) has done to it once; B and I are the same step. */
enum { ECH_STEP_FORWARD, ECH_STEP_BACKWARD, ECH_STEP_WEIGHT, ECH_N_STEPS };

/** Longest text of ech_schedule_where. */
enum { ECH_WHERE_BYTES = 224 };

/** Faults of a table: all are counted, the first ones told. */
typedef struct ech_schedule_faults {
    const char *name; /**< borrowed: of the table */
    ech_findings findings;
    int64_t n;
} ech_schedule_faults;

/** Count one more; may it be told (added to the findings)? */
bool ech_schedule_fault(ech_schedule_faults *f);

/** Raise what was found, and how much more there is; releases the findings.
 *  @return ECH_OK | ECH_E_CONFIG */
ECH_MUST_USE ech_status ech_schedule_raise(ech_schedule_faults *f);

/** Step of a kind of work. */
int ech_work_step(ech_work_kind kind);

/** Memory for a table, zeroed: its ranks, stages and cells; numbers set, lists empty.
 *  @return ECH_OK | ECH_E_NOMEM, *s zero */
ECH_MUST_USE ech_status ech_schedule_alloc(ech_schedule *s, int ranks, int stages, int cells);

/** Rank whose list holds cell `i`. */
int ech_schedule_rank_at(const ech_schedule *s, int i);

/** Which cell does which step: at[(stage * micros + micro) * ECH_N_STEPS + step], -1: none.
 *  @param s         stages * micros at most its number of cells
 *  @param at        out, owned by the caller (free)
 *  @param repeated  out: a step that two cells do; NULL
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_schedule_index(const ech_schedule *s, int **at, bool *repeated);

/** Cells that must have ended before cell `i` begins, -1: no such cell in the table.
 *  @param need  out
 *  @return how many, 0 .. 2 */
int ech_schedule_needs(const ech_schedule *s, const int *at, int i, int need[2]);

/** Let every rank go through its list as early as it can.
 *  @param costs  borrowed
 *  @param begin  out [cells]
 *  @param end    out [cells]; below 0: the cell is never reached
 *  @param next   out [ranks]: the cell that each rank came to, first[rank + 1] at the end
 *  @return ECH_OK | ECH_E_NOMEM; a table that does not come to its end is no error here */
ECH_MUST_USE ech_status ech_schedule_walk(const ech_schedule *s, const int *at,
                                          const ech_schedule_costs *costs, double *begin,
                                          double *end, int *next);

#endif
