/* RUN: np=1 timeout=60 tags=fast,thread */
/* The flight recorder's file: what is stored is read, never half of it, whatever the file holds. */
#include "check.h"
#include "engine/flight.h"
#include "folder.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static ech_flight_spec spec_of(void **state, const char *host, const int *rank, int n, int64_t run)
{
    return (ech_flight_spec){.dir = *state,
                             .host = host,
                             .rank = rank,
                             .n = n,
                             .world = 6,
                             .watchdog_s = 2.5,
                             .supervisor = {77, 88},
                             .run = run,
                             .program = {NULL, "evaluation"}};
}

static ech_flight *fresh(void **state, const char *host, const int *rank, int n, int64_t run)
{
    const ech_flight_spec spec = spec_of(state, host, rank, n, run);
    ech_flight *f = NULL;
    assert_ok(ech_flight_create(&spec));
    assert_ok(ech_flight_open(&spec, &f));
    return f;
}

/* A place all of whose fields follow from one number. */
static ech_flight_place place_of(int k)
{
    ech_flight_place at = {.state = (ech_flight_state)(k % 3),
                           .program = k % 5,
                           .segment = (ech_segment)(k % ECH_N_SEGMENTS),
                           .kind = (ech_op_kind)(k % ECH_N_OPS),
                           .axis = (ech_axis)(k % ECH_N_AXES),
                           .item = k,
                           .op = (k + 1) % 50000,
                           .layer = k % 7 - 1,
                           .micro = k % 9 - 1,
                           .passes = (uint32_t)k,
                           .ops = (int64_t)k << 33,
                           .step = (int64_t)k << 34,
                           .since_s = 0.5 * k};
    (void)snprintf(at.name, sizeof at.name, "a block of number %d, with a long name", k);
    return at;
}

static void assert_place(const ech_flight_place *got, int k)
{
    const ech_flight_place want = place_of(k);
    assert_int_equal(got->state, want.state);
    assert_int_equal(got->program, want.program);
    assert_int_equal(got->segment, want.segment);
    assert_int_equal(got->kind, want.kind);
    assert_int_equal(got->axis, want.axis);
    assert_int_equal(got->item, want.item);
    assert_int_equal(got->op, want.op);
    assert_int_equal(got->layer, want.layer);
    assert_int_equal(got->micro, want.micro);
    assert_int_equal(got->passes, want.passes);
    assert_true(got->ops == want.ops && got->step == want.step);
    assert_true(got->since_s == want.since_s);
    assert_string_equal(got->name, want.name);
}

static void test_what_is_stored_is_read(void **state)
{
    const int ranks[] = {1, 4};
    ech_flight *f = fresh(state, "a", ranks, 2, 5);
    ech_flight_view v;
    ech_flight_record *one = ech_flight_take(f, 1);
    assert_null(ech_flight_take(f, 2));
    assert_null(ech_flight_take(NULL, 1));
    assert_non_null(one);
    for (int k = 0; k < 200; k++) {
        const ech_flight_place at = place_of(k);
        ech_flight_post(one, &at, at.name);
        assert_ok(ech_flight_look(f, &v));
        assert_place(&v.rank[0].at, k);
        assert_string_equal(v.rank[0].op_name, ech_op_name(at.kind));
        ech_flight_view_fini(&v);
    }
    ech_flight_post_moved(one, 1e6);
    assert_ok(ech_flight_read(*state, &v));
    assert_int_equal(v.n_ranks, 2);
    assert_int_equal(v.world, 6);
    assert_int_equal(v.rank[0].rank, 1);
    assert_int_equal(v.rank[1].rank, 4);
    assert_true(v.rank[0].process.pid == getpid() && v.rank[1].process.pid == 0);
    assert_true(v.rank[0].moved_s == 1e6 && v.watchdog_s == 2.5);
    assert_true(v.supervisor.pid == 77 && v.supervisor.start == 88 && v.run == 5);
    assert_string_equal(v.host[v.rank[0].host], "a");
    assert_int_equal(v.rank[0].exit_code, -1);
    assert_place(&v.rank[0].at, 199);
    ech_flight_view_fini(&v);
    ech_flight_post_end(one, 0);
    assert_ok(ech_flight_look(f, &v));
    assert_int_equal(v.rank[0].exit_code, 0);
    ech_flight_view_fini(&v);
    ech_flight_close(&f);
}

