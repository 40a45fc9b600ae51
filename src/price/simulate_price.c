/* What blocks take: asked of the cost model once a block and chunk, and kept as runs of kernels
 * between communication ops. */
#include "price/simulate_private.h"

#include <math.h>
#include <stdlib.h>

static ech_status check_seconds(double s, const ech_op *op)
{
    ECH_CHECK(isfinite(s) && s >= 0.0, ECH_E_ILLEGAL, "op %s takes %g s: no time",
              ech_op_name(op->kind), s);
    return ECH_OK;
}

/* Requests that an item of the block needs. */
static int requests_of(const ech_block *b)
{
    int n = 0;
    for (int k = 0; k < b->n_ops; k++)
        if (ech_op_is_comm(b->op[k].kind) && b->op[k].request >= n)
            n = b->op[k].request + 1;
    return n;
}

/* Most requests of any item, by what the blocks need. */
static void count_requests(sim *s, const ech_program *p, const int *needed)
{
    for (int i = 0; i < p->n_items; i++) {
        const int end = p->item[i].request + needed[p->item[i].block];
        s->n_requests = p->item[i].request >= 0 && end > s->n_requests ? end : s->n_requests;
    }
}

static ech_status list_class(sim *s, int klass)
{
    sim_class *c = &s->klass[klass];
    const ech_program *p = s->spec->program[klass];
    c->p = p;
    c->chunks = 1;
    for (int i = 0; i < p->n_items; i++) {
        const ech_item *it = &p->item[i];
        c->chunks = it->chunk >= c->chunks ? it->chunk + 1 : c->chunks;
    }
    int *needed;
    ECH_TRY(ech_calloc((size_t)p->n_blocks, sizeof *needed, &needed));
    for (int b = 0; b < p->n_blocks; b++)
        needed[b] = requests_of(&p->block[b]);
    count_requests(s, p, needed);
    free(needed);
    size_t cells;
    ECH_TRY(ech_mul_size((size_t)p->n_blocks, (size_t)c->chunks, &cells));
    return ech_calloc(cells, sizeof *c->price, &c->price);
}

ech_status sim_list_classes(sim *s)
{
    const ech_simulate_spec *spec = s->spec;
    ECH_CHECK(spec->n_classes >= 1, ECH_E_PROOF, "a run without programs");
    s->layout = &spec->program[0]->layout;
    for (int r = 0; r < s->layout->world && spec->class_of; r++)
        ECH_CHECK(spec->class_of[r] >= 0 && spec->class_of[r] < spec->n_classes, ECH_E_PROOF,
                  "rank %d is of class %d of %d", r, spec->class_of[r], spec->n_classes);
    ECH_TRY(ech_calloc((size_t)spec->n_classes, sizeof *s->klass, &s->klass));
    for (int c = 0; c < spec->n_classes; c++)
        ECH_TRY(list_class(s, c));
    return ECH_OK;
}

static ech_status ask_block(sim *s, sim_class *c, const ech_item *item, sim_price *out)
{
    const ech_costs *costs = &s->spec->costs;
    const ech_block *b = &c->p->block[item->block];
    *out = (sim_price){.is_known = true, .first = c->n_marks};
    for (int k = 0; k < b->n_ops; k++) {
        const ech_op *op = &b->op[k];
        if (ech_op_is_comm(op->kind)) {
            ECH_TRY(ech_grow(&c->mark, (size_t)c->n_marks, &c->mark_capacity, sizeof *c->mark));
            c->mark[c->n_marks++] = (sim_mark){.before_s = out->after_s, .comm_s = NAN, .op = k};
            out->n++;
            out->after_s = 0.0;
            continue;
        }
        const double took = costs->kernel_s(costs->user, c->p, item, op);
        ECH_TRY(check_seconds(took, op));
        out->n_kernels++;
        out->after_s += took;
        out->kernels_s += took;
    }
    return ECH_OK;
}

ech_status sim_price_of(sim *s, int klass, const ech_item *item, const sim_price **out)
{
    sim_class *c = &s->klass[klass];
    const int chunk = item->chunk > 0 ? item->chunk : 0;
    sim_price *p = &c->price[(size_t)item->block * (size_t)c->chunks + (size_t)chunk];
    *out = p;
    return p->is_known ? ECH_OK : ask_block(s, c, item, p);
}

ech_status sim_ask_comm(sim *s, const sim_node *n, sim_mark *m, const ech_op *op, double *out)
{
    const ech_costs *costs = &s->spec->costs;
    *out = 0.0;
    if (s->is_free)
        return ECH_OK;
    if (s->spec->follows_all || isnan(m->comm_s)) {
        m->comm_s = costs->comm_s(costs->user, s->layout, op, n->rank);
        ECH_TRY(check_seconds(m->comm_s, op));
    }
    *out = m->comm_s;
    return ECH_OK;
}
