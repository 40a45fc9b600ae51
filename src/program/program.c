/* Building and reading step programs. */
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const class_names[] = {
#define ECH_CLASS_NAME(klass, text) [klass] = text,
    ECH_CLASS_LIST(ECH_CLASS_NAME)
#undef ECH_CLASS_NAME
};
static const char *const space_names[] = {
#define ECH_SPACE_NAME(space, text) [space] = text,
    ECH_SPACE_LIST(ECH_SPACE_NAME)
#undef ECH_SPACE_NAME
};
static const char *const border_names[] = {
#define ECH_BORDER_NAME(border, text) [border] = text,
    ECH_BORDER_LIST(ECH_BORDER_NAME)
#undef ECH_BORDER_NAME
};

const char *ech_class_name(ech_class c)
{
    return class_names[c];
}

const char *ech_space_name(ech_space s)
{
    return space_names[s];
}

const char *ech_segment_name(ech_segment s)
{
    static const char *const names[] = {"accumulate", "reduce", "commit"};
    return names[s];
}

const char *ech_border_name(ech_border b)
{
    return border_names[b];
}

void ech_program_init(ech_program *p, const char *name, const ech_layout *l)
{
    *p = (ech_program){.layout = *l,
                       .scalars = -1,
                       .before = ECH_BORDER_WEIGHTS_WHOLE,
                       .after = ECH_BORDER_WEIGHTS_WHOLE};
    (void)snprintf(p->name, sizeof p->name, "%s", name);
}

void ech_program_fini(ech_program *p)
{
    for (int i = 0; i < p->n_blocks; i++)
        free(p->block[i].op);
    free(p->block);
    free(p->slot);
    free(p->item);
    *p = (ech_program){0};
}

ech_status ech_program_add_slot(ech_program *p, const ech_slot *slot, int *id)
{
    ECH_CHECK(!slot->is_state || p->n_state == p->n_slots, ECH_E_ILLEGAL,
              "state slot '%s' comes after a transient one", slot->name);
    ECH_TRY(ech_grow(&p->slot, (size_t)p->n_slots, &p->slot_capacity, sizeof *p->slot));
    p->slot[p->n_slots] = *slot;
    p->slot[p->n_slots].first = p->slot[p->n_slots].last = -1;
    *id = p->n_slots++;
    if (slot->is_state)
        p->n_state++;
    return ECH_OK;
}

ech_status ech_program_add_block(ech_program *p, ech_block *block, int *id)
{
    for (int i = 0; i < block->n_ops; i++)
        ECH_TRY(ech_op_check_shape(&block->op[i]));
    ECH_TRY(ech_grow(&p->block, (size_t)p->n_blocks, &p->block_capacity, sizeof *p->block));
    p->block[p->n_blocks] = *block;
    *block = (ech_block){0};
    *id = p->n_blocks++;
    return ECH_OK;
}

ech_item ech_item_make(int block, ech_segment segment)
{
    ech_item it = {.block = block, .layer = -1, .micro = -1, .segment = segment, .request = -1};
    for (int r = 0; r < ECH_N_REGIONS; r++)
        it.bind[r].slot = -1;
    return it;
}

/* A region that the last item's block uses is bound to a view that has room for it. */
static ech_status check_bound(const ech_program *p, ech_region r)
{
    char where[128];
    const ech_item *it = &p->item[p->n_items];
    const ech_view v = it->bind[r];
    const size_t bytes = p->block[it->block].region_bytes[r];
    ECH_CHECK(v.slot >= 0 && v.slot < p->n_slots, ECH_E_PROOF, "%s: region %s is not bound",
              ech_item_describe(p, p->n_items, where, sizeof where), ech_region_name(r));
    ECH_CHECK(v.offset <= p->slot[v.slot].bytes && bytes <= p->slot[v.slot].bytes - v.offset,
              ECH_E_PROOF, "%s: region %s needs %zu bytes, slot '%s' has %zu at offset %zu",
              ech_item_describe(p, p->n_items, where, sizeof where), ech_region_name(r), bytes,
              p->slot[v.slot].name, p->slot[v.slot].bytes, v.offset);
    return ECH_OK;
}

