/** @file program/fingerprint.h
 *  One number for everything that ranks of a class must have in common: blocks, items, slots,
 *  order.  Ranks compare it before step 0: bucket k of one rank would otherwise be summed with
 *  another bucket of the same size, in silence.  Pure. */
#ifndef ECH_PROGRAM_FINGERPRINT_H
#define ECH_PROGRAM_FINGERPRINT_H

#include "program/program.h" /* ech_program */

/** Hash over the meaning of a program (field by field; names and addresses do not count). */
uint64_t ech_program_fingerprint(const ech_program *p);

#endif
