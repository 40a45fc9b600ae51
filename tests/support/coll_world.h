/** @file support/coll_world.h
 *  Virtual ranks that run the same list of collectives, stepped in turn or in a fuzzed order, over
 *  a network that is quick or one that comes and goes.  Fails the test where something is wrong. */
#ifndef ECH_TESTS_COLL_WORLD_H
#define ECH_TESTS_COLL_WORLD_H

#include "coll_case.h"      /* coll_run */
#include "lazy_transport.h" /* lazy_gate */

enum { COLL_WORLD_RANKS = 24, COLL_WORLD_RUNS = 8 };

typedef struct coll_world {
    ech_layout layout;
    int n, runs;
    ech_transport *t[COLL_WORLD_RANKS];
    ech_comm *comm[COLL_WORLD_RANKS];
    coll_run run[COLL_WORLD_RANKS][COLL_WORLD_RUNS];
    uint64_t seed, draws; /**< of the order of ranks; seed 0: in turn */
    lazy_gate gate;       /**< of a lazy network, opened and shut by seed */
} coll_world;

/** Ranks of a layout over the quick network; w stays where it is. */
void coll_world_open(coll_world *w, const ech_layout *l);

/** The same over a network whose messages move now and then; seed as in the type. */
void coll_world_open_lazy(coll_world *w, const ech_layout *l, uint64_t seed);

void coll_world_close(coll_world *w);

/** Give every rank a collective to run after those it has; of its group's size, n rounded up to
 *  what the kind takes. */
void coll_world_add(coll_world *w, const coll_case *c);

/** Start or test the collectives of one rank; true when all are done. */
bool coll_world_step(coll_world *w, int rank);

/** Sum of the ranks' activity. */
int64_t coll_world_activity(const coll_world *w);

/** Step all ranks until all are done; false if a whole round moves nothing. */
bool coll_world_run(coll_world *w);

/** Step all but one rank until they are stuck. */
void coll_world_run_without(coll_world *w, int late);

/** Memory of all ranks, and bytes they sent by the closed forms. */
void coll_world_check(const coll_world *w);

/** Open, run one collective, check, close. */
void coll_world_run_one(const ech_layout *l, const coll_case *c, uint64_t seed);

#endif
