/* Linear layers: weights w [O, I] as products of gemm.c, biases, key/value rows of a gradient. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"

#include <string.h>

/* y = x w^T + bias */
void ECH_CPU(linear)(const ech_kernel_call *call)
{
    const int64_t out = call->arg[1].dim[0], in = call->arg[1].dim[1];
    const ech_cpu_gemm g = {.m = call->arg[0].dim[0],
                            .n = out,
                            .k = in,
                            .a = ech_cpu_in(call, 0),
                            .a_row = in,
                            .a_col = 1,
                            .b = ech_cpu_in(call, 1),
                            .b_row = 1,
                            .b_col = in,
                            .c = ech_cpu_out(call, 3),
                            .c_row = out,
                            .bias = ech_cpu_in(call, 2),
                            .threads = call->threads};
    ECH_CPU(gemm)(&g);
}

/* dx = dy w */
void ECH_CPU(linear_dgrad)(const ech_kernel_call *call)
{
    const int64_t out = call->arg[1].dim[0], in = call->arg[1].dim[1];
    const ech_cpu_gemm g = {.m = call->arg[0].dim[0],
                            .n = in,
                            .k = out,
                            .a = ech_cpu_in(call, 0),
                            .a_row = out,
                            .a_col = 1,
                            .b = ech_cpu_in(call, 1),
                            .b_row = in,
                            .b_col = 1,
                            .c = ech_cpu_out(call, 2),
                            .c_row = in,
                            .threads = call->threads};
    ECH_CPU(gemm)(&g);
}

/* Columns of a task, and rows summed before they join the sum of the rows before. */
enum { VECS = 4, COLUMNS = VECS * VL, ROWS = 64 };

/* Sums of the rows of dy over VECS vectors of columns. */
VEC_INLINE void column_sums(const float *dy, int64_t stride, int64_t n_rows, vf sum[VECS])
{
    for (int v = 0; v < VECS; v++)
        sum[v] = vf_zero();
    for (int64_t n = 0; n < n_rows; n += ROWS) {
        const int64_t end = ech_cpu_min(n_rows, n + ROWS);
        vf part[VECS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (int64_t row = n; row < end; row++)
            for (int v = 0; v < VECS; v++)
                part[v] = part[v] + vf_load(dy + row * stride + v * VL);
        for (int v = 0; v < VECS; v++)
            sum[v] = sum[v] + part[v];
    }
}

/* The columns of one vector, less where dy ends. */
static void add_bias_vector(const float *dy, int64_t stride, int64_t n_rows, int lanes,
                            float *dbias)
{
    vf sum = vf_zero();
    for (int64_t n = 0; n < n_rows; n += ROWS) {
        vf part = vf_zero();
        for (int64_t row = n; row < ech_cpu_min(n_rows, n + ROWS); row++)
            part = part + vf_load_n(dy + row * stride, lanes);
        sum = sum + part;
    }
    vf_store_n(dbias, vf_load_n(dbias, lanes) + sum, lanes);
}

/* A gradient of a bias: dbias [width] += column sums of dy [n_rows, width]. */
typedef struct bias_gradient {
    const float *dy;
    float *dbias;
    int64_t n_rows, width;
} bias_gradient;

static void bias_gradient_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const bias_gradient *g = ctx;
    const int64_t begin = task * COLUMNS, columns = ech_cpu_min(COLUMNS, g->width - begin);
    const float *dy = g->dy + begin;
    float *dbias = g->dbias + begin;
    if (columns < COLUMNS) {
#define STEP(i, n) add_bias_vector(dy + (i), g->width, g->n_rows, n, dbias + (i))
        VEC_FOR(columns, STEP);
#undef STEP
        return;
    }
    vf sum[VECS];
    column_sums(dy, g->width, g->n_rows, sum);
    for (int v = 0; v < VECS; v++)
        vf_store(dbias + v * VL, vf_load(dbias + v * VL) + sum[v]);
}

