/* RUN: np=1 timeout=20 tags=fast */
/* Programs written by hand, not by the compiler: placed, ordered, typed and run, every value known.
 */
#include "check.h"
#include "engine/virtual.h"
#include "hand.h"
#include "program/deps.h"
#include "program/lives.h"
#include "program/types.h"

static const hand_op copy = {.kind = ECH_OP_COPY, .request = -1};

static hand_op scale_by(double factor)
{
    return (hand_op){.kind = ECH_OP_SCALE, .request = -1, .real = factor};
}

static ech_placement scaled(double factor)
{
    return hand_partial(1, factor);
}

static void prove(ech_program *p, ech_deps *deps)
{
    assert_ok(ech_program_place(p, NULL));
    assert_ok(ech_lives_check(p));
    assert_ok(ech_types_check(p));
    assert_ok(ech_deps_derive(p, ECH_DEPS_ON_ADDRESSES, deps));
}

/* y = 2 x. */
static void two_ops(ech_program *p)
{
    const ech_layout alone = ech_layout_data_parallel(1);
    ech_program_init(p, "two", &alone);
    const int x = hand_slot(p, "x", true, 5, scaled(1.0));
    const int y = hand_slot(p, "y", true, 5, scaled(1.0));
    (void)HAND_ADD(p, copy, {x, 0, 5, scaled(1.0)}, {y, 0, 5, scaled(1.0)});
    (void)HAND_ADD(p, scale_by(2.0), {y, 0, 5, scaled(2.0)});
}

static void test_two_ops_double_a_vector(void **state)
{
    ech_program p;
    ech_deps deps;
    hand_run run;
    ech_memory memory;
    ech_engine_memory seen;
    (void)state;
    two_ops(&p);
    prove(&p, &deps);
    assert_int_equal(deps.n, 2); /* state is never released */
    assert_int_equal(deps.n_edges, 1);
    assert_int_equal(deps.pred[0], 0);
    assert_int_equal(p.slot[1].offset, 64);
    assert_int_equal(p.state_bytes[ECH_SPACE_DEVICE], 128);
    assert_int_equal(p.transient_bytes[ECH_SPACE_DEVICE], 0);
    hand_start(&p, true, &run);
    double *x = ech_engine_state(run.engine[0], 0);
    double *y = ech_engine_state(run.engine[0], 1);
    for (int i = 0; i < 5; i++)
        x[i] = 1.5 * i - 2.0;
    ech_engine_begin(run.engine[0], 0, ECH_SEGMENT_ACCUMULATE);
    assert_int_equal(ech_engine_advance(run.engine[0]), ECH_DONE);
    for (int i = 0; i < 5; i++) {
        assert_near(x[i], 1.5 * i - 2.0, 0.0);
        assert_near(y[i], 3.0 * i - 4.0, 0.0);
    }
    /* A program without transient slots is at its fullest from the start. */
    assert_int_equal(ech_program_memory(&p, ECH_SPACE_DEVICE, &memory), ECH_OK);
    ech_engine_memory_get(run.engine[0], ECH_SPACE_DEVICE, &seen);
    assert_int_equal(memory.total, 80);
    assert_int_equal(memory.at_peak[ECH_CLASS_BUFFERS], 80);
    assert_int_equal(memory.arena, 128);
    assert_int_equal(seen.total, memory.total);
    assert_int_equal(seen.arena, memory.arena);
    hand_stop(&run);
    ech_deps_fini(&deps);
    ech_program_fini(&p);
}

/* out = sum over ranks of 3 (a + b), elements 1..7 of 8, through a transient t; item by item: add,
 * scale, start, wait, copy. */
static void five_ops(ech_program *p, int dp)
{
    const ech_layout l = ech_layout_data_parallel(dp);
    const hand_op add = {.kind = ECH_OP_ADD, .request = -1};
    const hand_op start = {.kind = ECH_OP_ALL_REDUCE_START};
    const hand_op wait = {.kind = ECH_OP_ALL_REDUCE_WAIT};
    const int64_t staging = ech_reduce_staging_elems(7, dp);
    const ech_placement part = hand_partial(dp, 1.0);
    const ech_placement part3 = hand_partial(dp, 3.0);
    const ech_placement whole3 = scaled(3.0);
    ech_program_init(p, "five", &l);
    const int a = hand_slot(p, "a", true, 8, part);
    const int b = hand_slot(p, "b", true, 8, part);
    const int out = hand_slot(p, "out", true, 8, scaled(1.0));
    const int t = hand_slot(p, "t", false, 7, scaled(1.0));
    const int s = hand_slot(p, "staging", false, staging, scaled(1.0));
    (void)HAND_ADD(p, add, {a, 1, 7, part}, {b, 1, 7, part}, {t, 0, 7, part});
    (void)HAND_ADD(p, scale_by(3.0), {t, 0, 7, part3});
    (void)HAND_ADD(p, start, {t, 0, 7, part3}, {s, 0, staging, scaled(1.0)});
    (void)HAND_ADD(p, wait, {t, 0, 7, whole3}, {s, 0, staging, scaled(1.0)});
    (void)HAND_ADD(p, copy, {t, 0, 7, whole3}, {out, 1, 7, whole3});
}

