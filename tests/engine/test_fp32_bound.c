/* RUN: np=1 timeout=120 tags=fast */
/* fp32 layouts are held to one rank's own error: over all gradients at most twice as far from the
 * fp64 run as the one-rank fp32 run with the same kernels, any single tensor at most four times;
 * weights after SGD steps likewise.  Over tp and with sharded state a single tensor is judged over
 * all steps together.  With the reference kernels and with the fast ones. */
#include "check.h"
#include "engine/module.h"
#include "sanitized.h"
#include "tiny.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 120, STEPS = 5 };

static const double most_of_all = 2.0;
static const double most_of_one = 4.0;

/* The fast sets: the best for this machine, and the one for machines without AVX-512. */
static const char *const modules[] = {"cpu", "cpu_avx2"};
static const ech_kernel_set *fast[2]; /* NULL: not usable here */

/* Gradients of every step and the weights behind them, [canon.elems] each, all as fp64. */
typedef struct outcome {
    double *grads[STEPS];
    double *params;
} outcome;

static bool half(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row * 7 + position * 3) % 5 < 3;
}

static double *widened(const ech_session *s, const void *from)
{
    double *to = malloc((size_t)s->canon.elems * sizeof *to);
    for (int64_t e = 0; e < s->canon.elems; e++)
        to[e] = ech_dtype_load(s->config.compile.block.real, from, (size_t)e);
    return to;
}

static void outcome_fini(outcome *o)
{
    for (int i = 0; i < STEPS; i++)
        free(o->grads[i]);
    free(o->params);
}

/* One rank's run.  In fp32 its first weights go to *start; in fp64 they come from there, so that
 * the fp32 run's error is of arithmetic alone. */
static outcome run_one(tiny_spec spec, ech_dtype real, double **start)
{
    outcome o;
    tiny_run run;
    spec.real = real;
    spec.dp = spec.accumulation = 1;
    spec.rows = ROWS;
    tiny_start(&spec, &run);
    if (real == ECH_F32)
        *start = widened(run.session, tiny_params(run.session, 0));
    else
        tiny_set_params(run.session, 0, *start);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, half, NULL);
        (void)tiny_step(&run, i, 0.05);
        o.grads[i] = widened(run.session, tiny_grads(run.session, 0));
    }
    o.params = widened(run.session, tiny_params(run.session, 0));
    tiny_stop(&run);
    return o;
}

/* How far `got` is from `exact`, as multiples of how far `one` is. */
typedef struct verdict {
    double all;     /* over all tensors */
    double worst;   /* of the tensor where it is largest */
    char where[64]; /* that tensor */
} verdict;

static double distance_sq(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t e = 0; e < n; e++)
        sum += (a[e] - b[e]) * (a[e] - b[e]);
    return sum;
}

/* Of n vectors each, as of the steps of a run: a tensor of a few elements says little in one step. */
static verdict judge_series(const ech_canon *canon, int n, double *const *got, double *const *one,
                            double *const *exact)
{
    verdict v = {0.0, 0.0, ""};
    double all_got = 0.0;
    double all_one = 0.0;
    for (int k = 0; k < canon->n_params; k++) {
        const ech_param *p = &canon->param[k];
        const int64_t at = p->offset;
        double d_got = 0.0;
        double d_one = 0.0;
        for (int i = 0; i < n; i++) {
            d_got += distance_sq(got[i] + at, exact[i] + at, p->elems);
            d_one += distance_sq(one[i] + at, exact[i] + at, p->elems);
        }
        const double ratio = sqrt(d_got / d_one);
        all_got += d_got;
        all_one += d_one;
        if (!(ratio <= v.worst)) { /* NaN is worst */
            v.worst = ratio;
            memcpy(v.where, p->name, sizeof v.where);
        }
    }
    v.all = sqrt(all_got / all_one);
    return v;
}

static verdict judge(const ech_canon *canon, double *got, double *one, double *exact)
{
    return judge_series(canon, 1, &got, &one, &exact);
}

static bool is_held(verdict v)
{
    return v.all <= most_of_all && v.worst <= most_of_one;
}

