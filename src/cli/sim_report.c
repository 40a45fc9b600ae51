#include "cli/sim_report.h"
#include "cli/fit_print.h"
#include "price/doubt.h"
#include "report/train_events.h"

#include <math.h>
#include <stdio.h>

static const double GIB = 1073741824.0;

/* --- sums --- */

typedef struct comm_sums {
    double exposed, hidden;
} comm_sums;

static comm_sums comm_of(const ech_step_price *s)
{
    comm_sums c = {0};
    for (int a = 0; a < ECH_N_AXES; a++) {
        c.exposed += s->exposed_s[a];
        c.hidden += s->hidden_s[a];
    }
    return c;
}

/* The share of communication that kernels could hide at best. */
static double ideal_overlap(const ech_step_price *s)
{
    const comm_sums c = comm_of(s);
    const double all = c.exposed + c.hidden;
    return all > 0.0 ? fmin(1.0, (s->compute_s + s->recompute_s) / all) : NAN;
}

static double achieved_overlap(const ech_step_price *s)
{
    const comm_sums c = comm_of(s);
    return c.exposed + c.hidden > 0.0 ? c.hidden / (c.exposed + c.hidden) : NAN;
}

/* --- words --- */

static void say_share(const char *what, double seconds, double step_s, ech_text *out)
{
    if (seconds > 1e-9 * step_s) /* parts are differences: rounding is no part */
        ech_text_add(out, "  %-22s %12.6f s %6.2f %%\n", what, seconds, 100.0 * seconds / step_s);
}

static void say_time(const ech_sim_report *r, ech_text *out)
{
    const ech_step_price *s = &r->step;
    char what[40];
    ech_text_add(out, "step %.6g s, ", s->step_s);
    ech_doubt_print(s->uncertainty, out);
    ech_text_add(out, "; where it goes (mean of all ranks):\n");
    say_share("compute", s->compute_s, s->step_s, out);
    say_share("recompute", s->recompute_s, s->step_s, out);
    say_share("bubble", s->bubble_s, s->step_s, out);
    for (int a = 0; a < ECH_N_AXES; a++) {
        (void)snprintf(what, sizeof what, "exposed %s", ech_axis_name((ech_axis)a));
        say_share(what, s->exposed_s[a], s->step_s, out);
    }
    say_share("offload", s->offload_s, s->step_s, out);
    say_share("optimizer", s->optimizer_s, s->step_s, out);
    say_share("fixed", s->fixed_s, s->step_s, out);
    if (isfinite(ideal_overlap(s)))
        ech_text_add(out, "  of communication %.1f %% hidden, at best %.1f %%\n",
                     100.0 * achieved_overlap(s), 100.0 * ideal_overlap(s));
}

static void say_rates(const char *what, const ech_step_rates *r, ech_text *out)
{
    ech_text_add(out, "%s: %.6g tokens/s, %.4g TFLOP/s (%s)\n", what, r->tokens_per_s_per_gpu,
                 r->flops_per_s_per_gpu / 1e12, ECH_FLOPS_CONVENTION);
    if (isfinite(r->peak_flops))
        ech_text_add(out,
                     "  MFU %.2f %%, HFU %.2f %% of %.4g TFLOP/s dense; MFU %.2f %% with causal "
                     "attention halved\n",
                     100.0 * r->mfu, 100.0 * r->hfu, r->peak_flops / 1e12, 100.0 * r->mfu_causal);
}

static void say_measured(const ech_sim_report *r, ech_text *out)
{
    if (!isfinite(r->measured_s))
        return;
    ech_text_add(out, "measured %.6g s a step, %.3g times what is predicted\n", r->measured_s,
                 r->measured_s / r->step.step_s);
    say_rates("  that is, a GPU", &r->measured, out);
    if (!r->link.is_found)
        return;
    const double times = r->link.stated_bytes_per_s / r->link.implied_bytes_per_s;
    const double node = r->job->cluster->devices_per_node;
    ech_text_add(
        out,
        "  a network at %.3g GB/s a node would explain it, %.3g times less than the stated "
        "%.3g: measure the link before training%s\n",
        r->link.implied_bytes_per_s * node / 1e9, times, r->link.stated_bytes_per_s * node / 1e9,
        times >= 10.0 ? "; ten times and more is a fault of the set-up (the wrong "
                        "interface, no RDMA), not of the layout"
                      : "");
}

static void say_network(const ech_sim_report *r, ech_text *out)
{
    const ech_break_even *e = &r->even;
    if (e->applies)
        ech_text_add(out,
                     "sharded weights: the network (%.4g GB/s a node) keeps up from %.0f tokens a "
                     "GPU and micro-batch at %.4g TFLOP/s, whatever the model; there are %.0f\n",
                     e->node_bytes_per_s / 1e9, e->tokens, e->achieved_flops / 1e12, e->has_tokens);
}

