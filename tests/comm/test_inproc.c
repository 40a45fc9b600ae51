/* RUN: np=1 timeout=120 tags=fast */
/* Collectives over virtual ranks: values against a reference, traffic against closed forms, any
 * order of ranks the same bits, and what is said when ranks wait for each other. */
#include "check.h"
#include "coll_world.h"

#include <stdlib.h>

/* --- values --- */

static const ech_coll_kind collectives[] = {ECH_COLL_ALL_REDUCE, ECH_COLL_REDUCE_SCATTER,
                                            ECH_COLL_ALL_GATHER, ECH_COLL_SUM_SMALL};

static void test_every_kind_and_size(void **state)
{
    static const ech_dtype dtypes[] = {ECH_F32, ECH_F64, ECH_I64};
    (void)state;
    for (int size = 1; size <= 9; size++) {
        const ech_layout l = ech_layout_data_parallel(size);
        const int64_t sizes[] = {0, 1, size - 1, size, size + 1, 2 * size + 1, 1023};
        for (int k = 0; k < 4; k++)
            for (int d = 0; d < 3; d++)
                for (size_t s = 0; s < 2 * sizeof sizes / sizeof sizes[0]; s++) {
                    const coll_case c = {.kind = collectives[k],
                                         .axis = s % 2 ? ECH_AXIS_DP : ECH_AXIS_WORLD,
                                         .dtype = dtypes[d],
                                         .n = sizes[s / 2],
                                         .seed = s + 1,
                                         .is_in_place = s % 2};
                    coll_world_run_one(&l, &c, s);
                }
    }
}

/* More elements than one chunk: 65536 for a part. */
static void test_many_chunks(void **state)
{
    static const struct {
        int size;
        int64_t n;
    } rows[] = {{2, 2 * 65536 + 1}, {2, 7 * 65536 - 3}, {3, 3 * 65536 + 2}, {5, 5 * 65536 + 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < 3; k++) {
            const ech_layout l = ech_layout_data_parallel(rows[i].size);
            const coll_case c = {.kind = collectives[k],
                                 .axis = ECH_AXIS_DP,
                                 .dtype = i % 2 ? ECH_F64 : ECH_F32,
                                 .n = rows[i].n,
                                 .seed = i + 3,
                                 .is_in_place = i >= 2};
            coll_world_run_one(&l, &c, i + 1);
        }
}

static void test_gather_moves_any_type(void **state)
{
    const ech_layout l = ech_layout_data_parallel(3);
    (void)state;
    for (int d = 0; d < ECH_N_DTYPES; d++) {
        const coll_case c = {.kind = ECH_COLL_ALL_GATHER,
                             .axis = ECH_AXIS_DP,
                             .dtype = (ech_dtype)d,
                             .n = 101,
                             .seed = 5};
        coll_world_run_one(&l, &c, 0);
    }
}

/* A member's share of the sum is, bit for bit, what all-reduce puts there. */
static void test_a_share_is_the_all_reduces(void **state)
{
    enum { N = 6 * 70001 };
    static const int groups[] = {1, 2, 3, 6};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const ech_layout l = ech_layout_data_parallel(groups[i]);
        const int64_t share = N / groups[i];
        coll_world w;
        coll_world_open(&w, &l);
        w.seed = 3;
        for (int k = 0; k < 2; k++) {
            const coll_case c = {.kind = collectives[k], .dtype = ECH_F32, .n = N, .seed = 5};
            coll_world_add(&w, &c);
        }
        for (int r = 0; r < w.n; r++) /* the same contributions */
            memcpy(w.run[r][1].buf, w.run[r][0].buf, N * sizeof(float));
        assert_true(coll_world_run(&w));
        for (int r = 0; r < w.n; r++)
            assert_memory_equal(w.run[r][1].part, (float *)w.run[r][0].buf + r * share,
                                (size_t)share * sizeof(float));
        coll_world_close(&w);
    }
}

static void test_other_trees(void **state)
{
    static const int factors[][2] = {{4, 2}, {2, 4}, {8, 1}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        ech_layout l = ech_layout_data_parallel(8);
        const coll_case c = {.kind = ECH_COLL_ALL_REDUCE,
                             .axis = ECH_AXIS_DP,
                             .dtype = ECH_F32,
                             .n = 500,
                             .seed = 2};
        assert_ok(ech_tree_make(factors[i], factors[i][1] > 1 ? 2 : 1, 8, &l.tree[ECH_AXIS_DP]));
        coll_world_run_one(&l, &c, 6);
    }
}

