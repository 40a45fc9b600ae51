/* The best layouts of a job of Echelon's, by the programs themselves. */
#include "base/checked.h"
#include "plan/own.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    OF_A_KIND = 8, /* fastest by formulas, of each mesh and schedule, that are compiled */
    SPARE = 3      /* sketches that may turn out too large */
};

typedef struct searching {
    const ech_search_spec *spec;
    const ech_own_ask *how;
    ech_own *own;         /* owned: of one candidate after the other */
    ech_plan *part;       /* owned: of one mesh and schedule */
    ech_candidate *best;  /* owned [room], in order */
    ech_candidate *front; /* owned [ECH_SEARCH_PARETO] */
    int n, room;
} searching;

/* --- one candidate --- */

/* As the search judges what fits. */
static bool does_fit(const ech_search_spec *spec, const ech_candidate *c)
{
    const double capacity = spec->job->cluster->device.usable_bytes * (1 - spec->headroom);
    return c->reserved_bytes <= capacity &&
           (c->fit == ECH_FIT_YES || (c->fit == ECH_FIT_EDGE && spec->wants_edge));
}

static ech_status price(searching *s, bool is_sketch, ech_candidate *c)
{
    const char *binding;
    const ech_own_spec ask = {.job = s->spec->job,
                              .point = &c->point,
                              .habits = s->how->habits,
                              .calibration = s->how->calibration,
                              .is_sketch = is_sketch};
    const double before_s = c->step.step_s;
    const ech_footprint *f = &s->own->memory;
    ECH_TRY(ech_own_answer(&ask, NULL, s->own));
    c->is_exact = s->own->is_exact;
    if (!c->is_exact)
        return ECH_OK;
    ech_own_price(s->own, &c->step);
    c->allocated_bytes = f->allocated_bytes;
    c->reserved_bytes = f->reserved_bytes;
    c->fit = ech_footprint_fit(s->spec->job, f, &binding);
    c->dollars_per_step *= c->step.step_s / before_s;
    return ECH_OK;
}

/* Faster first; ties: less memory; then as they came. */
static bool is_better(const ech_candidate *a, const ech_candidate *b)
{
    if (a->step.step_s != b->step.step_s)
        return a->step.step_s < b->step.step_s;
    return a->reserved_bytes < b->reserved_bytes;
}

static void keep(searching *s, const ech_candidate *c)
{
    int at = s->n;
    while (at > 0 && is_better(c, &s->best[at - 1]))
        at--;
    if (at == s->room)
        return;
    if (s->n < s->room)
        s->n++;
    for (int i = s->n - 1; i > at; i--)
        s->best[i] = s->best[i - 1];
    s->best[at] = *c;
}

/* --- kinds of layouts --- */

static bool is_pinned(const searching *s, ech_plan_dim dim)
{
    return s->spec->pinned >> dim & 1;
}

static void pin(ech_search_spec *spec, ech_plan_dim dim)
{
    spec->pinned |= UINT32_C(1) << dim;
}

/* What the engine has one value of, where it is not pinned to another. */
static void pin_built(const searching *s, ech_search_spec *spec)
{
    const ech_point one = ech_point_default();
    ech_point *p = &spec->pin;
    p->cp = is_pinned(s, ECH_DIM_CP) ? p->cp : one.cp;
    p->ep = is_pinned(s, ECH_DIM_EP) ? p->ep : one.ep;
    p->etp = is_pinned(s, ECH_DIM_ETP) ? p->etp : one.etp;
    if (!is_pinned(s, ECH_DIM_RECOMPUTE))
        p->recompute = 0;
    if (!is_pinned(s, ECH_DIM_OFFLOAD_OPTIMIZER))
        p->offload_optimizer = ECH_OFFLOAD_NONE;
    if (!is_pinned(s, ECH_DIM_OFFLOAD_PARAMS))
        p->offload_params = ECH_OFFLOAD_NONE;
    if (!is_pinned(s, ECH_DIM_OFFLOAD_ACTIVATIONS))
        p->offload_activations = ECH_OFFLOAD_NONE;
    for (int d = ECH_DIM_RECOMPUTE; d <= ECH_DIM_OFFLOAD_ACTIVATIONS; d++)
        pin(spec, (ech_plan_dim)d);
    pin(spec, ECH_DIM_CP);
    pin(spec, ECH_DIM_EP);
    pin(spec, ECH_DIM_ETP);
    if (s->how->calibration) { /* one machine: it makes no difference who is whose neighbour */
        p->order = is_pinned(s, ECH_DIM_ORDER) ? p->order : one.order;
        pin(spec, ECH_DIM_ORDER);
    }
}

