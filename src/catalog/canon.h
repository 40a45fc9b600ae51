/** @file catalog/canon.h
 *  Canonical tensors: the one definition of a model's parameters, their names, shapes, units and
 *  order, shared by initialisation, RNG keys, placements, checkpoints, gradients and importers.
 *
 *  - QKV by head group: [g, r + 2, d_h, H], group i holds its r = a/g query heads, then K, then V.
 *  - gate and up together: [2, F, H], gate first.
 *  - every matrix is [out, in], also GPT-2's (HF stores those transposed).
 *  - rotary pairs as model.rope says: half-split (HF), or interleaved; HF files are always
 *    half-split, the name map permutes.
 *  - vocabulary padded to a multiple of ECH_VOCAB_MULTIPLE, whatever the layout; padded rows are
 *    zero, get no probability and no gradient.
 *
 *  Parameters are laid out in units (0 embedding, 1..L layers, L+1 head), each flat and without
 *  gaps in the order of ech_canon.param.  Local, pure. */
#ifndef ECH_CATALOG_CANON_H
#define ECH_CATALOG_CANON_H

#include "catalog/model.h" /* ech_model */

enum { ECH_VOCAB_MULTIPLE = 128 /**< rows of the vocabulary are padded to it */ };

/** Elements a model has at most, padding included: 32 bytes of each (parameter, gradient and two
 *  moments in fp64) stay within a quarter of what 63 bits count. */
#define ECH_CANON_ELEMS_MAX (INT64_C(1) << 56)

/** Kinds of parameters, with their shapes; letters as in program/op.h, a heads, d_h head_dim. */
typedef enum ech_param_kind {
    ECH_PARAM_TOKEN_EMBED,     /**< [Vpad, H] */
    ECH_PARAM_POSITION_EMBED,  /**< [context, H] */
    ECH_PARAM_ATTN_NORM,       /**< [H] */
    ECH_PARAM_ATTN_NORM_BIAS,  /**< [H] */
    ECH_PARAM_QKV,             /**< [g, r + 2, d_h, H] */
    ECH_PARAM_QKV_BIAS,        /**< [g, r + 2, d_h] */
    ECH_PARAM_Q_NORM,          /**< [d_h] */
    ECH_PARAM_K_NORM,          /**< [d_h] */
    ECH_PARAM_ATTN_OUT,        /**< [H, a * d_h] */
    ECH_PARAM_ATTN_OUT_BIAS,   /**< [H] */
    ECH_PARAM_MLP_NORM,        /**< [H] */
    ECH_PARAM_MLP_NORM_BIAS,   /**< [H] */
    ECH_PARAM_GATE_UP,         /**< [2, F, H], gated activations */
    ECH_PARAM_UP,              /**< [F, H], plain activations */
    ECH_PARAM_UP_BIAS,         /**< [F] */
    ECH_PARAM_DOWN,            /**< [H, F] */
    ECH_PARAM_DOWN_BIAS,       /**< [H] */
    ECH_PARAM_FINAL_NORM,      /**< [H] */
    ECH_PARAM_FINAL_NORM_BIAS, /**< [H] */
    ECH_PARAM_HEAD,            /**< [Vpad, H], absent when tied */
    ECH_N_PARAM_KINDS
} ech_param_kind;

/** Kinds of units: all units of a kind have the same tensors in the same order. */
typedef enum ech_unit_kind {
    ECH_UNIT_EMBEDDING,
    ECH_UNIT_LAYER,
    ECH_UNIT_HEAD,
    ECH_N_UNIT_KINDS
} ech_unit_kind;

/** What a parameter starts as. */
typedef enum ech_init { ECH_INIT_NORMAL, ECH_INIT_ZERO, ECH_INIT_ONE } ech_init;

/** One canonical tensor. */
typedef struct ech_param {
    ech_param_kind kind;
    int layer;     /**< 0..L-1, or -1 in the embedding and head units */
    int unit;      /**< 0 embedding, 1 + layer, L + 1 head */
    char name[64]; /**< "layers.3.attn.qkv.weight" */
    int rank;      /**< dimensions */
    int64_t dim[4];
    int64_t elems;
    int64_t unit_offset; /**< elements from the start of its unit */
    int64_t offset;      /**< elements from the start of the model: also the RNG element base */
    ech_init init;
    double init_std; /**< NORMAL; residual outputs are divided by sqrt(2 L) */
    bool is_decayed; /**< weight decay applies: matrices other than embeddings */
} ech_param;

/** All canonical tensors of a model. */
typedef struct ech_canon {
    ech_param *param; /**< owned */
    int n_params;
    int n_units;          /**< layers + 2 */
    int64_t *unit_elems;  /**< owned, [n_units] */
    int64_t *unit_offset; /**< owned, [n_units]: elements from the start of the model */
    int *unit_first;      /**< owned, [n_units + 1]: first parameter of each unit */
    int64_t elems;        /**< of the whole model, padding included */
    int64_t vocab_padded;
} ech_canon;

/** Vocabulary rounded up to ECH_VOCAB_MULTIPLE. */
int64_t ech_vocab_padded(int64_t vocab);

/** Build the list for an executable model.
 *  @return ECH_OK | ECH_E_UNSUPPORTED (with m->not_executable) | ECH_E_NOMEM
 *        | ECH_E_ILLEGAL (a size is not positive or absurd, heads do not divide into kv_heads, more
 *          than ECH_CANON_ELEMS_MAX elements) */
ECH_MUST_USE ech_status ech_canon_create(const ech_model *m, ech_canon *out);

/** Release and zero. */
void ech_canon_fini(ech_canon *c);

/** Kind of a unit, 0 .. n_units - 1. */
ech_unit_kind ech_canon_unit_kind(const ech_canon *c, int unit);

/** First unit of a kind. */
int ech_canon_first_unit(const ech_canon *c, ech_unit_kind kind);

/** Parameter of a kind in a layer (-1 for embedding and head units), or NULL. */
const ech_param *ech_canon_find(const ech_canon *c, ech_param_kind kind, int layer);

#endif
