#include "program/fingerprint.h"
#include "base/hash.h"

#include <string.h>

static void mix(uint64_t *h, uint64_t value)
{
    const uint64_t pair[2] = {*h, value};
    *h = ech_hash64(pair, sizeof pair);
}

static void mix_int(uint64_t *h, int64_t value)
{
    mix(h, (uint64_t)value);
}

static void mix_real(uint64_t *h, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    mix(h, bits);
}

static void mix_placement(uint64_t *h, const ech_placement *p)
{
    for (int a = 0; a < ECH_N_AXES; a++) {
        mix_int(h, p->over[a].kind);
        mix_int(h, p->over[a].kind == ECH_PLACE_SHARDED ? p->over[a].dim * 8 + (int)p->over[a].map
                                                        : 0);
    }
    mix_int(h, p->scale.loss_scale);
    mix_int(h, p->scale.per_token);
    mix_int(h, p->scale.aux);
    mix_real(h, p->scale.factor);
}

static void mix_operand(uint64_t *h, const ech_operand *a)
{
    mix_int(h, a->region);
    if (a->region == ECH_REGION_NONE)
        return;
    mix_int(h, a->context);
    mix_int(h, a->access);
    mix_int(h, a->dtype);
    mix(h, a->offset);
    mix_int(h, a->shift.axis);
    mix(h, a->shift.bytes);
    mix_int(h, a->rank);
    for (int d = 0; d < a->rank; d++) {
        mix_int(h, a->dim[d].bound);
        mix_int(h, a->dim[d].extent);
    }
    mix_placement(h, &a->place);
}

static void mix_expr(uint64_t *h, const ech_expr *e)
{
    mix_int(h, e->n);
    for (int i = 0; i < e->n; i++) {
        mix_int(h, e->node[i].op);
        mix_int(h, e->node[i].value);
    }
}

static void mix_op(uint64_t *h, const ech_op *op)
{
    mix_int(h, op->kind);
    mix_int(h, op->axis);
    mix_int(h, op->request);
    mix(h, op->work_offset);
    mix(h, op->work_bytes);
    for (int i = 0; i < op->n_args; i++)
        mix_operand(h, &op->arg[i]);
    for (int i = 0; i < ECH_MAX_ATTRS; i++)
        mix_expr(h, &op->attr[i]);
    for (int i = 0; i < ECH_MAX_REALS; i++)
        mix_real(h, op->real[i]);
}

static void mix_item(uint64_t *h, const ech_program *p, const ech_item *it)
{
    const ech_block *b = &p->block[it->block];
    mix_int(h, it->block);
    mix_int(h, it->layer);
    mix_int(h, it->chunk);
    mix_int(h, it->micro);
    mix_int(h, it->segment);
    mix_int(h, it->request);
    for (int r = 0; r < ECH_N_REGIONS; r++) {
        if (!b->region_bytes[r])
            continue;
        mix_int(h, it->bind[r].slot);
        mix(h, it->bind[r].offset);
    }
}

uint64_t ech_program_fingerprint(const ech_program *p)
{
    uint64_t h = 0;
    mix_int(&h, p->layout.world);
    for (int a = 0; a < ECH_N_AXES; a++)
        mix_int(&h, p->layout.degree[a]);
    for (int k = 0; k < 2; k++)
        mix_int(&h, p->layout.tied[k]);
    for (int i = 0; i < p->n_blocks; i++)
        for (int k = 0; k < p->block[i].n_ops; k++)
            mix_op(&h, &p->block[i].op[k]);
    for (int s = 0; s < p->n_slots; s++) {
        mix(&h, p->slot[s].bytes);
        mix(&h, p->slot[s].offset);
        mix_int(&h, p->slot[s].klass);
        mix_int(&h, p->slot[s].space);
        mix(&h, p->repeat.times ? p->slot[s].micro_bytes : 0);
        mix_int(&h, p->repeat.times ? p->slot[s].ring : 0);
    }
    mix_int(&h, p->repeat.times);
    mix_int(&h, p->repeat.times ? p->repeat.first : 0);
    mix_int(&h, p->repeat.times ? p->repeat.end : 0);
    mix_int(&h, p->repeat.times ? p->repeat.step : 0);
    for (int i = 0; i < p->n_items; i++)
        mix_item(&h, p, &p->item[i]);
    return h;
}
