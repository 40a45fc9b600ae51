/** @file train/checkpoint.h
 *  Weights as HF folders under checkpoint.dir, one a saved step, and the gradients' dump.
 *
 *  DIR/step-N is put in place whole, then DIR/latest (JSON) names it as the newest, then what is
 *  beyond checkpoint.keep is removed.  Retention counts what this run has saved; folders of earlier
 *  runs stay until a step of the same number replaces them, and never are the newest again, however
 *  high their number.  Optimizer state is not kept yet: a run starts anew. */
#ifndef ECH_TRAIN_CHECKPOINT_H
#define ECH_TRAIN_CHECKPOINT_H

#include "train/config.h"  /* ech_config */
#include "train/session.h" /* ech_session */

/** Checkpoints of this run that stand, oldest first.  Zero-initialise. */
typedef struct ech_checkpoints {
    int64_t *step; /**< owned, [n] */
    size_t n, capacity;
} ech_checkpoints;

/** Release and zero. */
void ech_checkpoints_fini(ech_checkpoints *run);

/** What was saved. */
typedef struct ech_checkpoint_saved {
    char path[4096]; /**< the folder */
    int64_t bytes;   /**< of the weights, as they stand in the files */
} ech_checkpoint_saved;

/** Before the run: make checkpoint.dir where checkpoints are asked for, see that folders can be
 *  made in it and beside the file of gradients, and warn of checkpoints that are there already.  Local: call it on the process that will write.
 *  @param grads  NULL: no file of gradients
 *  @return ECH_OK | ECH_E_IO */
ECH_MUST_USE ech_status ech_checkpoint_prepare(const ech_config *cfg, const char *grads);

/** Write DIR/step-N on the process of rank 0 and prune.  *Collective*: weights come from all ranks.
 *  @param cfg   checkpoint.dir and keep
 *  @param s     borrowed
 *  @param step  N: steps made
 *  @param run   in/out: of this run
 *  @param out   set on success
 *  @return ECH_OK | ECH_E_IO | ECH_E_UNSUPPORTED | ECH_E_NOMEM; older ones stand on failure */
ECH_MUST_USE ech_status ech_checkpoint_save(const ech_config *cfg, ech_session *s, int64_t step,
                                            ech_checkpoints *run, ech_checkpoint_saved *out);

/** Newest step-N in a folder: the one that its file `latest` names, without it (or the folder that
 *  it names) the highest N; or the folder itself if it holds a config.json.
 *  @return ECH_OK | ECH_E_IO: neither | ECH_E_PARSE: a file `latest` of another make */
ECH_MUST_USE ech_status ech_checkpoint_find(const char *dir, char *path, size_t n);

/** Gradients of the last step, multiplied by `factor` (1 / loss_scale), as safetensors with HF names,
 *  written by the process of rank 0.  *Collective*.
 *  @return ECH_OK | ECH_E_IO | ECH_E_UNSUPPORTED | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_checkpoint_dump_grads(ech_session *s, double factor, const char *file);

#endif
