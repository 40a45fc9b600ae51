/* Training a byte-level BPE: count words, merge the most frequent pair, recount where it was. */
#include "data/bpe_train.h"

#include "base/checked.h"
#include "data/bpe_pairs.h"
#include "data/split.h"
#include "data/tokenizer_parts.h"
#include "data/utf8.h"
#include "data/vocab.h"
#include "data/word_count.h"

#include <stdlib.h>
#include <string.h>

/* A word as symbols; it only gets shorter. */
typedef struct symbols {
    int32_t *at; /* in the store */
    uint32_t n;
} symbols;

typedef struct merge {
    int32_t left, right;
} merge;

struct ech_bpe_trainer {
    ech_bpe_config config;
    ech_splitter *splitter; /* owned */
    ech_word_count words;
    int64_t text_bytes;

    ech_vocab tokens; /* in GPT-2's alphabet */
    merge *merges;    /* owned */
    size_t n_merges, merge_capacity;
    int32_t *store; /* owned: symbols of all words */
    symbols *word;  /* owned [words.n] */
    ech_pairs pairs;
};

ech_bpe_config ech_bpe_config_default(void)
{
    static const char *const special[] = {"<|endoftext|>"};
    return (ech_bpe_config){.min_count = 2, .special = special, .n_special = 1};
}

static ech_status check_config(const ech_bpe_config *c)
{
    ECH_CHECK(c->n_special >= 0 && c->vocab >= 256 + c->n_special && c->vocab <= ECH_VOCAB_MAX,
              ECH_E_CONFIG, "a vocabulary of %lld, wanted %d..%d (256 bytes and %d special tokens)",
              (long long)c->vocab, 256 + c->n_special, ECH_VOCAB_MAX, c->n_special);
    ECH_CHECK(c->min_count >= 1, ECH_E_CONFIG, "a least count of %lld, wanted >= 1",
              (long long)c->min_count);
    return ECH_OK;
}

ech_status ech_bpe_trainer_create(const ech_bpe_config *config, ech_bpe_trainer **out)
{
    const ech_split_step step = {.pattern = ech_split_gpt2};
    ech_bpe_trainer *t = NULL;

    ECH_TRY(check_config(config));
    ECH_TRY(ech_calloc(1, sizeof *t, &t));
    t->config = *config;
    const ech_status st = ech_splitter_create(&step, 1, &t->splitter);
    if (st < 0) {
        ech_bpe_trainer_destroy(&t);
        return st;
    }
    *out = t;
    return ECH_OK;
}

static ech_status count_piece(void *user, const char *piece, size_t bytes)
{
    return ech_word_count_add(user, piece, bytes);
}

ech_status ech_bpe_trainer_add(ech_bpe_trainer *t, const char *text, size_t bytes)
{
    t->text_bytes += (int64_t)bytes;
    return ech_splitter_run(t->splitter, text, bytes, count_piece, &t->words);
}

/* --- the first symbols --- */

/* Ids of bytes in the order of their code points in GPT-2's alphabet, as GPT-2 has them. */
static ech_status add_bytes(ech_bpe_trainer *t, int32_t id_of[256])
{
    int32_t n = 0;

    for (uint32_t code = 0; n < 256; code++) {
        char s[4];
        const int byte = ech_code_to_byte(code);
        if (byte < 0)
            continue;
        id_of[byte] = n;
        ECH_TRY(ech_vocab_add(&t->tokens, n++, s, (size_t)ech_utf8_put(code, s)));
    }
    return ECH_OK;
}

static ech_status make_symbols(ech_bpe_trainer *t, const int32_t id_of[256])
{
    int32_t *next;

    ECH_TRY(ech_calloc(t->words.used, sizeof *t->store, &t->store));
    ECH_TRY(ech_calloc(t->words.n, sizeof *t->word, &t->word));
    next = t->store;
    for (size_t w = 0; w < t->words.n; w++) {
        const ech_word *word = &t->words.word[w];
        t->word[w] = (symbols){.at = next, .n = word->bytes};
        for (uint32_t i = 0; i < word->bytes; i++)
            *next++ = id_of[(uint8_t)t->words.store[word->at + i]];
    }
    return ECH_OK;
}

