/** @file support/mutants.h
 *  Mutants: operators that put one fault into a step program, and the proof's verdict on it.
 *  Adding an operator is adding a row to mutant_operators, to mutant_many_operators where only
 *  many ranks can have the fault, or to mutant_stage_operators where only pipelines can. */
#ifndef ECH_TESTS_MUTANTS_H
#define ECH_TESTS_MUTANTS_H

#include "program/prove.h" /* ech_program, the proof's parts */

typedef enum mutant_scope {
    MUTANT_ITEM, /**< a: item */
    MUTANT_OP,   /**< a: block, b: op in it; all its invocations change */
    MUTANT_SLOT  /**< a: transient slot */
} mutant_scope;

/** An operator. */
typedef struct mutant_operator {
    const char *name;
    mutant_scope scope;
    bool after_placing; /**< changes the placement itself; else the mutant is placed anew */
    /** Does the operator fit there; where apply is set, put the fault in. */
    bool (*put)(ech_program *p, int a, int b, bool apply);
} mutant_operator;

extern const mutant_operator mutant_operators[];
extern const int n_mutant_operators;
extern const mutant_operator mutant_many_operators[];
extern const int n_mutant_many_operators;
extern const mutant_operator mutant_stage_operators[]; /* of pipelines */
extern const int n_mutant_stage_operators;

/** Places of p that an operator fits. */
int mutant_sites(const ech_program *p, const mutant_operator *op);

/** A copy of p that shares nothing with it. */
void mutant_copy(const ech_program *p, ech_program *out);

/** A mutant, placed; the caller releases it.
 *  @param site  0 <= site < mutant_sites(p, op)
 *  @param where  out: what was changed, in words */
void mutant_make(const ech_program *p, const mutant_operator *op, int site, ech_program *out,
                 char *where, size_t n);

/** What refuses a mutant: the shape of an op, or a part of the proof. */
enum { MUTANT_BY_SHAPE, MUTANT_BY_PROOF, N_MUTANT_CHECKS = MUTANT_BY_PROOF + ECH_N_PROOF_PARTS };

/** "shape" and the like. */
const char *mutant_check_name(int check);

/** All static checks.
 *  @param plan  how the model is dealt out
 *  @param by    out: the first that refuses; N_MUTANT_CHECKS: none does
 *  @return what it said */
ech_status mutant_prove(const ech_program *p, const ech_shard_plan *plan, int *by);

/** The same for the programs of a run, one of which is a mutant. */
ech_status mutant_prove_run(const ech_prove_spec *spec, int *by);

/* --- what operators and tests of single faults are made of --- */

/** Insert an item (copied) before index `at`, remove one, swap two. */
void program_insert(ech_program *p, int at, ech_item item);
void program_remove(ech_program *p, int at);
void program_swap(ech_program *p, int a, int b);

/** First item whose block's name starts so, at or after index `from`; -1: none. */
int program_find(const ech_program *p, const char *block, int from);

/** First op of a kind in an item's block; -1: none. */
int program_find_op(const ech_program *p, int item, ech_op_kind kind);

/** Give an item a block of its own, so that a change of it is no other item's.
 *  @return the block */
ech_block *program_own_block(ech_program *p, int item);

/** Insert or remove an op of a block. */
void block_insert(ech_block *b, int at, ech_op op);
void block_remove(ech_block *b, int at);

#endif
