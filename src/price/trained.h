/** @file price/trained.h
 *  What part of a job's work and state belongs to weights that are trained: all of it, the last
 *  layers, or adapters.  Pure; nothing allocates; local. */
#ifndef ECH_PRICE_TRAINED_H
#define ECH_PRICE_TRAINED_H

#include "price/job.h" /* ech_job, ech_point */

/** Shares and elements. */
typedef struct ech_trained {
    bool is_all;           /**< everything is: elements are then not counted */
    double dense, expert;  /**< elements of the fullest pipeline rank that are trained */
    double share;          /**< of its elements */
    double backward_share; /**< of layers' work for gradients of inputs that is done */
    double weight_share;   /**< of that for gradients of weights */
} ech_trained;

/** Of a layout.  Adapters: gradients flow through every layer, and those of frozen weights are not
 *  computed.  Frozen layers: nothing flows into them. */
void ech_trained_of(const ech_job *job, const ech_point *point, ech_trained *out);

/** The least that backward_share and weight_share are under any layout. */
void ech_trained_bound(const ech_job *job, double *backward_share, double *weight_share);

/** Of the model's FLOPs, a third each for forward, gradients of inputs and of weights, what is done;
 *  adapters' own left out. */
double ech_trained_flops_share(const ech_job *job);

/** fp32 copy and moments of a trained element, bytes, before they are shared. */
double ech_trained_state_bytes(const ech_job *job);

#endif
