/* The residual stream: units follow each other in the model's order, over all classes. */
#include "program/cover_private.h"

#include <stdio.h>
#include <stdlib.h>

enum { NONE = -1 };

/* What a slot holds of the residual stream.  Blocks count from the embedding, 0, over attention and
 * mlp of every layer to the head; a gradient is that of what the block before it puts out. */
typedef struct stream {
    int block; /* that wrote it; NONE: none did */
    int micro;
    bool is_gradient;
    int message; /* that brought it, which tells the block once one has read it; NONE: none did */
} stream;

/* One end of a message. */
typedef struct end {
    stream what; /* sent; received: what its first reader takes it for */
    int item, peer;
} end;

typedef struct ends {
    end *end; /* owned */
    int n;
    size_t capacity;
} ends;

/* Ends of a class in the order of its program. */
typedef struct class_ends {
    ends sent, received;
    int n_handed; /* sent as they came: nothing has read them yet */
} class_ends;

/* What a block is by its ops; of a weight block of a layer they do not tell. */
typedef enum place { OTHER, EMBEDDING, ATTENTION } place;

/* A walk over a program. */
typedef struct walk {
    const ech_program *p; /* borrowed */
    int last;             /* the head's number */
    stream *slot;         /* owned, [elements of all slots] */
    int *first;           /* owned, [n_slots + 1] a slot's first element: of a ring each counts */
    place *place;         /* owned, [n_blocks] */
    class_ends *both;     /* borrowed */
    int64_t *looked;      /* borrowed */
} walk;

static const char *block_name(const walk *w, const stream *s, char buf[96])
{
    const char *what = s->is_gradient ? "the gradient from " : "";
    if (s->block == NONE)
        (void)snprintf(buf, 96, "nothing");
    else if (s->block == 0 || s->block >= w->last)
        (void)snprintf(buf, 96, "%s%s, micro-batch %d", what,
                       s->block ? "the head" : "the embedding", s->micro);
    else
        (void)snprintf(buf, 96, "%s%s of layer %d, micro-batch %d", what,
                       s->block % 2 ? "attention" : "mlp", (s->block - 1) / 2, s->micro);
    return buf;
}

static bool is_same(const stream *a, const stream *b)
{
    return a->block == b->block && a->micro == b->micro && a->is_gradient == b->is_gradient;
}

/* --- one program --- */

static void find_places(const walk *w)
{
    for (int b = 0; b < w->p->n_blocks; b++)
        for (int k = 0; k < w->p->block[b].n_ops; k++)
            switch (w->p->block[b].op[k].kind) {
            case ECH_OP_EMBED:
            case ECH_OP_EMBED_BACKWARD:
                w->place[b] = EMBEDDING;
                break;
            case ECH_OP_ATTENTION:
            case ECH_OP_ATTENTION_BACKWARD:
            case ECH_OP_ATTENTION_CACHED:
                w->place[b] = ATTENTION;
                break;
            default:
                break;
            }
}

static stream *stream_at(const walk *w, ech_view v)
{
    const ech_slot *s = &w->p->slot[v.slot];
    return &w->slot[w->first[v.slot] + (s->ring ? (int)(v.offset / s->micro_bytes) : 0)];
}

/* The number of an item's block in the model. */
static int number_of(const walk *w, const ech_item *it)
{
    const place is = w->place[it->block];
    if (it->layer < 0)
        return is == EMBEDDING ? 0 : w->last;
    return 2 * it->layer + (is == ATTENTION ? 1 : 2);
}

/* A region of an item holds what it should. */
static ech_status check_read(walk *w, int item, ech_region r, stream wanted)
{
    char where[128];
    char names[2][96];
    const ech_item *it = &w->p->item[item];
    if (!w->p->block[it->block].region_bytes[r])
        return ECH_OK;
    stream *s = stream_at(w, it->bind[r]);
    ++*w->looked;
    if (w->p->block[it->block].role == ECH_ROLE_BACKWARD_WEIGHT && it->layer >= 0 &&
        s->block == wanted.block - 1)
        wanted.block--; /* it may be attention's: which one, ech_cover_check_split compares */
    if (s->message != NONE && s->block == NONE) {
        s->block = wanted.block;
        w->both->received.end[s->message].what.block = wanted.block;
    }
    ECH_CHECK(is_same(s, &wanted), ECH_E_PROOF, "%s takes as %s what is of %s: wanted is %s",
              ech_item_describe(w->p, item, where, sizeof where), ech_region_name(r),
              block_name(w, s, names[0]), block_name(w, &wanted, names[1]));
    return ECH_OK;
}

