/* A tokenizer's life, its vocabulary and decoding. */
#include "data/tokenizer.h"

#include "base/checked.h"
#include "base/hash.h"
#include "data/tokenizer_parts.h"
#include "data/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ech_ids_fini(ech_ids *ids)
{
    free(ids->data);
    *ids = (ech_ids){0};
}

/* --- GPT-2's alphabet: printable bytes are themselves, the 68 others U+0100 and up --- */

static bool is_printable(int b)
{
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

uint32_t ech_byte_to_code(uint8_t byte)
{
    uint32_t shifted = 0x100;

    if (is_printable(byte))
        return byte;
    for (int b = 0; b < byte; b++)
        shifted += !is_printable(b);
    return shifted;
}

int ech_code_to_byte(uint32_t code)
{
    if (code < 0x100)
        return is_printable((int)code) ? (int)code : -1;
    if (code >= 0x100 + 68)
        return -1;
    for (int b = 0; b < 256; b++) {
        if (!is_printable(b) && code-- == 0x100)
            return b;
    }
    return -1;
}

/* --- life --- */

ech_status ech_tokenizer_create(ech_tokenizer_kind kind, ech_tokenizer **out)
{
    ech_tokenizer *t = NULL;

    ECH_TRY(ech_calloc(1, sizeof *t, &t));
    t->kind = kind;
    t->bos = t->eos = t->unk = -1;
    *out = t;
    return ECH_OK;
}

void ech_tokenizer_destroy(ech_tokenizer **tokenizer)
{
    ech_tokenizer *t = *tokenizer;

    if (!t)
        return;
    ech_vocab_fini(&t->raw);
    ech_vocab_fini(&t->text);
    ech_merges_fini(&t->merges);
    for (size_t i = 0; i < t->n_added; i++)
        free(t->added[i].content);
    free(t->added);
    free(t->special);
    ech_splitter_destroy(&t->splitter);
    ech_piece_cache_fini(&t->cache);
    ech_bpe_scratch_fini(&t->scratch);
    free(t->buffer);
    free(t->symbols);
    free(t);
    *tokenizer = NULL;
}

ech_status ech_tokenizer_add(ech_tokenizer *t, const ech_added *added)
{
    const int32_t known = ech_vocab_find(&t->raw, added->content, added->bytes);

    ECH_CHECK(added->bytes > 0, ECH_E_DATA, "added token %d is empty", added->id);
    ECH_CHECK(known < 0 || known == added->id, ECH_E_DATA,
              "added token '%.*s' has id %d, the vocabulary gives it %d", (int)added->bytes,
              added->content, added->id, known);
    ECH_TRY(ech_vocab_add(&t->raw, added->id, added->content, added->bytes));
    ECH_TRY(ech_grow(&t->added, t->n_added, &t->added_capacity, sizeof *t->added));
    ech_added *copy = &t->added[t->n_added];
    *copy = *added;
    copy->content = NULL;
    ECH_TRY(ech_calloc(added->bytes + 1, 1, &copy->content));
    memcpy(copy->content, added->content, added->bytes);
    t->added_first[(uint8_t)added->content[0]] = true;
    t->n_added++;
    return ECH_OK;
}

/* --- sealing --- */

/* "<0x4A>" is the byte 0x4A. */
static int byte_of_name(const char *s, size_t n)
{
    unsigned byte = 0;
    char name[7] = "";

    if (n != 6)
        return -1;
    memcpy(name, s, 6);
    if (sscanf(name, "<0x%2X", &byte) != 1)
        return -1;
    char back[8];
    (void)snprintf(back, sizeof back, "<0x%02X>", byte);
    return strcmp(name, back) == 0 ? (int)byte : -1;
}

/* Byte level: each character is a byte; a string with one that is none stands for itself. */
static void text_of_bytes(const char *raw, size_t n, ech_text *out)
{
    const size_t before = out->bytes;

    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        const int len = ech_utf8_char(raw + i, n - i, &code);
        const int byte = len > 0 ? ech_code_to_byte(code) : -1;
        if (byte < 0) {
            out->bytes = before;
            ech_text_add_bytes(out, raw, n);
            return;
        }
        const char c = (char)byte;
        ech_text_add_bytes(out, &c, 1);
        i += (size_t)len;
    }
}

static void text_of_marked(const ech_tokenizer *t, const char *raw, size_t n, ech_text *out)
{
    const int byte = byte_of_name(raw, n);
    const size_t m = t->marker_bytes;

    if (byte >= 0) {
        const char c = (char)byte;
        ech_text_add_bytes(out, &c, 1);
        return;
    }
    for (size_t i = 0; i < n;) {
        const bool is_marker = n - i >= m && memcmp(raw + i, t->marker, m) == 0;
        ech_text_add_bytes(out, is_marker ? " " : raw + i, 1);
        i += is_marker ? m : 1;
    }
}

