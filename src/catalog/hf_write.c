/* A model as an HF config.json.  The HF family is the one whose switches are the model's. */
#include "catalog/model.h"

#include <inttypes.h>
#include <string.h>

/* One "key": value with its comma. */
static void put_int(ech_text *t, const char *key, int64_t value)
{
    ech_text_add(t, "  \"%s\": %" PRId64 ",\n", key, value);
}

/* Always with a point or an exponent: Transformers wants 8.0 where a float is due. */
static void add_real(ech_text *t, double value)
{
    const size_t before = t->bytes;
    ech_text_add_double(t, value);
    if (!t->failed && !strpbrk(t->data + before, ".e"))
        ech_text_add(t, ".0");
}

static void put_real(ech_text *t, const char *key, double value)
{
    ech_text_add(t, "  \"%s\": ", key);
    add_real(t, value);
    ech_text_add(t, ",\n");
}

static void put_string(ech_text *t, const char *key, const char *value)
{
    ech_text_add(t, "  \"%s\": \"%s\",\n", key, value);
}

static void put_bool(ech_text *t, const char *key, bool value)
{
    ech_text_add(t, "  \"%s\": %s,\n", key, value ? "true" : "false");
}

static void put_head(ech_text *t, const char *type, const char *class)
{
    ech_text_add(t, "{\n  \"architectures\": [\"%s\"],\n", class);
    put_string(t, "model_type", type);
}

/* What every family has; the ids are the tokenizer's to say. */
static void put_tail(const ech_model *m, const char *torch_dtype, ech_text *t)
{
    if (torch_dtype)
        put_string(t, "torch_dtype", torch_dtype);
    put_int(t, "vocab_size", m->vocab);
    put_real(t, "initializer_range", m->init_std);
    put_bool(t, "tie_word_embeddings", m->tie_embeddings);
    put_real(t, "embd_pdrop", m->dropout);
    put_real(t, "resid_pdrop", m->dropout);
    ech_text_add(t, "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n"
                    "  \"use_cache\": true\n}\n");
}

static const char *activation(ech_act act)
{
    switch (act) {
    case ECH_ACT_GELU_TANH:
        return "gelu_new";
    case ECH_ACT_GELU:
        return "gelu";
    case ECH_ACT_RELU:
        return "relu";
    case ECH_ACT_SWIGLU:
        return "silu";
    case ECH_ACT_GEGLU:
        return "gelu_pytorch_tanh";
    }
    return "";
}

static ech_status write_gpt2(const ech_model *m, const char *torch_dtype, ech_text *t)
{
    ECH_CHECK(m->learned_positions && m->norm == ECH_NORM_LAYER && m->kv_heads == m->heads &&
                  m->heads * m->head_dim == m->hidden && m->qkv_bias && m->out_bias &&
                  m->mlp_bias && !m->qk_norm && m->act != ECH_ACT_SWIGLU && m->act != ECH_ACT_GEGLU,
              ECH_E_UNSUPPORTED, "model '%s': HF's gpt2 has no such switches", m->name);
    put_head(t, "gpt2", "GPT2LMHeadModel");
    put_int(t, "n_layer", m->layers);
    put_int(t, "n_embd", m->hidden);
    put_int(t, "n_head", m->heads);
    put_int(t, "n_inner", m->ffn);
    put_int(t, "n_positions", m->context);
    put_int(t, "n_ctx", m->context);
    put_string(t, "activation_function", activation(m->act));
    put_real(t, "layer_norm_epsilon", m->norm_eps);
    put_real(t, "attn_pdrop", m->dropout);
    put_tail(m, torch_dtype, t);
    return ECH_OK;
}

/* The Llama-like family whose biases and norms are the model's. */
typedef struct llama_family {
    const char *type;
    const char *class;
    bool has_attention_bias_key;
} llama_family;

