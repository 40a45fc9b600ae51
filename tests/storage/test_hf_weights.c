/* RUN: np=1 timeout=30 tags=fast */
#include "check.h"
#include "folder.h"

#include "base/checked.h"
#include "base/io.h"
#include "storage/hf_weights.h"

#include <stdlib.h>

/* --- models --- */

typedef struct shape {
    ech_arch arch;
    int64_t heads, kv_heads, head_dim;
    bool qkv_bias, qk_norm, tied, interleaved;
} shape;

static const shape shapes[] = {
    {ECH_ARCH_GPT2, 3, 3, 4, true, false, true, false},
    {ECH_ARCH_GPT2, 3, 3, 4, true, false, false, false},
    {ECH_ARCH_LLAMA, 4, 4, 4, false, false, true, false},  /* MHA */
    {ECH_ARCH_LLAMA, 4, 2, 6, false, false, false, false}, /* GQA, head_dim of its own */
    {ECH_ARCH_LLAMA, 3, 1, 4, true, false, false, false},  /* MQA, biases */
    {ECH_ARCH_LLAMA, 4, 2, 8, false, true, true, false},   /* norms of q and k */
    {ECH_ARCH_LLAMA, 4, 2, 6, true, true, false, true},    /* interleaved rotary pairs */
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static ech_model model_of(const shape *s)
{
    ech_model m = ech_model_default(s->arch);
    (void)snprintf(m.name, sizeof m.name, "test");
    m.layers = 2;
    m.heads = s->heads;
    m.kv_heads = s->kv_heads;
    m.head_dim = s->head_dim;
    m.hidden = s->arch == ECH_ARCH_GPT2 ? s->heads * s->head_dim : 10;
    m.ffn = 14;
    m.vocab = 129; /* padded to 256 */
    m.context = 7;
    m.tie_embeddings = s->tied;
    m.qk_norm = s->qk_norm;
    m.rope.interleaved = s->interleaved;
    if (s->arch == ECH_ARCH_LLAMA)
        m.qkv_bias = s->qkv_bias;
    return m;
}

/* A model with its map and one flat buffer: element i of the model holds i + 1. */
typedef struct fixture {
    ech_model m;
    ech_canon c;
    ech_hf_map map;
    double *flat;
    void **param;
    ech_hf_values values;
} fixture;

static fixture fixture_make(const shape *s)
{
    fixture f = {.m = model_of(s)};
    assert_ok(ech_canon_create(&f.m, &f.c));
    assert_ok(ech_hf_map_create(&f.m, &f.c, &f.map));
    assert_ok(ech_calloc((size_t)f.c.elems, sizeof *f.flat, &f.flat));
    assert_ok(ech_calloc((size_t)f.c.n_params, sizeof *f.param, &f.param));
    for (int64_t i = 0; i < f.c.elems; i++)
        f.flat[i] = (double)(i + 1);
    for (int i = 0; i < f.c.n_params; i++)
        f.param[i] = f.flat + f.c.param[i].offset;
    f.values = (ech_hf_values){ECH_F64, f.param};
    return f;
}

static void fixture_drop(fixture *f)
{
    free(f->flat);
    free(f->param);
    ech_hf_map_fini(&f->map);
    ech_canon_fini(&f->c);
}

static double *gather_whole(const fixture *f, size_t t)
{
    double *out;
    assert_ok(ech_calloc((size_t)f->map.tensor[t].elems, sizeof *out, &out));
    ech_hf_gather(&f->map, t, 0, f->map.tensor[t].elems, &f->values, out);
    return out;
}

/* --- a witness of its own: what stands in each HF tensor, index by index --- */

/* Canonical QKV element: group, slot (queries, key, value), element of the head, column. */
static double qkv_at(const fixture *f, ech_param_kind kind, int layer, int64_t group, int64_t slot,
                     int64_t e, int64_t col)
{
    const ech_param *p = ech_canon_find(&f->c, kind, layer);
    const int64_t cols = kind == ECH_PARAM_QKV ? f->m.hidden : 1;
    const int64_t slots = f->m.heads / f->m.kv_heads + 2;
    return f->flat[p->offset + ((group * slots + slot) * f->m.head_dim + e) * cols + col];
}

/* Row `row` of part 0, 1, 2 = q, k, v in HF's order: heads in order, rotary pairs half-split. */
static double qkv_row(const fixture *f, ech_param_kind kind, int layer, int part, int64_t row,
                      int64_t col)
{
    const int64_t d = f->m.head_dim;
    const int64_t ratio = f->m.heads / f->m.kv_heads;
    const int64_t head = row / d;
    int64_t e = row % d;
    if (f->m.rope.interleaved && part < 2)
        e = e < d / 2 ? 2 * e : 2 * (e - d / 2) + 1;
    if (part == 0)
        return qkv_at(f, kind, layer, head / ratio, head % ratio, e, col);
    return qkv_at(f, kind, layer, head, ratio + part - 1, e, col);
}

static double plain(const fixture *f, ech_param_kind kind, int layer, int64_t i)
{
    return f->flat[ech_canon_find(&f->c, kind, layer)->offset + i];
}

/* Element [row, col] of the HF tensor of that name (behind "model." and "layers.N."). */
static double llama_element(const fixture *f, const char *name, int layer, int64_t row, int64_t col)
{
    const int64_t H = f->m.hidden;
    const int64_t F = f->m.ffn;
    const char *const part = "qkv";
    if (!strncmp(name, "self_attn.", 10) && strchr(part, name[10]) && !strncmp(name + 11, "_p", 2))
        return qkv_row(f, strstr(name, "bias") ? ECH_PARAM_QKV_BIAS : ECH_PARAM_QKV, layer,
                       (int)(strchr(part, name[10]) - part), row, col);
    if (!strcmp(name, "self_attn.o_proj.weight"))
        return plain(f, ECH_PARAM_ATTN_OUT, layer, row * f->m.heads * f->m.head_dim + col);
    if (!strcmp(name, "mlp.gate_proj.weight"))
        return plain(f, ECH_PARAM_GATE_UP, layer, row * H + col);
    if (!strcmp(name, "mlp.up_proj.weight"))
        return plain(f, ECH_PARAM_GATE_UP, layer, (F + row) * H + col);
    if (!strcmp(name, "mlp.down_proj.weight"))
        return plain(f, ECH_PARAM_DOWN, layer, row * F + col);
    if (!strcmp(name, "embed_tokens.weight"))
        return plain(f, ECH_PARAM_TOKEN_EMBED, -1, row * H + col);
    if (!strcmp(name, "lm_head.weight"))
        return plain(f, ECH_PARAM_HEAD, -1, row * H + col);
    if (!strcmp(name, "input_layernorm.weight"))
        return plain(f, ECH_PARAM_ATTN_NORM, layer, row);
    if (!strcmp(name, "post_attention_layernorm.weight"))
        return plain(f, ECH_PARAM_MLP_NORM, layer, row);
    if (!strcmp(name, "norm.weight"))
        return plain(f, ECH_PARAM_FINAL_NORM, -1, row);
    const int64_t half = f->m.head_dim / 2;
    const int64_t e = !f->m.rope.interleaved ? row : row < half ? 2 * row : 2 * (row - half) + 1;
    if (!strcmp(name, "self_attn.q_norm.weight"))
        return plain(f, ECH_PARAM_Q_NORM, layer, e);
    assert_string_equal(name, "self_attn.k_norm.weight");
    return plain(f, ECH_PARAM_K_NORM, layer, e);
}

/* HF's GPT-2 keeps matrices as [in, out]; c_attn's columns are q | k | v. */
static double gpt2_element(const fixture *f, const char *name, int layer, int64_t row, int64_t col)
{
    static const struct {
        const char *name;
        ech_param_kind kind;
    } vector[] = {
        {"ln_1.weight", ECH_PARAM_ATTN_NORM},          {"ln_1.bias", ECH_PARAM_ATTN_NORM_BIAS},
        {"ln_2.weight", ECH_PARAM_MLP_NORM},           {"ln_2.bias", ECH_PARAM_MLP_NORM_BIAS},
        {"attn.c_proj.bias", ECH_PARAM_ATTN_OUT_BIAS}, {"mlp.c_fc.bias", ECH_PARAM_UP_BIAS},
        {"mlp.c_proj.bias", ECH_PARAM_DOWN_BIAS},      {"ln_f.weight", ECH_PARAM_FINAL_NORM},
        {"ln_f.bias", ECH_PARAM_FINAL_NORM_BIAS},
    };
    const int64_t H = f->m.hidden;
    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++)
        if (!strcmp(name, vector[i].name))
            return plain(f, vector[i].kind, strstr(name, "ln_f") ? -1 : layer, row);
    if (!strcmp(name, "attn.c_attn.weight"))
        return qkv_row(f, ECH_PARAM_QKV, layer, (int)(col / H), col % H, row);
    if (!strcmp(name, "attn.c_attn.bias"))
        return qkv_row(f, ECH_PARAM_QKV_BIAS, layer, (int)(row / H), row % H, 0);
    if (!strcmp(name, "attn.c_proj.weight"))
        return plain(f, ECH_PARAM_ATTN_OUT, layer, col * H + row);
    if (!strcmp(name, "mlp.c_fc.weight"))
        return plain(f, ECH_PARAM_UP, layer, col * H + row);
    if (!strcmp(name, "mlp.c_proj.weight"))
        return plain(f, ECH_PARAM_DOWN, layer, col * f->m.ffn + row);
    if (!strcmp(name, "wte.weight"))
        return plain(f, ECH_PARAM_TOKEN_EMBED, -1, row * H + col);
    if (!strcmp(name, "lm_head.weight"))
        return plain(f, ECH_PARAM_HEAD, -1, row * H + col);
    assert_string_equal(name, "wpe.weight");
    return plain(f, ECH_PARAM_POSITION_EMBED, -1, row * H + col);
}

