/* RUN: np=1 timeout=20 tags=fast */
/* A NaN on one rank: all ranks see it in the same sums and decide alike, nothing is updated, and
 * the rank and micro-batch it came from are named.  After it the run is as if the step had not
 * been. */
#include "check.h"
#include "tiny.h"

#include <math.h>
#include <stdlib.h>

enum { DP = 4, MICROS = 3, BAD_RANK = 2, BAD_MICRO = 1, BAD_STEP = 4, STEPS = 7, RARE = 36 };

static tiny_spec base(void)
{
    tiny_spec spec = tiny_spec_default();
    spec.dp = DP;
    spec.accumulation = MICROS;
    spec.rows = 2;
    spec.optim = ECH_UPDATE_ADAMW;
    return spec;
}

/* Tokens of a step; the rare one only in the bad micro-batch of the bad rank. */
static void feed(tiny_run *run, int step, int bad_rank)
{
    const int64_t micro = 2 * run->session->config.compile.block.seq;
    tiny_feed(run, step, NULL, NULL);
    for (int r = 0; r < run->world; r++) {
        int32_t *t = ech_session_tokens(run->session, r);
        for (int64_t i = 0; i < MICROS * micro; i++)
            t[i] = t[i] == RARE ? 0 : t[i];
        if (r == bad_rank)
            t[BAD_MICRO * micro + 3] = RARE;
    }
}

/* The rare token's row of a rank's table, NaN from now on; returns what was there. */
static double spoil(tiny_run *run, int rank)
{
    double *params = tiny_params(run->session, rank);
    double *at = params + RARE * run->session->model.hidden; /* the token table comes first */
    const double was = *at;
    *at = (double)NAN;
    tiny_set_params(run->session, rank, params);
    return was;
}

static void mend(tiny_run *run, int rank, double was)
{
    double *params = tiny_params(run->session, rank);
    params[RARE * run->session->model.hidden] = was;
    tiny_set_params(run->session, rank, params);
}

static unsigned char *state_copy(tiny_run *run, int rank)
{
    const size_t bytes = (size_t)run->session->canon.elems * sizeof(double);
    unsigned char *to = malloc(3 * bytes);
    memcpy(to, tiny_params(run->session, rank), bytes);
    memcpy(to + bytes, tiny_moments(run->session, rank), 2 * bytes);
    return to;
}

static void assert_alike(tiny_run *run)
{
    const ech_session *s = run->session;
    for (int r = 1; r < run->world; r++) {
        const double loss = ech_engine_get_real(s->local[r].engine, ECH_CELL_LOSS);
        const double norm = ech_engine_get_real(s->local[r].engine, ECH_CELL_GRAD_SQ);
        assert_int_equal(isfinite(loss),
                         isfinite(ech_engine_get_real(s->local[0].engine, ECH_CELL_LOSS)));
        assert_int_equal(isfinite(norm),
                         isfinite(ech_engine_get_real(s->local[0].engine, ECH_CELL_GRAD_SQ)));
    }
}

static void test_a_nan_on_one_rank_stops_all_of_them(void **state)
{
    tiny_run run;
    tiny_run plain;
    int nonfinite = 0;
    int64_t updates = 0;
    int rank;
    int micro;
    const tiny_spec spec = base();
    (void)state;
    tiny_start(&spec, &run);
    tiny_start(&spec, &plain);
    for (int i = 0; i < STEPS; i++) {
        ech_step_result r;
        const ech_step_request request = {i,     updates, 0.01, 1.0, ECH_COMMIT_IF_FINITE,
                                          false, false};
        const bool is_bad = i == BAD_STEP;
        feed(&run, i, BAD_RANK);
        const double was = is_bad ? spoil(&run, BAD_RANK) : 0.0;
        unsigned char *before[DP];
        for (int k = 0; k < DP; k++)
            before[k] = state_copy(&run, k);
        assert_ok(ech_session_step(run.session, &request, &r));
        assert_alike(&run);
        assert_int_equal(r.is_finite, !is_bad);
        assert_int_equal(r.is_updated, !is_bad);
        nonfinite += !r.is_finite;
        assert_ok(ech_session_find_nonfinite(run.session, &rank, &micro));
        assert_int_equal(rank, is_bad ? BAD_RANK : -1);
        assert_int_equal(micro, is_bad ? BAD_MICRO : -1);
        for (int k = 0; k < DP; k++) {
            unsigned char *after = state_copy(&run, k);
            const size_t bytes = 3 * (size_t)run.session->canon.elems * sizeof(double);
            assert_int_equal(memcmp(before[k], after, bytes) == 0, is_bad);
            free(after);
            free(before[k]);
        }
        if (is_bad) {
            mend(&run, BAD_RANK, was);
        } else {
            ech_step_result p;
            feed(&plain, i, BAD_RANK);
            assert_ok(ech_session_step(plain.session, &request, &p));
            assert_true(p.is_updated);
            updates++;
        }
    }
    assert_int_equal(nonfinite, 1);
    for (int k = 0; k < DP; k++)
        assert_memory_equal(tiny_params(run.session, k), tiny_params(plain.session, k),
                            (size_t)run.session->canon.elems * sizeof(double));
    tiny_stop(&run);
    tiny_stop(&plain);
}