static void run_five(const ech_program *p, const ech_deps *deps, uint64_t seed)
{
    hand_run run;
    hand_start(p, true, &run);
    for (int r = 0; r < run.n; r++)
        for (int i = 0; i < 8; i++) {
            ((double *)ech_engine_state(run.engine[r], 0))[i] = r + 0.5 * i;
            ((double *)ech_engine_state(run.engine[r], 1))[i] = 10.0 * r;
            ((double *)ech_engine_state(run.engine[r], 2))[i] = -1.0;
        }
    if (seed)
        assert_ok(ech_virtual_fuzz(run.engine, run.n, 0, ECH_SEGMENT_ACCUMULATE,
                                   &(ech_virtual_orders){&p, deps, NULL}, seed));
    else
        assert_ok(ech_virtual_run(run.engine, run.n, 0, ECH_SEGMENT_ACCUMULATE));
    for (int r = 0; r < run.n; r++) {
        const double *out = ech_engine_state(run.engine[r], 2);
        assert_near(out[0], -1.0, 0.0); /* not the op's to write */
        for (int i = 1; i < 8; i++) {
            double sum = 0.0;
            for (int k = 0; k < run.n; k++)
                sum += 3.0 * (k + 0.5 * i + 10.0 * k);
            assert_near(out[i], sum, 0.0); /* small multiples of a half are exact */
        }
        assert_ok(ech_engine_check(run.engine[r]));
    }
    hand_stop(&run);
}

static void test_five_ops_sum_over_ranks(void **state)
{
    /* Nodes: add, scale, start, wait, end of staging, copy, end of t. */
    static const int edge[][2] = {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 3}, {6, 5}};
    (void)state;
    for (int dp = 2; dp <= 5; dp++) {
        ech_program p;
        ech_deps deps;
        five_ops(&p, dp);
        prove(&p, &deps);
        assert_int_equal(deps.n, 7);
        assert_int_equal(deps.op[4], ECH_DEPS_RELEASE);
        assert_int_equal(deps.slot[4], 4);
        assert_int_equal(deps.slot[6], 3);
        /* the wait also writes what the scale wrote, and the copy's t is the wait's: each node's
         * last predecessor is the one listed, the others are implied by it */
        for (size_t i = 0; i < sizeof edge / sizeof edge[0]; i++) {
            const int last = deps.row[edge[i][0] + 1] - 1;
            assert_int_equal(deps.pred[last], edge[i][1]);
        }
        run_five(&p, &deps, 0);
        for (uint64_t seed = 1; seed <= 20; seed++)
            run_five(&p, &deps, seed);
        ech_deps_fini(&deps);
        ech_program_fini(&p);
    }
}

/* The others are not there: whoever waits is named, with what it waits for. */
static void test_a_deadlock_is_told(void **state)
{
    ech_program p;
    ech_deps deps;
    hand_run run;
    (void)state;
    five_ops(&p, 2);
    prove(&p, &deps);
    hand_start(&p, false, &run);
    assert_fails(ech_virtual_run(run.engine, 1, 0, ECH_SEGMENT_ACCUMULATE), ECH_E_DEADLOCK,
                 "rank 0, item 3 (hand-written all_reduce_wait)");
    assert_non_null(strstr(ech_error_message(), "all_reduce over dp"));
    hand_stop(&run);
    hand_start(&p, false, &run);
    assert_fails(ech_virtual_fuzz(run.engine, 1, 0, ECH_SEGMENT_ACCUMULATE,
                                  &(ech_virtual_orders){&(const ech_program *){&p}, &deps, NULL},
                                  5),
                 ECH_E_DEADLOCK, "rank 0, item 3 (hand-written all_reduce_wait)");
    hand_stop(&run);
    ech_deps_fini(&deps);
    ech_program_fini(&p);
}

static void test_state_comes_first(void **state)
{
    ech_program p;
    int id;
    const ech_layout alone = ech_layout_data_parallel(1);
    const ech_slot s = {.name = "late", .is_state = true, .bytes = 8};
    (void)state;
    ech_program_init(&p, "late", &alone);
    (void)hand_slot(&p, "t", false, 1, scaled(1.0));
    assert_fails(ech_program_add_slot(&p, &s, &id), ECH_E_ILLEGAL, "'late'");
    ech_program_fini(&p);
}

