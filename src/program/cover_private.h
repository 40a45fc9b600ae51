/** @file program/cover_private.h
 *  Cover from inside: what bytes are elements of, and the visits that follow them.  Internal to
 *  program/: the files of cover. */
#ifndef ECH_PROGRAM_COVER_PRIVATE_H
#define ECH_PROGRAM_COVER_PRIVATE_H

#include "program/cover.h"
#include "program/interval.h"   /* ech_interval_map */
#include "program/prove_mesh.h" /* ech_mesh */
#include "program/repeat.h"     /* ech_rounds_memory */

enum { ECH_NO_MARK = -1 };

/** What bytes are elements of.  UNNAMED: gathered from bytes of which nothing is known yet; the
 *  block that reads them tells. */
typedef enum ech_matter {
    ECH_WEIGHT,
    ECH_GRADIENT,
    ECH_MOMENT_1,
    ECH_MOMENT_2,
    ECH_UNNAMED
} ech_matter;

/** On dp coordinate c, the element that begins at byte x of its slot is element
 *  x / size - origin + step * c of `of`. */
typedef struct ech_mark {
    ech_matter matter;
    int of; /**< unit * ECH_N_PARTS + part; UNNAMED: a gather; ECH_NO_MARK: nothing is known */
    int64_t origin, step;
} ech_mark;

/** Bytes of an operand over all ranks, and where its elements begin on coordinate 0. */
typedef struct ech_span {
    int slot; /**< -1: none */
    size_t begin, end;
    int64_t first, elems; /**< elements */
    int64_t shift;        /**< elements from one dp coordinate to the next */
} ech_span;

/** A gather of bytes of which nothing was known. */
typedef struct ech_gathered {
    ech_span from, to; /**< share, whole */
    ech_mark named;    /**< what the whole is, of ECH_NO_MARK until a block tells */
} ech_gathered;

/** What elements of a part are counted for. */
typedef enum ech_count_kind { ECH_COUNT_UPDATE, ECH_COUNT_NORM } ech_count_kind;

/** Elements [begin, end) of a part, in an update or in the norm. */
typedef struct ech_counted {
    ech_count_kind kind;
    int of;
    int64_t begin, end;
    int item;
} ech_counted;

/** What the classes of a run have in common. */
typedef struct ech_cover_uses {
    int64_t *n_read, *n_written; /**< owned, as in ech_tracker */
    int64_t *more_read;          /**< owned, likewise: reads less writes in a round */
    bool is_wanted[2];           /**< as there */
} ech_cover_uses;

/** A run over a program. */
typedef struct ech_tracker {
    const ech_program *p;       /**< borrowed */
    const ech_shard_plan *plan; /**< borrowed */
    ech_mesh mesh;
    ech_interval_map *map; /**< owned, [n_slots]: value 0 is a mark, or ECH_NO_MARK */
    ech_mark *mark;        /**< owned */
    int n_marks;
    size_t mark_capacity;
    ech_gathered *gather; /**< owned */
    int n_gathers;
    size_t gather_capacity;
    ech_counted *counted; /**< owned */
    int n_counted;
    size_t counted_capacity;
    bool is_wanted[2]; /**< by kind: the run updates, has a norm */
    ech_mark *home;    /**< owned, [units * parts]: where weights stand */
    int *home_slot;    /**< owned, likewise */
    bool *is_copied;   /**< owned, [n_slots] holds a copy */
    int64_t *n_read; /**< borrowed, [canonical tensors] times that forward ops of the run read it */
    int64_t *n_written; /**< borrowed, likewise: times that its gradient is added to */
    bool *is_embedding; /**< owned, [n_blocks] outside layers: the embedding's, not the head's */
    bool *is_paired;    /**< owned, [n_blocks] weights and gradients of its ops were compared */
    int *last_input; /**< owned, [(units + 1) * (micro-batches + 1)]: input block run last, or -1 */
    int *input_before;        /**< owned, [n_items] of an input block: that of the same layer and
                             micro-batch run before it, or -1 */
    int64_t *more_read;       /**< borrowed, as n_read: reads less writes of the last round */
    ech_rounds_memory before; /**< rounds: what was known a round ago */
    int *inputs_before;       /**< owned, as last_input: a round ago */
    int item;                 /**< in work */
    const ech_op *op;         /**< in work */
    int64_t looked;
} ech_tracker;

