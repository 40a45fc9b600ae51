#include "program/block_builder.h"
#include "program/op_signature.h"
#include "program/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ech_builder_init(ech_builder *b, const ech_block_spec *spec, const char *what, ech_role role)
{
    static const char *const names[] = {
        [ECH_ROLE_FORWARD] = " forward",
        [ECH_ROLE_BACKWARD] = " backward",
        [ECH_ROLE_BACKWARD_INPUT] = " backward (input)",
        [ECH_ROLE_BACKWARD_WEIGHT] = " backward (weight)",
        [ECH_ROLE_RECOMPUTE] = " recompute",
        [ECH_ROLE_UPDATE] = " update",
        [ECH_ROLE_TRANSFER] = "",
        [ECH_ROLE_HOST_SCALARS] = "",
    };
    *b = (ech_builder){.spec = spec,
                       .keeps = spec->mode == ECH_MODE_TRAIN,
                       .makes = role == ECH_ROLE_BACKWARD_INPUT    ? ECH_FOR_INPUT
                                : role == ECH_ROLE_BACKWARD_WEIGHT ? ECH_FOR_WEIGHT
                                                                   : ECH_FOR_BOTH,
                       .purpose = ECH_FOR_BOTH};
    b->block.role = role;
    (void)snprintf(b->block.name, sizeof b->block.name, "%s%s", what, names[role]);
}

/* --- operands --- */

ech_operand ech_shape(ech_dtype dtype, int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const int64_t d[ECH_MAX_DIMS] = {d0, d1, d2, d3};
    ech_operand a = {.dtype = dtype, .rank = rank, .place = ech_placement_invariant()};
    for (int i = 0; i < rank; i++)
        a.dim[i] = (ech_dim){d[i], ECH_EXTENT_BOUND};
    return a;
}

ech_operand ech_reshape(ech_operand a, int rank, int64_t d1, int64_t d2, int64_t d3)
{
    const int64_t d[ECH_MAX_DIMS] = {0, d1, d2, d3};
    a.rank = rank;
    for (int i = 1; i < rank; i++)
        a.dim[i] = (ech_dim){d[i], ECH_EXTENT_BOUND};
    return a;
}

ech_operand ech_absent(void)
{
    return (ech_operand){.region = ECH_REGION_NONE, .place = ech_placement_invariant()};
}

ech_operand ech_staging_of(const ech_operand *like, ech_dtype dtype, int64_t n)
{
    ech_operand a = ech_shape(dtype, 1, n, 0, 0, 0);
    for (int x = 0; x < ECH_N_AXES; x++)
        if (like->place.over[x].kind == ECH_PLACE_UNRELATED)
            a.place.over[x] = like->place.over[x];
    return a;
}

ech_placement ech_stage_placement(const ech_layout *l)
{
    ech_placement p = ech_placement_invariant();
    for (int x = 0; x < ECH_N_AXES; x++)
        if (ech_axis_contains(ECH_AXIS_PP, (ech_axis)x) && l->degree[x] > 1)
            p.over[x] = ech_place_of(ECH_PLACE_UNRELATED);
    return p;
}

ech_placement ech_placement_on_stages(ech_placement p)
{
    for (int x = 0; x < ECH_N_AXES; x++)
        if (ech_axis_contains(ECH_AXIS_PP, (ech_axis)x))
            p.over[x] = ech_place_of(ECH_PLACE_INVARIANT);
    return p;
}

/* p with the same placement over each axis of the data parallel ranks that has more than one. */
static ech_placement over_data(const ech_layout *l, ech_place place)
{
    ech_placement p = ech_stage_placement(l);
    if (l->degree[ECH_AXIS_DP] > 1)
        p.over[ECH_AXIS_DP] = place;
    if (l->degree[ECH_AXIS_HSDP] > 1)
        p.over[ECH_AXIS_HSDP] = place;
    return p;
}

ech_placement ech_token_placement(const ech_layout *l)
{
    return over_data(l, ech_place_sharded(0, ECH_MAP_SEQUENCES));
}

ech_placement ech_data_placement(const ech_layout *l)
{
    return ech_placement_on_stages(ech_token_placement(l));
}

ech_placement ech_partial_placement(const ech_layout *l)
{
    return over_data(l, ech_place_of(ECH_PLACE_PARTIAL));
}

static int tp_degree(const ech_builder *b)
{
    return b->spec->layout.degree[ECH_AXIS_TP];
}

bool ech_is_dealt(const ech_builder *b)
{
    return b->spec->policy.is_sequence_parallel && tp_degree(b) > 1;
}

