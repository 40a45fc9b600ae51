/** @file price/footprint_private.h
 *  Parts of the memory model that price/footprint*.c share: what a system keeps of an element of
 *  state, what a layer keeps of a micro-batch, and the stages that hold them.  Inside price only.
 *  Pure; nothing allocates; local. */
#ifndef ECH_PRICE_FOOTPRINT_PRIVATE_H
#define ECH_PRICE_FOOTPRINT_PRIVATE_H

#include "price/footprint.h" /* ech_footprint */
#include "price/shape.h"     /* ech_shape */

/** Of two. */
static inline double ech_larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double ech_smaller(double a, double b)
{
    return a < b ? a : b;
}

/** PyTorch's own sharding: the shard is the parameter. */
static inline bool ech_is_torch(const ech_job *job)
{
    return job->system == ECH_SYSTEM_FSDP2 || job->system == ECH_SYSTEM_TORCHTITAN;
}

/** What a generation of software keeps beside the formulas: one row of the table in
 *  footprint_habit.c, each figure with its source. */
typedef struct ech_habit {
    bool keeps_scores;       /**< attention writes its scores out */
    bool keeps_gate;         /**< the activated gate is saved beside the product */
    bool keeps_expert_out;   /**< outputs of experts are saved before they are weighted */
    bool keeps_wgrad_blanks; /**< a blank gradient of each shape of weight stays allocated */
    bool caches_fp8;         /**< fp8 weights and their transposes are kept; saved inputs are fp8 */
    bool makes_wgrad;        /**< gradients of tables are tensors before they are accumulated */
    bool replays_masks;      /**< dropout keeps no masks */
    double logits;           /**< bytes of an element of the logits at the peak of the loss */
    double logits_kept;      /**< ... while the head goes backward */
    double logits_fused;     /**< both where a fused loss is asked for; 0: 4 */
    double context_bytes;    /**< of the driver and libraries */
    double group_bytes;      /**< of communicators, for each kind of group */
    double workspace_bytes;  /**< of matrix libraries */
    double slack;            /**< share of what is allocated that the allocator holds beside it */
    double uncertainty;
} ech_habit;

/** The row for a job: its generation's, with what the system and the layout change. */
ech_habit ech_habit_of(const ech_job *job, const ech_point *p);

/** Bytes on a rank for each element of its share of the model: sharding is applied. */
typedef struct ech_state_rule {
    double params, grads, master, moments; /**< on the device */
    double host, nvme;
    double saved; /**< in a checkpoint, of this rank */
} ech_state_rule;

/** State of all kinds of elements. */
typedef struct ech_state_rules {
    ech_state_rule trained[2]; /**< dense, experts */
    ech_state_rule frozen[2];  /**< matrices of layers, which may be quantised */
    ech_state_rule fixed;      /**< frozen tables, vectors */
    double gathered_bytes;     /**< of an element of a gathered unit */
    double whole_grad_bytes;   /**< of an element of a unit's gradient before it is reduced */
    bool shards_grads;
    double shards[2]; /**< ranks that share state, dense and experts */
} ech_state_rules;

/** The rules of a job under a layout.  @param out set */
void ech_state_rules_of(const ech_job *job, const ech_point *p, ech_state_rules *out);

/** What a layer saves of a micro-batch where nothing is computed again, piece by piece, bytes. */
typedef struct ech_layer_pieces {
    double input;    /**< what the layer is given: its boundary */
    double middle;   /**< input of the second norm, and of norms after attention and MLP */
    double norm_out; /**< outputs of the norms: inputs of matrices */
    double latent;   /**< MLA's latents */
    double qkv;
    double core;     /**< log-sum-exp, or scores */
    double attn_out; /**< input of the output matrix */
    double masks;    /**< of dropout on the residual */
    double mlp_in;   /**< gate and up, or what GELU takes */
    double mlp_out;  /**< the product, or what GELU gives */
    double router;
    double experts; /**< rows of a rank's experts, all they save */
    double shared;
} ech_layer_pieces;

/** Bytes of one layer and micro-batch on a rank. */
typedef struct ech_layer_bytes {
    double whole;    /**< saved where nothing is computed again */
    double saved;    /**< saved under the set of recomputation */
    double boundary; /**< its input alone */
    double working;  /**< more at the peak of its backward, nothing computed again */
    double deferred; /**< what gradients of weights wait for, in split schedules */
} ech_layer_bytes;

