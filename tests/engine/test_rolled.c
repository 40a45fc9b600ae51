/* RUN: np=1 timeout=120 tags=fast */
/* A step of many micro-batches that was compiled as rounds and unrolled gives the bits of one that was
 * compiled item by item: losses, norms, gradients, weights and moments; its memory is what was
 * predicted. */
#include "check.h"
#include "tiny.h"

#include <string.h>

/* What is rolled. */
typedef struct rolled_case {
    tiny_kind kind;
    ech_schedule_kind schedule;
    int pp, tp, dp, stage, micros;
} rolled_case;

static const rolled_case cases[] = {
    {TINY_LLAMA, ECH_SCHEDULE_1F1B, 1, 1, 1, 0, 24},
    {TINY_LLAMA, ECH_SCHEDULE_1F1B, 2, 1, 1, 0, 24},
    {TINY_GPT2, ECH_SCHEDULE_1F1B, 3, 1, 1, 0, 25},
    {TINY_LLAMA, ECH_SCHEDULE_ZB_H1, 2, 1, 1, 0, 26},
    {TINY_QWEN, ECH_SCHEDULE_1F1B, 2, 2, 1, 0, 24},
    {TINY_TIED_LLAMA, ECH_SCHEDULE_1F1B, 2, 1, 2, 1, 27},
    {TINY_QWEN, ECH_SCHEDULE_ZB_H1, 3, 1, 2, 1, 24},
};

static tiny_spec spec_of(const rolled_case *c, bool rolls)
{
    tiny_spec spec = tiny_spec_default();
    spec.kind = c->kind;
    spec.layers = 4;
    spec.schedule = c->schedule;
    spec.pp = c->pp;
    spec.tp = c->tp;
    spec.dp = c->dp;
    spec.policy.zero_stage = c->stage;
    spec.accumulation = c->micros;
    spec.optim = ECH_UPDATE_ADAMW;
    spec.poison = true;
    spec.rolls = rolls;
    return spec;
}

static void expect_same(const ech_session *a, const ech_session *b, ech_held_class what)
{
    const size_t bytes = (size_t)a->canon.elems * sizeof(double);
    assert_memory_equal(tiny_all(a, what), tiny_all(b, what), bytes);
}

static void expect_predicted_memory(const tiny_run *run)
{
    for (int r = 0; r < run->world; r++) {
        const ech_local_rank *l = &run->session->local[r];
        ech_engine_memory had;
        ech_memory predicted;
        ech_engine_memory_get(l->engine, ECH_SPACE_DEVICE, &had);
        assert_ok(ech_program_memory(&l->klass->program, ECH_SPACE_DEVICE, &predicted));
        assert_int_equal(had.total, predicted.total);
        assert_int_equal(had.arena, predicted.arena);
    }
}

/* Some rank's program has rounds, so that something is compared. */
static void expect_rounds(const tiny_run *run)
{
    ech_run compiled = {0};
    ech_compile_spec spec = run->session->config.compile;
    int times = 0;
    assert_ok(ech_run_compile(&spec, ECH_MODE_TRAIN, &compiled));
    for (int k = 0; k < compiled.n_classes; k++)
        times =
            compiled.program[k]->repeat.times > times ? compiled.program[k]->repeat.times : times;
    assert_true(times > 1);
    for (int k = 0; k < compiled.n_classes; k++)
        assert_int_equal(run->session->train.program[k]->repeat.times, 0);
    ech_run_fini(&compiled);
}

static void check(const rolled_case *c)
{
    tiny_run rolled;
    tiny_run plain;
    const tiny_spec a = spec_of(c, true);
    const tiny_spec b = spec_of(c, false);
    tiny_start(&a, &rolled);
    tiny_start(&b, &plain);
    expect_rounds(&rolled);
    for (int step = 0; step < 2; step++) {
        tiny_feed(&rolled, step, NULL, NULL);
        tiny_feed(&plain, step, NULL, NULL);
        const ech_step_result x = tiny_step(&rolled, step, 0.01);
        const ech_step_result y = tiny_step(&plain, step, 0.01);
        assert_memory_equal(&x.loss, &y.loss, sizeof x.loss);
        assert_memory_equal(&x.grad_norm, &y.grad_norm, sizeof x.grad_norm);
        for (int what = 0; what < ECH_N_HELD; what++)
            expect_same(rolled.session, plain.session, (ech_held_class)what);
    }
    expect_predicted_memory(&rolled);
    tiny_stop(&rolled);
    tiny_stop(&plain);
}

static void test_rounds_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
