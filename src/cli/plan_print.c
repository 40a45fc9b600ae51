#include "cli/plan_print.h"
#include "cli/fit_print.h"
#include "plan/goal.h"
#include "price/doubt.h"
#include "price/rate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1073741824.0;

/* --- parts --- */

static const char *with_unit(double bytes, char *buf, size_t n)
{
    (void)snprintf(buf, n, "%.4g GiB", bytes / GIB);
    return buf;
}

/* The job on so many GPUs: those of a candidate may be fewer. */
static ech_job job_of(const ech_plan_answer *a, const ech_candidate *c)
{
    ech_job job = *a->job;
    job.gpus = c->gpus;
    return job;
}

/* What a rank of the job is on. */
static const char *device_word(const ech_plan_answer *a)
{
    return a->job->cluster->device.kind == ECH_DEVICE_CPU ? "node" : "GPU";
}

static ech_goal_cost goal_of(const ech_plan_answer *a, const ech_candidate *c)
{
    ech_goal_cost goal;
    const ech_job job = job_of(a, c);
    ech_goal_of(&job, &c->point, &c->step, NULL, &goal);
    return goal;
}

static ech_step_rates rates_of(const ech_plan_answer *a, const ech_candidate *c)
{
    const ech_job job = job_of(a, c);
    return ech_step_rates_of(&job, &c->step);
}

/* "tp 4: 8.2 % slower, exposed tp" */
static void add_neighbour(const ech_plan_answer *a, const ech_neighbour *n, ech_text *out)
{
    const double ratio = n->at.step.step_s / a->plan->best[0].step.step_s - 1.0;
    char bytes[32];
    const double usable = a->job->cluster->device.usable_bytes;
    const bool has_room = n->at.reserved_bytes <= usable * (1.0 - a->spec->headroom);
    ech_text_add(out, "%s ", ech_plan_dim_name(n->dim));
    ech_plan_dim_print(n->dim, &n->at.point, out);
    if (!n->fits && n->at.fit == ECH_FIT_YES && !has_room)
        ech_text_add(out, ": leaves less than %.3g %% free, %s (%s)", 100.0 * a->spec->headroom,
                     n->loses_by, with_unit(n->at.reserved_bytes, bytes, sizeof bytes));
    else if (!n->fits)
        ech_text_add(out, ": does not fit, %s (%s)", n->loses_by,
                     with_unit(n->at.reserved_bytes, bytes, sizeof bytes));
    else if (fabs(ratio) < 5e-4)
        ech_text_add(out, ": as fast, %s (%s)", n->loses_by,
                     with_unit(n->at.reserved_bytes, bytes, sizeof bytes));
    else
        ech_text_add(out, ": %.1f %% slower, %s", 100.0 * ratio, n->loses_by);
}

void ech_plan_why(const ech_plan_answer *a, ech_text *out)
{
    enum { SAID = 6 };
    const ech_plan *plan = a->plan;
    ech_text_add(out, "fastest of the layouts that fit");
    for (int i = 0; i < plan->n_neighbours && i < SAID; i++) {
        ech_text_add(out, "%s", i ? "; " : "; with ");
        add_neighbour(a, &plan->neighbour[i], out);
    }
}

/* --- words --- */

static void say_query(const ech_plan_answer *a, ech_text *out)
{
    const ech_job *job = a->job;
    ech_text_add(out, "%s on %lld x %s (%s, kernels of %s, %s), seq %lld, global batch %lld\n",
                 job->model->name, (long long)job->gpus, job->cluster->name,
                 ech_system_name(job->system), ech_generation_name(job->generation),
                 ech_precision_name(job->precision), (long long)job->seq,
                 (long long)job->global_batch);
    for (const char *at = a->assumed; *at;) {
        const size_t n = strcspn(at, "\n");
        ech_text_add(out, "  assumed: %.*s\n", (int)n, at);
        at += n + (at[n] == '\n');
    }
    ech_text_add(out,
                 "%lld layouts in %.3f s: %lld priced, %lld skipped by bounds, the others "
                 "hold too much\n",
                 (long long)a->plan->space, a->plan->seconds, (long long)a->plan->evaluated,
                 (long long)a->plan->pruned);
    if (a->plan->opened_offload)
        ech_text_add(out, "nothing fits without offload: it was searched too\n");
}

