/* RUN: np=1 timeout=20 tags=fast */
/* Seconds of single kernels and messages against closed forms that are written out here once more, and
 * their limits: large products reach the ceiling, small ones cost a launch. */
#include "check.h"
#include "price/collective.h"
#include "price/kernel_price.h"

#include <math.h>

static const ech_kernel_habit flash = {.attention = ECH_ATTENTION_FLASH};
static const ech_kernel_habit stored = {.attention = ECH_ATTENTION_STORED,
                                        .scores_bytes = {13, 19}};

/* A machine with round numbers: 100 units, 200 TFLOP/s, 2 TB/s; nodes of 8 with 200 GB/s inside and 25
 * GB/s a device outside. */
static ech_rates machine(void)
{
    return (ech_rates){.habit = &flash,
                       .flops = 2e14,
                       .flops16 = 2e14,
                       .peak = 2.5e14,
                       .units = 100,
                       .ramp_s = 1e-6,
                       .tail = 0.5,
                       .epilogue = 0.25,
                       .wgrad = 0.9,
                       .bent = 0.8,
                       .crooked = 0.4,
                       .heads_bent = 0.9,
                       .heads_crooked = 0.2,
                       .memory_bytes_per_s = 2e12,
                       .traffic = 1.5,
                       .scores_rate = 0.5,
                       .flash_flops = {1.5e14, 1.2e14},
                       .softmax = 24,
                       .kernel_s = 3e-6,
                       .start_s = 2e-5,
                       .payload_s = 4e-5,
                       .half_way_bytes = 1e6,
                       .hop_s = 5e-6,
                       .grouped = 0.75,
                       .alltoall = 0.8,
                       .act_bytes = 2,
                       .operand_bytes = 2,
                       .grad_bytes = 4,
                       .n_levels = 2,
                       .level = {{8, 200e9, 200e9, 1e-6, 1}, {1e18, 25e9, 50e9, 4e-6, 1}}};
}

static void near(const char *what, double got, double wanted, double relative)
{
    if (!(fabs(got - wanted) <= relative * fabs(wanted)))
        fail_msg("%s: got %.9g, wanted %.9g", what, got, wanted);
}

static double square(const ech_rates *r, double n)
{
    const ech_product p = {n, n, n, 1, 2, 2, r->flops};
    return ech_product_seconds(r, &p);
}

/* 1280 x 2560 in tiles of 128 x 256: 100 tiles, one for each unit, one wave. */
static void one_wave(void **state)
{
    (void)state;
    const ech_rates r = machine();
    const double k = 4096, flops = 2 * 1280 * 2560 * k;
    const ech_product p = {1280, 2560, k, 1, 2, 2, r.flops};
    const double work = flops / 2e14 + 1e-6;
    const double bytes = 2 * (1280 * k + k * 2560) + 2 * 1280 * 2560;
    const double both = sqrt(sqrt(pow(work, 4) + pow(bytes / 2e12, 4)));
    near("one wave", ech_product_seconds(&r, &p), both + 0.25 * (2 * 1280 * 2560 / 2e12) + 3e-6,
         1e-12);
    /* A row more: eleven rows of tiles, 110 of them: half of the missing 90 are lost. */
    const ech_product more = {1281, 2560, k, 1, 2, 2, r.flops};
    assert_true(ech_product_seconds(&r, &more) > 1.05 * ech_product_seconds(&r, &p));
    assert_true(ech_product_seconds(&r, &more) < 1.55 * ech_product_seconds(&r, &p));
}

static void products_have_limits(void **state)
{
    (void)state;
    const ech_rates r = machine();
    near("huge: the ceiling", 2 * pow(65536, 3) / square(&r, 65536), r.flops, 0.01);
    /* One tile on one of 100 units: half of the wave that is not filled counts. */
    near("tiny: a launch and half a ramp", square(&r, 8), 3e-6 + 0.505e-6, 0.01);
    const ech_product thin = {1, 16384, 16384, 1, 2, 2, r.flops};
    /* A row of 64 at least: the matrix passes once, products of a tile nearly as long beside. */
    const double once = 2 * 16384.0 * 16384 / 2e12;
    assert_true(ech_product_seconds(&r, &thin) > once);
    assert_true(ech_product_seconds(&r, &thin) < 1.25 * once);
    for (double n = 64; n < 20000; n *= 1.5)
        assert_true(square(&r, n * 1.5) > square(&r, n));
    ech_rates fast = r;
    fast.memory_bytes_per_s *= 2;
    assert_true(square(&fast, 4096) < square(&r, 4096));
}

