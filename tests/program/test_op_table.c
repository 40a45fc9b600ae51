/* RUN: np=1 timeout=20 tags=fast */
/* Every row of the op table: its signature reads, a call that fits it passes, and one that misses
 * it by a size, an argument or an access is refused.  Traffic and FLOPs against closed forms. */
#include "check.h"
#include "program/op_law.h"
#include "program/op_signature.h"

#include <string.h>

enum { SEQ = 3, Q_HEADS = 5, HEAD_DIM = 40, VOCAB = 50, SHARES = 3 };

/* A size of its own for every label, none equal to another's plus one, as the laws want them. */
static int64_t size_of(char label)
{
    switch (label) {
    case 'n':
        return 4 * SEQ;
    case 'q':
        return Q_HEADS + 2;
    case 'k':
        return Q_HEADS + 1;
    case 'r':
        return Q_HEADS;
    case 'd':
        return HEAD_DIM;
    case 'e':
        return Q_HEADS * HEAD_DIM;
    case 'f':
        return HEAD_DIM / 2 - 1;
    case 'x':
        return 2;
    case 'b':
        return ECH_SUMSQ_WORDS;
    default:
        return 23 + 2 * (label % 64);
    }
}

static ech_operand fitting(const ech_sig_arg *s)
{
    ech_operand a = {.region = ECH_REGION_IN, .access = s->access, .dtype = ECH_F64, .rank = 1};
    a.place = ech_placement_invariant();
    a.dim[0] = a.dim[1] = a.dim[2] = a.dim[3] = (ech_dim){1, ECH_EXTENT_BOUND};
    if (s->is_cell)
        return a;
    a.rank = s->is_any ? 3 : s->n_labels;
    for (int d = 0; d < a.rank; d++)
        a.dim[d].bound = size_of(ech_sig_label(s, d));
    return a;
}

/* Sizes that a law fixes. */
static void fit_laws(ech_op *op)
{
    switch (op->kind) {
    case ECH_OP_XENT_SHARD:
        op->attr[0] = ech_expr_const(VOCAB);
        op->arg[2].dim[0].bound = 1;
        op->arg[2].dim[1].bound = 2;
        break;
    case ECH_OP_XENT:
        op->arg[0].dim[1].bound = 2;
        break;
    case ECH_OP_XENT_BACKWARD:
        op->attr[0] = ech_expr_const(VOCAB);
        break;
    case ECH_OP_KV_FOLD:
        op->arg[1].dim[1].bound = 2;
        op->arg[0].dim[2].bound = op->arg[1].dim[2].bound = HEAD_DIM;
        break;
    case ECH_OP_KV_SPREAD:
        op->arg[0].dim[1].bound = 2;
        op->arg[0].dim[2].bound = op->arg[1].dim[2].bound = HEAD_DIM;
        break;
    case ECH_OP_REDUCE_SCATTER_START:
    case ECH_OP_REDUCE_SCATTER_WAIT:
        op->arg[0].dim[0].bound = SHARES * op->arg[1].dim[0].bound;
        break;
    case ECH_OP_ALL_GATHER_START:
    case ECH_OP_ALL_GATHER_WAIT:
        op->arg[1].dim[0].bound = SHARES * op->arg[0].dim[0].bound;
        break;
    default:
        break;
    }
}

static ech_op fitting_op(ech_op_kind kind)
{
    const ech_signature sig = ech_signature_read(kind);
    ech_op op = {.kind = kind, .n_args = sig.n};
    const char *types = ech_op_row_get(kind)->types;
    for (int i = 0; i < sig.n; i++) {
        op.arg[i] = fitting(&sig.arg[i]);
        if (types && types[i] != 'r' && types[i] != 'a')
            op.arg[i].dtype = types[i] == 'i' ? ECH_I32 : types[i] == 'l' ? ECH_I64 : ECH_F64;
    }
    op.attr[0] = ech_expr_const(SEQ);
    fit_laws(&op);
    return op;
}

