/* RUN: np=1 timeout=30 tags=fast */
/* Plans of shards, and programs written by hand that hold and update them: right ones are accepted,
 * each fault is refused in the right words. */
#include "check.h"
#include "hand.h"
#include "tiny.h"
#include "base/clock.h"
#include "layout/shard.h"
#include "program/cover.h"
#include "program/op_signature.h"

#include <stdlib.h>

/* --- plans --- */

typedef struct planned {
    ech_model model;
    ech_canon canon;
    ech_shard_plan plan;
    ech_layout layout;
} planned;

static planned *plan_model(const ech_model *m, int tp, int dp, int shards,
                           bool is_sequence_parallel)
{
    planned *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->model = *m;
    assert_ok(ech_canon_create(&p->model, &p->canon));
    const ech_shard_spec spec = {.model = &p->model,
                                 .canon = &p->canon,
                                 .tp = tp,
                                 .is_sequence_parallel = is_sequence_parallel,
                                 .shards = shards};
    assert_ok(ech_shard_plan_make(&spec, &p->plan));
    const ech_layout_spec layout = {
        .tp = tp, .cp = 1, .pp = 1, .dp = dp, .kv_share = p->plan.heads.copies};
    assert_ok(ech_layout_make(&layout, &p->layout));
    return p;
}

static planned *plan(tiny_kind kind, int tp, int dp, int shards)
{
    const ech_model m = tiny_model(kind, 0.0);
    return plan_model(&m, tp, dp, shards, true);
}

static void plan_free(planned *p)
{
    ech_canon_fini(&p->canon);
    free(p);
}

static ech_status check_plan(const planned *p)
{
    int64_t looked;
    return ech_cover_check_plan(&p->plan, &p->layout, &looked);
}

static void test_plans_of_all_kinds_cover(void **state)
{
    static const int64_t heads[][2] = {{12, 12}, {12, 4}, {12, 6}, {12, 2}, {12, 1}, {24, 8}};
    static const int tps[] = {1, 2, 3, 4, 6, 12};
    int n = 0;
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int h = 0; h < 6; h++)
            for (int t = 0; t < 6; t++)
                for (int shards = 1; shards <= 3; shards++) {
                    ech_model m = tiny_model((tiny_kind)kind, 0.0);
                    m.heads = heads[h][0];
                    m.kv_heads = heads[h][1];
                    m.ffn = 7 + 6 * kind; /* no tp divides it */
                    planned *p = plan_model(&m, tps[t], shards, shards, shards == 2);
                    assert_ok(check_plan(p));
                    plan_free(p);
                    n++;
                }
    assert_int_equal(n, N_TINY * 6 * 6 * 3);
}

static ech_shard_param *tensor(planned *p, ech_param_kind kind)
{
    for (int i = 0; i < p->plan.n_params; i++)
        if (p->canon.param[p->plan.param[i].param].kind == kind)
            return &p->plan.param[i];
    fail_msg("no tensor of kind %d", (int)kind);
    return NULL;
}

#define REFUSE_PLAN(change, words)                                                                 \
    do {                                                                                           \
        planned *p = plan(TINY_QWEN, 4, 3, 3);                                                     \
        assert_ok(check_plan(p));                                                                  \
        change;                                                                                    \
        assert_fails(check_plan(p), ECH_E_PROOF, (words));                                         \
        plan_free(p);                                                                              \
    } while (0)

