/** @file program/match.h
 *  P1 and P2 of the proof: messages match, and no rank waits for ever (docs/architecture.md).
 *
 *  Matching: the k-th collective that a rank starts on a communicator (an axis' group) has one
 *  kind, shape and type on all members; sends and receives of a pair of ranks over an axis match in
 *  the order in which each side starts them, with equal elements, type, placement and micro-batch,
 *  and what one chunk sends always goes to the same chunk.
 *
 *  Progress is shown by one run on the weakest machine.  RENDEZVOUS: starts never block; the wait
 *  of a collective passes when all members have started it, the wait of one end of a message when
 *  the other end has started.  SERIAL: a rank's communication is one queue, a start blocks like its
 *  wait (what NCCL may do with kernels of one device); sends and receives that stand side by side
 *  in a block, or in items side by side in a segment that start nothing else, are a group and are
 *  posted together.  No op chooses among messages, so the network is confluent: if
 *  one maximal run finishes, all do (Kahn 1974).
 *
 *  Symmetry: ranks of a class run one program, so only axes along which the class changes, or peers
 *  and messages between pairs depend on the coordinate, are followed rank by rank; along every
 *  other one rank stands for all.  That it may is checked in O(ranks).  Cost: linear in
 *  communication ops times the ranks followed; 1 where all ranks are of one class.
 *
 *  Shares nothing with comm/, layout.c or the generators.  Pure; every call is local. */
#ifndef ECH_PROGRAM_MATCH_H
#define ECH_PROGRAM_MATCH_H

#include "program/program.h" /* ech_program */

/** Programs of a run.  All borrowed. */
typedef struct ech_match_spec {
    const ech_layout *layout;
    const ech_program *const *program; /**< [n_classes], of this layout */
    int n_classes;
    const int *class_of; /**< [world] class of each rank; NULL: all are of class 0 */
} ech_match_spec;

/** When a start lets the rank go on. */
typedef enum ech_match_how { ECH_MATCH_RENDEZVOUS, ECH_MATCH_SERIAL } ech_match_how;

/** What was looked at. */
typedef struct ech_match_count {
    int followed;        /**< ranks that were followed */
    int64_t collectives; /**< started by them */
    int64_t messages;    /**< between pairs, both ends */
    int64_t ops;         /**< starts and waits of all programs */
} ech_match_count;

/** Run all ranks to their ends.
 *  @param spec   borrowed
 *  @param how    the machine
 *  @param count  out, also on failure
 *  @return ECH_OK
 *        | ECH_E_PROOF       the first mismatch, or who waits where for whom, in words
 *        | ECH_E_UNSUPPORTED more ranks must be followed than memory holds; or with rounds
 *                            (program/repeat.h) ranks do not keep step in those there are, so that
 *                            nothing can be said of more
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_match_check(const ech_match_spec *spec, ech_match_how how,
                                        ech_match_count *count);

#endif
