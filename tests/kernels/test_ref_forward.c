/* RUN: np=1 timeout=60 tags=fast */
/* Forward kernels of the reference set against formulas written here, in fp64. */
#include "check.h"
#include "kernel_cases.h"

#include "base/rng.h"

#include <math.h>

static const double bound = 2e-14; /* values of order 1, at most 300 terms */

static double real_at(const kernel_case *c, int arg, int64_t i)
{
    return ((const double *)c->call.arg[arg].data)[i];
}

static int64_t dim(const kernel_case *c, int arg, int d)
{
    return c->call.arg[arg].dim[d];
}

/* Run every variant and seed of a kind: check(before, after). */
static void for_each_case(ech_op_kind kind, void (*check)(const kernel_case *, const kernel_case *))
{
    for (int variant = 0; variant < kernel_case_variants(kind); variant++) {
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++) {
            kernel_case before, after;
            kernel_case_make(&before, kind, variant, ECH_F64, seed);
            kernel_case_make(&after, kind, variant, ECH_F64, seed);
            kernel_case_run(&after, ech_kernel_set_ref());
            check(&before, &after);
            kernel_case_fini(&before);
            kernel_case_fini(&after);
        }
    }
}

/* --- bytes and sums --- */

static void check_zero(const kernel_case *before, const kernel_case *after)
{
    (void)before;
    for (int64_t i = 0; i < kernel_case_arg_elems(after, 0); i++)
        assert_near(real_at(after, 0, i), 0.0, 0.0);
}

static void check_copy(const kernel_case *before, const kernel_case *after)
{
    assert_memory_equal(after->call.arg[1].data, before->call.arg[0].data,
                        kernel_case_arg_bytes(after, 1));
}

static void check_scale(const kernel_case *before, const kernel_case *after)
{
    for (int64_t i = 0; i < kernel_case_arg_elems(after, 0); i++)
        assert_near(real_at(after, 0, i), -0.375 * real_at(before, 0, i), 0.0);
}

static void check_add(const kernel_case *before, const kernel_case *after)
{
    for (int64_t i = 0; i < kernel_case_arg_elems(after, 2); i++)
        assert_near(real_at(after, 2, i), real_at(before, 0, i) + real_at(before, 1, i), 0.0);
}

static void test_zero_copy_scale_add(void **state)
{
    (void)state;
    for_each_case(ECH_OP_ZERO, check_zero);
    for_each_case(ECH_OP_COPY, check_copy);
    for_each_case(ECH_OP_SCALE, check_scale);
    for_each_case(ECH_OP_ADD, check_add);
}

/* zero and copy go by bytes: a type that is not REAL, and the NaN pattern of one that is. */
static void test_zero_and_copy_take_any_type(void **state)
{
    (void)state;
    int32_t a[5] = {1, -2, 3, -4, 5}, b[5] = {0};
    ech_kernel_call c = {.kind = ECH_OP_COPY,
                         .n_args = 2,
                         .arg = {{a, ECH_I32, 1, {5}}, {b, ECH_I32, 1, {5}}},
                         .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_COPY](&c);
    assert_memory_equal(a, b, sizeof a);
    c.kind = ECH_OP_ZERO;
    c.n_args = 1;
    ech_kernel_set_ref()->kernel[ECH_OP_ZERO](&c);
    for (int i = 0; i < 5; i++)
        assert_int_equal(a[i], 0);
}

/* --- norms --- */

/* Row `row` of length width of argument x, normalised; mean 0 for RMSNorm. */
static long double naive_mean(const kernel_case *c, int x, int64_t row, int64_t width)
{
    long double sum = 0.0L;
    for (int64_t i = 0; i < width; i++)
        sum += (long double)real_at(c, x, row * width + i);
    return sum / (long double)width;
}

static long double naive_rstd(const kernel_case *c, int64_t row, int64_t width, long double mean)
{
    long double sum = 0.0L;
    for (int64_t i = 0; i < width; i++) {
        const long double x = (long double)real_at(c, 0, row * width + i) - mean;
        sum += x * x;
    }
    return 1.0L / sqrtl(sum / (long double)width + 1e-5L);
}

