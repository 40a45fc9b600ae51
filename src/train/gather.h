/** @file train/gather.h
 *  Messages of a run outside its steps.  Inside train only. */
#ifndef ECH_TRAIN_GATHER_H
#define ECH_TRAIN_GATHER_H

#include "train/session.h" /* ech_session */

/** Pass one message, blocking, on a communicator of its own so that no step counts it.  Rank 0 takes
 *  one rank after the other, so the others wait for all before them: the deadline is the session's,
 *  times those.
 *  @param s     session
 *  @param comm  of this rank
 *  @param coll  SEND or RECV; borrowed
 *  @return ECH_OK | ECH_E_TIMEOUT | ECH_E_COMM | ECH_E_ILLEGAL */
ECH_MUST_USE ech_status ech_gather_pass(const ech_session *s, ech_comm *comm, const ech_coll *coll);

#endif
