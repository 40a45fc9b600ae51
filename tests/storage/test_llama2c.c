/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"
#include "folder.h"

#include "base/checked.h"
#include "base/io.h"
#include "storage/hf_folder.h"
#include "storage/llama2c.h"

#include <stdlib.h>

/* --- the permutation on its own --- */

static void test_rows_to_half_split(void **state)
{
    static const float in[] = {0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15};
    static const float wanted[] = {0, 10, 2, 12, 4, 14, 1, 11, 3, 13, 5, 15};
    float out[12];
    (void)state;
    ech_rotary_to_half_split(in, 6, 2, out);
    assert_memory_equal(out, wanted, sizeof wanted);
}

/* Both orders rotate to the same scores: q.k after rotation at positions 3 and 1, by the two
 * textbook formulas. */
static void test_scores_are_the_same(void **state)
{
    enum { D = 4 };
    static const float q[D] = {0.5F, -1.25F, 2.0F, 0.75F};
    static const float k[D] = {1.5F, 0.25F, -0.5F, 3.0F};
    static const double c[2] = {0.8, 0.28}; /* cosines and sines of two angles per pair */
    static const double s[2] = {0.6, 0.96};
    float q2[D];
    float k2[D];
    double adjacent = 0.0;
    double halves = 0.0;
    (void)state;
    ech_rotary_to_half_split(q, D, 1, q2);
    ech_rotary_to_half_split(k, D, 1, k2);
    for (int i = 0; i < D / 2; i++) {
        const double a0 = q[2 * i] * c[i] - q[2 * i + 1] * s[i];
        const double a1 = q[2 * i] * s[i] + q[2 * i + 1] * c[i];
        adjacent += a0 * k[2 * i] + a1 * k[2 * i + 1];
        const double h0 = q2[i] * c[i] - q2[i + D / 2] * s[i];
        const double h1 = q2[i] * s[i] + q2[i + D / 2] * c[i];
        halves += h0 * k2[i] + h1 * k2[i + D / 2];
    }
    assert_near(halves, adjacent, 1e-15);
    assert_true(adjacent != 0.0);
}

/* --- a file in this format, made here --- */

typedef struct sizes {
    int32_t dim, hidden, layers, heads, kv_heads, vocab, context;
} sizes;

/* Value of element i of an array: its number in the upper part, its place in the lower. */
static float value(int array, int64_t i)
{
    return (float)(array * 4096 + i);
}

enum { EMBED, ATT_NORM, Q, K, V, O, FFN_NORM, GATE, DOWN, UP, NORM, COS, SIN, HEAD, N_ARRAYS };

static void array_sizes(const sizes *z, int64_t n[N_ARRAYS])
{
    const int64_t d = z->dim / z->heads;
    const int64_t L = z->layers;
    n[EMBED] = (int64_t)abs(z->vocab) * z->dim;
    n[ATT_NORM] = n[FFN_NORM] = L * z->dim;
    n[Q] = n[O] = L * z->dim * z->dim;
    n[K] = n[V] = L * z->kv_heads * d * z->dim;
    n[GATE] = n[DOWN] = n[UP] = L * z->dim * z->hidden;
    n[NORM] = z->dim;
    n[COS] = n[SIN] = z->context * d / 2;
    n[HEAD] = z->vocab < 0 ? n[EMBED] : 0;
}

static void write_file(const char *path, const sizes *z, int extra_bytes)
{
    int64_t n[N_ARRAYS];
    size_t total = sizeof *z;
    array_sizes(z, n);
    for (int a = 0; a < N_ARRAYS; a++)
        total += (size_t)n[a] * sizeof(float);
    char *data = calloc(total + 8, 1);
    assert_non_null(data);
    memcpy(data, z, sizeof *z);
    float *at = (float *)(void *)(data + sizeof *z);
    for (int a = 0; a < N_ARRAYS; a++)
        for (int64_t i = 0; i < n[a]; i++)
            *at++ = value(a, i);
    assert_ok(ech_write_whole(path, data, (size_t)((int)total + extra_bytes)));
    free(data);
}

typedef struct loaded {
    ech_model m;
    ech_canon c;
    float *flat;
    void **param;
} loaded;

