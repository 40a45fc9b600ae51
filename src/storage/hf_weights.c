#include "storage/hf_weights.h"

#include "base/checked.h"
#include "base/text.h"
#include "storage/json_cursor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STAGE_ELEMS = 1 << 17, /* elements that pass through memory at once: 1 MiB of fp64 */
    SHOWN_CAP = 64         /* findings of one kind that are listed before they are only counted */
};

/* --- gather and scatter --- */

/* n elements, one side strided, one dense.  Pure copies: no value is touched. */
static void copy_run(size_t size, int64_t n, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)(i * to_stride) * size, from + (size_t)(i * from_stride) * size, size);
}

/* Which way a box is walked. */
typedef struct walk {
    size_t size; /* bytes of an element */
    char *dense; /* HF elements [first, last) */
    char *canon; /* the box's canonical parameter */
    int64_t first, last;
    bool is_gather;
} walk;

/* One innermost run of a box, cut to the range. */
static void walk_run(const walk *w, int64_t hf, int64_t canon, int64_t n, int64_t canon_stride)
{
    const int64_t skip = hf < w->first ? w->first - hf : 0;
    const int64_t end = hf + n > w->last ? w->last - hf : n;

    if (skip >= end)
        return;
    char *d = w->dense + (size_t)(hf + skip - w->first) * w->size;
    char *c = w->canon + (size_t)(canon + skip * canon_stride) * w->size;
    if (w->is_gather)
        copy_run(w->size, end - skip, d, 1, c, canon_stride);
    else
        copy_run(w->size, end - skip, c, canon_stride, d, 1);
}

/* Indices [*lo, *hi) of a loop whose HF blocks can meet the range: boxes are in HF order, so the
 * blocks of one loop follow one another. */
static void clip(const walk *w, int64_t start, int64_t stride, int64_t count, int64_t *lo,
                 int64_t *hi)
{
    *lo = w->first > start ? (w->first - start) / stride : 0;
    *hi = w->last > start ? ech_ceil_div(w->last - start, stride) : 0;
    if (*hi > count)
        *hi = count;
}

static void walk_box(const walk *w, const ech_hf_box *b)
{
    int64_t lo[2];
    int64_t hi[2];

    clip(w, b->hf_first, b->hf_stride[0], b->count[0], &lo[0], &hi[0]);
    for (int64_t i = lo[0]; i < hi[0]; i++) {
        const int64_t hf = b->hf_first + i * b->hf_stride[0];
        const int64_t canon = b->canon_first + i * b->canon_stride[0];
        clip(w, hf, b->hf_stride[1], b->count[1], &lo[1], &hi[1]);
        for (int64_t j = lo[1]; j < hi[1]; j++)
            walk_run(w, hf + j * b->hf_stride[1], canon + j * b->canon_stride[1], b->count[2],
                     b->canon_stride[2]);
    }
}

static void walk_tensor(const ech_hf_map *map, size_t t, walk w, const ech_hf_values *values)
{
    const ech_hf_tensor *tensor = &map->tensor[t];

    w.size = ech_dtype_bytes(values->dtype);
    for (size_t i = 0; i < tensor->n_boxes; i++) {
        const ech_hf_box *b = &map->box[tensor->first_box + i];
        w.canon = values->param[b->param];
        if (w.canon)
            walk_box(&w, b);
    }
}

void ech_hf_gather(const ech_hf_map *map, size_t t, int64_t first, int64_t n,
                   const ech_hf_values *from, void *out)
{
    walk_tensor(map, t, (walk){.dense = out, .first = first, .last = first + n, .is_gather = true},
                from);
}

void ech_hf_scatter(const ech_hf_map *map, size_t t, int64_t first, int64_t n, const void *in,
                    const ech_hf_values *to)
{
    /* One walk serves both ways; the dense side is only read here. */
    char *dense;
    memcpy(&dense, &in, sizeof dense);
    walk_tensor(map, t, (walk){.dense = dense, .first = first, .last = first + n}, to);
}

