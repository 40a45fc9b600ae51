/* Causal attention, backward, from the stored log-sum-exp: of each pair of tiles the scores are
 * made again (Dao et al. 2022, arXiv:2205.14135, appendix B).  One task owns a group of a sequence,
 * so that dk and dv, sums over the group's heads and all later queries, have one writer and one
 * order. */
#include "kernels/cpu/simd/attention_tile.h"

/* A tile of queries at work; buffers in the member's scratch. */
typedef struct backward {
    float *query, *dout, *dquery;  /* [D][QUERIES] */
    float *query_rows, *dout_rows; /* [QUERIES][D] */
    float *keys, *values;          /* [KEYS][D] */
    float *p, *ds;                 /* [KEYS][QUERIES] */
    uint32_t *words;
    float *lse, *delta, *one; /* [QUERIES] */
} backward;

static backward backward_in(const attention *a, float *scratch)
{
    backward w = {.query = scratch};
    w.dout = w.query + a->width * QUERIES;
    w.dquery = w.dout + a->width * QUERIES;
    w.query_rows = w.dquery + a->width * QUERIES;
    w.dout_rows = w.query_rows + a->width * QUERIES;
    w.keys = w.dout_rows + a->width * QUERIES;
    w.values = w.keys + a->width * KEYS;
    w.p = w.values + a->width * KEYS;
    w.ds = w.p + KEYS * QUERIES;
    w.words = (uint32_t *)(void *)(w.ds + KEYS * QUERIES);
    w.lse = w.ds + 2 * KEYS * QUERIES;
    w.delta = w.lse + QUERIES;
    w.one = w.delta + QUERIES;
    return w;
}

static float dot(const float *x, const float *y, int64_t n)
{
    vf sum = vf_zero();
#define STEP(i, lanes) sum = vf_fma(vf_load_n(x + (i), lanes), vf_load_n(y + (i), lanes), sum)
    VEC_FOR(n, STEP);
#undef STEP
    return vf_sum(sum);
}

/* delta = dout . out; queries beyond the tile get an lse that makes their p zero. */
static void load_rows(const attention *a, const query_tile *q, const backward *w)
{
    const float *out = ech_cpu_in(a->call, 1) + out_at(a, q);
    const float *dout = ech_cpu_in(a->call, 3) + out_at(a, q);
    const float *lse =
        ech_cpu_in(a->call, 2) + ((q->b * a->seq + q->i) * a->groups + q->g) * a->r + q->h;
    for (int i = 0; i < QUERIES; i++) {
        const bool is_there = i < q->n;
        w->lse[i] = is_there ? lse[i * a->groups * a->r] : 1e30f;
        w->delta[i] =
            is_there ? dot(out + i * a->out_stride, dout + i * a->out_stride, a->width) : 0.0f;
        w->one[i] = 1.0f;
    }
}

static void backward_begin(const attention *a, const query_tile *q, const backward *w)
{
    const float *query = ech_cpu_in(a->call, 0) + qkv_at(a, q->b, q->i, q->g, q->h);
    load_packed(query, a->stride, q->n, a->width, w->query_rows);
    load_packed(ech_cpu_in(a->call, 3) + out_at(a, q), a->out_stride, q->n, a->width, w->dout_rows);
    load_transposed(w->query_rows, a->width, q->n, a->width, w->query);
    load_transposed(w->dout_rows, a->width, q->n, a->width, w->dout);
    load_rows(a, q, w);
    for (int64_t d = 0; d < a->width * QUERIES; d += VL)
        vf_store(w->dquery + d, vf_zero());
}

/* Scores in p and dout . v in ds become the weights of v and the gradients of the scores:
 * p = exp(scale s - lse), ds = scale p (m dp - delta), weight = p m, m = keep / (1 - p_drop). */
VEC_INLINE void pair_step(const attention *a, const backward *w, int at, int query)
{
    const vf scale = vf_set1(a->scale);
    vf p = vf_exp(vf_fma(vf_load(w->p + at), scale, vf_zero() - vf_load(w->lse + query)));
    vf dp = vf_load(w->ds + at);
    vf weight = p;
    if (a->dropout.is_on) {
        const vi word = vi_load(w->words + at), limit = vi_set1(a->dropout.limit);
        const vf m = vf_if_above(word, limit, vf_set1(a->dropout.scale));
        weight = p * m;
        dp = dp * m;
    }
    vf_store(w->p + at, weight);
    vf_store(w->ds + at, p * (dp - vf_load(w->delta + query)) * scale);
}

