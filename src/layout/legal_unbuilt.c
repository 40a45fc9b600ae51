/* Rules about what is not built yet. */
#include "layout/legal_rules.h"

#include <string.h>

/* --- not built yet --- */

static bool find_degree(const char *name, int64_t degree, ech_text *words)
{
    if (degree > 1)
        ech_text_add(words, "%s %lld is not built yet", name, (long long)degree);
    return degree > 1;
}

static bool find_cp(const ech_legal_query *q, ech_text *words)
{
    return find_degree("cp", q->cp, words);
}

static bool find_ep(const ech_legal_query *q, ech_text *words)
{
    return find_degree("ep", q->ep, words);
}

static bool find_etp(const ech_legal_query *q, ech_text *words)
{
    return find_degree("etp", q->etp, words);
}

static bool find_word(const char *word, const char *nothing, ech_text *words)
{
    const bool is_asked = word && strcmp(word, nothing) != 0;
    if (is_asked)
        ech_text_add(words, "%.80s is not built yet", word);
    return is_asked;
}

static bool find_recompute(const ech_legal_query *q, ech_text *words)
{
    return find_word(q->recompute, "none", words);
}

static bool find_offload_optimizer(const ech_legal_query *q, ech_text *words)
{
    return find_word(q->offload_optimizer, "none", words);
}

static bool find_offload_params(const ech_legal_query *q, ech_text *words)
{
    return find_word(q->offload_params, "none", words);
}

static bool find_offload_activations(const ech_legal_query *q, ech_text *words)
{
    return find_word(q->offload_activations, "none", words);
}

static bool find_compute(const ech_legal_query *q, ech_text *words)
{
    return q->compute && strcmp(q->compute, "fp64") != 0 && find_word(q->compute, "fp32", words);
}

static void near_none(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = "none";
}

static void near_compute(const ech_legal_query *q, ech_near *out)
{
    (void)q;
    out->word = "fp32 or fp64";
}

/* --- the rows --- */

static const ech_legal_rule rules[] = {
    {"cp", "layout.cp", "above 1", UNBUILT, "context parallelism", find_cp, ech_legal_near_one},
    {"ep", "layout.ep", "above 1", UNBUILT, "expert parallelism", find_ep, ech_legal_near_one},
    {"etp", "layout.etp", "above 1", UNBUILT, "tensor parallelism of experts", find_etp,
     ech_legal_near_one},
    {"recompute", "layout.recompute", "not none", UNBUILT, "activations computed again",
     find_recompute, near_none},
    {"offloaded optimizer", "layout.offload.optimizer", "not none", UNBUILT,
     "optimizer state in host memory or on disk", find_offload_optimizer, near_none},
    {"offloaded parameters", "layout.offload.params", "not none", UNBUILT,
     "parameters in host memory or on disk", find_offload_params, near_none},
    {"offloaded activations", "layout.offload.activations", "not none", UNBUILT,
     "activations in host memory or on disk", find_offload_activations, near_none},
    {"precision", "precision.compute", "bf16, fp16 or fp8", UNBUILT, "mixed precision",
     find_compute, near_compute},
};

const ech_legal_rule *ech_legal_unbuilt_rules(int *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}
