/* RUN: np=1 timeout=20 tags=fast */
/* The communicator alone: a group of one, refusals with words, traffic as the op table has it, and
 * no allocation after create. */
#include "check.h"
#include "coll_case.h"

#include "program/op.h"

#include <stdlib.h>

/* --- counting allocations --- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#define COUNTS_ALLOCATIONS (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define COUNTS_ALLOCATIONS 1
#endif

static int64_t allocations;

#if COUNTS_ALLOCATIONS
/* The dynamic linker prefers these to the C library's own, also for calls from libechelon. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
    allocations++;
    return __libc_calloc(n, bytes);
}
void *realloc(void *p, size_t bytes)
{
    allocations++;
    return __libc_realloc(p, bytes);
}
#endif

enum { RANKS = 3, MOST = 16 };

typedef struct world {
    int n;
    ech_transport *t[MOST];
    ech_comm *comm[MOST];
} world;

static void world_open_layout(world *w, const ech_layout *l, int max_in_flight)
{
    w->n = l->world;
    assert_ok(ech_transport_inproc(w->n, w->t));
    for (int r = 0; r < w->n; r++)
        assert_ok(ech_comm_create(w->t[r], l, max_in_flight, &w->comm[r]));
}

static void world_open(world *w, int max_in_flight)
{
    const ech_layout l = ech_layout_data_parallel(RANKS);
    world_open_layout(w, &l, max_in_flight);
}

static void world_close(world *w)
{
    for (int r = 0; r < w->n; r++) {
        ech_comm_destroy(&w->comm[r]);
        w->t[r]->destroy(w->t[r]);
    }
}

static void run_together(world *w, coll_run run[])
{
    int left = w->n;
    for (int r = 0; r < w->n; r++)
        assert_ok(ech_coll_start(w->comm[r], &run[r].coll, &run[r].request));
    while (left > 0)
        for (int r = 0; r < w->n; r++)
            if (!run[r].is_done && ech_coll_test(w->comm[r], run[r].request) == ECH_DONE) {
                run[r].is_done = true;
                left--;
            }
}

/* Of every kind, in a group of n with so many ranks on a node. */
static void check_allocations(int n, int node_ranks)
{
    ech_layout l = ech_layout_data_parallel(n);
    world w;
    l.node_ranks = node_ranks;
    world_open_layout(&w, &l, 4);
    assert_true(allocations > 0);
    for (int kind = 0; kind <= ECH_COLL_SUM_SMALL; kind++) {
        const coll_case c = {.kind = (ech_coll_kind)kind,
                             .axis = ECH_AXIS_DP,
                             .dtype = ECH_F32,
                             .size = n,
                             .n = coll_case_fit((ech_coll_kind)kind, n, 997),
                             .seed = 3};
        coll_run run[MOST];
        for (int r = 0; r < n; r++)
            coll_run_init(&run[r], &c, r);
        const int64_t before = allocations;
        run_together(&w, run);
        assert_int_equal(allocations, before);
        for (int r = 0; r < n; r++)
            coll_run_fini(&run[r]);
    }
    world_close(&w);
}

static void test_nothing_is_allocated_after_create(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS) {
        fprintf(stderr, "a sanitizer owns malloc: not counted\n");
        skip();
    }
    check_allocations(RANKS, 0);
    check_allocations(4, 2); /* in two levels */
}

/* --- traffic --- */

static ech_operand flat(int64_t n)
{
    return (ech_operand){.dtype = ECH_F32, .rank = 1, .dim = {{n, ECH_EXTENT_BOUND}}};
}