static void test_plans_that_do_not_cover(void **state)
{
    (void)state;
    REFUSE_PLAN(tensor(p, ECH_PARAM_DOWN)->offset--, "overlap in their part");
    REFUSE_PLAN(tensor(p, ECH_PARAM_DOWN)->offset = p->plan.unit[1].part[0].elems,
                "'layers.0.mlp.down.weight' leaves its part");
    REFUSE_PLAN(p->plan.unit[1].part[ECH_PART_CUT].decayed -= 1, "wrong side of the decayed");
    REFUSE_PLAN(p->plan.unit[1].part[ECH_PART_CUT].decayed += 1, "wrong side of the decayed");
    REFUSE_PLAN(p->plan.unit[1].part[ECH_PART_CUT].shard -= 1, "is not 3 flat ranges");
    REFUSE_PLAN(tensor(p, ECH_PARAM_DOWN)->dim[1]--,
                "dimension 1 of 'layers.0.mlp.down.weight' is 4 locally, of 20 over tp 4 it must "
                "be 5");
    REFUSE_PLAN(tensor(p, ECH_PARAM_DOWN)->elems--, "local elements");
    REFUSE_PLAN(tensor(p, ECH_PARAM_ATTN_NORM)->part = ECH_PART_CUT,
                "'layers.0.attn_norm.weight' is "
                "whole over tp 4");
    REFUSE_PLAN(tensor(p, ECH_PARAM_DOWN)->cut = ECH_CUT_NONE, "is whole over tp 4, but in part 0");
    REFUSE_PLAN(tensor(p, ECH_PARAM_GATE_UP)->param++, "is planned as tensor");
    REFUSE_PLAN(p->plan.tp = 2, "the plan is for tp 2, the layout has 4");
    REFUSE_PLAN(p->plan.shards = 2, "2 flat ranges");
    REFUSE_PLAN(p->plan.elems[0]++, "part 0 of a rank's model");
    REFUSE_PLAN(p->plan.unit[1].part[ECH_PART_CUT].elems += 3, "flat ranges");
    REFUSE_PLAN(p->canon.param[p->canon.unit_first[2]].dim[0]++, "layer 1 is not like layer 0");
}

static void test_copies_of_heads_stay_in_their_group(void **state)
{
    (void)state; /* 4 heads of 2 groups over 4 ranks: each key and value head twice */
    REFUSE_PLAN(p->layout.degree[ECH_AXIS_KV] = 1,
                "at tp coordinate 1: a copy of a key/value head is outside the kv group");
    REFUSE_PLAN(p->plan.heads.copies = 1, "number of copies");
    REFUSE_PLAN(p->plan.heads.groups = 2, "groups of");
    REFUSE_PLAN(tensor(p, ECH_PARAM_QKV)->dim[1]--;
                tensor(p, ECH_PARAM_QKV)->elems -= 72, "query heads locally");
}

/* --- programs --- */

typedef enum style {
    EVERYWHERE, /* weights, gradients and moments whole on every dp rank */
    STATE,      /* gradients dealt out, moments and update likewise, weights gathered in place */
    ALL         /* weights dealt out too, gathered before every use */
} style;

typedef struct made {
    planned *pl;
    style style;
    ech_program p;
    int weights, grads, grad_shards, moments, sink, whole;
    int n_requests;
    /* first items and blocks of interest */
    int forward[8], backward[8], update[8][ECH_N_PARTS];
} made;

static const ech_region param_region[] = {ECH_REGION_PARAM, ECH_REGION_PARAM_SUMMED,
                                          ECH_REGION_PARAM_WHOLE, ECH_REGION_PARAM_TIED};
static const ech_region grad_region[] = {ECH_REGION_GRAD, ECH_REGION_GRAD_SUMMED,
                                         ECH_REGION_GRAD_WHOLE, ECH_REGION_GRAD_TIED};

enum { TOKENS = 3 };

static ech_operand operand(ech_region region, int64_t first, int64_t d0, int64_t d1)
{
    ech_operand a = {.region = region,
                     .dtype = ECH_F64,
                     .offset = 8 * (size_t)first,
                     .rank = d1 ? 2 : 1,
                     .dim = {{d0, ECH_EXTENT_BOUND}, {d1, ECH_EXTENT_BOUND}},
                     .place = ech_placement_invariant()};
    return a;
}

static ech_op *emit(ech_block *b, ech_op_kind kind, int n, const ech_operand *arg)
{
    const ech_signature sig = ech_signature_read(kind);
    assert_int_equal(sig.n, n);
    assert_ok(ech_grow(&b->op, (size_t)b->n_ops, &b->capacity, sizeof *b->op));
    ech_op *op = &b->op[b->n_ops++];
    *op = (ech_op){.kind = kind, .n_args = n, .axis = ECH_AXIS_DP};
    for (int i = 0; i < n; i++) {
        op->arg[i] = arg[i];
        op->arg[i].access = sig.arg[i].access;
        const size_t ranks = arg[i].shift.bytes ? 3 : 1;
        const size_t end =
            arg[i].offset + ech_operand_bytes(&arg[i]) + (ranks - 1) * arg[i].shift.bytes;
        if (arg[i].region != ECH_REGION_NONE && end > b->region_bytes[arg[i].region])
            b->region_bytes[arg[i].region] = end;
    }
    return op;
}

