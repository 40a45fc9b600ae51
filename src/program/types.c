/* Follows the placement of every byte of every slot through the step. */
#include "program/types.h"
#include "program/interval.h"
#include "program/op_law.h"
#include "program/op_signature.h"
#include "program/repeat.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What is known of a byte: its placement (an index into the table of placements seen, or a mark),
 * how it was used, and the item that wrote it last (-1: it came with the step). */
enum { TYPE, USES, WRITER };
enum { UNWRITTEN = -1, ZEROED = -2 };

/* Uses: by how many updates and norms (of the step), and since it was written. */
enum { UPDATE = 1, UPDATES = 0xff, NORM = 0x100, NORMS = 0xff00, IS_READ = 0x10000 };

typedef struct checker {
    const ech_program *p;
    ech_interval_map *map; /* one per slot */
    ech_placement *type;   /* distinct placements met */
    int n_types;
    size_t types_capacity;
    bool *is_placed; /* [n_blocks] the block's ops follow their placement rules */
    int item;
    bool makes_gradients; /* something but a zero was written into a gradient */
    bool has_norm;
    ech_rounds_memory before; /* rounds: what was known a round ago */
} checker;

/* An argument of an op of the current item, and the segment of its slot that is looked at. */
typedef struct use {
    const ech_op *op;
    const ech_sig_arg *sig;
    int arg;
    int slot;
    const ech_bytes_segment *seg;
} use;

static ech_status intern(checker *c, const ech_placement *place, int *id)
{
    for (int i = 0; i < c->n_types; i++)
        if (ech_placement_is_equal(&c->type[i], place)) {
            *id = i;
            return ECH_OK;
        }
    ECH_TRY(ech_grow(&c->type, (size_t)c->n_types, &c->types_capacity, sizeof *c->type));
    c->type[c->n_types] = *place;
    *id = c->n_types++;
    return ECH_OK;
}

static ech_status fault(const checker *c, const use *u, const char *why)
{
    char where[128];
    char by[160] = "";
    char writer[128];
    if (u->seg->value[WRITER] >= 0)
        (void)snprintf(by, sizeof by, ", written by %s,",
                       ech_item_describe(c->p, u->seg->value[WRITER], writer, sizeof writer));
    return ECH_RAISE(ECH_E_PROOF, "%s, op %s, argument %d: bytes %zu..%zu of '%s'%s %s",
                     ech_item_describe(c->p, c->item, where, sizeof where),
                     ech_op_name(u->op->kind), u->arg, u->seg->begin, u->seg->end,
                     c->p->slot[u->slot].name, by, why);
}

static bool is_whole(ech_place p)
{
    return p.kind == ECH_PLACE_INVARIANT || p.kind == ECH_PLACE_REPLICATED;
}

/* Two views of a tensor, as [N, 2, F] and [N, 2 F], name the dimension of one cut differently. */
static bool is_of_views(ech_index_map map)
{
    return map == ECH_MAP_GATE_UP || map == ECH_MAP_HEAD_GROUP || map == ECH_MAP_SEQUENCES;
}

/* Bytes of several tensors say no more than that each is cut its own way. */
static bool is_bytes(ech_index_map a, ech_index_map b)
{
    const bool a_is = a == ECH_MAP_SLICES;
    const ech_index_map other = a_is ? b : a;
    return (a_is || b == ECH_MAP_SLICES) &&
           (other == ECH_MAP_SLICES || other == ECH_MAP_CONTIGUOUS || is_of_views(other));
}

/* May bytes of placement `have` be read as `want`?  A parameter is stored I and used R (the marker
 * whose transpose is the gradient's reduction); a whole value may be read by either name. */
static bool reads_as(ech_place have, ech_place want)
{
    if (have.kind == ECH_PLACE_SHARDED && want.kind == ECH_PLACE_SHARDED)
        return have.map == want.map ? have.dim == want.dim || is_of_views(have.map)
                                    : is_bytes(have.map, want.map);
    return ech_place_is_equal(have, want) || (is_whole(have) && is_whole(want));
}

