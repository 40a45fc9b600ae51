#include "train/checkpoint.h"
#include "base/checked.h"
#include "base/io.h"
#include "base/io_folder.h"
#include "base/log.h"
#include "base/node.h"
#include "base/text.h"
#include "data/tokenizer.h"
#include "storage/hf_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATEST "latest"

/* N of "step-N", -1 for other names. */
static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    const long long n = strtoll(name + 5, &end, 10);
    return errno || *end ? -1 : n;
}

static int compare_steps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Steps saved in dir, ascending; owned by the caller. */
static ech_status list_steps(const char *dir, int64_t **out, size_t *n)
{
    char **names;
    size_t n_names;
    int64_t *steps = NULL;
    *n = 0;
    ECH_TRY(ech_list_folder(dir, &names, &n_names));
    const ech_status st = ech_calloc(n_names, sizeof *steps, &steps);
    for (size_t i = 0; i < n_names && st >= 0; i++)
        if (step_of(names[i]) >= 0)
            steps[(*n)++] = step_of(names[i]);
    ech_names_destroy(&names, n_names);
    ECH_TRY(st);
    qsort(steps, *n, sizeof *steps, compare_steps);
    *out = steps;
    return ECH_OK;
}

static ech_status step_path(const char *dir, int64_t step, char *path, size_t n)
{
    char name[40];
    (void)snprintf(name, sizeof name, "step-%lld", (long long)step);
    return ech_path_join(dir, name, path, n);
}

/* --- which are ours --- */

void ech_checkpoints_fini(ech_checkpoints *c)
{
    free(c->step);
    *c = (ech_checkpoints){0};
}

/* `step` stands: the newest of this run, whatever stood there before. */
static ech_status add_newest(ech_checkpoints *c, int64_t step)
{
    ECH_TRY(ech_grow(&c->step, c->n, &c->capacity, sizeof *c->step));
    c->step[c->n++] = step;
    return ECH_OK;
}

/* DIR/latest: its newest folder and, for people, the others of the same run. */
static ech_status write_latest(const char *dir, const ech_checkpoints *c, size_t first)
{
    char path[4096];
    ech_text text = {0};
    ECH_TRY(ech_path_join(dir, LATEST, path, sizeof path));
    ech_text_add(&text, "{\"newest\": \"step-%lld\", \"saved\": [", (long long)c->step[c->n - 1]);
    for (size_t i = first; i < c->n; i++)
        ech_text_add(&text, "%s\"step-%lld\"", i > first ? ", " : "", (long long)c->step[i]);
    ech_text_add(&text, "]}\n");
    ech_status st = text.failed ? ECH_RAISE(ECH_E_NOMEM, "%s", path)
                                : ech_write_whole(path, ech_text_get(&text), text.bytes);
    ech_text_fini(&text);
    return st;
}

/* Say which is the newest, then remove what is beyond `keep` (0: all are kept). */
static ech_status prune(const char *dir, int64_t keep, ech_checkpoints *c)
{
    const size_t gone = keep > 0 && c->n > (size_t)keep ? c->n - (size_t)keep : 0;
    ECH_TRY(write_latest(dir, c, gone));
    for (size_t i = 0; i < gone; i++) {
        char path[4096];
        ECH_TRY(step_path(dir, c->step[i], path, sizeof path));
        ECH_TRY(ech_folder_remove(path));
    }
    memmove(c->step, c->step + gone, (c->n - gone) * sizeof *c->step);
    c->n -= gone;
    return ECH_OK;
}

/* What an earlier run left in the folder stays, and is not what this run is known by. */
static ech_status warn_of_others(const char *dir)
{
    int64_t *steps;
    size_t n;
    ECH_TRY(list_steps(dir, &steps, &n));
    if (n)
        ech_log(
            ECH_LOG_WARN,
            "%s holds checkpoints of an earlier run, up to step-%lld: they stay, checkpoint.keep "
            "does not count them, and from the first save on the newest is this run's",
            dir, (long long)steps[n - 1]);
    free(steps);
    return ECH_OK;
}

static ech_status try_beside(const char *path)
{
    char tmp[4096];
    ECH_TRY(ech_folder_create(path, tmp, sizeof tmp));
    return ech_folder_remove(tmp);
}

/* Can a file be put at path: created beside it and dropped again. */
static ech_status try_file(const char *path)
{
    ech_file *f;
    ECH_TRY(ech_file_create(path, &f));
    ech_file_close(&f);
    return ECH_OK;
}

/* A tokenizer that is to stand beside the weights must be one, and not know more ids than the model. */
static ech_status check_tokenizer(const ech_config *cfg)
{
    ech_tokenizer *t;
    if (!cfg->data.tokenizer)
        return ECH_OK;
    const ech_status st = ech_tokenizer_open(cfg->data.tokenizer, &t);
    if (st < 0)
        return ech_error_prefix(ECH_E_CONFIG, "data.tokenizer: ");
    const int32_t vocab = ech_tokenizer_vocab(t);
    ech_tokenizer_destroy(&t);
    ECH_CHECK(vocab <= cfg->model.vocab, ECH_E_CONFIG,
              "data.tokenizer: %s has %d tokens, the model's vocabulary is %lld",
              cfg->data.tokenizer, vocab, (long long)cfg->model.vocab);
    return ECH_OK;
}

ech_status ech_checkpoint_prepare(const ech_config *cfg, const char *grads)
{
    char path[4096];
    if (grads)
        ECH_TRY(try_file(grads));
    if (cfg->checkpoint.every_steps == 0)
        return ECH_OK;
    ECH_TRY(check_tokenizer(cfg));
    ECH_TRY(ech_make_folders(cfg->checkpoint.dir));
    ECH_TRY(warn_of_others(cfg->checkpoint.dir));
    ECH_TRY(step_path(cfg->checkpoint.dir, 0, path, sizeof path));
    return try_beside(path);
}

