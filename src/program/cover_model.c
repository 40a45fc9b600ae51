/* Blocks of the model: they name tensors by region and offset. */
#include "program/cover_private.h"

#include <stdio.h>

/* --- blocks of the model --- */

/* Matter and part that a region stands for; false: neither weights nor gradients. */
static bool read_region(ech_region region, ech_matter *what, ech_part *part)
{
    static const struct {
        ech_region region;
        ech_matter matter;
        ech_part part;
    } rows[] = {
        {ECH_REGION_PARAM, ECH_WEIGHT, ECH_PART_CUT},
        {ECH_REGION_PARAM_SUMMED, ECH_WEIGHT, ECH_PART_SUMMED},
        {ECH_REGION_PARAM_WHOLE, ECH_WEIGHT, ECH_PART_WHOLE},
        {ECH_REGION_TIED, ECH_WEIGHT, ECH_PART_CUT},
        {ECH_REGION_GRAD, ECH_GRADIENT, ECH_PART_CUT},
        {ECH_REGION_GRAD_SUMMED, ECH_GRADIENT, ECH_PART_SUMMED},
        {ECH_REGION_GRAD_WHOLE, ECH_GRADIENT, ECH_PART_WHOLE},
        {ECH_REGION_PARAM_TIED, ECH_WEIGHT, ECH_PART_TIED},
        {ECH_REGION_GRAD_TIED, ECH_GRADIENT, ECH_PART_TIED},
        {ECH_REGION_TIED_GRAD, ECH_GRADIENT, ECH_PART_CUT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].region != region)
            continue;
        *what = rows[i].matter;
        *part = rows[i].part;
        return true;
    }
    return false;
}

static int unit_of(const ech_tracker *t, ech_region region)
{
    const ech_item *it = &t->p->item[t->item];
    if (region == ECH_REGION_TIED || region == ECH_REGION_TIED_GRAD)
        return 0;
    if (it->layer >= 0)
        return it->layer + 1;
    return t->is_embedding[it->block] ? 0 : t->plan->canon->n_units - 1;
}

/* The tensor of a unit that an operand is; ECH_NO_MARK: it is none. */
static int find_tensor(const ech_tracker *t, int arg, int unit, ech_part part)
{
    const ech_operand *a = &t->op->arg[arg];
    const ech_shard_unit *u = ech_cover_unit(t, unit);
    const size_t size = ech_dtype_bytes(a->dtype);
    for (int i = u->first; i < u->first + u->n; i++)
        if (t->plan->param[i].part == part &&
            (size_t)t->plan->param[i].offset * size == a->offset &&
            t->plan->param[i].elems == ech_operand_elems(a))
            return i;
    return ECH_NO_MARK;
}

/* All blocks of a step find a unit's weights at one place. */
static ech_status check_home(ech_tracker *t, int arg, const ech_span *s, const ech_mark *m)
{
    ech_mark *home = &t->home[m->of];
    if (!t->p->slot[s->slot].is_state || m->matter != ECH_WEIGHT)
        return ECH_OK;
    ECH_TRY(ech_cover_check_copy(t, arg, s, m->of));
    if (home->of == ECH_NO_MARK) {
        *home = *m;
        t->home_slot[m->of] = s->slot;
    }
    if (t->home_slot[m->of] != s->slot || !ech_mark_is_same(home, m))
        return ech_cover_fault(t, arg, "an earlier block has this unit's weights at another place");
    return ECH_OK;
}

/* A tensor's gradient is added to as often as forward ops read it: each use has its share.  Shared
 * keys and values are summed over in between, which is no use of its own. */