/* Why not: what was forgotten, or done twice.  Into buf; returns buf. */
static const char *hint(const ech_op *op, int x, ech_place have, ech_place want, char buf[128])
{
    buf[0] = '\0';
    if (is_whole(have) && want.kind == ECH_PLACE_PARTIAL && ech_op_row_get(op->kind)->is_start)
        (void)snprintf(buf, 128,
                       ": it would be multiplied by the group's size (reduced twice, or over the "
                       "wrong axis)");
    if (have.kind == ECH_PLACE_PARTIAL && is_whole(want))
        (void)snprintf(buf, 128, ": it was not reduced there");
    if (have.kind == ECH_PLACE_UNRELATED && is_whole(want))
        (void)snprintf(buf, 128, ": each %s has its own, it was not summed over %s",
                       x == ECH_AXIS_PP ? "stage" : "rank", ech_axis_name((ech_axis)x));
    return buf;
}

static bool is_sum(ech_op_kind kind)
{
    return kind == ECH_OP_ALL_REDUCE_START || kind == ECH_OP_REDUCE_SCATTER_START ||
           kind == ECH_OP_REDUCE_SCATTER_WAIT || kind == ECH_OP_SUM_SMALL_START ||
           kind == ECH_OP_SUM_SMALL_WAIT;
}

/* What each rank has of its own is its summand in a sum over that axis. */
static bool is_summand(const ech_op *op, int x, ech_place have, ech_place want)
{
    return have.kind == ECH_PLACE_UNRELATED && want.kind == ECH_PLACE_PARTIAL && is_sum(op->kind) &&
           ech_axis_contains(op->axis, (ech_axis)x);
}

/* Over which axes an op makes a change of its own to what it reads and writes: an all-reduce over its
 * axis and those within it, a spread of summed keys and values over theirs. */
static bool changes(const ech_op *op, const ech_operand *a, ech_axis axis)
{
    const bool is_change = ech_op_row_get(op->kind)->is_wait || op->kind == ECH_OP_KV_SPREAD;
    return is_change && (a->access & ECH_WRITE) && ech_axis_contains(op->axis, axis);
}

/* A rank's own share of a value that it holds whole: shares lie one after the other. */
static bool takes_share(const ech_operand *a, ech_axis axis, ech_place have)
{
    const ech_place want = a->place.over[axis];
    return a->shift.bytes == ech_operand_bytes(a) && a->shift.axis == axis && is_whole(have) &&
           want.kind == ECH_PLACE_SHARDED && want.dim == 0 &&
           (want.map == ECH_MAP_CONTIGUOUS || want.map == ECH_MAP_FLAT);
}

/* A stage's use of the token table that two stages hold is its own: so is all that it makes of it,
 * and its gradient. */
static bool is_tied_use(const ech_operand *a, int x, ech_place have)
{
    return x == ECH_AXIS_TIED && a->region == ECH_REGION_PARAM_TIED && is_whole(have) &&
           a->place.over[x].kind == ECH_PLACE_UNRELATED;
}

static ech_status check_read(const checker *c, const use *u)
{
    char have[32];
    char want[32];
    char because[128];
    char why[256];
    const ech_operand *a = &u->op->arg[u->arg];
    for (int x = 0; x < ECH_N_AXES; x++) {
        const ech_place is = c->type[u->seg->value[TYPE]].over[x];
        if (changes(u->op, a, (ech_axis)x) || reads_as(is, a->place.over[x]) ||
            takes_share(a, (ech_axis)x, is) || is_summand(u->op, x, is, a->place.over[x]) ||
            is_tied_use(a, x, is))
            continue;
        (void)snprintf(why, sizeof why, "hold a value that is %s over %s, wanted %s%s",
                       ech_place_format(is, have, sizeof have), ech_axis_name((ech_axis)x),
                       ech_place_format(a->place.over[x], want, sizeof want),
                       hint(u->op, x, is, a->place.over[x], because));
        return fault(c, u, why);
    }
    return ECH_OK;
}

static ech_status check_scale(const checker *c, const use *u)
{
    char have[96];
    char want[96];
    char why[256];
    const ech_scale is = c->type[u->seg->value[TYPE]].scale;
    ech_scale wanted = u->op->arg[u->arg].place.scale;
    if (u->op->kind == ECH_OP_XENT_BACKWARD && u->arg == 0)
        return ECH_OK; /* logits go in, their gradient comes out */
    if (u->op->kind == ECH_OP_SCALE)
        wanted.factor /= u->op->real[0];
    if (ech_scale_is_equal(is, wanted))
        return ECH_OK;
    (void)snprintf(why, sizeof why, "hold a value of scale %s, wanted %s",
                   ech_scale_format(is, have, sizeof have),
                   ech_scale_format(wanted, want, sizeof want));
    return fault(c, u, why);
}

