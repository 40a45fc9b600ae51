/** @file kernels/ref/ref.h
 *  The inside of the reference set: how its sources fit together.
 *
 *  Each family ref_<family>.inc.h is written once in a storage type REAL.  ref_f32.c and ref_f64.c
 *  define REAL and include them all, so both types run the same lines, every kernel is static in
 *  its unit (no pasted names, no second list of prototypes) and a debugger steps through plain C.
 *  Kernels without a REAL argument live in ref_scalar.c.  Sums are taken in double whatever REAL
 *  is, and in an order that depends on the shapes alone.  Local, pure, one thread. */
#ifndef ECH_KERNELS_REF_REF_H
#define ECH_KERNELS_REF_REF_H

#include "kernels/kernels.h" /* ech_kernel, ech_kernel_call */

/** Kernels of the kinds with REAL arguments for REAL = float, by op kind; NULL for other kinds. */
extern const ech_kernel ech_ref_kernels_f32[ECH_N_OPS];

/** The same for REAL = double. */
extern const ech_kernel ech_ref_kernels_f64[ECH_N_OPS];

/** buf = 0, any type. */
void ech_ref_zero(const ech_kernel_call *call);

/** y = x, any type. */
void ech_ref_copy(const ech_kernel_call *call);

/** count = number of labels >= 0. */
void ech_ref_count_tokens(const ech_kernel_call *call);

/** seed = loss_scale / tokens, or 0 without tokens. */
void ech_ref_loss_seed(const ech_kernel_call *call);

/** sum = x[0] + x[1] + ..., in order. */
void ech_ref_sum_cells(const ech_kernel_call *call);

/** grad_sq of three exact sums, factor = min(1, max_norm / (norm + 1e-6)) / loss_scale. */
void ech_ref_clip(const ech_kernel_call *call);

#endif
