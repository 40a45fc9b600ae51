/* RUN: np=1 timeout=20 tags=fast */
/* With arguments it is the driver of test_safetensors_rules.py: per file "ok" or the message. */
#include "check.h"
#include "folder.h"

#include "base/io.h"
#include "storage/json_cursor.h"
#include "storage/safetensors.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* A file image: length, header, n_data bytes 0, 1, 2 ... */
static char *image(const char *header, size_t header_bytes, size_t n_data, size_t *bytes)
{
    *bytes = 8 + header_bytes + n_data;
    char *p = malloc(*bytes);
    assert_non_null(p);
    for (int i = 0; i < 8; i++)
        p[i] = (char)((uint64_t)header_bytes >> (8 * i));
    memcpy(p + 8, header, header_bytes);
    for (size_t i = 0; i < n_data; i++)
        p[8 + header_bytes + i] = (char)i;
    return p;
}

/* --- hostile files: rule, header, bytes of data, what the message says --- */

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data;
    const char *words;
} refused[] = {
    /* 2: JSON */
    {"", 0, "json: the header does not start with '{'"},
    {" {}", 0, "json: the header does not start with '{'"},
    {"[]", 0, "json: the header does not start with '{'"},
    {"{", 0, "json: byte 1"},
    {"{}\n", 0, "json: byte 2: only spaces"},
    {"{}{}", 0, "json: byte 2: only spaces"},
    {"{" T("a", "U8", "[2]", "[0,2]") ",}", 2, "json: byte 53: a comma before the end"},
    {"{" T("a", "U8", "[2,]", "[0,2]") "}", 2, "a comma before the end"},
    {"{" T("a", "U8", "[02]", "[0,2]") "}", 2, "expected"},
    {"{" T("\\ud800", "U8", "[2]", "[0,2]") "}", 2, "half of a surrogate pair"},
    {"{" T("\\udc00", "U8", "[2]", "[0,2]") "}", 2, "half of a surrogate pair"},
    {"{" T("\\x41", "U8", "[2]", "[0,2]") "}", 2, "no such escape"},
    {"{" T("\xff", "U8", "[2]", "[0,2]") "}", 2, "not UTF-8"},
    {"{" T("\xc0\x80", "U8", "[2]", "[0,2]") "}", 2, "not UTF-8"},
    {"{" T("\xed\xa0\x80", "U8", "[2]", "[0,2]") "}", 2, "not UTF-8"},
    {"{" T("\xf4\x90\x80\x80", "U8", "[2]", "[0,2]") "}", 2, "not UTF-8"},
    {"{" T("\xe2\x82", "U8", "[2]", "[0,2]") "}", 2, "not UTF-8"},
    {"{'a':{}}", 0, "json: byte 1: expected '\"'"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("a", "U8", "[2]", "[2,4]") "}", 4,
     "json: tensor 'a' stands twice"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("\\u0061", "U8", "[2]", "[2,4]") "}", 4,
     "json: tensor 'a' stands twice"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
     "json: tensor 'a' has key 'dtype' twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "json: __metadata__ stands twice"},
    {"{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}}", 0, "json: __metadata__ has key 'k' twice"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[[[[[[]]]]]],\"data_offsets\":[0,2]}}", 2, "size: tensor"},
    /* 3: only tensors and flat metadata */
    {"{\"a\":1}", 0, "metadata: member 'a' is no tensor"},
    {"{\"a\":\"text\"}", 0, "metadata: member 'a' is no tensor"},
    {"{\"__metadata__\":[]}", 0, "metadata: __metadata__ is no object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "metadata: a value of __metadata__ is no string"},
    {"{\"__metadata__\":{\"k\":{\"l\":\"m\"}}}", 0, "metadata: a value"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"x\":1}}", 2,
     "metadata: tensor 'a' has unknown key 'x'"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, "metadata: tensor 'a' lacks"},
    {"{\"a\":{}}", 0, "metadata: tensor 'a' lacks"},
    /* 4: sizes */
    {"{" T("a", "U7", "[2]", "[0,2]") "}", 2, "size: tensor 'a' has unknown dtype 'U7'"},
    {"{" T("a", "f32", "[2]", "[0,8]") "}", 8, "size: tensor 'a' has unknown dtype 'f32'"},
    {"{" T("a", "U8", "[-2]", "[0,2]") "}", 2, "expected an integer"},
    {"{" T("a", "U8", "[2.0]", "[0,2]") "}", 2, "expected an integer"},
    {"{" T("a", "U8", "[2e0]", "[0,2]") "}", 2, "expected an integer"},
    {"{" T("a", "U8", "[\"2\"]", "[0,2]") "}", 2, "expected an integer"},
    {"{" T("a", "U8", "[9223372036854775808]", "[0,2]") "}", 2,
     "expected an integer in 0 .. 2^63 - 1"},
    {"{" T("a", "U8", "[4294967296,4294967296]", "[0,2]") "}", 2, "size: tensor 'a': the product"},
    {"{" T("a", "U8", "[4294967296,4294967296,0]", "[0,0]") "}", 0, "size: tensor 'a': the prod"},
    {"{" T("a", "F64", "[1152921504606846976]", "[0,0]") "}", 0, "size: tensor 'a': the product"},
    {"{" T("a", "F4", "[3]", "[0,1]") "}", 1, "size: tensor 'a' does not fill whole bytes"},
    {"{" T("a", "F6_E2M3", "[2]", "[0,1]") "}", 1, "size: tensor 'a' does not fill whole bytes"},
    {"{" T("a", "U8", "[2]", "[2,0]") "}", 2, "size: tensor 'a' has offsets 2..0"},
    {"{" T("a", "U8", "[2]", "[1,3]") "}", 2, "size: tensor 'a' has offsets 1..3"},
    {"{" T("a", "U8", "[2]", "[0,18446744073709551615]") "}", 2,
     "expected an integer in 0 .. 2^63 - 1"},
    {"{" T("a", "U8", "[2]", "[0,1]") "}", 2, "size: tensor 'a' spans 1 bytes, its shape needs 2"},
    {"{" T("a", "F32", "[2]", "[0,2]") "}", 2, "size: tensor 'a' spans 2 bytes"},
    {"{" T("a", "U8", "[2]", "[0]") "}", 2, "json: byte"},
    {"{" T("a", "U8", "[2]", "[0,2,2]") "}", 2, "json: byte"},
    /* 5: cover */
    {"{" T("a", "U8", "[2]", "[1,3]") "}", 3, "cover: a hole of 1 bytes before tensor 'a'"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[3,5]") "}", 5, "cover: a hole"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3,
     "cover: an overlap of 1 bytes before tensor 'b'"},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}", 2, "cover: an over"},
    {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[0]", "[2,2]") "}", 4, "cover: an over"},
    {"{" T("a", "U8", "[2]", "[0,2]") "}", 3, "cover: 1 bytes follow the last tensor"},
    {"{}", 1, "cover: 1 bytes follow"},
    /* 6: names */
    {"{" T("a\\u0000b", "U8", "[2]", "[0,2]") "}", 2, "NUL in a string"},
    {"{" T("a\\nb", "U8", "[2]", "[0,2]") "}", 2, "name: tensor 'a\\x0ab' has a control"},
    {"{" T("a\\u001b[2J", "U8", "[2]", "[0,2]") "}", 2, "name: tensor 'a\\x1b[2J' has a control"},
    {"{" T("a\\u009b2J", "U8", "[2]", "[0,2]") "}", 2, "has a control character"},
    {"{" T("a\x1b", "U8", "[2]", "[0,2]") "}", 2, "a control character in a string"},
};

