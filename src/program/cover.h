/** @file program/cover.h
 *  P5 of the proof: every element of every canonical tensor is held, and updated, exactly as the
 *  layout says.
 *
 *  The plan: boxes of a tensor over tp, derived anew from the rule of each cut (layout/shard.h),
 *  are a disjoint and complete cover of the canonical tensor, key and value heads with all their
 *  copies inside a kv group; the runs that initialisation, checkpoints and dumps read
 *  (ech_shard_run_get) are these boxes; no two tensors of a part overlap, the decayed ones come
 *  first, and the flat ranges over dp cover the part.
 *
 *  The program: what element of which part each byte holds on each rank is followed through gathers,
 *  reduce-scatters, copies and sums, starting from the blocks of the model, which name tensors by
 *  region and offset.  Every block sees a unit's weights at one place; an update's parameter and
 *  gradient are the same elements, and it decays the right ones; all updates together make every
 *  element of a part once.  Both users of a vocabulary table take the same rows of it on every
 *  rank.
 *
 *  Shares nothing with the generators or with shard.c's arithmetic.  Pure; every call is local. */
#ifndef ECH_PROGRAM_COVER_H
#define ECH_PROGRAM_COVER_H

#include "layout/shard.h"    /* ech_shard_plan */
#include "program/program.h" /* ech_program */

/** Check a plan for a layout.  Cost: linear in runs.
 *  @param plan    borrowed
 *  @param l       borrowed
 *  @param looked  out: tensors and runs looked at
 *  @return ECH_OK | ECH_E_PROOF naming tensor, tp coordinate and elements */
ECH_MUST_USE ech_status ech_cover_check_plan(const ech_shard_plan *plan, const ech_layout *l,
                                             int64_t *looked);

/** Check a program against a plan that has been checked.  A program without updates is checked for
 *  what its blocks read alone.
 *  @param p       borrowed
 *  @param plan    borrowed
 *  @param looked  out: operands looked at
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_PROOF naming item, op and tensor, or the elements of a unit
 *          that no or two updates make */
ECH_MUST_USE ech_status ech_cover_check_program(const ech_program *p, const ech_shard_plan *plan,
                                                int64_t *looked);

#endif
