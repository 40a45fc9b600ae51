#include "lazy_transport.h"

#include <stdlib.h>

enum { MOST = 4096 };

/* A post that is held back, or the inner request of one that went through. */
typedef struct post {
    bool is_used, is_posted, is_send;
    ech_axis axis;
    int peer, tag;
    const void *from;
    void *to;
    size_t bytes;
    ech_p2p_request inner;
} post;

typedef struct lazy {
    ech_transport *inner;
    const lazy_gate *gate;
    int n;
    post post[MOST];
} lazy;

static ech_status go(lazy *l, post *p)
{
    p->is_posted = true;
    if (p->is_send)
        return l->inner->isend(l->inner, p->axis, p->peer, p->tag, p->from, p->bytes, &p->inner);
    return l->inner->irecv(l->inner, p->axis, p->peer, p->tag, p->to, p->bytes, &p->inner);
}

static bool may_go(const lazy *l, const post *p)
{
    return l->gate->is_open && (p->tag & ~1) != l->gate->held_tag;
}

static ech_status flush(lazy *l)
{
    for (int i = 0; i < l->n; i++)
        if (!l->post[i].is_posted && may_go(l, &l->post[i]))
            ECH_TRY(go(l, &l->post[i]));
    return ECH_OK;
}

static ech_status add(ech_transport *t, const post *p, ech_p2p_request *out)
{
    lazy *l = t->state;
    bool busy = false;
    for (int i = 0; i < l->n; i++)
        busy = busy || l->post[i].is_used;
    if (!busy)
        l->n = 0;
    ECH_ASSERT(l->n < MOST);
    l->post[l->n] = *p;
    l->post[l->n].is_used = true;
    *out = (ech_p2p_request){{l->n++}};
    return flush(l);
}

static ech_status lazy_isend(ech_transport *t, ech_axis axis, int peer, int tag, const void *buf,
                             size_t bytes, ech_p2p_request *out)
{
    const post p = {
        .is_send = true, .axis = axis, .peer = peer, .tag = tag, .from = buf, .bytes = bytes};
    return add(t, &p, out);
}

static ech_status lazy_irecv(ech_transport *t, ech_axis axis, int peer, int tag, void *buf,
                             size_t bytes, ech_p2p_request *out)
{
    const post p = {.axis = axis, .peer = peer, .tag = tag, .to = buf, .bytes = bytes};
    return add(t, &p, out);
}

/* While the gate is shut nothing arrives either: a wait that is not looked at has not ended. */
static ech_status lazy_test(ech_transport *t, ech_p2p_request *request, bool *done)
{
    lazy *l = t->state;
    post *p = &l->post[request->word[0]];
    *done = false;
    if (!may_go(l, p))
        return ECH_OK;
    ECH_TRY(flush(l));
    ECH_TRY(l->inner->test(l->inner, &p->inner, done));
    p->is_used = !*done;
    return ECH_OK;
}

static ech_status lazy_exchange(ech_transport *t, const void *value, size_t bytes, void *out)
{
    lazy *l = t->state;
    return l->inner->exchange(l->inner, value, bytes, out);
}

static ech_status lazy_barrier(ech_transport *t)
{
    lazy *l = t->state;
    return l->inner->barrier(l->inner);
}

static void lazy_destroy(ech_transport *t)
{
    lazy *l = t->state;
    l->inner->destroy(l->inner);
    free(l);
    free(t);
}

ech_transport *lazy_transport(ech_transport *inner, const lazy_gate *gate)
{
    lazy *l = calloc(1, sizeof *l);
    ech_transport *t = calloc(1, sizeof *t);
    *l = (lazy){.inner = inner, .gate = gate};
    *t = (ech_transport){.name = "lazy",
                         .rank = inner->rank,
                         .size = inner->size,
                         .state = l,
                         .isend = lazy_isend,
                         .irecv = lazy_irecv,
                         .test = lazy_test,
                         .exchange = lazy_exchange,
                         .barrier = lazy_barrier,
                         .destroy = lazy_destroy};
    return t;
}
