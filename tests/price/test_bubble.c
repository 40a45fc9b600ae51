/* RUN: np=1 timeout=120 tags=fast */
/* Bubbles of compiled pipelines with equal stages and free messages, F = I = W: exactly their
 * closed forms (Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Qi et al. 2023,
 * arXiv:2401.10241, table 1), for every number of micro-batches. */
#include "check.h"
#include "timed.h"
#include "tiny.h"
#include "base/clock.h"
#include "price/unit.h"
#include "program/compile.h"

#include <stdlib.h>

/* Seconds of a whole pipeline rank's work: the chunks of a rank share them. */
enum { WORK_S = 1 };

typedef struct point {
    ech_schedule_kind schedule;
    int p, m, v;
} point;

/* A model of a layer a virtual stage, so that stages are alike but for their ends. */
static ech_step_sums bubble_of(const point *at)
{
    ech_model model = tiny_model(TINY_LLAMA, 0.0);
    ech_canon canon;
    ech_run run = {0};
    ech_unit u = {0};
    ech_step_sums s;
    const int stages = at->p * at->v;
    const double each = (double)WORK_S / at->v;
    model.layers = stages;
    assert_ok(ech_canon_create(&model, &canon));
    const ech_compile_spec spec = {.block = {.model = &model,
                                             .canon = &canon,
                                             .layout = timed_mesh(1, 1, at->p),
                                             .real = ECH_F32,
                                             .rows = 1,
                                             .seq = 4,
                                             .context = 16,
                                             .optim = ECH_UPDATE_ADAMW,
                                             .beta1 = 0.9,
                                             .beta2 = 0.95,
                                             .eps = 1e-8,
                                             .clip = 1.0},
                                   .micro_batches = at->m,
                                   .schedule = at->schedule,
                                   .chunks = at->v,
                                   .bucket_bytes = 1 << 14};
    assert_ok(ech_run_compile(&spec, ECH_MODE_TRAIN, &run));
    assert_ok(ech_unit_make(run.program, run.n_classes, (ech_unit_times){each, each, each}, &u));
    const ech_simulate_spec sim = {.program = run.program,
                                   .n_classes = run.n_classes,
                                   .class_of = run.class_of,
                                   .costs = ech_unit_costs(&u)};
    const double t0 = ech_clock_s();
    assert_ok(ech_simulate(&sim, &s, NULL));
    if (s.ops > 1000000)
        (void)printf("%lld ops of %d ranks simulated in %.3f s\n", (long long)s.ops, s.followed,
                     ech_clock_s() - t0);
    timed_check_sums(&s);
    assert_int_equal(s.followed, at->p);
    assert_near(s.compute_s, 3.0 * at->m * WORK_S, 1e-9 * s.step_s);
    ech_unit_fini(&u);
    ech_run_fini(&run);
    ech_canon_fini(&canon);
    return s;
}

static void assert_bubble(const point *at, double seconds)
{
    const ech_step_sums s = bubble_of(at);
    (void)printf("%-11s p %d, m %2d, v %d: bubble %.4f s of %.4f, closed form %.4f\n",
                 ech_schedule_name(at->schedule), at->p, at->m, at->v, s.bubble_s, s.step_s,
                 seconds);
    assert_near(s.bubble_s, seconds, 1e-9 * s.step_s);
}

static void test_gpipe_and_1f1b(void **state)
{
    (void)state;
    for (int p = 2; p <= 4; p++)
        for (int m = 1; m <= 3 * p; m++)
            for (int k = 0; k < 2; k++) {
                const point at = {k ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B, p, m, 1};
                assert_bubble(&at, (p - 1) * 3.0 * WORK_S);
            }
}

static void test_interleaved(void **state)
{
    (void)state;
    for (int p = 2; p <= 4; p++)
        for (int v = 1; v <= 3; v++)
            for (int m = p; m <= 3 * p; m += p) {
                const point at = {ECH_SCHEDULE_INTERLEAVED, p, m, v};
                assert_bubble(&at, (p - 1) * 3.0 * WORK_S / v);
            }
}

static void test_zb_h1(void **state)
{
    (void)state;
    for (int p = 2; p <= 4; p++)
        for (int m = 2 * p; m <= 3 * p; m++) {
            const point at = {ECH_SCHEDULE_ZB_H1, p, m, 1};
            assert_bubble(&at, (p - 1) * 1.0 * WORK_S);
        }
}

/* A V form's literature says zero, without a barrier behind the step; with one a chunk's forward
 * has to come down to the last rank first, and the others wait so long at least. */
static void test_zb_v_beside_zero(void **state)
{
    (void)state;
    for (int p = 2; p <= 4; p++)
        for (int m = 2 * p; m <= 3 * p; m += p) {
            const point at = {ECH_SCHEDULE_ZB_V, p, m, 2};
            const ech_step_sums s = bubble_of(&at);
            const double least = (p - 1) * 0.5 * WORK_S;
            (void)printf("zb-v        p %d, m %2d: bubble %.4f s of %.4f; at least %.4f between "
                         "barriers, 0 without\n",
                         p, m, s.bubble_s, s.step_s, least);
            assert_true(s.bubble_s >= least * (1.0 - 1e-9));
            assert_true(s.bubble_s <= (p - 1) * 3.0 * WORK_S); /* 1F1B's */
        }
}

/* The closed form holds at any size; printed is how long that takes. */
static void test_64_stages_of_512_micro_batches(void **state)
{
    const point at = {ECH_SCHEDULE_1F1B, 64, 512, 1};
    (void)state;
    assert_bubble(&at, 63 * 3.0 * WORK_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpipe_and_1f1b),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_zb_h1),
        cmocka_unit_test(test_zb_v_beside_zero),
        cmocka_unit_test(test_64_stages_of_512_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
