/** @file program/block_state.h
 *  Operands of a unit's state as flat vectors: gradients, parameters, moments, whole or a rank's
 *  flat range, with their placements.  Internal to program/.  Pure; local. */
#ifndef ECH_PROGRAM_BLOCK_STATE_H
#define ECH_PROGRAM_BLOCK_STATE_H

#include "program/block_builder.h" /* ech_builder */

/** An axis in a set of axes. */
static inline unsigned ech_axis_bit(ech_axis axis)
{
    return 1u << (unsigned)axis;
}

/** The region of a part, of ECH_REGION_PARAM, GRAD or MOMENT. */
static inline ech_region ech_region_of_part(ech_region first, ech_part part)
{
    return (ech_region)((int)first + (int)part);
}

/** Every axis over which gradients are summed. */
unsigned ech_axes_of_gradients(void);

/** The axis over which a part's gradient is summed next: dp, then hsdp, then tp where it is partial
 *  there, then tied.
 *  @param l     borrowed
 *  @param part  of a unit
 *  @param done  bits of axes over which it is summed already
 *  @param axis  set where true is returned
 *  @return false: it is finished */
bool ech_grad_next_axis(const ech_layout *l, ech_part part, unsigned done, ech_axis *axis);

/** Placement of a part of the gradient that is summed over the axes in `done`; over dp it is then a
 *  flat range each, or where state is not sharded the same. */
ech_placement ech_grad_place(const ech_block_spec *s, ech_part part, unsigned done);

/** Placement of a part of the parameters, whole over dp or a flat range each. */
ech_placement ech_param_place(const ech_block_spec *s, ech_part part, bool is_share);

/** Gradients of a part [elems] in GRAD of the part, summed over the axes in `done`. */
ech_operand ech_grad_vector(const ech_builder *b, ech_part part, int64_t elems, unsigned done);

/** This rank's flat range of a unit's part, of finished gradients (ECH_REGION_GRAD) or parameters
 *  (ECH_REGION_PARAM): within the whole part, or by itself where that is how they are held.
 *  Without sharding the whole part. */
ech_operand ech_share_of(const ech_builder *b, ech_region first, int unit, ech_part part);

/** Index in the part of its first element. */
ech_expr ech_share_first(const ech_builder *b, int unit, ech_part part);

/** A moment of it, 0: m, 1: v, one after the other in MOMENT of the part. */
ech_operand ech_moment_of(const ech_builder *b, int unit, ech_part part, int which);

#endif