#define EMIT(b, kind, ...)                                                                         \
    emit((b), (kind), (int)(sizeof((ech_operand[]){__VA_ARGS__}) / sizeof(ech_operand)),           \
         (ech_operand[]){__VA_ARGS__})

static int64_t unit_elems(const made *m, int unit, int part)
{
    return ech_shard_unit_of(&m->pl->plan, unit)->part[part].elems;
}

/* Where a unit's part begins in a slab of everything, or of one share of it. */
static size_t base(const made *m, int unit, int part, bool is_share)
{
    int64_t at = ech_shard_unit_offset(&m->pl->plan, unit, (ech_part)part);
    for (int q = 0; q < part; q++)
        at += m->pl->plan.elems[q];
    return 8 * (size_t)(is_share ? at / m->pl->plan.shards : at);
}

static int add_item(made *m, ech_block *b, ech_role role, ech_item it)
{
    int id;
    b->role = role;
    assert_ok(ech_program_add_block(&m->p, b, &id));
    it.block = id;
    assert_ok(ech_program_add_item(&m->p, &it));
    return m->p.n_items - 1;
}

/* Everything that a block may bind. */
static ech_item item_of(const made *m, int unit)
{
    const int n = m->pl->canon.n_units;
    ech_item it = ech_item_make(0, ECH_SEGMENT_ACCUMULATE);
    it.layer = unit > 0 && unit < n - 1 ? unit - 1 : -1;
    it.micro = 0;
    for (int part = 0; part < ECH_N_PARTS; part++) {
        it.bind[param_region[part]] = (ech_view){m->whole, base(m, unit, part, false)};
        it.bind[grad_region[part]] = (ech_view){m->grads, base(m, unit, part, false)};
    }
    it.bind[ECH_REGION_TIED] = (ech_view){m->whole, base(m, 0, 0, false)};
    it.bind[ECH_REGION_TIED_GRAD] = (ech_view){m->grads, base(m, 0, 0, false)};
    it.bind[ECH_REGION_OUT] = it.bind[ECH_REGION_DATA] = (ech_view){m->sink, 0};
    return it;
}

static ech_expr first_row(const made *m, int64_t rows)
{
    if (m->pl->plan.tp == 1)
        return ech_expr_const(0);
    return ech_expr_binary(ECH_EXPR_MUL, ech_expr_const(rows), ech_expr_coord(ECH_AXIS_TP));
}

static const ech_param *canonical(const made *m, int i)
{
    return &m->pl->canon.param[m->pl->plan.param[i].param];
}

static ech_operand ids(void)
{
    ech_operand a = operand(ECH_REGION_DATA, 0, TOKENS, 0);
    a.dtype = ECH_I32;
    return a;
}

