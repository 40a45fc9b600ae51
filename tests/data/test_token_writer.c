/* RUN: np=1 timeout=30 tags=fast */
/* What is written reads back, fits its vocabulary, and damage to it is found. */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "data/side_file.h"
#include "data/token_file.h"
#include "data/token_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static ech_token_writer *begin(const char *name, int64_t vocab, ech_token_type dtype)
{
    ech_token_writer *w = NULL;
    assert_ok(ech_token_writer_create(scratch_path(name), vocab, dtype, "a \"tokenizer\"", &w));
    return w;
}

/* Documents of 3, 0 (dropped) and 2 tokens. */
static void write_small(const char *name, int64_t vocab, ech_token_type dtype)
{
    const int32_t ids[5] = {1, 2, 65500 % (int32_t)vocab, 0, 4};

    (void)unlink(scratch_path(name));
    ech_token_writer *w = begin(name, vocab, dtype);
    assert_ok(ech_token_writer_add(w, ids, 2));
    assert_ok(ech_token_writer_add(w, ids + 2, 1));
    assert_ok(ech_token_writer_end_document(w));
    assert_ok(ech_token_writer_end_document(w));
    assert_ok(ech_token_writer_add(w, ids + 3, 2));
    assert_false(ech_path_exists(scratch_path(name)));
    assert_ok(ech_token_writer_finish(w));
    assert_int_equal(ech_token_writer_tokens(w), 5);
    assert_int_equal(ech_token_writer_documents(w), 2);
    ech_token_writer_destroy(&w);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    ech_token_file *f = NULL;
    int32_t ids[5];
    int64_t start = 0;
    int64_t n = 0;

    write_small("a.bin", 70000, ECH_TOKEN_AUTO);
    assert_ok(ech_token_file_open(scratch_path("a.bin"), NULL, &f));
    const ech_token_info *info = ech_token_file_info(f);
    assert_int_equal(info->form, ECH_TOKENS_MEGATRON);
    assert_int_equal(info->dtype, ECH_TOKEN_I32);
    assert_int_equal(info->n_tokens, 5);
    assert_int_equal(info->n_documents, 2);
    assert_int_equal(info->vocab, 70000);
    assert_int_equal(info->max_id, 65500);
    assert_true(info->has_side_file);
    assert_ok(ech_token_file_read(f, 0, 5, ids));
    assert_int_equal(ids[2], 65500);
    assert_int_equal(ids[4], 4);
    assert_ok(ech_token_file_document(f, 1, &start, &n));
    assert_int_equal(start, 3);
    assert_int_equal(n, 2);
    assert_ok(ech_token_file_verify(f));
    ech_token_file_close(&f);
}

/* Megatron's rule: 16 bit below 65,500 entries. */
static void the_type_follows_the_vocabulary(void **state)
{
    (void)state;
    ech_token_file *f = NULL;

    write_small("b.bin", 65499, ECH_TOKEN_AUTO);
    assert_ok(ech_token_file_open(scratch_path("b.bin"), NULL, &f));
    assert_int_equal(ech_token_file_info(f)->dtype, ECH_TOKEN_U16);
    ech_token_file_close(&f);
    write_small("b.bin", 65500, ECH_TOKEN_AUTO);
    assert_ok(ech_token_file_open(scratch_path("b.bin"), NULL, &f));
    assert_int_equal(ech_token_file_info(f)->dtype, ECH_TOKEN_I32);
    ech_token_file_close(&f);
    write_small("b.bin", 65536, ECH_TOKEN_U16);
    assert_ok(ech_token_file_open(scratch_path("b.bin"), NULL, &f));
    assert_int_equal(ech_token_file_info(f)->max_id, 65500);
    ech_token_file_close(&f);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const int32_t ids[3] = {1, 700, -1};
    ech_token_writer *w = NULL;
    const char *path = scratch_path("c.bin");

    assert_fails(ech_token_writer_create(path, 70000, ECH_TOKEN_U16, NULL, &w), ECH_E_DATA,
                 "uint16 holds ids of a vocabulary up to 65536, this one has 70000");
    assert_fails(ech_token_writer_create(path, 40000, ECH_TOKEN_I16, NULL, &w), ECH_E_DATA,
                 "up to 32768");
    assert_fails(ech_token_writer_create(path, 10, ECH_TOKEN_U32, NULL, &w), ECH_E_USAGE, "uint32");
    assert_fails(ech_token_writer_create(scratch_path("c"), 10, ECH_TOKEN_AUTO, NULL, &w),
                 ECH_E_USAGE, "ends in .bin");
    assert_null(w);

    w = begin("c.bin", 700, ECH_TOKEN_AUTO);
    assert_fails(ech_token_writer_finish(w), ECH_E_DATA, "no token");
    assert_fails(ech_token_writer_add(w, ids, 2), ECH_E_DATA, "token 1 has id 700");
    assert_fails(ech_token_writer_add(w, ids + 2, 1), ECH_E_DATA, "token 0 has id -1");
    assert_int_equal(ech_token_writer_tokens(w), 0);
    ech_token_writer_destroy(&w);
    assert_false(ech_path_exists(scratch_path("c.bin")));
}