/* Does a law of its own bind a label that stands in one place only. */
static bool is_bound(ech_op_kind kind, char label)
{
    switch (kind) {
    case ECH_OP_XENT_SHARD:
        return label == 'w' || label == 'm';
    case ECH_OP_XENT:
        return label == 'm';
    case ECH_OP_KV_FOLD:
    case ECH_OP_KV_SPREAD:
        return label == 'm';
    case ECH_OP_CLIP:
    case ECH_OP_SUMSQ:
        return label == 'b';
    case ECH_OP_REDUCE_SCATTER_START:
    case ECH_OP_REDUCE_SCATTER_WAIT:
    case ECH_OP_ALL_GATHER_START:
    case ECH_OP_ALL_GATHER_WAIT:
        return label == 'f' || label == 'p';
    case ECH_OP_ROPE:
        return label == 'n' || label == 'x';
    case ECH_OP_QK_NORM:
        return label == 'k';
    case ECH_OP_ATTENTION:
    case ECH_OP_ATTENTION_BACKWARD:
        return strchr("qder", label) != NULL;
    case ECH_OP_ATTENTION_CACHED:
        return label == 'q' || label == 'e';
    case ECH_OP_QK_NORM_BACKWARD:
        return label == 'k';
    case ECH_OP_SWIGLU:
        return label == 'x';
    default:
        return false;
    }
}

static int uses_of(const ech_signature *sig, char label)
{
    int n = 0;
    for (int i = 0; i < sig->n; i++)
        for (int d = 0; d < (sig->arg[i].is_any ? 3 : sig->arg[i].n_labels); d++)
            n += ech_sig_label(&sig->arg[i], d) == label;
    return n;
}

static void test_signatures_read(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_op_row *row = ech_op_row_get((ech_op_kind)k);
        const ech_signature sig = ech_signature_read((ech_op_kind)k);
        bool writes = false;
        assert_non_null(row->signature);
        assert_non_null(row->summed);
        assert_true(sig.n > 0);
        for (int i = 0; i < sig.n; i++) {
            const ech_sig_arg *s = &sig.arg[i];
            writes = writes || (s->access & ECH_WRITE);
            /* exactly one of: labels, any shape, cell */
            assert_int_equal((s->n_labels > 0) + s->is_any + s->is_cell, 1);
            assert_true(s->n_labels <= ECH_MAX_DIMS);
        }
        assert_true(writes || k == ECH_OP_SEND_START || k == ECH_OP_SEND_WAIT);
        for (const char *c = row->summed; *c; c++) /* what may be summed away is an input's label */
            assert_true(*c == '~' || uses_of(&sig, *c) > 0);
        assert_false(row->is_start && row->is_wait);
        assert_int_equal(ech_op_is_comm((ech_op_kind)k), row->is_start || row->is_wait);
        assert_true(strlen(ech_op_name((ech_op_kind)k)) > 2);
        for (int j = 0; j < k; j++)
            assert_string_not_equal(ech_op_name((ech_op_kind)k), ech_op_name((ech_op_kind)j));
    }
}

static void test_one_signature_by_hand(void **state)
{
    const ech_signature s = ech_signature_read(ECH_OP_LINEAR_WGRAD); /* ni,*no,+oi,?+o */
    (void)state;
    assert_int_equal(s.n, 4);
    assert_string_equal(s.arg[0].label, "ni");
    assert_int_equal(s.arg[0].access, ECH_READ);
    assert_false(s.arg[0].is_linear);
    assert_true(s.arg[1].is_linear);
    assert_int_equal(s.arg[2].access, ECH_READ_WRITE);
    assert_false(s.arg[2].is_optional);
    assert_true(s.arg[3].is_optional);
    assert_string_equal(s.arg[3].label, "o");
    assert_true(ech_sig_is_summed(ECH_OP_LINEAR_WGRAD, 'n'));
    assert_false(ech_sig_is_summed(ECH_OP_LINEAR_WGRAD, 'i'));
}

static void test_fitting_calls_pass(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_N_OPS; k++) {
        ech_op op = fitting_op((ech_op_kind)k);
        const ech_signature sig = ech_signature_read((ech_op_kind)k);
        assert_ok(ech_op_check_shape(&op));
        for (int i = 0; i < sig.n; i++)
            if (sig.arg[i].is_optional)
                op.arg[i].region = ECH_REGION_NONE;
        assert_ok(ech_op_check_shape(&op));
    }
}

