#include "price/step.h"

#include "price/doubt.h"
#include "price/footprint.h" /* ECH_FOOTPRINT_STAGES */
#include "price/step_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ech_status ech_pricer_create(const ech_job *job, const struct ech_constants *constants,
                             ech_pricer **out)
{
    enum { KEPT = 1024 }; /* layouts: a search of one job asks for some hundreds */
    ech_pricer *p = calloc(1, sizeof(*p));
    ECH_CHECK(p != NULL, ECH_E_NOMEM, "pricer");
    p->stage = calloc(ECH_SHAPE_STAGES, sizeof(*p->stage));
    p->forward = calloc(ECH_SHAPE_STAGES, sizeof(*p->forward));
    p->backward = calloc(ECH_SHAPE_STAGES, sizeof(*p->backward));
    p->weight = calloc(ECH_SHAPE_STAGES, sizeof(*p->weight));
    const bool has_room =
        p->stage != NULL && p->forward != NULL && p->backward != NULL && p->weight != NULL;
    ech_status st = has_room ? ech_block_cache_create(KEPT, &p->cache)
                             : ECH_RAISE(ECH_E_NOMEM, "stages of a pricer");
    if (st >= 0)
        st = ech_compose_reserve(&p->room, ECH_FOOTPRINT_STAGES, 0); /* legal layouts: no more */
    if (st < 0) {
        ech_pricer_destroy(&p);
        return st;
    }
    ech_pricer_rebind(p, job, constants);
    *out = p;
    return ECH_OK;
}

void ech_pricer_rebind(ech_pricer *pricer, const ech_job *job,
                       const struct ech_constants *constants)
{
    pricer->job = job;
    ech_rates_of(job, constants != NULL ? constants : ech_constants_builtin(), &pricer->rates);
    pricer->model_flops = ech_model_flops_per_token(job->model, job->seq, true) * (double)job->seq *
                          (double)job->global_batch * ech_trained_flops_share(job);
    ech_block_cache_forget(pricer->cache);
}

void ech_pricer_destroy(ech_pricer **pricer)
{
    ech_pricer *p = *pricer;
    if (p == NULL)
        return;
    if (p->cache != NULL)
        ech_block_cache_destroy(&p->cache);
    free(p->stage);
    free(p->forward);
    free(p->backward);
    free(p->weight);
    ech_compose_fini(&p->room);
    free(p);
    *pricer = NULL;
}

/* --- stages --- */

static double exposed(const ech_block_price *b, int pass)
{
    return b->tp.exposed_s[pass] + b->cp.exposed_s[pass] + b->ep.exposed_s[pass];
}

static double hidden(const ech_block_price *b, int pass)
{
    return b->tp.hidden_s[pass] + b->cp.hidden_s[pass] + b->ep.hidden_s[pass];
}

void ech_step_add_blocks(const step_state *s, const ech_block_price *b, double count, double again,
                         step_stage *to)
{
    const double slow = s->pricer->rates.interference;
    const double work = b->work_s[ECH_PASS_INPUT] * s->trained.backward_share +
                        b->work_s[ECH_PASS_WEIGHT] * s->trained.weight_share;
    to->work += count * (b->work_s[ECH_PASS_FORWARD] + work);
    to->weight += count * b->work_s[ECH_PASS_WEIGHT] * s->trained.weight_share;
    to->again += again * b->again_s;
    to->forward += count * (b->work_s[ECH_PASS_FORWARD] + exposed(b, 0) + slow * hidden(b, 0));
    to->backward += count * (work + exposed(b, 1) + slow * hidden(b, 1)) +
                    again * (b->again_s + exposed(b, 2) + slow * hidden(b, 2));
}

double ech_step_again(const ech_point *p, const ech_stage_shape *v)
{
    const double layers = v->dense + v->sparse;
    if (p->recompute == 0)
        return 0;
    if ((p->recompute & ECH_RECOMPUTE_FULL) == 0 || p->recompute_layers <= 0)
        return 1;
    return layers > 0 ? fmin(1, p->recompute_layers / layers) : 0;
}

static step_stage stage_of(const step_state *s, int i)
{
    const ech_block_price *b = s->blocks->block;
    const ech_stage_shape *v = &s->pricer->stage[i];
    const double again = ech_step_again(s->point, v);
    step_stage sum = {0};
    ech_step_add_blocks(s, &b[ECH_BLOCK_DENSE], v->dense, v->dense * again, &sum);
    if (v->sparse > 0)
        ech_step_add_blocks(s, &b[ECH_BLOCK_SPARSE], v->sparse, v->sparse * again, &sum);
    if (i == 0)
        ech_step_add_blocks(s, &b[ECH_BLOCK_EMBEDDING], 1, 0, &sum);
    if (i == s->n - 1)
        ech_step_add_blocks(s, &b[ECH_BLOCK_HEAD], 1, 0, &sum);
    return sum;
}