/* A vector that is dealt out in flat ranges is padded at its end by less than an element a rank. */
static bool is_padding(const checker *c, const use *u)
{
    const ech_op *op = u->op;
    const ech_operand *a = &op->arg[u->arg];
    const bool scatters =
        op->kind == ECH_OP_REDUCE_SCATTER_START || op->kind == ECH_OP_REDUCE_SCATTER_WAIT;
    const ech_extent e = ech_item_extent(c->p, &c->p->item[c->item], a);
    const size_t most = ((size_t)c->p->layout.degree[op->axis] - 1) * ech_dtype_bytes(a->dtype);
    return scatters && u->arg == 0 && u->seg->end == e.end && e.end - u->seg->begin <= most;
}

/* A stage that has nothing of a sum over pp adds the zero it was given. */
static bool adds_nothing(const use *u)
{
    const ech_place_kind over_pp = u->op->arg[u->arg].place.over[ECH_AXIS_PP].kind;
    return u->arg == 0 &&
           (u->op->kind == ECH_OP_SUM_SMALL_START || u->op->kind == ECH_OP_SUM_SMALL_WAIT) &&
           (over_pp == ECH_PLACE_PARTIAL || over_pp == ECH_PLACE_UNRELATED);
}

/* Reading or accumulating into one segment. */
static ech_status check_segment(const checker *c, const use *u)
{
    const int type = u->seg->value[TYPE];
    const bool adds = u->sig->is_sum;
    if (type == UNWRITTEN)
        return fault(c, u,
                     adds ? "are accumulated into, but nobody has written them"
                          : "are read, but nobody has written them");
    if (type == ZEROED)
        return adds || is_padding(c, u) || adds_nothing(u)
                   ? ECH_OK
                   : fault(c, u, "are read, but are zeros to which nothing was added");
    ECH_TRY(check_read(c, u));
    return check_scale(c, u);
}

static bool is_update(ech_op_kind kind)
{
    return kind == ECH_OP_ADAMW || kind == ECH_OP_SGD;
}

static bool is_between_stages(const ech_program *p, const ech_item *it)
{
    const ech_op_kind kind = p->block[it->block].op[0].kind;
    return kind == ECH_OP_SEND_START || kind == ECH_OP_SEND_WAIT || kind == ECH_OP_RECV_START ||
           kind == ECH_OP_RECV_WAIT;
}

/* What is sent is of the chunk and micro-batch that it is sent for; what was received is used by
 * those it was received for. */
static ech_status check_message(const checker *c, const use *u, const ech_item *was)
{
    const ech_item *is = &c->p->item[c->item];
    if (!is_between_stages(c->p, is) && !is_between_stages(c->p, was))
        return ECH_OK;
    if (was->micro != is->micro || was->chunk != is->chunk)
        return fault(c, u, "pass between stages as another chunk's or micro-batch's");
    return ECH_OK;
}

/* A saved set is its own layer's and micro-batch's, an activation its own micro-batch's. */
static ech_status check_writer(const checker *c, const use *u)
{
    const int writer = u->seg->value[WRITER];
    const ech_item *is = &c->p->item[c->item];
    const ech_item *was = writer < 0 ? is : &c->p->item[writer];
    ECH_TRY(check_message(c, u, was));
    switch (u->op->arg[u->arg].region) {
    case ECH_REGION_SAVED_FB:
    case ECH_REGION_SAVED_FW:
    case ECH_REGION_SAVED_BW:
        if (was->layer != is->layer || was->chunk != is->chunk || was->micro != is->micro)
            return fault(c, u, "are another layer's or micro-batch's saved set");
        return ECH_OK;
    case ECH_REGION_IN:
    case ECH_REGION_DOUT:
        if (was->micro != is->micro && was->micro >= 0 && is->micro >= 0)
            return fault(c, u, "are another micro-batch's activation");
        return ECH_OK;
    default:
        return ECH_OK;
    }
}

/* A gradient that a reduce-scatter brought to a transient slot, to be added to those before. */
static bool has_landed(const checker *c, int slot, const int *value)
{
    if (slot < c->p->n_state || value[WRITER] < 0 || value[TYPE] < 0 ||
        !ech_scale_is_equal(c->type[value[TYPE]].scale, ech_grad_scale())) /* staging has none */
        return false;
    const ech_block *b = &c->p->block[c->p->item[value[WRITER]].block];
    return b->op[0].kind == ECH_OP_REDUCE_SCATTER_WAIT;
}

