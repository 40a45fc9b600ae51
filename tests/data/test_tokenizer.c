/* RUN: np=1 timeout=60 tags=fast */
/* Tokenizers against HF's and llama2.c's results (fixtures of make_tokenizer_fixtures.py), what is
 * refused, and properties that need no oracle. */
#include "cases.h"
#include "fixture.h"
#include "folder.h"

#include "base/io.h"
#include "base/rng.h"
#include "data/tokenizer_parts.h"

#include <unistd.h>

static ech_node *read_json(const char *name)
{
    ech_node *root = NULL;
    char path[128];

    (void)snprintf(path, sizeof path, "tests/data/fixtures/%s", name);
    assert_ok(ech_node_read_file(fixture_path(path), true, &root));
    return root;
}

/* tokenizer.json = the variant's head and the rest of the model's file. */
static void variant_json(const ech_node *variant, ech_text *json)
{
    char path[128];
    char *model = NULL;
    size_t bytes = 0;

    (void)snprintf(path, sizeof path, "tests/data/fixtures/model_%s.json",
                   ech_node_find(variant, "model")->string);
    assert_ok(ech_read_whole(fixture_path(path), 1 << 20, &model, &bytes));
    ech_text_add(json, "%s%s}", ech_node_find(variant, "head")->string, model + 1);
    free(model);
}

static ech_tokenizer *open_variant(const char *name)
{
    char file[64];
    ech_tokenizer *t = NULL;
    ech_text json = {0};

    (void)snprintf(file, sizeof file, "variant_%s.json", name);
    ech_node *variant = read_json(file);
    variant_json(variant, &json);
    assert_ok(ech_tokenizer_from_json(ech_text_get(&json), json.bytes, name, &t));
    ech_text_fini(&json);
    ech_node_destroy(&variant);
    return t;
}

/* --- against the oracles --- */

static void every_kind_gives_hf_ids(void **state)
{
    static const char *const names[] = {"gpt2",
                                        "llama3",
                                        "qwen2",
                                        "deepseek",
                                        "digits",
                                        "prefix",
                                        "removed",
                                        "added",
                                        "llama2",
                                        "metaspace-first",
                                        "metaspace-always",
                                        "metaspace-never",
                                        "metaspace-split"};
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[64];
        (void)snprintf(file, sizeof file, "variant_%s.json", names[i]);
        ech_node *variant = read_json(file);
        ech_tokenizer *t = open_variant(names[i]);
        check_cases(names[i], t, ech_node_find(variant, "cases"), ECH_ENCODE_PLAIN);
        check_cases(names[i], t, ech_node_find(variant, "cases"), ECH_ENCODE_PLAIN); /* cached */
        ech_tokenizer_destroy(&t);
        ech_node_destroy(&variant);
    }
}

static void llama2c_gives_its_own_ids(void **state)
{
    (void)state;
    ech_node *cases = read_json("llama2c.json");
    ech_tokenizer *t = NULL;
    size_t n = 0;

    assert_ok(ech_tokenizer_open(fixture_path("tests/data/fixtures/llama2c.bin"), &t));
    assert_int_equal(ech_tokenizer_bos(t), 1);
    assert_int_equal(ech_tokenizer_eos(t), 2);
    assert_int_equal(ech_tokenizer_document_flags(t), ECH_ENCODE_BOS);
    check_cases("llama2c", t, cases, ECH_ENCODE_BOS);

    /* Its decoder: raw bytes, a space dropped right after BOS only. */
    const char *s = ech_tokenizer_piece(t, 5, 3 + 'A', &n);
    assert_int_equal(n, 1);
    assert_int_equal(s[0], 'A');
    ech_ids ids = {0};
    assert_ok(ech_tokenizer_encode(t, " ", 1, ECH_ENCODE_BOS, &ids));
    s = ech_tokenizer_piece(t, 1, ids.data[1], &n); /* two spaces in one token */
    assert_int_equal(n, 1);
    assert_int_equal(s[0], ' ');
    (void)ech_tokenizer_piece(t, 9, ids.data[1], &n);
    assert_int_equal(n, 2);
    ech_ids_fini(&ids);
    ech_tokenizer_destroy(&t);
    ech_node_destroy(&cases);
}

