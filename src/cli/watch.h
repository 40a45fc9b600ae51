/** @file cli/watch.h
 *  The flight recorder around a run: its file in the run folder, and what is done when a rank has
 *  waited in vain: one rank of the host tells who waits for whom, the others are silent, and no
 *  process stays behind. */
#ifndef ECH_CLI_WATCH_H
#define ECH_CLI_WATCH_H

#include "cli/run_setup.h" /* ech_run_setup */
#include "engine/flight.h" /* ech_flight */

/** The file of this host, mapped, and which of its ranks are seen to stand still; opaque. */
typedef struct ech_watch ech_watch;

/** Make the file of this host and map it.  Without one the run goes on, and is told so: it is worse
 *  to explain then, that is all.  *Collective*, once the run folder is there.
 *  @param cfg    borrowed
 *  @param setup  borrowed; from then on a rank at its files is waited for until it has been stopped or
 *                gone for faults.watchdog_s
 *  @param out    owned by the caller, ech_watch_close; NULL: there is none
 *  @return ECH_OK | ECH_E_COMM | ECH_E_TIMEOUT | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_watch_open(const ech_config *cfg, ech_run_setup *setup,
                                       ech_watch **out);

/** Its flight recorder, borrowed; NULL where w is. */
ech_flight *ech_watch_flight(const ech_watch *w);

/** Unmap; accepts NULL, nulls the pointer. */
void ech_watch_close(ech_run_setup *setup, ech_watch **w);

/** What came of a failure. */
typedef struct ech_watch_hang {
    bool is_mine;        /**< this rank tells of it: the last error is the explanation */
    bool is_told;        /**< another does: this one is silent */
    ech_explanation why; /**< where is_mine */
} ech_watch_hang;

/** The run has failed here: is it that a rank does not answer, and who tells.  Local.
 *  @param session  borrowed; NULL: it has not begun
 *  @param w        borrowed; NULL: nothing is known
 *  @param st       of the failure, its words the last error's; replaced where is_mine
 *  @param out      set
 *  @return st */
ech_status ech_watch_find(const ech_session *session, const ech_watch *w, ech_status st,
                          ech_watch_hang *out);

/** Kill what is stopped of this run on this host, which mpirun's SIGTERM would not reach, so that its
 *  end is not waited for.  Only under `train --ranks`, which returns the job's own exit status. */
void ech_watch_kill_stopped(const ech_watch *w);

/** Wait some seconds for the end that another rank brings about.
 *  @return a signal came: it is on its way */
bool ech_watch_await_end(void);

/** In the process that started the ranks, when the job has ended: kill what is left of them here.  Returns
 *  when it is gone, or after a second.
 *  @param dir  the run folder */
void ech_watch_kill_left(const char *dir);

#endif
