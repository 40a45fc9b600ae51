/* Parameter counts and FLOPs: sums over the tensors of catalog/tensors.h. */
#include "base/checked.h"
#include "catalog/tensors.h"

#include <math.h>

/* total += n * part, member by member. */
static ech_status accumulate(ech_param_count *c, const ech_tensor_sum *part, int64_t n)
{
    int64_t total;
    int64_t active;
    int64_t matmul;
    ECH_TRY(ech_mul_i64(part->total, n, &total));
    ECH_TRY(ech_mul_i64(part->active, n, &active));
    ECH_TRY(ech_mul_i64(part->matmul, n, &matmul));
    ECH_TRY(ech_add_i64(c->total, total, &c->total));
    ECH_TRY(ech_add_i64(c->active, active, &c->active));
    return ech_add_i64(c->matmul, matmul, &c->matmul);
}

/* Tensors of the head, with the table that a tied model multiplies by there (and counts once, as the
 * embedding's). */
static ech_status head_sum(const ech_model *m, ech_tensor_sum *sum)
{
    ech_tensors list;
    ech_tensors_head(m, &list);
    ECH_TRY(ech_tensors_sum(m, &list, sum));
    if (!m->tie_embeddings)
        return ECH_OK;
    int64_t table;
    ECH_TRY(ech_mul_i64(m->vocab, m->embed_dim > 0 ? m->embed_dim : m->hidden, &table));
    return ech_add_i64(sum->matmul, table, &sum->matmul);
}

ech_status ech_model_count(const ech_model *m, ech_param_count *out)
{
    ech_param_count c = {0};
    ech_tensors list;
    ech_tensor_sum embedding;
    ech_tensor_sum head;
    ech_tensor_sum kind[2] = {{0}}; /* dense, sparse */
    ECH_CHECK(m->layers <= ECH_MODEL_LAYERS_MAX, ECH_E_ILLEGAL, "%lld layers: wanted at most %lld",
              (long long)m->layers, (long long)ECH_MODEL_LAYERS_MAX);
    const int64_t sparse = ech_model_sparse_layers(m);

    ech_tensors_embedding(m, &list);
    ECH_TRY(ech_tensors_sum(m, &list, &embedding));
    ECH_TRY(head_sum(m, &head));
    for (int i = 0; i < 2; i++) {
        ech_tensors_layer(m, i == 1, &list);
        ECH_TRY(ech_tensors_sum(m, &list, &kind[i]));
        ECH_TRY(accumulate(&c, &kind[i], i == 1 ? sparse : m->layers - sparse));
    }
    ECH_TRY(accumulate(&c, &embedding, 1));
    ECH_TRY(accumulate(&c, &head, 1));
    c.embedding = embedding.total;
    c.per_layer_first = kind[ech_model_is_sparse(m, 0)].total;
    c.per_layer_last = kind[ech_model_is_sparse(m, m->layers - 1)].total;
    *out = c;
    return ECH_OK;
}

/* Sum over layers of the positions a token can attend to, times the width of its attention: the L s
 * a d_h of facts.md section 6, where d_h is the mean of the query-key and the value width. */
static double attention_products(const ech_model *m, int64_t seq)
{
    const double full = (double)seq;
    const double windowed = m->window > 0 && m->window < seq ? (double)m->window : full;
    const double spans =
        (double)(m->layers - m->window_layers) * full + (double)m->window_layers * windowed;
    const double width = m->mla.kv_lora_rank > 0
                             ? (double)(m->mla.qk_nope_dim + m->mla.qk_rope_dim + m->mla.v_dim) / 2
                             : (double)m->head_dim;
    return spans * (double)m->heads * width;
}

/* Forward and backward of matrix products and attention products of one token. */
static double flops_of(double matmul, double attention, bool causal_half)
{
    return 6.0 * matmul + (causal_half ? 6.0 : 12.0) * attention;
}

double ech_model_flops_per_token(const ech_model *m, int64_t seq, bool causal_half)
{
    ech_param_count c = {0};
    if (ech_model_count(m, &c) < 0) /* only a model that was never validated */
        return NAN;
    return flops_of((double)c.matmul, attention_products(m, seq), causal_half);
}

double ech_model_unit_flops(const ech_model *m, int64_t unit, int64_t seq, bool causal_half)
{
    ech_tensors list;
    ech_tensor_sum sum = {0};
    if (unit == 0) {
        ech_tensors_embedding(m, &list);
        return ech_tensors_sum(m, &list, &sum) < 0 ? NAN
                                                   : flops_of((double)sum.matmul, 0, causal_half);
    }
    if (unit == m->layers + 1)
        return head_sum(m, &sum) < 0 ? NAN : flops_of((double)sum.matmul, 0, causal_half);
    ech_tensors_layer(m, ech_model_is_sparse(m, unit - 1), &list);
    if (ech_tensors_sum(m, &list, &sum) < 0)
        return NAN;
    return flops_of((double)sum.matmul, attention_products(m, seq) / (double)m->layers,
                    causal_half);
}
