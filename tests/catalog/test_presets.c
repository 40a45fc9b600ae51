/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "catalog/model.h"
#include "known_models.h"

static void every_preset_has_its_published_total(void **state)
{
    (void)state;
    size_t n;
    const char *const *names = ech_model_presets(&n);
    assert_int_equal(n, N_KNOWN);
    for (size_t i = 1; i < n; i++)
        assert_true(strcmp(names[i - 1], names[i]) < 0);
    for (size_t i = 0; i < N_KNOWN; i++) {
        ech_model m;
        ech_param_count c;
        ech_findings findings = {0};
        assert_ok(ech_model_load(known[i].name, &m));
        ech_model_validate(&m, &findings);
        if (findings.n > 0)
            fail_msg("%s: %s", known[i].name, ech_text_get(&findings.text));
        assert_ok(ech_model_count(&m, &c));
        if (c.total != known[i].total)
            fail_msg("%s: got %lld, wanted %lld", known[i].name, (long long)c.total,
                     (long long)known[i].total);
        if (known[i].active_millions > 0) /* published to three or four digits */
            assert_near((double)c.active / 1e6, (double)known[i].active_millions, 5.0);
        else if (m.moe.experts == 0)
            assert_int_equal(c.active, c.total);
    }
}

static void names_and_nearest_names(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(ech_model_load("gpt2", &m));
    assert_string_equal(m.name, "gpt2-124m");
    assert_fails(ech_model_load("lama-2-7b", &m), ECH_E_CONFIG, "llama-2-7b");
    assert_fails(ech_model_load("/nowhere/config.json", &m), ECH_E_CONFIG, "no such file");
}

/* facts.md section 6, worked by hand for GPT-2 and Llama-2-7B. */
static void flops_per_token(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(ech_model_load("gpt2-124m", &m));
    const double matmul = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
    const double attention = 12.0 * 12 * 1024 * 768;
    assert_near(ech_model_flops_per_token(&m, 1024, false), 6 * matmul + attention, 1.0);
    assert_near(ech_model_flops_per_token(&m, 1024, true), 6 * matmul + attention / 2, 1.0);
    assert_ok(ech_model_load("llama-2-7b", &m));
    const double share =
        (ech_model_flops_per_token(&m, 4096, false) - ech_model_flops_per_token(&m, 4096, true)) *
        2 / (6.0 * 6738415616.0);
    assert_near(share, 0.16, 0.005);              /* "the attention term is 16 % of 6N" */
    assert_ok(ech_model_load("gpt-oss-20b", &m)); /* half of the layers see 128 tokens */
    const double full = 12.0 * 12 * 4096 * 64 * 64;
    const double windowed = 12.0 * 12 * 128 * 64 * 64;
    ech_param_count c;
    assert_ok(ech_model_count(&m, &c));
    assert_near(ech_model_flops_per_token(&m, 4096, false),
                6.0 * (double)c.matmul + full + windowed, 1.0);
}

/* The shares of all units add up to the whole model's, with experts, windows and tied tables too. */
static void unit_flops(void **state)
{
    size_t n;
    const char *const *names = ech_model_presets(&n);
    (void)state;
    for (size_t k = 0; k < n; k++)
        for (int causal = 0; causal < 2; causal++) {
            ech_model m;
            assert_ok(ech_model_load(names[k], &m));
            const double whole = ech_model_flops_per_token(&m, 4096, causal);
            double sum = 0;
            for (int64_t unit = 0; unit <= m.layers + 1; unit++)
                sum += ech_model_unit_flops(&m, unit, 4096, causal);
            assert_near(sum, whole, 1e-12 * whole);
            const int64_t project = m.embed_dim * m.hidden;
            assert_near(ech_model_unit_flops(&m, 0, 4096, causal), 6.0 * (double)project, 0);
            assert_near(ech_model_unit_flops(&m, m.layers + 1, 4096, causal),
                        6.0 * (double)(m.vocab * (project ? m.embed_dim : m.hidden) + project), 0);
        }
    ech_model gpt2;
    assert_ok(ech_model_load("gpt2", &gpt2)); /* 12 H^2 in matrices, 12 s H of attention */
    assert_near(ech_model_unit_flops(&gpt2, 7, 1024, false),
                6.0 * 12 * 768 * 768 + 12.0 * 1024 * 768, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_has_its_published_total),
        cmocka_unit_test(names_and_nearest_names),
        cmocka_unit_test(flops_per_token),
        cmocka_unit_test(unit_flops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
