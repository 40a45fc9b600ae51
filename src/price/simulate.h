/** @file price/simulate.h
 *  Event simulation of one step of all ranks' programs: ops take what a cost model says, messages
 *  and collectives run beside kernels from their starts and are awaited where the program waits.
 *
 *  The same programs are run by engine/ and proved by program/prove.h: what is simulated is what
 *  runs.  The machine:
 *  - A rank has one stream of kernels, in program order, segments one after another.  A start takes
 *    no time on it; a wait stands until the message is done.
 *  - A collective begins when all members have started it and the group's collective before it on
 *    this axis is done: members start the same ones in the same order.  (comm/ lets two of them move
 *    at once; they share one link, so the second is done at the same time either way.)
 *  - A message begins when both ends have started it and the one before it from the same sender to
 *    the same receiver over this axis is done; messages of other pairs and directions do not meet
 *    it.  Sends match receives in order.
 *  - In a group of one nothing moves, and its time is not asked for.
 *  - Where messages occupy the ranks' processors (ech_costs.busy), a rank loses that share of the
 *    time for which a message moved beside its kernels; the loss is told at the wait.
 *
 *  Nothing in it chooses among messages, so times do not depend on the order in which ranks are
 *  looked at.
 *
 *  Symmetry: axes along which neither the class nor a peer changes are followed at coordinate 0
 *  alone; the ranks there stand for all.  Cost: linear in items and communication ops times the
 *  ranks followed; kernels are priced once a block and chunk.
 *  Pure; every call is local. */
#ifndef ECH_PRICE_SIMULATE_H
#define ECH_PRICE_SIMULATE_H

#include "price/timeline.h" /* ech_timeline */

/** What things take.  Both return seconds, >= 0, and the same for the same question. */
typedef struct ech_costs {
    void *user;
    /** A kernel of an item, at its bounds.  It may look at the item's block and chunk, not at its
     *  layer or micro-batch: it is asked once for all of them. */
    double (*kernel_s)(void *user, const ech_program *p, const ech_item *item, const ech_op *op);
    /** A message or collective over an axis's group by itself, once all members have come to it.
     *  op is its start (of a message, either end's), rank one of its members: it takes the longest
     *  answer of all members that are followed.  Where it looks at the rank beyond its class,
     *  follows_all is to be set. */
    double (*comm_s)(void *user, const ech_layout *l, const ech_op *op, int rank);
    /** Share of a message's time in which the processors of its ranks are occupied with it, 0..1:
     *  kernels beside it take so much longer.  0: a network card moves it. */
    double busy;
} ech_costs;

/** What is simulated.  All borrowed. */
typedef struct ech_simulate_spec {
    const ech_program *const *program; /**< [n_classes] of one run, proved */
    int n_classes;
    const int *class_of; /**< [world]; NULL: all of class 0 */
    ech_costs costs;
    bool follows_all; /**< every rank, also such as do the same */
} ech_simulate_spec;

/** Where the time of the step goes, seconds: means over all ranks, so that
 *  step = compute + optimizer + bubble + all of exposed.
 *
 *  A second simulation of the same programs, in which messages take no time, tells the bubble: what
 *  a rank does not compute in there, up to the step's end.  It is made by the schedule and by stages
 *  that are not alike, wherever a rank then waits (for activations, for sums over all ranks, at the
 *  end).  By what the step takes longer than that one communication is exposed.  It is ascribed to
 *  axes in proportion to how long ranks stand while something over that axis moves, or while theirs
 *  waits for a link that is in use: time that a rank stands because another one is held up by
 *  communication goes to the axis that holds it up, and what is hidden in a bubble to none. */
typedef struct ech_step_sums {
    double step_s;                /**< from the first begin to the last rank's end */
    double compute_s;             /**< kernels of segments accumulate and reduce */
    double recompute_s;           /**< of them, in blocks that compute forward again */
    double optimizer_s;           /**< kernels of segment commit */
    double bubble_s;              /**< bubble_s / step_s is the bubble as a fraction */
    double exposed_s[ECH_N_AXES]; /**< communication that the step waits for, by axis */
    double stood_s[ECH_N_AXES]; /**< waits as a clock would tell them, by axis, bubbles included */
    double busiest_s;           /**< kernels of the rank with the most */
    int busiest_rank;
    double
        critical_compute_s; /**< on the longest chain of things that wait for each other: kernels */
    double critical_comm_s; /**< on it: messages and collectives; both together are the step */
    int followed;           /**< ranks */
    int64_t ops;            /**< of them, kernels and communication */
} ech_step_sums;

/** Simulate.
 *  @param spec  borrowed
 *  @param sums  out
 *  @param line  out, owned by the caller; borrows program and class_of of spec.  Bars of the ranks
 *               followed (of ranks that do the same, the lowest), by rank and begin: COMPUTE for each item that has kernels, from its first op to its last,
 *               WAIT where a rank stands, COMM from a start to the message's end.  NULL: not wanted
 *  @return ECH_OK
 *        | ECH_E_PROOF        it deadlocks, or waits for what it has not started: prove it first
 *        | ECH_E_ILLEGAL      a cost that is negative or not finite, a share that is none
 *        | ECH_E_UNSUPPORTED  more ranks must be followed than memory holds
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_simulate(const ech_simulate_spec *spec, ech_step_sums *sums,
                                     ech_timeline *line);

#endif
