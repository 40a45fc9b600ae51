/** @file engine/recorder.h
 *  What one rank did in one step, as bars of a time line (price/timeline.h): kernels, waits that
 *  blocked, messages on their way.
 *
 *  Memory is reserved at creation for all that one run of a program can leave; a step allocates
 *  nothing.  What has no room is counted, not kept.  Times are those of ech_clock_s, which the
 *  engine reads anyway: recording adds a few stores an op.  Not thread-safe; local. */
#ifndef ECH_ENGINE_RECORDER_H
#define ECH_ENGINE_RECORDER_H

#include "price/timeline.h" /* ech_bar */

/** A rank's recorder; opaque. */
typedef struct ech_recorder ech_recorder;

/** Reserve room for one run of a program through all its segments: a bar an item that has kernels, a
 *  bar a start, and two a wait (itself, and the rest of the item that it cuts).
 *  @param p     borrowed during the call
 *  @param rank  written into every bar
 *  @param out   owned by the caller, set on success only
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_recorder_create(const ech_program *p, int rank, ech_recorder **out);

/** Release; accepts NULL, nulls the pointer. */
void ech_recorder_destroy(ech_recorder **r);

/** Forget what was recorded; a step begins now and its bars are kept. */
void ech_recorder_begin(ech_recorder *r);

/** The step ends now; nothing is kept from here on. */
void ech_recorder_end(ech_recorder *r);

/** Between begin and end. */
bool ech_recorder_is_on(const ech_recorder *r);

/** What a recorder holds; borrowed until its next begin. */
typedef struct ech_recording {
    const ech_bar *bar; /**< [n] in order of begin; times absolute, of ech_clock_s */
    size_t n;
    size_t lost;           /**< bars that had no room */
    double begin_s, end_s; /**< of the step, absolute */
} ech_recording;

/** Read it. */
ech_recording ech_recorder_get(const ech_recorder *r);

/** Bars that fit. */
size_t ech_recorder_capacity(const ech_recorder *r);

/* --- for the engine --- */

/** Where an op stands. */
typedef struct ech_op_place {
    int item, op;
    ech_axis axis;
    int request; /**< index of its request in the program */
} ech_op_place;

/** A kernel of an item ran: the item's bar grows, or begins anew behind a wait that blocked. */
void ech_recorder_kernel(ech_recorder *r, int item, double begin_s, double end_s);

/** A message was started: its bar lasts until ech_recorder_arrived. */
void ech_recorder_started(ech_recorder *r, const ech_op_place *at, double now_s);

/** A message was seen to be through, by its wait or before; only the first time counts. */
void ech_recorder_arrived(ech_recorder *r, int request, double now_s);

/** A wait asked in vain, of which only the first time counts: its bar begins. */
void ech_recorder_blocked(ech_recorder *r, const ech_op_place *at, double now_s);

/** A wait is done; its bar ends if it has one. */
void ech_recorder_waited(ech_recorder *r, const ech_op_place *at, double now_s);

/** Requests on their way, borrowed until the next call.
 *  @param r  recorder
 *  @param n  out: how many */
const int *ech_recorder_open(const ech_recorder *r, int *n);

#endif
