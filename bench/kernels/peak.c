#include "peak.h"

#include <immintrin.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { CHAINS = 12, TURNS = 1 << 22 };

#define CHAIN_LIST(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

__attribute__((target("avx512f"))) static float fma_512(void)
{
    const __m512 b = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.1f);
#define START(i) __m512 a##i = _mm512_set1_ps((float)i);
    CHAIN_LIST(START)
#undef START
    for (long k = 0; k < TURNS; k++) {
#define STEP(i) a##i = _mm512_fmadd_ps(a##i, b, c);
        CHAIN_LIST(STEP)
#undef STEP
        __asm__ volatile("" : "+v"(a0)); /* the loop is kept as written */
    }
#define SUM(i) a0 = _mm512_add_ps(a0, a##i);
    CHAIN_LIST(SUM)
#undef SUM
    return _mm512_reduce_add_ps(a0);
}

__attribute__((target("avx2,fma"))) static float fma_256(void)
{
    const __m256 b = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.1f);
#define START(i) __m256 a##i = _mm256_set1_ps((float)i);
    CHAIN_LIST(START)
#undef START
    for (long k = 0; k < TURNS; k++) {
#define STEP(i) a##i = _mm256_fmadd_ps(a##i, b, c);
        CHAIN_LIST(STEP)
#undef STEP
        __asm__ volatile("" : "+x"(a0));
    }
#define SUM(i) a0 = _mm256_add_ps(a0, a##i);
    CHAIN_LIST(SUM)
#undef SUM
    return _mm256_cvtss_f32(a0);
}

double peak_fma_gflops(void)
{
    const int is_wide = __builtin_cpu_supports("avx512f");
    volatile float sink = 0.0f;
    double best = 0.0;
    for (int i = 0; i < 5; i++) {
        const double begin = now();
        sink = sink + (is_wide ? fma_512() : fma_256());
        const double rate = 2.0 * CHAINS * TURNS * (is_wide ? 16 : 8) / (now() - begin) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

double peak_triad_gbytes(float *a, const float *b, const float *c, long n)
{
    double best = 0.0;
    for (int k = 0; k < 5; k++) {
        const double begin = now();
        for (long i = 0; i < n; i++)
            a[i] = b[i] + 0.5f * c[i];
        const double rate = 12.0 * (double)n / (now() - begin) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}
