/* RUN: np=1 timeout=20 tags=fast */
#include "check.h"

#include "base/node.h"
#include "catalog/family.h"

/* A small Llama with more keys added in front; later duplicates are not written. */
#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"                         \
    "\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":100"
#define DEEPSEEK                                                                                   \
    "\"num_hidden_layers\":4,\"hidden_size\":64,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":96,\"vocab_size\":100,\"n_routed_experts\":8,"                          \
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":16,\"kv_lora_rank\":12,"                  \
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":5"

static ech_status read_json(const char *json, ech_model *out)
{
    ech_node *node = NULL;
    ECH_TRY(ech_node_parse_json(json, strlen(json), "test", &node));
    const ech_status st = ech_model_from_hf(node, "test", out);
    ech_node_destroy(&node);
    return st;
}

static int64_t total(const ech_model *m)
{
    ech_param_count c;
    assert_ok(ech_model_count(m, &c));
    return c.total;
}

static void what_is_left_out(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(read_json("{" LLAMA "}", &m));
    assert_int_equal(m.kv_heads, 8);
    assert_int_equal(m.head_dim, 8);
    assert_int_equal(m.context, 2048);
    assert_false(m.tie_embeddings);
    assert_near(m.rope.theta, 10000.0, 0.0);
    assert_true(m.is_executable);
    assert_int_equal(total(&m), 2 * 100 * 64 + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64));
    assert_ok(read_json("{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2,"
                        "\"vocab_size\":10,\"n_inner\":null}",
                        &m));
    assert_true(m.tie_embeddings);
    assert_int_equal(m.ffn, 32);
    assert_int_equal(m.context, 1024);
    assert_near(m.dropout, 0.1, 0.0);
}

static void numbers_as_they_come(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(read_json("{" LLAMA ",\"rope_theta\":10000,\"max_position_embeddings\":4096.0,"
                        "\"num_key_value_heads\":2.0,\"head_dim\":null}",
                        &m));
    assert_int_equal(m.context, 4096);
    assert_int_equal(m.kv_heads, 2);
    assert_fails(read_json("{" LLAMA ",\"num_key_value_heads\":2.5}", &m), ECH_E_CONFIG,
                 "num_key_value_heads is 2.5");
}

static void rope_old_and_new(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(
        read_json("{" LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":"
                  "\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                  "\"original_max_position_embeddings\":8192}}",
                  &m));
    assert_int_equal(m.rope.kind, ECH_ROPE_LLAMA3);
    assert_int_equal(m.rope.original_context, 8192);
    assert_near(m.rope.factor, 8.0, 0.0);
    assert_true(m.is_executable);
    assert_ok(read_json("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,"
                        "\"rope_theta\":7000.0}}",
                        &m));
    assert_int_equal(m.rope.kind, ECH_ROPE_LINEAR);
    assert_near(m.rope.theta, 7000.0, 0.0);
    assert_ok(read_json("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0}}", &m));
    assert_int_equal(m.rope.kind, ECH_ROPE_OTHER);
    assert_false(m.is_executable);
    assert_non_null(strstr(m.not_executable, "yarn"));
    assert_fails(read_json("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", &m), ECH_E_CONFIG,
                 "factor is missing");
}

static void a_descendant_is_known_by_its_class(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(read_json("{\"model_type\":\"kimi_k2\",\"architectures\":[\"DeepseekV3ForCausalLM\"],"
                        "\"q_lora_rank\":null,\"first_k_dense_replace\":1,"
                        "\"n_shared_experts\":2," DEEPSEEK "}",
                        &m));
    assert_string_equal(m.family, "deepseek_v3");
    /* attention: plain q, kv down with its norm, kv up, out; four layers, three of them sparse */
    const int64_t attention = 40 * 64 + 16 * 64 + 12 + 4 * 11 * 12 + 64 * 20 + 2 * 64;
    const int64_t sparse = 8 * 64 + 8 + (8 + 2) * 3 * 64 * 16;
    assert_int_equal(total(&m), 2 * 6400 + 64 + 4 * attention + 3 * 64 * 96 + 3 * sparse);
    assert_fails(read_json("{\"model_type\":\"lama\"," DEEPSEEK "}", &m), ECH_E_CONFIG,
                 "nearest is 'llama'");
    assert_fails(read_json("{}", &m), ECH_E_CONFIG, "model_type");
}

