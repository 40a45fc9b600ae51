/** @file program/schedule.h
 *  Pipeline schedules as tables: for every pipeline rank the list of what it does with which
 *  virtual stage and micro-batch, in order.  Memory, bubble, deadlock, picture and run are all
 *  asked of this one table.
 *
 *  What is made, with F = I = W = 1 and B = 2, p ranks, m micro-batches, v chunks of a rank; `idle`:
 *  time to the last end less what one rank works; `live`: what rank r holds between F and B or I:
 *
 *      gpipe        idle 3 (p - 1)     live m; backwards in the order of micro-batches too
 *      1f1b         idle 3 (p - 1)     live min(m, p - r)
 *      interleaved  idle 3 (p - 1)     live min(m v, (v - 1) group + 2 (p - 1 - r) + 1) chunks
 *      zb-h1        idle p - 1         live min(m, p - r), with W to do at most min(m, p); for m < p
 *                                      idle 2p - 1 - m
 *      zb-v         idle p - 1         live at most min(2 m, 2 p) chunks, W to do included; no rank
 *                                      idle between its first and last cell for m >= 2p - 1; more
 *                                      idle for m < p and for some m in p + 1 .. 2p - 2
 *
 *  Sources: GPipe, Huang et al. 2018, arXiv:1811.06965; 1F1B and interleaved 1F1B, Narayanan et al.
 *  2021, arXiv:2104.04473; ZB-H1 and ZB-V, Qi et al. 2023, arXiv:2401.10241, 2024,
 *  arXiv:2405.15362.  Pure; every call is local. */
#ifndef ECH_PROGRAM_SCHEDULE_H
#define ECH_PROGRAM_SCHEDULE_H

#include "base/checked.h" /* ech_status */
#include "base/text.h"    /* ech_text */

#include <stdbool.h>
#include <stdint.h>

/** What is done, with the letters of tables in files. */
typedef enum ech_work_kind {
    ECH_WORK_FORWARD,  /**< F */
    ECH_WORK_BACKWARD, /**< B: gradients of inputs and of weights */
    ECH_WORK_INPUT,    /**< I: gradients of inputs; a W of the same stage and micro-batch follows */
    ECH_WORK_WEIGHT,   /**< W: gradients of weights */
    ECH_N_WORK_KINDS
} ech_work_kind;

/** One cell of a table. */
typedef struct ech_work {
    ech_work_kind kind;
    int stage; /**< virtual stage, 0 .. stages - 1 */
    int micro;
    int column; /**< number of the cell in its line of the table that it came from, idle ones counted,
                     from 1; generated: place in the rank's list, from 1 */
} ech_work;

/** The schedules that are generated; FILE: a table of the user's own. */
#define ECH_SCHEDULE_LIST(X)                                                                       \
    X(ECH_SCHEDULE_1F1B, "1f1b")                                                                   \
    X(ECH_SCHEDULE_GPIPE, "gpipe")                                                                 \
    X(ECH_SCHEDULE_INTERLEAVED, "interleaved")                                                     \
    X(ECH_SCHEDULE_ZB_H1, "zb-h1")                                                                 \
    X(ECH_SCHEDULE_ZB_V, "zb-v")                                                                   \
    X(ECH_SCHEDULE_FILE, "file")

typedef enum ech_schedule_kind {
#define ECH_SCHEDULE_ENUM(name, text) name,
    ECH_SCHEDULE_LIST(ECH_SCHEDULE_ENUM)
#undef ECH_SCHEDULE_ENUM
        ECH_N_SCHEDULES
} ech_schedule_kind;

/** A table.  Zero-initialise before the first make; read only then. */
typedef struct ech_schedule {
    char name[128]; /**< "1f1b", or the file */
    int ranks;      /**< pipeline ranks, p */
    int stages;     /**< virtual stages, p * v; stage 0 takes the tokens, the last has the loss */
    int micros;     /**< micro-batches, m */
    bool is_split;  /**< backwards are I and W (in a file: some are) */
    bool is_forward_only;
    int *rank_of;   /**< owned [stages] */
    ech_work *work; /**< owned: of rank r at [first[r], first[r + 1]) */
    int *first;     /**< owned [ranks + 1] */
    int *line;      /**< owned [ranks]: of the file, from 1; NULL: generated */
} ech_schedule;

/** What to generate. */
typedef struct ech_schedule_spec {
    ech_schedule_kind kind;
    int ranks, micros;
    int chunks; /**< virtual stages of a rank, v, 0: 1; but for interleaved 1, zb-v: always 2 (1
                     means that too) */
    int group; /**< interleaved with v > 1: micro-batches that go through a chunk together, at least
                     `ranks`; 0: ranks.  micros must be a multiple of it, or leave at least `ranks` */
} ech_schedule_spec;

/** Name of a kind, "zb-h1"; static storage. */
const char *ech_schedule_name(ech_schedule_kind kind);

/** Kind of a name that is no file; ECH_SCHEDULE_FILE where there is none. */
ech_schedule_kind ech_schedule_kind_of(const char *name);

/** Pipeline rank of a virtual stage: stage % ranks, or in a V form back from the last rank to the
 *  first. */
int ech_schedule_place(ech_schedule_kind kind, int ranks, int stage);

