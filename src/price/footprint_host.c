/* Host memory of a node: offloaded state, what is staged to be saved, copies that are loaded.
 *
 * Sources: PyTorch's pinned allocator rounds to powers of two: a sub-group of 1e9 elements in fp32 is
 * 4 GiB, 7 % more; DeepSpeed's own estimators take 1.5 times the state for it, and while it starts the
 * reports of DeepSpeed's users lie near 1.3; its aio and swap buffers are pinned (configuration of
 * offload_param and offload_optimizer: buffer_count, buffer_size). */
#include "price/footprint_private.h"

#include <math.h>

enum { NODE = 8 /* ranks of a node where no cluster says */ };

static double ranks_of_node(const ech_job *job)
{
    const int node =
        job->cluster && job->cluster->devices_per_node > 0 ? job->cluster->devices_per_node : NODE;
    return (double)(job->gpus > 0 && job->gpus < node ? job->gpus : node);
}

/* Pinned buffers of a rank for what is on disks. */
static double disk_buffers(const ech_memory_plan *plan, double trained, double params)
{
    enum { PARAM_BUFFERS = 5, PARAM_ELEMS = 100000000, OPTIMIZER_BUFFERS = 4 };
    const double sub_group = 1e9; /* elements that the optimizer takes at a time */
    const ech_beside *b = &plan->job->beside;
    const ech_point *p = plan->point;
    double bytes = 0;
    if (p->offload_params == ECH_OFFLOAD_NVME) {
        const double n = b->nvme_param_buffers > 0 ? b->nvme_param_buffers : PARAM_BUFFERS;
        const double elems =
            b->nvme_buffer_elems > 0 ? (double)b->nvme_buffer_elems : (double)PARAM_ELEMS;
        bytes += n * fmin(elems, params) * 2;
    }
    if (p->offload_optimizer == ECH_OFFLOAD_NVME) {
        const double n =
            b->nvme_optimizer_buffers > 0 ? b->nvme_optimizer_buffers : OPTIMIZER_BUFFERS;
        const double elems = b->nvme_buffer_elems > 0 ? (double)b->nvme_buffer_elems : sub_group;
        bytes += n * fmin(elems, trained) * 4;
    }
    return bytes;
}

/* Bytes of a rank's checkpoint. */
static double saved_of(const ech_memory_plan *plan, const ech_footprint_stage *s)
{
    /* of the rank's own mixture of elements, dense ones' bytes: experts differ in shards alone */
    const double frozen = s->params - s->trained;
    return s->trained * plan->rules.trained[0].saved + frozen * plan->rules.frozen[0].saved;
}

/* Does saving copy a rank's whole shard to the host first? */
static bool stages_saves(const ech_job *job)
{
    if (job->beside.save == ECH_SAVE_WHOLE)
        return false;
    return job->system == ECH_SYSTEM_MEGATRON || job->system == ECH_SYSTEM_FSDP2 ||
           job->system == ECH_SYSTEM_TORCHTITAN;
}

void ech_memory_host(const ech_memory_plan *plan, const ech_footprint *f,
                     double peak[ECH_N_MOMENTS])
{
    const double pinned = 1.0737; /* 2^32 / 4e9 */
    const double starting = 1.3;
    const ech_job *job = plan->job;
    const double ranks = ranks_of_node(job);
    double host = 0;
    double buffers = 0;
    double staged = 0;
    for (int r = 0; r < f->n_stages; r++) {
        const ech_footprint_stage *s = &f->stage[r];
        const double shard = s->trained / plan->rules.shards[0];
        host = fmax(host, s->host_bytes);
        buffers = fmax(buffers, disk_buffers(plan, shard, s->params));
        staged = fmax(staged, saved_of(plan, s));
    }
    const double load_bytes = job->beside.load_bytes > 0 ? job->beside.load_bytes : 2;
    const double loading = job->beside.load_copies * plan->whole * load_bytes;
    const bool is_deepspeed = job->system == ECH_SYSTEM_DEEPSPEED;
    const double turns = job->beside.save_turns > 0 ? job->beside.save_turns : 1;
    const double held = ranks * (host * (is_deepspeed ? pinned : 1) + buffers);
    peak[ECH_MOMENT_START] = ranks * (host * (is_deepspeed ? starting : 1) + buffers) + loading;
    peak[ECH_MOMENT_STEP] = peak[ECH_MOMENT_OPTIMIZER] = held;
    peak[ECH_MOMENT_LOAD] = held;
    peak[ECH_MOMENT_SAVE] = held + (stages_saves(job) ? ranks * staged / turns : 0);
}

double ech_footprint_saved(const ech_job *job)
{
    const ech_point alone = ech_point_default();
    ech_job one = *job;
    ech_state_rules rules;
    ech_param_count count;
    ech_footprint f;
    one.gpus = one.global_batch = 1;
    if (ech_model_count(job->model, &count) != ECH_OK)
        return NAN;
    ech_state_rules_of(&one, &alone, &rules);
    if (job->tuning == ECH_TUNING_FULL) /* exact: a rank's share may be padded */
        return (double)count.total * rules.trained[0].saved;
    ech_footprint_of(&one, &alone, NULL, &f);
    const ech_footprint_stage *s = &f.stage[0];
    return s->trained * rules.trained[0].saved + (s->params - s->trained) * rules.frozen[0].saved;
}