static void test_each_rule_is_kept(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        size_t bytes;
        char *p = image(refused[i].header, strlen(refused[i].header), refused[i].data, &bytes);
        assert_fails(ech_st_check_bytes(p, bytes), ECH_E_CORRUPT, refused[i].words);
        ech_st *st = NULL;
        assert_ok(ech_write_whole(in_folder(state, "bad.safetensors"), p, bytes));
        assert_fails(ech_st_open(in_folder(state, "bad.safetensors"), 0, &st), ECH_E_CORRUPT,
                     refused[i].words);
        assert_null(st);
        assert_non_null(strstr(ech_error_message(), "bad.safetensors: "));
        free(p);
    }
}

static const struct {
    const char *header;
    size_t data;
} accepted[] = {
    {"{}", 0},
    {"{}     ", 0},
    {"{ \t\r\n }", 0},
    {"{" T("a", "U8", "[]", "[0,1]") "}", 1},
    {"{" T("a", "U8", "[0]", "[0,0]") "}", 0},
    {"{" T("a", "U8", "[0,9223372036854775807]", "[0,0]") "}", 0},
    {"{" T("b", "U8", "[0]", "[2,2]") "," T("a", "U8", "[2]", "[0,2]") "}", 2},
    {"{" T("z", "U8", "[0]", "[0,0]") "," T("a", "U8", "[2]", "[0,2]") "}", 2},
    {"{" T("b", "U8", "[1]", "[2,3]") "," T("a", "U8", "[2]", "[0,2]") "}", 3},
    {"{" T("", "F4", "[2]", "[0,1]") "}", 1},
    {"{" T("../../etc/passwd", "F6_E3M2", "[4]", "[0,3]") "}", 3},
    {"{" T("\\ud83d\\ude00 \xc3\xa9", "C64", "[1]", "[0,8]") "}", 8},
    {"{\"a\":{\"data_offsets\":[0,2],\"shape\":[1,2],\"dtype\":\"I8\"}}", 2},
    {"{\"__metadata__\":{\"format\":\"pt\",\"line\":\"a\\nb\"}}", 0},
};

