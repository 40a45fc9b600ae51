/* Folding the rounds of a plain program. */
#include "program/repeat.h"

#include <stdlib.h>

enum { MOST_STEP = 4 /* micro-batches of a round */ };
enum { MIXED = -2 };

/* What slots of one kind have in common: the region, and the item but for its micro-batch, that uses
 * them first. */
enum { KIND_BLOCK, KIND_LAYER, KIND_CHUNK, KIND_REGION, N_KIND };

/* How a transient slot is used. */
typedef struct use {
    int kind[N_KIND];
    int micro; /* of all items that use it; MIXED */
    int slot;
    int first, last; /* items; -1: none */
} use;

typedef struct roller {
    ech_program *p;
    int micros;
    int *
        mark; /* [n_marks] items with which rounds may begin: the first forward, of each micro-batch */
    int n_marks;
    unsigned roles; /* of what micro-batches do */
    ech_repeat found;
    use *use;       /* [n_slots] by slot, then sorted by kind */
    int *to;        /* [n_slots] slot in the rolled program, LEFT_OUT */
    ech_slot *slot; /* [n_slots] of the rolled program */
    int n_slots;
} roller;

enum { LEFT_OUT = -1 };

/* --- which items repeat --- */

static bool is_forward(const ech_program *p, int item)
{
    return p->block[p->item[item].block].role == ECH_ROLE_FORWARD && p->item[item].micro >= 0;
}

/* Roles of what micro-batches do in items [first, end), as bits. */
static unsigned roles_of(const ech_program *p, int first, int end)
{
    unsigned roles = 0;
    for (int i = first; i < end; i++)
        if (p->item[i].micro >= 0)
            roles |= 1u << p->block[p->item[i].block].role;
    return roles;
}

static ech_status find_marks(roller *r)
{
    const ech_program *p = r->p;
    const ech_item *first = NULL;
    ECH_TRY(ech_calloc((size_t)p->n_items, sizeof *r->mark, &r->mark));
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        if (!first && is_forward(p, i))
            first = it;
        if (first && it->block == first->block && it->layer == first->layer &&
            it->chunk == first->chunk)
            r->mark[r->n_marks++] = i;
    }
    return ECH_OK;
}

static bool is_next_view(const ech_program *p, ech_view a, ech_view b, int step)
{
    if (a.slot < 0 || b.slot < 0)
        return a.slot == b.slot;
    const ech_slot *s = &p->slot[a.slot];
    if (!s->is_state)
        return !p->slot[b.slot].is_state && a.offset == b.offset &&
               s->bytes == p->slot[b.slot].bytes && s->klass == p->slot[b.slot].klass &&
               s->space == p->slot[b.slot].space;
    return a.slot == b.slot && b.offset == a.offset + s->micro_bytes * (size_t)step;
}

/* Is item b what item a is, `step` micro-batches on. */
static bool is_next(const ech_program *p, int a, int b, int step)
{
    const ech_item *x = &p->item[a];
    const ech_item *y = &p->item[b];
    if (x->block != y->block || x->layer != y->layer || x->chunk != y->chunk ||
        x->segment != y->segment || x->request != y->request ||
        y->micro != (x->micro < 0 ? x->micro : x->micro + step))
        return false;
    for (int r = 0; r < ECH_N_REGIONS; r++)
        if (p->block[x->block].region_bytes[r] &&
            !is_next_view(p, x->bind[r], y->bind[r], x->micro < 0 ? 0 : step))
            return false;
    return true;
}

/* Is the round that begins with mark k followed by one like it.  In a round everything is done that
 * micro-batches do: at a step's beginning forwards alone are repeated too, as often as there is room to
 * keep them and no more. */
static bool is_repeated(const roller *r, int k, int step)
{
    if (k + 2 * step >= r->n_marks)
        return false;
    const int a = r->mark[k];
    const int b = r->mark[k + step];
    if (b - a != r->mark[k + 2 * step] - b || roles_of(r->p, a, b) != r->roles)
        return false;
    for (int i = 0; i < b - a; i++)
        if (!is_next(r->p, a + i, b + i, step))
            return false;
    return true;
}

