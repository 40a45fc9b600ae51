#include "price/kernel_price.h"

#include <math.h>

/* A tile and how close to the best one it comes: smaller ones load more per product. */
typedef struct tile {
    double m, n, rate;
} tile;

static const tile tiles[] = {{128, 256, 1.0}, {256, 128, 1.0}, {128, 128, 0.95},
                             {128, 64, 0.84}, {64, 128, 0.84}, {64, 64, 0.70}};

/* Leading sizes decide how wide loads are. */
static double alignment(const ech_rates *r, double a)
{
    if (fmod(a, 8) > 0)
        return r->crooked;
    return fmod(a, 64) > 0 ? r->bent : 1;
}

static double with_tile(const ech_rates *r, const ech_product *p, tile t)
{
    const double area = ceil(p->m / t.m) * ceil(p->n / t.n) * p->count;
    const double waves = area / r->units;
    const double whole = waves + r->tail * (ceil(waves) - waves);
    const double per_unit = p->flops * t.rate / r->units;
    return whole * (2 * t.m * t.n * p->k / per_unit + r->ramp_s);
}

static double bytes_of(const ech_product *p)
{
    return p->count * (p->in_bytes * (p->m * p->k + p->k * p->n) + p->out_bytes * p->m * p->n);
}

double ech_product_seconds(const ech_rates *r, const ech_product *p)
{
    double best = INFINITY;
    for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++)
        best = fmin(best, with_tile(r, p, tiles[i]));
    const double bytes = bytes_of(p);
    /* Both at once: the larger, a little more where they are near each other; results are written
     * when a tile is done, part of that under nothing. */
    const double memory = bytes / r->memory_bytes_per_s;
    const double written = p->count * p->out_bytes * p->m * p->n / r->memory_bytes_per_s;
    return pow(pow(best, 4) + pow(memory, 4), 0.25) + r->epilogue * written + r->kernel_s;
}

static void add(ech_kernels *to, const char *name, ech_pass pass, const ech_product *p, double rate,
                uint32_t again)
{
    ech_kernel *k = &to->k[to->n++];
    *k = (ech_kernel){.name = name,
                      .pass = pass,
                      .seconds =
                          ech_product_seconds(to->rates, p) /
                          (rate * fmin(alignment(to->rates, p->n), alignment(to->rates, p->k))),
                      .flops = 2 * p->m * p->n * p->k * p->count,
                      .counted = 2 * p->m * p->n * p->k * p->count,
                      .bytes = bytes_of(p),
                      .launches = 1,
                      .again = again};
}

/* So many bytes more through memory beside a product. */
static void lengthen(ech_kernels *to, int i, double bytes)
{
    to->k[i].bytes += bytes;
    to->k[i].seconds += bytes / to->rates->memory_bytes_per_s;
    to->k[i].launches += 1;
}

void ech_kernels_linear(ech_kernels *to, const char *name, double m, double n, double k,
                        double at_once, uint32_t again)
{
    const ech_rates *r = to->rates;
    if (m <= 0 || n <= 0 || k <= 0)
        return;
    const double rate = at_once > 1 ? r->grouped : 1;
    const double flops = to->stays_wide ? r->flops16 : r->flops;
    const double in = to->stays_wide ? r->act_bytes : r->operand_bytes;
    const ech_product forward = {m, n, k, at_once, in, r->act_bytes, flops};
    const ech_product input = {m, k, n, at_once, in, r->act_bytes, flops};
    /* fp32 gradients are read, added to and written. */
    const bool fuses = r->habit->accumulates && r->habit->fuses_accumulation;
    const double sum = fuses ? 2 * r->grad_bytes : r->act_bytes;
    const ech_product weight = {k, n, m, at_once, in, sum, flops};
    add(to, name, ECH_PASS_FORWARD, &forward, rate, again | ECH_RECOMPUTE_FULL);
    add(to, name, ECH_PASS_INPUT, &input, rate, 0);
    add(to, name, ECH_PASS_WEIGHT, &weight, rate * r->wgrad, 0);
    /* Added up by a kernel of its own: read, read and written. */
    if (r->habit->accumulates && !fuses)
        lengthen(to, to->n - 1,
                 at_once * n * k * (r->act_bytes + 2 * r->grad_bytes) * r->accumulate);
}