static void test_legal_files_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        size_t bytes;
        char *p = image(accepted[i].header, strlen(accepted[i].header), accepted[i].data, &bytes);
        assert_ok(ech_st_check_bytes(p, bytes));
        free(p);
    }
}

static void test_length_rule(void **state)
{
    static const unsigned char max[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    static const unsigned char above[9] = {2, 0, 0, 0, 0, 0, 0, 0, '{'};
    static const unsigned char cap[8] = {1, 0, 0, 1}; /* 16 MiB + 1 */
    (void)state;
    assert_fails(ech_st_check_bytes("", 0), ECH_E_CORRUPT, "length: the file has 0 bytes");
    assert_fails(ech_st_check_bytes(max, 7), ECH_E_CORRUPT, "length: the file has 7 bytes");
    assert_fails(ech_st_check_bytes(max, 8), ECH_E_CORRUPT, "at most 16777216 are read");
    assert_fails(ech_st_check_bytes(cap, 8), ECH_E_CORRUPT, "claims 16777217 bytes, at most");
    assert_fails(ech_st_check_bytes(above, 9), ECH_E_CORRUPT, "claims 2 bytes, the file has 1");
}

/* The cap is the caller's to raise, up to the format's own limit, and no further. */
static void test_header_cap(void **state)
{
    char header[64];
    ech_st *st = NULL;
    size_t bytes;
    memset(header, ' ', sizeof header);
    memcpy(header, "{}", 2);
    char *p = image(header, sizeof header, 0, &bytes);
    assert_ok(ech_write_whole(in_folder(state, "cap.safetensors"), p, bytes));
    assert_fails(ech_st_open(in_folder(state, "cap.safetensors"), 63, &st), ECH_E_CORRUPT,
                 "length: the header claims 64 bytes, at most 63");
    assert_ok(ech_st_open(in_folder(state, "cap.safetensors"), 64, &st));
    ech_st_close(&st);
    static const unsigned char limit[8] = {1, 0xe1, 0xf5, 5}; /* 100,000,001 */
    assert_ok(ech_write_whole(in_folder(state, "cap.safetensors"), limit, sizeof limit));
    assert_fails(ech_st_open(in_folder(state, "cap.safetensors"), 1 << 30, &st), ECH_E_CORRUPT,
                 "at most 100000000");
    free(p);
}

static void test_long_names(void **state)
{
    char header[1024];
    char name[600];
    size_t bytes;
    (void)state;
    memset(name, 'n', sizeof name);
    for (int n = ECH_ST_NAME_CAP; n <= ECH_ST_NAME_CAP + 1; n++) {
        (void)snprintf(header, sizeof header,
                       "{\"%.*s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", n,
                       name);
        char *p = image(header, strlen(header), 1, &bytes);
        if (n == ECH_ST_NAME_CAP)
            assert_ok(ech_st_check_bytes(p, bytes));
        else
            assert_fails(ech_st_check_bytes(p, bytes), ECH_E_CORRUPT, "has a name of 513 bytes");
        free(p);
    }
}

/* Each prefix and each one-byte change of a good file is either refused or still legal; never a
 * crash (sanitizers watch), and a shortened file is always refused. */
static void test_truncated_and_mutated(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"f\":\"pt\"}," T(
        "a", "F32", "[1,2]", "[0,8]") "," T("b", "U8", "[3]", "[8,11]") "}";
    size_t bytes;
    size_t legal = 0;
    char *p = image(header, sizeof header - 1, 11, &bytes);
    (void)state;
    assert_ok(ech_st_check_bytes(p, bytes));
    for (size_t n = 0; n < bytes; n++) {
        char *cut = malloc(n ? n : 1); /* exact size, so that a read beyond is seen */
        assert_non_null(cut);
        memcpy(cut, p, n);
        assert_int_equal(ech_st_check_bytes(cut, n), ECH_E_CORRUPT);
        free(cut);
    }
    for (size_t i = 0; i < bytes; i++)
        for (int x = 1; x < 256; x++) {
            p[i] = (char)(p[i] ^ x);
            const ech_status st = ech_st_check_bytes(p, bytes);
            assert_true(st == ECH_OK || st == ECH_E_CORRUPT);
            legal += st == ECH_OK && i < bytes - 11;
            p[i] = (char)(p[i] ^ x);
        }
    assert_true(legal > 0); /* another letter in a name */
    free(p);
}

/* --- writing and reading --- */

static const int64_t dim23[] = {2, 3};
static const int64_t dim0[] = {0};
static const int64_t dim5[] = {5};

static void write_sample(const char *path)
{
    static const ech_st_spec spec[] = {{"w", ECH_F64, 2, dim23},     {"scalar", ECH_F32, 0, NULL},
                                       {"empty", ECH_F32, 1, dim0},  {"half", ECH_F16, 1, dim5},
                                       {"brain", ECH_BF16, 1, dim5}, {"ids", ECH_I64, 1, dim5}};
    static const ech_st_meta meta[] = {{"format", "pt"}, {"note", "a \"b\"\n"}};
    static const double w[] = {1.0, -2.5, 0.1, 1e300, -0.0, 3.0};
    static const float scalar = 7.25F;
    static const uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00};
    static const uint16_t brain[] = {0x3f80, 0xbf80, 0x4049, 0x0001, 0x7f80};
    static const int64_t ids[] = {1, -1, INT64_MAX, 0, 42};
    ech_st_writer *out = NULL;
    (void)unlink(path); /* of another test */
    assert_ok(ech_st_writer_create(path, spec, 6, meta, 2, &out));
    assert_ok(ech_st_writer_add(out, w, 20)); /* cut anywhere */
    assert_ok(ech_st_writer_add(out, (const char *)w + 20, sizeof w - 20));
    assert_ok(ech_st_writer_add(out, &scalar, sizeof scalar));
    assert_ok(ech_st_writer_add(out, half, sizeof half));
    assert_ok(ech_st_writer_add(out, brain, sizeof brain));
    assert_ok(ech_st_writer_add(out, ids, sizeof ids));
    assert_false(ech_path_exists(path)); /* nothing stands there before the end */
    assert_ok(ech_st_writer_finish(&out));
    assert_null(out);
}

