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
 *
 *  and WORK wherever temporaries or kernels need it.  Pure; every call is local. */
#ifndef ECH_PROGRAM_BLOCKS_H
#define ECH_PROGRAM_BLOCKS_H

#include "catalog/canon.h"   /* ech_canon */
#include "program/program.h" /* ech_block */

/** What the program is for. */
typedef enum ech_mode {
    ECH_MODE_TRAIN,
    ECH_MODE_EVAL,    /**< forward only: nothing saved, no dropout */
    ECH_MODE_GENERATE /**< forward of new tokens against a cache; N is an extent */
} ech_mode;

/** How parameters are updated. */
typedef enum ech_update_rule { ECH_UPDATE_ADAMW, ECH_UPDATE_SGD } ech_update_rule;

/** Everything a block depends on. */
typedef struct ech_block_spec {
    const ech_model *model; /**< borrowed */
    const ech_canon *canon; /**< borrowed */
    ech_layout layout;
    ech_dtype real; /**< fp32 or fp64: every slot and message */
    ech_mode mode;
    int64_t rows;    /**< sequences in a micro-batch (generate: 1) */
    int64_t seq;     /**< tokens in a sequence (generate: most new tokens at once) */
    int64_t context; /**< generate: tokens the cache holds */
    ech_update_rule optim;
    double beta1, beta2, eps, weight_decay, clip;
} ech_block_spec;

/* Each generator below takes a borrowed spec, hands over a block that the caller owns
 * (ech_program_add_block takes it) and returns ECH_OK | ECH_E_NOMEM | ECH_E_PROOF (a shape against
 * the op table: a fault of this code) | ECH_E_UNSUPPORTED (a role it does not know); nothing is left
 * to free on failure. */

/** Token and position embedding, FORWARD or BACKWARD. */
ECH_MUST_USE ech_status ech_block_embedding(const ech_block_spec *s, ech_role role, ech_block *out);

/** Norm, attention and residual of a layer, FORWARD or BACKWARD. */
ECH_MUST_USE ech_status ech_block_attention(const ech_block_spec *s, ech_role role, ech_block *out);

/** Norm, dense MLP and residual of a layer, FORWARD or BACKWARD. */
ECH_MUST_USE ech_status ech_block_mlp(const ech_block_spec *s, ech_role role, ech_block *out);

/** Final norm, output table and loss, FORWARD or BACKWARD. */
ECH_MUST_USE ech_status ech_block_head(const ech_block_spec *s, ech_role role, ech_block *out);

/** Update of one unit's parameters [elems of the unit]; decay by runs of ech_param.is_decayed.
 *  @param s     borrowed
 *  @param unit  index in s->canon
 *  @param out   as above */
ECH_MUST_USE ech_status ech_block_update(const ech_block_spec *s, int unit, ech_block *out);

/** Step start: gradients (GRAD, elems), losses (OUT, fp64 [micros]) to zero, unmasked labels of all
 *  micro-batches (DATA) counted into TOKENS_LOCAL.  has_grads false: no GRAD. */
ECH_MUST_USE ech_status ech_block_prologue(const ech_block_spec *s, int micros, bool has_grads,
                                           ech_block *out);

/** LOSS_SEED from TOKENS and LOSS_SCALE. */
ECH_MUST_USE ech_status ech_block_seed(const ech_block_spec *s, ech_block *out);

/** Sum of the micro-batches' losses (IN, fp64 [micros]) into LOSS_LOCAL. */
ECH_MUST_USE ech_status ech_block_loss(const ech_block_spec *s, int micros, ech_block *out);

/** Squared norm of the whole gradient (GRAD) into GRAD_SQ, then CLIP. */
ECH_MUST_USE ech_status ech_block_norm(const ech_block_spec *s, ech_block *out);

/** Sums over dp of n neighbouring cells into n others: start and wait, all ranks' values in OUT
 *  ([dp, n] of 8 bytes); with one rank a copy. */
ECH_MUST_USE ech_status ech_block_sum_cells(const ech_block_spec *s, ech_cell from, ech_cell to,
                                            int n, bool is_wait, ech_block *out);

/** All-reduce over dp of elems gradient elements (GRAD), staging in OUT: start or wait. */
ECH_MUST_USE ech_status ech_block_all_reduce(const ech_block_spec *s, int64_t elems, bool is_wait,
                                             ech_block *out);

/** Elements of the rotary table: fp64 [seq, rot / 2, 2], 0 without rotary embedding. */
int64_t ech_rope_table_elems(const ech_model *m, int64_t seq);

/** Fill it: cos and sin of position * frequency, with the model's scaling
 *  (Su et al. 2021, arXiv:2104.09864; Llama-3.1 frequency bands). */
void ech_rope_table_fill(const ech_model *m, int64_t seq, double *table);

#endif