static void test_wrong_sizes_are_refused(void **state)
{
    int refused = 0;
    (void)state;
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_signature sig = ech_signature_read((ech_op_kind)k);
        const ech_op right = fitting_op((ech_op_kind)k);
        for (int i = 0; i < sig.n; i++)
            for (int d = 0; d < right.arg[i].rank; d++) {
                ech_op op = right;
                op.arg[i].dim[d].bound++;
                if (sig.arg[i].is_cell) {
                    assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "one 8-byte cell");
                } else if (uses_of(&sig, ech_sig_label(&sig.arg[i], d)) > 1 ||
                           is_bound((ech_op_kind)k, ech_sig_label(&sig.arg[i], d))) {
                    assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, ech_op_name((ech_op_kind)k));
                } else {
                    assert_ok(ech_op_check_shape(&op));
                    continue;
                }
                refused++;
            }
    }
    assert_true(refused > 120);
}

static void test_wrong_arguments_are_refused(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_signature sig = ech_signature_read((ech_op_kind)k);
        const ech_op right = fitting_op((ech_op_kind)k);
        ech_op op = right;
        op.n_args--;
        assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "arguments, wanted");
        for (int i = 0; i < sig.n; i++) {
            op = right;
            op.arg[i].access = op.arg[i].access == ECH_READ ? ECH_WRITE : ECH_READ;
            assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "the op table says");
            op = right;
            op.arg[i].region = ECH_REGION_NONE;
            if (!sig.arg[i].is_optional)
                assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "is missing");
            op = right;
            op.arg[i].dim[0].bound = -1;
            assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, ech_op_name((ech_op_kind)k));
            op = right;
            op.arg[i].rank++;
            if (!sig.arg[i].is_any && !sig.arg[i].is_cell && op.arg[i].rank <= ECH_MAX_DIMS)
                assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "dimensions, wanted");
            op = right;
            op.arg[i].dtype = ECH_I32;
            if (sig.arg[i].is_cell)
                assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "one 8-byte cell");
        }
    }
}

/* One argument of another type is one too many: REAL arguments agree, ids are int32, cells and
 * tables what the kernel reads. */
static void test_wrong_types_are_refused(void **state)
{
    static const ech_dtype all[] = {ECH_F32, ECH_F64, ECH_I32, ECH_I64};
    int refused = 0;
    (void)state;
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_op right = fitting_op((ech_op_kind)k);
        const char *types = ech_op_row_get((ech_op_kind)k)->types;
        assert_true(!types || (int)strlen(types) == right.n_args);
        for (int i = 0; i < right.n_args; i++)
            for (int t = 0; t < 4; t++) {
                ech_op op = right;
                const bool is_alone = types ? strchr("ra", types[i]) && strchr(types, types[i]) ==
                                                                            strrchr(types, types[i])
                                            : right.n_args == 1;
                op.arg[i].dtype = all[t];
                if (all[t] == right.arg[i].dtype ||
                    (is_alone && (all[t] == ECH_F32 || (types && types[i] == 'a')))) {
                    assert_ok(ech_op_check_shape(&op));
                    continue;
                }
                assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, ech_op_name((ech_op_kind)k));
                refused++;
            }
        ech_op op = right; /* all REAL arguments of the other type, too */
        for (int i = 0; i < op.n_args; i++)
            if (!types || types[i] == 'r')
                op.arg[i].dtype = ECH_F32;
        assert_ok(ech_op_check_shape(&op));
    }
    assert_true(refused > 250);
}

static void test_any_shape_is_one_shape(void **state)
{
    static const ech_op_kind kinds[] = {ECH_OP_COPY, ECH_OP_ADD, ECH_OP_ADAMW, ECH_OP_SGD,
                                        ECH_OP_SUM_SMALL_START};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        ech_op op = fitting_op(kinds[k]);
        const ech_signature sig = ech_signature_read(kinds[k]);
        int last = 0;
        for (int i = 0; i < sig.n; i++)
            last = sig.arg[i].is_any ? i : last;
        op.arg[last].rank = 2; /* a prefix of the others' dimensions */
        assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "has 2 dimensions, argument 0 3");
    }
}

