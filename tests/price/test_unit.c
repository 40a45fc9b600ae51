/* RUN: np=1 timeout=20 tags=fast */
/* Equal stages and free messages: pipelines written by hand have the bubbles of their closed forms,
 * however many items a stage's work is spread over; and a compiled program takes what is said. */
#include "check.h"
#include "timed.h"
#include "tiny.h"
#include "price/unit.h"
#include "program/compile.h"

#include <stdlib.h>

static const ech_unit_times TIMES = {.forward_s = 1.0, .input_s = 0.75, .weight_s = 0.5};

/* --- pipelines by hand --- */

/* What a stage does with a micro-batch: a receive, `pieces` items of two kernels, a send. */
static void add_work(ech_program *p, ech_role role, int micro, int pieces, const int peers[2])
{
    const ech_op two[] = {timed_kernel(0), timed_kernel(0)};
    if (peers[0] >= 0)
        TIMED_ADD(p, timed_recv(peers[0], 0, 0), timed_arrived(0));
    for (int i = 0; i < pieces; i++) {
        timed_add(p, role, ECH_SEGMENT_ACCUMULATE, 2, two);
        p->item[p->n_items - 1].micro = micro;
    }
    if (peers[1] >= 0) /* never waited for: the next stage may be far behind */
        TIMED_ADD(p, timed_send(peers[1], 1 + 2 * micro + (role != ECH_ROLE_FORWARD), 0));
}

static void forward(ech_program *p, int stage, int stages, int micro)
{
    const int peers[] = {stage - 1, stage + 1 < stages ? stage + 1 : -1};
    add_work(p, ECH_ROLE_FORWARD, micro, 1 + stage, peers);
}

static void backward(ech_program *p, int stage, int stages, int micro)
{
    const int peers[] = {stage + 1 < stages ? stage + 1 : -1, stage - 1};
    add_work(p, ECH_ROLE_BACKWARD, micro, 3 - stage % 2, peers);
}

/* 1F1B, or with `first` micro-batches forward before the first backward. */
static void pipeline(ech_program *p, int stage, int stages, int micros, int first)
{
    const int ahead = first < micros ? first : micros;
    for (int i = 0; i < ahead; i++)
        forward(p, stage, stages, i);
    for (int i = ahead; i < micros; i++) {
        backward(p, stage, stages, i - ahead);
        forward(p, stage, stages, i);
    }
    for (int i = micros - ahead; i < micros; i++)
        backward(p, stage, stages, i);
    TIMED_ADD(p, timed_reduce(ECH_AXIS_WORLD, 0, 0), timed_reduced(ECH_AXIS_WORLD, 0));
}

static void test_pipelines_have_their_closed_bubbles(void **state)
{
    (void)state;
    for (int p = 2; p <= 4; p++)
        for (int m = 1; m <= 3 * p; m++)
            for (int is_gpipe = 0; is_gpipe < 2; is_gpipe++) {
                const ech_layout l = timed_mesh(1, 2, p);
                timed_run *r = timed_make(&l);
                ech_unit u = {0};
                ech_step_sums s;
                for (int stage = 0; stage < p; stage++)
                    pipeline(&r->program[stage], stage, p, m, is_gpipe ? m : p - stage);
                assert_ok(ech_unit_make(r->borrowed, p, TIMES, &u));
                ech_simulate_spec spec = timed_spec(r);
                spec.costs = ech_unit_costs(&u);
                assert_ok(ech_simulate(&spec, &s, NULL));
                timed_check_sums(&s);
                assert_int_equal(s.followed, p);
                assert_near(s.step_s, (m + p - 1) * 2.25, 1e-9);
                assert_near(s.bubble_s, (p - 1) * 2.25, 1e-9);
                assert_near(s.bubble_s / s.step_s, (p - 1.0) / (m + p - 1.0), 1e-12);
                ech_unit_fini(&u);
                timed_free(r);
            }
}

/* --- costs by themselves --- */

static double cost_of(ech_unit *u, const ech_program *p, int item)
{
    const ech_costs c = ech_unit_costs(u);
    const ech_block *b = &p->block[p->item[item].block];
    double s = 0.0;
    for (int k = 0; k < b->n_ops; k++)
        s += c.kernel_s(c.user, p, &p->item[item], &b->op[k]);
    return s;
}

