/* Known clusters: one for each device, in the node it is usually sold in.
 *
 *   NVLink, Infinity Fabric, host links   the device's own (device.c)
 *   network ports, host, drives, watts    data sheets of DGX A100, H100, B200 and B300, GB200 and GB300
 *                                         NVL72, DGX-1; common servers for the rest
 *   latencies                             a step of NCCL's "simple" protocol over NVLink, PCIe and a
 *                                         network (src/graph/tuning.cc); Ethernet: TCP between hosts
 *   failures                              419 in 54 days on 16 384 GPUs (Grattafiori et al. 2024,
 *                                         arXiv:2407.21783, section 3.3.4)
 *   power overhead                        Luccioni et al. 2022, arXiv:2211.02001, section 3 */
#include "catalog/cluster.h"

#include "catalog/cluster_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB(x)  ((x)*1073741824.0)
#define GB(x)   ((x)*1e9)
#define GBIT(x) ((x)*1e9 / 8)

enum { NVL72_DEVICES = 72 };

static const double nvlink_latency_s = 3.4e-6;
static const double pcie_latency_s = 5.7e-6;
static const double ib_latency_s = 14e-6;
static const double tcp_latency_s = 30e-6;

/* A host: memory, its bandwidth, fp32 FLOP/s, drives of 3.84 TB at 6.8 and 3.9 GB/s. */
typedef struct host_row {
    double bytes, bytes_per_s, flops;
    int drives;
} host_row;

static const host_row host_dgx1 = {GIB(512), GB(153.6), 2.8e12, 0};     /* 2 x E5-2698 v4 */
static const host_row host_a100_40 = {GIB(1024), GB(409.6), 9.2e12, 4}; /* 2 x EPYC 7742 */
static const host_row host_a100 = {GIB(2048), GB(409.6), 9.2e12, 8};    /* 2 x EPYC 7742 */
static const host_row host_h100 = {GIB(2048), GB(614.4), 14.3e12, 8};   /* 2 x Xeon 8480C */
static const host_row host_b200 = {GIB(2048), GB(716.8), 15.1e12, 8};   /* 2 x Xeon 8570 */
static const host_row host_b300 = {GIB(2048), GB(819.2), 18.8e12, 8};   /* 2 x Xeon 6776P */
static const host_row host_grace = {GIB(960), GB(1024), 14.3e12, 4};    /* 2 x Grace */
static const host_row host_epyc_4 = {GIB(2304), GB(921.6), 14.7e12, 8}; /* 2 x EPYC 9654 */
static const host_row host_pcie = {GIB(1024), GB(409.6), 9.2e12, 2};    /* 2 x EPYC 7742 */
static const host_row host_consumer = {GIB(256), GB(204.8), 4.6e12, 1}; /* 1 x EPYC 7742 */
static const host_row host_none = {0, 0, 0, 0};

/* How devices of a kind stand in a node and a network. */
typedef struct node_row {
    const char *device; /* its name is the cluster's */
    int devices;        /* of a node */
    int64_t domain;     /* devices that the inner link joins; 0: a node's */
    double pcie_share;  /* without NVLink: of the host link when all send at once */
    bool has_reduction; /* inner switches sum */
    int ports;          /* of a node */
    double port_gbit;
    const char *network;
    const host_row *host;
    double watts; /* of a node beyond its devices */
} node_row;

/* Sorted by name.  Cards without NVLink: two share a host's link to the rest; consumer cards reach
 * each other through host memory alone. */
