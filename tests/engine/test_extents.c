/* RUN: np=1 timeout=20 tags=fast */
/* Extents: a program sized for the most runs with fewer elements, down to none, and none still runs
 * and still communicates. */
#include "check.h"
#include "engine/virtual.h"
#include "hand.h"
#include "program/lives.h"
#include "program/types.h"
#include "tiny.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- by hand --- */

enum { MOST = 8, DP = 3 };

static void set_extent(ech_program *p, int item, int arg)
{
    p->block[p->item[item].block].op[0].arg[arg].dim[0].extent = ECH_CELL_NEW_TOKENS;
}

/* out[0, n) = sum over ranks of 2 x[0, n), n in a cell. */
static void sum_program(ech_program *p, int slot[3])
{
    const ech_layout l = ech_layout_data_parallel(DP);
    const ech_placement part = hand_partial(DP, 1.0);
    const ech_placement part2 = hand_partial(DP, 2.0);
    const ech_placement whole2 = hand_partial(1, 2.0);
    const ech_placement i = ech_placement_invariant();
    const int64_t staging = ech_reduce_staging_elems(MOST, DP);
    const hand_op copy = {.kind = ECH_OP_COPY, .request = -1};
    const hand_op scale = {.kind = ECH_OP_SCALE, .request = -1, .real = 2.0};
    const hand_op start = {.kind = ECH_OP_ALL_REDUCE_START};
    const hand_op wait = {.kind = ECH_OP_ALL_REDUCE_WAIT};
    ech_program_init(p, "extents", &l);
    slot[0] = hand_slot(p, "x", true, MOST, part);
    slot[1] = hand_slot(p, "out", true, MOST, i);
    slot[2] = p->scalars = hand_slot(p, "scalars", true, ECH_N_CELLS, i);
    const int t = hand_slot(p, "t", false, MOST, i);
    const int s = hand_slot(p, "staging", false, staging, i);
    (void)HAND_ADD(p, copy, {slot[0], 0, MOST, part}, {t, 0, MOST, part});
    (void)HAND_ADD(p, scale, {t, 0, MOST, part2});
    (void)HAND_ADD(p, start, {t, 0, MOST, part2}, {s, 0, staging, i});
    (void)HAND_ADD(p, wait, {t, 0, MOST, whole2}, {s, 0, staging, i});
    (void)HAND_ADD(p, copy, {t, 0, MOST, whole2}, {slot[1], 0, MOST, whole2});
    for (int item = 0; item < 5; item++) {
        set_extent(p, item, 0);
        if (item == 0 || item == 4)
            set_extent(p, item, 1);
    }
}

static void check_extent(hand_run *run, const int slot[3], int64_t n)
{
    for (int r = 0; r < DP; r++) {
        double *x = ech_engine_state(run->engine[r], slot[0]);
        double *out = ech_engine_state(run->engine[r], slot[1]);
        for (int i = 0; i < MOST; i++) {
            x[i] = 10.0 * i + r;
            out[i] = -1.0;
        }
        ech_engine_set_int(run->engine[r], ECH_CELL_NEW_TOKENS, n);
        ech_engine_times_reset(run->engine[r]);
        ech_comm_sent_reset(run->comm[r]);
    }
    assert_ok(ech_virtual_run(run->engine, DP, 0, ECH_SEGMENT_ACCUMULATE));
    for (int r = 0; r < DP; r++) {
        const double *out = ech_engine_state(run->engine[r], slot[1]);
        for (int i = 0; i < MOST; i++)
            assert_near(out[i], i < n ? 2.0 * (DP * 10.0 * i + 3.0) : -1.0, 0.0);
        assert_int_equal(ech_engine_times_get(run->engine[r]).ops, 5);
        assert_int_equal(ech_comm_sent(run->comm[r])->payload_bytes[ECH_AXIS_DP], 8 * n);
    }
}

static void test_fewer_and_none(void **state)
{
    ech_program p;
    hand_run run;
    int slot[3];
    (void)state;
    sum_program(&p, slot);
    assert_ok(ech_program_place(&p, NULL));
    assert_ok(ech_lives_check(&p));
    assert_ok(ech_types_check(&p));
    hand_start(&p, true, &run);
    for (int64_t n = MOST; n >= 0; n--)
        check_extent(&run, slot, n);
    check_extent(&run, slot, MOST);
    hand_stop(&run);
    ech_program_fini(&p);
}

