#include "program/lives.h"
#include "program/interval.h"

#include <stdlib.h>

enum { NOBODY = -1 };

/* A life begins or ends: sorted by time, ends of an item after all its births. */
typedef struct border {
    int item;
    bool is_end;
    int slot;
} border;

static int cmp_border(const void *a, const void *b)
{
    const border *x = a;
    const border *y = b;
    if (x->item != y->item)
        return x->item < y->item ? -1 : 1;
    if (x->is_end != y->is_end)
        return x->is_end ? 1 : -1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static bool is_on_workspace(const ech_op *op, const ech_operand *a)
{
    return a->region == ECH_REGION_WORK && op->work_offset < a->offset + ech_operand_bytes(a) &&
           a->offset < op->work_offset + op->work_bytes;
}

/* Every operand and workspace of a block lies in its region, no operand on its op's workspace. */
static ech_status check_block(const ech_block *b, const ech_layout *l)
{
    for (int k = 0; k < b->n_ops; k++) {
        const ech_op *op = &b->op[k];
        for (int i = 0; i < op->n_args; i++) {
            const ech_operand *a = &op->arg[i];
            ECH_CHECK(!is_on_workspace(op, a), ECH_E_PROOF,
                      "block '%s', op %s, argument %d lies on the op's workspace", b->name,
                      ech_op_name(op->kind), i);
            ECH_CHECK(a->region == ECH_REGION_NONE ||
                          a->offset + ech_operand_span(a, l) <= b->region_bytes[a->region],
                      ECH_E_PROOF, "block '%s', op %s, argument %d leaves region %s of %zu bytes",
                      b->name, ech_op_name(op->kind), i, ech_region_name(a->region),
                      b->region_bytes[a->region]);
        }
        ECH_CHECK(op->work_offset + op->work_bytes <= b->region_bytes[ECH_REGION_WORK] ||
                      !op->work_bytes,
                  ECH_E_PROOF, "block '%s', op %s: its workspace leaves region work of %zu bytes",
                  b->name, ech_op_name(op->kind), b->region_bytes[ECH_REGION_WORK]);
    }
    return ECH_OK;
}

/* Every region lies in its slot, and is touched during the slot's life only. */
static ech_status check_touches(const ech_program *p)
{
    char where[128];
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        for (int r = 0; r < ECH_N_REGIONS; r++) {
            const ech_view v = it->bind[r];
            const int s = v.slot;
            const size_t bytes = p->block[it->block].region_bytes[r];
            if (!bytes)
                continue;
            ECH_CHECK(s >= 0 && s < p->n_slots && v.offset <= p->slot[s].bytes &&
                          bytes <= p->slot[s].bytes - v.offset,
                      ECH_E_PROOF, "%s: region %s of %zu bytes leaves its slot",
                      ech_item_describe(p, i, where, sizeof where), ech_region_name((ech_region)r),
                      bytes);
            if (s < p->n_state)
                continue;
            ECH_CHECK(i >= p->slot[s].first && i <= p->slot[s].last, ECH_E_PROOF,
                      "%s touches '%s' (region %s), whose life is from item %d to %d",
                      ech_item_describe(p, i, where, sizeof where), p->slot[s].name,
                      ech_region_name((ech_region)r), p->slot[s].first, p->slot[s].last);
        }
    }
    return ECH_OK;
}

/* The n segments of its space's map that are the slot's bytes. */
static ech_status cover(const ech_slot *s, ech_interval_map *map, ech_interval_at *at, int *n)
{
    static const int fresh[3] = {NOBODY, 0, 0};
    return ech_interval_cover(&map[s->space], s->offset, s->offset + s->bytes, fresh, at, n);
}

static ech_status take(const ech_program *p, ech_interval_map *map, int slot)
{
    ech_interval_at at;
    int n;
    const ech_slot *s = &p->slot[slot];
    ECH_TRY(cover(s, map, &at, &n));
    for (; n > 0; n--) {
        ech_bytes_segment *seg = ech_interval_next(&map[s->space], &at);
        int *owner = &seg->value[0];
        ECH_CHECK(*owner == NOBODY, ECH_E_PROOF,
                  "bytes %zu..%zu of the %s arena belong to slot %d ('%s') and slot %d ('%s') at "
                  "once",
                  seg->begin, seg->end, ech_space_name(s->space), *owner, p->slot[*owner].name,
                  slot, s->name);
        *owner = slot;
    }
    return ECH_OK;
}

static ech_status give(const ech_program *p, ech_interval_map *map, int slot)
{
    ech_interval_at at;
    int n;
    const ech_slot *s = &p->slot[slot];
    ECH_TRY(cover(s, map, &at, &n));
    for (; n > 0; n--)
        ech_interval_next(&map[s->space], &at)->value[0] = NOBODY;
    return ECH_OK;
}

static ech_status check_room(const ech_program *p)
{
    for (int i = 0; i < p->n_slots; i++) {
        const ech_slot *s = &p->slot[i];
        const size_t end =
            p->state_bytes[s->space] + (s->is_state ? 0 : p->transient_bytes[s->space]);
        if (!s->is_state && s->first < 0)
            continue;
        ECH_CHECK(s->offset % ECH_ALIGN == 0 && s->offset <= end && s->bytes <= end - s->offset,
                  ECH_E_PROOF, "slot %d ('%s') at %zu of %zu bytes leaves its arena of %zu", i,
                  s->name, s->offset, s->bytes, end);
    }
    return ECH_OK;
}

static ech_status check_overlaps(const ech_program *p, border *b, ech_interval_map *map)
{
    int n = 0;
    for (int s = 0; s < p->n_state; s++)
        ECH_TRY(take(p, map, s));
    for (int s = p->n_state; s < p->n_slots; s++) {
        if (p->slot[s].first < 0)
            continue;
        b[n++] = (border){p->slot[s].first, false, s};
        b[n++] = (border){p->slot[s].last, true, s};
    }
    qsort(b, (size_t)n, sizeof *b, cmp_border);
    for (int i = 0; i < n; i++)
        ECH_TRY(b[i].is_end ? give(p, map, b[i].slot) : take(p, map, b[i].slot));
    return ECH_OK;
}

ech_status ech_lives_check(const ech_program *p)
{
    ech_interval_map map[ECH_N_SPACES] = {0};
    border *b;
    for (int k = 0; k < p->n_blocks; k++)
        ECH_TRY(check_block(&p->block[k], &p->layout));
    ECH_TRY(check_touches(p));
    ECH_TRY(check_room(p));
    ECH_TRY(ech_calloc(2 * (size_t)p->n_slots, sizeof *b, &b));
    const ech_status st = check_overlaps(p, b, map);
    for (int s = 0; s < ECH_N_SPACES; s++)
        ech_interval_fini(&map[s]);
    free(b);
    return st;
}
