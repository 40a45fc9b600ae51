#include "mutants.h"
#include "program/op_signature.h"
#include "program/pack.h"
#include "tiny.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- copies and edits --- */

static void *copy_of(const void *from, size_t n, size_t bytes)
{
    void *to = malloc(n * bytes + 1);
    memcpy(to, from, n * bytes);
    return to;
}

static void copy_ops(ech_block *b)
{
    b->op = copy_of(b->op, (size_t)b->n_ops, sizeof *b->op);
    b->capacity = (size_t)b->n_ops;
}

void mutant_copy(const ech_program *p, ech_program *out)
{
    *out = *p;
    out->block = copy_of(p->block, (size_t)p->n_blocks, sizeof *p->block);
    out->block_capacity = (size_t)p->n_blocks;
    for (int b = 0; b < p->n_blocks; b++)
        copy_ops(&out->block[b]);
    out->slot = copy_of(p->slot, (size_t)p->n_slots, sizeof *p->slot);
    out->slot_capacity = (size_t)p->n_slots;
    out->item = copy_of(p->item, (size_t)p->n_items, sizeof *p->item);
    out->item_capacity = (size_t)p->n_items;
}

void program_insert(ech_program *p, int at, ech_item item)
{
    tiny_ok(ech_grow(&p->item, (size_t)p->n_items, &p->item_capacity, sizeof item), "item");
    memmove(p->item + at + 1, p->item + at, (size_t)(p->n_items - at) * sizeof item);
    p->item[at] = item;
    p->n_items++;
}

void program_remove(ech_program *p, int at)
{
    p->n_items--;
    memmove(p->item + at, p->item + at + 1, (size_t)(p->n_items - at) * sizeof *p->item);
}

void program_swap(ech_program *p, int a, int b)
{
    const ech_item t = p->item[a];
    p->item[a] = p->item[b];
    p->item[b] = t;
}

int program_find(const ech_program *p, const char *block, int from)
{
    for (int i = from; i < p->n_items; i++)
        if (strncmp(p->block[p->item[i].block].name, block, strlen(block)) == 0)
            return i;
    return -1;
}

static int find_op(const ech_block *b, ech_op_kind kind)
{
    for (int k = 0; k < b->n_ops; k++)
        if (b->op[k].kind == kind)
            return k;
    return -1;
}

int program_find_op(const ech_program *p, int item, ech_op_kind kind)
{
    return find_op(&p->block[p->item[item].block], kind);
}

ech_block *program_own_block(ech_program *p, int item)
{
    tiny_ok(ech_grow(&p->block, (size_t)p->n_blocks, &p->block_capacity, sizeof *p->block),
            "block");
    p->block[p->n_blocks] = p->block[p->item[item].block];
    copy_ops(&p->block[p->n_blocks]);
    p->item[item].block = p->n_blocks;
    return &p->block[p->n_blocks++];
}

void block_insert(ech_block *b, int at, ech_op op)
{
    tiny_ok(ech_grow(&b->op, (size_t)b->n_ops, &b->capacity, sizeof op), "op");
    memmove(b->op + at + 1, b->op + at, (size_t)(b->n_ops - at) * sizeof op);
    b->op[at] = op;
    b->n_ops++;
}

void block_remove(ech_block *b, int at)
{
    b->n_ops--;
    memmove(b->op + at, b->op + at + 1, (size_t)(b->n_ops - at) * sizeof *b->op);
}

/* --- do two neighbours conflict --- */

/* A range of bytes and how it is used; where: a slot, or a region within one block. */
typedef struct touch {
    int where;
    size_t begin, end;
    bool reads, writes, adds;
} touch;

/* Sums commute: two ops that add to the same bytes may change places. */
static bool conflict(const touch *a, const touch *b)
{
    return a->where >= 0 && a->where == b->where && a->begin < b->end && b->begin < a->end &&
           (a->writes || b->writes) && !(a->adds && b->adds);
}

static bool arg_adds(ech_op_kind kind, int arg)
{
    const char *s = ech_op_row_get(kind)->signature;
    for (; arg > 0; arg--)
        s = strchr(s, ',') + 1;
    return *s == '+' || strncmp(s, "?+", 2) == 0;
}

