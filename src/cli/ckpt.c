/* echelon ckpt: checkpoints and model folders, in and out, and what is in them. */
#include "base/checked.h"
#include "base/io.h"
#include "base/text.h"
#include "cli/ckpt_own.h"
#include "cli/command.h"
#include "report/jout.h"
#include "train/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model in memory, from whatever kind of source. */
typedef struct loaded {
    ech_weights weights;
    ech_dtype dtype; /* of the values: ECH_F32 or ECH_F64 */
    void *flat;      /* owned */
} loaded;

static void loaded_fini(loaded *l)
{
    ech_weights_close(&l->weights);
    free(l->flat);
    l->flat = NULL;
}

static ech_status load(const char *path, loaded *l)
{
    ECH_TRY(ech_weights_open(path, &l->weights));
    l->dtype = ech_weights_real(&l->weights);
    ECH_TRY(ech_calloc((size_t)l->weights.folder.canon.elems, ech_dtype_bytes(l->dtype), &l->flat));
    return ech_weights_read(&l->weights, l->dtype, l->flat);
}

/* --- import, export --- */

typedef struct copy_options {
    const char *from, *out, *tokenizer, *dtype, *shard;
} copy_options;

static ech_status file_type_of(const copy_options *o, const loaded *l, ech_dtype *out)
{
    static const ech_dtype types[] = {ECH_F64, ECH_F32, ECH_BF16, ECH_F16};
    *out = l->weights.file_type;
    if (!o->dtype)
        return ECH_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(o->dtype, ech_dtype_name(types[i])) == 0) {
            *out = types[i];
            return ECH_OK;
        }
    return ECH_RAISE(ECH_E_USAGE, "--dtype %s: fp64, fp32, bf16 or fp16", o->dtype);
}

static ech_status write_copy(const copy_options *o, loaded *l, int64_t shard_bytes)
{
    ech_hf_folder_spec spec = {.max_shard_bytes = shard_bytes};
    void **param = NULL;
    const ech_weights *from = &l->weights;
    const ech_hf_folder *f = &from->folder;
    ECH_TRY(file_type_of(o, l, &spec.file_dtype));
    spec.tokenizer = o->tokenizer ? o->tokenizer : from->is_llama2c ? NULL : from->path;
    spec.tokenizer_is_optional = !o->tokenizer;
    ECH_TRY(ech_hf_flat_params(&f->canon, l->dtype, l->flat, &param));
    const ech_hf_values values = {l->dtype, param};
    const ech_status st = ech_hf_folder_write(o->out, &f->model, &f->canon, &values, &spec);
    free(param);
    return st;
}

/* Parameters as the model counts them: padding is not written. */
static ech_status say_copied(const copy_options *o, const loaded *l)
{
    ech_param_count count;
    ECH_TRY(ech_model_count(&l->weights.folder.model, &count));
    (void)fprintf(stderr, "%s: %" PRId64 " parameters in %d tensors of %s\n", o->out, count.total,
                  l->weights.folder.canon.n_params, l->weights.path);
    return ECH_OK;
}

static ech_status copy_model(const copy_options *o)
{
    loaded l = {0};
    int64_t shard_bytes = 0;
    ech_dtype unused;
    if (o->shard) {
        ECH_TRY(ech_parse_bytes(o->shard, &shard_bytes));
        ECH_CHECK(shard_bytes > 0, ECH_E_USAGE, "--shard-bytes %s: must be above 0", o->shard);
    }
    ECH_TRY(file_type_of(o, &l, &unused)); /* before anything is read */
    ECH_TRY(ech_cli_check_path(o->from));
    if (o->tokenizer)
        ECH_TRY(ech_cli_check_path(o->tokenizer));
    ech_status st = load(o->from, &l);
    if (st == ECH_OK)
        st = write_copy(o, &l, shard_bytes);
    if (st == ECH_OK)
        st = say_copied(o, &l);
    loaded_fini(&l);
    return st;
}

