#include "price/job.h"

#include <stdlib.h>
#include <string.h>

/* --- names --- */

static const char *const system_names[] = {
#define ECH_SYSTEM_NAME(name, text) [name] = text,
    ECH_SYSTEM_LIST(ECH_SYSTEM_NAME)
#undef ECH_SYSTEM_NAME
};
static const char *const generation_names[] = {
#define ECH_GENERATION_NAME(name, text) [name] = text,
    ECH_GENERATION_LIST(ECH_GENERATION_NAME)
#undef ECH_GENERATION_NAME
};
static const char *const optimizer_names[] = {[ECH_OPTIMIZER_ADAMW] = "adamw",
                                              [ECH_OPTIMIZER_ADAMW_8BIT] = "adam8bit",
                                              [ECH_OPTIMIZER_ADAMW_BF16] = "adamw-bf16",
                                              [ECH_OPTIMIZER_SGD] = "sgd",
                                              [ECH_OPTIMIZER_MUON] = "muon"};
static const char *const order_names[] = {[ECH_ORDER_TP_CP_DP_PP] = "tp-cp-dp-pp",
                                          [ECH_ORDER_TP_PP_DP] = "tp-cp-pp-dp",
                                          [ECH_ORDER_DP_TP_PP] = "dp-tp-cp-pp"};
static const char *const cp_names[] = {[ECH_CP_RING] = "ring",
                                       [ECH_CP_GATHER] = "gather",
                                       [ECH_CP_ULYSSES] = "ulysses",
                                       [ECH_CP_USP] = "usp"};
static const char *const offload_names[] = {
    [ECH_OFFLOAD_NONE] = "none", [ECH_OFFLOAD_HOST] = "host", [ECH_OFFLOAD_NVME] = "nvme"};
static const char *const split_names[] = {[ECH_SPLIT_BALANCED] = "balanced",
                                          [ECH_SPLIT_EVEN] = "even",
                                          [ECH_SPLIT_ENDS] = "ends",
                                          [ECH_SPLIT_LIST] = "list"};

#define N_NAMES(names) ((int)(sizeof(names) / sizeof((names)[0])))

static const char *name_of(const char *const *names, int n, int i)
{
    return i >= 0 && i < n ? names[i] : "none such";
}

