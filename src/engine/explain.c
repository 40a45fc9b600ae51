#include "engine/explain.h"
#include "base/checked.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOBODY = -1, ELSEWHERE = -2 /* a rank of which nothing is known here */ };

/* How little a rank can help itself: the higher, the more likely it is the cause. */
typedef enum fault { FAULT_NONE, FAULT_WAITS, FAULT_BUSY, FAULT_STOPPED, FAULT_GONE } fault;

typedef struct search {
    const ech_explain_query *q;
    int *members; /* [world] owned: of the group in question */
    int *next;    /* [n_ranks] owned: whom each waits for, by place in the view */
    int *path;    /* [n_ranks] owned: from who asks to the cause */
    int n_path;
    int elsewhere; /* a rank that is waited for and not known; -1: none */
} search;

void ech_explain_look(const ech_flight_view *view, char *life)
{
    for (int i = 0; i < view->n_ranks; i++)
        life[i] = ech_process_state(&view->rank[i].process);
}

static const ech_flight_rank *rank_at(const search *s, int i)
{
    return &s->q->view->rank[i];
}

/* Place of a rank in the view; ELSEWHERE: it is not there. */
static int place_of(const search *s, int rank)
{
    for (int i = 0; i < s->q->view->n_ranks; i++)
        if (rank_at(s, i)->rank == rank)
            return i;
    return ELSEWHERE;
}

static fault fault_of(const search *s, int i)
{
    const char life = s->q->life[i];
    if (life == '\0' || life == 'Z' || life == 'X')
        return FAULT_GONE;
    if (life == 'T' || life == 't')
        return FAULT_STOPPED;
    return rank_at(s, i)->at.state == ECH_FLIGHT_WAITS ? FAULT_WAITS : FAULT_BUSY;
}

/* --- messages --- */

static bool is_p2p(ech_op_kind kind)
{
    return kind == ECH_OP_SEND_START || kind == ECH_OP_RECV_START;
}

/* A message as both of its sides can name it. */
typedef struct message {
    ech_axis axis;
    ech_op_kind kind; /* of this side's start */
    int peer;         /* p2p: index in the group; else -1 */
    int number;       /* how many of the same kind this rank started before it */
} message;

static int peer_of(const ech_op *op, const ech_item *it, const int64_t *coord)
{
    return is_p2p(op->kind) ? (int)ech_expr_eval(&op->attr[0], coord, it->micro) : -1;
}

/* Starts before (item, op) that are like a message: any collective of its axis, or p2p of its kind
 * with its peer. */
static int count_starts(const ech_program *p, const int64_t *coord, const message *like, int item,
                        int op)
{
    int n = 0;
    for (int i = 0; i < p->n_items && i <= item; i++) {
        const ech_item *it = &p->item[i];
        const ech_block *b = &p->block[it->block];
        for (int k = 0; k < b->n_ops && (i < item || k < op); k++) {
            const ech_op *o = &b->op[k];
            if (!ech_op_row_get(o->kind)->is_start || o->axis != like->axis)
                continue;
            if (is_p2p(like->kind) ? o->kind == like->kind && peer_of(o, it, coord) == like->peer
                                   : !is_p2p(o->kind))
                n++;
        }
    }
    return n;
}

/* The op that starts the message which the op at (item, at) waits for; NULL: there is none. */
static const ech_op *find_start(const ech_program *p, int item, int at, int *its_item, int *its_op)
{
    const ech_item *mine = &p->item[item];
    const int request = mine->request + p->block[mine->block].op[at].request;
    for (int i = item; i >= 0; i--) {
        const ech_item *it = &p->item[i];
        const ech_block *b = &p->block[it->block];
        for (int k = (i == item ? at : b->n_ops) - 1; k >= 0 && it->request >= 0; k--) {
            if (!ech_op_row_get(b->op[k].kind)->is_start ||
                it->request + b->op[k].request != request)
                continue;
            *its_item = i;
            *its_op = k;
            return &b->op[k];
        }
    }
    return NULL;
}

