/* Norms and their backward, shared by all block kinds. */
#include "program/block_builder.h"

/* Kept gathered, y is not kept by tokens. */
static bool keeps_gathered(const ech_builder *b)
{
    return ech_is_dealt(b) && b->spec->policy.keeps_inputs;
}

ech_norm_saved ech_keep_norm(ech_builder *b)
{
    ech_norm_saved s = {.mean = ech_absent()};
    s.y = ech_keep_for_weight(
        b, keeps_gathered(b) ? ech_activation(b, ECH_REGION_NONE, b->spec->model->hidden, 0, 0)
                             : ech_stream(b, ECH_REGION_NONE));
    s.rstd = ech_keep(b, ech_stream_vector(b, ECH_REGION_NONE));
    if (b->spec->model->norm == ECH_NORM_LAYER)
        s.mean = ech_keep(b, ech_stream_vector(b, ECH_REGION_NONE));
    return s;
}

ech_operand ech_emit_norm(ech_builder *b, ech_norm_params p, ech_operand x, const ech_norm_saved *s)
{
    const ech_operand gamma = ech_param_operand(b, p.weight);
    const bool gathered = keeps_gathered(b);
    const ech_operand y = gathered ? ech_temp(b, ech_stream(b, ECH_REGION_NONE)) : s->y;
    ech_op *op;
    if (b->spec->model->norm == ECH_NORM_LAYER)
        op = ECH_EMIT(b, ECH_OP_LAYERNORM, x, gamma, ech_param_operand(b, p.bias), y, s->mean,
                      s->rstd);
    else
        op = ECH_EMIT(b, ECH_OP_RMSNORM, x, gamma, y, s->rstd);
    op->real[0] = b->spec->model->norm_eps;
    return ech_emit_gather(b, y, gathered ? s->y : ech_absent());
}

ech_operand ech_normed_again(ech_builder *b, const ech_norm_saved *s)
{
    ech_emit_for(b, ECH_FOR_WEIGHT);
    return keeps_gathered(b) ? s->y : ech_emit_gather(b, s->y, ech_absent());
}

void ech_emit_norm_backward(ech_builder *b, ech_norm_params p, const ech_norm_saved *s,
                            ech_operand dy, ech_operand dres)
{
    const ech_operand x = ech_stream(b, ECH_REGION_IN);
    const ech_operand dx = ech_as_grad(ech_stream(b, ECH_REGION_DIN));
    const ech_operand gamma = ech_param_operand(b, p.weight);
    const ech_operand dgamma = ech_param_grad(b, p.weight);
    ech_emit_for(b, ECH_FOR_INPUT);
    if (b->spec->model->norm == ECH_NORM_LAYER)
        (void)ECH_EMIT(b, ECH_OP_LAYERNORM_BACKWARD, x, gamma, s->mean, s->rstd, dy, dres, dx,
                       dgamma, ech_param_grad(b, p.bias));
    else
        (void)ECH_EMIT(b, ECH_OP_RMSNORM_BACKWARD, x, gamma, s->rstd, dy, dres, dx, dgamma);
}

void ech_emit_column_backward(ech_builder *b, const ech_linear_grad *g, ech_operand dx)
{
    ech_operand partial = ech_partial_for(b, dx);
    partial.place.over[ECH_AXIS_KV] = g->dy.place.over[ECH_AXIS_KV];
    ech_emit_for(b, ECH_FOR_INPUT);
    (void)ECH_EMIT(b, ECH_OP_LINEAR_DGRAD, g->dy, g->w, partial);
    const ech_pending_sum sum = ech_emit_sum_start(b, partial, dx);
    ech_emit_for(b, ECH_FOR_WEIGHT);
    (void)ECH_EMIT(b, ECH_OP_LINEAR_WGRAD, g->x, g->dy, g->dw, g->dbias);
    ech_emit_for(b, ECH_FOR_INPUT);
    ech_emit_sum_wait(b, &sum);
}

bool ech_has_dropout(const ech_builder *b)
{
    return b->spec->mode == ECH_MODE_TRAIN && b->spec->model->dropout > 0.0;
}

void ech_set_dropout(const ech_builder *b, ech_op *op, ech_rng_purpose purpose)
{
    op->attr[0] = ech_expr_const(b->spec->seq);
    op->attr[1] = ech_expr_const((int64_t)purpose);
    op->attr[2] = ech_first_token(b);
    op->real[0] = b->spec->model->dropout;
}
