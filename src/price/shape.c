#include "price/shape.h"

#include "base/checked.h"
#include "catalog/canon.h"
#include "layout/stages.h"

#include <math.h>

/* Rows of the vocabulary that all ranks of tp have together. */
static int64_t vocab_whole(const ech_job *job, int64_t tp)
{
    enum { MEGATRON_MULTIPLE = 128 }; /* --make-vocab-size-divisible-by, times tp */
    int64_t rows = job->model->vocab;
    /* Under DeepSpeed, models that are cut over tp are Megatron's. */
    if (job->system == ECH_SYSTEM_MEGATRON || (job->system == ECH_SYSTEM_DEEPSPEED && tp > 1))
        return ech_ceil_div(rows, MEGATRON_MULTIPLE * tp) * MEGATRON_MULTIPLE * tp;
    if (job->system == ECH_SYSTEM_ECHELON)
        rows = ech_vocab_padded(rows);
    return ech_ceil_div(rows, tp) * tp;
}

/* Key/value heads of a rank.  Echelon makes groups smaller where whole ones do not divide
 * (layout/shard.h); the others copy heads. */
static int64_t kv_heads_of(const ech_job *job, int64_t heads, int64_t tp)
{
    const ech_model *m = job->model;
    if (job->system == ECH_SYSTEM_ECHELON && m->kv_heads > 0)
        return heads / ech_gcd(heads, m->heads / m->kv_heads);
    return ech_ceil_div(m->kv_heads, tp);
}

static ech_shape_attention attention_of(const ech_job *job, int64_t tp)
{
    const ech_model *m = job->model;
    const bool is_latent = m->mla.kv_lora_rank > 0;
    ech_shape_attention a = {.heads = ech_ceil_div(m->heads, tp)};
    a.kv_heads = is_latent ? a.heads : kv_heads_of(job, a.heads, tp);
    a.qk_dim = is_latent ? m->mla.qk_nope_dim + m->mla.qk_rope_dim : m->head_dim;
    a.v_dim = is_latent ? m->mla.v_dim : m->head_dim;
    a.q_out = a.heads * a.qk_dim;
    a.k_out = a.kv_heads * a.qk_dim;
    a.v_out = a.kv_heads * a.v_dim;
    a.o_in = a.heads * a.v_dim;
    a.q_latent = is_latent ? m->mla.q_lora_rank : 0;
    a.kv_latent = m->mla.kv_lora_rank;
    a.rope_dim = is_latent ? m->mla.qk_rope_dim : 0;
    return a;
}

/* Matrices and vectors of a part of a layer. */
typedef struct part {
    double matrix_cut, matrix_whole, vector_cut, vector_whole;
} part;

/* Weights of a norm over n elements. */
static double norm_elems(const ech_model *m, int64_t n)
{
    return (double)n * (m->norm_bias ? 2 : 1);
}

/* Latent attention: what makes latents is whole on every rank, what comes from them is cut. */
static part latent_params(const ech_model *m, const ech_shape_attention *a)
{
    const double h = (double)m->hidden;
    const double down = (double)(a->q_latent + a->kv_latent + a->rope_dim);
    const double query_in = a->q_latent > 0 ? (double)a->q_latent : h;
    part p = {.matrix_whole = down * h};
    p.matrix_cut = (double)a->q_out * query_in + (double)a->o_in * h +
                   (double)(a->k_out - a->heads * a->rope_dim + a->v_out) * (double)a->kv_latent;
    p.vector_whole = norm_elems(m, a->q_latent) + norm_elems(m, a->kv_latent) +
                     (m->qkv_bias ? down : 0) + (m->out_bias ? h : 0);
    return p;
}

