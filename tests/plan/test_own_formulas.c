/* RUN: np=1 timeout=30 tags=fast */
/* The formulas of Echelon's memory against what its compiled programs hold: state to the byte, all
 * together within four percent, one percent in the mean, whatever the layout. */
#include "check.h"
#include "plan/own.h"

#include <math.h>

/* One layout. */
typedef struct layout {
    const char *model;
    int layers, dp, tp, pp, vpp, stage, micro, micros;
    ech_schedule_kind schedule;
    bool sp, each, keeps; /* sequence parallel, reduced each micro-batch, not resharded */
    uint32_t recompute;
} layout;

static const layout layouts[] = {
    {"gpt2-124m", 12, 1, 1, 1, 1, 0, 2, 1, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"llama-3.2-1b", 4, 1, 1, 1, 1, 0, 2, 1, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"gpt2-124m", 12, 2, 1, 1, 1, 1, 2, 2, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"gpt2-124m", 12, 4, 1, 1, 1, 2, 2, 2, ECH_SCHEDULE_1F1B, false, true, false, 0},
    {"gpt2-124m", 12, 4, 1, 1, 1, 2, 2, 2, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"gpt2-124m", 12, 4, 1, 1, 1, 3, 2, 2, ECH_SCHEDULE_1F1B, false, true, false, 0},
    {"gpt2-124m", 12, 4, 1, 1, 1, 3, 2, 2, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"llama-2-7b", 8, 4, 1, 1, 1, 3, 1, 1, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"llama-2-7b", 8, 4, 1, 1, 1, 3, 1, 2, ECH_SCHEDULE_1F1B, false, true, true, 0},
    {"gpt2-124m", 12, 1, 4, 1, 1, 0, 4, 1, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"gpt2-124m", 12, 1, 4, 1, 1, 0, 4, 1, ECH_SCHEDULE_1F1B, true, false, false, 0},
    {"gpt2-124m", 12, 1, 1, 4, 1, 0, 4, 8, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"llama-2-7b", 8, 1, 1, 4, 1, 0, 4, 8, ECH_SCHEDULE_1F1B, false, false, false, 0},
    {"llama-2-7b", 8, 1, 1, 4, 1, 0, 4, 8, ECH_SCHEDULE_GPIPE, false, false, false, 0},
    {"llama-2-7b", 8, 1, 1, 4, 2, 0, 4, 8, ECH_SCHEDULE_INTERLEAVED, false, false, false, 0},
    {"llama-2-7b", 8, 1, 1, 4, 1, 0, 4, 8, ECH_SCHEDULE_ZB_H1, false, false, false, 0},
    {"llama-2-7b", 8, 1, 1, 4, 2, 0, 4, 8, ECH_SCHEDULE_ZB_V, false, false, false, 0},
    {"llama-2-7b", 8, 2, 2, 2, 1, 2, 2, 8, ECH_SCHEDULE_1F1B, true, false, false, 0},
    {"llama-2-7b", 8, 2, 2, 2, 1, 3, 2, 4, ECH_SCHEDULE_1F1B, true, true, false, 0},
    {"llama-2-7b", 8, 1, 1, 1, 1, 0, 4, 1, ECH_SCHEDULE_1F1B, false, false, false,
     ECH_RECOMPUTE_FULL},
    {"llama-2-7b", 8, 1, 2, 2, 1, 0, 4, 8, ECH_SCHEDULE_1F1B, true, false, false,
     ECH_RECOMPUTE_FULL},
    {"llama-2-7b", 8, 1, 1, 1, 1, 0, 4, 1, ECH_SCHEDULE_1F1B, false, false, false,
     ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT},
};

static ech_point point_of(const layout *l)
{
    ech_point p = ech_point_default();
    p.dp = l->dp;
    p.tp = l->tp;
    p.pp = l->pp;
    p.vpp = l->vpp;
    p.zero_stage = l->stage;
    p.micro = l->micro;
    p.schedule = l->schedule;
    p.sequence_parallel = l->sp;
    p.reduce_each = l->each;
    p.reshard_after_forward = !l->keeps;
    p.recompute = l->recompute;
    return p;
}

static void check_state(int at, const ech_footprint_stage *program, const ech_footprint_stage *rule)
{
    static const ech_use classes[] = {ECH_USE_PARAMS, ECH_USE_GRADS, ECH_USE_OPTIMIZER};
    for (int i = 0; i < 3; i++) {
        const double a = program->held[classes[i]];
        const double b = rule->held[classes[i]];
        if (fabs(b - a) > 1e-3 * a) /* flat ranges are padded */
            fail_msg("layout %d: %s: %.0f, formula %.0f", at, ech_use_name(classes[i]), a, b);
    }
}

static int compared;
static double missed;

static void check(int at, const layout *l)
{
    static ech_own own;
    static ech_footprint f;
    ech_model m;
    ech_cluster c;
    assert_ok(ech_model_load(l->model, &m));
    assert_ok(ech_cluster_load("cpu-64c-avx512", &c));
    ech_cluster_rebind(&c);
    m.layers = l->layers;
    m.context = 1024;
    ech_job job = ech_job_default(ECH_SYSTEM_ECHELON);
    job.model = &m;
    job.cluster = &c;
    job.seq = 256;
    job.precision = ECH_PRECISION_FP32;
    job.grad_bytes = job.wire_bytes = 4;
    job.has_master = false;
    job.gpus = (int64_t)l->dp * l->tp * l->pp;
    job.global_batch = (int64_t)l->dp * l->micro * l->micros;
    const ech_point p = point_of(l);
    const ech_own_spec spec = {.job = &job, .point = &p};
    assert_ok(ech_own_answer(&spec, NULL, &own));
    ech_footprint_of(&job, &p, NULL, &f);
    if (!own.is_exact) {
        print_message("layout %d: %s\n", at, own.marked);
        return;
    }
    compared++;
    check_state(at, &own.memory.stage[own.memory.fullest], &f.stage[own.memory.fullest]);
    const double error = f.allocated_bytes / own.memory.allocated_bytes - 1;
    missed += fabs(error);
    if (fabs(error) > 0.04)
        fail_msg("layout %d: %.0f bytes, formula %.0f: %+.2f %%", at, own.memory.allocated_bytes,
                 f.allocated_bytes, 100 * error);
}

static void test_layouts(void **state)
{
    (void)state;
    const int n = (int)(sizeof layouts / sizeof layouts[0]);
    for (int i = 0; i < n; i++)
        check(i, &layouts[i]);
    assert_true(compared >= 19);
    assert_true(missed / compared < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
