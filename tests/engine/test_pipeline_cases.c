/* RUN: np=1 timeout=120 tags=fast */
/* Where pipelines of other trainers went wrong: a norm taken on one stage only, copies of a tied
 * table that drift apart where gradients are sharded, a rank that skips while others wait, fewer
 * micro-batches than stages. */
#include "check.h"
#include "equal.h"
#include "pipelines.h"

#include <math.h>
#include <stdlib.h>

/* --- one norm, one clip factor --- */

static double norm_of(const ech_session *s, const double *g)
{
    long double sum = 0.0L;
    for (int64_t e = 0; e < s->canon.elems; e++)
        sum += (long double)g[e] * (long double)g[e];
    return (double)sqrtl(sum);
}

/* The norm of all stages' gradients, larger than any stage's; weights clipped by it alike. */
static void check_norm(const pipeline *p, tiny_kind kind, int tp, int dp, int stage)
{
    tiny_run run;
    tiny_spec spec = pipeline_spec(p, kind);
    spec.clip = 0.1;
    spec.tp = tp;
    spec.dp = dp;
    spec.policy.zero_stage = stage;
    assert_int_equal(equal_to_one_rank(&spec), 0);
    tiny_start(&spec, &run);
    ech_session *s = run.session;
    tiny_feed(&run, 0, equal_keep, NULL);
    const ech_step_result r = tiny_step(&run, 0, 0.1);
    const double norm = norm_of(s, tiny_all(s, ECH_HELD_GRADS));
    assert_true(r.grad_norm > 1.0); /* ten times the limit */
    assert_near(r.grad_norm / norm, 1.0, 1e-12);
    for (int k = 0; k < run.world; k++) {
        const double seen = ech_engine_get_real(s->local[k].engine, ECH_CELL_GRAD_SQ);
        assert_near(sqrt(seen), r.grad_norm, 0.0);
        if (tp * dp == 1)
            assert_true(norm_of(s, tiny_grads(s, k)) < 0.999 * norm);
    }
    tiny_stop(&run);
}

static void test_one_norm_over_all_stages(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++) {
        check_norm(&(pipeline){ECH_SCHEDULE_1F1B, 2, 2, 1, 0}, (tiny_kind)kind, 1, 1, 0);
        /* two parts on a rank */
        check_norm(&(pipeline){ECH_SCHEDULE_INTERLEAVED, 2, 2, 2, 0}, (tiny_kind)kind, 1, 1, 0);
        check_norm(&(pipeline){ECH_SCHEDULE_ZB_V, 2, 2, 2, 0}, (tiny_kind)kind, 1, 1, 0);
    }
    check_norm(&(pipeline){ECH_SCHEDULE_1F1B, 2, 2, 1, 0}, TINY_TIED_LLAMA, 2, 2, 1);
    check_norm(&(pipeline){ECH_SCHEDULE_ZB_H1, 2, 2, 1, 0}, TINY_QWEN, 1, 2, 3);
}

/* --- both copies of a tied table --- */

/* The table as the pipeline rank of local rank `i` has it, bit for bit. */
static double *table_of(const ech_session *s, int i)
{
    const size_t bytes = (size_t)s->canon.param[0].elems * sizeof(double);
    double *to = malloc(bytes);
    assert_non_null(to);
    memcpy(to, (double *)tiny_params(s, i) + s->canon.param[0].offset, bytes);
    return to;
}

static void check_tables(tiny_run *run)
{
    const ech_session *s = run->session;
    const size_t n = (size_t)s->canon.param[0].elems;
    double *first = table_of(s, 0);
    double most = 0.0;
    for (size_t e = 0; e < n; e++)
        most = fmax(most, fabs(first[e]));
    assert_true(most > 0.1);
    for (int k = 0; k < run->world; k++) {
        double *other = table_of(s, k);
        assert_memory_equal(first, other, n * sizeof(double));
        free(other);
    }
    free(first);
}

/* Reduced over dp in shares first, then share by share over the two stages. */
static void check_tied(tiny_kind kind, int stage, ech_update_rule optim)
{
    enum { STEPS = 5 };
    tiny_run one;
    tiny_run run;
    const pipeline p = {ECH_SCHEDULE_1F1B, 2, 2, 1, 0};
    tiny_spec spec = pipeline_spec(&p, kind);
    spec.dp = 2;
    spec.policy.zero_stage = stage;
    spec.optim = optim;
    tiny_start(&spec, &run);
    spec = pipeline_spec(&(pipeline){ECH_SCHEDULE_1F1B, 1, 4, 1, 0}, kind);
    spec.optim = optim;
    tiny_start(&spec, &one);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, equal_keep, NULL);
        tiny_feed(&one, i, equal_keep, NULL);
        const ech_step_result r = tiny_step(&run, i, 0.01);
        const ech_step_result o = tiny_step(&one, i, 0.01);
        if (stage < 3) /* whole on every rank */
            check_tables(&run);
        for (int c = 0; c < ECH_N_HELD; c++)
            assert_int_equal(equal_wrong_copies(run.session, (ech_held_class)c), 0);
        assert_near(r.grad_norm / o.grad_norm, 1.0, 1e-11);
        assert_near(tiny_difference(one.session, tiny_all(run.session, ECH_HELD_GRADS),
                                    tiny_all(one.session, ECH_HELD_GRADS)),
                    0.0, 1e-11);
        assert_near(tiny_difference(one.session, tiny_all(run.session, ECH_HELD_PARAMS),
                                    tiny_all(one.session, ECH_HELD_PARAMS)),
                    0.0, 1e-11);
    }
    tiny_stop(&run);
    tiny_stop(&one);
}

