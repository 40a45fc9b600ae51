#include "storage/safetensors_private.h"

#include "base/checked.h"
#include "storage/json_cursor.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int bits;
} dtype_row[ECH_N_ST_DTYPES] = {
#define ROW(id, text, nbits, dtype) [id] = {(text), (nbits)},
    ECH_ST_DTYPE_LIST(ROW)
#undef ROW
};

const char *ech_st_dtype_name(ech_st_dtype t)
{
    return dtype_row[t].name;
}

/* One tensor while its three members come in any order. */
typedef struct draft {
    const char *shown; /* its name for messages */
    bool has_dtype, has_shape, has_offsets;
    ech_st_tensor t;
    int64_t begin, end;
} draft;

static ech_status parse_dtype(ech_json *j, draft *d)
{
    char *text;
    char shown[48];

    ECH_TRY(ech_json_string(j, &text));
    for (int i = 0; i < ECH_N_ST_DTYPES; i++)
        if (!strcmp(text, dtype_row[i].name)) {
            d->t.dtype = (ech_st_dtype)i;
            return ECH_OK;
        }
    return ECH_RAISE(ECH_E_CORRUPT, "size: tensor '%s' has unknown dtype '%s'", d->shown,
                     ech_json_quote(text, shown, sizeof shown));
}

/* A dimension or an offset. */
static ech_status parse_size(ech_json *j, const draft *d, int64_t *out)
{
    (void)ech_json_peek(j);
    const size_t byte = (size_t)(j->at - j->begin);

    ECH_CHECK(ech_json_integer(j, out) == ECH_OK, ECH_E_CORRUPT,
              "size: tensor '%s': byte %zu: expected an integer in 0 .. 2^63 - 1", d->shown, byte);
    return ECH_OK;
}

static ech_status parse_shape(ech_json *j, ech_st *st, draft *d)
{
    int64_t n = 0;
    bool more = true;

    ECH_TRY(ech_json_take(j, '['));
    for (;;) {
        ECH_TRY(ech_json_more(j, ']', &n, &more));
        if (!more)
            break;
        ECH_TRY(ech_grow(&st->dim, st->n_dims, &st->dim_cap, sizeof *st->dim));
        ECH_TRY(parse_size(j, d, &st->dim[st->n_dims]));
        st->n_dims++;
    }
    ECH_CHECK(n <= INT_MAX, ECH_E_CORRUPT, "size: tensor '%s' has too many dimensions", d->shown);
    d->t.rank = (int)n;
    return ECH_OK;
}

static ech_status parse_offsets(ech_json *j, draft *d)
{
    ECH_TRY(ech_json_take(j, '['));
    ECH_TRY(parse_size(j, d, &d->begin));
    ECH_TRY(ech_json_take(j, ','));
    ECH_TRY(parse_size(j, d, &d->end));
    return ech_json_take(j, ']');
}

/* One member of a tensor's object; each key may come once. */
static ech_status parse_member(ech_json *j, ech_st *st, draft *d, const char *key)
{
    bool *has = !strcmp(key, "dtype")          ? &d->has_dtype
                : !strcmp(key, "shape")        ? &d->has_shape
                : !strcmp(key, "data_offsets") ? &d->has_offsets
                                               : NULL;
    char shown[48];

    ECH_CHECK(has, ECH_E_CORRUPT, "metadata: tensor '%s' has unknown key '%s'", d->shown,
              ech_json_quote(key, shown, sizeof shown));
    ECH_CHECK(!*has, ECH_E_CORRUPT, "json: tensor '%s' has key '%s' twice", d->shown, key);
    *has = true;
    if (has == &d->has_dtype)
        return parse_dtype(j, d);
    return has == &d->has_shape ? parse_shape(j, st, d) : parse_offsets(j, d);
}

