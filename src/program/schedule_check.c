/* Is a table whole (every forward and backward once, on one rank a stage), and does it come to an
 * end?  Every fault is named by its cell; many of a sort are counted. */
#include "program/schedule_private.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_LISTED = 10 /* faults that are named one by one */ };

typedef struct fault_list {
    const ech_schedule *s;
    ech_schedule_faults all;
} fault_list;

bool ech_schedule_fault(ech_schedule_faults *f)
{
    return ++f->n <= N_LISTED;
}

ech_status ech_schedule_raise(ech_schedule_faults *f)
{
    if (f->n > N_LISTED)
        ech_findings_add(&f->findings, "%s: and %lld more", f->name, (long long)(f->n - N_LISTED));
    const ech_status st = ech_findings_raise(&f->findings, ECH_E_CONFIG);
    ech_findings_fini(&f->findings);
    return st;
}

/* "schedule.csv:2" or "rank 1": where a stage's cells belong. */
static const char *line_of(const ech_schedule *s, int stage, char *buf, size_t n)
{
    const int rank = s->rank_of[stage];
    if (rank < 0)
        (void)snprintf(buf, n, "%s", s->name);
    else if (s->line)
        (void)snprintf(buf, n, "%s:%d", s->name, s->line[rank]);
    else
        (void)snprintf(buf, n, "rank %d", rank);
    return buf;
}

static void add_missing(fault_list *f, ech_work_kind kind, int stage, int micro)
{
    const ech_work w = {.kind = kind, .stage = stage, .micro = micro};
    char where[ECH_WHERE_BYTES];
    char cell[40];
    if (ech_schedule_fault(&f->all))
        ech_findings_add(&f->all.findings, "%s: %s is missing",
                         line_of(f->s, stage, where, sizeof where),
                         ech_work_format(&w, cell, sizeof cell));
}

static void add_second(fault_list *f, int i, int before, const char *what)
{
    char where[ECH_WHERE_BYTES];
    char other[ECH_WHERE_BYTES];
    if (ech_schedule_fault(&f->all))
        ech_findings_add(&f->all.findings, "%s %s %s",
                         ech_schedule_where(f->s, i, where, sizeof where), what,
                         ech_schedule_where(f->s, before, other, sizeof other));
}

/* Every cell on the rank of its stage. */
static void check_ranks(fault_list *f)
{
    const ech_schedule *s = f->s;
    for (int r = 0; r < s->ranks; r++)
        for (int i = s->first[r]; i < s->first[r + 1]; i++) {
            const int stage = s->work[i].stage;
            char where[ECH_WHERE_BYTES];
            char home[ECH_WHERE_BYTES];
            if (s->rank_of[stage] != r && ech_schedule_fault(&f->all))
                ech_findings_add(&f->all.findings, "%s: stage %d stands in another line too, %s",
                                 ech_schedule_where(s, i, where, sizeof where), stage,
                                 line_of(s, stage, home, sizeof home));
        }
}

/* Order of cells by stage, micro-batch, kind and place. */
typedef struct sort_key {
    int64_t pair; /* stage * micros + micro */
    int kind, cell;
} sort_key;

static int compare_keys(const void *a, const void *b)
{
    const sort_key *x = a;
    const sort_key *y = b;
    if (x->pair != y->pair)
        return x->pair < y->pair ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return x->cell < y->cell ? -1 : x->cell > y->cell;
}

/* What should be there of the pairs from..to - 1, of which there is no cell at all. */
static void add_absent(fault_list *f, int64_t from, int64_t to)
{
    const ech_schedule *s = f->s;
    const int each = s->is_forward_only ? 1 : 2;
    int64_t pair = from;
    for (; pair < to && f->all.n < N_LISTED; pair++) {
        const int stage = (int)(pair / s->micros);
        const int micro = (int)(pair % s->micros);
        add_missing(f, ECH_WORK_FORWARD, stage, micro);
        if (!s->is_forward_only)
            add_missing(f, s->is_split ? ECH_WORK_INPUT : ECH_WORK_BACKWARD, stage, micro);
    }
    f->all.n += (to - pair) * each;
}

/* The cells key[0 .. n) of one pair. */
static void check_pair(fault_list *f, const sort_key *key, int n)
{
    const ech_schedule *s = f->s;
    int first[ECH_N_WORK_KINDS] = {-1, -1, -1, -1};
    for (int k = 0; k < n; k++) {
        const int kind = key[k].kind;
        if (first[kind] >= 0)
            add_second(f, key[k].cell, first[kind], "is there already:");
        else
            first[kind] = key[k].cell;
    }
    const ech_work *w = &s->work[key[0].cell];
    const int *has = first;
    const bool is_backward = has[ECH_WORK_BACKWARD] >= 0 || has[ECH_WORK_INPUT] >= 0;
    if (has[ECH_WORK_FORWARD] < 0)
        add_missing(f, ECH_WORK_FORWARD, w->stage, w->micro);
    if (s->is_forward_only)
        return;
    if (!is_backward) {
        const bool is_split = has[ECH_WORK_WEIGHT] >= 0 || s->is_split;
        add_missing(f, is_split ? ECH_WORK_INPUT : ECH_WORK_BACKWARD, w->stage, w->micro);
    }
    if (has[ECH_WORK_BACKWARD] >= 0 && has[ECH_WORK_INPUT] >= 0)
        add_second(f, has[ECH_WORK_INPUT], has[ECH_WORK_BACKWARD],
                   "would be the second backward, after");
    else if (has[ECH_WORK_BACKWARD] >= 0 && has[ECH_WORK_WEIGHT] >= 0)
        add_second(f, has[ECH_WORK_WEIGHT], has[ECH_WORK_BACKWARD], "is a part of");
    if (has[ECH_WORK_INPUT] >= 0 && has[ECH_WORK_WEIGHT] < 0)
        add_missing(f, ECH_WORK_WEIGHT, w->stage, w->micro);
}

