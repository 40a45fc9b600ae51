/* Text to ids: added tokens first, then what lies between them in pieces, each piece through the
 * cache or the merges. */
#include "base/checked.h"
#include "base/hash.h"
#include "data/tokenizer_parts.h"
#include "data/utf8.h"

#include <stdlib.h>
#include <string.h>

/* One call of encode. */
typedef struct job {
    ech_tokenizer *t;
    ech_ids *out;
    const char *begin; /* of the whole text */
    unsigned flags;
} job;

static ech_status reserve(void **array, size_t *capacity, size_t n, size_t bytes)
{
    if (n <= *capacity)
        return ECH_OK;
    size_t total = 0;
    const size_t want = n > 2 * *capacity ? n : 2 * *capacity;
    ECH_TRY(ech_mul_size(want, bytes, &total));
    void *grown = realloc(*array, total);
    ECH_CHECK(grown, ECH_E_NOMEM, "no memory for %zu bytes of text", total);
    *array = grown;
    *capacity = want;
    return ECH_OK;
}

static ech_status push_ids(ech_ids *out, const int32_t *ids, size_t n)
{
    void *data = out->data;
    const ech_status st = reserve(&data, &out->capacity, out->n + n, sizeof *out->data);

    out->data = data;
    ECH_TRY(st);
    memcpy(out->data + out->n, ids, n * sizeof *ids);
    out->n += n;
    return ECH_OK;
}

/* --- first symbols of a piece --- */

static ech_status refuse_byte(const char *piece, size_t bytes)
{
    return ECH_RAISE(ECH_E_DATA, "byte 0x%02X (in '%.*s') has no token in this vocabulary",
                     (unsigned)(uint8_t)piece[0], (int)(bytes < 32 ? bytes : 32), piece);
}

static ech_status push_unknown(ech_tokenizer *t, const char *piece, size_t bytes, size_t *n)
{
    if (t->unk < 0)
        return refuse_byte(piece, bytes);
    if (!t->fuses_unk || *n == 0 || t->symbols[*n - 1] != t->unk)
        t->symbols[(*n)++] = t->unk;
    return ECH_OK;
}

static ech_status byte_symbols(ech_tokenizer *t, const char *piece, size_t bytes, size_t *n)
{
    for (size_t i = 0; i < bytes; i++) {
        const int32_t id = t->byte_id[(uint8_t)piece[i]];
        if (id >= 0)
            t->symbols[(*n)++] = id;
        else
            ECH_TRY(push_unknown(t, piece + i, bytes - i, n));
    }
    return ECH_OK;
}

/* A lead byte and at most three continuation bytes: a character where the text is UTF-8. */
static size_t chunk_bytes(const char *s, size_t bytes)
{
    size_t n = 1;
    while (n < bytes && n < 4 && ((uint8_t)s[n] & 0xC0) == 0x80)
        n++;
    return n;
}

static bool has_byte_tokens(const ech_tokenizer *t, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (t->byte_id[(uint8_t)s[i]] < 0)
            return false;
    }
    return true;
}

static ech_status character_symbols(ech_tokenizer *t, const char *piece, size_t bytes, size_t *n)
{
    for (size_t i = 0; i < bytes;) {
        const size_t len = chunk_bytes(piece + i, bytes - i);
        const int32_t id = ech_vocab_find(&t->raw, piece + i, len);
        if (id >= 0)
            t->symbols[(*n)++] = id;
        else if (has_byte_tokens(t, piece + i, len))
            ECH_TRY(byte_symbols(t, piece + i, len, n));
        else
            ECH_TRY(push_unknown(t, piece + i, bytes - i, n));
        i += len;
    }
    return ECH_OK;
}

/* --- one piece --- */

/* Symbols of a piece, merged, in t->symbols. */
static ech_status merge_piece(ech_tokenizer *t, const char *piece, size_t bytes, size_t *n)
{
    void *symbols = t->symbols;
    const ech_status st = reserve(&symbols, &t->symbol_capacity, bytes, sizeof *t->symbols);

    t->symbols = symbols;
    ECH_TRY(st);
    *n = 0;
    if (t->ignores_merges) {
        const int32_t whole = ech_vocab_find(&t->text, piece, bytes);
        if (whole >= 0 && !t->special[whole]) {
            t->symbols[(*n)++] = whole;
            return ECH_OK;
        }
    }
    if (t->kind == ECH_TOKENIZER_BYTES)
        ECH_TRY(byte_symbols(t, piece, bytes, n));
    else
        ECH_TRY(character_symbols(t, piece, bytes, n));
    return ech_bpe_apply(&t->merges, &t->scratch, t->symbols, n);
}

