/* The op table: one row per kind.  Signatures are explained at ech_op_row (op.h). */
#include "program/op.h"

/* Regions of parts follow one another (layout/shard.h). */
_Static_assert(ECH_REGION_PARAM_TIED == ECH_REGION_PARAM + 3 &&
                   ECH_REGION_GRAD_TIED == ECH_REGION_GRAD + 3 &&
                   ECH_REGION_MOMENT_TIED == ECH_REGION_MOMENT + 3,
               "regions of parts");

static int64_t dim(const ech_op *op, int arg, int d)
{
    return op->arg[arg].dim[d].bound;
}

static double flops_linear(const ech_op *op) /* linear: x [N,I], w [O,I] */
{
    return 2.0 * (double)dim(op, 0, 0) * (double)dim(op, 1, 0) * (double)dim(op, 1, 1);
}

static double flops_wgrad(const ech_op *op) /* x [N,I], dy [N,O] */
{
    return 2.0 * (double)dim(op, 0, 0) * (double)dim(op, 0, 1) * (double)dim(op, 1, 1);
}

/* Causal attention visits s(s+1)/2 of the s*s pairs; two products of D each (forward). */
static double flops_attention(const ech_op *op)
{
    const double n = (double)dim(op, 0, 0);
    const double s = (double)op->attr[0].node[0].value;
    const double heads = (double)(dim(op, 0, 1) * (dim(op, 0, 2) - 2));
    return n * (s + 1.0) / 2.0 * heads * (double)dim(op, 0, 3) * 4.0;
}

static double flops_attention_backward(const ech_op *op)
{
    return 2.5 * flops_attention(op); /* five products: scores again, dP, dV, dQ, dK */
}

static double flops_attention_cached(const ech_op *op) /* worst case: a full cache */
{
    const double heads = (double)(dim(op, 0, 1) * (dim(op, 0, 2) - 2));
    return 4.0 * (double)dim(op, 0, 0) * (double)dim(op, 1, 0) * heads * (double)dim(op, 0, 3);
}

/* Column sums are made in ECH_ROW_BLOCKS partial rows, so that their order does not depend on the
 * number of threads. */
static size_t rows_of(const ech_op *op, int arg, int d, int vectors)
{
    return (size_t)ECH_ROW_BLOCKS * (size_t)vectors * (size_t)dim(op, arg, d) *
           ech_dtype_bytes(op->arg[arg].dtype);
}

static size_t work_layernorm_backward(const ech_op *op)
{
    return rows_of(op, 1, 0, 2);
}

static size_t work_rmsnorm_backward(const ech_op *op)
{
    return rows_of(op, 1, 0, 1);
}

static size_t work_qk_norm_backward(const ech_op *op)
{
    return rows_of(op, 1, 0, 2);
}

static size_t work_xent(const ech_op *op) /* one fp64 loss per row */
{
    return (size_t)dim(op, 0, 2) * 8;
}

#define ROW(kind, sig, sum, ...) [kind] = {.signature = sig, .summed = sum, __VA_ARGS__}

