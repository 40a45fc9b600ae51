/* Is a layout possible: pipelines, sharding, recomputation and offload, and what single systems can
 * do with them.  Sources: Megatron-LM's and torchtitan's argument checks, DeepSpeed's configuration
 * reference (pipelines with ZeRO-1 at most), PyTorch's fully_shard reference. */
#include "price/legal_point.h"

#include "layout/stages.h" /* ECH_MAX_CHUNKS */

enum { MAX_PIPELINE = 128 /* ranks that a footprint tells apart */ };

static bool is_megatron(const ech_job *job)
{
    return job->system == ECH_SYSTEM_MEGATRON;
}

static bool is_torch(const ech_job *job)
{
    return job->system == ECH_SYSTEM_FSDP2 || job->system == ECH_SYSTEM_TORCHTITAN;
}

/* "megatron: " and the finding. */
#define REFUSE(why, job, ...)                                                                      \
    do {                                                                                           \
        if (why) {                                                                                 \
            ech_findings_add((why), "%s: ", ech_system_name((job)->system));                       \
            ech_text_add(&(why)->text, __VA_ARGS__);                                               \
        }                                                                                          \
    } while (0)

/* --- pipelines --- */

static bool is_interleaved(const ech_point *p)
{
    return p->schedule == ECH_SCHEDULE_INTERLEAVED && p->pp > 1 && p->vpp > 1;
}

static int64_t stages_of(const ech_point *p)
{
    return p->pp == 1 ? 1 : (int64_t)p->pp * ech_schedule_chunks(p->schedule, p->vpp);
}

static bool breaks_pipeline_size(const ech_job *job, const ech_point *p, ech_findings *why)
{
    (void)job;
    if (p->pp <= MAX_PIPELINE && p->vpp <= ECH_MAX_CHUNKS)
        return false;
    if (why)
        ech_findings_add(why, "pp %d x vpp %d: wanted at most %d x %d", p->pp, p->vpp, MAX_PIPELINE,
                         ECH_MAX_CHUNKS);
    return true;
}

static bool can_pipeline(ech_system s)
{
    return s != ECH_SYSTEM_FSDP2;
}

static bool breaks_pipeline_system(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (p->pp == 1 || can_pipeline(job->system))
        return false;
    REFUSE(why, job, "pp %d: it has no pipelines; nearest legal value 1", p->pp);
    return true;
}

static bool has_schedule(ech_system s, ech_schedule_kind k)
{
    switch (s) {
    case ECH_SYSTEM_ECHELON:
        return true;
    case ECH_SYSTEM_MEGATRON:
        return k == ECH_SCHEDULE_1F1B || k == ECH_SCHEDULE_INTERLEAVED;
    case ECH_SYSTEM_DEEPSPEED:
        return k == ECH_SCHEDULE_1F1B;
    case ECH_SYSTEM_TORCHTITAN:
        return k != ECH_SCHEDULE_ZB_H1;
    case ECH_SYSTEM_FSDP2:
    case ECH_N_SYSTEMS:
        break;
    }
    return k == ECH_SCHEDULE_1F1B;
}

static bool breaks_schedule(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (p->schedule != ECH_SCHEDULE_FILE && (p->pp == 1 || has_schedule(job->system, p->schedule)))
        return false;
    REFUSE(why, job, "it has no schedule %s; legal:", ech_schedule_name(p->schedule));
    for (int k = 0; why && k < ECH_SCHEDULE_FILE; k++)
        if (has_schedule(job->system, (ech_schedule_kind)k))
            ech_text_add(&why->text, " %s", ech_schedule_name((ech_schedule_kind)k));
    return true;
}

/* Echelon calls virtual stages of a pipeline of one rank legal and without effect. */
static bool breaks_chunks(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int most = p->schedule == ECH_SCHEDULE_INTERLEAVED ? ECH_MAX_CHUNKS
                     : p->schedule == ECH_SCHEDULE_ZB_V      ? 2
                                                             : 1;
    if (p->pp == 1 ? p->vpp == 1 || job->system == ECH_SYSTEM_ECHELON : p->vpp <= most)
        return false;
    if (why && p->pp == 1)
        ech_findings_add(why, "vpp %d with pp 1: there is nothing to cut; nearest legal value 1",
                         p->vpp);
    else if (why)
        ech_findings_add(why, "vpp %d under %s: nearest legal value %d, or schedule interleaved",
                         p->vpp, ech_schedule_name(p->schedule), most);
    return true;
}