static ech_status write_folder(const ech_config *cfg, ech_session *s, void *flat, const char *path)
{
    void **param;
    const ech_dtype real = s->config.compile.block.real;
    const ech_hf_folder_spec spec = {.file_dtype = real, .tokenizer = cfg->data.tokenizer};
    ECH_CHECK(!ech_path_exists(path) || ech_path_is_folder(path), ECH_E_IO,
              "%s: cannot write the checkpoint: a file stands there", path);
    ECH_TRY(ech_hf_flat_params(&s->canon, real, flat, &param));
    const ech_hf_values values = {real, param};
    const ech_status st = ech_hf_folder_write(path, &s->model, &s->canon, &values, &spec);
    free(param);
    return st;
}

static bool is_root(const ech_session *s)
{
    return s->local[0].rank == 0;
}

/* A class of values of the whole model, on rank 0's process; NULL elsewhere.  *Collective*. */
static ech_status collect(ech_session *s, ech_held_class what, void **flat)
{
    ech_status st = ECH_OK;
    *flat = NULL;
    if (is_root(s))
        st =
            ech_calloc((size_t)s->canon.elems, ech_dtype_bytes(s->config.compile.block.real), flat);
    if (s->n_local == 1)
        st = ech_comm_agree(s->local[0].comm, st);
    if (st >= 0)
        st = ech_session_collect(s, what, *flat);
    if (st < 0) {
        free(*flat);
        *flat = NULL;
    }
    return st;
}

static ech_status save_on_root(const ech_config *cfg, ech_session *s, int64_t step, void *flat,
                               ech_checkpoints *run, ech_checkpoint_saved *out)
{
    ech_param_count count;
    const char *dir = cfg->checkpoint.dir;
    ECH_TRY(ech_model_count(&s->model, &count));
    ECH_TRY(ech_make_folders(dir));
    ECH_TRY(step_path(dir, step, out->path, sizeof out->path));
    ECH_TRY(write_folder(cfg, s, flat, out->path));
    ECH_TRY(add_newest(run, step));
    out->bytes = count.total * (int64_t)ech_dtype_bytes(s->config.compile.block.real);
    return prune(dir, cfg->checkpoint.keep, run);
}

ech_status ech_checkpoint_save(const ech_config *cfg, ech_session *s, int64_t step,
                               ech_checkpoints *run, ech_checkpoint_saved *out)
{
    void *flat;
    ECH_TRY(collect(s, ECH_HELD_PARAMS, &flat));
    const ech_status st = is_root(s) ? save_on_root(cfg, s, step, flat, run, out) : ECH_OK;
    free(flat);
    return st;
}

/* --- finding --- */

/* The folder that DIR/latest names, -1: there is no such file, or no such folder any more. */
static ech_status read_latest(const char *dir, int64_t *step)
{
    char path[4096];
    ech_node *root = NULL;
    *step = -1;
    ECH_TRY(ech_path_join(dir, LATEST, path, sizeof path));
    if (!ech_path_exists(path))
        return ECH_OK;
    ECH_TRY(ech_node_read_file(path, true, &root));
    const ech_node *newest = root->kind == ECH_NODE_MAP ? ech_node_find(root, "newest") : NULL;
    const int64_t n = newest && newest->kind == ECH_NODE_STRING ? step_of(newest->string) : -1;
    ech_node_destroy(&root);
    ECH_CHECK(n >= 0, ECH_E_PARSE, "%s names no step-N folder as newest", path);
    ECH_TRY(step_path(dir, n, path, sizeof path));
    *step = ech_path_is_folder(path) ? n : -1;
    return ECH_OK;
}

ech_status ech_checkpoint_find(const char *dir, char *path, size_t n)
{
    int64_t *steps;
    size_t n_steps;
    int64_t newest = -1;
    ECH_TRY(ech_path_join(dir, "config.json", path, n));
    if (ech_path_exists(path)) {
        (void)snprintf(path, n, "%s", dir);
        return ECH_OK;
    }
    ECH_TRY(read_latest(dir, &newest));
    if (newest >= 0)
        return step_path(dir, newest, path, n);
    ECH_TRY(list_steps(dir, &steps, &n_steps));
    newest = n_steps ? steps[n_steps - 1] : -1;
    free(steps);
    ECH_CHECK(newest >= 0, ECH_E_IO, "'%s' holds neither a config.json nor a step-N folder", dir);
    return step_path(dir, newest, path, n);
}

static ech_status write_grads(ech_session *s, double factor, void *flat, const char *file)
{
    void **param = NULL;
    ech_hf_map map = {0};
    ech_status st;
    const ech_dtype real = s->config.compile.block.real;
    for (size_t i = 0; i < (size_t)s->canon.elems; i++)
        ech_dtype_store(real, flat, i, factor * ech_dtype_load(real, flat, i));
    ECH_TRY_GOTO(st, ech_hf_map_create(&s->model, &s->canon, &map), done);
    ECH_TRY_GOTO(st, ech_hf_flat_params(&s->canon, real, flat, &param), done);
    const ech_hf_values values = {real, param};
    ECH_TRY_GOTO(st, ech_hf_export_file(&map, &values, real, file), done);
done:
    ech_hf_map_fini(&map);
    free(param);
    return st;
}

ech_status ech_checkpoint_dump_grads(ech_session *s, double factor, const char *file)
{
    void *flat;
    ECH_TRY(collect(s, ECH_HELD_GRADS, &flat));
    const ech_status st = is_root(s) ? write_grads(s, factor, flat, file) : ECH_OK;
    free(flat);
    return st;
}