static void add_bias_gradient(const ech_kernel_call *call, int dy, int dbias)
{
    const int64_t *dim = call->arg[dy].dim;
    const bias_gradient g = {ech_cpu_in(call, dy), ech_cpu_out(call, dbias), dim[0], dim[1]};
    ech_team_run(call->threads, ech_cpu_ceil_div(dim[1], COLUMNS), bias_gradient_task, &g);
}

/* dw += dy^T x, dbias += column sums of dy */
void ECH_CPU(linear_wgrad)(const ech_kernel_call *call)
{
    const int64_t out = call->arg[2].dim[0], in = call->arg[2].dim[1];
    const ech_cpu_gemm g = {.m = out,
                            .n = in,
                            .k = call->arg[0].dim[0],
                            .a = ech_cpu_in(call, 1),
                            .a_row = 1,
                            .a_col = out,
                            .b = ech_cpu_in(call, 0),
                            .b_row = in,
                            .b_col = 1,
                            .c = ech_cpu_out(call, 2),
                            .c_row = in,
                            .is_added = true,
                            .threads = call->threads};
    ECH_CPU(gemm)(&g);
    if (call->arg[3].data)
        add_bias_gradient(call, 1, 3);
}

static void bias_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[1].dim[0];
    const float *bias = ech_cpu_in(call, 1);
    float *y = ech_cpu_out(call, 0) + row * width;
#define STEP(i, n) vf_store_n(y + (i), vf_load_n(y + (i), n) + vf_load_n(bias + (i), n), n)
    VEC_FOR(width, STEP);
#undef STEP
}

/* y[n] += bias */
void ECH_CPU(bias)(const ech_kernel_call *call)
{
    ech_team_run_rows(call->threads, call->arg[0].dim[0], call->arg[1].dim[0], bias_task, call);
}

/* dbias += column sums of dy */
void ECH_CPU(bias_backward)(const ech_kernel_call *call)
{
    add_bias_gradient(call, 0, 1);
}

/* Groups hold copies of key and value rows: those of group j are number (first + j) / copies. */
static int64_t kv_number(const ech_kernel_call *call, int64_t j)
{
    return (call->attr[0] + j) / call->attr[1];
}

/* Key and value rows of number `task`: the sum over its groups, in ascending order. */
static void kv_fold_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t *dim = call->arg[0].dim; /* [g, r + 2, E] */
    const int64_t pair = 2 * dim[2];
    float *sum = ech_cpu_out(call, 1) + task * pair;
    memset(sum, 0, (size_t)pair * sizeof *sum);
    for (int64_t j = 0; j < dim[0]; j++) {
        if (kv_number(call, j) != task)
            continue;
        const float *dw = ech_cpu_in(call, 0) + (j + 1) * dim[1] * dim[2] - pair;
#define STEP(i, n) vf_store_n(sum + (i), vf_load_n(sum + (i), n) + vf_load_n(dw + (i), n), n)
        VEC_FOR(pair, STEP);
#undef STEP
    }
}

/* sum = 0; sum[number of j] += key and value rows of dw[j], j = 0, 1, ... */
void ECH_CPU(kv_fold)(const ech_kernel_call *call)
{
    ech_team_run(call->threads, call->arg[0].dim[0], kv_fold_task, call);
}

static void kv_spread_task(const void *ctx, int64_t j, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t *dim = call->arg[1].dim; /* [g, r + 2, E] */
    const int64_t pair = 2 * dim[2];
    memcpy(ech_cpu_out(call, 1) + (j + 1) * dim[1] * dim[2] - pair,
           ech_cpu_in(call, 0) + kv_number(call, j) * pair, (size_t)pair * sizeof(float));
}

/* key and value rows of dw[j] = sum[number of j] */
void ECH_CPU(kv_spread)(const ech_kernel_call *call)
{
    ech_team_run(call->threads, call->arg[1].dim[0], kv_spread_task, call);
}
