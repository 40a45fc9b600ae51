#include "program/op_law.h"
#include "program/prove_mesh.h"

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

/* Position n % seq of a token; a table has a row for every one. */
static ech_status check_positions(const ech_op *op, int table)
{
    int64_t seq = 1;
    ECH_TRY(read_constant(op, 0, &seq));
    return want(op, dim(op, table, 0) >= seq, "the table must have a row for every position",
                dim(op, table, 0), seq);
}

static ech_status check_dropout(const ech_op *op)
{
    int64_t seq = 1;
    return read_constant(op, 0, &seq);
}

static ech_status check_xent_shard(const ech_op *op)
{
    int64_t vocab = 1;
    ECH_TRY(read_constant(op, 0, &vocab));
    ECH_TRY(want(op, dim(op, 2, 0) == 1, "one share of the vocabulary a rank", dim(op, 2, 0), 1));
    return want(op, dim(op, 2, 1) == 2, "a log-sum and a logit a token", dim(op, 2, 1), 2);
}

static ech_status check_xent_backward(const ech_op *op)
{
    int64_t vocab = 1;
    return read_constant(op, 0, &vocab);
}

static ech_status check_kv(const ech_op *op, int folded, int groups)
{
    ECH_TRY(want(op, dim(op, folded, 1) == 2, "a key and a value", dim(op, folded, 1), 2));
    return want(op, dim(op, groups, 1) >= 3, "a group has query heads, a key and a value",
                dim(op, groups, 1), 3);
}

static ech_status check_sumsq(const ech_op *op, int first, int last)
{
    for (int i = first; i <= last; i++)
        if (op->arg[i].region != ECH_REGION_NONE)
            ECH_TRY(want(op, dim(op, i, 0) == ECH_SUMSQ_WORDS, "an exact sum has so many words",
                         dim(op, i, 0), ECH_SUMSQ_WORDS));
    return ECH_OK;
}

/* Where there are copies, there is a sum for them. */
static ech_status check_copies(const ech_op *op)
{
    for (int range = 0; range < 2; range++) {
        const ech_expr *end = &op->attr[4 * range + 2];
        ECH_CHECK(!end->n || end->node[0].value == 0 || op->arg[2].region != ECH_REGION_NONE,
                  ECH_E_PROOF, "%s: range %d has copies, but there is no sum for them",
                  ech_op_name(op->kind), range);
    }
    return check_sumsq(op, 1, 2);
}

/* What is gathered or dealt out is as many equal shares as the group has members. */
static ech_status check_shares(const ech_op *op, int whole, int share)
{
    const int64_t n = dim(op, whole, 0);
    const int64_t p = dim(op, share, 0);
    return want(op, p > 0 ? n % p == 0 : n == 0, "the whole must be equal shares", n, p);
}

/* --- cells --- */

/* Which cell a kernel takes an argument for. */
static const struct {
    ech_op_kind kind;
    int arg;
    ech_cell cell;
} cell_args[] = {
    {ECH_OP_COUNT_TOKENS, 1, ECH_CELL_TOKENS_LOCAL},
    {ECH_OP_LOSS_SEED, 0, ECH_CELL_TOKENS},
    {ECH_OP_LOSS_SEED, 1, ECH_CELL_LOSS_SCALE},
    {ECH_OP_LOSS_SEED, 2, ECH_CELL_LOSS_SEED},
    {ECH_OP_XENT_BACKWARD, 3, ECH_CELL_LOSS_SEED},
    {ECH_OP_CLIP, 3, ECH_CELL_LOSS_SCALE},
    {ECH_OP_CLIP, 4, ECH_CELL_GRAD_SQ},
    {ECH_OP_CLIP, 5, ECH_CELL_CLIP},
    {ECH_OP_ADAMW, 4, ECH_CELL_LR},
    {ECH_OP_ADAMW, 5, ECH_CELL_CLIP},
    {ECH_OP_ADAMW, 6, ECH_CELL_UPDATES},
    {ECH_OP_SGD, 2, ECH_CELL_LR},
    {ECH_OP_SGD, 3, ECH_CELL_CLIP},
    {ECH_OP_POSITIONS, 2, ECH_CELL_POSITION},
    {ECH_OP_ROPE, 2, ECH_CELL_POSITION},
    {ECH_OP_ATTENTION_CACHED, 3, ECH_CELL_POSITION},
};

static ech_status check_cells(const ech_op *op)
{
    for (size_t i = 0; i < sizeof cell_args / sizeof cell_args[0]; i++) {
        const ech_operand *a = &op->arg[cell_args[i].arg];
        if (op->kind == cell_args[i].kind && a->region == ECH_REGION_SCALARS)
            ECH_CHECK(a->offset == 8 * (size_t)cell_args[i].cell, ECH_E_PROOF,
                      "%s: argument %d is cell %s, wanted %s", ech_op_name(op->kind),
                      cell_args[i].arg, ech_cell_name((ech_cell)(a->offset / 8)),
                      ech_cell_name(cell_args[i].cell));
    }
    return ECH_OK;
}

