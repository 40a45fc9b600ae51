#include "program/schedule.h"

#include "program/schedule_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define ECH_SCHEDULE_NAME(name, text) [name] = (text),
    ECH_SCHEDULE_LIST(ECH_SCHEDULE_NAME)
#undef ECH_SCHEDULE_NAME
};

const char *ech_schedule_name(ech_schedule_kind kind)
{
    return names[kind];
}

ech_schedule_kind ech_schedule_kind_of(const char *name)
{
    for (int k = 0; k < ECH_SCHEDULE_FILE; k++)
        if (strcmp(names[k], name) == 0)
            return (ech_schedule_kind)k;
    return ECH_SCHEDULE_FILE;
}

int ech_schedule_place(ech_schedule_kind kind, int ranks, int stage)
{
    if (kind != ECH_SCHEDULE_ZB_V)
        return stage % ranks;
    const int turn = stage % (2 * ranks); /* down the ranks and back up */
    return turn < ranks ? turn : 2 * ranks - 1 - turn;
}

int ech_schedule_chunks(ech_schedule_kind kind, int chunks)
{
    if (kind == ECH_SCHEDULE_ZB_V)
        return 2;
    return kind == ECH_SCHEDULE_INTERLEAVED && chunks > 1 ? chunks : 1;
}

int ech_work_step(ech_work_kind kind)
{
    switch (kind) {
    case ECH_WORK_FORWARD:
        return ECH_STEP_FORWARD;
    case ECH_WORK_WEIGHT:
        return ECH_STEP_WEIGHT;
    default:
        return ECH_STEP_BACKWARD;
    }
}

ech_status ech_schedule_alloc(ech_schedule *s, int ranks, int stages, int cells)
{
    ech_status st;
    *s = (ech_schedule){.ranks = ranks, .stages = stages};
    ECH_TRY_GOTO(st, ech_calloc((size_t)stages, sizeof *s->rank_of, &s->rank_of), fail);
    ECH_TRY_GOTO(st, ech_calloc((size_t)cells, sizeof *s->work, &s->work), fail);
    ECH_TRY_GOTO(st, ech_calloc((size_t)ranks + 1, sizeof *s->first, &s->first), fail);
    return ECH_OK;
fail:
    ech_schedule_fini(s);
    return st;
}

void ech_schedule_fini(ech_schedule *s)
{
    if (!s)
        return;
    free(s->rank_of);
    free(s->work);
    free(s->first);
    free(s->line);
    *s = (ech_schedule){0};
}

ech_status ech_schedule_copy(const ech_schedule *s, ech_schedule *out)
{
    ech_schedule copy;
    const int cells = s->first[s->ranks];
    ECH_TRY(ech_schedule_alloc(&copy, s->ranks, s->stages, cells));
    if (s->line) {
        const ech_status st = ech_calloc((size_t)s->ranks, sizeof *copy.line, &copy.line);
        if (st < 0) {
            ech_schedule_fini(&copy);
            return st;
        }
        memcpy(copy.line, s->line, (size_t)s->ranks * sizeof *copy.line);
    }
    memcpy(copy.name, s->name, sizeof copy.name);
    memcpy(copy.rank_of, s->rank_of, (size_t)s->stages * sizeof *copy.rank_of);
    memcpy(copy.work, s->work, (size_t)cells * sizeof *copy.work);
    memcpy(copy.first, s->first, ((size_t)s->ranks + 1) * sizeof *copy.first);
    copy.micros = s->micros;
    copy.is_split = s->is_split;
    copy.is_forward_only = s->is_forward_only;
    *out = copy;
    return ECH_OK;
}

ech_status ech_schedule_forwards(const ech_schedule *s, ech_schedule *out)
{
    ech_schedule copy;
    ECH_TRY(ech_schedule_copy(s, &copy));
    copy.is_split = false;
    copy.is_forward_only = true;
    int n = 0;
    for (int r = 0; r < s->ranks; r++) {
        for (int i = s->first[r]; i < s->first[r + 1]; i++)
            if (s->work[i].kind == ECH_WORK_FORWARD)
                copy.work[n++] = s->work[i];
        copy.first[r + 1] = n;
    }
    *out = copy;
    return ECH_OK;
}

const char *ech_work_format(const ech_work *w, char *buf, size_t n)
{
    (void)snprintf(buf, n, "%d%c%d", w->stage, "FBIW"[w->kind], w -> micro);
    return buf;
}

int ech_schedule_rank_at(const ech_schedule *s, int i)
{
    int low = 0; /* first[low] <= i < first[high] */
    int high = s->ranks;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (s->first[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

const char *ech_schedule_where(const ech_schedule *s, int i, char *buf, size_t n)
{
    const int rank = ech_schedule_rank_at(s, i);
    const ech_work *w = &s->work[i];
    char cell[40];
    ech_work_format(w, cell, sizeof cell);
    if (s->line)
        (void)snprintf(buf, n, "%s:%d:%d (%s)", s->name, s->line[rank], w->column, cell);
    else
        (void)snprintf(buf, n, "rank %d, cell %d (%s)", rank, w->column, cell);
    return buf;
}

ech_schedule_live ech_schedule_live_of(const ech_schedule *s, int rank)
{
    ech_schedule_live live = {.at = s->first[rank]};
    int saved = 0;
    int deferred = 0;
    for (int i = s->first[rank]; i < s->first[rank + 1]; i++) {
        const ech_work_kind kind = s->work[i].kind;
        saved += kind == ECH_WORK_FORWARD;
        saved -= kind == ECH_WORK_BACKWARD || kind == ECH_WORK_INPUT;
        deferred += kind == ECH_WORK_INPUT;
        deferred -= kind == ECH_WORK_WEIGHT;
        if (saved > live.saved)
            live.saved = saved;
        if (deferred > live.deferred)
            live.deferred = deferred;
        if (saved + deferred > live.both) {
            live.both = saved + deferred;
            live.at = i;
        }
    }
    return live;
}
