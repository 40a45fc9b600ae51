/* RUN: np=1 timeout=60 tags=fast */
/* Pipelines in the configuration: its keys, tables in files, what is refused, and what a layout and
 * a compilation are told. */
#include "check.h"
#include "folder.h"

#include "train/config_layout.h"

#include <stdlib.h>
#include <unistd.h>

#define MODEL(layers, tied)                                                                        \
    "model: {arch: llama, layers: " #layers ", hidden: 64, heads: 4, ffn: 128, vocab: 100,\n"      \
    "        context: 64, tie_embeddings: " #tied "}\n"

static void write_file(const char *name, const char *text)
{
    assert_non_null(scratch_write(name, text, strlen(text)));
}

static ech_status load(const char *text, int ranks, const char *set, ech_config *out)
{
    char path[256];
    const ech_config_source source = {
        .path = path, .sets = &set, .n_sets = set ? 1 : 0, .ranks = ranks};
    write_file("run.yaml", text);
    (void)snprintf(path, sizeof path, "%s", scratch_path("run.yaml"));
    ech_error_clear();
    return ech_config_load(&source, out);
}

static void refuse(const char *text, int ranks, const char *words)
{
    ech_config cfg;
    assert_fails(load(text, ranks, NULL, &cfg), ECH_E_CONFIG, words);
}

/* --- keys --- */

static void test_keys(void **state)
{
    ech_config cfg;
    ech_compile_spec spec = {0};
    (void)state;
    assert_ok(load(MODEL(12, false) "layout: {pp: 2, schedule: interleaved, virtual_stages: 3,\n"
                                    "  schedule_group: 3, stages: [1, 0, 3, 2, 2, 4]}\n"
                                    "batch: {global: 24, micro: 2}\n",
                   4, NULL, &cfg));
    assert_int_equal(cfg.layout.dp, 2); /* of 4 ranks */
    assert_int_equal(ech_config_world(&cfg), 4);
    assert_int_equal(ech_config_accumulation(&cfg), 6);
    ech_config_pipeline(&cfg, &spec);
    assert_int_equal(spec.schedule, ECH_SCHEDULE_INTERLEAVED);
    assert_int_equal(spec.chunks, 3);
    assert_int_equal(spec.group, 3);
    assert_null(spec.table);
    assert_int_equal(spec.n_stage_layers, 6);
    static const int layers[] = {1, 0, 3, 2, 2, 4};
    assert_memory_equal(spec.stage_layers, layers, sizeof layers);
    ech_config_fini(&cfg);
    assert_ok(load(MODEL(12, false), 1, NULL, &cfg));
    ech_config_pipeline(&cfg, &spec);
    assert_int_equal(spec.schedule, ECH_SCHEDULE_1F1B);
    assert_int_equal(spec.chunks, 1);
    assert_int_equal(spec.group, 0);
    assert_null(spec.stage_layers);
    assert_int_equal(spec.n_stage_layers, 0);
    ech_config_fini(&cfg);
}

/* What comes to the same runs as the same; and the stages that the legality table counts are those
 * that are compiled. */
