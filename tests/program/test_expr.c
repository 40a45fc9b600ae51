/* RUN: np=1 timeout=20 tags=fast */
/* Expressions over mesh coordinates and placements: values and words. */
#include "check.h"
#include "program/expr.h"
#include "program/placement.h"

static int64_t at(ech_expr e, int64_t tp, int64_t cp, int64_t micro)
{
    int64_t coord[ECH_N_AXES] = {0};
    coord[ECH_AXIS_TP] = tp;
    coord[ECH_AXIS_CP] = cp;
    return ech_expr_eval(&e, coord, micro);
}

static ech_expr number(int64_t v)
{
    return ech_expr_const(v);
}

static void test_operators(void **state)
{
    static const struct {
        ech_expr_op op;
        int64_t a, b, value;
    } rows[] = {
        {ECH_EXPR_ADD, 7, 5, 12}, {ECH_EXPR_ADD, 7, -9, -2},
        {ECH_EXPR_MUL, 7, 5, 35}, {ECH_EXPR_DIV, 7, 5, 1},
        {ECH_EXPR_DIV, 4, 5, 0},  {ECH_EXPR_MOD, 7, 5, 2},
        {ECH_EXPR_MIN, 7, 5, 5},  {ECH_EXPR_MIN, -7, 5, -7},
        {ECH_EXPR_LE, 5, 5, 1},   {ECH_EXPR_LE, 6, 5, 0},
        {ECH_EXPR_LE, -6, 5, 1},  {ECH_EXPR_MUL, INT64_C(1) << 40, 3, INT64_C(3) << 40},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(
            at(ech_expr_binary(rows[i].op, number(rows[i].a), number(rows[i].b)), 0, 0, 0),
            rows[i].value);
}

static void test_nothing_is_zero(void **state)
{
    (void)state;
    assert_int_equal(at((ech_expr){0}, 3, 3, 3), 0);
}

static void test_coordinates_and_micro_batch(void **state)
{
    (void)state;
    assert_int_equal(at(ech_expr_coord(ECH_AXIS_TP), 3, 5, 7), 3);
    assert_int_equal(at(ech_expr_coord(ECH_AXIS_CP), 3, 5, 7), 5);
    assert_int_equal(at(ech_expr_micro(), 3, 5, 7), 7);
}

/* V / t * tp: where a rank's rows of the vocabulary begin. */
static void test_first_row_of_a_vocabulary_shard(void **state)
{
    const ech_expr rows = ech_expr_binary(ECH_EXPR_DIV, number(50304), number(3));
    const ech_expr first = ech_expr_binary(ECH_EXPR_MUL, rows, ech_expr_coord(ECH_AXIS_TP));
    (void)state;
    assert_int_equal(first.n, 5);
    assert_int_equal(at(first, 0, 0, 0), 0);
    assert_int_equal(at(first, 1, 0, 0), 16768);
    assert_int_equal(at(first, 2, 0, 0), 33536);
}

/* (cp + micro) % 4 <= cp: seven nodes, the most there may be. */
static void test_ring_hop_condition(void **state)
{
    const ech_expr sum =
        ech_expr_binary(ECH_EXPR_ADD, ech_expr_coord(ECH_AXIS_CP), ech_expr_micro());
    const ech_expr from = ech_expr_binary(ECH_EXPR_MOD, sum, number(4));
    const ech_expr is_seen = ech_expr_binary(ECH_EXPR_LE, from, ech_expr_coord(ECH_AXIS_CP));
    (void)state;
    assert_int_equal(is_seen.n, ECH_EXPR_NODES);
    for (int64_t cp = 0; cp < 4; cp++)
        for (int64_t hop = 0; hop < 4; hop++)
            assert_int_equal(at(is_seen, 0, cp, hop), (cp + hop) % 4 <= cp);
}

static void assert_place(ech_place p, const char *words)
{
    char buf[40];
    assert_string_equal(ech_place_format(p, buf, sizeof buf), words);
}

static void test_places_in_words(void **state)
{
    (void)state;
    assert_place(ech_place_of(ECH_PLACE_INVARIANT), "I");
    assert_place(ech_place_of(ECH_PLACE_REPLICATED), "R");
    assert_place(ech_place_of(ECH_PLACE_PARTIAL), "P");
    assert_place(ech_place_of(ECH_PLACE_PARTIAL_MAX), "Pmax");
    assert_place(ech_place_of(ECH_PLACE_UNRELATED), "V");
    assert_place(ech_place_sharded(0, ECH_MAP_SEQUENCES), "S(0, sequences)");
    assert_place(ech_place_sharded(0, ECH_MAP_CONTIGUOUS), "S(0, contiguous)");
    assert_place(ech_place_sharded(1, ECH_MAP_ZIGZAG), "S(1, zig-zag)");
    assert_place(ech_place_sharded(0, ECH_MAP_HEAD_GROUP), "S(0, head group)");
    assert_place(ech_place_sharded(2, ECH_MAP_GATE_UP), "S(2, gate-up)");
    assert_place(ech_place_sharded(0, ECH_MAP_FLAT), "S(0, flat)");
}

static void assert_scale(ech_scale s, const char *words)
{
    char buf[96];
    assert_string_equal(ech_scale_format(s, buf, sizeof buf), words);
}

static void test_scales_in_words(void **state)
{
    (void)state;
    assert_scale((ech_scale){.factor = 1.0}, "1");
    assert_scale((ech_scale){.factor = 0.25}, "1 x 0.25");
    assert_scale((ech_scale){.loss_scale = 1, .per_token = 1, .factor = 1.0},
                 "1 x loss_scale^1 x (1/tokens)^1");
    assert_scale((ech_scale){.per_token = 2, .aux = 1, .factor = 2.0},
                 "1 x (1/tokens)^2 x aux^1 x 2");
    assert_scale((ech_scale){.loss_scale = -1, .factor = 1.0}, "1 x loss_scale^-1");
}

static void test_equality(void **state)
{
    const ech_placement i = ech_placement_invariant();
    ech_placement p = ech_placement_with(i, ECH_AXIS_TP, ech_place_of(ECH_PLACE_PARTIAL));
    (void)state;
    assert_true(ech_placement_is_equal(&i, &i));
    assert_false(ech_placement_is_equal(&i, &p));
    p = ech_placement_with(p, ECH_AXIS_TP, ech_place_of(ECH_PLACE_INVARIANT));
    assert_true(ech_placement_is_equal(&i, &p));
    p.scale.factor = 1.0 + 1e-9;
    assert_false(ech_placement_is_equal(&i, &p));
    assert_true(
        ech_place_is_equal(ech_place_sharded(1, ECH_MAP_FLAT), ech_place_sharded(1, ECH_MAP_FLAT)));
    assert_false(
        ech_place_is_equal(ech_place_sharded(1, ECH_MAP_FLAT), ech_place_sharded(0, ECH_MAP_FLAT)));
    assert_false(ech_place_is_equal(ech_place_sharded(1, ECH_MAP_FLAT),
                                    ech_place_sharded(1, ECH_MAP_ZIGZAG)));
    assert_false(
        ech_scale_is_equal((ech_scale){.aux = 1, .factor = 1.0}, (ech_scale){.factor = 1.0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_nothing_is_zero),
        cmocka_unit_test(test_coordinates_and_micro_batch),
        cmocka_unit_test(test_first_row_of_a_vocabulary_shard),
        cmocka_unit_test(test_ring_hop_condition),
        cmocka_unit_test(test_places_in_words),
        cmocka_unit_test(test_scales_in_words),
        cmocka_unit_test(test_equality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