/* More than one block, damaged in one byte of the second. */
static void damage_is_found_by_the_hashes(void **state)
{
    (void)state;
    const size_t n = (size_t)ECH_TOKEN_BLOCK_BYTES; /* two bytes each: two blocks and a bit */
    int32_t *ids = calloc(n + 100, sizeof *ids);
    ech_token_file *f = NULL;
    ech_token_writer *w = begin("d.bin", 256, ECH_TOKEN_AUTO);

    for (size_t i = 0; i < n + 100; i++)
        ids[i] = (int32_t)(i * 2654435761u >> 24) & 255;
    ids[12345] = 255;
    assert_ok(ech_token_writer_add(w, ids, n + 100));
    assert_ok(ech_token_writer_finish(w));
    ech_token_writer_destroy(&w);
    assert_ok(ech_token_file_open(scratch_path("d.bin"), NULL, &f));
    assert_ok(ech_token_file_verify(f));
    char hash[33];
    char again[33];
    assert_ok(ech_token_file_hash(f, hash));
    ech_token_file_close(&f);

    /* The same hash without the side file, from the tokens themselves. */
    assert_int_equal(rename(scratch_path("d.bin.json"), scratch_path("d.aside")), 0);
    assert_ok(ech_token_file_open(scratch_path("d.bin"), NULL, &f));
    assert_ok(ech_token_file_hash(f, again));
    assert_string_equal(hash, again);
    ech_token_file_close(&f);
    assert_int_equal(rename(scratch_path("d.aside"), scratch_path("d.bin.json")), 0);

    FILE *file = fopen(scratch_path("d.bin"), "r+b");
    assert_int_equal(fseek(file, ECH_TOKEN_BLOCK_BYTES + 2000, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, ECH_TOKEN_BLOCK_BYTES + 2000, SEEK_SET), 0);
    (void)fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
    assert_ok(ech_token_file_open(scratch_path("d.bin"), NULL, &f));
    assert_fails(ech_token_file_verify(f), ECH_E_CORRUPT, "block 1");
    assert_int_equal(ech_status_exit_code(ECH_E_CORRUPT), 1);
    ech_token_file_close(&f);
    (void)unlink(scratch_path("d.bin.json"));
    assert_ok(ech_token_file_open(scratch_path("d.bin"), NULL, &f));
    assert_ok(ech_token_file_hash(f, again));
    assert_string_not_equal(hash, again);
    ech_token_file_close(&f);
    free(ids);
}

