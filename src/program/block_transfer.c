/* Flat vectors of state, and the transfers that sum, deal out and gather them. */
#include "program/block_state.h"

#include <stdio.h>

unsigned ech_axes_of_gradients(void)
{
    return ech_axis_bit(ECH_AXIS_DP) | ech_axis_bit(ECH_AXIS_HSDP) | ech_axis_bit(ECH_AXIS_TP) |
           ech_axis_bit(ECH_AXIS_TIED);
}

bool ech_grad_next_axis(const ech_layout *l, ech_part part, unsigned done, ech_axis *axis)
{
    static const ech_axis chain[] = {ECH_AXIS_DP, ECH_AXIS_HSDP, ECH_AXIS_TP, ECH_AXIS_TIED};
    static const unsigned only[ECH_N_AXES] = {
        [ECH_AXIS_TP] = 1u << ECH_PART_SUMMED, [ECH_AXIS_TIED] = 1u << ECH_PART_TIED};
    for (int k = 0; k < 4; k++) {
        const bool is_partial = !only[chain[k]] || only[chain[k]] & (1u << part);
        if (done & ech_axis_bit(chain[k]) || !is_partial || l->degree[chain[k]] == 1)
            continue;
        *axis = chain[k];
        return true;
    }
    return false;
}

/* The tied table is the same on both its stages, and so is its gradient when it has been summed. */
static ech_placement over_tp(const ech_block_spec *s, ech_part part, ech_place summed)
{
    ech_placement p = ech_stage_placement(&s->layout);
    if (part == ECH_PART_TIED)
        p.over[ECH_AXIS_TIED] = ech_place_of(ECH_PLACE_INVARIANT);
    if (s->layout.degree[ECH_AXIS_TP] == 1)
        return p;
    if (part == ECH_PART_CUT || part == ECH_PART_TIED)
        p.over[ECH_AXIS_TP] = ech_place_sharded(0, ECH_MAP_SLICES);
    if (part == ECH_PART_SUMMED)
        p.over[ECH_AXIS_TP] = summed;
    return p;
}

ech_placement ech_grad_place(const ech_block_spec *s, ech_part part, unsigned done)
{
    const ech_place partial = ech_place_of(ECH_PLACE_PARTIAL);
    const ech_place whole = ech_place_of(ECH_PLACE_INVARIANT);
    ech_placement p = over_tp(s, part, done & ech_axis_bit(ECH_AXIS_TP) ? whole : partial);
    if (s->layout.degree[ECH_AXIS_DP] > 1)
        p.over[ECH_AXIS_DP] = !(done & ech_axis_bit(ECH_AXIS_DP)) ? partial
                              : s->form.is_sharded ? ech_place_sharded(0, ECH_MAP_FLAT)
                                                   : whole;
    if (s->layout.degree[ECH_AXIS_HSDP] > 1 && !(done & ech_axis_bit(ECH_AXIS_HSDP)))
        p.over[ECH_AXIS_HSDP] = partial;
    if (part == ECH_PART_TIED && s->layout.degree[ECH_AXIS_TIED] > 1 &&
        !(done & ech_axis_bit(ECH_AXIS_TIED)))
        p.over[ECH_AXIS_TIED] = ech_place_of(ECH_PLACE_UNRELATED);
    p.scale = ech_grad_scale();
    return p;
}

ech_placement ech_param_place(const ech_block_spec *s, ech_part part, bool is_share)
{
    ech_placement p = over_tp(s, part, ech_place_of(ECH_PLACE_INVARIANT));
    if (is_share && s->form.is_sharded)
        p.over[ECH_AXIS_DP] = ech_place_sharded(0, ECH_MAP_FLAT);
    return p;
}

static ech_operand vector_in(const ech_builder *b, ech_region region, int64_t elems,
                             ech_placement place)
{
    ech_operand a = ech_shape(b->spec->real, 1, elems, 0, 0, 0);
    a.region = region;
    a.place = place;
    return a;
}

ech_operand ech_grad_vector(const ech_builder *b, ech_part part, int64_t elems, unsigned done)
{
    return vector_in(b, ech_region_of_part(ECH_REGION_GRAD, part), elems,
                     ech_grad_place(b->spec, part, done));
}

/* Within the whole part, which starts at the region's base. */
static ech_operand shifted(const ech_builder *b, ech_operand share)
{
    share.shift = (ech_shift){ECH_AXIS_DP,
                              (size_t)ech_operand_elems(&share) * ech_dtype_bytes(b->spec->real)};
    return share;
}

ech_operand ech_share_of(const ech_builder *b, ech_region first, int unit, ech_part part)
{
    const ech_block_spec *s = b->spec;
    const ech_shard_part *u = &ech_shard_unit_of(s->plan, unit)->part[part];
    const bool is_grad = first == ECH_REGION_GRAD;
    const ech_placement place =
        is_grad ? ech_grad_place(s, part, ech_axes_of_gradients()) : ech_param_place(s, part, true);
    const bool is_apart = is_grad ? s->form.shards_grads : s->form.shards_params;
    const ech_operand a = vector_in(b, ech_region_of_part(first, part), u->shard, place);
    return s->form.is_sharded && !is_apart ? shifted(b, a) : a;
}

