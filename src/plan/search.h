/** @file plan/search.h
 *  The best layouts of a job: exact search over every legal product of finite lists of degrees,
 *  sharding, recomputation, offload, micro-batch, schedule, placement and cut into stages; the lists
 *  stand in docs/planner/search.md, and what is pinned need not be in them.
 *
 *  Exact: bounds skip points, never a member of the best K or of the Pareto front; the tests hold
 *  the answer equal to brute force over the same space.  The inner loop neither allocates nor makes
 *  strings.  Memory is asked first, time only of what fits.  One thread.
 *  Pure; local. */
#ifndef ECH_PLAN_SEARCH_H
#define ECH_PLAN_SEARCH_H

#include "plan/goal.h"       /* ech_goal_cost */
#include "price/footprint.h" /* ech_footprint */
#include "price/step.h"      /* ech_step_price */

/** A dimension that is pinned, by the command line: bit (1 << dimension) of pinned. */
#define ECH_DIM_LIST(X)                                                                            \
    X(ECH_DIM_TP, "tp")                                                                            \
    X(ECH_DIM_PP, "pp")                                                                            \
    X(ECH_DIM_VPP, "vpp")                                                                          \
    X(ECH_DIM_DP, "dp")                                                                            \
    X(ECH_DIM_CP, "cp")                                                                            \
    X(ECH_DIM_EP, "ep")                                                                            \
    X(ECH_DIM_ETP, "etp")                                                                          \
    X(ECH_DIM_ZERO, "zero")                                                                        \
    X(ECH_DIM_ZERO_GROUP, "zero-group")                                                            \
    X(ECH_DIM_RESHARD, "reshard")                                                                  \
    X(ECH_DIM_SP, "sp")                                                                            \
    X(ECH_DIM_RECOMPUTE, "recompute")                                                              \
    X(ECH_DIM_OFFLOAD_OPTIMIZER, "offload-optimizer")                                              \
    X(ECH_DIM_OFFLOAD_PARAMS, "offload-params")                                                    \
    X(ECH_DIM_OFFLOAD_ACTIVATIONS, "offload-activations")                                          \
    X(ECH_DIM_MICRO, "micro")                                                                      \
    X(ECH_DIM_SCHEDULE, "schedule")                                                                \
    X(ECH_DIM_ORDER, "order")                                                                      \
    X(ECH_DIM_SPLIT, "split")                                                                      \
    X(ECH_DIM_CP_KIND, "cp-kind")                                                                  \
    X(ECH_DIM_REDUCE, "reduce")

typedef enum ech_plan_dim {
#define ECH_DIM_ENUM(name, text) name,
    ECH_DIM_LIST(ECH_DIM_ENUM)
#undef ECH_DIM_ENUM
        ECH_N_DIMS
} ech_plan_dim;

/** "tp", "zero-group"; static storage. */
const char *ech_plan_dim_name(ech_plan_dim d);

/** Append what a layout has in a dimension: "8", "norm,act", "on". */
void ech_plan_dim_print(ech_plan_dim d, const ech_point *point, ech_text *out);

/** What is searched. */
typedef struct ech_search_spec {
    const ech_job *job; /**< borrowed */
    ech_point pin;      /**< values of the pinned dimensions */
    uint32_t pinned;    /**< which are */
    int top;            /**< best K, 1 .. ECH_SEARCH_TOP */
    bool may_use_fewer; /**< fewer GPUs too, for the Pareto front: gpus / 2^k */
    bool may_offload;   /**< offload is searched from the start; else only where nothing fits */
    bool keeps_closed;  /**< nor there: what fits without offload, or nothing */
    double headroom;    /**< share of the capacity to leave free, 0..1 */
    bool wants_edge;    /**< layouts on the edge of the memory count as fitting */
    bool is_brute;      /**< look at every point: for tests */
    const struct ech_constants *constants; /**< borrowed; NULL: the built-in table */
} ech_search_spec;

enum { ECH_SEARCH_TOP = 100, ECH_SEARCH_PARETO = 256, ECH_SEARCH_REASONS = 64 };

/** The Pareto front counts memory in steps of so much of the capacity, up, ... */
enum { ECH_SEARCH_MEMORY_STEPS = 32 };

/** ... and holds no layout that is more than this many times as slow as the fastest on as many
 *  GPUs. */
#define ECH_SEARCH_BAND 1.5

/** A layout with its price. */
typedef struct ech_candidate {
    ech_point point;
    int64_t gpus;
    ech_step_price step;
    double reserved_bytes, allocated_bytes, host_node_bytes;
    ech_fit fit;
    double dollars_per_step;
    bool is_exact; /**< memory and traffic are read off its programs (plan/own.h) */
} ech_candidate;

/** Why points were not taken. */
typedef struct ech_rejection {
    const char *reason; /**< static storage: "tp does not divide the heads"; of memory what binds:
                             "optimizer state" */
    int64_t count; /**< values of a dimension that were refused, each once whatever else a layout
                             has; of memory layouts, those skipped by a bound too */
    bool is_memory;
} ech_rejection;

/** A neighbour of the winner: one dimension changed. */
typedef struct ech_neighbour {
    ech_plan_dim dim;
    ech_candidate at;
    bool is_legal, fits;
    const char *loses_by; /**< the part of the step (or memory) that grows most; static storage */
    double by_s;          /**< by so much */
} ech_neighbour;

/** The answer.  Some 200 KiB: on the heap. */
typedef struct ech_plan {
    int n_best;
    ech_candidate best[ECH_SEARCH_TOP]; /**< fastest first; ties: less memory, then fewer axes */
    int n_pareto;
    ech_candidate pareto[ECH_SEARCH_PARETO]; /**< nobody is better in time, memory, GPUs and cost:
                                                  most GPUs first, then the fastest */
    int n_rejected;
    ech_rejection rejected[ECH_SEARCH_REASONS];
    int n_neighbours;
    ech_neighbour neighbour[2 * ECH_N_DIMS];
    ech_candidate nearest; /**< where nothing fits: the one that misses the memory by least */
    bool has_nearest;
    bool opened_offload; /**< nothing fitted without offload, so it was searched too */
    int64_t evaluated;   /**< points whose memory and time were both computed */
    int64_t pruned;      /**< skipped by a bound */
    int64_t space;  /**< legal points in all, where is_brute; else evaluated + pruned + misfits */
    double seconds; /**< of the search, one thread */
} ech_plan;

/** Search.
 *  @param spec  borrowed
 *  @param out   set on success, also where nothing fits (n_best 0)
 *  @return ECH_OK | ECH_E_ILLEGAL (no legal point: which pins contradict, and what would be legal)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_plan_search(const ech_search_spec *spec, ech_plan *out);

#endif