/* "model.layers.1.x" -> "x" and 1. */
static const char *strip(const char *name, int *layer)
{
    const char *dot = strstr(name, ".layers.");
    if (!dot)
        dot = strstr(name, "transformer.h.");
    *layer = -1;
    if (dot) {
        const char *number = dot + strcspn(dot, "0123456789");
        *layer = atoi(number);
        return strchr(number, '.') + 1;
    }
    if (!strncmp(name, "model.", 6))
        return name + 6;
    return !strncmp(name, "transformer.", 12) ? name + 12 : name;
}

static void test_every_element(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        fixture f = fixture_make(&shapes[s]);
        for (size_t t = 0; t < f.map.n_tensors; t++) {
            const ech_hf_tensor *x = &f.map.tensor[t];
            const int64_t cols = x->rank == 2 ? x->dim[1] : 1;
            double *got = gather_whole(&f, t);
            int layer;
            const char *name = strip(x->name, &layer);
            assert_int_equal(x->elems, x->dim[0] * cols);
            for (int64_t i = 0; i < x->elems; i++) {
                const double wanted = f.m.arch == ECH_ARCH_GPT2
                                          ? gpt2_element(&f, name, layer, i / cols, i % cols)
                                          : llama_element(&f, name, layer, i / cols, i % cols);
                if (got[i] != wanted)
                    fail_msg("shape %zu, %s[%lld]: got %g, wanted %g", s, x->name, (long long)i,
                             got[i], wanted);
            }
            free(got);
        }
        fixture_drop(&f);
    }
}

