/* Blocks of the step itself: counts, seeds, norms, updates. */
#include "program/block_state.h"

#include <stdio.h>

/* --- scalars --- */

static ech_operand losses_operand(const ech_builder *b, int micros, ech_region region)
{
    ech_operand a = ech_shape(ECH_F64, 1, micros, 0, 0, 0);
    a.region = region;
    a.place = ech_partial_placement(&b->spec->layout);
    return a;
}

/* A sum of a cell over one axis after the other, each with more than one rank: from the first cell
 * over those in between to the last. */
typedef struct cell_sum {
    ech_cell cell[5]; /* local, then after each axis */
    ech_axis axis[4];
    int n_axes;
    bool is_stages; /* each stage has its own: V over pp, not a vote that is P there */
} cell_sum;

static const cell_sum token_sum = {{ECH_CELL_TOKENS_LOCAL, ECH_CELL_TOKENS_DP, ECH_CELL_TOKENS},
                                   {ECH_AXIS_DP, ECH_AXIS_HSDP},
                                   2,
                                   false};
static const cell_sum loss_sum = {
    {ECH_CELL_LOSS_LOCAL, ECH_CELL_LOSS_DP, ECH_CELL_LOSS_DATA, ECH_CELL_LOSS},
    {ECH_AXIS_DP, ECH_AXIS_HSDP, ECH_AXIS_PP},
    3,
    true};
static const cell_sum stop_sum = {
    {ECH_CELL_STOP_LOCAL, ECH_CELL_STOP_DP, ECH_CELL_STOP_DATA, ECH_CELL_STOP_STAGE, ECH_CELL_STOP},
    {ECH_AXIS_DP, ECH_AXIS_HSDP, ECH_AXIS_TP, ECH_AXIS_PP},
    4,
    false};

static bool is_summed_over(const ech_builder *b, const cell_sum *sum, int k)
{
    return k < sum->n_axes && b->spec->layout.degree[sum->axis[k]] > 1;
}

/* The next axis from k on that has more than one rank; n_axes: none. */
static int next_axis(const ech_builder *b, const cell_sum *sum, int k)
{
    while (k < sum->n_axes && !is_summed_over(b, sum, k))
        k++;
    return k;
}

/* What stands before the sum over axis k, partial over it and those after it. */
static ech_operand cell_before(const ech_builder *b, const cell_sum *sum, int k)
{
    const bool is_first = next_axis(b, sum, 0) >= k;
    ech_operand a = ech_cell_operand(sum->cell[is_first ? 0 : k == sum->n_axes ? sum->n_axes : k]);
    for (; k < sum->n_axes; k++) {
        if (!is_summed_over(b, sum, k))
            continue;
        if (sum->is_stages && sum->axis[k] == ECH_AXIS_PP) {
            const ech_placement own = ech_stage_placement(&b->spec->layout);
            a.place.over[ECH_AXIS_PP] = own.over[ECH_AXIS_PP];
            a.place.over[ECH_AXIS_TIED] = own.over[ECH_AXIS_TIED];
        } else {
            a.place.over[sum->axis[k]] = ech_place_of(ECH_PLACE_PARTIAL);
        }
    }
    return a;
}

ech_status ech_block_prologue(const ech_block_spec *s, int micros, bool has_grads, bool has_losses,
                              ech_block *out)
{
    ech_builder b;
    ech_operand labels = ech_shape(ECH_I32, 1, s->rows * s->seq * micros, 0, 0, 0);
    ech_builder_init(&b, s, "prologue", ECH_ROLE_HOST_SCALARS);
    labels.region = ECH_REGION_DATA;
    labels.place = ech_data_placement(&s->layout);
    for (int part = 0; part < ECH_N_PARTS && has_grads; part++)
        if (s->plan->elems[part])
            (void)ECH_EMIT(&b, ECH_OP_ZERO,
                           ech_grad_vector(&b, (ech_part)part, s->plan->elems[part], 0));
    if (has_losses)
        (void)ECH_EMIT(&b, ECH_OP_ZERO, losses_operand(&b, micros, ECH_REGION_OUT));
    (void)ECH_EMIT(&b, ECH_OP_COUNT_TOKENS, labels, cell_before(&b, &token_sum, 0));
    return ech_builder_finish(&b, out);
}

