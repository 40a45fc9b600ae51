/** @file program/interval.h
 *  A map from byte ranges to three small numbers, as sorted disjoint segments.  Internal to
 *  program/: deps.c, lives.c and types.c follow the bytes of a slot or an arena with it.
 *
 *  Segments stand in chunks of bounded size, so that a new one moves few others. */
#ifndef ECH_PROGRAM_INTERVAL_H
#define ECH_PROGRAM_INTERVAL_H

#include "base/status.h" /* ech_status */

/** Bytes [begin, end) and what is known of them. */
typedef struct ech_bytes_segment {
    size_t begin, end;
    int value[3];
} ech_bytes_segment;

/** Neighbouring segments. */
typedef struct ech_interval_chunk {
    ech_bytes_segment *seg; /**< owned, sorted, disjoint */
    int n;
    size_t capacity;
} ech_interval_chunk;

/** The map.  Zero-initialise; release with ech_interval_fini. */
typedef struct ech_interval_map {
    ech_interval_chunk *chunk; /**< owned, in order, none empty */
    int n_chunks;
    size_t capacity;
} ech_interval_map;

/** A place in a map; zero-initialised, its first segment.  Good until segments are added. */
typedef struct ech_interval_at {
    int chunk, at;
} ech_interval_at;

/** Cut segments so that [begin, end) is covered exactly by *n segments from *first on; bytes never
 *  named before get the values `fresh`.  An empty range gives *n == 0.
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_interval_cover(ech_interval_map *m, size_t begin, size_t end,
                                           const int fresh[3], ech_interval_at *first, int *n);

/** The segment at *at, which moves on to the next; NULL behind the last. */
ech_bytes_segment *ech_interval_next(const ech_interval_map *m, ech_interval_at *at);

/** The same segments once more.
 *  @param to  out: empty before; the caller's also on failure (ech_interval_fini)
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_interval_copy(const ech_interval_map *m, ech_interval_map *to);

/** Release and zero. */
void ech_interval_fini(ech_interval_map *m);

#endif
