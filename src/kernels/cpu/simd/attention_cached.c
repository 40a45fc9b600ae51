/* Attention of new tokens over a cache of keys and values: generation. */
#include "kernels/cpu/simd/attention_tile.h"

#include <string.h>

/* cache[first + n] = k, v of new token n */
static void store_task(const void *ctx, int64_t n, int member)
{
    (void)member;
    const attention *a = ctx;
    const ech_kernel_call *call = a->call;
    const int64_t first = *(const int64_t *)call->arg[3].data;
    const size_t bytes = (size_t)a->width * sizeof(float);
    for (int64_t g = 0; g < a->groups; g++) {
        const float *key = ech_cpu_in(call, 0) + qkv_at(a, 0, n, g, a->r);
        const int64_t at = ((first + n) * a->groups + g) * a->width;
        memcpy(ech_cpu_out(call, 1) + at, key, bytes);
        memcpy(ech_cpu_out(call, 2) + at, key + a->width, bytes);
    }
}

/* One query against the cache. */
typedef struct cached_query {
    const float *query, *keys, *values;
    int64_t stride, width;
    float scale;
    float *sum;   /* [D], not yet divided by total */
    float *score; /* [KEYS] */
    float max, total;
} cached_query;

static void add_scaled(float *y, float factor, const float *x, float weight, int64_t n)
{
    const vf f = vf_set1(factor), w = vf_set1(weight);
#define STEP(i, lanes)                                                                             \
    vf_store_n(y + (i), vf_fma(vf_load_n(x + (i), lanes), w, vf_load_n(y + (i), lanes) * f), lanes)
    VEC_FOR(n, STEP);
#undef STEP
}

static float scaled_dot(const cached_query *c, int64_t j)
{
    vf sum = vf_zero();
    const float *key = c->keys + j * c->stride;
#define STEP(i, n) sum = vf_fma(vf_load_n(c->query + (i), n), vf_load_n(key + (i), n), sum)
    VEC_FOR(c->width, STEP);
#undef STEP
    return vf_sum(sum) * c->scale;
}

/* Keys [j, j + n): online softmax. */
static void cached_keys(cached_query *c, int64_t j, int n)
{
    float max = c->max;
    for (int k = 0; k < n; k++) {
        c->score[k] = scaled_dot(c, j + k);
        max = c->score[k] > max ? c->score[k] : max;
    }
    float factor = expf(c->max - max);
    c->total *= factor;
    c->max = max;
    for (int k = 0; k < n; k++) {
        const float p = expf(c->score[k] - max);
        c->total += p;
        add_scaled(c->sum, factor, c->values + (j + k) * c->stride, p, c->width);
        factor = 1.0f;
    }
}

static void cached_task(const void *ctx, int64_t task, int member)
{
    const attention *a = ctx;
    const int64_t h = task % a->r, g = task / a->r % a->groups, n = task / a->r / a->groups;
    const int64_t at = *(const int64_t *)a->call->arg[3].data + n;
    float *scratch = ech_team_scratch(member);
    cached_query c = {.query = ech_cpu_in(a->call, 0) + qkv_at(a, 0, n, g, h),
                      .keys = ech_cpu_in(a->call, 1) + g * a->width,
                      .values = ech_cpu_in(a->call, 2) + g * a->width,
                      .stride = a->groups * a->width,
                      .width = a->width,
                      .scale = a->scale,
                      .sum = scratch + KEYS,
                      .score = scratch,
                      .max = -1e30f};
    memset(c.sum, 0, (size_t)a->width * sizeof *c.sum);
    for (int64_t j = a->window > 0 && at >= a->window ? at - a->window + 1 : 0; j <= at; j += KEYS)
        cached_keys(&c, j, (int)ech_cpu_min(KEYS, at + 1 - j));
    float *out = ech_cpu_out(a->call, 4) + task * a->width; /* [n, g, r] in the order of tasks */
    memset(out, 0, (size_t)a->width * sizeof *out);
    add_scaled(out, 0.0f, c.sum, 1.0f / c.total, a->width);
}

/* Store the new keys and values; query n sees positions 0..first + n, or the last `window` of them
 */
void ECH_CPU(attention_cached)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    if (is_left_to_ref(call))
        return;
    const attention a = {.call = call,
                         .seq = dim[0],
                         .groups = dim[1],
                         .r = dim[2] - 2,
                         .width = dim[3],
                         .window = call->attr[0],
                         .stride = dim[1] * dim[2] * dim[3],
                         .scale = (float)call->real[0]};
    ech_team_run_rows(call->threads, dim[0], a.groups * a.width, store_task, &a);
    ech_team_run(call->threads, dim[0] * a.groups * a.r, cached_task, &a);
}
