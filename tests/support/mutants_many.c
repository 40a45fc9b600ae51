/* Faults that only many ranks can have: shares, axes, coordinates, transfers, exact sums. */
#include "mutants.h"

#include <string.h>

/* --- both ends of a message --- */

/* An op by its block. */
typedef struct place {
    int block, op;
} place;

enum { MOST_ENDS = 8 };

static const ech_op_row *row_of(const ech_op *op)
{
    return ech_op_row_get(op->kind);
}

/* The wait of op k of an item, or of block -1. */
static place wait_of(const ech_program *p, int item, int k)
{
    const ech_item *it = &p->item[item];
    const int request = it->request + p->block[it->block].op[k].request;
    for (int i = item; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int w = i == item ? k + 1 : 0; w < b->n_ops; w++)
            if (row_of(&b->op[w])->is_wait && p->item[i].request + b->op[w].request == request)
                return (place){p->item[i].block, w};
    }
    return (place){-1, 0};
}

/* The item that waits for the message which an item starts; -1: it is no transfer's start. */
static int wait_item(const ech_program *p, int item)
{
    const ech_block *b = &p->block[p->item[item].block];
    if (b->role != ECH_ROLE_TRANSFER || !row_of(&b->op[0])->is_start)
        return -1;
    int i = item + 1;
    while (i < p->n_items && (p->block[p->item[i].block].role != ECH_ROLE_TRANSFER ||
                              p->item[i].request != p->item[item].request))
        i++;
    return i < p->n_items ? i : -1;
}

static int add_end(place *end, int n, place at)
{
    for (int i = 0; i < n; i++)
        if (end[i].block == at.block && end[i].op == at.op)
            return n;
    if (at.block < 0 || n == MOST_ENDS)
        return n;
    end[n] = at;
    return n + 1;
}

/* An op, and the waits of a start: a fault of the generator is at both ends.  0: a wait. */
static int ends_of(const ech_program *p, int b, int k, place end[MOST_ENDS])
{
    int n = 1;
    end[0] = (place){b, k};
    if (row_of(&p->block[b].op[k])->is_wait)
        return 0;
    if (!row_of(&p->block[b].op[k])->is_start)
        return 1;
    for (int i = 0; i < p->n_items; i++)
        if (p->item[i].block == b)
            n = add_end(end, n, wait_of(p, i, k));
    return n;
}

/* --- shifts --- */

enum { ALL_ARGS = -1 };

/* First argument that stands elsewhere on every rank; -1: none. */
static int first_shifted(const ech_op *op)
{
    for (int i = 0; i < op->n_args; i++)
        if (op->arg[i].region != ECH_REGION_NONE && op->arg[i].shift.bytes)
            return i;
    return -1;
}

static ech_axis other_axis_of(const ech_program *p, ech_axis axis)
{
    static const ech_axis axes[] = {ECH_AXIS_TP, ECH_AXIS_HSDP, ECH_AXIS_DP};
    for (int i = 0; i < 3; i++)
        if (axes[i] != axis && p->layout.degree[axes[i]] > 1)
            return axes[i];
    return axis;
}

typedef enum shift_fault { SHIFT_DROPPED, SHIFT_STRIDE, SHIFT_AXIS } shift_fault;

static bool shift(ech_program *p, int b, int k, shift_fault f, int which, bool apply)
{
    place end[MOST_ENDS];
    const int n = ends_of(p, b, k, end);
    const ech_op *op = &p->block[b].op[k];
    const int first = n ? first_shifted(op) : -1;
    const ech_axis other = first < 0 ? ECH_AXIS_DP : other_axis_of(p, op->arg[first].shift.axis);
    if (first < 0 || (f == SHIFT_AXIS && other == op->arg[first].shift.axis))
        return false;
    for (int e = 0; e < n && apply; e++)
        for (int i = 0; i < op->n_args; i++) {
            ech_operand *a = &p->block[end[e].block].op[end[e].op].arg[i];
            if (!a->shift.bytes || (which != ALL_ARGS && i != first))
                continue;
            a->shift = f == SHIFT_DROPPED  ? (ech_shift){ECH_AXIS_DP, 0}
                       : f == SHIFT_STRIDE ? (ech_shift){a->shift.axis, a->shift.bytes - 8}
                                           : (ech_shift){other, a->shift.bytes};
        }
    return true;
}