static void nfc_is_unicodes(void **state)
{
    (void)state;
    ech_node *cases = read_json("nfc.json");
    int n = 0;

    for (const ech_node *c = cases->child; c; c = c->next, n++) {
        ech_text out = {0};
        const ech_node *want = c->child->next;
        assert_ok(ech_nfc(c->child->string, c->child->string_bytes, &out));
        if (strcmp(ech_text_get(&out), want->string) != 0)
            fail_msg("case %d: '%s' became '%s', wanted '%s'", n, c->child->string,
                     ech_text_get(&out), want->string);
        if (ech_nfc_is_plain(c->child->string, c->child->string_bytes))
            assert_string_equal(c->child->string, want->string);
        ech_text_fini(&out);
    }
    assert_int_equal(n, 300);
    ech_node_destroy(&cases);
}

/* --- without an oracle --- */

static void random_bytes(uint64_t seed, char *out, size_t n)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_TEST, 0, 0);

    for (size_t i = 0; i < n; i++) {
        const uint32_t r = ech_rng_u32(&key, i);
        out[i] = (char)(r & 0x300 ? ' ' + r % 95 : r >> 12 & 0xFF);
    }
}

/* Byte level holds any bytes, UTF-8 or not. */
static void any_bytes_come_back(void **state)
{
    static const char *const names[] = {"gpt2", "llama3", "deepseek", "digits"};
    (void)state;

    for (size_t v = 0; v < 4; v++) {
        ech_tokenizer *t = open_variant(names[v]);
        for (uint64_t seed = 0; seed < 200; seed++) {
            char text[300];
            ech_ids ids = {0};
            ech_text back = {0};
            random_bytes(seed, text, sizeof text);
            assert_ok(ech_tokenizer_encode(t, text, sizeof text, ECH_ENCODE_PLAIN, &ids));
            assert_ok(ech_tokenizer_decode(t, ids.data, ids.n, true, &back));
            assert_int_equal(back.bytes, sizeof text);
            assert_memory_equal(back.data, text, sizeof text);
            ech_text_fini(&back);
            ech_ids_fini(&ids);
        }
        ech_tokenizer_destroy(&t);
    }
}

/* Pieces cut between a letter and white space give the ids of the whole, for every kind. */
static void cutting_a_document_changes_nothing(void **state)
{
    static const char *const names[] = {"gpt2", "llama3", "qwen2", "deepseek", "digits", "llama2"};
    (void)state;
    char *text = NULL;
    size_t bytes = 0;

    assert_ok(ech_read_whole(fixture_path("tests/data/fixtures/text.txt"), 1 << 20, &text, &bytes));
    for (size_t v = 0; v < sizeof names / sizeof names[0]; v++) {
        ech_tokenizer *t = open_variant(names[v]);
        ech_ids whole = {0};
        ech_ids parts = {0};
        size_t from = 0;
        assert_ok(ech_tokenizer_encode(t, text, bytes, ECH_ENCODE_PLAIN, &whole));
        for (size_t i = 1; i <= bytes; i++) {
            const bool is_cut = i < bytes && text[i - 1] >= 'a' && text[i - 1] <= 'z' &&
                                (text[i] == ' ' || text[i] == '\n');
            if (!is_cut && i < bytes)
                continue;
            assert_ok(ech_tokenizer_encode(t, text + from, i - from,
                                           from ? ECH_ENCODE_CONTINUES : ECH_ENCODE_PLAIN, &parts));
            from = i;
        }
        assert_int_equal(whole.n, parts.n);
        assert_memory_equal(whole.data, parts.data, whole.n * sizeof *whole.data);
        ech_ids_fini(&whole);
        ech_ids_fini(&parts);
        ech_tokenizer_destroy(&t);
    }
    free(text);
}

