/* Which element of which part every byte is, followed through the program. */
#include "program/cover_private.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_of_model(ech_role role)
{
    return role == ECH_ROLE_FORWARD || role == ECH_ROLE_BACKWARD ||
           role == ECH_ROLE_BACKWARD_INPUT || role == ECH_ROLE_BACKWARD_WEIGHT ||
           role == ECH_ROLE_RECOMPUTE;
}

static ech_status visit_item(ech_tracker *t)
{
    const int block = t->p->item[t->item].block;
    const ech_block *b = &t->p->block[block];
    if (is_of_model(b->role) && !t->is_paired[block])
        ECH_TRY(ech_cover_check_pairs(t, b));
    t->is_paired[block] = true;
    for (int k = 0; k < b->n_ops; k++) {
        t->op = &b->op[k];
        const bool is_model = is_of_model(b->role) && !ech_op_is_comm(t->op->kind);
        ECH_TRY(is_model ? ech_cover_visit_model(t) : ech_cover_visit_state(t));
    }
    return ECH_OK;
}

static int cmp_counted(const void *a, const void *b)
{
    const ech_counted *x = a;
    const ech_counted *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->of != y->of)
        return x->of < y->of ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Elements of a part that tensors use; behind them is padding. */
static int64_t used_elems(const ech_tracker *t, int of)
{
    const ech_shard_unit *u = ech_cover_unit(t, of / ECH_N_PARTS);
    int64_t used = 0;
    for (int i = u->first; i < u->first + u->n; i++) {
        const ech_shard_param *p = &t->plan->param[i];
        if ((int)p->part == of % ECH_N_PARTS && p->offset + p->elems > used)
            used = p->offset + p->elems;
    }
    return used;
}

/* What counts elements of a part goes from its first to the last that is used, one after the
 * other. */
static ech_status check_part(const ech_tracker *t, ech_count_kind kind, int of, int *at)
{
    static const char *const verbs[] = {"updated", "summed into the norm"};
    char name[96];
    char where[128] = "nothing";
    const ech_mark m = {kind == ECH_COUNT_UPDATE ? ECH_WEIGHT : ECH_GRADIENT, of, 0, 0};
    const int64_t used = used_elems(t, of);
    const int64_t all = ech_cover_unit(t, of / ECH_N_PARTS)->part[of % ECH_N_PARTS].elems;
    int64_t next = 0;
    (void)ech_mark_name(t, &m, name, sizeof name);
    for (; *at < t->n_counted && t->counted[*at].kind == kind && t->counted[*at].of == of; ++*at) {
        const ech_counted *u = &t->counted[*at];
        (void)ech_item_describe(t->p, u->item, where, sizeof where);
        ECH_CHECK(u->begin >= next, ECH_E_PROOF,
                  "elements %lld..%lld of the %s are %s twice, again by %s", (long long)u->begin,
                  (long long)(next < u->end ? next : u->end), name, verbs[kind], where);
        ECH_CHECK(u->begin == next, ECH_E_PROOF,
                  "elements %lld..%lld of the %s are never %s, next is %s", (long long)next,
                  (long long)u->begin, name, verbs[kind], where);
        ECH_CHECK(u->end <= all, ECH_E_PROOF, "%s takes elements up to %lld of the %lld %s", where,
                  (long long)u->end, (long long)all, name);
        next = u->end;
    }
    ECH_CHECK(next >= used, ECH_E_PROOF, "elements %lld..%lld of the %s are never %s, last is %s",
              (long long)next, (long long)used, name, verbs[kind], where);
    return ECH_OK;
}

/* Every tensor is read; in a step that updates, its gradient is added to as often. */
static ech_status check_uses(const ech_tracker *t)
{
    const ech_canon *c = t->plan->canon;
    for (int i = 0; i < c->n_params; i++) {
        const char *name = c->param[i].name;
        ECH_CHECK(t->n_read[i] > 0, ECH_E_PROOF, "'%s' is read by no block", name);
        if (!t->n_kind[ECH_COUNT_UPDATE])
            continue;
        ECH_CHECK(t->n_written[i] > 0, ECH_E_PROOF, "the gradient of '%s' is written by no block",
                  name);
        ECH_CHECK(t->n_written[i] == t->n_read[i], ECH_E_PROOF,
                  "'%s' is read %lld times, its gradient is added to %lld times", name,
                  (long long)t->n_read[i], (long long)t->n_written[i]);
    }
    return ECH_OK;
}

static ech_status check_covered(ech_tracker *t)
{
    int at = 0;
    ECH_TRY(check_uses(t));
    if (t->n_counted > 0)
        qsort(t->counted, (size_t)t->n_counted, sizeof *t->counted, cmp_counted);
    for (int kind = 0; kind < 2; kind++)
        for (int of = 0; of < t->plan->canon->n_units * ECH_N_PARTS && t->n_kind[kind]; of++)
            ECH_TRY(check_part(t, (ech_count_kind)kind, of, &at));
    return ECH_OK;
}

/* Blocks outside layers are the embedding's or the head's. */
static void find_embeddings(const ech_tracker *t)
{
    for (int i = 0; i < t->p->n_blocks; i++)
        for (int k = 0; k < t->p->block[i].n_ops; k++)
            switch (t->p->block[i].op[k].kind) {
            case ECH_OP_EMBED:
            case ECH_OP_EMBED_BACKWARD:
            case ECH_OP_POSITIONS:
            case ECH_OP_POSITIONS_BACKWARD:
                t->is_embedding[i] = true;
                break;
            default:
                break;
            }
}

static ech_status reserve(ech_tracker *t)
{
    const size_t parts = (size_t)t->plan->canon->n_units * ECH_N_PARTS;
    const size_t params = (size_t)t->plan->canon->n_params;
    ECH_TRY(ech_calloc((size_t)t->p->n_slots, sizeof *t->map, &t->map));
    ECH_TRY(ech_calloc(parts, sizeof *t->home, &t->home));
    ECH_TRY(ech_calloc(parts, sizeof *t->home_slot, &t->home_slot));
    ECH_TRY(ech_calloc(params, sizeof *t->n_read, &t->n_read));
    ECH_TRY(ech_calloc(params, sizeof *t->n_written, &t->n_written));
    ECH_TRY(ech_calloc((size_t)t->p->n_blocks, sizeof *t->is_embedding, &t->is_embedding));
    ECH_TRY(ech_calloc((size_t)t->p->n_blocks, sizeof *t->is_paired, &t->is_paired));
    for (size_t i = 0; i < parts; i++)
        t->home[i].of = ECH_NO_MARK;
    return ECH_OK;
}

static ech_status run(ech_tracker *t)
{
    ECH_TRY(ech_mesh_make(&t->p->layout, &t->mesh));
    ECH_TRY(reserve(t));
    find_embeddings(t);
    for (t->item = 0; t->item < t->p->n_items; t->item++)
        ECH_TRY(visit_item(t));
    return check_covered(t);
}

ech_status ech_cover_check_program(const ech_program *p, const ech_shard_plan *plan,
                                   int64_t *looked)
{
    ech_tracker t = {.p = p, .plan = plan};
    const ech_status st = run(&t);
    for (int s = 0; t.map && s < p->n_slots; s++)
        ech_interval_fini(&t.map[s]);
    free(t.map);
    free(t.mark);
    free(t.gather);
    free(t.counted);
    free(t.home);
    free(t.home_slot);
    free(t.n_read);
    free(t.n_written);
    free(t.is_embedding);
    free(t.is_paired);
    *looked = t.looked;
    return st;
}
