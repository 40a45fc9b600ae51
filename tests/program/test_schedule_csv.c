/* RUN: np=1 timeout=20 tags=fast */
/* Tables in files: what is written reads back the same, and every fault is named by its cell. */
#include "check.h"

#include "program/schedule.h"

#include <stdlib.h>

static void assert_same(const ech_schedule *a, const ech_schedule *b)
{
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->micros, b->micros);
    assert_int_equal(a->is_split, b->is_split);
    assert_memory_equal(a->rank_of, b->rank_of, (size_t)a->stages * sizeof *a->rank_of);
    assert_memory_equal(a->first, b->first, ((size_t)a->ranks + 1) * sizeof *a->first);
    for (int i = 0; i < a->first[a->ranks]; i++) {
        assert_int_equal(a->work[i].kind, b->work[i].kind);
        assert_int_equal(a->work[i].stage, b->work[i].stage);
        assert_int_equal(a->work[i].micro, b->work[i].micro);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_SCHEDULE_FILE; k++)
        for (int p = 1; p <= 4; p++)
            for (int m = p; m <= 3 * p; m += p) {
                const ech_schedule_kind kind = (ech_schedule_kind)k;
                const ech_schedule_spec spec = {
                    .kind = kind, .ranks = p, .micros = m, .chunks = ech_schedule_chunks(kind, 2)};
                ech_schedule made = {0};
                ech_schedule read = {0};
                ech_text text = {0};
                assert_ok(ech_schedule_make(&spec, &made));
                assert_ok(ech_schedule_write(&made, &text));
                assert_ok(ech_schedule_read(text.data, text.bytes, "t.csv", &read));
                assert_same(&made, &read);
                assert_string_equal(read.name, "t.csv");
                assert_int_equal(read.line[p - 1], p);
                ech_text_fini(&text);
                ech_schedule_fini(&made);
                ech_schedule_fini(&read);
            }
}

/* Cells stand in the column of their time. */
static void test_written(void **state)
{
    const ech_schedule_spec spec = {.kind = ECH_SCHEDULE_1F1B, .ranks = 2, .micros = 2};
    ech_schedule s = {0};
    ech_text text = {0};
    (void)state;
    assert_ok(ech_schedule_make(&spec, &s));
    assert_ok(ech_schedule_write(&s, &text));
    assert_string_equal(ech_text_get(&text), "0F0,0F1,,0B0,,0B1\n"
                                             ",1F0,1B0,1F1,1B1\n");
    ech_text_fini(&text);
    ech_schedule_fini(&s);
}

static ech_status read_text(const char *text, ech_schedule *s)
{
    return ech_schedule_read(text, strlen(text), "t.csv", s);
}

/* Comments, blank lines, CRLF, spaces, a byte order mark; ranks with different numbers of stages; I
 * and W beside B. */
static void test_accepted(void **state)
{
    static const char text[] = "\xef\xbb\xbf# two ranks\r\n"
                               "0F0, 2F0 ,,2B0,0B0,\r\n"
                               "\r\n"
                               "  # the second\r\n"
                               "\t,1F0,,,1I0,1W0";
    ech_schedule s = {0};
    char where[160];
    (void)state;
    assert_ok(read_text(text, &s));
    assert_int_equal(s.ranks, 2);
    assert_int_equal(s.stages, 3);
    assert_int_equal(s.micros, 1);
    assert_true(s.is_split);
    assert_int_equal(s.rank_of[0], 0);
    assert_int_equal(s.rank_of[1], 1);
    assert_int_equal(s.rank_of[2], 0);
    assert_string_equal(ech_schedule_where(&s, 2, where, sizeof where), "t.csv:2:4 (2B0)");
    assert_string_equal(ech_schedule_where(&s, 6, where, sizeof where), "t.csv:5:6 (1W0)");
    ech_schedule_fini(&s);
}

/* Each text is refused with exactly this. */
static void test_refused(void **state)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "t.csv: the table has no cell"},
        {"# nothing\n\n", "t.csv: the table has no cell"},
        {"0F0,0F\n0G0,0f0\n",
         "t.csv:1:2: '0F' is no cell; wanted <stage><F|B|I|W><micro-batch>, such as 3B12, or "
         "nothing\n"
         "t.csv:2:1: '0G0' is no cell; wanted <stage><F|B|I|W><micro-batch>, such as 3B12, or "
         "nothing\n"
         "t.csv:2:2: '0f0' is no cell; wanted <stage><F|B|I|W><micro-batch>, such as 3B12, or "
         "nothing"},
        {"0F0,0B0\n,,\n", "t.csv:2: pipeline rank 1 does nothing"},
        {"0F0,0B99999999999999999999\n",
         "t.csv:1:2: micro-batch 2147483647 or more in a table of 2 cells: numbers count from 0 "
         "without gaps"},
        {"0F0,7B0\n",
         "t.csv:1:2: stage 7 in a table of 2 cells: numbers count from 0 without gaps"},
        /* missing, twice, of a stage with no line */
        {"0F0,0F1,0B0\n", "t.csv:1: 0B1 is missing"},
        {"0F0,0F1,0I0,0I1,0W1\n", "t.csv:1: 0W0 is missing"},
        {"0F0,0W0\n", "t.csv:1: 0I0 is missing"},
        {"0B0,0F1,0B1\n", "t.csv:1: 0F0 is missing"},
        {"0F0,,0F0,0B0\n", "t.csv:1:3 (0F0) is there already: t.csv:1:1 (0F0)"},
        {"0F0,0B0,0I0,0W0\n",
         "t.csv:1:3 (0I0) would be the second backward, after t.csv:1:2 (0B0)"},
        {"0F0,0B0,0W0\n", "t.csv:1:3 (0W0) is a part of t.csv:1:2 (0B0)"},
        {"0F0,2F0,2B0,0B0\n", "t.csv: 1F0 is missing\nt.csv: 1B0 is missing"},
        {"0F0,0F1,0B0,0B1\n1F0,1B0\n2F0,2F1,2B1\n",
         "t.csv:2: 1F1 is missing\nt.csv:2: 1B1 is missing\nt.csv:3: 2B0 is missing"},
        {"0F0,0F1,0B1\n1F0,1B0\n0B0,1F1,1B1\n",
         "t.csv:3:1 (0B0): stage 0 stands in another line too, t.csv:1\n"
         "t.csv:3:2 (1F1): stage 1 stands in another line too, t.csv:2\n"
         "t.csv:3:3 (1B1): stage 1 stands in another line too, t.csv:2"},
        /* never to an end: on one rank, on two */
        {"0B0,0F0\n", "t.csv:1:1 (0B0) waits for ever for t.csv:1:2 (0F0)"},
        {"0F0,0W0,0I0\n", "t.csv:1:2 (0W0) waits for ever for t.csv:1:3 (0I0)"},
        {"#\n0F0,,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
         "t.csv:2:3 (0B0) waits for ever for t.csv:3:4 (1B0)\n"
         "t.csv:3:1 (1F1) waits for ever for t.csv:2:4 (0F1)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_schedule s = {0};
        assert_int_equal(read_text(rows[i].text, &s), ECH_E_CONFIG);
        assert_string_equal(ech_error_message(), rows[i].message);
        assert_null(s.work);
    }
}