static void say_share(const char *what, double seconds, double step_s, ech_text *out)
{
    if (seconds > 5e-4 * step_s)
        ech_text_add(out, "%s %.1f %%, ", what, 100.0 * seconds / step_s);
}

static void say_time(const ech_step_price *s, ech_text *out)
{
    char what[40];
    ech_text_add(out, "  time: ");
    say_share("compute", s->compute_s, s->step_s, out);
    say_share("recompute", s->recompute_s, s->step_s, out);
    say_share("bubble", s->bubble_s, s->step_s, out);
    for (int i = 0; i < ECH_N_AXES; i++) {
        (void)snprintf(what, sizeof what, "exposed %s", ech_axis_name((ech_axis)i));
        say_share(what, s->exposed_s[i], s->step_s, out);
    }
    say_share("offload", s->offload_s, s->step_s, out);
    say_share("optimizer", s->optimizer_s, s->step_s, out);
    say_share("fixed", s->fixed_s, s->step_s, out);
    ech_doubt_print(s->uncertainty, out);
    ech_text_add(out, "\n");
}

/* What the fullest rank of a candidate holds, from where the candidate has its sums.  @return is there
 * memory to find it out */
static bool find_held(const ech_job *job, const ech_candidate *c, double held[ECH_N_USES])
{
    const ech_own_spec ask = {.job = job, .point = &c->point};
    ech_own *own = calloc(1, sizeof *own);
    ech_status st = own ? ECH_OK : ECH_E_NOMEM;
    if (own && c->is_exact)
        st = ech_own_answer(&ask, NULL, own);
    else if (own)
        ech_footprint_of(job, &c->point, NULL, &own->memory);
    if (st >= 0)
        memcpy(held, own->memory.stage[own->memory.fullest].held, ECH_N_USES * sizeof *held);
    free(own);
    return st >= 0;
}

static void say_memory(const ech_plan_answer *a, const ech_candidate *c, ech_text *out)
{
    const ech_job job = job_of(a, c);
    double held[ECH_N_USES];
    if (!find_held(&job, c, held)) {
        out->failed = true;
        return;
    }
    ech_text_add(out, "  memory: %.4g of %.4g GiB (", c->reserved_bytes / GIB,
                 job.cluster->device.usable_bytes / GIB);
    for (int h = 0, n = 0; h < ECH_N_USES; h++)
        if (held[h] > 0.005 * c->reserved_bytes)
            ech_text_add(out, "%s%s %.3g", n++ ? ", " : "", ech_use_name((ech_use)h),
                         held[h] / GIB);
    ech_text_add(out, ")%s%s", c->fit == ECH_FIT_EDGE ? "; on the edge" : "",
                 c->is_exact ? "; exact, by its programs" : "");
    if (c->host_node_bytes > 0.0)
        ech_text_add(out, "; %.4g GiB of a node's host", c->host_node_bytes / GIB);
    ech_text_add(out, "\n");
}

static void say_run(const ech_plan_answer *a, const ech_candidate *c, ech_text *out)
{
    const ech_goal_cost g = goal_of(a, c);
    if (isfinite(g.days))
        ech_text_add(out,
                     "  run: %.4g tokens in %.4g days (%.4g without failures), %.4g %s-hours, "
                     "%.4g USD, %.4g MWh\n",
                     a->job->tokens, g.days, g.ideal_days, g.gpu_hours, device_word(a), g.dollars,
                     g.megawatt_hours);
    const double interval_s = g.goodput.interval_s;
    const double mtbf_h = g.goodput.mtbf_s / 3600.0;
    ech_text_add(out, "  goodput: %.2f %% with a checkpoint every %.*f s, one failure in %.*f h\n",
                 100.0 * g.goodput.goodput, interval_s < 100.0, interval_s, 2 * (mtbf_h < 100.0),
                 mtbf_h);
}