static void layers_of_products(void **state)
{
    (void)state;
    ech_rates r = machine();
    ech_kernels ks = {.rates = &r};
    const double m = 4096, n = 8192, k = 2048;
    ech_kernels_linear(&ks, "x", m, n, k, 1, 0);
    assert_int_equal(ks.n, 3);
    for (int i = 0; i < 3; i++) {
        near("FLOPs", ks.k[i].flops, 2 * m * n * k, 1e-12);
        near("counted", ks.k[i].counted, 2 * m * n * k, 1e-12);
    }
    near("bytes forward", ks.k[0].bytes, 2 * (m * k + k * n + m * n), 1e-12);
    near("bytes of gradients of inputs", ks.k[1].bytes, 2 * (m * n + n * k + m * k), 1e-12);
    const ech_product w = {k, n, m, 1, 2, 2, r.flops};
    near("weights are slower", ks.k[2].seconds, ech_product_seconds(&r, &w) / 0.9, 1e-12);
    r.operand_bytes = 1; /* 8 bits: operands half as large, results not */
    ks.n = 0;
    ech_kernels_linear(&ks, "x", m, n, k, 1, 0);
    near("bytes of 8 bits", ks.k[0].bytes, m * k + k * n + 2 * m * n, 1e-12);
    r.operand_bytes = r.act_bytes = 4; /* fp32 */
    ks.n = 0;
    ech_kernels_linear(&ks, "x", m, n, k, 1, 0);
    near("bytes of fp32", ks.k[0].bytes, 4 * (m * k + k * n + m * n), 1e-12);
    r = machine();
    ks.n = 0;
    ech_kernels_linear(&ks, "x", m, n, k, 1, 0);
    ech_kernels_linear(&ks, "x", m, n + 8, k, 1, 0);
    ech_kernels_linear(&ks, "x", m, n + 1, k, 1, 0);
    assert_true(ks.k[3].seconds > 1.2 * ks.k[0].seconds); /* bent: / 0.8 */
    assert_true(ks.k[6].seconds > 2.4 * ks.k[0].seconds); /* crooked: / 0.4 */
}

static ech_shape_attention heads_of(int64_t heads, int64_t d)
{
    return (ech_shape_attention){.heads = heads,
                                 .kv_heads = heads,
                                 .qk_dim = d,
                                 .v_dim = d,
                                 .q_out = heads * d,
                                 .k_out = heads * d,
                                 .v_out = heads * d,
                                 .o_in = heads * d};
}

static void flash_attention(void **state)
{
    (void)state;
    const ech_rates r = machine();
    const ech_shape_attention a = heads_of(50, 128);
    ech_kernels ks = {.rates = &r};
    const double s = 12800; /* 50 * 100 blocks of queries: 50 whole waves */
    ech_kernels_attention(&ks, &a, 1, s, s, 0.5);
    assert_int_equal(ks.n, 2);
    const double flops = 2 * 50 * s * (s / 2 + 64) * 256;
    const double bytes = 2 * s * 4 * 50 * 128;
    near("FLOPs", ks.k[0].flops, flops, 1e-12);
    near("FLOPs backward", ks.k[1].flops, 2.5 * flops, 1e-12);
    near("forward", ks.k[0].seconds, flops / 1.5e14 + bytes / 2e12 / 4 + 3e-6, 1e-12);
    near("backward", ks.k[1].seconds, 2.5 * flops / 1.2e14 + bytes / 2e12 / 2 + 6e-6, 1e-12);
    const ech_shape_attention small = heads_of(100, 64);
    ks.n = 0;
    ech_kernels_attention(&ks, &small, 1, s, s, 0.5);
    near("heads of 64", ks.k[0].seconds,
         flops / (1.5e14 * (64.0 / 88) * (152.0 / 128)) + bytes / 2e12 / 4 + 3e-6, 1e-12);
}

static void stored_attention(void **state)
{
    (void)state;
    ech_rates r = machine();
    r.habit = &stored;
    const ech_shape_attention a = heads_of(16, 64);
    ech_kernels ks = {.rates = &r};
    const double s = 2048, scores = 2 * 16 * s * s;
    ech_kernels_attention(&ks, &a, 2, s, s, 0.5);
    assert_int_equal(ks.n, 4);
    near("FLOPs: all of them, seen or not", ks.k[0].flops, 2 * scores * (64 + 64), 1e-12);
    near("softmax, dropout and mask", ks.k[1].seconds, 9 * scores * 1.5 / 2e12 + 6e-6, 1e-12);
    near("backward", ks.k[3].seconds, 13 * scores * 1.5 / 2e12 + 6e-6, 1e-12);
    assert_true(ks.k[0].seconds > 2 * scores * 128 / (2e14 * 0.5));
    r.act_bytes = r.operand_bytes = 4;
    ks.n = 0;
    ech_kernels_attention(&ks, &a, 2, s, s, 0.5);
    near("of fp32", ks.k[1].seconds, 18 * scores * 1.5 / 2e12 + 6e-6, 1e-12);
}

