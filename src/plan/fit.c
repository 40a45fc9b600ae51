#include "plan/fit.h"
#include "base/checked.h"
#include "price/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *ech_fit_word(ech_fit f)
{
    static const char *const words[] = {
        [ECH_FIT_YES] = "yes", [ECH_FIT_EDGE] = "edge", [ECH_FIT_NO] = "no"};
    return words[f];
}

/* --- what more ranks would change --- */

/* By asking once more with twice the data parallel ranks, each with the same work: what is shared
 * over N of them is twice the difference. */
static void find_shared(const ech_fit_spec *spec, ech_fit_report *r)
{
    ech_job job = *spec->job;
    ech_point point = *spec->point;
    ech_footprint more;
    ech_footprint f;
    job.gpus *= 2;
    job.global_batch *= 2;
    point.dp *= 2;
    ech_footprint_of(&job, &point, NULL, &more);
    ech_footprint_of(spec->job, spec->point, NULL, &f); /* by the same formulas */
    const double *now = f.stage[f.fullest].held;
    const double *then = more.stage[f.fullest].held;
    r->fixed_bytes = r->memory.reserved_bytes;
    for (int h = 0; h < ECH_N_USES; h++) {
        r->shared[h] = fmin(now[h], fmax(0.0, 2.0 * (now[h] - then[h])));
        r->fixed_bytes -= r->shared[h];
    }
}

/* Experts with a bound on what each takes. */
static void find_capped(const ech_fit_spec *spec, ech_fit_report *r)
{
    ech_job job = *spec->job;
    ech_footprint f;
    if (job.model->moe.experts < 1 || job.moe_capacity > 0.0)
        return;
    job.moe_capacity = ECH_FIT_CAPACITY;
    ech_footprint_of(&job, spec->point, NULL, &f);
    r->capped_bytes = f.worst_bytes;
}

/* --- saving --- */

static ech_status find_saving(const ech_fit_spec *spec, ech_fit_report *r)
{
    const ech_fit_storage *at = &spec->storage;
    ech_pricer *pricer = NULL;
    ech_step_price step;
    ech_goal_cost goal;
    ECH_TRY(ech_pricer_create(spec->job, NULL, &pricer));
    ech_pricer_step(pricer, spec->point, NULL, &step);
    ech_pricer_destroy(&pricer);
    ech_goal_of(spec->job, spec->point, &step, spec->notes, &goal);
    r->goodput = goal.goodput;
    ech_fit_saving *s = &r->saving;
    s->checkpoint_bytes = goal.goodput.checkpoint_bytes;
    s->write_bytes_per_s = at->write_bytes_per_s > 0.0 ? at->write_bytes_per_s
                                                       : s->checkpoint_bytes / goal.goodput.drain_s;
    s->save_s = s->checkpoint_bytes / s->write_bytes_per_s;
    s->interval_s = at->interval_s > 0.0 ? at->interval_s
                                         : ech_goodput_interval(s->save_s, goal.goodput.restart_s,
                                                                goal.goodput.mtbf_s);
    s->lost = s->save_s / (s->interval_s + s->save_s);
    s->room_bytes = (at->keep + 1.0) * s->checkpoint_bytes;
    s->has_room = at->room_bytes <= 0.0 || s->room_bytes <= at->room_bytes;
    ech_derive_section(spec->notes, "Saving");
    ech_derive(spec->notes, "time to write it", s->save_s, "s", "storage of the cluster",
               "%.6g B / %.4g B/s", s->checkpoint_bytes, s->write_bytes_per_s);
    ech_derive(spec->notes, "lost where training stands", s->lost, "1", "",
               "%.4g s / (%.4g s + %.4g s)", s->save_s, s->interval_s, s->save_s);
    ech_derive(spec->notes, "room on disk", s->room_bytes, "B",
               "the new one is whole before the oldest goes", "(%d + 1) * %.6g B", at->keep,
               s->checkpoint_bytes);
    return ECH_OK;
}

/* --- warnings --- */

static bool is_16_bit(const ech_job *job)
{
    return job->precision != ECH_PRECISION_FP32 && job->precision != ECH_PRECISION_TF32;
}

static void warn_state(const ech_job *job, const ech_point *p, ech_findings *w)
{
    const bool is_torch = job->system == ECH_SYSTEM_FSDP2 || job->system == ECH_SYSTEM_TORCHTITAN;
    const bool has_fp32 = job->has_master || (is_torch && job->grad_bytes >= 4); /* its shards */
    const bool is_offloaded =
        p->offload_optimizer != ECH_OFFLOAD_NONE || p->offload_params != ECH_OFFLOAD_NONE;
    if (is_16_bit(job) && !has_fp32 && job->tuning != ECH_TUNING_LORA)
        ech_findings_add(w, "weights have no fp32 copy: updates below 1/256 of a weight are lost");
    if (p->zero_stage > 0 && ech_point_shard_group(p) == 1 && !is_offloaded)
        ech_findings_add(w,
                         "ZeRO stage %d shares state over dp x cp = 1 rank and saves nothing: "
                         "%lld GPUs are tp %d x pp %d; state is divided by the data parallel "
                         "degree, never by the GPUs",
                         p->zero_stage, (long long)job->gpus, p->tp, p->pp);
    const int64_t span = job->cluster->level[0].span; /* 0: of all, which is no domain */
    const int64_t domain = span > 0 ? span : job->cluster->devices_per_node;
    if (p->tp > job->cluster->devices_per_node && domain < p->tp)
        ech_findings_add(w,
                         "tp %d leaves the domain of %lld device%s: every layer waits for the "
                         "network",
                         p->tp, (long long)domain, domain == 1 ? "" : "s");
}

