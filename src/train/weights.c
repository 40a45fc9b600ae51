#include "train/weights.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "storage/ckpt_folder.h"
#include "storage/llama2c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ech_status open_llama2c(const char *path, ech_weights *w)
{
    ECH_CHECK(ech_path_exists(path), ECH_E_IO,
              "'%s' does not exist: wanted a model folder, a checkpoint folder or llama2.c's file",
              path);
    w->is_llama2c = true;
    w->file_type = ECH_F32;
    (void)snprintf(w->path, sizeof w->path, "%s", path);
    ECH_TRY(ech_llama2c_model(path, &w->folder.model));
    return ech_canon_create(&w->folder.model, &w->folder.canon);
}

static ech_dtype first_type(const ech_st_set *set)
{
    static const struct {
        ech_st_dtype in;
        ech_dtype out;
    } types[] = {{ECH_ST_F64, ECH_F64}, {ECH_ST_BF16, ECH_BF16}, {ECH_ST_F16, ECH_F16}};
    const ech_st *file;
    const ech_st_dtype t = ech_st_set_count(set) ? ech_st_set_at(set, 0, &file)->dtype : ECH_ST_F32;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].in == t)
            return types[i].out;
    return ECH_F32;
}

static ech_status open_hf(const char *path, ech_weights *w)
{
    (void)snprintf(w->path, sizeof w->path, "%s", path);
    ECH_TRY(ech_hf_folder_open(path, &w->folder));
    w->file_type = first_type(w->folder.set);
    return ECH_OK;
}

/* --- checkpoints --- */

static ech_status use_checkpoint(ech_weights *w)
{
    (void)snprintf(w->path, sizeof w->path, "%s", ech_ckpt_path_of(w->ckpt));
    w->file_type = ech_ckpt_manifest_of(w->ckpt)->dtype[ECH_CKPT_PARAMS];
    ECH_TRY(ech_ckpt_check_files(w->ckpt));
    return ech_ckpt_model(w->ckpt, &w->folder.model, &w->folder.canon);
}

static void say_passed_over(const char *lines)
{
    for (const char *at = lines; *at; at += strcspn(at, "\n") + 1)
        ech_log(ECH_LOG_WARN, "passed over: %.*s", (int)strcspn(at, "\n"), at);
}

static ech_status open_newest(const char *dir, ech_weights *w)
{
    const ech_ckpt_query any = {0};
    ech_text passed_over = {0};
    ech_status st = ech_ckpt_find(dir, &any, &passed_over, &w->ckpt);
    if (st == ECH_OK && !w->ckpt)
        st = passed_over.bytes
                 ? ECH_RAISE(ECH_E_CORRUPT, "no checkpoint in %s is whole:\n%s", dir,
                             ech_text_get(&passed_over))
                 : ECH_RAISE(ECH_E_IO,
                             "'%s' holds neither a model nor a checkpoint (config.json, "
                             "manifest.json or step-N folders)",
                             dir);
    else if (passed_over.bytes)
        say_passed_over(ech_text_get(&passed_over));
    ech_text_fini(&passed_over);
    return st < 0 ? st : use_checkpoint(w);
}

/* Parameters in canonical order; padding rows come last in a tensor and are no part of it. */
static ech_status read_checkpoint(const ech_weights *w, ech_dtype real, void *const *param)
{
    for (int k = 0; k < w->folder.canon.n_params; k++)
        ECH_TRY(ech_ckpt_read_tensor(w->ckpt, ECH_CKPT_PARAMS, k, real, param[k]));
    return ECH_OK;
}

static ech_status open_folder(const char *path, ech_weights *w)
{
    char config[4096];
    if (ech_ckpt_exists(path)) {
        ECH_TRY(ech_ckpt_open(path, &w->ckpt));
        return use_checkpoint(w);
    }
    ECH_TRY(ech_path_join(path, "config.json", config, sizeof config));
    return ech_path_exists(config) ? open_hf(path, w) : open_newest(path, w);
}

ech_status ech_weights_open(const char *path, ech_weights *out)
{
    ech_weights w = {0};
    const ech_status st = ech_path_is_folder(path) ? open_folder(path, &w) : open_llama2c(path, &w);
    if (st < 0) {
        ech_weights_close(&w);
        return ech_error_trace(st, __FILE__, __LINE__);
    }
    *out = w;
    return ECH_OK;
}

void ech_weights_close(ech_weights *w)
{
    ech_ckpt_close(&w->ckpt);
    ech_hf_folder_fini(&w->folder);
    *w = (ech_weights){0};
}

ech_dtype ech_weights_real(const ech_weights *w)
{
    return w->file_type == ECH_F64 ? ECH_F64 : ECH_F32;
}

/* The file holds fp32 and is read as that; for fp64 each parameter is widened in place, from its
 * end, since the narrow values lie in the first half of the wide ones' memory. */
static ech_status read_llama2c(const ech_weights *w, ech_dtype real, void **param)
{
    const ech_canon *c = &w->folder.canon;
    ECH_TRY(ech_llama2c_read(w->path, &w->folder.model, c, param));
    for (int k = 0; real == ECH_F64 && k < c->n_params; k++)
        for (int64_t i = c->param[k].elems - 1; i >= 0; i--)
            ech_dtype_store(ECH_F64, param[k], (size_t)i,
                            ech_dtype_load(ECH_F32, param[k], (size_t)i));
    return ECH_OK;
}

ech_status ech_weights_read(const ech_weights *w, ech_dtype real, void *flat)
{
    void **param = NULL;
    const ech_hf_folder *f = &w->folder;
    ECH_TRY(ech_hf_flat_params(&f->canon, real, flat, &param));
    const ech_hf_values to = {real, param};
    const ech_status st = w->ckpt         ? read_checkpoint(w, real, param)
                          : w->is_llama2c ? read_llama2c(w, real, param)
                                          : ech_hf_import(&f->map, &f->canon, f->set, &to);
    free(param);
    return st;
}

