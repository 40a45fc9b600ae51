/* The communicator: groups, the table of collectives in flight, and which of them may move. */
#include "comm/collective.h"

#include "base/checked.h"
#include "program/op.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

static int largest_group(const ech_layout *l)
{
    int largest = 1;
    for (int a = 0; a < ECH_N_AXES; a++)
        largest = l->degree[a] > largest ? l->degree[a] : largest;
    return largest;
}

static ech_status check_layout(const ech_transport *t, const ech_layout *l)
{
    ECH_CHECK(l->world == t->size, ECH_E_ILLEGAL,
              "the layout has %d ranks, the transport '%s' has %d", l->world, t->name, t->size);
    ECH_CHECK(l->node_ranks >= 0 && (!l->node_ranks || l->world % l->node_ranks == 0),
              ECH_E_ILLEGAL, "nodes of %d ranks do not make up %d ranks", l->node_ranks, l->world);
    for (int a = 0; a < ECH_N_AXES; a++) {
        int64_t leaves = 1;
        for (int k = 0; k < l->tree[a].n; k++)
            leaves *= l->tree[a].factor[k];
        ECH_CHECK(l->degree[a] >= 1 && leaves == l->degree[a], ECH_E_ILLEGAL,
                  "axis %s has degree %d and a summation tree of %lld leaves",
                  ech_axis_name((ech_axis)a), l->degree[a], (long long)leaves);
    }
    return ECH_OK;
}

/* How many factors of an axis's tree are summed inside a node: as many as go into the runs of
 * neighbours there; 0: it is not done in two levels. */
static int near_factors(const ech_layout *l, ech_axis axis)
{
    const ech_tree *tree = &l->tree[axis];
    const int run = ech_layout_node_run(l, axis);
    int n = 0;
    for (int product = 1; n < tree->n && run % (product * tree->factor[n]) == 0; n++)
        product *= tree->factor[n];
    return n;
}

/* Sums inside a run follow the first factors, those of its results the others: the whole tree. */
static void make_levels(ech_group *g, int factors, int *far_rank)
{
    const ech_members *all = &g->all;
    g->near.size = 1;
    for (int k = 0; k < all->tree.n; k++) {
        ech_tree *tree = k < factors ? &g->near.tree : &g->far.tree;
        tree->factor[tree->n++] = all->tree.factor[k];
        if (k < factors)
            g->near.size *= all->tree.factor[k];
    }
    g->near.index = all->index % g->near.size;
    g->near.rank = all->rank + (all->index - g->near.index);
    g->far.size = all->size / g->near.size;
    g->far.index = all->index / g->near.size;
    g->far.rank = far_rank;
    for (int i = 0; i < g->far.size; i++)
        far_rank[i] = all->rank[i * g->near.size + g->near.index];
}

static void make_groups(ech_comm *comm, const ech_layout *l)
{
    int *rank = comm->members;
    for (int a = 0; a < ECH_N_AXES; a++) {
        const int size = ech_layout_group_size(l, comm->t->rank, (ech_axis)a);
        ech_group *g = &comm->group[a];
        *g = (ech_group){
            .all = {.size = size,
                    .index = ech_layout_group(l, comm->t->rank, (ech_axis)a, rank),
                    .rank = rank,
                    .tree = size == 1 ? (ech_tree){0} : l->tree[a]},
            .oldest = NONE,
            .youngest = NONE,
            .oldest_p2p = NONE,
            .youngest_p2p = NONE,
        };
        make_levels(g, near_factors(l, (ech_axis)a), rank + size);
        rank += 2 * size;
    }
}

