/* RUN: np=1 timeout=120 tags=fast,thread */
/* The cpu set, as AVX-512 and as AVX2: every kernel against the reference on odd shapes, the bytes
 * it touches, and shapes large enough to cross its tiles, bit for bit with 1, 2 and 3 threads. */
#include "audit.h"
#include "check.h"
#include "kernel_cases.h"

#include "base/rng.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>

/* fp32 sums of a few hundred terms where the reference sums in double; the saved statistics pass
 * their rounding on. */
static const double bound = 4e-6;

static const ech_kernel_set *the_set;

/* --- the shared cases --- */

static void test_against_reference(void **state)
{
    (void)state;
    assert_int_equal(kernel_cases_compare(the_set, ECH_F32, bound), 0);
}

static void test_touched_bytes(void **state)
{
    (void)state;
    assert_int_equal(audit_kernel_set(the_set, ECH_F32), 0);
}

static void test_fp64_is_left_to_the_reference(void **state)
{
    (void)state;
    ech_kernel_table table;
    assert_ok(ech_kernel_table_make(the_set, ECH_F64, &table));
    for (int kind = 0; kind < KERNEL_CASE_KINDS; kind++)
        assert_ptr_equal(table.from[kind], ech_kernel_set_ref());
    assert_ok(ech_kernel_table_make(the_set, ECH_F32, &table));
    assert_ptr_equal(table.from[ECH_OP_ATTENTION], the_set);
    assert_ptr_equal(table.from[ECH_OP_CLIP], ech_kernel_set_ref());
}

/* --- larger calls --- */

enum { ROOM = 4 << 20 /* elements of all operands of a call */ };

/* A call with operands in one buffer, filled with values of `seed`. */
typedef struct big {
    ech_kernel_call call;
    float *buffer; /* owned [ROOM] */
    size_t used;
    double *work; /* owned */
} big;

static void fill(float *x, size_t n, uint64_t seed)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_TEST, 0, -1);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(2.0 * ech_rng_uniform(&key, i) - 1.0);
}

static void big_init(big *b, ech_op_kind kind, int threads)
{
    memset(b, 0, sizeof *b);
    b->buffer = calloc(ROOM, sizeof(float)); /* gaps between operands are compared too */
    b->work = calloc(1 << 16, sizeof(double));
    assert_true(b->buffer && b->work);
    b->call.kind = kind;
    b->call.threads = threads;
    b->call.work = b->work;
    b->call.rng = (ech_rng_site){.seed = 3, .step = 5, .layer = 1, .row0 = 2};
}

static void big_fini(big *b)
{
    free(b->buffer);
    free(b->work);
}

static void *add_arg(big *b, ech_dtype dtype, int rank, const int64_t *dim)
{
    ech_tensor *t = &b->call.arg[b->call.n_args++];
    size_t n = 1;
    *t = (ech_tensor){.data = b->buffer + b->used, .dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) {
        t->dim[i] = dim[i];
        n *= (size_t)dim[i];
    }
    fill(b->buffer + b->used, n, (uint64_t)b->call.n_args);
    b->used += (n * ech_dtype_bytes(dtype) / sizeof(float) + 15) / 16 * 16;
    assert_true(b->used <= ROOM);
    return t->data;
}

static void add_real(big *b, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const int64_t dim[4] = {d0, d1, d2, d3};
    (void)add_arg(b, ECH_F32, d3 ? 4 : d2 ? 3 : d1 ? 2 : 1, dim);
}

/* Parts of the loss [t, 2, n], no value of them exact in fp32. */
static void add_parts(big *b, int64_t t, int64_t n)
{
    double *x = add_arg(b, ECH_F64, 3, (const int64_t[]){t, 2, n});
    const ech_rng_key key = ech_rng_key_make(5, ECH_RNG_TEST, 0, -1);
    for (int64_t i = 0; i < 2 * t * n; i++)
        x[i] = 2.0 * ech_rng_uniform(&key, (uint64_t)i) - 1.0 + 0x1p-40;
}

static void add_cell(big *b, double x)
{
    *(double *)add_arg(b, ECH_F64, 0, NULL) = x;
}

static void add_count(big *b, int64_t x)
{
    *(int64_t *)add_arg(b, ECH_I64, 0, NULL) = x;
}

