#include "storage/safetensors_set.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/json_cursor.h"
#include "storage/safetensors_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

enum {
    INDEX_CAP = 64 << 20, /* bytes of an index file */
    SHOWN_CAP = 64        /* findings of one kind that are listed before they are only counted */
};

/* A tensor by name: the set's own list. */
typedef struct entry {
    const char *name;
    const ech_st_tensor *tensor;
    const ech_st *file;
} entry;

struct ech_st_set {
    ech_st **file; /* owned */
    size_t n_files, file_cap;
    entry *by_name; /* owned, sorted */
    size_t n;
};

bool ech_st_set_exists(const char *dir)
{
    char single[4096];
    char index[4096];
    return ech_path_join(dir, single_name, single, sizeof single) >= 0 &&
           ech_path_join(dir, index_name, index, sizeof index) >= 0 &&
           (ech_path_exists(single) || ech_path_exists(index));
}

void ech_st_set_close(ech_st_set **set)
{
    if (!*set)
        return;
    for (size_t i = 0; i < (*set)->n_files; i++)
        ech_st_close(&(*set)->file[i]);
    free((*set)->file);
    free((*set)->by_name);
    free(*set);
    *set = NULL;
}

/* --- index against shards --- */

/* Findings with one list per kind, so that a hostile index cannot make a message without end. */
typedef struct report {
    ech_findings findings;
    size_t n_shards, absent, unnamed, lacking, extra;
} report;

static bool is_shown(size_t count)
{
    return count <= SHOWN_CAP;
}

/* Open one shard for the mappings [first, end); a refused file is a finding, lack of memory an
 * error. */
static ech_status open_shard(ech_st_set *set, const char *dir, ech_st_index *x, size_t first,
                             size_t end, report *r)
{
    const char *shard = x->map[first].shard;
    char shown[96];
    char path[4096];
    ech_st *file = NULL;

    r->n_shards++;
    ECH_TRY(ech_grow(&set->file, set->n_files, &set->file_cap, sizeof(ech_st *)));
    (void)ech_json_quote(shard, shown, sizeof shown);
    if (!ech_path_is_plain(shard)) {
        ech_findings_add(&r->findings, "shard '%s' is not a plain file name in the folder", shown);
        return ECH_OK;
    }
    ECH_TRY(ech_path_join(dir, shard, path, sizeof path));
    if (!ech_path_exists(path)) {
        char tensor[96];
        if (is_shown(++r->absent))
            ech_findings_add(&r->findings,
                             "absent shard: the index names '%s' for %zu tensors (first '%s'), the "
                             "folder lacks it",
                             shown, end - first,
                             ech_json_quote(x->map[first].name, tensor, sizeof tensor));
        return ECH_OK;
    }
    const ech_status ok = ech_st_open_in(dir, shard, 0, &file);
    if (ok == ECH_E_NOMEM)
        return ok;
    if (ok < 0) {
        ech_findings_add(&r->findings, "%s", ech_error_message());
        return ECH_OK;
    }
    set->file[set->n_files++] = file;
    for (size_t i = first; i < end; i++)
        x->map[i].file = file;
    return ECH_OK;
}

static void check_mappings(const ech_st_index *x, report *r)
{
    char shown[2][96];

    for (size_t i = 0; i < x->n; i++) {
        const ech_st_mapping *m = &x->map[i];
        if (m->file && !ech_st_find(m->file, m->name) && is_shown(++r->lacking))
            ech_findings_add(&r->findings, "tensor '%s' is mapped to '%s', whose header lacks it",
                             ech_json_quote(m->name, shown[0], sizeof shown[0]),
                             ech_json_quote(m->shard, shown[1], sizeof shown[1]));
    }
}

/* Tensors of a shard that the index does not map to it: a stale index, or one tensor twice. */
static void check_unmapped(const ech_st_index *x, const ech_st *file, size_t first, size_t end,
                           report *r)
{
    char shown[96];

    for (int64_t i = 0; i < ech_st_count(file); i++) {
        const ech_st_tensor *t = ech_st_at(file, i);
        const ech_st_mapping key = {.name = t->name};
        if (bsearch(&key, x->map + first, end - first, sizeof key, ech_st_mapping_by_tensor))
            continue;
        if (is_shown(++r->extra))
            ech_findings_add(&r->findings, "tensor '%s' is in '%s', the index does not say so",
                             t->name, ech_json_quote(x->map[first].shard, shown, sizeof shown));
    }
}

static bool is_named(const ech_st_index *x, const char *file)
{
    for (size_t i = 0; i < x->n; i++)
        if (!strcmp(x->map[i].shard, file))
            return true;
    return false;
}

/* Weight files that the index does not name: harmless, but they tell a stale index from a lost
 * file. */
static ech_status count_unnamed(const char *dir, const ech_st_index *x, report *r)
{
    char **names = NULL;
    size_t n = 0;

    ECH_TRY(ech_list_folder(dir, &names, &n));
    for (size_t i = 0; i < n; i++)
        r->unnamed += ech_has_suffix(names[i], ".safetensors") && !is_named(x, names[i]);
    ech_names_destroy(&names, n);
    return ECH_OK;
}

