/* RUN: np=1 timeout=60 tags=fast */
/* Attention of the reference set against a softmax over the whole score matrix, against numbers by
 * hand, and step by step through a cache. */
#include "check.h"
#include "kernel_cases.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static const double bound = 1e-13; /* fp64, rows of at most 70 keys */

static double at4(const ech_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const double *x = t->data;
    return x[((a * t->dim[1] + b) * t->dim[2] + c) * t->dim[3] + d];
}

/* Score of query i and key j of a sequence that starts at token n0. */
static double naive_score(const ech_kernel_call *c, int64_t n0, int64_t g, int64_t h, int64_t i,
                          int64_t j)
{
    const ech_tensor *qkv = &c->arg[0];
    const int64_t key = qkv->dim[2] - 2;
    long double sum = 0.0L;
    for (int64_t d = 0; d < qkv->dim[3]; d++)
        sum += (long double)at4(qkv, n0 + i, g, h, d) * (long double)at4(qkv, n0 + j, g, key, d);
    return (double)(sum * (long double)c->real[0]);
}

/* What dropout makes of a normalised score of 1. */
static double naive_keep(const ech_kernel_call *c, int64_t row, int64_t head, int64_t i, int64_t j)
{
    if (c->real[1] == 0.0)
        return 1.0;
    const int64_t s = c->attr[0];
    const int64_t first = c->attr[3], heads = c->attr[4];
    const int64_t element = (((c->rng.row0 + row) * heads + first + head) * s + i) * s + j;
    const ech_rng_key key =
        ech_rng_key_make(c->rng.seed, ECH_RNG_DROPOUT_ATTENTION, c->rng.step, c->rng.layer);
    const bool is_kept = (double)ech_rng_u32(&key, (uint64_t)element) >= c->real[1] * 0x1p32;
    return is_kept ? 1.0 / (1.0 - c->real[1]) : 0.0;
}

/* Row i of the score matrix (-inf where j is not seen), its log-sum-exp and its output. */
static void check_row(const kernel_case *k, int64_t row, int64_t g, int64_t h, int64_t i)
{
    const ech_kernel_call *c = &k->call;
    const int64_t s = c->attr[0], window = c->attr[1];
    const int64_t r = c->arg[0].dim[2] - 2, width = c->arg[0].dim[3];
    double *score = calloc((size_t)s, sizeof *score);
    double *out = calloc((size_t)width, sizeof *out);
    long double sum = 0.0L;
    assert_true(score && out);
    for (int64_t j = 0; j < s; j++) {
        const bool is_seen = j <= i && (window == 0 || j > i - window);
        score[j] = is_seen ? naive_score(c, row * s, g, h, i, j) : -(double)INFINITY;
        sum += expl((long double)score[j]);
    }
    for (int64_t j = 0; j < s; j++) {
        const double p = (double)(expl((long double)score[j]) / sum);
        for (int64_t d = 0; d < width; d++)
            out[d] +=
                p * naive_keep(c, row, g * r + h, i, j) * at4(&c->arg[0], row * s + j, g, r + 1, d);
    }
    const int64_t head = ((row * s + i) * c->arg[0].dim[1] + g) * r + h;
    assert_near(((const double *)c->arg[2].data)[head], (double)logl(sum), bound);
    for (int64_t d = 0; d < width; d++)
        assert_near(((const double *)c->arg[1].data)[head * width + d], out[d], bound);
    free(score);
    free(out);
}

static void test_attention_is_softmax_of_the_whole_matrix(void **state)
{
    (void)state;
    for (int variant = 0; variant < kernel_case_variants(ECH_OP_ATTENTION); variant++) {
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++) {
            kernel_case k;
            kernel_case_make(&k, ECH_OP_ATTENTION, variant, ECH_F64, seed);
            kernel_case_run(&k, ech_kernel_set_ref());
            const int64_t s = k.call.attr[0];
            const int64_t *dim = k.call.arg[0].dim;
            for (int64_t n = 0; n < dim[0]; n++)
                for (int64_t g = 0; g < dim[1]; g++)
                    for (int64_t h = 0; h < dim[2] - 2; h++)
                        check_row(&k, n / s, g, h, n % s);
            kernel_case_fini(&k);
        }
    }
}

/* Scores 0 and ln 3 of the second token: weights 1/4 and 3/4. */
static void test_attention_by_hand(void **state)
{
    (void)state;
    double qkv[2][3] = {{1.0, 0.0, 1.0}, {1.0, 0.0, 5.0}};
    double out[2], lse[2];
    qkv[1][1] = log(3.0);
    ech_kernel_call c = {.kind = ECH_OP_ATTENTION,
                         .n_args = 3,
                         .arg = {{qkv, ECH_F64, 4, {2, 1, 3, 1}},
                                 {out, ECH_F64, 3, {2, 1, 1}},
                                 {lse, ECH_F64, 3, {2, 1, 1}}},
                         .attr = {2, 0, ECH_RNG_DROPOUT_ATTENTION},
                         .real = {1.0, 0.0},
                         .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_ATTENTION](&c);
    assert_near(out[0], 1.0, 0.0);
    assert_near(lse[0], 0.0, 0.0);
    assert_near(out[1], 4.0, 1e-15);
    assert_near(lse[1], log(4.0), 1e-15);
    c.attr[1] = 1; /* a window of one: each token sees itself */
    ech_kernel_set_ref()->kernel[ECH_OP_ATTENTION](&c);
    assert_near(out[1], 5.0, 0.0);
    assert_near(lse[1], log(3.0), 1e-15);
}

