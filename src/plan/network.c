#include "plan/network.h"

#include <math.h>

/* --- break-even --- */

ech_break_even ech_break_even_of(const ech_job *job, const ech_point *point,
                                 const ech_step_price *step, ech_derivation *notes)
{
    const ech_cluster *c = job->cluster;
    const double weight = job->precision == ECH_PRECISION_FP32 ? 4.0 : 2.0;
    const double gathers = point->reshard_after_forward ? 2.0 : 1.0;
    const double travels = gathers * weight + job->wire_bytes;
    const bool is_full = (point->recompute & ECH_RECOMPUTE_FULL) != 0;
    const double flops = is_full ? 8.0 : 6.0;
    const double busy_s = step->compute_s + step->recompute_s;
    const ech_link_level *outer = &c->level[c->n_levels - 1];
    ech_break_even b = {
        .applies = point->zero_stage == 3 && job->gpus > c->devices_per_node,
        .node_bytes_per_s = outer->bytes_per_s * c->devices_per_node,
        .achieved_flops = step->hardware_flops / busy_s / (double)job->gpus,
        .has_tokens = (double)point->micro * (double)job->seq / point->cp,
    };
    b.tokens = travels * b.achieved_flops / (flops * b.node_bytes_per_s);
    if (b.applies) {
        ech_derive_section(notes, "Network of sharded weights");
        ech_derive(notes, "tokens a device and micro-batch at which the network keeps up", b.tokens,
                   "1", "a node takes in each element as often as it computes with it",
                   "(%g * %g B + %d B) * %.4g FLOP/s / (%g FLOP * %.4g B/s)", gathers, weight,
                   job->wire_bytes, b.achieved_flops, flops, b.node_bytes_per_s);
    }
    return b;
}

/* --- a measured step --- */

/* Seconds of the step with the outermost link at a share of its rate. */
static ech_status step_at(const ech_job *job, const ech_point *point, double share, double *step_s)
{
    ech_cluster c = *job->cluster;
    ech_job slow = *job;
    ech_pricer *pricer = NULL;
    ech_step_price price;
    ech_cluster_rebind(&c);
    c.level[c.n_levels - 1].bytes_per_s *= share;
    c.level[c.n_levels - 1].alone_bytes_per_s *= share;
    slow.cluster = &c;
    ECH_TRY(ech_pricer_create(&slow, NULL, &pricer));
    ech_pricer_step(pricer, point, NULL, &price);
    ech_pricer_destroy(&pricer);
    *step_s = price.step_s;
    return ECH_OK;
}

ech_status ech_implied_link_of(const ech_job *job, const ech_point *point, double measured_s,
                               ech_implied_link *out)
{
    enum { HALVINGS = 40 };
    const double stated = job->cluster->level[job->cluster->n_levels - 1].bytes_per_s;
    double low = 1e-6; /* shares */
    double high = 1.0;
    double at_low;
    double at_high;
    ECH_TRY(step_at(job, point, low, &at_low));
    ECH_TRY(step_at(job, point, high, &at_high));
    *out = (ech_implied_link){.stated_bytes_per_s = stated, .implied_bytes_per_s = NAN};
    if (!(at_high < measured_s && measured_s < at_low))
        return ECH_OK;
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = sqrt(low * high);
        double s;
        ECH_TRY(step_at(job, point, middle, &s));
        *(s > measured_s ? &low : &high) = middle;
    }
    out->is_found = true;
    out->implied_bytes_per_s = stated * high;
    return ECH_OK;
}