static touch touch_of(const ech_op *op, int arg, int where, size_t begin)
{
    const ech_operand *a = &op->arg[arg];
    return (touch){a->region == ECH_REGION_NONE ? -1 : where,
                   begin,
                   begin + ech_operand_bytes(a),
                   (a->access & ECH_READ) != 0,
                   (a->access & ECH_WRITE) != 0,
                   arg_adds(op->kind, arg)};
}

static bool ops_conflict(const ech_op *x, const ech_op *y)
{
    for (int i = 0; i < x->n_args; i++)
        for (int j = 0; j < y->n_args; j++) {
            const touch a = touch_of(x, i, (int)x->arg[i].region, x->arg[i].offset);
            const touch b = touch_of(y, j, (int)y->arg[j].region, y->arg[j].offset);
            if (conflict(&a, &b))
                return true;
        }
    return false;
}

static touch touch_in(const ech_program *p, int item, const ech_op *op, int arg)
{
    const ech_extent e = ech_item_extent(p, &p->item[item], &op->arg[arg]);
    return touch_of(op, arg, e.slot, e.begin);
}

static bool op_conflicts_with_item(const ech_program *p, int a, const ech_op *x, int b)
{
    const ech_block *block = &p->block[p->item[b].block];
    for (int k = 0; k < block->n_ops; k++)
        for (int i = 0; i < x->n_args; i++)
            for (int j = 0; j < block->op[k].n_args; j++) {
                const touch s = touch_in(p, a, x, i);
                const touch t = touch_in(p, b, &block->op[k], j);
                if (conflict(&s, &t))
                    return true;
            }
    return false;
}

static bool items_conflict(const ech_program *p, int a, int b)
{
    const ech_block *block = &p->block[p->item[a].block];
    for (int k = 0; k < block->n_ops; k++)
        if (op_conflicts_with_item(p, a, &block->op[k], b))
            return true;
    return false;
}

/* --- operators on items --- */

static bool drop_item(ech_program *p, int i, int b, bool apply)
{
    (void)b;
    if (apply)
        program_remove(p, i);
    return true;
}

static bool duplicate_item(ech_program *p, int i, int b, bool apply)
{
    (void)b;
    if (apply)
        program_insert(p, i + 1, p->item[i]);
    return true;
}

static bool swap_items(ech_program *p, int i, int b, bool apply)
{
    (void)b;
    if (i + 1 >= p->n_items || p->item[i].segment != p->item[i + 1].segment ||
        !items_conflict(p, i, i + 1))
        return false;
    if (apply)
        program_swap(p, i, i + 1);
    return true;
}

static bool is_transfer(const ech_program *p, int i, ech_op_kind kind)
{
    const ech_block *b = &p->block[p->item[i].block];
    return b->role == ECH_ROLE_TRANSFER && b->op[0].kind == kind;
}

/* The wait for a gradient's sum moves to the end of its segment, behind the norm. */
/* A copy's gradient is measured by another stage: this norm does not read it. */
static bool is_of_copy(const ech_program *p, int i)
{
    const ech_item *it = &p->item[i];
    const int slot = it->bind[p->block[it->block].op[0].arg[0].region].slot;
    return slot >= 0 && p->slot[slot].is_copy;
}

static bool late_wait(ech_program *p, int i, int b, bool apply)
{
    int end = i;
    (void)b;
    if ((!is_transfer(p, i, ECH_OP_ALL_REDUCE_WAIT) &&
         !is_transfer(p, i, ECH_OP_REDUCE_SCATTER_WAIT)) ||
        is_of_copy(p, i))
        return false;
    while (end + 1 < p->n_items && p->item[end + 1].segment <= ECH_SEGMENT_REDUCE)
        end++;
    for (int k = i; k < end && apply; k++)
        program_swap(p, k, k + 1);
    if (apply)
        p->item[end].segment = ECH_SEGMENT_REDUCE;
    return true;
}

