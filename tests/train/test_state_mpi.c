/* RUN: np=2,4 timeout=60 tags=fast */
/* Saved over MPI, every process its own file: what virtual ranks load is what the processes held, and
 * the processes load it too; a rank that cannot write fails the save on all, and leaves nothing. */
#include "folder.h"
#include "mpi_world.h"
#include "tiny.h"

#include "base/io.h"
#include "train/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool all_of_them(int64_t row, int64_t position, void *user)
{
    (void)row;
    (void)position;
    (void)user;
    return true;
}

static tiny_spec spec_of(int world)
{
    tiny_spec s = tiny_spec_default();
    s.tp = 2;
    s.dp = world / 2;
    s.policy.zero_stage = world > 2 ? 1 : 0;
    s.rows = 12 / s.dp;
    s.optim = ECH_UPDATE_ADAMW;
    return s;
}

/* A folder of rank 0's that all know; the others' own scratch folders stay empty. */
static const char *shared_folder(mpi_world *w)
{
    static char all[16][512];
    char mine[512] = "";
    if (w->t->rank == 0)
        (void)snprintf(mine, sizeof mine, "%s", scratch_folder());
    MPI_WORLD_CHECK(w, w->t->exchange(w->t, mine, sizeof mine, all) == ECH_OK);
    return all[0];
}

static int no_space_on_the_last(const char *op, const char *path, int64_t bytes, void *user)
{
    const mpi_world *w = user;
    (void)bytes;
    return w->t->rank == w->t->size - 1 && !strcmp(op, "write") && strstr(path, "rank-") ? -ENOSPC
                                                                                         : 0;
}

static void check_all(mpi_world *w, const tiny_run *virtual, const tiny_run *mpi)
{
    const ech_session *v = virtual->session;
    const size_t n = (size_t)v->canon.elems * sizeof(double);
    MPI_WORLD_CHECK(w, !memcmp(tiny_params(v, w->t->rank), tiny_params(mpi->session, 0), n));
    MPI_WORLD_CHECK(w, !memcmp(tiny_moments(v, w->t->rank), tiny_moments(mpi->session, 0), n));
}

int main(void)
{
    mpi_world w;
    mpi_world_open(&w);
    ech_comm_destroy(&w.comm); /* sessions bring their own */
    const tiny_spec spec = spec_of(w.t->size);
    const char *dir = shared_folder(&w);
    tiny_run mpi = {.world = w.t->size};
    tiny_run virtual;
    ech_ckpt_saved saved;
    ech_ckpt *c = NULL;
    char path[4096];
    ech_state_spec what = {.dir = dir, .run = {.step = 1, .generation = 1, .updates = 1}};

    tiny_start_on(&spec, &w.t, 1, &mpi.session);
    tiny_feed(&mpi, 0, all_of_them, NULL);
    (void)tiny_step(&mpi, 0, 0.01);
    tiny_ok(ech_state_save(mpi.session, &what, &saved), "save");
    MPI_WORLD_CHECK(&w, (saved.bytes > 0) == (w.t->rank == 0));
    tiny_ok(ech_ckpt_path(dir, 1, path, sizeof path), "path");
    tiny_ok(ech_ckpt_open(path, &c), "open");
    MPI_WORLD_CHECK(&w, ech_ckpt_manifest_of(c)->n_files == w.t->size);
    tiny_ok(ech_ckpt_verify(c, NULL, NULL), "verify");
    tiny_start(&spec, &virtual);
    tiny_ok(ech_state_load(virtual.session, c), "load");
    check_all(&w, &virtual, &mpi);

    tiny_feed(&mpi, 1, all_of_them, NULL);
    (void)tiny_step(&mpi, 1, 0.01);
    what.run.step = 2;
    ech_io_set_hook(no_space_on_the_last, &w);
    MPI_WORLD_CHECK(&w, ech_state_save(mpi.session, &what, &saved) == ECH_E_IO);
    ech_io_set_hook(NULL, NULL);
    MPI_WORLD_CHECK(&w, strstr(ech_error_message(), "No space"));
    MPI_WORLD_CHECK(&w, w.t->barrier(w.t) == ECH_OK);
    MPI_WORLD_CHECK(&w, folder_count(dir) == 1); /* step 1 alone */

    tiny_ok(ech_state_load(mpi.session, c), "load over MPI");
    check_all(&w, &virtual, &mpi);
    ech_ckpt_close(&c);
    tiny_stop(&virtual);
    ech_session_destroy(&mpi.session);
    MPI_WORLD_CHECK(&w, w.t->barrier(w.t) == ECH_OK); /* rank 0 removes the folder at its end */
    mpi_world_close(&w);
    return 0;
}