static void test_bytes(void **state)
{
    ech_schedule s = {0};
    (void)state;
    assert_fails(ech_schedule_read("0F0\0,0B0", 8, "t.csv", &s), ECH_E_CONFIG,
                 "t.csv:1:1: '0F0?' is no cell");
    assert_fails(ech_schedule_read("(0F1;1B0)OVERLAP_F_B_and_more", 29, "t.csv", &s), ECH_E_CONFIG,
                 "'(0F1;1B0)OVERLAP_F_B_an' ... is no cell");
}

/* Many faults are counted; memory goes with the cells that are there, not with their numbers. */
static void test_many(void **state)
{
    ech_text text = {0};
    ech_schedule s = {0};
    (void)state;
    for (int k = 0; k < 1000; k++) /* a diagonal: 1000 pairs of a million */
        ech_text_add(&text, "%s%dF%d", k ? "," : "", k, k);
    assert_int_equal(ech_schedule_read(text.data, text.bytes, "t.csv", &s), ECH_E_CONFIG);
    assert_non_null(strstr(ech_error_message(), "t.csv:1: 0B0 is missing\nt.csv:1: 0F1 is"));
    /* 1e6 - 1e3 forwards and 1e6 backwards, ten of them told */
    assert_non_null(strstr(ech_error_message(), "t.csv: and 1998990 more"));
    ech_text_fini(&text);
    for (int k = 0; k < 25; k++)
        ech_text_add(&text, "x,");
    assert_int_equal(ech_schedule_read(text.data, text.bytes, "t.csv", &s), ECH_E_CONFIG);
    assert_non_null(strstr(ech_error_message(), "t.csv: and 15 more"));
    ech_text_fini(&text);
}

/* From every good table, each cell taken away or doubled is named. */
static void test_each_cell(void **state)
{
    (void)state;
    for (int k = 0; k < ECH_SCHEDULE_FILE; k++) {
        const ech_schedule_kind kind = (ech_schedule_kind)k;
        const ech_schedule_spec spec = {
            .kind = kind, .ranks = 2, .micros = 4, .chunks = ech_schedule_chunks(kind, 2)};
        ech_schedule s = {0};
        assert_ok(ech_schedule_make(&spec, &s));
        const int n = s.first[s.ranks];
        for (int i = 0; i < n; i++) {
            const ech_work kept = s.work[i];
            char cell[40];
            char words[80];
            ech_work_format(&kept, cell, sizeof cell);
            s.work[i] = s.work[(i + 1) % n]; /* the last: on the other rank too */
            (void)snprintf(words, sizeof words, "%s is missing", cell);
            assert_fails(ech_schedule_check(&s), ECH_E_CONFIG, words);
            ech_work_format(&s.work[i], cell, sizeof cell);
            (void)snprintf(words, sizeof words, "(%s) is there already", cell);
            assert_fails(ech_schedule_check(&s), ECH_E_CONFIG, words);
            s.work[i] = kept;
        }
        assert_ok(ech_schedule_check(&s));
        ech_schedule_fini(&s);
    }
}

/* The times of a table that comes to no end: an error that names where it stands. */
static void test_times_refuse(void **state)
{
    static const ech_schedule_costs unit = {.of = {1, 1, 1, 1}};
    const ech_schedule_spec spec = {.kind = ECH_SCHEDULE_1F1B, .ranks = 2, .micros = 1};
    ech_schedule s = {0};
    double begin[4];
    double end[4];
    ech_status st;
    (void)state;
    assert_ok(ech_schedule_make(&spec, &s));
    const ech_work first = s.work[2];
    s.work[2] = s.work[3];
    s.work[3] = first;
    assert_true(ech_schedule_times(&s, &unit, begin, end, &st) < 0);
    assert_fails(st, ECH_E_CONFIG, "1f1b: rank 0, cell 2 (0B0) is never reached");
    assert_true(ech_schedule_bubble(&s, &unit, &st) < 0);
    assert_fails(st, ECH_E_CONFIG, "is never reached");
    ech_schedule_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_written),
        cmocka_unit_test(test_accepted),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_each_cell),  cmocka_unit_test(test_times_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
