/* Placing slots in the arenas, and what follows from it: predicted memory, traffic, FLOPs. */
#include "base/text.h"
#include "program/pack.h"
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

/* What goes from round to round lives through all of them. */
static void keep_through_rounds(ech_slot *s, const ech_repeat *r)
{
    if (!s->ring || s->first >= r->end || s->last < r->first)
        return;
    s->first = s->first < r->first ? s->first : r->first;
    s->last = s->last >= r->end ? s->last : r->end - 1;
}

/* First and last item that touches each transient slot, in program order. */
static void find_lifetimes(ech_program *p)
{
    for (int s = p->n_state; s < p->n_slots; s++)
        p->slot[s].first = p->slot[s].last = -1;
    for (int i = 0; i < p->n_items; i++)
        for (int r = 0; r < ECH_N_REGIONS; r++) {
            const int s = p->item[i].bind[r].slot;
            if (s < 0 || !p->block[p->item[i].block].region_bytes[r])
                continue;
            if (p->slot[s].first < 0)
                p->slot[s].first = i;
            p->slot[s].last = i;
        }
    for (int s = p->n_state; s < p->n_slots && p->repeat.times; s++)
        keep_through_rounds(&p->slot[s], &p->repeat);
}

static void place_state(ech_program *p)
{
    for (int s = 0; s < p->n_state; s++) {
        size_t *used = &p->state_bytes[p->slot[s].space];
        p->slot[s].offset = *used;
        *used += ech_align_up(p->slot[s].bytes, ECH_ALIGN);
    }
}

static ech_status place_transient(ech_program *p, ech_space space)
{
    ech_pack_item *item;
    int n = 0;
    ECH_TRY(ech_calloc((size_t)p->n_slots, sizeof *item, &item));
    for (int s = p->n_state; s < p->n_slots; s++)
        if (p->slot[s].space == space && p->slot[s].first >= 0)
            item[n++] = (ech_pack_item){p->slot[s].bytes, p->slot[s].first, p->slot[s].last, 0};
    const ech_status st =
        ech_pack(item, n, ECH_ALIGN, &p->transient_bytes[space], &p->peak_live_bytes[space]);
    n = 0;
    for (int s = p->n_state; s < p->n_slots && st >= 0; s++)
        if (p->slot[s].space == space && p->slot[s].first >= 0)
            p->slot[s].offset = p->state_bytes[space] + item[n++].offset;
    free(item);
    return st;
}

/* Bytes of each class that are born with item i, or die with item i - 1, as changes[i][class]. */
static ech_status list_changes(const ech_program *p, ech_space space,
                               int64_t (**out)[ECH_N_CLASSES])
{
    int64_t(*change)[ECH_N_CLASSES] = NULL;
    ECH_TRY(ech_calloc((size_t)p->n_items + 1, sizeof *change, &change));
    for (int s = p->n_state; s < p->n_slots; s++) {
        const ech_slot *slot = &p->slot[s];
        if (slot->space != space || slot->first < 0)
            continue;
        change[slot->first][slot->klass] += (int64_t)slot->bytes;
        change[slot->last + 1][slot->klass] -= (int64_t)slot->bytes;
    }
    *out = change;
    return ECH_OK;
}

/* Take over the live bytes at an item where they are more than ever before; returns their sum. */
static size_t note_live(ech_memory *m, const size_t live[ECH_N_CLASSES], int item)
{
    size_t total = 0;
    for (int c = 0; c < ECH_N_CLASSES; c++) {
        total += live[c];
        if (live[c] > m->own_max[c])
            m->own_max[c] = live[c];
    }
    if (total > m->total) {
        m->total = total;
        m->peak_item = item;
        memcpy(m->at_peak, live, sizeof m->at_peak);
    }
    return total;
}

ech_status ech_program_memory(const ech_program *p, ech_space space, ech_memory *out)
{
    size_t live[ECH_N_CLASSES] = {0};
    int64_t(*change)[ECH_N_CLASSES] = NULL;
    ech_memory m = {.arena = p->state_bytes[space] + p->transient_bytes[space], .peak_item = -1};
    ECH_TRY(list_changes(p, space, &change));
    for (int s = 0; s < p->n_state; s++)
        if (p->slot[s].space == space)
            live[p->slot[s].klass] += p->slot[s].bytes;
    m.state = note_live(&m, live, -1);
    for (int i = 0; i < p->n_items; i++) {
        for (int c = 0; c < ECH_N_CLASSES; c++)
            live[c] = (size_t)((int64_t)live[c] + change[i][c]);
        const size_t total = note_live(&m, live, i);
        size_t *peak = &m.peak_of[p->item[i].segment];
        *peak = total > *peak ? total : *peak;
    }
    free(change);
    m.arena = m.arena > m.total ? m.arena : m.total; /* a sketch has no arena yet */
    *out = m;
    return ECH_OK;
}

