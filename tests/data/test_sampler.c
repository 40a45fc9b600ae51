/* RUN: np=1 timeout=20 tags=fast */
/* The order of samples: a permutation each epoch, global, the same under every layout. */
#include "check.h"

#include "data/sampler.h"

#include <math.h>
#include <stdlib.h>

static void every_size_is_permuted(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000, 4097};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t n = sizes[s];
        int *seen = calloc((size_t)n, sizeof *seen);
        for (int64_t i = 0; i < n; i++) {
            const int64_t image = ech_permute(42, 3, n, i);
            assert_in_range(image, 0, n - 1);
            assert_int_equal(seen[image]++, 0);
        }
        free(seen);
    }
}

static void huge_sizes_stay_inside(void **state)
{
    (void)state;
    const int64_t n = ((int64_t)1 << 40) + 12345;
    int64_t last = -1;

    for (int64_t i = 0; i < 1000; i++) {
        const int64_t image = ech_permute(7, 0, n, i);
        assert_in_range(image, 0, n - 1);
        assert_int_not_equal(image, last);
        last = image;
    }
}

/* 1,000 numbered samples on 4 ranks, 8 sequences a step: over one epoch each exactly once, each
 * rank asking for its own rows only. */
static void one_epoch_on_four_ranks_has_each_sample_once(void **state)
{
    (void)state;
    enum { N = 1000, DP = 4, ROWS = 2 };
    ech_sampler sampler;
    int seen[N] = {0};

    assert_ok(ech_sampler_init(&sampler, N, DP * ROWS, 1));
    for (int rank = 0; rank < DP; rank++) {
        for (int64_t step = 0; step < N / (DP * ROWS); step++) {
            for (int64_t row = 0; row < ROWS; row++)
                seen[ech_sampler_sample(&sampler, step, rank * ROWS + row)]++;
        }
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
}

/* Epochs follow one another without a gap: with a batch that does not divide the epoch, positions
 * k*n .. k*n + n - 1 are a permutation of their own. */
static void epochs_follow_without_a_gap(void **state)
{
    (void)state;
    enum { N = 10, BATCH = 4 };
    ech_sampler sampler;
    int seen[3][N] = {{0}};
    int same = 0;

    assert_ok(ech_sampler_init(&sampler, N, BATCH, 5));
    int64_t order[3 * N];
    for (int64_t p = 0; p < 3 * N; p++) {
        order[p] = ech_sampler_sample(&sampler, p / BATCH, p % BATCH);
        assert_int_equal(ech_sampler_epoch(&sampler, p / BATCH, p % BATCH), p / N);
        seen[p / N][order[p]]++;
    }
    for (int i = 0; i < 3 * N; i++)
        assert_int_equal(seen[i / N][i % N], 1);
    for (int i = 0; i < N; i++)
        same += order[i] == order[N + i];
    assert_in_range(same, 0, N - 1);
}

/* Over many seeds each image of 0 is about equally frequent, and neighbours are not kept. */
static void orders_look_random(void **state)
{
    (void)state;
    enum { N = 10, SEEDS = 10000 };
    int count[N] = {0};
    int neighbours = 0;
    double chi2 = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        count[ech_permute(seed, 0, N, 0)]++;
        neighbours += ech_permute(seed, 1, N, 5) == ech_permute(seed, 1, N, 4) + 1;
    }
    for (int i = 0; i < N; i++)
        chi2 += pow(count[i] - SEEDS / N, 2) / (SEEDS / N);
    assert_true(chi2 < 27.9);               /* 9 degrees of freedom, 0.1 % */
    assert_in_range(neighbours, 900, 1100); /* 9 of 90 ordered pairs: 1000 */
}

/* The order is part of what a run is: a change of these numbers breaks every resume. */
static void the_order_is_pinned(void **state)
{
    (void)state;
    static const int64_t wanted[8] = {822, 422, 886, 479, 533, 723, 522, 984};
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(ech_permute(1234, 2, 1000, i), wanted[i]);
}

static void evaluation_goes_in_order(void **state)
{
    (void)state;
    ech_sampler sampler;

    assert_ok(ech_sampler_init(&sampler, 5, 2, 0));
    sampler.in_order = true;
    for (int64_t p = 0; p < 12; p++)
        assert_int_equal(ech_sampler_sample(&sampler, p / 2, p % 2), p % 5);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    ech_sampler sampler;

    assert_fails(ech_sampler_init(&sampler, 0, 4, 1), ECH_E_DATA, "0 samples");
    assert_fails(ech_sampler_init(&sampler, 4, 0, 1), ECH_E_CONFIG, "0 sequences");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_permuted),
        cmocka_unit_test(huge_sizes_stay_inside),
        cmocka_unit_test(one_epoch_on_four_ranks_has_each_sample_once),
        cmocka_unit_test(epochs_follow_without_a_gap),
        cmocka_unit_test(orders_look_random),
        cmocka_unit_test(the_order_is_pinned),
        cmocka_unit_test(evaluation_goes_in_order),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
