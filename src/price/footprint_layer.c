/* Activations: what a layer keeps of a micro-batch, piece by piece, and what lies around the layers.
 *
 * Sources: Korthikanti et al. 2022, arXiv:2205.05198, section 4 (the pieces of 34 s b h and of 5 a s^2
 * b); the same counting for gated MLPs (Shazeer 2020, arXiv:2002.05202), grouped queries (Ainslie et
 * al. 2023, arXiv:2305.13245), experts and latent attention (DeepSeek-V2, arXiv:2405.04434, section 2). */
#include "price/footprint_private.h"

/* Bytes of elements: of activations, and of what a matrix product saves of its input. */
typedef struct widths {
    double act, gemm;
} widths;

static widths widths_of(const ech_job *job, const ech_habit *h)
{
    const double act =
        job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32 ? 4 : 2;
    const bool is_fp8 = job->precision >= ECH_PRECISION_FP8;
    return (widths){act, is_fp8 && h->caches_fp8 ? 1 : act};
}

/* What all pieces are computed from. */
typedef struct scene {
    const ech_job *job;
    const ech_point *point;
    const ech_shape *s;
    const ech_habit *habit;
    widths w;
    double own, tokens, routed, hidden; /* rows: outside of tp, inside, of experts; columns */
} scene;

static bool has_masks(const scene *c)
{
    return c->job->model->dropout > 0 && !c->habit->replays_masks;
}

static double scores_of(const scene *c)
{
    /* softmax's output; with dropout its mask and the dropped-out copy too */
    const double each = has_masks(c) ? c->w.act + 1 + c->w.act : c->w.act;
    return each * c->tokens * (double)c->s->span * (double)c->s->attention.heads;
}

static void attention_pieces(const scene *c, ech_layer_pieces *p)
{
    const ech_model *m = c->job->model;
    const ech_shape_attention *a = &c->s->attention;
    const double norms = m->parallel_norms ? 1 : 2;
    const double row = c->own * c->hidden;
    p->input = c->w.act * row;
    p->middle = c->w.act * row * (norms - 1 + (m->post_norms ? 2 : 0));
    p->norm_out = c->w.gemm * row * norms;
    p->latent = c->w.act * c->own * (double)(2 * a->q_latent + 2 * a->kv_latent + a->rope_dim);
    p->qkv = c->w.act * c->tokens * (double)(a->q_out + a->k_out + a->v_out);
    if (m->qk_norm)
        p->qkv += c->w.act * c->tokens * (double)(a->q_out + a->k_out);
    p->core = c->habit->keeps_scores ? scores_of(c) : 4 * c->tokens * (double)a->heads;
    p->attn_out = c->w.gemm * c->tokens * (double)a->o_in;
    /* all-to-all over cp: attention keeps its output as its ranks have it, the matrix as these have */
    if (c->point->cp > 1 && c->point->cp_kind == ECH_CP_ULYSSES)
        p->attn_out += c->w.act * c->tokens * (double)a->o_in;
    p->masks = has_masks(c) ? 2 * row : 0;
}

/* Bytes of an MLP over rows of `width`: what goes into the activation, and what comes out. */
static void mlp_pieces(const scene *c, double rows, double width, double *in, double *out)
{
    const bool is_gated = c->s->is_gated;
    *in = rows * width * c->w.act * (is_gated ? 2 : 1);
    *out = rows * width * (c->w.gemm + (is_gated && c->habit->keeps_gate ? c->w.act : 0));
}

static void expert_pieces(const scene *c, ech_layer_pieces *p)
{
    const ech_moe *moe = &c->job->model->moe;
    double in;
    double out;
    p->router = 8 * c->own * (double)moe->experts; /* logits and probabilities in fp32 */
    mlp_pieces(c, c->routed, (double)c->s->expert_ffn, &in, &out);
    p->experts = c->w.gemm * c->routed * c->hidden + in + out;
    if (c->habit->keeps_expert_out)
        p->experts += c->w.act * c->routed * c->hidden;
    mlp_pieces(c, c->tokens, (double)c->s->shared_ffn, &in, &out);
    p->shared = in + out;
}

static double sum_of(const ech_layer_pieces *p)
{
    return p->input + p->middle + p->norm_out + p->latent + p->qkv + p->core + p->attn_out +
           p->masks + p->mlp_in + p->mlp_out + p->router + p->experts + p->shared;
}

/* Every other matrix product and attention's output: queries, values, the gate and the layer's output,
 * with its input (torchtitan's selective per op). */
static double saved_of_ops(const scene *c, const ech_layer_pieces *p)
{
    const ech_shape_attention *a = &c->s->attention;
    return 2 * p->input + p->core + p->attn_out +
           c->w.act * c->tokens * (double)(a->q_out + a->v_out) + p->mlp_in / 2 + p->experts / 2 +
           p->shared / 2;
}

