/* The derivation: the numbers of a plan that was computed, with the formulas that made them. */
#include "price/footprint_private.h"

#define KORTHIKANTI "Korthikanti et al. 2022, arXiv:2205.05198, section 4"
#define ZERO        "Rajbhandari et al. 2020, arXiv:1910.02054, sections 3, 5"

/* Where notes go and what they are of: the fullest pipeline rank. */
typedef struct scene {
    const ech_memory_plan *plan;
    const ech_rank_load *load;
    const ech_footprint *f;
    const ech_footprint_stage *stage;
    ech_derivation *d;
} scene;

static void note_if(ech_derivation *d, const char *what, double bytes, const char *source,
                    const char *formula)
{
    if (bytes > 0)
        ech_derive(d, what, bytes, "B", source, "%s", formula);
}

/* --- parameters --- */

static void note_layer(const scene *c, int kind)
{
    const ech_shape *s = &c->plan->shape;
    const ech_shape_attention *a = &s->attention;
    const ech_shape_params *w = &s->layer[kind];
    const long long h = (long long)s->hidden;
    const int in = s->is_gated ? 3 : 2;
    if (a->kv_latent == 0)
        ech_derive(c->d, "attention's matrices",
                   (double)(a->q_out + a->k_out + a->v_out + a->o_in) * (double)h, "1",
                   "price/shape.h", "(q %lld + k %lld + v %lld + out %lld) x %lld",
                   (long long)a->q_out, (long long)a->k_out, (long long)a->v_out,
                   (long long)a->o_in, h);
    if (kind == 0)
        ech_derive(c->d, "the MLP's matrices", in * (double)h * (double)s->ffn, "1",
                   "price/shape.h", "%d x %lld x %lld", in, h, (long long)s->ffn);
    else
        ech_derive(c->d, "experts of a layer", w->expert, "1", "price/shape.h",
                   "%lld x %d x %lld x %lld", (long long)s->experts, in, h,
                   (long long)s->expert_ffn);
    ech_derive(c->d, kind ? "a sparse layer" : "a layer", ech_shape_sum(*w), "1", "price/shape.h",
               "cut over tp %.9g + whole %.9g + experts %.9g", w->cut, w->whole, w->expert);
}

static void note_params(const scene *c)
{
    const ech_shape *s = &c->plan->shape;
    const ech_point *p = c->plan->point;
    ech_derive_section(c->d, "Parameters (pipeline rank %d of %d, tp %d, ep %d)", c->f->fullest,
                       p->pp, p->tp, p->ep);
    const bool has_sparse = c->plan->job->model->moe.experts > 0;
    const bool has_dense = !has_sparse || !ech_model_is_sparse(c->plan->job->model, 0);
    if (has_dense)
        note_layer(c, 0);
    if (has_sparse)
        note_layer(c, 1);
    if (c->load->embedding + c->load->head > 0)
        ech_derive(c->d, "tables and final norm of the rank", c->load->embedding + c->load->head,
                   "1", "price/shape.h", "(%lld rows padded to %lld) / %d x %lld each",
                   (long long)c->plan->job->model->vocab, (long long)s->vocab_whole, p->tp,
                   (long long)s->hidden);
    ech_derive(c->d, "parameters of the rank", c->stage->params, "1", "the sum",
               "%lld layers and its tables", (long long)c->load->layers);
    if (c->stage->trained < c->stage->params)
        ech_derive(c->d, "of them trained", c->stage->trained, "1", "the job", "not frozen");
}

/* --- state --- */

static void note_class(const scene *c, const char *what, double dense, double experts)
{
    const double *n = c->load->trained;
    const double bytes = dense * n[0] + experts * n[1];
    if (bytes <= 0)
        return;
    if (n[1] > 0)
        ech_derive(c->d, what, bytes, "B", ZERO, "%.4g B x %.6g + %.4g B x %.6g of experts", dense,
                   n[0], experts, n[1]);
    else
        ech_derive(c->d, what, bytes, "B", ZERO, "%.4g B x %.6g", dense, n[0]);
}