static void test_every_rank_is_named(void **state)
{
    (void)state;
    for (int bad = 0; bad < DP; bad++) {
        tiny_run run;
        int rank;
        int micro;
        const tiny_spec spec = base();
        tiny_start(&spec, &run);
        feed(&run, 0, bad);
        (void)spoil(&run, bad);
        const ech_step_result r = tiny_step(&run, 0, 0.01);
        assert_false(r.is_finite);
        assert_true(isnan(r.loss) != 0);
        assert_ok(ech_session_find_nonfinite(run.session, &rank, &micro));
        assert_int_equal(rank, bad);
        assert_int_equal(micro, BAD_MICRO);
        tiny_stop(&run);
    }
}

/* Nobody's loss is at fault: rank -1. */
static void test_a_gradient_alone_overflows(void **state)
{
    tiny_run run;
    ech_step_result r;
    int rank;
    int micro;
    const tiny_spec spec = base();
    const ech_step_request request = {.lr = 0.01, .loss_scale = 1e308};
    (void)state;
    tiny_start(&spec, &run);
    feed(&run, 0, -1);
    double *before = (double *)state_copy(&run, 1);
    assert_ok(ech_session_step(run.session, &request, &r));
    assert_true(isfinite(r.loss) != 0);
    assert_true(!isfinite(r.grad_norm));
    assert_false(r.is_finite);
    assert_false(r.is_updated);
    assert_ok(ech_session_find_nonfinite(run.session, &rank, &micro));
    assert_int_equal(rank, -1);
    assert_int_equal(micro, -1);
    assert_memory_equal(tiny_params(run.session, 1), before,
                        (size_t)run.session->canon.elems * sizeof(double));
    free(before);
    tiny_stop(&run);
}

static void test_commit_never_updates_nothing(void **state)
{
    tiny_run run;
    ech_step_result r;
    const tiny_spec spec = base();
    const ech_step_request request = {.lr = 0.01, .loss_scale = 1.0, .commit = ECH_COMMIT_NEVER};
    (void)state;
    tiny_start(&spec, &run);
    feed(&run, 0, -1);
    double *before = (double *)state_copy(&run, 1);
    assert_ok(ech_session_step(run.session, &request, &r));
    assert_true(r.is_finite);
    assert_false(r.is_updated);
    assert_memory_equal(tiny_params(run.session, 1), before,
                        (size_t)run.session->canon.elems * sizeof(double));
    free(before);
    tiny_stop(&run);
}

/* One rank's wish is everybody's. */
static void test_one_rank_wants_to_stop(void **state)
{
    tiny_run run;
    ech_step_result r;
    const tiny_spec spec = base();
    ech_step_request request = {.lr = 0.01, .loss_scale = 1.0};
    (void)state;
    tiny_start(&spec, &run);
    feed(&run, 0, -1);
    assert_ok(ech_session_step(run.session, &request, &r));
    assert_false(r.is_stopping);
    request.wants_stop = true;
    assert_ok(ech_session_step(run.session, &request, &r));
    assert_true(r.is_stopping);
    assert_true(r.is_updated);
    for (int k = 0; k < DP; k++)
        assert_near(ech_engine_get_real(run.session->local[k].engine, ECH_CELL_STOP), DP, 0.0);
    tiny_stop(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_nan_on_one_rank_stops_all_of_them),
        cmocka_unit_test(test_every_rank_is_named),
        cmocka_unit_test(test_a_gradient_alone_overflows),
        cmocka_unit_test(test_commit_never_updates_nothing),
        cmocka_unit_test(test_one_rank_wants_to_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
