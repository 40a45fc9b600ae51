/* Forms of token files: headers and indices, checked before they are believed. */
#include "data/token_form.h"

#include "base/checked.h"
#include "base/text.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian");

enum {
    INDEX_HEADER_BYTES = 34, /* magic 9, version 8, code 1, sequences 8, document entries 8 */
    LLMC_HEADER_BYTES = 1024,
    LLMC_MAGIC_U16 = 20240520,
    LLMC_MAGIC_U32 = 20240801,
    LLMC_MAGIC_EVAL = 20240522,
    CHUNK = 2048 /* elements read at a time */
};

static const char index_magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

ech_status ech_token_index_path(const char *path, char *buf, size_t n)
{
    const size_t len = strlen(path);
    const size_t stem = ech_has_suffix(path, ".bin") ? len - 4 : len;

    ECH_CHECK(stem + sizeof ".idx" <= n, ECH_E_USAGE, "path is too long: '%s'", path);
    memcpy(buf, path, stem);
    memcpy(buf + stem, ".idx", sizeof ".idx");
    return ECH_OK;
}

/* Megatron's element codes 6 and 7 are floating point: no ids. */
static ech_status type_of_code(uint8_t code, const char *path, ech_token_type *out)
{
    switch (code) {
#define CASE(name, bytes, text, c)                                                                 \
    case c:                                                                                        \
        if ((c) == 0)                                                                              \
            break;                                                                                 \
        *out = name;                                                                               \
        return ECH_OK;
        ECH_TOKEN_TYPE_LIST(CASE)
#undef CASE
    default:
        break;
    }
    return ECH_RAISE(ECH_E_DATA,
                     "%s: element code %d is no integer type (1 uint8, 2 int8, 3 int16, 4 int32, "
                     "5 int64, 8 uint16)",
                     path, code);
}

static uint64_t load_u64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static ech_status check_index_header(const ech_file *idx, ech_token_layout *lay, int64_t *n_docs)
{
    const char *path = ech_file_path(idx);
    const int64_t bytes = ech_file_bytes(idx);
    unsigned char h[INDEX_HEADER_BYTES];

    ECH_CHECK(bytes >= INDEX_HEADER_BYTES, ECH_E_DATA,
              "%s: %lld bytes are too short for an index header of %d", path, (long long)bytes,
              INDEX_HEADER_BYTES);
    ECH_TRY(ech_file_read_at(idx, h, sizeof h, 0));
    ECH_CHECK(memcmp(h, index_magic, sizeof index_magic) == 0, ECH_E_DATA,
              "%s: is no Megatron index (it does not begin with MMIDIDX)", path);
    ECH_CHECK(load_u64(h + 9) == 1, ECH_E_DATA, "%s: index version %llu, only 1 is known", path,
              (unsigned long long)load_u64(h + 9));
    ECH_TRY(type_of_code(h[17], path, &lay->dtype));

    const uint64_t n_seq = load_u64(h + 18);
    const uint64_t n_doc = load_u64(h + 26);
    const uint64_t rest = (uint64_t)bytes - INDEX_HEADER_BYTES;
    ECH_CHECK(n_seq >= 1 && n_seq <= rest / 12, ECH_E_DATA,
              "%s: %llu sequences in an index of %lld bytes", path, (unsigned long long)n_seq,
              (long long)bytes);
    ECH_CHECK(n_doc >= 2 && n_doc <= rest / 8, ECH_E_DATA,
              "%s: %llu document boundaries in an index of %lld bytes", path,
              (unsigned long long)n_doc, (long long)bytes);
    /* Multimodal data carries one more byte a sequence. */
    const uint64_t want = 12 * n_seq + 8 * n_doc;
    ECH_CHECK(rest == want || rest == want + n_seq, ECH_E_DATA,
              "%s: %llu bytes follow the header, %llu sequences and %llu document boundaries need "
              "%llu",
              path, (unsigned long long)rest, (unsigned long long)n_seq, (unsigned long long)n_doc,
              (unsigned long long)want);
    lay->n_sequences = (int64_t)n_seq;
    lay->n_documents = (int64_t)n_doc - 1;
    *n_docs = (int64_t)n_doc;
    return ECH_OK;
}

