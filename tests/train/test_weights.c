/* RUN: np=1 timeout=30 tags=fast */
/* Trained weights by path: which folder is meant, which type they are run in, what is refused. */
#include "check.h"
#include "folder.h"
#include "tiny.h"

#include "base/checked.h"
#include "base/io.h"
#include "train/init.h"
#include "train/state.h"
#include "train/weights.h"

#include <stdlib.h>

/* An HF folder of random fp64 weights, written as `type`. */
static void write_folder(const char *dir, uint64_t seed, ech_dtype type)
{
    const ech_model m = tiny_model(TINY_GPT2, 0.0);
    const ech_hf_folder_spec spec = {.file_dtype = type};
    ech_canon c = {0};
    void *flat = NULL;
    void **param = NULL;
    assert_ok(ech_canon_create(&m, &c));
    assert_ok(ech_calloc((size_t)c.elems, sizeof(double), &flat));
    tiny_init_model(&m, &c, seed, ECH_F64, flat);
    assert_ok(ech_hf_flat_params(&c, ECH_F64, flat, &param));
    const ech_hf_values values = {ECH_F64, param};
    assert_ok(ech_hf_folder_write(dir, &m, &c, &values, &spec));
    free(param);
    free(flat);
    ech_canon_fini(&c);
}

/* What is at path equals the weights of a seed, rounded to `type`. */
static void check_values(const char *path, uint64_t seed, ech_dtype type)
{
    ech_weights w = {0};
    double *got;
    double *want;
    assert_ok(ech_weights_open(path, &w));
    const ech_canon *c = &w.folder.canon;
    const ech_dtype real = ech_weights_real(&w);
    assert_false(w.is_llama2c);
    assert_int_equal(w.file_type, type);
    assert_int_equal(real, type == ECH_F64 ? ECH_F64 : ECH_F32);
    assert_ok(ech_calloc((size_t)c->elems, sizeof *got, &got));
    assert_ok(ech_calloc((size_t)c->elems, sizeof *want, &want));
    assert_ok(ech_weights_read(&w, real, got));
    tiny_init_model(&w.folder.model, c, seed, ECH_F64, want);
    for (int64_t i = 0; i < c->elems; i++) {
        double rounded;
        ech_dtype_store(type, &rounded, 0, want[i]);
        rounded = ech_dtype_load(type, &rounded, 0);
        assert_near(ech_dtype_load(real, got, (size_t)i), rounded, 0.0);
    }
    free(got);
    free(want);
    ech_weights_close(&w);
}

/* A checkpoint of three virtual ranks, its parameters those of a seed. */
static void save_checkpoint(const char *dir, int64_t step, int64_t generation, uint64_t seed,
                            ech_dtype type)
{
    tiny_spec spec = tiny_spec_default();
    tiny_run run;
    ech_ckpt_saved saved;
    void *flat = NULL;
    const ech_state_spec what = {.dir = dir, .run = {.step = step, .generation = generation}};
    spec.kind = TINY_GPT2;
    spec.tp = 3;
    spec.real = type;
    tiny_start(&spec, &run);
    assert_ok(ech_calloc((size_t)run.session->canon.elems, sizeof(double), &flat));
    tiny_init_model(&run.session->model, &run.session->canon, seed, type, flat);
    for (int i = 0; i < run.world; i++)
        tiny_set_params(run.session, i, flat);
    assert_ok(ech_state_save(run.session, &what, &saved));
    free(flat);
    tiny_stop(&run);
}

static void test_the_newest_checkpoint_of_a_folder(void **state)
{
    ech_weights w = {0};
    save_checkpoint(in_folder(state, "ckpt"), 9, 2, 1, ECH_F32);
    save_checkpoint(in_folder(state, "ckpt"), 20, 2, 2, ECH_F64);
    save_checkpoint(in_folder(state, "ckpt"), 100, 1, 3, ECH_F32); /* of a run before */
    check_values(in_folder(state, "ckpt"), 2, ECH_F64);
    check_values(in_folder(state, "ckpt/step-00000009"), 1, ECH_F32);
    assert_ok(ech_weights_open(in_folder(state, "ckpt"), &w));
    assert_string_equal(w.path, in_folder(state, "ckpt/step-00000020"));
    ech_weights_close(&w);
}

static void test_types(void **state)
{
    static const ech_dtype types[] = {ECH_F64, ECH_F32, ECH_BF16, ECH_F16};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        write_folder(in_folder(state, "typed"), 4, types[i]);
        check_values(in_folder(state, "typed"), 4, types[i]);
    }
}

static void test_refusals(void **state)
{
    ech_weights w = {0};
    assert_fails(ech_weights_open(in_folder(state, "none"), &w), ECH_E_IO, "does not exist");
    assert_ok(ech_make_folders(in_folder(state, "empty")));
    assert_fails(ech_weights_open(in_folder(state, "empty"), &w), ECH_E_IO,
                 "holds neither a model nor a checkpoint");
    write_folder(in_folder(state, "damaged"), 1, ECH_F32);
    assert_ok(ech_write_whole(in_folder(state, "damaged/model.safetensors"), "12345678", 8));
    assert_fails(ech_weights_open(in_folder(state, "damaged"), &w), ECH_E_CORRUPT,
                 "model.safetensors");
    assert_ok(ech_write_whole(in_folder(state, "text.bin"), "12345678", 8));
    assert_fails(ech_weights_open(in_folder(state, "text.bin"), &w), ECH_E_CORRUPT, "text.bin");
    assert_null(w.folder.set);
    assert_string_equal(w.path, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_checkpoint_of_a_folder),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