/* Long pieces go through the heap, short ones do not: the same merges either way. */
static void long_pieces_merge_as_short_ones(void **state)
{
    (void)state;
    ech_merges m = {0};
    ech_bpe_scratch scratch = {0};

    /* 1 1 -> 2, 2 2 -> 3, 2 1 -> 4, 4 3 -> 5; the leftmost of equals first. */
    assert_ok(ech_merges_add(&m, 1, 1, 0, 2));
    assert_ok(ech_merges_add(&m, 2, 2, 1, 3));
    assert_ok(ech_merges_add(&m, 2, 1, 2, 4));
    assert_ok(ech_merges_add(&m, 4, 3, 3, 5));
    for (size_t n = 2; n < 200; n++) {
        int32_t ids[200];
        size_t k = n;
        for (size_t i = 0; i < n; i++)
            ids[i] = 1;
        assert_ok(ech_bpe_apply(&m, &scratch, ids, &k));
        /* n ones: n/4 threes, then a two, a four (two and one) or a one. */
        const size_t threes = n / 4;
        assert_int_equal(k, threes + (n % 4 != 0));
        for (size_t i = 0; i < threes; i++)
            assert_int_equal(ids[i], 3);
        if (n % 4)
            assert_int_equal(ids[threes], n % 4 == 1 ? 1 : n % 4 == 2 ? 2 : 4);
    }
    ech_merges_fini(&m);
    ech_bpe_scratch_fini(&scratch);
}

static void controls_are_added_and_found(void **state)
{
    (void)state;
    ech_tokenizer *t = open_variant("llama3");
    const int32_t eot = ech_tokenizer_find(t, "<|endoftext|>");
    ech_ids ids = {0};
    char hash[33];
    char again[33];

    assert_int_equal(eot, ech_tokenizer_vocab(t) - 1);
    assert_int_equal(ech_tokenizer_eos(t), eot);
    assert_int_equal(ech_tokenizer_bos(t), eot);
    assert_true(ech_tokenizer_is_special(t, eot));
    assert_false(ech_tokenizer_is_special(t, 0));
    assert_int_equal(ech_tokenizer_find(t, "<|nothing|>"), -1);
    assert_int_equal(ech_tokenizer_document_flags(t), ECH_ENCODE_BOS | ECH_ENCODE_EOS);
    assert_ok(ech_tokenizer_encode(t, "a", 1, ECH_ENCODE_BOS | ECH_ENCODE_EOS, &ids));
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.data[0], eot);
    assert_int_equal(ids.data[2], eot);
    ids.n = 0;
    assert_ok(ech_tokenizer_encode(t, "<|endoftext|>", 13, ECH_ENCODE_SPECIAL_AS_TEXT, &ids));
    assert_in_range(ids.n, 2, 13);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.data[i], eot);
    ech_tokenizer_hash(t, hash);
    ech_tokenizer_destroy(&t);
    t = open_variant("gpt2"); /* the same vocabulary */
    ech_tokenizer_hash(t, again);
    assert_string_equal(hash, again);
    assert_int_equal(ech_tokenizer_document_flags(t), ECH_ENCODE_EOS);
    ech_tokenizer_destroy(&t);
    t = open_variant("llama2");
    ech_tokenizer_hash(t, again);
    assert_string_not_equal(hash, again);
    ech_tokenizer_destroy(&t);
    ech_ids_fini(&ids);
}