/* The command that looks closer at a layout. */
static void say_command(const ech_plan_answer *a, const ech_candidate *c, ech_text *out)
{
    ech_text_add(out, "  look closer: echelon sim %s --gpus %lld ", a->job_options,
                 (long long)c->gpus);
    ech_point_options(a->job, &c->point, out);
    ech_text_add(out, "\n");
}

static void say_winner(const ech_plan_answer *a, ech_text *out)
{
    ech_findings missing = {0};
    const ech_candidate *c = &a->plan->best[0];
    const ech_step_rates r = rates_of(a, c);
    ech_text_add(out, "\nbest: ");
    ech_point_options(a->job, &c->point, out);
    ech_text_add(out, "\n  %.5g s a step, %.5g tokens/s a %s", c->step.step_s,
                 r.tokens_per_s_per_gpu, device_word(a));
    if (isfinite(r.mfu))
        ech_text_add(out, ", MFU %.1f %% of %.4g TFLOP/s (%s)", 100.0 * r.mfu, r.peak_flops / 1e12,
                     ECH_FLOPS_CONVENTION);
    ech_text_add(out, "\n");
    say_time(&c->step, out);
    say_memory(a, c, out);
    say_run(a, c, out);
    say_command(a, c, out);
    const ech_job job = job_of(a, c);
    if (!ech_point_is_executable(&job, &c->point, &missing)) {
        ech_text_add(out, "  not run today by this engine, from formulas alone:\n");
        for (const char *at = ech_text_get(&missing.text); *at;) {
            const size_t n = strcspn(at, "\n");
            ech_text_add(out, "    %.*s\n", (int)n, at);
            at += n + (at[n] == '\n');
        }
    }
    ech_findings_fini(&missing);
}

static void say_row(const ech_plan_answer *a, const ech_candidate *c, ech_text *out)
{
    const ech_step_rates r = rates_of(a, c);
    ech_text_add(out, "  %9.4g s %6.1f %% %8.4g GiB %7lld %s%s  ", c->step.step_s, 100.0 * r.mfu,
                 c->reserved_bytes / GIB, (long long)c->gpus, device_word(a),
                 c->gpus == 1 ? " " : "s");
    ech_point_options(a->job, &c->point, out);
    ech_text_add(out, "\n");
}

static void say_lists(const ech_plan_answer *a, ech_text *out)
{
    const ech_plan *p = a->plan;
    if (p->n_best > 1)
        ech_text_add(out, "\nnext (step, MFU, memory):\n");
    for (int i = 1; i < p->n_best; i++)
        say_row(a, &p->best[i], out);
    ech_text_add(out, "\nnobody is better in time, memory");
    if (a->spec->may_use_fewer)
        ech_text_add(out, ", %ss and cost:\n", device_word(a));
    else
        ech_text_add(out, " (Pareto front):\n");
    for (int i = 0; i < p->n_pareto; i++)
        say_row(a, &p->pareto[i], out);
}

static void say_reasons(const ech_plan_answer *a, ech_text *out)
{
    const ech_plan *p = a->plan;
    if (p->n_neighbours)
        ech_text_add(out, "\nwhy its neighbours lose:\n");
    for (int i = 0; i < p->n_neighbours; i++) {
        ech_text_add(out, "  ");
        add_neighbour(a, &p->neighbour[i], out);
        ech_text_add(out, "\n");
    }
    if (p->n_rejected)
        ech_text_add(out, "\nrejected:\n");
    for (int i = 0; i < p->n_rejected; i++)
        if (p->rejected[i].count > 0)
            ech_text_add(out, "  %10lld  %s%s\n", (long long)p->rejected[i].count,
                         p->rejected[i].is_memory ? "memory: " : "", p->rejected[i].reason);
}

