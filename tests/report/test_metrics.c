/* RUN: np=1 timeout=20 tags=fast */
/* Documents, the stream of events and the run record, read back. */
#include "check.h"
#include "folder.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/node.h"
#include "base/text.h"
#include "report/metrics.h"
#include "report/run_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_document(void **state)
{
    (void)state;
    ech_jout j = {0};
    ech_jout_open(&j, NULL, '{');
    ech_jout_int(&j, "int", INT64_MIN);
    ech_jout_real(&j, "tenth", 0.1);
    ech_jout_real(&j, "none", NAN);
    ech_jout_real(&j, "far", INFINITY);
    ech_jout_string(&j, "text", "a \"b\"\n");
    ech_jout_string(&j, "absent", NULL);
    ech_jout_bool(&j, "yes", true);
    ech_jout_open(&j, "list", '[');
    ech_jout_open(&j, NULL, '{');
    ech_jout_close(&j);
    ech_jout_int(&j, NULL, 2);
    ech_jout_null(&j, NULL);
    ech_jout_raw(&j, NULL, "[3]");
    ech_jout_close(&j);
    ech_jout_close(&j);
    assert_string_equal(ech_jout_get(&j),
                        "{\"int\": -9223372036854775808, \"tenth\": 0.1, \"none\": null, "
                        "\"far\": null, \"text\": \"a \\\"b\\\"\\n\", \"absent\": null, "
                        "\"yes\": true, \"list\": [{}, 2, null, [3]]}");
    const char *memory = j.text.data;
    ech_jout_reset(&j);
    ech_jout_open(&j, NULL, '[');
    ech_jout_close(&j);
    assert_string_equal(ech_jout_get(&j), "[]");
    assert_ptr_equal(j.text.data, memory); /* kept between documents */
    ech_jout_fini(&j);
}

/* Gathers lines. */
static ech_status gather(const char *line, void *user)
{
    ech_text_add(user, "%s|", line);
    return ECH_OK;
}

static void write_events(ech_metrics *m)
{
    for (int step = 1; step <= 2; step++) {
        ech_jout *j = ech_metrics_begin(m, "step");
        ech_jout_int(j, "step", step);
        ech_jout_real(j, "loss", 1.0 / 3.0 * step);
        assert_ok(ech_metrics_end(m));
    }
}

static void test_events(void **state)
{
    char path[512];
    char *file = NULL;
    size_t bytes = 0;
    ech_text lines = {0};
    ech_metrics *m = NULL;
    assert_ok(ech_path_join(*state, "metrics.jsonl", path, sizeof path));
    assert_ok(ech_write_whole(path, "old\n", 4));
    assert_ok(ech_metrics_create(path, false, gather, &lines, &m));
    write_events(m);
    ech_metrics_destroy(&m);
    assert_null(m);
    ech_metrics_destroy(&m);
    assert_string_equal(ech_text_get(&lines),
                        "{\"event\": \"step\", \"step\": 1, \"loss\": 0.3333333333333333}|"
                        "{\"event\": \"step\", \"step\": 2, \"loss\": 0.6666666666666666}|");
    assert_ok(ech_read_whole(path, 4096, &file, &bytes));
    assert_string_equal(file, "{\"event\": \"step\", \"step\": 1, \"loss\": 0.3333333333333333}\n"
                              "{\"event\": \"step\", \"step\": 2, \"loss\": 0.6666666666666666}\n");
    free(file);
    assert_ok(ech_metrics_create(path, true, NULL, NULL, &m));
    (void)ech_metrics_begin(m, "end");
    assert_ok(ech_metrics_end(m));
    ech_metrics_destroy(&m);
    assert_ok(ech_read_whole(path, 4096, &file, &bytes));
    assert_string_equal(strchr(strchr(file, '\n') + 1, '\n') + 1, "{\"event\": \"end\"}\n");
    free(file);
    ech_text_fini(&lines);
}

/* A sink that fails is an error; so is a file that cannot be made. */
static ech_status refuse_line(const char *line, void *user)
{
    (void)line;
    (void)user;
    return ECH_RAISE(ECH_E_IO, "nobody listens");
}

static void test_failures(void **state)
{
    (void)state;
    ech_metrics *m = NULL;
    assert_fails(ech_metrics_create("no/such/folder/metrics", false, NULL, NULL, &m), ECH_E_IO,
                 "no/such/folder/metrics");
    assert_null(m);
    assert_ok(ech_metrics_create(NULL, false, refuse_line, NULL, &m));
    (void)ech_metrics_begin(m, "end");
    assert_fails(ech_metrics_end(m), ECH_E_IO, "nobody listens");
    ech_metrics_destroy(&m);
}

