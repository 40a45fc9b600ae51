/** @file plan/own_private.h
 *  What the files of plan/own.h share.  Pure; local. */
#ifndef ECH_PLAN_OWN_PRIVATE_H
#define ECH_PLAN_OWN_PRIVATE_H

#include "plan/own.h"        /* ech_own_spec */
#include "program/compile.h" /* ech_compile_spec */

/** What a compilation borrows. */
typedef struct ech_own_compile {
    ech_compile_spec spec;
    ech_canon canon;   /**< owned */
    int *stage_layers; /**< owned; NULL: balanced */
} ech_own_compile;

/** May the engine run it, as it is described; then why not, in words, is appended. */
bool ech_own_can(const ech_own_spec *spec, ech_findings *why);

/** The compiler's question, for prices only.
 *  @param spec  ech_own_can said yes
 *  @param out   owned by the caller (ech_own_compile_fini), also on failure
 *  @return ECH_OK | ECH_E_ILLEGAL | ECH_E_NOMEM | as ech_layout_make */
ECH_MUST_USE ech_status ech_own_compile_make(const ech_own_spec *spec, ech_own_compile *out);

/** Release and zero. */
void ech_own_compile_fini(ech_own_compile *c);

#endif
