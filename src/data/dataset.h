/** @file data/dataset.h
 *  Token files as numbered samples, and the filling of batches.
 *
 *  Sample i of a file = tokens [i*seq, i*seq + seq]: the first seq are inputs, the last seq labels,
 *  so a file of n tokens holds (n - 1) / seq samples.  Several files stand one after another in the
 *  sample space.  A label whose mask byte is 0 or which is ignore_id becomes -1: no loss.  Local; a
 *  data set is read-only after open and may be read by several threads. */
#ifndef ECH_DATA_DATASET_H
#define ECH_DATA_DATASET_H

#include "data/sampler.h"    /* ech_sampler */
#include "data/token_file.h" /* ech_token_options */

/** Which samples of the space are seen. */
typedef enum ech_data_part {
    ECH_DATA_ALL,
    ECH_DATA_TRAIN,   /**< all but the last hold_out samples */
    ECH_DATA_HELD_OUT /**< the last hold_out samples */
} ech_data_part;

/** What to open. */
typedef struct ech_dataset_config {
    const char *const *files; /**< [n_files] token files, borrowed during open */
    const char *const *masks; /**< [n_masks], borrowed during open; one per file, or NULL */
    int n_files;              /**< >= 1 */
    int n_masks;              /**< 0 or n_files */
    int64_t seq;              /**< tokens in a sequence, >= 1 */
    int64_t ignore_id;        /**< labels of this id carry no loss; -1: none */
    int64_t hold_out;         /**< samples at the end kept apart, >= 0 */
    ech_data_part part;
    ech_token_options tokens; /**< dtype, vocabulary, scan */
} ech_dataset_config;

/** No files, seq 0 (to be set), no mask, all samples. */
ech_dataset_config ech_dataset_config_default(void);

/** An open data set; opaque. */
typedef struct ech_dataset ech_dataset;

/** Open all files and count samples.
 *  @param config  borrowed
 *  @param out     owned by the caller, release with ech_dataset_close; set on success only
 *  @return ECH_OK | ECH_E_CONFIG (seq, counts, hold_out) | ECH_E_DATA (a file shorter than seq + 1
 *          tokens, or as ech_token_file_open) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_dataset_open(const ech_dataset_config *config, ech_dataset **out);

/** Close; accepts NULL, nulls the pointer. */
void ech_dataset_close(ech_dataset **ds);

/** Samples of the chosen part, >= 1. */
int64_t ech_dataset_samples(const ech_dataset *ds);

/** Tokens in all files. */
int64_t ech_dataset_tokens(const ech_dataset *ds);

/** File i, borrowed (for the run record). */
const ech_token_file *ech_dataset_file(const ech_dataset *ds, int i);

/** Fill rows from given samples; does not allocate.
 *  @param ds        borrowed
 *  @param samples   [n_rows], each in [0, samples) (asserted)
 *  @param n_rows    rows
 *  @param inputs    out [n_rows, seq] ids
 *  @param labels    out [n_rows, seq] ids, -1 where there is no loss
 *  @param n_labels  out: labels that are not -1; may be NULL
 *  @return ECH_OK | as ech_token_file_read */
ECH_MUST_USE ech_status ech_dataset_fill(const ech_dataset *ds, const int64_t *samples,
                                         int64_t n_rows, int32_t *inputs, int32_t *labels,
                                         int64_t *n_labels);

/** What a rank asks for: some rows of one global batch. */
typedef struct ech_batch_request {
    int64_t step;        /**< 0-based global step */
    const int64_t *rows; /**< [n_rows] row numbers in [0, global_batch), borrowed */
    int64_t n_rows;
} ech_batch_request;

/** Fill the asked rows of a global batch in the sampler's order; does not allocate.  Parameters and
 *  errors as ech_dataset_fill. */
ECH_MUST_USE ech_status ech_batch_fill(const ech_dataset *ds, const ech_sampler *sampler,
                                       const ech_batch_request *request, int32_t *inputs,
                                       int32_t *labels, int64_t *n_labels);

#endif
