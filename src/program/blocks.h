/** @file program/blocks.h
 *  Block generators: (model kind, shard spec, role, policy) -> block (docs/architecture.md).
 *
 *  One block serves every layer of its kind.  What a block binds:
 *
 *    embedding  forward   DATA ids, PARAM -> OUT
 *               backward  DATA ids, DOUT -> GRAD
 *    attention  forward   IN, PARAM, CONST -> OUT, SAVED_FB; generating also CACHE, SCALARS
 *               backward  IN, SAVED_FB, DOUT, PARAM, CONST -> DIN, GRAD
 *    mlp        as attention, without CONST and CACHE
 *    head       forward   IN, DATA labels, PARAM -> OUT loss, SAVED_FB; generating OUT logits
 *               backward  IN, SAVED_FB, DATA labels, PARAM, SCALARS -> DIN, GRAD
 *               a tied head has its table in TIED, and the gradient of it in TIED_GRAD
 *    update     PARAM, GRAD, MOMENT, SCALARS
 *  (PARAM, GRAD: those of each part of the unit, layout/shard.h)
 *
 *  Split (spec.splits_backward), forward saves two sets and backward is two blocks:
 *
 *    embedding  input     as backward: all of it; there is no weight block
 *    attention  forward   also -> SAVED_FW
 *               input     IN, SAVED_FB, SAVED_FW, DOUT, PARAM, CONST -> DIN, GRAD, SAVED_BW
 *               weight    SAVED_FW, SAVED_BW, DOUT -> GRAD
 *    mlp        likewise; input without SAVED_FW and CONST
 *    head       forward   also -> SAVED_FW
 *               input     IN, SAVED_FB, SAVED_FW, DATA labels, PARAM, SCALARS -> DIN, GRAD, and
 *                         in SAVED_FW the logits' gradient in their place
 *               weight    SAVED_FW -> GRAD
 *
 *  SAVED_FB is what input alone reads: statistics, qkv, gate and up, log-sums.  SAVED_FW is what
 *  weight reads of forward: the inputs of linear layers (of the attention output input reads too),
 *  the logits.  SAVED_BW is what input makes for weight: gradients at the outputs of linear layers.
 *  The weight block reads DOUT itself where that is such a gradient as it stands, without dropout
 *  and sequence parallelism; else it does not bind DOUT.  Of GRAD, weight has the linear layers and
 *  their biases, input has norms and QK-norms.  A block binds a region where its region_bytes is not
 *  0.
 *
 *  Both blocks' ops are those of the whole backward, in its order, on the same values: each gradient
 *  is the same bits if each tensor's backwards come in the same order.  (The table of a tied head is
 *  one tensor with two: the head's weight block and the embedding's input block.)
 *
 *  and WORK wherever temporaries or kernels need it.  Pure; every call is local. */
#ifndef ECH_PROGRAM_BLOCKS_H
#define ECH_PROGRAM_BLOCKS_H

#include "catalog/canon.h"   /* ech_canon */
#include "layout/shard.h"    /* ech_shard_plan */
#include "program/program.h" /* ech_block */

/** What the program is for. */
typedef enum ech_mode {
    ECH_MODE_TRAIN,
    ECH_MODE_EVAL,    /**< forward only: nothing saved, no dropout */
    ECH_MODE_GENERATE /**< forward of new tokens against a cache; N is an extent */
} ech_mode;

/** How parameters are updated. */
typedef enum ech_update_rule { ECH_UPDATE_ADAMW, ECH_UPDATE_SGD } ech_update_rule;

/** How state and activations are dealt out over ranks. */
typedef struct ech_shard_policy {
    bool is_sequence_parallel; /**< residual stream, norms and dropout by tokens over tp */
    bool keeps_inputs; /**< with it: gathered inputs kept for backward, not gathered again */
    int zero_stage;    /**< 0..3 over dp (the shard group) */
    bool reduces_each; /**< stage 2, 3: gradients reduced every micro-batch, not once */
    bool reshards_after_forward; /**< stage 3: parameters gathered again for backward */
    int prefetch;                /**< stage 3: units gathered ahead of the one in work */
} ech_shard_policy;

