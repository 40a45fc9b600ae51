/** @file kernels/sumsq.h
 *  Exact sums of squares: the numbers of op.h (ECH_SUMSQ_*), and which of two sums an element goes
 *  to.
 *
 *  A number is ECH_SUMSQ_WORDS int64 words.  Its value is that of its first ECH_SUMSQ_LIMBS words,
 *  which between carries may hold anything; carried on, they are the digits of the value and thus
 *  depend on nothing but the value.  Local, pure. */
#ifndef ECH_KERNELS_SUMSQ_H
#define ECH_KERNELS_SUMSQ_H

#include "kernels/kernels.h" /* ech_kernel_call */

/** Adds, at most, between two carries. */
enum { ECH_SUMSQ_ADDS = 1 << 24 };

/** word += n 2^exponent.  Bits below word 0 are cut off, towards minus infinity.
 *  @param word      in/out [ECH_SUMSQ_WORDS]
 *  @param n         of either sign
 *  @param exponent  < 32 (ECH_SUMSQ_LIMBS - 2) + ECH_SUMSQ_EXPONENT */
void ech_sumsq_add(int64_t *word, int64_t n, int exponent);

/** word += x^2, its bits below word 0 cut off; the last word counts x where x^2 is 2^ECH_SUMSQ_TOP
 *  or more, infinite or not a number. */
void ech_sumsq_add_square(int64_t *word, double x);

/** 0 <= word < 2^32 but in the top one, the value unchanged. */
void ech_sumsq_carry(int64_t *word);

/** word /= n, rounded down, of a carried number.
 *  @param n  1 .. 2^31 */
void ech_sumsq_divide(int64_t *word, int64_t n);

/** The double next to the value of a carried number (half-way: the even one); infinite where the
 *  last word counts anything. */
double ech_sumsq_value(const int64_t *word);

/** Elements next to each other that go to the same sum. */
typedef struct ech_sumsq_run {
    int64_t n;    /**< >= 1 */
    bool is_copy; /**< they go to `copies` */
} ech_sumsq_run;

/** The run that starts at element i of a sumsq call and ends at element `end` or before.  It may be
 *  followed by one of its own kind. */
ech_sumsq_run ech_sumsq_run_at(const ech_kernel_call *call, int64_t i, int64_t end);

#endif
