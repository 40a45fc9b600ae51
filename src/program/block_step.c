/* Blocks of the step itself: counts, seeds, norms, reductions, updates. */
#include "program/block_builder.h"

/* --- scalars --- */

static ech_operand losses_operand(const ech_builder *b, int micros, ech_region region)
{
    ech_operand a = ech_shape(ECH_F64, 1, micros, 0, 0, 0);
    a.region = region;
    a.place = ech_partial_placement(&b->spec->layout);
    return a;
}

static ech_operand partial_cell(const ech_builder *b, ech_cell cell)
{
    ech_operand a = ech_cell_operand(cell);
    a.place = ech_partial_placement(&b->spec->layout);
    return a;
}

/* The whole gradient as one vector; its placement is that of its bytes at that time. */
static ech_operand grad_vector(const ech_builder *b, int64_t elems, ech_placement place)
{
    ech_operand a = ech_shape(b->spec->real, 1, elems, 0, 0, 0);
    a.region = ECH_REGION_GRAD;
    a.place = place;
    return ech_as_grad(a);
}

ech_status ech_block_prologue(const ech_block_spec *s, int micros, bool has_grads, ech_block *out)
{
    ech_builder b;
    ech_operand labels = ech_shape(ECH_I32, 1, s->rows * s->seq * micros, 0, 0, 0);
    ech_builder_init(&b, s, "prologue", ECH_ROLE_HOST_SCALARS);
    labels.region = ECH_REGION_DATA;
    labels.place = ech_token_placement(&s->layout);
    if (has_grads)
        (void)ECH_EMIT(&b, ECH_OP_ZERO,
                       grad_vector(&b, s->canon->elems, ech_partial_placement(&s->layout)));
    (void)ECH_EMIT(&b, ECH_OP_ZERO, losses_operand(&b, micros, ECH_REGION_OUT));
    (void)ECH_EMIT(&b, ECH_OP_COUNT_TOKENS, labels, partial_cell(&b, ECH_CELL_TOKENS_LOCAL));
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

ech_status ech_block_loss(const ech_block_spec *s, int micros, ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, s, "loss sum", ECH_ROLE_HOST_SCALARS);
    (void)ECH_EMIT(&b, ECH_OP_SUM_CELLS, losses_operand(&b, micros, ECH_REGION_IN),
                   partial_cell(&b, ECH_CELL_LOSS_LOCAL));
    return ech_builder_finish(&b, out);
}

ech_status ech_block_norm(const ech_block_spec *s, ech_block *out)
{
    ech_builder b;
    ech_builder_init(&b, s, "gradient norm", ECH_ROLE_HOST_SCALARS);
    (void)ECH_EMIT(&b, ECH_OP_ZERO, ech_cell_operand(ECH_CELL_GRAD_SQ));
    (void)ECH_EMIT(&b, ECH_OP_SUMSQ, grad_vector(&b, s->canon->elems, ech_placement_invariant()),
                   ech_cell_operand(ECH_CELL_GRAD_SQ));
    ECH_EMIT(&b, ECH_OP_CLIP, ech_cell_operand(ECH_CELL_GRAD_SQ),
             ech_cell_operand(ECH_CELL_LOSS_SCALE), ech_cell_operand(ECH_CELL_CLIP))
        ->real[0] = s->clip;
    return ech_builder_finish(&b, out);
}

/* --- reductions --- */

ech_status ech_block_sum_cells(const ech_block_spec *s, ech_cell from, ech_cell to, int n,
                               bool is_wait, ech_block *out)
{
    ech_builder b;
    const int dp = s->layout.degree[ECH_AXIS_DP];
    ech_builder_init(&b, s, is_wait ? "sum of cells: wait" : "sum of cells: start",
                     ECH_ROLE_TRANSFER);
    ech_operand x = partial_cell(&b, from);
    ech_operand sum = ech_cell_operand(to);
    x.dim[0].bound = sum.dim[0].bound = n;
    if (dp == 1) {
        (void)ECH_EMIT(&b, ECH_OP_COPY, x, sum);
        return ech_builder_finish(&b, out);
    }
    ech_operand all = ech_shape(x.dtype, 1, dp * n, 0, 0, 0);
    all.region = ECH_REGION_OUT; /* every rank's value, left for the host to read */
    ECH_EMIT(&b, is_wait ? ECH_OP_SUM_SMALL_WAIT : ECH_OP_SUM_SMALL_START, x, all, sum)->axis =
        ECH_AXIS_DP;
    return ech_builder_finish(&b, out);
}