ech_status ech_block_zero_grads(const ech_block_spec *s, int unit, ech_block *out)
{
    ech_builder b;
    const ech_shard_unit *u = ech_shard_unit_of(s->plan, unit);
    ech_builder_init(&b, s, "gradients to zero", ECH_ROLE_HOST_SCALARS);
    for (int part = 0; part < ECH_N_PARTS; part++)
        if (u->part[part].elems)
            (void)ECH_EMIT(&b, ECH_OP_ZERO,
                           ech_grad_vector(&b, (ech_part)part, u->part[part].elems, 0));
    return ech_builder_finish(&b, out);
}

/* Start, wait or both of a sum over an axis, every rank's value in `all`. */
static void emit_sum(ech_builder *b, ech_axis axis, const ech_operand arg[3], bool starts,
                     bool waits)
{
    const int request = b->n_requests;
    b->n_requests += starts != waits; /* else it is free again behind it */
    for (int w = 0; w < 2; w++) {
        if (!(w ? waits : starts))
            continue;
        ech_op *op = ech_emit(b, w ? ECH_OP_SUM_SMALL_WAIT : ECH_OP_SUM_SMALL_START, 3, arg);
        op->axis = axis;
        op->request = request;
    }
}

/* Every rank's value of a cell, before the sum over axis k. */
static ech_operand all_cells(const ech_builder *b, const cell_sum *sum, int k)
{
    const ech_operand one = cell_before(b, sum, k);
    ech_operand all = ech_staging_of(&one, one.dtype, b->spec->layout.degree[sum->axis[k]]);
    if (sum->axis[k] == ECH_AXIS_PP)
        all.place = ech_placement_on_stages(all.place);
    return all;
}

/* The sum over axis k; `all` NULL: a temporary. */
static void emit_cell_sum(ech_builder *b, const cell_sum *sum, int k, const ech_operand *all,
                          bool starts, bool waits)
{
    const int next = next_axis(b, sum, k + 1);
    ech_operand arg[3] = {cell_before(b, sum, k), all ? *all : ech_temp(b, all_cells(b, sum, k)),
                          cell_before(b, sum, next)};
    emit_sum(b, sum->axis[k], arg, starts, waits);
}

/* Over the axes from k on, one after the other; over none, a copy. */
static void emit_cell_sums(ech_builder *b, const cell_sum *sum, int k)
{
    if (next_axis(b, sum, 0) == sum->n_axes)
        (void)ECH_EMIT(b, ECH_OP_COPY, cell_before(b, sum, 0),
                       ech_cell_operand(sum->cell[sum->n_axes]));
    for (k = next_axis(b, sum, k); k < sum->n_axes; k = next_axis(b, sum, k + 1))
        emit_cell_sum(b, sum, k, NULL, true, true);
}

/* The sum over the first axis moves on its own; with one rank the start is a copy, and nothing is
 * left to wait for. */
ech_status ech_block_tokens(const ech_block_spec *s, bool is_wait, ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, s, is_wait ? "sum of tokens: wait" : "sum of tokens: start",
                     ECH_ROLE_HOST_SCALARS);
    const int first = next_axis(&b, &token_sum, 0);
    if (first == token_sum.n_axes && !is_wait)
        emit_cell_sums(&b, &token_sum, 0);
    if (first < token_sum.n_axes) {
        ech_operand all = all_cells(&b, &token_sum, first);
        all.region = ECH_REGION_OUT;
        emit_cell_sum(&b, &token_sum, first, &all, !is_wait, is_wait);
        if (is_wait)
            emit_cell_sums(&b, &token_sum, first + 1);
    }
    return ech_builder_finish(&b, out);
}

ech_status ech_block_seed(const ech_block_spec *s, ech_block *out)
{
    ech_builder b;
    ech_operand seed = ech_cell_operand(ECH_CELL_LOSS_SEED);
    seed.place.scale = ech_grad_scale();
    ech_builder_init(&b, s, "loss seed", ECH_ROLE_HOST_SCALARS);
    (void)ECH_EMIT(&b, ECH_OP_LOSS_SEED, ech_cell_operand(ECH_CELL_TOKENS),
                   ech_cell_operand(ECH_CELL_LOSS_SCALE), seed);
    return ech_builder_finish(&b, out);
}

