/* RUN: np=1 timeout=120 tags=fast */
/* Sums that go in two steps: over the shard group and then its replicas, and inside nodes and then
 * between them.  The bits are those of the flat sum; the bytes too, but fewer leave a node. */
#include "coll_world.h"
#include "check.h"

#include <stdlib.h>

static const ech_coll_kind kinds[] = {ECH_COLL_ALL_REDUCE, ECH_COLL_REDUCE_SCATTER,
                                      ECH_COLL_ALL_GATHER, ECH_COLL_SUM_SMALL};

/* --- over two axes --- */

static ech_layout two_axes(int group, int replicas)
{
    const int factor[] = {group, replicas};
    const ech_layout_spec spec = {.tp = 1,
                                  .cp = 1,
                                  .pp = 1,
                                  .dp = group * replicas,
                                  .shard_group = group,
                                  .kv_share = 1,
                                  .tree = factor,
                                  .n_tree = 2};
    ech_layout l;
    assert_ok(ech_layout_make(&spec, &l));
    assert_true(ech_layout_is_nested(&l));
    return l;
}

static void finish(coll_world *w, int request[])
{
    for (int left = w->n; left > 0;)
        for (int r = 0; r < w->n; r++)
            if (request[r] >= 0) {
                const ech_status st = ech_coll_test(w->comm[r], request[r]);
                assert_true(st >= 0);
                request[r] = st == ECH_DONE ? -1 : request[r];
                left -= st == ECH_DONE;
            }
}

/* All-reduce the shares that a reduce-scatter left, over hsdp. */
static void reduce_shares(coll_world *w, int64_t share)
{
    int request[COLL_WORLD_RANKS];
    const size_t vectors = 2 * (size_t)ech_comm_group_size(w->comm[0], ECH_AXIS_HSDP);
    const size_t bytes = vectors * (size_t)share * sizeof(float);
    for (int r = 0; r < w->n; r++) {
        coll_run *run = &w->run[r][0];
        run->staging = realloc(run->staging, bytes);
        const ech_coll c = {.kind = ECH_COLL_ALL_REDUCE,
                            .axis = ECH_AXIS_HSDP,
                            .dtype = ECH_F32,
                            .n = share,
                            .buf = run->coll.part,
                            .staging = run->staging,
                            .staging_bytes = bytes};
        assert_ok(ech_coll_start(w->comm[r], &c, &request[r]));
    }
    finish(w, request);
}

static void check_two_axes(int group, int replicas, int64_t share, bool is_in_place)
{
    const ech_layout l = two_axes(group, replicas);
    ech_layout flat = ech_layout_data_parallel(l.world);
    const coll_case all = {
        .kind = ECH_COLL_ALL_REDUCE, .dtype = ECH_F32, .n = share * group, .seed = 11};
    const coll_case scatter = {.kind = ECH_COLL_REDUCE_SCATTER,
                               .dtype = ECH_F32,
                               .n = share * group,
                               .seed = 12,
                               .is_in_place = is_in_place};
    coll_world one, two;
    assert_ok(ech_tree_make((const int[]){group, replicas}, 2, l.world, &flat.tree[ECH_AXIS_DP]));
    coll_world_open(&one, &flat);
    coll_world_add(&one, &all);
    coll_world_open(&two, &l);
    two.seed = 5;
    coll_world_add(&two, &scatter);
    for (int r = 0; r < l.world; r++) /* the same contributions */
        memcpy(two.run[r][0].buf, one.run[r][0].buf, (size_t)(share * group) * sizeof(float));
    assert_true(coll_world_run(&one));
    coll_world_check(&one);
    assert_true(coll_world_run(&two));
    reduce_shares(&two, share);
    for (int r = 0; r < l.world; r++)
        assert_memory_equal(two.run[r][0].coll.part, (float *)one.run[r][0].buf + r % group * share,
                            (size_t)share * sizeof(float));
    coll_world_close(&one);
    coll_world_close(&two);
}

static void test_shares_then_replicas_are_one_sum(void **state)
{
    static const int sizes[][2] = {{2, 2}, {2, 3}, {3, 2}, {4, 2}, {2, 4}};
    static const int64_t shares[] = {1, 333, 70001};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t s = 0; s < (i == 1 ? 3 : 2); s++)
            check_two_axes(sizes[i][0], sizes[i][1], shares[s], s % 2);
}

/* --- inside nodes and between them --- */

typedef struct cluster {
    int tp, dp, node_ranks;
    int factor[3]; /* of dp's tree */
    int near;      /* members of a run that sum first; 1: it goes flat */
} cluster;

static const cluster clusters[] = {
    {1, 4, 2, {2, 2}, 2},    {1, 6, 2, {2, 3}, 2},     {1, 6, 3, {3, 2}, 3},
    {1, 8, 4, {2, 2, 2}, 4}, {1, 8, 2, {2, 4}, 2},     {1, 9, 3, {3, 3}, 3},
    {1, 12, 4, {4, 3}, 4},   {1, 12, 6, {2, 2, 3}, 2}, /* six on a node, sums of two first */
    {2, 6, 4, {2, 3}, 2},                              /* a node has two of two groups */
    {2, 4, 4, {4}, 1},                                 /* the tree does not part at a node */
    {1, 6, 3, {2, 3}, 1},    {1, 6, 6, {2, 3}, 1},     /* one node */
    {2, 4, 2, {2, 2}, 1},                              /* nobody shares a node */
    {1, 4, 0, {2, 2}, 1},
};

