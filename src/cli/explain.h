/** @file cli/explain.h
 *  Derivations as JSON.  Local. */
#ifndef ECH_CLI_EXPLAIN_H
#define ECH_CLI_EXPLAIN_H

#include "price/derive.h" /* ech_derivation */
#include "report/jout.h"  /* ech_jout */

/** Add the member "derivation" to an open object: [{"section", "what", "formula", "value", "unit",
 *  "source"}]. */
void ech_derivation_members(const ech_derivation *d, ech_jout *j);

#endif
