/* RUN: np=1 timeout=60 tags=fast */
#include "check.h"
#include "fixture.h"
#include "folder.h"

#include "base/checked.h"
#include "base/io.h"
#include "storage/hf_folder.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A small Llama; every weight holds `mark`. */
typedef struct fixture {
    ech_model m;
    ech_canon c;
    float *flat;
    void **param;
    ech_hf_values values;
} fixture;

static fixture fixture_make(float mark)
{
    fixture f = {.m = ech_model_default(ECH_ARCH_LLAMA)};
    f.m.layers = 2;
    f.m.hidden = 12;
    f.m.heads = 4;
    f.m.kv_heads = 2;
    f.m.head_dim = 4;
    f.m.ffn = 14;
    f.m.vocab = 130;
    f.m.context = 9;
    assert_ok(ech_canon_create(&f.m, &f.c));
    assert_ok(ech_calloc((size_t)f.c.elems, sizeof *f.flat, &f.flat));
    assert_ok(ech_hf_flat_params(&f.c, ECH_F32, f.flat, &f.param));
    for (int64_t i = 0; i < f.c.elems; i++)
        f.flat[i] = mark;
    f.values = (ech_hf_values){ECH_F32, f.param};
    return f;
}

static void fixture_drop(fixture *f)
{
    ech_canon_fini(&f->c);
    free(f->flat);
    free(f->param);
}

static const ech_hf_folder_spec plain = {.file_dtype = ECH_F32};

static ech_status write_marked(const char *dir, float mark, const ech_hf_folder_spec *spec)
{
    fixture f = fixture_make(mark);
    const ech_status st = ech_hf_folder_write(dir, &f.m, &f.c, &f.values, spec);
    fixture_drop(&f);
    return st;
}

/* The mark of a whole, readable folder. */
static float mark_of(const char *dir)
{
    ech_hf_folder f = {0};
    void *weights = NULL;
    assert_ok(ech_hf_folder_read(dir, ECH_F32, &f, &weights));
    assert_int_equal(f.model.vocab, 130);
    const float *w = weights;
    const float mark = w[0];
    for (int i = 0; i < f.canon.n_params; i++) {
        const ech_param *p = &f.canon.param[i];
        const bool padded = p->kind == ECH_PARAM_TOKEN_EMBED || p->kind == ECH_PARAM_HEAD;
        for (int64_t e = 0; e < p->elems; e++)
            assert_true(w[p->offset + e] == (padded && e >= 130 * 12 ? 0.0F : mark));
    }
    free(weights);
    ech_hf_folder_fini(&f);
    return mark;
}

static void test_exported_rows_are_the_vocabulary(void **state)
{
    const char *dir = in_folder(state, "rows");
    ech_st_set *set = NULL;
    const ech_st *file = NULL;
    assert_ok(write_marked(dir, 1.0F, &plain));
    assert_int_equal(folder_count(dir), 2); /* config.json, model.safetensors */
    assert_ok(ech_st_set_open(dir, &set));
    assert_int_equal(ech_st_set_find(set, "model.embed_tokens.weight", &file)->dim[0], 130);
    assert_int_equal(ech_st_set_find(set, "lm_head.weight", &file)->dim[0], 130);
    assert_string_equal(ech_st_metadata(file, "format"), "pt");
    ech_st_set_close(&set);
}

static void test_tokenizer_and_shards(void **state)
{
    const char *dir = in_folder(state, "deep/er/sharded");
    const char *tokenizer = in_folder(state, "tok512.bin");
    const ech_hf_folder_spec spec = {
        .file_dtype = ECH_F32, .max_shard_bytes = 4000, .tokenizer = tokenizer};
    char *text = NULL;
    size_t bytes = 0;
    assert_ok(ech_write_whole(tokenizer, "tok\0x", 5));
    assert_ok(write_marked(dir, 2.0F, &spec));
    assert_true(folder_count(dir) > 5);
    assert_true(mark_of(dir) == 2.0F);
    assert_ok(
        ech_read_whole(in_folder(state, "deep/er/sharded/tokenizer.bin"), 100, &text, &bytes));
    assert_int_equal(bytes, 5);
    assert_memory_equal(text, "tok\0x", 5);
    free(text);
}