/* Everything a collective will ever need, so that none allocates. */
static ech_status reserve(ech_comm *comm, const ech_layout *l)
{
    const size_t largest = (size_t)largest_group(l);
    const size_t slots = (size_t)comm->max_in_flight;
    size_t members = 0, streams = 0;
    for (int a = 0; a < ECH_N_AXES; a++)
        members += 2 * (size_t)l->degree[a]; /* of the group, and of its outer level */
    ECH_TRY(ech_mul_size(slots, largest * ECH_COMM_STREAMS, &streams));
    ECH_TRY(ech_calloc(members, sizeof *comm->members, &comm->members));
    ECH_TRY(ech_calloc(slots, sizeof *comm->slot, &comm->slot));
    ECH_TRY(ech_calloc(streams, sizeof *comm->streams, &comm->streams));
    ECH_TRY(ech_calloc(largest, sizeof *comm->vectors, &comm->vectors));
    ECH_TRY(ech_calloc((size_t)l->world, sizeof *comm->agreed, &comm->agreed));
    for (size_t i = 0; i < slots; i++)
        comm->slot[i].peers = comm->streams + i * largest * ECH_COMM_STREAMS;
    return ECH_OK;
}

ech_status ech_comm_create(ech_transport *t, const ech_layout *l, int max_in_flight, ech_comm **out)
{
    ech_status st = ECH_OK;
    ech_comm *comm = NULL;
    ECH_CHECK(max_in_flight >= 1 && max_in_flight < ECH_COMM_SEQUENCE, ECH_E_ILLEGAL,
              "collectives in flight must be 1 to %d, got %d", ECH_COMM_SEQUENCE - 1,
              max_in_flight);
    ECH_TRY(check_layout(t, l));
    ECH_TRY(ech_calloc(1, sizeof *comm, &comm));
    comm->t = t;
    comm->node_ranks = l->node_ranks ? l->node_ranks : l->world;
    comm->max_in_flight = max_in_flight;
    ECH_TRY_GOTO(st, reserve(comm, l), fail);
    make_groups(comm, l);
    *out = comm;
    return ECH_OK;
fail:
    ech_comm_destroy(&comm);
    return st;
}

void ech_comm_destroy(ech_comm **comm)
{
    if (*comm == NULL)
        return;
    free((*comm)->agreed);
    free((*comm)->vectors);
    free((*comm)->streams);
    free((*comm)->slot);
    free((*comm)->members);
    free(*comm);
    *comm = NULL;
}

int ech_comm_group_size(const ech_comm *comm, ech_axis axis)
{
    return comm->group[axis].all.size;
}

int ech_comm_group_index(const ech_comm *comm, ech_axis axis)
{
    return comm->group[axis].all.index;
}

const ech_sent *ech_comm_sent(const ech_comm *comm)
{
    return &comm->sent;
}

void ech_comm_sent_reset(ech_comm *comm)
{
    comm->sent = (ech_sent){0};
}

int64_t ech_comm_activity(const ech_comm *comm)
{
    return comm->activity;
}

/* --- starting --- */

static bool is_summable(ech_dtype t)
{
    return t == ECH_F32 || t == ECH_F64 || t == ECH_I64;
}

static ech_status check_sum(const ech_members *g, const ech_coll *c)
{
    const bool is_small = c->kind == ECH_COLL_SUM_SMALL;
    size_t need = 0;
    ECH_CHECK(is_summable(c->dtype), ECH_E_UNSUPPORTED,
              "%s over %s: sums are fp32, fp64 or int64,"
              " not %s",
              ech_coll_name(c->kind), ech_axis_name(c->axis), ech_dtype_name(c->dtype));
    ECH_CHECK(!is_small || c->sum != NULL || c->n == 0, ECH_E_ILLEGAL,
              "%s over %s has nowhere to put its sum", ech_coll_name(c->kind),
              ech_axis_name(c->axis));
    if (g->size == 1)
        return ECH_OK; /* no message, so nothing to stage */
    const int64_t elems = is_small ? g->size * c->n : ech_reduce_staging_elems(c->n, g->size);
    ECH_TRY(ech_mul_size((size_t)elems, ech_dtype_bytes(c->dtype), &need));
    ECH_CHECK(c->staging_bytes >= need, ECH_E_ILLEGAL,
              "%s of %lld %s over %s needs %zu bytes of staging, got %zu", ech_coll_name(c->kind),
              (long long)c->n, ech_dtype_name(c->dtype), ech_axis_name(c->axis), need,
              c->staging_bytes);
    return ECH_OK;
}

/* My share in buf, of a collective that deals out equal ones. */
static uintptr_t own_share(const ech_members *g, const ech_coll *c, size_t share_bytes)
{
    return (uintptr_t)c->buf + (size_t)g->index * share_bytes;
}

