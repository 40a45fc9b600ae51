#include "fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fit_must(ech_status st)
{
    if (st >= 0)
        return;
    fprintf(stderr, "bench_fit: %s\n", ech_error_message());
    exit(1);
}

void *fit_room(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p) {
        fprintf(stderr, "bench_fit: out of memory\n");
        exit(1);
    }
    return p;
}

FILE *fit_open(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) {
        fprintf(stderr, "bench_fit: %s: cannot be written\n", path);
        exit(1);
    }
    return f;
}

void fit_rows_fini(fit_rows *rows)
{
    free(rows->row);
    *rows = (fit_rows){0};
}

fit_figures fit_figures_of(const fit_rows *rows, const double *seconds, const char *family)
{
    const ech_published **row = fit_room((size_t)rows->n, sizeof *row);
    double *s = fit_room((size_t)rows->n, sizeof *s);
    fit_figures f = {0};
    double worst = 0;
    int n = 0;
    for (int i = 0; i < rows->n_stated; i++) {
        const ech_published *p = rows->row[i].row;
        if (family && strcmp(p->family, family) != 0)
            continue;
        const double e = fabs(seconds[i] / p->measured_s - 1);
        if (e > worst)
            f.worst_row = p;
        worst = fmax(worst, e);
        row[n] = p;
        s[n++] = seconds[i];
    }
    fit_must(ech_rows_count(row, s, n, &f.stats));
    free(row);
    free(s);
    return f;
}
