/** @file engine/flight_file.h
 *  The flight recorder's file from inside: what stands where.  Inside engine only.  Local. */
#ifndef ECH_ENGINE_FLIGHT_FILE_H
#define ECH_ENGINE_FLIGHT_FILE_H

#include "engine/flight.h" /* ech_flight_view */

#define ECH_FLIGHT_PREFIX "flight-"
#define ECH_FLIGHT_MAGIC  "ECHFLY01" /**< with the version of the format */

enum {
    ECH_FLIGHT_MOST = 1 << 16, /**< ranks of a host */
    ECH_FLIGHT_KINDS = 128     /**< room for names of ops */
};

_Static_assert((int)ECH_N_OPS <= (int)ECH_FLIGHT_KINDS, "names of ops have room");

/** Words of a record.  VERSION to NAME are one place, written between two versions; OP and SINCE
 *  move alone while the item stays, and OP says the item again.  The others are stored one by one. */
enum {
    ECH_FLIGHT_AT_VERSION, /**< odd while a place is written */
    ECH_FLIGHT_AT_OP,      /**< item, op << 32, kind << 48, axis << 56, state << 60 */
    ECH_FLIGHT_AT_SINCE,   /**< fp64; may be that of the op after OP, for an instant */
    ECH_FLIGHT_AT_OPS,     /**< done before the item */
    ECH_FLIGHT_AT_STEP,
    ECH_FLIGHT_AT_LAYER,  /**< layer, micro-batch << 32 */
    ECH_FLIGHT_AT_PASSES, /**< passes, program << 32, segment << 40 */
    ECH_FLIGHT_AT_NAME,   /**< six words */
    ECH_FLIGHT_AT_MOVED = ECH_FLIGHT_AT_NAME + ECH_FLIGHT_NAME_BYTES / 8, /**< fp64 */
    ECH_FLIGHT_AT_EXIT, /**< exit status + 1; 0: runs */
    ECH_FLIGHT_AT_SPARE,
    ECH_FLIGHT_AT_RANK, /**< set when the file is made */
    ECH_FLIGHT_AT_PID,  /**< 0: not come up */
    ECH_FLIGHT_AT_START
};

_Static_assert((int)ECH_FLIGHT_AT_RANK == 16 && (int)ECH_FLIGHT_AT_START < (int)ECH_FLIGHT_WORDS,
               "words that move are two cache lines");
_Static_assert((int)ECH_N_AXES <= 16, "an axis has four bits");

/** The head of a file; nothing but teller changes after it is made. */
typedef struct ech_flight_header {
    _Alignas(64) char magic[8];
    uint32_t header_bytes, record_bytes, n, world;
    int64_t run;
    double watchdog_s;
    int64_t supervisor_pid, supervisor_start;
    _Atomic uint64_t teller; /**< rank + 1 of who tells of a hang; 0: nobody yet */
    uint32_t n_kinds, spare;
    char host[64];
    char program[ECH_FLIGHT_PROGRAMS][16]; /**< "": without a name */
    char kind[ECH_FLIGHT_KINDS][32];       /**< names of ops by number */
} ech_flight_header;

/** Is it a head of this version, with sizes that are ours and fit the file's.
 *  @param path   for messages
 *  @param bytes  of the file
 *  @return ECH_OK | ECH_E_CORRUPT */
ECH_MUST_USE ech_status ech_flight_check_header(const ech_flight_header *h, const char *path,
                                                int64_t bytes);

/** How many records and ranks, as they were when the head was checked: what a mapped one says may
 *  change at any time. */
typedef struct ech_flight_size {
    int n;     /**< records */
    int world; /**< ranks of the run */
} ech_flight_size;

/** Copy records out: each as one whole place, however its rank writes meanwhile.
 *  @param h       its numbers count for what people are told alone
 *  @param record  [size.n]
 *  @param size    checked
 *  @param out     set on success: ranks below size.world, ascending
 *  @return ECH_OK | ECH_E_CORRUPT (ranks that cannot be) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_flight_decode(const ech_flight_header *h,
                                          const ech_flight_record *record, ech_flight_size size,
                                          ech_flight_view *out);

#endif
