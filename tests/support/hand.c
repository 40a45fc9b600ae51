#include "hand.h"
#include "program/op_signature.h"
#include "tiny.h"

#include <stdio.h>

int hand_slot(ech_program *p, const char *name, bool is_state, int64_t elems, ech_placement place)
{
    int id;
    ech_slot s = {.klass = ECH_CLASS_BUFFERS,
                  .is_state = is_state,
                  .bytes = 8 * (size_t)elems,
                  .place = place};
    (void)snprintf(s.name, sizeof s.name, "%s", name);
    tiny_ok(ech_program_add_slot(p, &s, &id), "slot");
    return id;
}

ech_placement hand_partial(int dp, double factor)
{
    ech_placement p = ech_placement_invariant();
    if (dp > 1)
        p.over[ECH_AXIS_DP] = ech_place_of(ECH_PLACE_PARTIAL);
    p.scale.factor = factor;
    return p;
}

static ech_operand operand(const hand_arg *a, ech_region region, ech_access access)
{
    return (ech_operand){.region = a->slot < 0 ? ECH_REGION_NONE : region,
                         .access = access,
                         .dtype = ECH_F64,
                         .rank = 1,
                         .dim = {{a->elems, ECH_EXTENT_BOUND}},
                         .place = a->place};
}

int hand_add(ech_program *p, hand_op o, int n_args, const hand_arg *arg)
{
    static const ech_region region[] = {ECH_REGION_IN, ECH_REGION_OUT, ECH_REGION_DIN,
                                        ECH_REGION_DOUT, ECH_REGION_CACHE};
    const ech_signature sig = ech_signature_read(o.kind);
    const ech_op_row *row = ech_op_row_get(o.kind);
    ech_block b = {.role = ECH_ROLE_TRANSFER};
    ech_op *op = NULL;
    int id;
    tiny_ok(ech_grow(&b.op, 0, &b.capacity, sizeof *b.op), "block");
    op = b.op;
    *op = (ech_op){.kind = o.kind, .n_args = n_args, .real = {o.real}, .axis = ECH_AXIS_DP};
    b.n_ops = 1;
    (void)snprintf(b.name, sizeof b.name, "hand-written %s", ech_op_name(o.kind));
    ech_item item = ech_item_make(0, o.segment);
    for (int i = 0; i < n_args; i++) {
        op->arg[i] = operand(&arg[i], region[i], sig.arg[i].access);
        if (arg[i].slot < 0)
            continue;
        b.region_bytes[region[i]] = ech_operand_bytes(&op->arg[i]);
        item.bind[region[i]] = (ech_view){arg[i].slot, 8 * (size_t)arg[i].first};
    }
    ECH_ASSERT(!row->work_bytes);
    tiny_ok(ech_program_add_block(p, &b, &id), "block");
    item.block = id;
    item.request = o.request;
    tiny_ok(ech_program_add_item(p, &item), "item");
    return p->n_items - 1;
}

void hand_start(const ech_program *p, bool poison, hand_run *out)
{
    *out = (hand_run){.n = p->layout.world, .program = {p}};
    tiny_ok(ech_kernel_table_make(NULL, ECH_F64, &out->kernels), "kernels");
    tiny_ok(ech_transport_inproc(out->n, out->transport), "inproc");
    for (int r = 0; r < out->n; r++) {
        tiny_ok(ech_comm_create(out->transport[r], &p->layout, p->n_requests + 1, &out->comm[r]),
                "communicator");
        const ech_engine_config c = {.program = out->program,
                                     .n_programs = 1,
                                     .comm = out->comm[r],
                                     .kernels = &out->kernels,
                                     .rank = r,
                                     .threads = 1,
                                     .poison = poison};
        tiny_ok(ech_engine_create(&c, &out->engine[r]), "engine");
    }
}

void hand_stop(hand_run *run)
{
    for (int r = 0; r < run->n; r++) {
        ech_engine_destroy(&run->engine[r]);
        ech_comm_destroy(&run->comm[r]);
        run->transport[r]->destroy(run->transport[r]);
    }
}
