/* RUN: np=1 timeout=20 tags=fast */
/* A measured machine as a cluster: rates of its grids, its ranks, its memory in equal shares. */
#include "check.h"
#include "price/cost_cluster.h"

#include <math.h>
#include <stdlib.h>

static ech_calibration *measured(void)
{
    ech_calibration *c = calloc(1, sizeof *c);
    ech_calibration_init(c);
    c->ranks = 4;
    c->threads = 2;
    c->memory_bytes = 64e9;
    (void)snprintf(c->cpu, sizeof c->cpu, "a processor");
    c->cost[ECH_OP_LINEAR] =
        (ech_grid){.n_axes = 3, .n = {1, 1, 2}, .at = {{100}, {200}, {50, 300}}, .seconds = {1, 4}};
    c->cost[ECH_OP_COPY] =
        (ech_grid){.n_axes = 1, .n = {2}, .at = {{1e3, 1e6}}, .seconds = {1e-9, 1e-3}};
    c->cost[ECH_OP_SEND_START] =
        (ech_grid){.n_axes = 1, .n = {2}, .at = {{8, 1e6}}, .seconds = {2e-6, 2e-3}};
    return c;
}

static void test_rates(void **state)
{
    ech_calibration *c = measured();
    ech_cluster k;
    (void)state;
    assert_ok(ech_calibration_cluster(c, 0, "machine.yaml", &k));
    assert_string_equal(k.name, "machine.yaml");
    assert_string_equal(k.device.name, "a processor");
    assert_int_equal(k.device.kind, ECH_DEVICE_CPU);
    assert_int_equal(k.devices, 4);
    assert_int_equal(k.devices_per_node, 4);
    assert_int_equal(k.device.units, 2);
    assert_near(k.device.peak_flops[ECH_PRECISION_FP32], 2 * 100.0 * 200 * 300 / 4, 1e-3);
    assert_near(k.device.peak_flops[ECH_PRECISION_BF16], 0, 0);
    assert_near(k.device.usable_bytes, 16e9, 0);
    assert_near(k.device.memory_bytes_per_s, 1e9,
                1e-3); /* beyond the caches, not the peak in them */
    assert_int_equal(k.n_levels, 1);
    assert_near(k.level[0].bytes_per_s, 5e8, 1e-3);
    assert_near(k.level[0].latency_s, 2e-6, 0);
    assert_ok(ech_calibration_cluster(c, 8e9, "machine.yaml", &k));
    assert_near(k.device.usable_bytes, 2e9, 0);
    free(c);
}

static void test_what_is_missing(void **state)
{
    ech_calibration *c = measured();
    ech_cluster k;
    (void)state;
    c->memory_bytes = NAN;
    assert_fails(ech_calibration_cluster(c, 0, "m.yaml", &k), ECH_E_CONFIG,
                 "memory_bytes is missing");
    c->cost[ECH_OP_LINEAR].n_axes = 0;
    assert_fails(ech_calibration_cluster(c, 1e9, "m.yaml", &k), ECH_E_CONFIG,
                 "bench all --ranks 4");
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
