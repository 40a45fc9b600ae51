/** @file price/doubt.h
 *  How far a price of a step may be off: what published steps like it are missed by.
 *  Pure; local. */
#ifndef ECH_PRICE_DOUBT_H
#define ECH_PRICE_DOUBT_H

#include "base/text.h" /* ech_text */
#include "price/job.h" /* ech_job */

/** What is published of a job's kind. */
typedef enum ech_doubt {
    ECH_DOUBT_STATED, /**< steps of dense models by its software on its kind of device, all settings
                            stated */
    ECH_DOUBT_ASSUMED, /**< steps on its kind of device, by other software or with settings that had to
                            be assumed */
    ECH_DOUBT_EXPERTS, /**< likewise of models with experts */
    ECH_DOUBT_NOTHING, /**< no step on its kind of device */
    ECH_N_DOUBTS
} ech_doubt;

/** Which kind a job is. */
ech_doubt ech_doubt_of(const ech_job *job);

/** Nine of ten published steps of a kind are within this, relative; NaN: nothing is published. */
double ech_doubt_within(ech_doubt doubt);

/** Append it in words: "good to 15 %", "how good is not known: no published step on such a device".
 *  @param within  as by ech_doubt_within */
void ech_doubt_print(double within, ech_text *out);

#endif