/* The longest run of rounds of `step` micro-batches, the first of its length. */
static ech_status find_rounds(const roller *r, int step, ech_repeat *out)
{
    int *run;
    *out = (ech_repeat){.step = step};
    ECH_TRY(ech_calloc((size_t)r->n_marks + (size_t)step + 1, sizeof *run, &run));
    for (int k = r->n_marks - 1; k >= 0; k--) {
        run[k] = is_repeated(r, k, step) ? run[k + step] + 1 : 0;
        if (run[k] && run[k] + 1 >= out->times) {
            out->times = run[k] + 1;
            out->first = r->mark[k];
            out->end = r->mark[k + step];
        }
    }
    free(run);
    return ECH_OK;
}

/* --- what goes from round to round --- */

/* -1 before the rounds, then the round, behind them their number. */
static int round_of(const roller *r, int item)
{
    const int n = r->found.end - r->found.first;
    if (item < r->found.first)
        return -1;
    const int k = (item - r->found.first) / n;
    return k < r->found.times ? k : r->found.times;
}

static bool is_crossing(const roller *r, const use *u)
{
    return round_of(r, u->first) != round_of(r, u->last);
}

static void note_use(use *u, int item, const ech_item *it, int region)
{
    if (u->first < 0)
        *u = (use){{it->block, it->layer, it->chunk, region}, it->micro, u->slot, item, item};
    u->last = item;
    if (u->micro != it->micro)
        u->micro = MIXED;
}

static ech_status list_uses(roller *r)
{
    const ech_program *p = r->p;
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof *r->use, &r->use));
    for (int s = 0; s < p->n_slots; s++)
        r->use[s] = (use){.kind = {-1}, .slot = s, .first = -1, .last = -1};
    for (int i = 0; i < p->n_items; i++)
        for (int k = 0; k < ECH_N_REGIONS; k++) {
            const int s = p->item[i].bind[k].slot;
            if (s >= p->n_state && p->block[p->item[i].block].region_bytes[k])
                note_use(&r->use[s], i, &p->item[i], k);
        }
    return ECH_OK;
}

static int cmp_kind(const use *x, const use *y)
{
    for (int i = 0; i < N_KIND; i++)
        if (x->kind[i] != y->kind[i])
            return x->kind[i] < y->kind[i] ? -1 : 1;
    return 0;
}

static int cmp_use(const void *a, const void *b)
{
    const use *x = a;
    const use *y = b;
    const int c = cmp_kind(x, y);
    if (c)
        return c;
    if (x->micro != y->micro)
        return x->micro < y->micro ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* --- rings --- */

/* Each micro-batch has one, all of a size. */
static bool is_ring(const roller *r, const use *u, int n)
{
    bool is = n == r->micros;
    for (int i = 0; i < n && is; i++)
        is = u[i].micro == i && r->p->slot[u[i].slot].bytes == r->p->slot[u[0].slot].bytes;
    return is;
}

/* So many elements that each is free again when its next micro-batch comes. */
static int ring_size(const use *u, int n)
{
    int size = 1;
    for (int i = 0; i + size < n; i++)
        while (i + size < n && u[i].last >= u[i + size].first)
            size++;
    return size;
}

static void add_slot(roller *r, const ech_slot *s, const use *u, int n)
{
    for (int i = 0; i < n; i++)
        r->to[u[i].slot] = r->n_slots;
    r->slot[r->n_slots++] = *s;
}

/* Slots of a kind, none of which goes from round to round: those of the first round stay for all. */
static void keep_kind(roller *r, const use *u, int n)
{
    for (int i = 0; i < n; i++) {
        const int round = u[i].first < 0 ? 1 : round_of(r, u[i].first);
        if (round <= 0 || round == r->found.times)
            add_slot(r, &r->p->slot[u[i].slot], &u[i], 1);
    }
}

/* Slots of a kind; false: some go from round to round and make no ring. */
static bool map_kind(roller *r, const use *u, int n)
{
    bool crosses = false;
    for (int i = 0; i < n; i++)
        crosses = crosses || (u[i].first >= 0 && is_crossing(r, &u[i]));
    if (!crosses) {
        keep_kind(r, u, n);
        return true;
    }
    if (!is_ring(r, u, n))
        return false;
    ech_slot ring = r->p->slot[u[0].slot];
    ring.micro_bytes = ech_align_up(ring.bytes, ECH_ALIGN);
    ring.ring = ring_size(u, n);
    ring.bytes = ring.micro_bytes * (size_t)ring.ring;
    add_slot(r, &ring, u, n);
    return true;
}

static ech_status map_slots(roller *r, bool *found)
{
    const ech_program *p = r->p;
    use *u = r->use + p->n_state;
    const int n = p->n_slots - p->n_state;
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof *r->to, &r->to));
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof *r->slot, &r->slot));
    for (int s = 0; s < p->n_slots; s++)
        r->to[s] = LEFT_OUT;
    for (int s = 0; s < p->n_state; s++)
        add_slot(r, &p->slot[s], &r->use[s], 1);
    qsort(u, (size_t)n, sizeof *u, cmp_use);
    *found = true;
    for (int i = 0, k; i < n && *found; i = k) {
        for (k = i + 1; k < n && cmp_kind(&u[i], &u[k]) == 0;)
            k++;
        *found = map_kind(r, u + i, k - i);
    }
    return ECH_OK;
}

