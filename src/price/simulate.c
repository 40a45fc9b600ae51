/* One worklist run over the programs of the ranks that symmetry leaves. */
#include "price/simulate_private.h"

#include <math.h>
#include <stdlib.h>

enum {
    MOST_NODES = 1 << 16,
    MOST_CELLS = 1 << 24 /* of all nodes: requests, or channels over an axis */
};

/* --- symmetry --- */

int sim_node_of(const sim *s, int rank)
{
    int64_t coord[ECH_N_AXES];
    int64_t node = 0;
    ech_layout_coords(s->layout, rank, coord);
    for (int k = 0; k < ECH_MESH_AXES; k++)
        node += coord[s->layout->order[k]] * s->stride[s->layout->order[k]];
    return (int)node;
}

static int class_of(const sim *s, int rank)
{
    return s->spec->class_of ? s->spec->class_of[rank] : 0;
}

/* Axes of the mesh that a coordinate along `axis` moves on. */
static void note_axis(const sim *s, ech_axis axis, bool varies[ECH_N_AXES])
{
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        const ech_axis a = s->layout->order[k];
        varies[a] = varies[a] || ech_axis_contains(a, axis) || axis == ECH_AXIS_WORLD;
    }
    varies[ECH_AXIS_PP] = varies[ECH_AXIS_PP] || axis == ECH_AXIS_TIED;
}

/* Messages between pairs: their axis, and those that the peer is computed from. */
static void note_messages(const sim *s, const ech_program *p, bool varies[ECH_N_AXES])
{
    for (int b = 0; b < p->n_blocks; b++)
        for (int k = 0; k < p->block[b].n_ops; k++) {
            const ech_op *op = &p->block[b].op[k];
            if (!sim_is_message(op->kind))
                continue;
            note_axis(s, op->axis, varies);
            for (int i = 0; i < op->attr[0].n; i++)
                if (op->attr[0].node[i].op == ECH_EXPR_COORD)
                    note_axis(s, (ech_axis)op->attr[0].node[i].value, varies);
        }
}

/* Is the class of some rank not that of the rank at coordinate 0 of the axis. */
static bool class_varies(const sim *s, ech_axis axis)
{
    int64_t coord[ECH_N_AXES];
    const int stride = ech_order_stride(s->layout->order, ECH_MESH_AXES, s->layout->degree, axis);
    for (int r = 0; r < s->layout->world && s->spec->class_of; r++) {
        ech_layout_coords(s->layout, r, coord);
        if (class_of(s, r) != class_of(s, r - (int)coord[axis] * stride))
            return true;
    }
    return false;
}

static ech_status make_nodes(sim *s)
{
    bool varies[ECH_N_AXES] = {false};
    int64_t n = 1;
    for (int c = 0; c < s->spec->n_classes; c++)
        note_messages(s, s->spec->program[c], varies);
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        const ech_axis a = s->layout->order[k];
        if (s->spec->follows_all || varies[a] || class_varies(s, a)) {
            s->stride[a] = (int)n;
            n *= s->layout->degree[a];
        }
    }
    ECH_CHECK(n <= MOST_NODES && n * (s->n_requests + 1) <= MOST_CELLS, ECH_E_UNSUPPORTED,
              "%lld ranks with %d messages each are too many to follow", (long long)n,
              s->n_requests);
    s->n_nodes = (int)n;
    ECH_TRY(ech_calloc((size_t)n, sizeof *s->node, &s->node));
    ECH_TRY(ech_calloc((size_t)n, sizeof *s->queue, &s->queue));
    ECH_TRY(ech_calloc((size_t)n, sizeof *s->seen, &s->seen));
    return ech_calloc((size_t)s->layout->world, sizeof *s->members, &s->members);
}

static ech_status fill_nodes(sim *s)
{
    int found = 0;
    for (int r = 0; r < s->layout->world; r++) {
        const int i = sim_node_of(s, r);
        sim_node *n = &s->node[i];
        if (n->open)
            continue; /* ranks come in order: the lowest has been here */
        found++;
        n->rank = r;
        n->klass = class_of(s, r);
        ech_layout_coords(s->layout, r, n->coord);
        for (int a = 0; a < ECH_N_AXES; a++)
            n->first[a] = NONE;
        ECH_TRY(ech_calloc((size_t)s->n_requests, sizeof *n->open, &n->open));
    }
    ECH_ASSERT(found == s->n_nodes);
    return ECH_OK;
}