/* Its number, -1: none. */
static int number_of(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

const char *ech_system_name(ech_system s)
{
    return name_of(system_names, N_NAMES(system_names), (int)s);
}

const char *ech_generation_name(ech_generation g)
{
    return name_of(generation_names, N_NAMES(generation_names), (int)g);
}

const char *ech_optimizer_name(ech_optimizer o)
{
    return name_of(optimizer_names, N_NAMES(optimizer_names), (int)o);
}

const char *ech_order_name(ech_order o)
{
    return name_of(order_names, N_NAMES(order_names), (int)o);
}

const char *ech_cp_kind_name(ech_cp_kind k)
{
    return name_of(cp_names, N_NAMES(cp_names), (int)k);
}

const char *ech_offload_name(ech_offload o)
{
    return name_of(offload_names, N_NAMES(offload_names), (int)o);
}

const char *ech_stage_split_name(ech_stage_split s)
{
    return name_of(split_names, N_NAMES(split_names), (int)s);
}

bool ech_system_read(const char *name, ech_system *out)
{
    const int i = number_of(system_names, N_NAMES(system_names), name);
    if (i >= 0)
        *out = (ech_system)i;
    return i >= 0;
}

bool ech_generation_read(const char *name, ech_generation *out)
{
    const int i = number_of(generation_names, N_NAMES(generation_names), name);
    if (i >= 0)
        *out = (ech_generation)i;
    return i >= 0;
}

bool ech_optimizer_read(const char *name, ech_optimizer *out)
{
    const int i = number_of(optimizer_names, N_NAMES(optimizer_names), name);
    if (i >= 0)
        *out = (ech_optimizer)i;
    return i >= 0;
}

bool ech_order_name_read(const char *name, ech_order *out)
{
    const int i = number_of(order_names, N_NAMES(order_names), name);
    if (i >= 0)
        *out = (ech_order)i;
    return i >= 0;
}

bool ech_cp_kind_read(const char *name, ech_cp_kind *out)
{
    const int i = number_of(cp_names, N_NAMES(cp_names), name);
    if (i >= 0)
        *out = (ech_cp_kind)i;
    return i >= 0;
}

bool ech_offload_read(const char *name, ech_offload *out)
{
    const int i = number_of(offload_names, N_NAMES(offload_names), name);
    if (i >= 0)
        *out = (ech_offload)i;
    return i >= 0;
}

bool ech_stage_split_read(const char *name, ech_stage_split *out)
{
    const int i = number_of(split_names, N_NAMES(split_names), name);
    if (i >= 0)
        *out = (ech_stage_split)i;
    return i >= 0;
}

/* --- defaults --- */

ech_generation ech_generation_of(ech_system s, ech_device_kind kind)
{
    if (kind == ECH_DEVICE_CPU)
        return ECH_GENERATION_ECHELON;
    if (s == ECH_SYSTEM_FSDP2 || s == ECH_SYSTEM_TORCHTITAN)
        return ECH_GENERATION_FSDP2_COMPILE;
    if (kind == ECH_DEVICE_VOLTA && s == ECH_SYSTEM_MEGATRON)
        return ECH_GENERATION_MEGATRON_2021; /* flash attention needs Ampere; torch has another one */
    return s == ECH_SYSTEM_DEEPSPEED ? ECH_GENERATION_MEGATRON_FLASH : ECH_GENERATION_MCORE_14;
}

ech_job ech_job_default(ech_system system)
{
    const bool is_torch = system == ECH_SYSTEM_FSDP2 || system == ECH_SYSTEM_TORCHTITAN;
    const bool is_deepspeed = system == ECH_SYSTEM_DEEPSPEED;
    return (ech_job){.gpus = 1,
                     .seq = 4096,
                     .global_batch = 1,
                     .precision = ECH_PRECISION_BF16,
                     .system = system,
                     .generation = system == ECH_SYSTEM_ECHELON
                                       ? ECH_GENERATION_ECHELON /* on processors */
                                       : ech_generation_of(system, ECH_DEVICE_HOPPER),
                     .is_compiled = system == ECH_SYSTEM_ECHELON || system == ECH_SYSTEM_MEGATRON,
                     .has_master = !is_torch,
                     .grad_bytes = is_deepspeed ? 2 : 4,
                     .wire_bytes = is_deepspeed ? 2 : 4,
                     .optimizer = ECH_OPTIMIZER_ADAMW,
                     .is_optimizer_grouped = is_torch,
                     .tuning = ECH_TUNING_FULL,
                     .loss = ECH_LOSS_DEFAULT,
                     .moe_balance = 1.0};
}

ech_point ech_point_default(void)
{
    return (ech_point){.tp = 1,
                       .pp = 1,
                       .vpp = 1,
                       .dp = 1,
                       .cp = 1,
                       .ep = 1,
                       .etp = 1,
                       .micro = 1,
                       .schedule = ECH_SCHEDULE_1F1B,
                       .cp_kind = ECH_CP_RING,
                       .split = ECH_SPLIT_BALANCED,
                       .order = ECH_ORDER_TP_CP_DP_PP,
                       .reshard_after_forward = true};
}

int64_t ech_point_micros(const ech_job *job, const ech_point *p)
{
    const int64_t rows = (int64_t)p->dp * p->micro;
    return rows > 0 && job->global_batch % rows == 0 ? job->global_batch / rows : 0;
}

int64_t ech_point_shard_group(const ech_point *p)
{
    return p->zero_group > 0 ? p->zero_group : (int64_t)p->dp * p->cp;
}

int64_t ech_point_edp(const ech_point *p)
{
    return (int64_t)p->tp * p->cp * p->dp / ((int64_t)p->ep * p->etp);
}

double ech_point_expert_shards(const ech_point *p)
{
    const double replicas = (double)p->dp * p->cp;
    const double n = (double)ech_point_edp(p) * (double)ech_point_shard_group(p) / replicas;
    return n > 1 ? n : 1;
}

bool ech_point_reduces_each(const ech_job *job, const ech_point *p)
{
    if (ech_point_micros(job, p) <= 1)
        return true;
    return p->reduce_each || (job->system == ECH_SYSTEM_DEEPSPEED && p->zero_stage >= 2);
}

/* --- recomputation in words --- */

static const struct {
    const char *word;
    uint32_t bit;
} recompute_words[] = {
    {"attention", ECH_RECOMPUTE_ATTENTION},
    {"norm", ECH_RECOMPUTE_NORM},
    {"act", ECH_RECOMPUTE_ACT},
    {"moe", ECH_RECOMPUTE_MOE},
    {"mla", ECH_RECOMPUTE_MLA},
    {"ops", ECH_RECOMPUTE_OPS},
    {"swiglu", ECH_RECOMPUTE_ACT},
    {"gelu", ECH_RECOMPUTE_ACT}, /* read, not printed */
};
enum { N_PRINTED = 6, N_WORDS = 8 };

void ech_recompute_print(uint32_t recompute, int32_t layers, ech_text *out)
{
    if (recompute & ECH_RECOMPUTE_FULL) {
        ech_text_add(out, "full");
        if (layers > 0)
            ech_text_add(out, ":%d", layers);
        return;
    }
    const char *between = "";
    for (int i = 0; i < N_PRINTED; i++)
        if (recompute & recompute_words[i].bit) {
            ech_text_add(out, "%s%s", between, recompute_words[i].word);
            between = ",";
        }
    if (!between[0])
        ech_text_add(out, "none");
}

/* What a system means by "selective". */
static uint32_t selective_of(const ech_job *job)
{
    switch (job->system) {
    case ECH_SYSTEM_MEGATRON:
    case ECH_SYSTEM_DEEPSPEED:
        return ECH_RECOMPUTE_ATTENTION;
    case ECH_SYSTEM_FSDP2:
    case ECH_SYSTEM_TORCHTITAN:
        return ECH_RECOMPUTE_OPS;
    default:
        return ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT |
               (job->generation == ECH_GENERATION_MEGATRON_2021 ? ECH_RECOMPUTE_ATTENTION : 0u);
    }
}

/* The bits of words between commas; 0: one is none. */
static uint32_t bits_of(const char *words)
{
    uint32_t bits = 0;
    while (*words) {
        const size_t n = strcspn(words, ",");
        uint32_t bit = 0;
        for (int i = 0; i < N_WORDS && !bit; i++)
            if (strlen(recompute_words[i].word) == n &&
                memcmp(words, recompute_words[i].word, n) == 0)
                bit = recompute_words[i].bit;
        if (!bit || (words[n] == ',' && !words[n + 1]))
            return 0;
        bits |= bit;
        words += n + (words[n] == ',');
    }
    return bits;
}

/* The number behind a word and its colon; 0: no such thing. */
static int32_t layers_behind(const char *words, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(words, word, n) != 0)
        return 0;
    char *end;
    const long layers = strtol(words + n, &end, 10);
    return *end == '\0' && layers > 0 && layers <= ECH_MODEL_LAYERS_MAX ? (int32_t)layers : 0;
}