/* --- the rolled program --- */

/* Views of state that is dealt out become relative to the item's micro-batch; false: one is not
 * within it. */
static bool bind(const roller *r, ech_item *it)
{
    for (int k = 0; k < ECH_N_REGIONS; k++) {
        ech_view *v = &it->bind[k];
        if (v->slot < 0)
            continue;
        const ech_slot *s = &r->p->slot[v->slot];
        const size_t element = ech_slot_element(s, it->micro);
        const size_t bytes = r->p->block[it->block].region_bytes[k];
        if (v->offset < element ||
            (it->micro >= 0 && s->micro_bytes && v->offset - element + bytes > s->micro_bytes))
            return false;
        *v = (ech_view){r->to[v->slot], v->offset - element};
    }
    return true;
}

static ech_status fold(roller *r, bool *found)
{
    ech_program *p = r->p;
    const int n_round = r->found.end - r->found.first;
    const int end = r->found.first + n_round * r->found.times;
    const int n = p->n_items - n_round * (r->found.times - 1);
    ech_item *item;
    ECH_TRY(ech_calloc((size_t)n, sizeof *item, &item));
    for (int i = 0; i < n && *found; i++) {
        item[i] = p->item[i < r->found.end ? i : i - r->found.end + end];
        *found = bind(r, &item[i]);
    }
    if (!*found) {
        free(item);
        return ECH_OK;
    }
    free(p->item);
    free(p->slot);
    p->item = item;
    p->item_capacity = (size_t)n;
    p->n_items = n;
    p->slot = r->slot;
    p->slot_capacity = (size_t)p->n_slots;
    p->n_slots = r->n_slots;
    p->repeat = r->found;
    r->slot = NULL;
    return ECH_OK;
}

static ech_status roll(roller *r, bool *found)
{
    ECH_TRY(find_marks(r));
    for (int step = 1; step <= MOST_STEP && r->found.times < ECH_LEAST_ROUNDS; step++)
        ECH_TRY(find_rounds(r, step, &r->found));
    if (r->found.times < ECH_LEAST_ROUNDS)
        return ECH_OK;
    ECH_TRY(list_uses(r));
    ECH_TRY(map_slots(r, found));
    return *found ? fold(r, found) : ECH_OK;
}

ech_status ech_program_roll(ech_program *p, int micros, bool *found)
{
    roller r = {.p = p, .micros = micros, .roles = roles_of(p, 0, p->n_items)};
    *found = false;
    const ech_status st = roll(&r, found);
    free(r.mark);
    free(r.use);
    free(r.to);
    free(r.slot);
    return st;
}

void ech_program_lengthen(ech_program *p, int micros)
{
    ECH_ASSERT(p->repeat.times && micros % p->repeat.step == 0);
    p->repeat.times += micros / p->repeat.step;
    for (int i = p->repeat.end; i < p->n_items; i++)
        if (p->item[i].micro >= 0)
            p->item[i].micro += micros;
}