static ech_status choose_family(const ech_model *m, llama_family *out)
{
    if (m->qk_norm && m->qkv_bias == m->out_bias)
        *out = (llama_family){"qwen3", "Qwen3ForCausalLM", true};
    else if (!m->qk_norm && m->qkv_bias && !m->out_bias)
        *out = (llama_family){"qwen2", "Qwen2ForCausalLM", false};
    else if (!m->qk_norm && !m->qkv_bias && !m->out_bias && strcmp(m->family, "mistral") == 0)
        *out = (llama_family){"mistral", "MistralForCausalLM", false};
    else if (!m->qk_norm && m->qkv_bias == m->out_bias)
        *out = (llama_family){"llama", "LlamaForCausalLM", true};
    else
        return ECH_RAISE(ECH_E_UNSUPPORTED,
                         "model '%s': no HF family has qk_norm %d, qkv_bias %d and out_bias %d "
                         "together",
                         m->name, m->qk_norm, m->qkv_bias, m->out_bias);
    return ECH_OK;
}

/* A window that can be run reaches over the whole context, so only the family with a default for it
 * has to hear of it. */
static void put_window(const ech_model *m, const llama_family *family, ech_text *t)
{
    if (strcmp(family->type, "mistral") != 0)
        return;
    if (m->window > 0)
        put_int(t, "sliding_window", m->window);
    else
        ech_text_add(t, "  \"sliding_window\": null,\n");
}

static void put_rope(const ech_rope *rope, ech_text *t)
{
    put_real(t, "rope_theta", rope->theta);
    if (rope->kind == ECH_ROPE_DEFAULT) {
        ech_text_add(t, "  \"rope_scaling\": null,\n");
        return;
    }
    ech_text_add(t, "  \"rope_scaling\": {\"rope_type\": \"%s\", \"factor\": ",
                 rope->kind == ECH_ROPE_LINEAR ? "linear" : "llama3");
    add_real(t, rope->factor);
    if (rope->kind == ECH_ROPE_LLAMA3) {
        ech_text_add(t, ", \"low_freq_factor\": ");
        add_real(t, rope->low_freq_factor);
        ech_text_add(t, ", \"high_freq_factor\": ");
        add_real(t, rope->high_freq_factor);
        ech_text_add(t, ", \"original_max_position_embeddings\": %" PRId64, rope->original_context);
    }
    ech_text_add(t, "},\n");
}

static ech_status write_llama(const ech_model *m, const char *torch_dtype, ech_text *t)
{
    llama_family family = {0};
    ECH_CHECK(m->norm == ECH_NORM_RMS && !m->mlp_bias && m->rope.kind != ECH_ROPE_NONE &&
                  m->rope.kind != ECH_ROPE_OTHER && m->rope.partial == 1.0 &&
                  (m->act == ECH_ACT_SWIGLU || m->act == ECH_ACT_GEGLU),
              ECH_E_UNSUPPORTED, "model '%s': HF's llama has no such switches", m->name);
    ECH_TRY(choose_family(m, &family));
    put_head(t, family.type, family.class);
    put_int(t, "num_hidden_layers", m->layers);
    put_int(t, "hidden_size", m->hidden);
    put_int(t, "num_attention_heads", m->heads);
    put_int(t, "num_key_value_heads", m->kv_heads);
    put_int(t, "head_dim", m->head_dim);
    put_int(t, "intermediate_size", m->ffn);
    put_int(t, "max_position_embeddings", m->context);
    put_string(t, "hidden_act", activation(m->act));
    put_real(t, "rms_norm_eps", m->norm_eps);
    put_rope(&m->rope, t);
    if (family.has_attention_bias_key)
        put_bool(t, "attention_bias", m->qkv_bias);
    put_window(m, &family, t);
    put_real(t, "attention_dropout", m->dropout);
    put_tail(m, torch_dtype, t);
    return ECH_OK;
}

ech_status ech_model_to_hf(const ech_model *m, const char *torch_dtype, ech_text *out)
{
    ECH_CHECK(m->is_executable, ECH_E_UNSUPPORTED, "model '%s' is not written: %s", m->name,
              m->not_executable);
    ECH_TRY(m->arch == ECH_ARCH_GPT2 ? write_gpt2(m, torch_dtype, out)
                                     : write_llama(m, torch_dtype, out));
    ECH_CHECK(!out->failed, ECH_E_NOMEM, "no memory for a config.json");
    return ECH_OK;
}
