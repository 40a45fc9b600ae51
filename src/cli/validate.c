/* echelon validate: the cost and memory models against published measurements. */
#include "cli/command.h"
#include "plan/validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct validate_options {
    const char *path, *family;
    int64_t worst;
    bool json, rows;
} validate_options;

static const char *const kind_names[] = {
    [ECH_MEASURED_TOKENS_S_GPU] = "tokens_s_gpu",     [ECH_MEASURED_ITER_TIME_S] = "iter_time_s",
    [ECH_MEASURED_TFLOPS_PER_GPU] = "tflops_per_gpu", [ECH_MEASURED_MFU] = "mfu",
    [ECH_MEASURED_PEAK_MEM_GIB] = "peak_mem_gib",
};

static ech_status parse(int argc, char **argv, validate_options *o)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {
        {"json", ECH_OPT_FLAG, &o->json},
        {"rows", ECH_OPT_FLAG, &o->rows},
        {"family", ECH_OPT_STRING, &o->family},
        {"worst", ECH_OPT_INT, &o->worst},
    };
    *o = (validate_options){.worst = -1};
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st >= 0 && words.n != 1)
        st = ECH_RAISE(ECH_E_USAGE, "validate wants one table of measurements; see 'echelon help "
                                    "validate'");
    if (st >= 0)
        o->path = words.item[0];
    ech_opt_list_fini(&words);
    ECH_TRY(st);
    ECH_CHECK(o->worst >= -1, ECH_E_USAGE, "--worst %lld: wanted a number of rows",
              (long long)o->worst);
    return ech_cli_check_path(o->path);
}

/* --- which rows --- */

static bool is_memory(const ech_published *p)
{
    return p->kind == ECH_MEASURED_PEAK_MEM_GIB;
}

static bool is_wanted(const validate_options *o, const ech_published *p)
{
    return !o->family || strcmp(o->family, p->family) == 0;
}

static ech_status check_family(const validate_options *o, const ech_validation *v)
{
    const char **names = calloc((size_t)v->n + 1, sizeof *names);
    ECH_CHECK(names, ECH_E_NOMEM, "names of %d rows", v->n);
    bool found = !o->family;
    for (int i = 0; i < v->n; i++) {
        names[i] = v->row[i].family;
        found = found || strcmp(names[i], o->family) == 0;
    }
    const char *near = found ? NULL : ech_nearest_name(o->family, names, (size_t)v->n);
    free((void *)names);
    ECH_CHECK(found, ECH_E_USAGE, "--family %s: no row of that family%s%s%s", o->family,
              near ? "; nearest is '" : "", near ? near : "", near ? "'" : "");
    return ECH_OK;
}

/* Relative error, of seconds or bytes; NaN where there is none. */
static double error_of(const ech_published *p)
{
    if (p->skipped[0] || p->is_over)
        return NAN;
    return is_memory(p) ? p->predicted / p->measured - 1.0 : p->predicted_s / p->measured_s - 1.0;
}

/* --- JSON --- */

static void add_stats(const ech_family_stats *s, ech_jout *j)
{
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "name", s->name);
    ech_jout_int(j, "n", s->n);
    ech_jout_real(j, "mape", s->mape);
    ech_jout_real(j, "median", s->median);
    ech_jout_real(j, "p90", s->p90);
    ech_jout_real(j, "worst", s->worst);
    ech_jout_real(j, "bias", s->bias);
    ech_jout_real(j, "rank", s->rank);
    ech_jout_real(j, "regret", s->regret);
    ech_jout_close(j);
}

static void add_row(const ech_published *p, ech_jout *j)
{
    ech_jout_open(j, NULL, '{');
    ech_jout_string(j, "id", p->id);
    ech_jout_string(j, "kind", kind_names[p->kind]);
    ech_jout_real(j, "measured", p->measured);
    ech_jout_real(j, "predicted", p->skipped[0] ? NAN : p->predicted);
    ech_jout_string(j, "assumed", p->assumed[0] ? p->assumed : NULL);
    ech_jout_string(j, "skipped", p->skipped[0] ? p->skipped : NULL);
    ech_jout_close(j);
}

