/* RUN: np=1,2 timeout=60 tags=fast */
/* Small benches on one and on two ranks: seconds that are times, grids that price what they
 * measured, the same on every rank. */
#include "check.h"
#include "mpi_world.h"

#include "measure/bench.h"
#include "measure/bench_op.h"

#include <math.h>
#include <stdlib.h>

static ech_transport *transport;

static ech_bench_config small(ech_dtype real)
{
    ech_bench_config c = ech_bench_config_default();
    c.transport = transport;
    c.real = real;
    c.rounds = 2;
    c.point_s = 1e-5;
    c.ring_bytes = (size_t)24 << 20;
    c.is_small = true;
    return c;
}

/* The grid gives a point's own seconds at its place. */
static void check_points(const ech_calibration *c, const ech_bench_found *found)
{
    assert_true(found->n > 0);
    for (size_t i = 0; i < found->n; i++) {
        const ech_bench_point *p = &found->point[i];
        assert_true(p->seconds > 0 && p->seconds < 10 && isfinite(p->seconds));
        assert_true(p->pieces > 0 && p->work > 0 && p->spread >= 0);
        assert_true(ech_grid_seconds(&c->cost[p->kind], p->at) == p->seconds);
    }
}

static void check_alike_on_all_ranks(const ech_calibration *c)
{
    double mine = 0;
    double all[8];
    for (int k = 0; k < ECH_N_OPS; k++)
        for (int i = 0; i < ECH_GRID_VALUES; i++)
            mine += c->cost[k].seconds[i];
    if (transport->size == 1)
        return;
    assert_ok(transport->exchange(transport, &mine, sizeof mine, all));
    for (int r = 0; r < transport->size; r++)
        assert_true(all[r] == all[0]);
}

static void measure(ech_dtype real,
                    ech_status (*part)(ech_bench *, ech_calibration *, ech_bench_found *),
                    ech_calibration *c)
{
    const ech_bench_config config = small(real);
    ech_bench b = {0};
    ech_bench_found found = {0};
    assert_ok(ech_bench_open(&config, &b));
    assert_ok(part(&b, c, &found));
    check_points(c, &found);
    check_alike_on_all_ranks(c);
    assert_int_equal(c->ranks, transport->size);
    assert_true(c->real == real);
    ech_bench_found_fini(&found);
    ech_bench_close(&b);
}

static void test_parts_measure_and_fill_their_kinds(void **state)
{
    (void)state;
    ech_calibration *c = calloc(1, sizeof *c);
    ech_calibration *again = calloc(1, sizeof *again);
    ech_text text = {0};
    assert_true(c && again);
    ech_calibration_init(c);
    measure(ECH_F32, ech_bench_gemm, c);
    measure(ECH_F32, ech_bench_attention, c);
    measure(ECH_F32, ech_bench_memory, c);
    assert_true(c->op_s > 0 && c->op_s < 1e-3);
    if (transport->size > 1) {
        measure(ECH_F32, ech_bench_comm, c);
        assert_true(c->comm_busy >= 0 && c->comm_busy <= 1);
    }
    for (int k = 0; k < ECH_N_OPS; k++) { /* all that a training step may have */
        const char *names[ECH_GRID_AXES];
        const bool is_comm = ech_op_is_comm((ech_op_kind)k);
        if (k == ECH_OP_ATTENTION_CACHED || (is_comm && transport->size == 1))
            assert_int_equal(c->cost[k].n_axes, 0);
        else
            assert_int_equal(c->cost[k].n_axes, ech_grid_axes_of((ech_op_kind)k, names));
    }
    ech_calibration_write(c, &text);
    assert_ok(ech_calibration_parse(ech_text_get(&text), text.bytes, "m.yaml", again));
    assert_memory_equal(c, again, sizeof *c);
    ech_text_fini(&text);
    free(c);
    free(again);
}

static void test_fp64_is_measured_too(void **state)
{
    (void)state;
    ech_calibration *c = calloc(1, sizeof *c);
    assert_non_null(c);
    ech_calibration_init(c);
    measure(ECH_F64, ech_bench_gemm, c);
    free(c);
}

static void test_every_measured_op_keeps_its_shape_law(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_N_OPS; k++) {
        ech_bench_sizes sizes;
        for (int i = 0; ech_bench_sizes_of((ech_op_kind)k, i, &sizes); i++) {
            const ech_op op = ech_bench_op((ech_op_kind)k, &sizes, ECH_F32);
            assert_ok(ech_op_check_shape(&op));
            assert_true(ech_bench_op_bytes(&op) > 0);
        }
    }
}

static void test_one_rank_has_nobody_to_talk_to(void **state)
{
    (void)state;
    const ech_bench_config config = small(ECH_F32);
    ech_bench b = {0};
    ech_bench_found found = {0};
    ech_calibration *c = calloc(1, sizeof *c);
    assert_non_null(c);
    if (transport->size == 1) {
        assert_ok(ech_bench_open(&config, &b));
        assert_fails(ech_bench_comm(&b, c, &found), ECH_E_ILLEGAL, "nobody to talk to");
        ech_bench_close(&b);
    }
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_measure_and_fill_their_kinds),
        cmocka_unit_test(test_fp64_is_measured_too),
        cmocka_unit_test(test_every_measured_op_keeps_its_shape_law),
        cmocka_unit_test(test_one_rank_has_nobody_to_talk_to),
    };
    mpi_world w = {0};
    mpi_world_open(&w);
    transport = w.t;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mpi_world_close(&w);
    return failed;
}
