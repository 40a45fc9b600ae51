/* RUN: np=1 timeout=20 tags=fast */
/* A trained model with grouped queries, from llama2.c's file through an HF folder and back.  What
 * it says is tested with generate; fixtures/stories260k_greedy.json holds the answer. */
#include "check.h"
#include "fixture.h"
#include "folder.h"

#include "base/checked.h"
#include "base/io.h"
#include "storage/hf_folder.h"
#include "storage/llama2c.h"

#include <stdlib.h>

static char source[512]; /* llama2.c's file */

static void test_import_is_bit_equal_after_export(void **state)
{
    const ech_hf_folder_spec spec = {.file_dtype = ECH_F32, .max_shard_bytes = 300000};
    ech_model m;
    ech_canon c = {0};
    ech_hf_folder back = {0};
    void *flat = NULL;
    void *again = NULL;
    void **param = NULL;
    assert_ok(ech_llama2c_model(source, &m));
    assert_ok(ech_canon_create(&m, &c));
    assert_ok(ech_calloc((size_t)c.elems, sizeof(float), &flat));
    assert_ok(ech_hf_flat_params(&c, ECH_F32, flat, &param));
    assert_ok(ech_llama2c_read(source, &m, &c, param));
    const ech_hf_values values = {ECH_F32, param};
    assert_ok(ech_hf_folder_write(in_folder(state, "hf"), &m, &c, &values, &spec));
    assert_ok(ech_hf_folder_read(in_folder(state, "hf"), ECH_F32, &back, &again));
    assert_int_equal(ech_st_set_count(back.set), 2 + 9 * 5);
    assert_int_equal(c.elems, 260032);
    assert_memory_equal(flat, again, (size_t)c.elems * sizeof(float));
    ech_hf_folder_fini(&back);
    ech_canon_fini(&c);
    free(flat);
    free(again);
    free(param);
}

/* Queries and keys differ from the file by the rows' order, and by nothing else. */
static void test_rotary_rows_of_the_export(void **state)
{
    enum { H = 64, D = 8, LAYERS = 5, VOCAB = 512 };
    const ech_hf_folder_spec spec = {.file_dtype = ECH_F32};
    const int64_t wq = 28 + 4 * (VOCAB * H + LAYERS * H); /* byte of layer 0's wq in the file */
    ech_model m;
    ech_canon c = {0};
    ech_st_set *set = NULL;
    const ech_st *file = NULL;
    ech_file *raw = NULL;
    void *flat = NULL;
    void **param = NULL;
    float in[H * H];
    float out[H * H];
    assert_ok(ech_llama2c_model(source, &m));
    assert_ok(ech_canon_create(&m, &c));
    assert_ok(ech_calloc((size_t)c.elems, sizeof(float), &flat));
    assert_ok(ech_hf_flat_params(&c, ECH_F32, flat, &param));
    assert_ok(ech_llama2c_read(source, &m, &c, param));
    const ech_hf_values values = {ECH_F32, param};
    assert_ok(ech_hf_folder_write(in_folder(state, "rows"), &m, &c, &values, &spec));
    assert_ok(ech_st_set_open(in_folder(state, "rows"), &set));
    const ech_st_tensor *q = ech_st_set_find(set, "model.layers.0.self_attn.q_proj.weight", &file);
    assert_ok(ech_st_read(file, q, 0, H * H, ECH_F32, out));
    assert_ok(ech_file_open(source, &raw));
    assert_ok(ech_file_read_at(raw, in, sizeof in, wq));
    for (int head = 0; head < H / D; head++)
        for (int e = 0; e < D; e++) {
            const int from = e < D / 2 ? 2 * e : 2 * (e - D / 2) + 1;
            assert_memory_equal(out + (head * D + e) * H, in + (head * D + from) * H,
                                H * sizeof(float));
        }
    ech_file_close(&raw);
    ech_st_set_close(&set);
    ech_canon_fini(&c);
    free(flat);
    free(param);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_import_is_bit_equal_after_export),
        cmocka_unit_test(test_rotary_rows_of_the_export),
    };
    (void)snprintf(source, sizeof source, "%s", shared_path("data/stories260K/stories260K.bin"));
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
