/* Shape law and placement rule of an op, read off its signature. */
#include "program/op_law.h"
#include "program/op_signature.h"

#include <stdio.h>
#include <string.h>

enum { N_LABELS = 128 };

static bool is_absent(const ech_operand *a)
{
    return a->region == ECH_REGION_NONE;
}

/* --- shapes --- */

static bool is_extent(int extent)
{
    return extent == ECH_EXTENT_BOUND ||
           (extent >= 0 && extent < ECH_N_CELLS && ech_cell_dtype((ech_cell)extent) == ECH_I64);
}

static bool fits_type(char letter, ech_dtype dtype)
{
    switch (letter) {
    case 'r':
        return dtype == ECH_F32 || dtype == ECH_F64;
    case 'i':
        return dtype == ECH_I32;
    case 'l':
        return dtype == ECH_I64;
    case 'd':
        return dtype == ECH_F64;
    default:
        return true;
    }
}

/* Arguments of one of the letters r and a have one type. */
static ech_status check_types(const ech_op *op)
{
    const char *types = ech_op_row_get(op->kind)->types;
    int first = -1;
    for (int i = 0; i < op->n_args; i++) {
        const char letter = types ? types[i] : 'r';
        const ech_dtype dtype = op->arg[i].dtype;
        if (is_absent(&op->arg[i]))
            continue;
        ECH_CHECK(fits_type(letter, dtype), ECH_E_PROOF, "%s: argument %d is %s, wanted %s",
                  ech_op_name(op->kind), i, ech_dtype_name(dtype),
                  letter == 'r'   ? "fp32 or fp64"
                  : letter == 'i' ? "int32"
                  : letter == 'l' ? "int64"
                                  : "fp64");
        if (letter != 'r' && letter != 'a')
            continue;
        ECH_CHECK(first < 0 || op->arg[first].dtype == dtype, ECH_E_PROOF,
                  "%s: argument %d is %s, argument %d %s", ech_op_name(op->kind), i,
                  ech_dtype_name(dtype), first, ech_dtype_name(op->arg[first].dtype));
        first = first < 0 ? i : first;
    }
    return ECH_OK;
}

/* "~" arguments have one shape, its number of dimensions included. */
static ech_status check_ranks(const ech_op *op, const ech_signature *sig)
{
    int first = -1;
    for (int i = 0; i < sig->n; i++) {
        if (!sig->arg[i].is_any || is_absent(&op->arg[i]))
            continue;
        ECH_CHECK(first < 0 || op->arg[first].rank == op->arg[i].rank, ECH_E_PROOF,
                  "%s: argument %d has %d dimensions, argument %d %d", ech_op_name(op->kind), i,
                  op->arg[i].rank, first, op->arg[first].rank);
        first = first < 0 ? i : first;
    }
    return ECH_OK;
}

static ech_status check_arg_shape(const ech_op *op, int i, const ech_sig_arg *s,
                                  ech_dim size[N_LABELS])
{
    const ech_operand *a = &op->arg[i];
    const char *name = ech_op_name(op->kind);
    ECH_CHECK(a->access == s->access, ECH_E_PROOF,
              "%s: argument %d has access %d, the op table says %d", name, i, (int)a->access,
              (int)s->access);
    if (s->is_cell) {
        ECH_CHECK(ech_operand_elems(a) == 1 && ech_operand_bytes(a) == 8 &&
                      ech_operand_extent(a) == ECH_EXTENT_BOUND,
                  ECH_E_PROOF, "%s: argument %d must be one 8-byte cell", name, i);
        return ECH_OK;
    }
    ECH_CHECK(s->is_any || a->rank == s->n_labels, ECH_E_PROOF,
              "%s: argument %d has %d dimensions, wanted %d", name, i, a->rank, s->n_labels);
    for (int d = 0; d < a->rank; d++) {
        const unsigned char l = (unsigned char)ech_sig_label(s, d);
        ECH_CHECK(a->dim[d].bound >= 0, ECH_E_PROOF, "%s: argument %d, dimension %d is %lld", name,
                  i, d, (long long)a->dim[d].bound);
        ECH_CHECK(is_extent(a->dim[d].extent), ECH_E_PROOF,
                  "%s: argument %d has an extent that is no int64 cell", name, i);
        ECH_CHECK(d == 0 || a->dim[d].extent == ECH_EXTENT_BOUND, ECH_E_PROOF,
                  "%s: argument %d: only the leading dimension may have an extent", name, i);
        if (size[l].bound < 0)
            size[l] = a->dim[d];
        ECH_CHECK(size[l].bound == a->dim[d].bound, ECH_E_PROOF,
                  "%s: argument %d, dimension %d ('%c') is %lld, elsewhere %lld", name, i, d, l,
                  (long long)a->dim[d].bound, (long long)size[l].bound);
        ECH_CHECK(size[l].extent == a->dim[d].extent, ECH_E_PROOF,
                  "%s: argument %d, dimension %d ('%c') has another extent than elsewhere", name, i,
                  d, l);
    }
    return ECH_OK;
}

