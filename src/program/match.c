/* One worklist run over the communication ops of the ranks that symmetry leaves.  A rank that is
 * followed is called a node. */
#include "program/match.h"
#include "program/prove_mesh.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    NONE = -1,
    MOST_NODES = 1 << 16,
    MOST_CELLS = 1 << 22 /* of all nodes: requests, or channels over an axis */
};

/* A communication op of a program. */
typedef struct event {
    int item, op;
} event;

typedef struct class_events {
    event *event; /* owned, in program order */
    int n;
    size_t capacity;
} class_events;

/* A message that a node has started and not awaited. */
typedef struct open_message {
    int event;   /* its start; NONE: the request is free */
    int channel; /* NONE: a collective */
    int64_t k;   /* number of the collective, or of the message in its channel */
} open_message;

typedef struct follower {
    int rank; /* in the world: the lowest that it stands for */
    int klass;
    int at;     /* next event */
    int posted; /* SERIAL: events before it are started */
    bool is_queued;
    int64_t started[ECH_N_AXES]; /* collectives */
} follower;

/* The k-th collective of a communicator: who started it first, and how many have. */
typedef struct meeting {
    int node, event, arrived;
} meeting;

typedef struct communicator {
    meeting *meeting; /* owned */
    int64_t n, done;  /* begun, complete: in order, since each member starts in order */
    size_t capacity;
} communicator;

/* Messages from one node to another over an axis; ends without their other end wait in a list. */
typedef struct channel {
    int64_t sent, received;
    int first, last; /* NONE: empty */
} channel;

typedef struct end {
    int node, event, next;
} end;

typedef struct sim {
    const ech_match_spec *spec;
    ech_match_how how;
    ech_match_count *count;
    ech_mesh mesh;       /* of all ranks */
    ech_mesh nodes;      /* of those followed */
    class_events *klass; /* owned, [n_classes] */
    follower *node;      /* owned, [nodes.world] */
    open_message *open;  /* owned, [nodes.world, n_requests] */
    int n_requests;
    communicator *comm[ECH_N_AXES]; /* owned, [nodes.world]: by first member; NULL: groups of one */
    channel *channel[ECH_N_AXES];   /* owned, [nodes.world, group]; NULL: no messages over it */
    bool has_messages[ECH_N_AXES];
    end *end; /* owned */
    int n_ends, free_end;
    size_t end_capacity;
    int *queue; /* owned, [nodes.world] nodes to look at again */
    int n_queue;
} sim;

static const ech_op *op_at(const sim *s, int klass, int at)
{
    const ech_program *p = s->spec->program[klass];
    const event e = s->klass[klass].event[at];
    return &p->block[p->item[e.item].block].op[e.op];
}

static const ech_item *item_at(const sim *s, int klass, int at)
{
    return &s->spec->program[klass]->item[s->klass[klass].event[at].item];
}

static bool is_start(const ech_op *op)
{
    return ech_op_row_get(op->kind)->is_start;
}

static bool is_message(ech_op_kind kind)
{
    return kind == ECH_OP_SEND_START || kind == ECH_OP_RECV_START;
}

/* --- words --- */

static const char *ordinal(int64_t k, char *buf, size_t n)
{
    static const char *const words[] = {"first", "second",  "third",  "fourth", "fifth",
                                        "sixth", "seventh", "eighth", "ninth",  "tenth"};
    if (k < 10)
        (void)snprintf(buf, n, "%s", words[k]);
    else
        (void)snprintf(buf, n, "%lldth", (long long)k + 1);
    return buf;
}

/* "rank 5 (tp 1, dp 2)"; where it stands for others too: "every rank like rank 5 (...)"; for all:
 * "every rank". */
static const char *who(const sim *s, int node, char *buf, size_t n)
{
    char one[128];
    if (s->nodes.world == 1 && s->mesh.world > 1)
        (void)snprintf(buf, n, "every rank");
    else
        (void)snprintf(buf, n, "%s%s", s->nodes.world < s->mesh.world ? "every rank like " : "",
                       ech_mesh_describe(&s->mesh, s->node[node].rank, one, sizeof one));
    return buf;
}

