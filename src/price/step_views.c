#include "catalog/tensors.h" /* ech_model_sparse_layers */
#include "price/step_private.h"

#include <math.h>
#include <stdio.h>

/* All layers and ends of a micro-batch on a rank of every stage, one after the other. */
double ech_pricer_bound(ech_pricer *pricer, const ech_point *point)
{
    const ech_job *job = pricer->job;
    const ech_block_price *b =
        ech_block_cache_get(pricer->cache, &pricer->rates, job, point)->block;
    step_state s = {.pricer = pricer, .point = point};
    step_stage sum = {0};
    ech_trained_bound(job, &s.trained.backward_share, &s.trained.weight_share);
    const double again = point->recompute != 0 && point->recompute_layers <= 0 ? 1 : 0;
    const double sparse = (double)ech_model_sparse_layers(job->model);
    const double dense = (double)job->model->layers - sparse;
    ech_step_add_blocks(&s, &b[ECH_BLOCK_DENSE], dense, dense * again, &sum);
    ech_step_add_blocks(&s, &b[ECH_BLOCK_SPARSE], sparse, sparse * again, &sum);
    ech_step_add_blocks(&s, &b[ECH_BLOCK_EMBEDDING], 1, 0, &sum);
    ech_step_add_blocks(&s, &b[ECH_BLOCK_HEAD], 1, 0, &sum);
    /* Micro-batches of a rank over its stages: pp and dp cancel. */
    return (sum.forward + sum.backward) * (double)job->global_batch * point->tp * point->cp /
           ((double)point->micro * (double)job->gpus);
}

void ech_pricer_stages(ech_pricer *pricer, const ech_point *point, double *forward,
                       double *backward, double *weight, double *hop_s)
{
    ech_step_price price;
    ech_pricer_step(pricer, point, NULL, &price);
    const ech_blocks *b = ech_block_cache_get(pricer->cache, &pricer->rates, pricer->job, point);
    for (int i = 0; i < point->pp * ech_shape_chunks(point); i++) {
        forward[i] = pricer->forward[i];
        backward[i] = pricer->backward[i];
        weight[i] = pricer->weight[i];
    }
    *hop_s = pricer->rates.hides_p2p ? ech_step_hop(pricer, point, b) : 0;
}

static const char *bound_of(const ech_rates *r, const ech_kernel *k)
{
    const double compute = k->flops / r->flops, memory = k->bytes / r->memory_bytes_per_s;
    if (k->seconds < 2 * r->kernel_s * k->launches)
        return "launch";
    return compute >= memory ? "compute" : "memory";
}

static int add_ops(const ech_rates *r, const ech_kernels *ks, const char *block, double count,
                   double again, uint32_t recompute, ech_op_price *op, int n, int cap)
{
    static const char *const pass_names[] = {"", " backward", " weights"};
    for (int i = 0; i < ks->n && n < cap; i++) {
        const ech_kernel *k = &ks->k[i];
        ech_op_price *o = &op[n++];
        *o = (ech_op_price){.count = count + ((k->again & recompute) != 0 ? again : 0),
                            .seconds = k->seconds,
                            .flops = k->flops,
                            .bytes = k->bytes,
                            .bound = bound_of(r, k)};
        (void)snprintf(o->name, sizeof(o->name), "%s: %s%s", block, k->name, pass_names[k->pass]);
        o->efficiency = k->flops > 0 ? k->flops / k->seconds / r->peak
                                     : k->bytes / k->seconds / r->memory_bytes_per_s;
    }
    return n;
}

int ech_pricer_ops(ech_pricer *pricer, const ech_point *point, ech_op_price *op, int cap)
{
    const ech_rates *r = &pricer->rates;
    const ech_job *job = pricer->job;
    const ech_model *m = job->model;
    const double micros = (double)ech_point_micros(job, point) / point->pp;
    double layers[2] = {0};
    ech_shape shape;
    ech_kernels ks;
    int n = 0;
    ech_shape_of(job, point, &shape);
    for (int64_t i = 0; i < m->layers; i++)
        layers[ech_model_is_sparse(m, i)] += micros;
    for (int sparse = 0; sparse < 2; sparse++) {
        if (layers[sparse] <= 0)
            continue;
        ech_kernels_layer(r, job, point, &shape, sparse == 1, &ks);
        n = add_ops(r, &ks, sparse == 1 ? "sparse layer" : "layer", layers[sparse], layers[sparse],
                    point->recompute, op, n, cap);
    }
    ech_kernels_embedding(r, &shape, &ks);
    n = add_ops(r, &ks, "ends", micros, 0, 0, op, n, cap);
    ech_kernels_head(r, job, &shape, &ks);
    return add_ops(r, &ks, "ends", micros, 0, 0, op, n, cap);
}
