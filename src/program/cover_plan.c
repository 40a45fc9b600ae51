/* The plan of shards against the canonical tensors. */
#include "program/cover.h"
#include "program/prove_mesh.h"

/* What is looked at. */
typedef struct planned {
    const ech_shard_plan *plan;
    const ech_mesh *mesh;
    const ech_shard_param *local;
    const ech_param *whole;
} planned;

/* A tensor seen as [outer, n, inner] with n cut in pieces of len. */
typedef struct cut_view {
    int64_t outer, n, inner, len;
} cut_view;

/* Query heads per key/value head (r), elements of a head, query heads of a rank. */
typedef struct head_view {
    int64_t r, head, mine;
} head_view;

/* Elements that lie together in both tensors, from a local one on. */
typedef struct piece {
    int64_t canonical, elems;
    bool is_first;
} piece;

static int64_t product(const int64_t *dim, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= dim[d];
    return n;
}

static ech_status fault(const planned *t, int coord, const char *why)
{
    return ECH_RAISE(ECH_E_PROOF, "'%s' at tp coordinate %d: %s", t->whole->name, coord, why);
}

/* --- boxes over tp --- */

static int cut_dim(const planned *t)
{
    switch (t->local->cut) {
    case ECH_CUT_COLUMNS:
        return t->whole->rank - 1;
    case ECH_CUT_GATE_UP:
        return 1;
    default:
        return 0;
    }
}

static cut_view cut_of(const planned *t)
{
    const int d = cut_dim(t);
    return (cut_view){product(t->whole->dim, 0, d), t->whole->dim[d],
                      product(t->whole->dim, d + 1, t->whole->rank), t->local->dim[d]};
}

static ech_range box(const cut_view *v, int coord)
{
    const int64_t begin = coord * v->len;
    const int64_t end = begin + v->len;
    return (ech_range){begin < v->n ? begin : v->n, end < v->n ? end : v->n};
}

static head_view heads_of(const planned *t)
{
    const int64_t r = t->whole->dim[1] - 2;
    return (head_view){r, product(t->whole->dim, 2, t->whole->rank),
                       t->whole->dim[0] * r / t->plan->tp};
}

static bool is_whole(const planned *t)
{
    return t->plan->tp == 1 || t->local->cut == ECH_CUT_NONE;
}

/* Canonical dimensions, but for the one that is cut: ceil(n / tp). */
static ech_status check_dims(const planned *t)
{
    const bool is_heads = !is_whole(t) && t->local->cut == ECH_CUT_HEADS;
    const bool is_deep = t->whole->rank >= (t->local->cut == ECH_CUT_GATE_UP ? 2 : 1);
    ECH_CHECK(t->local->rank == t->whole->rank && is_deep, ECH_E_PROOF,
              "'%s' has %d dimensions, locally %d", t->whole->name, t->whole->rank, t->local->rank);
    for (int d = is_heads ? 2 : 0; d < t->whole->rank; d++) {
        const bool is_cut = !is_whole(t) && !is_heads && d == cut_dim(t);
        const int64_t wanted =
            is_cut ? (t->whole->dim[d] + t->plan->tp - 1) / t->plan->tp : t->whole->dim[d];
        ECH_CHECK(t->local->dim[d] == wanted, ECH_E_PROOF,
                  "dimension %d of '%s' is %lld locally, of %lld over tp %d it must be %lld", d,
                  t->whole->name, (long long)t->local->dim[d], (long long)t->whole->dim[d],
                  t->plan->tp, (long long)wanted);
    }
    const int64_t elems = product(t->local->dim, 0, t->local->rank);
    ECH_CHECK(t->local->elems == elems, ECH_E_PROOF, "'%s' has %lld local elements, not %lld",
              t->whole->name, (long long)t->local->elems, (long long)elems);
    return ECH_OK;
}

/* The boxes of all coordinates, one after the other, are the whole dimension. */
static ech_status check_boxes(const planned *t)
{
    const cut_view v = cut_of(t);
    int64_t next = 0;
    for (int c = 0; c < t->plan->tp; c++) {
        const ech_range mine = box(&v, c);
        if (mine.begin != next)
            return fault(t, c, "its box does not begin where the one before ends");
        next = mine.end;
    }
    return next == v.n ? ECH_OK : fault(t, t->plan->tp - 1, "the last box ends before the tensor");
}

/* Groups of all ranks, one after the other, hold every query head once; the groups that hold a key
 * and value head are neighbours, as many as the plan says, and all within one group of axis kv. */
