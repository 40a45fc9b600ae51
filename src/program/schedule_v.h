/** @file program/schedule_v.h
 *  The order of work in ZB-V, cell by cell: what makes the table and what composes its time
 *  (price/compose.h) both go through it.
 *
 *  Every rank has two virtual stages, chunk 0 on the way down the V and chunk 1 on the way back.
 *  Source: Qi et al. 2023, arXiv:2401.10241, section 6.  Pure; nothing allocates; local. */
#ifndef ECH_PROGRAM_SCHEDULE_V_H
#define ECH_PROGRAM_SCHEDULE_V_H

#include "program/schedule.h" /* ech_work_kind */

/** What a rank does: kind and chunk. */
typedef enum ech_v_slot {
    ECH_V_F0,
    ECH_V_F1,
    ECH_V_I0,
    ECH_V_I1,
    ECH_V_W0,
    ECH_V_W1,
    ECH_N_V_SLOTS
} ech_v_slot;

/** Its letter's kind, and its virtual stage on a rank. */
ech_work_kind ech_v_kind(ech_v_slot slot);
int ech_v_stage(int ranks, int rank, ech_v_slot slot);

/** From which rank, relative to its own, a cell of a slot takes its input: -1, 1, or 0 (its own).
 *  Where there is no such rank the input is its own as well, or none. */
int ech_v_from(ech_v_slot slot);

/** One cell. */
typedef struct ech_v_cell {
    ech_v_slot slot;
    int micro;
} ech_v_cell;

enum { ECH_V_PHASES = 9, ECH_V_STEADY = 3 /**< the phase that repeats for every micro-batch */ };

/** A rank on its way through its list, for any number of micro-batches above `ranks`.  The list is
 *  written for at least 2 ranks - 1 of them: cells of those that do not exist are given too, and are
 *  to be left out.  If every cell takes one unit, rank r does its n-th in unit r + n. */
typedef struct ech_v_cursor {
    int repeats[ECH_V_PHASES]; /**< of each phase's pattern, still to begin */
    int phase, within;         /**< within the pattern */
    int done[ECH_N_V_SLOTS];
} ech_v_cursor;

/** At a rank's first cell. */
ech_v_cursor ech_v_begin(int ranks, int rank, int micros);

/** The next cell.  @return is there one */
bool ech_v_next(ech_v_cursor *c, ech_v_cell *out);

/** The V form where all micro-batches fit into memory at once (micros <= ranks): all ranks step
 *  together, each cell one unit; a rank takes the first of I1, F1, I0, F0, W0, W1 that is ready. */
typedef struct ech_v_few {
    int ranks, micros;
    int *done; /**< borrowed [ranks, ECH_N_V_SLOTS], zero before the first step */
} ech_v_few;

/** One unit of time.
 *  @param cell  out [ranks]: what each does; slot ECH_N_V_SLOTS: it is idle
 *  @return cells that were taken */
int ech_v_few_step(ech_v_few *v, ech_v_cell *cell);

#endif
