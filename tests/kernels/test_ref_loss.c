/* RUN: np=1 timeout=60 tags=fast */
/* Loss, counts, norm, clipping and optimizers of the reference set. */
#include "check.h"
#include "kernel_cases.h"

#include "base/rng.h"

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

/* log sum exp of the existing columns of row n of a share, directly. */
static long double naive_lse(const kernel_case *c, int64_t n)
{
    const int64_t width = c->call.arg[0].dim[1];
    long double sum = 0.0L;
    for (int64_t v = 0; v < width && c->call.attr[1] + v < c->call.attr[0]; v++)
        sum += expl((long double)real_at(c, 0, n * width + v));
    return logl(sum);
}

static void check_xent_shard(int variant, uint64_t seed, int64_t *n_here, int64_t *n_elsewhere)
{
    kernel_case c;
    kernel_case_make(&c, ECH_OP_XENT_SHARD, variant, ECH_F64, seed);
    kernel_case_run(&c, ref());
    const int32_t *labels = c.call.arg[1].data;
    const int64_t n_rows = c.call.arg[0].dim[0], width = c.call.arg[0].dim[1];
    for (int64_t n = 0; n < n_rows; n++) {
        const int64_t at = labels[n] - c.call.attr[1];
        const bool is_here = labels[n] >= 0 && at >= 0 && at < width;
        const double lse = (double)naive_lse(&c, n);
        *n_here += is_here;
        *n_elsewhere += labels[n] >= 0 && !is_here;
        if (c.call.attr[1] > c.call.attr[0])
            assert_true(isinf(real_at(&c, 2, n)) && real_at(&c, 2, n) < 0.0);
        else
            assert_near(real_at(&c, 2, n), lse, 1e-14);
        assert_near(real_at(&c, 2, n_rows + n), is_here ? real_at(&c, 0, n * width + at) : 0.0,
                    0.0);
    }
    kernel_case_fini(&c);
}

static void test_xent_shard_is_log_sum_and_logit(void **state)
{
    (void)state;
    int64_t n_here = 0, n_elsewhere = 0;
    for (int variant = 0; variant < kernel_case_variants(ECH_OP_XENT_SHARD); variant++)
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++)
            check_xent_shard(variant, seed, &n_here, &n_elsewhere);
    assert_true(n_here > 0 && n_elsewhere > 0);
}

static void check_xent(int variant, uint64_t seed)
{
    kernel_case before, after;
    kernel_case_make(&before, ECH_OP_XENT, variant, ECH_F64, seed);
    kernel_case_make(&after, ECH_OP_XENT, variant, ECH_F64, seed);
    kernel_case_run(&after, ref());
    const int32_t *labels = before.call.arg[1].data;
    const int64_t n_rows = before.call.arg[0].dim[2], n_parts = before.call.arg[0].dim[0];
    long double loss = (long double)real_at(&before, 3, 0); /* added to */
    for (int64_t n = 0; n < n_rows; n++) {
        long double sum = 0.0L, logit = 0.0L;
        for (int64_t t = 0; t < n_parts; t++) {
            sum += expl((long double)real_at(&before, 0, 2 * t * n_rows + n));
            logit += (long double)real_at(&before, 0, (2 * t + 1) * n_rows + n);
        }
        assert_near(real_at(&after, 2, n), (double)logl(sum), 1e-14);
        if (labels[n] >= 0)
            loss += logl(sum) - logit;
        if (n_parts == 1) /* the part itself, bit for bit */
            assert_near(real_at(&after, 2, n), real_at(&before, 0, n), 0.0);
    }
    assert_near(real_at(&after, 3, 0), (double)loss, 1e-13 * fmax(1.0, (double)loss));
    kernel_case_fini(&before);
    kernel_case_fini(&after);
}

