/* RUN: np=1 timeout=120 tags=fast,thread */
/* A share of a call has the bits of the whole call: tokens, heads, columns of the vocabulary, rows
 * of the table and flat ranges, in every kernel set. */
#include "check.h"
#include "kernel_cases.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

/* The set under test and the type of its calls. */
static const ech_kernel_set *set;
static ech_dtype real;

enum { POOL_BYTES = 8 << 20 };

/* Memory of a test's operands: zero at first, given back at once. */
static struct pool {
    char *bytes; /* owned */
    size_t used;
} pool;

static int pool_open(void **state)
{
    (void)state;
    pool.bytes = aligned_alloc(64, POOL_BYTES);
    pool.used = 0;
    if (pool.bytes)
        memset(pool.bytes, 0, POOL_BYTES);
    return pool.bytes ? 0 : -1;
}

static int pool_close(void **state)
{
    (void)state;
    free(pool.bytes);
    return 0;
}

static void *take(size_t bytes)
{
    void *p = pool.bytes + pool.used;
    pool.used += (bytes + 63) / 64 * 64;
    assert_true(pool.used <= POOL_BYTES);
    return p;
}

static ech_tensor zeros(ech_dtype type, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    ech_tensor t = {.dtype = type,
                    .rank = d3   ? 4
                            : d2 ? 3
                            : d1 ? 2
                            : d0 ? 1
                                 : 0,
                    .dim = {d0, d1, d2, d3}};
    t.data = take((size_t)ech_tensor_elems(&t) * ech_dtype_bytes(type));
    return t;
}

/* Values in (-1, 1). */
static ech_tensor values(uint64_t seed, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const ech_tensor t = zeros(real, d0, d1, d2, d3);
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_TEST, 0, -1);
    for (int64_t i = 0; i < ech_tensor_elems(&t); i++)
        ech_dtype_store(real, t.data, (size_t)i, 2.0 * ech_rng_uniform(&key, (uint64_t)i) - 1.0);
    return t;
}

static ech_tensor ids_below(int64_t n, int64_t below, bool is_masked)
{
    const ech_tensor t = zeros(ECH_I32, n, 0, 0, 0);
    const ech_rng_key key = ech_rng_key_make(77, ECH_RNG_TEST, 0, -1);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)t.data)[i] = is_masked && i % 5 == 2
                                     ? -1
                                     : (int32_t)(ech_rng_u32(&key, (uint64_t)i) % (uint64_t)below);
    return t;
}

static ech_tensor cell(double x)
{
    const ech_tensor t = zeros(ECH_F64, 0, 0, 0, 0);
    *(double *)t.data = x;
    return t;
}

static ech_tensor copy_of(const ech_tensor *t)
{
    ech_tensor c = *t;
    const size_t bytes = (size_t)ech_tensor_elems(t) * ech_dtype_bytes(t->dtype);
    c.data = take(bytes);
    memcpy(c.data, t->data, bytes);
    return c;
}

/* Rows [begin, end) of the first dimension. */
static ech_tensor rows_of(const ech_tensor *t, int64_t begin, int64_t end)
{
    ech_tensor r = *t;
    if (!t->data)
        return r;
    const int64_t row = ech_tensor_elems(t) / t->dim[0];
    r.dim[0] = end - begin;
    r.data = (char *)t->data + (size_t)(begin * row) * ech_dtype_bytes(t->dtype);
    return r;
}

/* A copy of columns [begin, end) of the second dimension, or those columns put back. */
static void move_columns(const ech_tensor *whole, int64_t begin, const ech_tensor *part,
                         bool is_back)
{
    const int64_t inner = ech_tensor_elems(whole) / (whole->dim[0] * whole->dim[1]);
    const size_t bytes = (size_t)(part->dim[1] * inner) * ech_dtype_bytes(whole->dtype);
    for (int64_t n = 0; n < whole->dim[0]; n++) {
        char *at = (char *)whole->data +
                   (size_t)((n * whole->dim[1] + begin) * inner) * ech_dtype_bytes(whole->dtype);
        char *of = (char *)part->data + (size_t)n * bytes;
        memcpy(is_back ? at : of, is_back ? of : at, bytes);
    }
}

