/* RUN: np=1 timeout=120 tags=fast */
/* What may not change one bit, in fp32 with AdamW and clipping on: ZeRO 0 and 1 (all stages where
 * gradients are reduced once), 2 and 3, how far ahead parameters are gathered and whether they are
 * freed between forward and backward, bucket sizes, a shard group that is a product
 * of the tree's first factors against all ranks at once. */
#include "tiny.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24, SEQ = 6, STEPS = 3 };

/* Everything a run leaves: parameters, moments, and what each step came to. */
typedef struct outcome {
    unsigned char *state;
    size_t bytes;
    ech_step_result step[STEPS];
} outcome;

static outcome run_of(const tiny_spec *spec)
{
    outcome o = {0};
    tiny_run run;
    tiny_start(spec, &run);
    for (int i = 0; i < STEPS; i++) {
        tiny_feed(&run, i, NULL, NULL);
        o.step[i] = tiny_step(&run, i, 0.01);
    }
    const size_t one = (size_t)run.session->canon.elems * ech_dtype_bytes(spec->real);
    static const ech_held_class classes[] = {ECH_HELD_PARAMS, ECH_HELD_M, ECH_HELD_V};
    o.bytes = 3 * one;
    o.state = malloc(o.bytes);
    for (int k = 0; k < 3; k++)
        memcpy(o.state + (size_t)k * one, tiny_all(run.session, classes[k]), one);
    tiny_stop(&run);
    return o;
}

static int failures;
static int compared;

static void expect_same(const outcome *a, const tiny_spec *spec, const char *what)
{
    outcome b = run_of(spec);
    bool same = memcmp(a->state, b.state, a->bytes) == 0;
    for (int i = 0; i < STEPS; i++)
        same = same && a->step[i].grad_norm == b.step[i].grad_norm &&
               a->step[i].loss == b.step[i].loss;
    compared++;
    free(b.state);
    if (same)
        return;
    (void)fprintf(stderr, "%s: another bit (tp %d, dp %d, group %d, stage %d, %d micro-batches)\n",
                  what, spec->tp, spec->dp, spec->shard_group, spec->policy.zero_stage,
                  spec->accumulation);
    failures++;
}

static tiny_spec base(int tp, int dp, int accumulation)
{
    tiny_spec s = tiny_spec_default();
    s.kind = TINY_GPT2;
    s.heads = s.kv_heads = 4;
    s.dropout = 0.1;
    s.real = ECH_F32;
    s.optim = ECH_UPDATE_ADAMW;
    s.seq = SEQ;
    s.tp = tp;
    s.dp = dp;
    s.accumulation = accumulation;
    s.rows = ROWS / (dp * accumulation);
    s.policy.is_sequence_parallel = tp > 1;
    s.policy.reshards_after_forward = true;
    s.policy.prefetch = 1;
    s.clip = 0.5;
    s.poison = true;
    return s;
}

static void check_stages(int tp, int dp, int accumulation)
{
    tiny_spec s = base(tp, dp, accumulation);
    outcome last = run_of(&s);
    for (s.policy.zero_stage = 1; s.policy.zero_stage <= 3; s.policy.zero_stage++)
        expect_same(&last, &s, "gradients reduced once");
    free(last.state);
    s.policy.reduces_each = true;
    s.policy.zero_stage = 2;
    outcome each = run_of(&s);
    s.policy.zero_stage = 3;
    expect_same(&each, &s, "gradients reduced every micro-batch");
    free(each.state);
}

static void check_gathers(int tp, int dp)
{
    tiny_spec s = base(tp, dp, 2);
    s.policy.zero_stage = 3;
    outcome one = run_of(&s);
    for (int prefetch = 0; prefetch <= 5; prefetch++)
        for (int reshards = 0; reshards < 2; reshards++) {
            s.policy.prefetch = prefetch;
            s.policy.reshards_after_forward = reshards == 1;
            expect_same(&one, &s, "gathering ahead");
        }
    free(one.state);
}

static void check_buckets(int tp, int dp)
{
    static const int64_t buckets[] = {1, 3000, 20000, 1 << 24};
    tiny_spec s = base(tp, dp, 2);
    outcome one = run_of(&s);
    for (size_t k = 0; k < sizeof buckets / sizeof buckets[0]; k++) {
        s.bucket_bytes = buckets[k];
        expect_same(&one, &s, "bucket size");
    }
    free(one.state);
}

/* Dp 4 in groups of 2, 6 in groups of 2 (of the factors 2, 3), 8 in groups of 2 and 4. */
static void check_groups(int tp)
{
    static const int groups[][2] = {{4, 2}, {6, 2}, {8, 2}, {8, 4}};
    for (size_t k = 0; k < sizeof groups / sizeof groups[0]; k++)
        for (int stage = 1; stage <= 3; stage++)
            for (int each = 0; each <= (stage > 1); each++) {
                tiny_spec s = base(tp, groups[k][0], 1);
                s.policy.zero_stage = stage;
                s.policy.reduces_each = each == 1;
                outcome flat = run_of(&s);
                s.shard_group = groups[k][1];
                expect_same(&flat, &s, "shard group");
                free(flat.state);
            }
}

int main(void)
{
    check_stages(1, 2, 2);
    check_stages(1, 3, 1);
    check_stages(2, 2, 3);
    check_gathers(1, 3);
    check_gathers(2, 2);
    check_buckets(1, 4);
    check_buckets(2, 2);
    check_groups(1);
    check_groups(2);
    (void)fprintf(stderr, "%d pairs of runs, %d differ\n", compared, failures);
    return failures != 0;
}
