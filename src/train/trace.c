#include "train/trace.h"
#include "base/clock.h"
#include "train/gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bars travel as whole words. */
_Static_assert(sizeof(ech_bar) % sizeof(int64_t) == 0, "bars are no whole words");

enum { ROUND_TRIPS = 9 };

/* --- clocks --- */

static ech_status pass_time(const ech_session *s, ech_comm *comm, ech_coll_kind kind, int peer,
                            double *t)
{
    const ech_coll coll = {
        .kind = kind, .axis = ECH_AXIS_WORLD, .dtype = ECH_F64, .n = 1, .buf = t, .peer = peer};
    return ech_gather_pass(s, comm, &coll);
}

/* The peer answers each question with its clock. */
static ech_status answer(const ech_session *s, ech_comm *comm)
{
    for (int i = 0; i < ROUND_TRIPS; i++) {
        double t;
        ECH_TRY(pass_time(s, comm, ECH_COLL_RECV, 0, &t));
        t = ech_clock_s();
        ECH_TRY(pass_time(s, comm, ECH_COLL_SEND, 0, &t));
    }
    return ECH_OK;
}

ech_status ech_clock_compare(const ech_session *s, ech_comm *comm, int peer, ech_clock_offset *out)
{
    if (s->local[0].rank == peer)
        return answer(s, comm);
    out->bound_s = -1.0;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        double t = 0.0;
        const double asked = ech_clock_s();
        ECH_TRY(pass_time(s, comm, ECH_COLL_SEND, peer, &t));
        ECH_TRY(pass_time(s, comm, ECH_COLL_RECV, peer, &t));
        const double half = 0.5 * (ech_clock_s() - asked);
        if (out->bound_s >= 0.0 && half >= out->bound_s)
            continue;
        out->bound_s = half;
        out->offset_s = t - (asked + half);
    }
    return ECH_OK;
}

/* --- gathering --- */

/* What ranks tell each other of their recordings. */
typedef struct rank_record {
    int64_t bars, lost;
    double begin_s, end_s;
    uint64_t clock;
} rank_record;

/* A gathering in progress on one process. */
typedef struct gathering {
    ech_session *s;
    ech_comm *comm;      /* owned; NULL where all ranks live here */
    rank_record *record; /* owned [world] */
    int world;
    int compared;   /* ranks whose clock is another */
    double bound_s; /* of the clock that is known worst */
    ech_timeline line;
} gathering;

static rank_record record_of(const ech_recording *r)
{
    return (rank_record){(int64_t)r->n, (int64_t)r->lost, r->begin_s, r->end_s,
                         ech_clock_identity()};
}

/* Counts and times of all ranks, on all processes. */
static ech_status tell_records(gathering *g)
{
    const ech_session *s = g->s;
    ech_transport *t = s->local[0].transport;
    ECH_TRY(ech_calloc((size_t)g->world, sizeof *g->record, &g->record));
    for (int i = 0; i < s->n_local; i++) {
        const ech_recording r = ech_recorder_get(s->local[i].recorder);
        g->record[s->local[i].rank] = record_of(&r);
    }
    if (s->n_local == g->world)
        return ECH_OK;
    const rank_record mine = g->record[s->local[0].rank];
    return t->exchange(t, &mine, sizeof mine, g->record);
}

/* Room for this process's bars, on rank 0 for all of them, and a communicator. */
static ech_status make_room(gathering *g)
{
    const ech_session *s = g->s;
    const int mine = s->local[0].rank;
    size_t bars = 0;
    for (int r = 0; r < g->world; r++)
        if (mine == 0 || mine == r)
            bars += (size_t)g->record[r].bars;
    ECH_TRY(ech_calloc(bars + 1, sizeof *g->line.bar, &g->line.bar));
    g->line.capacity = bars + 1;
    if (s->n_local == g->world)
        return ECH_OK;
    return ech_comm_create(s->local[0].transport, &s->config.compile.block.layout, 1, &g->comm);
}

static ech_status pass_bars(gathering *g, ech_coll_kind kind, int peer, ech_bar *bar, size_t n)
{
    const ech_coll coll = {.kind = kind,
                           .axis = ECH_AXIS_WORLD,
                           .dtype = ECH_I64,
                           .n = (int64_t)(n * (sizeof *bar / sizeof(int64_t))),
                           .buf = bar,
                           .peer = peer};
    return n ? ech_gather_pass(g->s, g->comm, &coll) : ECH_OK;
}

