/** @file program/op_law.h
 *  What the labels of a signature cannot say of an op's sizes: sums and products of them, and
 *  attributes.  Internal to program/. */
#ifndef ECH_PROGRAM_OP_LAW_H
#define ECH_PROGRAM_OP_LAW_H

#include "program/op.h" /* ech_op */

/** Relations between sizes and attributes, as in kernels/kernels.h: heads of a group (r, q = r + 2,
 *  k = r + 1, e = r D), the rotary table (2 f <= D, t >= s), pairs of gate and up, tokens in whole
 *  sequences (N a multiple of s), positions and cache long enough, shares of equal length; and
 *  which cell of the scalar table an argument is.
 *  @param op  number, ranks and labels of its arguments have been checked
 *  @return ECH_OK | ECH_E_PROOF naming the op and the relation with its sizes */
ECH_MUST_USE ech_status ech_op_check_law(const ech_op *op);

/** Where an attribute says at which index of the whole a rank's share begins (first row, token,
 *  head, element): it is coordinate * share along the axis over which that dimension is dealt out,
 *  and 0 where it is whole.
 *  @param op  its shape has been checked
 *  @param l   borrowed: the axes' degrees
 *  @return ECH_OK | ECH_E_PROOF naming op, axis and coordinate | ECH_E_ILLEGAL (64 bits do not hold
 *          the index) */
ECH_MUST_USE ech_status ech_op_check_first(const ech_op *op, const ech_layout *l);

#endif
