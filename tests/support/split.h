/** @file support/split.h
 *  Blocks of a tiny model with their backward whole or split, and programs made of them. */
#ifndef ECH_TESTS_SPLIT_H
#define ECH_TESTS_SPLIT_H

#include "tiny.h"

/** What the blocks of a tiny run depend on. */
typedef struct split_case {
    ech_model model;
    ech_canon canon;
    ech_shard_plan plan;
    ech_block_spec block; /**< points to the others; training, backward whole */
} split_case;

typedef ech_status (*split_maker)(const ech_block_spec *s, ech_role role, ech_block *out);

enum { SPLIT_PIECES = 4 };

/** Embedding, attention, mlp, head. */
extern const split_maker split_makers[SPLIT_PIECES];

/** Fill in; out may not move. */
void split_case_init(const tiny_spec *spec, split_case *out);
void split_case_fini(split_case *c);

/** A block of a piece; the caller frees its ops. */
ech_block split_block(const split_case *c, int piece, ech_role role, bool is_split);

/** When weight blocks run. */
typedef enum split_when {
    SPLIT_AT_ONCE, /**< each behind its input block */
    SPLIT_LATER,   /**< in order, with two others waiting */
    SPLIT_LAST     /**< in order, behind all input blocks */
} split_when;

/** A training program with its backward split: the same items, each backward block an input and a
 *  weight block, saved sets in slots of their own.
 *  @param p    compiled, its backward whole; only read.  Gradients move behind all backwards of a
 *              unit, or the weight blocks before them come at once
 *  @param out  placed; the caller releases it */
void split_program(const split_case *c, const ech_program *p, split_when when, ech_program *out);

#endif
