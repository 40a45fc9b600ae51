/** @file data/bpe.h
 *  Internal to data: the merge table of a BPE and its application to one piece of text.
 *
 *  The pair of lowest rank merges first, the leftmost of equals (Sennrich et al. 2016).  Merges by
 *  score (SentencePiece, llama2.c) are the same with ranks made of scores: equal scores share a
 *  rank.  Local. */
#ifndef ECH_DATA_BPE_H
#define ECH_DATA_BPE_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** One merge: left right -> id. */
typedef struct ech_merge {
    uint64_t pair; /**< left << 32 | right */
    int32_t rank;  /**< -1: empty slot */
    int32_t id;
} ech_merge;

/** Merges by pair.  Zero-initialise; release with ech_merges_fini. */
typedef struct ech_merges {
    ech_merge *slot; /**< owned [n_slots], open addressing */
    size_t n_slots;
    size_t n;
} ech_merges;

/** Add a merge; an earlier one of the same pair stays.
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_merges_add(ech_merges *m, int32_t left, int32_t right, int32_t rank,
                                       int32_t id);

/** The merge of a pair, or NULL; borrowed. */
const ech_merge *ech_merges_find(const ech_merges *m, int32_t left, int32_t right);

/** Release and zero. */
void ech_merges_fini(ech_merges *m);

/** Working memory for long pieces.  Zero-initialise; release with ech_bpe_scratch_fini. */
typedef struct ech_bpe_scratch {
    struct ech_bpe_link *link;      /**< owned */
    struct ech_bpe_candidate *heap; /**< owned */
    size_t link_capacity, heap_capacity;
} ech_bpe_scratch;

/** Release and zero. */
void ech_bpe_scratch_fini(ech_bpe_scratch *s);

/** Apply all merges to a list of ids, in place.
 *  Cost: O(n^2) below a few dozen ids, O(n log n) beyond.
 *  @param m    borrowed
 *  @param s    its memory grows
 *  @param ids  in/out [n]
 *  @param n    in/out
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_bpe_apply(const ech_merges *m, ech_bpe_scratch *s, int32_t *ids,
                                      size_t *n);

#endif
