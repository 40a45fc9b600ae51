/* RUN: np=1 timeout=60 tags=fast */
/* Loss, counts, norm, clipping and optimizers of the reference set. */
#include "check.h"
#include "kernel_cases.h"

#include <math.h>

static const ech_kernel_set *ref(void)
{
    return ech_kernel_set_ref();
}

static double real_at(const kernel_case *c, int arg, int64_t i)
{
    return ((const double *)c->call.arg[arg].data)[i];
}

static ech_tensor f64_cell(double *x)
{
    return (ech_tensor){.data = x, .dtype = ECH_F64};
}

static ech_tensor i64_cell(int64_t *x)
{
    return (ech_tensor){.data = x, .dtype = ECH_I64};
}

/* --- cross-entropy --- */

/* log sum exp of row n over the real vocabulary, directly. */
static long double naive_lse(const kernel_case *c, int64_t n)
{
    long double sum = 0.0L;
    for (int64_t v = 0; v < c->call.attr[0]; v++)
        sum += expl((long double)real_at(c, 0, n * c->call.arg[0].dim[1] + v));
    return logl(sum);
}

static void check_xent(int variant, uint64_t seed)
{
    kernel_case before, after;
    kernel_case_make(&before, ECH_OP_XENT, variant, ECH_F64, seed);
    kernel_case_make(&after, ECH_OP_XENT, variant, ECH_F64, seed);
    kernel_case_run(&after, ref());
    const int32_t *labels = before.call.arg[1].data;
    long double loss = (long double)real_at(&before, 3, 0); /* added to */
    for (int64_t n = 0; n < before.call.arg[0].dim[0]; n++) {
        const long double lse = naive_lse(&before, n);
        assert_near(real_at(&after, 2, n), (double)lse, 1e-14);
        if (labels[n] >= 0)
            loss +=
                lse - (long double)real_at(&before, 0, n * before.call.arg[0].dim[1] + labels[n]);
    }
    assert_near(real_at(&after, 3, 0), (double)loss, 1e-13 * fmax(1.0, (double)loss));
    kernel_case_fini(&before);
    kernel_case_fini(&after);
}

static void test_xent_is_minus_log_probability(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++)
            check_xent(variant, seed);
}

/* Masked rows and padded columns exactly 0, the others softmax minus one-hot. */
static void check_xent_backward(int variant, uint64_t seed, int64_t *n_masked, int64_t *n_padded)
{
    kernel_case before, after;
    kernel_case_make(&before, ECH_OP_XENT_BACKWARD, variant, ECH_F64, seed);
    kernel_case_make(&after, ECH_OP_XENT_BACKWARD, variant, ECH_F64, seed);
    kernel_case_run(&after, ref());
    const int32_t *labels = before.call.arg[1].data;
    const int64_t width = before.call.arg[0].dim[1], vocab = before.call.attr[0];
    const double seed_cell = real_at(&before, 3, 0);
    for (int64_t e = 0; e < kernel_case_arg_elems(&before, 0); e++) {
        const int64_t n = e / width, v = e % width;
        const double got = real_at(&after, 0, e);
        *n_masked += labels[n] < 0;
        *n_padded += v >= vocab;
        if (labels[n] < 0 || v >= vocab) {
            assert_near(got, 0.0, 0.0);
            continue;
        }
        const long double p = expl((long double)real_at(&before, 0, e) - naive_lse(&before, n));
        assert_near(got, ((double)p - (v == labels[n])) * seed_cell, 1e-14);
    }
    kernel_case_fini(&before);
    kernel_case_fini(&after);
}

static void test_xent_backward_is_zero_where_nothing_counts(void **state)
{
    (void)state;
    int64_t n_masked = 0, n_padded = 0;
    for (int variant = 0; variant < 2; variant++)
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++)
            check_xent_backward(variant, seed, &n_masked, &n_padded);
    assert_true(n_masked > 0 && n_padded > 0);
}

/* Logits of +-1000: no overflow, the loss is the difference. */
static void test_xent_of_large_logits(void **state)
{
    (void)state;
    double logits[3] = {1000.0, -1000.0, (double)NAN}, lse = 0.0, loss = 0.5;
    int32_t label = 1;
    const ech_kernel_call c = {.kind = ECH_OP_XENT,
                               .n_args = 4,
                               .arg = {{logits, ECH_F64, 2, {1, 3}},
                                       {&label, ECH_I32, 1, {1}},
                                       {&lse, ECH_F64, 1, {1}},
                                       f64_cell(&loss)},
                               .attr = {2},
                               .threads = 1};
    ref()->kernel[ECH_OP_XENT](&c);
    assert_near(lse, 1000.0, 0.0);
    assert_near(loss, 2000.5, 0.0);
}

