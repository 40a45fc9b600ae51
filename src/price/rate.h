/** @file price/rate.h
 *  Rates of a step: tokens and FLOPs a second of a GPU, and its share of the device's peak, by a
 *  convention that is named with them.
 *
 *  The convention is that of train: 6 N_matmul + 12 L s a d_h a token, causality not deducted
 *  (Chowdhery et al. 2022, arXiv:2204.02311, appendix B); gradients of frozen weights are not counted.
 *  Peaks are dense, of the precision that
 *  matrix products have: shares of a peak "with sparsity" are half as large.  Pure; local. */
#ifndef ECH_PRICE_RATE_H
#define ECH_PRICE_RATE_H

#include "price/step.h" /* ech_step_price */

/** Rates.  Shares are NaN where the device has no peak of that precision. */
typedef struct ech_step_rates {
    double flops_per_token; /**< model FLOPs, forward and backward */
    double peak_flops;      /**< FLOP/s of a device, dense; NaN: none */
    double tokens_per_s_per_gpu;
    double flops_per_s_per_gpu; /**< of the model: recomputation not counted */
    double mfu;
    double hfu;        /**< with recomputation, counted alike: mfu where there is none */
    double mfu_causal; /**< attention's half deducted */
} ech_step_rates;

/** The convention in words; static storage. */
#define ECH_FLOPS_CONVENTION "6 N_matmul + 12 L s a d_h (causality not deducted)"

/** Of a step's price.
 *  @param job   borrowed
 *  @param step  borrowed */
ech_step_rates ech_step_rates_of(const ech_job *job, const ech_step_price *step);

/** Note how rates follow.
 *  @param notes  not NULL */
void ech_step_rates_explain(const ech_job *job, const ech_step_price *step, const ech_step_rates *r,
                            ech_derivation *notes);

#endif
