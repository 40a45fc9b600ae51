/** @file program/match_private.h
 *  Match from inside: the ranks that are followed, and what is in flight between them.  Internal to
 *  program/: the files of match.  A rank that is followed is called a node. */
#ifndef ECH_PROGRAM_MATCH_PRIVATE_H
#define ECH_PROGRAM_MATCH_PRIVATE_H

#include "program/match.h"      /* ech_match_spec */
#include "program/prove_mesh.h" /* ech_mesh */

enum { NONE = -1 };

/** A communication op of a program. */
typedef struct event {
    const ech_op *op; /**< borrowed */
    int item;
    int request;
    int group_end;    /**< SERIAL: one past the starts that are posted together with it */
    int micro, chunk; /**< its item's: items are large and far apart */
    bool is_commit;
} event;

/** All of a class's program. */
typedef struct class_events {
    event *event; /**< owned, in program order */
    int n;
    size_t capacity;
    int limit;   /**< nodes do not pass it: n, or where a round ends */
    int begin;   /**< first event of rounds */
    int round;   /**< events of a round */
    int ends[2]; /**< one past the events of the round before the last, and of the last */
} class_events;

/** A message that a node has started and not awaited. */
typedef struct open_message {
    int event;   /**< its start; NONE: the request is free */
    int channel; /**< NONE: a collective */
    int64_t k;   /**< number of the collective, or of the message in its channel */
} open_message;

/** A node and how far it has come. */
typedef struct follower {
    int rank; /**< in the world: the lowest that it stands for */
    int klass;
    int at;     /**< next event */
    int posted; /**< SERIAL: events before it are started */
    bool is_queued;
    int64_t started[ECH_N_AXES]; /**< collectives */
} follower;

/** The k-th collective of a communicator: who started it first, and how many have. */
typedef struct meeting {
    int node, event, arrived;
} meeting;

/** The collectives of one group over an axis. */
typedef struct communicator {
    meeting *meeting; /**< owned */
    int64_t n, done;  /**< begun, complete: in order, since each member starts in order */
    size_t capacity;
} communicator;

/** Whose messages meet: activations, or gradients, of a sender's chunk go to one of the receiver's. */
typedef struct chunk_pair {
    int from, to;
    bool is_gradient;
} chunk_pair;

/** Messages from one node to another over an axis; ends without their other end wait in a list. */
typedef struct channel {
    int64_t sent, received;
    int first, last;  /**< NONE: empty */
    chunk_pair *pair; /**< owned */
    int n_pairs;
    size_t pair_capacity;
} channel;

/** One end of a message that waits for the other. */
typedef struct end {
    int node, event, next;
} end;

/** The run of the worklist. */
typedef struct sim {
    const ech_match_spec *spec;
    ech_match_how how;
    ech_match_count *count;
    ech_mesh mesh;       /**< of all ranks */
    ech_mesh nodes;      /**< of those followed */
    class_events *klass; /**< owned, [n_classes] */
    follower *node;      /**< owned, [nodes.world] */
    open_message *open;  /**< owned, [nodes.world, n_requests] */
    int n_requests;
    communicator
        *comm[ECH_N_AXES];        /**< owned, [nodes.world]: by first member; NULL: groups of one */
    channel *channel[ECH_N_AXES]; /**< owned, [nodes.world, group]; NULL: no messages over it */
    bool has_messages[ECH_N_AXES];
    end *end; /**< owned */
    int n_ends, free_end;
    size_t end_capacity;
    int *queue; /**< owned, [nodes.world] nodes to look at again */
    int n_queue;
    follower *node_before;     /**< owned, as node: with the first class at the end of a round */
    open_message *open_before; /**< owned, as open: likewise */
    int64_t *ahead_before;     /**< owned, likewise: of each channel, sent less received; of each
                                    communicator, begun less complete */
} sim;

/** Op of event `at` of a class. */
static inline const ech_op *match_op_at(const sim *s, int klass, int at)
{
    return s->klass[klass].event[at].op;
}

/** Between two ranks, not of a whole group. */
static inline bool match_is_message(ech_op_kind kind)
{
    return kind == ECH_OP_SEND_START || kind == ECH_OP_RECV_START;
}

/* match_words.c: faults in words; each writes into buf and returns it */
/** "first", ..., "11th" for k from 0. */
const char *match_ordinal(int64_t k, char *buf, size_t n);
/** "rank 5 (tp 1, dp 2)"; where it stands for others too: "every rank like rank 5 (...)"; for all:
 *  "every rank". */
const char *match_who(const sim *s, int node, char *buf, size_t n);
/** "item 37 (mlp backward, layer 3, micro-batch 1), op all_reduce_wait over tp" */
const char *match_where(const sim *s, int node, int at, char *buf, size_t n);
/** "all_reduce_start of 3 x 4 fp64" */
const char *match_what(const ech_op *op, char *buf, size_t n);
/** ECH_E_PROOF: who, where, why. */
ech_status match_fault(const sim *s, int node, int at, const char *why);
/** Has every node come to its end?  Else who waits for whom. */
ech_status match_check_finished(const sim *s);

/* match_rounds.c */
/** Where rounds end among a class's events. */
ech_status match_find_rounds(sim *s, int klass);
/** Does the run have rounds: all classes, or none. */
bool match_has_rounds(const sim *s);
/** Nothing goes on any more with the first class held at the end of the round before the last (first), or
 *  of the last: keep what is in flight, or compare it with what was. */
ech_status match_note_round(sim *s, bool first);

/* match_meet.c: where ranks meet */
/** Look at a node again. */
void match_enqueue(sim *s, int node);
/** The message of a node's event: what its request holds. */
open_message *match_open_of(const sim *s, int node, int at);
/** A node starts a collective or a message; all that this completes is looked at again. */
ech_status match_start(sim *s, int node, int at);
/** Have all members, or the other end, started it too? */
bool match_is_complete(const sim *s, int node, const open_message *o);
/** The wait is its start's, and both or none are in a segment that may be skipped. */
ech_status match_check_wait(const sim *s, int node, int at, const open_message *o);

#endif
