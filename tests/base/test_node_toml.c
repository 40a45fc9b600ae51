/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"
#include "node_print.h"

#include "base/node.h"
#include "base/text.h"

#include <stdlib.h>

/* The same tree as that JSON. */
static void means(const char *toml, const char *json)
{
    ech_node *got = NULL;
    ech_node *want = NULL;
    ech_text text = {0};
    assert_ok(ech_node_parse_toml(toml, strlen(toml), "t.toml", &got));
    assert_ok(ech_node_parse_json(json, strlen(json), "t.json", &want));
    if (!node_is_equal(got, want)) {
        node_print(&text, got);
        fail_msg("'%s' is %s, wanted %s", toml, ech_text_get(&text), json);
    }
    ech_text_fini(&text);
    ech_node_destroy(&got);
    ech_node_destroy(&want);
}

static void refused(const char *toml, const char *words)
{
    ech_node *root = (ech_node *)(void *)&root;
    const ech_status st = ech_node_parse_toml(toml, strlen(toml), "t.toml", &root);
    if (st != ECH_E_PARSE || !strstr(ech_error_message(), words) ||
        strncmp(ech_error_message(), "t.toml:", 7) != 0)
        fail_msg("'%s': %s '%s', wanted '%s'", toml, ech_status_name(st), ech_error_message(),
                 words);
    assert_null(root);
}

static void test_values(void **state)
{
    (void)state;
    means("", "{}");
    means("\xef\xbb\xbf# only a comment\r\n", "{}");
    means("a = 1\nb=-17\nc = +5\nd = 1_000_000\ne = 0xDEAD_beef\nf = 0o755\ng = 0b1101\nh = 0",
          "{\"a\":1,\"b\":-17,\"c\":5,\"d\":1000000,\"e\":3735928559,\"f\":493,\"g\":13,\"h\":0}");
    means("a = 1.5\nb = -2e-3\nc = 6.02_2E+23\nd = 0.0",
          "{\"a\":1.5,\"b\":-0.002,\"c\":6.022e23,\"d\":0.0}");
    means("a = true\nb = false", "{\"a\":true,\"b\":false}");
    means("a = 1979-05-27T07:32:00Z\nb = 07:32:00\nc = 1979-05-27 07:32:00 # day\nd = 1979-05-27 ",
          "{\"a\":\"1979-05-27T07:32:00Z\",\"b\":\"07:32:00\",\"c\":\"1979-05-27 07:32:00\","
          "\"d\":\"1979-05-27\"}");
    means("a = [ 1, [2, 3], # inner\n \"x\", ]\nb = []", "{\"a\":[1,[2,3],\"x\"],\"b\":[]}");
    means("a = {x = 1, y.z = \"w\"}\nb = {}", "{\"a\":{\"x\":1,\"y\":{\"z\":\"w\"}},\"b\":{}}");
}

static void test_strings(void **state)
{
    (void)state;
    means("a = \"b\\t\\\"c\\\" \\u00e9 \\U0001F600\"",
          "{\"a\":\"b\\t\\\"c\\\" \u00e9 \U0001F600\"}");
    means("a = 'C:\\new'\nb = ''", "{\"a\":\"C:\\\\new\",\"b\":\"\"}");
    means("a = \"\"\"\none \\\n   two\r\n\"\"x\"\"\"\"\"",
          "{\"a\":\"one two\\n\\\"\\\"x\\\"\\\"\"}");
    means("a = '''\n'it''s\\'''", "{\"a\":\"'it''s\\\\\"}");
    refused("a = \"x\nb = 1", "ends with its line");
    refused("a = \"\"\"x", "not closed");
    refused("a = \"\\q\"", "no such escape");
    refused("a = \"\\ud800\"", "no character");
    refused("a = \"\\u00\"", "4 hexadecimal digits");
    refused("a = \"\xff\"", "UTF-8");
    refused("a = \"\x01\"", "control character");
}

