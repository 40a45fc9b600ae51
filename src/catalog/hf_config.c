/* An HF config.json as a model.  Key names differ by family and by age of the file; what a key
 * means when it is absent stands in the family's row. */
#include "catalog/hf_file.h"
#include "catalog/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SIZE_LAYERS, SIZE_HIDDEN, SIZE_HEADS, SIZE_KV_HEADS, SIZE_FFN, SIZE_VOCAB };

/* A size that must be there, unless the file states differences from its class. */
static ech_key_got need_size(const ech_hf_file *h, const char *const *keys, int which, int64_t *out)
{
    const ech_key_got got = ech_key_int(&h->r, keys, 1, out);
    if (got != ECH_KEY_ABSENT)
        return got;
    if (h->is_difference && which >= 0 && h->family->sizes[which] > 0) {
        *out = h->family->sizes[which];
        return ECH_KEY_GOOD;
    }
    ech_findings_add(h->r.findings, "%s: %s is missing", h->r.name, keys[0]);
    return ECH_KEY_BAD;
}

static void read_head_dim(const ech_hf_file *h, ech_model *m)
{
    const ech_key_got got = h->family->no_head_dim_key
                                ? ECH_KEY_ABSENT
                                : ech_key_int(&h->r, ECH_KEYS("head_dim"), 1, &m->head_dim);
    if (got != ECH_KEY_ABSENT)
        return;
    if (h->family->head_dim > 0)
        m->head_dim = h->family->head_dim;
    /* latent attention has widths of its own */
    if (m->head_dim > 0 || h->family->moe == ECH_MOE_DEEPSEEK || m->hidden == 0 || m->heads == 0)
        return;
    if (m->hidden % m->heads != 0)
        ech_findings_add(h->r.findings,
                         "%s: hidden_size %" PRId64 " is not a multiple of num_attention_heads "
                         "%" PRId64 ": nearest is %" PRId64 " heads",
                         h->r.name, m->hidden, m->heads, ech_nearest_divisor(m->hidden, m->heads));
    else
        m->head_dim = m->hidden / m->heads;
}

static void read_sizes(const ech_hf_file *h, ech_model *m)
{
    (void)need_size(h, ECH_KEYS("num_hidden_layers", "n_layer", "n_layers"), SIZE_LAYERS,
                    &m->layers);
    (void)need_size(h, ECH_KEYS("hidden_size", "n_embd", "n_embed", "d_model"), SIZE_HIDDEN,
                    &m->hidden);
    (void)need_size(h, ECH_KEYS("num_attention_heads", "n_head", "n_heads"), SIZE_HEADS, &m->heads);
    (void)need_size(h, ECH_KEYS("vocab_size"), SIZE_VOCAB, &m->vocab);
    m->kv_heads = m->heads;
    const ech_key_got got =
        h->family->no_groups_key
            ? ECH_KEY_ABSENT
            : ech_key_int(&h->r, ECH_KEYS("num_key_value_heads", "n_head_kv"), 1, &m->kv_heads);
    if (got == ECH_KEY_ABSENT && h->is_difference && h->family->sizes[SIZE_KV_HEADS] > 0)
        m->kv_heads = h->family->sizes[SIZE_KV_HEADS];
    read_head_dim(h, m);
    m->context = h->family->context;
    if (ech_key_int(&h->r, ECH_KEYS("max_position_embeddings", "n_positions", "max_seq_len"), 1,
                    &m->context) == ECH_KEY_ABSENT)
        (void)ech_key_int(&h->r, ECH_KEYS("n_ctx"), 1, &m->context);
    if (m->layers > ECH_MODEL_LAYERS_MAX)
        ech_findings_add(h->r.findings, "%s: num_hidden_layers is %" PRId64 ", at most %" PRId64,
                         h->r.name, m->layers, (int64_t)ECH_MODEL_LAYERS_MAX);
}

