/** @file plan/goal.h
 *  What a step's time means for the whole run: days, GPU-hours, money, energy to a number of tokens,
 *  and what failures take away.
 *  Sources: Young 1974, doi:10.1145/361147.361115; Daly 2006, doi:10.1016/j.future.2004.11.016.
 *  Pure; local. */
#ifndef ECH_PLAN_GOAL_H
#define ECH_PLAN_GOAL_H

#include "price/derive.h"    /* ech_derivation */
#include "price/footprint.h" /* ech_footprint */
#include "price/step.h"      /* ech_step_price */

/** Failures and checkpoints. */
typedef struct ech_goodput {
    double checkpoint_bytes; /**< of one, whole */
    double blocked_s;        /**< training stands for so long at a save, C */
    double drain_s;          /**< until it is written */
    double mtbf_s;           /**< of the whole cluster, M */
    double restart_s;        /**< detection, restart, reload, R */
    double young_s, daly_s;  /**< intervals */
    double
        interval_s; /**< to use: sqrt of the recovery-aware objective, at least drain_s and a step */
    double lost;    /**< fraction of time: C/T + (T/2 + R)/M */
    double goodput; /**< 1 - lost */
} ech_goodput;

/** A run to its goal. */
typedef struct ech_goal_cost {
    double steps, days, gpu_hours, dollars, megawatt_hours; /**< with failures */
    double ideal_days;
    ech_goodput goodput;
} ech_goal_cost;

/** Bytes of a whole checkpoint: weights, master and moments of every parameter; what a job with frozen
 *  parts saves is less. */
double ech_checkpoint_bytes(const ech_job *job);

/** The interval between checkpoints that loses least, recovery in the objective:
 *  C + sqrt(2 (M + R) C + C^2) (C blocked_s, R restart_s, M mtbf_s). */
double ech_goodput_interval(double blocked_s, double restart_s, double mtbf_s);

/** Fraction of time lost with a checkpoint every interval_s: C / T + (T / 2 + R) / M, at most 1. */
double ech_goodput_lost(double interval_s, double blocked_s, double restart_s, double mtbf_s);

/** Of a candidate.
 *  @param job    borrowed
 *  @param point  borrowed
 *  @param step   borrowed
 *  @param notes  NULL: none
 *  @param out    set; zero tokens: days and what follows are NaN */
void ech_goal_of(const ech_job *job, const ech_point *point, const ech_step_price *step,
                 ech_derivation *notes, ech_goal_cost *out);

#endif