ech_status ech_block_all_reduce(const ech_block_spec *s, int64_t elems, bool is_wait,
                                ech_block *out)
{
    ech_builder b;
    const int dp = s->layout.degree[ECH_AXIS_DP];
    ech_builder_init(&b, s,
                     is_wait ? "all-reduce of gradients: wait" : "all-reduce of gradients: start",
                     ECH_ROLE_TRANSFER);
    const ech_operand grad = grad_vector(
        &b, elems, is_wait ? ech_placement_invariant() : ech_partial_placement(&s->layout));
    ech_operand staging = ech_shape(s->real, 1, ech_reduce_staging_elems(elems, dp), 0, 0, 0);
    staging.region = ECH_REGION_OUT;
    ECH_EMIT(&b, is_wait ? ECH_OP_ALL_REDUCE_WAIT : ECH_OP_ALL_REDUCE_START, grad, staging)->axis =
        ECH_AXIS_DP;
    return ech_builder_finish(&b, out);
}

/* --- update --- */

static ech_operand vector_at(const ech_builder *b, ech_region region, int64_t first, int64_t elems)
{
    ech_operand a = ech_shape(b->spec->real, 1, elems, 0, 0, 0);
    a.region = region;
    a.offset = (size_t)first * ech_dtype_bytes(b->spec->real);
    return a;
}

/* Elements [first, first + elems) of a unit, all decayed or all not. */
static void emit_update(ech_builder *b, int unit, int64_t first, int64_t elems, bool is_decayed)
{
    const ech_block_spec *s = b->spec;
    const double decay = is_decayed ? s->weight_decay : 0.0;
    const ech_operand p = vector_at(b, ECH_REGION_PARAM, first, elems);
    const ech_operand g = ech_as_grad(vector_at(b, ECH_REGION_GRAD, first, elems));
    const ech_operand lr = ech_cell_operand(ECH_CELL_LR);
    const ech_operand clip = ech_cell_operand(ECH_CELL_CLIP);
    if (s->optim == ECH_UPDATE_SGD) {
        ECH_EMIT(b, ECH_OP_SGD, p, g, lr, clip)->real[0] = decay;
        return;
    }
    const int64_t all = s->canon->unit_elems[unit]; /* MOMENT holds m, then v, of the unit */
    ech_op *op = ECH_EMIT(b, ECH_OP_ADAMW, p, g, vector_at(b, ECH_REGION_MOMENT, first, elems),
                          vector_at(b, ECH_REGION_MOMENT, all + first, elems), lr, clip,
                          ech_cell_operand(ECH_CELL_UPDATES));
    op->real[0] = s->beta1;
    op->real[1] = s->beta2;
    op->real[2] = s->eps;
    op->real[3] = decay;
}

ech_status ech_block_update(const ech_block_spec *s, int unit, ech_block *out)
{
    ech_builder b;
    const ech_canon *c = s->canon;
    ech_builder_init(&b, s,
                     unit == 0                ? "embedding"
                     : unit == c->n_units - 1 ? "head"
                                              : "layer",
                     ECH_ROLE_UPDATE);
    int i = c->unit_first[unit];
    while (i < c->unit_first[unit + 1]) {
        int64_t elems = 0;
        int k = i;
        for (; k < c->unit_first[unit + 1] && c->param[k].is_decayed == c->param[i].is_decayed; k++)
            elems += c->param[k].elems;
        emit_update(&b, unit, c->param[i].unit_offset, elems, c->param[i].is_decayed);
        i = k;
    }
    return ech_builder_finish(&b, out);
}
