#include "catalog/cluster_file.h"

#include "catalog/key_reader.h"
#include "catalog/quantity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { PER_NODE_MAX = 4096 };

static const double port_max_bytes_per_s = 200e9; /* 1.6 Tb/s: twice the fastest port there is */

/* A file while it is read: `c` begins as the base. */
typedef struct cluster_file {
    ech_key_reader r;
    ech_cluster base;
    ech_cluster c;
} cluster_file;

/* A map inside the file and its name, in which its findings are told. */
typedef struct part {
    ech_key_reader r;
    char name[512];
} part;

/* Open the map under a key.  @return is it there; the part must not move after that */
static bool open_part(const ech_key_reader *r, const char *key, const char *const *known, size_t n,
                      part *out)
{
    const ech_node *map = NULL;
    if (ech_key_tree(r, key, ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return false;
    (void)snprintf(out->name, sizeof out->name, "%.440s: %s", r->name, key);
    out->r = (ech_key_reader){map, out->name, r->findings};
    ech_key_check_known(&out->r, known, n);
    return true;
}

/* A key with a quantity into *out, where it is there and good. */
static void read_into(const ech_key_reader *r, const char *key, ech_dimension dimension,
                      double *out)
{
    ech_quantity q;
    if (ech_key_quantity(r, key, dimension, &q) == ECH_KEY_GOOD)
        *out = q.value;
}

/* The number under a key, for findings about it. */
static const ech_node *find_quantity(const ech_key_reader *r, const char *key,
                                     ech_dimension dimension)
{
    char plain[64];
    const ech_node *x = ech_key_find(r, key);
    (void)snprintf(plain, sizeof plain, "%.40s%s", key, ech_dimension_suffix(dimension));
    return x ? x : ech_key_find(r, plain);
}

/* --- the device --- */

/* Refuse what exceeds a link's known rate one way: makers print both directions together. */
static void check_one_way(const ech_key_reader *r, const char *key, double value, double known,
                          const char *what)
{
    if (known <= 0 || value <= known * 1.01)
        return;
    const ech_node *at = find_quantity(r, key, ECH_DIMENSION_BYTES_PER_S);
    if (fabs(value / (2 * known) - 1) < 0.02)
        ech_key_complain(r, at,
                         "%s is %.4g GB/s: that is both directions of %s together; one way is "
                         "%.4g GB/s",
                         key, value / 1e9, what, known / 1e9);
    else
        ech_key_complain(r, at, "%s is %.4g GB/s, more than %s has one way: %.4g GB/s", key,
                         value / 1e9, what, known / 1e9);
}

/* "80 GB" is what the maker prints, and counts in 2^30; "80 GiB" is taken for what can be used, and
 * that is less. */
static void read_memory(const ech_key_reader *r, const ech_device *known, ech_device *d)
{
    ech_quantity q;
    const double sold = known->memory_bytes / 0x1p30;
    if (ech_key_quantity(r, "memory", ECH_DIMENSION_BYTES, &q) != ECH_KEY_GOOD)
        return;
    if (q.is_binary) {
        ech_key_complain(r, find_quantity(r, "memory", ECH_DIMENSION_BYTES),
                         "memory is %g GiB, wanted what the maker prints, in GB: %s is sold with "
                         "%g GB, of which %.2f GiB can be used (usable_memory)",
                         q.value / 0x1p30, known->name, sold, known->usable_bytes / 0x1p30);
        return;
    }
    const bool is_printed = ech_key_find(r, "memory") != NULL;
    d->memory_bytes = is_printed ? q.value / 1e9 * 0x1p30 : q.value;
    d->usable_bytes = known->usable_bytes * d->memory_bytes / known->memory_bytes;
}

static void read_usable(const ech_key_reader *r, ech_device *d)
{
    double usable = 0;
    read_into(r, "usable_memory", ECH_DIMENSION_BYTES, &usable);
    if (usable == 0)
        return;
    /* drivers differ by some 0.2 GiB: half of what is reserved may be more than is known */
    const double most = (d->usable_bytes + d->memory_bytes) / 2;
    if (usable > most)
        ech_key_complain(r, find_quantity(r, "usable_memory", ECH_DIMENSION_BYTES),
                         "usable_memory is %.2f GiB, but of the %g GB of %s only %.2f GiB can be "
                         "used: is GB meant for GiB?",
                         usable / 0x1p30, d->memory_bytes / 0x1p30, d->name,
                         d->usable_bytes / 0x1p30);
    else
        d->usable_bytes = usable;
}

static void read_rates(const ech_key_reader *r, const char *key, double rates[ECH_N_PRECISIONS])
{
    part p;
    char plain[ECH_N_PRECISIONS][32];
    const char *names[2 * ECH_N_PRECISIONS];
    for (int i = 0; i < ECH_N_PRECISIONS; i++) {
        names[i] = ech_precision_name((ech_precision)i);
        (void)snprintf(plain[i], sizeof plain[i], "%s_flops", names[i]);
        names[ECH_N_PRECISIONS + i] = plain[i];
    }
    if (!open_part(r, key, names, COUNT(names), &p))
        return;
    for (int i = 0; i < ECH_N_PRECISIONS; i++)
        read_into(&p.r, names[i], ECH_DIMENSION_FLOPS, &rates[i]);
}

/* Another peak moves what was measured with it. */
static void read_peaks(const ech_key_reader *r, const ech_device *known, ech_device *d)
{
    read_rates(r, "peak", d->peak_flops);
    for (int i = 0; i < ECH_N_PRECISIONS; i++)
        if (known->peak_flops[i] > 0)
            d->gemm_flops[i] = known->gemm_flops[i] * (d->peak_flops[i] / known->peak_flops[i]);
}

/* Nobody measures more than the peak. */
static void check_rates(const ech_key_reader *r, const ech_device *d)
{
    for (int i = 0; i < ECH_N_PRECISIONS; i++)
        if (d->gemm_flops[i] > d->peak_flops[i])
            ech_key_complain(r, ech_key_find(r, "gemm"),
                             "gemm: %s is %.4g TFLOP/s, more than the dense peak %.4g",
                             ech_precision_name((ech_precision)i), d->gemm_flops[i] / 1e12,
                             d->peak_flops[i] / 1e12);
}

static void read_device(cluster_file *f)
{
    static const char *const known[] = {"memory",
                                        "memory_bytes",
                                        "usable_memory",
                                        "usable_memory_bytes",
                                        "memory_bandwidth",
                                        "memory_bandwidth_bytes_per_s",
                                        "host_link",
                                        "host_link_bytes_per_s",
                                        "power",
                                        "power_watts",
                                        "dollars_per_hour",
                                        "units",
                                        "peak",
                                        "gemm"};
    part p;
    ech_device *d = &f->c.device;
    int64_t units = d->units;
    if (!open_part(&f->r, "device", known, COUNT(known), &p))
        return;
    read_memory(&p.r, &f->base.device, d);
    read_usable(&p.r, d);
    read_into(&p.r, "memory_bandwidth", ECH_DIMENSION_BYTES_PER_S, &d->memory_bytes_per_s);
    read_into(&p.r, "host_link", ECH_DIMENSION_BYTES_PER_S, &d->link_bytes_per_s);
    check_one_way(&p.r, "host_link", d->link_bytes_per_s, f->base.device.link_bytes_per_s,
                  "the host link");
    read_into(&p.r, "power", ECH_DIMENSION_WATTS, &d->watts);
    (void)ech_key_real(&p.r, ECH_KEYS("dollars_per_hour"), 0, 1e6, &d->dollars_per_hour);
    if (ech_key_int(&p.r, ECH_KEYS("units"), 1, &units) == ECH_KEY_GOOD)
        d->units = (int)units;
    read_peaks(&p.r, &f->base.device, d);
    read_rates(&p.r, "gemm", d->gemm_flops);
    check_rates(&p.r, d);
}

/* --- levels --- */

/* One way over the inner link of the device: NVLink where it has any, else the host link. */
static void check_inner(const cluster_file *f, const ech_key_reader *r, const ech_link_level *l,
                        double bandwidth)
{
    const ech_device *d = &f->c.device;
    if (strstr(l->name, "pcie"))
        check_one_way(r, "bandwidth", bandwidth, d->link_bytes_per_s, "the host link");
    else if (d->peer_bytes_per_s > 0 && (strstr(l->name, "nvlink") || strstr(l->name, "xgmi") ||
                                         (l->span > 0 && l->span <= f->c.devices_per_node)))
        check_one_way(r, "bandwidth", bandwidth, d->peer_bytes_per_s, l->name);
    else if (bandwidth > port_max_bytes_per_s && d->peer_bytes_per_s > 0)
        ech_key_complain(r, find_quantity(r, "bandwidth", ECH_DIMENSION_BYTES_PER_S),
                         "bandwidth is %.4g GB/s a device, more than any network port: is Gb/s "
                         "meant?",
                         bandwidth / 1e9);
}

/* span: a number of devices, or all. */
static void read_span(const ech_key_reader *r, ech_link_level *l)
{
    const ech_node *x = ech_key_find(r, "span");
    if (!x && l->span < 0)
        ech_key_complain(r, NULL, "span is missing: devices in one domain, or all");
    else if (x && x->kind == ECH_NODE_STRING && strcmp(x->string, "all") == 0)
        l->span = 0;
    else
        (void)ech_key_int(r, ECH_KEYS("span"), 1, &l->span);
}

static void read_bandwidths(const cluster_file *f, const ech_key_reader *r, ech_link_level *l)
{
    ech_quantity q = {0};
    ech_quantity alone = {0};
    double over = 1;
    if (ech_key_quantity(r, "bandwidth", ECH_DIMENSION_BYTES_PER_S, &q) == ECH_KEY_GOOD) {
        l->bytes_per_s = l->alone_bytes_per_s = q.value;
        check_inner(f, r, l, q.value);
    }
    if (ech_key_real(r, ECH_KEYS("oversubscription"), 1, 1000, &over) == ECH_KEY_GOOD)
        l->bytes_per_s /= over;
    if (ech_key_quantity(r, "alone_bandwidth", ECH_DIMENSION_BYTES_PER_S, &alone) == ECH_KEY_GOOD)
        l->alone_bytes_per_s = alone.value;
    if (l->bytes_per_s <= 0 && !find_quantity(r, "bandwidth", ECH_DIMENSION_BYTES_PER_S))
        ech_key_complain(r, NULL, "bandwidth is missing: of one device, one way, all sending");
    if (l->alone_bytes_per_s < l->bytes_per_s)
        ech_key_complain(r, find_quantity(r, "alone_bandwidth", ECH_DIMENSION_BYTES_PER_S),
                         "alone_bandwidth %.4g GB/s is below bandwidth %.4g GB/s: alone a device "
                         "has at least as much",
                         l->alone_bytes_per_s / 1e9, l->bytes_per_s / 1e9);
}

/* The base's level of that name, or an empty one. */
static ech_link_level level_like(const ech_cluster *base, const char *name)
{
    ech_link_level l = {.span = -1};
    for (int i = 0; i < base->n_levels; i++)
        if (strcmp(base->level[i].name, name) == 0)
            l = base->level[i];
    (void)snprintf(l.name, sizeof l.name, "%s", name);
    return l;
}

static void read_level(const cluster_file *f, const ech_key_reader *r, ech_link_level *out)
{
    static const char *const known[] = {"name",
                                        "span",
                                        "bandwidth",
                                        "bandwidth_bytes_per_s",
                                        "alone_bandwidth",
                                        "alone_bandwidth_bytes_per_s",
                                        "oversubscription",
                                        "latency",
                                        "latency_s",
                                        "reduction"};
    const char *name = "";
    ech_key_check_known(r, known, COUNT(known));
    if (ech_key_string(r, ECH_KEYS("name"), &name) == ECH_KEY_ABSENT ||
        strlen(name) >= sizeof out->name)
        ech_key_complain(r, ech_key_find(r, "name"), "name is missing or longer than %d characters",
                         (int)sizeof out->name - 1);
    *out = level_like(&f->base, strlen(name) < sizeof out->name ? name : "");
    read_span(r, out);
    read_bandwidths(f, r, out);
    read_into(r, "latency", ECH_DIMENSION_SECONDS, &out->latency_s);
    if (out->latency_s <= 0 && !find_quantity(r, "latency", ECH_DIMENSION_SECONDS))
        ech_key_complain(r, NULL, "latency is missing: of one message");
    (void)ech_key_bool(r, "reduction", &out->has_reduction);
}

static void read_levels(cluster_file *f)
{
    const ech_node *list = NULL;
    if (ech_key_tree(&f->r, "levels", ECH_NODE_LIST, &list) != ECH_KEY_GOOD)
        return;
    if (list->n < 1 || list->n > ECH_CLUSTER_LEVELS) {
        ech_key_complain(&f->r, ech_key_find(&f->r, "levels"), "levels has %lld, wanted 1 .. %d",
                         (long long)list->n, ECH_CLUSTER_LEVELS);
        return;
    }
    f->c.n_levels = 0;
    for (const ech_node *x = list->child; x; x = x->next) {
        char name[512];
        ech_link_level *l = &f->c.level[f->c.n_levels];
        (void)snprintf(name, sizeof name, "%.440s: levels[%d]", f->r.name, f->c.n_levels);
        const ech_key_reader r = {x, name, f->r.findings};
        f->c.n_levels++;
        *l = (ech_link_level){.span = -1};
        if (x->kind == ECH_NODE_MAP)
            read_level(f, &r, l);
        else
            ech_key_complain(&r, x, "%s, wanted a map {name, span, bandwidth, latency}",
                             ech_node_kind_name(x->kind));
    }
}

/* Domains nest, and the last one holds all. */
static void check_levels(const cluster_file *f)
{
    const ech_cluster *c = &f->c;
    const ech_node *at = ech_key_find(&f->r, "levels");
    for (int i = 0; i + 1 < c->n_levels; i++) {
        const int64_t inner = i > 0 ? c->level[i - 1].span : 1;
        const int64_t span = c->level[i].span;
        if (span < 0) /* missing: said already */
            continue;
        if (span == 0)
            ech_key_complain(&f->r, at, "levels[%d]: span all can only be the last one's", i);
        else if (inner > 0 && (span % inner != 0 || (i > 0 && span <= inner)))
            ech_key_complain(&f->r, at,
                             "levels[%d]: span %lld, wanted a multiple of the level before: %lld",
                             i, (long long)span, (long long)inner);
    }
    if (c->level[c->n_levels - 1].span > 0)
        ech_key_complain(&f->r, at, "levels[%d]: span %lld, the last level's must be all",
                         c->n_levels - 1, (long long)c->level[c->n_levels - 1].span);
}

static void read_network(cluster_file *f)
{
    static const char *const known[] = {"ports", "bandwidth", "bandwidth_bytes_per_s", "latency",
                                        "latency_s"};
    part p;
    int64_t ports = 0;
    ech_quantity q = {0};
    if (!open_part(&f->r, "network", known, COUNT(known), &p))
        return;
    if (ech_key_find(&f->r, "levels"))
        ech_key_complain(&f->r, p.r.map, "network and levels both say what joins nodes: keep one");
    const ech_key_got got[2] = {ech_key_int(&p.r, ECH_KEYS("ports"), 1, &ports),
                                ech_key_quantity(&p.r, "bandwidth", ECH_DIMENSION_BYTES_PER_S, &q)};
    if (got[0] == ECH_KEY_ABSENT || got[1] == ECH_KEY_ABSENT)
        ech_key_complain(&p.r, NULL, "wanted ports (of a node) and bandwidth (of one port)");
    if (got[0] == ECH_KEY_GOOD && ports > PER_NODE_MAX)
        ech_key_complain(&p.r, ech_key_find(&p.r, "ports"), "ports is %lld, at most %d a node",
                         (long long)ports, PER_NODE_MAX);
    else if (got[1] == ECH_KEY_GOOD && q.value > port_max_bytes_per_s)
        ech_key_complain(&p.r, find_quantity(&p.r, "bandwidth", ECH_DIMENSION_BYTES_PER_S),
                         "bandwidth is %.4g GB/s a port, more than any has: is Gb/s meant?",
                         q.value / 1e9);
    else if (got[0] == ECH_KEY_GOOD && got[1] == ECH_KEY_GOOD &&
             ech_cluster_set_network(&f->c, (int)ports, q.value) < 0)
        ech_key_complain(&p.r, NULL, "%s", ech_error_message());
    read_into(&p.r, "latency", ECH_DIMENSION_SECONDS, &f->c.level[f->c.n_levels - 1].latency_s);
}

/* --- the rest --- */

/* Another number of devices in a node: the inner domain is as large; a device keeps its share of
 * the network. */
static void set_per_node(cluster_file *f, int64_t n)
{
    ech_cluster *c = &f->c;
    const int64_t old = c->devices_per_node;
    if (n > PER_NODE_MAX) {
        ech_key_complain(&f->r, ech_key_find(&f->r, "devices_per_node"),
                         "devices_per_node is %lld, at most %d", (long long)n, PER_NODE_MAX);
        return;
    }
    c->devices_per_node = (int)n;
    if (ech_key_find(&f->r, "levels"))
        return;
    if (old == 1 && n > 1)
        ech_key_complain(&f->r, ech_key_find(&f->r, "devices_per_node"),
                         "devices_per_node is %lld, %s has 1: say in levels what joins them",
                         (long long)n, f->base.name);
    if (c->n_levels < 2 || c->level[0].span != old)
        return;
    c->level[0].span = n;
    if (n > 1)
        return;
    c->level[0] = c->level[1];
    c->n_levels = 1;
}

static void read_sizes(cluster_file *f)
{
    int64_t per_node = 0;
    int64_t nodes = 0;
    if (ech_key_int(&f->r, ECH_KEYS("devices_per_node"), 1, &per_node) == ECH_KEY_GOOD)
        set_per_node(f, per_node);
    const ech_key_got got = ech_key_int(&f->r, ECH_KEYS("devices"), 1, &f->c.devices);
    if (ech_key_int(&f->r, ECH_KEYS("nodes"), 1, &nodes) != ECH_KEY_GOOD)
        return;
    const int64_t devices = nodes * f->c.devices_per_node;
    if (got == ECH_KEY_GOOD && f->c.devices != devices)
        ech_key_complain(&f->r, ech_key_find(&f->r, "devices"),
                         "devices is %lld, but %lld nodes of %d have %lld", (long long)f->c.devices,
                         (long long)nodes, f->c.devices_per_node, (long long)devices);
    f->c.devices = devices;
}

static void read_host(cluster_file *f)
{
    static const char *const known[] = {
        "memory", "memory_bytes", "bandwidth", "bandwidth_bytes_per_s", "compute", "compute_flops"};
    part p;
    if (!open_part(&f->r, "host", known, COUNT(known), &p))
        return;
    read_into(&p.r, "memory", ECH_DIMENSION_BYTES, &f->c.host_bytes);
    read_into(&p.r, "bandwidth", ECH_DIMENSION_BYTES_PER_S, &f->c.host_bytes_per_s);
    read_into(&p.r, "compute", ECH_DIMENSION_FLOPS, &f->c.host_flops);
}

static void read_nvme(cluster_file *f)
{
    static const char *const known[] = {"capacity",         "capacity_bytes", "read",
                                        "read_bytes_per_s", "write",          "write_bytes_per_s"};
    part p;
    const ech_node *x = ech_key_find(&f->r, "nvme");
    if (x && x->kind == ECH_NODE_STRING && strcmp(x->string, "none") == 0) {
        f->c.nvme_bytes = f->c.nvme_read_bytes_per_s = f->c.nvme_write_bytes_per_s = 0;
        return;
    }
    if (!open_part(&f->r, "nvme", known, COUNT(known), &p))
        return;
    read_into(&p.r, "capacity", ECH_DIMENSION_BYTES, &f->c.nvme_bytes);
    read_into(&p.r, "read", ECH_DIMENSION_BYTES_PER_S, &f->c.nvme_read_bytes_per_s);
    read_into(&p.r, "write", ECH_DIMENSION_BYTES_PER_S, &f->c.nvme_write_bytes_per_s);
}

static void read_storage(cluster_file *f)
{
    static const char *const known[] = {"read", "read_bytes_per_s", "write", "write_bytes_per_s"};
    part p;
    if (!open_part(&f->r, "storage", known, COUNT(known), &p))
        return;
    read_into(&p.r, "read", ECH_DIMENSION_BYTES_PER_S, &f->c.storage_read_bytes_per_s);
    read_into(&p.r, "write", ECH_DIMENSION_BYTES_PER_S, &f->c.storage_write_bytes_per_s);
}

static void read_name(cluster_file *f)
{
    const char *name = NULL;
    if (ech_key_string(&f->r, ECH_KEYS("name"), &name) != ECH_KEY_GOOD)
        return;
    if (strlen(name) == 0 || strlen(name) >= sizeof f->c.name)
        ech_key_complain(&f->r, ech_key_find(&f->r, "name"), "name must have 1 .. %d characters",
                         (int)sizeof f->c.name - 1);
    else
        (void)snprintf(f->c.name, sizeof f->c.name, "%s", name);
}

static void read_all(cluster_file *f)
{
    static const char *const known[] = {
        "base",    "name", "nodes", "devices", "devices_per_node", "device",     "levels",
        "network", "host", "nvme",  "storage", "failure_hours",    "node_watts", "power_overhead"};
    ech_key_check_known(&f->r, known, COUNT(known));
    read_name(f);
    read_sizes(f);
    read_device(f);
    read_levels(f);
    check_levels(f);
    read_network(f);
    read_host(f);
    read_nvme(f);
    read_storage(f);
    (void)ech_key_real(&f->r, ECH_KEYS("failure_hours"), 1, 1e12, &f->c.failure_hours);
    (void)ech_key_real(&f->r, ECH_KEYS("node_watts"), 0, 1e7, &f->c.node_watts);
    (void)ech_key_real(&f->r, ECH_KEYS("power_overhead"), 1, 10, &f->c.power_overhead);
}

/* What `echelon bench --save` writes looks like this, and is another kind of file. */
static bool is_calibration(const ech_node *root)
{
    return ech_node_find(root, "op_s") && ech_node_find(root, "cost") &&
           !ech_node_find(root, "base");
}

/* The base: everything hangs on it. */
static bool read_base(cluster_file *f)
{
    const char *base = NULL;
    const ech_key_got got = ech_key_string(&f->r, ECH_KEYS("base"), &base);
    if (got == ECH_KEY_ABSENT)
        ech_key_complain(&f->r, NULL,
                         "base is missing: the known cluster this one is like, such "
                         "as h100-sxm-80");
    if (got != ECH_KEY_GOOD)
        return false;
    if (ech_cluster_of_name(base, &f->base) < 0) {
        ech_key_complain(&f->r, ech_key_find(&f->r, "base"), "base: %s", ech_error_message());
        ech_error_clear();
        return false;
    }
    f->c = f->base;
    return true;
}

static ech_status from_node(const ech_node *root, const char *name, ech_cluster *out)
{
    ech_findings findings = {0};
    cluster_file f = {.r = {root, name, &findings}};
    ECH_CHECK(root->kind == ECH_NODE_MAP, ECH_E_CONFIG,
              "%s: %s, wanted a map that begins with base: NAME", name,
              ech_node_kind_name(root->kind));
    ECH_CHECK(!is_calibration(root), ECH_E_CONFIG,
              "%s: this is the calibration of one machine, as 'echelon bench --save' writes it and "
              "'echelon sim CONFIG --cluster' takes it; the file of a cluster has a base, such as "
              "base: h100-sxm-80",
              name);
    if (read_base(&f))
        read_all(&f);
    const ech_status st = ech_findings_raise(&findings, ECH_E_CONFIG);
    ech_findings_fini(&findings);
    if (st == ECH_OK)
        *out = f.c;
    return st;
}

ech_status ech_cluster_parse(const char *text, size_t bytes, const char *name, ech_cluster *out)
{
    ech_node *root = NULL;
    ECH_TRY(ech_node_parse_yaml(text, bytes, name, &root));
    const ech_status st = from_node(root, name, out);
    ech_node_destroy(&root);
    return st;
}

ech_status ech_cluster_read_file(const char *path, ech_cluster *out)
{
    ech_node *root = NULL;
    ECH_TRY(ech_node_read_file(path, ech_has_suffix(path, ".json"), &root));
    const ech_status st = from_node(root, path, out);
    ech_node_destroy(&root);
    return st;
}
