/* The document of a program, from hostile hands: layout, slots, blocks, items. */
#include "base/io.h"
#include "base/node.h"
#include "program/op_signature.h"
#include "program/program_file.h"
#include "program/program_names.h"
#include "program/program_read_value.h"

#include <stdio.h>
#include <stdlib.h>

/* Bounds that keep every sum and product of the proof within 64 bits, and its work within what the
 * file's size suggests. */
#define MOST_BYTES (INT64_C(1) << 56)
#define MOST_ELEMS (INT64_C(1) << 48)
enum { MOST_COUNT = 1 << 20, MOST_OPS = 1 << 24 };

static const char *const op_names[] = {
#define NAME(kind, text) text,
    ECH_OP_LIST(NAME)
#undef NAME
};
static const char *const region_names[] = {
#define NAME(region, text) text,
    ECH_REGION_LIST(NAME)
#undef NAME
};
static const char *const axis_names[] = {
#define NAME(axis, text) text,
    ECH_AXIS_LIST(NAME)
#undef NAME
};
static const char *const space_names[] = {
#define NAME(space, text) text,
    ECH_SPACE_LIST(NAME)
#undef NAME
};
static const char *const class_names[] = {
#define NAME(klass, text) text,
    ECH_CLASS_LIST(NAME)
#undef NAME
};
static const char *const border_names[] = {
#define NAME(border, text) text,
    ECH_BORDER_LIST(NAME)
#undef NAME
};
static const char *const dtype_names[] = {
#define NAME(name, bytes, text, st) text,
    ECH_DTYPE_LIST(NAME)
#undef NAME
};
static const char *const cell_names[] = {
#define NAME(name, type, writer, reader) &#name[sizeof "ECH_CELL_" - 1],
    ECH_CELL_LIST(NAME)
#undef NAME
};
static const char *const segment_names[] = {"accumulate", "reduce", "commit"};

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* --- placements --- */

static ech_status read_place_over(const ech_reader *r, const ech_node *n, ech_place *out)
{
    int64_t dim;
    int map = 0;
    int kind = 0;
    if (n->kind == ECH_NODE_STRING) {
        ECH_TRY(ech_read_name(r, n, "place", ech_place_kind_names, ECH_N_PLACE_KINDS, &kind));
        if (kind == ECH_PLACE_SHARDED)
            return ech_read_fault(r, "place", "S lacks its dimension and map");
        *out = (ech_place){.kind = (ech_place_kind)kind};
        return ECH_OK;
    }
    ECH_TRY(ech_read_want_list(r, n, "place", 3));
    ECH_TRY(ech_read_name(r, n->child, "place", ech_place_kind_names, ECH_N_PLACE_KINDS, &kind));
    ECH_TRY(ech_read_int(r, n->child->next, "dimension", 0, ECH_MAX_DIMS - 1, &dim));
    ECH_TRY(
        ech_read_name(r, n->child->next->next, "map", ech_index_map_names, ECH_N_INDEX_MAPS, &map));
    if (kind != ECH_PLACE_SHARDED)
        return ech_read_fault(r, "place", "has a dimension and is not S");
    *out = (ech_place){ECH_PLACE_SHARDED, (int)dim, (ech_index_map)map};
    return ECH_OK;
}

static ech_status read_scale(const ech_reader *r, const ech_node *n, ech_scale *out)
{
    int64_t power[3];
    const ech_node *x;
    ECH_TRY(ech_read_want_list(r, n, "scale", 4));
    x = n->child;
    for (int i = 0; i < 3; i++, x = x->next)
        ECH_TRY(ech_read_int(r, x, "power", -8, 8, &power[i]));
    *out = (ech_scale){(int)power[0], (int)power[1], (int)power[2], 1.0};
    return ech_read_real(r, x, "factor", &out->factor);
}

