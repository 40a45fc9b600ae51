/* Embedding and head blocks. */
#include "program/block_builder.h"

static const ech_norm_params final_norm = {ECH_PARAM_FINAL_NORM, ECH_PARAM_FINAL_NORM_BIAS};

/* Token ids or labels of the micro-batch: int32 [N]. */
static ech_operand data_operand(const ech_builder *b)
{
    ech_operand a = ech_activation(b, ECH_REGION_DATA, 0, 0, 0);
    a.dtype = ECH_I32;
    return a;
}

/* --- embedding --- */

static void embedding_forward(ech_builder *b)
{
    const ech_operand out = ech_activation(b, ECH_REGION_OUT, b->spec->model->hidden, 0, 0);
    const ech_operand position =
        b->spec->mode == ECH_MODE_GENERATE ? ech_cell_operand(ECH_CELL_POSITION) : ech_absent();
    ECH_EMIT(b, ECH_OP_EMBED, data_operand(b), ech_param_operand(b, ECH_PARAM_TOKEN_EMBED),
             ech_param_operand(b, ECH_PARAM_POSITION_EMBED), position, out)
        ->attr[0] = ech_expr_const(b->spec->seq);
    if (ech_has_dropout(b))
        ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, out, ech_absent(), out),
                        ECH_RNG_DROPOUT_EMBED);
}

static void embedding_backward(ech_builder *b)
{
    const ech_operand dout = ech_activation_grad(b, ECH_REGION_DOUT, b->spec->model->hidden, 0, 0);
    ech_operand d = dout;
    if (ech_has_dropout(b)) {
        d = ech_temp(b, dout);
        ech_set_dropout(b, ECH_EMIT(b, ECH_OP_DROPOUT, dout, ech_absent(), d),
                        ECH_RNG_DROPOUT_EMBED);
    }
    ECH_EMIT(b, ECH_OP_EMBED_BACKWARD, data_operand(b), d, ech_param_grad(b, ECH_PARAM_TOKEN_EMBED),
             ech_param_grad(b, ECH_PARAM_POSITION_EMBED))
        ->attr[0] = ech_expr_const(b->spec->seq);
}

ech_status ech_block_embedding(const ech_block_spec *s, ech_role role, ech_block *out)
{
    return ech_builder_make(s, "embedding", role, embedding_forward, embedding_backward, out);
}

/* --- head --- */

typedef struct head_saved {
    ech_norm_saved norm;
    ech_operand logits, lse;
} head_saved;

static head_saved keep_head(ech_builder *b)
{
    head_saved s = {.norm = ech_keep_norm(b)};
    const ech_operand logits =
        ech_activation(b, ECH_REGION_NONE, b->spec->canon->vocab_padded, 0, 0);
    if (b->spec->mode == ECH_MODE_GENERATE) {
        s.logits = logits;
        s.logits.region = ECH_REGION_OUT;
        return s;
    }
    s.logits = ech_keep(b, logits);
    s.lse = ech_keep(b, ech_activation(b, ECH_REGION_NONE, 0, 0, 0));
    return s;
}

/* The output table: its own, or the token table borrowed through the TIED regions. */
static ech_operand head_weight(const ech_builder *b)
{
    const bool is_tied = b->spec->model->tie_embeddings;
    ech_operand w = ech_param_operand(b, is_tied ? ECH_PARAM_TOKEN_EMBED : ECH_PARAM_HEAD);
    if (is_tied)
        w.region = ECH_REGION_TIED;
    return w;
}

static ech_operand head_grad(const ech_builder *b)
{
    const bool is_tied = b->spec->model->tie_embeddings;
    ech_operand w = ech_param_grad(b, is_tied ? ECH_PARAM_TOKEN_EMBED : ECH_PARAM_HEAD);
    if (is_tied)
        w.region = ECH_REGION_TIED_GRAD;
    return w;
}

static void head_forward(ech_builder *b)
{
    const head_saved s = keep_head(b);
    ech_operand loss = ech_shape(ECH_F64, 1, 1, 0, 0, 0);
    loss.region = ECH_REGION_OUT;
    loss.place = ech_partial_placement(&b->spec->layout);
    ech_emit_norm(b, final_norm, ech_activation(b, ECH_REGION_IN, b->spec->model->hidden, 0, 0),
                  &s.norm);
    (void)ECH_EMIT(b, ECH_OP_LINEAR, s.norm.y, head_weight(b), ech_absent(), s.logits);
    if (b->spec->mode == ECH_MODE_GENERATE)
        return;
    ECH_EMIT(b, ECH_OP_XENT, s.logits, data_operand(b), s.lse, loss)->attr[0] =
        ech_expr_const(b->spec->model->vocab);
}

static void head_backward(ech_builder *b)
{
    const head_saved s = keep_head(b);
    const ech_operand dlogits = ech_as_grad(s.logits);
    const ech_operand dxn = ech_temp(b, ech_as_grad(s.norm.y));
    ech_operand seed = ech_cell_operand(ECH_CELL_LOSS_SEED);
    seed.place.scale = ech_grad_scale();
    ECH_EMIT(b, ECH_OP_XENT_BACKWARD, dlogits, data_operand(b), s.lse, seed)->attr[0] =
        ech_expr_const(b->spec->model->vocab);
    (void)ECH_EMIT(b, ECH_OP_LINEAR_DGRAD, dlogits, head_weight(b), dxn);
    (void)ECH_EMIT(b, ECH_OP_LINEAR_WGRAD, s.norm.y, dlogits, head_grad(b), ech_absent());
    ech_emit_norm_backward(b, final_norm, &s.norm, dxn, ech_absent());
}

ech_status ech_block_head(const ech_block_spec *s, ech_role role, ech_block *out)
{
    return ech_builder_make(s, "head", role, head_forward, head_backward, out);
}
