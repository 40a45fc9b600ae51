/* Token files: opening, reading, checking ids. */
#include "data/token_file.h"

#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "data/side_file.h"
#include "data/token_form.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 4096,        /* tokens converted at a time, on the stack */
    SCAN_CHUNK = 1 << 16 /* tokens scanned at a time */
};

struct ech_token_file {
    ech_file *bin; /* owned */
    ech_file *idx; /* owned; NULL: not Megatron's */
    char *path;    /* owned */
    ech_token_layout layout;
    ech_token_info info;
    ech_side_file side;
    uint32_t limit; /* ids are below it */
};

ech_token_options ech_token_options_default(void)
{
    return (ech_token_options){.dtype = ECH_TOKEN_AUTO, .trusts_side_file = true};
}

/* One stack buffer, seen as every element type. */
typedef union raw_tokens {
    int64_t i64[CHUNK];
    int32_t i32[CHUNK];
    uint32_t u32[CHUNK];
    int16_t i16[CHUNK];
    uint16_t u16[CHUNK];
    int8_t i8[CHUNK];
    uint8_t u8[CHUNK];
} raw_tokens;

/* n elements as ids; int64 ones that do not fit become UINT32_MAX, negative ones wrap beyond any
 * limit. Sets max to the largest. */
#define CONVERT(src)                                                                               \
    do {                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const uint32_t v = (uint32_t)(src)[i];                                                 \
            out[i] = (int32_t)v;                                                                   \
            max = v > max ? v : max;                                                               \
        }                                                                                          \
    } while (0)

static uint32_t convert(ech_token_type type, const raw_tokens *raw, int64_t n, int32_t *out)
{
    uint32_t max = 0;

    switch (type) {
    case ECH_TOKEN_U8:
        CONVERT(raw->u8);
        break;
    case ECH_TOKEN_I8:
        CONVERT(raw->i8);
        break;
    case ECH_TOKEN_I16:
        CONVERT(raw->i16);
        break;
    case ECH_TOKEN_U16:
        CONVERT(raw->u16);
        break;
    case ECH_TOKEN_I32:
        CONVERT(raw->i32);
        break;
    case ECH_TOKEN_U32:
        CONVERT(raw->u32);
        break;
    case ECH_TOKEN_I64:
        for (int64_t i = 0; i < n; i++) {
            const int64_t x = raw->i64[i];
            const uint32_t v = x < 0 || x > INT32_MAX ? UINT32_MAX : (uint32_t)x;
            out[i] = (int32_t)v;
            max = v > max ? v : max;
        }
        break;
    case ECH_TOKEN_AUTO:
        break;
    }
    return max;
}

static ech_status refuse_id(const ech_token_file *f, int64_t start, int64_t n, const int32_t *ids)
{
    for (int64_t i = 0; i < n; i++) {
        if ((uint32_t)ids[i] < f->limit)
            continue;
        ECH_CHECK(f->limit <= INT32_MAX, ECH_E_DATA,
                  "%s: token %lld (%s) is no id: it is negative or beyond 31 bits", f->path,
                  (long long)(start + i), ech_token_type_name(f->info.dtype));
        return ECH_RAISE(ECH_E_DATA, "%s: token %lld has id %d, the vocabulary has %u entries",
                         f->path, (long long)(start + i), ids[i], f->limit);
    }
    return ECH_OK;
}

ech_status ech_token_file_read(const ech_token_file *f, int64_t start, int64_t n, int32_t *out)
{
    raw_tokens raw;
    const int64_t elem = ech_token_type_bytes(f->info.dtype);

    ECH_ASSERT(start >= 0 && n >= 0 && n <= f->info.n_tokens - start);
    while (n > 0) {
        const int64_t k = n < CHUNK ? n : CHUNK;
        ECH_TRY(ech_file_read_at(f->bin, &raw, (size_t)(k * elem),
                                 f->layout.data_offset + start * elem));
        const uint32_t max = convert(f->info.dtype, &raw, k, out);
        if (max >= f->limit)
            return refuse_id(f, start, k, out);
        start += k;
        out += k;
        n -= k;
    }
    return ECH_OK;
}

