/* Where ranks meet: the k-th collective of a group, the k-th message from one rank to another. */
#include "program/match_private.h"

#include <stdio.h>

void match_enqueue(sim *s, int node)
{
    if (s->node[node].is_queued)
        return;
    s->node[node].is_queued = true;
    s->queue[s->n_queue++] = node;
}

static communicator *comm_of(const sim *s, int node, ech_axis axis)
{
    return &s->comm[axis][ech_mesh_member(&s->nodes, node, axis, 0)];
}

open_message *match_open_of(const sim *s, int node, int at)
{
    const int id = s->klass[s->node[node].klass].event[at].request;
    return &s->open[(size_t)node * ((size_t)s->n_requests + 1) + (size_t)id];
}

static bool is_same_shape(const ech_operand *a, const ech_operand *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; d < a->rank && same; d++)
        same = a->dim[d].bound == b->dim[d].bound && a->dim[d].extent == b->dim[d].extent;
    return same;
}

static bool is_same_collective(const ech_op *a, const ech_op *b)
{
    bool same = a->kind == b->kind && a->n_args == b->n_args;
    for (int i = 0; i < a->n_args && same; i++)
        same = is_same_shape(&a->arg[i], &b->arg[i]);
    return same;
}

static ech_status check_meeting(const sim *s, int node, int at, const meeting *m, int64_t k)
{
    char nth[24];
    char ranks[2][160];
    char places[2][256];
    char ops[2][128];
    const ech_op *mine = match_op_at(s, s->node[node].klass, at);
    const ech_op *theirs = match_op_at(s, s->node[m->node].klass, m->event);
    ECH_CHECK(
        is_same_collective(mine, theirs), ECH_E_PROOF,
        "the %s collective over %s is %s for %s (%s), but %s for %s (%s)",
        match_ordinal(k, nth, sizeof nth), ech_axis_name(mine->axis),
        match_what(theirs, ops[0], sizeof ops[0]), match_who(s, m->node, ranks[0], sizeof ranks[0]),
        match_where(s, m->node, m->event, places[0], sizeof places[0]),
        match_what(mine, ops[1], sizeof ops[1]), match_who(s, node, ranks[1], sizeof ranks[1]),
        match_where(s, node, at, places[1], sizeof places[1]));
    return ECH_OK;
}

static ech_status start_collective(sim *s, int node, int at, open_message *o)
{
    const ech_axis axis = match_op_at(s, s->node[node].klass, at)->axis;
    const int n = ech_mesh_size(&s->nodes, node, axis);
    if (n < s->nodes.degree[axis])
        return match_fault(s, node, at, "it is in no group there");
    o->channel = NONE;
    o->k = s->node[node].started[axis]++;
    s->count->collectives++;
    if (n == 1)
        return ECH_OK;
    communicator *c = comm_of(s, node, axis);
    if (o->k == c->n) {
        ECH_TRY(ech_grow(&c->meeting, (size_t)c->n, &c->capacity, sizeof *c->meeting));
        c->meeting[c->n++] = (meeting){node, at, 0};
    }
    meeting *m = &c->meeting[o->k];
    ECH_TRY(check_meeting(s, node, at, m, o->k));
    if (++m->arrived < n)
        return ECH_OK;
    c->done = o->k + 1;
    for (int i = 0; i < n; i++)
        match_enqueue(s, ech_mesh_member(&s->nodes, node, axis, i));
    return ECH_OK;
}

/* The other end of a message, by its index in the group. */
static ech_status eval_peer(const sim *s, int node, int at, int64_t *index)
{
    char rank[160];
    char place[256];
    int64_t coord[ECH_N_AXES];
    const int klass = s->node[node].klass;
    const ech_expr *e = &match_op_at(s, klass, at)->attr[0];
    if (e->n == 1 && e->node[0].op == ECH_EXPR_CONST) { /* of most */
        *index = e->node[0].value;
        return ECH_OK;
    }
    ech_mesh_coords(&s->mesh, s->node[node].rank, coord);
    const ech_status st = ech_mesh_eval(e, coord, s->klass[klass].event[at].micro, index);
    return st >= 0 ? ECH_OK
                   : ech_error_prefix(st, "%s, %s: ", match_who(s, node, rank, sizeof rank),
                                      match_where(s, node, at, place, sizeof place));
}

