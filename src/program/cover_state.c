/* What is done to parts as a whole: gathered, dealt out, summed, updated. */
#include "program/cover_private.h"

#include <stdio.h>

/* --- transfers, sums --- */

/* Element i of the whole is element i mod n of rank i / n. */
static ech_status visit_gather(ech_tracker *t)
{
    ech_span from;
    ech_span to;
    ech_mark m;
    ECH_TRY(ech_span_of(t, 0, &from));
    ECH_TRY(ech_span_of(t, 1, &to));
    ECH_TRY(ech_mark_get(t, 0, &from, &m));
    if (from.slot < 0 || to.slot < 0 || t->op->axis != ECH_AXIS_DP)
        return ech_mark_put(t, &to, &(ech_mark){.of = ECH_NO_MARK});
    if (m.of != ECH_NO_MARK && m.matter == ECH_UNNAMED)
        return ech_cover_fault(t, 0, "it gathers what was gathered and no block has read");
    if (m.of == ECH_NO_MARK) {
        ECH_TRY(ech_grow(&t->gather, (size_t)t->n_gathers, &t->gather_capacity, sizeof *t->gather));
        t->gather[t->n_gathers] = (ech_gathered){from, to, {.of = ECH_NO_MARK}};
        return ech_mark_put(t, &to, &(ech_mark){ECH_UNNAMED, t->n_gathers++, 0, 0});
    }
    if (m.step + from.shift != from.elems && t->mesh.degree[ECH_AXIS_DP] > 1)
        return ech_cover_fault(t, 0, "the shares that it gathers are no neighbours");
    return ech_mark_put(t, &to, &(ech_mark){m.matter, m.of, to.first - (from.first - m.origin), 0});
}

/* Share c is elements [c n, (c + 1) n) of the whole. */
static ech_status visit_scatter(ech_tracker *t)
{
    ech_span from;
    ech_span to;
    ech_mark m;
    ECH_TRY(ech_span_of(t, 0, &from));
    ECH_TRY(ech_span_of(t, 1, &to));
    ECH_TRY(ech_mark_get(t, 0, &from, &m));
    if (m.of == ECH_NO_MARK || m.matter == ECH_UNNAMED || to.slot < 0 || t->op->axis != ECH_AXIS_DP)
        return ech_mark_put(t, &to, &(ech_mark){.of = ECH_NO_MARK});
    if (m.step + from.shift != 0)
        return ech_cover_fault(t, 0, "what it deals out is dealt out already");
    return ech_mark_put(
        t, &to,
        &(ech_mark){m.matter, m.of, to.first - (from.first - m.origin), to.elems - to.shift});
}

/* A copy, or a sum of the same elements. */
static ech_status visit_elementwise(ech_tracker *t, int n_inputs)
{
    ech_span from[2];
    ech_span to;
    ech_mark m = {.of = ECH_NO_MARK};
    int at = 0;
    ECH_TRY(ech_span_of(t, n_inputs, &to));
    for (int i = 0; i < n_inputs; i++) {
        ech_mark one;
        ECH_TRY(ech_span_of(t, i, &from[i]));
        ECH_TRY(ech_mark_get(t, i, &from[i], &one));
        if (one.of == ECH_NO_MARK)
            continue;
        one.origin = to.first - (from[i].first - one.origin);
        one.step += from[i].shift - to.shift;
        if (m.of != ECH_NO_MARK && !ech_mark_is_same(&m, &one))
            return ech_cover_conflict(t, i, &from[i], &one, &m);
        m = one;
        at = i;
    }
    if (m.matter == ECH_UNNAMED && m.of != ECH_NO_MARK)
        return ech_cover_fault(t, at, "it copies what was gathered and no block has read");
    return ech_mark_put(t, &to, &m);
}

/* --- updates --- */

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x < most ? x : most;
}

/* An element decays where it is below the part's border. */
static ech_status check_decay(const ech_tracker *t, const ech_span *s, const ech_mark *m, int coord)
{
    char why[160];
    int64_t first = 0;
    int64_t decayed = 0;
    const int64_t at = ech_mark_position(s, m, coord);
    const int64_t coords[ECH_N_AXES] = {[ECH_AXIS_DP] = coord};
    const ech_shard_unit *u = ech_cover_unit(t, m->of / ECH_N_PARTS);
    const int64_t border = u->part[m->of % ECH_N_PARTS].decayed;
    ECH_TRY(ech_mesh_eval(&t->op->attr[0], coords, -1, &first));
    ECH_TRY(ech_mesh_eval(&t->op->attr[1], coords, -1, &decayed));
    const int64_t does = clamp(decayed - first, s->elems);
    const int64_t should = clamp(border - at, s->elems);
    (void)snprintf(why, sizeof why,
                   "at dp coordinate %d the first %lld of its %lld elements decay, it should be "
                   "%lld",
                   coord, (long long)does, (long long)s->elems, (long long)should);
    return does == should ? ECH_OK : ech_cover_fault(t, 0, why);
}