/* The message that rank i stands before; false: it stands in no wait of its program. */
static bool message_of(const search *s, int i, message *out)
{
    const ech_flight_rank *r = rank_at(s, i);
    const ech_program *p = s->q->program_of(s->q->user, r->rank, r->at.program);
    int64_t coord[ECH_N_AXES];
    int item;
    int op;
    if (r->at.state != ECH_FLIGHT_WAITS || !p || r->at.item < 0 || r->at.item >= p->n_items ||
        r->at.op < 0 || r->at.op >= p->block[p->item[r->at.item].block].n_ops)
        return false;
    const ech_op *start = find_start(p, r->at.item, r->at.op, &item, &op);
    if (!start)
        return false;
    ech_layout_coords(s->q->layout, r->rank, coord);
    *out = (message){start->axis, start->kind, peer_of(start, &p->item[item], coord), 0};
    out->number = count_starts(p, coord, out, item, op);
    return true;
}

/* Has rank i started its side of a message of rank r, whose index in the group is `index`. */
static bool has_reached(const search *s, int i, const ech_flight_rank *r, const message *m,
                        int index)
{
    const ech_flight_rank *peer = rank_at(s, i);
    const ech_program *p = s->q->program_of(s->q->user, peer->rank, peer->at.program);
    int64_t coord[ECH_N_AXES];
    message side = *m;
    if (peer->at.passes != r->at.passes || !p)
        return peer->at.passes > r->at.passes;
    if (is_p2p(m->kind)) {
        side.kind = m->kind == ECH_OP_SEND_START ? ECH_OP_RECV_START : ECH_OP_SEND_START;
        side.peer = index;
    }
    ech_layout_coords(s->q->layout, peer->rank, coord);
    return count_starts(p, coord, &side, peer->at.item, peer->at.op) > m->number;
}

/* --- who waits for whom --- */

/* The best of two candidates: one that has not reached the message before one that has, and then
 * the one that can help itself least. */
typedef struct candidate {
    int at; /* place in the view, NOBODY */
    bool is_behind;
    fault fault;
} candidate;

static void consider(candidate *best, candidate c)
{
    const bool is_cause = c.is_behind || c.fault > FAULT_WAITS;
    const bool is_better = best->at == NOBODY || c.is_behind > best->is_behind ||
                           (c.is_behind == best->is_behind && c.fault > best->fault);
    if (is_cause && is_better)
        *best = c;
}

static int waits_for_in_group(search *s, int i, const message *m)
{
    const ech_flight_rank *r = rank_at(s, i);
    const int n = s->q->layout->degree[m->axis];
    const int index = ech_layout_group(s->q->layout, r->rank, m->axis, s->members);
    candidate best = {NOBODY, false, FAULT_NONE};
    for (int k = 0; k < n; k++) {
        const int at = place_of(s, s->members[k]);
        if (k == index || (is_p2p(m->kind) && k != m->peer))
            continue;
        if (at == ELSEWHERE)
            s->elsewhere = s->members[k];
        else
            consider(&best, (candidate){at, !has_reached(s, at, r, m, index), fault_of(s, at)});
    }
    return best.at;
}

/* Outside of programs ranks meet as a whole: who is still in one, or before it, is waited for. */
static int waits_for_outside(const search *s, int i)
{
    const ech_flight_rank *r = rank_at(s, i);
    candidate best = {NOBODY, false, FAULT_NONE};
    for (int k = 0; k < s->q->view->n_ranks; k++) {
        const ech_flight_rank *o = rank_at(s, k);
        const bool is_behind =
            o->at.passes < r->at.passes ||
            (o->at.passes == r->at.passes && o->at.state != ECH_FLIGHT_OUTSIDE) ||
            (o->at.passes == r->at.passes && o->at.step < r->at.step);
        const fault f = fault_of(s, k);
        if (k != i && (is_behind || f >= FAULT_STOPPED))
            consider(&best, (candidate){k, is_behind, f});
    }
    return best.at;
}