/* --- laws --- */

typedef struct broken {
    ech_op_kind kind;
    int arg, d;
    int64_t bound;
    const char *says;
} broken;

/* The size of an argument changed wherever its label stands. */
static ech_op resized(const broken *b)
{
    ech_op op = fitting_op(b->kind);
    const ech_signature sig = ech_signature_read(b->kind);
    const char label = ech_sig_label(&sig.arg[b->arg], b->d);
    for (int i = 0; i < sig.n; i++) {
        const int d = ech_sig_dim(&sig.arg[i], &op.arg[i], label);
        if (d >= 0 && !sig.arg[i].is_cell)
            op.arg[i].dim[d].bound = b->bound;
    }
    return op;
}

static void test_laws_between_sizes(void **state)
{
    static const broken cases[] = {
        {ECH_OP_POSITIONS, 1, 0, SEQ - 1, "a row for every position, got 2 and 3"},
        {ECH_OP_POSITIONS_BACKWARD, 1, 0, SEQ - 1, "a row for every position"},
        {ECH_OP_ROPE, 0, 0, 4 * SEQ + 1, "tokens must be whole sequences, got 13 and 3"},
        {ECH_OP_ROPE, 1, 0, SEQ - 1, "a row for every position"},
        {ECH_OP_ROPE, 1, 1, HEAD_DIM / 2 + 1, "no more is rotated than a head has, got 42 and 40"},
        {ECH_OP_ROPE, 1, 2, 1, "the table holds cosine and sine"},
        {ECH_OP_ROPE, 0, 2, 2, "query heads, a key and a value"},
        {ECH_OP_ATTENTION, 0, 0, SEQ + 2, "tokens must be whole sequences"},
        {ECH_OP_ATTENTION, 0, 2, Q_HEADS + 3, "the output must be r * D wide, got 200 and 240"},
        {ECH_OP_ATTENTION, 0, 2, 2, "query heads, a key and a value"},
        {ECH_OP_ATTENTION, 1, 2, Q_HEADS * HEAD_DIM - 1, "the output must be r * D wide"},
        {ECH_OP_ATTENTION, 2, 2, Q_HEADS + 1, "one log-sum a query head"},
        {ECH_OP_ATTENTION_BACKWARD, 0, 0, SEQ + 2, "tokens must be whole sequences"},
        {ECH_OP_ATTENTION_BACKWARD, 1, 2, HEAD_DIM, "the output must be r * D wide"},
        {ECH_OP_ATTENTION_BACKWARD, 2, 2, Q_HEADS - 1, "one log-sum a query head"},
        {ECH_OP_ATTENTION_CACHED, 4, 2, HEAD_DIM, "the output must be r * D wide"},
        {ECH_OP_ATTENTION_CACHED, 1, 0, 4 * SEQ - 1, "the cache must hold the new tokens"},
        {ECH_OP_QK_NORM, 4, 2, Q_HEADS, "one norm a query head and key"},
        {ECH_OP_QK_NORM_BACKWARD, 3, 2, Q_HEADS + 2, "one norm a query head and key"},
        {ECH_OP_SWIGLU, 0, 1, 3, "gate and up"},
        {ECH_OP_SWIGLU_BACKWARD, 0, 1, 1, "gate and up"},
        {ECH_OP_XENT_SHARD, 2, 0, 2, "one share of the vocabulary a rank"},
        {ECH_OP_XENT_SHARD, 2, 1, 3, "a log-sum and a logit a token"},
        {ECH_OP_XENT, 0, 1, 1, "a log-sum and a logit a token"},
        {ECH_OP_KV_FOLD, 0, 1, 2, "query heads, a key and a value"},
        {ECH_OP_KV_FOLD, 1, 1, 3, "a key and a value, got 3 and 2"},
        {ECH_OP_KV_SPREAD, 1, 1, 2, "query heads, a key and a value"},
        {ECH_OP_KV_SPREAD, 0, 1, 1, "a key and a value"},
        {ECH_OP_SUMSQ, 1, 0, ECH_SUMSQ_WORDS + 1, "an exact sum has so many words"},
        {ECH_OP_SUMSQ, 2, 0, ECH_SUMSQ_WORDS - 1, "an exact sum has so many words"},
        {ECH_OP_CLIP, 0, 0, ECH_SUMSQ_WORDS - 1, "an exact sum has so many words"},
        {ECH_OP_REDUCE_SCATTER_START, 0, 0, SHARES * 71 + 1, "the whole must be equal shares"},
        {ECH_OP_REDUCE_SCATTER_WAIT, 1, 0, 0, "the whole must be equal shares"},
        {ECH_OP_ALL_GATHER_START, 0, 0, 2, "the whole must be equal shares"},
        {ECH_OP_ALL_GATHER_WAIT, 1, 0, 1, "the whole must be equal shares"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ech_op op = resized(&cases[i]);
        assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, cases[i].says);
        assert_non_null(strstr(ech_error_message(), ech_op_name(cases[i].kind)));
    }
}