static bool drop_shift(ech_program *p, int b, int k, bool apply)
{
    return shift(p, b, k, SHIFT_DROPPED, 0, apply);
}

static bool drop_shifts(ech_program *p, int b, int k, bool apply)
{
    int n = 0;
    for (int i = 0; i < p->block[b].op[k].n_args; i++)
        n += p->block[b].op[k].arg[i].shift.bytes != 0;
    return n > 1 && shift(p, b, k, SHIFT_DROPPED, ALL_ARGS, apply);
}

static bool stride_of_shift(ech_program *p, int b, int k, bool apply)
{
    return shift(p, b, k, SHIFT_STRIDE, ALL_ARGS, apply);
}

static bool axis_of_shift(ech_program *p, int b, int k, bool apply)
{
    return shift(p, b, k, SHIFT_AXIS, ALL_ARGS, apply);
}

/* --- axes --- */

static bool over(ech_program *p, int b, int k, ech_axis axis, bool apply)
{
    place end[MOST_ENDS];
    const int n = ends_of(p, b, k, end);
    if (!n || !row_of(&p->block[b].op[k])->is_start || p->block[b].op[k].axis == axis ||
        p->layout.degree[axis] == 1)
        return false;
    for (int e = 0; e < n && apply; e++)
        p->block[end[e].block].op[end[e].op].axis = axis;
    return true;
}

#define OVER(name, axis)                                                                           \
    static bool name(ech_program *p, int b, int k, bool apply)                                     \
    {                                                                                              \
        return over(p, b, k, axis, apply);                                                         \
    }
OVER(over_dp, ECH_AXIS_DP)
OVER(over_hsdp, ECH_AXIS_HSDP)
OVER(over_tp, ECH_AXIS_TP)
OVER(over_kv, ECH_AXIS_KV)

/* Every rank's own value, one after the other into the staging, in place of their sum. */
static bool gather_for_sum(ech_program *p, int b, int k, bool apply)
{
    place end[MOST_ENDS];
    const int n = ends_of(p, b, k, end);
    const ech_op *op = &p->block[b].op[k];
    const int64_t ranks = p->layout.degree[op->axis];
    if (op->kind != ECH_OP_ALL_REDUCE_START || op->arg[0].rank != 1 ||
        ech_operand_elems(&op->arg[1]) < ranks * ech_operand_elems(&op->arg[0]))
        return false;
    for (int e = 0; e < n && apply; e++) {
        ech_op *at = &p->block[end[e].block].op[end[e].op];
        at->kind = e ? ECH_OP_ALL_GATHER_WAIT : ECH_OP_ALL_GATHER_START;
        at->arg[0].access = ECH_READ;
        at->arg[0].place.over[at->axis] = ech_place_sharded(0, ECH_MAP_CONTIGUOUS);
        at->arg[1].place = at->arg[0].place;
        at->arg[1].place.over[at->axis] = ech_place_of(ECH_PLACE_INVARIANT);
        at->arg[1].dim[0].bound = ranks * ech_operand_elems(&at->arg[0]);
    }
    return true;
}

/* --- coordinates in attributes --- */

static int find_node(const ech_expr *e, ech_expr_op op)
{
    for (int i = 0; i < e->n; i++)
        if (e->node[i].op == op)
            return i;
    return -1;
}

/* First attribute that depends on a coordinate; -1: none. */
static int first_placed(const ech_op *op)
{
    for (int i = 0; i < ECH_MAX_ATTRS; i++)
        if (find_node(&op->attr[i], ECH_EXPR_COORD) >= 0)
            return i;
    return -1;
}

