/* RUN: np=1 timeout=30 tags=fast */
/* The trainer: worked by hand, equal to HF's on a text, and its file reads back. */
#include "check.h"
#include "fixture.h"

#include "base/io.h"
#include "base/node.h"
#include "data/bpe_train.h"
#include "data/tokenizer.h"

#include <stdlib.h>

static ech_bpe_result train(const char *text, size_t bytes, int64_t vocab, ech_text *json)
{
    ech_bpe_config config = ech_bpe_config_default();
    ech_bpe_trainer *t = NULL;
    ech_bpe_result result;

    config.vocab = vocab;
    assert_ok(ech_bpe_trainer_create(&config, &t));
    assert_ok(ech_bpe_trainer_add(t, text, bytes));
    assert_ok(ech_bpe_trainer_finish(t, json, &result));
    ech_bpe_trainer_destroy(&t);
    return result;
}

static ech_node *parse(const ech_text *json)
{
    ech_node *root = NULL;
    assert_ok(ech_node_parse_json(ech_text_get(json), json->bytes, "trained", &root));
    return root;
}

/* Words: "ab" x 3, " ab" x 2, " abc" x 2.  Pairs: a b 7, then _ ab 4, then _ab c 2; "ab" with
 * nothing before it is left.  Nothing else occurs twice. */
static void merges_are_those_worked_by_hand(void **state)
{
    (void)state;
    static const char text[] = "ab ab abc\nab abc\nab ab";
    static const char *const wanted[] = {"a b", "\u0120 ab", "\u0120ab c"};
    ech_text json = {0};
    const ech_bpe_result r = train(text, sizeof text - 1, 300, &json);
    ech_node *root = parse(&json);
    const ech_node *model = ech_node_find(root, "model");
    const ech_node *m = ech_node_find(model, "merges")->child;

    assert_int_equal(ech_node_find(model, "merges")->n, 3);
    for (int i = 0; i < 3; i++, m = m->next)
        assert_string_equal(m->string, wanted[i]);
    assert_int_equal(r.vocab, 256 + 3 + 1);
    assert_int_equal(r.text_bytes, sizeof text - 1);
    assert_int_equal(r.n_words, 4); /* "ab", " ab", " abc", "\n" */
    assert_int_equal(ech_node_find(ech_node_find(model, "vocab"), "!")->integer, 0);
    assert_int_equal(ech_node_find(ech_node_find(model, "vocab"), "<|endoftext|>")->integer, 259);
    ech_node_destroy(&root);
    ech_text_fini(&json);
}

/* Overlapping pairs: "aaaa" has a a three times, but merges twice. */
static void equal_neighbours_merge_once(void **state)
{
    (void)state;
    static const char text[] = "aaaa\naaaa\naaaaa";
    static const char *const wanted[] = {"a a", "aa aa"};
    ech_text json = {0};

    (void)train(text, sizeof text - 1, 300, &json);
    ech_node *root = parse(&json);
    const ech_node *list = ech_node_find(ech_node_find(root, "model"), "merges");
    assert_int_equal(list->n, 2);
    assert_string_equal(list->child->string, wanted[0]);
    assert_string_equal(list->child->next->string, wanted[1]);
    ech_node_destroy(&root);
    ech_text_fini(&json);
}

static void merges_equal_hfs(void **state)
{
    (void)state;
    ech_node *hf = NULL;
    ech_text json = {0};
    char *text = NULL;
    size_t bytes = 0;
    int n = 0;

    assert_ok(ech_read_whole(fixture_path("tests/data/fixtures/text.txt"), 1 << 20, &text, &bytes));
    assert_ok(ech_node_read_file(fixture_path("tests/data/fixtures/model_bytes.json"), true, &hf));
    const ech_bpe_result r = train(text, bytes, 420, &json);
    assert_int_equal(r.vocab, 420);
    ech_node *root = parse(&json);
    const ech_node *model = ech_node_find(root, "model");
    const ech_node *ours = ech_node_find(model, "merges")->child;
    for (const ech_node *v = ech_node_find(hf, "merges")->child; v; v = v->next, n++) {
        char pair[128];
        (void)snprintf(pair, sizeof pair, "%s %s", v->child->string, v->child->next->string);
        assert_non_null(ours);
        if (strcmp(ours->string, pair) != 0)
            fail_msg("merge %d is '%s', HF's is '%s'", n, ours->string, pair);
        ours = ours->next;
    }
    assert_null(ours);
    assert_in_range(n, 150, 170);
    for (const ech_node *v = ech_node_find(hf, "vocab")->child; v; v = v->next)
        assert_int_equal(ech_node_find(ech_node_find(model, "vocab"), v->key)->integer, v->integer);
    ech_node_destroy(&root);
    ech_node_destroy(&hf);
    ech_text_fini(&json);
    free(text);
}