/* What is loaded, and who holds it. */
typedef struct loading {
    const ech_weights *w;
    const ech_held *held;
    int n;
    uint64_t hash; /* of all values so far */
    void **param;  /* [n_params]: NULL but for the unit in work */
    void *values;  /* of a unit */
} loading;

static void hand_on(loading *l, int unit)
{
    const ech_canon *c = &l->w->folder.canon;
    const size_t bytes = (size_t)c->unit_elems[unit] * ech_dtype_bytes(l->held->real);
    const uint64_t pair[2] = {l->hash, ech_hash64(l->values, bytes)};
    for (int i = 0; i < l->n; i++)
        ech_held_take_unit(&l->held[i], ECH_HELD_PARAMS, unit, l->values);
    l->hash = ech_hash64(pair, sizeof pair);
}

/* Files that can be read tensor by tensor never need more memory than a unit. */
static ech_status load_unit(loading *l, int unit)
{
    const ech_hf_folder *f = &l->w->folder;
    const ech_hf_values to = {l->held->real, l->param};
    const size_t real = ech_dtype_bytes(to.dtype);
    for (int k = f->canon.unit_first[unit]; k < f->canon.unit_first[unit + 1]; k++)
        l->param[k] = (unsigned char *)l->values + (size_t)f->canon.param[k].unit_offset * real;
    ECH_TRY(ech_hf_import(&f->map, &f->canon, f->set, &to));
    for (int k = f->canon.unit_first[unit]; k < f->canon.unit_first[unit + 1]; k++)
        l->param[k] = NULL;
    hand_on(l, unit);
    return ECH_OK;
}

static ech_status load_by_units(loading *l)
{
    const ech_canon *c = &l->w->folder.canon;
    int64_t most = 0;
    ech_status st = ECH_OK;
    for (int u = 0; u < c->n_units; u++)
        most = c->unit_elems[u] > most ? c->unit_elems[u] : most;
    ECH_TRY(ech_calloc((size_t)c->n_params, sizeof *l->param, &l->param));
    ECH_TRY_GOTO(st, ech_calloc((size_t)most, ech_dtype_bytes(l->held->real), &l->values), done);
    for (int u = 0; u < c->n_units && st >= 0; u++)
        st = load_unit(l, u);
done:
    free(l->values);
    free(l->param);
    return st;
}

static ech_status load_whole(loading *l)
{
    const ech_canon *c = &l->w->folder.canon;
    const size_t real = ech_dtype_bytes(l->held->real);
    unsigned char *flat;
    ECH_TRY(ech_calloc((size_t)c->elems, real, &flat));
    const ech_status st = ech_weights_read(l->w, l->held->real, flat);
    for (int u = 0; u < c->n_units && st >= 0; u++) {
        l->values = flat + (size_t)c->unit_offset[u] * real;
        hand_on(l, u);
    }
    free(flat);
    return st;
}

ech_status ech_weights_load(const ech_weights *w, const ech_held *held, int n, uint64_t *hash)
{
    loading l = {.w = w, .held = held, .n = n};
    ECH_TRY(w->ckpt || w->is_llama2c ? load_whole(&l) : load_by_units(&l));
    if (hash)
        *hash = l.hash;
    return ECH_OK;
}

/* --- where a run starts --- */

const char *ech_weights_of_config(const ech_config *cfg)
{
    const bool is_there =
        cfg->model_hf && ech_path_is_folder(cfg->model_hf) && ech_st_set_exists(cfg->model_hf);
    return is_there ? cfg->model_hf : NULL;
}

static bool is_same_tensor(const ech_param *a, const ech_param *b)
{
    return strcmp(a->name, b->name) == 0 && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

static ech_status compare(const char *folder, const ech_canon *there, const ech_canon *here)
{
    const int n = there->n_params < here->n_params ? there->n_params : here->n_params;
    int k = 0;
    while (k < n && is_same_tensor(&there->param[k], &here->param[k]))
        k++;
    ECH_CHECK(k == there->n_params && k == here->n_params, ECH_E_CONFIG,
              "model.hf: the weights in '%s' are of another shape than the model: other keys of "
              "model change %s; name its config.json to take the shape alone",
              folder, k < here->n_params ? here->param[k].name : "the number of layers");
    return ECH_OK;
}

static ech_status open_for(const char *folder, const ech_canon *canon, ech_weights *w)
{
    ECH_TRY(ech_weights_open(folder, w));
    const ech_status st = compare(folder, &w->folder.canon, canon);
    if (st < 0)
        ech_weights_close(w);
    return st;
}

ech_status ech_weights_check(const char *folder, const ech_model *model)
{
    ech_canon canon = {0};
    ech_weights w = {0};
    ECH_TRY(ech_canon_create(model, &canon));
    const ech_status st = open_for(folder, &canon, &w);
    ech_weights_close(&w);
    ech_canon_fini(&canon);
    return st;
}

ech_status ech_weights_start(const char *folder, ech_session *s, uint64_t *hash)
{
    ech_weights w = {0};
    ech_held *held;
    ECH_TRY(ech_calloc((size_t)s->n_local, sizeof *held, &held));
    for (int i = 0; i < s->n_local; i++)
        held[i] = ech_session_held(s, i);
    ech_status st = open_for(folder, &s->canon, &w);
    if (st >= 0)
        st = ech_weights_load(&w, held, s->n_local, hash);
    free(held);
    ech_weights_close(&w);
    return st;
}
