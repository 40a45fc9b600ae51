/* What each pipeline rank has: elements of state, bytes that its layers save. */
#include "base/checked.h"
#include "price/footprint_private.h"

/* Adapters of rank r on every matrix: r (in + out) of what is on the rank (Hu et al. 2021,
 * arXiv:2106.09685, section 4.1). */
static double attention_adapters(const ech_shape *s)
{
    const ech_shape_attention *a = &s->attention;
    const double h = (double)s->hidden;
    if (a->kv_latent == 0)
        return 4 * h + (double)(a->q_out + a->k_out + a->v_out + a->o_in);
    const double up = (double)(a->k_out - a->heads * a->rope_dim + a->v_out);
    const double query =
        a->q_latent > 0 ? h + 2 * (double)a->q_latent + (double)a->q_out : h + (double)a->q_out;
    return query + h + (double)(2 * a->kv_latent + a->rope_dim) + up + h + (double)a->o_in;
}

static void make_adapters(ech_memory_plan *plan)
{
    const ech_shape *s = &plan->shape;
    const double r = (double)plan->job->lora_rank;
    const double matrices = s->is_gated ? 3 : 2;
    const double h = (double)s->hidden;
    const double attention = attention_adapters(s);
    const double shared = s->shared_ffn > 0 ? matrices * (h + (double)s->shared_ffn) : 0;
    plan->adapters[0] = r * (attention + matrices * (h + (double)s->ffn));
    plan->adapters[1] = r * (attention + shared);
    plan->expert_adapters = r * matrices * (double)s->experts * (h + (double)s->expert_ffn);
}

/* Shapes of weights that have a blank: attention's, an MLP's, one expert's. */
static double blank_elems(const ech_memory_plan *plan)
{
    const ech_shape *s = &plan->shape;
    const ech_model *m = plan->job->model;
    const double gates = s->is_gated ? 3 : 2;
    const double h = (double)s->hidden;
    const bool has_dense = m->moe.experts == 0 || m->moe.first_dense > 0 || m->moe.sparse_step > 1;
    double elems = s->matrix[0] - gates * h * (double)s->ffn;
    if (has_dense)
        elems += gates * h * (double)s->ffn;
    if (m->moe.experts > 0)
        elems += gates * h * (double)(s->shared_ffn + s->expert_ffn);
    return elems;
}

static void make_copies(ech_memory_plan *plan)
{
    const ech_job *job = plan->job;
    const ech_shape *s = &plan->shape;
    const bool trains = job->tuning != ECH_TUNING_LORA;
    if (plan->habit.keeps_wgrad_blanks && trains)
        plan->blanks = 2 * blank_elems(plan);
    const bool is_gathered = plan->point->zero_stage >= 3; /* copies go as their unit goes */
    if (plan->habit.caches_fp8 && job->precision >= ECH_PRECISION_FP8 && !is_gathered) {
        enum { COPIES = 2 }; /* and transposed, a byte each */
        plan->fp8[0] = COPIES * s->matrix[0];
        plan->fp8[1] = COPIES * (s->matrix[1] + s->layer[1].expert);
    }
}

/* Elements of the whole model, copies once, padding included. */
static double whole_elems(const ech_memory_plan *plan)
{
    const ech_shape *s = &plan->shape;
    const ech_model *m = plan->job->model;
    const ech_point *p = plan->point;
    const double sparse = (double)ech_shape_sparse(m, 0, m->layers);
    const ech_shape_params unit[] = {s->embedding, s->layer[0], s->layer[1], s->head};
    const double times[] = {1, (double)m->layers - sparse, sparse, 1};
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += times[i] * (unit[i].cut * p->tp + unit[i].whole + unit[i].expert * p->ep * p->etp);
    return sum;
}

void ech_memory_plan_of(const ech_job *job, const ech_point *p, double imbalance,
                        ech_memory_plan *out)
{
    *out = (ech_memory_plan){.job = job, .point = p, .habit = ech_habit_of(job, p)};
    out->micros = ech_point_micros(job, p);
    if (out->micros < 1) /* a batch that does not divide: at least one */
        out->micros = 1;
    ech_shape_of(job, p, &out->shape);
    ech_state_rules_of(job, p, &out->rules);
    ech_activations_of(job, p, &out->shape, &out->habit,
                       ech_larger(imbalance, out->shape.imbalance), &out->act);
    if (job->tuning == ECH_TUNING_LORA)
        make_adapters(out);
    make_copies(out);
    out->whole = whole_elems(out);
}

