/* echelon ckpt ls, show and verify of Echelon's own checkpoints. */
#include "cli/ckpt_own.h"

#include "base/io.h"
#include "cli/command.h"
#include "report/jout.h"
#include "storage/ckpt_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ech_status ech_ckpt_own_is(const char *path, bool *out)
{
    ech_ckpt_entry *list = NULL;
    size_t n = 0;
    *out = ech_ckpt_exists(path);
    if (*out || !ech_path_is_folder(path))
        return ECH_OK;
    ECH_TRY(ech_ckpt_list(path, &list, &n));
    free(list);
    *out = n > 0;
    return ECH_OK;
}

ech_status ech_ckpt_own_open(const char *path, ech_ckpt **out)
{
    const ech_ckpt_query any = {0};
    ech_text passed_over = {0};
    if (ech_ckpt_exists(path))
        return ech_ckpt_open(path, out);
    ech_status st = ech_ckpt_find(path, &any, &passed_over, out);
    if (st == ECH_OK && !*out)
        st = ECH_RAISE(ECH_E_CORRUPT, "%s: no checkpoint in it is whole:\n%s", path,
                       ech_text_get(&passed_over));
    else if (st == ECH_OK)
        (void)fprintf(stderr, "%snewest: %s\n", ech_text_get(&passed_over), ech_ckpt_path_of(*out));
    ech_text_fini(&passed_over);
    return st;
}

/* "tp 2, 4 shards x 2" into buf: what is above 1. */
static const char *describe_layout(const ech_ckpt_layout *l, char *buf, size_t n)
{
    const struct {
        const char *name;
        int64_t degree;
    } rows[] = {{"tp", l->tp},
                {"cp", l->cp},
                {"pp", l->pp},
                {"shards", l->shards},
                {"replicas", l->replicas}};
    size_t used = 0;
    (void)snprintf(buf, n, "one rank");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].degree > 1 && used < n)
            used += (size_t)snprintf(buf + used, n - used, "%s%s %" PRId64, used ? ", " : "",
                                     rows[i].name, rows[i].degree);
    if (l->is_sequence_parallel && used < n)
        (void)snprintf(buf + used, n - used, "%ssp", used ? ", " : "");
    return buf;
}

static void add_layout(ech_jout *j, const ech_ckpt_layout *l)
{
    ech_jout_open(j, "layout", '{');
    ech_jout_int(j, "world", l->world);
    ech_jout_int(j, "tp", l->tp);
    ech_jout_int(j, "cp", l->cp);
    ech_jout_int(j, "pp", l->pp);
    ech_jout_int(j, "dp", l->shards * l->replicas);
    ech_jout_int(j, "shards", l->shards);
    ech_jout_int(j, "replicas", l->replicas);
    ech_jout_bool(j, "sequence_parallel", l->is_sequence_parallel);
    ech_jout_close(j);
}

/* One word and --json. */
static ech_status parse_path(int argc, char **argv, const char **path, bool *as_json)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {{"json", ECH_OPT_FLAG, as_json}};
    ech_status st = ech_opt_parse(argc, argv, opts, 1, &words);
    if (st == ECH_OK && words.n != 1)
        st = ECH_RAISE(ECH_E_USAGE, "ckpt %s needs one folder", argv[0]);
    if (st == ECH_OK)
        *path = words.item[0];
    if (st == ECH_OK)
        st = ech_cli_check_path(*path);
    ech_opt_list_fini(&words);
    return st;
}

/* --- each checkpoint of a folder --- */

/* Told every checkpoint, newest first; c is NULL where it cannot be opened (the error says why). */
typedef ech_status (*on_checkpoint)(void *user, const char *path, ech_ckpt *c, ech_status open);

static ech_status visit(const char *path, on_checkpoint visitor, void *user)
{
    ech_ckpt *c = NULL;
    const ech_status open = ech_ckpt_open(path, &c);
    if (open == ECH_E_NOMEM)
        return open;
    const ech_status st = visitor(user, path, c, open);
    ech_ckpt_close(&c);
    return st;
}

static ech_status each_checkpoint(const char *path, on_checkpoint visitor, void *user)
{
    ech_ckpt_entry *list = NULL;
    size_t n = 0;
    ech_status st = ECH_OK;
    if (ech_ckpt_exists(path))
        return visit(path, visitor, user);
    ECH_CHECK(ech_path_is_folder(path), ECH_E_IO, "%s: no such folder", path);
    ECH_TRY(ech_ckpt_list(path, &list, &n));
    for (size_t i = 0; i < n && st == ECH_OK; i++) {
        char one[4096];
        st = ech_path_join(path, list[i].name, one, sizeof one);
        if (st == ECH_OK)
            st = visit(one, visitor, user);
    }
    free(list);
    return st;
}

