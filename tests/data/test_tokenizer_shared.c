/* RUN: np=1 timeout=60 tags=fast */
/* The real GPT-2, Llama-2 and stories260K tokenizers against recorded results; speed. */
#include "cases.h"
#include "fixture.h"

#include "base/clock.h"
#include "base/io.h"

static ech_node *cases_of(ech_node **root, const char *name)
{
    if (!*root)
        assert_ok(
            ech_node_read_file(fixture_path("tests/data/fixtures/shared_cases.json"), true, root));
    return (ech_node *)(uintptr_t)ech_node_find(*root, name);
}

static ech_tokenizer *open_shared(const char *name)
{
    ech_tokenizer *t = NULL;
    assert_ok(ech_tokenizer_open(shared_path(name), &t));
    return t;
}

static void gpt2_gives_hf_ids(void **state)
{
    ech_node *root = NULL;
    (void)state;
    ech_tokenizer *t = open_shared("data/gpt2/tokenizer.json");
    assert_int_equal(ech_tokenizer_vocab(t), 50257);
    assert_int_equal(ech_tokenizer_eos(t), 50256);
    check_cases("gpt2", t, cases_of(&root, "gpt2"), ECH_ENCODE_PLAIN);
    ech_tokenizer_destroy(&t);
    t = open_shared("data/gpt2/encoder.json");
    check_cases("gpt2 pair", t, cases_of(&root, "gpt2"), ECH_ENCODE_PLAIN);
    ech_tokenizer_destroy(&t);
    ech_node_destroy(&root);
}

static void llama2_gives_hf_ids(void **state)
{
    ech_node *root = NULL;
    (void)state;
    ech_tokenizer *t = open_shared("data/llama2/tokenizer.json");
    assert_int_equal(ech_tokenizer_vocab(t), 32000);
    assert_int_equal(ech_tokenizer_bos(t), 1);
    assert_int_equal(ech_tokenizer_eos(t), 2);
    assert_int_equal(ech_tokenizer_document_flags(t), ECH_ENCODE_BOS | ECH_ENCODE_EOS);
    check_cases("llama2", t, cases_of(&root, "llama2"), ECH_ENCODE_PLAIN);
    ech_tokenizer_destroy(&t);
    ech_node_destroy(&root);
}

static void stories260k_gives_llama2c_ids(void **state)
{
    ech_node *root = NULL;
    (void)state;
    ech_tokenizer *t = open_shared("data/stories260K/tok512.bin");
    assert_int_equal(ech_tokenizer_vocab(t), 512);
    check_cases("tok512", t, cases_of(&root, "tok512"), ECH_ENCODE_BOS);
    ech_tokenizer_destroy(&t);
    ech_node_destroy(&root);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#endif

/* At least 10 MB/s of one core on English text (the words of this project's headers). */
static void encoding_is_fast(void **state)
{
    (void)state;
#ifdef IS_SANITIZED
    skip();
#endif
    static const char *const files[] = {"src/base/io.h", "src/program/program.h",
                                        "src/data/tokenizer.h", "src/base/node.h"};
    ech_tokenizer *t = open_shared("data/gpt2/tokenizer.json");
    ech_text text = {0};

    for (int i = 0; text.bytes < 8000000; i++) {
        char *part = NULL;
        size_t bytes = 0;
        assert_ok(ech_read_whole(fixture_path(files[i % 4]), 1 << 20, &part, &bytes));
        ech_text_add_bytes(&text, part, bytes);
        ech_text_add(&text, "Round %d of the same text.\n", i);
        free(part);
    }
    double best = 0;
    for (int round = 0; round < 3; round++) {
        ech_ids ids = {0};
        const double began = ech_clock_cpu_s();
        assert_ok(ech_tokenizer_encode(t, text.data, text.bytes, ECH_ENCODE_PLAIN, &ids));
        const double rate = (double)text.bytes / 1e6 / (ech_clock_cpu_s() - began);
        best = rate > best ? rate : best;
        ech_ids_fini(&ids);
    }
    print_message("encoding: %.1f MB/s of one core\n", best);
    assert_true(best >= 10.0);
    ech_text_fini(&text);
    ech_tokenizer_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_gives_hf_ids),
        cmocka_unit_test(llama2_gives_hf_ids),
        cmocka_unit_test(stories260k_gives_llama2c_ids),
        cmocka_unit_test(encoding_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
