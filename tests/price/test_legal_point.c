/* RUN: np=1 timeout=20 tags=fast */
/* Is a layout possible: the fast answer is the one in words, Echelon's is the legality table's, each
 * rule breaks by example and names what would be right. */
#include "check.h"

#include "base/rng.h"
#include "layout/legal.h"
#include "price/job.h"

#include <string.h>

static ech_model dense_model(void)
{
    ech_model m = ech_model_default(ECH_ARCH_LLAMA);
    (void)snprintf(m.name, sizeof m.name, "small");
    m.layers = 24;
    m.hidden = 2048;
    m.heads = 24;
    m.kv_heads = 8;
    m.head_dim = 128;
    m.ffn = 5632;
    m.vocab = 32000;
    m.context = 4096;
    m.is_executable = true;
    return m;
}

static ech_model sparse_model(void)
{
    ech_model m = dense_model();
    m.moe = (ech_moe){.experts = 8, .topk = 2, .expert_ffn = 1408, .sparse_step = 1};
    return m;
}

static ech_cluster cluster_of(ech_device_kind kind)
{
    ech_cluster c = {.name = "made", .devices_per_node = 8, .n_levels = 1};
    c.device = (ech_device){.name = "made", .kind = kind, .units = 100};
    c.device.peak_flops[ECH_PRECISION_BF16] = 1e14;
    c.device.peak_flops[ECH_PRECISION_FP32] = 1e13;
    c.level[0] = (ech_link_level){.name = "all", .bytes_per_s = 1e11, .alone_bytes_per_s = 1e11};
    return c;
}

/* A job of 64 GPUs and a layout of it that nothing is wrong with. */
typedef struct fixture {
    ech_model model;
    ech_cluster cluster;
    ech_job job;
    ech_point p;
} fixture;

static void make(fixture *f, ech_system system, bool is_sparse)
{
    f->model = is_sparse ? sparse_model() : dense_model();
    f->cluster = cluster_of(ECH_DEVICE_AMPERE);
    f->job = ech_job_default(system);
    f->job.model = &f->model;
    f->job.cluster = &f->cluster;
    f->job.gpus = 64;
    f->job.global_batch = 64;
    f->p = ech_point_default();
    f->p.tp = 4;
    f->p.sequence_parallel = true;
    f->p.dp = 16;
    f->p.zero_stage = system == ECH_SYSTEM_FSDP2 || system == ECH_SYSTEM_TORCHTITAN ? 3 : 1;
    f->p.reduce_each = f->p.zero_stage == 3;
    assert_true(ech_point_is_legal(&f->job, &f->p, NULL));
}

/* Refused, in both ways, and in words that contain these. */
static void refused(const fixture *f, const char *words)
{
    ech_findings why = {0};
    assert_non_null(ech_point_refusal(&f->job, &f->p));
    assert_false(ech_point_is_legal(&f->job, &f->p, NULL));
    assert_false(ech_point_is_legal(&f->job, &f->p, &why));
    if (!strstr(ech_text_get(&why.text), words))
        fail_msg("'%s' does not say '%s'", ech_text_get(&why.text), words);
    ech_findings_fini(&why);
}

static void test_degrees(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_ECHELON, false);
    f.p.dp = 8;
    refused(&f, "tp 4 x cp 1 x pp 1 x dp 8 = 32, the job has 64 GPUs; dp 16 would make them");
    f.p.cp = 3;
    refused(&f, "no dp makes them: tp x cp x pp has to divide 64, as 8 and 16 do");
    f.p.tp = f.p.micro = 0;
    refused(&f, "tp 0: wanted at least 1\nmicro 0: wanted at least 1");
    make(&f, ECH_SYSTEM_ECHELON, false);
    f.p.tp = 16;
    f.p.dp = 4;
    refused(&f, "tp 16 does not divide the 24 query heads; nearest legal values 12 and 24");
    make(&f, ECH_SYSTEM_ECHELON, false);
    f.p.micro = 3;
    refused(&f, "global batch 64 is no multiple of micro 3 x dp 16 = 48; nearest legal values 48 "
                "and 96");
    make(&f, ECH_SYSTEM_ECHELON, false);
    f.job.precision = ECH_PRECISION_FP8;
    refused(&f, "made has no units for fp8; legal: fp32 bf16");
}

