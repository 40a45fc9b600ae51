/* Where ranks meet: collectives of a group, messages of a pair, and who goes on when they have. */
#include "price/simulate_private.h"

#include <math.h>
#include <stdlib.h>

/* --- groups --- */

/* Nodes of a node's group over an axis: how many, and the lowest. */
static void find_group(sim *s, int node, ech_axis axis)
{
    sim_node *n = &s->node[node];
    if (n->first[axis] != NONE)
        return;
    (void)ech_layout_group(s->layout, n->rank, axis, s->members);
    n->first[axis] = node;
    n->size[axis] = 0;
    for (int i = 0; i < s->layout->degree[axis]; i++) {
        const int other = sim_node_of(s, s->members[i]);
        const int mark = node * ECH_N_AXES + (int)axis + 1;
        if (s->seen[other] == mark)
            continue;
        s->seen[other] = mark;
        n->size[axis]++;
        n->first[axis] = other < n->first[axis] ? other : n->first[axis];
    }
}

/* --- one message --- */

static ech_status make_message(sim *s, ech_axis axis, int missing, int *out)
{
    ECH_TRY(ech_grow(&s->message, (size_t)s->n_messages, &s->message_capacity, sizeof *s->message));
    s->message[s->n_messages] = (sim_message){.begin_s = -1.0,
                                              .axis = axis,
                                              .missing = missing,
                                              .from = NONE,
                                              .before = NONE,
                                              .parked = NONE,
                                              .next = NONE};
    *out = s->n_messages++;
    return ECH_OK;
}

/* A member has come. */
static void join(sim *s, int message, int node, double lasts_s)
{
    sim_message *m = &s->message[message];
    const sim_node *n = &s->node[node];
    if (n->now_s > m->begin_s) {
        m->begin_s = n->now_s;
        m->from = node;
        m->from_stalls = n->n_stalls;
        m->from_delay_s = n->delay_s;
    }
    m->lasts_s = lasts_s > m->lasts_s ? lasts_s : m->lasts_s;
    m->missing--;
}

/* All have: it begins once the one before it on its link is done. */
static void complete(sim *s, int message, int before)
{
    sim_message *m = &s->message[message];
    if (before != NONE && s->message[before].end_s > m->begin_s) {
        m->begin_s = s->message[before].end_s;
        m->before = before;
    }
    m->busy_s = m->before != NONE ? s->message[before].busy_s : m->begin_s;
    m->end_s = m->begin_s + m->lasts_s;
    for (int i = m->parked; i != NONE; i = s->node[i].next_parked)
        sim_enqueue(s, i);
    m->parked = NONE;
}

/* --- collectives --- */

static ech_status start_collective(sim *s, int node, ech_axis axis, double lasts_s, int *out)
{
    sim_node *n = &s->node[node];
    find_group(s, node, axis);
    if (!s->stream[axis])
        ECH_TRY(ech_calloc((size_t)s->n_nodes, sizeof *s->stream[axis], &s->stream[axis]));
    sim_stream *stream = &s->stream[axis][n->first[axis]];
    const int k = n->started[axis]++;
    if (k == stream->n) {
        int made;
        ECH_TRY(ech_grow(&stream->message, (size_t)k, &stream->capacity, sizeof(int)));
        ECH_TRY(make_message(s, axis, n->size[axis], &made));
        stream->message[stream->n++] = made;
    }
    *out = stream->message[k];
    join(s, *out, node, lasts_s);
    if (s->message[*out].missing == 0)
        complete(s, *out, k > 0 ? stream->message[k - 1] : NONE);
    return ECH_OK;
}

/* --- messages of a pair --- */

static ech_status make_channels(sim *s, ech_axis axis)
{
    size_t n;
    if (s->channel[axis])
        return ECH_OK;
    ECH_TRY(ech_mul_size((size_t)s->n_nodes, (size_t)s->layout->degree[axis], &n));
    ECH_TRY(ech_calloc(n, sizeof *s->channel[axis], &s->channel[axis]));
    for (size_t i = 0; i < n; i++)
        s->channel[axis][i] = (sim_channel){.first = NONE, .last = NONE, .before = NONE};
    return ECH_OK;
}