static ech_status read_place(const ech_reader *r, const ech_node *map, ech_placement *out)
{
    int axis = 0;
    const ech_node *n = ech_node_find(map, "place");
    *out = ech_placement_invariant();
    if (!n)
        return ECH_OK;
    ECH_TRY(ECH_READ_KEYS(r, n, "over", "scale"));
    ECH_TRY(ech_read_want(r, ech_node_find(n, "over"), "over", ECH_NODE_MAP));
    for (const ech_node *x = ech_node_find(n, "over")->child; x; x = x->next) {
        ECH_TRY(ech_read_key(r, x, axis_names, ECH_N_AXES, &axis));
        ECH_TRY(read_place_over(r, x, &out->over[axis]));
    }
    return ech_node_find(n, "scale") ? read_scale(r, ech_node_find(n, "scale"), &out->scale)
                                     : ECH_OK;
}

/* --- layout --- */

static ech_status read_tree(const ech_reader *r, const ech_node *n, int degree, ech_tree *out)
{
    int factor[31];
    int k = 0;
    int64_t x;
    ECH_TRY(ech_read_want(r, n, "tree", ECH_NODE_LIST));
    for (const ech_node *f = n->child; f; f = f->next) {
        if (k == 31)
            return ech_read_fault(r, "tree", "has too many factors");
        ECH_TRY(ech_read_int(r, f, "factor", 2, ECH_MAX_WORLD, &x));
        factor[k++] = (int)x;
    }
    const ech_status st = ech_tree_make(factor, k, degree, out);
    return st < 0 ? ech_read_fault(r, "tree", "does not multiply to its degree") : ECH_OK;
}

static ech_status read_degrees(const ech_reader *r, const ech_node *n, ech_layout *l)
{
    int axis = 0;
    int64_t x;
    ECH_TRY(ech_read_want(r, n, "degrees", ECH_NODE_MAP));
    for (const ech_node *d = n->child; d; d = d->next) {
        ECH_TRY(ech_read_key(r, d, axis_names, ECH_N_AXES, &axis));
        ECH_TRY(ech_read_int(r, d, "degree", 1, ECH_MAX_WORLD, &x));
        l->degree[axis] = (int)x;
    }
    l->world = l->degree[ECH_AXIS_WORLD];
    return ECH_OK;
}

/* Ranks and coordinates are one to one; the other axes are match's to judge. */
static ech_status check_world(const ech_reader *r, const ech_layout *l)
{
    int64_t product = 1;
    bool seen[ECH_N_AXES] = {false};
    for (int k = 0; k < ECH_MESH_AXES; k++) {
        const ech_axis a = l->order[k];
        if (a != ECH_AXIS_TP && a != ECH_AXIS_CP && a != ECH_AXIS_DP && a != ECH_AXIS_HSDP &&
            a != ECH_AXIS_PP)
            return ech_read_fault(r, "order", "names an axis that is not of the mesh");
        if (seen[l->order[k]])
            return ech_read_fault(r, "order", "names an axis twice");
        seen[l->order[k]] = true;
        product *= l->degree[l->order[k]];
        if (product > ECH_MAX_WORLD)
            return ech_read_fault(r, "degrees", "multiply to more ranks than there may be");
    }
    return product == l->world ? ECH_OK
                               : ech_read_fault(r, "degrees", "do not multiply to the world");
}

/* Pipeline ranks; that the degree over tied is theirs is match's to judge. */
static ech_status read_tied(const ech_reader *r, const ech_node *n, ech_layout *l)
{
    int64_t tied[2] = {0, 0};
    if (n)
        ECH_TRY(ech_read_pair(r, n, "tied", 0, l->degree[ECH_AXIS_PP] - 1, tied));
    l->tied[0] = (int)tied[0];
    l->tied[1] = (int)tied[1];
    return ECH_OK;
}

