#include "order.h"

#include <stdlib.h>
#include <string.h>

typedef struct range {
    int where;
    size_t begin, end;
    bool reads, writes, is_scratch;
} range;

enum { MOST_RANGES = 2 * ECH_MAX_ARGS + 1 };

static range range_of(const ech_program *p, ech_extent e, bool on_addresses)
{
    const size_t base = e.slot >= 0 && on_addresses ? p->slot[e.slot].offset : 0;
    return (range){.where = e.slot < 0     ? -1
                            : on_addresses ? (int)p->slot[e.slot].space
                                           : e.slot,
                   .begin = base + e.begin,
                   .end = base + e.end};
}

static const ech_op *op_of(const ech_program *p, const ech_deps *d, int node)
{
    return &p->block[p->item[d->item[node]].block].op[d->op[node]];
}

static int list(const ech_program *p, const ech_deps *d, bool on_addresses, int node,
                range out[MOST_RANGES])
{
    int n = 0;
    const ech_item *it = &p->item[d->item[node]];
    if (d->op[node] == ECH_DEPS_RELEASE) {
        const int s = d->slot[node];
        out[n] = range_of(p, (ech_extent){s, 0, p->slot[s].bytes}, on_addresses);
        out[n++].writes = true;
        return n;
    }
    const ech_op *op = op_of(p, d, node);
    for (int i = 0; i < op->n_args; i++) {
        out[n] = range_of(p, ech_item_extent(p, it, &op->arg[i]), on_addresses);
        out[n].reads = (op->arg[i].access & ECH_READ) != 0;
        out[n++].writes = (op->arg[i].access & ECH_WRITE) != 0;
    }
    for (int i = 0; i < op->n_args; i++) {
        const int cell = op->arg[i].rank > 0 ? op->arg[i].dim[0].extent : ECH_EXTENT_BOUND;
        if (op->arg[i].region == ECH_REGION_NONE || cell == ECH_EXTENT_BOUND)
            continue;
        const ech_extent e = {p->scalars, 8 * (size_t)cell, 8 * (size_t)cell + 8};
        out[n] = range_of(p, e, on_addresses);
        out[n++].reads = true;
    }
    out[n] = range_of(p, ech_item_work(p, it, op), on_addresses);
    out[n].is_scratch = true;
    out[n++].writes = true;
    return n;
}

static int reason_of(const range *a, const range *b)
{
    int why = 0;
    if (a->where < 0 || a->where != b->where || a->begin >= b->end || b->begin >= a->end)
        return 0;
    why |= a->writes && b->reads ? ORDER_RAW : 0;
    why |= a->reads && b->writes ? ORDER_WAR : 0;
    why |= a->writes && b->writes ? ORDER_WAW : 0;
    return why && (a->is_scratch || b->is_scratch) ? why | ORDER_SCRATCH : why;
}

static int request_of(const ech_program *p, const ech_deps *d, int node)
{
    return p->item[d->item[node]].request + op_of(p, d, node)->request;
}

/* A wait follows its start: the last one before it with its request.  Starts on an axis follow one
 * another, and a start every wait that had its request. */
static int sent(const ech_program *p, const ech_deps *d, int a, int b)
{
    if (d->op[a] == ECH_DEPS_RELEASE || d->op[b] == ECH_DEPS_RELEASE)
        return 0;
    const ech_op_row *x = ech_op_row_get(op_of(p, d, a)->kind);
    const ech_op_row *y = ech_op_row_get(op_of(p, d, b)->kind);
    const int request = request_of(p, d, b);
    const bool is_same = request_of(p, d, a) == request;
    if (x->is_wait && y->is_start)
        return is_same ? ORDER_SENT : 0;
    if (!x->is_start)
        return 0;
    if (y->is_start)
        return op_of(p, d, a)->axis == op_of(p, d, b)->axis ? ORDER_SENT : 0;
    if (!y->is_wait || !is_same)
        return 0;
    for (int k = a + 1; k < b; k++)
        if (d->op[k] != ECH_DEPS_RELEASE && ech_op_row_get(op_of(p, d, k)->kind)->is_start &&
            request_of(p, d, k) == request)
            return 0;
    return ORDER_SENT;
}

int order_reason(const ech_program *p, const ech_deps *nodes, bool on_addresses, int a, int b)
{
    range x[MOST_RANGES];
    range y[MOST_RANGES];
    const int n = list(p, nodes, on_addresses, a, x);
    const int m = list(p, nodes, on_addresses, b, y);
    int why = sent(p, nodes, a, b);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            why |= reason_of(&x[i], &y[k]);
    return why;
}

static order make(int n)
{
    order o = {.n = n, .words = ((size_t)n + 63) / 64};
    o.bit = calloc((size_t)n * o.words + 1, sizeof *o.bit);
    return o;
}

static void set(order *o, int a, int b)
{
    o->bit[(size_t)a * o->words + (size_t)b / 64] |= UINT64_C(1) << (b % 64);
}

bool order_has(const order *o, int a, int b)
{
    return (o->bit[(size_t)a * o->words + (size_t)b / 64] >> (b % 64)) & 1;
}

/* Rows from the last node back: what a comes before, and what those come before. */
static void close_rows(order *o)
{
    for (int a = o->n - 1; a >= 0; a--)
        for (int b = a + 1; b < o->n; b++)
            if (order_has(o, a, b))
                for (size_t w = 0; w < o->words; w++)
                    o->bit[(size_t)a * o->words + w] |= o->bit[(size_t)b * o->words + w];
}

order order_by_bytes(const ech_program *p, const ech_deps *nodes, bool on_addresses)
{
    order o = make(nodes->n);
    for (int a = 0; a < o.n; a++)
        for (int b = a + 1; b < o.n; b++)
            if (order_reason(p, nodes, on_addresses, a, b))
                set(&o, a, b);
    close_rows(&o);
    return o;
}

order order_by_edges(const ech_deps *d)
{
    order o = make(d->n);
    for (int b = 0; b < d->n; b++)
        for (int i = d->row[b]; i < d->row[b + 1]; i++)
            set(&o, d->pred[i], b);
    close_rows(&o);
    return o;
}

bool order_is_implied(const order *o, const ech_deps *d, int node, int pred)
{
    for (int i = d->row[node]; i < d->row[node + 1]; i++)
        if (d->pred[i] != pred && order_has(o, pred, d->pred[i]))
            return true;
    return false;
}

void order_fini(order *o)
{
    free(o->bit);
    *o = (order){0};
}
