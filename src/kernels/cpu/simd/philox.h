/** @file kernels/cpu/simd/philox.h
 *  Philox-4x32-10 on vectors of blocks: the words of ech_rng_block (base/rng.h), VL blocks at once.
 */
#ifndef ECH_KERNELS_CPU_SIMD_PHILOX_H
#define ECH_KERNELS_CPU_SIMD_PHILOX_H

#include "base/rng.h" /* ech_rng_key */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/vec.h"

/** The four words of the blocks whose indexes have these low and high words. */
VEC_INLINE void philox_blocks(const ech_rng_key *key, vi low, vi high, vi word[4])
{
    const vi m0 = vi_set1(0xD2511F53u);
    const vi m1 = vi_set1(0xCD9E8D57u);
    vi c0 = low, c1 = high, c2 = vi_set1(key->ctr[0]), c3 = vi_set1(key->ctr[1]);
    uint32_t k0 = key->key[0], k1 = key->key[1];
    for (int round = 0; round < 10; round++) {
        vi low0, high0, low1, high1;
        vi_mul_wide(c0, m0, &low0, &high0);
        vi_mul_wide(c2, m1, &low1, &high1);
        c0 = vi_xor(vi_xor(high1, c1), vi_set1(k0));
        c1 = low1;
        c2 = vi_xor(vi_xor(high0, c3), vi_set1(k1));
        c3 = low0;
        k0 += 0x9E3779B9u; /* as in base/rng.c */
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/** Dropout as kernels apply it: a word is kept above `limit`, and scaled. */
typedef struct philox_dropout {
    ech_rng_key key;
    uint32_t limit; /**< kept: word > limit, that is word >= p 2^32 */
    float scale;    /**< 1 / (1 - p) */
    bool is_on;
} philox_dropout;

/** The dropout of a call with probability p; without one there may be no step to draw for. */
static inline philox_dropout philox_dropout_of(const ech_kernel_call *call, double p,
                                               int64_t purpose)
{
    philox_dropout d = {.is_on = p > 0.0, .scale = 1.0f};
    if (!d.is_on)
        return d;
    const double bound = p * 4294967296.0;
    const uint64_t whole = (uint64_t)bound;
    d.limit = (uint32_t)((double)whole < bound ? whole : whole - 1);
    d.scale = (float)(1.0 / (1.0 - p));
    d.key =
        ech_rng_key_make(call->rng.seed, (ech_rng_purpose)purpose, call->rng.step, call->rng.layer);
    return d;
}

#endif
