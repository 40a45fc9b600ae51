#include "base/io.h"
#include "program/program_file.h"
#include "program/program_names.h"

#include <inttypes.h>
#include <string.h>

const char *const ech_role_names[ECH_N_ROLES] = {
    [ECH_ROLE_FORWARD] = "forward",
    [ECH_ROLE_BACKWARD] = "backward",
    [ECH_ROLE_BACKWARD_INPUT] = "backward input",
    [ECH_ROLE_BACKWARD_WEIGHT] = "backward weight",
    [ECH_ROLE_RECOMPUTE] = "recompute",
    [ECH_ROLE_UPDATE] = "update",
    [ECH_ROLE_TRANSFER] = "transfer",
    [ECH_ROLE_HOST_SCALARS] = "scalars",
};
const char *const ech_place_kind_names[ECH_N_PLACE_KINDS] = {
    [ECH_PLACE_INVARIANT] = "I", [ECH_PLACE_REPLICATED] = "R",     [ECH_PLACE_SHARDED] = "S",
    [ECH_PLACE_PARTIAL] = "P",   [ECH_PLACE_PARTIAL_MAX] = "Pmax", [ECH_PLACE_UNRELATED] = "V",
};
const char *const ech_index_map_names[ECH_N_INDEX_MAPS] = {
    [ECH_MAP_SEQUENCES] = "sequences", [ECH_MAP_CONTIGUOUS] = "contiguous",
    [ECH_MAP_ZIGZAG] = "zigzag",       [ECH_MAP_HEAD_GROUP] = "head_group",
    [ECH_MAP_GATE_UP] = "gate_up",     [ECH_MAP_FLAT] = "flat",
    [ECH_MAP_SLICES] = "slices",
};
const char *const ech_expr_op_names[ECH_N_EXPR_OPS] = {
    [ECH_EXPR_CONST] = "const", [ECH_EXPR_COORD] = "coord", [ECH_EXPR_MICRO] = "micro",
    [ECH_EXPR_ADD] = "add",     [ECH_EXPR_MUL] = "mul",     [ECH_EXPR_DIV] = "div",
    [ECH_EXPR_MOD] = "mod",     [ECH_EXPR_MIN] = "min",     [ECH_EXPR_LE] = "le",
};

/* A name that is added there is wanted here too. */
_Static_assert((int)ECH_ROLE_HOST_SCALARS + 1 == ECH_N_ROLES, "a role without a name");
_Static_assert((int)ECH_PLACE_UNRELATED + 1 == ECH_N_PLACE_KINDS, "a placement without a name");
_Static_assert((int)ECH_MAP_SLICES + 1 == ECH_N_INDEX_MAPS, "a map without a name");
_Static_assert((int)ECH_EXPR_LE + 1 == ECH_N_EXPR_OPS, "a node without a name");

/* --- small things --- */

static void add_string(ech_text *t, const char *key, const char *s)
{
    ech_text_add(t, "\"%s\": ", key);
    ech_text_add_json_string(t, s, strlen(s));
}

static void add_sizes(ech_text *t, const char *key, const size_t bytes[ECH_N_SPACES])
{
    ech_text_add(t, ", \"%s\": [", key);
    for (int s = 0; s < ECH_N_SPACES; s++)
        ech_text_add(t, "%s%zu", s ? ", " : "", bytes[s]);
    ech_text_add(t, "]");
}

static void write_place(const ech_placement *p, ech_text *t)
{
    const ech_placement usual = ech_placement_invariant();
    const char *comma = "";
    if (ech_placement_is_equal(p, &usual))
        return;
    ech_text_add(t, ", \"place\": {\"over\": {");
    for (int a = 0; a < ECH_N_AXES; a++) {
        const ech_place *x = &p->over[a];
        if (x->kind == ECH_PLACE_INVARIANT)
            continue;
        ech_text_add(t, "%s\"%s\": ", comma, ech_axis_name((ech_axis)a));
        comma = ", ";
        if (x->kind == ECH_PLACE_SHARDED)
            ech_text_add(t, "[\"S\", %d, \"%s\"]", x->dim, ech_index_map_names[x->map]);
        else
            ech_text_add(t, "\"%s\"", ech_place_kind_names[x->kind]);
    }
    ech_text_add(t, "}, \"scale\": [%d, %d, %d, ", p->scale.loss_scale, p->scale.per_token,
                 p->scale.aux);
    ech_text_add_double(t, p->scale.factor);
    ech_text_add(t, "]}");
}

/* --- layout, slots --- */

