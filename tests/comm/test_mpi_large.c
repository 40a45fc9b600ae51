/* RUN: np=2 timeout=300 tags=long */
/* A message above the limit of an MPI count: split on the way, whole on arrival, and counted. */
#include "mpi_world.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static uint64_t word(size_t i)
{
    return ((uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

int main(void)
{
    const size_t words = ((size_t)INT_MAX + 5 * 1048576 + 800) / sizeof(uint64_t);
    mpi_world w;
    mpi_world_open(&w);
    w.deadline_s = 200;
    MPI_WORLD_CHECK(&w, w.t->size == 2);
    uint64_t *buf = calloc(words, sizeof *buf);
    MPI_WORLD_CHECK(&w, buf != NULL);
    for (size_t i = 0; w.t->rank == 0 && i < words; i++)
        buf[i] = word(i);
    const ech_coll c = {.kind = w.t->rank == 0 ? ECH_COLL_SEND : ECH_COLL_RECV,
                        .axis = ECH_AXIS_DP,
                        .dtype = ECH_I64,
                        .n = (int64_t)words,
                        .buf = buf,
                        .peer = 1 - w.t->rank};
    mpi_world_run(&w, &c);
    for (size_t i = 0; i < words; i++)
        if (buf[i] != word(i))
            mpi_world_check(&w, false, "every word arrives", __FILE__, __LINE__);
    MPI_WORLD_CHECK(&w, ech_comm_sent(w.comm)->wire_bytes[ECH_AXIS_DP] ==
                            (w.t->rank == 0 ? (int64_t)(words * sizeof *buf) : 0));
    free(buf);
    mpi_world_close(&w);
    return 0;
}
