/** @file report/trace.h
 *  Time lines (price/timeline.h) as files: a trace in the Trace Event Format, JSON, that Perfetto
 *  and chrome://tracing open, or a picture (picture.h).  Measured and simulated lines go into one
 *  file side by side.  Local.
 *
 *  In the trace a rank of a line is a process; pid is rank + 1 in the first line (0 is the idle task
 *  to Perfetto) and goes on behind it in the next.  Thread 1 is what the rank does: its items, and
 *  waits that blocked it.  Each axis has threads of its own with the messages on their way, as many
 *  as are on their way at once.  An arrow leads from a send to its receive.  Times in microseconds.
 *  What an event has not (a layer, a micro-batch) is null. */
#ifndef ECH_REPORT_TRACE_H
#define ECH_REPORT_TRACE_H

#include "price/timeline.h" /* ech_timeline */

/** Is the suffix of a path one that time lines can be written as: .json or .svg.
 *  @return ECH_OK | ECH_E_USAGE */
ECH_MUST_USE ech_status ech_trace_check_path(const char *path);

/** Can a file be put at path: one is created beside it and dropped.
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_trace_try_path(const char *path);

/** Write n time lines as a trace.
 *  @param line  [n] borrowed
 *  @param name  [n] borrowed: "measured", "predicted"
 *  @param n     >= 1
 *  @param path  written whole, or what stood there stays
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_trace_write(const ech_timeline *const *line, const char *const *name,
                                        int n, const char *path);

/** The same as the suffix of path says: .svg a picture, else a trace. */
ECH_MUST_USE ech_status ech_trace_write_as(const ech_timeline *const *line, const char *const *name,
                                           int n, const char *path);

/** "forward", "weight gradient" and the like; static storage. */
const char *ech_role_word(ech_role role);

#endif
