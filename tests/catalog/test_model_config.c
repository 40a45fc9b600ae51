/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "base/node.h"
#include "catalog/model.h"

/* Read a model map written as YAML; the findings stay in `words`. */
static char words[4096];

static int read_yaml(const char *yaml, ech_model *out)
{
    ech_node *node = NULL;
    ech_findings findings = {0};
    assert_ok(ech_node_parse_yaml(yaml, strlen(yaml), "test", &node));
    assert_ok(ech_model_from_config(node, ".", &findings, out));
    ech_node_destroy(&node);
    (void)snprintf(words, sizeof words, "%s", ech_text_get(&findings.text));
    const int n = findings.n;
    ech_findings_fini(&findings);
    return n;
}

static void assert_clean(const char *yaml, ech_model *out)
{
    if (read_yaml(yaml, out) != 0)
        fail_msg("%s: %s", yaml, words);
}

static void assert_says(const char *yaml, const char *wanted)
{
    ech_model m;
    if (read_yaml(yaml, &m) == 0)
        fail_msg("'%s' was taken", yaml);
    if (!strstr(words, wanted))
        fail_msg("'%s': '%s' does not say '%s'", yaml, words, wanted);
}

static void defaults_of_gpt2(void **state)
{
    (void)state;
    ech_model m;
    assert_clean("{arch: gpt2, layers: 2, hidden: 48, heads: 6, vocab: 100, context: 32}", &m);
    assert_int_equal(m.arch, ECH_ARCH_GPT2);
    assert_int_equal(m.kv_heads, 6);
    assert_int_equal(m.head_dim, 8);
    assert_int_equal(m.ffn, 192);
    assert_true(m.tie_embeddings && m.learned_positions && m.norm_bias && m.qkv_bias &&
                m.out_bias && m.mlp_bias);
    assert_int_equal(m.norm, ECH_NORM_LAYER);
    assert_int_equal(m.act, ECH_ACT_GELU_TANH);
    assert_near(m.norm_eps, 1e-5, 0.0);
    assert_near(m.dropout, 0.0, 0.0);
    assert_near(m.init_std, 0.02, 0.0);
    assert_int_equal(m.rope.kind, ECH_ROPE_NONE);
    assert_true(m.is_executable);
}

static void defaults_of_llama(void **state)
{
    (void)state;
    ech_model m;
    assert_clean("{arch: llama, layers: 2, hidden: 48, heads: 6, ffn: 80, vocab: 100, context: 32}",
                 &m);
    assert_int_equal(m.kv_heads, 6);
    assert_int_equal(m.norm, ECH_NORM_RMS);
    assert_int_equal(m.act, ECH_ACT_SWIGLU);
    assert_int_equal(m.rope.kind, ECH_ROPE_DEFAULT);
    assert_near(m.rope.theta, 10000.0, 0.0);
    assert_false(m.rope.interleaved || m.tie_embeddings || m.qkv_bias || m.norm_bias);
    assert_near(m.norm_eps, 1e-5, 0.0);
    assert_true(m.is_executable);
}

static void every_switch(void **state)
{
    (void)state;
    ech_model m;
    assert_clean(
        "{arch: llama, layers: 2, hidden: 48, heads: 6, kv_heads: 2, head_dim: 16, ffn: 80, "
        "vocab: 100, context: 32, norm: rmsnorm, norm_eps: 1e-6, act: swiglu, dropout: 0.1, "
        "window: 64, tie_embeddings: true, qk_norm: true, init_std: 0.01, "
        "rope: {kind: llama3, theta: 5.0e5, factor: 8, low_freq_factor: 1, "
        "high_freq_factor: 4, original_context: 16, layout: interleaved}}",
        &m);
    assert_int_equal(m.kv_heads, 2);
    assert_int_equal(m.head_dim, 16);
    assert_near(m.norm_eps, 1e-6, 0.0);
    assert_near(m.dropout, 0.1, 0.0);
    assert_int_equal(m.window, 64);
    assert_int_equal(m.rope.kind, ECH_ROPE_LLAMA3);
    assert_near(m.rope.theta, 5e5, 0.0);
    assert_near(m.rope.factor, 8.0, 0.0);
    assert_int_equal(m.rope.original_context, 16);
    assert_true(m.rope.interleaved && m.tie_embeddings && m.qk_norm && m.is_executable);
    assert_clean("{arch: llama, layers: 1, hidden: 48, heads: 6, ffn: 8, vocab: 10, context: 3, "
                 "rope: 20000}",
                 &m);
    assert_near(m.rope.theta, 20000.0, 0.0);
}

static void a_preset_and_what_changes_it(void **state)
{
    (void)state;
    ech_model m;
    assert_clean("{preset: gpt2-124m}", &m);
    assert_int_equal(m.layers, 12);
    assert_near(m.dropout, 0.0, 0.0);
    assert_clean("{preset: gpt2, layers: 1, hidden: 96, context: 64, dropout: 0.1}", &m);
    assert_int_equal(m.layers, 1);
    assert_int_equal(m.head_dim, 8);
    assert_int_equal(m.ffn, 384);
    assert_int_equal(m.context, 64);
    assert_true(m.is_executable);
    assert_clean("{preset: mixtral-8x7b}", &m);
    assert_false(m.is_executable);
    assert_says("{preset: gpt2-142m}", "nearest is gpt2-124m");
    assert_says("{preset: gpt2, arch: llama}", "exclude each other");
    assert_says("{hf: /nowhere/at/all}", "no such file");
}

