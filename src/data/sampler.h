/** @file data/sampler.h
 *  Which sample stands in which row of which global batch: a seeded permutation per epoch with O(1)
 *  state, global, the same for every layout.
 *
 *  Position p = step * global_batch + row; epoch = p / n_samples; the sample is the image of p mod
 *  n_samples under the epoch's permutation: a Feistel network on the smallest power of two not
 *  below n_samples, with Philox as round function, walked until it lands inside (Black and Rogaway
 *  2002, "Ciphers with arbitrary finite domains", cycle walking).  Epochs follow one another
 *  without a gap, so a global batch may span two.  Nothing depends on ranks: a rank asks for its
 *  own rows.  Local, pure. */
#ifndef ECH_DATA_SAMPLER_H
#define ECH_DATA_SAMPLER_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** The order of samples; a plain value. */
typedef struct ech_sampler {
    int64_t n_samples;    /**< >= 1 */
    int64_t global_batch; /**< sequences a step, >= 1 */
    uint64_t seed;        /**< data.seed */
    bool in_order;        /**< no permutation: sample = position mod n_samples (evaluation) */
} ech_sampler;

/** Make an order.
 *  @return ECH_OK | ECH_E_DATA (n_samples < 1) | ECH_E_CONFIG (global_batch < 1) */
ECH_MUST_USE ech_status ech_sampler_init(ech_sampler *s, int64_t n_samples, int64_t global_batch,
                                         uint64_t seed);

/** Image of i in [0, n) under the permutation of (seed, epoch); a bijection of [0, n). */
int64_t ech_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/** Sample in row `row` of the global batch of `step` (0-based; row in [0, global_batch)). */
int64_t ech_sampler_sample(const ech_sampler *s, int64_t step, int64_t row);

/** Epoch that position lies in. */
int64_t ech_sampler_epoch(const ech_sampler *s, int64_t step, int64_t row);

#endif
