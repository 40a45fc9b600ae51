/* RUN: np=1 timeout=20 tags=fast */
/* Grids and the file of a calibration: points are met exactly, what lies between them lies between
 * their seconds, files read back bit for bit, hostile ones are refused with key and line. */
#include "check.h"

#include "price/cost.h"
#include "program/op_signature.h"

#include <math.h>
#include <stdlib.h>

/* seconds = 3e-9 rows inputs^1.5 outputs^0.5: a power law, which the interpolation keeps */
static double law(double rows, double inputs, double outputs)
{
    return 3e-9 * rows * pow(inputs, 1.5) * sqrt(outputs);
}

static ech_grid gemm_grid(void)
{
    ech_grid g = {.n_axes = 3, .n = {2, 3, 2}, .at = {{16, 256}, {64, 192, 768}, {32, 2048}}};
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 3; i++)
            for (int o = 0; o < 2; o++)
                g.seconds[(r * 3 + i) * 2 + o] = law(g.at[0][r], g.at[1][i], g.at[2][o]);
    return g;
}

static void test_points_are_met_exactly(void **state)
{
    (void)state;
    const ech_grid g = gemm_grid();
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 3; i++)
            for (int o = 0; o < 2; o++) {
                const double at[] = {g.at[0][r], g.at[1][i], g.at[2][o]};
                assert_true(ech_grid_seconds(&g, at) == g.seconds[(r * 3 + i) * 2 + o]);
            }
}

static void test_a_power_law_is_kept_between_points(void **state)
{
    (void)state;
    const ech_grid g = gemm_grid();
    for (double r = 16; r <= 256; r *= 1.7)
        for (double i = 64; i <= 768; i *= 1.3)
            for (double o = 32; o <= 2048; o *= 2.1) {
                const double at[] = {r, i, o};
                assert_near(ech_grid_seconds(&g, at), law(r, i, o), 1e-9 * law(r, i, o));
            }
}

static void test_seconds_grow_between_growing_points_and_stay_between_them(void **state)
{
    (void)state;
    const ech_grid g = {
        .n_axes = 1, .n = {4}, .at = {{10, 100, 1000, 5000}}, .seconds = {1e-6, 2e-6, 9e-6, 70e-6}};
    double before = 0;
    for (double x = 1; x < 20000; x *= 1.01) {
        const double s = ech_grid_seconds(&g, &x);
        assert_true(s >= before);
        for (int i = 0; i < 3; i++)
            if (x >= g.at[0][i] && x <= g.at[0][i + 1])
                assert_true(s >= g.seconds[i] * (1 - 1e-12) && s <= g.seconds[i + 1] * (1 + 1e-12));
        before = s;
    }
}

static void test_below_the_first_point_seconds_stay_above_the_last_they_grow(void **state)
{
    (void)state;
    const ech_grid g = {.n_axes = 1, .n = {2}, .at = {{10, 100}}, .seconds = {1e-6, 2e-6}};
    const double none = 0;
    const double ten_times = 1000;
    assert_true(ech_grid_seconds(&g, &none) == 1e-6);
    assert_near(ech_grid_seconds(&g, &ten_times), 2e-5, 1e-18);
}

static ech_operand operand(ech_access access, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    ech_operand o = {.region = ECH_REGION_WORK, .access = access, .dtype = ECH_F32, .rank = rank};
    const int64_t size[] = {a, b, c, d};
    for (int i = 0; i < rank; i++)
        o.dim[i] = (ech_dim){size[i], ECH_EXTENT_BOUND};
    return o;
}

