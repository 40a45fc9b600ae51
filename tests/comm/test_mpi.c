/* RUN: np=1,2,3,4 timeout=120 tags=fast */
/* The same collectives as over virtual ranks, over MPI: values against the reference, traffic
 * against closed forms, errors that name both sides. */
#include "coll_case.h"
#include "mpi_world.h"

#include "base/clock.h"
#include "comm/mpi/mpi_split.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const ech_coll_kind collectives[] = {ECH_COLL_ALL_REDUCE, ECH_COLL_REDUCE_SCATTER,
                                            ECH_COLL_ALL_GATHER, ECH_COLL_SUM_SMALL};

static void check_traffic(mpi_world *w, const coll_run *run)
{
    const ech_sent *sent = ech_comm_sent(w->comm);
    const ech_axis axis = run->c.axis;
    MPI_WORLD_CHECK(w, sent->wire_bytes[axis] == coll_case_wire(&run->c, run->member));
    MPI_WORLD_CHECK(w, sent->payload_bytes[axis] == coll_case_payload(&run->c, run->member));
    ech_comm_sent_reset(w->comm);
}

static void run_one(mpi_world *w, coll_case c)
{
    coll_run run;
    c.size = ech_comm_group_size(w->comm, c.axis);
    c.n = coll_case_fit(c.kind, c.size, c.n);
    coll_run_init(&run, &c, ech_comm_group_index(w->comm, c.axis));
    mpi_world_run(w, &run.coll);
    MPI_WORLD_CHECK(w, coll_run_is_right(&run, &w->layout.tree[c.axis]));
    check_traffic(w, &run);
    coll_run_fini(&run);
}

static void test_every_kind_and_size(mpi_world *w)
{
    static const ech_dtype dtypes[] = {ECH_F32, ECH_F64, ECH_I64};
    const int64_t sizes[] = {0, 1, w->t->size + 1, 1023, 2 * w->t->size * 65536 + 5};
    for (int k = 0; k < 4; k++)
        for (int d = 0; d < 3; d++)
            for (int s = 0; s < 5; s++) {
                const bool is_large = sizes[s] > 4096;
                if (is_large && (d > 0 || collectives[k] == ECH_COLL_SUM_SMALL))
                    continue;
                run_one(w, (coll_case){.kind = collectives[k],
                                       .axis = s % 2 ? ECH_AXIS_DP : ECH_AXIS_WORLD,
                                       .dtype = dtypes[d],
                                       .n = sizes[s],
                                       .seed = (uint64_t)s + 1,
                                       .is_in_place = (s + k + d) % 2 == 0});
            }
}

/* As if two ranks were on a node: the same bits and bytes, of which half leave it. */
static void test_two_levels(mpi_world *w)
{
    ech_comm *flat = w->comm;
    ech_layout l = w->layout;
    l.node_ranks = 2;
    if (w->t->size != 4)
        return;
    MPI_WORLD_CHECK(w, ech_comm_create(w->t, &l, 4, &w->comm) == ECH_OK);
    for (int k = 0; k < 3; k++) {
        const int64_t n = 4 * 70000;
        const coll_case c = {.kind = collectives[k],
                             .axis = ECH_AXIS_DP,
                             .dtype = ECH_F32,
                             .size = 4,
                             .n = n,
                             .seed = 3};
        coll_run run;
        coll_run_init(&run, &c, w->t->rank);
        mpi_world_run(w, &run.coll);
        MPI_WORLD_CHECK(w, coll_run_is_right(&run, &l.tree[ECH_AXIS_DP]));
        MPI_WORLD_CHECK(w, ech_comm_sent(w->comm)->node_bytes[ECH_AXIS_DP] ==
                               (k == 0 ? 2 : 1) * n / 4 * (int64_t)sizeof(float));
        check_traffic(w, &run);
        coll_run_fini(&run);
        run_one(w, (coll_case){.kind = collectives[k],
                               .axis = ECH_AXIS_DP,
                               .dtype = ECH_F64,
                               .n = 1001,
                               .seed = 4,
                               .is_in_place = true});
    }
    ech_comm_destroy(&w->comm);
    w->comm = flat;
}

