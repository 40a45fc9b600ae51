/** @file plan/cure_changes.h
 *  The changes that cures are made of: each applies itself to a job and its layout, and says how it is
 *  typed.  Pure; local. */
#ifndef ECH_PLAN_CURE_CHANGES_H
#define ECH_PLAN_CURE_CHANGES_H

#include "plan/cures.h" /* ech_cure */

/** Kinds of changes: two of one kind are never taken together.  From LOSS on, and with GPUS, the job
 *  is another one; between them only the layout is. */
typedef enum ech_change_kind {
    ECH_CHANGE_GPUS,
    ECH_CHANGE_ZERO,
    ECH_CHANGE_GROUP,
    ECH_CHANGE_RESHARD,
    ECH_CHANGE_REDUCE,
    ECH_CHANGE_RECOMPUTE,
    ECH_CHANGE_MICRO,
    ECH_CHANGE_TP,
    ECH_CHANGE_SP,
    ECH_CHANGE_PP,
    ECH_CHANGE_STAGES,
    ECH_CHANGE_CP,
    ECH_CHANGE_EP,
    ECH_CHANGE_OFFLOAD_OPTIMIZER,
    ECH_CHANGE_OFFLOAD_PARAMS,
    ECH_CHANGE_OFFLOAD_ACTIVATIONS,
    ECH_CHANGE_LOSS,
    ECH_CHANGE_UPDATE,
    ECH_CHANGE_SAVE,
    ECH_CHANGE_TURNS,
    ECH_CHANGE_LOAD,
    ECH_CHANGE_BUFFERS,
    ECH_CHANGE_OPTIMIZER,
    ECH_CHANGE_TUNING
} ech_change_kind;

/** A layout with changes in it. */
typedef struct ech_trial {
    ech_cure cure; /**< change: each begins with a blank */
    bool is_full;  /**< no room for its words */
} ech_trial;

/** A change. */
typedef struct ech_change {
    bool (*apply)(ech_trial *t, int64_t value); /**< @return is there anything new */
    int64_t value;
    ech_change_kind kind;
    ech_cure_cost cost;
    const char *gloss; /**< in words; static storage */
} ech_change;

/** All of them, in the order in which two are applied: GPUs first, then what takes ranks of them;
 *  static storage. */
const ech_change *ech_changes(int *n);

/** Is the job another one after it. */
bool ech_change_is_of_job(const ech_change *c);

#endif