static void test_sequences_have_a_length(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        ech_op op = fitting_op(ECH_OP_ATTENTION);
        op.attr[0] = bad == 0   ? (ech_expr){0}
                     : bad == 1 ? ech_expr_const(0)
                                : ech_expr_coord(ECH_AXIS_DP);
        assert_fails(ech_op_check_shape(&op), ECH_E_PROOF,
                     "attention: attribute 0 must be a constant above 0");
    }
}

static void test_only_the_leading_dimension_has_an_extent(void **state)
{
    ech_op op = fitting_op(ECH_OP_LINEAR);
    (void)state;
    op.arg[0].dim[0].extent = op.arg[3].dim[0].extent = ECH_CELL_NEW_TOKENS;
    assert_ok(ech_op_check_shape(&op));
    op.arg[0].dim[1].extent = ECH_CELL_NEW_TOKENS;
    assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "only the leading dimension");
    op = fitting_op(ECH_OP_LINEAR);
    op.arg[0].dim[0].extent = ECH_CELL_NEW_TOKENS;
    assert_fails(ech_op_check_shape(&op), ECH_E_PROOF,
                 "linear: argument 3, dimension 0 ('n') has another extent");
    for (int bad = 0; bad < 3; bad++) {
        op.arg[0].dim[0].extent = bad == 0 ? ECH_CELL_LOSS : bad == 1 ? ECH_N_CELLS : -2;
        assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "linear: argument 0 has an extent that");
    }
}

/* A kernel takes each cell for what it is. */
static void test_cells_are_told_apart(void **state)
{
    static const struct {
        ech_op_kind kind;
        int arg;
        ech_cell right, wrong;
        const char *says;
    } rows[] = {
        {ECH_OP_ADAMW, 4, ECH_CELL_LR, ECH_CELL_CLIP, "argument 4 is cell CLIP, wanted LR"},
        {ECH_OP_ADAMW, 6, ECH_CELL_UPDATES, ECH_CELL_STEP, "is cell STEP, wanted UPDATES"},
        {ECH_OP_SGD, 3, ECH_CELL_CLIP, ECH_CELL_LR, "argument 3 is cell LR, wanted CLIP"},
        {ECH_OP_LOSS_SEED, 0, ECH_CELL_TOKENS, ECH_CELL_TOKENS_LOCAL, "wanted TOKENS"},
        {ECH_OP_XENT_BACKWARD, 3, ECH_CELL_LOSS_SEED, ECH_CELL_LOSS_SCALE, "wanted LOSS_SEED"},
        {ECH_OP_CLIP, 4, ECH_CELL_GRAD_SQ, ECH_CELL_LOSS, "is cell LOSS, wanted GRAD_SQ"},
        {ECH_OP_ROPE, 2, ECH_CELL_POSITION, ECH_CELL_NEW_TOKENS, "wanted POSITION"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_op op = fitting_op(rows[i].kind);
        op.arg[rows[i].arg].region = ECH_REGION_SCALARS;
        op.arg[rows[i].arg].offset = 8 * (size_t)rows[i].right;
        assert_ok(ech_op_check_shape(&op));
        op.arg[rows[i].arg].offset = 8 * (size_t)rows[i].wrong;
        assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, rows[i].says);
    }
}