/* Whom rank i waits for, by place in the view; NOBODY: it holds itself up, or is not known to be
 * held up. */
static int waits_for(search *s, int i)
{
    message m;
    if (fault_of(s, i) >= FAULT_STOPPED)
        return NOBODY;
    if (rank_at(s, i)->at.state == ECH_FLIGHT_OUTSIDE)
        return waits_for_outside(s, i);
    return message_of(s, i, &m) ? waits_for_in_group(s, i, &m) : NOBODY;
}

/* Follow from place i; the path ends with the cause, or with a rank that is on it already.
 * @return is it a circle */
static bool follow(search *s, int i)
{
    s->n_path = 0;
    while (i != NOBODY) {
        for (int k = 0; k < s->n_path; k++)
            if (s->path[k] == i)
                return true;
        s->path[s->n_path++] = i;
        i = s->next[i];
    }
    return false;
}

/* --- words --- */

static void add_life(ech_text *t, char life)
{
    if (life == '\0')
        ech_text_add(t, " (its process is gone)");
    else if (life == 'Z' || life == 'X')
        ech_text_add(t, " (its process has died: state %c)", life);
    else if (life == 'T' || life == 't')
        ech_text_add(t, " (stopped: state %c)", life);
    else if (life == 'D')
        ech_text_add(t, " (in a call of the system: state D)");
}

static void add_stand(const search *s, int i, ech_text *t)
{
    char where[192];
    const ech_flight_rank *r = rank_at(s, i);
    const double for_s = s->q->now_s - r->at.since_s;
    ech_text_add(t, "rank %d stands %s %s, for %.1f s", r->rank,
                 r->at.state == ECH_FLIGHT_OUTSIDE ? "outside of a step:" : "in",
                 ech_flight_describe(r, where, sizeof where), for_s > 0.0 ? for_s : 0.0);
    add_life(t, s->q->life[i]);
}

static bool leads_to(search *s, int i, int cause)
{
    (void)follow(s, i);
    for (int k = 1; k < s->n_path; k++)
        if (s->path[k] == cause)
            return true;
    return false;
}

/* " 0, 2, 3 and 5 more": ranks whose way leads to the cause. */
static int add_waiting(search *s, int cause, ech_text *t)
{
    enum { MOST = 8 };
    int n = 0;
    for (int i = 0; i < s->q->view->n_ranks; i++) {
        if (i == cause || !leads_to(s, i, cause))
            continue;
        if (++n <= MOST)
            ech_text_add(t, "%s %d", n > 1 ? "," : "", rank_at(s, i)->rank);
    }
    if (n > MOST)
        ech_text_add(t, " and %d more", n - MOST);
    return n;
}

static void add_waiter(const search *s, int i, int cause, ech_text *t)
{
    char where[192];
    message m;
    const ech_flight_rank *r = rank_at(s, i);
    ech_text_add(t, "rank %d %s %s", r->rank,
                 r->at.state == ECH_FLIGHT_OUTSIDE ? "outside of a step:" : "in",
                 ech_flight_describe(r, where, sizeof where));
    if (!message_of(s, i, &m))
        return;
    const int index = ech_layout_group(s->q->layout, r->rank, m.axis, s->members);
    ech_text_add(t, ", which rank %d has %s", rank_at(s, cause)->rank,
                 has_reached(s, cause, r, &m, index) ? "begun and does not carry on"
                                                     : "not reached");
}

static void add_cause(search *s, int waiter, int cause, ech_text *t)
{
    ech_text ranks = {0};
    add_stand(s, cause, t);
    const int n = add_waiting(s, cause, &ranks);
    if (n)
        ech_text_add(t, "; rank%s%s wait%s for it: ", n > 1 ? "s" : "", ech_text_get(&ranks),
                     n > 1 ? "" : "s");
    if (n && waiter != NOBODY)
        add_waiter(s, waiter, cause, t);
    ech_text_fini(&ranks);
}

