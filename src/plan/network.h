/** @file plan/network.h
 *  What a network has to do: how many tokens a sharded step needs to hide its weights' travel, and
 *  which rate of a link a measured step implies.  Pure; local. */
#ifndef ECH_PLAN_NETWORK_H
#define ECH_PLAN_NETWORK_H

#include "price/step.h" /* ech_step_price */

/** Weights that travel every micro-batch (ZeRO-3, FSDP) against what is computed meanwhile. */
typedef struct ech_break_even {
    bool applies;            /**< the layout shards weights over more than one node */
    double node_bytes_per_s; /**< a node's share of the network, one way */
    double achieved_flops;   /**< FLOP/s of a device while it computes */
    double tokens;           /**< a device and micro-batch, from which on the network keeps up */
    double has_tokens;       /**< what the layout gives it */
} ech_break_even;

/** The break-even of a layout: t = (bytes an element travels) F / ((FLOPs an element and token) B).
 *  Parameters and the devices of a node cancel: each node takes in every element as often, and
 *  computes with all of them.
 *  @param job    borrowed
 *  @param point  borrowed
 *  @param step   borrowed: the layout's price
 *  @param notes  NULL: none */
ech_break_even ech_break_even_of(const ech_job *job, const ech_point *point,
                                 const ech_step_price *step, ech_derivation *notes);

/** What a measured step says about the outermost link. */
typedef struct ech_implied_link {
    bool is_found; /**< is there a rate at which the step takes as long */
    double stated_bytes_per_s, implied_bytes_per_s; /**< of a device */
} ech_implied_link;

/** Look for the rate of the outermost level at which the layout's step takes measured_s.
 *  @param job         borrowed
 *  @param point       borrowed, legal
 *  @param measured_s  seconds of a step
 *  @param out         set on success
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_implied_link_of(const ech_job *job, const ech_point *point,
                                            double measured_s, ech_implied_link *out);

#endif