static int64_t constant(const ech_op *op, int attr)
{
    return op->attr[attr].n ? op->attr[attr].node[0].value : 0;
}

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x < most ? x : most;
}

/* Is element k of a unit's part a copy of a shared head's key or value (kernels.h, sumsq). */
static bool is_copy(const ech_op *op, int64_t k)
{
    for (int at = 1; at < 9; at += 4)
        if (k >= constant(op, at) && k < constant(op, at + 1) &&
            (k - constant(op, at)) % constant(op, at + 2) >=
                constant(op, at + 2) - constant(op, at + 3))
            return true;
    return false;
}

static bool sums_differ(const ech_op *op, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < ech_operand_elems(&op->arg[0]); i++)
        if (is_copy(op, a + i) != is_copy(op, b + i))
            return true;
    return false;
}

/* Shared heads, by the groups of a rank. */
static bool heads_differ(const ech_op *op, int64_t a, int64_t b)
{
    const int64_t groups = op->arg[op->kind == ECH_OP_KV_SPREAD].dim[0].bound;
    for (int64_t j = 0; j < groups; j++)
        if ((a + j) / constant(op, 1) != (b + j) / constant(op, 1))
            return true;
    return false;
}

/* Do two first indices make a difference in the kernel: else one for the other is no fault. */
static bool differ(const ech_op *op, int64_t a, int64_t b)
{
    const int64_t n = ech_operand_elems(&op->arg[0]);
    switch (op->kind) {
    case ECH_OP_ADAMW: /* how many of its elements decay */
    case ECH_OP_SGD:
        return op->real[op->kind == ECH_OP_SGD ? 0 : 3] != 0.0 &&
               clamp(constant(op, 1) - a, n) != clamp(constant(op, 1) - b, n);
    case ECH_OP_SUMSQ:
        return sums_differ(op, a, b);
    case ECH_OP_KV_FOLD:
    case ECH_OP_KV_SPREAD:
        return heads_differ(op, a, b);
    case ECH_OP_POSITIONS:
    case ECH_OP_POSITIONS_BACKWARD:
        return (a - b) % constant(op, 0) != 0;
    case ECH_OP_ATTENTION: /* heads are told apart by dropout alone */
    case ECH_OP_ATTENTION_BACKWARD:
        return op->real[1] > 0.0 && a != b;
    default:
        return a != b;
    }
}

static bool matters(const ech_program *p, const ech_op *op, int at, const ech_expr *wrong)
{
    for (int r = 0; r < p->layout.world; r++) {
        int64_t coord[ECH_N_AXES];
        ech_layout_coords(&p->layout, r, coord);
        if (differ(op, ech_expr_eval(&op->attr[at], coord, 0), ech_expr_eval(wrong, coord, 0)))
            return true;
    }
    return false;
}

/* Attribute of op k replaced, where that matters. */
static bool replace(ech_program *p, int b, int k, int at, const ech_expr *wrong, bool apply)
{
    if (!matters(p, &p->block[b].op[k], at, wrong))
        return false;
    if (apply)
        p->block[b].op[k].attr[at] = *wrong;
    return true;
}

static bool coordinate_zero(ech_program *p, int b, int k, bool apply)
{
    const int at = first_placed(&p->block[b].op[k]);
    const ech_expr zero = ech_expr_const(0);
    return at >= 0 && replace(p, b, k, at, &zero, apply);
}

static bool coordinate_of(ech_program *p, int b, int k, ech_axis axis, bool apply)
{
    const int at = first_placed(&p->block[b].op[k]);
    if (at < 0 || p->layout.degree[axis] == 1)
        return false;
    ech_expr e = p->block[b].op[k].attr[at];
    e.node[find_node(&e, ECH_EXPR_COORD)].value = axis;
    return replace(p, b, k, at, &e, apply);
}

#define COORDINATE_OF(name, axis)                                                                  \
    static bool name(ech_program *p, int b, int k, bool apply)                                     \
    {                                                                                              \
        return coordinate_of(p, b, k, axis, apply);                                                \
    }
