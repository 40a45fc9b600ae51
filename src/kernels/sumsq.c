#include "kernels/sumsq.h"

#include <math.h> /* frexp, ldexp */

__extension__ typedef unsigned __int128 wide;

static const int64_t digit = 0xffffffff;

void ech_sumsq_add(int64_t *word, int64_t n, int exponent)
{
    int at = exponent - ECH_SUMSQ_EXPONENT;
    if (at < 0) {
        n >>= at > -63 ? -at : 63;
        at = 0;
    }
    const int k = at / 32, shift = at % 32;
    ECH_ASSERT(k + 2 < ECH_SUMSQ_LIMBS);
    const int64_t low = (n & digit) << shift;
    const int64_t high = (n >> 32) * (INT64_C(1) << shift);
    word[k] += low & digit;
    word[k + 1] += (low >> 32) + (high & digit);
    word[k + 2] += high >> 32;
}

/* x = m 2^e with m of 53 bits, so x^2 = m^2 2^(2 e) with m^2 of 106, added in two parts. */
void ech_sumsq_add_square(int64_t *word, double x)
{
    enum { HALF = 53 };
    if (!(fabs(x) < 0x1p144)) {
        word[ECH_SUMSQ_LIMBS]++;
        return;
    }
    int e;
    const uint64_t m = (uint64_t)ldexp(frexp(fabs(x), &e), HALF);
    wide square = (wide)m * m;
    int exponent = 2 * (e - HALF);
    const int below = ECH_SUMSQ_EXPONENT - exponent;
    if (below > 0) { /* cut the square, not each of its parts */
        square = below < 128 ? square >> below : 0;
        exponent = ECH_SUMSQ_EXPONENT;
    }
    ech_sumsq_add(word, (int64_t)(square & ((UINT64_C(1) << HALF) - 1)), exponent);
    ech_sumsq_add(word, (int64_t)(square >> HALF), exponent + HALF);
}
_Static_assert(ECH_SUMSQ_TOP == 2 * 144, "largest element");

void ech_sumsq_carry(int64_t *word)
{
    for (int k = 0; k + 1 < ECH_SUMSQ_LIMBS; k++) {
        word[k + 1] += word[k] >> 32;
        word[k] &= digit;
    }
}

void ech_sumsq_divide(int64_t *word, int64_t n)
{
    int64_t rest = 0;
    for (int k = ECH_SUMSQ_LIMBS - 1; k >= 0; k--) {
        const int64_t part = (rest << 32) + word[k];
        word[k] = part / n;
        rest = part % n;
    }
}

static int bits_of(wide x)
{
    int n = 0;
    for (; x; x >>= 1)
        n++;
    return n;
}

/* The first 64 bits of the value, the last of them 1 where anything below is: so rounding them to a
 * double rounds the value. */
double ech_sumsq_value(const int64_t *word)
{
    if (word[ECH_SUMSQ_LIMBS])
        return (double)INFINITY;
    int top = ECH_SUMSQ_LIMBS - 1;
    while (top > 2 && word[top] == 0)
        top--;
    const wide head = ((wide)(uint64_t)word[top] << 64) + ((wide)(uint64_t)word[top - 1] << 32) +
                      (uint64_t)word[top - 2];
    const int bits = bits_of(head);
    const int spare = bits > 64 ? bits - 64 : 0;
    bool is_more = (head & (((wide)1 << spare) - 1)) != 0;
    for (int k = 0; k < top - 2; k++)
        is_more = is_more || word[k] != 0;
    const uint64_t first = (uint64_t)(head >> spare) | (is_more ? 1 : 0);
    return ldexp((double)first, spare + 32 * (top - 2) + ECH_SUMSQ_EXPONENT);
}

/* The run at index `at` of the part under one pattern, up to its border with what is not of it. */
static ech_sumsq_run run_of(const int64_t pattern[4], int64_t at)
{
    const int64_t begin = pattern[0], end = pattern[1], period = pattern[2], tail = pattern[3];
    if (at >= end || begin >= end)
        return (ech_sumsq_run){INT64_MAX, false};
    if (at < begin)
        return (ech_sumsq_run){begin - at, false};
    const int64_t phase = (at - begin) % period;
    const bool is_copy = phase >= period - tail;
    const int64_t n = (is_copy ? period : period - tail) - phase;
    return (ech_sumsq_run){n < end - at ? n : end - at, is_copy};
}

ech_sumsq_run ech_sumsq_run_at(const ech_kernel_call *call, int64_t i, int64_t end)
{
    ech_sumsq_run run = {end - i, false};
    for (int k = 0; k < 2; k++) {
        const ech_sumsq_run one = run_of(&call->attr[1 + 4 * k], call->attr[0] + i);
        run.n = one.n < run.n ? one.n : run.n;
        run.is_copy = run.is_copy || one.is_copy;
    }
    return run;
}
