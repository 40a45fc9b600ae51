/* RUN: np=1 timeout=20 tags=fast */
/* Transfers, sums of shared heads, norm and update in each form of state: regions, shapes, shifts
 * and placements by hand. */
#include "check.h"
#include "tiny.h"

#include "program/blocks.h"

#include <stdlib.h>

/* Elements of the part that is transferred, and what a message of them stages: two rounds of a
 * chunk from each rank. */
enum { WHOLE = 12, SHARE = 6, REAL = 8 };

/* Forms of state: nothing sharded, stages 1, 2, 3. */
static const ech_state_form forms[4] = {
    {false, false, false}, {true, false, false}, {true, true, false}, {true, true, true}};

/* Four query heads and two key/value heads over tp 4: each of these on two ranks.  Four data
 * parallel ranks: with sharded state two groups of two. */
typedef struct setting {
    ech_model model;
    ech_canon canon;
    ech_shard_plan plan;
    ech_block_spec spec;
} setting;

static void set_up(int stage, bool is_sequence_parallel, ech_update_rule optim, setting *s)
{
    const bool is_sharded = forms[stage].is_sharded;
    const ech_layout_spec layout = {
        .tp = 4, .cp = 1, .pp = 1, .dp = 4, .shard_group = is_sharded ? 2 : 0, .kv_share = 2};
    s->model = tiny_model(TINY_LLAMA, 0.0);
    assert_ok(ech_canon_create(&s->model, &s->canon));
    const ech_shard_spec plan = {.model = &s->model,
                                 .canon = &s->canon,
                                 .tp = 4,
                                 .is_sequence_parallel = is_sequence_parallel,
                                 .shards = is_sharded ? 2 : 1};
    assert_ok(ech_shard_plan_make(&plan, &s->plan));
    s->spec = (ech_block_spec){.model = &s->model,
                               .canon = &s->canon,
                               .plan = &s->plan,
                               .form = forms[stage],
                               .real = ECH_F64,
                               .rows = 1,
                               .seq = 8,
                               .optim = optim,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .weight_decay = 0.1};
    assert_ok(ech_layout_make(&layout, &s->spec.layout));
    s->spec.policy.zero_stage = stage;
    s->spec.policy.is_sequence_parallel = is_sequence_parallel;
}

/* --- placements by hand: over tp, dp, hsdp and, in words, "I", "P", "F" (flat), "C" (slices of
 * several tensors) or "H" (head groups) --- */

static ech_place place_of(char letter)
{
    switch (letter) {
    case 'P':
        return ech_place_of(ECH_PLACE_PARTIAL);
    case 'F':
        return ech_place_sharded(0, ECH_MAP_FLAT);
    case 'C':
        return ech_place_sharded(0, ECH_MAP_SLICES);
    case 'H':
        return ech_place_sharded(0, ECH_MAP_HEAD_GROUP);
    default:
        return ech_place_of(ECH_PLACE_INVARIANT);
    }
}

/* Letters over tp, dp, hsdp, kv; those left out are I. */
static ech_placement placement(const char *letters, bool is_grad)
{
    static const ech_axis axes[] = {ECH_AXIS_TP, ECH_AXIS_DP, ECH_AXIS_HSDP, ECH_AXIS_KV};
    ech_placement p = ech_placement_invariant();
    for (int i = 0; letters[i]; i++)
        p.over[axes[i]] = place_of(letters[i]);
    if (is_grad)
        p.scale = (ech_scale){.loss_scale = 1, .per_token = 1, .factor = 1.0};
    return p;
}

static void expect_place(const ech_operand *a, const char *letters, bool is_grad)
{
    const ech_placement wanted = placement(letters, is_grad);
    for (int x = 0; x < ECH_N_AXES; x++) {
        char got[48];
        char want[48];
        if (!ech_place_is_equal(a->place.over[x], wanted.over[x]))
            fail_msg("%s over %s, wanted %s", ech_place_format(a->place.over[x], got, sizeof got),
                     ech_axis_name((ech_axis)x),
                     ech_place_format(wanted.over[x], want, sizeof want));
    }
    assert_true(ech_scale_is_equal(a->place.scale, wanted.scale));
}

/* A vector of n elements at an offset of its region, moved by a share a rank of dp where so said. */
static void expect_vector(const ech_operand *a, ech_region region, int64_t n, bool is_shifted)
{
    assert_string_equal(ech_region_name(a->region), ech_region_name(region));
    assert_int_equal(a->rank, 1);
    assert_int_equal(a->dim[0].bound, n);
    assert_int_equal(a->dim[0].extent, ECH_EXTENT_BOUND);
    assert_int_equal(a->offset, 0);
    assert_int_equal(a->dtype, ECH_F64);
    assert_int_equal(a->shift.bytes, is_shifted ? n * REAL : 0);
    if (is_shifted)
        assert_int_equal(a->shift.axis, ECH_AXIS_DP);
}