static void test_words(void **state)
{
    const int ranks[] = {0};
    char words[192];
    ech_flight *f = fresh(state, "a", ranks, 1, 5);
    ech_flight_record *r = ech_flight_take(f, 0);
    ech_flight_place at = {.state = ECH_FLIGHT_WAITS,
                           .kind = ECH_OP_ALL_REDUCE_WAIT,
                           .axis = ECH_AXIS_TP,
                           .item = 37,
                           .layer = 3,
                           .micro = 1,
                           .name = "attention backward"};
    ech_flight_view v;
    ech_flight_post(r, &at, at.name);
    assert_ok(ech_flight_look(f, &v));
    assert_string_equal(ech_flight_describe(&v.rank[0], words, sizeof words),
                        "item 37 (attention backward, layer 3, micro-batch 1), op all_reduce_wait "
                        "over tp");
    ech_flight_view_fini(&v);
    at.program = 1;
    at.layer = at.micro = -1;
    at.kind = ECH_OP_LINEAR;
    ech_flight_post(r, &at, at.name);
    assert_ok(ech_flight_look(f, &v));
    assert_string_equal(ech_flight_describe(&v.rank[0], words, sizeof words),
                        "evaluation, item 37 (attention backward), op linear");
    ech_flight_view_fini(&v);
    ech_flight_post_outside(r, "writing a checkpoint", 12);
    assert_ok(ech_flight_look(f, &v));
    assert_string_equal(ech_flight_describe(&v.rank[0], words, sizeof words),
                        "writing a checkpoint");
    assert_int_equal(v.rank[0].at.step, 12);
    assert_int_equal(v.rank[0].at.item, 37);
    ech_flight_view_fini(&v);
    ech_flight_close(&f);
}

static void test_hosts_of_one_run(void **state)
{
    const int here[] = {0, 1};
    const int there[] = {2, 3, 5};
    ech_flight *old = fresh(state, "c", there, 3, 4);
    ech_flight *b = fresh(state, "b", there, 3, 9);
    ech_flight *a = fresh(state, "a", here, 2, 9);
    ech_flight_view v;
    assert_ok(ech_flight_read(*state, &v));
    assert_int_equal(v.n_ranks, 5);
    assert_int_equal(v.n_hosts, 2);
    for (int i = 0; i < 5; i++) {
        const int want[] = {0, 1, 2, 3, 5};
        assert_int_equal(v.rank[i].rank, want[i]);
        assert_string_equal(v.host[v.rank[i].host], want[i] < 2 ? "a" : "b");
    }
    ech_flight_view_fini(&v);
    ech_flight_close(&a);
    a = fresh(state, "c", here, 2, 9); /* the ranks of a once more */
    assert_fails(ech_flight_read(*state, &v), ECH_E_CORRUPT, "rank 0 is recorded on two hosts");
    ech_flight_close(&a);
    ech_flight_close(&b);
    ech_flight_close(&old);
}

static void test_another_runs_file_is_not_taken(void **state)
{
    const int ranks[] = {0, 1};
    ech_flight *f = fresh(state, "a", ranks, 2, 5);
    ech_flight *other = NULL;
    ech_flight_spec spec = spec_of(state, "a", ranks, 2, 6);
    assert_fails(ech_flight_open(&spec, &other), ECH_E_CORRUPT, "is of another run");
    spec = spec_of(state, "a", ranks, 1, 5);
    assert_fails(ech_flight_open(&spec, &other), ECH_E_CORRUPT, "wanted a file of");
    /* a new run's file in its place: the old one stays as it is for who has it */
    ech_flight_post_outside(ech_flight_take(f, 0), "here", 3);
    other = fresh(state, "a", ranks, 2, 6);
    ech_flight_view v;
    assert_ok(ech_flight_look(f, &v));
    assert_string_equal(v.rank[0].at.name, "here");
    ech_flight_view_fini(&v);
    ech_flight_close(&other);
    ech_flight_close(&f);
}

static void test_one_rank_tells(void **state)
{
    const int ranks[] = {0, 1, 2};
    ech_flight *f = fresh(state, "a", ranks, 3, 5);
    assert_false(ech_flight_is_told_by_other(f, 1));
    assert_true(ech_flight_claim(f, 1));
    assert_false(ech_flight_claim(f, 0));
    assert_false(ech_flight_claim(f, 2));
    assert_true(ech_flight_claim(f, 1));
    assert_false(ech_flight_is_told_by_other(f, 1));
    assert_true(ech_flight_is_told_by_other(f, 0));
    ech_flight_close(&f);
}

/* --- while it is written --- */

