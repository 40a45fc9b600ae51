/** @file plan/fitted.h
 *  The published measurements of the repository's table that the cost model is fitted to, for tests:
 *  bench/fit/published.csv, dense, nothing filled in, step times; and the constants of each fold. */
#ifndef ECH_TESTS_PLAN_FITTED_H
#define ECH_TESTS_PLAN_FITTED_H

#include "check.h"
#include "plan/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FITTED_MAX = 600, FITTED_FAMILIES = 32 };

/** The rows.  Zero-initialise; release with fitted_fini. */
typedef struct fitted {
    ech_validation v;
    ech_calibrate_row row[FITTED_MAX];
    double seconds[FITTED_MAX]; /**< predicted */
    int n;
} fitted;

static inline void fitted_path(const char *name, char *out, size_t room)
{
    const char *source = getenv("ECH_SOURCE");
    (void)snprintf(out, room, "%s/%s", source ? source : ".", name);
}

static inline void fitted_read(fitted *f)
{
    char path[1024];
    fitted_path("bench/fit/published.csv", path, sizeof path);
    assert_ok(ech_validation_read(path, &f->v));
    for (int i = 0; i < f->v.n; i++) {
        const ech_published *p = &f->v.row[i];
        if (p->kind == ECH_MEASURED_PEAK_MEM_GIB || p->is_moe || p->assumed[0] || p->skipped[0] ||
            p->asks_recompute || p->asks_micro || p->asks_chunks)
            continue;
        assert_true(f->n < FITTED_MAX);
        f->row[f->n++] = (ech_calibrate_row){p, 1};
    }
}

static inline void fitted_fini(fitted *f)
{
    ech_validation_fini(&f->v);
}

static inline int fitted_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/** Mean and median of |predicted / measured - 1| over a family (NULL: all). */
static inline void fitted_errors(const fitted *f, const char *family, double *mean, double *median)
{
    double e[FITTED_MAX], sum = 0;
    int n = 0;
    for (int i = 0; i < f->n; i++)
        if (!family || strcmp(f->row[i].row->family, family) == 0) {
            e[n] = fabs(f->seconds[i] / f->row[i].row->measured_s - 1);
            sum += e[n++];
        }
    assert_true(n > 0);
    qsort(e, (size_t)n, sizeof *e, fitted_ascending);
    *mean = sum / n;
    *median = (e[(n - 1) / 2] + e[n / 2]) / 2;
}

/** The constants of the next fold: names of its families, joined by "+"; false at the end.  The first call skips the line
 *  of names. */
static inline bool fitted_fold(FILE *file, char families[64], ech_constants *c)
{
    char line[8192];
    if (ftell(file) == 0 && !fgets(line, sizeof line, file))
        return false;
    if (!fgets(line, sizeof line, file))
        return false;
    char *at = strchr(line, ',');
    assert_non_null(at);
    (void)snprintf(families, 64, "%.*s", (int)(at - line), line);
    for (int i = 0; i < ECH_N_CONSTANTS; i++) {
        assert_int_equal(*at, ',');
        c->value[i] = strtod(at + 1, &at);
    }
    return true;
}

#endif