static ech_status make_texts(ech_tokenizer *t)
{
    ech_text piece = {0};
    ech_status st = ECH_OK;

    for (int32_t id = 0; id < t->n_vocab && st == ECH_OK; id++) {
        size_t n = 0;
        const char *raw = ech_vocab_get(&t->raw, id, &n);
        if (!raw)
            continue;
        piece.bytes = 0;
        if (t->kind == ECH_TOKENIZER_BYTES)
            text_of_bytes(raw, n, &piece);
        else
            text_of_marked(t, raw, n, &piece);
        if (piece.failed)
            st = ECH_RAISE(ECH_E_NOMEM, "no memory for a token");
        else
            st = ech_vocab_add(&t->text, id, ech_text_get(&piece), piece.bytes);
    }
    ech_text_fini(&piece);
    return st;
}

static void find_byte_symbols(ech_tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char name[8];
        int n;
        if (t->kind == ECH_TOKENIZER_BYTES)
            n = ech_utf8_put(ech_byte_to_code((uint8_t)b), name);
        else
            n = snprintf(name, sizeof name, "<0x%02X>", b);
        t->byte_id[b] = ech_vocab_find(&t->raw, name, (size_t)n);
    }
}

static bool has_inner_marker(const ech_tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *s = ech_vocab_get(&t->raw, id, &n);
    const size_t m = t->marker_bytes;
    bool seen_other = false;

    for (size_t i = 0; s && i < n;) {
        const bool is_marker = n - i >= m && memcmp(s + i, t->marker, m) == 0;
        if (is_marker && seen_other)
            return true;
        seen_other |= !is_marker;
        i += is_marker ? m : 1;
    }
    return false;
}

/* Without a merge whose result has a marker after another character, no merge crosses that border,
 * so cutting there changes nothing.  Unknown characters must not fuse across it either. */
static bool can_cut_runs(const ech_tokenizer *t)
{
    if (t->kind != ECH_TOKENIZER_MARKER || ech_vocab_find(&t->raw, t->marker, t->marker_bytes) < 0)
        return false;
    for (size_t i = 0; i < t->merges.n_slots; i++) {
        const ech_merge *m = &t->merges.slot[i];
        if (m->rank >= 0 && has_inner_marker(t, m->id))
            return false;
    }
    return true;
}

ech_status ech_tokenizer_seal(ech_tokenizer *t)
{
    ECH_CHECK(t->raw.n > 0, ECH_E_DATA, "the vocabulary is empty");
    t->n_vocab = t->raw.n;
    ECH_TRY(ech_calloc((size_t)t->n_vocab, sizeof *t->special, &t->special));
    for (size_t i = 0; i < t->n_added; i++)
        t->special[t->added[i].id] = t->added[i].is_special;
    find_byte_symbols(t);
    t->cuts_runs = can_cut_runs(t);
    ECH_TRY(make_texts(t));
    return ech_piece_cache_init(&t->cache);
}

/* --- queries --- */

unsigned ech_tokenizer_document_flags(const ech_tokenizer *t)
{
    return t->document_flags;
}

int32_t ech_tokenizer_vocab(const ech_tokenizer *t)
{
    return t->n_vocab;
}

int32_t ech_tokenizer_bos(const ech_tokenizer *t)
{
    return t->bos >= 0 ? t->bos : t->eos;
}

int32_t ech_tokenizer_eos(const ech_tokenizer *t)
{
    return t->eos;
}

bool ech_tokenizer_is_special(const ech_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_vocab && t->special[id];
}

int32_t ech_tokenizer_find(const ech_tokenizer *t, const char *content)
{
    for (size_t i = 0; i < t->n_added; i++) {
        if (strcmp(t->added[i].content, content) == 0)
            return t->added[i].id;
    }
    return -1;
}

void ech_tokenizer_hash(const ech_tokenizer *t, char out[33])
{
    uint64_t chain[3] = {0, 0, 0};

    for (int32_t id = 0; id < t->n_vocab; id++) {
        size_t n = 0;
        const char *s = ech_vocab_get(&t->text, id, &n);
        chain[1] = s ? ech_hash64(s, n) : 0;
        chain[2] = (uint64_t)id;
        chain[0] = ech_hash64(chain, sizeof chain);
    }
    ech_hash128_hex(chain, sizeof chain, out);
}

/* --- decoding --- */

static const char *piece_at(const ech_tokenizer *t, bool is_first, int32_t id, size_t *bytes)
{
    const char *s = ech_vocab_get(&t->text, id, bytes);

    if (s && is_first && t->strips_first && *bytes > 0 && s[0] == ' ') {
        --*bytes;
        return s + 1;
    }
    return s;
}

const char *ech_tokenizer_piece(const ech_tokenizer *t, int32_t previous, int32_t id, size_t *bytes)
{
    const bool is_first = previous < 0 || (previous == t->bos && t->bos >= 0);
    return piece_at(t, is_first, id, bytes);
}

ech_status ech_tokenizer_decode(const ech_tokenizer *t, const int32_t *ids, size_t n,
                                bool keep_special, ech_text *out)
{
    bool is_first = true;

    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        const char *s = piece_at(t, is_first, ids[i], &bytes);
        ECH_CHECK(s, ECH_E_DATA, "id %d is no token of this vocabulary of %d", ids[i], t->n_vocab);
        if (!keep_special && ech_tokenizer_is_special(t, ids[i]))
            continue;
        ech_text_add_bytes(out, s, bytes);
        is_first = false;
    }
    ECH_CHECK(!out->failed, ECH_E_NOMEM, "no memory for a text");
    return ECH_OK;
}