static void check_layernorm(const kernel_case *before, const kernel_case *after)
{
    const int64_t width = dim(after, 0, 1);
    for (int64_t n = 0; n < dim(after, 0, 0); n++) {
        const long double mean = naive_mean(before, 0, n, width);
        const long double rstd = naive_rstd(before, n, width, mean);
        assert_near(real_at(after, 4, n), (double)mean, bound);
        assert_near(real_at(after, 5, n), (double)rstd, bound * (double)rstd);
        for (int64_t i = 0; i < width; i++) {
            const long double xhat = ((long double)real_at(before, 0, n * width + i) - mean) * rstd;
            assert_near(real_at(after, 3, n * width + i),
                        (double)xhat * real_at(before, 1, i) + real_at(before, 2, i), bound);
        }
    }
}

static void check_rmsnorm(const kernel_case *before, const kernel_case *after)
{
    const int64_t width = dim(after, 0, 1);
    for (int64_t n = 0; n < dim(after, 0, 0); n++) {
        const double rstd = (double)naive_rstd(before, n, width, 0.0L);
        assert_near(real_at(after, 3, n), rstd, bound * rstd);
        for (int64_t i = 0; i < width; i++)
            assert_near(real_at(after, 2, n * width + i),
                        real_at(before, 0, n * width + i) * rstd * real_at(before, 1, i), bound);
    }
}

/* Row: head h of group g of token n, as [N, g, r + 2, D] is laid out. */
static void check_qk_norm(const kernel_case *before, const kernel_case *after)
{
    const int64_t heads = dim(after, 0, 2), width = dim(after, 0, 3);
    const int64_t n_rows = dim(after, 0, 0) * dim(after, 0, 1) * heads;
    for (int64_t row = 0; row < n_rows; row++) {
        const int64_t h = row % heads;
        const bool is_value = h == heads - 1;
        const double rstd = is_value ? 1.0 : (double)naive_rstd(before, row, width, 0.0L);
        if (!is_value)
            assert_near(real_at(after, 4, row / heads * (heads - 1) + h), rstd, bound * rstd);
        for (int64_t i = 0; i < width; i++) {
            const double gamma = is_value ? 1.0 : real_at(before, h == heads - 2 ? 2 : 1, i);
            assert_near(real_at(after, 3, row * width + i),
                        real_at(before, 0, row * width + i) * rstd * gamma, bound);
        }
    }
}

static void test_norms(void **state)
{
    (void)state;
    for_each_case(ECH_OP_LAYERNORM, check_layernorm);
    for_each_case(ECH_OP_RMSNORM, check_rmsnorm);
    for_each_case(ECH_OP_QK_NORM, check_qk_norm);
}

/* --- linear --- */

static void check_linear(const kernel_case *before, const kernel_case *after)
{
    const int64_t n_in = dim(after, 0, 1), n_out = dim(after, 3, 1);
    for (int64_t n = 0; n < dim(after, 0, 0); n++) {
        for (int64_t o = 0; o < n_out; o++) {
            long double sum = before->call.arg[2].data ? (long double)real_at(before, 2, o) : 0.0L;
            for (int64_t i = 0; i < n_in; i++)
                sum += (long double)real_at(before, 0, n * n_in + i) *
                       (long double)real_at(before, 1, o * n_in + i);
            assert_near(real_at(after, 3, n * n_out + o), (double)sum, bound);
        }
    }
}

static void test_linear(void **state)
{
    (void)state;
    for_each_case(ECH_OP_LINEAR, check_linear);
}

/* --- tables --- */

static int64_t first_position(const ech_tensor *cell)
{
    return cell->data ? *(const int64_t *)cell->data : 0;
}

static int64_t n_here, n_elsewhere; /* ids of all embed cases */