/* The largest ratios met, printed at the end. */
static verdict gradients_met, weights_met;

static void note(verdict *met, verdict v)
{
    met->all = fmax(met->all, v.all);
    if (v.worst > met->worst) {
        met->worst = v.worst;
        memcpy(met->where, v.where, sizeof met->where);
    }
}

static void expect_held(verdict v, verdict *met, const tiny_spec *s, const char *what)
{
    note(met, v);
    if (!is_held(v))
        fail_msg("model %d, tp %d, dp %d, accumulation %d, zero %d, kernels %s: %s are %.3f times "
                 "as far from fp64 "
                 "as one rank's, '%s' %.3f times",
                 (int)s->kind, s->tp, s->dp, s->accumulation, s->policy.zero_stage,
                 s->kernels ? s->kernels->name : "ref", what, v.all, v.where, v.worst);
}

/* A single tensor in every step; or, over tp, over all steps: a rank's share of heads or tokens is
 * another sum, and of a tensor of six elements one step says little. */
typedef enum held_to { IN_EVERY_STEP, OVER_STEPS } held_to;

static void check_layout(const tiny_spec *spec, const outcome *one, const outcome *exact,
                         held_to single)
{
    tiny_run run;
    double *grads[STEPS];
    tiny_start(spec, &run);
    const ech_session *s = run.session;
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, half, NULL);
        (void)tiny_step(&run, i, 0.05);
        grads[i] = widened(s, tiny_all(s, ECH_HELD_GRADS));
        verdict v = judge(&s->canon, grads[i], one->grads[i], exact->grads[i]);
        if (single == OVER_STEPS)
            v.worst = 0.0;
        expect_held(v, &gradients_met, spec, "gradients");
    }
    expect_held(judge_series(&s->canon, STEPS, grads, one->grads, exact->grads), &gradients_met,
                spec, "gradients");
    double *got = widened(s, tiny_all(s, ECH_HELD_PARAMS));
    expect_held(judge(&s->canon, got, one->params, exact->params), &weights_met, spec, "weights");
    for (int i = 0; i < STEPS; i++)
        free(grads[i]);
    free(got);
    tiny_stop(&run);
}

static tiny_spec spec_of(tiny_kind kind, const ech_kernel_set *kernels)
{
    tiny_spec spec = tiny_spec_default();
    spec.kind = kind;
    spec.real = ECH_F32;
    spec.kernels = kernels;
    spec.dropout = kind == TINY_GPT2 || kind == TINY_LLAMA ? 0.2 : 0.0;
    return spec;
}

/* One rank in fp32 with these kernels, and in fp64 with the reference ones. */
static void run_both(tiny_spec spec, outcome *one, outcome *exact)
{
    double *start;
    *one = run_one(spec, ECH_F32, &start);
    spec.kernels = NULL;
    *exact = run_one(spec, ECH_F64, &start);
    free(start);
}

/* Tensor and sequence parallelism, sharded state, replicas of shard groups. */
static void check_many_ranks(tiny_spec spec, const outcome *one, const outcome *exact)
{
    const int tp = spec.kind == TINY_GPT2 ? 3 : 2;
    const struct {
        int tp, dp, group, accumulation;
        ech_shard_policy policy;
    } rows[] = {
        {tp, 1, 0, 1, {false, false, 0, false, false, 0}},
        {tp, 2, 0, 2, {true, false, 1, false, false, 0}},
        {2 * (tp - tp % 2), 1, 0, 1, {true, true, 0, false, false, 0}},
        {1, 3, 0, 2, {false, false, 2, true, false, 0}},
        {1, 4, 2, 1, {false, false, 3, false, true, 1}},
        {tp, 4, 2, 1, {true, false, 3, false, true, 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].tp == 4 && spec.kind == TINY_GPT2)
            continue;
        spec.tp = rows[i].tp;
        spec.dp = rows[i].dp;
        spec.shard_group = rows[i].group;
        spec.accumulation = rows[i].accumulation;
        spec.policy = rows[i].policy;
        spec.schedule = false ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
        spec.rows = ROWS / (spec.dp * spec.accumulation);
        check_layout(&spec, one, exact, OVER_STEPS);
    }
}