static loaded load(const char *path)
{
    loaded l = {0};
    assert_ok(ech_llama2c_model(path, &l.m));
    assert_ok(ech_canon_create(&l.m, &l.c));
    assert_ok(ech_calloc((size_t)l.c.elems, sizeof *l.flat, &l.flat));
    memset(l.flat, 0xff, (size_t)l.c.elems * sizeof *l.flat);
    assert_ok(ech_hf_flat_params(&l.c, ECH_F32, l.flat, &l.param));
    assert_ok(ech_llama2c_read(path, &l.m, &l.c, l.param));
    return l;
}

static void unload(loaded *l)
{
    ech_canon_fini(&l->c);
    free(l->flat);
    free(l->param);
}

static float at(const loaded *l, ech_param_kind kind, int layer, int64_t i)
{
    return l->flat[ech_canon_find(&l->c, kind, layer)->offset + i];
}

/* Rows of q, k, v of one layer by the formula: query head j of group g is head g r + j; row s d/2 +
 * i of a rotary head is row 2i + s of the file. */
static void check_qkv(const loaded *l, const sizes *z, int layer)
{
    const int64_t d = z->dim / z->heads;
    const int64_t r = z->heads / z->kv_heads;
    int64_t n = 0;
    for (int64_t g = 0; g < z->kv_heads; g++)
        for (int64_t slot = 0; slot < r + 2; slot++)
            for (int64_t e = 0; e < d; e++)
                for (int64_t col = 0; col < z->dim; col++, n++) {
                    const int array = slot < r ? Q : slot == r ? K : V;
                    const int64_t heads = slot < r ? z->heads : z->kv_heads;
                    const int64_t head = slot < r ? g * r + slot : g;
                    const int64_t row = slot > r ? e : e < d / 2 ? 2 * e : 2 * (e - d / 2) + 1;
                    const float wanted =
                        value(array, ((layer * heads + head) * d + row) * z->dim + col);
                    assert_true(at(l, ECH_PARAM_QKV, layer, n) == wanted);
                }
}

/* A layer's plain arrays are whole and in place. */
static void check_plain(const loaded *l, ech_param_kind kind, int layer, int array, int64_t n,
                        int64_t skip)
{
    for (int64_t i = 0; i < n; i++)
        assert_true(at(l, kind, layer, skip + i) == value(array, layer * n + i));
}

static void check_tables(const loaded *l, const sizes *z)
{
    const int64_t n = (int64_t)abs(z->vocab) * z->dim;
    const int64_t padded = ech_vocab_padded(abs(z->vocab)) * z->dim;
    for (int64_t i = 0; i < padded; i++) {
        assert_true(at(l, ECH_PARAM_TOKEN_EMBED, -1, i) == (i < n ? value(EMBED, i) : 0.0F));
        if (z->vocab < 0)
            assert_true(at(l, ECH_PARAM_HEAD, -1, i) == (i < n ? value(HEAD, i) : 0.0F));
    }
    for (int64_t i = 0; i < z->dim; i++)
        assert_true(at(l, ECH_PARAM_FINAL_NORM, -1, i) == value(NORM, i));
}

static const sizes kinds[] = {
    {8, 10, 2, 2, 2, 5, 3},   /* MHA */
    {16, 12, 2, 4, 2, 5, 3},  /* GQA 4:2 */
    {12, 10, 3, 3, 1, -5, 3}, /* MQA, classifier of its own */
};

static void test_weights_land_where_they_should(void **state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const sizes *z = &kinds[i];
        write_file(in_folder(state, "model.bin"), z, 0);
        loaded l = load(in_folder(state, "model.bin"));
        assert_int_equal(l.m.tie_embeddings, z->vocab > 0);
        assert_int_equal(l.m.vocab, 5);
        assert_int_equal(l.m.kv_heads, z->kv_heads);
        assert_int_equal(l.m.head_dim, z->dim / z->heads);
        assert_true(l.m.norm_eps == 1e-5 && l.m.rope.theta == 10000.0 && !l.m.rope.interleaved);
        check_tables(&l, z);
        for (int layer = 0; layer < z->layers; layer++) {
            check_qkv(&l, z, layer);
            check_plain(&l, ECH_PARAM_ATTN_NORM, layer, ATT_NORM, z->dim, 0);
            check_plain(&l, ECH_PARAM_MLP_NORM, layer, FFN_NORM, z->dim, 0);
            check_plain(&l, ECH_PARAM_ATTN_OUT, layer, O, z->dim * z->dim, 0);
            check_plain(&l, ECH_PARAM_GATE_UP, layer, GATE, z->dim * z->hidden, 0);
            check_plain(&l, ECH_PARAM_GATE_UP, layer, UP, z->dim * z->hidden, z->dim * z->hidden);
            check_plain(&l, ECH_PARAM_DOWN, layer, DOWN, z->dim * z->hidden, 0);
        }
        unload(&l);
    }
}

