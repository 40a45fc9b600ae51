/* Norms over the last dimension.  xhat is the normalised row before gamma. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"

#include <math.h>
#include <string.h>

/* --- forward --- */

/* sum (x - mean)^2 */
static float squares(const float *x, float mean, int64_t n)
{
    vf sum = vf_zero();
    const vf m = vf_set1(mean);
#define STEP(i, lanes)                                                                             \
    do {                                                                                           \
        const vf d = vf_keep_n(vf_load_n(x + (i), lanes) - m, lanes);                              \
        sum = vf_fma(d, d, sum);                                                                   \
    } while (0)
    VEC_FOR(n, STEP);
#undef STEP
    return vf_sum(sum);
}

static float row_sum(const float *x, int64_t n)
{
    vf sum = vf_zero();
#define STEP(i, lanes)                                                                             \
    do {                                                                                           \
        vec_fetch_ahead(x + (i));                                                                  \
        sum = sum + vf_load_n(x + (i), lanes);                                                     \
    } while (0)
    VEC_FOR(n, STEP);
#undef STEP
    return vf_sum(sum);
}

static float rstd_of(float squares_sum, int64_t n, double eps)
{
    return (float)(1.0 / sqrt((double)squares_sum / (double)n + eps));
}

static void layernorm_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[0].dim[1];
    const float *x = ech_cpu_in(call, 0) + row * width;
    const float *gamma = ech_cpu_in(call, 1);
    const float *beta = ech_cpu_in(call, 2);
    float *y = ech_cpu_out(call, 3) + row * width;
    const float mean = row_sum(x, width) / (float)width;
    const float rstd = rstd_of(squares(x, mean, width), width, call->real[0]);
    const vf m = vf_set1(mean), r = vf_set1(rstd);
#define STEP(i, n)                                                                                 \
    vf_store_n(y + (i),                                                                            \
               vf_fma((vf_load_n(x + (i), n) - m) * r, vf_load_n(gamma + (i), n),                  \
                      vf_load_n(beta + (i), n)),                                                   \
               n)
    VEC_FOR(width, STEP);
#undef STEP
    ech_cpu_out(call, 4)[row] = mean;
    ech_cpu_out(call, 5)[row] = rstd;
}

/* y = (x - mean) rstd gamma + beta */
void ECH_CPU(layernorm)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[0], dim[1], layernorm_task, call);
}

/* y = x rstd gamma; returns rstd */
static float rms_row(const float *x, const float *gamma, double eps, int64_t width, float *y)
{
    const float rstd = rstd_of(squares(x, 0.0f, width), width, eps);
    const vf r = vf_set1(rstd);
#define STEP(i, n) vf_store_n(y + (i), vf_load_n(x + (i), n) * r * vf_load_n(gamma + (i), n), n)
    VEC_FOR(width, STEP);
#undef STEP
    return rstd;
}

static void rmsnorm_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[0].dim[1];
    const float *x = ech_cpu_in(call, 0) + row * width;
    float *y = ech_cpu_out(call, 2) + row * width;
    ech_cpu_out(call, 3)[row] = rms_row(x, ech_cpu_in(call, 1), call->real[0], width, y);
}

/* y = x rstd gamma, rstd = 1 / sqrt(sum x^2 / H + eps) */
void ECH_CPU(rmsnorm)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[0], dim[1], rmsnorm_task, call);
}

static void qk_norm_task(const void *ctx, int64_t ng, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t r = call->arg[0].dim[2] - 2;
    const int64_t width = call->arg[0].dim[3];
    const float *x = ech_cpu_in(call, 0) + ng * (r + 2) * width;
    float *y = ech_cpu_out(call, 3) + ng * (r + 2) * width;
    float *rstd = ech_cpu_out(call, 4) + ng * (r + 1);
    for (int64_t h = 0; h <= r; h++) {
        const float *gamma = ech_cpu_in(call, h < r ? 1 : 2);
        rstd[h] = rms_row(x + h * width, gamma, call->real[0], width, y + h * width);
    }
    memcpy(y + (r + 1) * width, x + (r + 1) * width, (size_t)width * sizeof *y);
}

