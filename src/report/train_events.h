/** @file report/train_events.h
 *  The training loop's events as JSON lines (metrics.h), with the field names of `train --json`,
 *  and the predictions as a fragment that `check --json` shares.  Local. */
#ifndef ECH_REPORT_TRAIN_EVENTS_H
#define ECH_REPORT_TRAIN_EVENTS_H

#include "report/metrics.h" /* ech_metrics */
#include "train/events.h"   /* ech_train_sink */

/** A sink whose callbacks write every event to m.
 *  @param m  borrowed, outlives the sink */
ech_train_sink ech_train_events_sink(ech_metrics *m);

/** Add what a rank takes of each memory space that it has: by class, total, arena.
 *  @param memory  [ECH_N_SPACES] borrowed */
void ech_jout_memory(ech_jout *j, const char *key, const ech_memory *memory);

/** Add "predicted": {"memory_bytes", "comm_bytes", "step_s"} to the object in work. */
void ech_jout_prediction(ech_jout *j, const char *key, const ech_prediction *p);

/** Add what a start event and `check` have in common: ranks, layout, costs, params, params_active,
 *  flops_per_token, flops_convention, peak_flops. */
void ech_jout_run(ech_jout *j, const ech_event_start *e);

/** Add "by_rank": the predictions of n ranks. */
void ech_jout_predictions(ech_jout *j, const ech_prediction *p, int n);

/** Add "layout": degrees by axis name, dp as the configuration counts it, and shard_group: how many
 *  of dp's ranks form one group of dp traffic, replicas (hsdp) beside it. */
void ech_jout_layout(ech_jout *j, const char *key, const ech_layout *l);

#endif
