#include "catalog/tensors.h"

#include "base/checked.h"

#include <stdio.h>

static void add(ech_tensors *t, ech_tensor_role role, const char *name, int64_t rows, int64_t cols)
{
    ECH_ASSERT(t->n < ECH_TENSORS_MAX);
    ech_model_tensor *x = &t->item[t->n++];
    *x = (ech_model_tensor){.rank = cols ? 2 : 1, .dim = {rows, cols}, .copies = 1, .role = role};
    (void)snprintf(x->name, sizeof x->name, "%s", name);
}

static void add_vector(ech_tensors *t, bool is_there, const char *name, int64_t n)
{
    if (is_there)
        add(t, ECH_TENSOR_VECTOR, name, n, 0);
}

/* A matrix "prefix.weight" [out, in] and, where asked, its "prefix.bias" [out]. */
static void add_linear(ech_tensors *t, const char *prefix, int64_t out, int64_t in, bool has_bias)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.weight", prefix);
    add(t, ECH_TENSOR_MATRIX, name, out, in);
    (void)snprintf(name, sizeof name, "%s.bias", prefix);
    add_vector(t, has_bias, name, out);
}

/* The same for all experts: [experts, out, in]. */
static void add_expert(ech_tensors *t, const ech_model *m, const char *prefix, int64_t out,
                       int64_t in)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.weight", prefix);
    add(t, ECH_TENSOR_EXPERT_MATRIX, name, out, in);
    t->item[t->n - 1].copies = m->moe.experts;
    if (!m->moe.expert_bias)
        return;
    (void)snprintf(name, sizeof name, "%s.bias", prefix);
    add(t, ECH_TENSOR_EXPERT_VECTOR, name, out, 0);
    t->item[t->n - 1].copies = m->moe.experts;
}

static void add_norm(ech_tensors *t, const ech_model *m, const char *prefix, int64_t n)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.weight", prefix);
    add_vector(t, true, name, n);
    (void)snprintf(name, sizeof name, "%s.bias", prefix);
    add_vector(t, m->norm_bias, name, n);
}

/* DeepSeek's latent attention: queries and keys of nope + rope dimensions a head, values of v.  Its
 * norms over the latents are RMSNorms; qkv_bias stands for the biases of the down projections. */
static void list_latent_attention(const ech_model *m, ech_tensors *t)
{
    const ech_mla *a = &m->mla;
    const int64_t qk = a->qk_nope_dim + a->qk_rope_dim;
    if (a->q_lora_rank > 0) {
        add_linear(t, "attn.q_a", a->q_lora_rank, m->hidden, m->qkv_bias);
        add_norm(t, m, "attn.q_a_norm", a->q_lora_rank);
        add_linear(t, "attn.q_b", m->heads * qk, a->q_lora_rank, false);
    } else {
        add_linear(t, "attn.q", m->heads * qk, m->hidden, false);
    }
    add_linear(t, "attn.kv_a", a->kv_lora_rank + a->qk_rope_dim, m->hidden, m->qkv_bias);
    add_norm(t, m, "attn.kv_a_norm", a->kv_lora_rank);
    add_linear(t, "attn.kv_b", m->heads * (a->qk_nope_dim + a->v_dim), a->kv_lora_rank, false);
    add_linear(t, "attn.out", m->hidden, m->heads * a->v_dim, m->out_bias);
}

static void list_attention(const ech_model *m, ech_tensors *t)
{
    const int64_t q = m->heads * m->head_dim;
    const int64_t kv = m->kv_heads * m->head_dim;
    add_linear(t, "attn.q", q, m->hidden, m->qkv_bias);
    add_linear(t, "attn.k", kv, m->hidden, m->qkv_bias);
    add_linear(t, "attn.v", kv, m->hidden, m->qkv_bias);
    if (m->qk_norm) {
        add_norm(t, m, "attn.q_norm", m->head_dim);
        add_norm(t, m, "attn.k_norm", m->head_dim);
    }
    add_vector(t, m->sinks, "attn.sinks", m->heads);
    add_linear(t, "attn.out", m->hidden, q, m->out_bias);
}

static bool is_gated(const ech_model *m)
{
    return m->act == ECH_ACT_SWIGLU || m->act == ECH_ACT_GEGLU;
}

static void list_mlp(const ech_model *m, ech_tensors *t)
{
    if (is_gated(m))
        add_linear(t, "mlp.gate", m->ffn, m->hidden, m->mlp_bias);
    add_linear(t, "mlp.up", m->ffn, m->hidden, m->mlp_bias);
    add_linear(t, "mlp.down", m->hidden, m->ffn, m->mlp_bias);
}

