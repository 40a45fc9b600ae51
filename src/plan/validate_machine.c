/* The machine of a published row: the catalogue's nodes of its GPU, the network as the row says. */
#include "base/locale.h"
#include "plan/validate_private.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* GPUs as sources print them. */
static const struct {
    const char *published, *cluster;
} machines[] = {
    {"A100", "a100-sxm-80"},
    {"A100-40GB-SXM", "a100-sxm-40"},
    {"A100-80GB-SXM", "a100-sxm-80"},
    {"A100-80GB-PCIe", "a100-pcie-80"},
    {"A800", "a800-sxm-80"},
    {"H100", "h100-sxm-80"},
    {"H100-SXM", "h100-sxm-80"},
    {"H100-80GB-SXM", "h100-sxm-80"},
    {"H100-96GB-HBM2e-500W", "h100-sxm-96"},
    {"H200-SXM", "h200-sxm"},
    {"H800", "h800-sxm"},
    {"B200", "b200-sxm"},
    {"B200-SXM", "b200-sxm"},
    {"B300", "b300-sxm"},
    {"GB200", "gb200"},
    {"GB300", "gb300"},
};

enum { N_MACHINES = sizeof machines / sizeof machines[0] };

static const char *cluster_of(const char *gpu)
{
    for (int i = 0; i < N_MACHINES; i++)
        if (strcmp(machines[i].published, gpu) == 0)
            return machines[i].cluster;
    return gpu;
}

/* Begin of the number that ends before `end`; NULL: there is none. */
static const char *number_before(const char *begin, const char *end)
{
    const char *at = end;
    while (at > begin && (isdigit((unsigned char)at[-1]) || at[-1] == '.'))
        at--;
    return at < end ? at : NULL;
}

/* "8x200Gb ... per node", "1600Gbps ... per node", "400Gb/s RDMA per GPU": bits a second of a node
 * and of one port.  @return does it say so */
static bool read_network(const char *words, int per_node, double *node_bits, double *port_bits)
{
    const char *gb = strstr(words, "Gb");
    const char *rate = gb ? number_before(words, gb) : NULL;
    if (!rate)
        return false;
    *port_bits = ech_c_strtod(rate, NULL) * 1e9;
    if (strstr(gb, "per GPU")) {
        *node_bits = *port_bits * per_node;
        return true;
    }
    if (!strstr(gb, "per node"))
        return false;
    double ports = 1.0;
    if (rate > words && rate[-1] == 'x') {
        const char *count = number_before(words, rate - 1);
        ports = count ? ech_c_strtod(count, NULL) : 0.0;
    } else { /* a sum: ports of 200 Gb/s, as such nodes have them */
        ports = *port_bits / 200e9;
        *port_bits = 200e9;
    }
    *node_bits = *port_bits * ports;
    return ports >= 1.0;
}

/* Kinds of networks that reach different shares of their line rate. */
static const char *network_kind(const char *words)
{
    if (strstr(words, "Omni-Path"))
        return "omni-path";
    return strstr(words, "RoCE") ? "roce" : NULL;
}

/* Put the stated network behind the nodes: what is outside of a node, in proportion. */
static void set_network(const char *words, ech_cluster *c)
{
    const char *kind = network_kind(words);
    double node_bits, port_bits;
    if (!read_network(words, c->devices_per_node, &node_bits, &port_bits))
        return;
    const double share = node_bits / 8.0 / c->devices_per_node;
    const double port = port_bits / 8.0;
    double ratio = 0.0;
    for (int i = 0; i < c->n_levels; i++) {
        ech_link_level *l = &c->level[i];
        if (l->span > 0 && l->span <= c->devices_per_node)
            continue;
        if (kind)
            (void)snprintf(l->name, sizeof l->name, "%s", kind);
        if (ratio == 0.0)
            ratio = share / l->bytes_per_s;
        l->bytes_per_s *= ratio;
        l->alone_bytes_per_s = port > l->bytes_per_s ? port : l->bytes_per_s;
    }
}

ech_status ech_published_machine(const char *gpu, const char *network, ech_published *p)
{
    const ech_status st = ech_cluster_load(cluster_of(gpu), &p->cluster);
    if (st == ECH_E_NOMEM)
        return ech_error_trace(st, __FILE__, __LINE__);
    if (st < 0) {
        ech_published_skip(p, "no such GPU: %s", ech_error_message());
        ech_error_clear();
        return ECH_OK;
    }
    set_network(network, &p->cluster);
    return ECH_OK;
}
