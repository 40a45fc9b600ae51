/** @file price/job.h
 *  A training job and one way to lay it out, as plain values: what memory, time and the search are
 *  asked about.
 *
 *  ech_job is what stays the same over a search: model, batch, what is trained, by which engine, on
 *  which cluster.  ech_point is one layout: degrees, sharding, recomputation, offload.  Neither owns
 *  anything.  Pure. */
#ifndef ECH_PRICE_JOB_H
#define ECH_PRICE_JOB_H

#include "catalog/cluster.h"  /* ech_cluster */
#include "catalog/model.h"    /* ech_model */
#include "program/schedule.h" /* ech_schedule_kind */

/** Who runs the job: what each keeps in memory differs. */
#define ECH_SYSTEM_LIST(X)                                                                         \
    X(ECH_SYSTEM_ECHELON, "echelon")                                                               \
    X(ECH_SYSTEM_MEGATRON, "megatron")                                                             \
    X(ECH_SYSTEM_DEEPSPEED, "deepspeed")                                                           \
    X(ECH_SYSTEM_FSDP2, "fsdp2") /**< PyTorch's fully_shard, or FSDP */                            \
    X(ECH_SYSTEM_TORCHTITAN, "torchtitan")

typedef enum ech_system {
#define ECH_SYSTEM_ENUM(name, text) name,
    ECH_SYSTEM_LIST(ECH_SYSTEM_ENUM)
#undef ECH_SYSTEM_ENUM
        ECH_N_SYSTEMS
} ech_system;

/** Generations of kernels and overlap, over all systems: rows of the table of constants. */
#define ECH_GENERATION_LIST(X)                                                                     \
    X(ECH_GENERATION_MEGATRON_2021, "megatron-2021")   /**< attention unfused */                   \
    X(ECH_GENERATION_MEGATRON_FLASH, "megatron-flash") /**< flash attention, fused norms */        \
    X(ECH_GENERATION_FSDP1, "fsdp1")                                                               \
    X(ECH_GENERATION_FSDP2_COMPILE, "fsdp2-compile")                                               \
    X(ECH_GENERATION_NEMO_24, "nemo-24+")                                                          \
    X(ECH_GENERATION_MCORE_14, "mcore-0.14")                                                       \
    X(ECH_GENERATION_ECHELON, "echelon") /**< our own, on processors */

typedef enum ech_generation {
#define ECH_GENERATION_ENUM(name, text) name,
    ECH_GENERATION_LIST(ECH_GENERATION_ENUM)
#undef ECH_GENERATION_ENUM
        ECH_N_GENERATIONS
} ech_generation;

/** What is trained. */
typedef enum ech_tuning {
    ECH_TUNING_FULL,   /**< everything */
    ECH_TUNING_FROZEN, /**< all but the first frozen_layers layers and, with them, the embedding */
    ECH_TUNING_LORA    /**< adapters of rank lora_rank on all linear layers; the base is frozen */
} ech_tuning;

/** How the loss is computed. */
typedef enum ech_loss_way {
    ECH_LOSS_DEFAULT, /**< as the system does */
    ECH_LOSS_FUSED,   /**< 4 bytes an element of the logits */
    ECH_LOSS_EAGER,   /**< logits in 16 bits, copies in fp32: 14-16 bytes an element */
    ECH_LOSS_CHUNKED  /**< over loss_chunk tokens at a time */
} ech_loss_way;

/** Optimizers with different state. */
typedef enum ech_optimizer {
    ECH_OPTIMIZER_ADAMW, /**< two moments in fp32 */
    ECH_OPTIMIZER_ADAMW_8BIT /**< two moments in 8 bits with block scales */,
    ECH_OPTIMIZER_ADAMW_BF16 /**< two moments in bf16 */,
    ECH_OPTIMIZER_SGD,
    ECH_OPTIMIZER_MUON,
    ECH_N_OPTIMIZERS
} ech_optimizer;

