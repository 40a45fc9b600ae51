/* RUN: np=1 timeout=30 tags=fast */
/* The simulation of a step: times worked out by hand. */
#include "check.h"
#include "timed.h"
#include "base/clock.h"

#include <stdlib.h>

/* CPU seconds for a program of a million ops; sanitizers take several times as long. */
#ifdef __SANITIZE_ADDRESS__
#define MOST_SECONDS 8.0
#else
#define MOST_SECONDS 1.0
#endif

static void assert_step(timed_run *r, double seconds)
{
    assert_near(timed_simulate(r, NULL).step_s, seconds, 0.0);
}

static void assert_bar(const ech_bar *b, ech_bar want)
{
    assert_int_equal(b->rank, want.rank);
    assert_int_equal(b->lane, want.lane);
    if (b->lane != ECH_LANE_COMPUTE)
        assert_int_equal(b->axis, want.axis);
    assert_int_equal(b->item, want.item);
    assert_int_equal(b->op, want.op);
    assert_near(b->begin_s, want.begin_s, 0.0);
    assert_near(b->end_s, want.end_s, 0.0);
}

/* --- by hand --- */

/* Rank 0 computes 2, sends (5) under 3; rank 1 computes 1, waits for it and computes 4. */
static timed_run *one_message(void)
{
    const ech_layout l = timed_mesh(1, 1, 2);
    timed_run *r = timed_make(&l);
    TIMED_ADD(&r->program[0], timed_kernel(2));
    TIMED_ADD(&r->program[0], timed_send(1, 0, 5), timed_kernel(3), timed_arrived(0));
    TIMED_ADD(&r->program[1], timed_recv(0, 0, 5));
    TIMED_ADD(&r->program[1], timed_kernel(1), timed_arrived(0), timed_kernel(4));
    return r;
}

static void test_a_message_between_two(void **state)
{
    timed_run *r = one_message();
    const ech_step_sums s = timed_simulate(r, NULL);
    (void)state;
    assert_near(s.step_s, 11.0, 0.0); /* 2, the message to 7, 4 */
    assert_near(s.compute_s, 5.0, 0.0);
    assert_near(s.critical_compute_s, 6.0, 0.0);
    assert_near(s.critical_comm_s, 5.0, 0.0);
    assert_near(s.bubble_s, 1.0, 0.0); /* free, the step takes 6: rank 0 idles 1, rank 1 too */
    assert_near(s.exposed_s[ECH_AXIS_PP], 5.0, 0.0);
    assert_near(s.stood_s[ECH_AXIS_PP], 0.5 * (2.0 + 6.0), 0.0);
    assert_near(s.busiest_s, 5.0, 0.0);
    assert_int_equal(s.followed, 2);
    assert_int_equal(s.ops, 4 + 4);
    timed_free(r);
}

static void test_bars_of_a_message(void **state)
{
    timed_run *r = one_message();
    ech_timeline t;
    static const ech_bar want[] = {
        {0, ECH_LANE_COMPUTE, ECH_AXIS_PP, 0, -1, 0, 2},
        {0, ECH_LANE_COMPUTE, ECH_AXIS_PP, 1, -1, 2, 7},
        {0, ECH_LANE_COMM, ECH_AXIS_PP, 1, 0, 2, 7},
        {0, ECH_LANE_WAIT, ECH_AXIS_PP, 1, 2, 5, 7},
        {1, ECH_LANE_COMPUTE, ECH_AXIS_PP, 1, -1, 0, 11},
        {1, ECH_LANE_COMM, ECH_AXIS_PP, 0, 0, 0, 7},
        {1, ECH_LANE_WAIT, ECH_AXIS_PP, 1, 1, 1, 7},
    };
    (void)state;
    (void)timed_simulate(r, &t);
    assert_int_equal(t.n, sizeof want / sizeof *want);
    for (size_t i = 0; i < t.n; i++)
        assert_bar(&t.bar[i], want[i]);
    assert_near(t.step_s, 11.0, 0.0);
    assert_int_equal(t.world, 2);
    assert_ptr_equal(ech_timeline_program(&t, 1), &r->program[1]);
    ech_timeline_fini(&t);
    assert_null(t.bar);
    timed_free(r);
}