static void check_op_traffic(ech_op_kind op_kind, ech_coll_kind coll_kind, int64_t n)
{
    const coll_case c = {.kind = coll_kind,
                         .axis = ECH_AXIS_DP,
                         .dtype = ECH_F32,
                         .size = RANKS,
                         .n = coll_case_fit(coll_kind, RANKS, n),
                         .seed = 3};
    ech_op op = {.kind = op_kind, .n_args = 2};
    coll_run run[RANKS];
    world w;
    const int full = coll_kind == ECH_COLL_ALL_GATHER ? 1 : 0;
    op.arg[full] = flat(c.n);
    op.arg[1 - full] = flat(c.n / RANKS);
    world_open(&w, 1);
    for (int r = 0; r < RANKS; r++)
        coll_run_init(&run[r], &c, r);
    run_together(&w, run);
    for (int r = 0; r < RANKS; r++) {
        const ech_traffic predicted = ech_op_traffic(&op, RANKS, r);
        const ech_sent *sent = ech_comm_sent(w.comm[r]);
        assert_int_equal(sent->wire_bytes[ECH_AXIS_DP], predicted.wire_bytes);
        assert_int_equal(sent->payload_bytes[ECH_AXIS_DP], predicted.payload_bytes);
        ech_comm_sent_reset(w.comm[r]);
        assert_int_equal(sent->wire_bytes[ECH_AXIS_DP], 0);
        assert_int_equal(sent->messages[ECH_AXIS_DP], 0);
        coll_run_fini(&run[r]);
    }
    world_close(&w);
}

static void test_sent_is_what_the_op_table_says(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 100, 3 * 65536 + 2};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_op_traffic(ECH_OP_ALL_REDUCE_START, ECH_COLL_ALL_REDUCE, sizes[i]);
        check_op_traffic(ECH_OP_REDUCE_SCATTER_START, ECH_COLL_REDUCE_SCATTER, sizes[i]);
        check_op_traffic(ECH_OP_ALL_GATHER_START, ECH_COLL_ALL_GATHER, sizes[i]);
        check_op_traffic(ECH_OP_SUM_SMALL_START, ECH_COLL_SUM_SMALL, sizes[i]);
    }
}

/* --- stages that share the token table --- */

/* Every kind over tied, in a mesh of pp stages of four ranks, pp outermost or innermost: pairs that
 * hold different values, and beside them ranks that are alone. */
static void check_tied(int pp, int first, int last, bool is_pp_inner)
{
    const ech_layout_spec spec = {.tp = 2,
                                  .cp = 1,
                                  .pp = pp,
                                  .dp = 2,
                                  .kv_share = 1,
                                  .tied = {first, last},
                                  .order = {is_pp_inner ? ECH_AXIS_PP : ECH_AXIS_TP,
                                            is_pp_inner ? ECH_AXIS_TP : ECH_AXIS_CP, ECH_AXIS_DP,
                                            is_pp_inner ? ECH_AXIS_CP : ECH_AXIS_PP}};
    ech_layout l;
    world w;
    assert_ok(ech_layout_make(&spec, &l));
    world_open_layout(&w, &l, 1);
    for (int kind = 0; kind <= ECH_COLL_SUM_SMALL; kind++) {
        coll_run run[MOST];
        for (int r = 0; r < w.n; r++) {
            const int stage = is_pp_inner ? r % pp : r / 4;
            const int place = is_pp_inner ? r / pp : r % 4;
            const bool is_tied = stage == first || stage == last;
            coll_case c = {.kind = (ech_coll_kind)kind,
                           .axis = ECH_AXIS_TIED,
                           .dtype = ECH_F64,
                           .size = is_tied ? 2 : 1,
                           .seed = (uint64_t)place + (is_tied ? 0 : 4 * (uint64_t)(stage + 1))};
            c.n = coll_case_fit(c.kind, c.size, 997);
            coll_run_init(&run[r], &c, is_tied && stage == last);
        }
        run_together(&w, run);
        for (int r = 0; r < w.n; r++) {
            const ech_tree tree = ech_tree_default(run[r].c.size);
            assert_true(coll_run_is_right(&run[r], &tree));
            assert_int_equal(ech_comm_group_size(w.comm[r], ECH_AXIS_TIED), run[r].c.size);
            assert_int_equal(ech_comm_group_index(w.comm[r], ECH_AXIS_TIED), run[r].member);
            assert_int_equal(ech_comm_sent(w.comm[r])->wire_bytes[ECH_AXIS_TIED],
                             coll_case_wire(&run[r].c, run[r].member));
            ech_comm_sent_reset(w.comm[r]);
            coll_run_fini(&run[r]);
        }
    }
    world_close(&w);
}

static void test_tied_stages_are_pairs(void **state)
{
    (void)state;
    for (int pp = 2; pp <= 4; pp++)
        for (int inner = 0; inner < 2; inner++) {
            check_tied(pp, 0, pp - 1, inner);
            check_tied(pp, pp - 1, pp - 2, inner); /* the first stage on the last rank */
        }
}