static ech_status read_layout(ech_reader *r, const ech_node *n, ech_layout *l)
{
    int axis = 0;
    int k = 0;
    int64_t node = 0;
    const ech_node *order = ech_node_find(n, "order");
    const ech_node *trees = ech_node_find(n, "trees");
    *l = (ech_layout){0};
    for (int a = 0; a < ECH_N_AXES; a++)
        l->degree[a] = 1;
    ECH_TRY(ECH_READ_KEYS(r, n, "order", "tied", "degrees", "nested", "node_ranks", "trees"));
    ECH_TRY(ech_read_want_list(r, order, "order", ECH_MESH_AXES));
    for (const ech_node *x = order->child; x; x = x->next) {
        ECH_TRY(ech_read_name(r, x, "order", axis_names, ECH_N_AXES, &axis));
        l->order[k++] = (ech_axis)axis;
    }
    ECH_TRY(read_degrees(r, ech_node_find(n, "degrees"), l));
    ECH_TRY(check_world(r, l));
    ECH_TRY(read_tied(r, ech_node_find(n, "tied"), l));
    ECH_TRY(ech_read_bool(r, n, "nested", &l->is_nested));
    ECH_TRY(ech_read_int_or(r, n, "node_ranks", 0, l->world, &node));
    l->node_ranks = (int)node;
    if (node > 0 && l->world % node != 0)
        return ech_read_fault(r, "node_ranks", "do not divide the world");
    for (int a = 0; a < ECH_N_AXES; a++)
        l->tree[a] = ech_tree_default(l->degree[a]);
    if (trees)
        ECH_TRY(ech_read_want(r, trees, "trees", ECH_NODE_MAP));
    for (const ech_node *x = trees ? trees->child : NULL; x; x = x->next) {
        ECH_TRY(ech_read_key(r, x, axis_names, ECH_N_AXES, &axis));
        ECH_TRY(read_tree(r, x, l->degree[axis], &l->tree[axis]));
    }
    return ECH_OK;
}

/* --- slots --- */

static ech_status read_life(const ech_reader *r, const ech_node *n, ech_slot *s)
{
    int64_t life[2];
    ECH_TRY(ech_read_pair(r, ech_node_find(n, "life"), "life", -1, r->n_items - 1, life));
    if ((life[0] < 0) != (life[1] < 0) || life[0] > life[1])
        return ech_read_fault(r, "life", "ends before it begins");
    s->first = (int)life[0];
    s->last = (int)life[1];
    return ECH_OK;
}

/* Bytes of a micro-batch, and how many micro-batches take turns; a ring is whole. */
static ech_status read_element(const ech_reader *r, const ech_node *n, ech_slot *s)
{
    int64_t x[2];
    const ech_node *pair = ech_node_find(n, "element");
    if (!pair)
        return ECH_OK;
    ECH_TRY(ech_read_pair(r, pair, "element", 0, (int64_t)s->bytes, x));
    if (x[0] == 0 || x[1] > MOST_COUNT || (x[1] > 0 && (int64_t)s->bytes % x[0]) ||
        (x[1] > 0 && (int64_t)s->bytes / x[0] != x[1]))
        return ech_read_fault(r, "element", "is no part of the slot");
    s->micro_bytes = (size_t)x[0];
    s->ring = (int)x[1];
    return ECH_OK;
}

static ech_status read_slot(ech_reader *r, const ech_node *n)
{
    int64_t bytes = 0;
    int64_t offset = 0;
    int space = 0;
    int klass = 0;
    int id;
    ech_slot s = {0};
    ECH_TRY(ECH_READ_KEYS(r, n, "name", "space", "class", "state", "constant", "scratch", "copy",
                          "bytes", "offset", "life", "element", "place"));
    ECH_TRY(ech_read_text(r, n, "name", s.name, sizeof s.name));
    ECH_TRY(
        ech_read_name(r, ech_node_find(n, "space"), "space", space_names, ECH_N_SPACES, &space));
    ECH_TRY(
        ech_read_name(r, ech_node_find(n, "class"), "class", class_names, ECH_N_CLASSES, &klass));
    ECH_TRY(ech_read_bool(r, n, "state", &s.is_state));
    ECH_TRY(ech_read_bool(r, n, "constant", &s.is_constant));
    ECH_TRY(ech_read_bool(r, n, "scratch", &s.is_scratch));
    ECH_TRY(ech_read_bool(r, n, "copy", &s.is_copy));
    ECH_TRY(ech_read_int(r, ech_node_find(n, "bytes"), "bytes", 0, MOST_BYTES, &bytes));
    ECH_TRY(ech_read_int(r, ech_node_find(n, "offset"), "offset", 0, MOST_BYTES, &offset));
    ECH_TRY(read_place(r, n, &s.place));
    s.space = (ech_space)space;
    s.klass = (ech_class)klass;
    s.bytes = (size_t)bytes;
    s.offset = (size_t)offset;
    ECH_TRY(read_element(r, n, &s));
    if (s.is_state && r->p->n_state < r->p->n_slots)
        return ech_read_fault(r, "state", "comes after a transient slot");
    ECH_TRY(ech_program_add_slot(r->p, &s, &id));
    return read_life(r, n, &r->p->slot[id]);
}

