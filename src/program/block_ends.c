/* Embedding and head blocks. */
#include "program/block_builder.h"

static const ech_norm_params final_norm = {ECH_PARAM_FINAL_NORM, ECH_PARAM_FINAL_NORM_BIAS};

/* Token ids or labels of the micro-batch: int32 [N]. */
static ech_operand data_operand(const ech_builder *b)
{
    ech_operand a = ech_activation(b, ECH_REGION_DATA, 0, 0, 0);
    a.place = ech_data_placement(&b->spec->layout);
    a.dtype = ECH_I32;
    return a;
}

/* First row of a table's share: rows * tp coordinate. */
static ech_expr first_row(const ech_operand *table)
{
    return ech_expr_binary(ECH_EXPR_MUL, ech_expr_coord(ECH_AXIS_TP),
                           ech_expr_const(table->dim[0].bound));
}

/* --- embedding --- */

/* y += positions, after tokens of all shares of the table have been summed. */
static void emit_positions(ech_builder *b, ech_operand y)
{
    const bool generates = b->spec->mode == ECH_MODE_GENERATE;
    const ech_operand table = ech_param_operand(b, ECH_PARAM_POSITION_EMBED);
    if (table.region == ECH_REGION_NONE)
        return;
    ech_op *op = ECH_EMIT(b, ECH_OP_POSITIONS, y, table,
                          generates ? ech_cell_operand(ECH_CELL_POSITION) : ech_absent());
    op->attr[0] = ech_expr_const(b->spec->seq);
    op->attr[1] = ech_first_token(b);
}

static void embedding_forward(ech_builder *b)
{
    const ech_operand out = ech_stream(b, ECH_REGION_OUT);
    const ech_operand partial = ech_partial_for(b, out);
    const ech_operand table = ech_param_operand(b, ECH_PARAM_TOKEN_EMBED);
    ECH_EMIT(b, ECH_OP_EMBED, data_operand(b), table, partial)->attr[0] = first_row(&table);
    const ech_pending_sum sum = ech_emit_sum_start(b, partial, out);
    ech_emit_sum_wait(b, &sum);
    emit_positions(b, out);
    if (ech_has_dropout(b))
        ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, out, ech_absent(), out),
                        ECH_RNG_DROPOUT_EMBED);
}

static void emit_positions_backward(ech_builder *b, ech_operand d)
{
    const ech_operand table = ech_param_grad(b, ECH_PARAM_POSITION_EMBED);
    if (table.region == ECH_REGION_NONE)
        return;
    ech_op *op = ECH_EMIT(b, ECH_OP_POSITIONS_BACKWARD, d, table);
    op->attr[0] = ech_expr_const(b->spec->seq);
    op->attr[1] = ech_first_token(b);
}

static void embedding_backward(ech_builder *b)
{
    const ech_operand dout = ech_as_grad(ech_stream(b, ECH_REGION_DOUT));
    const ech_operand dtable = ech_param_grad(b, ECH_PARAM_TOKEN_EMBED);
    ech_operand d = dout;
    if (ech_has_dropout(b)) {
        d = ech_temp(b, dout);
        ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, dout, ech_absent(), d),
                        ECH_RNG_DROPOUT_EMBED);
    }
    emit_positions_backward(b, d);
    ECH_EMIT(b, ECH_OP_EMBED_BACKWARD, data_operand(b), ech_emit_gather(b, d, ech_absent()), dtable)
        ->attr[0] = first_row(&dtable);
}

bool ech_unit_has_weight_role(ech_unit_kind kind)
{
    return kind != ECH_UNIT_EMBEDDING;
}

ech_status ech_block_embedding(const ech_block_spec *s, ech_role role, ech_block *out)
{
    ECH_CHECK(role != ECH_ROLE_BACKWARD_WEIGHT, ECH_E_UNSUPPORTED,
              "no block 'embedding backward (weight)': all of its backward is for input");
    return ech_builder_make(s, "embedding", role, embedding_forward, embedding_backward, out);
}

/* --- head --- */

typedef struct head_saved {
    ech_norm_saved norm;
    ech_operand logits, lse;
} head_saved;

static head_saved keep_head(ech_builder *b)
{
    const ech_param_kind table =
        b->spec->model->tie_embeddings ? ECH_PARAM_TOKEN_EMBED : ECH_PARAM_HEAD;
    const int64_t columns = ech_shard_find(b->spec->plan, table)->dim[0];
    head_saved s = {.norm = ech_keep_norm(b)};
    const ech_operand logits = ech_cut_over_tp(b, ech_activation(b, ECH_REGION_NONE, columns, 0, 0),
                                               1, ECH_MAP_CONTIGUOUS);
    if (b->spec->mode == ECH_MODE_GENERATE) {
        s.logits = logits;
        s.logits.region = ECH_REGION_OUT;
        return s;
    }
    s.logits = ech_keep_for_weight(b, logits);
    s.lse = ech_keep(b, ech_activation(b, ECH_REGION_NONE, 0, 0, 0));
    return s;
}