static void write_layout(const ech_layout *l, ech_text *t)
{
    ech_text_add(t, ",\n \"layout\": {\"order\": [");
    for (int k = 0; k < ECH_MESH_AXES; k++)
        ech_text_add(t, "%s\"%s\"", k ? ", " : "", ech_axis_name(l->order[k]));
    ech_text_add(t, "], \"tied\": [%d, %d], \"degrees\": {", l->tied[0], l->tied[1]);
    for (int a = 0; a < ECH_N_AXES; a++)
        ech_text_add(t, "%s\"%s\": %d", a ? ", " : "", ech_axis_name((ech_axis)a), l->degree[a]);
    ech_text_add(t, "}, \"nested\": %s, \"node_ranks\": %d, \"trees\": {",
                 l->is_nested ? "true" : "false", l->node_ranks);
    for (int a = 0; a < ECH_N_AXES; a++) {
        ech_text_add(t, "%s\"%s\": [", a ? ", " : "", ech_axis_name((ech_axis)a));
        for (int k = 0; k < l->tree[a].n; k++)
            ech_text_add(t, "%s%d", k ? ", " : "", l->tree[a].factor[k]);
        ech_text_add(t, "]");
    }
    ech_text_add(t, "}}");
}

static void write_slot(const ech_slot *s, ech_text *t)
{
    ech_text_add(t, "{");
    add_string(t, "name", s->name);
    ech_text_add(t, ", \"space\": \"%s\", \"class\": \"%s\"", ech_space_name(s->space),
                 ech_class_name(s->klass));
    ech_text_add(t, "%s%s%s%s", s->is_state ? ", \"state\": true" : "",
                 s->is_constant ? ", \"constant\": true" : "",
                 s->is_scratch ? ", \"scratch\": true" : "", s->is_copy ? ", \"copy\": true" : "");
    ech_text_add(t, ", \"bytes\": %zu, \"offset\": %zu, \"life\": [%d, %d]", s->bytes, s->offset,
                 s->first, s->last);
    if (s->micro_bytes)
        ech_text_add(t, ", \"element\": [%zu, %d]", s->micro_bytes, s->ring);
    write_place(&s->place, t);
    ech_text_add(t, "}");
}

/* --- blocks --- */

static void write_operand(const ech_operand *a, ech_text *t)
{
    if (a->region == ECH_REGION_NONE) {
        ech_text_add(t, "null");
        return;
    }
    ech_text_add(t, "{\"region\": \"%s\", \"type\": \"%s\", \"at\": %zu, \"dims\": [",
                 ech_region_name(a->region), ech_dtype_name(a->dtype), a->offset);
    for (int d = 0; d < a->rank; d++)
        ech_text_add(t, "%s%" PRId64, d ? ", " : "", a->dim[d].bound);
    ech_text_add(t, "]");
    if (a->context)
        ech_text_add(t, ", \"context\": %d", a->context);
    if (a->shift.bytes)
        ech_text_add(t, ", \"shift\": [\"%s\", %zu]", ech_axis_name(a->shift.axis), a->shift.bytes);
    if (ech_operand_extent(a) != ECH_EXTENT_BOUND)
        ech_text_add(t, ", \"extent\": \"%s\"", ech_cell_name((ech_cell)a->dim[0].extent));
    write_place(&a->place, t);
    ech_text_add(t, "}");
}

static void write_expr(const ech_expr *e, ech_text *t)
{
    ech_text_add(t, "[");
    for (int i = 0; i < e->n; i++) {
        const ech_expr_op op = e->node[i].op;
        ech_text_add(t, "%s[\"%s\"", i ? ", " : "", ech_expr_op_names[op]);
        if (op == ECH_EXPR_CONST)
            ech_text_add(t, ", %" PRId64, e->node[i].value);
        if (op == ECH_EXPR_COORD)
            ech_text_add(t, ", \"%s\"", ech_axis_name((ech_axis)e->node[i].value));
        ech_text_add(t, "]");
    }
    ech_text_add(t, "]");
}

static void write_attributes(const ech_op *op, ech_text *t)
{
    int attrs = ECH_MAX_ATTRS;
    int reals = ECH_MAX_REALS;
    while (attrs > 0 && !op->attr[attrs - 1].n)
        attrs--;
    while (reals > 0 && op->real[reals - 1] == 0.0)
        reals--;
    for (int i = 0; i < attrs; i++) {
        ech_text_add(t, i ? ", " : ", \"attr\": [");
        write_expr(&op->attr[i], t);
    }
    ech_text_add(t, attrs ? "]" : "");
    for (int i = 0; i < reals; i++) {
        ech_text_add(t, i ? ", " : ", \"real\": [");
        ech_text_add_double(t, op->real[i]);
    }
    ech_text_add(t, reals ? "]" : "");
}

