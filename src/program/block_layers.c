/* Attention and MLP blocks. */
#include "program/block_builder.h"

static const ech_norm_params attn_norm = {ECH_PARAM_ATTN_NORM, ECH_PARAM_ATTN_NORM_BIAS};
static const ech_norm_params mlp_norm = {ECH_PARAM_MLP_NORM, ECH_PARAM_MLP_NORM_BIAS};

/* --- residual --- */

/* OUT = IN + dropout(x w^T + bias). */
static void emit_output(ech_builder *b, ech_operand x, ech_param_kind w, ech_param_kind bias,
                        ech_rng_purpose purpose)
{
    const int64_t h = b->spec->model->hidden;
    const ech_operand in = ech_activation(b, ECH_REGION_IN, h, 0, 0);
    const ech_operand out = ech_activation(b, ECH_REGION_OUT, h, 0, 0);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, x, ech_param_operand(b, w), ech_param_operand(b, bias), out);
    if (ech_has_dropout(b))
        ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, out, in, out), purpose);
    else
        (void)ECH_EMIT(b, ECH_OP_ADD, out, in, out);
}

/* Gradient at the output of the last linear: DOUT, or dropout of it. */
static ech_operand emit_output_grad(ech_builder *b, ech_rng_purpose purpose)
{
    const ech_operand dout = ech_activation_grad(b, ECH_REGION_DOUT, b->spec->model->hidden, 0, 0);
    if (!ech_has_dropout(b))
        return dout;
    const ech_operand d = ech_temp(b, dout);
    ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, dout, ech_absent(), d), purpose);
    return d;
}

/* --- attention --- */

typedef struct attention_saved {
    ech_norm_saved norm;
    ech_operand raw, rstd_qk; /* with QK-norm: before it */
    ech_operand qkv, out, lse;
} attention_saved;

static int64_t group_heads(const ech_model *m)
{
    return m->heads / m->kv_heads;
}

static attention_saved keep_attention(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    const int64_t g = m->kv_heads;
    const int64_t r = group_heads(m);
    const int64_t d = m->head_dim;
    attention_saved s = {.norm = ech_keep_norm(b), .raw = ech_absent(), .rstd_qk = ech_absent()};
    const ech_operand qkv = ech_activation(b, ECH_REGION_NONE, g, r + 2, d);
    if (m->qk_norm) {
        s.raw = ech_keep(b, qkv);
        s.rstd_qk = ech_keep(b, ech_activation(b, ECH_REGION_NONE, g, r + 1, 0));
    }
    s.qkv = ech_keep(b, qkv);
    s.out = ech_keep(b, ech_activation(b, ECH_REGION_NONE, g, r * d, 0));
    if (b->spec->mode != ECH_MODE_GENERATE)
        s.lse = ech_keep(b, ech_activation(b, ECH_REGION_NONE, g, r, 0));
    return s;
}

static ech_operand as_rows(ech_operand a)
{
    int64_t n = 1;
    for (int d = 1; d < a.rank; d++)
        n *= a.dim[d].bound;
    return ech_reshape(a, 2, n, 0, 0);
}

static void emit_rope(ech_builder *b, ech_operand qkv, bool inverse)
{
    const ech_block_spec *s = b->spec;
    const bool generates = s->mode == ECH_MODE_GENERATE;
    const int64_t positions = generates ? s->context : s->seq;
    const int64_t elems = ech_rope_table_elems(s->model, positions);
    if (!elems)
        return;
    ech_operand table = ech_shape(ECH_F64, 3, positions, elems / positions / 2, 2, 0);
    table.region = ECH_REGION_CONST;
    ech_op *op = ECH_EMIT(b, ECH_OP_ROPE, qkv, table,
                          generates ? ech_cell_operand(ECH_CELL_POSITION) : ech_absent());
    op->attr[0] = ech_expr_const(s->seq);
    op->attr[1] = ech_expr_const(inverse);
    op->attr[2] = ech_expr_const(s->model->rope.interleaved);
}

static void set_attention(const ech_builder *b, ech_op *op)
{
    const ech_model *m = b->spec->model;
    op->attr[0] = ech_expr_const(b->spec->seq);
    op->attr[1] = ech_expr_const(m->window < b->spec->seq ? m->window : 0);
    op->attr[2] = ech_expr_const(ECH_RNG_DROPOUT_ATTENTION);
    op->real[0] = 1.0 / __builtin_sqrt((double)m->head_dim);
    op->real[1] = ech_has_dropout(b) ? m->dropout : 0.0;
}

static void emit_cached(ech_builder *b, const attention_saved *s)
{
    const ech_model *m = b->spec->model;
    ech_operand k = ech_shape(b->spec->real, 3, b->spec->context, m->kv_heads, m->head_dim, 0);
    const ech_operand v = ech_append(b, ECH_REGION_CACHE, k);
    k = ech_append(b, ECH_REGION_CACHE, k);
    ech_op *op = ECH_EMIT(b, ECH_OP_ATTENTION_CACHED, s->qkv, k, v,
                          ech_cell_operand(ECH_CELL_POSITION), s->out);
    op->attr[0] = ech_expr_const(m->window < b->spec->context ? m->window : 0);
    op->real[0] = 1.0 / __builtin_sqrt((double)m->head_dim);
}

