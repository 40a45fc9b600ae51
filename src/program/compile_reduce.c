/* Gradients: summed over the data parallel ranks, whole in buckets or into flat ranges, then over
 * replicas of the shard group, then over tp where a part's gradient is partial there.  Started as
 * soon as the last writer is done, so that it runs under the backward of the layers before it; at
 * most ECH_REDUCE_WINDOW move at once, since each holds its staging. */
#include "program/compile_private.h"

#include <stdio.h>

/* --- blocks --- */

static const char *unit_name(const ech_canon *canon, int unit, char *buf, size_t n)
{
    if (unit > 0 && unit < canon->n_units - 1)
        (void)snprintf(buf, n, "layer %d", unit - 1);
    else
        (void)snprintf(buf, n, "%s", unit ? "head" : "embedding");
    return buf;
}

/* "all-reduce of layer 3..head: start": a bucket is no layer's alone, so messages name its ends. */
static void name_bucket(const ech_canon *canon, const transfer *t, bool is_wait, ech_block *block)
{
    char a[24];
    char b[24];
    (void)snprintf(block->name, sizeof block->name, "all-reduce of %s%s%s: %s",
                   unit_name(canon, t->lo, a, sizeof a), t->lo == t->hi ? "" : "..",
                   t->lo == t->hi ? "" : unit_name(canon, t->hi, b, sizeof b),
                   is_wait ? "wait" : "start");
}

static int64_t elems_of(const compiler *c, const transfer *t)
{
    return ech_shard_unit_offset(&c->plan, t->hi + 1, t->part) -
           ech_shard_unit_offset(&c->plan, t->lo, t->part);
}

static int *cached_block(compiler *c, const transfer *t, bool is_wait)
{
    const ech_unit_kind kind = ech_canon_unit_kind(c->spec.block.canon, t->lo);
    switch (t->kind) {
    case MOVE_SCATTER:
        return &c->b.scatter[kind][t->part][is_wait];
    case MOVE_SUM:
        return &c->b.sum[kind][t->part][t->axis == ECH_AXIS_HSDP ? 0
                                        : t->axis == ECH_AXIS_TP ? 1
                                                                 : 2][is_wait];
    case MOVE_GATHER:
        return &c->b.gather[kind][t->part][is_wait];
    case MOVE_SUM_BUCKET:
        return NULL;
    }
    return NULL;
}

static ech_status make_block(compiler *c, const transfer *t, bool is_wait, ech_block *block)
{
    const ech_block_spec *s = &c->spec.block;
    const ech_transfer spec = {.part = t->part,
                               .elems = elems_of(c, t),
                               .is_wait = is_wait,
                               .axis = t->axis,
                               .done = t->done,
                               .is_share = t->kind == MOVE_SUM};
    switch (t->kind) {
    case MOVE_SCATTER:
        return ech_block_reduce_scatter(s, &spec, block);
    case MOVE_GATHER:
        return ech_block_all_gather(s, &spec, block);
    case MOVE_SUM:
    case MOVE_SUM_BUCKET:
        return ech_block_all_reduce(s, &spec, block);
    }
    return ECH_OK;
}

static ech_status block_of(compiler *c, const transfer *t, bool is_wait, int *id)
{
    int *cached = cached_block(c, t, is_wait);
    ech_block block;
    if (cached && *cached >= 0) {
        *id = *cached;
        return ECH_OK;
    }
    ECH_TRY(make_block(c, t, is_wait, &block));
    if (!cached)
        name_bucket(c->spec.block.canon, t, is_wait, &block);
    ECH_TRY(ech_program_add_block(c->p, &block, id));
    if (cached)
        *cached = *id;
    return ECH_OK;
}

/* --- binding --- */

static ech_status bind(compiler *c, const transfer *t, ech_item *it)
{
    const ech_state_form *form = &c->spec.block.form;
    const int slab = c->slots->grads[t->part];
    const size_t staging = compile_needs(c, it->block, ECH_REGION_OUT);
    if (form->shards_grads) {
        it->bind[ech_region_of_part(ECH_REGION_GRAD, t->part)] = (ech_view){
            *compile_whole_grads(c, t->lo, t->micro), compile_unit_offset(c, t->lo, t->part)};
        it->bind[ECH_REGION_SHARD] = t->landing >= 0
                                         ? (ech_view){t->landing, 0}
                                         : compile_in_slab(c, slab, t->lo, t->part, true);
    } else {
        it->bind[ech_region_of_part(ECH_REGION_GRAD, t->part)] =
            compile_in_slab(c, slab, t->lo, t->part, false);
    }
    it->bind[ech_region_of_part(ECH_REGION_PARAM, t->part)] =
        compile_in_slab(c, c->slots->params[t->part], t->lo, t->part, form->shards_params);
    if (staging) {
        int id;
        ECH_TRY(compile_add_transient(c, "staging", ECH_CLASS_BUFFERS, staging, &id));
        it->bind[ECH_REGION_OUT] = (ech_view){id, 0};
    }
    return ECH_OK;
}

