/** @file measure/bench_op.h
 *  Ops to be measured: any kind, made from the sizes of its labels (program/op_signature.h), and a
 *  call of its kernel on memory of the caller's.  Local. */
#ifndef ECH_MEASURE_BENCH_OP_H
#define ECH_MEASURE_BENCH_OP_H

#include "kernels/kernels.h" /* ech_kernel_call */

/** Sizes of the labels of a signature.  Zero-initialise. */
typedef struct ech_bench_sizes {
    int64_t of[128]; /**< by label character */
    int64_t flat;    /**< elements of "~" */
    int64_t seq;     /**< attribute of kinds that work on sequences */
} ech_bench_sizes;

/** An op of a kind, every argument present, attributes and reals as training has them.
 *  @param kind   a compute kind
 *  @param sizes  borrowed
 *  @param real   fp32 or fp64 */
ech_op ech_bench_op(ech_op_kind kind, const ech_bench_sizes *sizes, ech_dtype real);

/** Bytes of all its operands, each aligned, and its workspace. */
size_t ech_bench_op_bytes(const ech_op *op);

/** Put values that training could have where a call of the op will find them: reals of about one
 *  half, ids below the vocabulary, second moments that are not negative.
 *  @param op      borrowed
 *  @param memory  [ech_bench_op_bytes] 64-byte aligned */
void ech_bench_fill(const ech_op *op, void *memory);

/** Give it memory.
 *  @param op       borrowed
 *  @param memory   as above, borrowed by the call
 *  @param threads  of the kernel
 *  @param out      set */
void ech_bench_call(const ech_op *op, void *memory, int threads, ech_kernel_call *out);

/** The sizes at which a kind that moves bytes is measured, number 0 up in growing order.
 *  @return false: there is no such number, or the kind is none of these (matrix products,
 *          attention, messages) */
bool ech_bench_sizes_of(ech_op_kind kind, int number, ech_bench_sizes *out);

#endif