static ech_status print_json(const validate_options *o, const ech_validation *v)
{
    ech_jout j = {0};
    ech_jout_open(&j, NULL, '{');
    ech_jout_open(&j, "families", '[');
    for (int i = 0; i < v->n_families; i++)
        add_stats(&v->family[i], &j);
    ech_jout_close(&j);
    ech_jout_open(&j, "rows", '[');
    for (int i = 0; i < v->n; i++)
        if (is_wanted(o, &v->row[i]))
            add_row(&v->row[i], &j);
    ech_jout_close(&j);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

/* --- words --- */

static void add_percent(double x, ech_text *t)
{
    if (isnan(x))
        ech_text_add(t, " %7s", "-");
    else
        ech_text_add(t, " %7.1f", 100.0 * x);
}

static void add_stats_line(const ech_family_stats *s, ech_text *t)
{
    ech_text_add(t, "%-17s %4d %7d %7d", s->name, s->n, s->n_assumed, s->n_skipped);
    add_percent(s->mape, t);
    add_percent(s->median, t);
    add_percent(s->p90, t);
    add_percent(s->worst, t);
    add_percent(s->bias, t);
    if (s->n_groups)
        ech_text_add(t, " %6d %5.2f %6.1f", s->n_groups, s->rank, 100.0 * s->regret);
    else
        ech_text_add(t, " %6s %5s %6s", "-", "-", "-");
    ech_text_add(t, " %4d %5d\n", s->false_fits, s->false_misfits);
}

static void add_table(const ech_validation *v, ech_text *t)
{
    ech_text_add(t, "%-17s %4s %7s %7s %7s %7s %7s %7s %7s %6s %5s %6s %4s %5s\n", "family", "n",
                 "assumed", "skipped", "MAPE %", "med %", "P90 %", "worst %", "bias %", "groups",
                 "rank", "regr %", "fits", "!fits");
    for (int i = 0; i < v->n_families; i++) {
        if (i == v->n_families - v->n_totals)
            ech_text_add(t, "\n");
        add_stats_line(&v->family[i], t);
    }
    ech_text_add(t,
                 "\nn: rows with an error (assumed: of them with settings filled in); fits: rows "
                 "that did not fit\nand are said to; !fits: rows that ran and are said not to "
                 "fit.  Errors are of seconds a step,\nor of bytes.\n");
}

static void add_row_line(const ech_published *p, ech_text *t)
{
    ech_text_add(t, "%-20s %-14s %s%10.5g %10.5g", p->id, kind_names[p->kind],
                 p->is_over ? ">" : " ", p->measured, p->predicted);
    add_percent(error_of(p), t);
    ech_text layout = {0};
    ech_point_print(&p->point, &layout);
    ech_text_add(t, "  %s %s, %lld x %s%s%s%s\n", p->model.name, ech_text_get(&layout),
                 (long long)p->job.gpus, p->cluster.device_name,
                 p->assumed[0] ? "  (assumed: " : "", p->assumed, p->assumed[0] ? ")" : "");
    ech_text_fini(&layout);
}

static void add_rows(const validate_options *o, const ech_validation *v, ech_text *t)
{
    ech_text_add(t, "\n%-20s %-14s %11s %10s %7s  layout\n", "row", "kind", "measured", "predicted",
                 "off %");
    for (int i = 0; i < v->n; i++)
        if (is_wanted(o, &v->row[i]) && !v->row[i].skipped[0])
            add_row_line(&v->row[i], t);
}

static int by_error(const void *a, const void *b)
{
    const ech_published *const *x = a, *const *y = b;
    const double ex = fabs(error_of(*x)), ey = fabs(error_of(*y));
    return ex < ey ? 1 : ex > ey ? -1 : 0;
}

static ech_status add_worst(const validate_options *o, const ech_validation *v, ech_text *t)
{
    const ech_published **row = calloc((size_t)v->n + 1, sizeof *row);
    int n = 0;
    ECH_CHECK(row, ECH_E_NOMEM, "a list of %d rows", v->n);
    for (int i = 0; i < v->n; i++)
        if (is_wanted(o, &v->row[i]) && !isnan(error_of(&v->row[i])))
            row[n++] = &v->row[i];
    qsort((void *)row, (size_t)n, sizeof *row, by_error);
    ech_text_add(t, "\nfarthest off:\n");
    for (int i = 0; i < n && i < o->worst; i++)
        add_row_line(row[i], t);
    free((void *)row);
    return ECH_OK;
}

/* How many rows share a reason, told at the first of them. */
static int count_same(const validate_options *o, const ech_validation *v, int i, bool of_skipped)
{
    const char *mine = of_skipped ? v->row[i].skipped : v->row[i].assumed;
    int n = 0;
    for (int k = 0; k < v->n; k++) {
        const ech_published *p = &v->row[k];
        const char *other = of_skipped ? p->skipped : p->assumed;
        const bool is_same = is_wanted(o, p) && strcmp(mine, other) == 0 &&
                             strcmp(p->family, v->row[i].family) == 0 &&
                             (of_skipped || !p->skipped[0]);
        if (is_same && k < i)
            return 0;
        n += is_same ? 1 : 0;
    }
    return n;
}

static void add_reasons(const validate_options *o, const ech_validation *v, bool of_skipped,
                        ech_text *t)
{
    bool is_first = true;
    for (int i = 0; i < v->n; i++) {
        const ech_published *p = &v->row[i];
        const char *why = of_skipped ? p->skipped : p->skipped[0] ? "" : p->assumed;
        const int n = why[0] && is_wanted(o, p) ? count_same(o, v, i, of_skipped) : 0;
        if (n == 0)
            continue;
        if (is_first)
            ech_text_add(t, "\n%s\n", of_skipped ? "not priced:" : "filled in:");
        is_first = false;
        ech_text_add(t, "  %-16s %3d rows from %s: %s\n", p->family, n, p->id, why);
    }
}

static ech_status print_words(const validate_options *o, const ech_validation *v)
{
    ech_text t = {0};
    add_table(v, &t);
    if (o->rows)
        add_rows(o, v, &t);
    const ech_status st = o->worst > 0 ? add_worst(o, v, &t) : ECH_OK;
    if (!o->rows)
        add_reasons(o, v, false, &t);
    add_reasons(o, v, true, &t);
    if (st < 0) {
        ech_text_fini(&t);
        return st;
    }
    return ech_cli_print(&t);
}

static ech_status validate(const validate_options *o)
{
    ech_validation v = {0};
    ECH_TRY(ech_validation_read(o->path, &v));
    ech_status st = check_family(o, &v);
    if (st >= 0)
        st = ech_validation_price(&v, NULL);
    if (st >= 0)
        st = o->json ? print_json(o, &v) : print_words(o, &v);
    ech_validation_fini(&v);
    return st;
}

static int cmd_validate(int argc, char **argv)
{
    validate_options o;
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = validate(&o);
    return st < 0 ? ech_cli_fail(st) : 0;
}

const ech_command ech_command_validate = {
    "validate",
    "the cost and memory model against published measurements",
    "Usage: echelon validate TABLE.csv [OPTIONS]\n"
    "\n"
    "Prices each row of a table of published measurements and compares: seconds a step, whatever\n"
    "unit and FLOP convention the source prints, or bytes a GPU.  For each family of rows (an id\n"
    "without its number) and in total: mean absolute relative error, median, 90th percentile, "
    "worst,\n"
    "bias, rank correlation and regret within groups of one model, batch and number of GPUs, and\n"
    "verdicts on memory that are wrong.  What a row leaves out is filled in and told; such rows\n"
    "count apart from the headline, 'dense stated'.\n"
    "\n"
    "  --rows          every row with its layout\n"
    "  --worst N       the N rows that are farthest off\n"
    "  --family NAME   only rows of this family (figures stay those of all)\n"
    "  --json          one JSON document: families and rows\n"
    "\n"
    "Columns are found by their names; docs/planner/validation.md lists them.\n",
    cmd_validate,
};
