/** @file catalog/known_models.h
 *  Published parameter totals of the catalogue's presets. */
#ifndef ECH_TESTS_KNOWN_MODELS_H
#define ECH_TESTS_KNOWN_MODELS_H

#include <stddef.h>
#include <stdint.h>

/* Published totals; `file` is the preset's config.json among the shared facts, NULL where there is
 * none.  Active ones (millions, rounded) where they are published. */
static const struct {
    const char *name;
    const char *file;
    int64_t total;
    int64_t active_millions;
} known[] = {
    {"gpt2-124m", "gpt2", 124439808, 0},
    {"gpt2-medium", "gpt2-medium", 354823168, 0},
    {"gpt2-large", "gpt2-large", 774030080, 0},
    {"gpt2-xl", NULL, 1557611200, 0},
    {"tinyllama-1.1b", "tinyllama-1.1b", 1100048384, 0},
    {"llama-3.2-1b", "llama-3.2-1b", 1235814400, 0},
    {"llama-2-7b", "llama-2-7b", 6738415616, 0},
    {"llama-2-13b", "llama-2-13b", 13015864320, 0},
    {"llama-2-70b", "llama-2-70b", 68976648192, 0},
    {"codellama-13b", "codellama-13b", 13016028160, 0},
    {"llama-3-8b", "llama-3-8b", 8030261248, 0},
    {"llama-3-70b", "llama-3-70b", 70553706496, 0},
    {"llama-3.1-8b", "llama-3.1-8b", 8030261248, 0},
    {"llama-3.1-70b", "llama-3.1-70b", 70553706496, 0},
    {"llama-3.1-405b", "llama-3.1-405b", 405853388800, 0},
    {"mistral-7b-instruct-v0.3", "mistral-7b-instruct-v0.3", 7248023552, 0},
    {"mixtral-8x7b", "mixtral-8x7b", 46702792704, 12880},
    {"phi-1", "phi-1", 1414562935, 0},
    {"phi-2", "phi-2", 2779683840, 0},
    {"phi-3.5-mini", "phi-3.5-mini", 3821079552, 0},
    {"qwen1.5-0.5b-chat", "qwen1.5-0.5b-chat", 463987712, 0},
    {"qwen1.5-72b-chat", "qwen1.5-72b-chat", 72287920128, 0},
    {"qwen1.5-moe-a2.7b", "qwen1.5-moe-a2.7b", 14315784192, 2690},
    {"qwen2.5-7b-instruct", "qwen2.5-7b-instruct", 7615616512, 0},
    {"qwen2.5-32b-instruct", "qwen2.5-32b-instruct", 32763876352, 0},
    {"qwen3-0.6b", "qwen3-0.6b", 596049920, 0},
    {"qwen3-4b", "qwen3-4b", 4022468096, 0},
    {"qwen3-8b", "qwen3-8b", 8190735360, 0},
    {"qwen3-32b", "qwen3-32b", 32762123264, 0},
    {"qwen3-30b-a3b", "qwen3-30b-a3b", 30532122624, 3350},
    {"gemma-2b", "gemma-2b", 2506172416, 0},
    {"gemma-7b", NULL, 8537680896, 0},
    {"gemma-2-9b", "gemma-2-9b", 9241705984, 0},
    {"gpt-j-6b", "gpt-j-6b", 6050882784, 0},
    {"gpt-neox-20b", NULL, 20554567680, 0},
    {"redpajama-3b-gptneox", "redpajama-3b-gptneox", 2775864320, 0},
    {"gpt-oss-20b", "gpt-oss-20b", 20914757184, 0},
    {"gpt-oss-120b", "gpt-oss-120b", 116829156672, 0},
    {"deepseek-v2", NULL, 235741434880, 0},
    {"deepseek-v2-lite", NULL, 15706484224, 0},
    {"deepseek-v3", "deepseek-v3", 671026419200, 37550},
};

enum { N_KNOWN = sizeof known / sizeof known[0] };

#endif