/* "item 37 (mlp backward, layer 3, micro-batch 1), op all_reduce_wait over tp" */
static const char *where(const sim *s, int node, int at, char *buf, size_t n)
{
    char item[128];
    const int klass = s->node[node].klass;
    const ech_op *op = op_at(s, klass, at);
    (void)snprintf(buf, n, "%s, op %s over %s",
                   ech_item_describe(s->spec->program[klass], s->klass[klass].event[at].item, item,
                                     sizeof item),
                   ech_op_name(op->kind), ech_axis_name(op->axis));
    return buf;
}

/* "all_reduce_start of 3 x 4 fp64" */
static const char *what(const ech_op *op, char *buf, size_t n)
{
    const ech_operand *a = &op->arg[0];
    size_t at = (size_t)snprintf(buf, n, "%s of ", ech_op_name(op->kind));
    for (int d = 0; d < a->rank && at < n; d++)
        at += (size_t)snprintf(buf + at, n - at, "%s%lld", d ? " x " : "",
                               (long long)a->dim[d].bound);
    if (at < n)
        (void)snprintf(buf + at, n - at, " %s", ech_dtype_name(a->dtype));
    return buf;
}

static ech_status fault(const sim *s, int node, int at, const char *why)
{
    char rank[160];
    char place[256];
    return ECH_RAISE(ECH_E_PROOF, "%s, %s: %s", who(s, node, rank, sizeof rank),
                     where(s, node, at, place, sizeof place), why);
}

/* --- an op by itself --- */

/* What is gathered or dealt out is one share a member; the law of the op (op_law.c) does not know
 * how many there are. */
static ech_status check_shares(const ech_mesh *m, const ech_program *p, const event *e)
{
    char item[128];
    const ech_op *op = &p->block[p->item[e->item].block].op[e->op];
    int whole = NONE;
    int share = NONE;
    if (op->kind == ECH_OP_REDUCE_SCATTER_START || op->kind == ECH_OP_REDUCE_SCATTER_WAIT)
        whole = 0, share = 1;
    if (op->kind == ECH_OP_ALL_GATHER_START || op->kind == ECH_OP_ALL_GATHER_WAIT ||
        op->kind == ECH_OP_SUM_SMALL_START || op->kind == ECH_OP_SUM_SMALL_WAIT)
        whole = 1, share = 0;
    if (whole < 0)
        return ECH_OK;
    const int n = m->degree[op->axis];
    const int64_t all = ech_operand_elems(&op->arg[whole]);
    const int64_t one = ech_operand_elems(&op->arg[share]);
    ECH_CHECK(all % n == 0 && all / n == one, ECH_E_PROOF,
              "%s, op %s over %s: %lld elements are not a share of %lld from each of %d ranks",
              ech_item_describe(p, e->item, item, sizeof item), ech_op_name(op->kind),
              ech_axis_name(op->axis), (long long)all, (long long)one, n);
    return ECH_OK;
}

static ech_status check_request(const ech_program *p, const event *e)
{
    char item[128];
    const ech_item *it = &p->item[e->item];
    const ech_op *op = &p->block[it->block].op[e->op];
    ECH_CHECK(it->request >= 0 && op->request >= 0, ECH_E_PROOF,
              "%s, op %s communicates without a request",
              ech_item_describe(p, e->item, item, sizeof item), ech_op_name(op->kind));
    return ECH_OK;
}

static ech_status list_events(sim *s, int klass)
{
    const ech_program *p = s->spec->program[klass];
    class_events *c = &s->klass[klass];
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int k = 0; k < b->n_ops; k++) {
            const ech_op *op = &b->op[k];
            const event e = {i, k};
            if (!ech_op_is_comm(op->kind))
                continue;
            ECH_TRY(check_request(p, &e));
            ECH_TRY(check_shares(&s->mesh, p, &e));
            ECH_TRY(ech_grow(&c->event, (size_t)c->n, &c->capacity, sizeof *c->event));
            c->event[c->n++] = e;
            if (p->item[i].request + op->request >= s->n_requests)
                s->n_requests = p->item[i].request + op->request + 1;
            s->has_messages[op->axis] = s->has_messages[op->axis] || is_message(op->kind);
        }
    }
    s->count->ops += c->n;
    return ECH_OK;
}

