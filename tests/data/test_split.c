/* RUN: np=1 timeout=20 tags=fast */
/* Pre-tokens: GPT-2's pattern on ASCII and beyond, several steps, bytes that are no text, and
 * patterns that never end. */
#include "check.h"

#include "base/text.h"
#include "data/split.h"

#include <stdlib.h>

static ech_status add_piece(void *user, const char *piece, size_t bytes)
{
    ech_text *out = user;
    ech_text_add(out, out->bytes ? "|" : "");
    ech_text_add_bytes(out, piece, bytes);
    return ECH_OK;
}

static void check_split(const ech_split_step *steps, size_t n, const char *text, const char *wanted)
{
    ech_splitter *s = NULL;
    ech_text out = {0};

    assert_ok(ech_splitter_create(steps, n, &s));
    assert_ok(ech_splitter_run(s, text, strlen(text), add_piece, &out));
    if (strcmp(ech_text_get(&out), wanted) != 0)
        fail_msg("'%s' was cut into '%s', wanted '%s'", text, ech_text_get(&out), wanted);
    ech_text_fini(&out);
    ech_splitter_destroy(&s);
}

static void gpt2s_pattern_is_followed(void **state)
{
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        {"", ""},
        {"It's  two words.", "It|'s| | two| words|."},
        {"a\n\nb", "a|\n|\n|b"},
        {"a \n ", "a| \n "},
        {"x1y22", "x|1|y|22"},
        {"we'LL we'll", "we|'|LL| we|'ll"},
        {"\u00e9t\u00e9 \u4e2d\u6587!", "\u00e9t\u00e9| \u4e2d\u6587|!"},
        /* White space in Unicode's sense: U+0085, U+3000 and U+2028 are, U+180E is not. */
        {"!\u3000!", "!|\u3000|!"},
        {"!\u2028!", "!|\u2028|!"},
        {"!\xC2\x85!", "!|\xC2\x85|!"},
        {"!\u180e!", "!\u180e!"},
        /* What is no UTF-8 is a piece of its own. */
        {"ab\xFF\xFE"
         "cd",
         "ab|\xFF\xFE|cd"},
        {"\xE4\xB8", "\xE4\xB8"},
        {"a\xED\xA0\x80z", "a|\xED\xA0\x80|z"},
        {"a\xC0\x80z", "a|\xC0\x80|z"},
    };
    const ech_split_step step = {.pattern = ech_split_gpt2};
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_split(&step, 1, cases[i].text, cases[i].wanted);
}

static void steps_cut_one_after_another(void **state)
{
    const ech_split_step steps[] = {{.pattern = "\\p{N}"}, {.pattern = "b", .is_literal = true}};
    const ech_split_step literal = {.pattern = "a+", .is_literal = true};
    const ech_split_step dropped = {.pattern = "[a-z]+", .drops_gaps = true};
    const ech_split_step empty = {.pattern = "a*"};
    (void)state;

    check_split(steps, 2, "ab12b", "a|b|1|2|b");
    check_split(steps, 0, "a b", "a b");
    check_split(&literal, 1, "xa+aa", "x|a+|aa");
    check_split(&dropped, 1, "12ab  cd!", "ab|cd");
    check_split(&empty, 1, "xaay\u4e2d", "x|aa|y\u4e2d");
}

static void hostile_patterns_are_refused(void **state)
{
    const ech_split_step broken = {.pattern = "a("};
    const ech_split_step bytes = {.pattern = "\\C"};
    const ech_split_step slow = {.pattern = "(a|a)*[bc]"};
    ech_splitter *s = NULL;
    ech_text out = {0};
    char text[2000];
    (void)state;

    assert_fails(ech_splitter_create(&broken, 1, &s), ECH_E_DATA, "'a(' is wrong at byte 2");
    assert_fails(ech_splitter_create(&bytes, 1, &s), ECH_E_DATA, "is wrong");
    assert_null(s);
    memset(text, 'a', sizeof text);
    assert_ok(ech_splitter_create(&slow, 1, &s));
    assert_fails(ech_splitter_run(s, text, sizeof text, add_piece, &out), ECH_E_DATA,
                 "splitting into pre-tokens failed");
    ech_splitter_destroy(&s);
    ech_text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2s_pattern_is_followed),
        cmocka_unit_test(steps_cut_one_after_another),
        cmocka_unit_test(hostile_patterns_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
