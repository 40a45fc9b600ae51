/* RUN: np=2,3 timeout=30 tags=fast */
/* Ranks that would train different things say so at start: which rank, and what it has. */
#include "mpi_world.h"
#include "tiny.h"

#include <stdio.h>
#include <string.h>

/* What the last rank has otherwise. */
typedef void (*change)(ech_session_config *c);

static void other_seed(ech_session_config *c)
{
    c->seed = 7;
}

static void other_program(ech_session_config *c)
{
    c->compile.block.clip = 0.5;
}

static void no_evaluation(ech_session_config *c)
{
    c->has_eval = false;
}

static void nothing(ech_session_config *c)
{
    (void)c;
}

/* Every rank gets the same words. */
static void expect(mpi_world *w, change what, const char *words)
{
    const ech_model m = tiny_model(TINY_GPT2, 0.0);
    const tiny_spec spec = {.dp = w->t->size};
    ech_session *s = NULL;
    ech_session_config c = {.model = &m, .seed = 42, .threads = 1, .has_eval = true};
    c.compile = (ech_compile_spec){.block = {.layout = tiny_layout(&spec, &m),
                                             .real = ECH_F64,
                                             .rows = 1,
                                             .seq = 4,
                                             .clip = 1},
                                   .micro_batches = 1,
                                   .bucket_bytes = 1 << 20};
    if (w->t->rank == w->t->size - 1)
        what(&c);
    const ech_status st = ech_session_create(&c, &w->t, 1, &s);
    MPI_WORLD_CHECK(w, st == (words ? ECH_E_CONFIG : ECH_OK));
    MPI_WORLD_CHECK(w, !words || strstr(ech_error_message(), words));
    if (words) {
        char rank[32];
        (void)snprintf(rank, sizeof rank, "rank %d ", w->t->size - 1);
        MPI_WORLD_CHECK(w, strncmp(ech_error_message(), rank, strlen(rank)) == 0);
    }
    ech_session_destroy(&s);
}

int main(void)
{
    mpi_world w;
    mpi_world_open(&w);
    ech_comm_destroy(&w.comm); /* sessions bring their own */
    expect(&w, nothing, NULL);
    expect(&w, other_seed, "has train.seed 7, rank 0 has 42");
    expect(&w, other_program, "holds another step program than rank 0");
    expect(&w, no_evaluation, "holds another evaluation program than rank 0");
    mpi_world_close(&w);
    return 0;
}
