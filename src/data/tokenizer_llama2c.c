/* llama2.c's tokenizer.bin: longest token, then score, length and bytes of each.  Its encoder
 * merges the adjacent pair whose joined string has the best score, the first of equals: a BPE whose
 * ranks are made of scores, with every way to halve a token as a merge. */
#include "base/checked.h"
#include "data/tokenizer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNK = 0, BOS = 1, EOS = 2, FIRST_BYTE = 3, MAX_TOKEN_BYTES = 1024 };

typedef struct scored {
    float score;
    int32_t id;
    int32_t rank;
} scored;

typedef struct reader {
    const unsigned char *data;
    size_t bytes, at;
    const char *name;
} reader;

static ech_status take(reader *r, void *out, size_t n)
{
    ECH_CHECK(r->bytes - r->at >= n, ECH_E_DATA, "%s: the tokenizer ends in the middle of a token",
              r->name);
    memcpy(out, r->data + r->at, n);
    r->at += n;
    return ECH_OK;
}

static ech_status read_token(reader *r, ech_tokenizer *t, int32_t id, scored *out)
{
    int32_t n = 0;

    ECH_TRY(take(r, &out->score, 4));
    ECH_TRY(take(r, &n, 4));
    out->id = id;
    ECH_CHECK(!isnan(out->score), ECH_E_DATA, "%s: token %d has no number as score", r->name, id);
    ECH_CHECK(n >= 0 && n <= MAX_TOKEN_BYTES && (size_t)n <= r->bytes - r->at, ECH_E_DATA,
              "%s: token %d is %d bytes long, %zu bytes are left (%d at most)", r->name, id, n,
              r->bytes - r->at, MAX_TOKEN_BYTES);
    ECH_TRY(ech_vocab_add(&t->raw, id, (const char *)r->data + r->at, (size_t)n));
    r->at += (size_t)n;
    return ECH_OK;
}

static int by_score(const void *a, const void *b)
{
    const scored *x = a;
    const scored *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const scored *x = a;
    const scored *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Best score first; equal scores share a rank. */
static void rank_tokens(scored *s, size_t n)
{
    qsort(s, n, sizeof *s, by_score);
    for (size_t i = 0; i < n; i++)
        s[i].rank = i > 0 && s[i].score == s[i - 1].score ? s[i - 1].rank : (int32_t)i;
    qsort(s, n, sizeof *s, by_id);
}

static ech_status add_halves(ech_tokenizer *t, const scored *token)
{
    size_t n = 0;
    const char *s = ech_vocab_get(&t->raw, token->id, &n);

    if (ech_vocab_find(&t->raw, s, n) != token->id)
        return ECH_OK; /* the same string as an earlier one, never found */
    for (size_t cut = 1; cut < n; cut++) {
        const int32_t left = ech_vocab_find(&t->raw, s, cut);
        const int32_t right = ech_vocab_find(&t->raw, s + cut, n - cut);
        if (left >= 0 && right >= 0)
            ECH_TRY(ech_merges_add(&t->merges, left, right, token->rank, token->id));
    }
    return ECH_OK;
}

static ech_status add_control(ech_tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *s = ech_vocab_get(&t->raw, id, &n);
    char name[MAX_TOKEN_BYTES + 1] = "";

    memcpy(name, s, n);
    const ech_added added = {.id = id, .content = name, .bytes = n, .is_special = true};
    return ech_tokenizer_add(t, &added);
}

static ech_status fill(ech_tokenizer *t, reader *r, scored **tokens)
{
    int32_t longest = 0;
    size_t n = 0;
    size_t capacity = 0;

    ECH_TRY(take(r, &longest, 4));
    ECH_CHECK(longest > 0 && longest <= MAX_TOKEN_BYTES, ECH_E_DATA,
              "%s: is no llama2.c tokenizer: its longest token has %d bytes", r->name, longest);
    for (; r->at < r->bytes; n++) {
        ECH_TRY(ech_grow(tokens, n, &capacity, sizeof **tokens));
        ECH_TRY(read_token(r, t, (int32_t)n, &(*tokens)[n]));
    }
    ECH_CHECK(n >= FIRST_BYTE + 256, ECH_E_DATA,
              "%s: %zu tokens; a llama2.c tokenizer has three controls and 256 bytes at least",
              r->name, n);
    rank_tokens(*tokens, n);
    for (size_t i = 0; i < n; i++)
        ECH_TRY(add_halves(t, &(*tokens)[i]));
    return ECH_OK;
}

/* llama2.c finds control tokens in no text, and gives the bytes the ids after them whatever their
 * names are. */
static ech_status finish(ech_tokenizer *t, const char *name)
{
    for (int32_t id = UNK; id <= EOS; id++)
        ECH_TRY(add_control(t, id));
    memset(t->added_first, 0, sizeof t->added_first);
    t->bos = BOS;
    t->eos = EOS;
    t->document_flags = ECH_ENCODE_BOS;
    t->marker[0] = ' ';
    t->marker_bytes = 1;
    t->prepend = ECH_PREPEND_FIRST;
    t->prepends_always = true;
    t->strips_first = true;
    ECH_TRY(ech_tokenizer_seal(t));
    for (int b = 0; b < 256; b++)
        ECH_CHECK(t->byte_id[b] == FIRST_BYTE + b, ECH_E_DATA,
                  "%s: token %d should be the byte 0x%02X", name, FIRST_BYTE + b, (unsigned)b);
    return ECH_OK;
}

ech_status ech_tokenizer_from_llama2c(const void *data, size_t bytes, const char *name,
                                      ech_tokenizer **out)
{
    reader r = {.data = data, .bytes = bytes, .name = name};
    ech_tokenizer *t = NULL;
    scored *tokens = NULL;

    ECH_TRY(ech_tokenizer_create(ECH_TOKENIZER_MARKER, &t));
    ech_status st = fill(t, &r, &tokens);
    free(tokens);
    if (st == ECH_OK)
        st = finish(t, name);
    if (st < 0) {
        ech_tokenizer_destroy(&t);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = t;
    return ECH_OK;
}