static void check_embed(const kernel_case *before, const kernel_case *after)
{
    const int32_t *ids = before->call.arg[0].data;
    const int64_t width = dim(after, 2, 1), first = before->call.attr[0];
    for (int64_t n = 0; n < dim(after, 2, 0); n++) {
        const bool is_here = ids[n] >= first && ids[n] < first + dim(before, 1, 0);
        n_here += is_here;
        n_elsewhere += !is_here;
        for (int64_t i = 0; i < width; i++)
            assert_near(real_at(after, 2, n * width + i),
                        is_here ? real_at(before, 1, (ids[n] - first) * width + i) : 0.0, 0.0);
    }
}

static void check_positions(const kernel_case *before, const kernel_case *after)
{
    const int64_t width = dim(after, 0, 1);
    const int64_t first = first_position(&before->call.arg[2]);
    for (int64_t e = 0; e < kernel_case_arg_elems(after, 0); e++) {
        const int64_t at = first + (before->call.attr[1] + e / width) % before->call.attr[0];
        assert_near(real_at(after, 0, e),
                    real_at(before, 0, e) + real_at(before, 1, at * width + e % width), 0.0);
    }
}

static void check_bias(const kernel_case *before, const kernel_case *after)
{
    for (int64_t e = 0; e < kernel_case_arg_elems(after, 0); e++)
        assert_near(real_at(after, 0, e),
                    real_at(before, 0, e) + real_at(before, 1, e % dim(after, 1, 0)), 0.0);
}

/* Pair p is x[p], x[p + half], or x[2 p], x[2 p + 1]; turned by the angle of the position;
 * everything else untouched. */
static void check_rope(const kernel_case *before, const kernel_case *after)
{
    const int64_t heads = dim(after, 0, 2), width = dim(after, 0, 3), half = dim(after, 1, 1);
    const int64_t per_token = dim(after, 0, 1) * heads * width;
    const int64_t first = first_position(&before->call.arg[2]);
    const double sign = before->call.attr[1] ? -1.0 : 1.0;
    const bool neighbours = before->call.attr[2] != 0;
    for (int64_t e = 0; e < kernel_case_arg_elems(after, 0); e++) {
        const int64_t i = e % width, h = e / width % heads;
        double want = real_at(before, 0, e);
        if (h < heads - 1 && i < 2 * half) {
            const int64_t position = first + e / per_token % before->call.attr[0];
            const int64_t pair = neighbours ? i / 2 : i % half;
            const bool is_first = neighbours ? i % 2 == 0 : i < half;
            const int64_t to_other = (is_first ? 1 : -1) * (neighbours ? 1 : half);
            const int64_t at = (position * half + pair) * 2;
            const double cosine = real_at(before, 1, at);
            const double sine = sign * real_at(before, 1, at + 1);
            const double other = real_at(before, 0, e + to_other);
            want = is_first ? want * cosine - other * sine : want * cosine + other * sine;
        }
        assert_near(real_at(after, 0, e), want, 1e-15);
    }
}

static void test_tables(void **state)
{
    (void)state;
    n_here = n_elsewhere = 0;
    for_each_case(ECH_OP_EMBED, check_embed);
    assert_true(n_here > 0 && n_elsewhere > 0);
    for_each_case(ECH_OP_POSITIONS, check_positions);
    for_each_case(ECH_OP_BIAS, check_bias);
    for_each_case(ECH_OP_ROPE, check_rope);
}

/* One query, key and value of D = 5, two pairs turned: the first by 90 degrees, the second by 180;
 * then back by the inverse. */
static void test_rope_by_hand(void **state)
{
    (void)state;
    double qkv[3][5] = {{1, 2, 3, 4, 5}, {-1, 0, 7, 2, 6}, {1, 2, 3, 4, 5}};
    const double turned[3][5] = {{-3, -2, 1, -4, 5}, {-7, 0, -1, -2, 6}, {1, 2, 3, 4, 5}};
    double start[3][5], table[1][2][2] = {{{0, 1}, {-1, 0}}};
    memcpy(start, qkv, sizeof qkv);
    ech_kernel_call c = {.kind = ECH_OP_ROPE,
                         .n_args = 3,
                         .arg = {{qkv, ECH_F64, 4, {1, 1, 3, 5}}, {table, ECH_F64, 3, {1, 2, 2}}},
                         .attr = {1, 0},
                         .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_ROPE](&c);
    for (int h = 0; h < 3; h++)
        for (int i = 0; i < 5; i++)
            assert_near(qkv[h][i], turned[h][i], 0.0);
    c.attr[1] = 1;
    ech_kernel_set_ref()->kernel[ECH_OP_ROPE](&c);
    for (int h = 0; h < 3; h++)
        for (int i = 0; i < 5; i++)
            assert_near(qkv[h][i], start[h][i], 0.0);
}