/* --- cover_marks.c --- */

/** "weights of layer 2 (part cut)" into buf; returns buf. */
const char *ech_mark_name(const ech_tracker *t, const ech_mark *m, char *buf, size_t n);

/** Raise ECH_E_PROOF about an argument of the op in work. */
ech_status ech_cover_fault(const ech_tracker *t, int arg, const char *why);

/** Raise ECH_E_PROOF: the bytes are one thing and should be another. */
ech_status ech_cover_conflict(const ech_tracker *t, int arg, const ech_span *s, const ech_mark *is,
                              const ech_mark *wanted);

/** The same matter, part and elements. */
bool ech_mark_is_same(const ech_mark *a, const ech_mark *b);

/** Bytes of an argument; slot -1 where it is left out or unbound.  @return ECH_OK */
ECH_MUST_USE ech_status ech_span_of(const ech_tracker *t, int arg, ech_span *out);

/** The same for an argument whose elements have names: bound, whole elements, the same on all ranks
 *  but those of dp.  @return ECH_OK | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_span_named(const ech_tracker *t, int arg, ech_span *out);

/** The mark that all known bytes of a span share; of ECH_NO_MARK where there are none.
 *  @return ECH_OK | ECH_E_PROOF (two marks) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_mark_get(ech_tracker *t, int arg, const ech_span *s, ech_mark *out);

/** Set it, whatever was known.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_mark_put(ech_tracker *t, const ech_span *s, const ech_mark *m);

/** Set it where nothing was known; bytes that a gather brought name their source too.
 *  @return ECH_OK | ECH_E_PROOF (they are something else) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_mark_claim(ech_tracker *t, int arg, const ech_span *s,
                                       const ech_mark *m);

/** The plan's unit that stands for unit `unit` of the model. */
const ech_shard_unit *ech_cover_unit(const ech_tracker *t, int unit);

/** Position of a span's first element in its part at a dp coordinate. */
int64_t ech_mark_position(const ech_span *s, const ech_mark *m, int coord);

/** Is a part what another class holds too and measures. */
bool ech_cover_is_copy(const ech_tracker *t, int of);

/** Slots of state say exactly where they are copies'; slot -1 passes.
 *  @return ECH_OK | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_cover_check_copy(ech_tracker *t, int arg, const ech_span *s, int of);

/** Blocks of the model take the residual stream, and its gradient, of the block before and after them
 *  in the model, of their micro-batch; messages bring another class what it takes them for
 *  (cover_stream.c).  @return ECH_OK | ECH_E_PROOF | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cover_check_streams(const ech_cover_spec *spec, int64_t *looked);

/** Follow one program; what it uses is added to `uses` (cover.c).
 *  @return ECH_OK | ECH_E_PROOF | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cover_check_class(const ech_program *p, const ech_shard_plan *plan,
                                              ech_cover_uses *uses, int64_t *looked);

/* --- the op in work --- */

/** An op of a block of the model (cover_model.c).  @return ECH_OK | ECH_E_PROOF | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cover_visit_model(ech_tracker *t);

/** Weights and gradients of a block's ops are the same tensors: once a block (cover_model.c).
 *  @return ECH_OK | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_cover_check_pairs(ech_tracker *t, const ech_block *b);

/** Of the item in work, where its backward is split: an input block is noted; in a weight block
 *  each gradient of a linear layer is of the tensor through which an input block of the same layer and
 *  micro-batch took the same bytes on (cover_model.c).  @return ECH_OK | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_cover_check_split(ech_tracker *t);

/** Any other op (cover_state.c).  @return ECH_OK | ECH_E_PROOF | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cover_visit_state(ech_tracker *t);

/** Nothing is known any more of what the op writes, weights and gradients apart (cover_model.c).
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cover_forget(ech_tracker *t);

#endif