/* The same tokenizer as encoder.json and vocab.bpe, and by its folder. */
static void gpt2s_pair_of_files_is_read(void **state)
{
    (void)state;
    ech_node *model = read_json("model_bytes.json");
    ech_text vocab = {0};
    ech_text merges = {0};
    ech_tokenizer *t = NULL;

    ech_text_add(&vocab, "{");
    for (const ech_node *v = ech_node_find(model, "vocab")->child; v; v = v->next) {
        ech_text_add(&vocab, vocab.bytes > 1 ? ", " : "");
        ech_text_add_json_string(&vocab, v->key, strlen(v->key));
        ech_text_add(&vocab, ": %d", (int)v->integer);
    }
    ech_text_add(&vocab, "}");
    ech_text_add(&merges, "#version: 0.2\n");
    for (const ech_node *v = ech_node_find(model, "merges")->child; v; v = v->next)
        ech_text_add(&merges, "%s %s\n", v->child->string, v->child->next->string);
    (void)scratch_write("encoder.json", ech_text_get(&vocab), vocab.bytes);
    assert_fails(ech_tokenizer_open(scratch_folder(), &t), ECH_E_DATA, "'vocab.bpe' is not beside");
    (void)scratch_write("vocab.bpe", ech_text_get(&merges), merges.bytes);
    assert_ok(ech_tokenizer_open(scratch_folder(), &t));
    ech_node *variant = read_json("variant_gpt2.json");
    check_cases("pair", t, ech_node_find(variant, "cases"), ECH_ENCODE_PLAIN);
    assert_int_equal(ech_tokenizer_eos(t), ech_tokenizer_vocab(t) - 1);
    ech_tokenizer_destroy(&t);

    (void)scratch_write("vocab.bpe", "#version: 0.2\nt q\n", 18);
    assert_fails(ech_tokenizer_open(scratch_path("encoder.json"), &t), ECH_E_DATA, "merge 0");
    (void)scratch_write("vocab.bpe", "tq\n", 3);
    assert_fails(ech_tokenizer_open(scratch_path("encoder.json"), &t), ECH_E_DATA, "no pair");
    (void)unlink(scratch_path("encoder.json"));
    (void)unlink(scratch_path("vocab.bpe"));
    ech_text_fini(&vocab);
    ech_text_fini(&merges);
    ech_node_destroy(&variant);
    ech_node_destroy(&model);
}

/* tokenizer_config.json beside it names the tokens that begin and end a text. */
static void ends_are_named_beside_it(void **state)
{
    (void)state;
    static const char config[] =
        "{\"bos_token\": {\"content\": \"<|user|>\"}, \"eos_token\": \"<|endoftext|>\"}";
    ech_node *variant = read_json("variant_added.json");
    ech_text json = {0};
    ech_tokenizer *t = NULL;

    variant_json(variant, &json);
    const char *path = scratch_write("tokenizer.json", ech_text_get(&json), json.bytes);
    (void)scratch_write("tokenizer_config.json", config, sizeof config - 1);
    assert_ok(ech_tokenizer_open(path, &t));
    assert_int_equal(ech_tokenizer_bos(t), ech_tokenizer_find(t, "<|user|>"));
    assert_int_equal(ech_tokenizer_eos(t), ech_tokenizer_find(t, "<|endoftext|>"));
    ech_tokenizer_destroy(&t);
    (void)unlink(scratch_path("tokenizer_config.json"));
    (void)unlink(path);
    ech_text_fini(&json);
    ech_node_destroy(&variant);
}

/* --- what is refused --- */

#define BYTES "\"decoder\": {\"type\": \"ByteLevel\"}, "
#define MODEL "\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"
#define MARKED                                                                                     \
    "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "      \
    "\"\xE2\x96\x81\"}, "