static bool breaks_layers(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t stages = stages_of(p);
    const int64_t layers = job->model->layers + (p->split == ECH_SPLIT_ENDS ? 2 : 0);
    if (stages <= layers || p->split == ECH_SPLIT_LIST)
        return false;
    if (why)
        ech_findings_add(why,
                         "%lld stages for %lld layers, each has one at least; nearest legal "
                         "vpp %lld, pp %lld",
                         (long long)stages, (long long)layers,
                         (long long)(layers / p->pp > 0 ? layers / p->pp : 1),
                         (long long)(layers < p->pp ? layers : p->pp));
    return true;
}

static bool breaks_even(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t stages = stages_of(p);
    const int64_t layers = job->model->layers + (p->split == ECH_SPLIT_ENDS ? 2 : 0);
    if ((p->split != ECH_SPLIT_EVEN && p->split != ECH_SPLIT_ENDS) || p->pp == 1 ||
        layers % stages == 0)
        return false;
    if (why) {
        ech_findings_add(why, "%lld layers%s do not divide into pp %d x vpp %d = %lld stages",
                         (long long)job->model->layers,
                         p->split == ECH_SPLIT_ENDS ? " and two ends" : "", p->pp, p->vpp,
                         (long long)stages);
        ech_text_add(&why->text, " (pp x vpp)");
        ech_point_near(why, ech_near_divisors(layers, stages));
    }
    return true;
}

static bool breaks_list(const ech_job *job, const ech_point *p, ech_findings *why)
{
    int64_t sum = 0;
    if (p->split != ECH_SPLIT_LIST)
        return false;
    for (int64_t i = 0; p->stage_layers && i < stages_of(p); i++)
        sum += p->stage_layers[i];
    if (p->stage_layers && sum == job->model->layers)
        return false;
    if (why)
        ech_findings_add(why, "the listed stages have %lld layers, the model has %lld",
                         (long long)sum, (long long)job->model->layers);
    return true;
}

/* Uneven stages by cost need Megatron's pipeline layout of 2025; before, all stages have as many
 * layers, the embedding and the head counted as one each or not. */
static bool breaks_split(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (!is_megatron(job) || p->pp == 1 || p->split != ECH_SPLIT_BALANCED ||
        job->generation == ECH_GENERATION_MCORE_14)
        return false;
    REFUSE(why, job, "stages cut by cost need generation mcore-0.14; legal: even, ends, a list");
    return true;
}

/* A group of pp micro-batches goes through a chunk together. */
static bool breaks_interleaving(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t m = job->global_batch / ((int64_t)p->dp * p->micro);
    if (!is_interleaved(p) || m % p->pp == 0)
        return false;
    if (why) {
        ech_findings_add(why, "interleaved stages: %lld micro-batches are no multiple of pp %d",
                         (long long)m, p->pp);
        ech_point_near(why, ech_near_multiples(p->pp, m));
    }
    return true;
}

/* --- sharded state --- */

static bool breaks_stage(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (p->zero_stage >= 0 && p->zero_stage <= 3)
        return false;
    REFUSE(why, job, "zero %d: wanted 0, 1, 2 or 3", p->zero_stage);
    return true;
}

static bool breaks_stage_system(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int z = p->zero_stage;
    if (is_megatron(job) && z > 1)
        REFUSE(why, job, "zero %d: its distributed optimizer is stage 1; legal: 0 and 1", z);
    else if (is_torch(job) && z != 0 && z != 3)
        REFUSE(why, job,
               "zero %d: fully_shard is stage 3 (with --no-reshard gathered weights stay, as at "
               "stage 2); legal: 0 and 3",
               z);
    else if (job->system == ECH_SYSTEM_DEEPSPEED && p->pp > 1 && z > 1)
        REFUSE(why, job, "zero %d with pp %d: pipelines take stages 0 and 1", z, p->pp);
    else
        return false;
    return true;
}

