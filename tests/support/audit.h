/** @file support/audit.h
 *  Which bytes a kernel really touches, against what its arguments are declared to be.
 *
 *  Each operand gets a mapping of its own between two pages that cannot be touched, at its very
 *  start in one run and at its very end in another (parameters and gradients down to the last byte,
 *  since they are packed; other operands keep their 64-byte alignment); the rest of the mapping is
 *  filled with a canary, and so is every WRITE operand.  The two runs differ in canary and threads,
 *  too.  A kernel passes if
 *  - no canary outside of an operand changed, and no page beyond was touched (a fault there ends
 *    the process with status 1 and the case's name);
 *  - READ operands are what they were;
 *  - both runs give the same bits, and every byte of a WRITE operand was written: so results depend
 *    neither on what was in the output, nor on addresses, nor on the number of threads.
 *
 *  The table of accesses is that of kernel_cases.  Not for use with threads of the caller's. */
#ifndef ECH_TESTS_AUDIT_H
#define ECH_TESTS_AUDIT_H

#include "kernel_cases.h" /* kernel_case */

/** Audit one kernel on one case; the case itself is not changed.
 *  @param kernel  the kernel under test
 *  @param c       a case, not run
 *  @param why     out: what is wrong, of n bytes
 *  @param n       room in why
 *  @return true if the kernel passed */
bool audit_kernel(ech_kernel kernel, const kernel_case *c, char *why, size_t n);

/** Audit every kind that the set has, all variants and seeds; failures go to stderr.
 *  @return failures */
int audit_kernel_set(const ech_kernel_set *set, ech_dtype real);

#endif
