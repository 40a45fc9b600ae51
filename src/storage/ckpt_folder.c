#include "storage/ckpt_folder.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/io_folder.h"
#include "storage/ckpt_publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "step-"

/* N of "step-N", -1 for other names; `bytes` of the name count. */
static int64_t step_of(const char *name, size_t bytes)
{
    int64_t step = 0;
    const size_t start = strlen(PREFIX);
    if (bytes <= start || bytes > start + 18 || strncmp(name, PREFIX, start) != 0)
        return -1;
    for (size_t i = start; i < bytes; i++) {
        if (name[i] < '0' || name[i] > '9')
            return -1;
        step = step * 10 + (name[i] - '0');
    }
    return step;
}

int64_t ech_ckpt_step_of_path(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    return step_of(path + start, end - start);
}

static ech_status add_entry(const char *dir, const char *name, ech_ckpt_entry **list, size_t *n,
                            size_t *capacity)
{
    char path[4096];
    char config[4096];
    ech_ckpt_position head;
    ech_ckpt_entry e = {.step = step_of(name, strlen(name)), .generation = INT64_MAX};
    if (e.step < 0)
        return ECH_OK;
    ECH_TRY(ech_path_join(dir, name, path, sizeof path));
    ECH_TRY(ech_path_join(path, "config.json", config, sizeof config));
    if (!ech_path_is_folder(path) || (!ech_ckpt_exists(path) && ech_path_exists(config)))
        return ECH_OK;
    const ech_status st = ech_ckpt_manifest_peek(path, &head);
    if (st == ECH_E_NOMEM)
        return st;
    if (st == ECH_OK)
        e.generation = head.generation;
    else
        ech_error_clear(); /* said again, in full, by who opens it */
    (void)snprintf(e.name, sizeof e.name, "%s", name);
    ECH_TRY(ech_grow(list, *n, capacity, sizeof **list));
    (*list)[(*n)++] = e;
    return ECH_OK;
}

static int newest_first(const void *a, const void *b)
{
    const ech_ckpt_entry *x = a;
    const ech_ckpt_entry *y = b;
    if (x->generation != y->generation)
        return x->generation < y->generation ? 1 : -1;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return strcmp(x->name, y->name); /* step-7 and step-00000007 */
}

ech_status ech_ckpt_list(const char *dir, ech_ckpt_entry **out, size_t *n)
{
    char **names = NULL;
    size_t n_names = 0;
    size_t capacity = 0;
    ech_ckpt_entry *list = NULL;
    ech_status st = ECH_OK;
    *out = NULL;
    *n = 0;
    if (!ech_path_exists(dir))
        return ECH_OK;
    ECH_TRY(ech_list_folder(dir, &names, &n_names));
    for (size_t i = 0; i < n_names && st == ECH_OK; i++)
        st = add_entry(dir, names[i], &list, n, &capacity);
    ech_names_destroy(&names, n_names);
    if (st < 0) {
        free(list);
        *n = 0;
        return st;
    }
    if (*n > 0)
        qsort(list, *n, sizeof *list, newest_first);
    *out = list;
    return ECH_OK;
}

/* --- finding --- */

static ech_status open_if_good(const char *path, const ech_ckpt_query *q, ech_ckpt **out)
{
    ech_ckpt *c = NULL;
    ECH_TRY(ech_ckpt_open(path, &c));
    ech_status st = q->model ? ech_ckpt_check_model(c, q->model, q->canon) : ECH_OK;
    if (st == ECH_OK)
        st = ech_ckpt_check_files(c);
    if (st == ECH_OK && q->verifies)
        st = ech_ckpt_verify_share(c, 0, 1);
    if (st < 0)
        ech_ckpt_close(&c);
    *out = c;
    return st;
}

ech_status ech_ckpt_find(const char *dir, const ech_ckpt_query *query, ech_text *passed_over,
                         ech_ckpt **out)
{
    ech_ckpt_entry *list = NULL;
    size_t n = 0;
    ech_status st = ECH_OK;
    *out = NULL;
    ECH_TRY(ech_ckpt_list(dir, &list, &n));
    for (size_t i = 0; i < n && !*out && st == ECH_OK; i++) {
        char path[4096];
        st = ech_path_join(dir, list[i].name, path, sizeof path);
        const ech_status open = st == ECH_OK ? open_if_good(path, query, out) : st;
        if (open == ECH_E_NOMEM || open == ECH_E_IO)
            st = open;
        else if (open < 0) {
            ech_text_add(passed_over, "%s\n", ech_error_message());
            ech_error_clear();
        }
    }
    free(list);
    ECH_TRY(st);
    ECH_CHECK(!passed_over->failed, ECH_E_NOMEM, "no memory to look through %s", dir);
    return ECH_OK;
}

ech_status ech_ckpt_next_generation(const char *dir, const ech_ckpt *source, int64_t *out)
{
    const ech_ckpt_position *from = source ? &ech_ckpt_manifest_of(source)->run : NULL;
    ech_ckpt_entry *list = NULL;
    size_t n = 0;
    size_t i = 0;
    ECH_TRY(ech_ckpt_list(dir, &list, &n));
    while (i < n && list[i].generation == INT64_MAX)
        i++; /* unreadable: no run will go on from it */
    *out = i < n ? list[i].generation + 1 : 1;
    if (from && i < n && list[i].generation == from->generation && list[i].step == from->step)
        *out = from->generation;
    free(list);
    return ECH_OK;
}