/* Every id once: the largest, or the first that is out of range. */
static ech_status scan_ids(const ech_token_file *f, int64_t *max_id)
{
    int32_t *ids = NULL;
    int32_t max = 0;
    ech_status st = ECH_OK;

    ECH_TRY(ech_calloc(SCAN_CHUNK, sizeof *ids, &ids));
    for (int64_t at = 0; at < f->info.n_tokens; at += SCAN_CHUNK) {
        const int64_t left = f->info.n_tokens - at;
        const int64_t n = left < SCAN_CHUNK ? left : SCAN_CHUNK;
        ECH_TRY_GOTO(st, ech_token_file_read(f, at, n, ids), done);
        for (int64_t i = 0; i < n; i++)
            max = ids[i] > max ? ids[i] : max;
    }
    *max_id = max;
done:
    free(ids);
    return st;
}

static ech_status read_layout(ech_token_file *f, ech_token_type dtype)
{
    char idx_path[PATH_MAX];

    ECH_CHECK(ech_file_bytes(f->bin) > 0, ECH_E_DATA, "%s: the token file is empty", f->path);
    ECH_TRY(ech_token_index_path(f->path, idx_path, sizeof idx_path));
    if (!ech_path_exists(idx_path))
        return ech_token_bare_layout(f->bin, dtype, &f->layout);
    ECH_TRY(ech_file_open(idx_path, &f->idx));
    return ech_token_index_check(f->idx, ech_file_bytes(f->bin), &f->layout);
}

static ech_status check_type(const ech_token_file *f, const ech_token_options *opt)
{
    const ech_token_type type = f->layout.dtype;

    ECH_CHECK(opt->dtype == ECH_TOKEN_AUTO || opt->dtype == type, ECH_E_DATA,
              "%s: its elements are %s by its own header or index, data.dtype says %s", f->path,
              ech_token_type_name(type), ech_token_type_name(opt->dtype));
    ECH_CHECK(
        ech_token_type_bytes(type) > 2 || opt->vocab <= 65536, ECH_E_DATA,
        "%s: %s tokens cannot hold the ids of a vocabulary of %lld (65536 at most): they were "
        "wrapped when written, or belong to another vocabulary",
        f->path, ech_token_type_name(type), (long long)opt->vocab);
    ECH_CHECK(opt->vocab >= 0 && opt->vocab <= INT32_MAX, ECH_E_CONFIG,
              "a vocabulary of %lld, wanted 0..%d", (long long)opt->vocab, INT32_MAX);
    return ECH_OK;
}

static ech_status read_side(ech_token_file *f)
{
    char side_path[PATH_MAX];

    ECH_TRY(ech_side_file_path(f->path, side_path, sizeof side_path));
    ECH_TRY(ech_side_file_read(side_path, &f->info.has_side_file, &f->side));
    if (!f->info.has_side_file)
        return ECH_OK;
    ECH_CHECK(f->side.n_tokens == f->info.n_tokens && f->side.dtype == f->info.dtype, ECH_E_DATA,
              "%s: the side file speaks of %lld %s tokens, the file holds %lld of %s", f->path,
              (long long)f->side.n_tokens, ech_token_type_name(f->side.dtype),
              (long long)f->info.n_tokens, ech_token_type_name(f->info.dtype));
    f->info.vocab = f->side.vocab;
    return ECH_OK;
}

static ech_status check_ids(ech_token_file *f, const ech_token_options *opt)
{
    f->limit = opt->vocab > 0 ? (uint32_t)opt->vocab : (uint32_t)INT32_MAX + 1;
    if (opt->trusts_side_file && f->info.has_side_file) {
        f->info.max_id = f->side.max_id;
        ECH_CHECK(f->side.max_id < f->limit, ECH_E_DATA,
                  "%s: its largest id is %lld, the vocabulary has %lld entries", f->path,
                  (long long)f->side.max_id, (long long)opt->vocab);
        return ECH_OK;
    }
    f->info.max_id = -1;
    return opt->skips_scan ? ECH_OK : scan_ids(f, &f->info.max_id);
}

