/* RUN: np=1 timeout=60 tags=fast */
/* Any order that the derived dependences allow gives the same bits: losses, gradients, weights and
 * moments after two AdamW steps, with NaN where lives end.  And the order of the program itself
 * does not depend on what it may not depend on: a second run, poison, bucket size. */
#include "check.h"
#include "sanitized.h"
#include "tiny.h"

#include <stdlib.h>

enum {
    STEPS = 2,
    SEEDS = IS_SANITIZED ? 15 : 60,
    SEEDS_OF_MANY = IS_SANITIZED ? 5 : 20,
    SEEDS_OF_PIPELINES = IS_SANITIZED ? 5 : 20
};

static bool most(int64_t row, int64_t position, void *user)
{
    (void)user;
    return (row * 3 + position) % 5 != 0;
}

/* What a run leaves behind, as bytes. */
typedef struct trace {
    size_t bytes;
    unsigned char *data;
} trace;

static void add(trace *t, const void *data, size_t bytes)
{
    t->data = realloc(t->data, t->bytes + bytes);
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
}

static void run_steps(tiny_run *run, trace *t)
{
    ech_session *s = run->session;
    const size_t bytes = (size_t)s->canon.elems * ech_dtype_bytes(s->config.compile.block.real);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(run, i, most, NULL);
        const ech_step_result r = tiny_step(run, i, 0.01);
        assert_true(r.is_updated);
        add(t, &r.loss, sizeof r.loss);
        add(t, &r.grad_norm, sizeof r.grad_norm);
        for (int k = 0; k < s->n_local; k++)
            add(t, tiny_grads(s, k), bytes);
    }
    for (int k = 0; k < s->n_local; k++) {
        add(t, tiny_params(s, k), bytes);
        add(t, tiny_moments(s, k), 2 * bytes);
    }
}

static void assert_same(const trace *a, const trace *b, const char *what, uint64_t seed)
{
    if (a->bytes != b->bytes || memcmp(a->data, b->data, a->bytes) != 0)
        fail_msg("%s, seed %llu: not the same bits", what, (unsigned long long)seed);
}

static tiny_spec base(tiny_kind kind, int dp)
{
    tiny_spec spec = tiny_spec_default();
    spec.kind = kind;
    spec.dropout = kind == TINY_GPT2 ? 0.2 : 0.0;
    spec.dp = dp;
    spec.accumulation = 2;
    spec.rows = 2;
    spec.optim = ECH_UPDATE_ADAMW;
    spec.bucket_bytes = dp == 2 ? 1 : 4096;
    spec.schedule = dp == 3 ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
    spec.poison = true;
    return spec;
}

static void fuzz_spec(const tiny_spec *spec, int seeds)
{
    tiny_run run;
    trace wanted = {0};
    tiny_start(spec, &run);
    ech_session *s = run.session;
    trace start[16] = {{0}};
    assert_true(run.world <= 16);
    for (int k = 0; k < run.world; k++)
        add(&start[k], ech_engine_state(s->local[k].engine, 0),
            s->local[k].klass->program.state_bytes[ECH_SPACE_DEVICE]);
    run_steps(&run, &wanted);
    for (uint64_t seed = 1; seed <= (uint64_t)seeds; seed++) {
        trace got = {0};
        for (int k = 0; k < run.world; k++)
            memcpy(ech_engine_state(s->local[k].engine, 0), start[k].data, start[k].bytes);
        assert_ok(ech_session_fuzz(s, seed * 1000));
        run_steps(&run, &got);
        assert_same(&wanted, &got, s->train.klass[0].program.name, seed);
        free(got.data);
    }
    for (int k = 0; k < run.world; k++) {
        assert_ok(ech_engine_check(s->local[k].engine));
        free(start[k].data);
    }
    free(wanted.data);
    tiny_stop(&run);
}

static void fuzz(tiny_kind kind, int dp, ech_dtype real)
{
    tiny_spec spec = base(kind, dp);
    spec.real = real;
    fuzz_spec(&spec, SEEDS);
}

static void test_gpt2_with_dropout(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 3; dp++)
        fuzz(TINY_GPT2, dp, ECH_F64);
}

static void test_llama_with_grouped_queries(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 3; dp++)
        fuzz(TINY_LLAMA, dp, ECH_F32);
}

static void test_qwen_with_qk_norm_and_bias(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 3; dp++)
        fuzz(TINY_QWEN, dp, ECH_F64);
}

static void test_llama_with_tied_tables(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 3; dp++)
        fuzz(TINY_TIED_LLAMA, dp, ECH_F32);
}

