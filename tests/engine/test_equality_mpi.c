/* RUN: np=1,2,3,4 timeout=120 tags=fast */
/* Data parallel training over MPI equals one rank's (every gradient before the optimizer in fp64 at
 * 1e-11, weights after SGD) and virtual ranks' to the bit, for 1, 2 and 5 micro-batches of 1, 5 and
 * 60 unmasked tokens, a rank without any, a step without any. */
#include "mpi_world.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 12, SEQ = 5, STEPS = 4, NO_TOKENS = 2, IDLE_RANK = 1 };

/* Unmasked tokens of each group of ROWS sequences, a micro-batch, in global order. */
typedef struct deal {
    int step, dp;
} deal;

static int kept(const deal *d, int group)
{
    static const int tokens[] = {60, 1, 5};
    if (d->step == NO_TOKENS || (d->step == IDLE_RANK && group % d->dp == d->dp - 1 && d->dp > 1))
        return 0;
    return tokens[(group + d->step) % 3];
}

static bool keep(int64_t row, int64_t position, void *user)
{
    return row % ROWS * SEQ + position < kept(user, (int)(row / ROWS));
}

static int64_t tokens_of(const deal *d, int groups)
{
    int64_t n = 0;
    for (int g = 0; g < groups; g++)
        n += kept(d, g);
    return n;
}

/* The same training three times: in one rank, on virtual ranks, over MPI. */
typedef struct trio {
    tiny_run one, virtual, mpi;
} trio;

static void start(mpi_world *w, const tiny_spec *spec, trio *t)
{
    tiny_spec whole = *spec;
    whole.rows = spec->rows * spec->dp * spec->accumulation;
    whole.dp = whole.accumulation = 1;
    tiny_start(&whole, &t->one);
    tiny_start(spec, &t->virtual);
    t->mpi = (tiny_run){.world = spec->dp};
    tiny_start_on(spec, &w->t, 1, &t->mpi.session);
}

static void stop(trio *t)
{
    tiny_stop(&t->one);
    tiny_stop(&t->virtual);
    ech_session_destroy(&t->mpi.session);
}

static size_t state_bytes(const ech_session *s)
{
    return (size_t)s->canon.elems * ech_dtype_bytes(s->config.compile.block.real);
}

static void check_bits(mpi_world *w, const trio *t, const ech_step_result *a,
                       const ech_step_result *b)
{
    ech_session *v = t->virtual.session;
    ech_session *m = t->mpi.session;
    const size_t n = state_bytes(m);
    MPI_WORLD_CHECK(w, memcmp(&a->grad_norm, &b->grad_norm, sizeof a->grad_norm) == 0);
    MPI_WORLD_CHECK(w, a->tokens == 0 || memcmp(&a->loss, &b->loss, sizeof a->loss) == 0);
    MPI_WORLD_CHECK(w, memcmp(tiny_grads(v, w->t->rank), tiny_grads(m, 0), n) == 0);
    MPI_WORLD_CHECK(w, memcmp(tiny_params(v, w->t->rank), tiny_params(m, 0), n) == 0);
}

static void check_one(mpi_world *w, const trio *t, const ech_step_result *one,
                      const ech_step_result *mpi)
{
    ech_session *a = t->one.session;
    ech_session *b = t->mpi.session;
    MPI_WORLD_CHECK(w, fabs(mpi->loss - one->loss) <= 1e-12);
    MPI_WORLD_CHECK(w, fabs(mpi->grad_norm / one->grad_norm - 1.0) <= 1e-12);
    MPI_WORLD_CHECK(w, tiny_difference(b, tiny_grads(b, 0), tiny_grads(a, 0)) <= 1e-11);
    MPI_WORLD_CHECK(w, tiny_difference(b, tiny_params(b, 0), tiny_params(a, 0)) <= 1e-11);
}

static void check_sent(mpi_world *w, const ech_session *s)
{
    ech_traffic predicted[ECH_N_AXES];
    ech_program_traffic(&s->train.klass[0].program, w->t->rank, predicted);
    for (int a = 0; a < ECH_N_AXES; a++)
        MPI_WORLD_CHECK(w,
                        ech_comm_sent(s->local[0].comm)->wire_bytes[a] == predicted[a].wire_bytes);
}

static ech_step_result step(tiny_run *run, int i, deal *d)
{
    ech_comm_sent_reset(run->session->local[0].comm);
    tiny_feed(run, i, keep, d);
    return tiny_step(run, i, 0.05);
}

static void run_all(mpi_world *w, const tiny_spec *spec)
{
    trio t;
    start(w, spec, &t);
    void *before = malloc(state_bytes(t.mpi.session));
    for (int i = 0; i < STEPS; i++) {
        deal d = {i, spec->dp};
        const int64_t tokens = tokens_of(&d, spec->dp * spec->accumulation);
        memcpy(before, tiny_params(t.mpi.session, 0), state_bytes(t.mpi.session));
        const ech_step_result one = step(&t.one, i, &d);
        const ech_step_result virtual = step(&t.virtual, i, &d);
        const ech_step_result mpi = step(&t.mpi, i, &d);
        MPI_WORLD_CHECK(w, mpi.tokens == tokens && one.tokens == tokens);
        MPI_WORLD_CHECK(w, mpi.is_updated == (tokens > 0));
        const bool is_same =
            memcmp(before, tiny_params(t.mpi.session, 0), state_bytes(t.mpi.session)) == 0;
        MPI_WORLD_CHECK(w, is_same == (tokens == 0));
        check_bits(w, &t, &virtual, &mpi);
        if (spec->real == ECH_F64 && tokens > 0)
            check_one(w, &t, &one, &mpi);
        if (tokens > 0) /* without an update its commit is not run */
            check_sent(w, t.mpi.session);
    }
    free(before);
    stop(&t);
}

int main(void)
{
    static const int accumulations[] = {1, 2, 5};
    mpi_world w;
    mpi_world_open(&w);
    ech_comm_destroy(&w.comm); /* sessions bring their own */
    for (int kind = 0; kind < N_TINY; kind++)
        for (int a = 0; a < 3; a++) {
            tiny_spec spec = tiny_spec_default();
            spec.kind = (tiny_kind)kind;
            spec.dropout = kind == TINY_GPT2 ? 0.2 : 0.0;
            spec.dp = w.t->size;
            spec.accumulation = accumulations[a];
            spec.rows = ROWS;
            spec.seq = SEQ;
            spec.bucket_bytes = a == 1 ? 2000 : 1 << 20;
            spec.poison = true;
            run_all(&w, &spec);
            spec.real = ECH_F32;
            if (a == 1)
                run_all(&w, &spec);
        }
    mpi_world_close(&w);
    return 0;
}
