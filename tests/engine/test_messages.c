/* RUN: np=1 timeout=20 tags=fast */
/* Which argument of a communication op is what, and requests by number: those of an item's ops
 * count on from the item's, and a number comes again after its wait. */
#include "check.h"
#include "engine/virtual.h"
#include "hand.h"

enum { DP = 4, SHARE = 5, N = DP * SHARE };

static void set_request(ech_program *p, int item, int request)
{
    p->block[p->item[item].block].op[0].request = request;
    if (p->item[item].request + request >= p->n_requests)
        p->n_requests = p->item[item].request + request + 1;
}

typedef struct slots {
    int x, share, y, z;
} slots;

/* share = my share of sum x; y = all shares; z = y summed over ranks; share, y and z once more from
 * there, with the requests of the first time. */
static void write_program(ech_program *p, slots *s, int node_ranks)
{
    ech_layout l = ech_layout_data_parallel(DP);
    const ech_placement any = ech_placement_invariant();
    const int64_t staging = ech_reduce_staging_elems(N, DP);
    l.node_ranks = node_ranks;
    ech_program_init(p, "messages", &l);
    s->x = hand_slot(p, "x", true, N, any);
    s->share = hand_slot(p, "share", true, SHARE, any);
    s->y = hand_slot(p, "y", true, N, any);
    s->z = hand_slot(p, "z", true, N, any);
    const int t = hand_slot(p, "staging", true, staging, any);
    const hand_arg x = {s->x, 0, N, any}, share = {s->share, 0, SHARE, any};
    const hand_arg y = {s->y, 0, N, any}, z = {s->z, 0, N, any}, st = {t, 0, staging, any};
    for (int round = 0; round < 2; round++) {
        (void)HAND_ADD(p, ((hand_op){.kind = ECH_OP_REDUCE_SCATTER_START}), round ? z : x, share,
                       st);
        (void)HAND_ADD(p, ((hand_op){.kind = ECH_OP_REDUCE_SCATTER_WAIT}), round ? z : x, share,
                       st);
        set_request(p, HAND_ADD(p, ((hand_op){.kind = ECH_OP_ALL_GATHER_START}), share, y), 1);
        set_request(p, HAND_ADD(p, ((hand_op){.kind = ECH_OP_ALL_GATHER_WAIT}), share, y), 1);
        (void)HAND_ADD(p, ((hand_op){.kind = ECH_OP_COPY, .request = -1}), y, z);
        (void)HAND_ADD(p, ((hand_op){.kind = ECH_OP_ALL_REDUCE_START}), z, st);
        (void)HAND_ADD(p, ((hand_op){.kind = ECH_OP_ALL_REDUCE_WAIT}), z, st);
    }
}

static void fill(hand_run *run, const slots *s)
{
    for (int r = 0; r < DP; r++) {
        double *x = ech_engine_state(run->engine[r], s->x);
        for (int i = 0; i < N; i++)
            x[i] = 100.0 * i + r;
    }
}

static void check(hand_run *run, const slots *s)
{
    for (int r = 0; r < DP; r++) {
        const double *share = ech_engine_state(run->engine[r], s->share);
        const double *y = ech_engine_state(run->engine[r], s->y);
        const double *z = ech_engine_state(run->engine[r], s->z);
        for (int i = 0; i < N; i++) {
            const double sum = DP * 100.0 * i + 6.0; /* 0 + 1 + 2 + 3 */
            assert_near(y[i], DP * DP * sum, 0.0);
            assert_near(z[i], DP * DP * DP * sum, 0.0);
            if (i / SHARE == r)
                assert_near(share[i % SHARE], DP * DP * sum, 0.0);
        }
    }
}

static void test_shares_and_requests(void **state)
{
    (void)state;
    for (int node_ranks = 0; node_ranks <= 2; node_ranks += 2) {
        ech_program p;
        hand_run run;
        slots s;
        write_program(&p, &s, node_ranks);
        assert_int_equal(p.n_requests, 2);
        assert_ok(ech_program_place(&p, NULL));
        hand_start(&p, true, &run);
        fill(&run, &s);
        assert_ok(ech_virtual_run(run.engine, DP, 0, ECH_SEGMENT_ACCUMULATE));
        check(&run, &s);
        for (int r = 0; r < DP; r++) {
            ech_traffic wanted[ECH_N_AXES];
            const ech_sent *sent = ech_comm_sent(run.comm[r]);
            ech_program_traffic(&p, r, wanted);
            assert_int_equal(sent->wire_bytes[ECH_AXIS_DP], wanted[ECH_AXIS_DP].wire_bytes);
            assert_int_equal(sent->payload_bytes[ECH_AXIS_DP], wanted[ECH_AXIS_DP].payload_bytes);
            /* two rounds of 1 + 1 + 2 shares, to one rank of the other node */
            assert_int_equal(sent->node_bytes[ECH_AXIS_DP], node_ranks ? 8 * 8 * SHARE : 0);
        }
        hand_stop(&run);
        ech_program_fini(&p);
    }
}

/* The second start of a request that nobody has waited for. */
static void test_a_request_in_flight_is_not_started(void **state)
{
    const ech_layout l = ech_layout_data_parallel(1);
    const ech_placement any = ech_placement_invariant();
    ech_program p;
    hand_run run;
    (void)state;
    ech_program_init(&p, "twice", &l);
    const hand_arg x = {hand_slot(&p, "x", true, 4, any), 0, 4, any};
    const hand_arg y = {hand_slot(&p, "y", true, 4, any), 0, 4, any};
    for (int i = 0; i < 2; i++)
        (void)HAND_ADD(&p, ((hand_op){.kind = ECH_OP_ALL_GATHER_START}), x, y);
    assert_ok(ech_program_place(&p, NULL));
    hand_start(&p, true, &run);
    ech_engine_begin(run.engine[0], 0, ECH_SEGMENT_ACCUMULATE);
    assert_fails(ech_engine_advance(run.engine[0]), ECH_E_PROOF,
                 "rank 0 starts message 0, which is in flight");
    hand_stop(&run);
    ech_program_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_and_requests),
        cmocka_unit_test(test_a_request_in_flight_is_not_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
