/** @file kernels/cpu/simd/attention_tile.h
 *  What the forward and the backward of attention share: a tile of queries of one head against a
 *  tile of its keys, held as [key][query], so that vectors run along queries: row maxima and sums
 *  need no work across lanes, and keys and values are read where they lie.  Nothing of size s x s
 *  exists.  (Dao et al. 2022, arXiv:2205.14135; Dao 2023, arXiv:2307.08691.) */
#ifndef ECH_KERNELS_CPU_SIMD_ATTENTION_TILE_H
#define ECH_KERNELS_CPU_SIMD_ATTENTION_TILE_H

#include "kernels/cpu/simd/philox.h"
#include "kernels/cpu/simd/tile.h"
#include "kernels/cpu/simd/vec_math.h"
#include "kernels/cpu/team.h"

#include <math.h>

enum {
    QUERIES = 64,
    KEYS = 64,
    QUERY_VECS = QUERIES / VL,
    ATTENTION_SCRATCH = (7 * ECH_CPU_HEAD_DIM_MAX + 3 * KEYS + 8) * QUERIES
};
_Static_assert(ATTENTION_SCRATCH * 4 <= ECH_TEAM_SCRATCH_BYTES, "scratch of a member");

/** A call of attention or its backward. */
typedef struct attention {
    const ech_kernel_call *call;
    int64_t rows;                  /**< sequences */
    int64_t seq, groups, r, width; /**< width: D */
    int64_t window;                /**< 0: none */
    int64_t stride;                /**< of tokens in qkv */
    int64_t out_stride;            /**< of tokens in out */
    int64_t q_tiles;
    int64_t head0, heads; /**< of all ranks: the first of these, how many */
    float scale;
    philox_dropout dropout;
} attention;

/** Queries [i, i + n) of head h (0..r-1) of group g of sequence b. */
typedef struct query_tile {
    int64_t b, g, h, i;
    int n;
} query_tile;

/** Wider heads than the scratch of a member takes: the reference kernel runs the call instead. */
static inline bool is_left_to_ref(const ech_kernel_call *call)
{
    if (call->arg[0].dim[3] <= ECH_CPU_HEAD_DIM_MAX)
        return false;
    ech_kernel_set_ref()->kernel[call->kind](call);
    return true;
}

static inline attention attention_of(const ech_kernel_call *call)
{
    const int64_t *dim = call->arg[0].dim; /* [N, g, r + 2, D] */
    const int64_t r = dim[2] - 2;
    ECH_ASSERT(dim[3] <= ECH_CPU_HEAD_DIM_MAX);
    return (attention){.call = call,
                       .rows = dim[0] / call->attr[0],
                       .seq = call->attr[0],
                       .groups = dim[1],
                       .r = r,
                       .width = dim[3],
                       .window = call->attr[1],
                       .stride = dim[1] * dim[2] * dim[3],
                       .out_stride = dim[1] * r * dim[3],
                       .q_tiles = ech_cpu_ceil_div(call->attr[0], QUERIES),
                       .head0 = call->attr[3],
                       .heads = call->attr[4],
                       .scale = (float)call->real[0],
                       .dropout = philox_dropout_of(call, call->real[1], call->attr[2])};
}

/** Offset in qkv of head h of a group (r: keys, r + 1: values) at token i of sequence b. */
static inline int64_t qkv_at(const attention *a, int64_t b, int64_t i, int64_t g, int64_t h)
{
    return (b * a->seq + i) * a->stride + (g * (a->r + 2) + h) * a->width;
}

/** Offset in out. */
static inline int64_t out_at(const attention *a, const query_tile *q)
{
    return (q->b * a->seq + q->i) * a->out_stride + (q->g * a->r + q->h) * a->width;
}

/** First key that some query of the tile sees. */
static inline int64_t first_key(const attention *a, const query_tile *q)
{
    return a->window > 0 && q->i - a->window + 1 > 0 ? q->i - a->window + 1 : 0;
}

/** Rows of src [n][width] as columns of to [width][QUERIES]; columns from n on are 0. */
static inline void load_transposed(const float *src, int64_t stride, int n, int64_t width,
                                   float *to)
{
    for (int64_t i = 0; i < QUERIES; i += VL)
        for (int64_t d = 0; d < width; d += VL) {
            const int lanes = (int)ech_cpu_min(VL, width - d);
            vf r[VL];
            for (int k = 0; k < VL; k++)
                r[k] = i + k < n ? vf_load_n(src + (i + k) * stride + d, lanes) : vf_zero();
            vf_transpose(r);
            for (int k = 0; k < lanes; k++)
                vf_store(to + (d + k) * QUERIES + i, r[k]);
        }
}

/** Rows of src [n][width] next to each other: rows of tokens lie a large power of two or nearly so
 *  apart and would fall on few sets of the first cache. */
static inline void load_packed(const float *src, int64_t stride, int n, int64_t width, float *to)
{
    for (int i = 0; i < n; i++) {
#define STEP(at, lanes)                                                                            \
    vf_store_n(to + i * width + (at), vf_load_n(src + i * stride + (at), lanes), lanes)
        VEC_FOR(width, STEP);
#undef STEP
    }
}