static ech_tensor columns_of(const ech_tensor *t, int64_t begin, int64_t end)
{
    ech_tensor c = *t;
    c.dim[1] = end - begin;
    c.data = take((size_t)ech_tensor_elems(&c) * ech_dtype_bytes(c.dtype));
    move_columns(t, begin, &c, false);
    return c;
}

static void run(ech_kernel_call *call)
{
    static double work[1 << 14];
    call->work = work;
    call->work_bytes = sizeof work;
    call->threads = 2;
    call->rng = (ech_rng_site){.seed = 4, .step = 9, .layer = 3, .row0 = 6};
    const ech_kernel kernel = kernel_set_has(set, call->kind, real)
                                  ? set->kernel[call->kind]
                                  : ech_kernel_set_ref()->kernel[call->kind];
    kernel(call);
}

static void assert_same_bits(const ech_tensor *a, const ech_tensor *b)
{
    assert_memory_equal(a->data, b->data, (size_t)ech_tensor_elems(a) * ech_dtype_bytes(a->dtype));
}

/* --- tokens --- */

/* Two sequences of 11 in three shares, which cut sequences and vectors anywhere. */
enum { SEQ = 11, TOKENS = 2 * SEQ, WIDTH = 37 };

static const int64_t token_cut[] = {0, 3, 14, TOKENS};

static void test_dropout_of_tokens(void **state)
{
    (void)state;
    ech_kernel_call c = {.kind = ECH_OP_DROPOUT, .attr = {SEQ, ECH_RNG_DROPOUT_MLP}, .real = {0.3}};
    const ech_tensor x = values(1, TOKENS, WIDTH, 0, 0), residual = values(2, TOKENS, WIDTH, 0, 0);
    const ech_tensor whole = zeros(real, TOKENS, WIDTH, 0, 0);
    const ech_tensor parts = zeros(real, TOKENS, WIDTH, 0, 0);
    memcpy(c.arg, (ech_tensor[]){x, residual, whole}, 3 * sizeof x);
    run(&c);
    for (int i = 0; i < 3; i++) {
        const int64_t a = token_cut[i], b = token_cut[i + 1];
        c.attr[2] = a;
        memcpy(c.arg,
               (ech_tensor[]){rows_of(&x, a, b), rows_of(&residual, a, b), rows_of(&parts, a, b)},
               3 * sizeof x);
        run(&c);
    }
    assert_same_bits(&parts, &whole);
}

static void test_positions_of_tokens(void **state)
{
    (void)state;
    ech_kernel_call c = {.kind = ECH_OP_POSITIONS, .attr = {SEQ}};
    const ech_tensor table = values(1, SEQ, WIDTH, 0, 0), whole = values(2, TOKENS, WIDTH, 0, 0);
    const ech_tensor parts = copy_of(&whole);
    memcpy(c.arg, (ech_tensor[]){whole, table}, 2 * sizeof table);
    run(&c);
    for (int i = 0; i < 3; i++) {
        c.attr[1] = token_cut[i];
        c.arg[0] = rows_of(&parts, token_cut[i], token_cut[i + 1]);
        run(&c);
    }
    assert_same_bits(&parts, &whole);
}

/* The shares' gradients are sums of fewer terms: their sum is near that of the whole. */
static void test_positions_backward_of_tokens(void **state)
{
    (void)state;
    ech_kernel_call c = {.kind = ECH_OP_POSITIONS_BACKWARD, .attr = {SEQ}};
    const ech_tensor dy = values(1, TOKENS, WIDTH, 0, 0);
    const ech_tensor whole = zeros(real, SEQ, WIDTH, 0, 0), parts = zeros(real, SEQ, WIDTH, 0, 0);
    memcpy(c.arg, (ech_tensor[]){dy, whole}, 2 * sizeof dy);
    run(&c);
    c.arg[1] = parts;
    for (int i = 0; i < 3; i++) {
        c.attr[1] = token_cut[i];
        c.arg[0] = rows_of(&dy, token_cut[i], token_cut[i + 1]);
        run(&c);
    }
    for (int64_t i = 0; i < SEQ * WIDTH; i++) {
        const double sum = ech_dtype_load(real, dy.data, (size_t)i) +
                           ech_dtype_load(real, dy.data, (size_t)(i + SEQ * WIDTH));
        assert_near(ech_dtype_load(real, whole.data, (size_t)i), sum, 1e-6);
        assert_near(ech_dtype_load(real, parts.data, (size_t)i), sum, 1e-6);
    }
}

