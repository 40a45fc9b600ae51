/* RUN: np=1 timeout=20 tags=fast */
/* The price of a step: its parts add up, the bound is below it, stages and ops agree with it. */
#include "check.h"
#include "price/compose.h"
#include "price/footprint.h"
#include "price/rate.h"
#include "price/rates.h"
#include "price/step.h"

#include <math.h>

static ech_model gpt(int64_t layers, int64_t hidden, int64_t heads)
{
    ech_model m = ech_model_default(ECH_ARCH_GPT2);
    m.layers = layers;
    m.hidden = hidden;
    m.heads = m.kv_heads = heads;
    m.head_dim = hidden / heads;
    m.ffn = 4 * hidden;
    m.vocab = 51200;
    m.context = 2048;
    return m;
}

static ech_job job_of(const ech_model *m, const ech_cluster *c)
{
    ech_job j = ech_job_default(ECH_SYSTEM_MEGATRON);
    j.model = m;
    j.cluster = c;
    j.gpus = 64;
    j.seq = 2048;
    j.global_batch = 512;
    j.generation = ECH_GENERATION_MEGATRON_2021;
    j.precision = ECH_PRECISION_FP16;
    return j;
}

static void check_parts(ech_pricer *pricer, const ech_point *p, const char *what)
{
    ech_step_price s;
    ech_pricer_step(pricer, p, NULL, &s);
    double sum = s.compute_s + s.recompute_s + s.bubble_s + s.offload_s + s.optimizer_s + s.fixed_s;
    for (int a = 0; a < ECH_N_AXES; a++)
        sum += s.exposed_s[a];
    print_message("%s: step %g s, bubble %g\n", what, s.step_s, s.bubble_s);
    assert_near(sum, s.step_s, 1e-9 * s.step_s);
    assert_true(s.bubble_s > -1e-9 * s.step_s);
    const double bound = ech_pricer_bound(pricer, p);
    assert_true(bound > 0.3 * s.step_s);
    assert_true(bound <= s.step_s);
}

static void parts_add_up(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(30, 3072, 32);
    assert_ok(ech_cluster_load("a100-sxm-80", &c));
    const ech_job job = job_of(&m, &c);
    ech_pricer *pricer = NULL;
    assert_ok(ech_pricer_create(&job, NULL, &pricer));
    ech_point p = ech_point_default();
    p.dp = 64;
    p.micro = 4;
    p.recompute = ECH_RECOMPUTE_FULL;
    check_parts(pricer, &p, "dp");
    p.dp = 8;
    p.tp = 4;
    p.pp = 2;
    check_parts(pricer, &p, "tp and pp");
    p.zero_stage = 3;
    check_parts(pricer, &p, "sharded");
    ech_pricer_destroy(&pricer);
}

/* Every legal layout of a small space: parts add up, nothing is below the bound, prices kept are the
 * prices made. */
static void over_a_space(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(16, 2048, 16);
    assert_ok(ech_cluster_load("a100-sxm-80", &c));
    const ech_job job = job_of(&m, &c);
    ech_pricer *kept = NULL, *fresh = NULL;
    assert_ok(ech_pricer_create(&job, NULL, &kept));
    assert_ok(ech_pricer_create(&job, NULL, &fresh));
    int n = 0;
    for (int bits = 0; bits < 4 * 4 * 3 * 4 * 2; bits++) {
        ech_point p = ech_point_default();
        p.tp = 1 << bits % 4;
        p.pp = 1 << bits / 4 % 4;
        p.micro = 1 << bits / 16 % 3;
        p.zero_stage = bits / 48 % 4;
        p.recompute = bits / 192 ? ECH_RECOMPUTE_FULL : 0;
        p.dp = 64 / p.tp / p.pp;
        if (!ech_point_is_legal(&job, &p, NULL))
            continue;
        ech_step_price a, b;
        ech_pricer_step(kept, &p, NULL, &a);
        ech_pricer_rebind(fresh, &job, NULL);
        ech_pricer_step(fresh, &p, NULL, &b);
        assert_memory_equal(&a, &b, sizeof a);
        assert_true(a.bubble_s > -1e-9 * a.step_s);
        assert_true(ech_pricer_bound(kept, &p) <= a.step_s);
        n++;
    }
    print_message("%d layouts\n", n);
    assert_true(n > 40);
    ech_pricer_destroy(&kept);
    ech_pricer_destroy(&fresh);
}