/* The same block in another layer or micro-batch, if the region is bound elsewhere there. */
static bool rebind(ech_program *p, int i, ech_region r, bool other_layer, bool apply)
{
    const ech_item *a = &p->item[i];
    if (!p->block[a->block].region_bytes[r])
        return false;
    for (int k = 0; k < p->n_items; k++) {
        const ech_item *b = &p->item[k];
        const bool is_other = other_layer ? b->layer != a->layer && b->micro == a->micro
                                          : b->micro != a->micro && b->layer == a->layer;
        if (b->block != a->block || !is_other ||
            (b->bind[r].slot == a->bind[r].slot && b->bind[r].offset == a->bind[r].offset))
            continue;
        if (apply)
            p->item[i].bind[r] = b->bind[r];
        return true;
    }
    return false;
}

#define REBIND(name, region, other_layer)                                                          \
    static bool name(ech_program *p, int i, int b, bool apply)                                     \
    {                                                                                              \
        (void)b;                                                                                   \
        return rebind(p, i, region, other_layer, apply);                                           \
    }
REBIND(data_of_other_micro, ECH_REGION_DATA, false)
REBIND(saved_of_other_micro, ECH_REGION_SAVED_FB, false)
REBIND(input_of_other_micro, ECH_REGION_IN, false)
REBIND(params_of_other_layer, ECH_REGION_PARAM, true)
REBIND(grads_of_other_layer, ECH_REGION_GRAD, true)
REBIND(moments_of_other_layer, ECH_REGION_MOMENT, true)
REBIND(saved_of_other_layer, ECH_REGION_SAVED_FB, true)
REBIND(linear_input_of_other_micro, ECH_REGION_SAVED_FW, false)
REBIND(linear_input_of_other_layer, ECH_REGION_SAVED_FW, true)
REBIND(handed_on_of_other_micro, ECH_REGION_SAVED_BW, false)
REBIND(handed_on_of_other_layer, ECH_REGION_SAVED_BW, true)
REBIND(gradient_of_other_layer, ECH_REGION_DOUT, true)

/* Start and wait of a gradient's sum agree on half of the message. */
static bool halve_message(ech_program *p, int i, int b, bool apply)
{
    (void)b;
    if (!is_transfer(p, i, ECH_OP_ALL_REDUCE_START))
        return false;
    for (int k = i; k < p->n_items && apply; k++)
        if (is_transfer(p, k, k == i ? ECH_OP_ALL_REDUCE_START : ECH_OP_ALL_REDUCE_WAIT) &&
            p->item[k].request == p->item[i].request)
            program_own_block(p, k)->op[0].arg[0].dim[0].bound /= 2;
    return true;
}

/* --- operators on ops --- */

static bool drop_op(ech_program *p, int b, int k, bool apply)
{
    if (apply)
        block_remove(&p->block[b], k);
    return true;
}

/* An op whose second run changes something: it adds, updates in place or communicates. */
static bool repeats(const ech_op *op)
{
    if (ech_op_is_comm(op->kind))
        return true;
    if (op->kind == ECH_OP_KV_SPREAD) /* sets what it updates */
        return false;
    for (int i = 0; i < op->n_args; i++) {
        if (op->arg[i].access == ECH_READ_WRITE && op->kind != ECH_OP_ZERO)
            return true;
        for (int j = 0; j < op->n_args; j++)
            if (op->arg[i].access == ECH_WRITE && op->arg[j].access == ECH_READ &&
                op->arg[i].region == op->arg[j].region && op->arg[i].offset == op->arg[j].offset)
                return true;
    }
    return false;
}

static bool duplicate_op(ech_program *p, int b, int k, bool apply)
{
    const ech_op op = p->block[b].op[k];
    if (!repeats(&op))
        return false;
    if (apply)
        block_insert(&p->block[b], k, op);
    return true;
}

/* y + bias + residual, in either order. */
static bool is_sum(const ech_op *a, const ech_op *b)
{
    return a->kind == ECH_OP_BIAS && b->kind == ECH_OP_ADD &&
           a->arg[0].region == b->arg[0].region && a->arg[0].offset == b->arg[0].offset;
}

static bool swap_ops(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = p->block[b].op;
    if (k + 1 >= p->block[b].n_ops || !ops_conflict(&op[k], &op[k + 1]) ||
        is_sum(&op[k], &op[k + 1]))
        return false;
    if (apply) {
        const ech_op t = op[k];
        op[k] = op[k + 1];
        op[k + 1] = t;
    }
    return true;
}