/* A sum is complete when it is read, and what has landed is added once. */
static ech_status note_read(const checker *c, const use *u, int *value)
{
    if (u->sig->is_sum)
        return value[USES] & IS_READ ? fault(c, u, "are accumulated into after they were read")
                                     : ECH_OK;
    if (value[USES] & IS_READ && has_landed(c, u->slot, value))
        return fault(c, u, "are a micro-batch's gradient that is used twice");
    value[USES] |= IS_READ;
    return ECH_OK;
}

/* Every gradient is measured by one norm; it, its parameter and moments are used by one update. */
static ech_status note_use(checker *c, const use *u, int *value)
{
    if (u->op->kind == ECH_OP_SUMSQ && u->arg == 0) {
        c->has_norm = true;
        value[USES] += NORM;
        if (c->p->slot[u->slot].is_copy)
            return fault(c, u, "are a copy's gradient, which another stage measures");
        return (value[USES] & NORMS) > NORM ? fault(c, u, "are measured twice in a step") : ECH_OK;
    }
    if (!is_update(u->op->kind) || !u->sig->is_any)
        return ECH_OK;
    value[USES] += UPDATE;
    if ((value[USES] & UPDATES) == UPDATE)
        return ECH_OK;
    return fault(c, u,
                 u->arg == 0   ? "are a parameter that is updated twice in a step"
                 : u->arg == 1 ? "are a gradient that two updates use"
                               : "are optimizer state that two updates use");
}

/* Does an argument of the op read what another one writes. */
static bool reads_too(const checker *c, const ech_op *op, const ech_bytes_segment *seg, int slot)
{
    for (int i = 0; i < op->n_args; i++) {
        const ech_extent e = ech_item_extent(c->p, &c->p->item[c->item], &op->arg[i]);
        if ((op->arg[i].access & ECH_READ) && e.slot == slot && e.begin <= seg->begin &&
            seg->end <= e.end)
            return true;
    }
    return false;
}

static ech_status visit_segment(checker *c, const use *u, int *value, int type)
{
    const ech_op *op = u->op;
    if (op->arg[u->arg].access & ECH_READ) {
        ECH_TRY(check_segment(c, u));
        ECH_TRY(check_writer(c, u));
        ECH_TRY(note_read(c, u, value));
    }
    ECH_TRY(note_use(c, u, value));
    if (type == UNWRITTEN)
        return ECH_OK;
    if (c->p->slot[u->slot].klass == ECH_CLASS_GRADS && value[TYPE] >= 0 && type != ZEROED &&
        !reads_too(c, op, u->seg, u->slot))
        return fault(c, u, "are a gradient that is overwritten");
    value[TYPE] = type;
    value[WRITER] = c->item;
    value[USES] &= ~IS_READ;
    return ECH_OK;
}

static ech_status visit_arg(checker *c, const ech_op *op, int arg, const ech_sig_arg *sig)
{
    static const int fresh[3] = {UNWRITTEN, 0, -1};
    ech_interval_at at;
    int n;
    int type = UNWRITTEN; /* what it leaves; a start leaves that to its wait */
    const ech_operand *a = &op->arg[arg];
    const ech_extent e = ech_item_extent(c->p, &c->p->item[c->item], a);
    if (e.slot < 0)
        return ECH_OK;
    if ((a->access & ECH_WRITE) && !ech_op_row_get(op->kind)->is_start)
        ECH_TRY(intern(c, &a->place, &type));
    if (op->kind == ECH_OP_ZERO)
        type = ZEROED;
    else if (type >= 0 && c->p->slot[e.slot].klass == ECH_CLASS_GRADS)
        c->makes_gradients = true;
    ECH_TRY(ech_interval_cover(&c->map[e.slot], e.begin, e.end, fresh, &at, &n));
    for (; n > 0; n--) {
        ech_bytes_segment *seg = ech_interval_next(&c->map[e.slot], &at);
        const use u = {op, sig, arg, e.slot, seg};
        ECH_TRY(visit_segment(c, &u, seg->value, type));
    }
    return ECH_OK;
}

