/* RUN: np=2,3 timeout=60 tags=fast */
/* A recorded step over MPI: clocks compared where the answer is known, and every rank's bars on rank
 * 0's line, with the kernels that the program has. */
#include "mpi_world.h"
#include "tiny.h"

#include "train/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* All ranks here read one clock, so its offset is 0, and must lie within the bound. */
static void compare_clocks(mpi_world *w, ech_session *s)
{
    ech_comm *comm;
    tiny_ok(ech_comm_create(w->t, &w->layout, 1, &comm), "communicator");
    for (int r = 1; r < w->t->size; r++) {
        ech_clock_offset c = {NAN, NAN};
        if (w->t->rank != 0 && w->t->rank != r)
            continue;
        MPI_WORLD_CHECK(w, ech_clock_compare(s, comm, r, &c) >= 0);
        if (w->t->rank != 0)
            continue;
        (void)printf("clock of rank %d: off by %.3g s, known to %.3g s\n", r, c.offset_s,
                     c.bound_s);
        MPI_WORLD_CHECK(w, fabs(c.offset_s) <= c.bound_s);
        MPI_WORLD_CHECK(w, c.bound_s < 1.0);
    }
    ech_comm_destroy(&comm);
}

static int items_with_kernels(const ech_program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        int kernels = 0;
        for (int k = 0; k < b->n_ops; k++)
            kernels += !ech_op_is_comm(b->op[k].kind);
        n += kernels > 0;
    }
    return n;
}

static void check_line(mpi_world *w, const ech_timeline *l, const ech_program *p)
{
    for (int r = 0; r < w->t->size; r++) {
        int items = 0;
        int last = -1;
        for (size_t i = 0; i < l->n; i++) {
            const ech_bar *b = &l->bar[i];
            if (b->rank != r)
                continue;
            MPI_WORLD_CHECK(w, 0.0 <= b->begin_s && b->begin_s <= b->end_s);
            MPI_WORLD_CHECK(w, b->end_s <= l->step_s);
            if (b->lane != ECH_LANE_COMPUTE || b->item == last)
                continue;
            MPI_WORLD_CHECK(w, b->item > last); /* in the program's order */
            last = b->item;
            items++;
        }
        MPI_WORLD_CHECK(w, items == items_with_kernels(p));
    }
    MPI_WORLD_CHECK(w, l->lost == 0);
    MPI_WORLD_CHECK(w, strstr(l->note, "all ranks read one clock") != NULL);
}

int main(void)
{
    mpi_world w;
    ech_timeline line;
    ech_step_result out;
    tiny_spec spec = tiny_spec_default();
    mpi_world_open(&w);
    spec.dp = w.t->size;
    spec.policy.zero_stage = 1;
    spec.records = true;
    tiny_run run = {.world = w.t->size};
    tiny_start_on(&spec, &w.t, 1, &run.session);
    tiny_feed(&run, 0, NULL, NULL);
    compare_clocks(&w, run.session);
    const ech_step_request r = {.lr = 1e-3, .loss_scale = 1.0, .records = true};
    tiny_ok(ech_session_step(run.session, &r, &out), "step");
    tiny_ok(ech_trace_gather(run.session, 1, &line), "gather");
    if (w.t->rank == 0)
        check_line(&w, &line, run.session->train.program[0]);
    else
        MPI_WORLD_CHECK(&w, line.n == 0 && line.bar == NULL);
    ech_timeline_fini(&line);
    ech_session_destroy(&run.session);
    mpi_world_close(&w);
    return 0;
}
