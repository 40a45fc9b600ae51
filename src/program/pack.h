/** @file program/pack.h
 *  Packing of lifetimes into one arena: offsets for intervals that do not overlap in time and space
 *  (dynamic storage allocation).  Long lives by size and short ones between them, then best fit in
 *  several orders (size, duration x size, start); the best result is kept, so the loss against the
 *  peak of live bytes stays small.  Of many lives (thousands) a loss under half a percent is taken as
 *  it is: their time then grows as their number times those alive at once.  Pure. */
#ifndef ECH_PROGRAM_PACK_H
#define ECH_PROGRAM_PACK_H

#include "base/status.h" /* ech_status */

/** One buffer: alive from first to last inclusive. */
typedef struct ech_pack_item {
    size_t bytes; /**< rounded up to align by the packer */
    int first, last;
    size_t offset; /**< out */
} ech_pack_item;

/** Choose offsets.
 *  @param item   in/out [n]
 *  @param n      how many
 *  @param align  a power of two
 *  @param arena  out: bytes needed
 *  @param peak   out: largest sum of (rounded) bytes alive at once, a lower bound of arena
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_pack(ech_pack_item *item, int n, size_t align, size_t *arena,
                                 size_t *peak);

#endif
