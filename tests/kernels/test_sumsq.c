/* RUN: np=1 timeout=120 tags=fast,thread */
/* Exact sums of squares: the words of every set against bits counted one by one, whatever the
 * values, the order, the pieces and the threads. */
#include "check.h"
#include "kernel_cases.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static const ech_kernel_set *set;
static ech_dtype real;

enum { MOST = 300000, WORDS = ECH_SUMSQ_WORDS };

static char *array; /* owned: MOST elements of REAL */

static double at(int64_t i)
{
    return ech_dtype_load(real, array, (size_t)i);
}

static void put(int64_t i, double x)
{
    ech_dtype_store(real, array, (size_t)i, x);
}

/* sum and copies. */
typedef struct sums {
    int64_t sum[WORDS], copies[WORDS];
} sums;

/* Which elements are copies: in each of two parts the last `tail` of a period. */
typedef struct pattern {
    struct {
        int64_t begin, end, period, tail;
    } part[2];
} pattern;

static ech_tensor words(int64_t *word)
{
    return (ech_tensor){word, ECH_I64, 1, {WORDS}};
}

static void add(sums *s, int64_t begin, int64_t end, const pattern *p, int threads)
{
    char *first = array + (size_t)begin * ech_dtype_bytes(real);
    ech_kernel_call c = {.kind = ECH_OP_SUMSQ, .n_args = 3, .attr = {begin}, .threads = threads};
    c.arg[0] = (ech_tensor){first, real, 1, {end - begin}};
    c.arg[1] = words(s->sum);
    c.arg[2] = words(p ? s->copies : NULL);
    if (p)
        memcpy(c.attr + 1, p->part, sizeof p->part);
    set->kernel[ECH_OP_SUMSQ](&c);
}

static void assert_same(const sums *got, const sums *want)
{
    for (int k = 0; k < WORDS; k++)
        if (got->sum[k] != want->sum[k] || got->copies[k] != want->copies[k])
            fail_msg("word %d: sum %llx, wanted %llx; copies %llx, wanted %llx", k,
                     (unsigned long long)got->sum[k], (unsigned long long)want->sum[k],
                     (unsigned long long)got->copies[k], (unsigned long long)want->copies[k]);
}

/* --- the witness: how often each bit stands in the sum --- */

enum { BITS = 32 * ECH_SUMSQ_LIMBS, HIDDEN = 1800 /* bits of a square below those of the sum */ };

typedef struct bit_count {
    int64_t n[BITS];
    int64_t overflow;
} bit_count;

/* Bits of x^2, the schoolbook product of the bits of x, carried on; the lower ones are forgotten. */
static void count_square(bit_count *c, double x)
{
    static int32_t bit[HIDDEN + BITS];
    int e, low = HIDDEN + BITS;
    const double m =
        frexp(fabs(x), &e); /* x = sum over i of bit i of m 2^53, times 2^(e - 53 + i) */
    if (!isfinite(x) || fabs(x) >= ldexp(1.0, ECH_SUMSQ_TOP / 2)) {
        c->overflow++;
        return;
    }
    if (m == 0.0)
        return;
    const uint64_t whole = (uint64_t)ldexp(m, 53);
    memset(bit, 0, sizeof bit);
    for (int i = 0; i < 53; i++)
        for (int j = 0; j < 53; j++) {
            const int k = HIDDEN - ECH_SUMSQ_EXPONENT + 2 * (e - 53) + i + j;
            if (!(whole >> i & whole >> j & 1))
                continue;
            assert_true(k >= 0);
            bit[k]++;
            low = k < low ? k : low;
        }
    for (int k = low; k + 1 < HIDDEN + BITS; k++) {
        bit[k + 1] += bit[k] / 2;
        if (k >= HIDDEN)
            c->n[k - HIDDEN] += bit[k] % 2;
    }
}

static void words_of(const bit_count *c, int64_t *word)
{
    int64_t carry = 0;
    memset(word, 0, WORDS * sizeof *word);
    for (int k = 0; k < BITS; k++) {
        const int64_t n = c->n[k] + carry;
        word[k / 32] += (n & 1) << k % 32;
        carry = n >> 1;
    }
    assert_true(carry == 0);
    word[ECH_SUMSQ_LIMBS] = c->overflow;
}

static bool is_copy(int64_t k, const pattern *p)
{
    bool is_any = false;
    for (int i = 0; i < 2 && p; i++)
        if (k >= p->part[i].begin && k < p->part[i].end)
            is_any = is_any || (k - p->part[i].begin) % p->part[i].period >=
                                   p->part[i].period - p->part[i].tail;
    return is_any;
}

static void witness(sums *s, int64_t n, const pattern *p)
{
    static bit_count count[2];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++)
        count_square(&count[is_copy(i, p)], at(i));
    words_of(&count[0], s->sum);
    words_of(&count[1], s->copies);
}

/* --- values --- */

typedef enum fill_kind {
    NORMAL,    /* about 1 */
    GRADIENT,  /* normal times exp(3 normal) */
    MANY_BINS, /* 200 powers of two */
    EXTREME,   /* the whole range of the type and zeros */
    SUBNORMAL, /* of fp32 */
    ONE_LARGE, /* the largest number among the smallest */
    ALIKE,     /* all bits set: every addition as large as it may be */
    ZEROS,
    NOT_FINITE, /* some of them */
    N_FILLS
} fill_kind;