static void test_a_hidden_collective_costs_nothing(void **state)
{
    const ech_layout l = timed_mesh(1, 4, 1);
    for (int seconds = 0; seconds <= 6; seconds += 3) {
        timed_run *r = timed_make(&l);
        TIMED_ADD(&r->program[0], timed_kernel(2), timed_reduce(ECH_AXIS_DP, 0, seconds),
                  timed_kernel(3), timed_reduced(ECH_AXIS_DP, 0), timed_kernel(1));
        const ech_step_sums s = timed_simulate(r, NULL);
        assert_int_equal(s.followed, 1);
        assert_near(s.step_s, seconds <= 3 ? 6.0 : 9.0, 0.0);
        assert_near(s.exposed_s[ECH_AXIS_DP], s.step_s - 6.0, 0.0);
        assert_near(s.bubble_s, 0.0, 0.0);
        timed_free(r);
    }
    (void)state;
}

static void test_a_collective_waits_for_the_slowest(void **state)
{
    static const double before[] = {3, 9, 1, 4};
    const ech_layout l = timed_mesh(1, 1, 4);
    timed_run *r = timed_make(&l);
    (void)state;
    for (int c = 0; c < 4; c++)
        TIMED_ADD(&r->program[c], timed_kernel(before[c]), timed_reduce(ECH_AXIS_WORLD, 0, 2),
                  timed_reduced(ECH_AXIS_WORLD, 0), timed_kernel(1));
    const ech_step_sums s = timed_simulate(r, NULL);
    assert_near(s.step_s, 12.0, 0.0);
    assert_near(s.compute_s, (4 + 10 + 2 + 5) / 4.0, 0.0);
    assert_near(s.exposed_s[ECH_AXIS_WORLD], 2.0, 0.0);
    assert_near(s.bubble_s, 10.0 - 21 / 4.0, 0.0);
    assert_near(s.stood_s[ECH_AXIS_WORLD], (8 + 2 + 10 + 7) / 4.0, 0.0);
    assert_near(s.critical_comm_s, 2.0, 0.0);
    assert_near(s.busiest_s, 10.0, 0.0);
    assert_int_equal(s.busiest_rank, 1);
    timed_free(r);
}

/* Three over dp in a row end at 4, 8 and 12; one over tp beside them at 5. */
static void test_collectives_of_an_axis_take_turns(void **state)
{
    const ech_layout l = timed_mesh(2, 2, 1);
    timed_run *r = timed_make(&l);
    (void)state;
    for (int k = 0; k < 3; k++)
        TIMED_ADD(&r->program[0], timed_reduce(ECH_AXIS_DP, k, 4));
    TIMED_ADD(&r->program[0], timed_reduce(ECH_AXIS_TP, 3, 5), timed_reduced(ECH_AXIS_TP, 3),
              timed_kernel(1));
    assert_step(r, 6.0);
    TIMED_ADD(&r->program[0], timed_reduced(ECH_AXIS_DP, 1), timed_kernel(1));
    assert_step(r, 9.0);
    TIMED_ADD(&r->program[0], timed_reduced(ECH_AXIS_DP, 0), timed_kernel(1));
    assert_step(r, 10.0);
    TIMED_ADD(&r->program[0], timed_reduced(ECH_AXIS_DP, 2), timed_kernel(1));
    const ech_step_sums s = timed_simulate(r, NULL);
    assert_near(s.step_s, 13.0, 0.0);
    assert_near(s.stood_s[ECH_AXIS_TP], 5.0, 0.0);
    assert_near(s.stood_s[ECH_AXIS_DP], 2.0 + 2.0, 0.0);
    assert_near(s.critical_comm_s, 12.0, 0.0);
    timed_free(r);
}

