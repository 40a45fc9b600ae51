/* Attention and MLP blocks. */
#include "program/block_builder.h"

static const ech_norm_params attn_norm = {ECH_PARAM_ATTN_NORM, ECH_PARAM_ATTN_NORM_BIAS};
static const ech_norm_params mlp_norm = {ECH_PARAM_MLP_NORM, ECH_PARAM_MLP_NORM_BIAS};

/* --- residual --- */

static bool is_cut(const ech_builder *b)
{
    return b->spec->layout.degree[ECH_AXIS_TP] > 1;
}

/* OUT = IN + dropout(x w^T + bias).  Row-parallel, the bias is added once: after the sum. */
static void emit_output(ech_builder *b, ech_operand x, ech_param_kind w, ech_param_kind bias,
                        ech_rng_purpose purpose)
{
    const ech_operand in = ech_stream(b, ECH_REGION_IN);
    const ech_operand out = ech_stream(b, ECH_REGION_OUT);
    const ech_operand partial = ech_partial_for(b, out);
    const ech_operand added = ech_param_operand(b, bias);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, x, ech_param_operand(b, w), is_cut(b) ? ech_absent() : added,
                   partial);
    const ech_pending_sum sum = ech_emit_sum_start(b, partial, out);
    ech_emit_sum_wait(b, &sum);
    if (is_cut(b) && added.region != ECH_REGION_NONE)
        (void)ECH_EMIT(b, ECH_OP_BIAS, out, added);
    if (ech_has_dropout(b))
        ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, out, in, out), purpose);
    else
        (void)ECH_EMIT(b, ECH_OP_ADD, out, in, out);
}

/* Gradient at the output of the last linear, of the stream's tokens: DOUT, or dropout of it. */
static ech_operand emit_output_grad(ech_builder *b, ech_rng_purpose purpose)
{
    const ech_operand dout = ech_as_grad(ech_stream(b, ECH_REGION_DOUT));
    if (!ech_has_dropout(b))
        return dout;
    const ech_operand d = ech_is_dealt(b) ? ech_temp(b, dout) : ech_hand_on(b, dout);
    ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, dout, ech_absent(), d), purpose);
    return d;
}

/* It, of all tokens. */
static ech_operand emit_gathered_grad(ech_builder *b, ech_operand d)
{
    return ech_is_dealt(b) ? ech_emit_gather(b, d, ech_hand_on(b, ech_all_tokens(b, d))) : d;
}

/* What the bias' gradient is made of: this rank's tokens.  Where backward is split, of dy of all
 * tokens its share: that is handed on in any case, d need not be. */
static ech_operand own_tokens(const ech_builder *b, ech_operand d, ech_operand dy)
{
    if (!b->spec->splits_backward || !ech_is_dealt(b))
        return d;
    d.region = dy.region;
    d.offset = dy.offset;
    d.shift = (ech_shift){ECH_AXIS_TP, ech_operand_bytes(&d)};
    return d;
}

/* Backward of emit_output's product: dx = dy w and the gradients of w and bias. */
static void emit_row_backward(ech_builder *b, ech_operand x, ech_param_kind w, ech_param_kind bias,
                              ech_operand dx, ech_rng_purpose purpose)
{
    ech_emit_for(b, ECH_FOR_INPUT);
    const ech_operand d = emit_output_grad(b, purpose);
    const ech_operand dbias = ech_param_grad(b, bias);
    const ech_operand dy = emit_gathered_grad(b, d);
    ech_emit_for(b, ECH_FOR_WEIGHT);
    if (is_cut(b) && dbias.region != ECH_REGION_NONE)
        (void)ECH_EMIT(b, ECH_OP_BIAS_BACKWARD, own_tokens(b, d, dy), dbias);
    ech_emit_for(b, ECH_FOR_INPUT);
    (void)ECH_EMIT(b, ECH_OP_LINEAR_DGRAD, dy, ech_param_operand(b, w), dx);
    ech_emit_for(b, ECH_FOR_WEIGHT);
    (void)ECH_EMIT(b, ECH_OP_LINEAR_WGRAD, x, dy, ech_param_grad(b, w),
                   is_cut(b) ? ech_absent() : dbias);
}

