/* What is asked of a fit: how it does on what it has not seen, which rows decide a constant, and what
 * no model could do better. */
#include "fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tables of one source, and measurements of one cluster. */
static const char *const together[] = {
    "narayanan-t1+narayanan-t2",
    "korthikanti-t5+korthikanti-mfu",
    "vtrain-multi+vtrain-single",
    "bloom+bloom-prod",
};

static const char *fold_of(const char *family)
{
    for (size_t i = 0; i < sizeof(together) / sizeof(together[0]); i++)
        if (ech_calibrate_names(together[i], family))
            return together[i];
    return family;
}

/* Every other free constant up, the others down, by half of what is believed. */
static ech_constants about_priors(int sign)
{
    ech_constants c = ech_constants_prior();
    for (int i = 0; i < ECH_N_CONSTANTS && sign != 0; i++) {
        const ech_constant_info *a = ech_constant_about((ech_constant)i);
        const double v = c.value[i] * exp(0.5 * a->sigma * sign * (i % 2 ? 1 : -1));
        c.value[i] = fmin(fmax(v, a->low), a->high);
    }
    return c;
}

ech_constants fit_from_priors(const fit_rows *rows, const char *skip, int iterations,
                              double *objective)
{
    const ech_calibrate_spec spec = {rows->row, rows->n, skip, iterations};
    ech_constants best = ech_constants_prior();
    double least = INFINITY;
    for (int sign = -1; sign <= 1; sign++) {
        ech_constants c = about_priors(sign);
        double got = INFINITY;
        fit_must(ech_calibrate(&spec, &c, &got));
        if (got < least) {
            least = got;
            best = c;
        }
    }
    if (objective)
        *objective = least;
    return best;
}

void fit_folds(const fit_rows *rows, const char *path, int iterations, double *seconds)
{
    double *all = fit_room((size_t)rows->n, sizeof(double));
    FILE *f = fit_open(path);
    fprintf(f, "family");
    for (int i = 0; i < ECH_N_CONSTANTS; i++)
        fprintf(f, ",%s", ech_constant_about((ech_constant)i)->name);
    fprintf(f, "\n");
    for (int k = 0; k < rows->n_families; k++) {
        const char *fold = fold_of(rows->family[k]);
        if (strncmp(fold, rows->family[k], strlen(rows->family[k])) != 0)
            continue; /* with its sibling */
        const ech_constants c = fit_from_priors(rows, fold, iterations, NULL);
        fit_must(ech_calibrate_predict(rows->row, rows->n, &c, all));
        fprintf(f, "%s", fold);
        for (int i = 0; i < ECH_N_CONSTANTS; i++)
            fprintf(f, ",%.6g", c.value[i]);
        fprintf(f, "\n");
        for (int i = 0; i < rows->n; i++)
            if (ech_calibrate_names(fold, rows->row[i].row->family))
                seconds[i] = all[i];
    }
    fclose(f);
    free(all);
}

void fit_print_moves(const fit_rows *rows, const ech_constants *c)
{
    double *was = fit_room((size_t)rows->n, sizeof(double));
    double *is = fit_room((size_t)rows->n, sizeof(double));
    fit_must(ech_calibrate_predict(rows->row, rows->n, c, was));
    printf("\nrows of the headline that a constant moves by more than 0.3 %% when it is 20 %% "
           "larger\n");
    for (int i = 0; i < ECH_N_CONSTANTS; i++) {
        const ech_constant_info *a = ech_constant_about((ech_constant)i);
        int n[FIT_FAMILIES] = {0}, all = 0;
        ech_constants more = *c;
        more.value[i] *= 1.2;
        fit_must(ech_calibrate_predict(rows->row, rows->n, &more, is));
        for (int r = 0; r < rows->n_stated; r++)
            for (int k = 0; k < rows->n_families && fabs(is[r] / was[r] - 1) > 0.003; k++)
                if (strcmp(rows->family[k], rows->row[r].row->family) == 0) {
                    n[k]++;
                    all++;
                }
        printf("%-26s %-5s %4d ", a->name, a->sigma > 0 ? "free" : "fixed", all);
        for (int k = 0; k < rows->n_families; k++)
            if (n[k] > 0)
                printf(" %s %d", rows->family[k], n[k]);
        printf("\n");
    }
    free(was);
    free(is);
}

/* Uniform in (0, 1). */
static double draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

/* Normal, by Box and Muller. */
static double normal(uint64_t *state)
{
    const double r = sqrt(-2 * log(draw(state)));
    return r * cos(6.283185307179586 * draw(state));
}

void fit_print_noise(const fit_rows *rows)
{
    enum { DRAWS = 400 };
    static const double noises[] = {0.03, 0.05, 0.1};
    double *seconds = fit_room((size_t)rows->n, sizeof(double));
    printf("\na model without error, measurements with some: rank, regret (means of %d draws)\n",
           DRAWS);
    for (size_t k = 0; k < sizeof(noises) / sizeof(noises[0]); k++) {
        uint64_t state = 20211;
        double rank = 0, regret = 0;
        for (int d = 0; d < DRAWS; d++) {
            for (int i = 0; i < rows->n_stated; i++)
                seconds[i] = rows->row[i].row->measured_s * exp(noises[k] * normal(&state));
            const fit_figures f = fit_figures_of(rows, seconds, NULL);
            rank += f.stats.rank / DRAWS;
            regret += f.stats.regret / DRAWS;
        }
        printf("noise %2.0f %%: rank %.3f, regret %.2f %%\n", 100 * noises[k], rank, 100 * regret);
    }
    free(seconds);
}
