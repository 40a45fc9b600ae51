/** @file support/mpi_world.h
 *  One rank of a test that runs under mpirun: the module opened beside the build, a communicator,
 *  and checks that end the whole job instead of leaving the others waiting. */
#ifndef ECH_TESTS_MPI_WORLD_H
#define ECH_TESTS_MPI_WORLD_H

#include "comm/comm.h" /* ech_comm */

typedef struct mpi_world {
    ech_layout layout;
    ech_transport *t;
    ech_comm *comm;
    double deadline_s; /**< of one wait */
} mpi_world;

/** Open the module in the folder named by ECH_BUILD; exits with 77 if the build has none.  The
 *  layout is data parallel. */
void mpi_world_open(mpi_world *w);
void mpi_world_close(mpi_world *w);

/** Start a collective, wait for it politely, and end the job if it fails or takes too long. */
void mpi_world_run(mpi_world *w, const ech_coll *coll);

/** Wait for a collective that was started. */
void mpi_world_wait(mpi_world *w, int request);

/** End the job unless is_true. */
#define MPI_WORLD_CHECK(w, is_true) mpi_world_check((w), (is_true), #is_true, __FILE__, __LINE__)
void mpi_world_check(mpi_world *w, bool is_true, const char *what, const char *file, int line);

#endif