ech_status ech_ckpt_check_free(const char *path, int64_t generation)
{
    const ech_ckpt_query every_byte = {.verifies = true};
    ech_ckpt_position head = {.generation = 0};
    ech_ckpt *c = NULL;
    char manifest[4096];
    bool exists;
    ECH_TRY(ech_path_join(path, ECH_CKPT_MANIFEST, manifest, sizeof manifest));
    ECH_TRY(ech_path_look(manifest, &exists));
    if (!exists)
        return ECH_OK;
    ech_status st = ech_ckpt_manifest_peek(path, &head);
    if (st == ECH_OK && head.generation == generation)
        return ECH_OK;
    if (st == ECH_OK)
        st = open_if_good(path, &every_byte, &c);
    ech_ckpt_close(&c);
    if (st == ECH_E_CORRUPT || st == ECH_E_ILLEGAL) {
        ech_error_clear(); /* nothing could go on from it */
        return ECH_OK;
    }
    ECH_CHECK(st == ECH_OK, st == ECH_E_NOMEM ? st : ECH_E_IO, "%s", ech_error_message());
    return ECH_RAISE(ECH_E_IO,
                     "%s: a checkpoint of another run (number %" PRId64
                     " of this folder, this one is %" PRId64 ") stands there and is not replaced",
                     path, head.generation, generation);
}

/* --- pruning --- */

static ech_status is_whole(const char *path, bool *out)
{
    const ech_ckpt_query any = {0};
    ech_ckpt *c = NULL;
    const ech_status st = open_if_good(path, &any, &c);
    ech_ckpt_close(&c);
    *out = st == ECH_OK;
    if (st == ECH_E_NOMEM || st == ECH_E_IO)
        return st;
    if (st < 0)
        ech_error_clear();
    return ECH_OK;
}

/* Under a hidden name first: what a kill leaves of it is swept, and never looks like a damaged
 * checkpoint. */
static ech_status remove_one(const char *path)
{
    char tmp[4096];
    ECH_TRY(ech_folder_create(path, tmp, sizeof tmp));
    ECH_TRY(ech_folder_remove(tmp));
    ECH_TRY(ech_folder_publish(path, tmp));
    return ech_folder_remove(tmp);
}

ech_status ech_ckpt_prune(const char *dir, int64_t generation, int64_t keep)
{
    ech_ckpt_entry *list = NULL;
    size_t n = 0;
    int64_t kept = 0;
    ech_status st = ECH_OK;
    if (keep <= 0)
        return ECH_OK;
    ECH_TRY(ech_ckpt_list(dir, &list, &n));
    for (size_t i = 0; i < n && st == ECH_OK; i++) {
        char path[4096];
        bool whole = false;
        if (list[i].generation != generation)
            continue;
        st = ech_path_join(dir, list[i].name, path, sizeof path);
        if (st == ECH_OK && kept == keep)
            st = remove_one(path);
        else if (st == ECH_OK)
            st = is_whole(path, &whole);
        kept += whole;
    }
    free(list);
    return st;
}

/* --- sweeping --- */

/* Length of "step-N" in ".step-N.tmp-XXXXXX" or that with ".old" behind, 0 for other names. */
static size_t stem_of(const char *name)
{
    const char *end = name[0] == '.' ? strstr(name, ".tmp-") : NULL;
    return end && step_of(name + 1, (size_t)(end - name - 1)) >= 0 ? (size_t)(end - name - 1) : 0;
}

static ech_status sweep_one(const char *dir, const char *name, size_t stem)
{
    char tmp[4096];
    char path[4096];
    char final[40];
    bool whole = false;
    (void)snprintf(final, sizeof final, "%.*s", (int)stem, name + 1);
    ECH_TRY(ech_path_join(dir, name, tmp, sizeof tmp));
    ECH_TRY(ech_path_join(dir, final, path, sizeof path));
    if (!ech_path_exists(path) && ech_ckpt_exists(tmp))
        ECH_TRY(is_whole(tmp, &whole));
    if (whole)
        return ech_folder_publish(tmp, path);
    ech_ckpt_abandon(tmp);
    return ECH_OK;
}

ech_status ech_ckpt_sweep(const char *dir, int64_t *n)
{
    char **names = NULL;
    size_t n_names = 0;
    int64_t swept = 0;
    ech_status st = ECH_OK;
    if (n)
        *n = 0;
    if (!ech_path_exists(dir))
        return ECH_OK;
    ECH_TRY(ech_list_folder(dir, &names, &n_names));
    for (size_t i = 0; i < n_names && st == ECH_OK; i++) {
        const size_t stem = stem_of(names[i]);
        if (stem > 0 && ++swept)
            st = sweep_one(dir, names[i], stem);
    }
    ech_names_destroy(&names, n_names);
    if (n)
        *n = swept;
    return st;
}