static void note_written(const walk *w, const ech_item *it, ech_region r, int block)
{
    if (w->p->block[it->block].region_bytes[r])
        *stream_at(w, it->bind[r]) = (stream){block, it->micro, r == ECH_REGION_DIN, NONE};
}

/* A block of the model takes the stream of the block before it, its gradient of the one after. */
static ech_status visit_model(walk *w, int item)
{
    const ech_item *it = &w->p->item[item];
    const int n = number_of(w, it);
    ECH_TRY(check_read(w, item, ECH_REGION_IN, (stream){n - 1, it->micro, false, NONE}));
    ECH_TRY(check_read(w, item, ECH_REGION_DOUT, (stream){n + 1, it->micro, true, NONE}));
    if (w->p->block[it->block].role == ECH_ROLE_FORWARD)
        note_written(w, it, ECH_REGION_OUT, n);
    note_written(w, it, ECH_REGION_DIN, n);
    return ECH_OK;
}

/* The peer is a pipeline rank: a class. */
static ech_status visit_message(walk *w, int item, const ech_op *op)
{
    int64_t peer = NONE;
    const int64_t coord[ECH_N_AXES] = {0};
    const ech_item *it = &w->p->item[item];
    const bool sends = op->kind == ECH_OP_SEND_START;
    ends *e = sends ? &w->both->sent : &w->both->received;
    stream *s = stream_at(w, it->bind[op->arg[0].region]);
    ECH_TRY(ech_mesh_eval(&op->attr[0], coord, it->micro, &peer));
    ECH_TRY(ech_grow(&e->end, (size_t)e->n, &e->capacity, sizeof *e->end));
    if (!sends)
        *s = (stream){NONE, it->micro, op->arg[0].region == ECH_REGION_DOUT, e->n};
    if (sends && s->block == NONE && s->message != NONE)
        w->both->n_handed++;
    e->end[e->n++] = (end){*s, item, (int)peer};
    return ECH_OK;
}

static ech_status visit_item(walk *w, int item)
{
    const ech_block *b = &w->p->block[w->p->item[item].block];
    switch (b->role) {
    case ECH_ROLE_FORWARD:
    case ECH_ROLE_BACKWARD:
    case ECH_ROLE_BACKWARD_INPUT:
    case ECH_ROLE_BACKWARD_WEIGHT:
    case ECH_ROLE_RECOMPUTE:
        return visit_model(w, item);
    default:
        break;
    }
    for (int k = 0; k < b->n_ops; k++)
        if (b->op[k].axis == ECH_AXIS_PP &&
            (b->op[k].kind == ECH_OP_SEND_START || b->op[k].kind == ECH_OP_RECV_START))
            ECH_TRY(visit_message(w, item, &b->op[k]));
    return ECH_OK;
}

static ech_status walk_program(walk *w)
{
    ECH_TRY(ech_calloc((size_t)w->p->n_slots + 1, sizeof *w->first, &w->first));
    for (int s = 0; s < w->p->n_slots; s++)
        w->first[s + 1] = w->first[s] + (w->p->slot[s].ring ? w->p->slot[s].ring : 1);
    const int elements = w->first[w->p->n_slots];
    ECH_TRY(ech_calloc((size_t)elements, sizeof *w->slot, &w->slot));
    ECH_TRY(ech_calloc((size_t)w->p->n_blocks, sizeof *w->place, &w->place));
    for (int e = 0; e < elements; e++)
        w->slot[e] = (stream){NONE, NONE, false, NONE};
    find_places(w);
    for (int i = 0; i < w->p->n_items; i++)
        ECH_TRY(visit_item(w, i));
    return ECH_OK;
}