/* Bars behind those that are there, taken to rank 0's clock. */
static void take_in(gathering *g, size_t n, double offset_s)
{
    for (size_t i = g->line.n; i < g->line.n + n; i++) {
        g->line.bar[i].begin_s -= offset_s;
        g->line.bar[i].end_s -= offset_s;
    }
    g->line.n += n;
}

static bool is_other_clock(const gathering *g, int rank)
{
    return g->record[rank].clock == 0 || g->record[rank].clock != g->record[0].clock;
}

/* On rank 0: from another process. */
static ech_status receive(gathering *g, int rank)
{
    ech_clock_offset clock = {0};
    rank_record *record = &g->record[rank];
    if (is_other_clock(g, rank)) {
        ECH_TRY(ech_clock_compare(g->s, g->comm, rank, &clock));
        g->compared++;
        g->bound_s = clock.bound_s > g->bound_s ? clock.bound_s : g->bound_s;
    }
    record->begin_s -= clock.offset_s;
    record->end_s -= clock.offset_s;
    ECH_TRY(pass_bars(g, ECH_COLL_RECV, rank, g->line.bar + g->line.n, (size_t)record->bars));
    take_in(g, (size_t)record->bars, clock.offset_s);
    return ECH_OK;
}

/* On any other process: its bars go to rank 0. */
static ech_status give(gathering *g)
{
    ech_clock_offset unused;
    const int rank = g->s->local[0].rank;
    if (is_other_clock(g, rank))
        ECH_TRY(ech_clock_compare(g->s, g->comm, rank, &unused));
    return pass_bars(g, ECH_COLL_SEND, 0, g->line.bar, g->line.n);
}

static ech_status take_all(gathering *g)
{
    const ech_session *s = g->s;
    for (int i = 0; i < s->n_local; i++) {
        const ech_recording r = ech_recorder_get(s->local[i].recorder);
        memcpy(g->line.bar + g->line.n, r.bar, r.n * sizeof *r.bar);
        take_in(g, r.n, 0.0);
    }
    if (s->local[0].rank > 0)
        return give(g);
    for (int r = s->n_local; r < g->world; r++)
        ECH_TRY(receive(g, r));
    return ECH_OK;
}

/* --- the line --- */

static void describe(gathering *g, int64_t step)
{
    const ech_session *s = g->s;
    ech_timeline *l = &g->line;
    const int n = snprintf(l->note, sizeof l->note, "step %lld; ", (long long)step);
    char *rest = l->note + n;
    const size_t room = sizeof l->note - (size_t)n;
    if (s->n_local > 1)
        (void)snprintf(rest, room,
                       "%d virtual ranks in one process: they run in turn, on one clock, and a "
                       "wait holds the others' work",
                       g->world);
    else if (g->compared)
        (void)snprintf(rest, room,
                       "clocks of %d ranks are set by round trips to rank 0, off by at most %.3g s",
                       g->compared, g->bound_s);
    else
        (void)snprintf(rest, room, "all ranks read one clock");
}

/* Times from the first begin on; what the ranks lost. */
static void finish(gathering *g, int64_t step)
{
    ech_timeline *l = &g->line;
    double begin = g->record[0].begin_s;
    double end = g->record[0].end_s;
    for (int r = 0; r < g->world; r++) {
        begin = g->record[r].begin_s < begin ? g->record[r].begin_s : begin;
        end = g->record[r].end_s > end ? g->record[r].end_s : end;
        l->lost += (size_t)g->record[r].lost;
    }
    for (size_t i = 0; i < l->n; i++) {
        l->bar[i].begin_s -= begin;
        l->bar[i].end_s -= begin;
    }
    l->step_s = end - begin;
    l->world = g->world;
    l->program = g->s->train.program;
    l->class_of = g->s->train.class_of;
    describe(g, step);
}

static ech_status gather(gathering *g, int64_t step)
{
    ECH_TRY(tell_records(g));
    ECH_TRY(ech_session_agree(g->s, make_room(g)));
    ECH_TRY(take_all(g));
    if (g->s->local[0].rank == 0)
        finish(g, step);
    return ECH_OK;
}

ech_status ech_trace_gather(ech_session *s, int64_t step, ech_timeline *out)
{
    gathering g = {.s = s, .world = s->config.compile.block.layout.world};
    ECH_ASSERT(s->config.records);
    const ech_status st = gather(&g, step);
    free(g.record);
    if (st == ECH_E_COMM || st == ECH_E_TIMEOUT)
        return st; /* a message may still be on its way: what it lies in stays, the job ends */
    ech_comm_destroy(&g.comm);
    if (st < 0 || s->local[0].rank > 0)
        ech_timeline_fini(&g.line);
    if (st >= 0)
        *out = g.line;
    return st;
}