static void check_all_layouts(tiny_kind kind, const ech_kernel_set *kernels)
{
    static const int accumulations[] = {1, 2, 5};
    tiny_spec spec = spec_of(kind, kernels);
    outcome one;
    outcome exact;
    run_both(spec, &one, &exact);
    for (int dp = 1; dp <= 4; dp += IS_SANITIZED ? 3 : 1)
        for (int a = 0; a < 3; a += IS_SANITIZED ? 2 : 1) {
            spec.dp = dp;
            spec.accumulation = accumulations[a];
            spec.rows = ROWS / (dp * accumulations[a]);
            spec.schedule = a == 1 ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
            check_layout(&spec, &one, &exact, IN_EVERY_STEP);
        }
    check_many_ranks(spec, &one, &exact);
    outcome_fini(&one);
    outcome_fini(&exact);
}

static void check_all_models(const ech_kernel_set *kernels)
{
    gradients_met = weights_met = (verdict){0.0, 0.0, ""};
    for (int kind = 0; kind < N_TINY; kind++)
        check_all_layouts((tiny_kind)kind, kernels);
    (void)printf("kernels %s, times one rank's error at most: gradients %.3f, '%s' %.3f; weights "
                 "%.3f, '%s' %.3f\n",
                 kernels ? kernels->name : "ref", gradients_met.all, gradients_met.where,
                 gradients_met.worst, weights_met.all, weights_met.where, weights_met.worst);
}

static void test_ref_kernels(void **state)
{
    (void)state;
    check_all_models(NULL);
}

static void test_fast_kernels(void **state)
{
    (void)state;
    if (!fast[0] && !fast[1])
        skip(); /* main has said why */
    for (int i = 0; i < 2; i++)
        if (fast[i])
            check_all_models(fast[i]);
}

/* The rule sees a wrong factor: of one tensor by a ten thousandth, of everything by a hundred
 * thousandth, and the one a doubled reduction makes. */
static void test_a_wrong_factor_is_seen(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++) {
        const ech_model model = tiny_model((tiny_kind)kind, 0.0);
        ech_canon canon;
        outcome one;
        outcome exact;
        assert_ok(ech_canon_create(&model, &canon));
        run_both(spec_of((tiny_kind)kind, NULL), &one, &exact);
        double *wrong = malloc((size_t)canon.elems * sizeof *wrong);
        for (int k = 0; k < canon.n_params; k++) {
            const ech_param *p = &canon.param[k];
            memcpy(wrong, one.grads[0], (size_t)canon.elems * sizeof *wrong);
            assert_true(is_held(judge(&canon, wrong, one.grads[0], exact.grads[0])));
            for (int64_t e = p->offset; e < p->offset + p->elems; e++)
                wrong[e] *= 1.0 + 1e-4;
            const verdict v = judge(&canon, wrong, one.grads[0], exact.grads[0]);
            assert_true(v.worst > most_of_one);
            assert_string_equal(v.where, p->name);
        }
        for (int64_t e = 0; e < canon.elems; e++)
            wrong[e] = one.grads[0][e] * (1.0 + 1e-5);
        assert_true(judge(&canon, wrong, one.grads[0], exact.grads[0]).all > most_of_all);
        for (int64_t e = 0; e < canon.elems; e++)
            wrong[e] = one.grads[0][e] * 2.0;
        assert_true(judge(&canon, wrong, one.grads[0], exact.grads[0]).all > 1e5);
        free(wrong);
        outcome_fini(&one);
        outcome_fini(&exact);
        ech_canon_fini(&canon);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref_kernels),
        cmocka_unit_test(test_fast_kernels),
        cmocka_unit_test(test_a_wrong_factor_is_seen),
    };
    for (int i = 0; i < 2; i++)
        if (ech_module_kernels(modules[i], &fast[i]) < 0)
            (void)fprintf(stderr, "kernels %s are left out: %s\n", modules[i], ech_error_message());
        else if (fast[i]->start && fast[i]->start(NULL, 1) < 0)
            return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (fast[i] && fast[i]->stop)
            fast[i]->stop();
    return failed;
}