ech_status ech_op_check_shape(const ech_op *op)
{
    ech_dim size[N_LABELS];
    const ech_signature sig = ech_signature_read(op->kind);
    const char *name = ech_op_name(op->kind);
    memset(size, 0xff, sizeof size); /* bounds -1 */
    ECH_CHECK(op->n_args == sig.n, ECH_E_PROOF, "%s: %d arguments, wanted %d", name, op->n_args,
              sig.n);
    for (int i = 0; i < sig.n; i++) {
        if (is_absent(&op->arg[i])) {
            ECH_CHECK(sig.arg[i].is_optional, ECH_E_PROOF, "%s: argument %d is missing", name, i);
            continue;
        }
        ECH_TRY(check_arg_shape(op, i, &sig.arg[i], size));
    }
    ECH_TRY(check_types(op));
    ECH_TRY(check_ranks(op, &sig));
    return ech_op_check_law(op);
}

/* --- placements over one axis --- */

typedef struct rule {
    const ech_op *op;
    const ech_signature *sig;
    ech_axis axis;
    bool is_sharded[N_LABELS];
    ech_index_map map[N_LABELS];
    bool has_replicated; /* an input is R */
    bool has_partial;    /* an input that the result is linear in is P */
} rule;

static ech_status fault(const rule *r, int arg, const char *why)
{
    char place[32];
    return ECH_RAISE(ECH_E_PROOF, "%s: argument %d is %s over %s: %s", ech_op_name(r->op->kind),
                     arg,
                     ech_place_format(r->op->arg[arg].place.over[r->axis], place, sizeof place),
                     ech_axis_name(r->axis), why);
}

static bool is_param(const ech_operand *a)
{
    return (a->region >= ECH_REGION_PARAM && a->region <= ECH_REGION_PARAM_TIED) ||
           a->region == ECH_REGION_TIED;
}

static ech_status note_input(rule *r, int i)
{
    const ech_sig_arg *s = &r->sig->arg[i];
    const ech_operand *a = &r->op->arg[i];
    const ech_place p = a->place.over[r->axis];
    switch (p.kind) {
    case ECH_PLACE_SHARDED: {
        const unsigned char l = (unsigned char)ech_sig_label(s, p.dim);
        if (!l)
            return fault(r, i, "it has no such dimension");
        if (r->is_sharded[l] && r->map[l] != p.map)
            return fault(r, i, "another argument deals this dimension out by another map");
        if (l == 'n' && p.map != ECH_MAP_SEQUENCES && ech_op_row_get(r->op->kind)->whole_sequences)
            return fault(r, i,
                         "the op works on whole sequences, their tokens must be gathered before");
        r->is_sharded[l] = true;
        r->map[l] = p.map;
        return ECH_OK;
    }
    case ECH_PLACE_PARTIAL:
        if (!s->is_linear && !s->is_added)
            return fault(r, i, "a non-linear function of a partial sum");
        r->has_partial = r->has_partial || s->is_linear;
        return ECH_OK;
    case ECH_PLACE_REPLICATED:
        r->has_replicated = r->has_replicated || !is_param(a);
        return ECH_OK;
    case ECH_PLACE_INVARIANT:
        return ECH_OK;
    case ECH_PLACE_PARTIAL_MAX:
    case ECH_PLACE_UNRELATED: /* check_unrelated's */
        return fault(r, i, "no op computes with such a value");
    }
    return ECH_OK;
}

/* An argument that has a sharded label must be sharded there; one that lacks it must be whole, and
 * a parameter marked R, since its gradient is then a partial sum. */
