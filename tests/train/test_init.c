/* RUN: np=1 timeout=20 tags=fast */
/* Initial weights: normal 0.02, residual outputs divided by sqrt(2 L), norms 1, biases and padded
 * rows 0; a function of seed and element alone.  Which tensors decay. */
#include "check.h"
#include "tiny.h"
#include "train/init.h"

#include <math.h>
#include <stdlib.h>

enum { LAYERS = 4, HIDDEN = 48, VOCAB = 301 };

static ech_model model(ech_arch arch)
{
    ech_model m = ech_model_default(arch);
    ech_findings findings = {0};
    m.layers = LAYERS;
    m.hidden = HIDDEN;
    m.heads = m.kv_heads = 4;
    m.head_dim = HIDDEN / 4;
    m.ffn = 4 * HIDDEN;
    m.vocab = VOCAB;
    m.context = 32;
    m.qk_norm = arch == ECH_ARCH_LLAMA;
    ech_model_validate(&m, &findings);
    assert_ok(ech_findings_raise(&findings, ECH_E_CONFIG));
    return m;
}

static bool is_named(const ech_param *p, const char *words)
{
    return strstr(p->name, words) != NULL;
}

/* By name, on purpose not by the flags of the canonical table. */
static double wanted_std(const ech_param *p)
{
    if (is_named(p, "norm") || is_named(p, "bias"))
        return 0.0;
    return is_named(p, "attn.out") || is_named(p, "mlp.down") ? 0.02 / sqrt(2.0 * LAYERS) : 0.02;
}

static void check_normal(const ech_param *p, const double *x, int64_t n, double std)
{
    double sum = 0.0;
    double squares = 0.0;
    double cubes = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        cubes += x[i] * x[i] * x[i];
    }
    const double five_sigma = 5.0 / sqrt((double)n);
    const double got = sqrt(squares / (double)n);
    if (!(fabs(sum / (double)n) < five_sigma * std) ||
        !(fabs(got / std - 1.0) < five_sigma / sqrt(2.0)) ||
        !(fabs(cubes / (double)n) < five_sigma * sqrt(15.0) * std * std * std))
        fail_msg("%s: mean %g, deviation %g, third moment %g; wanted 0, %g, 0", p->name,
                 sum / (double)n, got, cubes / (double)n, std);
}

static void check_constant(const ech_param *p, const double *x, int64_t begin, int64_t end,
                           double want)
{
    for (int64_t i = begin; i < end; i++)
        if (x[i] != want)
            fail_msg("%s[%lld] is %g, wanted %g", p->name, (long long)i, x[i], want);
}

static void check_values(ech_arch arch)
{
    const ech_model m = model(arch);
    ech_canon c = {0};
    assert_ok(ech_canon_create(&m, &c));
    double *x = calloc((size_t)c.elems, sizeof *x);
    tiny_init_model(&m, &c, 5, ECH_F64, x);
    for (int k = 0; k < c.n_params; k++) {
        const ech_param *p = &c.param[k];
        const bool is_table = is_named(p, "embed.token") || is_named(p, "head.weight");
        const int64_t real = is_table ? (int64_t)VOCAB * HIDDEN : p->elems;
        const double std = wanted_std(p);
        assert_true(!is_table || real < p->elems); /* there are padded rows */
        if (std > 0.0)
            check_normal(p, x + p->offset, real, std);
        else
            check_constant(p, x + p->offset, 0, real, is_named(p, "bias") ? 0.0 : 1.0);
        check_constant(p, x + p->offset, real, p->elems, 0.0);
    }
    free(x);
    ech_canon_fini(&c);
}

static void test_values(void **state)
{
    (void)state;
    check_values(ECH_ARCH_GPT2);
    check_values(ECH_ARCH_LLAMA);
}

/* Pieces, and fp32, are those of the whole in fp64; another seed is another model. */
static void test_a_function_of_seed_and_element(void **state)
{
    (void)state;
    const ech_model m = model(ECH_ARCH_GPT2);
    ech_canon c = {0};
    assert_ok(ech_canon_create(&m, &c));
    const size_t n = (size_t)c.elems;
    double *whole = calloc(n, sizeof *whole);
    double *piece = calloc(n, sizeof *piece);
    float *narrow = calloc(n, sizeof *narrow);
    tiny_init_model(&m, &c, 5, ECH_F64, whole);
    for (int k = 0; k < c.n_params; k++) {
        const ech_param *p = &c.param[k];
        for (int64_t at = 0, step = 1; at < p->elems; at += step, step = step * 3 + 1) {
            const int64_t end = at + step < p->elems ? at + step : p->elems;
            ech_init_weights(&m, p, 5, ECH_F64, (ech_range){at, end}, piece + p->offset + at);
        }
    }
    assert_memory_equal(piece, whole, n * sizeof *whole);
    tiny_init_model(&m, &c, 5, ECH_F32, narrow);
    for (size_t i = 0; i < n; i++)
        assert_true(narrow[i] == (float)whole[i]);
    tiny_init_model(&m, &c, 6, ECH_F64, piece);
    const ech_param *q = ech_canon_find(&c, ECH_PARAM_TOKEN_EMBED, -1);
    assert_true(memcmp(piece + q->offset, whole + q->offset, 64 * sizeof *whole) != 0);
    free(whole);
    free(piece);
    free(narrow);
    ech_canon_fini(&c);
}

/* Matrices decay; norms, biases and embeddings do not; an untied head is a matrix. */
static void test_what_decays(void **state)
{
    (void)state;
    for (int arch = 0; arch < 2; arch++) {
        const ech_model m = model(arch ? ECH_ARCH_LLAMA : ECH_ARCH_GPT2);
        ech_canon c = {0};
        assert_ok(ech_canon_create(&m, &c));
        for (int k = 0; k < c.n_params; k++) {
            const ech_param *p = &c.param[k];
            const bool want = !is_named(p, "norm") && !is_named(p, "bias") && !is_named(p, "embed");
            if (p->is_decayed != want)
                fail_msg("%s: decayed %d, wanted %d", p->name, p->is_decayed, want);
        }
        ech_canon_fini(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_a_function_of_seed_and_element),
        cmocka_unit_test(test_what_decays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