/* Tensor and sequence parallel, shared heads, state dealt out, replicas of it. */
static void test_many_ranks(void **state)
{
    /* sp, kept, stage, each, reshard, prefetch */
    static const struct {
        tiny_kind kind;
        int heads, kv_heads, tp, dp, group;
        ech_shard_policy policy;
    } rows[] = {
        {TINY_QWEN, 4, 2, 2, 1, 0, {false, false, 0, false, false, 0}},
        {TINY_GPT2, 6, 6, 3, 1, 0, {true, false, 0, false, false, 0}},
        {TINY_TIED_LLAMA, 4, 1, 4, 1, 0, {true, true, 0, false, false, 0}},
        {TINY_LLAMA, 4, 2, 1, 3, 0, {false, false, 1, false, false, 0}},
        {TINY_GPT2, 3, 3, 1, 2, 0, {false, false, 2, true, false, 0}},
        {TINY_LLAMA, 4, 2, 1, 2, 0, {false, false, 3, false, true, 1}},
        {TINY_QWEN, 4, 2, 1, 4, 2, {false, false, 3, true, true, 2}},
        {TINY_LLAMA, 6, 2, 3, 2, 0, {true, false, 1, false, false, 0}},
        {TINY_TIED_LLAMA, 4, 1, 2, 2, 0, {true, false, 3, true, true, 1}},
        {TINY_GPT2, 6, 6, 2, 4, 2, {true, true, 2, false, false, 0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_spec spec = base(rows[i].kind, rows[i].dp);
        spec.heads = rows[i].heads;
        spec.kv_heads = rows[i].kv_heads;
        spec.tp = rows[i].tp;
        spec.shard_group = rows[i].group;
        spec.policy = rows[i].policy;
        spec.seq = 6;
        spec.real = i % 2 ? ECH_F32 : ECH_F64;
        fuzz_spec(&spec, SEEDS_OF_MANY);
    }
}

/* Programs of several classes, messages between them, backwards in two. */
static void test_pipelines(void **state)
{
    /* sp, kept, stage, each, reshard, prefetch */
    static const struct {
        tiny_kind kind;
        ech_schedule_kind schedule;
        int pp, chunks, micros, tp, dp;
        ech_shard_policy policy;
    } rows[] = {
        {TINY_LLAMA, ECH_SCHEDULE_1F1B, 2, 1, 3, 1, 1, {false, false, 0, false, false, 0}},
        {TINY_TIED_LLAMA, ECH_SCHEDULE_1F1B, 4, 1, 5, 1, 1, {false, false, 0, false, false, 0}},
        {TINY_GPT2, ECH_SCHEDULE_GPIPE, 3, 1, 2, 1, 2, {false, false, 1, false, false, 0}},
        {TINY_TIED_LLAMA, ECH_SCHEDULE_1F1B, 2, 1, 2, 2, 2, {true, false, 1, false, false, 0}},
        {TINY_LLAMA, ECH_SCHEDULE_INTERLEAVED, 2, 2, 4, 1, 2, {false, false, 3, true, true, 1}},
        {TINY_TIED_LLAMA,
         ECH_SCHEDULE_INTERLEAVED,
         3,
         2,
         3,
         1,
         1,
         {false, false, 0, false, false, 0}},
        {TINY_QWEN, ECH_SCHEDULE_ZB_H1, 4, 1, 5, 1, 1, {false, false, 0, false, false, 0}},
        {TINY_TIED_LLAMA, ECH_SCHEDULE_ZB_H1, 2, 1, 3, 1, 2, {false, false, 3, true, true, 1}},
        {TINY_GPT2, ECH_SCHEDULE_ZB_V, 2, 2, 3, 1, 2, {false, false, 1, false, false, 0}},
        {TINY_TIED_LLAMA, ECH_SCHEDULE_ZB_V, 3, 2, 4, 1, 1, {false, false, 0, false, false, 0}},
        {TINY_QWEN, ECH_SCHEDULE_ZB_V, 2, 2, 4, 2, 2, {true, false, 2, true, false, 0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tiny_spec spec = base(rows[i].kind, rows[i].dp);
        spec.layers = 6;
        spec.pp = rows[i].pp;
        spec.schedule = rows[i].schedule;
        spec.chunks = rows[i].chunks;
        spec.accumulation = rows[i].micros;
        spec.rows = 1;
        spec.tp = rows[i].tp;
        spec.policy = rows[i].policy;
        spec.seq = 6;
        spec.real = i % 2 ? ECH_F32 : ECH_F64;
        fuzz_spec(&spec, SEEDS_OF_PIPELINES);
    }
}

/* Evaluation, between steps of training: the same sum, and nothing of the state changed. */
static void evaluate(tiny_kind kind, int dp, int pp)
{
    tiny_run run;
    tiny_spec spec = base(kind, dp);
    ech_eval_result wanted;
    spec.has_eval = true;
    spec.pp = pp;
    tiny_start(&spec, &run);
    ech_session *s = run.session;
    const size_t bytes = (size_t)s->canon.elems * ech_dtype_bytes(s->config.compile.block.real);
    tiny_feed(&run, 0, most, NULL);
    (void)tiny_step(&run, 0, 0.01);
    trace before = {0};
    add(&before, tiny_params(s, 0), bytes);
    assert_ok(ech_session_eval(s, false, &wanted));
    assert_int_equal(wanted.tokens, dp * 2 * 2 * 5 * 4 / 5);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        ech_eval_result got;
        assert_ok(ech_session_fuzz(s, seed * 1000));
        assert_ok(ech_session_eval(s, seed % 2 == 1, &got));
        assert_memory_equal(&got.loss_sum, &wanted.loss_sum, sizeof got.loss_sum);
        assert_int_equal(got.tokens, wanted.tokens);
        assert_int_equal(got.is_stopping, seed % 2 == 1);
    }
    assert_memory_equal(tiny_params(s, 0), before.data, bytes);
    assert_ok(ech_engine_check(s->local[0].engine));
    free(before.data);
    tiny_stop(&run);
}

/* It is the order drawn that runs: without a single dependence sums come out otherwise. */
static void test_evaluation_without_dependences(void **state)
{
    tiny_run run;
    tiny_spec spec = base(TINY_LLAMA, 1);
    ech_eval_result wanted;
    int wrong = 0;
    (void)state;
    spec.has_eval = true;
    tiny_start(&spec, &run);
    tiny_feed(&run, 0, most, NULL);
    assert_ok(ech_session_eval(run.session, false, &wanted));
    assert_ok(ech_session_fuzz(run.session, 1));
    ech_deps *d = run.session->fuzz_deps[1];
    d->n_edges = 0;
    memset(d->row, 0, ((size_t)d->n + 1) * sizeof *d->row);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        ech_eval_result got;
        assert_ok(ech_session_fuzz(run.session, seed));
        assert_ok(ech_session_eval(run.session, false, &got));
        wrong += memcmp(&got.loss_sum, &wanted.loss_sum, sizeof got.loss_sum) != 0;
    }
    assert_true(wrong > 5);
    tiny_stop(&run);
}

static void test_evaluation(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 3; dp++)
        for (int kind = 0; kind < N_TINY; kind++)
            evaluate((tiny_kind)kind, dp, 1);
    for (int kind = 0; kind < N_TINY; kind++)
        evaluate((tiny_kind)kind, 2, 2);
}

/* Orders drawn from different seeds do differ: the trace of what runs when is not one trace. */
static void test_seeds_draw_different_orders(void **state)
{
    tiny_run run;
    tiny_spec spec = base(TINY_LLAMA, 2);
    int64_t polls[3];
    (void)state;
    tiny_start(&spec, &run);
    for (uint64_t seed = 0; seed < 3; seed++) {
        assert_ok(ech_session_fuzz(run.session, 77 * seed));
        ech_engine_times_reset(run.session->local[0].engine);
        tiny_feed(&run, 0, most, NULL);
        (void)tiny_step(&run, 0, 0.0);
        polls[seed] = ech_engine_times_get(run.session->local[0].engine).polls;
    }
    /* how often a wait is tried too early depends on the order */
    assert_true(polls[1] != polls[2] || polls[0] != polls[1]);
    tiny_stop(&run);
}

static void assert_like(const tiny_spec *spec, const trace *wanted, const char *what)
{
    tiny_run run;
    trace got = {0};
    tiny_start(spec, &run);
    run_steps(&run, &got);
    assert_same(wanted, &got, what, 0);
    free(got.data);
    tiny_stop(&run);
}

/* Also T11 and T13: whatever overlaps with whatever, and in whatever pieces, the sums are the same.
 */
static void same_bits_whatever(tiny_kind kind, int dp, ech_dtype real)
{
    static const int64_t buckets[] = {1, 1024, 25 << 20};
    tiny_run run;
    trace wanted = {0};
    tiny_spec spec = base(kind, dp);
    spec.real = real;
    tiny_start(&spec, &run);
    run_steps(&run, &wanted);
    tiny_stop(&run);
    assert_like(&spec, &wanted, "a second run");
    for (int b = 0; b < 3; b++) {
        spec.bucket_bytes = buckets[b];
        assert_like(&spec, &wanted, "another bucket size");
    }
    spec.poison = false;
    assert_like(&spec, &wanted, "without poison");
    spec.schedule = spec.schedule == ECH_SCHEDULE_GPIPE ? ECH_SCHEDULE_1F1B : ECH_SCHEDULE_GPIPE;
    assert_like(&spec, &wanted, "forward first or in turn");
    spec.has_eval = true;
    assert_like(&spec, &wanted, "with an evaluation program");
    free(wanted.data);
}

static void test_same_bits_whatever_the_policy(void **state)
{
    (void)state;
    for (int dp = 1; dp <= 4; dp++) {
        same_bits_whatever(TINY_GPT2, dp, dp % 2 ? ECH_F32 : ECH_F64);
        same_bits_whatever(TINY_LLAMA, dp, dp % 2 ? ECH_F64 : ECH_F32);
    }
}

/* --- where state is, and when it moves --- */

/* What a layout leaves behind, wherever it is held. */
static void run_whole(const tiny_spec *spec, trace *t)
{
    static const ech_held_class state[] = {ECH_HELD_PARAMS, ECH_HELD_M, ECH_HELD_V};
    tiny_run run;
    tiny_start(spec, &run);
    ech_session *s = run.session;
    const size_t bytes = (size_t)s->canon.elems * ech_dtype_bytes(spec->real);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, most, NULL);
        const ech_step_result r = tiny_step(&run, i, 0.01);
        add(t, &r.loss, sizeof r.loss);
        add(t, &r.grad_norm, sizeof r.grad_norm);
        add(t, tiny_all(s, ECH_HELD_GRADS), bytes);
    }
    for (int k = 0; k < 3; k++)
        add(t, tiny_all(s, state[k]), bytes);
    tiny_stop(&run);
}

