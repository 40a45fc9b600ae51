/** @file catalog/tensors.h
 *  Every parameter tensor of a model of any known family, name by name: the one table that
 *  parameter counts, shapes, state bytes and FLOPs come from.  Names are the canonical ones where
 *  the engine has them (catalog/canon.h), but q, k and v, gate and up stand apart and nothing is
 *  padded: this is the HF implementation's count, also of what the engine does not run.  Local,
 *  pure. */
#ifndef ECH_CATALOG_TENSORS_H
#define ECH_CATALOG_TENSORS_H

#include "catalog/model.h" /* ech_model */

/** Role of a tensor in counts. */
typedef enum ech_tensor_role {
    ECH_TENSOR_TABLE,         /**< looked up: token and position embeddings */
    ECH_TENSOR_MATRIX,        /**< multiplied by every token */
    ECH_TENSOR_VECTOR,        /**< norm, bias, sink */
    ECH_TENSOR_EXPERT_MATRIX, /**< one of moe.experts, topk of them multiplied by a token */
    ECH_TENSOR_EXPERT_VECTOR  /**< its biases */
} ech_tensor_role;

/** One tensor, or all `copies` of one expert tensor. */
typedef struct ech_model_tensor {
    char name[64]; /**< "attn.q.weight", without a layer */
    int rank;
    int64_t dim[2];
    int64_t copies; /**< moe.experts for expert tensors, else 1 */
    ech_tensor_role role;
} ech_model_tensor;

enum { ECH_TENSORS_MAX = 48 /**< tensors of one unit, at most */ };

/** Tensors of one unit. */
typedef struct ech_tensors {
    int n;
    ech_model_tensor item[ECH_TENSORS_MAX];
} ech_tensors;

/** Tensors before the layers: token and position tables. */
void ech_tensors_embedding(const ech_model *m, ech_tensors *out);

/** Tensors of a sparse or a dense layer; all layers of one kind are alike. */
void ech_tensors_layer(const ech_model *m, bool is_sparse, ech_tensors *out);

/** Tensors after the layers: final norm and, untied, the output head. */
void ech_tensors_head(const ech_model *m, ech_tensors *out);

/** How many layers are sparse. */
int64_t ech_model_sparse_layers(const ech_model *m);

/** Sums over the tensors of one unit. */
typedef struct ech_tensor_sum {
    int64_t total;  /**< parameters */
    int64_t active; /**< of them used by one token */
    int64_t matmul; /**< of those, in matrices (tables not) */
} ech_tensor_sum;

/** @return ECH_OK | ECH_E_ILLEGAL (a sum leaves 64 bits; *out unchanged) */
ECH_MUST_USE ech_status ech_tensors_sum(const ech_model *m, const ech_tensors *t,
                                        ech_tensor_sum *out);

#endif