/** Chunks that a kind makes of `chunks` asked for: 1 but for interleaved, 2 for zb-v. */
int ech_schedule_chunks(ech_schedule_kind kind, int chunks);

/** Generate a table.  Any micros >= 1, but for interleaved as spec says.  Backwards of a stage come
 *  in the order of micro-batches, and so do its W: gradients do not depend on the schedule, bit for
 *  bit.
 *  @param spec  borrowed; not FILE
 *  @param out   owned by the caller (ech_schedule_fini), set on success
 *  @return ECH_OK | ECH_E_ILLEGAL (with the nearest legal value) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_schedule_make(const ech_schedule_spec *spec, ech_schedule *out);

/** Read a table: CSV, one line a pipeline rank, cells "<stage><F|B|I|W><micro>" ("3B12") or empty
 *  (idle), as torch.distributed.pipelining writes them.  '#' begins a comment line; blank lines,
 *  blanks around cells, CRLF and a byte order mark are passed over.  A stage is on the rank in whose
 *  line it stands; ranks may have different numbers of stages, and a stage and micro-batch may have
 *  B where others have I and W.  The order of micro-batches is the table's own: where backwards of a
 *  stage are not in order, neither are its sums.
 *
 *  All faults of a kind are found at once, the first ten named as file:line:column, where column
 *  counts the cells of the line from 1, and the others counted.  Memory goes with n, whatever
 *  numbers stand in the cells.
 *  @param text   [n] borrowed
 *  @param n      bytes
 *  @param name   of the file, for messages
 *  @param out    as above; checked as ech_schedule_check does
 *  @return ECH_OK | ECH_E_CONFIG | ECH_E_NOMEM; *out unchanged on failure */
ECH_MUST_USE ech_status ech_schedule_read(const char *text, size_t n, const char *name,
                                          ech_schedule *out);

/** Write it as a table that ech_schedule_read reads (unless it is of forwards alone), cells at their
 *  times in units of one cell.
 *  @param out  appended to, owned by the caller
 *  @return ECH_OK | ECH_E_CONFIG (it does not come to an end) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_schedule_write(const ech_schedule *s, ech_text *out);

/** Does it do every forward once and every backward once (B, or I and W), each stage on its one
 *  rank, each after what it needs, and come to an end?  F needs the F of the stage before; B and I
 *  the F of their stage and the B or I of the stage after; W its I.  A table of forwards alone has
 *  nothing else.
 *
 *  First what is missing, repeated or misplaced is looked for; where nothing is, what waits for
 *  ever: each rank's cell that is never reached, with a cell that it needs.  Ten faults are named,
 *  the others counted: "schedule.csv:2:5 (1B0) is there already: schedule.csv:2:3 (1B0)".
 *  Takes O(cells); with faults O(cells log cells).
 *  @param s  its cells name stages below s->stages and micro-batches below s->micros
 *  @return ECH_OK | ECH_E_CONFIG | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_schedule_check(const ech_schedule *s);

/** Release and zero. */
void ech_schedule_fini(ech_schedule *s);

/** The same table once more.
 *  @param out  owned by the caller, set on success
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_schedule_copy(const ech_schedule *s, ech_schedule *out);

/** The same table with its forwards alone (evaluation).
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_schedule_forwards(const ech_schedule *s, ech_schedule *out);

/** "3B12" into buf; returns buf. */
const char *ech_work_format(const ech_work *w, char *buf, size_t n);

/** "schedule.csv:2:5 (3B12)", or "rank 1, cell 4 (3B12)" of a generated one, into buf; returns
 *  buf.  Cell `i` of the whole list. */
const char *ech_schedule_where(const ech_schedule *s, int i, char *buf, size_t n);

/** What cells cost, in any unit. */
typedef struct ech_schedule_costs {
    double of[ECH_N_WORK_KINDS];          /**< of a whole stage's work; the same for every stage */
    const double *stage;                  /**< [stages] borrowed: factor for each stage; NULL: 1 */
    const double *each[ECH_N_WORK_KINDS]; /**< [stages] borrowed: of a kind's work of each stage, in
                                               place of both; NULL: those */
    double hop; /**< from the end of a cell to where another rank may use it */
} ech_schedule_costs;

/** When each cell begins and ends if every rank goes through its list as early as it can.
 *  @param s      checked
 *  @param costs  borrowed
 *  @param begin  out [cells]
 *  @param end    out [cells]
 *  @return the time of the last end, or an error below 0 as *st
 *  @param st     out: ECH_OK | ECH_E_CONFIG (it deadlocks) | ECH_E_NOMEM */
double ech_schedule_times(const ech_schedule *s, const ech_schedule_costs *costs, double *begin,
                          double *end, ech_status *st);

/** Idle share of the time to the last end, over all ranks: 1 - work / (ranks * makespan). */
double ech_schedule_bubble(const ech_schedule *s, const ech_schedule_costs *costs, ech_status *st);

/** What a rank holds at its fullest. */
typedef struct ech_schedule_live {
    int saved;    /**< (stage, micro-batch) pairs between forward and B or I */
    int deferred; /**< between I and W */
    int both;     /**< most of both together */
    int at;       /**< cell (of the whole list) where `both` is reached first */
} ech_schedule_live;

/** Count along the rank's list. */
ech_schedule_live ech_schedule_live_of(const ech_schedule *s, int rank);

#endif
