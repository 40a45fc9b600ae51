/* RUN: np=1 timeout=60 tags=fast */
/* Generated schedules: an independent run of every table, closed forms of bubbles and of what is
 * held, and the size that a cluster asks for. */
#include "check.h"

#include "base/clock.h"
#include "program/schedule.h"

#include <stdlib.h>

enum { P_MAX = 6, M_MAX = 3 * P_MAX + 4, STAGES_MAX = 3 * P_MAX };

static const ech_schedule_costs equal = {.of = {1, 2, 1, 1}}; /* B = I + W */

static int cells_of(const ech_schedule *s)
{
    return s->first[s->ranks];
}

static ech_schedule make(ech_schedule_kind kind, int p, int m, int v, int group)
{
    const ech_schedule_spec spec = {
        .kind = kind, .ranks = p, .micros = m, .chunks = v, .group = group};
    ech_schedule s = {0};
    assert_ok(ech_schedule_make(&spec, &s));
    return s;
}

/* The makespan, found by passing over all ranks' next cells until nothing moves: what has ended is
 * looked up in a cube, nothing is shared with the library.  Fails where a cell comes twice, is on
 * the wrong rank or is never reached. */
static double run_by_hand(const ech_schedule *s, const double of[ECH_N_WORK_KINDS])
{
    static double ended[ECH_N_WORK_KINDS][STAGES_MAX][M_MAX]; /* -1: not yet */
    double now[P_MAX] = {0};
    int at[P_MAX];
    int left = cells_of(s);
    bool moved = true;
    for (int k = 0; k < ECH_N_WORK_KINDS; k++)
        for (int q = 0; q < s->stages; q++)
            for (int j = 0; j < s->micros; j++)
                ended[k][q][j] = -1;
    memcpy(at, s->first, (size_t)s->ranks * sizeof at[0]);
    while (moved) {
        moved = false;
        for (int r = 0; r < s->ranks; r++) {
            if (at[r] == s->first[r + 1])
                continue;
            const ech_work *w = &s->work[at[r]];
            double from = now[r];
            double other = 0;
            assert_in_range(w->stage, 0, s->stages - 1);
            assert_in_range(w->micro, 0, s->micros - 1);
            if (w->kind == ECH_WORK_FORWARD && w->stage > 0)
                other = ended[ECH_WORK_FORWARD][w->stage - 1][w->micro];
            if (w->kind == ECH_WORK_WEIGHT)
                other = ended[ECH_WORK_INPUT][w->stage][w->micro];
            if (w->kind == ECH_WORK_BACKWARD || w->kind == ECH_WORK_INPUT) {
                other = ended[ECH_WORK_FORWARD][w->stage][w->micro];
                if (other >= 0 && w->stage < s->stages - 1)
                    other = ended[w->kind][w->stage + 1][w->micro];
            }
            if (other < 0)
                continue;
            from = other > from ? other : from;
            assert_int_equal(s->rank_of[w->stage], r);
            assert_true(ended[w->kind][w->stage][w->micro] < 0);
            ended[w->kind][w->stage][w->micro] = now[r] = from + of[w->kind];
            at[r]++;
            left--;
            moved = true;
        }
    }
    assert_int_equal(left, 0);
    double last = 0;
    for (int r = 0; r < s->ranks; r++)
        last = now[r] > last ? now[r] : last;
    return last;
}

/* Cells of each kind come once a (stage, micro-batch), since none came twice, and of each stage in
 * the order of micro-batches. */
static void check_counts_and_order(const ech_schedule *s)
{
    int next[ECH_N_WORK_KINDS][STAGES_MAX] = {{0}};
    for (int r = 0; r < s->ranks; r++)
        for (int i = s->first[r]; i < s->first[r + 1]; i++) {
            const ech_work *w = &s->work[i];
            assert_int_equal(w->micro, next[w->kind][w->stage]++);
            assert_int_equal(w->column, i - s->first[r] + 1);
        }
    for (int q = 0; q < s->stages; q++) {
        assert_int_equal(next[ECH_WORK_FORWARD][q], s->micros);
        assert_int_equal(next[ECH_WORK_BACKWARD][q], s->is_split ? 0 : s->micros);
        assert_int_equal(next[ECH_WORK_INPUT][q], s->is_split ? s->micros : 0);
        assert_int_equal(next[ECH_WORK_WEIGHT][q], s->is_split ? s->micros : 0);
    }
}

