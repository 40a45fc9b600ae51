/** @file plan/own.h
 *  Echelon's own answer about a job of its own: not from formulas but read off the programs that its
 *  engine would run, compiled for this job and layout.  Memory and traffic are those of `check` and
 *  `train`, byte for byte; time is that of the simulation where the machine has been measured.
 *
 *  What the engine does not execute yet (ech_point_is_executable) stays with the formulas, and
 *  `marked` says why.  Pure but for the memory it takes; local. */
#ifndef ECH_PLAN_OWN_H
#define ECH_PLAN_OWN_H

#include "plan/own_habits.h" /* ech_own_habits */
#include "plan/search.h"     /* ech_plan */
#include "price/cost.h"      /* ech_calibration */
#include "price/footprint.h" /* ech_footprint */
#include "price/predict.h"   /* ech_prediction */
#include "price/step.h"      /* ech_step_price */
#include "program/compile.h" /* ech_run */

/** A simulated step's time line with the programs that it borrows.  Zero-initialise. */
typedef struct ech_own_line {
    ech_timeline line;
    ech_run run; /**< owned */
} ech_own_line;

/** Release and zero. */
void ech_own_line_fini(ech_own_line *l);

/** What is asked. */
typedef struct ech_own_spec {
    const ech_job *job;                 /**< borrowed */
    const ech_point *point;             /**< borrowed, legal */
    const ech_own_habits *habits;       /**< borrowed; NULL: the defaults */
    const ech_calibration *calibration; /**< borrowed; NULL: the machine has not been measured */
    bool
        is_sketch; /**< for searches: arenas are not packed, so what must fit is told as what lives,
                         some thousandths too small */
    ech_own_line *line; /**< out, borrowed, the caller's to release: set where the answer is timed;
                             NULL: not wanted */
} ech_own_spec;

/** The answer.  Some 40 KiB. */
typedef struct ech_own {
    bool is_exact;    /**< all below but `memory` is set */
    char marked[512]; /**< why it is not; "" where it is */
    ech_footprint
        memory; /**< always: else from the formulas.  Its `marked` points into this struct:
                               do not copy one without the other */
    ech_prediction predicted; /**< of the rank with most memory, as check tells it; step_s is NaN
                                   without calibration */
    int fullest_rank;
    bool is_timed; /**< simulated: `sums` is set, and predicted.step_s */
    ech_step_sums sums;
    double recompute_flops, flops; /**< of all ranks and a step */
    double compile_s;
} ech_own;

/** Answer.  Takes milliseconds: programs are placed, not proved.
 *  @param spec   borrowed
 *  @param notes  NULL: none
 *  @param out    set on success
 *  @return ECH_OK, also where it is not exact
 *        | ECH_E_CONFIG  the calibration does not cover the programs
 *        | ECH_E_NOMEM | as ech_simulate */
ECH_MUST_USE ech_status ech_own_answer(const ech_own_spec *spec, ech_derivation *notes,
                                       ech_own *out);

/** Put what the programs say into a step's price: traffic always, times where it is timed.
 *  @param own    exact, borrowed
 *  @param step   in/out: from the formulas before */
void ech_own_price(const ech_own *own, ech_step_price *step);

enum { ECH_OWN_TOP = 10 /**< best layouts that are asked for where nobody says how many */ };

/** How layouts are looked at. */
typedef struct ech_own_ask {
    const ech_calibration *calibration; /**< borrowed; NULL: none */
    const ech_own_habits *habits;       /**< borrowed; NULL: the defaults */
} ech_own_ask;

/** The best layouts of a job, where it is one for Echelon on processors by their programs.
 *
 *  Where the machine has been measured formulas choose, for every mesh (tp, pp, dp) and schedule, the few
 *  fastest; their programs are compiled and simulated, and they are put in order of those times, without
 *  those that do not fit: so formulas never have to compare what they know least about.  Where it has
 *  not, times are the formulas', and of the fastest layouts those stay whose programs fit.
 *  Where no layout that the engine executes fits, and for every other job, it is ech_plan_search's own
 *  answer: its candidates are not is_exact.  The front is the formulas', priced by programs, and the
 *  best; neighbours likewise, left out where programs have another winner.  Counts are the formulas'.
 *  @param spec  borrowed
 *  @param how   borrowed
 *  @param plan  set on success
 *  @return as ech_plan_search | as ech_own_answer */
ECH_MUST_USE ech_status ech_own_search(const ech_search_spec *spec, const ech_own_ask *how,
                                       ech_plan *plan);

#endif
