/** @file price/rates.h
 *  What a job's device and software reach: the constants of price/constants.h resolved for one job,
 *  and the habits of its generation (which kernels are fused, what overlaps), so that prices are
 *  arithmetic on plain numbers.
 *  Pure; local. */
#ifndef ECH_PRICE_RATES_H
#define ECH_PRICE_RATES_H

#include "price/constants.h" /* ech_constants */
#include "price/job.h"       /* ech_job */

/** Attention kernels. */
typedef enum ech_attention_kernel {
    ECH_ATTENTION_STORED, /**< scores are written and read */
    ECH_ATTENTION_FLASH
} ech_attention_kernel;

/** What kernels of a generation move and do: passes are reads or writes of 2-byte elements. */
typedef struct ech_kernel_habit {
    ech_attention_kernel attention;
    double norm[2]; /**< forward, backward: passes over [tokens, hidden], one norm */
    double
        residual[2];   /**< adding a branch: dropout, bias and mask where the generation has them */
    double act[2];     /**< plain activation: passes over [tokens, ffn] */
    double gated[2];   /**< gated activation: passes over one of gate and up */
    double heads[2];   /**< copies of q, k and v, rotation: passes over [tokens, q + k + v] */
    double context[2]; /**< copies of the attention output */
    double loss_bytes[2];    /**< of an element of the logits */
    double scores_bytes[2];  /**< of an element of the scores where they are stored */
    double launches[2];      /**< kernels of a layer, forward and backward */
    bool accumulates;        /**< gradients of micro-batches are added up, not reduced each */
    bool fuses_accumulation; /**< by the product itself */
    double update_bytes;     /**< traffic of an element of a shard in the update, norm included */
    bool hides_dp;           /**< reductions run under the backward */
    bool hides_tp;           /**< tensor parallel messages run under products */
    bool hides_p2p;          /**< messages between stages run under compute */
    bool sends_once;         /**< tokens cross to a node once for all their experts there */
    double bucket_bytes;     /**< of data parallel messages; 0: all at once */
} ech_kernel_habit;

/** One level of the network, with what is reached on it. */
typedef struct ech_rate_level {
    double span;              /**< devices; the last: very many */
    double bytes_per_s;       /**< reached, of one device, all at it */
    double alone_bytes_per_s; /**< likewise, the others silent */
    double latency_s;
    double reduction; /**< all-reduce is so many times faster */
} ech_rate_level;

/** Resolved.  A plain value. */
typedef struct ech_rates {
    const ech_kernel_habit *habit; /**< static storage */
    double flops;                  /**< FLOP/s that large products of the job's precision sustain */
    double flops16;                /**< of 16-bit products: attention, head */
    double peak;                   /**< stated, of the job's precision: MFU */
    double units;                  /**< SMs */
    double ramp_s, tail, epilogue, wgrad, bent, crooked, heads_bent, heads_crooked;
    double memory_bytes_per_s; /**< reached by element-wise kernels */
    double traffic;            /**< factor on the listed passes */
    double scores_rate;
    double flash_flops[2]; /**< forward, backward */
    double kernel_s, launch_s;
    double optimizer, step_s, straggler, micro_s;
    double softmax;        /**< as long as so much of a head */
    double half_way_bytes; /**< where middle payloads cost half of payload_s */
    double start_s, payload_s, hop_s, inner_hop_s, wait_s;
    double interference, dp_hidden, tp_hidden;
    double grouped, alltoall, permute;
    double
        copies; /**< experts a token goes to, where it crosses to each other domain once for all of
                        them there; 0: once for each expert */
    double host_bytes_per_s; /**< link to the host, one way */
    double act_bytes;        /**< of an activation element */
    double operand_bytes;    /**< of an element of what products read: 1 where they are of 8 bits */
    double accumulate;       /**< factor on the passes of adding up gradients */
    double
        gather_share; /**< of act_bytes, what gathers of tp move: narrow inputs are gathered narrow */
    double grad_bytes;        /**< of an accumulated gradient */
    bool hides_dp, hides_p2p; /**< the habit, as the job's switches leave it */
    bool
        has_roots; /**< sharded state moves by broadcasts and reductions to one rank after another */
    double weight_bytes;
    bool is_hierarchical; /**< collectives take one level after the other */
    int n_levels;
    ech_rate_level level[ECH_CLUSTER_LEVELS];
} ech_rates;

/** Resolve.
 *  @param job        borrowed
 *  @param constants  borrowed
 *  @param out        set */
void ech_rates_of(const ech_job *job, const ech_constants *constants, ech_rates *out);

#endif