static ech_status check_heads(const planned *t)
{
    const ech_head_split *h = &t->plan->heads;
    const head_view v = heads_of(t);
    const int kv_run = t->mesh->degree[ECH_AXIS_KV];
    int64_t next = 0; /* query head */
    int first = 0;    /* coordinate of the first copy */
    int64_t copies = 0;
    ECH_CHECK(v.r >= 1 && t->whole->dim[0] * v.r % t->plan->tp == 0, ECH_E_PROOF,
              "tp %d does not divide the %lld query heads of '%s'", t->plan->tp,
              (long long)(t->whole->dim[0] * v.r), t->whole->name);
    ECH_CHECK(h->per_group >= 1 && t->local->dim[0] == h->groups &&
                  t->local->dim[1] == h->per_group + 2 && h->groups * h->per_group == v.mine,
              ECH_E_PROOF, "'%s' has %lld groups of %lld query heads locally, of %lld heads a rank",
              t->whole->name, (long long)t->local->dim[0], (long long)t->local->dim[1] - 2,
              (long long)v.mine);
    for (int c = 0; c < t->plan->tp; c++)
        for (int64_t j = 0; j < h->groups; j++, next += h->per_group) {
            const bool is_new = next % v.r == 0;
            if (is_new && copies != (next ? h->copies : 0))
                return fault(t, c, "a key/value head has another number of copies than planned");
            if (next / v.r != (next + h->per_group - 1) / v.r)
                return fault(t, c, "a group's query heads belong to two key/value heads");
            first = is_new ? c : first;
            copies = is_new ? 1 : copies + 1;
            if (first / kv_run != c / kv_run)
                return fault(t, c,
                             "a copy of a key/value head is outside the kv group of the "
                             "first: their gradients are never summed");
        }
    if (next != t->whole->dim[0] * v.r || copies != h->copies)
        return fault(t, t->plan->tp - 1, "query heads are left over");
    return ECH_OK;
}

/* --- runs, as they are read by others --- */

static piece piece_of_heads(const planned *t, int coord, int64_t local)
{
    const int64_t per = t->plan->heads.per_group;
    const head_view v = heads_of(t);
    const int64_t group = local / ((per + 2) * v.head);
    const int64_t at = local % ((per + 2) * v.head);
    const int64_t q = coord * v.mine + group * per;
    const int64_t base = q / v.r * (v.r + 2);
    if (at < per * v.head)
        return (piece){(base + q % v.r) * v.head + at, per * v.head - at, true};
    return (piece){(base + v.r) * v.head + at - per * v.head, (per + 2) * v.head - at,
                   q % v.r == 0};
}

/* What local element `local` is; no elements where it is padding. */
static piece piece_of(const planned *t, int coord, int64_t local)
{
    if (is_whole(t))
        return (piece){local, t->local->elems - local, coord == 0};
    if (t->local->cut == ECH_CUT_HEADS)
        return piece_of_heads(t, coord, local);
    const cut_view v = cut_of(t);
    const ech_range mine = box(&v, coord);
    const int64_t outer = local / (v.len * v.inner);
    const int64_t at = local % (v.len * v.inner);
    return (piece){(outer * v.n + mine.begin) * v.inner + at,
                   (mine.end - mine.begin) * v.inner - at, true};
}

/* A run may join or part pieces; every element of it is where its box has it. */
static ech_status check_run(const planned *t, int coord, const ech_shard_run *run)
{
    for (int64_t done = 0; done < run->elems;) {
        const piece p = piece_of(t, coord, run->local + done);
        if (run->local + done >= t->local->elems || p.elems <= 0)
            return fault(t, coord, "a run takes padding for elements");
        if (p.canonical != run->canonical + done)
            return fault(t, coord, "a run is not what its box holds there");
        if (p.is_first != run->is_first)
            return fault(t, coord, "of several copies another one counts as first");
        done += p.elems;
    }
    return ECH_OK;
}

static int64_t held_elems(const planned *t, int coord)
{
    if (is_whole(t) || t->local->cut == ECH_CUT_HEADS)
        return t->local->elems;
    const cut_view v = cut_of(t);
    const ech_range mine = box(&v, coord);
    return v.outer * (mine.end - mine.begin) * v.inner;
}

