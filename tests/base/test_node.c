/* RUN: np=1 timeout=30 tags=fast */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "base/node.h"
#include "base/text.h"

#include <locale.h>
#include <stdlib.h>

static ech_node *parse_yaml(const char *text)
{
    ech_node *root = NULL;
    assert_ok(ech_node_parse_yaml(text, strlen(text), "t.yaml", &root));
    return root;
}

static ech_node *parse_json(const char *text)
{
    ech_node *root = NULL;
    assert_ok(ech_node_parse_json(text, strlen(text), "t.json", &root));
    return root;
}

static void yaml_refused_bytes(const char *text, size_t bytes, const char *words)
{
    ech_node *root = (ech_node *)(void *)&root;
    const ech_status st = ech_node_parse_yaml(text, bytes, "t.yaml", &root);
    if (st != ECH_E_PARSE || !strstr(ech_error_message(), words))
        fail_msg("'%s': %s '%s', wanted '%s'", text, ech_status_name(st), ech_error_message(),
                 words);
    assert_null(root);
}

static void yaml_refused(const char *text, const char *words)
{
    yaml_refused_bytes(text, strlen(text), words);
}

static void json_refused_bytes(const char *text, size_t bytes, const char *words)
{
    ech_node *root = (ech_node *)(void *)&root;
    const ech_status st = ech_node_parse_json(text, bytes, "t.json", &root);
    if (st != ECH_E_PARSE || !strstr(ech_error_message(), words))
        fail_msg("'%s': %s '%s', wanted '%s'", text, ech_status_name(st), ech_error_message(),
                 words);
    assert_null(root);
}

static void json_refused(const char *text, const char *words)
{
    json_refused_bytes(text, strlen(text), words);
}

static void test_yaml_tree_and_places(void **state)
{
    ech_node *root = parse_yaml("# a comment\n"
                                "model: {preset: gpt2-124m}\n"
                                "data:\n"
                                "  train:\n"
                                "    - a.bin\n"
                                "    - b.bin\n");
    const ech_node *data = ech_node_find(root, "data");
    const ech_node *train = ech_node_find(data, "train");
    (void)state;
    assert_int_equal(root->kind, ECH_NODE_MAP);
    assert_int_equal(root->n, 2);
    assert_string_equal(root->child->key, "model");
    assert_string_equal(ech_node_find(root->child, "preset")->string, "gpt2-124m");
    assert_int_equal(ech_node_find(root->child, "preset")->line, 2);
    assert_int_equal(ech_node_find(root->child, "preset")->column, 9); /* of the key */
    assert_int_equal(data->line, 3);
    assert_int_equal(data->column, 1);
    assert_int_equal(train->kind, ECH_NODE_LIST);
    assert_int_equal(train->n, 2);
    assert_int_equal(train->column, 3);
    assert_null(train->child->key);
    assert_string_equal(train->child->next->string, "b.bin");
    assert_int_equal(train->child->next->line, 6);
    assert_int_equal(train->child->next->column, 7);
    assert_null(train->child->next->next);
    assert_null(ech_node_find(root, "dat"));
    assert_null(ech_node_find(NULL, "data"));
    assert_null(ech_node_find(train, "data"));
    ech_node_destroy(&root);
    assert_null(root);
    ech_node_destroy(&root);
}

/* A list of one scalar: its kind and values. */
static void check_scalar(const char *text, ech_node_kind kind, int64_t integer, double real)
{
    char doc[200];
    (void)snprintf(doc, sizeof doc, "- %s\n", text);
    ech_node *root = parse_yaml(doc);
    const ech_node *x = root->child;
    if (x->kind != kind || x->integer != integer || x->real < real || x->real > real)
        fail_msg("'%s': got %s %lld %.17g, wanted %s %lld %.17g", text, ech_node_kind_name(x->kind),
                 (long long)x->integer, x->real, ech_node_kind_name(kind), (long long)integer,
                 real);
    ech_node_destroy(&root);
}

