#include "catalog/presets.h"

#include "catalog/family.h"

#include <stdio.h>
#include <string.h>

/* Sizes of one model; what is left at 0 is the family's. */
typedef struct preset {
    const char *name;
    const char *family;
    int64_t size[7]; /* layers, hidden, heads, kv_heads, ffn, vocab, context */
    int64_t head_dim;
    double theta, eps, partial;
    double llama3_factor; /* rotary of kind llama3: factor; bands 1 and 4 of 8192 positions */
    bool is_rope_other;   /* yarn, longrope */
    bool is_tied;
    bool parallel_norms; /* beside what the family has */
    bool no_final_norm;
    bool attention_bias, head_bias;
    int64_t embed_dim;
    int64_t window, window_layers;
    ech_moe moe; /* sizes and first_dense */
    ech_mla mla;
} preset;

/* Sorted by name. */
static const preset presets[] = {
    {.name = "bloom-176b", .family = "bloom", .size = {70, 14336, 112, 112, 57344, 250880, 2048}},
    {.name = "bloom-1b1", .family = "bloom", .size = {24, 1536, 16, 16, 6144, 250880, 2048}},
    {.name = "bloom-1b7", .family = "bloom", .size = {24, 2048, 16, 16, 8192, 250880, 2048}},
    {.name = "bloom-3b", .family = "bloom", .size = {30, 2560, 32, 32, 10240, 250880, 2048}},
    {.name = "bloom-560m", .family = "bloom", .size = {24, 1024, 16, 16, 4096, 250880, 2048}},
    {.name = "bloom-7b1", .family = "bloom", .size = {30, 4096, 32, 32, 16384, 250880, 2048}},
    {.name = "codellama-13b",
     .family = "llama",
     .size = {40, 5120, 40, 40, 13824, 32016, 16384},
     .eps = 1e-5},
    {.name = "codellama-34b",
     .family = "llama",
     .size = {48, 8192, 64, 8, 22016, 32000, 16384},
     .theta = 1000000.0,
     .eps = 1e-5},
    {.name = "dbrx",
     .family = "dbrx",
     .size = {40, 6144, 48, 8, 0, 100352, 32768},
     .theta = 500000.0,
     .moe = {.experts = 16, .topk = 4, .expert_ffn = 10752}},
    {.name = "deepseek-v2",
     .family = "deepseek_v2",
     .size = {60, 5120, 128, 128, 12288, 102400, 163840},
     .head_dim = 192,
     .is_rope_other = true,
     .moe = {.experts = 160,
             .topk = 6,
             .expert_ffn = 1536,
             .shared_experts = 2,
             .shared_ffn = 3072,
             .first_dense = 1},
     .mla = {.q_lora_rank = 1536,
             .kv_lora_rank = 512,
             .qk_nope_dim = 128,
             .qk_rope_dim = 64,
             .v_dim = 128}},
    {.name = "deepseek-v2-lite",
     .family = "deepseek_v2",
     .size = {27, 2048, 16, 16, 10944, 102400, 163840},
     .head_dim = 192,
     .is_rope_other = true,
     .moe = {.experts = 64,
             .topk = 6,
             .expert_ffn = 1408,
             .shared_experts = 2,
             .shared_ffn = 2816,
             .first_dense = 1},
     .mla = {.kv_lora_rank = 512, .qk_nope_dim = 128, .qk_rope_dim = 64, .v_dim = 128}},
    {.name = "deepseek-v3",
     .family = "deepseek_v3",
     .size = {61, 7168, 128, 128, 18432, 129280, 163840},
     .head_dim = 192,
     .is_rope_other = true,
     .moe = {.experts = 256,
             .topk = 8,
             .expert_ffn = 2048,
             .shared_experts = 1,
             .shared_ffn = 2048,
             .first_dense = 3},
     .mla = {.q_lora_rank = 1536,
             .kv_lora_rank = 512,
             .qk_nope_dim = 128,
             .qk_rope_dim = 64,
             .v_dim = 128}},
    {.name = "falcon-180b", .family = "falcon", .size = {80, 14848, 232, 8, 59392, 65024, 2048}},
    {.name = "falcon-40b", .family = "falcon", .size = {60, 8192, 128, 8, 32768, 65024, 2048}},
    {.name = "falcon-7b",
     .family = "falcon",
     .size = {32, 4544, 71, 1, 18176, 65024, 2048},
     .parallel_norms = true},
    {.name = "gemma-2-27b",
     .family = "gemma2",
     .size = {46, 4608, 32, 16, 36864, 256000, 8192},
     .head_dim = 128,
     .window = 4096,
     .window_layers = 23},
    {.name = "gemma-2-2b",
     .family = "gemma2",
     .size = {26, 2304, 8, 4, 9216, 256000, 8192},
     .window = 4096,
     .window_layers = 13},
    {.name = "gemma-2-9b",
     .family = "gemma2",
     .size = {42, 3584, 16, 8, 14336, 256000, 8192},
     .window = 4096,
     .window_layers = 21},
    {.name = "gemma-2b", .family = "gemma", .size = {18, 2048, 8, 1, 16384, 256000, 8192}},
    {.name = "gemma-3-12b",
     .family = "gemma3_text",
     .size = {48, 3840, 16, 8, 15360, 262208, 131072},
     .is_rope_other = true,
     .window = 1024,
     .window_layers = 40},
    {.name = "gemma-3-1b",
     .family = "gemma3_text",
     .size = {26, 1152, 4, 1, 6912, 262144, 32768},
     .window = 512,
     .window_layers = 22},
    {.name = "gemma-3-27b",
     .family = "gemma3_text",
     .size = {62, 5376, 32, 16, 21504, 262208, 131072},
     .head_dim = 128,
     .is_rope_other = true,
     .window = 1024,
     .window_layers = 52},
    {.name = "gemma-3-4b",
     .family = "gemma3_text",
     .size = {34, 2560, 8, 4, 10240, 262208, 131072},
     .is_rope_other = true,
     .window = 1024,
     .window_layers = 29},
    {.name = "gemma-7b", .family = "gemma", .size = {28, 3072, 16, 16, 24576, 256000, 8192}},
    {.name = "gpt-j-6b",
     .family = "gptj",
     .size = {28, 4096, 16, 16, 16384, 50400, 2048},
     .partial = 0.25},
    {.name = "gpt-neox-20b", .family = "gpt_neox", .size = {44, 6144, 64, 64, 24576, 50432, 2048}},
    {.name = "gpt-oss-120b",
     .family = "gpt_oss",
     .size = {36, 2880, 64, 8, 2880, 201088, 131072},
     .is_rope_other = true,
     .window = 128,
     .window_layers = 18,
     .moe = {.experts = 128, .topk = 4, .expert_ffn = 2880}},
    {.name = "gpt-oss-20b",
     .family = "gpt_oss",
     .size = {24, 2880, 64, 8, 2880, 201088, 131072},
     .is_rope_other = true,
     .window = 128,
     .window_layers = 12,
     .moe = {.experts = 32, .topk = 4, .expert_ffn = 2880}},
    {.name = "gpt2-124m", .family = "gpt2", .size = {12, 768, 12, 12, 3072, 50257, 1024}},
    {.name = "gpt2-large", .family = "gpt2", .size = {36, 1280, 20, 20, 5120, 50257, 1024}},
    {.name = "gpt2-medium", .family = "gpt2", .size = {24, 1024, 16, 16, 4096, 50257, 1024}},
    {.name = "gpt2-xl", .family = "gpt2", .size = {48, 1600, 25, 25, 6400, 50257, 1024}},
    {.name = "gpt3-175b", .family = "gpt2", .size = {96, 12288, 96, 96, 49152, 51200, 2048}},
    {.name = "llama-13b", .family = "llama", .size = {40, 5120, 40, 40, 13824, 32000, 2048}},
    {.name = "llama-2-13b",
     .family = "llama",
     .size = {40, 5120, 40, 40, 13824, 32000, 4096},
     .eps = 1e-5},
    {.name = "llama-2-70b",
     .family = "llama",
     .size = {80, 8192, 64, 8, 28672, 32000, 4096},
     .eps = 1e-5},
    {.name = "llama-2-7b",
     .family = "llama",
     .size = {32, 4096, 32, 32, 11008, 32000, 4096},
     .eps = 1e-5},
    {.name = "llama-3-70b",
     .family = "llama",
     .size = {80, 8192, 64, 8, 28672, 128256, 8192},
     .theta = 500000.0,
     .eps = 1e-5},
    {.name = "llama-3-8b",
     .family = "llama",
     .size = {32, 4096, 32, 8, 14336, 128256, 8192},
     .theta = 500000.0,
     .eps = 1e-5},
    {.name = "llama-3.1-405b",
     .family = "llama",
     .size = {126, 16384, 128, 8, 53248, 128256, 131072},
     .theta = 500000.0,
     .eps = 1e-5,
     .llama3_factor = 8.0},
    {.name = "llama-3.1-70b",
     .family = "llama",
     .size = {80, 8192, 64, 8, 28672, 128256, 131072},
     .theta = 500000.0,
     .eps = 1e-5,
     .llama3_factor = 8.0},
    {.name = "llama-3.1-8b",
     .family = "llama",
     .size = {32, 4096, 32, 8, 14336, 128256, 131072},
     .theta = 500000.0,
     .eps = 1e-5,
     .llama3_factor = 8.0},
    {.name = "llama-3.2-1b",
     .family = "llama",
     .size = {16, 2048, 32, 8, 8192, 128256, 131072},
     .theta = 500000.0,
     .eps = 1e-5,
     .llama3_factor = 32.0,
     .is_tied = true},
    {.name = "llama-3.2-3b",
     .family = "llama",
     .size = {28, 3072, 24, 8, 8192, 128256, 131072},
     .theta = 500000.0,
     .eps = 1e-5,
     .llama3_factor = 32.0,
     .is_tied = true},
    {.name = "llama-30b", .family = "llama", .size = {60, 6656, 52, 52, 17920, 32000, 2048}},
    {.name = "llama-65b", .family = "llama", .size = {80, 8192, 64, 64, 22016, 32000, 2048}},
    {.name = "llama-7b", .family = "llama", .size = {32, 4096, 32, 32, 11008, 32000, 2048}},
    {.name = "megatron-1t", .family = "gpt2", .size = {128, 25600, 160, 160, 102400, 51200, 2048}},
    {.name = "mistral-7b",
     .family = "mistral",
     .size = {32, 4096, 32, 8, 14336, 32000, 32768},
     .eps = 1e-5,
     .window = 4096,
     .window_layers = 32},
    {.name = "mistral-7b-instruct-v0.3",
     .family = "mistral",
     .size = {32, 4096, 32, 8, 14336, 32768, 32768},
     .theta = 1000000.0,
     .eps = 1e-5},
    {.name = "mistral-large-123b",
     .family = "mistral",
     .size = {88, 12288, 96, 8, 28672, 32768, 131072},
     .theta = 1000000.0,
     .eps = 1e-5},
    {.name = "mistral-nemo-12b",
     .family = "mistral",
     .size = {40, 5120, 32, 8, 14336, 131072, 131072},
     .head_dim = 128,
     .theta = 1000000.0,
     .eps = 1e-5},
    {.name = "mixtral-8x22b",
     .family = "mixtral",
     .size = {56, 6144, 48, 8, 16384, 32000, 65536},
     .moe = {.experts = 8, .topk = 2, .expert_ffn = 16384}},
    {.name = "mixtral-8x7b",
     .family = "mixtral",
     .size = {32, 4096, 32, 8, 14336, 32000, 32768},
     .moe = {.experts = 8, .topk = 2, .expert_ffn = 14336}},
    {.name = "opt-1.3b", .family = "opt", .size = {24, 2048, 32, 32, 8192, 50272, 2048}},
    {.name = "opt-125m", .family = "opt", .size = {12, 768, 12, 12, 3072, 50272, 2048}},
    {.name = "opt-13b", .family = "opt", .size = {40, 5120, 40, 40, 20480, 50272, 2048}},
    {.name = "opt-175b", .family = "opt", .size = {96, 12288, 96, 96, 49152, 50272, 2048}},
    {.name = "opt-2.7b", .family = "opt", .size = {32, 2560, 32, 32, 10240, 50272, 2048}},
    {.name = "opt-30b", .family = "opt", .size = {48, 7168, 56, 56, 28672, 50272, 2048}},
    {.name = "opt-350m",
     .family = "opt",
     .size = {24, 1024, 16, 16, 4096, 50272, 2048},
     .embed_dim = 512,
     .no_final_norm = true},
    {.name = "opt-6.7b", .family = "opt", .size = {32, 4096, 32, 32, 16384, 50272, 2048}},
    {.name = "opt-66b", .family = "opt", .size = {64, 9216, 72, 72, 36864, 50272, 2048}},
    {.name = "phi-1", .family = "phi", .size = {24, 2048, 32, 32, 8192, 50295, 2048}},
    {.name = "phi-2",
     .family = "phi",
     .size = {32, 2560, 32, 32, 10240, 51200, 2048},
     .partial = 0.4},
    {.name = "phi-3-medium",
     .family = "phi3",
     .size = {40, 5120, 40, 10, 17920, 32064, 4096},
     .window = 2047,
     .window_layers = 40},
    {.name = "phi-3-mini",
     .family = "phi3",
     .size = {32, 3072, 32, 32, 8192, 32064, 4096},
     .window = 2047,
     .window_layers = 32},
    {.name = "phi-3.5-mini",
     .family = "phi3",
     .size = {32, 3072, 32, 32, 8192, 32064, 131072},
     .is_rope_other = true,
     .window = 262144,
     .window_layers = 32},
    {.name = "phi-3.5-moe",
     .family = "phimoe",
     .size = {32, 4096, 32, 8, 6400, 32064, 131072},
     .is_rope_other = true,
     .attention_bias = true,
     .head_bias = true,
     .moe = {.experts = 16, .topk = 2, .expert_ffn = 6400}},
    {.name = "phi-4",
     .family = "phi3",
     .size = {40, 5120, 40, 10, 17920, 100352, 16384},
     .theta = 250000.0},
    {.name = "qwen1.5-0.5b-chat",
     .family = "qwen2",
     .size = {24, 1024, 16, 16, 2816, 151936, 32768},
     .theta = 1000000.0,
     .is_tied = true},
    {.name = "qwen1.5-72b-chat",
     .family = "qwen2",
     .size = {80, 8192, 64, 64, 24576, 152064, 32768},
     .theta = 1000000.0},
    {.name = "qwen1.5-moe-a2.7b",
     .family = "qwen2_moe",
     .size = {24, 2048, 16, 16, 5632, 151936, 32768},
     .theta = 1000000.0,
     .moe =
         {.experts = 60, .topk = 4, .expert_ffn = 1408, .shared_experts = 1, .shared_ffn = 5632}},
    {.name = "qwen2-0.5b",
     .family = "qwen2",
     .size = {24, 896, 14, 2, 4864, 151936, 32768},
     .theta = 1000000.0,
     .is_tied = true},
    {.name = "qwen2-1.5b",
     .family = "qwen2",
     .size = {28, 1536, 12, 2, 8960, 151936, 32768},
     .theta = 1000000.0,
     .is_tied = true},
    {.name = "qwen2-57b-a14b",
     .family = "qwen2_moe",
     .size = {28, 3584, 28, 4, 18944, 151936, 131072},
     .theta = 1000000.0,
     .moe =
         {.experts = 64, .topk = 8, .expert_ffn = 2560, .shared_experts = 1, .shared_ffn = 20480}},
    {.name = "qwen2-72b",
     .family = "qwen2",
     .size = {80, 8192, 64, 8, 29568, 152064, 131072},
     .theta = 1000000.0},
    {.name = "qwen2.5-14b",
     .family = "qwen2",
     .size = {48, 5120, 40, 8, 13824, 152064, 131072},
     .theta = 1000000.0},
    {.name = "qwen2.5-32b-instruct",
     .family = "qwen2",
     .size = {64, 5120, 40, 8, 27648, 152064, 131072},
     .theta = 1000000.0},
    {.name = "qwen2.5-3b",
     .family = "qwen2",
     .size = {36, 2048, 16, 2, 11008, 151936, 32768},
     .theta = 1000000.0,
     .is_tied = true},
    {.name = "qwen2.5-7b-instruct",
     .family = "qwen2",
     .size = {28, 3584, 28, 4, 18944, 152064, 32768},
     .theta = 1000000.0},
    {.name = "qwen3-0.6b",
     .family = "qwen3",
     .size = {28, 1024, 16, 8, 3072, 151936, 40960},
     .theta = 1000000.0,
     .is_tied = true},
    {.name = "qwen3-1.7b",
     .family = "qwen3",
     .size = {28, 2048, 16, 8, 6144, 151936, 40960},
     .theta = 1000000.0,
     .is_tied = true},
    {.name = "qwen3-14b",
     .family = "qwen3",
     .size = {40, 5120, 40, 8, 17408, 151936, 40960},
     .theta = 1000000.0},
    {.name = "qwen3-235b-a22b",
     .family = "qwen3_moe",
     .size = {94, 4096, 64, 4, 12288, 151936, 40960},
     .head_dim = 128,
     .theta = 1000000.0,
     .moe = {.experts = 128, .topk = 8, .expert_ffn = 1536}},
    {.name = "qwen3-30b-a3b",
     .family = "qwen3_moe",
     .size = {48, 2048, 32, 4, 6144, 151936, 40960},
     .head_dim = 128,
     .theta = 1000000.0,
     .moe = {.experts = 128, .topk = 8, .expert_ffn = 768}},
    {.name = "qwen3-32b",
     .family = "qwen3",
     .size = {64, 5120, 64, 8, 25600, 151936, 40960},
     .theta = 1000000.0},
    {.name = "qwen3-4b",
     .family = "qwen3",
     .size = {36, 2560, 32, 8, 9728, 151936, 40960},
     .theta = 1000000.0,
     .is_tied = true},
    {.name = "qwen3-8b",
     .family = "qwen3",
     .size = {36, 4096, 32, 8, 12288, 151936, 40960},
     .theta = 1000000.0},
    {.name = "redpajama-3b-gptneox",
     .family = "gpt_neox",
     .size = {32, 2560, 32, 32, 10240, 50432, 2048},
     .partial = 1.0},
    {.name = "tinyllama-1.1b",
     .family = "llama",
     .size = {22, 2048, 32, 4, 5632, 32000, 2048},
     .eps = 1e-5},
    {.name = "turing-530b", .family = "gpt2", .size = {105, 20480, 128, 128, 81920, 51200, 2048}},
};

