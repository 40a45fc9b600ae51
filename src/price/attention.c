#include "price/kernel_price.h"

#include <math.h>

static void add(ech_kernels *to, const char *name, ech_pass pass, double seconds, double flops,
                double bytes, double launches)
{
    to->k[to->n++] = (ech_kernel){
        .name = name,
        .pass = pass,
        .seconds = seconds,
        .flops = flops,
        .bytes = bytes,
        .launches = launches,
        .again = pass == ECH_PASS_FORWARD ? (uint32_t)(ECH_RECOMPUTE_ATTENTION | ECH_RECOMPUTE_FULL)
                                          : 0};
}

/* Head sizes decide how wide loads are, and whether there are matrix units for them at all. */
static double aligned(const ech_rates *r, double d)
{
    if (fmod(d, 8) > 0)
        return r->heads_crooked;
    return fmod(d, 64) > 0 ? r->heads_bent : 1;
}

/* Scores are written: two batched products and element-wise work on [heads, queries, keys]; all of
 * them, seen or not. */
static void stored(ech_kernels *to, const ech_shape_attention *a, double spans, double queries,
                   double keys)
{
    const ech_rates *r = to->rates;
    const double batch = spans * (double)a->heads, scores = batch * queries * keys;
    const double qk = (double)a->qk_dim, v = (double)a->v_dim;
    const double elem = r->act_bytes, wider = elem / 2; /* habits count elements of 2 bytes */
    const double flops = r->flops16 * r->scores_rate * fmin(aligned(r, qk), aligned(r, v));
    const ech_product qk_t = {queries, keys, qk, batch, elem, elem, flops};
    const ech_product pv = {queries, v, keys, batch, elem, elem, flops};
    const ech_product dv = {keys, v, queries, batch, elem, elem, flops};
    const ech_product dq = {queries, qk, keys, batch, elem, elem, flops};
    const double forward =
        scores * (r->habit->scores_bytes[0] - 4) * wider * r->traffic; /* less products */
    const double backward = scores * (r->habit->scores_bytes[1] - 6) * wider * r->traffic;
    const double work = 2 * scores * (qk + v);
    add(to, "scores", ECH_PASS_FORWARD, ech_product_seconds(r, &qk_t) + ech_product_seconds(r, &pv),
        work, 2 * elem * scores, 2);
    add(to, "softmax", ECH_PASS_FORWARD, forward / r->memory_bytes_per_s + 2 * r->kernel_s, 0,
        forward, 2);
    add(to, "scores", ECH_PASS_INPUT,
        ech_product_seconds(r, &qk_t) + ech_product_seconds(r, &dv) +
            2 * ech_product_seconds(r, &dq),
        2 * work, 3 * elem * scores, 4);
    add(to, "softmax", ECH_PASS_INPUT, backward / r->memory_bytes_per_s + 2 * r->kernel_s, 0,
        backward, 2);
}

/* Heads are padded to what the kernel has: 64, 96, 128, 192, 256; few tokens fill the device badly. */
static double padded(double d)
{
    static const double sizes[] = {32, 64, 96, 128, 160, 192, 224, 256};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (d <= sizes[i])
            return sizes[i];
    return d;
}

static double head_rate(const ech_rates *r, double d)
{
    return d / (d + r->softmax) * (128 + r->softmax) / 128; /* softmax beside products; 1 at 128 */
}

static void flash(ech_kernels *to, const ech_shape_attention *a, double spans, double queries,
                  double keys, double visible)
{
    const ech_rates *r = to->rates;
    const double qk = padded((double)a->qk_dim), v = padded((double)a->v_dim);
    const double blocks = spans * (double)a->heads * ceil(queries / 128);
    const double waves = blocks / r->units;
    const double fill = waves / (waves + r->tail * (ceil(waves) - waves));
    const double pairs = spans * (double)a->heads * queries * (keys * visible + 64);
    const double flops = 2 * pairs * (qk + v), rate = fmin(head_rate(r, (qk + v) / 2), 1.1);
    const double tokens = spans * queries;
    const double bytes = r->act_bytes * (tokens * (double)(a->q_out + a->o_in) +
                                         spans * keys * (double)(a->k_out + a->v_out));
    add(to, "attention", ECH_PASS_FORWARD,
        flops / (r->flash_flops[0] * rate * fill) + bytes / r->memory_bytes_per_s / 4 + r->kernel_s,
        flops, bytes, 1);
    add(to, "attention", ECH_PASS_INPUT,
        2.5 * flops / (r->flash_flops[1] * rate * fill) + bytes / r->memory_bytes_per_s / 2 +
            2 * r->kernel_s,
        2.5 * flops, 2 * bytes, 3);
}

void ech_kernels_attention(ech_kernels *to, const ech_shape_attention *a, double spans,
                           double queries, double keys, double visible)
{
    if (to->rates->habit->attention == ECH_ATTENTION_STORED)
        stored(to, a, spans, queries, keys);
    else
        flash(to, a, spans, queries, keys, visible);
}