static void test_yaml_numbers(void **state)
{
    (void)state;
    check_scalar("0", ECH_NODE_INT, 0, 0.0);
    check_scalar("-7", ECH_NODE_INT, -7, -7.0);
    check_scalar("+12", ECH_NODE_INT, 12, 12.0);
    check_scalar("007", ECH_NODE_INT, 7, 7.0); /* 1.2: not octal */
    check_scalar("0o17", ECH_NODE_INT, 15, 15.0);
    check_scalar("0xfF", ECH_NODE_INT, 255, 255.0);
    check_scalar("9223372036854775807", ECH_NODE_INT, INT64_MAX, 0x1p63);
    check_scalar("-9223372036854775808", ECH_NODE_INT, INT64_MIN, -0x1p63);
    check_scalar("1e-5", ECH_NODE_REAL, 0, 1e-5);
    check_scalar("3.0e-4", ECH_NODE_REAL, 0, 3e-4);
    check_scalar("1E6", ECH_NODE_REAL, 0, 1e6);
    check_scalar(".5", ECH_NODE_REAL, 0, 0.5);
    check_scalar("-5.", ECH_NODE_REAL, 0, -5.0);
    check_scalar("1e308", ECH_NODE_REAL, 0, 1e308);
    check_scalar("1e-400", ECH_NODE_REAL, 0, 0.0);
    check_scalar("18446744073709551616.0", ECH_NODE_REAL, 0, 0x1p64);
}

static void test_yaml_words(void **state)
{
    static const char *const strings[] = {
        "yes", "no",   "on",  "off", "y",   "tRue",     "nUll", "1_000",    "0b11", "12:30",
        "1e",  "e5",   ".",   "+",   "-x",  "0x",       "0o8",  "1.2.3",    "--1",  "1-",
        "0xg", "8GiB", "1d5", "NaN", "inf", "Infinity", "'1'",  "\"true\"", "'~'",  "''"};
    (void)state;
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        check_scalar(strings[i], ECH_NODE_STRING, 0, 0.0);
    check_scalar("~", ECH_NODE_NULL, 0, 0.0);
    check_scalar("null", ECH_NODE_NULL, 0, 0.0);
    check_scalar("", ECH_NODE_NULL, 0, 0.0);
    check_scalar("False", ECH_NODE_BOOL, 0, 0.0);
    ech_node *root = parse_yaml("[true, TRUE, false]");
    assert_true(root->child->boolean);
    assert_true(root->child->next->boolean);
    assert_false(root->child->next->next->boolean);
    assert_string_equal(root->child->next->string, "TRUE"); /* the source text is kept */
    ech_node_destroy(&root);
}

static void test_yaml_numbers_out_of_range(void **state)
{
    (void)state;
    yaml_refused("a:\n  b: 9223372036854775808\n", "t.yaml:2:6: the integer 9223372036854775808");
    yaml_refused("- -9223372036854775809", "does not fit 64 bits");
    yaml_refused("- 0x8000000000000000", "does not fit 64 bits");
    yaml_refused("- 99999999999999999999999999999999999999999", "quotes around it");
    yaml_refused("lr: 1e309", "t.yaml:1:5: the number 1e309 is too large");
    yaml_refused("lr: -1e999999999", "too large");
    yaml_refused("x: .inf", "not a finite number");
    yaml_refused("x: -.Inf", "not a finite number");
    yaml_refused("x: .nan", "not a finite number");
}

static void test_yaml_keys_stay_text(void **state)
{
    ech_node *root = parse_yaml("1: a\ntrue: b\n~: c\n'': d\n9223372036854775808: e\n");
    (void)state;
    assert_int_equal(root->n, 5);
    assert_string_equal(ech_node_find(root, "1")->string, "a");
    assert_string_equal(ech_node_find(root, "true")->string, "b");
    assert_string_equal(ech_node_find(root, "~")->string, "c");
    assert_string_equal(ech_node_find(root, "")->string, "d");
    assert_string_equal(ech_node_find(root, "9223372036854775808")->string, "e");
    ech_node_destroy(&root);
}

