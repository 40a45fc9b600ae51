/* RUN: np=1 timeout=20 tags=fast */
/* Stages: the balance against every possible cut, listed layers, who holds which unit. */
#include "check.h"

#include "catalog/model.h"
#include "layout/stages.h"

#include <stdlib.h>

enum { N_MAX = 14 };

/* The best of all cuts: its dearest run, and its sum of squares. */
typedef struct best_cut {
    double dearest, squares;
} best_cut;

/* Try every way to cut cost[from .. n) into the `left` runs that remain. */
static void try_cuts(const double *cost, int n, int from, int left, best_cut so_far, best_cut *best)
{
    if (left == 0) {
        if (from == n &&
            (so_far.dearest < best->dearest - 1e-9 ||
             (so_far.dearest < best->dearest + 1e-9 && so_far.squares < best->squares)))
            *best = so_far;
        return;
    }
    double sum = 0;
    for (int to = from; to < n; to++) {
        const int between = (to < n - 1 ? to : n - 2) - (from > 1 ? from : 1) + 1;
        sum += cost[to];
        if (between < 1)
            continue;
        best_cut next = so_far;
        next.dearest = sum > next.dearest ? sum : next.dearest;
        next.squares += sum * sum;
        try_cuts(cost, n, to + 1, left - 1, next, best);
    }
}

static void check_balance(const double *cost, int n, int parts)
{
    int first[N_MAX + 1];
    best_cut best = {1e9, 1e18};
    best_cut got = {0, 0};
    assert_ok(ech_stages_balance(cost, n, parts, first));
    try_cuts(cost, n, 0, parts, (best_cut){0, 0}, &best);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[parts], n);
    for (int k = 0; k < parts; k++) {
        double sum = 0;
        assert_true(first[k + 1] - first[k] >= 1 + (k == 0) + (k == parts - 1));
        for (int i = first[k]; i < first[k + 1]; i++)
            sum += cost[i];
        got.dearest = sum > got.dearest ? sum : got.dearest;
        got.squares += sum * sum;
    }
    assert_near(got.dearest, best.dearest, 1e-9);
    assert_near(got.squares, best.squares, 1e-6);
}

static void test_balance(void **state)
{
    uint64_t x = 1;
    (void)state;
    for (int n = 3; n <= N_MAX - 2; n++)
        for (int parts = 1; parts <= n - 2; parts++)
            for (int turn = 0; turn < 12; turn++) {
                double cost[N_MAX];
                for (int i = 0; i < n; i++) { /* a different spread each turn, zeros too */
                    x = x * 6364136223846793005u + 1442695040888963407u;
                    const int spread = turn < 4 ? 2 : turn < 8 ? 10 : 1000;
                    cost[i] = (double)((x >> 33) % (uint64_t)spread);
                }
                if (turn % 4 == 3)
                    for (int i = 1; i < n - 1; i++)
                        cost[i] = 7;
                check_balance(cost, n, parts);
            }
}

/* Equal layers, a head as dear as two and a half: the last stage has that many fewer. */
static void test_balance_head(void **state)
{
    static const double cost[] = {0.1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2.5};
    static const double none[] = {0, 0, 0, 0, 0};
    int first[4];
    (void)state;
    assert_ok(ech_stages_balance(cost, 11, 3, first));
    assert_int_equal(first[1], 5);
    assert_int_equal(first[2], 9);
    assert_ok(ech_stages_balance(none, 5, 3, first));
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 3);
    assert_fails(ech_stages_balance(none, 4, 3, first), ECH_E_ILLEGAL,
                 "2 layers cannot be dealt out to 3 stages");
    assert_fails(ech_stages_balance((const double[]){0, 1, -1, 1, 1}, 5, 3, first), ECH_E_ILLEGAL,
                 "cost -1 of unit 2");
}

/* Hundreds of units: the bound that no cut is below, reached. */
static void test_balance_many(void **state)
{
    enum { N = 402, PARTS = 400 };
    static double cost[N];
    int first[PARTS + 1];
    (void)state;
    for (int i = 0; i < N; i++)
        cost[i] = i == 0 || i == N - 1 ? 0 : 1;
    for (int parts = 1; parts <= PARTS; parts += 57) {
        int most = 0;
        assert_ok(ech_stages_balance(cost, N, parts, first));
        for (int k = 0; k < parts; k++) {
            const int layers = first[k + 1] - first[k] - (k == 0) - (k == parts - 1);
            assert_in_range(layers, 400 / parts, (400 + parts - 1) / parts); /* even */
            most = layers > most ? layers : most;
        }
        assert_int_equal(most, (400 + parts - 1) / parts);
    }
}

/* A model of so many layers and its units. */
typedef struct a_model {
    ech_model model;
    ech_canon canon;
} a_model;

static a_model load(const char *name, int layers)
{
    a_model m = {0};
    assert_ok(ech_model_load(name, &m.model));
    if (layers > 0)
        m.model.layers = layers;
    assert_ok(ech_canon_create(&m.model, &m.canon));
    return m;
}