/* Reads of every tensor of a unit; tables of the vocabulary through the ops that take rows. */
static void forward(made *m, int unit)
{
    const ech_shard_unit *u = ech_shard_unit_of(&m->pl->plan, unit);
    const int last = m->pl->canon.n_units - 1;
    ech_block b = {.name = "forward"};
    for (int i = u->first; i < u->first + u->n; i++) {
        const ech_shard_param *t = &m->pl->plan.param[i];
        const ech_region region = param_region[t->part];
        if (canonical(m, i)->kind == ECH_PARAM_TOKEN_EMBED)
            EMIT(&b, ECH_OP_EMBED, ids(), operand(region, t->offset, t->dim[0], t->dim[1]),
                 operand(ECH_REGION_OUT, 0, TOKENS, t->dim[1]))
                ->attr[0] = first_row(m, t->dim[0]);
        else
            (void)EMIT(&b, ECH_OP_COPY, operand(region, t->offset, t->elems, 0),
                       operand(ECH_REGION_OUT, 0, t->elems, 0));
    }
    if (unit == last) {
        const bool is_tied = m->pl->model.tie_embeddings;
        const ech_shard_param *t =
            ech_shard_find(&m->pl->plan, is_tied ? ECH_PARAM_TOKEN_EMBED : ECH_PARAM_HEAD);
        if (is_tied)
            (void)EMIT(&b, ECH_OP_COPY, operand(ECH_REGION_TIED, t->offset, t->elems, 0),
                       operand(ECH_REGION_OUT, 0, t->elems, 0));
        ech_operand parts = operand(ECH_REGION_OUT, 0, 1, 2);
        parts.rank = 3;
        parts.dim[2] = (ech_dim){TOKENS, ECH_EXTENT_BOUND};
        ech_op *op = EMIT(&b, ECH_OP_XENT_SHARD, operand(ECH_REGION_OUT, 0, TOKENS, t->dim[0]),
                          ids(), parts);
        op->attr[0] = ech_expr_const(m->pl->model.vocab);
        op->attr[1] = first_row(m, t->dim[0]);
    }
    m->forward[unit] = add_item(m, &b, ECH_ROLE_FORWARD, item_of(m, unit));
}

static void backward(made *m, int unit)
{
    const ech_shard_unit *u = ech_shard_unit_of(&m->pl->plan, unit);
    ech_block b = {.name = "backward"};
    for (int i = u->first; i < u->first + u->n; i++) {
        const ech_shard_param *t = &m->pl->plan.param[i];
        const ech_region region = grad_region[t->part];
        if (canonical(m, i)->kind == ECH_PARAM_TOKEN_EMBED)
            EMIT(&b, ECH_OP_EMBED_BACKWARD, ids(), operand(ECH_REGION_OUT, 0, TOKENS, t->dim[1]),
                 operand(region, t->offset, t->dim[0], t->dim[1]))
                ->attr[0] = first_row(m, t->dim[0]);
        else
            (void)EMIT(&b, ECH_OP_BIAS_BACKWARD, operand(ECH_REGION_OUT, 0, TOKENS, t->elems),
                       operand(region, t->offset, t->elems, 0));
    }
    if (unit == m->pl->canon.n_units - 1 && m->pl->model.tie_embeddings) {
        const ech_shard_param *t = ech_shard_find(&m->pl->plan, ECH_PARAM_TOKEN_EMBED);
        (void)EMIT(&b, ECH_OP_BIAS_BACKWARD, operand(ECH_REGION_OUT, 0, TOKENS, t->elems),
                   operand(ECH_REGION_TIED_GRAD, t->offset, t->elems, 0));
    }
    m->backward[unit] = add_item(m, &b, ECH_ROLE_BACKWARD, item_of(m, unit));
}

static ech_operand dealt(ech_operand a, int64_t elems)
{
    a.shift = (ech_shift){ECH_AXIS_DP, 8 * (size_t)elems};
    return a;
}

static void add_pair(made *m, ech_op_kind start, ech_op_kind wait, const ech_operand arg[3],
                     ech_item it)
{
    ech_block b[2] = {{.name = "start"}, {.name = "wait"}};
    const int n = ech_signature_read(start).n;
    it.request = m->n_requests++;
    (void)emit(&b[0], start, n, arg);
    (void)emit(&b[1], wait, n, arg);
    (void)add_item(m, &b[0], ECH_ROLE_TRANSFER, it);
    (void)add_item(m, &b[1], ECH_ROLE_TRANSFER, it);
}

/* Weights of a unit from their shares: in place (STATE), or from another slot (ALL). */
static void gather(made *m, int unit)
{
    for (int part = 0; part < ECH_N_PARTS; part++) {
        const int64_t all = unit_elems(m, unit, part);
        const int64_t share = all / m->pl->plan.shards;
        ech_item it = item_of(m, unit);
        if (!all)
            continue;
        it.bind[ECH_REGION_SHARD] = (ech_view){m->weights, base(m, unit, part, true)};
        const ech_operand whole = operand(param_region[part], 0, all, 0);
        const ech_operand in_place = dealt(operand(param_region[part], 0, share, 0), share);
        const ech_operand arg[3] = {
            m->style == ALL ? operand(ECH_REGION_SHARD, 0, share, 0) : in_place, whole};
        add_pair(m, ECH_OP_ALL_GATHER_START, ECH_OP_ALL_GATHER_WAIT, arg, it);
    }
}

