/** @file base/rng.h
 *  Counter-based random numbers: Philox-4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
 *  easy as 1, 2, 3").  A value is a pure function of (seed, purpose, step, layer, global element
 *  index), never of a layout, a thread or an order of calls.  Local, pure. */
#ifndef ECH_BASE_RNG_H
#define ECH_BASE_RNG_H

#include <stdbool.h>
#include <stdint.h>

/** What a stream of numbers is for; part of the key, so the values are stable: never renumber. */
typedef enum ech_rng_purpose {
    ECH_RNG_INIT = 1,
    ECH_RNG_DROPOUT_EMBED = 2,
    ECH_RNG_DROPOUT_ATTENTION = 3,
    ECH_RNG_DROPOUT_ATTENTION_OUT = 4,
    ECH_RNG_DROPOUT_MLP = 5,
    ECH_RNG_SAMPLER = 6,
    ECH_RNG_GENERATE = 7,
    ECH_RNG_TEST = 8
} ech_rng_purpose;

/** A key, made once per op. */
typedef struct ech_rng_key {
    uint32_t key[2]; /**< from the seed */
    uint32_t ctr[2]; /**< purpose, layer and step */
} ech_rng_key;

/** Key of (seed, purpose, step, layer): 0 <= step < 2^40, -1 <= layer < 65535 (-1: no layer). */
ech_rng_key ech_rng_key_make(uint64_t seed, ech_rng_purpose purpose, int64_t step, int64_t layer);

/** Four 32-bit words for element block `index` (elements 4*index .. 4*index+3). */
void ech_rng_block(const ech_rng_key *key, uint64_t index, uint32_t out[4]);

/** The 32-bit word of one element. */
uint32_t ech_rng_u32(const ech_rng_key *key, uint64_t element);

/** Uniform in (0, 1) with 32 bits; never 0 or 1. */
double ech_rng_uniform(const ech_rng_key *key, uint64_t element);

/** Standard normal (Box-Muller on the two words of elements 2e and 2e+1), in double. */
double ech_rng_normal(const ech_rng_key *key, uint64_t element);

/** Is an element kept by dropout with probability p of dropping: u32 >= p * 2^32. */
static inline bool ech_rng_is_kept(uint32_t word, double p)
{
    return (double)word >= p * 4294967296.0;
}

#endif