/** How state is saved. */
typedef enum ech_save_way {
    ECH_SAVE_DEFAULT, /**< as the system does */
    ECH_SAVE_SHARDED, /**< each rank its own shard, staged in host memory */
    ECH_SAVE_WHOLE    /**< the model gathered on the devices of the ranks that ask for it */
} ech_save_way;

/** What happens beside steps: loading, saving, buffers of disks.  All zero: as the system does. */
typedef struct ech_beside {
    ech_save_way save;
    int save_turns;  /**< ranks of a node stage what they save in so many turns; 0: at once */
    int load_copies; /**< whole models in a node's host memory while loading; 0: each rank reads its
                          part alone */
    int load_bytes;  /**< of an element of them; 0: 2 */
    int nvme_param_buffers,
        nvme_optimizer_buffers; /**< of nvme_buffer_elems, pinned in host memory, a rank */
    int64_t nvme_buffer_elems;
    int64_t reduce_bucket_elems,
        live_params; /**< DeepSpeed: elements of its buckets, kept gathered */
} ech_beside;

/** What of the communication runs under compute. */
typedef enum ech_overlap {
    ECH_OVERLAP_DEFAULT, /**< as the generation does by itself */
    ECH_OVERLAP_NONE,    /**< nothing: the options for it are off */
    ECH_OVERLAP_ASYNC_TP /**< as by default, and tensor parallel collectives under their products */
} ech_overlap;

/** How collectives over several levels of the network go. */
typedef enum ech_network {
    ECH_NETWORK_FLAT,        /**< one ring through all members */
    ECH_NETWORK_HIERARCHICAL /**< inside the domain, between domains, inside again */
} ech_network;

/** What is asked about, whatever the layout. */
typedef struct ech_job {
    const ech_model *model;     /**< borrowed */
    const ech_cluster *cluster; /**< borrowed */
    int64_t gpus;               /**< ranks */
    int64_t seq;                /**< tokens of a sequence */
    int64_t global_batch;       /**< sequences of a step */
    double tokens;              /**< to train on in all; 0: not said */
    ech_precision precision;    /**< of matrix products; activations are 2 bytes but for fp32 */
    ech_system system;
    ech_generation generation;
    bool is_compiled; /**< torch.compile, or as well fused */
    ech_overlap overlap;
    bool has_master; /**< fp32 master weights beside 16-bit ones (not: FSDP with fp32 shards) */
    int grad_bytes;  /**< bytes of an accumulated gradient element */
    int wire_bytes;  /**< of a gradient element that is reduced */
    /** State is sharded by broadcasts from, and reductions to, one rank after another (stages 1 and 2)
     *  and by gathers into lists (stage 3), as DeepSpeed of 2021 and InternEvo do, not by flat gathers
     *  and scatters. */
    bool is_rank_by_rank;
    ech_optimizer optimizer;
    bool is_optimizer_grouped; /**< a step over all tensors at once: temporaries of a whole shard */
    bool is_optimizer_paged;   /**< its state may be paged to the host (bitsandbytes) */
    ech_tuning tuning;
    int64_t lora_rank;     /**< LORA */
    int64_t frozen_layers; /**< FROZEN */
    int base_bits;         /**< of frozen weights: 16, 8 or 4; 0: as the trained ones */
    ech_loss_way loss;
    int64_t loss_chunk;  /**< tokens, CHUNKED */
    double moe_balance;  /**< tokens of the fullest rank over the mean, >= 1; 1: forced balance */
    double moe_capacity; /**< capacity factor; 0: dropless */
    ech_beside beside;
    ech_network network;
} ech_job;

/** What is computed again in backward. */
enum {
    ECH_RECOMPUTE_ATTENTION = 1, /**< the attention core (scores, softmax) */
    ECH_RECOMPUTE_NORM = 2,
    ECH_RECOMPUTE_ACT = 4,   /**< the MLP's product (swiglu, gelu) */
    ECH_RECOMPUTE_MOE = 8,   /**< experts' activations */
    ECH_RECOMPUTE_MLA = 16,  /**< MLA's up-projection */
    ECH_RECOMPUTE_OPS = 32,  /**< every other matrix product (torchtitan's selective per op) */
    ECH_RECOMPUTE_FULL = 128 /**< whole layers: their inputs alone are kept */
};