/* --- a group of one --- */

static void alone(ech_transport **t, ech_comm **comm)
{
    const ech_layout l = ech_layout_data_parallel(1);
    assert_ok(ech_transport_self(t));
    assert_ok(ech_comm_create(*t, &l, 4, comm));
}

/* Adding the gradient of each micro-batch and reducing each time: reduced in a group of one it is
 * the sum and not a power of two times it, whether or not the sum has memory of its own. */
static void test_alone_a_sum_is_not_doubled(void **state)
{
    ech_transport *t = NULL;
    ech_comm *comm = NULL;
    (void)state;
    alone(&t, &comm);
    for (int kind = 0; kind <= ECH_COLL_SUM_SMALL; kind++)
        for (int m = 1; m <= 128; m *= 2) {
            double g[5] = {0};
            for (int i = 0; i < m; i++) {
                int request = -1;
                for (int e = 0; e < 5; e++)
                    g[e] += 0.5 + e;
                const ech_coll c = {.kind = (ech_coll_kind)kind,
                                    .axis = ECH_AXIS_DP,
                                    .dtype = ECH_F64,
                                    .n = 5,
                                    .buf = g,
                                    .part = g,
                                    .sum = g};
                assert_ok(ech_coll_start(comm, &c, &request));
                assert_int_equal(ech_coll_test(comm, request), ECH_DONE);
            }
            for (int e = 0; e < 5; e++)
                assert_true(g[e] == m * (0.5 + e));
        }
    assert_int_equal(ech_comm_sent(comm)->wire_bytes[ECH_AXIS_DP], 0);
    assert_int_equal(ech_comm_sent(comm)->messages[ECH_AXIS_DP], 0);
    ech_comm_destroy(&comm);
    t->destroy(t);
}

static void test_alone_it_is_a_copy(void **state)
{
    static const ech_coll_kind kinds[] = {ECH_COLL_REDUCE_SCATTER, ECH_COLL_ALL_GATHER,
                                          ECH_COLL_SUM_SMALL};
    static const int64_t wanted[3] = {4, -5, 6};
    ech_transport *t = NULL;
    ech_comm *comm = NULL;
    (void)state;
    alone(&t, &comm);
    for (int k = 0; k < 3; k++) {
        int64_t from[3], to[3] = {0};
        int request = -1;
        const bool gathers = kinds[k] == ECH_COLL_ALL_GATHER;
        const ech_coll c = {.kind = kinds[k],
                            .axis = ECH_AXIS_WORLD,
                            .dtype = ECH_I64,
                            .n = 3,
                            .buf = gathers ? to : from,
                            .part = gathers ? from : to,
                            .sum = to};
        memcpy(from, wanted, sizeof from);
        assert_ok(ech_coll_start(comm, &c, &request));
        assert_int_equal(ech_coll_test(comm, request), ECH_DONE);
        assert_memory_equal(from, wanted, sizeof from);
        assert_memory_equal(to, wanted, sizeof to);
    }
    ech_comm_destroy(&comm);
    t->destroy(t);
}

static void test_alone_start_up_needs_nobody(void **state)
{
    ech_transport *t = NULL;
    ech_comm *comm = NULL;
    ech_p2p_request request;
    int value = 7, all = 0;
    bool done = false;
    (void)state;
    alone(&t, &comm);
    assert_string_equal(t->name, "self");
    assert_int_equal(t->size, 1);
    assert_ok(t->exchange(t, &value, sizeof value, &all));
    assert_int_equal(all, 7);
    assert_ok(t->barrier(t));
    assert_ok(ech_comm_agree(comm, ECH_OK));
    assert_int_equal(ech_comm_agree(comm, ECH_E_IO), ECH_E_IO);
    assert_fails(t->isend(t, ECH_AXIS_DP, 1, 0, &value, 4, &request), ECH_E_COMM,
                 "rank 0 is alone");
    assert_fails(t->irecv(t, ECH_AXIS_DP, 1, 0, &value, 4, &request), ECH_E_COMM,
                 "rank 0 is alone");
    assert_fails(t->test(t, &request, &done), ECH_E_COMM, "no message");
    ech_comm_destroy(&comm);
    ech_comm_destroy(&comm); /* nothing to destroy is fine */
    t->destroy(t);
}