static void test_listed(void **state)
{
    static const int rank_of[] = {0, 1, 2, 0, 1, 2};
    static const int layers[] = {0, 5, 0, 0, 7, 0};
    static const int holder[] = {0, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 5}; /* of each unit */
    a_model m = load("gpt2", 12);
    ech_stages s = {0};
    ech_stages_spec spec = {.model = &m.model,
                            .canon = &m.canon,
                            .ranks = 3,
                            .n = 6,
                            .rank_of = rank_of,
                            .layers = layers,
                            .seq = 1024};
    (void)state;
    assert_ok(ech_stages_make(&spec, &s));
    for (int u = 0; u < 14; u++)
        assert_int_equal(ech_stages_of_unit(&s, u), holder[u]);
    assert_int_equal(s.first[2], 6);
    assert_int_equal(s.first[3], 6); /* stages 2 and 3 hold nothing */
    assert_int_equal(s.first[4], 6);
    assert_int_equal(s.rank_of[4], 1);
    assert_true(ech_stages_tie_apart(&s, &m.canon));
    ech_stages_fini(&s);

    static const int short_list[] = {1, 2, 3, 1, 2, 2};
    static const int negative[] = {1, 2, 3, -1, 2, 5};
    spec.layers = short_list;
    assert_fails(ech_stages_make(&spec, &s), ECH_E_ILLEGAL,
                 "the 6 virtual stages have 11 layers together, the model has 12");
    spec.layers = negative;
    assert_fails(ech_stages_make(&spec, &s), ECH_E_ILLEGAL, "-1 layers for virtual stage 3");
    assert_null(s.first);
    ech_canon_fini(&m.canon);
}

/* First and last stage on one rank, or the head with a table of its own: nothing is apart. */
static void test_tied(void **state)
{
    static const int there_and_back[] = {0, 1, 1, 0};
    static const int in_turn[] = {0, 1, 0, 1};
    a_model tied = load("gpt2", 12);
    a_model untied = load("llama-2-7b", 4);
    ech_stages s = {0};
    ech_stages_spec spec = {.model = &tied.model, .canon = &tied.canon, .ranks = 2, .n = 4};
    (void)state;
    spec.seq = 64;
    spec.rank_of = there_and_back;
    assert_ok(ech_stages_make(&spec, &s));
    assert_false(ech_stages_tie_apart(&s, &tied.canon));
    ech_stages_fini(&s);
    spec.rank_of = in_turn;
    assert_ok(ech_stages_make(&spec, &s));
    assert_true(ech_stages_tie_apart(&s, &tied.canon));
    ech_stages_fini(&s);
    spec.model = &untied.model;
    spec.canon = &untied.canon;
    assert_ok(ech_stages_make(&spec, &s));
    assert_false(ech_stages_tie_apart(&s, &untied.canon));
    ech_stages_fini(&s);
    ech_canon_fini(&tied.canon);
    ech_canon_fini(&untied.canon);
}

/* GPT-2's head (50257 x 768) is as dear as 4.8 of its layers at short sequences: 12 layers on four
 * stages are 3, 4, 4, 1, not 3 each; the stage with the embedding has the three. */
static void test_balanced(void **state)
{
    static const int rank_of[] = {0, 1, 2, 3};
    a_model m = load("gpt2", 12);
    ech_stages s = {0};
    const ech_stages_spec spec = {
        .model = &m.model, .canon = &m.canon, .ranks = 4, .n = 4, .rank_of = rank_of, .seq = 128};
    static const int wanted[] = {0, 4, 8, 12, 14}; /* units */
    (void)state;
    assert_ok(ech_stages_make(&spec, &s));
    for (int k = 0; k <= 4; k++)
        assert_int_equal(s.first[k], wanted[k]);
    ech_stages_fini(&s);
    /* two tables: each a row read, a row of the gradient read and written; one row out, one in */
    assert_near(ech_stages_unit_cost(&m.model, 0, 128), 8.0 * 768 * 4 * 50, 0);
    ech_canon_fini(&m.canon);
}

static void test_refused(void **state)
{
    static const int rank_of[40] = {0};
    static const int no_rank[] = {0, 2, 0};
    static const int lonely[] = {0, 0, 0};
    a_model m = load("gpt2", 12);
    ech_stages s = {0};
    ech_stages_spec spec = {
        .model = &m.model, .canon = &m.canon, .ranks = 1, .n = 13, .rank_of = rank_of, .seq = 128};
    (void)state;
    assert_fails(ech_stages_make(&spec, &s), ECH_E_ILLEGAL,
                 "12 layers for 13 virtual stages, one at least for each; nearest legal number of "
                 "stages: 12");
    spec.n = 33;
    assert_fails(ech_stages_make(&spec, &s), ECH_E_ILLEGAL, "has more than 32 virtual stages");
    spec.n = 3;
    spec.ranks = 2;
    spec.rank_of = no_rank;
    assert_fails(ech_stages_make(&spec, &s), ECH_E_ILLEGAL, "stage 1 on pipeline rank 2 of 2");
    spec.rank_of = lonely;
    assert_fails(ech_stages_make(&spec, &s), ECH_E_ILLEGAL, "rank 1 has no virtual stage");
    spec.ranks = 4;
    assert_fails(ech_stages_make(&spec, &s), ECH_E_ILLEGAL, "3 virtual stages on 4 pipeline ranks");
    ech_canon_fini(&m.canon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_balance),      cmocka_unit_test(test_balance_head),
        cmocka_unit_test(test_balance_many), cmocka_unit_test(test_listed),
        cmocka_unit_test(test_tied),         cmocka_unit_test(test_balanced),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