static ech_status find_channel(sim *s, int node, const ech_op *op, sim_channel **out)
{
    const sim_node *n = &s->node[node];
    const ech_axis axis = op->axis;
    const int degree = s->layout->degree[axis];
    const int64_t peer =
        ech_expr_eval(&op->attr[0], n->coord, s->klass[n->klass].p->item[n->item].micro);
    const int me = ech_layout_group(s->layout, n->rank, axis, s->members);
    ECH_CHECK(peer >= 0 && peer < degree && peer != me, ECH_E_PROOF,
              "rank %d, op %s over %s: member %d of %d names member %lld", n->rank,
              ech_op_name(op->kind), ech_axis_name(axis), me, degree, (long long)peer);
    ECH_TRY(make_channels(s, axis));
    const bool sends = op->kind == ECH_OP_SEND_START;
    const int sender = sends ? node : sim_node_of(s, s->members[peer]);
    const int64_t receiver = sends ? peer : me;
    *out = &s->channel[axis][(size_t)sender * (size_t)degree + (size_t)receiver];
    return ECH_OK;
}

static ech_status start_message(sim *s, int node, const ech_op *op, double lasts_s, int *out)
{
    sim_channel *c = NULL;
    const bool sends = op->kind == ECH_OP_SEND_START;
    ECH_TRY(find_channel(s, node, op, &c));
    if (c->first != NONE && c->is_sent != sends) {
        *out = c->first;
        c->first = s->message[*out].next;
        join(s, *out, node, lasts_s);
        complete(s, *out, c->before);
        c->before = *out;
        return ECH_OK;
    }
    ECH_TRY(make_message(s, op->axis, 2, out));
    join(s, *out, node, lasts_s);
    if (c->first == NONE)
        c->first = *out;
    else
        s->message[c->last].next = *out;
    c->last = *out;
    c->is_sent = sends;
    return ECH_OK;
}

/* --- starts and waits --- */

static ech_status open_of(sim *s, const sim_node *n, const ech_op *op, sim_open **out)
{
    const ech_program *p = s->klass[n->klass].p;
    const int request = p->item[n->item].request + op->request;
    ECH_CHECK(p->item[n->item].request >= 0 && op->request >= 0 && request < s->n_requests,
              ECH_E_PROOF, "rank %d, item %d, op %s: request %d of %d", n->rank, n->item,
              ech_op_name(op->kind), request, s->n_requests);
    *out = &n->open[request];
    return ECH_OK;
}

static const ech_op *op_of(const sim *s, const sim_node *n, const sim_mark *m)
{
    const ech_program *p = s->klass[n->klass].p;
    return &p->block[p->item[n->item].block].op[m->op];
}

ech_status sim_start(sim *s, int node, sim_mark *m)
{
    sim_node *n = &s->node[node];
    const ech_op *op = op_of(s, n, m);
    sim_open *o = NULL;
    double lasts_s = 0.0;
    ECH_TRY(open_of(s, n, op, &o));
    ECH_CHECK(!o->is_started, ECH_E_PROOF, "rank %d, item %d starts a message that is in flight",
              n->rank, n->item);
    *o = (sim_open){
        .message = NONE, .item = n->item, .op = m->op, .is_started = true, .begin_s = n->now_s};
    if (s->layout->degree[op->axis] == 1)
        return ECH_OK;
    ECH_TRY(sim_ask_comm(s, n, m, op, &lasts_s));
    if (sim_is_message(op->kind))
        return start_message(s, node, op, lasts_s, &o->message);
    return start_collective(s, node, op->axis, lasts_s, &o->message);
}