/* The same gradient in one bucket or in pieces, all-reduced or scattered: the same bits. */
static void test_bucket_size_changes_no_bit(void **state)
{
    enum { N = 3000, SIZE = 3 };
    static const int64_t cuts[][4] = {{0, N, N, N}, {0, 1, N, N}, {0, 1000, 1003, N}};
    static double result[3][N];
    (void)state;
    for (int how = 0; how < 3; how++) {
        const ech_layout l = ech_layout_data_parallel(SIZE);
        const coll_case whole = {.kind = ECH_COLL_ALL_REDUCE,
                                 .axis = ECH_AXIS_DP,
                                 .dtype = ECH_F64,
                                 .size = SIZE,
                                 .n = N,
                                 .seed = 77};
        coll_world w;
        coll_run mem[SIZE];
        int request[SIZE][3];
        coll_world_open(&w, &l);
        for (int r = 0; r < SIZE; r++) {
            coll_run_init(&mem[r], &whole, r);
            for (int b = 0; b < 3; b++) {
                ech_coll c = mem[r].coll;
                c.n = cuts[how][b + 1] - cuts[how][b];
                c.buf = (double *)mem[r].buf + cuts[how][b];
                c.staging_bytes = (size_t)(2 * SIZE * ((c.n + SIZE - 1) / SIZE)) * sizeof(double);
                c.staging = malloc(c.staging_bytes + 1);
                w.run[r][b].staging = c.staging;
                assert_ok(ech_coll_start(w.comm[r], &c, &request[r][b]));
            }
        }
        for (int left = SIZE * 3; left > 0;)
            for (int r = 0; r < SIZE; r++)
                for (int b = 0; b < 3; b++)
                    if (request[r][b] >= 0 && ech_coll_test(w.comm[r], request[r][b]) == ECH_DONE) {
                        request[r][b] = -1;
                        left--;
                    }
        w.runs = 3;
        memcpy(result[how], mem[0].buf, sizeof result[how]);
        for (int r = 0; r < SIZE; r++) {
            assert_memory_equal(result[0], mem[r].buf, sizeof result[0]);
            coll_run_fini(&mem[r]);
        }
        coll_world_close(&w);
    }
}

/* --- order of ranks --- */

static ech_layout two_axes(void)
{
    ech_layout l = ech_layout_data_parallel(6);
    l.degree[ECH_AXIS_TP] = 2;
    l.degree[ECH_AXIS_DP] = 3;
    l.tree[ECH_AXIS_TP] = ech_tree_default(2);
    l.tree[ECH_AXIS_DP] = ech_tree_default(3);
    return l;
}

/* Collectives of several axes in flight at once, p2p among them, for every order of ranks. */
static void test_any_order_of_ranks(void **state)
{
    const ech_layout l = two_axes();
    static const coll_case list[COLL_WORLD_RUNS] = {
        {.kind = ECH_COLL_ALL_REDUCE, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 1000, .seed = 1},
        {.kind = ECH_COLL_SEND, .axis = ECH_AXIS_DP, .dtype = ECH_BF16, .n = 77, .seed = 2},
        {.kind = ECH_COLL_ALL_GATHER, .axis = ECH_AXIS_TP, .dtype = ECH_F32, .n = 31, .seed = 3},
        {.kind = ECH_COLL_REDUCE_SCATTER,
         .axis = ECH_AXIS_DP,
         .dtype = ECH_F64,
         .n = 64,
         .seed = 4},
        {.kind = ECH_COLL_RECV, .axis = ECH_AXIS_DP, .dtype = ECH_BF16, .n = 77, .seed = 2},
        {.kind = ECH_COLL_SUM_SMALL, .axis = ECH_AXIS_WORLD, .dtype = ECH_F64, .n = 2, .seed = 5},
        {.kind = ECH_COLL_ALL_REDUCE, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 2, .seed = 6},
        {.kind = ECH_COLL_ALL_REDUCE, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 999, .seed = 7},
    };
    (void)state;
    for (uint64_t seed = 0; seed <= 60; seed++) {
        coll_world w;
        coll_world_open(&w, &l);
        w.seed = seed;
        for (int i = 0; i < COLL_WORLD_RUNS; i++)
            coll_world_add(&w, &list[i]);
        assert_true(coll_world_run(&w));
        coll_world_check(&w);
        coll_world_close(&w);
    }
}

