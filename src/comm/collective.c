/* Collectives as bundles of streams (collective.h). */
#include "comm/collective.h"

#include "base/checked.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
    [ECH_COLL_ALL_REDUCE] = "all_reduce",
    [ECH_COLL_REDUCE_SCATTER] = "reduce_scatter",
    [ECH_COLL_ALL_GATHER] = "all_gather",
    [ECH_COLL_SUM_SMALL] = "sum_small",
    [ECH_COLL_SEND] = "send",
    [ECH_COLL_RECV] = "recv",
};

const char *ech_coll_name(ech_coll_kind kind)
{
    return (unsigned)kind <= ECH_COLL_RECV ? kind_names[kind] : "no collective";
}

bool ech_coll_is_p2p(ech_coll_kind kind)
{
    return kind == ECH_COLL_SEND || kind == ECH_COLL_RECV;
}

static bool is_split(ech_coll_kind kind)
{
    return kind == ECH_COLL_ALL_REDUCE || kind == ECH_COLL_REDUCE_SCATTER ||
           kind == ECH_COLL_ALL_GATHER;
}

static bool is_reduction(ech_coll_kind kind)
{
    return kind == ECH_COLL_ALL_REDUCE || kind == ECH_COLL_REDUCE_SCATTER;
}

static ech_stream *stream_of(const ech_coll_slot *slot, int peer, ech_stream_kind kind)
{
    return &slot->peers[(ptrdiff_t)peer * ECH_COMM_STREAMS + (int)kind];
}

/* --- planning --- */

/* Elements of member i's part: one of those that the kind deals out, or all. */
static int64_t part_elems(const ech_leg *leg, int i)
{
    if (!is_split(leg->kind))
        return leg->n;
    const ech_range part = ech_split(leg->n, leg->who->size, i);
    return part.end - part.begin;
}

static int64_t pieces_of(const ech_leg *leg, int i)
{
    return leg->piece > 0 ? ech_ceil_div(part_elems(leg, i), leg->piece) : 0;
}

static void plan_peer(ech_coll_slot *slot, int peer)
{
    const ech_coll_kind kind = slot->leg.kind;
    const bool is_whole = kind != ECH_COLL_REDUCE_SCATTER;
    const int64_t mine = pieces_of(&slot->leg, slot->leg.who->index);
    const int64_t theirs = pieces_of(&slot->leg, peer);
    for (int k = 0; k < ECH_COMM_STREAMS; k++)
        *stream_of(slot, peer, (ech_stream_kind)k) = (ech_stream){0};
    if (ech_coll_is_p2p(kind) && peer != slot->coll.peer)
        return;
    if (is_reduction(kind)) {
        stream_of(slot, peer, ECH_STREAM_PART_IN)->total = mine;
        stream_of(slot, peer, ECH_STREAM_PART_OUT)->total = theirs;
    }
    if (is_whole && kind != ECH_COLL_SEND)
        stream_of(slot, peer, ECH_STREAM_WHOLE_IN)->total = theirs;
    if (is_whole && kind != ECH_COLL_RECV)
        stream_of(slot, peer, ECH_STREAM_WHOLE_OUT)->total = mine;
}

void ech_coll_plan(ech_coll_slot *slot)
{
    const ech_leg *leg = &slot->leg;
    const ech_members *who = leg->who;
    slot->summed = 0;
    slot->to_sum = is_reduction(leg->kind) && who->size > 1 ? pieces_of(leg, who->index) : 0;
    for (int p = 0; p < who->size; p++)
        if (p != who->index)
            plan_peer(slot, p);
}

/* --- where a piece lies --- */

typedef struct piece {
    void *at;
    size_t bytes;
} piece;

static size_t width_of(const ech_coll_slot *slot)
{
    return ech_dtype_bytes(slot->coll.dtype);
}

static int64_t piece_elems(const ech_leg *leg, int owner, int64_t p)
{
    const int64_t left = part_elems(leg, owner) - p * leg->piece;
    return left < leg->piece ? left : leg->piece;
}