static void test_written_bytes(void **state)
{
    static const char *const rows[] = {
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"a \\\"b\\\"\\n\"}",
        T("w", "F64", "[2,3]", "[0,48]"),
        T("scalar", "F32", "[]", "[48,52]"),
        T("empty", "F32", "[0]", "[52,52]"),
        T("half", "F16", "[5]", "[52,62]"),
        T("brain", "BF16", "[5]", "[62,72]"),
        T("ids", "I64", "[5]", "[72,112]")};
    char wanted[512] = "";
    char *text;
    size_t bytes;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)strcat(wanted, i ? "," : "");
        (void)strcat(wanted, rows[i]);
    }
    (void)strcat(wanted, "}");
    write_sample(in_folder(state, "sample.safetensors"));
    assert_ok(ech_read_whole(in_folder(state, "sample.safetensors"), 1 << 20, &text, &bytes));
    const size_t padded = (strlen(wanted) + 7) / 8 * 8;
    assert_int_equal(bytes, 8 + padded + 112);
    assert_int_equal((unsigned char)text[0] + 256 * (unsigned char)text[1], padded);
    assert_memory_equal(text + 8, wanted, strlen(wanted));
    for (size_t i = strlen(wanted); i < padded; i++)
        assert_int_equal(text[8 + i], ' ');
    free(text);
}