static void note_use(ech_tracker *t, ech_matter what, int unit, int tensor)
{
    const ech_canon *c = t->plan->canon;
    const ech_block *b = &t->p->block[t->p->item[t->item].block];
    const int planned = unit == 0 || unit == c->n_units - 1 ? unit : 1; /* its list of tensors */
    const int i = c->unit_first[unit] + t->plan->param[tensor].param - c->unit_first[planned];
    if (what == ECH_WEIGHT && b->role == ECH_ROLE_FORWARD)
        t->n_read[i]++;
    if (what == ECH_GRADIENT && t->op->kind != ECH_OP_KV_FOLD && t->op->kind != ECH_OP_KV_SPREAD)
        t->n_written[i]++;
}

/* An operand of a block of the model that is a tensor, or its gradient. */
static ech_status visit_tensor(ech_tracker *t, int arg, ech_matter what, ech_part part)
{
    ech_span s;
    const int unit = unit_of(t, t->op->arg[arg].region);
    if (unit >= t->plan->canon->n_units || t->op->arg[arg].shift.bytes)
        return ech_cover_fault(t, arg,
                               "the model has no such unit, or it differs from rank to rank");
    if (!ech_shard_has_unit(t->plan, unit))
        return ech_cover_fault(t, arg, "it is of a unit that ranks of this class do not hold");
    const int i = find_tensor(t, arg, unit, part);
    if (i == ECH_NO_MARK)
        return ech_cover_fault(
            t, arg, "no tensor of this unit and part begins there with so many elements");
    ECH_TRY(ech_span_named(t, arg, &s));
    const ech_mark m = {what, unit * ECH_N_PARTS + (int)part, s.first - t->plan->param[i].offset,
                        0};
    const bool is_fresh = t->op->arg[arg].access == ECH_WRITE;
    ECH_TRY(is_fresh ? ech_mark_put(t, &s, &m) : ech_mark_claim(t, arg, &s, &m));
    ECH_TRY(check_home(t, arg, &s, &m));
    note_use(t, what, unit, i);
    t->looked++;
    return ECH_OK;
}

/* Rows of a vocabulary table on a rank: the plan's at every tp coordinate, so that a token's row
 * and its logit are the same row of a tied table. */
static ech_status check_rows(const ech_tracker *t, int at, int64_t rows, ech_param_kind kind)
{
    char why[160];
    bool varies[ECH_N_AXES] = {false};
    int64_t coord[ECH_N_AXES] = {0};
    const ech_shard_param *table = NULL;
    for (int i = 0; i < t->plan->n_params; i++)
        if (t->plan->canon->param[t->plan->param[i].param].kind == kind)
            table = &t->plan->param[i];
    if (!table || table->dim[0] != rows)
        return ech_cover_fault(t, 0,
                               "it takes another number of rows than the table has on a rank");
    ech_mesh_note_axes(&t->op->attr[at], varies);
    for (int a = 0; a < ECH_N_AXES; a++)
        if (varies[a] && a != ECH_AXIS_TP && t->mesh.degree[a] > 1)
            return ech_cover_fault(t, 0, "its first row depends on another axis than tp");
    for (int c = 0; c < t->plan->tp; c++) {
        int64_t first = 0;
        coord[ECH_AXIS_TP] = c;
        coord[ECH_AXIS_KV] = c % t->mesh.degree[ECH_AXIS_KV];
        ECH_TRY(ech_mesh_eval(&t->op->attr[at], coord, t->p->item[t->item].micro, &first));
        const int64_t wanted = t->plan->tp > 1 && table->cut == ECH_CUT_ROWS ? c * rows : 0;
        (void)snprintf(why, sizeof why,
                       "at tp coordinate %d its first row is %lld, the table's there is %lld", c,
                       (long long)first, (long long)wanted);
        if (first != wanted)
            return ech_cover_fault(t, 0, why);
    }
    return ECH_OK;
}

static ech_param_kind head_table(const ech_tracker *t)
{
    for (int i = 0; i < t->plan->n_params; i++)
        if (t->plan->canon->param[t->plan->param[i].param].kind == ECH_PARAM_HEAD)
            return ECH_PARAM_HEAD;
    return ECH_PARAM_TOKEN_EMBED; /* tied */
}