static void say_run(const ech_sim_report *r, ech_text *out)
{
    const ech_goodput *g = &r->goal.goodput;
    if (isfinite(r->goal.days))
        ech_text_add(out,
                     "%.4g tokens: %.4g days (%.4g without failures), %.4g GPU-hours, %.4g USD, "
                     "%.4g MWh\n",
                     r->job->tokens, r->goal.days, r->goal.ideal_days, r->goal.gpu_hours,
                     r->goal.dollars, r->goal.megawatt_hours);
    ech_text_add(out,
                 "failures: one in %.4g h; a checkpoint of %.4g GB every %.4g s (Young %.4g, Daly "
                 "%.4g), goodput %.2f %%\n",
                 g->mtbf_s / 3600.0, g->checkpoint_bytes / 1e9, g->interval_s, g->young_s,
                 g->daly_s, 100.0 * g->goodput);
}

static void say_line(const ech_sim_report *r, ech_text *out)
{
    const ech_stage_line *l = &r->line;
    if (r->own.is_timed) {
        ech_text_add(out,
                     "simulated: %lld ops of %d of %lld ranks, with costs measured on this "
                     "machine, in %.1f ms\n",
                     (long long)r->own.sums.ops, r->own.sums.followed, (long long)r->job->gpus,
                     1e3 * r->line_s);
        return;
    }
    if (l->ranks == 0) {
        ech_text_add(out, "time line: %lld cells, not drawn; a smaller --global-batch shows it\n",
                     (long long)l->cells);
        return;
    }
    ech_text_add(out,
                 "time line: %lld cells of %d stages, each for all its replicas: %.6g s, bubble "
                 "%.2f %%; priced and simulated in %.1f ms\n",
                 (long long)l->cells, l->ranks, l->line.step_s, 100.0 * l->bubble, 1e3 * r->line_s);
}

static void say_ops(const ech_sim_report *r, ech_text *out)
{
    if (!r->n_ops)
        return;
    ech_text_add(out, "\n%-40s %10s %12s %10s %10s %6s  %s\n", "op", "count", "us each", "GFLOP",
                 "MB", "eff %", "bound by");
    for (int i = 0; i < r->n_ops; i++) {
        const ech_op_price *o = &r->op[i];
        ech_text_add(out, "%-40s %10.6g %12.2f %10.4g %10.4g %6.1f  %s\n", o->name, o->count,
                     1e6 * o->seconds, o->flops / 1e9, o->bytes / 1e6, 100.0 * o->efficiency,
                     o->bound);
    }
}

void ech_sim_words(const ech_sim_report *r, ech_text *out)
{
    ech_job_words(r->job, r->point, out);
    say_time(r, out);
    say_rates("a GPU", &r->rates, out);
    say_measured(r, out);
    say_network(r, out);
    say_run(r, out);
    say_line(r, out);
    ech_text_add(out, "memory of the fullest device: %.4g GiB; fits: %s (%s)\n",
                 r->memory.reserved_bytes / GIB, ech_fit_word(r->fit), r->binding);
    say_ops(r, out);
}

/* --- JSON --- */

static void add_axes(const double *of, const char *key, ech_jout *j)
{
    ech_jout_open(j, key, '{');
    for (int a = 0; a < ECH_N_AXES; a++)
        ech_jout_real(j, ech_axis_name((ech_axis)a), of[a]);
    ech_jout_close(j);
}