static bool other_axis(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    if (!ech_op_is_comm(op->kind))
        return false;
    if (apply)
        op->axis = op->axis == ECH_AXIS_TP ? ECH_AXIS_DP : ECH_AXIS_TP;
    return true;
}

/* Last argument that the op writes. */
static ech_operand *result_of(ech_op *op)
{
    const bool is_scatter =
        op->kind == ECH_OP_REDUCE_SCATTER_START || op->kind == ECH_OP_REDUCE_SCATTER_WAIT;
    const int staging = !ech_op_is_comm(op->kind) ? -1 : is_scatter ? 2 : 1; /* has no meaning */
    for (int i = op->n_args - 1; i >= 0; i--)
        if (op->arg[i].region != ECH_REGION_NONE && (op->arg[i].access & ECH_WRITE) && i != staging)
            return &op->arg[i];
    return NULL;
}

/* First axis over which an operand is not whole, or is sharded; -1: none. */
static int first_dealt(const ech_operand *a, bool is_sharded)
{
    for (int x = 0; x < ECH_N_AXES; x++)
        if (is_sharded ? a->place.over[x].kind == ECH_PLACE_SHARDED
                       : a->place.over[x].kind != ECH_PLACE_INVARIANT &&
                             a->place.over[x].kind != ECH_PLACE_REPLICATED)
            return x;
    return -1;
}

static bool declare_whole(ech_program *p, int b, int k, bool apply)
{
    ech_operand *a = result_of(&p->block[b].op[k]);
    const int axis = a ? first_dealt(a, false) : -1;
    if (axis < 0 || p->block[b].op[k].kind == ECH_OP_ZERO)
        return false;
    if (apply)
        a->place.over[axis] = ech_place_of(ECH_PLACE_INVARIANT);
    return true;
}

static bool declare_other_map(ech_program *p, int b, int k, bool apply)
{
    ech_operand *a = &p->block[b].op[k].arg[0];
    const int axis = first_dealt(a, true);
    if (axis < 0 || p->block[b].op[k].kind == ECH_OP_ZERO)
        return false;
    if (apply)
        a->place.over[axis].map = ECH_MAP_ZIGZAG;
    return true;
}

static bool declare_other_scale(ech_program *p, int b, int k, bool apply)
{
    ech_operand *a = result_of(&p->block[b].op[k]);
    if (!a || p->block[b].op[k].kind == ECH_OP_ZERO || a->place.scale.per_token == 0)
        return false;
    if (apply)
        a->place.scale.factor = 2.0;
    return true;
}

/* The gradient that an op sums, measures or applies is multiplied before it. */
static bool scale_gradient(ech_program *p, int b, int k, double declared, bool apply)
{
    const ech_op *user = &p->block[b].op[k];
    const bool is_update = user->kind == ECH_OP_ADAMW || user->kind == ECH_OP_SGD;
    if (!is_update && user->kind != ECH_OP_SUMSQ &&
        (p->block[b].role != ECH_ROLE_TRANSFER || user->kind != ECH_OP_ALL_REDUCE_START))
        return false;
    ech_op op = {.kind = ECH_OP_SCALE, .n_args = 1, .real = {0.5}};
    op.arg[0] = user->arg[is_update ? 1 : 0];
    op.arg[0].access = ECH_READ_WRITE;
    op.arg[0].place.scale.factor = declared;
    if (apply)
        block_insert(&p->block[b], k, op);
    return true;
}

static bool halve_gradient(ech_program *p, int b, int k, bool apply)
{
    return scale_gradient(p, b, k, 0.5, apply);
}

static bool halve_gradient_silently(ech_program *p, int b, int k, bool apply)
{
    return scale_gradient(p, b, k, 1.0, apply);
}

static bool is_model_region(ech_region r)
{
    return r >= ECH_REGION_PARAM && r <= ECH_REGION_GRAD_TIED;
}

static bool is_alike(const ech_operand *a, const ech_operand *b)
{
    return a->region == b->region && a->offset != b->offset && a->rank == b->rank &&
           a->dtype == b->dtype && ech_operand_bytes(a) == ech_operand_bytes(b);
}

