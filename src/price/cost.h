/** @file price/cost.h
 *  What ops take on a machine that has been measured: a calibration, its file, and the costs it
 *  gives to price/simulate.h.
 *
 *  Each op kind has a grid of measured seconds over what its time depends on:
 *
 *      linear, linear_dgrad, linear_wgrad       rows, inputs, outputs
 *      attention, attention_backward            seq, head_dim: a token of one head
 *      starts of messages and collectives       bytes: what two members send each other one way
 *      the others                               bytes: read and written
 *
 *  Between points, seconds are interpolated as powers (straight lines in logarithms, axis by axis),
 *  so a measured point is met exactly and what lies between two points lies between their seconds.
 *  Below the first point of an axis seconds stay (a call costs what it costs), above the last they
 *  grow in proportion.
 *
 *  All of it is measured under the load that training has: as many ranks at the same time as the
 *  file says.  Pure; local. */
#ifndef ECH_PRICE_COST_H
#define ECH_PRICE_COST_H

#include "base/text.h"      /* ech_text */
#include "price/simulate.h" /* ech_costs */

/** Room of a grid. */
enum {
    ECH_GRID_AXES = 3,
    ECH_GRID_POINTS = 12, /**< of an axis */
    ECH_GRID_VALUES = 256 /**< of all points together */
};

/** Seconds over up to three axes; n_axes 0: not measured. */
typedef struct ech_grid {
    int n_axes;
    int n[ECH_GRID_AXES];
    double at[ECH_GRID_AXES][ECH_GRID_POINTS]; /**< > 0, growing */
    double seconds[ECH_GRID_VALUES]; /**< > 0; [n[0], n[1], n[2]], the last axis fastest */
} ech_grid;

/** A measured machine.  Plain values, some 100 KiB. */
typedef struct ech_calibration {
    char echelon[16];   /**< version that measured */
    char date[24];      /**< of the last measurement, UTC */
    char host[64];      /**< where */
    char cpu[128];      /**< model name */
    char kernels[32];   /**< kernel set: cpu, ref */
    char transport[16]; /**< mpi, inproc, self; "": no messages measured */
    int ranks;          /**< that measured at the same time on the machine */
    int threads;        /**< of each */
    ech_dtype real;     /**< computed in */
    double op_s;        /**< the executor's own, each op; NaN: not measured */
    double
        comm_busy; /**< share of a message's time that occupies the processors of its ranks, 0..1:
                           that much cannot hide under kernels; NaN: not measured */
    double memory_bytes; /**< of the machine, as much as may be taken; NaN: not said */
    double
        in_step; /**< kernels of a whole step take so many times what they take in turn by themselves
                       (clocks sink, caches are others'); NaN: not measured, once */
    ech_grid cost[ECH_N_OPS];
} ech_calibration;

/** Names of the axes of a kind's grid into name; returns how many (0: the kind costs nothing by
 *  itself: waits). */
int ech_grid_axes_of(ech_op_kind kind, const char *name[ECH_GRID_AXES]);

/** Where an op lies on the axes of its kind's grid, and how many such pieces it is made of.
 *  @param op     at its bounds
 *  @param group  members of its group (messages), else 1
 *  @param at     out [n_axes]
 *  @return pieces: tokens times heads, peers of a group; 1 for most */
double ech_op_coordinates(const ech_op *op, int group, double at[ECH_GRID_AXES]);

/** Seconds at a place.
 *  @param g   n_axes >= 1
 *  @param at  [n_axes], 0 or more */
double ech_grid_seconds(const ech_grid *g, const double *at);

/** Nothing measured: NaN, "" and no grid.  @param out  set */
void ech_calibration_init(ech_calibration *out);

/** Read a file: YAML, of which JSON is a part.
 *  @param path  its name
 *  @param out   set on success only
 *  @return ECH_OK
 *        | ECH_E_CONFIG  with all findings, FILE:LINE: KEY: what is wrong
 *        | ECH_E_PARSE | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_calibration_read(const char *path, ech_calibration *out);

/** The same out of a text [bytes]; `name` of the file for findings. */
ECH_MUST_USE ech_status ech_calibration_parse(const char *text, size_t bytes, const char *name,
                                              ech_calibration *out);

/** Append the file's text; ech_calibration_parse gives the same values back, bit for bit. */
void ech_calibration_write(const ech_calibration *c, ech_text *out);

/** What a calibration is asked for. */
typedef struct ech_cost_query {
    const ech_program *const *program; /**< [n_classes] borrowed */
    int n_classes;
    int threads;    /**< of a rank; 0: as measured */
    ech_dtype real; /**< that the run computes in */
} ech_cost_query;

/** Can it price these programs: every kind they use is measured, in their type, with their threads.
 *  @return ECH_OK | ECH_E_CONFIG naming what is missing and how to measure it */
ECH_MUST_USE ech_status ech_calibration_check(const ech_calibration *c,
                                              const ech_cost_query *query);

/** The costs of a simulation; c is borrowed.  Only for programs that ech_calibration_check accepts.
 *  A kernel takes its grid's seconds times its pieces and op_s.  A message or collective in a group
 *  of G takes G - 1 times what a peer of the measured group took with as many bytes. */
ech_costs ech_calibration_costs(const ech_calibration *c);

#endif
