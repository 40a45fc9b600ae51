/** @file train/loop.h
 *  The training loop: steps, learning rate, evaluation, checkpoints, what to do about NaN and about
 *  a wish to stop.  *Collective* over the run; events go out on rank 0. */
#ifndef ECH_TRAIN_LOOP_H
#define ECH_TRAIN_LOOP_H

#include "train/config.h"  /* ech_config */
#include "train/events.h"  /* ech_train_sink */
#include "train/feed.h"    /* ech_feed */
#include "train/resume.h"  /* ech_resume */
#include "train/session.h" /* ech_session */

#include <signal.h>

/** What a loop runs on; all borrowed. */
typedef struct ech_loop_config {
    const ech_config *cfg;
    ech_session *session;
    ech_feed *feed;
    const ech_resume *from;            /**< where it starts; its state is in the session */
    int64_t steps;                     /**< the step to stop at */
    const char *dump_grads;            /**< file for the last step's gradients, NULL: none */
    const volatile sig_atomic_t *stop; /**< becomes non-zero when a signal asked to stop */
    const char *layout_auto;           /**< how `layout: auto` was decided; NULL: it is not */
    const ech_legal_report *legal;     /**< for the start event; NULL: none */
    const char *transport, *kernels;   /**< names, for the start event */
    const char *data;                  /**< JSON of ech_inputs_to_json, on rank 0; NULL: none */
    const double *step_s;              /**< predicted seconds of a step, NULL: not known */
    bool wants_ranks;                  /**< start and end tell every rank's figures */
    int64_t trace_step;                /**< step, from 1, whose time line is told; 0: none */
    ech_train_sink sink;
} ech_loop_config;

/** How it ended. */
typedef enum ech_loop_end { ECH_LOOP_FINISHED, ECH_LOOP_STOPPED } ech_loop_end;

/** The session that a configuration asks for.
 *  @param cfg      resolved and validated, borrowed by the session through its model
 *  @param kernels  NULL: reference
 *  @param threads  of each rank
 *  @param node_ranks  ranks of a node; 0: not known */
ech_session_config ech_loop_session_config(const ech_config *cfg, const ech_kernel_set *kernels,
                                           int threads, int node_ranks);

/** What is known of a model before it is trained: parameters, FLOPs and their convention.
 *  @param model  borrowed
 *  @param seq    tokens of a sequence
 *  @param out    these fields are set, the others left alone
 *  @return ECH_OK | ECH_E_ILLEGAL (sizes leave 64 bits) */
ECH_MUST_USE ech_status ech_loop_describe(const ech_model *model, int64_t seq,
                                          ech_event_start *out);

/** Train.  *Collective*, blocking.  A run that is at its last step already does nothing but tell so.
 *  @param config  borrowed
 *  @param end     out on success: finished, or stopped after a signal (a checkpoint has been written
 *                 if the configuration asks for any)
 *  @return ECH_OK
 *        | ECH_E_FAILED   diverged (faults.nan: stop); the last checkpoint could not be saved, told
 *                         after the end event (of one before it a fault event tells, and the
 *                         run goes on)
 *        | ECH_E_TIMEOUT  a wait for a peer reached its deadline
 *        | ECH_E_IO | ECH_E_DATA | ECH_E_COMM | ECH_E_DEADLOCK | ECH_E_CORRUPT (an arena's canaries)
 *        | ECH_E_NOMEM | what a callback of the sink returned */
ECH_MUST_USE ech_status ech_loop_run(const ech_loop_config *config, ech_loop_end *end);

#endif