/** Activations of a layer, and around the layers. */
typedef struct ech_activations {
    ech_layer_bytes layer[2]; /**< dense, sparse */
    ech_layer_pieces pieces[2];
    double embedding;     /**< of a micro-batch on the first stage */
    double head;          /**< on the last: final norm's input and output */
    double head_deferred; /**< what the gradient of its weights waits for */
    double logits;        /**< at the peak of the loss */
    double logits_kept;   /**< while the head goes backward */
    double head_working;  /**< beside logits_kept then */
    double table_working; /**< gradient of the token table as a tensor */
    double message;       /**< between stages */
} ech_activations;

/** The set: as the job and the point have it.
 *  @param imbalance  rows of the fullest rank's experts over the mean */
void ech_activations_of(const ech_job *job, const ech_point *p, const ech_shape *s,
                        const ech_habit *habit, double imbalance, ech_activations *out);

/** What a pipeline rank has. */
typedef struct ech_rank_load {
    int64_t layers;
    double trained[2];       /**< elements: dense, experts */
    double frozen[2], fixed; /**< as in ech_state_rules */
    double unit;             /**< elements of its largest layer */
    double embedding, head;  /**< elements of those units that it has; 0: not it */
    double copies;           /**< bytes of fp8 copies of weights */
    double saved;            /**< bytes of a micro-batch that its layers save, all chunks */
    double deferred;         /**< likewise, gradients of weights wait for */
    double largest;          /**< bytes the layer that saves most saves */
    double working;          /**< more at the peak of a layer's backward, recomputation counted */
    bool has_embedding, has_head;
    bool trains_embedding;
} ech_rank_load;

/** What is asked, and what follows from it for all stages. */
typedef struct ech_memory_plan {
    const ech_job *job;
    const ech_point *point;
    ech_shape shape;
    ech_habit habit;
    ech_state_rules rules;
    ech_activations act;
    int64_t micros;
    double whole;                        /**< elements of the whole model */
    double adapters[2], expert_adapters; /**< LoRA: of a dense and a sparse layer on a rank */
    double blanks;                       /**< bytes of blank gradients that stay */
    double fp8[2];                       /**< bytes of fp8 copies of a dense and a sparse layer */
} ech_memory_plan;

/** Make the plan.
 *  @param imbalance  rows of the fullest rank's experts over the mean */
void ech_memory_plan_of(const ech_job *job, const ech_point *p, double imbalance,
                        ech_memory_plan *out);

/** Loads of all pipeline ranks.
 *  @param out  [min(pp, ECH_FOOTPRINT_STAGES)] set
 *  @return how many */
int ech_memory_loads(const ech_memory_plan *plan, ech_rank_load *out);

/** Where in a step. */
typedef enum ech_place_in_step {
    ECH_AT_LAYER, /**< backward of a layer */
    ECH_AT_TOP,   /**< of the layer after the head */
    ECH_AT_LOSS,
    ECH_AT_HEAD, /**< the head's backward */
    ECH_AT_TABLE /**< the embedding's */
} ech_place_in_step;

/** What is whole of units that are shards otherwise, bytes. */
typedef struct ech_unit_bytes {
    double gathered, grads;
    int flying; /**< layers whose gradients are still being reduced */
} ech_unit_bytes;

/** At a place of the step. */
ech_unit_bytes ech_memory_units(const ech_memory_plan *plan, const ech_rank_load *load,
                                ech_place_in_step at);

/** A rank at every moment: fills out->held, peak, fullest, host_bytes, nvme_bytes, live.
 *  @param load  borrowed
 *  @param rank  pipeline rank */
void ech_memory_moments(const ech_memory_plan *plan, const ech_rank_load *load, int rank,
                        ech_footprint_stage *out);

/** Host memory of a node at each moment, given its fullest rank. */
void ech_memory_host(const ech_memory_plan *plan, const ech_footprint *f,
                     double peak[ECH_N_MOMENTS]);

/** The derivation of a footprint that was computed. */
void ech_memory_explain(const ech_memory_plan *plan, const ech_rank_load *load,
                        const ech_footprint *f, ech_derivation *notes);

/** Micro-batches that a pipeline rank holds at once, in units of the activations of all its chunks.
 *  Sources: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; the tables of program/schedule.h. */
double ech_live_micros(const ech_point *p, int64_t micros, int rank);

/** Micro-batches whose gradients of weights wait, beside those that live. */
double ech_live_deferred(const ech_point *p, int64_t micros, int rank);

#endif
