/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "base/dtype.h"

#include <math.h>

/* What 16 bits mean, from the definition: sign, exponent of `exp_bits`, the rest mantissa. */
static double decode(uint16_t bits, int exp_bits)
{
    const int man_bits = 15 - exp_bits;
    const int bias = (1 << (exp_bits - 1)) - 1;
    const int exp = (bits >> man_bits) & ((1 << exp_bits) - 1);
    const int man = bits & ((1 << man_bits) - 1);
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exp == (1 << exp_bits) - 1)
        return man ? (double)NAN : sign * (double)INFINITY;
    if (exp == 0)
        return sign * ldexp(man, 1 - bias - man_bits);
    return sign * ldexp((1 << man_bits) + man, exp - bias - man_bits);
}

typedef struct half_type {
    ech_dtype dtype;
    int exp_bits;
    float (*widen)(uint16_t bits);
    uint16_t (*narrow)(float x);
} half_type;

static const half_type halves[] = {
    {ECH_BF16, 8, ech_bf16_to_f32, ech_f32_to_bf16},
    {ECH_F16, 5, ech_f16_to_f32, ech_f32_to_f16},
};

static void test_every_pattern_widens_exactly(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (uint32_t b = 0; b < 65536; b++) {
            const double wanted = decode((uint16_t)b, halves[t].exp_bits);
            const double got = (double)halves[t].widen((uint16_t)b);
            if (!(isnan(got) && isnan(wanted)) &&
                (got != wanted || signbit(got) != signbit(wanted)))
                fail_msg("%s %04x: got %a, wanted %a", ech_dtype_name(halves[t].dtype), (unsigned)b,
                         got, wanted);
        }
}

static void test_every_pattern_comes_back(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (uint32_t b = 0; b < 65536; b++) {
            const float x = halves[t].widen((uint16_t)b);
            const uint16_t back = halves[t].narrow(x);
            if (isnan(x))
                assert_true(isnan(halves[t].widen(back)));
            else if (back != b)
                fail_msg("%s %04x came back as %04x", ech_dtype_name(halves[t].dtype), (unsigned)b,
                         (unsigned)back);
        }
}

/* Between neighbours lo < hi: below the middle goes down, above it up, the middle to even; the next
 * step beyond the largest finite value counts as infinity. */
static void check_gap(const half_type *t, uint16_t lo, uint16_t sign)
{
    const uint16_t hi = (uint16_t)(lo + 1);
    const double a = decode(lo, t->exp_bits);
    const double step =
        a - (lo > 0 ? decode((uint16_t)(lo - 1), t->exp_bits) : -decode(1, t->exp_bits));
    const double b = isinf(decode(hi, t->exp_bits)) ? a + step : decode(hi, t->exp_bits);
    const double middle = (a + b) / 2.0;
    const double near[3] = {middle - (b - a) * 0x1p-40, middle, middle + (b - a) * 0x1p-40};
    const uint16_t wanted[3] = {lo, lo % 2 ? hi : lo, hi};
    for (int i = 0; i < 3; i++) {
        uint16_t got = 0;
        ech_dtype_store(t->dtype, &got, 0, sign ? -near[i] : near[i]);
        if (got != (wanted[i] | sign))
            fail_msg("%s %.20g after %04x: got %04x, wanted %04x", ech_dtype_name(t->dtype),
                     near[i], lo, got, wanted[i] | sign);
    }
    if ((double)(float)middle == middle) /* the same through fp32 where the middle exists there */
        assert_int_equal(t->narrow(sign ? -(float)middle : (float)middle), wanted[1] | sign);
}

static void test_every_gap_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        const uint32_t top = halves[t].exp_bits == 8 ? 0x7f80 : 0x7c00;
        for (uint32_t b = 0; b < top; b++) {
            check_gap(&halves[t], (uint16_t)b, 0);
            check_gap(&halves[t], (uint16_t)b, 0x8000);
        }
    }
}

static void test_narrow_keeps_nan_and_overflows(void **state)
{
    (void)state;
    const uint32_t hidden = 0x7f800001; /* a NaN whose high half looks like infinity */
    float x;
    memcpy(&x, &hidden, sizeof x);
    assert_true(isnan(ech_bf16_to_f32(ech_f32_to_bf16(x))));
    assert_true(isnan(ech_f16_to_f32(ech_f32_to_f16(x))));
    assert_int_equal(ech_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(ech_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(ech_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(ech_f32_to_f16(0x1p-25f), 0x0000);
    assert_int_equal(ech_f32_to_f16(0x1.8p-25f), 0x0001);
    assert_int_equal(ech_f32_to_bf16(3.4028235e38f), 0x7f80);
    assert_int_equal(ech_f32_to_bf16(-0.0f), 0x8000);
}

static void test_names_and_sizes(void **state)
{
    (void)state;
    assert_int_equal(ech_dtype_bytes(ECH_F64), 8);
    assert_int_equal(ech_dtype_bytes(ECH_BF16), 2);
    assert_int_equal(ech_dtype_bytes(ECH_U8), 1);
    assert_string_equal(ech_dtype_name(ECH_F32), "fp32");
    assert_string_equal(ech_dtype_name(ECH_N_DTYPES), "unknown");
    assert_string_equal(ech_dtype_safetensors_name(ECH_F16), "F16");
    assert_string_equal(ech_dtype_safetensors_name(ECH_N_DTYPES), "unknown");
}

static void test_load_reads_what_store_wrote(void **state)
{
    (void)state;
    for (int t = 0; t < ECH_N_DTYPES; t++) {
        uint64_t array[4] = {0};
        for (size_t i = 0; i < 4; i++)
            ech_dtype_store((ech_dtype)t, array, i, (double)(i * 20));
        for (size_t i = 0; i < 4; i++)
            assert_near(ech_dtype_load((ech_dtype)t, array, i), (double)(i * 20), 0.0);
    }
}

static void test_integers_round_and_clamp(void **state)
{
    (void)state;
    static const struct {
        ech_dtype dtype;
        double x;
        double wanted;
    } rows[] = {
        {ECH_I32, 2.5, 2.0},
        {ECH_I32, 3.5, 4.0},
        {ECH_I32, -2.6, -3.0},
        {ECH_I32, 1e30, 2147483647.0},
        {ECH_I32, -1e30, -2147483648.0},
        {ECH_U8, -1.0, 0.0},
        {ECH_U8, 255.4, 255.0},
        {ECH_U8, 300.0, 255.0},
        {ECH_U16, 65535.0, 65535.0},
        {ECH_U16, 1e9, 65535.0},
        {ECH_I64, 1e300, 0x1p63},
        {ECH_I64, -1e300, -0x1p63},
        {ECH_I64, (double)NAN, 0.0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t array = 0;
        ech_dtype_store(rows[i].dtype, &array, 0, rows[i].x);
        assert_near(ech_dtype_load(rows[i].dtype, &array, 0), rows[i].wanted, 0.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern_widens_exactly),
        cmocka_unit_test(test_every_pattern_comes_back),
        cmocka_unit_test(test_every_gap_rounds_to_nearest_even),
        cmocka_unit_test(test_narrow_keeps_nan_and_overflows),
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_load_reads_what_store_wrote),
        cmocka_unit_test(test_integers_round_and_clamp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
