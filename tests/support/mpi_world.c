#include "mpi_world.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MPI keeps memory to the end of the process, in plugins that are unloaded by then, so a leak check
 * cannot tell it from ours.  The tests over virtual ranks check the leaks of the shared code. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

typedef ech_status (*module_open)(ech_transport **out);

static module_open find_module(void)
{
    const char *build = getenv("ECH_BUILD");
    char path[4096];
    module_open open = NULL;
    (void)snprintf(path, sizeof path, "%s/libechelon_mpi.so", build ? build : ".");
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        fprintf(stderr, "skipped: no mpi module: %s\n", dlerror());
        exit(77);
    }
    void *symbol = dlsym(module, ECH_TRANSPORT_MODULE_SYMBOL);
    memcpy(&open, &symbol, sizeof open);
    return open;
}

void mpi_world_check(mpi_world *w, bool is_true, const char *what, const char *file, int line)
{
    if (is_true)
        return;
    fprintf(stderr, "%s:%d: rank %d of %d: not true: %s (last error: %s; %s)\n", file, line,
            w->t ? w->t->rank : -1, w->t ? w->t->size : -1, what, ech_error_message(),
            ech_error_trail());
    if (w->t == NULL)
        exit(1);
    w->t->abort(w->t, 1);
}

void mpi_world_open(mpi_world *w)
{
    *w = (mpi_world){.deadline_s = 30};
    const module_open open = find_module();
    MPI_WORLD_CHECK(w, open != NULL);
    MPI_WORLD_CHECK(w, open(&w->t) == ECH_OK);
    w->layout = ech_layout_data_parallel(w->t->size);
    MPI_WORLD_CHECK(w, ech_comm_create(w->t, &w->layout, 16, &w->comm) == ECH_OK);
}

void mpi_world_close(mpi_world *w)
{
    ech_comm_destroy(&w->comm);
    w->t->destroy(w->t);
    w->t = NULL;
}

void mpi_world_wait(mpi_world *w, int request)
{
    const double end = ech_clock_s() + w->deadline_s;
    char text[256];
    for (int n = 0;; n++) {
        const ech_status st = ech_coll_test(w->comm, request);
        MPI_WORLD_CHECK(w, st >= 0);
        if (st == ECH_DONE)
            return;
        if (ech_clock_s() > end) {
            fprintf(stderr, "%s\n", ech_coll_describe(w->comm, request, text, sizeof text));
            mpi_world_check(w, false, "in time", __FILE__, __LINE__);
        }
        ech_clock_backoff(n);
    }
}

void mpi_world_run(mpi_world *w, const ech_coll *coll)
{
    int request = -1;
    MPI_WORLD_CHECK(w, ech_coll_start(w->comm, coll, &request) == ECH_OK);
    mpi_world_wait(w, request);
}
