/* RUN: np=1 timeout=20 tags=fast */
/* The time line of stages: bars by hand, and what must hold of any. */
#include "check.h"

#include "price/stage_line.h"

#include <stdlib.h>

static ech_stage_line make(const ech_stage_line_spec *spec)
{
    ech_stage_line s = {0};
    assert_ok(ech_stage_line_make(spec, &s));
    return s;
}

static double sum_of(const ech_stage_line *s, int rank, ech_lane lane, ech_axis axis)
{
    double sum = 0.0;
    for (size_t i = 0; i < s->line.n; i++) {
        const ech_bar *b = &s->line.bar[i];
        if (b->rank == rank && b->lane == lane && (lane == ECH_LANE_COMPUTE || b->axis == axis))
            sum += b->end_s - b->begin_s;
    }
    return sum;
}

/* Two stages, two micro-batches, 1f1b, no hops: F 1 and 2, B 3 and 4.
 *   rank 0: F0 0-1, F1 1-2, wait 2-7, B0 7-10, wait 10-13, B1 13-16
 *   rank 1: wait 0-1, F0 1-3, B0 3-7, F1 7-9, B1 9-13 */
static void test_by_hand(void **state)
{
    static const double forward[] = {1, 2};
    static const double backward[] = {3, 4};
    (void)state;
    const ech_stage_line_spec spec = {.kind = ECH_SCHEDULE_1F1B,
                                      .ranks = 2,
                                      .chunks = 1,
                                      .micros = 2,
                                      .forward = forward,
                                      .backward = backward,
                                      .reduce_s = 0.5,
                                      .update_s = 0.25};
    ech_stage_line s = make(&spec);
    assert_near(s.makespan_s, 16, 1e-12);
    assert_near(s.line.step_s, 16.75, 1e-12);
    assert_near(s.bubble, 1.0 - (8.0 + 12.0) / 32.0, 1e-12);
    assert_int_equal(s.cells, 8);
    assert_int_equal(s.line.world, 2);
    assert_near(sum_of(&s, 0, ECH_LANE_WAIT, ECH_AXIS_PP), 8, 1e-12);
    assert_near(sum_of(&s, 1, ECH_LANE_WAIT, ECH_AXIS_PP), 4, 1e-12);
    assert_near(sum_of(&s, 1, ECH_LANE_WAIT, ECH_AXIS_DP), 0.5, 1e-12);
    assert_near(sum_of(&s, 0, ECH_LANE_COMPUTE, ECH_AXIS_PP), 8.25, 1e-12);
    const ech_bar *b = &s.line.bar[2]; /* rank 0 waits for its first gradient */
    assert_int_equal(b->lane, ECH_LANE_WAIT);
    assert_near(b->begin_s, 2, 1e-12);
    assert_near(b->end_s, 7, 1e-12);
    ech_stage_line_fini(&s);
}

/* Bars of a rank follow each other without a gap from 0 to the step's end, whatever the schedule. */
static void assert_whole(const ech_stage_line *s)
{
    for (int r = 0; r < s->ranks; r++) {
        double at = 0.0;
        for (size_t i = 0; i < s->line.n; i++) {
            const ech_bar *b = &s->line.bar[i];
            if (b->rank != r)
                continue;
            assert_near(b->begin_s, at, 1e-9);
            at = b->end_s;
            const ech_program *p = ech_timeline_program(&s->line, r);
            assert_in_range(b->item, 0, p->n_items - 1);
        }
        assert_near(at, s->line.step_s, 1e-9);
    }
}

static void test_every_schedule(void **state)
{
    static const struct {
        ech_schedule_kind kind;
        int chunks;
    } cases[] = {{ECH_SCHEDULE_1F1B, 1},
                 {ECH_SCHEDULE_GPIPE, 1},
                 {ECH_SCHEDULE_INTERLEAVED, 2},
                 {ECH_SCHEDULE_ZB_H1, 1},
                 {ECH_SCHEDULE_ZB_V, 2}};
    double forward[8];
    double backward[8];
    (void)state;
    for (int i = 0; i < 8; i++) {
        forward[i] = 1.0 + 0.1 * i;
        backward[i] = 2.0 + 0.3 * i;
    }
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const ech_stage_line_spec spec = {.kind = cases[k].kind,
                                          .ranks = 4,
                                          .chunks = cases[k].chunks,
                                          .micros = 8,
                                          .forward = forward,
                                          .backward = backward,
                                          .hop_s = 0.01,
                                          .reduce_s = 0.2,
                                          .update_s = 0.1};
        ech_stage_line s = make(&spec);
        double work = 0.0;
        for (int i = 0; i < 4 * cases[k].chunks; i++)
            work += 8 * (forward[i] + backward[i]);
        double bars = 0.0;
        for (int r = 0; r < 4; r++)
            bars += sum_of(&s, r, ECH_LANE_COMPUTE, ECH_AXIS_PP);
        assert_near(bars, work + 4 * 0.1, 1e-9);
        assert_near(s.bubble, 1.0 - work / (4 * s.makespan_s), 1e-12);
        assert_whole(&s);
        ech_stage_line_fini(&s);
    }
}

static void test_what_is_refused(void **state)
{
    static const double seconds[] = {1, 1, 1, 1};
    ech_stage_line s = {0};
    (void)state;
    const ech_stage_line_spec spec = {.kind = ECH_SCHEDULE_INTERLEAVED,
                                      .ranks = 2,
                                      .chunks = 2,
                                      .micros = 1,
                                      .forward = seconds,
                                      .backward = seconds};
    assert_fails(ech_stage_line_make(&spec, &s), ECH_E_ILLEGAL, "");
    assert_null(s.program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_every_schedule),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