enum { N_CLUSTERS = sizeof clusters / sizeof clusters[0] };

static ech_layout layout_of(const cluster *k)
{
    ech_layout l;
    int n = 0;
    while (n < 3 && k->factor[n])
        n++;
    const ech_layout_spec spec = {.tp = k->tp,
                                  .cp = 1,
                                  .pp = 1,
                                  .dp = k->dp,
                                  .kv_share = 1,
                                  .tree = k->factor,
                                  .n_tree = n,
                                  .node_ranks = k->node_ranks};
    assert_ok(ech_layout_make(&spec, &l));
    return l;
}

static bool is_abroad(const cluster *k, int member, int other)
{
    return k->node_ranks && member * k->tp / k->node_ranks != other * k->tp / k->node_ranks;
}

static int64_t part(int64_t n, int size, int i)
{
    return n / size + (i < n % size);
}

/* Elements that a member sends to other nodes, if members of equal place in runs of `near` talk. */
static int64_t abroad(const cluster *k, ech_coll_kind kind, int64_t n, int near, int me)
{
    const bool splits = near > 1 && kind != ECH_COLL_SUM_SMALL;
    const int64_t body = splits ? n - n % k->dp : 0;
    int64_t sent = 0;
    for (int i = 0; i < k->dp; i++) {
        const bool is_partner = splits && i % near == me % near;
        if (!is_abroad(k, me, i))
            continue;
        if (is_partner && kind == ECH_COLL_ALL_REDUCE)
            sent += 2 * body / k->dp;
        else if (is_partner)
            sent += body / k->dp;
        if (kind == ECH_COLL_ALL_REDUCE) /* the rest, flat: their part and mine */
            sent += part(n - body, k->dp, i) + part(n - body, k->dp, me);
        else if (kind == ECH_COLL_REDUCE_SCATTER || kind == ECH_COLL_ALL_GATHER)
            sent += part(n - body, k->dp, me);
        else
            sent += n;
    }
    return sent;
}

static int64_t check_abroad(const coll_world *w, const cluster *k)
{
    int64_t all = 0;
    for (int r = 0; r < w->n; r++) {
        int64_t wanted = 0;
        const int64_t got = ech_comm_sent(w->comm[r])->node_bytes[ECH_AXIS_DP];
        for (int i = 0; i < w->runs; i++) {
            const coll_run *run = &w->run[r][i];
            wanted += abroad(k, run->c.kind, run->c.n, k->near, run->member) *
                      (int64_t)ech_dtype_bytes(run->c.dtype);
        }
        if (got != wanted)
            fail_msg("rank %d of tp=%d dp=%d on nodes of %d: %lld bytes leave it, must be %lld", r,
                     k->tp, k->dp, k->node_ranks, (long long)got, (long long)wanted);
        all += got;
    }
    return all;
}

static int64_t run_on(const cluster *k, const coll_case *c, uint64_t seed, bool is_lazy)
{
    const ech_layout l = layout_of(k);
    coll_world w;
    if (is_lazy)
        coll_world_open_lazy(&w, &l, seed);
    else
        coll_world_open(&w, &l);
    w.seed = seed;
    coll_world_add(&w, c);
    assert_true(coll_world_run(&w));
    coll_world_check(&w);
    const int64_t all = check_abroad(&w, k);
    coll_world_close(&w);
    return all;
}

static void test_every_kind_and_size_on_nodes(void **state)
{
    static const ech_dtype dtypes[] = {ECH_F32, ECH_F64};
    (void)state;
    for (int i = 0; i < N_CLUSTERS; i++) {
        const int g = clusters[i].dp;
        const int64_t sizes[] = {0, 1, g - 1, g, g + 1, 3 * g, 1023, 5 * g * 17};
        for (int k = 0; k < 4; k++)
            for (int s = 0; s < 16; s++) {
                const coll_case c = {.kind = kinds[k],
                                     .axis = ECH_AXIS_DP,
                                     .dtype = dtypes[s % 2],
                                     .n = sizes[s / 2],
                                     .seed = (uint64_t)s + 1,
                                     .is_in_place = s / 2 % 2};
                (void)run_on(&clusters[i], &c, (uint64_t)s + 1, (s + k) % 3 == 0);
            }
    }
}

/* Shares of more than one chunk of 65536, so that each level has rounds of its own. */
static void test_many_chunks_on_nodes(void **state)
{
    static const int which[] = {0, 2};
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            const cluster *on = &clusters[which[i]];
            const coll_case c = {.kind = kinds[k],
                                 .axis = ECH_AXIS_DP,
                                 .dtype = ECH_F32,
                                 .n = on->dp * (65536 + 11) + 1,
                                 .seed = 6,
                                 .is_in_place = i == 1};
            (void)run_on(on, &c, 2, i == 0);
        }
}

