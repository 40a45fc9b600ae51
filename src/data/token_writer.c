/* Writing token files: .bin streamed, index and side file at the end, all published together. */
#include "data/token_writer.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/text.h"
#include "data/side_file.h"
#include "data/token_form.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MEGATRON_U16_BELOW = 65500, CHUNK = 4096 };

struct ech_token_writer {
    ech_file *bin;   /* owned */
    char *path;      /* owned */
    char *tokenizer; /* owned; NULL: unknown */
    int64_t vocab;
    ech_token_type dtype;
    int64_t n_tokens;
    int64_t max_id;
    int64_t open_tokens; /* of the sequence not ended yet */

    unsigned char *block; /* owned [ECH_TOKEN_BLOCK_BYTES]: bytes not written yet */
    size_t block_used;

    uint64_t *hash; /* owned [n_hashes] */
    size_t n_hashes, hash_capacity;
    int32_t *length; /* owned [n_sequences] tokens */
    size_t n_sequences, length_capacity;
    int64_t *doc_end; /* owned [n_documents]: sequences up to its end */
    size_t n_documents, doc_capacity;
};

static ech_token_type choose_type(ech_token_type asked, int64_t vocab)
{
    if (asked != ECH_TOKEN_AUTO)
        return asked;
    return vocab < MEGATRON_U16_BELOW ? ECH_TOKEN_U16 : ECH_TOKEN_I32;
}

/* Largest vocabulary whose ids a type holds; 0: no code in the index. */
static int64_t type_capacity(ech_token_type t)
{
    switch (t) {
    case ECH_TOKEN_U8:
        return 256;
    case ECH_TOKEN_I8:
        return 128;
    case ECH_TOKEN_I16:
        return 32768;
    case ECH_TOKEN_U16:
        return 65536;
    case ECH_TOKEN_I32:
    case ECH_TOKEN_I64:
        return INT32_MAX;
    case ECH_TOKEN_U32:
    case ECH_TOKEN_AUTO:
        break;
    }
    return 0;
}

static ech_status check_request(const char *path, int64_t vocab, ech_token_type type)
{
    ECH_CHECK(ech_has_suffix(path, ".bin") && path[4], ECH_E_USAGE,
              "'%s': the name of a token file ends in .bin", path);
    ECH_CHECK(vocab > 0 && vocab <= INT32_MAX, ECH_E_USAGE, "a vocabulary of %" PRId64, vocab);
    ECH_CHECK(type_capacity(type) > 0, ECH_E_USAGE,
              "%s has no code in a Megatron index; use int32 or uint16", ech_token_type_name(type));
    ECH_CHECK(vocab <= type_capacity(type), ECH_E_DATA,
              "%s holds ids of a vocabulary up to %" PRId64 ", this one has %" PRId64 ": use int32",
              ech_token_type_name(type), type_capacity(type), vocab);
    return ECH_OK;
}

static ech_status copy_string(const char *s, char **out)
{
    if (!s)
        return ECH_OK;
    *out = strdup(s);
    ECH_CHECK(*out, ECH_E_NOMEM, "no memory for a name");
    return ECH_OK;
}

ech_status ech_token_writer_create(const char *path, int64_t vocab, ech_token_type dtype,
                                   const char *tokenizer, ech_token_writer **out)
{
    const ech_token_type type = choose_type(dtype, vocab);
    ech_token_writer *w = NULL;
    ech_status st = ECH_OK;

    ECH_TRY(check_request(path, vocab, type));
    ECH_TRY(ech_calloc(1, sizeof *w, &w));
    w->vocab = vocab;
    w->dtype = type;
    ECH_TRY_GOTO(st, copy_string(path, &w->path), fail);
    ECH_TRY_GOTO(st, copy_string(tokenizer, &w->tokenizer), fail);
    ECH_TRY_GOTO(st, ech_calloc((size_t)ECH_TOKEN_BLOCK_BYTES, 1, &w->block), fail);
    ECH_TRY_GOTO(st, ech_file_create(path, &w->bin), fail);
    *out = w;
    return ECH_OK;
fail:
    ech_token_writer_destroy(&w);
    return st;
}

