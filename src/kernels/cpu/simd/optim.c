/* Gradient norm and optimizers over flat ranges. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"

#include <math.h>

/* Four independent sums hide the latency of the multiply-add. */
static double block_squares(const float *x, int64_t n)
{
    vd sum[4] = {vd_zero(), vd_zero(), vd_zero(), vd_zero()};
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL)
        for (int h = 0; h < 2; h++) {
            vec_fetch_ahead(x + i + h * VL);
            const vf v = vf_load(x + i + h * VL);
            sum[2 * h] = vd_fma(vd_low(v), vd_low(v), sum[2 * h]);
            sum[2 * h + 1] = vd_fma(vd_high(v), vd_high(v), sum[2 * h + 1]);
        }
    double tail = 0.0;
    for (; i < n; i++)
        tail += (double)x[i] * (double)x[i];
    return vd_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + tail;
}

static void sumsq_task(const void *ctx, int64_t block, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t begin = block * ECH_SUM_BLOCK;
    const int64_t n = ech_cpu_min(ECH_SUM_BLOCK, ech_cpu_elems(&call->arg[0]) - begin);
    ((double *)call->work)[block] = block_squares(ech_cpu_in(call, 0) + begin, n);
}

/* sum += sum x^2: by blocks of ECH_SUM_BLOCK, then over blocks in order */
void ECH_CPU(sumsq)(const ech_kernel_call *call)
{
    const int64_t n_blocks = ech_cpu_ceil_div(ech_cpu_elems(&call->arg[0]), ECH_SUM_BLOCK);
    ech_team_run_rows(call->threads, n_blocks, ECH_SUM_BLOCK, sumsq_task, call);
    double sum = 0.0;
    for (int64_t b = 0; b < n_blocks; b++)
        sum += ((const double *)call->work)[b];
    *(double *)call->arg[1].data += sum;
}

enum { CHUNK = 16384 /* elements of a task */ };

/* An update with its numbers made once, in double. */
typedef struct adamw_run {
    const ech_kernel_call *call;
    float clip, b1, b2, rest1, rest2; /* rest: 1 - b */
    float step;                       /* lr / (1 - b1^t) */
    float correct2;                   /* 1 / (1 - b2^t) */
    float eps, decay;                 /* decay: lr * decay */
} adamw_run;

static adamw_run adamw_run_of(const ech_kernel_call *call)
{
    const double b1 = call->real[0], b2 = call->real[1];
    const double lr = ech_cpu_cell(call, 4);
    const double t = (double)(*(const int64_t *)call->arg[6].data + 1);
    return (adamw_run){.call = call,
                       .clip = (float)ech_cpu_cell(call, 5),
                       .b1 = (float)b1,
                       .b2 = (float)b2,
                       .rest1 = (float)(1.0 - b1),
                       .rest2 = (float)(1.0 - b2),
                       .step = (float)(lr / (1.0 - pow(b1, t))),
                       .correct2 = (float)(1.0 / (1.0 - pow(b2, t))),
                       .eps = (float)call->real[2],
                       .decay = (float)(lr * call->real[3])};
}

VEC_INLINE void adamw_step(const adamw_run *run, int64_t i, int n)
{
    float *p = ech_cpu_out(run->call, 0) + i;
    float *m = ech_cpu_out(run->call, 2) + i;
    float *v = ech_cpu_out(run->call, 3) + i;
    const vf g = vf_load_n(ech_cpu_in(run->call, 1) + i, n) * vf_set1(run->clip);
    const vf mi = vf_fma(vf_load_n(m, n), vf_set1(run->b1), g * vf_set1(run->rest1));
    const vf vi_ = vf_fma(vf_load_n(v, n), vf_set1(run->b2), g * g * vf_set1(run->rest2));
    const vf root = vf_sqrt(vi_ * vf_set1(run->correct2)) + vf_set1(run->eps);
    const vf pi = vf_load_n(p, n);
    const vf change = vf_fma(pi, vf_set1(run->decay), mi * vf_set1(run->step) / root);
    vf_store_n(m, mi, n);
    vf_store_n(v, vi_, n);
    vf_store_n(p, pi - change, n);
}

static void adamw_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const adamw_run *run = ctx;
    const int64_t begin = task * CHUNK;
    const int64_t n = ech_cpu_min(CHUNK, ech_cpu_elems(&run->call->arg[0]) - begin);
#define STEP(i, lanes) adamw_step(run, begin + (i), lanes)
    VEC_FOR(n, STEP);
#undef STEP
}

/* m = b1 m + (1 - b1) g', v = b2 v + (1 - b2) g'^2, g' = clip g,
 * p -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay p) */
void ECH_CPU(adamw)(const ech_kernel_call *call)
{
    const adamw_run run = adamw_run_of(call);
    const int64_t n = ech_cpu_ceil_div(ech_cpu_elems(&call->arg[0]), CHUNK);
    ech_team_run(call->threads, n, adamw_task, &run);
}

static void sgd_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t begin = task * CHUNK;
    const int64_t n = ech_cpu_min(CHUNK, ech_cpu_elems(&call->arg[0]) - begin);
    const double lr = ech_cpu_cell(call, 2);
    const vf step = vf_set1((float)(lr * ech_cpu_cell(call, 3)));
    const vf decay = vf_set1((float)(lr * call->real[0]));
    const float *g = ech_cpu_in(call, 1) + begin;
    float *p = ech_cpu_out(call, 0) + begin;
#define STEP(i, lanes)                                                                             \
    do {                                                                                           \
        const vf x = vf_load_n(p + (i), lanes);                                                    \
        vf_store_n(p + (i), x - vf_fma(x, decay, vf_load_n(g + (i), lanes) * step), lanes);        \
    } while (0)
    VEC_FOR(n, STEP);
#undef STEP
}

/* p -= lr (clip g + decay p) */
void ECH_CPU(sgd)(const ech_kernel_call *call)
{
    const int64_t n = ech_cpu_ceil_div(ech_cpu_elems(&call->arg[0]), CHUNK);
    ech_team_run(call->threads, n, sgd_task, call);
}
