/* Tables indexed by token and by position: embedding and rotary. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"

#include <string.h>

static int64_t first_position(const ech_tensor *cell)
{
    return cell->data ? *(const int64_t *)cell->data : 0;
}

/* Row of the share of the table that a token's id has, or -1. */
static int64_t local_row(const ech_kernel_call *call, int64_t n, int64_t n_rows)
{
    const int64_t row = ((const int32_t *)call->arg[0].data)[n] - call->attr[0];
    return row >= 0 && row < n_rows ? row : -1;
}

static void embed_task(const void *ctx, int64_t n, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[1].dim[1];
    const int64_t row = local_row(call, n, call->arg[1].dim[0]);
    const size_t bytes = (size_t)width * sizeof(float);
    float *y = ech_cpu_out(call, 2) + n * width;
    if (row >= 0)
        memcpy(y, ech_cpu_in(call, 1) + row * width, bytes);
    else
        memset(y, 0, bytes);
}

/* y[n] = table[ids[n] - first], 0 where the row is not here */
void ECH_CPU(embed)(const ech_kernel_call *call)
{
    ech_team_run_rows(call->threads, call->arg[0].dim[0], call->arg[1].dim[1], embed_task, call);
}

/* y += x */
static void add_to(float *y, const float *x, int64_t n)
{
#define STEP(i, lanes)                                                                             \
    vf_store_n(y + (i), vf_load_n(y + (i), lanes) + vf_load_n(x + (i), lanes), lanes)
    VEC_FOR(n, STEP);
#undef STEP
}

/* Columns of a task of a backward: tokens follow one another within it. */
enum { COLUMNS = 8 * VL };

static void embed_backward_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[2].dim[1];
    const int64_t begin = task * COLUMNS;
    const int64_t columns = ech_cpu_min(COLUMNS, width - begin);
    for (int64_t n = 0; n < call->arg[0].dim[0]; n++) {
        const int64_t row = local_row(call, n, call->arg[2].dim[0]);
        if (row >= 0)
            add_to(ech_cpu_out(call, 2) + row * width + begin,
                   ech_cpu_in(call, 1) + n * width + begin, columns);
    }
}

/* dtable[ids[n] - first] += dy[n], in the order of n */
void ECH_CPU(embed_backward)(const ech_kernel_call *call)
{
    const int64_t n = ech_cpu_ceil_div(call->arg[2].dim[1], COLUMNS);
    ech_team_run(call->threads, n, embed_backward_task, call);
}

static void positions_task(const void *ctx, int64_t n, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[0].dim[1];
    const int64_t at = first_position(&call->arg[2]) + (call->attr[1] + n) % call->attr[0];
    add_to(ech_cpu_out(call, 0) + n * width, ech_cpu_in(call, 1) + at * width, width);
}

/* y[n] += table[start + (token + n) % s] */
void ECH_CPU(positions)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[0], dim[1], positions_task, call);
}

static void positions_backward_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[0].dim[1];
    const int64_t begin = task * COLUMNS;
    const int64_t columns = ech_cpu_min(COLUMNS, width - begin);
    for (int64_t n = 0; n < call->arg[0].dim[0]; n++) {
        const int64_t at = (call->attr[1] + n) % call->attr[0];
        add_to(ech_cpu_out(call, 1) + at * width + begin, ech_cpu_in(call, 0) + n * width + begin,
               columns);
    }
}

/* dtable[(token + n) % s] += dy[n], in the order of n */
void ECH_CPU(positions_backward)(const ech_kernel_call *call)
{
    const int64_t n = ech_cpu_ceil_div(call->arg[0].dim[1], COLUMNS);
    ech_team_run(call->threads, n, positions_backward_task, call);
}

/* --- rotary --- */

/* Pairs whose angles are held as floats at a time. */
enum { PAIRS = 128 };

typedef struct angles {
    float cosine[PAIRS], sine[PAIRS];
} angles;

/* (x[i], x[i + half]) turned by angle i, for n pairs. */
static void rotate(float *x, int64_t half, const angles *a, int64_t n)
{
#define STEP(i, lanes)                                                                             \
    do {                                                                                           \
        const vf cosine = vf_load_n(a->cosine + (i), lanes);                                       \
        const vf sine = vf_load_n(a->sine + (i), lanes);                                           \
        const vf lo = vf_load_n(x + (i), lanes);                                                   \
        const vf hi = vf_load_n(x + half + (i), lanes);                                            \
        vf_store_n(x + (i), vf_fnma(hi, sine, lo * cosine), lanes);                                \
        vf_store_n(x + half + (i), vf_fma(lo, sine, hi * cosine), lanes);                          \
    } while (0)
    VEC_FOR(n, STEP);
#undef STEP
}

/* (x[2 i], x[2 i + 1]) turned by angle i, for n pairs; not vectorised: models that keep their pairs
 * side by side are rare, and the op is bound by memory. */
static void rotate_neighbours(float *x, const angles *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float first = x[2 * i];
        const float second = x[2 * i + 1];
        x[2 * i] = first * a->cosine[i] - second * a->sine[i];
        x[2 * i + 1] = second * a->cosine[i] + first * a->sine[i];
    }
}

static void load_angles(angles *a, const double *table, int64_t n, double sign)
{
    for (int64_t i = 0; i < n; i++) {
        a->cosine[i] = (float)table[2 * i];
        a->sine[i] = (float)(sign * table[2 * i + 1]);
    }
}

static void rope_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t *dim = call->arg[0].dim; /* [N, g, r + 2, D] */
    const int64_t half = call->arg[1].dim[1];
    const int64_t position = first_position(&call->arg[2]) + row % call->attr[0];
    const double *table = (const double *)call->arg[1].data + position * half * 2;
    for (int64_t begin = 0; begin < half; begin += PAIRS) {
        const int64_t n = ech_cpu_min(PAIRS, half - begin);
        angles a;
        load_angles(&a, table + 2 * begin, n, call->attr[1] ? -1.0 : 1.0);
        for (int64_t g = 0; g < dim[1]; g++) {
            float *group = ech_cpu_out(call, 0) + (row * dim[1] + g) * dim[2] * dim[3];
            for (int64_t h = 0; h + 1 < dim[2]; h++)
                if (call->attr[2])
                    rotate_neighbours(group + h * dim[3] + 2 * begin, &a, n);
                else
                    rotate(group + h * dim[3] + begin, half, &a, n);
        }
    }
}

/* q and k heads turned in place by the angles of their position, first + n % s; elements from
 * 2 half on and v stay */
void ECH_CPU(rope)(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim;
    ech_team_run_rows(call->threads, dim[0], dim[1] * dim[2] * dim[3], rope_task, call);
}
