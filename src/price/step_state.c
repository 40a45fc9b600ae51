#include "price/footprint.h" /* ECH_FOOTPRINT_STAGES */
#include "price/step_private.h"

#include <math.h>

step_params ech_step_params(const step_state *s)
{
    const ech_shape *h = &s->blocks->shape;
    step_params most = {0};
    if (!s->trained.is_all)
        return (step_params){s->trained.dense, s->trained.expert};
    double rank_dense[ECH_FOOTPRINT_STAGES], rank_sparse[ECH_FOOTPRINT_STAGES];
    for (int i = 0; i < s->point->pp; i++)
        rank_dense[i] = rank_sparse[i] = 0;
    for (int i = 0; i < s->n; i++) {
        rank_dense[s->pricer->stage[i].rank] += s->pricer->stage[i].dense;
        rank_sparse[s->pricer->stage[i].rank] += s->pricer->stage[i].sparse;
    }
    for (int i = 0; i < s->point->pp; i++) {
        step_params p = {rank_dense[i] * (h->layer[0].cut + h->layer[0].whole) +
                             rank_sparse[i] * (h->layer[1].cut + h->layer[1].whole),
                         rank_sparse[i] * h->layer[1].expert};
        if (i == 0)
            p.dense += h->embedding.cut + h->embedding.whole;
        if (i == s->pricer->stage[s->n - 1].rank)
            p.dense += h->head.cut + h->head.whole + (s->point->pp > 1 ? h->tied : 0);
        if (p.dense + p.expert > most.dense + most.expert)
            most = p;
    }
    return most;
}

ech_collective ech_step_shard_way(const step_state *s)
{
    if (!s->pricer->rates.has_roots)
        return ECH_COLLECTIVE_GATHER;
    return s->point->zero_stage == 3 ? ECH_COLLECTIVE_ONE_WAY : ECH_COLLECTIVE_TURNS;
}

ech_group ech_step_expert_replicas(const ech_point *p)
{
    const ech_group g = ech_group_of(p, ECH_AXIS_EDP);
    return (ech_group){(double)ech_point_edp(p) / g.ranks, g.stride * g.ranks};
}

/* What the messages of a step can hide under, seconds that are left: dense and experts' state, shards
 * and their replicas spend the same time. */
typedef struct windows {
    double backward; /* of each micro-batch that is reduced */
    double forward;  /* of the next step's first micro-batch: gathers of what was updated */
} windows;

static windows windows_of(const step_state *s)
{
    const ech_rates *r = &s->pricer->rates;
    const double one = r->hides_dp ? r->dp_hidden * s->last_backward : 0;
    const double times = ech_point_reduces_each(s->pricer->job, s->point) ? s->micros : 1;
    return (windows){.backward = times * one, .forward = 0.5 * one};
}

/* Part of the messages hides, as long as there is a window. */
static double hide(step_state *s, ech_axis axis, double seconds, double *window)
{
    const double hidden = fmin(seconds, *window);
    const double exposed = seconds - hidden + s->pricer->rates.interference * hidden;
    *window -= hidden;
    s->out->hidden_s[axis] += hidden;
    s->out->exposed_s[axis] += exposed;
    return exposed;
}

/* One kind of parameters: who shares it, who has the same shard. */
typedef struct reduced {
    ech_axis axis;
    ech_group shards, replicas;
    double elems;
} reduced;

static double reduce(step_state *s, const reduced *of, windows *w)
{
    const ech_rates *r = &s->pricer->rates;
    const ech_point *p = s->point;
    const ech_group g = of->shards, o = of->replicas;
    const double q = of->elems * s->pricer->job->wire_bytes, weights = of->elems * r->weight_bytes;
    const double share = (g.ranks - 1) / g.ranks, buckets = r->habit->bucket_bytes;
    const double times = ech_point_reduces_each(s->pricer->job, p) ? s->micros : 1;
    if (of->elems <= 0)
        return 0;
    if (p->zero_stage == 0) {
        s->out->sent_bytes[of->axis] += 2 * q * share;
        return hide(s, of->axis,
                    ech_collective_buckets(r, ECH_COLLECTIVE_ALL_REDUCE, g, q, buckets),
                    &w->backward);
    }
    /* A turn moves all that a rank has: turns are not cut into buckets. */
    const double bucket = r->has_roots ? 0 : buckets;
    const ech_collective way = ech_step_shard_way(s);
    s->out->sent_bytes[of->axis] += (times * q + weights) * share;
    double sum =
        hide(s, of->axis, times * ech_collective_buckets(r, way, g, q, bucket), &w->backward) +
        hide(s, of->axis, ech_collective_buckets(r, way, g, weights, bucket), &w->forward);
    if (o.ranks > 1) {
        const double part = q / g.ranks;
        sum += hide(s, ECH_AXIS_HSDP,
                    ech_collective_buckets(r, ECH_COLLECTIVE_ALL_REDUCE, o, part, buckets),
                    &w->backward);
        s->out->sent_bytes[ECH_AXIS_HSDP] += 2 * part * (o.ranks - 1) / o.ranks;
    }
    return sum;
}

double ech_step_replicas(step_state *s)
{
    const step_params p = ech_step_params(s);
    const ech_shape *h = &s->blocks->shape;
    const reduced kinds[] = {{ECH_AXIS_DP, ech_group_of(s->point, ECH_AXIS_DP),
                              ech_group_of(s->point, ECH_AXIS_HSDP), p.dense},
                             {ECH_AXIS_EDP, ech_group_of(s->point, ECH_AXIS_EDP),
                              ech_step_expert_replicas(s->point), p.expert}};
    windows w = windows_of(s);
    double sum = 0;
    for (int k = 0; k < 2 && s->point->zero_stage < 3; k++)
        sum += reduce(s, &kinds[k], &w);
    if (h->tied > 0 && s->point->pp > 1) {
        const ech_group g = {2, ech_group_of(s->point, ECH_AXIS_PP).stride * (s->point->pp - 1)};
        const double bytes = h->tied * s->pricer->job->wire_bytes;
        const double t =
            ech_collective_seconds(&s->pricer->rates, ECH_COLLECTIVE_ALL_REDUCE, g, bytes);
        s->out->exposed_s[ECH_AXIS_TIED] += t;
        s->out->sent_bytes[ECH_AXIS_TIED] += bytes;
        sum += t;
    }
    return sum;
}

double ech_step_tail(step_state *s)
{
    const ech_rates *r = &s->pricer->rates;
    const ech_point *p = s->point;
    const step_params all = ech_step_params(s);
    const double shards = p->zero_stage > 0 ? (double)ech_point_shard_group(p) : 1;
    const double experts = p->zero_stage > 0 ? ech_point_expert_shards(p) : 1;
    const double elems = all.dense / shards + all.expert / experts;
    const double offload = ech_step_offload(s, elems);
    s->out->offload_s += offload;
    if (p->offload_optimizer == ECH_OFFLOAD_NONE)
        s->out->optimizer_s =
            (elems * r->habit->update_bytes * r->optimizer + (all.dense + all.expert) * 4) /
            r->memory_bytes_per_s;
    s->out->fixed_s = r->step_s + r->micro_s * s->micros;
    return offload + s->out->optimizer_s + s->out->fixed_s;
}