/* --- attention --- */

typedef struct attention_saved {
    ech_norm_saved norm;
    ech_operand raw, rstd_qk; /* with QK-norm: before it */
    ech_operand qkv, out, lse;
} attention_saved;

/* Heads of this rank; keys and values that other ranks hold too are R over kv. */
static ech_operand heads_operand(const ech_builder *b, int64_t d2, int64_t d3, bool is_shared)
{
    const int64_t groups = b->spec->plan->heads.groups;
    ech_operand a = ech_activation(b, ECH_REGION_NONE, groups, d2, d3);
    if (is_shared && b->spec->layout.degree[ECH_AXIS_KV] > 1)
        a.place.over[ECH_AXIS_KV] = ech_place_of(ECH_PLACE_REPLICATED);
    return ech_cut_over_tp(b, a, 1, ECH_MAP_HEAD_GROUP);
}

static attention_saved keep_attention(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    const int64_t r = b->spec->plan->heads.per_group;
    const int64_t d = m->head_dim;
    attention_saved s = {.norm = ech_keep_norm(b), .raw = ech_absent(), .rstd_qk = ech_absent()};
    if (m->qk_norm) {
        s.raw = ech_keep(b, heads_operand(b, r + 2, d, true));
        s.rstd_qk = ech_keep(b, heads_operand(b, r + 1, 0, true));
    }
    s.qkv = ech_keep(b, heads_operand(b, r + 2, d, true));
    s.out = ech_keep_for_weight(b, heads_operand(b, r * d, 0, false));
    if (b->spec->mode != ECH_MODE_GENERATE)
        s.lse = ech_keep(b, heads_operand(b, r, 0, false));
    return s;
}

/* The gradient of qkv: of shared keys and values a partial sum over those who hold them. */
static ech_operand qkv_grad(ech_builder *b, const attention_saved *s)
{
    ech_operand d = ech_as_grad(s->qkv);
    if (b->spec->layout.degree[ECH_AXIS_KV] > 1)
        d.place.over[ECH_AXIS_KV] = ech_place_of(ECH_PLACE_PARTIAL);
    return ech_hand_on(b, d);
}