COORDINATE_OF(coordinate_dp, ECH_AXIS_DP)
COORDINATE_OF(coordinate_tp, ECH_AXIS_TP)
COORDINATE_OF(coordinate_kv, ECH_AXIS_KV)

/* Ranks are one element less apart. */
static bool coordinate_stride(ech_program *p, int b, int k, bool apply)
{
    const int at = first_placed(&p->block[b].op[k]);
    if (at < 0 || find_node(&p->block[b].op[k].attr[at], ECH_EXPR_CONST) < 0)
        return false;
    ech_expr e = p->block[b].op[k].attr[at];
    e.node[find_node(&e, ECH_EXPR_CONST)].value--;
    return replace(p, b, k, at, &e, apply);
}

/* --- constants in attributes --- */

static bool add_to(ech_program *p, int b, int k, int at, int64_t more, bool apply)
{
    const ech_expr e = ech_expr_const(constant(&p->block[b].op[k], at) + more);
    if (apply)
        p->block[b].op[k].attr[at] = e;
    return true;
}

/* Padded rows of the table are words. */
static bool padding_counts(ech_program *p, int b, int k, bool apply)
{
    const ech_op *op = &p->block[b].op[k];
    if (op->kind != ECH_OP_XENT_SHARD && op->kind != ECH_OP_XENT_BACKWARD)
        return false;
    return add_to(p, b, k, 0, 1, apply);
}

static bool copies_counted(ech_program *p, int b, int k, bool apply)
{
    const ech_op *op = &p->block[b].op[k];
    return op->kind == ECH_OP_CLIP && op->arg[1].region != ECH_REGION_NONE &&
           add_to(p, b, k, 0, 1, apply);
}

/* Keys of shared heads, but not their values. */
static bool copies_sought(ech_program *p, int b, int k, bool apply)
{
    const ech_op *op = &p->block[b].op[k];
    return op->kind == ECH_OP_SUMSQ && constant(op, 4) > 0 &&
           add_to(p, b, k, 4, -constant(op, 4) / 2, apply);
}

static bool heads_shared(ech_program *p, int b, int k, bool apply)
{
    const ech_op *op = &p->block[b].op[k];
    const int copies = p->layout.degree[ECH_AXIS_KV];
    if (op->kind != ECH_OP_KV_FOLD && op->kind != ECH_OP_KV_SPREAD)
        return false;
    /* where each rank has a group of its own, all are of one head */
    return op->arg[op->kind == ECH_OP_KV_SPREAD].dim[0].bound * copies > copies &&
           add_to(p, b, k, 1, 1, apply);
}

static bool border_of_decay(ech_program *p, int b, int k, bool apply)
{
    const ech_op *op = &p->block[b].op[k];
    if ((op->kind != ECH_OP_ADAMW && op->kind != ECH_OP_SGD) || constant(op, 1) == 0)
        return false;
    return add_to(p, b, k, 1, -1, apply);
}

/* --- messages left out --- */

/* A start and its wait, of a transfer. */
static bool drop_transfer(ech_program *p, int i, int b, bool apply)
{
    const int wait = wait_item(p, i);
    (void)b;
    if (wait < 0)
        return false;
    if (apply) {
        program_remove(p, wait);
        program_remove(p, i);
    }
    return true;
}

/* A start and its wait within a block; -1: they are not. */
static int wait_within(const ech_block *b, int k)
{
    if (b->role == ECH_ROLE_TRANSFER || !row_of(&b->op[k])->is_start)
        return -1;
    for (int w = k + 1; w < b->n_ops; w++)
        if (row_of(&b->op[w])->is_wait && b->op[w].request == b->op[k].request)
            return w;
    return -1;
}

static bool drop_message(ech_program *p, int b, int k, bool apply)
{
    const int wait = wait_within(&p->block[b], k);
    if (wait < 0)
        return false;
    if (apply) {
        block_remove(&p->block[b], wait);
        block_remove(&p->block[b], k);
    }
    return true;
}