static void test_all_findings_at_once(void **state)
{
    (void)state;
    fixture f;
    ech_findings why = {0};
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.p.dp = 8;
    f.p.micro = 7;
    f.p.zero_stage = 3;
    f.p.ep = 2;
    f.p.recompute = ECH_RECOMPUTE_MLA;
    assert_false(ech_point_is_legal(&f.job, &f.p, &why));
    assert_int_equal(why.n, 5);
    ech_findings_fini(&why);
}

static void test_heads_by_system(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.model.heads = f.model.kv_heads = 32;
    f.model.kv_heads = 2; /* held by two ranks each */
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.job.system = ECH_SYSTEM_TORCHTITAN;
    f.p.zero_stage = 3;
    refused(&f, "tp 4 does not divide the 2 key/value heads; nearest legal value 2");
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.model.ffn = 5630;
    refused(&f, "tp 4 does not divide the MLP's width 5630");
    f.job.system = ECH_SYSTEM_ECHELON; /* which pads */
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
}

static void test_experts(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_MEGATRON, true);
    f.p.ep = 8;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.ep = 6;
    refused(&f, "ep 6 does not divide the 8 experts; nearest legal values 4 and 8");
    f.p.ep = 8;
    f.p.etp = 3;
    refused(&f, "etp 3 does not divide an expert's width 1408; nearest legal values 2 and 4");
    f.p.etp = 16;
    refused(&f, "ep 8 x etp 16 does not divide tp x cp x dp = 64; nearest legal value 4");
    f.p.etp = 1;
    f.p.sequence_parallel = false;
    refused(&f, "megatron: ep 8 with tp 4 needs sequence parallelism");
    make(&f, ECH_SYSTEM_FSDP2, true);
    f.p.ep = 2;
    refused(&f, "fsdp2: ep 2, etp 1: it has no expert parallelism");
}

static void test_context(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.p.cp = 4;
    f.p.dp = 4;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.job.seq = 4100;
    refused(&f, "sequence of 4100 is not cut evenly by cp 4: wanted a multiple of 8; nearest legal "
                "values 4096 and 4104");
    f.job.seq = 4096;
    f.p.cp_kind = ECH_CP_ULYSSES;
    refused(&f, "cp 4 under ulysses does not divide the 6 query heads (2 key/value heads)");
    f.p.cp_kind = ECH_CP_RING;
    f.job.system = ECH_SYSTEM_DEEPSPEED;
    refused(&f, "deepspeed: it has no cp kind ring; legal: ulysses");
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.job.seq = 4094;
    refused(&f, "sequence parallelism: tp 4 does not divide the 4094 tokens of a rank; nearest "
                "legal value 2");
}

static void pipeline(fixture *f, int pp, int vpp, ech_schedule_kind kind)
{
    f->p.pp = pp;
    f->p.vpp = vpp;
    f->p.dp = 16 / pp;
    f->p.schedule = kind;
}