static ech_status check_input(const rule *r, int i, bool any_sharded)
{
    const ech_sig_arg *s = &r->sig->arg[i];
    const ech_operand *a = &r->op->arg[i];
    const ech_place p = a->place.over[r->axis];
    bool has = false;
    for (int d = 0; d < a->rank; d++) {
        const unsigned char l = (unsigned char)ech_sig_label(s, d);
        if (!l || !r->is_sharded[l])
            continue;
        has = true;
        if (p.kind != ECH_PLACE_SHARDED || p.dim != d)
            return fault(r, i, "another argument is sharded along one of its dimensions");
    }
    if (!has && any_sharded && is_param(a) && p.kind == ECH_PLACE_INVARIANT)
        return fault(r, i, "a parameter used on sharded values must be R: its gradient is partial");
    if (r->has_partial && s->is_linear && p.kind != ECH_PLACE_PARTIAL)
        return fault(r, i, "added to a partial sum, it would count once per rank");
    if (s->is_linear && p.kind == ECH_PLACE_PARTIAL && any_sharded)
        return fault(r, i,
                     "a partial sum meets a value that is sharded there: each rank would use its "
                     "own summand with its own share (forgot the all-reduce between row- and "
                     "column-parallel?)");
    return ECH_OK;
}

/* Keys and values that several ranks hold (axis kv) are read by each of them for its own queries:
 * the transpose of that reading is a partial sum. */
static bool is_shared_read(const rule *r)
{
    return r->axis == ECH_AXIS_KV && r->op->kind == ECH_OP_ATTENTION_BACKWARD &&
           r->op->arg[0].place.over[ECH_AXIS_KV].kind == ECH_PLACE_REPLICATED;
}

/* What sums over the heads of a rank is partial over tp, and its sum there is over those of kv too. */
static bool is_summed_over_heads(const rule *r, int i)
{
    return r->axis == ECH_AXIS_KV && r->op->kind == ECH_OP_QK_NORM_BACKWARD &&
           ech_sig_dim(&r->sig->arg[i], &r->op->arg[i], 'g') < 0;
}

/* Of the token table that two stages hold each has a gradient from its own use of it: a summand. */
static bool is_tied_gradient(const rule *r, const ech_operand *a)
{
    return r->axis == ECH_AXIS_TIED && a->region == ECH_REGION_GRAD_TIED;
}

/* Placement that the rule gives output i. */
static ech_status derive(const rule *r, int i, ech_place *out)
{
    const ech_sig_arg *s = &r->sig->arg[i];
    const ech_operand *a = &r->op->arg[i];
    const char *dealt = ech_op_row_get(r->op->kind)->dealt;
    bool summed = (r->has_partial && !is_summed_over_heads(r, i)) || is_shared_read(r) ||
                  is_tied_gradient(r, a);
    *out = ech_place_of(r->has_replicated ? ECH_PLACE_REPLICATED : ECH_PLACE_INVARIANT);
    for (int l = 0; l < N_LABELS; l++) {
        if (!r->is_sharded[l])
            continue;
        const char label = dealt && l == dealt[0] ? dealt[1] : (char)l;
        const int d = ech_sig_dim(s, a, label);
        if (d >= 0) {
            *out = ech_place_sharded(d, r->map[l]);
            continue;
        }
        if (!ech_sig_is_summed(r->op->kind, (char)l))
            return fault(r, i, "the op cannot sum over the dimension that is sharded");
        summed = true;
    }
    if (summed)
        *out = ech_place_of(ECH_PLACE_PARTIAL);
    return ECH_OK;
}

static bool fits(ech_place declared, ech_place derived)
{
    const bool whole_a =
        declared.kind == ECH_PLACE_INVARIANT || declared.kind == ECH_PLACE_REPLICATED;
    const bool whole_b =
        derived.kind == ECH_PLACE_INVARIANT || derived.kind == ECH_PLACE_REPLICATED;
    return (whole_a && whole_b) || ech_place_is_equal(declared, derived);
}

/* An output whose ranks each picked their own indices of what is whole. */
static bool is_picked(const rule *r, int i, ech_place declared, ech_place derived)
{
    const char label = ech_op_row_get(r->op->kind)->picked;
    return label && declared.kind == ECH_PLACE_SHARDED &&
           ech_sig_label(&r->sig->arg[i], declared.dim) == label &&
           (derived.kind == ECH_PLACE_INVARIANT || derived.kind == ECH_PLACE_REPLICATED);
}

/* The gradient of a table that two stages hold is whole over them and measured by one of them: its
 * squares are that stage's own, as the others that they are added to (types.h: not by both). */
static bool is_measured_once(const rule *r, ech_place declared, ech_place derived)
{
    return r->op->kind == ECH_OP_SUMSQ && r->axis == ECH_AXIS_TIED &&
           declared.kind == ECH_PLACE_UNRELATED && derived.kind == ECH_PLACE_INVARIANT;
}