/* --- the run --- */

void sim_enqueue(sim *s, int node)
{
    if (s->node[node].is_queued)
        return;
    s->node[node].is_queued = true;
    s->queue[s->n_queue++] = node;
}

/* Marks of an item from where the node stands; *passed: all of them. */
static ech_status run_marks(sim *s, int node, const sim_price *price, bool *passed)
{
    sim_node *n = &s->node[node];
    const sim_class *c = &s->klass[n->klass];
    const ech_block *b = &c->p->block[c->p->item[n->item].block];
    *passed = true;
    for (; n->mark < price->n; n->mark++) {
        sim_mark *m = &c->mark[price->first + n->mark];
        if (!n->is_parked)
            n->now_s += m->before_s;
        n->is_parked = false;
        if (ech_op_row_get(b->op[m->op].kind)->is_start)
            ECH_TRY(sim_start(s, node, m));
        else
            ECH_TRY(sim_wait(s, node, m, passed));
        if (!*passed) {
            n->is_parked = true;
            return ECH_OK;
        }
    }
    return ECH_OK;
}

static ech_status end_item(sim *s, int node, const sim_price *price)
{
    sim_node *n = &s->node[node];
    const ech_program *p = s->klass[n->klass].p;
    const ech_item *it = &p->item[n->item];
    const ech_bar bar = {.rank = n->rank,
                         .lane = ECH_LANE_COMPUTE,
                         .item = n->item,
                         .op = NONE,
                         .begin_s = n->item_s,
                         .end_s = n->now_s + price->after_s};
    n->now_s += price->after_s;
    if (it->segment == ECH_SEGMENT_COMMIT)
        n->optimizer_s += price->kernels_s;
    else
        n->compute_s += price->kernels_s;
    if (p->block[it->block].role == ECH_ROLE_RECOMPUTE)
        n->recompute_s += price->kernels_s;
    n->ops += price->n + price->n_kernels;
    return price->n_kernels ? sim_add_bar(s, &bar) : ECH_OK;
}

static ech_status advance(sim *s, int node)
{
    sim_node *n = &s->node[node];
    const ech_program *p = s->klass[n->klass].p;
    for (; n->item < p->n_items; n->item++) {
        const sim_price *price = NULL;
        bool passed = true;
        ECH_TRY(sim_price_of(s, n->klass, &p->item[n->item], &price));
        if (n->mark == 0 && !n->is_parked)
            n->item_s = n->now_s;
        ECH_TRY(run_marks(s, node, price, &passed));
        if (!passed)
            return ECH_OK;
        ECH_TRY(end_item(s, node, price));
        n->mark = 0;
    }
    return ECH_OK;
}

static ech_status check_finished(const sim *s)
{
    char item[128];
    for (int i = 0; i < s->n_nodes; i++) {
        const sim_node *n = &s->node[i];
        const ech_program *p = s->klass[n->klass].p;
        ECH_CHECK(n->item == p->n_items, ECH_E_PROOF,
                  "rank %d waits for ever in %s: the programs are to be proved first", n->rank,
                  ech_item_describe(p, n->item, item, sizeof item));
    }
    return ECH_OK;
}

static ech_status run(sim *s)
{
    ECH_TRY(sim_list_classes(s));
    ECH_TRY(make_nodes(s));
    ECH_TRY(fill_nodes(s));
    for (int i = s->n_nodes - 1; i >= 0; i--)
        sim_enqueue(s, i);
    while (s->n_queue > 0) {
        const int i = s->queue[--s->n_queue];
        s->node[i].is_queued = false;
        ECH_TRY(advance(s, i));
    }
    return check_finished(s);
}

static void release(sim *s)
{
    sim_meetings_fini(s);
    for (int c = 0; s->klass && c < s->spec->n_classes; c++) {
        free(s->klass[c].price);
        free(s->klass[c].mark);
    }
    for (int i = 0; s->node && i < s->n_nodes; i++) {
        free(s->node[i].open);
        free(s->node[i].stall);
    }
    free(s->klass);
    free(s->node);
    free(s->queue);
    free(s->seen);
    free(s->members);
}

/* --- bars --- */

static int by_begin(const void *a, const void *b)
{
    const ech_bar *x = a;
    const ech_bar *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->begin_s != y->begin_s)
        return x->begin_s < y->begin_s ? -1 : 1;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->item != y->item)
        return x->item < y->item ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* --- sums --- */

