/* What the executor itself takes for an op: a program of the smallest ones. */
#include "base/checked.h"
#include "engine/engine.h"
#include "measure/bench_private.h"

#include <stdlib.h>

enum { ITEMS = 4096, ELEMS = 16 };

static ech_status build(const ech_bench *b, ech_program *p)
{
    const size_t caps[ECH_N_SPACES] = {0};
    const ech_bench_sizes sizes = {.flat = ELEMS};
    const ech_layout one = ech_layout_data_parallel(1);
    const ech_slot slot = {.name = "x",
                           .klass = ECH_CLASS_BUFFERS,
                           .is_state = true,
                           .bytes = ELEMS * ech_dtype_bytes(b->config.real)};
    ech_block block = {.name = "zero", .n_ops = 1};
    int s = 0;
    int id = 0;
    ech_program_init(p, "bench", &one);
    ECH_TRY(ech_program_add_slot(p, &slot, &s));
    ECH_TRY(ech_calloc(1, sizeof *block.op, &block.op));
    block.op[0] = ech_bench_op(ECH_OP_ZERO, &sizes, b->config.real);
    block.region_bytes[ECH_REGION_WORK] = slot.bytes;
    const ech_status added = ech_program_add_block(p, &block, &id);
    if (added < 0)
        free(block.op);
    ECH_TRY(added);
    for (int i = 0; i < ITEMS; i++) {
        ech_item item = ech_item_make(id, ECH_SEGMENT_ACCUMULATE);
        item.bind[ECH_REGION_WORK] = (ech_view){s, 0};
        ECH_TRY(ech_program_add_item(p, &item));
    }
    return ech_program_place(p, caps);
}

static ech_status time_program(const ech_bench *b, const ech_program *p, ech_comm *comm,
                               double *op_s)
{
    enum { TIMES = 9 };
    double took[TIMES];
    ech_engine *e = NULL;
    const ech_engine_config config = {.program = &p,
                                      .n_programs = 1,
                                      .comm = comm,
                                      .kernels = &b->table,
                                      .threads = b->config.threads};
    ech_status st = ech_engine_create(&config, &e);
    for (int i = 0; i < TIMES && st >= 0; i++) {
        ech_engine_times_reset(e);
        ech_engine_begin(e, 0, ECH_SEGMENT_ACCUMULATE);
        st = ech_engine_advance(e);
        const ech_engine_times t = ech_engine_times_get(e);
        took[i] = (t.total_s - t.kernels_s) / ITEMS;
    }
    if (st >= 0)
        *op_s = ech_bench_median(took, TIMES);
    ech_engine_destroy(&e);
    return st < 0 ? st : ECH_OK;
}

ech_status bench_time_executor(const ech_bench *b, double *op_s)
{
    const ech_layout one = ech_layout_data_parallel(1);
    ech_program p;
    ech_transport *alone = NULL;
    ech_comm *comm = NULL;
    ech_status st = build(b, &p);
    if (st >= 0)
        st = ech_transport_self(&alone);
    if (st >= 0)
        st = ech_comm_create(alone, &one, 1, &comm);
    if (st >= 0)
        st = time_program(b, &p, comm, op_s);
    ech_comm_destroy(&comm);
    if (alone)
        alone->destroy(alone);
    ech_program_fini(&p);
    return st;
}
