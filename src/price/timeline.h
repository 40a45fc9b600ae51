/** @file price/timeline.h
 *  What ranks did when, simulated or measured: bars on lanes.  One form for both, so that they can
 *  be drawn side by side (report/trace.h) and compared.  Pure values. */
#ifndef ECH_PRICE_TIMELINE_H
#define ECH_PRICE_TIMELINE_H

#include "layout/layout.h"   /* ech_axis */
#include "program/program.h" /* ech_program */

/** Where a bar lies. */
typedef enum ech_lane {
    ECH_LANE_COMPUTE, /**< kernels */
    ECH_LANE_WAIT,    /**< the rank stands at a wait: exposed communication, or a bubble */
    ECH_LANE_COMM     /**< a message or collective from its start to its end, under what computes */
} ech_lane;

/** One bar. */
typedef struct ech_bar {
    int rank;
    ech_lane lane;
    ech_axis axis; /**< WAIT, COMM: over which */
    int item,
        op; /**< in the rank's program; op: COMM the start, WAIT the wait; COMPUTE: -1, the whole item */
    double begin_s, end_s; /**< from the step's begin */
} ech_bar;

/** Bars of one step, in order of begin within a rank. */
typedef struct ech_timeline {
    const ech_program *const *program; /**< borrowed [n_classes] */
    const int *class_of;               /**< borrowed [world]; NULL: all of class 0 */
    int world;
    ech_bar *bar; /**< owned */
    size_t n, capacity;
    double step_s;
    size_t lost;    /**< bars that there was no room for */
    char note[256]; /**< on how it came to be and what its clock was, for documents; "": nothing */
} ech_timeline;

/** Release the bars and zero. */
void ech_timeline_fini(ech_timeline *t);

/** The program of a rank. */
const ech_program *ech_timeline_program(const ech_timeline *t, int rank);

#endif