/* Import and export are one thing: whatever holds a model becomes an HF folder. */
static ech_status run_copy(int argc, char **argv)
{
    copy_options o = {0};
    ech_opt_list words = {0};
    const ech_opt opts[] = {{"out", ECH_OPT_STRING, &o.out},
                            {"tokenizer", ECH_OPT_STRING, &o.tokenizer},
                            {"dtype", ECH_OPT_STRING, &o.dtype},
                            {"shard-bytes", ECH_OPT_STRING, &o.shard}};
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof *opts, &words);
    if (st == ECH_OK && words.n == 2 && !o.out)
        o.out = words.item[1];
    else if (st == ECH_OK && (words.n != 1 || !o.out))
        st = ECH_RAISE(ECH_E_USAGE,
                       "ckpt %s needs one source and a folder: SOURCE DIR, or SOURCE --out DIR",
                       argv[0]);
    if (st == ECH_OK) {
        o.from = words.item[0];
        st = copy_model(&o);
    }
    ech_opt_list_fini(&words);
    return st;
}

/* --- show --- */

static void format_shape(const ech_st_tensor *t, ech_text *out)
{
    ech_text_add(out, "[");
    for (int i = 0; i < t->rank; i++)
        ech_text_add(out, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    ech_text_add(out, "]");
}

static ech_status show_plain(const ech_st_set *set)
{
    ech_text text = {0};
    char size[32];
    int64_t elems = 0;
    int64_t bytes = 0;
    for (int64_t i = 0; i < ech_st_set_count(set); i++) {
        const ech_st *file;
        const ech_st_tensor *t = ech_st_set_at(set, i, &file);
        ech_text_add(&text, "%-56s %-8s ", t->name, ech_st_dtype_name(t->dtype));
        format_shape(t, &text);
        ech_text_add(&text, "\n");
        elems += t->elems;
        bytes += t->bytes;
    }
    ech_text_add(&text, "%" PRId64 " tensors, %" PRId64 " elements, %s\n", ech_st_set_count(set),
                 elems, ech_format_bytes((double)bytes, size, sizeof size));
    return ech_cli_print(&text);
}

static void add_json_tensor(ech_jout *j, const ech_st_tensor *t, const ech_st *file)
{
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "name", t->name);
    ech_jout_string(j, "dtype", ech_st_dtype_name(t->dtype));
    ech_jout_open(j, "shape", '[');
    for (int i = 0; i < t->rank; i++)
        ech_jout_int(j, NULL, t->dim[i]);
    ech_jout_close(j);
    ech_jout_string(j, "file", ech_st_path(file));
    ech_jout_int(j, "offset", t->offset);
    ech_jout_int(j, "bytes", t->bytes);
    ech_jout_close(j);
}