/* A part that overlaps buf anywhere but at my own share would be read after it is overwritten. */
static ech_status check_part(const ech_members *g, const ech_coll *c)
{
    const size_t share_bytes = (size_t)(c->n / g->size) * ech_dtype_bytes(c->dtype);
    const uintptr_t part = (uintptr_t)c->part;
    const uintptr_t buf = (uintptr_t)c->buf;
    ECH_CHECK(c->n % g->size == 0, ECH_E_ILLEGAL,
              "%s over %s of %lld elements: they must be equal shares of %d members",
              ech_coll_name(c->kind), ech_axis_name(c->axis), (long long)c->n, g->size);
    ECH_CHECK(c->part != NULL || c->n == 0, ECH_E_ILLEGAL, "%s over %s of %lld elements: no part",
              ech_coll_name(c->kind), ech_axis_name(c->axis), (long long)c->n);
    const bool is_apart =
        part + share_bytes <= buf || buf + (size_t)g->size * share_bytes <= part || c->n == 0;
    ECH_CHECK(is_apart || part == own_share(g, c, share_bytes), ECH_E_ILLEGAL,
              "%s over %s of %lld elements: part overlaps buf, but is not share %d of %d of it",
              ech_coll_name(c->kind), ech_axis_name(c->axis), (long long)c->n, g->index, g->size);
    return ECH_OK;
}

static ech_status check_coll(const ech_comm *comm, const ech_coll *c)
{
    ECH_CHECK((unsigned)c->kind <= ECH_COLL_RECV && (unsigned)c->axis < ECH_N_AXES &&
                  (unsigned)c->dtype < ECH_N_DTYPES,
              ECH_E_ILLEGAL, "no such collective: kind %d, axis %d, dtype %d", (int)c->kind,
              (int)c->axis, (int)c->dtype);
    ECH_CHECK(c->n >= 0, ECH_E_ILLEGAL, "%s over %s of %lld elements", ech_coll_name(c->kind),
              ech_axis_name(c->axis), (long long)c->n);
    const ech_members *g = &comm->group[c->axis].all;
    if (c->kind == ECH_COLL_REDUCE_SCATTER || c->kind == ECH_COLL_ALL_GATHER)
        ECH_TRY(check_part(g, c));
    if (!ech_coll_is_p2p(c->kind))
        return c->kind == ECH_COLL_ALL_GATHER ? ECH_OK : check_sum(g, c);
    ECH_CHECK(c->peer >= 0 && c->peer < g->size && c->peer != g->index, ECH_E_ILLEGAL,
              "%s over %s: member %d of %d names member %d", ech_coll_name(c->kind),
              ech_axis_name(c->axis), g->index, g->size, c->peer);
    return ECH_OK;
}

static ech_status take_slot(ech_comm *comm, const ech_coll *c, int *out)
{
    for (int i = 0; i < comm->max_in_flight; i++)
        if (comm->slot[i].state == ECH_COLL_FREE) {
            *out = i;
            return ECH_OK;
        }
    return ECH_RAISE(ECH_E_ILLEGAL, "%s over %s: all %d collectives are in flight",
                     ech_coll_name(c->kind), ech_axis_name(c->axis), comm->max_in_flight);
}

/* P2p has one tag: its messages match in the order in which both sides start them.  Collectives
 * are numbered along their axis, two tags each. */
static int next_tag(ech_group *g, ech_coll_kind kind)
{
    if (ech_coll_is_p2p(kind))
        return 0;
    return 2 + 2 * (int)(g->started++ % ECH_COMM_SEQUENCE);
}

static void link_youngest(ech_comm *comm, int request)
{
    const ech_coll *c = &comm->slot[request].coll;
    ech_group *g = &comm->group[c->axis];
    int *oldest = ech_coll_is_p2p(c->kind) ? &g->oldest_p2p : &g->oldest;
    int *youngest = ech_coll_is_p2p(c->kind) ? &g->youngest_p2p : &g->youngest;
    comm->slot[request].next = NONE;
    if (*oldest == NONE)
        *oldest = request;
    else
        comm->slot[*youngest].next = request;
    *youngest = request;
}