/* Every canonical element but the padding is in exactly one place of the HF tensors. */
static void test_each_element_once(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        fixture f = fixture_make(&shapes[s]);
        char *seen;
        int64_t total = 0;
        assert_ok(ech_calloc((size_t)f.c.elems, 1, &seen));
        for (size_t t = 0; t < f.map.n_tensors; t++) {
            double *got = gather_whole(&f, t);
            for (int64_t i = 0; i < f.map.tensor[t].elems; i++) {
                const int64_t at = (int64_t)got[i] - 1;
                assert_true(at >= 0 && at < f.c.elems && !seen[at]);
                seen[at] = 1;
            }
            total += f.map.tensor[t].elems;
            free(got);
        }
        const int64_t tables = f.m.tie_embeddings ? 1 : 2;
        assert_int_equal(total, f.c.elems - tables * (256 - 129) * f.m.hidden);
        free(seen);
        fixture_drop(&f);
    }
}

/* Any cut into ranges gathers and scatters the same elements. */
static void test_ranges(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        fixture f = fixture_make(&shapes[s]);
        fixture back = fixture_make(&shapes[s]);
        for (int64_t i = 0; i < back.c.elems; i++)
            back.flat[i] = -1.0;
        for (size_t t = 0; t < f.map.n_tensors; t++) {
            double *whole = gather_whole(&f, t);
            int64_t step = 1;
            for (int64_t at = 0; at < f.map.tensor[t].elems; at += step) {
                double piece[64];
                step = (at * 7 + (int64_t)t) % 61 + 1;
                if (step > f.map.tensor[t].elems - at)
                    step = f.map.tensor[t].elems - at;
                ech_hf_gather(&f.map, t, at, step, &f.values, piece);
                assert_memory_equal(piece, whole + at, (size_t)step * sizeof *piece);
                ech_hf_scatter(&f.map, t, at, step, piece, &back.values);
            }
            free(whole);
        }
        for (int i = 0; i < f.c.n_params; i++) {
            const ech_param *p = &f.c.param[i];
            const bool padded = p->kind == ECH_PARAM_TOKEN_EMBED || p->kind == ECH_PARAM_HEAD;
            const int64_t n = padded ? f.m.vocab * f.m.hidden : p->elems;
            for (int64_t e = 0; e < p->elems; e++) /* the padding is not touched */
                assert_true(back.flat[p->offset + e] == (e < n ? f.flat[p->offset + e] : -1.0));
        }
        fixture_drop(&f);
        fixture_drop(&back);
    }
}