static void check_inverse_undoes_rope(const kernel_case *before, const kernel_case *after)
{
    ech_kernel_call back = after->call;
    back.attr[1] = !back.attr[1];
    ech_kernel_set_ref()->kernel[ECH_OP_ROPE](&back);
    for (int64_t e = 0; e < kernel_case_arg_elems(after, 0); e++)
        assert_near(real_at(after, 0, e), real_at(before, 0, e), 1e-15);
}

static void test_rope_inverse(void **state)
{
    (void)state;
    for_each_case(ECH_OP_ROPE, check_inverse_undoes_rope);
}

/* --- activations --- */

static void check_gelu(const kernel_case *before, const kernel_case *after)
{
    for (int64_t i = 0; i < kernel_case_arg_elems(after, 0); i++) {
        /* x (1 + tanh u) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3) */
        const long double x = (long double)real_at(before, 0, i);
        const long double u = sqrtl(2.0L / acosl(-1.0L)) * (x + 0.044715L * x * x * x);
        assert_near(real_at(after, 1, i), (double)(x / (1.0L + expl(-2.0L * u))), 1e-15);
    }
}

static void check_swiglu(const kernel_case *before, const kernel_case *after)
{
    const int64_t width = dim(after, 1, 1);
    for (int64_t i = 0; i < kernel_case_arg_elems(after, 1); i++) {
        const int64_t at = i / width * 2 * width + i % width;
        const long double gate = (long double)real_at(before, 0, at);
        const long double up = (long double)real_at(before, 0, at + width);
        assert_near(real_at(after, 1, i), (double)(gate * up / (1.0L + expl(-gate))), 1e-15);
    }
}

static void test_activations(void **state)
{
    (void)state;
    for_each_case(ECH_OP_GELU, check_gelu);
    for_each_case(ECH_OP_SWIGLU, check_swiglu);
}

static void test_activations_at_known_points(void **state)
{
    (void)state;
    double x[4] = {0.0, 1.0, -1.0, 3.0}, y[4];
    const double gelu[4] = {0.0, 0.8411919906082768, -0.15880800939172324, 2.996362607918227};
    ech_kernel_call c = {.kind = ECH_OP_GELU,
                         .n_args = 2,
                         .arg = {{x, ECH_F64, 2, {2, 2}}, {y, ECH_F64, 2, {2, 2}}},
                         .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_GELU](&c);
    for (int i = 0; i < 4; i++)
        assert_near(y[i], gelu[i], 1e-15);

    double gate_up[2][2] = {{1.0, 2.0}, {-2.0, 3.0}}; /* [N, 2, F = 1] */
    c.kind = ECH_OP_SWIGLU;
    c.arg[0] = (ech_tensor){gate_up, ECH_F64, 3, {2, 2, 1}};
    c.arg[1] = (ech_tensor){y, ECH_F64, 2, {2, 1}};
    ech_kernel_set_ref()->kernel[ECH_OP_SWIGLU](&c);
    assert_near(y[0], 1.4621171572600098, 1e-15);
    assert_near(y[1], -0.7152175321327053, 1e-15);
}

/* --- dropout --- */

