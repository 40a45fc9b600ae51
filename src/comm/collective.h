/** @file comm/collective.h
 *  The communicator from inside, and collectives as bundles of streams.
 *
 *  A collective is, per peer, up to four streams of pieces, each in order, at most two in flight:
 *  parts out (my contribution to the peer's part), parts in (the peer's contribution to mine),
 *  whole out and whole in (finished values).  All-reduce uses the four, reduce-scatter the first
 *  two, all-gather, small sums and p2p the last two.  A stream is gated by what must come before: a
 *  piece received waits for room in staging, a finished piece for its sum, and a piece that
 *  overwrites my contribution for that contribution to be sent.  So a fast member is held up by
 *  what it needs and by nothing else, and no order of members can block another.
 *
 *  That is one leg.  In a group that spans nodes a collective is a row of legs, each among the
 *  members of one level, of the same tag: the legs of two members with each other come in the same
 *  order on both sides, and so do their messages.  Inside comm only.  Local. */
#ifndef ECH_COMM_COLLECTIVE_H
#define ECH_COMM_COLLECTIVE_H

#include "comm/comm.h"  /* ech_comm, ech_coll */
#include "program/op.h" /* ECH_REDUCE_ROUNDS, ECH_REDUCE_WINDOW */

/** Sizes of the machinery. */
enum {
    ECH_COMM_DEPTH = ECH_REDUCE_ROUNDS,  /**< pieces of a stream in flight: staging holds so many */
    ECH_COMM_WINDOW = ECH_REDUCE_WINDOW, /**< collectives of an axis with messages in flight */
    /** Numbers of collectives on an axis before tags repeat.  MPI grants tags up to 32767 only. */
    ECH_COMM_SEQUENCE = 16000
};

/** The streams of a collective with one peer. */
typedef enum ech_stream_kind {
    ECH_STREAM_PART_IN,
    ECH_STREAM_WHOLE_IN,
    ECH_STREAM_PART_OUT,
    ECH_STREAM_WHOLE_OUT,
    ECH_COMM_STREAMS
} ech_stream_kind;

/** Pieces [0, done) are through, [done, posted) in flight. */
typedef struct ech_stream {
    int64_t total, posted, done;
    ech_p2p_request request[ECH_COMM_DEPTH]; /**< of piece p at p % DEPTH */
} ech_stream;

/** Life of a slot. */
typedef enum ech_coll_state {
    ECH_COLL_FREE,
    ECH_COLL_OPEN,
    ECH_COLL_FINISHED /**< its caller has not tested it yet */
} ech_coll_state;

/** Ranks that a leg is among. */
typedef struct ech_members {
    int size, index;
    const int *rank; /**< [size] of the world, borrowed from the communicator */
    ech_tree tree;
} ech_members;

/** One leg of a collective: what lies where, in elements.  Piece p of member i's part starts at
 *  buf + begin(i) + p * piece_step, begin(i) being i * part_step or, of an all-reduce, that of
 *  ech_split. */
typedef struct ech_leg {
    ech_coll_kind kind;
    const ech_members *who; /**< borrowed from the communicator */
    int64_t n;              /**< elements of all parts together */
    int64_t piece;          /**< elements of a piece */
    int64_t part_step, piece_step;
    unsigned char *buf;
    unsigned char
        *part; /**< pieces of mine, one after the other: REDUCE_SCATTER out, ALL_GATHER in;
                              NULL: they are in buf */
    unsigned char *staging;
} ech_leg;

/** A collective in flight. */
typedef struct ech_coll_slot {
    ech_coll_state state;
    ech_coll coll;
    int tag;           /**< of parts; whole pieces have tag + 1 */
    int step;          /**< number of the leg, from 0 */
    ech_leg leg;       /**< in work */
    int64_t summed;    /**< pieces of my part that are summed */
    int64_t to_sum;    /**< pieces of my part */
    int next;          /**< younger one on the axis, -1: none */
    ech_stream *peers; /**< [group, ECH_COMM_STREAMS], borrowed from the communicator */
} ech_coll_slot;

/** A group of the layout that this rank is in; in two levels if near has more than one member:
 *  member number run * near.size + place of all is number place of its near, run of its far. */
typedef struct ech_group {
    ech_members all;
    ech_members near;     /**< my run of neighbours on one node */
    ech_members far;      /**< those of my place in every run */
    int64_t started;      /**< collectives other than p2p */
    int oldest, youngest; /**< open collectives, -1: none */
    int oldest_p2p, youngest_p2p;
} ech_group;

/** The inside of a communicator. */
struct ech_comm {
    ech_transport *t; /**< borrowed */
    ech_group group[ECH_N_AXES];
    int *members;        /**< owned: member lists of all groups and levels */
    int node_ranks;      /**< ranks of a node */
    ech_coll_slot *slot; /**< [max_in_flight] owned */
    ech_stream *streams; /**< [max_in_flight, largest group, ECH_COMM_STREAMS] owned */
    void **vectors;      /**< [largest group] owned: what a sum reads */
    ech_status *agreed;  /**< [world] owned: what ech_comm_agree hears */
    int max_in_flight;
    int64_t activity;
    ech_sent sent;
};

/** Name of a kind, "all_reduce". */
const char *ech_coll_name(ech_coll_kind kind);

/** Is it a message between two ranks. */
bool ech_coll_is_p2p(ech_coll_kind kind);

/** Leg number step of a collective in its group; pure.
 *  @param out  of use if there is one
 *  @return is there one; there is a leg 0 always */
bool ech_coll_leg(const ech_group *g, const ech_coll *c, int step, ech_leg *out);

/** Lay out the streams of a slot whose coll, peers, tag and leg are set.
 *  @param slot  out: to_sum and streams; nothing is posted */
void ech_coll_plan(ech_coll_slot *slot);

/** One pass: complete what is through, sum what is complete, post what is allowed; on to the next
 *  leg when this one is through.
 *  @param slot  in/out, OPEN; FINISHED when nothing is left
 *  @return ECH_OK | ECH_E_COMM */
ECH_MUST_USE ech_status ech_coll_advance(ech_comm *comm, ech_coll_slot *slot);

#endif