static void test_xent_joins_parts(void **state)
{
    (void)state;
    for (int variant = 0; variant < kernel_case_variants(ECH_OP_XENT); variant++)
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
    const int64_t first = before.call.attr[1];
    const double seed_cell = real_at(&before, 3, 0);
    for (int64_t e = 0; e < kernel_case_arg_elems(&before, 0); e++) {
        const int64_t n = e / width, v = first + e % width;
        const double got = real_at(&after, 0, e);
        *n_masked += labels[n] < 0;
        *n_padded += v >= vocab;
        if (labels[n] < 0 || v >= vocab) {
            assert_near(got, 0.0, 0.0);
            continue;
        }
        const long double others = first > 0 ? expl((long double)KERNEL_CASE_OTHERS) : 0.0L;
        const long double sum = expl(naive_lse(&before, n)) + others;
        const long double p = expl((long double)real_at(&before, 0, e)) / sum;
        assert_near(got, ((double)p - (v == labels[n])) * seed_cell, 1e-14);
    }
    kernel_case_fini(&before);
    kernel_case_fini(&after);
}

static void test_xent_backward_is_zero_where_nothing_counts(void **state)
{
    (void)state;
    int64_t n_masked = 0, n_padded = 0;
    for (int variant = 0; variant < kernel_case_variants(ECH_OP_XENT_BACKWARD); variant++)
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++)
            check_xent_backward(variant, seed, &n_masked, &n_padded);
    assert_true(n_masked > 0 && n_padded > 0);
}

/* Logits of +-1000: no overflow, the loss is the difference. */
static void test_loss_of_large_logits(void **state)
{
    (void)state;
    double logits[3] = {1000.0, -1000.0, (double)NAN}, lse = 0.0, loss = 0.5;
    int32_t label = 1;
    const ech_kernel_call c = {.arg = {{logits, ECH_F64, 2, {1, 3}},
                                       {&label, ECH_I32, 1, {1}},
                                       {&lse, ECH_F64, 1, {1}},
                                       f64_cell(&loss)},
                               .attr = {2, 0}};
    kernel_case_loss(&c);
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

/* --- clipping --- */

/* sum of squares of x [n], added to `word`. */
static void add_squares(int64_t *word, const double *x, int64_t n)
{
    int64_t copies[ECH_SUMSQ_WORDS] = {0};
    const ech_kernel_call c = {.kind = ECH_OP_SUMSQ,
                               .n_args = 3,
                               .arg = {{(void *)(uintptr_t)x, ECH_F64, 1, {n}},
                                       {word, ECH_I64, 1, {ECH_SUMSQ_WORDS}},
                                       {copies, ECH_I64, 1, {ECH_SUMSQ_WORDS}}},
                               .threads = 1};
    ref()->kernel[ECH_OP_SUMSQ](&c);
}

/* What clip makes of three exact sums. */
typedef struct clipped {
    double grad_sq, factor;
} clipped;

typedef struct sums {
    int64_t sum[ECH_SUMSQ_WORDS], copies[ECH_SUMSQ_WORDS], whole[ECH_SUMSQ_WORDS];
} sums;

static clipped clip(sums *s, int64_t n_copies, double loss_scale, double max_norm)
{
    clipped out = {-1.0, -1.0};
    const ech_kernel_call c = {.kind = ECH_OP_CLIP,
                               .n_args = 6,
                               .arg = {{s->sum, ECH_I64, 1, {ECH_SUMSQ_WORDS}},
                                       {s->copies, ECH_I64, 1, {ECH_SUMSQ_WORDS}},
                                       {s->whole, ECH_I64, 1, {ECH_SUMSQ_WORDS}},
                                       f64_cell(&loss_scale),
                                       f64_cell(&out.grad_sq),
                                       f64_cell(&out.factor)},
                               .attr = {n_copies},
                               .real = {max_norm},
                               .threads = 1};
    ref()->kernel[ECH_OP_CLIP](&c);
    return out;
}

/* Gradient of one element. */
static double clip_of(double grad, double loss_scale, double max_norm)
{
    sums s = {0};
    add_squares(s.sum, &grad, 1);
    return clip(&s, 1, loss_scale, max_norm).factor;
}

static void test_clip_factor(void **state)
{
    (void)state;
    assert_near(clip_of(4.0, 2.0, 1.0), 1.0 / 2.000001 / 2.0, 1e-16); /* norm 2, halved */
    assert_near(clip_of(4.0, 2.0, 10.0), 0.5, 0.0);                   /* below the maximum */
    assert_near(clip_of(4.0, 2.0, 0.0), 0.5, 0.0);                    /* off */
    assert_near(clip_of(0.0, 1.0, 1.0), 1.0, 0.0);
}

/* Not finite, or too large to be squared: seen in grad_sq, whichever sum counts it. */
static void test_clip_of_what_is_not_finite(void **state)
{
    (void)state;
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0x1p144, -1e300};
    for (int i = 0; i < 5; i++) {
        sums s = {0};
        add_squares(i == 0 ? s.sum : i == 1 ? s.copies : s.whole, &bad[i], 1);
        const clipped c = clip(&s, 2, 1.0, 1.0);
        assert_true(isinf(c.grad_sq) && c.grad_sq > 0.0);
        assert_near(c.factor, 0.0, 0.0);
    }
    const double large = 0x1.fffffffffffffp143; /* the largest that is */
    sums s = {0};
    add_squares(s.sum, &large, 1);
    assert_near(clip(&s, 1, 1.0, 0.0).grad_sq, large * large, 0.0);
}