/* --- counts and cells --- */

static int64_t count_of(int32_t *labels, int64_t n)
{
    int64_t count = -1;
    const ech_kernel_call c = {.kind = ECH_OP_COUNT_TOKENS,
                               .n_args = 2,
                               .arg = {{labels, ECH_I32, 1, {n}}, i64_cell(&count)},
                               .threads = 1};
    ref()->kernel[ECH_OP_COUNT_TOKENS](&c);
    return count;
}

static void test_count_tokens(void **state)
{
    (void)state;
    int32_t labels[5] = {3, -1, 0, -1, 7};
    int32_t masked[2] = {-1, -1};
    assert_int_equal(count_of(labels, 5), 3);
    assert_int_equal(count_of(masked, 2), 0);
    assert_int_equal(count_of(labels, 0), 0);
}

static double seed_of(int64_t tokens, double loss_scale)
{
    double seed = (double)NAN;
    const ech_kernel_call c = {.kind = ECH_OP_LOSS_SEED,
                               .n_args = 3,
                               .arg = {i64_cell(&tokens), f64_cell(&loss_scale), f64_cell(&seed)},
                               .threads = 1};
    ref()->kernel[ECH_OP_LOSS_SEED](&c);
    return seed;
}

static void test_loss_seed(void **state)
{
    (void)state;
    assert_near(seed_of(4, 8.0), 2.0, 0.0);
    assert_near(seed_of(1, 1.0), 1.0, 0.0);
    assert_near(seed_of(0, 65536.0), 0.0, 0.0);
}

/* In order: 1e16 + 1 is 1e16, so nothing is left; the other way round 1 is. */
static void test_sum_cells_in_order(void **state)
{
    (void)state;
    double x[3] = {1e16, 1.0, -1e16}, sum = (double)NAN;
    ech_kernel_call c = {.kind = ECH_OP_SUM_CELLS,
                         .n_args = 2,
                         .arg = {{x, ECH_F64, 1, {3}}, f64_cell(&sum)},
                         .threads = 1};
    ref()->kernel[ECH_OP_SUM_CELLS](&c);
    assert_near(sum, 0.0, 0.0);
    x[1] = -1e16;
    x[2] = 1.0;
    ref()->kernel[ECH_OP_SUM_CELLS](&c);
    assert_near(sum, 1.0, 0.0);
}

static void test_sumsq_adds_to_its_cell(void **state)
{
    (void)state;
    double x[3] = {3.0, 4.0, -12.0}, sum = 0.25;
    float xf[3] = {3.0F, 4.0F, -12.0F};
    ech_kernel_call c = {.kind = ECH_OP_SUMSQ,
                         .n_args = 2,
                         .arg = {{x, ECH_F64, 1, {3}}, f64_cell(&sum)},
                         .threads = 1};
    ref()->kernel[ECH_OP_SUMSQ](&c);
    assert_near(sum, 169.25, 0.0);
    c.arg[0] = (ech_tensor){xf, ECH_F32, 1, {3}};
    ref()->kernel[ECH_OP_SUMSQ](&c);
    assert_near(sum, 338.25, 0.0);
}

static double clip_of(double grad_sq, double loss_scale, double max_norm)
{
    double factor = -1.0;
    const ech_kernel_call c = {
        .kind = ECH_OP_CLIP,
        .n_args = 3,
        .arg = {f64_cell(&grad_sq), f64_cell(&loss_scale), f64_cell(&factor)},
        .real = {max_norm},
        .threads = 1};
    ref()->kernel[ECH_OP_CLIP](&c);
    return factor;
}

static void test_clip(void **state)
{
    (void)state;
    assert_near(clip_of(16.0, 2.0, 1.0), 1.0 / 2.000001 / 2.0, 1e-16); /* norm 2, halved */
    assert_near(clip_of(16.0, 2.0, 10.0), 0.5, 0.0);                   /* below the maximum */
    assert_near(clip_of(16.0, 2.0, 0.0), 0.5, 0.0);                    /* off */
    assert_near(clip_of(0.0, 1.0, 1.0), 1.0, 0.0);
    assert_true(isnan(clip_of((double)NAN, 1.0, 1.0))); /* not hidden by the minimum */
}

/* --- optimizers --- */

/* One parameter and its state. */
typedef struct param {
    double p, g, m, v;
} param;

