/* RUN: np=1 timeout=60 tags=long */
/* The fit itself: from the priors it gets as far as the table that is built in; folds that are fitted
 * once more predict what was left out as their stored constants do. */
#include "fitted.h"

static fitted f; /* read once: by main */

static void from_priors(void **state)
{
    (void)state;
    ech_constants c = ech_constants_prior();
    double mean, median, objective = 0;
    const ech_calibrate_spec spec = {f.row, f.n, NULL, 40};
    assert_ok(ech_calibrate(&spec, &c, &objective));
    assert_ok(ech_calibrate_predict(f.row, f.n, &c, f.seconds));
    fitted_errors(&f, NULL, &mean, &median);
    print_message("refitted: mean %.4f, median %.4f, objective %.1f\n", mean, median, objective);
    assert_true(mean < 0.052);
}

/* Rows with something filled in, at the weight that bench/fit gives them. */
static void add_hints(void)
{
    for (int i = 0; i < f.v.n; i++) {
        ech_published *p = &f.v.row[i];
        const bool is_headline = !p->is_moe && p->assumed[0] == '\0';
        if (p->kind == ECH_MEASURED_PEAK_MEM_GIB || p->skipped[0] || is_headline ||
            p->job.tuning != ECH_TUNING_FULL || p->point.recompute == ECH_RECOMPUTE_FULL)
            continue;
        assert_true(f.n < FITTED_MAX);
        f.row[f.n++] = (ech_calibrate_row){p, 0.05};
    }
}

/* Predictions of a fold's families by two sets of constants: mean of their differences. */
static double differ(const char *families, const ech_constants *a, const ech_constants *b, int n)
{
    static double first[FITTED_MAX];
    double sum = 0;
    int rows = 0;
    assert_ok(ech_calibrate_predict(f.row, n, a, first));
    assert_ok(ech_calibrate_predict(f.row, n, b, f.seconds));
    for (int i = 0; i < n; i++)
        if (ech_calibrate_names(families, f.row[i].row->family)) {
            sum += fabs(log(f.seconds[i] / first[i]));
            rows++;
        }
    return sum / rows;
}

/* Two folds of bench/fit/folds.csv, fitted here from the priors. */
static void stored_folds(void **state)
{
    (void)state;
    const int n = f.n;
    char path[1024], families[64];
    ech_constants stored;
    int met = 0;
    assert_ok(ech_validation_price(&f.v, NULL)); /* chooses among what rows can mean */
    add_hints();
    fitted_path("bench/fit/folds.csv", path, sizeof path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fitted_fold(file, families, &stored)) {
        if (strcmp(families, "bloom+bloom-prod") != 0 && strcmp(families, "titan") != 0)
            continue;
        ech_constants c = ech_constants_prior();
        const ech_calibrate_spec spec = {f.row, f.n, families, 100};
        assert_ok(ech_calibrate(&spec, &c, NULL));
        const double d = differ(families, &c, &stored, n);
        print_message("%s: predictions differ by %.5f from the stored fold's\n", families, d);
        assert_true(d < 0.01);
        met++;
    }
    (void)fclose(file);
    assert_int_equal(met, 2);
    f.n = n;
}

/* Made-up measurements of known constants are met again; the constants themselves as far as their priors
 * let them move. */
static void known_constants(void **state)
{
    (void)state;
    ech_constants truth = ech_constants_prior(), c = ech_constants_prior();
    truth.value[ECH_K_GEMM_AMPERE] *= 0.95;
    truth.value[ECH_K_NVLINK] *= 0.93;
    assert_ok(ech_calibrate_predict(f.row, f.n, &truth, f.seconds));
    for (int i = 0; i < f.v.n; i++)
        for (int j = 0; j < f.n; j++)
            if (f.row[j].row == &f.v.row[i])
                f.v.row[i].measured_s = f.seconds[j];
    const ech_calibrate_spec spec = {f.row, f.n, NULL, 20};
    assert_ok(ech_calibrate(&spec, &c, NULL));
    assert_near(c.value[ECH_K_GEMM_AMPERE], truth.value[ECH_K_GEMM_AMPERE], 0.015);
    assert_true(c.value[ECH_K_NVLINK] < ech_constants_prior().value[ECH_K_NVLINK]);
    assert_ok(ech_calibrate_predict(f.row, f.n, &c, f.seconds));
    double mean, median;
    fitted_errors(&f, NULL, &mean, &median);
    print_message("known constants: mean %.5f\n", mean);
    assert_true(mean < 0.004);
}

static int read_all(void **state)
{
    (void)state;
    fitted_read(&f);
    return 0;
}

static int release_all(void **state)
{
    (void)state;
    fitted_fini(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(from_priors),
                                       cmocka_unit_test(stored_folds),
                                       cmocka_unit_test(known_constants)};
    return cmocka_run_group_tests(tests, read_all, release_all);
}