/** What follows from the policy for the state of a run (ech_compile_form). */
typedef struct ech_state_form {
    bool is_sharded; /**< moments are flat ranges over dp, and each rank updates its own */
    bool
        shards_grads; /**< so are gradients: whole ones live from their backward to their reduction */
    bool shards_params; /**< so are parameters: whole ones live from a gather to their last use */
} ech_state_form;

/** Everything a block depends on. */
typedef struct ech_block_spec {
    const ech_model *model; /**< borrowed */
    const ech_canon *canon; /**< borrowed */
    ech_layout layout;
    ech_shard_policy policy;
    const ech_shard_plan *plan; /**< borrowed; set by the compiler (ech_compile_plan) */
    ech_state_form form;        /**< set by the compiler */
    ech_dtype real;             /**< fp32 or fp64: every slot and message */
    ech_mode mode;
    bool splits_backward; /**< BACKWARD_INPUT and BACKWARD_WEIGHT in place of BACKWARD; set by the
                               compiler */
    int64_t rows;         /**< sequences in a micro-batch (generate: 1) */
    int64_t seq;          /**< tokens in a sequence (generate: most new tokens at once) */
    int64_t context;      /**< generate: tokens the cache holds */
    ech_update_rule optim;
    double beta1, beta2, eps, weight_decay, clip;
} ech_block_spec;

/* Each generator below takes a borrowed spec, hands over a block that the caller owns
 * (ech_program_add_block takes it) and returns ECH_OK | ECH_E_NOMEM | ECH_E_PROOF (a shape against
 * the op table: a fault of this code) | ECH_E_UNSUPPORTED (a role it does not know); nothing is left
 * to free on failure.  Roles are FORWARD, and BACKWARD or with spec.splits_backward BACKWARD_INPUT
 * and BACKWARD_WEIGHT. */

/** Has a unit of this kind blocks of role BACKWARD_WEIGHT where backward is split.  The embedding has
 *  none: nothing waits for its backward, so all of it is BACKWARD_INPUT. */
bool ech_unit_has_weight_role(ech_unit_kind kind);

/** Token and position embedding; without BACKWARD_WEIGHT. */
ECH_MUST_USE ech_status ech_block_embedding(const ech_block_spec *s, ech_role role, ech_block *out);

/** Norm, attention and residual of a layer. */
ECH_MUST_USE ech_status ech_block_attention(const ech_block_spec *s, ech_role role, ech_block *out);

/** Norm, dense MLP and residual of a layer. */
ECH_MUST_USE ech_status ech_block_mlp(const ech_block_spec *s, ech_role role, ech_block *out);

/** Final norm, output table and loss. */
ECH_MUST_USE ech_status ech_block_head(const ech_block_spec *s, ech_role role, ech_block *out);

/** Update of a unit's parameters, in each part those of this rank's flat range.
 *  @param s     borrowed
 *  @param unit  index in s->canon
 *  @param out   as above */
ECH_MUST_USE ech_status ech_block_update(const ech_block_spec *s, int unit, ech_block *out);

/** Step start: whole gradients (GRAD of each part, of all units), losses (OUT, fp64 [micros]) to
 *  zero, unmasked labels of all micro-batches (DATA) counted into TOKENS_LOCAL.
 *  has_grads false: no GRAD; has_losses false: no OUT. */
ECH_MUST_USE ech_status ech_block_prologue(const ech_block_spec *s, int micros, bool has_grads,
                                           bool has_losses, ech_block *out);

/** Whole gradients of a unit (GRAD of each part) to zero. */
ECH_MUST_USE ech_status ech_block_zero_grads(const ech_block_spec *s, int unit, ech_block *out);

/** TOKENS from TOKENS_LOCAL: start over dp, and the rest; OUT holds every rank's in between. */
ECH_MUST_USE ech_status ech_block_tokens(const ech_block_spec *s, bool is_wait, ech_block *out);

/** LOSS_SEED from TOKENS and LOSS_SCALE. */
ECH_MUST_USE ech_status ech_block_seed(const ech_block_spec *s, ech_block *out);

