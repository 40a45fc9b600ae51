#include "plan/calibrate.h"

#include "base/checked.h"
#include "price/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The fit in the making. */
typedef struct solver {
    const ech_calibrate_spec *spec;
    ech_pricer *pricer; /* owned */
    int n_free, free[ECH_N_CONSTANTS];
    double *residual, *next; /* owned [n], units of noise */
    double *jacobian;        /* owned [n_free, n] */
    double a[ECH_N_CONSTANTS][ECH_N_CONSTANTS], b[ECH_N_CONSTANTS];
    double damped[ECH_N_CONSTANTS][ECH_N_CONSTANTS], step[ECH_N_CONSTANTS];
} solver;

static double seconds_of(ech_pricer *pricer, const ech_published *row, const ech_constants *c)
{
    ech_step_price s;
    ech_pricer_rebind(pricer, &row->job, c);
    ech_pricer_step(pricer, &row->point, NULL, &s);
    return s.step_s;
}

ech_status ech_calibrate_predict(const ech_calibrate_row *row, int n,
                                 const ech_constants *constants, double *seconds)
{
    ech_pricer *pricer = NULL;
    for (int i = 0; i < n; i++) {
        if (pricer == NULL)
            ECH_TRY(ech_pricer_create(&row[i].row->job, constants, &pricer));
        seconds[i] = seconds_of(pricer, row[i].row, constants);
    }
    ech_pricer_destroy(&pricer);
    return ECH_OK;
}

bool ech_calibrate_names(const char *families, const char *family)
{
    const size_t n = strlen(family);
    for (const char *at = families; at != NULL && *at != '\0';) {
        const size_t has = strcspn(at, "+");
        if (has == n && memcmp(at, family, n) == 0)
            return true;
        at += has + (at[has] == '+');
    }
    return false;
}

static bool counts(const solver *s, int i)
{
    const ech_calibrate_row *r = &s->spec->row[i];
    return r->weight > 0 && !ech_calibrate_names(s->spec->skip, r->row->family);
}

static void residuals(solver *s, const ech_constants *c, double *out)
{
    for (int i = 0; i < s->spec->n; i++) {
        const ech_published *row = s->spec->row[i].row;
        out[i] = counts(s, i)
                     ? log(seconds_of(s->pricer, row, c) / row->measured_s) / ECH_CALIBRATE_NOISE
                     : 0;
    }
}

/* Huber's function and the weight that it stands for. */
static double rho(double r)
{
    return fabs(r) <= 2 ? r * r : 4 * fabs(r) - 4;
}

static double trust(double r)
{
    return fabs(r) <= 2 ? 1 : 2 / fabs(r);
}

static double off_prior(const ech_constants *c, int i)
{
    return log(c->value[i] / ech_constant_about((ech_constant)i)->prior);
}

static double objective_of(const solver *s, const double *r, const ech_constants *c)
{
    double sum = 0;
    for (int i = 0; i < s->spec->n; i++)
        sum += s->spec->row[i].weight * rho(r[i]);
    for (int j = 0; j < s->n_free; j++)
        sum +=
            pow(off_prior(c, s->free[j]) / ech_constant_about((ech_constant)s->free[j])->sigma, 2);
    return sum;
}

/* The normal equations of the linearised problem. */
static void linearise(solver *s, const ech_constants *c)
{
    const double move = 0.01;
    const int n = s->spec->n;
    memset(s->a, 0, sizeof(s->a));
    for (int j = 0; j < s->n_free; j++) {
        double *row = s->jacobian + (size_t)j * (size_t)n;
        ech_constants moved = *c;
        moved.value[s->free[j]] *= exp(move);
        residuals(s, &moved, row);
        for (int i = 0; i < n; i++)
            row[i] = (row[i] - s->residual[i]) / move;
        const double sigma = ech_constant_about((ech_constant)s->free[j])->sigma;
        s->a[j][j] = 1 / (sigma * sigma);
        s->b[j] = -off_prior(c, s->free[j]) / (sigma * sigma);
        for (int i = 0; i < n; i++) {
            const double w = s->spec->row[i].weight * trust(s->residual[i]);
            if (w <= 0 || row[i] == 0)
                continue;
            s->b[j] -= w * row[i] * s->residual[i];
            for (int k = 0; k <= j; k++)
                s->a[j][k] += w * row[i] * s->jacobian[(size_t)k * (size_t)n + (size_t)i];
        }
    }
}