/* An extent is read before the bytes it bounds, and is the same on every rank. */
static ech_status visit_extent(checker *c, const ech_op *op, int arg)
{
    static const int fresh[3] = {UNWRITTEN, 0, -1};
    char where[128];
    ech_interval_at at;
    int n;
    const ech_extent e = ech_item_extent_cell(c->p, &op->arg[arg]);
    if (ech_operand_extent(&op->arg[arg]) == ECH_EXTENT_BOUND)
        return ECH_OK;
    ECH_CHECK(e.slot >= 0, ECH_E_PROOF,
              "%s, op %s, argument %d has an extent, but there is no scalar table",
              ech_item_describe(c->p, c->item, where, sizeof where), ech_op_name(op->kind), arg);
    ECH_TRY(ech_interval_cover(&c->map[e.slot], e.begin, e.end, fresh, &at, &n));
    const use u = {op, NULL, arg, e.slot, ech_interval_next(&c->map[e.slot], &at)};
    const int type = u.seg->value[TYPE];
    if (type < 0)
        return fault(c, &u, "hold its extent, but nobody has written them");
    for (int a = 0; a < ECH_N_AXES; a++)
        if (!is_whole(c->type[type].over[a]))
            return fault(c, &u, "hold its extent, but differ between ranks");
    return ECH_OK;
}

/* What is only read comes first, since outputs may alias inputs; but an update run twice is told of
 * its parameter, its first argument. */
static ech_status visit_op(checker *c, const ech_op *op)
{
    const ech_signature sig = ech_signature_read(op->kind);
    for (int i = 0; i < op->n_args; i++)
        ECH_TRY(visit_extent(c, op, i));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < op->n_args; i++) {
            const bool is_first = op->arg[i].access == ECH_READ || is_update(op->kind);
            if (is_first == (pass == 0))
                ECH_TRY(visit_arg(c, op, i, &sig.arg[i]));
        }
    return ECH_OK;
}

/* What goes from rank to rank of an axis is each rank's own over the axes within it as well: over
 * tied, what stages do is not done by both. */
static ech_status check_within(const checker *c, const ech_op *op)
{
    char place[32];
    const ech_item *it = &c->p->item[c->item];
    for (int x = 0; x < ECH_N_AXES && is_between_stages(c->p, it); x++)
        ECH_CHECK(!ech_axis_contains(op->axis, (ech_axis)x) || c->p->layout.degree[x] == 1 ||
                      op->arg[0].place.over[x].kind == ECH_PLACE_UNRELATED,
                  ECH_E_PROOF, "%s over %s hands on what is %s over %s, wanted V",
                  ech_op_name(op->kind), ech_axis_name(op->axis),
                  ech_place_format(op->arg[0].place.over[x], place, sizeof place),
                  ech_axis_name((ech_axis)x));
    return ECH_OK;
}

static ech_status visit_item(checker *c)
{
    char where[128];
    const int block = c->p->item[c->item].block;
    const ech_block *b = &c->p->block[block];
    for (int k = 0; k < b->n_ops; k++) {
        ech_status st = c->is_placed[block] ? ECH_OK : ech_op_check_placement(&b->op[k]);
        if (st >= 0 && !c->is_placed[block])
            st = ech_op_check_first(&b->op[k], &c->p->layout);
        if (st >= 0 && !c->is_placed[block])
            st = check_within(c, &b->op[k]);
        if (st < 0)
            return ech_error_prefix(st,
                                    "%s: ", ech_item_describe(c->p, c->item, where, sizeof where));
        ECH_TRY(visit_op(c, &b->op[k]));
    }
    c->is_placed[block] = true;
    return ECH_OK;
}

/* Cells that the host writes: alike on every rank, or each rank for itself (a partial sum). */
static ech_status enter_cells(checker *c, int slot)
{
    ech_placement vote = ech_placement_invariant();
    const ech_placement whole = vote;
    for (int k = 0; k < ECH_MESH_AXES; k++) { /* the mesh; other axes are made of these */
        const ech_axis a = c->p->layout.order[k];
        if (c->p->layout.degree[a] > 1)
            vote.over[a] = ech_place_of(ECH_PLACE_PARTIAL);
    }
    for (size_t cell = 0; cell < ECH_N_CELLS; cell++) {
        const ech_cell_writer writer = ech_cell_writer_of((ech_cell)cell);
        int fresh[3] = {UNWRITTEN, 0, -1};
        ech_interval_at at;
        int n;
        if (writer == ECH_CELL_BY_OP)
            continue;
        ECH_TRY(intern(c, writer == ECH_CELL_BY_VOTE ? &vote : &whole, &fresh[TYPE]));
        ECH_TRY(ech_interval_cover(&c->map[slot], 8 * cell, 8 * cell + 8, fresh, &at, &n));
    }
    return ECH_OK;
}

