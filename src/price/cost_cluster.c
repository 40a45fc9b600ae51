#include "price/cost_cluster.h"
#include "base/node.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ech_status ech_calibration_is_file(const char *path, bool *is)
{
    ech_node *root = NULL;
    *is = false;
    const ech_status st = ech_node_read_file(path, false, &root);
    if (st == ECH_E_NOMEM)
        return st;
    if (st < 0)
        ech_error_clear();
    *is = st >= 0 && root->kind == ECH_NODE_MAP && ech_node_find(root, "cost") != NULL;
    ech_node_destroy(&root);
    return ECH_OK;
}

/* --- rates --- */

/* FLOP/s of the fastest product. */
static double fastest_product(const ech_grid *g)
{
    double best = 0;
    if (g->n_axes != 3)
        return 0;
    for (int i = 0; i < g->n[0]; i++)
        for (int j = 0; j < g->n[1]; j++)
            for (int k = 0; k < g->n[2]; k++) {
                const double flops = 2 * g->at[0][i] * g->at[1][j] * g->at[2][k];
                const double seconds = g->seconds[(i * g->n[1] + j) * g->n[2] + k];
                best = flops / seconds > best ? flops / seconds : best;
            }
    return best;
}

/* Bytes a second over the last points of grids over bytes: of messages, or of the others (a copy from
 * beyond the caches). */
static double rate_of_bytes(const ech_calibration *c, ech_op_kind from, ech_op_kind to)
{
    double best = 0;
    for (int k = (int)from; k <= (int)to; k++) {
        const ech_grid *g = &c->cost[k];
        const int last = g->n_axes == 1 ? g->n[0] - 1 : -1;
        if (last >= 0 && g->at[0][last] / g->seconds[last] > best)
            best = g->at[0][last] / g->seconds[last];
    }
    return best;
}

static double shortest_message(const ech_calibration *c)
{
    double least = INFINITY;
    for (int k = ECH_OP_ALL_REDUCE_START; k <= ECH_OP_RECV_START; k++)
        if (c->cost[k].n_axes == 1 && c->cost[k].seconds[0] < least)
            least = c->cost[k].seconds[0];
    return least;
}

/* --- the cluster --- */

static void put_device(const ech_calibration *c, double memory, ech_device *d)
{
    const double copies = rate_of_bytes(c, ECH_OP_COPY, ECH_OP_COPY);
    d->units = c->threads;
    memset(d->peak_flops, 0, sizeof d->peak_flops);
    memset(d->gemm_flops, 0, sizeof d->gemm_flops);
    d->peak_flops[ECH_PRECISION_FP32] = d->gemm_flops[ECH_PRECISION_FP32] =
        fastest_product(&c->cost[ECH_OP_LINEAR]);
    d->memory_bytes = d->usable_bytes = memory;
    if (copies > 0)
        d->memory_bytes_per_s = copies;
    d->link_bytes_per_s = d->peer_bytes_per_s = 0;
    d->watts = d->dollars_per_hour = 0;
}

static void put_links(const ech_calibration *c, ech_cluster *out)
{
    const double rate = rate_of_bytes(c, ECH_OP_ALL_REDUCE_START, ECH_OP_RECV_START);
    const double least = shortest_message(c);
    ech_link_level *l = &out->level[0];
    out->n_levels = 1;
    (void)snprintf(l->name, sizeof l->name, "memory");
    l->span = 0;
    l->bytes_per_s = l->alone_bytes_per_s = rate > 0 ? rate : out->device.memory_bytes_per_s;
    l->latency_s = isfinite(least) ? least : 0;
    l->has_reduction = false;
}

ech_status ech_calibration_cluster(const ech_calibration *c, double memory_bytes, const char *name,
                                   ech_cluster *out)
{
    const double memory = memory_bytes > 0 ? memory_bytes : c->memory_bytes;
    ech_cluster cluster;
    ECH_CHECK(fastest_product(&c->cost[ECH_OP_LINEAR]) > 0, ECH_E_CONFIG,
              "%s: matrix products were not measured; wanted 'echelon bench all --ranks %d "
              "--threads %d --save %s'",
              name, c->ranks, c->threads, name);
    ECH_CHECK(memory > 0, ECH_E_CONFIG,
              "%s: memory_bytes is missing: the machine's memory; measure again, or write it in",
              name);
    ECH_TRY(ech_cluster_load("cpu-64c-avx512", &cluster));
    (void)snprintf(cluster.name, sizeof cluster.name, "%.60s", name);
    (void)snprintf(cluster.device_name, sizeof cluster.device_name, "%.60s",
                   c->cpu[0] ? c->cpu : "measured processors");
    cluster.devices_per_node = c->ranks;
    cluster.devices = c->ranks;
    cluster.host_bytes = 0;
    cluster.node_watts = 0;
    put_device(c, memory / c->ranks, &cluster.device);
    put_links(c, &cluster);
    *out = cluster;
    ech_cluster_rebind(out);
    return ECH_OK;
}
