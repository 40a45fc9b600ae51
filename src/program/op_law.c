#include "program/op_law.h"

static int64_t dim(const ech_op *op, int arg, int d)
{
    return op->arg[arg].dim[d].bound;
}

static ech_status want(const ech_op *op, bool holds, const char *law, int64_t a, int64_t b)
{
    ECH_CHECK(holds, ECH_E_PROOF, "%s: %s, got %lld and %lld", ech_op_name(op->kind), law,
              (long long)a, (long long)b);
    return ECH_OK;
}

/* Attribute `at` is a constant >= 1. */
static ech_status read_constant(const ech_op *op, int at, int64_t *value)
{
    const ech_expr *e = &op->attr[at];
    ECH_CHECK(e->n == 1 && e->node[0].op == ECH_EXPR_CONST && e->node[0].value >= 1, ECH_E_PROOF,
              "%s: attribute %d must be a constant above 0", ech_op_name(op->kind), at);
    *value = e->node[0].value;
    return ECH_OK;
}

/* Tokens come in whole sequences; `table`, where there is one, has a row for every position. */
static ech_status check_sequences(const ech_op *op, int table)
{
    int64_t seq = 1;
    const int64_t n = dim(op, 0, 0);
    ECH_TRY(read_constant(op, 0, &seq));
    ECH_TRY(want(op, n % seq == 0, "tokens must be whole sequences", n, seq));
    if (table < 0 || op->arg[table].region == ECH_REGION_NONE)
        return ECH_OK;
    const int64_t rows = dim(op, table, 0);
    return want(op, rows >= seq, "the table must have a row for every position", rows, seq);
}

/* qkv [N, g, q = r + 2, D] and an output [N, g, e = r D]. */
static ech_status check_heads(const ech_op *op, int out)
{
    const int64_t r = dim(op, 0, 2) - 2;
    ECH_TRY(want(op, r >= 1, "a group has query heads, a key and a value", dim(op, 0, 2), r));
    return want(op, dim(op, out, 2) == r * dim(op, 0, 3), "the output must be r * D wide",
                dim(op, out, 2), r * dim(op, 0, 3));
}

static ech_status check_attention(const ech_op *op)
{
    ECH_TRY(check_sequences(op, -1));
    ECH_TRY(check_heads(op, 1));
    return want(op, dim(op, 2, 2) == dim(op, 0, 2) - 2, "one log-sum a query head", dim(op, 2, 2),
                dim(op, 0, 2) - 2);
}

static ech_status check_cached(const ech_op *op)
{
    ECH_TRY(check_heads(op, 4));
    return want(op, dim(op, 1, 0) >= dim(op, 0, 0), "the cache must hold the new tokens",
                dim(op, 1, 0), dim(op, 0, 0));
}

static ech_status check_qk_norm(const ech_op *op, int rstd)
{
    return want(op, dim(op, rstd, 2) == dim(op, 0, 2) - 1, "one norm a query head and key",
                dim(op, rstd, 2), dim(op, 0, 2) - 1);
}

static ech_status check_rope(const ech_op *op)
{
    ECH_TRY(check_sequences(op, 1));
    ECH_TRY(want(op, dim(op, 0, 2) >= 3, "a group has query heads, a key and a value",
                 dim(op, 0, 2), 3));
    ECH_TRY(want(op, dim(op, 1, 2) == 2, "the table holds cosine and sine", dim(op, 1, 2), 2));
    return want(op, 2 * dim(op, 1, 1) <= dim(op, 0, 3), "no more is rotated than a head has",
                2 * dim(op, 1, 1), dim(op, 0, 3));
}

static ech_status check_vocabulary(const ech_op *op)
{
    int64_t vocab = 1;
    ECH_TRY(read_constant(op, 0, &vocab));
    return want(op, vocab <= dim(op, 0, 1), "logits must have a column for every token",
                dim(op, 0, 1), vocab);
}

ech_status ech_op_check_law(const ech_op *op)
{
    switch (op->kind) {
    case ECH_OP_EMBED:
        return check_sequences(op, 2);
    case ECH_OP_EMBED_BACKWARD:
        return check_sequences(op, 3);
    case ECH_OP_DROPOUT:
        return check_sequences(op, -1);
    case ECH_OP_ROPE:
        return check_rope(op);
    case ECH_OP_ATTENTION:
    case ECH_OP_ATTENTION_BACKWARD:
        return check_attention(op);
    case ECH_OP_ATTENTION_CACHED:
        return check_cached(op);
    case ECH_OP_QK_NORM:
        return check_qk_norm(op, 4);
    case ECH_OP_QK_NORM_BACKWARD:
        return check_qk_norm(op, 3);
    case ECH_OP_SWIGLU:
    case ECH_OP_SWIGLU_BACKWARD:
        return want(op, dim(op, 0, 1) == 2, "gate and up", dim(op, 0, 1), 2);
    case ECH_OP_XENT:
    case ECH_OP_XENT_BACKWARD:
        return check_vocabulary(op);
    default:
        return ECH_OK;
    }
}
