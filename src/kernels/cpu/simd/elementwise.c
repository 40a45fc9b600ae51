/* Elementwise: bytes, sums, activations, dropout.  Cut into chunks that fit a near cache. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/philox.h"
#include "kernels/cpu/simd/vec_math.h"
#include "kernels/cpu/team.h"

#include <string.h>

enum { CHUNK = 16384 /* elements of a task */ };

/* Elements of a task. */
typedef struct range {
    int64_t begin, n;
} range;

static range chunk_of(int64_t task, int64_t total)
{
    const int64_t begin = task * CHUNK;
    return (range){begin, ech_cpu_min(CHUNK, total - begin)};
}

static void run_chunks(const ech_kernel_call *call, int64_t total, ech_team_task task)
{
    ech_team_run(call->threads, ech_cpu_ceil_div(total, CHUNK), task, call);
}

/* --- bytes --- */

static int64_t bytes_of(const ech_tensor *t)
{
    return ech_cpu_elems(t) * (int64_t)ech_dtype_bytes(t->dtype);
}

/* Bytes of a task; from STREAM bytes on, results go past the caches, which could not hold them. */
enum { BYTES = 4 * CHUNK, STREAM = 32 << 20 };

static bool is_streamed(const ech_tensor *t)
{
    return bytes_of(t) >= STREAM && (uintptr_t)t->data % sizeof(vf) == 0;
}

static void zero_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t n = ech_cpu_min(BYTES, bytes_of(&call->arg[0]) - task * BYTES);
    char *to = (char *)call->arg[0].data + task * BYTES;
    int64_t at = 0;
    if (is_streamed(&call->arg[0])) {
        for (; at + (int64_t)sizeof(vf) <= n; at += (int64_t)sizeof(vf))
            vf_stream((float *)(void *)(to + at), vf_zero());
        vec_stream_end();
    }
    memset(to + at, 0, (size_t)(n - at));
}

/* buf = 0 */
void ECH_CPU(zero)(const ech_kernel_call *call)
{
    const int64_t n = ech_cpu_ceil_div(bytes_of(&call->arg[0]), BYTES);
    ech_team_run(call->threads, n, zero_task, call);
}

static void copy_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t n = ech_cpu_min(BYTES, bytes_of(&call->arg[0]) - task * BYTES);
    memcpy((char *)call->arg[1].data + task * BYTES, (const char *)call->arg[0].data + task * BYTES,
           (size_t)n);
}

/* y = x */
void ECH_CPU(copy)(const ech_kernel_call *call)
{
    const int64_t n = ech_cpu_ceil_div(bytes_of(&call->arg[0]), BYTES);
    ech_team_run(call->threads, n, copy_task, call);
}

/* --- sums --- */

static void scale_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const range r = chunk_of(task, ech_cpu_elems(&call->arg[0]));
    float *x = ech_cpu_out(call, 0) + r.begin;
    const vf factor = vf_set1((float)call->real[0]);
#define STEP(i, n) vf_store_n(x + (i), vf_load_n(x + (i), n) * factor, n)
    VEC_FOR(r.n, STEP);
#undef STEP
}

/* x = factor x */
void ECH_CPU(scale)(const ech_kernel_call *call)
{
    run_chunks(call, ech_cpu_elems(&call->arg[0]), scale_task);
}

static void add_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const range r = chunk_of(task, ech_cpu_elems(&call->arg[2]));
    const float *a = ech_cpu_in(call, 0) + r.begin;
    const float *b = ech_cpu_in(call, 1) + r.begin;
    float *y = ech_cpu_out(call, 2) + r.begin;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vec_fetch_ahead(a + (i));                                                                  \
        vec_fetch_ahead(b + (i));                                                                  \
        vf_store_n(y + (i), vf_load_n(a + (i), n) + vf_load_n(b + (i), n), n);                     \
    } while (0)
    VEC_FOR(r.n, STEP);
#undef STEP
}

/* y = a + b; y may lie on either */
void ECH_CPU(add)(const ech_kernel_call *call)
{
    run_chunks(call, ech_cpu_elems(&call->arg[2]), add_task);
}

/* --- SwiGLU --- */