static void say_nearest(const ech_plan_answer *a, ech_text *out)
{
    const ech_candidate *c = &a->plan->nearest;
    const double usable = a->job->cluster->device.usable_bytes;
    ech_text_add(out, "\nno layout fits\n");
    if (!a->plan->has_nearest)
        return;
    ech_text_add(out, "nearest: ");
    ech_point_options(a->job, &c->point, out);
    ech_text_add(out, "\n  %.4g of %.4g GiB", c->reserved_bytes / GIB, usable / GIB);
    if (c->host_node_bytes > 0.0 && a->job->cluster->host_bytes > 0.0)
        ech_text_add(out, ", %.4g of %.4g GiB of a node's host", c->host_node_bytes / GIB,
                     a->job->cluster->host_bytes / GIB);
    ech_text_add(out, "\n");
    for (int i = 0; a->cures && i < a->cures->n; i++) {
        const ech_cure *cure = &a->cures->cure[i];
        ech_text_add(out, "  %s%s: %.4g GiB%s\n", i ? "or " : "what would help: ", cure->change,
                     cure->reserved_bytes / GIB, cure->fit == ECH_FIT_EDGE ? ", on the edge" : "");
    }
}

void ech_plan_words(const ech_plan_answer *a, ech_text *out)
{
    say_query(a, out);
    if (a->plan->n_best == 0) {
        say_nearest(a, out);
        say_reasons(a, out);
        return;
    }
    say_winner(a, out);
    say_lists(a, out);
    say_reasons(a, out);
}

/* --- JSON --- */

static void add_layout(const ech_job *job, const ech_point *p, ech_jout *j)
{
    ech_text words = {0};
    ech_jout_open(j, "layout", '{');
    ech_jout_int(j, "tp", p->tp);
    ech_jout_int(j, "pp", p->pp);
    ech_jout_int(j, "vpp", p->vpp);
    ech_jout_int(j, "dp", p->dp);
    ech_jout_int(j, "cp", p->cp);
    ech_jout_int(j, "ep", p->ep);
    ech_jout_int(j, "etp", p->etp);
    ech_jout_int(j, "zero", p->zero_stage);
    ech_jout_int(j, "zero_group", p->zero_group);
    ech_jout_bool(j, "reshard", p->reshard_after_forward);
    ech_jout_string(j, "reduce", p->reduce_each ? "each" : "last");
    ech_jout_bool(j, "sequence_parallel", p->sequence_parallel);
    ech_jout_int(j, "micro", p->micro);
    ech_jout_int(j, "micro_batches", ech_point_micros(job, p));
    ech_recompute_print(p->recompute, p->recompute_layers, &words);
    ech_jout_string(j, "recompute", ech_text_get(&words));
    ech_text_fini(&words);
    ech_jout_string(j, "schedule", ech_schedule_name(p->schedule));
    ech_jout_string(j, "split", ech_stage_split_name(p->split));
    ech_jout_string(j, "order", ech_order_name(p->order));
    ech_jout_string(j, "cp_kind", ech_cp_kind_name(p->cp_kind));
    ech_jout_open(j, "offload", '{');
    ech_jout_string(j, "optimizer", ech_offload_name(p->offload_optimizer));
    ech_jout_string(j, "params", ech_offload_name(p->offload_params));
    ech_jout_string(j, "activations", ech_offload_name(p->offload_activations));
    ech_jout_close(j);
    ech_jout_close(j);
    ech_point_options(job, p, &words);
    ech_jout_string(j, "options", ech_text_get(&words));
    ech_text_fini(&words);
}

static void add_memory(const ech_job *job, const ech_candidate *c, ech_jout *j)
{
    double held[ECH_N_USES];
    if (!find_held(job, c, held)) {
        j->text.failed = true;
        return;
    }
    ech_held_members(j, "memory_bytes", held);
    ech_jout_bool(j, "exact", c->is_exact);
    ech_jout_real(j, "reserved_bytes", c->reserved_bytes);
    ech_jout_real(j, "allocated_bytes", c->allocated_bytes);
    ech_jout_real(j, "host_memory_bytes", c->host_node_bytes);
    ech_jout_string(j, "fits",
                    c->fit == ECH_FIT_YES    ? "yes"
                    : c->fit == ECH_FIT_EDGE ? "edge"
                                             : "no");
}