/* Is it another one in other words: nothing to shard over, or ZB-V's two chunks said aloud. */
static bool is_double(const searching *s, const ech_point *p)
{
    const bool shards_alone = p->zero_stage > 0 && ech_point_shard_group(p) == 1;
    const bool says_chunks = p->schedule == ECH_SCHEDULE_ZB_V && p->vpp == 2;
    return (shards_alone && !is_pinned(s, ECH_DIM_ZERO)) ||
           (says_chunks && !is_pinned(s, ECH_DIM_VPP));
}

/* The few fastest of a kind by formulas, and that fit; then by their programs. */
static ech_status search_kind(searching *s, const ech_search_spec *spec, int few)
{
    const ech_status st = ech_plan_search(spec, s->part);
    if (st == ECH_E_ILLEGAL) {
        ech_error_clear();
        return ECH_OK;
    }
    ECH_TRY(st);
    int looked = 0;
    for (int i = 0; i < s->part->n_best && looked < few; i++) {
        ech_candidate c = s->part->best[i];
        if (is_double(s, &c.point))
            continue;
        ECH_TRY(price(s, true, &c));
        if (!c.is_exact || !does_fit(s->spec, &c))
            continue;
        keep(s, &c);
        looked++;
    }
    return ECH_OK;
}

static ech_status search_mesh(searching *s, ech_search_spec *spec)
{
    static const ech_schedule_kind kinds[] = {ECH_SCHEDULE_1F1B, ECH_SCHEDULE_GPIPE,
                                              ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_ZB_H1,
                                              ECH_SCHEDULE_ZB_V};
    if (spec->pin.pp == 1 || is_pinned(s, ECH_DIM_SCHEDULE))
        return search_kind(s, spec, OF_A_KIND);
    pin(spec, ECH_DIM_SCHEDULE);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        spec->pin.schedule = kinds[k];
        ECH_TRY(search_kind(s, spec, OF_A_KIND));
    }
    return ECH_OK;
}

static bool allows(const searching *s, ech_plan_dim dim, int64_t pinned, int64_t value)
{
    return !is_pinned(s, dim) || pinned == value;
}

static ech_status search_meshes(searching *s, const ech_search_spec *open)
{
    const ech_point *given = &s->spec->pin;
    const int64_t ranks = s->spec->job->gpus / open->pin.cp;
    for (int64_t tp = 1; tp <= ranks; tp++)
        for (int64_t pp = 1; pp <= ranks / tp && ranks % tp == 0; pp++) {
            ech_search_spec mesh = *open;
            const int64_t dp = ranks / tp / pp;
            if (ranks / tp % pp || !allows(s, ECH_DIM_TP, given->tp, tp) ||
                !allows(s, ECH_DIM_PP, given->pp, pp) || !allows(s, ECH_DIM_DP, given->dp, dp))
                continue;
            mesh.pin.tp = (int32_t)tp;
            mesh.pin.pp = (int32_t)pp;
            mesh.pin.dp = (int32_t)dp;
            pin(&mesh, ECH_DIM_TP);
            pin(&mesh, ECH_DIM_PP);
            pin(&mesh, ECH_DIM_DP);
            ECH_TRY(search_mesh(s, &mesh));
        }
    return ECH_OK;
}

/* Without measured costs times are the formulas' anyway, and what fits is all that programs decide: the
 * fastest of all do, unless none of them fits. */
static ech_status search_all(searching *s)
{
    ech_search_spec open = *s->spec;
    open.top = ECH_SEARCH_TOP;
    open.wants_edge = true; /* programs decide */
    open.may_use_fewer = false;
    pin_built(s, &open);
    if (!s->how->calibration)
        ECH_TRY(search_kind(s, &open, s->room));
    return s->n ? ECH_OK : search_meshes(s, &open);
}

/* --- the whole --- */

static bool is_same_point(const ech_point *a, const ech_point *b)
{
    ech_text x = {0};
    ech_text y = {0};
    ech_point_print(a, &x);
    ech_point_print(b, &y);
    const bool is = strcmp(ech_text_get(&x), ech_text_get(&y)) == 0;
    ech_text_fini(&x);
    ech_text_fini(&y);
    return is;
}

/* Sketches in order, once more with their arenas, until enough fit. */
static ech_status confirm(searching *s, ech_plan *plan)
{
    const ech_point before = plan->best[0].point;
    int kept = 0;
    for (int i = 0; i < s->n && kept < s->spec->top; i++) {
        ech_candidate c = s->best[i];
        ECH_TRY(price(s, false, &c));
        if (does_fit(s->spec, &c))
            plan->best[kept++] = c;
    }
    plan->n_best = kept ? kept : plan->n_best;
    if (kept && !is_same_point(&before, &plan->best[0].point))
        plan->n_neighbours = 0; /* they are another winner's */
    return ECH_OK;
}