static void test_copies_of_a_tied_table_stay_alike(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++)
        check_tied(TINY_TIED_LLAMA, stage, ECH_UPDATE_SGD);
    check_tied(TINY_GPT2, 1, ECH_UPDATE_SGD);
}

/* --- what one stage alone sees --- */

enum { BAD_STEP = 3, STEPS = 6 };

static unsigned char *state_copy(const tiny_run *run, int k, size_t *bytes)
{
    ech_session *s = run->session;
    const size_t n = (size_t)s->canon.elems * ech_dtype_bytes(s->config.compile.block.real);
    unsigned char *to = malloc(3 * n);
    assert_non_null(to);
    memcpy(to, tiny_params(s, k), n);
    memcpy(to + n, tiny_moments(s, k), 2 * n);
    *bytes = 3 * n;
    return to;
}

static bool is_finite_on(const ech_session *s, int k)
{
    const void *g = tiny_grads(s, k);
    for (int64_t e = 0; e < s->canon.elems; e++)
        if (!isfinite(ech_dtype_load(s->config.compile.block.real, g, (size_t)e)))
            return false;
    return true;
}

/* A step that nobody makes: all see it, no state changes, nobody waits for ever. */
static ech_step_result skipped_step(tiny_run *run, const ech_step_request *request)
{
    enum { MOST = 8 };
    ech_step_result r;
    unsigned char *before[MOST];
    size_t bytes = 0;
    ech_session *s = run->session;
    assert_true(run->world <= MOST);
    for (int k = 0; k < run->world; k++)
        before[k] = state_copy(run, k, &bytes);
    assert_ok(ech_session_step(s, request, &r));
    assert_false(r.is_finite);
    assert_false(r.is_updated);
    for (int k = 0; k < run->world; k++) {
        unsigned char *after = state_copy(run, k, &bytes);
        assert_memory_equal(before[k], after, bytes);
        free(before[k]);
        free(after);
        assert_true(!isfinite(ech_engine_get_real(s->local[k].engine, ECH_CELL_GRAD_SQ)));
    }
    return r;
}

/* Rows of the token table become small, and so the norm of the first block steep: there gradients
 * are large, and only there. */
static void shrink_table(tiny_run *run)
{
    ech_session *s = run->session;
    const ech_param *table = &s->canon.param[0];
    for (int k = 0; k < run->world; k++) {
        float *params = tiny_params(s, k);
        for (int64_t e = 0; e < table->elems; e++)
            params[table->offset + e] *= 1e-3F;
        tiny_set_params(s, k, params);
    }
}

/* Largest gradient on the ranks that hold the token table, and on the others. */
static void largest(const tiny_run *run, double out[2])
{
    const ech_session *s = run->session;
    out[0] = out[1] = 0.0;
    for (int k = 0; k < run->world; k++) {
        const float *g = tiny_grads(s, k);
        double most = 0.0;
        for (int64_t e = 0; e < s->canon.elems; e++)
            most = fmax(most, fabs((double)g[e]));
        const int i = ech_shard_has_unit(&s->local[k].klass->plan, 0) ? 0 : 1;
        out[i] = fmax(out[i], most);
    }
}

static tiny_spec overflow_spec(const pipeline *p)
{
    tiny_spec spec = pipeline_spec(p, TINY_QWEN);
    spec.real = ECH_F32;
    spec.optim = ECH_UPDATE_ADAMW;
    return spec;
}