/* --- is it all there --- */

/* The tensor under its name, or without the prefix where the whole file does without. */
static const ech_st_tensor *find_tensor(const ech_hf_map *map, const ech_st_set *set, size_t t,
                                        const ech_st **file)
{
    const char *name = map->tensor[t].name;
    const size_t prefix = strlen(map->prefix);
    const ech_st_tensor *found = ech_st_set_find(set, name, file);

    if (!found && !strncmp(name, map->prefix, prefix))
        found = ech_st_set_find(set, name + prefix, file);
    return found;
}

static bool is_floating(ech_st_dtype t)
{
    return t == ECH_ST_F64 || t == ECH_ST_F32 || t == ECH_ST_BF16 || t == ECH_ST_F16;
}

static bool is_same_shape(const ech_st_tensor *t, const ech_hf_tensor *wanted)
{
    bool same = t->rank == wanted->rank;

    for (int i = 0; same && i < t->rank; i++)
        same = t->dim[i] == wanted->dim[i];
    return same;
}

static void add_shape(ech_text *text, int rank, const int64_t *dim)
{
    ech_text_add(text, "[");
    for (int i = 0; i < rank; i++)
        ech_text_add(text, "%s%lld", i ? ", " : "", (long long)dim[i]);
    ech_text_add(text, "]");
}

static void add_mismatch(ech_findings *f, const char *shown, const ech_st_tensor *t,
                         const ech_hf_tensor *wanted)
{
    ech_text text = {0};

    ech_text_add(&text, "tensor '%s' has shape ", shown);
    add_shape(&text, t->rank < 8 ? t->rank : 8, t->dim);
    ech_text_add(&text, ", the model needs ");
    add_shape(&text, wanted->rank, wanted->dim);
    ech_findings_add(f, "%s", ech_text_get(&text));
    ech_text_fini(&text);
}

