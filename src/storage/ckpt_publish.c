#include "storage/ckpt_publish.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/io_folder.h"
#include "storage/ckpt_folder.h"
#include "storage/json_cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tables' folder is named after the temporary one and stands beside it: not inside, so that a
 * checkpoint never holds a folder. */
#define TABLES ".tables"

ech_status ech_ckpt_path(const char *dir, int64_t step, char *buf, size_t n)
{
    char name[40];
    (void)snprintf(name, sizeof name, "step-%08" PRId64, step);
    return ech_path_join(dir, name, buf, n);
}

ech_status ech_ckpt_table_path(const char *tmp, int rank, char *buf, size_t n)
{
    const int put = snprintf(buf, n, "%s" TABLES "/rank-%05d.json", tmp, rank);
    ECH_CHECK(put > 0 && (size_t)put < n, ECH_E_USAGE, "path too long: %.200s", tmp);
    return ECH_OK;
}

static ech_status tables_path(const char *tmp, char *buf, size_t n)
{
    const int put = snprintf(buf, n, "%s" TABLES, tmp);
    ECH_CHECK(put > 0 && (size_t)put < n, ECH_E_USAGE, "path too long: %.200s", tmp);
    return ECH_OK;
}

ech_status ech_ckpt_begin(const char *dir, int64_t step, char *tmp, size_t n)
{
    char path[4096];
    ECH_TRY(ech_ckpt_path(dir, step, path, sizeof path));
    ECH_CHECK(!ech_path_exists(path) || ech_path_is_folder(path), ECH_E_IO,
              "%s: cannot write the checkpoint: a file stands there", path);
    ECH_TRY(ech_folder_create(path, tmp, n));
    ech_status st = tables_path(tmp, path, sizeof path);
    if (st == ECH_OK)
        st = ech_make_folders(path);
    if (st < 0)
        ech_ckpt_abandon(tmp);
    return st;
}

void ech_ckpt_abandon(const char *tmp)
{
    char path[4096];
    char words[4096];
    (void)snprintf(words, sizeof words, "%s", ech_error_message());
    if (tables_path(tmp, path, sizeof path) == ECH_OK && ech_folder_remove(path) == ECH_OK &&
        ech_folder_remove(tmp) == ECH_OK)
        return;
    ech_error_clear(); /* the next sweep removes it (storage/ckpt_folder.h) */
    if (words[0])
        (void)ECH_RAISE(ECH_E_FAILED, "%s", words);
}

/* --- tables --- */

static ech_status take_number(ech_json *j, const char *key, int64_t *out)
{
    char *got;
    ECH_TRY(ech_json_key(j, &got));
    ECH_CHECK(!strcmp(got, key), ECH_E_PARSE, "wanted '%s'", key);
    ECH_TRY(ech_json_integer(j, out));
    return ech_json_take(j, ',');
}

/* Rank and bytes of the file, then its pieces appended to the manifest. */
static ech_status parse_table(ech_json *j, ech_ckpt_file *file, ech_ckpt_manifest *m)
{
    char *key;
    ECH_TRY(ech_json_take(j, '{'));
    ECH_TRY(take_number(j, "rank", &file->rank));
    ECH_TRY(take_number(j, "bytes", &file->bytes));
    ECH_TRY(ech_json_key(j, &key));
    ECH_CHECK(!strcmp(key, "pieces"), ECH_E_PARSE, "wanted 'pieces'");
    ECH_TRY(ech_ckpt_pieces_parse(j, &m->piece, &m->n_pieces));
    return ech_json_take(j, '}');
}

static ech_status read_table(const char *tmp, int rank, ech_ckpt_manifest *m)
{
    char path[4096];
    char *text = NULL;
    size_t bytes = 0;
    ech_ckpt_file file;
    const int64_t before = m->n_pieces;
    ECH_TRY(ech_ckpt_table_path(tmp, rank, path, sizeof path));
    ECH_CHECK(ech_path_exists(path), ECH_E_CORRUPT,
              "rank %d has left no table of its pieces in %s: do all hosts share this folder?",
              rank, tmp);
    ECH_TRY(ech_read_whole(path, ECH_CKPT_MANIFEST_BYTES, &text, &bytes));
    ech_json j = ech_json_start(text, bytes);
    ech_status st = parse_table(&j, &file, m);
    free(text);
    if (st == ECH_E_PARSE)
        st = ECH_E_CORRUPT;
    if (st < 0)
        return ech_error_prefix(st, "%s: ", path);
    ECH_CHECK(file.rank == rank, ECH_E_CORRUPT, "%s: is that of rank %" PRId64, path, file.rank);
    for (int64_t i = before; i < m->n_pieces; i++)
        ECH_CHECK(m->piece[i].rank == rank, ECH_E_CORRUPT, "%s: has a piece of rank %d", path,
                  (int)m->piece[i].rank);
    if (file.bytes > 0)
        m->file[m->n_files++] = file;
    return ECH_OK;
}