static void add_rates(const ech_step_rates *r, ech_jout *j)
{
    ech_jout_real(j, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
    ech_jout_real(j, "tflops_per_gpu", r->flops_per_s_per_gpu / 1e12);
    ech_jout_real(j, "mfu", r->mfu);
    ech_jout_real(j, "hfu", r->hfu);
    ech_jout_string(j, "flops_convention", ECH_FLOPS_CONVENTION);
    ech_jout_real(j, "peak_flops", r->peak_flops);
    ech_jout_real(j, "mfu_causal", r->mfu_causal);
}

static void add_time(const ech_step_price *s, ech_jout *j)
{
    ech_jout_open(j, "time", '{');
    ech_jout_real(j, "compute", s->compute_s);
    ech_jout_real(j, "recompute", s->recompute_s);
    ech_jout_real(j, "bubble", s->bubble_s);
    add_axes(s->exposed_s, "exposed", j);
    ech_jout_real(j, "offload", s->offload_s);
    ech_jout_real(j, "optimizer", s->optimizer_s);
    ech_jout_real(j, "fixed", s->fixed_s);
    ech_jout_close(j);
    add_axes(s->hidden_s, "hidden", j);
    add_axes(s->sent_bytes, "sent_bytes", j);
    ech_jout_open(j, "overlap", '{');
    ech_jout_real(j, "achieved", achieved_overlap(s));
    ech_jout_real(j, "ideal", ideal_overlap(s));
    ech_jout_close(j);
}

static void add_run(const ech_goal_cost *g, ech_jout *j)
{
    ech_jout_open(j, "run", '{');
    ech_jout_real(j, "steps", g->steps);
    ech_jout_real(j, "days", g->days);
    ech_jout_real(j, "ideal_days", g->ideal_days);
    ech_jout_real(j, "gpu_hours", g->gpu_hours);
    ech_jout_real(j, "dollars", g->dollars);
    ech_jout_real(j, "megawatt_hours", g->megawatt_hours);
    ech_jout_close(j);
    ech_jout_open(j, "goodput", '{');
    ech_jout_real(j, "goodput", g->goodput.goodput);
    ech_jout_real(j, "checkpoint_bytes", g->goodput.checkpoint_bytes);
    ech_jout_real(j, "blocked_s", g->goodput.blocked_s);
    ech_jout_real(j, "drain_s", g->goodput.drain_s);
    ech_jout_real(j, "mtbf_s", g->goodput.mtbf_s);
    ech_jout_real(j, "restart_s", g->goodput.restart_s);
    ech_jout_real(j, "young_s", g->goodput.young_s);
    ech_jout_real(j, "daly_s", g->goodput.daly_s);
    ech_jout_real(j, "interval_s", g->goodput.interval_s);
    ech_jout_close(j);
}

static void add_network(const ech_break_even *e, ech_jout *j)
{
    if (!e->applies) {
        ech_jout_null(j, "break_even");
        return;
    }
    ech_jout_open(j, "break_even", '{');
    ech_jout_real(j, "tokens", e->tokens);
    ech_jout_real(j, "has_tokens", e->has_tokens);
    ech_jout_real(j, "node_bytes_per_s", e->node_bytes_per_s);
    ech_jout_real(j, "achieved_flops", e->achieved_flops);
    ech_jout_close(j);
}

static void add_measured(const ech_sim_report *r, ech_jout *j)
{
    if (!isfinite(r->measured_s)) {
        ech_jout_null(j, "measured");
        return;
    }
    ech_jout_open(j, "measured", '{');
    ech_jout_real(j, "step_s", r->measured_s);
    ech_jout_real(j, "ratio", r->measured_s / r->step.step_s);
    add_rates(&r->measured, j);
    ech_jout_real(j, "stated_bytes_per_s", r->link.stated_bytes_per_s);
    ech_jout_real(j, "implied_bytes_per_s", r->link.is_found ? r->link.implied_bytes_per_s : NAN);
    ech_jout_real(j, "implied_node_bytes_per_s",
                  r->link.is_found ? r->link.implied_bytes_per_s * r->job->cluster->devices_per_node
                                   : NAN);
    ech_jout_close(j);
}

static void add_line(const ech_sim_report *r, ech_jout *j)
{
    const ech_stage_line *l = &r->line;
    ech_jout_open(j, "simulated", '{');
    ech_jout_int(j, "ranks", r->job->gpus);
    if (r->own.is_timed) { /* op by op, as sim of a configuration tells it */
        ech_jout_int(j, "followed", r->own.sums.followed);
        ech_jout_int(j, "ops", r->own.sums.ops);
        ech_jout_real(j, "seconds", r->line_s);
        ech_jout_close(j);
        return;
    }
    ech_jout_int(j, "followed", l->ranks);
    ech_jout_int(j, "cells", l->cells);
    const bool is_drawn = l->ranks > 0;
    ech_jout_real(j, "step_s", is_drawn ? l->line.step_s : NAN);
    ech_jout_real(j, "makespan_s", is_drawn ? l->makespan_s : NAN);
    ech_jout_real(j, "bubble", is_drawn ? l->bubble : NAN);
    ech_jout_real(j, "seconds", r->line_s);
    ech_jout_close(j);
}

static void add_ops(const ech_sim_report *r, ech_jout *j)
{
    ech_jout_open(j, "ops", '[');
    for (int i = 0; i < r->n_ops; i++) {
        const ech_op_price *o = &r->op[i];
        ech_jout_open(j, NULL, '{');
        ech_jout_string(j, "op", o->name);
        ech_jout_real(j, "count", o->count);
        ech_jout_real(j, "seconds", o->seconds);
        ech_jout_real(j, "flops", o->flops);
        ech_jout_real(j, "bytes", o->bytes);
        ech_jout_real(j, "efficiency", o->efficiency);
        ech_jout_string(j, "bound", o->bound);
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

void ech_sim_members(const ech_sim_report *r, ech_jout *j)
{
    ech_jout_real(j, "step_s", r->step.step_s);
    add_rates(&r->rates, j);
    ech_jout_real(j, "bubble", r->step.bubble_s / r->step.step_s);
    add_time(&r->step, j);
    ech_held_members(j, "memory_bytes", r->memory.stage[r->memory.fullest].held);
    ech_jout_string(j, "fits", ech_fit_word(r->fit));
    ech_jout_bool(j, "exact", r->own.is_exact);
    ech_jout_bool(j, "timed_by_simulation", r->own.is_timed);
    ech_jout_string(j, "marked", r->memory.marked);
    if (r->own.is_exact)
        ech_jout_prediction(j, "predicted", &r->own.predicted);
    ech_jout_real(j, "uncertainty", r->step.uncertainty);
    add_run(&r->goal, j);
    add_network(&r->even, j);
    add_measured(r, j);
    add_line(r, j);
    add_ops(r, j);
}
