/** @file storage/ckpt_box.h
 *  Boxes and flat ranges of a tensor: where a piece of a checkpoint lies in canonical coordinates,
 *  and what two of them have in common.
 *
 *  A box is one half-open interval a dimension.  Its elements are numbered in row-major order; a
 *  range is [first, first + n) of that order.  So a cut over tp is a box, and a flat range of ZeRO
 *  or FSDP inside the cut is a range of it.  Pure arithmetic, no allocation; local. */
#ifndef ECH_STORAGE_CKPT_BOX_H
#define ECH_STORAGE_CKPT_BOX_H

#include <stdbool.h>
#include <stdint.h>

enum { ECH_CKPT_RANK_MAX = 4 /**< dimensions of a tensor */ };

/** [begin, end) of each dimension; what lies beyond `rank` is not read. */
typedef struct ech_ckpt_box {
    int rank; /**< 1 .. ECH_CKPT_RANK_MAX */
    int64_t begin[ECH_CKPT_RANK_MAX], end[ECH_CKPT_RANK_MAX];
} ech_ckpt_box;

/** Elements [first, first + n) of a box in row-major order. */
typedef struct ech_ckpt_range {
    ech_ckpt_box box;
    int64_t first, n;
} ech_ckpt_range;

/** The whole of a tensor. */
ech_ckpt_box ech_ckpt_box_whole(int rank, const int64_t *dim);

/** Elements of a box (0: some interval is empty). */
int64_t ech_ckpt_box_elems(const ech_ckpt_box *b);

/** Order of boxes of one rank: by their intervals, the first dimension first.
 *  @return < 0, 0, > 0 as by strcmp */
int ech_ckpt_box_compare(const ech_ckpt_box *a, const ech_ckpt_box *b);

/** Do boxes cover `whole` exactly once?  Found by splitting along one dimension after the other
 *  where no box stands across, so O(n log n).  A partition with no such split (a pinwheel), or one
 *  that takes more than 16 levels of them, counts as none: cuts over tp never need that.
 *  @param box    [n] not empty, inside `whole`; their order is changed
 *  @param n      how many
 *  @param whole  what they are to cover */
bool ech_ckpt_boxes_cover(ech_ckpt_box *box, int64_t n, const ech_ckpt_box *whole);

/** A run of elements that follow each other in two ranges. */
typedef struct ech_ckpt_run {
    int64_t a, b; /**< its first element's number in box a and in box b */
    int64_t n;
} ech_ckpt_run;

/** Walks over what two ranges of a tensor have in common.  Opaque but for the caller's storage. */
typedef struct ech_ckpt_overlap {
    ech_ckpt_range a, b;
    ech_ckpt_box meet; /**< holds all common elements, and no row without any */
    int64_t at[ECH_CKPT_RANK_MAX];
    int64_t row; /**< elements that lie together in both */
    int fixed;   /**< dimensions that are walked over */
    bool is_done;
} ech_ckpt_overlap;

/** Start a walk; both ranges are of the same tensor. */
void ech_ckpt_overlap_start(ech_ckpt_overlap *o, const ech_ckpt_range *a, const ech_ckpt_range *b);

/** Next common run, ascending in both; false at the end. */
bool ech_ckpt_overlap_next(ech_ckpt_overlap *o, ech_ckpt_run *out);

/** Elements that two ranges of a tensor have in common. */
int64_t ech_ckpt_overlap_count(const ech_ckpt_range *a, const ech_ckpt_range *b);

#endif
