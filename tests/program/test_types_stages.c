/* RUN: np=1 timeout=20 tags=fast */
/* What differs between pipeline stages (V): the law of ops, sums over stages, messages. */
#include "check.h"
#include "hand.h"
#include "program/op_signature.h"
#include "program/types.h"

#include <string.h>

static const ech_place whole = {.kind = ECH_PLACE_INVARIANT};
static const ech_place replicated = {.kind = ECH_PLACE_REPLICATED};
static const ech_place own = {.kind = ECH_PLACE_UNRELATED};
static const ech_place partial = {.kind = ECH_PLACE_PARTIAL};
static const ech_place shard = {.kind = ECH_PLACE_SHARDED, .map = ECH_MAP_CONTIGUOUS};

static ech_placement over(ech_axis axis, ech_place place)
{
    return ech_placement_with(ech_placement_invariant(), axis, place);
}

/* --- the law, op by op --- */

/* An op of a kind whose arguments have these places over an axis. */
static ech_op op_over(ech_op_kind kind, ech_axis axis, const ech_place *place)
{
    const ech_signature sig = ech_signature_read(kind);
    ech_op op = {.kind = kind, .n_args = sig.n, .axis = axis};
    for (int i = 0; i < sig.n; i++) {
        op.arg[i] = (ech_operand){.region = ECH_REGION_IN,
                                  .access = sig.arg[i].access,
                                  .rank = sig.arg[i].is_any ? 1 : sig.arg[i].n_labels,
                                  .place = over(axis, place[i])};
    }
    return op;
}

static ech_status law(ech_op_kind kind, ech_axis axis, const ech_place *place)
{
    const ech_op op = op_over(kind, axis, place);
    return ech_op_check_placement(&op);
}

#define LAW(kind, axis, ...) law((kind), (axis), (const ech_place[]){__VA_ARGS__})

static void test_what_is_made_of_own_values_is_own(void **state)
{
    static const ech_axis axes[] = {ECH_AXIS_PP, ECH_AXIS_DP, ECH_AXIS_TIED};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const ech_axis a = axes[i];
        assert_ok(LAW(ECH_OP_LINEAR, a, own, own, own, own));
        assert_ok(LAW(ECH_OP_LINEAR, a, own, whole, replicated, own));
        assert_ok(LAW(ECH_OP_EMBED, a, whole, own, own));
        assert_ok(LAW(ECH_OP_ADD, a, own, whole, own));
        assert_ok(LAW(ECH_OP_XENT_BACKWARD, a, own, whole, own, whole));
        assert_ok(LAW(ECH_OP_SUMSQ, a, own, own, own));
        assert_ok(LAW(ECH_OP_LINEAR_WGRAD, a, own, own, own, own));
        assert_fails(LAW(ECH_OP_LINEAR, a, own, own, own, whole), ECH_E_PROOF,
                     "linear: result 3 is declared I over");
        assert_fails(LAW(ECH_OP_SUMSQ, a, own, partial, own), ECH_E_PROOF,
                     "sumsq: result 1 is declared P over");
        assert_fails(LAW(ECH_OP_LINEAR_WGRAD, a, own, own, own, whole), ECH_E_PROOF,
                     "linear_wgrad: result 3 is declared I over");
        assert_fails(LAW(ECH_OP_XENT_BACKWARD, a, own, whole, own, partial), ECH_E_PROOF,
                     "argument 3 is P over");
        assert_fails(LAW(ECH_OP_ADD, a, own, partial, own), ECH_E_PROOF,
                     "another argument is V there, each rank's own");
        assert_fails(LAW(ECH_OP_LINEAR, a, own, shard, own, own), ECH_E_PROOF,
                     "linear: argument 1 is S(0, contiguous) over");
        /* what is made of whole values is whole, and not each rank's own */
        assert_fails(LAW(ECH_OP_ADD, a, whole, whole, own), ECH_E_PROOF,
                     "result 2 is declared V over");
        assert_fails(LAW(ECH_OP_COPY, a, whole, own), ECH_E_PROOF, "result 1 is declared V over");
    }
}

