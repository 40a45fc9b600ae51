#include "program/deps.h"
#include "program/interval.h"
#include "program/op_signature.h"
#include "program/repeat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is known of a byte: the node that wrote it last, the nodes that read it since (a list), and
 * the messages in flight that hold it (a list of request * 2, + 1 for bytes the message writes).
 * Segments that were one share their lists, so a list only ever grows at its head. */
enum { WRITER, READERS, HELD };
enum { NONE = -1 };

typedef struct cell {
    int value, next;
} cell;

typedef struct deriver {
    const ech_program *p;
    ech_deps_on on;
    ech_interval_map *map; /* one per slot, or one per space */
    int n_maps;
    cell *cells; /* of all lists */
    int n_cells;
    size_t cells_capacity;
    int *edge; /* predecessors of the node in work, with repeats */
    int n_edge;
    size_t edge_capacity;
    int *pred;
    size_t pred_capacity;
    int *open;                  /* [n_requests] node that started each request, -1: none */
    int *open_before;           /* [n_requests] rounds: open a round ago */
    int *awaited;               /* [n_requests] node that last awaited it, -1: none */
    int last_start[ECH_N_AXES]; /* latest start on each axis, -1: none */
    ech_deps d;
} deriver;

/* Segments next to each other were mostly written and read by the same few nodes. */
static bool is_repeated(const deriver *v, int pred)
{
    for (int i = v->n_edge - 1; i >= 0 && i >= v->n_edge - 8; i--)
        if (v->edge[i] == pred)
            return true;
    return false;
}

static ech_status add_edge(deriver *v, int pred)
{
    if (pred < 0 || is_repeated(v, pred))
        return ECH_OK;
    ECH_TRY(ech_grow(&v->edge, (size_t)v->n_edge, &v->edge_capacity, sizeof *v->edge));
    v->edge[v->n_edge++] = pred;
    return ECH_OK;
}

static ech_status push(deriver *v, int *head, int value)
{
    ECH_TRY(ech_grow(&v->cells, (size_t)v->n_cells, &v->cells_capacity, sizeof *v->cells));
    v->cells[v->n_cells] = (cell){value, *head};
    *head = v->n_cells++;
    return ECH_OK;
}

/* "item 3 (...), op rope" or, at the end of a life, "item 3 (...), end of 'saved'". */
static const char *describe(const deriver *v, int node, char *buf, size_t n)
{
    char item[128];
    const int op = v->d.op[node];
    const ech_item *it = &v->p->item[v->d.item[node]];
    (void)ech_item_describe(v->p, v->d.item[node], item, sizeof item);
    if (op == ECH_DEPS_RELEASE)
        (void)snprintf(buf, n, "%s, end of '%s'", item, v->p->slot[v->d.slot[node]].name);
    else
        (void)snprintf(buf, n, "%s, op %s", item, ech_op_name(v->p->block[it->block].op[op].kind));
    return buf;
}

static ech_status held_error(const deriver *v, int node, int held)
{
    char here[192];
    char there[192];
    return ECH_RAISE(
        ECH_E_PROOF, "%s touches bytes of a message in flight, started by %s and not awaited",
        describe(v, node, here, sizeof here), describe(v, v->open[held / 2], there, sizeof there));
}

/* The map and the first byte of a slot in it. */
static ech_interval_map *map_of(const deriver *v, int slot, size_t *base)
{
    const ech_slot *s = &v->p->slot[slot];
    *base = v->on == ECH_DEPS_ON_ADDRESSES ? s->offset : 0;
    return &v->map[v->on == ECH_DEPS_ON_ADDRESSES ? (int)s->space : slot];
}

typedef struct access {
    int slot;
    size_t begin, end;
    bool reads, writes;
    int hold; /* what a start puts on its bytes; NONE otherwise */
    int own;  /* the request that a wait lets go; NONE otherwise */
} access;

/* In place, a message reads and writes the same bytes: those are its own. */
static ech_status check_held(const deriver *v, int node, const access *a, int head)
{
    const int mine = a->hold != NONE ? a->hold / 2 : a->own;
    for (int h = head; h >= 0; h = v->cells[h].next) {
        const int held = v->cells[h].value;
        if (held / 2 != mine && (a->writes || held % 2 == 1))
            return held_error(v, node, held);
    }
    return ECH_OK;
}

static ech_status let_go(deriver *v, int *head, int request)
{
    int kept = NONE;
    for (int h = *head; h >= 0; h = v->cells[h].next)
        if (v->cells[h].value / 2 != request)
            ECH_TRY(push(v, &kept, v->cells[h].value));
    *head = kept;
    return ECH_OK;
}

