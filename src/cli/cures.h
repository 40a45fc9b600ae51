/** @file cli/cures.h
 *  What would help first where a run does not fit: the next ZeRO stage, a smaller micro-batch, more
 *  tensor parallelism, each compiled and measured by its prediction.  Local. */
#ifndef ECH_CLI_CURES_H
#define ECH_CLI_CURES_H

#include "train/config.h"  /* ech_config */
#include "train/session.h" /* ech_session_config */

/** Add to the last error what would help.  No-op for other statuses than ECH_E_INFEASIBLE.  Compiles
 *  and proves up to three other step programs: for one process of a run, that nobody waits for.
 *  @param cfg      borrowed; resolved and validated
 *  @param session  borrowed; what did not fit: its caps
 *  @param st       as compiling ended
 *  @return st */
ECH_MUST_USE ech_status ech_cures_add(const ech_config *cfg, const ech_session_config *session,
                                      ech_status st);

#endif
