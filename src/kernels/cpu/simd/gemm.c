/* Matrix product C [m, n] = A [m, k] B [k, n], packed panels over a kernel in registers (Goto & van
 * de Geijn 2008, "Anatomy of high-performance matrix multiplication", with the roles of the two
 * caches kept: a panel of B lies in the first, a block of A in the second).
 *
 * Each element of C is a sum over blocks of DEPTH in order, within a block over p in order, in one
 * accumulator: the tiles and the threads do not show in the bits. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"
#include "kernels/cpu/team.h"

#include <string.h>

enum {
    ROWS = VL / 2, /* of the kernel, */
    VECS = 3,      /* with ROWS x VECS accumulators, VECS of B and one of A in registers */
    COLS = VECS * VL,
    DEPTH = 192,          /* DEPTH x COLS of B: 36 KiB (AVX-512), 18 KiB (AVX2) */
    TILE_ROWS = 512,      /* DEPTH x TILE_ROWS of A: 384 KiB */
    TILE_COLS = 32 * COLS /* of C; less where threads would go idle */
};

_Static_assert((TILE_ROWS + COLS) * DEPTH * 4 <= ECH_TEAM_SCRATCH_BYTES, "scratch of a member");

/* --- fetching ahead --- */

/* The source of what is packed next, fetched into the second cache line by line while patches are
 * computed: it lies in rows too short for the processor to guess. */
typedef struct ahead {
    const char *row;      /* row in hand */
    int64_t row_bytes;    /* from row to row */
    int64_t length_bytes; /* of a row's part that is wanted */
    int64_t at;           /* byte in the row */
    int64_t rows;         /* left, the one in hand included */
} ahead;

enum { LINE = 64 };

/* Rows of `length` floats from src on. */
static ahead ahead_of(const float *src, int64_t stride, int64_t rows, int64_t length)
{
    return (ahead){.row = (const char *)src,
                   .row_bytes = stride * (int64_t)sizeof *src,
                   .length_bytes = length * (int64_t)sizeof *src,
                   .rows = rows};
}

VEC_INLINE void fetch_line(ahead *f)
{
    _mm_prefetch(f->row + f->at, _MM_HINT_T1);
    f->at += LINE;
    if (f->at >= f->length_bytes) {
        f->at = 0;
        f->row += f->row_bytes;
        f->rows--;
    }
}

/* What a member fetches: first the next panel of B, then the next block of A. */
typedef struct fetches {
    ahead a, b;
} fetches;

VEC_INLINE void fetch_some(fetches *f)
{
    if (f->b.rows > 0)
        fetch_line(&f->b);
    else if (f->a.rows > 0)
        fetch_line(&f->a);
}

/* --- kernel --- */

/* What a block does to C. */
typedef enum store_mode { STORE_SET, STORE_BIAS, STORE_ADD } store_mode;

/* One call of the kernel: C [ROWS, COLS] from a [k][ROWS], b [k][COLS]. */
typedef struct patch {
    const float *a, *b;
    float *c;
    int64_t c_row;
    const float *bias;
    fetches *next;
} patch;

/* One p: the outer product of ROWS of A and COLS of B. */
VEC_INLINE void patch_step(vf acc[ROWS][VECS], const float *a, const float *b)
{
    vf row[VECS];
    for (int v = 0; v < VECS; v++)
        row[v] = vf_load(b + v * VL);
    for (int i = 0; i < ROWS; i++) {
        const vf x = vf_set1(a[i]);
        for (int v = 0; v < VECS; v++)
            acc[i][v] = vf_fma(x, row[v], acc[i][v]);
    }
}

/* Steps between two fetches: more at a time would fill the processor's list of open misses and hold
 * up the loads of a and b. */
enum { PACE = 4 };

VEC_INLINE void patch_steps(vf acc[ROWS][VECS], const float *a, const float *b)
{
    patch_step(acc, a, b);
    patch_step(acc, a + ROWS, b + COLS);
    patch_step(acc, a + 2 * ROWS, b + 2 * COLS);
    patch_step(acc, a + 3 * ROWS, b + 3 * COLS);
}

