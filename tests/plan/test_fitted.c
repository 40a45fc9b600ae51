/* RUN: np=1 timeout=20 tags=fast */
/* How well the cost model meets published step times: in sample, and each family with the constants that
 * were fitted without it and its siblings (bench/fit/folds.csv).  Fails where a change makes the figures worse; after a
 * change of the model, fit again (bench/fit/run). */
#include "fitted.h"
#include "price/doubt.h"

static fitted f; /* read once: by main */

static void in_sample(void **state)
{
    (void)state;
    double mean, median;
    assert_true(f.n > 250);
    assert_ok(ech_calibrate_predict(f.row, f.n, ech_constants_builtin(), f.seconds));
    fitted_errors(&f, NULL, &mean, &median);
    print_message("in sample: mean %.4f, median %.4f of %d rows\n", mean, median, f.n);
    assert_true(mean < 0.052);
    assert_true(median < 0.035);
}

/* Ceilings a family: twice as much as now at most, never above 12 % but for the smallest models. */
static void by_family(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        double most;
    } ceilings[] = {{"narayanan-t1", 0.04},  {"narayanan-t2", 0.05}, {"korthikanti-t5", 0.08},
                    {"llmfoundry", 0.05},    {"simumax", 0.05},      {"vtrain-multi", 0.09},
                    {"vtrain-single", 0.11}, {"bloom", 0.06},        {"bloom-prod", 0.05},
                    {"titan", 0.06},         {"internevo", 0.08}};
    assert_ok(ech_calibrate_predict(f.row, f.n, ech_constants_builtin(), f.seconds));
    for (size_t i = 0; i < sizeof ceilings / sizeof ceilings[0]; i++) {
        double mean, median;
        fitted_errors(&f, ceilings[i].family, &mean, &median);
        if (mean > ceilings[i].most)
            fail_msg("%s: mean error %.4f, at most %.4f", ceilings[i].family, mean,
                     ceilings[i].most);
    }
}

/* What is told with a price is what nine of ten rows are within. */
static void told_with_prices(ech_doubt doubt, double p90)
{
    print_message("nine of ten within %.4f, told %.2f\n", p90, ech_doubt_within(doubt));
    assert_true(p90 < ech_doubt_within(doubt) + 0.01);
    assert_true(p90 > ech_doubt_within(doubt) - 0.03);
}

static double p90_of_headline(void)
{
    double e[FITTED_MAX];
    for (int i = 0; i < f.n; i++)
        e[i] = fabs(f.seconds[i] / f.row[i].row->measured_s - 1);
    qsort(e, (size_t)f.n, sizeof *e, fitted_ascending);
    return e[(int)ceil(0.9 * f.n) - 1];
}

/* Every row of the headline is a job that is told the headline's doubt, and the others are told theirs. */
static void doubts(void **state)
{
    (void)state;
    for (int i = 0; i < f.n; i++)
        assert_int_equal(ech_doubt_of(&f.row[i].row->job), ECH_DOUBT_STATED);
    assert_ok(ech_validation_price(&f.v, NULL));
    for (int k = 0; k < f.v.n_families; k++) {
        const ech_family_stats *s = &f.v.family[k];
        if (strcmp(s->name, "dense assumed") == 0)
            told_with_prices(ECH_DOUBT_ASSUMED, s->p90);
        if (strcmp(s->name, "moe") == 0)
            told_with_prices(ECH_DOUBT_EXPERTS, s->p90);
    }
    ech_cluster c;
    ech_model m = ech_model_default(ECH_ARCH_LLAMA);
    assert_ok(ech_cluster_load("v100-sxm-32", &c));
    ech_job job = ech_job_default(ECH_SYSTEM_MEGATRON);
    job.model = &m;
    job.cluster = &c;
    assert_int_equal(ech_doubt_of(&job), ECH_DOUBT_NOTHING);
    assert_true(isnan(ech_doubt_within(ECH_DOUBT_NOTHING)));
}