/* --- the manifest --- */

static ech_status fill_head(const ech_ckpt_head *head, ech_ckpt_manifest *m)
{
    ech_text model = {0};
    m->run = head->run;
    m->run.is_interleaved =
        head->model->rope.kind != ECH_ROPE_NONE && head->model->rope.interleaved;
    ech_clock_utc(m->run.saved, sizeof m->run.saved);
    m->layout = head->layout;
    memcpy(m->dtype, head->dtype, sizeof m->dtype);
    ECH_TRY(ech_ckpt_tensors_create(head->model, head->canon, &m->tensor));
    m->n_tensors = head->canon->n_params;
    m->config = strdup(head->config ? head->config : "{}");
    m->data = head->data ? strdup(head->data) : NULL;
    const ech_status st = ech_model_to_hf(head->model, NULL, &model);
    m->model = model.data; /* taken */
    ECH_CHECK(m->config && (m->data || !head->data), ECH_E_NOMEM, "no memory for the manifest");
    return st;
}

static ech_status add_copy(const char *tmp, const char *name, ech_ckpt_manifest *m)
{
    char path[4096];
    char *text = NULL;
    size_t bytes = 0;
    ECH_CHECK(m->n_copies < ECH_CKPT_COPIES_MAX, ECH_E_CORRUPT, "%s: more than %d files beside",
              tmp, (int)ECH_CKPT_COPIES_MAX);
    ech_ckpt_copy *c = &m->copy[m->n_copies++];
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    ECH_TRY(ech_path_join(tmp, name, path, sizeof path));
    ECH_TRY(ech_read_whole(path, ECH_CKPT_MANIFEST_BYTES, &text, &bytes));
    c->bytes = (int64_t)bytes;
    ech_hash128_hex(text, bytes, c->hash);
    free(text);
    return ECH_OK;
}

/* Everything in the folder but the pieces, before the manifest is there. */
static ech_status add_copies(const char *tmp, ech_ckpt_manifest *m)
{
    char **names = NULL;
    size_t n = 0;
    ech_status st = ECH_OK;
    ECH_TRY(ech_calloc(ECH_CKPT_COPIES_MAX, sizeof *m->copy, &m->copy));
    ECH_TRY(ech_list_folder(tmp, &names, &n));
    for (size_t i = 0; i < n && st == ECH_OK; i++)
        if (strncmp(names[i], "rank-", 5) != 0)
            st = add_copy(tmp, names[i], m);
    ech_names_destroy(&names, n);
    return st;
}

static ech_status fill(const char *tmp, const ech_ckpt_head *head, ech_ckpt_manifest *m)
{
    ECH_TRY(fill_head(head, m));
    ECH_TRY(add_copies(tmp, m));
    ECH_TRY(ech_calloc((size_t)head->layout.world, sizeof *m->file, &m->file));
    for (int r = 0; r < head->layout.world; r++)
        ECH_TRY(read_table(tmp, r, m));
    return ech_ckpt_manifest_complete(m);
}

static ech_status write_manifest(const char *tmp, const ech_ckpt_manifest *m)
{
    char path[4096];
    ech_text text = {0};
    ECH_TRY(ech_path_join(tmp, ECH_CKPT_MANIFEST, path, sizeof path));
    ech_ckpt_manifest_print(m, &text);
    const ech_status st = text.failed ? ECH_RAISE(ECH_E_NOMEM, "no memory for the manifest")
                                      : ech_write_whole(path, text.data, text.bytes);
    ech_text_fini(&text);
    return st;
}

ech_status ech_ckpt_publish(const char *dir, const char *tmp, const ech_ckpt_head *head,
                            ech_ckpt_saved *out)
{
    char tables[4096];
    ech_ckpt_manifest m = {0};
    ech_status st;
    int64_t bytes = 0;
    ECH_TRY(ech_ckpt_path(dir, head->run.step, out->path, sizeof out->path));
    ECH_TRY(tables_path(tmp, tables, sizeof tables));
    ECH_TRY_GOTO(st, fill(tmp, head, &m), end);
    ECH_TRY_GOTO(st, ech_folder_remove(tables), end);
    ECH_TRY_GOTO(st, write_manifest(tmp, &m), end); /* last: it says that all is there */
    ECH_TRY_GOTO(st, ech_ckpt_check_free(out->path, head->run.generation), end);
    ECH_TRY_GOTO(st, ech_folder_publish(tmp, out->path), end);
    for (int64_t i = 0; i < m.n_files; i++)
        bytes += m.file[i].bytes;
    out->bytes = bytes;
end:
    ech_ckpt_manifest_fini(&m);
    return st;
}