VEC_INLINE void swiglu_step(const float *gate, const float *up, float *y, int n)
{
    vec_fetch_ahead(gate);
    vec_fetch_ahead(up);
    const vf g = vf_load_n(gate, n);
    vf_store_n(y, g * vf_sigmoid(g) * vf_load_n(up, n), n);
}

static void swiglu_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[1].dim[1];
    const float *gate = ech_cpu_in(call, 0) + 2 * row * width;
    const float *up = gate + width;
    float *y = ech_cpu_out(call, 1) + row * width;
#define STEP(i, n) swiglu_step(gate + (i), up + (i), y + (i), n)
    VEC_FOR(width, STEP);
#undef STEP
}

/* y = gate sigmoid(gate) up, gate = gate_up[n, 0], up = gate_up[n, 1] */
void ECH_CPU(swiglu)(const ech_kernel_call *call)
{
    ech_team_run_rows(call->threads, call->arg[1].dim[0], call->arg[1].dim[1], swiglu_task, call);
}

/* One row of the backward. */
typedef struct swiglu_row {
    const float *gate, *up, *dy;
    float *dgate, *dup;
} swiglu_row;

VEC_INLINE void swiglu_backward_step(const swiglu_row *r, int64_t i, int n)
{
    vec_fetch_ahead(r->gate + i);
    vec_fetch_ahead(r->up + i);
    vec_fetch_ahead(r->dy + i);
    const vf g = vf_load_n(r->gate + i, n);
    const vf u = vf_load_n(r->up + i, n);
    const vf d = vf_load_n(r->dy + i, n);
    vf rest;
    const vf s = vf_sigmoid_both(g, &rest);
    vf_store_n(r->dgate + i, d * u * s * vf_fma(g, rest, vf_set1(1.0f)), n);
    vf_store_n(r->dup + i, d * g * s, n);
}

static void swiglu_backward_task(const void *ctx, int64_t row, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const int64_t width = call->arg[1].dim[1];
    const float *gate = ech_cpu_in(call, 0) + 2 * row * width;
    float *dgate = ech_cpu_out(call, 2) + 2 * row * width;
    const swiglu_row r = {gate, gate + width, ech_cpu_in(call, 1) + row * width, dgate,
                          dgate + width};
#define STEP(i, n) swiglu_backward_step(&r, i, n)
    VEC_FOR(width, STEP);
#undef STEP
}

/* With s = sigmoid(gate):  dgate = dy up s (1 + gate (1 - s)), dup = dy gate s */
void ECH_CPU(swiglu_backward)(const ech_kernel_call *call)
{
    ech_team_run_rows(call->threads, call->arg[1].dim[0], call->arg[1].dim[1], swiglu_backward_task,
                      call);
}

/* --- GELU --- */

/* The tanh form as a sigmoid: (1 + tanh z) / 2 = sigmoid(2 z), z = sqrt(2 / pi) (x + c x^3); no
 * cancellation for x below 0. */
static const float gelu_twice = 1.5957691216f; /* 2 sqrt(2 / pi) */
static const float gelu_cubic = 0.044715f;

VEC_INLINE vf gelu_argument(vf x)
{
    return vf_set1(gelu_twice) * vf_fma(vf_set1(gelu_cubic) * x, x * x, x);
}

VEC_INLINE void gelu_step(const float *x, float *y, int n)
{
    vec_fetch_ahead(x);
    const vf v = vf_load_n(x, n);
    vf_store_n(y, v * vf_sigmoid(gelu_argument(v)), n);
}

static void gelu_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const range r = chunk_of(task, ech_cpu_elems(&call->arg[0]));
    const float *x = ech_cpu_in(call, 0) + r.begin;
    float *y = ech_cpu_out(call, 1) + r.begin;
#define STEP(i, n) gelu_step(x + (i), y + (i), n)
    VEC_FOR(r.n, STEP);
#undef STEP
}

/* y = x sigmoid(2 z) */
void ECH_CPU(gelu)(const ech_kernel_call *call)
{
    run_chunks(call, ech_cpu_elems(&call->arg[0]), gelu_task);
}