/* --- moving --- */

static ech_status await_oldest(compiler *c);

static ech_status push(compiler *c, transfer *t)
{
    int wait;
    while (c->n_moving - c->first_moving >= ECH_REDUCE_WINDOW)
        ECH_TRY(await_oldest(c));
    ech_item it = ech_item_make(-1, c->segment);
    ECH_TRY(block_of(c, t, false, &it.block));
    ECH_TRY(block_of(c, t, true, &wait));
    it.layer = t->lo == t->hi && ech_canon_unit_kind(c->spec.block.canon, t->lo) == ECH_UNIT_LAYER
                   ? t->lo - 1
                   : -1;
    ECH_TRY(bind(c, t, &it));
    ECH_TRY(compile_take_request(c, &it.request));
    ECH_TRY(compile_add_item(c, &it));
    it.block = wait;
    t->wait = it;
    ECH_TRY(ech_grow(&c->moving, (size_t)c->n_moving, &c->moving_capacity, sizeof *c->moving));
    c->moving[c->n_moving++] = *t;
    return ECH_OK;
}

static ech_status add_landed(compiler *c, const transfer *t)
{
    const ech_unit_kind kind = ech_canon_unit_kind(c->spec.block.canon, t->lo);
    int *id = &c->b.add[kind][t->part];
    if (*id < 0) {
        ech_block block;
        const ech_transfer spec = {.part = t->part, .elems = elems_of(c, t)};
        ECH_TRY(ech_block_add_share(&c->spec.block, &spec, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, id));
    }
    ech_item it = ech_item_make(*id, c->segment);
    it.layer = t->wait.layer;
    it.bind[ECH_REGION_SHARD] = compile_in_slab(c, c->slots->grads[t->part], t->lo, t->part, true);
    it.bind[ECH_REGION_IN] = (ech_view){t->landing, 0};
    return compile_add_item(c, &it);
}

/* Start a sum over an axis.  First and last stage come to the table's at different times, each
 * needing the other's messages before: so it stands behind all of them. */
static ech_status start_sum(compiler *c, transfer *t)
{
    if (t->axis != ECH_AXIS_TIED || c->segment != ECH_SEGMENT_ACCUMULATE)
        return push(c, t);
    ECH_ASSERT(!c->has_tied);
    c->tied = *t;
    c->has_tied = true;
    return ECH_OK;
}

static ech_status follow(compiler *c, const transfer *t)
{
    transfer next = *t;
    next.done = t->done | ech_axis_bit(t->axis);
    next.landing = -1;
    if (t->kind == MOVE_GATHER || !t->is_last ||
        !ech_grad_next_axis(&c->spec.block.layout, t->part, next.done, &next.axis))
        return ECH_OK;
    next.kind = t->kind == MOVE_SCATTER ? MOVE_SUM : t->kind;
    return start_sum(c, &next);
}

static ech_status await_oldest(compiler *c)
{
    const transfer t = c->moving[c->first_moving++];
    ECH_TRY(compile_add_item(c, &t.wait));
    compile_give_request(c, t.wait.request);
    if (t.kind == MOVE_SCATTER && t.landing >= 0)
        ECH_TRY(add_landed(c, &t));
    return follow(c, &t);
}

ech_status compile_await_all(compiler *c)
{
    while (c->first_moving < c->n_moving)
        ECH_TRY(await_oldest(c));
    if (!c->has_tied)
        return ECH_OK;
    c->has_tied = false;
    ECH_TRY(push(c, &c->tied));
    return await_oldest(c);
}

/* --- what is reduced when --- */

ech_status compile_open_grads(compiler *c, int unit, int micro)
{
    const ech_unit_kind kind = ech_canon_unit_kind(c->spec.block.canon, unit);
    int *id = &c->b.zero[kind];
    int *slot = compile_whole_grads(c, unit, micro);
    if (!c->spec.block.form.shards_grads || *slot >= 0)
        return ECH_OK;
    ECH_TRY(compile_add_transient(c, "whole gradients", ECH_CLASS_BUFFERS,
                                  compile_unit_offset(c, unit, ECH_N_PARTS), slot));
    if (*id < 0) {
        ech_block block;
        ECH_TRY(ech_block_zero_grads(&c->spec.block, unit, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, id));
    }
    ech_item it = ech_item_make(*id, c->segment);
    it.layer = kind == ECH_UNIT_LAYER ? unit - 1 : -1;
    it.micro = micro;
    for (int part = 0; part < ECH_N_PARTS; part++)
        it.bind[ech_region_of_part(ECH_REGION_GRAD, (ech_part)part)] =
            (ech_view){*slot, compile_unit_offset(c, unit, (ech_part)part)};
    return compile_add_item(c, &it);
}

