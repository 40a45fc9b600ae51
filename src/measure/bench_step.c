#include "measure/bench_step.h"
#include "base/clock.h"

#include <math.h>

/* The kind that an op's time is counted with. */
static ech_op_kind counted_as(ech_op_kind kind)
{
    switch (kind) {
    case ECH_OP_ALL_REDUCE_WAIT:
        return ECH_OP_ALL_REDUCE_START;
    case ECH_OP_REDUCE_SCATTER_WAIT:
        return ECH_OP_REDUCE_SCATTER_START;
    case ECH_OP_ALL_GATHER_WAIT:
        return ECH_OP_ALL_GATHER_START;
    case ECH_OP_SUM_SMALL_WAIT:
        return ECH_OP_SUM_SMALL_START;
    case ECH_OP_RECV_START:
    case ECH_OP_SEND_WAIT:
    case ECH_OP_RECV_WAIT:
        return ECH_OP_SEND_START;
    default:
        return kind;
    }
}

static ech_status run_op(ech_engine *e, int item, int op, double deadline_s)
{
    int64_t seen = -1;
    int idle = 0;
    double since = 0.0;
    for (;;) {
        char where[256];
        const ech_status st = ech_engine_run_op(e, item, op, -1);
        if (st != ECH_BLOCKED)
            return st < 0 ? st : ECH_OK;
        const bool moved = ech_engine_activity(e) != seen;
        seen = ech_engine_activity(e);
        since = moved ? ech_clock_s() : since;
        idle = moved ? 0 : idle + 1;
        ECH_CHECK(deadline_s <= 0.0 || ech_clock_s() - since < deadline_s, ECH_E_TIMEOUT,
                  "no message for %.0f s: %s", deadline_s,
                  ech_engine_describe(e, where, sizeof where));
        ech_clock_backoff(idle);
    }
}

static double predict(const ech_costs *costs, const ech_program *p, const ech_item *it,
                      const ech_op *op, int rank)
{
    const ech_op_row *row = ech_op_row_get(op->kind);
    if (!costs)
        return NAN;
    if (row->is_start)
        return costs->comm_s(costs->user, &p->layout, op, rank);
    return row->is_wait ? 0.0 : costs->kernel_s(costs->user, p, it, op);
}

ech_status ech_bench_step(ech_engine *e, const ech_program *p, const ech_costs *costs, int rank,
                          double deadline_s, ech_step_times *out)
{
    *out = (ech_step_times){0};
    const double begin = ech_clock_s();
    double now = begin;
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        const ech_block *b = &p->block[it->block];
        if (i == 0 || it->segment != p->item[i - 1].segment)
            ech_engine_begin(e, 0, it->segment);
        for (int o = 0; o < b->n_ops; o++) {
            const double before = now;
            const double cpu_before = ech_clock_cpu_s();
            ech_kind_times *t = &out->kind[counted_as(b->op[o].kind)];
            ECH_TRY(run_op(e, i, o, deadline_s));
            now = ech_clock_s();
            t->ops++;
            t->measured_s += now - before;
            t->cpu_s += ech_clock_cpu_s() - cpu_before;
            t->predicted_s += predict(costs, p, it, &b->op[o], rank);
        }
    }
    out->step_s = now - begin;
    return ECH_OK;
}