/* An operand of the block that looks like a: same region and size, elsewhere. */
static const ech_operand *other_like(const ech_block *block, const ech_operand *a)
{
    for (int k = 0; k < block->n_ops; k++)
        for (int i = 0; i < block->op[k].n_args; i++)
            if (is_alike(a, &block->op[k].arg[i]))
                return &block->op[k].arg[i];
    return NULL;
}

/* First argument in PARAM or GRAD that has a double. */
static bool other_parameter(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    for (int i = 0; i < op->n_args; i++) {
        const ech_operand *other = other_like(&p->block[b], &op->arg[i]);
        if (!is_model_region(op->arg[i].region) || !other)
            continue;
        if (apply)
            op->arg[i].offset = other->offset;
        return true;
    }
    return false;
}

static bool is_made_inside(ech_region r)
{
    return r == ECH_REGION_WORK || r == ECH_REGION_SAVED_FB || r == ECH_REGION_SAVED_FW ||
           r == ECH_REGION_SAVED_BW;
}

/* The op writes its temporary where another one lies. */
static bool other_temporary(ech_program *p, int b, int k, bool apply)
{
    ech_operand *a = result_of(&p->block[b].op[k]);
    const ech_operand *other = a ? other_like(&p->block[b], a) : NULL;
    if (!other || !is_made_inside(a->region))
        return false;
    if (apply)
        a->offset = other->offset;
    return true;
}

/* A sum of squares that may go apart, but has no copies to put there. */
static bool has_copies(const ech_op *op)
{
    return op->kind != ECH_OP_SUMSQ || op->attr[2].n;
}

static bool drop_optional(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    const ech_signature sig = ech_signature_read(op->kind);
    for (int i = 0; i < op->n_args; i++) {
        if (!sig.arg[i].is_optional || op->arg[i].region == ECH_REGION_NONE || !has_copies(op))
            continue;
        if (apply)
            op->arg[i].region = ECH_REGION_NONE;
        return true;
    }
    return false;
}

static bool change_constant(ech_program *p, int b, int k, bool apply)
{
    double *real = p->block[b].op[k].real;
    if (real[0] == 0.0)
        return false;
    if (apply)
        real[0] *= 0.5;
    return true;
}

static bool turn_the_other_way(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    if (op->kind != ECH_OP_ROPE)
        return false;
    if (apply)
        op->attr[1] = ech_expr_const(1 - op->attr[1].node[0].value);
    return true;
}

/* A neighbouring cell of the same type in place of the one that a kernel reads. */
static bool other_cell(ech_program *p, int b, int k, bool apply)
{
    static const char types[] = {
#define CELL_TYPE(name, type, writer, reader) [name] = (type)[0],
        ECH_CELL_LIST(CELL_TYPE)
#undef CELL_TYPE
    };
    ech_op *op = &p->block[b].op[k];
    for (int i = 0; i < op->n_args && !ech_op_is_comm(op->kind); i++) {
        const size_t cell = op->arg[i].offset / 8;
        if (op->arg[i].region != ECH_REGION_SCALARS || op->arg[i].access != ECH_READ)
            continue;
        const bool next = cell + 1 < ECH_N_CELLS && types[cell + 1] == types[cell];
        if (!next && (cell == 0 || types[cell - 1] != types[cell]))
            continue;
        if (apply)
            op->arg[i].offset = 8 * (next ? cell + 1 : cell - 1);
        return true;
    }
    return false;
}

/* The kernel's scratch lies on one of its operands. */
static bool workspace_on_operand(ech_program *p, int b, int k, bool apply)
{
    ech_op *op = &p->block[b].op[k];
    for (int i = 0; i < op->n_args; i++) {
        if (op->arg[i].region != ECH_REGION_WORK || !op->work_bytes ||
            op->arg[i].offset + op->work_bytes > p->block[b].region_bytes[ECH_REGION_WORK])
            continue;
        if (apply)
            op->work_offset = op->arg[i].offset;
        return true;
    }
    return false;
}

/* --- operators on slots --- */

static bool touches(const ech_program *p, int item, int slot)
{
    for (int r = 0; r < ECH_N_REGIONS; r++)
        if (p->item[item].bind[r].slot == slot && p->block[p->item[item].block].region_bytes[r])
            return true;
    return false;
}

