/** @file engine/flight.h
 *  The flight recorder: where every rank of a host stands, in a file that they share.
 *
 *      RUN/flight-HOST    a header, then a record a rank (192 bytes)
 *
 *  A rank stores its program counter as it goes: before each op, with the layer, micro-batch and name
 *  of the block it belongs to, and what it is at outside of steps.  That is a few stores to memory:
 *  no call of the system, no lock, nothing allocated.  Other processes read the file at any time, also
 *  after the rank has stopped or died: records carry a version that is odd while one is written, so
 *  that none is read half old and half new, and words enough to be told without any program.
 *
 *  Times are seconds of the host's monotonic clock, so records of two hosts cannot be compared in
 *  time.  What is read is hostile until checked.  Not collective unless said. */
#ifndef ECH_ENGINE_FLIGHT_H
#define ECH_ENGINE_FLIGHT_H

#include "base/process.h"    /* ech_process */
#include "base/status.h"     /* ech_status */
#include "program/program.h" /* ech_segment, ech_op_kind, ech_axis */

#include <stdatomic.h>

/** What a rank does. */
typedef enum ech_flight_state {
    ECH_FLIGHT_COMPUTES, /**< runs an op that needs nobody, the start of a message among them */
    ECH_FLIGHT_WAITS,    /**< stands in a wait for a message */
    ECH_FLIGHT_OUTSIDE   /**< outside of programs: name says at what */
} ech_flight_state;

/** Room in a record and in a file. */
enum {
    ECH_FLIGHT_NAME_BYTES = 48, /**< of a block, as in ech_block */
    ECH_FLIGHT_PROGRAMS = 4     /**< with names */
};

/** Where a rank stands.  Outside of programs item is one past the last that was run. */
typedef struct ech_flight_place {
    ech_flight_state state;
    int program; /**< index in the engine's programs */
    ech_segment segment;
    ech_op_kind kind;
    ech_axis axis; /**< of a communication op */
    int item, op;
    int layer, micro; /**< -1: none */
    uint32_t passes;  /**< programs begun since the rank came up, this one counted */
    int64_t ops;      /**< done since then, before this item */
    int64_t step;     /**< in work, or the last one made; counted from 1 */
    double since_s;   /**< when it came here */
    char name[ECH_FLIGHT_NAME_BYTES]; /**< read: of the block, "attention backward", or what it is
                                             at */
} ech_flight_place;

/* --- a rank's own record --- */

enum { ECH_FLIGHT_WORDS = 24 /**< of 8 bytes: 16 that move, 8 that stand */ };

/** A record in the file; of the rank that owns it to write. */
typedef struct ech_flight_record {
    _Alignas(64) _Atomic uint64_t word[ECH_FLIGHT_WORDS];
} ech_flight_record;

/** Store a whole place: a new item, or what is done outside.
 *  @param r     in/out; NULL: nothing is recorded
 *  @param at    borrowed; its name is not looked at
 *  @param name  all of these bytes are copied, for people up to the first NUL */
void ech_flight_post(ech_flight_record *r, const ech_flight_place *at,
                     const char name[ECH_FLIGHT_NAME_BYTES]);

/** Store another op of the item that was posted last: two stores.
 *  @param r   in/out, not NULL
 *  @param at  borrowed; item, op, kind, axis, state and since_s count */
void ech_flight_post_op(ech_flight_record *r, const ech_flight_place *at);

/** Bytes have moved for an op that still waits: it is no hang. */
void ech_flight_post_moved(ech_flight_record *r, double now_s);

/** The rank goes on in other words (such as "writing a checkpoint"), outside of programs; item and
 *  counts stay. */
void ech_flight_post_outside(ech_flight_record *r, const char *words, int64_t step);

/** The rank ends in order, with this exit status. */
void ech_flight_post_end(ech_flight_record *r, int exit_code);

/* --- the file --- */