static void wrong_tokenizers_are_refused(void **state)
{
    static const struct {
        const char *json;
        ech_status status;
        const char *words;
    } bad[] = {
        {"{", ECH_E_PARSE, "here"},
        {"[]", ECH_E_DATA, "no tokenizer.json"},
        {"{}", ECH_E_DATA, "no 'model'"},
        {"{\"model\": {\"type\": \"WordPiece\"}}", ECH_E_UNSUPPORTED, "WordPiece"},
        {"{" MODEL "}", ECH_E_UNSUPPORTED, "neither byte-level"},
        {"{" BYTES MARKED MODEL "}", ECH_E_UNSUPPORTED, "neither byte-level"},
        {"{" BYTES "\"model\": {\"vocab\": {}, \"merges\": []}}", ECH_E_DATA, "no vocabulary"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 0}}}", ECH_E_DATA, "no merges"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}}", ECH_E_DATA, "id -1"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 9e9}, \"merges\": []}}", ECH_E_DATA,
         "no whole number"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 4194304}, \"merges\": []}}", ECH_E_DATA,
         "wanted 0..4194303"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}", ECH_E_DATA,
         "two tokens have the id 0"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}", ECH_E_DATA,
         "the result is not in the vocabulary"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]}}", ECH_E_DATA,
         "no pair"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}", ECH_E_DATA,
         "no pair"},
        {"{" BYTES "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"u\"}}",
         ECH_E_DATA, "unk_token 'u'"},
        {"{" BYTES "\"model\": {\"dropout\": 0.1, \"vocab\": {\"a\": 0}, \"merges\": []}}",
         ECH_E_UNSUPPORTED, "dropout"},
        {"{" BYTES "\"added_tokens\": [{\"id\": 1, \"content\": \"a\"}], " MODEL "}", ECH_E_DATA,
         "added token 'a' has id 1, the vocabulary gives it 0"},
        {"{" BYTES "\"added_tokens\": [{\"id\": 3, \"content\": \"\"}], " MODEL "}", ECH_E_DATA,
         "added token 3 is empty"},
        {"{" BYTES "\"added_tokens\": [{\"id\": 3}], " MODEL "}", ECH_E_DATA, "without id or"},
        {"{" BYTES
         "\"added_tokens\": [{\"id\": 3, \"content\": \"c\", \"single_word\": true}], " MODEL "}",
         ECH_E_UNSUPPORTED, "single_word"},
        {"{" BYTES "\"normalizer\": {\"type\": \"Lowercase\"}, " MODEL "}", ECH_E_UNSUPPORTED,
         "normalizer of type 'Lowercase'"},
        {"{" BYTES "\"pre_tokenizer\": {\"type\": \"Whitespace\"}, " MODEL "}", ECH_E_UNSUPPORTED,
         "pre-tokenizer of type 'Whitespace'"},
        {"{" BYTES "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, "
         "\"behavior\": \"Isolated\"}, " MODEL "}",
         ECH_E_DATA, "pattern '(' is wrong"},
        {"{" BYTES "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, "
         "\"behavior\": \"MergedWithNext\"}, " MODEL "}",
         ECH_E_UNSUPPORTED, "MergedWithNext"},
        {"{" BYTES "\"post_processor\": {\"type\": \"BertProcessing\"}, " MODEL "}",
         ECH_E_UNSUPPORTED, "BertProcessing"},
        {"{\"decoder\": {\"type\": \"WordPiece\"}, " MODEL "}", ECH_E_UNSUPPORTED, "WordPiece"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ech_tokenizer *t = NULL;
        assert_fails(ech_tokenizer_from_json(bad[i].json, strlen(bad[i].json), "here", &t),
                     bad[i].status, bad[i].words);
        assert_null(t);
        assert_int_equal(ech_status_exit_code(bad[i].status), 2);
    }
}

