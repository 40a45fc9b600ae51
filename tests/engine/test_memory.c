/* RUN: np=1 timeout=120 tags=fast */
/* Witnesses of memory: guards and canaries around the arenas, what the executor saw alive against
 * what was predicted, and the bytes that a step really touched. */
#include "check.h"
#include "engine/arena.h"
#include "pipelines.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- guards --- */

enum { FAULTED = 42 };

static void on_fault(int sig)
{
    (void)sig;
    _exit(FAULTED);
}

/* Exit status of a child that writes a byte there. */
static int child_writes(volatile unsigned char *at)
{
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, on_fault);
        (void)signal(SIGBUS, on_fault);
        *at = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_one_byte_past_an_arena_faults(void **state)
{
    static const size_t sizes[] = {64, 4032, 4096, 4160, 1 << 20};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ech_arena a;
        assert_ok(ech_arena_init(&a, sizes[i]));
        assert_int_equal((uintptr_t)a.base % 64, 0);
        assert_int_equal(child_writes(a.base + sizes[i] - 1), 0);
        assert_int_equal(child_writes(a.base + sizes[i]), FAULTED);
        ech_arena_fini(&a);
        assert_null(a.base);
    }
}

static void test_writes_below_an_arena_are_told(void **state)
{
    ech_arena a;
    (void)state;
    assert_ok(ech_arena_init(&a, 640));
    memset(a.base, 0, 640);
    assert_ok(ech_arena_check(&a));
    unsigned char kept = a.base[-1];
    a.base[-1] ^= 1;
    assert_fails(ech_arena_check(&a), ECH_E_CORRUPT, "wrote 4 bytes below an arena");
    a.base[-1] = kept;
    assert_ok(ech_arena_check(&a));
    kept = a.base[-1000];
    a.base[-1000] ^= 0x80;
    assert_fails(ech_arena_check(&a), ECH_E_CORRUPT, "wrote 1000 bytes below an arena");
    a.base[-1000] = kept;
    assert_ok(ech_arena_check(&a));
    ech_arena_fini(&a);
    assert_fails(ech_arena_init(&a, 100), ECH_E_ILLEGAL, "not a multiple of 64");
}

static void test_touched_words_are_counted(void **state)
{
    ech_arena a;
    (void)state;
    assert_ok(ech_arena_init(&a, 4096));
    assert_int_equal(ech_arena_touched(&a, 0, 4096), 0);
    memset(a.base + 128, 0, 256);
    assert_int_equal(ech_arena_touched(&a, 0, 4096), 256);
    assert_int_equal(ech_arena_touched(&a, 0, 128), 0);
    assert_int_equal(ech_arena_touched(&a, 128, 192), 64);
    a.base[1001] ^= 1; /* counted in words of 4 */
    assert_int_equal(ech_arena_touched(&a, 0, 4096), 260);
    ech_arena_fini(&a);
    assert_ok(ech_arena_check(&a)); /* an empty one is whole */
}

/* The arena of a session ends where its prediction ends, to the byte. */
static void test_a_session_has_exactly_what_was_predicted(void **state)
{
    tiny_run run;
    ech_memory m;
    tiny_spec spec = tiny_spec_default();
    (void)state;
    spec.dp = 2;
    tiny_start(&spec, &run);
    ech_session *s = run.session;
    assert_ok(ech_program_memory(&s->train.klass[0].program, ECH_SPACE_DEVICE, &m));
    for (int r = 0; r < 2; r++) {
        unsigned char *base = ech_engine_state(s->local[r].engine, 0);
        assert_int_equal(child_writes(base + m.arena - 1), 0);
        assert_int_equal(child_writes(base + m.arena), FAULTED);
        tiny_feed(&run, 0, NULL, NULL);
        (void)tiny_step(&run, 0, 0.1);
        assert_ok(ech_engine_check(s->local[r].engine));
        base[-1] ^= 1;
        assert_fails(ech_engine_check(s->local[r].engine), ECH_E_CORRUPT, "below an arena");
        base[-1] ^= 1;
    }
    tiny_stop(&run);
}

/* --- what was alive --- */

static void check_peaks(const tiny_spec *spec)
{
    tiny_run run;
    ech_memory predicted;
    ech_memory eval;
    ech_engine_memory seen;
    ech_eval_result held_out;
    tiny_start(spec, &run);
    ech_session *s = run.session;
    tiny_feed(&run, 0, NULL, NULL);
    (void)tiny_step(&run, 0, 0.1);
    (void)tiny_step(&run, 1, 0.1);
    if (spec->has_eval)
        assert_ok(ech_session_eval(s, false, &held_out));
    for (int r = 0; r < run.world; r++) {
        assert_ok(ech_program_memory(&s->local[r].klass->program, ECH_SPACE_DEVICE, &predicted));
        if (spec->has_eval) {
            const ech_run_class *k = ech_run_of(&s->eval, s->local[r].rank);
            assert_ok(ech_program_memory(&k->program, ECH_SPACE_DEVICE, &eval));
            assert_true(eval.total < predicted.total); /* nothing is kept for backward */
        }
        ech_engine_memory_get(s->local[r].engine, ECH_SPACE_DEVICE, &seen);
        assert_int_equal(seen.total, predicted.total);
        assert_int_equal(seen.arena, predicted.arena);
        for (int c = 0; c < ECH_N_CLASSES; c++)
            assert_int_equal(seen.at_peak[c], predicted.at_peak[c]);
        ech_engine_memory_get(s->local[r].engine, ECH_SPACE_HOST, &seen);
        assert_int_equal(seen.arena, 0);
        assert_int_equal(seen.total, 0);
    }
    tiny_stop(&run);
}