static part attention_params(const ech_model *m, const ech_shape_attention *a)
{
    const double h = (double)m->hidden;
    const double qkv = (double)(a->q_out + a->k_out + a->v_out);
    if (a->kv_latent > 0)
        return latent_params(m, a);
    return (part){.matrix_cut = qkv * h + (double)a->o_in * h,
                  .vector_cut = (m->qkv_bias ? qkv : 0) + (m->sinks ? (double)a->heads : 0),
                  .vector_whole =
                      (m->qk_norm ? 2 * norm_elems(m, m->head_dim) : 0) + (m->out_bias ? h : 0)};
}

/* An MLP of so wide a share of a rank; `width` 0: none. */
static part mlp_params(const ech_model *m, bool is_gated, int64_t width)
{
    const double h = (double)m->hidden;
    const double in = is_gated ? 2 : 1;
    if (width == 0)
        return (part){0};
    return (part){.matrix_cut = (in + 1) * h * (double)width,
                  .vector_cut = m->mlp_bias ? in * (double)width : 0,
                  .vector_whole = m->mlp_bias ? h : 0};
}

static part router_params(const ech_model *m)
{
    const double experts = (double)m->moe.experts;
    return (part){.matrix_whole =
                      ((double)m->moe.experts + (m->moe.shared_gate ? 1 : 0)) * (double)m->hidden,
                  .vector_whole = m->moe.router_bias ? experts : 0};
}

static double expert_params(const ech_model *m, const ech_shape *s)
{
    const double in = s->is_gated ? 2 : 1;
    const double f = (double)s->expert_ffn;
    const double h = (double)m->hidden;
    const double bias = m->moe.expert_bias ? in * f + h : 0;
    return (double)s->experts * ((in + 1) * h * f + bias);
}

static void add_part(ech_shape *s, int kind, part p)
{
    s->layer[kind].cut += p.matrix_cut + p.vector_cut;
    s->layer[kind].whole += p.matrix_whole + p.vector_whole;
    s->matrix[kind] += p.matrix_cut + p.matrix_whole;
}

static void layers_of(const ech_model *m, ech_shape *s)
{
    const double norms = (m->parallel_norms ? 1 : 2) + (m->post_norms ? 2 : 0);
    const part norm = {.vector_whole = norms * norm_elems(m, m->hidden)};
    for (int kind = 0; kind < 2; kind++) {
        add_part(s, kind, norm);
        add_part(s, kind, attention_params(m, &s->attention));
    }
    add_part(s, 0, mlp_params(m, s->is_gated, s->ffn));
    if (m->moe.experts > 0) {
        add_part(s, 1, router_params(m));
        add_part(s, 1, mlp_params(m, s->is_gated, s->shared_ffn));
        s->layer[1].expert = expert_params(m, s);
    }
}

static void ends_of(const ech_model *m, ech_shape *s)
{
    const double h = (double)m->hidden;
    const double table = (double)s->vocab * (double)(m->embed_dim > 0 ? m->embed_dim : m->hidden);
    const double project = (double)m->embed_dim * h; /* to the stream, and back before the head */
    const double positions =
        m->learned_positions ? (double)(m->context + m->position_extra) * h : 0;
    s->embedding.cut = table;
    s->embedding.whole = positions + project + (m->embed_norm ? norm_elems(m, m->hidden) : 0);
    s->head.cut = (m->tie_embeddings ? 0 : table) + (m->head_bias ? (double)s->vocab : 0);
    s->head.whole = project + (m->no_final_norm ? 0 : norm_elems(m, m->hidden));
    s->tied = m->tie_embeddings ? table : 0;
}

/* What the degrees alone decide. */
static void split(const ech_job *job, int64_t tp, int64_t ep, int64_t etp, ech_shape *s)
{
    const ech_model *m = job->model;
    *s = (ech_shape){.hidden = m->hidden, .attention = attention_of(job, tp)};
    s->is_gated = m->act == ECH_ACT_SWIGLU || m->act == ECH_ACT_GEGLU;
    s->ffn = ech_ceil_div(m->ffn, tp);
    s->experts = ech_ceil_div(m->moe.experts, ep);
    s->expert_ffn = ech_ceil_div(m->moe.expert_ffn, etp);
    s->shared_ffn = ech_ceil_div(m->moe.shared_ffn, tp);
    s->vocab_whole = vocab_whole(job, tp);
    s->vocab = s->vocab_whole / tp;
    layers_of(m, s);
    ends_of(m, s);
}

