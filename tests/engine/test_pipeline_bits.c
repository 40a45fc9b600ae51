/* RUN: np=1 timeout=300 tags=fast */
/* What a pipeline may not change by one bit: losses, norms, gradients, weights and moments of AdamW
 * steps with clipping on, over the number of pipeline ranks (one among them) and over schedules,
 * whatever the backward's form.  Sums of a stage are in the order of micro-batches under all of
 * them.
 *
 * A tied table on two pipeline ranks is another sum than one on one rank, where the head's and the
 * embedding's micro-batches are added in turn: so tied models have the same bits among two and more
 * ranks that hold it apart, and differ by rounding from one rank, and so from V forms. */
#include "check.h"
#include "equal.h"
#include "pipelines.h"
#include "sanitized.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, MICROS = 12 /* a multiple of 2, 3 and 4 */ };

/* All that a run comes to. */
typedef struct outcome {
    size_t elems, real;
    ech_step_result step[STEPS];
    unsigned char *grads[STEPS];
    unsigned char *state[3]; /* weights, moments m and v */
} outcome;

static unsigned char *copy(const outcome *o, const void *from)
{
    unsigned char *to = malloc(o->elems * o->real);
    assert_non_null(to);
    memcpy(to, from, o->elems * o->real);
    return to;
}

static outcome run_of(const tiny_spec *spec)
{
    static const ech_held_class classes[] = {ECH_HELD_PARAMS, ECH_HELD_M, ECH_HELD_V};
    tiny_run run;
    tiny_start(spec, &run);
    ech_session *s = run.session;
    outcome o = {.elems = (size_t)s->canon.elems, .real = ech_dtype_bytes(spec->real)};
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, equal_keep, NULL);
        o.step[i] = tiny_step(&run, i, 0.01);
        assert_true(o.step[i].is_updated);
        assert_true(o.step[i].grad_norm > spec->clip); /* it is clipped */
        o.grads[i] = copy(&o, tiny_all(s, ECH_HELD_GRADS));
    }
    for (int k = 0; k < 3; k++) {
        assert_int_equal(equal_wrong_copies(s, classes[k]), 0);
        o.state[k] = copy(&o, tiny_all(s, classes[k]));
    }
    tiny_stop(&run);
    return o;
}

static void forget(outcome *o)
{
    for (int i = 0; i < STEPS; i++)
        free(o->grads[i]);
    for (int k = 0; k < 3; k++)
        free(o->state[k]);
}

/* --- comparing --- */

static int compared;

static bool is_same(const outcome *a, const outcome *b)
{
    bool same = true;
    for (int i = 0; i < STEPS; i++)
        same = same && memcmp(&a->step[i].loss, &b->step[i].loss, sizeof(double)) == 0 &&
               memcmp(&a->step[i].grad_norm, &b->step[i].grad_norm, sizeof(double)) == 0 &&
               memcmp(a->grads[i], b->grads[i], a->elems * a->real) == 0;
    for (int k = 0; k < 3; k++)
        same = same && memcmp(a->state[k], b->state[k], a->elems * a->real) == 0;
    return same;
}

static void expect_same(const outcome *wanted, const tiny_spec *spec)
{
    char name[512];
    outcome o = run_of(spec);
    compared++;
    if (!is_same(wanted, &o))
        fail_msg("%s: not the same bits", equal_describe(spec, name, sizeof name));
    forget(&o);
}

static double worst_of(const outcome *a, const outcome *b)
{
    double worst = 0.0;
    for (int i = 0; i < STEPS; i++) {
        const double *x = (const double *)(const void *)a->grads[i];
        const double *y = (const double *)(const void *)b->grads[i];
        for (size_t e = 0; e < a->elems; e++)
            worst = fmax(worst, fabs(x[e] - y[e]) / b->step[i].grad_norm);
        worst = fmax(worst, fabs(a->step[i].grad_norm / b->step[i].grad_norm - 1.0));
        worst = fmax(worst, fabs(a->step[i].loss - b->step[i].loss));
    }
    return worst;
}

