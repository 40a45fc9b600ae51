#include "judge.h"
#include "check.h"
#include "program/deps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, ROWS = 12, SEQ = 6, NAME = 128 };

/* sp, kept, stage, each, reshard, prefetch */
const judge_case judge_cases[] = {
    {.title = "llama, dp 2, 2 micro-batches in turn",
     .kind = TINY_LLAMA,
     .dp = 2,
     .accumulation = 2,
     .bucket_bytes = 1},
    {.title = "gpt2, tied, dropout, SGD, dp 3, forward first",
     .kind = TINY_GPT2,
     .dropout = 0.2,
     .optim = ECH_UPDATE_SGD,
     .dp = 3,
     .accumulation = 2,
     .schedule = ECH_SCHEDULE_GPIPE},
    {.title = "qwen, tp 2", .kind = TINY_QWEN, .tp = 2, .dp = 1, .accumulation = 1},
    {.title = "gpt2 of 6 heads, tied, dropout, tp 2, sp",
     .kind = TINY_GPT2,
     .heads = 6,
     .kv_heads = 6,
     .dropout = 0.2,
     .tp = 2,
     .dp = 1,
     .accumulation = 1,
     .policy = {true, false, 0, false, false, 0}},
    {.title = "llama, tp 2, sp kept, 2 micro-batches",
     .kind = TINY_LLAMA,
     .tp = 2,
     .dp = 1,
     .accumulation = 2,
     .policy = {true, true, 0, false, false, 0}},
    {.title = "qwen of 6 heads on 2, dropout, tp 3, sp",
     .kind = TINY_QWEN,
     .heads = 6,
     .kv_heads = 2,
     .dropout = 0.1,
     .tp = 3,
     .dp = 1,
     .accumulation = 1,
     .policy = {true, false, 0, false, false, 0}},
    {.title = "llama of 4 heads on 1, tied, tp 4, dp 2, ZeRO 1",
     .kind = TINY_TIED_LLAMA,
     .heads = 4,
     .kv_heads = 1,
     .tp = 4,
     .dp = 2,
     .accumulation = 1,
     .policy = {false, false, 1, false, false, 0}},
    {.title = "gpt2, tied, dp 2, ZeRO 1, 2 micro-batches",
     .kind = TINY_GPT2,
     .dp = 2,
     .accumulation = 2,
     .policy = {false, false, 1, false, false, 0}},
    {.title = "llama, dp 3, ZeRO 2 each, 2 micro-batches",
     .kind = TINY_LLAMA,
     .dp = 3,
     .accumulation = 2,
     .policy = {false, false, 2, true, false, 0}},
    {.title = "llama, tied, dp 2, ZeRO 3, resharded, prefetch 1, 3 micro-batches",
     .kind = TINY_TIED_LLAMA,
     .dp = 2,
     .accumulation = 3,
     .policy = {false, false, 3, true, true, 1}},
    {.title = "qwen, hsdp 2 x dp 2, ZeRO 3",
     .kind = TINY_QWEN,
     .dp = 4,
     .group = 2,
     .accumulation = 1,
     .policy = {false, false, 3, false, false, 1}},
    {.title = "gpt2 of 6 heads, tied, tp 2, hsdp 2 x dp 2, sp, ZeRO 2",
     .kind = TINY_GPT2,
     .heads = 6,
     .kv_heads = 6,
     .tp = 2,
     .dp = 4,
     .group = 2,
     .accumulation = 1,
     .policy = {true, true, 2, false, false, 0}},
    {.title = "llama of 4 heads on 1, tied, tp 2, dp 2, sp, ZeRO 3, 2 micro-batches",
     .kind = TINY_TIED_LLAMA,
     .heads = 4,
     .kv_heads = 1,
     .tp = 2,
     .dp = 2,
     .accumulation = 2,
     .policy = {true, false, 3, true, true, 1}},
    {.title = "qwen, tp 2, split, weights later, 3 micro-batches",
     .kind = TINY_QWEN,
     .tp = 2,
     .dp = 1,
     .accumulation = 3,
     .is_split = true,
     .when = SPLIT_LATER},
    {.title = "gpt2 of 6 heads, tied, dropout, tp 2, sp, split, weights last",
     .kind = TINY_GPT2,
     .heads = 6,
     .kv_heads = 6,
     .dropout = 0.2,
     .tp = 2,
     .dp = 1,
     .accumulation = 2,
     .policy = {true, false, 0, false, false, 0},
     .is_split = true,
     .when = SPLIT_LAST},
    {.title = "llama, tied, pp 2, 1f1b, 3 micro-batches",
     .kind = TINY_TIED_LLAMA,
     .pp = 2,
     .dp = 1,
     .accumulation = 3},
    {.title = "gpt2, tied, pp 2, 1f1b, dp 2, ZeRO 1, 2 micro-batches",
     .kind = TINY_GPT2,
     .pp = 2,
     .dp = 2,
     .accumulation = 2,
     .policy = {false, false, 1, false, false, 0}},
    {.title = "qwen, pp 2, zb-h1, tp 2, 3 micro-batches",
     .kind = TINY_QWEN,
     .pp = 2,
     .tp = 2,
     .dp = 1,
     .accumulation = 3,
     .schedule = ECH_SCHEDULE_ZB_H1},
    {.title = "llama, pp 2, interleaved, 2 micro-batches",
     .kind = TINY_LLAMA,
     .layers = 4,
     .pp = 2,
     .chunks = 2,
     .dp = 1,
     .accumulation = 2,
     .schedule = ECH_SCHEDULE_INTERLEAVED},
    {.title = "llama, tied, pp 2, zb-v, dp 2, ZeRO 3, 2 micro-batches",
     .kind = TINY_TIED_LLAMA,
     .layers = 4,
     .pp = 2,
     .dp = 2,
     .accumulation = 2,
     .policy = {false, false, 3, true, true, 1},
     .schedule = ECH_SCHEDULE_ZB_V},
};
const int n_judge_cases = (int)(sizeof judge_cases / sizeof judge_cases[0]);