/* Ascending by local place, without overlap, all of what is held. */
static ech_status check_runs(const planned *t, int64_t *looked)
{
    const int64_t n = ech_shard_run_count(t->plan, t->local);
    for (int c = 0; c < t->plan->tp; c++) {
        int64_t held = 0;
        int64_t next = 0;
        for (int64_t i = 0; i < n; i++) {
            const ech_shard_run run = ech_shard_run_get(t->plan, t->local, c, i);
            if (run.elems == 0)
                continue;
            if (run.elems < 0 || run.local < next)
                return fault(t, c, "two of its runs overlap");
            ECH_TRY(check_run(t, c, &run));
            held += run.elems;
            next = run.local + run.elems;
        }
        if (held != held_elems(t, c))
            return fault(t, c, "its runs leave out elements that it holds");
        *looked += n;
    }
    return ECH_OK;
}

/* --- units --- */

static ech_status check_tensor(const planned *t, int64_t *looked)
{
    const bool is_cut = !is_whole(t) || t->plan->tp == 1;
    const bool is_tied = t->plan->is_tied_apart && t->whole->kind == ECH_PARAM_TOKEN_EMBED;
    ECH_CHECK(is_tied == (t->local->part == ECH_PART_TIED), ECH_E_PROOF,
              "'%s' is %s of another class, but in part %d", t->whole->name,
              is_tied ? "also that" : "not that", (int)t->local->part);
    ECH_CHECK(is_tied || is_cut == (t->local->part == ECH_PART_CUT), ECH_E_PROOF,
              "'%s' is %s over tp %d, but in part %d", t->whole->name, is_cut ? "cut" : "whole",
              t->plan->tp, (int)t->local->part);
    ECH_CHECK(is_whole(t) || t->local->cut != ECH_CUT_HEADS || t->whole->rank >= 2, ECH_E_PROOF,
              "'%s' has no head groups", t->whole->name);
    ECH_TRY(check_dims(t));
    if (!is_whole(t))
        ECH_TRY(t->local->cut == ECH_CUT_HEADS ? check_heads(t) : check_boxes(t));
    return check_runs(t, looked);
}

/* No two tensors of a part share an element; those that decay end where the others begin. */
static ech_status check_part(const ech_shard_plan *plan, const ech_shard_unit *u, ech_part part)
{
    const ech_shard_part *s = &u->part[part];
    ECH_CHECK(s->shard >= 0 && s->shard * plan->shards == s->elems, ECH_E_PROOF,
              "part %d of %lld elements is not %d flat ranges of %lld", (int)part,
              (long long)s->elems, plan->shards, (long long)s->shard);
    for (int i = u->first; i < u->first + u->n; i++) {
        const ech_shard_param *a = &plan->param[i];
        const ech_param *whole = &plan->canon->param[a->param];
        if (a->part != part)
            continue;
        ECH_CHECK(a->offset >= 0 && a->elems <= s->elems - a->offset, ECH_E_PROOF,
                  "'%s' leaves its part of %lld elements", whole->name, (long long)s->elems);
        ECH_CHECK(whole->is_decayed ? a->offset + a->elems <= s->decayed : a->offset >= s->decayed,
                  ECH_E_PROOF, "'%s' at %lld..%lld is on the wrong side of the decayed %lld",
                  whole->name, (long long)a->offset, (long long)(a->offset + a->elems),
                  (long long)s->decayed);
        for (int k = u->first; k < i; k++) {
            const ech_shard_param *b = &plan->param[k];
            ECH_CHECK(b->part != part || a->offset >= b->offset + b->elems ||
                          b->offset >= a->offset + a->elems,
                      ECH_E_PROOF, "'%s' and '%s' overlap in their part", whole->name,
                      plan->canon->param[b->param].name);
        }
    }
    return ECH_OK;
}

static int unit_of_kind(const ech_canon *c, int kind)
{
    return kind == 2 ? c->n_units - 1 : kind;
}

static int token_table(const ech_canon *c)
{
    int at = c->unit_first[0];
    while (at < c->unit_first[1] && c->param[at].kind != ECH_PARAM_TOKEN_EMBED)
        at++;
    return at;
}