/* From 0 to 1: 3 and then 2 more; from 1 to 0 meanwhile 4. */
static void test_messages_of_a_pair_take_turns(void **state)
{
    const ech_layout l = timed_mesh(1, 1, 2);
    timed_run *r = timed_make(&l);
    (void)state;
    TIMED_ADD(&r->program[0], timed_send(1, 0, 3), timed_send(1, 1, 2), timed_recv(1, 2, 4));
    TIMED_ADD(&r->program[0], timed_arrived(2), timed_kernel(10), timed_arrived(0),
              timed_arrived(1));
    TIMED_ADD(&r->program[1], timed_recv(0, 4, 3), timed_recv(0, 5, 2), timed_send(0, 6, 4));
    TIMED_ADD(&r->program[1], timed_arrived(5), timed_kernel(20), timed_arrived(4),
              timed_arrived(6));
    assert_step(r, 25.0); /* 3 + 2 + 20; rank 0 is done at 14 */
    timed_free(r);
    r = timed_make(&l); /* the second is not taken before the first is wanted, at 6 */
    TIMED_ADD(&r->program[0], timed_send(1, 0, 3), timed_send(1, 1, 2), timed_arrived(0),
              timed_arrived(1));
    TIMED_ADD(&r->program[1], timed_kernel(6), timed_recv(0, 0, 3), timed_recv(0, 1, 2),
              timed_kernel(1), timed_arrived(1), timed_arrived(0));
    const ech_step_sums s = timed_simulate(r, NULL);
    assert_near(s.step_s, 11.0, 0.0);
    assert_near(s.critical_comm_s, 5.0, 0.0);
    assert_near(s.critical_compute_s, 6.0, 0.0);
    timed_free(r);
}

/* Four stages hand on, each computing 2 with 1 between: 4 * 2 + 3 * 1. */
static void test_a_chain_of_four(void **state)
{
    const ech_layout l = timed_mesh(1, 1, 4);
    timed_run *r = timed_make(&l);
    (void)state;
    for (int c = 0; c < 4; c++) {
        if (c > 0)
            TIMED_ADD(&r->program[c], timed_recv(c - 1, 0, 1), timed_arrived(0));
        TIMED_ADD(&r->program[c], timed_kernel(2));
        if (c < 3)
            TIMED_ADD(&r->program[c], timed_send(c + 1, 1, 1), timed_arrived(1));
    }
    const ech_step_sums s = timed_simulate(r, NULL);
    assert_near(s.step_s, 11.0, 0.0);
    assert_near(s.critical_comm_s, 3.0, 0.0);
    assert_near(s.bubble_s, 6.0, 0.0);
    assert_near(s.exposed_s[ECH_AXIS_PP], 3.0, 0.0);
    timed_free(r);
}

/* Sums over tp stand in the way on stage 0 alone; stage 1 waits for it over pp.  Its communication
 * is free, so all of it is ascribed to tp. */
static void test_what_holds_others_up_is_ascribed_to_its_axis(void **state)
{
    const ech_layout l = timed_mesh(2, 1, 2);
    timed_run *r = timed_make(&l);
    (void)state;
    TIMED_ADD(&r->program[0], timed_kernel(2), timed_reduce(ECH_AXIS_TP, 0, 5),
              timed_reduced(ECH_AXIS_TP, 0), timed_send(1, 1, 0), timed_arrived(1));
    TIMED_ADD(&r->program[1], timed_recv(0, 1, 0), timed_arrived(1), timed_kernel(3));
    const ech_step_sums s = timed_simulate(r, NULL);
    assert_int_equal(s.followed, 2);
    assert_near(s.step_s, 10.0, 0.0);
    assert_near(s.exposed_s[ECH_AXIS_TP], 5.0, 0.0);
    assert_near(s.exposed_s[ECH_AXIS_PP], 0.0, 0.0);
    assert_near(s.stood_s[ECH_AXIS_PP], 3.5, 0.0);
    assert_near(s.bubble_s, 2.5, 0.0);
    timed_free(r);
}

