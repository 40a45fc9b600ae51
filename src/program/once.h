/** @file program/once.h
 *  Once-only: every block runs exactly once for its layer, chunk and micro-batch, and what runs for
 *  one micro-batch runs for all of them; no op of a block that changes what it finds stands there
 *  twice; and the state that a block is bound to is its layer's or micro-batch's own: the rows of a
 *  micro-batch stand at its number times their bytes, so that all classes of a run mean the same ones.
 *
 *  Transfers are left out: a unit may be gathered more than once, and that a sum is made once is a
 *  matter of types.h.  Pure. */
#ifndef ECH_PROGRAM_ONCE_H
#define ECH_PROGRAM_ONCE_H

#include "program/program.h" /* ech_program */

/** Check the whole program.
 *  @return ECH_OK | ECH_E_NOMEM
 *        | ECH_E_PROOF naming the items or ops: one runs twice, a micro-batch is left out, a block is
 *          never run (also by standing behind a later segment), a layer is bound to another's
 *          parameters, a micro-batch to other rows */
ECH_MUST_USE ech_status ech_once_check(const ech_program *p);

#endif
