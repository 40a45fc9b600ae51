/** @file storage/ckpt_hold.h
 *  What a rank holds of the model in terms of a checkpoint: the shard plan (layout/shard.h)
 *  translated to boxes of the tensors that are saved.
 *
 *  A saved tensor is a canonical one without its vocabulary padding: those rows are zero whatever
 *  the run, so they are checked when saving, not written, and zero again after loading.  The same
 *  goes for what a cut holds beyond a tensor's end and for the padding of flat ranges.
 *
 *  Pure arithmetic but for ech_ckpt_tensors_create; local. */
#ifndef ECH_STORAGE_CKPT_HOLD_H
#define ECH_STORAGE_CKPT_HOLD_H

#include "base/status.h"      /* ech_status */
#include "layout/shard.h"     /* ech_shard_plan */
#include "storage/ckpt_box.h" /* ech_ckpt_box */

enum { ECH_CKPT_NAME_MAX = 127 /**< bytes of a tensor's name */ };

/** A saved tensor. */
typedef struct ech_ckpt_tensor {
    char name[ECH_CKPT_NAME_MAX + 1]; /**< canonical */
    int rank;
    int64_t dim[ECH_CKPT_RANK_MAX];
    int64_t elems;
} ech_ckpt_tensor;

/** The saved tensors of a model, in the order of ech_canon.param.
 *  @param model  of the canon: tells the rows of the vocabulary
 *  @param canon  canonical tensors
 *  @param out    [canon->n_params], owned by the caller, free()
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_ckpt_tensors_create(const ech_model *model, const ech_canon *canon,
                                                ech_ckpt_tensor **out);

/** A box that a rank holds, and where its elements lie in the rank's local tensor: `rows` runs of
 *  `row` elements, `pitch` apart, the first at element `local`. */
typedef struct ech_ckpt_hold {
    ech_ckpt_box box; /**< may be empty */
    int64_t local, rows, row, pitch;
    bool is_first; /**< no rank of a lower tp coordinate holds it too */
} ech_ckpt_hold;

/** Boxes of a tensor that every rank holds. */
int64_t ech_ckpt_hold_count(const ech_shard_plan *plan, const ech_shard_param *p);

/** Box i of the rank at a tp coordinate; they ascend by local place.
 *  @param plan      the plan
 *  @param p         a tensor of it
 *  @param saved     the saved tensor of that kind
 *  @param tp_coord  0 .. plan->tp - 1
 *  @param i         0 .. ech_ckpt_hold_count - 1 */
ech_ckpt_hold ech_ckpt_hold_get(const ech_shard_plan *plan, const ech_shard_param *p,
                                const ech_ckpt_tensor *saved, int tp_coord, int64_t i);

/** How many of the box's elements lie before element `local` of the local tensor. */
int64_t ech_ckpt_hold_before(const ech_ckpt_hold *h, int64_t local);

/** Local place of the box's element i. */
int64_t ech_ckpt_hold_place(const ech_ckpt_hold *h, int64_t i);

/** A flat range of one part of one unit of a rank's local model: the unit in which state lies in
 *  memory, whatever the layout. */
typedef struct ech_ckpt_span {
    const ech_shard_plan *plan; /**< borrowed */
    int tp_coord;
    int unit; /**< of the model: 0 embedding, 1 + layer, the last: head */
    ech_part part;
    int64_t first, n; /**< elements [first, first + n) of the part */
} ech_ckpt_span;

/** What a span holds of one tensor. */
typedef struct ech_ckpt_slice {
    const ech_shard_param *p;
    int tensor;         /**< index in ech_canon.param, of the span's own layer */
    int64_t begin, end; /**< local elements of the tensor */
    int64_t shift; /**< local element of the tensor that is element 0 of the span; may be < 0 */
} ech_ckpt_slice;

/** Is there an i-th tensor in the span's unit, and what of it lies in the span?  begin == end where
 *  nothing does. */
bool ech_ckpt_span_slice(const ech_ckpt_span *s, int i, ech_ckpt_slice *out);

/** Elements of the part that belong to tensors; behind them is padding. */
int64_t ech_ckpt_span_used(const ech_ckpt_span *s);

#endif
