/** @file engine/arena.h
 *  One arena per memory space: exactly the predicted bytes, between pages that cannot be touched.
 *
 *  The arena ends at a guard page, so one byte too many faults; below it lies a page of canaries,
 *  checked at the end.  All of it is touched (filled with a canary pattern) before step 0, so no
 *  page is first touched inside a step, and what a run really touched can be counted.  Local. */
#ifndef ECH_ENGINE_ARENA_H
#define ECH_ENGINE_ARENA_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** An arena.  Zero-initialise; release with ech_arena_fini. */
typedef struct ech_arena {
    unsigned char *base; /**< first byte, 64-byte aligned; owned; NULL while empty */
    size_t bytes;        /**< exactly as asked for, a multiple of 64 */
    void *map;           /**< the whole mapping with its guards */
    size_t map_bytes;
} ech_arena;

/** Map, fill with the canary pattern.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_arena_init(ech_arena *a, size_t bytes);

/** Unmap and zero; an empty one is fine. */
void ech_arena_fini(ech_arena *a);

/** Bytes of [begin, end) that no longer hold the canary pattern (counted in 4-byte words). */
size_t ech_arena_touched(const ech_arena *a, size_t begin, size_t end);

/** Are the canaries below the arena whole.  @return ECH_OK | ECH_E_CORRUPT with the distance */
ECH_MUST_USE ech_status ech_arena_check(const ech_arena *a);

#endif
