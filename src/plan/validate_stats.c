/* Statistics of priced rows, by family and in total. */
#include "base/checked.h"
#include "plan/validate_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One layout of a group: published more than once, its measurements' mean. */
typedef struct layout_time {
    const ech_published *row;
    double measured, predicted;
    int n;
} layout_time;

/* A row and what it is predicted to take. */
typedef struct priced_row {
    const ech_published *row;
    double predicted_s;
} priced_row;

/* A set of rows of a table. */
typedef struct row_set {
    priced_row *row; /* owned [n] */
    int n;
    double *error;       /* owned [n]: room for |e| */
    layout_time *layout; /* owned [n]: room for a group */
} row_set;

static bool is_memory(const ech_published *p)
{
    return p->kind == ECH_MEASURED_PEAK_MEM_GIB;
}

static bool is_stated(const ech_published *p)
{
    return p->assumed[0] == '\0';
}

static double error_of(const priced_row *r)
{
    const ech_published *p = r->row;
    return is_memory(p) ? p->predicted / p->measured - 1.0 : r->predicted_s / p->measured_s - 1.0;
}

/* --- totals --- */

static bool is_time(const ech_published *p)
{
    return !is_memory(p);
}

static bool is_dense_stated(const ech_published *p)
{
    return is_time(p) && !p->skipped[0] && !p->is_moe && is_stated(p);
}

static bool is_dense_assumed(const ech_published *p)
{
    return is_time(p) && !p->skipped[0] && !p->is_moe && !is_stated(p);
}

static bool is_moe_time(const ech_published *p)
{
    return is_time(p) && p->is_moe;
}

static bool is_allocated(const ech_published *p)
{
    return is_memory(p) && p->is_allocated;
}

static bool is_other_memory(const ech_published *p)
{
    return is_memory(p) && !p->is_allocated;
}

static const struct {
    const char *name;
    bool (*has)(const ech_published *p);
} totals[] = {
    {"dense stated", is_dense_stated},
    {"dense assumed", is_dense_assumed},
    {"moe", is_moe_time},
    {"all", is_time},
    {"memory allocated", is_allocated},
    {"memory", is_other_memory},
};

enum { N_TOTALS = sizeof totals / sizeof totals[0] };

/* --- errors --- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void count_errors(row_set *set, ech_family_stats *s)
{
    double sum = 0.0, signed_sum = 0.0;
    for (int i = 0; i < set->n; i++) {
        const double e = error_of(&set->row[i]);
        set->error[i] = fabs(e);
        sum += fabs(e);
        signed_sum += e;
    }
    if (set->n == 0) {
        s->mape = s->median = s->p90 = s->worst = s->bias = NAN;
        return;
    }
    qsort(set->error, (size_t)set->n, sizeof *set->error, by_size);
    const int half = set->n / 2;
    s->mape = sum / set->n;
    s->bias = signed_sum / set->n;
    s->median = set->n % 2 ? set->error[half] : 0.5 * (set->error[half - 1] + set->error[half]);
    s->p90 = set->error[(9 * set->n + 9) / 10 - 1];
    s->worst = set->error[set->n - 1];
}

/* --- groups --- */

/* Rank of a layout among n by one of its times, equals sharing theirs, less the mean rank. */
static double rank_of(const layout_time *t, int n, int i, bool by_predicted)
{
    double below = 0.0;
    for (int k = 0; k < n; k++) {
        const double other = by_predicted ? t[k].predicted : t[k].measured;
        const double mine = by_predicted ? t[i].predicted : t[i].measured;
        below += other < mine ? 1.0 : other == mine && k != i ? 0.5 : 0.0;
    }
    return below - 0.5 * (n - 1);
}

/* Spearman's rank correlation: Pearson's of the ranks; NaN where all are equal. */
static double spearman(const layout_time *t, int n)
{
    double xy = 0.0, xx = 0.0, yy = 0.0;
    for (int i = 0; i < n; i++) {
        const double x = rank_of(t, n, i, true), y = rank_of(t, n, i, false);
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    return xx > 0.0 && yy > 0.0 ? xy / sqrt(xx * yy) : NAN;
}

static double regret_of(const layout_time *t, int n)
{
    int chosen = 0;
    double best = t[0].measured;
    for (int i = 1; i < n; i++) {
        if (t[i].predicted < t[chosen].predicted)
            chosen = i;
        best = fmin(best, t[i].measured);
    }
    return t[chosen].measured / best - 1.0;
}

static bool is_same_layout(const ech_published *a, const ech_published *b)
{
    const ech_point *p = &a->point, *q = &b->point;
    return p->tp == q->tp && p->pp == q->pp && p->vpp == q->vpp && p->dp == q->dp &&
           p->cp == q->cp && p->ep == q->ep && p->micro == q->micro &&
           p->zero_stage == q->zero_stage && p->zero_group == q->zero_group &&
           p->recompute == q->recompute && p->recompute_layers == q->recompute_layers &&
           p->schedule == q->schedule && p->reshard_after_forward == q->reshard_after_forward &&
           a->job.is_compiled == b->job.is_compiled && a->job.overlap == b->job.overlap;
}

/* The layouts among n rows of one group.  @return how many */
static int list_layouts(const priced_row *row, int n, layout_time *t)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < found && !is_same_layout(row[i].row, t[k].row))
            k++;
        if (k == found)
            t[found++] = (layout_time){.row = row[i].row, .predicted = row[i].predicted_s};
        t[k].measured = (t[k].measured * t[k].n + row[i].row->measured_s) / (t[k].n + 1);
        t[k].n++;
    }
    return found;
}

