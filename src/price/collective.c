#include "price/collective.h"

#include <math.h>

/* Members of the group in one domain of level i. */
static double inside(const ech_rates *r, ech_group g, int i)
{
    const double n = floor(r->level[i].span / g.stride);
    return n < 1 ? 1 : fmin(n, g.ranks);
}

static bool is_ring(ech_collective kind)
{
    return kind != ECH_COLLECTIVE_ALL_TO_ALL && kind != ECH_COLLECTIVE_ROUTE;
}

/* Of what a token's experts are sent, the share that leaves a domain: of `copies` experts drawn over
 * `domains`, those in one domain are reached by one copy. */
static double crossing(const ech_rates *r, double domains)
{
    if (r->copies <= 1)
        return 1;
    return domains * (1 - pow(1 - 1 / domains, r->copies)) / r->copies;
}

/* Seconds a byte of the tensor.  Flat: a ring is as slow as its slowest level; hierarchical: inside the
 * domain first, then between domains, each by itself.  Either way all members of a domain send what
 * leaves it, so levels carry the same bytes. */
static double wire(const ech_rates *r, ech_collective kind, ech_group g)
{
    double slowest = 0;
    double sum = 0;
    for (int i = 0; i < r->n_levels; i++) {
        const double below = i == 0 ? 1 : inside(r, g, i - 1);
        if (below >= g.ranks)
            break;
        double rate = r->level[i].bytes_per_s * (is_ring(kind) ? below : r->alltoall);
        if (kind == ECH_COLLECTIVE_ONE_WAY)
            rate = fmin(rate, r->level[i].alone_bytes_per_s);
        const double here = r->is_hierarchical ? inside(r, g, i) : g.ranks;
        /* A flat ring passes everything through every link, a domain's own part too. */
        const double part =
            !is_ring(kind) || r->is_hierarchical ? (here - below) / here : (g.ranks - 1) / g.ranks;
        double s = part / rate;
        if (kind == ECH_COLLECTIVE_ROUTE && i > 0)
            s *= crossing(r, g.ranks / below);
        if (kind == ECH_COLLECTIVE_ALL_REDUCE)
            s *= 2 / (inside(r, g, i) >= g.ranks ? r->level[i].reduction : 1);
        slowest = fmax(slowest, s);
        sum += s;
    }
    return r->is_hierarchical ? sum : slowest;
}

/* Hops between nodes: rings pass all of them, trees of an all-reduce log2. */
static double hops(const ech_rates *r, ech_collective kind, ech_group g)
{
    const double nodes = g.ranks / inside(r, g, 0);
    if (nodes <= 1)
        return 0;
    if (kind == ECH_COLLECTIVE_TURNS)
        return g.ranks * (r->hop_s * (nodes - 1) + r->inner_hop_s * (g.ranks - nodes));
    return r->hop_s * (kind == ECH_COLLECTIVE_ALL_REDUCE ? 2 * log2(nodes) : nodes - 1);
}

double ech_collective_seconds(const ech_rates *r, ech_collective kind, ech_group g, double bytes)
{
    if (g.ranks <= 1 || bytes <= 0)
        return 0;
    const double share = kind == ECH_COLLECTIVE_ALL_REDUCE ? 1 : 0.6;
    return r->start_s * share + hops(r, kind, g) + bytes * wire(r, kind, g) +
           r->payload_s * share * bytes / (bytes + r->half_way_bytes);
}

double ech_collective_buckets(const ech_rates *r, ech_collective kind, ech_group g, double bytes,
                              double bucket_bytes)
{
    const double n = bucket_bytes > 0 ? fmax(1, ceil(bytes / bucket_bytes)) : 1;
    return n * ech_collective_seconds(r, kind, g, bytes / n);
}

double ech_message_seconds(const ech_rates *r, double stride, double together, double bytes)
{
    int i = 0;
    while (i + 1 < r->n_levels && r->level[i].span <= stride)
        i++;
    const double domain = i > 0 ? r->level[i - 1].span : 1;
    const double rate = fmin(r->level[i].alone_bytes_per_s,
                             r->level[i].bytes_per_s * fmax(1, domain / fmax(together, 1)));
    return r->start_s / 2 + r->level[i].latency_s + bytes / rate;
}