/* A rank's own value stands for the sum, and says that it does. */
static bool own_for_sum(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    const int wait = wait_within(&p->block[b], k);
    if (wait < 0 || op->kind != ECH_OP_SUM_SMALL_START)
        return false;
    if (!apply)
        return true;
    op->kind = ECH_OP_COPY;
    op->n_args = 2;
    op->arg[1] = op->arg[2];
    op->arg[1].place = op->arg[0].place;
    block_remove(&p->block[b], wait);
    return true;
}

/* A workspace of its own for an op whose operands have moved. */
static void move_workspace(ech_program *p, int b, ech_op *op)
{
    size_t *work = &p->block[b].region_bytes[ECH_REGION_WORK];
    op->work_offset = (*work + ECH_ALIGN - 1) / ECH_ALIGN * ECH_ALIGN;
    *work = op->work_offset + op->work_bytes;
    for (int i = 0; i < p->n_items; i++) {
        const ech_view v = p->item[i].bind[ECH_REGION_WORK];
        if (p->item[i].block == b && p->slot[v.slot].bytes < v.offset + *work)
            p->slot[v.slot].bytes = v.offset + *work;
    }
}

/* The loss of a rank's own share of the vocabulary. */
static bool own_vocabulary(ech_program *p, int b, int k, bool apply)
{
    ech_block *block = &p->block[b];
    const int wait = wait_within(block, k);
    if (wait < 0 || wait + 1 == block->n_ops || block->op[wait + 1].kind != ECH_OP_XENT)
        return false;
    if (!apply)
        return true;
    const ech_operand share = block->op[k - 1].arg[2];
    block->op[wait + 1].arg[0] = share;
    block->op[wait + 1].arg[0].access = ECH_READ;
    move_workspace(p, b, &block->op[wait + 1]);
    block->op[wait + 1].arg[0].place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_INVARIANT);
    block_remove(block, wait);
    block_remove(block, k);
    return true;
}

/* --- biases --- */

/* Added to every rank's summand. */
static bool bias_before_sum(ech_program *p, int b, int k, bool apply)
{
    ech_block *block = &p->block[b];
    const int wait = wait_within(block, k);
    if (wait < 0 || wait + 1 == block->n_ops || block->op[wait + 1].kind != ECH_OP_BIAS ||
        block->op[k - 1].kind != ECH_OP_LINEAR)
        return false;
    if (!apply)
        return true;
    ech_op bias = block->op[wait + 1];
    bias.arg[0] = block->op[k - 1].arg[3];
    bias.arg[0].access = ECH_READ_WRITE;
    block_remove(block, wait + 1);
    block_insert(block, k, bias);
    return true;
}

/* Every rank sums over all tokens, and then ranks sum. */
static bool bias_of_gathered(ech_program *p, int b, int k, bool apply)
{
    ech_block *block = &p->block[b];
    if (k == 0 || block->op[k].kind != ECH_OP_BIAS_BACKWARD ||
        block->op[k - 1].kind != ECH_OP_ALL_GATHER_WAIT)
        return false;
    if (apply) {
        ech_operand *dy = &block->op[k].arg[0];
        const ech_operand *all = &block->op[k - 1].arg[1];
        dy->region = all->region;
        dy->offset = all->offset;
        dy->place = all->place;
        dy->dim[0].bound *= p->layout.degree[ECH_AXIS_TP];
        move_workspace(p, b, &block->op[k]);
    }
    return true;
}

/* --- exact sums --- */

/* A part that is whole over tp counts among those that are cut: t times. */
static bool whole_among_cut(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    if (op->kind != ECH_OP_SUMSQ || op->arg[1].offset == 0)
        return false;
    if (apply) {
        op->arg[1].offset = 0;
        op->arg[1].place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_PARTIAL);
    }
    return true;
}