static ech_status check_class(const ech_cover_spec *s, int klass, class_ends *both, int64_t *looked)
{
    walk w = {.p = s->program[klass],
              .last = 2 * (s->plan[klass]->canon->n_units - 1) - 1,
              .both = both,
              .looked = looked};
    const ech_status st = walk_program(&w);
    free(w.slot);
    free(w.first);
    free(w.place);
    return st < 0 && s->n_classes > 1 ? ech_error_prefix(st, "every rank of class %d: ", klass)
                                      : st;
}

/* --- between classes --- */

/* The next end from `at` on that is one with a peer; ends->n: none. */
static int next_end(const ends *e, int at, int peer)
{
    while (at < e->n && e->end[at].peer != peer)
        at++;
    return at;
}

/* What a class hands on as it came (a stage without units) is what its taker takes it for. */
static bool hand_back(class_ends *all, int from, int to)
{
    ends *sent = &all[from].sent;
    const ends *got = &all[to].received;
    bool is_new = false;
    int x = next_end(sent, 0, to);
    for (int y = next_end(got, 0, from); x < sent->n && y < got->n;
         x = next_end(sent, x + 1, to), y = next_end(got, y + 1, from)) {
        stream *s = &sent->end[x].what;
        const int block = got->end[y].what.block;
        if (s->block != NONE || s->message == NONE || block == NONE)
            continue;
        s->block = block;
        all[from].received.end[s->message].what.block = block;
        is_new = true;
    }
    return is_new;
}

/* From the last of several such stages to the first. */
static void hand_all_back(const ech_cover_spec *s, class_ends *all)
{
    bool is_new = true;
    while (is_new) {
        is_new = false;
        for (int from = 0; from < s->n_classes; from++)
            for (int to = 0; to < s->n_classes && all[from].n_handed; to++)
                is_new = hand_back(all, from, to) || is_new;
    }
}

/* The k-th message of one class to another is the k-th that it gets from it; how many there are is
 * match's to check. */
static ech_status check_channel(const ech_cover_spec *s, const class_ends *all, int from, int to)
{
    char where[2][128];
    char names[2][96];
    const ends *sent = &all[from].sent;
    const ends *got = &all[to].received;
    const walk w = {.last = 2 * (s->plan[from]->canon->n_units - 1) - 1};
    int x = next_end(sent, 0, to);
    for (int y = next_end(got, 0, from); x < sent->n && y < got->n;
         x = next_end(sent, x + 1, to), y = next_end(got, y + 1, from))
        ECH_CHECK(
            is_same(&sent->end[x].what, &got->end[y].what), ECH_E_PROOF,
            "%s of class %d brings what is of %s to %s of class %d, taken there for what is of "
            "%s",
            ech_item_describe(s->program[from], sent->end[x].item, where[0], sizeof where[0]), from,
            block_name(&w, &sent->end[x].what, names[0]),
            ech_item_describe(s->program[to], got->end[y].item, where[1], sizeof where[1]), to,
            block_name(&w, &got->end[y].what, names[1]));
    return ECH_OK;
}

/* From a class to those that it sends to. */
static ech_status check_sender(const ech_cover_spec *s, const class_ends *all, int from)
{
    bool *is_done;
    ech_status st = ECH_OK;
    const ends *sent = &all[from].sent;
    ECH_TRY(ech_calloc((size_t)s->n_classes, sizeof *is_done, &is_done));
    for (int i = 0; i < sent->n && st >= 0; i++) {
        const int to = sent->end[i].peer;
        if (to < 0 || to >= s->n_classes || is_done[to])
            continue;
        is_done[to] = true;
        st = check_channel(s, all, from, to);
    }
    free(is_done);
    return st;
}

ech_status ech_cover_check_streams(const ech_cover_spec *s, int64_t *looked)
{
    class_ends *all;
    ech_status st = ECH_OK;
    ECH_TRY(ech_calloc((size_t)s->n_classes, sizeof *all, &all));
    for (int k = 0; k < s->n_classes && st >= 0; k++)
        st = check_class(s, k, &all[k], looked);
    if (st >= 0)
        hand_all_back(s, all);
    for (int k = 0; k < s->n_classes && st >= 0; k++)
        st = check_sender(s, all, k);
    for (int k = 0; k < s->n_classes; k++) {
        free(all[k].sent.end);
        free(all[k].received.end);
    }
    free(all);
    return st;
}