/* Large scores neither overflow nor vanish. */
static void test_attention_of_large_scores(void **state)
{
    (void)state;
    double qkv[2][3] = {{1000.0, -1000.0, 1.0}, {1000.0, 1000.0, 5.0}};
    double out[2], lse[2];
    const ech_kernel_call c = {.kind = ECH_OP_ATTENTION,
                               .n_args = 3,
                               .arg = {{qkv, ECH_F64, 4, {2, 1, 3, 1}},
                                       {out, ECH_F64, 3, {2, 1, 1}},
                                       {lse, ECH_F64, 3, {2, 1, 1}}},
                               .attr = {2, 0, ECH_RNG_DROPOUT_ATTENTION},
                               .real = {1.0, 0.0},
                               .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_ATTENTION](&c);
    assert_near(out[0], 1.0, 0.0);
    assert_near(lse[0], -1e6, 0.0);
    assert_near(out[1], 5.0, 0.0);
    assert_near(lse[1], 1e6, 0.0);
}

/* Masks belong to global rows: sequence 1 of a batch has the same bits alone with row0 + 1. */
static void test_dropout_does_not_depend_on_the_split(void **state)
{
    (void)state;
    kernel_case whole, part;
    kernel_case_make(&whole, ECH_OP_ATTENTION, 2, ECH_F64, 0);
    kernel_case_make(&part, ECH_OP_ATTENTION, 2, ECH_F64, 0);
    assert_true(whole.call.real[1] > 0.0);
    kernel_case_run(&whole, ech_kernel_set_ref());
    const int64_t s = part.call.attr[0];
    for (int i = 0; i < 3; i++) {
        ech_tensor *t = &part.call.arg[i];
        const size_t half = kernel_case_arg_bytes(&part, i) / 2;
        assert_int_equal(t->dim[0], 2 * s);
        t->dim[0] = s;
        t->data = (char *)t->data + half;
    }
    part.call.rng.row0 += 1;
    kernel_case_run(&part, ech_kernel_set_ref());
    for (int i = 1; i < 3; i++)
        assert_memory_equal(part.call.arg[i].data,
                            (char *)whole.call.arg[i].data + kernel_case_arg_bytes(&part, i),
                            kernel_case_arg_bytes(&part, i));
    kernel_case_fini(&whole);
    kernel_case_fini(&part);
}

/* A cache and the tokens fed to it. */
typedef struct cached {
    double *k, *v;    /* owned */
    int64_t position; /* tokens in it */
} cached;

/* Feed tokens [position, position + n) of the whole case; their outputs go to out. */
static void feed(const kernel_case *whole, cached *cache, int64_t n, double *out)
{
    const int64_t *dim = whole->call.arg[0].dim;
    const int64_t r = dim[2] - 2;
    const int64_t token = dim[1] * dim[2] * dim[3];
    double *qkv = (double *)whole->call.arg[0].data + cache->position * token;
    const ech_kernel_call c = {
        .kind = ECH_OP_ATTENTION_CACHED,
        .n_args = 5,
        .arg = {{qkv, ECH_F64, 4, {n, dim[1], dim[2], dim[3]}},
                {cache->k, ECH_F64, 3, {dim[0], dim[1], dim[3]}},
                {cache->v, ECH_F64, 3, {dim[0], dim[1], dim[3]}},
                {&cache->position, ECH_I64, 0, {0}},
                {out + cache->position * dim[1] * r * dim[3], ECH_F64, 3, {n, dim[1], r * dim[3]}}},
        .attr = {whole->call.attr[1]},
        .real = {whole->call.real[0]},
        .threads = 1};
    ech_kernel_set_ref()->kernel[ECH_OP_ATTENTION_CACHED](&c);
    cache->position += n;
}

/* Several tokens at first, then one at a time. */
static void check_cached(int variant, uint64_t seed, int64_t first)
{
    kernel_case whole;
    kernel_case_make(&whole, ECH_OP_ATTENTION, variant, ECH_F64, seed);
    kernel_case_run(&whole, ech_kernel_set_ref());
    const int64_t n = whole.call.arg[0].dim[0];
    assert_int_equal(n, whole.call.attr[0]); /* one sequence */
    const size_t cache_elems = (size_t)(n * whole.call.arg[0].dim[1] * whole.call.arg[0].dim[3]);
    const size_t out_bytes = kernel_case_arg_bytes(&whole, 1);
    cached cache = {.k = calloc(cache_elems, sizeof(double)),
                    .v = calloc(cache_elems, sizeof(double))};
    double *out = calloc(1, out_bytes);
    assert_true(cache.k && cache.v && out);
    feed(&whole, &cache, first, out);
    while (cache.position < n)
        feed(&whole, &cache, 1, out);
    assert_memory_equal(out, whole.call.arg[1].data, out_bytes);
    free(cache.k);
    free(cache.v);
    free(out);
    kernel_case_fini(&whole);
}

static void test_cached_steps_equal_the_whole_sequence(void **state)
{
    static const uint64_t one_sequence[] = {1, 4, 6};
    (void)state;
    for (size_t i = 0; i < sizeof one_sequence / sizeof one_sequence[0]; i++) {
        for (int variant = 0; variant < 2; variant++) { /* without and with a window */
            check_cached(variant, one_sequence[i], 1);
            check_cached(variant, one_sequence[i], 5);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_is_softmax_of_the_whole_matrix),
        cmocka_unit_test(test_attention_by_hand),
        cmocka_unit_test(test_attention_of_large_scores),
        cmocka_unit_test(test_dropout_does_not_depend_on_the_split),
        cmocka_unit_test(test_cached_steps_equal_the_whole_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
