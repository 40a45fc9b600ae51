#include "storage/hf_folder.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/io_folder.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENIZER_CAP = 1 << 28 }; /* bytes of a tokenizer file that is copied */

/* --- writing --- */

/* Tokenizer files by their names in a folder, and what belongs to each. */
static const struct {
    const char *name, *companion;
} tokenizer_rows[] = {{"tokenizer.json", "tokenizer_config.json"},
                      {"encoder.json", "vocab.bpe"},
                      {"vocab.json", "merges.txt"},
                      {"tokenizer.bin", NULL}};
enum { N_TOKENIZERS = sizeof tokenizer_rows / sizeof *tokenizer_rows };

/* Would ech_hf_folder_write have made a file of this name. */
static bool is_ours(const char *name)
{
    static const char *const names[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    for (size_t i = 0; i < N_TOKENIZERS; i++) {
        const char *companion = tokenizer_rows[i].companion;
        if (!strcmp(name, tokenizer_rows[i].name) || (companion && !strcmp(name, companion)))
            return true;
    }
    return !strncmp(name, "model-", 6) && strstr(name, "-of-") &&
           ech_has_suffix(name, ".safetensors");
}

/* What stands at dir may be replaced: nothing, or a folder with nothing but a model's files. */
static ech_status check_replaceable(const char *dir)
{
    char **names = NULL;
    size_t n = 0;
    ech_status st = ECH_OK;

    if (!ech_path_exists(dir))
        return ECH_OK;
    ECH_CHECK(ech_path_is_folder(dir), ECH_E_ILLEGAL, "%s: is there and no folder", dir);
    ECH_TRY(ech_list_folder(dir, &names, &n));
    for (size_t i = 0; st == ECH_OK && i < n; i++)
        if (!is_ours(names[i]))
            st = ECH_RAISE(ECH_E_ILLEGAL,
                           "%s: holds '%s', which is no part of a model: it is not replaced", dir,
                           names[i]);
    ech_names_destroy(&names, n);
    return st;
}

/* As PyTorch names a type. */
static const char *torch_name(ech_dtype type)
{
    static const char *const names[ECH_N_DTYPES] = {[ECH_F64] = "float64",
                                                    [ECH_F32] = "float32",
                                                    [ECH_BF16] = "bfloat16",
                                                    [ECH_F16] = "float16"};
    return names[type];
}

static ech_status write_config(const char *dir, const ech_model *m, ech_dtype type)
{
    ech_text text = {0};
    char path[4096];
    ech_status st = ech_model_to_hf(m, torch_name(type), &text);

    if (st == ECH_OK)
        st = ech_path_join(dir, "config.json", path, sizeof path);
    if (st == ECH_OK)
        st = ech_write_whole(path, ech_text_get(&text), text.bytes);
    ech_text_fini(&text);
    return st;
}

static ech_status copy_file(const char *from, const char *dir, const char *as)
{
    char path[4096];
    char *data = NULL;
    size_t bytes = 0;

    ECH_TRY(ech_path_join(dir, as, path, sizeof path));
    ECH_TRY(ech_read_whole(from, TOKENIZER_CAP, &data, &bytes));
    const ech_status st = ech_write_whole(path, data, bytes);
    free(data);
    return st;
}

/* One kind of tokenizer: its file and, where it is there, the companion in the same folder. */
static ech_status copy_kind(const char *file, size_t kind, const char *dir)
{
    const char *companion = tokenizer_rows[kind].companion;
    char folder[4096];
    char beside[4096];

    ECH_TRY(copy_file(file, dir, tokenizer_rows[kind].name));
    if (!companion)
        return ECH_OK;
    ECH_TRY(ech_path_folder(file, folder, sizeof folder));
    ECH_TRY(ech_path_join(folder, companion, beside, sizeof beside));
    return ech_path_exists(beside) ? copy_file(beside, dir, companion) : ECH_OK;
}

/* Kind of a file by its name: one of the known names, else by its ending. */
static size_t kind_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;

    for (size_t i = 0; i < N_TOKENIZERS; i++)
        if (!strcmp(name, tokenizer_rows[i].name))
            return i;
    return ech_has_suffix(name, ".bin") ? N_TOKENIZERS - 1 : 0;
}

ech_status ech_hf_tokenizer_copy(const char *tokenizer, bool is_optional, const char *dir)
{
    bool found = false;

    if (!ech_path_is_folder(tokenizer))
        return copy_kind(tokenizer, kind_of(tokenizer), dir);
    for (size_t i = 0; i < N_TOKENIZERS; i++) {
        char file[4096];
        ECH_TRY(ech_path_join(tokenizer, tokenizer_rows[i].name, file, sizeof file));
        if (!ech_path_exists(file))
            continue;
        ECH_TRY(copy_kind(file, i, dir));
        found = true;
    }
    ECH_CHECK(found || is_optional, ECH_E_IO,
              "%s: no tokenizer (tokenizer.json, encoder.json, vocab.json or tokenizer.bin)",
              tokenizer);
    return ECH_OK;
}

static ech_status add_to_set(void *writer, const void *data, size_t bytes)
{
    return ech_st_set_writer_add(writer, data, bytes);
}

