/** @file price/compose.h
 *  The length of a pipeline's step from the times of its (uneven) virtual stages: what the table of
 *  program/schedule.h takes if every rank goes through its list as early as it can, without making
 *  the table and without going through all micro-batches.
 *
 *  gpipe has a closed form.  The others are (max, +)-linear recurrences over a state of a few numbers
 *  a rank: all ranks advance together, and once the state has moved by the same amount everywhere
 *  over a whole number L of micro-batches (A^L x = x + c, so that it does so ever after) what is
 *  left up to the end of the steady part is added at once: head + n * c + tail.  Where that never
 *  happens, all micro-batches are gone through.  Either way the time is the table's own, but for
 *  rounding (1e-12 of it).
 *  Source of the algebra: Baccelli et al. 1992, "Synchronization and Linearity", chapter 3.
 *  Pure; nothing allocates but in reserve; local. */
#ifndef ECH_PRICE_COMPOSE_H
#define ECH_PRICE_COMPOSE_H

#include "program/schedule.h" /* ech_schedule_kind */

/** What is composed. */
typedef struct ech_compose_spec {
    ech_schedule_kind kind;
    int ranks, chunks;      /**< p, v */
    int group;              /**< interleaved; 0: ranks */
    int64_t micros;         /**< m */
    const double *forward;  /**< [p * v] borrowed: seconds of each virtual stage */
    const double *backward; /**< [p * v] of a whole backward, or of the gradients of inputs */
    const double *weight;   /**< [p * v] of the gradients of weights (split schedules); else NULL */
    double hop_s; /**< from a stage's end until the next stage on another rank may use it */
} ech_compose_spec;

/** What comes out. */
typedef struct ech_composed {
    double makespan_s;  /**< from the first begin to the last end */
    double last_warm_s; /**< when the last rank begins to work */
    double lambda_s; /**< a further micro-batch costs, once it repeats; else the least that it can:
                             the work of the busiest rank */
    int64_t skipped; /**< micro-batches that were not gone through one by one */
    bool is_exact;   /**< false: a schedule from a file, which is not composed: times are NaN */
} ech_composed;

/** Room to work in.  Zero-initialise. */
typedef struct ech_compose_room {
    double *value; /**< owned */
    size_t capacity;
    int *count; /**< owned */
    size_t count_capacity;
    uint16_t *order; /**< owned: of ZB-V, kept from call to call */
    size_t order_capacity, n_order, n_head;
    int order_ranks, order_micros; /**< that it is of */
} ech_compose_room;

/** Make room for pipelines of up to `ranks` ranks.
 *  @param ranks  at least 1
 *  @param group  largest group of micro-batches of interleaved schedules; 0: ranks
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_compose_reserve(ech_compose_room *room, int ranks, int group);

/** Release and zero. */
void ech_compose_fini(ech_compose_room *room);

/** Compose.  Takes O(ranks * chunks) operations for each micro-batch that is gone through.
 *  @param spec  borrowed, legal (ech_schedule_make takes it)
 *  @param room  reserved for as many ranks and as large a group */
ech_composed ech_compose(const ech_compose_spec *spec, ech_compose_room *room);

#endif
