/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "storage/safetensors_set.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t dim4[] = {4};
static const int64_t dim0[] = {0};
static const ech_st_spec spec[] = {{"a", ECH_F32, 1, dim4}, {"b", ECH_F32, 1, dim4},
                                   {"c", ECH_F64, 1, dim4}, {"empty", ECH_F32, 1, dim0},
                                   {"d", ECH_F32, 1, dim4}, {"last", ECH_F32, 1, dim0}};
enum { N = sizeof spec / sizeof *spec };

/* 16 + 16 + 32 + 0 + 16 + 0 bytes of data, byte i is i, in pieces of `piece`. */
static void write_set(const char *dir, int64_t max_shard_bytes, size_t piece)
{
    unsigned char data[80];
    ech_st_set_writer *w = NULL;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)i;
    assert_ok(ech_make_folders(dir));
    assert_ok(ech_st_set_writer_create(dir, spec, N, max_shard_bytes, &w));
    for (size_t at = 0; at < sizeof data; at += piece) {
        const size_t left = sizeof data - at;
        assert_ok(ech_st_set_writer_add(w, data + at, piece < left ? piece : left));
    }
    assert_ok(ech_st_set_writer_finish(&w));
}

static void check_tensor(const ech_st_set *set, const char *name, int first_byte)
{
    const ech_st *file = NULL;
    unsigned char got[32];
    const ech_st_tensor *t = ech_st_set_find(set, name, &file);
    assert_non_null(t);
    const ech_dtype as = t->dtype == ECH_ST_F64 ? ECH_F64 : ECH_F32;
    assert_ok(ech_st_read(file, t, 0, 4, as, got));
    for (int i = 0; i < (int)t->bytes; i++)
        assert_int_equal(got[i], first_byte + i);
}

static void check_set(const char *dir)
{
    ech_st_set *set = NULL;
    const ech_st *file = NULL;
    assert_ok(ech_st_set_open(dir, &set));
    assert_int_equal(ech_st_set_count(set), N);
    check_tensor(set, "a", 0);
    check_tensor(set, "b", 16);
    check_tensor(set, "c", 32);
    check_tensor(set, "d", 64);
    assert_int_equal(ech_st_set_find(set, "empty", &file)->elems, 0);
    assert_null(ech_st_set_find(set, "e", &file));
    size_t seen = 0;
    for (int64_t i = 0; i < N; i++) {
        const char *name = ech_st_set_at(set, i, &file)->name;
        assert_ptr_equal(ech_st_find(file, name), ech_st_set_at(set, i, &file));
        for (size_t k = 0; k < N; k++)
            seen |= (size_t)(strcmp(name, spec[k].name) == 0) << k;
    }
    assert_int_equal(seen, (1 << N) - 1);
    ech_st_set_close(&set);
}

/* Whatever the shard size and the cuts, what is read is what was written. */
static void test_shard_sizes(void **state)
{
    static const struct {
        int64_t max;
        int files; /* shards, and the index beyond one */
    } row[] = {{1000, 1}, {80, 1}, {79, 3}, {64, 3}, {32, 4}, {16, 5}, {1, 5}};
    static const size_t piece[] = {1, 7, 80};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (size_t k = 0; k < 3; k++) {
            char name[32];
            (void)snprintf(name, sizeof name, "sizes-%zu-%zu", i, k);
            write_set(in_folder(state, name), row[i].max, piece[k]);
            assert_int_equal(folder_count(in_folder(state, name)), row[i].files);
            check_set(in_folder(state, name));
            char first[96] = "model.safetensors";
            if (row[i].files > 1)
                (void)snprintf(first, sizeof first, "model-00001-of-%05d.safetensors",
                               row[i].files - 1);
            char path[512];
            (void)snprintf(path, sizeof path, "%s/%s", in_folder(state, name), first);
            assert_true(ech_path_exists(path));
        }
}

static void test_written_index(void **state)
{
    static const char wanted[] =
        "{\n  \"metadata\": {\n    \"total_size\": 80\n  },\n  \"weight_map\": {\n"
        "    \"a\": \"model-00001-of-00002.safetensors\",\n"
        "    \"b\": \"model-00001-of-00002.safetensors\",\n"
        "    \"c\": \"model-00001-of-00002.safetensors\",\n"
        "    \"empty\": \"model-00001-of-00002.safetensors\",\n"
        "    \"d\": \"model-00002-of-00002.safetensors\",\n"
        "    \"last\": \"model-00002-of-00002.safetensors\"\n  }\n}\n";
    char *text = NULL;
    size_t bytes = 0;
    write_set(in_folder(state, "index"), 64, 80);
    assert_ok(ech_read_whole(in_folder(state, "index/model.safetensors.index.json"), 1 << 20, &text,
                             &bytes));
    assert_string_equal(text, wanted);
    free(text);
}