/* The other way round: other ranks' shares are left out. */
static bool cut_among_whole(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    if (op->kind != ECH_OP_SUMSQ || op->arg[1].offset != 0 ||
        p->block[b].region_bytes[ECH_REGION_OUT] < (size_t)3 * ECH_SUMSQ_WORDS * 8)
        return false; /* there is no sum of what is whole */
    if (apply) {
        op->arg[1].offset = (size_t)2 * ECH_SUMSQ_WORDS * 8;
        op->arg[1].place.over[ECH_AXIS_TP] = ech_place_of(ECH_PLACE_INVARIANT);
    }
    return true;
}

/* --- other units --- */

static bool is_moved(const ech_program *p, int a, int b, ech_region r)
{
    const ech_item *x = &p->item[a];
    const ech_item *y = &p->item[b];
    return x->block == y->block && x->layer != y->layer && p->block[x->block].region_bytes[r] &&
           (x->bind[r].slot != y->bind[r].slot || x->bind[r].offset != y->bind[r].offset);
}

/* Both ends of a transfer bound where that of another layer is, in the first of these regions. */
static bool transfer_of_other(ech_program *p, int i, const ech_region *regions, int n, bool apply)
{
    const int wait = wait_item(p, i);
    for (int r = 0; r < n && wait >= 0; r++)
        for (int k = 0; k < p->n_items; k++) {
            if (!is_moved(p, i, k, regions[r]))
                continue;
            if (apply)
                p->item[i].bind[regions[r]] = p->item[wait].bind[regions[r]] =
                    p->item[k].bind[regions[r]];
            return true;
        }
    return false;
}

static bool transfer_of_other_share(ech_program *p, int i, int b, bool apply)
{
    static const ech_region regions[] = {ECH_REGION_SHARD};
    (void)b;
    return transfer_of_other(p, i, regions, 1, apply);
}

static bool transfer_of_other_grads(ech_program *p, int i, int b, bool apply)
{
    static const ech_region regions[] = {ECH_REGION_GRAD, ECH_REGION_GRAD_SUMMED,
                                         ECH_REGION_GRAD_WHOLE};
    (void)b;
    return transfer_of_other(p, i, regions, 3, apply);
}

static bool transfer_of_other_params(ech_program *p, int i, int b, bool apply)
{
    static const ech_region regions[] = {ECH_REGION_PARAM, ECH_REGION_PARAM_SUMMED,
                                         ECH_REGION_PARAM_WHOLE};
    (void)b;
    return transfer_of_other(p, i, regions, 3, apply);
}

static bool add_to_other(ech_program *p, int i, int b, bool apply)
{
    (void)b;
    if (program_find_op(p, i, ECH_OP_ADD) != 0 ||
        !p->block[p->item[i].block].region_bytes[ECH_REGION_SHARD])
        return false;
    for (int k = 0; k < p->n_items; k++) {
        if (!is_moved(p, i, k, ECH_REGION_SHARD))
            continue;
        if (apply)
            p->item[i].bind[ECH_REGION_SHARD] = p->item[k].bind[ECH_REGION_SHARD];
        return true;
    }
    return false;
}

/* A micro-batch's share in place of the sum of those before. */
static bool overwrite_sum(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    if (op->kind != ECH_OP_ADD || op->arg[0].region != ECH_REGION_SHARD)
        return false;
    if (!apply)
        return true;
    op->kind = ECH_OP_COPY;
    op->n_args = 2;
    op->arg[0] = op->arg[1];
    op->arg[1] = op->arg[2];
    return true;
}

/* The table that the head borrows, an aligned step further. */
static bool move_binding(ech_program *p, int i, ech_region r, bool apply)
{
    const ech_item *it = &p->item[i];
    const size_t bytes = p->block[it->block].region_bytes[r];
    if (!bytes || it->bind[r].slot < 0 ||
        it->bind[r].offset + bytes + ECH_ALIGN > p->slot[it->bind[r].slot].bytes)
        return false;
    if (apply)
        p->item[i].bind[r].offset += ECH_ALIGN;
    return true;
}