static ech_status find_peer(const sim *s, int node, int at, int *peer)
{
    char why[96];
    int64_t index = 0;
    const ech_op *op = match_op_at(s, s->node[node].klass, at);
    ECH_TRY(eval_peer(s, node, at, &index));
    const int n = ech_mesh_size(&s->nodes, node, op->axis);
    const bool is_other =
        index >= 0 && index < n && index != ech_mesh_coord(&s->nodes, node, op->axis);
    if (!is_other) {
        (void)snprintf(why, sizeof why, "peer %lld of %d is no other member of the group",
                       (long long)index, n);
        return match_fault(s, node, at, why);
    }
    *peer = (int)index;
    return ECH_OK;
}

/* Raise ECH_E_PROOF: one end meets the other, and why they must not. */
static ech_status ends_fault(const sim *s, int node, int at, const end *other, const char *why)
{
    char ranks[2][160];
    char places[2][256];
    char ops[2][128];
    const ech_op *mine = match_op_at(s, s->node[node].klass, at);
    const ech_op *theirs = match_op_at(s, s->node[other->node].klass, other->event);
    return ECH_RAISE(ECH_E_PROOF, "%s of %s (%s) meets %s of %s (%s)%s",
                     match_what(mine, ops[0], sizeof ops[0]),
                     match_who(s, node, ranks[0], sizeof ranks[0]),
                     match_where(s, node, at, places[0], sizeof places[0]),
                     match_what(theirs, ops[1], sizeof ops[1]),
                     match_who(s, other->node, ranks[1], sizeof ranks[1]),
                     match_where(s, other->node, other->event, places[1], sizeof places[1]), why);
}

/* What a sender's chunk sends goes to one chunk of the receiver's, and to no other's. */
static ech_status check_chunks(channel *c, const chunk_pair *p, bool *fits)
{
    bool is_new = true;
    *fits = true;
    for (int i = 0; i < c->n_pairs; i++) {
        const chunk_pair *q = &c->pair[i];
        if (q->is_gradient != p->is_gradient)
            continue;
        *fits = *fits && (q->from == p->from) == (q->to == p->to);
        is_new = is_new && q->from != p->from;
    }
    if (!is_new || !*fits)
        return ECH_OK;
    ECH_TRY(ech_grow(&c->pair, (size_t)c->n_pairs, &c->pair_capacity, sizeof *c->pair));
    c->pair[c->n_pairs++] = *p;
    return ECH_OK;
}

/* The two ends are one message: as many elements of one type, placed alike, of one micro-batch. */
static ech_status check_ends(sim *s, int node, int at, const end *other, channel *c)
{
    bool fits;
    const int klass = s->node[node].klass;
    const int others = s->node[other->node].klass;
    const event *x = &s->klass[klass].event[at];
    const event *y = &s->klass[others].event[other->event];
    const ech_operand *a = &x->op->arg[0];
    const ech_operand *b = &y->op->arg[0];
    const bool sends = x->op->kind == ECH_OP_SEND_START;
    const ech_scale one = ech_placement_invariant().scale;
    if (a->dtype != b->dtype || ech_operand_elems(a) != ech_operand_elems(b))
        return ends_fault(s, node, at, other, "");
    if (!ech_placement_is_equal(&a->place, &b->place))
        return ends_fault(s, node, at, other, ": they are placed or scaled differently");
    if (x->micro != y->micro)
        return ends_fault(s, node, at, other, ": they are of different micro-batches");
    const chunk_pair pair = {sends ? x->chunk : y->chunk, sends ? y->chunk : x->chunk,
                             !ech_scale_is_equal(a->place.scale, one)};
    ECH_TRY(check_chunks(c, &pair, &fits));
    return fits ? ECH_OK
                : ends_fault(s, node, at, other,
                             ": an earlier message between them was of other chunks");
}