/* The loss is the same on all ranks of tp and the last stage's, a wish to stop is one rank's own. */
ech_status ech_block_loss(const ech_block_spec *s, int micros, ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, s, "loss sum", ECH_ROLE_HOST_SCALARS);
    if (micros)
        (void)ECH_EMIT(&b, ECH_OP_SUM_CELLS, losses_operand(&b, micros, ECH_REGION_IN),
                       cell_before(&b, &loss_sum, 0));
    else
        (void)ECH_EMIT(&b, ECH_OP_ZERO, cell_before(&b, &loss_sum, 0));
    emit_cell_sums(&b, &loss_sum, 0);
    emit_cell_sums(&b, &stop_sum, 0);
    return ech_builder_finish(&b, out);
}

/* --- norm --- */

enum { SUM_CUT, SUM_COPIES, SUM_WHOLE, N_SUMS };

/* One of the three sums, before those over dp, tp and pp. */
static ech_operand exact_sum(const ech_builder *b, int which)
{
    const ech_layout *l = &b->spec->layout;
    ech_operand a = ech_shape(ECH_I64, 1, ECH_SUMSQ_WORDS, 0, 0, 0);
    a.region = ECH_REGION_OUT;
    a.offset = (size_t)which * ECH_SUMSQ_WORDS * 8;
    a.place = ech_stage_placement(l);
    if (b->spec->form.is_sharded)
        a.place.over[ECH_AXIS_DP] = ech_place_of(ECH_PLACE_PARTIAL);
    if (which != SUM_WHOLE && l->degree[ECH_AXIS_TP] > 1)
        a.place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_PARTIAL);
    return a;
}

/* Copies there are of shared heads only; and with one rank of tp everything is cut.  Of the whole
 * model, since all stages' sums are summed. */
static bool has_sum(const ech_block_spec *s, int which)
{
    int64_t whole = 0;
    for (int k = 0; k < ECH_N_UNIT_KINDS; k++)
        whole += s->plan->unit[k].part[ECH_PART_SUMMED].elems +
                 s->plan->unit[k].part[ECH_PART_WHOLE].elems;
    return which == SUM_CUT || (which == SUM_COPIES ? s->plan->heads.copies > 1 : whole > 0);
}

/* Of the two copies of a tied table the embedding's counts. */
static bool is_measured(const ech_block_spec *s, int unit, ech_part part)
{
    return part != ECH_PART_TIED || ech_canon_unit_kind(s->canon, unit) == ECH_UNIT_EMBEDDING;
}

ech_status ech_block_norm_zero(const ech_block_spec *s, ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, s, "gradient norm to zero", ECH_ROLE_HOST_SCALARS);
    for (int k = 0; k < N_SUMS; k++)
        if (has_sum(s, k))
            (void)ECH_EMIT(&b, ECH_OP_ZERO, exact_sum(&b, k));
    return ech_builder_finish(&b, out);
}

/* Where a tensor's copies of keys and values stand in its part: begin, end, period, tail. */
static void set_copies(const ech_block_spec *s, ech_op *op, int at, ech_param_kind kind)
{
    const ech_shard_param *p = ech_shard_find(s->plan, kind);
    if (!p || s->plan->heads.copies == 1)
        return;
    const int64_t period = p->elems / s->plan->heads.groups;
    op->attr[at] = ech_expr_const(p->offset);
    op->attr[at + 1] = ech_expr_const(p->offset + p->elems);
    op->attr[at + 2] = ech_expr_const(period);
    op->attr[at + 3] = ech_expr_const(2 * (period / (s->plan->heads.per_group + 2)));
}

ech_status ech_block_norm(const ech_block_spec *s, int unit, ech_block *out)
{
    ech_builder b;
    const ech_shard_unit *u = ech_shard_unit_of(s->plan, unit);
    ech_builder_init(&b, s, "gradient norm", ECH_ROLE_HOST_SCALARS);
    for (int k = 0; k < ECH_N_PARTS; k++) {
        const ech_part part = (ech_part)k;
        if (!u->part[part].elems || !is_measured(s, unit, part))
            continue;
        const bool is_cut = part == ECH_PART_CUT || part == ECH_PART_TIED;
        ech_op *op =
            ECH_EMIT(&b, ECH_OP_SUMSQ, ech_share_of(&b, ECH_REGION_GRAD, unit, part),
                     exact_sum(&b, is_cut ? SUM_CUT : SUM_WHOLE),
                     is_cut && has_sum(s, SUM_COPIES) ? exact_sum(&b, SUM_COPIES) : ech_absent());
        op->attr[0] = ech_share_first(&b, unit, part);
        if (is_cut && ech_canon_unit_kind(s->canon, unit) == ECH_UNIT_LAYER) {
            set_copies(s, op, 1, ECH_PARAM_QKV);
            set_copies(s, op, 5, ECH_PARAM_QKV_BIAS);
        }
    }
    return ech_builder_finish(&b, out);
}

