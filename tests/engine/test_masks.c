/* RUN: np=1 timeout=60 tags=fast */
/* One scaling rule: whatever the mask and however the tokens are dealt out, gradients and losses
 * are those of one rank, the loss is the mean over unmasked tokens, and a step without any changes
 * nothing.  Equal micro-batches give the same gradient, however many there are. */
#include "check.h"
#include "tiny.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 12, SEQ = 5, TOKENS = ROWS * SEQ };

/* Unmasked tokens of every group of ROWS sequences, in global order. */
typedef struct masks {
    int n;
    int keep[12];
} masks;

static bool keep(int64_t row, int64_t position, void *user)
{
    const masks *m = user;
    return (row % ROWS) * SEQ + position < m->keep[row / ROWS % m->n];
}

static bool keep_none(int64_t row, int64_t position, void *user)
{
    (void)row, (void)position, (void)user;
    return false;
}

static tiny_spec base(tiny_kind kind, int dp, int accumulation)
{
    tiny_spec spec = tiny_spec_default();
    spec.kind = kind;
    spec.dp = dp;
    spec.accumulation = accumulation;
    spec.rows = ROWS;
    spec.seq = SEQ;
    spec.has_eval = true;
    spec.poison = true;
    return spec;
}

static double *copy(const void *from, int64_t n)
{
    double *to = malloc((size_t)n * sizeof *to);
    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

static void check_deal(tiny_kind kind, int dp, int accumulation, masks m)
{
    tiny_run one;
    tiny_run many;
    ech_eval_result held_out;
    int64_t tokens = 0;
    tiny_spec spec = base(kind, 1, 1);
    spec.rows = (int64_t)ROWS * m.n;
    assert_int_equal(m.n, dp * accumulation);
    for (int i = 0; i < m.n; i++)
        tokens += m.keep[i];
    tiny_start(&spec, &one);
    tiny_feed(&one, 0, keep, &m);
    assert_ok(ech_session_eval(one.session, false, &held_out));
    assert_int_equal(held_out.tokens, tokens);
    const ech_step_result a = tiny_step(&one, 0, 0.1);
    assert_near(a.loss, held_out.loss_sum / (double)tokens, 1e-13);
    spec = base(kind, dp, accumulation);
    tiny_start(&spec, &many);
    tiny_feed(&many, 0, keep, &m);
    assert_ok(ech_session_eval(many.session, false, &held_out));
    assert_int_equal(held_out.tokens, tokens);
    const ech_step_result b = tiny_step(&many, 0, 0.1);
    assert_int_equal(b.tokens, tokens);
    assert_near(b.loss, held_out.loss_sum / (double)tokens, 1e-13);
    assert_near(b.loss, a.loss, 1e-12);
    assert_near(b.grad_norm / a.grad_norm, 1.0, 1e-12);
    for (int r = 0; r < dp; r++) {
        const ech_session *s = many.session;
        assert_true(tiny_difference(s, tiny_grads(many.session, r), tiny_grads(one.session, 0)) <=
                    1e-11);
        assert_true(tiny_difference(s, tiny_params(many.session, r), tiny_params(one.session, 0)) <=
                    1e-11);
    }
    tiny_stop(&one);
    tiny_stop(&many);
}

static void test_one_five_and_sixty_tokens(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++) {
        check_deal((tiny_kind)kind, 3, 1, (masks){3, {1, 5, 60}});
        check_deal((tiny_kind)kind, 1, 3, (masks){3, {1, 5, 60}});
        check_deal((tiny_kind)kind, 3, 2, (masks){6, {60, 1, 5, 5, 60, 1}});
        check_deal((tiny_kind)kind, 2, 3, (masks){6, {60, 1, 5, 5, 60, 1}});
        check_deal((tiny_kind)kind, 2, 1, (masks){2, {1, 60}});
    }
}

/* In global order the micro-batches of rank r are r, dp + r, ... */
static void test_a_rank_or_a_micro_batch_without_tokens(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++) {
        check_deal((tiny_kind)kind, 2, 1, (masks){2, {0, 7}});
        check_deal((tiny_kind)kind, 3, 2, (masks){6, {5, 0, 60, 1, 0, 5}});
        check_deal((tiny_kind)kind, 4, 1, (masks){4, {0, 0, 1, 0}});
        check_deal((tiny_kind)kind, 1, 3, (masks){3, {0, 5, 0}});
    }
}

/* --- a step without tokens --- */

static void assert_bits(const void *a, const void *b, int64_t n)
{
    assert_memory_equal(a, b, (size_t)n * sizeof(double));
}

