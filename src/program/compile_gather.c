/* Parameters that are sharded over dp are gathered unit by unit before they are used, `prefetch`
 * units ahead, and freed after it (Zhao et al. 2023, arXiv:2304.11277, section 3). */
#include "program/compile_private.h"

#include <stdlib.h>

/* Where a unit's forward and backward of a micro-batch stand in the order; -1: nowhere. */
typedef struct places {
    int *at; /* [micros, units, 2] */
    int units;
} places;

static int *place_of(const places *p, int micro, int unit, bool is_backward)
{
    return &p->at[((size_t)micro * (size_t)p->units + (size_t)unit) * 2 + (is_backward ? 1 : 0)];
}

static ech_status find_places(const compiler *c, places *p)
{
    p->units = c->spec.block.canon->n_units;
    const size_t n = (size_t)c->micros * (size_t)p->units * 2;
    ECH_TRY(ech_calloc(n, sizeof *p->at, &p->at));
    for (size_t i = 0; i < n; i++)
        p->at[i] = -1;
    for (int i = 0; i < c->n_work; i++)
        if (c->order[i].kind != ECH_WORK_WEIGHT) /* which reads no weights */
            *place_of(p, c->order[i].micro, c->order[i].unit,
                      c->order[i].kind != ECH_WORK_FORWARD) = i;
    return ECH_OK;
}

static void add(compiler *c, int unit, int first, int last)
{
    c->gather[c->n_gathers++] = (gathering){.unit = unit, .first = first, .last = last, .slot = -1};
}

/* From its forward to its backward, or once for each.  The table that the head borrows stays to the
 * end of the head's forward, and comes back with the beginning of its backward. */
static void plan_unit(compiler *c, const places *p, int micro, int unit)
{
    const int head = p->units - 1;
    const bool is_tied = unit == 0 && c->spec.block.model->tie_embeddings && !c->plan.is_tied_apart;
    const int forward = *place_of(p, micro, unit, false);
    const int backward = *place_of(p, micro, unit, true);
    const int last_forward = is_tied ? *place_of(p, micro, head, false) : forward;
    const int first_backward = is_tied ? *place_of(p, micro, head, true) : backward;
    if (backward < 0) {
        add(c, unit, forward, last_forward);
    } else if (!c->spec.block.policy.reshards_after_forward) {
        add(c, unit, forward, backward);
    } else {
        add(c, unit, forward, last_forward);
        add(c, unit, first_backward, backward);
    }
}

static int cmp_first_use(const void *a, const void *b)
{
    const gathering *x = a;
    const gathering *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

ech_status compile_plan_gathers(compiler *c)
{
    places p = {0};
    if (!c->spec.block.form.shards_params)
        return ECH_OK;
    ECH_TRY(find_places(c, &p));
    const ech_status st =
        ech_calloc(2 * (size_t)p.units * (size_t)c->micros, sizeof *c->gather, &c->gather);
    for (int m = 0; m < c->micros && st >= 0; m++)
        for (int i = 0; i < ech_shard_unit_count(&c->plan); i++)
            plan_unit(c, &p, m, ech_shard_unit_at(&c->plan, i));
    if (st >= 0)
        qsort(c->gather, (size_t)c->n_gathers, sizeof *c->gather, cmp_first_use);
    free(p.at);
    return st;
}

static ech_status gather_block(compiler *c, int unit, ech_part part, bool is_wait, int *id)
{
    const ech_unit_kind kind = ech_canon_unit_kind(c->spec.block.canon, unit);
    int *cached = &c->b.gather[kind][part][is_wait];
    if (*cached < 0) {
        ech_block block;
        const ech_transfer t = {.part = part,
                                .elems = c->plan.unit[kind].part[part].elems,
                                .is_wait = is_wait,
                                .axis = ECH_AXIS_DP};
        ECH_TRY(ech_block_all_gather(&c->spec.block, &t, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, cached));
    }
    *id = *cached;
    return ECH_OK;
}

static ech_status start_part(compiler *c, gathering *g, ech_part part)
{
    int wait;
    ech_item it = ech_item_make(-1, c->segment);
    ECH_TRY(gather_block(c, g->unit, part, false, &it.block));
    ECH_TRY(gather_block(c, g->unit, part, true, &wait));
    it.layer =
        ech_canon_unit_kind(c->spec.block.canon, g->unit) == ECH_UNIT_LAYER ? g->unit - 1 : -1;
    it.bind[ECH_REGION_SHARD] = compile_in_slab(c, c->slots->params[part], g->unit, part, true);
    it.bind[ech_region_of_part(ECH_REGION_PARAM, part)] =
        (ech_view){g->slot, compile_unit_offset(c, g->unit, part)};
    ECH_TRY(compile_take_request(c, &it.request));
    ECH_TRY(compile_add_item(c, &it));
    it.block = wait;
    g->wait[g->n_waits++] = it;
    return ECH_OK;
}

static ech_status start(compiler *c, gathering *g)
{
    const ech_shard_unit *u = ech_shard_unit_of(&c->plan, g->unit);
    ECH_TRY(compile_add_transient(c, "gathered parameters", ECH_CLASS_BUFFERS,
                                  compile_unit_offset(c, g->unit, ECH_N_PARTS), &g->slot));
    for (int part = 0; part < ECH_N_PARTS; part++)
        if (u->part[part].elems)
            ECH_TRY(start_part(c, g, (ech_part)part));
    return ECH_OK;
}

static ech_status await(compiler *c, gathering *g)
{
    for (int k = 0; k < g->n_waits; k++) {
        ECH_TRY(compile_add_item(c, &g->wait[k]));
        compile_give_request(c, g->wait[k].request);
    }
    c->gathered[g->unit] = g->slot;
    return ECH_OK;
}

ech_status compile_open_work(compiler *c)
{
    const int before = c->begun;
    if (!c->spec.block.form.shards_params)
        return ECH_OK;
    while (c->begun < c->n_gathers && c->gather[c->begun].first <= c->at)
        c->begun++;
    for (;
         c->next_gather < c->n_gathers && c->next_gather < c->begun + c->spec.block.policy.prefetch;
         c->next_gather++)
        ECH_TRY(start(c, &c->gather[c->next_gather]));
    for (int i = before; i < c->begun; i++)
        ECH_TRY(await(c, &c->gather[i]));
    return ECH_OK;
}

/* A unit's parameters gathered for another micro-batch and still in use; -1: none. */
static int slot_in_use(const compiler *c, int unit)
{
    for (int i = c->first_open; i < c->begun; i++)
        if (c->gather[i].unit == unit && c->gather[i].last > c->at)
            return c->gather[i].slot;
    return -1;
}

void compile_close_work(compiler *c)
{
    for (int i = c->first_open; i < c->begun; i++)
        if (c->gather[i].last == c->at && c->gathered[c->gather[i].unit] == c->gather[i].slot)
            c->gathered[c->gather[i].unit] = slot_in_use(c, c->gather[i].unit);
    while (c->first_open < c->begun && c->gather[c->first_open].last <= c->at)
        c->first_open++;
    c->at++;
}