static const ech_op_row rows[ECH_N_OPS] = {
    ROW(ECH_OP_ZERO, ">~", "", .types = "a"),
    ROW(ECH_OP_COPY, "*~,>~", "", .types = "aa"),
    ROW(ECH_OP_SCALE, "=*~", ""),
    ROW(ECH_OP_ADD, "*~,&~,>~", ""),
    ROW(ECH_OP_EMBED, "n,vh,>nh", "v", .types = "irr"),
    ROW(ECH_OP_EMBED_BACKWARD, "n,*nh,+vh", "n", .types = "irr", .picked = 'v'),
    ROW(ECH_OP_POSITIONS, "=*nh,&ph,?.", "", .types = "rrl"),
    ROW(ECH_OP_POSITIONS_BACKWARD, "*nh,+ph", "n"),
    ROW(ECH_OP_BIAS, "=*nh,&h", ""),
    ROW(ECH_OP_BIAS_BACKWARD, "*nh,+h", "n"),
    ROW(ECH_OP_LAYERNORM, "nh,h,h,>nh,>n,>n", ""),
    ROW(ECH_OP_LAYERNORM_BACKWARD, "nh,h,n,n,*nh,?&nh,>nh,+h,+h", "n",
        .work_bytes = work_layernorm_backward),
    ROW(ECH_OP_RMSNORM, "nh,h,>nh,>n", ""),
    ROW(ECH_OP_RMSNORM_BACKWARD, "nh,h,n,*nh,?&nh,>nh,+h", "n",
        .work_bytes = work_rmsnorm_backward),
    ROW(ECH_OP_LINEAR, "*ni,oi,?&o,>no", "i", .flops = flops_linear),
    ROW(ECH_OP_LINEAR_DGRAD, "*no,oi,>ni", "o", .flops = flops_linear),
    ROW(ECH_OP_LINEAR_WGRAD, "ni,*no,+oi,?+o", "n", .flops = flops_wgrad),
    ROW(ECH_OP_QK_NORM, "ngqd,d,d,>ngqd,>ngk", ""),
    ROW(ECH_OP_QK_NORM_BACKWARD, "ngqd,d,d,ngk,=*ngqd,+d,+d", "ng",
        .work_bytes = work_qk_norm_backward),
    ROW(ECH_OP_ROPE, "=*ngqd,tfx,?.", "", .types = "rdl", .whole_sequences = true),
    ROW(ECH_OP_ATTENTION, "ngqd,>nge,>ngr", "", .whole_sequences = true, .flops = flops_attention),
    ROW(ECH_OP_ATTENTION_BACKWARD, "ngqd,nge,ngr,*nge,>ngqd", "", .whole_sequences = true,
        .flops = flops_attention_backward),
    ROW(ECH_OP_ATTENTION_CACHED, "ngqd,=tgd,=tgd,.,>nge", "", .types = "rrrlr",
        .whole_sequences = true, .flops = flops_attention_cached),
    ROW(ECH_OP_SWIGLU, "nxf,>nf", ""),
    ROW(ECH_OP_SWIGLU_BACKWARD, "nxf,*nf,>nxf", ""),
    ROW(ECH_OP_GELU, "nf,>nf", ""),
    ROW(ECH_OP_GELU_BACKWARD, "nf,*nf,>nf", ""),
    ROW(ECH_OP_DROPOUT, "*nh,?&nh,>nh", ""),
    ROW(ECH_OP_XENT_SHARD, "nv,n,>wmn", "", .types = "rid", .dealt = "vw"),
    ROW(ECH_OP_XENT, "wmn,n,>n,+.", "n", .types = "dird", .work_bytes = work_xent),
    ROW(ECH_OP_XENT_BACKWARD, "=nv,n,n,*.", "", .types = "rird"),
    ROW(ECH_OP_COUNT_TOKENS, "n,>.", "n", .types = "il"),
    ROW(ECH_OP_LOSS_SEED, ".,.,>.", "", .types = "ldd"),
    ROW(ECH_OP_SUM_CELLS, "*m,>.", "m", .types = "dd"),
    ROW(ECH_OP_KV_FOLD, "*gqe,>gme", ""),
    ROW(ECH_OP_KV_SPREAD, "*gme,=gqe", ""),
    ROW(ECH_OP_SUMSQ, "~,+b,?+b", "~", .types = "rll"),
    ROW(ECH_OP_CLIP, "b,?b,?b,.,>.,>.", "", .types = "lllddd"),
    ROW(ECH_OP_ADAMW, "=~,~,=~,=~,.,.,.", "", .types = "rrrrddl"),
    ROW(ECH_OP_SGD, "=~,~,.,.", "", .types = "rrdd"),
    ROW(ECH_OP_ALL_REDUCE_START, "=~,>s", "", .types = "aa", .is_start = true),
    ROW(ECH_OP_ALL_REDUCE_WAIT, "=~,>s", "", .types = "aa", .is_wait = true),
    ROW(ECH_OP_REDUCE_SCATTER_START, "f,>p,>s", "", .types = "aaa", .is_start = true),
    ROW(ECH_OP_REDUCE_SCATTER_WAIT, "f,>p,>s", "", .types = "aaa", .is_wait = true),
    ROW(ECH_OP_ALL_GATHER_START, "p,>f", "", .types = "aa", .is_start = true),
    ROW(ECH_OP_ALL_GATHER_WAIT, "p,>f", "", .types = "aa", .is_wait = true),
    ROW(ECH_OP_SUM_SMALL_START, "~,>s,>~", "", .types = "aaa", .is_start = true),
    ROW(ECH_OP_SUM_SMALL_WAIT, "~,>s,>~", "", .types = "aaa", .is_wait = true),
    ROW(ECH_OP_SEND_START, "~", "", .types = "a", .is_start = true),
    ROW(ECH_OP_RECV_START, ">~", "", .types = "a", .is_start = true),
    ROW(ECH_OP_SEND_WAIT, "~", "", .types = "a", .is_wait = true),
    ROW(ECH_OP_RECV_WAIT, ">~", "", .types = "a", .is_wait = true),
};