static bool move_tied(ech_program *p, int i, int b, bool apply)
{
    (void)b;
    return move_binding(p, i, ECH_REGION_TIED, apply);
}

static bool move_tied_grad(ech_program *p, int i, int b, bool apply)
{
    (void)b;
    return move_binding(p, i, ECH_REGION_TIED_GRAD, apply);
}

/* The last sum of a gradient is awaited after its update. */
static bool wait_after_update(ech_program *p, int i, int b, bool apply)
{
    const ech_block *block = &p->block[p->item[i].block];
    (void)b;
    if (block->role != ECH_ROLE_TRANSFER || (block->op[0].kind != ECH_OP_ALL_REDUCE_WAIT &&
                                             block->op[0].kind != ECH_OP_REDUCE_SCATTER_WAIT))
        return false;
    for (int k = i; k + 1 < p->n_items && apply; k++)
        program_swap(p, k, k + 1);
    if (apply)
        p->item[p->n_items - 1].segment = ECH_SEGMENT_COMMIT;
    return true;
}

const mutant_operator mutant_many_operators[] = {
    {"shift dropped", MUTANT_OP, false, drop_shift},
    {"shifts of all operands dropped", MUTANT_OP, false, drop_shifts},
    {"shift of another stride", MUTANT_OP, false, stride_of_shift},
    {"shift on another axis", MUTANT_OP, false, axis_of_shift},
    {"over dp instead", MUTANT_OP, false, over_dp},
    {"over hsdp instead", MUTANT_OP, false, over_hsdp},
    {"over tp instead", MUTANT_OP, false, over_tp},
    {"over kv instead", MUTANT_OP, false, over_kv},
    {"gathered, not summed", MUTANT_OP, false, gather_for_sum},
    {"coordinate taken as 0", MUTANT_OP, false, coordinate_zero},
    {"coordinate of dp", MUTANT_OP, false, coordinate_dp},
    {"coordinate of tp", MUTANT_OP, false, coordinate_tp},
    {"coordinate of kv", MUTANT_OP, false, coordinate_kv},
    {"coordinate by another stride", MUTANT_OP, false, coordinate_stride},
    {"padding gets probability", MUTANT_OP, false, padding_counts},
    {"copies counted too often", MUTANT_OP, false, copies_counted},
    {"values no copies", MUTANT_OP, false, copies_sought},
    {"heads shared by more", MUTANT_OP, false, heads_shared},
    {"decay ends one earlier", MUTANT_OP, false, border_of_decay},
    {"transfer left out", MUTANT_ITEM, false, drop_transfer},
    {"message left out", MUTANT_OP, false, drop_message},
    {"own value for the sum", MUTANT_OP, false, own_for_sum},
    {"own vocabulary for all", MUTANT_OP, false, own_vocabulary},
    {"bias before the sum", MUTANT_OP, false, bias_before_sum},
    {"bias gradient of all tokens", MUTANT_OP, false, bias_of_gathered},
    {"norm of whole among cut", MUTANT_OP, false, whole_among_cut},
    {"norm of cut among whole", MUTANT_OP, false, cut_among_whole},
    {"transfer: another layer's share", MUTANT_ITEM, false, transfer_of_other_share},
    {"transfer: another layer's gradient", MUTANT_ITEM, false, transfer_of_other_grads},
    {"transfer: another layer's weights", MUTANT_ITEM, false, transfer_of_other_params},
    {"added to another layer", MUTANT_ITEM, false, add_to_other},
    {"micro-batch overwrites the sum", MUTANT_OP, false, overwrite_sum},
    {"tied table elsewhere", MUTANT_ITEM, false, move_tied},
    {"gradient of tied table elsewhere", MUTANT_ITEM, false, move_tied_grad},
    {"wait after the update", MUTANT_ITEM, false, wait_after_update},
};
const int n_mutant_many_operators =
    (int)(sizeof mutant_many_operators / sizeof mutant_many_operators[0]);