/* Rule 4: the product of the dimensions, in whole bytes, is exactly what the offsets span. */
static ech_status check_size(const ech_st *st, draft *d, int64_t data_bytes)
{
    const int64_t *dim = st->dim + (st->n_dims - (size_t)d->t.rank);
    int64_t elems = 1;
    int64_t bits = 0;
    ech_status ok = ECH_OK;

    for (int i = 0; ok == ECH_OK && i < d->t.rank; i++)
        ok = ech_mul_i64(elems, dim[i], &elems);
    if (ok == ECH_OK)
        ok = ech_mul_i64(elems, dtype_row[d->t.dtype].bits, &bits);
    ECH_CHECK(ok == ECH_OK, ECH_E_CORRUPT, "size: tensor '%s': the product of its shape overflows",
              d->shown);
    ECH_CHECK(bits % 8 == 0, ECH_E_CORRUPT, "size: tensor '%s' does not fill whole bytes",
              d->shown);
    ECH_CHECK(d->begin <= d->end && d->end <= data_bytes, ECH_E_CORRUPT,
              "size: tensor '%s' has offsets %lld..%lld, the file has %lld bytes of data", d->shown,
              (long long)d->begin, (long long)d->end, (long long)data_bytes);
    ECH_CHECK(d->end - d->begin == bits / 8, ECH_E_CORRUPT,
              "size: tensor '%s' spans %lld bytes, its shape needs %lld", d->shown,
              (long long)(d->end - d->begin), (long long)(bits / 8));
    d->t.elems = elems;
    d->t.bytes = bits / 8;
    d->t.offset = d->begin;
    return ECH_OK;
}

static ech_status parse_tensor(ech_json *j, ech_st *st, char *name, int64_t data_bytes)
{
    char shown[96];
    draft d = {.shown = ech_json_quote(name, shown, sizeof shown), .t = {.name = name}};
    int64_t n = 0;
    bool more = true;
    char *key;

    ECH_CHECK(strlen(name) <= ECH_ST_NAME_CAP, ECH_E_CORRUPT,
              "name: tensor '%s' has a name of %zu bytes, at most %d are read", shown, strlen(name),
              (int)ECH_ST_NAME_CAP);
    ECH_CHECK(ech_json_is_printable(name), ECH_E_CORRUPT,
              "name: tensor '%s' has a control character in its name", shown);
    ECH_CHECK(st->n < ECH_ST_TENSORS_CAP, ECH_E_CORRUPT, "name: more than %d tensors",
              (int)ECH_ST_TENSORS_CAP);
    ECH_CHECK(ech_json_peek(j) == '{', ECH_E_CORRUPT,
              "metadata: member '%s' is no tensor (an object)", shown);
    ECH_TRY(ech_json_take(j, '{'));
    for (;;) {
        ECH_TRY(ech_json_more(j, '}', &n, &more));
        if (!more)
            break;
        ECH_TRY(ech_json_key(j, &key));
        ECH_TRY(parse_member(j, st, &d, key));
    }
    ECH_CHECK(d.has_dtype && d.has_shape && d.has_offsets, ECH_E_CORRUPT,
              "metadata: tensor '%s' lacks dtype, shape or data_offsets", shown);
    ECH_TRY(check_size(st, &d, data_bytes));
    ECH_TRY(ech_grow(&st->tensor, st->n, &st->tensor_cap, sizeof *st->tensor));
    st->tensor[st->n++] = d.t;
    return ECH_OK;
}

static ech_status parse_metadata(ech_json *j, ech_st *st)
{
    int64_t n = 0;
    bool more = true;

    ECH_CHECK(ech_json_peek(j) == '{', ECH_E_CORRUPT, "metadata: __metadata__ is no object");
    ECH_TRY(ech_json_take(j, '{'));
    for (;;) {
        char *key;
        char *value;

        ECH_TRY(ech_json_more(j, '}', &n, &more));
        if (!more)
            return ECH_OK;
        ECH_TRY(ech_json_key(j, &key));
        ECH_CHECK(ech_json_peek(j) == '"', ECH_E_CORRUPT,
                  "metadata: a value of __metadata__ is no string");
        ECH_TRY(ech_json_string(j, &value));
        ECH_TRY(ech_grow(&st->meta, st->n_meta, &st->meta_cap, sizeof *st->meta));
        st->meta[st->n_meta++] = (ech_st_meta){key, value};
    }
}