/* Messages that occupy half of their ranks' processors: of 5 seconds beside kernels 2.5 are lost. */
static void test_kernels_beside_messages_are_held_up(void **state)
{
    const ech_layout l = timed_mesh(1, 2, 1);
    timed_run *r = timed_make(&l);
    ech_step_sums s;
    (void)state;
    TIMED_ADD(&r->program[0], timed_reduce(ECH_AXIS_DP, 0, 6), timed_kernel(4),
              timed_reduced(ECH_AXIS_DP, 0)); /* kernels take 6, and so does the sum */
    TIMED_ADD(&r->program[0], timed_kernel(1), timed_reduce(ECH_AXIS_DP, 0, 5), timed_kernel(9),
              timed_reduced(ECH_AXIS_DP, 0)); /* 1 + 9 + 2.5 */
    TIMED_ADD(&r->program[0], timed_reduce(ECH_AXIS_DP, 0, 3), timed_reduced(ECH_AXIS_DP, 0));
    ech_simulate_spec spec = timed_spec(r);
    spec.costs.busy = 0.5;
    assert_ok(ech_simulate(&spec, &s, NULL));
    timed_check_sums(&s);
    assert_near(s.step_s, 6 + 12.5 + 3, 0.0);
    assert_near(s.compute_s, 14.0, 0.0);
    assert_near(s.exposed_s[ECH_AXIS_DP], 7.5, 1e-12);
    assert_near(s.stood_s[ECH_AXIS_DP], 3.0, 0.0);
    assert_near(s.critical_compute_s, 14.0, 0.0);
    spec.costs.busy = 1.5;
    assert_fails(ech_simulate(&spec, &s, NULL), ECH_E_ILLEGAL, "no share");
    timed_free(r);
}

/* A group of one moves nothing, whatever it would cost. */
static void test_alone_nothing_moves(void **state)
{
    const ech_layout l = timed_mesh(2, 1, 1);
    timed_run *r = timed_make(&l);
    (void)state;
    TIMED_ADD(&r->program[0], timed_reduce(ECH_AXIS_DP, 0, 100), timed_reduced(ECH_AXIS_DP, 0),
              timed_kernel(1));
    const ech_step_sums s = timed_simulate(r, NULL);
    assert_near(s.step_s, 1.0, 0.0);
    assert_int_equal(s.ops, 3);
    timed_free(r);
}

static void test_kernels_by_segment_and_role(void **state)
{
    const ech_layout l = timed_mesh(1, 1, 1);
    timed_run *r = timed_make(&l);
    const ech_op op[] = {timed_kernel(1), timed_kernel(2), timed_kernel(4), timed_kernel(8)};
    (void)state;
    timed_add(&r->program[0], ECH_ROLE_FORWARD, ECH_SEGMENT_ACCUMULATE, 1, &op[0]);
    timed_add(&r->program[0], ECH_ROLE_RECOMPUTE, ECH_SEGMENT_ACCUMULATE, 1, &op[1]);
    timed_add(&r->program[0], ECH_ROLE_HOST_SCALARS, ECH_SEGMENT_REDUCE, 1, &op[2]);
    timed_add(&r->program[0], ECH_ROLE_UPDATE, ECH_SEGMENT_COMMIT, 1, &op[3]);
    const ech_step_sums s = timed_simulate(r, NULL);
    assert_near(s.compute_s, 7.0, 0.0);
    assert_near(s.recompute_s, 2.0, 0.0);
    assert_near(s.optimizer_s, 8.0, 0.0);
    assert_near(s.step_s, 15.0, 0.0);
    timed_free(r);
}

/* --- faults --- */

static void assert_refused(timed_run *r, ech_status status, const char *words)
{
    ech_step_sums s;
    ech_timeline t = {.n = 77};
    const ech_simulate_spec spec = timed_spec(r);
    assert_fails(ech_simulate(&spec, &s, &t), status, words);
    assert_int_equal(t.n, 77);
    timed_free(r);
}

