/* The order of samples: a keyed permutation evaluated point by point. */
#include "data/sampler.h"

#include "base/rng.h"

enum { HALF_ROUNDS = 12 };

ech_status ech_sampler_init(ech_sampler *s, int64_t n_samples, int64_t global_batch, uint64_t seed)
{
    ECH_CHECK(n_samples >= 1, ECH_E_DATA, "the data holds %lld samples, wanted one at least",
              (long long)n_samples);
    ECH_CHECK(global_batch >= 1, ECH_E_CONFIG, "a global batch of %lld sequences, wanted >= 1",
              (long long)global_batch);
    *s = (ech_sampler){.n_samples = n_samples, .global_batch = global_batch, .seed = seed};
    return ECH_OK;
}

/* Smallest b with 2^b >= n. */
static int bits_for(int64_t n)
{
    int b = 0;
    while (b < 62 && ((int64_t)1 << b) < n)
        b++;
    return b;
}

/* One pass of an unbalanced Feistel network over `bits` bits: each half round changes one half by a
 * function of the other, so every pass is a bijection whatever that function is. */
static uint64_t feistel(const ech_rng_key *key, int bits, uint64_t x)
{
    const int low_bits = bits / 2;
    const uint64_t low_mask = ((uint64_t)1 << low_bits) - 1;
    const uint64_t high_mask = ((uint64_t)1 << (bits - low_bits)) - 1;
    uint64_t low = x & low_mask;
    uint64_t high = x >> low_bits;

    for (uint64_t round = 0; round < HALF_ROUNDS; round++) {
        /* Halves have at most 31 bits: round and half together make the counter. */
        if (round % 2 == 0)
            high ^= ech_rng_u32(key, round << 32 | low) & high_mask;
        else
            low ^= ech_rng_u32(key, round << 32 | high) & low_mask;
    }
    return high << low_bits | low;
}

int64_t ech_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    const ech_rng_key key = ech_rng_key_make(seed, ECH_RNG_SAMPLER, epoch, 0);
    const int bits = bits_for(n);
    uint64_t x = (uint64_t)i;

    ECH_ASSERT(i >= 0 && i < n && n <= (int64_t)1 << 62);
    /* The orbit of i comes back to i, so the walk ends; less than two passes on average. */
    do {
        x = feistel(&key, bits, x);
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

static int64_t position(const ech_sampler *s, int64_t step, int64_t row)
{
    ECH_ASSERT(step >= 0 && row >= 0 && row < s->global_batch);
    return step * s->global_batch + row;
}

int64_t ech_sampler_sample(const ech_sampler *s, int64_t step, int64_t row)
{
    const int64_t p = position(s, step, row);
    const int64_t i = p % s->n_samples;

    return s->in_order ? i : ech_permute(s->seed, p / s->n_samples, s->n_samples, i);
}

int64_t ech_sampler_epoch(const ech_sampler *s, int64_t step, int64_t row)
{
    return position(s, step, row) / s->n_samples;
}