static tiny_spec spec_of(const judge_case *c)
{
    tiny_spec s = tiny_spec_default();
    s.kind = c->kind;
    s.heads = c->heads;
    s.kv_heads = c->kv_heads;
    s.dropout = c->dropout;
    s.optim = c->optim;
    s.layers = c->layers;
    s.pp = c->pp ? c->pp : 1;
    s.chunks = c->chunks;
    s.tp = c->tp ? c->tp : 1;
    s.dp = c->dp;
    s.shard_group = c->group;
    s.accumulation = c->accumulation;
    s.policy = c->policy;
    s.schedule = c->schedule;
    s.bucket_bytes = c->bucket_bytes ? c->bucket_bytes : 1 << 20;
    s.rows = ROWS / (c->dp * c->accumulation);
    s.seq = SEQ;
    s.poison = true;
    return s;
}

/* --- what a right run gives --- */

typedef struct outcome {
    double loss[STEPS], norm[STEPS];
    double *grads[STEPS], *params, *m, *v; /* m, v: NULL without moments */
} outcome;

static double *copy(const ech_session *s, const void *from)
{
    const size_t bytes = (size_t)s->canon.elems * sizeof(double);
    double *to = malloc(bytes);
    memcpy(to, from, bytes);
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
    outcome o = {.m = NULL};
    tiny_run run;
    spec.rows = ROWS;
    spec.tp = spec.pp = spec.dp = spec.accumulation = spec.chunks = 1;
    spec.schedule = ECH_SCHEDULE_1F1B;
    spec.shard_group = 0;
    spec.policy = (ech_shard_policy){0};
    tiny_start(&spec, &run);
    ech_session *s = run.session;
    for (int i = 0; i < STEPS; i++) {
        ech_step_result r;
        assert_ok(step(&run, i, &r));
        o.loss[i] = r.loss;
        o.norm[i] = r.grad_norm;
        o.grads[i] = copy(s, tiny_all(s, ECH_HELD_GRADS));
    }
    o.params = copy(s, tiny_all(s, ECH_HELD_PARAMS));
    if (spec.optim == ECH_UPDATE_ADAMW) {
        o.m = copy(s, tiny_all(s, ECH_HELD_M));
        o.v = copy(s, tiny_all(s, ECH_HELD_V));
    }
    tiny_stop(&run);
    return o;
}

static void outcome_fini(outcome *o)
{
    for (int i = 0; i < STEPS; i++)
        free(o->grads[i]);
    free(o->params);
    free(o->m);
    free(o->v);
}

/* --- does a run show it --- */

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

