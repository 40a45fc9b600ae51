/* RUN: np=1 timeout=60 tags=fast */
/* What is recorded of a step: every item and message of the program, the engine's own times, nothing
 * lost, not a bit of the result changed, and what it costs. */
#include "check.h"
#include "tiny.h"

#include "base/clock.h"
#include "train/trace.h"

#include <stdlib.h>
#include <string.h>

/* A run of virtual ranks whose steps can be recorded. */
static void start(int tp, int dp, int zero, tiny_run *run)
{
    tiny_spec spec = tiny_spec_default();
    spec.tp = tp;
    spec.dp = dp;
    spec.accumulation = 3;
    spec.seq = 8;
    spec.policy.zero_stage = zero;
    spec.records = true;
    tiny_start(&spec, run);
    tiny_feed(run, 0, NULL, NULL);
}

static ech_step_result step(tiny_run *run, int64_t number, bool records)
{
    ech_step_result out;
    const ech_step_request r = {
        .step = number, .updates = number, .lr = 1e-3, .loss_scale = 1.0, .records = records};
    tiny_ok(ech_session_step(run->session, &r, &out), "step");
    return out;
}

static bool has_kernels(const ech_block *b)
{
    for (int k = 0; k < b->n_ops; k++)
        if (!ech_op_is_comm(b->op[k].kind))
            return true;
    return false;
}

static bool is_start(const ech_program *p, int item, int op)
{
    const char *name = ech_op_name(p->block[p->item[item].block].op[op].kind);
    return strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_start") == 0;
}

/* Bars of a rank by item; COMM bars by item and op, once each. */
typedef struct counted {
    int *kernels; /* [items] bars */
    int *cuts;    /* [items] waits that blocked */
    int messages;
    double kernels_s, waits_s, last_begin, last_end;
} counted;

static void count(const ech_program *p, const ech_bar *b, counted *c)
{
    assert_true(b->begin_s >= c->last_begin);
    assert_true(b->end_s >= b->begin_s);
    c->last_begin = b->begin_s;
    if (b->lane == ECH_LANE_COMM) {
        assert_true(is_start(p, b->item, b->op));
        c->messages++;
        return;
    }
    assert_true(b->begin_s >= c->last_end); /* a rank does one thing at a time */
    c->last_end = b->end_s;
    if (b->lane == ECH_LANE_COMPUTE) {
        assert_int_equal(b->op, -1);
        c->kernels[b->item]++;
        c->kernels_s += b->end_s - b->begin_s;
    } else {
        assert_true(!is_start(p, b->item, b->op));
        c->cuts[b->item]++;
        c->waits_s += b->end_s - b->begin_s;
    }
}

static void check_rank(tiny_run *run, int i)
{
    const ech_local_rank *r = &run->session->local[i];
    const ech_program *p = &run->session->train.klass[0].program;
    const ech_recording got = ech_recorder_get(r->recorder);
    const ech_engine_times t = ech_engine_times_get(r->engine);
    counted c = {calloc((size_t)p->n_items, sizeof(int)), calloc((size_t)p->n_items, sizeof(int)),
                 .last_begin = got.begin_s};
    int starts = 0;
    assert_int_equal(got.lost, 0);
    assert_true(got.n <= ech_recorder_capacity(r->recorder));
    for (size_t k = 0; k < got.n; k++) {
        assert_int_equal(got.bar[k].rank, r->rank);
        assert_true(got.bar[k].end_s <= got.end_s);
        count(p, &got.bar[k], &c);
    }
    for (int k = 0; k < p->n_items; k++) {
        const ech_block *b = &p->block[p->item[k].block];
        /* an item that no wait cuts is one bar */
        assert_int_equal(c.kernels[k] > 0, has_kernels(b));
        assert_true(c.kernels[k] <= 1 + c.cuts[k]);
        for (int o = 0; o < b->n_ops; o++)
            starts += is_start(p, k, o);
    }
    assert_int_equal(c.messages, starts);
    /* the engine's own clocks: a wait's bar ends just before they are read, and a bar spans an
     * item's kernels with what lies between them */
    assert_true(c.waits_s <= t.blocked_s * (1.0 + 1e-9));
    assert_true(c.waits_s >= 0.5 * t.blocked_s - 1e-3);
    assert_true(c.kernels_s >= t.kernels_s * (1.0 - 1e-9));
    assert_true(c.kernels_s <= t.total_s);
    assert_true(c.kernels_s + c.waits_s <= got.end_s - got.begin_s);
    free(c.kernels);
    free(c.cuts);
}