/* --- symmetry --- */

static int class_of(const sim *s, int rank)
{
    return s->spec->class_of ? s->spec->class_of[rank] : 0;
}

static ech_status check_classes(const sim *s)
{
    ECH_CHECK(s->spec->n_classes >= 1, ECH_E_PROOF, "a run without programs");
    for (int r = 0; r < s->mesh.world && s->spec->class_of; r++)
        ECH_CHECK(class_of(s, r) >= 0 && class_of(s, r) < s->spec->n_classes, ECH_E_PROOF,
                  "rank %d is of class %d of %d", r, class_of(s, r), s->spec->n_classes);
    for (int c = 0; c < s->spec->n_classes; c++) {
        const ech_layout *l = &s->spec->program[c]->layout;
        bool same = l->world == s->spec->layout->world;
        for (int k = 0; k < ECH_MESH_AXES; k++)
            same = same && l->order[k] == s->spec->layout->order[k];
        for (int a = 0; a < ECH_N_AXES; a++)
            same = same && l->degree[a] == s->spec->layout->degree[a];
        ECH_CHECK(same, ECH_E_PROOF, "program '%s' of class %d is of another layout",
                  s->spec->program[c]->name, c);
    }
    return ECH_OK;
}

/* Axes that must be followed: those along which some rank's class is not that of the rank at
 * coordinate 0 (a class then depends on the marked coordinates alone), those of messages between
 * pairs, and those on whose coordinates a peer depends. */
static void find_varying(const sim *s, bool varies[ECH_N_AXES])
{
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        const ech_axis a = s->spec->layout->order[k];
        varies[a] = s->has_messages[a];
        for (int r = 0; r < s->mesh.world && s->spec->class_of && !varies[a]; r++)
            varies[a] = class_of(s, r) != class_of(s, ech_mesh_member(&s->mesh, r, a, 0));
        varies[a] = varies[a] || s->has_messages[ECH_AXIS_WORLD];
    }
    varies[ECH_AXIS_TP] = varies[ECH_AXIS_TP] || s->has_messages[ECH_AXIS_KV];
    for (int c = 0; c < s->spec->n_classes; c++)
        for (int e = 0; e < s->klass[c].n; e++)
            if (is_message(op_at(s, c, e)->kind))
                ech_mesh_note_axes(&op_at(s, c, e)->attr[0], varies);
}

static ech_status make_comms(sim *s, int axis)
{
    const size_t n = (size_t)s->nodes.world;
    const size_t group = (size_t)s->nodes.degree[axis];
    if (group > 1)
        ECH_TRY(ech_calloc(n, sizeof *s->comm[axis], &s->comm[axis]));
    if (!s->has_messages[axis])
        return ECH_OK;
    ECH_CHECK(n * group <= MOST_CELLS, ECH_E_UNSUPPORTED,
              "messages between the %d ranks of %d groups over %s are too many to follow",
              s->nodes.degree[axis], s->nodes.world / s->nodes.degree[axis],
              ech_axis_name((ech_axis)axis));
    ECH_TRY(ech_calloc(n * group, sizeof *s->channel[axis], &s->channel[axis]));
    for (size_t c = 0; c < n * group; c++)
        s->channel[axis][c].first = s->channel[axis][c].last = NONE;
    return ECH_OK;
}

static ech_status make_nodes(sim *s)
{
    bool varies[ECH_N_AXES] = {false};
    find_varying(s, varies);
    s->nodes = ech_mesh_part(&s->mesh, s->spec->layout, varies);
    const size_t n = (size_t)s->nodes.world;
    const size_t requests = (size_t)s->n_requests + 1;
    ECH_CHECK(n <= MOST_NODES && n * requests <= MOST_CELLS, ECH_E_UNSUPPORTED,
              "%d ranks with %d messages each are too many to follow", s->nodes.world,
              s->n_requests);
    ECH_TRY(ech_calloc(n, sizeof *s->node, &s->node));
    ECH_TRY(ech_calloc(n, sizeof *s->queue, &s->queue));
    ECH_TRY(ech_calloc(n * requests, sizeof *s->open, &s->open));
    for (size_t i = 0; i < n * requests; i++)
        s->open[i].event = NONE;
    for (int i = 0; i < s->nodes.world; i++) {
        int rank = 0;
        for (int k = 0; k < ECH_MESH_AXES; k++) {
            const ech_axis a = s->spec->layout->order[k];
            rank += ech_mesh_coord(&s->nodes, i, a) * s->mesh.stride[a];
        }
        s->node[i].rank = rank;
        s->node[i].klass = class_of(s, rank);
    }
    for (int a = 0; a < ECH_N_AXES; a++)
        ECH_TRY(make_comms(s, a));
    s->count->followed = s->nodes.world;
    return ECH_OK;
}

