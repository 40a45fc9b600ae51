/** @file price/unit.h
 *  The cost model of a textbook: every stage's forward takes the same time, so do its two backwards,
 *  messages and everything else take none.  On it a schedule's bubble is its closed form (Narayanan
 *  et al. 2021, arXiv:2104.04473, section 2.2; Qi et al. 2023, arXiv:2401.10241, table 1).
 *  Pure; every call is local. */
#ifndef ECH_PRICE_UNIT_H
#define ECH_PRICE_UNIT_H

#include "price/simulate.h" /* ech_costs */

/** Seconds of a micro-batch in a virtual stage, whatever it holds. */
typedef struct ech_unit_times {
    double forward_s;
    double input_s;  /**< gradients of inputs, */
    double weight_s; /**< of weights; a backward that is not split takes both together */
} ech_unit_times;

/** The model; zero-initialise. */
typedef struct ech_unit {
    const ech_program *const *program; /**< borrowed [n_classes] */
    int n_classes;
    int chunks; /**< of the class with most */
    ech_unit_times times;
    int *items; /**< owned [n_classes, chunks, roles]: over so many a stage's time is spread */
} ech_unit;

/** Count what a stage's time is spread over: evenly over its items, evenly over an item's kernels.
 *  What belongs to no micro-batch is free, and a stage that holds nothing.
 *  @param program  borrowed [n], of one run
 *  @param n        classes
 *  @param times    each >= 0
 *  @param out      owned by the caller, set on success
 *  @return ECH_OK | ECH_E_ILLEGAL (a time that is none) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_unit_make(const ech_program *const *program, int n,
                                      ech_unit_times times, ech_unit *out);

/** Release and zero. */
void ech_unit_fini(ech_unit *u);

/** Its answers; borrows u. */
ech_costs ech_unit_costs(ech_unit *u);

#endif