/* Rounding alone tells them apart, and it does. */
static void expect_near(const outcome *wanted, const tiny_spec *spec)
{
    outcome o = run_of(spec);
    assert_near(worst_of(&o, wanted), 0.0, 1e-13);
    assert_false(is_same(wanted, &o));
    compared++;
    forget(&o);
}

/* --- pipelines --- */

static tiny_spec spec_of(const pipeline *p, const tiny_spec *like)
{
    tiny_spec s = *like;
    s.pp = p->pp;
    s.schedule = p->schedule;
    s.chunks = p->chunks;
    s.accumulation = p->micros;
    return s;
}

static tiny_spec base(tiny_kind kind, ech_dtype real, int tp, int dp, int stage)
{
    tiny_spec s = tiny_spec_default();
    s.kind = kind;
    s.layers = 8; /* a stage for each of 4 ranks with 2 chunks */
    s.dropout = kind == TINY_GPT2 || kind == TINY_LLAMA ? 0.1 : 0.0;
    s.heads = kind == TINY_GPT2 ? 4 : 0;
    s.kv_heads = s.heads;
    s.real = real;
    s.optim = ECH_UPDATE_ADAMW;
    s.clip = 0.01;
    s.seq = 6;
    s.tp = tp;
    s.dp = dp;
    s.policy.zero_stage = stage;
    s.policy.is_sequence_parallel = tp > 1;
    s.poison = true;
    return s;
}

static const pipeline unidirectional[] = {
    {ECH_SCHEDULE_1F1B, 2, MICROS, 1, 0},        {ECH_SCHEDULE_GPIPE, 2, MICROS, 1, 0},
    {ECH_SCHEDULE_ZB_H1, 2, MICROS, 1, 0},       {ECH_SCHEDULE_INTERLEAVED, 2, MICROS, 2, 0},
    {ECH_SCHEDULE_1F1B, 3, MICROS, 1, 0},        {ECH_SCHEDULE_GPIPE, 3, MICROS, 1, 0},
    {ECH_SCHEDULE_ZB_H1, 3, MICROS, 1, 0},       {ECH_SCHEDULE_INTERLEAVED, 3, MICROS, 2, 0},
    {ECH_SCHEDULE_1F1B, 4, MICROS, 1, 0},        {ECH_SCHEDULE_GPIPE, 4, MICROS, 1, 0},
    {ECH_SCHEDULE_ZB_H1, 4, MICROS, 1, 0},       {ECH_SCHEDULE_INTERLEAVED, 4, MICROS, 2, 0},
    {ECH_SCHEDULE_INTERLEAVED, 2, MICROS, 3, 0},
};
static const pipeline v_forms[] = {{ECH_SCHEDULE_ZB_V, 2, MICROS, 2, 0},
                                   {ECH_SCHEDULE_ZB_V, 3, MICROS, 2, 0},
                                   {ECH_SCHEDULE_ZB_V, 4, MICROS, 2, 0}};
static const pipeline alone[] = {{ECH_SCHEDULE_1F1B, 1, MICROS, 1, 0},
                                 {ECH_SCHEDULE_GPIPE, 1, MICROS, 1, 0}};

#define N_OF(list) (sizeof(list) / sizeof(list)[0])

static void expect_all_same(const outcome *wanted, const pipeline *list, size_t n,
                            const tiny_spec *like)
{
    for (size_t i = 0; i < n; i += IS_SANITIZED ? 3 : 1) {
        const tiny_spec s = spec_of(&list[i], like);
        expect_same(wanted, &s);
    }
}

static void check_untied(tiny_kind kind, ech_dtype real, int tp, int dp, int stage)
{
    const tiny_spec like = base(kind, real, tp, dp, stage);
    const tiny_spec one = spec_of(&alone[0], &like);
    outcome wanted = run_of(&one);
    expect_all_same(&wanted, alone, N_OF(alone), &like);
    expect_all_same(&wanted, unidirectional, N_OF(unidirectional), &like);
    expect_all_same(&wanted, v_forms, N_OF(v_forms), &like);
    forget(&wanted);
}

