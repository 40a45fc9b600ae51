/* A pipeline rank at each moment that can be its fullest, class by class.
 *
 * The step has four of its own: the backward of the layer that needs most, the loss, the head's
 * backward, and at the end the gradient of the token table.  Sources: Korthikanti et al. 2022; DeepSpeed
 * configuration (buckets, stage3_max_live_parameters); PyTorch FSDP2's root unit and prefetch. */
#include "price/footprint_private.h"

#include <string.h>

/* What is being filled. */
typedef struct scene {
    const ech_memory_plan *plan;
    const ech_rank_load *load;
    double state[ECH_N_USES]; /* at every moment */
    double live, deferred;
    ech_footprint_stage *out;
} scene;

/* Bytes of each class for an element, times elements. */
static void add_state(double held[ECH_N_USES], const ech_state_rule *r, double elems)
{
    held[ECH_USE_PARAMS] += elems * r->params;
    held[ECH_USE_GRADS] += elems * r->grads;
    held[ECH_USE_MASTER] += elems * r->master;
    held[ECH_USE_OPTIMIZER] += elems * r->moments;
}

/* Kinds of groups that a rank is in, each with communicators of its own. */
static int groups_of(const ech_point *p)
{
    return (p->tp > 1) + (p->pp > 1) + (p->dp * p->cp > 1) + (p->cp > 1) + (p->ep * p->etp > 1);
}

/* DeepSpeed's buckets for gradients: two while reduction overlaps, one in stage 3. */
static double bucket_bytes(const scene *c)
{
    enum { BUCKET = 500000000 };
    const ech_job *job = c->plan->job;
    const double own = c->load->trained[0] + c->load->trained[1];
    const int stage = c->plan->point->zero_stage;
    if (job->system != ECH_SYSTEM_DEEPSPEED || stage == 0)
        return 0;
    const double most =
        job->beside.reduce_bucket_elems > 0 ? (double)job->beside.reduce_bucket_elems : BUCKET;
    return ech_smaller(most, own) * job->grad_bytes * (stage == 3 ? 1 : 2);
}

static void fill_state(scene *c)
{
    const ech_memory_plan *plan = c->plan;
    const ech_rank_load *l = c->load;
    double *held = c->state;
    memset(held, 0, sizeof c->state);
    for (int i = 0; i < 2; i++) {
        add_state(held, &plan->rules.trained[i], l->trained[i]);
        add_state(held, &plan->rules.frozen[i], l->frozen[i]);
    }
    add_state(held, &plan->rules.fixed, l->fixed);
    held[ECH_USE_PARAMS] += l->copies;
    held[ECH_USE_BUCKETS] = bucket_bytes(c);
    held[ECH_USE_WORKSPACE] = plan->habit.workspace_bytes + plan->blanks;
    if (plan->point->pp > 1) /* one received, one sent, in each direction */
        held[ECH_USE_P2P] = 2 * plan->act.message * (ech_shape_chunks(plan->point) > 1 ? 2 : 1);
    held[ECH_USE_CONTEXT] =
        plan->habit.context_bytes + groups_of(plan->point) * plan->habit.group_bytes;
}

/* A moment is over: is it the fullest so far, of its kind and of all? */
static void judge(const scene *c, ech_moment moment, double held[ECH_N_USES])
{
    ech_footprint_stage *out = c->out;
    double sum = 0;
    for (int h = 0; h < ECH_USE_CONTEXT; h++)
        sum += held[h];
    held[ECH_USE_SLACK] = sum * c->plan->habit.slack;
    const double peak = sum + held[ECH_USE_SLACK] + held[ECH_USE_CONTEXT];
    if (peak <= out->peak[moment])
        return;
    const bool is_fullest = peak > out->peak[out->fullest];
    out->peak[moment] = peak;
    if (!is_fullest)
        return;
    out->fullest = moment;
    memcpy(out->held, held, ECH_N_USES * sizeof *held);
}

/* --- the step --- */

static bool offloads_saved(const scene *c)
{
    return c->plan->point->offload_activations != ECH_OFFLOAD_NONE;
}

/* Saved of so many micro-batches; where they go to the host, of two layers. */
static double saved_bytes(const scene *c, double live)
{
    const ech_rank_load *l = c->load;
    const double ends = l->has_embedding ? c->plan->act.embedding * live : 0;
    const double head = l->has_head ? c->plan->act.head_deferred : 0;
    if (offloads_saved(c))
        return ech_smaller(2 * l->largest, live * l->saved) + ends;
    return live * l->saved + c->deferred * (l->deferred + head) + ends;
}

/* Micro-batches whose logits are there at once: GPipe does all losses first. */
static double logits_live(const scene *c)
{
    return c->plan->point->schedule == ECH_SCHEDULE_GPIPE && c->plan->point->pp > 1
               ? (double)c->plan->micros
               : 1;
}

