/** @file train/init.h
 *  Initial weights: a function of (seed, canonical element), never of the layout.  Local. */
#ifndef ECH_TRAIN_INIT_H
#define ECH_TRAIN_INIT_H

#include "base/dtype.h"    /* ech_dtype */
#include "catalog/canon.h" /* ech_canon */
#include "layout/layout.h" /* ech_range */

/** Fill a range of elements of a canonical tensor.
 *
 *  Normal tensors: std times a standard normal of key (seed, INIT) at the element's index in the
 *  model's canonical order; norm weights 1; biases 0; padded vocabulary rows 0.  fp32 values are
 *  the fp64 ones rounded.
 *  @param m      model of c
 *  @param p      canonical tensor
 *  @param seed   train.seed
 *  @param dtype  ECH_F32 or ECH_F64
 *  @param range  which of its elements
 *  @param out    [range.end - range.begin] */
void ech_init_weights(const ech_model *m, const ech_param *p, uint64_t seed, ech_dtype dtype,
                      ech_range range, void *out);

#endif
