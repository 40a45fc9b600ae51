#include "cli/bench_step.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/io.h"
#include "cli/command.h"
#include "measure/bench.h"
#include "measure/bench_step.h"
#include "price/cost.h"
#include "report/jout.h"
#include "price/predict.h"
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 2, MAX_STEPS = 32 };

/* What is measured on this process. */
typedef struct measuring {
    const ech_bench_step_options *o;
    ech_run_setup *setup;
    ech_session *session;
    ech_calibration *calibration; /* owned; NULL: nothing is predicted */
    ech_costs costs;
    double simulated_s;             /* NaN: nothing is predicted */
    ech_step_times step[MAX_STEPS]; /* op by op */
    double whole_s[MAX_STEPS];      /* as training runs it */
    int n;
} measuring;

static void feed_random(ech_session *s)
{
    const ech_block_spec *b = &s->config.compile.block;
    const int64_t n = (int64_t)s->config.compile.micro_batches * b->rows * b->seq;
    int32_t *tokens = ech_session_tokens(s, 0);
    int32_t *labels = ech_session_labels(s, 0);
    uint32_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        const int32_t id = (int32_t)((x >> 8) % (uint32_t)s->model.vocab);
        if (tokens)
            tokens[i] = id;
        if (labels)
            labels[i] = id;
    }
}

static ech_status one_step(measuring *m, int64_t i, double *seconds)
{
    const ech_step_request request = {.step = i, .updates = i, .lr = 1e-5, .loss_scale = 1.0};
    ech_step_result result;
    ech_transport *t = m->setup->transport[0];
    if (t->size > 1)
        ECH_TRY(t->barrier(t));
    const double begin = ech_clock_s();
    ECH_TRY(ech_session_step(m->session, &request, &result));
    *seconds = ech_clock_s() - begin;
    return ECH_OK;
}

static ech_status measure(measuring *m)
{
    ech_local_rank *r = &m->session->local[0];
    const ech_program *p = &ech_run_of(&m->session->train, r->rank)->program;
    double warm = 0;
    feed_random(m->session);
    for (int i = 0; i < WARM_UP; i++)
        ECH_TRY(one_step(m, i, &warm));
    m->n = m->o->steps < MAX_STEPS ? (int)m->o->steps : MAX_STEPS;
    for (int i = 0; i < m->n; i++) {
        ECH_TRY(one_step(m, WARM_UP + i, &m->whole_s[i]));
        ECH_TRY(ech_bench_step(r->engine, p, m->calibration ? &m->costs : NULL, r->rank,
                               m->session->config.watchdog_s, &m->step[i]));
    }
    return ECH_OK;
}

static ech_status open_costs(measuring *m)
{
    const ech_dtype real = m->session->config.compile.block.real;
    ech_step_sums sums;
    m->simulated_s = NAN;
    if (!m->o->cluster)
        return ECH_OK;
    ECH_TRY(ech_calloc(1, sizeof *m->calibration, &m->calibration));
    ECH_TRY(ech_calibration_read(m->o->cluster, m->calibration));
    ECH_TRY(
        ech_predict_step(m->o->cluster, &m->session->train, m->setup->threads, real, &sums, NULL));
    m->costs = ech_calibration_costs(m->calibration);
    m->simulated_s = sums.step_s;
    return ECH_OK;
}

/* --- telling --- */

static double wall_of_kind(const measuring *m, int kind)
{
    double x[MAX_STEPS];
    for (int i = 0; i < m->n; i++)
        x[i] = m->step[i].kind[kind].measured_s;
    return ech_bench_median(x, m->n);
}

static double cpu_of_kind(const measuring *m, int kind)
{
    double x[MAX_STEPS];
    for (int i = 0; i < m->n; i++)
        x[i] = m->step[i].kind[kind].cpu_s;
    return ech_bench_median(x, m->n);
}

/* Sums of kernels and of messages. */
typedef struct sums {
    double measured_s[2], predicted_s[2];
} sums;

