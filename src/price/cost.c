/* Grids of measured seconds and what they say of an op (cost.h). */
#include "price/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- what a kind's time depends on --- */

static bool is_gemm(ech_op_kind kind)
{
    return kind == ECH_OP_LINEAR || kind == ECH_OP_LINEAR_DGRAD || kind == ECH_OP_LINEAR_WGRAD;
}

static bool is_attention(ech_op_kind kind)
{
    return kind == ECH_OP_ATTENTION || kind == ECH_OP_ATTENTION_BACKWARD;
}

int ech_grid_axes_of(ech_op_kind kind, const char *name[ECH_GRID_AXES])
{
    if (is_gemm(kind)) {
        name[0] = "rows";
        name[1] = "inputs";
        name[2] = "outputs";
        return 3;
    }
    if (is_attention(kind)) {
        name[0] = "seq";
        name[1] = "head_dim";
        return 2;
    }
    /* both ends of a message are one cost: the sender's kind has it */
    if (ech_op_row_get(kind)->is_wait || kind == ECH_OP_RECV_START)
        return 0;
    name[0] = "bytes";
    return 1;
}

static double dim(const ech_op *op, int arg, int d)
{
    return (double)op->arg[arg].dim[d].bound;
}

static void gemm_coordinates(const ech_op *op, double at[ECH_GRID_AXES])
{
    const bool is_wgrad = op->kind == ECH_OP_LINEAR_WGRAD; /* x [N,I], dy [N,O]; else w [O,I] */
    at[0] = dim(op, 0, 0);
    at[1] = is_wgrad ? dim(op, 0, 1) : dim(op, 1, 1);
    at[2] = is_wgrad ? dim(op, 1, 1) : dim(op, 1, 0);
}

/* Share of a causal row's pairs that a window leaves: w of each token after the first w. */
static double window_share(double seq, double window)
{
    if (window <= 0 || window >= seq)
        return 1.0;
    return (window * (window + 1) / 2 + (seq - window) * window) / (seq * (seq + 1) / 2);
}

/* qkv [N, g, r + 2, D] */
static double attention_coordinates(const ech_op *op, double at[ECH_GRID_AXES])
{
    const double seq = (double)op->attr[0].node[0].value;
    const double heads = dim(op, 0, 1) * (dim(op, 0, 2) - 2);
    at[0] = seq;
    at[1] = dim(op, 0, 3);
    return heads * dim(op, 0, 0) * window_share(seq, (double)op->attr[1].node[0].value);
}

static double message_bytes(const ech_op *op, int group)
{
    const double bytes = (double)ech_operand_bytes(&op->arg[0]);
    const bool deals_out =
        op->kind == ECH_OP_ALL_REDUCE_START || op->kind == ECH_OP_REDUCE_SCATTER_START;
    return deals_out ? bytes / group : bytes;
}

/* What is read and written: of a table of which some rows are taken, as much as those. */
static double kernel_bytes(const ech_op *op)
{
    double sum = 0;
    for (int i = 0; i < op->n_args; i++) {
        const ech_operand *a = &op->arg[i];
        if (a->region == ECH_REGION_NONE)
            continue;
        const int touches = a->access == ECH_READ_WRITE ? 2 : 1;
        sum += touches * (double)ech_operand_bytes(a);
    }
    if (op->kind == ECH_OP_EMBED)
        sum += (double)ech_operand_bytes(&op->arg[2]) - (double)ech_operand_bytes(&op->arg[1]);
    if (op->kind == ECH_OP_EMBED_BACKWARD)
        sum +=
            2 * ((double)ech_operand_bytes(&op->arg[1]) - (double)ech_operand_bytes(&op->arg[2]));
    return sum;
}

double ech_op_coordinates(const ech_op *op, int group, double at[ECH_GRID_AXES])
{
    const bool is_p2p = op->kind == ECH_OP_SEND_START || op->kind == ECH_OP_RECV_START;
    if (is_attention(op->kind))
        return attention_coordinates(op, at);
    if (is_gemm(op->kind))
        gemm_coordinates(op, at);
    else if (ech_op_row_get(op->kind)->is_start)
        at[0] = message_bytes(op, group);
    else
        at[0] = kernel_bytes(op);
    return ech_op_row_get(op->kind)->is_start && !is_p2p ? group - 1 : 1.0;
}

/* --- between points --- */

/* Where x lies on an axis: after point *i by the share *part of the way to the next (0: on it).
 * Returns what seconds are to be multiplied by, beyond the last point. */
static double find_place(const double *at, int n, double x, int *i, double *part)
{
    *part = 0.0;
    *i = 0;
    if (x <= at[0])
        return 1.0;
    while (*i + 1 < n && at[*i + 1] <= x)
        (*i)++;
    if (*i + 1 == n)
        return x / at[n - 1];
    *part = log(x / at[*i]) / log(at[*i + 1] / at[*i]);
    return 1.0;
}