/* One member does nothing until all others are stuck. */
static void test_any_member_may_lag(void **state)
{
    const ech_layout l = ech_layout_data_parallel(4);
    (void)state;
    for (int late = 0; late < 4; late++)
        for (int k = 0; k < 4; k++) {
            coll_world w;
            const coll_case c = {.kind = collectives[k],
                                 .axis = ECH_AXIS_DP,
                                 .dtype = ECH_F32,
                                 .n = collectives[k] == ECH_COLL_ALL_REDUCE ? 4 * 65536 + 7 : 50,
                                 .seed = 9,
                                 .is_in_place = late % 2};
            coll_world_open(&w, &l);
            coll_world_add(&w, &c);
            coll_world_add(&w, &c);
            coll_world_run_without(&w, late);
            assert_true(coll_world_run(&w));
            coll_world_check(&w);
            coll_world_close(&w);
        }
}

/* The contributions of the quick members wait in staging: four rounds, room for two. */
static void test_a_late_contribution_costs_no_other(void **state)
{
    const ech_layout l = ech_layout_data_parallel(3);
    const coll_case c = {.kind = ECH_COLL_REDUCE_SCATTER,
                         .axis = ECH_AXIS_DP,
                         .dtype = ECH_F32,
                         .n = 3 * 65536 * 4 - 5,
                         .seed = 9};
    (void)state;
    for (int late = 0; late < 3; late++) {
        coll_world w;
        coll_world_open(&w, &l);
        coll_world_add(&w, &c);
        coll_world_run_without(&w, late);
        assert_true(coll_world_run(&w));
        coll_world_check(&w);
        coll_world_close(&w);
    }
}

/* A message is counted by the rank that sends it, and by no other. */
static void test_one_message_is_counted_once(void **state)
{
    const ech_layout l = ech_layout_data_parallel(2);
    coll_case c = {.axis = ECH_AXIS_DP, .dtype = ECH_BF16, .size = 2, .n = 9, .seed = 1};
    coll_run send, recv;
    coll_world w;
    (void)state;
    coll_world_open(&w, &l);
    c.kind = ECH_COLL_SEND;
    coll_run_init(&send, &c, 0);
    c.kind = ECH_COLL_RECV;
    coll_run_init(&recv, &c, 1);
    assert_ok(ech_coll_start(w.comm[0], &send.coll, &send.request));
    assert_ok(ech_coll_start(w.comm[1], &recv.coll, &recv.request));
    assert_int_equal(ech_coll_test(w.comm[1], recv.request), ECH_DONE);
    assert_int_equal(ech_coll_test(w.comm[0], send.request), ECH_DONE);
    assert_true(coll_run_is_right(&recv, &l.tree[ECH_AXIS_DP]));
    for (int r = 0; r < 2; r++) {
        const ech_sent *sent = ech_comm_sent(w.comm[r]);
        assert_int_equal(sent->payload_bytes[ECH_AXIS_DP], r == 0 ? 18 : 0);
        assert_int_equal(sent->wire_bytes[ECH_AXIS_DP], r == 0 ? 18 : 0);
        assert_int_equal(sent->messages[ECH_AXIS_DP], r == 0);
    }
    coll_run_fini(&send);
    coll_run_fini(&recv);
    coll_world_close(&w);
}

/* Thousands started at once do not use up the requests of the transport: few have messages in
 * flight at a time. */
static void test_thousands_at_once(void **state)
{
    enum { MANY = 3000 };
    static double x[2][MANY];
    static int request[2][MANY];
    const ech_layout l = ech_layout_data_parallel(2);
    ech_transport *t[2];
    ech_comm *comm[2];
    static double staging[2][MANY][4];
    (void)state;
    assert_ok(ech_transport_inproc(2, t));
    for (int r = 0; r < 2; r++) {
        assert_ok(ech_comm_create(t[r], &l, MANY, &comm[r]));
        for (int i = 0; i < MANY; i++) {
            x[r][i] = r + i;
            const ech_coll c = {.kind = ECH_COLL_ALL_REDUCE,
                                .axis = ECH_AXIS_DP,
                                .dtype = ECH_F64,
                                .n = 1,
                                .buf = &x[r][i],
                                .staging = staging[r][i],
                                .staging_bytes = sizeof staging[r][i]};
            assert_ok(ech_coll_start(comm[r], &c, &request[r][i]));
        }
    }
    for (int i = 0; i < MANY; i++) {
        while (ech_coll_test(comm[0], request[0][i]) == ECH_BLOCKED)
            assert_ok(ech_comm_progress(comm[1]));
        while (ech_coll_test(comm[1], request[1][i]) == ECH_BLOCKED)
            assert_ok(ech_comm_progress(comm[0]));
    }
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < MANY; i++)
            assert_true(x[r][i] == 2 * i + 1);
        ech_comm_destroy(&comm[r]);
        t[r]->destroy(t[r]);
    }
}