/* --- refusals --- */

static void test_a_layout_must_fit(void **state)
{
    ech_layout l = ech_layout_data_parallel(2);
    ech_transport *t = NULL;
    ech_comm *comm = NULL;
    (void)state;
    assert_ok(ech_transport_self(&t));
    assert_fails(ech_comm_create(t, &l, 4, &comm), ECH_E_ILLEGAL,
                 "the layout has 2 ranks, the transport 'self' has 1");
    l = ech_layout_data_parallel(1);
    assert_fails(ech_comm_create(t, &l, 0, &comm), ECH_E_ILLEGAL, "got 0");
    assert_fails(ech_comm_create(t, &l, 16000, &comm), ECH_E_ILLEGAL, "got 16000");
    l.node_ranks = 2;
    assert_fails(ech_comm_create(t, &l, 4, &comm), ECH_E_ILLEGAL,
                 "nodes of 2 ranks do not make up 1 ranks");
    l.node_ranks = 0;
    l.tree[ECH_AXIS_DP] = ech_tree_default(6);
    assert_fails(ech_comm_create(t, &l, 4, &comm), ECH_E_ILLEGAL,
                 "axis dp has degree 1 and a summation tree of 6 leaves");
    assert_null(comm);
    assert_fails(ech_transport_inproc(0, &t), ECH_E_ILLEGAL, "at least one rank");
    t->destroy(t);
}

static void test_wrong_collectives_are_refused(void **state)
{
    static const struct {
        ech_coll_kind kind;
        ech_dtype dtype;
        int64_t n;
        size_t staging_bytes;
        int peer;
        ech_status status;
        const char *words;
    } rows[] = {
        {ECH_COLL_ALL_REDUCE, ECH_BF16, 4, 1000, 0, ECH_E_UNSUPPORTED,
         "fp32, fp64 or int64, not bf16"},
        {ECH_COLL_ALL_REDUCE, ECH_F32, 6, 47, 0, ECH_E_ILLEGAL,
         "needs 48 bytes of staging, got 47"},
        {ECH_COLL_REDUCE_SCATTER, ECH_F64, 3, 47, 0, ECH_E_ILLEGAL, "needs 48 bytes of staging"},
        {ECH_COLL_REDUCE_SCATTER, ECH_F64, 7, 1000, 0, ECH_E_ILLEGAL,
         "reduce_scatter over dp of 7 elements: they must be equal shares of 3 members"},
        {ECH_COLL_ALL_GATHER, ECH_F32, 4, 0, 0, ECH_E_ILLEGAL,
         "all_gather over dp of 4 elements: they must be equal shares of 3 members"},
        {ECH_COLL_SUM_SMALL, ECH_F64, 2, 47, 0, ECH_E_ILLEGAL, "needs 48 bytes of staging"},
        {ECH_COLL_ALL_GATHER, ECH_F32, -1, 0, 0, ECH_E_ILLEGAL, "-1 elements"},
        {ECH_COLL_SEND, ECH_F32, 4, 0, 3, ECH_E_ILLEGAL, "member 0 of 3 names member 3"},
        {ECH_COLL_RECV, ECH_F32, 4, 0, 0, ECH_E_ILLEGAL, "member 0 of 3 names member 0"},
        {(ech_coll_kind)17, ECH_F32, 4, 0, 0, ECH_E_ILLEGAL, "kind 17"},
    };
    world w;
    double buf[8] = {0};
    int request = -1;
    (void)state;
    world_open(&w, 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ech_coll c = {.kind = rows[i].kind,
                            .axis = ECH_AXIS_DP,
                            .dtype = rows[i].dtype,
                            .n = rows[i].n,
                            .buf = buf,
                            .part = buf,
                            .sum = buf,
                            .staging = buf,
                            .staging_bytes = rows[i].staging_bytes,
                            .peer = rows[i].peer};
        assert_fails(ech_coll_start(w.comm[0], &c, &request), rows[i].status, rows[i].words);
    }
    const ech_coll sum = {.kind = ECH_COLL_SUM_SMALL, .dtype = ECH_F64, .n = 1, .buf = buf};
    assert_fails(ech_coll_start(w.comm[0], &sum, &request), ECH_E_ILLEGAL,
                 "nowhere to put its sum");
    assert_int_equal(request, -1);
    assert_int_equal(ech_comm_sent(w.comm[0])->payload_bytes[ECH_AXIS_DP], 0);
    world_close(&w);
}