static ech_status check_output(const rule *r, int i)
{
    ech_place derived;
    char found[32];
    char wanted[32];
    const ech_place declared = r->op->arg[i].place.over[r->axis];
    ECH_TRY(derive(r, i, &derived));
    for (int k = 0; k < r->sig->n; k++)
        if (r->sig->arg[k].is_added && !is_absent(&r->op->arg[k]) &&
            (derived.kind == ECH_PLACE_PARTIAL) !=
                (r->op->arg[k].place.over[r->axis].kind == ECH_PLACE_PARTIAL) &&
            r->sig->arg[i].n_labels >= r->sig->arg[k].n_labels &&
            (r->sig->arg[i].access == ECH_WRITE || r->sig->arg[i].is_linear))
            return fault(
                r, k,
                derived.kind == ECH_PLACE_PARTIAL
                    ? "added to a partial sum, it would count once per rank"
                    : "its result is no partial sum otherwise: it would count once per rank");
    ECH_CHECK(fits(declared, derived) || is_picked(r, i, declared, derived) ||
                  is_measured_once(r, declared, derived),
              ECH_E_PROOF, "%s: result %d is declared %s over %s, the rule gives %s",
              ech_op_name(r->op->kind), i, ech_place_format(declared, found, sizeof found),
              ech_axis_name(r->axis), ech_place_format(derived, wanted, sizeof wanted));
    return ECH_OK;
}

static bool is_input(const ech_sig_arg *s)
{
    return s->access == ECH_READ || (s->access == ECH_READ_WRITE && s->is_linear);
}

/* What goes into an op; of xent_backward that is all, logits too. */
static bool goes_in(const rule *r, int i)
{
    return !is_absent(&r->op->arg[i]) &&
           (is_input(&r->sig->arg[i]) || r->op->kind == ECH_OP_XENT_BACKWARD);
}

static bool is_any_unrelated(const rule *r)
{
    bool any = false;
    for (int i = 0; i < r->sig->n; i++)
        any =
            any || (goes_in(r, i) && r->op->arg[i].place.over[r->axis].kind == ECH_PLACE_UNRELATED);
    return any;
}

/* Where a value is each rank's own, as between pipeline stages, so is all that is made of it.  What
 * stands beside it is its own too, or whole; shares and summands of a common value are neither. */
static ech_status check_unrelated(const rule *r)
{
    char found[32];
    for (int i = 0; i < r->sig->n; i++) {
        const ech_place p = r->op->arg[i].place.over[r->axis];
        const bool is_whole = p.kind == ECH_PLACE_INVARIANT || p.kind == ECH_PLACE_REPLICATED;
        if (is_absent(&r->op->arg[i]))
            continue;
        if (goes_in(r, i) && !is_whole && p.kind != ECH_PLACE_UNRELATED)
            return fault(r, i, "another argument is V there, each rank's own");
        ECH_CHECK(r->sig->arg[i].access == ECH_READ || p.kind == ECH_PLACE_UNRELATED, ECH_E_PROOF,
                  "%s: result %d is declared %s over %s, the rule gives V: an argument is each "
                  "rank's own there",
                  ech_op_name(r->op->kind), i, ech_place_format(p, found, sizeof found),
                  ech_axis_name(r->axis));
    }
    return ECH_OK;
}

static ech_status check_compute_axis(const ech_op *op, const ech_signature *sig, ech_axis axis)
{
    rule r = {.op = op, .sig = sig, .axis = axis};
    bool any_sharded = false;
    if (is_any_unrelated(&r))
        return check_unrelated(&r);
    for (int i = 0; i < sig->n; i++)
        if (goes_in(&r, i))
            ECH_TRY(note_input(&r, i));
    for (int l = 0; l < N_LABELS; l++)
        any_sharded = any_sharded || r.is_sharded[l];
    for (int i = 0; i < sig->n; i++)
        if (!is_absent(&op->arg[i]) && is_input(&sig->arg[i]))
            ECH_TRY(check_input(&r, i, any_sharded));
    for (int i = 0; i < sig->n; i++)
        if (!is_absent(&op->arg[i]) && sig->arg[i].access != ECH_READ)
            ECH_TRY(check_output(&r, i));
    return ECH_OK;
}

/* --- communication and updates --- */

static ech_place_kind kind_over(const ech_op *op, int arg, ech_axis axis)
{
    return op->arg[arg].place.over[axis].kind;
}

