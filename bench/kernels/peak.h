/** @file bench/kernels/peak.h
 *  What one thread of this machine can do at most. */
#ifndef ECH_BENCH_PEAK_H
#define ECH_BENCH_PEAK_H

/** Multiply-adds of floats in registers alone, GFLOP/s. */
double peak_fma_gflops(void);

/** a = b + s c over 3 arrays of n floats: bytes moved (12 each) in GB/s. */
double peak_triad_gbytes(float *a, const float *b, const float *c, long n);

#endif
