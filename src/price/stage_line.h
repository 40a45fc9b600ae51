/** @file price/stage_line.h
 *  The time line of a pipeline from the times of its stages: one rank of each stage, which stands for
 *  all its replicas.
 *
 *  The schedule's table (program/schedule.h) is run against the stages' times; gradients are reduced
 *  and weights updated behind it.  Its programs have blocks without ops: enough for a picture or a
 *  trace, not to be run.  Pure; local. */
#ifndef ECH_PRICE_STAGE_LINE_H
#define ECH_PRICE_STAGE_LINE_H

#include "price/step.h"       /* ech_pricer */
#include "price/timeline.h"   /* ech_timeline */
#include "program/schedule.h" /* ech_schedule_kind */

/** What is drawn. */
typedef struct ech_stage_line_spec {
    ech_schedule_kind kind; /**< not FILE */
    int ranks, chunks;      /**< p, v */
    int micros;             /**< m */
    const double *forward;  /**< [p v] borrowed: seconds of a micro-batch */
    const double *backward; /**< [p v] borrowed: of a backward less `weight` */
    const double *weight;   /**< [p v] borrowed: of gradients of weights, where the schedule tells
                                 them apart; NULL: backward is the whole, and halves of it are
                                 taken where they are asked for */
    double hop_s;           /**< from stage to stage */
    double reduce_s;        /**< behind the last backward: what of the reductions nothing hides */
    double update_s;        /**< then: the update, and a step's fixed costs */
} ech_stage_line_spec;

enum { ECH_STAGE_LINE_CELLS = 1 << 18 /**< of a table that is drawn, at most */ };

/** A time line with the programs that it borrows.  Zero-initialise. */
typedef struct ech_stage_line {
    ech_timeline line;           /**< world: pipeline ranks */
    ech_program *program;        /**< owned [ranks] */
    const ech_program **of_rank; /**< owned [ranks] */
    int *class_of;               /**< owned [ranks] */
    int ranks;
    int64_t cells;     /**< of the table */
    double makespan_s; /**< of the table alone */
    double bubble;     /**< idle share of it */
} ech_stage_line;

/** Make one.  Takes O(cells).
 *  @param spec  borrowed
 *  @param out   owned by the caller, set on success
 *  @return ECH_OK | ECH_E_ILLEGAL (the schedule takes no such number of micro-batches)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_stage_line_make(const ech_stage_line_spec *spec, ech_stage_line *out);

/** Of a priced layout: its schedule's table against the times of its stages.  Exposed parts of sharded
 *  weights (stage 3) lie in the stages; what is reduced otherwise comes behind them.  A table of more
 *  than ECH_STAGE_LINE_CELLS is not drawn: `cells` tells how many, `ranks` is 0 and all else empty.
 *  @param job     borrowed
 *  @param pricer  in/out (its cache), of job
 *  @param point   legal, borrowed
 *  @param step    its price, borrowed
 *  @param out     owned by the caller, set on success
 *  @return as ech_stage_line_make */
ECH_MUST_USE ech_status ech_stage_line_of(const ech_job *job, ech_pricer *pricer,
                                          const ech_point *point, const ech_step_price *step,
                                          ech_stage_line *out);

/** Release and zero. */
void ech_stage_line_fini(ech_stage_line *s);

#endif