/* [N, everything else]. */
static ech_operand as_rows(ech_operand a)
{
    int64_t n = 1;
    for (int d = 1; d < a.rank; d++)
        n *= a.dim[d].bound;
    for (int x = 0; x < ECH_N_AXES; x++)
        if (a.place.over[x].kind == ECH_PLACE_SHARDED && a.place.over[x].dim > 1)
            a.place.over[x].dim = 1;
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
    op->attr[3] = ech_expr_binary(ECH_EXPR_MUL, ech_expr_coord(ECH_AXIS_TP),
                                  ech_expr_const(m->heads / b->spec->layout.degree[ECH_AXIS_TP]));
    op->attr[4] = ech_expr_const(m->heads);
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
    const ech_operand y = ech_emit_norm(b, attn_norm, ech_stream(b, ECH_REGION_IN), &s.norm);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, y, ech_param_operand(b, ECH_PARAM_QKV),
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
    const ech_operand dout = ech_temp(b, ech_as_grad(s.out));
    const ech_operand dqkv = qkv_grad(b, &s);
    const ech_operand dxn = ech_temp(b, ech_as_grad(ech_stream(b, ECH_REGION_NONE)));
    emit_row_backward(b, as_rows(s.out), ECH_PARAM_ATTN_OUT, ECH_PARAM_ATTN_OUT_BIAS, as_rows(dout),
                      ECH_RNG_DROPOUT_ATTENTION_OUT);
    ech_emit_for(b, ECH_FOR_INPUT);
    set_attention(b, ECH_EMIT(b, ECH_OP_ATTENTION_BACKWARD, s.qkv, s.out, s.lse, dout, dqkv));
    emit_rope(b, dqkv, true);
    if (m->qk_norm)
        (void)ECH_EMIT(b, ECH_OP_QK_NORM_BACKWARD, s.raw, ech_param_operand(b, ECH_PARAM_Q_NORM),
                       ech_param_operand(b, ECH_PARAM_K_NORM), s.rstd_qk, dqkv,
                       ech_param_grad(b, ECH_PARAM_Q_NORM), ech_param_grad(b, ECH_PARAM_K_NORM));
    const ech_linear_grad g = {.x = ech_normed_again(b, &s.norm),
                               .dy = as_rows(dqkv),
                               .w = ech_param_operand(b, ECH_PARAM_QKV),
                               .dw = ech_param_grad(b, ECH_PARAM_QKV),
                               .dbias = ech_param_grad(b, ECH_PARAM_QKV_BIAS)};
    ech_emit_column_backward(b, &g, dxn);
    ech_emit_norm_backward(b, attn_norm, &s.norm, dxn, ech_as_grad(ech_stream(b, ECH_REGION_DOUT)));
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
    const int64_t f = ech_shard_find(b->spec->plan, ECH_PARAM_DOWN)->dim[1];
    const ech_index_map map = is_gated(m) ? ECH_MAP_GATE_UP : ECH_MAP_CONTIGUOUS;
    mlp_saved s = {.norm = ech_keep_norm(b)};
    const ech_operand act = ech_activation(b, ECH_REGION_NONE, f, 0, 0);
    const ech_operand up = is_gated(m) ? ech_activation(b, ECH_REGION_NONE, 2, f, 0) : act;
    s.up = ech_keep(b, ech_cut_over_tp(b, up, up.rank - 1, map));
    s.act = ech_keep_for_weight(b, ech_cut_over_tp(b, act, 1, map));
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
    const ech_operand y = ech_emit_norm(b, mlp_norm, ech_stream(b, ECH_REGION_IN), &s.norm);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, y, ech_param_operand(b, up_kind(m)),
                   ech_param_operand(b, ECH_PARAM_UP_BIAS), as_rows(s.up));
    (void)ECH_EMIT(b, is_gated(m) ? ECH_OP_SWIGLU : ECH_OP_GELU, s.up, s.act);
    emit_output(b, s.act, ECH_PARAM_DOWN, ECH_PARAM_DOWN_BIAS, ECH_RNG_DROPOUT_MLP);
}

static void mlp_backward(ech_builder *b)
{
    const ech_model *m = b->spec->model;
    const mlp_saved s = keep_mlp(b);
    const ech_operand dact =
        is_gated(m) ? ech_temp(b, ech_as_grad(s.act)) : ech_hand_on(b, ech_as_grad(s.act));
    const ech_operand dup = is_gated(m) ? ech_hand_on(b, ech_as_grad(s.up)) : dact;
    const ech_operand dxn = ech_temp(b, ech_as_grad(ech_stream(b, ECH_REGION_NONE)));
    emit_row_backward(b, s.act, ECH_PARAM_DOWN, ECH_PARAM_DOWN_BIAS, dact, ECH_RNG_DROPOUT_MLP);
    ech_emit_for(b, ECH_FOR_INPUT);
    (void)ECH_EMIT(b, is_gated(m) ? ECH_OP_SWIGLU_BACKWARD : ECH_OP_GELU_BACKWARD, s.up, dact, dup);
    const ech_linear_grad g = {.x = ech_normed_again(b, &s.norm),
                               .dy = as_rows(dup),
                               .w = ech_param_operand(b, up_kind(m)),
                               .dw = ech_param_grad(b, up_kind(m)),
                               .dbias = ech_param_grad(b, ECH_PARAM_UP_BIAS)};
    ech_emit_column_backward(b, &g, dxn);
    ech_emit_norm_backward(b, mlp_norm, &s.norm, dxn, ech_as_grad(ech_stream(b, ECH_REGION_DOUT)));
}

ech_status ech_block_mlp(const ech_block_spec *s, ech_role role, ech_block *out)
{
    return ech_builder_make(s, "mlp", role, mlp_forward, mlp_backward, out);
}