static void reduce(made *m, int unit)
{
    for (int part = 0; part < ECH_N_PARTS; part++) {
        const int64_t all = unit_elems(m, unit, part);
        const int64_t share = all / m->pl->plan.shards;
        ech_item it = item_of(m, unit);
        if (!all)
            continue;
        it.bind[ECH_REGION_SHARD] = (ech_view){m->grad_shards, base(m, unit, part, true)};
        const ech_operand arg[3] = {operand(grad_region[part], 0, all, 0),
                                    m->style == EVERYWHERE ? operand(ECH_REGION_OUT, 0, 1, 0)
                                                           : operand(ECH_REGION_SHARD, 0, share, 0),
                                    operand(ECH_REGION_OUT, 0, 1, 0)};
        if (m->style == EVERYWHERE)
            add_pair(m, ECH_OP_ALL_REDUCE_START, ECH_OP_ALL_REDUCE_WAIT, arg, it);
        else
            add_pair(m, ECH_OP_REDUCE_SCATTER_START, ECH_OP_REDUCE_SCATTER_WAIT, arg, it);
    }
}

static void update(made *m, int unit)
{
    for (int part = 0; part < ECH_N_PARTS; part++) {
        const ech_shard_part *s = &ech_shard_unit_of(&m->pl->plan, unit)->part[part];
        const int64_t n = s->elems / m->pl->plan.shards;
        ech_item it = item_of(m, unit);
        ech_block b = {.name = "update"};
        if (!n)
            continue;
        it.bind[ECH_REGION_MOMENT] = (ech_view){m->moments, 2 * base(m, unit, part, true)};
        it.bind[ECH_REGION_SHARD] = (ech_view){m->grad_shards, base(m, unit, part, true)};
        it.bind[ECH_REGION_SCALARS] = (ech_view){m->sink, 0};
        ech_operand p = operand(param_region[part], 0, n, 0);
        ech_operand g = operand(grad_region[part], 0, n, 0);
        if (m->style == STATE)
            p = dealt(p, n);
        if (m->style != EVERYWHERE)
            g = operand(ECH_REGION_SHARD, 0, n, 0);
        if (m->style == ALL)
            it.bind[param_region[part]] = (ech_view){m->weights, base(m, unit, part, true)};
        const ech_operand lr = operand(ECH_REGION_SCALARS, ECH_CELL_LR, 1, 0);
        const ech_operand clip = operand(ECH_REGION_SCALARS, ECH_CELL_CLIP, 1, 0);
        ech_operand count = operand(ECH_REGION_SCALARS, ECH_CELL_UPDATES, 1, 0);
        count.dtype = ECH_I64;
        ech_op *op = EMIT(&b, ECH_OP_ADAMW, p, g, operand(ECH_REGION_MOMENT, 0, n, 0),
                          operand(ECH_REGION_MOMENT, n, n, 0), lr, clip, count);
        op->real[3] = 0.1;
        op->attr[0] = ech_expr_const(0);
        if (m->style != EVERYWHERE)
            op->attr[0] =
                ech_expr_binary(ECH_EXPR_MUL, ech_expr_const(n), ech_expr_coord(ECH_AXIS_DP));
        op->attr[1] = ech_expr_const(s->decayed);
        m->update[unit][part] = add_item(m, &b, ECH_ROLE_UPDATE, it);
    }
}

