/* Rounds: with the first class held at the end of a round, and all others as far as they come then, what
 * is in flight is what is in flight with all of them a round later. */
#include "program/match_private.h"
#include "program/repeat.h"

#include <stdlib.h>
#include <string.h>

static bool depends_on_micro(const ech_expr *e)
{
    bool does = false;
    for (int i = 0; i < e->n; i++)
        does = does || e->node[i].op == ECH_EXPR_MICRO;
    return does;
}

ech_status match_find_rounds(sim *s, int klass)
{
    class_events *c = &s->klass[klass];
    const ech_program *p = s->spec->program[klass];
    const int n_items = p->rounds.end - p->rounds.first;
    const int last = p->rounds.first + n_items * p->rounds.times;
    if (p->rounds.times < 2)
        return ECH_OK;
    for (int i = 0; i < c->n; i++) {
        c->begin += c->event[i].item < p->rounds.first;
        c->ends[0] += c->event[i].item < last - n_items;
        c->ends[1] += c->event[i].item < last;
        ECH_CHECK(!match_is_message(c->event[i].op->kind) ||
                      !depends_on_micro(&c->event[i].op->attr[0]),
                  ECH_E_UNSUPPORTED, "a peer depends on the micro-batch where rounds repeat");
    }
    c->round = c->ends[1] - c->ends[0];
    return ECH_OK;
}

bool match_has_rounds(const sim *s)
{
    bool all = true;
    for (int c = 0; c < s->spec->n_classes; c++)
        all = all && s->spec->program[c]->rounds.times >= 2;
    return all;
}

static ech_status fault(const sim *s, int node, ech_status st, const char *why)
{
    char who[160];
    const ech_repeat *r = &s->spec->program[s->node[node].klass]->rounds;
    return ECH_RAISE(st, "%s: items %d to %d repeat %d times, but %s",
                     match_who(s, node, who, sizeof who), r->first, r->end - 1, r->times, why);
}

/* The k-th difference of counts of an axis: channels, then communicators. */
static int64_t ahead_of(const sim *s, int axis, size_t k)
{
    const size_t channels = (size_t)s->nodes.world * (size_t)s->nodes.degree[axis];
    if (k < channels)
        return s->channel[axis] ? s->channel[axis][k].sent - s->channel[axis][k].received : 0;
    k -= channels;
    return s->comm[axis] ? s->comm[axis][k].n - s->comm[axis][k].done : 0;
}

static size_t counts_of(const sim *s, int axis)
{
    return (size_t)s->nodes.world * ((size_t)s->nodes.degree[axis] + 1);
}

static ech_status keep(sim *s)
{
    const size_t n = (size_t)s->nodes.world * ((size_t)s->n_requests + 1);
    size_t counts = 0;
    for (int a = 0; a < ECH_N_AXES; a++)
        counts += counts_of(s, a);
    ECH_TRY(ech_calloc(n, sizeof *s->open_before, &s->open_before));
    ECH_TRY(ech_calloc(counts, sizeof *s->ahead_before, &s->ahead_before));
    ECH_TRY(ech_calloc((size_t)s->nodes.world, sizeof *s->node_before, &s->node_before));
    memcpy(s->node_before, s->node, (size_t)s->nodes.world * sizeof *s->node);
    memcpy(s->open_before, s->open, n * sizeof *s->open);
    for (int a = 0, at = 0; a < ECH_N_AXES; a++)
        for (size_t k = 0; k < counts_of(s, a); k++)
            s->ahead_before[at++] = ahead_of(s, a, k);
    return ECH_OK;
}

/* A message is the one a round later, or the same one, begun before rounds; it stands as far behind
 * the last of its channel. */
static bool is_same_open(const sim *s, int node, const open_message *a, const open_message *b)
{
    const class_events *c = &s->klass[s->node[node].klass];
    if (a->event == NONE || b->event == NONE)
        return a->event == b->event;
    if (a->event == b->event)
        return a->channel == NONE && match_is_complete(s, node, b);
    return b->event == a->event + c->round && a->channel == b->channel;
}

/* It has gone on by one round, between two places within rounds; else more rounds would have to be looked
 * at, or it is done with them at another time than the first class. */
static ech_status check_place(const sim *s, int node)
{
    const follower *a = &s->node_before[node];
    const follower *b = &s->node[node];
    const class_events *c = &s->klass[b->klass];
    if (b->at - a->at != c->round || a->at < c->begin || b->at > c->ends[1])
        return fault(s, node, ECH_E_UNSUPPORTED,
                     "it does not go on by one where the first class does");
    if ((a->posted > a->at || b->posted > b->at) && b->posted - a->posted != c->round)
        return fault(s, node, ECH_E_PROOF,
                     "other messages of one group are posted at the end of the last");
    return ECH_OK;
}

static ech_status compare(const sim *s)
{
    const size_t requests = (size_t)s->n_requests + 1;
    for (int i = 0; i < s->nodes.world; i++) {
        ECH_TRY(check_place(s, i));
        for (size_t r = 0; r < requests; r++)
            if (!is_same_open(s, i, &s->open_before[(size_t)i * requests + r],
                              &s->open[(size_t)i * requests + r]))
                return fault(s, i, ECH_E_PROOF,
                             "other messages are in flight at the end of the last than of the "
                             "one before");
    }
    for (int a = 0, at = 0; a < ECH_N_AXES; a++)
        for (size_t k = 0; k < counts_of(s, a); k++)
            if (s->ahead_before[at++] != ahead_of(s, a, k))
                return ECH_RAISE(ECH_E_PROOF,
                                 "rounds repeat, but one end of what goes over %s gets further "
                                 "ahead of the other with each",
                                 ech_axis_name((ech_axis)a));
    return ECH_OK;
}

ech_status match_note_round(sim *s, bool first)
{
    return first ? keep(s) : compare(s);
}
