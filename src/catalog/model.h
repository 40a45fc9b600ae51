/** @file catalog/model.h
 *  What a model is: its shape and its switches, from a preset, an HF config.json or explicit keys,
 *  and what follows from them alone: exact parameter counts and FLOPs per token.
 *
 *  Two architectures are executed (gpt2, llama with switches); all families of family.c are known
 *  for counting.  Local, pure but for the reading of files. */
#ifndef ECH_CATALOG_MODEL_H
#define ECH_CATALOG_MODEL_H

#include "base/node.h"   /* ech_node */
#include "base/status.h" /* ech_status */
#include "base/text.h"   /* ech_findings */

#include <stdint.h>

/** Upper bounds of what is believed: below them no product of two sizes leaves 64 bits, and no list
 *  of layers is absurdly long. */
#define ECH_MODEL_SIZE_MAX   INT64_C(0x7fffffff)
#define ECH_MODEL_LAYERS_MAX INT64_C(4096)

/** Architectures that are executed; every family counts as one of them. */
typedef enum ech_arch { ECH_ARCH_GPT2, ECH_ARCH_LLAMA } ech_arch;
/** LayerNorm or RMSNorm. */
typedef enum ech_norm { ECH_NORM_LAYER, ECH_NORM_RMS } ech_norm;
/** Activation of the MLP. */
typedef enum ech_act {
    ECH_ACT_GELU_TANH, /**< 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    ECH_ACT_GELU,      /**< x Phi(x), exact */
    ECH_ACT_SWIGLU,    /**< silu(gate) * up */
    ECH_ACT_GEGLU,     /**< gelu_tanh(gate) * up (Gemma) */
    ECH_ACT_RELU
} ech_act;
/** How rotary frequencies are scaled. */
typedef enum ech_rope_kind {
    ECH_ROPE_NONE,
    ECH_ROPE_DEFAULT,
    ECH_ROPE_LINEAR, /**< positions divided by factor */
    ECH_ROPE_LLAMA3, /**< frequency bands, Llama-3.1 */
    ECH_ROPE_OTHER   /**< yarn, longrope, dynamic: known for counting, not executed */
} ech_rope_kind;

/** Rotary embedding.  Layout: half-split (HF: element i pairs with i + d/2) or interleaved (Meta,
 *  llama2.c: 2i with 2i+1). */
typedef struct ech_rope {
    ech_rope_kind kind;
    double theta;
    double factor;            /**< linear, llama3 */
    double low_freq_factor;   /**< llama3 */
    double high_freq_factor;  /**< llama3 */
    int64_t original_context; /**< llama3 */
    bool interleaved;
    double partial; /**< share of the head that is rotated, 1 = all */
} ech_rope;

enum { ECH_MOE_MASK_LAYERS = 1024 /**< layers that dense_mask can name */ };

/** Mixture of experts; experts == 0: dense.  Which layers are sparse: ech_model_is_sparse. */
typedef struct ech_moe {
    int64_t experts, topk, expert_ffn;
    int64_t shared_experts, shared_ffn; /**< shared_ffn: width of all shared experts together */
    bool shared_gate;                   /**< a sigmoid gate on the shared expert (Qwen1.5/2-MoE) */
    bool router_bias;     /**< correction bias per expert (DeepSeek-V3) or router bias */
    bool expert_bias;     /**< biases in experts (gpt-oss) */
    int64_t first_dense;  /**< first layers with a dense MLP of width ffn */
    int64_t sparse_step;  /**< every n-th layer is sparse (1: all) */
    int64_t sparse_phase; /**< ... those with (layer + phase) % step == 0 */
    uint64_t dense_mask[ECH_MOE_MASK_LAYERS / 64]; /**< bit i: layer i is dense whatever the step */
} ech_moe;

/** Multi-head latent attention (DeepSeek-V2/V3); kv_lora_rank == 0: none. */
typedef struct ech_mla {
    int64_t q_lora_rank; /**< 0: a plain query projection */
    int64_t kv_lora_rank, qk_nope_dim, qk_rope_dim, v_dim;
} ech_mla;

/** A model's shape and switches: a plain value, copied freely. */
typedef struct ech_model {
    char name[96];   /**< preset or path */
    char family[32]; /**< HF model_type or "gpt2", "llama" */
    ech_arch arch;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
    ech_norm norm;
    double norm_eps;
    ech_act act;
    ech_rope rope;
    bool learned_positions; /**< position table [context + position_extra, hidden] */
    int64_t position_extra; /**< rows of that table that no position has (OPT: 2) */
    bool alibi;             /**< distances bias the scores instead (BLOOM, some Falcons) */
    int64_t embed_dim;  /**< width of the token table, projected to hidden (OPT-350M); 0: hidden */
    bool embed_norm;    /**< norm behind the token table (BLOOM) */
    bool no_final_norm; /**< none before the head (OPT-350M) */
    bool qkv_bias, out_bias, mlp_bias, head_bias;
    bool norm_bias;      /**< LayerNorm with bias */
    bool parallel_norms; /**< one norm for attention and MLP together (GPT-J, Phi) */
    bool post_norms;     /**< norms after attention and MLP too (Gemma-2) */
    bool qk_norm;        /**< norm (of kind `norm`) over head_dim on q and k (Qwen3) */
    bool sinks;          /**< one attention sink per head (gpt-oss) */
    bool tie_embeddings;
    double dropout;
    int64_t window;        /**< sliding window, 0: none */
    int64_t window_layers; /**< how many layers have it; the others see everything */
    double init_std;       /**< normal initialisation, 0.02 */
    ech_moe moe;
    ech_mla mla;
    bool is_context_open;     /**< no context was said: it is as long as what is asked about */
    bool is_executable;       /**< the engine can run it */
    char not_executable[160]; /**< else: why, in words */
} ech_model;