/* RMSNorm of each q and k head over D; v is copied */
void ECH_CPU(qk_norm)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[0] * dim[1], dim[2] * dim[3], qk_norm_task, call);
}

/* --- backward --- */

/* One row as its backward sees it; RMSNorm is the case mean = 0, without dbeta. */
typedef struct norm_row {
    const float *x, *gamma, *dy;
    const float *dres; /* NULL: none */
    float *dx;
    float *dgamma, *dbeta; /* partial sums of the row's block; dbeta NULL: not centred */
    float mean, rstd;
    int64_t width;
} norm_row;

/* Averages of u = gamma dy and of u xhat. */
static void averages(const norm_row *row, float *avg_u, float *avg_ux)
{
    const vf mean = vf_set1(row->mean);
    vf u_sum = vf_zero(), ux_sum = vf_zero();
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vec_fetch_ahead(row->x + (i));                                                             \
        vec_fetch_ahead(row->dy + (i));                                                            \
        const vf u = vf_load_n(row->gamma + (i), n) * vf_load_n(row->dy + (i), n);                 \
        u_sum = u_sum + u;                                                                         \
        ux_sum = vf_fma(u, vf_load_n(row->x + (i), n) - mean, ux_sum);                             \
    } while (0)
    VEC_FOR(row->width, STEP);
#undef STEP
    *avg_u = vf_sum(u_sum) / (float)row->width;
    *avg_ux = vf_sum(ux_sum) * row->rstd / (float)row->width;
}

VEC_INLINE void norm_backward_step(const norm_row *row, float avg_u, float avg_ux, int64_t i, int n)
{
    const vf rstd = vf_set1(row->rstd);
    const vf dy = vf_load_n(row->dy + i, n);
    const vf xhat = (vf_load_n(row->x + i, n) - vf_set1(row->mean)) * rstd;
    const vf u = vf_load_n(row->gamma + i, n) * dy;
    vf dx = rstd * vf_fnma(xhat, vf_set1(avg_ux), u - vf_set1(avg_u));
    if (row->dres) {
        vec_fetch_ahead(row->dres + i);
        dx = dx + vf_load_n(row->dres + i, n);
    }
    vf_store_n(row->dx + i, dx, n);
    vf_store_n(row->dgamma + i, vf_fma(dy, xhat, vf_load_n(row->dgamma + i, n)), n);
    if (row->dbeta)
        vf_store_n(row->dbeta + i, vf_load_n(row->dbeta + i, n) + dy, n);
}

/* dx = dres + rstd (u - [avg u] - xhat avg(u xhat)), the bracket for LayerNorm alone; dgamma += dy
 * xhat, dbeta += dy.  Each element is read before dx is written, which may lie on dres or dy. */
static void row_backward(const norm_row *row)
{
    float avg_u, avg_ux;
    averages(row, &avg_u, &avg_ux);
    if (!row->dbeta)
        avg_u = 0.0f;
#define STEP(i, n) norm_backward_step(row, avg_u, avg_ux, i, n)
    VEC_FOR(row->width, STEP);
#undef STEP
}

/* Rows are cut into ECH_ROW_BLOCKS whatever the threads; block b sums into work[b][vectors][width].
 */
static float *block_sums(const ech_kernel_call *call, int64_t block, int64_t elems)
{
    float *sums = (float *)call->work + block * elems;
    memset(sums, 0, (size_t)elems * sizeof *sums);
    return sums;
}

static int64_t block_begin(int64_t block, int64_t n_rows)
{
    return block * n_rows / ECH_ROW_BLOCKS;
}

/* out[i] += the sum over blocks, in order, of vector `vector` of `vectors`. */
static void add_blocks(const ech_kernel_call *call, int vector, int vectors, int64_t width,
                       float *out)
{
    const float *sums = (const float *)call->work + vector * width;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf sum = vf_zero();                                                                        \
        for (int64_t b = 0; b < ECH_ROW_BLOCKS; b++)                                               \
            sum = sum + vf_load_n(sums + b * vectors * width + (i), n);                            \
        vf_store_n(out + (i), vf_load_n(out + (i), n) + sum, n);                                   \
    } while (0)
    VEC_FOR(width, STEP);