static ech_status visit_vocabulary(const ech_tracker *t)
{
    const ech_op *op = t->op;
    switch (op->kind) {
    case ECH_OP_EMBED:
        return check_rows(t, 0, op->arg[1].dim[0].bound, ECH_PARAM_TOKEN_EMBED);
    case ECH_OP_EMBED_BACKWARD:
        return check_rows(t, 0, op->arg[2].dim[0].bound, ECH_PARAM_TOKEN_EMBED);
    case ECH_OP_XENT_SHARD:
    case ECH_OP_XENT_BACKWARD:
        return check_rows(t, 1, op->arg[0].dim[1].bound, head_table(t));
    default:
        return ECH_OK;
    }
}

ech_status ech_cover_forget(ech_tracker *t)
{
    for (int i = 0; i < t->op->n_args; i++) {
        ech_span s;
        ech_matter what;
        ech_part part;
        if (t->op->arg[i].access != ECH_WRITE || read_region(t->op->arg[i].region, &what, &part))
            continue;
        ECH_TRY(ech_span_of(t, i, &s));
        ECH_TRY(ech_mark_put(t, &s, &(ech_mark){.of = ECH_NO_MARK}));
    }
    return ECH_OK;
}

ech_status ech_cover_visit_model(ech_tracker *t)
{
    ECH_TRY(visit_vocabulary(t));
    for (int i = 0; i < t->op->n_args; i++) {
        ech_matter what;
        ech_part part;
        if (read_region(t->op->arg[i].region, &what, &part))
            ECH_TRY(visit_tensor(t, i, what, part));
    }
    return ech_cover_forget(t);
}

/* --- pairs --- */

/* Do two operands, a weight and a gradient, name one tensor of their unit. */
static bool is_one_tensor(const ech_operand *weight, const ech_operand *grad)
{
    ech_matter matter[2];
    ech_part part[2];
    const bool is_tied = weight->region == ECH_REGION_TIED;
    return read_region(weight->region, &matter[0], &part[0]) &&
           read_region(grad->region, &matter[1], &part[1]) && matter[0] == ECH_WEIGHT &&
           matter[1] == ECH_GRADIENT && part[0] == part[1] &&
           is_tied == (grad->region == ECH_REGION_TIED_GRAD) && weight->offset == grad->offset &&
           ech_operand_elems(weight) == ech_operand_elems(grad);
}

static bool is_same_place(const ech_operand *a, const ech_operand *b)
{
    return a->region == b->region && a->offset == b->offset;
}

static bool writes(const ech_op *op, const ech_operand *place)
{
    bool does = false;
    for (int i = 0; i < op->n_args; i++)
        does = does || ((op->arg[i].access & ECH_WRITE) && is_same_place(&op->arg[i], place));
    return does;
}

/* Does op `at` of a block, a gradient of inputs, take the same dy as op `wgrad`, and a matrix of the
 * same size; dy is not written in between. */
static bool is_partner(const ech_block *b, int wgrad, int at)
{
    const ech_op *w = &b->op[wgrad];
    const ech_op *d = &b->op[at];
    const int step = at < wgrad ? 1 : -1;
    if (d->kind != ECH_OP_LINEAR_DGRAD || !is_same_place(&w->arg[1], &d->arg[0]) ||
        w->arg[2].dim[0].bound != d->arg[1].dim[0].bound ||
        w->arg[2].dim[1].bound != d->arg[1].dim[1].bound)
        return false;
    for (int k = at + step; k != wgrad; k += step)
        if (writes(&b->op[k], &w->arg[1]))
            return false;
    return true;
}

static ech_status check_linear(ech_tracker *t, const ech_block *b, int wgrad)
{
    bool found = false;
    bool same = false;
    for (int k = 0; k < b->n_ops; k++) {
        if (!is_partner(b, wgrad, k))
            continue;
        found = true;
        same = same || is_one_tensor(&b->op[k].arg[1], &b->op[wgrad].arg[2]);
    }
    t->op = &b->op[wgrad];
    return !found || same ? ECH_OK
                          : ech_cover_fault(t, 2,
                                            "its input's gradient goes through another "
                                            "tensor than this gradient is of");
}

