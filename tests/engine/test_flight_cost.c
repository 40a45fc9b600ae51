/* RUN: np=1 timeout=60 tags=fast */
/* What recording costs: stores of an item and of an op, times how many a step has, beside the step. */
#include "base/clock.h"
#include "check.h"
#include "engine/flight.h"
#include "folder.h"
#include "tiny.h"

enum { POSTS = 2000000, STEPS = 30 };

static double cost_of_post(ech_flight_record *r, bool is_item)
{
    ech_flight_place at = {.name = "attention backward", .layer = 3, .micro = 1};
    double best = 1.0;
    for (int round = 0; round < 5; round++) {
        const double t0 = ech_clock_s();
        for (int i = 0; i < POSTS / 5; i++) {
            at.op = i;
            if (is_item)
                ech_flight_post(r, &at, at.name);
            else
                ech_flight_post_op(r, &at);
        }
        const double s = (ech_clock_s() - t0) / (POSTS / 5);
        best = s < best ? s : best;
    }
    return best;
}

static void count(const ech_program *p, int *items, int *ops)
{
    *items = p->n_items;
    *ops = 0;
    for (int i = 0; i < p->n_items; i++)
        *ops += p->block[p->item[i].block].n_ops;
}

/* The shortest of many steps, as the least disturbed. */
static double step_time(tiny_run *run, int64_t *step)
{
    double best = 1e9;
    for (int i = 0; i < STEPS; i++) {
        const double t0 = ech_clock_s();
        (void)tiny_step(run, (*step)++, 1e-3);
        const double s = ech_clock_s() - t0;
        best = s < best ? s : best;
    }
    return best;
}

static void test_cost(void **state)
{
    static const int ranks[] = {0};
    const ech_flight_spec flight = {
        .dir = *state, .host = "here", .rank = ranks, .n = 1, .world = 1, .run = 1};
    ech_flight *f;
    tiny_run run;
    int items;
    int ops;
    int64_t step = 0;
    tiny_spec spec = tiny_spec_default();
    spec.dp = 1;
    spec.accumulation = 2;
    tiny_start(&spec, &run);
    tiny_feed(&run, 0, NULL, NULL);
    assert_ok(ech_flight_create(&flight));
    assert_ok(ech_flight_open(&flight, &f));
    ech_flight_record *r = ech_flight_take(f, 0);
    const double item_s = cost_of_post(r, true);
    const double op_s = cost_of_post(r, false);
    count(run.session->train.program[0], &items, &ops);
    double without = step_time(&run, &step);
    ech_session_set_flight(run.session, f);
    double with = step_time(&run, &step);
    for (int i = 0; i < 4; i++) { /* in turn, so that both meet the same machine */
        ech_session_set_flight(run.session, NULL);
        const double a = step_time(&run, &step);
        ech_session_set_flight(run.session, f);
        const double b = step_time(&run, &step);
        without = a < without ? a : without;
        with = b < with ? b : with;
    }
    const double cost = items * item_s + (ops - items) * op_s;
    (void)printf("an item %.1f ns, an op %.1f ns; %d items, %d ops: %.2f us of a step of %.0f us, "
                 "%.3f %%; steps measured with and without: %+.2f %%\n",
                 1e9 * item_s, 1e9 * op_s, items, ops, 1e6 * cost, 1e6 * without,
                 100.0 * cost / without, 100.0 * (with / without - 1.0));
    assert_true(cost < 0.02 * without); /* of a step whose ops take 2 us */
    tiny_stop(&run);
    ech_flight_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cost, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