static void memory_bound(void **state)
{
    (void)state;
    const ech_rates r = machine();
    ech_kernels ks = {.rates = &r};
    ech_kernels_traffic(&ks, "x", 4e9, 8e9, 0);
    near("forward", ks.k[0].seconds, 4e9 * 1.5 / 2e12 + 3e-6, 1e-12);
    near("backward", ks.k[1].seconds, 8e9 * 1.5 / 2e12 + 3e-6, 1e-12);
    ech_kernels_traffic(&ks, "x", 0, 0, 0);
    near("nothing: a launch", ks.k[2].seconds, 3e-6, 1e-12);
}

static void collectives(void **state)
{
    (void)state;
    const ech_rates r = machine();
    const double b = 1e9, middle = b / (b + 1e6);
    const ech_group node = {8, 1}, four = {32, 1}, apart = {4, 8};
    near("all-reduce in a node", ech_collective_seconds(&r, ECH_COLLECTIVE_ALL_REDUCE, node, b),
         2e-5 + 2 * b * 7 / 8 / 200e9 + 4e-5 * middle, 1e-12);
    near("gather in a node", ech_collective_seconds(&r, ECH_COLLECTIVE_GATHER, node, b),
         0.6 * 2e-5 + b * 7 / 8 / 200e9 + 0.6 * 4e-5 * middle, 1e-12);
    /* Four nodes: 8 cards of 25 GB/s are as fast as the inside; two steps of a tree, both ways. */
    near("all-reduce of nodes", ech_collective_seconds(&r, ECH_COLLECTIVE_ALL_REDUCE, four, b),
         2e-5 + 2 * 2 * 5e-6 + 2 * b * 31 / 32 / 200e9 + 4e-5 * middle, 1e-12);
    near("one card a node", ech_collective_seconds(&r, ECH_COLLECTIVE_ALL_REDUCE, apart, b),
         2e-5 + 2 * 2 * 5e-6 + 2 * b * 3 / 4 / 25e9 + 4e-5 * middle, 1e-12);
    near("one way out of a node", ech_collective_seconds(&r, ECH_COLLECTIVE_ONE_WAY, four, b),
         0.6 * 2e-5 + 3 * 5e-6 + b * 31 / 32 / 50e9 + 0.6 * 4e-5 * middle, 1e-12);
    near("all-to-all of nodes", ech_collective_seconds(&r, ECH_COLLECTIVE_ALL_TO_ALL, four, b),
         0.6 * 2e-5 + 3 * 5e-6 + b * 24 / 32 / (0.8 * 25e9) + 0.6 * 4e-5 * middle, 1e-12);
    near("a message", ech_message_seconds(&r, 8, 8, b), 1e-5 + 4e-6 + b / 25e9, 1e-12);
    near("a message alone", ech_message_seconds(&r, 8, 1, b), 1e-5 + 4e-6 + b / 50e9, 1e-12);
    near("buckets", ech_collective_buckets(&r, ECH_COLLECTIVE_GATHER, node, 1e9, 2.5e8),
         4 * ech_collective_seconds(&r, ECH_COLLECTIVE_GATHER, node, 2.5e8), 1e-12);
}

static void collectives_have_limits(void **state)
{
    (void)state;
    const ech_rates r = machine();
    const ech_group g = {64, 1}, one = {1, 1}, node = {8, 1};
    for (int kind = ECH_COLLECTIVE_ALL_REDUCE; kind <= ECH_COLLECTIVE_ROUTE; kind++) {
        const ech_collective c = (ech_collective)kind;
        assert_true(ech_collective_seconds(&r, c, one, 1e9) == 0);
        for (double b = 1e3; b < 1e11; b *= 3) {
            ech_rates fast = r;
            for (int i = 0; i < 2; i++) {
                fast.level[i].bytes_per_s *= 1.5;
                fast.level[i].alone_bytes_per_s *= 1.5;
            }
            const double s = ech_collective_seconds(&r, c, g, b);
            assert_true(ech_collective_seconds(&r, c, g, 1.1 * b) > s);
            assert_true(ech_collective_seconds(&fast, c, g, b) < s);
        }
    }
    near("next to nothing: a start", ech_collective_seconds(&r, ECH_COLLECTIVE_ALL_REDUCE, node, 1),
         2e-5, 0.001);
    /* What the payload costs beside start and wire is half of its most at the half-way payload. */
    near("half-way", ech_collective_seconds(&r, ECH_COLLECTIVE_ALL_REDUCE, node, 1e6),
         2e-5 + 2 * 1e6 * 7 / 8 / 200e9 + 2e-5, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_wave),           cmocka_unit_test(products_have_limits),
        cmocka_unit_test(layers_of_products), cmocka_unit_test(flash_attention),
        cmocka_unit_test(stored_attention),   cmocka_unit_test(memory_bound),
        cmocka_unit_test(collectives),        cmocka_unit_test(collectives_have_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
