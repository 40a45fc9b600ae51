/** @file storage/ckpt_folder.h
 *  The checkpoints of a folder: which there are, which is the newest that can be trusted, which may
 *  go, and what a killed save has left.
 *
 *  Order is that of (generation, step), never of names or times: a run that starts anew in a folder
 *  with older checkpoints, or goes on from one that is not the newest, has a higher generation, so
 *  that a left-over step-5000 does not win over its step-400.  Folders without a manifest that hold
 *  a config.json are Hugging Face's and none of ours.  Every call is local: made by rank 0 alone. */
#ifndef ECH_STORAGE_CKPT_FOLDER_H
#define ECH_STORAGE_CKPT_FOLDER_H

#include "storage/ckpt_reader.h" /* ech_ckpt */

/** One folder step-N. */
typedef struct ech_ckpt_entry {
    char name[40];
    int64_t step;       /**< by the name */
    int64_t generation; /**< as the manifest's head says, unchecked; INT64_MAX: it cannot be read,
                             which counts as newest so that it is spoken of */
} ech_ckpt_entry;

/** N of a path whose last part is step-N; -1: another name. */
int64_t ech_ckpt_step_of_path(const char *path);

/** Checkpoints in a folder, newest first; an absent folder has none.
 *  @param dir  the folder
 *  @param out  [n] owned by the caller, free()
 *  @param n    out
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_list(const char *dir, ech_ckpt_entry **out, size_t *n);

/** What to look for. */
typedef struct ech_ckpt_query {
    const ech_model *model; /**< borrowed; NULL: of any model */
    const ech_canon *canon; /**< borrowed: of model */
    bool verifies;          /**< read every byte before trusting one */
} ech_ckpt_query;

/** Open the newest checkpoint that is whole and of the model: manifest, and every file's size; every
 *  byte where that is asked.  One that is not is passed over, with its reason.
 *  @param dir          the folder
 *  @param query        borrowed
 *  @param passed_over  appended: a line for each newer one that is damaged or of another model
 *  @param out          owned by the caller, ech_ckpt_close; NULL: there is none
 *  @return ECH_OK | ECH_E_IO (the folder, or one of these, cannot be read: that is no damage)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_find(const char *dir, const ech_ckpt_query *query,
                                      ech_text *passed_over, ech_ckpt **out);

/** The generation of a run about to save in a folder.
 *  @param dir     the folder
 *  @param source  the checkpoint that it goes on from (of this folder or another); NULL: it starts
 *                 anew
 *  @param out     the source's where that is the folder's newest, else one more than any there
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_next_generation(const char *dir, const ech_ckpt *source,
                                                 int64_t *out);

/** May a run put a checkpoint at a place: is there nothing, one of its own generation, or one that
 *  is damaged?  A whole one of another run is never replaced.  Where one of another generation
 *  stands every byte of it is read.
 *  @param path        where it would stand
 *  @param generation  of the run
 *  @return ECH_OK
 *        | ECH_E_IO  it holds one of another run, or cannot be read
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_check_free(const char *path, int64_t generation);

/** Remove checkpoints of a generation beyond the newest `keep` whole ones of it.  The newest whole
 *  one never goes; damaged ones newer than the last that is kept stay, to be looked at.
 *  @param dir         the folder
 *  @param generation  whose; other runs' stay
 *  @param keep        0: all stay
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_prune(const char *dir, int64_t generation, int64_t keep);

/** Clear away what killed saves have left: temporary folders.  One that is whole is put in place
 *  where nothing stands (a file system without atomic exchange can leave that).  No save may be in
 *  progress.
 *  @param dir  the folder; an absent one is fine
 *  @param n    out, or NULL: how many were cleared away
 *  @return ECH_OK | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_sweep(const char *dir, int64_t *n);

#endif