static ech_status open_parts(ech_token_file *f, const ech_token_options *opt)
{
    ECH_TRY(ech_file_open(f->path, &f->bin));
    ECH_TRY(read_layout(f, opt->dtype));
    ECH_TRY(check_type(f, opt));
    f->info.form = f->layout.form;
    f->info.dtype = f->layout.dtype;
    f->info.n_tokens = f->layout.n_tokens;
    f->info.n_documents = f->layout.n_documents;
    ECH_TRY(read_side(f));
    return check_ids(f, opt);
}

ech_status ech_token_file_open(const char *path, const ech_token_options *opt, ech_token_file **out)
{
    const ech_token_options defaults = ech_token_options_default();
    ech_token_file *f = NULL;

    ECH_CHECK(ech_path_exists(path), ECH_E_DATA, "token file '%s' does not exist", path);
    ECH_CHECK(!ech_path_is_folder(path), ECH_E_DATA, "token file '%s' is a folder", path);
    ECH_TRY(ech_calloc(1, sizeof *f, &f));
    f->path = strdup(path);
    ech_status st = f->path ? ECH_OK : ECH_RAISE(ECH_E_NOMEM, "no memory for a path");
    if (st == ECH_OK)
        st = open_parts(f, opt ? opt : &defaults);
    if (st < 0) {
        ech_token_file_close(&f);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = f;
    return ECH_OK;
}

void ech_token_file_close(ech_token_file **f)
{
    if (!*f)
        return;
    ech_file_close(&(*f)->bin);
    ech_file_close(&(*f)->idx);
    ech_side_file_fini(&(*f)->side);
    free((*f)->path);
    free(*f);
    *f = NULL;
}

const ech_token_info *ech_token_file_info(const ech_token_file *f)
{
    return &f->info;
}

const char *ech_token_file_path(const ech_token_file *f)
{
    return f->path;
}

ech_status ech_token_file_document(const ech_token_file *f, int64_t i, int64_t *start, int64_t *n)
{
    ECH_ASSERT(i >= 0 && i < f->info.n_documents);
    if (f->idx)
        return ech_token_index_document(f->idx, &f->layout, i, start, n);
    *start = 0;
    *n = f->info.n_tokens;
    return ECH_OK;
}

/* How often each id occurs; *counts grows to the largest id met. */
static ech_status count_ids(const ech_token_file *f, int64_t **counts, size_t *n_counts)
{
    int32_t ids[CHUNK];

    for (int64_t at = 0; at < f->info.n_tokens; at += CHUNK) {
        const int64_t left = f->info.n_tokens - at;
        const int64_t n = left < CHUNK ? left : CHUNK;
        ECH_TRY(ech_token_file_read(f, at, n, ids));
        for (int64_t i = 0; i < n; i++) {
            const size_t id = (size_t)ids[i];
            if (id >= *n_counts) {
                const size_t more = id + 1 > 2 * *n_counts ? id + 1 : 2 * *n_counts;
                int64_t *grown = realloc(*counts, more * sizeof **counts);
                ECH_CHECK(grown, ECH_E_NOMEM, "no memory to count %zu ids", more);
                memset(grown + *n_counts, 0, (more - *n_counts) * sizeof *grown);
                *counts = grown;
                *n_counts = more;
            }
            (*counts)[id]++;
        }
    }
    return ECH_OK;
}

ech_status ech_token_file_unigram(const ech_token_file *f, double *entropy_nats,
                                  int64_t *n_distinct)
{
    int64_t *counts = NULL;
    size_t n = 0;
    const double total = (double)f->info.n_tokens;

    const ech_status st = count_ids(f, &counts, &n);
    if (st < 0) {
        free(counts);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    double h = 0;
    *n_distinct = 0;
    for (size_t i = 0; i < n; i++) {
        if (counts[i] == 0)
            continue;
        const double p = (double)counts[i] / total;
        h -= p * log(p);
        ++*n_distinct;
    }
    *entropy_nats = h;
    free(counts);
    return ECH_OK;
}

/* Hash of block b of `size` bytes; block is working memory of that size. */
static ech_status hash_block(const ech_token_file *f, char *block, int64_t size, int64_t b,
                             uint64_t *hash)
{
    const int64_t bytes = f->info.n_tokens * ech_token_type_bytes(f->info.dtype);
    const int64_t at = b * size;
    const int64_t n = bytes - at < size ? bytes - at : size;

    ECH_TRY(ech_file_read_at(f->bin, block, (size_t)n, f->layout.data_offset + at));
    *hash = ech_hash64(block, (size_t)n);
    return ECH_OK;
}

static ech_status verify_blocks(const ech_token_file *f, char *block)
{
    for (size_t b = 0; b < f->side.n_blocks; b++) {
        uint64_t hash = 0;
        ECH_TRY(hash_block(f, block, f->side.block_bytes, (int64_t)b, &hash));
        ECH_CHECK(
            hash == f->side.hash[b], ECH_E_CORRUPT,
            "%s: block %zu (%lld bytes from byte %lld on) is damaged: its hash is not the one "
            "written",
            f->path, b, (long long)f->side.block_bytes,
            (long long)((int64_t)b * f->side.block_bytes));
    }
    return ECH_OK;
}

/* One link: the hash so far and the next block's. */
static uint64_t link_hash(uint64_t so_far, uint64_t next)
{
    const uint64_t both[2] = {so_far, next};
    return ech_hash64(both, sizeof both);
}

static ech_status chain_blocks(const ech_token_file *f, char *block, uint64_t *chain)
{
    const int64_t bytes = f->info.n_tokens * ech_token_type_bytes(f->info.dtype);

    for (int64_t b = 0; b * ECH_TOKEN_BLOCK_BYTES < bytes; b++) {
        uint64_t hash = 0;
        ECH_TRY(hash_block(f, block, ECH_TOKEN_BLOCK_BYTES, b, &hash));
        *chain = link_hash(*chain, hash);
    }
    return ECH_OK;
}

ech_status ech_token_file_hash(const ech_token_file *f, char out[33])
{
    uint64_t chain = (uint64_t)f->info.n_tokens;
    char *block = NULL;

    if (f->info.has_side_file && f->side.block_bytes == ECH_TOKEN_BLOCK_BYTES) {
        for (size_t b = 0; b < f->side.n_blocks; b++)
            chain = link_hash(chain, f->side.hash[b]);
    } else {
        ECH_TRY(ech_calloc((size_t)ECH_TOKEN_BLOCK_BYTES, 1, &block));
        const ech_status st = chain_blocks(f, block, &chain);
        free(block);
        ECH_TRY(st);
    }
    ech_hash128_hex(&chain, sizeof chain, out);
    return ECH_OK;
}

ech_status ech_token_file_verify(const ech_token_file *f)
{
    char *block = NULL;
    int64_t max_id = 0;

    ECH_CHECK(f->info.has_side_file, ECH_E_DATA,
              "%s: there is no side file with hashes ('%s.json') to verify it against", f->path,
              f->path);
    const int64_t bytes = f->info.n_tokens * ech_token_type_bytes(f->info.dtype);
    const int64_t size = f->side.block_bytes < bytes ? f->side.block_bytes : bytes;
    ECH_TRY(ech_calloc((size_t)size, 1, &block));
    const ech_status st = verify_blocks(f, block);
    free(block);
    ECH_TRY(st);
    ECH_TRY(scan_ids(f, &max_id));
    ECH_CHECK(max_id == f->side.max_id, ECH_E_CORRUPT,
              "%s: the largest id is %lld, the side file says %lld", f->path, (long long)max_id,
              (long long)f->side.max_id);
    return ECH_OK;
}
