/* The known clusters, one a line. */
#include "catalog/cluster.h"

/* The peak that training is planned with: bf16, else fp16, else fp32. */
static ech_precision usual_precision(const ech_device *d)
{
    static const ech_precision order[] = {ECH_PRECISION_BF16, ECH_PRECISION_FP16};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (d->peak_flops[order[i]] > 0)
            return order[i];
    return ECH_PRECISION_FP32;
}

static void add_line(const ech_cluster *c, ech_text *out)
{
    const ech_device *d = &c->device;
    const ech_precision p = usual_precision(d);
    const ech_link_level *net = &c->level[c->n_levels - 1];
    ech_text_add(out, "%-17s %d a node, %.4g GiB usable, %.4g TFLOP/s %s", c->name,
                 c->devices_per_node, d->usable_bytes / 0x1p30, d->peak_flops[p] / 1e12,
                 ech_precision_name(p));
    for (int i = 0; i + 1 < c->n_levels; i++)
        ech_text_add(out, ", %s %.4g GB/s over %lld", c->level[i].name,
                     c->level[i].bytes_per_s / 1e9, (long long)c->level[i].span);
    ech_text_add(out, ", %s %.4g GB/s a device\n", net->name, net->bytes_per_s / 1e9);
}

static void add_member(ech_text *out, const char *key, double value)
{
    ech_text_add(out, ",\"%s\":", key);
    ech_text_add_double(out, value);
}

static void add_level(const ech_link_level *l, bool is_first, ech_text *out)
{
    ech_text_add(out, "%s{\"name\":\"%s\",\"span\":%lld", is_first ? "" : ",", l->name,
                 (long long)l->span);
    add_member(out, "bytes_per_s", l->bytes_per_s);
    add_member(out, "alone_bytes_per_s", l->alone_bytes_per_s);
    add_member(out, "latency_s", l->latency_s);
    ech_text_add(out, "}");
}

static void add_object(const ech_cluster *c, ech_text *out)
{
    const ech_device *d = &c->device;
    ech_text_add(out, "{\"name\":\"%s\",\"device\":\"%s\",\"devices_per_node\":%d", c->name,
                 d->name, c->devices_per_node);
    add_member(out, "memory_bytes", d->memory_bytes);
    add_member(out, "usable_bytes", d->usable_bytes);
    add_member(out, "memory_bytes_per_s", d->memory_bytes_per_s);
    ech_text_add(out, ",\"peak_flops\":{");
    for (int p = 0, n = 0; p < ECH_N_PRECISIONS; p++)
        if (d->peak_flops[p] > 0) {
            ech_text_add(out, "%s\"%s\":", n++ ? "," : "", ech_precision_name((ech_precision)p));
            ech_text_add_double(out, d->peak_flops[p]);
        }
    ech_text_add(out, "},\"levels\":[");
    for (int i = 0; i < c->n_levels; i++)
        add_level(&c->level[i], i == 0, out);
    ech_text_add(out, "]}");
}

ech_status ech_cluster_list(bool is_json, ech_text *out)
{
    size_t n;
    const char *const *names = ech_cluster_names(&n);
    ech_text_add(out, is_json ? "[" : "");
    for (size_t i = 0; i < n; i++) {
        ech_cluster c;
        ECH_TRY(ech_cluster_load(names[i], &c));
        if (!is_json) {
            add_line(&c, out);
            continue;
        }
        ech_text_add(out, i ? "," : "");
        add_object(&c, out);
    }
    ech_text_add(out, is_json ? "]\n" : "");
    ECH_CHECK(!out->failed, ECH_E_NOMEM, "no memory for the list of clusters");
    return ECH_OK;
}
