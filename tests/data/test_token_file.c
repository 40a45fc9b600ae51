/* RUN: np=1 timeout=20 tags=fast */
/* Token files: the three forms read as they are, every way they can be wrong refused by name. */
#include "check.h"
#include "folder.h"

#include "data/token_file.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* --- files made by hand --- */

typedef struct buffer {
    unsigned char data[8192];
    size_t n;
} buffer;

static void put(buffer *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof b->data);
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

/* What an index says; changed field by field to damage it. */
typedef struct index_spec {
    const char *magic;
    uint64_t version;
    uint8_t code;
    uint64_t n_seq, n_doc;
    int32_t len[3];
    int64_t off[3];
    int64_t doc[3];
    size_t tail; /* bytes more at the end */
} index_spec;

/* Three sequences of 2, 0 and 4 tokens; two documents: the first two sequences, the last. */
static index_spec good_index(void)
{
    return (index_spec){.magic = "MMIDIDX\0",
                        .version = 1,
                        .code = 8,
                        .n_seq = 3,
                        .n_doc = 3,
                        .len = {2, 0, 4},
                        .off = {0, 4, 4},
                        .doc = {0, 2, 3}};
}

static void write_index(const index_spec *s)
{
    buffer b = {.n = 0};

    put(&b, s->magic, 9);
    put(&b, &s->version, 8);
    put(&b, &s->code, 1);
    put(&b, &s->n_seq, 8);
    put(&b, &s->n_doc, 8);
    put(&b, s->len, sizeof s->len);
    put(&b, s->off, sizeof s->off);
    put(&b, s->doc, sizeof s->doc);
    put(&b, "\0\0\0\0\0\0\0\0", s->tail);
    (void)scratch_write("m.idx", b.data, b.n);
}

static const uint16_t six[6] = {7, 65535, 0, 300, 1, 2};

static const char *write_megatron(const index_spec *s)
{
    write_index(s);
    return scratch_write("m.bin", six, sizeof six);
}

static void *llmc_file(int32_t magic, int32_t version, int32_t count, const void *tokens,
                       size_t bytes)
{
    int32_t *file = calloc(1, 1024 + bytes);
    file[0] = magic;
    file[1] = version;
    file[2] = count;
    memcpy((char *)file + 1024, tokens, bytes);
    return file;
}

static ech_status open_with(const char *path, ech_token_type dtype, int64_t vocab,
                            ech_token_file **f)
{
    ech_token_options opt = ech_token_options_default();
    opt.dtype = dtype;
    opt.vocab = vocab;
    return ech_token_file_open(path, &opt, f);
}

static void refuse(const char *path, ech_token_type dtype, int64_t vocab, const char *words)
{
    ech_token_file *f = NULL;
    assert_fails(open_with(path, dtype, vocab, &f), ECH_E_DATA, words);
    assert_int_equal(ech_status_exit_code(ECH_E_DATA), 2);
    assert_null(f);
}

/* --- what is read --- */

static void megatron_is_read(void **state)
{
    (void)state;
    const index_spec s = good_index();
    ech_token_file *f = NULL;
    int32_t ids[6];
    int64_t start = -1;
    int64_t n = -1;

    assert_ok(ech_token_file_open(write_megatron(&s), NULL, &f));
    const ech_token_info *info = ech_token_file_info(f);
    assert_int_equal(info->form, ECH_TOKENS_MEGATRON);
    assert_int_equal(info->dtype, ECH_TOKEN_U16);
    assert_int_equal(info->n_tokens, 6);
    assert_int_equal(info->n_documents, 2);
    assert_int_equal(info->max_id, 65535);
    assert_false(info->has_side_file);
    assert_ok(ech_token_file_read(f, 0, 6, ids));
    for (int i = 0; i < 6; i++)
        assert_int_equal(ids[i], six[i]);
    assert_ok(ech_token_file_read(f, 2, 2, ids));
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 300);
    assert_ok(ech_token_file_read(f, 6, 0, ids));
    assert_ok(ech_token_file_document(f, 0, &start, &n));
    assert_int_equal(start, 0);
    assert_int_equal(n, 2);
    assert_ok(ech_token_file_document(f, 1, &start, &n));
    assert_int_equal(start, 2);
    assert_int_equal(n, 4);
    ech_token_file_close(&f);
    assert_null(f);
}

