/* A table run in time: what a cell needs, when it begins and ends, how much stays idle. */
#include "program/schedule_private.h"

#include <stdlib.h>

static size_t at_of(const ech_schedule *s, int stage, int micro, int step)
{
    return ((size_t)stage * (size_t)s->micros + (size_t)micro) * ECH_N_STEPS + (size_t)step;
}

ech_status ech_schedule_index(const ech_schedule *s, int **at, bool *repeated)
{
    const size_t n = (size_t)s->stages * (size_t)s->micros * ECH_N_STEPS;
    int *index;
    bool twice = false;
    ECH_TRY(ech_calloc(n, sizeof *index, &index));
    for (size_t k = 0; k < n; k++)
        index[k] = -1;
    for (int i = 0; i < s->first[s->ranks]; i++) {
        const ech_work *w = &s->work[i];
        int *cell = &index[at_of(s, w->stage, w->micro, ech_work_step(w->kind))];
        twice |= *cell >= 0;
        *cell = i;
    }
    if (repeated)
        *repeated = twice;
    *at = index;
    return ECH_OK;
}

int ech_schedule_needs(const ech_schedule *s, const int *at, int i, int need[2])
{
    const ech_work *w = &s->work[i];
    int n = 0;
    switch (w->kind) {
    case ECH_WORK_FORWARD:
        if (w->stage > 0)
            need[n++] = at[at_of(s, w->stage - 1, w->micro, ECH_STEP_FORWARD)];
        break;
    case ECH_WORK_WEIGHT:
        need[n++] = at[at_of(s, w->stage, w->micro, ECH_STEP_BACKWARD)];
        break;
    default:
        need[n++] = at[at_of(s, w->stage, w->micro, ECH_STEP_FORWARD)];
        if (w->stage + 1 < s->stages)
            need[n++] = at[at_of(s, w->stage + 1, w->micro, ECH_STEP_BACKWARD)];
    }
    return n;
}

static double cost_of(const ech_schedule_costs *costs, const ech_work *w)
{
    if (costs->each[w->kind])
        return costs->each[w->kind][w->stage];
    return costs->of[w->kind] * (costs->stage ? costs->stage[w->stage] : 1.0);
}

/* When what a cell needs is there, on its rank; below 0: not known yet. */
static double ready_at(const ech_schedule *s, const int *at, const ech_schedule_costs *costs,
                       const double *end, int i)
{
    const int rank = s->rank_of[s->work[i].stage];
    int need[2];
    double ready = 0;
    const int n = ech_schedule_needs(s, at, i, need);
    for (int k = 0; k < n; k++) {
        if (need[k] < 0 || end[need[k]] < 0)
            return -1;
        const bool is_here = s->rank_of[s->work[need[k]].stage] == rank;
        const double there = end[need[k]] + (is_here ? 0 : costs->hop);
        if (there > ready)
            ready = there;
    }
    return ready;
}

/* Ranks that have something new to look at. */
typedef struct wake_list {
    int *rank;   /* owned [ranks]: a stack */
    bool *is_in; /* owned [ranks] */
    int n;
} wake_list;

static void wake(wake_list *l, int rank)
{
    if (l->is_in[rank])
        return;
    l->is_in[rank] = true;
    l->rank[l->n++] = rank;
}

/* The ranks that hold what may follow a cell. */
static void wake_followers(wake_list *l, const ech_schedule *s, const ech_work *w)
{
    if (w->kind == ECH_WORK_FORWARD && w->stage + 1 < s->stages)
        wake(l, s->rank_of[w->stage + 1]);
    if ((w->kind == ECH_WORK_BACKWARD || w->kind == ECH_WORK_INPUT) && w->stage > 0)
        wake(l, s->rank_of[w->stage - 1]);
}

ech_status ech_schedule_walk(const ech_schedule *s, const int *at, const ech_schedule_costs *costs,
                             double *begin, double *end, int *next)
{
    wake_list l = {0};
    double *free_at = NULL; /* [ranks] */
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc((size_t)s->ranks, sizeof *l.rank, &l.rank), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)s->ranks, sizeof *l.is_in, &l.is_in), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)s->ranks, sizeof *free_at, &free_at), done);
    for (int i = 0; i < s->first[s->ranks]; i++)
        begin[i] = end[i] = -1;
    for (int r = s->ranks - 1; r >= 0; r--) {
        next[r] = s->first[r];
        wake(&l, r);
    }
    while (l.n > 0) {
        const int r = l.rank[--l.n];
        l.is_in[r] = false;
        for (; next[r] < s->first[r + 1]; next[r]++) {
            const int i = next[r];
            const double ready = ready_at(s, at, costs, end, i);
            if (ready < 0)
                break;
            begin[i] = ready > free_at[r] ? ready : free_at[r];
            end[i] = free_at[r] = begin[i] + cost_of(costs, &s->work[i]);
            wake_followers(&l, s, &s->work[i]);
        }
    }
done:
    free(l.rank);
    free(l.is_in);
    free(free_at);
    return st;
}

static ech_status find_times(const ech_schedule *s, const ech_schedule_costs *costs, double *begin,
                             double *end, double *last)
{
    int *at = NULL;
    int *next = NULL; /* [ranks] */
    ech_status st;
    *last = 0;
    ECH_TRY_GOTO(st, ech_schedule_index(s, &at, NULL), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)s->ranks, sizeof *next, &next), done);
    ECH_TRY_GOTO(st, ech_schedule_walk(s, at, costs, begin, end, next), done);
    for (int r = 0; r < s->ranks; r++) {
        char where[ECH_WHERE_BYTES];
        if (next[r] < s->first[r + 1]) {
            st = ECH_RAISE(ECH_E_CONFIG, "%s: %s is never reached", s->name,
                           ech_schedule_where(s, next[r], where, sizeof where));
            goto done;
        }
        if (next[r] > s->first[r] && end[next[r] - 1] > *last)
            *last = end[next[r] - 1];
    }
done:
    free(at);
    free(next);
    return st;
}

double ech_schedule_times(const ech_schedule *s, const ech_schedule_costs *costs, double *begin,
                          double *end, ech_status *st)
{
    double last;
    *st = find_times(s, costs, begin, end, &last);
    return *st < 0 ? -1 : last;
}

double ech_schedule_bubble(const ech_schedule *s, const ech_schedule_costs *costs, ech_status *st)
{
    const int cells = s->first[s->ranks];
    double *begin = NULL;
    double *end = NULL;
    double last = 0;
    double work = 0;
    ECH_TRY_GOTO(*st, ech_calloc((size_t)cells, sizeof *begin, &begin), done);
    ECH_TRY_GOTO(*st, ech_calloc((size_t)cells, sizeof *end, &end), done);
    ECH_TRY_GOTO(*st, find_times(s, costs, begin, end, &last), done);
    for (int i = 0; i < cells; i++)
        work += cost_of(costs, &s->work[i]);
done:
    free(begin);
    free(end);
    if (*st < 0)
        return -1;
    return last > 0 ? 1 - work / (s->ranks * last) : 0;
}