static void expect_staging(const ech_operand *a, int64_t n)
{
    expect_vector(a, ECH_REGION_OUT, n, false);
    expect_place(a, "", false);
}

/* The one op of a transfer; its placements follow the law. */
static const ech_op *only_op(const ech_block *b, ech_op_kind kind, ech_axis axis)
{
    assert_int_equal(b->role, ECH_ROLE_TRANSFER);
    assert_int_equal(b->n_ops, 1);
    assert_string_equal(ech_op_name(b->op[0].kind), ech_op_name(kind));
    if (ech_op_is_comm(kind))
        assert_int_equal(b->op[0].axis, axis);
    assert_ok(ech_op_check_placement(&b->op[0]));
    return &b->op[0];
}

/* --- sums --- */

/* Letters of a part of the gradient over tp, before and after its sum there. */
static const char *const over_tp[2][ECH_N_PARTS] = {{"C", "P", "I", "C"}, {"C", "I", "I", "C"}};
static const ech_region grads[] = {ECH_REGION_GRAD, ECH_REGION_GRAD_SUMMED, ECH_REGION_GRAD_WHOLE,
                                   ECH_REGION_GRAD_TIED};
static const ech_region params[] = {ECH_REGION_PARAM, ECH_REGION_PARAM_SUMMED,
                                    ECH_REGION_PARAM_WHOLE, ECH_REGION_PARAM_TIED};

static const char *letters(char buf[5], const char *tp, const char *rest)
{
    (void)snprintf(buf, 5, "%s%s", tp, rest);
    return buf;
}

/* A bucket over dp; the part that is partial over tp then over tp. */
static void test_all_reduce_of_all(void **state)
{
    setting s;
    char buf[5];
    (void)state;
    set_up(0, true, ECH_UPDATE_SGD, &s);
    for (int part = 0; part < ECH_N_PARTS; part++)
        for (int wait = 0; wait < 2; wait++) {
            ech_block b;
            const ech_transfer t = {
                .part = (ech_part)part, .elems = WHOLE, .is_wait = wait, .axis = ECH_AXIS_DP};
            assert_ok(ech_block_all_reduce(&s.spec, &t, &b));
            const ech_op *op =
                only_op(&b, wait ? ECH_OP_ALL_REDUCE_WAIT : ECH_OP_ALL_REDUCE_START, ECH_AXIS_DP);
            expect_vector(&op->arg[0], grads[part], WHOLE, false);
            expect_place(&op->arg[0], letters(buf, over_tp[0][part], wait ? "I" : "P"), true);
            expect_staging(&op->arg[1], 2 * 4 * 3); /* a quarter from each of four */
            assert_int_equal(b.region_bytes[grads[part]], WHOLE * REAL);
            free(b.op);
        }
    for (int wait = 0; wait < 2; wait++) {
        ech_block b;
        const ech_transfer t = {.part = ECH_PART_SUMMED,
                                .elems = WHOLE,
                                .is_wait = wait,
                                .axis = ECH_AXIS_TP,
                                .done = 1u << ECH_AXIS_DP};
        assert_ok(ech_block_all_reduce(&s.spec, &t, &b));
        const ech_op *op =
            only_op(&b, wait ? ECH_OP_ALL_REDUCE_WAIT : ECH_OP_ALL_REDUCE_START, ECH_AXIS_TP);
        expect_vector(&op->arg[0], ECH_REGION_GRAD_SUMMED, WHOLE, false);
        expect_place(&op->arg[0], letters(buf, wait ? "I" : "P", "I"), true);
        expect_staging(&op->arg[1], 2 * 4 * 3);
        free(b.op);
    }
    ech_canon_fini(&s.canon);
}