/* Every length is >= 0 and every offset the sum of the lengths before it, in bytes. */
static ech_status check_sequences(const ech_file *idx, int64_t n_seq, int64_t elem, int64_t *total)
{
    const char *path = ech_file_path(idx);
    int32_t len[CHUNK];
    int64_t off[CHUNK];
    int64_t sum = 0;

    for (int64_t at = 0; at < n_seq; at += CHUNK) {
        const int64_t n = n_seq - at < CHUNK ? n_seq - at : CHUNK;
        ECH_TRY(ech_file_read_at(idx, len, (size_t)n * 4, INDEX_HEADER_BYTES + at * 4));
        ECH_TRY(ech_file_read_at(idx, off, (size_t)n * 8, INDEX_HEADER_BYTES + n_seq * 4 + at * 8));
        for (int64_t i = 0; i < n; i++) {
            ECH_CHECK(len[i] >= 0, ECH_E_DATA, "%s: sequence %lld has length %d", path,
                      (long long)(at + i), len[i]);
            ECH_CHECK(off[i] == sum, ECH_E_DATA,
                      "%s: sequence %lld begins at byte %lld, the lengths before it add up to %lld",
                      path, (long long)(at + i), (long long)off[i], (long long)sum);
            ECH_TRY(ech_add_i64(sum, len[i] * elem, &sum));
        }
    }
    *total = sum;
    return ECH_OK;
}

/* The document list begins at 0, never falls and ends at the number of sequences. */
static ech_status check_documents(const ech_file *idx, int64_t n_seq, int64_t n_docs)
{
    const char *path = ech_file_path(idx);
    const int64_t begin = INDEX_HEADER_BYTES + n_seq * 12;
    int64_t doc[CHUNK];
    int64_t last = 0;

    for (int64_t at = 0; at < n_docs; at += CHUNK) {
        const int64_t n = n_docs - at < CHUNK ? n_docs - at : CHUNK;
        ECH_TRY(ech_file_read_at(idx, doc, (size_t)n * 8, begin + at * 8));
        ECH_CHECK(at > 0 || doc[0] == 0, ECH_E_DATA,
                  "%s: the document list begins with %lld, not 0", path, (long long)doc[0]);
        for (int64_t i = 0; i < n; i++) {
            ECH_CHECK(doc[i] >= last && doc[i] <= n_seq, ECH_E_DATA,
                      "%s: document boundary %lld is %lld, wanted a value in %lld..%lld", path,
                      (long long)(at + i), (long long)doc[i], (long long)last, (long long)n_seq);
            last = doc[i];
        }
    }
    ECH_CHECK(last == n_seq, ECH_E_DATA,
              "%s: the document list ends at sequence %lld, the index has %lld", path,
              (long long)last, (long long)n_seq);
    return ECH_OK;
}

ech_status ech_token_index_check(const ech_file *idx, int64_t bin_bytes, ech_token_layout *out)
{
    ech_token_layout lay = {.form = ECH_TOKENS_MEGATRON};
    int64_t n_docs = 0;
    int64_t total = 0;

    ECH_TRY(check_index_header(idx, &lay, &n_docs));
    const int64_t elem = ech_token_type_bytes(lay.dtype);
    ECH_TRY(check_sequences(idx, lay.n_sequences, elem, &total));
    ECH_TRY(check_documents(idx, lay.n_sequences, n_docs));
    ECH_CHECK(total == bin_bytes, ECH_E_DATA,
              "%s: the sequences hold %lld bytes (%s), the .bin has %lld", ech_file_path(idx),
              (long long)total, ech_token_type_name(lay.dtype), (long long)bin_bytes);
    lay.n_tokens = total / elem;
    *out = lay;
    return ECH_OK;
}

/* First token of a sequence; the end of the file for sequence n. */
static ech_status sequence_start(const ech_file *idx, const ech_token_layout *lay, int64_t s,
                                 int64_t *start)
{
    int64_t byte = 0;

    *start = lay->n_tokens;
    if (s == lay->n_sequences)
        return ECH_OK;
    ECH_TRY(ech_file_read_at(idx, &byte, 8, INDEX_HEADER_BYTES + lay->n_sequences * 4 + s * 8));
    *start = byte / ech_token_type_bytes(lay->dtype);
    return ECH_OK;
}

ech_status ech_token_index_document(const ech_file *idx, const ech_token_layout *lay, int64_t i,
                                    int64_t *start, int64_t *n)
{
    int64_t seq[2];
    int64_t end = 0;

    ECH_TRY(
        ech_file_read_at(idx, seq, sizeof seq, INDEX_HEADER_BYTES + lay->n_sequences * 12 + i * 8));
    ECH_CHECK(0 <= seq[0] && seq[0] <= seq[1] && seq[1] <= lay->n_sequences, ECH_E_CORRUPT,
              "%s: document %lld changed since the file was opened", ech_file_path(idx),
              (long long)i);
    ECH_TRY(sequence_start(idx, lay, seq[0], start));
    ECH_TRY(sequence_start(idx, lay, seq[1], &end));
    ECH_CHECK(0 <= *start && *start <= end && end <= lay->n_tokens, ECH_E_CORRUPT,
              "%s: document %lld changed since the file was opened", ech_file_path(idx),
              (long long)i);
    *n = end - *start;
    return ECH_OK;
}

