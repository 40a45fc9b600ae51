/* Generators.  Each writes the list of one rank after another; only the V form of few micro-batches
 * is found by letting all ranks run at once. */
#include "program/schedule_private.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* A list that is being written; done: of each chunk's F, B or I, and W, how many. */
typedef struct rank_list {
    ech_schedule *s;
    ech_schedule_kind kind;
    int rank;
    int n;     /* cells of the rank */
    int limit; /* micro-batches from here on are left out */
    int done[2][ECH_N_STEPS];
} rank_list;

static void put(rank_list *l, ech_work_kind kind, int stage, int micro)
{
    if (micro >= l->limit)
        return;
    l->s->work[l->s->first[l->rank] + l->n] = (ech_work){kind, stage, micro, l->n + 1};
    l->n++;
}

/* The next of its kind in a chunk (0 or 1) of the rank. */
static void next(rank_list *l, ech_work_kind kind, int chunk)
{
    const int p = l->s->ranks;
    const int stage = chunk == 0 ? l->rank : 2 * p - 1 - l->rank;
    put(l, kind, stage, l->done[chunk][ech_work_step(kind)]++);
}

static void make_gpipe(rank_list *l)
{
    for (int j = 0; j < l->s->micros; j++)
        put(l, ECH_WORK_FORWARD, l->rank, j);
    for (int j = 0; j < l->s->micros; j++)
        put(l, ECH_WORK_BACKWARD, l->rank, j);
}

/* The k-th forward (or backward) that a rank does: groups of micro-batches go through its chunks one
 * after the other, backwards through the last chunk first. */
static void put_virtual(rank_list *l, ech_work_kind kind, int64_t k, int chunks, int group)
{
    const int m = l->s->micros;
    const int begin = (int)(k / ((int64_t)group * chunks)) * group; /* of the group */
    const int size = m - begin < group ? m - begin : group;
    const int within = (int)(k - (int64_t)begin * chunks);
    const int chunk = within / size;
    const int turn = kind == ECH_WORK_FORWARD ? chunk : chunks - 1 - chunk;
    put(l, kind, turn * l->s->ranks + l->rank, begin + within % size);
}

/* 1F1B, of chunks where there are several: forwards until the first backward can be there, then in
 * turn, then the backwards that are left. */
static void make_1f1b(rank_list *l, int chunks, int group)
{
    const int64_t total = (int64_t)l->s->micros * chunks;
    const int64_t behind = l->s->ranks - 1 - l->rank;
    const int64_t ahead = chunks == 1 ? behind : 2 * behind + (int64_t)(chunks - 1) * group;
    const int64_t warm = ahead < total ? ahead : total;
    for (int64_t k = 0; k < warm; k++)
        put_virtual(l, ECH_WORK_FORWARD, k, chunks, group);
    for (int64_t k = 0; k < total; k++) {
        if (warm + k < total)
            put_virtual(l, ECH_WORK_FORWARD, warm + k, chunks, group);
        put_virtual(l, ECH_WORK_BACKWARD, k, chunks, group);
    }
}

/* F and I as in 1F1B; rank r runs its W r micro-batches behind its I, so that every rank holds as
 * much as the first, and keeps what is left for after the last I, when it would be idle. */
static void make_zb_h1(rank_list *l)
{
    const int m = l->s->micros;
    const int behind = l->s->ranks - 1 - l->rank;
    int w = 0;
    for (int j = 0; j < m && j < behind; j++)
        put(l, ECH_WORK_FORWARD, l->rank, j);
    for (int j = 0; j < m; j++) {
        if (j + behind < m)
            put(l, ECH_WORK_FORWARD, l->rank, j + behind);
        put(l, ECH_WORK_INPUT, l->rank, j);
        if (j >= l->rank && j + 1 < m)
            put(l, ECH_WORK_WEIGHT, l->rank, w++);
    }
    while (w < m)
        put(l, ECH_WORK_WEIGHT, l->rank, w++);
}

static void next_with_weight(rank_list *l, int chunk)
{
    next(l, ECH_WORK_INPUT, chunk);
    next(l, ECH_WORK_WEIGHT, chunk);
}

/* ZB-V (Qi et al. 2023, section 6): a rank fills up with 2p chunks' activations while the first
 * micro-batches go down the V and back; then F I W of both chunks in turn keeps it full; at the end I
 * go first and W fill what would be idle.  Written for at least 2p - 1 micro-batches; with fewer
 * those that do not exist are left out. */
