/* What the classes of a run hold and use together. */
#include "program/cover_private.h"

#include <stdio.h>
#include <stdlib.h>

enum { NONE = -1 };

/* The classes that hold the model's first and last unit. */
typedef struct ends {
    int embedding, head;
} ends;

static const char *unit_name(const ech_canon *c, int unit, char buf[32])
{
    if (unit == 0 || unit == c->n_units - 1)
        (void)snprintf(buf, 32, "%s", unit ? "the head" : "the embedding");
    else
        (void)snprintf(buf, 32, "layer %d", unit - 1);
    return buf;
}

/* Every unit is one class's. */
static ech_status find_holder(const ech_cover_spec *s, int unit, int *holder)
{
    char name[32];
    const ech_canon *c = s->plan[0]->canon;
    *holder = NONE;
    for (int k = 0; k < s->n_classes; k++) {
        if (!ech_shard_has_unit(s->plan[k], unit))
            continue;
        ECH_CHECK(*holder == NONE, ECH_E_PROOF, "%s is held by class %d and by class %d",
                  unit_name(c, unit, name), *holder, k);
        *holder = k;
    }
    ECH_CHECK(*holder != NONE, ECH_E_PROOF, "%s is held by no class", unit_name(c, unit, name));
    return ECH_OK;
}

static ech_status check_holders(const ech_cover_spec *s, ends *out)
{
    const int n = s->plan[0]->canon->n_units;
    for (int k = 0; k < s->n_classes; k++)
        ECH_CHECK(s->plan[k]->canon == s->plan[0]->canon, ECH_E_PROOF,
                  "the plan of class %d is of another model", k);
    for (int unit = 0; unit < n; unit++) {
        int holder;
        ECH_TRY(find_holder(s, unit, &holder));
        if (unit == 0)
            out->embedding = holder;
        if (unit == n - 1)
            out->head = holder;
    }
    return ECH_OK;
}

static bool has_own_table(const ech_canon *c)
{
    bool found = false;
    for (int i = c->unit_first[c->n_units - 1]; i < c->unit_first[c->n_units]; i++)
        found = found || c->param[i].kind == ECH_PARAM_HEAD;
    return found;
}

/* The ranks of the two that hold the token table are the groups of axis tied, and no other rank is
 * in one. */
static ech_status check_pairs(const ech_cover_spec *s, const ends *e, bool is_apart)
{
    ech_mesh mesh;
    char name[128];
    ECH_TRY(ech_mesh_make(&s->program[0]->layout, &mesh));
    for (int r = 0; r < mesh.world; r++) {
        const int klass = s->class_of ? s->class_of[r] : 0;
        const bool holds = is_apart && (klass == e->embedding || klass == e->head);
        const bool is_paired = ech_mesh_size(&mesh, r, ECH_AXIS_TIED) > 1;
        ECH_CHECK(holds == is_paired, ECH_E_PROOF,
                  "%s %s the token table with another, but is %s a "
                  "group of axis tied",
                  ech_mesh_describe(&mesh, r, name, sizeof name),
                  holds ? "shares" : "does not share", is_paired ? "in" : "not in");
    }
    return ECH_OK;
}

/* Embedding and head share a token table: of one class the head borrows it, of two both hold it. */
static ech_status check_tied(const ech_cover_spec *s, const ends *e)
{
    const bool is_apart = e->embedding != e->head && !has_own_table(s->plan[0]->canon);
    for (int k = 0; k < s->n_classes; k++)
        ECH_CHECK(s->plan[k]->is_tied_apart == is_apart, ECH_E_PROOF,
                  "embedding and head are class %d's and class %d's, the plan of class %d has %s",
                  e->embedding, e->head, k,
                  is_apart ? "no part for the token table that they share"
                           : "a part for a token table that they share");
    return check_pairs(s, e, is_apart);
}

/* --- uses --- */

static void note_wanted(const ech_program *p, bool is_wanted[2])
{
    for (int i = 0; i < p->n_blocks; i++)
        for (int k = 0; k < p->block[i].n_ops; k++) {
            const ech_op_kind kind = p->block[i].op[k].kind;
            if (kind == ECH_OP_ADAMW || kind == ECH_OP_SGD)
                is_wanted[ECH_COUNT_UPDATE] = true;
            if (kind == ECH_OP_SUMSQ)
                is_wanted[ECH_COUNT_NORM] = true;
        }
}

/* Every tensor is read; in a step that updates, its gradient is added to as often. */
static ech_status check_uses(const ech_canon *c, const ech_cover_uses *u)
{
    for (int i = 0; i < c->n_params; i++) {
        const char *name = c->param[i].name;
        ECH_CHECK(u->n_read[i] > 0, ECH_E_PROOF, "'%s' is read by no block", name);
        if (!u->is_wanted[ECH_COUNT_UPDATE])
            continue;
        ECH_CHECK(u->n_written[i] > 0, ECH_E_PROOF, "the gradient of '%s' is written by no block",
                  name);
        ECH_CHECK(u->n_written[i] == u->n_read[i], ECH_E_PROOF,
                  "'%s' is read %lld times, its gradient is added to %lld times", name,
                  (long long)u->n_read[i], (long long)u->n_written[i]);
    }
    return ECH_OK;
}

static ech_status check_class(const ech_cover_spec *s, int klass, ech_cover_uses *uses,
                              int64_t *looked)
{
    int64_t planned = 0;
    ech_status st = ech_cover_check_plan(s->plan[klass], &s->program[klass]->layout, &planned);
    if (st >= 0)
        st = ech_cover_check_class(s->program[klass], s->plan[klass], uses, looked);
    *looked += planned;
    return st < 0 && s->n_classes > 1 ? ech_error_prefix(st, "every rank of class %d: ", klass)
                                      : st;
}

static ech_status run(const ech_cover_spec *s, ech_cover_uses *uses, int64_t *looked)
{
    ends e = {NONE, NONE};
    const ech_canon *c = s->plan[0]->canon;
    ECH_TRY(ech_calloc((size_t)c->n_params, sizeof *uses->n_read, &uses->n_read));
    ECH_TRY(ech_calloc((size_t)c->n_params, sizeof *uses->n_written, &uses->n_written));
    ECH_TRY(ech_calloc((size_t)c->n_params, sizeof *uses->more_read, &uses->more_read));
    ECH_TRY(check_holders(s, &e));
    ECH_TRY(check_tied(s, &e));
    for (int k = 0; k < s->n_classes; k++)
        note_wanted(s->program[k], uses->is_wanted);
    for (int k = 0; k < s->n_classes; k++)
        ECH_TRY(check_class(s, k, uses, looked));
    ECH_TRY(check_uses(c, uses));
    return ech_cover_check_streams(s, looked);
}

ech_status ech_cover_check_run(const ech_cover_spec *spec, int64_t *looked)
{
    ech_cover_uses uses = {0};
    *looked = 0;
    const ech_status st = run(spec, &uses, looked);
    free(uses.n_read);
    free(uses.n_written);
    free(uses.more_read);
    return st;
}