static ech_status flush_block(ech_token_writer *w)
{
    if (w->block_used == 0)
        return ECH_OK;
    ECH_TRY(ech_grow(&w->hash, w->n_hashes, &w->hash_capacity, sizeof *w->hash));
    ECH_TRY(ech_file_write(w->bin, w->block, w->block_used));
    w->hash[w->n_hashes++] = ech_hash64(w->block, w->block_used);
    w->block_used = 0;
    return ECH_OK;
}

/* Little-endian: the low bytes of an id are the id in any narrower type that holds it. */
static ech_status put_ids(ech_token_writer *w, const int32_t *ids, size_t n)
{
    const size_t elem = (size_t)ech_token_type_bytes(w->dtype);

    for (size_t i = 0; i < n; i++) {
        const int64_t id = ids[i];
        memcpy(w->block + w->block_used, &id, elem);
        w->block_used += elem;
        if (w->block_used == (size_t)ECH_TOKEN_BLOCK_BYTES)
            ECH_TRY(flush_block(w));
    }
    return ECH_OK;
}

static ech_status end_sequence(ech_token_writer *w)
{
    ECH_TRY(ech_grow(&w->length, w->n_sequences, &w->length_capacity, sizeof *w->length));
    w->length[w->n_sequences++] = (int32_t)w->open_tokens;
    w->open_tokens = 0;
    return ECH_OK;
}

ech_status ech_token_writer_add(ech_token_writer *w, const int32_t *ids, size_t n)
{
    int32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        ECH_CHECK(ids[i] >= 0 && ids[i] < w->vocab, ECH_E_DATA,
                  "%s: token %lld has id %d, the vocabulary has %" PRId64 " entries", w->path,
                  (long long)w->n_tokens + (long long)i, ids[i], w->vocab);
        max = ids[i] > max ? ids[i] : max;
    }
    while (n > 0) {
        /* Lengths in the index are 32 bit: a longer document has several sequences. */
        const size_t room = (size_t)(INT32_MAX - w->open_tokens);
        const size_t k = n < room ? n : room;
        ECH_TRY(put_ids(w, ids, k));
        w->n_tokens += (int64_t)k;
        w->open_tokens += (int64_t)k;
        ids += k;
        n -= k;
        if (w->open_tokens == INT32_MAX)
            ECH_TRY(end_sequence(w));
    }
    w->max_id = max > w->max_id ? max : w->max_id;
    return ECH_OK;
}

ech_status ech_token_writer_end_document(ech_token_writer *w)
{
    const int64_t ended = w->n_documents > 0 ? w->doc_end[w->n_documents - 1] : 0;

    if (w->open_tokens > 0)
        ECH_TRY(end_sequence(w));
    if ((int64_t)w->n_sequences == ended)
        return ECH_OK;
    ECH_TRY(ech_grow(&w->doc_end, w->n_documents, &w->doc_capacity, sizeof *w->doc_end));
    w->doc_end[w->n_documents++] = (int64_t)w->n_sequences;
    return ECH_OK;
}

static uint8_t type_code(ech_token_type t)
{
    switch (t) {
#define CASE(name, bytes, text, code)                                                              \
    case name:                                                                                     \
        return code;
        ECH_TOKEN_TYPE_LIST(CASE)
#undef CASE
    case ECH_TOKEN_AUTO:
        break;
    }
    return 0;
}

static ech_status write_index_header(const ech_token_writer *w, ech_file *idx)
{
    unsigned char h[34] = "MMIDIDX"; /* and two zero bytes */
    const uint64_t version = 1;
    const uint64_t n_sequences = w->n_sequences;
    const uint64_t n_boundaries = w->n_documents + 1;

    memcpy(h + 9, &version, 8);
    h[17] = type_code(w->dtype);
    memcpy(h + 18, &n_sequences, 8);
    memcpy(h + 26, &n_boundaries, 8);
    return ech_file_write(idx, h, sizeof h);
}

static ech_status write_offsets(const ech_token_writer *w, ech_file *idx)
{
    const int64_t elem = ech_token_type_bytes(w->dtype);
    int64_t chunk[CHUNK];
    int64_t offset = 0;
    size_t used = 0;

    for (size_t i = 0; i < w->n_sequences; i++) {
        chunk[used++] = offset;
        offset += w->length[i] * elem;
        if (used == CHUNK || i + 1 == w->n_sequences) {
            ECH_TRY(ech_file_write(idx, chunk, used * sizeof *chunk));
            used = 0;
        }
    }
    return ECH_OK;
}