void ech_shape_of(const ech_job *job, const ech_point *p, ech_shape *out)
{
    const ech_moe *moe = &job->model->moe;
    split(job, p->tp, p->ep, p->etp, out);
    out->span = job->seq;
    out->micro_tokens = ech_ceil_div((int64_t)p->micro * job->seq, p->cp);
    out->own_tokens =
        p->sequence_parallel ? ech_ceil_div(out->micro_tokens, p->tp) : out->micro_tokens;
    out->routed = (double)out->micro_tokens * (double)moe->topk * p->etp / p->tp;
    const double balance = job->moe_balance > 1 ? job->moe_balance : 1;
    out->imbalance =
        job->moe_capacity > 0 && job->moe_capacity < balance ? job->moe_capacity : balance;
}

int ech_shape_chunks(const ech_point *p)
{
    return p->pp == 1 ? 1 : ech_schedule_chunks(p->schedule, p->vpp);
}

/* What units cost where stages are balanced: [0] embedding, [1] dense and [2] sparse layer, [3] head.
 * A kind of layer that the model lacks costs nothing. */
static void unit_costs(const ech_job *job, double cost[4])
{
    const ech_model *m = job->model;
    cost[0] = ech_stages_unit_cost(m, 0, job->seq);
    cost[1] = cost[2] = 0;
    for (int64_t i = 0; i < m->layers && (cost[1] <= 0 || cost[2] <= 0); i++) {
        double *of = &cost[1 + ech_model_is_sparse(m, i)];
        if (*of <= 0)
            *of = ech_stages_unit_cost(m, (int)i + 1, job->seq);
    }
    cost[3] = ech_stages_unit_cost(m, (int)m->layers + 1, job->seq);
}

/* Equal layers: each stage one, then one at a time to the stage that is cheapest with it.  That makes
 * the dearest stage cheapest and the sum of squares least at once.  `middle` runs share alike. */
static void deal_out(const double cost[4], double layer, int stages, int64_t layers, int64_t *n)
{
    const double end[2] = {cost[0] / layer, stages == 1 ? 0 : cost[3] / layer};
    const int64_t middle = stages - 2;
    n[0] = n[1] = 1;
    if (stages == 1) {
        n[0] = layers;
        return;
    }
    int64_t left = layers - stages; /* beyond one for each */
    int64_t inner = middle;         /* layers of all in between */
    for (; left > 0; left--) {
        const double lowest = middle > 0 ? (double)(inner / middle) : INFINITY;
        const double first = (double)n[0] + end[0];
        const double last = (double)n[1] + end[1];
        if (lowest <= first && lowest <= last)
            inner++;
        else if (first <= last)
            n[0]++;
        else
            n[1]++;
    }
}

/* Layers of stage k of `stages` where ends take n[0] and n[1] and the others are even, larger first. */
static int64_t dealt(const int64_t n[2], int k, int stages, int64_t layers)
{
    if (k == 0)
        return n[0];
    if (k == stages - 1)
        return n[1];
    const int64_t inner = layers - n[0] - n[1];
    return inner / (stages - 2) + (k - 1 < inner % (stages - 2));
}

/* Sum of the costs of layers [from, from + n). */
static double run_cost(const ech_model *m, const double cost[4], int64_t from, int64_t n)
{
    double sum = 0;
    for (int64_t i = from; i < from + n; i++)
        sum += cost[1 + ech_model_is_sparse(m, i)];
    return sum;
}

/* Layers of two kinds: each stage as near to an even share of what is left as whole layers allow,
 * one at least for each. */