/* The same elements on all ranks of dp count once, each rank's own all together. */
static ech_status count(ech_tracker *t, ech_count_kind kind, const ech_span *s, const ech_mark *m)
{
    const int ranks = m->step + s->shift ? t->mesh.degree[ECH_AXIS_DP] : 1;
    for (int c = 0; c < ranks; c++) {
        const int64_t at = ech_mark_position(s, m, c);
        ECH_TRY(
            ech_grow(&t->counted, (size_t)t->n_counted, &t->counted_capacity, sizeof *t->counted));
        t->counted[t->n_counted++] = (ech_counted){kind, m->of, at, at + s->elems, t->item};
    }
    return ECH_OK;
}

/* Argument `arg` of an update is the same elements as its parameter. */
static ech_status check_partner(ech_tracker *t, int arg, ech_matter what, const ech_span *p,
                                const ech_mark *m)
{
    ech_span s;
    ECH_TRY(ech_span_named(t, arg, &s));
    ECH_TRY(ech_cover_check_copy(t, arg, &s, m->of));
    const ech_mark wanted = {what, m->of, s.first - ech_mark_position(p, m, 0),
                             m->step + p->shift - s.shift};
    if (what != ECH_GRADIENT) /* of moments nothing is known before */
        return ech_mark_claim(t, arg, &s, &wanted);
    ech_mark is;
    ECH_TRY(ech_mark_get(t, arg, &s, &is));
    if (is.of == ECH_NO_MARK)
        return ech_cover_fault(t, arg, "no block has written it as a gradient");
    return ech_mark_is_same(&is, &wanted) ? ECH_OK : ech_cover_conflict(t, arg, &s, &is, &wanted);
}

static ech_status visit_update(ech_tracker *t)
{
    ech_span s;
    ech_mark m;
    const bool has_moments = t->op->kind == ECH_OP_ADAMW;
    const double decay = t->op->real[has_moments ? 3 : 0];
    bool varies[ECH_N_AXES] = {false};
    ECH_TRY(ech_span_named(t, 0, &s));
    ECH_TRY(ech_mark_get(t, 0, &s, &m));
    if (m.of == ECH_NO_MARK || m.matter != ECH_WEIGHT)
        return ech_cover_fault(t, 0, "no block reads it as a weight");
    ECH_TRY(ech_cover_check_copy(t, 0, &s, m.of));
    ECH_TRY(check_partner(t, 1, ECH_GRADIENT, &s, &m));
    for (int k = 0; k < 2 && has_moments; k++)
        ECH_TRY(check_partner(t, 2 + k, k ? ECH_MOMENT_2 : ECH_MOMENT_1, &s, &m));
    ech_mesh_note_axes(&t->op->attr[0], varies);
    ech_mesh_note_axes(&t->op->attr[1], varies);
    for (int a = 0; a < ECH_N_AXES && decay != 0.0; a++)
        if (varies[a] && a != ECH_AXIS_DP && t->mesh.degree[a] > 1)
            return ech_cover_fault(t, 0, "what decays depends on another axis than dp");
    ECH_TRY(count(t, ECH_COUNT_UPDATE, &s, &m));
    for (int c = 0; c < t->mesh.degree[ECH_AXIS_DP] && decay != 0.0; c++)
        ECH_TRY(check_decay(t, &s, &m, c));
    t->looked += t->op->n_args;
    return ECH_OK;
}

/* --- norm --- */

/* Heads' tensors of a part whose keys and values stand more than once. */
static int copied_tensors(const ech_tracker *t, int of, const ech_shard_param *out[2])
{
    const ech_shard_unit *u = ech_cover_unit(t, of / ECH_N_PARTS);
    int n = 0;
    for (int i = u->first; i < u->first + u->n && t->plan->heads.copies > 1 && n < 2; i++)
        if (t->plan->param[i].cut == ECH_CUT_HEADS &&
            (int)t->plan->param[i].part == of % ECH_N_PARTS)
            out[n++] = &t->plan->param[i];
    return n;
}