static void test_yaml_refuses_what_is_not_data(void **state)
{
    (void)state;
    yaml_refused("a: &x 1\nb: *x\n", "t.yaml:1:4: anchors (&x)");
    yaml_refused("a: &x [1]\n", "anchors (&x)");
    yaml_refused("a: &x {b: 1}\n", "anchors (&x)");
    yaml_refused("&k a: 1\n", "anchors (&k)");
    yaml_refused("a: *x\n", "t.yaml:1:4: aliases (*x)");
    yaml_refused("a: !!int '1'\n", "tags (");
    yaml_refused("a: !!python/object {}\n", "tags (");
    yaml_refused("a: ! x\n", "tags (!)");
    yaml_refused("a: 1\n---\nb: 2\n", "t.yaml:2:1: a second document");
    yaml_refused("[1]: 2\n", "a key must be a string, not a list");
    yaml_refused("{a: 1}: 2\n", "a key must be a string, not a map");
    yaml_refused("? \n: 5\n", "a key is missing");
    yaml_refused("\"a\\0b\": 5\n", "must not hold the character NUL");
}

static void test_yaml_duplicate_keys(void **state)
{
    (void)state;
    yaml_refused("a: 1\nb: 2\na: 3\n", "t.yaml:3:1: key 'a' is given twice");
    yaml_refused("x: {p: 1, p: 1}\n", "t.yaml:1:11: key 'p' is given twice");
    yaml_refused("a: 1\n\"a\": 2\n", "t.yaml:2:1: key 'a'");
    ech_text t = {0}; /* many keys are sorted, not compared pairwise */
    for (int i = 0; i < 5000; i++)
        ech_text_add(&t, "k%d: %d\n", (i * 77) % 5000, i);
    ech_node *root = parse_yaml(ech_text_get(&t));
    assert_int_equal(root->n, 5000);
    assert_int_equal(ech_node_find(root, "k77")->integer, 1);
    ech_node_destroy(&root);
    ech_text_add(&t, "k4242: 0\n");
    yaml_refused(ech_text_get(&t), "t.yaml:5001:1: key 'k4242' is given twice");
    ech_text_fini(&t);
}

static void test_yaml_syntax_errors_have_places(void **state)
{
    (void)state;
    yaml_refused("a:\n\tb: 1\n", "t.yaml:2:1: found character that cannot start any token");
    yaml_refused("a: [1, 2\nb: 3\n", "t.yaml:2:");
    yaml_refused("a: 'x\n", "unexpected end of stream");
    yaml_refused("a: b: c\n", "t.yaml:1:5: mapping values are not allowed");
    yaml_refused("a: 1\n b: 2\n", "t.yaml:2:");
    yaml_refused("a: \"\\q\"\n", "unknown escape character");
    yaml_refused_bytes("a: \xff\xfe\n", 6, "t.yaml: byte 3: ");
    yaml_refused_bytes("a: \xc0\xaf\n", 6, "t.yaml: byte 3: ");
    yaml_refused_bytes("a: \0\n", 5, "control characters are not allowed");
    yaml_refused("a: \x1b[31m\n", "control characters are not allowed");
}

static void test_yaml_odd_documents(void **state)
{
    static const char *const empty[] = {"", "\n\n", "# only words\n", "---\n", "---\n...\n"};
    (void)state;
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        ech_node *root = parse_yaml(empty[i]);
        assert_int_equal(root->kind, ECH_NODE_NULL);
        assert_in_range(root->line, 1, 2); /* of the end, or after "---" */
        ech_node_destroy(&root);
    }
    ech_node *root =
        parse_yaml("\xef\xbb\xbf%YAML 1.2\n---\na: 1\r\nb: \"\\0x\\u00e9\"\r\nc: |\n  l\n  m\n");
    assert_int_equal(ech_node_find(root, "a")->integer, 1);
    assert_int_equal(ech_node_find(root, "b")->string_bytes, 4);
    assert_memory_equal(ech_node_find(root, "b")->string, "\0x\xc3\xa9", 5);
    assert_string_equal(ech_node_find(root, "c")->string, "l\nm\n");
    ech_node_destroy(&root);
    root = parse_yaml("{\"a\": [1, -2.5e3, true, null, \"s\\n\\/\"], \"b\": {}}"); /* JSON */
    assert_int_equal(root->child->n, 5);
    assert_true(root->child->child->next->real < -2499.5);
    assert_int_equal(root->child->child->next->next->next->kind, ECH_NODE_NULL);
    assert_string_equal(root->child->child->next->next->next->next->string, "s\n/");
    assert_int_equal(ech_node_find(root, "b")->n, 0);
    ech_node_destroy(&root);
}

static void repeat(ech_text *t, const char *s, int n)
{
    for (int i = 0; i < n; i++)
        ech_text_add(t, "%s", s);
}