static ech_status llmc_layout(const ech_file *bin, const int32_t head[3], ech_token_layout *out)
{
    const char *path = ech_file_path(bin);
    const bool is_wide = head[0] == LLMC_MAGIC_U32;
    const int32_t version = is_wide ? 7 : 1;
    const int64_t elem = is_wide ? 4 : 2;
    const int64_t bytes = ech_file_bytes(bin) - LLMC_HEADER_BYTES;

    ECH_CHECK(bytes >= 0, ECH_E_DATA, "%s: %lld bytes are too short for an llm.c header of %d",
              path, (long long)ech_file_bytes(bin), LLMC_HEADER_BYTES);
    ECH_CHECK(head[1] == version, ECH_E_DATA, "%s: llm.c version %d, wanted %d for magic %d", path,
              head[1], version, head[0]);
    ECH_CHECK(head[2] > 0, ECH_E_DATA, "%s: its llm.c header says %d tokens", path, head[2]);
    ECH_CHECK(bytes == head[2] * elem, ECH_E_DATA,
              "%s: its llm.c header says %d tokens of %lld bytes, %lld bytes follow it", path,
              head[2], (long long)elem, (long long)bytes);
    *out = (ech_token_layout){.form = ECH_TOKENS_LLMC,
                              .dtype = is_wide ? ECH_TOKEN_U32 : ECH_TOKEN_U16,
                              .data_offset = LLMC_HEADER_BYTES,
                              .n_tokens = head[2],
                              .n_sequences = 1,
                              .n_documents = 1};
    return ECH_OK;
}

/* 32-bit ids read as 16 bit show a zero in every second place: real text never does. */
static ech_status refuse_wide_looks(const ech_file *bin, int64_t n_tokens)
{
    uint16_t t[CHUNK];
    const int64_t n = n_tokens < CHUNK ? n_tokens / 2 * 2 : CHUNK;
    bool low = false;
    bool high = false;

    if (n < 16)
        return ECH_OK;
    ECH_TRY(ech_file_read_at(bin, t, (size_t)n * 2, 0));
    for (int64_t i = 0; i < n; i += 2) {
        low |= t[i] != 0;
        high |= t[i + 1] != 0;
    }
    ECH_CHECK(high || !low, ECH_E_DATA,
              "%s: every second 16-bit value is 0: it looks like 32-bit tokens; say so with "
              "data.dtype: int32 (or uint16 if it really is 16 bit)",
              ech_file_path(bin));
    return ECH_OK;
}

ech_status ech_token_bare_layout(const ech_file *bin, ech_token_type dtype, ech_token_layout *out)
{
    const char *path = ech_file_path(bin);
    const int64_t bytes = ech_file_bytes(bin);
    int32_t head[3] = {0};

    if (bytes >= (int64_t)sizeof head)
        ECH_TRY(ech_file_read_at(bin, head, sizeof head, 0));
    if (head[0] == LLMC_MAGIC_U16 || head[0] == LLMC_MAGIC_U32)
        return llmc_layout(bin, head, out);
    ECH_CHECK(head[0] != LLMC_MAGIC_EVAL, ECH_E_DATA,
              "%s: is an llm.c evaluation file (magic %d), no token file", path, LLMC_MAGIC_EVAL);

    const ech_token_type type = dtype == ECH_TOKEN_AUTO ? ECH_TOKEN_U16 : dtype;
    const int64_t elem = ech_token_type_bytes(type);
    ECH_CHECK(bytes % elem == 0, ECH_E_DATA,
              "%s: %lld bytes are no whole number of %s tokens: it is damaged or of another type "
              "(data.dtype)",
              path, (long long)bytes, ech_token_type_name(type));
    if (dtype == ECH_TOKEN_AUTO)
        ECH_TRY(refuse_wide_looks(bin, bytes / elem));
    *out = (ech_token_layout){.form = ECH_TOKENS_BARE,
                              .dtype = type,
                              .n_tokens = bytes / elem,
                              .n_sequences = 1,
                              .n_documents = 1};
    return ECH_OK;
}