/* --- files --- */

/* Write tensors of the map under other names or shapes: rename(i) gives NULL to leave one out. */
typedef const char *(*renaming)(size_t i, const char *name);

static void write_renamed(const fixture *f, const char *path, ech_dtype dtype, renaming rename_to,
                          const ech_st_spec *extra, const void *extra_data)
{
    ech_st_spec *spec;
    ech_st_spec kept[128];
    size_t of[128];
    size_t n = 0;
    ech_st_writer *w = NULL;
    assert_ok(ech_hf_specs(&f->map, dtype, &spec));
    for (size_t i = 0; i < f->map.n_tensors; i++) {
        const char *name = rename_to(i, spec[i].name);
        if (!name)
            continue;
        kept[n] = spec[i];
        kept[n].name = name;
        of[n++] = i;
    }
    const size_t own = n;
    if (extra)
        kept[n++] = *extra;
    assert_ok(ech_st_writer_create(path, kept, n, NULL, 0, &w));
    for (size_t i = 0; i < own; i++) {
        double *data = gather_whole(f, of[i]);
        for (size_t e = 0; e < (size_t)f->map.tensor[of[i]].elems; e++)
            ech_dtype_store(dtype, data, e, data[e]);
        assert_ok(ech_st_writer_add(w, data,
                                    (size_t)f->map.tensor[of[i]].elems * ech_dtype_bytes(dtype)));
        free(data);
    }
    if (extra) {
        size_t bytes = ech_dtype_bytes(extra->dtype);
        for (int d = 0; d < extra->rank; d++)
            bytes *= (size_t)extra->dim[d];
        assert_ok(ech_st_writer_add(w, extra_data, bytes));
    }
    assert_ok(ech_st_writer_finish(&w));
    free(spec);
}