/* File -> canonical -> HF folder -> canonical: the same bits. */
static void test_through_an_hf_folder(void **state)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const ech_hf_folder_spec spec = {.file_dtype = ECH_F32};
        ech_hf_folder back = {0};
        void *weights = NULL;
        write_file(in_folder(state, "model.bin"), &kinds[i], 0);
        loaded l = load(in_folder(state, "model.bin"));
        const ech_hf_values from = {ECH_F32, l.param};
        assert_ok(ech_hf_folder_write(in_folder(state, "hf"), &l.m, &l.c, &from, &spec));
        assert_ok(ech_hf_folder_read(in_folder(state, "hf"), ECH_F32, &back, &weights));
        assert_int_equal(back.canon.elems, l.c.elems);
        assert_int_equal(back.model.tie_embeddings, l.m.tie_embeddings);
        assert_int_equal(back.model.context, 3);
        assert_memory_equal(weights, l.flat, (size_t)l.c.elems * sizeof(float));
        free(weights);
        ech_hf_folder_fini(&back);
        unload(&l);
    }
}

static void test_hostile_headers(void **state)
{
    static const struct {
        sizes z;
        int extra;
        const char *words;
    } bad[] = {
        {{0, 10, 2, 2, 2, 5, 3}, 0, "dim is 0, a size must be positive"},
        {{8, -10, 2, 2, 2, 5, 3}, 0, "hidden_dim is -10"},
        {{8, 10, 2, 0, 2, 5, 3}, 0, "n_heads is 0"},
        {{8, 10, 2, 2, 2, 0, 3}, 0, "vocab_size is 0"},
        {{8, 10, 2, 3, 3, 5, 3}, 0, "dim 8 does not divide into 3 heads"},
        {{6, 10, 2, 2, 2, 5, 3}, 0, "head size 3 is odd"},
        {{8, 10, 2, 4, 3, 5, 3}, 0, "4 heads do not divide into 3 groups"},
        {{8, 10, 2, 2, 2, 5, 3}, 4, "bytes, its header asks for"},
        {{8, 10, 2, 2, 2, 5, 3}, -1, "bytes, its header asks for"},
        {{INT32_MAX - 1, INT32_MAX, INT32_MAX, 1, 1, INT32_MIN, INT32_MAX},
         0,
         "asks for more than"},
        {{0x616b3432, 1, 2, 2, 2, 5, 3}, 0, "llama2.c's export version 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ech_model m = {.name = "untouched"};
        const sizes good = {8, 10, 2, 2, 2, 5, 3};
        char *data = NULL;
        size_t bytes = 0;
        write_file(in_folder(state, "bad.bin"), &good, bad[i].extra);
        assert_ok(ech_read_whole(in_folder(state, "bad.bin"), 1 << 20, &data, &bytes));
        memcpy(data, &bad[i].z, sizeof bad[i].z);
        assert_ok(ech_write_whole(in_folder(state, "bad.bin"), data, bytes));
        free(data);
        const bool is_new = bad[i].z.dim == 0x616b3432;
        assert_fails(ech_llama2c_model(in_folder(state, "bad.bin"), &m),
                     is_new ? ECH_E_UNSUPPORTED : ECH_E_CORRUPT, bad[i].words);
        assert_string_equal(m.name, "untouched");
    }
}

static void test_every_cut_is_refused(void **state)
{
    ech_model m;
    char *data = NULL;
    size_t bytes = 0;
    write_file(in_folder(state, "whole.bin"), &kinds[0], 0);
    assert_ok(ech_read_whole(in_folder(state, "whole.bin"), 1 << 20, &data, &bytes));
    for (size_t n = 0; n < bytes; n += n < 40 ? 1 : 97) {
        assert_ok(ech_write_whole(in_folder(state, "cut.bin"), data, n));
        assert_int_equal(ech_llama2c_model(in_folder(state, "cut.bin"), &m), ECH_E_CORRUPT);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_to_half_split),
        cmocka_unit_test(test_scores_are_the_same),
        cmocka_unit_test(test_weights_land_where_they_should),
        cmocka_unit_test(test_through_an_hf_folder),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_every_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