static const node_row nodes[] = {
    {"a100-pcie-40", 8, 0, 0.5, false, 2, 200, "ib", &host_pcie, 1500},
    {"a100-pcie-80", 8, 0, 0.5, false, 2, 200, "ib", &host_pcie, 1500},
    {"a100-sxm-40", 8, 0, 0, false, 8, 200, "ib", &host_a100_40, 3300},
    {"a100-sxm-80", 8, 0, 0, false, 8, 200, "ib", &host_a100, 3300},
    {"a800-sxm-80", 8, 0, 0, false, 8, 200, "ib", &host_a100, 3300},
    {"b200-sxm", 8, 0, 0, true, 8, 400, "ib", &host_b200, 6300},
    {"b300-sxm", 8, 0, 0, true, 8, 800, "ib", &host_b300, 5200},
    {"cpu-112c-amx", 1, 0, 0, false, 1, 100, "ethernet", &host_none, 300},
    {"cpu-192c-avx512", 1, 0, 0, false, 1, 100, "ethernet", &host_none, 300},
    {"cpu-52c-avx512", 1, 0, 0, false, 1, 25, "ethernet", &host_none, 200},
    {"cpu-64c-avx512", 1, 0, 0, false, 1, 100, "ethernet", &host_none, 200},
    {"gb200", 4, NVL72_DEVICES, 0, true, 4, 400, "ib", &host_grace, 1850},
    {"gb300", 4, NVL72_DEVICES, 0, true, 4, 800, "ib", &host_grace, 1850},
    {"h100-pcie-80", 8, 0, 0.5, false, 2, 400, "ib", &host_pcie, 2000},
    {"h100-sxm-80", 8, 0, 0, true, 8, 400, "ib", &host_h100, 4600},
    {"h100-sxm-96", 8, 0, 0, true, 8, 400, "ib", &host_h100, 4600},
    {"h200-sxm", 8, 0, 0, true, 8, 400, "ib", &host_h100, 4600},
    {"h800-sxm", 8, 0, 0, true, 8, 400, "ib", &host_h100, 4600},
    {"l40s", 8, 0, 0.5, false, 2, 200, "ib", &host_pcie, 1500},
    {"mi300x", 8, 0, 0, false, 8, 400, "ib", &host_epyc_4, 4000},
    {"rtx-3090", 8, 0, 0.5, false, 1, 100, "ethernet", &host_consumer, 500},
    {"rtx-4090", 8, 0, 0.5, false, 1, 100, "ethernet", &host_consumer, 500},
    {"v100-sxm-16", 8, 0, 0, false, 4, 100, "ib", &host_dgx1, 1100},
    {"v100-sxm-32", 8, 0, 0, false, 4, 100, "ib", &host_dgx1, 1100},
};

enum { N_NODES = sizeof nodes / sizeof nodes[0] };

const char *const *ech_cluster_names(size_t *n)
{
    const char *const *names = ech_device_names(n);
    ECH_ASSERT(*n == N_NODES);
    return names;
}

static const node_row *find_node(const char *device)
{
    for (size_t i = 0; i < N_NODES; i++)
        if (strcmp(device, nodes[i].device) == 0)
            return &nodes[i];
    return NULL;
}

static ech_link_level *add_level(ech_cluster *c, const char *name, int64_t span)
{
    ECH_ASSERT(c->n_levels < ECH_CLUSTER_LEVELS);
    ech_link_level *l = &c->level[c->n_levels++];
    *l = (ech_link_level){.span = span};
    (void)snprintf(l->name, sizeof l->name, "%s", name);
    return l;
}

/* The link inside a node or an NVLink domain. */
static void add_inner_level(ech_cluster *c, const node_row *row)
{
    if (row->devices == 1)
        return;
    const double peer = c->device.peer_bytes_per_s;
    const bool is_fabric = c->device.kind == ECH_DEVICE_CDNA3;
    ech_link_level *l = add_level(c, peer > 0 ? (is_fabric ? "xgmi" : "nvlink") : "pcie",
                                  row->domain ? row->domain : row->devices);
    l->alone_bytes_per_s = peer > 0 ? peer : c->device.link_bytes_per_s;
    l->bytes_per_s = peer > 0 ? peer : row->pcie_share * c->device.link_bytes_per_s;
    l->latency_s = peer > 0 ? nvlink_latency_s : pcie_latency_s;
    l->has_reduction = row->has_reduction;
}

static void set_host(ech_cluster *c, const host_row *h)
{
    c->host_bytes = h->bytes;
    c->host_bytes_per_s = h->bytes_per_s;
    c->host_flops = h->flops;
    c->nvme_bytes = h->drives * 3.84e12;
    c->nvme_read_bytes_per_s = h->drives * GB(6.8);
    c->nvme_write_bytes_per_s = h->drives * GB(3.9);
}