/* Messages of one axis over a step, mean of ranks. */
static void add_axis(step_state *s, ech_axis axis, const ech_block_messages *m, double layers,
                     double again)
{
    ech_step_price *o = s->out;
    const double times = s->micros * layers / s->point->pp;
    const double hid = times * (m->hidden_s[0] + m->hidden_s[1] + again * m->hidden_s[2]);
    o->exposed_s[axis] += times * (m->exposed_s[0] + m->exposed_s[1] + again * m->exposed_s[2]) +
                          hid * s->pricer->rates.interference;
    o->hidden_s[axis] += hid;
}

/* --- the pipeline --- */

static bool is_same(const double *a, const double *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Ways to shard the same layout have the same stages, one after the other: what was composed last is
 * kept. */
static double compose(ech_pricer *p, const ech_compose_spec *spec, int n)
{
    step_kept *k = &p->kept;
    const double *now[3] = {p->forward, p->backward, p->weight};
    if (k->kind == spec->kind && k->ranks == spec->ranks && k->n == n &&
        k->micros == spec->micros && k->hop_s == spec->hop_s && is_same(k->stage[0], now[0], n) &&
        is_same(k->stage[1], now[1], n) && is_same(k->stage[2], now[2], n))
        return k->makespan_s;
    for (int i = 0; i < 3; i++)
        memcpy(k->stage[i], now[i], (size_t)n * sizeof *now[i]);
    k->kind = spec->kind;
    k->ranks = spec->ranks;
    k->n = n;
    k->micros = spec->micros;
    k->hop_s = spec->hop_s;
    k->makespan_s = ech_compose(spec, &p->room).makespan_s;
    return k->makespan_s;
}

/* Seconds from the first begin to the last end. */
static double pipeline(const step_state *s, ech_pricer *pricer, double hop)
{
    const ech_point *p = s->point;
    if (p->pp == 1) {
        double sum = 0;
        for (int i = 0; i < s->n; i++)
            sum += pricer->forward[i] + pricer->backward[i];
        return sum * s->micros;
    }
    const bool waits = !pricer->rates.hides_p2p; /* then the hop is in the stages' own time */
    const bool is_split = p->schedule == ECH_SCHEDULE_ZB_H1 || p->schedule == ECH_SCHEDULE_ZB_V;
    const ech_compose_spec spec = {.kind = p->schedule,
                                   .ranks = p->pp,
                                   .chunks = s->n / p->pp,
                                   .micros = (int64_t)s->micros,
                                   .forward = pricer->forward,
                                   .backward = pricer->backward,
                                   .weight = is_split ? pricer->weight : NULL,
                                   .hop_s = waits ? 0 : hop};
    return compose(pricer, &spec, s->n);
}

/* Work of the slowest pipeline rank, all micro-batches. */
static double busiest(const step_state *s)
{
    double most = 0;
    for (int rank = 0; rank < s->point->pp; rank++) {
        double sum = 0;
        for (int i = 0; i < s->n; i++)
            if (s->pricer->stage[i].rank == rank)
                sum += s->pricer->forward[i] + s->pricer->backward[i] + s->pricer->weight[i];
        most = fmax(most, sum);
    }
    return most * s->micros;
}

double ech_step_hop(const ech_pricer *pricer, const ech_point *p, const ech_blocks *b)
{
    const ech_rates *r = &pricer->rates;
    const double bytes = (double)b->shape.micro_tokens * (double)b->shape.hidden * r->act_bytes;
    if (p->pp == 1)
        return 0;
    /* Each rank of tp sends its part; where all need the whole it is gathered inside tp. */
    const double gather =
        p->sequence_parallel
            ? 0
            : ech_collective_seconds(r, ECH_COLLECTIVE_GATHER, ech_group_of(p, ECH_AXIS_TP), bytes);
    const double wait = r->hides_p2p ? 0 : r->wait_s;
    return wait + gather +
           ech_message_seconds(r, ech_group_of(p, ECH_AXIS_PP).stride, p->tp, bytes / p->tp);
}

static void stages(step_state *s, ech_pricer *pricer, double hop)
{
    const bool waits = !pricer->rates.hides_p2p && s->point->pp > 1;
    const bool is_split = s->point->pp > 1 && (s->point->schedule == ECH_SCHEDULE_ZB_H1 ||
                                               s->point->schedule == ECH_SCHEDULE_ZB_V);
    for (int i = 0; i < s->n; i++) {
        const step_stage v = stage_of(s, i);
        pricer->forward[i] = v.forward + (waits ? hop : 0);
        pricer->backward[i] = v.backward + (waits ? hop : 0);
        pricer->weight[i] = 0;
        if (is_split) { /* gradients of weights by themselves */
            pricer->weight[i] = v.weight;
            pricer->backward[i] -= v.weight;
        }
        s->out->compute_s += v.work * s->micros / s->point->pp;
        s->out->recompute_s += v.again * s->micros / s->point->pp;
    }
    /* In the steady part a micro-batch passes twice; where nothing hides that, every stage waits. */
    if (waits)
        s->out->exposed_s[ECH_AXIS_PP] += 2 * hop * s->micros * s->n / s->point->pp;
    if (s->point->offload_activations != ECH_OFFLOAD_NONE)
        ech_step_activations(s, pricer->forward, pricer->backward);
    if (s->point->zero_stage == 3)
        ech_step_units(s, pricer->forward, pricer->backward);
}

static void count_messages(step_state *s)
{
    const ech_block_price *b = s->blocks->block;
    double dense = 0, sparse = 0, repeated = 0;
    for (int i = 0; i < s->n; i++) {
        const ech_stage_shape *v = &s->pricer->stage[i];
        dense += v->dense;
        sparse += v->sparse;
        repeated += (v->dense + v->sparse) * ech_step_again(s->point, v);
    }
    const double again = dense + sparse > 0 ? repeated / (dense + sparse) : 0;
    for (int k = 0; k < 2; k++) {
        const double n = k == 0 ? dense : sparse;
        add_axis(s, ECH_AXIS_TP, &b[k].tp, n, again);
        add_axis(s, ECH_AXIS_CP, &b[k].cp, n, again);
        add_axis(s, ECH_AXIS_EP, &b[k].ep, n, again);
    }
    add_axis(s, ECH_AXIS_TP, &b[ECH_BLOCK_EMBEDDING].tp, 1, 0);
    add_axis(s, ECH_AXIS_TP, &b[ECH_BLOCK_HEAD].tp, 1, 0);
    double flops = 0, counted = 0;
    const double share[ECH_N_PASSES] = {[ECH_PASS_FORWARD] = 1,
                                        [ECH_PASS_INPUT] = s->trained.backward_share,
                                        [ECH_PASS_WEIGHT] = s->trained.weight_share};
    for (int k = 0; k < ECH_N_BLOCKS; k++) {
        const double n = k == ECH_BLOCK_DENSE ? dense : k == ECH_BLOCK_SPARSE ? sparse : 1;
        for (int pass = 0; pass < ECH_N_PASSES; pass++)
            flops += n * b[k].flops[pass] * share[pass];
        flops += n * again * b[k].again_flops;
        counted += n * again * b[k].again_counted;
    }
    const double times = s->micros * s->point->dp * s->point->cp * s->point->tp;
    s->out->hardware_flops = flops * times;
    s->out->again_flops = counted * times;
}

void ech_pricer_step(ech_pricer *pricer, const ech_point *point, ech_derivation *notes,
                     ech_step_price *out)
{
    const ech_rates *r = &pricer->rates;
    const ech_blocks *blocks = ech_block_cache_get(pricer->cache, r, pricer->job, point);
    step_state s = {.pricer = pricer,
                    .point = point,
                    .blocks = blocks,
                    .n = ech_shape_cut(pricer->job, point, pricer->stage),
                    .micros = (double)ech_point_micros(pricer->job, point),
                    .out = out};
    *out = (ech_step_price){.model_flops = pricer->model_flops,
                            .uncertainty = ech_doubt_within(ech_doubt_of(pricer->job))};
    ech_trained_of(pricer->job, point, &s.trained);
    const double hop = ech_step_hop(pricer, point, blocks);
    stages(&s, pricer, hop);
    count_messages(&s);
    ech_step_sent(&s);
    const double span = pipeline(&s, pricer, hop);
    s.last_backward = pricer->backward[s.n - 1] * (double)s.n / point->pp;
    const double replicas = ech_step_replicas(&s);
    const double tail = ech_step_tail(&s);
    const double total =
        (span + replicas + tail) * (1 + r->straggler * log2(fmax(1, (double)pricer->job->gpus)));
    out->fixed_s += total - (span + replicas + tail);
    out->step_s = total;
    double known =
        out->compute_s + out->recompute_s + out->optimizer_s + out->fixed_s + out->offload_s;
    for (int a = 0; a < ECH_N_AXES; a++)
        known += out->exposed_s[a];
    out->bubble_s = fabs(total - known) > 1e-12 * total ? total - known : 0; /* rounding */
    /* Messages that are started early still lengthen the trip down and up again: once in the ramps of
     * interleaved schedules, (p - 1) / p of the steps of the others. */
    if (r->hides_p2p && point->pp > 1) {
        const double p = point->pp;
        const double trips =
            point->schedule == ECH_SCHEDULE_INTERLEAVED ? p - 1 : s.micros * (p - 1) / p;
        const double waits = fmax(0, fmin(out->bubble_s, 2 * hop * trips));
        out->exposed_s[ECH_AXIS_PP] += waits;
        out->bubble_s -= waits;
    }
    if (notes) {
        const step_parts parts = {span, busiest(&s), hop, replicas};
        ech_step_explain(&s, &parts, notes);
    }
}
