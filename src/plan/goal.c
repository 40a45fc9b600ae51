#include "plan/goal.h"

#include <math.h>

/* Seconds from a failure until it is noticed, and until all ranks run again with their weights
 * apart from reading them.  MegaScale (arXiv:2402.15627, section 6.3): found in under 10 minutes, training
 * goes on within 15. */
static const double detect_s = 300.0, relaunch_s = 300.0;
/* Shared storage where a cluster does not say: bytes per second and node.  DGX SuperPOD reference
 * architecture (2023): 40 GB/s read and 20 GB/s written for a unit of 32 nodes. */
static const double storage_read_node = 40e9 / 32.0, storage_write_node = 20e9 / 32.0;
/* All ranks come to a save together and agree on it, however little each copies: an assumption. */
static const double agree_s = 0.5;
/* A device's state leaves over its host link at this share of the stated rate. */
static const double link_share = 0.8;
double ech_checkpoint_bytes(const ech_job *job)
{
    return ech_footprint_saved(job);
}

/* Storage of the whole cluster, bytes per second. */
static double storage_rate(const ech_job *job, double stated, double of_node)
{
    const double nodes = ceil((double)job->gpus / job->cluster->devices_per_node);
    return stated > 0.0 ? stated : nodes * of_node;
}

double ech_goodput_interval(double blocked_s, double restart_s, double mtbf_s)
{
    return blocked_s + sqrt(2.0 * (mtbf_s + restart_s) * blocked_s + blocked_s * blocked_s);
}

double ech_goodput_lost(double interval_s, double blocked_s, double restart_s, double mtbf_s)
{
    return fmin(1.0, blocked_s / interval_s + (0.5 * interval_s + restart_s) / mtbf_s);
}

/* Daly's second order interval; M where a save takes twice as long as the time between failures. */
static double daly(double blocked_s, double mtbf_s)
{
    if (blocked_s >= 2.0 * mtbf_s)
        return mtbf_s;
    const double r = blocked_s / (2.0 * mtbf_s);
    return sqrt(2.0 * blocked_s * mtbf_s) * (1.0 + sqrt(r) / 3.0 + r / 9.0) - blocked_s;
}

/* To the host's memory; where the device is the host, in it. */
static double copy_rate(const ech_device *d)
{
    return d->link_bytes_per_s > 0.0 ? d->link_bytes_per_s : d->memory_bytes_per_s;
}

static void note_goodput(const ech_goodput *g, const ech_job *job, double ranks,
                         ech_derivation *notes)
{
    ech_derive_section(notes, "Failures and checkpoints");
    ech_derive(notes, "checkpoint", g->checkpoint_bytes, "B", "facts: goodput",
               "weights, fp32 copy and moments of what is trained");
    ech_derive(notes, "training stands at a save, C", g->blocked_s, "s", "copy to the host",
               "%.3g s + checkpoint / %g ranks that save / (%.3g * %.4g B/s)", agree_s, ranks,
               link_share, copy_rate(&job->cluster->device));
    ech_derive(notes, "time between failures, M", g->mtbf_s, "s", "cluster's failure_hours",
               "%.6g device-hours / %lld devices", job->cluster->failure_hours,
               (long long)job->gpus);
    ech_derive(notes, "detection, restart, reload, R", g->restart_s, "s",
               "MegaScale, arXiv:2402.15627, section 6.3", "%g s + %g s + reading the checkpoint",
               detect_s, relaunch_s);
    ech_derive(notes, "interval, Young", g->young_s, "s", "Young 1974", "sqrt(2 C M)");
    ech_derive(notes, "interval, Daly", g->daly_s, "s", "Daly 2006",
               "sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C");
    ech_derive(notes, "interval to use, T", g->interval_s, "s", "recovery in the objective",
               "max(C + sqrt(2 (M + R) C + C^2), %.4g s to write the one before, a step)",
               g->drain_s);
    ech_derive(notes, "lost", g->lost, "1", "facts: faults", "C / T + (T / 2 + R) / M");
}

