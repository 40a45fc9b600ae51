/** @file price/compose_private.h
 *  What the files of price/compose.h share.  Pure; nothing allocates; local. */
#ifndef ECH_PRICE_COMPOSE_PRIVATE_H
#define ECH_PRICE_COMPOSE_PRIVATE_H

#include "price/compose.h" /* ech_compose_spec */

#include <float.h>
#include <math.h>

/** Larger of two; one instruction (fmax, which minds NaN, is several). */
static inline double ech_later(double a, double b)
{
    return a > b ? a : b;
}

/** Has a number moved by `shift`, within the rounding of the sums that it came from? */
static inline bool ech_has_moved(double now, double before, double shift)
{
    return fabs(now - before - shift) <= 8 * DBL_EPSILON * now;
}

/** When to remember a state, to see whether a later one is the same, moved: at every power of two of
 *  periods, so that any number of periods after which it repeats is found (Brent 1980, BIT 20). */
typedef struct ech_watch {
    int64_t since; /**< periods since the remembered state; -1: none yet */
    int64_t limit;
} ech_watch;

/** Is the state to be compared now (else remembered). */
static inline bool ech_watch_compares(ech_watch *w)
{
    if (w->since >= 0 && w->since < w->limit) {
        w->since++;
        return true;
    }
    w->limit = w->limit ? 2 * w->limit : 1;
    w->since = 0;
    return false;
}

/** Numbers of room->value, room->count and room->order that each needs. */
size_t ech_compose_lanes_room(int ranks, int group);
size_t ech_compose_v_room(int ranks);
size_t ech_compose_v_counts(int ranks);
size_t ech_compose_v_order(int ranks);

/** 1F1B, ZB-H1 (chunks 1) and interleaved; ranks >= 2.  Sets makespan, skipped, and lambda where it
 *  is found. */
void ech_compose_1f1b(const ech_compose_spec *spec, ech_compose_room *room, ech_composed *out);
void ech_compose_interleaved(const ech_compose_spec *spec, ech_compose_room *room,
                             ech_composed *out);

/** ZB-V; ranks >= 2. */
void ech_compose_v(const ech_compose_spec *spec, ech_compose_room *room, ech_composed *out);

#endif