static void test_read_back(void **state)
{
    static const double half[] = {1.0, -2.0, 65504.0, 5.9604644775390625e-8, INFINITY};
    static const double brain[] = {1.0, -1.0, 3.140625, 9.183549615799121e-41, INFINITY};
    ech_st *st = NULL;
    double d[6];
    float f[6];
    int64_t ids[5];
    write_sample(in_folder(state, "sample.safetensors"));
    assert_ok(ech_st_open(in_folder(state, "sample.safetensors"), 0, &st));
    assert_int_equal(ech_st_count(st), 6);
    assert_string_equal(ech_st_at(st, 1)->name, "scalar");
    assert_string_equal(ech_st_metadata(st, "note"), "a \"b\"\n");
    assert_null(ech_st_metadata(st, "absent"));
    assert_null(ech_st_find(st, "absent"));
    const ech_st_tensor *w = ech_st_find(st, "w");
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->dim[0], 2);
    assert_int_equal(w->dim[1], 3);
    assert_ok(ech_st_read(st, w, 0, 6, ECH_F64, d));
    assert_true(d[2] == 0.1 && d[3] == 1e300 && d[4] == 0.0 && signbit(d[4]));
    assert_ok(ech_st_read(st, w, 1, 2, ECH_F32, f));
    assert_true(f[0] == -2.5F && f[1] == 0.1F);
    assert_ok(ech_st_read(st, ech_st_find(st, "scalar"), 0, 1, ECH_F64, d));
    assert_true(d[0] == 7.25);
    assert_ok(ech_st_read(st, ech_st_find(st, "empty"), 0, 0, ECH_F64, NULL));
    assert_ok(ech_st_read(st, ech_st_find(st, "half"), 0, 5, ECH_F64, d));
    assert_memory_equal(d, half, sizeof half);
    assert_ok(ech_st_read(st, ech_st_find(st, "brain"), 0, 5, ECH_F32, f));
    for (int i = 0; i < 5; i++)
        assert_true(f[i] == (float)brain[i]);
    assert_ok(ech_st_read(st, ech_st_find(st, "ids"), 0, 5, ECH_I64, ids));
    assert_true(ids[2] == INT64_MAX && ids[4] == 42);
    assert_fails(ech_st_read(st, ech_st_find(st, "ids"), 0, 5, ECH_F32, f), ECH_E_DATA,
                 "tensor 'ids' is I64, it cannot be read as fp32");
    ech_st_close(&st);
    assert_null(st);
}

/* More elements than the conversion's buffer holds. */
static void test_long_conversion(void **state)
{
    enum { N = 5000 };
    static const int64_t dim[] = {N};
    static const ech_st_spec spec = {"x", ECH_BF16, 1, dim};
    static uint16_t x[N];
    static double back[N];
    ech_st_writer *out = NULL;
    ech_st *st = NULL;
    for (int i = 0; i < N; i++)
        x[i] = (uint16_t)(0x4000 + i);
    assert_ok(ech_st_writer_create(in_folder(state, "long.safetensors"), &spec, 1, NULL, 0, &out));
    assert_ok(ech_st_writer_add(out, x, sizeof x));
    assert_ok(ech_st_writer_finish(&out));
    assert_ok(ech_st_open(in_folder(state, "long.safetensors"), 0, &st));
    assert_ok(ech_st_read(st, ech_st_find(st, "x"), 7, N - 7, ECH_F64, back));
    for (int i = 7; i < N; i++)
        assert_true(back[i - 7] == (double)ech_bf16_to_f32(x[i]));
    ech_st_close(&st);
}

static void test_shortened_after_open(void **state)
{
    ech_st *st = NULL;
    double d[6];
    write_sample(in_folder(state, "short.safetensors"));
    assert_ok(ech_st_open(in_folder(state, "short.safetensors"), 0, &st));
    assert_int_equal(truncate(in_folder(state, "short.safetensors"), 400), 0);
    assert_fails(ech_st_read(st, ech_st_find(st, "w"), 0, 6, ECH_F64, d), ECH_E_CORRUPT, "short");
    ech_st_close(&st);
}

