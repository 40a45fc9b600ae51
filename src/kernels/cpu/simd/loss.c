/* Cross-entropy over logits [N, V], the columns `first` .. of the vocabulary; columns from attr
 * vocab on are padding and do not exist. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec_math.h"
#include "kernels/cpu/team.h"

#include <math.h>
#include <string.h>

enum { CHAINS = 4 /* independent sums, to hide latency */, STRETCH = 4096 };

/* How far above the running maximum a logit may lie before sums are scaled anew: e^60 times a
 * stretch is far from overflow. */
static const float headroom = 60.0f;

/* Sum of exp(x - base) over a stretch, and its largest element. */
static double sum_exp(const float *x, float base, int64_t n, float *top)
{
    vf sum[CHAINS], max[CHAINS];
    for (int c = 0; c < CHAINS; c++) {
        sum[c] = vf_zero();
        max[c] = vf_set1(-INFINITY);
    }
    const vf from = vf_set1(base);
    int64_t i = 0;
    for (; i + CHAINS * VL <= n; i += CHAINS * VL)
        for (int c = 0; c < CHAINS; c++) {
            vec_fetch_ahead(x + i + c * VL);
            const vf v = vf_load(x + i + c * VL);
            max[c] = vf_max(max[c], v);
            sum[c] = sum[c] + vf_exp(v - from);
        }
    *top = vf_largest(vf_max(vf_max(max[0], max[1]), vf_max(max[2], max[3])));
    double tail = 0.0;
    for (; i < n; i++) {
        *top = x[i] > *top ? x[i] : *top;
        tail += exp((double)x[i] - (double)base);
    }
    const vf total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return vd_sum(vd_low(total)) + vd_sum(vd_high(total)) + tail;
}

/* log sum exp(x) in one reading: sums are taken from a base near the maximum, and made again for a
 * stretch that goes far beyond it (after Milakov & Gimelshein 2018, arXiv:1805.02867). */
static double log_sum_exp(const float *x, int64_t n)
{
    if (n == 0)
        return -(double)INFINITY;
    float base = -1e30f; /* finite: the difference of two is a number */
    double sum = 0.0;
    int64_t width = ech_cpu_min(CHAINS * VL, n); /* a short first stretch finds the base */
    for (int64_t i = 0; i < n; i += width, width = ech_cpu_min(STRETCH, n - i)) {
        float top;
        double part = sum_exp(x + i, base, width, &top);
        if (top > base + headroom) {
            sum *= exp((double)base - (double)top);
            base = top;
            part = sum_exp(x + i, base, width, &top);
        }
        sum += part;
    }
    return (double)base + log(sum);
}

/* Columns of the share that exist. */
static int64_t live_columns(const ech_kernel_call *call)
{
    const int64_t live = call->attr[0] - call->attr[1];
    return live < 0 ? 0 : ech_cpu_min(live, call->arg[0].dim[1]);
}

/* Column of a row's label, or -1: masked or not here. */
static int64_t label_column(const ech_kernel_call *call, int64_t row)
{
    const int32_t label = ((const int32_t *)call->arg[1].data)[row];
    const int64_t at = label - call->attr[1];
    return label >= 0 && at >= 0 && at < live_columns(call) ? at : -1;
}

static void xent_shard_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const float *x = ech_cpu_in(call, 0) + row * call->arg[0].dim[1];
    const int64_t at = label_column(call, row);
    double *part = (double *)call->arg[2].data + row;
    part[0] = log_sum_exp(x, live_columns(call));
    part[call->arg[0].dim[0]] = at >= 0 ? (double)x[at] : 0.0;
}

/* parts[0][0][n] = log sum exp of the row, parts[0][1][n] = logits[n, label - first] or 0; fp64,
 * since the loss is their small difference */
void ECH_CPU(xent_shard)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[0], dim[1], xent_shard_task, call);
}

static void xent_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t n_parts = call->arg[0].dim[0], n_rows = call->arg[0].dim[2];
    const double *part = (const double *)call->arg[0].data + row;
    double max = -(double)INFINITY, sum = 0.0, logit = 0.0;
    for (int64_t t = 0; t < n_parts; t++) {
        const double x = part[2 * t * n_rows];
        max = x > max ? x : max;
        logit += part[(2 * t + 1) * n_rows];
    }
    for (int64_t t = 0; t < n_parts; t++)
        sum += exp(part[2 * t * n_rows] - max);
    const double lse = max + log(sum); /* of one part: that part */
    const bool is_masked = ((const int32_t *)call->arg[1].data)[row] < 0;
    ech_cpu_out(call, 2)[row] = (float)lse;
    ((double *)call->work)[row] = is_masked ? 0.0 : lse - logit;
}

/* lse[n] = log sum_t exp(parts[t][0][n]) of every row; loss += sum over labels >= 0 of
 * lse[n] - sum_t parts[t][1][n], in the order of rows */
void ECH_CPU(xent)(const ech_kernel_call *call)
{
    enum { WEIGHT = 16 /* elements that a logarithm and an exponential cost as much as */ };
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[2], WEIGHT * dim[0], xent_task, call);
    double loss = 0.0;
    for (int64_t n = 0; n < dim[2]; n++)
        loss += ((const double *)call->work)[n];
    *(double *)call->arg[3].data += loss;
}

static void xent_backward_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t stride = call->arg[0].dim[1];
    const bool is_masked = ((const int32_t *)call->arg[1].data)[row] < 0;
    const int64_t at = label_column(call, row);
    float *x = ech_cpu_out(call, 0) + row * stride;
    const float seed = (float)ech_cpu_cell(call, 3);
    const int64_t live = is_masked ? 0 : live_columns(call);
    const vf lse = vf_set1(ech_cpu_in(call, 2)[row]), s = vf_set1(seed);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vec_fetch_ahead(x + (i));                                                                  \
        vf_store_n(x + (i), vf_exp(vf_load_n(x + (i), n) - lse) * s, n);                           \
    } while (0)
    VEC_FOR(live, STEP);
#undef STEP
    if (at >= 0)
        x[at] -= seed;
    memset(x + live, 0, (size_t)(stride - live) * sizeof *x);
}

/* dlogits = (exp(logits - lse) - onehot) seed, in place; 0 in masked rows and padded columns */
void ECH_CPU(xent_backward)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[0], dim[1], xent_backward_task, call);
}
