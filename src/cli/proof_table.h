/** @file cli/proof_table.h
 *  The report of a proof, as lines for people and as JSON.  Local. */
#ifndef ECH_CLI_PROOF_TABLE_H
#define ECH_CLI_PROOF_TABLE_H

#include "program/prove.h" /* ech_prove_report */
#include "report/jout.h"   /* ech_jout */

/** Print a line a part: name, verdict, what was looked at, seconds, what it says; under a fault its
 *  counter-example. */
void ech_cli_print_proof(const ech_program *p, const ech_prove_report *report);

/** Add its parts to a list that is open: {program, part, ok, text, looked, seconds}; ok is null for
 *  a part that was left out, text then its reason, a counter-example, or what the part says. */
void ech_cli_jout_proof(ech_jout *j, const ech_program *p, const ech_prove_report *report);

#endif