ech_status ech_cover_check_pairs(ech_tracker *t, const ech_block *b)
{
    static const struct {
        ech_op_kind kind;
        int weight, grad;
    } rows[] = {
        {ECH_OP_LAYERNORM_BACKWARD, 1, 7},
        {ECH_OP_RMSNORM_BACKWARD, 1, 6},
        {ECH_OP_QK_NORM_BACKWARD, 1, 5},
        {ECH_OP_QK_NORM_BACKWARD, 2, 6},
    };
    for (int k = 0; k < b->n_ops; k++) {
        t->op = &b->op[k];
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (rows[i].kind == t->op->kind &&
                !is_one_tensor(&t->op->arg[rows[i].weight], &t->op->arg[rows[i].grad]))
                return ech_cover_fault(t, rows[i].grad,
                                       "it is the gradient of another tensor than "
                                       "the op reads");
        if (t->op->kind == ECH_OP_LINEAR_WGRAD)
            ECH_TRY(check_linear(t, b, k));
    }
    return ECH_OK;
}

/* --- a split backward --- */

/* Where the last input block of the item's layer and micro-batch is noted; NULL: the model has none
 * such. */
static int *last_input(const ech_tracker *t, const ech_item *it)
{
    const int units = t->plan->canon->n_units;
    if (it->layer < -1 || it->layer >= units || it->micro < -1 || it->micro >= t->p->micro_batches)
        return NULL;
    return &t->last_input[(it->layer + 1) * (t->p->micro_batches + 1) + it->micro + 1];
}

/* Is op d of input item `at` the input gradient of a linear layer whose weight gradient is op w of
 * the item in work: the same bytes of dy, a matrix of the same size. */
static bool is_split_partner(const ech_tracker *t, int at, const ech_op *d, const ech_op *w)
{
    if (d->kind != ECH_OP_LINEAR_DGRAD || w->arg[2].dim[0].bound != d->arg[1].dim[0].bound ||
        w->arg[2].dim[1].bound != d->arg[1].dim[1].bound)
        return false;
    const ech_extent a = ech_item_extent(t->p, &t->p->item[at], &d->arg[0]);
    const ech_extent b = ech_item_extent(t->p, &t->p->item[t->item], &w->arg[1]);
    return a.slot >= 0 && a.slot == b.slot && a.begin == b.begin && a.end == b.end;
}

static ech_status check_split_linear(ech_tracker *t, int input)
{
    bool found = false;
    for (int at = input; at >= 0; at = t->input_before[at]) {
        const ech_block *b = &t->p->block[t->p->item[at].block];
        for (int k = 0; k < b->n_ops; k++) {
            if (!is_split_partner(t, at, &b->op[k], t->op))
                continue;
            if (is_one_tensor(&b->op[k].arg[1], &t->op->arg[2]))
                return ECH_OK;
            found = true;
        }
    }
    return ech_cover_fault(t, 2,
                           found ? "its input's gradient goes through another tensor than this "
                                   "gradient is of"
                                 : "no input block of this layer and micro-batch takes on the "
                                   "gradient that it is made of");
}

ech_status ech_cover_check_split(ech_tracker *t)
{
    const ech_item *it = &t->p->item[t->item];
    const ech_block *b = &t->p->block[it->block];
    int *last = last_input(t, it);
    if (b->role == ECH_ROLE_BACKWARD_INPUT && last) {
        t->input_before[t->item] = *last;
        *last = t->item;
    }
    for (int k = 0; k < b->n_ops && b->role == ECH_ROLE_BACKWARD_WEIGHT; k++) {
        t->op = &b->op[k];
        if (t->op->kind == ECH_OP_LINEAR_WGRAD)
            ECH_TRY(check_split_linear(t, last ? *last : -1));
    }
    return ECH_OK;
}
