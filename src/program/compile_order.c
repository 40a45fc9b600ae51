/* Schedules: lists of work, and what follows from their order. */
#include "program/compile_private.h"

#include <stdlib.h>

static void add_forward(compiler *c, int micro)
{
    for (int u = 0; u < c->spec.block.canon->n_units; u++)
        c->order[c->n_work++] = (work){.unit = u, .micro = micro};
}

static void add_backward(compiler *c, int micro)
{
    for (int u = c->spec.block.canon->n_units - 1; u >= 0; u--)
        c->order[c->n_work++] = (work){.unit = u, .micro = micro, .is_backward = true};
}

/* Which backward of a unit is its first and which its last. */
static ech_status mark_ends(compiler *c)
{
    int *last;
    const size_t units = (size_t)c->spec.block.canon->n_units;
    ECH_TRY(ech_calloc(units, sizeof *last, &last));
    for (size_t u = 0; u < units; u++)
        last[u] = -1;
    for (int i = 0; i < c->n_work; i++)
        if (c->order[i].is_backward) {
            c->order[i].is_first = last[c->order[i].unit] < 0;
            last[c->order[i].unit] = i;
        }
    for (size_t u = 0; u < units; u++)
        if (last[u] >= 0)
            c->order[last[u]].is_last = true;
    free(last);
    return ECH_OK;
}

ech_status compile_plan_order(compiler *c, bool trains)
{
    const int m = c->spec.micro_batches;
    const bool forwards_first = c->spec.all_forward_first || !trains;
    ECH_TRY(ech_calloc(2 * (size_t)m * (size_t)c->spec.block.canon->n_units, sizeof *c->order,
                       &c->order));
    for (int i = 0; i < m && forwards_first; i++)
        add_forward(c, i);
    for (int i = 0; i < m && trains; i++) {
        if (!forwards_first)
            add_forward(c, i);
        add_backward(c, i);
    }
    return mark_ends(c);
}
