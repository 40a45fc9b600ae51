/* RUN: np=1 timeout=30 tags=fast */
/* What the classes of a pipeline hold and use together, in programs written by hand. */
#include "check.h"
#include "hand.h"
#include "tiny.h"
#include "program/cover.h"
#include "program/op_signature.h"

#include <stdlib.h>

enum { MOST_RANKS = 4, DP = 2 };

/* A pipeline: plan, program and slots of each class. */
typedef struct pipe {
    ech_model model;
    ech_canon canon;
    ech_layout layout;
    ech_stages stages;
    int n;
    ech_shard_plan plan[MOST_RANKS];
    ech_program program[MOST_RANKS];
    const ech_shard_plan *plans[MOST_RANKS];
    const ech_program *programs[MOST_RANKS];
    int weights[ECH_N_PARTS], grads[ECH_N_PARTS], sink; /* slots, alike in all classes */
    int class_of[MOST_RANKS * DP];
} pipe;

static const ech_region param_region[] = {ECH_REGION_PARAM, ECH_REGION_PARAM_SUMMED,
                                          ECH_REGION_PARAM_WHOLE, ECH_REGION_PARAM_TIED};
static const ech_region grad_region[] = {ECH_REGION_GRAD, ECH_REGION_GRAD_SUMMED,
                                         ECH_REGION_GRAD_WHOLE, ECH_REGION_GRAD_TIED};

static ech_operand operand(ech_region region, int64_t first, int64_t d0, int64_t d1)
{
    return (ech_operand){.region = region,
                         .dtype = ECH_F64,
                         .offset = 8 * (size_t)first,
                         .rank = d1 ? 2 : 1,
                         .dim = {{d0, ECH_EXTENT_BOUND}, {d1, ECH_EXTENT_BOUND}},
                         .place = ech_placement_invariant()};
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
    }
    return op;
}

#define EMIT(b, kind, ...)                                                                         \
    emit((b), (kind), (int)(sizeof((ech_operand[]){__VA_ARGS__}) / sizeof(ech_operand)),           \
         (ech_operand[]){__VA_ARGS__})

static void add_item(pipe *p, int c, ech_block *b, ech_role role, int unit)
{
    int id;
    b->role = role;
    assert_ok(ech_program_add_block(&p->program[c], b, &id));
    ech_item it = ech_item_make(id, ECH_SEGMENT_ACCUMULATE);
    it.layer = unit > 0 && unit < p->canon.n_units - 1 ? unit - 1 : -1;
    for (int part = 0; part < ECH_N_PARTS; part++) {
        const size_t at = 8 * (size_t)ech_shard_unit_offset(&p->plan[c], unit, (ech_part)part);
        it.bind[param_region[part]] = (ech_view){p->weights[part], at};
        it.bind[grad_region[part]] = (ech_view){p->grads[part], at};
    }
    it.bind[ECH_REGION_TIED] = (ech_view){p->weights[0], 0};
    it.bind[ECH_REGION_TIED_GRAD] = (ech_view){p->grads[0], 0};
    it.bind[ECH_REGION_OUT] = it.bind[ECH_REGION_DATA] = (ech_view){p->sink, 0};
    assert_ok(ech_program_add_item(&p->program[c], &it));
}

