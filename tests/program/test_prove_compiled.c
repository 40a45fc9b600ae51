/* RUN: np=1 timeout=60 tags=fast */
/* The whole proof of what the compiler makes, under every policy; and faults put into it that only
 * cover, match or types can see. */
#include "check.h"
#include "mutants.h"
#include "tiny.h"
#include "program/compile.h"
#include "program/prove.h"

#include <stdlib.h>

/* A compiled training program with what it was compiled for. */
typedef struct made {
    ech_model model;
    ech_canon canon;
    ech_compile_spec spec;
    ech_shard_plan plan;
    ech_program p;
} made;

static made *make(const tiny_spec *t)
{
    made *m = calloc(1, sizeof *m);
    ech_run_slots slots;
    assert_non_null(m);
    m->model = tiny_model(t->kind, t->dropout);
    if (t->heads) {
        m->model.heads = t->heads;
        m->model.kv_heads = t->kv_heads;
    }
    assert_ok(ech_canon_create(&m->model, &m->canon));
    m->spec = (ech_compile_spec){.block = {.model = &m->model,
                                           .canon = &m->canon,
                                           .layout = tiny_layout(t, &m->model),
                                           .policy = t->policy,
                                           .real = ECH_F64,
                                           .rows = 2,
                                           .seq = 6,
                                           .optim = t->optim,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .weight_decay = 0.1,
                                           .clip = 1.0},
                                 .micro_batches = t->accumulation,
                                 .schedule = t->schedule,
                                 .bucket_bytes = t->bucket_bytes};
    assert_ok(ech_compile_plan(&m->spec, &m->plan));
    assert_ok(ech_compile_train(&m->spec, &m->p, &slots));
    return m;
}

static void made_free(made *m)
{
    ech_program_fini(&m->p);
    ech_canon_fini(&m->canon);
    free(m);
}

static ech_status prove(const made *m, const ech_program *p, ech_prove_report *r)
{
    const ech_shard_plan *plan = &m->plan;
    const ech_prove_spec spec = {.program = &p, .n_classes = 1, .plan = &plan};
    return ech_prove(&spec, r);
}

static void assert_all_hold(const made *m, const ech_program *p)
{
    ech_prove_report r;
    assert_ok(prove(m, p, &r));
    for (int part = 0; part < ECH_N_PROOF_PARTS; part++)
        assert_int_equal(r.row[part].verdict, ECH_PROOF_HOLDS);
    assert_int_equal(r.followed, 1);
}

static void prove_train_and_eval(const tiny_spec *t)
{
    ech_run_slots slots;
    ech_program eval;
    made *m = make(t);
    assert_all_hold(m, &m->p);
    assert_ok(ech_compile_eval(&m->spec, &eval, &slots));
    assert_all_hold(m, &eval);
    ech_program_fini(&eval);
    made_free(m);
}

static void test_every_policy_is_proved(void **state)
{
    int n = 0;
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int tp = 1; tp <= 6; tp += tp < 4 ? 1 : 2)
            for (int stage = 0; stage <= 3; stage++)
                for (int k = 0; k < 8; k++) {
                    tiny_spec t = tiny_spec_default();
                    t.kind = (tiny_kind)kind;
                    t.heads = 12;
                    t.kv_heads = kind == TINY_GPT2 ? 12 : 4; /* shared by three heads */
                    t.tp = tp;
                    t.dp = 4;
                    t.accumulation = 2;
                    t.shard_group = k & 1 ? 2 : 0;
                    t.policy.zero_stage = stage;
                    t.policy.is_sequence_parallel = (k & 2) && tp > 1;
                    t.policy.keeps_inputs = k & 4;
                    t.policy.reduces_each = (k & 4) && stage >= 2;
                    t.policy.reshards_after_forward = !(k & 4);
                    t.policy.prefetch = k % 3;
                    t.schedule = k & 4 ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
                    t.bucket_bytes = k & 1 ? 1 : 1 << 20;
                    t.optim = k & 2 ? ECH_UPDATE_ADAMW : ECH_UPDATE_SGD;
                    prove_train_and_eval(&t);
                    n++;
                }
    (void)printf("%d policies\n", n);
    assert_true(n > 500);
}