/* More than the bound would run over other slots' bytes. */
static void test_an_extent_beyond_its_bound_stops_the_run(void **state)
{
    ech_program p;
    hand_run run;
    int slot[3];
    (void)state;
    sum_program(&p, slot);
    assert_ok(ech_program_place(&p, NULL));
    hand_start(&p, true, &run);
    for (int above = 0; above < 2; above++) {
        int how = 0;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (!freopen("/dev/null", "w", stderr) || signal(SIGABRT, SIG_DFL) == SIG_ERR)
                _exit(2);
            ech_engine_set_int(run.engine[0], ECH_CELL_NEW_TOKENS, above ? MOST + 1 : -1);
            ech_engine_begin(run.engine[0], 0, ECH_SEGMENT_ACCUMULATE);
            _exit(ech_engine_advance(run.engine[0]) == ECH_DONE ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        assert_int_equal(WTERMSIG(how), SIGABRT);
    }
    hand_stop(&run);
    ech_program_fini(&p);
}

/* --- generation --- */

enum { CONTEXT = 12, PROMPT = 9 };

typedef struct generation {
    ech_model model;
    ech_canon canon;
    ech_program program;
    ech_run_slots slots;
    hand_run run;
    int64_t position;
} generation;

static void generation_start(generation *g, tiny_kind kind, int64_t chunk)
{
    g->model = tiny_model(kind, 0.0);
    g->position = 0;
    assert_ok(ech_canon_create(&g->model, &g->canon));
    const ech_compile_spec spec = {.block = {.model = &g->model,
                                             .canon = &g->canon,
                                             .real = ECH_F64,
                                             .seq = chunk,
                                             .context = CONTEXT}};
    assert_ok(ech_compile_generate(&spec, &g->program, &g->slots));
    hand_start(&g->program, true, &g->run);
    double *params = ech_engine_state(g->run.engine[0], g->slots.params[0]);
    for (int64_t e = 0; e < g->canon.elems; e++) /* one rank: everything is in one part */
        params[e] = 0.3 * (double)((e * 7919 + 13) % 101) / 101.0 - 0.15;
    if (g->slots.rope >= 0)
        ech_rope_table_fill(&g->model, CONTEXT, ech_engine_state(g->run.engine[0], g->slots.rope));
}

static void generation_stop(generation *g)
{
    hand_stop(&g->run);
    ech_program_fini(&g->program);
    ech_canon_fini(&g->canon);
}

/* Feed n tokens of the fixed prompt; the last one's logits. */
static const double *feed(generation *g, int64_t n)
{
    ech_engine *e = g->run.engine[0];
    int32_t *tokens = ech_engine_state(e, g->slots.tokens);
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((g->position + i) * 5 % g->model.vocab);
    ech_engine_set_int(e, ECH_CELL_POSITION, g->position);
    ech_engine_set_int(e, ECH_CELL_NEW_TOKENS, n);
    ech_engine_begin(e, 0, ECH_SEGMENT_ACCUMULATE);
    assert_int_equal(ech_engine_advance(e), ECH_DONE);
    g->position += n;
    return (double *)ech_engine_state(e, g->slots.logits) + (n ? n - 1 : 0) * g->canon.vocab_padded;
}

static void assert_logits(const generation *g, const double *got, const double *wanted)
{
    for (int64_t v = 0; v < g->model.vocab; v++)
        assert_near(got[v], wanted[v], 1e-12);
}

static void check_generation(tiny_kind kind)
{
    static const int64_t splits[][PROMPT] = {
        {1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 0, 5}, {0, 2, 0, 3, 4}, {5, 4}, {8, 1}};
    generation whole;
    generation_start(&whole, kind, PROMPT);
    const double *wanted = feed(&whole, PROMPT);
    for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++) {
        generation parts;
        const double *got = NULL;
        generation_start(&parts, kind, PROMPT);
        for (int i = 0; parts.position < PROMPT; i++)
            got = feed(&parts, splits[s][i]);
        assert_logits(&whole, got, wanted);
        generation_stop(&parts);
    }
    generation_stop(&whole);
}

static void test_prompts_in_pieces(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_TINY; kind++)
        check_generation((tiny_kind)kind);
}

static void test_no_token_changes_nothing(void **state)
{
    generation g;
    (void)state;
    generation_start(&g, TINY_LLAMA, PROMPT);
    (void)feed(&g, 5);
    const size_t bytes = g.program.state_bytes[ECH_SPACE_DEVICE];
    unsigned char *all = ech_engine_state(g.run.engine[0], 0);
    unsigned char *before = malloc(bytes);
    ech_engine_set_int(g.run.engine[0], ECH_CELL_POSITION, 5);
    ech_engine_set_int(g.run.engine[0], ECH_CELL_NEW_TOKENS, 0);
    memcpy(before, all, bytes);
    ech_engine_times_reset(g.run.engine[0]);
    (void)feed(&g, 0);
    assert_memory_equal(all, before, bytes);
    assert_true(ech_engine_times_get(g.run.engine[0]).ops > 15); /* every op has run */
    free(before);
    generation_stop(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fewer_and_none),
        cmocka_unit_test(test_an_extent_beyond_its_bound_stops_the_run),
        cmocka_unit_test(test_prompts_in_pieces),
        cmocka_unit_test(test_no_token_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