static void make_zb_v(rank_list *l)
{
    const int p = l->s->ranks;
    const int r = l->rank;
    const int m = l->s->micros > 2 * p - 1 ? l->s->micros : 2 * p - 1;
    for (int k = 0; k < 2 * (p - r) - 1; k++)
        next(l, ECH_WORK_FORWARD, 0);
    for (int k = 0; k < r; k++) {
        next(l, ECH_WORK_FORWARD, 1);
        next(l, ECH_WORK_FORWARD, 0);
    }
    for (int k = 0; k < p - r; k++) {
        next(l, ECH_WORK_FORWARD, 1);
        next_with_weight(l, 1);
    }
    for (int k = p; k < m; k++) { /* forwards of chunk 1 from here on */
        if (l->done[0][ECH_STEP_FORWARD] < m)
            next(l, ECH_WORK_FORWARD, 0);
        next_with_weight(l, 0);
        next(l, ECH_WORK_FORWARD, 1);
        next_with_weight(l, 1);
    }
    for (int k = 0; k < r; k++) {
        next(l, ECH_WORK_INPUT, 0);
        next(l, ECH_WORK_INPUT, 1);
    }
    for (int k = 0; k < p - r; k++)
        next_with_weight(l, 0);
    for (int chunk = 1; chunk >= 0; chunk--)
        while (l->done[chunk][ECH_STEP_WEIGHT] < m)
            next(l, ECH_WORK_WEIGHT, chunk);
}

/* The V form where all micro-batches fit into memory at once (m <= p): all ranks step together, each
 * cell one unit; a rank takes the first of I', F', I, F, W that is ready (' : chunk 1). */
typedef struct v_run {
    ech_schedule *s;
    int *done; /* [stages, ECH_N_STEPS] */
} v_run;

static bool v_ready(const v_run *v, ech_work_kind kind, int stage)
{
    const int *own = &v->done[(ptrdiff_t)stage * ECH_N_STEPS];
    const int *before = own - ECH_N_STEPS;
    const int *after = own + ECH_N_STEPS;
    switch (kind) {
    case ECH_WORK_FORWARD:
        return own[ECH_STEP_FORWARD] < (stage == 0 ? v->s->micros : before[ECH_STEP_FORWARD]);
    case ECH_WORK_WEIGHT:
        return own[ECH_STEP_WEIGHT] < own[ECH_STEP_BACKWARD];
    default:
        return own[ECH_STEP_BACKWARD] <
               (stage == v->s->stages - 1 ? own[ECH_STEP_FORWARD] : after[ECH_STEP_BACKWARD]);
    }
}

/* What a rank does next; false: nothing is ready. */
static bool v_choose(const v_run *v, int rank, ech_work *out)
{
    static const struct {
        ech_work_kind kind;
        int chunk;
    } order[] = {{ECH_WORK_INPUT, 1},   {ECH_WORK_FORWARD, 1}, {ECH_WORK_INPUT, 0},
                 {ECH_WORK_FORWARD, 0}, {ECH_WORK_WEIGHT, 0},  {ECH_WORK_WEIGHT, 1}};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        const int stage = order[k].chunk == 0 ? rank : v->s->stages - 1 - rank;
        if (!v_ready(v, order[k].kind, stage))
            continue;
        const int *done = &v->done[(ptrdiff_t)stage * ECH_N_STEPS];
        *out = (ech_work){order[k].kind, stage, done[ech_work_step(order[k].kind)], 0};
        return true;
    }
    return false;
}

static ech_status make_zb_v_few(ech_schedule *s)
{
    const int total = s->stages * s->micros * ECH_N_STEPS;
    const int cells = total / s->ranks; /* of each rank */
    v_run v = {.s = s};
    int *filled = NULL; /* [ranks] */
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc((size_t)s->stages * ECH_N_STEPS, sizeof *v.done, &v.done), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)s->ranks, sizeof *filled, &filled), done);
    for (int left = total; left > 0;) {
        const int before = left;
        for (int r = 0; r < s->ranks; r++) { /* all see what had ended when the step began */
            ech_work *w = &s->work[s->first[r] + filled[r]];
            if (filled[r] < cells && v_choose(&v, r, w))
                w->column = filled[r] + 1;
        }
        for (int r = 0; r < s->ranks; r++) {
            const ech_work *w = &s->work[s->first[r] + filled[r]];
            if (filled[r] == cells || w->column == 0)
                continue;
            v.done[w->stage * ECH_N_STEPS + ech_work_step(w->kind)]++;
            filled[r]++;
            left--;
        }
        ECH_ASSERT(left < before); /* the oldest micro-batch can always go on */
    }
done:
    free(v.done);
    free(filled);
    return st;
}

/* 1F1B of chunks lets whole groups through each chunk, and the last, smaller one only where it covers
 * the way over all ranks and back. */