/* What is wrong with one, by the status of looking at it. */
static const char *fault_name(ech_status st)
{
    return st == ECH_E_IO ? "cannot be read: " : "damaged: ";
}

/* --- ls --- */

typedef struct listing {
    bool as_json;
    ech_jout json;
    ech_text text;
    int64_t n;
} listing;

static void list_json(listing *l, const char *path, const ech_ckpt *c, const char *why)
{
    ech_jout *j = &l->json;
    const ech_ckpt_manifest *m = c ? ech_ckpt_manifest_of(c) : NULL;
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "path", path);
    ech_jout_bool(j, "valid", !why);
    ech_jout_string(j, "why", why);
    if (m) {
        ech_jout_int(j, "step", m->run.step);
        ech_jout_int(j, "generation", m->run.generation);
        ech_jout_int(j, "bytes", ech_ckpt_bytes(c));
        ech_jout_string(j, "saved", m->run.saved);
        add_layout(j, &m->layout);
    }
    ech_jout_close(j);
}

static void list_plain(listing *l, const char *path, const ech_ckpt *c, const char *why)
{
    char size[32];
    char layout[128];
    const ech_ckpt_manifest *m = c ? ech_ckpt_manifest_of(c) : NULL;
    if (m)
        ech_text_add(&l->text, "%10" PRId64 "  run %-3" PRId64 " %12s  %s  %-24s %s\n", m->run.step,
                     m->run.generation,
                     ech_format_bytes((double)ech_ckpt_bytes(c), size, sizeof size), m->run.saved,
                     describe_layout(&m->layout, layout, sizeof layout), why ? why : "ok");
    else
        ech_text_add(&l->text, "%10s  %s: %s\n", "?", path, why);
}

static ech_status list_one(void *user, const char *path, ech_ckpt *c, ech_status open)
{
    listing *l = user;
    char why[512];
    const ech_status st = c ? ech_ckpt_check_files(c) : open;
    const bool good = st == ECH_OK;
    (void)snprintf(why, sizeof why, "%s%s", good || l->as_json ? "" : fault_name(st),
                   good ? "" : ech_error_message());
    (l->as_json ? list_json : list_plain)(l, path, c, good ? NULL : why);
    l->n++;
    return ECH_OK;
}

ech_status ech_ckpt_own_ls(int argc, char **argv)
{
    const char *path = NULL;
    listing l = {.as_json = false};
    ECH_TRY(parse_path(argc, argv, &path, &l.as_json));
    ech_jout_open(&l.json, NULL, '{');
    ech_jout_string(&l.json, "dir", path);
    ech_jout_open(&l.json, "checkpoints", '[');
    ech_status st = each_checkpoint(path, list_one, &l);
    ech_jout_close(&l.json);
    ech_jout_close(&l.json);
    if (st == ECH_OK && l.n == 0)
        (void)fprintf(stderr, "%s: no checkpoints\n", path);
    if (st == ECH_OK)
        st = l.as_json ? ech_cli_print_json(&l.json) : ech_cli_print(&l.text);
    ech_jout_fini(&l.json);
    ech_text_fini(&l.text);
    return st;
}

/* --- verify --- */

typedef struct verification {
    bool as_json;
    ech_jout json;
    int64_t checkpoints, damaged, unread;
    char first[1100]; /* what was wrong with the first such one */
} verification;

static void tell_fault(const ech_ckpt_fault *f, void *user)
{
    verification *v = user;
    if (!v->as_json) {
        (void)fprintf(stderr, "%s\n", f->what);
        return;
    }
    ech_jout_open(&v->json, NULL, '{');
    if (f->rank >= 0)
        ech_jout_int(&v->json, "rank", f->rank);
    else
        ech_jout_null(&v->json, "rank");
    ech_jout_string(&v->json, "file", f->file);
    ech_jout_string(&v->json, "tensor", f->tensor);
    ech_jout_string(&v->json, "class", f->tensor ? ech_ckpt_class_name(f->cls) : NULL);
    ech_jout_int(&v->json, "offset", f->offset);
    ech_jout_string(&v->json, "what", f->what);
    ech_jout_close(&v->json);
}

