/* RUN: np=1 timeout=20 tags=fast */
/* The map of byte ranges against one that keeps every byte by itself. */
#include "base/rng.h"
#include "check.h"
#include "program/interval.h"

#include <stdlib.h>

enum { BYTES = 4000, CALLS = 4000, FRESH = -7 };

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    const ech_rng_key key = ech_rng_key_make(12, ECH_RNG_TEST, 0, 0);
    return ech_rng_u32(&key, drawn++) % below;
}

/* Segments are in order, disjoint and not empty, and say of every byte what it was told last. */
static void check_whole(const ech_interval_map *m, const int *wanted)
{
    ech_interval_at at = {0, 0};
    const ech_bytes_segment *s;
    size_t end = 0;
    while ((s = ech_interval_next(m, &at)) != NULL) {
        assert_true(s->begin >= end && s->end > s->begin);
        for (; end < s->begin; end++)
            assert_int_equal(wanted[end], 0);
        for (; end < s->end; end++)
            assert_int_equal(wanted[end], s->value[0]);
    }
    for (; end < BYTES; end++)
        assert_int_equal(wanted[end], 0);
}

/* Covers [begin, end), checks that the segments say so, and tells all of them `value`. */
static void cover(ech_interval_map *m, int *wanted, size_t begin, size_t end, int value)
{
    static const int fresh[3] = {FRESH, 1, 2};
    ech_interval_at at;
    int n;
    size_t to = begin;
    assert_ok(ech_interval_cover(m, begin, end, fresh, &at, &n));
    for (; n > 0; n--) {
        ech_bytes_segment *s = ech_interval_next(m, &at);
        assert_int_equal(s->begin, to);
        assert_true(s->end > to && s->end <= end);
        for (; to < s->end; to++)
            assert_int_equal(s->value[0], wanted[to] ? wanted[to] : FRESH);
        s->value[0] = value;
    }
    assert_int_equal(to, begin >= end ? begin : end);
    for (to = begin; to < end; to++)
        wanted[to] = value;
}

/* Short ranges make many chunks, long ones run over their borders. */
static void test_random_ranges(void **state)
{
    static const uint32_t lengths[] = {1, 3, 40, BYTES};
    (void)state;
    for (int l = 0; l < 4; l++) {
        ech_interval_map m = {0};
        int *wanted = calloc(BYTES, sizeof *wanted);
        for (int i = 1; i <= CALLS; i++) {
            const size_t begin = draw(BYTES);
            const size_t most = i % 16 ? lengths[l] : BYTES;
            size_t end = begin + draw((uint32_t)most + 1);
            end = end < BYTES ? end : BYTES;
            cover(&m, wanted, begin, end, i);
            if (i % 100 == 0)
                check_whole(&m, wanted);
        }
        assert_true(l > 1 || m.n_chunks > 8);
        ech_interval_fini(&m);
        free(wanted);
    }
}

/* From the front, from the back, and between what is there. */
static void test_orders_of_arrival(void **state)
{
    (void)state;
    for (int order = 0; order < 3; order++) {
        ech_interval_map m = {0};
        int *wanted = calloc(BYTES, sizeof *wanted);
        for (int i = 0; i < 1000; i++) {
            const int turned = i % 2 ? i / 2 : 999 - i / 2;
            const size_t at = 4 * (size_t)(order == 0 ? i : order == 1 ? 999 - i : turned);
            cover(&m, wanted, at, at + 3, i + 1);
        }
        check_whole(&m, wanted);
        cover(&m, wanted, 0, BYTES, 5);
        check_whole(&m, wanted);
        ech_interval_fini(&m);
        free(wanted);
    }
}

static void test_an_empty_range_has_no_segment(void **state)
{
    static const int fresh[3] = {0, 0, 0};
    ech_interval_map m = {0};
    ech_interval_at at = {0, 0};
    int n = 1;
    (void)state;
    assert_null(ech_interval_next(&m, &at));
    assert_ok(ech_interval_cover(&m, 5, 5, fresh, &at, &n));
    assert_int_equal(n, 0);
    assert_null(ech_interval_next(&m, &at));
    ech_interval_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_ranges),
        cmocka_unit_test(test_orders_of_arrival),
        cmocka_unit_test(test_an_empty_range_has_no_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
