#include "timed.h"
#include "check.h"
#include "program/op_signature.h"

#include <stdlib.h>

ech_layout timed_mesh(int tp, int dp, int pp)
{
    ech_layout l;
    const ech_layout_spec spec = {.tp = tp, .cp = 1, .pp = pp, .dp = dp, .kv_share = 1};
    assert_ok(ech_layout_make(&spec, &l));
    return l;
}

timed_run *timed_make(const ech_layout *l)
{
    timed_run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->layout = *l;
    r->n = l->degree[ECH_AXIS_PP];
    assert_true(r->n <= TIMED_CLASSES && l->world <= TIMED_RANKS);
    for (int c = 0; c < r->n; c++) {
        ech_program_init(&r->program[c], "by hand", l);
        r->borrowed[c] = &r->program[c];
    }
    for (int k = 0; k < l->world; k++) {
        int64_t coord[ECH_N_AXES];
        ech_layout_coords(l, k, coord);
        r->class_of[k] = (int)coord[ECH_AXIS_PP];
    }
    return r;
}

void timed_free(timed_run *r)
{
    for (int c = 0; c < r->n; c++)
        ech_program_fini(&r->program[c]);
    free(r);
}

/* --- ops: the first real is the seconds --- */

static ech_op op_of(ech_op_kind kind, ech_axis axis, int request, double seconds)
{
    const ech_signature sig = ech_signature_read(kind);
    ech_op op = {.kind = kind, .n_args = sig.n, .axis = axis, .request = request};
    op.real[0] = seconds;
    for (int i = 0; i < sig.n; i++)
        op.arg[i] = (ech_operand){.region = ECH_REGION_OUT,
                                  .access = sig.arg[i].access,
                                  .dtype = ECH_F64,
                                  .rank = 1,
                                  .dim = {{1, ECH_EXTENT_BOUND}},
                                  .place = ech_placement_invariant()};
    return op;
}

ech_op timed_kernel(double seconds)
{
    return op_of(ECH_OP_SCALE, ECH_AXIS_DP, 0, seconds);
}

ech_op timed_reduce(ech_axis axis, int request, double seconds)
{
    return op_of(ECH_OP_ALL_REDUCE_START, axis, request, seconds);
}

ech_op timed_reduced(ech_axis axis, int request)
{
    return op_of(ECH_OP_ALL_REDUCE_WAIT, axis, request, 0.0);
}

ech_op timed_send(int peer, int request, double seconds)
{
    ech_op op = op_of(ECH_OP_SEND_START, ECH_AXIS_PP, request, seconds);
    op.attr[0] = ech_expr_const(peer);
    return op;
}

ech_op timed_recv(int peer, int request, double seconds)
{
    ech_op op = op_of(ECH_OP_RECV_START, ECH_AXIS_PP, request, seconds);
    op.attr[0] = ech_expr_const(peer);
    return op;
}

ech_op timed_arrived(int request)
{
    return op_of(ECH_OP_RECV_WAIT, ECH_AXIS_PP, request, 0.0);
}

void timed_add(ech_program *p, ech_role role, ech_segment segment, int n, const ech_op *op)
{
    ech_block b = {.role = role, .name = "by hand"};
    int id;
    for (int i = 0; i < n; i++) {
        assert_ok(ech_grow(&b.op, (size_t)b.n_ops, &b.capacity, sizeof *b.op));
        b.op[b.n_ops++] = op[i];
    }
    assert_ok(ech_program_add_block(p, &b, &id));
    ech_item item = ech_item_make(id, segment);
    item.request = 0;
    assert_ok(ech_program_add_item(p, &item));
}

void timed_repeat(ech_program *p, int n)
{
    const ech_item item = p->item[0];
    for (int i = 0; i < n; i++)
        assert_ok(ech_program_add_item(p, &item));
}

/* --- simulating --- */

static double kernel_s(void *user, const ech_program *p, const ech_item *item, const ech_op *op)
{
    (void)p;
    (void)item;
    ((timed_run *)user)->asked++;
    return op->real[0];
}

static double comm_s(void *user, const ech_layout *l, const ech_op *op, int rank)
{
    (void)user;
    (void)l;
    (void)rank;
    return op->real[0];
}

ech_simulate_spec timed_spec(timed_run *r)
{
    return (ech_simulate_spec){.program = r->borrowed,
                               .n_classes = r->n,
                               .class_of = r->class_of,
                               .costs = {r, kernel_s, comm_s, 0.0}};
}

void timed_check_sums(const ech_step_sums *s)
{
    double total = s->compute_s + s->optimizer_s + s->bubble_s;
    for (int a = 0; a < ECH_N_AXES; a++) {
        assert_true(s->exposed_s[a] >= 0.0);
        total += s->exposed_s[a];
    }
    assert_near(total, s->step_s, 1e-9 * s->step_s);
    assert_near(s->critical_compute_s + s->critical_comm_s, s->step_s, 1e-9 * s->step_s);
    assert_true(s->bubble_s >= 0.0 && s->busiest_s <= s->step_s * (1.0 + 1e-9));
}

ech_step_sums timed_simulate(timed_run *r, ech_timeline *line)
{
    ech_step_sums s;
    const ech_simulate_spec spec = timed_spec(r);
    assert_ok(ech_simulate(&spec, &s, line));
    timed_check_sums(&s);
    return s;
}
