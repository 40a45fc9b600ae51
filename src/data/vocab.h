/** @file data/vocab.h
 *  Internal to data: strings by id and ids by string.  Local; read-only once filled. */
#ifndef ECH_DATA_VOCAB_H
#define ECH_DATA_VOCAB_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Ids are below it: a hostile file cannot ask for more memory than that of so many entries. */
#define ECH_VOCAB_MAX (1 << 22)

/** Where the string of an id lies. */
typedef struct ech_vocab_item {
    size_t at; /**< first byte in the store */
    uint32_t bytes;
    bool is_set;
} ech_vocab_item;

/** Zero-initialise; release with ech_vocab_fini. */
typedef struct ech_vocab {
    char *store; /**< owned: all strings, one after another */
    size_t used;
    size_t store_capacity;
    ech_vocab_item *item; /**< owned [n] by id */
    int32_t n;            /**< largest id + 1 */
    size_t item_capacity;
    int32_t *slot; /**< owned [n_slots]: open addressing, -1 empty */
    size_t n_slots;
    size_t n_indexed;
} ech_vocab;

/** Set the string of an id; of two ids with one string the first is found.
 *  @return ECH_OK | ECH_E_DATA (id out of range, or already set to another string) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_vocab_add(ech_vocab *v, int64_t id, const char *string, size_t bytes);

/** Id of a string, -1: none. */
int32_t ech_vocab_find(const ech_vocab *v, const char *string, size_t bytes);

/** String of an id, borrowed, not terminated; NULL: none. */
const char *ech_vocab_get(const ech_vocab *v, int32_t id, size_t *bytes);

/** Release and zero. */
void ech_vocab_fini(ech_vocab *v);

#endif
