/* RUN: np=1 timeout=30 tags=fast */
/* Rotary layouts: a llama2.c file (adjacent pairs) and the HF folder made of it (half-split) give
 * the logits of a plain forward pass written here from the file's own layout, for MHA, GQA 4:2 and
 * MQA.  Loading, training and a falling loss would not tell: only logits do. */
#include "check.h"
#include "folder.h"
#include "hf.h"

#include "base/io.h"
#include "base/rng.h"
#include "train/generate.h"
#include "train/weights.h"

#include <math.h>
#include <stdlib.h>

enum { DIM = 24, HIDDEN = 20, LAYERS = 2, HEADS = 4, D = DIM / HEADS, VOCAB = 19, SEQ = 9 };

static const int32_t words[SEQ] = {1, 7, 7, 0, 18, 3, 11, 5, 2};

/* --- the file --- */

/* Where the arrays of the file lie, all layers in turn. */
typedef struct source {
    float *all;
    int64_t n;
    int kv_heads;
    const float *embed, *attn_norm, *wq, *wk, *wv, *wo, *ffn_norm, *w1, *w2, *w3, *norm, *head;
} source;

static const float *cut(source *s, int64_t n)
{
    const float *at = s->all + s->n;
    s->n += n;
    return at;
}

static void lay_out(source *s)
{
    const int64_t kv = s->kv_heads * D;
    s->n = 0;
    s->embed = cut(s, VOCAB * DIM);
    s->attn_norm = cut(s, LAYERS * DIM);
    s->wq = cut(s, LAYERS * DIM * DIM);
    s->wk = cut(s, LAYERS * kv * DIM);
    s->wv = cut(s, LAYERS * kv * DIM);
    s->wo = cut(s, LAYERS * DIM * DIM);
    s->ffn_norm = cut(s, LAYERS * DIM);
    s->w1 = cut(s, LAYERS * HIDDEN * DIM);
    s->w2 = cut(s, LAYERS * DIM * HIDDEN);
    s->w3 = cut(s, LAYERS * HIDDEN * DIM);
    s->norm = cut(s, DIM);
    (void)cut(s, SEQ * D); /* the old rotary tables */
    s->head = cut(s, VOCAB * DIM);
}

static void source_init(source *s, int kv_heads)
{
    const ech_rng_key key = ech_rng_key_make(11, ECH_RNG_TEST, kv_heads, 0);
    *s = (source){.kv_heads = kv_heads, .all = calloc(1 << 16, sizeof(float))};
    assert_non_null(s->all);
    lay_out(s);
    assert_in_range(s->n, 1, 1 << 16);
    for (int64_t i = 0; i < s->n; i++)
        s->all[i] = (float)(0.4 * ech_rng_normal(&key, (uint64_t)i));
}

static void source_write(const source *s, const char *path)
{
    const int32_t header[7] = {DIM, HIDDEN, LAYERS, HEADS, s->kv_heads, -VOCAB, SEQ};
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, sizeof header, 1, f), 1);
    assert_int_equal(fwrite(s->all, sizeof(float), (size_t)s->n, f), s->n);
    assert_int_equal(fclose(f), 0);
}

/* --- a plain forward pass in double, from the file's layout --- */

/* y[o] = sum_i w[o, i] x[i] */
static void times(const float *w, const double *x, int n_out, int n_in, double *y)
{
    for (int o = 0; o < n_out; o++) {
        y[o] = 0.0;
        for (int i = 0; i < n_in; i++)
            y[o] += (double)w[o * n_in + i] * x[i];
    }
}

static void rmsnorm(const float *gamma, const double *x, double *y)
{
    double sum = 0.0;
    for (int i = 0; i < DIM; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < DIM; i++)
        y[i] = (double)gamma[i] * x[i] / sqrt(sum / DIM + 1e-5);
}

/* Pair i of a head turned by position / 10000^(2 i / D): elements (2i, 2i + 1) as Meta has them, or
 * (i, i + D/2) as HF has them. */
static void rotate(double *head, int position, bool is_interleaved)
{
    for (int i = 0; i < D / 2; i++) {
        const double angle = position * pow(10000.0, -2.0 * i / D);
        double *a = &head[is_interleaved ? 2 * i : i];
        double *b = &head[is_interleaved ? 2 * i + 1 : i + D / 2];
        const double x = *a;
        *a = x * cos(angle) - *b * sin(angle);
        *b = x * sin(angle) + *b * cos(angle);
    }
}

/* One query head over positions 0..t; k and v are [SEQ, HEADS, D] of which kv heads are used. */
static void attend(const double *q, double (*k)[HEADS][D], double (*v)[HEADS][D], int kv, int t,
                   double *out)
{
    double weight[SEQ];
    double sum = 0.0;
    for (int j = 0; j <= t; j++) {
        double score = 0.0;
        for (int e = 0; e < D; e++)
            score += q[e] * k[j][kv][e];
        weight[j] = exp(score / sqrt((double)D));
        sum += weight[j];
    }
    for (int e = 0; e < D; e++) {
        out[e] = 0.0;
        for (int j = 0; j <= t; j++)
            out[e] += weight[j] / sum * v[j][kv][e];
    }
}