/* Two micro-batches, then reductions and updates. */
static made *make(tiny_kind kind, int tp, style how)
{
    made *m = calloc(1, sizeof *m);
    const ech_placement whole = ech_placement_invariant();
    assert_non_null(m);
    m->style = how;
    m->pl = plan(kind, tp, 3, how == EVERYWHERE ? 1 : 3);
    const int units = m->pl->canon.n_units;
    const int64_t all = m->pl->plan.elems[0] + m->pl->plan.elems[1] + m->pl->plan.elems[2];
    const int64_t share = all / m->pl->plan.shards;
    ech_program_init(&m->p, "hand-written", &m->pl->layout);
    m->weights = hand_slot(&m->p, "weights", true, how == ALL ? share : all, whole);
    m->grad_shards = hand_slot(&m->p, "grad shards", true, share, whole);
    m->moments = hand_slot(&m->p, "moments", true, 2 * share, whole);
    m->grads = hand_slot(&m->p, "grads", true, all, whole);
    m->sink = hand_slot(&m->p, "sink", true, TOKENS * all, whole);
    m->whole = how == ALL ? hand_slot(&m->p, "gathered", false, all, whole) : m->weights;
    for (int micro = 0; micro < 2; micro++) {
        for (int unit = 0; unit < units; unit++) {
            if (how == ALL)
                gather(m, unit);
            forward(m, unit);
        }
        for (int unit = units - 1; unit >= 0; unit--) {
            if (how == ALL)
                gather(m, unit);
            backward(m, unit);
        }
    }
    for (int unit = 0; unit < units; unit++) {
        reduce(m, unit);
        update(m, unit);
        if (how == STATE)
            gather(m, unit);
    }
    return m;
}

static void made_free(made *m)
{
    ech_program_fini(&m->p);
    plan_free(m->pl);
    free(m);
}

static ech_status check(const made *m)
{
    int64_t looked;
    const ech_program *p = &m->p;
    const ech_shard_plan *one = &m->pl->plan;
    const ech_cover_spec spec = {&p, &one, 1, NULL};
    return ech_cover_check_run(&spec, &looked);
}

static void test_programs_of_all_styles_cover(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int tp = 1; tp <= 4; tp++)
            for (int how = 0; how < 3; how++) {
                if (tiny_model((tiny_kind)kind, 0.0).heads % tp)
                    continue;
                made *m = make((tiny_kind)kind, tp, (style)how);
                assert_ok(check_plan(m->pl));
                assert_ok(check(m));
                made_free(m);
            }
}

/* The first op of an item, of this item alone. */
static ech_op *first_op(made *m, int item)
{
    return &m->p.block[m->p.item[item].block].op[0];
}

static ech_item *at(made *m, int item)
{
    return &m->p.item[item];
}

static ech_op *op_of_kind(made *m, int item, ech_op_kind kind)
{
    ech_block *b = &m->p.block[m->p.item[item].block];
    for (int k = 0; k < b->n_ops; k++)
        if (b->op[k].kind == kind)
            return &b->op[k];
    fail_msg("no op %s in item %d", ech_op_name(kind), item);
    return NULL;
}

static void resize(ech_op *op, int64_t elems)
{
    for (int i = 0; i < 4; i++)
        op->arg[i].dim[0].bound = elems;
}

#define REFUSE(kind, tp, how, change, words)                                                       \
    do {                                                                                           \
        made *m = make((kind), (tp), (how));                                                       \
        assert_ok(check(m));                                                                       \
        change;                                                                                    \
        assert_fails(check(m), ECH_E_PROOF, (words));                                              \
        made_free(m);                                                                              \
    } while (0)

static void test_updates_with_holes_and_overlaps(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        const style s = (style)how;
        REFUSE(TINY_LLAMA, 2, s, ech_op *op = first_op(m, m->update[1][0]);
               resize(op, op->arg[0].dim[0].bound - 12),
               "of the weights of layer 0 (part cut) are never updated");
        REFUSE(TINY_LLAMA, 2, s, first_op(m, m->update[2][0])->kind = ECH_OP_COPY,
               "of the weights of layer 1 (part cut) are never updated, last is nothing");
        REFUSE(TINY_LLAMA, 2, s, ech_item again = *at(m, m->update[1][1]);
               assert_ok(ech_program_add_item(&m->p, &again)),
               "of the weights of layer 0 (part summed) are updated twice, again by item");
    }
    /* shares that lie on each other: the gradient's are where they belong, the weights' are not */
    REFUSE(TINY_LLAMA, 2, STATE, first_op(m, m->update[1][0])->arg[0].shift.bytes -= 8,
           "argument 1: bytes");
    REFUSE(TINY_LLAMA, 2, EVERYWHERE, ech_op *op = first_op(m, m->update[1][0]);
           resize(op, op->arg[0].dim[0].bound / 2); op->arg[0] = dealt(op->arg[0], 1);
           op->arg[1] = dealt(op->arg[1], 1),
           "of the weights of layer 0 (part cut) are updated twice");
}

