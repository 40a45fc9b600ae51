/* Which element of which part every byte is, followed through the program. */
#include "program/cover_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    ECH_TRY(ech_cover_check_split(t));
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

/* The gradient of a copy is another class's to measure. */
static ech_status check_unmeasured(const ech_tracker *t, int of, const int *at)
{
    char where[128];
    const ech_counted *u = &t->counted[*at];
    ECH_CHECK(*at >= t->n_counted || u->kind != ECH_COUNT_NORM || u->of != of, ECH_E_PROOF,
              "%s sums a copy into the norm, which another class does",
              ech_item_describe(t->p, u->item, where, sizeof where));
    return ECH_OK;
}

/* Slots that say they hold copies do. */
static ech_status check_copies(const ech_tracker *t)
{
    for (int s = 0; s < t->p->n_slots && t->is_wanted[ECH_COUNT_UPDATE]; s++)
        ECH_CHECK(!t->p->slot[s].is_copy || t->is_copied[s], ECH_E_PROOF,
                  "slot '%s' is said to be a copy, but no update finds one there",
                  t->p->slot[s].name);
    return ECH_OK;
}

static ech_status check_covered(ech_tracker *t)
{
    int at = 0;
    if (t->n_counted > 0)
        qsort(t->counted, (size_t)t->n_counted, sizeof *t->counted, cmp_counted);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < ech_shard_unit_count(t->plan) * ECH_N_PARTS && t->is_wanted[k]; i++) {
            const int of =
                ech_shard_unit_at(t->plan, i / ECH_N_PARTS) * ECH_N_PARTS + i % ECH_N_PARTS;
            ECH_TRY(k == ECH_COUNT_NORM && ech_cover_is_copy(t, of)
                        ? check_unmeasured(t, of, &at)
                        : check_part(t, (ech_count_kind)k, of, &at));
        }
    return check_copies(t);
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
    const size_t inputs = ((size_t)t->plan->canon->n_units + 1) * ((size_t)t->p->micro_batches + 1);
    ECH_TRY(ech_calloc((size_t)t->p->n_slots, sizeof *t->map, &t->map));
    ECH_TRY(ech_calloc(parts, sizeof *t->home, &t->home));
    ECH_TRY(ech_calloc(parts, sizeof *t->home_slot, &t->home_slot));
    ECH_TRY(ech_calloc((size_t)t->p->n_slots, sizeof *t->is_copied, &t->is_copied));
    ECH_TRY(ech_calloc((size_t)t->p->n_blocks, sizeof *t->is_embedding, &t->is_embedding));
    ECH_TRY(ech_calloc((size_t)t->p->n_blocks, sizeof *t->is_paired, &t->is_paired));
    ECH_TRY(ech_calloc(inputs, sizeof *t->last_input, &t->last_input));
    ECH_TRY(ech_calloc((size_t)t->p->n_items, sizeof *t->input_before, &t->input_before));
    for (size_t i = 0; i < inputs; i++)
        t->last_input[i] = -1;
    for (size_t i = 0; i < parts; i++)
        t->home[i].of = ECH_NO_MARK;
    return ECH_OK;
}

/* --- rounds --- */

static bool is_round_later(const void *ctx, const int before[3], const int after[3])
{
    const ech_tracker *t = ctx;
    if (before[0] == ECH_NO_MARK || after[0] == ECH_NO_MARK)
        return before[0] == after[0];
    const ech_mark *a = &t->mark[before[0]];
    const ech_mark *b = &t->mark[after[0]];
    return a->matter != ECH_UNNAMED && ech_mark_is_same(a, b);
}

/* Input blocks of a layer and micro-batch, a round ago, and those `step` micro-batches on. */
static ech_status check_inputs(const ech_tracker *t)
{
    const int n = t->p->micro_batches + 1;
    for (int unit = 0; unit <= t->plan->canon->n_units; unit++)
        for (int m = 1; m + t->p->rounds.step < n; m++) {
            int a = t->inputs_before[unit * n + m];
            int b = t->last_input[unit * n + m + t->p->rounds.step];
            for (; a >= 0 || b >= 0; a = t->input_before[a], b = t->input_before[b])
                ECH_CHECK(ech_rounds_follows(t->p, a, b), ECH_E_PROOF,
                          "items %d to %d repeat %d times, but the last time leaves other input "
                          "blocks than the time before",
                          t->p->rounds.first, t->p->rounds.end - 1, t->p->rounds.times);
        }
    return ECH_OK;
}

static ech_status note_round(ech_tracker *t)
{
    const int ending = ech_rounds_ending(t->p, t->item);
    const size_t inputs = ((size_t)t->plan->canon->n_units + 1) * ((size_t)t->p->micro_batches + 1);
    const ech_rounds_values values = {{ECH_NO_MARK, 0, 0}, is_round_later, t};
    ECH_TRY(ech_rounds_note(t->p, t->item, t->map, &values, &t->before));
    for (int i = 0; i < t->plan->canon->n_params && ending; i++)
        t->more_read[i] += (ending == 1 ? -1 : 1) * (t->n_read[i] - t->n_written[i]);
    if (ending == 1) {
        ECH_TRY(ech_calloc(inputs, sizeof(int), &t->inputs_before));
        memcpy(t->inputs_before, t->last_input, inputs * sizeof(int));
    }
    return ending == 2 ? check_inputs(t) : ECH_OK;
}

static ech_status run(ech_tracker *t)
{
    ECH_TRY(ech_mesh_make(&t->p->layout, &t->mesh));
    ECH_TRY(reserve(t));
    find_embeddings(t);
    for (t->item = 0; t->item < t->p->n_items; t->item++) {
        ECH_TRY(visit_item(t));
        ECH_TRY(note_round(t));
    }
    return check_covered(t);
}

ech_status ech_cover_check_class(const ech_program *p, const ech_shard_plan *plan,
                                 ech_cover_uses *uses, int64_t *looked)
{
    ech_tracker t = {.p = p,
                     .plan = plan,
                     .n_read = uses->n_read,
                     .n_written = uses->n_written,
                     .more_read = uses->more_read,
                     .is_wanted = {uses->is_wanted[0], uses->is_wanted[1]}};
    const ech_status st = run(&t);
    for (int s = 0; t.map && s < p->n_slots; s++)
        ech_interval_fini(&t.map[s]);
    free(t.map);
    free(t.mark);
    free(t.gather);
    free(t.counted);
    free(t.home);
    free(t.home_slot);
    free(t.is_copied);
    free(t.is_embedding);
    free(t.is_paired);
    ech_rounds_forget(&t.before);
    free(t.inputs_before);
    free(t.last_input);
    free(t.input_before);
    *looked += t.looked;
    return st;
}
