/** @file program/lives.h
 *  Checks a placement: every operand lies in its region and every region in its slot, no item
 *  touches a slot outside the life that was packed, and no two slots own a byte at the same time.
 *  Shares nothing with the packer.  Pure. */
#ifndef ECH_PROGRAM_LIVES_H
#define ECH_PROGRAM_LIVES_H

#include "program/program.h" /* ech_program */

/** Check a placed program.
 *  @return ECH_OK | ECH_E_NOMEM
 *        | ECH_E_PROOF naming item and slot, or the two slots that overlap, or the one that leaves
 *          its arena */
ECH_MUST_USE ech_status ech_lives_check(const ech_program *p);

#endif