static void note_state(const scene *c)
{
    const ech_state_rules *r = &c->plan->rules;
    const ech_state_rule *t = r->trained;
    const ech_rank_load *l = c->load;
    const double frozen = l->frozen[0] * r->frozen[0].params + l->frozen[1] * r->frozen[1].params +
                          l->fixed * r->fixed.params;
    double sum = 0;
    ech_derive_section(c->d, "Model state (%s, stage %d)", ech_system_name(c->plan->job->system),
                       c->plan->point->zero_stage);
    ech_derive(c->d, "ranks that share state", r->shards[0], "1", "dp x cp, or the shard group",
               "N");
    if (l->trained[1] > 0)
        ech_derive(c->d, "ranks that share experts' state", r->shards[1], "1",
                   "tp x cp x dp / (ep x etp)", "N of experts");
    note_class(c, "weights", t[0].params, t[1].params);
    note_class(c, "gradients", t[0].grads, t[1].grads);
    note_class(c, "master weights", t[0].master, t[1].master);
    note_class(c, "moments of the optimizer", t[0].moments, t[1].moments);
    note_if(c->d, "frozen weights", frozen, ZERO,
            "their own bytes an element, no gradients, no "
            "state");
    note_if(c->d, "fp8 copies of weights", l->copies, "Transformer Engine",
            "a byte an element, and transposed");
    note_if(c->d, "on the host, of a rank", c->stage->host_bytes, ZERO,
            "offloaded state and activations");
    note_if(c->d, "on disks, of a rank", c->stage->nvme_bytes, ZERO, "the same there");
    for (int h = ECH_USE_PARAMS; h <= ECH_USE_OPTIMIZER; h++)
        sum += c->stage->held[h];
    ech_derive(c->d, "model state", sum, "B", "the sum", "as held at the fullest moment");
}

/* --- activations --- */

/* Bytes an element, rows, columns. */
static void note_product(ech_derivation *d, const char *what, double bytes, double rows,
                         double columns)
{
    if (bytes > 0)
        ech_derive(d, what, bytes, "B", KORTHIKANTI, "%.4g B x %.9g tokens x %.9g",
                   bytes / rows / columns, rows, columns);
}

static void note_attention(const scene *c, const ech_layer_pieces *p)
{
    const ech_shape *s = &c->plan->shape;
    const ech_shape_attention *a = &s->attention;
    const double own = (double)s->own_tokens;
    const double tokens = (double)s->micro_tokens;
    const double h = (double)s->hidden;
    ech_derivation *d = c->d;
    note_product(d, "inputs of the layer and its norms", p->input + p->middle, own, h);
    note_product(d, "outputs of the norms", p->norm_out, own, h);
    note_if(d, "latents", p->latent, "DeepSeek-V2, arXiv:2405.04434",
            "before and after their norms");
    note_product(d, "queries, keys, values", p->qkv, tokens,
                 (double)(a->q_out + a->k_out + a->v_out));
    if (c->plan->habit.keeps_scores)
        note_product(d, "scores", p->core, tokens, (double)a->heads * (double)s->span);
    else
        note_product(d, "log-sum-exp", p->core, tokens, (double)a->heads);
    note_product(d, "attention's output", p->attn_out, tokens, (double)a->o_in);
    note_product(d, "masks of dropout", p->masks, own, h);
}

static void note_pieces(const scene *c, int kind)
{
    const ech_layer_pieces *p = &c->plan->act.pieces[kind];
    const ech_layer_bytes *b = &c->plan->act.layer[kind];
    const ech_shape *s = &c->plan->shape;
    const double tokens = (double)s->micro_tokens;
    if (kind == 0 || ech_model_is_sparse(c->plan->job->model, 0)) /* the same in both kinds */
        note_attention(c, p);
    if (kind == 0)
        note_product(c->d, "inside the MLP", p->mlp_in + p->mlp_out, tokens, (double)s->ffn);
    else
        ech_derive(c->d, "router, experts, shared experts", p->router + p->experts + p->shared, "B",
                   "rows in, gate, up, product of each", "%.6g rows of experts x %.4g", s->routed,
                   s->imbalance);
    ech_derive(c->d, kind ? "a sparse layer, nothing recomputed" : "a layer, nothing recomputed",
               b->whole, "B", "the sum", "%.6g B a token", b->whole / tokens);
}

static const char *live_formula(const ech_point *p)
{
    switch (p->schedule) {
    case ECH_SCHEDULE_GPIPE:
        return "m";
    case ECH_SCHEDULE_INTERLEAVED:
        return p->pp > 1 && p->vpp > 1 ? "min(m, ((v - 1) p + 2 (p - 1 - i) + 1) / v)"
                                       : "min(m, p - i)";
    case ECH_SCHEDULE_ZB_V:
    case ECH_SCHEDULE_FILE:
        return "min(m, p)";
    default:
        return "min(m, p - i)";
    }
}

static void note_activations(const scene *c)
{
    const ech_activations *a = &c->plan->act;
    const ech_model *m = c->plan->job->model;
    const bool has_sparse = m->moe.experts > 0;
    ech_derive_section(c->d, "Activations (a micro-batch of %d, %lld tokens on a rank)",
                       c->plan->point->micro, (long long)c->plan->shape.micro_tokens);
    for (int kind = 0; kind < 2; kind++) {
        if (kind ? !has_sparse : has_sparse && ech_model_is_sparse(m, 0))
            continue;
        note_pieces(c, kind);
        if (a->layer[kind].saved < a->layer[kind].whole)
            ech_derive(c->d, "saved of it with this recomputation", a->layer[kind].saved, "B",
                       KORTHIKANTI, "the rest is computed again");
    }
    ech_derive(c->d, "saved by all layers of the rank", c->load->saved, "B", "the sum",
               "%lld layers", (long long)c->load->layers);
    ech_derive(c->d, "micro-batches in flight", c->stage->live, "1",
               "Narayanan et al. 2021, arXiv:2104.04473, section 2.2",
               "%s, m = %lld, p = %d, i = %d", live_formula(c->plan->point),
               (long long)c->plan->micros, c->plan->point->pp, c->f->fullest);
    ech_derive(c->d, "saved activations", c->stage->held[ECH_USE_SAVED], "B", "their product",
               "with what the embedding and the head save");
    ech_derive(c->d, "working set of one layer", c->load->working, "B", KORTHIKANTI,
               "what is computed again, and gradients at the fullest point of its backward");
}