/* Rounded once: of one element that is the product, of two the fused sum, as long as the second
 * square is a double. */
static void test_grad_sq_is_rounded_once(void **state)
{
    (void)state;
    const ech_rng_key key = ech_rng_key_make(5, ECH_RNG_TEST, 0, -1);
    for (uint64_t i = 0; i < 20000; i++) {
        const int spread = (int)(ech_rng_u32(&key, 4 * i) % 180) - 90; /* no bit is cut off */
        const double x = ldexp(ech_rng_uniform(&key, 4 * i + 1) + 0x1p-52 * (double)i, spread);
        const double y =
            (double)(float)ldexp(ech_rng_uniform(&key, 4 * i + 2), spread + (int)(i % 60) - 30);
        sums s = {0};
        add_squares(s.sum, &x, 1);
        assert_near(clip(&s, 1, 1.0, 0.0).grad_sq, x * x, 0.0);
        add_squares(s.whole, &y, 1);
        assert_near(clip(&s, 1, 1.0, 0.0).grad_sq, fma(x, x, y * y), 0.0);
    }
}

/* Half-way goes to the even number, the least bit above it does not; by hand. */
static void test_grad_sq_half_way(void **state)
{
    (void)state;
    sums s = {0};
    s.sum[10] = 1; /* 1 + 2^53 */
    s.sum[11] = INT64_C(1) << 21;
    assert_near(clip(&s, 1, 1.0, 0.0).grad_sq, 0x1p53, 0.0);
    s.whole[0] = 1; /* + 2^-320 */
    assert_near(clip(&s, 1, 1.0, 0.0).grad_sq, 0x1p53 + 2.0, 0.0);
    s.whole[0] = 0;
    s.sum[10] = 3;
    assert_near(clip(&s, 1, 1.0, 0.0).grad_sq, 0x1p53 + 4.0, 0.0);
    s.sum[10] = INT64_C(3) << 40; /* words of many ranks, not carried on */
    assert_near(clip(&s, 1, 1.0, 0.0).grad_sq, 0x1p53 + 0x3p40, 0.0);
}

/* Sums that are left out are 0. */
static void test_clip_of_one_sum(void **state)
{
    (void)state;
    const double x = 3.5, loss_scale = 2.0;
    double scale = loss_scale, grad_sq = -1.0, factor = -1.0;
    sums s = {0};
    add_squares(s.sum, &x, 1);
    const ech_kernel_call c = {.kind = ECH_OP_CLIP,
                               .n_args = 6,
                               .arg = {{s.sum, ECH_I64, 1, {ECH_SUMSQ_WORDS}},
                                       {NULL, ECH_I64, 0, {0}},
                                       {NULL, ECH_I64, 0, {0}},
                                       f64_cell(&scale),
                                       f64_cell(&grad_sq),
                                       f64_cell(&factor)},
                               .attr = {1},
                               .threads = 1};
    ref()->kernel[ECH_OP_CLIP](&c);
    assert_near(grad_sq, 12.25, 0.0);
    assert_near(factor, 0.5, 0.0);
}