/** Columns of src [width][QUERIES] as rows of to [n][width], each times its factor. */
static inline void store_transposed(const float *src, const float factor[QUERIES], int n,
                                    int64_t width, float *to, int64_t stride)
{
    for (int64_t i = 0; i < n; i += VL)
        for (int64_t d = 0; d < width; d += VL) {
            const int lanes = (int)ech_cpu_min(VL, width - d);
            vf r[VL];
            for (int k = 0; k < VL; k++)
                r[k] = vf_zero();
            for (int k = 0; k < lanes; k++)
                r[k] = vf_load(src + (d + k) * QUERIES + i) * vf_load(factor + i);
            vf_transpose(r);
            for (int k = 0; k < VL && i + k < n; k++)
                vf_store_n(to + (i + k) * stride + d, r[k], lanes);
        }
}

/** Keys [at, at + n) of a tile of keys, and the first vector of queries of which one sees any: on the
 *  diagonal a tile is taken in blocks of which the later ones leave out the earlier queries. */
typedef struct key_block {
    int at, n;
    int lane; /**< multiple of VL, < QUERIES */
} key_block;

/** The block from key `at` on of the tile of n keys that starts at j. */
static inline key_block block_from(const query_tile *q, int64_t j, int n, int at)
{
    enum { SIDE = 16 };
    if (j + n - 1 <= q->i)
        return (key_block){at, n, 0};
    const int64_t ahead = j + at - q->i;
    return (key_block){.at = at,
                       .n = n - at < SIDE ? n - at : SIDE,
                       .lane = ahead > 0 ? (int)(ahead / VL * VL) : 0};
}

/** scores[j][i] = x_j . column i of y, for a block of packed keys or values x, y [width][QUERIES]. */
static inline void score_block(const attention *a, key_block k, const float *x, const float *y,
                               float *scores)
{
    const tile_product t = {.m = k.n,
                            .n = QUERIES - k.lane,
                            .k = a->width,
                            .a = x + k.at * a->width,
                            .a_row = a->width,
                            .a_col = 1,
                            .b = y + k.lane,
                            .b_row = QUERIES,
                            .c = scores + k.at * QUERIES + k.lane,
                            .c_row = QUERIES};
    tile_multiply(&t);
}

/** sum [D][QUERIES] += X^T pair over the keys of a block, x [KEYS][D]. */
static inline void add_query_columns(const attention *a, key_block k, const float *x,
                                     const float *pair, float *sum)
{
    const tile_product t = {.m = a->width,
                            .n = QUERIES - k.lane,
                            .k = k.n,
                            .a = x + k.at * a->width,
                            .a_row = 1,
                            .a_col = a->width,
                            .b = pair + k.at * QUERIES + k.lane,
                            .b_row = QUERIES,
                            .c = sum + k.lane,
                            .c_row = QUERIES,
                            .is_added = true};
    tile_multiply(&t);
}

/** Does any query of the tile not see one of the keys [j, j + n). */
static inline bool is_masked(const attention *a, const query_tile *q, int64_t j, int n)
{
    return j + n - 1 > q->i || (a->window > 0 && j <= q->i + q->n - 1 - a->window);
}

/** Scores of pairs that do not see each other become -inf. */
static inline void mask_tile(const attention *a, const query_tile *q, int64_t j, int n,
                             float *scores)
{
    const vf hidden = vf_set1(-INFINITY);
    for (int k = 0; k < n; k++)
        for (int v = 0; v < QUERY_VECS; v++) {
            float *at = scores + k * QUERIES + v * VL;
            const vf query = vf_lanes() + vf_set1((float)(q->i + v * VL));
            const vf key = vf_set1((float)(j + k));
            vf s = vf_if_less(query, key, hidden, vf_load(at));
            if (a->window > 0)
                s = vf_if_less(query - vf_set1((float)a->window), key, s, hidden);
            vf_store(at, s);
        }
}

/** Words of QUERIES elements, one per query: element e of query i is first + i * seq. */
static inline void draw_queries(const attention *a, uint64_t first, uint32_t by_word[4][QUERIES])
{
    uint32_t low[QUERIES], high[QUERIES];
    for (int i = 0; i < QUERIES; i++) {
        const uint64_t block = (first + (uint64_t)i * (uint64_t)a->seq) / 4;
        low[i] = (uint32_t)block;
        high[i] = (uint32_t)(block >> 32);
    }
    for (int i = 0; i < QUERIES; i += VL) {
        vi word[4];
        philox_blocks(&a->dropout.key, vi_load(low + i), vi_load(high + i), word);
        for (int w = 0; w < 4; w++)
            vi_store(by_word[w] + i, word[w]);
    }
}

/** Words of the scores of keys [j, j + n) into words[key][query].  Element of a score:
 *  ((row a + first + head) s + i) s + j.  Where s is a multiple of four, so is the distance of two
 *  queries, and one draw serves four keys. */
static inline void draw_tile(const attention *a, const query_tile *q, int64_t j, int n,
                             uint32_t *words)
{
    const int64_t row = a->call->rng.row0 + q->b;
    const int64_t head = row * a->heads + a->head0 + q->g * a->r + q->h;
    const uint64_t first = (uint64_t)((head * a->seq + q->i) * a->seq + j);
    uint32_t by_word[4][QUERIES];
    for (int k = 0; k < n; k++) {
        const uint64_t element = first + (uint64_t)k;
        if (k == 0 || a->seq % 4 != 0 || element % 4 == 0)
            draw_queries(a, element, by_word);
        for (int i = 0; i < QUERIES; i++)
            words[k * QUERIES + i] = by_word[(element + (uint64_t)i * (uint64_t)a->seq) % 4][i];
    }
}

#endif
