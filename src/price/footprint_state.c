/* Model state: bytes of an element of a rank's share under each system, sharding and offload.
 *
 * Sources: Rajbhandari et al. 2020, arXiv:1910.02054, sections 3 and 5 (2 + 2 + 12, stages);
 * Megatron-LM, distributed optimizer (6 + 12 / D with gradients in fp32); DeepSpeed's estimators
 * (2 P + 18 P / N, 18 P / N: a copy of gradients in fp32 beside those in 16 bits); Zhao et al. 2023,
 * arXiv:2304.11277 (FSDP keeps the shard in the parameters' own type); Dettmers et al. 2022,
 * arXiv:2110.02861 (moments in 8 bits, a scale of 4 bytes a block of 2048) and 2023, arXiv:2305.14314,
 * section 3 (4 bits, constants quantised too: 0.127 bits). */
#include "price/footprint_private.h"

/* Of an element before it is shared. */
typedef struct element {
    double params, grads, grads_fp32, master, moments;
} element;

static double moments_of(ech_optimizer o)
{
    switch (o) {
    case ECH_OPTIMIZER_ADAMW_8BIT:
        return 2 * (1 + 4.0 / 2048);
    case ECH_OPTIMIZER_ADAMW_BF16:
    case ECH_OPTIMIZER_SGD: /* one in fp32 */
    case ECH_OPTIMIZER_MUON:
        return 4;
    default:
        return 8;
    }
}

static bool is_wide(const ech_job *job)
{
    return job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32;
}

/* Of weights: FSDP's are the shard that is trained, in fp32 where gradients are. */
static double weight_bytes(const ech_job *job)
{
    if (is_wide(job) || (ech_is_torch(job) && !job->has_master && job->grad_bytes >= 4))
        return 4;
    return 2;
}

static element element_of(const ech_job *job)
{
    element e = {.params = weight_bytes(job), .grads = is_wide(job) ? 4 : job->grad_bytes};
    e.master = job->has_master && !is_wide(job) ? 4 : 0;
    e.moments = moments_of(job->optimizer);
    e.grads_fp32 = job->system == ECH_SYSTEM_DEEPSPEED && e.master > 0 && e.grads < 4 ? 4 : 0;
    return e;
}

/* Are gradients kept as shards only?  Not where several micro-batches are summed before the first
 * reduction: FSDP's no_sync, which torch.distributed.pipelining has on for all but the last;
 * Megatron's distributed optimizer keeps them whole.  DeepSpeed's backward always reduces. */
static bool shards_grads(const ech_job *job, const ech_point *p)
{
    return p->zero_stage >= 2 && ech_point_reduces_each(job, p);
}

/* Optimizer state off the device, and with it the gradients that DeepSpeed keeps for it.  Others send
 * gradients through buffers. */
static void offload_optimizer(const ech_job *job, const ech_point *p, const element *e,
                              double shards, ech_state_rule *r)
{
    const bool is_deepspeed = job->system == ECH_SYSTEM_DEEPSPEED;
    const double kept =
        is_deepspeed ? e->grads_fp32 / shards : 0; /* of gradients, for the update */
    double moved = r->master + r->moments;
    if (p->offload_optimizer == ECH_OFFLOAD_NONE)
        return;
    r->master = r->moments = 0;
    /* Echelon's gradients go out unit by unit and are summed where the update is made: what a rank
     * keeps of them is its own shard, or nobody shares. */
    const bool is_own = job->system == ECH_SYSTEM_ECHELON && (shards_grads(job, p) || shards <= 1);
    if (is_own || (is_deepspeed && p->zero_stage >= 2)) {
        moved += kept > 0 ? kept : r->grads;
        r->grads = 0;
    } else if (is_deepspeed && p->zero_stage == 1) {
        moved += kept;
        r->grads -= kept;
    }
    *(p->offload_optimizer == ECH_OFFLOAD_NVME ? &r->nvme : &r->host) += moved;
}

/* Shards of parameters off the device: stage 3 alone has any. */
static void offload_params(const ech_job *job, const ech_point *p, ech_state_rule *r)
{
    if (p->offload_params == ECH_OFFLOAD_NONE || p->zero_stage < 3)
        return;
    double moved = r->params;
    r->params = 0;
    if (ech_is_torch(job)) { /* gradients live where their parameters do */
        moved += r->grads;
        r->grads = 0;
    }
    *(p->offload_params == ECH_OFFLOAD_NVME ? &r->nvme : &r->host) += moved;
}