/** Where a class of state lives. */
typedef enum ech_offload { ECH_OFFLOAD_NONE, ECH_OFFLOAD_HOST, ECH_OFFLOAD_NVME } ech_offload;

/** How context parallel ranks share attention. */
typedef enum ech_cp_kind { ECH_CP_RING, ECH_CP_GATHER, ECH_CP_ULYSSES, ECH_CP_USP } ech_cp_kind;

/** How layers are cut into virtual stages. */
typedef enum ech_stage_split {
    ECH_SPLIT_BALANCED, /**< by cost, embedding and head counted (layout/stages.h) */
    ECH_SPLIT_EVEN,     /**< as many layers each; they must divide */
    ECH_SPLIT_ENDS,     /**< embedding and head count as a layer each */
    ECH_SPLIT_LIST      /**< stage_layers */
} ech_stage_split;

/** From the innermost outwards. */
typedef enum ech_order {
    ECH_ORDER_TP_CP_DP_PP, /**< the default */
    ECH_ORDER_TP_PP_DP,    /**< tp-cp-pp-dp: stages are neighbours */
    ECH_ORDER_DP_TP_PP,    /**< dp-tp-cp-pp: replicas are neighbours */
    ECH_N_ORDERS
} ech_order;

/** One layout.  gpus = tp * cp * dp * pp; experts: ep * etp * edp = tp * cp * dp. */
typedef struct ech_point {
    int32_t tp, pp, vpp, dp, cp, ep, etp; /**< all at least 1; dp: all data parallel ranks */
    int32_t zero_stage;                   /**< 0..3; FSDP is 3 */
    int32_t zero_group;                   /**< ranks that share state; 0: all dp * cp */
    int32_t micro;                        /**< sequences of a micro-batch */
    int32_t
        recompute_layers; /**< of a virtual stage are recomputed (in full); 0: all (with FULL) */
    uint32_t recompute;   /**< ECH_RECOMPUTE_* */
    ech_schedule_kind schedule;
    ech_cp_kind cp_kind;
    ech_stage_split split;
    ech_order order;
    ech_offload offload_optimizer, offload_params, offload_activations;
    bool sequence_parallel;
    bool
        reshard_after_forward; /**< stage 3: gathered weights are freed between forward and backward */
    bool reduce_each;          /**< gradients are reduced every micro-batch */
    const int *stage_layers; /**< borrowed [pp * vpp], LIST; else NULL */
} ech_point;

/** A job in which everything has its usual value, as `system` has it: bf16, AdamW, fp32 master. */
ech_job ech_job_default(ech_system system);

/** Everything 1 or none; schedule 1f1b. */
ech_point ech_point_default(void);

/** Micro-batches of a step: global_batch / (dp * micro); 0 where that is none. */
int64_t ech_point_micros(const ech_job *job, const ech_point *p);

/** Ranks that share dense state (zero_group, or dp * cp). */
int64_t ech_point_shard_group(const ech_point *p);

/** Data parallel ranks of experts: tp * cp * dp / (ep * etp). */
int64_t ech_point_edp(const ech_point *p);

/** Ranks that share the state of experts where state is shared: replicas of an expert, as many groups
 *  of them as zero_group makes of dense replicas; at least 1. */
double ech_point_expert_shards(const ech_point *p);

/** Are gradients reduced every micro-batch?  As the layout says; always where there is one
 *  micro-batch, and in DeepSpeed from stage 2 on (its engine refuses to leave the reduction out). */
bool ech_point_reduces_each(const ech_job *job, const ech_point *p);

/** Names; static storage. */
const char *ech_system_name(ech_system s);
const char *ech_generation_name(ech_generation g);
const char *ech_optimizer_name(ech_optimizer o);
const char *ech_order_name(ech_order o);
const char *ech_cp_kind_name(ech_cp_kind k);

