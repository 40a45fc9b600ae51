/* The legs of a collective (collective.h): one for a flat one, a row of them in two levels. */
#include "comm/collective.h"

/* Everything about a collective that its legs depend on.  Its elements lie in all.size shares;
 * share run * near + place belongs to the member of that run and place. */
typedef struct plan {
    const ech_group *g;
    const ech_coll *c;
    int near, far, place;
    size_t width; /* bytes of an element */
    unsigned char *buf, *part, *staging;
} plan;

static plan plan_of(const ech_group *g, const ech_coll *c)
{
    return (plan){.g = g,
                  .c = c,
                  .near = g->near.size,
                  .far = g->far.size,
                  .place = g->near.index,
                  .width = ech_dtype_bytes(c->dtype),
                  .buf = c->buf,
                  .part = c->part,
                  .staging = c->staging};
}

/* Among all members.  A part that is not summed is one message. */
static ech_leg flat_leg(const plan *p)
{
    const int size = p->g->all.size;
    const int64_t n = p->c->n;
    ech_leg leg = {.kind = p->c->kind,
                   .who = &p->g->all,
                   .n = n,
                   .piece = n,
                   .buf = p->buf,
                   .staging = p->staging};
    if (leg.kind == ECH_COLL_REDUCE_SCATTER || leg.kind == ECH_COLL_ALL_GATHER) {
        leg.part = p->part;
        leg.part_step = n / size;
        leg.piece = n / size;
    }
    if (leg.kind == ECH_COLL_REDUCE_SCATTER || leg.kind == ECH_COLL_ALL_REDUCE)
        leg.piece = ech_reduce_chunk_elems(n, size);
    leg.piece_step = leg.piece;
    return leg;
}

/* In place: parts as long as a run deals them out are summed inside it, then over the runs, then
 * handed round in it.  Elements that cannot be dealt out evenly follow, flat: so every member sends
 * what it would in one level. */
static bool all_reduce_leg(const plan *p, int step, ech_leg *out)
{
    const int64_t rest = p->c->n % p->g->all.size;
    const int64_t body = p->c->n - rest;
    const int64_t part = body / p->near;
    unsigned char *mine = p->buf + (size_t)(p->place * part) * p->width;
    const int64_t near_chunk = ech_reduce_chunk_elems(body, p->near);
    const int64_t far_chunk = ech_reduce_chunk_elems(part, p->far);
    switch (step) {
    case 0:
        *out = (ech_leg){.kind = ECH_COLL_REDUCE_SCATTER,
                         .who = &p->g->near,
                         .n = body,
                         .piece = near_chunk,
                         .part_step = part,
                         .piece_step = near_chunk,
                         .buf = p->buf,
                         .staging = p->staging};
        return true;
    case 1:
        *out = (ech_leg){.kind = ECH_COLL_ALL_REDUCE,
                         .who = &p->g->far,
                         .n = part,
                         .piece = far_chunk,
                         .piece_step = far_chunk,
                         .buf = mine,
                         .staging = p->staging};
        return true;
    case 2:
        *out = (ech_leg){.kind = ECH_COLL_ALL_GATHER,
                         .who = &p->g->near,
                         .n = body,
                         .piece = part,
                         .part_step = part,
                         .piece_step = part,
                         .buf = p->buf};
        return true;
    case 3:
        *out = (ech_leg){.kind = ECH_COLL_ALL_REDUCE,
                         .who = &p->g->all,
                         .n = rest,
                         .piece = 1,
                         .piece_step = 1,
                         .buf = p->buf + (size_t)body * p->width,
                         .staging = p->staging};
        return rest > 0;
    default:
        return false;
    }
}

/* Chunk by chunk, since buf is only read and the sums of a run must lie somewhere: those of my
 * place in every run go to staging, then from run to run to their owners.  Of staging, two rounds
 * of near chunks, far sums and far chunks that arrive are 2 (near + far) <= 2 near far chunks. */
static bool reduce_scatter_leg(const plan *p, int step, ech_leg *out)
{
    const int64_t share = p->c->n / p->g->all.size;
    const int64_t chunk = ech_reduce_chunk_elems(p->c->n, p->g->all.size);
    const int64_t begin = step / 2 * chunk;
    const int64_t elems = share - begin < chunk ? share - begin : chunk;
    unsigned char *sums = p->staging + (size_t)(ECH_COMM_DEPTH * p->near * chunk) * p->width;
    if (elems <= 0)
        return false;
    if (step % 2 == 0)
        *out = (ech_leg){.kind = ECH_COLL_REDUCE_SCATTER,
                         .who = &p->g->near,
                         .n = elems * p->g->all.size,
                         .piece = elems,
                         .part_step = share,
                         .piece_step = p->near * share,
                         .buf = p->buf + (size_t)begin * p->width,
                         .part = sums,
                         .staging = p->staging};
    else
        *out = (ech_leg){.kind = ECH_COLL_REDUCE_SCATTER,
                         .who = &p->g->far,
                         .n = elems * p->far,
                         .piece = elems,
                         .part_step = elems,
                         .piece_step = elems,
                         .buf = sums,
                         .part = p->part + (size_t)begin * p->width,
                         .staging = sums + (size_t)(p->far * chunk) * p->width};
    return true;
}

/* The shares of my place from every run, then those of all places of my run: a node hears each
 * share of another one once. */
static bool all_gather_leg(const plan *p, int step, ech_leg *out)
{
    const int64_t share = p->c->n / p->g->all.size;
    if (step == 0)
        *out = (ech_leg){.kind = ECH_COLL_ALL_GATHER,
                         .who = &p->g->far,
                         .n = share * p->far,
                         .piece = share,
                         .part_step = p->near * share,
                         .piece_step = share,
                         .buf = p->buf + (size_t)(p->place * share) * p->width,
                         .part = p->part};
    else
        *out = (ech_leg){.kind = ECH_COLL_ALL_GATHER,
                         .who = &p->g->near,
                         .n = p->c->n,
                         .piece = share,
                         .part_step = share,
                         .piece_step = p->near * share,
                         .buf = p->buf};
    return step < 2;
}

bool ech_coll_leg(const ech_group *g, const ech_coll *c, int step, ech_leg *out)
{
    const plan p = plan_of(g, c);
    if (p.near > 1 && c->n >= g->all.size) {
        if (c->kind == ECH_COLL_ALL_REDUCE)
            return all_reduce_leg(&p, step, out);
        if (c->kind == ECH_COLL_REDUCE_SCATTER)
            return reduce_scatter_leg(&p, step, out);
        if (c->kind == ECH_COLL_ALL_GATHER)
            return all_gather_leg(&p, step, out);
    }
    if (step == 0)
        *out = flat_leg(&p);
    return step == 0;
}
