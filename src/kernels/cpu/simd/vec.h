/** @file kernels/cpu/simd/vec.h
 *  Vectors of floats, 16 wide (AVX-512) or 8 (AVX2): the few operations that kernels need, so that
 *  each is written once.  a + b and the like work on vf directly.  A product is fused with a sum
 *  only where vf_fma stands, never by the compiler. */
#ifndef ECH_KERNELS_CPU_SIMD_VEC_H
#define ECH_KERNELS_CPU_SIMD_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define VEC_INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__
enum { VL = 16 /**< floats in a vector */, VD = 8 /**< doubles */ };
typedef __m512 vf;    /**< floats */
typedef __m512i vi;   /**< 32-bit words */
typedef __m512d vd;   /**< doubles */
typedef __mmask16 vm; /**< one bit or word per lane */
#define VF(op)  _mm512_##op##_ps
#define VD_(op) _mm512_##op##_pd
#else
enum { VL = 8, VD = 4 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256d vd;
typedef __m256i vm;
#define VF(op)  _mm256_##op##_ps
#define VD_(op) _mm256_##op##_pd
#endif

VEC_INLINE vf vf_zero(void)
{
    return VF(setzero)();
}

VEC_INLINE vf vf_set1(float x)
{
    return VF(set1)(x);
}

VEC_INLINE vf vf_load(const float *p)
{
    return VF(loadu)(p);
}

VEC_INLINE void vf_store(float *p, vf v)
{
    VF(storeu)(p, v);
}

/** Store past the caches; p is aligned to a vector.  vec_stream_end before others may read. */
VEC_INLINE void vf_stream(float *p, vf v)
{
    VF(stream)(p, v);
}

VEC_INLINE void vec_stream_end(void)
{
    _mm_sfence();
}

/** a b + c in one rounding. */
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return VF(fmadd)(a, b, c);
}

/** c - a b in one rounding. */
VEC_INLINE vf vf_fnma(vf a, vf b, vf c)
{
    return VF(fnmadd)(a, b, c);
}

/** The larger; b where one is not a number. */
VEC_INLINE vf vf_max(vf a, vf b)
{
    return VF(max)(a, b);
}

VEC_INLINE vf vf_min(vf a, vf b)
{
    return VF(min)(a, b);
}

VEC_INLINE vf vf_sqrt(vf a)
{
    return VF(sqrt)(a);
}

VEC_INLINE vd vd_set1(double x)
{
    return VD_(set1)(x);
}

VEC_INLINE vd vd_fma(vd a, vd b, vd c)
{
    return VD_(fmadd)(a, b, c);
}

/** a b - c in one rounding. */
VEC_INLINE vd vd_fms(vd a, vd b, vd c)
{
    return VD_(fmsub)(a, b, c);
}

#ifdef __AVX512F__
/** The first n lanes, 0 <= n <= VL. */
VEC_INLINE vm vm_first(int n)
{
    return (vm)((1u << n) - 1u);
}

/** Masked lanes are read as 0 and not touched. */
VEC_INLINE vf vf_load_m(const float *p, vm m)
{
    return _mm512_maskz_loadu_ps(m, p);
}

VEC_INLINE void vf_store_m(float *p, vf v, vm m)
{
    _mm512_mask_storeu_ps(p, m, v);
}

/** x where a < b, else y (also where one is not a number). */
VEC_INLINE vf vf_if_less(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

/** x where word > limit (unsigned), else 0. */
VEC_INLINE vf vf_if_above(vi word, vi limit, vf x)
{
    return _mm512_maskz_mov_ps(_mm512_cmpgt_epu32_mask(word, limit), x);
}

/** The last 9 bits of a, put where sign and exponent of a float stand. */
VEC_INLINE vf vf_exponent(vf a)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a), 23));
}

/** VD floats. */
VEC_INLINE vd vd_load_floats(const float *p)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}

VEC_INLINE vd vd_low(vf a)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(a));
}

VEC_INLINE vd vd_high(vf a)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
}

/** Sums and maxima over lanes, in one order. */
VEC_INLINE float vf_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}