static ech_status encode_piece(void *user, const char *piece, size_t bytes)
{
    const job *j = user;
    ech_tokenizer *t = j->t;
    size_t n = 0;

    if (bytes > ECH_PIECE_CACHE_MAX_BYTES) {
        ECH_TRY(merge_piece(t, piece, bytes, &n));
        return push_ids(j->out, t->symbols, n);
    }
    const uint64_t hash = ech_hash64(piece, bytes);
    const int32_t *known = ech_piece_cache_get(&t->cache, piece, bytes, hash, &n);
    if (known)
        return push_ids(j->out, known, n);
    ECH_TRY(merge_piece(t, piece, bytes, &n));
    ech_piece_cache_put(&t->cache, piece, bytes, hash, t->symbols, n);
    return push_ids(j->out, t->symbols, n);
}

/* --- text between added tokens --- */

static ech_status reserve_buffer(ech_tokenizer *t, size_t bytes)
{
    void *buffer = t->buffer;
    const ech_status st = reserve(&buffer, &t->buffer_capacity, bytes, 1);

    t->buffer = buffer;
    return st;
}

static ech_status split_and_encode(job *j, const char *text, size_t bytes)
{
    ech_tokenizer *t = j->t;

    if (t->prefixes_space && text[0] != ' ') {
        ECH_TRY(reserve_buffer(t, bytes + 1));
        t->buffer[0] = ' ';
        memcpy(t->buffer + 1, text, bytes);
        text = t->buffer;
        bytes++;
    }
    return ech_splitter_run(t->splitter, text, bytes, encode_piece, j);
}

static ech_status encode_bytes(job *j, const char *text, size_t bytes)
{
    ech_text normal = {0};

    if (!j->t->normalizes_nfc || ech_nfc_is_plain(text, bytes))
        return split_and_encode(j, text, bytes);
    ech_status st = ech_nfc(text, bytes, &normal);
    if (st == ECH_OK)
        st = split_and_encode(j, ech_text_get(&normal), normal.bytes);
    ech_text_fini(&normal);
    return st;
}

static bool is_marker_at(const ech_tokenizer *t, const char *s, size_t bytes)
{
    return bytes >= t->marker_bytes && s[0] == t->marker[0] &&
           memcmp(s, t->marker, t->marker_bytes) == 0;
}

static bool wants_prefix(const job *j, const char *text, size_t bytes)
{
    const ech_tokenizer *t = j->t;
    const bool is_first = text == j->begin;

    if (t->prepend == ECH_PREPEND_NEVER || (t->prepend == ECH_PREPEND_FIRST && !is_first))
        return false;
    if (is_first && (j->flags & ECH_ENCODE_CONTINUES))
        return false;
    return t->prepends_always || !(text[0] == ' ' || is_marker_at(t, text, bytes));
}

/* Spaces become markers, one is put in front; the result lies in t->buffer. */
static ech_status mark_spaces(job *j, const char *text, size_t bytes, size_t *n)
{
    ech_tokenizer *t = j->t;
    const size_t m = t->marker_bytes;
    size_t used = 0;
    size_t most = 0;

    ECH_TRY(ech_mul_size(bytes + 1, m, &most));
    ECH_TRY(reserve_buffer(t, most));
    if (wants_prefix(j, text, bytes)) {
        memcpy(t->buffer, t->marker, m);
        used = m;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ' && t->replaces_space) {
            memcpy(t->buffer + used, t->marker, m);
            used += m;
        } else {
            t->buffer[used++] = text[i];
        }
    }
    *n = used;
    return ECH_OK;
}

/* End of the piece that begins at `at`: before the next marker at which a piece may begin. */
static size_t piece_end(const ech_tokenizer *t, const char *s, size_t bytes, size_t at)
{
    const size_t m = t->marker_bytes;
    bool after_marker = is_marker_at(t, s + at, bytes - at);
    size_t i = at + (after_marker ? m : 1);

    if (!t->cuts_each && !t->cuts_runs)
        return bytes;
    while (i < bytes) {
        if (is_marker_at(t, s + i, bytes - i)) {
            if (t->cuts_each || !after_marker)
                return i;
            i += m;
        } else {
            after_marker = false;
            i++;
        }
    }
    return bytes;
}

