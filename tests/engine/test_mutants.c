/* RUN: np=1 timeout=120 tags=fast */
/* One fault at a time, everywhere in two compiled programs: each is found by the proof or by the
 * fp64 run against one rank.  Prints who finds what; none may survive. */
#include "check.h"
#include "mutants.h"
#include "program/deps.h"
#include "tiny.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS = 2, ROWS = 12, NAME = 128 };

/* What a right run gives. */
typedef struct outcome {
    double loss[STEPS], norm[STEPS];
    double *grads[STEPS], *params, *moments;
} outcome;

static void *copy(const void *from, size_t n)
{
    void *to = malloc(n * sizeof(double));
    memcpy(to, from, n * sizeof(double));
    return to;
}

static bool most(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row + position) % 4 != 0;
}

/* The update count differs from the step, so that neither cell can stand for the other. */
static ech_status step(tiny_run *run, int i, ech_step_result *out)
{
    const ech_step_request request = {
        .step = i, .updates = i + 3, .lr = 0.01, .loss_scale = 8.0, .commit = ECH_COMMIT_IF_FINITE};
    tiny_feed(run, i, most, NULL);
    return ech_session_step(run->session, &request, out);
}

static outcome run_reference(tiny_spec spec)
{
    outcome o = {.moments = NULL};
    tiny_run run;
    spec.rows = ROWS;
    spec.dp = spec.accumulation = 1;
    tiny_start(&spec, &run);
    const size_t n = (size_t)run.session->canon.elems;
    for (int i = 0; i < STEPS; i++) {
        ech_step_result r;
        assert_ok(step(&run, i, &r));
        o.loss[i] = r.loss;
        o.norm[i] = r.grad_norm;
        o.grads[i] = copy(ech_session_grads(run.session, 0), n);
    }
    o.params = copy(ech_session_params(run.session, 0), n);
    if (run.session->slots.moments >= 0)
        o.moments = copy(ech_session_moments(run.session, 0), 2 * n);
    tiny_stop(&run);
    return o;
}

static void outcome_fini(outcome *o)
{
    for (int i = 0; i < STEPS; i++)
        free(o->grads[i]);
    free(o->params);
    free(o->moments);
}

/* Largest difference against the largest value; NaN is a difference. */
static double gap(const double *a, const double *b, int64_t n)
{
    double worst = 0.0;
    double most_of = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(a[i] - b[i]);
        worst = !(d <= worst) ? d : worst;
        most_of = fmax(most_of, fabs(b[i]));
    }
    return worst / most_of;
}

static bool steps_differ(tiny_run *run, const outcome *o)
{
    ech_session *s = run->session;
    for (int i = 0; i < STEPS; i++) {
        ech_step_result r;
        if (step(run, i, &r) < 0 || !(fabs(r.loss - o->loss[i]) <= 1e-11) ||
            !(fabs(r.grad_norm / o->norm[i] - 1.0) <= 1e-11))
            return true;
        for (int k = 0; k < s->n_local; k++)
            if (!(tiny_difference(s, ech_session_grads(s, k), o->grads[i]) <= 1e-11 * (i + 1) * 8))
                return true;
    }
    return false;
}

static bool state_differs(tiny_run *run, const outcome *o)
{
    ech_session *s = run->session;
    for (int k = 0; k < s->n_local; k++) {
        if (!(gap(ech_session_params(s, k), o->params, s->canon.elems) <= 1e-9))
            return true;
        if (o->moments && !(gap(ech_session_moments(s, k), o->moments, 2 * s->canon.elems) <= 1e-9))
            return true;
    }
    return false;
}

/* Does the run show it.  The mutant is used up. */
static bool is_seen(const tiny_spec *spec, ech_program *mutant, const outcome *o)
{
    tiny_run run;
    tiny_start(spec, &run);
    tiny_replace(&run, mutant);
    const bool differs = steps_differ(&run, o) || state_differs(&run, o);
    tiny_stop(&run);
    return differs;
}

static bool is_ordered(const ech_program *p)
{
    ech_deps deps;
    const ech_status st = ech_deps_derive(p, ECH_DEPS_ON_ADDRESSES, &deps);
    ech_deps_fini(&deps);
    return st >= 0;
}