#undef STEP
}

static void layernorm_backward_task(const void *ctx, int64_t block, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    const float *dres = ech_cpu_in(call, 5);
    float *sums = block_sums(call, block, 2 * width);
    for (int64_t n = block_begin(block, n_rows); n < block_begin(block + 1, n_rows); n++) {
        const norm_row row = {.x = ech_cpu_in(call, 0) + n * width,
                              .gamma = ech_cpu_in(call, 1),
                              .dy = ech_cpu_in(call, 4) + n * width,
                              .dres = dres ? dres + n * width : NULL,
                              .dx = ech_cpu_out(call, 6) + n * width,
                              .dgamma = sums,
                              .dbeta = sums + width,
                              .mean = ech_cpu_in(call, 2)[n],
                              .rstd = ech_cpu_in(call, 3)[n],
                              .width = width};
        row_backward(&row);
    }
}

/* dx by rows; dgamma += sum dy xhat, dbeta += sum dy */
void ECH_CPU(layernorm_backward)(const ech_kernel_call *call)
{
    const int64_t width = call->arg[0].dim[1];
    ech_team_run(call->threads, ECH_ROW_BLOCKS, layernorm_backward_task, call);
    add_blocks(call, 0, 2, width, ech_cpu_out(call, 7));
    add_blocks(call, 1, 2, width, ech_cpu_out(call, 8));
}

static void rmsnorm_backward_task(const void *ctx, int64_t block, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t width = call->arg[0].dim[1];
    const float *dres = ech_cpu_in(call, 4);
    float *sums = block_sums(call, block, width);
    for (int64_t n = block_begin(block, n_rows); n < block_begin(block + 1, n_rows); n++) {
        const norm_row row = {.x = ech_cpu_in(call, 0) + n * width,
                              .gamma = ech_cpu_in(call, 1),
                              .dy = ech_cpu_in(call, 3) + n * width,
                              .dres = dres ? dres + n * width : NULL,
                              .dx = ech_cpu_out(call, 5) + n * width,
                              .dgamma = sums,
                              .rstd = ech_cpu_in(call, 2)[n],
                              .width = width};
        row_backward(&row);
    }
}

/* dx by rows; dgamma += sum dy xhat */
void ECH_CPU(rmsnorm_backward)(const ech_kernel_call *call)
{
    ech_team_run(call->threads, ECH_ROW_BLOCKS, rmsnorm_backward_task, call);
    add_blocks(call, 0, 1, call->arg[0].dim[1], ech_cpu_out(call, 6));
}

static void qk_norm_backward_task(const void *ctx, int64_t block, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t n_groups = call->arg[0].dim[0] * call->arg[0].dim[1];
    const int64_t r = call->arg[0].dim[2] - 2;
    const int64_t width = call->arg[0].dim[3];
    float *sums = block_sums(call, block, 2 * width);
    for (int64_t ng = block_begin(block, n_groups); ng < block_begin(block + 1, n_groups); ng++) {
        for (int64_t h = 0; h <= r; h++) {
            const int64_t at = (ng * (r + 2) + h) * width;
            const norm_row row = {.x = ech_cpu_in(call, 0) + at,
                                  .gamma = ech_cpu_in(call, h < r ? 1 : 2),
                                  .dy = ech_cpu_in(call, 4) + at,
                                  .dx = ech_cpu_out(call, 4) + at,
                                  .dgamma = sums + (h < r ? 0 : width),
                                  .rstd = ech_cpu_in(call, 3)[ng * (r + 1) + h],
                                  .width = width};
            row_backward(&row);
        }
    }
}

/* In place on d: dq and dk by heads, dv = dy; dgamma_q and dgamma_k += sum dy xhat */
void ECH_CPU(qk_norm_backward)(const ech_kernel_call *call)
{
    const int64_t width = call->arg[0].dim[3];
    ech_team_run(call->threads, ECH_ROW_BLOCKS, qk_norm_backward_task, call);
    add_blocks(call, 0, 2, width, ech_cpu_out(call, 5));
    add_blocks(call, 1, 2, width, ech_cpu_out(call, 6));
}