static ech_status verify_one(void *user, const char *path, ech_ckpt *c, ech_status open)
{
    verification *v = user;
    ech_jout *j = &v->json;
    const ech_ckpt_manifest *m = c ? ech_ckpt_manifest_of(c) : NULL;
    char why[1024];
    (void)snprintf(why, sizeof why, "%s", c ? "" : ech_error_message());
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "path", path);
    ech_jout_open(j, "faults", '[');
    const ech_status st = c ? ech_ckpt_verify(c, tell_fault, v) : open;
    ech_jout_close(j);
    if (c && st < 0)
        (void)snprintf(why, sizeof why, "%s", ech_error_message());
    if (st == ECH_E_NOMEM)
        return st;
    if (st == ECH_E_IO)
        ech_jout_null(j, "valid"); /* it cannot be told */
    else
        ech_jout_bool(j, "valid", st == ECH_OK);
    ech_jout_string(j, "why", st == ECH_OK ? NULL : why);
    if (m) {
        ech_jout_int(j, "step", m->run.step);
        ech_jout_int(j, "pieces", m->n_pieces);
        ech_jout_int(j, "bytes", ech_ckpt_bytes(c));
    }
    ech_jout_close(j);
    v->checkpoints++;
    v->unread += st == ECH_E_IO;
    v->damaged += st < 0 && st != ECH_E_IO;
    if (st < 0 && v->damaged + v->unread == 1)
        (void)snprintf(v->first, sizeof v->first, "%s%s", st == ECH_E_IO ? fault_name(st) : "",
                       why);
    if (st == ECH_OK && !v->as_json)
        (void)printf("%s: ok, %" PRId64 " pieces, %" PRId64 " bytes\n", path, m->n_pieces,
                     ech_ckpt_bytes(c));
    return ECH_OK;
}

ech_status ech_ckpt_own_verify(int argc, char **argv)
{
    const char *path = NULL;
    verification v = {.as_json = false};
    ECH_TRY(parse_path(argc, argv, &path, &v.as_json));
    ech_jout_open(&v.json, NULL, '{');
    ech_jout_open(&v.json, "checkpoints", '[');
    ech_status st = each_checkpoint(path, verify_one, &v);
    if (st == ECH_OK && v.checkpoints == 0)
        st = ECH_RAISE(ECH_E_IO, "%s: holds no checkpoint (a manifest.json, or step-N folders)",
                       path);
    if (st == ECH_OK && v.as_json) {
        ech_jout_close(&v.json);
        ech_jout_bool(&v.json, "valid", v.damaged + v.unread == 0);
        ech_jout_close(&v.json);
        st = ech_cli_print_json(&v.json);
    }
    ech_jout_fini(&v.json);
    ECH_TRY(st);
    ECH_CHECK(v.damaged == 0, ECH_E_CORRUPT, "%s%s", v.first,
              v.damaged + v.unread > 1 ? "; other checkpoints fail too" : "");
    ECH_CHECK(v.unread == 0, ECH_E_IO, "%s%s", v.first,
              v.unread > 1 ? "; other checkpoints fail too" : "");
    return ECH_OK;
}

/* --- show --- */

static void add_tensor(ech_jout *j, const ech_ckpt_manifest *m, int cls, int64_t t)
{
    const int64_t *first = &m->first_piece[cls * m->n_tensors + t];
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "class", ech_ckpt_class_name((ech_ckpt_class)cls));
    ech_jout_string(j, "name", m->tensor[t].name);
    ech_jout_string(j, "dtype", ech_dtype_name(m->dtype[cls]));
    ech_jout_open(j, "shape", '[');
    for (int d = 0; d < m->tensor[t].rank; d++)
        ech_jout_int(j, NULL, m->tensor[t].dim[d]);
    ech_jout_close(j);
    ech_jout_int(j, "bytes", m->tensor[t].elems * (int64_t)ech_dtype_bytes(m->dtype[cls]));
    ech_jout_int(j, "pieces", first[1] - first[0]);
    ech_jout_close(j);
}