static void test_pipelines(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_MEGATRON, false);
    pipeline(&f, 4, 3, ECH_SCHEDULE_INTERLEAVED);
    f.p.split = ECH_SPLIT_EVEN;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.vpp = 4;
    refused(&f, "24 layers do not divide into pp 4 x vpp 4 = 16 stages (pp x vpp); nearest legal "
                "values 12 and 24");
    f.model.layers = 22;
    f.p.vpp = 3;
    refused(&f, "22 layers do not divide");
    f.p.split = ECH_SPLIT_ENDS;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.split = ECH_SPLIT_BALANCED;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.job.generation = ECH_GENERATION_NEMO_24;
    refused(&f, "megatron: stages cut by cost need generation mcore-0.14");
    f.p.split = ECH_SPLIT_ENDS;
    f.p.micro = 8; /* two micro-batches */
    refused(&f, "interleaved stages: 2 micro-batches are no multiple of pp 4; nearest legal value "
                "4");
    f.p.schedule = ECH_SCHEDULE_1F1B;
    refused(&f, "vpp 3 under 1f1b: nearest legal value 1, or schedule interleaved");
    f.p.vpp = 1;
    f.p.schedule = ECH_SCHEDULE_ZB_H1;
    refused(&f, "megatron: it has no schedule zb-h1; legal: 1f1b interleaved");
    make(&f, ECH_SYSTEM_ECHELON, false);
    pipeline(&f, 16, 2, ECH_SCHEDULE_INTERLEAVED);
    refused(&f, "32 stages for 24 layers, each has one at least; nearest legal vpp 1");
    make(&f, ECH_SYSTEM_FSDP2, false);
    pipeline(&f, 2, 1, ECH_SCHEDULE_1F1B);
    refused(&f, "fsdp2: pp 2: it has no pipelines");
}

static void test_listed_stages(void **state)
{
    (void)state;
    fixture f;
    const int good[4] = {5, 7, 7, 5};
    const int bad[4] = {5, 7, 7, 6};
    make(&f, ECH_SYSTEM_MEGATRON, false);
    pipeline(&f, 4, 1, ECH_SCHEDULE_1F1B);
    f.p.split = ECH_SPLIT_LIST;
    f.p.stage_layers = good;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.stage_layers = bad;
    refused(&f, "the listed stages have 25 layers, the model has 24");
}

static void test_sharding(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.p.zero_stage = 2;
    refused(&f, "megatron: zero 2: its distributed optimizer is stage 1; legal: 0 and 1");
    make(&f, ECH_SYSTEM_DEEPSPEED, false);
    f.p.zero_stage = 3;
    f.p.reduce_each = true;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    pipeline(&f, 2, 1, ECH_SCHEDULE_1F1B);
    refused(&f, "deepspeed: zero 3 with pp 2: pipelines take stages 0 and 1");
    f.p.zero_stage = 1;
    f.p.reduce_each = false;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.zero_group = 3;
    refused(&f, "zero-group 3 does not divide dp x cp = 8; nearest legal values 2 and 4");
    f.p.zero_group = 4;
    refused(&f, "deepspeed: zero-group 4 at zero 1");
    make(&f, ECH_SYSTEM_TORCHTITAN, false);
    f.p.zero_group = 8;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.reduce_each = false;
    f.p.zero_stage = 1;
    refused(&f, "torchtitan: zero 1: fully_shard is stage 3");
    f.p.zero_stage = 0;
    refused(&f, "zero-group 8 with zero 0: nothing is sharded; legal: 0");
    f.p.zero_group = 0;
    refused(&f, "torchtitan: zero 0 with tp 4, cp 1, pp 1, ep 1: replicas alone go with no other");
    f.p.zero_stage = 3;
    f.p.reduce_each = true;
    f.p.sequence_parallel = false;
    refused(&f, "torchtitan: tp 4 without sequence parallelism");
    make(&f, ECH_SYSTEM_ECHELON, false);
    f.p.reduce_each = true;
    refused(&f, "reduce each with zero 1: whole gradients are kept anyway; legal: last");
}