/* What stands on three ranks is counted once. */
static void test_clip_divides_copies(void **state)
{
    (void)state;
    const double x[4] = {3.0, 1.0 / 3.0, 1e-20, 12345.678}, y = 0.1;
    sums s = {0}, once = {0};
    for (int copy = 0; copy < 3; copy++)
        add_squares(s.copies, x, 4);
    add_squares(s.sum, &y, 1);
    add_squares(once.sum, x, 4);
    add_squares(once.sum, &y, 1);
    assert_near(clip(&s, 3, 1.0, 0.0).grad_sq, clip(&once, 1, 1.0, 0.0).grad_sq, 0.0);
    for (int k = 0; k < ECH_SUMSQ_WORDS; k++) /* and the kernel leaves them */
        assert_true(s.copies[k] >= 0 && s.copies[k] < INT64_C(1) << 32);
}

/* --- optimizers --- */

/* One parameter and its state. */
typedef struct param {
    double p, g, m, v;
} param;

static void adamw_step(param *x, int64_t updates, double lr, double factor, const double real[4])
{
    ech_kernel_call c = {.kind = ECH_OP_ADAMW,
                         .n_args = 7,
                         .arg = {{&x->p, ECH_F64, 1, {1}},
                                 {&x->g, ECH_F64, 1, {1}},
                                 {&x->m, ECH_F64, 1, {1}},
                                 {&x->v, ECH_F64, 1, {1}},
                                 f64_cell(&lr),
                                 f64_cell(&factor),
                                 i64_cell(&updates)},
                         .attr = {0, 1},
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
        const double lr = 0.01 * t, factor = t % 2 ? 0.5 : 1.0;
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
        adamw_step(&x, t - 1, lr, factor, real);
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
    double p[3] = {1.0, -2.0, 1.0}, g[3] = {4.0, 8.0, 4.0}, lr = 0.25, factor = 0.5;
    const ech_kernel_call c = {
        .kind = ECH_OP_SGD,
        .n_args = 4,
        .arg = {{p, ECH_F64, 1, {3}}, {g, ECH_F64, 1, {3}}, f64_cell(&lr), f64_cell(&factor)},
        .attr = {7, 9}, /* elements 7, 8 and 9, of which the first nine decay */
        .real = {0.5},
        .threads = 1};
    ref()->kernel[ECH_OP_SGD](&c);
    assert_near(p[0], 1.0 - 0.25 * (2.0 + 0.5), 0.0);
    assert_near(p[1], -2.0 - 0.25 * (4.0 - 1.0), 0.0);
    assert_near(p[2], 1.0 - 0.25 * 2.0, 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xent_shard_is_log_sum_and_logit),
        cmocka_unit_test(test_xent_joins_parts),
        cmocka_unit_test(test_xent_backward_is_zero_where_nothing_counts),
        cmocka_unit_test(test_loss_of_large_logits),
        cmocka_unit_test(test_count_tokens),
        cmocka_unit_test(test_loss_seed),
        cmocka_unit_test(test_sum_cells_in_order),
        cmocka_unit_test(test_clip_factor),
        cmocka_unit_test(test_clip_of_what_is_not_finite),
        cmocka_unit_test(test_grad_sq_is_rounded_once),
        cmocka_unit_test(test_grad_sq_half_way),
        cmocka_unit_test(test_clip_of_one_sum),
        cmocka_unit_test(test_clip_divides_copies),
        cmocka_unit_test(test_first_adamw_step_is_the_sign),
        cmocka_unit_test(test_adamw_follows_the_weighted_means),
        cmocka_unit_test(test_adamw_decay_is_decoupled),
        cmocka_unit_test(test_sgd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