static void test_bars_are_what_the_program_has(void **state)
{
    static const int form[][3] = {{1, 1, 0}, {2, 1, 0}, {1, 3, 1}, {2, 2, 3}};
    (void)state;
    for (size_t f = 0; f < sizeof form / sizeof form[0]; f++) {
        tiny_run run;
        start(form[f][0], form[f][1], form[f][2], &run);
        (void)step(&run, 0, false);
        for (int i = 0; i < run.world; i++) {
            assert_int_equal(ech_recorder_get(run.session->local[i].recorder).n, 0);
            ech_engine_times_reset(run.session->local[i].engine);
        }
        (void)step(&run, 1, true);
        for (int i = 0; i < run.world; i++)
            check_rank(&run, i);
        tiny_stop(&run);
    }
}

/* Also a recorder that is full goes on counting. */
static void test_what_has_no_room_is_counted(void **state)
{
    tiny_run run;
    (void)state;
    start(1, 2, 1, &run);
    (void)step(&run, 0, true);
    ech_recorder *r = run.session->local[1].recorder;
    const size_t n = ech_recorder_get(r).n;
    const size_t room = ech_recorder_capacity(r) - n;
    const ech_op_place at = {.item = 0, .op = 0, .request = 0};
    for (size_t i = 0; i < room + 7; i++) {
        ech_recorder_blocked(r, &at, 1.0);
        ech_recorder_waited(r, &at, 2.0);
    }
    ech_recorder_started(r, &at, 2.0);
    ech_recorder_arrived(r, 0, 3.0);
    assert_int_equal(ech_recorder_get(r).n, n + room);
    assert_int_equal(ech_recorder_get(r).lost, 8);
    ech_timeline line;
    tiny_ok(ech_trace_gather(run.session, 1, &line), "gather");
    assert_int_equal(line.lost, 8);
    ech_timeline_fini(&line);
    (void)step(&run, 1, true); /* begins anew */
    assert_int_equal(ech_recorder_get(r).lost, 0);
    tiny_stop(&run);
}

/* A message is over when it was seen to be through, however late its wait. */
static void test_a_message_ends_once(void **state)
{
    tiny_run run;
    (void)state;
    start(1, 2, 1, &run);
    ech_recorder *r = run.session->local[0].recorder;
    const ech_op_place at = {.item = 3, .op = 1, .axis = ECH_AXIS_DP, .request = 0};
    ech_recorder_begin(r);
    ech_recorder_started(r, &at, 1.0);
    ech_recorder_kernel(r, 4, 1.5, 2.0);
    ech_recorder_kernel(r, 4, 2.25, 2.5);
    ech_recorder_arrived(r, 0, 2.5);
    ech_recorder_blocked(r, &at, 3.0);
    ech_recorder_blocked(r, &at, 3.5);
    ech_recorder_waited(r, &at, 4.0);
    ech_recorder_kernel(r, 4, 5.0, 6.0);
    ech_recorder_end(r);
    static const ech_bar want[] = {
        {0, ECH_LANE_COMM, ECH_AXIS_DP, 3, 1, 1.0, 2.5},
        {0, ECH_LANE_COMPUTE, (ech_axis)0, 4, -1, 1.5, 2.5},
        {0, ECH_LANE_WAIT, ECH_AXIS_DP, 3, 1, 3.0, 4.0},
        {0, ECH_LANE_COMPUTE, (ech_axis)0, 4, -1, 5.0, 6.0},
    };
    const ech_recording got = ech_recorder_get(r);
    assert_int_equal(got.n, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(got.bar[i].lane, want[i].lane);
        assert_int_equal(got.bar[i].item, want[i].item);
        assert_int_equal(got.bar[i].op, want[i].op);
        assert_near(got.bar[i].begin_s, want[i].begin_s, 0.0);
        assert_near(got.bar[i].end_s, want[i].end_s, 0.0);
    }
    tiny_stop(&run);
}