static unsigned char *buf_at(const ech_coll_slot *slot, int owner, int64_t p)
{
    const ech_leg *leg = &slot->leg;
    const int64_t begin = leg->kind == ECH_COLL_ALL_REDUCE
                              ? ech_split(leg->n, leg->who->size, owner).begin
                              : owner * leg->part_step;
    return leg->buf + (size_t)(begin + p * leg->piece_step) * width_of(slot);
}

/* Where piece p of my part stands: what a reduction makes of it, what a gather sends. */
static unsigned char *own_at(const ech_coll_slot *slot, int64_t p)
{
    const ech_leg *leg = &slot->leg;
    if (leg->part)
        return leg->part + (size_t)(p * leg->piece) * width_of(slot);
    return buf_at(slot, leg->who->index, p);
}

/* Room for a peer's vector: rounds of chunks for a reduction, one of whole vectors. */
static unsigned char *staging_at(const ech_coll_slot *slot, int peer, int64_t p)
{
    const ech_leg *leg = &slot->leg;
    const int64_t vector = (p % ECH_COMM_DEPTH) * leg->who->size + peer;
    return leg->staging + (size_t)(vector * leg->piece) * width_of(slot);
}

static piece piece_of(const ech_coll_slot *slot, int peer, ech_stream_kind kind, int64_t p)
{
    const ech_leg *leg = &slot->leg;
    const bool is_mine = kind == ECH_STREAM_PART_IN || kind == ECH_STREAM_WHOLE_OUT;
    const int owner = is_mine ? leg->who->index : peer;
    const bool is_staged = kind == ECH_STREAM_PART_IN ||
                           (kind == ECH_STREAM_WHOLE_IN && leg->kind == ECH_COLL_SUM_SMALL);
    const size_t bytes = (size_t)piece_elems(leg, owner, p) * width_of(slot);
    if (is_staged)
        return (piece){staging_at(slot, peer, p), bytes};
    return (piece){is_mine ? own_at(slot, p) : buf_at(slot, owner, p), bytes};
}

/* --- moving a stream --- */

/* Pieces of a stream that may be posted by now. */
static int64_t gate_of(const ech_coll_slot *slot, int peer, ech_stream_kind kind)
{
    const int64_t total = stream_of(slot, peer, kind)->total;
    int64_t gate = total;
    if (!is_reduction(slot->leg.kind))
        return total;
    if (kind == ECH_STREAM_PART_IN) /* no more than staging holds */
        gate = slot->summed + ECH_COMM_DEPTH;
    else if (kind == ECH_STREAM_WHOLE_IN) /* overwrites my contribution */
        gate = stream_of(slot, peer, ECH_STREAM_PART_OUT)->done;
    else if (kind == ECH_STREAM_WHOLE_OUT)
        gate = slot->summed;
    return gate < total ? gate : total;
}

static void count_sent(ech_comm *comm, ech_axis axis, int rank, size_t bytes)
{
    comm->sent.wire_bytes[axis] += (int64_t)bytes;
    comm->sent.messages[axis]++;
    if (rank / comm->node_ranks != comm->t->rank / comm->node_ranks)
        comm->sent.node_bytes[axis] += (int64_t)bytes;
}

static ech_status post_piece(ech_comm *comm, ech_coll_slot *slot, int peer, ech_stream_kind kind)
{
    ech_stream *s = stream_of(slot, peer, kind);
    const piece what = piece_of(slot, peer, kind, s->posted);
    const bool is_part = kind == ECH_STREAM_PART_IN || kind == ECH_STREAM_PART_OUT;
    const int tag = is_part ? slot->tag : slot->tag + 1;
    const int rank = slot->leg.who->rank[peer];
    const ech_axis axis = slot->coll.axis;
    ech_p2p_request *request = &s->request[s->posted % ECH_COMM_DEPTH];
    if (kind == ECH_STREAM_PART_IN || kind == ECH_STREAM_WHOLE_IN) {
        ECH_TRY(comm->t->irecv(comm->t, axis, rank, tag, what.at, what.bytes, request));
    } else {
        ECH_TRY(comm->t->isend(comm->t, axis, rank, tag, what.at, what.bytes, request));
        count_sent(comm, axis, rank, what.bytes);
    }
    s->posted++;
    comm->activity++;
    return ECH_OK;
}