static void test_copies_have_a_sum(void **state)
{
    ech_op op = fitting_op(ECH_OP_SUMSQ);
    (void)state;
    op.attr[6] = ech_expr_const(9);
    assert_ok(ech_op_check_shape(&op));
    op.arg[2].region = ECH_REGION_NONE;
    assert_fails(ech_op_check_shape(&op), ECH_E_PROOF, "range 1 has copies, but there is no sum");
}

/* --- first indices --- */

/* Where the share of a rank begins follows from its size and the axis over which it is dealt out. */
static void test_shares_begin_where_they_stand(void **state)
{
    static const struct {
        ech_op_kind kind;
        int attr, arg, dim;
        ech_index_map map;
        ech_axis axis;
        int64_t share;
    } rows[] = {
        {ECH_OP_EMBED, 0, 1, 0, ECH_MAP_CONTIGUOUS, ECH_AXIS_TP, 0},
        {ECH_OP_EMBED_BACKWARD, 0, 2, 0, ECH_MAP_CONTIGUOUS, ECH_AXIS_TP, 0},
        {ECH_OP_POSITIONS, 1, 0, 0, ECH_MAP_CONTIGUOUS, ECH_AXIS_TP, 0},
        {ECH_OP_POSITIONS_BACKWARD, 1, 0, 0, ECH_MAP_CONTIGUOUS, ECH_AXIS_TP, 0},
        {ECH_OP_DROPOUT, 2, 0, 0, ECH_MAP_CONTIGUOUS, ECH_AXIS_TP, 0},
        {ECH_OP_ATTENTION, 3, 0, 1, ECH_MAP_HEAD_GROUP, ECH_AXIS_TP, 101 * Q_HEADS},
        {ECH_OP_ATTENTION_BACKWARD, 3, 0, 1, ECH_MAP_HEAD_GROUP, ECH_AXIS_TP, 101 * Q_HEADS},
        {ECH_OP_XENT_SHARD, 1, 0, 1, ECH_MAP_CONTIGUOUS, ECH_AXIS_TP, 0},
        {ECH_OP_XENT_BACKWARD, 1, 0, 1, ECH_MAP_CONTIGUOUS, ECH_AXIS_TP, 0},
        {ECH_OP_SUMSQ, 0, 0, 0, ECH_MAP_FLAT, ECH_AXIS_DP, 0},
        {ECH_OP_ADAMW, 0, 0, 0, ECH_MAP_FLAT, ECH_AXIS_DP, 0},
        {ECH_OP_SGD, 0, 0, 0, ECH_MAP_FLAT, ECH_AXIS_DP, 0},
    };
    ech_layout l = ech_layout_data_parallel(3);
    (void)state;
    l.degree[ECH_AXIS_TP] = 4;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_op op = fitting_op(rows[i].kind);
        ech_operand *a = &op.arg[rows[i].arg];
        const int64_t share = rows[i].share ? rows[i].share : a->dim[rows[i].dim].bound;
        ech_expr *at = &op.attr[rows[i].attr];
        a->place.over[rows[i].axis] = ech_place_sharded(rows[i].dim, rows[i].map);
        *at = ech_expr_binary(ECH_EXPR_MUL, ech_expr_coord(rows[i].axis), ech_expr_const(share));
        assert_ok(ech_op_check_first(&op, &l));
        at->node[1].value++;
        assert_fails(ech_op_check_first(&op, &l), ECH_E_PROOF, "at coordinate 1 of");
        at->node[1].value--;
        at->node[0].value = rows[i].axis == ECH_AXIS_TP ? ECH_AXIS_DP : ECH_AXIS_TP;
        assert_fails(ech_op_check_first(&op, &l), ECH_E_PROOF, ech_op_name(op.kind));
        *at = ech_expr_const(0);
        assert_fails(ech_op_check_first(&op, &l), ECH_E_PROOF, "says 0");
        a->place.over[rows[i].axis] = ech_place_of(ECH_PLACE_INVARIANT); /* whole: from the start */
        assert_ok(ech_op_check_first(&op, &l));
    }
}

/* --- traffic --- */

static bool has_share(ech_op_kind kind)
{
    return kind == ECH_OP_REDUCE_SCATTER_START || kind == ECH_OP_ALL_GATHER_START;
}

