/** @file train/auto_layout.h
 *  `layout: auto`: the layout of a run found by the planner, among those that the engine executes.
 *
 *  Keys of layout that are given, and batch.micro, are pins; the others are searched with the exact
 *  memory of the programs, and times of the simulation where the machine has been measured (else of
 *  closed forms for a node of processors, which then only have to rank layouts).  The same question
 *  has the same answer on every rank.
 *
 *  A run that may go on from checkpoints keeps the layout of its record (run.dir/run.json), as long as
 *  ranks, model, batch and pins are the same.  Local. */
#ifndef ECH_TRAIN_AUTO_LAYOUT_H
#define ECH_TRAIN_AUTO_LAYOUT_H

#include "plan/own_habits.h" /* ech_own_habits */
#include "price/cost.h"      /* ech_calibration */
#include "train/config.h"    /* ech_config */

/** What is known beside the configuration. */
typedef struct ech_auto_spec {
    int ranks;                          /**< of the run, >= 1 */
    const ech_calibration *calibration; /**< borrowed; NULL: not measured */
    const char *calibration_name;       /**< borrowed: its file */
    double memory_bytes; /**< that a rank can have where memory.device does not say; 0: any */
    const char *resume;  /**< as train's --resume says, borrowed */
} ech_auto_spec;

/** What a configuration says that a job and a layout do not. */
ech_own_habits ech_auto_habits(const ech_config *cfg);

/** Choose.  Nothing happens where layout is not auto.
 *  @param cfg    in/out: loaded; its layout, batch.micro and layout.is_chosen are set on success
 *  @param spec   borrowed
 *  @param words  appended to: what was chosen and why, one line; owned by the caller
 *  @return ECH_OK
 *        | ECH_E_INFEASIBLE  no layout of so many ranks is legal or fits, with reasons
 *        | ECH_E_CONFIG      a pin that no search can take, or pins that contradict
 *        | ECH_E_NOMEM | as ech_own_answer */
ECH_MUST_USE ech_status ech_auto_choose(ech_config *cfg, const ech_auto_spec *spec,
                                        ech_text *words);

#endif