ech_operand ech_cut_over_tp(const ech_builder *b, ech_operand a, int dim, ech_index_map map)
{
    if (tp_degree(b) > 1)
        a.place.over[ECH_AXIS_TP] = ech_place_sharded(dim, map);
    return a;
}

ech_operand ech_activation(const ech_builder *b, ech_region region, int64_t d1, int64_t d2,
                           int64_t d3)
{
    const ech_block_spec *s = b->spec;
    const int rank = 1 + (d1 > 0) + (d2 > 0) + (d3 > 0);
    ech_operand a = ech_shape(s->real, rank, s->rows * s->seq, d1, d2, d3);
    a.region = region;
    a.place = ech_token_placement(&s->layout);
    if (s->mode == ECH_MODE_GENERATE)
        a.dim[0].extent = ECH_CELL_NEW_TOKENS;
    return a;
}

static ech_operand as_stream(const ech_builder *b, ech_operand a)
{
    if (!ech_is_dealt(b))
        return a;
    a.dim[0].bound /= tp_degree(b);
    return ech_cut_over_tp(b, a, 0, ECH_MAP_CONTIGUOUS);
}

ech_operand ech_stream(const ech_builder *b, ech_region region)
{
    return as_stream(b, ech_activation(b, region, b->spec->model->hidden, 0, 0));
}

ech_operand ech_stream_vector(const ech_builder *b, ech_region region)
{
    return as_stream(b, ech_activation(b, region, 0, 0, 0));
}

ech_expr ech_first_token(const ech_builder *b)
{
    const int64_t share = b->spec->rows * b->spec->seq / tp_degree(b);
    if (!ech_is_dealt(b))
        return ech_expr_const(0);
    return ech_expr_binary(ECH_EXPR_MUL, ech_expr_coord(ECH_AXIS_TP), ech_expr_const(share));
}

ech_operand ech_as_grad(ech_operand a)
{
    a.place.scale = ech_grad_scale();
    return a;
}

ech_operand ech_activation_grad(const ech_builder *b, ech_region region, int64_t d1, int64_t d2,
                                int64_t d3)
{
    return ech_as_grad(ech_activation(b, region, d1, d2, d3));
}

ech_operand ech_append(ech_builder *b, ech_region region, ech_operand shape)
{
    shape.region = region;
    shape.offset = ech_align_up(b->block.region_bytes[region], ECH_ALIGN);
    b->block.region_bytes[region] = shape.offset + ech_operand_bytes(&shape);
    return shape;
}

/* Until the block is finished a temporary's offset is its index. */
ech_operand ech_temp(ech_builder *b, ech_operand shape)
{
    ECH_ASSERT(b->n_temps < ECH_MAX_TEMPS);
    shape.region = ECH_REGION_WORK;
    shape.offset = (size_t)b->n_temps;
    b->temp_bytes[b->n_temps++] = ech_operand_bytes(&shape);
    return shape;
}

static ech_operand keep_in(ech_builder *b, bool keeps, ech_region region, ech_operand shape)
{
    return keeps ? ech_append(b, region, shape) : ech_temp(b, shape);
}

ech_operand ech_keep(ech_builder *b, ech_operand shape)
{
    return keep_in(b, b->keeps, ECH_REGION_SAVED_FB, shape);
}

ech_operand ech_keep_for_weight(ech_builder *b, ech_operand shape)
{
    const bool splits = b->spec->splits_backward;
    return keep_in(b, b->keeps, splits ? ECH_REGION_SAVED_FW : ECH_REGION_SAVED_FB, shape);
}

ech_operand ech_hand_on(ech_builder *b, ech_operand shape)
{
    return keep_in(b, b->spec->splits_backward, ECH_REGION_SAVED_BW, shape);
}

static ech_operand param_in(const ech_builder *b, ech_param_kind kind, ech_region first)
{
    const ech_shard_param *p = ech_shard_find(b->spec->plan, kind);
    if (!p)
        return ech_absent();
    ech_operand a = ech_shape(b->spec->real, p->rank, p->dim[0], p->dim[1], p->dim[2], p->dim[3]);
    a.region = (ech_region)((int)first + (int)p->part);
    a.offset = (size_t)p->offset * ech_dtype_bytes(b->spec->real);
    return a;
}

