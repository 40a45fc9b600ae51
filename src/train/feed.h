/** @file train/feed.h
 *  From token files to the slots of a session: the rows of the global batch that each local rank
 *  holds, in the sampler's global order.  Local; feeding does not allocate. */
#ifndef ECH_TRAIN_FEED_H
#define ECH_TRAIN_FEED_H

#include "data/dataset.h"  /* ech_dataset */
#include "train/config.h"  /* ech_config */
#include "train/session.h" /* ech_session */

/** Training and held-out data of a run. */
typedef struct ech_feed {
    ech_dataset *train; /**< owned */
    ech_dataset *valid; /**< owned; NULL: no evaluation */
    ech_sampler order;  /**< of the training samples */
    int64_t *rows;      /**< owned, [rows of a micro-batch] */
    int32_t *unread;    /**< owned: tokens of a micro-batch that a stage does not take */
    int64_t micro_rows;
} ech_feed;

/** Open the files of a configuration.
 *  @param cfg    resolved
 *  @param scans  check every id against the model's vocabulary now, reading files without a side
 *                file once; one process of a run is enough, the others check what they read
 *  @param out    set on success only; release with ech_feed_close
 *  @return ECH_OK | ECH_E_DATA | ECH_E_CONFIG | ECH_E_IO | ECH_E_NOMEM, naming the file */
ECH_MUST_USE ech_status ech_feed_open(const ech_config *cfg, bool scans, ech_feed *out);

/** Close and zero; a zeroed one is fine. */
void ech_feed_close(ech_feed *feed);

/** Fill the slots of all local ranks for a step (from 0).
 *  @return ECH_OK | ECH_E_IO | ECH_E_DATA */
ECH_MUST_USE ech_status ech_feed_step(ech_feed *feed, ech_session *s, int64_t step);

/** Global batches that cover the held-out samples; the last may be part empty. */
int64_t ech_feed_eval_batches(const ech_feed *feed, const ech_session *s);

/** Fill with held-out batch `index`, in file order; rows beyond the last sample are masked.
 *  @return as ech_feed_step */
ECH_MUST_USE ech_status ech_feed_eval(ech_feed *feed, ech_session *s, int64_t index);

/** Sample in global row `row` of a step (for messages). */
int64_t ech_feed_sample(const ech_feed *feed, int64_t step, int64_t row);

#endif