/* The plan's unit is the canonical one, tensor by tensor. */
static ech_status check_unit(const ech_shard_plan *plan, const ech_mesh *mesh, int kind,
                             int64_t *looked)
{
    const ech_canon *c = plan->canon;
    const ech_shard_unit *u = &plan->unit[kind];
    const int unit = unit_of_kind(c, kind);
    const int own = c->unit_first[unit + 1] - c->unit_first[unit];
    const int n = own + (kind == 2 && plan->is_tied_apart ? 1 : 0); /* the token table's copy */
    ECH_CHECK(u->n == n && u->first >= 0 && u->first + n <= plan->n_params, ECH_E_PROOF,
              "unit %d has %d tensors, planned are %d", unit, n, u->n);
    for (int i = 0; i < n; i++) {
        const ech_shard_param *local = &plan->param[u->first + i];
        const int wanted = i < own ? c->unit_first[unit] + i : token_table(c);
        ECH_CHECK(local->param == wanted && local->is_copy == (i >= own), ECH_E_PROOF,
                  "tensor %d of unit %d is planned as %s %d of the model, not as %s %d", i, unit,
                  local->is_copy ? "a copy of tensor" : "tensor", local->param,
                  i >= own ? "a copy of tensor" : "tensor", wanted);
        const planned t = {plan, mesh, local, &c->param[local->param]};
        ECH_TRY(check_tensor(&t, looked));
    }
    for (int part = 0; part < ECH_N_PARTS; part++)
        ECH_TRY(check_part(plan, u, (ech_part)part));
    *looked += n;
    return ECH_OK;
}

/* The plan has one unit for all layers: so they must be alike. */
static ech_status check_layers(const ech_canon *c)
{
    for (int unit = 2; unit < c->n_units - 1; unit++) {
        const int n = c->unit_first[2] - c->unit_first[1];
        bool same = c->unit_first[unit + 1] - c->unit_first[unit] == n;
        for (int i = 0; i < n && same; i++) {
            const ech_param *a = &c->param[c->unit_first[1] + i];
            const ech_param *b = &c->param[c->unit_first[unit] + i];
            same = a->kind == b->kind && a->rank == b->rank && a->is_decayed == b->is_decayed;
            for (int d = 0; d < a->rank && same; d++)
                same = a->dim[d] == b->dim[d];
        }
        ECH_CHECK(same, ECH_E_PROOF, "layer %d is not like layer 0, by which it is planned",
                  unit - 1);
    }
    return ECH_OK;
}

/* The units that are held are told alike one by one and in their order. */
static ech_status check_held(const ech_shard_plan *plan)
{
    const int n = plan->canon->n_units;
    int at = 0;
    for (int unit = 0; unit < n; unit++) {
        if (!ech_shard_has_unit(plan, unit))
            continue;
        ECH_CHECK(at < ech_shard_unit_count(plan) && ech_shard_unit_at(plan, at) == unit,
                  ECH_E_PROOF, "unit %d is held, but is not the %dth of those held", unit, at + 1);
        at++;
    }
    ECH_CHECK(at == ech_shard_unit_count(plan), ECH_E_PROOF, "%d units are held, planned are %d",
              at, ech_shard_unit_count(plan));
    return ECH_OK;
}

/* Units of a part's slab follow each other. */
static ech_status check_slabs(const ech_shard_plan *plan)
{
    const int n = plan->canon->n_units;
    for (int part = 0; part < ECH_N_PARTS; part++) {
        int64_t next = 0;
        for (int unit = 0; unit < n; unit++) {
            ECH_CHECK(ech_shard_unit_offset(plan, unit, (ech_part)part) == next, ECH_E_PROOF,
                      "unit %d of part %d does not begin where the one before ends", unit, part);
            if (ech_shard_has_unit(plan, unit))
                next += plan->unit[unit == 0 ? 0 : unit == n - 1 ? 2 : 1].part[part].elems;
        }
        ECH_CHECK(plan->elems[part] == next, ECH_E_PROOF,
                  "part %d of a rank's model has %lld elements, its units %lld", part,
                  (long long)plan->elems[part], (long long)next);
    }
    return ECH_OK;
}

ech_status ech_cover_check_plan(const ech_shard_plan *plan, const ech_layout *l, int64_t *looked)
{
    ech_mesh mesh;
    *looked = 0;
    ECH_TRY(ech_mesh_make(l, &mesh));
    ECH_CHECK(plan->tp == mesh.degree[ECH_AXIS_TP], ECH_E_PROOF,
              "the plan is for tp %d, the layout has %d", plan->tp, mesh.degree[ECH_AXIS_TP]);
    ECH_CHECK(plan->shards == 1 || plan->shards == mesh.degree[ECH_AXIS_DP], ECH_E_PROOF,
              "the plan has %d flat ranges, the layout %d ranks over dp", plan->shards,
              mesh.degree[ECH_AXIS_DP]);
    for (int kind = 0; kind < 3; kind++)
        ECH_TRY(check_unit(plan, &mesh, kind, looked));
    ECH_TRY(check_layers(plan->canon));
    ECH_TRY(check_held(plan));
    return check_slabs(plan);
}