/* The same text in any number of pieces gives the same file, byte for byte; and the file works. */
static void the_file_is_a_function_of_the_text(void **state)
{
    (void)state;
    ech_bpe_config config = ech_bpe_config_default();
    ech_bpe_trainer *trainer = NULL;
    ech_bpe_result r;
    ech_text json = {0};
    ech_text again = {0};
    ech_tokenizer *t = NULL;
    ech_ids ids = {0};
    ech_text back = {0};
    char *text = NULL;
    size_t bytes = 0;

    assert_ok(ech_read_whole(fixture_path("tests/data/fixtures/text.txt"), 1 << 20, &text, &bytes));
    (void)train(text, bytes, 400, &json);
    config.vocab = 400;
    assert_ok(ech_bpe_trainer_create(&config, &trainer));
    size_t from = 0;
    for (size_t i = 1; i < bytes; i++) {
        if (text[i] == ' ' && text[i - 1] >= 'a' && text[i - 1] <= 'z' && i % 7 == 0) {
            assert_ok(ech_bpe_trainer_add(trainer, text + from, i - from));
            from = i;
        }
    }
    assert_ok(ech_bpe_trainer_add(trainer, text + from, bytes - from));
    assert_ok(ech_bpe_trainer_finish(trainer, &again, &r));
    ech_bpe_trainer_destroy(&trainer);
    assert_int_equal(json.bytes, again.bytes);
    assert_memory_equal(json.data, again.data, json.bytes);

    assert_ok(ech_tokenizer_from_json(ech_text_get(&json), json.bytes, "trained", &t));
    assert_int_equal(ech_tokenizer_vocab(t), 400);
    assert_int_equal(ech_tokenizer_eos(t), 399);
    assert_ok(ech_tokenizer_encode(t, text, bytes, ECH_ENCODE_EOS, &ids));
    assert_in_range(ids.n, bytes / 5, bytes / 2);
    assert_ok(ech_tokenizer_decode(t, ids.data, ids.n, false, &back));
    assert_int_equal(back.bytes, bytes);
    assert_memory_equal(back.data, text, bytes);
    ech_tokenizer_destroy(&t);
    ech_ids_fini(&ids);
    ech_text_fini(&back);
    ech_text_fini(&json);
    ech_text_fini(&again);
    free(text);
}

static void impossible_requests_are_refused(void **state)
{
    static const char *const ordinary[] = {"ab"};
    (void)state;
    ech_bpe_config config = ech_bpe_config_default();
    ech_bpe_trainer *t = NULL;
    ech_bpe_result r;
    ech_text json = {0};

    config.vocab = 256;
    assert_fails(ech_bpe_trainer_create(&config, &t), ECH_E_CONFIG, "wanted 257..4194304");
    config.vocab = 300;
    config.min_count = 0;
    assert_fails(ech_bpe_trainer_create(&config, &t), ECH_E_CONFIG, "wanted >= 1");
    config.min_count = 1;
    assert_ok(ech_bpe_trainer_create(&config, &t));
    assert_fails(ech_bpe_trainer_finish(t, &json, &r), ECH_E_DATA, "no text");
    ech_bpe_trainer_destroy(&t);
    config.special = ordinary;
    assert_ok(ech_bpe_trainer_create(&config, &t));
    assert_ok(ech_bpe_trainer_add(t, "ab", 2));
    assert_fails(ech_bpe_trainer_finish(t, &json, &r), ECH_E_DATA, "'ab' is empty or also");
    ech_bpe_trainer_destroy(&t);
    ech_text_fini(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_those_worked_by_hand),
        cmocka_unit_test(equal_neighbours_merge_once),
        cmocka_unit_test(merges_equal_hfs),
        cmocka_unit_test(the_file_is_a_function_of_the_text),
        cmocka_unit_test(impossible_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
