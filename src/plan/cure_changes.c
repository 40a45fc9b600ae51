#include "plan/cure_changes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- words --- */

static void say(ech_trial *t, const char *fmt, ...) ECH_PRINTF(2, 3);

static void say(ech_trial *t, const char *fmt, ...)
{
    const size_t used = strlen(t->cure.change);
    const size_t room = sizeof t->cure.change - used;
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(t->cure.change + used, room, fmt, args);
    va_end(args);
    t->is_full |= n < 0 || (size_t)n >= room;
}

/* --- the changes --- */

static bool set_gpus(ech_trial *t, int64_t times)
{
    ech_job *j = &t->cure.job;
    ech_point *p = &t->cure.point;
    if ((j->cluster->devices > 0 && j->gpus * times > j->cluster->devices) ||
        p->dp * times > INT32_MAX)
        return false;
    j->gpus *= times;
    p->dp = (int32_t)(p->dp * times);
    say(t, " --gpus %lld --dp %d", (long long)j->gpus, p->dp);
    const int64_t rows = (int64_t)p->dp * p->micro;
    if (j->global_batch % rows) {
        j->global_batch = (j->global_batch / rows + 1) * rows;
        say(t, " --global-batch %lld", (long long)j->global_batch);
    }
    return true;
}

static bool set_zero(ech_trial *t, int64_t stage)
{
    ech_point *p = &t->cure.point;
    if (p->zero_stage >= stage)
        return false;
    p->zero_stage = (int32_t)stage;
    say(t, " --zero %d", p->zero_stage);
    return true;
}

static bool set_group(ech_trial *t, int64_t all)
{
    ech_point *p = &t->cure.point;
    if (p->zero_stage == 0 || p->zero_group == all)
        return false;
    p->zero_group = (int32_t)all;
    say(t, " --zero-group %d", p->zero_group);
    return true;
}

static bool set_reshard(ech_trial *t, int64_t on)
{
    ech_point *p = &t->cure.point;
    if (p->zero_stage < 3 || p->reshard_after_forward)
        return false;
    p->reshard_after_forward = on != 0;
    say(t, " --reshard");
    return true;
}

static bool set_reduce(ech_trial *t, int64_t each)
{
    ech_point *p = &t->cure.point;
    if (p->zero_stage < 2 || p->reduce_each || ech_point_micros(&t->cure.job, p) < 2)
        return false;
    p->reduce_each = each != 0;
    say(t, " --reduce-each");
    return true;
}

/* value: quarters of the layers that are recomputed whole; 0: the sets below. */
static bool set_recompute(ech_trial *t, int64_t quarters)
{
    ech_point *p = &t->cure.point;
    const int64_t layers = t->cure.job.model->layers / ((int64_t)p->pp * p->vpp) * quarters / 4;
    const bool is_whole = quarters == 4;
    if ((p->recompute & ECH_RECOMPUTE_FULL) &&
        (p->recompute_layers == 0 || (!is_whole && layers <= p->recompute_layers)))
        return false;
    if (!is_whole && layers < 1)
        return false;
    p->recompute = ECH_RECOMPUTE_FULL;
    p->recompute_layers = is_whole ? 0 : (int32_t)layers;
    if (is_whole)
        say(t, " --recompute full");
    else
        say(t, " --recompute full:%d", p->recompute_layers);
    return true;
}

/* value: bits to add. */
static bool add_recompute(ech_trial *t, int64_t bits)
{
    ech_point *p = &t->cure.point;
    ech_text words = {0};
    const uint32_t now = p->recompute | ((uint32_t)bits & ech_recompute_known(&t->cure.job));
    if ((p->recompute & ECH_RECOMPUTE_FULL) || now == p->recompute)
        return false;
    p->recompute = now;
    ech_recompute_print(now, 0, &words);
    say(t, " --recompute %s", ech_text_get(&words));
    ech_text_fini(&words);
    return true;
}

static bool divide_micro(ech_trial *t, int64_t by)
{
    ech_point *p = &t->cure.point;
    const int32_t micro = by ? (int32_t)(p->micro / by) : 1;
    if (p->micro < 2 || (by && p->micro % by))
        return false;
    p->micro = micro;
    say(t, " --micro %d", micro);
    return true;
}

/* Ranks of one degree that become ranks of another. */
static bool move_ranks(ech_trial *t, const char *option, int32_t *degree, int64_t times)
{
    ech_point *p = &t->cure.point;
    if (p->dp % times)
        return false;
    p->dp = (int32_t)(p->dp / times);
    *degree = (int32_t)(*degree * times);
    say(t, " --%s %d --dp %d", option, *degree, p->dp);
    if (p->zero_group > p->dp * p->cp) {
        p->zero_group = 0;
        say(t, " --zero-group 0");
    }
    return true;
}

