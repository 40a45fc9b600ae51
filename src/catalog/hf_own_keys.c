/* Keys of config.json that one family alone has. */
#include "catalog/hf_file.h"

#include <inttypes.h>
#include <string.h>

static void read_gpt2(const ech_hf_file *h, ech_model *m)
{
    bool is_cross = false;
    bool is_scaled = true;
    bool is_layer_scaled = false;
    (void)ech_key_bool(&h->r, "add_cross_attention", &is_cross);
    (void)ech_key_bool(&h->r, "scale_attn_weights", &is_scaled);
    (void)ech_key_bool(&h->r, "scale_attn_by_inverse_layer_idx", &is_layer_scaled);
    if (is_cross)
        ech_findings_add(h->r.findings,
                         "%s: add_cross_attention is true: only decoders that stand "
                         "alone are known",
                         h->r.name);
    if (!is_scaled || is_layer_scaled)
        ech_model_refuse(m, "attention scores not scaled by 1/sqrt(head_dim) are not built yet");
}

/* All biases of linear layers together. */
static void read_bias(const ech_hf_file *h, const char *key, ech_model *m)
{
    if (ech_key_bool(&h->r, key, &m->qkv_bias) == ECH_KEY_GOOD)
        m->out_bias = m->mlp_bias = m->qkv_bias;
}

/* The smallest sizes norm behind a block (do_layer_norm_before: false) and have no final norm; their
 * token table is narrower than the stream. */
static void read_opt(const ech_hf_file *h, ech_model *m)
{
    bool is_before = true;
    bool is_removed = false;
    bool has_weights = true;
    (void)ech_key_bool(&h->r, "do_layer_norm_before", &is_before);
    (void)ech_key_bool(&h->r, "_remove_final_layer_norm", &is_removed);
    (void)ech_key_bool(&h->r, "layer_norm_elementwise_affine", &has_weights);
    m->no_final_norm = !is_before || is_removed;
    read_bias(h, "enable_bias", m);
    (void)ech_key_int(&h->r, ECH_KEYS("word_embed_proj_dim"), 1, &m->embed_dim);
    if (m->embed_dim == m->hidden)
        m->embed_dim = 0;
    if (!has_weights)
        ech_findings_add(h->r.findings,
                         "%s: layer_norm_elementwise_affine is false: norms without weights are "
                         "not known",
                         h->r.name);
}

static void read_bloom(const ech_hf_file *h, ech_model *m)
{
    (void)ech_key_int(&h->r, ECH_KEYS("seq_length"), 1, &m->context); /* as trained: no table */
}

/* The first files had a model_type of their own, and no switch for the larger one's blocks. */
static bool is_first_40b(const ech_hf_file *h)
{
    const ech_node *type = ech_key_find(&h->r, "model_type");
    return type && type->kind == ECH_NODE_STRING && strcmp(type->string, "RefinedWeb") == 0;
}

static void read_falcon(const ech_hf_file *h, ech_model *m)
{
    bool is_new = is_first_40b(h);
    bool is_multi_query = true;
    bool is_parallel = true;
    int64_t groups = m->heads;
    int64_t norms = 0;
    (void)ech_key_bool(&h->r, "new_decoder_architecture", &is_new);
    (void)ech_key_bool(&h->r, "multi_query", &is_multi_query);
    (void)ech_key_bool(&h->r, "parallel_attn", &is_parallel);
    (void)ech_key_bool(&h->r, "alibi", &m->alibi);
    (void)ech_key_int(&h->r, ECH_KEYS("num_kv_heads", "n_head_kv"), 1, &groups);
    if (ech_key_int(&h->r, ECH_KEYS("num_ln_in_parallel_attn"), 1, &norms) == ECH_KEY_ABSENT)
        norms = is_new ? 2 : 1;
    m->kv_heads = is_new ? groups : is_multi_query ? 1 : m->heads;
    m->parallel_norms = is_parallel && norms != 2;
    if (m->alibi)
        m->rope.kind = ECH_ROPE_NONE;
    read_bias(h, "bias", m);
}

static void read_phimoe(const ech_hf_file *h, ech_model *m)
{
    (void)ech_key_bool(&h->r, "lm_head_bias", &m->head_bias);
}

/* A map inside the file; absent: the class's defaults. */
static bool find_part(const ech_hf_file *h, const char *key, ech_key_reader *out)
{
    const ech_node *map = NULL;
    *out = h->r;
    if (ech_key_tree(&h->r, key, ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return false;
    out->map = map;
    return true;
}

static void read_dbrx(const ech_hf_file *h, ech_model *m)
{
    ech_key_reader part;
    ech_moe *moe = &m->moe;
    m->kv_heads = 1;
    *moe = (ech_moe){.experts = 4, .topk = 1, .expert_ffn = 3584, .sparse_step = 1};
    if (find_part(h, "attn_config", &part)) {
        (void)ech_key_int(&part, ECH_KEYS("kv_n_heads"), 1, &m->kv_heads);
        (void)ech_key_real(&part, ECH_KEYS("rope_theta"), 1e-6, 1e30, &m->rope.theta);
    }
    if (find_part(h, "ffn_config", &part)) {
        (void)ech_key_int(&part, ECH_KEYS("ffn_hidden_size"), 1, &moe->expert_ffn);
        (void)ech_key_int(&part, ECH_KEYS("moe_num_experts"), 1, &moe->experts);
        (void)ech_key_int(&part, ECH_KEYS("moe_top_k"), 1, &moe->topk);
    }
}

void ech_hf_read_own_keys(const ech_hf_file *h, ech_model *m)
{
    static const struct {
        const char *model_type;
        void (*read)(const ech_hf_file *h, ech_model *m);
    } rows[] = {{"gpt2", read_gpt2},     {"opt", read_opt},       {"bloom", read_bloom},
                {"falcon", read_falcon}, {"phimoe", read_phimoe}, {"dbrx", read_dbrx}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(h->family->model_type, rows[i].model_type) == 0)
            rows[i].read(h, m);
}
