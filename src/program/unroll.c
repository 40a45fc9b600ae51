/* Plain programs of rolled ones. */
#include "program/repeat.h"

#include <stdlib.h>
#include <string.h>

size_t ech_slot_element(const ech_slot *s, int micro)
{
    if (micro < 0 || !s->micro_bytes)
        return 0;
    return s->micro_bytes * (size_t)(s->ring ? micro % s->ring : micro);
}

enum { MOST_ITEMS = 1 << 26 };

typedef struct unroller {
    const ech_program *p;
    ech_program *out;
    int times;
    int fewer; /* micro-batches */
    int *copy; /* [n_slots] slot in this round of what lives within a round; -1: others */
} unroller;

/* --- blocks, of fewer micro-batches --- */

static ech_status copy_blocks(unroller *u)
{
    const ech_program *p = u->p;
    ECH_TRY(ech_calloc((size_t)p->n_blocks, sizeof *u->out->block, &u->out->block));
    u->out->block_capacity = (size_t)p->n_blocks;
    for (int b = 0; b < p->n_blocks; b++) {
        ech_block *to = &u->out->block[u->out->n_blocks];
        const size_t n = (size_t)p->block[b].n_ops;
        *to = p->block[b];
        ECH_TRY(ech_calloc(n, sizeof *to->op, &to->op));
        u->out->n_blocks++;
        to->capacity = n;
        if (n)
            memcpy(to->op, p->block[b].op, n * sizeof *to->op);
    }
    return ECH_OK;
}

static size_t cut(const unroller *u, size_t bytes)
{
    return bytes / (size_t)u->p->micro_batches * (size_t)(u->p->micro_batches - u->fewer);
}

/* An operand on all micro-batches of a slot is made one on fewer. */
static ech_status cut_operand(const unroller *u, ech_region r, size_t bytes, ech_operand *a)
{
    const int64_t m = u->p->micro_batches;
    if (a->region != r || ech_operand_bytes(a) != bytes)
        return ECH_OK;
    ECH_CHECK(a->offset == 0 && a->rank > 0 && a->dim[0].bound % m == 0, ECH_E_PROOF,
              "an operand on all %d micro-batches cannot be cut to fewer", u->p->micro_batches);
    a->dim[0].bound = a->dim[0].bound / m * (m - u->fewer);
    return ECH_OK;
}

static ech_status cut_region(const unroller *u, ech_block *b, ech_region r, size_t bytes)
{
    if (b->region_bytes[r] != bytes)
        return ECH_OK;
    for (int k = 0; k < b->n_ops; k++)
        for (int i = 0; i < b->op[k].n_args; i++)
            ECH_TRY(cut_operand(u, r, bytes, &b->op[k].arg[i]));
    b->region_bytes[r] = cut(u, bytes);
    return ECH_OK;
}

/* What is bound to a whole slot of state that is dealt out. */
static ech_status cut_blocks(const unroller *u)
{
    const ech_program *p = u->p;
    for (int i = 0; i < p->n_items && u->fewer; i++)
        for (int r = 0; r < ECH_N_REGIONS; r++) {
            const int s = p->item[i].bind[r].slot;
            if (p->item[i].micro < 0 && s >= 0 && s < p->n_state && p->slot[s].micro_bytes)
                ECH_TRY(cut_region(u, &u->out->block[p->item[i].block], (ech_region)r,
                                   p->slot[s].bytes));
        }
    return ECH_OK;
}

/* --- slots --- */

static bool is_of_round(const ech_program *p, int slot)
{
    const ech_slot *s = &p->slot[slot];
    return !s->is_state && !s->ring && s->first >= p->repeat.first && s->first < p->repeat.end;
}