static void megatron_with_modes_is_read(void **state)
{
    (void)state;
    index_spec s = good_index();
    ech_token_file *f = NULL;

    s.tail = 3; /* one byte a sequence: multimodal */
    assert_ok(ech_token_file_open(write_megatron(&s), NULL, &f));
    assert_int_equal(ech_token_file_info(f)->n_tokens, 6);
    ech_token_file_close(&f);
}

static void damaged_index_is_refused(void **state)
{
    (void)state;
    index_spec s;

#define DAMAGE(change, words)                                                                      \
    s = good_index();                                                                              \
    change;                                                                                        \
    refuse(write_megatron(&s), ECH_TOKEN_AUTO, 0, words)

    DAMAGE(s.magic = "MMIDIDY\0", "no Megatron index");
    DAMAGE(s.version = 2, "version 2");
    DAMAGE(s.code = 7, "element code 7");
    DAMAGE(s.code = 0, "element code 0");
    DAMAGE(s.code = 4, "sequence 1 begins at byte 4"); /* as int32 the offsets do not add up */
    DAMAGE(s.n_seq = 0, "0 sequences");
    DAMAGE(s.n_seq = UINT64_MAX / 12, "sequences in an index");
    DAMAGE(s.n_doc = UINT64_MAX / 8, "document boundaries in an index");
    DAMAGE(s.n_doc = 1, "1 document boundaries");
    DAMAGE(s.n_doc = 2, "need");
    DAMAGE(s.tail = 1, "need");
    DAMAGE(s.len[1] = -2, "sequence 1 has length -2");
    DAMAGE(s.off[1] = 5, "sequence 1 begins at byte 5");
    DAMAGE((s.len[2] = 5), "hold 14 bytes");
    DAMAGE((s.len[2] = 3), "hold 10 bytes");
    DAMAGE(s.doc[0] = 1, "begins with 1");
    DAMAGE(s.doc[1] = 4, "boundary 1 is 4");
    DAMAGE(s.doc[1] = -1, "boundary 1 is -1");
    DAMAGE((s.doc[1] = 3, s.doc[2] = 2), "boundary 2 is 2");
    DAMAGE(s.doc[2] = 2, "ends at sequence 2");
#undef DAMAGE

    (void)scratch_write("m.idx", "MMIDIDX", 7);
    refuse(scratch_path("m.bin"), ECH_TOKEN_AUTO, 0, "too short for an index header");
    (void)unlink(scratch_path("m.idx"));
}

static void llmc_is_read(void **state)
{
    (void)state;
    const uint32_t wide[3] = {128255, 0, 9};
    void *narrow = llmc_file(20240520, 1, 6, six, sizeof six);
    void *broad = llmc_file(20240801, 7, 3, wide, sizeof wide);
    ech_token_file *f = NULL;
    int32_t ids[6];

    assert_ok(ech_token_file_open(scratch_write("g.bin", narrow, 1024 + 12), NULL, &f));
    assert_int_equal(ech_token_file_info(f)->form, ECH_TOKENS_LLMC);
    assert_int_equal(ech_token_file_info(f)->n_tokens, 6);
    assert_ok(ech_token_file_read(f, 1, 1, ids));
    assert_int_equal(ids[0], 65535);
    ech_token_file_close(&f);

    assert_ok(ech_token_file_open(scratch_write("l.bin", broad, 1024 + 12), NULL, &f));
    assert_int_equal(ech_token_file_info(f)->dtype, ECH_TOKEN_U32);
    assert_int_equal(ech_token_file_info(f)->max_id, 128255);
    assert_ok(ech_token_file_read(f, 0, 3, ids));
    assert_int_equal(ids[0], 128255);
    assert_int_equal(ids[2], 9);
    ech_token_file_close(&f);
    free(narrow);
    free(broad);
}

static void damaged_llmc_is_refused(void **state)
{
    (void)state;
    void *good = llmc_file(20240520, 1, 6, six, sizeof six);
    void *eval = llmc_file(20240522, 1, 6, six, sizeof six);
    void *version = llmc_file(20240520, 7, 6, six, sizeof six);
    void *none = llmc_file(20240520, 1, 0, six, sizeof six);

    refuse(scratch_write("x.bin", good, 1024 + 10), ECH_TOKEN_AUTO, 0, "10 bytes follow");
    refuse(scratch_write("x.bin", good, 1024 + 11), ECH_TOKEN_AUTO, 0, "11 bytes follow");
    refuse(scratch_write("x.bin", good, 1023), ECH_TOKEN_AUTO, 0, "too short for an llm.c header");
    refuse(scratch_write("x.bin", good, 1024 + 12), ECH_TOKEN_I32, 0, "data.dtype says int32");
    refuse(scratch_write("x.bin", version, 1024 + 12), ECH_TOKEN_AUTO, 0, "llm.c version 7");
    refuse(scratch_write("x.bin", none, 1024), ECH_TOKEN_AUTO, 0, "says 0 tokens");
    refuse(scratch_write("x.bin", eval, 1024 + 12), ECH_TOKEN_AUTO, 0, "evaluation file");
    free(good);
    free(eval);
    free(version);
    free(none);
}

