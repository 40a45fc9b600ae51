/* RUN: np=1 timeout=20 tags=fast,thread */
#include "check.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* XXH3 with seed 0 of nothing, as xxHash publishes it; and its sensitivity. */
static void test_hashes(void **state)
{
    char hex[33];
    char hex2[33];
    (void)state;
    assert_true(ech_hash64("", 0) == 0x2d06800538d394c2u);
    assert_true(ech_hash64(NULL, 0) == 0x2d06800538d394c2u);
    ech_hash128_hex("", 0, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    char data[4096];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7);
    ech_hash128_hex(data, sizeof data, hex);
    for (size_t bit = 0; bit < 8 * sizeof data; bit += 97) { /* one flipped bit is always seen */
        data[bit / 8] = (char)(data[bit / 8] ^ (1 << bit % 8));
        ech_hash128_hex(data, sizeof data, hex2);
        assert_string_not_equal(hex, hex2);
        data[bit / 8] = (char)(data[bit / 8] ^ (1 << bit % 8));
    }
    ech_hash128_hex(data, sizeof data, hex2);
    assert_string_equal(hex, hex2);
}

/* A process made from this one reads the same clock, and says so. */
static void test_processes_of_a_machine_share_a_clock(void **state)
{
    int end[2];
    uint64_t other = 0;
    (void)state;
    assert_int_equal(pipe(end), 0);
    const pid_t child = fork();
    if (child == 0) {
        const uint64_t mine = ech_clock_identity();
        _exit(write(end[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
    }
    assert_int_equal(read(end[0], &other, sizeof other), sizeof other);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(ech_clock_identity() != 0);
    assert_true(ech_clock_identity() == other);
    (void)close(end[0]);
    (void)close(end[1]);
}

static void test_clock_moves_forward(void **state)
{
    (void)state;
    const double start = ech_clock_s();
    const double cpu = ech_clock_cpu_s();
    for (int i = 0; i < 1024; i++)
        ech_clock_backoff(i);
    const double yields = ech_clock_s() - start;
    for (int i = 1024; i < 1160; i++)
        ech_clock_backoff(i);
    const double took = ech_clock_s() - start;
    assert_true(took - yields > 80 * 200e-6);    /* the last ones sleep 200 microseconds each */
    assert_true(ech_clock_cpu_s() - cpu < took); /* and do not burn the core meanwhile */
    for (int i = 1000000000; i > 0; i /= 7)
        ech_clock_backoff(i);
}

static void test_utc(void **state)
{
    char buf[21];
    char small[5] = "xxxx";
    (void)state;
    ech_clock_utc(buf, sizeof buf);
    assert_int_equal(strlen(buf), 20);
    assert_int_equal(strspn(buf, "0123456789-T:Z"), 20);
    assert_int_equal(buf[10], 'T');
    assert_int_equal(buf[19], 'Z');
    assert_true(atoi(buf) >= 2024);
    ech_clock_utc(small, sizeof small);
    assert_string_equal(small, "");
}

typedef struct heard {
    int n;
    ech_log_level level;
    char line[5000];
} heard;

static void listen(ech_log_level level, const char *line, void *user)
{
    heard *h = user;
    h->n++;
    h->level = level;
    (void)snprintf(h->line, sizeof h->line, "%s", line);
}

static void test_log_lines(void **state)
{
    heard h = {0};
    (void)state;
    ech_log_set_sink(listen, &h);
    ech_log(ECH_LOG_INFO, "loss %.1f", 2.5);
    assert_string_equal(h.line, "loss 2.5");
    ech_log_set_rank(3);
    ech_log(ECH_LOG_WARN, "w");
    assert_string_equal(h.line, "[rank 3] warning: w");
    assert_int_equal(h.level, ECH_LOG_WARN);
    ech_log_set_step(12);
    ech_log(ECH_LOG_ERROR, "name %s", "\x1b[31m");
    assert_string_equal(h.line, "[rank 3 step 12] error: name ?[31m");
    ech_log_root(ECH_LOG_ERROR, "not on rank 3");
    assert_int_equal(h.n, 3);
    ech_log_set_rank(0);
    ech_log_root(ECH_LOG_INFO, "root");
    assert_string_equal(h.line, "[rank 0 step 12] root");
    ech_log_set_rank(-1);
    ech_log_root(ECH_LOG_INFO, "alone");
    assert_string_equal(h.line, "[step 12] alone");
    ech_log_set_step(-1);
    ech_log_set_sink(NULL, NULL);
    assert_int_equal(h.n, 5);
}

static void test_log_levels(void **state)
{
    heard h = {0};
    (void)state;
    ech_log_set_sink(listen, &h);
    ech_log(ECH_LOG_DEBUG, "below the default level");
    assert_int_equal(h.n, 0);
    ech_log_set_level(ECH_LOG_DEBUG);
    ech_log(ECH_LOG_DEBUG, "d");
    assert_string_equal(h.line, "debug: d");
    ech_log_set_level(ECH_LOG_ERROR);
    ech_log(ECH_LOG_WARN, "w");
    assert_int_equal(h.n, 1);
    ech_log_set_level(ECH_LOG_INFO);
    ech_log_set_sink(NULL, NULL);
}

static void *log_many(void *arg)
{
    const char *word = arg;
    for (int i = 0; i < 200; i++)
        ech_log(ECH_LOG_INFO, "%s%s%s%s", word, word, word, word);
    return NULL;
}

/* Two threads log to stderr: every line arrives whole. */
static void test_lines_do_not_mix(void **state)
{
    static char first[] = "aaaaaaaaaaaaaaaaaaaa";
    static char second[] = "bbbbbbbbbbbbbbbbbbbb";
    pthread_t threads[2];
    char line[256];
    int n = 0;
    FILE *file = tmpfile();
    (void)state;
    assert_non_null(file);
    const int kept = dup(STDERR_FILENO);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    assert_int_equal(pthread_create(&threads[0], NULL, log_many, first), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, log_many, second), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(kept);
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        assert_int_equal(strlen(line), 81);
        assert_int_equal(strspn(line, line[0] == 'a' ? "a" : "b"), 80);
        n++;
    }
    assert_int_equal(n, 400);
    (void)fclose(file);
}

static void test_a_long_line_is_cut(void **state)
{
    heard h = {0};
    char endless[8192];
    (void)state;
    memset(endless, 'z', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    ech_log_set_sink(listen, &h);
    ech_log(ECH_LOG_WARN, "%s", endless);
    ech_log_set_sink(NULL, NULL);
    assert_int_equal(h.n, 1);
    assert_true(strlen(h.line) > 4000 && strlen(h.line) < 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_processes_of_a_machine_share_a_clock),
        cmocka_unit_test(test_clock_moves_forward),
        cmocka_unit_test(test_utc),
        cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_log_levels),
        cmocka_unit_test(test_lines_do_not_mix),
        cmocka_unit_test(test_a_long_line_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
