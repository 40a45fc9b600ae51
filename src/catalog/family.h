/** @file catalog/family.h
 *  Families of HF models: what their `model_type` or class name fixes, and the value of a key that
 *  a config.json leaves out.  Defaults are those of the Transformers classes, except that a missing
 *  num_key_value_heads always means "as many as heads".  Inside catalog only.  Local, pure. */
#ifndef ECH_CATALOG_FAMILY_H
#define ECH_CATALOG_FAMILY_H

#include "catalog/model.h" /* ech_model */

/** Which key switches the biases of attention. */
typedef enum ech_bias_key {
    ECH_BIAS_FIXED,     /**< none: what the row says holds */
    ECH_BIAS_ATTENTION, /**< attention_bias: q, k, v and out together */
    ECH_BIAS_QKV        /**< qkv_bias: q, k and v */
} ech_bias_key;

/** Where experts are described and how. */
typedef enum ech_moe_keys {
    ECH_MOE_NONE,
    ECH_MOE_PLAIN,    /**< all layers, expert width = intermediate_size (Mixtral, gpt-oss) */
    ECH_MOE_QWEN,     /**< decoder_sparse_step, mlp_only_layers, moe_intermediate_size */
    ECH_MOE_DEEPSEEK, /**< first_k_dense_replace, n_shared_experts, latent attention */
    ECH_MOE_DBRX      /**< inside ffn_config */
} ech_moe_keys;

/** Which layers a sliding window holds for, where layer_types does not list them. */
typedef enum ech_window_rule {
    ECH_WINDOW_NONE,
    ECH_WINDOW_ALL,         /**< sliding_window, every layer */
    ECH_WINDOW_ALTERNATE,   /**< layers 0, 2, 4 ... */
    ECH_WINDOW_SWITCHED,    /**< only with use_sliding_window: every layer */
    ECH_WINDOW_TAIL,        /**< ... those from max_window_layers on */
    ECH_WINDOW_EVEN_PREFIX, /**< ... even ones below max_window_layers */
    ECH_WINDOW_SIXTH        /**< all but every sixth */
} ech_window_rule;

/** One family. */
typedef struct ech_family {
    const char *model_type;
    const char *class_stem; /**< of architectures[0]: "Llama" in "LlamaForCausalLM" */
    ech_arch arch;
    ech_norm norm;
    ech_act act;
    bool is_tied; /**< default of tie_word_embeddings */
    bool qkv_bias, out_bias, mlp_bias, head_bias;
    ech_bias_key bias_key;
    bool has_mlp_bias_key; /**< reads mlp_bias */
    bool parallel_norms, post_norms, qk_norm, sinks;
    bool has_qk_norm_key; /**< reads qk_layernorm */
    bool has_ffn_default; /**< missing feed-forward width: 4 x hidden */
    bool is_ffn_fixed;    /**< always 4 x hidden, no key is heeded */
    bool no_head_dim_key; /**< a head_dim would not be heeded */
    bool no_groups_key;   /**< nor num_key_value_heads */
    bool learned_positions, has_alibi, embed_norm, no_norm_bias;
    int64_t position_extra;
    ech_moe_keys moe;
    bool shared_gate, router_bias, expert_bias;
    int64_t shared_experts, first_dense; /**< defaults of DeepSeek's keys */
    int64_t head_dim;                    /**< default, 0: hidden / heads */
    int64_t context;                     /**< default */
    double eps, theta, partial;          /**< defaults; 0: 1e-6, 10000, 1 */
    bool interleaved;                    /**< rotary pairs are neighbours */
    ech_window_rule window_rule;
    int64_t window; /**< default of sliding_window, 0: none */
    /** Sizes of the class: layers, hidden, heads, kv_heads (0: heads), ffn, vocab.  Used only where
     *  a file states differences from its class: in the text_config inside a multimodal model. */
    int64_t sizes[6];
    const char *not_executable; /**< why, or NULL */
} ech_family;

/** Row of a model_type (old names too), or NULL. */
const ech_family *ech_family_find(const char *model_type);

/** Row of a class name such as "DeepseekV3ForCausalLM", or NULL. */
const ech_family *ech_family_of_class(const char *class_name);

/** Names of all model types, for suggestions; static storage. */
const char *const *ech_family_names(size_t *n);

/** A model with everything the family fixes and its defaults, zero sizes. */
ech_model ech_family_model(const ech_family *f);

/** Mark m as not executable; the first reason given stays. */
void ech_model_refuse(ech_model *m, const char *fmt, ...) ECH_PRINTF(2, 3);

/** Refuse what has no block to run it or no HF form to be written in.  Every model that is read
 *  goes through here, so that nothing is run as something else. */
void ech_model_check_built(ech_model *m);

/** Relations between sizes, without the check that they are positive: what a reader that has
 *  already complained about missing sizes still wants to know. */
void ech_model_validate_relations(const ech_model *m, ech_findings *findings);

/** The divisor of n nearest to wanted (n, wanted > 0). */
int64_t ech_nearest_divisor(int64_t n, int64_t wanted);

#endif