static void test_schedules(void **state)
{
    static const struct {
        const char *word;
        int pp, virtual_stages;
        ech_schedule_kind kind;
        int chunks;
    } rows[] = {
        {"1f1b", 1, 1, ECH_SCHEDULE_1F1B, 1},
        {"gpipe", 1, 1, ECH_SCHEDULE_GPIPE, 1},
        {"interleaved", 1, 2, ECH_SCHEDULE_1F1B, 1},
        {"zb-h1", 1, 1, ECH_SCHEDULE_1F1B, 1},
        {"zb-v", 1, 2, ECH_SCHEDULE_1F1B, 1},
        {"1f1b", 2, 1, ECH_SCHEDULE_1F1B, 1},
        {"gpipe", 2, 1, ECH_SCHEDULE_GPIPE, 1},
        {"interleaved", 2, 1, ECH_SCHEDULE_1F1B, 1},
        {"interleaved", 2, 4, ECH_SCHEDULE_INTERLEAVED, 4},
        {"zb-h1", 2, 1, ECH_SCHEDULE_ZB_H1, 1},
        {"zb-v", 2, 1, ECH_SCHEDULE_ZB_V, 2},
        {"zb-v", 2, 2, ECH_SCHEDULE_ZB_V, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        ech_config cfg;
        ech_compile_spec spec = {0};
        (void)snprintf(text, sizeof text,
                       MODEL(8, false) "layout: {pp: %d, schedule: %s, virtual_stages: %d}\n"
                                       "batch: {global: 4}\n",
                       rows[i].pp, rows[i].word, rows[i].virtual_stages);
        assert_ok(load(text, rows[i].pp, NULL, &cfg));
        ech_config_pipeline(&cfg, &spec);
        assert_int_equal(spec.schedule, rows[i].kind);
        assert_int_equal(spec.chunks, rows[i].chunks);
        const ech_legal_query q = ech_config_legal_query(&cfg, rows[i].pp);
        assert_int_equal(ech_legal_stages(&q), rows[i].pp * rows[i].chunks);
        ech_config_fini(&cfg);
    }
}

/* --- who holds the token table --- */

static void check_tied(const char *text, int first, int last)
{
    ech_config cfg;
    ech_layout l;
    assert_ok(load(text, 0, NULL, &cfg));
    assert_ok(ech_config_layout_make(&cfg, 0, &l));
    assert_int_equal(l.tied[0], first);
    assert_int_equal(l.tied[1], last);
    assert_int_equal(l.degree[ECH_AXIS_TIED], first == last ? 1 : 2);
    assert_int_equal(l.degree[ECH_AXIS_PP], cfg.layout.pp);
    ech_config_fini(&cfg);
}

static void test_tied_stages(void **state)
{
    (void)state;
    check_tied(MODEL(6, true) "layout: {pp: 3}\nbatch: {global: 3}\n", 0, 2);
    check_tied(MODEL(6, false) "layout: {pp: 3}\nbatch: {global: 3}\n", 0, 0);
    check_tied(MODEL(6, true), 0, 0);
    check_tied(MODEL(6, true) "layout: {pp: 3, schedule: interleaved, virtual_stages: 2}\n"
                              "batch: {global: 3}\n",
               0, 2);
    /* back in a V: the last stage is on the first rank */
    check_tied(MODEL(6, true) "layout: {pp: 3, schedule: zb-v}\nbatch: {global: 3}\n", 0, 0);
    write_file("back.csv", "1F0,1B0\n0F0,,,0B0\n"); /* the second rank begins */
    check_tied(MODEL(6, true) "layout: {pp: 2, schedule: back.csv}\n", 1, 0);
}

/* --- tables in files --- */

static void test_a_table(void **state)
{
    ech_config first;
    ech_config again;
    ech_compile_spec spec = {0};
    ech_text a = {0};
    ech_text b = {0};
    char cwd[256];
    char path[300];
    static const char text[] =
        MODEL(6, false) "layout: {pp: 2, schedule: table.csv, stages: [2, 4]}\n"
                        "batch: {global: 2}\n";
    (void)state;
    write_file("table.csv", "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n");
    assert_ok(load(text, 2, NULL, &first)); /* beside the file that names it */
    ech_config_pipeline(&first, &spec);
    assert_int_equal(spec.schedule, ECH_SCHEDULE_FILE);
    assert_ptr_equal(spec.table, &first.layout.table);
    assert_int_equal(spec.table->ranks, 2);
    assert_int_equal(spec.table->stages, 2);
    assert_int_equal(spec.table->micros, 2);
    assert_int_equal(spec.table->work[spec.table->first[1]].column, 2);
    ech_config_to_json(&first, &a);
    assert_non_null(strstr(ech_text_get(&a), scratch_path("table.csv")));
    assert_non_null(strstr(ech_text_get(&a), "\"stages\": [2, 4]"));
    assert_ok(load(ech_text_get(&a), 2, NULL, &again)); /* as the record has it */
    ech_config_to_json(&again, &b);
    assert_string_equal(ech_text_get(&a), ech_text_get(&b));
    ech_config_fini(&again);
    ech_config_fini(&first);
    /* from --set it is in the current folder */
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(scratch_folder()), 0);
    (void)snprintf(path, sizeof path, "%s", "layout.schedule=table.csv");
    assert_ok(load(text, 2, path, &first));
    assert_string_equal(first.layout.schedule, "table.csv");
    assert_int_equal(first.layout.table.micros, 2);
    ech_config_fini(&first);
    assert_int_equal(chdir("/"), 0);
    assert_fails(load(text, 2, path, &first), ECH_E_CONFIG,
                 "--set layout.schedule=table.csv: 'table.csv' does not exist");
    assert_int_equal(chdir(cwd), 0);
    ech_text_fini(&a);
    ech_text_fini(&b);
}