static void bare_is_read_as_its_type(void **state)
{
    (void)state;
    const int64_t wide[2] = {70000, 3};
    const int8_t bytes[3] = {1, 127, 0};
    ech_token_file *f = NULL;
    int32_t ids[6];

    assert_ok(ech_token_file_open(scratch_write("n.bin", six, sizeof six), NULL, &f));
    assert_int_equal(ech_token_file_info(f)->form, ECH_TOKENS_BARE);
    assert_int_equal(ech_token_file_info(f)->n_tokens, 6);
    assert_int_equal(ech_token_file_info(f)->n_documents, 1);
    assert_ok(ech_token_file_read(f, 0, 6, ids));
    assert_int_equal(ids[1], 65535);
    ech_token_file_close(&f);

    assert_ok(open_with(scratch_write("w.bin", wide, 16), ECH_TOKEN_I64, 70001, &f));
    assert_ok(ech_token_file_read(f, 0, 2, ids));
    assert_int_equal(ids[0], 70000);
    ech_token_file_close(&f);

    assert_ok(open_with(scratch_write("b.bin", bytes, 3), ECH_TOKEN_I8, 128, &f));
    assert_int_equal(ech_token_file_info(f)->max_id, 127);
    ech_token_file_close(&f);
}

static void wrong_bare_files_are_refused(void **state)
{
    (void)state;
    int32_t wide[64];
    const int16_t negative[4] = {1, 2, -3, 4};
    const int64_t huge[1] = {(int64_t)1 << 40};

    for (int i = 0; i < 64; i++)
        wide[i] = i;
    refuse(scratch_path("absent.bin"), ECH_TOKEN_AUTO, 0, "does not exist");
    refuse(scratch_folder(), ECH_TOKEN_AUTO, 0, "is a folder");
    refuse(scratch_write("e.bin", "", 0), ECH_TOKEN_AUTO, 0, "is empty");
    refuse(scratch_write("o.bin", six, 11), ECH_TOKEN_AUTO, 0, "no whole number of uint16");
    refuse(scratch_write("o.bin", six, 6), ECH_TOKEN_I32, 0, "no whole number of int32");
    refuse(scratch_write("i.bin", wide, sizeof wide), ECH_TOKEN_AUTO, 0, "looks like 32-bit");
    refuse(scratch_write("s.bin", negative, sizeof negative), ECH_TOKEN_I16, 0,
           "token 2 (int16) is no id");
    refuse(scratch_write("h.bin", huge, sizeof huge), ECH_TOKEN_I64, 0, "beyond 31 bits");
    refuse(scratch_write("n.bin", six, sizeof six), ECH_TOKEN_AUTO, 65535,
           "token 1 has id 65535, the vocabulary has 65535 entries");
    refuse(scratch_write("n.bin", six, sizeof six), ECH_TOKEN_I32, 50257, "vocabulary has 50257");
}

/* Ids of a vocabulary of 70,000 written as 16 bit have wrapped silently: nothing in the file shows
 * it, so the pair of type and vocabulary is refused. */
static void narrow_tokens_of_a_large_vocabulary_are_refused(void **state)
{
    (void)state;
    index_spec s = good_index();

    refuse(scratch_write("v.bin", six, sizeof six), ECH_TOKEN_AUTO, 70000,
           "cannot hold the ids of a vocabulary of 70000");
    refuse(write_megatron(&s), ECH_TOKEN_AUTO, 70000, "cannot hold the ids");
    refuse(write_megatron(&s), ECH_TOKEN_I32, 0, "data.dtype says int32");
    (void)unlink(scratch_path("m.idx"));
}

