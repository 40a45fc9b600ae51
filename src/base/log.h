/** @file base/log.h
 *  Lines for people, on stderr: level x scope, with step and rank.  Machine-readable metrics go
 *  through report instead.  Library code logs only through this; a host can redirect it.  Local. */
#ifndef ECH_BASE_LOG_H
#define ECH_BASE_LOG_H

#include "base/status.h" /* ECH_PRINTF */

typedef enum ech_log_level {
    ECH_LOG_ERROR,
    ECH_LOG_WARN,
    ECH_LOG_INFO,
    ECH_LOG_DEBUG
} ech_log_level;

/** Where lines go: one call a line, without its newline. */
typedef void (*ech_log_sink)(ech_log_level level, const char *line, void *user);

/** Send lines to a sink, or to stderr (NULL, the default).  Set it before threads start. */
void ech_log_set_sink(ech_log_sink sink, void *user);

/** Lines above this level are dropped (default INFO). */
void ech_log_set_level(ech_log_level level);

/** Put this process's rank in front of each line (-1, the default: none). */
void ech_log_set_rank(int rank);

/** Put the current step in front of each line (-1, the default: none). */
void ech_log_set_step(long step);

/** Log on every rank. */
void ech_log(ech_log_level level, const char *fmt, ...) ECH_PRINTF(2, 3);

/** Log on rank 0 (or without ranks) only. */
void ech_log_root(ech_log_level level, const char *fmt, ...) ECH_PRINTF(2, 3);

#endif