enum { WRITTEN = 200000 };

static void *write_places(void *record)
{
    for (int k = 1; k <= WRITTEN; k++) {
        ech_flight_place at = place_of(k);
        ech_flight_post(record, &at, at.name);
        /* other ops of the item, to end where it began */
        for (int op = 0; op < 3; op++) {
            at.op = op;
            ech_flight_post_op(record, &at);
        }
        at = place_of(k);
        ech_flight_post_op(record, &at);
    }
    return NULL;
}

static void test_no_reading_is_torn(void **state)
{
    const int ranks[] = {0};
    ech_flight *f = fresh(state, "a", ranks, 1, 5);
    ech_flight_record *r = ech_flight_take(f, 0);
    const ech_flight_place first = place_of(0);
    pthread_t writer;
    int last = 0;
    int readings = 0;
    int different = 0;
    ech_flight_post(r, &first, first.name);
    assert_int_equal(pthread_create(&writer, NULL, write_places, r), 0);
    while (last < WRITTEN) {
        ech_flight_view v;
        assert_ok(ech_flight_look(f, &v));
        const int k = v.rank[0].at.item;
        if (!v.rank[0].is_torn) { /* a reader that is never let in says so */
            assert_true(k >= last);
            if (v.rank[0].at.op < 3)
                v.rank[0].at.op = place_of(k).op;
            assert_place(&v.rank[0].at, k);
            different += k != last;
            last = k;
            readings++;
        }
        ech_flight_view_fini(&v);
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    (void)printf("%d readings, %d different places of %d\n", readings, different, WRITTEN);
    assert_true(different > 1);
    ech_flight_close(&f);
}

/* --- files from elsewhere --- */

static char *read_all(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *data = malloc(1 << 20);
    *n = fread(data, 1, 1 << 20, file);
    (void)fclose(file);
    return data;
}

static long file_bytes(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long n = ftell(file);
    (void)fclose(file);
    return n;
}

static void write_all(const char *path, const char *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(data, 1, n, file), n);
    (void)fclose(file);
}

static void test_a_writer_stopped_at_it(void **state)
{
    const int ranks[] = {0};
    char path[4096];
    size_t n;
    ech_flight *f = fresh(state, "a", ranks, 1, 5);
    ech_flight_view v;
    const ech_flight_place at = place_of(3);
    ech_flight_post(ech_flight_take(f, 0), &at, at.name);
    ech_flight_close(&f);
    assert_ok(ech_flight_path(*state, "a", path, sizeof path));
    char *data = read_all(path, &n);
    data[n - sizeof(ech_flight_record)] ^= 1; /* the version, which is odd now */
    write_all(path, data, n);
    assert_ok(ech_flight_read(*state, &v));
    assert_true(v.rank[0].is_torn);
    ech_flight_view_fini(&v);
    free(data);
}

/* Read what there is; whatever comes out can be told. */
static void read_hostile(void **state)
{
    ech_flight_view v;
    char words[192];
    if (ech_flight_read(*state, &v) < 0)
        return;
    for (int i = 0; i < v.n_ranks; i++) {
        (void)ech_flight_describe(&v.rank[i], words, sizeof words);
        for (const char *c = words; *c; c++)
            assert_true(*c >= ' ' && *c <= '~');
        assert_true(v.rank[i].rank >= 0 && v.rank[i].rank < v.world);
    }
    ech_flight_view_fini(&v);
}

static void test_hostile_files(void **state)
{
    const int ranks[] = {0, 1};
    char path[4096];
    size_t n;
    ech_flight_view v;
    ech_flight *f = fresh(state, "a", ranks, 2, 5);
    ech_flight_close(&f);
    assert_ok(ech_flight_path(*state, "a", path, sizeof path));
    char *data = read_all(path, &n);
    for (size_t cut = 0; cut < n; cut += cut < 200 ? 1 : 61) {
        write_all(path, data, cut);
        assert_fails(ech_flight_read(*state, &v), ECH_E_CORRUPT, "flight-a");
    }
    char *bad = malloc(n);
    for (size_t at = 0; at < n; at += at < 160 || at > n - 400 ? 1 : 37) {
        memcpy(bad, data, n);
        bad[at] = (char)(bad[at] ^ 0xff);
        write_all(path, bad, n);
        read_hostile(state);
    }
    unsigned seed = 1;
    for (int round = 0; round < 200; round++) { /* records of noise */
        memcpy(bad, data, n);
        for (size_t at = n - 2 * sizeof(ech_flight_record); at < n; at++)
            bad[at] = (char)((seed = seed * 1664525u + 1013904223u) >> 24);
        write_all(path, bad, n);
        read_hostile(state);
        /* the same, of ranks that can be: the rest is told somehow */
        memset(bad + n - 2 * sizeof(ech_flight_record) + 128, 0, 8);
        memset(bad + n - sizeof(ech_flight_record) + 128, 0, 8);
        bad[n - sizeof(ech_flight_record) + 128] = 1;
        write_all(path, bad, n);
        assert_ok(ech_flight_read(*state, &v));
        ech_flight_view_fini(&v);
        read_hostile(state);
    }
    free(bad);
    free(data);
}