enum { N_PRESETS = sizeof presets / sizeof presets[0] };

static const char *const preset_names[] = {
    "bloom-176b",
    "bloom-1b1",
    "bloom-1b7",
    "bloom-3b",
    "bloom-560m",
    "bloom-7b1",
    "codellama-13b",
    "codellama-34b",
    "dbrx",
    "deepseek-v2",
    "deepseek-v2-lite",
    "deepseek-v3",
    "falcon-180b",
    "falcon-40b",
    "falcon-7b",
    "gemma-2-27b",
    "gemma-2-2b",
    "gemma-2-9b",
    "gemma-2b",
    "gemma-3-12b",
    "gemma-3-1b",
    "gemma-3-27b",
    "gemma-3-4b",
    "gemma-7b",
    "gpt-j-6b",
    "gpt-neox-20b",
    "gpt-oss-120b",
    "gpt-oss-20b",
    "gpt2-124m",
    "gpt2-large",
    "gpt2-medium",
    "gpt2-xl",
    "gpt3-175b",
    "llama-13b",
    "llama-2-13b",
    "llama-2-70b",
    "llama-2-7b",
    "llama-3-70b",
    "llama-3-8b",
    "llama-3.1-405b",
    "llama-3.1-70b",
    "llama-3.1-8b",
    "llama-3.2-1b",
    "llama-3.2-3b",
    "llama-30b",
    "llama-65b",
    "llama-7b",
    "megatron-1t",
    "mistral-7b",
    "mistral-7b-instruct-v0.3",
    "mistral-large-123b",
    "mistral-nemo-12b",
    "mixtral-8x22b",
    "mixtral-8x7b",
    "opt-1.3b",
    "opt-125m",
    "opt-13b",
    "opt-175b",
    "opt-2.7b",
    "opt-30b",
    "opt-350m",
    "opt-6.7b",
    "opt-66b",
    "phi-1",
    "phi-2",
    "phi-3-medium",
    "phi-3-mini",
    "phi-3.5-mini",
    "phi-3.5-moe",
    "phi-4",
    "qwen1.5-0.5b-chat",
    "qwen1.5-72b-chat",
    "qwen1.5-moe-a2.7b",
    "qwen2-0.5b",
    "qwen2-1.5b",
    "qwen2-57b-a14b",
    "qwen2-72b",
    "qwen2.5-14b",
    "qwen2.5-32b-instruct",
    "qwen2.5-3b",
    "qwen2.5-7b-instruct",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-14b",
    "qwen3-235b-a22b",
    "qwen3-30b-a3b",
    "qwen3-32b",
    "qwen3-4b",
    "qwen3-8b",
    "redpajama-3b-gptneox",
    "tinyllama-1.1b",
    "turing-530b",
};
_Static_assert(sizeof preset_names / sizeof preset_names[0] == N_PRESETS, "a name for each preset");