static double makespan(const ech_schedule *s, const ech_schedule_costs *costs)
{
    double *begin = calloc((size_t)cells_of(s), sizeof *begin);
    double *end = calloc((size_t)cells_of(s), sizeof *end);
    ech_status st;
    const double last = ech_schedule_times(s, costs, begin, end, &st);
    assert_ok(st);
    free(begin);
    free(end);
    return last;
}

/* All that is asked of every table; returns its makespan at F = I = W = 1, B = 2. */
static double check_table(const ech_schedule *s)
{
    static const ech_schedule_costs uneven = {.of = {3, 7, 5, 2}};
    check_counts_and_order(s);
    assert_ok(ech_schedule_check(s));
    assert_near(makespan(s, &uneven), run_by_hand(s, uneven.of), 0);
    const double span = run_by_hand(s, equal.of);
    assert_near(makespan(s, &equal), span, 0);
    ech_status st;
    const double work = 3.0 * s->stages * s->micros;
    assert_near(ech_schedule_bubble(s, &equal, &st), 1 - work / (s->ranks * span), 1e-14);
    assert_ok(st);
    return span;
}

/* F to B or I, and F to W, counted by hand at every cell. */
static void count_live(const ech_schedule *s, int rank, int *saved, int *both)
{
    *saved = *both = 0;
    for (int end = s->first[rank]; end < s->first[rank + 1]; end++) {
        int n[ECH_N_WORK_KINDS] = {0};
        for (int i = s->first[rank]; i <= end; i++)
            n[s->work[i].kind]++;
        const int a = n[ECH_WORK_FORWARD] - n[ECH_WORK_BACKWARD] - n[ECH_WORK_INPUT];
        const int b = n[ECH_WORK_FORWARD] - n[ECH_WORK_BACKWARD] - n[ECH_WORK_WEIGHT];
        *saved = a > *saved ? a : *saved;
        *both = b > *both ? b : *both;
    }
    const ech_schedule_live live = ech_schedule_live_of(s, rank);
    assert_int_equal(live.saved, *saved);
    assert_int_equal(live.both, *both);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void test_gpipe_1f1b(void **state)
{
    (void)state;
    for (int p = 1; p <= P_MAX; p++)
        for (int m = 1; m <= 3 * p; m++)
            for (int k = 0; k < 2; k++) {
                const bool is_gpipe = k == 1;
                ech_schedule s =
                    make(is_gpipe ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B, p, m, 1, 0);
                ech_status st;
                check_table(&s);
                assert_near(ech_schedule_bubble(&s, &equal, &st), (p - 1.0) / (m + p - 1), 1e-14);
                assert_ok(st);
                for (int r = 0; r < p; r++) {
                    int saved;
                    int both;
                    count_live(&s, r, &saved, &both);
                    assert_int_equal(saved, is_gpipe ? m : least(m, p - r));
                }
                ech_schedule_fini(&s);
            }
}

static void test_interleaved(void **state)
{
    (void)state;
    for (int p = 1; p <= P_MAX; p++)
        for (int v = 1; v <= 3; v++)
            for (int g = p; g <= 2 * p; g++)
                for (int m = 1; m <= 3 * p; m++) {
                    if (v > 1 && m % g && m % g < p)
                        continue;
                    ech_schedule s = make(ECH_SCHEDULE_INTERLEAVED, p, m, v, g == p ? 0 : g);
                    assert_near(check_table(&s), 3.0 * (m * v + p - 1), 0);
                    for (int r = 0; r < p; r++) {
                        int saved;
                        int both;
                        count_live(&s, r, &saved, &both);
                        const int warm = v == 1 ? p - r : (v - 1) * g + 2 * (p - 1 - r) + 1;
                        assert_int_equal(saved, least(m * v, warm));
                    }
                    ech_schedule_fini(&s);
                }
}

static void test_zb_h1(void **state)
{
    (void)state;
    for (int p = 1; p <= P_MAX; p++)
        for (int m = 1; m <= 3 * p; m++) {
            ech_schedule s = make(ECH_SCHEDULE_ZB_H1, p, m, 1, 0);
            const double idle = check_table(&s) - 3 * m;
            assert_near(idle, p - 1 + (m < p ? p - m : 0), 0);
            for (int r = 0; r < p; r++) {
                int saved;
                int both;
                count_live(&s, r, &saved, &both);
                assert_int_equal(saved, least(m, p - r));
                assert_true(both <= least(m, p));
            }
            ech_schedule_fini(&s);
        }
}

/* Idle time between a rank's first and last cell. */
static double idle_within(const ech_schedule *s, int rank)
{
    const int cells = cells_of(s);
    double *begin = calloc((size_t)cells, sizeof *begin);
    double *end = calloc((size_t)cells, sizeof *end);
    ech_status st;
    (void)ech_schedule_times(s, &equal, begin, end, &st);
    assert_ok(st);
    const int n = s->first[rank + 1] - s->first[rank];
    const double idle = end[s->first[rank + 1] - 1] - begin[s->first[rank]] - n;
    free(begin);
    free(end);
    return idle;
}

static void test_zb_v(void **state)
{
    (void)state;
    for (int p = 1; p <= P_MAX; p++)
        for (int m = 1; m <= 3 * p; m++) {
            ech_schedule s = make(ECH_SCHEDULE_ZB_V, p, m, 1 + m % 2, 0);
            const double idle = check_table(&s) - 6 * m;
            if (m == p || m >= 2 * p - 1) /* the last rank cannot begin before p - 1 */
                assert_near(idle, p - 1, 0);
            else if (m == 1) /* down the V and back, twice, and the last W */
                assert_near(idle + 6, 4 * p + 1, 0);
            else if (m < p)
                assert_true(idle + 6 * m <= 4 * p + 1 + 4 * (m - 1));
            else
                assert_true(idle <= p - 1 + 2 * p - 1 - m);
            for (int r = 0; r < p; r++) {
                int saved;
                int both;
                count_live(&s, r, &saved, &both);
                assert_true(both <= least(2 * m, 2 * p));
                if (m >= 2 * p - 1)
                    assert_near(idle_within(&s, r), 0, 0);
                if (m >= 2 * p)
                    assert_int_equal(both, 2 * p);
                assert_int_equal(s.rank_of[r], r);
                assert_int_equal(s.rank_of[2 * p - 1 - r], r);
            }
            ech_schedule_fini(&s);
        }
}

static void assert_cells(const ech_schedule *s, int rank, const char *wanted)
{
    char list[512] = "";
    for (int i = s->first[rank]; i < s->first[rank + 1]; i++) {
        char cell[40];
        strcat(list, ech_work_format(&s->work[i], cell, sizeof cell));
        strcat(list, i + 1 < s->first[rank + 1] ? " " : "");
    }
    assert_string_equal(list, wanted);
}

/* Small tables, written out by hand. */
static void test_small(void **state)
{
    (void)state;
    ech_schedule s = make(ECH_SCHEDULE_1F1B, 2, 3, 1, 0);
    assert_cells(&s, 0, "0F0 0F1 0B0 0F2 0B1 0B2");
    assert_cells(&s, 1, "1F0 1B0 1F1 1B1 1F2 1B2");
    ech_schedule_fini(&s);
    s = make(ECH_SCHEDULE_INTERLEAVED, 2, 2, 2, 0);
    assert_cells(&s, 0, "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1");
    assert_cells(&s, 1, "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1");
    ech_schedule_fini(&s);
    s = make(ECH_SCHEDULE_ZB_H1, 1, 2, 1, 0);
    assert_cells(&s, 0, "0F0 0I0 0W0 0F1 0I1 0W1");
    ech_schedule_fini(&s);
    s = make(ECH_SCHEDULE_ZB_H1, 2, 3, 1, 0);
    assert_cells(&s, 0, "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2");
    assert_cells(&s, 1, "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2");
    ech_schedule_fini(&s);
    s = make(ECH_SCHEDULE_ZB_V, 2, 1, 2, 0);
    assert_cells(&s, 0, "0F0 3F0 3I0 3W0 0I0 0W0");
    assert_cells(&s, 1, "1F0 2F0 2I0 1I0 1W0 2W0");
    ech_schedule_fini(&s);
}

static void test_names(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_SCHEDULE_FILE; k++)
        assert_int_equal(ech_schedule_kind_of(ech_schedule_name((ech_schedule_kind)k)), k);
    assert_int_equal(ech_schedule_kind_of("tables/zb-v.csv"), ECH_SCHEDULE_FILE);
    assert_int_equal(ech_schedule_chunks(ECH_SCHEDULE_ZB_V, 1), 2);
    assert_int_equal(ech_schedule_chunks(ECH_SCHEDULE_INTERLEAVED, 3), 3);
    assert_int_equal(ech_schedule_chunks(ECH_SCHEDULE_INTERLEAVED, 0), 1);
    assert_int_equal(ech_schedule_chunks(ECH_SCHEDULE_GPIPE, 3), 1);
    assert_int_equal(ech_schedule_place(ECH_SCHEDULE_INTERLEAVED, 3, 7), 1);
    assert_int_equal(ech_schedule_place(ECH_SCHEDULE_ZB_V, 3, 4), 1);
}