static void write_op(const ech_op *op, ech_text *t)
{
    ech_text_add(t, "{\"op\": \"%s\", \"args\": [", ech_op_name(op->kind));
    for (int i = 0; i < op->n_args; i++) {
        ech_text_add(t, "%s", i ? ", " : "");
        write_operand(&op->arg[i], t);
    }
    ech_text_add(t, "]");
    write_attributes(op, t);
    if (ech_op_is_comm(op->kind) || op->axis)
        ech_text_add(t, ", \"axis\": \"%s\"", ech_axis_name(op->axis));
    if (op->request)
        ech_text_add(t, ", \"request\": %d", op->request);
    if (op->work_bytes || op->work_offset)
        ech_text_add(t, ", \"work\": [%zu, %zu]", op->work_offset, op->work_bytes);
    ech_text_add(t, "}");
}

static void write_block(const ech_block *b, ech_text *t)
{
    const char *comma = "";
    ech_text_add(t, "{");
    add_string(t, "name", b->name);
    ech_text_add(t, ", \"role\": \"%s\", \"regions\": {", ech_role_names[b->role]);
    for (int r = 0; r < ECH_N_REGIONS; r++) {
        if (!b->region_bytes[r])
            continue;
        ech_text_add(t, "%s\"%s\": %zu", comma, ech_region_name((ech_region)r), b->region_bytes[r]);
        comma = ", ";
    }
    ech_text_add(t, "}, \"ops\": [");
    for (int k = 0; k < b->n_ops; k++) {
        ech_text_add(t, k ? ",\n    " : "\n    ");
        write_op(&b->op[k], t);
    }
    ech_text_add(t, "]}");
}

/* --- items --- */

static void write_item(const ech_item *it, ech_text *t)
{
    const char *comma = "";
    ech_text_add(t, "{\"block\": %d", it->block);
    if (it->layer >= 0)
        ech_text_add(t, ", \"layer\": %d", it->layer);
    if (it->chunk)
        ech_text_add(t, ", \"chunk\": %d", it->chunk);
    if (it->micro >= 0)
        ech_text_add(t, ", \"micro\": %d", it->micro);
    ech_text_add(t, ", \"segment\": \"%s\"", ech_segment_name(it->segment));
    if (it->request >= 0)
        ech_text_add(t, ", \"request\": %d", it->request);
    ech_text_add(t, ", \"bind\": {");
    for (int r = 0; r < ECH_N_REGIONS; r++) {
        if (it->bind[r].slot < 0)
            continue;
        ech_text_add(t, "%s\"%s\": [%d, %zu]", comma, ech_region_name((ech_region)r),
                     it->bind[r].slot, it->bind[r].offset);
        comma = ", ";
    }
    ech_text_add(t, "}}");
}

void ech_program_write(const ech_program *p, ech_text *t)
{
    ech_text_add(t, "{\"format\": \"%s\", ", ECH_PROGRAM_FORMAT);
    add_string(t, "name", p->name);
    write_layout(&p->layout, t);
    ech_text_add(t, ",\n \"micro_batches\": %d, \"rows_per_micro\": %" PRId64 ", \"scalars\": %d",
                 p->micro_batches, p->rows_per_micro, p->scalars);
    ech_text_add(t, ", \"before\": \"%s\", \"after\": \"%s\"", ech_border_name(p->before),
                 ech_border_name(p->after));
    if (p->repeat.times)
        ech_text_add(t, ", \"repeat\": [%d, %d, %d, %d]", p->repeat.first, p->repeat.end,
                     p->repeat.times, p->repeat.step);
    add_sizes(t, "state_bytes", p->state_bytes);
    add_sizes(t, "transient_bytes", p->transient_bytes);
    add_sizes(t, "peak_live_bytes", p->peak_live_bytes);
    for (int i = 0; i < p->n_slots; i++) {
        ech_text_add(t, i ? ",\n  " : ",\n \"slots\": [\n  ");
        write_slot(&p->slot[i], t);
    }
    ech_text_add(t, p->n_slots ? "]" : ",\n \"slots\": []");
    for (int i = 0; i < p->n_blocks; i++) {
        ech_text_add(t, i ? ",\n  " : ",\n \"blocks\": [\n  ");
        write_block(&p->block[i], t);
    }
    ech_text_add(t, p->n_blocks ? "]" : ",\n \"blocks\": []");
    for (int i = 0; i < p->n_items; i++) {
        ech_text_add(t, i ? ",\n  " : ",\n \"items\": [\n  ");
        write_item(&p->item[i], t);
    }
    ech_text_add(t, p->n_items ? "]}\n" : ",\n \"items\": []}\n");
}

ech_status ech_program_save(const ech_program *p, const char *path)
{
    ech_text t = {0};
    ech_program_write(p, &t);
    const ech_status st = t.failed ? ECH_RAISE(ECH_E_NOMEM, "no memory for program '%s'", p->name)
                                   : ech_write_whole(path, t.data, t.bytes);
    ech_text_fini(&t);
    return st;
}