/* --- heads --- */

/* Three groups of two query heads, with dropout: groups [0, 1) and [1, 3) apart. */
enum { GROUPS = 3, R = 2, HEAD = 20 };

static void test_attention_of_heads(void **state)
{
    (void)state;
    ech_kernel_call c = {.kind = ECH_OP_ATTENTION,
                         .attr = {SEQ, 0, ECH_RNG_DROPOUT_ATTENTION, 5, 5 + GROUPS * R + 1},
                         .real = {0.3, 0.25}};
    const ech_tensor qkv = values(1, TOKENS, GROUPS, R + 2, HEAD);
    const ech_tensor dout = values(2, TOKENS, GROUPS, R * HEAD, 0);
    const ech_tensor out = zeros(real, TOKENS, GROUPS, R * HEAD, 0);
    const ech_tensor lse = zeros(real, TOKENS, GROUPS, R, 0);
    const ech_tensor dqkv = zeros(real, TOKENS, GROUPS, R + 2, HEAD);
    memcpy(c.arg, (ech_tensor[]){qkv, out, lse}, 3 * sizeof qkv);
    run(&c);
    c.kind = ECH_OP_ATTENTION_BACKWARD;
    c.arg[3] = dout;
    c.arg[4] = dqkv;
    run(&c);
    const ech_tensor all[5] = {qkv, copy_of(&out), copy_of(&lse), dout, copy_of(&dqkv)};
    static const int64_t cut[] = {0, 1, GROUPS};
    for (int i = 0; i < 2; i++) {
        ech_kernel_call p = {.kind = ECH_OP_ATTENTION, .real = {0.3, 0.25}};
        memcpy(p.attr, c.attr, sizeof p.attr);
        p.attr[3] = 5 + cut[i] * R;
        for (int k = 0; k < 3; k++)
            p.arg[k] = columns_of(&all[k], cut[i], cut[i + 1]);
        run(&p);
        p.kind = ECH_OP_ATTENTION_BACKWARD;
        for (int k = 3; k < 5; k++)
            p.arg[k] = columns_of(&all[k], cut[i], cut[i + 1]);
        run(&p);
        for (int k = 1; k < 5; k++)
            move_columns(&all[k], cut[i], &p.arg[k], true);
    }
    assert_same_bits(&all[1], &out);
    assert_same_bits(&all[2], &lse);
    assert_same_bits(&all[4], &dqkv);
}

/* --- the vocabulary --- */

enum { ROWS = 29, VOCAB = 150, SHARES = 4, SHARE = 51 /* the last one has no column */ };

static ech_tensor parts_of(const ech_tensor *logits, const ech_tensor *labels, int64_t first)
{
    ech_kernel_call c = {.kind = ECH_OP_XENT_SHARD, .attr = {VOCAB, first}};
    const ech_tensor parts = zeros(ECH_F64, 1, 2, ROWS, 0);
    memcpy(c.arg, (ech_tensor[]){*logits, *labels, parts}, 3 * sizeof parts);
    run(&c);
    return parts;
}

static ech_tensor lse_of(const ech_tensor *parts, const ech_tensor *labels, double *loss)
{
    ech_kernel_call c = {.kind = ECH_OP_XENT};
    const ech_tensor lse = zeros(real, ROWS, 0, 0, 0), sum = cell(0.5);
    memcpy(c.arg, (ech_tensor[]){*parts, *labels, lse, sum}, 4 * sizeof lse);
    run(&c);
    *loss = *(double *)sum.data;
    return lse;
}