/* --- blocks --- */

static ech_status read_dims(const ech_reader *r, const ech_node *n, ech_operand *a)
{
    int64_t elems = 1;
    ECH_TRY(ech_read_want(r, n, "dims", ECH_NODE_LIST));
    if (n->n > ECH_MAX_DIMS)
        return ech_read_fault(r, "dims", "are too many");
    for (const ech_node *d = n->child; d; d = d->next) {
        int64_t x = 0;
        ECH_TRY(ech_read_int(r, d, "dimension", 0, MOST_ELEMS, &x));
        a->dim[a->rank++] = (ech_dim){x, ECH_EXTENT_BOUND};
        if (x > MOST_ELEMS / elems)
            return ech_read_fault(r, "dims", "multiply to too many elements");
        elems *= x > 0 ? x : 1;
    }
    return ECH_OK;
}

static ech_status read_shift(const ech_reader *r, const ech_node *n, ech_shift *out)
{
    int axis = 0;
    int64_t bytes;
    if (!n)
        return ECH_OK;
    ECH_TRY(ech_read_want_list(r, n, "shift", 2));
    ECH_TRY(ech_read_name(r, n->child, "axis", axis_names, ECH_N_AXES, &axis));
    ECH_TRY(ech_read_int(r, n->child->next, "shift", 0, MOST_BYTES, &bytes));
    /* the last rank's bytes must be within reach of the others' */
    if (bytes > MOST_BYTES / r->p->layout.degree[axis])
        return ech_read_fault(r, "shift", "leaves what a slot may hold");
    *out = (ech_shift){(ech_axis)axis, (size_t)bytes};
    return ECH_OK;
}

static ech_status read_operand(const ech_reader *r, const ech_node *n, ech_operand *a)
{
    int region = 0;
    int dtype = 0;
    int cell = 0;
    int64_t at = 0;
    int64_t context = 0;
    const ech_node *extent = ech_node_find(n, "extent");
    ECH_TRY(
        ECH_READ_KEYS(r, n, "region", "context", "type", "at", "shift", "dims", "extent", "place"));
    ECH_TRY(ech_read_name(r, ech_node_find(n, "region"), "region", region_names, ECH_N_REGIONS,
                          &region));
    ECH_TRY(ech_read_name(r, ech_node_find(n, "type"), "type", dtype_names, ECH_N_DTYPES, &dtype));
    ECH_TRY(ech_read_int(r, ech_node_find(n, "at"), "at", 0, MOST_BYTES, &at));
    ECH_TRY(ech_read_int_or(r, n, "context", 0, 1, &context));
    ECH_TRY(read_dims(r, ech_node_find(n, "dims"), a));
    ECH_TRY(read_shift(r, ech_node_find(n, "shift"), &a->shift));
    ECH_TRY(read_place(r, n, &a->place));
    if (extent) {
        ECH_TRY(ech_read_name(r, extent, "extent", cell_names, ECH_N_CELLS, &cell));
        if (a->rank == 0)
            return ech_read_fault(r, "extent", "is of no dimension");
        a->dim[0].extent = cell;
    }
    if (region == ECH_REGION_NONE)
        return ech_read_fault(r, "region", "is none: an argument that is left out is null");
    a->region = (ech_region)region;
    a->dtype = (ech_dtype)dtype;
    a->offset = (size_t)at;
    a->context = (int)context;
    return ECH_OK;
}