bool ech_recompute_read(const char *words, const ech_job *job, uint32_t *recompute, int32_t *layers)
{
    const int32_t full = layers_behind(words, "full:");
    const int32_t some = full ? full : layers_behind(words, "first:");
    uint32_t bits = 0;
    if (some || strcmp(words, "full") == 0)
        bits = ECH_RECOMPUTE_FULL;
    else if (strcmp(words, "selective") == 0)
        bits = selective_of(job);
    else if (strcmp(words, "none") != 0 && (bits = bits_of(words)) == 0)
        return false;
    *recompute = bits;
    *layers = some;
    return true;
}

/* --- a layout as options --- */

static void print_degree(const char *option, int32_t value, ech_text *out)
{
    if (value > 1)
        ech_text_add(out, " --%s %d", option, value);
}

static void print_offload(const char *option, ech_offload o, ech_text *out)
{
    if (o != ECH_OFFLOAD_NONE)
        ech_text_add(out, " --offload-%s %s", option, ech_offload_name(o));
}

static void print_stages(const ech_point *p, ech_text *out)
{
    if (p->schedule != ECH_SCHEDULE_1F1B && p->pp > 1)
        ech_text_add(out, " --schedule %s", ech_schedule_name(p->schedule));
    if (p->split == ECH_SPLIT_LIST && p->stage_layers) {
        ech_text_add(out, " --stages ");
        for (int i = 0; i < p->pp * p->vpp; i++)
            ech_text_add(out, "%s%d", i ? "," : "", p->stage_layers[i]);
    } else if (p->split != ECH_SPLIT_BALANCED && p->pp > 1)
        ech_text_add(out, " --split %s", ech_stage_split_name(p->split));
}

void ech_point_print(const ech_point *p, ech_text *out)
{
    ech_text_add(out, "--dp %d", p->dp);
    print_degree("tp", p->tp, out);
    if (p->sequence_parallel)
        ech_text_add(out, " --sp");
    print_degree("pp", p->pp, out);
    print_degree("vpp", p->vpp, out);
    print_degree("cp", p->cp, out);
    if (p->cp > 1 && p->cp_kind != ECH_CP_RING)
        ech_text_add(out, " --cp-kind %s", ech_cp_kind_name(p->cp_kind));
    print_degree("ep", p->ep, out);
    print_degree("etp", p->etp, out);
    print_stages(p, out);
    if (p->zero_stage > 0)
        ech_text_add(out, " --zero %d", p->zero_stage);
    if (p->zero_group > 0)
        ech_text_add(out, " --zero-group %d", p->zero_group);
    if (p->zero_stage == 3 && !p->reshard_after_forward)
        ech_text_add(out, " --no-reshard");
    if (p->reduce_each)
        ech_text_add(out, " --reduce-each");
    ech_text_add(out, " --micro %d", p->micro);
    if (p->recompute) {
        ech_text_add(out, " --recompute ");
        ech_recompute_print(p->recompute, p->recompute_layers, out);
    }
    print_offload("optimizer", p->offload_optimizer, out);
    print_offload("params", p->offload_params, out);
    print_offload("activations", p->offload_activations, out);
    if (p->order != ECH_ORDER_TP_CP_DP_PP)
        ech_text_add(out, " --order %s", ech_order_name(p->order));
}

void ech_point_options(const ech_job *job, const ech_point *p, ech_text *out)
{
    const bool shards = job->system == ECH_SYSTEM_FSDP2 || job->system == ECH_SYSTEM_TORCHTITAN;
    ech_point_print(p, out);
    if (shards && p->zero_stage == 0)
        ech_text_add(out, " --zero 0");
}
