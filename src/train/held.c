#include "train/held.h"

#include <string.h>

const char *ech_held_class_name(ech_held_class what)
{
    static const char *const names[] = {"params", "grads", "m", "v"};
    return names[what];
}

/* Slot, and whether its slab is of flat ranges; and whether only this rank's range is valid. */
typedef struct slab {
    int slot;
    bool is_shares, is_own;
    int fold; /* elements of the slab for each of the part: 2 for m and v */
    int which;
} slab;

static slab slab_of(const ech_held *h, ech_held_class what, int part)
{
    const ech_state_form *f = &h->form;
    switch (what) {
    case ECH_HELD_PARAMS:
        return (slab){h->slots->params[part], f->shards_params, f->shards_params, 1, 0};
    case ECH_HELD_GRADS:
        return (slab){h->slots->grads[part], f->shards_grads, f->is_sharded, 1, 0};
    default:
        return (slab){h->slots->moments[part], f->is_sharded, f->is_sharded, 2,
                      what == ECH_HELD_V ? 1 : 0};
    }
}

typedef struct walk {
    const ech_held *h;
    int64_t coord[ECH_N_AXES];
    slab s;
    int unit;
    const ech_shard_part *part;
    int64_t unit_offset; /* of the part in a slab of whole parts */
    ech_held_visit visit;
    void *user;
} walk;

/* Where element `local` of the part lies: in units of elements from the slot's start. */
static int64_t place_of(const walk *w, int64_t local)
{
    const int64_t shards = w->h->plan->shards;
    const int64_t mine = w->coord[ECH_AXIS_DP] * w->part->shard;
    if (!w->s.is_shares)
        return w->s.fold * w->unit_offset + w->s.which * w->part->elems + local;
    return w->s.fold * (w->unit_offset / shards) + w->s.which * w->part->shard + local - mine;
}

/* Does no rank of a lower coordinate hold them: over dp each has its own, or the first has all. */
static bool is_first_of_data(const walk *w)
{
    return w->coord[ECH_AXIS_HSDP] == 0 && (w->s.is_own || w->coord[ECH_AXIS_DP] == 0);
}

/* A run of the local tensor, cut to this rank's flat range. */
static ech_status visit_run(const walk *w, const ech_param *param, const ech_shard_param *local,
                            const ech_shard_run *r)
{
    int64_t begin = local->offset + r->local;
    int64_t end = begin + r->elems;
    const int64_t first = begin;
    if (w->s.is_own) {
        const int64_t lo = w->coord[ECH_AXIS_DP] * w->part->shard;
        const int64_t hi = lo + w->part->shard;
        begin = begin > lo ? begin : lo;
        end = end < hi ? end : hi;
    }
    if (begin >= end)
        return ECH_OK;
    unsigned char *base = w->h->engine ? ech_engine_state(w->h->engine, w->s.slot) : NULL;
    const ech_held_run run = {
        .param = param,
        .first = r->canonical + begin - first,
        .elems = end - begin,
        .data = base ? base + (size_t)place_of(w, begin) * ech_dtype_bytes(w->h->real) : NULL,
        .is_first = r->is_first && !local->is_copy && is_first_of_data(w)};
    return w->visit(w->user, &run);
}

/* The canonical tensor; tensors of like units come in one order, and a copy behind them. */
static const ech_param *canonical(const walk *w, const ech_shard_param *p, int k)
{
    const ech_canon *c = w->h->canon;
    return &c->param[p->is_copy ? p->param : c->unit_first[w->unit] + k];
}

static ech_status visit_unit(walk *w, ech_held_class what)
{
    const ech_shard_plan *plan = w->h->plan;
    const ech_shard_unit *u = ech_shard_unit_of(plan, w->unit);
    for (int k = 0; k < u->n; k++) {
        const ech_shard_param *p = &plan->param[u->first + k];
        w->s = slab_of(w->h, what, (int)p->part);
        w->part = &u->part[p->part];
        w->unit_offset = ech_shard_unit_offset(plan, w->unit, p->part);
        for (int64_t i = 0; i < ech_shard_run_count(plan, p) && w->s.slot >= 0; i++) {
            const ech_shard_run r = ech_shard_run_get(plan, p, (int)w->coord[ECH_AXIS_TP], i);
            ECH_TRY(visit_run(w, canonical(w, p, k), p, &r));
        }
    }
    return ECH_OK;
}

ech_status ech_held_each(const ech_held *h, ech_held_class what, ech_held_visit visit, void *user)
{
    walk w = {.h = h, .visit = visit, .user = user};
    ech_layout_coords(h->layout, h->rank, w.coord);
    for (int i = 0; i < ech_shard_unit_count(h->plan); i++) {
        w.unit = ech_shard_unit_at(h->plan, i);
        ECH_TRY(visit_unit(&w, what));
    }
    return ECH_OK;
}