/* Kernels see matrices as [out, in] and vectors as [out], whatever the canonical rank. */
static ech_operand flatten_param(ech_operand a, bool is_matrix)
{
    int64_t out = 1;
    const int64_t last = a.rank ? a.dim[a.rank - 1].bound : 1;
    for (int d = 0; d < a.rank - (is_matrix ? 1 : 0); d++)
        out *= a.dim[d].bound;
    a.rank = is_matrix ? 2 : 1;
    a.dim[0] = (ech_dim){out, ECH_EXTENT_BOUND};
    a.dim[1] = (ech_dim){is_matrix ? last : 0, ECH_EXTENT_BOUND};
    return a;
}

static bool is_matrix(ech_param_kind kind)
{
    switch (kind) {
    case ECH_PARAM_TOKEN_EMBED:
    case ECH_PARAM_POSITION_EMBED:
    case ECH_PARAM_QKV:
    case ECH_PARAM_ATTN_OUT:
    case ECH_PARAM_GATE_UP:
    case ECH_PARAM_UP:
    case ECH_PARAM_DOWN:
    case ECH_PARAM_HEAD:
        return true;
    default:
        return false;
    }
}

static ech_index_map map_of(const ech_builder *b, ech_param_kind kind)
{
    switch (kind) {
    case ECH_PARAM_QKV:
    case ECH_PARAM_QKV_BIAS:
    case ECH_PARAM_ATTN_OUT:
        return ECH_MAP_HEAD_GROUP;
    case ECH_PARAM_GATE_UP:
        return ECH_MAP_GATE_UP;
    case ECH_PARAM_DOWN:
        return b->spec->model->act == ECH_ACT_SWIGLU ? ECH_MAP_GATE_UP : ECH_MAP_CONTIGUOUS;
    default:
        return ECH_MAP_CONTIGUOUS;
    }
}

static bool has_shared_heads(const ech_builder *b, ech_param_kind kind)
{
    return b->spec->layout.degree[ECH_AXIS_KV] > 1 &&
           (kind == ECH_PARAM_QKV || kind == ECH_PARAM_QKV_BIAS);
}

/* Over tp: cut, or whole with a gradient that is `partial` or not. */
static ech_operand place_over_tp(const ech_builder *b, ech_operand a, ech_param_kind kind,
                                 ech_place_kind partial)
{
    const ech_shard_param *p = ech_shard_find(b->spec->plan, kind);
    const bool is_columns = p->cut == ECH_CUT_COLUMNS;
    if (p->part == ECH_PART_SUMMED)
        a.place.over[ECH_AXIS_TP] = ech_place_of(partial);
    if (has_shared_heads(b, kind))
        a.place.over[ECH_AXIS_KV] = ech_place_of(partial);
    return (p->part == ECH_PART_CUT || p->part == ECH_PART_TIED) && p->cut != ECH_CUT_NONE
               ? ech_cut_over_tp(b, a, is_columns ? 1 : 0, map_of(b, kind))
               : a;
}

ech_operand ech_param_operand(const ech_builder *b, ech_param_kind kind)
{
    ech_operand a = param_in(b, kind, ECH_REGION_PARAM);
    if (a.region == ECH_REGION_NONE)
        return a;
    a = flatten_param(a, is_matrix(kind));
    a.place = over_data(&b->spec->layout, ech_place_of(ECH_PLACE_REPLICATED));
    return place_over_tp(b, a, kind, ECH_PLACE_REPLICATED);
}

ech_operand ech_param_grad(const ech_builder *b, ech_param_kind kind)
{
    ech_operand a = param_in(b, kind, ECH_REGION_GRAD);
    if (a.region == ECH_REGION_NONE)
        return a;
    a = flatten_param(a, is_matrix(kind));
    a.place = ech_partial_placement(&b->spec->layout);
    return ech_as_grad(place_over_tp(b, a, kind, ECH_PLACE_PARTIAL));
}

ech_operand ech_cell_operand(ech_cell cell)
{
    ech_operand a = ech_shape(ech_cell_dtype(cell), 1, 1, 0, 0, 0);
    a.region = ECH_REGION_SCALARS;
    a.offset = 8 * (size_t)cell;
    return a;
}

/* --- ops --- */

static void note_region(ech_block *block, const ech_operand *a, const ech_layout *l)
{
    if (a->region == ECH_REGION_NONE || a->region == ECH_REGION_WORK)
        return;
    const size_t end = a->offset + ech_operand_span(a, l);
    if (end > block->region_bytes[a->region])
        block->region_bytes[a->region] = end;
}

void ech_emit_for(ech_builder *b, ech_purpose purpose)
{
    b->purpose = purpose;
}