/* The output table: its own, a copy of the token table, or that borrowed through the TIED regions. */
static ech_operand head_weight(const ech_builder *b)
{
    const bool is_tied = b->spec->model->tie_embeddings;
    ech_operand w = ech_param_operand(b, is_tied ? ECH_PARAM_TOKEN_EMBED : ECH_PARAM_HEAD);
    if (is_tied && !b->spec->plan->is_tied_apart)
        w.region = ECH_REGION_TIED;
    return w;
}

static ech_operand head_grad(const ech_builder *b)
{
    const bool is_tied = b->spec->model->tie_embeddings;
    ech_operand w = ech_param_grad(b, is_tied ? ECH_PARAM_TOKEN_EMBED : ECH_PARAM_HEAD);
    if (is_tied && !b->spec->plan->is_tied_apart)
        w.region = ECH_REGION_TIED_GRAD;
    return w;
}

static void set_vocabulary(const ech_builder *b, ech_op *op, const ech_operand *table)
{
    op->attr[0] = ech_expr_const(b->spec->model->vocab);
    op->attr[1] = first_row(table);
}

/* Every rank's log-sum and label's logit for each token, fp64 [tp, 2, N], on all: the logits
 * themselves stay where they are. */
static ech_operand emit_parts(ech_builder *b, const head_saved *s, const ech_operand *table)
{
    const int tp = b->spec->layout.degree[ECH_AXIS_TP];
    const int64_t n = b->spec->rows * b->spec->seq;
    ech_operand mine = ech_shape(ECH_F64, 3, 1, 2, n, 0);
    mine.place = ech_token_placement(&b->spec->layout);
    for (int x = 0; x < ECH_N_AXES; x++)
        if (mine.place.over[x].kind == ECH_PLACE_SHARDED)
            mine.place.over[x].dim = 2;
    ech_operand all = mine;
    mine = ech_temp(b, ech_cut_over_tp(b, mine, 0, ECH_MAP_CONTIGUOUS));
    set_vocabulary(b, ECH_EMIT(b, ECH_OP_XENT_SHARD, s->logits, data_operand(b), mine), table);
    if (tp == 1)
        return mine;
    all.dim[0].bound = tp;
    all = ech_temp(b, all);
    ech_emit_gather_over_tp(b, mine, all);
    return all;
}

static void head_forward(ech_builder *b)
{
    const head_saved s = keep_head(b);
    const ech_operand table = head_weight(b);
    ech_operand loss = ech_shape(ECH_F64, 1, 1, 0, 0, 0);
    loss.region = ECH_REGION_OUT;
    loss.place = ech_partial_placement(&b->spec->layout);
    const ech_operand y = ech_emit_norm(b, final_norm, ech_stream(b, ECH_REGION_IN), &s.norm);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, y, table, ech_absent(), s.logits);
    if (b->spec->mode == ECH_MODE_GENERATE)
        return;
    (void)ECH_EMIT(b, ECH_OP_XENT, emit_parts(b, &s, &table), data_operand(b), s.lse, loss);
}

static void head_backward(ech_builder *b)
{
    const head_saved s = keep_head(b);
    const ech_operand table = head_weight(b);
    const ech_operand dlogits = ech_as_grad(s.logits);
    const ech_operand dxn = ech_temp(b, ech_as_grad(ech_stream(b, ECH_REGION_NONE)));
    ech_operand seed = ech_cell_operand(ECH_CELL_LOSS_SEED);
    seed.place.scale = ech_grad_scale();
    ech_emit_for(b, ECH_FOR_INPUT);
    set_vocabulary(b, ECH_EMIT(b, ECH_OP_XENT_BACKWARD, dlogits, data_operand(b), s.lse, seed),
                   &table);
    const ech_linear_grad g = {.x = ech_normed_again(b, &s.norm),
                               .dy = dlogits,
                               .w = table,
                               .dw = head_grad(b),
                               .dbias = ech_absent()};
    ech_emit_column_backward(b, &g, dxn);
    ech_emit_norm_backward(b, final_norm, &s.norm, dxn, ech_absent());
}

ech_status ech_block_head(const ech_block_spec *s, ech_role role, ech_block *out)
{
    return ech_builder_make(s, "head", role, head_forward, head_backward, out);
}
