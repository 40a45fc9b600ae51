/* RUN: np=1 timeout=20 tags=fast */
/* Days, money and what failures take, against sums by hand. */
#include "check.h"
#include "plan/goal.h"

#include <math.h>

typedef struct asked {
    ech_model model;
    ech_cluster cluster;
    ech_job job;
    ech_point point;
    ech_step_price step;
} asked;

/* A cluster whose figures are round: 8 devices a node, a failure in 50,000 device-hours. */
static void ask(asked *a, int64_t gpus)
{
    assert_ok(ech_model_load("llama-3-8b", &a->model));
    assert_ok(ech_cluster_load("h100-sxm-80", &a->cluster));
    a->cluster.failure_hours = 50000.0;
    a->cluster.device.link_bytes_per_s = 50e9;
    a->cluster.device.dollars_per_hour = 2.0;
    a->cluster.device.watts = 700.0;
    a->cluster.node_watts = 2400.0; /* 300 a device */
    a->cluster.power_overhead = 1.25;
    a->cluster.storage_read_bytes_per_s = a->cluster.storage_write_bytes_per_s = 10e9;
    a->job = ech_job_default(ECH_SYSTEM_MEGATRON);
    a->job.model = &a->model;
    a->job.cluster = &a->cluster;
    a->job.gpus = gpus;
    a->job.seq = 8192;
    a->job.global_batch = 1024;
    a->job.tokens = 1e12;
    a->point = ech_point_default();
    a->point.dp = (int32_t)gpus;
    a->point.zero_stage = 1;
    a->step = (ech_step_price){.step_s = 5.0};
}

static double lost(double t, double c, double r, double m)
{
    return c / t + (0.5 * t + r) / m;
}

static void test_sums_by_hand(void **state)
{
    (void)state;
    asked a = {0};
    ech_goal_cost g;
    ask(&a, 1000);
    ech_goal_of(&a.job, &a.point, &a.step, NULL, &g);
    const double bytes = 14.0 * 8030261248.0, c = 0.5 + bytes / 1000 / (0.8 * 50e9),
                 m = 50.0 * 3600.0;
    const double r = 600.0 + bytes / 10e9;
    assert_near(g.goodput.checkpoint_bytes, bytes, 1e-9 * bytes);
    assert_near(g.goodput.blocked_s, c, 1e-9 * c);
    assert_near(g.goodput.mtbf_s, m, 1e-9 * m);
    assert_near(g.goodput.restart_s, r, 1e-9 * r);
    assert_near(g.goodput.young_s, sqrt(2 * c * m), 1e-9 * m);
    const double best = c + sqrt(2 * (m + r) * c + c * c);
    assert_near(g.goodput.interval_s, best, 1e-9 * best);
    assert_near(g.goodput.lost, lost(best, c, r, m), 1e-12);
    /* No other interval loses less, recovery counted as the objective does. */
    for (double t = 0.5 * best; t < 2.0 * best; t *= 1.1)
        assert_true(lost(t, c, r, m) >= g.goodput.lost * (1.0 - 1e-4));
    assert_near(g.steps, 119210.0, 0.0); /* ceil(1e12 / 8388608) */
    assert_near(g.ideal_days, 119210.0 * 5.0 / 86400.0, 1e-9);
    assert_near(g.days, g.ideal_days / (1.0 - g.goodput.lost), 1e-9);
    assert_near(g.gpu_hours, g.days * 24000.0, 1e-6);
    assert_near(g.dollars, g.gpu_hours * 2.0, 1e-6);
    assert_near(g.megawatt_hours, g.gpu_hours * 1000.0 * 1.25 / 1e6, 1e-9);
}

/* 419 unplanned interruptions in 54 days on 16,384 GPUs: one in 3.1 hours (Grattafiori et al. 2024). */
static void test_published_rate_of_failures(void **state)
{
    (void)state;
    asked a = {0};
    ech_goal_cost g;
    ask(&a, 16384);
    assert_ok(ech_cluster_load("h100-sxm-80", &a.cluster));
    ech_goal_of(&a.job, &a.point, &a.step, NULL, &g);
    assert_near(g.goodput.mtbf_s / 3600.0, 54.0 * 24.0 / 419.0, 0.05);
    assert_true(g.goodput.goodput > 0.9);
}

/* What is not sharded is saved by one replica: it stands longer; what is written slowly is saved
 * less often. */
static void test_slow_saves(void **state)
{
    (void)state;
    asked a = {0};
    ech_goal_cost sharded, whole, slow;
    ask(&a, 1000);
    ech_goal_of(&a.job, &a.point, &a.step, NULL, &sharded);
    a.point.zero_stage = 0;
    ech_goal_of(&a.job, &a.point, &a.step, NULL, &whole);
    assert_near(whole.goodput.blocked_s - 0.5, 1000.0 * (sharded.goodput.blocked_s - 0.5), 1e-6);
    a.cluster.storage_write_bytes_per_s = 1e8;
    ech_goal_of(&a.job, &a.point, &a.step, NULL, &slow);
    assert_near(slow.goodput.interval_s, 14.0 * 80.30261248, 1e-6);
}

static void test_no_tokens_no_days(void **state)
{
    (void)state;
    asked a = {0};
    ech_goal_cost g;
    ask(&a, 8);
    a.job.tokens = 0.0;
    ech_goal_of(&a.job, &a.point, &a.step, NULL, &g);
    assert_true(isnan(g.days) && isnan(g.dollars));
    assert_true(g.goodput.goodput > 0.99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_by_hand),
        cmocka_unit_test(test_published_rate_of_failures),
        cmocka_unit_test(test_slow_saves),
        cmocka_unit_test(test_no_tokens_no_days),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