/* Attributes from `at` on are a range of copies: begin, end, period, tail. */
static ech_status read_copies(const ech_tracker *t, int at, int64_t out[4])
{
    const int64_t coord[ECH_N_AXES] = {0};
    bool varies[ECH_N_AXES] = {false};
    for (int k = 0; k < 4; k++) {
        ech_mesh_note_axes(&t->op->attr[at + k], varies);
        ECH_TRY(ech_mesh_eval(&t->op->attr[at + k], coord, -1, &out[k]));
    }
    for (int a = 0; a < ECH_N_AXES; a++)
        if (varies[a] && t->mesh.degree[a] > 1)
            return ech_cover_fault(t, 2, "where copies stand depends on the rank");
    return ECH_OK;
}

/* Keys and values that stand in several groups go to the sum of copies, and nothing else does. */
static ech_status check_copies(const ech_tracker *t, const ech_mark *m)
{
    const ech_shard_param *copied[2];
    const bool is_summed = t->op->arg[2].region != ECH_REGION_NONE;
    int wanted = copied_tensors(t, m->of, copied);
    for (int at = 1; at + 3 < ECH_MAX_ATTRS && is_summed; at += 4) {
        int64_t range[4];
        bool fits = false;
        ECH_TRY(read_copies(t, at, range));
        if (range[0] >= range[1])
            continue;
        for (int i = 0; i < 2 && !fits && i < copied_tensors(t, m->of, copied); i++) {
            const int64_t period = copied[i]->elems / copied[i]->dim[0];
            const int64_t head = period / copied[i]->dim[1];
            fits = range[0] == copied[i]->offset && range[1] == range[0] + copied[i]->elems &&
                   range[2] == period && range[3] == 2 * head;
        }
        if (!fits)
            return ech_cover_fault(t, 2, "elements are taken for copies that stand once");
        wanted--;
    }
    return wanted == 0 ? ECH_OK
                       : ech_cover_fault(t, 0,
                                         "copies of keys and values are taken for elements "
                                         "that stand once");
}

/* Element 0 of the operand is the element of the part that the copies are reckoned from. */
static ech_status check_first(const ech_tracker *t, const ech_span *s, const ech_mark *m)
{
    for (int c = 0; c < t->mesh.degree[ECH_AXIS_DP]; c++) {
        int64_t first = 0;
        const int64_t coord[ECH_N_AXES] = {[ECH_AXIS_DP] = c};
        ECH_TRY(ech_mesh_eval(&t->op->attr[0], coord, -1, &first));
        if (first != ech_mark_position(s, m, c))
            return ech_cover_fault(t, 0, "it begins at another element than its attribute says");
    }
    return ECH_OK;
}

static ech_status visit_norm(ech_tracker *t)
{
    ech_span s;
    ech_mark m;
    ECH_TRY(ech_span_named(t, 0, &s));
    ECH_TRY(ech_mark_get(t, 0, &s, &m));
    if (m.of == ECH_NO_MARK || m.matter != ECH_GRADIENT)
        return ech_cover_fault(t, 0, "no block has written it as a gradient");
    ECH_TRY(count(t, ECH_COUNT_NORM, &s, &m));
    ECH_TRY(check_copies(t, &m));
    return t->op->arg[2].region == ECH_REGION_NONE ? ECH_OK : check_first(t, &s, &m);
}

/* Each copy counts for its part of an element. */
static ech_status visit_clip(ech_tracker *t)
{
    const int64_t coord[ECH_N_AXES] = {0};
    int64_t copies = 0;
    ECH_TRY(ech_mesh_eval(&t->op->attr[0], coord, -1, &copies));
    if (t->op->arg[1].region != ECH_REGION_NONE && copies != t->plan->heads.copies)
        return ech_cover_fault(t, 1, "keys and values have another number of copies");
    return ech_cover_forget(t);
}

ech_status ech_cover_visit_state(ech_tracker *t)
{
    ech_span s;
    switch (t->op->kind) {
    case ECH_OP_ALL_GATHER_WAIT:
        return visit_gather(t);
    case ECH_OP_REDUCE_SCATTER_WAIT:
        return visit_scatter(t);
    case ECH_OP_COPY:
        return visit_elementwise(t, 1);
    case ECH_OP_ADD:
        return visit_elementwise(t, 2);
    case ECH_OP_ADAMW:
    case ECH_OP_SGD:
        return visit_update(t);
    case ECH_OP_SUMSQ:
        return visit_norm(t);
    case ECH_OP_CLIP:
        return visit_clip(t);
    case ECH_OP_ZERO:
        ECH_TRY(ech_span_of(t, 0, &s));
        return ech_mark_put(t, &s, &(ech_mark){.of = ECH_NO_MARK});
    default:
        return ech_op_row_get(t->op->kind)->is_start ? ECH_OK : ech_cover_forget(t);
    }
}