static void conclude(const ech_st_index *x, report *r)
{
    const size_t hidden = (r->absent > SHOWN_CAP ? r->absent - SHOWN_CAP : 0) +
                          (r->lacking > SHOWN_CAP ? r->lacking - SHOWN_CAP : 0) +
                          (r->extra > SHOWN_CAP ? r->extra - SHOWN_CAP : 0);

    if (r->absent > 1 || (r->absent && r->unnamed))
        ech_findings_add(&r->findings,
                         "stale index: it names %zu shards, %zu of them are in the folder; %zu "
                         "other .safetensors files are not named",
                         r->n_shards, r->n_shards - r->absent, r->unnamed);
    if (r->lacking > 1 || (r->lacking && r->extra))
        ech_findings_add(&r->findings,
                         "stale index: %zu of its %zu tensors are not where it says, %zu others "
                         "are in the shards",
                         r->lacking, x->n, r->extra);
    if (hidden)
        ech_findings_add(&r->findings, "... and %zu more", hidden);
}

static ech_status check_shards(ech_st_set *set, const char *dir, ech_st_index *x, report *r)
{
    for (size_t first = 0, end; first < x->n; first = end) {
        for (end = first + 1; end < x->n && !strcmp(x->map[first].shard, x->map[end].shard);)
            end++;
        ECH_TRY(open_shard(set, dir, x, first, end, r));
        if (x->map[first].file)
            check_unmapped(x, x->map[first].file, first, end, r);
    }
    check_mappings(x, r);
    if (r->absent)
        ECH_TRY(count_unnamed(dir, x, r));
    conclude(x, r);
    return ech_findings_raise(&r->findings, ECH_E_CORRUPT);
}

static ech_status read_index(const char *path, ech_st_index *x)
{
    size_t bytes = 0;

    ECH_TRY(ech_read_whole(path, INDEX_CAP, &x->text, &bytes));
    const ech_status ok = ech_st_index_parse(x, bytes);
    return ok < 0 ? ech_error_prefix(ok, "%s: ", path) : ok;
}

static ech_status open_sharded(ech_st_set *set, const char *dir, const char *path)
{
    ech_st_index x = {0};
    report r = {0};
    ech_status ok = read_index(path, &x);

    if (ok >= 0) {
        ok = check_shards(set, dir, &x, &r);
        if (ok < 0)
            ok = ech_error_prefix(ok, "%s: ", path);
    }
    ech_findings_fini(&r.findings);
    ech_st_index_fini(&x);
    return ok;
}

/* --- opening --- */

static ech_status open_single(ech_st_set *set, const char *path)
{
    ECH_TRY(ech_grow(&set->file, set->n_files, &set->file_cap, sizeof(ech_st *)));
    ECH_TRY(ech_st_open(path, 0, &set->file[0]));
    set->n_files = 1;
    return ECH_OK;
}

static ech_status open_folder(ech_st_set *set, const char *dir)
{
    char single[4096];
    char index[4096];

    ECH_TRY(ech_path_join(dir, single_name, single, sizeof single));
    ECH_TRY(ech_path_join(dir, index_name, index, sizeof index));
    if (ech_path_exists(single)) {
        if (ech_path_exists(index))
            ech_log_root(ECH_LOG_WARN, "%s: both %s and an index are there; the former is read",
                         dir, single_name);
        return open_single(set, single);
    }
    ECH_CHECK(ech_path_exists(index), ECH_E_IO, "%s: neither %s nor %s", dir, single_name,
              index_name);
    return open_sharded(set, dir, index);
}

static int by_entry(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static ech_status sort_entries(ech_st_set *set)
{
    size_t n = 0;

    for (size_t f = 0; f < set->n_files; f++)
        n += (size_t)ech_st_count(set->file[f]);
    ECH_TRY(ech_calloc(n, sizeof *set->by_name, &set->by_name));
    for (size_t f = 0; f < set->n_files; f++)
        for (int64_t i = 0; i < ech_st_count(set->file[f]); i++) {
            const ech_st_tensor *t = ech_st_at(set->file[f], i);
            set->by_name[set->n++] = (entry){t->name, t, set->file[f]};
        }
    if (n > 1)
        qsort(set->by_name, n, sizeof *set->by_name, by_entry);
    return ECH_OK;
}

ech_status ech_st_set_open(const char *dir, ech_st_set **out)
{
    ech_st_set *set = NULL;
    ech_status ok;

    ECH_TRY_GOTO(ok, ech_calloc(1, sizeof *set, &set), fail);
    ECH_TRY_GOTO(ok, ech_path_is_folder(dir) ? open_folder(set, dir) : open_single(set, dir), fail);
    ECH_TRY_GOTO(ok, sort_entries(set), fail);
    *out = set;
    return ECH_OK;
fail:
    ech_st_set_close(&set);
    return ok;
}

int64_t ech_st_set_count(const ech_st_set *set)
{
    return (int64_t)set->n;
}

const ech_st_tensor *ech_st_set_at(const ech_st_set *set, int64_t i, const ech_st **file)
{
    size_t f = 0;

    ECH_ASSERT(i >= 0 && i < (int64_t)set->n);
    for (; i >= ech_st_count(set->file[f]); f++)
        i -= ech_st_count(set->file[f]);
    *file = set->file[f];
    return ech_st_at(set->file[f], i);
}

const ech_st_tensor *ech_st_set_find(const ech_st_set *set, const char *name, const ech_st **file)
{
    const entry key = {.name = name};
    const entry *e = bsearch(&key, set->by_name, set->n, sizeof key, by_entry);

    if (!e)
        return NULL;
    *file = e->file;
    return e->tensor;
}
