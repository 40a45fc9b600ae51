/* Causal attention, forward: online softmax over tiles of keys (Milakov & Gimelshein 2018,
 * arXiv:1805.02867), see attention_tile.h. */
#include "kernels/cpu/simd/attention_tile.h"

/* A tile of queries at work; buffers in the member's scratch. */
typedef struct forward {
    float *query;         /* [D][QUERIES] */
    float *sum;           /* [D][QUERIES]: sum of p v, not yet divided by total */
    float *keys, *values; /* [KEYS][D] */
    float *scores;        /* [KEYS][QUERIES] */
    uint32_t *words;
    float *max, *total, *factor; /* [QUERIES] */
} forward;

static forward forward_in(const attention *a, float *scratch)
{
    forward f = {.query = scratch};
    f.sum = f.query + a->width * QUERIES;
    f.keys = f.sum + a->width * QUERIES;
    f.values = f.keys + a->width * KEYS;
    f.scores = f.values + a->width * KEYS;
    f.words = (uint32_t *)(void *)(f.scores + KEYS * QUERIES);
    f.max = f.scores + 2 * KEYS * QUERIES;
    f.total = f.max + QUERIES;
    f.factor = f.total + QUERIES;
    return f;
}

static void forward_begin(const attention *a, const query_tile *q, forward *f)
{
    const float *src = ech_cpu_in(a->call, 0) + qkv_at(a, q->b, q->i, q->g, q->h);
    load_transposed(src, a->stride, q->n, a->width, f->query);
    for (int64_t d = 0; d < a->width; d++)
        for (int v = 0; v < QUERIES; v += VL)
            vf_store(f->sum + d * QUERIES + v, vf_zero());
    for (int v = 0; v < QUERIES; v += VL) {
        vf_store(f->max + v, vf_set1(-1e30f)); /* finite: the difference of two is a number */
        vf_store(f->total + v, vf_zero());
    }
}

/* Of VL queries and n keys: scores become p = exp(scale s - max), sums follow. */
VEC_INLINE void softmax_step(const attention *a, const forward *f, int at, int n)
{
    const vf scale = vf_set1(a->scale);
    const vf old = vf_load(f->max + at);
    vf top = vf_set1(-INFINITY);
    for (int k = 0; k < n; k++)
        top = vf_max(top, vf_load(f->scores + k * QUERIES + at));
    const vf max = vf_max(top * scale, old);
    const vf minus = vf_zero() - max;
    vf total = vf_zero();
    for (int k = 0; k < n; k++) {
        float *s = f->scores + k * QUERIES + at;
        const vf p = vf_exp(vf_fma(vf_load(s), scale, minus));
        total = total + p;
        vf_store(s, p);
    }
    const vf factor = vf_exp(old - max);
    vf_store(f->max + at, max);
    vf_store(f->factor + at, factor);
    vf_store(f->total + at, vf_fma(vf_load(f->total + at), factor, total));
}

/* p of dropped scores becomes 0, of kept ones p / (1 - p_drop). */
static void drop_tile(const attention *a, const query_tile *q, int64_t j, int n, const forward *f)
{
    const vi limit = vi_set1(a->dropout.limit);
    const vf scale = vf_set1(a->dropout.scale);
    draw_tile(a, q, j, n, f->words);
    for (int i = 0; i < n * QUERIES; i += VL)
        vf_store(f->scores + i,
                 vf_if_above(vi_load(f->words + i), limit, vf_load(f->scores + i) * scale));
}

/* sum = factor sum */
static void rescale(const attention *a, const forward *f)
{
    for (int64_t d = 0; d < a->width; d++)
        for (int v = 0; v < QUERIES; v += VL) {
            float *sum = f->sum + d * QUERIES + v;
            vf_store(sum, vf_load(sum) * vf_load(f->factor + v));
        }
}

static void forward_keys(const attention *a, const query_tile *q, int64_t j, int n,
                         const forward *f)
{
    const float *key = ech_cpu_in(a->call, 0) + qkv_at(a, q->b, j, q->g, a->r);
    load_packed(key, a->stride, n, a->width, f->keys);
    load_packed(key + a->width, a->stride, n, a->width, f->values);
    key_block k;
    for (int at = 0; at < n; at += k.n) {
        k = block_from(q, j, n, at);
        score_block(a, k, f->keys, f->query, f->scores);
    }
    if (is_masked(a, q, j, n))
        mask_tile(a, q, j, n, f->scores);
    for (int v = 0; v < QUERIES; v += VL)
        softmax_step(a, f, v, n);
    if (a->dropout.is_on)
        drop_tile(a, q, j, n, f);
    rescale(a, f);
    for (int at = 0; at < n; at += k.n) {
        k = block_from(q, j, n, at);
        add_query_columns(a, k, f->values, f->scores, f->sum);
    }
}

/* out = sum / total, lse = max + log total */
static void forward_end(const attention *a, const query_tile *q, const forward *f)
{
    for (int v = 0; v < QUERIES; v += VL)
        vf_store(f->factor + v, vf_set1(1.0f) / vf_load(f->total + v));
    store_transposed(f->sum, f->factor, q->n, a->width, ech_cpu_out(a->call, 1) + out_at(a, q),
                     a->out_stride);
    float *lse =
        ech_cpu_out(a->call, 2) + ((q->b * a->seq + q->i) * a->groups + q->g) * a->r + q->h;
    for (int i = 0; i < q->n; i++)
        lse[i * a->groups * a->r] = f->max[i] + logf(f->total[i]);
}

/* The tiles of a head follow one another, so that its keys stay in a near cache; the last tile,
 * which sees most keys, first. */
static void attention_task(const void *ctx, int64_t task, int member)
{
    const attention *a = ctx;
    const int64_t head = task / a->q_tiles;
    query_tile q = {.b = head / a->r / a->groups,
                    .g = head / a->r % a->groups,
                    .h = head % a->r,
                    .i = (a->q_tiles - 1 - task % a->q_tiles) * QUERIES};
    q.n = (int)ech_cpu_min(QUERIES, a->seq - q.i);
    forward f = forward_in(a, ech_team_scratch(member));
    forward_begin(a, &q, &f);
    for (int64_t j = first_key(a, &q); j < q.i + q.n; j += KEYS)
        forward_keys(a, &q, j, (int)ech_cpu_min(KEYS, q.i + q.n - j), &f);
    forward_end(a, &q, &f);
}

/* out = softmax(scale q k^T) v under the causal mask, lse the log-sum-exp of each row */
void ECH_CPU(attention)(const ech_kernel_call *call)
{
    if (is_left_to_ref(call))
        return;
    const attention a = attention_of(call);
    ech_team_run(call->threads, a.q_tiles * a.rows * a.groups * a.r, attention_task, &a);
}