static void judge_place(const scene *c, ech_place_in_step at)
{
    const ech_activations *a = &c->plan->act;
    const ech_unit_bytes units = ech_memory_units(c->plan, c->load, at);
    double held[ECH_N_USES];
    memcpy(held, c->state, sizeof held);
    held[ECH_USE_GATHERED] += units.gathered;
    held[ECH_USE_BUCKETS] += units.grads;
    held[ECH_USE_SAVED] = saved_bytes(c, c->live);
    switch (at) {
    case ECH_AT_LAYER: /* those above it are done */
        if (!offloads_saved(c))
            held[ECH_USE_SAVED] -= ech_smaller(units.flying * c->load->largest,
                                               ech_larger(c->load->saved - c->load->largest, 0));
        held[ECH_USE_WORKING] += c->load->working;
        break;
    case ECH_AT_TOP:
        held[ECH_USE_WORKING] += c->load->working;
        break;
    case ECH_AT_LOSS:
        held[ECH_USE_SAVED] += a->head * logits_live(c);
        held[ECH_USE_LOGITS] = a->logits * logits_live(c);
        break;
    case ECH_AT_HEAD:
        held[ECH_USE_SAVED] += a->head * logits_live(c);
        held[ECH_USE_LOGITS] = a->logits_kept * logits_live(c);
        held[ECH_USE_WORKING] += a->head_working;
        break;
    case ECH_AT_TABLE: /* the layers' activations of this micro-batch are gone */
        held[ECH_USE_SAVED] = saved_bytes(c, ech_larger(c->live - 1, 0));
        held[ECH_USE_WORKING] += a->table_working;
        break;
    }
    judge(c, ECH_MOMENT_STEP, held);
}

static void judge_step(const scene *c)
{
    judge_place(c, ECH_AT_LAYER);
    judge_place(c, ECH_AT_TOP);
    if (c->load->has_head) {
        judge_place(c, ECH_AT_LOSS);
        judge_place(c, ECH_AT_HEAD);
    }
    if (c->load->trains_embedding)
        judge_place(c, ECH_AT_TABLE);
}

/* --- beside the step --- */

/* A step over all tensors at once has a temporary of the shard in fp32 (PyTorch's foreach). */
static void judge_optimizer(const scene *c)
{
    double held[ECH_N_USES];
    const ech_state_rules *r = &c->plan->rules;
    const int stage = c->plan->point->zero_stage;
    memcpy(held, c->state, sizeof held);
    const ech_job *job = c->plan->job;
    /* moments in 8 bits are kept by kernels that take one tensor after the other */
    const bool is_grouped = job->is_optimizer_grouped && job->optimizer != ECH_OPTIMIZER_ADAMW_8BIT;
    if (is_grouped && c->plan->point->offload_optimizer == ECH_OFFLOAD_NONE)
        for (int i = 0; i < 2; i++)
            held[ECH_USE_WORKING] += 4 * c->load->trained[i] / (stage >= 1 ? r->shards[i] : 1);
    judge(c, ECH_MOMENT_OPTIMIZER, held);
}

/* Bytes of an element of weights as they are trained or read. */
static double whole_weight_bytes(const scene *c)
{
    const ech_state_rules *r = &c->plan->rules;
    if (c->plan->job->tuning == ECH_TUNING_LORA)
        return 2;
    return c->plan->point->offload_params == ECH_OFFLOAD_NONE && c->plan->point->zero_stage >= 3
               ? r->trained[0].params * r->shards[0]
               : 2;
}

/* No gradients yet while starting and loading. */
static void judge_beside(const scene *c)
{
    double held[ECH_N_USES];
    memcpy(held, c->state, sizeof held);
    if (c->plan->job->beside.save == ECH_SAVE_WHOLE)
        held[ECH_USE_GATHERED] += c->plan->whole * whole_weight_bytes(c);
    judge(c, ECH_MOMENT_SAVE, held);

    memcpy(held, c->state, sizeof held);
    if (c->plan->job->system != ECH_SYSTEM_MEGATRON) /* its buffers are made at the start */
        held[ECH_USE_GRADS] = 0;
    held[ECH_USE_P2P] = held[ECH_USE_BUCKETS] = 0;
    judge(c, ECH_MOMENT_LOAD, held);
    if (c->plan->job->system != ECH_SYSTEM_ECHELON)
        held[ECH_USE_OPTIMIZER] = 0; /* made by the first step */
    judge(c, ECH_MOMENT_START, held);
}

static void fill_host(const scene *c)
{
    const ech_state_rules *r = &c->plan->rules;
    const ech_rank_load *l = c->load;
    double host = 0;
    double nvme = 0;
    for (int i = 0; i < 2; i++) {
        host += l->trained[i] * r->trained[i].host + l->frozen[i] * r->frozen[i].host;
        nvme += l->trained[i] * r->trained[i].nvme + l->frozen[i] * r->frozen[i].nvme;
    }
    host += l->fixed * r->fixed.host;
    nvme += l->fixed * r->fixed.nvme;
    const double saved = offloads_saved(c) ? c->live * l->saved : 0;
    if (c->plan->point->offload_activations == ECH_OFFLOAD_NVME)
        nvme += saved;
    else
        host += saved;
    c->out->host_bytes = host;
    c->out->nvme_bytes = nvme;
}

void ech_memory_moments(const ech_memory_plan *plan, const ech_rank_load *load, int rank,
                        ech_footprint_stage *out)
{
    scene c = {.plan = plan, .load = load, .out = out};
    *out = (ech_footprint_stage){.layers = load->layers, .fullest = ECH_MOMENT_STEP};
    out->trained = load->trained[0] + load->trained[1];
    out->params = out->trained + load->frozen[0] + load->frozen[1] + load->fixed;
    c.live = out->live = ech_live_micros(plan->point, plan->micros, rank);
    c.deferred = ech_live_deferred(plan->point, plan->micros, rank);
    fill_state(&c);
    judge_step(&c);
    judge_optimizer(&c);
    judge_beside(&c);
    fill_host(&c);
}