static void test_bad_tables(void **state)
{
    static const char text[] = MODEL(6, false) "layout: {pp: 2, schedule: bad.csv}\n"
                                               "batch: {global: 1}\noptim: {lr: fast}\n";
    (void)state;
    (void)unlink(scratch_path("bad.csv"));
    refuse(text, 2, "layout.schedule: '");
    assert_non_null(strstr(ech_error_message(), "bad.csv' does not exist"));
    write_file("bad.csv", "0F0,0B0\n1F0,1X0,1B0,1 B0\n");
    refuse(text, 2, "bad.csv:2:2: '1X0'"); /* every fault, and what else is wrong */
    assert_non_null(strstr(ech_error_message(), "bad.csv:2:4: '1 B0'"));
    assert_non_null(strstr(ech_error_message(), "optim.lr: 'fast'"));
    write_file("bad.csv", "0F0\n1F0,1B0\n"); /* a backward is missing */
    refuse(text, 2, "bad.csv:1");
    write_file("bad.csv", "0F0,0B0\n1B0,1F0\n"); /* each waits for the other's */
    refuse(text, 2, "bad.csv:2:1");
    write_file("bad.csv", "0F0,0B0\n1F0,1B0\n2F0,2B0\n");
    refuse(text, 2, "layout.pp: 2, but ");
    assert_non_null(strstr(ech_error_message(), "has a line for 3 pipeline ranks"));
    write_file("bad.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    refuse(text, 2, "1 micro-batches a step (global 1 / micro 1 / dp 1)");
    assert_non_null(strstr(ech_error_message(), "nearest legal value 2"));
    (void)unlink(scratch_path("bad.csv"));
}

/* --- refusals --- */

static void test_refusals(void **state)
{
    (void)state;
    refuse(MODEL(2, false) "layout: {pp: 3}\n", 3, "layout.pp: pp 3 for a model of 2 layers");
    assert_non_null(strstr(ech_error_message(), "run.yaml:3:10: "));
    assert_non_null(strstr(ech_error_message(), "nearest legal value 1")); /* of 3 ranks */
    refuse(MODEL(6, false) "layout: {pp: 2, schedule: interleaved, virtual_stages: 2}\n"
                           "batch: {global: 6, micro: 2}\n",
           2,
           "batch.global: 3 micro-batches a step (global 6 / micro 2 / dp 1) are interleaved in "
           "groups of 2: nearest legal 2 and 4; nearest legal values 4 and 8");
    refuse(MODEL(6, false) "layout: {pp: 2, stages: [3, 2]}\n", 2,
           "layout.stages: they have 5 layers, the model has 6; legal: auto");
    refuse(MODEL(6, false) "layout: {pp: 2, stages: [3, 2, 2]}\n", 2,
           "layout.stages: 3 stages are listed, pp 2 x 1 a rank under 1f1b makes 2; they have 7 "
           "layers, the model has 6; legal: auto");
    refuse(MODEL(6, false) "layout: {pp: 2, virtual_stages: 2, schedul: gpipe}\n", 2,
           "layout.virtual_stages: 2 under 1f1b, which has one chunk a rank; layout.schedule "
           "interleaved has as many as are asked for, zb-v has two; nearest legal value 1");
    assert_non_null(strstr(ech_error_message(), "did you mean layout.schedule?"));
    refuse(MODEL(6, false) "layout: {pp: 2, schedule: interleavd}\n", 2,
           "'interleavd' is not known, wanted gpipe, 1f1b, interleaved, zb-h1, zb-v or FILE.csv; "
           "did you mean interleaved?");
    refuse(MODEL(6, false) "layout: {pp: 2, virtual_stages: 33}\n", 2, "nearest legal value 32");
    refuse(MODEL(6, false) "layout: {pp: 4, schedule: interleaved, virtual_stages: 2,\n"
                           "         schedule_group: 3}\n",
           4,
           "layout.schedule_group: 3 micro-batches go through a chunk together, fewer than pp 4");
    refuse(MODEL(6, false) "layout: {pp: 2, stages: [3, -3]}\n", 2, "-3 is out of range");
    refuse(MODEL(6, false) "layout: {pp: 4}\n", 6, "layout.tp: the layout makes a multiple of 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_tied_stages), cmocka_unit_test(test_a_table),
        cmocka_unit_test(test_bad_tables),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