static void not_built_is_no_finding(void **state)
{
    (void)state;
    ech_model m;
    assert_clean("{arch: llama, layers: 2, hidden: 48, heads: 6, ffn: 80, vocab: 100, context: 32, "
                 "moe: {experts: 4, topk: 2, expert_ffn: 24, shared_experts: 2, first_dense: 1, "
                 "score: sigmoid, mode: drop, capacity: 1.25, aux: 0.01}}",
                 &m);
    assert_false(m.is_executable);
    assert_non_null(strstr(m.not_executable, "experts"));
    assert_int_equal(m.moe.shared_ffn, 48);
    assert_false(ech_model_is_sparse(&m, 0));
    assert_true(ech_model_is_sparse(&m, 1));
    assert_clean("{arch: llama, layers: 2, hidden: 48, heads: 6, ffn: 80, vocab: 100, context: 32, "
                 "window: 16}",
                 &m);
    assert_non_null(strstr(m.not_executable, "window"));
    assert_clean("{arch: gpt2, layers: 2, hidden: 48, heads: 6, vocab: 100, context: 32, "
                 "norm: rmsnorm}",
                 &m);
    assert_non_null(strstr(m.not_executable, "rmsnorm"));
    assert_clean("{preset: tinyllama-1.1b, act: geglu}", &m);
    assert_int_equal(m.act, ECH_ACT_GEGLU);
    assert_non_null(strstr(m.not_executable, "swiglu"));
    assert_clean("{preset: gpt2, act: gelu}", &m);
    assert_non_null(strstr(m.not_executable, "gelu_tanh"));
    assert_clean("{preset: gpt2, rope: {partial: 0.5}}", &m);
    assert_false(m.is_executable);
}

static void all_findings_at_once(void **state)
{
    (void)state;
    ech_model m;
    const char *yaml = "arch: llama\nlayers: -1\nhiden: 48\nhidden: 48\nheads: 7\n"
                       "vocab: many\ncontext: 2.5\nact: swishglu\nrope: {kind: yarm}\n";
    assert_true(read_yaml(yaml, &m) >= 8);
    const char *const wanted[] = {"unknown key 'hiden', nearest is 'hidden' (line 3, column",
                                  "layers is -1",
                                  "vocab is 'many'",
                                  "context is 2.5",
                                  "ffn is missing",
                                  "multiple of heads 7: nearest is heads 6",
                                  "act is 'swishglu'",
                                  "nearest is swiglu",
                                  "kind is 'yarm'"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!strstr(words, wanted[i]))
            fail_msg("'%s' does not say '%s'", words, wanted[i]);
    assert_says("{layers: 2}", "arch is missing");
    assert_says("[1]", "wanted a map");
    assert_says("{arch: gpt3}", "nearest is gpt2");
}

static void impossible_sizes(void **state)
{
    (void)state;
#define SHAPE "arch: llama, layers: 2, hidden: 48, heads: 6, ffn: 80, vocab: 100, context: 32"
    assert_says("{" SHAPE ", kv_heads: 4}", "nearest is 3");
    assert_says("{" SHAPE ", head_dim: 9}", "even");
    assert_says("{" SHAPE ", dropout: 1.0}", "below 1");
    assert_says("{" SHAPE ", moe: {experts: 2, topk: 3, expert_ffn: 8}}", "nearest is 2");
    assert_says("{" SHAPE ", moe: {experts: 2}}", "topk is missing");
    assert_says("{" SHAPE ", moe: {expert: 2}}", "nearest is 'experts'");
    assert_says("{" SHAPE ", rope: {theta: -1}}", "theta is -1");
    assert_says("{arch: gpt2, layers: 2, hidden: 48, heads: 6, head_dim: 6, vocab: 10, context: 4}",
                "head_dim is 6");
    assert_says("{arch: llama, layers: 4000, hidden: 2000000000, heads: 2, ffn: 2000000000, "
                "vocab: 9, context: 4}",
                "64 bits");
}

static void a_sequence_longer_than_the_positions(void **state)
{
    (void)state;
    const char *const yaml[] = {
        "{arch: gpt2, layers: 1, hidden: 8, heads: 2, vocab: 9, context: 64}",
        "{arch: llama, layers: 1, hidden: 8, heads: 2, ffn: 8, vocab: 9, "
        "context: 64}"};
    for (int i = 0; i < 2; i++) {
        ech_model m;
        ech_findings findings = {0};
        assert_clean(yaml[i], &m);
        ech_model_validate_seq(&m, 64, &findings);
        ech_model_validate_seq(&m, 1, &findings);
        assert_int_equal(findings.n, 0);
        ech_model_validate_seq(&m, 65, &findings);
        assert_int_equal(findings.n, 1);
        assert_non_null(strstr(ech_text_get(&findings.text), "64 at most"));
        ech_model_validate_seq(&m, 0, &findings);
        assert_int_equal(findings.n, 2);
        ech_findings_fini(&findings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_of_gpt2),
        cmocka_unit_test(defaults_of_llama),
        cmocka_unit_test(every_switch),
        cmocka_unit_test(a_preset_and_what_changes_it),
        cmocka_unit_test(not_built_is_no_finding),
        cmocka_unit_test(all_findings_at_once),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(a_sequence_longer_than_the_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