static void test_recompute(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.p.recompute = ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ATTENTION;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.recompute = ECH_RECOMPUTE_NORM | ECH_RECOMPUTE_ACT;
    refused(&f,
            "megatron: it does not recompute act; legal: none, attention,norm,moe,mla and full");
    f.job.generation = ECH_GENERATION_MEGATRON_2021;
    refused(&f, "megatron: it does not recompute norm,act; legal: none, attention and full");
    f.p.recompute = ECH_RECOMPUTE_MOE;
    refused(&f, "recompute moe: the model has none");
    f.p.recompute = ECH_RECOMPUTE_FULL;
    f.p.recompute_layers = 25;
    refused(&f, "recompute full:25, a stage has 24 layers; legal: 1 to 24");
    f.p.recompute_layers = 24;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.recompute = 0;
    refused(&f, "24 recomputed layers, but nothing is recomputed in full");
    make(&f, ECH_SYSTEM_DEEPSPEED, false);
    f.p.recompute = ECH_RECOMPUTE_NORM;
    refused(&f, "deepspeed: it does not recompute norm; legal: none and full");
}

static void test_offload(void **state)
{
    (void)state;
    fixture f;
    make(&f, ECH_SYSTEM_DEEPSPEED, false);
    f.p.offload_optimizer = ECH_OFFLOAD_HOST;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.zero_stage = 0;
    refused(&f, "deepspeed: an offloaded optimizer with zero 0: wanted zero 1 or more");
    f.p.zero_stage = 1;
    f.p.offload_params = ECH_OFFLOAD_HOST;
    refused(&f, "offloaded parameters with zero 1");
    f.p.zero_stage = 3;
    f.p.reduce_each = true;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    f.p.offload_optimizer = ECH_OFFLOAD_NVME;
    refused(&f, "offload to nvme: a node of made has none; legal: none and host");
    f.cluster.nvme_bytes = 1e12;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    make(&f, ECH_SYSTEM_FSDP2, false);
    f.p.offload_optimizer = ECH_OFFLOAD_HOST;
    refused(&f, "fsdp2: its offload policy moves parameters and optimizer together");
    f.p.offload_params = ECH_OFFLOAD_HOST;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    make(&f, ECH_SYSTEM_MEGATRON, false);
    f.p.order = ECH_ORDER_DP_TP_PP;
    refused(&f, "megatron: it has no order dp-tp-cp-pp; legal: tp-cp-dp-pp tp-cp-pp-dp");
}

/* --- against the legality table of layouts that the engine runs --- */

typedef struct dice {
    ech_rng_key key;
    uint64_t n;
} dice;

/* 0 .. n - 1 */
static int below(dice *d, int n)
{
    return (int)(ech_rng_u32(&d->key, d->n++) % (uint32_t)n);
}

static int pick(dice *d, const int *from, int n)
{
    return from[below(d, n)];
}

static void draw(dice *rng, fixture *f)
{
    static const int degrees[] = {1, 1, 2, 3, 4, 6, 8, 16, 32};
    static const ech_schedule_kind kinds[] = {ECH_SCHEDULE_1F1B, ECH_SCHEDULE_GPIPE,
                                              ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_ZB_H1,
                                              ECH_SCHEDULE_ZB_V};
    ech_point *p = &f->p;
    p->tp = pick(rng, degrees, 9);
    p->pp = pick(rng, degrees, 9);
    p->vpp = pick(rng, degrees, 6);
    p->dp = pick(rng, degrees, 9);
    p->micro = pick(rng, degrees, 6);
    p->zero_stage = below(rng, 4);
    p->zero_group = below(rng, 2) ? 0 : pick(rng, degrees, 7);
    p->schedule = kinds[below(rng, 5)];
    p->sequence_parallel = below(rng, 2) == 0;
    p->reshard_after_forward = below(rng, 2) == 0;
    p->reduce_each = below(rng, 4) == 0;
    f->job.gpus = below(rng, 8) ? (int64_t)p->tp * p->pp * p->dp : 64;
    f->job.global_batch = (int64_t)p->dp * p->micro * (1 + below(rng, 16)) + (below(rng, 6) == 0);
    f->job.seq = 4096 + (below(rng, 4) == 0);
}