ech_status ech_cluster_set_network(ech_cluster *c, int ports, double bytes_per_s_per_port)
{
    ECH_CHECK(ports >= 1 && bytes_per_s_per_port > 0 && isfinite(bytes_per_s_per_port),
              ECH_E_CONFIG,
              "a network of %d ports a node at %g bytes/s each: both must be positive", ports,
              bytes_per_s_per_port);
    ech_link_level *l = &c->level[c->n_levels - 1];
    const double share = ports * bytes_per_s_per_port / c->devices_per_node;
    l->bytes_per_s = share;
    l->alone_bytes_per_s = fmax(share, bytes_per_s_per_port);
    return ECH_OK;
}

static ech_status build(const ech_device *device, ech_cluster *out)
{
    const node_row *row = find_node(device->name);
    ECH_ASSERT(row);
    ech_cluster c = {.device = *device,
                     .devices_per_node = row->devices,
                     .failure_hours = 51000,
                     .node_watts = row->watts,
                     .power_overhead = 1.2};
    (void)snprintf(c.name, sizeof c.name, "%s", device->name);
    (void)snprintf(c.device_name, sizeof c.device_name, "%s", device->name);
    add_inner_level(&c, row);
    ech_link_level *net = add_level(&c, row->network, 0);
    net->latency_s = strcmp(row->network, "ib") == 0 ? ib_latency_s : tcp_latency_s;
    set_host(&c, row->host);
    ECH_TRY(ech_cluster_set_network(&c, row->ports, GBIT(row->port_gbit)));
    *out = c;
    return ECH_OK;
}

/* ":4x100" behind a name: ports of a node and their Gbit/s. */
static ech_status read_network(const char *name, const char *words, ech_cluster *c)
{
    int ports = 0;
    int gbit = 0;
    int used = 0;
    const bool is_read = sscanf(words, "%4dx%5d%n", &ports, &gbit, &used) == 2 && !words[used];
    ECH_CHECK(is_read && ports > 0 && gbit > 0, ECH_E_CONFIG,
              "'%.80s': wanted PORTSxGBIT behind the colon, such as 4x100 (ports of a node and "
              "their Gbit/s)",
              name);
    return ech_cluster_set_network(c, ports, GBIT(gbit));
}

ech_status ech_cluster_of_name(const char *name, ech_cluster *out)
{
    char word[ECH_CLUSTER_NAME];
    ech_device device;
    ech_cluster c;
    const size_t n = strcspn(name, ":");
    ECH_CHECK(strlen(name) < sizeof word, ECH_E_CONFIG,
              "'%.80s' is no cluster: the name is too long", name);
    (void)snprintf(word, sizeof word, "%.*s", (int)n, name);
    const ech_status st = ech_device_find(word, &device);
    if (st < 0)
        return ech_error_prefix(st, "cluster '%s': ", word);
    ECH_TRY(build(&device, &c));
    if (name[n])
        ECH_TRY(read_network(name, name + n + 1, &c));
    (void)snprintf(c.name, sizeof c.name, "%s%s", c.device_name, name + n);
    *out = c;
    return ECH_OK;
}

static bool is_file(const char *s)
{
    return strchr(s, '/') || ech_has_suffix(s, ".yaml") || ech_has_suffix(s, ".yml") ||
           ech_has_suffix(s, ".json");
}

ech_status ech_cluster_load(const char *name_or_path, ech_cluster *out)
{
    return is_file(name_or_path) ? ech_cluster_read_file(name_or_path, out)
                                 : ech_cluster_of_name(name_or_path, out);
}

int ech_cluster_level_of(const ech_cluster *c, int64_t span)
{
    for (int i = 0; i < c->n_levels - 1; i++)
        if (c->level[i].span >= span)
            return i;
    return c->n_levels - 1;
}

void ech_cluster_rebind(ech_cluster *c)
{
    c->device.name = c->device_name;
}
