/* Causal attention over qkv [N, g, r + 2, D]: the r query heads of a group share its key and value.
 * Nothing of size s x s is held: a first pass over the keys makes the row's log-sum-exp, a second
 * the output (Milakov & Gimelshein 2018, arXiv:1805.02867; the backward from the stored lse is that
 * of Dao et al. 2022, arXiv:2205.14135, appendix B). */

/* Sizes of a call, and the dropout of its scores. */
typedef struct attention_shape {
    int64_t seq, groups, r, width; /* width: D */
    int64_t window;                /* 0: none */
    int64_t head0, heads;          /* of all ranks: the first of these, how many */
    double scale;
    double p; /* 0: no dropout */
    ech_rng_key key;
    int64_t row0;
} attention_shape;

/* What one query sees: keys and values of positions [lo, hi), `stride` elements apart. */
typedef struct attention_keys {
    const REAL *k, *v; /* of position 0 */
    int64_t stride, lo, hi;
    uint64_t element; /* dropout index of position 0 */
} attention_keys;

static attention_shape shape_of(const ech_kernel_call *call)
{
    attention_shape a = {.seq = call->attr[0],
                         .groups = call->arg[0].dim[1],
                         .r = call->arg[0].dim[2] - 2,
                         .width = call->arg[0].dim[3],
                         .window = call->attr[1],
                         .head0 = call->attr[3],
                         .heads = call->attr[4],
                         .scale = call->real[0],
                         .p = call->real[1],
                         .row0 = call->rng.row0};
    if (a.p > 0.0)
        a.key = dropout_key(call, call->attr[2]);
    return a;
}

/* First key visible to query i: j > i - window. */
static inline int64_t first_visible(int64_t i, int64_t window)
{
    return window > 0 && i - window + 1 > 0 ? i - window + 1 : 0;
}

/* Where head h (r: key, r + 1: value) of a group starts in qkv. */
static inline int64_t head_at(const attention_shape *a, int64_t n, int64_t g, int64_t h)
{
    return ((n * a->groups + g) * (a->r + 2) + h) * a->width;
}

/* Keys of query i of a sequence whose first token is n0; element index of score j, with a heads of
 * all ranks: ((row a + first + head) s + i) s + j. */
static attention_keys keys_of(const attention_shape *a, const REAL *qkv, int64_t n0, int64_t g,
                              int64_t h, int64_t i)
{
    const int64_t row = a->row0 + n0 / a->seq;
    const int64_t head = a->head0 + g * a->r + h;
    return (attention_keys){.k = qkv + head_at(a, n0, g, a->r),
                            .v = qkv + head_at(a, n0, g, a->r + 1),
                            .stride = a->groups * (a->r + 2) * a->width,
                            .lo = first_visible(i, a->window),
                            .hi = i + 1,
                            .element = (uint64_t)(((row * a->heads + head) * a->seq + i) * a->seq)};
}

/* m of score j: 1 / (1 - p) if it is kept, else 0. */
static inline double dropout_factor(const attention_shape *a, const attention_keys *keys, int64_t j)
{
    if (a->p <= 0.0)
        return 1.0;
    const uint32_t word = ech_rng_u32(&a->key, keys->element + (uint64_t)j);
    return ech_rng_is_kept(word, a->p) ? 1.0 / (1.0 - a->p) : 0.0;
}

/* s_j = scale q . k_j */
static inline double score(const attention_shape *a, const REAL *q, const attention_keys *keys,
                           int64_t j)
{
    return a->scale * dot(q, keys->k + j * keys->stride, a->width);
}

/* log sum_j exp(s_j), with the running maximum taken out */
static double log_sum_exp(const attention_shape *a, const REAL *q, const attention_keys *keys)
{
    double max = -INFINITY;
    double sum = 0.0;
    for (int64_t j = keys->lo; j < keys->hi; j++) {
        const double s = score(a, q, keys, j);
        if (s > max) {
            sum = sum * exp(max - s) + 1.0;
            max = s;
        } else {
            sum += exp(s - max);
        }
    }
    return max + log(sum);
}

/* y = sum_j m_j exp(s_j - lse) v_j; returns lse */
static double attend(const attention_shape *a, const REAL *q, const attention_keys *keys, REAL *y)
{
    const double lse = log_sum_exp(a, q, keys);
    for (int64_t c = 0; c < a->width; c += TILE) {
        const int64_t width = tile_size(c, a->width);
        double acc[TILE] = {0};
        for (int64_t j = keys->lo; j < keys->hi; j++) {
            const double w = exp(score(a, q, keys, j) - lse) * dropout_factor(a, keys, j);
            axpy(acc, w, keys->v + j * keys->stride + c, width);
        }
        store_tile(y + c, 1.0, acc, width);
    }
    return lse;
}

/* out[n, g, h] = attend(q of n, g, h) */
static void attention(const ech_kernel_call *call)
{
    const attention_shape a = shape_of(call);
    const int64_t n_rows = call->arg[0].dim[0];
    const REAL *qkv = in(call, 0);
    for (int64_t n = 0; n < n_rows; n++) {
        const int64_t i = n % a.seq;
        for (int64_t g = 0; g < a.groups; g++) {
            for (int64_t h = 0; h < a.r; h++) {
                const attention_keys keys = keys_of(&a, qkv, n - i, g, h, i);
                const int64_t at = (n * a.groups + g) * a.r + h; /* in [N, g, r] */
                const double lse =
                    attend(&a, qkv + head_at(&a, n, g, h), &keys, out(call, 1) + at * a.width);
                out(call, 2)[at] = (REAL)lse;
            }
        }
    }
}

/* One query as the backward sees it. */
typedef struct attention_query {
    const REAL *q, *dout;
    attention_keys keys;
    double lse;
    double delta; /* dout . out = sum_j p_j m_j (dout . v_j) */
} attention_query;