static void test_updates_of_other_elements(void **state)
{
    (void)state;
    REFUSE(TINY_LLAMA, 2, EVERYWHERE, first_op(m, m->update[1][1])->arg[1].offset += 8,
           "argument 1: bytes");
    REFUSE(TINY_LLAMA, 2, STATE,
           at(m, m->update[1][0])->bind[ECH_REGION_SHARD].offset =
               at(m, m->update[2][0])->bind[ECH_REGION_SHARD].offset,
           "argument 1: no block has written it as a gradient"); /* not reduced yet */
    REFUSE(TINY_LLAMA, 2, STATE,
           at(m, m->update[2][0])->bind[ECH_REGION_SHARD].offset =
               at(m, m->update[1][0])->bind[ECH_REGION_SHARD].offset,
           "of 'grad shards' are gradient of layer 0 (part cut), here they are gradient of layer 1 "
           "(part cut)");
    REFUSE(TINY_LLAMA, 2, ALL,
           at(m, m->update[2][0])->bind[ECH_REGION_MOMENT].offset =
               at(m, m->update[1][0])->bind[ECH_REGION_MOMENT].offset,
           "of 'moments' are first moments of layer 0 (part cut), here they are first moments of "
           "layer 1");
    REFUSE(TINY_LLAMA, 2, ALL, first_op(m, m->update[1][0])->arg[2].offset += 8,
           "of 'moments' are first moments of layer 0 (part cut), here they are second moments");
    REFUSE(TINY_LLAMA, 2, EVERYWHERE,
           first_op(m, m->update[1][0])->arg[0] = first_op(m, m->update[1][0])->arg[1],
           "argument 0: no block reads it as a weight");
}

static void test_elements_that_decay(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        const style s = (style)how;
        REFUSE(TINY_GPT2, 3, s, first_op(m, m->update[1][0])->attr[1].node[0].value--,
               "elements decay, it should be");
        REFUSE(TINY_GPT2, 3, s, first_op(m, m->update[0][0])->attr[1].node[0].value++,
               "at dp coordinate 0 the first 1 of its");
        REFUSE(TINY_GPT2, 3, s, first_op(m, m->update[1][0])->attr[1] = ech_expr_coord(ECH_AXIS_TP),
               "what decays depends on another axis");
    }
    REFUSE(TINY_GPT2, 3, STATE, first_op(m, m->update[1][0])->attr[0] = ech_expr_const(0),
           "elements decay, it should be"); /* as if every rank had the first range */
}

static void test_blocks_read_one_place(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        const style s = (style)how;
        REFUSE(TINY_LLAMA, 2, s,
               at(m, m->forward[2])->bind[ECH_REGION_PARAM].offset =
                   at(m, m->forward[1])->bind[ECH_REGION_PARAM].offset,
               "are weights of layer 0 (part cut), here they are weights of layer 1 (part cut)");
        REFUSE(TINY_LLAMA, 2, s, first_op(m, m->forward[1])->arg[0].offset += 8,
               "no tensor of this unit and part begins there");
        REFUSE(TINY_LLAMA, 2, s, at(m, m->backward[1])->bind[ECH_REGION_GRAD_SUMMED].offset += 8,
               "are gradient of layer 0 (part summed), but other elements of them");
        REFUSE(TINY_LLAMA, 2, s, at(m, m->forward[1])->layer = 7, "the model has no such unit");
    }
    /* a second copy of a layer's weights, which no update changes */
    REFUSE(TINY_LLAMA, 2, EVERYWHERE,
           at(m, m->forward[1])->bind[ECH_REGION_PARAM] = ((ech_view){m->sink, 0}),
           "an earlier block has this unit's weights at another place");
}