/* A flat range over the replicas: within the whole gradient, or by itself. */
static void test_all_reduce_of_a_share(void **state)
{
    char buf[5];
    (void)state;
    for (int stage = 1; stage <= 3; stage++)
        for (int part = 0; part < ECH_N_PARTS; part++)
            for (int wait = 0; wait < 2; wait++) {
                setting s;
                ech_block b;
                const ech_region region = stage == 1 ? grads[part] : ECH_REGION_SHARD;
                const ech_transfer t = {.part = (ech_part)part,
                                        .elems = WHOLE,
                                        .is_wait = wait,
                                        .axis = ECH_AXIS_HSDP,
                                        .done = 1u << ECH_AXIS_DP,
                                        .is_share = true};
                set_up(stage, true, ECH_UPDATE_SGD, &s);
                assert_ok(ech_block_all_reduce(&s.spec, &t, &b));
                const ech_op *op = only_op(
                    &b, wait ? ECH_OP_ALL_REDUCE_WAIT : ECH_OP_ALL_REDUCE_START, ECH_AXIS_HSDP);
                expect_vector(&op->arg[0], region, SHARE, stage == 1);
                expect_place(&op->arg[0], letters(buf, over_tp[0][part], wait ? "FI" : "FP"), true);
                expect_staging(&op->arg[1], 2 * 2 * 3);
                assert_int_equal(b.region_bytes[region], (stage == 1 ? WHOLE : SHARE) * REAL);
                free(b.op);
                ech_canon_fini(&s.canon);
            }
}

static void test_reduce_scatter(void **state)
{
    char buf[5];
    (void)state;
    for (int stage = 1; stage <= 3; stage++)
        for (int part = 0; part < ECH_N_PARTS; part++)
            for (int wait = 0; wait < 2; wait++) {
                setting s;
                ech_block b;
                const ech_transfer t = {.part = (ech_part)part, .elems = WHOLE, .is_wait = wait};
                set_up(stage, true, ECH_UPDATE_SGD, &s);
                assert_ok(ech_block_reduce_scatter(&s.spec, &t, &b));
                const ech_op *op =
                    only_op(&b, wait ? ECH_OP_REDUCE_SCATTER_WAIT : ECH_OP_REDUCE_SCATTER_START,
                            ECH_AXIS_DP);
                expect_vector(&op->arg[0], grads[part], WHOLE, false);
                expect_place(&op->arg[0], letters(buf, over_tp[0][part], "PP"), true);
                expect_vector(&op->arg[1], stage == 1 ? grads[part] : ECH_REGION_SHARD, SHARE,
                              stage == 1);
                expect_place(&op->arg[1], letters(buf, over_tp[0][part], "FP"), true);
                expect_staging(&op->arg[2], 2 * 2 * 6);
                free(b.op);
                ech_canon_fini(&s.canon);
            }
}

static void test_add_share(void **state)
{
    char buf[5];
    (void)state;
    for (int stage = 2; stage <= 3; stage++)
        for (int part = 0; part < ECH_N_PARTS; part++) {
            static const ech_region regions[] = {ECH_REGION_SHARD, ECH_REGION_IN, ECH_REGION_SHARD};
            setting s;
            ech_block b;
            const ech_transfer t = {.part = (ech_part)part, .elems = WHOLE};
            set_up(stage, true, ECH_UPDATE_SGD, &s);
            assert_ok(ech_block_add_share(&s.spec, &t, &b));
            const ech_op *op = only_op(&b, ECH_OP_ADD, ECH_AXIS_DP);
            for (int i = 0; i < 3; i++) {
                expect_vector(&op->arg[i], regions[i], SHARE, false);
                expect_place(&op->arg[i], letters(buf, over_tp[0][part], "FP"), true);
            }
            free(b.op);
            ech_canon_fini(&s.canon);
        }
}

static void test_all_gather(void **state)
{
    char buf[5];
    (void)state;
    for (int stage = 1; stage <= 3; stage++)
        for (int part = 0; part < ECH_N_PARTS; part++)
            for (int wait = 0; wait < 2; wait++) {
                setting s;
                ech_block b;
                const ech_transfer t = {.part = (ech_part)part, .elems = WHOLE, .is_wait = wait};
                set_up(stage, true, ECH_UPDATE_SGD, &s);
                assert_ok(ech_block_all_gather(&s.spec, &t, &b));
                const ech_op *op = only_op(
                    &b, wait ? ECH_OP_ALL_GATHER_WAIT : ECH_OP_ALL_GATHER_START, ECH_AXIS_DP);
                assert_int_equal(op->n_args, 2);
                expect_vector(&op->arg[0], stage == 3 ? ECH_REGION_SHARD : params[part], SHARE,
                              stage < 3);
                expect_place(&op->arg[0], letters(buf, over_tp[1][part], "F"), false);
                expect_vector(&op->arg[1], params[part], WHOLE, false);
                expect_place(&op->arg[1], letters(buf, over_tp[1][part], "I"), false);
                free(b.op);
                ech_canon_fini(&s.canon);
            }
}

/* --- shared key/value heads --- */

static int64_t value_of(const ech_expr *e, ech_axis axis, int64_t at)
{
    int64_t coord[ECH_N_AXES] = {0};
    coord[axis] = at;
    return ech_expr_eval(e, coord, 0);
}

