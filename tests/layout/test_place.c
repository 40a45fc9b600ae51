/* RUN: np=1 timeout=20 tags=fast */
/* Ranks on nodes: runs out of host names, slots filled in turn. */
#include "check.h"

#include "layout/place.h"

#include <stdlib.h>

/* Runs of ranks whose hosts are named by one letter each. */
static int runs_of(const char *letters, ech_node_run **out)
{
    char host[64][ECH_HOST_BYTES] = {{0}};
    int n = 0;
    const int ranks = (int)strlen(letters);
    for (int r = 0; r < ranks; r++)
        host[r][0] = letters[r];
    assert_ok(ech_node_runs((const char(*)[ECH_HOST_BYTES])host, ranks, out, &n));
    return n;
}

static void test_runs(void **state)
{
    static const struct {
        const char *letters;
        int runs, node_ranks;
    } rows[] = {{"a", 1, 1},      {"aaaa", 1, 4},   {"aabb", 2, 2},   {"abbb", 2, 0},
                {"abab", 4, 0},   {"aab", 2, 0},    {"aabbbb", 2, 2}, {"aaabb", 2, 0},
                {"abcdef", 6, 1}, {"aabbcc", 3, 2}, {"aabbaa", 3, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_node_run *run = NULL;
        const int n = runs_of(rows[i].letters, &run);
        int next = 0;
        assert_int_equal(n, rows[i].runs);
        for (int k = 0; k < n; k++) {
            assert_int_equal(run[k].first, next);
            for (int r = run[k].first; r < run[k].first + run[k].n; r++)
                assert_int_equal(run[k].name[0], rows[i].letters[r]);
            next += run[k].n;
        }
        assert_int_equal(next, strlen(rows[i].letters));
        assert_int_equal(ech_node_ranks(run, n), rows[i].node_ranks);
        free(run);
    }
}

static void expect_fill(const int *slots, int n, int ranks, const int *want)
{
    ech_node_run node[8] = {{{0}, 0, 0, 0}};
    int next = 0;
    for (int i = 0; i < n; i++) {
        node[i].name[0] = (char)('a' + i);
        node[i].slots = slots[i];
    }
    ech_node_fill(node, n, ranks);
    for (int i = 0; i < n; i++) {
        assert_int_equal(node[i].first, next);
        assert_int_equal(node[i].n, want[i]);
        next += node[i].n;
    }
    assert_int_equal(next, ranks);
}

static void test_fill(void **state)
{
    (void)state;
    expect_fill((int[]){2, 2}, 2, 4, (int[]){2, 2});
    expect_fill((int[]){2, 2}, 2, 3, (int[]){2, 1});
    expect_fill((int[]){4, 8}, 2, 12, (int[]){4, 8});
    expect_fill((int[]){4, 8, 4}, 3, 4, (int[]){4, 0, 0});
    expect_fill((int[]){2, 2}, 2, 8, (int[]){4, 4}); /* beyond the slots: in proportion */
    expect_fill((int[]){1, 3}, 2, 8, (int[]){2, 6});
    expect_fill((int[]){1, 1, 1}, 3, 4, (int[]){1, 1, 2});
    expect_fill((int[]){1}, 1, 5, (int[]){5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_fill)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
