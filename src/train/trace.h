/** @file train/trace.h
 *  The time line of a recorded step: every rank's bars, on one clock. */
#ifndef ECH_TRAIN_TRACE_H
#define ECH_TRAIN_TRACE_H

#include "train/session.h" /* ech_session */

/** How two clocks stand to each other. */
typedef struct ech_clock_offset {
    double offset_s; /**< what to take off the other's readings to get this one's */
    double bound_s;  /**< it is wrong by no more than this */
} ech_clock_offset;

/** Compare rank `peer`'s clock with rank 0's, in a few round trips: of the shortest one, whose middle
 *  the peer's answer cannot be further off than half of it (Cristian 1989).  *Collective* over the
 *  two, blocking.
 *  @param s     session; over a transport between processes
 *  @param comm  of this rank, for messages outside steps; room for one in flight
 *  @param peer  not 0
 *  @param out   set on rank 0
 *  @return ECH_OK | what ech_gather_pass returns */
ECH_MUST_USE ech_status ech_clock_compare(const ech_session *s, ech_comm *comm, int peer,
                                          ech_clock_offset *out);

/** The time line of the last step that was made with request.records.  Times count from the first
 *  rank's begin of that step.  Processes of one machine share a clock; others' are compared
 *  (ech_clock_compare), and the note says by how much they may be off.  *Collective*, blocking,
 *  outside steps and not counted as their traffic; allocates.
 *  @param s     a session with config.records
 *  @param step  its number, for the note
 *  @param out   on the process of rank 0: owned by the caller (ech_timeline_fini), its programs
 *               borrowed from the session; on others zeroed.  Set on success
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_COMM | ECH_E_TIMEOUT */
ECH_MUST_USE ech_status ech_trace_gather(ech_session *s, int64_t step, ech_timeline *out);

#endif
