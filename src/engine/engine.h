/** @file engine/engine.h
 *  The executor: program + kernels + communicator + arenas, for one rank.
 *
 *  A rank is (program, counter, arenas): advance runs ops in program order until a message is
 *  missing, so one process can step one rank over MPI or many virtual ranks in turn (virtual.h).
 *  create measures and reserves; a step allocates nothing.  Not thread-safe; kernels may use
 *  threads inside a call. */
#ifndef ECH_ENGINE_ENGINE_H
#define ECH_ENGINE_ENGINE_H

#include "comm/comm.h"       /* ech_comm */
#include "engine/recorder.h" /* ech_recorder */
#include "engine/flight.h"   /* ech_flight_record */
#include "kernels/kernels.h" /* ech_kernel_table */
#include "program/program.h" /* ech_program */

/** One rank's executor; opaque. */
typedef struct ech_engine ech_engine;

/** What an engine runs on; all pointers borrowed and outliving it. */
typedef struct ech_engine_config {
    const ech_program *const *program; /**< of one run: same state slots */
    int n_programs;
    ech_comm *comm;
    const ech_kernel_table *kernels;
    int rank;
    int threads;
    uint64_t seed;
    bool poison;            /**< fill bytes with NaN where a life ends (tests) */
    ech_recorder *recorder; /**< of program 0, borrowed; keeps the segments begun while it is on.
                                 NULL: nothing is recorded */
} ech_engine_config;

/** What comm does for a start op. */
ech_coll_kind ech_engine_coll_kind(ech_op_kind kind);

/** Reserve the arenas of all programs.
 *  @param config  borrowed, copied
 *  @param out     owned by the caller, set on success only
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_PROOF (the programs do not chain) */
ECH_MUST_USE ech_status ech_engine_create(const ech_engine_config *config, ech_engine **out);

/** Release; accepts NULL, nulls the pointer.  Nothing may be in flight. */
void ech_engine_destroy(ech_engine **engine);

/** From now on record where this rank stands, op by op.
 *  @param e       in/out
 *  @param flight  borrowed, this rank's own; NULL: nothing is recorded */
void ech_engine_set_flight(ech_engine *e, ech_flight_record *flight);

/** Address of a state slot, borrowed. */
void *ech_engine_state(ech_engine *e, int slot);

/** Value of an int64 cell of the scalar table. */
int64_t ech_engine_get_int(const ech_engine *e, ech_cell cell);

/** Value of an fp64 cell. */
double ech_engine_get_real(const ech_engine *e, ech_cell cell);

/** Set an int64 cell; between segments only, alike on every rank unless the cell is a vote. */
void ech_engine_set_int(ech_engine *e, ech_cell cell, int64_t value);

/** Set an fp64 cell, as above. */
void ech_engine_set_real(ech_engine *e, ech_cell cell, double value);

/** Stand before the first item of a segment of program `index`. */
void ech_engine_begin(ech_engine *e, int index, ech_segment segment);

/** Run until the segment ends or a message is missing.
 *  @return ECH_DONE
 *        | ECH_BLOCKED  call again
 *        | ECH_E_PROOF  a wait without a start
 *        | ECH_E_COMM */
ECH_MUST_USE ech_status ech_engine_advance(ech_engine *e);

/** Has the segment been run to its end. */
bool ech_engine_has_ended(const ech_engine *e);

/** Run one op out of order (virtual.h, schedule fuzzing); ECH_DEPS_RELEASE poisons `slot`.
 *  Not recorded.
 *  @return ECH_OK | ECH_BLOCKED (a wait whose message is missing: nothing was done) | ECH_E_COMM
 *        | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_engine_run_op(ech_engine *e, int item, int op, int slot);

/** Where a blocked engine stands, as "rank 1, item 12 (...): all_reduce over dp ... waits for rank
 *  0", into buf; cut to n, returns buf. */
const char *ech_engine_describe(const ech_engine *e, char *buf, size_t n);

/** A number that grows whenever this rank runs an op or moves bytes; while it stands still on every
 *  rank for a whole round, they wait for each other. */
int64_t ech_engine_activity(const ech_engine *e);

/** Seconds since the last reset. */
typedef struct ech_engine_times {
    double kernels_s; /**< in kernels */
    double comm_s;    /**< in calls of comm that did work or polled between kernels */
    double blocked_s; /**< waiting for messages: exposed communication */
    double total_s;   /**< inside advance, and between a block and the next advance */
    int64_t ops;      /**< done */
    int64_t polls;    /**< of waits whose message was not there yet */
} ech_engine_times;

/** Times so far. */
ech_engine_times ech_engine_times_get(const ech_engine *e);

/** Count from zero again. */
void ech_engine_times_reset(ech_engine *e);

/** What was really there, seen by the executor and the arenas rather than by the compiler. */
typedef struct ech_engine_memory {
    size_t at_peak[ECH_N_CLASSES]; /**< live bytes by class at the fullest moment, as executed */
    size_t total;
    size_t arena;                        /**< bytes mapped between the guards */
    size_t touched_state[ECH_N_CLASSES]; /**< bytes of state that no longer hold canaries */
    size_t touched_transient;            /**< bytes of the transient arena that do not */
} ech_engine_memory;

/** What was there in one space; reads the whole arena. */
void ech_engine_memory_get(const ech_engine *e, ech_space space, ech_engine_memory *out);

/** Guards and canaries are whole.  @return ECH_OK | ECH_E_CORRUPT */
ECH_MUST_USE ech_status ech_engine_check(const ech_engine *e);

#endif