static void test_tables(void **state)
{
    (void)state;
    means("x = 1\n[a.b]\nc = 2\n[a]\nd = 3\n[a.b.e]\n", "{\"x\":1,\"a\":{\"b\":{\"c\":2,\"e\":{}},"
                                                        "\"d\":3}}");
    means("a.b.c = 1\na.b.d = 2\na . \"e f\" = 3", "{\"a\":{\"b\":{\"c\":1,\"d\":2},\"e f\":3}}");
    means("[[f]]\nn = 1\n[f.t]\nu = 2\n[[f]]\nn = 3\n[[f.v]]\n[[f.v]]\nw = 4",
          "{\"f\":[{\"n\":1,\"t\":{\"u\":2}},{\"n\":3,\"v\":[{},{\"w\":4}]}]}");
    means("[\"a.b\".'c']\nd = 1", "{\"a.b\":{\"c\":{\"d\":1}}}");
}

static void test_what_is_defined_stays_so(void **state)
{
    (void)state;
    refused("a = 1\na = 2", "t.toml:2:3: key 'a' is given twice");
    refused("[a]\n[a]", "table 'a' is defined already (line 1)");
    refused("a.b = 1\n[a]", "defined already");
    refused("[a]\nb = 1\n[a.b]", "defined already");
    refused("[a.b]\n[a]\nb.c = 1", "defined already");
    refused("a = {b = 1}\na.c = 2", "nothing can be added");
    refused("a = {b = 1}\n[a.c]", "nothing can be added");
    refused("a = []\n[[a]]", "no list of tables");
    refused("[[a]]\n[a]", "defined already");
    refused("a = 1\na.b = 2", "nothing can be added");
}

static void test_syntax_errors_have_places(void **state)
{
    (void)state;
    refused("a", "t.toml:1:2: '=' is missing");
    refused("a =", "a value is missing");
    refused("a = 1 b = 2", "t.toml:1:7: a line has one key");
    refused("\n  = 1", "t.toml:2:3: a key is missing");
    refused("[a", "']' is missing");
    refused("[[a]", "']]' is missing");
    refused("a = [1", "goes on with ','");
    refused("a = [1 2]", "goes on with ','");
    refused("a = {b = 1,\n c = 2}", "a key is missing");
    refused("a = {b = 1,}", "a key is missing");
    refused("a = yes", "'yes' is no value");
    refused("a = 01", "no value");
    refused("a = 1__0", "no value");
    refused("a = _1", "no value");
    refused("a = 1.", "no value");
    refused("a = .5", "no value");
    refused("a = 0x", "no value");
    refused("a = 0b2", "no value");
    refused("a = inf", "no value");
    refused("a = 99999999999999999999", "64 bits");
    refused("# \x01", "control character");
}

static void test_caps(void **state)
{
    (void)state;
    ech_text deep = {0};
    ech_text wide = {0};
    ech_node *root;
    ech_text_add(&deep, "a = ");
    for (int i = 0; i < 1000; i++)
        ech_text_add(&deep, "[");
    refused(ech_text_get(&deep), "nested deeper than 64");
    for (int i = 0; i < 4097; i++)
        ech_text_add(&wide, "k%d = 1\n", i);
    refused(ech_text_get(&wide), "more than 4096 keys");
    ech_text_fini(&wide);
    ech_text_fini(&deep);
    /* Cut off anywhere: refused or read, never a crash. */
    static const char all[] = "a = \"\\u00e9\" # c\n[b.\"c\"]\nd = {e = [1, 2.5], f = '''x'''}\n"
                              "[[g]]\nh = 1979-05-27 07:32:00\n";
    for (size_t n = 0; n < sizeof all; n++) {
        char *cut = malloc(n + 1);
        assert_non_null(cut);
        memcpy(cut, all, n);
        if (ech_node_parse_toml(cut, n, "cut", &root) == ECH_OK)
            ech_node_destroy(&root);
        free(cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_what_is_defined_stays_so),
        cmocka_unit_test(test_syntax_errors_have_places),
        cmocka_unit_test(test_caps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
