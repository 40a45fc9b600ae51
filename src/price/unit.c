#include "price/unit.h"

#include <math.h>
#include <stdlib.h>

enum { N_ROLES = ECH_ROLE_HOST_SCALARS + 1 };

static int n_kernels(const ech_block *b)
{
    int n = 0;
    for (int k = 0; k < b->n_ops; k++)
        n += !ech_op_is_comm(b->op[k].kind);
    return n;
}

/* Of a class, in a chunk, of a role: its place in the list of counts. */
static int *items_of(const ech_unit *u, int klass, const ech_item *item)
{
    const int chunk = item->chunk > 0 ? item->chunk : 0;
    const ech_role role = u->program[klass]->block[item->block].role;
    return &u->items[((size_t)klass * (size_t)u->chunks + (size_t)chunk) * N_ROLES + role];
}

/* The items of a chunk's first micro-batch stand for those of every one. */
static void count_items(ech_unit *u, int klass)
{
    const ech_program *p = u->program[klass];
    for (int i = 0; i < p->n_items; i++)
        if (p->item[i].micro == 0 && n_kernels(&p->block[p->item[i].block]))
            ++*items_of(u, klass, &p->item[i]);
}

ech_status ech_unit_make(const ech_program *const *program, int n, ech_unit_times times,
                         ech_unit *out)
{
    const double all[] = {times.forward_s, times.input_s, times.weight_s};
    ech_unit u = {.program = program, .n_classes = n, .chunks = 1, .times = times};
    size_t cells;
    for (int i = 0; i < 3; i++)
        ECH_CHECK(isfinite(all[i]) && all[i] >= 0.0, ECH_E_ILLEGAL,
                  "a stage cannot take %g seconds", all[i]);
    for (int c = 0; c < n; c++)
        for (int i = 0; i < program[c]->n_items; i++)
            if (program[c]->item[i].chunk >= u.chunks)
                u.chunks = program[c]->item[i].chunk + 1;
    ECH_TRY(ech_mul_size((size_t)n * N_ROLES, (size_t)u.chunks, &cells));
    ECH_TRY(ech_calloc(cells, sizeof *u.items, &u.items));
    for (int c = 0; c < n; c++)
        count_items(&u, c);
    *out = u;
    return ECH_OK;
}

void ech_unit_fini(ech_unit *u)
{
    free(u->items);
    *u = (ech_unit){0};
}

static double stage_s(const ech_unit_times *t, ech_role role)
{
    switch (role) {
    case ECH_ROLE_FORWARD:
    case ECH_ROLE_RECOMPUTE:
        return t->forward_s;
    case ECH_ROLE_BACKWARD:
        return t->input_s + t->weight_s;
    case ECH_ROLE_BACKWARD_INPUT:
        return t->input_s;
    case ECH_ROLE_BACKWARD_WEIGHT:
        return t->weight_s;
    default:
        return 0.0;
    }
}

static double kernel_s(void *user, const ech_program *p, const ech_item *item, const ech_op *op)
{
    const ech_unit *u = user;
    const ech_block *b = &p->block[item->block];
    int klass = 0;
    (void)op;
    while (klass < u->n_classes && u->program[klass] != p)
        klass++;
    ECH_ASSERT(klass < u->n_classes);
    if (item->micro < 0)
        return 0.0;
    const int items = *items_of(u, klass, item);
    return items ? stage_s(&u->times, b->role) / items / n_kernels(b) : 0.0;
}

static double comm_s(void *user, const ech_layout *l, const ech_op *op, int rank)
{
    (void)user;
    (void)l;
    (void)op;
    (void)rank;
    return 0.0;
}

ech_costs ech_unit_costs(ech_unit *u)
{
    return (ech_costs){.user = u, .kernel_s = kernel_s, .comm_s = comm_s};
}