/* A ring of messages: each rank sends to the next one and receives from the one before. */
static void test_ring(mpi_world *w)
{
    static const int64_t sizes[] = {1, 500, 300000};
    if (w->t->size == 1)
        return;
    for (int s = 0; s < 3; s++) {
        coll_case c = {.axis = ECH_AXIS_DP, .dtype = ECH_F32, .size = w->t->size, .seed = 4};
        coll_run send, recv;
        int request[2];
        c.n = sizes[s];
        c.kind = ECH_COLL_SEND;
        coll_run_init(&send, &c, w->t->rank);
        c.kind = ECH_COLL_RECV;
        coll_run_init(&recv, &c, w->t->rank);
        MPI_WORLD_CHECK(w, ech_coll_start(w->comm, &send.coll, &request[0]) == ECH_OK);
        MPI_WORLD_CHECK(w, ech_coll_start(w->comm, &recv.coll, &request[1]) == ECH_OK);
        mpi_world_wait(w, request[1]);
        mpi_world_wait(w, request[0]);
        MPI_WORLD_CHECK(w, coll_run_is_right(&recv, &w->layout.tree[ECH_AXIS_DP]));
        check_traffic(w, &send);
        coll_run_fini(&send);
        coll_run_fini(&recv);
    }
}

/* Many at once, waited for in another order by every rank. */
static void test_many_in_flight(mpi_world *w)
{
    enum { MANY = 12 };
    coll_run run[MANY];
    int request[MANY];
    for (int i = 0; i < MANY; i++) {
        const coll_case c = {.kind = collectives[i % 4],
                             .axis = i % 3 ? ECH_AXIS_DP : ECH_AXIS_WORLD,
                             .dtype = ECH_F32,
                             .size = w->t->size,
                             .n = coll_case_fit(collectives[i % 4], w->t->size, 1000 * i),
                             .seed = (uint64_t)i};
        coll_run_init(&run[i], &c, w->t->rank);
        MPI_WORLD_CHECK(w, ech_coll_start(w->comm, &run[i].coll, &request[i]) == ECH_OK);
    }
    for (int i = 0; i < MANY; i++)
        mpi_world_wait(w, request[(i * 5 + w->t->rank * 3) % MANY]);
    for (int i = 0; i < MANY; i++) {
        MPI_WORLD_CHECK(w, coll_run_is_right(&run[i], &w->layout.tree[run[i].c.axis]));
        coll_run_fini(&run[i]);
    }
    ech_comm_sent_reset(w->comm);
}

static void test_start_up(mpi_world *w)
{
    int all[64] = {0};
    const int mine = 100 + w->t->rank;
    const int last = w->t->size - 1;
    MPI_WORLD_CHECK(w, strcmp(w->t->name, "mpi") == 0);
    MPI_WORLD_CHECK(w, w->t->exchange(w->t, &mine, sizeof mine, all) == ECH_OK);
    for (int r = 0; r < w->t->size; r++)
        MPI_WORLD_CHECK(w, all[r] == 100 + r);
    MPI_WORLD_CHECK(w, w->t->barrier(w->t) == ECH_OK);
    MPI_WORLD_CHECK(w, ech_comm_agree(w->comm, ECH_OK) == ECH_OK);
    const ech_status mixed = w->t->rank == last ? ECH_E_IO : ECH_OK;
    MPI_WORLD_CHECK(w, ech_comm_agree(w->comm, mixed) == ECH_E_IO);
    if (w->t->rank != last) {
        char words[32];
        (void)snprintf(words, sizeof words, "rank %d failed", last);
        MPI_WORLD_CHECK(w, strstr(ech_error_message(), words) != NULL);
    }
    MPI_WORLD_CHECK(w, ech_comm_sent(w->comm)->wire_bytes[ECH_AXIS_WORLD] == 0);
}

static ech_status wait_message(mpi_world *w, ech_p2p_request *request)
{
    const double end = ech_clock_s() + w->deadline_s;
    bool is_done = false;
    for (int n = 0; !is_done; n++) {
        ECH_TRY(w->t->test(w->t, request, &is_done));
        MPI_WORLD_CHECK(w, ech_clock_s() < end);
        ech_clock_backoff(n);
    }
    return ECH_OK;
}

static ech_status exchange_own(mpi_world *w)
{
    int all[64] = {0};
    const int mine = 7;
    return w->t->exchange(w->t, &mine, sizeof mine, all);
}