static void test_an_update_is_of_own_values_alike(void **state)
{
    (void)state;
    ech_op op = op_over(ECH_OP_SGD, ECH_AXIS_PP, (const ech_place[]){own, own, whole, whole});
    op.arg[1].place.scale = ech_grad_scale();
    assert_ok(ech_op_check_placement(&op));
    op.arg[0].place.over[ECH_AXIS_PP] = whole;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF,
                 "gradient and parameter are placed differently over pp");
}

static void test_sums_take_summands_and_others_pass(void **state)
{
    const ech_axis pp = ECH_AXIS_PP;
    ech_op op;
    (void)state;
    assert_ok(LAW(ECH_OP_SUM_SMALL_START, pp, partial, whole, whole));
    assert_fails(LAW(ECH_OP_SUM_SMALL_START, pp, partial, whole, own), ECH_E_PROOF,
                 "sum_small_start over pp gives I, argument 2 is V there");
    op = op_over(ECH_OP_SUM_SMALL_WAIT, ECH_AXIS_DP, (const ech_place[]){partial, whole, whole});
    op.arg[0].place.over[pp] = own; /* over another axis it passes */
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF,
                 "sum_small_wait over dp takes V over pp and declares I");
    op.arg[2].place.over[pp] = own;
    assert_ok(ech_op_check_placement(&op));
    op = op_over(ECH_OP_ALL_GATHER_START, ECH_AXIS_TP, (const ech_place[]){shard, whole});
    op.arg[0].place.over[pp] = own;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF,
                 "all_gather_start over tp takes V over pp and declares I");
    op.arg[1].place.over[pp] = own;
    assert_ok(ech_op_check_placement(&op));
}

static void test_messages_hand_on_own_values(void **state)
{
    static const ech_op_kind kinds[] = {ECH_OP_SEND_START, ECH_OP_SEND_WAIT, ECH_OP_RECV_START,
                                        ECH_OP_RECV_WAIT};
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_ok(LAW(kinds[i], ECH_AXIS_PP, own));
        assert_fails(LAW(kinds[i], ECH_AXIS_PP, whole), ECH_E_PROOF,
                     "over pp hands on what is each rank's own (V), argument 0 is I there");
        assert_fails(LAW(kinds[i], ECH_AXIS_PP, partial), ECH_E_PROOF, "argument 0 is P there");
    }
}

/* The gradient of a table that two stages hold is a summand of each. */
static void test_the_tied_gradient_is_partial(void **state)
{
    const ech_place places[] = {whole, whole, partial};
    ech_op op = op_over(ECH_OP_EMBED_BACKWARD, ECH_AXIS_TIED, places);
    (void)state;
    op.arg[2].region = ECH_REGION_GRAD_TIED;
    assert_ok(ech_op_check_placement(&op));
    op.arg[2].place.over[ECH_AXIS_TIED] = whole;
    assert_fails(ech_op_check_placement(&op), ECH_E_PROOF,
                 "embed_backward: result 2 is declared I over tied, the rule gives P");
    op.arg[2].region = ECH_REGION_GRAD; /* another table is one stage's */
    assert_ok(ech_op_check_placement(&op));
}

/* --- along the step --- */

enum { N = 4 };

static ech_program program_of(int pp, int dp)
{
    ech_program p;
    ech_layout l;
    const ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = pp, .dp = dp, .kv_share = 1};
    assert_ok(ech_layout_make(&spec, &l));
    ech_program_init(&p, "stages", &l);
    p.micro_batches = 2;
    p.n_requests = 4;
    return p;
}

static hand_arg arg(int slot, ech_place over_pp)
{
    return (hand_arg){slot, 0, N, over(ECH_AXIS_PP, over_pp)};
}

static const hand_op copy = {.kind = ECH_OP_COPY, .request = -1};
static const hand_op zero = {.kind = ECH_OP_ZERO, .request = -1};