/** What a file is made with. */
typedef struct ech_flight_spec {
    const char *dir;        /**< the run folder, borrowed */
    const char *host;       /**< borrowed: names the file too */
    const int *rank;        /**< borrowed [n]: ranks of this host, ascending */
    int n;                  /**< at least 1 */
    int world;              /**< ranks of the run */
    double watchdog_s;      /**< 0: none */
    ech_process supervisor; /**< who started the ranks; pid 0: nobody */
    int64_t run;            /**< the same for all files of a run, greater than an earlier run's */
    /** Borrowed: names of the engine's programs in words for people, "evaluation"; NULL, or past the
     *  last: items are told without. */
    const char *program[ECH_FLIGHT_PROGRAMS];
} ech_flight_spec;

/** A file that this process has mapped; opaque. */
typedef struct ech_flight ech_flight;

/** Path of a host's file into buf.  @return ECH_OK | ECH_E_USAGE (too long) */
ECH_MUST_USE ech_status ech_flight_path(const char *dir, const char *host, char *buf, size_t n);

/** Put the file there, in place of an earlier run's: by one process a host, before the others open it.
 *  @param spec  borrowed
 *  @return ECH_OK | ECH_E_IO | ECH_E_USAGE (path) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_flight_create(const ech_flight_spec *spec);

/** Map it.
 *  @param spec  as it was made
 *  @param out   owned by the caller, ech_flight_close
 *  @return ECH_OK | ECH_E_CORRUPT (damaged, or of another spec) | ECH_E_IO | ECH_E_USAGE
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_flight_open(const ech_flight_spec *spec, ech_flight **out);

/** A rank's record, which becomes this process's; NULL: f is NULL or the rank is of another host. */
ech_flight_record *ech_flight_take(ech_flight *f, int rank);

/** Shall this rank tell of a hang: true for the first of the host that asks, and for it again. */
bool ech_flight_claim(ech_flight *f, int rank);

/** Has a rank other than this one taken it on itself to tell. */
bool ech_flight_is_told_by_other(const ech_flight *f, int rank);

/** Unmap; the file stays, to be read afterwards.  Accepts NULL, nulls the pointer. */
void ech_flight_close(ech_flight **f);

/* --- reading --- */

/** A rank as it was read. */
typedef struct ech_flight_rank {
    int rank;
    int host;            /**< index of its host */
    ech_process process; /**< pid 0: it has not come up */
    int exit_code;       /**< -1: it has not ended in order */
    bool is_torn;        /**< it has been stopped while it wrote: `at` may be half old */
    double moved_s;      /**< the last sign of life: it came here, or bytes moved */
    ech_flight_place at;
    char op_name[32];      /**< of at.kind, "linear_dgrad" */
    char program_name[16]; /**< of at.program; "": it has none */
} ech_flight_rank;

/** The ranks of a run as far as their files can be read here. */
typedef struct ech_flight_view {
    int world;
    double watchdog_s;
    ech_process supervisor;
    int64_t run;
    char (*host)[64]; /**< owned [n_hosts] */
    int n_hosts;
    ech_flight_rank *rank; /**< owned [n_ranks], ascending */
    int n_ranks;           /**< known ones, at most world */
} ech_flight_view;

/** A copy of what a mapped file says now.
 *  @param f    borrowed
 *  @param out  release with ech_flight_view_fini; set on success: ranks below the spec's world,
 *              whatever the page says
 *  @return ECH_OK | ECH_E_CORRUPT (another process has written ranks that cannot be) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_flight_look(const ech_flight *f, ech_flight_view *out);

/** Read all files of the newest run in a folder.
 *  @param dir  the run folder
 *  @param out  release with ech_flight_view_fini; set on success
 *  @return ECH_OK
 *        | ECH_E_DATA     the folder holds none
 *        | ECH_E_CORRUPT  one that is none of ours, or damaged
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_flight_read(const char *dir, ech_flight_view *out);

/** Release and zero. */
void ech_flight_view_fini(ech_flight_view *v);

/** "item 37 (attention backward, layer 3, micro-batch 1), op linear_dgrad", "evaluation, item ... op
 *  all_reduce_wait over tp", or the words of what it is at outside, into buf; cut to n, returns buf. */
const char *ech_flight_describe(const ech_flight_rank *r, char *buf, size_t n);

#endif
