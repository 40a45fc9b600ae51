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

/* tp, dp, shard group, stage, sequence parallel. */
typedef struct deal {
    int tp, dp, shard_group, stage;
    bool is_sequence_parallel;
} deal;

static const deal deals[] = {
    {1, 1, 0, 0, false}, {1, 3, 0, 0, false}, {1, 3, 0, 1, false}, {1, 2, 0, 2, false},
    {1, 4, 2, 3, false}, {2, 1, 0, 0, false}, {2, 2, 0, 3, true},  {4, 1, 0, 0, true},
};
enum { N_DEALS = sizeof deals / sizeof *deals };

static tiny_spec spec_of(const deal *d)
{
    tiny_spec s = tiny_spec_default();
    s.kind = TINY_LLAMA; /* two key/value heads: shared at tp 4 */
    s.tp = d->tp;
    s.dp = d->dp;
    s.shard_group = d->shard_group;
    s.policy.zero_stage = d->stage;
    s.policy.is_sequence_parallel = d->is_sequence_parallel;
    s.policy.reshards_after_forward = d->stage == 3;
    s.rows = ROWS / d->dp;
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

static void go_on(const deal *d, const char *path, double *const saved[ECH_N_HELD],
                  double *const end[ECH_N_HELD], double limit)
{
    const tiny_spec spec = spec_of(d);
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

static void test_every_pair(void **state)
{
    for (int a = 0; a < N_DEALS; a++) {
        const tiny_spec spec = spec_of(&deals[a]);
        tiny_run run;
        double *saved[ECH_N_HELD];
        double *end[ECH_N_HELD];
        ech_ckpt_saved where;
        const ech_state_spec what = {.dir = in_folder(state, "pairs"),
                                     .run = {.step = a, .generation = 1, .updates = BEFORE}};
        tiny_start(&spec, &run);
        steps(&run, 0, BEFORE);
        assert_ok(ech_state_save(run.session, &what, &where));
        read_all(&run, saved);
        steps(&run, BEFORE, AFTER);
        read_all(&run, end);
        tiny_stop(&run);
        for (int b = 0; b < N_DEALS; b++)
            go_on(&deals[b], where.path, saved, end, a == b ? 0.0 : 1e-9);
        drop(saved);
        drop(end);
    }
}

/* Another optimizer wants moments that were not saved. */
static void test_without_moments(void **state)
{
    tiny_spec spec = spec_of(&deals[0]);
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
        cmocka_unit_test(test_without_moments),
    };
    return cmocka_run_group_tests(tests, ckpt_folder_setup, folder_teardown);
}