static void test_illegal(void **state)
{
    static const struct {
        ech_schedule_spec spec;
        const char *words;
    } rows[] = {
        {{ECH_SCHEDULE_INTERLEAVED, 4, 9, 2, 0},
         "9 micro-batches in groups of 4 leave 1, fewer than the 4 pipeline ranks; nearest legal "
         "number: 8 (legal neighbours: 8 and 12)"},
        {{ECH_SCHEDULE_INTERLEAVED, 4, 11, 2, 0},
         "nearest legal number: 12 (legal neighbours: 8 "
         "and 12)"},
        {{ECH_SCHEDULE_INTERLEAVED, 3, 8, 2, 7},
         "nearest legal number: 7 (legal neighbours: 7 and "
         "10)"},
        {{ECH_SCHEDULE_INTERLEAVED, 4, 3, 2, 0}, "nearest legal number: 4"},
        {{ECH_SCHEDULE_INTERLEAVED, 4, 8, 2, 3}, "nearest legal group: 4"},
        {{ECH_SCHEDULE_1F1B, 4, 8, 2, 0}, "2 virtual stages of a rank; nearest legal number: 1"},
        {{ECH_SCHEDULE_ZB_V, 4, 8, 3, 0}, "3 virtual stages of a rank; nearest legal number: 2"},
        {{ECH_SCHEDULE_GPIPE, 0, 8, 1, 0}, "0 pipeline ranks; nearest legal number: 1"},
        {{ECH_SCHEDULE_GPIPE, 4, 0, 1, 0}, "0 micro-batches; nearest legal number: 1"},
        {{ECH_SCHEDULE_GPIPE, 1 << 30, 8, 1, 0}, "more than can be listed"},
        {{ECH_SCHEDULE_INTERLEAVED, 0x7fffffff, 1, 0x7fffffff, 0}, "more than can be listed"},
        {{ECH_SCHEDULE_GPIPE, 64, 1 << 30, 1, 0}, "nearest legal number: 11184810"},
        {{ECH_SCHEDULE_FILE, 4, 8, 1, 0}, "read, not generated"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_schedule s = {0};
        assert_fails(ech_schedule_make(&rows[i].spec, &s), ECH_E_ILLEGAL, rows[i].words);
        assert_null(s.work);
    }
    /* Every number of micro-batches: legal, or between two that are, the nearer one named. */
    for (int m = 1; m < 40; m++) {
        const ech_schedule_spec spec = {ECH_SCHEDULE_INTERLEAVED, 4, m, 2, 6};
        const bool is_legal = m % 6 == 0 || m % 6 >= 4;
        ech_schedule s = {0};
        char words[80];
        const int below = m / 6 * 6;
        const int above = below + 4;
        (void)snprintf(words, sizeof words, "nearest legal number: %d",
                       below > 0 && m - below <= above - m ? below : above);
        if (is_legal)
            assert_ok(ech_schedule_make(&spec, &s));
        else
            assert_fails(ech_schedule_make(&spec, &s), ECH_E_ILLEGAL, words);
        ech_schedule_fini(&s);
    }
}

/* Two ranks, one micro-batch, unequal stages: every begin and end by hand. */
static void test_times(void **state)
{
    static const double factor[] = {1, 10};
    static const ech_schedule_costs costs = {.of = {2, 5, 3, 4}, .stage = factor, .hop = 0.5};
    static const double begins[] = {0, 73, 2.5, 22.5}; /* 0F0 0B0 1F0 1B0 */
    static const double ends[] = {2, 78, 22.5, 72.5};
    double begin[4];
    double end[4];
    ech_status st;
    (void)state;
    ech_schedule s = make(ECH_SCHEDULE_1F1B, 2, 1, 1, 0);
    assert_near(ech_schedule_times(&s, &costs, begin, end, &st), 78, 0);
    assert_ok(st);
    for (int i = 0; i < 4; i++) {
        assert_near(begin[i], begins[i], 0);
        assert_near(end[i], ends[i], 0);
    }
    ech_schedule_fini(&s);
}

/* The same table, each stage's work with a time of its own: the backward of the first is not that of
 * the last times a factor. */
static void test_times_of_each(void **state)
{
    static const double forward[] = {2, 20};
    static const double backward[] = {7, 50};
    static const double begins[] = {0, 73, 2.5, 22.5};
    static const double ends[] = {2, 80, 22.5, 72.5};
    const ech_schedule_costs costs = {
        .each = {[ECH_WORK_FORWARD] = forward, [ECH_WORK_BACKWARD] = backward}, .hop = 0.5};
    double begin[4];
    double end[4];
    ech_status st;
    (void)state;
    ech_schedule s = make(ECH_SCHEDULE_1F1B, 2, 1, 1, 0);
    assert_near(ech_schedule_times(&s, &costs, begin, end, &st), 80, 0);
    assert_ok(st);
    for (int i = 0; i < 4; i++) {
        assert_near(begin[i], begins[i], 0);
        assert_near(end[i], ends[i], 0);
    }
    ech_schedule_fini(&s);
}

static void test_forwards(void **state)
{
    (void)state;
    ech_schedule s = make(ECH_SCHEDULE_ZB_V, 2, 2, 2, 0);
    ech_schedule f = {0};
    char where[128];
    assert_ok(ech_schedule_forwards(&s, &f));
    assert_ok(ech_schedule_check(&f));
    assert_cells(&f, 0, "0F0 0F1 3F0 3F1");
    assert_cells(&f, 1, "1F0 2F0 1F1 2F1");
    assert_true(f.is_forward_only && !f.is_split);
    assert_string_equal(f.name, "zb-v");
    assert_int_equal(ech_schedule_live_of(&f, 1).saved, 4);
    assert_int_equal(ech_schedule_live_of(&f, 1).at, 7);
    assert_string_equal(ech_schedule_where(&s, s.first[1] + 1, where, sizeof where),
                        "rank 1, cell 2 (2F0)");
    ech_schedule_fini(&f);
    ech_schedule_fini(&s);
}

/* All of it, in memory of its own: read from a file, so that lines are told too. */
static void test_copy(void **state)
{
    (void)state;
    static const char text[] = "# two\n0F0,,,0I0,0W0\n,1F0,1B0\n";
    ech_schedule s = {0};
    ech_schedule c = {0};
    char where[128];
    assert_ok(ech_schedule_read(text, sizeof text - 1, "a.csv", &s));
    assert_ok(ech_schedule_copy(&s, &c));
    ech_schedule_fini(&s);
    assert_ok(ech_schedule_check(&c));
    assert_cells(&c, 0, "0F0 0I0 0W0");
    assert_cells(&c, 1, "1F0 1B0");
    assert_true(c.is_split && !c.is_forward_only);
    assert_int_equal(c.ranks, 2);
    assert_int_equal(c.stages, 2);
    assert_int_equal(c.micros, 1);
    assert_int_equal(c.rank_of[1], 1);
    assert_string_equal(c.name, "a.csv");
    assert_string_equal(ech_schedule_where(&c, 4, where, sizeof where), "a.csv:3:3 (1B0)");
    ech_schedule_fini(&c);
}

/* Generated, checked and timed in less than a second each: 64 ranks, 4096 micro-batches. */
static void test_size(void **state)
{
    static const ech_schedule_spec specs[] = {
        {ECH_SCHEDULE_1F1B, 64, 4096, 1, 0},        {ECH_SCHEDULE_GPIPE, 64, 4096, 1, 0},
        {ECH_SCHEDULE_INTERLEAVED, 64, 4096, 4, 0}, {ECH_SCHEDULE_ZB_H1, 64, 4096, 1, 0},
        {ECH_SCHEDULE_ZB_V, 64, 4096, 2, 0},        {ECH_SCHEDULE_ZB_V, 512, 512, 2, 0}};
    (void)state;
    for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++) {
        ech_schedule s = {0};
        const double t0 = ech_clock_cpu_s();
        assert_ok(ech_schedule_make(&specs[k], &s));
        const double t1 = ech_clock_cpu_s();
        assert_ok(ech_schedule_check(&s));
        const double t2 = ech_clock_cpu_s();
        const double span = makespan(&s, &equal);
        const double t3 = ech_clock_cpu_s();
        printf("%-11s %d x %d: %d cells, made in %.3f s, checked in %.3f s, timed in %.3f s\n",
               s.name, s.ranks, s.micros, cells_of(&s), t1 - t0, t2 - t1, t3 - t2);
        assert_true(span >= 3.0 * s.micros * s.stages / s.ranks + s.ranks - 1);
#ifndef __SANITIZE_ADDRESS__
        assert_true(t1 - t0 < 1 && t2 - t1 < 1 && t3 - t2 < 1);
#endif
        ech_schedule_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpipe_1f1b),    cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_zb_h1),         cmocka_unit_test(test_zb_v),
        cmocka_unit_test(test_small),         cmocka_unit_test(test_names),
        cmocka_unit_test(test_illegal),       cmocka_unit_test(test_times),
        cmocka_unit_test(test_times_of_each), cmocka_unit_test(test_forwards),
        cmocka_unit_test(test_copy),          cmocka_unit_test(test_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
