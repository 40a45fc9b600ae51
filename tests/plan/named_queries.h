/** @file plan/named_queries.h
 *  The named queries of the planner, each with a system that people use for it. */
#ifndef ECH_TESTS_PLAN_NAMED_QUERIES_H
#define ECH_TESTS_PLAN_NAMED_QUERIES_H

#include "query_case.h"

/** A query, and whether looking at every layout of it takes less than a second or two. */
typedef struct named_query {
    const char *name;
    query q;
    bool is_small;
} named_query;

static const named_query named_queries[] = {
    {"7B on 8 x A100-80", {"llama-2-7b", "a100-sxm-80", 8, 4096, 1024, ECH_SYSTEM_ECHELON}, true},
    {"13B on 8 x A100-80 with NVLink",
     {"llama-2-13b", "a100-sxm-80", 8, 4096, 1024, ECH_SYSTEM_ECHELON},
     true},
    {"13B on 8 x A100-80 without NVLink",
     {"llama-2-13b", "a100-pcie-80", 8, 4096, 1024, ECH_SYSTEM_ECHELON},
     true},
    {"13B on one 24 GB card with offload",
     {"llama-2-13b", "rtx-4090", 1, 4096, 64, ECH_SYSTEM_ECHELON},
     true},
    {"70B on 512 x H100",
     {"llama-2-70b", "h100-sxm-80", 512, 4096, 1024, ECH_SYSTEM_ECHELON},
     false},
    {"70B on 512 x H100, Megatron",
     {"llama-2-70b", "h100-sxm-80", 512, 4096, 1024, ECH_SYSTEM_MEGATRON},
     true},
    {"70B on 64 x A100-40",
     {"llama-2-70b", "a100-sxm-40", 64, 4096, 1024, ECH_SYSTEM_ECHELON},
     false},
    {"70B on 64 x A100-40, Megatron",
     {"llama-2-70b", "a100-sxm-40", 64, 4096, 1024, ECH_SYSTEM_MEGATRON},
     true},
    {"175B on 1024 x A100",
     {"gpt3-175b", "a100-sxm-80", 1024, 2048, 1536, ECH_SYSTEM_ECHELON},
     true},
    {"405B on 16384 x H100 at 8k",
     {"llama-3.1-405b", "h100-sxm-80", 16384, 8192, 2048, ECH_SYSTEM_ECHELON},
     false},
    {"405B on 16384 x H100 at 131k",
     {"llama-3.1-405b", "h100-sxm-80", 16384, 131072, 128, ECH_SYSTEM_ECHELON},
     false},
    {"405B on 16384 x H100 at 8k, torchtitan",
     {"llama-3.1-405b", "h100-sxm-80", 16384, 8192, 2048, ECH_SYSTEM_TORCHTITAN},
     true},
    {"8x22B MoE on 256 x H100",
     {"mixtral-8x22b", "h100-sxm-80", 256, 4096, 1024, ECH_SYSTEM_ECHELON},
     false},
    {"671B MoE on 2048 x H800",
     {"deepseek-v3", "h800-sxm", 2048, 4096, 15360, ECH_SYSTEM_ECHELON},
     false},
    {"1T dense on 3072 x A100",
     {"megatron-1t", "a100-sxm-80", 3072, 2048, 3072, ECH_SYSTEM_ECHELON},
     false},
    {"7B on a 32-node CPU cluster",
     {"llama-2-7b", "cpu-64c-avx512", 32, 4096, 1024, ECH_SYSTEM_ECHELON},
     false},
};

enum { N_NAMED_QUERIES = sizeof named_queries / sizeof named_queries[0] };

#endif