static ech_status complete_stream(ech_comm *comm, ech_stream *s)
{
    bool is_done = true;
    while (is_done && s->done < s->posted) {
        ECH_TRY(comm->t->test(comm->t, &s->request[s->done % ECH_COMM_DEPTH], &is_done));
        s->done += is_done;
        comm->activity += is_done;
    }
    return ECH_OK;
}

/* Peers in turn from the next one on, so that not all members talk to the same one at first. */
static int peer_in_turn(const ech_members *who, int k)
{
    return (who->index + k) % who->size;
}

static ech_status complete_all(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_members *who = slot->leg.who;
    for (int k = 1; k < who->size; k++)
        for (int kind = 0; kind < ECH_COMM_STREAMS; kind++)
            ECH_TRY(complete_stream(comm,
                                    stream_of(slot, peer_in_turn(who, k), (ech_stream_kind)kind)));
    return ECH_OK;
}

/* Receives first: a message that finds its receive is not copied twice. */
static ech_status post_all(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_members *who = slot->leg.who;
    for (int kind = 0; kind < ECH_COMM_STREAMS; kind++)
        for (int k = 1; k < who->size; k++) {
            const int peer = peer_in_turn(who, k);
            const ech_stream *s = stream_of(slot, peer, (ech_stream_kind)kind);
            const int64_t gate = gate_of(slot, peer, (ech_stream_kind)kind);
            while (s->posted < gate && s->posted - s->done < ECH_COMM_DEPTH)
                ECH_TRY(post_piece(comm, slot, peer, (ech_stream_kind)kind));
        }
    return ECH_OK;
}

/* --- summing --- */

static bool has_parts(const ech_coll_slot *slot, int64_t p)
{
    const ech_members *who = slot->leg.who;
    for (int i = 0; i < who->size; i++)
        if (i != who->index && stream_of(slot, i, ECH_STREAM_PART_IN)->done <= p)
            return false;
    return true;
}

/* Sum piece p of every member along the tree; mine is read where it lies. */
static void sum_piece(ech_comm *comm, const ech_coll_slot *slot, int64_t p, void *out)
{
    const ech_members *who = slot->leg.who;
    for (int i = 0; i < who->size; i++)
        comm->vectors[i] = staging_at(slot, i, p);
    comm->vectors[who->index] = buf_at(slot, who->index, p);
    ech_tree_sum(&who->tree, slot->coll.dtype, comm->vectors, who->size,
                 piece_elems(&slot->leg, who->index, p), out);
    comm->activity++;
}

static void sum_parts(ech_comm *comm, ech_coll_slot *slot)
{
    while (slot->summed < slot->to_sum && has_parts(slot, slot->summed)) {
        sum_piece(comm, slot, slot->summed, own_at(slot, slot->summed));
        slot->summed++;
    }
}

static bool is_through(const ech_coll_slot *slot)
{
    const ech_members *who = slot->leg.who;
    for (int i = 0; i < who->size; i++)
        for (int kind = 0; i != who->index && kind < ECH_COMM_STREAMS; kind++) {
            const ech_stream *s = stream_of(slot, i, (ech_stream_kind)kind);
            if (s->done < s->total)
                return false;
        }
    return slot->summed == slot->to_sum;
}

/* --- ending --- */

/* My part of one piece, between buf and where it is kept apart from it. */
static void copy_part(const ech_coll_slot *slot)
{
    const ech_leg *leg = &slot->leg;
    unsigned char *in_buf = buf_at(slot, leg->who->index, 0);
    const size_t bytes = (size_t)part_elems(leg, leg->who->index) * width_of(slot);
    if (leg->part == NULL || leg->part == in_buf || bytes == 0)
        return;
    if (leg->kind == ECH_COLL_ALL_GATHER)
        memcpy(in_buf, leg->part, bytes);
    else
        memcpy(leg->part, in_buf, bytes);
}

/* All vectors are here and mine has left, so the sum may replace it. */
static void sum_small(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_members *who = slot->leg.who;
    const ech_coll *c = &slot->coll;
    if (c->n == 0)
        return;
    if (c->staging && who->size > 1) /* who reads the staging finds mine there too */
        memcpy(staging_at(slot, who->index, 0), c->buf, (size_t)c->n * width_of(slot));
    sum_piece(comm, slot, 0, c->sum);
}

