/** @file train/events.h
 *  What the training loop tells the outside: plain values handed to callbacks on rank 0 (the fields
 *  of `train --json`).  What is not known is NaN and becomes null. */
#ifndef ECH_TRAIN_EVENTS_H
#define ECH_TRAIN_EVENTS_H

#include "comm/comm.h"     /* ech_sent */
#include "engine/engine.h" /* ech_engine_memory */
#include "layout/legal.h"  /* ech_legal_report */
#include "price/predict.h" /* ech_prediction, ech_timeline */

/** What one rank had and sent, beside what was predicted for it. */
typedef struct ech_rank_figures {
    ech_prediction predicted;
    ech_engine_memory memory[ECH_N_SPACES]; /**< allocated and touched */
    ech_sent sent;                          /**< in its last training step */
    int64_t rss_bytes;                      /**< peak resident size of its process */
} ech_rank_figures;

/** Before the first step. */
typedef struct ech_event_start {
    int ranks;
    const ech_layout *layout;
    const char *layout_auto;       /**< how `layout: auto` was decided, in words; NULL: it is not */
    const ech_legal_report *legal; /**< what the layout costs; NULL: not asked */
    int64_t params, params_active;
    double flops_per_token;
    const char *flops_convention;
    double peak_flops; /**< NaN: unknown */
    const ech_prediction *predicted;
    const ech_prediction *by_rank; /**< [ranks]; NULL: not asked for */
    int64_t step;                  /**< steps made already */
    const char *resumed_from;      /**< the checkpoint; NULL: the run starts anew */
    const char *kernels, *transport;
    int threads;
} ech_event_start;

/** After each step of train.log_every. */
typedef struct ech_event_step {
    int64_t step; /**< from 1: steps made, this one included */
    double loss, grad_norm, lr;
    int64_t tokens;      /**< unmasked: those the loss is the mean of */
    double tokens_per_s; /**< all positions of the global batch, as throughput is quoted */
    double mfu, hfu, step_s, exposed_comm_s, loss_scale;
    bool skipped; /**< no update */
} ech_event_step;

/** After an evaluation. */
typedef struct ech_event_eval {
    int64_t step;
    double loss, perplexity;
} ech_event_eval;

/** After a checkpoint stands. */
typedef struct ech_event_checkpoint {
    int64_t step;
    const char *path;
    int64_t bytes;
    double stall_s, write_s;
} ech_event_checkpoint;

/** When something went wrong with a step or a checkpoint. */
typedef struct ech_event_fault {
    const char *kind; /**< "nan", "no tokens", "checkpoint", "hang" */
    int rank;         /**< -1: none in particular */
    int64_t step;
    const char *action; /**< "stop", "skip", "go on", "pass over" */
    const char *detail; /**< in words */
} ech_event_fault;

/** Predicted beside what was there and what was sent; the largest differences over all ranks. */
typedef struct ech_event_end {
    int64_t steps;
    double loss;
    const ech_prediction *predicted;
    const ech_engine_memory *memory; /**< [ECH_N_SPACES] allocated and touched, of the rank
                                        that is fullest by prediction */
    int64_t rss_bytes;               /**< peak resident size of its process */
    const ech_sent *sent;            /**< of its last training step */
    int64_t memory_diff_bytes, comm_diff_bytes;
    const ech_rank_figures *by_rank; /**< [ranks]; NULL: not asked for */
    int ranks;
    double kernel_share, comm_share, blocked_share; /**< of the time inside training steps */
    int64_t skipped, nonfinite;                     /**< steps */
} ech_event_end;

/** When a step has been recorded, after what follows the step (evaluation, checkpoint). */
typedef struct ech_event_trace {
    int64_t step;
    const ech_timeline *line;
} ech_event_trace;

/** Callbacks; NULL ones are passed over.  They may fail: the run then ends with their status. */
typedef struct ech_train_sink {
    void *user;
    ech_status (*start)(void *user, const ech_event_start *e);
    ech_status (*step)(void *user, const ech_event_step *e);
    ech_status (*eval)(void *user, const ech_event_eval *e);
    ech_status (*checkpoint)(void *user, const ech_event_checkpoint *e);
    ech_status (*fault)(void *user, const ech_event_fault *e);
    ech_status (*end)(void *user, const ech_event_end *e);
    ech_status (*trace)(void *user, const ech_event_trace *e);
} ech_train_sink;

#endif
