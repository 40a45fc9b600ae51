#include "price/kernel_price.h"

#include <math.h>

static void start(const ech_rates *r, ech_kernels *to)
{
    to->rates = r;
    to->n = 0;
    to->stays_wide = false;
}

void ech_kernels_traffic(ech_kernels *to, const char *name, double forward_bytes,
                         double backward_bytes, uint32_t again)
{
    const ech_rates *r = to->rates;
    const double bytes[2] = {forward_bytes * r->traffic, backward_bytes * r->traffic};
    for (int i = 0; i < 2; i++)
        to->k[to->n++] = (ech_kernel){.name = name,
                                      .pass = i == 0 ? ECH_PASS_FORWARD : ECH_PASS_INPUT,
                                      .seconds = bytes[i] / r->memory_bytes_per_s + r->kernel_s,
                                      .bytes = bytes[i],
                                      .launches = 1,
                                      .again = i == 0 ? again | ECH_RECOMPUTE_FULL : 0};
}

/* Sequences of a micro-batch, the queries that a rank has of each and the keys that they see. */
static void core(ech_kernels *to, const ech_job *job, const ech_point *point, const ech_shape *s)
{
    const double seq = (double)job->seq, queries = seq / point->cp;
    const int64_t window = job->model->window;
    double visible = 0.5, counted = seq;
    const int before = to->n;
    if (window > 0 && (double)window < seq) {
        const double w = (double)window, share = 1 - w / (2 * seq), seen = w / seq * share;
        const double layers = (double)job->model->layers;
        const double with = (double)job->model->window_layers / (layers > 0 ? layers : 1);
        visible = with * seen + (1 - with) * visible;
        counted = with * w + (1 - with) * seq;
    }
    ech_kernels_attention(to, &s->attention, point->micro, queries, seq, visible);
    const ech_shape_attention *a = &s->attention;
    const double work = 2 * (double)point->micro * queries * counted * (double)a->heads *
                        (double)(a->qk_dim + a->v_dim);
    for (int i = before; i < to->n; i++)
        if (to->k[i].flops > 0)
            to->k[i].counted = to->k[i].pass == ECH_PASS_FORWARD ? work : 2 * work;
}

static void projections(ech_kernels *to, const ech_model *m, const ech_shape *s)
{
    const ech_shape_attention *a = &s->attention;
    const double tokens = (double)s->micro_tokens, h = (double)s->hidden;
    if (a->kv_latent > 0) {
        const double q_in = a->q_latent > 0 ? (double)a->q_latent : h;
        ech_kernels_linear(to, "latents", tokens,
                           (double)(a->q_latent + a->kv_latent + a->rope_dim), h, 1, 0);
        ech_kernels_linear(to, "q up", tokens, (double)a->q_out, q_in, 1, ECH_RECOMPUTE_MLA);
        ech_kernels_linear(to, "kv up", tokens, (double)(a->heads * m->mla.qk_nope_dim + a->v_out),
                           (double)a->kv_latent, 1, ECH_RECOMPUTE_MLA);
        return;
    }
    ech_kernels_linear(to, "qkv", tokens, (double)(a->q_out + a->k_out + a->v_out), h, 1,
                       ECH_RECOMPUTE_OPS);
}

static void mlp(ech_kernels *to, const ech_shape *s)
{
    const ech_kernel_habit *habit = to->rates->habit;
    const double tokens = (double)s->micro_tokens, h = (double)s->hidden, f = (double)s->ffn;
    const double elem = to->rates->act_bytes, *passes = s->is_gated ? habit->gated : habit->act;
    ech_kernels_linear(to, s->is_gated ? "gate and up" : "up", tokens, s->is_gated ? 2 * f : f, h,
                       1, ECH_RECOMPUTE_OPS);
    ech_kernels_traffic(to, "activation", passes[0] * tokens * f * elem,
                        passes[1] * tokens * f * elem, ECH_RECOMPUTE_ACT);
    ech_kernels_linear(to, "down", tokens, h, f, 1, 0);
}

void ech_kernels_layer(const ech_rates *r, const ech_job *job, const ech_point *point,
                       const ech_shape *shape, bool sparse, ech_kernels *to)
{
    const ech_kernel_habit *habit = r->habit;
    const ech_shape_attention *a = &shape->attention;
    const double elem = r->act_bytes, tokens = (double)shape->micro_tokens;
    const double own = (double)shape->own_tokens * (double)shape->hidden * elem;
    const double heads = tokens * (double)(a->q_out + a->k_out + a->v_out) * elem;
    const double context = tokens * (double)a->o_in * elem;
    const int norms = job->model->parallel_norms ? 1 : job->model->post_norms ? 4 : 2;
    start(r, to);
    for (int i = 0; i < norms; i++)
        ech_kernels_traffic(to, "norm", habit->norm[0] * own, habit->norm[1] * own,
                            ECH_RECOMPUTE_NORM);
    projections(to, job->model, shape);
    ech_kernels_traffic(to, "heads", habit->heads[0] * heads, habit->heads[1] * heads, 0);
    core(to, job, point, shape);
    if (habit->context[0] + habit->context[1] > 0)
        ech_kernels_traffic(to, "context", habit->context[0] * context, habit->context[1] * context,
                            ECH_RECOMPUTE_ATTENTION);
    ech_kernels_linear(to, "out", tokens, (double)shape->hidden, (double)a->o_in, 1,
                       ECH_RECOMPUTE_OPS);
    ech_kernels_traffic(to, "residual", 2 * habit->residual[0] * own, 2 * habit->residual[1] * own,
                        0);
    if (sparse)
        ech_kernels_experts(to, job, shape);
    else
        mlp(to, shape);
}

void ech_kernels_embedding(const ech_rates *r, const ech_shape *shape, ech_kernels *to)
{
    const double row = (double)shape->micro_tokens * (double)shape->hidden * r->act_bytes;
    start(r, to);
    /* Rows read and written, positions, dropout; gradients are added into the table in fp32. */
    ech_kernels_traffic(to, "embedding", 4 * row, 6 * row, 0);
}

void ech_kernels_head(const ech_rates *r, const ech_job *job, const ech_shape *shape,
                      ech_kernels *to)
{
    const double tokens = (double)shape->micro_tokens, vocab = (double)shape->vocab;
    const double own = (double)shape->own_tokens * (double)shape->hidden * r->act_bytes;
    double loss[2] = {r->habit->loss_bytes[0], r->habit->loss_bytes[1]};
    if (job->loss == ECH_LOSS_FUSED || job->loss == ECH_LOSS_CHUNKED) {
        loss[0] = 8;
        loss[1] = 6;
    } else if (job->loss == ECH_LOSS_EAGER) {
        loss[0] = 20;
        loss[1] = 14;
    }
    start(r, to);
    ech_kernels_traffic(to, "final norm", r->habit->norm[0] * own, r->habit->norm[1] * own, 0);
    to->stays_wide = true;
    ech_kernels_linear(to, "logits", tokens, vocab, (double)shape->hidden, 1, 0);
    ech_kernels_traffic(to, "loss", loss[0] * tokens * vocab, loss[1] * tokens * vocab, 0);
}
