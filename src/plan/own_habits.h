/** @file plan/own_habits.h
 *  What an Echelon run is compiled with beside its job and layout.  Plain values; local. */
#ifndef ECH_PLAN_OWN_HABITS_H
#define ECH_PLAN_OWN_HABITS_H

#include "base/dtype.h" /* ech_dtype */

#include <stdbool.h>
#include <stdint.h>

/** What else a run is compiled with that neither job nor point say, as the configuration names it
 *  (docs/config.md) and with its defaults. */
typedef struct ech_own_habits {
    int64_t bucket_bytes; /**< layout.zero.bucket_mb */
    int prefetch;         /**< layout.zero.prefetch */
    bool keeps_inputs;    /**< layout.sequence_parallel_inputs: keep */
    ech_dtype real;       /**< precision.compute: fp32 or fp64 */
    int schedule_group;   /**< layout.schedule_group; 0: pp */
    double weight_decay, clip;
    int threads; /**< of a rank, for the simulation; 0: as measured */
} ech_own_habits;

/** The configuration's defaults. */
ech_own_habits ech_own_habits_default(void);

#endif
