/* RUN: np=1 timeout=20 tags=fast */
/* Shapes on one line, as --model takes them. */
#include "check.h"

#include "catalog/model.h"

static ech_param_count count_of(const char *words, ech_model *m)
{
    ech_param_count c;
    assert_ok(ech_model_load(words, m));
    assert_ok(ech_model_count(m, &c));
    return c;
}

/* Narayanan et al. 2021, section 5.1: 12 l h^2 (1 + 13 / (12 h)) + V h + s h, and the last norm. */
static void gpt_has_its_closed_form(void **state)
{
    (void)state;
    ech_model m;
    ech_param_count c =
        count_of("layers=24,hidden=2304,heads=24,kv_heads=24,ffn=9216,vocab=51200,arch=gpt", &m);
    const int64_t h = 2304;
    const int64_t layers = 24 * (12 * h * h + 13 * h);
    assert_int_equal(c.total, layers + 51200 * h + 2048 * h + 2 * h);
    assert_true(m.is_context_open);
    ech_model_take_seq(&m, 4096);
    assert_ok(ech_model_count(&m, &c));
    assert_int_equal(c.total, layers + 51200 * h + 4096 * h + 2 * h);
    ech_findings findings = {0};
    ech_model_validate_seq(&m, 100000, &findings);
    assert_int_equal(findings.n, 0);
    c = count_of("layers=24,hidden=2304,heads=24,vocab=51200,arch=gpt2,context=512", &m);
    assert_int_equal(c.total, layers + 51200 * h + 512 * h + 2 * h);
    ech_model_take_seq(&m, 4096);
    assert_int_equal(m.context, 512);
    ech_model_validate_seq(&m, 513, &findings);
    assert_int_equal(findings.n, 1);
    ech_findings_fini(&findings);
}

static void llama_and_experts(void **state)
{
    (void)state;
    ech_model m;
    ech_param_count c =
        count_of("layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,arch=llama", &m);
    assert_int_equal(c.total, 8030261248); /* Llama-3-8B */
    c = count_of(
        "arch=llama,layers=32,hidden=4096,heads=32,kv_heads=8,vocab=32000,experts=8,topk=2,"
        "expert_ffn=14336",
        &m);
    assert_int_equal(c.total, 46702792704); /* Mixtral-8x7B */
    assert_near((double)c.active, 12.88e9, 5e6);
    c = count_of("preset=llama-3-8b,layers=16", &m);
    assert_int_equal(c.total, 8030261248 - 16 * (int64_t)218112000);
}

/* DeepSeek-V2-Lite as words, against its preset. */
static void latent_attention(void **state)
{
    (void)state;
    ech_model m;
    const ech_param_count c = count_of(
        "arch=llama,layers=27,hidden=2048,heads=16,ffn=10944,vocab=102400,experts=64,topk=6,"
        "expert_ffn=1408,shared_experts=2,first_dense=1,kv_lora_rank=512,qk_nope_dim=128,"
        "qk_rope_dim=64,v_dim=128",
        &m);
    assert_int_equal(c.total, 15706484224);
    assert_false(m.is_executable);
}

static void findings_come_together(void **state)
{
    (void)state;
    ech_model m = {.layers = 7};
    static const char *const wanted[] = {"unknown key 'hiden', nearest is 'hidden'",
                                         "'x' is not KEY=VALUE",
                                         "heads is given twice",
                                         "vocab is missing",
                                         "experts is missing",
                                         "ffn is '1 2'"};
    const char words[] = "layers=24,hiden=2304,heads=24,arch=gpt,x,topk=2,heads=3,ffn=1 2";
    assert_fails(ech_model_load(words, &m), ECH_E_CONFIG, "");
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_non_null(strstr(ech_error_message(), wanted[i]));
    assert_int_equal(m.layers, 7);
}

static void hostile_words(void **state)
{
    (void)state;
    static const char *const bad[] = {"=",
                                      "a=",
                                      "layers=",
                                      "layers=1,,hidden=2",
                                      "arch=gpt,layers={}",
                                      "arch=[",
                                      "arch=gpt}",
                                      "layers=1e999,arch=gpt",
                                      "arch=gpt,layers=-1,hidden=1,heads=1,vocab=1",
                                      "preset=nothing",
                                      "hf=/nowhere,layers=2",
                                      "layers=2\n,hidden=3",
                                      "arch=llama,moe=3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ech_model m;
        if (ech_model_from_words(bad[i], &m) >= 0)
            fail_msg("'%s' was read", bad[i]);
        assert_true(strlen(ech_error_message()) > 0);
    }
    char many[4096] = "arch=gpt";
    for (int i = 0; i < 300; i++)
        (void)strcat(many, ",layers=1");
    ech_model m;
    assert_fails(ech_model_from_words(many, &m), ECH_E_CONFIG, "layers is given twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_has_its_closed_form), cmocka_unit_test(llama_and_experts),
        cmocka_unit_test(latent_attention),        cmocka_unit_test(findings_come_together),
        cmocka_unit_test(hostile_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