/** Read a name.  @return is it one */
ECH_MUST_USE bool ech_system_read(const char *name, ech_system *out);
ECH_MUST_USE bool ech_order_name_read(const char *name, ech_order *out);
ECH_MUST_USE bool ech_cp_kind_read(const char *name, ech_cp_kind *out);
ECH_MUST_USE bool ech_offload_read(const char *name, ech_offload *out);
ECH_MUST_USE bool ech_stage_split_read(const char *name, ech_stage_split *out);
ECH_MUST_USE bool ech_generation_read(const char *name, ech_generation *out);
ECH_MUST_USE bool ech_optimizer_read(const char *name, ech_optimizer *out);

/** A system's usual generation of kernels on a device.  Echelon's own are those of processors; on an
 *  accelerator, where it has none yet, it is priced with those of Megatron. */
ech_generation ech_generation_of(ech_system s, ech_device_kind kind);

/** Append a recomputation in words: "none", "full", "full:4" (so many layers of a virtual stage),
 *  "norm,act". */
void ech_recompute_print(uint32_t recompute, int32_t layers, ech_text *out);

/** Read those words; "swiglu" and "gelu" mean act, "first:4" full:4.  "selective" is what the job's
 *  system means by it: Megatron-LM the attention core, torchtitan and FSDP every other matrix product,
 *  Echelon norms and the MLP's product, and the attention core where scores are stored.
 *  @param words      borrowed
 *  @param job        borrowed
 *  @param recompute  set on success
 *  @param layers     set on success
 *  @return are they such words */
ECH_MUST_USE bool ech_recompute_read(const char *words, const ech_job *job, uint32_t *recompute,
                                     int32_t *layers);

/** The bits that the job's system has words for. */
uint32_t ech_recompute_known(const ech_job *job);

/** "none", "host", "nvme"; static storage. */
const char *ech_offload_name(ech_offload o);

/** "balanced", "even", "ends", "list"; static storage. */
const char *ech_stage_split_name(ech_stage_split s);

/** Append a layout as options of the command line, what is usual left out:
 *  "--tp 8 --pp 4 --dp 16 --zero 1 --micro 1 --recompute full". */
void ech_point_print(const ech_point *p, ech_text *out);

/** The same with what has to be said so that it means this layout under the job's system: those of
 *  torch shard unless they are told not to. */
void ech_point_options(const ech_job *job, const ech_point *p, ech_text *out);

/** Is the layout possible for this job at all: degrees multiply, heads, layers, experts and batch
 *  divide, the schedule takes so many micro-batches, the system can do it.
 *  @param why  appended to, all findings with the nearest legal values; NULL: not wanted, nothing
 *              allocates, and the first finding ends it
 *  @return is it */
ECH_MUST_USE bool ech_point_is_legal(const ech_job *job, const ech_point *p, ech_findings *why);

/** Set what the job's system leaves no choice of: sequence parallelism with tp (torch's plans; Megatron
 *  with experts), gradients reduced every micro-batch (FSDP without pipelines; DeepSpeed from stage 2
 *  on), how stages are cut (Megatron before its pipeline layouts: even, or the ends counted as a layer
 *  each), the kind of context parallelism (DeepSpeed).
 *  @param job  borrowed
 *  @param p    in/out: degrees and ZeRO stage are set */
void ech_point_follow_system(const ech_job *job, ech_point *p);

/** The first rule that a layout breaks, in words that name no numbers ("tp does not divide the
 *  heads"), so that a search can count them; NULL: it is legal.  Nothing allocates; static
 *  storage. */
const char *ech_point_refusal(const ech_job *job, const ech_point *p);

/** Does the job's system run this today?  Always, but for Echelon: a plan may ask for what its engine
 *  does not execute yet.
 *  @param job  borrowed
 *  @param p    legal, borrowed
 *  @param why  appended to: what is missing
 *  @return does it */
ECH_MUST_USE bool ech_point_is_executable(const ech_job *job, const ech_point *p,
                                          ech_findings *why);

#endif