static void missing_bytes_are_refused_when_met(void **state)
{
    (void)state;
    static const char json[] = "{" BYTES MODEL "}";
    ech_tokenizer *t = NULL;
    ech_ids ids = {0};

    assert_ok(ech_tokenizer_from_json(json, sizeof json - 1, "small", &t));
    assert_ok(ech_tokenizer_encode(t, "aab", 3, ECH_ENCODE_PLAIN, &ids));
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.data[1], 2);
    assert_fails(ech_tokenizer_encode(t, "abc", 3, ECH_ENCODE_PLAIN, &ids), ECH_E_DATA,
                 "byte 0x63");
    assert_fails(ech_tokenizer_encode(t, "a", 1, ECH_ENCODE_EOS, &ids), ECH_E_DATA, "ends a text");
    assert_fails(ech_tokenizer_encode(t, "a", 1, ECH_ENCODE_BOS, &ids), ECH_E_DATA,
                 "begins a text");
    const int32_t beyond = 3;
    ech_text out = {0};
    assert_fails(ech_tokenizer_decode(t, &beyond, 1, true, &out), ECH_E_DATA, "id 3 is no token");
    ech_text_fini(&out);
    ech_ids_fini(&ids);
    ech_tokenizer_destroy(&t);
}

static void damaged_llama2c_files_are_refused(void **state)
{
    (void)state;
    ech_tokenizer *t = NULL;
    char *data = NULL;
    size_t bytes = 0;

    assert_ok(
        ech_read_whole(fixture_path("tests/data/fixtures/llama2c.bin"), 1 << 20, &data, &bytes));
    assert_fails(ech_tokenizer_from_llama2c(data, 2, "cut", &t), ECH_E_DATA, "ends in the middle");
    assert_fails(ech_tokenizer_from_llama2c(data, 10, "cut", &t), ECH_E_DATA, "ends in the middle");
    assert_fails(ech_tokenizer_from_llama2c(data, bytes - 1, "cut", &t), ECH_E_DATA, "bytes long");
    assert_fails(ech_tokenizer_from_llama2c(data, 17 + 4, "cut", &t), ECH_E_DATA, "cut");
    int32_t wrong = -1;
    memcpy(data + 8, &wrong, 4);
    assert_fails(ech_tokenizer_from_llama2c(data, bytes, "bad", &t), ECH_E_DATA, "-1 bytes long");
    wrong = 5;
    memcpy(data + 8, &wrong, 4);
    wrong = 1 << 30;
    memcpy(data, &wrong, 4);
    assert_fails(ech_tokenizer_from_llama2c(data, bytes, "bad", &t), ECH_E_DATA, "longest token");
    wrong = 8;
    memcpy(data, &wrong, 4);
    const uint32_t nan = 0x7FC00000;
    memcpy(data + 4, &nan, 4);
    assert_fails(ech_tokenizer_from_llama2c(data, bytes, "bad", &t), ECH_E_DATA, "no number");
    assert_null(t);
    free(data);
}

static void paths_that_are_no_tokenizer_are_refused(void **state)
{
    (void)state;
    ech_tokenizer *t = NULL;

    assert_fails(ech_tokenizer_open(scratch_path("none"), &t), ECH_E_DATA, "does not exist");
    assert_fails(ech_tokenizer_open(scratch_folder(), &t), ECH_E_DATA, "holds no tokenizer");
    assert_fails(ech_tokenizer_open(scratch_write("t.model", "x", 1), &t), ECH_E_UNSUPPORTED,
                 "SentencePiece");
    assert_fails(ech_tokenizer_open(scratch_write("t.txt", "x", 1), &t), ECH_E_DATA,
                 "no tokenizer by its name");
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_gives_hf_ids),
        cmocka_unit_test(llama2c_gives_its_own_ids),
        cmocka_unit_test(nfc_is_unicodes),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(cutting_a_document_changes_nothing),
        cmocka_unit_test(long_pieces_merge_as_short_ones),
        cmocka_unit_test(controls_are_added_and_found),
        cmocka_unit_test(gpt2s_pair_of_files_is_read),
        cmocka_unit_test(ends_are_named_beside_it),
        cmocka_unit_test(wrong_tokenizers_are_refused),
        cmocka_unit_test(missing_bytes_are_refused_when_met),
        cmocka_unit_test(damaged_llama2c_files_are_refused),
        cmocka_unit_test(paths_that_are_no_tokenizer_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
