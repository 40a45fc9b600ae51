/** @file engine/explain.h
 *  Who waits for whom: from where all ranks stand (flight.h) and their programs, the one rank that
 *  everybody waits for, in one line.
 *
 *  A rank that stands in a wait waits for the members of the message's group that have not started
 *  the same message, counted in the order of their programs, so that ranks of other classes count
 *  too; where all have started it, for one that cannot move it on: stopped, dead, at a kernel.  From
 *  the rank that asks the way is followed to one that waits for nobody, or round in a circle.
 *  Pure; local. */
#ifndef ECH_ENGINE_EXPLAIN_H
#define ECH_ENGINE_EXPLAIN_H

#include "engine/flight.h"   /* ech_flight_view */
#include "program/program.h" /* ech_program */

/** What is known; all borrowed. */
typedef struct ech_explain_query {
    const ech_flight_view *view;
    const ech_layout *layout;
    /** Program number `which` of a rank; NULL: it has none. */
    const ech_program *(*program_of)(void *user, int rank, int which);
    void *user;
    const char *life; /**< [view->n_ranks] as ech_process_state says */
    double now_s;     /**< of the clock that the records were written by */
    int from;         /**< the rank that asks */
} ech_explain_query;

/** What came out. */
typedef struct ech_explanation {
    int rank;        /**< that everybody waits for; -1: none is known to be at fault */
    int waiter;      /**< one that waits for it without another in between; -1: none */
    bool is_circle;  /**< ranks wait for each other, rank among them */
    char line[1024]; /**< in words, no newline */
} ech_explanation;

/** Read the life of every rank of this host.
 *  @param view  borrowed
 *  @param life  out: [view->n_ranks] */
void ech_explain_look(const ech_flight_view *view, char *life);

/** Find the rank at fault.
 *  @param q    borrowed
 *  @param out  set on success
 *  @return ECH_OK | ECH_E_NOMEM
 *        | ECH_E_CORRUPT  the view has ranks outside of the layout, or lacks the one that asks */
ECH_MUST_USE ech_status ech_explain(const ech_explain_query *q, ech_explanation *out);

#endif
