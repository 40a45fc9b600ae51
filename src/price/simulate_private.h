/** @file price/simulate_private.h
 *  The simulation from inside.  Internal to price/: the files of simulate.  A rank that is followed
 *  is called a node. */
#ifndef ECH_PRICE_SIMULATE_PRIVATE_H
#define ECH_PRICE_SIMULATE_PRIVATE_H

#include "price/simulate.h" /* ech_simulate_spec */

enum { NONE = -1 };

/** A communication op of a block, and the kernels before it since the last one. */
typedef struct sim_mark {
    double before_s;
    double comm_s; /**< of a start at the class's lowest rank; NaN: not asked yet */
    int op;
} sim_mark;

/** What a block takes in a chunk. */
typedef struct sim_price {
    bool is_known;
    int first, n;     /**< marks [first, first + n) */
    int n_kernels;    /**< ops */
    double after_s;   /**< kernels behind the last mark */
    double kernels_s; /**< all of them */
} sim_price;

/** A program and its prices. */
typedef struct sim_class {
    const ech_program *p; /**< borrowed */
    int chunks;           /**< one more than the largest */
    sim_price *price;     /**< owned [n_blocks * chunks] */
    sim_mark *mark;       /**< owned */
    int n_marks;
    size_t mark_capacity;
} sim_class;

/** A message or collective. */
typedef struct sim_message {
    double begin_s; /**< the latest of what it waits for, as far as that is known */
    double lasts_s; /**< the longest answer so far */
    double end_s;
    double busy_s; /**< since when its link has been in use without a pause */
    ech_axis axis;
    int missing;         /**< members that have not started it; 0: its times are known */
    int from;            /**< node whose start was the latest, */
    int from_stalls;     /**< and how often it had stood before that, */
    double from_delay_s; /**< and how long its kernels had been held up */
    int before;          /**< message whose end was later than any start; NONE */
    int parked;          /**< first of the nodes that wait for it to be known; NONE */
    int next;            /**< in its channel, of messages that lack their other end */
} sim_message;

/** What a node has started and not awaited. */
typedef struct sim_open {
    int message; /**< NONE: in a group of one */
    int item, op;
    bool is_started;
    double begin_s;
} sim_open;

/** A node stood. */
typedef struct sim_stall {
    double begin_s, end_s;
    double delay_s; /**< of its kernels before that */
    int message;
} sim_stall;

/** A node and how far it has come. */
typedef struct sim_node {
    int rank; /**< the lowest that it stands for */
    int klass;
    int64_t coord[ECH_N_AXES];
    double now_s;
    int item, mark;
    bool is_queued;
    bool is_parked; /**< stands at a mark whose kernels have been counted */
    int next_parked;
    double item_s;           /**< when its item began */
    int started[ECH_N_AXES]; /**< collectives */
    int first[ECH_N_AXES];   /**< lowest node of its group; NONE: not looked for yet */
    int size[ECH_N_AXES];    /**< nodes of it */
    sim_open *open;          /**< owned [n_requests] */
    sim_stall *stall;        /**< owned */
    int n_stalls;
    size_t stall_capacity;
    double compute_s, recompute_s, optimizer_s;
    double delay_s;              /**< of its kernels, by messages beside them */
    double stood_s[ECH_N_AXES];  /**< at waits */
    double moving_s[ECH_N_AXES]; /**< of it, while the link was in use; and delays */
    int64_t ops;
} sim_node;

/** The collectives of a group over an axis, in order. */
typedef struct sim_stream {
    int *message; /**< owned */
    int n;
    size_t capacity;
} sim_stream;

/** Messages from one rank to another over an axis. */
typedef struct sim_channel {
    int first, last; /**< without their other end, all of one side; NONE */
    bool is_sent;    /**< that side is the sender's */
    int before;      /**< the last that has both ends; NONE */
} sim_channel;

/** The run of the worklist. */
typedef struct sim {
    const ech_simulate_spec *spec;
    const ech_layout *layout;
    bool is_free;       /**< messages take no time */
    ech_timeline *line; /**< NULL: no bars */
    sim_class *klass;   /**< owned [n_classes] */
    int n_requests;
    int stride[ECH_N_AXES]; /**< of nodes; 0 along axes that are not followed */
    sim_node *node;         /**< owned [n_nodes] */
    int n_nodes;
    int *queue; /**< owned [n_nodes] */
    int n_queue;
    int *members;                     /**< owned [world] */
    int *seen;                        /**< owned [n_nodes]: search for groups */
    sim_stream *stream[ECH_N_AXES];   /**< owned [n_nodes], by lowest node of a group */
    sim_channel *channel[ECH_N_AXES]; /**< owned [n_nodes * degree]: by sender, receiver's index */
    bool has_messages[ECH_N_AXES];
    sim_message *message; /**< owned */
    int n_messages;
    size_t message_capacity;
} sim;

/** Between two ranks, not of a whole group. */
static inline bool sim_is_message(ech_op_kind kind)
{
    return kind == ECH_OP_SEND_START || kind == ECH_OP_RECV_START;
}

/** The node that stands for a rank. */
int sim_node_of(const sim *s, int rank);

/** Look at a node again. */
void sim_enqueue(sim *s, int node);

/* simulate_price.c */
/** Find programs' chunks and requests, and make room for prices.
 *  @return ECH_OK | ECH_E_PROOF (no classes, a class that is none) | ECH_E_NOMEM */
ech_status sim_list_classes(sim *s);

/** What an item's block takes: asked once a block and chunk.
 *  @return ECH_OK | ECH_E_ILLEGAL | ECH_E_NOMEM */
ech_status sim_price_of(sim *s, int klass, const ech_item *item, const sim_price **out);

/** What a message takes by the answer at a node.  @return ECH_OK | ECH_E_ILLEGAL */
ech_status sim_ask_comm(sim *s, const sim_node *n, sim_mark *m, const ech_op *op, double *out);

/* simulate_meet.c */
/** A node starts the communication op of a mark; all whom this completes go on.
 *  @return ECH_OK | ECH_E_PROOF (a request in use, a peer that is none) | ECH_E_ILLEGAL (a cost)
 *        | ECH_E_NOMEM */
ech_status sim_start(sim *s, int node, sim_mark *m);

/** A node comes to a wait: *passed, or parked until the message's times are known.
 *  @return ECH_OK | ECH_E_PROOF (nothing was started) | ECH_E_NOMEM */
ech_status sim_wait(sim *s, int node, const sim_mark *m, bool *passed);

/** Release what meetings hold. */
void sim_meetings_fini(sim *s);

/** Add a bar where they are wanted.  @return ECH_OK | ECH_E_NOMEM */
ech_status sim_add_bar(sim *s, const ech_bar *bar);

#endif