static void make_gradient(const ech_tensor *logits, const ech_tensor *labels, const ech_tensor *lse,
                          int64_t first)
{
    ech_kernel_call c = {.kind = ECH_OP_XENT_BACKWARD, .attr = {VOCAB, first}};
    memcpy(c.arg, (ech_tensor[]){*logits, *labels, *lse, cell(0.125)}, 4 * sizeof *lse);
    run(&c);
}

/* One part is the log-sum itself, rounded to the type of the call; four parts make it again within
 * rounding; and with one log-sum the gradients are the same bits. */
static void test_loss_of_columns(void **state)
{
    (void)state;
    const double near = real == ECH_F32 ? 1e-6 : 1e-14;
    const ech_tensor logits = values(1, ROWS, SHARES * SHARE, 0, 0);
    const ech_tensor labels = ids_below(ROWS, VOCAB, true);
    const ech_tensor one = parts_of(&logits, &labels, 0);
    const ech_tensor four = zeros(ECH_F64, SHARES, 2, ROWS, 0);
    double loss, loss4;
    const ech_tensor lse = lse_of(&one, &labels, &loss);
    for (size_t n = 0; n < ROWS; n++) {
        const double part = ((const double *)one.data)[n];
        assert_near(ech_dtype_load(real, lse.data, n), real == ECH_F32 ? (double)(float)part : part,
                    0.0);
    }
    ech_tensor shard[SHARES];
    for (int i = 0; i < SHARES; i++) {
        shard[i] = columns_of(&logits, i * SHARE, (i + 1) * SHARE);
        const ech_tensor parts = parts_of(&shard[i], &labels, i * SHARE);
        const ech_tensor room = rows_of(&four, i, i + 1);
        memcpy(room.data, parts.data, 2 * ROWS * sizeof(double));
    }
    const ech_tensor lse4 = lse_of(&four, &labels, &loss4);
    assert_near(loss4, loss, near * ROWS);
    for (size_t n = 0; n < ROWS; n++)
        assert_near(ech_dtype_load(real, lse4.data, n), ech_dtype_load(real, lse.data, n),
                    near * 8);
    const ech_tensor joined = copy_of(&logits);
    make_gradient(&logits, &labels, &lse, 0);
    for (int i = 0; i < SHARES; i++) {
        make_gradient(&shard[i], &labels, &lse, i * SHARE);
        move_columns(&joined, i * SHARE, &shard[i], true);
    }
    assert_same_bits(&joined, &logits);
    for (size_t v = VOCAB; v < SHARES * SHARE; v++) /* padding */
        assert_true(ech_dtype_load(real, joined.data, v) == 0.0);
}

/* The loss of logits in (-1, 1), multiples of 2^-10, with `shift` added to all, in shares. */
static double shifted_loss(double shift, int n_shares)
{
    const int64_t width = SHARES * SHARE / n_shares;
    const ech_tensor logits = values(4, ROWS, SHARES * SHARE, 0, 0);
    const ech_tensor labels = ids_below(ROWS, VOCAB, true);
    const ech_tensor all = zeros(ECH_F64, n_shares, 2, ROWS, 0);
    double loss;
    for (size_t i = 0; i < ROWS * SHARES * SHARE; i++) {
        const double x = ldexp(rint(ldexp(ech_dtype_load(real, logits.data, i), 10)), -10);
        ech_dtype_store(real, logits.data, i, x + shift);
    }
    for (int i = 0; i < n_shares; i++) {
        const ech_tensor share = columns_of(&logits, i * width, (i + 1) * width);
        const ech_tensor parts = parts_of(&share, &labels, i * width);
        memcpy(rows_of(&all, i, i + 1).data, parts.data, 2 * ROWS * sizeof(double));
    }
    (void)lse_of(&all, &labels, &loss);
    return loss;
}