/* What is dealt out in equal shares is a multiple of them. */
static int64_t whole(ech_op_kind kind, int64_t elems, int n)
{
    return has_share(kind) ? (elems + n - 1) / n * n : elems;
}

static ech_op message(ech_op_kind kind, ech_dtype dtype, int64_t elems, int n)
{
    ech_op op = {.kind = kind, .n_args = has_share(kind) ? 2 : 1};
    const int full = kind == ECH_OP_ALL_GATHER_START;
    for (int i = 0; i < op.n_args; i++) {
        const int64_t all = whole(kind, elems, n);
        op.arg[i] = (ech_operand){.region = ECH_REGION_IN, .dtype = dtype, .rank = 1};
        op.arg[i].dim[0] =
            (ech_dim){i == full || !has_share(kind) ? all : all / n, ECH_EXTENT_BOUND};
    }
    return op;
}

/* Pieces as equal as can be, the first ones longer by one. */
static int64_t piece(int64_t elems, int n, int i)
{
    return elems / n + (i < elems % n);
}

static int64_t expected_wire(ech_op_kind kind, int64_t elems, int n, int me)
{
    int64_t sent = 0;
    for (int peer = 0; peer < n; peer++) {
        if (peer == me)
            continue;
        if (kind == ECH_OP_ALL_REDUCE_START || kind == ECH_OP_REDUCE_SCATTER_START)
            sent += piece(elems, n, peer); /* my contribution to the peer's piece */
        if (kind == ECH_OP_ALL_REDUCE_START || kind == ECH_OP_ALL_GATHER_START)
            sent += piece(elems, n, me); /* my finished piece */
        if (kind == ECH_OP_SUM_SMALL_START)
            sent += elems;
    }
    return kind == ECH_OP_SEND_START ? elems : sent;
}

static void test_traffic_is_the_sum_of_messages(void **state)
{
    static const ech_op_kind kinds[] = {ECH_OP_ALL_REDUCE_START, ECH_OP_REDUCE_SCATTER_START,
                                        ECH_OP_ALL_GATHER_START, ECH_OP_SUM_SMALL_START,
                                        ECH_OP_SEND_START};
    static const int64_t sizes[] = {0, 1, 2, 7, 64, 65537, 1000003};
    static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_I64};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
                for (int n = 2; n <= 7; n++) {
                    const ech_op op = message(kinds[k], types[t], sizes[s], n);
                    const int64_t elems = whole(kinds[k], sizes[s], n);
                    const int64_t bytes = (int64_t)ech_dtype_bytes(types[t]);
                    int64_t all = 0;
                    for (int me = 0; me < n; me++) {
                        const ech_traffic got = ech_op_traffic(&op, n, me);
                        assert_int_equal(got.payload_bytes, bytes * elems);
                        assert_int_equal(got.wire_bytes,
                                         bytes * expected_wire(kinds[k], elems, n, me));
                        all += got.wire_bytes;
                    }
                    if (kinds[k] == ECH_OP_ALL_REDUCE_START)
                        assert_int_equal(all, 2 * bytes * elems * (n - 1));
                    if (kinds[k] == ECH_OP_REDUCE_SCATTER_START ||
                        kinds[k] == ECH_OP_ALL_GATHER_START)
                        assert_int_equal(all, bytes * elems * (n - 1));
                }
}

static void test_alone_sends_nothing(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_op op = message((ech_op_kind)k, ECH_F64, 100, 1);
        if (k != ECH_OP_SEND_START)
            assert_int_equal(ech_op_traffic(&op, 1, 0).wire_bytes, 0);
    }
}

static void test_staging_chunks(void **state)
{
    (void)state;
    assert_int_equal(ech_reduce_chunk_elems(7, 3), 3);
    assert_int_equal(ech_reduce_chunk_elems(0, 3), 0);
    assert_int_equal(ech_reduce_chunk_elems(6, 3), 2);
    assert_int_equal(ech_reduce_chunk_elems(3 * 65536, 3), 65536);
    assert_int_equal(ech_reduce_chunk_elems(3 * 65536 + 1, 3), 65536);
    assert_int_equal(ech_reduce_chunk_elems(INT64_C(1) << 40, 2), 65536);
    assert_int_equal(ech_reduce_staging_elems(7, 3), 2 * 3 * 3);
    assert_int_equal(ech_reduce_staging_elems(0, 3), 0);
    assert_int_equal(ech_reduce_staging_elems(INT64_C(1) << 40, 5), 2 * 5 * 65536);
}