static void a_side_file_that_contradicts_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *words;
    } bad[] = {
        {"{\"format\": \"echelon-tokens\", \"version\": 9}", "version 9"},
        {"{\"format\": \"echelon-tokens\", \"version\": 1}", "'dtype' is missing"},
        {"{\"format\": \"echelon-tokens\", \"version\": 1, \"dtype\": \"int16x\"}", "'int16x'"},
        {"{\"format\": \"echelon-tokens\", \"version\": 1, \"dtype\": \"uint16\", \"n_tokens\": 0}",
         "'n_tokens'"},
        {"{\"format\": \"echelon-tokens\", \"version\": 1, \"dtype\": \"uint16\", \"n_tokens\": 3,"
         "\"n_documents\": 1, \"vocab\": 5, \"max_id\": 5, \"block_bytes\": 8, \"hashes\": []}",
         "not below vocab"},
        {"{\"format\": \"echelon-tokens\", \"version\": 1, \"dtype\": \"uint16\", \"n_tokens\": 3,"
         "\"n_documents\": 1, \"vocab\": 5, \"max_id\": 4, \"block_bytes\": 8, \"hashes\": []}",
         "need 1"},
        {"{\"format\": \"echelon-tokens\", \"version\": 1, \"dtype\": \"uint16\", \"n_tokens\": 3,"
         "\"n_documents\": 1, \"vocab\": 5, \"max_id\": 4, \"block_bytes\": 8, \"hashes\": [1]}",
         "16 hexadecimal digits"},
        {"{\"format\": \"echelon-tokens\", \"version\": 1, \"dtype\": \"uint16\", \"n_tokens\": 3,"
         "\"n_documents\": 1, \"vocab\": 5, \"max_id\": 4, \"block_bytes\": 8,"
         "\"hashes\": [\"0123456789abcdef\"]}",
         "speaks of 3 uint16 tokens, the file holds 4"},
    };
    const uint16_t tokens[4] = {1, 2, 3, 4};
    ech_token_file *f = NULL;
    const char *path = scratch_write("e.bin", tokens, sizeof tokens);

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)scratch_write("e.bin.json", bad[i].json, strlen(bad[i].json));
        assert_fails(ech_token_file_open(path, NULL, &f), ECH_E_DATA, bad[i].words);
    }
    (void)scratch_write("e.bin.json", "{\"a\": ", 6);
    assert_fails(ech_token_file_open(path, NULL, &f), ECH_E_PARSE, "e.bin.json");
    (void)scratch_write("e.bin.json", "{\"a\": 1}", 8); /* somebody else's */
    assert_ok(ech_token_file_open(path, NULL, &f));
    assert_false(ech_token_file_info(f)->has_side_file);
    assert_fails(ech_token_file_verify(f), ECH_E_DATA, "no side file");
    ech_token_file_close(&f);
}

/* The n-th operation fails, for every n: an error, and none of the three files is left. */
typedef struct fault {
    int left;
    bool hit;
} fault;

static int fail_late(const char *op, const char *path, int64_t bytes, void *user)
{
    fault *ft = user;
    (void)path;
    (void)bytes;
    if (strcmp(op, "unlink") == 0 || strcmp(op, "stat") == 0 || ft->left-- != 0)
        return 0;
    ft->hit = true;
    return -ENOSPC;
}

static ech_status write_once(const char *path)
{
    const int32_t ids[3] = {1, 2, 3};
    ech_token_writer *w = NULL;

    ECH_TRY(ech_token_writer_create(path, 10, ECH_TOKEN_AUTO, NULL, &w));
    ech_status st = ech_token_writer_add(w, ids, 3);
    if (st == ECH_OK)
        st = ech_token_writer_finish(w);
    ech_token_writer_destroy(&w);
    return st;
}

static void a_full_disk_never_leaves_a_token_file(void **state)
{
    (void)state;
    const char *path = scratch_path("f.bin");
    bool done = false;

    for (int n = 0; n < 100 && !done; n++) {
        fault ft = {.left = n};
        ech_io_set_hook(fail_late, &ft);
        const ech_status st = write_once(path);
        ech_io_set_hook(NULL, NULL);
        done = !ft.hit;
        assert_int_equal(st, ft.hit ? ECH_E_IO : ECH_OK);
        if (ft.hit && ech_path_exists(path)) {
            /* Only the folder's fsync comes after the rename of the .bin: all three are there. */
            ech_token_file *f = NULL;
            assert_ok(ech_token_file_open(path, NULL, &f));
            assert_ok(ech_token_file_verify(f));
            ech_token_file_close(&f);
            (void)unlink(path);
        }
        (void)unlink(scratch_path("f.idx"));
        (void)unlink(scratch_path("f.bin.json"));
    }
    assert_true(done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(the_type_follows_the_vocabulary),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(damage_is_found_by_the_hashes),
        cmocka_unit_test(a_side_file_that_contradicts_is_refused),
        cmocka_unit_test(a_full_disk_never_leaves_a_token_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
