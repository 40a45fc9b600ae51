/** @file report/metrics.h
 *  The stream of events of a run, one JSON object a line: `train --json` and RUN/metrics.jsonl.
 *
 *      ech_jout *j = ech_metrics_begin(m, "step");
 *      ech_jout_int(j, "step", step);
 *      ech_jout_real(j, "loss", loss);
 *      ECH_TRY(ech_metrics_end(m));
 *
 *  One rank writes.  Nothing is allocated after the longest event.  Local. */
#ifndef ECH_REPORT_METRICS_H
#define ECH_REPORT_METRICS_H

#include "report/jout.h" /* ech_jout */

/** Where lines go besides the file: the command line passes one that prints.
 *  @return ECH_OK | ECH_E_IO */
typedef ech_status (*ech_metrics_sink)(const char *line, void *user);

/** A stream; opaque. */
typedef struct ech_metrics ech_metrics;

/** Start a stream.
 *  @param path  file; NULL: none
 *  @param adds  go on in a file of that name; else it is begun anew
 *  @param sink  NULL: none
 *  @param user  handed to sink
 *  @param out   owned by the caller, set on success only
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_metrics_create(const char *path, bool adds, ech_metrics_sink sink,
                                           void *user, ech_metrics **out);

/** Begin {"event": name, ...; the one before must have ended.  @return borrowed */
ech_jout *ech_metrics_begin(ech_metrics *m, const char *event);

/** End the event and write its line everywhere.  The file is tried first; the sink gets its line
 *  also where the file fails.
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_metrics_end(ech_metrics *m);

/** Accepts NULL, nulls the pointer. */
void ech_metrics_destroy(ech_metrics **m);

#endif
