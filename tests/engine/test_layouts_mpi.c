/* RUN: np=2,4,6,8 timeout=300 tags=fast */
/* Layouts over MPI, pipelines among them: every element that a process holds has the bits of the same virtual rank's, the
 * whole gradient is one rank's in fp64 at 1e-11, and what was sent is what was predicted. */
#include "mpi_world.h"
#include "tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24, SEQ = 6, STEPS = 3 };

static bool most(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row * 7 + position * 3) % 5 < 3;
}

/* One training thrice: on one rank, on virtual ranks, over MPI. */
typedef struct trio {
    tiny_run one, virtual, mpi;
    double *whole; /* what was collected */
} trio;

static tiny_spec alone(tiny_spec s)
{
    s.tp = s.pp = s.dp = s.accumulation = s.chunks = 1;
    s.schedule = ECH_SCHEDULE_1F1B;
    s.shard_group = 0;
    s.policy = (ech_shard_policy){0};
    s.rows = ROWS;
    return s;
}

static void start(mpi_world *w, const tiny_spec *spec, trio *t)
{
    const tiny_spec whole = alone(*spec);
    tiny_start(&whole, &t->one);
    tiny_start(spec, &t->virtual);
    t->mpi = (tiny_run){.world = w->t->size};
    tiny_start_on(spec, &w->t, 1, &t->mpi.session);
    t->whole = calloc((size_t)t->one.session->canon.elems, sizeof *t->whole);
}

static void stop(trio *t)
{
    free(t->whole);
    tiny_stop(&t->one);
    tiny_stop(&t->virtual);
    ech_session_destroy(&t->mpi.session);
}

/* This process's elements against the same virtual rank's, and all of them against one rank's. */
static void check_class(mpi_world *w, trio *t, ech_held_class what)
{
    ech_session *m = t->mpi.session;
    const size_t bytes = (size_t)m->canon.elems * sizeof(double);
    const bool is_grad = what == ECH_HELD_GRADS;
    const void *mine = is_grad ? tiny_grads(m, 0) : tiny_params(m, 0);
    const void *same = is_grad ? tiny_grads(t->virtual.session, w->t->rank)
                               : tiny_params(t->virtual.session, w->t->rank);
    MPI_WORLD_CHECK(w, memcmp(mine, same, bytes) == 0);
    MPI_WORLD_CHECK(w, ech_session_collect(m, what, t->whole) == ECH_OK);
    if (w->t->rank == 0)
        MPI_WORLD_CHECK(
            w, tiny_difference(t->one.session, t->whole, tiny_all(t->one.session, what)) <= 1e-11);
}

static void check_sent(mpi_world *w, const ech_session *s)
{
    ech_traffic predicted[ECH_N_AXES];
    ech_program_traffic(&s->local[0].klass->program, w->t->rank, predicted);
    for (int a = 0; a < ECH_N_AXES; a++)
        MPI_WORLD_CHECK(w,
                        ech_comm_sent(s->local[0].comm)->wire_bytes[a] == predicted[a].wire_bytes);
}

static ech_step_result step(tiny_run *run, int i)
{
    ech_comm_sent_reset(run->session->local[0].comm);
    tiny_feed(run, i, most, NULL);
    return tiny_step(run, i, 0.05);
}

static void run_all(mpi_world *w, const tiny_spec *spec)
{
    trio t;
    start(w, spec, &t);
    for (int i = 0; i < STEPS; i++) {
        const ech_step_result one = step(&t.one, i);
        const ech_step_result virtual = step(&t.virtual, i);
        const ech_step_result mpi = step(&t.mpi, i);
        MPI_WORLD_CHECK(w, memcmp(&virtual.loss, &mpi.loss, sizeof mpi.loss) == 0);
        MPI_WORLD_CHECK(w, memcmp(&virtual.grad_norm, &mpi.grad_norm, sizeof mpi.grad_norm) == 0);
        MPI_WORLD_CHECK(w, fabs(mpi.loss - one.loss) <= 1e-12);
        MPI_WORLD_CHECK(w, fabs(mpi.grad_norm / one.grad_norm - 1.0) <= 1e-12);
        check_sent(w, t.mpi.session);
        check_class(w, &t, ECH_HELD_GRADS);
        check_class(w, &t, ECH_HELD_PARAMS);
    }
    stop(&t);
}

typedef struct layout_row {
    int np;
    tiny_kind kind;
    int heads, kv_heads, tp, dp, group, accumulation;
    ech_shard_policy policy; /* sp, kept, stage, each, reshard, prefetch */
    int pp;
    ech_schedule_kind schedule;
    int chunks;
} layout_row;

#define ALONE 1, ECH_SCHEDULE_1F1B, 1
#define PLAIN                                                                                      \
    {                                                                                              \
        false, false, 0, false, false, 0                                                           \
    }

