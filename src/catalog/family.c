#include "catalog/family.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOE_NOT_BUILT   "mixture of experts is not built yet"
#define GEMMA_NOT_BUILT "Gemma's scaled embeddings and shifted norms are not built yet"
#define PHI_NOT_BUILT   "one norm for attention and MLP together is not built yet"
#define MLA_NOT_BUILT   "latent attention with experts is not built yet"

static const ech_family families[] = {
    {.model_type = "gpt2",
     .sizes = {12, 768, 12, 0, 3072, 50257},
     .class_stem = "GPT2",
     .arch = ECH_ARCH_GPT2,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_GELU_TANH,
     .is_tied = true,
     .learned_positions = true,
     .qkv_bias = true,
     .out_bias = true,
     .mlp_bias = true,
     .has_ffn_default = true,
     .no_head_dim_key = true,
     .no_groups_key = true,
     .context = 1024,
     .eps = 1e-5},
    {.model_type = "gptj",
     .sizes = {28, 4096, 16, 0, 16384, 50400},
     .class_stem = "GPTJ",
     .arch = ECH_ARCH_GPT2,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_GELU_TANH,
     .mlp_bias = true,
     .head_bias = true,
     .parallel_norms = true,
     .has_ffn_default = true,
     .no_head_dim_key = true,
     .no_groups_key = true,
     .context = 2048,
     .eps = 1e-5,
     .interleaved = true,
     .not_executable = PHI_NOT_BUILT},
    {.model_type = "gpt_neox",
     .sizes = {44, 6144, 64, 0, 24576, 50432},
     .class_stem = "GPTNeoX",
     .arch = ECH_ARCH_GPT2,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_GELU,
     .qkv_bias = true,
     .out_bias = true,
     .mlp_bias = true,
     .bias_key = ECH_BIAS_ATTENTION,
     .no_head_dim_key = true,
     .no_groups_key = true,
     .context = 2048,
     .eps = 1e-5,
     .partial = 0.25,
     .not_executable = "LayerNorm with rotary positions is not built yet"},
    {.model_type = "opt",
     .sizes = {12, 768, 12, 0, 3072, 50272},
     .class_stem = "OPT",
     .arch = ECH_ARCH_GPT2,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_RELU,
     .is_tied = true,
     .learned_positions = true,
     .position_extra = 2,
     .qkv_bias = true,
     .out_bias = true,
     .mlp_bias = true,
     .no_head_dim_key = true,
     .no_groups_key = true,
     .context = 2048,
     .eps = 1e-5,
     .not_executable = "OPT's offset positions and ReLU are not built yet"},
    {.model_type = "bloom",
     .sizes = {2, 64, 8, 0, 0, 250880},
     .class_stem = "Bloom",
     .arch = ECH_ARCH_GPT2,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_GELU_TANH,
     .is_tied = true,
     .has_alibi = true,
     .embed_norm = true,
     .qkv_bias = true,
     .out_bias = true,
     .mlp_bias = true,
     .is_ffn_fixed = true,
     .no_head_dim_key = true,
     .no_groups_key = true,
     .context = 2048,
     .eps = 1e-5,
     .not_executable = "distance biases (ALiBi) are not built yet"},
    {.model_type = "falcon",
     .sizes = {32, 4544, 71, 0, 0, 65024},
     .class_stem = "Falcon",
     .arch = ECH_ARCH_GPT2,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_GELU,
     .is_tied = true,
     .has_ffn_default = true,
     .no_head_dim_key = true,
     .no_groups_key = true,
     .context = 2048,
     .eps = 1e-5,
     .not_executable = "LayerNorm with rotary positions is not built yet"},
    {.model_type = "llama",
     .sizes = {32, 4096, 32, 0, 11008, 32000},
     .class_stem = "Llama",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .bias_key = ECH_BIAS_ATTENTION,
     .has_mlp_bias_key = true,
     .context = 2048},
    {.model_type = "mistral",
     .sizes = {32, 4096, 32, 8, 14336, 32000},
     .class_stem = "Mistral",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .context = 131072,
     .window_rule = ECH_WINDOW_ALL,
     .window = 4096},
    {.model_type = "mixtral",
     .sizes = {32, 4096, 32, 8, 14336, 32000},
     .class_stem = "Mixtral",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .eps = 1e-5,
     .theta = 1e6,
     .context = 131072,
     .window_rule = ECH_WINDOW_ALL,
     .moe = ECH_MOE_PLAIN,
     .not_executable = MOE_NOT_BUILT},
    {.model_type = "qwen2",
     .sizes = {32, 4096, 32, 32, 22016, 151936},
     .class_stem = "Qwen2",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .qkv_bias = true,
     .context = 32768,
     .window_rule = ECH_WINDOW_TAIL,
     .window = 4096},
    {.model_type = "qwen2_moe",
     .sizes = {24, 2048, 16, 16, 5632, 151936},
     .class_stem = "Qwen2Moe",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .qkv_bias = true,
     .bias_key = ECH_BIAS_QKV,
     .context = 32768,
     .window_rule = ECH_WINDOW_EVEN_PREFIX,
     .window = 4096,
     .moe = ECH_MOE_QWEN,
     .shared_gate = true,
     .not_executable = MOE_NOT_BUILT},
    {.model_type = "qwen3",
     .sizes = {32, 4096, 32, 32, 22016, 151936},
     .class_stem = "Qwen3",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .bias_key = ECH_BIAS_ATTENTION,
     .qk_norm = true,
     .head_dim = 128,
     .context = 32768,
     .window_rule = ECH_WINDOW_TAIL,
     .window = 4096},
    {.model_type = "qwen3_moe",
     .sizes = {24, 2048, 32, 4, 6144, 151936},
     .class_stem = "Qwen3Moe",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .bias_key = ECH_BIAS_ATTENTION,
     .qk_norm = true,
     .context = 32768,
     .window_rule = ECH_WINDOW_SWITCHED,
     .window = 4096,
     .moe = ECH_MOE_QWEN,
     .not_executable = MOE_NOT_BUILT},
    {.model_type = "phi",
     .sizes = {24, 2048, 32, 0, 8192, 51200},
     .class_stem = "Phi",
     .arch = ECH_ARCH_GPT2,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_GELU_TANH,
     .qkv_bias = true,
     .out_bias = true,
     .mlp_bias = true,
     .head_bias = true,
     .parallel_norms = true,
     .has_qk_norm_key = true,
     .has_ffn_default = true,
     .context = 2048,
     .eps = 1e-5,
     .partial = 0.5,
     .not_executable = PHI_NOT_BUILT},
    {.model_type = "phi3",
     .sizes = {32, 3072, 32, 0, 8192, 32064},
     .class_stem = "Phi3",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .eps = 1e-5,
     .context = 4096,
     .window_rule = ECH_WINDOW_ALL,
     .not_executable = "Phi-3's fused weight files are not read yet"},
    {.model_type = "phimoe",
     .sizes = {32, 4096, 32, 8, 6400, 32064},
     .class_stem = "Phimoe",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_LAYER,
     .act = ECH_ACT_SWIGLU,
     .bias_key = ECH_BIAS_ATTENTION,
     .eps = 1e-5,
     .theta = 1e6,
     .context = 131072,
     .window_rule = ECH_WINDOW_ALL,
     .moe = ECH_MOE_PLAIN,
     .not_executable = MOE_NOT_BUILT},
    {.model_type = "gemma",
     .sizes = {28, 3072, 16, 16, 24576, 256000},
     .class_stem = "Gemma",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_GEGLU,
     .is_tied = true,
     .bias_key = ECH_BIAS_ATTENTION,
     .head_dim = 256,
     .context = 8192,
     .not_executable = GEMMA_NOT_BUILT},
    {.model_type = "gemma2",
     .sizes = {26, 2304, 8, 4, 9216, 256000},
     .class_stem = "Gemma2",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_GEGLU,
     .is_tied = true,
     .bias_key = ECH_BIAS_ATTENTION,
     .post_norms = true,
     .head_dim = 256,
     .context = 8192,
     .window_rule = ECH_WINDOW_ALTERNATE,
     .window = 4096,
     .not_executable = GEMMA_NOT_BUILT},
    {.model_type = "gemma3_text",
     .sizes = {26, 2304, 8, 4, 9216, 262208},
     .class_stem = "Gemma3",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_GEGLU,
     .is_tied = true,
     .bias_key = ECH_BIAS_ATTENTION,
     .post_norms = true,
     .qk_norm = true,
     .head_dim = 256,
     .context = 131072,
     .theta = 1e6,
     .window_rule = ECH_WINDOW_SIXTH,
     .window = 4096,
     .not_executable = GEMMA_NOT_BUILT},
    {.model_type = "deepseek_v2",
     .sizes = {32, 4096, 32, 0, 11008, 102400},
     .class_stem = "DeepseekV2",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .bias_key = ECH_BIAS_ATTENTION,
     .has_mlp_bias_key = true,
     .no_head_dim_key = true,
     .context = 2048,
     .interleaved = true,
     .moe = ECH_MOE_DEEPSEEK,
     .shared_experts = 2,
     .first_dense = 0,
     .not_executable = MLA_NOT_BUILT},
    {.model_type = "deepseek_v3",
     .sizes = {61, 7168, 128, 128, 18432, 129280},
     .class_stem = "DeepseekV3",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .bias_key = ECH_BIAS_ATTENTION,
     .no_head_dim_key = true,
     .context = 4096,
     .interleaved = true,
     .moe = ECH_MOE_DEEPSEEK,
     .router_bias = true,
     .shared_experts = 1,
     .first_dense = 3,
     .not_executable = MLA_NOT_BUILT},
    {.model_type = "gpt_oss",
     .sizes = {36, 2880, 64, 8, 2880, 201088},
     .class_stem = "GptOss",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_RMS,
     .act = ECH_ACT_SWIGLU,
     .qkv_bias = true,
     .out_bias = true,
     .bias_key = ECH_BIAS_ATTENTION,
     .sinks = true,
     .head_dim = 64,
     .context = 131072,
     .eps = 1e-5,
     .theta = 150000.0,
     .window_rule = ECH_WINDOW_ALTERNATE,
     .window = 128,
     .moe = ECH_MOE_PLAIN,
     .router_bias = true,
     .expert_bias = true,
     .not_executable = MOE_NOT_BUILT},
    {.model_type = "dbrx",
     .sizes = {24, 2048, 16, 1, 0, 32000},
     .class_stem = "Dbrx",
     .arch = ECH_ARCH_LLAMA,
     .norm = ECH_NORM_LAYER,
     .no_norm_bias = true,
     .act = ECH_ACT_SWIGLU,
     .no_head_dim_key = true,
     .no_groups_key = true,
     .context = 2048,
     .eps = 1e-5,
     .moe = ECH_MOE_DBRX,
     .not_executable = MOE_NOT_BUILT},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* Names of the same families before they came into Transformers, and as parts of larger models. */
static const char *const aliases[][2] = {{"phi-msft", "phi"},
                                         {"mixformer-sequential", "phi"},
                                         {"RefinedWebModel", "falcon"},
                                         {"RefinedWeb", "falcon"}};

static const char *const family_names[] = {
    "gpt2",    "gptj",   "gpt_neox",    "opt",         "bloom",       "falcon",  "llama", "mistral",
    "mixtral", "qwen2",  "qwen2_moe",   "qwen3",       "qwen3_moe",   "phi",     "phi3",  "phimoe",
    "gemma",   "gemma2", "gemma3_text", "deepseek_v2", "deepseek_v3", "gpt_oss", "dbrx"};
_Static_assert(sizeof family_names / sizeof family_names[0] == N_FAMILIES,
               "a name for each family");

const ech_family *ech_family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(model_type, aliases[i][0]) == 0)
            model_type = aliases[i][1];
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(model_type, families[i].model_type) == 0)
            return &families[i];
    return NULL;
}