static double saved_of(const scene *c, const ech_layer_pieces *all, uint32_t set)
{
    ech_layer_pieces p = *all;
    if (set & ECH_RECOMPUTE_FULL)
        return p.input;
    if (set & ECH_RECOMPUTE_OPS)
        return saved_of_ops(c, &p);
    if (set & ECH_RECOMPUTE_ATTENTION)
        p.core = 0;
    if (set & ECH_RECOMPUTE_NORM)
        p.norm_out = 0;
    if (set & ECH_RECOMPUTE_ACT)
        p.mlp_out = 0;
    if (set & ECH_RECOMPUTE_MOE)
        p.experts = p.shared = 0;
    if (set & ECH_RECOMPUTE_MLA && c->s->attention.kv_latent > 0)
        p.qkv = 0;
    return sum_of(&p);
}

/* Gradients and copies at the fullest point of a layer's backward: in the MLP those of the product and
 * of what the activation took; in attention, when what the MLP saved is freed, those of queries, keys,
 * values and output; of the residual stream two; with sequence parallelism the gathered input and its
 * gradient. */
static double working_of(const scene *c, const ech_layer_pieces *p, bool is_sparse)
{
    const ech_shape_attention *a = &c->s->attention;
    const double gates = c->s->is_gated ? 3 : 2;
    const double row = c->own * c->hidden * c->w.act;
    const double gathered =
        c->point->sequence_parallel && c->point->tp > 1 ? 2 * c->tokens * c->hidden * c->w.act : 0;
    double mlp = c->w.act * c->tokens * (double)c->s->ffn * gates;
    if (is_sparse)
        mlp = c->w.act * c->routed * (2 * c->hidden + gates * (double)c->s->expert_ffn);
    double core = c->habit->keeps_scores
                      ? 2 * c->w.act * c->tokens * (double)c->s->span * (double)a->heads
                      : 0;
    core += c->w.act * c->tokens * (double)(a->q_out + a->k_out + a->v_out + a->o_in);
    if (c->point->cp > 1) /* two blocks of keys and values on their way, a partial output in fp32 */
        core += c->tokens * (4 * c->w.act * (double)a->k_out + 4 * (double)a->o_in);
    core -= p->mlp_in + p->mlp_out + p->router + p->experts + p->shared;
    return ech_larger(mlp, core) + 2 * row + gathered;
}

/* Gradients of weights need the inputs of matrices and the gradients of their outputs. */
static double deferred_of(const scene *c, const ech_layer_pieces *p)
{
    return p->norm_out + p->attn_out + p->mlp_out + p->experts + p->qkv + p->mlp_in +
           2 * c->own * c->hidden * c->w.act;
}

static ech_layer_bytes layer_of(const scene *c, bool is_sparse, ech_layer_pieces *p)
{
    *p = (ech_layer_pieces){0};
    attention_pieces(c, p);
    if (is_sparse)
        expert_pieces(c, p);
    else
        mlp_pieces(c, c->tokens, (double)c->s->ffn, &p->mlp_in, &p->mlp_out);
    return (ech_layer_bytes){.whole = sum_of(p),
                             .saved = saved_of(c, p, c->point->recompute),
                             .boundary = p->input,
                             .working = working_of(c, p, is_sparse),
                             .deferred = deferred_of(c, p)};
}

static void around_layers(const scene *c, ech_activations *out)
{
    const ech_job *job = c->job;
    const bool is_cut = c->point->sequence_parallel && c->point->tp > 1;
    const double row = c->w.act * c->own * c->hidden;
    const double rows =
        job->loss == ECH_LOSS_CHUNKED && job->loss_chunk > 0 && (double)job->loss_chunk < c->tokens
            ? (double)job->loss_chunk
            : c->tokens;
    const double elems = rows * (double)c->s->vocab;
    const double table = (double)c->s->vocab * c->hidden;
    out->embedding = 8 * c->tokens + (has_masks(c) ? c->own * c->hidden : 0);
    out->head = 2 * row;
    out->logits = c->habit->logits * elems;
    out->logits_kept = c->habit->logits_kept * elems;
    out->head_deferred = out->logits_kept + row;
    const bool trains = job->tuning != ECH_TUNING_LORA;
    out->table_working = c->habit->makes_wgrad && trains ? c->w.act * table : 0;
    out->head_working =
        out->table_working + row + (is_cut ? 2 * c->w.act * c->tokens * c->hidden : 0);
    out->message = row;
}

void ech_activations_of(const ech_job *job, const ech_point *p, const ech_shape *s,
                        const ech_habit *habit, double imbalance, ech_activations *out)
{
    const scene c = {.job = job,
                     .point = p,
                     .s = s,
                     .habit = habit,
                     .w = widths_of(job, habit),
                     .own = (double)s->own_tokens,
                     .tokens = (double)s->micro_tokens,
                     .routed = s->routed * imbalance,
                     .hidden = (double)s->hidden};
    out->layer[0] = layer_of(&c, false, &out->pieces[0]);
    out->layer[1] = (ech_layer_bytes){0};
    if (job->model->moe.experts > 0)
        out->layer[1] = layer_of(&c, true, &out->pieces[1]);
    around_layers(&c, out);
}