/* Far more collectives than may have messages in flight, far more than tags of a short run. */
static void test_a_long_row_of_collectives(void **state)
{
    const ech_layout l = ech_layout_data_parallel(3);
    coll_world w;
    double x[3], staging[3][6];
    (void)state;
    coll_world_open(&w, &l);
    for (int i = 0; i < 33000; i++) {
        int request[3], left = 3;
        for (int r = 0; r < 3; r++) {
            x[r] = r + i;
            const ech_coll c = {.kind = ECH_COLL_ALL_REDUCE,
                                .axis = ECH_AXIS_DP,
                                .dtype = ECH_F64,
                                .n = 1,
                                .buf = &x[r],
                                .staging = staging[r],
                                .staging_bytes = sizeof staging[r]};
            assert_ok(ech_coll_start(w.comm[r], &c, &request[r]));
        }
        while (left > 0)
            for (int r = 0; r < 3; r++)
                if (request[r] >= 0 && ech_coll_test(w.comm[r], request[r]) == ECH_DONE) {
                    request[r] = -1;
                    left--;
                }
        for (int r = 0; r < 3; r++)
            assert_true(x[r] == 3.0 * i + 3.0);
    }
    coll_world_close(&w);
}

/* --- when it goes wrong --- */

static void test_a_missing_member_is_named(void **state)
{
    const ech_layout l = ech_layout_data_parallel(4);
    const coll_case c = {.kind = ECH_COLL_ALL_REDUCE,
                         .axis = ECH_AXIS_DP,
                         .dtype = ECH_F32,
                         .size = 4,
                         .n = 1024,
                         .seed = 1};
    coll_world w;
    int request[4];
    char text[256];
    (void)state;
    coll_world_open(&w, &l);
    coll_world_add(&w, &c);
    for (int r = 0; r < 3; r++) /* rank 3 never comes */
        assert_ok(ech_coll_start(w.comm[r], &w.run[r][0].coll, &request[r]));
    for (int64_t before = -1; before != coll_world_activity(&w);) {
        before = coll_world_activity(&w);
        for (int r = 0; r < 3; r++)
            assert_int_equal(ech_coll_test(w.comm[r], request[r]), ECH_BLOCKED);
    }
    assert_string_equal(ech_coll_describe(w.comm[1], request[1], text, sizeof text),
                        "all_reduce over dp of 1024 fp32: waits for contribution of rank 3 "
                        "(piece 1 of 1)");
    (void)ech_coll_describe(w.comm[1], request[1], text, 20); /* cut, not overrun */
    assert_string_equal(text, "all_reduce over dp ");
    coll_world_close(&w);
}

static void test_a_ring_of_waits_is_seen(void **state)
{
    const ech_layout l = ech_layout_data_parallel(3);
    const coll_case c = {
        .kind = ECH_COLL_RECV, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 8, .seed = 1};
    coll_world w;
    char text[256];
    (void)state;
    coll_world_open(&w, &l);
    coll_world_add(&w, &c); /* all receive, nobody sends */
    assert_false(coll_world_run(&w));
    for (int r = 0; r < 3; r++) {
        char wanted[128];
        (void)snprintf(wanted, sizeof wanted,
                       "recv over dp of 8 fp32: waits for data of rank %d (piece 1 of 1)",
                       (r + 2) % 3);
        assert_string_equal(ech_coll_describe(w.comm[r], w.run[r][0].request, text, sizeof text),
                            wanted);
    }
    coll_world_close(&w);
}

/* Rendezvous: nobody takes the message, so it is not sent. */
static void test_a_send_alone_is_not_done(void **state)
{
    const ech_layout l = ech_layout_data_parallel(2);
    const coll_case c = {
        .kind = ECH_COLL_SEND, .axis = ECH_AXIS_DP, .dtype = ECH_F32, .n = 8, .seed = 1};
    coll_world w;
    (void)state;
    coll_world_open(&w, &l);
    coll_world_add(&w, &c);
    assert_false(coll_world_run(&w));
    coll_world_close(&w);
}

static void test_other_sizes_are_an_error_on_both_sides(void **state)
{
    const ech_layout l = ech_layout_data_parallel(2);
    float buf[8] = {0};
    ech_coll c = {.axis = ECH_AXIS_DP, .dtype = ECH_F32, .buf = buf};
    coll_world w;
    int request[2];
    (void)state;
    coll_world_open(&w, &l);
    c.kind = ECH_COLL_SEND;
    c.n = 8;
    c.peer = 1;
    assert_ok(ech_coll_start(w.comm[0], &c, &request[0]));
    c.kind = ECH_COLL_RECV;
    c.n = 7;
    c.peer = 0;
    assert_fails(ech_coll_start(w.comm[1], &c, &request[1]), ECH_E_COMM,
                 "rank 1 receives from rank 0 over dp (tag 1): 28 bytes here, 32 bytes on the "
                 "other side");
    assert_fails(ech_coll_test(w.comm[0], request[0]), ECH_E_COMM,
                 "rank 0 sends to rank 1 over dp (tag 1): 32 bytes here, 28 bytes");
    coll_world_close(&w);
}

