/* Collectives as bundles of streams (collective.h). */
#include "comm/collective.h"

#include "base/checked.h"
#include "program/op.h" /* ech_reduce_chunk_elems */

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

/* Elements that member i owns: its part of a split buffer, or all of a whole one. */
static ech_range part_of(const ech_group *g, const ech_coll *c, int i)
{
    return is_split(c->kind) ? ech_split(c->n, g->size, i) : (ech_range){0, c->n};
}

static int64_t pieces_of(const ech_group *g, const ech_coll_slot *slot, int i)
{
    const ech_range part = part_of(g, &slot->coll, i);
    return slot->piece > 0 ? ech_ceil_div(part.end - part.begin, slot->piece) : 0;
}

static void plan_peer(const ech_group *g, ech_coll_slot *slot, int peer)
{
    const ech_coll_kind kind = slot->coll.kind;
    const bool is_whole = kind != ECH_COLL_REDUCE_SCATTER;
    const int64_t mine = pieces_of(g, slot, g->index);
    const int64_t theirs = pieces_of(g, slot, peer);
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

void ech_coll_plan(const ech_group *g, ech_coll_slot *slot)
{
    const ech_coll *c = &slot->coll;
    /* Unless it is staged, a message is as long as what it carries. */
    slot->piece = is_reduction(c->kind) ? ech_reduce_chunk_elems(c->n, g->size) : c->n;
    slot->summed = 0;
    slot->to_sum = is_reduction(c->kind) && g->size > 1 ? pieces_of(g, slot, g->index) : 0;
    for (int p = 0; p < g->size; p++)
        if (p != g->index)
            plan_peer(g, slot, p);
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

static int64_t piece_elems(const ech_group *g, const ech_coll_slot *slot, int owner, int64_t p)
{
    const ech_range part = part_of(g, &slot->coll, owner);
    const int64_t left = part.end - part.begin - p * slot->piece;
    return left < slot->piece ? left : slot->piece;
}

static unsigned char *buf_at(const ech_group *g, const ech_coll_slot *slot, int owner, int64_t p)
{
    const ech_range part = part_of(g, &slot->coll, owner);
    return (unsigned char *)slot->coll.buf +
           (size_t)(part.begin + p * slot->piece) * width_of(slot);
}

/* Room for a peer's vector: rounds of chunks for a reduction, one of whole vectors. */
static unsigned char *staging_at(const ech_group *g, const ech_coll_slot *slot, int peer, int64_t p)
{
    const int64_t vector = (p % ECH_COMM_DEPTH) * g->size + peer;
    return (unsigned char *)slot->coll.staging + (size_t)(vector * slot->piece) * width_of(slot);
}

static piece piece_of(const ech_group *g, const ech_coll_slot *slot, int peer, ech_stream_kind kind,
                      int64_t p)
{
    const bool is_mine = kind == ECH_STREAM_PART_IN || kind == ECH_STREAM_WHOLE_OUT;
    const int owner = is_mine ? g->index : peer;
    const bool is_staged = kind == ECH_STREAM_PART_IN ||
                           (kind == ECH_STREAM_WHOLE_IN && slot->coll.kind == ECH_COLL_SUM_SMALL);
    return (piece){is_staged ? staging_at(g, slot, peer, p) : buf_at(g, slot, owner, p),
                   (size_t)piece_elems(g, slot, owner, p) * width_of(slot)};
}

/* --- moving a stream --- */

/* Pieces of a stream that may be posted by now. */
static int64_t gate_of(const ech_coll_slot *slot, int peer, ech_stream_kind kind)
{
    const int64_t total = stream_of(slot, peer, kind)->total;
    int64_t gate = total;
    if (!is_reduction(slot->coll.kind))
        return total;
    if (kind == ECH_STREAM_PART_IN) /* no more than staging holds */
        gate = slot->summed + ECH_COMM_DEPTH;
    else if (kind == ECH_STREAM_WHOLE_IN) /* overwrites my contribution */
        gate = stream_of(slot, peer, ECH_STREAM_PART_OUT)->done;
    else if (kind == ECH_STREAM_WHOLE_OUT)
        gate = slot->summed;
    return gate < total ? gate : total;
}

static ech_status post_piece(ech_comm *comm, ech_coll_slot *slot, int peer, ech_stream_kind kind)
{
    const ech_group *g = &comm->group[slot->coll.axis];
    ech_stream *s = stream_of(slot, peer, kind);
    const piece what = piece_of(g, slot, peer, kind, s->posted);
    const bool is_part = kind == ECH_STREAM_PART_IN || kind == ECH_STREAM_PART_OUT;
    const int tag = is_part ? slot->tag : slot->tag + 1;
    const int rank = g->member[peer];
    const ech_axis axis = slot->coll.axis;
    ech_p2p_request *request = &s->request[s->posted % ECH_COMM_DEPTH];
    if (kind == ECH_STREAM_PART_IN || kind == ECH_STREAM_WHOLE_IN) {
        ECH_TRY(comm->t->irecv(comm->t, axis, rank, tag, what.at, what.bytes, request));
    } else {
        ECH_TRY(comm->t->isend(comm->t, axis, rank, tag, what.at, what.bytes, request));
        comm->sent.wire_bytes[axis] += (int64_t)what.bytes;
        comm->sent.messages[axis]++;
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
static int peer_in_turn(const ech_group *g, int k)
{
    return (g->index + k) % g->size;
}

static ech_status complete_all(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_group *g = &comm->group[slot->coll.axis];
    for (int k = 1; k < g->size; k++)
        for (int kind = 0; kind < ECH_COMM_STREAMS; kind++)
            ECH_TRY(
                complete_stream(comm, stream_of(slot, peer_in_turn(g, k), (ech_stream_kind)kind)));
    return ECH_OK;
}

/* Receives first: a message that finds its receive is not copied twice. */
static ech_status post_all(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_group *g = &comm->group[slot->coll.axis];
    for (int kind = 0; kind < ECH_COMM_STREAMS; kind++)
        for (int k = 1; k < g->size; k++) {
            const int peer = peer_in_turn(g, k);
            const ech_stream *s = stream_of(slot, peer, (ech_stream_kind)kind);
            const int64_t gate = gate_of(slot, peer, (ech_stream_kind)kind);
            while (s->posted < gate && s->posted - s->done < ECH_COMM_DEPTH)
                ECH_TRY(post_piece(comm, slot, peer, (ech_stream_kind)kind));
        }
    return ECH_OK;
}

/* --- summing --- */

static bool has_part(const ech_group *g, const ech_coll_slot *slot, int64_t p)
{
    for (int i = 0; i < g->size; i++)
        if (i != g->index && stream_of(slot, i, ECH_STREAM_PART_IN)->done <= p)
            return false;
    return true;
}

/* Sum piece p of every member along the tree; mine is read where it lies. */
static void sum_piece(ech_comm *comm, const ech_coll_slot *slot, int64_t p, void *out)
{
    const ech_group *g = &comm->group[slot->coll.axis];
    for (int i = 0; i < g->size; i++)
        comm->vectors[i] = staging_at(g, slot, i, p);
    comm->vectors[g->index] = buf_at(g, slot, g->index, p);
    ech_tree_sum(&g->tree, slot->coll.dtype, comm->vectors, g->size,
                 piece_elems(g, slot, g->index, p), out);
    comm->activity++;
}

static void sum_parts(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_group *g = &comm->group[slot->coll.axis];
    while (slot->summed < slot->to_sum && has_part(g, slot, slot->summed)) {
        sum_piece(comm, slot, slot->summed, buf_at(g, slot, g->index, slot->summed));
        slot->summed++;
    }
}

static bool is_through(const ech_group *g, const ech_coll_slot *slot)
{
    for (int i = 0; i < g->size; i++)
        for (int kind = 0; i != g->index && kind < ECH_COMM_STREAMS; kind++) {
            const ech_stream *s = stream_of(slot, i, (ech_stream_kind)kind);
            if (s->done < s->total)
                return false;
        }
    return slot->summed == slot->to_sum;
}

/* All vectors are here and mine has left, so the sum may replace it.  Alone, the sum is mine. */
static void finish(ech_comm *comm, ech_coll_slot *slot)
{
    const ech_group *g = &comm->group[slot->coll.axis];
    const ech_coll *c = &slot->coll;
    if (c->kind == ECH_COLL_SUM_SMALL && c->n > 0) {
        if (c->staging && g->size > 1) /* who reads the staging finds mine there too */
            memcpy(staging_at(g, slot, g->index, 0), c->buf, (size_t)c->n * width_of(slot));
        sum_piece(comm, slot, 0, c->sum);
    }
    slot->state = ECH_COLL_FINISHED;
    comm->activity++;
}

ech_status ech_coll_advance(ech_comm *comm, ech_coll_slot *slot)
{
    ECH_TRY(complete_all(comm, slot));
    sum_parts(comm, slot);
    ECH_TRY(post_all(comm, slot));
    if (is_through(&comm->group[slot->coll.axis], slot))
        finish(comm, slot);
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
static void describe_peer(const ech_group *g, const ech_coll_slot *slot, int i,
                          const ech_stream_kind kinds[2], char *buf, size_t n)
{
    static const char *const words[] = {
        [ECH_STREAM_PART_IN] = "contribution of",
        [ECH_STREAM_WHOLE_IN] = "data of",
        [ECH_STREAM_PART_OUT] = "contribution not taken by",
        [ECH_STREAM_WHOLE_OUT] = "data not taken by",
    };
    buf[0] = '\0';
    for (int k = 0; k < 2 && i != g->index; k++) {
        const ech_stream *s = stream_of(slot, i, kinds[k]);
        if (s->done >= s->posted)
            continue;
        (void)snprintf(buf, n, "%s rank %d (piece %lld of %lld)", words[kinds[k]], g->member[i],
                       (long long)s->done + 1, (long long)s->total);
        return;
    }
}

/* Append the peers waited for in two streams; false if there is none. */
static bool describe_peers(const ech_group *g, const ech_coll_slot *slot,
                           const ech_stream_kind kinds[2], char *buf, size_t n)
{
    const char *between = ": waits for ";
    char one[96];
    for (int i = 0; i < g->size; i++) {
        describe_peer(g, slot, i, kinds, one, sizeof one);
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
    const ech_group *g = &comm->group[c->axis];
    if (slot->state != ECH_COLL_OPEN) {
        (void)snprintf(buf, n, "request %d: %s", request,
                       slot->state == ECH_COLL_FREE ? "not in use" : "finished");
        return buf;
    }
    (void)snprintf(buf, n, "%s over %s of %lld %s", ech_coll_name(c->kind), ech_axis_name(c->axis),
                   (long long)c->n, ech_dtype_name(c->dtype));
    if (!describe_peers(g, slot, parts, buf, n) && !describe_peers(g, slot, wholes, buf, n))
        append(buf, n, ": waits for older ones on its axis");
    return buf;
}
