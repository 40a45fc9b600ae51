#include "program/prove.h"
#include "base/clock.h"
#include "program/cover.h"
#include "program/deps.h"
#include "program/lives.h"
#include "program/match.h"
#include "program/once.h"
#include "program/repeat.h"
#include "program/types.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct prover {
    const ech_prove_spec *spec;
    ech_prove_report *report;
    const ech_program *const
        *whole; /* programs as they were given; spec has those with few rounds */
} prover;

static const struct {
    const char *name, *claim;
} parts[] = {
#define ECH_PROOF_ROW(part, name, text) [part] = {name, text},
    ECH_PROOF_LIST(ECH_PROOF_ROW)
#undef ECH_PROOF_ROW
};

const char *ech_proof_name(ech_proof_part part)
{
    return parts[part].name;
}

const char *ech_proof_claim(ech_proof_part part)
{
    return parts[part].claim;
}

/* --- peaks --- */

static size_t rounded(size_t bytes)
{
    return (bytes + ECH_ALIGN - 1) / ECH_ALIGN * ECH_ALIGN;
}

/* Transient bytes of a space alive at its fullest item: births minus deaths, item by item.  A sum
 * that leaves 64 bits is more than any arena. */
static ech_status live_peak(const ech_program *p, ech_space space, size_t *out)
{
    size_t *change;
    size_t live = 0;
    *out = 0;
    ECH_TRY(ech_calloc(2 * ((size_t)p->n_items + 1), sizeof *change, &change));
    for (int s = p->n_state; s < p->n_slots; s++) {
        const ech_slot *slot = &p->slot[s];
        if (slot->space != space || slot->first < 0)
            continue;
        change[2 * slot->first] += rounded(slot->bytes);
        change[2 * slot->last + 3] += rounded(slot->bytes);
    }
    for (int i = 0; i < p->n_items; i++) {
        live += change[2 * i];
        live -= change[2 * i + 1];
        *out = live > *out ? live : *out;
    }
    free(change);
    return ECH_OK;
}

static ech_status check_space(const ech_program *p, ech_space space, size_t cap)
{
    size_t state = 0;
    size_t peak;
    const char *name = ech_space_name(space);
    for (int s = 0; s < p->n_state; s++)
        state += p->slot[s].space == space ? rounded(p->slot[s].bytes) : 0;
    ECH_TRY(live_peak(p, space, &peak));
    ECH_CHECK(state == p->state_bytes[space], ECH_E_PROOF,
              "state takes %zu bytes of %s memory, predicted are %zu", state, name,
              p->state_bytes[space]);
    ECH_CHECK(
        peak == p->peak_live_bytes[space] && peak <= p->transient_bytes[space], ECH_E_PROOF,
        "%zu transient bytes of %s memory are alive at once, predicted are %zu in an arena of "
        "%zu",
        peak, name, p->peak_live_bytes[space], p->transient_bytes[space]);
    const size_t total = state + p->transient_bytes[space];
    ECH_CHECK(!cap || total <= cap, ECH_E_INFEASIBLE, "%zu bytes of %s memory, the cap is %zu",
              total, name, cap);
    return ECH_OK;
}

static ech_status check_peaks(const prover *v, const ech_program *p, int64_t *looked)
{
    for (int s = 0; s < ECH_N_SPACES; s++)
        ECH_TRY(check_space(p, (ech_space)s, v->spec->cap_bytes[s]));
    *looked += p->n_slots;
    return ECH_OK;
}

/* --- parts --- */

static int64_t count_ops(const ech_program *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_items; i++)
        n += p->block[p->item[i].block].n_ops;
    return n;
}

static ech_status check_order(const ech_program *p, int64_t *looked)
{
    ech_deps deps;
    ECH_TRY(ech_deps_derive(p, ECH_DEPS_ON_ADDRESSES, &deps));
    *looked += deps.n;
    ech_deps_fini(&deps);
    return ECH_OK;
}

/* A part that looks at one program at a time. */
static ech_status prove_class(const prover *v, ech_proof_part part, int klass, int64_t *looked)
{
    const ech_program *p = (part == ECH_PROOF_PEAKS ? v->whole : v->spec->program)[klass];
    switch (part) {
    case ECH_PROOF_LIVES:
        *looked += p->n_slots;
        return ech_lives_check(p);
    case ECH_PROOF_ONCE:
        *looked += p->n_items;
        return ech_once_check(p);
    case ECH_PROOF_TYPES:
        *looked += count_ops(p);
        return ech_types_check(p);
    case ECH_PROOF_ORDER:
        return check_order(p, looked);
    default:
        return check_peaks(v, p, looked);
    }
}

/* Whose program it is goes in front of what is wrong with it. */
static ech_status prove_classes(const prover *v, ech_proof_part part, int64_t *looked)
{
    for (int c = 0; c < v->spec->n_classes; c++) {
        const ech_status st = prove_class(v, part, c, looked);
        if (st < 0 && v->spec->n_classes > 1)
            return ech_error_prefix(st, "every rank of class %d: ", c);
        if (st < 0)
            return v->report->world > 1 ? ech_error_prefix(st, "every rank: ") : st;
    }
    return ECH_OK;
}

static ech_status prove_match(prover *v, ech_match_how how, int64_t *looked)
{
    ech_match_count count;
    const ech_match_spec spec = {&v->spec->program[0]->layout, v->spec->program, v->spec->n_classes,
                                 v->spec->class_of};
    const ech_status st = ech_match_check(&spec, how, &count);
    v->report->followed = count.followed;
    *looked = count.ops;
    return st;
}