/* Copies of key/value heads first: flat ranges over dp do not keep them together. */
static ech_status sum_shared_heads(compiler *c, int unit, int micro)
{
    if (c->spec.block.layout.degree[ECH_AXIS_KV] == 1 ||
        ech_canon_unit_kind(c->spec.block.canon, unit) != ECH_UNIT_LAYER)
        return ECH_OK;
    if (c->b.kv_sum < 0) {
        ech_block block;
        ECH_TRY(ech_block_kv_sum(&c->spec.block, &block));
        ECH_TRY(ech_program_add_block(c->p, &block, &c->b.kv_sum));
    }
    ech_item it = ech_item_make(c->b.kv_sum, c->segment);
    it.layer = unit - 1;
    it.micro = c->spec.block.form.shards_grads ? micro : -1;
    ECH_TRY(compile_bind_model(c, &it, unit));
    return compile_add_item(c, &it);
}

static ech_status scatter_unit(compiler *c, int unit, int micro, bool is_last)
{
    const ech_shard_unit *u = ech_shard_unit_of(&c->plan, unit);
    const bool is_first = c->n_scattered[unit]++ == 0;
    for (int part = 0; part < ECH_N_PARTS; part++) {
        transfer t = {.kind = MOVE_SCATTER,
                      .part = (ech_part)part,
                      .lo = unit,
                      .hi = unit,
                      .micro = micro,
                      .axis = ECH_AXIS_DP,
                      .is_last = is_last,
                      .landing = -1};
        if (!u->part[part].elems)
            continue;
        if (c->spec.block.form.shards_grads && !is_first)
            ECH_TRY(compile_add_transient(
                c, "gradients of a micro-batch", ECH_CLASS_BUFFERS,
                (size_t)u->part[part].shard * ech_dtype_bytes(c->spec.block.real), &t.landing));
        ECH_TRY(push(c, &t));
    }
    return ECH_OK;
}

/* The next unit down is complete: close the buckets that are full, and all at the lowest. */
static ech_status sum_in_buckets(compiler *c, int unit, bool is_lowest)
{
    for (int part = 0; part < ECH_N_PARTS; part++) {
        if (c->bucket_end[part] < 0)
            c->bucket_end[part] = unit;
        transfer t = {.kind = MOVE_SUM_BUCKET,
                      .part = (ech_part)part,
                      .lo = unit,
                      .hi = c->bucket_end[part],
                      .is_last = true,
                      .landing = -1};
        const int64_t elems = elems_of(c, &t);
        const int64_t bytes = elems * (int64_t)ech_dtype_bytes(c->spec.block.real);
        if (!is_lowest && bytes < c->spec.bucket_bytes)
            continue;
        if (elems && ech_grad_next_axis(&c->spec.block.layout, t.part, 0, &t.axis))
            ECH_TRY(start_sum(c, &t));
        c->bucket_end[part] = -1;
    }
    return ECH_OK;
}

/* From the last unit down, each part by itself, whole units: in whatever order they are done. */
static ech_status sum_complete(compiler *c)
{
    const int n = ech_shard_unit_count(&c->plan);
    while (c->n_bucketed < n) {
        const int unit = ech_shard_unit_at(&c->plan, n - 1 - c->n_bucketed);
        if (!c->is_complete[unit])
            return ECH_OK;
        c->n_bucketed++;
        ECH_TRY(sum_in_buckets(c, unit, c->n_bucketed == n));
    }
    return ECH_OK;
}

/* A unit's gradients are complete (is_last), or those of a micro-batch are. */
static ech_status reduce_unit(compiler *c, int unit, int micro, bool is_last)
{
    const ech_state_form *form = &c->spec.block.form;
    ECH_TRY(sum_shared_heads(c, unit, micro));
    c->is_complete[unit] = is_last;
    return form->is_sharded ? scatter_unit(c, unit, micro, is_last) : sum_complete(c);
}

ech_status compile_reduce_task(compiler *c, const task *t)
{
    if (t->own != ENDS_NOTHING)
        ECH_TRY(reduce_unit(c, t->unit, t->micro, t->own == ENDS_STEP));
    if (t->table != ENDS_NOTHING)
        ECH_TRY(reduce_unit(c, 0, t->micro, t->table == ENDS_STEP));
    return ECH_OK;
}

ech_status compile_gather_updated(compiler *c, int unit)
{
    const ech_state_form *form = &c->spec.block.form;
    const ech_shard_unit *u = ech_shard_unit_of(&c->plan, unit);
    for (int part = 0; part < ECH_N_PARTS && form->is_sharded && !form->shards_params; part++) {
        transfer t = {.kind = MOVE_GATHER,
                      .part = (ech_part)part,
                      .lo = unit,
                      .hi = unit,
                      .axis = ECH_AXIS_DP,
                      .landing = -1};
        if (u->part[part].elems)
            ECH_TRY(push(c, &t));
    }
    return ECH_OK;
}