bool ech_held_range_get(const ech_held *h, ech_held_class what, int unit, ech_part part,
                        ech_held_range *out)
{
    walk w = {.h = h, .s = slab_of(h, what, (int)part), .unit = unit};
    w.part = &ech_shard_unit_of(h->plan, unit)->part[part];
    if (w.s.slot < 0 || w.part->elems == 0 || !ech_shard_has_unit(h->plan, unit))
        return false;
    ech_layout_coords(h->layout, h->rank, w.coord);
    w.unit_offset = ech_shard_unit_offset(h->plan, unit, part);
    *out = (ech_held_range){.n = w.part->elems, .is_own = w.s.is_own};
    if (w.s.is_own) {
        out->first = w.coord[ECH_AXIS_DP] * w.part->shard;
        out->n = w.part->shard;
    }
    unsigned char *base = h->engine ? ech_engine_state(h->engine, w.s.slot) : NULL;
    if (base)
        out->data = base + (size_t)place_of(&w, out->first) * ech_dtype_bytes(h->real);
    return true;
}

typedef struct copying {
    unsigned char *to;
    const unsigned char *from;
    int64_t from_elem; /* of the model, at `from` */
    int unit;          /* whose values those are; -1: of all */
    size_t real;
    size_t bytes;
} copying;

static ech_status take_run(void *user, const ech_held_run *r)
{
    const copying *c = user;
    if (c->unit >= 0 && r->param->unit != c->unit)
        return ECH_OK;
    memcpy(r->data, c->from + (size_t)(r->param->offset + r->first - c->from_elem) * c->real,
           (size_t)r->elems * c->real);
    return ECH_OK;
}

static ech_status put_run(void *user, const ech_held_run *r)
{
    const copying *c = user;
    memcpy(c->to + (size_t)(r->param->offset + r->first) * c->real, r->data,
           (size_t)r->elems * c->real);
    return ECH_OK;
}

static ech_status count_run(void *user, const ech_held_run *r)
{
    copying *c = user;
    c->bytes += r->is_first ? (size_t)r->elems * c->real : 0;
    return ECH_OK;
}

/* Visits that cannot fail. */
static void each(const ech_held *h, ech_held_class what, ech_held_visit visit, copying *c)
{
    const ech_status st = ech_held_each(h, what, visit, c);
    ECH_ASSERT(st == ECH_OK);
}

void ech_held_take(const ech_held *h, ech_held_class what, const void *canonical)
{
    copying c = {.from = canonical, .unit = -1, .real = ech_dtype_bytes(h->real)};
    each(h, what, take_run, &c);
}

void ech_held_take_unit(const ech_held *h, ech_held_class what, int unit, const void *values)
{
    copying c = {.from = values,
                 .from_elem = h->canon->unit_offset[unit],
                 .unit = unit,
                 .real = ech_dtype_bytes(h->real)};
    const int head = h->canon->n_units - 1;
    const int units[2] = {unit, unit == 0 && h->plan->is_tied_apart ? head : unit};
    walk w = {.h = h, .visit = take_run, .user = &c};
    ech_layout_coords(h->layout, h->rank, w.coord);
    for (int k = 0; k < 2; k++) {
        w.unit = units[k];
        if (!ech_shard_has_unit(h->plan, w.unit) || (k && units[1] == units[0]))
            continue;
        const ech_status st = visit_unit(&w, what);
        ECH_ASSERT(st == ECH_OK);
    }
}

void ech_held_put(const ech_held *h, ech_held_class what, void *canonical)
{
    copying c = {.to = canonical, .real = ech_dtype_bytes(h->real)};
    each(h, what, put_run, &c);
}

size_t ech_held_first_bytes(const ech_held *h, ech_held_class what)
{
    copying c = {.real = ech_dtype_bytes(h->real)};
    each(h, what, count_run, &c);
    return c.bytes;
}

void ech_held_clear(const ech_held *h, ech_held_class what)
{
    const int64_t shards = h->plan->shards;
    for (int part = 0; part < ECH_N_PARTS; part++) {
        const slab s = slab_of(h, what, part);
        const int64_t elems = h->plan->elems[part] / (s.is_shares ? shards : 1);
        if (s.slot >= 0) /* m and v lie together and are cleared together */
            memset(ech_engine_state(h->engine, s.slot), 0,
                   (size_t)(s.fold * elems) * ech_dtype_bytes(h->real));
    }
}