static void test_a_rank_that_left_is_named(void **state)
{
    ech_transport *t[2];
    ech_p2p_request request;
    char byte = 0;
    (void)state;
    assert_ok(ech_transport_inproc(2, t));
    t[1]->destroy(t[1]);
    assert_fails(t[0]->isend(t[0], ECH_AXIS_DP, 1, 0, &byte, 1, &request), ECH_E_COMM,
                 "rank 0 needs rank 1, which has left");
    assert_fails(t[0]->irecv(t[0], ECH_AXIS_DP, 2, 0, &byte, 1, &request), ECH_E_COMM,
                 "rank 0 names rank 2 of a world of 2");
    t[0]->destroy(t[0]);
}

static void test_the_pool_of_requests_ends_with_words(void **state)
{
    ech_transport *t[2];
    ech_p2p_request request;
    ech_status st = ECH_OK;
    char byte = 0;
    int posted = 0;
    (void)state;
    assert_ok(ech_transport_inproc(2, t));
    for (; st == ECH_OK && posted < 1000000; posted++)
        st = t[0]->isend(t[0], ECH_AXIS_DP, 1, posted, &byte, 1, &request);
    assert_int_equal(st, ECH_E_COMM);
    assert_non_null(strstr(ech_error_message(), "requests of 2 ranks are in flight"));
    t[0]->destroy(t[0]);
    t[1]->destroy(t[1]);
}

/* Messages of one (axis, tag) match in order; others pass by. */
static void test_messages_match_by_axis_and_tag(void **state)
{
    static const struct {
        ech_axis axis;
        int tag;
    } rows[] = {{ECH_AXIS_DP, 1}, {ECH_AXIS_TP, 1}, {ECH_AXIS_DP, 2}, {ECH_AXIS_DP, 1}};
    static const int take[] = {2, 0, 3, 1};
    ech_transport *t[2];
    ech_p2p_request send[4], recv;
    int out[4] = {10, 11, 12, 13}, in = 0;
    bool done = false;
    (void)state;
    assert_ok(ech_transport_inproc(2, t));
    for (int i = 0; i < 4; i++)
        assert_ok(
            t[0]->isend(t[0], rows[i].axis, 1, rows[i].tag, &out[i], sizeof out[i], &send[i]));
    for (int i = 0; i < 4; i++) {
        const int k = take[i];
        assert_ok(t[0]->test(t[0], &send[k], &done));
        assert_false(done);
        assert_ok(t[1]->irecv(t[1], rows[k].axis, 0, rows[k].tag, &in, sizeof in, &recv));
        assert_int_equal(in, out[k]);
        assert_ok(t[1]->test(t[1], &recv, &done));
        assert_true(done);
        assert_ok(t[0]->test(t[0], &send[k], &done));
        assert_true(done);
    }
    t[0]->destroy(t[0]);
    t[1]->destroy(t[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_and_size),
        cmocka_unit_test(test_many_chunks),
        cmocka_unit_test(test_gather_moves_any_type),
        cmocka_unit_test(test_a_share_is_the_all_reduces),
        cmocka_unit_test(test_other_trees),
        cmocka_unit_test(test_bucket_size_changes_no_bit),
        cmocka_unit_test(test_any_order_of_ranks),
        cmocka_unit_test(test_any_member_may_lag),
        cmocka_unit_test(test_a_late_contribution_costs_no_other),
        cmocka_unit_test(test_one_message_is_counted_once),
        cmocka_unit_test(test_thousands_at_once),
        cmocka_unit_test(test_a_long_row_of_collectives),
        cmocka_unit_test(test_a_missing_member_is_named),
        cmocka_unit_test(test_a_ring_of_waits_is_seen),
        cmocka_unit_test(test_a_send_alone_is_not_done),
        cmocka_unit_test(test_other_sizes_are_an_error_on_both_sides),
        cmocka_unit_test(test_a_rank_that_left_is_named),
        cmocka_unit_test(test_the_pool_of_requests_ends_with_words),
        cmocka_unit_test(test_messages_match_by_axis_and_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