static void sleep_s(double s)
{
    const double end = ech_clock_s() + s;
    for (int n = 0; ech_clock_s() < end; n++)
        ech_clock_backoff(n);
}

/* Rank 0 is late and spared, then the last rank is, and named by the others.  Theirs is the last
 * word: the one that came late finds what they sent, and they find its message next time. */
static void test_deadline(mpi_world *w)
{
    const int last = w->t->size - 1;
    char words[64];
    if (last == 0)
        return;
    w->t->deadline_s = 0.4;
    w->t->spares_root = true;
    if (w->t->rank == 0)
        sleep_s(1.5);
    MPI_WORLD_CHECK(w, exchange_own(w) == ECH_OK);
    if (w->t->rank == last) {
        w->t->deadline_s = 0.0;
        sleep_s(1.5);
    } else {
        const double since = ech_clock_s();
        MPI_WORLD_CHECK(w, exchange_own(w) == ECH_E_TIMEOUT);
        MPI_WORLD_CHECK(w, ech_clock_s() - since < 1.4);
        (void)snprintf(words, sizeof words, "in an exchange for rank %d", last);
        MPI_WORLD_CHECK(w, strstr(ech_error_message(), words) != NULL);
        ech_error_clear();
        w->t->deadline_s = 0.0;
    }
    MPI_WORLD_CHECK(w, exchange_own(w) == ECH_OK);
}

/* Rank 1 waits for more or fewer bytes than rank 0 sends. */
static void test_other_sizes_are_an_error(mpi_world *w)
{
    static const size_t waits_for[] = {28, 36, 0};
    unsigned char buf[64] = {0};
    ech_p2p_request request;
    for (int i = 0; i < 3 && w->t->size > 1; i++) {
        if (w->t->rank == 0) {
            MPI_WORLD_CHECK(w, w->t->isend(w->t, ECH_AXIS_DP, 1, 5, buf, 32, &request) == ECH_OK);
            MPI_WORLD_CHECK(w, wait_message(w, &request) == ECH_OK);
        }
        if (w->t->rank == 1) {
            MPI_WORLD_CHECK(w, w->t->irecv(w->t, ECH_AXIS_DP, 0, 5, buf, waits_for[i], &request) ==
                                   ECH_OK);
            MPI_WORLD_CHECK(w, wait_message(w, &request) == ECH_E_COMM);
            MPI_WORLD_CHECK(w, strstr(ech_error_message(), "rank 1") != NULL);
            MPI_WORLD_CHECK(w, strstr(ech_error_message(), "rank 0 over dp") != NULL);
        }
        MPI_WORLD_CHECK(w, w->t->barrier(w->t) == ECH_OK);
    }
}

static void test_split(mpi_world *w)
{
    const size_t mib = ECH_MPI_BLOCK_BYTES;
    ech_mpi_split s = ech_mpi_split_make(INT_MAX, INT_MAX);
    MPI_WORLD_CHECK(w, s.blocks == 0 && s.rest_bytes == INT_MAX);
    s = ech_mpi_split_make((size_t)INT_MAX + 1, INT_MAX);
    MPI_WORLD_CHECK(w, s.blocks == 2048 && s.rest_bytes == 0);
    s = ech_mpi_split_make((size_t)5 << 30, INT_MAX);
    MPI_WORLD_CHECK(w, s.blocks * mib + s.rest_bytes == (size_t)5 << 30);
    s = ech_mpi_split_make(((size_t)1 << 50) + 7, INT_MAX);
    MPI_WORLD_CHECK(w, s.blocks == (size_t)1 << 30 && s.rest_bytes == 7);
    s = ech_mpi_split_make(0, INT_MAX);
    MPI_WORLD_CHECK(w, s.blocks == 0 && s.rest_bytes == 0);
}

int main(void)
{
    mpi_world w;
    mpi_world_open(&w);
    test_split(&w);
    test_start_up(&w);
    test_every_kind_and_size(&w);
    test_two_levels(&w);
    test_ring(&w);
    test_many_in_flight(&w);
    test_other_sizes_are_an_error(&w);
    MPI_WORLD_CHECK(&w, w.t->barrier(w.t) == ECH_OK);
    test_deadline(&w);
    mpi_world_close(&w);
    return 0;
}
