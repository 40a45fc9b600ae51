/* RUN: np=1 timeout=30 tags=fast */
/* How much of the data a start reads: once by the process that looks at every id, once more for the
 * record where no side file has hashes, and not at all by the other ranks. */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "data/token_writer.h"
#include "report/run_folder.h"
#include "train/feed.h"

#include <stdlib.h>
#include <unistd.h>

enum { N_TOKENS = 200001, FILE_BYTES = 2 * N_TOKENS };

/* Bytes of the token file that went through the I/O layer. */
static int64_t seen_bytes;

static int count(const char *op, const char *path, int64_t bytes, void *user)
{
    (void)user;
    const size_t n = strlen(path);
    if ((strcmp(op, "read") == 0 || strcmp(op, "map") == 0) && n > 4 &&
        strcmp(path + n - 4, ".bin") == 0)
        seen_bytes += bytes;
    return 0;
}

static void write_tokens(const char *path, int32_t last)
{
    int32_t *ids = calloc(N_TOKENS, sizeof *ids);
    ech_token_writer *w = NULL;
    assert_non_null(ids);
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = i % 97;
    ids[N_TOKENS - 1] = last;
    assert_ok(ech_token_writer_create(path, 60000, ECH_TOKEN_U16, "none", &w));
    assert_ok(ech_token_writer_add(w, ids, N_TOKENS));
    assert_ok(ech_token_writer_finish(w));
    ech_token_writer_destroy(&w);
    free(ids);
}

/* A configuration beside token files with and without a side file. */
static void make(void **state, int32_t last, ech_config *cfg)
{
    static const char text[] =
        "model: {arch: llama, layers: 1, hidden: 32, heads: 4, ffn: 40, vocab: 97, context: 100}\n"
        "data: {train: t.bin}\n";
    const char *path = in_folder(state, "c.yaml");
    const ech_config_source source = {.path = path, .text = text, .text_bytes = sizeof text - 1};
    write_tokens(in_folder(state, "t.bin"), last);
    assert_ok(ech_config_load(&source, cfg));
}

static int64_t bytes_of_open(const ech_config *cfg, bool scans)
{
    ech_feed feed;
    seen_bytes = 0;
    ech_io_set_hook(count, NULL);
    const ech_status st = ech_feed_open(cfg, scans, &feed);
    ech_io_set_hook(NULL, NULL);
    assert_ok(st);
    ech_feed_close(&feed);
    return seen_bytes;
}

static int64_t bytes_of_record(const ech_config *cfg)
{
    static const char *const argv[] = {"echelon"};
    const ech_run_facts facts = {cfg, NULL, 1, argv, 1, "self", "ref", NULL, 0, NULL};
    seen_bytes = 0;
    ech_io_set_hook(count, NULL);
    const ech_status st = ech_run_folder_create(&facts);
    ech_io_set_hook(NULL, NULL);
    assert_ok(st);
    return seen_bytes;
}

static void files_are_read_as_often_as_needed(void **state)
{
    ech_config cfg;
    make(state, 5, &cfg);
    /* a form is told by its first kilobytes; the side file vouches for the rest */
    assert_true(bytes_of_open(&cfg, true) < 20000);
    assert_true(bytes_of_record(&cfg) < 20000);
    assert_int_equal(unlink(in_folder(state, "t.bin.json")), 0);
    assert_in_range(bytes_of_open(&cfg, true), FILE_BYTES, FILE_BYTES + 20000);
    assert_true(bytes_of_open(&cfg, false) < 20000);
    assert_in_range(bytes_of_record(&cfg), FILE_BYTES, FILE_BYTES + 20000);
    ech_config_fini(&cfg);
}

/* Whoever has not looked finds a wrong id where it reads it. */
static void ids_are_checked_as_they_are_read(void **state)
{
    ech_config cfg;
    ech_feed feed;
    int32_t tokens[100];
    int32_t labels[100];
    make(state, 97, &cfg);
    assert_int_equal(unlink(in_folder(state, "t.bin.json")), 0);
    assert_fails(ech_feed_open(&cfg, true, &feed), ECH_E_DATA, "token 200000 has id 97");
    assert_ok(ech_feed_open(&cfg, false, &feed));
    assert_int_equal(ech_token_file_info(ech_dataset_file(feed.train, 0))->max_id, -1);
    const int64_t last = ech_dataset_samples(feed.train) - 1;
    const int64_t first = 0;
    assert_ok(ech_dataset_fill(feed.train, &first, 1, tokens, labels, NULL));
    assert_fails(ech_dataset_fill(feed.train, &last, 1, tokens, labels, NULL), ECH_E_DATA,
                 "token 200000 has id 97");
    ech_feed_close(&feed);
    ech_config_fini(&cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_are_read_as_often_as_needed, folder_setup,
                                        folder_teardown),
        cmocka_unit_test_setup_teardown(ids_are_checked_as_they_are_read, folder_setup,
                                        folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
