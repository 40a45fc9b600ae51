#include "storage/safetensors_set.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ech_st_set_writer {
    char *dir;               /* owned */
    const ech_st_spec *spec; /* borrowed */
    size_t n;
    int64_t *bytes;   /* owned, [n] of each tensor */
    size_t *shard_of; /* owned, [n] */
    size_t n_shards;
    size_t next;           /* first tensor not in a finished or open shard */
    int64_t left;          /* bytes that the open shard still takes */
    ech_st_writer *writer; /* owned: the open shard */
};

static void shard_name(const ech_st_set_writer *w, size_t shard, char *buf, size_t n)
{
    if (w->n_shards == 1)
        (void)snprintf(buf, n, "model.safetensors");
    else
        (void)snprintf(buf, n, "model-%05zu-of-%05zu.safetensors", shard + 1, w->n_shards);
}

/* Greedy, in order: a tensor opens a new shard when it does not fit the current one. */
static ech_status plan_shards(ech_st_set_writer *w, int64_t max_shard_bytes)
{
    int64_t used = 0;

    for (size_t i = 0; i < w->n; i++) {
        int64_t bytes = (int64_t)ech_dtype_bytes(w->spec[i].dtype);
        for (int d = 0; d < w->spec[i].rank; d++)
            ECH_TRY(ech_mul_i64(bytes, w->spec[i].dim[d], &bytes));
        if (used > 0 && bytes > 0 && bytes > max_shard_bytes - used) {
            w->n_shards++;
            used = 0;
        }
        w->bytes[i] = bytes;
        w->shard_of[i] = w->n_shards;
        ECH_TRY(ech_add_i64(used, bytes, &used));
    }
    w->n_shards++;
    return ECH_OK;
}

/* Open the shard of tensor w->next. */
static ech_status open_next(ech_st_set_writer *w)
{
    static const ech_st_meta meta = {"format", "pt"}; /* Transformers asks for it */
    const size_t first = w->next;
    char name[64];
    char path[4096];

    w->left = 0;
    while (w->next < w->n && w->shard_of[w->next] == w->shard_of[first])
        w->left += w->bytes[w->next++];
    shard_name(w, w->n ? w->shard_of[first] : 0, name, sizeof name);
    ECH_TRY(ech_path_join(w->dir, name, path, sizeof path));
    return ech_st_writer_create(path, w->spec + first, w->next - first, &meta, 1, &w->writer);
}

ech_status ech_st_set_writer_create(const char *dir, const ech_st_spec *spec, size_t n,
                                    int64_t max_shard_bytes, ech_st_set_writer **out)
{
    ech_st_set_writer *w = NULL;
    ech_status ok;

    ECH_ASSERT(max_shard_bytes > 0);
    ECH_TRY_GOTO(ok, ech_calloc(1, sizeof *w, &w), fail);
    w->spec = spec;
    w->n = n;
    ECH_TRY_GOTO(ok, ech_calloc(strlen(dir) + 1, 1, &w->dir), fail);
    memcpy(w->dir, dir, strlen(dir));
    ECH_TRY_GOTO(ok, ech_calloc(n + 1, sizeof *w->bytes, &w->bytes), fail);
    ECH_TRY_GOTO(ok, ech_calloc(n + 1, sizeof *w->shard_of, &w->shard_of), fail);
    ECH_TRY_GOTO(ok, plan_shards(w, max_shard_bytes), fail);
    ECH_TRY_GOTO(ok, open_next(w), fail);
    *out = w;
    return ECH_OK;
fail:
    ech_st_set_writer_destroy(&w);
    return ok;
}

ech_status ech_st_set_writer_add(ech_st_set_writer *w, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        if (w->left == 0 && w->next < w->n) {
            ECH_TRY(ech_st_writer_finish(&w->writer));
            ECH_TRY(open_next(w));
            continue;
        }
        ECH_CHECK(w->left > 0, ECH_E_FAILED, "%s: %zu bytes more than the tensors have", w->dir,
                  bytes);
        ECH_CHECK(w->writer, ECH_E_FAILED, "%s: an earlier write failed", w->dir);
        const size_t k = bytes < (size_t)w->left ? bytes : (size_t)w->left;
        ECH_TRY(ech_st_writer_add(w->writer, at, k));
        at += k;
        bytes -= k;
        w->left -= (int64_t)k;
    }
    return ECH_OK;
}

static void add_index_row(const ech_st_set_writer *w, size_t i, ech_text *t)
{
    char name[64];

    shard_name(w, w->shard_of[i], name, sizeof name);
    ech_text_add(t, "%s\n    ", i ? "," : "");
    ech_text_add_json_string(t, w->spec[i].name, strlen(w->spec[i].name));
    ech_text_add(t, ": \"%s\"", name);
}

static ech_status write_index(const ech_st_set_writer *w)
{
    ech_text t = {0};
    char path[4096];
    int64_t total = 0;
    ech_status ok;

    for (size_t i = 0; i < w->n; i++)
        total += w->bytes[i]; /* file positions: their sum was checked shard by shard */
    ech_text_add(&t, "{\n  \"metadata\": {\n    \"total_size\": %lld\n  },\n  \"weight_map\": {",
                 (long long)total);
    for (size_t i = 0; i < w->n; i++)
        add_index_row(w, i, &t);
    ech_text_add(&t, "\n  }\n}\n");
    ok = t.failed ? ECH_RAISE(ECH_E_NOMEM, "%s: no memory for the index", w->dir) : ECH_OK;
    if (ok == ECH_OK)
        ok = ech_path_join(w->dir, "model.safetensors.index.json", path, sizeof path);
    if (ok == ECH_OK)
        ok = ech_write_whole(path, t.data, t.bytes);
    ech_text_fini(&t);
    return ok;
}

/* Shards of empty tensors only get no byte: step over them too. */
static ech_status finish(ech_st_set_writer *w)
{
    ECH_CHECK(w->writer, ECH_E_FAILED, "%s: an earlier write failed", w->dir);
    while (w->left == 0 && w->next < w->n) {
        ECH_TRY(ech_st_writer_finish(&w->writer));
        ECH_TRY(open_next(w));
    }
    ECH_TRY(ech_st_writer_finish(&w->writer));
    return w->n_shards > 1 ? write_index(w) : ECH_OK;
}

ech_status ech_st_set_writer_finish(ech_st_set_writer **w)
{
    const ech_status ok = finish(*w);

    ech_st_set_writer_destroy(w);
    return ok;
}

void ech_st_set_writer_destroy(ech_st_set_writer **w)
{
    if (!*w)
        return;
    ech_st_writer_destroy(&(*w)->writer);
    free((*w)->dir);
    free((*w)->bytes);
    free((*w)->shard_of);
    free(*w);
    *w = NULL;
}