static bool multiply_tp(ech_trial *t, int64_t times)
{
    ech_point *p = &t->cure.point;
    const ech_cluster *c = t->cure.job.cluster;
    const int64_t span = c->n_levels > 0 && c->level[0].span > c->devices_per_node
                             ? c->level[0].span
                             : c->devices_per_node;
    if (p->tp * times > span) /* over a slower network it costs more than any other change */
        return false;
    if (!move_ranks(t, "tp", &p->tp, times))
        return false;
    if (!p->sequence_parallel)
        say(t, " --sp");
    p->sequence_parallel = true;
    return true;
}

static bool set_sp(ech_trial *t, int64_t on)
{
    ech_point *p = &t->cure.point;
    if (p->tp < 2 || p->sequence_parallel)
        return false;
    p->sequence_parallel = on != 0;
    say(t, " --sp");
    return true;
}

static bool multiply_pp(ech_trial *t, int64_t times)
{
    return move_ranks(t, "pp", &t->cure.point.pp, times);
}

static bool multiply_cp(ech_trial *t, int64_t times)
{
    return move_ranks(t, "cp", &t->cure.point.cp, times);
}

/* Experts over more ranks: of the data parallel ones, which stay. */
static bool multiply_ep(ech_trial *t, int64_t times)
{
    ech_point *p = &t->cure.point;
    const int64_t ep = p->ep * times;
    if (t->cure.job.model->moe.experts < 1 || t->cure.job.model->moe.experts % ep)
        return false;
    p->ep = (int32_t)ep;
    say(t, " --ep %d", p->ep);
    return true;
}

/* value: chunks a rank has; 1: plain 1f1b, which holds least. */
static bool set_stages(ech_trial *t, int64_t chunks)
{
    ech_point *p = &t->cure.point;
    if (p->pp < 2 || (p->vpp == chunks && p->schedule != ECH_SCHEDULE_GPIPE))
        return false;
    if (chunks > 1 && (p->vpp < 2 || p->schedule == ECH_SCHEDULE_ZB_V))
        return false; /* more chunks than one hold more: help only where there are some */
    p->vpp = (int32_t)chunks;
    p->schedule = chunks > 1 ? ECH_SCHEDULE_INTERLEAVED : ECH_SCHEDULE_1F1B;
    say(t, " --schedule %s --vpp %d", ech_schedule_name(p->schedule), p->vpp);
    return true;
}

static bool multiply_stages(ech_trial *t, int64_t times)
{
    const ech_point *p = &t->cure.point;
    const int64_t chunks = p->vpp * times;
    return p->vpp > 1 && t->cure.job.model->layers % (p->pp * chunks) == 0 && set_stages(t, chunks);
}

static bool set_offload(ech_trial *t, const char *what, ech_offload *where, ech_offload to)
{
    if (*where >= to)
        return false;
    *where = to;
    say(t, " --offload-%s %s", what, ech_offload_name(to));
    return true;
}

static bool offload_optimizer(ech_trial *t, int64_t to)
{
    if (to == ECH_OFFLOAD_NVME && t->cure.job.cluster->nvme_bytes <= 0.0)
        return false;
    return set_offload(t, "optimizer", &t->cure.point.offload_optimizer, (ech_offload)to);
}

static bool offload_params(ech_trial *t, int64_t to)
{
    return set_offload(t, "params", &t->cure.point.offload_params, (ech_offload)to);
}

static bool offload_activations(ech_trial *t, int64_t to)
{
    return set_offload(t, "activations", &t->cure.point.offload_activations, (ech_offload)to);
}

static bool set_loss_chunk(ech_trial *t, int64_t tokens)
{
    ech_job *j = &t->cure.job;
    if (j->loss == ECH_LOSS_CHUNKED && j->loss_chunk <= tokens)
        return false;
    j->loss = ECH_LOSS_CHUNKED;
    j->loss_chunk = tokens;
    say(t, " --loss chunked:%lld", (long long)tokens);
    return true;
}

static bool set_fused_update(ech_trial *t, int64_t on)
{
    ech_job *j = &t->cure.job;
    if (!j->is_optimizer_grouped)
        return false;
    j->is_optimizer_grouped = on == 0;
    say(t, " --optimizer-step fused");
    return true;
}

static bool set_sharded_save(ech_trial *t, int64_t way)
{
    ech_beside *b = &t->cure.job.beside;
    if (b->save == (ech_save_way)way)
        return false;
    b->save = (ech_save_way)way;
    say(t, " --save sharded");
    return true;
}

static bool set_turns(ech_trial *t, int64_t turns)
{
    ech_beside *b = &t->cure.job.beside;
    if (b->save_turns >= turns)
        return false;
    b->save_turns = (int)turns;
    say(t, " --save-turns %d", b->save_turns);
    return true;
}

