/* The best K and the front, kept while a search goes on: what a bound may skip is what can be in
 * neither. */
#include "plan/search_private.h"

#include <math.h>
#include <string.h>

/* --- order --- */

static int axes_of(const ech_point *p)
{
    return (p->tp > 1) + (p->pp > 1) + (p->cp > 1) + (p->dp > 1) + (p->ep > 1) + (p->etp > 1) +
           (p->vpp > 1) + (p->zero_stage > 0) + (p->zero_group > 0);
}

static int sign_of(double a, double b)
{
    return a < b ? -1 : a > b;
}

/* Any order that tells all layouts apart will do. */
static int compare_values(const ech_point *a, const ech_point *b)
{
    const int64_t x[] = {a->tp,
                         a->pp,
                         a->cp,
                         a->ep,
                         a->etp,
                         a->vpp,
                         a->zero_stage,
                         a->zero_group,
                         a->micro,
                         a->recompute,
                         a->recompute_layers,
                         a->schedule,
                         a->split,
                         a->order,
                         a->cp_kind,
                         a->sequence_parallel,
                         !a->reshard_after_forward,
                         a->reduce_each,
                         a->offload_optimizer,
                         a->offload_params,
                         a->offload_activations};
    const int64_t y[] = {b->tp,
                         b->pp,
                         b->cp,
                         b->ep,
                         b->etp,
                         b->vpp,
                         b->zero_stage,
                         b->zero_group,
                         b->micro,
                         b->recompute,
                         b->recompute_layers,
                         b->schedule,
                         b->split,
                         b->order,
                         b->cp_kind,
                         b->sequence_parallel,
                         !b->reshard_after_forward,
                         b->reduce_each,
                         b->offload_optimizer,
                         b->offload_params,
                         b->offload_activations};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

int ech_found_compare(const ech_found *a, const ech_found *b)
{
    int order = sign_of(a->step_s, b->step_s);
    if (!order)
        order = sign_of(a->reserved_bytes, b->reserved_bytes);
    if (!order)
        order = axes_of(&a->point) - axes_of(&b->point);
    return order ? order : compare_values(&a->point, &b->point);
}

/* --- limits --- */

void ech_frontier_init(ech_frontier *f, int top, double capacity)
{
    *f = (ech_frontier){.top = top, .capacity = capacity, .fastest = INFINITY};
    for (int i = 0; i <= ECH_SEARCH_MEMORY_STEPS; i++)
        f->limit[i] = INFINITY;
}

int ech_frontier_step(const ech_frontier *f, double bytes)
{
    const double step = ceil(bytes / f->capacity * ECH_SEARCH_MEMORY_STEPS);
    return (int)fmin(fmax(step, 0.0), (double)ECH_SEARCH_MEMORY_STEPS);
}

static void tighten(ech_frontier *f, double step_s, double reserved_bytes)
{
    f->fastest = fmin(f->fastest, step_s);
    for (int i = ech_frontier_step(f, reserved_bytes);
         i <= ECH_SEARCH_MEMORY_STEPS && f->limit[i] > step_s; i++)
        f->limit[i] = step_s;
}

void ech_frontier_seed(ech_frontier *f, double step_s, double reserved_bytes)
{
    tighten(f, step_s, reserved_bytes);
    if (f->n_seeds == f->top && (f->top == 0 || f->seed[f->top - 1] <= step_s))
        return;
    int i = f->n_seeds < f->top ? f->n_seeds++ : f->top - 1;
    for (; i > 0 && f->seed[i - 1] > step_s; i--)
        f->seed[i] = f->seed[i - 1];
    f->seed[i] = step_s;
}

/* The K-th best time that is known; nothing slower is among the best. */
static double last_time(const ech_frontier *f)
{
    double last = f->top > 0 ? INFINITY : -INFINITY;
    if (f->top > 0 && f->n_seeds == f->top)
        last = f->seed[f->top - 1];
    if (f->top > 0 && f->n_best == f->top)
        last = fmin(last, f->best[f->top - 1].step_s);
    return last;
}

bool ech_frontier_takes(const ech_frontier *f, double step_s, double reserved_bytes)
{
    const double limit = f->limit[ech_frontier_step(f, reserved_bytes)];
    return step_s <= last_time(f) || step_s <= fmin(limit, ECH_SEARCH_BAND * f->fastest);
}

static void add_best(ech_frontier *f, const ech_found *x)
{
    if (f->top == 0 || (f->n_best == f->top && ech_found_compare(&f->best[f->top - 1], x) <= 0))
        return;
    int i = f->n_best < f->top ? f->n_best++ : f->top - 1;
    for (; i > 0 && ech_found_compare(&f->best[i - 1], x) > 0; i--)
        f->best[i] = f->best[i - 1];
    f->best[i] = *x;
}

void ech_frontier_add(ech_frontier *f, const ech_found *x)
{
    const int step = ech_frontier_step(f, x->reserved_bytes);
    tighten(f, x->step_s, x->reserved_bytes);
    add_best(f, x);
    if (f->has_step[step] && ech_found_compare(&f->step[step], x) <= 0)
        return;
    f->step[step] = *x;
    f->has_step[step] = true;
}

/* From the least memory upwards each must be faster than all before. */
int ech_frontier_members(const ech_frontier *f, const ech_found **out)
{
    const ech_found *rising[ECH_SEARCH_MEMORY_STEPS + 1];
    double before = INFINITY;
    int n = 0;
    for (int i = 0; i <= ECH_SEARCH_MEMORY_STEPS; i++) {
        const ech_found *x = &f->step[i];
        if (!f->has_step[i] || x->step_s >= before)
            continue;
        before = x->step_s;
        if (x->step_s <= ECH_SEARCH_BAND * f->fastest)
            rising[n++] = x;
    }
    for (int i = 0; i < n; i++)
        out[i] = rising[n - 1 - i];
    return n;
}