/* --- stages --- */

/* Layers of one kind in a virtual stage: trained ones, of them recomputed. */
static void add_layers(const ech_memory_plan *plan, int kind, double trained, double frozen,
                       double recomputed, ech_rank_load *r)
{
    const ech_layer_bytes *a = &plan->act.layer[kind];
    const ech_shape_params *w = &plan->shape.layer[kind];
    const bool is_lora = plan->job->tuning == ECH_TUNING_LORA;
    const double dense = w->cut + w->whole;
    const double n = trained + frozen;
    if (n <= 0)
        return;
    r->trained[0] += trained * (is_lora ? plan->adapters[kind] : dense);
    r->trained[1] += trained * (is_lora ? (kind ? plan->expert_adapters : 0) : w->expert);
    r->frozen[0] += (is_lora ? n : frozen) * dense;
    r->frozen[1] += (is_lora ? n : frozen) * w->expert;
    r->unit = ech_larger(r->unit, dense + w->expert);
    r->copies += n * plan->fp8[kind];
    if (trained <= 0)
        return;
    const bool is_full = plan->point->recompute & ECH_RECOMPUTE_FULL;
    r->saved += recomputed * a->saved + (trained - recomputed) * (is_full ? a->whole : a->saved);
    r->deferred += trained * a->deferred;
    r->largest = ech_larger(r->largest, is_full && recomputed < trained ? a->whole : a->saved);
    r->working =
        ech_larger(r->working, a->working + (recomputed > 0 || !is_full ? a->whole - a->saved : 0));
}

/* Frozen layers of a kind in a stage: the first ones of the model. */
static void count_frozen(const ech_memory_plan *plan, const ech_stage_shape *v, double frozen[2])
{
    const ech_job *job = plan->job;
    frozen[0] = frozen[1] = 0;
    if (job->tuning != ECH_TUNING_FROZEN)
        return;
    for (int32_t i = v->first; i < v->first + v->dense + v->sparse && i < job->frozen_layers; i++)
        frozen[ech_model_is_sparse(job->model, i)] += 1;
}

static void add_stage(const ech_memory_plan *plan, const ech_stage_shape *v, ech_rank_load *r)
{
    const double n[2] = {v->dense, v->sparse};
    const int32_t some = plan->point->recompute_layers;
    double frozen[2];
    count_frozen(plan, v, frozen);
    const double trained = n[0] + n[1] - frozen[0] - frozen[1];
    /* so many of a stage's layers, of both kinds alike */
    const double share = trained <= 0 || some <= 0 || some >= trained ? 1 : some / trained;
    for (int kind = 0; kind < 2; kind++) {
        const double t = n[kind] - frozen[kind];
        add_layers(plan, kind, t, frozen[kind], t * share, r);
    }
    r->layers += v->dense + v->sparse;
}

static void add_ends(const ech_memory_plan *plan, bool is_first, bool is_last, ech_rank_load *r)
{
    const ech_shape *s = &plan->shape;
    const ech_tuning tuning = plan->job->tuning;
    if (is_first) {
        const double n = ech_shape_sum(s->embedding);
        r->has_embedding = true;
        r->trains_embedding = tuning == ECH_TUNING_FULL;
        *(r->trains_embedding ? &r->trained[0] : &r->fixed) += n;
        r->embedding = n;
    }
    if (is_last) {
        const double n = ech_shape_sum(s->head) + (r->has_embedding ? 0 : s->tied);
        r->has_head = true;
        *(tuning == ECH_TUNING_LORA ? &r->fixed : &r->trained[0]) += n;
        r->head = n;
    }
}

int ech_memory_loads(const ech_memory_plan *plan, ech_rank_load *out)
{
    const int ranks =
        plan->point->pp < ECH_FOOTPRINT_STAGES ? plan->point->pp : ECH_FOOTPRINT_STAGES;
    ech_stage_shape stage[ECH_SHAPE_STAGES];
    const int n = ech_shape_cut(plan->job, plan->point, stage);
    for (int r = 0; r < ranks; r++)
        out[r] = (ech_rank_load){0};
    for (int k = 0; k < n; k++) {
        if (stage[k].rank >= ranks)
            continue;
        add_stage(plan, &stage[k], &out[stage[k].rank]);
        add_ends(plan, k == 0, k == n - 1, &out[stage[k].rank]);
    }
    return ranks;
}