static ech_status touch_segment(deriver *v, int node, const access *a, int *value)
{
    ECH_TRY(check_held(v, node, a, value[HELD]));
    ECH_TRY(add_edge(v, value[WRITER]));
    if (a->writes) {
        for (int r = value[READERS]; r >= 0; r = v->cells[r].next)
            ECH_TRY(add_edge(v, v->cells[r].value));
        value[WRITER] = node;
        value[READERS] = NONE;
    } else {
        ECH_TRY(push(v, &value[READERS], node));
    }
    if (a->hold != NONE)
        return push(v, &value[HELD], a->hold);
    return a->own != NONE ? let_go(v, &value[HELD], a->own) : ECH_OK;
}

static ech_status touch(deriver *v, int node, const access *a)
{
    static const int fresh[3] = {NONE, NONE, NONE};
    ech_interval_at at;
    size_t base;
    int n;
    if (a->slot < 0)
        return ECH_OK;
    ech_interval_map *m = map_of(v, a->slot, &base);
    ECH_TRY(ech_interval_cover(m, base + a->begin, base + a->end, fresh, &at, &n));
    for (; n > 0; n--)
        ECH_TRY(touch_segment(v, node, a, ech_interval_next(m, &at)->value));
    return ECH_OK;
}

static int cmp_int(const void *a, const void *b)
{
    return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

/* Most nodes have a few predecessors. */
static void sort_few(int *x, int n)
{
    if (n > 24) {
        qsort(x, (size_t)n, sizeof *x, cmp_int);
        return;
    }
    for (int i = 1; i < n; i++) {
        const int one = x[i];
        int k = i;
        for (; k > 0 && x[k - 1] > one; k--)
            x[k] = x[k - 1];
        x[k] = one;
    }
}

/* Sorted, without repeats and self, to the end of pred. */
static ech_status close_node(deriver *v, int node)
{
    int before = -1;
    sort_few(v->edge, v->n_edge);
    for (int i = 0; i < v->n_edge; i++) {
        if (v->edge[i] == before || v->edge[i] == node)
            continue;
        before = v->edge[i];
        ECH_TRY(ech_grow(&v->pred, v->d.n_edges, &v->pred_capacity, sizeof *v->pred));
        v->pred[v->d.n_edges++] = before;
    }
    v->n_edge = 0;
    v->d.row[node + 1] = (int)v->d.n_edges;
    return ECH_OK;
}

static const ech_op *op_of(const deriver *v, int node)
{
    return &v->p->block[v->p->item[v->d.item[node]].block].op[v->d.op[node]];
}

static ech_op_kind wait_of(ech_op_kind start)
{
    switch (start) {
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

/* A wait stands for what its start began: the same kind, axis and bytes. */
static ech_status check_pair(const deriver *v, int start, int wait)
{
    char there[192];
    char here[192];
    const ech_op *s = op_of(v, start);
    const ech_op *w = op_of(v, wait);
    bool same = wait_of(s->kind) == w->kind && s->axis == w->axis && s->n_args == w->n_args;
    for (int i = 0; i < s->n_args && same; i++) {
        const ech_extent a = ech_item_extent(v->p, &v->p->item[v->d.item[start]], &s->arg[i]);
        const ech_extent b = ech_item_extent(v->p, &v->p->item[v->d.item[wait]], &w->arg[i]);
        same = a.slot == b.slot && a.begin == b.begin && a.end == b.end;
    }
    ECH_CHECK(same, ECH_E_PROOF, "%s over %s waits for another message than %s over %s started",
              describe(v, wait, here, sizeof here), ech_axis_name(w->axis),
              describe(v, start, there, sizeof there), ech_axis_name(s->axis));
    return ECH_OK;
}

static int request_of(const ech_item *it, const ech_op *op)
{
    return it->request + op->request;
}

static ech_status note_request(deriver *v, int node, const ech_item *it, const ech_op *op)
{
    const ech_op_row *row = ech_op_row_get(op->kind);
    const int request = request_of(it, op);
    char where[128];
    ECH_CHECK(it->request >= 0, ECH_E_PROOF, "%s communicates without a request",
              ech_item_describe(v->p, v->d.item[node], where, sizeof where));
    if (row->is_start) {
        ECH_CHECK(v->open[request] < 0, ECH_E_PROOF, "%s starts request %d, which is in flight",
                  ech_item_describe(v->p, v->d.item[node], where, sizeof where), request);
        v->open[request] = node;
        ECH_TRY(add_edge(v, v->awaited[request])); /* it carries one message at a time */
        /* An explicit edge: messages of a communicator match by their order of issue on every
         * rank. */
        const int before = v->last_start[op->axis];
        v->last_start[op->axis] = node;
        return add_edge(v, before);
    }
    ECH_CHECK(v->open[request] >= 0, ECH_E_PROOF, "%s waits for request %d, which was not started",
              ech_item_describe(v->p, v->d.item[node], where, sizeof where), request);
    ECH_TRY(check_pair(v, v->open[request], node));
    return add_edge(v, v->open[request]);
}

static ech_status visit_op(deriver *v, int node)
{
    const ech_item *it = &v->p->item[v->d.item[node]];
    const ech_op *op = &v->p->block[it->block].op[v->d.op[node]];
    const ech_op_row *row = ech_op_row_get(op->kind);
    if (row->is_start || row->is_wait)
        ECH_TRY(note_request(v, node, it, op));
    for (int i = 0; i < op->n_args; i++) { /* how much an op touches stands in cells */
        const ech_extent e = ech_item_extent_cell(v->p, &op->arg[i]);
        const access a = {e.slot, e.begin, e.end, true, false, NONE, NONE};
        ECH_TRY(touch(v, node, &a));
    }
    for (int i = 0; i < op->n_args; i++) {
        const ech_extent e = ech_item_extent(v->p, it, &op->arg[i]);
        const bool writes = (op->arg[i].access & ECH_WRITE) != 0;
        const access a = {e.slot,
                          e.begin,
                          e.end,
                          (op->arg[i].access & ECH_READ) != 0,
                          writes,
                          row->is_start ? request_of(it, op) * 2 + (writes ? 1 : 0) : NONE,
                          row->is_wait ? request_of(it, op) : NONE};
        ECH_TRY(touch(v, node, &a));
    }
    const ech_extent w = ech_item_work(v->p, it, op);
    const access a = {w.slot, w.begin, w.end, false, true, NONE, NONE};
    ECH_TRY(touch(v, node, &a));
    if (row->is_wait) {
        v->open[request_of(it, op)] = -1;
        v->awaited[request_of(it, op)] = node;
    }
    return ECH_OK;
}

static ech_status visit_release(deriver *v, int node)
{
    const int slot = v->d.slot[node];
    const access a = {slot, 0, v->p->slot[slot].bytes, false, true, NONE, NONE};
    return touch(v, node, &a);
}

/* Slots that die with item i, as a list per item: next_dead[slot], head[item]. */
static ech_status list_deaths(const ech_program *p, int **head, int **next)
{
    ECH_TRY(ech_calloc((size_t)p->n_items + 1, sizeof **head, head));
    ECH_TRY(ech_calloc((size_t)p->n_slots + 1, sizeof **next, next));
    for (int i = 0; i < p->n_items; i++)
        (*head)[i] = -1;
    for (int s = p->n_slots - 1; s >= p->n_state; s--) {
        if (p->slot[s].last < 0)
            continue;
        (*next)[s] = (*head)[p->slot[s].last];
        (*head)[p->slot[s].last] = s;
    }
    return ECH_OK;
}

static ech_status list_nodes(deriver *v)
{
    const ech_program *p = v->p;
    int *head = NULL;
    int *next = NULL;
    size_t n = 0;
    ech_status st = ECH_OK;
    for (int i = 0; i < p->n_items; i++)
        n += (size_t)p->block[p->item[i].block].n_ops;
    n += (size_t)(p->n_slots - p->n_state);
    ECH_TRY(ech_calloc(n, sizeof *v->d.item, &v->d.item));
    ECH_TRY(ech_calloc(n, sizeof *v->d.op, &v->d.op));
    ECH_TRY(ech_calloc(n, sizeof *v->d.slot, &v->d.slot));
    ECH_TRY(ech_calloc(n + 1, sizeof *v->d.row, &v->d.row));
    ECH_TRY_GOTO(st, list_deaths(p, &head, &next), done);
    for (int i = 0; i < p->n_items; i++) {
        for (int k = 0; k < p->block[p->item[i].block].n_ops; k++) {
            v->d.item[v->d.n] = i;
            v->d.op[v->d.n] = k;
            v->d.slot[v->d.n++] = -1;
        }
        for (int s = head[i]; s >= 0 && v->on == ECH_DEPS_ON_ADDRESSES; s = next[s]) {
            v->d.item[v->d.n] = i;
            v->d.op[v->d.n] = ECH_DEPS_RELEASE;
            v->d.slot[v->d.n++] = s;
        }
    }
done:
    free(head);
    free(next);
    return st;
}

/* --- rounds --- */

/* A message that is in flight through more than a round touches nothing that rounds take in turn. */
static bool is_apart(const deriver *v, int node)
{
    const ech_op *op = op_of(v, node);
    for (int i = 0; i < op->n_args; i++) {
        const ech_extent e = ech_item_extent(v->p, &v->p->item[v->d.item[node]], &op->arg[i]);
        if (e.slot >= 0 && v->p->slot[e.slot].micro_bytes)
            return false;
    }
    return true;
}

/* What is in flight at the end of a round, and so which bytes are held, is what is in flight at the end
 * of the next. */
static ech_status check_round(const deriver *v)
{
    for (int r = 0; r < v->p->n_requests; r++) {
        const int a = v->open_before[r];
        const int b = v->open[r];
        const bool same = a >= 0 && b >= 0
                              ? (a == b && is_apart(v, a)) ||
                                    (a != b && v->d.op[a] == v->d.op[b] &&
                                     ech_rounds_follows(v->p, v->d.item[a], v->d.item[b]))
                              : a < 0 && b < 0;
        ECH_CHECK(
            same, ECH_E_PROOF,
            "items %d to %d repeat %d times, but request %d is in flight otherwise at the end "
            "of the last time than at that of the time before",
            v->p->rounds.first, v->p->rounds.end - 1, v->p->rounds.times, r);
    }
    return ECH_OK;
}

static ech_status note_round(deriver *v, int node)
{
    const bool is_end = node + 1 == v->d.n || v->d.item[node + 1] != v->d.item[node];
    const int ending = is_end ? ech_rounds_ending(v->p, v->d.item[node]) : 0;
    if (ending == 1)
        memcpy(v->open_before, v->open, (size_t)v->p->n_requests * sizeof *v->open);
    return ending == 2 ? check_round(v) : ECH_OK;
}

static ech_status derive(deriver *v)
{
    char where[128];
    v->n_maps = v->on == ECH_DEPS_ON_ADDRESSES ? ECH_N_SPACES : v->p->n_slots;
    ECH_TRY(ech_calloc((size_t)v->n_maps, sizeof *v->map, &v->map));
    ECH_TRY(ech_calloc((size_t)v->p->n_requests, sizeof *v->open, &v->open));
    ECH_TRY(ech_calloc((size_t)v->p->n_requests, sizeof *v->open_before, &v->open_before));
    ECH_TRY(ech_calloc((size_t)v->p->n_requests, sizeof *v->awaited, &v->awaited));
    for (int i = 0; i < v->p->n_requests; i++)
        v->open[i] = v->awaited[i] = -1;
    for (int a = 0; a < ECH_N_AXES; a++)
        v->last_start[a] = -1;
    ECH_TRY(list_nodes(v));
    for (int node = 0; node < v->d.n; node++) {
        if (v->d.op[node] == ECH_DEPS_RELEASE)
            ECH_TRY(visit_release(v, node));
        else
            ECH_TRY(visit_op(v, node));
        ECH_TRY(close_node(v, node));
        ECH_TRY(note_round(v, node));
    }
    for (int i = 0; i < v->p->n_requests; i++) {
        if (v->open[i] < 0)
            continue;
        (void)ech_item_describe(v->p, v->d.item[v->open[i]], where, sizeof where);
        return ECH_RAISE(ECH_E_PROOF, "%s starts a message that is never awaited", where);
    }
    return ECH_OK;
}

ech_status ech_deps_derive(const ech_program *p, ech_deps_on on, ech_deps *out)
{
    deriver v = {.p = p, .on = on};
    *out = (ech_deps){0};
    ECH_CHECK(!p->repeat.times, ECH_E_UNSUPPORTED, "program '%s' is rolled: unroll it first",
              p->name);
    const ech_status st = derive(&v);
    for (int i = 0; i < v.n_maps && v.map; i++)
        ech_interval_fini(&v.map[i]);
    free(v.map);
    free(v.cells);
    free(v.edge);
    free(v.open);
    free(v.open_before);
    free(v.awaited);
    v.d.pred = v.pred;
    if (st < 0)
        ech_deps_fini(&v.d);
    *out = v.d;
    return st;
}

void ech_deps_fini(ech_deps *d)
{
    free(d->item);
    free(d->op);
    free(d->slot);
    free(d->row);
    free(d->pred);
    *d = (ech_deps){0};
}

bool ech_deps_drop(ech_deps *d, int node, int pred)
{
    for (int i = d->row[node]; i < d->row[node + 1]; i++) {
        if (d->pred[i] != pred)
            continue;
        memmove(d->pred + i, d->pred + i + 1, (d->n_edges - (size_t)i - 1) * sizeof *d->pred);
        d->n_edges--;
        for (int k = node + 1; k <= d->n; k++)
            d->row[k]--;
        return true;
    }
    return false;
}