/* Other names in use for the same sizes. */
static const char *const aliases[][2] = {
    {"gpt2", "gpt2-124m"},
    {"gpt2-355m", "gpt2-medium"},
    {"gpt2-774m", "gpt2-large"},
    {"gpt2-1.5b", "gpt2-xl"},
    {"mistral-7b-v0.3", "mistral-7b-instruct-v0.3"},
    {"qwen1.5-0.5b", "qwen1.5-0.5b-chat"},
    {"qwen1.5-72b", "qwen1.5-72b-chat"},
    {"qwen2.5-7b", "qwen2.5-7b-instruct"},
    {"qwen2.5-32b", "qwen2.5-32b-instruct"},
    {"deepseek-v2-236b", "deepseek-v2"},
    {"deepseek-v2-lite-16b", "deepseek-v2-lite"},
    {"deepseek-v3-671b", "deepseek-v3"},
    {"deepseek-r1", "deepseek-v3"},
    {"bloom", "bloom-176b"},
    {"gpt3", "gpt3-175b"},
    {"gpt-3", "gpt3-175b"},
    {"mt-nlg-530b", "turing-530b"},
    {"mistral-7b-v0.1", "mistral-7b"},
    {"llama-1-7b", "llama-7b"},
    {"llama-3.3-70b", "llama-3.1-70b"},
    {"qwen2-7b", "qwen2.5-7b-instruct"},
    {"qwen2.5-0.5b", "qwen2-0.5b"},
    {"qwen2.5-1.5b", "qwen2-1.5b"},
    {"qwen2.5-72b", "qwen2-72b"},
};