/* The slot's life ends before its last user; all lives are packed again. */
static bool early_free(ech_program *p, int s, int b, bool apply)
{
    size_t peak;
    int n = 0;
    int last = p->slot[s].last - 1;
    (void)b;
    while (last >= p->slot[s].first && !touches(p, last, s))
        last--;
    if (p->slot[s].first < 0 || last < p->slot[s].first)
        return false;
    if (!apply)
        return true;
    p->slot[s].last = last;
    ech_pack_item *item = calloc((size_t)p->n_slots, sizeof *item);
    for (int k = p->n_state; k < p->n_slots; k++)
        if (p->slot[k].first >= 0)
            item[n++] = (ech_pack_item){p->slot[k].bytes, p->slot[k].first, p->slot[k].last, 0};
    tiny_ok(ech_pack(item, n, ECH_ALIGN, &p->transient_bytes[ECH_SPACE_DEVICE], &peak), "pack");
    n = 0;
    for (int k = p->n_state; k < p->n_slots; k++)
        if (p->slot[k].first >= 0)
            p->slot[k].offset = p->state_bytes[ECH_SPACE_DEVICE] + item[n++].offset;
    free(item);
    return true;
}

/* The slot slips down by one unit of alignment onto its neighbour. */
static bool overlap(ech_program *p, int s, int b, bool apply)
{
    (void)b;
    const ech_slot *a = &p->slot[s];
    bool hits = false;
    if (a->first < 0 || a->offset < p->state_bytes[ECH_SPACE_DEVICE] + ECH_ALIGN)
        return false;
    for (int k = p->n_state; k < p->n_slots; k++) {
        const ech_slot *o = &p->slot[k];
        hits = hits || (k != s && o->first >= 0 && o->first <= a->last && a->first <= o->last &&
                        o->offset < a->offset && o->offset + o->bytes > a->offset - ECH_ALIGN);
    }
    if (hits && apply)
        p->slot[s].offset -= ECH_ALIGN;
    return hits;
}

static bool small_slot(ech_program *p, int s, int b, bool apply)
{
    (void)b;
    if (p->slot[s].first < 0 || p->slot[s].bytes <= ECH_ALIGN)
        return false;
    if (apply)
        p->slot[s].bytes -= ECH_ALIGN;
    return true;
}

/* --- the table --- */

const mutant_operator mutant_operators[] = {
    {"drop an item", MUTANT_ITEM, false, drop_item},
    {"duplicate an item", MUTANT_ITEM, false, duplicate_item},
    {"swap dependent items", MUTANT_ITEM, false, swap_items},
    {"wait after the norm", MUTANT_ITEM, false, late_wait},
    {"data of another micro-batch", MUTANT_ITEM, false, data_of_other_micro},
    {"saved set of another micro-batch", MUTANT_ITEM, false, saved_of_other_micro},
    {"saved set of another layer", MUTANT_ITEM, false, saved_of_other_layer},
    {"linear inputs of another micro-batch", MUTANT_ITEM, false, linear_input_of_other_micro},
    {"linear inputs of another layer", MUTANT_ITEM, false, linear_input_of_other_layer},
    {"handed on by another micro-batch", MUTANT_ITEM, false, handed_on_of_other_micro},
    {"handed on by another layer", MUTANT_ITEM, false, handed_on_of_other_layer},
    {"activation gradient of another layer", MUTANT_ITEM, false, gradient_of_other_layer},
    {"input of another micro-batch", MUTANT_ITEM, false, input_of_other_micro},
    {"parameters of another layer", MUTANT_ITEM, false, params_of_other_layer},
    {"gradients of another layer", MUTANT_ITEM, false, grads_of_other_layer},
    {"moments of another layer", MUTANT_ITEM, false, moments_of_other_layer},
    {"half a message", MUTANT_ITEM, false, halve_message},
    {"drop an op", MUTANT_OP, false, drop_op},
    {"duplicate an op", MUTANT_OP, false, duplicate_op},
    {"swap dependent ops", MUTANT_OP, false, swap_ops},
    {"another axis", MUTANT_OP, false, other_axis},
    {"result declared whole", MUTANT_OP, false, declare_whole},
    {"operand declared by another map", MUTANT_OP, false, declare_other_map},
    {"result declared with another scale", MUTANT_OP, false, declare_other_scale},
    {"gradient x 1/2", MUTANT_OP, false, halve_gradient},
    {"gradient x 1/2, undeclared", MUTANT_OP, false, halve_gradient_silently},
    {"another parameter of that shape", MUTANT_OP, false, other_parameter},
    {"another temporary of that size", MUTANT_OP, false, other_temporary},
    {"optional operand left out", MUTANT_OP, false, drop_optional},
    {"constant x 1/2", MUTANT_OP, false, change_constant},
    {"rotation the other way", MUTANT_OP, false, turn_the_other_way},
    {"another cell", MUTANT_OP, false, other_cell},
    {"workspace on an operand", MUTANT_OP, false, workspace_on_operand},
    {"early free", MUTANT_SLOT, true, early_free},
    {"overlapping slots", MUTANT_SLOT, true, overlap},
    {"slot too small", MUTANT_SLOT, false, small_slot},
};
const int n_mutant_operators = (int)(sizeof mutant_operators / sizeof mutant_operators[0]);