static void check_depth(int depth, bool is_json, bool is_legal)
{
    ech_text t = {0};
    ech_node *root;
    repeat(&t, "[", depth);
    repeat(&t, "]", depth);
    const ech_status st = is_json ? ech_node_parse_json(t.data, t.bytes, "deep", &root)
                                  : ech_node_parse_yaml(t.data, t.bytes, "deep", &root);
    assert_int_equal(st, is_legal ? ECH_OK : ECH_E_PARSE);
    if (!is_legal)
        assert_non_null(strstr(ech_error_message(), "deep:1:65: lists and maps nested deeper"));
    ech_node_destroy(&root);
    ech_text_fini(&t);
}

static void test_depth_is_capped(void **state)
{
    (void)state;
    for (int is_json = 0; is_json < 2; is_json++) {
        check_depth(ECH_NODE_MAX_DEPTH, is_json, true);
        check_depth(ECH_NODE_MAX_DEPTH + 1, is_json, false);
        check_depth(100000, is_json, false);
    }
    ech_text t = {0};
    repeat(&t, "{a: ", 100000);
    yaml_refused(ech_text_get(&t), "nested deeper than 64");
    ech_text_fini(&t);
    repeat(&t, "- ", 100000);
    yaml_refused(ech_text_get(&t), "nested deeper than 64");
    ech_text_fini(&t);
    repeat(&t, "{\"a\":", 100000);
    json_refused(ech_text_get(&t), "nested deeper than 64");
    ech_text_fini(&t);
    json_refused_bytes("\"\\\"[[\", [", 9, ""); /* brackets in strings do not count */
}

static void test_json_tree(void **state)
{
    ech_node *root = parse_json(" {\"a\": [1, -2.5, 1e3, true, false, null], \"b\": {\"c\": "
                                "\"\\u00e9\\ud83d\\ude00\\u0000x\"}, \"\": 0} ");
    const ech_node *a = ech_node_find(root, "a")->child;
    const ech_node *c = ech_node_find(ech_node_find(root, "b"), "c");
    (void)state;
    assert_int_equal(root->n, 3);
    assert_int_equal(root->line, 0);
    assert_string_equal(root->child->key, "a"); /* order is kept */
    assert_string_equal(root->child->next->key, "b");
    assert_int_equal(a->kind, ECH_NODE_INT);
    assert_int_equal(a->integer, 1);
    assert_near(a->real, 1.0, 0.0);
    assert_near(a->next->real, -2.5, 0.0);
    assert_int_equal(a->next->next->kind, ECH_NODE_REAL);
    assert_true(a->next->next->next->boolean);
    assert_int_equal(a->next->next->next->next->kind, ECH_NODE_BOOL);
    assert_false(a->next->next->next->next->boolean);
    assert_int_equal(a->next->next->next->next->next->kind, ECH_NODE_NULL);
    assert_int_equal(c->string_bytes, 8);
    assert_memory_equal(c->string, "\xc3\xa9\xf0\x9f\x98\x80\0x", 9);
    assert_non_null(ech_node_find(root, ""));
    ech_node_destroy(&root);
    root = parse_json("-9223372036854775808");
    assert_true(root->integer == INT64_MIN);
    ech_node_destroy(&root);
}

static void test_json_refusals(void **state)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[1,",
                                      "{\"a\"",
                                      "{\"a\":}",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "[1] 2",
                                      "[1]]",
                                      "{} {}",
                                      "nul",
                                      "True",
                                      "'a'",
                                      "+1",
                                      "01",
                                      "1.",
                                      ".5",
                                      "1e",
                                      "0x10",
                                      "NaN",
                                      "Infinity",
                                      "-",
                                      "[1 2]",
                                      "{a: 1}",
                                      "{1: 2}",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00x\"",
                                      "\"a",
                                      "[\"\t\"]",
                                      "// c\n1",
                                      "\xef\xbb\xbf{}",
                                      "1e309",
                                      "-1e309"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        json_refused(bad[i], "t.json:");
    json_refused("{\"a\": 1,\n\"a\": 2}", "t.json:2:");
    json_refused("{\"a\": 1,\n\"a\": 2}", "duplicate");
    json_refused("9223372036854775808", "too big integer");
    json_refused("{\"a\\u0000b\": 1}", "t.json:");
    json_refused_bytes("\"\xff\"", 3, "unable to decode byte 0xff");
    json_refused_bytes("\"\xc0\xaf\"", 4, "unable to decode byte 0xc0");
    json_refused_bytes("\"\xed\xa0\x80\"", 5, "unable to decode byte 0xed");
    json_refused_bytes("[1]\0", 4, "t.json:");
    json_refused_bytes("\"\0\"", 3, "t.json:");
}