static const char *same_name(size_t i, const char *name)
{
    (void)i;
    return name;
}

static const char *no_prefix(size_t i, const char *name)
{
    (void)i;
    if (!strncmp(name, "model.", 6))
        return name + 6;
    return !strncmp(name, "transformer.", 12) ? name + 12 : name;
}

static void check_import(const fixture *f, const char *path, double bound)
{
    fixture back = *f;
    ech_st_set *set = NULL;
    assert_ok(ech_calloc((size_t)f->c.elems, sizeof *back.flat, &back.flat));
    assert_ok(ech_calloc((size_t)f->c.n_params, sizeof *back.param, &back.param));
    memset(back.flat, 0xff, (size_t)f->c.elems * sizeof *back.flat); /* NaN */
    for (int i = 0; i < f->c.n_params; i++)
        back.param[i] = back.flat + f->c.param[i].offset;
    const ech_hf_values to = {ECH_F64, back.param};
    assert_ok(ech_st_set_open(path, &set));
    assert_ok(ech_hf_import(&f->map, &f->c, set, &to));
    for (int i = 0; i < f->c.n_params; i++) {
        const ech_param *p = &f->c.param[i];
        const bool padded = p->kind == ECH_PARAM_TOKEN_EMBED || p->kind == ECH_PARAM_HEAD;
        for (int64_t e = 0; e < p->elems; e++) {
            const bool is_pad = padded && e >= f->m.vocab * f->m.hidden;
            const double wanted = is_pad ? 0.0 : f->flat[p->offset + e];
            assert_near(back.flat[p->offset + e], wanted, bound * wanted);
        }
    }
    ech_st_set_close(&set);
    free(back.flat);
    free(back.param);
}

static void test_file_round_trip(void **state)
{
    for (size_t s = 0; s < N_SHAPES; s++) {
        fixture f = fixture_make(&shapes[s]);
        const char *path = in_folder(state, "trip.safetensors");
        assert_ok(ech_hf_export_file(&f.map, &f.values, ECH_F64, path));
        check_import(&f, path, 0.0);
        assert_ok(ech_hf_export_file(&f.map, &f.values, ECH_F32, path));
        check_import(&f, path, 0.0); /* small integers are exact */
        assert_ok(ech_hf_export_file(&f.map, &f.values, ECH_BF16, path));
        check_import(&f, path, 1.0 / 256);
        write_renamed(&f, path, ECH_F32, no_prefix, NULL, NULL);
        check_import(&f, path, 0.0);
        fixture_drop(&f);
    }
}

static void test_wider_file_is_refused(void **state)
{
    fixture f = fixture_make(&shapes[2]);
    const ech_hf_values narrow = {ECH_F32, f.param};
    assert_fails(ech_hf_export_file(&f.map, &narrow, ECH_F64, in_folder(state, "wide.safetensors")),
                 ECH_E_ILLEGAL, "fp32 values cannot be written as fp64");
    assert_false(ech_path_exists(in_folder(state, "wide.safetensors")));
    fixture_drop(&f);
}

static ech_status import_status(const fixture *f, const char *path)
{
    ech_st_set *set = NULL;
    ECH_TRY(ech_st_set_open(path, &set));
    const ech_status st = ech_hf_import(&f->map, &f->c, set, &f->values);
    ech_st_set_close(&set);
    return st;
}

static const char *two_wrong(size_t i, const char *name)
{
    (void)i;
    if (strstr(name, "layers.1.self_attn.k_proj"))
        return NULL;
    return strstr(name, "layers.0.mlp.up_proj") ? "model.layers.0.mlp.up.weight" : name;
}

