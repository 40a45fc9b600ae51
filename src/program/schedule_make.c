/* Generators.  Each writes the list of one rank after another; only the V form of few micro-batches
 * is found by letting all ranks run at once. */
#include "program/schedule_private.h"
#include "program/schedule_v.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* A list that is being written. */
typedef struct rank_list {
    ech_schedule *s;
    ech_schedule_kind kind;
    int rank;
    int n;     /* cells of the rank */
    int limit; /* micro-batches from here on are left out */
} rank_list;

static void put(rank_list *l, ech_work_kind kind, int stage, int micro)
{
    if (micro >= l->limit)
        return;
    l->s->work[l->s->first[l->rank] + l->n] = (ech_work){kind, stage, micro, l->n + 1};
    l->n++;
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

/* ZB-V; micro-batches that do not exist are left out. */
static void make_zb_v(rank_list *l)
{
    const int p = l->s->ranks;
    ech_v_cursor at = ech_v_begin(p, l->rank, l->limit);
    ech_v_cell cell;
    while (ech_v_next(&at, &cell))
        put(l, ech_v_kind(cell.slot), ech_v_stage(p, l->rank, cell.slot), cell.micro);
}

static ech_status make_zb_v_few(ech_schedule *s)
{
    const int cells = s->micros * ECH_N_V_SLOTS; /* of each rank */
    const int p = s->ranks;
    ech_v_few v = {.ranks = p, .micros = s->micros};
    ech_v_cell *cell = NULL; /* [ranks] */
    int *filled = NULL;      /* [ranks] */
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc((size_t)p * ECH_N_V_SLOTS, sizeof *v.done, &v.done), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)p, sizeof *filled, &filled), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)p, sizeof *cell, &cell), done);
    for (int left = cells * p; left > 0;) {
        const int taken = ech_v_few_step(&v, cell);
        ECH_ASSERT(taken > 0); /* the oldest micro-batch can always go on */
        left -= taken;
        for (int r = 0; r < p; r++) {
            if (cell[r].slot == ECH_N_V_SLOTS)
                continue;
            const int n = filled[r]++;
            s->work[s->first[r] + n] = (ech_work){
                ech_v_kind(cell[r].slot), ech_v_stage(p, r, cell[r].slot), cell[r].micro, n + 1};
        }
    }
done:
    free(v.done);
    free(filled);
    free(cell);
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