/* --- faults --- */

/* GPT-2 (all kinds of biases) or Qwen (norms of heads, shared keys and values). */
static made *make_case(tiny_kind kind, int stage)
{
    tiny_spec t = tiny_spec_default();
    t.kind = kind;
    t.heads = 12;
    t.kv_heads = kind == TINY_GPT2 ? 12 : 4;
    t.tp = 6; /* two heads a rank: each key and value stands three times */
    t.dp = 3;
    t.accumulation = 2;
    t.policy.zero_stage = stage;
    t.policy.is_sequence_parallel = true;
    t.optim = ECH_UPDATE_ADAMW;
    return make(&t);
}

static ech_op *find(made *m, const char *block, int nth, ech_op_kind kind)
{
    for (int i = 0; i < m->p.n_blocks; i++) {
        ech_block *b = &m->p.block[i];
        for (int k = 0; k < b->n_ops && strncmp(b->name, block, strlen(block)) == 0; k++)
            if (b->op[k].kind == kind && nth-- == 0)
                return &b->op[k];
    }
    fail_msg("no op %s in block '%s'", ech_op_name(kind), block);
    return NULL;
}

static ech_block *block_of(made *m, const ech_op *op, int *at)
{
    for (int i = 0; i < m->p.n_blocks; i++)
        if (op >= m->p.block[i].op && op < m->p.block[i].op + m->p.block[i].n_ops) {
            *at = (int)(op - m->p.block[i].op);
            return &m->p.block[i];
        }
    fail_msg("the op is in no block");
    return NULL;
}

static void twice(made *m, const ech_op *op)
{
    int at;
    ech_block *b = block_of(m, op, &at);
    block_insert(b, at, *op);
}

static void drop(made *m, const ech_op *op)
{
    int at;
    ech_block *b = block_of(m, op, &at);
    block_remove(b, at);
}

#define REFUSE(kind, stage, change, words)                                                         \
    do {                                                                                           \
        ech_prove_report r;                                                                        \
        made *m = make_case((kind), (stage));                                                      \
        change;                                                                                    \
        assert_int_equal(prove(m, &m->p, &r), ECH_E_PROOF);                                        \
        if (!strstr(r.row[ECH_PROOF_COVER].text, (words)))                                         \
            fail_msg("cover says '%s', not '%s'", r.row[ECH_PROOF_COVER].text, (words));           \
        made_free(m);                                                                              \
    } while (0)

static void test_gradients_counted_twice_or_not(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        REFUSE(TINY_GPT2, stage, twice(m, find(m, "mlp backward", 0, ECH_OP_LINEAR_WGRAD)),
               "is read 2 times, its gradient is added to 4 times");
        REFUSE(TINY_GPT2, stage,
               twice(m, find(m, "attention backward", 0, ECH_OP_LAYERNORM_BACKWARD)),
               "is read 2 times, its gradient is added to 4 times");
        REFUSE(TINY_GPT2, stage, drop(m, find(m, "embedding backward", 0, ECH_OP_EMBED_BACKWARD)),
               "'embed.token.weight' is read 4 times, its gradient is added to 2 times");
        REFUSE(TINY_GPT2, stage, drop(m, find(m, "embedding forward", 0, ECH_OP_POSITIONS)),
               "no block");
        REFUSE(TINY_GPT2, stage, twice(m, find(m, "embedding forward", 0, ECH_OP_POSITIONS)),
               "'embed.position.weight' is read 4 times, its gradient is added to 2 times");
    }
}

static void swap_offsets(ech_operand *a, ech_operand *b)
{
    const size_t offset = a->offset;
    a->offset = b->offset;
    b->offset = offset;
}