static ech_status show_json(const ech_st_set *set)
{
    ech_jout j = {0};
    int64_t elems = 0;
    int64_t bytes = 0;
    ech_jout_open(&j, NULL, '{');
    ech_jout_open(&j, "tensors", '[');
    for (int64_t i = 0; i < ech_st_set_count(set); i++) {
        const ech_st *file;
        const ech_st_tensor *t = ech_st_set_at(set, i, &file);
        add_json_tensor(&j, t, file);
        elems += t->elems;
        bytes += t->bytes;
    }
    ech_jout_close(&j);
    ech_jout_int(&j, "elements", elems);
    ech_jout_int(&j, "bytes", bytes);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

static ech_status show(const char *path, bool as_json)
{
    ech_st_set *set = NULL;
    bool is_own = false;
    ECH_TRY(ech_cli_check_path(path));
    ECH_TRY(ech_ckpt_own_is(path, &is_own));
    if (is_own)
        return ech_ckpt_own_show(path, as_json);
    ECH_CHECK(!ech_has_suffix(path, ".bin"), ECH_E_UNSUPPORTED,
              "%s: only safetensors are shown; ckpt import makes them of llama2.c's file", path);
    ECH_TRY(ech_st_set_open(path, &set));
    const ech_status st = as_json ? show_json(set) : show_plain(set);
    ech_st_set_close(&set);
    return st;
}

static ech_status run_show(int argc, char **argv)
{
    bool as_json = false;
    ech_opt_list words = {0};
    const ech_opt opts[] = {{"json", ECH_OPT_FLAG, &as_json}};
    ech_status st = ech_opt_parse(argc, argv, opts, 1, &words);
    if (st == ECH_OK && words.n != 1)
        st = ECH_RAISE(ECH_E_USAGE, "ckpt show needs one folder or file");
    if (st == ECH_OK)
        st = show(words.item[0], as_json);
    ech_opt_list_fini(&words);
    return st;
}

/* --- the command --- */

static const struct {
    const char *name;
    ech_status (*run)(int argc, char **argv); /* NULL: in the specification, not built yet */
} actions[] = {{"import", run_copy},
               {"export", run_copy},
               {"show", run_show},
               {"ls", ech_ckpt_own_ls},
               {"verify", ech_ckpt_own_verify},
               {"diff", NULL},
               {"prune", NULL}};
enum { N_ACTIONS = sizeof actions / sizeof *actions };

static ech_status run_action(int argc, char **argv)
{
    const char *names[N_ACTIONS];
    ECH_CHECK(argc > 1, ECH_E_USAGE, "ckpt needs one of ls, show, verify, export, import");
    for (size_t i = 0; i < N_ACTIONS; i++) {
        names[i] = actions[i].name;
        if (strcmp(argv[1], actions[i].name) != 0)
            continue;
        ECH_CHECK(actions[i].run, ECH_E_UNSUPPORTED, "ckpt %s is not built yet", argv[1]);
        return actions[i].run(argc - 1, argv + 1);
    }
    const char *near = ech_nearest_name(argv[1], names, N_ACTIONS);
    return ECH_RAISE(ECH_E_USAGE, "ckpt has no '%s'%s%s%s", argv[1], near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
}

static int cmd_ckpt(int argc, char **argv)
{
    return ech_cli_fail(run_action(argc, argv));
}

const ech_command ech_command_ckpt = {
    "ckpt",
    "checkpoints: list, show, verify, export; model folders in and out",
    "Usage: echelon ckpt ls DIR [--json]\n"
    "       echelon ckpt show DIR|FILE [--json]\n"
    "       echelon ckpt verify DIR [--json]\n"
    "       echelon ckpt export|import SOURCE DIR [OPTIONS]\n"
    "       echelon ckpt export|import SOURCE --out DIR [OPTIONS]\n"
    "\n"
    "ls lists the checkpoints of a folder, newest first: step, run, bytes, time, layout, and "
    "whether\n"
    "manifest and files are whole.  show tells what is in a checkpoint (of a folder with several: "
    "the\n"
    "newest that is whole) or in safetensors.  verify reads every byte of a checkpoint, or of all "
    "in a\n"
    "folder, and compares every hash; a fault names tensor and rank, exit status 1.\n"
    "\n"
    "export and import write SOURCE (a checkpoint, a folder with checkpoints, a Hugging Face "
    "folder,\n"
    "or llama2.c's legacy .bin) as a Hugging Face folder: config.json, model.safetensors (or "
    "shards\n"
    "with their index), tokenizer.  The folder appears whole or not at all; one that holds a model "
    "is\n"
    "replaced.\n"
    "\n"
    "  --out DIR           where the folder will stand\n"
    "  --tokenizer FILE    tokenizer.json, encoder.json, vocab.json, llama2.c's .bin, or a folder\n"
    "                      with one; default: that of SOURCE, if it has one\n"
    "  --dtype TYPE        fp64, fp32, bf16 or fp16; default: that of SOURCE\n"
    "  --shard-bytes SIZE  largest weight file, as 5GB (the default)\n"
    "\n"
    "diff and prune are not built yet.\n",
    cmd_ckpt,
};
