/* Parameters that are sharded over dp are gathered unit by unit before they are used, `prefetch`
 * units ahead, and freed after it (Zhao et al. 2023, arXiv:2304.11277, section 3). */
#include "program/compile_private.h"

/* Steps of a run of uses: forward of unit u is step u, its backward 2 U - 1 - u, after those of the
 * micro-batches before. */
static int first_step(const compiler *c, int micro, bool is_backward, bool trains)
{
    const int units = c->spec.block.canon->n_units;
    if (!trains)
        return micro * units;
    if (!c->spec.all_forward_first)
        return (2 * micro + (is_backward ? 1 : 0)) * units;
    return (micro + (is_backward ? c->spec.micro_batches : 0)) * units;
}

static void add(compiler *c, int unit, int first, int last)
{
    int i = c->n_gathers++;
    for (; i > 0 && c->gather[i - 1].first > first; i--)
        c->gather[i] = c->gather[i - 1];
    c->gather[i] = (gathering){.unit = unit, .first = first, .last = last, .slot = -1};
}

/* From its forward to its backward, or once for each.  The table that the head borrows stays to the
 * end of the forward, and comes back with the beginning of the backward. */
static void plan_unit(compiler *c, int micro, int unit, bool trains)
{
    const int units = c->spec.block.canon->n_units;
    const bool is_tied = unit == 0 && c->spec.block.model->tie_embeddings;
    const int forward = first_step(c, micro, false, trains);
    const int backward = first_step(c, micro, true, trains);
    const int last_forward = forward + (is_tied ? units - 1 : unit);
    const int last_backward = backward + units - 1 - unit;
    if (!trains)
        add(c, unit, forward + unit, last_forward);
    else if (!c->spec.block.policy.reshards_after_forward)
        add(c, unit, forward + unit, last_backward);
    else {
        add(c, unit, forward + unit, last_forward);
        add(c, unit, is_tied ? backward : last_backward, last_backward);
    }
}

ech_status compile_plan_gathers(compiler *c, bool trains)
{
    const int units = c->spec.block.canon->n_units;
    if (!c->spec.block.form.shards_params)
        return ECH_OK;
    ECH_TRY(ech_calloc(2 * (size_t)units * (size_t)c->spec.micro_batches, sizeof *c->gather,
                       &c->gather));
    for (int m = 0; m < c->spec.micro_batches; m++)
        for (int u = 0; u < units; u++)
            plan_unit(c, m, u, trains);
    return ECH_OK;
}

static ech_status gather_block(compiler *c, int unit, ech_part part, bool is_wait, int *id)
{
    const int kind = compile_unit_kind(c, unit);
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
    it.layer = compile_unit_kind(c, g->unit) == 1 ? g->unit - 1 : -1;
    it.bind[ECH_REGION_SHARD] = compile_in_slab(c, c->slots->params[part], g->unit, part, true);
    it.bind[(int)ECH_REGION_PARAM + (int)part] =
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

ech_status compile_open_step(compiler *c)
{
    const int before = c->begun;
    if (!c->spec.block.form.shards_params)
        return ECH_OK;
    while (c->begun < c->n_gathers && c->gather[c->begun].first <= c->step)
        c->begun++;
    for (;
         c->next_gather < c->n_gathers && c->next_gather < c->begun + c->spec.block.policy.prefetch;
         c->next_gather++)
        ECH_TRY(start(c, &c->gather[c->next_gather]));
    for (int i = before; i < c->begun; i++)
        ECH_TRY(await(c, &c->gather[i]));
    return ECH_OK;
}

void compile_close_step(compiler *c)
{
    for (int i = c->first_open; i < c->begun; i++)
        if (c->gather[i].last == c->step && c->gathered[c->gather[i].unit] == c->gather[i].slot)
            c->gathered[c->gather[i].unit] = -1; /* else gathered anew since, and still in use */
    while (c->first_open < c->begun && c->gather[c->first_open].last <= c->step)
        c->first_open++;
    c->step++;
}
