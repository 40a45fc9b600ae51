/** @file plan/cures.h
 *  What would make a layout fit: single changes of layout, machine, optimizer or of what is trained,
 *  then pairs of them, each with what it saves and what it costs.
 *
 *  Every change is priced as a whole new answer (ech_footprint_of, ech_pricer_step); nothing is
 *  guessed from shares.  A pair is told only where neither of its changes does it alone, and of one
 *  kind of change (ZeRO stage 1, 2 or 3) only the cheapest that does.  Of a layout that its engine
 *  executes today, so are the cures.  Pure; local. */
#ifndef ECH_PLAN_CURES_H
#define ECH_PLAN_CURES_H

#include "price/footprint.h" /* ech_fit */
#include "price/job.h"       /* ech_job, ech_point */

/** What a change asks for, the least first. */
typedef enum ech_cure_cost {
    ECH_CURE_LAYOUT,   /**< time alone: the same sums on the same machines */
    ECH_CURE_MACHINES, /**< more of them */
    ECH_CURE_ARITHMETIC /**< other optimizer state: the run may learn otherwise */,
    ECH_CURE_TRAINED /**< other weights are trained */
} ech_cure_cost;

/** "layout", "machines", "arithmetic", "trained"; static storage. */
const char *ech_cure_cost_name(ech_cure_cost c);

enum { ECH_CURES = 16, ECH_CURE_WORDS = 160 };

/** One change, or two. */
typedef struct ech_cure {
    char change[ECH_CURE_WORDS]; /**< as options: "--zero 3", "--gpus 16 --dp 16" */
    const char *gloss[2];        /**< in words, [changes]; static storage */
    ech_cure_cost cost;          /**< the dearer of both */
    int changes;                 /**< 1 or 2 */
    ech_job job;                 /**< with the change; borrows what the asker's does */
    ech_point point;
    ech_fit fit;             /**< with the change */
    double reserved_bytes;   /**< then */
    double saves_bytes;      /**< of the fullest device; below 0: it takes more */
    double saves_host_bytes; /**< of a node's host */
    double step_s;           /**< then */
    double time_ratio;       /**< seconds a token: then over now */
} ech_cure;

/** The answer.  Some 20 KiB. */
typedef struct ech_cures {
    int n;
    ech_cure cure[ECH_CURES]; /**< single ones first, then by cost, verdict, GPUs and time */
    bool has_nearest;         /**< where none is enough: the one that leaves the least missing */
    ech_cure nearest;
    int tried; /**< legal changes and pairs that were priced */
} ech_cures;

/** Look for them.
 *  @param job    borrowed; its cluster bounds the GPUs
 *  @param point  legal, borrowed; it does not fit (then a cure may leave it on the edge), or is on
 *                the edge
 *  @param out    set on success
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cures_find(const ech_job *job, const ech_point *point, ech_cures *out);

#endif
