/* What communication ops send: one formula for prediction, pricing and staging sizes. */
#include "program/op.h"

int64_t ech_reduce_chunk_elems(int64_t n_elems, int n)
{
    const int64_t part = ech_ceil_div(n_elems, n);
    return part < ECH_REDUCE_CHUNK_ELEMS ? part : ECH_REDUCE_CHUNK_ELEMS;
}

int64_t ech_reduce_staging_elems(int64_t n_elems, int n)
{
    return ECH_REDUCE_ROUNDS * (int64_t)n * ech_reduce_chunk_elems(n_elems, n);
}

static int64_t arg_bytes(const ech_op *op, int arg)
{
    return (int64_t)ech_operand_bytes(&op->arg[arg]);
}

ech_traffic ech_op_traffic(const ech_op *op, int n, int index)
{
    const int64_t elems = ech_operand_elems(&op->arg[0]);
    const int64_t bytes = arg_bytes(op, 0);
    const ech_range mine = ech_split(elems, n, index);
    const int64_t part = elems ? bytes / elems * (mine.end - mine.begin) : 0;
    switch (op->kind) {
    case ECH_OP_ALL_REDUCE_START: /* others' parts out, then my part to the others */
        return (ech_traffic){bytes, n > 1 ? bytes - part + part * (n - 1) : 0};
    case ECH_OP_REDUCE_SCATTER_START: /* others' shares out */
        return (ech_traffic){bytes, n > 1 ? bytes - arg_bytes(op, 1) : 0};
    case ECH_OP_ALL_GATHER_START: /* my share to the others */
        return (ech_traffic){arg_bytes(op, 1), bytes * (n - 1)};
    case ECH_OP_SUM_SMALL_START:
        return (ech_traffic){bytes, bytes * (n - 1)};
    case ECH_OP_SEND_START:
        return (ech_traffic){bytes, bytes};
    default:
        return (ech_traffic){0, 0};
    }
}