ech_expr ech_share_first(const ech_builder *b, int unit, ech_part part)
{
    const ech_shard_part *u = &ech_shard_unit_of(b->spec->plan, unit)->part[part];
    if (!b->spec->form.is_sharded)
        return ech_expr_const(0);
    return ech_expr_binary(ECH_EXPR_MUL, ech_expr_coord(ECH_AXIS_DP), ech_expr_const(u->shard));
}

ech_operand ech_moment_of(const ech_builder *b, int unit, ech_part part, int which)
{
    const ech_shard_part *u = &ech_shard_unit_of(b->spec->plan, unit)->part[part];
    ech_operand a = vector_in(b, ech_region_of_part(ECH_REGION_MOMENT, part), u->shard,
                              ech_param_place(b->spec, part, true));
    a.offset = (size_t)(which * u->shard) * ech_dtype_bytes(b->spec->real);
    return a;
}

/* --- transfers --- */

static void begin(ech_builder *b, const ech_block_spec *s, const ech_transfer *t, const char *what)
{
    static const char *const parts[] = {"", " (summed over tp)", " (whole over tp)", " (tied)"};
    char name[48];
    (void)snprintf(name, sizeof name, "%s%s: %s", what, parts[t->part],
                   t->is_wait ? "wait" : "start");
    ech_builder_init(b, s, name, ECH_ROLE_TRANSFER);
}

static ech_operand staging_for(const ech_builder *b, const ech_operand *grad, ech_axis axis)
{
    ech_operand a = ech_staging_of(
        grad, b->spec->real,
        ech_reduce_staging_elems(ech_operand_elems(grad), b->spec->layout.degree[axis]));
    if (axis == ECH_AXIS_TIED)
        a.place.over[axis] = ech_place_of(ECH_PLACE_INVARIANT);
    a.region = ECH_REGION_OUT;
    return a;
}

ech_status ech_block_all_reduce(const ech_block_spec *s, const ech_transfer *t, ech_block *out)
{
    ech_builder b;
    begin(&b, s, t, "all-reduce of gradients");
    const unsigned done = t->done | (t->is_wait ? ech_axis_bit(t->axis) : 0);
    const int64_t elems = t->is_share ? t->elems / s->plan->shards : t->elems;
    ech_operand grad = ech_grad_vector(&b, t->part, elems, done);
    if (t->is_share && s->form.shards_grads)
        grad.region = ECH_REGION_SHARD;
    else if (t->is_share)
        grad = shifted(&b, grad);
    ECH_EMIT(&b, t->is_wait ? ECH_OP_ALL_REDUCE_WAIT : ECH_OP_ALL_REDUCE_START, grad,
             staging_for(&b, &grad, t->axis))
        ->axis = t->axis;
    return ech_builder_finish(&b, out);
}

ech_status ech_block_reduce_scatter(const ech_block_spec *s, const ech_transfer *t, ech_block *out)
{
    ech_builder b;
    begin(&b, s, t, "reduce-scatter");
    const ech_operand whole = ech_grad_vector(&b, t->part, t->elems, 0);
    ech_operand share =
        ech_grad_vector(&b, t->part, t->elems / s->plan->shards, ech_axis_bit(ECH_AXIS_DP));
    if (s->form.shards_grads)
        share.region = ECH_REGION_SHARD;
    else
        share = shifted(&b, share);
    ECH_EMIT(&b, t->is_wait ? ECH_OP_REDUCE_SCATTER_WAIT : ECH_OP_REDUCE_SCATTER_START, whole,
             share, staging_for(&b, &whole, ECH_AXIS_DP))
        ->axis = ECH_AXIS_DP;
    return ech_builder_finish(&b, out);
}

ech_status ech_block_add_share(const ech_block_spec *s, const ech_transfer *t, ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, s, "gradients of a micro-batch added", ECH_ROLE_TRANSFER);
    ech_operand sum =
        ech_grad_vector(&b, t->part, t->elems / s->plan->shards, ech_axis_bit(ECH_AXIS_DP));
    ech_operand more = sum;
    sum.region = ECH_REGION_SHARD;
    more.region = ECH_REGION_IN;
    (void)ECH_EMIT(&b, ECH_OP_ADD, sum, more, sum);
    return ech_builder_finish(&b, out);
}