/* A common shift leaves the loss alone, in fp32 too: shifted logits are exact there, and log-sums,
 * of which fp32 would keep 2^-14 only, are not rounded before the label's logit is taken off. */
static void test_loss_keeps_small_differences(void **state)
{
    (void)state;
    for (int n_shares = 1; n_shares <= SHARES; n_shares += SHARES - 1) {
        const double loss = shifted_loss(0.0, n_shares);
        assert_true(loss > ROWS);
        assert_near(shifted_loss(1024.0, n_shares), loss, 1e-11 * ROWS);
    }
}

/* Each row of y comes from one share and is 0 in the others; a gradient goes to that share. */
static void test_table_of_rows(void **state)
{
    (void)state;
    static const int64_t cut[] = {0, 40, 90, VOCAB};
    const ech_tensor ids = ids_below(TOKENS, VOCAB, false);
    const ech_tensor table = values(1, VOCAB, WIDTH, 0, 0), dy = values(2, TOKENS, WIDTH, 0, 0);
    const ech_tensor y = zeros(real, TOKENS, WIDTH, 0, 0);
    const ech_tensor dtable = values(3, VOCAB, WIDTH, 0, 0), dparts = copy_of(&dtable);
    ech_kernel_call forward = {.kind = ECH_OP_EMBED, .arg = {ids, table, y}};
    ech_kernel_call backward = {.kind = ECH_OP_EMBED_BACKWARD, .arg = {ids, dy, dtable}};
    run(&forward);
    run(&backward);
    for (int i = 0; i < 3; i++) {
        const ech_tensor part = values(9, TOKENS, WIDTH, 0, 0);
        forward.attr[0] = backward.attr[0] = cut[i];
        forward.arg[1] = rows_of(&table, cut[i], cut[i + 1]);
        forward.arg[2] = part;
        run(&forward);
        for (size_t e = 0; e < TOKENS * WIDTH; e++) {
            const int32_t id = ((int32_t *)ids.data)[e / WIDTH];
            const bool is_here = id >= cut[i] && id < cut[i + 1];
            assert_true(ech_dtype_load(real, part.data, e) ==
                        (is_here ? ech_dtype_load(real, y.data, e) : 0.0));
        }
        backward.arg[2] = rows_of(&dparts, cut[i], cut[i + 1]);
        run(&backward);
    }
    assert_same_bits(&dparts, &dtable);
}

/* --- keys and values --- */

static void test_kv_spread_leaves_queries(void **state)
{
    (void)state;
    enum { E = 33 };
    const ech_tensor dw = values(1, GROUPS, R + 2, E, 0), before = copy_of(&dw);
    const ech_tensor sum = zeros(real, GROUPS, 2, E, 0);
    ech_kernel_call fold = {.kind = ECH_OP_KV_FOLD, .arg = {dw, sum}, .attr = {GROUPS, 2}};
    ech_kernel_call spread = {.kind = ECH_OP_KV_SPREAD, .arg = {sum, dw}, .attr = {GROUPS, 2}};
    run(&fold);
    assert_same_bits(&dw, &before);
    run(&spread); /* groups 3, 4, 5 of pairs: numbers 1, 2, 2 */
    for (size_t e = 0; e < GROUPS * (R + 2) * E; e++) {
        const size_t group = e / ((R + 2) * E), row = e / E % (R + 2);
        const double old = ech_dtype_load(real, before.data, e);
        const size_t twin = group == 0 ? e : (3 - group) * (R + 2) * E + e % ((R + 2) * E);
        const double both = old + ech_dtype_load(real, before.data, twin);
        const double want = row < R || group == 0 ? old : both;
        assert_near(ech_dtype_load(real, dw.data, e), want, real == ECH_F32 ? 2e-7 : 0.0);
    }
}

/* --- flat ranges --- */

enum { FLAT = 20011, DECAYED = 9000 };

/* Ranges that begin and end anywhere, one across the last decayed element. */
static const int64_t flat_cut[] = {0, 1, 18, 8993, 9007, 16385, FLAT};