/* The table of ops holds the compute that the step has, but for what hosts and messages add. */
static void ops_add_up(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(30, 3072, 32);
    assert_ok(ech_cluster_load("a100-sxm-80", &c));
    const ech_job job = job_of(&m, &c);
    ech_pricer *pricer = NULL;
    ech_step_price s;
    ech_op_price op[128];
    assert_ok(ech_pricer_create(&job, NULL, &pricer));
    ech_point p = ech_point_default();
    p.dp = 64;
    p.micro = 8;
    ech_pricer_step(pricer, &p, NULL, &s);
    const int n = ech_pricer_ops(pricer, &p, op, 128);
    double seconds = 0, flops = 0;
    for (int i = 0; i < n; i++) {
        seconds += op[i].count * op[i].seconds;
        flops += op[i].count * op[i].flops;
        assert_true(op[i].efficiency > 0);
        assert_true(op[i].efficiency < 1.01);
    }
    ech_pricer_destroy(&pricer);
    assert_true(n > 20 && n < 128);
    assert_near(seconds, s.compute_s, 0.02 * s.compute_s);
    assert_near(flops * 64, s.hardware_flops, 1e-6 * s.hardware_flops);
}

/* Idle time is what the pipeline takes beyond the work of its mean rank: composed here from the stages'
 * times, and in 1F1B of even stages p - 1 micro-batches of the slowest. */
static void bubble_is_the_pipelines(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(32, 3072, 32);
    assert_ok(ech_cluster_load("a100-sxm-80", &c));
    const ech_job job = job_of(&m, &c);
    ech_pricer *pricer = NULL;
    ech_compose_room room = {0};
    assert_ok(ech_pricer_create(&job, NULL, &pricer));
    assert_ok(ech_compose_reserve(&room, 8, 0));
    for (int vpp = 1; vpp <= 2; vpp++) {
        double forward[16], backward[16], weight[16], hop = 0, work = 0, slowest = 0;
        ech_step_price s;
        ech_point p = ech_point_default();
        p.tp = 2;
        p.pp = 8;
        p.dp = 4;
        p.micro = 4;
        p.split = ECH_SPLIT_EVEN;
        p.vpp = vpp;
        p.schedule = vpp > 1 ? ECH_SCHEDULE_INTERLEAVED : ECH_SCHEDULE_1F1B;
        const int64_t micros = 512 / (4 * 4);
        ech_pricer_step(pricer, &p, NULL, &s);
        ech_pricer_stages(pricer, &p, forward, backward, weight, &hop);
        for (int i = 0; i < 8 * vpp; i++) {
            work += forward[i] + backward[i];
            slowest = fmax(slowest, forward[i] + backward[i]);
        }
        const ech_compose_spec spec = {.kind = p.schedule,
                                       .ranks = 8,
                                       .chunks = vpp,
                                       .micros = micros,
                                       .forward = forward,
                                       .backward = backward,
                                       .hop_s = hop};
        const double idle = ech_compose(&spec, &room).makespan_s - (double)micros * work / 8;
        assert_near(s.bubble_s, idle, 1e-9 * s.step_s);
        if (vpp == 1) {
            assert_true(s.bubble_s > 0.9 * 7 * work / 8);
            assert_true(s.bubble_s < 7 * slowest + (double)micros * (slowest - work / 8));
        }
    }
    ech_compose_fini(&room);
    ech_pricer_destroy(&pricer);
}

/* Hardware FLOPs are those of the model and a forward of the layers once more: 8 N + 16 L s h over 6 N + 12
 * L s h a token, but for the head; without recomputation the same. */
static void recomputed_flops(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(30, 3072, 32);
    assert_ok(ech_cluster_load("a100-sxm-80", &c));
    const ech_job job = job_of(&m, &c);
    ech_pricer *pricer = NULL;
    assert_ok(ech_pricer_create(&job, NULL, &pricer));
    ech_point p = ech_point_default();
    p.tp = 2;
    p.pp = 2;
    p.dp = 16;
    p.micro = 4;
    const double layers = 30 * 12.0 * 3072 * 3072, head = 51200.0 * 3072,
                 scores = 30 * 2048.0 * 3072;
    for (int full = 0; full < 2; full++) {
        ech_step_price s;
        p.recompute = full ? ECH_RECOMPUTE_FULL : 0;
        ech_pricer_step(pricer, &p, NULL, &s);
        const ech_step_rates r = ech_step_rates_of(&job, &s);
        const double model = 6 * (layers + head) + 12 * scores;
        const double again = full ? 2 * layers + 4 * scores : 0;
        assert_near(r.hfu / r.mfu, 1 + again / model, 1e-9);
    }
    ech_pricer_destroy(&pricer);
}