static ech_status parse_members(ech_st *st, int64_t header_bytes, int64_t data_bytes)
{
    ech_json j = ech_json_start(st->header, (size_t)header_bytes);
    bool has_metadata = false;
    bool more = true;
    int64_t n = 0;
    char *key;

    ECH_CHECK(header_bytes > 0 && *st->header == '{', ECH_E_CORRUPT,
              "json: the header does not start with '{'");
    ECH_TRY(ech_json_take(&j, '{'));
    for (;;) {
        ECH_TRY(ech_json_more(&j, '}', &n, &more));
        if (!more)
            break;
        ECH_TRY(ech_json_key(&j, &key));
        if (strcmp(key, "__metadata__")) {
            ECH_TRY(parse_tensor(&j, st, key, data_bytes));
            continue;
        }
        ECH_CHECK(!has_metadata, ECH_E_CORRUPT, "json: __metadata__ stands twice");
        has_metadata = true;
        ECH_TRY(parse_metadata(&j, st));
    }
    for (; j.at < j.end; j.at++)
        ECH_CHECK(*j.at == ' ', ECH_E_CORRUPT,
                  "json: byte %zu: only spaces may follow the header's end",
                  (size_t)(j.at - j.begin));
    return ECH_OK;
}

/* --- order: by name for finding and duplicates, by offset for the cover --- */

static int by_name(const void *a, const void *b)
{
    const ech_st_tensor *const *x = a;
    const ech_st_tensor *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const ech_st_meta *)a)->key, ((const ech_st_meta *)b)->key);
}

static int by_offset(const void *a, const void *b)
{
    const ech_st_tensor *x = a;
    const ech_st_tensor *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) /* empty tensors stand before the one that starts there */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static ech_status sort_names(ech_st *st)
{
    char shown[96];

    ECH_TRY(ech_calloc(st->n, sizeof *st->by_name, &st->by_name));
    for (size_t i = 0; i < st->n; i++)
        st->by_name[i] = &st->tensor[i];
    if (st->n > 1)
        qsort(st->by_name, st->n, sizeof *st->by_name, by_name);
    for (size_t i = 1; i < st->n; i++)
        ECH_CHECK(strcmp(st->by_name[i - 1]->name, st->by_name[i]->name), ECH_E_CORRUPT,
                  "json: tensor '%s' stands twice",
                  ech_json_quote(st->by_name[i]->name, shown, sizeof shown));
    if (st->n_meta > 1)
        qsort(st->meta, st->n_meta, sizeof *st->meta, by_key);
    for (size_t i = 1; i < st->n_meta; i++)
        ECH_CHECK(strcmp(st->meta[i - 1].key, st->meta[i].key), ECH_E_CORRUPT,
                  "json: __metadata__ has key '%s' twice",
                  ech_json_quote(st->meta[i].key, shown, sizeof shown));
    return ECH_OK;
}

/* Rule 5.  Offsets become places in the file on the way. */
static ech_status check_cover(ech_st *st, int64_t data_start, int64_t data_bytes)
{
    int64_t end = 0;

    for (size_t i = 0; i < st->n; i++) {
        ech_st_tensor *t = &st->tensor[i];
        char shown[96];

        ECH_CHECK(t->offset == end, ECH_E_CORRUPT, "cover: %s of %lld bytes before tensor '%s'",
                  t->offset > end ? "a hole" : "an overlap",
                  (long long)(t->offset > end ? t->offset - end : end - t->offset),
                  ech_json_quote(t->name, shown, sizeof shown));
        end += t->bytes;
        t->offset += data_start;
    }
    ECH_CHECK(end == data_bytes, ECH_E_CORRUPT, "cover: %lld bytes follow the last tensor",
              (long long)(data_bytes - end));
    return ECH_OK;
}

ech_status ech_st_parse(ech_st *st, int64_t header_bytes, int64_t data_bytes)
{
    size_t dims = 0;

    /* So that scalars alone point into an array, too. */
    ECH_TRY(ech_grow(&st->dim, 0, &st->dim_cap, sizeof *st->dim));
    ech_status ok = parse_members(st, header_bytes, data_bytes);
    if (ok == ECH_E_PARSE) /* the cursor's word for it; a file is damaged, not a configuration */
        ok = ECH_E_CORRUPT;
    ECH_TRY(ok);
    for (size_t i = 0; i < st->n; i++) {
        st->tensor[i].dim = st->dim + dims;
        dims += (size_t)st->tensor[i].rank;
    }
    if (st->n > 1)
        qsort(st->tensor, st->n, sizeof *st->tensor, by_offset);
    ECH_TRY(sort_names(st));
    return check_cover(st, 8 + header_bytes, data_bytes);
}

void ech_st_fini(ech_st *st)
{
    ech_file_close(&st->file);
    free(st->header);
    free(st->tensor);
    free(st->by_name);
    free(st->dim);
    free(st->meta);
}