/* From a file or a folder, under the names that readers look for, with what belongs to it. */
static void test_tokenizer_names(void **state)
{
    static const struct {
        const char *from, *file, *beside;
        const char *wanted[2];
    } row[] = {
        {"t1/tok.json",
         "t1/tok.json",
         "t1/tokenizer_config.json",
         {"tokenizer.json", "tokenizer_config.json"}},
        {"t2/encoder.json", "t2/encoder.json", "t2/vocab.bpe", {"encoder.json", "vocab.bpe"}},
        {"t3", "t3/vocab.json", "t3/merges.txt", {"vocab.json", "merges.txt"}},
        {"t4", "t4/tokenizer.bin", "t4/notes.txt", {"tokenizer.bin", NULL}},
        {"t5/x.bin", "t5/x.bin", "t5/tokenizer_config.json", {"tokenizer.bin", NULL}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char from[512];
        (void)snprintf(from, sizeof from, "%s", in_folder(state, row[i].from));
        const ech_hf_folder_spec spec = {.file_dtype = ECH_F32, .tokenizer = from};
        char parent[512];
        assert_ok(ech_path_folder(in_folder(state, row[i].file), parent, sizeof parent));
        assert_ok(ech_make_folders(parent));
        assert_ok(ech_write_whole(in_folder(state, row[i].file), "x", 1));
        assert_ok(ech_write_whole(in_folder(state, row[i].beside), "y", 1));
        assert_ok(write_marked(in_folder(state, "named"), 1.0F, &spec));
        int n = 2;
        for (int k = 0; k < 2 && row[i].wanted[k]; k++, n++) {
            char name[64];
            char *text = NULL;
            size_t bytes = 0;
            (void)snprintf(name, sizeof name, "named/%s", row[i].wanted[k]);
            assert_ok(ech_read_whole(in_folder(state, name), 9, &text, &bytes));
            assert_string_equal(text, k ? "y" : "x");
            free(text);
        }
        assert_int_equal(folder_count(in_folder(state, "named")), n);
    }
    ech_hf_folder_spec none = {.file_dtype = ECH_F32, .tokenizer = in_folder(state, "t6")};
    assert_ok(ech_make_folders(in_folder(state, "t6")));
    assert_fails(write_marked(in_folder(state, "none"), 1.0F, &none), ECH_E_IO, "no tokenizer");
    none.tokenizer_is_optional = true;
    assert_ok(write_marked(in_folder(state, "none"), 1.0F, &none));
}

static void test_replaces_a_model_and_nothing_else(void **state)
{
    const char *dir = in_folder(state, "replace");
    const ech_hf_folder_spec shards = {.file_dtype = ECH_F32, .max_shard_bytes = 4000};
    assert_ok(write_marked(dir, 1.0F, &shards));
    assert_ok(write_marked(in_folder(state, "replace/"), 2.0F, &plain)); /* with a slash too */
    assert_int_equal(folder_count(dir), 2);
    assert_true(mark_of(dir) == 2.0F);
    assert_ok(ech_write_whole(in_folder(state, "replace/thesis.tex"), "x", 1));
    assert_fails(write_marked(dir, 3.0F, &plain), ECH_E_ILLEGAL, "holds 'thesis.tex'");
    assert_true(mark_of(dir) == 2.0F);
    assert_ok(ech_write_whole(in_folder(state, "file"), "x", 1));
    assert_fails(write_marked(in_folder(state, "file"), 3.0F, &plain), ECH_E_ILLEGAL, "no folder");
    assert_fails(write_marked(in_folder(state, "no-tok"), 1.0F,
                              &(ech_hf_folder_spec){.file_dtype = ECH_F32, .tokenizer = "/none"}),
                 ECH_E_IO, "/none");
    assert_false(ech_path_exists(in_folder(state, "no-tok")));
}

/* --- the N-th file operation fails or kills, N = 1, 2, ... --- */

static int act_at;
static int ops;
static bool is_killer;

static int hook(const char *op, const char *path, int64_t bytes, void *user)
{
    (void)path;
    (void)bytes;
    (void)user;
    if (!is_killer && (!strcmp(op, "unlink") || !strcmp(op, "rmdir") || !strcmp(op, "list") ||
                       !strcmp(op, "stat")))
        return 0; /* cleaning up is not under test here */
    if (++ops != act_at)
        return 0;
    if (is_killer)
        (void)raise(SIGKILL);
    return -ENOSPC;
}

static void test_every_operation_may_fail(void **state)
{
    const char *dir = in_folder(state, "faulty/model");
    const char *parent = in_folder(state, "faulty");
    ech_status st;
    assert_ok(write_marked(dir, 1.0F, &plain));
    is_killer = false;
    act_at = 0;
    do {
        act_at++;
        ops = 0;
        ech_io_set_hook(hook, NULL);
        st = write_marked(dir, 2.0F, &plain);
        ech_io_set_hook(NULL, NULL);
        const float mark = mark_of(dir);
        assert_true(mark == 1.0F || mark == 2.0F);
        if (st == ECH_OK)
            assert_true(mark == 2.0F);
        else if (mark == 1.0F)
            assert_int_equal(folder_count(parent), 1); /* no debris */
    } while (st != ECH_OK);
    assert_true(act_at > 12);
}

/* A child is killed at each operation; then a new folder is absent or whole, an old one either
 * the old or the new. */
static void test_killed_at_every_operation(void **state)
{
    const char *dir = in_folder(state, "killed/model");
    int code = -1;
    int seen[3] = {0};
    is_killer = true;
    for (int replaces = 0; replaces < 2; replaces++) {
        for (act_at = 1; code != 0; act_at++) {
            const pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                ops = 0;
                ech_io_set_hook(hook, NULL);
                _exit(write_marked(dir, 2.0F, &plain) == ECH_OK ? 0 : 3);
            }
            assert_int_equal(waitpid(child, &code, 0), child);
            assert_true(code == 0 || (WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL));
            const bool is_there = ech_path_exists(dir);
            assert_true(is_there || !replaces);
            const float mark = is_there ? mark_of(dir) : 0.0F;
            assert_true(mark == 0.0F || mark == 1.0F || mark == 2.0F);
            seen[(int)mark]++;
            if (mark == 2.0F && replaces)
                assert_ok(write_marked(dir, 1.0F, &plain)); /* the old one again */
        }
        if (!replaces)
            assert_ok(write_marked(dir, 1.0F, &plain));
        code = -1;
    }
    assert_true(seen[0] > 5 && seen[1] > 5 && seen[2] > 1);
}

