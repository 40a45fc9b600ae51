/** @file plan/search_private.h
 *  The parts of the search.  Inside plan only. */
#ifndef ECH_PLAN_SEARCH_PRIVATE_H
#define ECH_PLAN_SEARCH_PRIVATE_H

#include "plan/space.h" /* ech_space */

/** A layout that fits, with what it is ranked by. */
typedef struct ech_found {
    ech_point point;
    double step_s, reserved_bytes;
} ech_found;

/** The best K and the front of one number of GPUs, and what can still get in. */
typedef struct ech_frontier {
    int top;         /**< K; 0: the best are not asked for */
    double capacity; /**< bytes of the device, for steps of memory */
    ech_found best[ECH_SEARCH_TOP];
    int n_best;
    ech_found step[ECH_SEARCH_MEMORY_STEPS + 1]; /**< the fastest of each step of memory */
    bool has_step[ECH_SEARCH_MEMORY_STEPS + 1];
    double
        limit[ECH_SEARCH_MEMORY_STEPS + 1]; /**< the fastest so far with so much memory or less */
    double fastest;
    double seed[ECH_SEARCH_TOP]; /**< times of the best layouts of a first look, ascending */
    int n_seeds;
} ech_frontier;

/** Empty. */
void ech_frontier_init(ech_frontier *f, int top, double capacity);

/** Step of memory that bytes fall into, 0 .. ECH_SEARCH_MEMORY_STEPS. */
int ech_frontier_step(const ech_frontier *f, double bytes);

/** A layout of the space takes so long and holds so much: known before it is looked at in its turn. */
void ech_frontier_seed(ech_frontier *f, double step_s, double reserved_bytes);

/** Can a layout that takes at least step_s and holds at least so much be among the best or on the
 *  front? */
bool ech_frontier_takes(const ech_frontier *f, double step_s, double reserved_bytes);

/** A layout in its turn. */
void ech_frontier_add(ech_frontier *f, const ech_found *x);

/** Members of the front, fastest first, into out [ECH_SEARCH_MEMORY_STEPS + 1].  @return how many */
int ech_frontier_members(const ech_frontier *f, const ech_found **out);

/** Order of layouts: faster, then less memory, then fewer axes, then smaller degrees; < 0: a before
 *  b. */
int ech_found_compare(const ech_found *a, const ech_found *b);

/** Does it fit, as the question has it: verdict, head-room.
 *  @param binding  out: static storage */
bool ech_search_fits(const ech_search_spec *spec, const ech_job *job, const ech_footprint *f,
                     const char **binding);

/** Price a layout whole.
 *  @param pricer  in/out
 *  @param job     borrowed: of the pricer
 *  @param point   legal, borrowed
 *  @param room    for a footprint
 *  @param out     set */
void ech_search_price(ech_pricer *pricer, const ech_job *job, const ech_point *point,
                      ech_footprint *room, ech_candidate *out);

/** Neighbours of the winner, into out->neighbour.
 *  @param space   of all GPUs
 *  @param pricer  in/out
 *  @param room    for a footprint
 *  @param out     in/out: best[0] is the winner
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_search_neighbours(const ech_space *space, ech_pricer *pricer,
                                              ech_footprint *room, ech_plan *out);

#endif
