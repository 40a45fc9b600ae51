/** @file train/resume.h
 *  Where a run goes on: the checkpoint it is asked to take, put into the session of every rank.
 *
 *  Rank 0 looks for it, all processes check every byte of it between them, each reads what its
 *  ranks hold.  One that is damaged, or of another model, is passed over for the one before, unless
 *  it was asked for by its own path; where there are some and none can be used, the run ends before
 *  it has written anything. */
#ifndef ECH_TRAIN_RESUME_H
#define ECH_TRAIN_RESUME_H

#include "base/text.h"             /* ech_text */
#include "storage/ckpt_manifest.h" /* ech_ckpt_position */
#include "train/checkpoint.h"      /* ech_checkpoint_hold */
#include "train/config.h"          /* ech_config */
#include "train/inputs.h"          /* ech_inputs */
#include "train/session.h"         /* ech_session */

#define ECH_RESUME_AUTO "auto" /**< the newest of checkpoint.dir, else anew */
#define ECH_RESUME_NO   "no"   /**< anew */

/** What a run asks for; borrowed. */
typedef struct ech_resume_request {
    const ech_config *cfg;    /**< resolved */
    const char *wish;         /**< auto, no, or a path: a checkpoint, or a folder with some */
    int64_t steps;            /**< the step to stop at */
    const ech_inputs *inputs; /**< of cfg, on rank 0's process; else empty */
} ech_resume_request;

/** Where a run starts.  Zero-initialise; release with ech_resume_fini. */
typedef struct ech_resume {
    char path[1024];      /**< the checkpoint; "": it starts anew */
    ech_ckpt_position at; /**< where that one stood; zero: anew */
    int64_t generation;   /**< of what the run will save */
    ech_text passed_over; /**< owned, on rank 0's process: a line for each newer one not taken */
    ech_checkpoint_hold hold; /**< owned, on rank 0's process: keeps other runs out */
} ech_resume;

/** Release and zero. */
void ech_resume_fini(ech_resume *r);

/** Find the checkpoint and load it.  *Collective*, blocking: no wait in it has a deadline.
 *  checkpoint.dir is held first (ech_checkpoint_lock), and temporary folders of killed saves in it
 *  are cleared away.  Where a whole checkpoint of another generation stands at a step that this run
 *  will save (multiples of every_steps, the last one) it is refused before anything is trained.
 *  With checkpoint.every_steps 0 nothing is looked for, unless by path.
 *  @param request  the same on every process
 *  @param s        no step made yet; its state is undefined after a failure
 *  @param out      the same on every process but for passed_over and hold
 *  @return the same on every process: ECH_OK
 *        | ECH_E_CORRUPT  damaged, or none of those there can be used: the message says why of each
 *        | ECH_E_FAILED   the one asked for is of another model
 *        | ECH_E_CONFIG   batch.global does not lead to its position in the data, or no moments
 *                         were saved for this optimizer, or an earlier run's checkpoint stands
 *                         where this one would save
 *        | ECH_E_ENV      another run holds checkpoint.dir
 *        | ECH_E_IO | ECH_E_UNSUPPORTED | ECH_E_NOMEM | ECH_E_COMM */
ECH_MUST_USE ech_status ech_resume_find(const ech_resume_request *request, ech_session *s,
                                        ech_resume *out);

#endif