static ech_status encode_marked(job *j, const char *text, size_t bytes)
{
    ech_tokenizer *t = j->t;
    size_t n = 0;

    ECH_TRY(mark_spaces(j, text, bytes, &n));
    for (size_t at = 0; at < n;) {
        const size_t end = piece_end(t, t->buffer, n, at);
        ECH_TRY(encode_piece(j, t->buffer + at, end - at));
        at = end;
    }
    return ECH_OK;
}

static ech_status encode_segment(job *j, const char *text, size_t bytes)
{
    if (bytes == 0)
        return ECH_OK;
    return j->t->kind == ECH_TOKENIZER_BYTES ? encode_bytes(j, text, bytes)
                                             : encode_marked(j, text, bytes);
}

/* --- added tokens --- */

/* Longest added token at s, or NULL. */
static const ech_added *added_at(const job *j, bool is_late, const char *s, size_t bytes)
{
    const ech_tokenizer *t = j->t;
    const ech_added *best = NULL;

    for (size_t i = 0; i < t->n_added; i++) {
        const ech_added *a = &t->added[i];
        if (a->is_late != is_late || (a->is_special && (j->flags & ECH_ENCODE_SPECIAL_AS_TEXT)))
            continue;
        if (a->bytes <= bytes && memcmp(a->content, s, a->bytes) == 0 &&
            (!best || a->bytes > best->bytes))
            best = a;
    }
    return best;
}

static size_t spaces_after(const char *s, size_t bytes)
{
    size_t n = 0;

    while (n < bytes) {
        uint32_t code = 0;
        const int len = ech_utf8_char(s + n, bytes - n, &code);
        if (len == 0 || !ech_utf8_is_space(code))
            break;
        n += (size_t)len;
    }
    return n;
}

static size_t spaces_before(const char *s, size_t bytes)
{
    size_t n = 0;

    while (n < bytes) {
        uint32_t code = 0;
        size_t back = 1;
        while (back < 4 && n + back < bytes && ((uint8_t)s[bytes - n - back] & 0xC0) == 0x80)
            back++;
        const int len = ech_utf8_char(s + bytes - n - back, back, &code);
        if (len != (int)back || !ech_utf8_is_space(code))
            break;
        n += back;
    }
    return n;
}

static ech_status encode_between(job *j, bool is_late, const char *text, size_t bytes);

/* Text without tokens of this pass: the late ones come next, then ordinary text. */
static ech_status encode_gap(job *j, bool was_late, const char *text, size_t bytes)
{
    return was_late ? encode_segment(j, text, bytes) : encode_between(j, true, text, bytes);
}

static ech_status encode_between(job *j, bool is_late, const char *text, size_t bytes)
{
    size_t done = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (!j->t->added_first[(uint8_t)text[i]])
            continue;
        const ech_added *a = added_at(j, is_late, text + i, bytes - i);
        if (!a)
            continue;
        const size_t left = a->eats_left ? spaces_before(text + done, i - done) : 0;
        ECH_TRY(encode_gap(j, is_late, text + done, i - left - done));
        ECH_TRY(push_ids(j->out, &a->id, 1));
        done = i + a->bytes;
        done += a->eats_right ? spaces_after(text + done, bytes - done) : 0;
        i = done - 1;
    }
    return encode_gap(j, is_late, text + done, bytes - done);
}

ech_status ech_tokenizer_encode(ech_tokenizer *t, const char *text, size_t bytes, unsigned flags,
                                ech_ids *out)
{
    job j = {.t = t, .out = out, .begin = text, .flags = flags};
    const int32_t bos = ech_tokenizer_bos(t);

    ECH_CHECK(!(flags & ECH_ENCODE_BOS) || bos >= 0, ECH_E_DATA,
              "this tokenizer has no token that begins a text");
    ECH_CHECK(!(flags & ECH_ENCODE_EOS) || t->eos >= 0, ECH_E_DATA,
              "this tokenizer has no token that ends a text");
    if (flags & ECH_ENCODE_BOS)
        ECH_TRY(push_ids(out, &bos, 1));
    if (t->n_added > 0)
        ECH_TRY(encode_between(&j, false, text, bytes));
    else
        ECH_TRY(encode_segment(&j, text, bytes));
    if (flags & ECH_ENCODE_EOS)
        ECH_TRY(push_ids(out, &t->eos, 1));
    return ECH_OK;
}