static ech_status read_expr(const ech_reader *r, const ech_node *n, ech_expr *e)
{
    int depth = 0;
    ECH_TRY(ech_read_want(r, n, "attribute", ECH_NODE_LIST));
    for (const ech_node *x = n->child; x; x = x->next) {
        int op = 0;
        int axis = 0;
        int64_t value = 0;
        ECH_TRY(ech_read_want(r, x, "attribute", ECH_NODE_LIST));
        ECH_TRY(ech_read_name(r, x->child, "attribute", ech_expr_op_names, ECH_N_EXPR_OPS, &op));
        ECH_TRY(ech_read_want_list(r, x, "attribute",
                                   op == ECH_EXPR_CONST || op == ECH_EXPR_COORD ? 2 : 1));
        if (op == ECH_EXPR_CONST)
            ECH_TRY(ech_read_int(r, x->child->next, "constant", -MOST_BYTES, MOST_BYTES, &value));
        if (op == ECH_EXPR_COORD)
            ECH_TRY(ech_read_name(r, x->child->next, "axis", axis_names, ECH_N_AXES, &axis));
        depth += op >= ECH_EXPR_ADD ? -1 : 1;
        if (e->n == ECH_EXPR_NODES || depth < 1)
            return ech_read_fault(r, "attribute", "is too long or lacks operands");
        e->node[e->n].op = (ech_expr_op)op;
        e->node[e->n++].value = op == ECH_EXPR_COORD ? axis : value;
    }
    return depth == (e->n ? 1 : 0) ? ECH_OK : ech_read_fault(r, "attribute", "leaves values over");
}

static ech_status read_attributes(const ech_reader *r, const ech_node *n, ech_op *op)
{
    int k = 0;
    const ech_node *attr = ech_node_find(n, "attr");
    const ech_node *real = ech_node_find(n, "real");
    if (attr)
        ECH_TRY(ech_read_want(r, attr, "attr", ECH_NODE_LIST));
    if (real)
        ECH_TRY(ech_read_want(r, real, "real", ECH_NODE_LIST));
    if ((attr && attr->n > ECH_MAX_ATTRS) || (real && real->n > ECH_MAX_REALS))
        return ech_read_fault(r, "attr, real", "are too many");
    for (const ech_node *x = attr ? attr->child : NULL; x; x = x->next)
        ECH_TRY(read_expr(r, x, &op->attr[k++]));
    k = 0;
    for (const ech_node *x = real ? real->child : NULL; x; x = x->next)
        ECH_TRY(ech_read_real(r, x, "real", &op->real[k++]));
    return ECH_OK;
}

/* Accesses are the op table's; the workspace is no smaller than its cap. */
static ech_status complete_op(const ech_reader *r, ech_op *op)
{
    const ech_op_row *row = ech_op_row_get(op->kind);
    const ech_signature sig = ech_signature_read(op->kind);
    for (int i = 0; i < op->n_args && i < sig.n; i++)
        op->arg[i].access = sig.arg[i].access;
    const ech_status st = ech_op_check_shape(op);
    if (st < 0)
        return ech_error_prefix(st, "%s: %s: ", r->name, r->where);
    if (row->work_bytes && op->work_bytes < row->work_bytes(op))
        return ech_read_fault(r, ech_op_name(op->kind),
                              "has a smaller workspace than its kernel needs");
    return ECH_OK;
}