static void adamw_step(param *x, int64_t updates, double lr, double clip, const double real[4])
{
    ech_kernel_call c = {.kind = ECH_OP_ADAMW,
                         .n_args = 7,
                         .arg = {{&x->p, ECH_F64, 1, {1}},
                                 {&x->g, ECH_F64, 1, {1}},
                                 {&x->m, ECH_F64, 1, {1}},
                                 {&x->v, ECH_F64, 1, {1}},
                                 f64_cell(&lr),
                                 f64_cell(&clip),
                                 i64_cell(&updates)},
                         .threads = 1};
    memcpy(c.real, real, sizeof c.real);
    ref()->kernel[ECH_OP_ADAMW](&c);
}

/* After one step m^ = g and v^ = g^2, so the step is lr (sign(g) + decay p) whatever the betas. */
static void test_first_adamw_step_is_the_sign(void **state)
{
    (void)state;
    static const double real[4] = {0.9, 0.95, 0.0, 0.1};
    param x = {.p = 1.0, .g = 0.5};
    adamw_step(&x, 0, 0.1, 1.0, real);
    assert_near(x.p, 1.0 - 0.1 * (1.0 + 0.1), 1e-15);
    x = (param){.p = -2.0, .g = -1e-3};
    adamw_step(&x, 0, 0.1, 7.0, real);
    assert_near(x.p, -2.0 - 0.1 * (-1.0 - 0.2), 1e-14);
}

/* Six steps in the unrolled form m^ = sum_k b1^(t-k) g_k / sum_k b1^(t-k), v^ alike: bias
 * correction as the weighted mean that it is. */
static void test_adamw_follows_the_weighted_means(void **state)
{
    (void)state;
    static const double real[4] = {0.9, 0.95, 1e-2, 0.1};
    static const double grad[6] = {0.5, -0.25, 1.5, 0.0, 2.0, -3.0};
    param x = {.p = 0.7};
    long double p = 0.7L;
    for (int t = 1; t <= 6; t++) {
        const double lr = 0.01 * t, clip = t % 2 ? 0.5 : 1.0;
        long double m = 0.0L, v = 0.0L, mw = 0.0L, vw = 0.0L;
        for (int k = 1; k <= t; k++) {
            const long double g = (long double)grad[k - 1] * (k % 2 ? 0.5L : 1.0L);
            const long double wm = powl((long double)real[0], t - k);
            const long double wv = powl((long double)real[1], t - k);
            m += wm * g;
            v += wv * g * g;
            mw += wm;
            vw += wv;
        }
        p -= (long double)lr *
             (m / mw / (sqrtl(v / vw) + (long double)real[2]) + (long double)real[3] * p);
        x.g = grad[t - 1];
        adamw_step(&x, t - 1, lr, clip, real);
        assert_near(x.p, (double)p, 1e-14);
    }
}

/* Decay is decoupled: it does not enter the moments. */
static void test_adamw_decay_is_decoupled(void **state)
{
    (void)state;
    static const double real[4] = {0.9, 0.95, 1e-8, 0.1};
    param x = {.p = 3.0, .g = 0.0};
    adamw_step(&x, 5, 0.5, 1.0, real);
    assert_near(x.p, 3.0 * (1.0 - 0.5 * 0.1), 1e-15);
    assert_near(x.m, 0.0, 0.0);
    assert_near(x.v, 0.0, 0.0);
}

static void test_sgd(void **state)
{
    (void)state;
    double p[2] = {1.0, -2.0}, g[2] = {4.0, 8.0}, lr = 0.25, clip = 0.5;
    const ech_kernel_call c = {
        .kind = ECH_OP_SGD,
        .n_args = 4,
        .arg = {{p, ECH_F64, 1, {2}}, {g, ECH_F64, 1, {2}}, f64_cell(&lr), f64_cell(&clip)},
        .real = {0.5},
        .threads = 1};
    ref()->kernel[ECH_OP_SGD](&c);
    assert_near(p[0], 1.0 - 0.25 * (2.0 + 0.5), 0.0);
    assert_near(p[1], -2.0 - 0.25 * (4.0 - 1.0), 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xent_is_minus_log_probability),
        cmocka_unit_test(test_xent_backward_is_zero_where_nothing_counts),
        cmocka_unit_test(test_xent_of_large_logits),
        cmocka_unit_test(test_count_tokens),
        cmocka_unit_test(test_loss_seed),
        cmocka_unit_test(test_sum_cells_in_order),
        cmocka_unit_test(test_sumsq_adds_to_its_cell),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_first_adamw_step_is_the_sign),
        cmocka_unit_test(test_adamw_follows_the_weighted_means),
        cmocka_unit_test(test_adamw_decay_is_decoupled),
        cmocka_unit_test(test_sgd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
