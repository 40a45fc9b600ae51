/** @file program/deps.h
 *  Dependences, derived from the byte ranges each op declares to read and write
 *  (docs/architecture.md, "Order"): once on slots, and again on addresses after placement, where
 *  reused memory adds write-after-read and write-after-write hazards.
 *
 *  Nodes are (item, op) pairs in program order, and, on addresses, a RELEASE node at the end of
 *  each transient slot's life, which writes all of it (that is where poison goes).  Starts on an axis
 *  are issued in program order, and a request carries one message after the other.  Communication
 *  in flight owns its bytes from start to wait: another op that touches them in between is an
 *  error, not an edge.  Pure. */
#ifndef ECH_PROGRAM_DEPS_H
#define ECH_PROGRAM_DEPS_H

#include "program/program.h" /* ech_program */

/** A graph in compressed rows: predecessors of node i are pred[row[i] .. row[i+1]). */
typedef struct ech_deps {
    int n;     /**< nodes */
    int *item; /**< owned [n]: item of each node */
    int *op; /**< owned [n]: op index in its block, or ECH_DEPS_RELEASE: the end of a slot's life */
    int *slot; /**< owned [n]: the slot of a RELEASE node; else -1 */
    int *row;  /**< owned [n + 1] */
    int *pred; /**< owned; each < its node, ascending, without repeats */
    size_t n_edges;
} ech_deps;

enum { ECH_DEPS_RELEASE = -1 /**< op index of a RELEASE node */ };

/** What dependences are derived from. */
typedef enum ech_deps_on {
    ECH_DEPS_ON_SLOTS,    /**< before placement */
    ECH_DEPS_ON_ADDRESSES /**< after placement: includes hazards of reuse */
} ech_deps_on;

/** Derive.  @return ECH_OK | ECH_E_NOMEM | ECH_E_PROOF: bytes of a message in flight are touched,
 *  a wait without a start, a start without a wait; the message names both ops */
ECH_MUST_USE ech_status ech_deps_derive(const ech_program *p, ech_deps_on on, ech_deps *out);

/** Release and zero. */
void ech_deps_fini(ech_deps *d);

/** Take one edge out by hand (tests and mutants).  @return was it there */
bool ech_deps_drop(ech_deps *d, int node, int pred);

#endif