static void note_logits(const scene *c)
{
    const ech_activations *a = &c->plan->act;
    const ech_shape *s = &c->plan->shape;
    const double each = c->plan->habit.logits;
    if (!c->load->has_head)
        return;
    ech_derive_section(c->d, "Logits");
    ech_derive(c->d, "logits at the peak of the loss", a->logits, "B", "price/footprint_habit.c",
               "%.4g B x %.6g rows x %lld", each,
               each > 0 && s->vocab > 0 ? a->logits / each / (double)s->vocab : 0,
               (long long)s->vocab);
    note_if(c->d, "gradient of the token table", a->table_working, "price/footprint_habit.c",
            "in 16 bits, before it is added");
}

/* --- what lies beside --- */

static void note_held(const scene *c, ech_use h, const char *source, const char *formula)
{
    note_if(c->d, ech_use_name(h), c->stage->held[h], source, formula);
}

static void note_buffers(const scene *c)
{
    ech_derive_section(c->d, "Buffers");
    const double gathered = c->stage->held[ECH_USE_GATHERED];
    if (gathered > 0)
        ech_derive(c->d, ech_use_name(ECH_USE_GATHERED), gathered, "B",
                   "Zhao et al. 2023, arXiv:2304.11277",
                   "%.4g B x %.6g in work, ahead, or kept gathered", c->plan->rules.gathered_bytes,
                   gathered / c->plan->rules.gathered_bytes);
    note_held(c, ECH_USE_BUCKETS,
              "Zhao et al. 2023, arXiv:2304.11277; DeepSpeed, reduce_bucket_size",
              "gradients whole until they are reduced, buckets");
    note_held(c, ECH_USE_P2P, "price/footprint_moment.c", "a tensor each way and direction");
    note_if(c->d, "blank gradients of weights", c->plan->blanks, "Transformer Engine 2.3",
            "2 B an element, each shape once");
    note_held(c, ECH_USE_WORKSPACE, "price/footprint_habit.c", "of matrix libraries, with those");
    note_held(c, ECH_USE_CONTEXT, "price/footprint_habit.c",
              "driver, libraries, communicators of each kind of group");
    note_held(c, ECH_USE_SLACK, "price/footprint_habit.c", "share of what is allocated");
}

static void note_peaks(const scene *c)
{
    ech_derive_section(c->d, "Peaks");
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        ech_derive(c->d, ech_moment_name((ech_moment)m), c->stage->peak[m], "B",
                   "price/footprint_moment.c", "all classes together%s",
                   m == (int)c->stage->fullest ? ", the fullest" : "");
    ech_derive(c->d, "allocated", c->f->allocated_bytes, "B", "the sum",
               "without context and slack");
    ech_derive(c->d, "reserved", c->f->reserved_bytes, "B", "the sum", "with both");
    if (c->f->worst_bytes > c->f->reserved_bytes)
        ech_derive(c->d, "reserved at the worst balance of experts", c->f->worst_bytes, "B",
                   "price/footprint.c", "every choice of a token on one rank, or the capacity");
}

static void note_host(const scene *c)
{
    const ech_state_rule *t = c->plan->rules.trained;
    ech_derive_section(c->d, "Host (a node)");
    note_class(c, "state of a rank", t[0].host, t[1].host);
    note_class(c, "state of a rank on disks", t[0].nvme, t[1].nvme);
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        if (c->f->host_peak[m] > 0)
            ech_derive(c->d, ech_moment_name((ech_moment)m), c->f->host_peak[m], "B",
                       "price/footprint_host.c",
                       m == ECH_MOMENT_START  ? "offloaded state, buffers, copies that are loaded"
                       : m == ECH_MOMENT_SAVE ? "the same, and what is staged to be saved"
                                              : "offloaded state and buffers of its ranks");
}

void ech_memory_explain(const ech_memory_plan *plan, const ech_rank_load *load,
                        const ech_footprint *f, ech_derivation *notes)
{
    const scene c = {.plan = plan,
                     .load = &load[f->fullest],
                     .f = f,
                     .stage = &f->stage[f->fullest],
                     .d = notes};
    note_params(&c);
    note_state(&c);
    note_activations(&c);
    note_logits(&c);
    note_buffers(&c);
    note_peaks(&c);
    note_host(&c);
}
