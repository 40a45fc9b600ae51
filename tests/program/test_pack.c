/* RUN: np=1 timeout=20 tags=fast */
/* Packing of lifetimes on random inputs, judged by brute force. */
#include "base/rng.h"
#include "check.h"
#include "program/pack.h"

#include <stdlib.h>

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    const ech_rng_key key = ech_rng_key_make(11, ECH_RNG_TEST, 0, 0);
    return ech_rng_u32(&key, drawn++) % below;
}

static size_t rounded(const ech_pack_item *it, size_t align)
{
    return (it->bytes + align - 1) / align * align;
}

static size_t peak_by_counting(const ech_pack_item *it, int n, int times, size_t align)
{
    size_t most = 0;
    for (int t = 0; t < times; t++) {
        size_t live = 0;
        for (int i = 0; i < n; i++)
            live += it[i].first <= t && t <= it[i].last ? rounded(&it[i], align) : 0;
        most = live > most ? live : most;
    }
    return most;
}

static void check_packing(ech_pack_item *it, int n, int times, size_t align)
{
    size_t arena;
    size_t peak;
    size_t highest = 0;
    size_t sum = 0;
    assert_ok(ech_pack(it, n, align, &arena, &peak));
    for (int i = 0; i < n; i++) {
        const size_t end = it[i].offset + rounded(&it[i], align);
        assert_int_equal(it[i].offset % align, 0);
        highest = end > highest ? end : highest;
        sum += rounded(&it[i], align);
        for (int k = 0; k < i; k++) {
            const bool in_time = it[i].first <= it[k].last && it[k].first <= it[i].last;
            const bool in_space =
                it[i].offset < it[k].offset + rounded(&it[k], align) && it[k].offset < end;
            if (in_time && in_space && it[i].bytes && it[k].bytes)
                fail_msg("items %d and %d share bytes and time (drawn %llu)", i, k,
                         (unsigned long long)drawn);
        }
    }
    assert_int_equal(peak, peak_by_counting(it, n, times, align));
    assert_true(arena >= peak && arena <= sum);
    assert_true(arena == highest);
}

static void random_items(ech_pack_item *it, int n, int times, uint32_t most_bytes)
{
    for (int i = 0; i < n; i++) {
        const int first = (int)draw((uint32_t)times);
        it[i] = (ech_pack_item){draw(most_bytes + 1), first,
                                first + (int)draw((uint32_t)(times - first)), SIZE_MAX};
    }
}

static void test_random_lives_never_meet(void **state)
{
    ech_pack_item it[60];
    (void)state;
    for (int round = 0; round < 600; round++) {
        const int n = 1 + (int)draw(60);
        const int times = 1 + (int)draw(40);
        random_items(it, n, times, round % 3 ? 1000 : 5);
        check_packing(it, n, times, (size_t)1 << draw(8));
    }
}

/* Last in, first out, as forward and backward: nothing is lost. */
static void test_nested_lives_lose_nothing(void **state)
{
    ech_pack_item it[50];
    size_t arena;
    size_t peak;
    (void)state;
    for (int i = 0; i < 50; i++)
        it[i] = (ech_pack_item){64 * (1 + draw(30)), i, 99 - i, 0};
    assert_ok(ech_pack(it, 50, 64, &arena, &peak));
    assert_int_equal(arena, peak);
}

/* Micro-batches in turn: each run of lives lies where it would lie alone, the highest decides. */
static void test_runs_of_lives_lie_as_if_alone(void **state)
{
    enum { RUNS = 12, EACH = 40, TIMES = 30 };
    ech_pack_item it[RUNS * EACH];
    ech_pack_item alone[EACH];
    size_t highest = 0;
    size_t arena;
    size_t peak;
    (void)state;
    for (int r = 0; r < RUNS; r++) {
        random_items(it + r * EACH, EACH, TIMES, r % 2 ? 1000 : 30);
        for (int i = r * EACH; i < (r + 1) * EACH; i++) {
            it[i].first += r * TIMES;
            it[i].last += r * TIMES;
        }
    }
    check_packing(it, RUNS * EACH, RUNS * TIMES, 64);
    for (int r = 0; r < RUNS; r++) {
        memcpy(alone, it + r * EACH, sizeof alone);
        assert_ok(ech_pack(alone, EACH, 64, &arena, &peak));
        highest = arena > highest ? arena : highest;
    }
    assert_ok(ech_pack(it, RUNS * EACH, 64, &arena, &peak));
    assert_true(arena >= peak && (double)arena <= 1.02 * (double)highest);
}