static void test_places_of_ops_on_their_axes(void **state)
{
    (void)state;
    double at[ECH_GRID_AXES];
    ech_op forward = {.kind = ECH_OP_LINEAR, .n_args = 4};
    forward.arg[0] = operand(ECH_READ, 2, 7, 11, 0, 0);
    forward.arg[1] = operand(ECH_READ, 2, 13, 11, 0, 0);
    assert_true(ech_op_coordinates(&forward, 1, at) == 1.0);
    assert_true(at[0] == 7 && at[1] == 11 && at[2] == 13);
    ech_op wgrad = {.kind = ECH_OP_LINEAR_WGRAD, .n_args = 3};
    wgrad.arg[0] = operand(ECH_READ, 2, 7, 11, 0, 0);
    wgrad.arg[1] = operand(ECH_READ, 2, 7, 13, 0, 0);
    (void)ech_op_coordinates(&wgrad, 1, at);
    assert_true(at[0] == 7 && at[1] == 11 && at[2] == 13);
    /* 96 tokens, 2 groups of 3 query heads of 8: sequences of 32, window 4 */
    ech_op attention = {.kind = ECH_OP_ATTENTION, .n_args = 3};
    attention.arg[0] = operand(ECH_READ, 4, 96, 2, 5, 8);
    attention.attr[0] = ech_expr_const(32);
    attention.attr[1] = ech_expr_const(0);
    assert_true(ech_op_coordinates(&attention, 1, at) == 96 * 6);
    assert_true(at[0] == 32 && at[1] == 8);
    attention.attr[1] = ech_expr_const(4);
    int pairs = 0;
    for (int q = 0; q < 32; q++)
        for (int k = 0; k <= q; k++)
            pairs += q - k < 4;
    assert_near(ech_op_coordinates(&attention, 1, at), 96 * 6 * pairs / 528.0, 1e-9);
    /* read, read and written: 3 * 40 bytes */
    ech_op add = {.kind = ECH_OP_SCALE, .n_args = 2};
    add.arg[0] = operand(ECH_READ, 1, 10, 0, 0, 0);
    add.arg[1] = operand(ECH_READ_WRITE, 1, 10, 0, 0, 0);
    assert_true(ech_op_coordinates(&add, 1, at) == 1.0 && at[0] == 120);
    /* a rank of 4 sends each of 3 others a quarter */
    ech_op reduce = {.kind = ECH_OP_ALL_REDUCE_START, .n_args = 2};
    reduce.arg[0] = operand(ECH_READ_WRITE, 1, 1000, 0, 0, 0);
    assert_true(ech_op_coordinates(&reduce, 4, at) == 3.0 && at[0] == 1000);
    ech_op gather = {.kind = ECH_OP_ALL_GATHER_START, .n_args = 2};
    gather.arg[0] = operand(ECH_READ, 1, 250, 0, 0, 0);
    assert_true(ech_op_coordinates(&gather, 4, at) == 3.0 && at[0] == 1000);
}

static ech_calibration *calibration(void)
{
    ech_calibration *c = calloc(1, sizeof *c);
    assert_non_null(c);
    ech_calibration_init(c);
    (void)snprintf(c->echelon, sizeof c->echelon, "0.1.0");
    (void)snprintf(c->host, sizeof c->host, "a \"host\": \\ of\ttwo");
    (void)snprintf(c->transport, sizeof c->transport, "mpi");
    c->ranks = 2;
    c->threads = 1;
    c->op_s = 1.0 / 3.0e6;
    c->comm_busy = 0.9;
    c->cost[ECH_OP_LINEAR] = gemm_grid();
    c->cost[ECH_OP_ALL_REDUCE_START] =
        (ech_grid){.n_axes = 1, .n = {2}, .at = {{4, 4096}}, .seconds = {1.0 / 7e5, 1.0 / 3e4}};
    return c;
}

static void test_a_file_reads_back_bit_for_bit(void **state)
{
    (void)state;
    ech_calibration *c = calibration();
    ech_calibration *again = calloc(1, sizeof *again);
    ech_text text = {0};
    c->in_step = 1.0 / 0.9;
    ech_calibration_write(c, &text);
    assert_non_null(again);
    assert_ok(ech_calibration_parse(ech_text_get(&text), text.bytes, "m.yaml", again));
    assert_memory_equal(c, again, sizeof *c);
    ech_text_fini(&text);
    free(c);
    free(again);
}

static void test_costs_are_the_grid_and_the_executor(void **state)
{
    (void)state;
    ech_calibration *c = calibration();
    const ech_costs costs = ech_calibration_costs(c);
    ech_op op = {.kind = ECH_OP_LINEAR, .n_args = 4};
    op.arg[0] = operand(ECH_READ, 2, 16, 192, 0, 0);
    op.arg[1] = operand(ECH_READ, 2, 32, 192, 0, 0);
    assert_true(costs.kernel_s(costs.user, NULL, NULL, &op) == law(16, 192, 32) + c->op_s);
    c->in_step = 1.25; /* messages are as long as before */
    assert_near(costs.kernel_s(costs.user, NULL, NULL, &op), 1.25 * (law(16, 192, 32) + c->op_s),
                1e-15);
    /* the measured pair exchanged 4096 bytes each way; a rank of 4 does so with 3 */
    ech_op reduce = {.kind = ECH_OP_ALL_REDUCE_START, .n_args = 2, .axis = ECH_AXIS_DP};
    reduce.arg[0] = operand(ECH_READ_WRITE, 1, 4096, 0, 0, 0);
    const ech_layout four = ech_layout_data_parallel(4);
    const ech_layout one = ech_layout_data_parallel(1);
    assert_near(costs.comm_s(costs.user, &four, &reduce, 0), 3.0 / 3e4, 1e-15);
    assert_true(costs.comm_s(costs.user, &one, &reduce, 0) == 0.0);
    assert_true(costs.busy == 0.9);
    free(c);
}

