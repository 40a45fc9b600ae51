/** @file train/state.h
 *  A session's state and checkpoints (storage/ckpt_manifest.h): every rank writes what it holds,
 *  every rank reads what it needs, whatever layout it was saved on. */
#ifndef ECH_TRAIN_STATE_H
#define ECH_TRAIN_STATE_H

#include "storage/ckpt_publish.h" /* ech_ckpt_position, ech_ckpt_saved */
#include "storage/ckpt_reader.h"  /* ech_ckpt */
#include "train/session.h"        /* ech_session */

/** What is saved beside the state. */
typedef struct ech_state_spec {
    const char *dir;       /**< checkpoint folder, borrowed; shared by all ranks */
    ech_ckpt_position run; /**< step, generation, updates, samples, seed, lr, loss_scale */
    const char *config;    /**< borrowed: JSON object; NULL: {} */
    const char *data; /**< borrowed: JSON of ech_inputs_to_json, on rank 0's process; NULL: none */
    const char *tokenizer; /**< borrowed: copied into it (ech_hf_tokenizer_copy); NULL: none */
} ech_state_spec;

/** Save DIR/step-N.  *Collective*, blocking: no wait in it has a deadline, since files take the time
 *  they take.  What ranks of dp or hsdp hold alike is dealt out among them.
 *  @param s     no step is running
 *  @param spec  the same on every process
 *  @param out   set on success, on the process of rank 0; elsewhere path "" and bytes 0
 *  @return the same on every process: ECH_OK | ECH_E_IO | ECH_E_CORRUPT | ECH_E_PROOF (padding that is
 *          not zero) | ECH_E_NOMEM | ECH_E_COMM; on failure older checkpoints are untouched */
ECH_MUST_USE ech_status ech_state_save(ech_session *s, const ech_state_spec *spec,
                                       ech_ckpt_saved *out);

/** Put a checkpoint's parameters and moments in place of what the ranks that live here hold.  Local:
 *  every process opens the checkpoint for itself, and agrees with the others afterwards.
 *  @param s  its model is that of c (ech_ckpt_check_model); state undefined after a failure
 *  @param c  open
 *  @return ECH_OK | ECH_E_CONFIG (moments are wanted and were not saved: another optimizer)
 *        | ECH_E_CORRUPT | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_state_load(ech_session *s, ech_ckpt *c);

#endif