static void test_wrong_amounts(void **state)
{
    static const char data[81] = {0};
    ech_st_set_writer *w = NULL;
    assert_ok(ech_make_folders(in_folder(state, "amounts")));
    assert_ok(ech_st_set_writer_create(in_folder(state, "amounts"), spec, N, 64, &w));
    assert_fails(ech_st_set_writer_add(w, data, 81), ECH_E_FAILED, "1 bytes more");
    ech_st_set_writer_destroy(&w);
    assert_ok(ech_st_set_writer_create(in_folder(state, "amounts"), spec, N, 64, &w));
    assert_ok(ech_st_set_writer_add(w, data, 79));
    assert_fails(ech_st_set_writer_finish(&w), ECH_E_FAILED, "the header promises");
    assert_null(w);
    assert_false(ech_path_exists(in_folder(state, "amounts/model.safetensors.index.json")));
}

/* --- index and shards disagree --- */

static void write_index(const char *dir, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    assert_ok(ech_write_whole(path, text, strlen(text)));
}

#define S1 "model-00001-of-00002.safetensors"
#define S2 "model-00002-of-00002.safetensors"

/* Two good shards (a, b, c, empty | d, last) under an index of the test. */
static const char *folder_with(void **state, const char *name, const char *index)
{
    const char *dir = in_folder(state, name);
    write_set(dir, 64, 80);
    if (index)
        write_index(dir, index);
    return dir;
}

#define MAP(more)                                                                                  \
    "{\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"" S1 "\",\"c\":\"" S1 "\",\"empty\":\"" S1          \
    "\",\"last\":\"" S2 "\"" more "}}"

static void refuse(const char *dir, ech_status status, const char *words)
{
    ech_st_set *set = NULL;
    assert_fails(ech_st_set_open(dir, &set), status, words);
    assert_null(set);
}

static void test_absent_shard(void **state)
{
    const char *dir = folder_with(state, "absent", NULL);
    (void)unlink(in_folder(state, "absent/" S2));
    refuse(dir, ECH_E_CORRUPT,
           "absent shard: the index names '" S2 "' for 2 tensors (first 'd'), the folder lacks it");
    assert_null(strstr(ech_error_message(), "stale"));
}

static void test_stale_index(void **state)
{
    char index[4096] = "{\"weight_map\":{";
    for (int i = 0; i < 30; i++)
        (void)snprintf(index + strlen(index), sizeof index - strlen(index),
                       "%s\"t%02d\":\"model-%05d-of-00030.safetensors\"", i ? "," : "", i, i + 1);
    const char *dir = folder_with(state, "stale", strcat(index, "}}"));
    for (int i = 0; i < 15; i++) { /* 15 of the 30 are there */
        const ech_st_spec one = {"", ECH_F32, 1, dim0};
        char name[64];
        char path[512];
        ech_st_writer *w = NULL;
        ech_st_spec own = one;
        (void)snprintf(name, sizeof name, "t%02d", i);
        (void)snprintf(path, sizeof path, "%s/model-%05d-of-00030.safetensors", dir, i + 1);
        own.name = name;
        assert_ok(ech_st_writer_create(path, &own, 1, NULL, 0, &w));
        assert_ok(ech_st_writer_finish(&w));
    }
    refuse(dir, ECH_E_CORRUPT,
           "stale index: it names 30 shards, 15 of them are in the folder; 2 other .safetensors");
    assert_non_null(strstr(ech_error_message(), "absent shard: the index names "
                                                "'model-00016-of-00030.safetensors'"));
}

static void test_header_lacks_tensor(void **state)
{
    const char *dir = folder_with(state, "lacks", MAP(",\"d\":\"" S2 "\",\"x\":\"" S2 "\""));
    refuse(dir, ECH_E_CORRUPT, "tensor 'x' is mapped to '" S2 "', whose header lacks it");
    assert_null(strstr(ech_error_message(), "stale"));
    assert_null(strstr(ech_error_message(), "absent"));
}

static void test_index_lacks_tensor(void **state)
{
    refuse(folder_with(state, "unmapped", MAP("")), ECH_E_CORRUPT,
           "tensor 'd' is in '" S2 "', the index does not say so");
    /* mapped to the wrong one of two shards: both sides are named */
    refuse(folder_with(state, "wrong", MAP(",\"d\":\"" S1 "\"")), ECH_E_CORRUPT,
           "tensor 'd' is mapped to '" S1 "', whose header lacks it");
    assert_non_null(strstr(ech_error_message(), "tensor 'd' is in '" S2 "'"));
}

static void test_stray_file_is_ignored(void **state)
{
    const char *dir = folder_with(state, "stray", NULL);
    assert_ok(ech_write_whole(in_folder(state, "stray/model-00003-of-00003.safetensors"), "x", 1));
    assert_ok(ech_write_whole(in_folder(state, "stray/readme.txt"), "x", 1));
    check_set(dir);
}

static void test_all_findings_at_once(void **state)
{
    const char *dir = folder_with(
        state, "many", MAP(",\"y\":\"gone.safetensors\",\"x\":\"" S2 "\",\"z\":\"../z\""));
    refuse(dir, ECH_E_CORRUPT, "absent shard: the index names 'gone.safetensors'");
    assert_non_null(strstr(ech_error_message(), "tensor 'x' is mapped to"));
    assert_non_null(strstr(ech_error_message(), "tensor 'd' is in"));
    assert_non_null(strstr(ech_error_message(), "shard '../z' is not a plain file name"));
}

