/* RUN: np=1 timeout=60 tags=fast */
/* Every backward kernel of the reference set against finite differences of its forward, in fp64.
 *
 * The loss is sum(w y) with the backward's own dy as the weights w.  The derivative by one element
 * of an input is taken by the central difference of fourth order,
 *   (8 (f(+h) - f(-h)) - (f(+2h) - f(-2h))) / (12 h),
 * whose error is about h^4 + eps / h. */
#include "check.h"
#include "kernel_cases.h"

#include <math.h>
#include <stdlib.h>

static const double fd_step = 1e-3;
static const double fd_bound = 1e-8; /* relative to the largest element of the gradient */

/* Arguments of the forward: i is the memory of argument i of the backward, OWN(i) new random memory
 * of its shape, NONE an optional argument left out. */
#define OWN(i) (-1 - (i))
#define NONE   (-100)

enum { MAX_GRADS = 3 };

/* One gradient: of which forward argument, in which backward argument, and what was added to it
 * there (an argument; itself: accumulated; NO_RESIDUAL: nothing). */
typedef struct grad_row {
    int input, gradient, residual;
} grad_row;

enum { NO_RESIDUAL = -1 };

typedef struct pair_row {
    ech_op_kind backward, forward;
    int from[6];
    int n_args, y, dy; /* y: of the forward; dy: of the backward */
    grad_row grad[MAX_GRADS];
    int n_grads;
    double eps; /* real 0 of the forward; 0: reals as the backward's */
} pair_row;

static const pair_row pairs[] = {
    {ECH_OP_EMBED_BACKWARD, ECH_OP_EMBED, {0, OWN(2), OWN(1)}, 3, 2, 1, {{1, 2, 2}}, 1, 0.0},
    {ECH_OP_POSITIONS_BACKWARD,
     ECH_OP_POSITIONS,
     {OWN(0), OWN(1), NONE},
     3,
     0,
     0,
     {{1, 1, 1}},
     1,
     0.0},
    {ECH_OP_BIAS_BACKWARD, ECH_OP_BIAS, {OWN(0), OWN(1)}, 2, 0, 0, {{1, 1, 1}}, 1, 0.0},
    {ECH_OP_LAYERNORM_BACKWARD,
     ECH_OP_LAYERNORM,
     {0, 1, OWN(1), OWN(4), OWN(2), OWN(3)},
     6,
     3,
     4,
     {{0, 6, 5}, {1, 7, 7}, {2, 8, 8}},
     3,
     1e-5},
    {ECH_OP_RMSNORM_BACKWARD,
     ECH_OP_RMSNORM,
     {0, 1, OWN(3), OWN(2)},
     4,
     2,
     3,
     {{0, 5, 4}, {1, 6, 6}},
     2,
     1e-5},
    {ECH_OP_LINEAR_DGRAD,
     ECH_OP_LINEAR,
     {OWN(2), 1, NONE, OWN(0)},
     4,
     3,
     0,
     {{0, 2, NO_RESIDUAL}},
     1,
     0.0},
    {ECH_OP_LINEAR_WGRAD,
     ECH_OP_LINEAR,
     {0, OWN(2), OWN(3), OWN(1)},
     4,
     3,
     1,
     {{1, 2, 2}, {2, 3, 3}},
     2,
     0.0},
    {ECH_OP_QK_NORM_BACKWARD,
     ECH_OP_QK_NORM,
     {0, 1, 2, OWN(0), OWN(3)},
     5,
     3,
     4,
     {{0, 4, NO_RESIDUAL}, {1, 5, 5}, {2, 6, 6}},
     3,
     1e-5},
    {ECH_OP_ROPE, ECH_OP_ROPE, {OWN(0), 1, 2}, 3, 0, 0, {{0, 0, NO_RESIDUAL}}, 1, 0.0},
    {ECH_OP_ATTENTION_BACKWARD,
     ECH_OP_ATTENTION,
     {0, OWN(1), OWN(2)},
     3,
     1,
     3,
     {{0, 4, NO_RESIDUAL}},
     1,
     0.0},
    {ECH_OP_SWIGLU_BACKWARD, ECH_OP_SWIGLU, {0, OWN(1)}, 2, 1, 1, {{0, 2, NO_RESIDUAL}}, 1, 0.0},
    {ECH_OP_GELU_BACKWARD, ECH_OP_GELU, {0, OWN(1)}, 2, 1, 1, {{0, 2, NO_RESIDUAL}}, 1, 0.0},
    {ECH_OP_DROPOUT,
     ECH_OP_DROPOUT,
     {OWN(0), NONE, OWN(2)},
     3,
     2,
     0,
     {{0, 2, NO_RESIDUAL}},
     1,
     0.0},
    {ECH_OP_XENT_BACKWARD,
     ECH_OP_XENT_SHARD, /* and xent: kernel_case_loss */
     {0, 1, OWN(2), OWN(3)},
     4,
     3,
     3,
     {{0, 0, NO_RESIDUAL}},
     1,
     0.0},
};