VEC_INLINE float vf_largest(vf a)
{
    return _mm512_reduce_max_ps(a);
}

VEC_INLINE double vd_sum(vd a)
{
    return _mm512_reduce_add_pd(a);
}

/** Lower and upper half of the lanes to p. */
VEC_INLINE void vf_store_low(float *p, vf v)
{
    _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
}

VEC_INLINE void vf_store_high(float *p, vf v)
{
    _mm256_storeu_ps(p, _mm512_extractf32x8_ps(v, 1));
}

/** 0, 1, 2, ... */
VEC_INLINE vf vf_lanes(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/** r becomes its transpose, VL x VL. */
VEC_INLINE void vf_transpose(vf r[VL])
{
    vf t[VL];
    for (int i = 0; i < VL; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VL; i += 4)
        for (int h = 0; h < 2; h++) {
            const vd a = _mm512_castps_pd(t[i + h]);
            const vd b = _mm512_castps_pd(t[i + h + 2]);
            r[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++)
        for (int h = 0; h < VL; h += 8) {
            t[h + i] = _mm512_shuffle_f32x4(r[h + i], r[h + i + 4], 0x88);
            t[h + i + 4] = _mm512_shuffle_f32x4(r[h + i], r[h + i + 4], 0xdd);
        }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

/* --- 32-bit words --- */

VEC_INLINE vi vi_set1(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

VEC_INLINE vi vi_load(const uint32_t *p)
{
    return _mm512_loadu_si512(p);
}

VEC_INLINE void vi_store(uint32_t *p, vi v)
{
    _mm512_storeu_si512(p, v);
}

VEC_INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}

/** The words of floats; of doubles two a lane. */
VEC_INLINE vi vi_of(vf a)
{
    return _mm512_castps_si512(a);
}

VEC_INLINE vi vi_of_doubles(vd a)
{
    return _mm512_castpd_si512(a);
}

/** 64-bit words. */
VEC_INLINE vi vi_sub64(vi a, vi b)
{
    return _mm512_sub_epi64(a, b);
}

VEC_INLINE vi vi_add64(vi a, vi b)
{
    return _mm512_add_epi64(a, b);
}

VEC_INLINE void vi_store64(int64_t *p, vi v)
{
    _mm512_storeu_si512(p, v);
}

VEC_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

VEC_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

/** Unsigned. */
VEC_INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epu32(a, b);
}

VEC_INLINE vi vi_min(vi a, vi b)
{
    return _mm512_min_epu32(a, b);
}

/** Low and high words of the products a m. */
VEC_INLINE void vi_mul_wide(vi a, vi m, vi *low, vi *high)
{
    const vi even = _mm512_mul_epu32(a, m);
    const vi odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), m);
    *low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
    *high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}

#else /* AVX2 */

VEC_INLINE vm vm_first(int n)
{
    const vm lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lanes);
}

VEC_INLINE vf vf_load_m(const float *p, vm m)
{
    return _mm256_maskload_ps(p, m);
}

VEC_INLINE void vf_store_m(float *p, vf v, vm m)
{
    _mm256_maskstore_ps(p, m, v);
}

VEC_INLINE vf vf_if_less(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

VEC_INLINE vf vf_if_above(vi word, vi limit, vf x)
{
    const vi sign = _mm256_set1_epi32(INT32_MIN); /* unsigned order by shifting both */
    const vi above =
        _mm256_cmpgt_epi32(_mm256_xor_si256(word, sign), _mm256_xor_si256(limit, sign));
    return _mm256_and_ps(_mm256_castsi256_ps(above), x);
}

VEC_INLINE vf vf_exponent(vf a)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 23));
}

VEC_INLINE vd vd_load_floats(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}

VEC_INLINE vd vd_low(vf a)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(a));
}

VEC_INLINE vd vd_high(vf a)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
}

VEC_INLINE float vf_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