static void latent_queries_by_key(void **state)
{
    (void)state;
    ech_model with;
    ech_model without;
    assert_ok(read_json("{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":10," DEEPSEEK "}", &with));
    assert_ok(
        read_json("{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null," DEEPSEEK "}", &without));
    /* q: 40 x 64 against 10 x 64 + norm 10 + 40 x 10, in each of four layers */
    assert_int_equal(total(&without) - total(&with), 4 * (2560 - 640 - 10 - 400));
    assert_ok(read_json("{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null,"
                        "\"moe_layer_freq\":2," DEEPSEEK "}",
                        &with));
    assert_true(ech_model_is_sparse(&with, 0) && !ech_model_is_sparse(&with, 1) &&
                ech_model_is_sparse(&with, 2) && !ech_model_is_sparse(&with, 3));
}

static void dense_layers_among_sparse(void **state)
{
    (void)state;
    ech_model m;
    ech_param_count c;
    assert_ok(read_json("{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":6,\"hidden_size\":64,"
                        "\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":100,"
                        "\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":16,"
                        "\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,3,-1,77]}",
                        &m));
    const bool sparse[6] = {false, true, false, false, false, true};
    for (int i = 0; i < 6; i++)
        assert_int_equal(ech_model_is_sparse(&m, i), sparse[i]);
    assert_ok(ech_model_count(&m, &c));
    assert_int_equal(c.per_layer_last - c.per_layer_first, 4 * 64 + 4 * 3 * 64 * 16 - 3 * 64 * 96);
    assert_int_equal(c.total - c.active, 2 * 2 * 3 * 64 * 16);
}

static void a_multimodal_file(void **state)
{
    (void)state;
    ech_model m;
    /* the inner map states what differs from its class, as LLaVA's files do */
    assert_ok(read_json("{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\","
                        "\"vocab_size\":32064,\"max_position_embeddings\":4096}}",
                        &m));
    assert_int_equal(total(&m), INT64_C(6738415616) + 2 * 64 * 4096);
    assert_ok(read_json("{\"model_type\":\"x\",\"tie_word_embeddings\":true,"
                        "\"text_config\":{" LLAMA "}}",
                        &m));
    assert_true(m.tie_embeddings);
}

static void windows(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(read_json("{\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                        "\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":100,"
                        "\"max_position_embeddings\":512,\"sliding_window\":128}",
                        &m));
    assert_int_equal(m.window, 128);
    assert_int_equal(m.window_layers, 2);
    assert_false(m.is_executable);
    assert_non_null(strstr(m.not_executable, "128"));
    assert_ok(read_json("{\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                        "\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":100,"
                        "\"max_position_embeddings\":512,\"sliding_window\":512}",
                        &m));
    assert_true(m.is_executable);
    assert_ok(read_json("{\"model_type\":\"qwen2\",\"num_hidden_layers\":4,\"hidden_size\":64,"
                        "\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":100,"
                        "\"use_sliding_window\":true,\"sliding_window\":16,"
                        "\"max_window_layers\":3}",
                        &m));
    assert_int_equal(m.window_layers, 1);
}

static void all_findings_at_once(void **state)
{
    (void)state;
    ech_model m;
    const char *json = "{\"model_type\":\"llama\",\"num_hidden_layers\":-3,\"hidden_size\":\"64\","
                       "\"num_attention_heads\":true,\"vocab_size\":1e300,"
                       "\"rms_norm_eps\":\"small\",\"tie_word_embeddings\":1,"
                       "\"rope_scaling\":\"yes\",\"layer_types\":[\"mamba\"]}";
    m.layers = 77;
    assert_fails(read_json(json, &m), ECH_E_CONFIG, "num_hidden_layers is -3");
    const char *const words[] = {"hidden_size is '64'",
                                 "num_attention_heads is true",
                                 "vocab_size is 1e+300",
                                 "rms_norm_eps",
                                 "tie_word_embeddings is 1",
                                 "rope_scaling is 'yes'",
                                 "mamba"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strstr(ech_error_message(), words[i]))
            fail_msg("'%s' does not say '%s'", ech_error_message(), words[i]);
    assert_int_equal(m.layers, 77); /* untouched */
}

static void impossible_relations(void **state)
{
    (void)state;
    ech_model m;
    assert_fails(read_json("{" LLAMA ",\"num_key_value_heads\":3}", &m), ECH_E_CONFIG,
                 "nearest is 2");
    assert_fails(read_json("{" LLAMA ",\"head_dim\":7}", &m), ECH_E_CONFIG, "even");
    assert_fails(read_json("{" LLAMA ",\"n_embd\":65}", &m), ECH_E_CONFIG, "mean the same");
    assert_fails(read_json("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                           "\"num_attention_heads\":7,\"intermediate_size\":96,"
                           "\"vocab_size\":100}",
                           &m),
                 ECH_E_CONFIG, "nearest is 8 heads");
    assert_fails(read_json("{\"model_type\":\"llama\",\"num_hidden_layers\":4000,"
                           "\"hidden_size\":2000000000,\"num_attention_heads\":2,"
                           "\"intermediate_size\":2000000000,\"vocab_size\":2000000000}",
                           &m),
                 ECH_E_CONFIG, "64 bits");
    assert_fails(read_json("{\"model_type\":\"llama\",\"num_hidden_layers\":2000000000,"
                           "\"hidden_size\":64,\"num_attention_heads\":2,"
                           "\"intermediate_size\":20,\"vocab_size\":20}",
                           &m),
                 ECH_E_CONFIG, "at most 4096");
    assert_fails(read_json("[1,2]", &m), ECH_E_CONFIG, "wanted an object");
    assert_fails(read_json("{\"model_type\":\"mixtral\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                           "\"num_attention_heads\":8,\"intermediate_size\":96,\"vocab_size\":100,"
                           "\"num_local_experts\":4,\"num_experts_per_tok\":5}",
                           &m),
                 ECH_E_CONFIG, "topk is 5");
}

/* What would change the numbers silently is refused for running, never for counting. */
static void known_but_not_run(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(read_json("{" LLAMA ",\"mlp_bias\":true}", &m));
    assert_false(m.is_executable);
    assert_ok(read_json("{" LLAMA ",\"hidden_act\":\"relu2\"}", &m));
    assert_non_null(strstr(m.not_executable, "relu2"));
    assert_ok(read_json("{" LLAMA ",\"hidden_act\":\"gelu_pytorch_tanh\"}", &m));
    assert_int_equal(m.act, ECH_ACT_GEGLU);
    assert_false(m.is_executable);
    assert_ok(read_json("{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2,"
                        "\"vocab_size\":10,\"activation_function\":\"relu\"}",
                        &m));
    assert_false(m.is_executable);
    assert_ok(read_json("{" LLAMA ",\"attention_dropout\":0.1}", &m));
    assert_non_null(strstr(m.not_executable, "dropout"));
    assert_ok(read_json("{" LLAMA ",\"partial_rotary_factor\":0.5}", &m));
    assert_false(m.is_executable);
    assert_ok(read_json("{" LLAMA ",\"attention_bias\":true}", &m));
    assert_true(m.is_executable && m.qkv_bias && m.out_bias);
}

static void every_family_has_its_name(void **state)
{
    (void)state;
    size_t n;
    const char *const *names = ech_family_names(&n);
    assert_int_equal(n, 23);
    for (size_t i = 0; i < n; i++) {
        const ech_family *family = ech_family_find(names[i]);
        char class[64];
        assert_non_null(family);
        assert_string_equal(family->model_type, names[i]);
        (void)snprintf(class, sizeof class, "%sForCausalLM", family->class_stem);
        assert_ptr_equal(ech_family_of_class(class), family);
    }
    assert_null(ech_family_of_class("DeepseekV32ForCausalLM")); /* has more than V3 */
    assert_string_equal(ech_family_find("phi-msft")->model_type, "phi");
}

#define OPT                                                                                        \
    "\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":32,"                           \
    "\"num_attention_heads\":4,\"ffn_dim\":64,\"vocab_size\":97"
#define FALCON                                                                                     \
    "\"model_type\":\"falcon\",\"num_hidden_layers\":2,\"hidden_size\":48,"                        \
    "\"num_attention_heads\":6,\"vocab_size\":97"
#define DBRX "\"model_type\":\"dbrx\",\"n_layers\":2,\"d_model\":48,\"n_heads\":6,\"vocab_size\":97"

static void keys_of_one_family_alone(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(read_json("{" OPT ",\"word_embed_proj_dim\":16,\"do_layer_norm_before\":false}", &m));
    assert_true(m.no_final_norm && m.learned_positions && !m.is_executable);
    assert_int_equal(m.embed_dim, 16);
    assert_int_equal(m.position_extra, 2);
    assert_int_equal(m.act, ECH_ACT_RELU);
    assert_ok(read_json("{" OPT ",\"word_embed_proj_dim\":32}", &m));
    assert_int_equal(m.embed_dim, 0);
    assert_ok(read_json("{" FALCON "}", &m)); /* one key and value head, one norm */
    assert_int_equal(m.kv_heads, 1);
    assert_true(m.parallel_norms && m.tie_embeddings && m.rope.kind == ECH_ROPE_DEFAULT);
    assert_ok(read_json("{" FALCON ",\"new_decoder_architecture\":true,\"num_kv_heads\":2}", &m));
    assert_int_equal(m.kv_heads, 2);
    assert_false(m.parallel_norms);
    assert_ok(read_json("{" FALCON ",\"alibi\":true,\"bias\":true}", &m));
    assert_true(m.alibi && m.qkv_bias && m.out_bias && m.mlp_bias);
    assert_int_equal(m.rope.kind, ECH_ROPE_NONE);
    assert_ok(read_json("{" DBRX ",\"attn_config\":{\"kv_n_heads\":2,\"rope_theta\":500000},"
                        "\"ffn_config\":{\"ffn_hidden_size\":40,\"moe_num_experts\":5,"
                        "\"moe_top_k\":2}}",
                        &m));
    assert_int_equal(m.kv_heads, 2);
    assert_int_equal(m.moe.experts, 5);
    assert_int_equal(m.moe.expert_ffn, 40);
    assert_near(m.rope.theta, 500000, 0);
    assert_false(m.norm_bias);
    /* the first Falcons, before they had a family */
    assert_ok(
        read_json("{\"model_type\":\"RefinedWeb\",\"n_layer\":2,\"hidden_size\":48,\"n_head\":6,"
                  "\"n_head_kv\":3,\"vocab_size\":97,\"bias\":false}",
                  &m));
    assert_int_equal(m.kv_heads, 3);
    assert_false(m.parallel_norms);
    assert_ok(read_json("{\"model_type\":\"RefinedWebModel\",\"n_layer\":2,\"hidden_size\":48,"
                        "\"n_head\":6,\"multi_query\":true,\"vocab_size\":97}",
                        &m));
    assert_int_equal(m.kv_heads, 1);
}

static void wrong_keys_of_one_family_alone(void **state)
{
    (void)state;
    ech_model m;
    static const char *const bad[][2] = {
        {"{" OPT ",\"layer_norm_elementwise_affine\":false}", "norms without weights"},
        {"{" OPT ",\"word_embed_proj_dim\":-3}", "word_embed_proj_dim is -3"},
        {"{" OPT ",\"enable_bias\":1}", "enable_bias is 1"},
        {"{" FALCON ",\"num_kv_heads\":0,\"new_decoder_architecture\":true}", "num_kv_heads is 0"},
        {"{" FALCON ",\"num_kv_heads\":4,\"new_decoder_architecture\":true}",
         "must divide heads 6"},
        {"{" FALCON ",\"multi_query\":\"yes\"}", "multi_query is 'yes'"},
        {"{" FALCON ",\"ffn_hidden_size\":1e300}", "ffn_hidden_size is 1e+300"},
        {"{" DBRX ",\"attn_config\":7}", "attn_config is 7"},
        {"{" DBRX ",\"ffn_config\":{\"moe_num_experts\":2,\"moe_top_k\":3}}", "topk is 3"},
        {"{" DBRX ",\"ffn_config\":{\"ffn_hidden_size\":null,\"moe_num_experts\":0}}",
         "moe_num_experts is 0"},
        {"{\"model_type\":\"bloom\",\"n_layer\":2,\"hidden_size\":1000000000,\"n_head\":1,"
         "\"vocab_size\":9}",
         "at most"},
        {"{\"model_type\":\"bloom\",\"n_layer\":2,\"hidden_size\":64,\"n_embed\":32,\"n_head\":1,"
         "\"vocab_size\":9}",
         "they mean the same"},
        {"{\"model_type\":\"falcons\",\"n_layer\":2}", "nearest is 'falcon'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_fails(read_json(bad[i][0], &m), ECH_E_CONFIG, bad[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out),
        cmocka_unit_test(keys_of_one_family_alone),
        cmocka_unit_test(wrong_keys_of_one_family_alone),
        cmocka_unit_test(numbers_as_they_come),
        cmocka_unit_test(rope_old_and_new),
        cmocka_unit_test(a_descendant_is_known_by_its_class),
        cmocka_unit_test(latent_queries_by_key),
        cmocka_unit_test(dense_layers_among_sparse),
        cmocka_unit_test(a_multimodal_file),
        cmocka_unit_test(windows),
        cmocka_unit_test(all_findings_at_once),
        cmocka_unit_test(impossible_relations),
        cmocka_unit_test(known_but_not_run),
        cmocka_unit_test(every_family_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
