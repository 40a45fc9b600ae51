/** @file price/shape.h
 *  What one rank holds of a model under a layout: dimensions and parameters of a layer, of the
 *  embedding and of the head after tp, cp, ep and expert-tp, and which layers each virtual stage has.
 *  Memory and time both ask here, so that they speak of the same matrices.
 *
 *  Vocabularies are padded as the system pads them: Megatron (under DeepSpeed with tp too) to a
 *  multiple of 128 tp, Echelon to 128 rows (catalog/canon.h) and then to whole rows a rank, the
 *  others to whole rows a rank.
 *  Key and value heads that tp does not divide are held by several ranks.
 *  Sources: Megatron-LM, core 0.14 (which matrices are cut, which are whole).
 *  Pure arithmetic, nothing allocates, no strings; local. */
#ifndef ECH_PRICE_SHAPE_H
#define ECH_PRICE_SHAPE_H

#include "price/job.h" /* ech_job, ech_point */

/** Parameters of a unit on one rank, elements. */
typedef struct ech_shape_params {
    double cut;    /**< of tensors cut over tp */
    double whole;  /**< of tensors that every rank of tp holds: norms, biases of outputs, routers */
    double expert; /**< of experts: shared over edp ranks, not over dp x cp */
} ech_shape_params;

/** Attention of one rank. */
typedef struct ech_shape_attention {
    int64_t heads;     /**< query heads */
    int64_t kv_heads;  /**< key/value heads, copies included */
    int64_t qk_dim;    /**< size of a query or key head; MLA: nope + rope */
    int64_t v_dim;     /**< size of a value head */
    int64_t q_out;     /**< heads * qk_dim */
    int64_t k_out;     /**< kv_heads * qk_dim (MLA: as many as queries) */
    int64_t v_out;     /**< kv_heads * v_dim */
    int64_t o_in;      /**< heads * v_dim: columns of the output matrix */
    int64_t q_latent;  /**< MLA: q_lora_rank; 0: none */
    int64_t kv_latent; /**< MLA: kv_lora_rank; 0: plain attention */
    int64_t rope_dim;  /**< MLA: the rotated part of keys that all heads share */
} ech_shape_attention;

/** Dimensions that all layers of a rank have. */
typedef struct ech_shape {
    int64_t hidden;
    int64_t micro_tokens; /**< of a micro-batch on a rank of cp: micro * seq / cp */
    int64_t own_tokens;   /**< of them outside of tp's matrices: / tp with sequence parallelism */
    int64_t span;         /**< a sequence */
    ech_shape_attention attention;
    bool is_gated;      /**< gate and up */
    int64_t ffn;        /**< dense MLP's width on a rank */
    int64_t experts;    /**< on a rank */
    int64_t expert_ffn; /**< width of one on a rank */
    int64_t shared_ffn; /**< of shared experts on a rank */
    double routed; /**< rows that a rank's experts take, balanced: micro_tokens * topk * etp / tp */
    double imbalance;    /**< the fullest rank takes so many times `routed`, capacity applied */
    int64_t vocab;       /**< rows of the token table on a rank, padded */
    int64_t vocab_whole; /**< of all ranks of tp together */
    ech_shape_params layer[2]; /**< of a dense and of a sparse layer */
    double matrix[2];          /**< of those, of matrices that every token is multiplied by; experts
                                    and vectors not */
    ech_shape_params embedding, head; /**< head: final norm, and the table unless it is tied */
    double tied; /**< elements of the token table that the head multiplies by where it is tied (of
                      its own where p > 1, apart from `head`); 0: not tied */
} ech_shape;

/** Dimensions under a layout. */
void ech_shape_of(const ech_job *job, const ech_point *point, ech_shape *out);

/** One virtual stage. */
typedef struct ech_stage_shape {
    int32_t first;         /**< layer */
    int32_t dense, sparse; /**< layers of each kind */
    int32_t rank;          /**< pipeline rank that it is on */
} ech_stage_shape;

enum { ECH_SHAPE_STAGES = 4096 /**< virtual stages that are told apart */ };

/** Sparse layers among from .. to - 1. */
int64_t ech_shape_sparse(const ech_model *m, int64_t from, int64_t to);

/** Chunks of a pipeline rank, v: what the schedule makes of point->vpp; 1 where there is one rank. */
int ech_shape_chunks(const ech_point *point);

/** Cut the layers into virtual stages: as point->split says.  BALANCED: the dearest stage is as
 *  cheap as can be and the others are even, by the costs of layout/stages.h (where all layers are of
 *  one kind its very cut, else within a layer of it).  The embedding belongs to stage 0, the head to
 *  the last.
 *  @param job    borrowed
 *  @param point  legal, borrowed
 *  @param out    [pp * chunks], at most ECH_SHAPE_STAGES
 *  @return stages */
int ech_shape_cut(const ech_job *job, const ech_point *point, ech_stage_shape *out);

/** Parameters of a unit on a rank, all together. */
static inline double ech_shape_sum(ech_shape_params p)
{
    return p.cut + p.whole + p.expert;
}

#endif