typedef struct tally {
    int sites, by_proof, by_both, by_run, survived;
} tally;

static void judge(const tiny_spec *spec, const ech_program *p, const mutant_operator *op, int site,
                  const outcome *o, tally *t)
{
    ech_program mutant;
    char where[NAME];
    const char *by;
    mutant_make(p, op, site, &mutant, where, sizeof where);
    const ech_status st = mutant_prove(&mutant, &by);
    t->sites++;
    if (getenv("ECH_MUTANTS"))
        (void)printf("    %s: %s: %s %s\n", op->name, where, by ? by : "-",
                     st < 0 ? ech_error_message() : "");
    t->by_proof += st < 0;
    /* what the proof of lives or order refuses may not even run; the rest shows its fault too */
    const bool runs = st >= 0 || (strcmp(by, "lives") != 0 && is_ordered(&mutant));
    const bool seen = runs && is_seen(spec, &mutant, o);
    t->by_both += st < 0 && seen;
    t->by_run += st >= 0 && seen;
    if (st >= 0 && !seen) {
        t->survived++;
        (void)fprintf(stderr, "SURVIVED: %s: %s\n", op->name, where);
    }
    ech_program_fini(&mutant);
}

static void print_row(const char *name, const tally *t)
{
    (void)printf("%-36s %6d %8d %10d %8d %9d\n", name, t->sites, t->by_proof, t->by_both, t->by_run,
                 t->survived);
}

static tally mutate(const char *title, const tiny_spec *spec)
{
    tally all = {0};
    tiny_run run;
    const outcome o = run_reference(*spec);
    tiny_start(spec, &run);
    const ech_program *p = &run.session->train;
    (void)printf("%s\n%-36s %6s %8s %10s %8s %9s\n", title, "operator", "sites", "by proof",
                 "(and run)", "by run", "survived");
    assert_false(steps_differ(&run, &o) || state_differs(&run, &o)); /* unharmed, it is right */
    for (int i = 0; i < n_mutant_operators; i++) {
        tally t = {0};
        const int sites = mutant_sites(p, &mutant_operators[i]);
        for (int k = 0; k < sites; k++)
            judge(spec, p, &mutant_operators[i], k, &o, &t);
        print_row(mutant_operators[i].name, &t);
        all.sites += t.sites;
        all.by_proof += t.by_proof;
        all.by_both += t.by_both;
        all.by_run += t.by_run;
        all.survived += t.survived;
    }
    print_row("all", &all);
    (void)printf("killed by the proof alone: %.1f %%\n\n", 100.0 * all.by_proof / all.sites);
    tiny_stop(&run);
    outcome o_done = o;
    outcome_fini(&o_done);
    return all;
}

static void test_llama(void **state)
{
    (void)state;
    tiny_spec spec = tiny_spec_default();
    spec.kind = TINY_LLAMA;
    spec.optim = ECH_UPDATE_ADAMW;
    spec.dp = 2;
    spec.accumulation = 2;
    spec.rows = ROWS / 4;
    spec.bucket_bytes = 1;
    spec.poison = true;
    const tally t = mutate("llama, GQA, AdamW, dp 2, 2 micro-batches in turn", &spec);
    assert_int_equal(t.survived, 0);
    assert_true(t.sites > 500);
    assert_true(t.by_proof > 0.88 * t.sites);
}

static void test_gpt2(void **state)
{
    (void)state;
    tiny_spec spec = tiny_spec_default();
    spec.kind = TINY_GPT2;
    spec.dropout = 0.2;
    spec.optim = ECH_UPDATE_SGD;
    spec.dp = 3;
    spec.accumulation = 2;
    spec.rows = ROWS / 6;
    spec.all_forward_first = true;
    spec.bucket_bytes = 1 << 20;
    spec.poison = true;
    const tally t = mutate("gpt2, tied, dropout, SGD, dp 3, 2 micro-batches, forward first", &spec);
    assert_int_equal(t.survived, 0);
    assert_true(t.sites > 500);
    assert_true(t.by_proof > 0.88 * t.sites);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama), cmocka_unit_test(test_gpt2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