static ech_status read_op(const ech_reader *r, const ech_node *n, ech_op *op)
{
    int kind = 0;
    int axis = 0;
    int64_t request = 0;
    int64_t work[2] = {0};
    const ech_node *args = ech_node_find(n, "args");
    ECH_TRY(ECH_READ_KEYS(r, n, "op", "args", "attr", "real", "axis", "request", "work"));
    ECH_TRY(ech_read_name(r, ech_node_find(n, "op"), "op", op_names, ECH_N_OPS, &kind));
    *op = (ech_op){.kind = (ech_op_kind)kind};
    ECH_TRY(ech_read_want(r, args, "args", ECH_NODE_LIST));
    if (args->n > ECH_MAX_ARGS)
        return ech_read_fault(r, "args", "are too many");
    for (const ech_node *a = args->child; a; a = a->next) {
        ech_operand *out = &op->arg[op->n_args++];
        out->place = ech_placement_invariant();
        if (a->kind != ECH_NODE_NULL)
            ECH_TRY(read_operand(r, a, out));
    }
    ECH_TRY(read_attributes(r, n, op));
    if (ech_node_find(n, "axis"))
        ECH_TRY(ech_read_name(r, ech_node_find(n, "axis"), "axis", axis_names, ECH_N_AXES, &axis));
    ECH_TRY(ech_read_int_or(r, n, "request", 0, MOST_COUNT, &request));
    if (ech_node_find(n, "work"))
        ECH_TRY(ech_read_pair(r, ech_node_find(n, "work"), "work", 0, MOST_BYTES, work));
    op->axis = (ech_axis)axis;
    op->request = (int)request;
    op->work_offset = (size_t)work[0];
    op->work_bytes = (size_t)work[1];
    return complete_op(r, op);
}

static ech_status read_block_into(const ech_reader *r, const ech_node *n, ech_block *b)
{
    int role = 0;
    int region = 0;
    int64_t bytes;
    const ech_node *regions = ech_node_find(n, "regions");
    const ech_node *ops = ech_node_find(n, "ops");
    ECH_TRY(ECH_READ_KEYS(r, n, "name", "role", "regions", "ops"));
    ECH_TRY(ech_read_text(r, n, "name", b->name, sizeof b->name));
    ECH_TRY(ech_read_name(r, ech_node_find(n, "role"), "role", ech_role_names, ECH_N_ROLES, &role));
    b->role = (ech_role)role;
    ECH_TRY(ech_read_want(r, regions, "regions", ECH_NODE_MAP));
    for (const ech_node *x = regions->child; x; x = x->next) {
        ECH_TRY(ech_read_key(r, x, region_names, ECH_N_REGIONS, &region));
        ECH_TRY(ech_read_int(r, x, "region", 0, MOST_BYTES, &bytes));
        b->region_bytes[region] = (size_t)bytes;
    }
    ECH_TRY(ech_read_want(r, ops, "ops", ECH_NODE_LIST));
    for (const ech_node *x = ops->child; x; x = x->next) {
        ECH_TRY(ech_grow(&b->op, (size_t)b->n_ops, &b->capacity, sizeof *b->op));
        ECH_TRY(read_op(r, x, &b->op[b->n_ops]));
        b->n_ops++;
    }
    return ECH_OK;
}

static ech_status read_block(ech_reader *r, const ech_node *n)
{
    int id;
    ech_block b = {0};
    ech_status st = read_block_into(r, n, &b);
    if (st >= 0)
        st = ech_program_add_block(r->p, &b, &id);
    free(b.op); /* NULL where the program has taken it */
    return st;
}

/* --- items --- */

static ech_status read_bindings(const ech_reader *r, const ech_node *n, ech_item *it)
{
    int region = 0;
    int64_t view[2];
    ECH_TRY(ech_read_want(r, n, "bind", ECH_NODE_MAP));
    for (const ech_node *x = n->child; x; x = x->next) {
        ECH_TRY(ech_read_key(r, x, region_names, ECH_N_REGIONS, &region));
        ECH_TRY(ech_read_pair(r, x, "bind", 0, MOST_BYTES, view));
        if (view[0] >= r->p->n_slots)
            return ech_read_fault(r, x->key, "is bound to a slot that is not there");
        it->bind[region] = (ech_view){(int)view[0], (size_t)view[1]};
    }
    return ECH_OK;
}