/* Item of one op over an axis. */
static int add(ech_program *p, hand_op op, ech_axis axis, int n, const hand_arg *args)
{
    const int i = hand_add(p, op, n, args);
    p->block[p->item[i].block].op[0].axis = axis;
    return i;
}

/* Start and wait of a sum of `from` over an axis of two ranks into `to`. */
static void add_sum(ech_program *p, ech_axis axis, hand_arg from, hand_arg to)
{
    static int count;
    char name[32];
    (void)snprintf(name, sizeof name, "all %d", count++);
    const hand_arg all = {hand_slot(p, name, false, 2 * N, ech_placement_invariant()), 0, 2 * N,
                          ech_placement_invariant()};
    const hand_arg args[3] = {from, all, to};
    add(p, (hand_op){.kind = ECH_OP_SUM_SMALL_START, .request = 0}, axis, 3, args);
    add(p, (hand_op){.kind = ECH_OP_SUM_SMALL_WAIT, .request = 0}, axis, 3, args);
}

static void assert_types(ech_program *p, const char *words)
{
    if (words)
        assert_fails(ech_types_check(p), ECH_E_PROOF, words);
    else
        assert_ok(ech_types_check(p));
    ech_program_fini(p);
}

/* A sum of squares of the stages' own gradients is the norm's after a sum over pp, not before. */
static void test_what_a_stage_has_is_summed_before_all_read_it(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 4; wrong++) {
        ech_program p = program_of(2, 2);
        const int mine = hand_slot(&p, "squares", true, N, over(ECH_AXIS_PP, own));
        const int ours = hand_slot(&p, "norm", true, N, ech_placement_invariant());
        const int sum = hand_slot(&p, "sum", false, N, ech_placement_invariant());
        if (wrong == 1) { /* on one stage only */
            HAND_ADD(&p, copy, arg(mine, whole), arg(ours, whole));
            assert_types(&p, "'squares' hold a value that is V over pp, wanted I: each stage has "
                             "its own, it was not summed over pp");
            continue;
        }
        if (wrong == 2) { /* over dp in place of pp */
            hand_arg from = arg(mine, whole);
            from.place.over[ECH_AXIS_DP] = p.slot[mine].place.over[ECH_AXIS_DP] = partial;
            add_sum(&p, ECH_AXIS_DP, from, arg(sum, whole));
            assert_types(&p, "V over pp, wanted I: each stage has its own");
            continue;
        }
        if (wrong == 3) { /* a summand is one in a sum alone */
            HAND_ADD(&p, copy, arg(mine, partial), arg(sum, partial));
            assert_types(&p, "V over pp, wanted P");
            continue;
        }
        add_sum(&p, ECH_AXIS_PP, arg(mine, partial), arg(sum, whole));
        HAND_ADD(&p, copy, arg(sum, whole), arg(ours, whole));
        assert_types(&p, NULL);
    }
}

static void test_a_stage_without_summand_adds_zero(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 3; wrong++) {
        ech_program p = program_of(2, 2);
        const int mine = hand_slot(&p, "losses", false, N, ech_placement_invariant());
        const int sum = hand_slot(&p, "sum", false, N, ech_placement_invariant());
        HAND_ADD(&p, zero, arg(mine, own));
        if (wrong == 1) { /* over dp every rank has a summand */
            hand_arg from = arg(mine, whole);
            from.place.over[ECH_AXIS_DP] = partial;
            add_sum(&p, ECH_AXIS_DP, from, arg(sum, whole));
        } else if (wrong == 2) {
            HAND_ADD(&p, copy, arg(mine, own), arg(sum, own));
        } else {
            hand_arg from = arg(mine, own); /* nothing over dp, and nothing over pp */
            from.place.over[ECH_AXIS_DP] = partial;
            add_sum(&p, ECH_AXIS_DP, from, arg(sum, own));
            add_sum(&p, ECH_AXIS_PP, arg(sum, partial), arg(mine, whole));
        }
        assert_types(&p, wrong ? "are zeros to which nothing was added" : NULL);
    }
}