ech_status ech_program_add_item(ech_program *p, const ech_item *item)
{
    ECH_ASSERT(item->block >= 0 && item->block < p->n_blocks);
    ECH_TRY(ech_grow(&p->item, (size_t)p->n_items, &p->item_capacity, sizeof *p->item));
    p->item[p->n_items] = *item;
    const ech_block *b = &p->block[item->block];
    for (int r = 0; r < ECH_N_REGIONS; r++)
        if (b->region_bytes[r])
            ECH_TRY(check_bound(p, (ech_region)r));
    for (int k = 0; k < b->n_ops && item->request >= 0; k++)
        if (item->request + b->op[k].request >= p->n_requests)
            p->n_requests = item->request + b->op[k].request + 1;
    p->n_items++;
    return ECH_OK;
}

ech_extent ech_item_extent(const ech_program *p, const ech_item *item, const ech_operand *a)
{
    if (a->region == ECH_REGION_NONE)
        return (ech_extent){-1, 0, 0};
    const ech_view v = item->bind[a->region];
    const size_t begin = v.offset + a->offset;
    return (ech_extent){v.slot, begin, begin + ech_operand_span(a, &p->layout)};
}

ech_extent ech_item_extent_cell(const ech_program *p, const ech_operand *a)
{
    const int cell = ech_operand_extent(a);
    if (cell == ECH_EXTENT_BOUND)
        return (ech_extent){-1, 0, 0};
    return (ech_extent){p->scalars, 8 * (size_t)cell, 8 * (size_t)cell + 8};
}

ech_extent ech_item_work(const ech_program *p, const ech_item *item, const ech_op *op)
{
    (void)p;
    if (!op->work_bytes)
        return (ech_extent){-1, 0, 0};
    const ech_view v = item->bind[ECH_REGION_WORK];
    return (ech_extent){v.slot, v.offset + op->work_offset,
                        v.offset + op->work_offset + op->work_bytes};
}

const char *ech_item_describe(const ech_program *p, int item, char *buf, size_t n)
{
    const ech_item *it = &p->item[item];
    char layer[24] = "";
    char micro[32] = "";
    if (it->layer >= 0)
        (void)snprintf(layer, sizeof layer, ", layer %d", it->layer);
    if (it->micro >= 0)
        (void)snprintf(micro, sizeof micro, ", micro-batch %d", it->micro);
    (void)snprintf(buf, n, "item %d (%s%s%s)", item, p->block[it->block].name, layer, micro);
    return buf;
}

ech_status ech_program_chain(const ech_program *prev, const ech_program *next)
{
    ECH_CHECK(prev->after == next->before, ECH_E_PROOF,
              "program '%s' leaves %s, program '%s' wants %s", prev->name,
              ech_border_name(prev->after), next->name, ech_border_name(next->before));
    ECH_CHECK(prev->n_state == next->n_state, ECH_E_PROOF,
              "programs '%s' and '%s' do not share their state slots", prev->name, next->name);
    for (int i = 0; i < prev->n_state; i++) {
        const ech_slot *a = &prev->slot[i];
        const ech_slot *b = &next->slot[i];
        ECH_CHECK(a->space == b->space && a->bytes == b->bytes && a->offset == b->offset,
                  ECH_E_PROOF, "state slot '%s' lies differently in programs '%s' and '%s'",
                  a->name, prev->name, next->name);
        ECH_CHECK(a->klass == b->klass, ECH_E_PROOF,
                  "state slot '%s' is %s in program '%s', %s in '%s'", a->name,
                  ech_class_name(a->klass), prev->name, ech_class_name(b->klass), next->name);
        ECH_CHECK(ech_placement_is_equal(&a->place, &b->place), ECH_E_PROOF,
                  "state slot '%s' is placed differently in programs '%s' and '%s'", a->name,
                  prev->name, next->name);
    }
    return ECH_OK;
}