/* A block that reads every tensor of a unit, or adds to its gradient; the embedding's takes rows. */
static void use(pipe *p, int c, int unit, bool is_backward)
{
    const ech_shard_unit *u = ech_shard_unit_of(&p->plan[c], unit);
    const ech_region *region = is_backward ? grad_region : param_region;
    ech_block b = {.name = "unit"};
    for (int i = u->first; i < u->first + u->n; i++) {
        const ech_shard_param *t = &p->plan[c].param[i];
        const bool is_table = unit == 0 && p->canon.param[t->param].kind == ECH_PARAM_TOKEN_EMBED;
        ech_operand ids = operand(ECH_REGION_DATA, 0, 1, 0);
        ids.dtype = ECH_I32;
        if (is_table && is_backward)
            (void)EMIT(&b, ECH_OP_EMBED_BACKWARD, ids, operand(ECH_REGION_OUT, 0, 1, t->dim[1]),
                       operand(region[t->part], t->offset, t->dim[0], t->dim[1]));
        else if (is_table)
            (void)EMIT(&b, ECH_OP_EMBED, ids,
                       operand(region[t->part], t->offset, t->dim[0], t->dim[1]),
                       operand(ECH_REGION_OUT, 0, 1, t->dim[1]));
        else if (is_backward)
            (void)EMIT(&b, ECH_OP_BIAS_BACKWARD, operand(ECH_REGION_OUT, 0, 1, t->elems),
                       operand(region[t->part], t->offset, t->elems, 0));
        else
            (void)EMIT(&b, ECH_OP_COPY, operand(region[t->part], t->offset, t->elems, 0),
                       operand(ECH_REGION_OUT, 0, t->elems, 0));
    }
    const bool borrows =
        unit == p->canon.n_units - 1 && p->model.tie_embeddings && !p->plan[c].is_tied_apart;
    const ech_shard_param *t = ech_shard_find(&p->plan[c], ECH_PARAM_TOKEN_EMBED);
    if (borrows && is_backward)
        (void)EMIT(&b, ECH_OP_BIAS_BACKWARD, operand(ECH_REGION_OUT, 0, 1, t->elems),
                   operand(ECH_REGION_TIED_GRAD, t->offset, t->elems, 0));
    else if (borrows)
        (void)EMIT(&b, ECH_OP_COPY, operand(ECH_REGION_TIED, t->offset, t->elems, 0),
                   operand(ECH_REGION_OUT, 0, t->elems, 0));
    add_item(p, c, &b, is_backward ? ECH_ROLE_BACKWARD : ECH_ROLE_FORWARD, unit);
}

static bool is_copy(const pipe *p, int unit, int part)
{
    return part == ECH_PART_TIED && unit == p->canon.n_units - 1;
}

static void update(pipe *p, int c, int unit)
{
    ech_block norm = {.name = "norm"};
    ech_block b = {.name = "update"};
    for (int part = 0; part < ECH_N_PARTS; part++) {
        const ech_shard_part *s = &ech_shard_unit_of(&p->plan[c], unit)->part[part];
        if (!s->elems)
            continue;
        ech_operand sum = operand(ECH_REGION_OUT, 0, ECH_SUMSQ_WORDS, 0);
        sum.dtype = ECH_I64;
        ech_operand none = {.region = ECH_REGION_NONE};
        const ech_operand cell = operand(ECH_REGION_OUT, 0, 1, 0);
        const ech_operand g = operand(grad_region[part], 0, s->elems, 0);
        if (!is_copy(p, unit, part))
            (void)EMIT(&norm, ECH_OP_SUMSQ, g, sum, none);
        EMIT(&b, ECH_OP_SGD, operand(param_region[part], 0, s->elems, 0), g, cell, cell)->attr[1] =
            ech_expr_const(s->decayed);
        b.op[b.n_ops - 1].real[0] = 0.1;
    }
    if (norm.n_ops)
        add_item(p, c, &norm, ECH_ROLE_HOST_SCALARS, unit);
    add_item(p, c, &b, ECH_ROLE_UPDATE, unit);
}

