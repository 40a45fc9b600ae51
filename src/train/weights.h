/** @file train/weights.h
 *  Trained weights, from whatever kind of path a person names: a checkpoint, a checkpoint.dir (its
 *  newest whole one), an HF folder, or llama2.c's legacy file.  Opening reads headers only; the
 *  values go straight to the caller's memory, in canonical order.  Local. */
#ifndef ECH_TRAIN_WEIGHTS_H
#define ECH_TRAIN_WEIGHTS_H

#include "storage/ckpt_reader.h" /* ech_ckpt */
#include "storage/hf_folder.h"   /* ech_hf_folder */
#include "train/config.h"        /* ech_config */
#include "train/session.h"       /* ech_session */

/** Weights on disk.  Zero-initialise; release with ech_weights_close. */
typedef struct ech_weights {
    char path[4096];      /**< of the folder or file they really are in */
    bool is_llama2c;      /**< a llama2.c file: it has no tokenizer */
    ech_dtype file_type;  /**< of the first tensor there */
    ech_ckpt *ckpt;       /**< owned; NULL: no checkpoint */
    ech_hf_folder folder; /**< owned; model and canon of the other kinds too */
} ech_weights;

/** Open: model, canonical tensors, headers checked against them.  Of a folder with checkpoints that
 *  are not whole, newer ones are passed over with a warning.
 *  @param path  checkpoint, HF folder, checkpoint.dir or llama2.c's .bin
 *  @param out   set on success
 *  @return ECH_OK | ECH_E_IO (nothing such there) | ECH_E_CONFIG | ECH_E_UNSUPPORTED (a model that
 *          is not executed) | ECH_E_CORRUPT | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_weights_open(const char *path, ech_weights *out);

/** Close and zero. */
void ech_weights_close(ech_weights *w);

/** The type to run them in: fp64 where they are fp64, else fp32. */
ech_dtype ech_weights_real(const ech_weights *w);

/** Read all values, padding rows zero.
 *  @param w     open
 *  @param real  ECH_F32 or ECH_F64: of the elements of flat
 *  @param flat  [w->folder.canon.elems], undefined after a failure
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_weights_read(const ech_weights *w, ech_dtype real, void *flat);

/** Read all values into what ranks hold of them.
 *  @param w     open
 *  @param held  [n] of one model and type
 *  @param n     ranks
 *  @param hash  out: of all values read; NULL: not wanted
 *  @return as ech_weights_read; parameters undefined after a failure */
ECH_MUST_USE ech_status ech_weights_load(const ech_weights *w, const ech_held *held, int n,
                                         uint64_t *hash);

/** The folder whose weights a run starts from: the one that model.hf names, if it holds any.
 *  @return borrowed from cfg; NULL: the run starts from train.seed */
const char *ech_weights_of_config(const ech_config *cfg);

/** Open a folder and compare every tensor with those of a model; no value is read.
 *  @param folder  by ech_weights_of_config
 *  @param model   that will be trained
 *  @return as ech_weights_open | ECH_E_CONFIG  other keys changed the shape */
ECH_MUST_USE ech_status ech_weights_check(const char *folder, const ech_model *model);

/** Put a folder's weights in place of the initial ones, on every rank that lives here.
 *  @param folder  by ech_weights_of_config
 *  @param s       no step made yet; parameters undefined after a failure
 *  @param hash    out: of all values read, alike on processes that read alike
 *  @return as ech_weights_check and ech_weights_read */
ECH_MUST_USE ech_status ech_weights_start(const char *folder, ech_session *s, uint64_t *hash);

#endif