/* Missing, extra and misshapen tensors come in one message. */
static void test_all_findings_at_once(void **state)
{
    static const int64_t dim[] = {3, 10};
    static const double data[30] = {0};
    static const ech_st_spec extra = {"model.layers.2.junk", ECH_F32, 2, dim};
    fixture f = fixture_make(&shapes[3]);
    fixture other = fixture_make(&shapes[3]);
    const char *path = in_folder(state, "wrong.safetensors");
    const char *const wanted[] = {"missing tensor 'model.layers.1.self_attn.k_proj.weight'",
                                  "missing tensor 'model.layers.0.mlp.up_proj.weight'",
                                  "extra tensor 'model.layers.0.mlp.up.weight'",
                                  "extra tensor 'model.layers.2.junk'",
                                  "'model.embed_tokens.weight' has shape [129, 10]",
                                  ", the model needs [130, 10]",
                                  "tensor 'lm_head.weight' has shape"};
    write_renamed(&f, path, ECH_F32, two_wrong, &extra, data);
    other.m.vocab = 130;
    ech_hf_map_fini(&other.map);
    assert_ok(ech_hf_map_create(&other.m, &other.c, &other.map));
    assert_int_equal(import_status(&other, path), ECH_E_CORRUPT);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(ech_error_message(), wanted[i]))
            fail_msg("'%s' does not say '%s'", ech_error_message(), wanted[i]);
    assert_true(other.flat[5] == 6.0); /* nothing was read */
    fixture_drop(&f);
    fixture_drop(&other);
}

static void test_integers_are_no_weights(void **state)
{
    fixture f = fixture_make(&shapes[2]);
    const char *path = in_folder(state, "int.safetensors");
    write_renamed(&f, path, ECH_I32, same_name, NULL, NULL);
    assert_fails(import_status(&f, path), ECH_E_CORRUPT,
                 "tensor 'model.embed_tokens.weight' is I32, weights are");
    fixture_drop(&f);
}

/* Files of tied models may repeat the table as the head: then it must be the table. */
static void test_tied_head(void **state)
{
    fixture f = fixture_make(&shapes[2]);
    const int64_t dim[] = {f.m.vocab, f.m.hidden};
    const ech_st_spec head = {"lm_head.weight", ECH_F64, 2, dim};
    const char *path = in_folder(state, "tied.safetensors");
    double *table = gather_whole(&f, 0);
    write_renamed(&f, path, ECH_F64, same_name, &head, table);
    check_import(&f, path, 0.0);
    table[1289] += 1.0;
    write_renamed(&f, path, ECH_F64, same_name, &head, table);
    assert_fails(import_status(&f, path), ECH_E_CORRUPT, "differs from the table it is tied to");
    free(table);
    fixture_drop(&f);
}

static void test_buffers_are_passed_over(void **state)
{
    static const int64_t dim[] = {1, 1, 2, 2};
    static const float mask[4] = {1, 0, 1, 1};
    static const ech_st_spec buffer = {"transformer.h.0.attn.bias", ECH_F32, 4, dim};
    fixture f = fixture_make(&shapes[0]);
    write_renamed(&f, in_folder(state, "mask.safetensors"), ECH_F64, same_name, &buffer, mask);
    check_import(&f, in_folder(state, "mask.safetensors"), 0.0);
    fixture_drop(&f);
}

static void test_no_hf_name(void **state)
{
    ech_model m = model_of(&shapes[2]);
    ech_canon c = {0};
    ech_hf_map map = {0};
    (void)state;
    m.mlp_bias = true;
    m.act = ECH_ACT_GELU;
    assert_ok(ech_canon_create(&m, &c));
    assert_fails(ech_hf_map_create(&m, &c, &map), ECH_E_UNSUPPORTED,
                 "parameter 'layers.0.mlp.up.weight' has no name in Hugging Face's Llama models");
    assert_null(map.tensor);
    ech_canon_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_element),
        cmocka_unit_test(test_each_element_once),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_file_round_trip),
        cmocka_unit_test(test_wider_file_is_refused),
        cmocka_unit_test(test_all_findings_at_once),
        cmocka_unit_test(test_integers_are_no_weights),
        cmocka_unit_test(test_tied_head),
        cmocka_unit_test(test_buffers_are_passed_over),
        cmocka_unit_test(test_no_hf_name),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