static void print_words(measuring *m, double whole_s, double op_by_op_s)
{
    sums all = {0};
    (void)printf("%-22s %6s %12s %12s %12s %8s\n", "op", "ops", "measured ms", "of it cpu",
                 "predicted", "ratio");
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_kind_times *t = &m->step[0].kind[k];
        const double measured = wall_of_kind(m, k);
        const int what = ech_op_is_comm((ech_op_kind)k);
        if (t->ops == 0)
            continue;
        all.measured_s[what] += measured;
        all.predicted_s[what] += t->predicted_s;
        (void)printf("%-22s %6lld %12.3f %12.3f %12.3f %8.2f\n", ech_op_name((ech_op_kind)k),
                     (long long)t->ops, 1e3 * measured, 1e3 * cpu_of_kind(m, k),
                     1e3 * t->predicted_s, t->predicted_s / measured);
    }
    for (int w = 0; w < 2; w++)
        (void)printf("%-22s %6s %12.3f %12s %12.3f %8.2f\n", w ? "all messages" : "all kernels", "",
                     1e3 * all.measured_s[w], "", 1e3 * all.predicted_s[w],
                     all.predicted_s[w] / all.measured_s[w]);
    (void)printf("step: %.3f ms as training runs it, %.3f ms op by op\n", 1e3 * whole_s,
                 1e3 * op_by_op_s);
    if (isfinite(m->simulated_s))
        (void)printf("simulated: %.3f ms, %.3f of the measured\n", 1e3 * m->simulated_s,
                     m->simulated_s / whole_s);
}

/* Into the file of the calibration: kernels take so many times what it says of them alone. */
static ech_status save_in_step(const measuring *m)
{
    ech_calibration *c = m->calibration;
    ech_text text = {0};
    double measured = 0, predicted = 0;
    for (int k = 0; k < ECH_N_OPS; k++)
        if (!ech_op_is_comm((ech_op_kind)k) && m->step[0].kind[k].ops) {
            measured += wall_of_kind(m, k);
            predicted += m->step[0].kind[k].predicted_s;
        }
    const double was = isfinite(c->in_step) ? c->in_step : 1.0;
    ECH_CHECK(measured > 0.1 * predicted && measured < 10.0 * predicted, ECH_E_ENV,
              "kernels take %g s in a step and %g s by themselves: not of one machine", measured,
              predicted);
    c->in_step = was * measured / predicted;
    ech_calibration_write(c, &text);
    const ech_status st = text.failed
                              ? ECH_RAISE(ECH_E_NOMEM, "the text of %s", m->o->cluster)
                              : ech_write_whole(m->o->cluster, ech_text_get(&text), text.bytes);
    ech_text_fini(&text);
    return st;
}

static ech_status print_json(measuring *m, double whole_s, double op_by_op_s)
{
    ech_jout j = {0};
    ech_jout_open(&j, NULL, '{');
    ech_jout_int(&j, "ranks", m->setup->world);
    ech_jout_int(&j, "threads", m->setup->threads);
    ech_jout_real(&j, "step_s", whole_s);
    ech_jout_real(&j, "op_by_op_s", op_by_op_s);
    ech_jout_real(&j, "simulated_s", m->simulated_s);
    ech_jout_open(&j, "ops", '[');
    for (int k = 0; k < ECH_N_OPS; k++) {
        const ech_kind_times *t = &m->step[0].kind[k];
        if (t->ops == 0)
            continue;
        ech_jout_open(&j, NULL, '{');
        ech_jout_string(&j, "op", ech_op_name((ech_op_kind)k));
        ech_jout_int(&j, "n", t->ops);
        ech_jout_real(&j, "measured_s", wall_of_kind(m, k));
        ech_jout_real(&j, "cpu_s", cpu_of_kind(m, k));
        ech_jout_real(&j, "predicted_s", t->predicted_s);
        ech_jout_close(&j);
    }
    ech_jout_close(&j);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

static ech_status tell(measuring *m)
{
    double by_op[MAX_STEPS];
    for (int i = 0; i < m->n; i++)
        by_op[i] = m->step[i].step_s;
    const double op_by_op_s = ech_bench_median(by_op, m->n);
    const double whole_s = ech_bench_median(m->whole_s, m->n);
    if (m->o->saves)
        ECH_TRY(save_in_step(m));
    if (m->o->json)
        return print_json(m, whole_s, op_by_op_s);
    print_words(m, whole_s, op_by_op_s);
    return ECH_OK;
}

ech_status ech_bench_step_command(const ech_bench_step_options *o, ech_run_setup *setup)
{
    const ech_session_config sc = ech_run_session_config(o->cfg, setup);
    measuring *m;
    ECH_TRY(ech_calloc(1, sizeof *m, &m));
    m->o = o;
    m->setup = setup;
    ech_status st = ech_session_create(&sc, setup->transport, setup->n_local, &m->session);
    if (st >= 0)
        st = open_costs(m);
    st = ech_run_setup_agree(setup, st);
    if (st >= 0)
        st = measure(m);
    if (st >= 0 && setup->transport[0]->rank == 0)
        st = tell(m);
    ech_session_destroy(&m->session);
    free(m->calibration);
    free(m);
    return st;
}