/* Alone, the sum is mine. */
static void finish_leg(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_leg *leg = &slot->leg;
    if (leg->kind == ECH_COLL_SUM_SMALL)
        sum_small(comm, slot);
    if (leg->kind == ECH_COLL_ALL_GATHER ||
        (leg->kind == ECH_COLL_REDUCE_SCATTER && leg->who->size == 1))
        copy_part(slot);
    comm->activity++;
}

ech_status ech_coll_advance(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_group *g = &comm->group[slot->coll.axis];
    for (;;) {
        ECH_TRY(complete_all(comm, slot));
        sum_parts(comm, slot);
        ECH_TRY(post_all(comm, slot));
        if (!is_through(slot))
            return ECH_OK;
        finish_leg(comm, slot);
        if (!ech_coll_leg(g, &slot->coll, slot->step + 1, &slot->leg))
            break;
        slot->step++;
        ech_coll_plan(slot);
    }
    slot->state = ECH_COLL_FINISHED;
    return ECH_OK;
}

/* --- describing --- */

/* Append; what does not fit is cut. */
static void append(char *buf, size_t n, const char *text)
{
    const size_t used = strlen(buf);
    (void)snprintf(buf + used, n - used, "%s", text);
}

/* What peer i is waited for in two streams, or "". */
static void describe_peer(const ech_coll_slot *slot, int i, const ech_stream_kind kinds[2],
                          char *buf, size_t n)
{
    static const char *const words[] = {
        [ECH_STREAM_PART_IN] = "contribution of",
        [ECH_STREAM_WHOLE_IN] = "data of",
        [ECH_STREAM_PART_OUT] = "contribution not taken by",
        [ECH_STREAM_WHOLE_OUT] = "data not taken by",
    };
    buf[0] = '\0';
    for (int k = 0; k < 2 && i != slot->leg.who->index; k++) {
        const ech_stream *s = stream_of(slot, i, kinds[k]);
        if (s->done >= s->posted)
            continue;
        (void)snprintf(buf, n, "%s rank %d (piece %lld of %lld)", words[kinds[k]],
                       slot->leg.who->rank[i], (long long)s->done + 1, (long long)s->total);
        return;
    }
}

/* Append the peers waited for in two streams; false if there is none. */
static bool describe_peers(const ech_coll_slot *slot, const ech_stream_kind kinds[2], char *buf,
                           size_t n)
{
    const char *between = ": waits for ";
    char one[96];
    for (int i = 0; i < slot->leg.who->size; i++) {
        describe_peer(slot, i, kinds, one, sizeof one);
        if (one[0] == '\0')
            continue;
        append(buf, n, between);
        append(buf, n, one);
        between = ", ";
    }
    return between[0] == ',';
}

/* Who owes contributions is to blame for sums that others cannot send, so it comes first. */
const char *ech_coll_describe(const ech_comm *comm, int request, char *buf, size_t n)
{
    static const ech_stream_kind parts[2] = {ECH_STREAM_PART_IN, ECH_STREAM_PART_OUT};
    static const ech_stream_kind wholes[2] = {ECH_STREAM_WHOLE_IN, ECH_STREAM_WHOLE_OUT};
    ECH_ASSERT(request >= 0 && request < comm->max_in_flight && n > 0);
    const ech_coll_slot *slot = &comm->slot[request];
    const ech_coll *c = &slot->coll;
    if (slot->state != ECH_COLL_OPEN) {
        (void)snprintf(buf, n, "request %d: %s", request,
                       slot->state == ECH_COLL_FREE ? "not in use" : "finished");
        return buf;
    }
    const ech_group *g = &comm->group[c->axis];
    const ech_members *who = slot->leg.who;
    (void)snprintf(buf, n, "%s over %s of %lld %s%s", ech_coll_name(c->kind),
                   ech_axis_name(c->axis), (long long)c->n, ech_dtype_name(c->dtype),
                   who == &g->near  ? ", inside nodes"
                   : who == &g->far ? ", between nodes"
                                    : "");
    if (!describe_peers(slot, parts, buf, n) && !describe_peers(slot, wholes, buf, n))
        append(buf, n, ": waits for older ones on its axis");
    return buf;
}