/* A pipeline: `kept` sets of three sizes in turn, first in, first out, and what lives for an item or
 * two between them.  Whatever the number of micro-batches, nothing is lost. */
static void test_sets_in_turn_lose_nothing(void **state)
{
    enum { MICROS = 3000, EACH = 6, TIMES = 10 };
    static const int kepts[] = {1, 2, 7, 40};
    ech_pack_item *it = malloc(sizeof *it * MICROS * EACH);
    size_t arena;
    size_t peak;
    (void)state;
    for (int k = 0; k < 4; k++) {
        const int age = TIMES * kepts[k] - 5; /* forward at 0..4, backward at 5..9 */
        for (int m = 0; m < MICROS; m++) {
            const int at = m * TIMES;
            const ech_pack_item set[EACH] = {
                {4096, at, at + age + 2, 0},  {20800, at + 1, at + age + 1, 0},
                {28736, at + 3, at + age, 0}, {24576, at + 2, at + 2, 0},
                {16384, at + 5, at + 6, 0},   {4096, at + 5, at + 7, 0}};
            memcpy(it + (size_t)m * EACH, set, sizeof set);
        }
        assert_ok(ech_pack(it, MICROS * EACH, 64, &arena, &peak));
        assert_int_equal(arena, peak);
    }
    free(it);
}

static void test_lives_one_after_the_other_share(void **state)
{
    ech_pack_item it[20];
    size_t arena;
    size_t peak;
    (void)state;
    for (int i = 0; i < 20; i++)
        it[i] = (ech_pack_item){100, i, i, 0};
    assert_ok(ech_pack(it, 20, 64, &arena, &peak));
    assert_int_equal(arena, 128);
    assert_int_equal(peak, 128);
}

static void test_touching_ends_do_not_share(void **state)
{
    ech_pack_item it[2] = {{64, 0, 5, 0}, {64, 5, 9, 0}};
    size_t arena;
    size_t peak;
    (void)state;
    assert_ok(ech_pack(it, 2, 64, &arena, &peak));
    assert_int_equal(arena, 128);
}

static void test_same_input_same_offsets(void **state)
{
    ech_pack_item a[60];
    ech_pack_item b[60];
    size_t arena[2];
    size_t peak[2];
    (void)state;
    random_items(a, 60, 30, 500);
    memcpy(b, a, sizeof b);
    assert_ok(ech_pack(a, 60, 64, &arena[0], &peak[0]));
    assert_ok(ech_pack(b, 60, 64, &arena[1], &peak[1]));
    for (int i = 0; i < 60; i++)
        assert_int_equal(a[i].offset, b[i].offset);
    assert_int_equal(arena[0], arena[1]);
}

static void test_nothing_to_pack(void **state)
{
    size_t arena = 1;
    size_t peak = 1;
    ech_pack_item empty = {0, 0, 3, 7};
    (void)state;
    assert_ok(ech_pack(NULL, 0, 64, &arena, &peak));
    assert_int_equal(arena, 0);
    assert_int_equal(peak, 0);
    assert_ok(ech_pack(&empty, 1, 64, &arena, &peak));
    assert_int_equal(arena, 0);
    assert_int_equal(empty.offset, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lives_never_meet),
        cmocka_unit_test(test_nested_lives_lose_nothing),
        cmocka_unit_test(test_runs_of_lives_lie_as_if_alone),
        cmocka_unit_test(test_sets_in_turn_lose_nothing),
        cmocka_unit_test(test_lives_one_after_the_other_share),
        cmocka_unit_test(test_touching_ends_do_not_share),
        cmocka_unit_test(test_same_input_same_offsets),
        cmocka_unit_test(test_nothing_to_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