/* --- a page that another process writes --- */

/* Of the header, and of the first record from its own start. */
enum { AT_N = 16, AT_WORLD = 20, AT_KINDS = 64, AT_RANK = 128 };

/* Bytes of the file under a mapping; `was` is what must stand there. */
static void poke(const char *path, long at, const void *was, const void *bytes, size_t n)
{
    char there[8];
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fread(there, 1, n, file), n);
    assert_memory_equal(there, was, n);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    (void)fclose(file);
}

static void test_hostile_numbers_in_an_open_page(void **state)
{
    static const uint64_t hostile[] = {6, 15999999, UINT32_MAX, (uint64_t)1 << 32, UINT64_MAX};
    const int ranks[] = {1, 4};
    const uint32_t n = 2, world = 6, kinds = ECH_N_OPS, most = 16000000;
    const uint64_t rank = 1, again = 4;
    char path[4096];
    ech_flight_view v;
    ech_flight *other = NULL;
    ech_flight *f = fresh(state, "a", ranks, 2, 5);
    const ech_flight_spec spec = spec_of(state, "a", ranks, 2, 5);
    assert_ok(ech_flight_path(*state, "a", path, sizeof path));
    const long first = file_bytes(path) - 2 * (long)sizeof(ech_flight_record) + AT_RANK;
    poke(path, AT_WORLD, &world, &most, sizeof world);
    assert_fails(ech_flight_open(&spec, &other), ECH_E_CORRUPT, "flight-a");
    poke(path, AT_N, &n, &most, sizeof n);
    assert_fails(ech_flight_open(&spec, &other), ECH_E_CORRUPT, "flight-a");
    poke(path, AT_KINDS, &kinds, &most, sizeof kinds);
    assert_ok(ech_flight_look(f, &v)); /* as it was opened */
    assert_int_equal(v.world, 6);
    assert_int_equal(v.n_ranks, 2);
    assert_int_equal(v.rank[0].rank, 1);
    assert_int_equal(v.rank[1].rank, 4);
    ech_flight_view_fini(&v);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        poke(path, first, &rank, &hostile[i], sizeof rank);
        assert_fails(ech_flight_look(f, &v), ECH_E_CORRUPT, "in a run of 6");
        poke(path, first, &hostile[i], &rank, sizeof rank);
    }
    poke(path, first, &rank, &again, sizeof rank);
    assert_fails(ech_flight_look(f, &v), ECH_E_CORRUPT, "rank 4 after rank 4");
    ech_flight_close(&f);
}

static void test_a_page_of_another_spec(void **state)
{
    const int ranks[] = {0, 1};
    ech_flight *other = NULL;
    ech_flight *f = fresh(state, "a", ranks, 2, 5);
    ech_flight_spec spec = spec_of(state, "a", ranks, 2, 5);
    spec.world = 2;
    assert_fails(ech_flight_open(&spec, &other), ECH_E_CORRUPT, "2 of 6 ranks, wanted 2 of 2");
    ech_flight_close(&f);
}

static void test_a_folder_without(void **state)
{
    ech_flight_view v;
    assert_fails(ech_flight_read(*state, &v), ECH_E_DATA, "no run has recorded itself");
    assert_fails(ech_flight_read("/nowhere/at/all", &v), ECH_E_IO, "/nowhere/at/all");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_stored_is_read),
        TEST(test_words),
        TEST(test_hosts_of_one_run),
        TEST(test_another_runs_file_is_not_taken),
        TEST(test_one_rank_tells),
        TEST(test_no_reading_is_torn),
        TEST(test_a_writer_stopped_at_it),
        TEST(test_hostile_files),
        TEST(test_hostile_numbers_in_an_open_page),
        TEST(test_a_page_of_another_spec),
        TEST(test_a_folder_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