static const layout_row rows[] = {
    {4, TINY_LLAMA, 4, 2, 4, 1, 0, 1, {true, false, 0, false, false, 0}, ALONE},
    {4, TINY_GPT2, 4, 4, 2, 2, 0, 2, {true, false, 1, false, false, 0}, ALONE},
    {4, TINY_LLAMA, 4, 2, 2, 2, 0, 1, {false, false, 3, false, true, 1}, ALONE},
    {4, TINY_QWEN, 4, 1, 2, 2, 0, 2, {true, true, 2, true, false, 0}, ALONE},
    {4, TINY_TIED_LLAMA, 4, 2, 1, 4, 2, 2, {false, false, 3, true, true, 1}, ALONE},
    {4, TINY_GPT2, 4, 4, 1, 4, 0, 1, {false, false, 3, false, false, 2}, ALONE},
    {6, TINY_LLAMA, 6, 2, 3, 2, 0, 2, {true, false, 3, false, true, 1}, ALONE},
    {6, TINY_QWEN, 12, 4, 6, 1, 0, 1, {false, false, 0, false, false, 0}, ALONE},
    {6, TINY_GPT2, 6, 6, 1, 6, 2, 2, {false, false, 2, true, false, 0}, ALONE},
    {6, TINY_TIED_LLAMA, 6, 3, 2, 3, 0, 1, {true, true, 1, false, false, 0}, ALONE},
    {8, TINY_LLAMA, 4, 1, 4, 2, 0, 2, {true, false, 3, true, true, 1}, ALONE},
    {8, TINY_GPT2, 4, 4, 2, 4, 2, 1, {true, false, 3, false, true, 1}, ALONE},
    {8, TINY_QWEN, 4, 2, 1, 8, 4, 1, {false, false, 1, false, false, 0}, ALONE},
    {8, TINY_TIED_LLAMA, 4, 2, 2, 4, 4, 2, {false, false, 2, false, false, 0}, ALONE},
    /* pipelines */
    {2, TINY_LLAMA, 4, 2, 1, 1, 0, 4, PLAIN, 2, ECH_SCHEDULE_1F1B, 1},
    {2, TINY_GPT2, 4, 4, 1, 1, 0, 4, PLAIN, 2, ECH_SCHEDULE_GPIPE, 1},
    {2, TINY_TIED_LLAMA, 4, 2, 1, 1, 0, 4, PLAIN, 2, ECH_SCHEDULE_INTERLEAVED, 3},
    {2, TINY_QWEN, 4, 2, 1, 1, 0, 6, PLAIN, 2, ECH_SCHEDULE_ZB_H1, 1},
    {2, TINY_TIED_LLAMA, 4, 2, 1, 1, 0, 6, PLAIN, 2, ECH_SCHEDULE_ZB_V, 2},
    {4, TINY_LLAMA, 4, 2, 1, 1, 0, 6, PLAIN, 4, ECH_SCHEDULE_1F1B, 1},
    {4,
     TINY_TIED_LLAMA,
     4,
     2,
     1,
     2,
     0,
     3,
     {false, false, 1, false, false, 0},
     2,
     ECH_SCHEDULE_1F1B,
     1},
    {4, TINY_GPT2, 4, 4, 2, 1, 0, 3, {true, false, 0, false, false, 0}, 2, ECH_SCHEDULE_1F1B, 1},
    {4,
     TINY_LLAMA,
     4,
     2,
     1,
     2,
     0,
     2,
     {false, false, 3, true, true, 1},
     2,
     ECH_SCHEDULE_INTERLEAVED,
     2},
    {4, TINY_TIED_LLAMA, 4, 2, 1, 1, 0, 3, PLAIN, 4, ECH_SCHEDULE_ZB_H1, 1},
    {4, TINY_QWEN, 4, 2, 1, 2, 0, 4, {false, false, 1, false, false, 0}, 2, ECH_SCHEDULE_ZB_V, 2},
    {6,
     TINY_TIED_LLAMA,
     4,
     2,
     2,
     1,
     0,
     4,
     {true, true, 0, false, false, 0},
     3,
     ECH_SCHEDULE_ZB_V,
     2},
    {8,
     TINY_TIED_LLAMA,
     4,
     1,
     2,
     2,
     0,
     2,
     {true, false, 1, false, false, 0},
     2,
     ECH_SCHEDULE_1F1B,
     1},
    {8, TINY_GPT2, 4, 4, 1, 2, 0, 6, {false, false, 2, true, false, 0}, 4, ECH_SCHEDULE_ZB_H1, 1},
};

int main(void)
{
    mpi_world w;
    mpi_world_open(&w);
    ech_comm_destroy(&w.comm); /* sessions bring their own */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const layout_row *r = &rows[i];
        tiny_spec spec = tiny_spec_default();
        if (r->np != w.t->size)
            continue;
        spec.kind = r->kind;
        spec.heads = r->heads;
        spec.kv_heads = r->kv_heads;
        spec.tp = r->tp;
        spec.dp = r->dp;
        spec.shard_group = r->group;
        spec.accumulation = r->accumulation;
        spec.policy = r->policy;
        spec.pp = r->pp;
        spec.schedule = r->schedule;
        spec.chunks = r->chunks;
        spec.layers = r->pp > 1 ? 6 : 0;
        spec.dropout = i % 3 == 1 ? 0.2 : 0.0;
        spec.seq = SEQ;
        spec.rows = ROWS / (spec.dp * spec.accumulation);
        spec.poison = true;
        run_all(&w, &spec);
    }
    mpi_world_close(&w);
    return 0;
}