/* torchtitan's replicas without sharding (DDP) go with no other axis; FSDP's tensor and context
 * parallel meshes are written beside sharding alone. */
static bool breaks_replicas(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const bool has_axes = p->tp > 1 || p->cp > 1 || p->pp > 1 || p->ep > 1;
    const bool has_replicas = job->system == ECH_SYSTEM_FSDP2 || (int64_t)p->dp * p->cp > 1;
    if (!is_torch(job) || p->zero_stage != 0 || !has_axes || !has_replicas)
        return false;
    REFUSE(why, job,
           "zero 0 with tp %d, cp %d, pp %d, ep %d: replicas alone go with no other axis; "
           "legal: 3",
           p->tp, p->cp, p->pp, p->ep);
    return true;
}

static bool breaks_group(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t ranks = (int64_t)p->dp * p->cp;
    const int group = p->zero_group;
    (void)job;
    if (group == 0 || (group > 0 && ranks % group == 0 && (p->zero_stage > 0 || group == ranks)))
        return false;
    if (!why)
        return true;
    if (group < 0 || ranks % group) {
        ech_findings_add(why, "zero-group %d does not divide dp x cp = %lld", group,
                         (long long)ranks);
        ech_point_near(why, ech_near_divisors(ranks, group > 0 ? group : 1));
    } else {
        ech_findings_add(why, "zero-group %d with zero 0: nothing is sharded; legal: 0", group);
    }
    return true;
}

/* MiCS shards everything or nothing within a part of the ranks. */
static bool breaks_group_system(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const bool is_part = p->zero_group && p->zero_group != (int64_t)p->dp * p->cp;
    if (job->system != ECH_SYSTEM_DEEPSPEED || !is_part || p->zero_stage == 3)
        return false;
    REFUSE(why, job,
           "zero-group %d at zero %d: only stage 3 shards within a part of the ranks; "
           "legal: 0",
           p->zero_group, p->zero_stage);
    return true;
}

static bool breaks_reduce(const ech_job *job, const ech_point *p, ech_findings *why)
{
    (void)job;
    if (!p->reduce_each || p->zero_stage >= 2)
        return false;
    if (why)
        ech_findings_add(why,
                         "reduce each with zero %d: whole gradients are kept anyway; legal: "
                         "last",
                         p->zero_stage);
    return true;
}

/* --- tensor, context and expert parallel ranks --- */

static bool breaks_sp_system(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (p->tp == 1 || p->sequence_parallel)
        return false;
    if (is_torch(job))
        REFUSE(why, job, "tp %d without sequence parallelism: its plans always have it", p->tp);
    else if (is_megatron(job) && p->ep > 1)
        REFUSE(why, job, "ep %d with tp %d needs sequence parallelism", p->ep, p->tp);
    else
        return false;
    return true;
}

static bool has_cp(ech_system s, ech_cp_kind kind)
{
    if (s == ECH_SYSTEM_DEEPSPEED)
        return kind == ECH_CP_ULYSSES;
    if (s == ECH_SYSTEM_FSDP2 || s == ECH_SYSTEM_TORCHTITAN)
        return kind == ECH_CP_RING || kind == ECH_CP_GATHER;
    return true;
}

static bool breaks_cp_system(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (p->cp == 1 || has_cp(job->system, p->cp_kind))
        return false;
    REFUSE(why, job, "it has no cp kind %s; legal:", ech_cp_kind_name(p->cp_kind));
    for (int k = 0; why && k <= ECH_CP_USP; k++)
        if (has_cp(job->system, (ech_cp_kind)k))
            ech_text_add(&why->text, " %s", ech_cp_kind_name((ech_cp_kind)k));
    return true;
}

static bool breaks_ep_system(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (job->system != ECH_SYSTEM_FSDP2 || (p->ep == 1 && p->etp == 1))
        return false;
    REFUSE(why, job, "ep %d, etp %d: it has no expert parallelism; nearest legal value 1", p->ep,
           p->etp);
    return true;
}

/* Torch's meshes and DeepSpeed's topology have one order; Megatron may have stages before
 * replicas. */