static void test_recording_changes_nothing(void **state)
{
    tiny_run a;
    tiny_run b;
    (void)state;
    start(2, 2, 1, &a);
    start(2, 2, 1, &b);
    for (int i = 0; i < 2; i++) {
        const ech_step_result x = step(&a, i, true);
        const ech_step_result y = step(&b, i, false);
        assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        assert_memory_equal(&x.grad_norm, &y.grad_norm, sizeof x.grad_norm);
    }
    const size_t bytes = (size_t)a.session->canon.elems * sizeof(double);
    assert_memory_equal(tiny_all(a.session, ECH_HELD_PARAMS), tiny_all(b.session, ECH_HELD_PARAMS),
                        bytes);
    tiny_stop(&a);
    tiny_stop(&b);
}

/* All ranks' bars on one line, from the first begin to the last end. */
static void test_the_line_holds_all_ranks(void **state)
{
    tiny_run run;
    ech_timeline line;
    size_t n = 0;
    (void)state;
    start(2, 2, 1, &run);
    (void)step(&run, 0, true);
    tiny_ok(ech_trace_gather(run.session, 1, &line), "gather");
    for (int i = 0; i < run.world; i++) {
        const ech_recording r = ech_recorder_get(run.session->local[i].recorder);
        for (size_t k = 0; k < r.n; k++, n++) {
            assert_int_equal(line.bar[n].rank, i);
            assert_near(line.bar[n].end_s - line.bar[n].begin_s, r.bar[k].end_s - r.bar[k].begin_s,
                        1e-9);
            assert_true(line.bar[n].begin_s >= 0.0 && line.bar[n].end_s <= line.step_s);
        }
    }
    assert_int_equal(line.n, n);
    assert_int_equal(line.world, 4);
    assert_ptr_equal(ech_timeline_program(&line, 0), run.session->train.program[0]);
    assert_non_null(strstr(line.note, "4 virtual ranks in one process"));
    ech_timeline_fini(&line);
    tiny_stop(&run);
}

/* Shortest of many: what a loaded machine adds is not the recorder's. */
static double bar_cost(ech_recorder *r)
{
    enum { BATCHES = 200, TURNS = 64, BARS = 3 };
    const ech_op_place at = {.item = 0, .op = 0, .request = 0};
    double least = 1.0;
    for (int b = 0; b < BATCHES; b++) {
        ech_recorder_begin(r); /* room for them all */
        const double t0 = ech_clock_s();
        for (int i = 0; i < TURNS; i++) {
            ech_recorder_kernel(r, i, t0, t0);
            ech_recorder_started(r, &at, t0);
            ech_recorder_blocked(r, &at, t0);
            ech_recorder_waited(r, &at, t0);
        }
        const double one = (ech_clock_s() - t0) / (TURNS * BARS);
        least = one < least ? one : least;
    }
    ech_recorder_end(r);
    return least;
}

static double shortest_step(tiny_run *run, bool records, int64_t *number, double least)
{
    const double t0 = ech_clock_s();
    (void)step(run, (*number)++, records);
    const double s = ech_clock_s() - t0;
    return s < least ? s : least;
}

/* What a bar costs, times the bars of a step, beside the step; a step of this size is nothing but
 * calls, so of a real one it is less.  Beside it the same steps with and without, in turn. */
static void test_recording_costs_less_than_a_hundredth(void **state)
{
    enum { STEPS = 40 };
    tiny_run run;
    int64_t number = 0;
    double without = 1e9;
    double with = 1e9;
    (void)state;
    start(2, 2, 1, &run);
    for (int i = 0; i < STEPS; i++) {
        without = shortest_step(&run, false, &number, without);
        with = shortest_step(&run, true, &number, with);
    }
    ech_recorder *r = run.session->local[0].recorder;
    const double n = 4.0 * (double)ech_recorder_get(r).n;
    const double one = bar_cost(r);
    (void)printf(
        "recording: %.0f bars of 4 ranks, %.1f ns each: %.3f %% of a step of %.3f ms; with "
        "it %.3f ms\n",
        n, 1e9 * one, 100.0 * n * one / without, 1e3 * without, 1e3 * with);
    assert_true(n * one < 0.01 * without);
    tiny_stop(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bars_are_what_the_program_has),
        cmocka_unit_test(test_what_has_no_room_is_counted),
        cmocka_unit_test(test_a_message_ends_once),
        cmocka_unit_test(test_recording_changes_nothing),
        cmocka_unit_test(test_the_line_holds_all_ranks),
        cmocka_unit_test(test_recording_costs_less_than_a_hundredth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
