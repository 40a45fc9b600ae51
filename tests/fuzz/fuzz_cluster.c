#include "fuzz.h"

#include "catalog/cluster_file.h"

#include <math.h>
#include <string.h>

static void check_level(const ech_link_level *l)
{
    ECH_ASSERT(l->name[0] && strlen(l->name) < sizeof l->name);
    ECH_ASSERT(l->bytes_per_s > 0 && isfinite(l->alone_bytes_per_s));
    ECH_ASSERT(l->alone_bytes_per_s >= l->bytes_per_s && l->latency_s > 0);
}

/* A cluster that was accepted is sound: domains nest, nothing is negative or infinite. */
static void check_accepted(const ech_cluster *c)
{
    const ech_device *d = &c->device;
    ECH_ASSERT(c->name[0] && d->name && c->devices_per_node > 0 && c->devices >= 0);
    ECH_ASSERT(c->n_levels >= 1 && c->n_levels <= ECH_CLUSTER_LEVELS);
    for (int i = 0; i < c->n_levels; i++) {
        check_level(&c->level[i]);
        ECH_ASSERT(i + 1 == c->n_levels ? c->level[i].span == 0 : c->level[i].span > 0);
        ECH_ASSERT(i < 1 || c->level[i].span == 0 || c->level[i].span > c->level[i - 1].span);
    }
    ECH_ASSERT(ech_cluster_level_of(c, INT64_MAX) == c->n_levels - 1);
    ECH_ASSERT(d->usable_bytes > 0 && d->usable_bytes <= d->memory_bytes);
    ECH_ASSERT(isfinite(d->memory_bytes) && d->memory_bytes_per_s > 0 && d->units > 0);
    for (int p = 0; p < ECH_N_PRECISIONS; p++)
        ECH_ASSERT(d->gemm_flops[p] >= 0 && d->gemm_flops[p] <= d->peak_flops[p]);
    ECH_ASSERT(c->failure_hours > 0 && c->power_overhead >= 1 && c->node_watts >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ech_cluster c;
    const ech_status st = ech_cluster_parse((const char *)data, bytes, "input", &c);
    if (st == ECH_OK)
        check_accepted(&c);
    else
        ECH_ASSERT(strstr(ech_error_message(), "input"));
    return 0;
}