/* Put an end behind those that wait in a channel. */
static ech_status push_end(sim *s, channel *c, int node, int at)
{
    int id = s->free_end;
    if (id != NONE) {
        s->free_end = s->end[id].next;
    } else {
        ECH_TRY(ech_grow(&s->end, (size_t)s->n_ends, &s->end_capacity, sizeof *s->end));
        id = s->n_ends++;
    }
    s->end[id] = (end){node, at, NONE};
    if (c->last == NONE)
        c->first = id;
    else
        s->end[c->last].next = id;
    c->last = id;
    return ECH_OK;
}

static end pop_end(sim *s, channel *c)
{
    const int id = c->first;
    const end e = s->end[id];
    c->first = e.next;
    c->last = c->first == NONE ? NONE : c->last;
    s->end[id].next = s->free_end;
    s->free_end = id;
    return e;
}

static ech_status start_message(sim *s, int node, int at, open_message *o)
{
    const ech_op *op = match_op_at(s, s->node[node].klass, at);
    const bool sends = op->kind == ECH_OP_SEND_START;
    int index = 0;
    ECH_TRY(find_peer(s, node, at, &index));
    const int peer = ech_mesh_member(&s->nodes, node, op->axis, index);
    const int from = sends ? node : peer;
    const int to = sends ? index : ech_mesh_coord(&s->nodes, node, op->axis);
    o->channel = from * s->nodes.degree[op->axis] + to;
    channel *c = &s->channel[op->axis][o->channel];
    o->k = sends ? c->sent++ : c->received++;
    s->count->messages++;
    if ((sends ? c->received : c->sent) <= o->k)
        return push_end(s, c, node, at);
    const end other = pop_end(s, c);
    ECH_TRY(check_ends(s, node, at, &other, c));
    match_enqueue(s, peer);
    return ECH_OK;
}

ech_status match_start(sim *s, int node, int at)
{
    open_message *o = match_open_of(s, node, at);
    if (o->event != NONE)
        return match_fault(s, node, at, "its request is in flight already");
    o->event = at;
    return match_is_message(match_op_at(s, s->node[node].klass, at)->kind)
               ? start_message(s, node, at, o)
               : start_collective(s, node, at, o);
}

bool match_is_complete(const sim *s, int node, const open_message *o)
{
    const ech_op *op = match_op_at(s, s->node[node].klass, o->event);
    if (o->channel == NONE)
        return s->nodes.degree[op->axis] == 1 || comm_of(s, node, op->axis)->done > o->k;
    const channel *c = &s->channel[op->axis][o->channel];
    return (op->kind == ECH_OP_SEND_START ? c->received : c->sent) > o->k;
}

static ech_op_kind wait_of(ech_op_kind kind)
{
    switch (kind) {
    case ECH_OP_ALL_REDUCE_START:
        return ECH_OP_ALL_REDUCE_WAIT;
    case ECH_OP_REDUCE_SCATTER_START:
        return ECH_OP_REDUCE_SCATTER_WAIT;
    case ECH_OP_ALL_GATHER_START:
        return ECH_OP_ALL_GATHER_WAIT;
    case ECH_OP_SUM_SMALL_START:
        return ECH_OP_SUM_SMALL_WAIT;
    case ECH_OP_SEND_START:
        return ECH_OP_SEND_WAIT;
    default:
        return ECH_OP_RECV_WAIT;
    }
}

ech_status match_check_wait(const sim *s, int node, int at, const open_message *o)
{
    const int klass = s->node[node].klass;
    if (o->event == NONE)
        return match_fault(s, node, at, "it waits for a request that was not started");
    const ech_op *started = match_op_at(s, klass, o->event);
    const ech_op *awaited = match_op_at(s, klass, at);
    if (wait_of(started->kind) != awaited->kind || started->axis != awaited->axis)
        return match_fault(s, node, at, "its request is another message's");
    if (s->klass[klass].event[o->event].is_commit != s->klass[klass].event[at].is_commit)
        return match_fault(s, node, at,
                           "it was started before segment commit, which may be skipped");
    return ECH_OK;
}
