/* RUN: np=1 timeout=20 tags=fast */
/* Ranks, coordinates, groups, splits and trees. */
#include "check.h"

#include "layout/layout.h"

/* A layout by hand: tp innermost, then cp, dp, pp. */
static ech_layout mesh(int tp, int cp, int dp, int pp)
{
    ech_layout l;
    const ech_layout_spec spec = {.tp = tp, .cp = cp, .dp = dp, .pp = pp, .kv_share = 1};
    assert_int_equal(ech_layout_make(&spec, &l), ECH_OK);
    return l;
}

static void test_axis_names(void **state)
{
    static const char *const names[] = {"dp", "edp", "hsdp", "tp",   "kv",
                                        "pp", "cp",  "ep",   "tied", "world"};
    (void)state;
    assert_int_equal(sizeof names / sizeof names[0], ECH_N_AXES);
    for (int a = 0; a < ECH_N_AXES; a++)
        assert_string_equal(ech_axis_name((ech_axis)a), names[a]);
    assert_string_equal(ech_axis_name(ECH_N_AXES), "no axis");
}

static void test_data_parallel(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 9; dp++) {
        const ech_layout l = ech_layout_data_parallel(dp);
        int product = 1;
        assert_int_equal(l.world, dp);
        assert_int_equal(l.degree[ECH_AXIS_DP], dp);
        assert_int_equal(l.degree[ECH_AXIS_WORLD], dp);
        for (int a = 0; a < ECH_N_AXES; a++)
            if (a != ECH_AXIS_DP && a != ECH_AXIS_WORLD)
                assert_int_equal(l.degree[a], 1);
        for (int k = 0; k < l.tree[ECH_AXIS_DP].n; k++)
            product *= l.tree[ECH_AXIS_DP].factor[k];
        assert_int_equal(product, dp);
    }
}

static void test_coordinates_by_hand(void **state)
{
    const ech_layout l = mesh(2, 1, 3, 2);
    int64_t c[ECH_N_AXES];
    (void)state;
    ech_layout_coords(&l, 0, c);
    assert_int_equal(c[ECH_AXIS_TP] + c[ECH_AXIS_DP] + c[ECH_AXIS_PP], 0);
    ech_layout_coords(&l, 9, c); /* 9 = 1 tp + 1 dp * 2 + 1 pp * 6 */
    assert_int_equal(c[ECH_AXIS_TP], 1);
    assert_int_equal(c[ECH_AXIS_CP], 0);
    assert_int_equal(c[ECH_AXIS_DP], 1);
    assert_int_equal(c[ECH_AXIS_PP], 1);
    assert_int_equal(c[ECH_AXIS_WORLD], 9);
}

static void test_orders(void **state)
{
    static const struct {
        const char *words;
        ech_axis want[4];
    } rows[] = {
        {ECH_ORDER_DEFAULT, {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_DP, ECH_AXIS_PP}},
        {"ep-pp-dp-cp-tp", {ECH_AXIS_PP, ECH_AXIS_DP, ECH_AXIS_CP, ECH_AXIS_TP}},
        {"dp-tp-pp-cp-ep", {ECH_AXIS_DP, ECH_AXIS_TP, ECH_AXIS_PP, ECH_AXIS_CP}},
    };
    static const int degree[ECH_N_AXES] = {
        [ECH_AXIS_TP] = 2, [ECH_AXIS_CP] = 3, [ECH_AXIS_DP] = 5, [ECH_AXIS_PP] = 7};
    ech_axis order[4] = {ECH_AXIS_WORLD};
    (void)state;
    assert_false(ech_order_read("tp-cp-dp-pp", order));
    assert_int_equal(order[0], ECH_AXIS_WORLD); /* unchanged */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(ech_order_read(rows[i].words, order));
        assert_memory_equal(order, rows[i].want, sizeof order);
    }
    assert_int_equal(ech_order_stride(order, 4, degree, ECH_AXIS_DP), 1);
    assert_int_equal(ech_order_stride(order, 4, degree, ECH_AXIS_TP), 5);
    assert_int_equal(ech_order_stride(order, 4, degree, ECH_AXIS_PP), 5 * 2);
    assert_int_equal(ech_order_stride(order, 4, degree, ECH_AXIS_CP), 5 * 2 * 7);
}

static void test_groups_by_hand(void **state)
{
    const ech_layout l = mesh(2, 1, 3, 2);
    int m[12];
    (void)state;
    assert_int_equal(ech_layout_group(&l, 9, ECH_AXIS_TP, m), 1);
    assert_int_equal(m[0], 8);
    assert_int_equal(m[1], 9);
    assert_int_equal(ech_layout_group(&l, 9, ECH_AXIS_DP, m), 1);
    assert_int_equal(m[0], 7);
    assert_int_equal(m[1], 9);
    assert_int_equal(m[2], 11);
    assert_int_equal(ech_layout_group(&l, 9, ECH_AXIS_PP, m), 1);
    assert_int_equal(m[0], 3);
    assert_int_equal(m[1], 9);
    assert_int_equal(ech_layout_group(&l, 9, ECH_AXIS_EP, m), 0);
    assert_int_equal(m[0], 9);
    assert_int_equal(ech_layout_group(&l, 9, ECH_AXIS_WORLD, m), 9);
    for (int i = 0; i < 12; i++)
        assert_int_equal(m[i], i);
}

