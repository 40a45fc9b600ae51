/* RUN: np=1 timeout=30 tags=fast */
/* Documents out of plain, compressed and JSONL files, in pieces of bounded size. */
#include "check.h"
#include "folder.h"

#include "base/text.h"
#include "data/text_source.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

/* All documents, each ended by '|'; '/' between the pieces of one. */
static ech_status read_all(const char *path, ech_text_split split, ech_text *out)
{
    ech_text_options opt = ech_text_options_default();
    ech_text_source *s = NULL;
    ech_text_piece p;
    ech_status st;

    opt.split = split;
    ECH_TRY(ech_text_source_open(path, &opt, &s));
    while ((st = ech_text_source_next(s, &p)) == ECH_OK) {
        assert_true(p.bytes > 0);
        ech_text_add(out, p.begins ? "" : "/");
        ech_text_add_bytes(out, p.text, p.bytes);
        ech_text_add(out, p.ends ? "|" : "");
    }
    if (st == ECH_DONE)
        assert_int_equal(ech_text_source_read_bytes(s), ech_text_source_bytes(s));
    ech_text_source_close(&s);
    return st == ECH_DONE ? ECH_OK : st;
}

static void check_text(const char *name, const char *content, ech_text_split split,
                       const char *wanted)
{
    ech_text out = {0};
    assert_ok(read_all(scratch_write(name, content, strlen(content)), split, &out));
    assert_string_equal(ech_text_get(&out), wanted);
    ech_text_fini(&out);
}

static void documents_are_told_apart(void **state)
{
    (void)state;
    check_text("a.txt", "one\n\ntwo\n", ECH_SPLIT_AUTO, "one\n\ntwo\n|");
    check_text("a.txt", "", ECH_SPLIT_AUTO, "");
    check_text("a.txt", "no newline", ECH_SPLIT_AUTO, "no newline|");
    check_text("a.txt", "\n\none\nline\n\n \t\r\n\ntwo", ECH_SPLIT_BLANK_LINE, "one\nline\n|two|");
    check_text("a.txt", "\n \n", ECH_SPLIT_BLANK_LINE, "");
    check_text("a.jsonl",
               "{\"text\": \"one\\ntwo\"}\n\n{\"id\": 3, \"text\": \"\"}\n{\"text\":\"z\"}",
               ECH_SPLIT_AUTO, "one\ntwo|z|");
    check_text("a.txt", "{\"text\": \"one\"}\n", ECH_SPLIT_JSONL, "one|");
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        ech_status status;
        const char *words;
    } bad[] = {{"{\"text\": \"a\"}\n{\"text\": 1}\n", ECH_E_DATA, "b.jsonl:2"},
               {"{\"text\": \"a\"}\n\n[\"text\"]\n", ECH_E_DATA, "b.jsonl:3"},
               {"{\"txt\": \"a\"}\n", ECH_E_DATA, "no string under the key 'text'"},
               {"{\"text\": \"a\"\n", ECH_E_PARSE, "b.jsonl:1"}};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ech_text out = {0};
        const char *path = scratch_write("b.jsonl", bad[i].content, strlen(bad[i].content));
        assert_fails(read_all(path, ECH_SPLIT_AUTO, &out), bad[i].status, bad[i].words);
        ech_text_fini(&out);
    }
    ech_text out = {0};
    assert_fails(read_all(scratch_path("none.txt"), ECH_SPLIT_AUTO, &out), ECH_E_DATA,
                 "does not exist");
}

/* --- compression --- */

static size_t gzip(const char *text, char *out, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text,
                  .avail_in = (uInt)strlen(text),
                  .next_out = (Bytef *)out,
                  .avail_out = (uInt)room};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return room - z.avail_out;
}

static size_t zstd(const char *text, char *out, size_t room)
{
    const size_t n = ZSTD_compress(out, room, text, strlen(text), 3);
    assert_false(ZSTD_isError(n));
    return n;
}

