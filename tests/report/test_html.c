/* RUN: np=1 timeout=10 tags=fast */
#include "check.h"

#include "report/html.h"

#include <math.h>

#define THIN "\xe2\x80\xaf"
#define HARD "\xc2\xa0"
#define LOST "\xef\xbf\xbd"

static void is(ech_text *got, const char *want)
{
    assert_string_equal(ech_text_get(got), want);
    ech_text_fini(got);
}

static void escaped(const char *words, const char *want)
{
    ech_text t = {0};
    ech_html_text(&t, words);
    is(&t, want);
}

static void test_words_stay_words(void **state)
{
    (void)state;
    escaped("plain", "plain");
    escaped("<img src=\"x\" onerror='a()'>&amp;",
            "&lt;img src=&quot;x&quot; onerror=&#39;a()&#39;&gt;&amp;amp;");
    escaped("caf\xc3\xa9 \xe2\x82\xac", "caf\xc3\xa9 \xe2\x82\xac");
    escaped("\xff\xc3(\x01\x7f\n", LOST LOST "(" LOST LOST "\n");
    ech_text t = {0};
    ech_html_bytes(&t, "a\0<b", 4);
    is(&t, "a" LOST "&lt;b");
}

/* A name must not turn what stands behind it, nor hide in it. */
static void test_writing_is_not_turned(void **state)
{
    (void)state;
    escaped("a\xe2\x80\xae"
            "b\xe2\x80\x8f"
            "c\xe2\x81\xa6"
            "d\xd8\x9c"
            "e",
            "a" LOST "b" LOST "c" LOST "d" LOST "e");
    escaped("\xc2\x85\xc2\x9f\xc2\xa0", LOST LOST "\xc2\xa0");
    escaped("\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d");
    escaped("\xf0\x9f\x99\x82", "\xf0\x9f\x99\x82");
}

static void span(double s, const char *want)
{
    ech_text t = {0};
    ech_html_span(&t, s);
    is(&t, want);
}

static void test_spans(void **state)
{
    (void)state;
    span(119.0, "119" HARD "s");
    span(120.0, "2" HARD "min");
    span(7200.0, "2" HARD "h");
    span(172800.0, "2" HARD "days");
    span(-864000.0, "-10" HARD "days");
    span(0.0, "0");
}

static void number(double x, int digits, const char *want)
{
    ech_text t = {0};
    ech_html_number(&t, x, digits);
    is(&t, want);
}

static void test_numbers(void **state)
{
    (void)state;
    number(0, 3, "0");
    number(25.6123, 4, "25.61");
    number(0.0012345, 3, "0.00123");
    number(-7.25, 2, "-7.3");
    number(9999, 4, "9999");
    number(16384, 12, "16" THIN "384");
    number(3195845, 12, "3" THIN "195" THIN "845");
    number(-12345.6, 9, "-12" THIN "345.6");
    number(99.96, 3, "100");
    number(NAN, 3, "\xe2\x80\x93");
    number(INFINITY, 3, "\xe2\x80\x93");
}

static void test_units(void **state)
{
    (void)state;
    ech_text t = {0};
    ech_html_seconds(&t, 25.6123);
    is(&t, "25.61" HARD "s");
    ech_html_seconds(&t, 0.0123456);
    is(&t, "12.35" HARD "ms");
    ech_html_seconds(&t, 0);
    is(&t, "0");
    ech_html_gib(&t, 79.0 * 1073741824.0);
    is(&t, "79.0" HARD "GiB");
    ech_html_gib(&t, 0.5 * 1073741824.0);
    is(&t, "0.5" HARD "GiB");
    ech_html_percent(&t, 0.57519);
    is(&t, "57.5" HARD "%");
    ech_html_percent(&t, 0.0004);
    is(&t, "&lt;"
           "\xe2\x80\x89"
           "0.1" HARD "%");
    ech_html_count(&t, 15.6e12);
    is(&t, "15.6" HARD "trillion");
    ech_html_count(&t, 300e9);
    is(&t, "300" HARD "billion");
    ech_html_count(&t, 512);
    is(&t, "512");
    ech_html_place(&t, 12.3456);
    is(&t, "12.35");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_stay_words),
        cmocka_unit_test(test_writing_is_not_turned),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