ech_status ech_block_all_gather(const ech_block_spec *s, const ech_transfer *t, ech_block *out)
{
    ech_builder b;
    begin(&b, s, t, "all-gather");
    const ech_region region = ech_region_of_part(ECH_REGION_PARAM, t->part);
    ech_operand share =
        vector_in(&b, region, t->elems / s->plan->shards, ech_param_place(s, t->part, true));
    const ech_operand whole = vector_in(&b, region, t->elems, ech_param_place(s, t->part, false));
    if (s->form.shards_params)
        share.region = ECH_REGION_SHARD;
    else
        share = shifted(&b, share);
    ECH_EMIT(&b, t->is_wait ? ECH_OP_ALL_GATHER_WAIT : ECH_OP_ALL_GATHER_START, share, whole)
        ->axis = ECH_AXIS_DP;
    return ech_builder_finish(&b, out);
}

/* --- shared key/value heads --- */

/* [groups, rows, inner] of a tensor of head groups. */
static ech_operand groups_of(const ech_builder *b, ech_operand a, int64_t rows)
{
    const int64_t groups = b->spec->plan->heads.groups;
    const int64_t inner = ech_operand_elems(&a) / (groups * (b->spec->plan->heads.per_group + 2));
    ech_operand shape = ech_shape(a.dtype, 3, groups, rows, inner, 0);
    shape.region = a.region;
    shape.offset = a.offset;
    shape.place = a.place;
    return shape;
}

static void set_groups(const ech_builder *b, ech_op *op)
{
    const ech_head_split *h = &b->spec->plan->heads;
    op->attr[0] =
        ech_expr_binary(ECH_EXPR_MUL, ech_expr_coord(ECH_AXIS_KV), ech_expr_const(h->groups));
    op->attr[1] = ech_expr_const(h->copies);
    op->axis = ECH_AXIS_KV;
}

static void emit_kv_sum(ech_builder *b, ech_param_kind kind)
{
    const int share = b->spec->layout.degree[ECH_AXIS_KV];
    ech_operand grad = ech_param_grad(b, kind);
    if (grad.region == ECH_REGION_NONE)
        return;
    grad = groups_of(b, grad, b->spec->plan->heads.per_group + 2);
    ech_operand whole = grad;
    whole.place.over[ECH_AXIS_KV] = ech_place_of(ECH_PLACE_INVARIANT);
    const ech_operand sum = ech_temp(b, groups_of(b, grad, 2));
    ech_operand vector = ech_shape(sum.dtype, 1, ech_operand_elems(&sum), 0, 0, 0);
    vector.region = sum.region;
    vector.offset = sum.offset;
    vector.place = sum.place;
    const ech_operand staging =
        ech_temp(b, ech_staging_of(&sum, sum.dtype,
                                   ech_reduce_staging_elems(ech_operand_elems(&sum), share)));
    set_groups(b, ECH_EMIT(b, ECH_OP_KV_FOLD, grad, sum));
    const int request = b->n_requests; /* free again behind the wait */
    for (int w = 0; w < 2; w++) {
        if (w)
            vector.place.over[ECH_AXIS_KV] = ech_place_of(ECH_PLACE_INVARIANT);
        ech_op *op =
            ECH_EMIT(b, w ? ECH_OP_ALL_REDUCE_WAIT : ECH_OP_ALL_REDUCE_START, vector, staging);
        op->axis = ECH_AXIS_KV;
        op->request = request;
    }
    ech_operand summed = sum;
    summed.place.over[ECH_AXIS_KV] = ech_place_of(ECH_PLACE_INVARIANT);
    set_groups(b, ECH_EMIT(b, ECH_OP_KV_SPREAD, summed, whole));
}

ech_status ech_block_kv_sum(const ech_block_spec *s, ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, s, "sum of shared key/value heads", ECH_ROLE_HOST_SCALARS);
    emit_kv_sum(&b, ECH_PARAM_QKV);
    emit_kv_sum(&b, ECH_PARAM_QKV_BIAS);
    return ech_builder_finish(&b, out);
}

/* --- messages between stages --- */

ech_status ech_block_message(const ech_block_spec *s, const ech_message *m, ech_block *out)
{
    static const ech_op_kind kinds[2][2] = {{ECH_OP_RECV_START, ECH_OP_RECV_WAIT},
                                            {ECH_OP_SEND_START, ECH_OP_SEND_WAIT}};
    ech_builder b;
    char name[48];
    (void)snprintf(name, sizeof name, "%s %s pipeline rank %d: %s",
                   m->is_gradient ? "gradient" : "activation", m->is_send ? "to" : "from", m->peer,
                   m->is_wait ? "wait" : "start");
    ech_builder_init(&b, s, name, ECH_ROLE_TRANSFER);
    ech_operand a = ech_stream(&b, ech_message_region(m->is_send, m->is_gradient));
    ech_op *op = ECH_EMIT(&b, kinds[m->is_send][m->is_wait], m->is_gradient ? ech_as_grad(a) : a);
    op->axis = ECH_AXIS_PP;
    op->attr[0] = ech_expr_const(m->peer);
    return ech_builder_finish(&b, out);
}
