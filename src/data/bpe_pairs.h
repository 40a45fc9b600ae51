/** @file data/bpe_pairs.h
 *  Internal to data: adjacent pairs of symbols with their counts and the words they occur in, and
 *  the most frequent of them.  Counts change while merging; the heap is put right when its top is
 *  looked at.  Local. */
#ifndef ECH_DATA_BPE_PAIRS_H
#define ECH_DATA_BPE_PAIRS_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** A pair of adjacent symbols. */
typedef struct ech_pair {
    int32_t left, right;
    int64_t count;
    uint32_t *word; /**< owned: words that have or had it, rising, without repeats */
    size_t n_words, word_capacity;
    bool is_touched; /**< its count rose since it was last put on the heap */
} ech_pair;

/** An entry of the heap; stale once the pair's count has changed. */
typedef struct ech_pair_rank {
    int64_t count;
    int32_t left, right;
    size_t pair;
} ech_pair_rank;

/** Zero-initialise; release with ech_pairs_fini. */
typedef struct ech_pairs {
    ech_pair *pair; /**< owned [n] */
    size_t n, pair_capacity;
    size_t *slot; /**< owned [n_slots]: index + 1, 0 empty */
    size_t n_slots;
    ech_pair_rank *heap; /**< owned: highest count first, then smaller left, then smaller right */
    size_t n_heap, heap_capacity;
    size_t *touched; /**< owned */
    size_t n_touched, touched_capacity;
} ech_pairs;

/** Change the count of a pair in a word by `by` (not 0).  A rise makes the pair if need be.
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_pairs_change(ech_pairs *p, int32_t left, int32_t right, uint32_t word,
                                         int64_t by);

/** Put all pairs whose counts rose on the heap.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_pairs_settle(ech_pairs *p);

/** Take the most frequent pair off the heap.
 *  @param p  settled
 *  @return its index, SIZE_MAX: there is none */
size_t ech_pairs_pop(ech_pairs *p);

/** Release and zero. */
void ech_pairs_fini(ech_pairs *p);

#endif
