/* Virtual ranks in one process: a shared mailbox.  Rendezvous: a send is done only when its
 * receive has been posted and the bytes copied, the weakest machine a program must survive.
 * One thread drives all ranks. */
#include "comm/comm.h"

#include "base/checked.h"
#include "comm/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

typedef enum entry_state { ENTRY_FREE, ENTRY_WAITING, ENTRY_DONE, ENTRY_MISMATCH } entry_state;

/* A posted send or receive. */
typedef struct entry {
    entry_state state;
    bool is_send;
    ech_axis axis;
    int tag, src, dst;
    int64_t generation; /* of this use of the entry, to catch stale handles */
    int64_t next;       /* in its pair's queue, or in the list of free entries */
    const void *from;   /* send: borrowed */
    void *to;           /* receive: borrowed */
    size_t bytes;
    size_t peer_bytes; /* MISMATCH */
} entry;

/* Posted and unmatched, in order.  Of one (axis, tag) there are only sends or only receives. */
typedef struct queue {
    int64_t head, tail;
} queue;

typedef struct mailbox {
    int size, users;
    bool *has_left; /* [size] owned */
    queue *pair;    /* [src, dst] owned */
    entry *entry;   /* [capacity] owned */
    int64_t capacity, used, free_head;
} mailbox;

static const char *describe(const entry *e, char *buf, size_t n)
{
    (void)snprintf(buf, n, "rank %d %s rank %d over %s (tag %d)", e->is_send ? e->src : e->dst,
                   e->is_send ? "sends to" : "receives from", e->is_send ? e->dst : e->src,
                   ech_axis_name(e->axis), e->tag);
    return buf;
}

static ech_status raise_mismatch(const entry *e)
{
    char who[96];
    return ECH_RAISE(ECH_E_COMM, "inproc: %s: %zu bytes here, %zu bytes on the other side",
                     describe(e, who, sizeof who), e->bytes, e->peer_bytes);
}

static ech_status take_entry(mailbox *m, int64_t *out)
{
    int64_t i = m->free_head;
    if (i != NONE) {
        m->free_head = m->entry[i].next;
    } else {
        ECH_CHECK(m->used < m->capacity, ECH_E_COMM,
                  "inproc: all %lld requests of %d ranks are in flight", (long long)m->capacity,
                  m->size);
        i = m->used++;
    }
    m->entry[i].generation++;
    *out = i;
    return ECH_OK;
}

static void give_entry(mailbox *m, int64_t i)
{
    m->entry[i].state = ENTRY_FREE;
    m->entry[i].next = m->free_head;
    m->free_head = i;
}

static void enqueue(mailbox *m, queue *q, int64_t i)
{
    m->entry[i].next = NONE;
    if (q->head == NONE)
        q->head = i;
    else
        m->entry[q->tail].next = i;
    q->tail = i;
}

/* Unlink the first entry that e meets: same axis and tag, other direction. */
static int64_t dequeue_match(mailbox *m, queue *q, const entry *e)
{
    int64_t before = NONE;
    for (int64_t i = q->head; i != NONE; before = i, i = m->entry[i].next) {
        const entry *other = &m->entry[i];
        if (other->is_send == e->is_send || other->axis != e->axis || other->tag != e->tag)
            continue;
        if (before == NONE)
            q->head = other->next;
        else
            m->entry[before].next = other->next;
        if (q->tail == i)
            q->tail = before;
        return i;
    }
    return NONE;
}

static ech_status deliver(entry *a, entry *b)
{
    const entry *send = a->is_send ? a : b;
    const entry *recv = a->is_send ? b : a;
    const entry_state state = send->bytes == recv->bytes ? ENTRY_DONE : ENTRY_MISMATCH;
    a->state = b->state = state;
    a->peer_bytes = b->bytes;
    b->peer_bytes = a->bytes;
    if (state == ENTRY_MISMATCH)
        return raise_mismatch(a);
    if (send->bytes > 0)
        memcpy(recv->to, send->from, send->bytes);
    return ECH_OK;
}

static ech_status check_peer(const mailbox *m, int me, int peer)
{
    ECH_CHECK(peer >= 0 && peer < m->size, ECH_E_COMM,
              "inproc: rank %d names rank %d of a world of %d", me, peer, m->size);
    ECH_CHECK(!m->has_left[peer], ECH_E_COMM, "inproc: rank %d needs rank %d, which has left", me,
              peer);
    return ECH_OK;
}

static ech_status post(ech_transport *t, const entry *what, ech_p2p_request *out)
{
    mailbox *m = t->state;
    ECH_TRY(check_peer(m, t->rank, what->is_send ? what->dst : what->src));
    queue *q = &m->pair[(int64_t)what->src * m->size + what->dst];
    int64_t i = NONE;
    ECH_TRY(take_entry(m, &i));
    entry *e = &m->entry[i];
    const int64_t generation = e->generation;
    *e = *what;
    e->generation = generation;
    e->state = ENTRY_WAITING;
    *out = (ech_p2p_request){{i, generation, 0, 0}};

    const int64_t other = dequeue_match(m, q, e);
    if (other == NONE) {
        enqueue(m, q, i);
        return ECH_OK;
    }
    return deliver(e, &m->entry[other]);
}