static void families_left_out(void **state)
{
    (void)state;
    static double all[FITTED_MAX];
    char path[1024], families[64];
    ech_constants c;
    int met = 0;
    fitted_path("bench/fit/folds.csv", path, sizeof path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fitted_fold(file, families, &c)) {
        assert_ok(ech_calibrate_predict(f.row, f.n, &c, all));
        for (int i = 0; i < f.n; i++)
            if (ech_calibrate_names(families, f.row[i].row->family)) {
                f.seconds[i] = all[i];
                met++;
            }
    }
    (void)fclose(file);
    assert_int_equal(met, f.n);
    double mean, median;
    fitted_errors(&f, NULL, &mean, &median);
    print_message("families left out: mean %.4f, median %.4f\n", mean, median);
    assert_true(mean < 0.085); /* targets: 12 and 8 % */
    assert_true(median < 0.07);
    told_with_prices(ECH_DOUBT_STATED, p90_of_headline());
}

/* Of layouts of one model, batch and GPU count we take one that is nearly the best. */
static void choices(void **state)
{
    (void)state;
    double regret = 0;
    int groups = 0;
    assert_ok(ech_calibrate_predict(f.row, f.n, ech_constants_builtin(), f.seconds));
    for (int i = 0; i < f.n; i++) {
        const char *group = f.row[i].row->group;
        bool is_first = group[0] != '\0';
        int n = 0, taken = i;
        double best = INFINITY;
        for (int j = 0; j < i && is_first; j++)
            is_first = strcmp(f.row[j].row->group, group) != 0;
        for (int j = i; is_first && j < f.n; j++)
            if (strcmp(f.row[j].row->group, group) == 0) {
                n++;
                best = fmin(best, f.row[j].row->measured_s);
                taken = f.seconds[j] < f.seconds[taken] ? j : taken;
            }
        if (n < 3)
            continue;
        groups++;
        regret += f.row[taken].row->measured_s / best - 1;
    }
    print_message("regret %.4f over %d groups\n", regret / groups, groups);
    assert_true(groups >= 6);
    assert_true(regret / groups < 0.03);
}

/* Priors alone, before any fit, are a model: what a family that nobody has measured falls back to. */
static void priors_alone(void **state)
{
    (void)state;
    const ech_constants prior = ech_constants_prior();
    double mean, median;
    assert_ok(ech_calibrate_predict(f.row, f.n, &prior, f.seconds));
    fitted_errors(&f, NULL, &mean, &median);
    print_message("priors: mean %.4f, median %.4f\n", mean, median);
    assert_true(mean < 0.15);
}

/* No constant is outside of what is believed, and few are far from their priors. */
static void constants_are_believable(void **state)
{
    (void)state;
    const ech_constants *c = ech_constants_builtin();
    int far = 0, n = 0;
    for (int i = 0; i < ECH_N_CONSTANTS; i++) {
        const ech_constant_info *a = ech_constant_about((ech_constant)i);
        assert_true(c->value[i] >= a->low);
        assert_true(c->value[i] <= a->high);
        if (a->sigma <= 0) {
            assert_near(c->value[i], a->prior, 1e-5 * a->prior);
            continue;
        }
        n++;
        const double sigmas = fabs(log(c->value[i] / a->prior)) / a->sigma;
        far += sigmas > 2;
        if (sigmas > 3)
            fail_msg("%s: %g, %.1f sigmas from its prior %g", a->name, c->value[i], sigmas,
                     a->prior);
    }
    assert_true(n <= 60);
    assert_true(far <= 3);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_sample),
                                       cmocka_unit_test(by_family),
                                       cmocka_unit_test(families_left_out),
                                       cmocka_unit_test(choices),
                                       cmocka_unit_test(priors_alone),
                                       cmocka_unit_test(doubts),
                                       cmocka_unit_test(constants_are_believable)};
    return cmocka_run_group_tests(tests, read_all, release_all);
}
