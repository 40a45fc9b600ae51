/** @file storage/ckpt_publish.h
 *  A checkpoint of all ranks' files: filled under a temporary name beside its place, put there in
 *  one atomic step, so that a crash at any moment leaves it absent, old or new.
 *
 *  The order of a save: rank 0 begins; all ranks learn the temporary folder and write their files
 *  (storage/ckpt_writer.h); when all have, rank 0 publishes; if any could not, rank 0 abandons.
 *  The file system is shared by all ranks.  Every call is local: made by rank 0 alone. */
#ifndef ECH_STORAGE_CKPT_PUBLISH_H
#define ECH_STORAGE_CKPT_PUBLISH_H

#include "storage/ckpt_manifest.h" /* ech_ckpt_position, ech_ckpt_layout */

/** What a checkpoint says beside its pieces. */
typedef struct ech_ckpt_head {
    ech_ckpt_position run; /**< `saved` and `is_interleaved` are filled in */
    ech_ckpt_layout layout;
    const ech_model *model; /**< borrowed */
    const ech_canon *canon; /**< borrowed */
    const char *config;     /**< borrowed: JSON object; NULL: {} */
    const char *data;       /**< borrowed: JSON object of the data's hashes; NULL: none */
    ech_dtype dtype[ECH_N_CKPT_CLASSES]; /**< ECH_N_DTYPES: no such class */
} ech_ckpt_head;

/** What was saved. */
typedef struct ech_ckpt_saved {
    char path[4096];
    int64_t bytes; /**< of all piece files */
} ech_ckpt_saved;

/** "DIR/step-00000123" into buf; ECH_E_USAGE if too long. */
ECH_MUST_USE ech_status ech_ckpt_path(const char *dir, int64_t step, char *buf, size_t n);

/** Make the temporary folder.
 *  @param dir   checkpoint folder, made where it is not there
 *  @param step  steps made
 *  @param tmp   out: its path
 *  @param n     room in tmp
 *  @return ECH_OK | ECH_E_IO | ECH_E_USAGE | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_begin(const char *dir, int64_t step, char *tmp, size_t n);

/** Put all ranks' tables together, check that they cover every tensor once, hash what else lies in
 *  the folder (a tokenizer), write the manifest, put
 *  the folder in place.  A checkpoint of the same step and generation that stands there is
 *  replaced, and a damaged one; a whole one of another generation never is.
 *  @param dir   as for ech_ckpt_begin
 *  @param tmp   every rank has written its file
 *  @param head  of the run
 *  @param out   set on success
 *  @return ECH_OK
 *        | ECH_E_CORRUPT      a rank's table is missing or wrong: the message names the rank
 *        | ECH_E_UNSUPPORTED  a model with no HF config.json
 *        | ECH_E_IO (also: one of another generation stands there) | ECH_E_NOMEM;  on failure what
 *        stood there is unchanged (see ech_folder_publish) and tmp is for ech_ckpt_abandon */
ECH_MUST_USE ech_status ech_ckpt_publish(const char *dir, const char *tmp,
                                         const ech_ckpt_head *head, ech_ckpt_saved *out);

/** Remove a temporary folder, as far as that can be done; the last error is kept. */
void ech_ckpt_abandon(const char *tmp);

/** Where a rank's table of pieces lies; inside storage. */
ECH_MUST_USE ech_status ech_ckpt_table_path(const char *tmp, int rank, char *buf, size_t n);

#endif
