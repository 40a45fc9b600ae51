/* RUN: np=1 timeout=20 tags=fast */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog/canon.h"

#include <math.h>
#include <string.h>

static ech_model tiny(ech_arch arch)
{
    ech_model m = ech_model_default(arch);
    strcpy(m.name, "tiny");
    m.layers = 3;
    m.hidden = 24;
    m.heads = 6;
    m.kv_heads = arch == ECH_ARCH_GPT2 ? 6 : 2;
    m.head_dim = 4;
    m.ffn = arch == ECH_ARCH_GPT2 ? 96 : 40;
    m.vocab = 130;
    m.context = 16;
    return m;
}

/* A unit's kind is told by the first of its tensors; the first unit of a kind comes before its
 * like. */
static void assert_kinds(const ech_canon *c)
{
    static const ech_param_kind begins[ECH_N_UNIT_KINDS] = {
        ECH_PARAM_TOKEN_EMBED, ECH_PARAM_ATTN_NORM, ECH_PARAM_FINAL_NORM};
    int first[ECH_N_UNIT_KINDS] = {-1, -1, -1};
    for (int u = 0; u < c->n_units; u++) {
        const ech_unit_kind kind = ech_canon_unit_kind(c, u);
        assert_int_equal(c->param[c->unit_first[u]].kind, begins[kind]);
        if (first[kind] < 0)
            first[kind] = u;
    }
    for (int k = 0; k < ECH_N_UNIT_KINDS; k++)
        assert_int_equal(ech_canon_first_unit(c, (ech_unit_kind)k), first[k]);
}

/* Every unit is flat and without gaps, offsets run on, elems is the product of the dimensions. */
static void assert_is_gapless(const ech_canon *c)
{
    int64_t offset = 0;
    for (int u = 0; u < c->n_units; u++) {
        assert_int_equal(c->unit_offset[u], offset);
        const int64_t start = offset;
        for (int i = c->unit_first[u]; i < c->unit_first[u + 1]; i++) {
            const ech_param *p = &c->param[i];
            int64_t n = 1;
            for (int d = 0; d < p->rank; d++)
                n *= p->dim[d];
            assert_int_equal(p->unit, u);
            assert_int_equal(p->elems, n);
            assert_int_equal(p->offset, offset);
            assert_int_equal(p->unit_offset, offset - start);
            assert_ptr_equal(ech_canon_find(c, p->kind, p->layer), p);
            offset += n;
        }
        assert_int_equal(c->unit_elems[u], offset - start);
    }
    assert_int_equal(c->elems, offset);
    assert_int_equal(c->unit_first[c->n_units], c->n_params);
    assert_kinds(c);
}

static void gpt2_counts(void **state)
{
    (void)state;
    const ech_model m = tiny(ECH_ARCH_GPT2);
    ech_canon c;
    assert_int_equal(ech_canon_create(&m, &c), ECH_OK);
    assert_is_gapless(&c);
    /* embeddings; per layer 12 H^2 + 13 H; final norm; table padded from 130 to 256 rows */
    assert_int_equal(c.vocab_padded, 256);
    assert_int_equal(c.n_units, 5);
    assert_int_equal(c.unit_elems[0], 256 * 24 + 16 * 24);
    assert_int_equal(c.unit_elems[1], 12 * 24 * 24 + 13 * 24);
    assert_int_equal(c.unit_elems[4], 2 * 24);
    assert_int_equal(c.elems, 6144 + 384 + 3 * (6912 + 312) + 48);
    assert_null(ech_canon_find(&c, ECH_PARAM_HEAD, -1));
    const ech_param *p = ech_canon_find(&c, ECH_PARAM_DOWN, 2);
    assert_string_equal(p->name, "layers.2.mlp.down.weight");
    assert_true(p->init == ECH_INIT_NORMAL && fabs(p->init_std - 0.02 / sqrt(6.0)) < 1e-17);
    assert_true(p->is_decayed);
    assert_false(ech_canon_find(&c, ECH_PARAM_TOKEN_EMBED, -1)->is_decayed);
    assert_int_equal(ech_canon_find(&c, ECH_PARAM_DOWN_BIAS, 0)->init, ECH_INIT_ZERO);
    assert_null(ech_canon_find(&c, ECH_PARAM_DOWN, 3));
    ech_canon_fini(&c);
    assert_null(c.param);
}

static void llama_shapes(void **state)
{
    (void)state;
    ech_model m = tiny(ECH_ARCH_LLAMA);
    m.qk_norm = true;
    m.qkv_bias = true;
    ech_canon c;
    assert_int_equal(ech_canon_create(&m, &c), ECH_OK);
    assert_is_gapless(&c);
    const ech_param *qkv = ech_canon_find(&c, ECH_PARAM_QKV, 1);
    const int64_t want[4] = {2, 5, 4, 24}; /* 2 groups of 3 queries + key + value */
    assert_int_equal(qkv->rank, 4);
    assert_memory_equal(qkv->dim, want, sizeof want);
    const ech_param *gate_up = ech_canon_find(&c, ECH_PARAM_GATE_UP, 1);
    assert_int_equal(gate_up->rank, 3);
    assert_int_equal(gate_up->elems, 2 * 40 * 24);
    assert_int_equal(ech_canon_find(&c, ECH_PARAM_Q_NORM, 0)->elems, 4);
    assert_int_equal(ech_canon_find(&c, ECH_PARAM_Q_NORM, 0)->init, ECH_INIT_ONE);
    assert_int_equal(ech_canon_find(&c, ECH_PARAM_HEAD, -1)->elems, 256 * 24);
    assert_true(ech_canon_find(&c, ECH_PARAM_HEAD, -1)->is_decayed);
    assert_null(ech_canon_find(&c, ECH_PARAM_UP, 0));
    assert_null(ech_canon_find(&c, ECH_PARAM_POSITION_EMBED, -1));
    ech_canon_fini(&c);
}

static void refusals(void **state)
{
    (void)state;
    ech_canon c;
    ech_model m = tiny(ECH_ARCH_LLAMA);
    m.is_executable = false;
    strcpy(m.not_executable, "latent attention");
    assert_int_equal(ech_canon_create(&m, &c), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(ech_error_message(), "latent attention"));
    assert_null(c.param);
    m = tiny(ECH_ARCH_LLAMA);
    m.kv_heads = 4;
    assert_int_equal(ech_canon_create(&m, &c), ECH_E_ILLEGAL);
    m = tiny(ECH_ARCH_LLAMA);
    m.ffn = 0;
    assert_int_equal(ech_canon_create(&m, &c), ECH_E_ILLEGAL);
    m = tiny(ECH_ARCH_LLAMA);
    m.hidden = m.ffn = m.vocab = ECH_MODEL_SIZE_MAX; /* 3 x 2^62: leaves 64 bits, must be seen */
    assert_int_equal(ech_canon_create(&m, &c), ECH_E_ILLEGAL);
    assert_null(c.param);
}

static void vocabulary_padding(void **state)
{
    (void)state;
    assert_int_equal(ech_vocab_padded(1), 128);
    assert_int_equal(ech_vocab_padded(128), 128);
    assert_int_equal(ech_vocab_padded(50257), 50304);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_counts),
        cmocka_unit_test(llama_shapes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(vocabulary_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
