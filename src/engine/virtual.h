/** @file engine/virtual.h
 *  Virtual ranks: one process steps n engines over the inproc transport, in turn or in an order
 *  drawn from a seed (schedule fuzzing: any ready op of any rank; not one bit may change).
 *
 *  No threads; a deadlock is seen at once and told in words.  Local. */
#ifndef ECH_ENGINE_VIRTUAL_H
#define ECH_ENGINE_VIRTUAL_H

#include "engine/engine.h" /* ech_engine */
#include "program/deps.h"  /* ech_deps */

enum { ECH_MAX_VIRTUAL = 1024 /**< ranks of one process */ };

/** Step all engines through one segment, round robin.  Allocates nothing.
 *  @param engine   [n], of one world
 *  @param n        at most ECH_MAX_VIRTUAL
 *  @param program  index in each engine's programs
 *  @param segment  of that program
 *  @return ECH_OK | ECH_E_DEADLOCK with every rank's place | ECH_E_COMM | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_virtual_run(ech_engine *const *engine, int n, int program,
                                        ech_segment segment);

/** What orders are drawn from: the programs of all rank classes and their dependences.  All
 *  borrowed. */
typedef struct ech_virtual_orders {
    const ech_program *const *program; /**< [n_classes] */
    const ech_deps *deps;              /**< [n_classes] derived on addresses */
    const int *class_of;               /**< [n] of each engine's rank; NULL: all of class 0 */
} ech_virtual_orders;

/** The same in an order drawn from seed: at each turn any op whose predecessors are done.
 *  @param orders  borrowed
 *  @param seed    of the order
 *  @return as ech_virtual_run | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_virtual_fuzz(ech_engine *const *engine, int n, int program,
                                         ech_segment segment, const ech_virtual_orders *orders,
                                         uint64_t seed);

#endif