/* What is communicated, by the side that has it; as ech_op_traffic, in a group of one too. */
static void count_payload(ech_comm *comm, const ech_coll *c)
{
    if (c->kind != ECH_COLL_RECV)
        comm->sent.payload_bytes[c->axis] += c->n * (int64_t)ech_dtype_bytes(c->dtype);
}

/* --- moving --- */

/* Move the collectives of one list, from the oldest on, and unlink those that are finished.  At
 * most `window` unfinished ones move: messages in flight stay bounded.  Members start the same
 * collectives in the same order, so the oldest one that somebody has not finished is in the window
 * of all who still owe it something. */
static ech_status advance_list(ech_comm *comm, int *oldest, int *youngest, int window)
{
    int before = NONE;
    for (int i = *oldest; i != NONE && window > 0;) {
        ech_coll_slot *slot = &comm->slot[i];
        const int next = slot->next;
        ECH_TRY(ech_coll_advance(comm, slot));
        if (slot->state == ECH_COLL_FINISHED) {
            if (before == NONE)
                *oldest = next;
            else
                comm->slot[before].next = next;
            if (next == NONE)
                *youngest = before;
        } else {
            before = i;
            window--;
        }
        i = next;
    }
    return ECH_OK;
}

/* Messages between two ranks are few and may be started in another order by either side: all of
 * them move. */
static ech_status advance_axis(ech_comm *comm, ech_axis axis)
{
    ech_group *g = &comm->group[axis];
    ECH_TRY(advance_list(comm, &g->oldest, &g->youngest, ECH_COMM_WINDOW));
    return advance_list(comm, &g->oldest_p2p, &g->youngest_p2p, comm->max_in_flight);
}

ech_status ech_coll_start(ech_comm *comm, const ech_coll *coll, int *request)
{
    int i = NONE;
    ECH_TRY(check_coll(comm, coll));
    ECH_TRY(take_slot(comm, coll, &i));
    ech_group *g = &comm->group[coll->axis];
    ech_coll_slot *slot = &comm->slot[i];
    slot->coll = *coll;
    slot->state = ECH_COLL_OPEN;
    slot->tag = next_tag(g, coll->kind);
    slot->step = 0;
    (void)ech_coll_leg(g, coll, 0, &slot->leg);
    ech_coll_plan(slot);
    link_youngest(comm, i);
    count_payload(comm, coll);
    *request = i;
    return advance_axis(comm, coll->axis);
}

ech_status ech_comm_progress(ech_comm *comm)
{
    for (int a = 0; a < ECH_N_AXES; a++)
        ECH_TRY(advance_axis(comm, (ech_axis)a));
    return ECH_OK;
}

/* Peers may wait for another collective of mine before they come to this one, so all move. */
ech_status ech_coll_test(ech_comm *comm, int request)
{
    ECH_ASSERT(request >= 0 && request < comm->max_in_flight);
    ech_coll_slot *slot = &comm->slot[request];
    ECH_ASSERT(slot->state != ECH_COLL_FREE);
    if (slot->state == ECH_COLL_OPEN)
        ECH_TRY(ech_comm_progress(comm));
    if (slot->state == ECH_COLL_OPEN)
        return ECH_BLOCKED;
    slot->state = ECH_COLL_FREE;
    return ECH_DONE;
}

bool ech_coll_is_done(const ech_comm *comm, int request)
{
    ECH_ASSERT(request >= 0 && request < comm->max_in_flight);
    return comm->slot[request].state == ECH_COLL_FINISHED;
}

/* --- agreeing --- */

ech_status ech_comm_agree(ech_comm *comm, ech_status mine)
{
    const ech_transport *t = comm->t;
    int who = 0;
    if (t->size == 1)
        return mine;
    ECH_TRY(comm->t->exchange(comm->t, &mine, sizeof mine, comm->agreed));
    for (int r = 1; r < t->size; r++)
        who = comm->agreed[r] < comm->agreed[who] ? r : who;
    const ech_status worst = comm->agreed[who];
    if (worst < 0 && mine >= 0) /* else this rank has words of its own */
        return ECH_RAISE(worst, "rank %d failed: %s", who, ech_status_text(worst));
    return worst;
}