static void add_time(const ech_step_price *s, ech_jout *j)
{
    ech_jout_open(j, "time", '{');
    ech_jout_real(j, "compute", s->compute_s);
    ech_jout_real(j, "recompute", s->recompute_s);
    ech_jout_real(j, "bubble", s->bubble_s);
    ech_jout_open(j, "exposed", '{');
    for (int k = 0; k < ECH_N_AXES; k++)
        ech_jout_real(j, ech_axis_name((ech_axis)k), s->exposed_s[k]);
    ech_jout_close(j);
    ech_jout_real(j, "offload", s->offload_s);
    ech_jout_real(j, "optimizer", s->optimizer_s);
    ech_jout_real(j, "fixed", s->fixed_s);
    ech_jout_close(j);
}

static void add_goal(const ech_goal_cost *g, ech_jout *j)
{
    ech_jout_real(j, "days", g->days);
    ech_jout_real(j, "ideal_days", g->ideal_days);
    ech_jout_real(j, "gpu_hours", g->gpu_hours);
    ech_jout_real(j, "dollars", g->dollars);
    ech_jout_real(j, "megawatt_hours", g->megawatt_hours);
    ech_jout_real(j, "goodput", g->goodput.goodput);
    ech_jout_real(j, "checkpoint_every_s", g->goodput.interval_s);
}

static void add_candidate(const ech_plan_answer *a, const ech_candidate *c, const char *why,
                          ech_jout *j)
{
    const ech_job job = job_of(a, c);
    const ech_step_rates r = ech_step_rates_of(&job, &c->step);
    const ech_goal_cost g = goal_of(a, c);
    ech_jout_open(j, NULL, '{');
    add_layout(&job, &c->point, j);
    ech_jout_int(j, "gpus", c->gpus);
    ech_jout_real(j, "step_s", c->step.step_s);
    ech_jout_real(j, "tokens_per_s_per_gpu", r.tokens_per_s_per_gpu);
    ech_jout_real(j, "mfu", r.mfu);
    ech_jout_real(j, "hfu", r.hfu);
    add_memory(&job, c, j);
    add_time(&c->step, j);
    add_goal(&g, j);
    ech_jout_real(j, "dollars_per_step", c->dollars_per_step);
    ech_jout_real(j, "uncertainty", c->step.uncertainty);
    ech_jout_string(j, "why", why);
    ech_jout_close(j);
}

/* Those after the winner: by how much they are behind it. */
static void add_best(const ech_plan_answer *a, ech_jout *j)
{
    char behind[80];
    ech_text why = {0};
    const ech_plan *p = a->plan;
    ech_jout_open(j, "best", '[');
    for (int i = 0; i < p->n_best; i++) {
        if (i == 0)
            ech_plan_why(a, &why);
        (void)snprintf(behind, sizeof behind, "%.2f %% behind the best",
                       100.0 * (p->best[i].step.step_s / p->best[0].step.step_s - 1.0));
        add_candidate(a, &p->best[i], i ? behind : ech_text_get(&why), j);
    }
    ech_jout_close(j);
    ech_text_fini(&why);
}

