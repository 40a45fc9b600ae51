/** @file program/prove.h
 *  The whole proof of a run's programs, part by part, with a report (docs/architecture.md).
 *
 *  It is arithmetic on data: it runs on programs that a compiler made and on such as were read from
 *  a file.  What it cannot see (a kernel's inner constant, a network that loses a message) is what
 *  equality tests and the watchdog are for.  Pure; every call is local. */
#ifndef ECH_PROGRAM_PROVE_H
#define ECH_PROGRAM_PROVE_H

#include "layout/shard.h"    /* ech_shard_plan */
#include "program/program.h" /* ech_program */

/** Parts in their order: name, and what holds where no counter-example is found. */
#define ECH_PROOF_LIST(X)                                                                          \
    X(ECH_PROOF_LIVES, "lives", "no byte has two owners at once, operands lie in their slots")     \
    X(ECH_PROOF_ONCE, "once", "each block runs once a layer and micro-batch, on its own state")    \
    X(ECH_PROOF_TYPES, "types", "placements and scales of every byte fit, reads follow writes")    \
    X(ECH_PROOF_ORDER, "order", "messages in flight own their bytes, waits have their starts")     \
    X(ECH_PROOF_MATCH, "match", "messages match on all ranks, none waits for ever")                \
    X(ECH_PROOF_QUEUE, "one queue", "the same with a rank's communication one after the other")    \
    X(ECH_PROOF_COVER, "cover", "every element of every tensor is held and updated once")          \
    X(ECH_PROOF_PEAKS, "peaks", "memory is what was predicted and within its caps")

typedef enum ech_proof_part {
#define ECH_PROOF_ENUM(part, name, text) part,
    ECH_PROOF_LIST(ECH_PROOF_ENUM)
#undef ECH_PROOF_ENUM
        ECH_N_PROOF_PARTS
} ech_proof_part;

/** What came of a part. */
typedef enum ech_proof_verdict {
    ECH_PROOF_HOLDS,
    ECH_PROOF_FAULT,
    ECH_PROOF_LEFT_OUT
} ech_proof_verdict;

/** Name of a part, "one queue"; static storage. */
const char *ech_proof_name(ech_proof_part part);

/** What it says, one line; static storage. */
const char *ech_proof_claim(ech_proof_part part);

/** One part. */
typedef struct ech_proof_row {
    ech_proof_verdict verdict;
    int64_t looked; /**< ops, items, slots or operands looked at */
    double seconds;
    char text[1024]; /**< the first counter-example, or why it was left out; else "" */
} ech_proof_row;

/** All of them. */
typedef struct ech_prove_report {
    ech_proof_row row[ECH_N_PROOF_PARTS];
    int followed; /**< ranks that match followed: the others are like one of these */
    int world;
    double seconds;
} ech_prove_report;

/** What is proved.  All borrowed. */
typedef struct ech_prove_spec {
    const ech_program *const
        *program; /**< [n_classes] placed programs of a run, one a rank class */
    int n_classes;
    const int *class_of; /**< [world]; NULL: all ranks are of class 0 */
    const ech_shard_plan *const
        *plan;                      /**< [n_classes] what its ranks hold; NULL: cover is left out */
    size_t cap_bytes[ECH_N_SPACES]; /**< 0: no cap */
} ech_prove_spec;

/** Prove all parts; a part with a fault does not keep the others from being looked at.
 *  @param spec    borrowed
 *  @param report  out, on every return but for want of memory
 *  @return ECH_OK
 *        | ECH_E_PROOF with the first counter-example: which part, which ranks, item, op, axis
 *        | ECH_E_INFEASIBLE over a cap
 *        | ECH_E_UNSUPPORTED (match.h)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_prove(const ech_prove_spec *spec, ech_prove_report *report);

#endif