/* What a collective hands on is what it took, but over its axis, where it makes the change, and over
 * axes within it, where a sum completes what was partial, or each rank's own, there too. */
static ech_status check_handed_on(const ech_op *op, int in, int out)
{
    char a[32];
    char b[32];
    for (int x = 0; x < ECH_N_AXES; x++) {
        const ech_place was = op->arg[in].place.over[x];
        const ech_place is = op->arg[out].place.over[x];
        const bool is_completed =
            x != (int)op->axis && ech_axis_contains(op->axis, (ech_axis)x) &&
            (was.kind == ECH_PLACE_PARTIAL || was.kind == ECH_PLACE_UNRELATED) &&
            is.kind == ECH_PLACE_INVARIANT;
        ECH_CHECK(x == (int)op->axis || is_completed || ech_place_is_equal(was, is), ECH_E_PROOF,
                  "%s over %s takes %s over %s and declares %s", ech_op_name(op->kind),
                  ech_axis_name(op->axis), ech_place_format(was, a, sizeof a),
                  ech_axis_name((ech_axis)x), ech_place_format(is, b, sizeof b));
    }
    ECH_CHECK(ech_scale_is_equal(op->arg[in].place.scale, op->arg[out].place.scale), ECH_E_PROOF,
              "%s over %s declares another scale than it takes: %s and %s", ech_op_name(op->kind),
              ech_axis_name(op->axis), ech_scale_format(op->arg[in].place.scale, a, sizeof a),
              ech_scale_format(op->arg[out].place.scale, b, sizeof b));
    return ECH_OK;
}

static ech_status want_kind(const ech_op *op, int arg, ech_place_kind kind, const char *what)
{
    char place[32];
    ECH_CHECK(kind_over(op, arg, op->axis) == kind, ECH_E_PROOF,
              "%s over %s %s, argument %d is %s there", ech_op_name(op->kind),
              ech_axis_name(op->axis), what, arg,
              ech_place_format(op->arg[arg].place.over[op->axis], place, sizeof place));
    return ECH_OK;
}

/* A sum of something that is whole already multiplies it.  What is each rank's own may be its
 * summand. */
static ech_status want_partial(const ech_op *op)
{
    const ech_place_kind k = kind_over(op, 0, op->axis);
    if (k == ECH_PLACE_UNRELATED)
        return ECH_OK;
    ECH_CHECK(
        k != ECH_PLACE_INVARIANT && k != ECH_PLACE_REPLICATED, ECH_E_PROOF,
        "%s over %s of a value that is whole there: it would be multiplied by the group's size "
        "(reduced twice, or over the wrong axis)",
        ech_op_name(op->kind), ech_axis_name(op->axis));
    return want_kind(op, 0, ECH_PLACE_PARTIAL, "needs a partial sum");
}

static ech_status check_comm(const ech_op *op)
{
    switch (op->kind) {
    case ECH_OP_ALL_REDUCE_START:
        return want_partial(op);
    case ECH_OP_ALL_REDUCE_WAIT:
        return want_kind(op, 0, ECH_PLACE_INVARIANT, "gives I");
    case ECH_OP_REDUCE_SCATTER_START:
    case ECH_OP_REDUCE_SCATTER_WAIT:
        ECH_TRY(want_partial(op));
        ECH_TRY(want_kind(op, 1, ECH_PLACE_SHARDED, "gives a sharded value"));
        return check_handed_on(op, 0, 1);
    case ECH_OP_ALL_GATHER_START:
    case ECH_OP_ALL_GATHER_WAIT:
        ECH_TRY(want_kind(op, 0, ECH_PLACE_SHARDED, "works on a sharded value"));
        ECH_TRY(want_kind(op, 1, ECH_PLACE_INVARIANT, "gives I"));
        return check_handed_on(op, 0, 1);
    case ECH_OP_SUM_SMALL_START:
    case ECH_OP_SUM_SMALL_WAIT:
        ECH_TRY(want_partial(op));
        ECH_TRY(want_kind(op, 2, ECH_PLACE_INVARIANT, "gives I"));
        return check_handed_on(op, 0, 2);
    case ECH_OP_SEND_START:
    case ECH_OP_SEND_WAIT:
    case ECH_OP_RECV_START:
    case ECH_OP_RECV_WAIT:
        return want_kind(op, 0, ECH_PLACE_UNRELATED, "hands on what is each rank's own (V)");
    default:
        return ECH_OK;
    }
}

