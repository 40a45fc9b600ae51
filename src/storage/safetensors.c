#include "storage/safetensors.h"

#include "base/checked.h"
#include "storage/json_cursor.h"
#include "storage/safetensors_private.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian in the file");

static const ech_dtype readable_as[ECH_N_ST_DTYPES] = {
#define ROW(id, text, bits, dtype) [id] = (dtype),
    ECH_ST_DTYPE_LIST(ROW)
#undef ROW
};

/* Rule 1, by subtraction: 8 + N could overflow. */
static ech_status header_length(const unsigned char first[8], int64_t file_bytes, int64_t cap,
                                int64_t *out)
{
    uint64_t n = 0;

    for (int i = 7; i >= 0; i--)
        n = n << 8 | first[i];
    ECH_CHECK(n <= (uint64_t)cap, ECH_E_CORRUPT,
              "length: the header claims %llu bytes, at most %lld are read", (unsigned long long)n,
              (long long)cap);
    ECH_CHECK((int64_t)n <= file_bytes - 8, ECH_E_CORRUPT,
              "length: the header claims %llu bytes, the file has %lld behind its first 8",
              (unsigned long long)n, (long long)(file_bytes - 8));
    *out = (int64_t)n;
    return ECH_OK;
}

static ech_status read_header(ech_st *st, int64_t cap)
{
    const int64_t file_bytes = ech_file_bytes(st->file);
    unsigned char first[8];
    int64_t n = 0;

    ECH_CHECK(file_bytes >= 8, ECH_E_CORRUPT, "length: the file has %lld bytes, 8 are the least",
              (long long)file_bytes);
    ECH_TRY(ech_file_read_at(st->file, first, sizeof first, 0));
    ECH_TRY(header_length(first, file_bytes, cap, &n));
    ECH_TRY(ech_calloc((size_t)n + 1, 1, &st->header));
    ECH_TRY(ech_file_read_at(st->file, st->header, (size_t)n, 8));
    return ech_st_parse(st, n, file_bytes - 8 - n);
}

/* Takes the file. */
static ech_status open_file(ech_file *file, int64_t header_cap, ech_st **out)
{
    const int64_t cap = header_cap <= 0                    ? ECH_ST_HEADER_CAP
                        : header_cap > ECH_ST_HEADER_LIMIT ? ECH_ST_HEADER_LIMIT
                                                           : header_cap;
    ech_st *st = NULL;
    ech_status ok = ech_calloc(1, sizeof *st, &st);

    if (ok < 0) {
        ech_file_close(&file);
        return ok;
    }
    st->file = file;
    ok = read_header(st, cap);
    if (ok < 0) {
        ok = ech_error_prefix(ok, "%s: ", ech_file_path(file));
        ech_st_close(&st);
        return ok;
    }
    *out = st;
    return ECH_OK;
}

ech_status ech_st_open(const char *path, int64_t header_cap, ech_st **out)
{
    ech_file *file = NULL;

    ECH_TRY(ech_file_open(path, &file));
    return open_file(file, header_cap, out);
}

ech_status ech_st_open_in(const char *dir, const char *name, int64_t header_cap, ech_st **out)
{
    ech_file *file = NULL;

    ECH_TRY(ech_file_open_in(dir, name, &file));
    return open_file(file, header_cap, out);
}

ech_status ech_st_check_bytes(const void *data, size_t bytes)
{
    ech_st st = {0};
    int64_t n = 0;

    ECH_CHECK(bytes >= 8 && bytes <= INT64_MAX, ECH_E_CORRUPT,
              "length: the file has %zu bytes, 8 are the least", bytes);
    ECH_TRY(header_length(data, (int64_t)bytes, ECH_ST_HEADER_CAP, &n));
    ECH_TRY(ech_calloc((size_t)n + 1, 1, &st.header));
    memcpy(st.header, (const char *)data + 8, (size_t)n);
    const ech_status ok = ech_st_parse(&st, n, (int64_t)bytes - 8 - n);
    ech_st_fini(&st);
    return ok;
}

void ech_st_close(ech_st **st)
{
    if (!*st)
        return;
    ech_st_fini(*st);
    free(*st);
    *st = NULL;
}

int64_t ech_st_count(const ech_st *st)
{
    return (int64_t)st->n;
}

const ech_st_tensor *ech_st_at(const ech_st *st, int64_t i)
{
    ECH_ASSERT(i >= 0 && i < (int64_t)st->n);
    return &st->tensor[i];
}

static int name_to_tensor(const void *key, const void *row)
{
    const ech_st_tensor *const *t = row;

    return strcmp(key, (*t)->name);
}

const ech_st_tensor *ech_st_find(const ech_st *st, const char *name)
{
    const ech_st_tensor **row =
        bsearch(name, st->by_name, st->n, sizeof *st->by_name, name_to_tensor);

    return row ? *row : NULL;
}

const char *ech_st_metadata(const ech_st *st, const char *key)
{
    for (size_t i = 0; i < st->n_meta; i++)
        if (!strcmp(st->meta[i].key, key))
            return st->meta[i].value;
    return NULL;
}

const char *ech_st_path(const ech_st *st)
{
    return ech_file_path(st->file);
}

static bool is_floating(ech_dtype t)
{
    return t == ECH_F64 || t == ECH_F32 || t == ECH_BF16 || t == ECH_F16;
}

/* Through a small buffer: the stack bounds the extra memory whatever the tensor's size. */
static ech_status read_converted(const ech_st *st, int64_t at, int64_t n, ech_dtype from,
                                 ech_dtype as, void *out)
{
    enum { CHUNK = 2048 };
    double buf[CHUNK]; /* doubles, so that any type is aligned in it */
    const int64_t size = (int64_t)ech_dtype_bytes(from);

    for (int64_t done = 0; done < n;) {
        const int64_t k = n - done < CHUNK ? n - done : CHUNK;
        ECH_TRY(ech_file_read_at(st->file, buf, (size_t)(k * size), at + done * size));
        for (int64_t i = 0; i < k; i++)
            ech_dtype_store(as, out, (size_t)(done + i), ech_dtype_load(from, buf, (size_t)i));
        done += k;
    }
    return ECH_OK;
}

ech_status ech_st_read(const ech_st *st, const ech_st_tensor *t, int64_t first, int64_t n,
                       ech_dtype as, void *out)
{
    const ech_dtype from = readable_as[t->dtype];

    ECH_ASSERT(first >= 0 && n >= 0 && n <= t->elems && first <= t->elems - n);
    ECH_CHECK(from == as || (from != ECH_N_DTYPES && is_floating(from) && is_floating(as)),
              ECH_E_DATA, "%s: tensor '%s' is %s, it cannot be read as %s", ech_st_path(st),
              t->name, ech_st_dtype_name(t->dtype), ech_dtype_name(as));
    const int64_t at = t->offset + first * (int64_t)ech_dtype_bytes(from);
    if (from == as)
        return ech_file_read_at(st->file, out, (size_t)n * ech_dtype_bytes(as), at);
    return read_converted(st, at, n, from, as, out);
}
