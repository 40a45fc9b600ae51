/* Norms and their backward, shared by all block kinds. */
#include "program/block_builder.h"

ech_norm_saved ech_keep_norm(ech_builder *b)
{
    ech_norm_saved s = {.mean = ech_absent()};
    s.y = ech_keep(b, ech_activation(b, ECH_REGION_NONE, b->spec->model->hidden, 0, 0));
    s.rstd = ech_keep(b, ech_activation(b, ECH_REGION_NONE, 0, 0, 0));
    if (b->spec->model->norm == ECH_NORM_LAYER)
        s.mean = ech_keep(b, ech_activation(b, ECH_REGION_NONE, 0, 0, 0));
    return s;
}

void ech_emit_norm(ech_builder *b, ech_norm_params p, ech_operand x, const ech_norm_saved *s)
{
    const ech_operand gamma = ech_param_operand(b, p.weight);
    ech_op *op;
    if (b->spec->model->norm == ECH_NORM_LAYER)
        op = ECH_EMIT(b, ECH_OP_LAYERNORM, x, gamma, ech_param_operand(b, p.bias), s->y, s->mean,
                      s->rstd);
    else
        op = ECH_EMIT(b, ECH_OP_RMSNORM, x, gamma, s->y, s->rstd);
    op->real[0] = b->spec->model->norm_eps;
}

void ech_emit_norm_backward(ech_builder *b, ech_norm_params p, const ech_norm_saved *s,
                            ech_operand dy, ech_operand dres)
{
    const int64_t h = b->spec->model->hidden;
    const ech_operand x = ech_activation(b, ECH_REGION_IN, h, 0, 0);
    const ech_operand dx = ech_activation_grad(b, ECH_REGION_DIN, h, 0, 0);
    const ech_operand gamma = ech_param_operand(b, p.weight);
    const ech_operand dgamma = ech_param_grad(b, p.weight);
    if (b->spec->model->norm == ECH_NORM_LAYER)
        (void)ECH_EMIT(b, ECH_OP_LAYERNORM_BACKWARD, x, gamma, s->mean, s->rstd, dy, dres, dx,
                       dgamma, ech_param_grad(b, p.bias));
    else
        (void)ECH_EMIT(b, ECH_OP_RMSNORM_BACKWARD, x, gamma, s->rstd, dy, dres, dx, dgamma);
}

void ech_emit_linear_backward(ech_builder *b, ech_operand x, ech_operand dy, ech_param_kind w,
                              ech_param_kind bias, ech_operand dx)
{
    (void)ECH_EMIT(b, ECH_OP_LINEAR_DGRAD, dy, ech_param_operand(b, w), dx);
    (void)ECH_EMIT(b, ECH_OP_LINEAR_WGRAD, x, dy, ech_param_grad(b, w), ech_param_grad(b, bias));
}

bool ech_has_dropout(const ech_builder *b)
{
    return b->spec->mode == ECH_MODE_TRAIN && b->spec->model->dropout > 0.0;
}

void ech_set_dropout(const ech_builder *b, ech_op *op, ech_rng_purpose purpose)
{
    op->attr[0] = ech_expr_const(b->spec->seq);
    op->attr[1] = ech_expr_const((int64_t)purpose);
    op->real[0] = b->spec->model->dropout;
}
