#include "price/footprint.h"

#include "price/footprint_private.h"

#include <math.h>

static const struct {
    const char *name, *klass;
} held_rows[ECH_N_USES] = {
#define ECH_USE_ROW(name, text, klass) [name] = {text, klass},
    ECH_USE_LIST(ECH_USE_ROW)
#undef ECH_USE_ROW
};

const char *ech_use_name(ech_use h)
{
    return h >= 0 && h < ECH_N_USES ? held_rows[h].name : "none such";
}

const char *ech_use_class(ech_use h)
{
    return h >= 0 && h < ECH_N_USES ? held_rows[h].klass : "none such";
}

const char *ech_moment_name(ech_moment m)
{
    static const char *const names[ECH_N_MOMENTS] = {"start", "step", "optimizer", "save", "load"};
    return m >= 0 && m < ECH_N_MOMENTS ? names[m] : "none such";
}

static double allocated_of(const ech_footprint_stage *s)
{
    double sum = 0;
    for (int h = 0; h < ECH_USE_CONTEXT; h++)
        sum += s->held[h];
    return sum;
}

/* The fullest rank, and its sums. */
static void sum_up(ech_footprint *f)
{
    for (int r = 0; r < f->n_stages; r++)
        if (f->stage[r].peak[f->stage[r].fullest] >
            f->stage[f->fullest].peak[f->stage[f->fullest].fullest])
            f->fullest = r;
    const ech_footprint_stage *s = &f->stage[f->fullest];
    f->allocated_bytes = allocated_of(s);
    f->reserved_bytes = s->peak[s->fullest];
}

/* Reserved where a rank's experts are given every row that they can be: all of a token's choices, from
 * all ranks that share them; a capacity bounds it. */
static double worst_of(const ech_job *job, const ech_point *p, const ech_footprint *f)
{
    const ech_moe *moe = &job->model->moe;
    const double spread = moe->topk > 0 ? (double)moe->experts / (double)moe->topk : 1;
    double most = p->ep < spread ? p->ep : spread;
    ech_memory_plan plan;
    ech_rank_load load[ECH_FOOTPRINT_STAGES];
    ech_footprint_stage stage;
    double worst = f->reserved_bytes;
    if (moe->experts == 0 || p->ep <= 1)
        return worst;
    if (job->moe_capacity > 0 && job->moe_capacity < most)
        most = job->moe_capacity;
    ech_memory_plan_of(job, p, most, &plan);
    const int ranks = ech_memory_loads(&plan, load);
    for (int r = 0; r < ranks; r++) {
        ech_memory_moments(&plan, &load[r], r, &stage);
        worst = fmax(worst, stage.peak[stage.fullest]);
    }
    return worst;
}

void ech_footprint_of(const ech_job *job, const ech_point *point, ech_derivation *notes,
                      ech_footprint *out)
{
    ech_memory_plan plan;
    ech_rank_load load[ECH_FOOTPRINT_STAGES];
    ech_memory_plan_of(job, point, 1, &plan);
    out->n_stages = ech_memory_loads(&plan, load);
    out->fullest = 0;
    for (int r = 0; r < out->n_stages; r++)
        ech_memory_moments(&plan, &load[r], r, &out->stage[r]);
    sum_up(out);
    out->uncertainty = plan.habit.uncertainty;
    out->is_exact = false;
    out->marked = point->pp > 1 && point->schedule == ECH_SCHEDULE_FILE
                      ? "a schedule from a file counts as a V form: p micro-batches on every rank"
                      : NULL;
    ech_memory_host(&plan, out, out->host_peak);
    out->host_node_bytes = 0;
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        out->host_node_bytes = fmax(out->host_node_bytes, out->host_peak[m]);
    out->worst_bytes = worst_of(job, point, out);
    if (notes)
        ech_memory_explain(&plan, load, out, notes);
}

/* --- verdict --- */

/* What there is most of, in words. */
static const char *largest_part(const ech_footprint_stage *s, double capacity)
{
    const double state = s->held[ECH_USE_PARAMS] + s->held[ECH_USE_GRADS] +
                         s->held[ECH_USE_MASTER] + s->held[ECH_USE_OPTIMIZER];
    int most = 0;
    if (s->fullest == ECH_MOMENT_SAVE)
        return "the whole model, gathered to be saved";
    if (s->fullest == ECH_MOMENT_OPTIMIZER && state <= capacity)
        return "temporaries of the optimizer's step";
    if (state > capacity)
        return "model state";
    for (int h = 0; h < ECH_USE_CONTEXT; h++)
        if (s->held[h] > s->held[most])
            most = h;
    return most == ECH_USE_OPTIMIZER || most == ECH_USE_MASTER ? "optimizer state"
                                                               : ech_use_name((ech_use)most);
}

/* Against a bound, with so much doubt: what has to be there, and what is taken where it can be. */
static ech_fit fit_of(double needed, double taken, double doubt, double bound)
{
    if (needed * (1 - doubt) > bound)
        return ECH_FIT_NO;
    return taken * (1 + doubt) > bound ? ECH_FIT_EDGE : ECH_FIT_YES;
}

/* No benefit of a doubt: the kernel kills at the bound, and others live there too. */
static ech_fit host_fit(double bytes, double least, double bound)
{
    return bytes > bound ? ECH_FIT_NO : fit_of(bytes, bytes, least, bound);
}

/* The device's.  State that may be paged out at the price of its traffic does not make a NO, nor does
 * the allocator's slack: before PyTorch's fails it gives back the blocks that it caches and tries once
 * more (c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks). */
static ech_fit device_fit(const ech_job *job, const ech_footprint *f, double doubt)
{
    const double capacity = job->cluster->device.usable_bytes;
    const double *held = f->stage[f->fullest].held;
    const double paged = job->is_optimizer_paged ? held[ECH_USE_OPTIMIZER] : 0;
    const double needed = f->reserved_bytes - held[ECH_USE_SLACK] - paged;
    return fit_of(needed, f->reserved_bytes, doubt, capacity);
}

ech_fit ech_footprint_fit(const ech_job *job, const ech_footprint *f, const char **binding)
{
    const double least =
        f->is_exact ? 0 : 0.03; /* a smaller margin is none, unless bytes are known */
    const ech_cluster *cluster = job->cluster;
    const ech_footprint_stage *s = &f->stage[f->fullest];
    const double doubt = fmax(f->uncertainty, least);
    const double capacity = cluster->device.usable_bytes;
    const ech_fit device = device_fit(job, f, doubt);
    const ech_fit host = cluster->host_bytes > 0 && cluster->device.kind != ECH_DEVICE_CPU
                             ? host_fit(f->host_node_bytes, least, cluster->host_bytes)
                             : ECH_FIT_YES;
    *binding = host > device ? "host memory" : largest_part(s, capacity);
    return host > device ? host : device;
}