static void test_gradients_of_another_tensor(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        /* the norm of attention reads its gamma, its gradient goes where beta's belongs */
        REFUSE(TINY_GPT2, stage,
               ech_op *op = find(m, "attention backward", 0, ECH_OP_LAYERNORM_BACKWARD);
               swap_offsets(&op->arg[7], &op->arg[8]),
               "op layernorm_backward, argument 7: it is the gradient of another tensor");
        REFUSE(TINY_QWEN, stage,
               ech_op *op = find(m, "attention backward", 0, ECH_OP_QK_NORM_BACKWARD);
               swap_offsets(&op->arg[5], &op->arg[6]),
               "op qk_norm_backward, argument 5: it is the gradient of another tensor");
    }
}

/* Backward goes through layer's other matrix of the same size: none in these models, so the sizes
 * are made one. */
static void test_input_gradients_through_another_tensor(void **state)
{
    ech_prove_report r;
    (void)state;
    made *m = make_case(TINY_GPT2, 0);
    ech_op *d = find(m, "attention backward", 0, ECH_OP_LINEAR_DGRAD);
    const ech_op *w = find(m, "attention backward", 0, ECH_OP_LINEAR_WGRAD);
    assert_int_equal(d->arg[1].offset, w->arg[2].offset);
    d->arg[1].offset += 8;
    assert_int_equal(prove(m, &m->p, &r), ECH_E_PROOF);
    assert_non_null(strstr(r.row[ECH_PROOF_COVER].text,
                           "op linear_wgrad, argument 2: its input's gradient goes through another "
                           "tensor than this gradient is of"));
    made_free(m);
}

static void test_the_norm_sums_each_element_once(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        REFUSE(TINY_QWEN, stage, drop(m, find(m, "gradient norm", 1, ECH_OP_SUMSQ)),
               "are never summed into the norm, last is nothing");
        REFUSE(TINY_QWEN, stage, twice(m, find(m, "gradient norm", 1, ECH_OP_SUMSQ)),
               "are summed into the norm twice, again by item");
        REFUSE(TINY_QWEN, stage,
               find(m, "gradient norm", 1, ECH_OP_SUMSQ)->arg[0].dim[0].bound -= 9,
               "are never summed into the norm");
        /* keys and values that stand in several groups */
        REFUSE(TINY_QWEN, stage,
               find(m, "gradient norm", 1, ECH_OP_SUMSQ)->attr[4].node[0].value -= 1,
               "elements are taken for copies that stand once");
        REFUSE(TINY_QWEN, stage,
               find(m, "gradient norm", 1, ECH_OP_SUMSQ)->attr[2] = ech_expr_const(0),
               "copies of keys and values are taken for elements that stand once");
        REFUSE(TINY_QWEN, stage,
               find(m, "gradient norm", 1, ECH_OP_SUMSQ)->attr[0] = ech_expr_const(1),
               "it begins at another element than its attribute says");
        REFUSE(TINY_QWEN, stage, find(m, "gradient norm", 0, ECH_OP_CLIP)->attr[0].node[0].value++,
               "keys and values have another number of copies");
    }
}

static void test_rows_of_a_table(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        REFUSE(TINY_GPT2, stage,
               find(m, "head backward", 0, ECH_OP_XENT_BACKWARD)->attr[1] = ech_expr_const(0),
               "op xent_backward, argument 0: at tp coordinate 1 its first row is 0");
        REFUSE(TINY_GPT2, stage,
               find(m, "embedding forward", 0, ECH_OP_EMBED)->attr[0] = ech_expr_const(0),
               "op embed, argument 0: at tp coordinate 1 its first row is 0");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_policy_is_proved),
        cmocka_unit_test(test_gradients_counted_twice_or_not),
        cmocka_unit_test(test_gradients_of_another_tensor),
        cmocka_unit_test(test_input_gradients_through_another_tensor),
        cmocka_unit_test(test_the_norm_sums_each_element_once),
        cmocka_unit_test(test_rows_of_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
