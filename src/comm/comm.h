/** @file comm/comm.h
 *  Ranks talking: point-to-point messages from a transport (self, inproc, mpi, later nccl), and the
 *  collectives built on them, so that traffic is exact and the order of summation is ours.
 *
 *  One thread per process calls this.  A collective is started, progressed and done; nothing here
 *  blocks except where said.  Within a group all members start the same collectives in the same
 *  order.  No allocation after create: staging memory is the caller's. */
#ifndef ECH_COMM_COMM_H
#define ECH_COMM_COMM_H

#include "base/dtype.h"    /* ech_dtype */
#include "layout/layout.h" /* ech_layout, ech_axis, ech_tree */

/** Handle of one message in flight, filled by the transport. */
typedef struct ech_p2p_request {
    int64_t word[4];
} ech_p2p_request;

/** A transport as one rank sees it.  Messages between two ranks with the same (axis, tag) match in
 *  order; sends need not be buffered (rendezvous). */
typedef struct ech_transport ech_transport;
struct ech_transport {
    const char *name;
    int rank, size; /**< world */
    void *state;    /**< owned by the transport */
    /** Of exchange and barrier, 0: none (the default); its user sets it as the run goes. */
    double deadline_s;
    /** Rank 0 may take longer than that: it alone reads or writes files meanwhile. */
    bool spares_root;
    /** Asked of a missing rank that no deadline concerns (it writes files): is it known to be
     *  stopped or gone, for so long that it is not waited for any more?  NULL: not known. */
    bool (*is_lost)(void *user, int rank);
    void *lost_user; /**< borrowed, handed to is_lost */
    /** Start sending bytes to a world rank; buf stays valid until done.  Seven parameters, as
     *  MPI_Isend has: a message is named by all of them. */
    ech_status (*isend)(ech_transport *t, ech_axis axis, int peer, int tag, const void *buf,
                        size_t bytes, ech_p2p_request *out);
    /** Start receiving exactly bytes. */
    ech_status (*irecv)(ech_transport *t, ech_axis axis, int peer, int tag, void *buf, size_t bytes,
                        ech_p2p_request *out);
    /** Is a request complete; a completed request is forgotten.  Never blocks. */
    ech_status (*test)(ech_transport *t, ech_p2p_request *request, bool *done);
    /** Start-up only, blocking, not counted as step traffic: every rank's value lands in
     *  out[size].  ECH_E_UNSUPPORTED on inproc (the driver owns all ranks there); ECH_E_TIMEOUT
     *  names the ranks that were missing after deadline_s: the job can only be ended then. */
    ech_status (*exchange)(ech_transport *t, const void *value, size_t bytes, void *out);
    /** Blocking barrier, start-up and end only. */
    ech_status (*barrier)(ech_transport *t);
    /** End all processes of the job now with this exit code (MPI_Abort); NULL: not needed. */
    void (*abort)(ech_transport *t, int exit_code);
    void (*destroy)(ech_transport *t);
};

/** Alone: every group has one member, no message is ever sent.
 *  @param out  destroyed by the caller
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_transport_self(ech_transport **out);

/** Virtual ranks in one process: n transports that share a mailbox (rendezvous, memcpy).
 *  @param n    ranks, >= 1
 *  @param out  [n], destroyed one by one by the caller
 *  @return ECH_OK | ECH_E_ILLEGAL (n) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_transport_inproc(int n, ech_transport **out);

/** Symbol the mpi module exports: ech_status ech_transport_module(ech_transport **out); it calls
 *  MPI_Init_thread on creation and MPI_Finalize on destroy. */
#define ECH_TRANSPORT_MODULE_SYMBOL "ech_transport_module"

/** Sent bytes of one rank by axis since the last reset. */
typedef struct ech_sent {
    int64_t payload_bytes[ECH_N_AXES];
    int64_t wire_bytes[ECH_N_AXES]; /**< what was handed to isend */
    int64_t node_bytes[ECH_N_AXES]; /**< of it, for ranks of another node (ech_layout.node_ranks) */
    int64_t messages[ECH_N_AXES];
} ech_sent;

/** A rank's communicator: transport, groups of the layout, counters.  Opaque. */
typedef struct ech_comm ech_comm;

/** Collective kinds. */
typedef enum ech_coll_kind {
    ECH_COLL_ALL_REDUCE, /**< reduce-scatter + all-gather in place, elements split by ech_split */
    ECH_COLL_REDUCE_SCATTER, /**< my share of the sum of every buf goes to part */
    ECH_COLL_ALL_GATHER,     /**< everybody's part goes to buf, in group order */
    ECH_COLL_SUM_SMALL,      /**< all-gather of whole vectors, then local tree sum */
    ECH_COLL_SEND,
    ECH_COLL_RECV
} ech_coll_kind;

/** What to do; copied at start.  In a group of G, the share of member i of reduce-scatter and
 *  all-gather is elements [i n/G, (i+1) n/G) of buf. */