/* The largest request of a communication op, over all items. */
static void note_requests(ech_reader *r, const ech_item *it)
{
    const ech_block *b = &r->p->block[it->block];
    for (int k = 0; k < b->n_ops; k++)
        if (ech_op_is_comm(b->op[k].kind) && it->request + b->op[k].request >= r->p->n_requests)
            r->p->n_requests = it->request + b->op[k].request + 1;
}

static ech_status read_item(ech_reader *r, const ech_node *n)
{
    int segment = 0;
    int64_t block = 0;
    int64_t layer = -1;
    int64_t chunk = 0;
    int64_t micro = -1;
    int64_t request = -1;
    ECH_TRY(ECH_READ_KEYS(r, n, "block", "layer", "chunk", "micro", "segment", "request", "bind"));
    ECH_TRY(ech_read_int(r, ech_node_find(n, "block"), "block", 0, r->p->n_blocks - 1, &block));
    ECH_TRY(ech_read_int_or(r, n, "layer", -1, MOST_COUNT, &layer));
    ECH_TRY(ech_read_int_or(r, n, "chunk", 0, MOST_COUNT, &chunk));
    ECH_TRY(ech_read_int_or(r, n, "micro", -1, r->p->micro_batches - 1, &micro));
    ECH_TRY(ech_read_int_or(r, n, "request", -1, MOST_COUNT, &request));
    ECH_TRY(ech_read_name(r, ech_node_find(n, "segment"), "segment", segment_names, ECH_N_SEGMENTS,
                          &segment));
    ech_item it = ech_item_make((int)block, (ech_segment)segment);
    it.layer = (int)layer;
    it.chunk = (int)chunk;
    it.micro = (int)micro;
    it.request = (int)request;
    ECH_TRY(read_bindings(r, ech_node_find(n, "bind"), &it));
    r->n_ops += r->p->block[block].n_ops;
    if (r->n_ops > MOST_OPS)
        return ech_read_fault(r, "block", "makes more ops than are looked at");
    const ech_status st = ech_program_add_item(r->p, &it);
    if (st < 0)
        return ech_error_prefix(st, "%s: ", r->name);
    note_requests(r, &it);
    return ECH_OK;
}

/* --- all of it --- */

typedef ech_status (*member_reader)(ech_reader *r, const ech_node *n);

static ech_status read_members(ech_reader *r, const ech_node *root, const char *key,
                               const char *what, member_reader read)
{
    int64_t k = 0;
    const ech_node *list = ech_node_find(root, key);
    ECH_TRY(ech_read_want(r, list, key, ECH_NODE_LIST));
    for (const ech_node *x = list->child; x; x = x->next) {
        (void)snprintf(r->where, sizeof r->where, "%s %lld", what, (long long)k++);
        ECH_TRY(read(r, x));
    }
    (void)snprintf(r->where, sizeof r->where, "program");
    return ECH_OK;
}

static ech_status read_sizes(const ech_reader *r, const ech_node *root, const char *key,
                             size_t out[ECH_N_SPACES])
{
    int s = 0;
    const ech_node *list = ech_node_find(root, key);
    ECH_TRY(ech_read_want_list(r, list, key, ECH_N_SPACES));
    for (const ech_node *x = list->child; x; x = x->next) {
        int64_t bytes = 0;
        ECH_TRY(ech_read_int(r, x, key, 0, MOST_BYTES, &bytes));
        out[s++] = (size_t)bytes;
    }
    return ECH_OK;
}

/* Items [first, end), times and step; they run no more micro-batches than there are. */
static ech_status read_repeat(ech_reader *r, const ech_node *root)
{
    int64_t x[4];
    int n = 0;
    const ech_node *list = ech_node_find(root, "repeat");
    if (!list)
        return ECH_OK;
    ECH_TRY(ech_read_want_list(r, list, "repeat", 4));
    for (const ech_node *k = list->child; k; k = k->next)
        ECH_TRY(ech_read_int(r, k, "repeat", 0, MOST_OPS, &x[n++]));
    if (x[0] >= x[1] || x[1] > r->n_items || x[2] < 1 || x[3] < 1 ||
        x[2] * x[3] > r->p->micro_batches)
        return ech_read_fault(r, "repeat",
                              "is no repetition of items for the micro-batches of the step");
    r->p->repeat = (ech_repeat){(int)x[0], (int)x[1], (int)x[2], (int)x[3]};
    return ECH_OK;
}