static void check_update(ech_op_kind kind, int n_states, const ech_kernel_call *model)
{
    ech_tensor whole[4], part[4];
    for (int i = 0; i < n_states; i++) {
        whole[i] = values((uint64_t)i + 1, FLAT, 0, 0, 0);
        for (size_t k = 0; k < FLAT; k++) /* v is positive */
            if (i == 3)
                ech_dtype_store(real, whole[i].data, k,
                                fabs(ech_dtype_load(real, whole[i].data, k)));
        part[i] = copy_of(&whole[i]);
    }
    ech_kernel_call c = *model;
    c.kind = kind;
    for (int i = 0; i < n_states; i++)
        c.arg[i] = whole[i];
    c.attr[1] = DECAYED;
    run(&c);
    for (int k = 0; k < 6; k++) {
        for (int i = 0; i < n_states; i++)
            c.arg[i] = rows_of(&part[i], flat_cut[k], flat_cut[k + 1]);
        c.attr[0] = flat_cut[k];
        run(&c);
    }
    for (int i = 0; i < n_states; i++)
        assert_same_bits(&part[i], &whole[i]);
    /* with no decay at all, elements from DECAYED on have the same bits */
    const ech_tensor again = values(1, FLAT, 0, 0, 0);
    for (int i = 0; i < n_states; i++)
        c.arg[i] = values((uint64_t)i + 1, FLAT, 0, 0, 0);
    for (size_t k = 0; k < FLAT && n_states == 4; k++)
        ech_dtype_store(real, c.arg[3].data, k, fabs(ech_dtype_load(real, c.arg[3].data, k)));
    c.arg[0] = again;
    c.attr[0] = c.attr[1] = 0;
    run(&c);
    const size_t at = DECAYED * ech_dtype_bytes(real);
    assert_memory_equal((char *)again.data + at, (char *)whole[0].data + at,
                        (FLAT - DECAYED) * ech_dtype_bytes(real));
    assert_true(memcmp((char *)again.data + at - 64, (char *)whole[0].data + at - 64, 64) != 0);
}

static void test_updates_of_ranges(void **state)
{
    (void)state;
    const ech_tensor updates = zeros(ECH_I64, 0, 0, 0, 0);
    *(int64_t *)updates.data = 7;
    ech_kernel_call adamw = {.real = {0.9, 0.95, 1e-8, 0.1}};
    adamw.arg[4] = cell(3e-3);
    adamw.arg[5] = cell(0.5);
    adamw.arg[6] = updates;
    check_update(ECH_OP_ADAMW, 4, &adamw);
    ech_kernel_call sgd = {.real = {0.1}};
    sgd.arg[2] = cell(3e-3);
    sgd.arg[3] = cell(0.5);
    check_update(ECH_OP_SGD, 2, &sgd);
}

/* --- every set --- */

static int run_set(const char *name, const ech_kernel_set *s, ech_dtype type)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, pool_open, pool_close)
    const struct CMUnitTest tests[] = {TEST(test_dropout_of_tokens),
                                       TEST(test_positions_of_tokens),
                                       TEST(test_positions_backward_of_tokens),
                                       TEST(test_attention_of_heads),
                                       TEST(test_loss_of_columns),
                                       TEST(test_loss_keeps_small_differences),
                                       TEST(test_table_of_rows),
                                       TEST(test_kv_spread_leaves_queries),
                                       TEST(test_updates_of_ranges)};
#undef TEST
    set = s;
    real = type;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

static int run_module(const char *file)
{
    kernel_module module;
    if (!kernel_module_open(&module, file, 3))
        return module.is_missing;
    const int failures = run_set(file, module.set, ECH_F32);
    kernel_module_close(&module);
    return failures;
}

int main(void)
{
    const int failures = run_set("ref fp64", ech_kernel_set_ref(), ECH_F64) +
                         run_set("ref fp32", ech_kernel_set_ref(), ECH_F32) +
                         run_module("libechelon_cpu.so") + run_module("libechelon_cpu_avx2.so");
    return failures ? 1 : 0;
}