/* --- the run --- */

static void enqueue(sim *s, int node)
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

static open_message *open_of(const sim *s, int node, int at)
{
    const int klass = s->node[node].klass;
    const int id = item_at(s, klass, at)->request + op_at(s, klass, at)->request;
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
    const ech_op *mine = op_at(s, s->node[node].klass, at);
    const ech_op *theirs = op_at(s, s->node[m->node].klass, m->event);
    ECH_CHECK(is_same_collective(mine, theirs), ECH_E_PROOF,
              "the %s collective over %s is %s for %s (%s), but %s for %s (%s)",
              ordinal(k, nth, sizeof nth), ech_axis_name(mine->axis),
              what(theirs, ops[0], sizeof ops[0]), who(s, m->node, ranks[0], sizeof ranks[0]),
              where(s, m->node, m->event, places[0], sizeof places[0]),
              what(mine, ops[1], sizeof ops[1]), who(s, node, ranks[1], sizeof ranks[1]),
              where(s, node, at, places[1], sizeof places[1]));
    return ECH_OK;
}

static ech_status start_collective(sim *s, int node, int at, open_message *o)
{
    const ech_axis axis = op_at(s, s->node[node].klass, at)->axis;
    const int n = s->nodes.degree[axis];
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
        enqueue(s, ech_mesh_member(&s->nodes, node, axis, i));
    return ECH_OK;
}

/* The other end of a message, by its index in the group. */
static ech_status find_peer(const sim *s, int node, int at, int *peer)
{
    char why[96];
    int64_t coord[ECH_N_AXES];
    int64_t index = 0;
    const int klass = s->node[node].klass;
    const ech_op *op = op_at(s, klass, at);
    ech_mesh_coords(&s->mesh, s->node[node].rank, coord);
    const ech_status st = ech_mesh_eval(&op->attr[0], coord, item_at(s, klass, at)->micro, &index);
    if (st < 0) {
        char rank[160];
        char place[256];
        return ech_error_prefix(st, "%s, %s: ", who(s, node, rank, sizeof rank),
                                where(s, node, at, place, sizeof place));
    }
    const bool is_other = index >= 0 && index < s->nodes.degree[op->axis] &&
                          index != ech_mesh_coord(&s->nodes, node, op->axis);
    (void)snprintf(why, sizeof why, "peer %lld of %d is no other member of the group",
                   (long long)index, s->nodes.degree[op->axis]);
    if (!is_other)
        return fault(s, node, at, why);
    *peer = (int)index;
    return ECH_OK;
}

static ech_status check_ends(const sim *s, int node, int at, const end *other)
{
    char ranks[2][160];
    char places[2][256];
    char ops[2][128];
    const ech_op *mine = op_at(s, s->node[node].klass, at);
    const ech_op *theirs = op_at(s, s->node[other->node].klass, other->event);
    ECH_CHECK(mine->arg[0].dtype == theirs->arg[0].dtype &&
                  ech_operand_elems(&mine->arg[0]) == ech_operand_elems(&theirs->arg[0]),
              ECH_E_PROOF, "%s of %s (%s) meets %s of %s (%s)", what(mine, ops[0], sizeof ops[0]),
              who(s, node, ranks[0], sizeof ranks[0]),
              where(s, node, at, places[0], sizeof places[0]), what(theirs, ops[1], sizeof ops[1]),
              who(s, other->node, ranks[1], sizeof ranks[1]),
              where(s, other->node, other->event, places[1], sizeof places[1]));
    return ECH_OK;
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
    const ech_op *op = op_at(s, s->node[node].klass, at);
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
    ECH_TRY(check_ends(s, node, at, &other));
    enqueue(s, peer);
    return ECH_OK;
}