/* Copies of keys and values, summed over the ranks that hold them, take their place. */
static ech_status check_spread(const ech_op *op)
{
    for (int x = 0; x < ECH_N_AXES; x++)
        ECH_CHECK(ech_place_is_equal(op->arg[0].place.over[x], op->arg[1].place.over[x]),
                  ECH_E_PROOF, "kv_spread: sum and gradient are placed differently over %s",
                  ech_axis_name((ech_axis)x));
    return want_kind(op, 0, ECH_PLACE_INVARIANT, "needs a whole sum");
}

/* The law of an update: a gradient complete on every axis, placed as its parameter, scale exactly
 * loss_scale / tokens (the clip factor takes loss_scale out). */
static ech_status check_update(const ech_op *op)
{
    char buf[96];
    const ech_operand *p = &op->arg[0];
    const ech_operand *g = &op->arg[1];
    const ech_scale want = ech_grad_scale();
    for (int a = 0; a < ECH_N_AXES; a++) {
        const ech_place gp = g->place.over[a];
        ECH_CHECK(gp.kind != ECH_PLACE_PARTIAL, ECH_E_PROOF,
                  "%s: the gradient is a partial sum over %s: it was not reduced there",
                  ech_op_name(op->kind), ech_axis_name((ech_axis)a));
        ECH_CHECK(gp.kind != ECH_PLACE_REPLICATED && ech_place_is_equal(gp, p->place.over[a]),
                  ECH_E_PROOF, "%s: gradient and parameter are placed differently over %s",
                  ech_op_name(op->kind), ech_axis_name((ech_axis)a));
    }
    ECH_CHECK(ech_scale_is_equal(g->place.scale, want), ECH_E_PROOF,
              "%s: the gradient's scale is %s, the update wants loss_scale / tokens",
              ech_op_name(op->kind), ech_scale_format(g->place.scale, buf, sizeof buf));
    return ECH_OK;
}

/* --- scales --- */

/* Scale of the outputs: that of the linear inputs, which must agree; 1 without any. */
static ech_status check_scales(const ech_op *op, const ech_signature *sig)
{
    ech_scale scale = {.factor = 1.0};
    int from = -1;
    char a[96];
    char b[96];
    for (int i = 0; i < sig->n; i++) {
        const ech_sig_arg *s = &sig->arg[i];
        if (is_absent(&op->arg[i]) || (!s->is_linear && !s->is_added))
            continue;
        if (from < 0)
            scale = op->arg[i].place.scale;
        ECH_CHECK(from < 0 || ech_scale_is_equal(scale, op->arg[i].place.scale), ECH_E_PROOF,
                  "%s: argument %d has scale %s, argument %d %s", ech_op_name(op->kind), from,
                  ech_scale_format(scale, a, sizeof a), i,
                  ech_scale_format(op->arg[i].place.scale, b, sizeof b));
        from = i;
    }
    if (op->kind == ECH_OP_LOSS_SEED)
        scale = ech_grad_scale();
    for (int i = 0; i < sig->n; i++)
        if (!is_absent(&op->arg[i]) && sig->arg[i].access != ECH_READ)
            ECH_CHECK(ech_scale_is_equal(scale, op->arg[i].place.scale), ECH_E_PROOF,
                      "%s: result %d is declared with scale %s, its inputs give %s",
                      ech_op_name(op->kind), i,
                      ech_scale_format(op->arg[i].place.scale, a, sizeof a),
                      ech_scale_format(scale, b, sizeof b));
    return ECH_OK;
}

ech_status ech_op_check_placement(const ech_op *op)
{
    const ech_signature sig = ech_signature_read(op->kind);
    if (ech_op_is_comm(op->kind))
        return check_comm(op);
    if (op->kind == ECH_OP_ADAMW || op->kind == ECH_OP_SGD)
        return check_update(op);
    if (op->kind == ECH_OP_KV_SPREAD)
        return check_spread(op);
    if (op->kind == ECH_OP_ZERO)
        return ECH_OK; /* zero has every placement and every scale */
    for (int a = 0; a < ECH_N_AXES; a++)
        ECH_TRY(check_compute_axis(op, &sig, (ech_axis)a));
    if (op->kind == ECH_OP_SCALE || op->kind == ECH_OP_SUMSQ)
        return ECH_OK; /* scale: its declared scale is the result's (types.c compares the input);
                          a squared norm carries no scale of its own */
    return check_scales(op, &sig);
}
