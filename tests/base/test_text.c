/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "base/rng.h"
#include "base/text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

static void test_add_grows(void **state)
{
    ech_text t = {0};
    (void)state;
    assert_string_equal(ech_text_get(&t), "");
    for (int i = 0; i < 1000; i++)
        ech_text_add(&t, "%d,", i % 10);
    assert_int_equal(t.bytes, 2000);
    assert_int_equal(strlen(t.data), 2000);
    assert_memory_equal(t.data + 1990, "5,6,7,8,9,", 11);
    ech_text_add_bytes(&t, "a\0b", 3);
    assert_int_equal(t.bytes, 2003);
    assert_memory_equal(t.data + 2000, "a\0b", 4);
    ech_text_add_bytes(&t, NULL, 0);
    assert_int_equal(t.bytes, 2003);
    assert_false(t.failed);
    ech_text_fini(&t);
    assert_null(t.data);
}

static void test_lack_of_memory_sets_failed(void **state)
{
    ech_text t = {0};
    (void)state;
    ech_text_add(&t, "kept");
    ech_text_add_bytes(&t, "", SIZE_MAX / 2);
    assert_true(t.failed);
    ech_text_add(&t, "dropped");
    assert_string_equal(ech_text_get(&t), "kept");
    ech_text_fini(&t);
}

static void check_json(const char *s, size_t bytes, const char *wanted)
{
    ech_text t = {0};
    ech_text_add_json_string(&t, s, bytes);
    assert_string_equal(ech_text_get(&t), wanted);
    ech_text_fini(&t);
}

#define CHECK_JSON(s, wanted) check_json((s), sizeof(s) - 1, (wanted))