/* All these policies, and groups of these sizes, give the same bits. */
static void same_bits_of(tiny_spec spec, const ech_shard_policy *policies, int n, int group)
{
    trace wanted = {0};
    for (int i = 0; i < n; i++)
        for (int g = 0; g < (group ? 2 : 1); g++) {
            trace got = {0};
            spec.policy = policies[i];
            spec.shard_group = g ? group : 0;
            run_whole(&spec, &got);
            if (!wanted.data)
                add(&wanted, got.data, got.bytes);
            assert_same(&wanted, &got, g ? "replicas of a shard group" : "another policy",
                        (uint64_t)i);
            free(got.data);
        }
    free(wanted.data);
}

/* sp, kept, stage, each, reshard, prefetch */
static const ech_shard_policy once[] = {
    {false, false, 0, false, false, 0}, {false, false, 1, false, false, 0},
    {false, false, 2, false, false, 0}, {false, false, 3, false, true, 0},
    {false, false, 3, false, true, 1},  {false, false, 3, false, false, 2}};
static const ech_shard_policy each[] = {{false, false, 2, true, false, 0},
                                        {false, false, 3, true, true, 0},
                                        {false, false, 3, true, true, 3},
                                        {false, false, 3, true, false, 1}};
static const ech_shard_policy sequence[] = {{true, false, 0, false, false, 0},
                                            {true, true, 0, false, false, 0},
                                            {true, true, 1, false, false, 0},
                                            {true, false, 3, false, true, 1}};