static void test_writer_refuses(void **state)
{
    static const int64_t huge[] = {INT64_MAX / 2, 4};
    static const ech_st_spec twice[] = {{"a", ECH_F32, 1, dim5}, {"a", ECH_F32, 1, dim5}};
    static const ech_st_spec control = {"a\nb", ECH_F32, 1, dim5};
    static const ech_st_spec big = {"a", ECH_F32, 2, huge};
    static const ech_st_spec good = {"a", ECH_F32, 1, dim5};
    static const float data[6] = {0};
    const char *path = in_folder(state, "refused.safetensors");
    const int before = folder_count(*state);
    ech_st_writer *out = NULL;
    assert_fails(ech_st_writer_create(path, twice, 2, NULL, 0, &out), ECH_E_ILLEGAL,
                 "stands twice");
    assert_fails(ech_st_writer_create(path, &control, 1, NULL, 0, &out), ECH_E_ILLEGAL,
                 "control character");
    assert_fails(ech_st_writer_create(path, &big, 1, NULL, 0, &out), ECH_E_ILLEGAL, "");
    assert_null(out);
    assert_ok(ech_st_writer_create(path, &good, 1, NULL, 0, &out));
    assert_fails(ech_st_writer_add(out, data, sizeof data), ECH_E_FAILED, "4 bytes more");
    assert_ok(ech_st_writer_add(out, data, 16));
    assert_fails(ech_st_writer_finish(&out), ECH_E_FAILED, "16 bytes of data were written");
    assert_null(out);
    assert_ok(ech_st_writer_create(path, &good, 1, NULL, 0, &out));
    ech_st_writer_destroy(&out);
    assert_int_equal(folder_count(*state), before); /* no debris */
}

/* The N-th file operation fails, N = 1, 2, ... until the scenario passes untouched. */
static int fail_at;
static int ops;

static int failing_hook(const char *op, const char *path, int64_t bytes, void *user)
{
    (void)path;
    (void)bytes;
    (void)user;
    if (!strcmp(op, "unlink")) /* removing debris is not under test here */
        return 0;
    return ++ops == fail_at ? -ENOSPC : 0;
}

static ech_status write_small(const char *path)
{
    static const ech_st_spec spec = {"a", ECH_F32, 1, dim5};
    static const float data[5] = {1, 2, 3, 4, 5};
    ech_st_writer *out = NULL;
    ECH_TRY(ech_st_writer_create(path, &spec, 1, NULL, 0, &out));
    const ech_status st = ech_st_writer_add(out, data, sizeof data);
    if (st < 0) {
        ech_st_writer_destroy(&out);
        return st;
    }
    return ech_st_writer_finish(&out);
}

static void test_every_write_may_fail(void **state)
{
    const char *path = in_folder(state, "faulty.safetensors");
    const int before = folder_count(*state);
    ech_status st;
    do {
        fail_at++;
        ops = 0;
        ech_io_set_hook(failing_hook, NULL);
        st = write_small(path);
        ech_io_set_hook(NULL, NULL);
        if (ech_path_exists(path)) { /* only when all of it is there */
            ech_st *file = NULL;
            float back[5];
            assert_ok(ech_st_open(path, 0, &file));
            assert_ok(ech_st_read(file, ech_st_find(file, "a"), 0, 5, ECH_F32, back));
            assert_true(back[4] == 5.0F);
            ech_st_close(&file);
            assert_int_equal(unlink(path), 0);
        } else {
            assert_int_equal(st, ECH_E_IO);
        }
        assert_int_equal(folder_count(*state), before);
    } while (st != ECH_OK);
    assert_true(fail_at > 5); /* create, writes, fsync, rename, folder */
}

static int drive(int n, char **paths)
{
    for (int i = 0; i < n; i++) {
        ech_st *st = NULL;
        const ech_status ok = ech_st_open(paths[i], 0, &st);
        puts(ok == ECH_OK ? "ok" : ech_error_message());
        ech_st_close(&st);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule_is_kept), cmocka_unit_test(test_legal_files_are_read),
        cmocka_unit_test(test_length_rule),       cmocka_unit_test(test_header_cap),
        cmocka_unit_test(test_long_names),        cmocka_unit_test(test_truncated_and_mutated),
        cmocka_unit_test(test_written_bytes),     cmocka_unit_test(test_read_back),
        cmocka_unit_test(test_long_conversion),   cmocka_unit_test(test_shortened_after_open),
        cmocka_unit_test(test_writer_refuses),    cmocka_unit_test(test_every_write_may_fail),
    };
    if (argc > 1)
        return drive(argc - 1, argv + 1);
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
