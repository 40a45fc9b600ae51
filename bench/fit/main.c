/* Fits the cost model's constants to a table of published measurements:
 *     bench_fit TABLE.csv [--keep] [--folds FILE] [--inc FILE] [--json FILE] [--rows] [--parts]
 *                         [--studies] [--hint WEIGHT] [--only FAMILIES] [--iterations N]
 * --keep      the built-in table is judged, not fitted
 * --folds     each family is left out in turn with what is of the same source, and predicted by a fit
 *             from the priors; the constants of each fold to FILE
 * --studies   which rows decide each constant, and what noise does to a model without error
 * --inc       the fit as C, for src/price/constants_fitted.inc
 * --hint      weight of rows with something filled in (0.05) beside those of the headline (1) */
#include "fit.h"

#include "price/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *table, *inc, *only, *folds, *json;
    bool rows, parts, keep, studies;
    int iterations;
    double hint;
} options;

/* --- what is fitted to --- */

static bool is_time(const ech_published *p)
{
    return p->kind != ECH_MEASURED_PEAK_MEM_GIB && p->skipped[0] == '\0';
}

static bool is_headline(const ech_published *p)
{
    return is_time(p) && !p->is_moe && p->assumed[0] == '\0';
}

/* Layers recomputed in full because a memory model says so are a guess too many. */
static bool is_hint(const ech_published *p)
{
    return is_time(p) && !is_headline(p) && p->job.tuning == ECH_TUNING_FULL &&
           p->point.recompute != ECH_RECOMPUTE_FULL;
}

/* Of the layouts that a row can mean the fastest. */
static void take_option(ech_published *p)
{
    ech_calibrate_row row = {.row = p};
    double best = INFINITY;
    for (int i = 0; i < p->n_options; i++) {
        const ech_point was = p->point;
        double s;
        p->point = p->option[i];
        fit_must(ech_calibrate_predict(&row, 1, ech_constants_builtin(), &s));
        if (s < best)
            best = s;
        else
            p->point = was;
    }
}

static void add_family(fit_rows *rows, const char *family)
{
    for (int i = 0; i < rows->n_families; i++)
        if (strcmp(rows->family[i], family) == 0)
            return;
    if (rows->n_families < FIT_FAMILIES)
        rows->family[rows->n_families++] = family;
}

static void choose(ech_validation *v, const options *o, fit_rows *rows)
{
    rows->row = calloc((size_t)(v->n > 0 ? v->n : 0) + 1, sizeof(*rows->row));
    if (!rows->row)
        exit(1);
    for (int i = 0; i < v->n; i++)
        take_option(&v->row[i]);
    for (int i = 0; i < v->n; i++)
        if (is_headline(&v->row[i])) {
            const bool counts = o->only == NULL || strstr(o->only, v->row[i].family);
            rows->row[rows->n++] = (ech_calibrate_row){&v->row[i], counts ? 1 : 0};
            add_family(rows, v->row[i].family);
        }
    rows->n_stated = rows->n;
    for (int i = 0; i < v->n; i++)
        if (is_hint(&v->row[i]) && o->only == NULL)
            rows->row[rows->n++] = (ech_calibrate_row){&v->row[i], o->hint};
}

/* --- report --- */

static void print_rows(const char *what, const fit_rows *rows, const double *seconds)
{
    for (int i = 0; i < rows->n; i++) {
        const ech_published *p = rows->row[i].row;
        printf("%s %-20s measured %9.4f predicted %9.4f %+6.1f%%\n", what, p->id, p->measured_s,
               seconds[i], 100 * (seconds[i] / p->measured_s - 1));
    }
}

/* What the rows' seconds are made of. */
static void print_parts(const fit_rows *rows, const ech_constants *c)
{
    ech_pricer *pricer = NULL;
    fit_must(ech_pricer_create(&rows->row[0].row->job, c, &pricer));
    for (int i = 0; i < rows->n; i++) {
        const ech_published *p = rows->row[i].row;
        ech_step_price s;
        ech_pricer_rebind(pricer, &p->job, c);
        ech_pricer_step(pricer, &p->point, NULL, &s);
        printf(
            "parts %-18s step %8.4f work %8.4f again %7.4f bubble %7.4f update %6.4f fixed %6.4f",
            p->id, s.step_s, s.compute_s, s.recompute_s, s.bubble_s, s.optimizer_s, s.fixed_s);
        for (int a = 0; a < ECH_N_AXES; a++)
            if (s.exposed_s[a] > 0)
                printf(" %s %6.4f", ech_axis_name((ech_axis)a), s.exposed_s[a]);
        printf("\n");
    }
    ech_pricer_destroy(&pricer);
}

static void print_line(const char *name, const fit_figures *f)
{
    const ech_family_stats *s = &f->stats;
    printf("%-18s %4d %6.1f %6.1f %6.1f %6.1f %+6.1f  %-18s", name, s->n, 100 * s->mape,
           100 * s->median, 100 * s->p90, 100 * s->worst, 100 * s->bias,
           f->worst_row ? f->worst_row->id : "");
    if (s->n_groups > 0)
        printf(" %3d %6.2f %6.3f", s->n_groups, 100 * s->regret, s->rank);
    printf("\n");
}

static void print_figures(const char *title, const fit_rows *rows, const double *seconds)
{
    printf("\n%s (%%)\n%-18s %4s %6s %6s %6s %6s %6s  %-18s %3s %6s %6s\n", title, "family", "n",
           "MAPE", "median", "P90", "worst", "bias", "worst row", "grp", "regret", "rank");
    for (int i = 0; i < rows->n_families; i++) {
        const fit_figures f = fit_figures_of(rows, seconds, rows->family[i]);
        print_line(rows->family[i], &f);
    }
    const fit_figures f = fit_figures_of(rows, seconds, NULL);
    print_line("all", &f);
}