/* The loss is finite, the gradient overflows on the first stage alone. */
static void check_overflow(const pipeline *p)
{
    tiny_run run;
    tiny_run plain;
    double most[2];
    int rank;
    int micro;
    int64_t updates = 0;
    const tiny_spec spec = overflow_spec(p);
    tiny_start(&spec, &run);
    tiny_start(&spec, &plain);
    shrink_table(&run);
    shrink_table(&plain);
    for (int i = 0; i < STEPS; i++) {
        ech_step_result r;
        ech_step_request request = {.step = i, .updates = updates, .lr = 1e-5, .loss_scale = 1.0};
        tiny_feed(&run, i, equal_keep, NULL);
        if (i == BAD_STEP) {
            request.commit = ECH_COMMIT_NEVER;
            assert_ok(ech_session_step(run.session, &request, &r)); /* to see how large */
            largest(&run, most);
            assert_true(most[0] > 4.0 * most[1]);
            request.commit = ECH_COMMIT_IF_FINITE;
            request.loss_scale = 3e38 / (2.0 * most[1]);
            r = skipped_step(&run, &request);
            assert_true(isfinite(r.loss) != 0);
            assert_ok(ech_session_find_nonfinite(run.session, &rank, &micro));
            assert_int_equal(rank, -1);
            for (int k = 0; k < run.world; k++)
                assert_int_equal(is_finite_on(run.session, k),
                                 !ech_shard_has_unit(&run.session->local[k].klass->plan, 0));
            continue;
        }
        assert_ok(ech_session_step(run.session, &request, &r));
        assert_true(r.is_updated);
        tiny_feed(&plain, i, equal_keep, NULL);
        assert_ok(ech_session_step(plain.session, &request, &r));
        updates++;
    }
    const size_t bytes = (size_t)run.session->canon.elems * sizeof(float);
    for (int k = 0; k < run.world; k++) /* as if the step had not been */
        assert_memory_equal(tiny_params(run.session, k), tiny_params(plain.session, k), bytes);
    tiny_stop(&run);
    tiny_stop(&plain);
}

static void test_an_overflow_on_one_stage(void **state)
{
    (void)state;
    check_overflow(&(pipeline){ECH_SCHEDULE_1F1B, 2, 3, 1, 0});
    check_overflow(&(pipeline){ECH_SCHEDULE_GPIPE, 4, 2, 1, 0});
    check_overflow(&(pipeline){ECH_SCHEDULE_INTERLEAVED, 2, 4, 2, 0});
    check_overflow(&(pipeline){ECH_SCHEDULE_ZB_H1, 3, 4, 1, 0});
}

/* The last stage alone has losses: one that is not finite is everybody's, and its rank is named. */
static void check_nan(const pipeline *p)
{
    tiny_run run;
    int rank;
    int micro;
    const ech_step_request request = {.lr = 0.01, .loss_scale = 1.0};
    tiny_spec spec = pipeline_spec(p, TINY_LLAMA);
    spec.optim = ECH_UPDATE_ADAMW;
    spec.dp = 2;
    tiny_start(&spec, &run);
    ech_session *s = run.session;
    const int head = s->canon.n_units - 1;
    int bad = -1;
    for (int k = 0; k < run.world; k++)
        if (ech_shard_has_unit(&s->local[k].klass->plan, head))
            bad = k; /* the last of them */
    tiny_feed(&run, 0, equal_keep, NULL);
    double *params = tiny_params(s, bad);
    const int64_t at = s->canon.unit_offset[head];
    const double was = params[at];
    params[at] = (double)NAN;
    tiny_set_params(s, bad, params);
    const ech_step_result r = skipped_step(&run, &request);
    assert_true(isnan(r.loss) != 0);
    assert_ok(ech_session_find_nonfinite(s, &rank, &micro));
    assert_int_equal(rank, s->local[bad].rank);
    assert_int_equal(micro, 0);
    params = tiny_params(s, bad);
    params[at] = was;
    tiny_set_params(s, bad, params);
    assert_true(tiny_step(&run, 1, 0.01).is_updated);
    tiny_stop(&run);
}

static void test_a_loss_that_is_not_finite(void **state)
{
    (void)state;
    check_nan(&(pipeline){ECH_SCHEDULE_1F1B, 2, 3, 1, 0});
    check_nan(&(pipeline){ECH_SCHEDULE_INTERLEAVED, 2, 2, 2, 0});
    check_nan(&(pipeline){ECH_SCHEDULE_ZB_H1, 3, 2, 1, 0});
    check_nan(&(pipeline){ECH_SCHEDULE_ZB_V, 2, 3, 2, 0});
}

/* --- fewer micro-batches than stages --- */

static void test_few_micro_batches(void **state)
{
    static const ech_schedule_kind kinds[] = {ECH_SCHEDULE_GPIPE, ECH_SCHEDULE_1F1B,
                                              ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_ZB_H1,
                                              ECH_SCHEDULE_ZB_V};
    int refused = 0;
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int m = 1; m <= 5; m++) {
            const int chunks = kinds[i] == ECH_SCHEDULE_INTERLEAVED ? 2 : 1;
            const pipeline p = {kinds[i], 4, m, chunks, 0};
            const tiny_spec spec = pipeline_spec(&p, TINY_TIED_LLAMA);
            if (chunks == 1 || m == 4) {
                assert_int_equal(equal_to_one_rank(&spec), 0);
                continue;
            }
            assert_fails(tiny_check(&spec), ECH_E_ILLEGAL, m < 4 ? "4" : "4 and 8");
            refused++;
        }
    assert_int_equal(refused, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_norm_over_all_stages),
        cmocka_unit_test(test_copies_of_a_tied_table_stay_alike),
        cmocka_unit_test(test_an_overflow_on_one_stage),
        cmocka_unit_test(test_a_loss_that_is_not_finite),
        cmocka_unit_test(test_few_micro_batches),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    equal_end();
    return failed;
}
