/** @file data/piece_cache.h
 *  Internal to data: ids of pieces already encoded.  Text repeats its words, so nearly every piece
 *  is found here; that is what makes encoding fast.  Bounded: when full it is emptied.  Local. */
#ifndef ECH_DATA_PIECE_CACHE_H
#define ECH_DATA_PIECE_CACHE_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Longer pieces are not kept. */
#define ECH_PIECE_CACHE_MAX_BYTES 48

/** A piece that is kept. */
typedef struct ech_piece_entry {
    uint64_t hash;
    uint32_t key;   /**< place of its bytes */
    uint32_t ids;   /**< place of its ids */
    uint16_t bytes; /**< 0: empty entry */
    uint16_t n;
} ech_piece_entry;

/** Zero-initialise; release with ech_piece_cache_fini. */
typedef struct ech_piece_cache {
    ech_piece_entry *entry; /**< owned, open addressing */
    char *keys;             /**< owned */
    int32_t *ids;           /**< owned */
    uint32_t n_entries, n_keys, n_ids;
} ech_piece_cache;

/** Get the memory.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_piece_cache_init(ech_piece_cache *c);

/** Ids of a piece of 1..MAX_BYTES bytes, or NULL; borrowed until the next put.
 *  @param c      borrowed
 *  @param piece  [bytes]
 *  @param bytes  its length
 *  @param hash   of the piece (ech_hash64)
 *  @param n      out: how many ids */
const int32_t *ech_piece_cache_get(const ech_piece_cache *c, const char *piece, size_t bytes,
                                   uint64_t hash, size_t *n);

/** Keep the ids of a piece that is not there yet. */
void ech_piece_cache_put(ech_piece_cache *c, const char *piece, size_t bytes, uint64_t hash,
                         const int32_t *ids, size_t n);

/** Release and zero. */
void ech_piece_cache_fini(ech_piece_cache *c);

#endif