/* Virtual stage s of `stages` on pipeline rank s % ranks, of units as even as may be. */
static pipe *pipe_make(tiny_kind kind, int ranks, int stages)
{
    pipe *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->model = tiny_model(kind, 0.0);
    p->model.tie_embeddings = kind == TINY_GPT2;
    assert_ok(ech_canon_create(&p->model, &p->canon));
    p->n = ranks;
    p->stages = (ech_stages){.ranks = ranks, .n = stages};
    p->stages.first = calloc((size_t)stages + 1, sizeof *p->stages.first);
    p->stages.rank_of = calloc((size_t)stages, sizeof *p->stages.rank_of);
    for (int s = 0; s <= stages; s++) {
        const int cut = s * p->canon.n_units / stages; /* the ends hold embedding and head */
        const int last = p->canon.n_units - 1;
        p->stages.first[s] = s == 0 ? 0 : s == stages ? last + 1 : cut < 1 ? 1 : cut;
        if (s < stages)
            p->stages.rank_of[s] = s % ranks;
    }
    const bool is_apart = p->model.tie_embeddings && (stages - 1) % ranks;
    const ech_layout_spec layout = {.tp = 1,
                                    .cp = 1,
                                    .pp = ranks,
                                    .dp = DP,
                                    .tied = {0, is_apart ? (stages - 1) % ranks : 0},
                                    .kv_share = 1};
    assert_ok(ech_layout_make(&layout, &p->layout));
    for (int r = 0; r < p->layout.world; r++) {
        int64_t coord[ECH_N_AXES];
        ech_layout_coords(&p->layout, r, coord);
        p->class_of[r] = (int)coord[ECH_AXIS_PP];
    }
    for (int c = 0; c < ranks; c++) {
        const ech_placement whole = ech_placement_invariant();
        const ech_shard_spec spec = {.model = &p->model,
                                     .canon = &p->canon,
                                     .tp = 1,
                                     .shards = 1,
                                     .stages = &p->stages,
                                     .stage_rank = c};
        p->plans[c] = &p->plan[c];
        p->programs[c] = &p->program[c];
        assert_ok(ech_shard_plan_make(&spec, &p->plan[c]));
        ech_program_init(&p->program[c], "stage", &p->layout);
        const int units = ech_shard_unit_count(&p->plan[c]);
        const bool has_copy = ech_shard_has_unit(&p->plan[c], p->canon.n_units - 1);
        int64_t all = 1;
        for (int part = 0; part < ECH_N_PARTS; part++)
            all += p->plan[c].elems[part];
        for (int part = 0; part < ECH_N_PARTS; part++) {
            p->weights[part] = hand_slot(&p->program[c], "weights", true, all, whole);
            p->grads[part] = hand_slot(&p->program[c], "grads", true, all, whole);
            p->program[c].slot[p->weights[part]].is_copy =
                p->program[c].slot[p->grads[part]].is_copy =
                    is_apart && has_copy && part == ECH_PART_TIED;
        }
        p->sink = hand_slot(&p->program[c], "sink", true, all + ECH_SUMSQ_WORDS, whole);
        for (int i = 0; i < units; i++)
            use(p, c, ech_shard_unit_at(&p->plan[c], i), false);
        for (int i = units - 1; i >= 0; i--)
            use(p, c, ech_shard_unit_at(&p->plan[c], i), true);
        for (int i = 0; i < units; i++)
            update(p, c, ech_shard_unit_at(&p->plan[c], i));
    }
    return p;
}

static void pipe_free(pipe *p)
{
    for (int c = 0; c < p->n; c++)
        ech_program_fini(&p->program[c]);
    ech_stages_fini(&p->stages);
    ech_canon_fini(&p->canon);
    free(p);
}

static ech_status check(const pipe *p)
{
    int64_t looked;
    const ech_cover_spec spec = {p->programs, p->plans, p->n, p->class_of};
    return ech_cover_check_run(&spec, &looked);
}

static void test_pipelines_cover(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
            for (int stages = ranks; stages <= 2 * ranks + 1; stages++) {
                pipe *p = pipe_make((tiny_kind)kind, ranks, stages);
                assert_ok(check(p));
                pipe_free(p);
            }
}

/* A fault put into a pipeline of two stages; with the tied table apart. */
#define REFUSE(change, words)                                                                      \
    do {                                                                                           \
        pipe *p = pipe_make(TINY_GPT2, 2, 2);                                                      \
        assert_ok(check(p));                                                                       \
        change;                                                                                    \
        assert_fails(check(p), ECH_E_PROOF, (words));                                              \
        pipe_free(p);                                                                              \
    } while (0)

/* Of a class's items the first whose block has such a name. */
static int item_of(const pipe *p, int c, const char *name, int layer)
{
    for (int i = 0; i < p->program[c].n_items; i++)
        if (!strcmp(p->program[c].block[p->program[c].item[i].block].name, name) &&
            p->program[c].item[i].layer == layer)
            return i;
    fail_msg("no item '%s'", name);
    return -1;
}