/* What HF files keep beside parameters: causal masks, rotary frequencies. */
static bool is_buffer(const char *name)
{
    static const char *const ends[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
    const size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;

    return strcmp(*x, *y);
}

/* Wanted tensors, one by one; found names are collected for the way back. */
static void check_wanted(const ech_hf_map *map, const ech_st_set *set, ech_findings *f,
                         const char **found, size_t *n_found)
{
    size_t missing = 0;

    for (size_t t = 0; t < map->n_tensors; t++) {
        const ech_hf_tensor *wanted = &map->tensor[t];
        const ech_st *file;
        const ech_st_tensor *got = find_tensor(map, set, t, &file);
        if (!got) {
            if (++missing <= SHOWN_CAP)
                ech_findings_add(f, "missing tensor '%s'", wanted->name);
            continue;
        }
        found[(*n_found)++] = got->name;
        if (!is_same_shape(got, wanted))
            add_mismatch(f, got->name, got, wanted);
        else if (!is_floating(got->dtype))
            ech_findings_add(f, "tensor '%s' is %s, weights are F64, F32, BF16 or F16", got->name,
                             ech_st_dtype_name(got->dtype));
    }
    if (missing > SHOWN_CAP)
        ech_findings_add(f, "... and %zu more missing tensors", missing - SHOWN_CAP);
}

static void check_extra(const ech_hf_map *map, const ech_st_set *set, ech_findings *f,
                        const char *const *found, size_t n_found)
{
    size_t extra = 0;

    for (int64_t i = 0; i < ech_st_set_count(set); i++) {
        const ech_st *file;
        const char *name = ech_st_set_at(set, i, &file)->name;
        const bool is_tied_head = map->is_tied && !strcmp(name, "lm_head.weight");
        if (is_buffer(name) || is_tied_head ||
            bsearch(&name, found, n_found, sizeof *found, by_name))
            continue;
        if (++extra <= SHOWN_CAP)
            ech_findings_add(f, "extra tensor '%s' in %s", name, ech_st_path(file));
    }
    if (extra > SHOWN_CAP)
        ech_findings_add(f, "... and %zu more extra tensors", extra - SHOWN_CAP);
}

ech_status ech_hf_check(const ech_hf_map *map, const ech_st_set *set, ech_findings *findings)
{
    const char **found = NULL;
    size_t n_found = 0;

    ECH_TRY(ech_calloc(map->n_tensors, sizeof *found, &found));
    check_wanted(map, set, findings, found, &n_found);
    if (n_found > 1)
        qsort(found, n_found, sizeof *found, by_name);
    check_extra(map, set, findings, found, n_found);
    free(found);
    return ECH_OK;
}

/* --- import --- */

static bool is_wanted(const ech_hf_map *map, size_t t, const ech_hf_values *to)
{
    const ech_hf_tensor *tensor = &map->tensor[t];
    for (size_t i = 0; i < tensor->n_boxes; i++)
        if (to->param[map->box[tensor->first_box + i].param])
            return true;
    return false;
}

static ech_status import_tensor(const ech_hf_map *map, const ech_st_set *set, size_t t,
                                const ech_hf_values *to, void *stage)
{
    const ech_st *file = NULL;
    if (!is_wanted(map, t, to))
        return ECH_OK;
    const ech_st_tensor *from = find_tensor(map, set, t, &file);

    ECH_ASSERT(from && from->elems == map->tensor[t].elems); /* ech_hf_check saw to it */
    for (int64_t first = 0; first < from->elems; first += STAGE_ELEMS) {
        const int64_t left = from->elems - first;
        const int64_t n = left < STAGE_ELEMS ? left : STAGE_ELEMS;
        ECH_TRY(ech_st_read(file, from, first, n, to->dtype, stage));
        ech_hf_scatter(map, t, first, n, stage, to);
    }
    return ECH_OK;
}

/* A tied model's file may hold the head too: it must be the same table. */
static ech_status check_tied_head(const ech_hf_map *map, const ech_st_set *set,
                                  const ech_hf_values *to, char *stage)
{
    const ech_st *file = NULL;
    const bool is_asked = map->is_tied && is_wanted(map, 0, to);
    const ech_st_tensor *head = is_asked ? ech_st_set_find(set, "lm_head.weight", &file) : NULL;
    const size_t size = ech_dtype_bytes(to->dtype);

    if (!head)
        return ECH_OK;
    ECH_CHECK(is_same_shape(head, &map->tensor[0]), ECH_E_CORRUPT,
              "%s: tensor 'lm_head.weight' has another shape than the table it is tied to",
              ech_st_path(file));
    char *table = stage + STAGE_ELEMS / 2 * size;
    for (int64_t first = 0; first < head->elems; first += STAGE_ELEMS / 2) {
        const int64_t left = head->elems - first;
        const int64_t n = left < STAGE_ELEMS / 2 ? left : STAGE_ELEMS / 2;
        ECH_TRY(ech_st_read(file, head, first, n, to->dtype, stage));
        ech_hf_gather(map, 0, first, n, to, table);
        ECH_CHECK(!memcmp(stage, table, (size_t)n * size), ECH_E_CORRUPT,
                  "%s: tensor 'lm_head.weight' differs from the table it is tied to",
                  ech_st_path(file));
    }
    return ECH_OK;
}

static ech_status import_all(const ech_hf_map *map, const ech_canon *c, const ech_st_set *set,
                             const ech_hf_values *to, void *stage)
{
    for (int i = 0; i < c->n_params; i++) /* the padding */
        if (to->param[i])
            memset(to->param[i], 0, (size_t)c->param[i].elems * ech_dtype_bytes(to->dtype));
    for (size_t t = 0; t < map->n_tensors; t++)
        ECH_TRY(import_tensor(map, set, t, to, stage));
    return check_tied_head(map, set, to, stage);
}

ech_status ech_hf_import(const ech_hf_map *map, const ech_canon *c, const ech_st_set *set,
                         const ech_hf_values *to)
{
    ech_findings f = {0};
    void *stage = NULL;

    ECH_ASSERT(to->dtype == ECH_F32 || to->dtype == ECH_F64);
    ech_status ok = ech_hf_check(map, set, &f);
    if (ok == ECH_OK)
        ok = ech_findings_raise(&f, ECH_E_CORRUPT);
    ech_findings_fini(&f);
    ECH_TRY(ok);
    ECH_TRY(ech_calloc(STAGE_ELEMS, ech_dtype_bytes(to->dtype), &stage));
    ok = import_all(map, c, set, to, stage);
    free(stage);
    return ok;
}

/* --- export --- */

ech_status ech_hf_specs(const ech_hf_map *map, ech_dtype file_dt, ech_st_spec **out)
{
    ech_st_spec *spec = NULL;

    ECH_TRY(ech_calloc(map->n_tensors, sizeof *spec, &spec));
    for (size_t t = 0; t < map->n_tensors; t++)
        spec[t] =
            (ech_st_spec){map->tensor[t].name, file_dt, map->tensor[t].rank, map->tensor[t].dim};
    *out = spec;
    return ECH_OK;
}

/* In place, front to back: the file's type is never wider. */
static void narrow(ech_dtype from, ech_dtype to, int64_t n, void *data)
{
    if (from == to)
        return;
    ECH_ASSERT(ech_dtype_bytes(to) <= ech_dtype_bytes(from));
    for (size_t i = 0; i < (size_t)n; i++)
        ech_dtype_store(to, data, i, ech_dtype_load(from, data, i));
}

static ech_status export_tensor(const ech_hf_map *map, size_t t, const ech_hf_values *from,
                                ech_dtype file_dt, const ech_hf_sink *sink, void *stage)
{
    for (int64_t first = 0; first < map->tensor[t].elems; first += STAGE_ELEMS) {
        const int64_t left = map->tensor[t].elems - first;
        const int64_t n = left < STAGE_ELEMS ? left : STAGE_ELEMS;
        ech_hf_gather(map, t, first, n, from, stage);
        narrow(from->dtype, file_dt, n, stage);
        ECH_TRY(sink->add(sink->writer, stage, (size_t)n * ech_dtype_bytes(file_dt)));
    }
    return ECH_OK;
}

ech_status ech_hf_export(const ech_hf_map *map, const ech_hf_values *from, ech_dtype file_dt,
                         const ech_hf_sink *sink)
{
    void *stage = NULL;
    ech_status ok = ECH_OK;

    ECH_CHECK(ech_dtype_bytes(file_dt) <= ech_dtype_bytes(from->dtype), ECH_E_ILLEGAL,
              "%s values cannot be written as %s: it is wider", ech_dtype_name(from->dtype),
              ech_dtype_name(file_dt));
    ECH_TRY(ech_calloc(STAGE_ELEMS, ech_dtype_bytes(from->dtype), &stage));
    for (size_t t = 0; ok == ECH_OK && t < map->n_tensors; t++)
        ok = export_tensor(map, t, from, file_dt, sink, stage);
    free(stage);
    return ok;
}

static ech_status add_to_file(void *writer, const void *data, size_t bytes)
{
    return ech_st_writer_add(writer, data, bytes);
}

ech_status ech_hf_export_file(const ech_hf_map *map, const ech_hf_values *from, ech_dtype file_dt,
                              const char *path)
{
    static const ech_st_meta meta = {"format", "pt"};
    ech_st_spec *spec = NULL;
    ech_st_writer *w = NULL;
    ech_status ok;

    ECH_TRY_GOTO(ok, ech_hf_specs(map, file_dt, &spec), end);
    ECH_TRY_GOTO(ok, ech_st_writer_create(path, spec, map->n_tensors, &meta, 1, &w), end);
    const ech_hf_sink sink = {add_to_file, w};
    ECH_TRY_GOTO(ok, ech_hf_export(map, from, file_dt, &sink), end);
    ECH_TRY_GOTO(ok, ech_st_writer_finish(&w), end);
end:
    ech_st_writer_destroy(&w);
    free(spec);
    return ok;
}