static void test_items_are_bound_to_what_has_room(void **state)
{
    ech_program p;
    ech_item item;
    (void)state;
    two_ops(&p);
    item = p.item[0];
    item.bind[ECH_REGION_OUT].offset = 8;
    assert_fails(ech_program_add_item(&p, &item), ECH_E_PROOF,
                 "region out needs 40 bytes, slot 'y' has 40 at offset 8");
    item.bind[ECH_REGION_OUT].slot = -1;
    assert_fails(ech_program_add_item(&p, &item), ECH_E_PROOF, "region out is not bound");
    assert_int_equal(p.n_items, 2);
    ech_program_fini(&p);
}

static void test_caps_are_held(void **state)
{
    ech_program p;
    size_t cap[ECH_N_SPACES] = {0};
    (void)state;
    five_ops(&p, 2);
    assert_ok(ech_program_place(&p, NULL));
    const size_t need = p.state_bytes[0] + p.transient_bytes[0];
    assert_int_equal(need, 3 * 64 + 64 + 128);
    cap[ECH_SPACE_DEVICE] = need;
    assert_ok(ech_program_place(&p, cap));
    cap[ECH_SPACE_DEVICE] = need - 1;
    assert_fails(ech_program_place(&p, cap), ECH_E_INFEASIBLE, "needs 384 bytes of device memory");
    cap[ECH_SPACE_DEVICE] = 0;
    cap[ECH_SPACE_HOST] = 1;
    assert_ok(ech_program_place(&p, cap)); /* nothing lies there */
    ech_program_fini(&p);
}

static void test_programs_chain_where_their_state_agrees(void **state)
{
    ech_program a;
    ech_program b;
    ech_program c;
    (void)state;
    two_ops(&a);
    two_ops(&b);
    five_ops(&c, 2);
    assert_ok(ech_program_place(&a, NULL));
    assert_ok(ech_program_place(&b, NULL));
    assert_ok(ech_program_place(&c, NULL));
    assert_ok(ech_program_chain(&a, &b));
    assert_fails(ech_program_chain(&a, &c), ECH_E_PROOF, "do not share their state slots");
    b.slot[1].bytes += 8;
    assert_fails(ech_program_chain(&a, &b), ECH_E_PROOF, "state slot 'y' lies differently");
    b.slot[1].bytes -= 8;
    b.slot[0].klass = ECH_CLASS_PARAMS;
    assert_fails(ech_program_chain(&a, &b), ECH_E_PROOF,
                 "state slot 'x' is buffers in program 'two', params in 'two'");
    b.slot[0].klass = a.slot[0].klass;
    b.slot[0].place.over[ECH_AXIS_DP] = ech_place_of(ECH_PLACE_PARTIAL);
    assert_fails(ech_program_chain(&a, &b), ECH_E_PROOF, "state slot 'x' is placed differently");
    b.slot[0].place = a.slot[0].place;
    b.slot[1].space = ECH_SPACE_HOST;
    assert_fails(ech_program_chain(&a, &b), ECH_E_PROOF, "state slot 'y' lies differently");
    b.slot[1].space = a.slot[1].space;
    assert_ok(ech_program_chain(&a, &b));
    b.before = ECH_BORDER_WEIGHTS_SHARDED;
    assert_fails(ech_program_chain(&a, &b), ECH_E_PROOF,
                 "leaves weights: whole, program 'two' wants weights: sharded");
    ech_program_fini(&a);
    ech_program_fini(&b);
    ech_program_fini(&c);
}

/* Placing twice gives the same: lives are found anew. */
static void test_placing_again_forgets_the_first_time(void **state)
{
    ech_program p;
    (void)state;
    five_ops(&p, 2);
    assert_ok(ech_program_place(&p, NULL));
    assert_int_equal(p.slot[3].first, 0);
    assert_int_equal(p.slot[3].last, 4);
    p.n_items = 4; /* the copy is gone */
    assert_ok(ech_program_place(&p, NULL));
    assert_int_equal(p.slot[3].last, 3);
    ech_program_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ops_double_a_vector),
        cmocka_unit_test(test_five_ops_sum_over_ranks),
        cmocka_unit_test(test_a_deadlock_is_told),
        cmocka_unit_test(test_state_comes_first),
        cmocka_unit_test(test_items_are_bound_to_what_has_room),
        cmocka_unit_test(test_caps_are_held),
        cmocka_unit_test(test_programs_chain_where_their_state_agrees),
        cmocka_unit_test(test_placing_again_forgets_the_first_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