static ech_status inproc_isend(ech_transport *t, ech_axis axis, int peer, int tag, const void *buf,
                               size_t bytes, ech_p2p_request *out)
{
    const entry e = {.is_send = true,
                     .axis = axis,
                     .tag = tag,
                     .src = t->rank,
                     .dst = peer,
                     .from = buf,
                     .bytes = bytes};
    return post(t, &e, out);
}

static ech_status inproc_irecv(ech_transport *t, ech_axis axis, int peer, int tag, void *buf,
                               size_t bytes, ech_p2p_request *out)
{
    const entry e = {
        .axis = axis, .tag = tag, .src = peer, .dst = t->rank, .to = buf, .bytes = bytes};
    return post(t, &e, out);
}

static ech_status inproc_test(ech_transport *t, ech_p2p_request *request, bool *done)
{
    mailbox *m = t->state;
    const int64_t i = request->word[0];
    ECH_ASSERT(i >= 0 && i < m->used && m->entry[i].generation == request->word[1]);
    const entry *e = &m->entry[i];
    ECH_ASSERT(e->state != ENTRY_FREE);
    *done = e->state != ENTRY_WAITING;
    if (!*done)
        return ECH_OK;
    const ech_status st = e->state == ENTRY_MISMATCH ? raise_mismatch(e) : ECH_OK;
    give_entry(m, i);
    request->word[0] = NONE;
    return st;
}

static ech_status inproc_exchange(ech_transport *t, const void *value, size_t bytes, void *out)
{
    (void)value, (void)bytes, (void)out;
    return ECH_RAISE(ECH_E_UNSUPPORTED,
                     "inproc: rank %d cannot block; the driver of all %d ranks "
                     "holds their values",
                     t->rank, t->size);
}

static ech_status inproc_barrier(ech_transport *t)
{
    return ECH_RAISE(ECH_E_UNSUPPORTED, "inproc: rank %d of %d cannot block", t->rank, t->size);
}

static void mailbox_destroy(mailbox *m)
{
    if (m == NULL)
        return;
    free(m->entry);
    free(m->pair);
    free(m->has_left);
    free(m);
}

/* A rank that leaves with messages in flight: they can never be matched any more, as every later
 * post that names it is refused. */
static void inproc_destroy(ech_transport *t)
{
    mailbox *m = t->state;
    m->has_left[t->rank] = true;
    if (--m->users == 0)
        mailbox_destroy(m);
    free(t);
}

static ech_status mailbox_create(int n, mailbox **out)
{
    ech_status st = ECH_OK;
    mailbox *m = NULL;
    size_t pairs = 0, capacity = 0;
    ECH_TRY(ech_calloc(1, sizeof *m, &m));
    ECH_TRY_GOTO(st, ech_mul_size((size_t)n, (size_t)n, &pairs), fail);
    ECH_TRY_GOTO(st, ech_mul_size((size_t)n, ech_comm_request_bound(n), &capacity), fail);
    ECH_TRY_GOTO(st, ech_calloc((size_t)n, sizeof *m->has_left, &m->has_left), fail);
    ECH_TRY_GOTO(st, ech_calloc(pairs, sizeof *m->pair, &m->pair), fail);
    ECH_TRY_GOTO(st, ech_calloc(capacity, sizeof *m->entry, &m->entry), fail);
    for (size_t i = 0; i < pairs; i++)
        m->pair[i] = (queue){NONE, NONE};
    m->size = n;
    m->capacity = (int64_t)capacity;
    m->free_head = NONE;
    *out = m;
    return ECH_OK;
fail:
    mailbox_destroy(m);
    return st;
}

static ech_status join(mailbox *m, int rank, ech_transport **out)
{
    ech_transport *t = NULL;
    ECH_TRY(ech_calloc(1, sizeof *t, &t));
    *t = (ech_transport){.name = "inproc",
                         .rank = rank,
                         .size = m->size,
                         .state = m,
                         .isend = inproc_isend,
                         .irecv = inproc_irecv,
                         .test = inproc_test,
                         .exchange = inproc_exchange,
                         .barrier = inproc_barrier,
                         .destroy = inproc_destroy};
    m->users++;
    *out = t;
    return ECH_OK;
}

ech_status ech_transport_inproc(int n, ech_transport **out)
{
    ech_status st = ECH_OK;
    mailbox *m = NULL;
    int made = 0;
    ECH_CHECK(n >= 1, ECH_E_ILLEGAL, "a world has at least one rank, got %d", n);
    ECH_TRY(mailbox_create(n, &m));
    for (; made < n; made++)
        ECH_TRY_GOTO(st, join(m, made, &out[made]), fail);
    return ECH_OK;
fail:
    if (made == 0)
        mailbox_destroy(m);
    for (int i = 0; i < made; i++) {
        out[i]->destroy(out[i]); /* the last one takes the mailbox along */
        out[i] = NULL;
    }
    return st;
}