/* In place is exactly my share; any other overlap would read what is overwritten. */
static void test_a_part_is_in_place_or_apart(void **state)
{
    static const ech_coll_kind kinds[] = {ECH_COLL_REDUCE_SCATTER, ECH_COLL_ALL_GATHER};
    static double buf[3][14], staging[3][12];
    world w;
    int request = -1;
    (void)state;
    world_open(&w, 16);
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < 3; r++)
            for (int at = 0; at <= 12; at++) {
                const ech_coll c = {.kind = kinds[k],
                                    .axis = ECH_AXIS_DP,
                                    .dtype = ECH_F64,
                                    .n = 6,
                                    .buf = buf[r] + 4,
                                    .part = buf[r] + at,
                                    .staging = staging[r],
                                    .staging_bytes = sizeof staging[r]};
                const bool is_right = at <= 2 || at >= 10 || at == 4 + 2 * r;
                char words[64];
                (void)snprintf(words, sizeof words, "overlaps buf, but is not share %d of 3", r);
                if (is_right)
                    assert_ok(ech_coll_start(w.comm[r], &c, &request));
                else
                    assert_fails(ech_coll_start(w.comm[r], &c, &request), ECH_E_ILLEGAL, words);
            }
    const ech_coll none = {.kind = ECH_COLL_ALL_GATHER, .dtype = ECH_F64, .n = 6, .buf = buf[0]};
    assert_fails(ech_coll_start(w.comm[0], &none, &request), ECH_E_ILLEGAL, "no part");
    world_close(&w);
}

static void test_too_many_in_flight_are_refused(void **state)
{
    const ech_coll c = {.kind = ECH_COLL_ALL_GATHER, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 0};
    world w;
    int request = -1;
    (void)state;
    world_open(&w, 2);
    assert_ok(ech_coll_start(w.comm[0], &c, &request));
    assert_ok(ech_coll_start(w.comm[0], &c, &request));
    assert_fails(ech_coll_start(w.comm[0], &c, &request), ECH_E_ILLEGAL, "all 2 collectives");
    assert_int_equal(ech_coll_test(w.comm[0], request), ECH_DONE); /* its place is free again */
    assert_ok(ech_coll_start(w.comm[0], &c, &request));
    world_close(&w);
}

static void test_virtual_ranks_cannot_block(void **state)
{
    world w;
    int value = 0, all[RANKS];
    (void)state;
    world_open(&w, 1);
    assert_fails(w.t[1]->exchange(w.t[1], &value, sizeof value, all), ECH_E_UNSUPPORTED,
                 "rank 1 cannot block");
    assert_fails(w.t[1]->barrier(w.t[1]), ECH_E_UNSUPPORTED, "rank 1 of 3 cannot block");
    assert_fails(ech_comm_agree(w.comm[1], ECH_OK), ECH_E_UNSUPPORTED, "rank 1 cannot block");
    assert_int_equal(ech_comm_group_size(w.comm[2], ECH_AXIS_DP), 3);
    assert_int_equal(ech_comm_group_index(w.comm[2], ECH_AXIS_DP), 2);
    assert_int_equal(ech_comm_group_size(w.comm[2], ECH_AXIS_TP), 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allocated_after_create),
        cmocka_unit_test(test_sent_is_what_the_op_table_says),
        cmocka_unit_test(test_tied_stages_are_pairs),
        cmocka_unit_test(test_alone_a_sum_is_not_doubled),
        cmocka_unit_test(test_alone_it_is_a_copy),
        cmocka_unit_test(test_alone_start_up_needs_nobody),
        cmocka_unit_test(test_a_layout_must_fit),
        cmocka_unit_test(test_wrong_collectives_are_refused),
        cmocka_unit_test(test_a_part_is_in_place_or_apart),
        cmocka_unit_test(test_too_many_in_flight_are_refused),
        cmocka_unit_test(test_virtual_ranks_cannot_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
