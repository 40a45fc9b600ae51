/* RUN: np=1 timeout=20 tags=fast */
/* Statistics of priced rows against figures worked out by hand. */
#include "check.h"
#include "plan/validate_private.h"

#include <math.h>
#include <stdlib.h>

/* A layout of its own for each row, as groups want it. */
static int32_t next_micro = 1;

/* A row of a family, priced. */
static ech_published timed(const char *family, const char *group, double measured, double predicted)
{
    ech_published p = {.kind = ECH_MEASURED_ITER_TIME_S,
                       .measured = measured,
                       .measured_s = measured,
                       .predicted = predicted,
                       .predicted_s = predicted,
                       .point.micro = next_micro++};
    (void)snprintf(p.family, sizeof p.family, "%s", family);
    (void)snprintf(p.group, sizeof p.group, "%s", group);
    return p;
}

static ech_published held(const char *family, double measured, double predicted, bool is_allocated)
{
    ech_published p = {.kind = ECH_MEASURED_PEAK_MEM_GIB,
                       .measured = measured,
                       .measured_s = NAN,
                       .predicted = predicted,
                       .predicted_s = NAN,
                       .is_allocated = is_allocated};
    (void)snprintf(p.family, sizeof p.family, "%s", family);
    return p;
}

static ech_validation validation_of(const ech_published *row, int n)
{
    ech_validation v = {.n = n};
    v.row = calloc((size_t)n, sizeof *v.row);
    assert_non_null(v.row);
    memcpy(v.row, row, (size_t)n * sizeof *row);
    assert_ok(ech_validation_count(&v));
    return v;
}

static const ech_family_stats *find(const ech_validation *v, const char *name)
{
    for (int i = 0; i < v->n_families; i++)
        if (strcmp(v->family[i].name, name) == 0)
            return &v->family[i];
    fail_msg("no figures of %s", name);
    return NULL;
}

static void test_errors(void **state)
{
    (void)state;
    const ech_published row[] = {timed("a", "", 1.0, 1.1), timed("a", "", 2.0, 1.0),
                                 timed("a", "", 4.0, 4.8), timed("b", "", 10.0, 10.0)};
    ech_validation v = validation_of(row, 4);
    const ech_family_stats *a = find(&v, "a"), *all = find(&v, "all");
    assert_int_equal(a->n, 3); /* errors 0.1, -0.5, 0.2 */
    assert_near(a->mape, 0.8 / 3.0, 1e-12);
    assert_near(a->median, 0.2, 1e-12);
    assert_near(a->p90, 0.5, 1e-12);
    assert_near(a->worst, 0.5, 1e-12);
    assert_near(a->bias, -0.2 / 3.0, 1e-12);
    assert_true(isnan(a->rank) && isnan(a->regret));
    assert_int_equal(all->n, 4);
    assert_near(all->median, 0.15, 1e-12); /* between 0.1 and 0.2 */
    assert_int_equal(find(&v, "moe")->n, 0);
    assert_true(isnan(find(&v, "moe")->mape));
    ech_validation_fini(&v);
}

/* P90 is the ceil(0.9 n)-th: of 11 rows the 10th. */
static void test_p90(void **state)
{
    (void)state;
    ech_published row[11];
    for (int i = 0; i < 11; i++)
        row[i] = timed("a", "", 1.0, 1.0 + 0.01 * (i + 1));
    ech_validation v = validation_of(row, 11);
    assert_near(find(&v, "a")->p90, 0.10, 1e-12);
    assert_near(find(&v, "a")->median, 0.06, 1e-12);
    ech_validation_fini(&v);
}

/* Group g: measured 1, 2, 3, 4; predicted 2, 1, 3, 4: Spearman 1 - 6 * 2 / (4 * 15) = 0.8; the row
 * taken took 2 where 1 was possible.  Group h: reversed, three rows: -1; 3 where 1 was possible.
 * Group k has too few. */
