/* RUN: np=1 timeout=120 tags=fast */
/* The named queries: each has an answer, found within a second on one core; the small ones equal
 * looking at every layout (test_named_queries_long.c does that for all).  Times are compared in
 * builds whose times say something. */
#include "named_queries.h"

#include "base/clock.h"

#include <math.h>

static const double most_s = 1.0;

static void check_answer(const named_query *n, const query_case *c, const ech_plan *plan)
{
    assert_int_equal(plan->n_best, 10);
    assert_true(plan->n_pareto >=
                (c->job.gpus > 1 ? 2 : 1)); /* of one card the fastest may hold least */
    for (int i = 0; i < plan->n_best; i++) {
        const ech_candidate *b = &plan->best[i];
        assert_true(ech_point_is_legal(&c->job, &b->point, NULL));
        assert_int_equal(b->fit, ECH_FIT_YES);
        assert_true(isfinite(b->step.step_s) && b->step.step_s > 0.0);
        assert_true(i == 0 || b->step.step_s >= plan->best[i - 1].step.step_s);
        assert_true(b->reserved_bytes < c->cluster.device.usable_bytes);
    }
    const double flops = plan->best[0].step.model_flops / plan->best[0].step.step_s /
                         (double)c->job.gpus / c->cluster.device.peak_flops[c->job.precision];
    print_message("%-40s %6.3f s, %7lld priced, %8lld skipped; step %.4g s, %.0f %% of the peak\n",
                  n->name, plan->seconds, (long long)plan->evaluated, (long long)plan->pruned,
                  plan->best[0].step.step_s, 100.0 * flops);
    assert_true(flops > 0.05 && flops < 0.9);
    if (!is_slow_build() && plan->seconds >= most_s)
        fail_msg("%s took %.3f s, wanted less than %g", n->name, plan->seconds, most_s);
}

static void test_answers(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMED_QUERIES; i++) {
        const named_query *n = &named_queries[i];
        query_case *c = calloc(1, sizeof *c);
        assert_non_null(c);
        query_make(c, &n->q);
        if (is_slow_build() && !n->is_small) {
            free(c);
            continue;
        }
        ech_plan *plan = query_search(c, false);
        check_answer(n, c, plan);
        if (n->is_small) {
            ech_plan *brute = query_search(c, true);
            same_plan(plan, brute);
            free(brute);
        }
        free(plan);
        free(c);
    }
}

static void test_one_card_offloads(void **state)
{
    (void)state;
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &named_queries[3].q);
    ech_plan *plan = query_search(c, false);
    assert_true(plan->opened_offload);
    assert_true(plan->best[0].point.offload_optimizer != ECH_OFFLOAD_NONE);
    assert_true(plan->best[0].point.offload_params != ECH_OFFLOAD_NONE);
    free(plan);
    free(c);
}

/* NVLink is worth more tensor parallel ranks, or none at all without it. */
static void test_links_matter(void **state)
{
    (void)state;
    double step_s[2];
    for (int i = 0; i < 2; i++) {
        query_case *c = calloc(1, sizeof *c);
        assert_non_null(c);
        query_make(c, &named_queries[1 + i].q);
        ech_plan *plan = query_search(c, false);
        step_s[i] = plan->best[0].step.step_s;
        free(plan);
        free(c);
    }
    assert_true(step_s[1] > step_s[0]);
}

/* Memory and time of every layout that fits, no bounds: evaluations a second. */
static void test_rate(void **state)
{
    (void)state;
    const double least = 1e5;
    query_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    query_make(c, &named_queries[0].q);
    double rate = 0.0;
    for (int i = 0; i < 3 && rate < least; i++) { /* best of several: the machine is shared */
        ech_plan *plan = query_search(c, true);
        rate = fmax(rate, (double)plan->evaluated / plan->seconds);
        free(plan);
    }
    print_message("%.0f full evaluations a second and core\n", rate);
    if (!is_slow_build() && rate < least)
        fail_msg("%.0f full evaluations a second, wanted %.0f", rate, least);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_one_card_offloads),
        cmocka_unit_test(test_links_matter),
        cmocka_unit_test(test_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