static void add_query(const ech_plan_answer *a, ech_jout *j)
{
    const ech_job *job = a->job;
    ech_jout_open(j, "query", '{');
    ech_jout_string(j, "model", job->model->name);
    ech_jout_string(j, "cluster", job->cluster->name);
    ech_jout_int(j, "gpus", job->gpus);
    ech_jout_int(j, "seq", job->seq);
    ech_jout_int(j, "global_batch", job->global_batch);
    ech_jout_real(j, "tokens", job->tokens > 0.0 ? job->tokens : NAN);
    ech_jout_string(j, "precision", ech_precision_name(job->precision));
    ech_jout_string(j, "engine", ech_system_name(job->system));
    ech_jout_string(j, "generation", ech_generation_name(job->generation));
    ech_jout_open(j, "pinned", '[');
    for (int d = 0; d < ECH_N_DIMS; d++)
        if (a->spec->pinned >> d & 1)
            ech_jout_string(j, NULL, ech_plan_dim_name((ech_plan_dim)d));
    ech_jout_close(j);
    ech_jout_string(j, "assumed", a->assumed);
    ech_jout_real(j, "headroom", a->spec->headroom);
    ech_jout_bool(j, "offload", a->spec->may_offload || a->plan->opened_offload);
    ech_jout_close(j);
}

static void add_neighbours(const ech_plan_answer *a, ech_jout *j)
{
    ech_jout_open(j, "neighbours", '[');
    for (int i = 0; i < a->plan->n_neighbours; i++) {
        const ech_neighbour *n = &a->plan->neighbour[i];
        ech_text value = {0};
        ech_plan_dim_print(n->dim, &n->at.point, &value);
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "dimension", ech_plan_dim_name(n->dim));
        ech_jout_string(j, "value", ech_text_get(&value));
        ech_jout_bool(j, "fits", n->fits);
        ech_jout_real(j, "step_s", n->at.step.step_s);
        ech_jout_real(j, "reserved_bytes", n->at.reserved_bytes);
        ech_jout_string(j, "loses_by", n->loses_by);
        ech_jout_real(j, "by_s", n->by_s);
        ech_jout_close(j);
        ech_text_fini(&value);
    }
    ech_jout_close(j);
}

static void add_rejected(const ech_plan_answer *a, ech_jout *j)
{
    char key[96];
    ech_jout_open(j, "rejected", '{');
    for (int i = 0; i < a->plan->n_rejected; i++) {
        const ech_rejection *r = &a->plan->rejected[i];
        (void)snprintf(key, sizeof key, "%s%s", r->is_memory ? "memory: " : "", r->reason);
        if (r->count > 0)
            ech_jout_int(j, key, r->count);
    }
    ech_jout_close(j);
}

static void add_nearest(const ech_plan_answer *a, ech_jout *j)
{
    if (!a->plan->has_nearest) {
        ech_jout_null(j, "nearest");
        return;
    }
    const ech_candidate *c = &a->plan->nearest;
    const ech_job job = job_of(a, c);
    ech_jout_open(j, "nearest", '{');
    add_layout(&job, &c->point, j);
    add_memory(&job, c, j);
    ech_jout_real(j, "capacity_bytes", job.cluster->device.usable_bytes);
    ech_jout_open(j, "cures", '[');
    for (int i = 0; a->cures && i < a->cures->n; i++) {
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "change", a->cures->cure[i].change);
        ech_jout_real(j, "saves_bytes", a->cures->cure[i].saves_bytes);
        ech_jout_real(j, "time_ratio", a->cures->cure[i].time_ratio);
        ech_jout_close(j);
    }
    ech_jout_close(j);
    ech_jout_close(j);
}

void ech_plan_members(const ech_plan_answer *a, ech_jout *j)
{
    const ech_plan *p = a->plan;
    add_query(a, j);
    ech_jout_int(j, "evaluated", p->evaluated);
    ech_jout_int(j, "pruned", p->pruned);
    ech_jout_int(j, "space", p->space);
    ech_jout_real(j, "seconds", p->seconds);
    ech_jout_string(j, "flops_convention", ECH_FLOPS_CONVENTION);
    add_best(a, j);
    ech_jout_open(j, "pareto", '[');
    for (int i = 0; i < p->n_pareto; i++)
        add_candidate(a, &p->pareto[i], NULL, j);
    ech_jout_close(j);
    add_neighbours(a, j);
    add_rejected(a, j);
    add_nearest(a, j);
}