static bool table_refuses(const fixture *f)
{
    ech_legal_report report;
    ech_legal_query q = ech_legal_query_default();
    const ech_point *p = &f->p;
    q.heads = f->model.heads;
    q.kv_heads = f->model.kv_heads;
    q.ffn = f->model.ffn;
    q.vocab = f->model.vocab;
    q.layers = f->model.layers;
    q.ranks = f->job.gpus;
    q.tp = p->tp;
    q.pp = p->pp;
    q.dp = p->dp;
    q.virtual_stages = p->vpp;
    q.schedule = ech_schedule_name(p->schedule);
    q.sequence_parallel = p->sequence_parallel;
    q.zero_stage = p->zero_stage;
    q.zero_group = p->zero_group;
    q.reshard_after_forward = p->reshard_after_forward;
    q.reduce_each = p->reduce_each;
    q.micro = p->micro;
    q.global = f->job.global_batch;
    q.seq = f->job.seq;
    ech_legal_check(&q, &report);
    return ech_legal_count(&report, ECH_VERDICT_REFUSED) > 0;
}

static void test_echelon_is_its_table(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    fixture f;
    int n_legal = 0;
    dice rng = {.key = ech_rng_key_make(7, ECH_RNG_TEST, 0, 0)};
    make(&f, ECH_SYSTEM_ECHELON, false);
    for (int i = 0; i < DRAWS; i++) {
        draw(&rng, &f);
        const bool is_legal = ech_point_is_legal(&f.job, &f.p, NULL);
        n_legal += is_legal;
        if (is_legal == table_refuses(&f))
            fail_msg("draw %d: legal %d: tp %d pp %d vpp %d dp %d micro %d zero %d group %d %s", i,
                     is_legal, f.p.tp, f.p.pp, f.p.vpp, f.p.dp, f.p.micro, f.p.zero_stage,
                     f.p.zero_group, ech_point_refusal(&f.job, &f.p));
    }
    assert_true(n_legal > DRAWS / 50 && n_legal < DRAWS / 2);
}

/* The answer without words is the one with them, for every system. */
static void test_fast_is_slow(void **state)
{
    (void)state;
    fixture f;
    dice rng = {.key = ech_rng_key_make(8, ECH_RNG_TEST, 0, 0)};
    for (int s = 0; s < ECH_N_SYSTEMS; s++)
        for (int i = 0; i < 2000; i++) {
            ech_findings why = {0};
            make(&f, (ech_system)s, i % 2);
            draw(&rng, &f);
            f.p.recompute = (uint32_t)below(&rng, 256);
            f.p.ep = f.p.etp = below(&rng, 3) + 1;
            f.p.order = (ech_order)below(&rng, ECH_N_ORDERS);
            const bool is_legal = ech_point_is_legal(&f.job, &f.p, NULL);
            assert_int_equal(ech_point_is_legal(&f.job, &f.p, &why), is_legal);
            assert_int_equal(why.n == 0, is_legal);
            ech_findings_fini(&why);
        }
}

static void test_executable(void **state)
{
    (void)state;
    fixture f;
    ech_findings why = {0};
    make(&f, ECH_SYSTEM_ECHELON, false);
    f.p.recompute = ECH_RECOMPUTE_FULL;
    assert_true(ech_point_is_legal(&f.job, &f.p, NULL));
    assert_false(ech_point_is_executable(&f.job, &f.p, &why));
    const char *words = ech_text_get(&why.text);
    assert_non_null(strstr(words, "the engine runs on processors"));
    ech_findings_fini(&why);
    make(&f, ECH_SYSTEM_MEGATRON, false);
    assert_true(ech_point_is_executable(&f.job, &f.p, &why));
    assert_int_equal(why.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_degrees),
        cmocka_unit_test(test_all_findings_at_once),
        cmocka_unit_test(test_heads_by_system),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_listed_stages),
        cmocka_unit_test(test_sharding),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_echelon_is_its_table),
        cmocka_unit_test(test_fast_is_slow),
        cmocka_unit_test(test_executable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