static void test_what_is_not_measured_is_named(void **state)
{
    (void)state;
    ech_calibration *c = calibration();
    ech_op op[2] = {{.kind = ECH_OP_LINEAR}, {.kind = ECH_OP_GELU}};
    ech_block block = {.op = op, .n_ops = 2};
    const ech_program p = {.layout = ech_layout_data_parallel(1), .block = &block, .n_blocks = 1};
    const ech_program *one = &p;
    ech_cost_query query = {.program = &one, .n_classes = 1, .threads = 1, .real = ECH_F32};
    assert_fails(ech_calibration_check(c, &query), ECH_E_CONFIG, "cost.gelu: not measured");
    block.n_ops = 1;
    assert_ok(ech_calibration_check(c, &query));
    query.threads = 2;
    assert_fails(ech_calibration_check(c, &query), ECH_E_CONFIG, "--threads 2");
    query.threads = 0;
    query.real = ECH_F64;
    assert_fails(ech_calibration_check(c, &query), ECH_E_CONFIG, "--dtype fp64");
    free(c);
}

#define HEAD "ranks: 2\nthreads: 1\ndtype: fp32\n"

static const struct {
    const char *text, *words;
} wrong[] = {
    {"[]", "wanted a map"},
    {"ranks: 2", "threads: missing"},
    {HEAD, "cost: missing"},
    {"ranks: 0\nthreads: 1\ndtype: fp32\ncost: {}", "ranks"},
    {"ranks: 2\nthreads: 1\ndtype: fp31\ncost: {}", "fp32"},
    {HEAD "cots: {}\ncost: {}", "(line 4"},
    {HEAD "op_s: -1\ncost: {}", "op_s"},
    {HEAD "comm_busy: 1.5\ncost: {}", "comm_busy"},
    {HEAD "cost:\n  linaer: {}", "linear"},
    {HEAD "cost:\n  gelu: {bytes: [1, 2], seconds: [1]}", "1 values, the axes have 2 points"},
    {HEAD "cost:\n  gelu: {bytes: [2, 1], seconds: [1, 1]}",
     "1 after 2, wanted growing values (line 5"},
    {HEAD "cost:\n  gelu: {bytes: [1, 2], seconds: [1, 0]}", "value 2 is 0"},
    {HEAD "cost:\n  gelu: {bytes: [1, 2], seconds: [1, x]}", "value 2 is 'x'"},
    {HEAD "cost:\n  gelu: {bytes: [], seconds: []}", "0 values, wanted 1..12"},
    {HEAD "cost:\n  gelu: {bytes: [1, 2]}", "seconds: missing"},
    {HEAD "cost:\n  gelu: {rows: [1], bytes: [1], seconds: [1]}", "rows"},
    {HEAD "cost:\n  linear: {rows: [1], inputs: [1], seconds: [1]}", "outputs: missing"},
    {HEAD "cost:\n  send_wait: {bytes: [1], seconds: [1]}", "no cost of its own"},
    {HEAD "cost:\n  gelu: {bytes: [1,2,3,4,5,6,7,8,9,10,11,12,13], seconds: [1]}", "13 values"},
    {HEAD "host: "
          "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'\ncost: {}",
     "host: 75 bytes"},
};

static void test_wrong_files_are_refused_with_their_place(void **state)
{
    (void)state;
    ech_calibration *c = calloc(1, sizeof *c);
    assert_non_null(c);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_fails(ech_calibration_parse(wrong[i].text, strlen(wrong[i].text), "m.yaml", c),
                     ECH_E_CONFIG, wrong[i].words);
        assert_true(c->ranks == 0); /* unchanged */
    }
    assert_fails(ech_calibration_parse("base: h100-sxm-80", 17, "m.yaml", c), ECH_E_CONFIG,
                 "this is the file of a cluster");
    assert_fails(ech_calibration_parse("a: [", 4, "m.yaml", c), ECH_E_PARSE, "m.yaml");
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points_are_met_exactly),
        cmocka_unit_test(test_a_power_law_is_kept_between_points),
        cmocka_unit_test(test_seconds_grow_between_growing_points_and_stay_between_them),
        cmocka_unit_test(test_below_the_first_point_seconds_stay_above_the_last_they_grow),
        cmocka_unit_test(test_places_of_ops_on_their_axes),
        cmocka_unit_test(test_a_file_reads_back_bit_for_bit),
        cmocka_unit_test(test_costs_are_the_grid_and_the_executor),
        cmocka_unit_test(test_what_is_not_measured_is_named),
        cmocka_unit_test(test_wrong_files_are_refused_with_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