/* The pragmas: accumulators stay in registers only if the loops over them are unrolled early. */
VEC_INLINE void run_patch(const patch *t, int64_t k, store_mode mode)
{
    vf acc[ROWS][VECS];
    const float *a = t->a, *b = t->b, *bias = t->bias;
    const int64_t c_row = t->c_row;
    float *c = t->c;
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
        for (int v = 0; v < VECS; v++)
            acc[i][v] = vf_zero();
    int64_t p = 0;
    for (int line = 0; line < ROWS * VECS && p + PACE <= k; line++, p += PACE) {
        _mm_prefetch((const char *)(c + line / VECS * c_row + line % VECS * VL), _MM_HINT_T0);
        patch_steps(acc, a + p * ROWS, b + p * COLS);
    }
    for (; p + PACE <= k; p += PACE) {
        fetch_some(t->next);
        patch_steps(acc, a + p * ROWS, b + p * COLS);
    }
    for (; p < k; p++)
        patch_step(acc, a + p * ROWS, b + p * COLS);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
        for (int v = 0; v < VECS; v++) {
            float *to = c + i * c_row + v * VL;
            if (mode == STORE_BIAS)
                acc[i][v] = acc[i][v] + vf_load(bias + v * VL);
            if (mode == STORE_ADD)
                acc[i][v] = acc[i][v] + vf_load(to);
            vf_store(to, acc[i][v]);
        }
}

static __attribute__((noinline)) void patch_set(const patch *t, int64_t k)
{
    run_patch(t, k, STORE_SET);
}

static __attribute__((noinline)) void patch_bias(const patch *t, int64_t k)
{
    run_patch(t, k, STORE_BIAS);
}

static __attribute__((noinline)) void patch_add(const patch *t, int64_t k)
{
    run_patch(t, k, STORE_ADD);
}

/* A patch over the edge of C: whole in a buffer, then its part. */
static void edge_patch(const patch *t, int64_t k, store_mode mode, int rows, int cols)
{
    float buffer[ROWS * COLS];
    const patch whole = {t->a, t->b, buffer, COLS, NULL, t->next};
    patch_set(&whole, k);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float *c = t->c + i * t->c_row + j;
            const float x = buffer[i * COLS + j];
            *c = mode == STORE_ADD ? x + *c : mode == STORE_BIAS ? x + t->bias[j] : x;
        }
}

static void any_patch(const patch *t, int64_t k, store_mode mode, int rows, int cols)
{
    if (rows < ROWS || cols < COLS)
        edge_patch(t, k, mode, rows, cols);
    else if (mode == STORE_SET)
        patch_set(t, k);
    else if (mode == STORE_BIAS)
        patch_bias(t, k);
    else
        patch_add(t, k);
}

/* --- packing --- */

/* VL lines of source, each `k` long, as columns: r[q] holds element q of every line. */
VEC_INLINE void load_columns(const float *src, int64_t stride, int lines, int k, vf r[VL])
{
    for (int i = 0; i < VL; i++)
        r[i] = i < lines ? vf_load_n(src + i * stride, k) : vf_zero();
    vf_transpose(r);
}

/* VL rows of A that are contiguous along p, into two panels of ROWS. */
VEC_INLINE void pack_a_step(const float *src, int64_t stride, int lines, int k, float *to[2])
{
    vf r[VL];
    load_columns(src, stride, lines, k, r);
    for (int q = 0; q < k; q++) {
        vf_store_low(to[0] + q * ROWS, r[q]);
        vf_store_high(to[1] + q * ROWS, r[q]);
    }
}

/* rows x depth of A from (i, p) on, as panels [depth][ROWS]; rows beyond the end are 0. */
static void pack_a_lines(const float *src, int64_t stride, int64_t rows, int64_t depth, float *to)
{
    for (int64_t i = 0; i < rows; i += VL) {
        const int lines = (int)ech_cpu_min(VL, rows - i);
        float *panel[2] = {to + i * depth, to + (i + ROWS) * depth};
        for (int64_t p = 0; p < depth; p += VL, panel[0] += VL * ROWS, panel[1] += VL * ROWS) {
            const float *from = src + i * stride + p;
            if (lines == VL && p + VL <= depth)
                pack_a_step(from, stride, VL, VL, panel);
            else
                pack_a_step(from, stride, lines, (int)ech_cpu_min(VL, depth - p), panel);
        }
    }
}

/* The same where A is contiguous along i: by groups of panels, so that few places are written at a
 * time. */