/* All that is missing or there twice.  Takes memory in proportion to the cells that are there, not
 * to the numbers in them. */
static ech_status check_whole(fault_list *f)
{
    const ech_schedule *s = f->s;
    const int cells = s->first[s->ranks];
    sort_key *key;
    int64_t expected = 0;
    ECH_TRY(ech_calloc((size_t)cells, sizeof *key, &key));
    for (int i = 0; i < cells; i++) {
        const ech_work *w = &s->work[i];
        key[i] = (sort_key){(int64_t)w->stage * s->micros + w->micro, (int)w->kind, i};
    }
    qsort(key, (size_t)cells, sizeof *key, compare_keys);
    for (int i = 0; i < cells;) {
        int n = 1;
        while (i + n < cells && key[i + n].pair == key[i].pair)
            n++;
        add_absent(f, expected, key[i].pair);
        check_pair(f, &key[i], n);
        expected = key[i].pair + 1;
        i += n;
    }
    add_absent(f, expected, (int64_t)s->stages * s->micros);
    free(key);
    return ECH_OK;
}

/* A forward-only table has nothing but forwards. */
static void check_forward_only(fault_list *f)
{
    const ech_schedule *s = f->s;
    char where[ECH_WHERE_BYTES];
    for (int i = 0; s->is_forward_only && i < s->first[s->ranks]; i++)
        if (s->work[i].kind != ECH_WORK_FORWARD && ech_schedule_fault(&f->all))
            ech_findings_add(&f->all.findings, "%s: the table has forwards alone",
                             ech_schedule_where(s, i, where, sizeof where));
}

/* Does each step stand where it should, once: counts alone, in one pass. */
static ech_status is_whole(const ech_schedule *s, int **at, bool *whole)
{
    const int cells = s->first[s->ranks];
    const int64_t pairs = (int64_t)s->stages * s->micros;
    int64_t count[ECH_N_WORK_KINDS] = {0};
    bool repeated;
    *whole = false;
    for (int i = 0; i < cells; i++)
        count[s->work[i].kind]++;
    const int64_t backwards = count[ECH_WORK_BACKWARD] + count[ECH_WORK_INPUT];
    if (count[ECH_WORK_FORWARD] != pairs || count[ECH_WORK_INPUT] != count[ECH_WORK_WEIGHT] ||
        backwards != (s->is_forward_only ? 0 : pairs))
        return ECH_OK;
    ECH_TRY(ech_schedule_index(s, at, &repeated));
    *whole = !repeated;
    for (int i = 0; i < cells && *whole; i++) {
        int need[2];
        const int n = ech_schedule_needs(s, *at, i, need);
        for (int k = 0; k < n; k++)
            *whole = *whole && need[k] >= 0;
        if (s->work[i].kind == ECH_WORK_WEIGHT)
            *whole = *whole && s->work[need[0]].kind == ECH_WORK_INPUT;
    }
    return ECH_OK;
}

/* The first cell that cell `i` needs and that has not come. */
static int waits_for(const ech_schedule *s, const int *at, const double *end, int i)
{
    int need[2];
    const int n = ech_schedule_needs(s, at, i, need);
    for (int k = 0; k < n; k++)
        if (end[need[k]] < 0)
            return need[k];
    return -1;
}

/* Which ranks never come to the end of their lists, where they stand and what they wait for. */
static ech_status check_end(fault_list *f, const int *at)
{
    static const ech_schedule_costs unit = {.of = {1, 1, 1, 1}};
    const ech_schedule *s = f->s;
    const size_t cells = (size_t)s->first[s->ranks];
    double *begin = NULL;
    double *end = NULL;
    int *next = NULL;
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc(cells, sizeof *begin, &begin), done);
    ECH_TRY_GOTO(st, ech_calloc(cells, sizeof *end, &end), done);
    ECH_TRY_GOTO(st, ech_calloc((size_t)s->ranks, sizeof *next, &next), done);
    ECH_TRY_GOTO(st, ech_schedule_walk(s, at, &unit, begin, end, next), done);
    for (int r = 0; r < s->ranks; r++)
        if (next[r] < s->first[r + 1])
            add_second(f, next[r], waits_for(s, at, end, next[r]), "waits for ever for");
done:
    free(begin);
    free(end);
    free(next);
    return st;
}

ech_status ech_schedule_check(const ech_schedule *s)
{
    fault_list f = {.s = s, .all = {.name = s->name}};
    int *at = NULL;
    bool whole;
    ech_status st;
    check_ranks(&f);
    check_forward_only(&f);
    ECH_TRY_GOTO(st, is_whole(s, &at, &whole), done);
    if (whole && f.all.n == 0)
        ECH_TRY_GOTO(st, check_end(&f, at), done);
    else if (!whole)
        ECH_TRY_GOTO(st, check_whole(&f), done);
    st = ech_schedule_raise(&f.all);
done:
    free(at);
    ech_findings_fini(&f.all.findings);
    return st;
}