static int by_group(const void *a, const void *b)
{
    const ech_published *x = ((const priced_row *)a)->row, *y = ((const priced_row *)b)->row;
    const int order = strcmp(x->group, y->group);
    return order ? order : (x > y) - (x < y); /* rows stand in one array */
}

static void count_groups(row_set *set, ech_family_stats *s)
{
    double rank = 0.0, regret = 0.0;
    int ranked = 0;
    qsort(set->row, (size_t)set->n, sizeof *set->row, by_group);
    for (int first = 0, end; first < set->n; first = end) {
        for (end = first + 1;
             end < set->n && strcmp(set->row[first].row->group, set->row[end].row->group) == 0;
             end++) {
        }
        if (is_memory(set->row[first].row) || !set->row[first].row->group[0])
            continue;
        const int n = list_layouts(&set->row[first], end - first, set->layout);
        if (n < ECH_GROUP_LAYOUTS)
            continue;
        const double r = spearman(set->layout, n);
        regret += regret_of(set->layout, n);
        s->n_groups++;
        if (!isnan(r)) {
            rank += n * r;
            ranked += n;
        }
    }
    s->rank = ranked ? rank / ranked : NAN;
    s->regret = s->n_groups ? regret / s->n_groups : NAN;
}

/* --- sets --- */

/* Take a row into a set, or count why it has no error. */
static void add_row(row_set *set, const ech_published *p, ech_family_stats *s)
{
    if (p->skipped[0]) {
        s->n_skipped++;
        return;
    }
    if (p->is_over) {
        s->false_fits += p->fit == ECH_FIT_YES ? 1 : 0;
        return;
    }
    s->false_misfits += p->fit == ECH_FIT_NO && !p->is_part ? 1 : 0; /* a part may be computed */
    s->n_assumed += is_stated(p) ? 0 : 1;
    set->row[set->n++] = (priced_row){p, p->predicted_s};
}

static ech_status reserve(row_set *set, int n)
{
    const size_t room = (size_t)n + 1;
    ECH_TRY(ech_calloc(room, sizeof *set->row, &set->row));
    ECH_TRY(ech_calloc(room, sizeof *set->error, &set->error));
    return ech_calloc(room, sizeof *set->layout, &set->layout);
}

static void release(row_set *set)
{
    free(set->row);
    free(set->error);
    free(set->layout);
    *set = (row_set){0};
}

static void count(row_set *set, ech_family_stats *s)
{
    s->n = set->n;
    count_errors(set, s);
    count_groups(set, s);
    set->n = 0;
}

/* "simumax", "simumax-mem". */
static void family_name(const ech_published *p, char *name, size_t n)
{
    const bool is_told = strstr(p->family, "-mem") || strstr(p->family, "-oom");
    (void)snprintf(name, n, "%.18s%s", p->family, is_memory(p) && !is_told ? "-mem" : "");
}

/* One more set of that name. */
static ech_status add_family(ech_validation *v, size_t *capacity, const char *name)
{
    ECH_TRY(ech_grow(&v->family, (size_t)v->n_families, capacity, sizeof *v->family));
    ech_family_stats *s = &v->family[v->n_families++];
    *s = (ech_family_stats){0};
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    return ECH_OK;
}

/* Names of the families, in the order of the table, and of the totals: once. */
static ech_status list_families(ech_validation *v)
{
    size_t capacity = 0;
    for (int i = 0; i < v->n; i++) {
        char name[24];
        int k = 0;
        family_name(&v->row[i], name, sizeof name);
        while (k < v->n_families && strcmp(v->family[k].name, name) != 0)
            k++;
        if (k == v->n_families)
            ECH_TRY(add_family(v, &capacity, name));
        v->row[i].family_index = k;
    }
    for (int t = 0; t < N_TOTALS; t++)
        ECH_TRY(add_family(v, &capacity, totals[t].name));
    v->n_totals = N_TOTALS;
    return ECH_OK;
}

static void count_all(ech_validation *v, row_set *set)
{
    for (int k = 0; k < v->n_families; k++) {
        ech_family_stats s = {0};
        const int total = k - (v->n_families - N_TOTALS);
        memcpy(s.name, v->family[k].name, sizeof s.name);
        for (int i = 0; i < v->n; i++) {
            const ech_published *p = &v->row[i];
            if (total >= 0 ? totals[total].has(p) : p->family_index == k)
                add_row(set, p, &s);
        }
        count(set, &s);
        v->family[k] = s;
    }
}

ech_status ech_validation_count(ech_validation *v)
{
    row_set set = {0};
    if (v->n_totals == 0)
        ECH_TRY(list_families(v));
    ech_status st = reserve(&set, v->n);
    if (st >= 0)
        count_all(v, &set);
    release(&set);
    return st;
}

ech_status ech_rows_count(const ech_published *const *row, const double *seconds, int n,
                          ech_family_stats *out)
{
    row_set set = {0};
    ech_family_stats s = {0};
    ech_status st = reserve(&set, n);
    if (st >= 0) {
        for (int i = 0; i < n; i++) {
            set.row[set.n++] = (priced_row){row[i], seconds[i]};
            s.n_assumed += is_stated(row[i]) ? 0 : 1;
        }
        count(&set, &s);
        *out = s;
    }
    release(&set);
    return st;
}