/* State holds values of its declared placement when a step begins; gradients, caches and cells the
 * step writes itself hold nothing. */
static ech_status enter_state(checker *c)
{
    ech_interval_at at;
    int n;
    int type;
    for (int s = 0; s < c->p->n_state; s++) {
        const ech_slot *slot = &c->p->slot[s];
        if (slot->klass == ECH_CLASS_GRADS || slot->is_scratch)
            continue;
        ECH_TRY(intern(c, &slot->place, &type));
        const int fresh[3] = {type, 0, -1};
        if (s == c->p->scalars)
            ECH_TRY(enter_cells(c, s));
        else
            ECH_TRY(ech_interval_cover(&c->map[s], 0, slot->bytes, fresh, &at, &n));
    }
    return ECH_OK;
}

/* The item with the smallest region on a byte of state: whose parameter, gradient or moment it is.
 * -1: nobody's. */
static int owner_of(const ech_program *p, int slot, size_t byte)
{
    int owner = -1;
    size_t smallest = SIZE_MAX;
    for (int i = 0; i < p->n_items; i++)
        for (int r = 0; r < ECH_N_REGIONS; r++) {
            const ech_view v = p->item[i].bind[r];
            const size_t bytes = p->block[p->item[i].block].region_bytes[r];
            if (v.slot != slot || byte < v.offset || byte - v.offset >= bytes || bytes >= smallest)
                continue;
            owner = i;
            smallest = bytes;
        }
    return owner;
}

static bool is_updated_class(ech_class c)
{
    return c == ECH_CLASS_PARAMS || c == ECH_CLASS_MASTER || c == ECH_CLASS_GRADS ||
           c == ECH_CLASS_OPTIMIZER;
}

static ech_status left_out(const checker *c, int slot, const ech_bytes_segment *seg,
                           const char *why)
{
    char where[128] = "of no item";
    const int owner = owner_of(c->p, slot, seg->begin);
    if (owner >= 0)
        (void)ech_item_describe(c->p, owner, where, sizeof where);
    return ECH_RAISE(ECH_E_PROOF, "bytes %zu..%zu of '%s', used by %s, are never %s", seg->begin,
                     seg->end, c->p->slot[slot].name, where, why);
}

/* A step that makes gradients uses each of them, and each byte of the state they change, in exactly
 * one update; if there is a norm, each gradient is in it, but for copies, which are in another
 * stage's. */
static ech_status check_updates(const checker *c)
{
    for (int s = 0; s < c->p->n_state && c->makes_gradients; s++) {
        const ech_slot *slot = &c->p->slot[s];
        if (!is_updated_class(slot->klass) || slot->is_constant)
            continue;
        ech_interval_at at = {0, 0};
        const ech_bytes_segment *seg;
        while ((seg = ech_interval_next(&c->map[s], &at)) != NULL) {
            if ((seg->value[USES] & UPDATES) != UPDATE)
                return left_out(c, s, seg, "updated");
            if (c->has_norm && slot->klass == ECH_CLASS_GRADS && !slot->is_copy &&
                !(seg->value[USES] & NORMS))
                return left_out(c, s, seg, "measured");
        }
    }
    return ECH_OK;
}

/* Gradients that landed apart were added to the others. */
static ech_status check_landed(const checker *c)
{
    for (int s = c->p->n_state; s < c->p->n_slots; s++) {
        ech_interval_at at = {0, 0};
        const ech_bytes_segment *seg;
        while ((seg = ech_interval_next(&c->map[s], &at)) != NULL)
            if (has_landed(c, s, seg->value) && !(seg->value[USES] & IS_READ))
                return left_out(c, s, seg, "used");
    }
    return ECH_OK;
}