static attention_query query_of(const ech_kernel_call *call, const attention_shape *a, int64_t n,
                                int64_t g, int64_t h)
{
    const REAL *qkv = in(call, 0);
    const int64_t i = n % a->seq;
    const int64_t at = (n * a->groups + g) * a->r + h;
    const REAL *dout = in(call, 3) + at * a->width;
    return (attention_query){.q = qkv + head_at(a, n, g, h),
                             .dout = dout,
                             .keys = keys_of(a, qkv, n - i, g, h, i),
                             .lse = (double)in(call, 2)[at],
                             .delta = dot(dout, in(call, 1) + at * a->width, a->width)};
}

/* p_j m_j, the weight of v_j, and the gradient of s_j: p_j (m_j dout . v_j - delta) */
typedef struct attention_pair {
    double weight, dscore;
} attention_pair;

static attention_pair pair_of(const attention_shape *a, const attention_query *query, int64_t j)
{
    const attention_keys *keys = &query->keys;
    const double p = exp(score(a, query->q, keys, j) - query->lse);
    const double m = dropout_factor(a, keys, j);
    const double dp = m > 0.0 ? m * dot(query->dout, keys->v + j * keys->stride, a->width) : 0.0;
    return (attention_pair){.weight = p * m, .dscore = p * (dp - query->delta)};
}

/* dq = scale sum_j dscore_j k_j */
static void query_backward(const attention_shape *a, const attention_query *query, REAL *dq)
{
    const attention_keys *keys = &query->keys;
    for (int64_t c = 0; c < a->width; c += TILE) {
        const int64_t width = tile_size(c, a->width);
        double acc[TILE] = {0};
        for (int64_t j = keys->lo; j < keys->hi; j++) {
            const attention_pair pair = pair_of(a, query, j);
            axpy(acc, pair.dscore, keys->k + j * keys->stride + c, width);
        }
        store_tile(dq + c, a->scale, acc, width);
    }
}

/* Of the key and value at token n, columns [c, c + width): over all queries i >= j of the group's r
 * heads, dk = scale sum dscore q, dv = sum weight dout */
static void key_backward(const ech_kernel_call *call, const attention_shape *a, int64_t n,
                         int64_t g, int64_t c)
{
    const int64_t width = tile_size(c, a->width);
    const int64_t j = n % a->seq;
    const int64_t end = a->window > 0 && j + a->window < a->seq ? j + a->window : a->seq;
    double dk[TILE] = {0};
    double dv[TILE] = {0};
    for (int64_t i = j; i < end; i++) {
        for (int64_t h = 0; h < a->r; h++) {
            const attention_query query = query_of(call, a, n - j + i, g, h);
            const attention_pair pair = pair_of(a, &query, j);
            axpy(dk, pair.dscore, query.q + c, width);
            axpy(dv, pair.weight, query.dout + c, width);
        }
    }
    REAL *dqkv = out(call, 4);
    store_tile(dqkv + head_at(a, n, g, a->r) + c, a->scale, dk, width);
    store_tile(dqkv + head_at(a, n, g, a->r + 1) + c, 1.0, dv, width);
}

/* dq by queries, dk and dv by keys: every element has one writer, every sum one order. */
static void attention_backward(const ech_kernel_call *call)
{
    const attention_shape a = shape_of(call);
    const int64_t n_rows = call->arg[0].dim[0];
    for (int64_t n = 0; n < n_rows; n++) {
        for (int64_t g = 0; g < a.groups; g++) {
            for (int64_t h = 0; h < a.r; h++) {
                const attention_query query = query_of(call, &a, n, g, h);
                query_backward(&a, &query, out(call, 4) + head_at(&a, n, g, h));
            }
            for (int64_t c = 0; c < a.width; c += TILE)
                key_backward(call, &a, n, g, c);
        }
    }
}

/* cache[first + n] = k, v of each of the n new tokens */
static void store_in_cache(const ech_kernel_call *call, const attention_shape *a, int64_t first)
{
    const int64_t n_rows = call->arg[0].dim[0];
    const size_t bytes = (size_t)a->width * sizeof(REAL);
    for (int64_t n = 0; n < n_rows; n++) {
        for (int64_t g = 0; g < a->groups; g++) {
            const int64_t at = ((first + n) * a->groups + g) * a->width;
            memcpy(out(call, 1) + at, in(call, 0) + head_at(a, n, g, a->r), bytes);
            memcpy(out(call, 2) + at, in(call, 0) + head_at(a, n, g, a->r + 1), bytes);
        }
    }
}

/* New token n stands at position first + n and sees the cache up to itself. */
static void attention_cached(const ech_kernel_call *call)
{
    const attention_shape a = {.groups = call->arg[0].dim[1],
                               .r = call->arg[0].dim[2] - 2,
                               .width = call->arg[0].dim[3],
                               .window = call->attr[0],
                               .scale = call->real[0]};
    const int64_t n_rows = call->arg[0].dim[0];
    const int64_t first = first_position(&call->arg[3]);
    store_in_cache(call, &a, first);
    for (int64_t n = 0; n < n_rows; n++) {
        for (int64_t g = 0; g < a.groups; g++) {
            const attention_keys keys = {.k = in(call, 1) + g * a.width,
                                         .v = in(call, 2) + g * a.width,
                                         .stride = a.groups * a.width,
                                         .lo = first_visible(first + n, a.window),
                                         .hi = first + n + 1};
            for (int64_t h = 0; h < a.r; h++) {
                REAL *y = out(call, 4) + ((n * a.groups + g) * a.r + h) * a.width;
                (void)attend(&a, in(call, 0) + head_at(&a, n, g, h), &keys, y);
            }
        }
    }
}