typedef struct place {
    int i[ECH_GRID_AXES];
    double part[ECH_GRID_AXES];
} place;

static double between(const ech_grid *g, const place *p, int axis, int index)
{
    if (axis == g->n_axes)
        return g->seconds[index];
    index = index * g->n[axis] + p->i[axis];
    const double low = between(g, p, axis + 1, index);
    if (p->part[axis] <= 0.0)
        return low;
    return low * pow(between(g, p, axis + 1, index + 1) / low, p->part[axis]);
}

double ech_grid_seconds(const ech_grid *g, const double *at)
{
    place p;
    double factor = 1.0;
    ECH_ASSERT(g->n_axes >= 1);
    for (int a = 0; a < g->n_axes; a++)
        factor *= find_place(g->at[a], g->n[a], at[a], &p.i[a], &p.part[a]);
    return factor * between(g, &p, 0, 0);
}

/* --- costs --- */

void ech_calibration_init(ech_calibration *out)
{
    memset(out, 0, sizeof *out);
    out->real = ECH_F32;
    out->op_s = out->comm_busy = out->memory_bytes = out->in_step = NAN;
}

static const ech_grid *grid_of(const ech_calibration *c, ech_op_kind kind)
{
    return &c->cost[kind == ECH_OP_RECV_START ? ECH_OP_SEND_START : kind];
}

static double kernel_s(void *user, const ech_program *p, const ech_item *item, const ech_op *op)
{
    const ech_calibration *c = user;
    double at[ECH_GRID_AXES];
    (void)p, (void)item;
    const double pieces = ech_op_coordinates(op, 1, at);
    const double alone_s = pieces * ech_grid_seconds(grid_of(c, op->kind), at) + c->op_s;
    return isfinite(c->in_step) ? alone_s * c->in_step : alone_s;
}

static double comm_s(void *user, const ech_layout *l, const ech_op *op, int rank)
{
    const ech_calibration *c = user;
    const int group = l->degree[op->axis];
    double at[ECH_GRID_AXES];
    (void)rank;
    if (group == 1)
        return 0.0;
    const double pieces = ech_op_coordinates(op, group, at);
    return pieces * ech_grid_seconds(grid_of(c, op->kind), at);
}

ech_costs ech_calibration_costs(const ech_calibration *c)
{
    /* the callbacks only read it */
    return (ech_costs){.user = (void *)(uintptr_t)c,
                       .kernel_s = kernel_s,
                       .comm_s = comm_s,
                       .busy = isfinite(c->comm_busy) ? c->comm_busy : 0.0};
}

/* --- is it enough --- */

/* The part of `echelon bench` that measures a kind. */
static const char *bench_of(ech_op_kind kind)
{
    return is_gemm(kind)                    ? "gemm"
           : is_attention(kind)             ? "attention"
           : ech_op_row_get(kind)->is_start ? "comm"
                                            : "memory";
}

static ech_status check_op(const ech_calibration *c, const ech_layout *l, const ech_op *op)
{
    const ech_op_row *row = ech_op_row_get(op->kind);
    if (row->is_wait || (row->is_start && l->degree[op->axis] == 1))
        return ECH_OK;
    ECH_CHECK(grid_of(c, op->kind)->n_axes > 0, ECH_E_CONFIG,
              "cost.%s: not measured, and the program has such ops; 'echelon bench %s --save' "
              "measures it",
              ech_op_name(op->kind), bench_of(op->kind));
    return ECH_OK;
}

static ech_status check_program(const ech_calibration *c, const ech_program *p)
{
    for (int b = 0; b < p->n_blocks; b++)
        for (int i = 0; i < p->block[b].n_ops; i++)
            ECH_TRY(check_op(c, &p->layout, &p->block[b].op[i]));
    return ECH_OK;
}

ech_status ech_calibration_check(const ech_calibration *c, const ech_cost_query *query)
{
    ECH_CHECK(c->real == query->real, ECH_E_CONFIG,
              "dtype: measured in %s, the run computes in %s; 'echelon bench' with --dtype %s",
              ech_dtype_name(c->real), ech_dtype_name(query->real), ech_dtype_name(query->real));
    ECH_CHECK(query->threads == 0 || query->threads == c->threads, ECH_E_CONFIG,
              "threads: measured with %d a rank, the run has %d; 'echelon bench' with --threads %d",
              c->threads, query->threads, query->threads);
    ECH_CHECK(isfinite(c->op_s), ECH_E_CONFIG,
              "op_s: not measured; 'echelon bench memory --save' measures it");
    ECH_CHECK(query->program[0]->layout.world == 1 || isfinite(c->comm_busy), ECH_E_CONFIG,
              "comm_busy: not measured; 'echelon bench comm --save' measures it");
    for (int i = 0; i < query->n_classes; i++)
        ECH_TRY(check_program(c, query->program[i]));
    return ECH_OK;
}