/* A sum of all ranks' sums over an axis; what is whole there passes. */
static ech_operand emit_exact_sum(ech_builder *b, ech_axis axis, ech_operand from)
{
    ech_operand to = from;
    if (from.place.over[axis].kind == ECH_PLACE_INVARIANT)
        return from;
    to.place.over[axis] = ech_place_of(ECH_PLACE_INVARIANT);
    if (axis == ECH_AXIS_PP)
        to.place = ech_placement_on_stages(to.place);
    to = ech_temp(b, to);
    const ech_operand all = ech_temp(
        b, ech_staging_of(&to, ECH_I64, b->spec->layout.degree[axis] * (int64_t)ECH_SUMSQ_WORDS));
    emit_sum(b, axis, (ech_operand[3]){from, all, to}, true, true);
    return to;
}

ech_status ech_block_norm_end(const ech_block_spec *s, ech_block *out)
{
    ech_builder b;
    ech_operand sum[N_SUMS];
    ech_builder_init(&b, s, "gradient norm and clip", ECH_ROLE_HOST_SCALARS);
    for (int k = 0; k < N_SUMS; k++) {
        sum[k] = ech_absent();
        if (!has_sum(s, k))
            continue;
        sum[k] = emit_exact_sum(&b, ECH_AXIS_DP, exact_sum(&b, k));
        sum[k] = emit_exact_sum(&b, ECH_AXIS_TP, sum[k]);
        sum[k] = emit_exact_sum(&b, ECH_AXIS_PP, sum[k]);
    }
    ech_op *op = ECH_EMIT(&b, ECH_OP_CLIP, sum[SUM_CUT], sum[SUM_COPIES], sum[SUM_WHOLE],
                          ech_cell_operand(ECH_CELL_LOSS_SCALE), ech_cell_operand(ECH_CELL_GRAD_SQ),
                          ech_cell_operand(ECH_CELL_CLIP));
    op->attr[0] = ech_expr_const(s->plan->heads.copies);
    op->real[0] = s->clip;
    return ech_builder_finish(&b, out);
}

/* --- update --- */

/* This rank's flat range of a part. */
static void emit_update(ech_builder *b, int unit, ech_part part)
{
    const ech_block_spec *s = b->spec;
    const ech_shard_part *u = &ech_shard_unit_of(s->plan, unit)->part[part];
    const ech_operand p = ech_share_of(b, ECH_REGION_PARAM, unit, part);
    const ech_operand g = ech_share_of(b, ECH_REGION_GRAD, unit, part);
    const ech_operand lr = ech_cell_operand(ECH_CELL_LR);
    const ech_operand clip = ech_cell_operand(ECH_CELL_CLIP);
    const double decay = u->decayed ? s->weight_decay : 0.0;
    ech_op *op;
    if (s->optim == ECH_UPDATE_SGD) {
        op = ECH_EMIT(b, ECH_OP_SGD, p, g, lr, clip);
        op->real[0] = decay;
    } else {
        op =
            ECH_EMIT(b, ECH_OP_ADAMW, p, g, ech_moment_of(b, unit, part, 0),
                     ech_moment_of(b, unit, part, 1), lr, clip, ech_cell_operand(ECH_CELL_UPDATES));
        op->real[0] = s->beta1;
        op->real[1] = s->beta2;
        op->real[2] = s->eps;
        op->real[3] = decay;
    }
    op->attr[0] = ech_share_first(b, unit, part);
    op->attr[1] = ech_expr_const(u->decayed);
}

ech_status ech_block_update(const ech_block_spec *s, int unit, ech_block *out)
{
    static const char *const names[ECH_N_UNIT_KINDS] = {"embedding", "layer", "head"};
    ech_builder b;
    const ech_shard_unit *u = ech_shard_unit_of(s->plan, unit);
    ech_builder_init(&b, s, names[ech_canon_unit_kind(s->canon, unit)], ECH_ROLE_UPDATE);
    for (int part = 0; part < ECH_N_PARTS; part++)
        if (u->part[part].elems)
            emit_update(&b, unit, (ech_part)part);
    return ech_builder_finish(&b, out);
}