static void warn_peak(const ech_fit_report *r, ech_findings *w)
{
    char more[32];
    const ech_footprint_stage *s = &r->memory.stage[r->memory.fullest];
    const double over = s->peak[s->fullest] - s->peak[ECH_MOMENT_STEP];
    if (s->fullest != ECH_MOMENT_STEP && over > 0.0)
        ech_findings_add(w, "the fullest moment is %s, %s above forward and backward",
                         s->fullest == ECH_MOMENT_OPTIMIZER ? "the optimizer's step"
                                                            : ech_moment_name(s->fullest),
                         ech_format_bytes(over, more, sizeof more));
    if (r->fit != ECH_FIT_EDGE || strcmp(r->binding, "host memory") == 0)
        return;
    const double share = 100.0 * r->margin_bytes / r->memory.reserved_bytes;
    const double doubt = 100.0 * fmax(r->memory.uncertainty, 0.03);
    if (share >= 0.0)
        ech_findings_add(w,
                         "a margin of %.1f %% where the answer is good to %.0f %%: such runs fail "
                         "now and then",
                         share, doubt);
    else
        ech_findings_add(w, "%.1f %% more than there is, good to %.0f %%: it may fail or just run",
                         -share, doubt);
}

static void warn_experts(const ech_fit_report *r, ech_findings *w)
{
    char worst[32];
    char capped[32];
    if (r->capped_bytes <= 0.0 || r->memory.worst_bytes <= r->memory.reserved_bytes)
        return;
    ech_findings_add(w,
                     "experts take any number of tokens: %s where all choose those of one rank; "
                     "safe only with a capacity factor (%s at %g) or a loss that balances; watch "
                     "tokens per expert",
                     ech_format_bytes(r->memory.worst_bytes, worst, sizeof worst),
                     ech_format_bytes(r->capped_bytes, capped, sizeof capped), ECH_FIT_CAPACITY);
}

static void warn(const ech_fit_spec *spec, ech_fit_report *r)
{
    warn_state(spec->job, spec->point, &r->warnings);
    warn_peak(r, &r->warnings);
    warn_experts(r, &r->warnings);
}

/* --- cures --- */

/* What the programs say of a cure whose bytes are from formulas. */
static ech_status measure_cure(const ech_fit_spec *spec, const ech_fit_report *r, ech_cure *c)
{
    const char *binding;
    ech_own *own = NULL;
    ECH_TRY(ech_calloc(1, sizeof *own, &own));
    const ech_own_spec what = {.job = &c->job, .point = &c->point};
    const ech_status st = ech_own_answer(&what, NULL, own);
    if (st >= 0) {
        c->fit = ech_footprint_fit(spec->job, &own->memory, &binding);
        c->reserved_bytes = own->memory.reserved_bytes;
        c->saves_bytes = r->memory.reserved_bytes - c->reserved_bytes;
    }
    free(own);
    return st;
}

/* Where the answer is read off programs, so are those of its cures; what fits by formulas alone is
 * none. */
static ech_status find_cures(const ech_fit_spec *spec, ech_fit_report *r)
{
    ech_cures *all = &r->cures;
    int kept = 0;
    ECH_TRY(ech_cures_find(spec->job, spec->point, all));
    if (!r->own.is_exact)
        return ECH_OK;
    for (int i = 0; i < all->n; i++) {
        ECH_TRY(measure_cure(spec, r, &all->cure[i]));
        if (all->cure[i].fit < r->fit)
            all->cure[kept++] = all->cure[i];
    }
    all->n = kept;
    return ECH_OK;
}

/* --- all of it --- */

static ech_status fill(const ech_fit_spec *spec, ech_fit_report *r)
{
    const ech_own_spec own = {.job = spec->job,
                              .point = spec->point,
                              .habits = spec->habits,
                              .calibration = spec->calibration};
    ECH_TRY(ech_own_answer(&own, spec->notes, &r->own));
    r->memory = r->own.memory;
    r->fit = ech_footprint_fit(spec->job, &r->memory, &r->binding);
    r->capacity_bytes = spec->job->cluster->device.usable_bytes;
    r->margin_bytes = r->capacity_bytes - r->memory.reserved_bytes;
    find_shared(spec, r);
    find_capped(spec, r);
    ECH_TRY(find_saving(spec, r));
    warn(spec, r);
    r->has_cures = r->fit != ECH_FIT_YES;
    if (r->has_cures)
        ECH_TRY(find_cures(spec, r));
    if (!r->saving.has_room && r->fit != ECH_FIT_NO) {
        r->fit = ECH_FIT_NO;
        r->binding = "room for checkpoints";
    }
    return ECH_OK;
}

ech_status ech_fit_make(const ech_fit_spec *spec, ech_fit_report *out)
{
    const ech_status st = fill(spec, out);
    if (st < 0)
        ech_fit_fini(out);
    return st;
}

void ech_fit_fini(ech_fit_report *r)
{
    ech_findings_fini(&r->warnings);
    memset(r, 0, sizeof *r);
}