static bool set_load_copies(ech_trial *t, int64_t copies)
{
    ech_beside *b = &t->cure.job.beside;
    if (b->load_copies <= copies)
        return false;
    b->load_copies = (int)copies;
    say(t, " --load-copies %d", b->load_copies);
    return true;
}

static bool divide_buffers(ech_trial *t, int64_t by)
{
    ech_beside *b = &t->cure.job.beside;
    if (b->nvme_buffer_elems < by)
        return false;
    b->nvme_buffer_elems /= by;
    say(t, " --nvme-buffer %lld", (long long)b->nvme_buffer_elems);
    return true;
}

static bool set_optimizer(ech_trial *t, int64_t kind_of)
{
    ech_job *j = &t->cure.job;
    if (j->optimizer != ECH_OPTIMIZER_ADAMW)
        return false;
    j->optimizer = (ech_optimizer)kind_of;
    say(t, " --optimizer %s", ech_optimizer_name(j->optimizer));
    return true;
}

static bool set_bare_optimizer(ech_trial *t, int64_t kind_of)
{
    ech_job *j = &t->cure.job;
    if (j->precision == ECH_PRECISION_FP32)
        return false;
    j->has_master = false;
    j->grad_bytes = j->wire_bytes = 2;
    if (!set_optimizer(t, kind_of))
        return false;
    say(t, " --no-master --grads bf16");
    return true;
}

static bool set_lora(ech_trial *t, int64_t base_bits)
{
    ech_job *j = &t->cure.job;
    if (j->tuning == ECH_TUNING_LORA && (j->base_bits ? j->base_bits : 16) <= base_bits)
        return false;
    if (j->tuning != ECH_TUNING_LORA) {
        j->tuning = ECH_TUNING_LORA;
        j->lora_rank = 16;
        say(t, " --tuning lora:16");
    }
    if (j->base_bits != base_bits)
        say(t, " --base-bits %d", (int)base_bits);
    j->base_bits = (int)base_bits;
    return true;
}