/* Those of the program, then, for each round but the first, those that live within a round. */
static ech_status copy_slots(unroller *u)
{
    const ech_program *p = u->p;
    int n = 0;
    for (int s = p->n_state; s < p->n_slots; s++)
        n += is_of_round(p, s);
    u->out->slot_capacity = (size_t)p->n_slots + (size_t)n * (size_t)(u->times - 1);
    ECH_TRY(ech_calloc(u->out->slot_capacity, sizeof *u->out->slot, &u->out->slot));
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof *u->copy, &u->copy));
    memcpy(u->out->slot, p->slot, (size_t)p->n_slots * sizeof *p->slot);
    u->out->n_slots = p->n_slots;
    u->out->n_state = p->n_state;
    for (int s = 0; s < p->n_state; s++)
        if (p->slot[s].micro_bytes)
            u->out->slot[s].bytes = cut(u, p->slot[s].bytes);
    for (int s = 0; s < p->n_slots; s++)
        u->copy[s] = s;
    return ECH_OK;
}

static void next_round(unroller *u)
{
    for (int s = u->p->n_state; s < u->p->n_slots; s++)
        if (is_of_round(u->p, s)) {
            u->copy[s] = u->out->n_slots;
            u->out->slot[u->out->n_slots++] = u->p->slot[s];
        }
}

/* --- items --- */

static ech_status put_item(unroller *u, int item, int more)
{
    char where[128];
    ech_item it = u->p->item[item];
    ECH_CHECK(it.micro < 0 || it.micro + more >= 0, ECH_E_PROOF,
              "%s stands behind rounds of later micro-batches",
              ech_item_describe(u->p, item, where, sizeof where));
    it.micro += it.micro < 0 ? 0 : more;
    for (int r = 0; r < ECH_N_REGIONS; r++) {
        ech_view *v = &it.bind[r];
        if (v->slot < 0)
            continue;
        v->offset += ech_slot_element(&u->p->slot[v->slot], it.micro);
        v->slot = u->copy[v->slot];
    }
    u->out->item[u->out->n_items++] = it;
    return ECH_OK;
}

static ech_status copy_items(unroller *u)
{
    const ech_program *p = u->p;
    const ech_repeat *r = &p->repeat;
    const int64_t n = p->n_items + (int64_t)(r->end - r->first) * (u->times - 1);
    ECH_CHECK(n <= MOST_ITEMS, ECH_E_UNSUPPORTED, "%lld items are too many to list", (long long)n);
    ECH_TRY(ech_calloc((size_t)n, sizeof *u->out->item, &u->out->item));
    u->out->item_capacity = (size_t)n;
    for (int i = 0; i < r->first; i++)
        ECH_TRY(put_item(u, i, 0));
    for (int k = 0; k < u->times; k++) {
        for (int i = r->first; i < r->end; i++)
            ECH_TRY(put_item(u, i, k * r->step));
        if (k + 1 < u->times)
            next_round(u);
    }
    for (int i = r->end; i < p->n_items; i++)
        ECH_TRY(put_item(u, i, -u->fewer));
    return ECH_OK;
}

static ech_status unroll(unroller *u)
{
    ECH_TRY(copy_blocks(u));
    ECH_TRY(cut_blocks(u));
    ECH_TRY(copy_slots(u));
    ECH_TRY(copy_items(u));
    ech_program_settle(u->out);
    return ECH_OK;
}

ech_status ech_program_unroll(const ech_program *p, int times, ech_program *out)
{
    ech_program q = *p;
    const int fewer = (p->repeat.times - times) * p->repeat.step;
    ECH_ASSERT(times >= 1 && fewer >= 0 && fewer < p->micro_batches);
    q.block = NULL;
    q.slot = NULL;
    q.item = NULL;
    q.n_blocks = q.n_slots = q.n_items = 0;
    q.micro_batches -= fewer;
    q.rounds = p->repeat;
    q.rounds.times = times;
    q.repeat = (ech_repeat){0};
    unroller u = {.p = p, .out = &q, .times = times, .fewer = fewer};
    const ech_status st = unroll(&u);
    free(u.copy);
    if (st < 0)
        ech_program_fini(&q);
    else
        *out = q;
    return st;
}
