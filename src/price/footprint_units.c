/* Units that are shards but for their turn: gathered parameters, and gradients until they are reduced.
 *
 * Sources: Zhao et al. 2023, arXiv:2304.11277, section 3; PyTorch's fully_shard (the root's own
 * parameters stay gathered, one unit is fetched ahead); DeepSpeed's configuration reference
 * (stage3_max_live_parameters); program/compile_gather.c and compile_reduce.c. */
#include "price/footprint_private.h"

#include "program/op.h" /* ECH_REDUCE_WINDOW */

/* Are parameters shards: with stage 3, even of one rank where they are on the host or torch's. */
static bool gathers(const ech_memory_plan *plan)
{
    return plan->point->zero_stage >= 3 &&
           (plan->rules.shards[0] > 1 || plan->point->offload_params != ECH_OFFLOAD_NONE ||
            ech_is_torch(plan->job));
}

/* Do gradients leave the device for the sum that the host keeps? */
static bool sends_grads(const ech_memory_plan *plan)
{
    return plan->point->offload_optimizer != ECH_OFFLOAD_NONE && plan->rules.trained[0].grads <= 0;
}

static double elems_of(const ech_rank_load *l)
{
    return l->trained[0] + l->trained[1] + l->frozen[0] + l->frozen[1] + l->fixed;
}

/* --- Echelon --- */

/* Of the unit that has the output table: the head, or the embedding where it is tied and here. */
static double table_unit(const ech_memory_plan *plan, const ech_rank_load *l)
{
    return plan->shape.tied > 0 && l->has_embedding ? l->embedding : l->head;
}

/* A unit and the next (prefetch 1): the head's weights are gathered for its forward and again for its
 * backward, the next micro-batch's embedding under this one's, whose backward reads no weights. */
static double gathered_own(const ech_memory_plan *plan, const ech_rank_load *l,
                           ech_place_in_step at)
{
    const double table = table_unit(plan, l);
    switch (at) {
    case ECH_AT_LOSS:
        return 2 * table;
    case ECH_AT_HEAD:
        return table + l->unit;
    case ECH_AT_TABLE:
        return plan->micros > 1 ? l->embedding : 0;
    default:
        return 2 * l->unit;
    }
}

/* From its forward to its last use in backward, which the embedding has none of: what is above the unit
 * in work is freed. */
static double kept_own(const ech_memory_plan *plan, const ech_rank_load *l, ech_place_in_step at,
                       int window)
{
    const bool is_tied = plan->shape.tied > 0 && l->has_head;
    const double all = elems_of(l) - (is_tied ? 0 : l->embedding);
    switch (at) {
    case ECH_AT_LAYER:
        return ech_larger(all - l->head - window * l->unit, l->unit);
    case ECH_AT_TOP:
        return all - l->head;
    case ECH_AT_TABLE:
        return plan->micros > 1 ? l->embedding : 0;
    default:
        return all;
    }
}

/* Whole gradients: of the unit in work, of those that are being reduced (with the shard that they land
 * in where it is not the first micro-batch's) or sent to the host, and of a tied table from the head's backward to the
 * embedding's. */
static double grads_own(const ech_memory_plan *plan, const ech_rank_load *l, ech_place_in_step at,
                        int window)
{
    const double tied = plan->shape.tied > 0 && l->has_embedding && l->has_head ? l->embedding : 0;
    const double shards = plan->rules.shards[0];
    const double flying = plan->micros > 1 && shards > 1 ? 1 + 1 / shards : 1;
    const double before = plan->micros > 1 ? flying * (l->embedding + (window - 1) * l->unit) : 0;
    switch (at) {
    case ECH_AT_LAYER:
        return l->unit + flying * window * l->unit + tied;
    case ECH_AT_TOP:
        return l->unit + (l->has_head ? ech_larger(l->head, tied) : before);
    case ECH_AT_LOSS:
        return before;
    case ECH_AT_HEAD:
        return before + table_unit(plan, l);
    default:
        return l->embedding + flying * window * l->unit;
    }
}

static ech_unit_bytes units_own(const ech_memory_plan *plan, const ech_rank_load *l,
                                ech_place_in_step at)
{
    /* over tp a unit is reduced in two parts */
    const int window = plan->point->tp > 1 ? ECH_REDUCE_WINDOW / 2 : ECH_REDUCE_WINDOW;
    const bool is_shared = plan->rules.shards[0] > 1;
    ech_unit_bytes u = {0};
    /* what one rank holds alone is whole on its device, unless it lives on the host */
    if (plan->point->zero_stage >= 3 && gathers(plan))
        u.gathered = plan->rules.gathered_bytes * (plan->point->reshard_after_forward
                                                       ? gathered_own(plan, l, at)
                                                       : kept_own(plan, l, at, window));
    const double trained = l->trained[0] + l->trained[1];
    if (trained > 0 && plan->job->tuning != ECH_TUNING_LORA &&
        (is_shared ? plan->rules.shards_grads : sends_grads(plan))) {
        /* of what is trained, each once and the shard that it lands in */
        const double most = trained * (is_shared ? 1 + 1 / plan->rules.shards[0] : 1);
        u.grads = plan->rules.whole_grad_bytes * ech_smaller(grads_own(plan, l, at, window), most);
        u.flying = window;
    }
    return u;
}

/* --- the others --- */

static double gathered_elems(const ech_memory_plan *plan, const ech_rank_load *l, bool in_layer)
{
    enum { LIVE = 1000000000, PREFETCH = 500000000 /* DeepSpeed's */ };
    const ech_job *job = plan->job;
    const double ends = l->embedding + l->head;
    const double all = elems_of(l);
    if (!plan->point->reshard_after_forward)
        return all;
    if (job->system == ECH_SYSTEM_DEEPSPEED) {
        const double most = job->beside.live_params > 0 ? (double)job->beside.live_params : LIVE;
        const double unit = in_layer ? l->unit : ech_larger(l->embedding, l->head);
        return ech_smaller(all, ech_larger(most, unit) + ech_smaller(unit, PREFETCH));
    }
    if (ech_is_torch(job)) /* the root unit stays; a layer and the next */
        return ech_smaller(all, ends + (in_layer ? 2 : 1) * l->unit);
    return ech_smaller(all, in_layer ? 2 * l->unit : ech_larger(ends, l->unit));
}

/* Elements whose gradient is whole: FSDP's of a unit; DeepSpeed's of one weight, then in its buckets. */
static double grad_elems(const ech_memory_plan *plan, const ech_rank_load *l)
{
    const ech_shape *s = &plan->shape;
    if (plan->job->system != ECH_SYSTEM_DEEPSPEED)
        return l->unit;
    return (double)s->hidden * ech_larger((double)s->ffn, (double)s->attention.q_out);
}

ech_unit_bytes ech_memory_units(const ech_memory_plan *plan, const ech_rank_load *l,
                                ech_place_in_step at)
{
    const bool in_layer = at == ECH_AT_LAYER || at == ECH_AT_TOP;
    const bool trains = plan->job->tuning != ECH_TUNING_LORA && l->trained[0] + l->trained[1] > 0;
    ech_unit_bytes u = {0};
    if (plan->job->system == ECH_SYSTEM_ECHELON)
        return units_own(plan, l, at);
    if (!gathers(plan))
        return u;
    u.gathered = plan->rules.gathered_bytes * gathered_elems(plan, l, in_layer);
    u.grads = in_layer && trains ? plan->rules.whole_grad_bytes * grad_elems(plan, l) : 0;
    return u;
}
