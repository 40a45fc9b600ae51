/** @file cli/beside_options.h
 *  Options of fit and sim for what a job does beside its steps, and how it steps: saving, loading, the
 *  optimizer's way, buffers of disks.  Local. */
#ifndef ECH_CLI_BESIDE_OPTIONS_H
#define ECH_CLI_BESIDE_OPTIONS_H

#include "cli/command.h" /* ech_opt */
#include "price/job.h"   /* ech_job */

/** Values as typed.  Zero-initialise. */
typedef struct ech_beside_options {
    const char *save, *optimizer_step;
    const char *load_precision;
    int64_t save_turns, load_copies;
    int64_t nvme_param_buffers, nvme_optimizer_buffers, nvme_buffer;
    int64_t reduce_bucket, live_params;
    bool is_paged;
} ech_beside_options;

enum { ECH_BESIDE_ROWS = 12 };

/** Rows of them.
 *  @param o     where values go; must stay where it is
 *  @param rows  out [ECH_BESIDE_ROWS]
 *  @return how many */
size_t ech_beside_options_rows(ech_beside_options *o, ech_opt *rows);

/** Into a job.
 *  @param o         borrowed
 *  @param job       in/out
 *  @param findings  added to: unknown words with the nearest, numbers below 0 */
void ech_beside_options_apply(const ech_beside_options *o, ech_job *job, ech_findings *findings);

/** Words for a command's usage. */
#define ECH_BESIDE_OPTIONS_USAGE                                                                   \
    "Beside the steps\n"                                                                           \
    "  --optimizer-step W grouped (temporaries of a whole shard) or fused (default: as the\n"      \
    "                     engine does); --optimizer-paged: its state may go to the host\n"         \
    "  --save W           sharded (each rank its own) or full (the model gathered on devices)\n"   \
    "  --save-turns N     ranks of a node stage what they save in N turns (default 1)\n"           \
    "  --load-copies N    whole models in a node's host memory while loading (default: none)\n"    \
    "  --load-precision P of them: bf16 (default) or fp32\n"                                       \
    "  --nvme-buffer N    elements of a pinned buffer; --nvme-param-buffers N,\n"                  \
    "                     --nvme-optimizer-buffers N: how many a rank has\n"                       \
    "  --reduce-bucket N, --live-params N   elements: DeepSpeed's buckets and what it keeps\n"

#endif