static double drawn(fill_kind kind, const ech_rng_key *key, uint64_t i)
{
    const double normal = ech_rng_normal(key, 2 * i);
    const double u = ech_rng_uniform(key, 4 * MOST + i);
    const int half = real == ECH_F32 ? 125 : 1000;
    switch (kind) {
    case NORMAL:
        return normal;
    case GRADIENT:
        return normal * exp(3.0 * ech_rng_normal(key, 2 * i + 1));
    case MANY_BINS:
        return ldexp(normal, (int)(200.0 * u) - 100);
    case EXTREME:
        return i % 7 == 3 ? 0.0 : ldexp(normal, (int)(2 * half * u) - half);
    case SUBNORMAL:
        return ldexp(floor(u * 100.0), -149);
    case ONE_LARGE:
        return i % 1000 == 500 ? 0x1.fffffep127 : 0x1p-149;
    case ALIKE:
        return i % 2 == 0 ? 0x1.fffffep5 : -0x1.fffffep5;
    case NOT_FINITE:
        return i % 1013 == 5   ? (double)NAN
               : i % 1013 == 9 ? -(double)INFINITY
               : i % 4999 == 7 ? (double)INFINITY
                               : normal;
    case ZEROS:
    case N_FILLS:
        break;
    }
    return 0.0;
}

static void fill(fill_kind kind, int64_t n, uint64_t seed)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_TEST, (int64_t)kind, -1);
    for (int64_t i = 0; i < n; i++)
        put(i, drawn(kind, &key, (uint64_t)i));
}

/* --- tests --- */

static void test_every_kind_of_value(void **state)
{
    (void)state;
    static const pattern some = {{{100, 2400, 37, 11}}};
    for (int kind = 0; kind < N_FILLS; kind++) {
        for (int64_t n = 0; n <= 2600; n = n < 40 ? n + 13 : n * 8) {
            sums got = {{0}, {0}}, want;
            fill((fill_kind)kind, n, 1);
            add(&got, 0, n, &some, 1);
            witness(&want, n, &some);
            assert_same(&got, &want);
        }
    }
}

/* Pieces cut anywhere, in any order, on 1 to 4 threads; runs of copies across blocks and tasks. */
static void test_pieces_order_and_threads(void **state)
{
    (void)state;
    static const int64_t cut[] = {0, 1, 4097, 70000, 70003, 200001, MOST};
    static const pattern some = {{{1000, 220000, 90001, 40000}, {220000, 299000, 4000, 3999}}};
    static const fill_kind kinds[] = {NORMAL, GRADIENT, EXTREME, ALIKE, NOT_FINITE};
    for (int k = 0; k < 5; k++) {
        sums want = {{0}, {0}};
        fill(kinds[k], MOST, 2);
        const ech_kernel_set *const under_test = set;
        set = ech_kernel_set_ref();
        add(&want, 0, MOST, &some, 1);
        set = under_test;
        for (int threads = 1; threads <= 4; threads++) {
            sums whole = {{0}, {0}}, parts = {{0}, {0}};
            add(&whole, 0, MOST, &some, threads);
            assert_same(&whole, &want);
            for (int i = 0; i < 6; i++) {
                const int j = (i * 5 + threads) % 6;
                add(&parts, cut[j], cut[j + 1], &some, threads);
            }
            assert_same(&parts, &want);
        }
    }
}

/* Short runs: every second element is a copy, or all but one of a period. */
static void test_short_runs(void **state)
{
    (void)state;
    static const pattern patterns[] = {{{{0, 3000, 2, 1}}},
                                       {{{5, 2990, 17, 16}}},
                                       {{{0, 3000, 4, 4}}},
                                       {{{0, 3000, 4, 0}, {2999, 3000, 1, 1}}},
                                       {{{10, 1500, 7, 3}, {1500, 2999, 100, 1}}}};
    fill(GRADIENT, 3000, 3);
    for (int i = 0; i < 5; i++) {
        sums got = {{0}, {0}}, want;
        add(&got, 0, 3000, &patterns[i], 3);
        witness(&want, 3000, &patterns[i]);
        assert_same(&got, &want);
    }
}

/* 3^2 + 4^2 + 12^2 = 169 on top of 2^32 - 1 units of 1: carried on, the rest left. */
static void test_adds_and_carries(void **state)
{
    (void)state;
    sums s = {{0}, {0}};
    s.sum[10] = 0xffffffff;
    s.sum[3] = INT64_C(5) << 32; /* a word of five ranks */
    s.sum[WORDS - 1] = 2;
    put(0, 3.0);
    put(1, 4.0);
    put(2, -12.0);
    add(&s, 0, 3, NULL, 1);
    assert_true(s.sum[10] == 168 && s.sum[11] == 1 && s.sum[3] == 0 && s.sum[4] == 5);
    assert_true(s.sum[WORDS - 1] == 2);
    for (int k = 0; k < WORDS; k++)
        assert_true(s.copies[k] == 0);
}

static int run_set(const char *name, const ech_kernel_set *s, ech_dtype type)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_value), cmocka_unit_test(test_pieces_order_and_threads),
        cmocka_unit_test(test_short_runs), cmocka_unit_test(test_adds_and_carries)};
    set = s;
    real = type;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

static int run_module(const char *file)
{
    kernel_module module;
    if (!kernel_module_open(&module, file, 4))
        return module.is_missing;
    const int failures = run_set(file, module.set, ECH_F32);
    kernel_module_close(&module);
    return failures;
}

int main(void)
{
    array = malloc(MOST * sizeof(double));
    if (!array)
        return 1;
    const int failures = run_set("ref fp64", ech_kernel_set_ref(), ECH_F64) +
                         run_set("ref fp32", ech_kernel_set_ref(), ECH_F32) +
                         run_module("libechelon_cpu.so") + run_module("libechelon_cpu_avx2.so");
    free(array);
    return failures ? 1 : 0;
}
