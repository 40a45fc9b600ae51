/* RUN: np=1 timeout=60 tags=fast */
/* Saved on one layout, loaded on another: every pair, element by element, and not a byte more read
 * than is wanted. */
#include "check.h"
#include "ckpt_case.h"
#include "folder.h"

#include "base/io.h"

#include <stdlib.h>

static int64_t bytes_read;

static int count_reads(const char *op, const char *path, int64_t bytes, void *user)
{
    (void)user;
    if (!strcmp(op, "read") && strstr(path, "/rank-"))
        bytes_read += bytes;
    return 0;
}

/* tp 1..3, shards 1..4, sequence parallel or not: layout i of N_LAYOUTS. */
enum { N_LAYOUTS = 3 * 4 * 2 };

static ckpt_layout layout_at(int i)
{
    return (ckpt_layout){i % 3 + 1, i / 3 % 4 + 1, 1, i / 12 == 1};
}

static void test_all_pairs(void **state)
{
    for (int kind = 0; kind < N_CKPT_MODELS; kind++) {
        ckpt_model m;
        ckpt_model_make(kind, &m);
        for (int a = 0; a < N_LAYOUTS; a++) {
            const ckpt_save_spec spec = {.model = &m,
                                         .layout = layout_at(a),
                                         .dtype = ECH_F32,
                                         .step = kind * N_LAYOUTS + a,
                                         .generation = 1,
                                         .n_classes = a % 5 == 0 ? 3 : 1};
            ech_ckpt_saved saved;
            ech_ckpt *c = NULL;
            assert_ok(ckpt_save(in_folder(state, "all"), &spec, &saved));
            assert_ok(ech_ckpt_open(saved.path, &c));
            for (int b = 0; b < N_LAYOUTS; b++) {
                const ckpt_layout to = layout_at(b);
                bytes_read = 0;
                ech_io_set_hook(count_reads, NULL);
                const int64_t wanted = ckpt_load_and_compare(c, &spec, &to, ECH_F32);
                ech_io_set_hook(NULL, NULL);
                assert_int_equal(bytes_read, wanted);
            }
            assert_ok(ech_ckpt_check_model(c, &m.m, &m.c));
            ech_ckpt_close(&c);
        }
        ckpt_model_drop(&m);
    }
}

/* fp32 <-> fp64; values are exact in both. */
static void test_other_precision(void **state)
{
    static const ech_dtype types[2][2] = {{ECH_F32, ECH_F64}, {ECH_F64, ECH_F32}};
    ckpt_model m;
    ckpt_model_make(CKPT_LLAMA, &m);
    for (int i = 0; i < 2; i++) {
        const ckpt_save_spec spec = {.model = &m,
                                     .layout = {3, 2, 2, true},
                                     .dtype = types[i][0],
                                     .step = i,
                                     .generation = 1,
                                     .n_classes = 3};
        const ckpt_layout to = {2, 3, 1, false};
        ech_ckpt_saved saved;
        ech_ckpt *c = NULL;
        assert_ok(ckpt_save(in_folder(state, "types"), &spec, &saved));
        assert_ok(ech_ckpt_open(saved.path, &c));
        (void)ckpt_load_and_compare(c, &spec, &to, types[i][1]);
        assert_ok(ech_ckpt_verify(c, NULL, NULL));
        ech_ckpt_close(&c);
    }
    ckpt_model_drop(&m);
}

/* Rounded once to nearest on the way down, unchanged on the way up. */
static void test_rounding(void **state)
{
    const double in[4] = {1.0 + 0x1p-30, -3.7, 1e-60, 2.5};
    float out[4];
    double same[4];
    ckpt_model m;
    ckpt_model_make(CKPT_GPT2, &m);
    const ckpt_save_spec spec = {.model = &m,
                                 .layout = {1, 1, 1, false},
                                 .dtype = ECH_F64,
                                 .step = 1,
                                 .generation = 1,
                                 .n_classes = 1};
    ech_shard_plan plan;
    char tmp[4096];
    ech_ckpt_saved saved;
    ech_ckpt_writer *w = NULL;
    ech_ckpt *c = NULL;
    void *slab[8] = {0};
    const ech_dtype none = ECH_N_DTYPES;
    const char *dir = in_folder(state, "round");
    ckpt_plan(&m, &spec.layout, &plan);
    assert_ok(ech_ckpt_begin(dir, 1, tmp, sizeof tmp));
    assert_ok(ech_ckpt_writer_create(&m.m, &m.c, 0, &w));
    for (int u = 0; u < m.c.n_units; u++) {
        const int64_t n = ech_shard_unit_of(&plan, u)->part[ECH_PART_CUT].elems;
        const ech_ckpt_span span = {&plan, 0, u, ECH_PART_CUT, 0, n};
        slab[u] = ckpt_slab(&m, &plan, 0, u, ECH_PART_CUT, ECH_CKPT_PARAMS, ECH_F64, 0);
        if (u == 1)
            memcpy(slab[u], in, sizeof in);
        assert_ok(ech_ckpt_writer_add(w, ECH_CKPT_PARAMS, ECH_F64, &span, slab[u]));
    }
    assert_ok(ech_ckpt_writer_write(w, tmp));
    const ech_ckpt_head head = {.run = {.step = 1, .generation = 1},
                                .layout = {1, 1, 1, 1, 1, 1, false},
                                .model = &m.m,
                                .canon = &m.c,
                                .dtype = {ECH_F64, none, none, none}};
    assert_ok(ech_ckpt_publish(dir, tmp, &head, &saved));
    assert_int_equal(saved.bytes, ech_ckpt_writer_bytes(w));
    assert_ok(ech_ckpt_open(saved.path, &c));
    const ech_ckpt_span four = {&plan, 0, 1, ECH_PART_CUT, 0, 4};
    assert_ok(ech_ckpt_read_span(c, ECH_CKPT_PARAMS, &four, ECH_F32, out));
    assert_ok(ech_ckpt_read_span(c, ECH_CKPT_PARAMS, &four, ECH_F64, same));
    for (int i = 0; i < 4; i++) {
        assert_true(out[i] == (float)in[i]);
        assert_true(same[i] == in[i]);
    }
    assert_fails(ech_ckpt_read_span(c, ECH_CKPT_MOMENT_V, &four, ECH_F32, out), ECH_E_CONFIG,
                 "no moment_v were saved");
    ech_ckpt_close(&c);
    ech_ckpt_writer_destroy(&w);
    for (int u = 0; u < m.c.n_units; u++)
        free(slab[u]);
    ckpt_model_drop(&m);
}