/* --- hostile names --- */

static void test_shard_names_are_plain(void **state)
{
    static const char *const bad[] = {"/etc/passwd", "../" S1, "./" S1, "sub/" S1, "..", ".", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char index[256];
        (void)snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"%s\"}}", bad[i]);
        refuse(folder_with(state, "plain", index), ECH_E_CORRUPT, "is not a plain file name");
    }
    refuse(folder_with(state, "plain", "{\"weight_map\":{\"a\":\"x\\u001b[2J\"}}"), ECH_E_CORRUPT,
           "shard 'x\\x1b[2J' is not a plain file name");
}

static void test_symbolic_links_are_not_followed(void **state)
{
    const char *dir = folder_with(state, "link", NULL);
    assert_int_equal(rename(in_folder(state, "link/" S2), in_folder(state, "outside")), 0);
    assert_int_equal(symlink("../outside", in_folder(state, "link/" S2)), 0);
    refuse(dir, ECH_E_CORRUPT, "is a symbolic link");
    (void)unlink(in_folder(state, "link/" S2));
    assert_int_equal(symlink(S1, in_folder(state, "link/" S2)), 0); /* nor within the folder */
    refuse(dir, ECH_E_CORRUPT, "is a symbolic link");
}

static void test_special_files_are_refused(void **state)
{
    const char *dir = folder_with(state, "fifo", NULL);
    (void)unlink(in_folder(state, "fifo/" S2));
    assert_int_equal(mkfifo(in_folder(state, "fifo/" S2), 0600), 0);
    refuse(dir, ECH_E_CORRUPT, "not a regular file"); /* and does not hang */
}

static void test_index_json(void **state)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "json: byte 0"},
        {"[]", "json: byte 0"},
        {"{}", "no weight_map"},
        {"{\"weight_map\":[]}", "json: byte 14"},
        {"{\"weight_map\":{\"a\":1}}", "json: byte"},
        {"{\"weight_map\":{},\"weight_map\":{}}", "weight_map stands twice"},
        {"{\"weight_map\":{\"a\":\"" S1 "\",\"\\u0061\":\"" S2 "\"}}", "has tensor 'a' twice"},
        {"{\"weight_map\":{}} x", "text behind the end"},
        {"{\"metadata\":[[[[[[]]]]]],\"weight_map\":{}}", "nested too deep"},
        {"{\"metadata\":{\"total_size\":01},\"weight_map\":{}}", "json: byte"},
        {"{\"metadata\":tru,\"weight_map\":{}}", "expected a value"},
        {"{\"weight_map\":{\"a\":\"" S1 "\"", "json: byte"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse(folder_with(state, "json", bad[i].text), ECH_E_CORRUPT, bad[i].words);
}

static void test_index_may_say_more(void **state)
{
    check_set(folder_with(
        state, "more",
        "{\"metadata\":{\"total_size\":80,\"x\":[1.5e-3,-2,true,null,{\"y\":\"z\"}]},\n"
        " \"weight_map\":{\"a\":\"" S1 "\",\"b\":\"" S1 "\",\"c\":\"" S1 "\",\"empty\":\"" S1
        "\",\"last\":\"" S2 "\",\"d\":\"" S2 "\"},\"other\":false}\n"));
}

static void test_single_file_comes_first(void **state)
{
    const char *dir = folder_with(state, "both", MAP(""));
    assert_int_equal(
        rename(in_folder(state, "both/" S2), in_folder(state, "both/model.safetensors")), 0);
    ech_st_set *set = NULL;
    assert_ok(ech_st_set_open(dir, &set));
    assert_int_equal(ech_st_set_count(set), 2); /* d, last: the index is not looked at */
    ech_st_set_close(&set);
    refuse(in_folder(state, "nowhere"), ECH_E_IO, "nowhere");
    assert_ok(ech_make_folders(in_folder(state, "bare")));
    refuse(in_folder(state, "bare"), ECH_E_IO, "neither model.safetensors nor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shard_sizes),
        cmocka_unit_test(test_written_index),
        cmocka_unit_test(test_wrong_amounts),
        cmocka_unit_test(test_absent_shard),
        cmocka_unit_test(test_stale_index),
        cmocka_unit_test(test_header_lacks_tensor),
        cmocka_unit_test(test_index_lacks_tensor),
        cmocka_unit_test(test_stray_file_is_ignored),
        cmocka_unit_test(test_all_findings_at_once),
        cmocka_unit_test(test_shard_names_are_plain),
        cmocka_unit_test(test_symbolic_links_are_not_followed),
        cmocka_unit_test(test_special_files_are_refused),
        cmocka_unit_test(test_index_json),
        cmocka_unit_test(test_index_may_say_more),
        cmocka_unit_test(test_single_file_comes_first),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