static void add_run(ech_jout *j, const ech_ckpt *c)
{
    const ech_ckpt_manifest *m = ech_ckpt_manifest_of(c);
    ech_jout_string(j, "path", ech_ckpt_path_of(c));
    ech_jout_int(j, "version", ECH_CKPT_VERSION);
    ech_jout_int(j, "step", m->run.step);
    ech_jout_int(j, "generation", m->run.generation);
    ech_jout_int(j, "updates", m->run.updates);
    ech_jout_int(j, "samples", m->run.samples);
    ech_jout_int(j, "seed", m->run.seed);
    ech_jout_real(j, "lr", m->run.lr);
    ech_jout_real(j, "loss_scale", m->run.loss_scale);
    ech_jout_string(j, "saved", m->run.saved);
    ech_jout_string(j, "fingerprint", m->fingerprint);
    add_layout(j, &m->layout);
    ech_jout_raw(j, "model", m->model);
    ech_jout_raw(j, "config", m->config);
    ech_jout_raw(j, "data", m->data ? m->data : "null");
}

static ech_status show_json(const ech_ckpt *c)
{
    const ech_ckpt_manifest *m = ech_ckpt_manifest_of(c);
    ech_jout j = {0};
    char name[32];
    int64_t elems = 0;
    ech_jout_open(&j, NULL, '{');
    add_run(&j, c);
    ech_jout_open(&j, "tensors", '[');
    for (int cls = 0; cls < ECH_N_CKPT_CLASSES; cls++)
        for (int64_t t = 0; t < m->n_tensors && m->dtype[cls] != ECH_N_DTYPES; t++)
            add_tensor(&j, m, cls, t);
    ech_jout_close(&j);
    ech_jout_open(&j, "files", '[');
    for (int64_t i = 0; i < m->n_files; i++) {
        ech_jout_open(&j, NULL, '{');
        ech_jout_int(&j, "rank", m->file[i].rank);
        ech_jout_string(&j, "file", ech_ckpt_file_name(m->file[i].rank, name));
        ech_jout_int(&j, "bytes", m->file[i].bytes);
        ech_jout_close(&j);
    }
    ech_jout_close(&j);
    for (int64_t t = 0; t < m->n_tensors; t++)
        elems += m->tensor[t].elems;
    ech_jout_int(&j, "elements", elems);
    ech_jout_int(&j, "bytes", ech_ckpt_bytes(c));
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

static void show_tensors(const ech_ckpt_manifest *m, ech_text *text)
{
    for (int64_t t = 0; t < m->n_tensors; t++) {
        ech_text_add(text, "  %-44s [", m->tensor[t].name);
        for (int d = 0; d < m->tensor[t].rank; d++)
            ech_text_add(text, "%s%" PRId64, d ? ", " : "", m->tensor[t].dim[d]);
        ech_text_add(text, "]\n");
    }
}

static ech_status show_plain(const ech_ckpt *c)
{
    const ech_ckpt_manifest *m = ech_ckpt_manifest_of(c);
    ech_text text = {0};
    char buf[128];
    ech_text_add(&text, "%s\n", ech_ckpt_path_of(c));
    ech_text_add(&text,
                 "  step %" PRId64 " of run %" PRId64 ", %" PRId64 " updates, %" PRId64
                 " samples, saved %s\n",
                 m->run.step, m->run.generation, m->run.updates, m->run.samples, m->run.saved);
    ech_text_add(&text, "  lr ");
    ech_text_add_double(&text, m->run.lr);
    ech_text_add(&text, ", loss scale ");
    ech_text_add_double(&text, m->run.loss_scale);
    ech_text_add(&text, ", seed %" PRId64 "\n", m->run.seed);
    ech_text_add(&text, "  layout: %" PRId64 " ranks (%s)\n", m->layout.world,
                 describe_layout(&m->layout, buf, sizeof buf));
    for (int cls = 0; cls < ECH_N_CKPT_CLASSES; cls++)
        if (m->dtype[cls] != ECH_N_DTYPES)
            ech_text_add(&text, "  %s in %s\n", ech_ckpt_class_name((ech_ckpt_class)cls),
                         ech_dtype_name(m->dtype[cls]));
    show_tensors(m, &text);
    ech_text_add(&text, "%" PRId64 " tensors, %" PRId64 " pieces in %" PRId64 " files, %s\n",
                 m->n_tensors, m->n_pieces, m->n_files,
                 ech_format_bytes((double)ech_ckpt_bytes(c), buf, sizeof buf));
    return ech_cli_print(&text);
}

ech_status ech_ckpt_own_show(const char *path, bool as_json)
{
    ech_ckpt *c = NULL;
    ECH_TRY(ech_ckpt_own_open(path, &c));
    const ech_status st = as_json ? show_json(c) : show_plain(c);
    ech_ckpt_close(&c);
    return st;
}