static const ech_change changes[] = {
    {set_gpus, 2, ECH_CHANGE_GPUS, ECH_CURE_MACHINES, "twice the GPUs"},
    {set_gpus, 4, ECH_CHANGE_GPUS, ECH_CURE_MACHINES, "four times the GPUs"},
    {set_gpus, 8, ECH_CHANGE_GPUS, ECH_CURE_MACHINES, "eight times the GPUs"},
    {multiply_tp, 2, ECH_CHANGE_TP, ECH_CURE_LAYOUT, "twice the tensor parallel ranks"},
    {multiply_tp, 4, ECH_CHANGE_TP, ECH_CURE_LAYOUT, "four times the tensor parallel ranks"},
    {multiply_tp, 8, ECH_CHANGE_TP, ECH_CURE_LAYOUT, "eight times the tensor parallel ranks"},
    {multiply_pp, 2, ECH_CHANGE_PP, ECH_CURE_LAYOUT, "twice the pipeline stages"},
    {multiply_pp, 4, ECH_CHANGE_PP, ECH_CURE_LAYOUT, "four times the pipeline stages"},
    {multiply_pp, 8, ECH_CHANGE_PP, ECH_CURE_LAYOUT, "eight times the pipeline stages"},
    {multiply_cp, 2, ECH_CHANGE_CP, ECH_CURE_LAYOUT, "sequences over twice the ranks"},
    {multiply_cp, 4, ECH_CHANGE_CP, ECH_CURE_LAYOUT, "sequences over four times the ranks"},
    {multiply_cp, 8, ECH_CHANGE_CP, ECH_CURE_LAYOUT, "sequences over eight times the ranks"},
    {multiply_ep, 2, ECH_CHANGE_EP, ECH_CURE_LAYOUT, "experts over twice the ranks"},
    {multiply_ep, 4, ECH_CHANGE_EP, ECH_CURE_LAYOUT, "experts over four times the ranks"},
    {multiply_ep, 8, ECH_CHANGE_EP, ECH_CURE_LAYOUT, "experts over eight times the ranks"},
    {set_stages, 1, ECH_CHANGE_STAGES, ECH_CURE_LAYOUT, "the schedule that holds least"},
    {multiply_stages, 2, ECH_CHANGE_STAGES, ECH_CURE_LAYOUT, "smaller virtual stages"},
    {multiply_stages, 4, ECH_CHANGE_STAGES, ECH_CURE_LAYOUT, "smaller virtual stages"},
    {set_zero, 1, ECH_CHANGE_ZERO, ECH_CURE_LAYOUT, "optimizer state sharded"},
    {set_zero, 2, ECH_CHANGE_ZERO, ECH_CURE_LAYOUT, "optimizer state and gradients sharded"},
    {set_zero, 3, ECH_CHANGE_ZERO, ECH_CURE_LAYOUT,
     "weights, gradients and optimizer state sharded"},
    {set_group, 0, ECH_CHANGE_GROUP, ECH_CURE_LAYOUT, "state sharded over all data parallel ranks"},
    {set_reshard, 1, ECH_CHANGE_RESHARD, ECH_CURE_LAYOUT, "gathered weights freed after forward"},
    {set_reduce, 1, ECH_CHANGE_REDUCE, ECH_CURE_LAYOUT, "gradients reduced every micro-batch"},
    {set_sp, 1, ECH_CHANGE_SP, ECH_CURE_LAYOUT,
     "norms and residuals over the tensor parallel ranks"},
    {add_recompute, ECH_RECOMPUTE_ATTENTION, ECH_CHANGE_RECOMPUTE, ECH_CURE_LAYOUT,
     "attention cores computed again"},
    {add_recompute, ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT, ECH_CHANGE_RECOMPUTE, ECH_CURE_LAYOUT,
     "norms (and the MLP's product) computed again"},
    {add_recompute, ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT | ECH_RECOMPUTE_MOE,
     ECH_CHANGE_RECOMPUTE, ECH_CURE_LAYOUT, "norms, products and experts computed again"},
    {set_recompute, 1, ECH_CHANGE_RECOMPUTE, ECH_CURE_LAYOUT,
     "a quarter of the layers computed again"},
    {set_recompute, 2, ECH_CHANGE_RECOMPUTE, ECH_CURE_LAYOUT, "half of the layers computed again"},
    {set_recompute, 4, ECH_CHANGE_RECOMPUTE, ECH_CURE_LAYOUT, "all layers computed again"},
    {divide_micro, 2, ECH_CHANGE_MICRO, ECH_CURE_LAYOUT, "half the micro-batch"},
    {divide_micro, 0, ECH_CHANGE_MICRO, ECH_CURE_LAYOUT, "the smallest micro-batch"},
    {offload_optimizer, ECH_OFFLOAD_HOST, ECH_CHANGE_OFFLOAD_OPTIMIZER, ECH_CURE_LAYOUT,
     "optimizer state in host memory"},
    {offload_optimizer, ECH_OFFLOAD_NVME, ECH_CHANGE_OFFLOAD_OPTIMIZER, ECH_CURE_LAYOUT,
     "optimizer state on NVMe"},
    {offload_params, ECH_OFFLOAD_HOST, ECH_CHANGE_OFFLOAD_PARAMS, ECH_CURE_LAYOUT,
     "weights in host memory"},
    {offload_activations, ECH_OFFLOAD_HOST, ECH_CHANGE_OFFLOAD_ACTIVATIONS, ECH_CURE_LAYOUT,
     "saved activations in host memory"},
    {set_loss_chunk, 1024, ECH_CHANGE_LOSS, ECH_CURE_LAYOUT, "logits of 1024 tokens at a time"},
    {set_fused_update, 1, ECH_CHANGE_UPDATE, ECH_CURE_LAYOUT, "one tensor's temporaries at a time"},
    {set_sharded_save, ECH_SAVE_SHARDED, ECH_CHANGE_SAVE, ECH_CURE_LAYOUT,
     "each rank saves its shard"},
    {set_turns, 8, ECH_CHANGE_TURNS, ECH_CURE_LAYOUT, "ranks of a node save in eight turns"},
    {set_load_copies, 1, ECH_CHANGE_LOAD, ECH_CURE_LAYOUT,
     "one rank of a node reads, and tells others"},
    {divide_buffers, 5, ECH_CHANGE_BUFFERS, ECH_CURE_LAYOUT, "smaller pinned buffers"},
    {set_optimizer, ECH_OPTIMIZER_ADAMW_8BIT, ECH_CHANGE_OPTIMIZER, ECH_CURE_ARITHMETIC,
     "moments in 8 bits"},
    {set_bare_optimizer, ECH_OPTIMIZER_ADAMW_8BIT, ECH_CHANGE_OPTIMIZER, ECH_CURE_ARITHMETIC,
     "moments in 8 bits and no fp32 weights: small updates may be lost"},
    {set_lora, 16, ECH_CHANGE_TUNING, ECH_CURE_TRAINED, "adapters alone are trained"},
    {set_lora, 4, ECH_CHANGE_TUNING, ECH_CURE_TRAINED,
     "adapters alone are trained, the base in 4 bits"},
};

const ech_change *ech_changes(int *n)
{
    *n = (int)(sizeof changes / sizeof changes[0]);
    return changes;
}

bool ech_change_is_of_job(const ech_change *c)
{
    return c->kind == ECH_CHANGE_GPUS || c->kind >= ECH_CHANGE_LOSS;
}