static void read_ffn(const ech_hf_file *h, ech_model *m)
{
    const char *const *keys =
        ECH_KEYS("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size");
    const bool is_used = m->layers > 0 && m->layers <= ECH_MODEL_LAYERS_MAX &&
                         m->moe.sparse_step > 0 && ech_model_sparse_layers(m) < m->layers;
    if (h->family->is_ffn_fixed) {
        m->ffn = 4 * m->hidden;
        return;
    }
    if (h->family->has_ffn_default || !is_used) {
        if (ech_key_int(&h->r, keys, 1, &m->ffn) == ECH_KEY_ABSENT && h->family->has_ffn_default)
            m->ffn = 4 * m->hidden;
        return;
    }
    (void)need_size(h, keys, SIZE_FFN, &m->ffn);
}

static void read_biases(const ech_hf_file *h, ech_model *m)
{
    if (h->family->bias_key == ECH_BIAS_ATTENTION &&
        ech_key_bool(&h->r, "attention_bias", &m->qkv_bias) == ECH_KEY_GOOD)
        m->out_bias = m->qkv_bias;
    if (h->family->bias_key == ECH_BIAS_QKV)
        (void)ech_key_bool(&h->r, "qkv_bias", &m->qkv_bias);
    if (h->family->has_mlp_bias_key)
        (void)ech_key_bool(&h->r, "mlp_bias", &m->mlp_bias);
    if (h->family->has_qk_norm_key)
        (void)ech_key_bool(&h->r, "qk_layernorm", &m->qk_norm);
    if (m->mlp_bias && m->arch == ECH_ARCH_LLAMA)
        ech_model_refuse(m, "biases in a gated MLP are not built yet");
}

/* Where the file is a text_config, the whole file may hold the answer. */
static void read_tie(const ech_hf_file *h, ech_model *m)
{
    const ech_key_reader outer = {h->outer, h->r.name, h->r.findings};
    if (ech_key_bool(&h->r, "tie_word_embeddings", &m->tie_embeddings) == ECH_KEY_ABSENT)
        (void)ech_key_bool(&outer, "tie_word_embeddings", &m->tie_embeddings);
}

/* One activation by its HF name: is it known for plain or for gated MLPs. */
static bool find_activation(const char *name, bool is_gated, bool is_gemma, ech_act *out)
{
    static const struct {
        const char *name;
        bool is_gated;
        ech_act act;
    } rows[] = {
        {"gelu_new", false, ECH_ACT_GELU_TANH},  {"gelu_pytorch_tanh", false, ECH_ACT_GELU_TANH},
        {"gelu_fast", false, ECH_ACT_GELU_TANH}, {"gelu", false, ECH_ACT_GELU},
        {"relu", false, ECH_ACT_RELU},           {"silu", true, ECH_ACT_SWIGLU},
        {"swish", true, ECH_ACT_SWIGLU},         {"gelu_pytorch_tanh", true, ECH_ACT_GEGLU},
        {"gelu_new", true, ECH_ACT_GEGLU},
    };
    if (is_gemma && strcmp(name, "gelu") == 0) /* an old name for the tanh form in these files */
        name = "gelu_pytorch_tanh";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].is_gated == is_gated && strcmp(rows[i].name, name) == 0) {
            *out = rows[i].act;
            return true;
        }
    return false;
}

static void read_activation(const ech_hf_file *h, ech_model *m)
{
    const char *name = NULL;
    if (ech_key_string(
            &h->r, ECH_KEYS("hidden_activation", "hidden_act", "activation_function", "activation"),
            &name) != ECH_KEY_GOOD)
        return;
    const bool is_gemma = h->family->act == ECH_ACT_GEGLU;
    const bool is_gated = m->arch == ECH_ARCH_LLAMA;
    if (!find_activation(name, is_gated, is_gemma, &m->act)) /* the counts hold all the same */
        ech_model_refuse(m, "activation '%.40s' is not built yet", name);
}

static void read_dropout(const ech_hf_file *h, ech_model *m)
{
    double rate[3] = {0.0, 0.0, 0.0};
    if (h->family->learned_positions)
        rate[0] = rate[1] = rate[2] = 0.1; /* defaults of GPT-2's class */
    (void)ech_key_real(&h->r, ECH_KEYS("embd_pdrop"), 0.0, 1.0, &rate[0]);
    (void)ech_key_real(&h->r, ECH_KEYS("attn_pdrop", "attention_dropout"), 0.0, 1.0, &rate[1]);
    (void)ech_key_real(&h->r, ECH_KEYS("resid_pdrop", "hidden_dropout", "dropout"), 0.0, 1.0,
                       &rate[2]);
    m->dropout = rate[2];
    if (rate[0] != rate[2] || rate[1] != rate[2])
        ech_model_refuse(m,
                         "dropout differs by place (embedding %g, attention %g, residual %g): "
                         "give the three one value",
                         rate[0], rate[1], rate[2]);
}