static const char *const op_names[] = {
#define ECH_OP_NAME(kind, text) [kind] = text,
    ECH_OP_LIST(ECH_OP_NAME)
#undef ECH_OP_NAME
};

static const char *const region_names[] = {
#define ECH_REGION_NAME(region, text) [region] = text,
    ECH_REGION_LIST(ECH_REGION_NAME)
#undef ECH_REGION_NAME
};

const ech_op_row *ech_op_row_get(ech_op_kind kind)
{
    ECH_ASSERT((unsigned)kind < ECH_N_OPS);
    return &rows[kind];
}

const char *ech_op_name(ech_op_kind kind)
{
    return (unsigned)kind < ECH_N_OPS ? op_names[kind] : "no op";
}

const char *ech_region_name(ech_region region)
{
    return (unsigned)region < ECH_N_REGIONS ? region_names[region] : "no region";
}

typedef struct cell_row {
    const char *name;
    ech_dtype dtype;
    ech_cell_writer writer;
    ech_cell_reader reader;
} cell_row;

static const cell_row cells[] = {
#define ECH_CELL_ROW(name, type, writer, reader)                                                   \
    [name] = {&#name[sizeof "ECH_CELL_" - 1], (type)[0] == 'i' ? ECH_I64 : ECH_F64, writer, reader},
    ECH_CELL_LIST(ECH_CELL_ROW)
#undef ECH_CELL_ROW
};

const char *ech_cell_name(ech_cell cell)
{
    return (unsigned)cell < ECH_N_CELLS ? cells[cell].name : "no cell";
}

ech_dtype ech_cell_dtype(ech_cell cell)
{
    return cells[cell].dtype;
}

ech_cell_writer ech_cell_writer_of(ech_cell cell)
{
    return cells[cell].writer;
}

ech_cell_reader ech_cell_reader_of(ech_cell cell)
{
    return cells[cell].reader;
}

bool ech_op_is_comm(ech_op_kind kind)
{
    return rows[kind].is_start || rows[kind].is_wait;
}

int ech_operand_extent(const ech_operand *a)
{
    return a->region == ECH_REGION_NONE || a->rank == 0 ? ECH_EXTENT_BOUND : a->dim[0].extent;
}

int64_t ech_operand_elems(const ech_operand *a)
{
    int64_t n = 1;
    for (int d = 0; d < a->rank; d++)
        n *= a->dim[d].bound;
    return n;
}

size_t ech_operand_bytes(const ech_operand *a)
{
    return (size_t)ech_operand_elems(a) * ech_dtype_bytes(a->dtype);
}

size_t ech_operand_span(const ech_operand *a, const ech_layout *l)
{
    const size_t steps = (size_t)l->degree[a->shift.axis] - 1;
    return steps * a->shift.bytes + ech_operand_bytes(a);
}
