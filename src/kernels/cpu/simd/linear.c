/* Linear layers: weights w [O, I] as products of gemm.c. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"

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

static void bias_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t n_rows = call->arg[1].dim[0], width = call->arg[1].dim[1];
    const int64_t begin = task * COLUMNS, columns = ech_cpu_min(COLUMNS, width - begin);
    const float *dy = ech_cpu_in(call, 1) + begin;
    float *dbias = ech_cpu_out(call, 3) + begin;
    if (columns < COLUMNS) {
#define STEP(i, n) add_bias_vector(dy + (i), width, n_rows, n, dbias + (i))
        VEC_FOR(columns, STEP);
#undef STEP
        return;
    }
    vf sum[VECS];
    column_sums(dy, width, n_rows, sum);
    for (int v = 0; v < VECS; v++)
        vf_store(dbias + v * VL, vf_load(dbias + v * VL) + sum[v]);
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
        ech_team_run(call->threads, ech_cpu_ceil_div(out, COLUMNS), bias_task, call);
}
