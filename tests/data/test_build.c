/* RUN: np=1 timeout=60 tags=fast */
/* Text files to token files: documents, separators, pieces; and nothing half-written on failure. */
#include "check.h"
#include "fixture.h"
#include "folder.h"

#include "base/io.h"
#include "data/build.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static ech_tokenizer *train_small(void)
{
    ech_bpe_config config = ech_bpe_config_default();
    const char *files[1] = {fixture_path("tests/data/fixtures/text.txt")};
    ech_build_input input = {.files = files, .n_files = 1, .text = ech_text_options_default()};
    ech_bpe_result r;
    ech_text json = {0};
    ech_tokenizer *t = NULL;

    config.vocab = 400;
    assert_ok(ech_data_train_tokenizer(&input, &config, &json, &r));
    assert_int_equal(r.vocab, 400);
    assert_ok(ech_tokenizer_from_json(ech_text_get(&json), json.bytes, "trained", &t));
    ech_text_fini(&json);
    return t;
}

static ech_build_config config_of(ech_tokenizer *t, const char *const *files, int n)
{
    return (ech_build_config){
        .input = {.files = files, .n_files = n, .text = ech_text_options_default()},
        .tokenizer = t,
        .tokenizer_name = "small",
        .document_flags = ech_tokenizer_document_flags(t),
        .out = scratch_path("o.bin")};
}

/* The text of document i, without the token that ends it. */
static void document_text(const ech_token_file *f, const ech_tokenizer *t, int64_t i, ech_text *out)
{
    int64_t start = 0;
    int64_t n = 0;

    assert_ok(ech_token_file_document(f, i, &start, &n));
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    assert_ok(ech_token_file_read(f, start, n, ids));
    assert_int_equal(ids[n - 1], ech_tokenizer_eos(t));
    for (int64_t k = 0; k + 1 < n; k++)
        assert_int_not_equal(ids[k], ech_tokenizer_eos(t));
    assert_ok(ech_tokenizer_decode(t, ids, (size_t)n - 1, true, out));
    free(ids);
}

static void documents_come_back(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"one two\"}\n{\"text\": \"<|endoftext|>\"}\n";
    ech_tokenizer *t = train_small();
    const char *files[2] = {scratch_write("a.txt", "plain text\n", 11),
                            scratch_write("b.jsonl", lines, sizeof lines - 1)};
    static const char *const wanted[] = {"plain text\n", "one two", "<|endoftext|>"};
    ech_build_config config = config_of(t, files, 2);
    ech_build_result r;
    ech_token_file *f = NULL;

    config.document_flags |= ECH_ENCODE_SPECIAL_AS_TEXT;
    assert_ok(ech_data_build(&config, &r));
    assert_int_equal(r.n_documents, 3);
    assert_int_equal(r.text_bytes, 11 + 7 + 13);
    assert_ok(ech_token_file_open(config.out, NULL, &f));
    assert_ok(ech_token_file_verify(f));
    assert_int_equal(ech_token_file_info(f)->n_documents, 3);
    assert_int_equal(ech_token_file_info(f)->n_tokens, r.n_tokens);
    assert_int_equal(ech_token_file_info(f)->vocab, 400);
    for (int64_t i = 0; i < 3; i++) {
        ech_text out = {0};
        document_text(f, t, i, &out);
        assert_string_equal(ech_text_get(&out), wanted[i]);
        ech_text_fini(&out);
    }
    ech_token_file_close(&f);
    ech_tokenizer_destroy(&t);
}

/* A document of several pieces has the ids of the whole text and one end. */
static void a_long_document_is_one(void **state)
{
    (void)state;
    ech_tokenizer *t = train_small();
    ech_text text = {0};
    char *part = NULL;
    size_t bytes = 0;
    ech_build_result r;
    ech_token_file *f = NULL;
    ech_ids ids = {0};

    assert_ok(ech_read_whole(fixture_path("tests/data/fixtures/text.txt"), 1 << 20, &part, &bytes));
    for (int i = 0; i < 150; i++) {
        ech_text_add_bytes(&text, part, bytes);
        ech_text_add(&text, "%d\n\n", i);
    }
    const char *files[1] = {scratch_write("long.txt", text.data, text.bytes)};
    ech_build_config config = config_of(t, files, 1);
    assert_ok(ech_data_build(&config, &r));
    assert_int_equal(r.n_documents, 1);
    assert_int_equal(r.text_bytes, text.bytes);
    assert_ok(ech_tokenizer_encode(t, text.data, text.bytes, ECH_ENCODE_EOS, &ids));
    assert_int_equal(r.n_tokens, ids.n);
    assert_ok(ech_token_file_open(config.out, NULL, &f));
    int32_t *got = calloc(ids.n, sizeof *got);
    assert_ok(ech_token_file_read(f, 0, (int64_t)ids.n, got));
    assert_memory_equal(got, ids.data, ids.n * sizeof *got);
    free(got);
    ech_token_file_close(&f);
    ech_ids_fini(&ids);
    ech_text_fini(&text);
    free(part);
    ech_tokenizer_destroy(&t);
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    ech_tokenizer *t = train_small();
    ech_build_result r;
    const char *files[2] = {scratch_write("g.txt", "good text\n", 10),
                            scratch_write("bad.jsonl", "{\"text\": 1}\n", 12)};
    ech_build_config config = config_of(t, files, 2);

    config.out = scratch_path("n.bin");
    assert_fails(ech_data_build(&config, &r), ECH_E_DATA, "bad.jsonl:1");
    files[1] = scratch_path("absent.txt");
    assert_fails(ech_data_build(&config, &r), ECH_E_DATA, "does not exist");
    files[1] = scratch_write("empty.txt", "", 0);
    config.dtype = ECH_TOKEN_U8;
    assert_fails(ech_data_build(&config, &r), ECH_E_DATA, "uint8 holds ids of a vocabulary");
    config.dtype = ECH_TOKEN_AUTO;
    config.input.n_files = 0;
    assert_fails(ech_data_build(&config, &r), ECH_E_USAGE, "no text file");
    config.input.files = files + 1;
    config.input.n_files = 1;
    assert_fails(ech_data_build(&config, &r), ECH_E_DATA, "no token");
    assert_false(ech_path_exists(config.out));
    assert_false(ech_path_exists(scratch_path("n.idx")));
    assert_false(ech_path_exists(scratch_path("n.bin.json")));
    ech_tokenizer_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_come_back),
        cmocka_unit_test(a_long_document_is_one),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