static ech_status check_interleaved(const ech_schedule_spec *spec, int group)
{
    const int p = spec->ranks;
    const int m = spec->micros;
    const int rest = m % group;
    ECH_CHECK(
        group >= p, ECH_E_ILLEGAL,
        "interleaved: groups of %d micro-batches do not fill %d pipeline ranks; nearest legal "
        "group: %d",
        group, p, p);
    if (rest == 0 || rest >= p)
        return ECH_OK;
    const int below = m - rest;
    const int64_t above = (int64_t)below + p;
    char both[64] = "";
    if (below > 0)
        (void)snprintf(both, sizeof both, " (legal neighbours: %d and %lld)", below,
                       (long long)above);
    const int64_t nearest = below > 0 && m - below <= above - m ? below : above;
    return ECH_RAISE(ECH_E_ILLEGAL,
                     "interleaved: %d micro-batches in groups of %d leave %d, fewer than the %d "
                     "pipeline ranks; nearest legal number: %lld%s",
                     m, group, rest, p, (long long)nearest, both);
}

static ech_status check_spec(const ech_schedule_spec *spec, int chunks)
{
    const char *name = ech_schedule_name(spec->kind);
    ECH_CHECK(spec->kind != ECH_SCHEDULE_FILE, ECH_E_ILLEGAL,
              "a schedule from a file is read, not generated");
    ECH_CHECK(spec->ranks >= 1, ECH_E_ILLEGAL, "%s: %d pipeline ranks; nearest legal number: 1",
              name, spec->ranks);
    ECH_CHECK(spec->micros >= 1, ECH_E_ILLEGAL, "%s: %d micro-batches; nearest legal number: 1",
              name, spec->micros);
    ECH_CHECK(spec->chunks >= 0 && (spec->chunks <= 1 || spec->chunks == chunks), ECH_E_ILLEGAL,
              "%s: %d virtual stages of a rank; nearest legal number: %d", name, spec->chunks,
              spec->chunks < 0 ? 1 : chunks);
    const int64_t stages = (int64_t)spec->ranks * chunks;
    ECH_CHECK(stages <= INT_MAX / 8, ECH_E_ILLEGAL,
              "%s: %d pipeline ranks of %d virtual stages are more than can be listed", name,
              spec->ranks, chunks);
    const int64_t a_micro = stages * ECH_N_STEPS;
    ECH_CHECK(spec->micros <= INT_MAX / a_micro, ECH_E_ILLEGAL,
              "%s: %d micro-batches on %d stages are more cells than can be listed; nearest legal "
              "number: %lld",
              name, spec->micros, (int)stages, (long long)(INT_MAX / a_micro));
    return ECH_OK;
}

static void make_rank(rank_list *l, int chunks, int group)
{
    switch (l->kind) {
    case ECH_SCHEDULE_GPIPE:
        make_gpipe(l);
        break;
    case ECH_SCHEDULE_ZB_H1:
        make_zb_h1(l);
        break;
    case ECH_SCHEDULE_ZB_V:
        make_zb_v(l);
        break;
    default:
        make_1f1b(l, chunks, group);
    }
}

ech_status ech_schedule_make(const ech_schedule_spec *spec, ech_schedule *out)
{
    const int chunks = ech_schedule_chunks(spec->kind, spec->chunks);
    const int group = spec->group ? spec->group : spec->ranks;
    const bool is_split = spec->kind == ECH_SCHEDULE_ZB_H1 || spec->kind == ECH_SCHEDULE_ZB_V;
    ech_schedule s;
    ECH_TRY(check_spec(spec, chunks));
    if (spec->kind == ECH_SCHEDULE_INTERLEAVED && chunks > 1)
        ECH_TRY(check_interleaved(spec, group));
    const int cells = chunks * spec->micros * (is_split ? 3 : 2); /* of a rank */
    ECH_TRY(ech_schedule_alloc(&s, spec->ranks, spec->ranks * chunks, spec->ranks * cells));
    (void)snprintf(s.name, sizeof s.name, "%s", ech_schedule_name(spec->kind));
    s.micros = spec->micros;
    s.is_split = is_split;
    for (int k = 0; k < s.stages; k++)
        s.rank_of[k] = ech_schedule_place(spec->kind, s.ranks, k);
    for (int r = 0; r <= s.ranks; r++)
        s.first[r] = r * cells;
    if (spec->kind == ECH_SCHEDULE_ZB_V && s.micros <= s.ranks) {
        const ech_status st = make_zb_v_few(&s);
        if (st < 0) {
            ech_schedule_fini(&s);
            return st;
        }
        *out = s;
        return ECH_OK;
    }
    for (int r = 0; r < s.ranks; r++) {
        rank_list l = {.s = &s, .kind = spec->kind, .rank = r, .limit = s.micros};
        make_rank(&l, chunks, chunks > 1 ? group : s.micros);
        ECH_ASSERT(l.n == cells);
    }
    *out = s;
    return ECH_OK;
}
