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
 *  The run: every unit is held by one class.  A token table that embedding and head of two classes
 *  share is held by both, in a part of its own; the head's is a copy: both update it, the
 *  embedding's alone is summed into the norm, slots that hold the copy say so and no others, and
 *  groups of axis tied are the ranks of the two.  A tensor is read, and its gradient added to,
 *  equally often over all classes.
 *
 *  The stream: embedding, attention and mlp of each layer and head follow each other in the model's
 *  order, over all classes: in IN each finds what the block before it has put out for its
 *  micro-batch, in DOUT the gradient of the block after it.  What a message brings is what its first
 *  reader takes it for, and has to be what the sender's slot holds.  Slots are followed, not bytes: what
 *  an op outside the model writes to one in between, and what ops inside a block do with it, is not
 *  seen here; equality with one rank sees it.
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

/** The programs of a run and what their ranks hold.  All borrowed. */
typedef struct ech_cover_spec {
    const ech_program *const *program; /**< [n_classes] */
    const ech_shard_plan *const *plan; /**< [n_classes] of one canonical model */
    int n_classes;
    const int *class_of; /**< [world] class of each rank; NULL: all are of class 0 */
} ech_cover_spec;

/** Check the plans of a run, each program against its plan, and all of them together.  Programs
 *  without updates are checked for what their blocks read alone.
 *  @param spec    borrowed
 *  @param looked  out: tensors, runs and operands looked at
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_PROOF naming item, op and tensor, the elements of a unit that
 *          no or two updates make, a unit that no or two classes hold, a copy that is none */
ECH_MUST_USE ech_status ech_cover_check_run(const ech_cover_spec *spec, int64_t *looked);

#endif
