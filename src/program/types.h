/** @file program/types.h
 *  The type check of a step program: placements and scales, per op by the op table's rule, then
 *  over invocation edges by following every byte range of every slot through the step
 *  (docs/architecture.md, "Placement"), and def-use: every read has its write, a sum is complete
 *  when it is read, no gradient is overwritten, what landed apart is added once.  Every byte of a
 *  gradient is in one norm and one update, and state is left as the next step takes it.
 *
 *  Where attributes say at which index a rank's share begins, that follows from the placement of the
 *  dimension (op_law.h).
 *
 *  Errors name the op, the layer, the slot and the axis: "gradient reduced twice over dp",
 *  "gradient is a partial sum over dp where adamw wants I", "scale is 1/tokens * 0.25, the update
 *  wants 1/tokens".  Pure. */
#ifndef ECH_PROGRAM_TYPES_H
#define ECH_PROGRAM_TYPES_H

#include "program/program.h" /* ech_program */

/** Check the whole program.
 *  @return ECH_OK | ECH_E_PROOF (the first fault in program order) | ECH_E_ILLEGAL (64 bits do not hold
 *          where a share begins) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_types_check(const ech_program *p);

#endif