static void test_groups(void **state)
{
    (void)state;
    const ech_published row[] = {
        timed("a", "g", 1.0, 2.0), timed("a", "h", 1.0, 3.0), timed("a", "g", 2.0, 1.0),
        timed("a", "g", 3.0, 3.0), timed("a", "h", 2.0, 2.0), timed("a", "g", 4.0, 4.0),
        timed("a", "h", 3.0, 1.0), timed("a", "k", 1.0, 1.0), timed("a", "k", 2.0, 1.0)};
    ech_validation v = validation_of(row, 9);
    const ech_family_stats *a = find(&v, "a");
    assert_int_equal(a->n_groups, 2);
    assert_near(a->rank, (4 * 0.8 - 3 * 1.0) / 7.0, 1e-12);
    assert_near(a->regret, (1.0 + 2.0) / 2.0, 1e-12);
    ech_validation_fini(&v);
}

/* Equal times share their ranks: measured 1, 1, 2 against 1, 2, 3: ranks -0.5, -0.5, 1 and -1, 0, 1:
 * 1.5 / sqrt(1.5 * 2). */
static void test_equal_times(void **state)
{
    (void)state;
    const ech_published row[] = {timed("a", "g", 1.0, 1.0), timed("a", "g", 1.0, 2.0),
                                 timed("a", "g", 2.0, 3.0)};
    ech_validation v = validation_of(row, 3);
    assert_near(find(&v, "a")->rank, 1.5 / sqrt(3.0), 1e-12);
    ech_validation_fini(&v);
}

/* One layout measured as 3 and as 5 counts once, as 4, behind the others: all in order; without it the
 * group has two layouts and is none. */
static void test_a_layout_published_twice(void **state)
{
    (void)state;
    ech_published row[] = {timed("a", "g", 1.0, 1.0), timed("a", "g", 3.5, 2.0),
                           timed("a", "g", 3.0, 3.0), timed("a", "g", 5.0, 3.0)};
    row[3].point.micro = row[2].point.micro;
    ech_validation v = validation_of(row, 4);
    assert_near(find(&v, "a")->rank, 1.0, 1e-12);
    assert_near(find(&v, "a")->regret, 0.0, 1e-12);
    ech_validation_fini(&v);
    v = validation_of(row + 1, 3);
    assert_int_equal(find(&v, "a")->n_groups, 0);
    assert_int_equal(find(&v, "a")->n, 3);
    ech_validation_fini(&v);
}

static void test_sets(void **state)
{
    (void)state;
    ech_published row[] = {timed("a", "", 1.0, 1.1),        timed("a", "", 1.0, 1.2),
                           timed("a", "", 1.0, 1.3),        timed("a", "", 1.0, NAN),
                           held("a", 80.0, 70.0, true),     held("c-mem", 40.0, 50.0, false),
                           held("c-oom", 80.0, 60.0, false)};
    strcpy(row[1].assumed, "recompute none");
    row[2].is_moe = true;
    strcpy(row[3].skipped, "no shape");
    row[4].fit = ECH_FIT_NO;
    row[6].is_over = true;
    ech_validation v = validation_of(row, 7);
    assert_near(find(&v, "dense stated")->mape, 0.1, 1e-12);
    assert_int_equal(find(&v, "dense stated")->n_skipped, 0);
    assert_near(find(&v, "dense assumed")->mape, 0.2, 1e-12);
    assert_near(find(&v, "moe")->mape, 0.3, 1e-12);
    assert_int_equal(find(&v, "all")->n, 3);
    assert_int_equal(find(&v, "all")->n_skipped, 1);
    assert_int_equal(find(&v, "all")->n_assumed, 1);
    assert_near(find(&v, "memory allocated")->bias, -0.125, 1e-12);
    assert_int_equal(find(&v, "memory allocated")->false_misfits, 1);
    assert_near(find(&v, "a-mem")->mape, 0.125, 1e-12);
    assert_near(find(&v, "c-mem")->mape, 0.25, 1e-12);
    assert_int_equal(find(&v, "c-oom")->n, 0); /* it has no error, but a wrong verdict */
    assert_int_equal(find(&v, "c-oom")->false_fits, 1);
    assert_int_equal(find(&v, "memory")->false_fits, 1);
    v.row[6].fit = ECH_FIT_EDGE;
    assert_ok(ech_validation_count(&v));
    assert_int_equal(find(&v, "memory")->false_fits, 0); /* counted afresh */
    ech_validation_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_p90),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_equal_times),
        cmocka_unit_test(test_a_layout_published_twice),
        cmocka_unit_test(test_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