/* The groups of an axis deal out the world: members see the same list, each at its own index, and
 * differ in that coordinate only. */
static void check_groups(const ech_layout *l, ech_axis axis)
{
    for (int rank = 0; rank < l->world; rank++) {
        int members[64], theirs[64];
        int64_t mine[ECH_N_AXES], other[ECH_N_AXES];
        const int me = ech_layout_group(l, rank, axis, members);
        ech_layout_coords(l, rank, mine);
        assert_int_equal(members[me], rank);
        for (int i = 0; i < l->degree[axis]; i++) {
            assert_in_range(members[i], 0, l->world - 1);
            assert_int_equal(ech_layout_group(l, members[i], axis, theirs), i);
            assert_memory_equal(members, theirs, (size_t)l->degree[axis] * sizeof members[0]);
            ech_layout_coords(l, members[i], other);
            for (int k = 0; k < ECH_MESH_AXES; k++)
                assert_int_equal(other[l->order[k]], l->order[k] == axis ? i : mine[l->order[k]]);
        }
    }
}

static void test_groups_deal_out_the_world(void **state)
{
    static const int degrees[][4] = {
        {1, 1, 1, 1}, {2, 3, 1, 1}, {2, 1, 3, 2}, {3, 2, 2, 2}, {1, 1, 5, 3}};
    static const ech_axis axes[] = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_DP, ECH_AXIS_PP};
    (void)state;
    for (size_t d = 0; d < sizeof degrees / sizeof degrees[0]; d++) {
        ech_layout l = mesh(degrees[d][0], degrees[d][1], degrees[d][2], degrees[d][3]);
        for (int a = 0; a < 4; a++)
            check_groups(&l, axes[a]);
        l.order[0] = ECH_AXIS_PP; /* another order: pipeline innermost */
        l.order[4] = ECH_AXIS_TP;
        for (int a = 0; a < 4; a++)
            check_groups(&l, axes[a]);
    }
}

/* Rank = tp + 2 dp + 4 pp: pairs are 4 |last - first| apart, everybody else is alone. */
static void check_tied(int pp, int first, int last)
{
    const ech_layout_spec spec = {
        .tp = 2, .cp = 1, .pp = pp, .dp = 2, .kv_share = 1, .tied = {first, last}};
    ech_layout l;
    assert_ok(ech_layout_make(&spec, &l));
    assert_int_equal(l.degree[ECH_AXIS_TIED], first == last ? 1 : 2);
    assert_int_equal(ech_layout_node_run(&l, ECH_AXIS_TIED), 1);
    for (int rank = 0; rank < l.world; rank++) {
        int64_t coord[ECH_N_AXES];
        int m[2] = {-1, -1};
        const int stage = rank / 4;
        const bool is_tied = first != last && (stage == first || stage == last);
        const int index = is_tied && stage == last;
        ech_layout_coords(&l, rank, coord);
        assert_int_equal(coord[ECH_AXIS_TIED], index);
        assert_int_equal(ech_layout_group_size(&l, rank, ECH_AXIS_TIED), is_tied ? 2 : 1);
        assert_int_equal(ech_layout_group_size(&l, rank, ECH_AXIS_PP), pp);
        assert_int_equal(ech_layout_group(&l, rank, ECH_AXIS_TIED, m), index);
        assert_int_equal(m[0], is_tied ? rank % 4 + 4 * first : rank);
        assert_int_equal(m[1], is_tied ? rank % 4 + 4 * last : -1);
    }
}

static void test_tied_stages_are_pairs(void **state)
{
    ech_layout l;
    ech_layout_spec spec = {.tp = 1, .cp = 1, .pp = 3, .dp = 1, .kv_share = 1, .tied = {0, 3}};
    (void)state;
    for (int pp = 1; pp <= 4; pp++)
        for (int first = 0; first < pp; first++)
            for (int last = 0; last < pp; last++)
                check_tied(pp, first, last);
    assert_fails(ech_layout_make(&spec, &l), ECH_E_CONFIG, "pipeline rank 3 holds");
    spec.tied[0] = -1;
    assert_fails(ech_layout_make(&spec, &l), ECH_E_CONFIG, "pipeline rank -1 holds");
    assert_true(ech_axis_contains(ECH_AXIS_PP, ECH_AXIS_TIED));
    assert_false(ech_axis_contains(ECH_AXIS_TIED, ECH_AXIS_PP));
    assert_false(ech_axis_contains(ECH_AXIS_DP, ECH_AXIS_TIED));
}

static bool runs_share_a_node(const ech_layout *l, ech_axis axis, int k)
{
    for (int rank = 0; rank < l->world; rank++) {
        int m[64];
        (void)ech_layout_group(l, rank, axis, m);
        for (int i = 0; i < l->degree[axis]; i++)
            if (m[i] / l->node_ranks != m[i / k * k] / l->node_ranks)
                return false;
    }
    return true;
}