static void attention_forward(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    const attention_saved s = keep_attention(b);
    const ech_operand first = m->qk_norm ? s.raw : s.qkv;
    ech_emit_norm(b, attn_norm, ech_activation(b, ECH_REGION_IN, m->hidden, 0, 0), &s.norm);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, s.norm.y, ech_param_operand(b, ECH_PARAM_QKV),
                   ech_param_operand(b, ECH_PARAM_QKV_BIAS), as_rows(first));
    if (m->qk_norm)
        ECH_EMIT(b, ECH_OP_QK_NORM, s.raw, ech_param_operand(b, ECH_PARAM_Q_NORM),
                 ech_param_operand(b, ECH_PARAM_K_NORM), s.qkv, s.rstd_qk)
            ->real[0] = m->norm_eps;
    emit_rope(b, s.qkv, false);
    if (b->spec->mode == ECH_MODE_GENERATE)
        emit_cached(b, &s);
    else
        set_attention(b, ECH_EMIT(b, ECH_OP_ATTENTION, s.qkv, s.out, s.lse));
    emit_output(b, as_rows(s.out), ECH_PARAM_ATTN_OUT, ECH_PARAM_ATTN_OUT_BIAS,
                ECH_RNG_DROPOUT_ATTENTION_OUT);
}

static void attention_backward(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    const attention_saved s = keep_attention(b);
    const ech_operand dy = emit_output_grad(b, ECH_RNG_DROPOUT_ATTENTION_OUT);
    const ech_operand dout = ech_temp(b, ech_as_grad(s.out));
    const ech_operand dqkv = ech_temp(b, ech_as_grad(s.qkv));
    const ech_operand dxn = ech_temp(b, ech_as_grad(s.norm.y));
    ech_emit_linear_backward(b, as_rows(s.out), dy, ECH_PARAM_ATTN_OUT, ECH_PARAM_ATTN_OUT_BIAS,
                             as_rows(dout));
    set_attention(b, ECH_EMIT(b, ECH_OP_ATTENTION_BACKWARD, s.qkv, s.out, s.lse, dout, dqkv));
    emit_rope(b, dqkv, true);
    if (m->qk_norm)
        (void)ECH_EMIT(b, ECH_OP_QK_NORM_BACKWARD, s.raw, ech_param_operand(b, ECH_PARAM_Q_NORM),
                       ech_param_operand(b, ECH_PARAM_K_NORM), s.rstd_qk, dqkv,
                       ech_param_grad(b, ECH_PARAM_Q_NORM), ech_param_grad(b, ECH_PARAM_K_NORM));
    ech_emit_linear_backward(b, s.norm.y, as_rows(dqkv), ECH_PARAM_QKV, ECH_PARAM_QKV_BIAS, dxn);
    ech_emit_norm_backward(b, attn_norm, &s.norm, dxn,
                           ech_activation_grad(b, ECH_REGION_DOUT, m->hidden, 0, 0));
}

ech_status ech_block_attention(const ech_block_spec *s, ech_role role, ech_block *out)
{
    return ech_builder_make(s, "attention", role, attention_forward, attention_backward, out);
}

/* --- MLP --- */

typedef struct mlp_saved {
    ech_norm_saved norm;
    ech_operand up; /* gate and up [N, 2, F], or up [N, F] */
    ech_operand act;
} mlp_saved;

static bool is_gated(const ech_model *m)
{
    return m->act == ECH_ACT_SWIGLU;
}

static mlp_saved keep_mlp(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    mlp_saved s = {.norm = ech_keep_norm(b)};
    s.up = ech_keep(b, is_gated(m) ? ech_activation(b, ECH_REGION_NONE, 2, m->ffn, 0)
                                   : ech_activation(b, ECH_REGION_NONE, m->ffn, 0, 0));
    s.act = ech_keep(b, ech_activation(b, ECH_REGION_NONE, m->ffn, 0, 0));
    return s;
}

static ech_param_kind up_kind(const ech_model *m)
{
    return is_gated(m) ? ECH_PARAM_GATE_UP : ECH_PARAM_UP;
}

static void mlp_forward(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    const mlp_saved s = keep_mlp(b);
    ech_emit_norm(b, mlp_norm, ech_activation(b, ECH_REGION_IN, m->hidden, 0, 0), &s.norm);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, s.norm.y, ech_param_operand(b, up_kind(m)),
                   ech_param_operand(b, ECH_PARAM_UP_BIAS), as_rows(s.up));
    (void)ECH_EMIT(b, is_gated(m) ? ECH_OP_SWIGLU : ECH_OP_GELU, s.up, s.act);
    emit_output(b, s.act, ECH_PARAM_DOWN, ECH_PARAM_DOWN_BIAS, ECH_RNG_DROPOUT_MLP);
}

static void mlp_backward(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    const mlp_saved s = keep_mlp(b);
    const ech_operand dy = emit_output_grad(b, ECH_RNG_DROPOUT_MLP);
    const ech_operand dact = ech_temp(b, ech_as_grad(s.act));
    const ech_operand dup = is_gated(m) ? ech_temp(b, ech_as_grad(s.up)) : dact;
    const ech_operand dxn = ech_temp(b, ech_as_grad(s.norm.y));
    ech_emit_linear_backward(b, s.act, dy, ECH_PARAM_DOWN, ECH_PARAM_DOWN_BIAS, dact);
    (void)ECH_EMIT(b, is_gated(m) ? ECH_OP_SWIGLU_BACKWARD : ECH_OP_GELU_BACKWARD, s.up, dact, dup);
    ech_emit_linear_backward(b, s.norm.y, as_rows(dup), up_kind(m), ECH_PARAM_UP_BIAS, dxn);
    ech_emit_norm_backward(b, mlp_norm, &s.norm, dxn,
                           ech_activation_grad(b, ECH_REGION_DOUT, m->hidden, 0, 0));
}

ech_status ech_block_mlp(const ech_block_spec *s, ech_role role, ech_block *out)
{
    return ech_builder_make(s, "mlp", role, mlp_forward, mlp_backward, out);
}