const ech_family *ech_family_of_class(const char *class_name)
{
    static const char *const tails[] = {"ForCausalLM", "LMHeadModel", "Model",
                                        "ForConditionalGeneration"};
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const size_t stem = strlen(families[i].class_stem);
        if (strncmp(class_name, families[i].class_stem, stem) != 0)
            continue;
        for (size_t j = 0; j < sizeof tails / sizeof tails[0]; j++)
            if (strcmp(class_name + stem, tails[j]) == 0)
                return &families[i];
    }
    return strcmp(class_name, "MixFormerSequentialForCausalLM") == 0 ? ech_family_find("phi")
                                                                     : NULL;
}

const char *const *ech_family_names(size_t *n)
{
    *n = N_FAMILIES;
    return family_names;
}

ech_model ech_family_model(const ech_family *f)
{
    ech_model m = ech_model_default(f->arch);
    (void)snprintf(m.family, sizeof m.family, "%s", f->model_type);
    m.norm = f->norm;
    m.norm_eps = f->eps > 0.0 ? f->eps : 1e-6;
    m.act = f->act;
    m.learned_positions = f->learned_positions;
    m.position_extra = f->position_extra;
    m.alibi = f->has_alibi;
    m.embed_norm = f->embed_norm;
    m.rope.kind = f->learned_positions || f->has_alibi ? ECH_ROPE_NONE : ECH_ROPE_DEFAULT;
    m.rope.theta = f->theta > 0.0 ? f->theta : 10000.0;
    m.rope.partial = f->partial > 0.0 ? f->partial : 1.0;
    m.rope.interleaved = f->interleaved;
    m.qkv_bias = f->qkv_bias;
    m.out_bias = f->out_bias;
    m.mlp_bias = f->mlp_bias;
    m.head_bias = f->head_bias;
    m.norm_bias = f->norm == ECH_NORM_LAYER && !f->no_norm_bias;
    m.parallel_norms = f->parallel_norms;
    m.post_norms = f->post_norms;
    m.qk_norm = f->qk_norm;
    m.sinks = f->sinks;
    m.tie_embeddings = f->is_tied;
    m.moe.shared_gate = f->shared_gate;
    m.moe.router_bias = f->router_bias;
    m.moe.expert_bias = f->expert_bias;
    if (f->not_executable)
        ech_model_refuse(&m, "%s", f->not_executable);
    return m;
}

void ech_model_refuse(ech_model *m, const char *fmt, ...)
{
    if (!m->is_executable)
        return;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(m->not_executable, sizeof m->not_executable, fmt, args);
    va_end(args);
    m->is_executable = false;
}
