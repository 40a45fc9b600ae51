/* Stage 3: units are gathered before they are used and their gradients scattered after. */
#include "price/step_private.h"

#include <math.h>

/* One virtual stage's parameters of one kind, and the group that they are sharded over. */
typedef struct unit_kind {
    ech_group group, replicas;
    double layers;    /* of the stage */
    double per_layer; /* elements */
    double ends;      /* elements of the embedding and the head */
    ech_axis axis;
} unit_kind;

/* Seconds of the messages of a kind. */
typedef struct unit_times {
    double gather, again, scatter; /* of a layer */
    double root, root_back;        /* of the ends */
} unit_times;

/* Work and messages at the same time: the longer, and each slows the other. */
static double both(const ech_rates *r, double work, double messages)
{
    return fmax(work, messages) + r->interference * fmin(work, messages);
}

/* Reductions of a micro-batch: each, or once a step. */
static double reductions(const step_state *s)
{
    return ech_point_reduces_each(s->pricer->job, s->point) ? 1 : 1 / s->micros;
}

static unit_times times_of(const step_state *s, const unit_kind *u)
{
    const ech_rates *r = &s->pricer->rates;
    const ech_collective way = ech_step_shard_way(s);
    const double w = r->weight_bytes, q = s->pricer->job->wire_bytes * s->trained.share;
    const double n = u->group.ranks, often = reductions(s);
    unit_times t = {.gather = ech_collective_seconds(r, way, u->group, u->per_layer * w),
                    .root = ech_collective_seconds(r, way, u->group, u->ends * w)};
    t.again = s->point->reshard_after_forward ? t.gather : 0;
    t.scatter =
        ech_collective_seconds(r, way, u->group, u->per_layer * q) +
        ech_collective_seconds(r, ECH_COLLECTIVE_ALL_REDUCE, u->replicas, u->per_layer * q / n);
    t.root_back =
        ech_collective_seconds(r, way, u->group, u->ends * q) +
        ech_collective_seconds(r, ECH_COLLECTIVE_ALL_REDUCE, u->replicas, u->ends * q / n);
    t.scatter *= often;
    t.root_back *= often;
    return t;
}

/* Sent by a rank of this stage in a step. */
static void sent_of(const step_state *s, const unit_kind *u, double *shard, double *replicas)
{
    const double w = s->pricer->rates.weight_bytes;
    const double q = s->pricer->job->wire_bytes * s->trained.share * reductions(s);
    const double elems = u->layers * u->per_layer + u->ends, n = u->group.ranks;
    const double gathers = s->point->reshard_after_forward ? 2 : 1;
    *shard += s->micros * elems * (gathers * w + q) * (n - 1) / n;
    *replicas += s->micros * 2 * elems * q / n * (u->replicas.ranks - 1) / u->replicas.ranks;
}

static void kinds_of(const step_state *s, int i, unit_kind kinds[2])
{
    const ech_shape *h = &s->blocks->shape;
    const ech_stage_shape *v = &s->pricer->stage[i];
    const double layers = v->dense + v->sparse;
    const double dense = v->dense * (h->layer[0].cut + h->layer[0].whole) +
                         v->sparse * (h->layer[1].cut + h->layer[1].whole);
    const double ends =
        (i == 0 ? ech_shape_sum(h->embedding) : 0) + (i == s->n - 1 ? ech_shape_sum(h->head) : 0);
    kinds[0] = (unit_kind){.group = ech_group_of(s->point, ECH_AXIS_DP),
                           .replicas = ech_group_of(s->point, ECH_AXIS_HSDP),
                           .layers = layers,
                           .per_layer = layers > 0 ? dense / layers : 0,
                           .ends = ends,
                           .axis = ECH_AXIS_DP};
    kinds[1] = (unit_kind){.group = ech_group_of(s->point, ECH_AXIS_EDP),
                           .replicas = ech_step_expert_replicas(s->point),
                           .layers = v->sparse,
                           .per_layer = h->layer[1].expert,
                           .axis = ECH_AXIS_EDP};
}

/* Lengthens one stage. */
static void stage_units(step_state *s, const unit_kind kinds[2], double *forward, double *backward)
{
    const ech_rates *r = &s->pricer->rates;
    const double layers = fmax(1, kinds[0].layers), q = s->pricer->job->wire_bytes;
    double gather = 0, back = 0, ends = 0, ends_back = 0, all = 0, elems = 0;
    for (int k = 0; k < 2; k++) {
        const unit_times t = times_of(s, &kinds[k]);
        const double part = kinds[k].layers / layers;
        gather += part * t.gather;
        back += part * (t.again + t.scatter);
        ends += t.root + t.gather; /* nothing comes before the first of them */
        ends_back += t.root_back + t.scatter;
        all += kinds[k].layers * (t.gather + t.again + t.scatter) + t.root + t.root_back;
        elems += kinds[k].layers * kinds[k].per_layer + kinds[k].ends;
    }
    /* Units are copied out of and into the flat tensors that messages have; gradients cast. */
    const double copies = elems * (10 + 2 * q) / r->memory_bytes_per_s;
    const double was = *forward + *backward;
    *forward = layers * both(r, *forward / layers, gather) + ends + copies / 3;
    *backward = layers * both(r, *backward / layers, back) + ends_back + copies * 2 / 3;
    const double more = *forward + *backward - was, times = s->micros / s->point->pp;
    s->out->exposed_s[ECH_AXIS_DP] += more * times;
    s->out->hidden_s[ECH_AXIS_DP] += fmax(0, all - more) * times;
}

void ech_step_units(step_state *s, double *forward, double *backward)
{
    const bool is_alone = ech_group_of(s->point, ECH_AXIS_DP).ranks <= 1 &&
                          ech_step_expert_replicas(s->point).ranks <= 1;
    double *sent[] = {&s->out->sent_bytes[ECH_AXIS_DP], &s->out->sent_bytes[ECH_AXIS_EDP],
                      &s->out->sent_bytes[ECH_AXIS_HSDP]};
    if (is_alone && ech_group_of(s->point, ECH_AXIS_EDP).ranks <= 1)
        return;
    for (int rank = 0; rank < s->point->pp; rank++) {
        double shard[2] = {0}, replicas[2] = {0};
        for (int i = rank; i < s->n; i++) {
            unit_kind kinds[2];
            if (s->pricer->stage[i].rank != rank)
                continue;
            kinds_of(s, i, kinds);
            stage_units(s, kinds, &forward[i], &backward[i]);
            for (int k = 0; k < 2; k++)
                sent_of(s, &kinds[k], &shard[k], &replicas[k]);
        }
        for (int k = 0; k < 2; k++)
            *sent[k] = fmax(*sent[k], shard[k]);
        *sent[2] = fmax(*sent[2], replicas[0] + replicas[1]);
    }
}