VEC_INLINE float vf_largest(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

VEC_INLINE double vd_sum(vd a)
{
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

VEC_INLINE void vf_store_low(float *p, vf v)
{
    _mm_storeu_ps(p, _mm256_castps256_ps128(v));
}

VEC_INLINE void vf_store_high(float *p, vf v)
{
    _mm_storeu_ps(p, _mm256_extractf128_ps(v, 1));
}

VEC_INLINE vf vf_lanes(void)
{
    return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

VEC_INLINE void vf_transpose(vf r[VL])
{
    vf t[VL];
    for (int i = 0; i < VL; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VL; i += 4)
        for (int h = 0; h < 2; h++) {
            const vd a = _mm256_castps_pd(t[i + h]);
            const vd b = _mm256_castps_pd(t[i + h + 2]);
            r[i + 2 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            r[i + 2 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < VL; i++)
        r[i] = t[i];
}

VEC_INLINE vi vi_set1(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

VEC_INLINE vi vi_load(const uint32_t *p)
{
    return _mm256_loadu_si256((const vi *)(const void *)p);
}

VEC_INLINE void vi_store(uint32_t *p, vi v)
{
    _mm256_storeu_si256((vi *)(void *)p, v);
}

VEC_INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}

VEC_INLINE vi vi_of(vf a)
{
    return _mm256_castps_si256(a);
}

VEC_INLINE vi vi_of_doubles(vd a)
{
    return _mm256_castpd_si256(a);
}

VEC_INLINE vi vi_sub64(vi a, vi b)
{
    return _mm256_sub_epi64(a, b);
}

VEC_INLINE vi vi_add64(vi a, vi b)
{
    return _mm256_add_epi64(a, b);
}

VEC_INLINE void vi_store64(int64_t *p, vi v)
{
    _mm256_storeu_si256((vi *)(void *)p, v);
}

VEC_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

VEC_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

VEC_INLINE vi vi_max(vi a, vi b)
{
    return _mm256_max_epu32(a, b);
}

VEC_INLINE vi vi_min(vi a, vi b)
{
    return _mm256_min_epu32(a, b);
}

VEC_INLINE void vi_mul_wide(vi a, vi m, vi *low, vi *high)
{
    const vi even = _mm256_mul_epu32(a, m);
    const vi odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
#endif

/** The first n lanes, the rest 0 and not touched; no mask where n is known to be VL. */
VEC_INLINE vf vf_load_n(const float *p, int n)
{
    return n == VL ? vf_load(p) : vf_load_m(p, vm_first(n));
}

VEC_INLINE void vf_store_n(float *p, vf v, int n)
{
    if (n == VL)
        vf_store(p, v);
    else
        vf_store_m(p, v, vm_first(n));
}

/** v in the first n lanes, 0 in the rest. */
VEC_INLINE vf vf_keep_n(vf v, int n)
{
#ifdef __AVX512F__
    return n == VL ? v : _mm512_maskz_mov_ps(vm_first(n), v);
#else
    return n == VL ? v : _mm256_and_ps(_mm256_castsi256_ps(vm_first(n)), v);
#endif
}

/** Fetch the line of p.  May lie beyond the end: a fetch never faults. */
VEC_INLINE void vec_fetch(const float *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

/** Fetch what a stream at p comes to some 4 KiB later: the processor alone stops at each page, and one
 *  stream does not fill the way to memory. */
VEC_INLINE void vec_fetch_ahead(const float *p)
{
    enum { AHEAD = 1024 };
    vec_fetch(p + AHEAD);
}

/** Calls step(i, lanes) for the vectors of n elements: full ones, then what is left.  A macro since
 *  the full case must be compiled with a constant number of lanes. */
#define VEC_FOR(n, step)                                                                           \
    do {                                                                                           \
        const int64_t vec_n_ = (n);                                                                \
        int64_t vec_i_ = 0;                                                                        \
        for (; vec_i_ + VL <= vec_n_; vec_i_ += VL)                                                \
            step(vec_i_, VL);                                                                      \
        if (vec_i_ < vec_n_)                                                                       \
            step(vec_i_, (int)(vec_n_ - vec_i_));                                                  \
    } while (0)

#endif