static void pack_a_columns(const float *src, int64_t stride, int64_t rows, int64_t depth, float *to)
{
    enum { GROUP = 8 * VL };
    for (int64_t begin = 0; begin < rows; begin += GROUP) {
        const int64_t end = ech_cpu_min(rows, begin + GROUP);
        for (int64_t p = 0; p < depth; p++)
            for (int64_t i = begin; i < end; i += VL) {
                const vf v = vf_load_n(src + p * stride + i, (int)ech_cpu_min(VL, rows - i));
                vf_store_low(to + i * depth + p * ROWS, v);
                vf_store_high(to + (i + ROWS) * depth + p * ROWS, v);
            }
    }
}

/* VL columns of B that are contiguous along p. */
VEC_INLINE void pack_b_step(const float *src, int64_t stride, int lines, int k, float *to)
{
    vf r[VL];
    load_columns(src, stride, lines, k, r);
    for (int q = 0; q < k; q++)
        vf_store(to + q * COLS, r[q]);
}

/* depth x cols of B as a panel [depth][COLS], B contiguous along p; columns beyond cols are 0. */
static void pack_b_lines(const float *src, int64_t stride, int cols, int64_t depth, float *to)
{
    for (int v = 0; v < VECS; v++) {
        const int lines = (int)ech_cpu_min(VL, ech_cpu_min(VL, cols - v * VL));
        const float *from = src + v * VL * stride;
        for (int64_t p = 0; p < depth; p += VL) {
            if (lines == VL && p + VL <= depth)
                pack_b_step(from + p, stride, VL, VL, to + p * COLS + v * VL);
            else
                pack_b_step(from + p, stride, lines, (int)ech_cpu_min(VL, depth - p),
                            to + p * COLS + v * VL);
        }
    }
}

/* The same where B is contiguous along j. */
static void pack_b_columns(const float *src, int64_t stride, int cols, int64_t depth, float *to)
{
    for (int64_t p = 0; p < depth; p++)
        for (int v = 0; v < VECS; v++) {
            const int lanes = (int)ech_cpu_min(VL, cols - v * VL);
            const vf x = lanes > 0 ? vf_load_n(src + p * stride + v * VL, lanes) : vf_zero();
            vf_store(to + p * COLS + v * VL, x);
        }
}

static void pack_a(const ech_cpu_gemm *g, int64_t i, int64_t rows, int64_t p, int64_t depth,
                   float *to)
{
    const float *src = g->a + i * g->a_row + p * g->a_col;
    if (g->a_col == 1)
        pack_a_lines(src, g->a_row, rows, depth, to);
    else
        pack_a_columns(src, g->a_col, rows, depth, to);
}

static void pack_b(const ech_cpu_gemm *g, int64_t j, int cols, int64_t p, int64_t depth, float *to)
{
    const float *src = g->b + p * g->b_row + j * g->b_col;
    if (g->b_col == 1)
        pack_b_columns(src, g->b_row, cols, depth, to);
    else
        pack_b_lines(src, g->b_col, cols, depth, to);
}

/* Source of A: rows from i, one block from p. */
static ahead ahead_a(const ech_cpu_gemm *g, int64_t i, int64_t rows, int64_t p)
{
    const float *src = g->a + i * g->a_row + p * g->a_col;
    const int64_t depth = ech_cpu_min(DEPTH, g->k - p);
    if (depth <= 0)
        return (ahead){.rows = 0};
    return g->a_col == 1 ? ahead_of(src, g->a_row, rows, depth)
                         : ahead_of(src, g->a_col, depth, rows);
}

/* Source of B: one panel from j, one block from p. */
static ahead ahead_b(const ech_cpu_gemm *g, int64_t j, int64_t p)
{
    const float *src = g->b + p * g->b_row + j * g->b_col;
    const int64_t depth = ech_cpu_min(DEPTH, g->k - p), cols = ech_cpu_min(COLS, g->n - j);
    if (depth <= 0 || cols <= 0)
        return (ahead){.rows = 0};
    return g->b_col == 1 ? ahead_of(src, g->b_row, depth, cols)
                         : ahead_of(src, g->b_col, cols, depth);
}

/* --- tiles --- */

/* A product cut into tiles. */
typedef struct plan {
    const ech_cpu_gemm *g;
    int64_t tile_rows, tile_cols, row_tiles;
} plan;

/* Rows [i, i + rows), columns [j, j + cols) of C, cols <= COLS, over one block of p. */
typedef struct strip {
    int64_t i, rows, j;
    int cols;
    int64_t depth;
    float *a, *b; /* packed */
    fetches next;
} strip;

