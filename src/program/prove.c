#include "program/prove.h"
#include "base/clock.h"
#include "program/cover.h"
#include "program/deps.h"
#include "program/lives.h"
#include "program/match.h"
#include "program/once.h"
#include "program/types.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct prover {
    const ech_prove_spec *spec;
    ech_prove_report *report;
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

static ech_status check_cover(const prover *v, const ech_program *p, int64_t *looked)
{
    int64_t tensors = 0;
    int64_t operands = 0;
    ech_status st = ech_cover_check_plan(v->spec->plan, &p->layout, &tensors);
    if (st >= 0)
        st = ech_cover_check_program(p, v->spec->plan, &operands);
    *looked += tensors + operands;
    return st;
}

/* A part that looks at one program at a time. */
static ech_status prove_class(const prover *v, ech_proof_part part, int klass, int64_t *looked)
{
    const ech_program *p = v->spec->program[klass];
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
    case ECH_PROOF_COVER:
        return check_cover(v, p, looked);
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

static const char *left_out(const prover *v, ech_proof_part part)
{
    if (part != ECH_PROOF_COVER)
        return NULL;
    return !v->spec->plan           ? "no plan of shards was given"
           : v->spec->n_classes > 1 ? "ranks are of several classes"
                                    : NULL;
}

static ech_status prove_part(prover *v, ech_proof_part part)
{
    ech_proof_row *row = &v->report->row[part];
    const char *why = left_out(v, part);
    const double t0 = ech_clock_s();
    ech_status st = ECH_OK;
    if (why) {
        row->verdict = ECH_PROOF_LEFT_OUT;
        (void)snprintf(row->text, sizeof row->text, "%s", why);
        return ECH_OK;
    }
    if (part == ECH_PROOF_MATCH || part == ECH_PROOF_QUEUE)
        st = prove_match(v, part == ECH_PROOF_MATCH ? ECH_MATCH_RENDEZVOUS : ECH_MATCH_SERIAL,
                         &row->looked);
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

ech_status ech_prove(const ech_prove_spec *spec, ech_prove_report *report)
{
    prover v = {spec, report};
    ech_status first = ECH_OK;
    int part_of_first = 0;
    *report = (ech_prove_report){.world = spec->program[0]->layout.world};
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