static ech_status read_head(ech_reader *r, const ech_node *root)
{
    int format = 0;
    int before = 0;
    int after = 0;
    int64_t micros = 0;
    char name[sizeof r->p->name];
    ech_layout layout;
    static const char *const formats[] = {ECH_PROGRAM_FORMAT};
    ECH_TRY(ECH_READ_KEYS(r, root, "format", "name", "layout", "micro_batches", "rows_per_micro",
                          "scalars", "before", "after", "repeat", "state_bytes", "transient_bytes",
                          "peak_live_bytes", "slots", "blocks", "items"));
    ECH_TRY(ech_read_name(r, ech_node_find(root, "format"), "format", formats, 1, &format));
    ECH_TRY(ech_read_text(r, root, "name", name, sizeof name));
    ECH_TRY(read_layout(r, ech_node_find(root, "layout"), &layout));
    ech_program_init(r->p, name, &layout);
    ECH_TRY(ech_read_want(r, ech_node_find(root, "items"), "items", ECH_NODE_LIST));
    r->n_items = ech_node_find(root, "items")->n;
    ECH_TRY(ech_read_int(r, ech_node_find(root, "micro_batches"), "micro_batches", 0, MOST_COUNT,
                         &micros));
    ECH_TRY(ech_read_int(r, ech_node_find(root, "rows_per_micro"), "rows_per_micro", 0, MOST_ELEMS,
                         &r->p->rows_per_micro));
    ECH_TRY(ech_read_name(r, ech_node_find(root, "before"), "before", border_names,
                          COUNT_OF(border_names), &before));
    ECH_TRY(ech_read_name(r, ech_node_find(root, "after"), "after", border_names,
                          COUNT_OF(border_names), &after));
    r->p->micro_batches = (int)micros;
    r->p->before = (ech_border)before;
    r->p->after = (ech_border)after;
    ECH_TRY(read_repeat(r, root));
    ECH_TRY(read_sizes(r, root, "state_bytes", r->p->state_bytes));
    ECH_TRY(read_sizes(r, root, "transient_bytes", r->p->transient_bytes));
    return read_sizes(r, root, "peak_live_bytes", r->p->peak_live_bytes);
}

static ech_status read_root(ech_reader *r, const ech_node *root)
{
    int64_t scalars = -1;
    ECH_TRY(read_head(r, root));
    ECH_TRY(read_members(r, root, "slots", "slot", read_slot));
    ECH_TRY(ech_read_int(r, ech_node_find(root, "scalars"), "scalars", -1, r->p->n_state - 1,
                         &scalars));
    r->p->scalars = (int)scalars;
    ECH_TRY(read_members(r, root, "blocks", "block", read_block));
    return read_members(r, root, "items", "item", read_item);
}

static ech_status read_tree_of(const ech_node *root, const char *name, ech_program *out)
{
    ech_program p = {0};
    ech_reader r = {.name = name, .where = "program", .p = &p};
    const ech_status st = read_root(&r, root);
    if (st < 0)
        ech_program_fini(&p);
    else
        *out = p;
    return st;
}

ech_status ech_program_read(const char *text, size_t bytes, const char *name, ech_program *out)
{
    ech_node *root;
    ECH_TRY(ech_node_parse_json(text, bytes, name, &root));
    const ech_status st = read_tree_of(root, name, out);
    ech_node_destroy(&root);
    return st;
}

ech_status ech_program_load(const char *path, ech_program *out)
{
    ech_node *root;
    ECH_TRY(ech_node_read_file(path, true, &root));
    const ech_status st = read_tree_of(root, path, out);
    ech_node_destroy(&root);
    return st;
}