static void test_json_truncated_anywhere(void **state)
{
    static const char whole[] = "{\"a\":[1,2.5,\"x\\n\",true,null,{\"b\":{}}]}";
    (void)state;
    for (size_t n = 0; n + 1 < sizeof whole; n++) {
        char *cut = malloc(n + 1); /* at its exact size, so that the sanitizer sees an overrun */
        ech_node *root;
        assert_non_null(cut);
        memcpy(cut, whole, n);
        assert_int_equal(ech_node_parse_json(cut, n, "cut", &root), ECH_E_PARSE);
        assert_null(root);
        const ech_status st = ech_node_parse_yaml(cut, n, "cut", &root);
        assert_true(n == 0 ? st == ECH_OK : st == ECH_E_PARSE);
        ech_node_destroy(&root);
        free(cut);
    }
}

static void test_the_number_of_values_is_capped(void **state)
{
    const size_t bytes = 2 * (size_t)ECH_NODE_MAX_NODES + 2;
    char *text = malloc(bytes);
    ech_node *root;
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i += 2)
        memcpy(text + i, i == 0 ? "[0" : ",0", 2);
    text[bytes - 1] = ']';
    assert_fails(ech_node_parse_json(text, bytes, "wide", &root), ECH_E_PARSE,
                 "wide: more than 10000000 values");
    free(text);
}

static void test_read_file(void **state)
{
    ech_node *root;
    assert_ok(ech_write_whole(in_folder(state, "c.yaml"), "a: 1\n", 5));
    assert_ok(ech_node_read_file(in_folder(state, "c.yaml"), false, &root));
    assert_int_equal(ech_node_find(root, "a")->integer, 1);
    ech_node_destroy(&root);
    assert_fails(ech_node_read_file(in_folder(state, "c.yaml"), true, &root), ECH_E_PARSE,
                 "c.yaml:1:");
    assert_null(root);
    assert_fails(ech_node_read_file(in_folder(state, "no.yaml"), false, &root), ECH_E_IO,
                 "No such file");
    assert_null(root);
}

/* A host program may have set a locale with a decimal comma. */
static void test_numbers_ignore_the_locale(void **state)
{
    const char *names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    const char *set = NULL;
    ech_text t = {0};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !set; i++)
        set = setlocale(LC_ALL, names[i]);
    check_scalar("0.5", ECH_NODE_REAL, 0, 0.5);
    ech_node *root = parse_json("[0.5]");
    assert_near(root->child->real, 0.5, 0.0);
    ech_node_destroy(&root);
    ech_text_add_double(&t, 0.5);
    assert_string_equal(ech_text_get(&t), "0.5");
    ech_text_fini(&t);
    if (set)
        assert_non_null(setlocale(LC_ALL, "C"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_yaml_tree_and_places),
        cmocka_unit_test(test_yaml_numbers),
        cmocka_unit_test(test_yaml_words),
        cmocka_unit_test(test_yaml_numbers_out_of_range),
        cmocka_unit_test(test_yaml_keys_stay_text),
        cmocka_unit_test(test_yaml_refuses_what_is_not_data),
        cmocka_unit_test(test_yaml_duplicate_keys),
        cmocka_unit_test(test_yaml_syntax_errors_have_places),
        cmocka_unit_test(test_yaml_odd_documents),
        cmocka_unit_test(test_depth_is_capped),
        cmocka_unit_test(test_json_tree),
        cmocka_unit_test(test_json_refusals),
        cmocka_unit_test(test_json_truncated_anywhere),
        cmocka_unit_test(test_the_number_of_values_is_capped),
        cmocka_unit_test_setup_teardown(test_read_file, folder_setup, folder_teardown),
        cmocka_unit_test(test_numbers_ignore_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
