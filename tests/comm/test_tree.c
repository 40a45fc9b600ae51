/* RUN: np=1 timeout=20 tags=fast */
/* The order of summation: against an element-wise reference, and how trees nest. */
#include "check.h"
#include "coll_case.h"

#include "base/rng.h"

#include <stdlib.h>

enum { MAX_VECTORS = 64, MAX_ELEMS = 3000 };

typedef struct vectors {
    ech_dtype dtype;
    int n;
    int64_t elems;
    unsigned char *in[MAX_VECTORS];
} vectors;

/* Exponents far apart, so that the order shows. */
static double value(int i, int64_t e)
{
    const ech_rng_key key = ech_rng_key_make(11, ECH_RNG_TEST, i, 0);
    uint32_t w[4];
    ech_rng_block(&key, (uint64_t)e, w);
    return ((double)w[0] - 2147483648.0) * (double)(1 << (w[1] % 24)) / 65536.0;
}

static void make(vectors *v, ech_dtype dtype, int n, int64_t elems)
{
    *v = (vectors){.dtype = dtype, .n = n, .elems = elems};
    for (int i = 0; i < n; i++) {
        v->in[i] = malloc((size_t)elems * ech_dtype_bytes(dtype) + 1);
        assert_non_null(v->in[i]);
        for (int64_t e = 0; e < elems; e++)
            ech_dtype_store(dtype, v->in[i], (size_t)e, value(i, e));
    }
}

static void drop(vectors *v)
{
    for (int i = 0; i < v->n; i++)
        free(v->in[i]);
}

static void check_against_reference(const vectors *v, const ech_tree *tree, const void *got)
{
    const size_t w = ech_dtype_bytes(v->dtype);
    for (int64_t e = 0; e < v->elems; e++) {
        unsigned char x[MAX_VECTORS * 8];
        for (int i = 0; i < v->n; i++)
            ech_dtype_store(v->dtype, x, (size_t)i, value(i, e));
        reference_tree_sum(v->dtype, x, v->n, tree->factor, tree->n);
        if (memcmp(x, (const unsigned char *)got + (size_t)e * w, w) != 0)
            fail_msg("%s, %d vectors, element %lld: %.17g, reference %.17g",
                     ech_dtype_name(v->dtype), v->n, (long long)e,
                     ech_dtype_load(v->dtype, got, (size_t)e), ech_dtype_load(v->dtype, x, 0));
    }
}

static void test_default_trees_match_reference(void **state)
{
    static const ech_dtype dtypes[] = {ECH_F32, ECH_F64, ECH_I64};
    static const int64_t sizes[] = {0, 1, 7, 511, 512, 513, 1024, 1025, 2500};
    (void)state;
    for (int d = 0; d < 3; d++)
        for (int n = 1; n <= 24; n++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s += n < 10 ? 1 : 2) {
                const ech_tree tree = ech_tree_default(n);
                vectors v;
                make(&v, dtypes[d], n, sizes[s]);
                unsigned char *out = malloc((size_t)sizes[s] * 8 + 1);
                assert_non_null(out);
                ech_tree_sum(&tree, dtypes[d], (void *const *)v.in, n, sizes[s], out);
                check_against_reference(&v, &tree, out);
                free(out);
                drop(&v);
            }
}

static void test_output_may_be_any_input(void **state)
{
    (void)state;
    for (int n = 1; n <= 12; n++)
        for (int alias = 0; alias < n; alias++) {
            const ech_tree tree = ech_tree_default(n);
            vectors v;
            make(&v, ECH_F32, n, 1500);
            ech_tree_sum(&tree, ECH_F32, (void *const *)v.in, n, 1500, v.in[alias]);
            check_against_reference(&v, &tree, v.in[alias]);
            drop(&v);
        }
}

static void test_int64_wraps(void **state)
{
    const ech_tree tree = ech_tree_default(2);
    int64_t a = INT64_MAX, b = 2, out = 0;
    void *const in[] = {&a, &b};
    (void)state;
    ech_tree_sum(&tree, ECH_I64, in, 2, 1, &out);
    assert_true(out == INT64_MIN + 1);
}

/* Values chosen so that every order shows: 1e8 + 1 - 1e8 in fp32. */
static void test_order_by_hand(void **state)
{
    float x[6] = {1e8f, 1.0f, -1e8f, 1.0f, 0.5f, 0.25f};
    void *const in[] = {&x[0], &x[1], &x[2], &x[3], &x[4], &x[5]};
    const ech_tree pairs = {2, {2, 3}};  /* ((a+b) + (c+d)) + (e+f) */
    const ech_tree thirds = {2, {3, 2}}; /* ((a+b)+c) + ((d+e)+f) */
    const ech_tree flat = {1, {6}};      /* ((a+b)+c) + ((d+e)+f) by balance */
    const ech_tree five = {1, {5}};      /* ((a+b)+c) + (d+e) */
    float out = 0;
    (void)state;
    ech_tree_sum(&pairs, ECH_F32, in, 6, 1, &out); /* (1e8 - 1e8) + 0.75: both ones are lost */
    assert_true(out == 0.75f);
    ech_tree_sum(&thirds, ECH_F32, in, 6, 1, &out); /* 0 + 1.75 */
    assert_true(out == 1.75f);
    ech_tree_sum(&flat, ECH_F32, in, 6, 1, &out);
    assert_true(out == 1.75f);
    ech_tree_sum(&five, ECH_F32, in, 5, 1, &out);
    assert_true(out == 1.5f);
}

/* Sum inside the groups of a prefix of the factors first, then over the groups: the same bits as
 * in one go.  That is what lets a two-level reduction agree with a flat one. */
static void check_nesting(const int *factor, int n_factors)
{
    enum { ELEMS = 700 };
    for (int cut = 0; cut <= n_factors; cut++) {
        int inner = 1, n = 1;
        ech_tree whole, low, high;
        for (int k = 0; k < n_factors; k++)
            n *= factor[k];
        for (int k = 0; k < cut; k++)
            inner *= factor[k];
        assert_ok(ech_tree_make(factor, n_factors, n, &whole));
        assert_ok(ech_tree_make(factor, cut, inner, &low));
        assert_ok(ech_tree_make(factor + cut, n_factors - cut, n / inner, &high));

        vectors v;
        static float flat[ELEMS], nested[ELEMS];
        make(&v, ECH_F32, n, ELEMS);
        ech_tree_sum(&whole, ECH_F32, (void *const *)v.in, n, ELEMS, flat);
        void *group[MAX_VECTORS];
        for (int g = 0; g < n / inner; g++) {
            void *const *const members = (void *const *)v.in + (ptrdiff_t)g * inner;
            group[g] = v.in[g * inner];
            ech_tree_sum(&low, ECH_F32, members, inner, ELEMS, group[g]);
        }
        ech_tree_sum(&high, ECH_F32, group, n / inner, ELEMS, nested);
        assert_memory_equal(flat, nested, sizeof flat);
        drop(&v);
    }
}

static void test_trees_nest(void **state)
{
    (void)state;
    check_nesting((const int[]){2, 3}, 2);
    check_nesting((const int[]){2, 2, 2, 3}, 4);
    check_nesting((const int[]){3, 2, 5}, 3);
    check_nesting((const int[]){7, 4}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_trees_match_reference),
        cmocka_unit_test(test_output_may_be_any_input),
        cmocka_unit_test(test_int64_wraps),
        cmocka_unit_test(test_order_by_hand),
        cmocka_unit_test(test_trees_nest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