VEC_INLINE void gelu_backward_step(const float *x, const float *dy, float *dx, int n)
{
    vec_fetch_ahead(x);
    vec_fetch_ahead(dy);
    const vf v = vf_load_n(x, n);
    vf rest;
    const vf s = vf_sigmoid_both(gelu_argument(v), &rest);
    const vf inner = vf_fma(vf_set1(3.0f * gelu_cubic) * v, v, vf_set1(1.0f));
    const vf slope = vf_set1(gelu_twice) * inner;
    vf_store_n(dx, vf_load_n(dy, n) * vf_fma(v * slope, s * rest, s), n);
}

static void gelu_backward_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const range r = chunk_of(task, ech_cpu_elems(&call->arg[0]));
    const float *x = ech_cpu_in(call, 0) + r.begin;
    const float *dy = ech_cpu_in(call, 1) + r.begin;
    float *dx = ech_cpu_out(call, 2) + r.begin;
#define STEP(i, n) gelu_backward_step(x + (i), dy + (i), dx + (i), n)
    VEC_FOR(r.n, STEP);
#undef STEP
}

/* dx = dy (s + x s (1 - s) 2 z'), s = sigmoid(2 z), 2 z' = 2 sqrt(2 / pi) (1 + 3 c x^2) */
void ECH_CPU(gelu_backward)(const ech_kernel_call *call)
{
    run_chunks(call, ech_cpu_elems(&call->arg[0]), gelu_backward_task);
}

/* --- dropout --- */

enum { DRAW = 4 * VL /* words of VL blocks */ };

/* Words of elements 4 block .. 4 block + DRAW - 1. */
static void draw(const ech_rng_key *key, uint64_t block, uint32_t out[DRAW])
{
    uint32_t low[VL], high[VL], by_word[4][VL];
    for (int i = 0; i < VL; i++) {
        low[i] = (uint32_t)(block + (uint64_t)i);
        high[i] = (uint32_t)((block + (uint64_t)i) >> 32);
    }
    vi word[4];
    philox_blocks(key, vi_load(low), vi_load(high), word);
    for (int w = 0; w < 4; w++)
        vi_store(by_word[w], word[w]);
    for (int i = 0; i < VL; i++)
        for (int w = 0; w < 4; w++)
            out[4 * i + w] = by_word[w][i];
}

/* Rows of the loop: x, residual or NULL, y. */
typedef struct dropout_rows {
    const float *x, *residual;
    float *y;
} dropout_rows;

VEC_INLINE void dropout_step(const philox_dropout *d, const dropout_rows *r, const uint32_t *word,
                             int n)
{
    vf y = vf_load_n(r->x, n) * vf_set1(d->scale);
    if (d->is_on)
        y = vf_if_above(vi_load(word), vi_set1(d->limit), y);
    if (r->residual)
        y = y + vf_load_n(r->residual, n);
    vf_store_n(r->y, y, n);
}

static void dropout_task(const void *ctx, int64_t task, int member)
{
    (void)member;
    const ech_kernel_call *call = ctx;
    const philox_dropout d = philox_dropout_of(call, call->real[0], call->attr[1]);
    const range r = chunk_of(task, ech_cpu_elems(&call->arg[0]));
    const float *residual = ech_cpu_in(call, 1);
    const int64_t token = call->rng.row0 * call->attr[0] + call->attr[2];
    const uint64_t first = (uint64_t)(token * call->arg[0].dim[1] + r.begin);
    uint32_t word[DRAW + VL] = {0}; /* an unaligned vector may reach beyond the last word */
    int64_t at = 0;
    while (at < r.n) {
        const uint64_t element = first + (uint64_t)at;
        const int skip = (int)(element % 4);
        if (d.is_on)
            draw(&d.key, element / 4, word);
        const int64_t end = ech_cpu_min(r.n, at + DRAW - skip);
        for (int64_t i = at; i < end; i += VL) {
            const dropout_rows rows = {ech_cpu_in(call, 0) + r.begin + i,
                                       residual ? residual + r.begin + i : NULL,
                                       ech_cpu_out(call, 2) + r.begin + i};
            dropout_step(&d, &rows, word + skip + (i - at), (int)ech_cpu_min(VL, end - i));
        }
        at = end;
    }
}

/* y = residual + keep x / (1 - p), keep drawn for the element's index in the global batch */
void ECH_CPU(dropout)(const ech_kernel_call *call)
{
    run_chunks(call, ech_cpu_elems(&call->arg[0]), dropout_task);
}