static void expect_groups(const ech_operand *a, ech_region region, int64_t rows)
{
    assert_int_equal(a->region, region);
    assert_int_equal(a->rank, 3);
    assert_int_equal(a->dim[0].bound, 1); /* one group: a query head, key, value */
    assert_int_equal(a->dim[1].bound, rows);
    assert_int_equal(a->dim[2].bound, 6 * 12); /* head_dim rows of hidden columns */
}

/* Fold, all-reduce over kv, spread; gradients are partial over data parallel ranks still. */
static void test_kv_sum(void **state)
{
    static const ech_op_kind kinds[] = {ECH_OP_KV_FOLD, ECH_OP_ALL_REDUCE_START,
                                        ECH_OP_ALL_REDUCE_WAIT, ECH_OP_KV_SPREAD};
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        setting s;
        ech_block b;
        const char *const dp = stage ? "HPP" : "HPI"; /* no replicas of what is not sharded */
        char partial[5];
        set_up(stage, false, ECH_UPDATE_SGD, &s);
        (void)snprintf(partial, sizeof partial, "%sP", dp);
        assert_ok(ech_block_kv_sum(&s.spec, &b));
        assert_int_equal(b.n_ops, 4);
        for (int k = 0; k < 4; k++) {
            assert_string_equal(ech_op_name(b.op[k].kind), ech_op_name(kinds[k]));
            assert_int_equal(b.op[k].axis, ECH_AXIS_KV);
            assert_ok(ech_op_check_placement(&b.op[k]));
        }
        const ech_op *op = b.op;
        expect_groups(&op[0].arg[0], ECH_REGION_GRAD, 3);
        expect_place(&op[0].arg[0], partial, true);
        expect_groups(&op[0].arg[1], ECH_REGION_WORK, 2);
        assert_int_equal(op[1].arg[0].dim[0].bound, 2 * 72);
        assert_int_equal(op[1].arg[1].dim[0].bound, 2 * 2 * 72); /* two rounds of two halves */
        expect_place(&op[1].arg[0], partial, true);
        expect_place(&op[2].arg[0], dp, true);
        assert_int_equal(op[1].request, op[2].request);
        expect_groups(&op[3].arg[0], ECH_REGION_WORK, 2);
        expect_groups(&op[3].arg[1], ECH_REGION_GRAD, 3);
        expect_place(&op[3].arg[1], dp, true);
        for (int kv = 0; kv < 2; kv++) { /* first group of the rank, copies of each head */
            assert_int_equal(value_of(&op[3].attr[0], ECH_AXIS_KV, kv), kv);
            assert_int_equal(value_of(&op[3].attr[1], ECH_AXIS_KV, kv), 2);
        }
        assert_int_equal(b.region_bytes[ECH_REGION_GRAD], 3 * 72 * REAL); /* QKV comes first */
        free(b.op);
        ech_canon_fini(&s.canon);
    }
}

/* --- a layer's norm and update --- */

/* A layer over tp 4 of hidden 12, head_dim 6, ffn 20: what is cut, all of it decayed, and the two
 * norms. */
enum {
    QKV = 3 * 6 * 12,
    CUT = QKV + 12 * 6 + 2 * 5 * 12 + 12 * 5, /* and output, gate and up, down */
    NORMS = 2 * 12
};

/* Where finished gradients and parameters stand: in whole parts from stage 2, and 3, on no more. */
static void expect_state(const ech_operand *a, const ech_region regions[ECH_N_PARTS], int part,
                         int stage, bool is_grad)
{
    char buf[5];
    const int64_t n = (part == ECH_PART_CUT ? CUT : NORMS) / (stage ? 2 : 1);
    expect_vector(a, regions[part], n, stage > 0 && stage < (is_grad ? 2 : 3));
    expect_place(a, letters(buf, over_tp[1][part], stage ? "F" : "I"), is_grad);
}

/* The first element of this rank's range. */
static void expect_first(const ech_op *op, int stage)
{
    const int64_t n = op->arg[0].dim[0].bound;
    for (int dp = 0; dp < 2; dp++)
        assert_int_equal(value_of(&op->attr[0], ECH_AXIS_DP, dp), stage ? dp * n : 0);
}

/* Exact sum number `which` of cut, copies, whole: partial where ranks have different elements. */
static void expect_sum(const ech_operand *a, int which, int stage)
{
    assert_int_equal(a->region, ECH_REGION_OUT);
    assert_int_equal(a->offset, which * 21 * 8);
    assert_int_equal(a->dim[0].bound, 21);
    assert_int_equal(a->dtype, ECH_I64);
    expect_place(a, which == 2 ? (stage ? "IP" : "II") : (stage ? "PP" : "PI"), false);
}

