/** @file train/checkpoint.h
 *  What a run keeps of itself: checkpoints under checkpoint.dir (train/state.h, which are kept:
 *  storage/ckpt_folder.h), and the gradients' dump.  Where a run goes on: train/resume.h. */
#ifndef ECH_TRAIN_CHECKPOINT_H
#define ECH_TRAIN_CHECKPOINT_H

#include "base/io_lock.h"         /* ech_lock */
#include "storage/ckpt_publish.h" /* ech_ckpt_position, ech_ckpt_saved */
#include "train/config.h"         /* ech_config */
#include "train/session.h"        /* ech_session */

/** A run's hold on checkpoint.dir.  Zero-initialise; release with ech_lock_release of `lock`. */
typedef struct ech_checkpoint_hold {
    ech_lock *lock; /**< owned; NULL: not held, or the file system has no locks */
    bool is_asked;  /**< it is held, or cannot be and that has been said */
} ech_checkpoint_hold;

/** Hold checkpoint.dir for this run, so that no second one saves, prunes and sweeps there, by the
 *  file DIR/lock, which tells who.  What a dead run left is taken over; one that is just ending is
 *  waited for, two seconds.  Does nothing where it is held already, checkpoint.every_steps is 0 or
 *  the folder is not there yet.  Local: rank 0.
 *  @param cfg   resolved
 *  @param hold  in/out
 *  @return ECH_OK | ECH_E_ENV (another run holds it: host, process, run folder, since when) |
 *       ECH_E_IO
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_checkpoint_lock(const ech_config *cfg, ech_checkpoint_hold *hold);

/** Before the run: make checkpoint.dir where checkpoints are asked for, see that folders can be made
 *  in it and beside the file of gradients, hold it (ech_checkpoint_lock), and that data.tokenizer
 *  can stand beside the model. Local: call it on the process that will write.
 *  @param cfg    resolved
 *  @param grads  NULL: no file of gradients
 *  @param hold   in/out
 *  @return ECH_OK | ECH_E_IO | ECH_E_CONFIG (the tokenizer) | ECH_E_ENV (another run holds the
 *       folder)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_checkpoint_prepare(const ech_config *cfg, const char *grads,
                                               ech_checkpoint_hold *hold);

/** Save checkpoint.dir/step-N with configuration and tokenizer, and remove what is beyond
 *  checkpoint.keep.  *Collective*, blocking.
 *  @param cfg  resolved
 *  @param s    no step is running
 *  @param at   the same on every process
 *  @param data JSON of ech_inputs_to_json, on the process of rank 0; NULL: none
 *  @param out  set on success, on the process of rank 0
 *  @return as ech_state_save: the same on every process, older ones stand on failure.  What cannot
 *          be removed is a warning only */
ECH_MUST_USE ech_status ech_checkpoint_save(const ech_config *cfg, ech_session *s,
                                            const ech_ckpt_position *at, const char *data,
                                            ech_ckpt_saved *out);

/** Gradients of the last step, multiplied by `factor` (1 / loss_scale), as safetensors with HF names,
 *  written by the process of rank 0.  *Collective*.
 *  @return ECH_OK | ECH_E_IO | ECH_E_UNSUPPORTED | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_checkpoint_dump_grads(ech_session *s, double factor, const char *file);

#endif
