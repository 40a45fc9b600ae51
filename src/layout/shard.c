#include "layout/shard.h"

#include "base/checked.h"

ech_head_split ech_shard_heads(int64_t heads, int64_t kv_heads, int tp)
{
    const int64_t mine = heads / tp;
    const int64_t r = heads / kv_heads;
    const int64_t per_group = ech_gcd(mine, r);
    return (ech_head_split){mine / per_group, per_group, (int)(r / per_group)};
}

static ech_cut cut_of(ech_param_kind kind)
{
    switch (kind) {
    case ECH_PARAM_TOKEN_EMBED:
    case ECH_PARAM_HEAD:
    case ECH_PARAM_UP:
    case ECH_PARAM_UP_BIAS:
        return ECH_CUT_ROWS;
    case ECH_PARAM_ATTN_OUT:
    case ECH_PARAM_DOWN:
        return ECH_CUT_COLUMNS;
    case ECH_PARAM_GATE_UP:
        return ECH_CUT_GATE_UP;
    case ECH_PARAM_QKV:
    case ECH_PARAM_QKV_BIAS:
        return ECH_CUT_HEADS;
    default:
        return ECH_CUT_NONE;
    }
}

/* Norms of heads see other heads on every rank; everything else that is whole sees all tokens on
 * every rank, or with sequence parallelism its own. */
static ech_part part_of(const ech_shard_spec *s, bool is_tied_apart, ech_param_kind kind)
{
    const bool is_of_heads = kind == ECH_PARAM_Q_NORM || kind == ECH_PARAM_K_NORM;
    if (is_tied_apart && kind == ECH_PARAM_TOKEN_EMBED)
        return ECH_PART_TIED;
    if (s->tp == 1 || cut_of(kind) != ECH_CUT_NONE)
        return ECH_PART_CUT;
    return is_of_heads || s->is_sequence_parallel ? ECH_PART_SUMMED : ECH_PART_WHOLE;
}

static void cut_dims(const ech_shard_plan *plan, ech_shard_param *p)
{
    int d = 0;
    switch (p->cut) {
    case ECH_CUT_NONE:
        return;
    case ECH_CUT_HEADS:
        p->dim[0] = plan->heads.groups;
        p->dim[1] = plan->heads.per_group + 2;
        return;
    case ECH_CUT_ROWS:
        d = 0;
        break;
    case ECH_CUT_COLUMNS:
        d = p->rank - 1;
        break;
    case ECH_CUT_GATE_UP:
        d = 1;
        break;
    }
    p->dim[d] = ech_ceil_div(p->dim[d], plan->tp);
}

/* Tensors of one part, those that take weight decay first, then padding to whole flat ranges. */
static void lay_out_part(ech_shard_plan *plan, ech_shard_unit *u, ech_part part)
{
    ech_shard_part *out = &u->part[part];
    for (int pass = 0; pass < 2; pass++) {
        for (int i = u->first; i < u->first + u->n; i++) {
            ech_shard_param *p = &plan->param[i];
            if (p->part != part || plan->canon->param[p->param].is_decayed != (pass == 0))
                continue;
            p->offset = out->elems;
            out->elems += p->elems;
        }
        if (pass == 0)
            out->decayed = out->elems;
    }
    out->shard = ech_ceil_div(out->elems, plan->shards);
    out->elems = out->shard * plan->shards;
}

static void add_param(const ech_shard_spec *s, ech_shard_plan *plan, int i)
{
    const ech_param *from = &s->canon->param[i];
    ech_shard_param *p = &plan->param[plan->n_params++];
    *p = (ech_shard_param){.param = i, .cut = cut_of(from->kind), .rank = from->rank};
    p->part = part_of(s, plan->is_tied_apart, from->kind);
    for (int d = 0; d < from->rank; d++)
        p->dim[d] = from->dim[d];
    if (s->tp > 1)
        cut_dims(plan, p);
    p->elems = 1;
    for (int d = 0; d < p->rank; d++)
        p->elems *= p->dim[d];
}