static void test_norm(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++)
        for (int sp = 0; sp < 2; sp++) {
            static const int64_t copies[] = {0, QKV, QKV, 2 * 72}; /* begin, end, period, tail */
            setting s;
            ech_block b;
            set_up(stage, sp, ECH_UPDATE_SGD, &s);
            assert_ok(ech_block_norm(&s.spec, 1, &b));
            assert_int_equal(b.n_ops, 2);
            const ech_op *cut = &b.op[0];
            const ech_op *norms = &b.op[1];
            for (int k = 0; k < 2; k++) {
                assert_int_equal(b.op[k].kind, ECH_OP_SUMSQ);
                expect_first(&b.op[k], stage);
            }
            expect_state(&cut->arg[0], grads, ECH_PART_CUT, stage, true);
            expect_sum(&cut->arg[1], 0, stage);
            expect_sum(&cut->arg[2], 1, stage);
            for (int i = 0; i < 4; i++)
                assert_int_equal(value_of(&cut->attr[1 + i], ECH_AXIS_DP, 1), copies[i]);
            for (int i = 5; i < 9; i++) /* no bias */
                assert_int_equal(cut->attr[i].n, 0);
            expect_state(&norms->arg[0], grads, sp ? ECH_PART_SUMMED : ECH_PART_WHOLE, stage, true);
            expect_sum(&norms->arg[1], 2, stage);
            assert_int_equal(norms->arg[2].region, ECH_REGION_NONE);
            for (int i = 1; i < 9; i++)
                assert_int_equal(norms->attr[i].n, 0);
            free(b.op);
            ech_canon_fini(&s.canon);
        }
}

/* m, then v, by themselves in flat ranges from stage 1 on. */
static void expect_moment(const ech_operand *a, int part, int stage, int which)
{
    static const ech_region moments[] = {ECH_REGION_MOMENT, ECH_REGION_MOMENT_SUMMED,
                                         ECH_REGION_MOMENT_WHOLE, ECH_REGION_MOMENT_TIED};
    char buf[5];
    ech_operand at_zero = *a;
    const int64_t n = (part == ECH_PART_CUT ? CUT : NORMS) / (stage ? 2 : 1);
    assert_int_equal(a->offset, which * n * REAL);
    at_zero.offset = 0;
    expect_vector(&at_zero, moments[part], n, false);
    expect_place(a, letters(buf, over_tp[1][part], stage ? "F" : "I"), false);
}

static void expect_update(const ech_op *op, int part, int stage, ech_update_rule optim)
{
    const bool is_adamw = optim == ECH_UPDATE_ADAMW;
    assert_int_equal(op->kind, is_adamw ? ECH_OP_ADAMW : ECH_OP_SGD);
    expect_state(&op->arg[0], params, part, stage, false);
    expect_state(&op->arg[1], grads, part, stage, true);
    if (is_adamw) {
        expect_moment(&op->arg[2], part, stage, 0);
        expect_moment(&op->arg[3], part, stage, 1);
    }
    expect_first(op, stage);
    /* all that is cut decays, norms do not */
    assert_int_equal(value_of(&op->attr[1], ECH_AXIS_DP, 0), part == ECH_PART_CUT ? CUT : 0);
    assert_true(op->real[is_adamw ? 3 : 0] == (part == ECH_PART_CUT ? 0.1 : 0.0));
    assert_ok(ech_op_check_placement(op));
}

static void test_update(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++)
        for (int sp = 0; sp < 2; sp++)
            for (int adamw = 0; adamw < 2; adamw++) {
                setting s;
                ech_block b;
                const ech_update_rule optim = adamw ? ECH_UPDATE_ADAMW : ECH_UPDATE_SGD;
                set_up(stage, sp, optim, &s);
                assert_ok(ech_block_update(&s.spec, 1, &b));
                assert_string_equal(b.name, "layer update");
                assert_int_equal(b.n_ops, 2);
                expect_update(&b.op[0], ECH_PART_CUT, stage, optim);
                expect_update(&b.op[1], sp ? ECH_PART_SUMMED : ECH_PART_WHOLE, stage, optim);
                free(b.op);
                ech_canon_fini(&s.canon);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce_of_all),
        cmocka_unit_test(test_all_reduce_of_a_share),
        cmocka_unit_test(test_reduce_scatter),
        cmocka_unit_test(test_add_share),
        cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_kv_sum),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