/* What some rank holds is not what it should be; each copy is looked at. */
static bool held_differs(ech_session *s, ech_held_class what, const double *want, double limit)
{
    bool differs = false;
    double *is = copy(s, want);
    for (int k = 0; k < s->n_local && !differs; k++) {
        const ech_held h = ech_session_held(s, k);
        ech_held_put(&h, what, is);
        const double d =
            what == ECH_HELD_GRADS ? tiny_difference(s, is, want) : gap(is, want, s->canon.elems);
        differs = !(d <= limit);
    }
    free(is);
    return differs;
}

static bool steps_differ(tiny_run *run, const outcome *o)
{
    for (int i = 0; i < STEPS; i++) {
        ech_step_result r;
        if (step(run, i, &r) < 0 || !(fabs(r.loss - o->loss[i]) <= 1e-11) ||
            !(fabs(r.grad_norm / o->norm[i] - 1.0) <= 1e-11) ||
            held_differs(run->session, ECH_HELD_GRADS, o->grads[i], 1e-11 * (i + 1) * 8))
            return true;
    }
    return false;
}

static bool run_differs(tiny_run *run, const outcome *o)
{
    ech_session *s = run->session;
    return steps_differ(run, o) || held_differs(s, ECH_HELD_PARAMS, o->params, 1e-9) ||
           (o->m &&
            (held_differs(s, ECH_HELD_M, o->m, 1e-9) || held_differs(s, ECH_HELD_V, o->v, 1e-9)));
}