/* Ranks that hold different pieces of the state: each saves its own. */
static double writers(const ech_point *p)
{
    const double sharded = p->zero_stage > 0 ? (double)ech_point_shard_group(p) : 1.0;
    return (double)p->tp * p->pp * sharded;
}

/* What failures take of a run. */
static ech_goodput goodput_of(const ech_job *job, const ech_point *p, double step_s,
                              ech_derivation *notes)
{
    const ech_cluster *c = job->cluster;
    ech_goodput g = {.checkpoint_bytes = ech_checkpoint_bytes(job)};
    g.blocked_s = agree_s + g.checkpoint_bytes / writers(p) / (link_share * copy_rate(&c->device));
    g.drain_s =
        g.checkpoint_bytes / storage_rate(job, c->storage_write_bytes_per_s, storage_write_node);
    g.restart_s =
        detect_s + relaunch_s +
        g.checkpoint_bytes / storage_rate(job, c->storage_read_bytes_per_s, storage_read_node);
    g.mtbf_s = c->failure_hours * 3600.0 / (double)job->gpus;
    g.young_s = sqrt(2.0 * g.blocked_s * g.mtbf_s);
    g.daly_s = daly(g.blocked_s, g.mtbf_s);
    const double c_s = g.blocked_s;
    g.interval_s = fmax(ech_goodput_interval(c_s, g.restart_s, g.mtbf_s), g.drain_s);
    g.interval_s = fmax(g.interval_s, step_s);
    g.lost = ech_goodput_lost(g.interval_s, c_s, g.restart_s, g.mtbf_s);
    g.goodput = 1.0 - g.lost;
    note_goodput(&g, job, writers(p), notes);
    return g;
}

void ech_goal_of(const ech_job *job, const ech_point *point, const ech_step_price *step,
                 ech_derivation *notes, ech_goal_cost *out)
{
    const ech_cluster *c = job->cluster;
    ech_goal_cost g = {.goodput = goodput_of(job, point, step->step_s, notes)};
    const double per_step = (double)job->global_batch * (double)job->seq;
    g.steps = job->tokens > 0.0 ? ceil(job->tokens / per_step) : NAN;
    g.ideal_days = g.steps * step->step_s / 86400.0;
    g.days = g.ideal_days / g.goodput.goodput;
    g.gpu_hours = g.days * 24.0 * (double)job->gpus;
    g.dollars = g.gpu_hours * c->device.dollars_per_hour;
    const double watts = c->device.watts + c->node_watts / c->devices_per_node;
    g.megawatt_hours = g.gpu_hours * watts * c->power_overhead / 1e6;
    if (job->tokens > 0.0) {
        ech_derive_section(notes, "The whole run");
        ech_derive(notes, "steps", g.steps, "1", "", "ceil(%.6g tokens / (%lld * %lld))",
                   job->tokens, (long long)job->global_batch, (long long)job->seq);
        ech_derive(notes, "days without failures", g.ideal_days, "days", "",
                   "%.6g steps * %.6g s / 86400", g.steps, step->step_s);
        ech_derive(notes, "days", g.days, "days", "", "%.6g / %.4f goodput", g.ideal_days,
                   g.goodput.goodput);
        ech_derive(notes, "GPU-hours", g.gpu_hours, "h", "", "%.6g days * 24 * %lld", g.days,
                   (long long)job->gpus);
        ech_derive(notes, "money", g.dollars, "USD", "catalogue: price of an hour",
                   "%.6g GPU-hours * %.4g USD", g.gpu_hours, c->device.dollars_per_hour);
        ech_derive(notes, "energy", g.megawatt_hours, "MWh", "catalogue: board and node",
                   "%.6g GPU-hours * %.5g W * %.3g overhead", g.gpu_hours, watts,
                   c->power_overhead);
    }
    *out = g;
}
