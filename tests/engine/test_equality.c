/* RUN: np=1 timeout=120 tags=fast */
/* Data parallel training equals one rank's: every gradient before the optimizer in fp64 at 1e-11,
 * weights after five SGD steps, for ranks x accumulation, with masks, dropout and odd shares. */
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 120, STEPS = 5 };

static bool half(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row * 7 + position * 3) % 5 < 3;
}

static double *copy(const ech_session *s, const double *from)
{
    double *to = malloc((size_t)s->canon.elems * sizeof *to);
    memcpy(to, from, (size_t)s->canon.elems * sizeof *to);
    return to;
}

typedef struct reference {
    double *grads[STEPS];
    double *params;
    double loss[STEPS];
    double norm[STEPS];
} reference;

static reference run_reference(tiny_spec spec)
{
    reference ref;
    tiny_run one;
    spec.dp = spec.accumulation = 1;
    spec.rows = ROWS;
    tiny_start(&spec, &one);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&one, i, half, NULL);
        const ech_step_result r = tiny_step(&one, i, 0.05);
        ref.grads[i] = copy(one.session, tiny_grads(one.session, 0));
        ref.loss[i] = r.loss;
        ref.norm[i] = r.grad_norm;
    }
    ref.params = copy(one.session, tiny_params(one.session, 0));
    tiny_stop(&one);
    return ref;
}

static int failures;

static void expect(double got, double limit, const tiny_spec *s, const char *what)
{
    if (got <= limit)
        return;
    (void)fprintf(stderr, "model %d, dp %d, accumulation %d: %s differs by %.3e (limit %.0e)\n",
                  s->kind, s->dp, s->accumulation, what, got, limit);
    failures++;
}

static void check_layout(const tiny_spec *spec, const reference *ref)
{
    tiny_run run;
    tiny_start(spec, &run);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, half, NULL);
        const ech_step_result r = tiny_step(&run, i, 0.05);
        for (int k = 0; k < spec->dp; k++)
            expect(tiny_difference(run.session, tiny_grads(run.session, k), ref->grads[i]), 1e-11,
                   spec, "a gradient");
        expect(fabs(r.loss - ref->loss[i]), 1e-12, spec, "the loss");
        expect(fabs(r.grad_norm - ref->norm[i]) / ref->norm[i], 1e-12, spec, "the gradient norm");
        expect(fabs((double)r.tokens - 360.0), 0.0, spec, "the token count"); /* 600 * 3 / 5 */
    }
    for (int k = 0; k < spec->dp; k++)
        expect(tiny_difference(run.session, tiny_params(run.session, k), ref->params), 1e-11, spec,
               "a weight");
    tiny_stop(&run);
}

static void check_all_layouts(tiny_kind kind, double dropout)
{
    static const int accumulations[] = {1, 2, 5};
    tiny_spec spec = tiny_spec_default();
    spec.kind = kind;
    spec.dropout = dropout;
    spec.poison = true;
    reference ref = run_reference(spec);
    for (int dp = 1; dp <= 4; dp++)
        for (int a = 0; a < 3; a++) {
            spec.dp = dp;
            spec.accumulation = accumulations[a];
            spec.rows = ROWS / (dp * accumulations[a]);
            spec.schedule = a == 1 ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
            check_layout(&spec, &ref);
        }
    for (int i = 0; i < STEPS; i++)
        free(ref.grads[i]);
    free(ref.params);
}

int main(void)
{
    for (int kind = 0; kind < N_TINY; kind++)
        check_all_layouts((tiny_kind)kind, kind == TINY_GPT2 || kind == TINY_LLAMA ? 0.2 : 0.0);
    return failures != 0;
}