/* Two members in a row are one text; a cut or flipped file is damaged, wherever it is cut. */
static void compressed_files_are_read_and_checked(void **state)
{
    static size_t (*const pack[2])(const char *, char *, size_t) = {gzip, zstd};
    static const char *const names[2] = {"c.txt.gz", "c.txt.zst"};
    (void)state;

    for (int k = 0; k < 2; k++) {
        char file[512];
        const size_t one = pack[k]("hello there, ", file, sizeof file);
        const size_t all = one + pack[k]("hello again\n", file + one, sizeof file - one);
        ech_text out = {0};
        assert_ok(read_all(scratch_write(names[k], file, all), ECH_SPLIT_AUTO, &out));
        assert_string_equal(ech_text_get(&out), "hello there, hello again\n|");
        ech_text_fini(&out);
        for (size_t cut = 5; cut < all; cut++) {
            if (cut == one)
                continue;
            ech_text part = {0};
            assert_fails(read_all(scratch_write(names[k], file, cut), ECH_SPLIT_AUTO, &part),
                         ECH_E_DATA, "compression is damaged");
            ech_text_fini(&part);
        }
        memcpy(file + one, "garbage!", 8);
        ech_text part = {0};
        assert_fails(read_all(scratch_write(names[k], file, all), ECH_SPLIT_AUTO, &part),
                     ECH_E_DATA, "compression is damaged");
        ech_text_fini(&part);
    }
}

/* --- pieces --- */

/* A document of 5 MB comes in pieces of about one, each cut before white space after a letter; put
 * together they are the document. */
static void long_documents_come_in_pieces(void **state)
{
    (void)state;
    const size_t bytes = 5000000;
    char *text = malloc(bytes);
    ech_text_options opt = ech_text_options_default();
    ech_text_source *s = NULL;
    ech_text_piece p;
    size_t at = 0;
    int n = 0;

    for (size_t i = 0; i < bytes; i++)
        text[i] = i % 61 == 60 ? '\n' : i % 7 == 6 ? ' ' : i % 5 == 4 ? '.' : (char)('a' + i % 26);
    assert_ok(ech_text_source_open(scratch_write("l.txt", text, bytes), &opt, &s));
    while (ech_text_source_next(s, &p) == ECH_OK) {
        assert_true(p.bytes <= bytes - at && memcmp(p.text, text + at, p.bytes) == 0);
        assert_int_equal(p.begins, n == 0);
        at += p.bytes;
        assert_int_equal(p.ends, at == bytes);
        assert_in_range(p.bytes, 1, 1100000);
        if (!p.ends) {
            assert_in_range(p.text[p.bytes - 1], 'a', 'z');
            assert_true(text[at] == ' ' || text[at] == '\n');
        }
        n++;
    }
    assert_int_equal(at, bytes);
    assert_in_range(n, 4, 6);
    ech_text_source_close(&s);
    free(text);
}

/* Without a place to cut, pieces still end, at the border of a character. */
static void endless_lines_are_cut_between_characters(void **state)
{
    (void)state;
    const size_t bytes = 140000001; /* three bytes a character */
    char *text = malloc(bytes);
    ech_text_options opt = ech_text_options_default();
    ech_text_source *s = NULL;
    ech_text_piece p;
    size_t at = 0;

    for (size_t i = 0; i < bytes; i++)
        text[i] = "\xE4\xB8\xAD"[i % 3];
    assert_ok(ech_text_source_open(scratch_write("e.txt", text, bytes), &opt, &s));
    while (ech_text_source_next(s, &p) == ECH_OK) {
        at += p.bytes;
        assert_in_range(p.bytes, 1, 70000000);
        assert_int_equal(at % 3, 0);
    }
    assert_int_equal(at, bytes);
    ech_text_source_close(&s);
    (void)scratch_write("e.txt", "", 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_told_apart),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(compressed_files_are_read_and_checked),
        cmocka_unit_test(long_documents_come_in_pieces),
        cmocka_unit_test(endless_lines_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
