/** @file data/word_count.h
 *  Internal to data: how often each distinct piece of text occurs, in order of first occurrence. */
#ifndef ECH_DATA_WORD_COUNT_H
#define ECH_DATA_WORD_COUNT_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** A distinct piece and its count. */
typedef struct ech_word {
    uint64_t hash;
    size_t at; /**< first byte in the store */
    uint32_t bytes;
    int64_t count;
} ech_word;

/** Zero-initialise; release with ech_word_count_fini. */
typedef struct ech_word_count {
    ech_word *word; /**< owned [n] */
    size_t n, word_capacity;
    char *store; /**< owned */
    size_t used, store_capacity;
    uint32_t *slot; /**< owned [n_slots]: index + 1, 0 empty */
    size_t n_slots;
} ech_word_count;

/** Count one occurrence.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_word_count_add(ech_word_count *w, const char *piece, size_t bytes);

/** Release and zero. */
void ech_word_count_fini(ech_word_count *w);

#endif