/* The node that ends last. */
static int last_node(const sim *s)
{
    int last = 0;
    for (int i = 1; i < s->n_nodes; i++)
        last = s->node[i].now_s > s->node[last].now_s ? i : last;
    return last;
}

/* Back from the end: kernels to where the rank last stood, through the message that it stood for
 * and those before it on its link, to the rank whose start came last. */
static void walk_critical(const sim *s, ech_step_sums *out)
{
    const sim_node *last = &s->node[last_node(s)];
    const sim_node *n = last;
    int stalls = last->n_stalls;
    double at = last->now_s;
    double delay = last->delay_s;
    while (stalls > 0) {
        const sim_stall *stall = &n->stall[stalls - 1];
        const sim_message *m = &s->message[stall->message];
        out->critical_comm_s += delay - stall->delay_s;
        out->critical_compute_s += at - stall->end_s - (delay - stall->delay_s);
        out->critical_comm_s += m->end_s - m->busy_s;
        while (m->before != NONE)
            m = &s->message[m->before];
        n = &s->node[m->from];
        stalls = m->from_stalls;
        at = m->begin_s;
        delay = m->from_delay_s;
    }
    out->critical_comm_s += delay;
    out->critical_compute_s += at - delay;
}

static void add_node(const sim_node *n, double share, ech_step_sums *out)
{
    const double kernels_s = n->compute_s + n->optimizer_s;
    out->compute_s += share * n->compute_s;
    out->recompute_s += share * n->recompute_s;
    out->optimizer_s += share * n->optimizer_s;
    for (int a = 0; a < ECH_N_AXES; a++) {
        out->stood_s[a] += share * n->stood_s[a];
        out->exposed_s[a] += share * n->moving_s[a]; /* in proportion, as yet */
    }
    out->ops += n->ops;
    if (kernels_s > out->busiest_s) {
        out->busiest_s = kernels_s;
        out->busiest_rank = n->rank;
    }
}

static void sum(const sim *s, double free_step_s, ech_step_sums *out)
{
    double moving_s = 0.0;
    *out = (ech_step_sums){.step_s = s->node[last_node(s)].now_s, .followed = s->n_nodes};
    for (int i = 0; i < s->n_nodes; i++)
        add_node(&s->node[i], 1.0 / s->n_nodes, out);
    for (int a = 0; a < ECH_N_AXES; a++)
        moving_s += out->exposed_s[a];
    const double exposed_s = out->step_s - free_step_s;
    for (int a = 0; a < ECH_N_AXES; a++)
        out->exposed_s[a] *= moving_s > 0.0 ? exposed_s / moving_s : 0.0;
    out->bubble_s = fmax(free_step_s - out->compute_s - out->optimizer_s, 0.0); /* rounding */
    walk_critical(s, out);
}

/* The step where messages take no time. */
static ech_status free_step(const ech_simulate_spec *spec, double *out)
{
    sim s = {.spec = spec, .is_free = true};
    const ech_status st = run(&s);
    if (st >= 0)
        *out = s.node[last_node(&s)].now_s;
    release(&s);
    return st;
}

ech_status ech_simulate(const ech_simulate_spec *spec, ech_step_sums *sums, ech_timeline *line)
{
    double free_step_s = 0.0;
    ECH_CHECK(spec->costs.busy >= 0.0 && spec->costs.busy <= 1.0, ECH_E_ILLEGAL,
              "messages occupy %g of their ranks' processors: no share", spec->costs.busy);
    for (int k = 0; k < spec->n_classes; k++)
        ECH_CHECK(!spec->program[k]->repeat.times, ECH_E_UNSUPPORTED,
                  "program '%s' is rolled: unroll it first", spec->program[k]->name);
    ECH_TRY(free_step(spec, &free_step_s));
    ech_timeline made = {.program = spec->program,
                         .class_of = spec->class_of,
                         .world = spec->program[0]->layout.world};
    sim s = {.spec = spec, .line = line ? &made : NULL};
    const ech_status st = run(&s);
    if (st >= 0) {
        sum(&s, free_step_s, sums);
        made.step_s = sums->step_s;
        if (made.n)
            qsort(made.bar, made.n, sizeof *made.bar, by_begin);
    }
    release(&s);
    if (st < 0)
        ech_timeline_fini(&made);
    else if (line)
        *line = made;
    return st;
}
