/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "base/checked.h"

#include <stdlib.h>

static void test_products(void **state)
{
    int64_t r = 7;
    size_t z = 7;
    (void)state;
    assert_ok(ech_mul_i64(-3, 5, &r));
    assert_int_equal(r, -15);
    assert_ok(ech_mul_i64(INT64_MIN, 1, &r));
    assert_true(r == INT64_MIN);
    assert_fails(ech_mul_i64(INT64_MIN, -1, &r), ECH_E_ILLEGAL, "does not fit 64 bits");
    assert_fails(ech_mul_i64((int64_t)1 << 32, (int64_t)1 << 31, &r), ECH_E_ILLEGAL,
                 "4294967296 x 2147483648");
    assert_true(r == INT64_MIN); /* unchanged */
    assert_ok(ech_mul_size(0, SIZE_MAX, &z));
    assert_int_equal(z, 0);
    assert_ok(ech_mul_size(SIZE_MAX, 1, &z));
    assert_true(z == SIZE_MAX);
    assert_fails(ech_mul_size(SIZE_MAX / 2 + 1, 2, &z), ECH_E_ILLEGAL, "does not fit");
    assert_true(z == SIZE_MAX);
}

static void test_sums(void **state)
{
    int64_t r = 7;
    (void)state;
    assert_ok(ech_add_i64(INT64_MAX, INT64_MIN, &r));
    assert_int_equal(r, -1);
    assert_fails(ech_add_i64(INT64_MAX, 1, &r), ECH_E_ILLEGAL, "9223372036854775807 + 1");
    assert_fails(ech_add_i64(INT64_MIN, -1, &r), ECH_E_ILLEGAL, "does not fit");
    assert_int_equal(r, -1);
}

static void test_divisors(void **state)
{
    (void)state;
    for (int64_t a = 0; a <= 24; a++)
        for (int64_t b = 0; b <= 24; b++) {
            int64_t most = a ? a : b;
            while (most && (a % most || b % most))
                most--;
            assert_int_equal(ech_gcd(a, b), most);
        }
    assert_true(ech_gcd(INT64_MAX, INT64_MAX - 1) == 1);
}

static void test_rounding(void **state)
{
    (void)state;
    assert_int_equal(ech_align_up(0, 64), 0);
    assert_int_equal(ech_align_up(1, 64), 64);
    assert_int_equal(ech_align_up(64, 64), 64);
    assert_int_equal(ech_align_up(65, 64), 128);
    assert_int_equal(ech_ceil_div(0, 3), 0);
    assert_int_equal(ech_ceil_div(1, 3), 1);
    assert_int_equal(ech_ceil_div(3, 3), 1);
    assert_int_equal(ech_ceil_div(4, 3), 2);
}

static void test_zeroed_memory(void **state)
{
    int32_t *p = NULL;
    (void)state;
    assert_ok(ech_calloc(1000, sizeof *p, &p));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    free(p);
    assert_ok(ech_calloc(0, sizeof *p, &p));
    assert_non_null(p);
    free(p);
    assert_fails(ech_calloc(SIZE_MAX / 2, 4, &p), ECH_E_ILLEGAL, "does not fit");
    assert_null(p);
}

static void test_grow_keeps_contents(void **state)
{
    int64_t *array = NULL;
    size_t capacity = 0;
    (void)state;
    for (size_t n = 0; n < 1000; n++) {
        assert_ok(ech_grow(&array, n, &capacity, sizeof *array));
        assert_true(capacity > n);
        array[n] = (int64_t)n * 3;
    }
    for (size_t n = 0; n < 1000; n++)
        assert_int_equal(array[n], (int64_t)n * 3);
    int64_t *before = array;
    capacity = SIZE_MAX / 8;
    assert_fails(ech_grow(&array, capacity, &capacity, sizeof *array), ECH_E_ILLEGAL, "");
    assert_ptr_equal(array, before);
    assert_true(capacity == SIZE_MAX / 8);
    free(array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),      cmocka_unit_test(test_sums),
        cmocka_unit_test(test_divisors),      cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_zeroed_memory), cmocka_unit_test(test_grow_keeps_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