/* The longest runs, by looking at every member of every group. */
static int node_run(const ech_layout *l, ech_axis axis)
{
    const int g = l->degree[axis];
    for (int k = g; k > 1; k--)
        if (g % k == 0 && runs_share_a_node(l, axis, k))
            return k < g ? k : 1;
    return 1;
}

static void test_neighbours_on_a_node(void **state)
{
    static const int degrees[][5] = {/* tp cp dp pp shard_group */
                                     {1, 1, 12, 1, 0}, {2, 1, 12, 1, 6}, {2, 3, 4, 1, 2},
                                     {4, 1, 6, 2, 3},  {1, 1, 8, 3, 4},  {3, 1, 8, 1, 0}};
    int more_than_one = 0;
    (void)state;
    for (size_t d = 0; d < sizeof degrees / sizeof degrees[0]; d++)
        for (int order = 0; order < 2; order++)
            for (int node = 1; node <= 48; node++) {
                ech_layout_spec s = {.tp = degrees[d][0],
                                     .cp = degrees[d][1],
                                     .pp = degrees[d][3],
                                     .dp = degrees[d][2],
                                     .shard_group = degrees[d][4],
                                     .kv_share = degrees[d][0] > 3 ? 2 : 1,
                                     .order = {ECH_AXIS_DP, ECH_AXIS_TP, ECH_AXIS_PP, ECH_AXIS_CP},
                                     .node_ranks = node};
                ech_layout l;
                if (order == 0)
                    memset(s.order, 0, sizeof s.order);
                if (s.tp * s.cp * s.pp * s.dp % node != 0) {
                    assert_fails(ech_layout_make(&s, &l), ECH_E_CONFIG, "do not make up");
                    continue;
                }
                assert_ok(ech_layout_make(&s, &l));
                assert_int_equal(l.node_ranks, node);
                for (int a = 0; a < ECH_N_AXES; a++) {
                    assert_int_equal(ech_layout_node_run(&l, (ech_axis)a),
                                     node_run(&l, (ech_axis)a));
                    more_than_one += node_run(&l, (ech_axis)a) > 1;
                }
                s.node_ranks = 0; /* one node */
                assert_ok(ech_layout_make(&s, &l));
                assert_int_equal(ech_layout_node_run(&l, ECH_AXIS_DP), 1);
            }
    assert_true(more_than_one > 50);
}

static void test_default_trees(void **state)
{
    static const struct {
        int n, factors, factor[6];
    } rows[] = {{1, 0, {0}},          {2, 1, {2}},        {6, 2, {2, 3}},
                {7, 1, {7}},          {12, 3, {2, 2, 3}}, {64, 6, {2, 2, 2, 2, 2, 2}},
                {90, 4, {2, 3, 3, 5}}};
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const ech_tree t = ech_tree_default(rows[r].n);
        assert_int_equal(t.n, rows[r].factors);
        for (int k = 0; k < t.n; k++)
            assert_int_equal(t.factor[k], rows[r].factor[k]);
    }
}

static void test_trees_by_hand(void **state)
{
    ech_tree t;
    (void)state;
    assert_ok(ech_tree_make((const int[]){4, 3}, 2, 12, &t));
    assert_int_equal(t.n, 2);
    assert_int_equal(t.factor[0], 4);
    assert_int_equal(t.factor[1], 3);
    assert_ok(ech_tree_make(NULL, 0, 1, &t));
    assert_int_equal(t.n, 0);
    assert_fails(ech_tree_make((const int[]){2, 3}, 2, 12, &t), ECH_E_CONFIG, "6");
    assert_fails(ech_tree_make((const int[]){2, 12}, 2, 12, &t), ECH_E_CONFIG, "12");
    assert_fails(ech_tree_make((const int[]){12, 1}, 2, 12, &t), ECH_E_CONFIG, ">= 2");
    assert_fails(ech_tree_make((const int[]){-3, -4}, 2, 12, &t), ECH_E_CONFIG, ">= 2");
}

static void test_splits_cover(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 5, 7, 12, 50257, INT64_C(1) << 40};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int parts = 1; parts <= 9; parts++) {
            int64_t at = 0;
            for (int i = 0; i < parts; i++) {
                const ech_range r = ech_split(sizes[s], parts, i);
                const int64_t elems = r.end - r.begin;
                assert_true(r.begin == at);
                assert_true(elems == sizes[s] / parts || elems == sizes[s] / parts + 1);
                at = r.end;
            }
            assert_true(at == sizes[s]);
        }
    assert_true(ech_split(7, 3, 0).end == 3); /* longer parts come first */
    assert_true(ech_split(7, 3, 1).end == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axis_names),
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_coordinates_by_hand),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_groups_by_hand),
        cmocka_unit_test(test_groups_deal_out_the_world),
        cmocka_unit_test(test_tied_stages_are_pairs),
        cmocka_unit_test(test_neighbours_on_a_node),
        cmocka_unit_test(test_default_trees),
        cmocka_unit_test(test_trees_by_hand),
        cmocka_unit_test(test_splits_cover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