static void add_ids(big *b, int64_t n, int64_t below)
{
    int32_t *ids = add_arg(b, ECH_I32, 1, &n);
    const ech_rng_key key = ech_rng_key_make(9, ECH_RNG_TEST, 0, -1);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)(ech_rng_u32(&key, (uint64_t)i) % (uint64_t)below);
}

typedef void (*big_maker)(big *b);

/* Largest difference from the reference over its largest value in any operand. */
static double difference(const big *got, const big *want)
{
    double worst = 0.0;
    for (int i = 0; i < want->call.n_args; i++) {
        const ech_tensor *t = &want->call.arg[i];
        size_t n = 1;
        for (int d = 0; d < t->rank; d++)
            n *= (size_t)t->dim[d];
        double size = 0.0, error = 0.0;
        for (size_t k = 0; t->data && k < n; k++) {
            const double a = ech_dtype_load(t->dtype, got->call.arg[i].data, k);
            const double b = ech_dtype_load(t->dtype, t->data, k);
            error = fmax(error, isnan(a - b) ? (double)INFINITY : fabs(a - b));
            size = fmax(size, fabs(b));
        }
        worst = fmax(worst, size > 0.0 ? error / size : error);
    }
    return worst;
}

static void check_big(ech_op_kind kind, big_maker make, double allowed)
{
    big want, one;
    big_init(&want, kind, 1);
    make(&want);
    ech_kernel_set_ref()->kernel[kind](&want.call);
    big_init(&one, kind, 1);
    make(&one);
    the_set->kernel[kind](&one.call);
    const double error = difference(&one, &want);
    if (!(error <= allowed))
        fail_msg("%s: %.3g from the reference, bound %.3g", ech_op_name(kind), error, allowed);
    for (int threads = 2; threads <= 3; threads++) {
        big many;
        big_init(&many, kind, threads);
        make(&many);
        the_set->kernel[kind](&many.call);
        assert_int_equal(many.used, one.used);
        if (memcmp(many.buffer, one.buffer, one.used * sizeof(float)) != 0)
            fail_msg("%s: %d threads give other bits than one", ech_op_name(kind), threads);
        big_fini(&many);
    }
    big_fini(&one);
    big_fini(&want);
}

/* Rows beyond one tile of 512, columns beyond 48 and 24, depth beyond 192; none a multiple. */
enum { TOKENS = 613, IN = 405, OUT = 451 };

static void make_linear(big *b)
{
    add_real(b, TOKENS, IN, 0, 0);
    add_real(b, OUT, IN, 0, 0);
    add_real(b, OUT, 0, 0, 0);
    add_real(b, TOKENS, OUT, 0, 0);
}

static void make_dgrad(big *b)
{
    add_real(b, TOKENS, OUT, 0, 0);
    add_real(b, OUT, IN, 0, 0);
    add_real(b, TOKENS, IN, 0, 0);
}

static void make_wgrad(big *b)
{
    add_real(b, TOKENS, IN, 0, 0);
    add_real(b, TOKENS, OUT, 0, 0);
    add_real(b, OUT, IN, 0, 0);
    add_real(b, OUT, 0, 0, 0);
}

static void make_bias(big *b)
{
    add_real(b, TOKENS, OUT, 0, 0);
    add_real(b, OUT, 0, 0, 0);
}

static void test_linear_large(void **state)
{
    (void)state;
    check_big(ECH_OP_BIAS, make_bias, 2e-7);
    check_big(ECH_OP_BIAS_BACKWARD, make_bias, 2e-6);
    check_big(ECH_OP_LINEAR, make_linear, 2e-6);
    check_big(ECH_OP_LINEAR_DGRAD, make_dgrad, 2e-6);
    check_big(ECH_OP_LINEAR_WGRAD, make_wgrad, 2e-6);
}

/* Two sequences of `seq` tokens, 2 groups of 3 query heads of 40. */
static void make_attention(big *b, int64_t seq, int64_t window, double p)
{
    add_real(b, 2 * seq, 2, 5, 40);
    add_real(b, 2 * seq, 2, 3 * 40, 0);
    add_real(b, 2 * seq, 2, 3, 0);
    b->call.attr[0] = seq;
    b->call.attr[1] = window;
    b->call.attr[2] = ECH_RNG_DROPOUT_ATTENTION;
    b->call.attr[4] = 6;
    b->call.real[0] = 0.7;
    b->call.real[1] = p;
}