/* Of a block of keys: dx_j += sum over queries of pair[j][i] y_i, y rows of q or dout */
static void add_key_rows(const attention *a, const query_tile *q, key_block k, const float *pair,
                         const float *y, float *dx)
{
    const tile_product t = {.m = k.n,
                            .n = a->width,
                            .k = q->n - k.lane,
                            .a = pair + k.at * QUERIES + k.lane,
                            .a_row = QUERIES,
                            .a_col = 1,
                            .b = y + k.lane * a->width,
                            .b_row = a->width,
                            .c = dx + k.at * a->stride,
                            .c_row = a->stride,
                            .is_added = true};
    tile_multiply(&t);
}

/* The parts of one block, with the scores of the tile made and masked. */
static void backward_block(const attention *a, const query_tile *q, key_block k, const backward *w,
                           float *dkey)
{
    for (int i = k.at; i < k.at + k.n; i++)
        for (int v = k.lane; v < QUERIES; v += VL)
            pair_step(a, w, i * QUERIES + v, v);
    add_key_rows(a, q, k, w->p, w->dout_rows, dkey + a->width);
    add_key_rows(a, q, k, w->ds, w->query_rows, dkey);
    add_query_columns(a, k, w->keys, w->ds, w->dquery);
}

static void backward_keys(const attention *a, const query_tile *q, int64_t j, int n,
                          const backward *w)
{
    const int64_t start = qkv_at(a, q->b, j, q->g, a->r);
    const float *key = ech_cpu_in(a->call, 0) + start;
    float *dkey = ech_cpu_out(a->call, 4) + start;
    load_packed(key, a->stride, n, a->width, w->keys);
    load_packed(key + a->width, a->stride, n, a->width, w->values);
    key_block k;
    for (int at = 0; at < n; at += k.n) {
        k = block_from(q, j, n, at);
        score_block(a, k, w->keys, w->query, w->p);
        score_block(a, k, w->values, w->dout, w->ds);
    }
    if (is_masked(a, q, j, n))
        mask_tile(a, q, j, n, w->p);
    if (a->dropout.is_on)
        draw_tile(a, q, j, n, w->words);
    for (int at = 0; at < n; at += k.n) {
        k = block_from(q, j, n, at);
        backward_block(a, q, k, w, dkey);
    }
}

static void backward_tile(const attention *a, const query_tile *q, const backward *w)
{
    backward_begin(a, q, w);
    for (int64_t j = first_key(a, q); j < q->i + q->n; j += KEYS)
        backward_keys(a, q, j, (int)ech_cpu_min(KEYS, q->i + q->n - j), w);
    store_transposed(w->dquery, w->one, q->n, a->width,
                     ech_cpu_out(a->call, 4) + qkv_at(a, q->b, q->i, q->g, q->h), a->stride);
}

/* dk and dv of a group are summed in place from 0. */
static void clear_keys(const attention *a, int64_t b, int64_t g)
{
    for (int64_t i = 0; i < a->seq; i++) {
        float *dk = ech_cpu_out(a->call, 4) + qkv_at(a, b, i, g, a->r);
#define STEP(at, n) vf_store_n(dk + (at), vf_zero(), n)
        VEC_FOR(2 * a->width, STEP); /* dv follows dk */
#undef STEP
    }
}

static void attention_backward_task(const void *ctx, int64_t task, int member)
{
    const attention *a = ctx;
    query_tile q = {.b = task / a->groups, .g = task % a->groups};
    const backward w = backward_in(a, ech_team_scratch(member));
    clear_keys(a, q.b, q.g);
    for (q.h = 0; q.h < a->r; q.h++)
        for (q.i = 0; q.i < a->seq; q.i += QUERIES) {
            q.n = (int)ech_cpu_min(QUERIES, a->seq - q.i);
            backward_tile(a, &q, &w);
        }
}

/* dqkv from out, lse and dout */
void ECH_CPU(attention_backward)(const ech_kernel_call *call)
{
    if (is_left_to_ref(call))
        return;
    const attention a = attention_of(call);
    ech_team_run(call->threads, a.rows * a.groups, attention_backward_task, &a);
}