static ech_block *block_of(pipe *p, int c, const char *name, int layer)
{
    return &p->program[c].block[p->program[c].item[item_of(p, c, name, layer)].block];
}

/* The op of a block on a tied region. */
static ech_op *tied_op(ech_block *b, ech_region region)
{
    for (int k = 0; k < b->n_ops; k++)
        for (int i = 0; i < b->op[k].n_args; i++)
            if (b->op[k].arg[i].region == region)
                return &b->op[k];
    fail_msg("no op on the table");
    return NULL;
}

static void test_every_unit_is_one_class(void **state)
{
    (void)state;
    REFUSE(p->plan[0].range[0].end--, "layer 0 is held by no class");
    REFUSE(p->plan[1].range[0].first--, "layer 0 is held by class 0 and by class 1");
    REFUSE(p->plan[1].range[0].end--, "the head is held by no class");
    REFUSE(p->program[0].item[item_of(p, 0, "unit", 0)].layer = 1,
           "every rank of class 0: item 1 (unit, layer 1), op copy, argument 0: it is of a unit "
           "that ranks of this class do not hold");
}

static void test_what_a_stage_leaves_out(void **state)
{
    (void)state;
    REFUSE(p->program[1].n_items--, "every rank of class 1: elements");
    REFUSE(for (int k = 0; k < p->program[1].n_blocks;
                k++) if (!strcmp(p->program[1].block[k].name, "norm")) p->program[1]
               .block[k]
               .n_ops = 0,
           "are never summed into the norm, last is nothing");
    REFUSE(block_of(p, 0, "unit", 0)->n_ops--, "is read by no block");
}

static void test_the_tied_table(void **state)
{
    (void)state;
    /* measured on both */
    REFUSE(
        {
            ech_block *b = block_of(p, 1, "norm", -1);
            ech_op op = b->op[0];
            op.arg[0] = tied_op(block_of(p, 1, "update", -1), ECH_REGION_GRAD_TIED)->arg[1];
            assert_ok(ech_grow(&b->op, (size_t)b->n_ops, &b->capacity, sizeof *b->op));
            b->op[b->n_ops++] = op;
        },
        "sums a copy into the norm, which another class does");
    /* measured on none */
    REFUSE(
        {
            ech_op *op = tied_op(block_of(p, 0, "norm", -1), ECH_REGION_GRAD_TIED);
            op->arg[0].dim[0].bound--;
        },
        "gradient of embedding (part tied) are never summed into the norm");
    /* updated on one only: the two would drift apart */
    REFUSE(tied_op(block_of(p, 1, "update", -1), ECH_REGION_PARAM_TIED)->kind = ECH_OP_COPY,
           "weights of head (part tied) are never updated");
    /* said to be a copy where it is none, and not where it is one */
    REFUSE(p->program[0].slot[p->weights[ECH_PART_TIED]].is_copy = true,
           "its slot is said to be a copy, but no other class holds it");
    REFUSE(p->program[1].slot[p->grads[ECH_PART_TIED]].is_copy = false,
           "it is a copy of another class's tensor, its slot is not said to be one");
    REFUSE(p->program[1].slot[p->sink].is_copy = true,
           "slot 'sink' is said to be a copy, but no update finds one there");
    /* read once more than its gradient is added to */
    REFUSE(
        {
            ech_block *b = block_of(p, 1, "unit", -1);
            const ech_op op = *tied_op(b, ECH_REGION_PARAM_TIED);
            assert_ok(ech_grow(&b->op, (size_t)b->n_ops, &b->capacity, sizeof *b->op));
            b->op[b->n_ops++] = op;
        },
        "is read 3 times, its gradient is added to 2 times");
    REFUSE(p->plan[1].is_tied_apart = false,
           "the plan of class 1 has no part for the token table that they share");
    REFUSE(p->layout.tied[1] = 0; p->layout.degree[ECH_AXIS_TIED] = 1;
           p->program[0].layout = p->layout,
           "shares the token table with another, but is not in a group of axis tied");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelines_cover),
        cmocka_unit_test(test_every_unit_is_one_class),
        cmocka_unit_test(test_what_a_stage_leaves_out),
        cmocka_unit_test(test_the_tied_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
