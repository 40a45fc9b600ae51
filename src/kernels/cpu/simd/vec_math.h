/** @file kernels/cpu/simd/vec_math.h
 *  exp and the sigmoid of vectors.  exp is within 2 ulp of the true value for results >= 2^-126 and
 *  0 below; the sigmoid within 4 ulp.  What is not a number stays so. */
#ifndef ECH_KERNELS_CPU_SIMD_VEC_MATH_H
#define ECH_KERNELS_CPU_SIMD_VEC_MATH_H

#include "kernels/cpu/simd/vec.h"

/** e^x: x = n ln 2 + r, e^r = 1 + r + r^2 q(r) with q the interpolation of (e^r - 1 - r) / r^2 at
 *  the five Chebyshev nodes of |r| <= ln 2 / 2 (error 1.1e-8).  Above 88.37 it stays 2.4e38. */
VEC_INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set1(12582912.0f + 127.0f); /* 1.5 2^23: the sum's last bits are n + 127 */
    const vf top = vf_min(vf_set1(88.37f), x);      /* keeps NaN */
    const vf shifted = vf_fma(top, vf_set1(1.44269504f), magic);
    const vf n = shifted - magic;
    vf r = vf_fnma(n, vf_set1(0.693359375f), top); /* ln 2 in two parts, the first exact */
    r = vf_fnma(n, vf_set1(-2.12194440e-4f), r);
    vf q = vf_set1(1.392621347e-3f);
    q = vf_fma(q, r, vf_set1(8.363202972e-3f));
    q = vf_fma(q, r, vf_set1(4.166655444e-2f));
    q = vf_fma(q, r, vf_set1(1.666657685e-1f));
    q = vf_fma(q, r, vf_set1(0.5f));
    const vf e = vf_fma(q, r * r, r) + vf_set1(1.0f);
    return vf_if_less(top, vf_set1(-87.33f), vf_zero(), e * vf_exponent(shifted));
}

/** s = 1 / (1 + e^-x). */
VEC_INLINE vf vf_sigmoid(vf x)
{
    const vf one = vf_set1(1.0f);
    return one / (one + vf_exp(vf_zero() - x));
}

/** The same, and 1 - s without cancellation. */
VEC_INLINE vf vf_sigmoid_both(vf x, vf *rest)
{
    const vf e = vf_exp(vf_zero() - x);
    const vf s = vf_set1(1.0f) / (vf_set1(1.0f) + e);
    *rest = e * s;
    return s;
}

#endif