static bool has_order(ech_system s, ech_order o)
{
    if (s == ECH_SYSTEM_ECHELON)
        return true;
    return o == ECH_ORDER_TP_CP_DP_PP || (s == ECH_SYSTEM_MEGATRON && o == ECH_ORDER_TP_PP_DP);
}

static bool breaks_order(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (has_order(job->system, p->order))
        return false;
    REFUSE(why, job, "it has no order %s; legal:", ech_order_name(p->order));
    for (int o = 0; why && o < ECH_N_ORDERS; o++)
        if (has_order(job->system, (ech_order)o))
            ech_text_add(&why->text, " %s", ech_order_name((ech_order)o));
    return true;
}

/* --- recomputation --- */

static bool breaks_recompute_model(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const uint32_t r = p->recompute;
    const bool lacks_moe = (r & ECH_RECOMPUTE_MOE) && !job->model->moe.experts;
    const bool lacks_mla = (r & ECH_RECOMPUTE_MLA) && !job->model->mla.kv_lora_rank;
    if (!lacks_moe && !lacks_mla)
        return false;
    if (why)
        ech_findings_add(why, "recompute %s: the model has none", lacks_moe ? "moe" : "mla");
    return true;
}

static bool breaks_recompute_layers(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const int64_t most = (job->model->layers + stages_of(p) - 1) / stages_of(p);
    const bool is_full = p->recompute & ECH_RECOMPUTE_FULL;
    if (p->recompute_layers == 0 ||
        (is_full && p->recompute_layers > 0 && p->recompute_layers <= most))
        return false;
    if (!why)
        return true;
    if (!is_full)
        ech_findings_add(why, "%d recomputed layers, but nothing is recomputed in full",
                         p->recompute_layers);
    else
        ech_findings_add(why, "recompute full:%d, a stage has %lld layers; legal: 1 to %lld",
                         p->recompute_layers, (long long)most, (long long)most);
    return true;
}

uint32_t ech_recompute_known(const ech_job *job)
{
    const uint32_t full = ECH_RECOMPUTE_FULL;
    /* Megatron-LM's --recompute-modules: of products of the MLP it knows those of experts alone. */
    const uint32_t parts =
        ECH_RECOMPUTE_ATTENTION | ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_MOE | ECH_RECOMPUTE_MLA;
    if (job->system == ECH_SYSTEM_DEEPSPEED)
        return full;
    if (is_torch(job))
        return full | ECH_RECOMPUTE_OPS;
    if (is_megatron(job) && job->generation == ECH_GENERATION_MEGATRON_2021)
        return full | ECH_RECOMPUTE_ATTENTION;
    return full | parts | (is_megatron(job) ? 0u : ECH_RECOMPUTE_ACT | ECH_RECOMPUTE_OPS);
}

static bool breaks_recompute_system(const ech_job *job, const ech_point *p, ech_findings *why)
{
    ech_text words = {0};
    if ((p->recompute & ~ech_recompute_known(job)) == 0)
        return false;
    if (!why)
        return true;
    const uint32_t parts = ech_recompute_known(job) & ~(uint32_t)ECH_RECOMPUTE_FULL;
    ech_recompute_print(p->recompute & ~ech_recompute_known(job), 0, &words);
    REFUSE(why, job, "it does not recompute %s; legal: none", ech_text_get(&words));
    if (parts) {
        ech_text_add(&why->text, ", ");
        ech_recompute_print(parts, 0, &why->text);
    }
    ech_text_add(&why->text, " and full");
    ech_text_fini(&words);
    return true;
}

/* --- offload --- */

static bool uses(const ech_point *p, ech_offload where)
{
    return p->offload_optimizer == where || p->offload_params == where ||
           p->offload_activations == where;
}

static bool breaks_nvme(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (!uses(p, ECH_OFFLOAD_NVME))
        return false;
    const bool has_system =
        job->system == ECH_SYSTEM_ECHELON || job->system == ECH_SYSTEM_DEEPSPEED;
    if (has_system && job->cluster->nvme_bytes > 0.0)
        return false;
    if (!has_system)
        REFUSE(why, job, "it does not offload to nvme; legal: none and host");
    else if (why)
        ech_findings_add(why, "offload to nvme: a node of %s has none; legal: none and host",
                         job->cluster->name);
    return true;
}