/* --- reading --- */

static void test_config_against_weights(void **state)
{
    const char *dir = in_folder(state, "mismatch");
    fixture f = fixture_make(1.0F);
    ech_text text = {0};
    ech_hf_folder out = {0};
    assert_ok(write_marked(dir, 1.0F, &plain));
    f.m.ffn = 16;
    f.m.layers = 3;
    assert_ok(ech_model_to_hf(&f.m, NULL, &text));
    assert_ok(ech_write_whole(in_folder(state, "mismatch/config.json"), text.data, text.bytes));
    assert_fails(ech_hf_folder_open(dir, &out), ECH_E_CORRUPT,
                 "tensor 'model.layers.1.mlp.gate_proj.weight' has shape [14, 12], the model needs "
                 "[16, 12]");
    assert_non_null(strstr(ech_error_message(), "missing tensor 'model.layers.2.mlp.up_proj"));
    assert_null(out.set);
    ech_text_fini(&text);
    fixture_drop(&f);
}

/* The folders that PyTorch and Transformers wrote: read, written again, the same tensors bit by
 * bit. */
static void test_golden_folders(void **state)
{
    static const char *const names[] = {"gpt2", "llama", "llama3rope", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        ech_hf_folder f = {0};
        void *weights = NULL;
        void **param = NULL;
        ech_st_set *again = NULL;
        (void)snprintf(name, sizeof name, "tests/golden/%s", names[i]);
        const char *dir = fixture_path(name);
        assert_ok(ech_hf_folder_read(dir, ECH_F32, &f, &weights));
        assert_ok(ech_hf_flat_params(&f.canon, ECH_F32, weights, &param));
        const ech_hf_values values = {ECH_F32, param};
        const char *copy = in_folder(state, names[i]);
        assert_ok(ech_hf_folder_write(copy, &f.model, &f.canon, &values, &plain));
        assert_ok(ech_st_set_open(copy, &again));
        assert_int_equal(ech_st_set_count(again), ech_st_set_count(f.set));
        for (int64_t t = 0; t < ech_st_set_count(again); t++) {
            const ech_st *file[2];
            const ech_st_tensor *x = ech_st_set_at(again, t, &file[0]);
            const ech_st_tensor *y = ech_st_set_find(f.set, x->name, &file[1]);
            float *data[2];
            assert_non_null(y);
            assert_int_equal(x->rank, y->rank);
            assert_memory_equal(x->dim, y->dim, (size_t)x->rank * sizeof *x->dim);
            for (int k = 0; k < 2; k++) {
                assert_ok(ech_calloc((size_t)x->elems, sizeof(float), &data[k]));
                assert_ok(ech_st_read(file[k], k ? y : x, 0, x->elems, ECH_F32, data[k]));
            }
            assert_memory_equal(data[0], data[1], (size_t)x->bytes);
            free(data[0]);
            free(data[1]);
        }
        ech_st_set_close(&again);
        ech_hf_folder_fini(&f);
        free(weights);
        free(param);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exported_rows_are_the_vocabulary),
        cmocka_unit_test(test_tokenizer_and_shards),
        cmocka_unit_test(test_tokenizer_names),
        cmocka_unit_test(test_replaces_a_model_and_nothing_else),
        cmocka_unit_test(test_every_operation_may_fail),
        cmocka_unit_test(test_killed_at_every_operation),
        cmocka_unit_test(test_config_against_weights),
        cmocka_unit_test(test_golden_folders),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
