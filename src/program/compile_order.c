/* From a schedule's cells to what a rank does one after the other: tasks, and messages around them.
 *
 * Messages stand by rounds of the table's own time, in which every cell begins as early as it can:
 * a message belongs to the round in which its cell ends, on both of its ends.  Every rank goes
 * through its rounds in order, and all that it needs before a round was made in earlier ones; so no
 * rank waits for ever, even if its communication is one queue and the messages of a round are
 * posted together. */
#include "program/compile_private.h"

#include <stdlib.h>

/* --- tasks --- */

static bool has_weight_work(const compiler *c, int unit)
{
    return ech_unit_has_weight_role(ech_canon_unit_kind(c->spec.block.canon, unit));
}

int compile_chunk_of(const compiler *c, int stage)
{
    int k = 0;
    while (c->chunk[k].stage != stage)
        k++;
    return k;
}

static void add_cell(compiler *c, const ech_work *w)
{
    const int k = compile_chunk_of(c, w->stage);
    const unit_chunk *ch = &c->chunk[k];
    const bool is_forward = w->kind == ECH_WORK_FORWARD;
    for (int i = 0; i < ch->end - ch->first; i++) {
        const int unit = is_forward ? ch->first + i : ch->end - 1 - i;
        task t = {.kind = w->kind, .unit = unit, .chunk = k, .micro = w->micro};
        if (w->kind == ECH_WORK_BACKWARD && c->run.schedule->is_split)
            t.kind = ECH_WORK_INPUT; /* a table of both kinds: its B is I and W */
        if (t.kind != ECH_WORK_WEIGHT || has_weight_work(c, unit))
            c->order[c->n_work++] = t;
        if (t.kind == w->kind || !has_weight_work(c, unit))
            continue;
        t.kind = ECH_WORK_WEIGHT;
        c->order[c->n_work++] = t;
    }
}

/* What is complete after a task, seen from the end: no later task of its unit, of its micro-batch. */
typedef struct ends {
    bool *step;  /* owned [n_units] */
    bool *micro; /* owned [n_units, micro_batches]; NULL: gradients are not reduced each time */
} ends;

static work_end end_of(const compiler *c, ends *e, int unit, int micro)
{
    const size_t at = (size_t)unit * (size_t)c->spec.micro_batches + (size_t)micro;
    const bool is_step = !e->step[unit];
    const bool is_micro = e->micro && !e->micro[at];
    e->step[unit] = true;
    if (e->micro)
        e->micro[at] = true;
    return is_step ? ENDS_STEP : is_micro ? ENDS_MICRO : ENDS_NOTHING;
}

/* The head adds to a table that it borrows. */
static ech_status mark_ends(compiler *c)
{
    ends e = {0};
    const int units = c->spec.block.canon->n_units;
    const bool is_borrowed = c->spec.block.model->tie_embeddings && !c->plan.is_tied_apart &&
                             ech_shard_has_unit(&c->plan, 0);
    ECH_TRY(ech_calloc((size_t)units, sizeof *e.step, &e.step));
    ech_status st = ECH_OK;
    if (c->spec.block.form.shards_grads)
        st = ech_calloc((size_t)units * (size_t)c->spec.micro_batches, sizeof *e.micro, &e.micro);
    for (int i = c->n_work - 1; i >= 0 && st >= 0; i--) {
        task *t = &c->order[i];
        if (t->kind == ECH_WORK_FORWARD)
            continue;
        t->own = end_of(c, &e, t->unit, t->micro);
        if (is_borrowed && t->unit == units - 1)
            t->table = end_of(c, &e, 0, t->micro);
    }
    free(e.step);
    free(e.micro);
    return st;
}

/* --- messages --- */

static double done(const compiler *c, int stage, int micro, bool is_gradient)
{
    return c->run
        .done[((size_t)stage * (size_t)c->micros + (size_t)micro) * 2 + (is_gradient ? 1 : 0)];
}

static bool is_empty(const ech_stages *s, int stage)
{
    return s->first[stage] == s->first[stage + 1];
}

int compile_user_of(const compiler *c, int s, int step)
{
    const ech_stages *of = c->run.stages;
    while (is_empty(of, s) && s + step >= 0 && s + step < of->n &&
           of->rank_of[s + step] == of->rank_of[s])
        s += step;
    return s;
}

/* The stage that made what leaves stage s: found the other way; where all are empty, what uses it
 * first. */
static int maker_of(const compiler *c, int s, int step)
{
    const int maker = compile_user_of(c, s, -step);
    return is_empty(c->run.stages, maker) ? compile_user_of(c, maker, step) : maker;
}

