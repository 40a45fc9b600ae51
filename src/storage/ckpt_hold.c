#include "storage/ckpt_hold.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

ech_status ech_ckpt_tensors_create(const ech_model *model, const ech_canon *canon,
                                   ech_ckpt_tensor **out)
{
    ech_ckpt_tensor *t = NULL;
    ECH_TRY(ech_calloc((size_t)canon->n_params, sizeof *t, &t));
    for (int i = 0; i < canon->n_params; i++) {
        const ech_param *p = &canon->param[i];
        const bool has_padding = p->kind == ECH_PARAM_TOKEN_EMBED || p->kind == ECH_PARAM_HEAD;
        (void)snprintf(t[i].name, sizeof t[i].name, "%s", p->name);
        t[i].rank = p->rank;
        t[i].elems = 1;
        for (int d = 0; d < p->rank; d++) {
            t[i].dim[d] = d == 0 && has_padding ? model->vocab : p->dim[d];
            t[i].elems *= t[i].dim[d];
        }
    }
    *out = t;
    return ECH_OK;
}

/* --- boxes --- */

/* Are head groups smaller than canonical ones, so that a key/value head has copies? */
static bool has_small_groups(const ech_shard_plan *plan, const ech_shard_param *p)
{
    return plan->tp > 1 && p->cut == ECH_CUT_HEADS && plan->heads.copies > 1;
}

int64_t ech_ckpt_hold_count(const ech_shard_plan *plan, const ech_shard_param *p)
{
    return has_small_groups(plan, p) ? 2 * plan->heads.groups : 1;
}

/* Queries of a small group, or its key and value: the latter stand behind the r queries of the
 * canonical group, once for all its copies. */
static ech_ckpt_hold small_group(const ech_shard_plan *plan, const ech_ckpt_tensor *saved,
                                 int tp_coord, int64_t i)
{
    const ech_head_split *h = &plan->heads;
    const int64_t group = tp_coord * h->groups + i / 2; /* among those of all ranks */
    const int64_t queries = h->per_group * h->copies;
    const int64_t head = saved->dim[2] * (saved->rank > 3 ? saved->dim[3] : 1);
    const bool is_query = i % 2 == 0;
    ech_ckpt_hold out = {.box = ech_ckpt_box_whole(saved->rank, saved->dim), .rows = 1};
    out.box.begin[0] = group / h->copies;
    out.box.end[0] = out.box.begin[0] + 1;
    out.box.begin[1] = is_query ? group % h->copies * h->per_group : queries;
    out.box.end[1] = is_query ? out.box.begin[1] + h->per_group : queries + 2;
    out.row = out.pitch = (is_query ? h->per_group : 2) * head;
    out.local = (i / 2 * (h->per_group + 2) + (is_query ? 0 : h->per_group)) * head;
    out.is_first = is_query || group % h->copies == 0;
    return out;
}

static int cut_dimension(const ech_shard_param *p)
{
    return p->cut == ECH_CUT_COLUMNS ? p->rank - 1 : p->cut == ECH_CUT_GATE_UP ? 1 : 0;
}

ech_ckpt_hold ech_ckpt_hold_get(const ech_shard_plan *plan, const ech_shard_param *p,
                                const ech_ckpt_tensor *saved, int tp_coord, int64_t i)
{
    if (has_small_groups(plan, p))
        return small_group(plan, saved, tp_coord, i);
    const bool is_cut = plan->tp > 1 && p->cut != ECH_CUT_NONE;
    const int d = cut_dimension(p);
    ech_ckpt_hold out = {.box = ech_ckpt_box_whole(saved->rank, saved->dim), .rows = 1};
    int64_t in = 1;
    if (is_cut) { /* a run of dimension d, shorter at the end */
        out.box.begin[d] = smaller(tp_coord * p->dim[d], saved->dim[d]);
        out.box.end[d] = smaller((tp_coord + 1) * p->dim[d], saved->dim[d]);
    }
    for (int k = 0; k < d; k++)
        out.rows *= p->dim[k];
    for (int k = d + 1; k < p->rank; k++)
        in *= p->dim[k];
    out.row = (out.box.end[d] - out.box.begin[d]) * in;
    out.pitch = p->dim[d] * in;
    out.is_first = is_cut || tp_coord == 0;
    return out;
}

int64_t ech_ckpt_hold_before(const ech_ckpt_hold *h, int64_t local)
{
    if (local <= h->local)
        return 0;
    const int64_t row = smaller((local - h->local) / h->pitch, h->rows);
    const int64_t rest = local - h->local - row * h->pitch;
    return row * h->row + (row < h->rows ? smaller(rest, h->row) : 0);
}

int64_t ech_ckpt_hold_place(const ech_ckpt_hold *h, int64_t i)
{
    return h->local + i / h->row * h->pitch + i % h->row;
}

/* --- spans --- */

bool ech_ckpt_span_slice(const ech_ckpt_span *s, int i, ech_ckpt_slice *out)
{
    const ech_shard_unit *u = ech_shard_unit_of(s->plan, s->unit);
    if (i >= u->n)
        return false;
    const ech_shard_param *p = &s->plan->param[u->first + i];
    *out = (ech_ckpt_slice){.p = p, .shift = s->first - p->offset};
    out->tensor =
        p->is_copy ? p->param : s->plan->canon->unit_first[s->unit] + i; /* like units: alike */
    if (p->part != s->part)
        return true;
    out->begin = smaller(larger(out->shift, 0), p->elems);
    out->end = larger(smaller(out->shift + s->n, p->elems), out->begin);
    return true;
}

int64_t ech_ckpt_span_used(const ech_ckpt_span *s)
{
    const ech_shard_unit *u = ech_shard_unit_of(s->plan, s->unit);
    int64_t used = 0;
    for (int i = u->first; i < u->first + u->n; i++)
        if (s->plan->param[i].part == s->part)
            used += s->plan->param[i].elems;
    return used;
}