static void json_figures(FILE *to, const char *key, const fit_rows *rows, const double *seconds)
{
    fprintf(to, "  \"%s\": {", key);
    for (int i = 0; i <= rows->n_families; i++) {
        const char *family = i < rows->n_families ? rows->family[i] : NULL;
        const fit_figures f = fit_figures_of(rows, seconds, family);
        const ech_family_stats *s = &f.stats;
        fprintf(to,
                "%s\n    \"%s\": {\"n\": %d, \"mape\": %.5f, \"median\": %.5f, \"p90\": %.5f, "
                "\"worst\": %.5f, \"bias\": %.5f",
                i ? "," : "", family ? family : "all", s->n, s->mape, s->median, s->p90, s->worst,
                s->bias);
        if (s->n_groups > 0)
            fprintf(to, ", \"groups\": %d, \"regret\": %.5f, \"rank\": %.5f", s->n_groups,
                    s->regret, s->rank);
        fprintf(to, "}");
    }
    fprintf(to, "\n  }");
}

/* --- constants --- */

static const char *const ids[] = {
#define FIT_ID(id, name, unit, prior, sigma, low, high, source) [id] = #id,
    ECH_CONSTANT_LIST(FIT_ID)
#undef FIT_ID
};

static void write_inc(const char *path, const ech_constants *c)
{
    FILE *f = fit_open(path);
    fprintf(f, "/* Written by bench/fit/run: fitted where free, else the prior. */\n");
    for (int i = 0; i < ECH_N_CONSTANTS; i++)
        fprintf(f, "[%s] = %.6g,\n", ids[i], c->value[i]);
    fclose(f);
}

static void print_constants(const ech_constants *c)
{
    printf("\n%-26s %12s %12s %-4s %8s\n", "constant", "value", "prior", "unit", "sigmas");
    for (int i = 0; i < ECH_N_CONSTANTS; i++) {
        const ech_constant_info *a = ech_constant_about((ech_constant)i);
        printf("%-26s %12.5g %12.5g %-4s", a->name, c->value[i], a->prior, a->unit);
        if (a->sigma > 0)
            printf(" %8.2f\n", log(c->value[i] / a->prior) / a->sigma);
        else
            printf("    fixed\n");
    }
}

static options read_options(int argc, char **argv)
{
    options o = {.iterations = 100, .hint = 0.05};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        const struct {
            const char *name;
            const char **to;
        } words[] = {
            {"--inc", &o.inc}, {"--only", &o.only}, {"--folds", &o.folds}, {"--json", &o.json}};
        bool is_word = false;
        for (int k = 0; k < 4 && !is_word; k++)
            if (strcmp(argv[i], words[k].name) == 0) {
                *words[k].to = value;
                is_word = true;
            }
        o.rows = o.rows || strcmp(argv[i], "--rows") == 0;
        o.parts = o.parts || strcmp(argv[i], "--parts") == 0;
        o.studies = o.studies || strcmp(argv[i], "--studies") == 0;
        o.keep = o.keep || strcmp(argv[i], "--keep") == 0;
        if (strcmp(argv[i], "--hint") == 0)
            o.hint = atof(value);
        else if (strcmp(argv[i], "--iterations") == 0)
            o.iterations = atoi(value);
        else if (!is_word && argv[i][0] != '-')
            o.table = argv[i];
        if (is_word || strcmp(argv[i], "--hint") == 0 || strcmp(argv[i], "--iterations") == 0)
            i++;
    }
    return o;
}

static void report(const fit_rows *rows, const options *o, const ech_constants *c)
{
    double *seconds = calloc((size_t)rows->n + 1, sizeof(double));
    FILE *json = o->json ? fit_open(o->json) : NULL;
    if (!seconds)
        exit(1);
    fit_must(ech_calibrate_predict(rows->row, rows->n, c, seconds));
    if (o->rows)
        print_rows("row", rows, seconds);
    if (o->parts)
        print_parts(rows, c);
    print_constants(c);
    print_figures("in sample", rows, seconds);
    if (json) {
        fprintf(json, "{\n");
        json_figures(json, "in_sample", rows, seconds);
    }
    if (o->folds) {
        fit_folds(rows, o->folds, o->iterations, seconds);
        if (o->rows)
            print_rows("fold", rows, seconds);
        print_figures("left out, with what comes from the same source or cluster", rows, seconds);
        if (json) {
            fprintf(json, ",\n");
            json_figures(json, "leave_one_out", rows, seconds);
        }
    }
    if (json) {
        fprintf(json, "\n}\n");
        fclose(json);
    }
    free(seconds);
    if (o->studies) {
        fit_print_moves(rows, c);
        fit_print_noise(rows);
    }
}

int main(int argc, char **argv)
{
    const options o = read_options(argc, argv);
    ech_validation v = {0};
    fit_rows rows = {0};
    if (o.table == NULL) {
        fprintf(stderr, "bench_fit TABLE.csv [--keep] [--folds FILE] [--inc FILE] [--json FILE]\n");
        return 2;
    }
    fit_must(ech_validation_read(o.table, &v));
    fit_must(ech_validation_price(&v, NULL));
    choose(&v, &o, &rows);
    double objective = 0;
    const ech_constants c =
        o.keep ? *ech_constants_builtin() : fit_from_priors(&rows, NULL, o.iterations, &objective);
    printf("%d rows, %d of the headline; objective %.2f\n", rows.n, rows.n_stated, objective);
    report(&rows, &o, &c);
    if (o.inc)
        write_inc(o.inc, &c);
    fit_rows_fini(&rows);
    ech_validation_fini(&v);
    return 0;
}