static void test_peaks_as_executed_are_those_predicted(void **state)
{
    static const int micros[] = {1, 2, 5};
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int dp = 1; dp <= 4; dp++)
            for (int m = 0; m < 3; m++)
                for (int k = 0; k < 4; k++) {
                    tiny_spec spec = tiny_spec_default();
                    spec.kind = (tiny_kind)kind;
                    spec.dropout = kind == TINY_GPT2 ? 0.1 : 0.0;
                    spec.dp = dp;
                    spec.accumulation = micros[m];
                    spec.schedule = k & 1 ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
                    spec.has_eval = k & 2;
                    spec.real = k & 1 ? ECH_F32 : ECH_F64;
                    spec.optim = k & 2 ? ECH_UPDATE_ADAMW : ECH_UPDATE_SGD;
                    spec.bucket_bytes = m ? 1 : 1 << 20;
                    check_peaks(&spec);
                }
}

/* Shares of tensors, tokens and state; parameters that come and go. */
static void test_peaks_of_many_ranks(void **state)
{
    static const struct {
        tiny_kind kind;
        int tp, dp, group, accumulation;
        ech_shard_policy policy;
    } rows[] = {{TINY_QWEN, 2, 1, 0, 2, {false, false, 0, false, false, 0}},
                {TINY_TIED_LLAMA, 4, 1, 0, 1, {true, false, 0, false, false, 0}},
                {TINY_GPT2, 3, 2, 0, 2, {true, true, 1, false, false, 0}},
                {TINY_LLAMA, 1, 3, 0, 3, {false, false, 2, true, false, 0}},
                {TINY_TIED_LLAMA, 1, 2, 0, 2, {false, false, 3, true, true, 2}},
                {TINY_LLAMA, 2, 4, 2, 2, {true, false, 3, false, false, 1}}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < 4; k++) {
            tiny_spec spec = tiny_spec_default();
            spec.kind = rows[i].kind;
            spec.tp = rows[i].tp;
            spec.dp = rows[i].dp;
            spec.shard_group = rows[i].group;
            spec.accumulation = rows[i].accumulation;
            spec.policy = rows[i].policy;
            spec.rows = 2;
            spec.seq = 6;
            spec.schedule = k & 1 ? ECH_SCHEDULE_GPIPE : ECH_SCHEDULE_1F1B;
            spec.has_eval = k & 2;
            spec.real = k & 1 ? ECH_F32 : ECH_F64;
            spec.optim = ECH_UPDATE_ADAMW;
            check_peaks(&spec);
        }
}

/* Each pipeline rank has a peak of its own: stages, what they hold, backwards in two. */
static void check_pipeline(const pipeline *p, void *user)
{
    tiny_spec spec = pipeline_spec(p, *(const tiny_kind *)user);
    if (!pipeline_is_legal(p))
        return;
    spec.dp = p->micros % 3 == 0 ? 2 : 1;
    spec.policy.zero_stage = p->micros % 3 == 0 ? p->pp - 1 : 0;
    spec.policy.reduces_each = p->micros % 2 == 0;
    spec.policy.reshards_after_forward = p->micros % 2 == 0;
    spec.policy.prefetch = 1;
    spec.has_eval = p->micros % 2 == 1;
    spec.optim = ECH_UPDATE_ADAMW;
    check_peaks(&spec);
}

static void test_peaks_of_pipelines(void **state)
{
    tiny_kind kinds[] = {TINY_LLAMA, TINY_TIED_LLAMA};
    (void)state;
    for (int k = 0; k < 2; k++)
        pipelines_each(check_pipeline, &kinds[k]);
}

/* --- what was touched --- */

static void mark(const ech_program *p, ech_extent e, bool *byte)
{
    if (e.slot < p->n_state)
        return;
    const size_t at = p->slot[e.slot].offset - p->state_bytes[ECH_SPACE_DEVICE];
    memset(byte + at + e.begin, true, e.end - e.begin);
}

static size_t count(const bool *byte, size_t n)
{
    size_t set = 0;
    for (size_t i = 0; i < n; i++)
        set += byte[i];
    return set;
}