static void test_untied(void **state)
{
    (void)state;
    check_untied(TINY_LLAMA, ECH_F32, 1, 1, 0);
    check_untied(TINY_QWEN, ECH_F64, 1, 1, 0);
    check_untied(TINY_QWEN, ECH_F32, 2, 1, 0);
}

static void test_untied_dealt_out(void **state)
{
    (void)state;
    check_untied(TINY_QWEN, ECH_F32, 1, 2, 0);
    check_untied(TINY_LLAMA, ECH_F64, 1, 2, 1);
}

/* Each micro-batch's gradients are dealt out by themselves, in the order of micro-batches. */
static void test_reduced_each_time(void **state)
{
    (void)state;
    tiny_spec like = base(TINY_LLAMA, ECH_F32, 1, 2, 2);
    like.policy.reduces_each = true;
    const tiny_spec one = spec_of(&alone[0], &like);
    outcome wanted = run_of(&one);
    for (size_t i = 0; i < N_OF(unidirectional); i += 3) {
        const tiny_spec s = spec_of(&unidirectional[i], &like);
        expect_same(&wanted, &s);
    }
    like.policy.zero_stage = 3;
    for (size_t i = 1; i < N_OF(unidirectional); i += 3) {
        const tiny_spec s = spec_of(&unidirectional[i], &like);
        expect_same(&wanted, &s);
    }
    forget(&wanted);
}

static void check_tied(tiny_kind kind, ech_dtype real, int tp, int dp, int stage)
{
    const tiny_spec like = base(kind, real, tp, dp, stage);
    const tiny_spec apart = spec_of(&unidirectional[0], &like);
    const tiny_spec together = spec_of(&alone[0], &like);
    outcome wanted = run_of(&apart);
    expect_all_same(&wanted, unidirectional, N_OF(unidirectional), &like);
    if (real == ECH_F64) {
        outcome one = run_of(&together);
        expect_near(&one, &apart);
        for (size_t i = 0; i < N_OF(v_forms); i++) {
            const tiny_spec v = spec_of(&v_forms[i], &like);
            expect_near(&one, &v);
        }
        forget(&one);
    }
    forget(&wanted);
}

static void test_tied(void **state)
{
    (void)state;
    check_tied(TINY_TIED_LLAMA, ECH_F64, 1, 1, 0);
    check_tied(TINY_GPT2, ECH_F32, 2, 1, 0);
    check_tied(TINY_TIED_LLAMA, ECH_F32, 1, 2, 1);
}

/* Stages as uneven as can be, and fewer micro-batches than ranks. */
static void test_uneven(void **state)
{
    static const int empty[] = {0, 8, 0};
    static const int uneven[] = {5, 1, 2};
    (void)state;
    for (int m = 1; m <= 2; m++) {
        const pipeline one = {ECH_SCHEDULE_1F1B, 1, m, 1, 0};
        const tiny_spec like = base(TINY_QWEN, ECH_F32, 1, 1, 0);
        tiny_spec s = spec_of(&one, &like);
        outcome wanted = run_of(&s);
        for (int k = 0; k < 2; k++) {
            const pipeline three = {k ? ECH_SCHEDULE_ZB_H1 : ECH_SCHEDULE_1F1B, 3, m, 1, 0};
            s = spec_of(&three, &like);
            s.n_stage_layers = 3;
            s.stage_layers = m == 1 ? empty : uneven;
            expect_same(&wanted, &s);
        }
        forget(&wanted);
    }
}

static int tell(void **state)
{
    (void)state;
    (void)printf("%d runs compared\n", compared);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_untied),
        cmocka_unit_test(test_untied_dealt_out),
        cmocka_unit_test(test_reduced_each_time),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_uneven),
    };
    return cmocka_run_group_tests(tests, NULL, tell);
}
