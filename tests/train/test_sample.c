/* RUN: np=1 timeout=20 tags=fast */
/* The next token from logits: what may be drawn, how often, and that nothing else decides. */
#include "check.h"

#include "train/sample.h"

#include <math.h>

enum { N = 6, DRAWS = 20000 };

static const double logits[N] = {0.5, 2.0, -1.0, 2.0, 0.0, 1.0};

static int32_t draw(ech_sampling s, int64_t index)
{
    ech_candidate scratch[N];
    return ech_sample(&s, ECH_F64, logits, N, index, scratch);
}

/* Frequencies of DRAWS draws against weights, within four standard deviations; weight 0: never. */
static void check_frequencies(ech_sampling s, const double weight[N])
{
    int count[N] = {0};
    double total = 0.0;
    for (int i = 0; i < N; i++)
        total += weight[i];
    for (int64_t k = 0; k < DRAWS; k++)
        count[draw(s, k)]++;
    for (int i = 0; i < N; i++) {
        const double p = weight[i] / total;
        assert_near((double)count[i] / DRAWS, p, 4.0 * sqrt(p * (1.0 - p) / DRAWS));
    }
}

static void test_greedy_takes_the_lowest_of_equals(void **state)
{
    ech_sampling s = ech_sampling_default();
    (void)state;
    s.temperature = 0.0;
    assert_int_equal(ech_sample(&s, ECH_F64, logits, N, 0, NULL), 1);
    s.temperature = 1.0;
    s.top_k = 1;
    for (int64_t k = 0; k < 100; k++)
        assert_int_equal(draw(s, k), 1);
}

static void test_temperature(void **state)
{
    static const double temperatures[] = {0.3, 1.0, 4.0};
    (void)state;
    for (int t = 0; t < 3; t++) {
        double weight[N];
        ech_sampling s = ech_sampling_default();
        s.temperature = temperatures[t];
        for (int i = 0; i < N; i++)
            weight[i] = exp(logits[i] / temperatures[t]);
        check_frequencies(s, weight);
    }
}

static void test_top_k(void **state)
{
    double weight[N] = {0.0};
    ech_sampling s = ech_sampling_default();
    (void)state;
    s.top_k = 3;
    weight[1] = weight[3] = exp(2.0);
    weight[5] = exp(1.0);
    check_frequencies(s, weight);
    s.top_k = 2;
    weight[5] = 0.0;
    check_frequencies(s, weight);
    s.top_k = N + 3; /* all */
    for (int i = 0; i < N; i++)
        weight[i] = exp(logits[i]);
    check_frequencies(s, weight);
}

/* Sorted probabilities: 0.362 0.362 0.133 0.081 0.049 0.018; cumulated: 0.362 0.723 0.856 ... */
static void test_top_p(void **state)
{
    static const struct {
        double top_p;
        int kept;
    } cases[] = {{0.3, 1}, {0.4, 2}, {0.72, 2}, {0.73, 3}, {0.85, 3}, {0.99, 6}};
    static const int order[N] = {1, 3, 5, 0, 4, 2};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double weight[N] = {0.0};
        ech_sampling s = ech_sampling_default();
        s.top_p = cases[c].top_p;
        for (int i = 0; i < cases[c].kept; i++)
            weight[order[i]] = exp(logits[order[i]]);
        check_frequencies(s, weight);
    }
    ech_sampling both = ech_sampling_default();
    both.top_k = 3; /* of 0.422 0.422 0.155 the first two reach 0.8 */
    both.top_p = 0.8;
    const double weight[N] = {0.0, 1.0, 0.0, 1.0, 0.0, 0.0};
    check_frequencies(both, weight);
}

static void test_seed_and_index_decide(void **state)
{
    int differ[2] = {0, 0};
    ech_sampling s = ech_sampling_default();
    ech_sampling other = s;
    (void)state;
    other.seed = 2;
    for (int64_t k = 0; k < 200; k++) {
        assert_int_equal(draw(s, k), draw(s, k));
        differ[0] += draw(s, k) != draw(other, k);
        differ[1] += draw(s, k) != draw(s, k + 1);
    }
    assert_in_range(differ[0], 50, 199);
    assert_in_range(differ[1], 50, 199);
}

static void test_types_agree(void **state)
{
    float narrow[N];
    ech_candidate scratch[N];
    const ech_sampling s = ech_sampling_default();
    (void)state;
    for (int i = 0; i < N; i++)
        narrow[i] = (float)logits[i]; /* exact */
    for (int64_t k = 0; k < 200; k++)
        assert_int_equal(ech_sample(&s, ECH_F32, narrow, N, k, scratch), draw(s, k));
}

static void test_what_is_no_number(void **state)
{
    double x[N];
    ech_candidate scratch[N];
    ech_sampling s = ech_sampling_default();
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = i == 2 ? 1.0 : i % 2 ? NAN : -INFINITY;
    for (int64_t k = 0; k < 100; k++)
        assert_int_equal(ech_sample(&s, ECH_F64, x, N, k, scratch), 2);
    x[2] = NAN;
    assert_int_equal(ech_sample(&s, ECH_F64, x, N, 0, scratch), -1);
    x[4] = INFINITY;
    assert_int_equal(ech_sample(&s, ECH_F64, x, N, 0, scratch), -1);
    s.temperature = 0.0;
    assert_int_equal(ech_sample(&s, ECH_F64, x, N, 0, NULL), -1);
}

static void test_settings(void **state)
{
    static const struct {
        ech_sampling s;
        const char *words;
    } wrong[] = {
        {{-1.0, 0, 1.0, 1}, "temperature -1"},  {{NAN, 0, 1.0, 1}, "temperature"},
        {{INFINITY, 0, 1.0, 1}, "temperature"}, {{1.0, -2, 1.0, 1}, "top-k -2"},
        {{1.0, 0, 0.0, 1}, "top-p 0"},          {{1.0, 0, 1.5, 1}, "top-p 1.5"},
    };
    const ech_sampling good = ech_sampling_default();
    (void)state;
    assert_ok(ech_sampling_validate(&good));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_fails(ech_sampling_validate(&wrong[i].s), ECH_E_USAGE, wrong[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_seed_and_index_decide),
        cmocka_unit_test(test_types_agree),
        cmocka_unit_test(test_what_is_no_number),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