/* What is above the cap, and by class what it is made of. */
static ech_status refuse_size(const ech_program *p, ech_space space, size_t cap)
{
    ech_memory m;
    char buf[32];
    ech_text words = {0};
    const size_t state = p->state_bytes[space];
    const size_t transient = p->transient_bytes[space];
    ECH_TRY(ech_program_memory(p, space, &m));
    ech_text_add(&words,
                 "program '%s' needs %zu bytes of %s memory (%zu state, %zu transient), the cap is "
                 "%zu",
                 p->name, state + transient, ech_space_name(space), state, transient, cap);
    ech_text_add(&words, "\nat its fullest moment:");
    for (int c = 0; c < ECH_N_CLASSES; c++)
        if (m.at_peak[c])
            ech_text_add(&words, "\n  %-12s %15zu bytes = %s", ech_class_name((ech_class)c),
                         m.at_peak[c], ech_format_bytes((double)m.at_peak[c], buf, sizeof buf));
    const ech_status st = ECH_RAISE(ECH_E_INFEASIBLE, "%s", ech_text_get(&words));
    ech_text_fini(&words);
    return st;
}

ech_status ech_program_place(ech_program *p, const size_t cap_bytes[ECH_N_SPACES])
{
    memset(p->state_bytes, 0, sizeof p->state_bytes);
    find_lifetimes(p);
    place_state(p);
    for (int s = 0; s < ECH_N_SPACES; s++) {
        ECH_TRY(place_transient(p, (ech_space)s));
        const size_t total = p->state_bytes[s] + p->transient_bytes[s];
        if (cap_bytes && cap_bytes[s] && total > cap_bytes[s])
            return refuse_size(p, (ech_space)s, cap_bytes[s]);
    }
    return ECH_OK;
}

void ech_program_find_lives(ech_program *p)
{
    memset(p->state_bytes, 0, sizeof p->state_bytes);
    memset(p->transient_bytes, 0, sizeof p->transient_bytes);
    find_lifetimes(p);
    place_state(p);
}

void ech_program_settle(ech_program *p)
{
    size_t before[ECH_N_SPACES];
    memcpy(before, p->state_bytes, sizeof before);
    memset(p->state_bytes, 0, sizeof p->state_bytes);
    find_lifetimes(p);
    place_state(p);
    for (int s = p->n_state; s < p->n_slots; s++)
        p->slot[s].offset += p->state_bytes[p->slot[s].space] - before[p->slot[s].space];
}

/* How often an item is run. */
static int times_of(const ech_program *p, int item)
{
    const bool repeats = p->repeat.times && item >= p->repeat.first && item < p->repeat.end;
    return repeats ? p->repeat.times : 1;
}

void ech_program_traffic(const ech_program *p, int rank, ech_traffic out[ECH_N_AXES])
{
    int64_t coord[ECH_N_AXES];
    memset(out, 0, sizeof(ech_traffic) * ECH_N_AXES);
    ech_layout_coords(&p->layout, rank, coord);
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int k = 0; k < b->n_ops; k++) {
            const ech_op *op = &b->op[k];
            if (!ech_op_row_get(op->kind)->is_start)
                continue;
            const int size = ech_layout_group_size(&p->layout, rank, op->axis);
            const ech_traffic t = ech_op_traffic(op, size, (int)coord[op->axis]);
            out[op->axis].payload_bytes += t.payload_bytes * times_of(p, i);
            out[op->axis].wire_bytes += t.wire_bytes * times_of(p, i);
        }
    }
}

void ech_program_count(const ech_program *p, int64_t *items, int64_t *ops)
{
    *items = *ops = 0;
    for (int i = 0; i < p->n_items; i++) {
        const bool is_round = p->repeat.times && i >= p->repeat.first && i < p->repeat.end;
        const int64_t times = is_round ? p->repeat.times : 1;
        *items += times;
        *ops += times * p->block[p->item[i].block].n_ops;
    }
}

double ech_program_flops(const ech_program *p)
{
    double total = 0.0;
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int k = 0; k < b->n_ops; k++) {
            const ech_op_row *row = ech_op_row_get(b->op[k].kind);
            total += row->flops ? row->flops(&b->op[k]) * times_of(p, i) : 0.0;
        }
    }
    return total;
}
