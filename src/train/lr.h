/** @file train/lr.h
 *  The learning rate: a pure function of the optimizer step, never of micro-batches, ranks or of
 *  where a run was resumed.  Local, pure. */
#ifndef ECH_TRAIN_LR_H
#define ECH_TRAIN_LR_H

#include "train/config.h" /* ech_lr_schedule, ech_config */

/** A schedule: a plain value. */
typedef struct ech_lr {
    ech_lr_schedule schedule;
    double peak;
    double min;
    int64_t warmup_steps; /**< w: the peak is reached at step w */
    int64_t decay_steps;  /**< d: wsd only */
    int64_t total_steps;  /**< n: the minimum is reached at step n and kept */
} ech_lr;

/** Schedule of a validated configuration; its horizon is train.steps whatever `--steps` says. */
ech_lr ech_lr_from_config(const ech_config *cfg);

/** Learning rate of optimizer step s = 1, 2, ... as the step event prints it:
 *
 *      s <= w             peak s / w                                (every schedule)
 *      constant           peak
 *      linear             min + (peak - min) (1 - x),               x = (s - w) / (n - w)
 *      cosine             min + (peak - min) (1 + cos(pi x)) / 2
 *      wsd                peak until n - d, then linear to min at n
 *
 *  x is held within 0..1.  Sources: cosine, Loshchilov & Hutter 2016, arXiv:1608.03983, equation 5;
 *  wsd, Hu et al. 2024, arXiv:2404.06395.
 *  @param lr    borrowed
 *  @param step  from 1; lower ones count as 1 */
double ech_lr_at(const ech_lr *lr, int64_t step);

#endif