/* The mutant, pipeline rank k's program, is used up. */
static bool is_seen(const tiny_spec *spec, int k, ech_program *mutant, const outcome *o)
{
    tiny_run run;
    tiny_start(spec, &run);
    tiny_replace_class(&run, k, mutant);
    const bool differs = run_differs(&run, o);
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

/* What is out of its place, order or range may not even run. */
static bool may_run(const ech_program *p, int by)
{
    const bool is_in_place =
        by == MUTANT_BY_PROOF + ECH_PROOF_ONCE || by == MUTANT_BY_PROOF + ECH_PROOF_TYPES;
    return is_in_place && is_ordered(p);
}

/* --- one after the other --- */

/* Who found what. */
typedef struct tally {
    int sites;
    int by_check[N_MUTANT_CHECKS];
    int by_both;  /* of those, the run showed too (counted where `thorough`) */
    int by_run;   /* found by the run alone */
    int survived; /* found by nobody */
} tally;

/* By operator: mutant_operators, mutant_many_operators, mutant_stage_operators. */
enum { MOST_OPERATORS = 96 };
typedef struct table {
    tally of[MOST_OPERATORS];
} table;

typedef struct judge {
    const tiny_spec *spec;
    const ech_run *run;
    int at; /* the pipeline rank whose program has the fault */
    outcome right;
    bool thorough;
} judge;

/* The proof of the run with a mutant in the place of one program. */
static ech_status prove(const judge *j, const ech_program *mutant, int *by)
{
    enum { MOST = 8 };
    const ech_program *program[MOST];
    const ech_prove_spec spec = {.program = program,
                                 .n_classes = j->run->n_classes,
                                 .class_of = j->run->class_of,
                                 .plan = j->run->plan};
    assert_true(spec.n_classes <= MOST);
    for (int k = 0; k < spec.n_classes; k++)
        program[k] = k == j->at ? mutant : j->run->program[k];
    return mutant_prove_run(&spec, by);
}

static void judge_one(const judge *j, const mutant_operator *op, int site, tally *t)
{
    ech_program mutant;
    char where[NAME];
    int by;
    mutant_make(j->run->program[j->at], op, site, &mutant, where, sizeof where);
    const ech_status st = prove(j, &mutant, &by);
    t->sites++;
    if (getenv("ECH_MUTANTS"))
        (void)printf("    %s: %s: %s %s\n", op->name, where, mutant_check_name(by),
                     st < 0 ? ech_error_message() : "");
    if (st < 0)
        t->by_check[by]++;
    if (st < 0 && j->thorough && may_run(&mutant, by))
        t->by_both += is_seen(j->spec, j->at, &mutant, &j->right);
    if (st >= 0 && is_seen(j->spec, j->at, &mutant, &j->right)) {
        t->by_run++;
    } else if (st >= 0) {
        t->survived++;
        (void)fprintf(stderr, "SURVIVED: %s: %s\n", op->name, where);
    }
    ech_program_fini(&mutant);
}

static void add(tally *to, const tally *t)
{
    to->sites += t->sites;
    for (int c = 0; c < N_MUTANT_CHECKS; c++)
        to->by_check[c] += t->by_check[c];
    to->by_both += t->by_both;
    to->by_run += t->by_run;
    to->survived += t->survived;
}

static const mutant_operator *operator_of(int i)
{
    if (i < n_mutant_operators)
        return &mutant_operators[i];
    i -= n_mutant_operators;
    return i < n_mutant_many_operators ? &mutant_many_operators[i]
                                       : &mutant_stage_operators[i - n_mutant_many_operators];
}

static int n_operators(void)
{
    const int n = n_mutant_operators + n_mutant_many_operators + n_mutant_stage_operators;
    assert_true(n <= MOST_OPERATORS);
    return n;
}

/* The same run with its backward split. */
static void split_run(const judge_case *c, const tiny_spec *spec, tiny_run *run)
{
    split_case blocks;
    ech_program p;
    split_case_init(spec, &blocks);
    split_program(&blocks, &run->session->train.klass[0].program, c->when, &p);
    tiny_replace(run, &p);
    split_case_fini(&blocks);
}

/* Every fault in the program of one pipeline rank. */
static void judge_program(const judge *j, const judge_plan *plan, table *by_operator, tally *all)
{
    for (int i = 0; i < n_operators(); i++) {
        tally t = {0};
        const int sites = mutant_sites(j->run->program[j->at], operator_of(i));
        const int every = plan->every < sites ? plan->every : sites;
        for (int k = every ? i % every : 0; k < sites; k += every)
            judge_one(j, operator_of(i), k, &t);
        add(&by_operator->of[i], &t);
        add(all, &t);
    }
}

static tally judge_case_of(const judge_case *c, const judge_plan *plan, table *by_operator)
{
    tally all = {0};
    tiny_run run;
    const tiny_spec spec = spec_of(c);
    tiny_start(&spec, &run);
    if (c->is_split)
        split_run(c, &spec, &run);
    judge j = {&spec, &run.session->train, 0, run_reference(spec), plan->thorough};
    assert_false(run_differs(&run, &j.right)); /* unharmed, it is right */
    for (; j.at < j.run->n_classes; j.at++)
        judge_program(&j, plan, by_operator, &all);
    outcome_fini(&j.right);
    tiny_stop(&run);
    return all;
}

/* --- print --- */

static int by_proof(const tally *t)
{
    int n = 0;
    for (int c = 0; c < N_MUTANT_CHECKS; c++)
        n += t->by_check[c];
    return n;
}

static void print_head(const char *what)
{
    (void)printf("%-72s %5s", what, "sites");
    for (int c = 0; c < N_MUTANT_CHECKS; c++)
        (void)printf(" %9s", mutant_check_name(c));
    (void)printf(" %6s %6s %5s %5s\n", "proof", "(both)", "run", "alive");
}

static void print_row(const char *name, const tally *t)
{
    (void)printf("%-72s %5d", name, t->sites);
    for (int c = 0; c < N_MUTANT_CHECKS; c++)
        (void)printf(" %9d", t->by_check[c]);
    (void)printf(" %5.1f%% %6d %5d %5d\n", 100.0 * by_proof(t) / t->sites, t->by_both, t->by_run,
                 t->survived);
}

int judge_all(const judge_plan *plan)
{
    table by_operator = {0};
    tally all = {0};
    bool is_enough = true;
    print_head("layout");
    for (int i = 0; i < n_judge_cases; i++) {
        if (plan->only >= 0 && plan->only != i)
            continue;
        const tally t = judge_case_of(&judge_cases[i], plan, &by_operator);
        is_enough = is_enough && by_proof(&t) >= JUDGE_BY_PROOF * t.sites;
        print_row(judge_cases[i].title, &t);
        add(&all, &t);
    }
    print_row("all", &all);
    (void)printf("\n");
    print_head("operator");
    for (int i = 0; i < n_operators(); i++)
        if (by_operator.of[i].sites)
            print_row(operator_of(i)->name, &by_operator.of[i]);
    return all.survived > 0 || !is_enough;
}
