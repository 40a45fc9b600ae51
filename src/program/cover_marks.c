#include "program/cover_private.h"

#include <stdio.h>

/* --- words --- */

const char *ech_mark_name(const ech_tracker *t, const ech_mark *m, char *buf, size_t n)
{
    static const char *const matters[] = {"weights", "gradient", "first moments", "second moments"};
    static const char *const parts[] = {"cut", "summed", "whole", "tied"};
    char unit[24];
    const int u = m->of / ECH_N_PARTS;
    if (m->matter == ECH_UNNAMED) {
        (void)snprintf(buf, n, "bytes gathered that no block has named");
        return buf;
    }
    if (u == 0 || u == t->plan->canon->n_units - 1)
        (void)snprintf(unit, sizeof unit, "%s", u ? "head" : "embedding");
    else
        (void)snprintf(unit, sizeof unit, "layer %d", u - 1);
    (void)snprintf(buf, n, "%s of %s (part %s)", matters[m->matter], unit,
                   parts[m->of % ECH_N_PARTS]);
    return buf;
}

ech_status ech_cover_fault(const ech_tracker *t, int arg, const char *why)
{
    char where[128];
    return ECH_RAISE(ECH_E_PROOF, "%s, op %s, argument %d: %s",
                     ech_item_describe(t->p, t->item, where, sizeof where),
                     ech_op_name(t->op->kind), arg, why);
}

/* "bytes 64..128 of 'params' are weights of layer 2 (part cut), not ..." */
ech_status ech_cover_conflict(const ech_tracker *t, int arg, const ech_span *s, const ech_mark *is,
                              const ech_mark *wanted)
{
    char why[400];
    char a[96];
    char b[96];
    const bool same = is->matter == wanted->matter && is->of == wanted->of;
    (void)snprintf(why, sizeof why, "bytes %zu..%zu of '%s' are %s%s%s", s->begin, s->end,
                   t->p->slot[s->slot].name, ech_mark_name(t, is, a, sizeof a),
                   same ? ", but other elements of them than here" : ", here they are ",
                   same ? "" : ech_mark_name(t, wanted, b, sizeof b));
    return ech_cover_fault(t, arg, why);
}

/* --- marks --- */

bool ech_mark_is_same(const ech_mark *a, const ech_mark *b)
{
    return a->matter == b->matter && a->of == b->of && a->origin == b->origin && a->step == b->step;
}

ech_status ech_span_of(const ech_tracker *t, int arg, ech_span *out)
{
    const ech_operand *a = &t->op->arg[arg];
    const size_t size = ech_dtype_bytes(a->dtype);
    *out = (ech_span){.slot = ECH_NO_MARK};
    if (a->region == ECH_REGION_NONE || t->p->item[t->item].bind[a->region].slot < 0)
        return ECH_OK;
    const ech_view v = t->p->item[t->item].bind[a->region];
    const int ranks = a->shift.bytes ? t->mesh.degree[a->shift.axis] : 1;
    const size_t begin = v.offset + a->offset;
    const bool is_dealt = a->shift.bytes && a->shift.axis == ECH_AXIS_DP;
    *out = (ech_span){.slot = v.slot,
                      .begin = begin,
                      .end = begin + (size_t)(ranks - 1) * a->shift.bytes + ech_operand_bytes(a),
                      .first = (int64_t)(begin / size),
                      .elems = ech_operand_elems(a),
                      .shift = is_dealt ? (int64_t)(a->shift.bytes / size) : 0};
    return ECH_OK;
}

/* The same for an operand whose elements are named: whole elements, the same on all ranks but
 * those of dp. */
ech_status ech_span_named(const ech_tracker *t, int arg, ech_span *out)
{
    const ech_operand *a = &t->op->arg[arg];
    const size_t size = ech_dtype_bytes(a->dtype);
    ECH_TRY(ech_span_of(t, arg, out));
    if (out->slot < 0)
        return ech_cover_fault(t, arg, "it is bound to nothing");
    if (out->begin % size || a->shift.bytes % size)
        return ech_cover_fault(t, arg, "it does not begin at an element");
    if (a->shift.bytes && a->shift.axis != ECH_AXIS_DP)
        return ech_cover_fault(t, arg, "parts are dealt out over dp alone");
    return ECH_OK;
}

static ech_status segments_of(ech_tracker *t, const ech_span *s, ech_interval_at *at, int *n)
{
    static const int fresh[3] = {ECH_NO_MARK, 0, 0};
    return ech_interval_cover(&t->map[s->slot], s->begin, s->end, fresh, at, n);
}

/* What a gather brought, once a block has told. */
static ech_mark known(const ech_tracker *t, const ech_mark *m)
{
    const bool is_named = m->matter == ECH_UNNAMED && t->gather[m->of].named.of != ECH_NO_MARK;
    return is_named ? t->gather[m->of].named : *m;
}