typedef struct ech_coll {
    ech_coll_kind kind;
    ech_axis axis;
    ech_dtype dtype;
    int64_t n; /**< elements of buf; REDUCE_SCATTER, ALL_GATHER: a multiple of the group's size G */
    void *buf; /**< borrowed until done; in: REDUCE_SCATTER, SUM_SMALL, SEND; out: ALL_GATHER, RECV;
                     in/out: ALL_REDUCE */
    void *part; /**< [n / G] borrowed until done; my share: REDUCE_SCATTER out, ALL_GATHER in.
                     Exactly where it is in buf (nothing is copied then), or apart from buf */
    void *sum;  /**< SUM_SMALL: out [n]; buf or apart from it */
    void
        *staging; /**< reductions: ech_reduce_staging_elems; SUM_SMALL: [group, n], afterwards every
                      member's values */
    size_t staging_bytes;
    int peer; /**< SEND, RECV: index in the group */
} ech_coll;

/** Communicator of transport t's rank in a layout (world sizes must agree, trees must fit).
 *  @param t    borrowed
 *  @param l    copied
 *  @param max_in_flight  collectives started and not yet tested as done, at most; below 16000
 *  @param out  owned by the caller, ech_comm_destroy
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_ILLEGAL */
ECH_MUST_USE ech_status ech_comm_create(ech_transport *t, const ech_layout *l, int max_in_flight,
                                        ech_comm **out);

/** Release; accepts NULL, nulls the pointer.  Nothing may be in flight. */
void ech_comm_destroy(ech_comm **comm);

/** Members of this rank's group along an axis. */
int ech_comm_group_size(const ech_comm *comm, ech_axis axis);

/** This rank's place in that group, in the order in which contributions are summed. */
int ech_comm_group_index(const ech_comm *comm, ech_axis axis);

/** Start a collective.  *Collective over the group of coll->axis*, not blocking.  All members start
 *  the same ones in the same order; SEND and RECV between two members match in the order in which
 *  each of the two starts them.  In a group of one no message is sent and a sum is what went in,
 *  copied where it goes elsewhere.
 *  Traffic: all-reduce 2 n (G-1)/G elements, reduce-scatter and all-gather n (G-1)/G, sum-small
 *  n (G-1); exactly ech_op_traffic (program/op.h).
 *
 *  Nodes: where runs of k neighbours in the group share one (ech_layout_node_run) and k is the
 *  product of the first factors of the axis's tree, the first three go in two levels, inside runs
 *  and between them: bytes sent and bits are the same, but 1/k of the flat bytes leave a node.
 *  Otherwise k is the largest such product that divides the run; where there is none they go flat.
 *  An all-reduce of n that is no multiple of G takes a round more, for the n % G elements left.
 *  @param comm     this rank's
 *  @param coll     copied; its memory is borrowed until done
 *  @param request  out: handle, >= 0
 *  @return ECH_OK
 *        | ECH_E_ILLEGAL      sizes, part, staging, peer, too many in flight; nothing was sent
 *        | ECH_E_UNSUPPORTED  a sum of this dtype; nothing was sent
 *        | ECH_E_COMM         naming both sides: the communicator is of no further use */
ECH_MUST_USE ech_status ech_coll_start(ech_comm *comm, const ech_coll *coll, int *request);

/** Progress this collective, and the others in flight while it is not finished: peers may wait for
 *  one of those before they come to this one.
 *  @return ECH_DONE     finished, the handle is free again
 *        | ECH_BLOCKED  it waits for peers
 *        | ECH_E_COMM */
ECH_MUST_USE ech_status ech_coll_test(ech_comm *comm, int request);

/** Is it finished, though not yet tested; nothing is progressed. */
bool ech_coll_is_done(const ech_comm *comm, int request);

/** Progress everything in flight a little.  @return ECH_OK | ECH_E_COMM */
ECH_MUST_USE ech_status ech_comm_progress(ech_comm *comm);

/** A number that grows whenever a message is posted, completed or summed: where no rank's grows in
 *  a whole round and all are blocked, they wait for each other. */
int64_t ech_comm_activity(const ech_comm *comm);

/** Words for a stuck request, naming the peers that are missing: "all_reduce over dp of 1024 fp32:
 *  waits for contribution of rank 3 (piece 2 of 5)"; cut to n, returns buf. */
const char *ech_coll_describe(const ech_comm *comm, int request, char *buf, size_t n);

/** Counters, borrowed: they go on counting. */
const ech_sent *ech_comm_sent(const ech_comm *comm);

/** Count from zero again. */
void ech_comm_sent_reset(ech_comm *comm);

/** All ranks return the same status: the lowest of their own.  *Collective over the world*,
 *  blocking; start-up and host decisions outside the step only.  ECH_E_UNSUPPORTED on inproc with
 *  several ranks, as exchange. */
ECH_MUST_USE ech_status ech_comm_agree(ech_comm *comm, ech_status mine);

/** Sum n vectors along the nested tree: consecutive runs of factor[0] vectors are summed first,
 *  then runs of factor[1] of those sums, and so on; m items of one run are the sum of their first
 *  ceil(m/2) plus the sum of the rest.  Element by element, so cutting vectors changes no bit.
 *  Pure; one pass over memory.
 *  @param tree   its factors multiply to n
 *  @param dtype  fp32, fp64 or int64 (wraps); sums are in the type itself
 *  @param in     [n] vectors of elems elements
 *  @param n      >= 1
 *  @param elems  of each vector
 *  @param out    [elems]; any of the vectors, or apart from all of them */
void ech_tree_sum(const ech_tree *tree, ech_dtype dtype, void *const *in, int n, int64_t elems,
                  void *out);

#endif