static void make_attention_backward(big *b, int64_t seq, int64_t window, double p)
{
    make_attention(b, seq, window, p);
    ech_kernel_call forward = b->call;
    forward.kind = ECH_OP_ATTENTION;
    ech_kernel_set_ref()->kernel[ECH_OP_ATTENTION](&forward);
    add_real(b, 2 * seq, 2, 3 * 40, 0);
    add_real(b, 2 * seq, 2, 5, 40);
}

static void make_attention_plain(big *b)
{
    make_attention(b, 203, 0, 0.0);
}

static void make_attention_window(big *b)
{
    make_attention(b, 203, 70, 0.0);
}

static void make_attention_dropout(big *b)
{
    make_attention(b, 130, 0, 0.2); /* score indexes of a tile start in the midst of a block */
}

static void make_attention_dropout_four(big *b)
{
    make_attention(b, 132, 50, 0.2); /* a multiple of four: one draw for four keys */
}

static void make_backward_plain(big *b)
{
    make_attention_backward(b, 203, 0, 0.0);
}

static void make_backward_window(big *b)
{
    make_attention_backward(b, 203, 70, 0.0);
}

static void make_backward_dropout(big *b)
{
    make_attention_backward(b, 130, 0, 0.2);
}

static void make_backward_dropout_four(big *b)
{
    make_attention_backward(b, 132, 50, 0.2);
}

static void test_attention_large(void **state)
{
    (void)state;
    check_big(ECH_OP_ATTENTION, make_attention_plain, 2e-6);
    check_big(ECH_OP_ATTENTION, make_attention_window, 2e-6);
    check_big(ECH_OP_ATTENTION, make_attention_dropout, 2e-6);
    check_big(ECH_OP_ATTENTION, make_attention_dropout_four, 2e-6);
    check_big(ECH_OP_ATTENTION_BACKWARD, make_backward_plain, 2e-6);
    check_big(ECH_OP_ATTENTION_BACKWARD, make_backward_window, 2e-6);
    check_big(ECH_OP_ATTENTION_BACKWARD, make_backward_dropout, 2e-6);
    check_big(ECH_OP_ATTENTION_BACKWARD, make_backward_dropout_four, 2e-6);
}

/* Two sequences of three tokens, a head of more than ECH_CPU_HEAD_DIM_MAX. */
static void make_wide(big *b)
{
    add_real(b, 6, 1, 3, 520);
    add_real(b, 6, 1, 520, 0);
    add_real(b, 6, 1, 1, 0);
    b->call.attr[0] = 3;
    b->call.attr[2] = ECH_RNG_DROPOUT_ATTENTION;
    b->call.real[0] = 0.05;
}

static void make_wide_backward(big *b)
{
    make_wide(b);
    ech_kernel_call forward = b->call;
    forward.kind = ECH_OP_ATTENTION;
    ech_kernel_set_ref()->kernel[ECH_OP_ATTENTION](&forward);
    add_real(b, 6, 1, 520, 0);
    add_real(b, 6, 1, 3, 520);
}

static void make_wide_cached(big *b)
{
    add_real(b, 2, 1, 3, 520);
    add_real(b, 4, 1, 520, 0);
    add_real(b, 4, 1, 520, 0);
    add_count(b, 0);
    add_real(b, 2, 1, 520, 0);
    b->call.real[0] = 0.05;
}

/* The reference kernel itself runs them. */
static void test_attention_of_wide_heads(void **state)
{
    (void)state;
    check_big(ECH_OP_ATTENTION, make_wide, 0.0);
    check_big(ECH_OP_ATTENTION_BACKWARD, make_wide_backward, 0.0);
    check_big(ECH_OP_ATTENTION_CACHED, make_wide_cached, 0.0);
}

static void make_xent_shard(big *b)
{
    add_real(b, 37, 9001, 0, 0);
    add_ids(b, 37, 8999);
    add_parts(b, 1, 37);
    b->call.attr[0] = 8999;
}