static ech_status count_pairs(ech_bpe_trainer *t)
{
    for (size_t w = 0; w < t->words.n; w++) {
        const symbols *s = &t->word[w];
        for (uint32_t i = 0; i + 1 < s->n; i++)
            ECH_TRY(ech_pairs_change(&t->pairs, s->at[i], s->at[i + 1], (uint32_t)w,
                                     t->words.word[w].count));
    }
    return ech_pairs_settle(&t->pairs);
}

/* --- merging --- */

/* The id of left and right joined: a new one, or that of an equal string made another way. */
static ech_status join(ech_bpe_trainer *t, merge m, int32_t *id)
{
    ech_text both = {0};
    size_t n = 0;

    const char *s = ech_vocab_get(&t->tokens, m.left, &n);
    ech_text_add_bytes(&both, s, n);
    s = ech_vocab_get(&t->tokens, m.right, &n);
    ech_text_add_bytes(&both, s, n);
    ech_status st = both.failed ? ECH_RAISE(ECH_E_NOMEM, "no memory for a token") : ECH_OK;
    if (st == ECH_OK) {
        *id = ech_vocab_find(&t->tokens, ech_text_get(&both), both.bytes);
        if (*id < 0) {
            *id = t->tokens.n;
            st = ech_vocab_add(&t->tokens, *id, ech_text_get(&both), both.bytes);
        }
    }
    ech_text_fini(&both);
    return st;
}

/* Replace m by id in a word; counts of the pairs beside it move with it. */
static ech_status merge_in_word(ech_bpe_trainer *t, uint32_t w, merge m, int32_t id)
{
    const int64_t count = t->words.word[w].count;
    symbols *s = &t->word[w];
    uint32_t used = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        if (s->at[i] != m.left || i + 1 == s->n || s->at[i + 1] != m.right) {
            s->at[used++] = s->at[i];
            continue;
        }
        if (used > 0) {
            const int32_t before = s->at[used - 1];
            ECH_TRY(ech_pairs_change(&t->pairs, before, m.left, w, -count));
            ECH_TRY(ech_pairs_change(&t->pairs, before, id, w, count));
        }
        if (i + 2 < s->n) {
            const int32_t after = s->at[i + 2];
            ECH_TRY(ech_pairs_change(&t->pairs, m.right, after, w, -count));
            ECH_TRY(ech_pairs_change(&t->pairs, id, after, w, count));
        }
        s->at[used++] = id;
        i++;
    }
    s->n = used;
    return ECH_OK;
}

static ech_status merge_pair(ech_bpe_trainer *t, size_t index)
{
    const merge m = {.left = t->pairs.pair[index].left, .right = t->pairs.pair[index].right};
    /* Taken from the pair, whose place may move while others are made. */
    uint32_t *words = t->pairs.pair[index].word;
    const size_t n_words = t->pairs.pair[index].n_words;
    int32_t id = 0;
    ech_status st = ECH_OK;

    t->pairs.pair[index].word = NULL;
    t->pairs.pair[index].n_words = t->pairs.pair[index].word_capacity = 0;
    ECH_TRY_GOTO(st, join(t, m, &id), done);
    ECH_TRY_GOTO(st, ech_grow(&t->merges, t->n_merges, &t->merge_capacity, sizeof *t->merges),
                 done);
    t->merges[t->n_merges++] = m;
    for (size_t i = 0; i < n_words; i++)
        ECH_TRY_GOTO(st, merge_in_word(t, words[i], m, id), done);
    t->pairs.pair[index].count = 0;
    st = ech_pairs_settle(&t->pairs);
done:
    free(words);
    return st;
}

static ech_status learn(ech_bpe_trainer *t)
{
    const int64_t most = t->config.vocab - t->config.n_special;

    while (t->tokens.n < most) {
        const size_t best = ech_pairs_pop(&t->pairs);
        if (best == SIZE_MAX || t->pairs.pair[best].count < t->config.min_count)
            break;
        ECH_TRY(merge_pair(t, best));
    }
    return ECH_OK;
}

/* --- tokenizer.json --- */