static bool breaks_offload_params(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (!p->offload_params || (p->zero_stage == 3 && !is_megatron(job)))
        return false;
    REFUSE(why, job, "offloaded parameters with zero %d: %s", p->zero_stage,
           is_megatron(job)
               ? "it has no such offload; legal: none"
               : "they are fetched unit by unit as stage 3 does; legal: none, or zero 3");
    return true;
}

static bool breaks_offload_optimizer(const ech_job *job, const ech_point *p, ech_findings *why)
{
    if (!p->offload_optimizer)
        return false;
    if (is_torch(job) && (p->zero_stage != 3 || !p->offload_params))
        REFUSE(why, job, "its offload policy moves parameters and optimizer together, at zero 3");
    else if ((is_megatron(job) || job->system == ECH_SYSTEM_DEEPSPEED) && p->zero_stage == 0)
        REFUSE(why, job, "an offloaded optimizer with zero 0: wanted zero 1 or more");
    else
        return false;
    return true;
}

static bool breaks_offload_pairs(const ech_job *job, const ech_point *p, ech_findings *why)
{
    const bool is_half = is_torch(job) && p->offload_params && !p->offload_optimizer;
    if (is_half) {
        REFUSE(why, job, "its offload policy moves parameters and optimizer together");
        return true;
    }
    if (!is_megatron(job) || !p->offload_activations || p->pp == 1)
        return false;
    REFUSE(why, job, "offloaded activations with pp %d: only without pipelines", p->pp);
    return true;
}

/* --- what a system leaves no choice of --- */

void ech_point_follow_system(const ech_job *job, ech_point *p)
{
    const bool is_sharded = p->zero_stage >= 2;
    if (p->tp > 1 && (is_torch(job) || (is_megatron(job) && p->ep > 1)))
        p->sequence_parallel = true;
    if (job->system == ECH_SYSTEM_DEEPSPEED)
        p->reduce_each = is_sharded;
    if (is_torch(job)) /* its pipelines switch reduction off for all but the last micro-batch */
        p->reduce_each = is_sharded && p->pp == 1;
    if (job->system == ECH_SYSTEM_DEEPSPEED && p->cp > 1)
        p->cp_kind = ECH_CP_ULYSSES;
    if (breaks_split(job, p, NULL)) {
        const bool has_ends =
            job->model->layers % stages_of(p) && (job->model->layers + 2) % stages_of(p) == 0;
        p->split = has_ends ? ECH_SPLIT_ENDS : ECH_SPLIT_EVEN;
    }
}

/* --- the table --- */

static const ech_point_rule rules[] = {
    {"pipeline too long", breaks_pipeline_size},
    {"the system has no pipelines", breaks_pipeline_system},
    {"the system has no such schedule", breaks_schedule},
    {"virtual stages under this schedule", breaks_chunks},
    {"fewer layers than stages", breaks_layers},
    {"layers do not divide into stages", breaks_even},
    {"listed stages do not add up", breaks_list},
    {"the system has no such cut", breaks_split},
    {"micro-batches no multiple of pp", breaks_interleaving},
    {"no such ZeRO stage", breaks_stage},
    {"the system has no such ZeRO stage", breaks_stage_system},
    {"the system has no such replicas", breaks_replicas},
    {"shard group does not divide", breaks_group},
    {"the system has no such shard group", breaks_group_system},
    {"reduce each without shards", breaks_reduce},
    {"the system needs sequence parallelism", breaks_sp_system},
    {"the system has no such cp", breaks_cp_system},
    {"the system has no experts' parallelism", breaks_ep_system},
    {"the system has no such order", breaks_order},
    {"recomputation of what is not there", breaks_recompute_model},
    {"recomputed layers", breaks_recompute_layers},
    {"the system has no such recomputation", breaks_recompute_system},
    {"no such offload: nvme", breaks_nvme},
    {"no such offload: parameters", breaks_offload_params},
    {"no such offload: optimizer", breaks_offload_optimizer},
    {"no such offload: combination", breaks_offload_pairs},
};

const ech_point_rule *ech_point_rules_system(int *n)
{
    *n = sizeof rules / sizeof rules[0];
    return rules;
}