static void a_file_cut_while_open_is_an_error(void **state)
{
    (void)state;
    uint16_t *tokens = calloc(50000, 2);
    ech_token_file *f = NULL;
    int32_t *ids = calloc(50000, sizeof *ids);

    for (int i = 0; i < 50000; i++)
        tokens[i] = (uint16_t)(i + 1);
    const char *path = scratch_write("c.bin", tokens, 100000);
    assert_ok(ech_token_file_open(path, NULL, &f));
    assert_int_equal(truncate(path, 9001), 0);
    assert_fails(ech_token_file_read(f, 0, 50000, ids), ECH_E_CORRUPT, "c.bin");
    assert_ok(ech_token_file_read(f, 100, 4000, ids));
    assert_int_equal(ids[3999], 4100);
    ech_token_file_close(&f);
    free(tokens);
    free(ids);
}

static void ids_that_change_after_open_are_an_error(void **state)
{
    (void)state;
    uint16_t tokens[4] = {1, 2, 3, 4};
    ech_token_file *f = NULL;
    int32_t ids[4];

    assert_ok(open_with(scratch_write("d.bin", tokens, 8), ECH_TOKEN_AUTO, 5, &f));
    tokens[3] = 5;
    FILE *again = fopen(scratch_path("d.bin"), "r+b");
    assert_int_equal(fwrite(tokens, 2, 4, again), 4);
    assert_int_equal(fclose(again), 0);
    assert_fails(ech_token_file_read(f, 1, 3, ids), ECH_E_DATA, "token 3 has id 5");
    ech_token_file_close(&f);
}

static void unigram_entropy_is_that_of_the_counts(void **state)
{
    (void)state;
    /* 4 x 10, 2 x 20, 1 x 30, 1 x 40: H = (1/2 + 2/4 + 2*3/8) ln 2 = 1.75 ln 2. */
    const uint16_t tokens[8] = {10, 20, 10, 30, 10, 20, 10, 40};
    ech_token_file *f = NULL;
    double h = 0;
    int64_t distinct = 0;

    assert_ok(ech_token_file_open(scratch_write("u.bin", tokens, sizeof tokens), NULL, &f));
    assert_ok(ech_token_file_unigram(f, &h, &distinct));
    assert_near(h, 1.75 * log(2), 1e-15);
    assert_int_equal(distinct, 4);
    ech_token_file_close(&f);
}

static void masks_have_a_byte_a_token(void **state)
{
    (void)state;
    const uint8_t bytes[5] = {1, 0, 1, 1, 0};
    uint8_t got[2];
    ech_mask_file *m = NULL;

    const char *path = scratch_write("k.mask", bytes, 5);
    assert_fails(ech_mask_file_open(path, 6, &m), ECH_E_DATA, "5 bytes for a file of 6 tokens");
    assert_fails(ech_mask_file_open(scratch_path("no.mask"), 6, &m), ECH_E_DATA, "does not exist");
    assert_null(m);
    assert_ok(ech_mask_file_open(path, 5, &m));
    assert_ok(ech_mask_file_read(m, 1, 2, got));
    assert_int_equal(got[0], 0);
    assert_int_equal(got[1], 1);
    ech_mask_file_close(&m);
}

static void type_names_go_both_ways(void **state)
{
    (void)state;
    ech_token_type t = ECH_TOKEN_AUTO;

    assert_ok(ech_token_type_parse("uint16", &t));
    assert_int_equal(t, ECH_TOKEN_U16);
    assert_ok(ech_token_type_parse("int64", &t));
    assert_int_equal(ech_token_type_bytes(t), 8);
    assert_ok(ech_token_type_parse("auto", &t));
    assert_int_equal(t, ECH_TOKEN_AUTO);
    assert_fails(ech_token_type_parse("unit16", &t), ECH_E_CONFIG, "uint16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatron_is_read),
        cmocka_unit_test(megatron_with_modes_is_read),
        cmocka_unit_test(damaged_index_is_refused),
        cmocka_unit_test(llmc_is_read),
        cmocka_unit_test(damaged_llmc_is_refused),
        cmocka_unit_test(bare_is_read_as_its_type),
        cmocka_unit_test(wrong_bare_files_are_refused),
        cmocka_unit_test(narrow_tokens_of_a_large_vocabulary_are_refused),
        cmocka_unit_test(a_file_cut_while_open_is_an_error),
        cmocka_unit_test(ids_that_change_after_open_are_an_error),
        cmocka_unit_test(unigram_entropy_is_that_of_the_counts),
        cmocka_unit_test(masks_have_a_byte_a_token),
        cmocka_unit_test(type_names_go_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