/* Where state is held and when it is gathered changes no bit, where gradients are reduced as often:
 * once a step or every micro-batch, which with one micro-batch is the same.  Nor do replicas of a
 * shard group that is a product of the tree's first factors; but replicas are summed once a step,
 * after the micro-batches. */
static void test_same_bits_wherever_state_is(void **state)
{
    (void)state;
    tiny_spec spec = base(TINY_LLAMA, 4);
    same_bits_of(spec, once, (int)(sizeof once / sizeof once[0]), 2);
    same_bits_of(spec, each, (int)(sizeof each / sizeof each[0]), 0);
    spec = base(TINY_GPT2, 6);
    spec.accumulation = 1;
    same_bits_of(spec, once, (int)(sizeof once / sizeof once[0]), 2);
    same_bits_of(spec, each, (int)(sizeof each / sizeof each[0]), 2);
    spec = base(TINY_QWEN, 2);
    spec.tp = 2;
    spec.seq = 6;
    same_bits_of(spec, sequence, (int)(sizeof sequence / sizeof sequence[0]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_with_dropout),
        cmocka_unit_test(test_llama_with_grouped_queries),
        cmocka_unit_test(test_qwen_with_qk_norm_and_bias),
        cmocka_unit_test(test_llama_with_tied_tables),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_same_bits_wherever_state_is),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_evaluation_without_dependences),
        cmocka_unit_test(test_seeds_draw_different_orders),
        cmocka_unit_test(test_same_bits_whatever_the_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
