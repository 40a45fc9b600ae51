/* What goes to the host and comes back. */
#include "price/footprint_private.h"
#include "price/step_private.h"

#include <math.h>

/* Seconds of so many bytes of a rank over its host link, and of the node's drives where they end. */
static double moved(const step_state *s, ech_offload where, double bytes, bool is_read)
{
    const ech_cluster *c = s->pricer->job->cluster;
    const double link = s->pricer->rates.host_bytes_per_s;
    const double ranks = fmin(c->devices_per_node, (double)s->pricer->job->gpus);
    const double drive = is_read ? c->nvme_read_bytes_per_s : c->nvme_write_bytes_per_s;
    double seconds = link > 0 ? bytes / link : 0;
    if (where == ECH_OFFLOAD_NVME && drive > 0)
        seconds = fmax(seconds, bytes * ranks / drive);
    return seconds;
}

/* Two buffers: a layer's bytes move under the next layer's work. */
void ech_step_activations(step_state *s, double *forward, double *backward)
{
    const ech_point *p = s->point;
    const ech_habit habit = ech_habit_of(s->pricer->job, p);
    ech_activations a;
    ech_activations_of(s->pricer->job, p, &s->blocks->shape, &habit, s->blocks->shape.imbalance,
                       &a);
    for (int i = 0; i < s->n; i++) {
        const ech_stage_shape *v = &s->pricer->stage[i];
        const double bytes = v->dense * a.layer[0].saved + v->sparse * a.layer[1].saved;
        const double out = fmax(0, moved(s, p->offload_activations, bytes, false) - forward[i]);
        const double in = fmax(0, moved(s, p->offload_activations, bytes, true) - backward[i]);
        forward[i] += out;
        backward[i] += in;
        s->out->offload_s += (out + in) * s->micros / p->pp;
    }
}

/* State read from the drives of a node and written back, for all its ranks. */
static double on_drives(const step_state *s, double elems)
{
    const double bytes = elems * ech_trained_state_bytes(s->pricer->job);
    if (s->point->offload_optimizer != ECH_OFFLOAD_NVME)
        return 0;
    return moved(s, ECH_OFFLOAD_NVME, bytes, true) + moved(s, ECH_OFFLOAD_NVME, bytes, false);
}

/* Optimizer on the host: gradients out, weights in, the update at the host's bandwidth: state is read
 * and written, 28 bytes an element. */
static double optimizer(const step_state *s, double elems)
{
    const ech_job *job = s->pricer->job;
    const double ranks = fmin(job->cluster->devices_per_node, (double)job->gpus);
    const double host = job->cluster->host_bytes_per_s;
    return moved(s, ECH_OFFLOAD_HOST, elems * job->wire_bytes, false) +
           moved(s, ECH_OFFLOAD_HOST, elems * s->pricer->rates.weight_bytes, true) +
           (host > 0 ? 28 * elems * ranks / host : 0) + on_drives(s, elems);
}

/* Weights come in for every gather; under a micro-batch's work. */
static double params(const step_state *s, double elems)
{
    const double gathers = s->point->reshard_after_forward ? 2 : 1;
    const double bytes = gathers * elems * s->pricer->rates.weight_bytes;
    const double work = (s->out->compute_s + s->out->recompute_s) / s->micros;
    return s->micros * fmax(0, moved(s, s->point->offload_params, bytes, true) - work);
}

double ech_step_offload(const step_state *s, double elems)
{
    double seconds = 0;
    if (s->point->offload_optimizer != ECH_OFFLOAD_NONE)
        seconds += optimizer(s, elems);
    if (s->point->offload_params != ECH_OFFLOAD_NONE)
        seconds += params(s, elems);
    return seconds;
}