static void run_strip(const ech_cpu_gemm *g, strip *s, store_mode mode)
{
    for (int64_t i = 0; i < s->rows; i += ROWS) {
        const patch t = {.a = s->a + i * s->depth,
                         .b = s->b,
                         .c = g->c + (s->i + i) * g->c_row + s->j,
                         .c_row = g->c_row,
                         .bias = g->bias ? g->bias + s->j : NULL,
                         .next = &s->next};
        any_patch(&t, s->depth, mode, (int)ech_cpu_min(ROWS, s->rows - i), s->cols);
    }
}

static store_mode mode_of(const ech_cpu_gemm *g, int64_t p)
{
    if (p > 0 || g->is_added)
        return STORE_ADD;
    return g->bias ? STORE_BIAS : STORE_SET;
}

/* Columns [begin, end) of C for one block of p, its part of A being packed. */
static void run_block(const ech_cpu_gemm *g, strip *s, int64_t p, int64_t begin, int64_t end)
{
    s->next.a = ahead_a(g, s->i, s->rows, p + DEPTH);
    for (s->j = begin; s->j < end; s->j += COLS) {
        s->cols = (int)ech_cpu_min(COLS, end - s->j);
        pack_b(g, s->j, s->cols, p, s->depth, s->b);
        const bool is_last = s->j + COLS >= end;
        s->next.b = ahead_b(g, is_last ? begin : s->j + COLS, is_last ? p + DEPTH : p);
        run_strip(g, s, mode_of(g, p));
    }
}

static void tile_task(const void *ctx, int64_t task, int member)
{
    const plan *pl = ctx;
    const ech_cpu_gemm *g = pl->g;
    const int64_t begin = task / pl->row_tiles * pl->tile_cols;
    strip s = {.i = task % pl->row_tiles * pl->tile_rows, .a = ech_team_scratch(member)};
    s.b = s.a + DEPTH * TILE_ROWS;
    s.rows = ech_cpu_min(pl->tile_rows, g->m - s.i);
    for (int64_t p = 0; p < g->k; p += DEPTH) {
        s.depth = ech_cpu_min(DEPTH, g->k - p);
        pack_a(g, s.i, s.rows, p, s.depth, s.a);
        run_block(g, &s, p, begin, ech_cpu_min(g->n, begin + pl->tile_cols));
    }
}

static int64_t round_up(int64_t n, int64_t to)
{
    return ech_cpu_ceil_div(n, to) * to;
}

static int64_t n_tiles(const plan *pl)
{
    return pl->row_tiles * ech_cpu_ceil_div(pl->g->n, pl->tile_cols);
}

static plan plan_with(const ech_cpu_gemm *g, int64_t row_tiles, int64_t col_tiles)
{
    plan pl = {.g = g};
    pl.tile_rows = round_up(ech_cpu_ceil_div(g->m, row_tiles), VL);
    pl.row_tiles = ech_cpu_ceil_div(g->m, pl.tile_rows);
    pl.tile_cols = ech_cpu_min(TILE_COLS, round_up(ech_cpu_ceil_div(g->n, col_tiles), COLS));
    return pl;
}

/* Time of the busiest thread, in products of one element of C: its tiles, and their packing, which
 * takes some PACK products an element. */
static double cost_of(const plan *pl, int64_t threads)
{
    enum { PACK = 24 };
    const double rows = (double)pl->tile_rows, cols = (double)pl->tile_cols;
    const double rounds = (double)ech_cpu_ceil_div(n_tiles(pl), threads);
    return rounds * (rows * cols + PACK * rows + PACK * cols);
}

/* The cheapest of a few ways to give each thread one to three tiles. */
static plan plan_of(const ech_cpu_gemm *g)
{
    const int64_t threads = ech_team_size(g->threads);
    const int64_t least = ech_cpu_ceil_div(g->m, TILE_ROWS);
    plan best = plan_with(g, least, 1);
    double best_cost = cost_of(&best, threads);
    for (int64_t rows = least; rows == least || (rows <= 8 * least && rows * VL <= g->m); rows *= 2)
        for (int64_t each = 1; each <= 3; each++) {
            const plan pl = plan_with(g, rows, ech_cpu_ceil_div(each * threads, rows));
            const double cost = cost_of(&pl, threads);
            if (cost < best_cost) {
                best = pl;
                best_cost = cost;
            }
        }
    return best;
}

void ECH_CPU(gemm)(const ech_cpu_gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return;
    const plan pl = plan_of(g);
    ech_team_run(g->threads, n_tiles(&pl), tile_task, &pl);
}