static void test_a_step_without_tokens_changes_nothing(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 3; dp++) {
        tiny_run plain;
        tiny_run run;
        ech_step_result r;
        tiny_spec spec = base(TINY_LLAMA, dp, 2);
        spec.optim = ECH_UPDATE_ADAMW;
        tiny_start(&spec, &plain);
        tiny_start(&spec, &run);
        const int64_t n = run.session->canon.elems;
        for (int i = 0; i < 2; i++) {
            tiny_feed(&run, i, NULL, NULL);
            assert_true(tiny_step(&run, i, 0.01).is_updated);
            tiny_feed(&plain, i, NULL, NULL);
            assert_true(tiny_step(&plain, i, 0.01).is_updated);
        }
        double *params = copy(tiny_params(run.session, 0), n);
        double *moments = copy(tiny_moments(run.session, 0), 2 * n);
        tiny_feed(&run, 7, keep_none, NULL);
        r = tiny_step(&run, 2, 0.01);
        assert_false(r.is_updated);
        assert_true(r.is_finite); /* no tokens is no fault of the numbers */
        assert_int_equal(r.tokens, 0);
        assert_true(isnan(r.loss));
        assert_near(r.grad_norm, 0.0, 0.0);
        for (int k = 0; k < dp; k++) {
            assert_bits(tiny_params(run.session, k), params, n);
            assert_bits(tiny_moments(run.session, k), moments, 2 * n);
        }
        tiny_feed(&run, 2, NULL, NULL); /* the next step is as if nothing had been */
        tiny_feed(&plain, 2, NULL, NULL);
        assert_true(tiny_step(&run, 2, 0.01).is_updated);
        assert_true(tiny_step(&plain, 2, 0.01).is_updated);
        for (int k = 0; k < dp; k++)
            assert_bits(tiny_params(run.session, k), tiny_params(plain.session, k), n);
        free(params);
        free(moments);
        tiny_stop(&run);
        tiny_stop(&plain);
    }
}

/* --- equal micro-batches (T05) --- */

static void repeat_first_micro(tiny_run *run)
{
    ech_session *s = run->session;
    for (int r = 0; r < s->n_local; r++) {
        int32_t *slot[2] = {ech_session_tokens(s, r), ech_session_labels(s, r)};
        const int32_t *first[2] = {ech_session_tokens(s, 0), ech_session_labels(s, 0)};
        for (int w = 0; w < 2; w++)
            for (int k = r == 0; k < s->train.klass[0].program.micro_batches; k++)
                memcpy(slot[w] + k * TOKENS, first[w], TOKENS * sizeof(int32_t));
    }
}

static void check_repeats(tiny_kind kind, int dp, int accumulation, ech_dtype real, const void *g,
                          double norm, double loss)
{
    tiny_run run;
    masks m = {1, {43}};
    tiny_spec spec = base(kind, dp, accumulation);
    const double bound = real == ECH_F64 ? 1e-12 : 2e-5;
    spec.real = real;
    tiny_start(&spec, &run);
    tiny_feed(&run, 0, keep, &m);
    repeat_first_micro(&run);
    const ech_step_result r = tiny_step(&run, 0, 0.0);
    assert_int_equal(r.tokens, 43 * dp * accumulation);
    assert_near(r.grad_norm / norm, 1.0, bound);
    assert_near(r.loss, loss, bound);
    assert_true(tiny_difference(run.session, tiny_grads(run.session, 0), g) <= bound);
    tiny_stop(&run);
}

static void repeats_of(tiny_kind kind, ech_dtype real)
{
    static const int counts[] = {2, 16, 128};
    tiny_run run;
    masks m = {1, {43}};
    tiny_spec spec = base(kind, 1, 1);
    spec.real = real;
    tiny_start(&spec, &run);
    tiny_feed(&run, 0, keep, &m);
    const ech_step_result r = tiny_step(&run, 0, 0.0);
    const void *g = tiny_grads(run.session, 0);
    for (int i = 0; i < 3; i++)
        check_repeats(kind, 1, counts[i], real, g, r.grad_norm, r.loss);
    check_repeats(kind, 4, 4, real, g, r.grad_norm, r.loss);
    tiny_stop(&run);
}

static void test_equal_micro_batches_give_the_same_gradient(void **state)
{
    (void)state;
    repeats_of(TINY_LLAMA, ECH_F64);
    repeats_of(TINY_GPT2, ECH_F64);
    repeats_of(TINY_LLAMA, ECH_F32);
}

/* The loss scale is in the gradient before the update and out of everything else. */
static void test_the_loss_scale_cancels(void **state)
{
    tiny_run a;
    tiny_run b;
    ech_step_result r;
    tiny_spec spec = base(TINY_LLAMA, 2, 2);
    const ech_step_request request = {.lr = 0.1, .loss_scale = 1024.0};
    (void)state;
    tiny_start(&spec, &a);
    tiny_start(&spec, &b);
    tiny_feed(&a, 0, NULL, NULL);
    tiny_feed(&b, 0, NULL, NULL);
    const ech_step_result plain = tiny_step(&a, 0, 0.1);
    assert_ok(ech_session_step(b.session, &request, &r));
    assert_near(r.loss, plain.loss, 0.0);
    assert_near(r.grad_norm, plain.grad_norm, 1e-12 * plain.grad_norm);
    const double *ga = tiny_grads(a.session, 0);
    const double *gb = tiny_grads(b.session, 0);
    for (int64_t e = 0; e < a.session->canon.elems; e++)
        assert_near(gb[e], 1024.0 * ga[e], 0.0); /* a power of two: exact */
    assert_true(tiny_difference(a.session, tiny_params(b.session, 0), tiny_params(a.session, 0)) <=
                1e-15);
    tiny_stop(&a);
    tiny_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_five_and_sixty_tokens),
        cmocka_unit_test(test_a_rank_or_a_micro_batch_without_tokens),
        cmocka_unit_test(test_a_step_without_tokens_changes_nothing),
        cmocka_unit_test(test_equal_micro_batches_give_the_same_gradient),
        cmocka_unit_test(test_the_loss_scale_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