static void test_json_strings(void **state)
{
    (void)state;
    CHECK_JSON("", "\"\"");
    CHECK_JSON("a\"b\\c/", "\"a\\\"b\\\\c/\"");
    CHECK_JSON("\n\r\t\b\f", "\"\\n\\r\\t\\b\\f\"");
    CHECK_JSON("\0\x1b[31m\x7f", "\"\\u0000\\u001b[31m\\u007f\"");
    CHECK_JSON("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    CHECK_JSON("\xff", "\"\xef\xbf\xbd\"");
    CHECK_JSON("a\xe2\x82", "\"a\xef\xbf\xbd\xef\xbf\xbd\"");               /* cut short */
    CHECK_JSON("\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* overlong '/' */
    CHECK_JSON("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* surrogate */
}

static void test_utf8_step_edges(void **state)
{
    (void)state;
    assert_int_equal(ech_utf8_step("", 0), 0);
    assert_int_equal(ech_utf8_step("\0", 1), 1);
    assert_int_equal(ech_utf8_step("\x7f", 1), 1);
    assert_int_equal(ech_utf8_step("\x80", 1), 0);
    assert_int_equal(ech_utf8_step("\xc1\xbf", 2), 0);
    assert_int_equal(ech_utf8_step("\xc2\x80", 2), 2);
    assert_int_equal(ech_utf8_step("\xdf\xbf", 2), 2);
    assert_int_equal(ech_utf8_step("\xe0\x9f\xbf", 3), 0);
    assert_int_equal(ech_utf8_step("\xe0\xa0\x80", 3), 3);
    assert_int_equal(ech_utf8_step("\xed\x9f\xbf", 3), 3);
    assert_int_equal(ech_utf8_step("\xed\xa0\x80", 3), 0);
    assert_int_equal(ech_utf8_step("\xef\xbf\xbf", 3), 3);
    assert_int_equal(ech_utf8_step("\xf0\x8f\xbf\xbf", 4), 0);
    assert_int_equal(ech_utf8_step("\xf0\x90\x80\x80", 4), 4);
    assert_int_equal(ech_utf8_step("\xf4\x8f\xbf\xbf", 4), 4);
    assert_int_equal(ech_utf8_step("\xf4\x90\x80\x80", 4), 0);
    assert_int_equal(ech_utf8_step("\xf5\x80\x80\x80", 4), 0);
    assert_int_equal(ech_utf8_step("\xf0\x90\x80", 3), 0);
}

static void check_double(double x, const char *wanted)
{
    ech_text t = {0};
    ech_text_add_double(&t, x);
    assert_string_equal(ech_text_get(&t), wanted);
    ech_text_fini(&t);
}

static void test_doubles_are_short(void **state)
{
    (void)state;
    check_double(0.0, "0");
    check_double(-0.0, "-0");
    check_double(0.1, "0.1");
    check_double(0.3, "0.3");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(1.0 / 3.0, "0.3333333333333333");
    check_double(3e-4, "0.0003");
    check_double(1e-5, "1e-05");
    check_double(1e22, "1e+22");
    check_double(123456789012345678.0, "1.2345678901234568e+17");
    check_double(5e-324, "5e-324");
    check_double(DBL_MAX, "1.7976931348623157e+308");
    check_double(DBL_MIN, "2.2250738585072014e-308");
    check_double((double)NAN, "null");
    check_double((double)INFINITY, "null");
    check_double(-(double)INFINITY, "null");
}

static void test_doubles_read_back(void **state)
{
    const ech_rng_key key = ech_rng_key_make(1, ECH_RNG_TEST, 0, 0);
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        const uint64_t bits =
            ((uint64_t)ech_rng_u32(&key, 2 * i) << 32) | ech_rng_u32(&key, 2 * i + 1);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        ech_text t = {0};
        ech_text_add_double(&t, x);
        const double back = strtod(ech_text_get(&t), NULL);
        if (memcmp(&back, &x, sizeof x) != 0)
            fail_msg("%a reads back from %s as %a", x, ech_text_get(&t), back);
        ech_text_fini(&t);
    }
}

static void test_suffixes(void **state)
{
    (void)state;
    assert_true(ech_has_suffix("a/model.bin", ".bin"));
    assert_true(ech_has_suffix(".bin", ".bin"));
    assert_true(ech_has_suffix("a", ""));
    assert_false(ech_has_suffix("model.bin.idx", ".bin"));
    assert_false(ech_has_suffix("bin", ".bin"));
    assert_false(ech_has_suffix("", ".bin"));
}

static void test_nearest_names(void **state)
{
    static const char *const names[] = {"train", "data", "batch", "layout", "precision", "optim"};
    const size_t n = sizeof names / sizeof names[0];
    (void)state;
    assert_string_equal(ech_nearest_name("train", names, n), "train");
    assert_string_equal(ech_nearest_name("trian", names, n), "train"); /* swapped */
    assert_string_equal(ech_nearest_name("bacth", names, n), "batch");
    assert_string_equal(ech_nearest_name("presicion", names, n), "precision");
    assert_string_equal(ech_nearest_name("layouts", names, n), "layout");
    assert_string_equal(ech_nearest_name("dat", names, n), "data");
    assert_null(ech_nearest_name("checkpoint", names, n));
    assert_null(ech_nearest_name("xy", names, n));
    assert_null(ech_nearest_name("train", names, 0));
    char endless[1000];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(ech_nearest_name(endless, names, n));
}

static void test_findings_come_together(void **state)
{
    ech_findings f = {0};
    (void)state;
    assert_ok(ech_findings_raise(&f, ECH_E_CONFIG));
    ech_findings_add(&f, "a.yaml:1:2: %s", "one");
    ech_findings_add(&f, "a.yaml:%d:2: two", 7);
    assert_int_equal(f.n, 2);
    assert_fails(ech_findings_raise(&f, ECH_E_CONFIG), ECH_E_CONFIG, "");
    assert_string_equal(ech_error_message(), "a.yaml:1:2: one\na.yaml:7:2: two");
    ech_findings_fini(&f);
    assert_int_equal(f.n, 0);
}

static void test_too_many_findings_are_counted(void **state)
{
    ech_findings f = {0};
    (void)state;
    for (int i = 0; i < 500; i++)
        ech_findings_add(&f, "finding number %d", i);
    assert_fails(ech_findings_raise(&f, ECH_E_ILLEGAL), ECH_E_ILLEGAL, "500 findings in all");
    assert_non_null(strstr(ech_error_message(), "finding number 100\n"));
    ech_findings_fini(&f);
}

static void check_bytes(const char *s, int64_t wanted)
{
    int64_t got = -1;
    assert_ok(ech_parse_bytes(s, &got));
    if (got != wanted)
        fail_msg("'%s': got %lld, wanted %lld", s, (long long)got, (long long)wanted);
}

static void test_byte_sizes(void **state)
{
    (void)state;
    check_bytes("0", 0);
    check_bytes("4096", 4096);
    check_bytes("17 B", 17);
    check_bytes("8GiB", (int64_t)8 << 30);
    check_bytes("500MB", 500000000);
    check_bytes("1.5 GB", 1500000000);
    check_bytes("1.1GB", 1100000000);
    check_bytes("0.7PB", 700000000000000);
    check_bytes("2.5KiB", 2560);
    check_bytes("1kB", 1000);
    check_bytes("8191PiB", (int64_t)8191 << 50);
}

static void test_bad_byte_sizes(void **state)
{
    static const char *const bad[] = {"",
                                      "GiB",
                                      "-1",
                                      "+1",
                                      "8G",
                                      "8 gib",
                                      "1e9",
                                      "1.5",
                                      "1.5B",
                                      "1..5G",
                                      ".5GiB",
                                      "5.GiB",
                                      "0x10",
                                      "8GiBx",
                                      "8 GiB ",
                                      " 8",
                                      "inf",
                                      "8192PiB",
                                      "9999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t got = 77;
        assert_fails(ech_parse_bytes(bad[i], &got), ECH_E_PARSE, bad[i]);
        assert_int_equal(got, 77);
    }
}

static void test_sizes_for_people(void **state)
{
    char buf[32];
    (void)state;
    assert_string_equal(ech_format_bytes(0.0, buf, sizeof buf), "0 B");
    assert_string_equal(ech_format_bytes(1023.0, buf, sizeof buf), "1023 B");
    assert_string_equal(ech_format_bytes(1024.0, buf, sizeof buf), "1.00 KiB");
    assert_string_equal(ech_format_bytes(1.5 * 1073741824.0, buf, sizeof buf), "1.50 GiB");
    assert_string_equal(ech_format_bytes(1048575.0, buf, sizeof buf), "1.00 MiB");
    assert_string_equal(ech_format_bytes(-2048.0, buf, sizeof buf), "-2.00 KiB");
    assert_string_equal(ech_format_bytes(0x1p63, buf, sizeof buf), "8192.00 PiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_grows),
        cmocka_unit_test(test_lack_of_memory_sets_failed),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_utf8_step_edges),
        cmocka_unit_test(test_doubles_are_short),
        cmocka_unit_test(test_doubles_read_back),
        cmocka_unit_test(test_suffixes),
        cmocka_unit_test(test_nearest_names),
        cmocka_unit_test(test_findings_come_together),
        cmocka_unit_test(test_too_many_findings_are_counted),
        cmocka_unit_test(test_byte_sizes),
        cmocka_unit_test(test_bad_byte_sizes),
        cmocka_unit_test(test_sizes_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