static void add_tied_copy(const ech_shard_spec *s, ech_shard_plan *plan)
{
    const ech_canon *c = s->canon;
    for (int i = c->unit_first[0]; i < c->unit_first[1]; i++)
        if (c->param[i].kind == ECH_PARAM_TOKEN_EMBED) {
            add_param(s, plan, i);
            plan->param[plan->n_params - 1].is_copy = true;
        }
}

static void lay_out_unit(const ech_shard_spec *s, ech_shard_plan *plan, ech_unit_kind kind)
{
    const ech_canon *c = s->canon;
    ech_shard_unit *u = &plan->unit[kind];
    const int unit = ech_canon_first_unit(c, kind);
    u->first = plan->n_params;
    for (int i = c->unit_first[unit]; i < c->unit_first[unit + 1]; i++)
        add_param(s, plan, i);
    if (kind == ECH_UNIT_HEAD && plan->is_tied_apart)
        add_tied_copy(s, plan);
    u->n = plan->n_params - u->first;
    for (int part = 0; part < ECH_N_PARTS; part++)
        lay_out_part(plan, u, (ech_part)part);
}

/* Neighbouring stages of one rank are one range. */
static void hold_units(const ech_shard_spec *s, ech_shard_plan *plan)
{
    if (!s->stages) {
        plan->range[plan->n_ranges++] = (ech_unit_range){0, s->canon->n_units};
        return;
    }
    for (int k = 0; k < s->stages->n; k++) {
        const ech_unit_range r = {s->stages->first[k], s->stages->first[k + 1]};
        ech_unit_range *last = plan->n_ranges ? &plan->range[plan->n_ranges - 1] : NULL;
        if (s->stages->rank_of[k] != s->stage_rank || r.first == r.end)
            continue;
        if (last && last->end == r.first)
            last->end = r.end;
        else
            plan->range[plan->n_ranges++] = r;
    }
}

ech_status ech_shard_plan_make(const ech_shard_spec *s, ech_shard_plan *out)
{
    ech_shard_plan plan = {.canon = s->canon, .tp = s->tp, .shards = s->shards};
    ECH_CHECK(s->tp >= 1 && s->model->heads % s->tp == 0, ECH_E_ILLEGAL,
              "tp = %d does not divide the %lld heads of '%s'", s->tp, (long long)s->model->heads,
              s->model->name);
    ECH_CHECK(s->shards >= 1, ECH_E_ILLEGAL, "state in %d flat ranges", s->shards);
    plan.heads = ech_shard_heads(s->model->heads, s->model->kv_heads, s->tp);
    plan.is_tied_apart =
        s->stages && s->model->tie_embeddings && ech_stages_tie_apart(s->stages, s->canon);
    hold_units(s, &plan);
    for (int k = 0; k < ECH_N_UNIT_KINDS; k++)
        lay_out_unit(s, &plan, (ech_unit_kind)k);
    for (int part = 0; part < ECH_N_PARTS; part++)
        plan.elems[part] = ech_shard_unit_offset(&plan, s->canon->n_units, (ech_part)part);
    *out = plan;
    return ECH_OK;
}

const ech_shard_unit *ech_shard_unit_of(const ech_shard_plan *plan, int u)
{
    return &plan->unit[ech_canon_unit_kind(plan->canon, u)];
}

int ech_shard_unit_count(const ech_shard_plan *plan)
{
    int n = 0;
    for (int k = 0; k < plan->n_ranges; k++)
        n += plan->range[k].end - plan->range[k].first;
    return n;
}

int ech_shard_unit_at(const ech_shard_plan *plan, int i)
{
    int k = 0;
    while (i >= plan->range[k].end - plan->range[k].first) {
        i -= plan->range[k].end - plan->range[k].first;
        k++;
    }
    return plan->range[k].first + i;
}

bool ech_shard_has_unit(const ech_shard_plan *plan, int u)
{
    for (int k = 0; k < plan->n_ranges; k++)
        if (plan->range[k].first <= u && u < plan->range[k].end)
            return true;
    return false;
}