static void list_experts(const ech_model *m, ech_tensors *t)
{
    const ech_moe *moe = &m->moe;
    add_linear(t, "mlp.router", moe->experts, m->hidden, moe->router_bias);
    if (is_gated(m))
        add_expert(t, m, "mlp.experts.gate", moe->expert_ffn, m->hidden);
    add_expert(t, m, "mlp.experts.up", moe->expert_ffn, m->hidden);
    add_expert(t, m, "mlp.experts.down", m->hidden, moe->expert_ffn);
    if (moe->shared_ffn > 0) {
        if (is_gated(m))
            add_linear(t, "mlp.shared.gate", moe->shared_ffn, m->hidden, m->mlp_bias);
        add_linear(t, "mlp.shared.up", moe->shared_ffn, m->hidden, m->mlp_bias);
        add_linear(t, "mlp.shared.down", m->hidden, moe->shared_ffn, m->mlp_bias);
    }
    if (moe->shared_gate)
        add_linear(t, "mlp.shared_gate", 1, m->hidden, false);
}

static int64_t table_width(const ech_model *m)
{
    return m->embed_dim > 0 ? m->embed_dim : m->hidden;
}

void ech_tensors_embedding(const ech_model *m, ech_tensors *out)
{
    out->n = 0;
    add(out, ECH_TENSOR_TABLE, "embed.token.weight", m->vocab, table_width(m));
    if (m->embed_dim > 0)
        add_linear(out, "embed.project_in", m->hidden, m->embed_dim, false);
    if (m->learned_positions)
        add(out, ECH_TENSOR_TABLE, "embed.position.weight", m->context + m->position_extra,
            m->hidden);
    if (m->embed_norm)
        add_norm(out, m, "embed.norm", m->hidden);
}

void ech_tensors_layer(const ech_model *m, bool is_sparse, ech_tensors *out)
{
    out->n = 0;
    add_norm(out, m, "attn_norm", m->hidden);
    if (m->mla.kv_lora_rank > 0)
        list_latent_attention(m, out);
    else
        list_attention(m, out);
    if (m->post_norms)
        add_norm(out, m, "attn_post_norm", m->hidden);
    if (!m->parallel_norms)
        add_norm(out, m, "mlp_norm", m->hidden);
    if (is_sparse)
        list_experts(m, out);
    else
        list_mlp(m, out);
    if (m->post_norms)
        add_norm(out, m, "mlp_post_norm", m->hidden);
}

void ech_tensors_head(const ech_model *m, ech_tensors *out)
{
    out->n = 0;
    if (!m->no_final_norm)
        add_norm(out, m, "final_norm", m->hidden);
    if (m->embed_dim > 0)
        add_linear(out, "head.project_out", m->embed_dim, m->hidden, false);
    if (!m->tie_embeddings)
        add_linear(out, "head", m->vocab, table_width(m), false);
    add_vector(out, m->head_bias, "head.bias", m->vocab); /* also where the table is tied */
}

bool ech_model_is_sparse(const ech_model *m, int64_t layer)
{
    const ech_moe *moe = &m->moe;
    if (moe->experts == 0 || layer < moe->first_dense ||
        (layer + moe->sparse_phase) % moe->sparse_step != 0)
        return false;
    return layer >= ECH_MOE_MASK_LAYERS || !(moe->dense_mask[layer / 64] >> (layer % 64) & 1);
}

int64_t ech_model_sparse_layers(const ech_model *m)
{
    int64_t n = 0;
    for (int64_t layer = 0; layer < m->layers && m->moe.experts > 0; layer++)
        n += ech_model_is_sparse(m, layer);
    return n;
}

ech_status ech_tensors_sum(const ech_model *m, const ech_tensors *t, ech_tensor_sum *out)
{
    ech_tensor_sum sum = {0};
    for (int i = 0; i < t->n; i++) {
        const ech_model_tensor *x = &t->item[i];
        const bool is_expert =
            x->role == ECH_TENSOR_EXPERT_MATRIX || x->role == ECH_TENSOR_EXPERT_VECTOR;
        int64_t one;
        int64_t all;
        int64_t active;
        ECH_TRY(ech_mul_i64(x->dim[0], x->rank > 1 ? x->dim[1] : 1, &one));
        ECH_TRY(ech_mul_i64(one, x->copies, &all));
        ECH_TRY(ech_mul_i64(one, is_expert ? m->moe.topk : 1, &active));
        ECH_TRY(ech_add_i64(sum.total, all, &sum.total));
        ECH_TRY(ech_add_i64(sum.active, active, &sum.active));
        if (x->role == ECH_TENSOR_MATRIX || x->role == ECH_TENSOR_EXPERT_MATRIX)
            ECH_TRY(ech_add_i64(sum.matmul, active, &sum.matmul));
    }
    *out = sum;
    return ECH_OK;
}