static void check_dropout(const kernel_case *before, const kernel_case *after)
{
    const ech_kernel_call *c = &before->call;
    const ech_rng_key key =
        ech_rng_key_make(c->rng.seed, ECH_RNG_DROPOUT_MLP, c->rng.step, c->rng.layer);
    const int64_t width = dim(before, 0, 1);
    int64_t n_dropped = 0;
    for (int64_t e = 0; e < kernel_case_arg_elems(before, 0); e++) {
        const int64_t n = c->attr[2] + e / width;
        const int64_t row = c->rng.row0 + n / c->attr[0];
        const int64_t element = (row * c->attr[0] + n % c->attr[0]) * width + e % width;
        const bool is_kept = (double)ech_rng_u32(&key, (uint64_t)element) >= c->real[0] * 0x1p32;
        double want = c->arg[1].data ? real_at(before, 1, e) : 0.0;
        if (is_kept)
            want += real_at(before, 0, e) / (1.0 - c->real[0]);
        n_dropped += !is_kept;
        assert_near(real_at(after, 2, e), want, 1e-15);
    }
    /* Within five standard deviations of its expectation. */
    const double n = (double)kernel_case_arg_elems(before, 0);
    assert_near((double)n_dropped, c->real[0] * n, 5.0 * sqrt(n * 0.25));
    if (c->real[0] == 0.0)
        assert_int_equal(n_dropped, 0);
}

static void test_dropout(void **state)
{
    (void)state;
    for_each_case(ECH_OP_DROPOUT, check_dropout);
}

/* Without dropout no random number is drawn: a call outside of any step is fine. */
static void test_no_dropout_needs_no_step(void **state)
{
    (void)state;
    double x[2] = {1.0, -2.0}, y[2] = {0.0, 0.0};
    const ech_kernel_call c = {
        .kind = ECH_OP_DROPOUT,
        .n_args = 3,
        .arg = {{x, ECH_F64, 2, {1, 2}}, {NULL, ECH_F64, 0, {0}}, {y, ECH_F64, 2, {1, 2}}},
        .attr = {1, ECH_RNG_DROPOUT_MLP},
        .rng = {.step = -1},
        .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_DROPOUT](&c);
    assert_memory_equal(x, y, sizeof x);
}

/* --- keys and values of copied groups --- */

/* Three groups of one query head, E = 2: groups 1 to 3 of the pairs 0 1 | 2 3, so the first holds
 * key/value head 0, the next two hold head 1.  What is queries' is neither read nor written. */
static void test_kv_fold_and_spread_by_hand(void **state)
{
    (void)state;
    double dw[3][3][2] = {
        {{9, 9}, {1, 2}, {3, 4}}, {{9, 9}, {5, 6}, {7, 8}}, {{9, 9}, {10, 20}, {30, 40}}};
    double sum[3][2][2];
    const double folded[3][2][2] = {{{1, 2}, {3, 4}}, {{15, 26}, {37, 48}}, {{0, 0}, {0, 0}}};
    const double spread[3][3][2] = {
        {{9, 9}, {1, 2}, {3, 4}}, {{9, 9}, {15, 26}, {37, 48}}, {{9, 9}, {15, 26}, {37, 48}}};
    ech_kernel_call c = {.kind = ECH_OP_KV_FOLD,
                         .n_args = 2,
                         .arg = {{dw, ECH_F64, 3, {3, 3, 2}}, {sum, ECH_F64, 3, {3, 2, 2}}},
                         .attr = {1, 2},
                         .threads = 1};
    memset(sum, 0x5a, sizeof sum);
    ech_kernel_set_ref()->kernel[ECH_OP_KV_FOLD](&c);
    assert_memory_equal(sum, folded, sizeof sum);
    c = (ech_kernel_call){.kind = ECH_OP_KV_SPREAD,
                          .n_args = 2,
                          .arg = {{sum, ECH_F64, 3, {3, 2, 2}}, {dw, ECH_F64, 3, {3, 3, 2}}},
                          .attr = {1, 2},
                          .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_KV_SPREAD](&c);
    assert_memory_equal(dw, spread, sizeof dw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_copy_scale_add),
        cmocka_unit_test(test_zero_and_copy_take_any_type),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_rope_by_hand),
        cmocka_unit_test(test_rope_inverse),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_activations_at_known_points),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_kv_fold_and_spread_by_hand),
        cmocka_unit_test(test_no_dropout_needs_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