static void leave_out(made *m, int unit, bool is_backward)
{
    const int item = is_backward ? m->backward[unit] : m->forward[unit];
    for (int i = 0; i <= item; i++) /* of both micro-batches */
        if (m->p.item[i].layer == unit - 1 &&
            strcmp(m->p.block[m->p.item[i].block].name, is_backward ? "backward" : "forward") == 0)
            m->p.block[m->p.item[i].block].n_ops--;
}

static void test_tensors_that_no_block_uses(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        const style s = (style)how;
        REFUSE(TINY_LLAMA, 2, s, leave_out(m, 2, false),
               "'layers.1.mlp.down.weight' is read by no block");
        REFUSE(TINY_LLAMA, 2, s, leave_out(m, 2, true),
               "the gradient of 'layers.1.mlp.down.weight' is written by no block");
    }
}

static void test_both_users_of_a_table_take_the_same_rows(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        const style s = (style)how;
        REFUSE(TINY_TIED_LLAMA, 4, s,
               op_of_kind(m, m->forward[3], ECH_OP_XENT_SHARD)->attr[1] = ech_expr_const(0),
               "at tp coordinate 1 its first row is 0, the table's there is 32");
        REFUSE(TINY_TIED_LLAMA, 4, s,
               op_of_kind(m, m->forward[0], ECH_OP_EMBED)->attr[0].node[0].value--,
               "at tp coordinate 1 its first row is 31, the table's there is 32");
        REFUSE(TINY_TIED_LLAMA, 4, s,
               op_of_kind(m, m->backward[0], ECH_OP_EMBED_BACKWARD)->attr[0] =
                   ech_expr_coord(ECH_AXIS_DP),
               "its first row depends on another axis than tp");
        REFUSE(TINY_TIED_LLAMA, 4, s,
               op_of_kind(m, m->forward[3], ECH_OP_XENT_SHARD)->arg[0].dim[1].bound = 31,
               "it takes another number of rows than the table has");
        /* one row further in memory */
        REFUSE(TINY_TIED_LLAMA, 4, s, at(m, m->forward[3])->bind[ECH_REGION_TIED].offset += 8 * 12,
               "are weights of embedding (part cut), but other elements of them than here");
    }
}

/* Layer 0 is gathered from layer 1's shares. */
static void gather_another_layer(made *m)
{
    for (int k = 0; k < m->forward[1]; k++) {
        ech_view *v = &at(m, k)->bind[ECH_REGION_SHARD];
        if (at(m, k)->layer == 0 && v->slot == m->weights)
            v->offset = base(m, 2, 0, true);
    }
}

static void test_shares_are_neighbours(void **state)
{
    (void)state;
    REFUSE(TINY_LLAMA, 2, STATE, int k = m->update[1][1] + 2; /* the wait of the gather of part 0 */
           m->p.block[m->p.item[k].block].op[0].arg[0].shift.bytes -= 8,
           "the shares that it gathers are no neighbours");
    REFUSE(TINY_LLAMA, 2, ALL, gather_another_layer(m), "of 'weights' are weights of layer 0");
}

/* A program without updates: its blocks alone. */
static void test_evaluation(void **state)
{
    made *m = make(TINY_LLAMA, 2, ALL);
    (void)state;
    for (int i = 0; i < m->p.n_blocks; i++)
        if (m->p.block[i].role == ECH_ROLE_UPDATE || m->p.block[i].role == ECH_ROLE_BACKWARD)
            m->p.block[i].n_ops = 0;
    assert_ok(check(m));
    leave_out(m, 1, false);
    assert_fails(check(m), ECH_E_PROOF, "is read by no block");
    made_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_of_all_kinds_cover),
        cmocka_unit_test(test_plans_that_do_not_cover),
        cmocka_unit_test(test_copies_of_heads_stay_in_their_group),
        cmocka_unit_test(test_programs_of_all_styles_cover),
        cmocka_unit_test(test_updates_with_holes_and_overlaps),
        cmocka_unit_test(test_updates_of_other_elements),
        cmocka_unit_test(test_elements_that_decay),
        cmocka_unit_test(test_blocks_read_one_place),
        cmocka_unit_test(test_tensors_that_no_block_uses),
        cmocka_unit_test(test_both_users_of_a_table_take_the_same_rows),
        cmocka_unit_test(test_shares_are_neighbours),
        cmocka_unit_test(test_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
