#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

static ech_log_sink log_sink;
static void *log_sink_user;
static atomic_int log_level = ECH_LOG_INFO;
static atomic_int log_rank = -1;
static atomic_long log_step = -1;

void ech_log_set_sink(ech_log_sink sink, void *user)
{
    log_sink = sink;
    log_sink_user = user;
}

void ech_log_set_level(ech_log_level level)
{
    atomic_store(&log_level, (int)level);
}

void ech_log_set_rank(int rank)
{
    atomic_store(&log_rank, rank);
}

void ech_log_set_step(long step)
{
    atomic_store(&log_step, step);
}

/* "[rank 3 step 12] warning: "; nothing where nothing is known. */
static size_t put_head(char *line, size_t n, ech_log_level level)
{
    static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
    const int rank = atomic_load(&log_rank);
    const long step = atomic_load(&log_step);
    char place[64] = "";
    if (rank >= 0 && step >= 0)
        (void)snprintf(place, sizeof place, "[rank %d step %ld] ", rank, step);
    else if (rank >= 0)
        (void)snprintf(place, sizeof place, "[rank %d] ", rank);
    else if (step >= 0)
        (void)snprintf(place, sizeof place, "[step %ld] ", step);
    (void)snprintf(line, n, "%s%s", place, words[level]);
    return strlen(line);
}

/* Names in messages come from files: no control character reaches a terminal. */
static void clean_line(char *line)
{
    for (char *p = line; *p; p++)
        if (((unsigned char)*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            *p = '?';
}

static void log_list(ech_log_level level, const char *fmt, va_list ap) ECH_PRINTF(2, 0);

static void log_list(ech_log_level level, const char *fmt, va_list ap)
{
    char line[LINE_BYTES];
    if ((int)level > atomic_load(&log_level))
        return;
    const size_t head = put_head(line, sizeof line, level);
    (void)vsnprintf(line + head, sizeof line - 1 - head, fmt, ap); /* keep room for '\n' */
    clean_line(line);
    if (log_sink) {
        log_sink(level, line, log_sink_user);
        return;
    }
    const size_t n = strlen(line);
    line[n] = '\n';
    (void)fwrite(line, 1, n + 1, stderr); /* one call: lines of several threads do not mix */
}

void ech_log(ech_log_level level, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_list(level, fmt, ap);
    va_end(ap);
}

void ech_log_root(ech_log_level level, const char *fmt, ...)
{
    va_list ap;
    if (atomic_load(&log_rank) > 0)
        return;
    va_start(ap, fmt);
    log_list(level, fmt, ap);
    va_end(ap);
}