static ech_status start(sim *s, int node, int at)
{
    open_message *o = open_of(s, node, at);
    if (o->event != NONE)
        return fault(s, node, at, "its request is in flight already");
    o->event = at;
    return is_message(op_at(s, s->node[node].klass, at)->kind) ? start_message(s, node, at, o)
                                                               : start_collective(s, node, at, o);
}

static bool is_complete(const sim *s, int node, const open_message *o)
{
    const ech_op *op = op_at(s, s->node[node].klass, o->event);
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
    default:
        return ECH_OP_P2P_WAIT;
    }
}

/* The wait is its start's, and both or none are in a segment that may be skipped. */
static ech_status check_wait(const sim *s, int node, int at, const open_message *o)
{
    const int klass = s->node[node].klass;
    if (o->event == NONE)
        return fault(s, node, at, "it waits for a request that was not started");
    const ech_op *started = op_at(s, klass, o->event);
    const ech_op *awaited = op_at(s, klass, at);
    if (wait_of(started->kind) != awaited->kind || started->axis != awaited->axis)
        return fault(s, node, at, "its request is another message's");
    if ((item_at(s, klass, o->event)->segment == ECH_SEGMENT_COMMIT) !=
        (item_at(s, klass, at)->segment == ECH_SEGMENT_COMMIT))
        return fault(s, node, at, "it was started before segment commit, which may be skipped");
    return ECH_OK;
}

/* One past the starts that are posted together with that at `at`. */
static int posted_together(const sim *s, int klass, int at)
{
    const class_events *c = &s->klass[klass];
    int n = at + 1;
    if (!is_message(op_at(s, klass, at)->kind))
        return n;
    while (n < c->n && c->event[n].item == c->event[at].item &&
           c->event[n].op == c->event[n - 1].op + 1 && is_message(op_at(s, klass, n)->kind))
        n++;
    return n;
}

/* A start: true in *passed where the node may go on. */
static ech_status pass_start(sim *s, int node, bool *passed)
{
    follower *n = &s->node[node];
    if (n->at >= n->posted) {
        n->posted = s->how == ECH_MATCH_SERIAL ? posted_together(s, n->klass, n->at) : n->at + 1;
        for (int e = n->at; e < n->posted; e++)
            ECH_TRY(start(s, node, e));
    }
    *passed = s->how == ECH_MATCH_RENDEZVOUS || is_complete(s, node, open_of(s, node, n->at));
    return ECH_OK;
}

static ech_status pass_wait(const sim *s, int node, bool *passed)
{
    open_message *o = open_of(s, node, s->node[node].at);
    ECH_TRY(check_wait(s, node, s->node[node].at, o));
    *passed = is_complete(s, node, o);
    if (*passed)
        o->event = NONE;
    return ECH_OK;
}

static ech_status advance(sim *s, int node)
{
    follower *n = &s->node[node];
    bool passed = true;
    for (; n->at < s->klass[n->klass].n; n->at += passed) {
        ECH_TRY(is_start(op_at(s, n->klass, n->at)) ? pass_start(s, node, &passed)
                                                    : pass_wait(s, node, &passed));
        if (!passed)
            return ECH_OK;
    }
    return ECH_OK;
}

/* --- who waits for whom --- */

static bool is_finished(const sim *s, int node)
{
    return s->node[node].at >= s->klass[s->node[node].klass].n;
}

/* The node that a blocked one waits for: the first member that has not started its collective, or
 * the other end. */
static int missing(const sim *s, int node)
{
    const open_message *o = open_of(s, node, s->node[node].at);
    const ech_op *op = op_at(s, s->node[node].klass, o->event);
    if (o->channel != NONE) {
        const int group = s->nodes.degree[op->axis];
        const int from = o->channel / group;
        return op->kind == ECH_OP_RECV_START
                   ? from
                   : ech_mesh_member(&s->nodes, from, op->axis, o->channel % group);
    }
    for (int i = 0; i < s->nodes.degree[op->axis]; i++) {
        const int m = ech_mesh_member(&s->nodes, node, op->axis, i);
        if (s->node[m].started[op->axis] <= o->k)
            return m;
    }
    return NONE;
}