/* --- first indices --- */

/* Attributes that say where a rank's share of a dimension begins. */
typedef struct first_index {
    ech_op_kind kind;
    int attr, arg, dim;
    bool is_heads; /* of query heads, the dimension being of groups */
} first_index;

static const first_index first_indices[] = {
    {ECH_OP_EMBED, 0, 1, 0, false},         {ECH_OP_EMBED_BACKWARD, 0, 2, 0, false},
    {ECH_OP_POSITIONS, 1, 0, 0, false},     {ECH_OP_POSITIONS_BACKWARD, 1, 0, 0, false},
    {ECH_OP_DROPOUT, 2, 0, 0, false},       {ECH_OP_ATTENTION, 3, 0, 1, true},
    {ECH_OP_XENT_SHARD, 1, 0, 1, false},    {ECH_OP_ATTENTION_BACKWARD, 3, 0, 1, true},
    {ECH_OP_XENT_BACKWARD, 1, 0, 1, false}, {ECH_OP_SUMSQ, 0, 0, 0, false},
    {ECH_OP_ADAMW, 0, 0, 0, false},         {ECH_OP_SGD, 0, 0, 0, false},
    {ECH_OP_KV_FOLD, 0, 0, 0, false},       {ECH_OP_KV_SPREAD, 0, 1, 0, false},
};

/* Is the dimension dealt out over an axis in runs, one after the other?  Sequences are numbered
 * within a rank; slices are tensors, each with its own beginning; head groups of a rank that shares
 * keys and values are numbered within those who share them. */
static bool is_run(const ech_op *op, const first_index *f, ech_axis axis)
{
    const ech_place p = op->arg[f->arg].place.over[axis];
    if (op->kind == ECH_OP_KV_FOLD || op->kind == ECH_OP_KV_SPREAD)
        return axis == ECH_AXIS_KV;
    return p.kind == ECH_PLACE_SHARDED && p.dim == f->dim && p.map != ECH_MAP_SEQUENCES &&
           p.map != ECH_MAP_SLICES;
}

static ech_status check_first(const ech_op *op, const ech_layout *l, const first_index *f)
{
    int64_t share;
    ECH_TRY(ech_mul_i64(dim(op, f->arg, f->dim), f->is_heads ? dim(op, f->arg, f->dim + 1) - 2 : 1,
                        &share));
    for (int a = 0; a < ECH_N_AXES; a++)
        for (int c = 0; c < 3 && c < l->degree[a]; c++) { /* a straight line has two points */
            int64_t coord[ECH_N_AXES] = {0};
            int64_t first = 0;
            int64_t wanted;
            ECH_TRY(ech_mul_i64(is_run(op, f, (ech_axis)a) ? c : 0, share, &wanted));
            coord[a] = c;
            ECH_TRY(ech_mesh_eval(&op->attr[f->attr], coord, 0, &first));
            ECH_CHECK(
                first == wanted, ECH_E_PROOF,
                "%s: at coordinate %d of %s its share of argument %d begins at %lld, attribute "
                "%d says %lld",
                ech_op_name(op->kind), c, ech_axis_name((ech_axis)a), f->arg, (long long)wanted,
                f->attr, (long long)first);
        }
    return ECH_OK;
}

ech_status ech_op_check_first(const ech_op *op, const ech_layout *l)
{
    for (size_t i = 0; i < sizeof first_indices / sizeof first_indices[0]; i++)
        if (first_indices[i].kind == op->kind)
            return check_first(op, l, &first_indices[i]);
    return ECH_OK;
}

ech_status ech_op_check_law(const ech_op *op)
{
    ECH_TRY(check_cells(op));
    switch (op->kind) {
    case ECH_OP_POSITIONS:
    case ECH_OP_POSITIONS_BACKWARD:
        return check_positions(op, 1);
    case ECH_OP_DROPOUT:
        return check_dropout(op);
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
    case ECH_OP_XENT_SHARD:
        return check_xent_shard(op);
    case ECH_OP_XENT:
        return want(op, dim(op, 0, 1) == 2, "a log-sum and a logit a token", dim(op, 0, 1), 2);
    case ECH_OP_XENT_BACKWARD:
        return check_xent_backward(op);
    case ECH_OP_KV_FOLD:
        return check_kv(op, 1, 0);
    case ECH_OP_KV_SPREAD:
        return check_kv(op, 0, 1);
    case ECH_OP_SUMSQ:
        return check_copies(op);
    case ECH_OP_CLIP:
        return check_sumsq(op, 0, 2);
    case ECH_OP_REDUCE_SCATTER_START:
    case ECH_OP_REDUCE_SCATTER_WAIT:
        return check_shares(op, 0, 1);
    case ECH_OP_ALL_GATHER_START:
    case ECH_OP_ALL_GATHER_WAIT:
        return check_shares(op, 1, 0);
    default:
        return ECH_OK;
    }
}
