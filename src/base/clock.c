#include "base/clock.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/status.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double read_clock(clockid_t id)
{
    struct timespec t;
    ECH_ASSERT(clock_gettime(id, &t) == 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ech_clock_s(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t ech_clock_identity(void)
{
    char *boot;
    size_t n;
    char namespace[64] = ""; /* none on kernels that have no time namespaces */
    if (ech_read_whole("/proc/sys/kernel/random/boot_id", 4096, &boot, &n) < 0) {
        ech_error_clear();
        return 0;
    }
    const ssize_t got = readlink("/proc/self/ns/time", namespace, sizeof namespace - 1);
    const uint64_t word[2] = {ech_hash64(boot, n),
                              ech_hash64(namespace, got > 0 ? (size_t)got : 0)};
    free(boot);
    return ech_hash64(word, sizeof word);
}

double ech_clock_cpu_s(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void ech_clock_backoff(int n)
{
    /* About 1.5 ms of yields: members of a collective wait for one another in turns of 100
     * microseconds, and one that sleeps through its turn costs the others theirs. */
    enum { YIELDS = 1024, DOUBLINGS = 7, LONGEST_NS = 200000 };
    if (n < YIELDS) {
        (void)sched_yield();
        return;
    }
    /* 2, 4, 8 ... microseconds: a message that comes soon is still taken soon. */
    const int shift = (n - YIELDS) / 8;
    const long ns = shift >= DOUBLINGS ? LONGEST_NS : 2000L << shift;
    const struct timespec t = {.tv_sec = 0, .tv_nsec = ns < LONGEST_NS ? ns : LONGEST_NS};
    (void)nanosleep(&t, NULL); /* woken early by a signal: the caller looks again anyway */
}

void ech_clock_utc(char *buf, size_t n)
{
    struct tm tm;
    const time_t now = time(NULL);
    if (n == 0)
        return;
    ECH_ASSERT(gmtime_r(&now, &tm) != NULL);
    if (strftime(buf, n, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        buf[0] = '\0';
}
