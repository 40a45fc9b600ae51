/** @file train/sample.h
 *  The next token from logits: temperature, then the top_k most likely, then the fewest whose
 *  probabilities reach top_p (nucleus sampling, Holtzman et al. 2020, arXiv:1904.09751).
 *
 *  A choice is a function of (logits, settings, seed, index), computed in fp64 whatever the logits
 *  are; equal logits rank by id, the lower first.  Local. */
#ifndef ECH_TRAIN_SAMPLE_H
#define ECH_TRAIN_SAMPLE_H

#include "base/dtype.h"  /* ech_dtype */
#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Settings. */
typedef struct ech_sampling {
    double temperature; /**< >= 0; 0: the most likely token, nothing is drawn */
    int64_t top_k;      /**< >= 0; 0: all */
    double top_p;       /**< 0 < top_p <= 1; 1: all */
    uint64_t seed;
} ech_sampling;

/** Temperature 1, nothing cut off, seed 1. */
ech_sampling ech_sampling_default(void);

/** @return ECH_OK | ECH_E_USAGE naming the setting, its value and what is legal */
ECH_MUST_USE ech_status ech_sampling_validate(const ech_sampling *s);

/** A token while it is chosen from. */
typedef struct ech_candidate {
    double weight; /**< exp((logit - largest) / temperature) */
    int32_t id;
} ech_candidate;

/** Choose.
 *  @param s        settings, valid
 *  @param real     ECH_F32 or ECH_F64: of logits
 *  @param logits   [n], the first n ids are chosen from
 *  @param n        >= 1
 *  @param index    of the drawn number: the token's position
 *  @param scratch  [n] unless temperature is 0
 *  @return the id, or -1 where the largest logit is not a finite number */
int32_t ech_sample(const ech_sampling *s, ech_dtype real, const void *logits, int64_t n,
                   int64_t index, ech_candidate *scratch);

#endif