static ech_status prove_cover(const prover *v, int64_t *looked)
{
    const ech_cover_spec spec = {v->spec->program, v->spec->plan, v->spec->n_classes,
                                 v->spec->class_of};
    const ech_status st = ech_cover_check_run(&spec, looked);
    return st < 0 && v->spec->n_classes == 1 && v->report->world > 1
               ? ech_error_prefix(st, "every rank: ")
               : st;
}

static ech_status prove_part(prover *v, ech_proof_part part)
{
    ech_proof_row *row = &v->report->row[part];
    const double t0 = ech_clock_s();
    ech_status st = ECH_OK;
    if (part == ECH_PROOF_COVER && !v->spec->plan) {
        row->verdict = ECH_PROOF_LEFT_OUT;
        (void)snprintf(row->text, sizeof row->text, "no plan of shards was given");
        return ECH_OK;
    }
    if (part == ECH_PROOF_MATCH || part == ECH_PROOF_QUEUE)
        st = prove_match(v, part == ECH_PROOF_MATCH ? ECH_MATCH_RENDEZVOUS : ECH_MATCH_SERIAL,
                         &row->looked);
    else if (part == ECH_PROOF_COVER)
        st = prove_cover(v, &row->looked);
    else
        st = prove_classes(v, part, &row->looked);
    row->seconds = ech_clock_s() - t0;
    v->report->seconds += row->seconds;
    if (st < 0) {
        row->verdict = ECH_PROOF_FAULT;
        (void)snprintf(row->text, sizeof row->text, "%s", ech_error_message());
    }
    return st;
}

static ech_status prove_parts(const ech_prove_spec *spec, const ech_program *const *whole,
                              ech_prove_report *report)
{
    prover v = {spec, report, whole};
    ech_status first = ECH_OK;
    int part_of_first = 0;
    for (int part = 0; part < ECH_N_PROOF_PARTS; part++) {
        const ech_status st = prove_part(&v, (ech_proof_part)part);
        if (st == ECH_E_NOMEM)
            return st;
        if (st >= 0 || first < 0)
            continue;
        first = st;
        part_of_first = part;
    }
    if (first >= 0)
        return ECH_OK;
    return ECH_RAISE(first, "program '%s', proof of %s: %s", spec->program[0]->name,
                     parts[part_of_first].name, report->row[part_of_first].text);
}

/* --- rounds --- */

/* Programs with few rounds in place of those that repeat many: all of them so many micro-batches
 * fewer. */
typedef struct cut_run {
    ech_program *plain;          /* owned [n] */
    const ech_program **program; /* owned [n] borrowed */
    int n;
} cut_run;

static void cut_fini(cut_run *c)
{
    for (int k = 0; c->plain && k < c->n; k++)
        ech_program_fini(&c->plain[k]);
    free(c->plain);
    free((void *)c->program);
}

enum { STEPS = 12 /* what rounds of one to four micro-batches divide */ };

/* How many micro-batches all programs can do without: whole rounds of each. */
static ech_status most_fewer(const ech_prove_spec *spec, int *fewer)
{
    *fewer = INT_MAX;
    for (int k = 0; k < spec->n_classes; k++) {
        const ech_repeat *r = &spec->program[k]->repeat;
        ECH_CHECK(r->times >= 2 && r->step > 0 && STEPS % r->step == 0, ECH_E_PROOF,
                  "program '%s' of class %d repeats %d rounds of %d micro-batches, wanted two or "
                  "more of a number that divides %d, in every class or in none",
                  spec->program[k]->name, k, r->times, r->step, STEPS);
        const int most = (r->times - ECH_LEAST_ROUNDS) * r->step;
        *fewer = most < *fewer ? most : *fewer;
    }
    *fewer = *fewer > 0 ? *fewer / STEPS * STEPS : 0;
    return ECH_OK;
}

static ech_status cut_programs(const ech_prove_spec *spec, cut_run *c)
{
    int fewer;
    ECH_TRY(most_fewer(spec, &fewer));
    ECH_TRY(ech_calloc((size_t)c->n, sizeof *c->plain, &c->plain));
    ECH_TRY(ech_calloc((size_t)c->n, sizeof *c->program, (void *)&c->program));
    for (int k = 0; k < c->n; k++) {
        const ech_repeat *r = &spec->program[k]->repeat;
        ECH_TRY(ech_program_unroll(spec->program[k], r->times - fewer / r->step, &c->plain[k]));
        c->program[k] = &c->plain[k];
    }
    return ECH_OK;
}

ech_status ech_prove(const ech_prove_spec *spec, ech_prove_report *report)
{
    bool repeats = false;
    ech_prove_spec few = *spec;
    cut_run c = {.n = spec->n_classes};
    *report = (ech_prove_report){.world = spec->program[0]->layout.world};
    for (int k = 0; k < spec->n_classes; k++)
        repeats = repeats || spec->program[k]->repeat.times;
    if (!repeats)
        return prove_parts(spec, spec->program, report);
    const double t0 = ech_clock_s();
    ech_status st = cut_programs(spec, &c);
    few.program = c.program;
    report->seconds += ech_clock_s() - t0;
    if (st >= 0)
        st = prove_parts(&few, spec->program, report);
    cut_fini(&c);
    return st;
}
