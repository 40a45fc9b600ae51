/** @file price/step.h
 *  Time of a training step of a job under a layout, from closed forms: each op's roofline with the
 *  efficiency of its shape, collectives by payload and span, overlap, the pipeline's composition.
 *
 *  The constants stand in one table (constants.c): per device kind and per generation of software,
 *  fitted to published measurements (bench/fit).  None belongs to a row, a paper or a model.
 *  Prices of blocks are kept in a cache that the caller owns: a search asks for the same few
 *  thousand of them again and again.
 *  Pure; nothing allocates after ech_pricer_create but the derivation; local. */
#ifndef ECH_PRICE_STEP_H
#define ECH_PRICE_STEP_H

#include "layout/layout.h" /* ech_axis */
#include "price/derive.h"  /* ech_derivation */
#include "price/job.h"     /* ech_job, ech_point */

struct ech_constants;

/** What a step's price is made of: means over all ranks, seconds;
 *  step = compute + recompute + bubble + all exposed + optimizer + fixed. */
typedef struct ech_step_price {
    double step_s;
    double compute_s;             /**< forward and backward kernels of the mean rank */
    double recompute_s;           /**< forward kernels that run again */
    double bubble_s;              /**< idle by the schedule and by uneven stages */
    double exposed_s[ECH_N_AXES]; /**< communication that nothing hides, by group */
    double hidden_s[ECH_N_AXES];  /**< communication under compute */
    double offload_s;             /**< transfers to and from the host that nothing hides */
    double optimizer_s;           /**< update and norm */
    double fixed_s;        /**< a step's and a micro-batch's launch and host costs, stragglers */
    double model_flops;    /**< of the whole step and all ranks, causal half (the convention) */
    double hardware_flops; /**< of the kernels: recomputation, padding, what is seen of attention */
    double again_flops;    /**< recomputation in the convention of MFU: causality not deducted */
    double sent_bytes[ECH_N_AXES]; /**< of the fullest rank and step, wire */
    double uncertainty;            /**< relative, price/doubt.h; NaN: not known */
} ech_step_price;

/** The pricer of one job: constants and cached prices.  Opaque. */
typedef struct ech_pricer ech_pricer;

/** Make one.
 *  @param job        borrowed, must outlive it
 *  @param constants  borrowed; NULL: the built-in table
 *  @param out        owned by the caller
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_pricer_create(const ech_job *job, const struct ech_constants *constants,
                                          ech_pricer **out);

/** Take another job or other constants; what was kept is forgotten, nothing allocates.
 *  @param pricer     in/out
 *  @param job        borrowed from now on
 *  @param constants  borrowed; NULL: the built-in table */
void ech_pricer_rebind(ech_pricer *pricer, const ech_job *job,
                       const struct ech_constants *constants);

/** NULL-safe. */
void ech_pricer_destroy(ech_pricer **pricer);

/** Price one layout.
 *  @param pricer  in/out (its cache)
 *  @param point   legal, borrowed
 *  @param notes   NULL: no derivation
 *  @param out     set */
void ech_pricer_step(ech_pricer *pricer, const ech_point *point, ech_derivation *notes,
                     ech_step_price *out);

/** A lower bound of the step's time over every layout with these tp, cp, cp_kind, ep, etp, sp, micro,
 *  recompute and precision: kernels of the mean rank, and messages of tp, cp and ep that nothing
 *  hides.  (Of some recomputed layers: none.)  For the search. */
double ech_pricer_bound(ech_pricer *pricer, const ech_point *point);

/** Times of the stages for a detailed simulation or picture.
 *  @param pricer    in/out
 *  @param point     legal, borrowed
 *  @param forward   out [pp * chunks] seconds of one micro-batch
 *  @param backward  out [pp * chunks] the same, recomputation included, without `weight`
 *  @param weight    out [pp * chunks] gradients of weights, where the schedule tells them apart;
 *                   else 0
 *  @param hop_s     out: from one stage to the next, beyond what is in the stages' times */
void ech_pricer_stages(ech_pricer *pricer, const ech_point *point, double *forward,
                       double *backward, double *weight, double *hop_s);

/** One op of a step, for the table of `sim`. */
typedef struct ech_op_price {
    char name[48];       /**< "layer: qkv", "layer: attention backward" */
    double count;        /**< of them on the mean rank and step */
    double seconds;      /**< of one */
    double flops, bytes; /**< of one */
    double efficiency;   /**< of the compute peak, or of the memory bandwidth */
    const char *bound;   /**< "compute", "memory", "launch", "link"; static storage */
} ech_op_price;

/** All ops of a layout.
 *  @param op   out [cap]
 *  @return how many there are */
int ech_pricer_ops(ech_pricer *pricer, const ech_point *point, ech_op_price *op, int cap);

#endif
