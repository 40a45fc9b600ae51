/** @file base/checked.h
 *  Checked arithmetic on sizes and growing arrays.  Every product of sizes that comes from a user,
 *  a file or a peer goes through ech_mul_*.  Local. */
#ifndef ECH_BASE_CHECKED_H
#define ECH_BASE_CHECKED_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** *out = a * b; ECH_E_ILLEGAL on overflow, *out unchanged. */
ECH_MUST_USE ech_status ech_mul_i64(int64_t a, int64_t b, int64_t *out);

/** *out = a + b; ECH_E_ILLEGAL on overflow, *out unchanged. */
ECH_MUST_USE ech_status ech_add_i64(int64_t a, int64_t b, int64_t *out);

/** *out = a * b in size_t; ECH_E_ILLEGAL on overflow, *out unchanged. */
ECH_MUST_USE ech_status ech_mul_size(size_t a, size_t b, size_t *out);

/** n rounded up to a multiple of align (a power of two). */
static inline size_t ech_align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

/** ceil(a / b) for a >= 0, b > 0. */
static inline int64_t ech_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/** Greatest common divisor of two that are not negative; of 0 and n it is n. */
static inline int64_t ech_gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/** Zeroed memory for n elements of `bytes` each; ECH_E_NOMEM or ECH_E_ILLEGAL, *out NULL.
 *  The caller owns *out and frees it with free().  n = 0 gives a valid pointer.
 *  @param out  a T ** */
ECH_MUST_USE ech_status ech_calloc(size_t n, size_t bytes, void *out);

/** Make room for one more element at the end of a growing array.
 *  @param array     a T **, owned by the caller; moved when it grows
 *  @param n         elements in use
 *  @param capacity  in/out: elements allocated
 *  @param bytes     of one element
 *  @return ECH_OK | ECH_E_NOMEM (array unchanged) */
ECH_MUST_USE ech_status ech_grow(void *array, size_t n, size_t *capacity, size_t bytes);

#endif