/* Of gradients between micro-batches and until the update. */
static double grad_bytes(const ech_job *job, const ech_point *p, const element *e, double shards)
{
    const double whole = shards_grads(job, p) ? shards : 1;
    if (job->system == ECH_SYSTEM_DEEPSPEED && !is_wide(job)) {
        if (p->zero_stage >= 3) /* 2 + 4 + 12: those in 16 bits do not last */
            return ech_larger(e->grads_fp32, e->grads) / shards;
        if (e->grads >= 4) /* its optimizer for bf16 sums in fp32, backward makes 16 bits */
            return e->grads + 2;
        return e->grads / whole + (p->zero_stage >= 1 ? e->grads_fp32 / shards : 0);
    }
    if (ech_is_torch(job) && p->zero_stage >= 3 && whole < shards) /* shards beside the sum */
        return e->grads / shards + ech_larger(e->grads, job->wire_bytes);
    return e->grads / whole;
}

static ech_state_rule trained_rule(const ech_job *job, const ech_point *p, double shards)
{
    const element e = element_of(job);
    const double optimizer = p->zero_stage >= 1 ? shards : 1;
    ech_state_rule r = {.params = e.params / (p->zero_stage >= 3 ? shards : 1)};
    r.grads = grad_bytes(job, p, &e, shards);
    r.master = e.master / optimizer;
    r.moments = e.moments / optimizer;
    r.saved = (e.params + e.master + e.moments) / optimizer;
    offload_optimizer(job, p, &e, shards, &r);
    offload_params(job, p, &r);
    return r;
}

/* Weights that are not trained; `bits` 0: in the type of the trained ones. */
static ech_state_rule frozen_rule(const ech_job *job, const ech_point *p, double shards, int bits)
{
    const double constants = 0.127; /* bits an element, for scales and scales of scales */
    const double bytes = bits == 0 ? weight_bytes(job) : (bits + (bits < 16 ? constants : 0)) / 8;
    ech_state_rule r = {.params = bytes / (p->zero_stage >= 3 ? shards : 1)};
    r.saved = job->tuning == ECH_TUNING_LORA ? 0 : r.params;
    offload_params(job, p, &r);
    return r;
}

void ech_state_rules_of(const ech_job *job, const ech_point *p, ech_state_rules *out)
{
    const element e = element_of(job);
    *out = (ech_state_rules){.gathered_bytes = is_wide(job) ? 4 : 2,
                             .shards_grads = shards_grads(job, p)};
    /* Echelon's are summed where they are made; others send a copy in the type of the wire */
    const double sent = job->wire_bytes > out->gathered_bytes ? job->wire_bytes : 0;
    out->whole_grad_bytes =
        job->system == ECH_SYSTEM_ECHELON ? e.grads : out->gathered_bytes + sent;
    out->shards[0] = (double)ech_point_shard_group(p);
    out->shards[1] = ech_point_expert_shards(p);
    for (int i = 0; i < 2; i++) {
        out->trained[i] = trained_rule(job, p, out->shards[i]);
        out->frozen[i] = frozen_rule(job, p, out->shards[i], job->base_bits);
    }
    const int quantised = job->base_bits > 0 && job->base_bits < 16 ? 16 : job->base_bits;
    out->fixed = frozen_rule(job, p, out->shards[0], quantised);
}

/* Note one class of state. */
static void note_state(ech_derivation *d, const char *what, double bytes, double params,
                       const char *source)
{
    if (bytes > 0)
        ech_derive(d, what, bytes * params, "B", source, "%.4g B x %.4g", bytes, params);
}

double ech_footprint_state(const ech_job *job, const ech_point *p, double params, ech_derivation *d,
                           double held[ECH_N_USES])
{
    const double shards = (double)ech_point_shard_group(p);
    const ech_state_rule r = trained_rule(job, p, shards);
    const double each[] = {r.params, r.grads, r.master, r.moments};
    static const char *const words[] = {"weights", "gradients", "master weights",
                                        "moments of the optimizer"};
    double sum = 0;
    ech_derive_section(d, "Model state");
    ech_derive(d, "ranks that share state", shards, "1", "dp x cp, or the shard group", "N");
    for (int i = 0; i < 4; i++) {
        note_state(d, words[i], each[i], params,
                   "Rajbhandari et al. 2020, arXiv:1910.02054, sections 3, 5");
        sum += each[i];
        if (held)
            held[ECH_USE_PARAMS + i] = each[i] * params;
    }
    for (int h = ECH_USE_OPTIMIZER + 1; held && h < ECH_N_USES; h++)
        held[h] = 0;
    ech_derive(d, "model state", sum * params, "B", "the sum", "%.4g B x %.4g", sum, params);
    return sum * params;
}