static void set_rope(const preset *p, ech_model *m)
{
    if (p->theta > 0.0)
        m->rope.theta = p->theta;
    if (p->partial > 0.0)
        m->rope.partial = p->partial;
    if (p->is_rope_other) {
        m->rope.kind = ECH_ROPE_OTHER;
        ech_model_refuse(m, "rotary positions of kind yarn or longrope are not built yet");
    }
    if (p->llama3_factor > 0.0) {
        m->rope.kind = ECH_ROPE_LLAMA3;
        m->rope.factor = p->llama3_factor;
        m->rope.low_freq_factor = 1.0;
        m->rope.high_freq_factor = 4.0;
        m->rope.original_context = 8192;
    }
}

static void set_experts(const preset *p, ech_model *m)
{
    ech_moe *moe = &m->moe;
    moe->experts = p->moe.experts;
    moe->topk = p->moe.topk;
    moe->expert_ffn = p->moe.expert_ffn;
    moe->shared_experts = p->moe.shared_experts;
    moe->shared_ffn = p->moe.shared_ffn;
    moe->first_dense = p->moe.first_dense;
    m->mla = p->mla;
}

static ech_model build(const preset *p)
{
    ech_model m = ech_family_model(ech_family_find(p->family));
    (void)snprintf(m.name, sizeof m.name, "%s", p->name);
    m.layers = p->size[0];
    m.hidden = p->size[1];
    m.heads = p->size[2];
    m.kv_heads = p->size[3];
    m.ffn = p->size[4];
    m.vocab = p->size[5];
    m.context = p->size[6];
    m.head_dim = p->head_dim ? p->head_dim : ech_family_find(p->family)->head_dim;
    if (m.head_dim == 0)
        m.head_dim = m.hidden / m.heads;
    m.norm_eps = p->eps > 0.0 ? p->eps : m.norm_eps;
    m.tie_embeddings = m.tie_embeddings || p->is_tied;
    m.parallel_norms = m.parallel_norms || p->parallel_norms;
    m.no_final_norm = p->no_final_norm;
    m.head_bias = m.head_bias || p->head_bias;
    m.qkv_bias = m.qkv_bias || p->attention_bias;
    m.out_bias = m.out_bias || p->attention_bias;
    m.embed_dim = p->embed_dim;
    m.window = p->window;
    m.window_layers = p->window_layers;
    set_rope(p, &m);
    set_experts(p, &m);
    ech_model_check_built(&m);
    return m;
}

bool ech_preset_find(const char *name, ech_model *out)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(name, aliases[i][0]) == 0)
            name = aliases[i][1];
    for (size_t i = 0; i < N_PRESETS; i++)
        if (strcmp(name, presets[i].name) == 0) {
            *out = build(&presets[i]);
            return true;
        }
    return false;
}

const char *const *ech_model_presets(size_t *n)
{
    *n = N_PRESETS;
    return preset_names;
}