/* --- FLOPs --- */

static double flops(const ech_op *op)
{
    return ech_op_row_get(op->kind)->flops(op);
}

static void set_dims(ech_operand *a, int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const int64_t d[4] = {d0, d1, d2, d3};
    a->rank = rank;
    for (int i = 0; i < 4; i++)
        a->dim[i] = (ech_dim){d[i], ECH_EXTENT_BOUND};
}

static void test_flops_of_matrix_products(void **state)
{
    ech_op op = {.kind = ECH_OP_LINEAR, .n_args = 4};
    (void)state;
    set_dims(&op.arg[0], 2, 10, 7, 0, 0);
    set_dims(&op.arg[1], 2, 5, 7, 0, 0);
    assert_near(flops(&op), 2.0 * 10 * 7 * 5, 0.0);
    op.kind = ECH_OP_LINEAR_DGRAD;
    set_dims(&op.arg[0], 2, 10, 5, 0, 0);
    assert_near(flops(&op), 2.0 * 10 * 7 * 5, 0.0);
    op.kind = ECH_OP_LINEAR_WGRAD;
    set_dims(&op.arg[0], 2, 10, 7, 0, 0);
    set_dims(&op.arg[1], 2, 10, 5, 0, 0);
    assert_near(flops(&op), 2.0 * 10 * 7 * 5, 0.0);
}

/* Pairs of a causal triangle counted one by one, two products of D multiply-adds each. */
static void test_flops_of_causal_attention(void **state)
{
    enum { BATCH = 3, LENGTH = 6, GROUPS = 2, HEADS = 4, DIM = 5 };
    ech_op op = {.kind = ECH_OP_ATTENTION, .n_args = 3, .attr = {ech_expr_const(LENGTH)}};
    double pairs = 0.0;
    (void)state;
    set_dims(&op.arg[0], 4, BATCH * LENGTH, GROUPS, HEADS + 2, DIM);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < LENGTH; i++)
            pairs += GROUPS * HEADS * (i + 1);
    assert_near(flops(&op), pairs * 2.0 * 2.0 * DIM, 1e-9);
    op.kind = ECH_OP_ATTENTION_BACKWARD;
    assert_near(flops(&op), pairs * 5.0 * 2.0 * DIM, 1e-9);
}

static void test_operand_sizes(void **state)
{
    ech_operand a = {.dtype = ECH_F32};
    (void)state;
    set_dims(&a, 3, 7, 5, 3, 0);
    assert_int_equal(ech_operand_elems(&a), 105);
    assert_int_equal(ech_operand_bytes(&a), 420);
    a.dtype = ECH_F64;
    assert_int_equal(ech_operand_bytes(&a), 840);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures_read),
        cmocka_unit_test(test_one_signature_by_hand),
        cmocka_unit_test(test_fitting_calls_pass),
        cmocka_unit_test(test_wrong_sizes_are_refused),
        cmocka_unit_test(test_wrong_arguments_are_refused),
        cmocka_unit_test(test_wrong_types_are_refused),
        cmocka_unit_test(test_any_shape_is_one_shape),
        cmocka_unit_test(test_laws_between_sizes),
        cmocka_unit_test(test_cells_are_told_apart),
        cmocka_unit_test(test_copies_have_a_sum),
        cmocka_unit_test(test_shares_begin_where_they_stand),
        cmocka_unit_test(test_sequences_have_a_length),
        cmocka_unit_test(test_only_the_leading_dimension_has_an_extent),
        cmocka_unit_test(test_traffic_is_the_sum_of_messages),
        cmocka_unit_test(test_alone_sends_nothing),
        cmocka_unit_test(test_staging_chunks),
        cmocka_unit_test(test_flops_of_matrix_products),
        cmocka_unit_test(test_flops_of_causal_attention),
        cmocka_unit_test(test_operand_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
