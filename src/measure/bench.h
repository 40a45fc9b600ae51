/** @file measure/bench.h
 *  Micro-benchmarks of this machine under the load that training has: every rank measures the same
 *  thing at the same time.  What they find are grids of a calibration (price/cost.h).
 *
 *  All points of a part are measured in turn, and again in as many rounds; a point's seconds are the
 *  median over rounds of medians, its spread what the rounds differ by.  Operands of successive calls
 *  lie apart in a ring of memory, since those of a step have been used a step ago, not just now.
 *  Unless said, calls are *collective* over all ranks and blocking. */
#ifndef ECH_MEASURE_BENCH_H
#define ECH_MEASURE_BENCH_H

#include "comm/comm.h"       /* ech_transport */
#include "engine/arena.h"    /* ech_arena */
#include "kernels/kernels.h" /* ech_kernel_table */
#include "price/cost.h"      /* ech_calibration */

/** Median of measured values; local.
 *  @param x  [n] in/out: is sorted
 *  @param n  at least 1 */
double ech_bench_median(double *x, int n);

/** How to measure. */
typedef struct ech_bench_config {
    ech_transport *transport;      /**< borrowed: self, or one rank a process */
    const ech_kernel_set *kernels; /**< borrowed, started; NULL: reference */
    int threads;                   /**< of each rank */
    ech_dtype real;
    int rounds;        /**< >= 1 */
    double point_s;    /**< a round gives to a point; big ones take at least three calls */
    size_t ring_bytes; /**< memory that successive calls go round in */
    bool is_small;     /**< few small points (tests) */
} ech_bench_config;

/** Rounds, times and ring of a calibration that is worth its name. */
ech_bench_config ech_bench_config_default(void);

enum { ECH_BENCH_MAX_ROUNDS = 32 };

/** A bench.  Zero-initialise. */
typedef struct ech_bench {
    ech_bench_config config;
    ech_kernel_table table;
    ech_arena ring; /**< owned */
    ech_comm *comm; /**< owned: data parallel over all ranks */
} ech_bench;

/** One measured point. */
typedef struct ech_bench_point {
    ech_op_kind kind;
    double at[ECH_GRID_AXES]; /**< on the axes of the kind's grid */
    double pieces;            /**< that one call was made of */
    double work;              /**< of one call: FLOP of products and attention, else bytes */
    double seconds;           /**< of one piece, over all ranks */
    double spread; /**< (slowest - quickest round) / median, of the rank where it is largest */
} ech_bench_point;

/** What a part found.  Zero-initialise; release with ech_bench_found_fini. */
typedef struct ech_bench_found {
    ech_bench_point *point; /**< owned */
    size_t n, capacity;
} ech_bench_found;

/** Release and zero. */
void ech_bench_found_fini(ech_bench_found *f);

/** Reserve the ring and touch it.
 *  @param config  copied
 *  @param out     release with ech_bench_close
 *  @return ECH_OK | ECH_E_ILLEGAL (rounds) | ECH_E_UNSUPPORTED (a kind without a kernel)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_bench_open(const ech_bench_config *config, ech_bench *out);

/** Release; a closed one is fine. */
void ech_bench_close(ech_bench *b);

/** Matrix products of the three kinds, over rows, inputs and outputs.
 *  @param b      open
 *  @param c      in/out: their grids are set, and the file's head (date, host, ranks, threads ...)
 *  @param found  in/out: points are added
 *  @return ECH_OK | ECH_E_COMM | ECH_E_TIMEOUT | ECH_E_NOMEM; c unchanged on failure */
ECH_MUST_USE ech_status ech_bench_gemm(ech_bench *b, ech_calibration *c, ech_bench_found *found);

/** Attention, both ways, over lengths and head sizes.  As above. */
ECH_MUST_USE ech_status ech_bench_attention(ech_bench *b, ech_calibration *c,
                                            ech_bench_found *found);

/** Every other kind of op, over the bytes that it moves; and the executor's own time an op.
 *  As above. */
ECH_MUST_USE ech_status ech_bench_memory(ech_bench *b, ech_calibration *c, ech_bench_found *found);

/** Messages between pairs and collectives over all ranks, over the bytes that two members exchange;
 *  and how much of a collective occupies the processors.  Needs two ranks.  As above.
 *  @return as above | ECH_E_ILLEGAL (one rank) */
ECH_MUST_USE ech_status ech_bench_comm(ech_bench *b, ech_calibration *c, ech_bench_found *found);

#endif