static void test_faults_are_refused(void **state)
{
    const ech_layout l = timed_mesh(1, 1, 2);
    timed_run *r = timed_make(&l);
    (void)state;
    TIMED_ADD(&r->program[0], timed_kernel(1), timed_recv(1, 0, 1), timed_arrived(0),
              timed_send(1, 1, 1), timed_arrived(1));
    TIMED_ADD(&r->program[1], timed_recv(0, 0, 1), timed_arrived(0), timed_send(0, 1, 1),
              timed_arrived(1));
    assert_refused(r, ECH_E_PROOF, "rank 0 waits for ever in item 0");
    r = timed_make(&l);
    TIMED_ADD(&r->program[1], timed_arrived(0));
    assert_refused(r, ECH_E_PROOF, "rank 1, item 0 waits for what it has not started");
    r = timed_make(&l);
    TIMED_ADD(&r->program[0], timed_send(1, 0, 1), timed_send(1, 0, 1));
    assert_refused(r, ECH_E_PROOF, "rank 0, item 0 starts a message that is in flight");
    r = timed_make(&l);
    TIMED_ADD(&r->program[0], timed_send(2, 0, 1));
    assert_refused(r, ECH_E_PROOF, "member 0 of 2 names member 2");
    r = timed_make(&l);
    TIMED_ADD(&r->program[0], timed_kernel(-1));
    assert_refused(r, ECH_E_ILLEGAL, "op scale takes -1 s");
}

/* --- prices are asked for once; the same twice --- */

static void test_prices_are_asked_once_and_answers_repeat(void **state)
{
    const ech_layout l = timed_mesh(2, 3, 2);
    timed_run *r = timed_make(&l);
    ech_timeline t[2];
    ech_step_sums s[2];
    (void)state;
    for (int c = 0; c < 2; c++) {
        TIMED_ADD(&r->program[c], timed_kernel(1.0 / 3), timed_reduce(ECH_AXIS_TP, 0, 0.1),
                  timed_kernel(0.2 * (c + 1)), timed_reduced(ECH_AXIS_TP, 0),
                  timed_reduce(ECH_AXIS_WORLD, 0, 0.7), timed_reduced(ECH_AXIS_WORLD, 0));
        timed_repeat(&r->program[c], 99);
    }
    for (int k = 0; k < 2; k++)
        s[k] = timed_simulate(r, &t[k]);
    assert_int_equal(r->asked, 2 * 2 * 4); /* two runs, each free and not: 4 kernels in 2 blocks */
    assert_near(s[0].step_s, s[1].step_s, 0.0);
    assert_near(s[0].bubble_s, s[1].bubble_s, 0.0);
    for (int a = 0; a < ECH_N_AXES; a++)
        assert_near(s[0].exposed_s[a], s[1].exposed_s[a], 0.0);
    assert_int_equal(t[0].n, t[1].n);
    for (size_t i = 0; i < t[0].n; i++)
        assert_bar(&t[0].bar[i], t[1].bar[i]);
    ech_timeline_fini(&t[0]);
    ech_timeline_fini(&t[1]);
    timed_free(r);
}