static ech_status report(const sim *s, int node, int other)
{
    char ranks[2][160];
    char places[2][256];
    char nth[24];
    char lacks[96];
    const open_message *o = open_of(s, node, s->node[node].at);
    const ech_op *op = op_at(s, s->node[node].klass, o->event);
    const char *axis = ech_axis_name(op->axis);
    const char *verb = op->kind == ECH_OP_SEND_START   ? "receives"
                       : op->kind == ECH_OP_RECV_START ? "sends"
                                                       : "starts";
    const char *noun = o->channel == NONE ? "collective" : "message";
    (void)snprintf(lacks, sizeof lacks, "never %s a %s %s over %s%s", verb,
                   ordinal(o->k, nth, sizeof nth), noun, axis,
                   o->channel == NONE ? "" : " with it");
    if (!is_finished(s, other))
        (void)where(s, other, s->node[other].at, places[1], sizeof places[1]);
    return ECH_RAISE(
        ECH_E_PROOF, "%s%s waits in %s: %s %s; it %s%s",
        s->how == ECH_MATCH_SERIAL ? "with the communication of a rank one after the other, " : "",
        who(s, node, ranks[0], sizeof ranks[0]),
        where(s, node, s->node[node].at, places[0], sizeof places[0]),
        who(s, other, ranks[1], sizeof ranks[1]), lacks,
        is_finished(s, other) ? "has come to its end" : "stands in ",
        is_finished(s, other) ? "" : places[1]);
}

/* Of all that wait, one who waits for a rank that has ended tells most: there the start is
 * missing. */
static ech_status check_finished(const sim *s)
{
    int blocked = NONE;
    for (int i = 0; i < s->nodes.world; i++) {
        if (is_finished(s, i))
            continue;
        if (is_finished(s, missing(s, i)))
            return report(s, i, missing(s, i));
        blocked = blocked == NONE ? i : blocked;
    }
    return blocked == NONE ? ECH_OK : report(s, blocked, missing(s, blocked));
}

static ech_status check_awaited(const sim *s)
{
    for (int i = 0; i < s->nodes.world; i++)
        for (int r = 0; r < s->n_requests; r++) {
            const int at = s->open[(size_t)i * ((size_t)s->n_requests + 1) + (size_t)r].event;
            if (at != NONE)
                return fault(s, i, at, "the message is never awaited");
        }
    return ECH_OK;
}

static ech_status run(sim *s)
{
    ECH_TRY(ech_mesh_make(s->spec->layout, &s->mesh));
    ECH_TRY(check_classes(s));
    ECH_TRY(ech_calloc((size_t)s->spec->n_classes, sizeof *s->klass, &s->klass));
    for (int c = 0; c < s->spec->n_classes; c++)
        ECH_TRY(list_events(s, c));
    ECH_TRY(make_nodes(s));
    for (int i = 0; i < s->nodes.world; i++)
        enqueue(s, i);
    while (s->n_queue > 0) {
        const int i = s->queue[--s->n_queue];
        s->node[i].is_queued = false;
        ECH_TRY(advance(s, i));
    }
    ECH_TRY(check_finished(s));
    return check_awaited(s);
}

static void release(sim *s)
{
    for (int c = 0; s->klass && c < s->spec->n_classes; c++)
        free(s->klass[c].event);
    for (int a = 0; a < ECH_N_AXES; a++) {
        for (int i = 0; s->comm[a] && i < s->nodes.world; i++)
            free(s->comm[a][i].meeting);
        free(s->comm[a]);
        free(s->channel[a]);
    }
    free(s->klass);
    free(s->node);
    free(s->open);
    free(s->end);
    free(s->queue);
}

ech_status ech_match_check(const ech_match_spec *spec, ech_match_how how, ech_match_count *count)
{
    sim s = {.spec = spec, .how = how, .count = count, .free_end = NONE};
    *count = (ech_match_count){0};
    const ech_status st = run(&s);
    release(&s);
    return st;
}