/** Sum of the micro-batches' losses (IN, fp64 [micros]; micros 0: this stage has none), and then of
 *  all ranks', into LOSS; STOP likewise. */
ECH_MUST_USE ech_status ech_block_loss(const ech_block_spec *s, int micros, ech_block *out);

/* --- messages between stages (block_transfer.c) --- */

/** One end of a message over pp. */
typedef struct ech_message {
    bool
        is_send; /**< of OUT (an activation) or DIN (its gradient); else received into IN or DOUT */
    bool is_gradient; /**< of the stream [N, H], not the stream itself */
    bool is_wait;
    int peer; /**< coordinate on pp of the other end */
} ech_message;

/** The region that a message's stream lies in, of its block and of the item that binds it. */
static inline ech_region ech_message_region(bool is_send, bool is_gradient)
{
    return is_gradient ? (is_send ? ECH_REGION_DIN : ECH_REGION_DOUT)
                       : (is_send ? ECH_REGION_OUT : ECH_REGION_IN);
}

/** The residual stream between two stages, or its gradient, to or from another pipeline rank. */
ECH_MUST_USE ech_status ech_block_message(const ech_block_spec *s, const ech_message *m,
                                          ech_block *out);

/* The norm of the whole gradient, each element counted once, in three exact sums (op.h,
 * ECH_SUMSQ_WORDS) that OUT holds one after the other: of what is cut over tp, of copies of keys and
 * values, of what is whole over tp. */

/** The three to zero. */
ECH_MUST_USE ech_status ech_block_norm_zero(const ech_block_spec *s, ech_block *out);

/** A unit's gradients (GRAD of each part, this rank's flat range) added. */
ECH_MUST_USE ech_status ech_block_norm(const ech_block_spec *s, int unit, ech_block *out);

/** Summed over the ranks that share elements out; then GRAD_SQ and CLIP. */
ECH_MUST_USE ech_status ech_block_norm_end(const ech_block_spec *s, ech_block *out);

/* --- transfers (block_transfer.c): a start and a wait each --- */

/** A part of a unit, or of neighbouring units, that is communicated. */
typedef struct ech_transfer {
    ech_part part;
    int64_t elems; /**< of the whole part; of a bucket: of all its units */
    bool is_wait;
    ech_axis axis; /**< all-reduce: over which */
    unsigned done; /**< all-reduce: bits of axes over which the gradient is summed already */
    bool is_share; /**< all-reduce: of this rank's flat range, else of everything */
} ech_transfer;

/** Gradients (GRAD of the part, or of a flat range by itself SHARD) summed in place, staging in OUT.
 */
ECH_MUST_USE ech_status ech_block_all_reduce(const ech_block_spec *s, const ech_transfer *t,
                                             ech_block *out);

/** Whole gradients (GRAD of the part) summed over dp into this rank's flat range: within them, or
 *  in SHARD where gradients are sharded; staging in OUT. */
ECH_MUST_USE ech_status ech_block_reduce_scatter(const ech_block_spec *s, const ech_transfer *t,
                                                 ech_block *out);

/** SHARD += IN: a micro-batch's flat range of a part onto those before. */
ECH_MUST_USE ech_status ech_block_add_share(const ech_block_spec *s, const ech_transfer *t,
                                            ech_block *out);

/** Parameters (PARAM of the part) from every rank's flat range: within them, or from SHARD where
 *  parameters are sharded. */
ECH_MUST_USE ech_status ech_block_all_gather(const ech_block_spec *s, const ech_transfer *t,
                                             ech_block *out);

/** Gradients of key/value heads that several ranks of tp hold (GRAD, whole), summed over exactly
 *  those; start and wait in one. */
ECH_MUST_USE ech_status ech_block_kv_sum(const ech_block_spec *s, ech_block *out);

/** Elements of the rotary table: fp64 [seq, rot / 2, 2], 0 without rotary embedding. */
int64_t ech_rope_table_elems(const ech_model *m, int64_t seq);

/** Fill it: cos and sin of position * frequency, with the model's scaling
 *  (Su et al. 2021, arXiv:2104.09864; Llama-3.1 frequency bands). */
void ech_rope_table_fill(const ech_model *m, int64_t seq, double *table);

#endif