static void attention(const source *s, int layer, bool is_interleaved, double (*x)[DIM])
{
    static double k[SEQ][HEADS][D];
    static double v[SEQ][HEADS][D];
    const int kv_dim = s->kv_heads * D;
    for (int t = 0; t < SEQ; t++) {
        double y[DIM];
        double q[HEADS][D];
        double out[DIM];
        rmsnorm(s->attn_norm + layer * DIM, x[t], y);
        times(s->wq + layer * DIM * DIM, y, DIM, DIM, q[0]);
        times(s->wk + layer * kv_dim * DIM, y, kv_dim, DIM, k[t][0]);
        times(s->wv + layer * kv_dim * DIM, y, kv_dim, DIM, v[t][0]);
        for (int h = 0; h < s->kv_heads; h++)
            rotate(k[t][h], t, is_interleaved);
        for (int h = 0; h < HEADS; h++) {
            rotate(q[h], t, is_interleaved);
            attend(q[h], k, v, h / (HEADS / s->kv_heads), t, out + h * D);
        }
        times(s->wo + layer * DIM * DIM, out, DIM, DIM, y);
        for (int i = 0; i < DIM; i++)
            x[t][i] += y[i];
    }
}

static void mlp(const source *s, int layer, double *x)
{
    double y[DIM];
    double gate[HIDDEN];
    double up[HIDDEN];
    rmsnorm(s->ffn_norm + layer * DIM, x, y);
    times(s->w1 + layer * HIDDEN * DIM, y, HIDDEN, DIM, gate);
    times(s->w3 + layer * HIDDEN * DIM, y, HIDDEN, DIM, up);
    for (int i = 0; i < HIDDEN; i++)
        up[i] *= gate[i] / (1.0 + exp(-gate[i]));
    times(s->w2 + layer * DIM * HIDDEN, up, DIM, HIDDEN, y);
    for (int i = 0; i < DIM; i++)
        x[i] += y[i];
}

static void plain_logits(const source *s, bool is_interleaved, double *out)
{
    double x[SEQ][DIM];
    for (int t = 0; t < SEQ; t++)
        for (int i = 0; i < DIM; i++)
            x[t][i] = (double)s->embed[words[t] * DIM + i];
    for (int layer = 0; layer < LAYERS; layer++) {
        attention(s, layer, is_interleaved, x);
        for (int t = 0; t < SEQ; t++)
            mlp(s, layer, x[t]);
    }
    for (int t = 0; t < SEQ; t++) {
        double y[DIM];
        rmsnorm(s->norm, x[t], y);
        times(s->head, y, VOCAB, DIM, out + t * VOCAB);
    }
}

/* --- Echelon's --- */

static void logits_of(const char *path, ech_dtype real, double *out)
{
    ech_weights w = {0};
    ech_generator *g = NULL;
    assert_ok(ech_weights_open(path, &w));
    const ech_generator_config c = {.model = &w.folder.model,
                                    .canon = &w.folder.canon,
                                    .real = real,
                                    .context = SEQ,
                                    .chunk = SEQ,
                                    .threads = 1};
    assert_ok(ech_generator_create(&c, &g));
    const ech_held held = ech_generator_held(g);
    assert_ok(ech_weights_load(&w, &held, 1, NULL));
    assert_ok(ech_generator_feed(g, words, SEQ));
    for (int t = 0; t < SEQ; t++)
        for (int v = 0; v < VOCAB; v++)
            out[t * VOCAB + v] = ech_dtype_load(real, ech_generator_logits(g, t), (size_t)v);
    ech_generator_destroy(&g);
    ech_weights_close(&w);
}

/* |a - b| / |b| */
static double difference(const double *a, const double *b)
{
    double d = 0.0;
    double n = 0.0;
    for (int i = 0; i < SEQ * VOCAB; i++) {
        d += pow(a[i] - b[i], 2.0);
        n += b[i] * b[i];
    }
    return sqrt(d / n);
}

static void check_same_file(const char *a, const char *b)
{
    char *data[2];
    size_t bytes[2];
    assert_ok(ech_read_whole(a, 1 << 20, &data[0], &bytes[0]));
    assert_ok(ech_read_whole(b, 1 << 20, &data[1], &bytes[1]));
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    free(data[0]);
    free(data[1]);
}

static void check_heads(void **state, int kv_heads)
{
    source s;
    double want[SEQ * VOCAB];
    double wrong[SEQ * VOCAB];
    double got[4][SEQ * VOCAB]; /* file fp32, file fp64, folder fp32, folder fp64 */
    source_init(&s, kv_heads);
    source_write(&s, in_folder(state, "m.bin"));
    hf_make(in_folder(state, "m.bin"), in_folder(state, "hf"));
    plain_logits(&s, true, want);
    plain_logits(&s, false, wrong);
    for (int i = 0; i < 4; i++)
        logits_of(in_folder(state, i < 2 ? "m.bin" : "hf"), i % 2 ? ECH_F64 : ECH_F32, got[i]);
    (void)printf("%d query heads, %d for keys: fp32 %.1e, fp64 %.1e; other pairs %.1e\n", HEADS,
                 kv_heads, difference(got[0], want), difference(got[1], want),
                 difference(wrong, want));
    for (int i = 0; i < 4; i++)
        assert_near(difference(got[i], want), 0.0, i % 2 ? 1e-12 : 1e-5);
    assert_memory_equal(got[0], got[2], sizeof got[0]);
    assert_memory_equal(got[1], got[3], sizeof got[1]);
    hf_make(in_folder(state, "hf"), in_folder(state, "again"));
    check_same_file(in_folder(state, "hf/model.safetensors"),
                    in_folder(state, "again/model.safetensors"));
    assert_true(difference(wrong, want) > 1e-2); /* a wrong layout would have been seen */
    free(s.all);
}

static void test_one_key_head_for_each_query_head(void **state)
{
    check_heads(state, 4);
}

static void test_grouped_queries(void **state)
{
    check_heads(state, 2);
}

static void test_one_key_head_for_all(void **state)
{
    check_heads(state, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_key_head_for_each_query_head),
        cmocka_unit_test(test_grouped_queries),
        cmocka_unit_test(test_one_key_head_for_all),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