/* Kernels that the node has run while the message moved. */
static double beside_s(const sim_node *n, const sim_open *o, const sim_message *m)
{
    const double begin = m->begin_s > o->begin_s ? m->begin_s : o->begin_s;
    const double end = m->end_s < n->now_s ? m->end_s : n->now_s;
    double s = end - begin;
    for (int i = n->n_stalls - 1; i >= 0 && n->stall[i].end_s > begin; i--) {
        const double to = n->stall[i].end_s < end ? n->stall[i].end_s : end;
        s -= fmax(to - fmax(n->stall[i].begin_s, begin), 0.0);
    }
    return fmax(s, 0.0);
}

/* What a message has taken from the kernels beside it is told where it is awaited. */
static void hold_up(sim *s, sim_node *n, const sim_open *o)
{
    const sim_message *m = &s->message[o->message];
    const double delay = s->spec->costs.busy * beside_s(n, o, m);
    n->now_s += delay;
    n->delay_s += delay;
    n->moving_s[m->axis] += delay;
}

/* The wait is over: what it stood for, and bars. */
static ech_status stand(sim *s, int node, const sim_mark *m, const sim_open *o)
{
    sim_node *n = &s->node[node];
    const sim_message *msg = &s->message[o->message];
    const ech_bar comm = {.rank = n->rank,
                          .lane = ECH_LANE_COMM,
                          .axis = msg->axis,
                          .item = o->item,
                          .op = o->op,
                          .begin_s = o->begin_s,
                          .end_s = msg->end_s};
    ECH_TRY(sim_add_bar(s, &comm));
    if (s->spec->costs.busy > 0.0 && !s->is_free)
        hold_up(s, n, o);
    if (msg->end_s <= n->now_s)
        return ECH_OK;
    const ech_bar wait = {.rank = n->rank,
                          .lane = ECH_LANE_WAIT,
                          .axis = msg->axis,
                          .item = n->item,
                          .op = m->op,
                          .begin_s = n->now_s,
                          .end_s = msg->end_s};
    ECH_TRY(sim_add_bar(s, &wait));
    ECH_TRY(ech_grow(&n->stall, (size_t)n->n_stalls, &n->stall_capacity, sizeof *n->stall));
    n->stall[n->n_stalls++] = (sim_stall){
        .begin_s = n->now_s, .end_s = msg->end_s, .delay_s = n->delay_s, .message = o->message};
    n->stood_s[msg->axis] += msg->end_s - n->now_s;
    n->moving_s[msg->axis] += msg->end_s - (msg->busy_s > n->now_s ? msg->busy_s : n->now_s);
    n->now_s = msg->end_s;
    return ECH_OK;
}

ech_status sim_wait(sim *s, int node, const sim_mark *m, bool *passed)
{
    sim_node *n = &s->node[node];
    sim_open *o = NULL;
    ECH_TRY(open_of(s, n, op_of(s, n, m), &o));
    ECH_CHECK(o->is_started, ECH_E_PROOF, "rank %d, item %d waits for what it has not started",
              n->rank, n->item);
    *passed = o->message == NONE || s->message[o->message].missing == 0;
    if (!*passed) {
        n->next_parked = s->message[o->message].parked;
        s->message[o->message].parked = node;
        return ECH_OK;
    }
    o->is_started = false;
    return o->message == NONE ? ECH_OK : stand(s, node, m, o);
}

ech_status sim_add_bar(sim *s, const ech_bar *bar)
{
    ech_timeline *t = s->line;
    if (!t)
        return ECH_OK;
    ECH_TRY(ech_grow(&t->bar, t->n, &t->capacity, sizeof *t->bar));
    t->bar[t->n++] = *bar;
    return ECH_OK;
}

void sim_meetings_fini(sim *s)
{
    for (int a = 0; a < ECH_N_AXES; a++) {
        for (int i = 0; s->stream[a] && i < s->n_nodes; i++)
            free(s->stream[a][i].message);
        free(s->stream[a]);
        free(s->channel[a]);
    }
    free(s->message);
}
