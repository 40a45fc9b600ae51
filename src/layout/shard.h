/** @file layout/shard.h
 *  Which elements of the canonical tensors (catalog/canon.h) a rank holds, and where.
 *
 *  Over tp a tensor is cut or held whole.  A rank's share of a unit is its *local unit*: its tensors
 *  one after the other, in up to three parts that differ in how their gradients come out over tp.
 *  Over dp, where ZeRO or FSDP shard state, every part of a unit is dealt out in flat ranges of
 *  equal length (Rajbhandari et al. 2020, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277).
 *
 *  Cuts are ceil(n / tp) long; what a rank holds beyond the end is padding: zero, and it stays
 *  zero, since its gradient is.  Parts are padded likewise to whole flat ranges.  So every rank has
 *  the same shapes, and no tp is refused for a vocabulary or a width that it does not divide.
 *
 *  Heads: a rank has a / tp query heads.  Where they do not come in whole groups of the r that
 *  share a key/value head, groups are made smaller: gcd(a / tp, r) query heads with a copy of their
 *  key and value.  Each key/value head then has `copies` of them, in neighbouring groups; they are
 *  all within ech_axis KV's runs of tp ranks, and their gradients are summed there.
 *
 *  Pure arithmetic; every call is local. */
#ifndef ECH_LAYOUT_SHARD_H
#define ECH_LAYOUT_SHARD_H

#include "catalog/canon.h" /* canonical tensors */
#include "layout/layout.h" /* degrees */
#include "layout/stages.h" /* ech_stages */

/** How a tensor is cut over tp. */
typedef enum ech_cut {
    ECH_CUT_NONE,    /**< every rank holds all of it */
    ECH_CUT_ROWS,    /**< runs of the first dimension: vocabulary, ffn */
    ECH_CUT_COLUMNS, /**< runs of the last dimension: inputs of row-parallel matrices */
    ECH_CUT_GATE_UP, /**< the same run of gate and of up, [2, F, H] */
    ECH_CUT_HEADS    /**< head groups with their key/value heads, [g, r + 2, ...] */
} ech_cut;

/** Parts of a local unit, in the order in which they lie. */
typedef enum ech_part {
    ECH_PART_CUT, /**< cut over tp (with one rank: everything); a gradient is its own rank's */
    ECH_PART_SUMMED, /**< whole over tp; a gradient is a partial sum: norms under sequence parallelism */
    ECH_PART_WHOLE, /**< whole over tp, and so is a gradient */
    ECH_PART_TIED, /**< cut over tp; held by first and last stage, a gradient is a partial sum there */
    ECH_N_PARTS
} ech_part;

/** Head groups of a rank. */
typedef struct ech_head_split {
    int64_t groups;    /**< of a rank */
    int64_t per_group; /**< query heads of one */
    int copies;        /**< groups that hold the same key/value head; neighbours */
} ech_head_split;

/** One tensor of a local unit. */
typedef struct ech_shard_param {
    int param; /**< index in canon->param of this kind in the unit (of layer 0 for layers) */
    ech_cut cut;
    ech_part part;
    int rank;
    int64_t dim[4]; /**< local, padding included */
    int64_t elems;
    int64_t offset; /**< elements from the start of its part */
    bool is_copy;   /**< the token table in the head's unit: the embedding's rank holds it too */
} ech_shard_param;

/** One part of a unit. */
typedef struct ech_shard_part {
    int64_t elems;   /**< of a rank, a multiple of the shards; 0: the unit has no such part */
    int64_t decayed; /**< the first so many take weight decay */
    int64_t shard;   /**< elements of one flat range: elems / shards */
} ech_shard_part;

/** The local unit of a kind: embedding, layer or head. */
typedef struct ech_shard_unit {
    ech_shard_part part[ECH_N_PARTS];
    int first, n; /**< its tensors in ech_shard_plan.param */
} ech_shard_unit;

/** Units [first, end) of the model. */
typedef struct ech_unit_range {
    int first, end;
} ech_unit_range;

/** How a model is dealt out: what a rank of a pipeline rank holds.  Read only. */
typedef struct ech_shard_plan {
    const ech_canon *canon;               /**< borrowed */
    ech_unit_range range[ECH_MAX_CHUNKS]; /**< of units that it holds, ascending, apart */
    int n_ranges;
    bool
        is_tied_apart; /**< the token table is its own part, of the embedding's unit and, as a copy, of the head's */
    int tp, shards; /**< flat ranges of a part: the degree of dp, or 1 */
    ech_head_split heads;
    ech_shard_unit unit[ECH_N_UNIT_KINDS];
    ech_shard_param param[ECH_N_PARAM_KINDS + 1];
    int n_params;
    int64_t elems[ECH_N_PARTS]; /**< of all units that it holds: a rank's local model */
} ech_shard_plan;

/** What a plan depends on. */
typedef struct ech_shard_spec {
    const ech_model *model; /**< borrowed */
    const ech_canon *canon; /**< borrowed: outlives the plan */
    int tp;
    bool is_sequence_parallel;
    int shards;               /**< flat ranges; 1: state is not sharded over dp */
    const ech_stages *stages; /**< borrowed; NULL: one rank holds all units */
    int stage_rank;           /**< pipeline rank whose units are planned */
} ech_shard_spec;

/** Head groups over tp, which must divide the query heads. */
ech_head_split ech_shard_heads(int64_t heads, int64_t kv_heads, int tp);

/** Make a plan.  @return ECH_OK | ECH_E_ILLEGAL (tp does not divide the heads) */
ECH_MUST_USE ech_status ech_shard_plan_make(const ech_shard_spec *spec, ech_shard_plan *out);

/** The local unit that stands for unit u of the model. */
const ech_shard_unit *ech_shard_unit_of(const ech_shard_plan *plan, int u);

/** Units that it holds. */
int ech_shard_unit_count(const ech_shard_plan *plan);

/** The i-th of them, ascending. */
int ech_shard_unit_at(const ech_shard_plan *plan, int i);

/** Does it hold unit u. */
bool ech_shard_has_unit(const ech_shard_plan *plan, int u);

/** Elements of a part of all held units before u: where u's begins in the slab of that part. */
int64_t ech_shard_unit_offset(const ech_shard_plan *plan, int u, ech_part part);

/** Tensor of a kind, or NULL where the model has none. */
const ech_shard_param *ech_shard_find(const ech_shard_plan *plan, ech_param_kind kind);

/** A run of elements that lie together in the canonical tensor and in the local one. */
typedef struct ech_shard_run {
    int64_t canonical; /**< from the start of the canonical tensor */
    int64_t local;     /**< from the start of the local one */
    int64_t elems;
    bool is_first; /**< no rank of a lower tp coordinate, and no earlier run, holds them too */
} ech_shard_run;

/** Runs of a tensor, at most; one may be empty. */
int64_t ech_shard_run_count(const ech_shard_plan *plan, const ech_shard_param *p);

/** Run i of the rank at a tp coordinate, ascending by local place. */
ech_shard_run ech_shard_run_get(const ech_shard_plan *plan, const ech_shard_param *p, int tp_coord,
                                int64_t i);

#endif
