/* One worklist run over the communication ops of the ranks that symmetry leaves.  A rank that is
 * followed is called a node. */
#include "program/match_private.h"

#include <stdlib.h>

enum {
    MOST_NODES = 1 << 16,
    MOST_CELLS = 1 << 22 /* of all nodes: requests, or channels over an axis */
};

/* --- an op by itself --- */

/* What is gathered or dealt out is one share a member; the law of the op (op_law.c) does not know
 * how many there are. */
static ech_status check_shares(const ech_mesh *m, const ech_program *p, const event *e)
{
    char item[128];
    const ech_op *op = e->op;
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
    ECH_CHECK(p->item[e->item].request >= 0 && e->op->request >= 0, ECH_E_PROOF,
              "%s, op %s communicates without a request",
              ech_item_describe(p, e->item, item, sizeof item), ech_op_name(e->op->kind));
    return ECH_OK;
}

static ech_status list_op(sim *s, int klass, int item, const ech_op *op)
{
    const ech_program *p = s->spec->program[klass];
    class_events *c = &s->klass[klass];
    const ech_item *it = &p->item[item];
    const event e = {.op = op,
                     .item = item,
                     .request = it->request + op->request,
                     .group_end = c->n + 1,
                     .micro = it->micro,
                     .chunk = it->chunk,
                     .is_commit = it->segment == ECH_SEGMENT_COMMIT};
    ECH_TRY(check_request(p, &e));
    ECH_TRY(check_shares(&s->mesh, p, &e));
    ECH_TRY(ech_grow(&c->event, (size_t)c->n, &c->capacity, sizeof *c->event));
    c->event[c->n++] = e;
    if (e.request >= s->n_requests)
        s->n_requests = e.request + 1;
    s->has_messages[op->axis] = s->has_messages[op->axis] || match_is_message(op->kind);
    return ECH_OK;
}

static bool is_all_messages(const ech_block *b)
{
    bool all = b->n_ops > 0;
    for (int k = 0; k < b->n_ops && all; k++)
        all = match_is_message(b->op[k].kind);
    return all;
}

/* Do two events that follow each other belong to one group: messages side by side in a block, or
 * of blocks that are nothing else, side by side in a segment. */
static bool is_one_group(const ech_program *p, const event *a, const event *b)
{
    const ech_item *x = &p->item[a->item];
    const ech_item *y = &p->item[b->item];
    if (!match_is_message(a->op->kind) || !match_is_message(b->op->kind))
        return false;
    if (a->item == b->item)
        return a->op + 1 == b->op;
    return a->item + 1 == b->item && x->segment == y->segment &&
           is_all_messages(&p->block[x->block]) && is_all_messages(&p->block[y->block]);
}

static ech_status list_events(sim *s, int klass)
{
    const ech_program *p = s->spec->program[klass];
    class_events *c = &s->klass[klass];
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int k = 0; k < b->n_ops; k++)
            if (ech_op_is_comm(b->op[k].kind))
                ECH_TRY(list_op(s, klass, i, &b->op[k]));
    }
    for (int i = c->n - 2; i >= 0; i--)
        if (is_one_group(p, &c->event[i], &c->event[i + 1]))
            c->event[i].group_end = c->event[i + 1].group_end;
    s->count->ops += c->n;
    c->limit = c->n;
    return match_find_rounds(s, klass);
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
        for (int k = 0; k < 2; k++)
            same = same && l->tied[k] == s->spec->layout->tied[k];
        ECH_CHECK(same, ECH_E_PROOF, "program '%s' of class %d is of another layout",
                  s->spec->program[c]->name, c);
    }
    return ECH_OK;
}

/* Axes that must be followed: those along which some rank's class is not that of the rank at
 * coordinate 0 (a class then depends on the marked coordinates alone), those of messages between
 * pairs, those on whose coordinates a peer depends, and pp where not all of its ranks are tied. */
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
    varies[ECH_AXIS_PP] = varies[ECH_AXIS_PP] || s->mesh.degree[ECH_AXIS_TIED] > 1;
    for (int c = 0; c < s->spec->n_classes; c++)
        for (int e = 0; e < s->klass[c].n; e++)
            if (match_is_message(match_op_at(s, c, e)->kind))
                ech_mesh_note_axes(&match_op_at(s, c, e)->attr[0], varies);
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

static bool is_start(const ech_op *op)
{
    return ech_op_row_get(op->kind)->is_start;
}

/* A start: true in *passed where the node may go on. */
static ech_status pass_start(sim *s, int node, bool *passed)
{
    follower *n = &s->node[node];
    if (n->at >= n->posted) {
        n->posted =
            s->how == ECH_MATCH_SERIAL ? s->klass[n->klass].event[n->at].group_end : n->at + 1;
        for (int e = n->at; e < n->posted; e++)
            ECH_TRY(match_start(s, node, e));
    }
    *passed =
        s->how == ECH_MATCH_RENDEZVOUS || match_is_complete(s, node, match_open_of(s, node, n->at));
    return ECH_OK;
}

static ech_status pass_wait(const sim *s, int node, bool *passed)
{
    open_message *o = match_open_of(s, node, s->node[node].at);
    ECH_TRY(match_check_wait(s, node, s->node[node].at, o));
    *passed = match_is_complete(s, node, o);
    if (*passed)
        o->event = NONE;
    return ECH_OK;
}

static ech_status advance(sim *s, int node)
{
    follower *n = &s->node[node];
    bool passed = true;
    for (; n->at < s->klass[n->klass].limit; n->at += passed) {
        ECH_TRY(is_start(match_op_at(s, n->klass, n->at)) ? pass_start(s, node, &passed)
                                                          : pass_wait(s, node, &passed));
        if (!passed)
            return ECH_OK;
    }
    return ECH_OK;
}

static ech_status check_awaited(const sim *s)
{
    for (int i = 0; i < s->nodes.world; i++)
        for (int r = 0; r < s->n_requests; r++) {
            const int at = s->open[(size_t)i * ((size_t)s->n_requests + 1) + (size_t)r].event;
            if (at != NONE)
                return match_fault(s, i, at, "the message is never awaited");
        }
    return ECH_OK;
}

static ech_status run_until_quiet(sim *s)
{
    for (int i = 0; i < s->nodes.world; i++)
        match_enqueue(s, i);
    while (s->n_queue > 0) {
        const int i = s->queue[--s->n_queue];
        s->node[i].is_queued = false;
        ECH_TRY(advance(s, i));
    }
    return ECH_OK;
}

/* The order in which nodes are looked at makes no difference to how far they come, so the first class may
 * be held where a round ends.  If everybody has gone on by one round when it has, with the same in
 * flight, so it is after any number of rounds. */
static ech_status run_rounds(sim *s)
{
    for (int k = 0; k < 2; k++) {
        s->klass[0].limit = s->klass[0].ends[k];
        ECH_TRY(run_until_quiet(s));
        ECH_TRY(match_note_round(s, k == 0));
    }
    s->klass[0].limit = s->klass[0].n;
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
    if (match_has_rounds(s))
        ECH_TRY(run_rounds(s));
    ECH_TRY(run_until_quiet(s));
    ECH_TRY(match_check_finished(s));
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
        const size_t channels = (size_t)s->nodes.world * (size_t)s->nodes.degree[a];
        for (size_t c = 0; s->channel[a] && c < channels; c++)
            free(s->channel[a][c].pair);
        free(s->channel[a]);
    }
    free(s->klass);
    free(s->node);
    free(s->open);
    free(s->node_before);
    free(s->open_before);
    free(s->ahead_before);
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