static void cut_mixed(const ech_model *m, const double cost[4], int stages, int32_t *layers)
{
    double left = run_cost(m, cost, 0, m->layers) + cost[0] + cost[3];
    int64_t at = 0;
    for (int k = 0; k < stages; k++) {
        const double share = left / (stages - k);
        const int64_t most = m->layers - at - (stages - 1 - k);
        double held = (k == 0 ? cost[0] : 0) + (k == stages - 1 ? cost[3] : 0);
        int64_t n = 0;
        while (n < most) {
            const double next = cost[1 + ech_model_is_sparse(m, at + n)];
            if (k < stages - 1 && n > 0 && held + next / 2 > share)
                break;
            held += next;
            n++;
        }
        layers[k] = (int32_t)n;
        left -= held;
        at += n;
    }
}

/* How many layers each stage has, into out[].dense for now. */
static void cut_balanced(const ech_job *job, int stages, int32_t *layers)
{
    const ech_model *m = job->model;
    double cost[4];
    int64_t n[2];
    unit_costs(job, cost);
    if (m->moe.experts > 0 && ech_shape_sparse(m, 0, m->layers) != m->layers) {
        cut_mixed(m, cost, stages, layers);
        return;
    }
    deal_out(cost, cost[m->moe.experts > 0 ? 2 : 1], stages, m->layers, n);
    for (int k = 0; k < stages; k++)
        layers[k] = (int32_t)dealt(n, k, stages, m->layers);
}

/* As many each, ends one less where embedding and head count as layers; what does not divide goes to
 * the first ones. */
static void cut_even(const ech_job *job, bool ends_count, int stages, int32_t *layers)
{
    const int64_t all = job->model->layers + (ends_count ? 2 : 0);
    for (int k = 0; k < stages; k++) {
        const int end = ends_count ? (k == 0) + (k == stages - 1) : 0;
        layers[k] = (int32_t)(all / stages + (k < all % stages) - end);
    }
}

static void count_layers(const ech_job *job, const ech_point *p, int stages, int32_t *layers)
{
    switch (p->split) {
    case ECH_SPLIT_LIST:
        for (int k = 0; k < stages; k++)
            layers[k] = p->stage_layers[k];
        return;
    case ECH_SPLIT_EVEN:
        cut_even(job, false, stages, layers);
        return;
    case ECH_SPLIT_ENDS:
        cut_even(job, true, stages, layers);
        return;
    case ECH_SPLIT_BALANCED:
        cut_balanced(job, stages, layers);
        return;
    }
}

int64_t ech_shape_sparse(const ech_model *m, int64_t from, int64_t to)
{
    const ech_moe *moe = &m->moe;
    uint64_t dense = 0; /* exceptions */
    int64_t n = 0;
    if (moe->experts == 0 || from >= to)
        return 0;
    for (int i = 0; i < ECH_MOE_MASK_LAYERS / 64; i++)
        dense |= moe->dense_mask[i];
    if (moe->sparse_step == 1 && !dense) {
        const int64_t first = from > moe->first_dense ? from : moe->first_dense;
        return first < to ? to - first : 0;
    }
    for (int64_t i = from; i < to; i++)
        n += ech_model_is_sparse(m, i);
    return n;
}

int ech_shape_cut(const ech_job *job, const ech_point *p, ech_stage_shape *out)
{
    const ech_model *m = job->model;
    const int stages = p->pp * ech_shape_chunks(p);
    int32_t layers[ECH_SHAPE_STAGES];
    ECH_ASSERT(stages >= 1 && stages <= ECH_SHAPE_STAGES);
    count_layers(job, p, stages, layers);
    for (int k = 0, at = 0; k < stages; k++) {
        const int32_t sparse = (int32_t)ech_shape_sparse(m, at, at + layers[k]);
        out[k] = (ech_stage_shape){.first = at,
                                   .dense = layers[k] - sparse,
                                   .sparse = sparse,
                                   .rank = ech_schedule_place(p->schedule, p->pp, k)};
        at += layers[k];
    }
    return stages;
}