/* The message of a stage's output to its neighbour, if both are not of one rank. */
static void add_message(compiler *c, int from, int to, int micro, bool is_gradient)
{
    const ech_stages *s = c->run.stages;
    if (from < 0 || to < 0 || from >= s->n || to >= s->n || s->rank_of[from] == s->rank_of[to])
        return;
    const bool is_send = s->rank_of[from] == c->rank;
    const int step = is_gradient ? -1 : 1;
    const int stage = is_send ? maker_of(c, from, step) : compile_user_of(c, to, step);
    message m = {.at = done(c, from, micro, is_gradient),
                 .is_send = is_send,
                 .is_gradient = is_gradient,
                 .peer = s->rank_of[is_send ? to : from],
                 .from = from,
                 .chunk = compile_chunk_of(c, stage),
                 .micro = micro};
    if (m.at >= 0.0)
        c->message[c->n_messages++] = m;
}

/* By round; in it alike on both ends. */
static int cmp_message(const void *a, const void *b)
{
    const message *x = a;
    const message *y = b;
    if (x->at < y->at || x->at > y->at)
        return x->at < y->at ? -1 : 1;
    if (x->is_gradient != y->is_gradient)
        return x->is_gradient ? 1 : -1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->micro < y->micro ? -1 : x->micro > y->micro;
}

static ech_status list_messages(compiler *c)
{
    const int m = c->micros;
    ECH_TRY(ech_calloc(4 * (size_t)c->n_chunks * (size_t)m, sizeof *c->message, &c->message));
    for (int k = 0; k < c->n_chunks; k++) {
        const int s = c->chunk[k].stage;
        for (int micro = 0; micro < m; micro++) {
            add_message(c, s - 1, s, micro, false);
            add_message(c, s, s + 1, micro, false);
            add_message(c, s + 1, s, micro, true);
            add_message(c, s, s - 1, micro, true);
        }
    }
    qsort(c->message, (size_t)c->n_messages, sizeof *c->message, cmp_message);
    for (int i = 0; i < c->n_messages; i++)
        if (!c->message[i].is_send)
            compile_kept(c, c->message[i].chunk, c->message[i].micro)
                ->recv[c->message[i].is_gradient] = i;
    return ECH_OK;
}

/* --- actions --- */

static ech_status add_action(compiler *c, action_kind kind, int first, int end)
{
    ECH_TRY(ech_grow(&c->action, (size_t)c->n_actions, &c->action_capacity, sizeof *c->action));
    c->action[c->n_actions++] = (action){kind, first, end};
    return ECH_OK;
}

/* How far messages have come: starts stand in order, and so do waits of sends. */
typedef struct progress {
    int started, sent;
} progress;

static ech_status start_until(compiler *c, progress *p, double at)
{
    while (p->started < c->n_messages && c->message[p->started].at <= at) {
        ECH_TRY(add_action(c, ACTION_START, p->started, 0));
        p->started++;
    }
    return ECH_OK;
}

/* What was sent moves under one cell, then its memory is free. */
static ech_status await_sent(compiler *c, progress *p, int until)
{
    for (; p->sent < until; p->sent++)
        if (c->message[p->sent].is_send)
            ECH_TRY(add_action(c, ACTION_WAIT, p->sent, 0));
    return ECH_OK;
}

static ech_status await_received(compiler *c, const ech_work *w)
{
    const kept_slots *kp = compile_kept(c, compile_chunk_of(c, w->stage), w->micro);
    const int i = kp->recv[w->kind != ECH_WORK_FORWARD];
    if (i < 0 || w->kind == ECH_WORK_WEIGHT)
        return ECH_OK;
    return add_action(c, ACTION_WAIT, i, 0);
}

ech_status compile_plan_order(compiler *c)
{
    const ech_schedule *s = c->run.schedule;
    const int n_cells = s->first[c->rank + 1] - s->first[c->rank];
    progress p = {0, 0};
    ECH_TRY(list_messages(c));
    int most = 1;
    for (int k = 0; k < c->n_chunks; k++)
        most =
            c->chunk[k].end - c->chunk[k].first > most ? c->chunk[k].end - c->chunk[k].first : most;
    ECH_TRY(ech_calloc(2 * (size_t)n_cells * (size_t)most, sizeof *c->order, &c->order));
    for (int i = s->first[c->rank]; i < s->first[c->rank + 1]; i++) {
        const int first = c->n_work;
        ECH_TRY(start_until(c, &p, c->run.begin[i]));
        ECH_TRY(await_received(c, &s->work[i]));
        add_cell(c, &s->work[i]);
        ECH_TRY(add_action(c, ACTION_TASKS, first, c->n_work));
        ECH_TRY(await_sent(c, &p, p.started));
    }
    for (int i = p.started; i < c->n_messages; i++)
        ECH_TRY(add_action(c, ACTION_START, i, 0));
    ECH_TRY(await_sent(c, &p, c->n_messages));
    return mark_ends(c);
}
