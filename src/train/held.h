/** @file train/held.h
 *  What a rank holds of the model's canonical tensors (parameters, gradients, moments), and where:
 *  the one way from canonical elements to memory, for initialisation, weights from files,
 *  checkpoints, dumps and comparisons.  Local. */
#ifndef ECH_TRAIN_HELD_H
#define ECH_TRAIN_HELD_H

#include "engine/engine.h"   /* ech_engine */
#include "program/compile.h" /* ech_run_slots, ech_state_form */

/** Classes of values, one for each parameter. */
typedef enum ech_held_class {
    ECH_HELD_PARAMS,
    ECH_HELD_GRADS, /**< of the last step, after all sums, times loss_scale, before clipping */
    ECH_HELD_M,     /**< first moments */
    ECH_HELD_V,     /**< second moments */
    ECH_N_HELD
} ech_held_class;

/** "params", "grads", "m", "v"; static storage. */
const char *ech_held_class_name(ech_held_class what);

/** A rank's state.  A value; everything is borrowed. */
typedef struct ech_held {
    const ech_canon *canon;
    const ech_shard_plan *plan;
    const ech_layout *layout;
    const ech_run_slots *slots;
    ech_state_form form;
    ech_dtype real;
    int rank;
    ech_engine *engine; /**< NULL: data of runs is NULL (another process's rank) */
} ech_held;

/** Elements of a canonical tensor that lie together. */
typedef struct ech_held_run {
    const ech_param *param;
    int64_t first; /**< in the tensor */
    int64_t elems;
    void *data;    /**< REAL [elems], borrowed */
    bool is_first; /**< no other run, of this or another rank, with is_first holds these elements */
} ech_held_run;

/** What is done with a run; below 0 stops the visit. */
typedef ech_status (*ech_held_visit)(void *user, const ech_held_run *run);

/** Visit every run that the rank holds of a class, in the order of the model's units.  Storage
 *  padding is nobody's element.  Where the run has no such class (no moments under SGD), nothing is
 *  visited.
 *  @param h      borrowed
 *  @param what   class
 *  @param visit  returns below 0 to stop
 *  @param user   handed to visit
 *  @return ECH_OK | what visit returned */
ECH_MUST_USE ech_status ech_held_each(const ech_held *h, ech_held_class what, ech_held_visit visit,
                                      void *user);

/** The flat range of a part of a unit that a rank holds of a class: how its memory lies. */
typedef struct ech_held_range {
    int64_t first, n; /**< elements [first, first + n) of the part, padding included */
    void *data;       /**< REAL [n], borrowed */
    bool is_own;      /**< other ranks of dp hold other ranges; else they hold the same */
} ech_held_range;

/** @param h     borrowed
 *  @param what  class
 *  @param unit  of the model
 *  @param part  of it
 *  @param out   set where true is returned
 *  @return false: the run has no such class, or the unit no such part */
bool ech_held_range_get(const ech_held *h, ech_held_class what, int unit, ech_part part,
                        ech_held_range *out);

/** Take the elements it holds from a whole model in canonical order, [canon elems] of its type. */
void ech_held_take(const ech_held *h, ech_held_class what, const void *canonical);

/** Take the elements of one unit from its values, [elems of the unit]. */
void ech_held_take_unit(const ech_held *h, ech_held_class what, int unit, const void *values);

/** Put the elements it holds into one; others are left. */
void ech_held_put(const ech_held *h, ech_held_class what, void *canonical);

/** Set everything it holds of a class, padding included, to zero. */
void ech_held_clear(const ech_held *h, ech_held_class what);

/** Bytes of the runs that are first: what this rank hands on of a class. */
size_t ech_held_first_bytes(const ech_held *h, ech_held_class what);

#endif