/* The ech_mark that all named bytes of a ech_span share; of ECH_NO_MARK where there are none. */
ech_status ech_mark_get(ech_tracker *t, int arg, const ech_span *s, ech_mark *out)
{
    ech_interval_at at;
    int n;
    *out = (ech_mark){.of = ECH_NO_MARK};
    if (s->slot < 0 || !t->map[s->slot].n_chunks)
        return ECH_OK;
    ECH_TRY(segments_of(t, s, &at, &n));
    for (; n > 0; n--) {
        const int id = ech_interval_next(&t->map[s->slot], &at)->value[0];
        if (id == ECH_NO_MARK)
            continue;
        const ech_mark is = known(t, &t->mark[id]);
        if (out->of != ECH_NO_MARK && !ech_mark_is_same(out, &is))
            return ech_cover_conflict(t, arg, s, &is, out);
        *out = is;
    }
    return ECH_OK;
}

ech_status ech_mark_put(ech_tracker *t, const ech_span *s, const ech_mark *m)
{
    ech_interval_at at;
    int n;
    int id = ECH_NO_MARK;
    if (s->slot < 0 || (m->of == ECH_NO_MARK && !t->map[s->slot].n_chunks))
        return ECH_OK;
    if (m->of != ECH_NO_MARK) {
        ECH_TRY(ech_grow(&t->mark, (size_t)t->n_marks, &t->mark_capacity, sizeof *t->mark));
        id = t->n_marks++;
        t->mark[id] = *m;
    }
    ECH_TRY(segments_of(t, s, &at, &n));
    for (; n > 0; n--)
        ech_interval_next(&t->map[s->slot], &at)->value[0] = id;
    return ECH_OK;
}

/* One segment against what it should be; *unnamed: the gather that brought it, if nobody has said
 * yet what it brings. */
static ech_status compare(const ech_tracker *t, int arg, const ech_span *s, const ech_mark *m,
                          int id, int *unnamed)
{
    if (id == ECH_NO_MARK)
        return ECH_OK;
    const ech_mark is = known(t, &t->mark[id]);
    if (is.matter != ECH_UNNAMED)
        return ech_mark_is_same(&is, m) ? ECH_OK : ech_cover_conflict(t, arg, s, &is, m);
    *unnamed = is.of;
    return ECH_OK;
}

/* The bytes are this, or nothing is known of them; at most one gather comes out unnamed. */
static ech_status match(ech_tracker *t, int arg, const ech_span *s, const ech_mark *m, int *unnamed)
{
    ech_interval_at at;
    int n;
    *unnamed = ECH_NO_MARK;
    ECH_TRY(segments_of(t, s, &at, &n));
    for (; n > 0; n--)
        ECH_TRY(compare(t, arg, s, m, ech_interval_next(&t->map[s->slot], &at)->value[0], unnamed));
    return ECH_OK;
}

/* Bytes that a gather brought are what a block says: so is the share that each rank had. */
static ech_status name_gather(ech_tracker *t, int arg, ech_gathered *g, const ech_mark *m)
{
    int unnamed;
    const ech_mark share = {m->matter, m->of, g->from.first - (g->to.first - m->origin),
                            g->from.elems - g->from.shift};
    g->named = *m;
    if (g->from.slot == g->to.slot && g->from.begin >= g->to.begin && g->from.end <= g->to.end)
        return ECH_OK; /* in place: the whole is all there is */
    ECH_TRY(match(t, arg, &g->from, &share, &unnamed));
    if (unnamed != ECH_NO_MARK)
        return ech_cover_fault(t, arg, "it was gathered from bytes that were gathered themselves");
    return ech_mark_put(t, &g->from, &share);
}

ech_status ech_mark_claim(ech_tracker *t, int arg, const ech_span *s, const ech_mark *m)
{
    int unnamed;
    ECH_TRY(match(t, arg, s, m, &unnamed));
    while (unnamed != ECH_NO_MARK) {
        ECH_TRY(name_gather(t, arg, &t->gather[unnamed], m));
        ECH_TRY(match(t, arg, s, m, &unnamed));
    }
    return ech_mark_put(t, s, m);
}

const ech_shard_unit *ech_cover_unit(const ech_tracker *t, int unit)
{
    return &t->plan->unit[unit == 0 ? 0 : unit == t->plan->canon->n_units - 1 ? 2 : 1];
}

/* Position of an operand's first element in its part at a dp coordinate. */
int64_t ech_mark_position(const ech_span *s, const ech_mark *m, int coord)
{
    return s->first - m->origin + (m->step + s->shift) * coord;
}

/* --- copies --- */

bool ech_cover_is_copy(const ech_tracker *t, int of)
{
    return of / ECH_N_PARTS == t->plan->canon->n_units - 1 && of % ECH_N_PARTS == ECH_PART_TIED;
}

ech_status ech_cover_check_copy(ech_tracker *t, int arg, const ech_span *s, int of)
{
    const bool is_copy = ech_cover_is_copy(t, of);
    if (s->slot < 0 || !t->p->slot[s->slot].is_state)
        return ECH_OK;
    t->is_copied[s->slot] = is_copy;
    if (t->p->slot[s->slot].is_copy == is_copy)
        return ECH_OK;
    return ech_cover_fault(t, arg,
                           is_copy ? "it is a copy of another class's tensor, its slot is not said "
                                     "to be one"
                                   : "its slot is said to be a copy, but no other class holds it");
}