/* Logits far apart: sums are scaled anew on the way. */
static void make_xent_steep(big *b)
{
    make_xent_shard(b);
    float *x = b->call.arg[0].data;
    for (int64_t i = 0; i < 37 * 9001; i++)
        x[i] *= 500.0f + (float)(i % 9001);
}

static void make_xent(big *b)
{
    add_parts(b, 3, 5003);
    add_ids(b, 5003, 7);
    add_real(b, 5003, 0, 0, 0);
    add_cell(b, 0.25);
}

/* The second half of a vocabulary, one column of it padded. */
static void make_xent_backward(big *b)
{
    add_real(b, 37, 9001, 0, 0);
    add_ids(b, 37, 18001);
    add_real(b, 37, 0, 0, 0);
    add_cell(b, 0.25);
    b->call.attr[0] = 18001;
    b->call.attr[1] = 9001;
    double loss = 0.0;
    ech_kernel_call forward = b->call;
    forward.arg[3].data = &loss;
    kernel_case_loss(&forward);
}

static void test_loss_large(void **state)
{
    (void)state;
    check_big(ECH_OP_XENT_SHARD, make_xent_shard, 2e-7);
    check_big(ECH_OP_XENT_SHARD, make_xent_steep, 2e-7);
    check_big(ECH_OP_XENT, make_xent, 2e-7);
    check_big(ECH_OP_XENT_BACKWARD, make_xent_backward, 2e-6);
}

enum { FLAT = 100003 };

static void make_sumsq(big *b)
{
    const int64_t words = ECH_SUMSQ_WORDS;
    add_real(b, FLAT, 0, 0, 0);
    memset(add_arg(b, ECH_I64, 1, &words), 0, (size_t)words * 8);
    memset(add_arg(b, ECH_I64, 1, &words), 0, (size_t)words * 8);
    /* from element 500 on: of each 7001 the last 3000 are copies */
    memcpy(b->call.attr, (int64_t[]){500, 1000, 90000, 7001, 3000}, 5 * sizeof(int64_t));
}

static void make_adamw(big *b)
{
    for (int i = 0; i < 4; i++)
        add_real(b, FLAT, 0, 0, 0);
    float *v = b->call.arg[3].data;
    for (int i = 0; i < FLAT; i++)
        v[i] = fabsf(v[i]);
    add_cell(b, 3e-4);
    add_cell(b, 0.5);
    add_count(b, 41);
    b->call.attr[1] = FLAT / 2;
    memcpy(b->call.real, (double[]){0.9, 0.95, 1e-8, 0.1}, 4 * sizeof(double));
}

static void test_optimizer_large(void **state)
{
    (void)state;
    check_big(ECH_OP_SUMSQ, make_sumsq, 0.0);
    check_big(ECH_OP_ADAMW, make_adamw, 2e-7);
}

static void make_dropout(big *b)
{
    for (int i = 0; i < 3; i++)
        add_real(b, 7 * 11, 699, 0, 0);
    b->call.attr[0] = 11;
    b->call.attr[1] = ECH_RNG_DROPOUT_MLP;
    b->call.real[0] = 0.3;
}

static void make_gelu(big *b)
{
    add_real(b, FLAT, 1, 0, 0);
    float *x = b->call.arg[0].data;
    for (int i = 0; i < FLAT; i++)
        x[i] *= 12.0f;
    add_real(b, FLAT, 1, 0, 0);
}

static void make_gelu_backward(big *b)
{
    make_gelu(b);
    add_real(b, FLAT, 1, 0, 0);
}

static void make_layernorm_backward(big *b)
{
    add_real(b, 301, 777, 0, 0);
    add_real(b, 777, 0, 0, 0);
    add_real(b, 301, 0, 0, 0);
    add_real(b, 301, 0, 0, 0);
    for (int i = 0; i < 3; i++)
        add_real(b, 301, 777, 0, 0);
    add_real(b, 777, 0, 0, 0);
    add_real(b, 777, 0, 0, 0);
}

static void test_rows_large(void **state)
{
    (void)state;
    check_big(ECH_OP_DROPOUT, make_dropout, 2e-7);
    check_big(ECH_OP_GELU, make_gelu, 2e-7);
    check_big(ECH_OP_GELU_BACKWARD, make_gelu_backward, 5e-7);
    check_big(ECH_OP_LAYERNORM_BACKWARD, make_layernorm_backward, 2e-6);
}

