/** @file price/kernel_price.h
 *  Seconds of single kernels: matrix products, attention, element-wise, and the list of kernels that
 *  a block of the model runs, forward and backward.
 *
 *  Sources: tiles and waves, NVIDIA 2020, "Matrix multiplication background"; attention's FLOPs,
 *  Dao 2023, arXiv:2307.08691; roofline, Williams et al. 2009, doi:10.1145/1498765.1498785.
 *  Pure; nothing allocates; local. */
#ifndef ECH_PRICE_KERNEL_PRICE_H
#define ECH_PRICE_KERNEL_PRICE_H

#include "price/rates.h" /* ech_rates */
#include "price/shape.h" /* ech_shape */

/** When a kernel runs. */
typedef enum ech_pass {
    ECH_PASS_FORWARD,
    ECH_PASS_INPUT,  /**< gradients of inputs, and whatever backward does beside */
    ECH_PASS_WEIGHT, /**< gradients of weights */
    ECH_N_PASSES
} ech_pass;

/** One kernel or a few that belong together. */
typedef struct ech_kernel {
    const char *name; /**< static storage */
    ech_pass pass;
    double seconds, flops, bytes;
    double counted; /**< FLOPs in the convention of MFU: causality not deducted, no padding */
    double launches;
    uint32_t again; /**< runs again in backward where these ECH_RECOMPUTE_* are asked for */
} ech_kernel;

enum { ECH_KERNELS_MAX = 160 };

/** Kernels of a block.  Zero-initialise. */
typedef struct ech_kernels {
    const ech_rates *rates; /**< borrowed */
    bool stays_wide; /**< products are of 16 bits whatever the job's precision: head, router */
    int n;
    ech_kernel k[ECH_KERNELS_MAX];
} ech_kernels;

/** A matrix product [m, k] x [k, n], `count` of them at once. */
typedef struct ech_product {
    double m, n, k;
    double count;
    double in_bytes;  /**< of an element of the operands */
    double out_bytes; /**< of an element of the result, read and written where it is added to */
    double flops;     /**< FLOP/s of large ones */
} ech_product;

/** Seconds of a product.
 *
 *  waves of tiles, the last partly filled; a tile takes its K loop and a ramp; never faster than its
 *  matrices pass through memory. */
double ech_product_seconds(const ech_rates *r, const ech_product *p);

/** Add the three products of a linear layer [m, k] -> [m, n].
 *  @param at_once  experts: so many of them, m rows each; else 1 */
void ech_kernels_linear(ech_kernels *to, const char *name, double m, double n, double k,
                        double at_once, uint32_t again);

/** Add element-wise work: bytes of forward and backward. */
void ech_kernels_traffic(ech_kernels *to, const char *name, double forward_bytes,
                         double backward_bytes, uint32_t again);

/** Add attention of micro-batches: `spans` sequences of `queries` queries that see `keys` keys, causal.
 *  @param a        heads and sizes of the rank
 *  @param visible  share of queries x keys that is seen (1/2: causal) */
void ech_kernels_attention(ech_kernels *to, const ech_shape_attention *a, double spans,
                           double queries, double keys, double visible);

/** Kernels of one layer.
 *  @param sparse  a layer of experts
 *  @param to      emptied first */
void ech_kernels_layer(const ech_rates *r, const ech_job *job, const ech_point *point,
                       const ech_shape *shape, bool sparse, ech_kernels *to);

/** Kernels of a layer's experts: router, permuting, grouped products, shared experts (moe.c). */
void ech_kernels_experts(ech_kernels *to, const ech_job *job, const ech_shape *shape);

/** Kernels of the embedding. */
void ech_kernels_embedding(const ech_rates *r, const ech_shape *shape, ech_kernels *to);

/** Kernels of final norm, logits and loss. */
void ech_kernels_head(const ech_rates *r, const ech_job *job, const ech_shape *shape,
                      ech_kernels *to);

#endif