/* Site number `site` of an operator, or how many there are (site < 0). */
static int walk(ech_program *p, const mutant_operator *op, int site, int *a, int *b)
{
    int n = 0;
    const int outer = op->scope == MUTANT_ITEM ? p->n_items
                      : op->scope == MUTANT_OP ? p->n_blocks
                                               : p->n_slots;
    for (int i = op->scope == MUTANT_SLOT ? p->n_state : 0; i < outer; i++)
        for (int k = 0; k < (op->scope == MUTANT_OP ? p->block[i].n_ops : 1); k++) {
            if (!op->put(p, i, k, false))
                continue;
            if (n++ != site)
                continue;
            *a = i;
            *b = k;
            return n;
        }
    return n;
}

int mutant_sites(const ech_program *p, const mutant_operator *op)
{
    int a;
    int b;
    ech_program view = *p; /* put only reads */
    return walk(&view, op, -1, &a, &b);
}

static void describe(const ech_program *p, const mutant_operator *op, int a, int b, char *where,
                     size_t n)
{
    if (op->scope == MUTANT_ITEM)
        (void)ech_item_describe(p, a, where, n);
    else if (op->scope == MUTANT_OP)
        (void)snprintf(where, n, "block '%s', op %d (%s)", p->block[a].name, b,
                       ech_op_name(p->block[a].op[b].kind));
    else
        (void)snprintf(where, n, "slot %d ('%s')", a, p->slot[a].name);
}

void mutant_make(const ech_program *p, const mutant_operator *op, int site, ech_program *out,
                 char *where, size_t n)
{
    int a = -1;
    int b = -1;
    mutant_copy(p, out);
    (void)walk(out, op, site, &a, &b);
    describe(p, op, a, b, where, n);
    (void)op->put(out, a, b, true);
    if (!op->after_placing)
        tiny_ok(ech_program_place(out, NULL), "placing a mutant");
}

const char *mutant_check_name(int check)
{
    if (check == N_MUTANT_CHECKS)
        return "nobody";
    return check == MUTANT_BY_SHAPE ? "shape"
                                    : ech_proof_name((ech_proof_part)(check - MUTANT_BY_PROOF));
}

static ech_status prove_shapes(const ech_program *p)
{
    for (int b = 0; b < p->n_blocks; b++)
        for (int k = 0; k < p->block[b].n_ops; k++)
            ECH_TRY(ech_op_check_shape(&p->block[b].op[k]));
    return ECH_OK;
}

ech_status mutant_prove_run(const ech_prove_spec *spec, int *by)
{
    ech_prove_report report;
    *by = MUTANT_BY_SHAPE;
    for (int c = 0; c < spec->n_classes; c++)
        ECH_TRY(prove_shapes(spec->program[c]));
    const ech_status st = ech_prove(spec, &report);
    for (*by = MUTANT_BY_PROOF; *by < N_MUTANT_CHECKS; ++*by)
        if (report.row[*by - MUTANT_BY_PROOF].verdict == ECH_PROOF_FAULT)
            break;
    return st;
}

ech_status mutant_prove(const ech_program *p, const ech_shard_plan *plan, int *by)
{
    const ech_prove_spec spec = {.program = &p, .n_classes = 1, .plan = &plan};
    return mutant_prove_run(&spec, by);
}
