/* Runs collectives over MPI and says what the communicator counted: pmpi_driver OUT KIND:AXIS:N...
 * (fp32) or stray:AXIS:BYTES, a message from rank 0 to rank 1 past the communicator.  Each rank
 * writes {"dp": {"bytes": 4096, "messages": 2, "payload": 2048}, ...} to OUT followed by its rank.
 */
#include "coll_case.h"
#include "mpi_world.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ech_axis axis_of(mpi_world *w, const char *name)
{
    for (int a = 0; a < ECH_N_AXES; a++)
        if (strcmp(ech_axis_name((ech_axis)a), name) == 0)
            return (ech_axis)a;
    mpi_world_check(w, false, name, __FILE__, __LINE__);
    return ECH_AXIS_DP;
}

static void run(mpi_world *w, coll_case c)
{
    coll_run r;
    c.size = ech_comm_group_size(w->comm, c.axis);
    c.dtype = ECH_F32;
    coll_run_init(&r, &c, ech_comm_group_index(w->comm, c.axis));
    mpi_world_run(w, &r.coll);
    MPI_WORLD_CHECK(w, coll_run_is_right(&r, &w->layout.tree[c.axis]));
    coll_run_fini(&r);
}

static void send_ring(mpi_world *w, coll_case c)
{
    coll_run send, recv;
    int request = -1;
    c.size = w->t->size;
    c.dtype = ECH_F32;
    c.kind = ECH_COLL_SEND;
    coll_run_init(&send, &c, w->t->rank);
    c.kind = ECH_COLL_RECV;
    coll_run_init(&recv, &c, w->t->rank);
    MPI_WORLD_CHECK(w, ech_coll_start(w->comm, &send.coll, &request) == ECH_OK);
    mpi_world_run(w, &recv.coll);
    mpi_world_wait(w, request);
    coll_run_fini(&send);
    coll_run_fini(&recv);
}

static void send_stray(mpi_world *w, ech_axis axis, size_t bytes)
{
    void *buf = calloc(bytes, 1);
    ech_p2p_request request;
    bool is_done = w->t->rank > 1;
    if (w->t->rank == 0)
        MPI_WORLD_CHECK(w, w->t->isend(w->t, axis, 1, 9, buf, bytes, &request) == ECH_OK);
    if (w->t->rank == 1)
        MPI_WORLD_CHECK(w, w->t->irecv(w->t, axis, 0, 9, buf, bytes, &request) == ECH_OK);
    for (int n = 0; !is_done; n++) {
        MPI_WORLD_CHECK(w, w->t->test(w->t, &request, &is_done) == ECH_OK);
        ech_clock_backoff(n);
    }
    free(buf);
}

static void run_word(mpi_world *w, const char *word)
{
    static const char *const kinds[] = {"all_reduce", "reduce_scatter", "all_gather",
                                        "sum_small",  "send",           "stray"};
    char kind[32], axis[32];
    long long n = 0;
    int k = 0;
    MPI_WORLD_CHECK(w, sscanf(word, "%31[^:]:%31[^:]:%lld", kind, axis, &n) == 3);
    while (k < 6 && strcmp(kinds[k], kind) != 0)
        k++;
    MPI_WORLD_CHECK(w, k < 6);
    const coll_case c = {.kind = (ech_coll_kind)k, .axis = axis_of(w, axis), .n = n, .seed = 1};
    if (k < 4)
        run(w, c);
    else if (k == 4)
        send_ring(w, c);
    else
        send_stray(w, c.axis, (size_t)n);
}

static void write_sent(mpi_world *w, const char *prefix)
{
    const ech_sent *sent = ech_comm_sent(w->comm);
    char path[4096];
    (void)snprintf(path, sizeof path, "%s%d", prefix, w->t->rank);
    FILE *out = fopen(path, "w");
    MPI_WORLD_CHECK(w, out != NULL);
    for (int a = 0; a < ECH_N_AXES; a++)
        fprintf(out, "%s\"%s\": {\"bytes\": %lld, \"messages\": %lld, \"payload\": %lld}",
                a ? ", " : "{", ech_axis_name((ech_axis)a), (long long)sent->wire_bytes[a],
                (long long)sent->messages[a], (long long)sent->payload_bytes[a]);
    fputs("}\n", out);
    MPI_WORLD_CHECK(w, fclose(out) == 0);
}

int main(int argc, char **argv)
{
    mpi_world w;
    if (argc < 2)
        return 2;
    mpi_world_open(&w);
    for (int i = 2; i < argc; i++)
        run_word(&w, argv[i]);
    write_sent(&w, argv[1]);
    MPI_WORLD_CHECK(&w, w.t->barrier(w.t) == ECH_OK);
    mpi_world_close(&w);
    return 0;
}