/* State is left as the next step takes it. */
static ech_status check_left(const checker *c)
{
    char have[32];
    char want[32];
    for (int s = 0; s < c->p->n_state; s++) {
        const ech_slot *slot = &c->p->slot[s];
        ech_interval_at at = {0, 0};
        const ech_bytes_segment *seg;
        if (slot->klass == ECH_CLASS_GRADS || slot->is_scratch || s == c->p->scalars)
            continue;
        while ((seg = ech_interval_next(&c->map[s], &at)) != NULL)
            for (int x = 0; x < ECH_N_AXES && seg->value[TYPE] >= 0; x++) {
                const ech_place is = c->type[seg->value[TYPE]].over[x];
                ECH_CHECK(reads_as(is, slot->place.over[x]), ECH_E_PROOF,
                          "bytes %zu..%zu of '%s' are left %s over %s, the next step takes them "
                          "as %s",
                          seg->begin, seg->end, slot->name, ech_place_format(is, have, sizeof have),
                          ech_axis_name((ech_axis)x),
                          ech_place_format(slot->place.over[x], want, sizeof want));
            }
    }
    return ECH_OK;
}

/* The host takes a cell from any rank: it must be there, a value and not a summand, and nobody's
 * own. */
static ech_status check_host_read(checker *c, ech_cell cell)
{
    static const int fresh[3] = {UNWRITTEN, 0, -1};
    char place[32];
    ech_interval_at at;
    int n;
    ech_interval_map *map = &c->map[c->p->scalars];
    ECH_TRY(ech_interval_cover(map, 8 * (size_t)cell, 8 * (size_t)cell + 8, fresh, &at, &n));
    const int type = ech_interval_next(map, &at)->value[TYPE];
    ECH_CHECK(type >= 0, ECH_E_PROOF,
              "program '%s': the host reads cell %s after the reduce segment, but %s", c->p->name,
              ech_cell_name(cell),
              type == ZEROED ? "nothing was added to its zero" : "nobody has written it");
    for (int a = 0; a < ECH_N_AXES; a++)
        ECH_CHECK(is_whole(c->type[type].over[a]), ECH_E_PROOF,
                  "program '%s': the host reads cell %s after the reduce segment, but it is %s "
                  "over %s",
                  c->p->name, ech_cell_name(cell),
                  ech_place_format(c->type[type].over[a], place, sizeof place),
                  ech_axis_name((ech_axis)a));
    ECH_CHECK(
        ech_scale_is_equal(c->type[type].scale, ech_placement_invariant().scale), ECH_E_PROOF,
        "program '%s': the host reads cell %s after the reduce segment, but its scale is not 1",
        c->p->name, ech_cell_name(cell));
    return ECH_OK;
}

static ech_status check_host_reads(checker *c)
{
    for (int cell = 0; cell < ECH_N_CELLS && c->p->scalars >= 0; cell++) {
        const ech_cell_reader reader = ech_cell_reader_of((ech_cell)cell);
        if (reader == ECH_CELL_READ || (reader == ECH_CELL_READ_TRAINING && c->makes_gradients))
            ECH_TRY(check_host_read(c, (ech_cell)cell));
    }
    return ECH_OK;
}

/* What a round leaves is what the round before left, by the same item or by that of its own round. */
static bool is_round_later(const void *ctx, const int before[3], const int after[3])
{
    const ech_program *p = ctx;
    return before[TYPE] == after[TYPE] && before[USES] == after[USES] &&
           ech_rounds_follows(p, before[WRITER], after[WRITER]);
}

/* Steps end with a reduce segment, after which the host reads; generation has none. */
static ech_status run(checker *c)
{
    int last = -1;
    const ech_rounds_values values = {{UNWRITTEN, 0, -1}, is_round_later, c->p};
    ECH_TRY(enter_state(c));
    for (int i = 0; i < c->p->n_items; i++)
        last = c->p->item[i].segment == ECH_SEGMENT_REDUCE ? i : last;
    for (c->item = 0; c->item < c->p->n_items; c->item++) {
        ECH_TRY(visit_item(c));
        ECH_TRY(ech_rounds_note(c->p, c->item, c->map, &values, &c->before));
        if (c->item == last)
            ECH_TRY(check_host_reads(c));
    }
    ECH_TRY(check_updates(c));
    ECH_TRY(check_landed(c));
    return check_left(c);
}

ech_status ech_types_check(const ech_program *p)
{
    checker c = {.p = p};
    ech_status st = ech_calloc((size_t)p->n_slots, sizeof *c.map, &c.map);
    if (st >= 0)
        st = ech_calloc((size_t)p->n_blocks, sizeof *c.is_placed, &c.is_placed);
    if (st >= 0)
        st = run(&c);
    for (int s = 0; s < p->n_slots && c.map; s++)
        ech_interval_fini(&c.map[s]);
    ech_rounds_forget(&c.before);
    free(c.map);
    free(c.is_placed);
    free(c.type);
    return st;
}