ech_op *ech_emit(ech_builder *b, ech_op_kind kind, int n_args, const ech_operand *arg)
{
    static _Thread_local ech_op unused;
    const ech_signature sig = ech_signature_read(kind);
    ech_op op = {.kind = kind, .n_args = n_args};
    if (!((unsigned)b->makes & (unsigned)b->purpose))
        return &unused;
    if (b->st >= 0)
        b->st = ech_grow(&b->block.op, (size_t)b->block.n_ops, &b->block.capacity, sizeof op);
    if (b->st < 0)
        return &unused;
    for (int i = 0; i < n_args; i++) {
        op.arg[i] = arg[i];
        op.arg[i].access = sig.arg[i].access;
        note_region(&b->block, &arg[i], &b->spec->layout);
    }
    b->block.op[b->block.n_ops] = op;
    return &b->block.op[b->block.n_ops++];
}

/* --- between stream and full --- */

/* The same bytes as one vector: what is cut is cut along it. */
static ech_operand as_vector(ech_operand a)
{
    const int64_t n = ech_operand_elems(&a);
    a.rank = 1;
    a.dim[0] = (ech_dim){n, ECH_EXTENT_BOUND};
    for (int x = 0; x < ECH_N_AXES; x++)
        if (a.place.over[x].kind == ECH_PLACE_SHARDED)
            a.place.over[x].dim = 0;
    return a;
}

/* Start and wait of one communication over tp in the block. */
static void emit_comm(ech_builder *b, ech_op_kind kind, int n_args, const ech_operand *arg,
                      int request)
{
    ech_op *op = ech_emit(b, kind, n_args, arg);
    op->axis = ECH_AXIS_TP;
    op->request = request;
}

void ech_emit_gather_over_tp(ech_builder *b, ech_operand share, ech_operand whole)
{
    const ech_operand arg[2] = {as_vector(share), as_vector(whole)};
    const int request = b->n_requests; /* free again behind the wait */
    emit_comm(b, ECH_OP_ALL_GATHER_START, 2, arg, request);
    emit_comm(b, ECH_OP_ALL_GATHER_WAIT, 2, arg, request);
}

ech_operand ech_all_tokens(const ech_builder *b, ech_operand stream)
{
    stream.dim[0].bound *= tp_degree(b);
    stream.place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_INVARIANT);
    return stream;
}

ech_operand ech_emit_gather(ech_builder *b, ech_operand stream, ech_operand to)
{
    if (!ech_is_dealt(b))
        return stream;
    if (to.region == ECH_REGION_NONE)
        to = ech_temp(b, ech_all_tokens(b, stream));
    ech_emit_gather_over_tp(b, stream, to);
    return to;
}

ech_operand ech_partial_for(ech_builder *b, ech_operand to)
{
    if (tp_degree(b) == 1)
        return to;
    if (ech_is_dealt(b)) {
        to.dim[0].bound *= tp_degree(b);
        to = ech_temp(b, to);
    }
    to.place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_PARTIAL);
    return to;
}

ech_pending_sum ech_emit_sum_start(ech_builder *b, ech_operand partial, ech_operand to)
{
    const int tp = tp_degree(b);
    const bool scatters = ech_is_dealt(b);
    ech_pending_sum sum = {.wait = ECH_N_OPS, .n_args = scatters ? 3 : 2};
    if (tp == 1)
        return sum;
    const int64_t staged = ech_reduce_staging_elems(ech_operand_elems(&partial), tp);
    const ech_operand staging = ech_temp(b, ech_staging_of(&partial, b->spec->real, staged));
    sum.request = b->n_requests++;
    sum.wait = scatters ? ECH_OP_REDUCE_SCATTER_WAIT : ECH_OP_ALL_REDUCE_WAIT;
    sum.arg[0] = as_vector(partial);
    sum.arg[1] = scatters ? as_vector(to) : staging;
    sum.arg[2] = staging;
    emit_comm(b, scatters ? ECH_OP_REDUCE_SCATTER_START : ECH_OP_ALL_REDUCE_START, sum.n_args,
              sum.arg, sum.request);
    if (!scatters)
        sum.arg[0] = as_vector(to);
    return sum;
}

void ech_emit_sum_wait(ech_builder *b, const ech_pending_sum *sum)
{
    if (sum->wait != ECH_N_OPS)
        emit_comm(b, sum->wait, sum->n_args, sum->arg, sum->request);
}

