/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "base/io.h"
#include "base/node.h"
#include "catalog/model.h"
#include "folder.h"

/* Write m to a folder's config.json and read it back. */
static void round_trip(void **state, const ech_model *m, ech_model *out, const char *family)
{
    ech_text text = {0};
    assert_ok(ech_model_to_hf(m, NULL, &text));
    assert_ok(ech_write_whole(in_folder(state, "config.json"), text.data, text.bytes));
    ech_text_fini(&text);
    assert_ok(ech_model_load(*(const char **)state, out));
    assert_string_equal(out->family, family);
}

static void assert_same(const ech_model *a, const ech_model *b)
{
    assert_int_equal(a->arch, b->arch);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->hidden, b->hidden);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->ffn, b->ffn);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->norm, b->norm);
    assert_int_equal(a->act, b->act);
    assert_near(a->norm_eps, b->norm_eps, 0.0);
    assert_near(a->init_std, b->init_std, 0.0);
    assert_near(a->dropout, b->dropout, 0.0);
    assert_int_equal(a->rope.kind, b->rope.kind);
    assert_near(a->rope.theta, b->rope.theta, 0.0);
    assert_near(a->rope.factor, b->rope.factor, 0.0);
    assert_near(a->rope.low_freq_factor, b->rope.low_freq_factor, 0.0);
    assert_near(a->rope.high_freq_factor, b->rope.high_freq_factor, 0.0);
    assert_int_equal(a->rope.original_context, b->rope.original_context);
    assert_int_equal(a->qkv_bias, b->qkv_bias);
    assert_int_equal(a->out_bias, b->out_bias);
    assert_int_equal(a->qk_norm, b->qk_norm);
    assert_int_equal(a->tie_embeddings, b->tie_embeddings);
    assert_int_equal(a->window, b->window);
    assert_true(a->is_executable && b->is_executable);
}

static ech_model small(ech_arch arch)
{
    ech_model m = ech_model_default(arch);
    m.layers = 2;
    m.hidden = 24;
    m.heads = 4;
    m.kv_heads = arch == ECH_ARCH_GPT2 ? 4 : 2;
    m.head_dim = 6;
    m.ffn = 40;
    m.vocab = 50;
    m.context = 16;
    return m;
}

static void gpt2(void **state)
{
    ech_model back;
    ech_model m = small(ECH_ARCH_GPT2);
    m.dropout = 0.25;
    m.init_std = 0.013;
    round_trip(state, &m, &back, "gpt2");
    assert_same(&m, &back);
    m.tie_embeddings = false;
    round_trip(state, &m, &back, "gpt2");
    assert_same(&m, &back);
}

static void llama_and_kin(void **state)
{
    ech_model back;
    ech_model m = small(ECH_ARCH_LLAMA);
    round_trip(state, &m, &back, "llama");
    assert_same(&m, &back);
    m.head_dim = 8; /* not hidden / heads */
    m.rope.kind = ECH_ROPE_LLAMA3;
    m.rope.factor = 8.0;
    m.rope.low_freq_factor = 1.0;
    m.rope.high_freq_factor = 4.0;
    m.rope.original_context = 8;
    m.dropout = 0.1;
    m.tie_embeddings = true;
    round_trip(state, &m, &back, "llama");
    assert_same(&m, &back);
    m.rope = small(ECH_ARCH_LLAMA).rope;
    m.rope.kind = ECH_ROPE_LINEAR;
    m.rope.factor = 2.5;
    m.qkv_bias = true;
    round_trip(state, &m, &back, "qwen2");
    assert_same(&m, &back);
    m.out_bias = true;
    round_trip(state, &m, &back, "llama");
    assert_same(&m, &back);
    m.qk_norm = true;
    round_trip(state, &m, &back, "qwen3");
    assert_same(&m, &back);
    m = small(ECH_ARCH_LLAMA);
    strcpy(m.family, "mistral");
    round_trip(state, &m, &back, "mistral"); /* without a window, though its class has one */
    assert_same(&m, &back);
    m.window = 16;
    m.window_layers = m.layers;
    round_trip(state, &m, &back, "mistral");
    assert_same(&m, &back);
}

static void what_has_no_form_is_refused(void **state)
{
    (void)state;
    ech_text text = {0};
    ech_model m = small(ECH_ARCH_LLAMA);
    m.qk_norm = true;
    m.qkv_bias = true;
    assert_fails(ech_model_to_hf(&m, NULL, &text), ECH_E_UNSUPPORTED, "no HF family");
    m = small(ECH_ARCH_GPT2);
    m.kv_heads = 2;
    assert_fails(ech_model_to_hf(&m, NULL, &text), ECH_E_UNSUPPORTED, "gpt2 has no such");
    assert_ok(ech_model_load("deepseek-v3", &m));
    assert_fails(ech_model_to_hf(&m, NULL, &text), ECH_E_UNSUPPORTED, "latent");
    assert_int_equal(text.bytes, 0);
    ech_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpt2, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(llama_and_kin, folder_setup, folder_teardown),
        cmocka_unit_test(what_has_no_form_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