static void add_circle(const search *s, int first, ech_text *t)
{
    ech_text_add(t, "ranks wait for each other: ");
    for (int k = first; k < s->n_path; k++) {
        if (k > first)
            ech_text_add(t, "; ");
        add_waiter(s, s->path[k], s->path[k + 1 < s->n_path ? k + 1 : first], t);
    }
}

static void add_unknown(const search *s, ech_text *t)
{
    const ech_flight_view *v = s->q->view;
    if (v->n_ranks < v->world)
        ech_text_add(t, " (known here are the %d ranks of this host of %d)", v->n_ranks, v->world);
}

/* The path from who asks has been followed: tell of its end. */
static void tell(search *s, bool is_circle, ech_explanation *out, ech_text *t)
{
    const int last = s->path[s->n_path - 1];
    const int waiter = s->n_path > 1 ? s->path[s->n_path - 2] : NOBODY;
    s->elsewhere = -1;
    const bool is_elsewhere = !is_circle && waits_for(s, last) == NOBODY && s->elsewhere >= 0;
    *out = (ech_explanation){.rank = -1, .waiter = -1, .is_circle = is_circle};
    if (is_circle) {
        int first = 0;
        while (s->path[first] != s->next[last])
            first++;
        out->rank = rank_at(s, last)->rank;
        add_circle(s, first, t);
    } else if (waiter == NOBODY || is_elsewhere) {
        add_stand(s, last, t);
        if (is_elsewhere)
            ech_text_add(t, "; it waits for rank %d, which is on another host", s->elsewhere);
        else
            ech_text_add(t, "; no rank is known to hold it up");
    } else {
        out->rank = rank_at(s, last)->rank;
        out->waiter = rank_at(s, waiter)->rank;
        add_cause(s, waiter, last, t);
    }
    add_unknown(s, t);
}

/* What was recorded is input: are its ranks the layout's, and the one that asks among them. */
static ech_status check_ranks(const search *s)
{
    const int world = s->q->layout->world;
    for (int i = 0; i < s->q->view->n_ranks; i++)
        ECH_CHECK(rank_at(s, i)->rank >= 0 && rank_at(s, i)->rank < world, ECH_E_CORRUPT,
                  "flight recorder: a record of rank %d in a layout of %d", rank_at(s, i)->rank,
                  world);
    ECH_CHECK(place_of(s, s->q->from) >= 0, ECH_E_CORRUPT,
              "flight recorder: no record of rank %d, which asks", s->q->from);
    return ECH_OK;
}

static ech_status run(search *s, ech_explanation *out)
{
    ech_text t = {0};
    const size_t n = (size_t)s->q->view->n_ranks;
    ECH_TRY(check_ranks(s));
    ECH_TRY(ech_calloc((size_t)s->q->layout->world, sizeof(int), &s->members));
    ECH_TRY(ech_calloc(n, sizeof(int), &s->next));
    ECH_TRY(ech_calloc(n, sizeof(int), &s->path));
    for (int i = 0; i < s->q->view->n_ranks; i++)
        s->next[i] = waits_for(s, i);
    tell(s, follow(s, place_of(s, s->q->from)), out, &t);
    const bool failed = t.failed;
    (void)snprintf(out->line, sizeof out->line, "%s", ech_text_get(&t));
    ech_text_fini(&t);
    ECH_CHECK(!failed, ECH_E_NOMEM, "no memory to explain who waits for whom");
    return ECH_OK;
}

ech_status ech_explain(const ech_explain_query *q, ech_explanation *out)
{
    search s = {.q = q, .elsewhere = -1};
    const ech_status st = run(&s, out);
    free(s.members);
    free(s.next);
    free(s.path);
    return st;
}