static void read_numbers(const ech_hf_file *h, ech_model *m)
{
    (void)ech_key_real(&h->r,
                       ECH_KEYS("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
                       0.0, 1.0, &m->norm_eps);
    (void)ech_key_real(&h->r, ECH_KEYS("initializer_range", "init_std"), 0.0, 1e6, &m->init_std);
    read_dropout(h, m);
}

static void read_rope_kind(const ech_hf_file *h, const ech_key_reader *r, ech_model *m)
{
    const char *kind = "default";
    (void)ech_key_string(r, ECH_KEYS("rope_type", "type"), &kind);
    ech_rope *rope = &m->rope;
    if (strcmp(kind, "default") == 0 || strcmp(kind, "gptj") == 0)
        return;
    if (strcmp(kind, "linear") == 0) {
        rope->kind = ECH_ROPE_LINEAR;
        if (ech_key_real(r, ECH_KEYS("factor"), 1e-6, 1e9, &rope->factor) == ECH_KEY_ABSENT)
            ech_findings_add(h->r.findings, "%s: rope_scaling.factor is missing", h->r.name);
        return;
    }
    if (strcmp(kind, "llama3") != 0) {
        rope->kind = ECH_ROPE_OTHER;
        ech_model_refuse(m, "rotary positions of kind '%.40s' are not built yet", kind);
        return;
    }
    rope->kind = ECH_ROPE_LLAMA3;
    rope->original_context = m->context;
    const ech_key_got got[3] = {
        ech_key_real(r, ECH_KEYS("factor"), 1e-6, 1e9, &rope->factor),
        ech_key_real(r, ECH_KEYS("low_freq_factor"), 1e-6, 1e9, &rope->low_freq_factor),
        ech_key_real(r, ECH_KEYS("high_freq_factor"), 1e-6, 1e9, &rope->high_freq_factor)};
    if (got[0] == ECH_KEY_ABSENT || got[1] == ECH_KEY_ABSENT || got[2] == ECH_KEY_ABSENT)
        ech_findings_add(h->r.findings,
                         "%s: rope_scaling of kind llama3 wants factor, low_freq_factor and "
                         "high_freq_factor",
                         h->r.name);
    const char *const *original = ECH_KEYS("original_max_position_embeddings");
    if (ech_key_int(r, original, 1, &rope->original_context) == ECH_KEY_ABSENT)
        (void)ech_key_int(&h->r, original, 1, &rope->original_context);
}

/* Newer files keep all of it in rope_parameters, by kind of layer where those differ. */
static void read_rope(const ech_hf_file *h, ech_model *m)
{
    if (m->learned_positions || m->alibi)
        return;
    const ech_node *map = NULL;
    if (ech_key_tree(&h->r, "rope_parameters", ECH_NODE_MAP, &map) == ECH_KEY_ABSENT)
        (void)ech_key_tree(&h->r, "rope_scaling", ECH_NODE_MAP, &map);
    const ech_node *full = ech_node_find(map, "full_attention");
    const ech_key_reader inner = {full && full->kind == ECH_NODE_MAP ? full : map, h->r.name,
                                  h->r.findings};
    const char *const *theta = ECH_KEYS("rope_theta", "rotary_emb_base");
    const char *const *partial = ECH_KEYS("partial_rotary_factor", "rotary_pct");
    if (ech_key_real(&inner, theta, 1e-6, 1e30, &m->rope.theta) == ECH_KEY_ABSENT)
        (void)ech_key_real(&h->r, theta, 1e-6, 1e30, &m->rope.theta);
    ech_key_got got = ech_key_real(&inner, partial, 0.0, 1.0, &m->rope.partial);
    if (got == ECH_KEY_ABSENT)
        got = ech_key_real(&h->r, partial, 0.0, 1.0, &m->rope.partial);
    int64_t rotary_dim = 0;
    if (got == ECH_KEY_ABSENT && m->arch == ECH_ARCH_GPT2 &&
        ech_key_int(&h->r, ECH_KEYS("rotary_dim"), 1, &rotary_dim) == ECH_KEY_GOOD &&
        m->head_dim > 0)
        m->rope.partial = (double)rotary_dim / (double)m->head_dim;
    if (map)
        read_rope_kind(h, &inner, m);
}

/* Has layer i the sliding window, by the family's rule. */
static bool is_windowed(const ech_hf_file *h, int64_t i, int64_t max_window_layers)
{
    switch (h->family->window_rule) {
    case ECH_WINDOW_NONE:
        return false;
    case ECH_WINDOW_ALL:
    case ECH_WINDOW_SWITCHED:
        return true;
    case ECH_WINDOW_ALTERNATE:
        return i % 2 == 0;
    case ECH_WINDOW_TAIL:
        return i >= max_window_layers;
    case ECH_WINDOW_EVEN_PREFIX:
        return i % 2 == 0 && i < max_window_layers;
    case ECH_WINDOW_SIXTH:
        return (i + 1) % 6 != 0;
    }
    return false;
}

static void count_windowed(const ech_hf_file *h, ech_model *m)
{
    int64_t max_window_layers = 28; /* default of Qwen's classes */
    const ech_node *types = NULL;
    (void)ech_key_int(&h->r, ECH_KEYS("max_window_layers"), 0, &max_window_layers);
    (void)ech_key_tree(&h->r, "layer_types", ECH_NODE_LIST, &types);
    const ech_node *type = types ? types->child : NULL;
    m->window_layers = 0;
    for (int64_t i = 0; i < m->layers && i < ECH_MODEL_LAYERS_MAX; i++) {
        if (type) {
            m->window_layers +=
                type->kind == ECH_NODE_STRING && strcmp(type->string, "sliding_attention") == 0;
            type = type->next;
        } else {
            m->window_layers += is_windowed(h, i, max_window_layers);
        }
    }
}

static void read_window(const ech_hf_file *h, ech_model *m)
{
    const ech_window_rule rule = h->family->window_rule;
    bool is_on = rule < ECH_WINDOW_SWITCHED || rule == ECH_WINDOW_SIXTH;
    if (!is_on)
        (void)ech_key_bool(&h->r, "use_sliding_window", &is_on);
    if (rule == ECH_WINDOW_NONE || !is_on)
        return;
    const bool is_null = ech_node_find(h->r.map, "sliding_window") != NULL;
    if (ech_key_int(&h->r, ECH_KEYS("sliding_window"), 0, &m->window) == ECH_KEY_ABSENT)
        m->window = is_null ? 0 : h->family->window;
    if (m->window == 0)
        return;
    count_windowed(h, m);
}

static void read_mlp_only_layers(const ech_hf_file *h, ech_model *m)
{
    const ech_node *list = NULL;
    if (ech_key_tree(&h->r, "mlp_only_layers", ECH_NODE_LIST, &list) != ECH_KEY_GOOD)
        return;
    for (const ech_node *x = list->child; x; x = x->next) {
        char buf[64];
        if (x->kind != ECH_NODE_INT) {
            ech_findings_add(h->r.findings, "%s: mlp_only_layers holds %s, wanted whole numbers",
                             h->r.name, ech_key_describe(x, buf, sizeof buf));
            return;
        }
        if (x->integer < 0 || x->integer >= m->layers) /* no such layer: no effect */
            continue;
        if (x->integer >= ECH_MOE_MASK_LAYERS) {
            ech_findings_add(h->r.findings, "%s: mlp_only_layers holds %" PRId64 ", at most %d",
                             h->r.name, x->integer, ECH_MOE_MASK_LAYERS - 1);
            return;
        }
        m->moe.dense_mask[x->integer / 64] |= UINT64_C(1) << (x->integer % 64);
    }
}

static void read_qwen_moe(const ech_hf_file *h, ech_model *m)
{
    (void)need_size(h, ECH_KEYS("moe_intermediate_size"), -1, &m->moe.expert_ffn);
    m->moe.sparse_phase = 1;
    if (ech_key_int(&h->r, ECH_KEYS("decoder_sparse_step"), 1, &m->moe.sparse_step) == ECH_KEY_BAD)
        m->moe.sparse_step = 1;
    if (m->moe.shared_gate) {
        const char *const *keys = ECH_KEYS("shared_expert_intermediate_size");
        if (ech_key_int(&h->r, keys, 0, &m->moe.shared_ffn) == ECH_KEY_ABSENT)
            ech_findings_add(h->r.findings, "%s: %s is missing", h->r.name, keys[0]);
        m->moe.shared_experts = m->moe.shared_ffn > 0;
    }
    read_mlp_only_layers(h, m);
}

static void read_latent_attention(const ech_hf_file *h, ech_model *m)
{
    (void)need_size(h, ECH_KEYS("kv_lora_rank"), -1, &m->mla.kv_lora_rank);
    (void)need_size(h, ECH_KEYS("qk_nope_head_dim"), -1, &m->mla.qk_nope_dim);
    (void)need_size(h, ECH_KEYS("qk_rope_head_dim"), -1, &m->mla.qk_rope_dim);
    (void)need_size(h, ECH_KEYS("v_head_dim"), -1, &m->mla.v_dim);
    /* null says "a plain query projection"; a file without the key means its class's 1536 */
    const bool is_there = ech_node_find(h->r.map, "q_lora_rank") != NULL;
    m->mla.q_lora_rank = is_there ? 0 : 1536;
    (void)ech_key_int(&h->r, ECH_KEYS("q_lora_rank"), 0, &m->mla.q_lora_rank);
    m->head_dim = m->mla.qk_nope_dim + m->mla.qk_rope_dim;
}

static void read_deepseek_moe(const ech_hf_file *h, ech_model *m)
{
    ech_moe *moe = &m->moe;
    (void)need_size(h, ECH_KEYS("moe_intermediate_size"), -1, &moe->expert_ffn);
    moe->first_dense = h->family->first_dense;
    (void)ech_key_int(&h->r, ECH_KEYS("first_k_dense_replace"), 0, &moe->first_dense);
    if (ech_key_int(&h->r, ECH_KEYS("moe_layer_freq"), 1, &moe->sparse_step) == ECH_KEY_BAD)
        moe->sparse_step = 1;
    const bool is_there = ech_node_find(h->r.map, "n_shared_experts") != NULL;
    moe->shared_experts = is_there ? 0 : h->family->shared_experts;
    (void)ech_key_int(&h->r, ECH_KEYS("n_shared_experts"), 0, &moe->shared_experts);
    moe->shared_ffn = moe->shared_experts * moe->expert_ffn;
    if (moe->shared_ffn > ECH_MODEL_SIZE_MAX)
        ech_findings_add(h->r.findings, "%s: n_shared_experts is absurd", h->r.name);
}

static void read_moe(const ech_hf_file *h, ech_model *m)
{
    if (h->family->moe == ECH_MOE_NONE || h->family->moe == ECH_MOE_DBRX)
        return;
    if (h->family->moe == ECH_MOE_DEEPSEEK)
        read_latent_attention(h, m);
    const char *const *keys = ECH_KEYS("num_experts", "num_local_experts", "n_routed_experts");
    ech_key_got got = ech_key_int(&h->r, keys, 0, &m->moe.experts);
    const bool may_be_null = h->family->moe == ECH_MOE_DEEPSEEK;
    if (got == ECH_KEY_ABSENT &&
        !(may_be_null && ech_node_find(h->r.map, "n_routed_experts") != NULL))
        ech_findings_add(h->r.findings, "%s: the number of experts is missing (%s)", h->r.name,
                         may_be_null ? "n_routed_experts" : "num_experts or num_local_experts");
    if (m->moe.experts == 0) {
        memset(&m->moe, 0, sizeof m->moe);
        m->moe.sparse_step = 1;
        return;
    }
    (void)need_size(h, ECH_KEYS("num_experts_per_tok", "experts_per_token"), -1, &m->moe.topk);
    if (h->family->moe == ECH_MOE_PLAIN)
        (void)need_size(h, ECH_KEYS("intermediate_size"), SIZE_FFN, &m->moe.expert_ffn);
    else if (h->family->moe == ECH_MOE_QWEN)
        read_qwen_moe(h, m);
    else
        read_deepseek_moe(h, m);
}

/* Kinds of layers that are none of ours would make every count wrong. */
static void check_layer_types(const ech_hf_file *h)
{
    const ech_node *types = NULL;
    if (ech_key_tree(&h->r, "layer_types", ECH_NODE_LIST, &types) != ECH_KEY_GOOD)
        return;
    for (const ech_node *x = types->child; x; x = x->next) {
        char buf[64];
        if (x->kind == ECH_NODE_STRING && (strcmp(x->string, "full_attention") == 0 ||
                                           strcmp(x->string, "sliding_attention") == 0))
            continue;
        ech_findings_add(h->r.findings,
                         "%s: layer_types holds %s, known are 'full_attention' and "
                         "'sliding_attention'",
                         h->r.name, ech_key_describe(x, buf, sizeof buf));
        return;
    }
}

/* The first class named in "architectures", or NULL. */
static const char *class_name(const ech_node *map)
{
    const ech_node *list = ech_node_find(map, "architectures");
    const ech_node *first = list && list->kind == ECH_NODE_LIST ? list->child : NULL;
    return first && first->kind == ECH_NODE_STRING ? first->string : NULL;
}

/* model_type decides; where it is unknown or absent, architectures[0] does. */
static const ech_family *find_family(const ech_key_reader *r, const ech_node *outer)
{
    const char *type = NULL;
    if (ech_key_string(r, ECH_KEYS("model_type"), &type) == ECH_KEY_BAD)
        return NULL;
    const ech_family *family = type ? ech_family_find(type) : NULL;
    const char *class = class_name(r->map) ? class_name(r->map) : class_name(outer);
    if (!family && class)
        family = ech_family_of_class(class);
    if (family)
        return family;
    size_t n;
    const char *const *names = ech_family_names(&n);
    const char *near = type ? ech_nearest_name(type, names, n) : NULL;
    if (!type && !class)
        ech_findings_add(r->findings, "%s: neither model_type nor architectures is there", r->name);
    else
        ech_findings_add(
            r->findings,
            "%s: model_type '%.60s' with architecture '%.60s' is not a known family%s%s%s", r->name,
            type ? type : "", class ? class : "", near ? ", nearest is '" : "", near ? near : "",
            near ? "'" : "");
    return NULL;
}

static void read_all(const ech_hf_file *h, ech_model *m)
{
    read_sizes(h, m);
    ech_hf_read_own_keys(h, m);
    read_moe(h, m);
    read_ffn(h, m);
    read_biases(h, m);
    read_tie(h, m);
    read_activation(h, m);
    read_numbers(h, m);
    read_rope(h, m);
    check_layer_types(h);
    read_window(h, m);
    ech_model_check_built(m);
}

/* Everything after the family is known; findings hold what is wrong. */
static void read_family(ech_hf_file *h, ech_model *m)
{
    *m = ech_family_model(h->family);
    (void)snprintf(m->name, sizeof m->name, "%s", h->r.name);
    const int before = h->r.findings->n;
    read_all(h, m);
    ech_findings relations = {0};
    if (h->r.findings->n == before)
        ech_model_validate(m, &relations);
    else
        ech_model_validate_relations(m, &relations);
    if (relations.n > 0)
        ech_findings_add(h->r.findings, "%s: %s", h->r.name, ech_text_get(&relations.text));
    ech_findings_fini(&relations);
}

ech_status ech_model_from_hf(const ech_node *node, const char *name, ech_model *out)
{
    ECH_CHECK(node && node->kind == ECH_NODE_MAP, ECH_E_CONFIG, "%s: %s, wanted an object", name,
              node ? ech_node_kind_name(node->kind) : "empty");
    ech_findings findings = {0};
    const ech_node *text = ech_node_find(node, "text_config");
    const bool is_nested = text && text->kind == ECH_NODE_MAP;
    ech_hf_file h = {
        .r = {is_nested ? text : node, name, &findings}, .outer = node, .is_difference = is_nested};
    ech_model m;
    h.family = find_family(&h.r, node);
    if (h.family)
        read_family(&h, &m);
    const ech_status st = ech_findings_raise(&findings, ECH_E_CONFIG);
    ech_findings_fini(&findings);
    if (st == ECH_OK)
        *out = m;
    return st;
}
