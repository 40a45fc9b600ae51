/** @file report/run_folder.h
 *  The folder of a run and its record: what is needed to run it again.
 *
 *      DIR/run.json       record: resolved configuration, versions, seeds, machine, layout, data
 *      DIR/metrics.jsonl  events (metrics.h)
 *      DIR/flight-HOST    where the ranks of a host stand (engine/flight.h)
 *
 *  One rank writes.  A record is written whole or not at all.  Local. */
#ifndef ECH_REPORT_RUN_FOLDER_H
#define ECH_REPORT_RUN_FOLDER_H

#include "base/status.h"  /* ech_status */
#include "train/config.h" /* ech_config */
#include "train/inputs.h" /* ech_inputs */

/** What a record holds besides the machine and the versions, which are found out. */
typedef struct ech_run_facts {
    const ech_config *cfg;    /**< borrowed, resolved */
    const char *layout_auto;  /**< how `layout: auto` was decided, borrowed; NULL: it is not */
    int argc;                 /**< the command line, argv[0] included */
    const char *const *argv;  /**< borrowed */
    int ranks;                /**< processes or virtual ranks */
    const char *transport;    /**< "self", "inproc", "mpi" */
    const char *kernels;      /**< "ref", "cpu" */
    const char *weights;      /**< folder the run starts from; NULL: the seed */
    uint64_t weights_hash;    /**< of all values as they are trained, padding included */
    const ech_inputs *inputs; /**< borrowed: of cfg; NULL: hashed here */
} ech_run_facts;

/** Make cfg's run.dir and write its record.  Token files without a side file and masks are
 *  read whole for their hashes (ech_token_file_hash of tokens).
 *  @param facts  borrowed
 *  @return ECH_OK | ECH_E_DATA | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_run_folder_create(const ech_run_facts *facts);

/** "DIR/metrics.jsonl" of a configuration into buf.  @return ECH_OK | ECH_E_USAGE if too long */
ECH_MUST_USE ech_status ech_run_metrics_path(const ech_config *cfg, char *buf, size_t n);

#endif