static ech_status write_weights(const char *dir, const ech_hf_map *map, const ech_hf_values *from,
                                const ech_hf_folder_spec *spec)
{
    const int64_t most = spec->max_shard_bytes > 0 ? spec->max_shard_bytes : ECH_HF_SHARD_BYTES;
    ech_st_spec *tensors = NULL;
    ech_st_set_writer *w = NULL;
    ech_status st;

    ECH_TRY_GOTO(st, ech_hf_specs(map, spec->file_dtype, &tensors), end);
    ECH_TRY_GOTO(st, ech_st_set_writer_create(dir, tensors, map->n_tensors, most, &w), end);
    const ech_hf_sink sink = {add_to_set, w};
    ECH_TRY_GOTO(st, ech_hf_export(map, from, spec->file_dtype, &sink), end);
    ECH_TRY_GOTO(st, ech_st_set_writer_finish(&w), end);
end:
    ech_st_set_writer_destroy(&w);
    free(tensors);
    return st;
}

static ech_status fill(const char *dir, const ech_model *m, const ech_hf_map *map,
                       const ech_hf_values *from, const ech_hf_folder_spec *spec)
{
    ECH_TRY(write_config(dir, m, spec->file_dtype));
    if (spec->tokenizer)
        ECH_TRY(ech_hf_tokenizer_copy(spec->tokenizer, spec->tokenizer_is_optional, dir));
    return write_weights(dir, map, from, spec);
}

ech_status ech_hf_folder_write(const char *dir, const ech_model *m, const ech_canon *c,
                               const ech_hf_values *from, const ech_hf_folder_spec *spec)
{
    ech_hf_map map = {0};
    char tmp[4096];
    ech_status st;

    ECH_TRY(check_replaceable(dir));
    ECH_TRY(ech_hf_map_create(m, c, &map));
    st = ech_folder_create(dir, tmp, sizeof tmp);
    if (st == ECH_OK) {
        st = fill(tmp, m, &map, from, spec);
        if (st == ECH_OK)
            st = ech_folder_publish(tmp, dir);
        /* The first failure is the one to report; what removing says would replace it. */
        if (st < 0 && ech_path_exists(tmp)) {
            char *words = strdup(ech_error_message());
            if (ech_folder_remove(tmp) < 0 && words)
                st = ECH_RAISE(st, "%s (and %s is left behind)", words, tmp);
            else if (words)
                st = ECH_RAISE(st, "%s", words);
            free(words);
        }
    }
    ech_hf_map_fini(&map);
    return st;
}

/* --- reading --- */

ech_status ech_hf_folder_open(const char *dir, ech_hf_folder *out)
{
    ech_hf_folder f = {0};
    ech_findings findings = {0};
    ech_status st;

    ECH_TRY_GOTO(st, ech_model_load(dir, &f.model), fail);
    ECH_TRY_GOTO(st, ech_canon_create(&f.model, &f.canon), fail);
    ECH_TRY_GOTO(st, ech_hf_map_create(&f.model, &f.canon, &f.map), fail);
    ECH_TRY_GOTO(st, ech_st_set_open(dir, &f.set), fail);
    ECH_TRY_GOTO(st, ech_hf_check(&f.map, f.set, &findings), fail);
    ECH_TRY_GOTO(st, ech_findings_raise(&findings, ECH_E_CORRUPT), fail);
    ech_findings_fini(&findings);
    *out = f;
    return ECH_OK;
fail:
    ech_findings_fini(&findings);
    ech_hf_folder_fini(&f);
    return st;
}

void ech_hf_folder_fini(ech_hf_folder *f)
{
    ech_st_set_close(&f->set);
    ech_hf_map_fini(&f->map);
    ech_canon_fini(&f->canon);
    *f = (ech_hf_folder){0};
}

ech_status ech_hf_flat_params(const ech_canon *c, ech_dtype dtype, void *flat, void ***out)
{
    void **param = NULL;

    ECH_TRY(ech_calloc((size_t)c->n_params, sizeof *param, &param));
    for (int i = 0; i < c->n_params; i++)
        param[i] = (char *)flat + (size_t)c->param[i].offset * ech_dtype_bytes(dtype);
    *out = param;
    return ECH_OK;
}

ech_status ech_hf_folder_read(const char *dir, ech_dtype dtype, ech_hf_folder *out, void **weights)
{
    ech_hf_folder f = {0};
    void *flat = NULL;
    void **param = NULL;
    ech_status st;

    ECH_TRY_GOTO(st, ech_hf_folder_open(dir, &f), end);
    ECH_TRY_GOTO(st, ech_calloc((size_t)f.canon.elems, ech_dtype_bytes(dtype), &flat), end);
    ECH_TRY_GOTO(st, ech_hf_flat_params(&f.canon, dtype, flat, &param), end);
    const ech_hf_values to = {dtype, param};
    ECH_TRY_GOTO(st, ech_hf_import(&f.map, &f.canon, f.set, &to), end);
    *out = f;
    *weights = flat;
    f = (ech_hf_folder){0};
    flat = NULL;
end:
    ech_hf_folder_fini(&f);
    free(flat);
    free(param);
    return st;
}