/* A precision that was never measured reaches the share of its peak that bf16 does, not more. */
static void unmeasured_precisions(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(30, 4096, 32);
    ech_job job = ech_job_default(ECH_SYSTEM_FSDP2);
    assert_ok(ech_cluster_load("mi300x", &c));
    const ech_device *d = &c.device;
    assert_true(d->gemm_flops[ECH_PRECISION_BF16] > 0);
    assert_true(d->gemm_flops[ECH_PRECISION_FP8] <= 0);
    job.model = &m;
    job.cluster = &c;
    double share[2];
    for (int i = 0; i < 2; i++) {
        ech_rates r;
        job.precision = i ? ECH_PRECISION_FP8 : ECH_PRECISION_BF16;
        ech_rates_of(&job, ech_constants_builtin(), &r);
        share[i] = r.flops / d->peak_flops[job.precision];
    }
    assert_true(share[0] < 0.55);
    assert_true(share[1] <= share[0]);
    assert_true(share[1] > 0.7 * share[0]);
}

/* Reductions of every micro-batch hide under every micro-batch's backward. */
static void each_reduction_has_its_window(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(30, 4096, 32);
    assert_ok(ech_cluster_load("a100-sxm-80", &c));
    for (int i = 1; i < c.n_levels; i++)
        c.level[i].bytes_per_s = c.level[i].alone_bytes_per_s = 2e9; /* more than backward hides */
    ech_job job = ech_job_default(ECH_SYSTEM_DEEPSPEED);
    job.model = &m;
    job.cluster = &c;
    job.gpus = 64;
    job.seq = 2048;
    double hidden[2];
    ech_pricer *pricer = NULL;
    ech_point p = ech_point_default();
    p.dp = 64;
    p.zero_stage = 2;
    p.reduce_each = true;
    for (int i = 0; i < 2; i++) {
        ech_step_price s;
        job.global_batch = i ? 64 * 64 : 64 * 8;
        if (pricer == NULL)
            assert_ok(ech_pricer_create(&job, NULL, &pricer));
        ech_pricer_rebind(pricer, &job, NULL);
        ech_pricer_step(pricer, &p, NULL, &s);
        hidden[i] = s.hidden_s[ECH_AXIS_DP];
        /* Never more than all backwards, and the next forward of one. */
        assert_true(hidden[i] <= s.compute_s);
    }
    assert_true(hidden[0] > 0);
    assert_true(hidden[1] > 7 * hidden[0]);
    assert_true(hidden[1] < 8.01 * hidden[0]);
    ech_pricer_destroy(&pricer);
}

/* Whole gradients where they are reduced once a step, shards where every micro-batch reduces: memory and
 * messages say the same. */
static void one_rule_for_reductions(void **state)
{
    (void)state;
    ech_cluster c;
    const ech_model m = gpt(30, 4096, 32);
    assert_ok(ech_cluster_load("a100-sxm-80", &c));
    ech_job job = ech_job_default(ECH_SYSTEM_FSDP2);
    job.model = &m;
    job.cluster = &c;
    job.gpus = 64;
    job.seq = 2048;
    job.global_batch = 64 * 8;
    ech_pricer *pricer = NULL;
    assert_ok(ech_pricer_create(&job, NULL, &pricer));
    double bytes[2], sent[2];
    for (int each = 0; each < 2; each++) {
        ech_point p = ech_point_default();
        ech_step_price s;
        double held[ECH_N_USES] = {0};
        p.dp = 64;
        p.zero_stage = 3;
        p.reduce_each = each == 1;
        ech_pricer_step(pricer, &p, NULL, &s);
        (void)ech_footprint_state(&job, &p, 1e9, NULL, held);
        bytes[each] = held[ECH_USE_GRADS];
        sent[each] = s.sent_bytes[ECH_AXIS_DP];
    }
    assert_true(bytes[0] >= 2e9);           /* whole */
    assert_true(bytes[1] < 0.1 * bytes[0]); /* a 64th */
    assert_true(sent[1] > 1.2 * sent[0]);
    ech_pricer_destroy(&pricer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_add_up),
                                       cmocka_unit_test(over_a_space),
                                       cmocka_unit_test(ops_add_up),
                                       cmocka_unit_test(bubble_is_the_pipelines),
                                       cmocka_unit_test(recomputed_flops),
                                       cmocka_unit_test(unmeasured_precisions),
                                       cmocka_unit_test(each_reduction_has_its_window),
                                       cmocka_unit_test(one_rule_for_reductions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