static const ech_node *find(const ech_node *root, const char *a, const char *b)
{
    const ech_node *node = ech_node_find(root, a);
    node = b ? ech_node_find(node, b) : node;
    assert_non_null(node);
    return node;
}

static void make_config(const char *folder, ech_config *cfg)
{
    char train[512];
    char path[512];
    const char *text = "model: {preset: gpt2-124m}\ndata: {train: t.bin, seed: 5}\n"
                       "train: {seed: 6}\n";
    assert_ok(ech_path_join(folder, "t.bin", train, sizeof train));
    assert_ok(ech_write_whole(train, "abcd", 4));
    assert_ok(ech_path_join(folder, "my.run.yaml", path, sizeof path));
    const ech_config_source source = {
        .path = path, .text = text, .text_bytes = strlen(text), .ranks = 2, .needs_data = true};
    assert_ok(ech_config_load(&source, cfg));
}

static void test_run_record(void **state)
{
    static const char *const argv[] = {"echelon", "train", "my.run.yaml"};
    ech_config cfg;
    ech_config again;
    ech_node *root = NULL;
    ech_text text = {0};
    ech_text back = {0};
    char path[512];
    make_config(*state, &cfg);
    const ech_run_facts facts = {&cfg, NULL, 3, argv, 2, "inproc", "ref", NULL, 0xabc, NULL};
    assert_ok(ech_run_folder_create(&facts));
    assert_ok(ech_path_join(*state, "runs/my.run/run.json", path, sizeof path));
    assert_ok(ech_node_read_file(path, true, &root));
    assert_string_equal(find(root, "command", NULL)->child->next->string, "train");
    assert_int_equal(find(root, "seeds", "train")->integer, 6);
    assert_int_equal(find(root, "seeds", "data")->integer, 5);
    assert_int_equal(find(root, "layout", "ranks")->integer, 2);
    assert_string_equal(find(root, "layout", "transport")->string, "inproc");
    assert_int_equal(find(root, "start", "weights")->kind, ECH_NODE_NULL);
    assert_string_equal(find(root, "start", "xxh64")->string, "0000000000000abc");
    const ech_node *file = find(root, "data", "train")->child;
    assert_int_equal(find(file, "tokens", NULL)->integer, 2);
    /* a chain of the number of tokens and the hash of the only block */
    const uint64_t link[2] = {2, ech_hash64("abcd", 4)};
    const uint64_t chain = ech_hash64(link, sizeof link);
    char hash[33];
    ech_hash128_hex(&chain, sizeof chain, hash);
    assert_string_equal(find(file, "tokens_hash", NULL)->string, hash);
    /* the configuration in the record is whole: it reads back as the same one */
    ech_config_to_json(&cfg, &text);
    const ech_config_source source = {
        .path = "other/place.yaml", .text = text.data, .text_bytes = text.bytes, .ranks = 2};
    assert_ok(ech_config_load(&source, &again));
    ech_config_to_json(&again, &back);
    assert_string_equal(ech_text_get(&back), ech_text_get(&text));
    assert_int_equal(find(root, "config", "layout")->kind, ECH_NODE_MAP);
    assert_ok(ech_run_metrics_path(&cfg, path, sizeof path));
    assert_non_null(strstr(path, "runs/my.run/metrics.jsonl"));
    ech_text_fini(&text);
    ech_text_fini(&back);
    ech_node_destroy(&root);
    ech_config_fini(&cfg);
    ech_config_fini(&again);
}

static void test_missing_data(void **state)
{
    static const char *const argv[] = {"echelon"};
    ech_config cfg;
    char path[512];
    make_config(*state, &cfg);
    const ech_run_facts facts = {&cfg, NULL, 1, argv, 2, "self", "ref", NULL, 0, NULL};
    assert_ok(ech_path_join(*state, "t.bin", path, sizeof path));
    assert_int_equal(remove(path), 0);
    assert_fails(ech_run_folder_create(&facts), ECH_E_DATA, "t.bin");
    assert_ok(ech_path_join(*state, "runs/my.run/run.json", path, sizeof path));
    assert_false(ech_path_exists(path)); /* written whole or not at all */
    ech_config_fini(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document),
        cmocka_unit_test_setup_teardown(test_events, folder_setup, folder_teardown),
        cmocka_unit_test(test_failures),
        cmocka_unit_test_setup_teardown(test_run_record, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_missing_data, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
