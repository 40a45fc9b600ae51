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

/* "8x200Gb ... per node", "1600Gbps ... per node", "400Gb/s RDMA per GPU": ports of a node and bits a
 * second of one.  @return does it say so */
static bool read_network(const char *words, int per_node, int *ports, double *port_bits)
{
    const char *gb = strstr(words, "Gb");
    const char *rate = gb ? number_before(words, gb) : NULL;
    if (!rate)
        return false;
    *port_bits = ech_c_strtod(rate, NULL) * 1e9;
    *ports = per_node;
    if (strstr(gb, "per GPU"))
        return true;
    if (!strstr(gb, "per node"))
        return false;
    if (rate > words && rate[-1] == 'x') {
        const char *count = number_before(words, rate - 1);
        *ports = count ? (int)ech_c_strtod(count, NULL) : 0;
    } else { /* a sum: ports of 200 Gb/s, as such nodes have them */
        *ports = (int)(*port_bits / 200e9);
        *port_bits = 200e9;
    }
    return *ports >= 1;
}

/* Kinds of networks that reach different shares of their line rate. */
static const char *network_kind(const char *words)
{
    if (strstr(words, "Omni-Path"))
        return "omni-path";
    return strstr(words, "RoCE") ? "roce" : NULL;
}

/* Put the stated network between the nodes. */
static ech_status set_network(const char *words, ech_cluster *c)
{
    const char *kind = network_kind(words);
    ech_link_level *outer = &c->level[c->n_levels - 1];
    double port_bits = 0.0;
    int ports = 0;
    if (!read_network(words, c->devices_per_node, &ports, &port_bits))
        return ECH_OK;
    if (kind)
        (void)snprintf(outer->name, sizeof outer->name, "%s", kind);
    return ech_cluster_set_network(c, ports, port_bits / 8.0);
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
    return set_network(network, &p->cluster);
}