/* --- the front and neighbours, by programs too --- */

static bool beats(const searching *s, const ech_candidate *a, const ech_candidate *b)
{
    const double step = s->spec->job->cluster->device.usable_bytes / ECH_SEARCH_MEMORY_STEPS;
    const double x = ceil(a->reserved_bytes / step);
    const double y = ceil(b->reserved_bytes / step);
    const bool is_as_good = a->gpus <= b->gpus && a->step.step_s <= b->step.step_s && x <= y &&
                            a->dollars_per_step <= b->dollars_per_step;
    return is_as_good && (a->gpus < b->gpus || a->step.step_s < b->step.step_s || x < y);
}

static bool has_point(const ech_plan *plan, const ech_candidate *c)
{
    for (int i = 0; i < plan->n_pareto; i++)
        if (plan->pareto[i].gpus == c->gpus && is_same_point(&plan->pareto[i].point, &c->point))
            return true;
    return false;
}

/* Members of the formulas' front as their programs have them, and the best: one layout has one number.
 * What then does not fit or is beaten goes. */
static ech_status settle_front(searching *s, ech_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n_pareto; i++) {
        ech_candidate c = plan->pareto[i];
        if (c.gpus == s->spec->job->gpus)
            ECH_TRY(price(s, false, &c));
        if (!c.is_exact || does_fit(s->spec, &c))
            plan->pareto[n++] = c;
    }
    plan->n_pareto = n;
    for (int i = 0; i < plan->n_best && plan->n_pareto < ECH_SEARCH_PARETO; i++)
        if (!has_point(plan, &plan->best[i]))
            plan->pareto[plan->n_pareto++] = plan->best[i];
    n = 0;
    for (int i = 0; i < plan->n_pareto; i++) {
        const ech_candidate c = plan->pareto[i];
        bool is_beaten = false;
        for (int k = 0; k < plan->n_pareto; k++)
            is_beaten |= beats(s, &plan->pareto[k], &c);
        s->front[n] = c;
        n += !is_beaten;
    }
    plan->n_pareto = 0;
    for (int i = 0; i < n; i++) { /* fastest first */
        int at = plan->n_pareto++;
        for (; at > 0 && is_better(&s->front[i], &plan->pareto[at - 1]); at--)
            plan->pareto[at] = plan->pareto[at - 1];
        plan->pareto[at] = s->front[i];
    }
    return ECH_OK;
}

/* Neighbours as their programs have them; those that lose for another reason by them than by formulas
 * are left out. */
static ech_status settle_neighbours(searching *s, ech_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n_neighbours; i++) {
        ech_neighbour x = plan->neighbour[i];
        ECH_TRY(price(s, false, &x.at));
        const bool is_told = !x.at.is_exact || x.fits == does_fit(s->spec, &x.at);
        x.by_s = x.at.step.step_s - plan->best[0].step.step_s;
        if (is_told && (!x.fits || x.by_s >= 0))
            plan->neighbour[n++] = x;
    }
    plan->n_neighbours = n;
    return ECH_OK;
}

static ech_status search_own(searching *s, ech_plan *plan)
{
    s->room = s->how->calibration ? 4 * s->spec->top : s->spec->top + SPARE;
    ECH_TRY(ech_calloc(1, sizeof *s->own, &s->own));
    ECH_TRY(ech_calloc(1, sizeof *s->part, &s->part));
    ECH_TRY(ech_calloc(ECH_SEARCH_PARETO, sizeof *s->front, &s->front));
    ECH_TRY(ech_calloc((size_t)s->room, sizeof *s->best, &s->best));
    ECH_TRY(search_all(s));
    ECH_TRY(confirm(s, plan));
    if (plan->n_best == 0 || !plan->best[0].is_exact)
        return ECH_OK;
    ECH_TRY(settle_front(s, plan));
    return settle_neighbours(s, plan);
}

ech_status ech_own_search(const ech_search_spec *spec, const ech_own_ask *how, ech_plan *plan)
{
    searching s = {.spec = spec, .how = how};
    const ech_job *job = spec->job;
    ECH_TRY(ech_plan_search(spec, plan));
    if (job->system != ECH_SYSTEM_ECHELON || job->cluster->device.kind != ECH_DEVICE_CPU ||
        job->precision != ECH_PRECISION_FP32)
        return ECH_OK;
    const ech_status st = search_own(&s, plan);
    free(s.own);
    free(s.part);
    free(s.front);
    free(s.best);
    return st;
}