/* A tree of one factor goes flat: it sends `near` times as much from node to node. */
static void test_levels_keep_bytes_in_the_node(void **state)
{
    (void)state;
    for (int i = 0; i < N_CLUSTERS; i++)
        for (int k = 0; k < 3; k++) {
            const cluster *on = &clusters[i];
            const cluster flat = {on->tp, on->dp, on->node_ranks, {on->dp}, 1};
            const coll_case c = {.kind = kinds[k],
                                 .axis = ECH_AXIS_DP,
                                 .dtype = ECH_F32,
                                 .n = 10 * on->dp,
                                 .seed = 2};
            const int64_t bytes = run_on(on, &c, 0, false);
            assert_int_equal(bytes * on->near, run_on(&flat, &c, 0, false));
            assert_int_equal(bytes > 0, on->node_ranks && on->node_ranks < on->tp * on->dp);
        }
}

/* Several in flight at once, over other axes too. */
static void test_any_order_of_ranks_on_nodes(void **state)
{
    const cluster *on = &clusters[8];
    static const coll_case list[] = {
        {.kind = ECH_COLL_ALL_REDUCE, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 1000, .seed = 1},
        {.kind = ECH_COLL_SEND, .axis = ECH_AXIS_DP, .dtype = ECH_BF16, .n = 77, .seed = 2},
        {.kind = ECH_COLL_ALL_GATHER, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 31, .seed = 3},
        {.kind = ECH_COLL_REDUCE_SCATTER, .axis = ECH_AXIS_DP, .dtype = ECH_F64, .n = 6, .seed = 4},
        {.kind = ECH_COLL_RECV, .axis = ECH_AXIS_DP, .dtype = ECH_BF16, .n = 77, .seed = 2},
        {.kind = ECH_COLL_ALL_REDUCE, .axis = ECH_AXIS_WORLD, .dtype = ECH_F64, .n = 40, .seed = 5},
        {.kind = ECH_COLL_ALL_REDUCE, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 2, .seed = 6},
        {.kind = ECH_COLL_ALL_GATHER, .axis = ECH_AXIS_TP, .dtype = ECH_F32, .n = 9, .seed = 7},
    };
    const ech_layout l = layout_of(on);
    (void)state;
    for (uint64_t seed = 0; seed <= 40; seed++) {
        coll_world w;
        if (seed % 2)
            coll_world_open_lazy(&w, &l, seed);
        else
            coll_world_open(&w, &l);
        w.seed = seed;
        for (int i = 0; i < 8; i++)
            coll_world_add(&w, &list[i]);
        assert_true(coll_world_run(&w));
        coll_world_check(&w);
        coll_world_close(&w);
    }
}

static void test_any_member_may_lag_on_nodes(void **state)
{
    const ech_layout l = layout_of(&clusters[0]);
    (void)state;
    for (int late = 0; late < 4; late++)
        for (int k = 0; k < 3; k++) {
            const coll_case c = {.kind = kinds[k],
                                 .axis = ECH_AXIS_DP,
                                 .dtype = ECH_F32,
                                 .n = late == 2 ? 4 * (65536 + 1) : 400,
                                 .seed = 9,
                                 .is_in_place = late % 2};
            coll_world w;
            coll_world_open(&w, &l);
            coll_world_add(&w, &c);
            coll_world_add(&w, &c);
            coll_world_run_without(&w, late);
            assert_true(coll_world_run(&w));
            coll_world_check(&w);
            coll_world_close(&w);
        }
}

/* Rank 3 never comes: its neighbour waits for it inside the node, the others further on. */
static void test_a_missing_member_is_named_by_its_level(void **state)
{
    static const char *const words[3] = {
        "all_reduce over dp of 1024 fp32, between nodes: waits for contribution of rank 2 "
        "(piece 1 of 1)",
        "all_reduce over dp of 1024 fp32, between nodes: waits for contribution of rank 3 "
        "(piece 1 of 1)",
        "all_reduce over dp of 1024 fp32, inside nodes: waits for contribution of rank 3 "
        "(piece 1 of 1)"};
    const ech_layout l = layout_of(&clusters[0]);
    const coll_case c = {
        .kind = ECH_COLL_ALL_REDUCE, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 1024, .seed = 1};
    coll_world w;
    char text[256];
    (void)state;
    coll_world_open(&w, &l);
    coll_world_add(&w, &c);
    coll_world_run_without(&w, 3);
    for (int r = 0; r < 3; r++)
        assert_string_equal(ech_coll_describe(w.comm[r], w.run[r][0].request, text, sizeof text),
                            words[r]);
    coll_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_then_replicas_are_one_sum),
        cmocka_unit_test(test_every_kind_and_size_on_nodes),
        cmocka_unit_test(test_many_chunks_on_nodes),
        cmocka_unit_test(test_levels_keep_bytes_in_the_node),
        cmocka_unit_test(test_any_order_of_ranks_on_nodes),
        cmocka_unit_test(test_any_member_may_lag_on_nodes),
        cmocka_unit_test(test_a_missing_member_is_named_by_its_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
