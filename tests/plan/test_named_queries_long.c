/* RUN: np=1 timeout=1800 tags=long */
/* Every named query equals looking at every layout: the best and the front. */
#include "named_queries.h"

static void test_equal_to_everything(void **state)
{
    (void)state;
    for (int i = 0; i < N_NAMED_QUERIES; i++) {
        query_case *c = calloc(1, sizeof *c);
        assert_non_null(c);
        query_make(c, &named_queries[i].q);
        ech_plan *plan = query_search(c, false);
        ech_plan *brute = query_search(c, true);
        print_message("%-40s %.3f s, every layout %.3f s (%lld)\n", named_queries[i].name,
                      plan->seconds, brute->seconds, (long long)brute->space);
        same_plan(plan, brute);
        assert_int_equal(plan->space, brute->space);
        free(plan);
        free(brute);
        free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal_to_everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