/* Lifetimes of temporaries and workspaces by op index; temporaries first, then one a workspace. */
static int list_work(const ech_builder *b, ech_pack_item *item, int *owner)
{
    int n = b->n_temps;
    for (int t = 0; t < b->n_temps; t++)
        item[t] = (ech_pack_item){.bytes = b->temp_bytes[t], .first = -1};
    for (int k = 0; k < b->block.n_ops; k++) {
        const ech_op *op = &b->block.op[k];
        for (int i = 0; i < op->n_args; i++) {
            if (op->arg[i].region != ECH_REGION_WORK)
                continue;
            ech_pack_item *t = &item[op->arg[i].offset];
            t->first = t->first < 0 ? k : t->first;
            t->last = k;
        }
        if (op->work_bytes) {
            owner[n] = k;
            item[n++] = (ech_pack_item){.bytes = op->work_bytes, .first = k, .last = k};
        }
    }
    for (int t = 0; t < b->n_temps; t++)
        if (item[t].first < 0) /* its ops were left out */
            item[t] = (ech_pack_item){.bytes = 0};
    return n;
}

static ech_status pack_work(ech_builder *b)
{
    size_t arena;
    size_t peak;
    const size_t most = (size_t)(b->n_temps + b->block.n_ops);
    ech_pack_item *item = NULL;
    int *owner = NULL;
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc(most, sizeof *item, &item), done);
    ECH_TRY_GOTO(st, ech_calloc(most, sizeof *owner, &owner), done);
    const int n = list_work(b, item, owner);
    ECH_TRY_GOTO(st, ech_pack(item, n, ECH_ALIGN, &arena, &peak), done);
    b->block.region_bytes[ECH_REGION_WORK] = arena;
    for (int k = 0; k < b->block.n_ops; k++)
        for (int i = 0; i < b->block.op[k].n_args; i++)
            if (b->block.op[k].arg[i].region == ECH_REGION_WORK)
                b->block.op[k].arg[i].offset = item[b->block.op[k].arg[i].offset].offset;
    for (int i = b->n_temps; i < n; i++)
        b->block.op[owner[i]].work_offset = item[i].offset;
done:
    free(item);
    free(owner);
    return st;
}

/* A saved set that is laid out but not touched by the ops of this role is not bound. */
static void forget_unused(ech_block *block)
{
    static const ech_region saved[] = {ECH_REGION_SAVED_FB, ECH_REGION_SAVED_FW,
                                       ECH_REGION_SAVED_BW};
    bool is_used[ECH_N_REGIONS] = {false};
    for (int k = 0; k < block->n_ops; k++)
        for (int i = 0; i < block->op[k].n_args; i++)
            is_used[block->op[k].arg[i].region] = true;
    for (size_t i = 0; i < sizeof saved / sizeof saved[0]; i++)
        if (!is_used[saved[i]])
            block->region_bytes[saved[i]] = 0;
}

ech_status ech_builder_finish(ech_builder *b, ech_block *out)
{
    for (int k = 0; k < b->block.n_ops && b->st >= 0; k++) {
        ech_op *op = &b->block.op[k];
        const ech_op_row *row = ech_op_row_get(op->kind);
        b->st = ech_op_check_shape(op);
        op->work_bytes = row->work_bytes ? row->work_bytes(op) : 0;
        if (b->st < 0)
            (void)ech_error_prefix(b->st, "%s: ", b->block.name);
    }
    if (b->st >= 0)
        b->st = pack_work(b);
    forget_unused(&b->block);
    if (b->st < 0)
        free(b->block.op);
    else
        *out = b->block;
    b->block = (ech_block){0};
    return b->st;
}

static bool knows_role(const ech_block_spec *spec, ech_role role)
{
    switch (role) {
    case ECH_ROLE_FORWARD:
        return true;
    case ECH_ROLE_BACKWARD:
        return !spec->splits_backward;
    case ECH_ROLE_BACKWARD_INPUT:
    case ECH_ROLE_BACKWARD_WEIGHT:
        return spec->splits_backward;
    default:
        return false;
    }
}

ech_status ech_builder_make(const ech_block_spec *spec, const char *what, ech_role role,
                            void (*forward)(ech_builder *b), void (*backward)(ech_builder *b),
                            ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, spec, what, role);
    ECH_CHECK(knows_role(spec, role), ECH_E_UNSUPPORTED, "no block '%s': %s has a forward and %s",
              b.block.name, what,
              spec->splits_backward ? "a backward split into input and weight"
                                    : "a whole backward only");
    (role == ECH_ROLE_FORWARD ? forward : backward)(&b);
    return ech_builder_finish(&b, out);
}