/* Tensors above the largest piece, cut by columns: several pieces, gathered, from several ranks. */
static void test_large_pieces(void **state)
{
    ckpt_model m = {.m = ech_model_default(ECH_ARCH_LLAMA)};
    m.m.layers = 1;
    m.m.heads = m.m.kv_heads = 2;
    m.m.head_dim = 4;
    m.m.hidden = 1024;
    m.m.ffn = 4301;
    m.m.vocab = 5;
    m.m.context = 4;
    assert_ok(ech_canon_create(&m.m, &m.c));
    const ckpt_save_spec spec = {.model = &m,
                                 .layout = {2, 1, 1, false},
                                 .dtype = ECH_F64,
                                 .step = 1,
                                 .generation = 1,
                                 .n_classes = 1};
    const ckpt_layout to = {1, 2, 1, false};
    ech_ckpt_saved saved;
    ech_ckpt *c = NULL;
    int64_t longest = 0;
    int64_t pieces_of_down = 0;
    assert_ok(ckpt_save(in_folder(state, "large"), &spec, &saved));
    assert_ok(ech_ckpt_open(saved.path, &c));
    const ech_ckpt_manifest *man = ech_ckpt_manifest_of(c);
    for (int64_t i = 0; i < man->n_pieces; i++) {
        const ech_ckpt_piece *p = &man->piece[i];
        longest = p->range.n > longest ? p->range.n : longest;
        pieces_of_down += !strcmp(man->tensor[p->tensor].name, "layers.0.mlp.down.weight");
    }
    assert_int_equal(longest * 8, ECH_CKPT_PIECE_BYTES);
    assert_int_equal(pieces_of_down, 4); /* 1024 x 2151 x 8 bytes: two on each rank */
    bytes_read = 0;
    ech_io_set_hook(count_reads, NULL);
    const int64_t wanted = ckpt_load_and_compare(c, &spec, &to, ECH_F64);
    ech_io_set_hook(NULL, NULL);
    assert_int_equal(bytes_read, wanted);
    ech_ckpt_close(&c);
    ckpt_model_drop(&m);
}

/* What stands in the manifest is what was given, and the model comes back. */
static void test_head(void **state)
{
    ckpt_model m;
    ech_model back;
    ech_canon canon;
    ech_ckpt_saved saved;
    ech_ckpt *c = NULL;
    ckpt_model_make(CKPT_LLAMA, &m);
    const ckpt_save_spec spec = {.model = &m,
                                 .layout = {2, 2, 2, true},
                                 .dtype = ECH_F32,
                                 .step = 123,
                                 .generation = 7,
                                 .n_classes = 3};
    assert_ok(ckpt_save(in_folder(state, "head"), &spec, &saved));
    assert_true(strstr(saved.path, "/head/step-00000123") != NULL);
    assert_ok(ech_ckpt_open(saved.path, &c));
    const ech_ckpt_manifest *man = ech_ckpt_manifest_of(c);
    assert_int_equal(man->run.step, 123);
    assert_int_equal(man->run.generation, 7);
    assert_int_equal(man->run.samples, 984);
    assert_int_equal(man->run.seed, 42);
    assert_true(man->run.lr == 3e-4 && man->run.loss_scale == 1.0 && man->run.is_interleaved);
    assert_int_equal(man->layout.world, 8);
    assert_int_equal(man->layout.replicas, 2);
    assert_true(man->layout.is_sequence_parallel);
    assert_string_equal(man->config, "{\"note\": \"made up {\\\"}\"}");
    assert_int_equal(ech_ckpt_bytes(c), saved.bytes);
    /* vocabulary padding is not written: 3 classes of every HF element */
    ech_param_count count;
    assert_ok(ech_model_count(&m.m, &count));
    assert_int_equal(saved.bytes, 3 * 4 * count.total);
    assert_ok(ech_ckpt_model(c, &back, &canon));
    assert_int_equal(back.kv_heads, 2);
    assert_true(back.rope.interleaved);
    assert_int_equal(canon.elems, m.c.elems);
    ech_canon_fini(&canon);
    float *table = NULL;
    const int64_t elems = man->tensor[0].elems;
    assert_int_equal(elems, 133 * 12);
    table = calloc((size_t)elems, sizeof *table);
    assert_ok(ech_ckpt_read_tensor(c, ECH_CKPT_MOMENT_V, 0, ECH_F32, table));
    for (int64_t e = 0; e < elems; e++)
        assert_true((double)table[e] == ckpt_value(&m, ECH_CKPT_MOMENT_V, 0, e, 0));
    free(table);
    ech_ckpt_close(&c);
    ckpt_model_drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pairs), cmocka_unit_test(test_other_precision),
        cmocka_unit_test(test_rounding),  cmocka_unit_test(test_large_pieces),
        cmocka_unit_test(test_head),
    };
    return cmocka_run_group_tests(tests, ckpt_folder_setup, folder_teardown);
}
