/** @file price/footprint.h
 *  Memory of a job under a layout: what each pipeline rank holds, by class, at each moment that can
 *  be its fullest, on device and host.
 *
 *  Systems differ in what they keep (gradient type, buckets, gathered units, workspace, context,
 *  allocator): tables and rules in footprint_habit.c, footprint_state.c and footprint_units.c, each
 *  with its source; docs/planner/memory.md is the whole of it.  Korthikanti et al. 2022,
 *  arXiv:2205.05198; Rajbhandari et al. 2020, arXiv:1910.02054.  Pure; nothing allocates but the
 *  derivation; local. */
#ifndef ECH_PRICE_FOOTPRINT_H
#define ECH_PRICE_FOOTPRINT_H

#include "price/derive.h" /* ech_derivation */
#include "price/job.h"    /* ech_job, ech_point */

/** Classes of bytes on the device. */
#define ECH_USE_LIST(X)                                                                            \
    X(ECH_USE_PARAMS, "params", "params")                                                          \
    X(ECH_USE_GRADS, "grads", "grads")                                                             \
    X(ECH_USE_MASTER, "master", "master")                                                          \
    X(ECH_USE_OPTIMIZER, "optimizer", "optimizer")                                                 \
    X(ECH_USE_SAVED, "saved activations", "activations")                                           \
    X(ECH_USE_WORKING, "one layer's working set", "activations")                                   \
    X(ECH_USE_LOGITS, "logits", "activations")                                                     \
    X(ECH_USE_GATHERED, "gathered units", "buffers")                                               \
    X(ECH_USE_BUCKETS, "buckets", "buffers")                                                       \
    X(ECH_USE_P2P, "messages between stages", "buffers")                                           \
    X(ECH_USE_WORKSPACE, "workspace", "buffers")                                                   \
    X(ECH_USE_CONTEXT, "context and communicators", "context")                                     \
    X(ECH_USE_SLACK, "allocator's slack", "slack")

typedef enum ech_use {
#define ECH_USE_ENUM(name, text, klass) name,
    ECH_USE_LIST(ECH_USE_ENUM)
#undef ECH_USE_ENUM
        ECH_N_USES
} ech_use;

/** "saved activations"; the class of memory_bytes in JSON: "activations".  Static storage. */
const char *ech_use_name(ech_use h);
const char *ech_use_class(ech_use h);

/** Moments that can be the fullest. */
typedef enum ech_moment {
    ECH_MOMENT_START,     /**< weights read, state made */
    ECH_MOMENT_STEP,      /**< forward and backward */
    ECH_MOMENT_OPTIMIZER, /**< the update */
    ECH_MOMENT_SAVE,
    ECH_MOMENT_LOAD,
    ECH_N_MOMENTS
} ech_moment;

/** "start", "step", "optimizer", "save", "load". */
const char *ech_moment_name(ech_moment m);

/** One pipeline rank: bytes of its fullest rank. */
typedef struct ech_footprint_stage {
    int64_t layers;             /**< it holds, all its chunks */
    double params;              /**< parameters of the rank, elements, sharded or not */
    double trained;             /**< of them trained */
    double live;                /**< micro-batches in flight, in units of its activations */
    double held[ECH_N_USES];    /**< at its fullest moment of all */
    double peak[ECH_N_MOMENTS]; /**< all classes together, context and slack too */
    ech_moment fullest;
    double host_bytes; /**< of one rank: offloaded state, staging */
    double nvme_bytes;
} ech_footprint_stage;

enum { ECH_FOOTPRINT_STAGES = 128 /**< pipeline ranks that are told apart */ };

/** The answer. */
typedef struct ech_footprint {
    int n_stages;
    int fullest; /**< pipeline rank */
    ech_footprint_stage stage[ECH_FOOTPRINT_STAGES];
    double allocated_bytes; /**< of the fullest, without context and slack: compare with papers */
    double reserved_bytes;  /**< with both: compare with the capacity, and with what a driver shows;
                                 an allocator's own "reserved" is less the context */
    double worst_bytes;     /**< reserved with the worst balance of experts; else reserved */
    double uncertainty;     /**< relative, of reserved: what the model is known to miss by */
    double host_node_bytes; /**< of a node, all its ranks, in the step or whatever is fullest */
    double host_peak[ECH_N_MOMENTS]; /**< of a node */
    bool is_exact;                   /**< from a compiled program */
    const char *marked; /**< what it rests on formulas alone for, in words; NULL: nothing */
} ech_footprint;

/** Model state of so many parameters alone, by the rules of the job's system: weights, gradients,
 *  master weights and moments on the device.
 *  @param job    borrowed; its model is not looked at
 *  @param point  borrowed: stage, shard group, offload; tp and pp are none of it
 *  @param params on a rank's own model shard, after tp, pp and ep: elements
 *  @param notes  NULL: none
 *  @param held   out [ECH_N_USES]; NULL: the sum alone
 *  @return bytes */
double ech_footprint_state(const ech_job *job, const ech_point *point, double params,
                           ech_derivation *notes, double held[ECH_N_USES]);

/** Predict.
 *  @param job    borrowed
 *  @param point  legal (ech_point_is_legal), borrowed
 *  @param notes  NULL: no derivation, nothing allocates
 *  @param out    set */
void ech_footprint_of(const ech_job *job, const ech_point *point, ech_derivation *notes,
                      ech_footprint *out);

/** Bytes of a whole checkpoint, whatever the layout: weights, fp32 copy and moments of what is trained,
 *  weights of frozen layers; of adapters, them alone.  NaN where a count leaves 64 bits. */
double ech_footprint_saved(const ech_job *job);

/** Does it fit. */
typedef enum ech_fit { ECH_FIT_YES, ECH_FIT_EDGE, ECH_FIT_NO } ech_fit;

/** Verdict against capacity: NO where even the low end of the uncertainty does not fit, EDGE where
 *  the margin is below it (at least 3 %), else YES.  Host memory counts too; an optimizer whose state
 *  may be paged out is on the edge where it would fit without.
 *  @param binding  out: what decides: "optimizer state", "saved activations", "host memory", ...;
 *                  static storage */
ech_fit ech_footprint_fit(const ech_job *job, const ech_footprint *f, const char **binding);

#endif