/** Exact parameter counts of the HF implementation: biases, sinks and router correction bias
 *  included; a tied table once; no MTP layers, buffers or padding. */
typedef struct ech_param_count {
    int64_t total;
    int64_t active; /**< per token: top-k and shared experts only, embeddings and head included */
    int64_t embedding; /**< before the layers: token and position tables and what goes with them */
    int64_t matmul; /**< active, in matrix products, head included even if tied, input table not */
    int64_t per_layer_first, per_layer_last; /**< first and last layer (they differ with MoE) */
} ech_param_count;

/** A model with every default of arch filled in and zero sizes. */
ech_model ech_model_default(ech_arch arch);

/** Read an HF config.json tree.
 *  @param node      the parsed file; nested text_config is followed
 *  @param name      for messages
 *  @param out       set on success only
 *  @return ECH_OK | ECH_E_CONFIG with all findings */
ECH_MUST_USE ech_status ech_model_from_hf(const ech_node *node, const char *name, ech_model *out);

/** Read the `model:` map of a configuration: {preset: NAME} | {hf: DIR or config.json} | arch and
 *  sizes; other keys beside a preset or hf change it.  Relative paths are taken from base_dir.
 *  Findings (unknown keys with the nearest known one, wrong types, impossible sizes with the
 *  nearest legal value) are added, all of them.  A feature that is known but not built only leaves
 *  is_executable false: who wants to run the model refuses it with not_executable.
 *  @param node      borrowed
 *  @param base_dir  borrowed
 *  @param findings  added to
 *  @param out       always set: what could be read, sizes that could not are 0
 *  @return ECH_OK, also with findings | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_model_from_config(const ech_node *node, const char *base_dir,
                                              ech_findings *findings, ech_model *out);

/** Read a shape in words, "layers=24,hidden=2304,heads=24,ffn=9216,vocab=51200,arch=gpt": the sizes
 *  and switches of the `model:` map, of moe and mla too (experts=8,topk=2), or preset=NAME or hf=PATH
 *  with changes.  arch is gpt (or gpt2) or llama.  Without context it is open (is_context_open): 2048
 *  until ech_model_take_seq.
 *  @param text  borrowed
 *  @param out   set on success only
 *  @return ECH_OK | ECH_E_CONFIG with all findings | ECH_E_PARSE | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_model_from_words(const char *text, ech_model *out);

/** A model whose context is open has as many positions as seq; others stay. */
void ech_model_take_seq(ech_model *m, int64_t seq);

/** By preset name, config.json path, folder holding one, or words (what holds a '=' and is no path
 *  that exists); unknown names suggest the nearest.
 *  @return ECH_OK
 *        | ECH_E_CONFIG  no such name or file, or wrong contents
 *        | ECH_E_USAGE   the path is too long
 *        | ECH_E_PARSE | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_model_load(const char *name_or_path, ech_model *out);

/** Names of all presets, sorted; static storage. */
const char *const *ech_model_presets(size_t *n);

/** Sizes positive and consistent (heads divide by kv_heads, rotary even, ...): all findings, each
 *  with the nearest legal value. */
void ech_model_validate(const ech_model *m, ech_findings *findings);

/** A training or prompt length against the model's positions: 1 .. context.  Refused where it is
 *  longer, with learned positions (there is no row) as with rotary ones (never trained).  An open
 *  context is as long as is asked. */
void ech_model_validate_seq(const ech_model *m, int64_t seq, ech_findings *findings);

/** Has layer (0..layers-1) experts in place of the dense MLP. */
bool ech_model_is_sparse(const ech_model *m, int64_t layer);

/** Exact counts: the sums of all units' tensors (ech_tensors_sum, catalog/tensors.h).
 *  @return ECH_OK | ECH_E_ILLEGAL when a count leaves 64 bits or there are more than
 *          ECH_MODEL_LAYERS_MAX layers, *out unchanged */
ECH_MUST_USE ech_status ech_model_count(const ech_model *m, ech_param_count *out);

/** Model FLOPs per token, forward + backward, at sequence length seq:
 *  6 N_matmul + 12 L min(s, window) a d_h, halved in its second term where causal is asked
 *  (Chowdhery et al. 2022, arXiv:2204.02311, appendix B). */
double ech_model_flops_per_token(const ech_model *m, int64_t seq, bool causal_half);

/** The share of one unit in ech_model_flops_per_token: the embedding (unit 0; 0 but where its table is
 *  projected), then the layers 1 .. L, then the head (L + 1).  A layer has the mean of all layers' attention: which of them have
 *  a window is not known.  NaN where a count leaves 64 bits. */
double ech_model_unit_flops(const ech_model *m, int64_t unit, int64_t seq, bool causal_half);

/** The model as an HF config.json document that Transformers loads: gpt2, llama, mistral, qwen2 or
 *  qwen3, as the switches ask.  Rotary order in HF is half-split: who writes the weights of an
 *  interleaved model permutes them.
 *  @param m            the model
 *  @param torch_dtype  of the weights beside it, such as "float32"; NULL: not said
 *  @param out          appended to, owned by the caller
 *  @return ECH_OK | ECH_E_UNSUPPORTED (no such HF architecture) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_model_to_hf(const ech_model *m, const char *torch_dtype, ech_text *out);

#endif
