#include "base/rng.h"

#include "base/status.h"

#include <math.h>

/* A key holds 8 bits of purpose, 16 of layer + 1 and 40 of step. */
#define RNG_MAX_STEP  ((int64_t)1 << 40)
#define RNG_MAX_LAYER ((int64_t)0xffff)

ech_rng_key ech_rng_key_make(uint64_t seed, ech_rng_purpose purpose, int64_t step, int64_t layer)
{
    ECH_ASSERT(step >= 0 && step < RNG_MAX_STEP);
    ECH_ASSERT(layer >= -1 && layer < RNG_MAX_LAYER);
    ECH_ASSERT((unsigned)purpose < 256u);
    const uint64_t what =
        ((uint64_t)purpose << 56) | ((uint64_t)(layer + 1) << 40) | (uint64_t)step;
    return (ech_rng_key){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                         .ctr = {(uint32_t)what, (uint32_t)(what >> 32)}};
}

/* One Philox-4x32 round (Salmon et al. 2011, section 3.3): two 32 x 32 -> 64 products. */
static void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    const uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    const uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
    c[3] = (uint32_t)p0;
}

void ech_rng_block(const ech_rng_key *key, uint64_t index, uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), key->ctr[0], key->ctr[1]};
    uint32_t k0 = key->key[0];
    uint32_t k1 = key->key[1];
    for (int round = 0; round < 10; round++) {
        philox_round(c, k0, k1);
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

uint32_t ech_rng_u32(const ech_rng_key *key, uint64_t element)
{
    uint32_t words[4];
    ech_rng_block(key, element / 4, words);
    return words[element % 4];
}

/* Middle of the word's interval, so that neither 0 nor 1 is met. */
static double word_uniform(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

double ech_rng_uniform(const ech_rng_key *key, uint64_t element)
{
    return word_uniform(ech_rng_u32(key, element));
}

double ech_rng_normal(const ech_rng_key *key, uint64_t element)
{
    static const double two_pi = 6.283185307179586476925;
    uint32_t words[4];
    ech_rng_block(key, element / 2, words);
    const uint32_t *pair = words + 2 * (element % 2);
    return sqrt(-2.0 * log(word_uniform(pair[0]))) * cos(two_pi * word_uniform(pair[1]));
}