static ech_status write_index(const ech_token_writer *w, ech_file *idx)
{
    const int64_t first = 0;

    ECH_TRY(write_index_header(w, idx));
    ECH_TRY(ech_file_write(idx, w->length, w->n_sequences * sizeof *w->length));
    ECH_TRY(write_offsets(w, idx));
    ECH_TRY(ech_file_write(idx, &first, sizeof first));
    return ech_file_write(idx, w->doc_end, w->n_documents * sizeof *w->doc_end);
}

static void side_text(const ech_token_writer *w, ech_text *t)
{
    ech_text_add(t, "{\"format\": \"echelon-tokens\", \"version\": 1,\n");
    ech_text_add(t, " \"dtype\": \"%s\", \"n_tokens\": %" PRId64 ", \"n_documents\": %zu,\n",
                 ech_token_type_name(w->dtype), w->n_tokens, w->n_documents);
    ech_text_add(t, " \"vocab\": %" PRId64 ", \"max_id\": %" PRId64 ",\n \"tokenizer\": ", w->vocab,
                 w->max_id);
    if (w->tokenizer)
        ech_text_add_json_string(t, w->tokenizer, strlen(w->tokenizer));
    else
        ech_text_add(t, "null");
    ech_text_add(t, ",\n \"block_bytes\": %" PRId64 ", \"hashes\": [", ECH_TOKEN_BLOCK_BYTES);
    for (size_t i = 0; i < w->n_hashes; i++)
        ech_text_add(t, "%s\"%016" PRIx64 "\"", i ? "," : "", w->hash[i]);
    ech_text_add(t, "]}\n");
}

static ech_status write_side(const ech_token_writer *w, ech_file *side)
{
    ech_text t = {0};

    side_text(w, &t);
    ech_status st = t.failed ? ECH_RAISE(ECH_E_NOMEM, "no memory for the side file") : ECH_OK;
    if (st == ECH_OK)
        st = ech_file_write(side, ech_text_get(&t), t.bytes);
    ech_text_fini(&t);
    return st;
}

/* The .bin last: it is never seen without its index, and an index alone is no token file. */
static ech_status publish(ech_token_writer *w, ech_file *idx, ech_file *side)
{
    ECH_TRY(write_index(w, idx));
    ECH_TRY(write_side(w, side));
    ECH_TRY(ech_file_publish(side));
    ECH_TRY(ech_file_publish(idx));
    return ech_file_publish(w->bin);
}

ech_status ech_token_writer_finish(ech_token_writer *w)
{
    char idx_path[PATH_MAX];
    char side_path[PATH_MAX];
    ech_file *idx = NULL;
    ech_file *side = NULL;
    ech_status st = ECH_OK;

    ECH_TRY(ech_token_writer_end_document(w));
    ECH_CHECK(w->n_tokens > 0, ECH_E_DATA, "%s: there is no token to write", w->path);
    ECH_TRY(flush_block(w));
    ECH_TRY(ech_token_index_path(w->path, idx_path, sizeof idx_path));
    ECH_TRY(ech_side_file_path(w->path, side_path, sizeof side_path));
    ECH_TRY_GOTO(st, ech_file_create(idx_path, &idx), done);
    ECH_TRY_GOTO(st, ech_file_create(side_path, &side), done);
    ECH_TRY_GOTO(st, publish(w, idx, side), done);
done:
    ech_file_close(&idx);
    ech_file_close(&side);
    return st;
}

int64_t ech_token_writer_tokens(const ech_token_writer *w)
{
    return w->n_tokens;
}

int64_t ech_token_writer_documents(const ech_token_writer *w)
{
    return (int64_t)w->n_documents;
}

void ech_token_writer_destroy(ech_token_writer **w)
{
    if (!*w)
        return;
    ech_file_close(&(*w)->bin);
    free((*w)->path);
    free((*w)->tokenizer);
    free((*w)->block);
    free((*w)->hash);
    free((*w)->length);
    free((*w)->doc_end);
    free(*w);
    *w = NULL;
}