/* Bytes of the transient arena that kernels say they write: all of them must show. */
static size_t bytes_written(const ech_program *p)
{
    const size_t n = p->transient_bytes[ECH_SPACE_DEVICE];
    bool *byte = calloc(n + 1, sizeof *byte);
    for (int i = 0; i < p->n_items; i++)
        for (int k = 0; k < p->block[p->item[i].block].n_ops; k++) {
            const ech_op *op = &p->block[p->item[i].block].op[k];
            for (int a = 0; a < op->n_args && !ech_op_is_comm(op->kind); a++)
                if (op->arg[a].access & ECH_WRITE)
                    mark(p, ech_item_extent(p, &p->item[i], &op->arg[a]), byte);
        }
    const size_t set = count(byte, n);
    free(byte);
    return set;
}

/* Bytes that belong to anybody at any time; the rest is alignment and packing loss. */
static size_t bytes_owned(const ech_program *p)
{
    const size_t n = p->transient_bytes[ECH_SPACE_DEVICE];
    bool *byte = calloc(n + 1, sizeof *byte);
    for (int s = p->n_state; s < p->n_slots; s++)
        if (p->slot[s].first >= 0)
            mark(p, (ech_extent){s, 0, p->slot[s].bytes}, byte);
    const size_t set = count(byte, n);
    free(byte);
    return set;
}

/* Bytes of state that a training step does not need: the cells of generation, and what stands between
 * sums over axes that have one rank here (dp alone has more); of the three sums of squares, those
 * of shared heads and of what is whole over tp. */
static size_t bytes_unused(void)
{
    static const ech_cell cells[] = {ECH_CELL_POSITION,  ECH_CELL_NEW_TOKENS, ECH_CELL_TOKENS_DP,
                                     ECH_CELL_LOSS_DP,   ECH_CELL_LOSS_DATA,  ECH_CELL_STOP_DP,
                                     ECH_CELL_STOP_DATA, ECH_CELL_STOP_STAGE};
    return sizeof cells / sizeof cells[0] * 8 + (size_t)2 * ECH_SUMSQ_WORDS * 8;
}

static void check_touched(const tiny_spec *spec)
{
    tiny_run run;
    tiny_start(spec, &run);
    ech_session *s = run.session;
    const ech_program *p = &s->train.klass[0].program;
    const size_t written = bytes_written(p);
    const size_t owned = bytes_owned(p);
    const size_t real = ech_dtype_bytes(spec->real);
    tiny_feed(&run, 0, NULL, NULL);
    (void)tiny_step(&run, 0, 0.1);
    for (int r = 0; r < spec->dp; r++) {
        ech_engine_memory m;
        size_t buffers = 0;
        ech_engine_memory_get(s->local[r].engine, ECH_SPACE_DEVICE, &m);
        assert_in_range(m.touched_transient, written, owned);
        /* state is touched whole, but for what has nothing to hold */
        assert_int_equal(m.touched_state[ECH_CLASS_PARAMS], (size_t)s->canon.elems * real);
        assert_int_equal(m.touched_state[ECH_CLASS_GRADS], (size_t)s->canon.elems * real);
        assert_int_equal(m.touched_state[ECH_CLASS_OPTIMIZER], 2 * (size_t)s->canon.elems * real);
        for (int k = 0; k < p->n_state; k++)
            buffers += p->slot[k].klass == ECH_CLASS_BUFFERS ? p->slot[k].bytes : 0;
        assert_int_equal(m.touched_state[ECH_CLASS_BUFFERS], buffers - bytes_unused());
    }
    ech_engine_memory m;
    ech_engine_memory_get(s->local[0].engine, ECH_SPACE_DEVICE, &m);
    (void)printf("model %d, dp %d: transient arena %zu, owned %zu, written by kernels %zu, touched "
                 "%zu bytes (%.1f %% of the arena)\n",
                 spec->kind, spec->dp, p->transient_bytes[0], owned, written, m.touched_transient,
                 100.0 * (double)m.touched_transient / (double)p->transient_bytes[0]);
    tiny_stop(&run);
}

static void test_a_step_touches_what_it_was_given(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        for (int dp = 1; dp <= 3; dp++) {
            tiny_spec spec = tiny_spec_default();
            spec.kind = (tiny_kind)kind;
            spec.dp = dp;
            spec.accumulation = 2;
            spec.rows = 8;
            spec.seq = 16;
            spec.real = dp == 2 ? ECH_F32 : ECH_F64;
            spec.optim = ECH_UPDATE_ADAMW;
            check_touched(&spec);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_byte_past_an_arena_faults),
        cmocka_unit_test(test_writes_below_an_arena_are_told),
        cmocka_unit_test(test_touched_words_are_counted),
        cmocka_unit_test(test_a_session_has_exactly_what_was_predicted),
        cmocka_unit_test(test_peaks_as_executed_are_those_predicted),
        cmocka_unit_test(test_peaks_of_many_ranks),
        cmocka_unit_test(test_peaks_of_pipelines),
        cmocka_unit_test(test_a_step_touches_what_it_was_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