static void add_token_string(ech_text *json, const ech_vocab *tokens, int32_t id)
{
    size_t n = 0;
    const char *s = ech_vocab_get(tokens, id, &n);
    ech_text_add_json_string(json, s, n);
}

static void add_special_list(ech_text *json, const ech_bpe_trainer *t, int32_t first)
{
    ech_text_add(json, "  \"added_tokens\": [");
    for (int i = 0; i < t->config.n_special; i++) {
        ech_text_add(json, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", first + i);
        add_token_string(json, &t->tokens, first + i);
        ech_text_add(json, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                           "\"normalized\": false, \"special\": true}");
    }
    ech_text_add(json, "\n  ],\n");
}

static void add_model(ech_text *json, const ech_bpe_trainer *t)
{
    ech_text_add(json, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                       "    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
                       "    \"fuse_unk\": false, \"byte_fallback\": false,\n    \"vocab\": {");
    for (int32_t id = 0; id < t->tokens.n; id++) {
        ech_text_add(json, id ? ",\n      " : "\n      ");
        add_token_string(json, &t->tokens, id);
        ech_text_add(json, ": %d", id);
    }
    ech_text_add(json, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < t->n_merges; i++) {
        size_t left_n = 0;
        size_t right_n = 0;
        const char *left = ech_vocab_get(&t->tokens, t->merges[i].left, &left_n);
        const char *right = ech_vocab_get(&t->tokens, t->merges[i].right, &right_n);
        ech_text both = {0};
        ech_text_add(&both, "%.*s %.*s", (int)left_n, left, (int)right_n, right);
        ech_text_add(json, i ? ",\n      " : "\n      ");
        ech_text_add_json_string(json, ech_text_get(&both), both.bytes);
        json->failed |= both.failed;
        ech_text_fini(&both);
    }
    ech_text_add(json, "\n    ]\n  }\n");
}

static void add_json(ech_text *json, const ech_bpe_trainer *t, int32_t first_special)
{
    static const char byte_level[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": true}";

    ech_text_add(json,
                 "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    add_special_list(json, t, first_special);
    ech_text_add(json, "  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n", byte_level);
    ech_text_add(json, "  \"post_processor\": null,\n  \"decoder\": %s,\n", byte_level);
    add_model(json, t);
    ech_text_add(json, "}\n");
}

static ech_status add_specials(ech_bpe_trainer *t)
{
    for (int i = 0; i < t->config.n_special; i++) {
        const char *s = t->config.special[i];
        ECH_CHECK(*s && ech_vocab_find(&t->tokens, s, strlen(s)) < 0, ECH_E_DATA,
                  "special token '%s' is empty or also an ordinary token", s);
        ECH_TRY(ech_vocab_add(&t->tokens, t->tokens.n, s, strlen(s)));
    }
    return ECH_OK;
}

ech_status ech_bpe_trainer_finish(ech_bpe_trainer *t, ech_text *json, ech_bpe_result *result)
{
    int32_t id_of[256];

    ECH_CHECK(t->words.n > 0, ECH_E_DATA, "there is no text to train a tokenizer on");
    ECH_TRY(add_bytes(t, id_of));
    ECH_TRY(make_symbols(t, id_of));
    ECH_TRY(count_pairs(t));
    ECH_TRY(learn(t));
    const int32_t first_special = t->tokens.n;
    ECH_TRY(add_specials(t));
    add_json(json, t, first_special);
    ECH_CHECK(!json->failed, ECH_E_NOMEM, "no memory for the tokenizer");
    *result = (ech_bpe_result){
        .vocab = t->tokens.n, .n_words = (int64_t)t->words.n, .text_bytes = t->text_bytes};
    return ECH_OK;
}

void ech_bpe_trainer_destroy(ech_bpe_trainer **t)
{
    if (!*t)
        return;
    ech_splitter_destroy(&(*t)->splitter);
    ech_word_count_fini(&(*t)->words);
    ech_vocab_fini(&(*t)->tokens);
    ech_pairs_fini(&(*t)->pairs);
    free((*t)->merges);
    free((*t)->store);
    free((*t)->word);
    free(*t);
    *t = NULL;
}
