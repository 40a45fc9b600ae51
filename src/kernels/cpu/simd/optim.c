/* Optimizers over flat ranges. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"

#include <math.h>

enum { CHUNK = 16384 /* elements of a task */ };

/* Elements [begin, begin + n) of a task, of which the first `decayed` decay.  An element's bits
 * depend on neither the task nor its lane. */
typedef struct range {
    int64_t begin, n, decayed;
} range;

static range range_of(const ech_kernel_call *call, int64_t task)
{
    const int64_t begin = task * CHUNK;
    const int64_t n = ech_cpu_min(CHUNK, ech_cpu_elems(&call->arg[0]) - begin);
    const int64_t decayed = ech_cpu_min(n, call->attr[1] - call->attr[0] - begin);
    return (range){begin, n, decayed < 0 ? 0 : decayed};
}

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

VEC_INLINE void adamw_step(const adamw_run *run, int64_t i, float decay, int n)
{
    float *p = ech_cpu_out(run->call, 0) + i;
    float *m = ech_cpu_out(run->call, 2) + i;
    float *v = ech_cpu_out(run->call, 3) + i;
    const vf g = vf_load_n(ech_cpu_in(run->call, 1) + i, n) * vf_set1(run->clip);
    const vf mi = vf_fma(vf_load_n(m, n), vf_set1(run->b1), g * vf_set1(run->rest1));
    const vf vi_ = vf_fma(vf_load_n(v, n), vf_set1(run->b2), g * g * vf_set1(run->rest2));
    const vf root = vf_sqrt(vi_ * vf_set1(run->correct2)) + vf_set1(run->eps);
    const vf pi = vf_load_n(p, n);
    const vf change = vf_fma(pi, vf_set1(decay), mi * vf_set1(run->step) / root);
    vf_store_n(m, mi, n);
    vf_store_n(v, vi_, n);
    vf_store_n(p, pi - change, n);
}

static void adamw_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const adamw_run *run = ctx;
    const range r = range_of(run->call, task);
#define STEP(i, lanes) adamw_step(run, r.begin + (i), run->decay, lanes)
    VEC_FOR(r.decayed, STEP);
#undef STEP
#define STEP(i, lanes) adamw_step(run, r.begin + r.decayed + (i), 0.0f, lanes)
    VEC_FOR(r.n - r.decayed, STEP);
#undef STEP
}

/* m = b1 m + (1 - b1) g', v = b2 v + (1 - b2) g'^2, g' = clip g,
 * p -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay p), decay 0 from `decayed` on */
void ECH_CPU(adamw)(const ech_kernel_call *call)
{
    const adamw_run run = adamw_run_of(call);
    const int64_t n = ech_cpu_ceil_div(ech_cpu_elems(&call->arg[0]), CHUNK);
    ech_team_run(call->threads, n, adamw_task, &run);
}

/* Elements [begin, begin + n). */
static void sgd_range(const ech_kernel_call *call, int64_t begin, int64_t n, double rate)
{
    const double lr = ech_cpu_cell(call, 2);
    const vf step = vf_set1((float)(lr * ech_cpu_cell(call, 3)));
    const vf decay = vf_set1((float)(lr * rate));
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

static void sgd_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const range r = range_of(call, task);
    sgd_range(call, r.begin, r.decayed, call->real[0]);
    sgd_range(call, r.begin + r.decayed, r.n - r.decayed, 0.0);
}

/* p -= lr (clip g + decay p), decay 0 from `decayed` on */
void ECH_CPU(sgd)(const ech_kernel_call *call)
{
    const int64_t n = ech_cpu_ceil_div(ech_cpu_elems(&call->arg[0]), CHUNK);
    ech_team_run(call->threads, n, sgd_task, call);
}