/* gelu at its ends: no NaN for large arguments, x itself for large ones, NaN stays. */
static void test_gelu_ends(void **state)
{
    (void)state;
    float x[5] = {-1e10f, -30.0f, 30.0f, 1e10f, NAN}, y[5];
    ech_kernel_call call = {.kind = ECH_OP_GELU, .n_args = 2, .threads = 1};
    call.arg[0] = (ech_tensor){x, ECH_F32, 2, {5, 1}};
    call.arg[1] = (ech_tensor){y, ECH_F32, 2, {5, 1}};
    the_set->kernel[ECH_OP_GELU](&call);
    assert_near((double)y[0], 0.0, 1e-20);
    assert_near((double)y[1], 0.0, 1e-30);
    assert_near((double)y[2], 30.0, 0.0);
    assert_near((double)y[3], 1e10, 0.0);
    assert_true(isnan(y[4]));
}

/* --- the team --- */

static cpu_set_t cpus_of_caller(void)
{
    cpu_set_t cpus;
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    return cpus;
}

static int first_cpu(const cpu_set_t *cpus)
{
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, cpus))
        cpu++;
    return cpu;
}

static void test_team_binds_and_unbinds(void **state)
{
    (void)state;
    const cpu_set_t before = cpus_of_caller();
    const int cpu = first_cpu(&before);
    assert_ok(the_set->start((int[]){cpu, cpu}, 2)); /* two members of one processor: legal */
    const cpu_set_t now = cpus_of_caller();
    assert_int_equal(CPU_COUNT(&now), 1);
    assert_true(CPU_ISSET((size_t)cpu, &now));
    check_big(ECH_OP_SUMSQ, make_sumsq, 0.0);
    the_set->stop();
    const cpu_set_t after = cpus_of_caller();
    assert_true(CPU_EQUAL(&before, &after));
    assert_ok(the_set->start(NULL, 3));
}

static void test_team_refuses(void **state)
{
    (void)state;
    const cpu_set_t before = cpus_of_caller();
    assert_fails(the_set->start(NULL, 0), ECH_E_CONFIG, "0 threads");
    assert_fails(the_set->start((int[]){first_cpu(&before), 1 << 20}, 2), ECH_E_ENV,
                 "processor 1048576");
    const cpu_set_t after = cpus_of_caller(); /* the first member was bound, and is not any more */
    assert_true(CPU_EQUAL(&before, &after));
    assert_ok(the_set->start(NULL, 3));
}

/* --- the module --- */

/* 0: all passed; sets the_set to that of the module beside the build. */
static int run_module(const char *file, int *skipped)
{
    kernel_module module;
    if (!kernel_module_open(&module, file, 3)) {
        *skipped += !module.is_missing;
        return module.is_missing;
    }
    the_set = module.set;
    printf("%s: %s\n", file, the_set->name);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_reference),
                                       cmocka_unit_test(test_touched_bytes),
                                       cmocka_unit_test(test_fp64_is_left_to_the_reference),
                                       cmocka_unit_test(test_linear_large),
                                       cmocka_unit_test(test_attention_large),
                                       cmocka_unit_test(test_attention_of_wide_heads),
                                       cmocka_unit_test(test_loss_large),
                                       cmocka_unit_test(test_optimizer_large),
                                       cmocka_unit_test(test_rows_large),
                                       cmocka_unit_test(test_gelu_ends),
                                       cmocka_unit_test(test_team_binds_and_unbinds),
                                       cmocka_unit_test(test_team_refuses)};
    const int failures = cmocka_run_group_tests_name(file, tests, NULL, NULL);
    kernel_module_close(&module);
    return failures;
}

int main(void)
{
    int skipped = 0;
    int failures = run_module("libechelon_cpu.so", &skipped);
#ifdef __SANITIZE_THREAD__
    skipped *= 2; /* the team is the same whatever the instructions */
#else
    failures += run_module("libechelon_cpu_avx2.so", &skipped);
#endif
    return failures ? 1 : skipped == 2 ? 77 : 0;
}