int64_t ech_shard_unit_offset(const ech_shard_plan *plan, int u, ech_part part)
{
    const int head = plan->canon->n_units - 1;
    int64_t layers = 0;
    for (int k = 0; k < plan->n_ranges; k++) {
        const int first = plan->range[k].first > 1 ? plan->range[k].first : 1;
        const int most = plan->range[k].end < head ? plan->range[k].end : head;
        const int end = most < u ? most : u;
        layers += end > first ? end - first : 0;
    }
    const bool has_embedding = u > 0 && ech_shard_has_unit(plan, 0);
    const bool has_head = u > head && ech_shard_has_unit(plan, head);
    return (has_embedding ? plan->unit[ECH_UNIT_EMBEDDING].part[part].elems : 0) +
           layers * plan->unit[ECH_UNIT_LAYER].part[part].elems +
           (has_head ? plan->unit[ECH_UNIT_HEAD].part[part].elems : 0);
}

const ech_shard_param *ech_shard_find(const ech_shard_plan *plan, ech_param_kind kind)
{
    for (int i = 0; i < plan->n_params; i++)
        if (plan->canon->param[plan->param[i].param].kind == kind)
            return &plan->param[i];
    return NULL;
}

/* --- runs --- */

static int64_t inner_elems(const ech_shard_param *p, int from)
{
    int64_t n = 1;
    for (int d = from; d < p->rank; d++)
        n *= p->dim[d];
    return n;
}

/* What of a dimension of n is at a coordinate: ceil(n / tp) indices, cut at the end. */
static ech_range slice(const ech_shard_plan *plan, int64_t n, int coord)
{
    const int64_t len = ech_ceil_div(n, plan->tp);
    const int64_t begin = len * coord < n ? len * coord : n;
    const int64_t end = begin + len < n ? begin + len : n;
    return (ech_range){begin, end};
}

/* Queries of a group, then its key and value together; the latter stand in every copy. */
static ech_shard_run head_run(const ech_shard_plan *plan, const ech_shard_param *p, int coord,
                              int64_t i)
{
    const ech_head_split *h = &plan->heads;
    const int64_t head = inner_elems(p, 2);
    const int64_t r = h->per_group * h->copies;
    const int64_t group = coord * h->groups + i / 2; /* among the smaller ones of all ranks */
    const int64_t kv = group / h->copies;
    const int64_t at = i / 2 * (h->per_group + 2) * head;
    if (i % 2 == 0)
        return (ech_shard_run){.canonical =
                                   (kv * (r + 2) + group % h->copies * h->per_group) * head,
                               .local = at,
                               .elems = h->per_group * head,
                               .is_first = true};
    return (ech_shard_run){.canonical = (kv * (r + 2) + r) * head,
                           .local = at + h->per_group * head,
                           .elems = 2 * head,
                           .is_first = group % h->copies == 0};
}

int64_t ech_shard_run_count(const ech_shard_plan *plan, const ech_shard_param *p)
{
    if (plan->tp == 1)
        return 1;
    switch (p->cut) {
    case ECH_CUT_NONE:
    case ECH_CUT_ROWS:
        return 1;
    case ECH_CUT_COLUMNS:
        return p->elems / p->dim[p->rank - 1];
    case ECH_CUT_GATE_UP:
        return 2;
    case ECH_CUT_HEADS:
        return 2 * plan->heads.groups;
    }
    return 0;
}

ech_shard_run ech_shard_run_get(const ech_shard_plan *plan, const ech_shard_param *p, int coord,
                                int64_t i)
{
    const ech_param *whole = &plan->canon->param[p->param];
    if (plan->tp == 1 || p->cut == ECH_CUT_NONE)
        return (ech_shard_run){0, 0, p->elems, coord == 0};
    if (p->cut == ECH_CUT_HEADS)
        return head_run(plan, p, coord, i);
    const int d = p->cut == ECH_CUT_ROWS ? 0 : p->cut == ECH_CUT_GATE_UP ? 1 : p->rank - 1;
    const int64_t inner = inner_elems(p, d + 1);
    const ech_range mine = slice(plan, whole->dim[d], coord);
    return (ech_shard_run){.canonical = (i * whole->dim[d] + mine.begin) * inner,
                           .local = i * p->dim[d] * inner,
                           .elems = (mine.end - mine.begin) * inner,
                           .is_first = true};
}