/* A forward and its loss. */
typedef struct forward {
    ech_kernel_call call;
    const pair_row *row;
    double *own[ECH_MAX_ARGS];   /* owned: memory of OWN arguments */
    double *start[ECH_MAX_ARGS]; /* owned: what they hold before a run */
    const double *weight;        /* borrowed: dy */
} forward;

static double *new_doubles(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static double *copy_of(const ech_tensor *t)
{
    double *x = new_doubles(ech_tensor_elems(t));
    memcpy(x, t->data, (size_t)ech_tensor_elems(t) * sizeof *x);
    return x;
}

static void add_own(forward *f, int i)
{
    ech_tensor *t = &f->call.arg[i];
    if (!t->data) /* optional in the backward, so here too */
        return;
    f->own[i] = new_doubles(ech_tensor_elems(t));
    f->start[i] = new_doubles(ech_tensor_elems(t));
    for (int64_t k = 0; k < ech_tensor_elems(t); k++)
        f->start[i][k] = sin((double)(7 * k + 3 * i + 1));
    t->data = f->own[i];
}

static void forward_init(forward *f, const pair_row *row, const kernel_case *backward)
{
    memset(f, 0, sizeof *f);
    f->row = row;
    f->call = backward->call;
    f->call.kind = row->forward;
    f->call.n_args = row->n_args;
    if (row->eps > 0.0)
        f->call.real[0] = row->eps;
    if (row->forward == ECH_OP_ROPE) /* the rotation that this one transposes */
        f->call.attr[1] = !f->call.attr[1];
    for (int i = 0; i < row->n_args; i++) {
        const int from = row->from[i];
        f->call.arg[i] = (ech_tensor){0};
        if (from == NONE)
            continue;
        f->call.arg[i] = backward->call.arg[from >= 0 ? from : OWN(from)];
        if (from < 0)
            add_own(f, i);
    }
}

static void forward_fini(forward *f)
{
    for (int i = 0; i < ECH_MAX_ARGS; i++) {
        free(f->own[i]);
        free(f->start[i]);
    }
}

/* sum(w y) */
static double loss(const forward *f)
{
    for (int i = 0; i < f->row->n_args; i++)
        if (f->own[i])
            memcpy(f->own[i], f->start[i],
                   (size_t)ech_tensor_elems(&f->call.arg[i]) * sizeof(double));
    if (f->call.kind == ECH_OP_XENT_SHARD)
        kernel_case_loss(&f->call);
    else
        ech_kernel_set_ref()->kernel[f->call.kind](&f->call);
    const double *y = f->call.arg[f->row->y].data;
    double sum = 0.0;
    for (int64_t k = 0; k < ech_tensor_elems(&f->call.arg[f->row->y]); k++)
        sum += f->weight[k] * y[k];
    return sum;
}

static double difference(const forward *f, double *x, double step)
{
    const double x0 = *x;
    *x = x0 + step;
    const double above = loss(f);
    *x = x0 - step;
    const double below = loss(f);
    *x = x0;
    return above - below;
}

/* Gradient by one forward argument, new memory. */
static double *gradient_by_differences(const forward *f, int input)
{
    const int64_t n = ech_tensor_elems(&f->call.arg[input]);
    double *x = f->start[input] ? f->start[input] : f->call.arg[input].data;
    double *g = new_doubles(n);
    for (int64_t k = 0; k < n; k++) {
        const double d1 = difference(f, &x[k], fd_step);
        const double d2 = difference(f, &x[k], 2.0 * fd_step);
        g[k] = (8.0 * d1 - d2) / (12.0 * fd_step);
    }
    return g;
}

/* got - residual against want */
static void check_gradient(const char *name, int arg, const ech_tensor *got, const double *residual,
                           const double *want)
{
    const double *g = got->data;
    double size = 0.0, worst = 0.0;
    int64_t at = 0;
    for (int64_t k = 0; k < ech_tensor_elems(got); k++) {
        const double error = fabs(g[k] - (residual ? residual[k] : 0.0) - want[k]);
        size = fmax(size, fabs(want[k]));
        if (!(error <= worst)) {
            worst = error;
            at = k;
        }
    }
    if (!(worst <= fd_bound * size))
        fail_msg("%s: argument %d element %lld is %.12g, by differences %.12g, bound %.3g", name,
                 arg, (long long)at, g[at] - (residual ? residual[at] : 0.0), want[at],
                 fd_bound * size);
}

static void check_case(const pair_row *row, kernel_case *c)
{
    forward f;
    double *want[MAX_GRADS] = {0}, *residual[MAX_GRADS] = {0};
    forward_init(&f, row, c);
    double *weight = copy_of(&c->call.arg[row->dy]);
    f.weight = weight;
    for (int i = 0; i < row->n_grads; i++) {
        const grad_row *g = &row->grad[i];
        if (!c->call.arg[g->gradient].data)
            continue;
        want[i] = gradient_by_differences(&f, g->input);
        if (g->residual != NO_RESIDUAL && c->call.arg[g->residual].data)
            residual[i] = copy_of(&c->call.arg[g->residual]);
    }
    kernel_case_run(c, ech_kernel_set_ref());
    for (int i = 0; i < row->n_grads; i++) {
        if (want[i])
            check_gradient(c->name, row->grad[i].gradient, &c->call.arg[row->grad[i].gradient],
                           residual[i], want[i]);
        free(want[i]);
        free(residual[i]);
    }
    free(weight);
    forward_fini(&f);
}

/* Seeds 0 to 2 are the smallest shapes, 9 a drawn one. */
static void test_backward_is_the_derivative(void **state)
{
    static const uint64_t seeds[] = {0, 1, 2, 9};
    (void)state;
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        for (int variant = 0; variant < kernel_case_variants(pairs[p].backward); variant++) {
            for (size_t s = 0; s < sizeof seeds / sizeof seeds[0]; s++) {
                kernel_case c;
                kernel_case_make(&c, pairs[p].backward, variant, ECH_F64, seeds[s]);
                /* dropout is its own backward without a residual alone */
                if (pairs[p].backward != ECH_OP_DROPOUT || !c.call.arg[1].data)
                    check_case(&pairs[p], &c);
                kernel_case_fini(&c);
            }
        }
    }
}

/* Every kind whose name ends in "backward", "dgrad" or "wgrad" has its row above. */
static void test_every_backward_is_covered(void **state)
{
    (void)state;
    for (int kind = 0; kind < KERNEL_CASE_KINDS; kind++) {
        const char *name = ech_op_name((ech_op_kind)kind);
        if (!strstr(name, "backward") && !strstr(name, "grad"))
            continue;
        bool is_covered = false;
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
            is_covered = is_covered || (int)pairs[p].backward == kind;
        if (!is_covered)
            fail_msg("%s has no test by finite differences", name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backward_is_the_derivative),
        cmocka_unit_test(test_every_backward_is_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