static void test_a_stage_is_spread_by_chunk_and_role(void **state)
{
    static const ech_role role[] = {ECH_ROLE_FORWARD, ECH_ROLE_BACKWARD, ECH_ROLE_BACKWARD_INPUT,
                                    ECH_ROLE_BACKWARD_WEIGHT};
    static const double want[] = {1.0, 1.25, 0.75, 0.5};
    const ech_layout l = timed_mesh(1, 1, 1);
    timed_run *r = timed_make(&l);
    ech_program *p = &r->program[0];
    const ech_op op[] = {timed_kernel(0), timed_kernel(0), timed_kernel(0)};
    ech_unit u = {0};
    (void)state;
    for (int micro = 0; micro < 3; micro++)
        for (int chunk = 0; chunk < 2; chunk++)
            for (int k = 0; k < 4; k++)
                for (int i = 0; i < 1 + k + chunk; i++) {
                    timed_add(p, role[k], ECH_SEGMENT_ACCUMULATE, 1 + i % 3, op);
                    p->item[p->n_items - 1].micro = micro;
                    p->item[p->n_items - 1].chunk = chunk;
                }
    timed_add(p, ECH_ROLE_UPDATE, ECH_SEGMENT_COMMIT, 3, op);
    assert_ok(ech_unit_make(r->borrowed, 1, TIMES, &u));
    for (int i = 0; i + 1 < p->n_items; i++)
        for (int k = 0; k < 4; k++)
            if (p->block[p->item[i].block].role == role[k])
                assert_near(cost_of(&u, p, i), want[k] / (1 + k + p->item[i].chunk), 1e-15);
    assert_near(cost_of(&u, p, p->n_items - 1), 0.0, 0.0);
    ech_unit_fini(&u);
    assert_null(u.items);
    assert_fails(ech_unit_make(r->borrowed, 1, (ech_unit_times){-1.0, 1.0, 1.0}, &u), ECH_E_ILLEGAL,
                 "a stage cannot take -1 seconds");
    timed_free(r);
}

/* --- a compiled program --- */

static double second(void *user, const ech_program *p, const ech_item *item, const ech_op *op)
{
    (void)user;
    (void)p;
    (void)item;
    return 1.0 + (double)op->kind / 1024.0;
}

static double tenth(void *user, const ech_layout *l, const ech_op *op, int rank)
{
    (void)user;
    (void)l;
    (void)op;
    (void)rank;
    return 0.125;
}

static double kernels_of(const ech_program *p, bool commit)
{
    double s = 0.0;
    for (int i = 0; i < p->n_items; i++)
        for (int k = 0; k < p->block[p->item[i].block].n_ops; k++) {
            const ech_op *op = &p->block[p->item[i].block].op[k];
            if (!ech_op_is_comm(op->kind) && (p->item[i].segment == ECH_SEGMENT_COMMIT) == commit)
                s += second(NULL, p, &p->item[i], op);
        }
    return s;
}

static void test_a_compiled_program(void **state)
{
    ech_model model = tiny_model(TINY_GPT2, 0.0);
    ech_canon canon;
    ech_program p;
    ech_run_slots slots;
    ech_unit u = {0};
    ech_step_sums s;
    const ech_program *one = &p;
    (void)state;
    assert_ok(ech_canon_create(&model, &canon));
    const ech_compile_spec spec = {.block = {.model = &model,
                                             .canon = &canon,
                                             .layout = timed_mesh(1, 3, 1),
                                             .real = ECH_F32,
                                             .rows = 2,
                                             .seq = 8,
                                             .context = 16,
                                             .optim = ECH_UPDATE_ADAMW,
                                             .beta1 = 0.9,
                                             .beta2 = 0.95,
                                             .eps = 1e-8,
                                             .clip = 1.0},
                                   .micro_batches = 5,
                                   .bucket_bytes = 1 << 14};
    assert_ok(ech_compile_train(&spec, &p, &slots));
    ech_simulate_spec sim = {.program = &one, .n_classes = 1, .costs = {NULL, second, tenth, 0.0}};
    assert_ok(ech_simulate(&sim, &s, NULL));
    timed_check_sums(&s);
    assert_int_equal(s.followed, 1);
    assert_near(s.compute_s, kernels_of(&p, false), 1e-9);
    assert_near(s.optimizer_s, kernels_of(&p, true), 1e-9);
    assert_near(s.bubble_s, 0.0, 1e-9);
    assert_true(s.exposed_s[ECH_AXIS_DP] > 0.0);
    assert_near(s.exposed_s[ECH_AXIS_DP], s.stood_s[ECH_AXIS_DP], 1e-9);
    assert_ok(ech_unit_make(&one, 1, TIMES, &u));
    sim.costs = ech_unit_costs(&u);
    assert_ok(ech_simulate(&sim, &s, NULL));
    assert_near(s.step_s, 5 * 2.25, 1e-12);
    assert_near(s.compute_s, 5 * 2.25, 1e-12);
    ech_unit_fini(&u);
    ech_program_fini(&p);
    ech_canon_fini(&canon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelines_have_their_closed_bubbles),
        cmocka_unit_test(test_a_stage_is_spread_by_chunk_and_role),
        cmocka_unit_test(test_a_compiled_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