/* Solves damped x = b by Cholesky's factors, in place; x in step. */
static void solve(solver *s, double damping)
{
    const int n = s->n_free;
    double(*l)[ECH_N_CONSTANTS] = s->damped;
    memcpy(s->damped, s->a, sizeof(s->a));
    memcpy(s->step, s->b, sizeof(s->b));
    for (int j = 0; j < n; j++) {
        l[j][j] *= 1 + damping;
        for (int k = 0; k < j; k++)
            l[j][j] -= l[j][k] * l[j][k];
        l[j][j] = sqrt(fmax(l[j][j], 1e-12));
        for (int i = j + 1; i < n; i++) {
            for (int k = 0; k < j; k++)
                l[i][j] -= l[i][k] * l[j][k];
            l[i][j] /= l[j][j];
        }
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            s->step[i] -= l[i][k] * s->step[k];
        s->step[i] /= l[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++)
            s->step[i] -= l[k][i] * s->step[k];
        s->step[i] /= l[i][i];
    }
}

static ech_constants moved(const solver *s, const ech_constants *c)
{
    const double most = 0.7; /* of ln, a step: the problem is far from linear beyond */
    ech_constants to = *c;
    for (int j = 0; j < s->n_free; j++) {
        const int i = s->free[j];
        const ech_constant_info *about = ech_constant_about((ech_constant)i);
        const double v = c->value[i] * exp(fmin(fmax(s->step[j], -most), most));
        to.value[i] = fmin(fmax(v, fmax(about->low, 1e-12)), about->high);
    }
    return to;
}

/* One step, damped as much as it takes to get better.  @return the objective */
static double improve(solver *s, double best, double *damping, ech_constants *c)
{
    linearise(s, c);
    for (int attempt = 0; attempt < 8; attempt++) {
        solve(s, *damping);
        const ech_constants to = moved(s, c);
        residuals(s, &to, s->next);
        const double got = objective_of(s, s->next, &to);
        if (got < best) {
            *c = to;
            *damping *= 0.3;
            memcpy(s->residual, s->next, sizeof(double) * (size_t)s->spec->n);
            return got;
        }
        *damping *= 5;
    }
    return best;
}

static void finish(solver **solver_)
{
    solver *s = *solver_;
    if (s == NULL)
        return;
    ech_pricer_destroy(&s->pricer);
    free(s->residual);
    free(s->next);
    free(s->jacobian);
    free(s);
    *solver_ = NULL;
}

static ech_status start(const ech_calibrate_spec *spec, solver **out)
{
    solver *s = NULL;
    ech_status st = ech_calloc(1, sizeof *s, &s);
    ECH_TRY(st);
    s->spec = spec;
    for (int i = 0; i < ECH_N_CONSTANTS; i++)
        if (ech_constant_about((ech_constant)i)->sigma > 0)
            s->free[s->n_free++] = i;
    const size_t n = (size_t)spec->n;
    ECH_TRY_GOTO(st, ech_calloc(n, sizeof(double), &s->residual), fail);
    ECH_TRY_GOTO(st, ech_calloc(n, sizeof(double), &s->next), fail);
    ECH_TRY_GOTO(st, ech_calloc(n * (size_t)s->n_free, sizeof(double), &s->jacobian), fail);
    ECH_TRY_GOTO(st, ech_pricer_create(&spec->row[0].row->job, NULL, &s->pricer), fail);
    *out = s;
    return ECH_OK;
fail:
    finish(&s);
    return st;
}

ech_status ech_calibrate(const ech_calibrate_spec *spec, ech_constants *constants,
                         double *objective)
{
    solver *s = NULL;
    double damping = 1e-2;
    if (spec->n == 0)
        return ECH_OK;
    ECH_TRY(start(spec, &s));
    residuals(s, constants, s->residual);
    double best = objective_of(s, s->residual, constants);
    for (int i = 0, idle = 0; i < spec->iterations && idle < 3; i++) {
        const double before = best;
        best = improve(s, best, &damping, constants);
        idle = before - best < 1e-5 * best ? idle + 1 : 0;
        damping = fmin(fmax(damping, 1e-6), 10);
    }
    if (objective)
        *objective = best;
    finish(&s);
    return ECH_OK;
}