/* A grid of tp 2, dp 3, pp 2 with messages: two ranks stand for twelve. */
static void test_one_rank_stands_for_those_alike(void **state)
{
    const ech_layout l = timed_mesh(2, 3, 2);
    timed_run *r = timed_make(&l);
    ech_step_sums some, all;
    ech_timeline few, many;
    (void)state;
    for (int i = 0; i < 5; i++) {
        TIMED_ADD(&r->program[0], timed_kernel(1 + i), timed_reduce(ECH_AXIS_TP, 0, 2),
                  timed_reduced(ECH_AXIS_TP, 0), timed_send(1, 1 + i % 2, 3), timed_kernel(1),
                  timed_arrived(1 + i % 2));
        TIMED_ADD(&r->program[1], timed_recv(0, 1, 3), timed_arrived(1), timed_kernel(2),
                  timed_reduce(ECH_AXIS_TP, 0, 1), timed_reduced(ECH_AXIS_TP, 0));
    }
    for (int c = 0; c < 2; c++)
        TIMED_ADD(&r->program[c], timed_reduce(ECH_AXIS_DP, 0, 6), timed_kernel(1),
                  timed_reduced(ECH_AXIS_DP, 0), timed_reduce(ECH_AXIS_WORLD, 0, 1),
                  timed_reduced(ECH_AXIS_WORLD, 0));
    some = timed_simulate(r, &few);
    ech_simulate_spec spec = timed_spec(r);
    spec.follows_all = true;
    assert_ok(ech_simulate(&spec, &all, &many));
    assert_int_equal(some.followed, 2);
    assert_int_equal(all.followed, 12);
    assert_int_equal(all.ops, 6 * some.ops);
    assert_near(all.step_s, some.step_s, 0.0);
    assert_near(all.bubble_s, some.bubble_s, 1e-12);
    assert_near(all.critical_comm_s, some.critical_comm_s, 0.0);
    for (int a = 0; a < ECH_N_AXES; a++)
        assert_near(all.exposed_s[a], some.exposed_s[a], 1e-12);
    assert_int_equal(many.n, 6 * few.n);
    size_t first = 0; /* bars of class 0; those of its six ranks come first */
    while (first < few.n && few.bar[first].rank == 0)
        first++;
    for (size_t i = 0; i < many.n; i++) {
        const bool is_first = i < 6 * first;
        ech_bar want = few.bar[is_first ? i % first : first + (i - 6 * first) % (few.n - first)];
        assert_int_equal(r->class_of[many.bar[i].rank], is_first ? 0 : 1);
        want.rank = many.bar[i].rank;
        assert_bar(&many.bar[i], want);
    }
    ech_timeline_fini(&few);
    ech_timeline_fini(&many);
    timed_free(r);
}

/* --- size --- */

/* Two ranks, each of half a million ops in 50000 items, messages among them. */
static void test_a_million_ops_take_less_than_a_second(void **state)
{
    const ech_layout l = timed_mesh(2, 1, 2);
    timed_run *r = timed_make(&l);
    ech_step_sums s;
    (void)state;
    for (int c = 0; c < 2; c++) {
        TIMED_ADD(&r->program[c], timed_kernel(1), timed_reduce(ECH_AXIS_TP, 0, 1), timed_kernel(1),
                  timed_kernel(1), timed_reduced(ECH_AXIS_TP, 0), timed_kernel(1),
                  c ? timed_recv(0, 1, 1) : timed_send(1, 1, 1), timed_kernel(1), timed_arrived(1),
                  timed_kernel(1));
        timed_repeat(&r->program[c], 50000 - 1);
    }
    const double t0 = ech_clock_s();
    s = timed_simulate(r, NULL);
    const double took = ech_clock_s() - t0;
    (void)printf("%lld ops of %d ranks simulated in %.3f s\n", (long long)s.ops, s.followed, took);
    assert_int_equal(s.ops, 1000000);
    assert_near(s.step_s, 6 * 50000.0, 0.0);
    assert_true(took < MOST_SECONDS);
    timed_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_between_two),
        cmocka_unit_test(test_bars_of_a_message),
        cmocka_unit_test(test_a_hidden_collective_costs_nothing),
        cmocka_unit_test(test_a_collective_waits_for_the_slowest),
        cmocka_unit_test(test_collectives_of_an_axis_take_turns),
        cmocka_unit_test(test_messages_of_a_pair_take_turns),
        cmocka_unit_test(test_a_chain_of_four),
        cmocka_unit_test(test_what_holds_others_up_is_ascribed_to_its_axis),
        cmocka_unit_test(test_kernels_beside_messages_are_held_up),
        cmocka_unit_test(test_alone_nothing_moves),
        cmocka_unit_test(test_kernels_by_segment_and_role),
        cmocka_unit_test(test_faults_are_refused),
        cmocka_unit_test(test_prices_are_asked_once_and_answers_repeat),
        cmocka_unit_test(test_one_rank_stands_for_those_alike),
        cmocka_unit_test(test_a_million_ops_take_less_than_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
