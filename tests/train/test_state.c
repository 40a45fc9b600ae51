/* RUN: np=1 timeout=60 tags=fast */
/* A run saved on one layout goes on on another: state bit for bit, and then the same training; bit
 * for bit where the layout is the same. */
#include "check.h"
#include "ckpt_case.h"
#include "folder.h"
#include "tiny.h"

#include "train/state.h"

#include <stdlib.h>

enum { ROWS = 12, BEFORE = 3, AFTER = 2 };

#define ALONE 1, ECH_SCHEDULE_1F1B, 1, 1

/* tp, dp, shard group, stage, sequence parallel; pipeline. */
typedef struct deal {
    int tp, dp, shard_group, stage;
    bool is_sequence_parallel;
    int pp;
    ech_schedule_kind schedule;
    int chunks, micros;
} deal;

static const deal deals[] = {
    {1, 1, 0, 0, false, ALONE}, {1, 3, 0, 0, false, ALONE}, {1, 3, 0, 1, false, ALONE},
    {1, 2, 0, 2, false, ALONE}, {1, 4, 2, 3, false, ALONE}, {2, 1, 0, 0, false, ALONE},
    {2, 2, 0, 3, true, ALONE},  {4, 1, 0, 0, true, ALONE},
};

/* A tied table on one rank, and on two of a pipeline. */
static const deal pipelines[] = {
    {1, 1, 0, 0, false, ALONE},
    {2, 1, 0, 0, false, ALONE},
    {1, 2, 0, 1, false, 2, ECH_SCHEDULE_1F1B, 1, 2},
    {1, 1, 0, 0, false, 4, ECH_SCHEDULE_1F1B, 1, 3},
    {1, 2, 0, 3, false, 2, ECH_SCHEDULE_ZB_V, 2, 3},
    {2, 2, 0, 1, true, 2, ECH_SCHEDULE_INTERLEAVED, 2, 2},
    {1, 4, 2, 3, false, 3, ECH_SCHEDULE_ZB_H1, 1, 1},
};

#define N_OF(list) (int)(sizeof(list) / sizeof(list)[0])

static tiny_spec spec_of(const deal *d, tiny_kind kind)
{
    tiny_spec s = tiny_spec_default();
    s.kind = kind; /* two key/value heads: shared at tp 4 */
    s.layers = kind == TINY_TIED_LLAMA ? 4 : 2;
    s.pp = d->pp;
    s.schedule = d->schedule;
    s.chunks = d->chunks;
    s.accumulation = d->micros;
    s.tp = d->tp;
    s.dp = d->dp;
    s.shard_group = d->shard_group;
    s.policy.zero_stage = d->stage;
    s.policy.is_sequence_parallel = d->is_sequence_parallel;
    s.policy.reshards_after_forward = d->stage == 3;
    s.rows = ROWS / (d->dp * s.accumulation);
    s.seq = 8;
    s.optim = ECH_UPDATE_ADAMW;
    return s;
}

static bool all_of_them(int64_t row, int64_t position, void *user)
{
    (void)row;
    (void)position;
    (void)user;
    return true;
}

static void steps(tiny_run *run, int from, int n)
{
    for (int i = from; i < from + n; i++) {
        tiny_feed(run, i, all_of_them, NULL);
        (void)tiny_step(run, i, 0.01);
    }
}

static double *all_of(const tiny_run *run, ech_held_class what)
{
    const size_t bytes = (size_t)run->session->canon.elems * sizeof(double);
    double *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, tiny_all(run->session, what), bytes);
    return copy;
}

static void expect_same(const tiny_run *run, double *const wanted[ECH_N_HELD], double limit)
{
    for (int c = 0; c < ECH_N_HELD; c++) {
        const double *got = tiny_all(run->session, (ech_held_class)c);
        if (c == ECH_HELD_GRADS)
            continue;
        for (int64_t i = 0; i < run->session->canon.elems; i++) {
            const double d = got[i] - wanted[c][i];
            if (!(d <= limit && -d <= limit))
                fail_msg("%s[%lld]: got %.17g, wanted %.17g",
                         ech_held_class_name((ech_held_class)c), (long long)i, got[i],
                         wanted[c][i]);
        }
    }
}

static void read_all(const tiny_run *run, double *out[ECH_N_HELD])
{
    for (int c = 0; c < ECH_N_HELD; c++)
        out[c] = all_of(run, (ech_held_class)c);
}

static void drop(double *state[ECH_N_HELD])
{
    for (int c = 0; c < ECH_N_HELD; c++)
        free(state[c]);
}

static void go_on(const deal *d, tiny_kind kind, const char *path, double *const saved[ECH_N_HELD],
                  double *const end[ECH_N_HELD], double limit)
{
    const tiny_spec spec = spec_of(d, kind);
    tiny_run run;
    ech_ckpt *c = NULL;
    tiny_start(&spec, &run);
    assert_ok(ech_ckpt_open(path, &c));
    assert_ok(ech_ckpt_check_model(c, &run.session->model, &run.session->canon));
    assert_ok(ech_state_load(run.session, c));
    ech_ckpt_close(&c);
    expect_same(&run, saved, 0.0);
    steps(&run, BEFORE, AFTER);
    expect_same(&run, end, limit);
    tiny_stop(&run);
}

static void check_every_pair(const deal *deal_of, int n, tiny_kind kind, const char *dir)
{
    for (int a = 0; a < n; a++) {
        const tiny_spec spec = spec_of(&deal_of[a], kind);
        tiny_run run;
        double *saved[ECH_N_HELD];
        double *end[ECH_N_HELD];
        ech_ckpt_saved where;
        const ech_state_spec what = {.dir = dir,
                                     .run = {.step = a, .generation = 1, .updates = BEFORE}};
        tiny_start(&spec, &run);
        steps(&run, 0, BEFORE);
        assert_ok(ech_state_save(run.session, &what, &where));
        read_all(&run, saved);
        steps(&run, BEFORE, AFTER);
        read_all(&run, end);
        tiny_stop(&run);
        for (int b = 0; b < n; b++)
            go_on(&deal_of[b], kind, where.path, saved, end, a == b ? 0.0 : 1e-9);
        drop(saved);
        drop(end);
    }
}

static void test_every_pair(void **state)
{
    check_every_pair(deals, N_OF(deals), TINY_LLAMA, in_folder(state, "pairs"));
}

static void test_every_pair_of_pipelines(void **state)
{
    check_every_pair(pipelines, N_OF(pipelines), TINY_TIED_LLAMA, in_folder(state, "pipelines"));
}

/* Another optimizer wants moments that were not saved. */
static void test_without_moments(void **state)
{
    tiny_spec spec = spec_of(&deals[0], TINY_LLAMA);
    tiny_run run;
    ech_ckpt_saved where;
    ech_ckpt *c = NULL;
    const ech_state_spec what = {.dir = in_folder(state, "sgd"),
                                 .run = {.step = 1, .generation = 1}};
    spec.optim = ECH_UPDATE_SGD;
    tiny_start(&spec, &run);
    assert_ok(ech_state_save(run.session, &what, &where));
    tiny_stop(&run);
    assert_ok(ech_ckpt_open(where.path, &c));
    spec.optim = ECH_UPDATE_ADAMW;
    tiny_start(&spec, &run);
    assert_fails(ech_state_load(run.session, c), ECH_E_CONFIG, "no moment_m were saved");
    tiny_stop(&run);
    ech_ckpt_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_every_pair_of_pipelines),
        cmocka_unit_test(test_without_moments),
    };
    return cmocka_run_group_tests(tests, ckpt_folder_setup, folder_teardown);
}