static void test_the_host_reads_nothing_of_one_stage(void **state)
{
    ech_program p = program_of(2, 1);
    const int cells = hand_slot(&p, "cells", true, ECH_N_CELLS, ech_placement_invariant());
    const int mine = hand_slot(&p, "mine", true, ECH_N_CELLS, over(ECH_AXIS_PP, own));
    const hand_op last = {.kind = ECH_OP_COPY, .request = -1, .segment = ECH_SEGMENT_REDUCE};
    (void)state;
    p.scalars = cells;
    HAND_ADD(&p, last, {mine, 0, ECH_N_CELLS, over(ECH_AXIS_PP, own)},
             {cells, 0, ECH_N_CELLS, over(ECH_AXIS_PP, own)});
    assert_types(&p, "the host reads cell TOKENS after the reduce segment, but it is V over pp");
}

static void test_state_of_a_stage_stays_its_own(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        ech_program p = program_of(2, 1);
        const int mine = hand_slot(&p, "mine", true, N, over(ECH_AXIS_PP, own));
        const int other = hand_slot(&p, "other", true, N, over(ECH_AXIS_PP, wrong ? whole : own));
        HAND_ADD(&p, copy, arg(mine, own), arg(other, own));
        assert_types(&p,
                     wrong ? "of 'other' are left V over pp, the next step takes them as I" : NULL);
    }
}

/* --- messages --- */

typedef struct message_fault {
    int received, used, sent; /* micro-batches */
    int chunk;                /* that uses what was received */
    const char *words;
} message_fault;

/* Receive, compute, send: each for its micro-batch and chunk. */
static void test_messages_are_of_their_micro_batch(void **state)
{
    static const message_fault rows[] = {
        {1, 1, 1, 0, NULL},
        {1, 0, 0, 0, "argument 0: bytes 0..32 of 'in'"},
        {1, 1, 1, 1, "pass between stages as another chunk's or micro-batch's"},
        {1, 1, 0, 0, "op send_start, argument 0: bytes 0..32 of 'out'"},
        {0, 1, 1, 0, "written by item 1 (hand-written recv_wait, micro-batch 0)"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        const message_fault *r = &rows[n];
        ech_program p = program_of(3, 1);
        const hand_arg in = arg(hand_slot(&p, "in", false, N, ech_placement_invariant()), own);
        const hand_arg out = arg(hand_slot(&p, "out", false, N, ech_placement_invariant()), own);
        static const ech_op_kind kinds[] = {ECH_OP_RECV_START, ECH_OP_RECV_WAIT, ECH_OP_COPY,
                                            ECH_OP_SEND_START, ECH_OP_SEND_WAIT};
        for (int k = 0; k < 5; k++) {
            const hand_op op = {.kind = kinds[k], .request = k == 2 ? -1 : k / 3};
            const hand_arg args[2] = {k < 3 ? in : out, out};
            const int i = add(&p, op, ECH_AXIS_PP, k == 2 ? 2 : 1, args);
            ech_item *it = &p.item[i];
            it->micro = k < 2 ? r->received : k == 2 ? r->used : r->sent;
            it->chunk = k >= 2 ? r->chunk : 0;
        }
        assert_types(&p, r->words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_made_of_own_values_is_own),
        cmocka_unit_test(test_an_update_is_of_own_values_alike),
        cmocka_unit_test(test_sums_take_summands_and_others_pass),
        cmocka_unit_test(test_messages_hand_on_own_values),
        cmocka_unit_test(test_the_tied_gradient_is_partial),
        cmocka_unit_test(test_what_a_stage_has_is_summed_before_all_read_it),
        cmocka_unit_test(test_a_stage_without_summand_adds_zero),
        cmocka_unit_test(test_the_host_reads_nothing_of_one_stage),
        cmocka_unit_test(test_state_of_a_stage_stays_its_own),
        cmocka_unit_test(test_messages_are_of_their_micro_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
