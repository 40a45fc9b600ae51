/* RUN: np=1 timeout=20 tags=fast */
/* Reference figures of the memory model: totals that papers and white-boards have, each against a
 * formula of its own. */
#include "check.h"
#include "price/footprint.h"

static const double GB = 1e9;

static ech_job job_of(const ech_model *m, ech_system system)
{
    ech_job job = ech_job_default(system);
    job.model = m;
    job.gpus = 8;
    job.seq = 4096;
    job.global_batch = 8;
    return job;
}

/* --- state --- */

static double state(ech_system system, int grad_bytes, int stage, int dp, double params)
{
    ech_job job = ech_job_default(system);
    ech_point p = ech_point_default();
    double held[ECH_N_USES];
    job.grad_bytes = job.wire_bytes = grad_bytes;
    job.global_batch = dp;
    p.dp = dp;
    p.zero_stage = stage;
    const double sum = ech_footprint_state(&job, &p, params, NULL, held);
    double again = 0;
    for (int h = 0; h < ECH_N_USES; h++)
        again += held[h];
    assert_near(again, sum, 1);
    return sum / GB;
}

/* 16 bytes an element: 7B 112 GB, 13B 208, 70B 1120, 175B 2800. */
static void test_sixteen_bytes(void **arg)
{
    (void)arg;
    const double params[] = {7e9, 13e9, 70e9, 175e9};
    const double gb[] = {112, 208, 1120, 2800};
    for (int i = 0; i < 4; i++) {
        assert_near(state(ECH_SYSTEM_ECHELON, 2, 0, 1, params[i]), gb[i], 1e-9);
        assert_near(state(ECH_SYSTEM_FSDP2, 4, 3, 1, params[i]), gb[i], 1e-9);
    }
    assert_near(state(ECH_SYSTEM_MEGATRON, 4, 0, 1, 7e9), 18 * 7, 1e-9);
}

/* 7B over 8: 112, 38.5, 26.25, 14 GB; 70B over 64: 293, 155, 17.5. */
static void test_stages(void **arg)
{
    (void)arg;
    const double seven[] = {112, 38.5, 26.25, 14};
    const double seventy[] = {1120, 4 * 70 + 12 * 70 / 64.0, 2 * 70 + 14 * 70 / 64.0, 17.5};
    for (int stage = 0; stage <= 3; stage++) {
        assert_near(state(ECH_SYSTEM_ECHELON, 2, stage, 8, 7e9), seven[stage], 1e-9);
        assert_near(state(ECH_SYSTEM_ECHELON, 2, stage, 64, 70e9), seventy[stage], 1e-9);
    }
    assert_near(seventy[1], 293, 0.2);
    assert_near(seventy[2], 155, 0.4);
    /* fp32 gradients: 18, 6 + 12/N, 2 + 16/N, 18/N */
    const double eighteen[] = {18, 6 + 12 / 8.0, 2 + 16 / 8.0, 18 / 8.0};
    for (int stage = 0; stage <= 3; stage++)
        assert_near(state(ECH_SYSTEM_ECHELON, 4, stage, 8, 7e9), 7 * eighteen[stage], 1e-9);
    /* Megatron's distributed optimizer; DeepSpeed's 2 P + 18 P / N and 18 P / N */
    assert_near(state(ECH_SYSTEM_MEGATRON, 4, 1, 8, 7e9), 7 * (6 + 12 / 8.0), 1e-9);
    assert_near(state(ECH_SYSTEM_DEEPSPEED, 2, 2, 8, 7e9), 7 * (2 + 18 / 8.0), 1e-9);
    assert_near(state(ECH_SYSTEM_DEEPSPEED, 2, 3, 8, 7e9), 7 * 18 / 8.0, 1e-9);
}

/* HYBRID_SHARD: state over the group, whatever the replicas; experts over their part of it. */
static void test_groups(void **arg)
{
    (void)arg;
    ech_job job = ech_job_default(ECH_SYSTEM_FSDP2);
    ech_point p = ech_point_default();
    p.dp = 64;
    p.zero_stage = 3;
    p.zero_group = 8;
    assert_near(ech_footprint_state(&job, &p, 7e9, NULL, NULL), 16 * 7e9 / 8, 1);
    ech_model m;
    static ech_footprint f;
    assert_ok(ech_model_load("mixtral-8x7b", &m));
    job = job_of(&m, ECH_SYSTEM_MEGATRON);
    job.gpus = job.global_batch = 32;
    p = ech_point_default();
    p.dp = 32;
    p.ep = 8;
    p.zero_stage = 1;
    ech_footprint_of(&job, &p, NULL, &f);
    const double experts = 32.0 * 3 * 4096 * 14336; /* one of eight in every layer */
    const double dense = f.stage[0].params - experts;
    assert_near(f.stage[0].held[ECH_USE_MASTER], 4 * (dense / 32 + experts / 4), 1);
    assert_near(f.stage[0].held[ECH_USE_OPTIMIZER], 8 * (dense / 32 + experts / 4), 1);
}

/* Micro-batches that are summed before one reduction keep gradients whole: stage 2 is stage 1. */
static void test_reduction_is_policy(void **arg)
{
    (void)arg;
    ech_job job = ech_job_default(ECH_SYSTEM_ECHELON);
    ech_point p = ech_point_default();
    job.global_batch = 32;
    p.dp = 8;
    p.zero_stage = 2;
    const double once = ech_footprint_state(&job, &p, 7e9, NULL, NULL);
    p.reduce_each = true;
    const double each = ech_footprint_state(&job, &p, 7e9, NULL, NULL);
    p.zero_stage = 1;
    assert_near(once, ech_footprint_state(&job, &p, 7e9, NULL, NULL), 1);
    assert_near(each, 7e9 * (2 + 16 / 8.0), 1);
}

static void test_optimizers(void **arg)
{
    (void)arg;
    ech_job job = ech_job_default(ECH_SYSTEM_MEGATRON);
    const ech_point p = ech_point_default();
    job.grad_bytes = 2;
    job.optimizer = ECH_OPTIMIZER_ADAMW_BF16;
    assert_near(ech_footprint_state(&job, &p, 1e9, NULL, NULL), 12e9, 1);
    job.optimizer = ECH_OPTIMIZER_SGD;
    assert_near(ech_footprint_state(&job, &p, 1e9, NULL, NULL), 12e9, 1);
    job.optimizer = ECH_OPTIMIZER_ADAMW_8BIT;
    job.has_master = false; /* about 6 bytes */
    assert_near(ech_footprint_state(&job, &p, 1e9, NULL, NULL), 6e9, 0.01e9);
    job.precision = ECH_PRECISION_FP32;
    job.optimizer = ECH_OPTIMIZER_ADAMW;
    job.has_master = true; /* there is none beside fp32 weights */
    assert_near(ech_footprint_state(&job, &p, 1e9, NULL, NULL), 16e9, 1);
}

/* Pipeline ranks hold the model, every preset; a tied table on the first and on the last. */
static void test_stages_add_up(void **arg)
{
    (void)arg;
    static ech_footprint f;
    size_t n;
    const char *const *name = ech_model_presets(&n);
    for (size_t i = 0; i < n; i++)
        for (int pp = 1; pp <= 8; pp *= 2) {
            ech_model m;
            ech_param_count count;
            assert_ok(ech_model_load(name[i], &m));
            assert_ok(ech_model_count(&m, &count));
            ech_job job = job_of(&m, ECH_SYSTEM_TORCHTITAN);
            ech_point p = ech_point_default();
            p.pp = pp;
            p.vpp = pp == 4 ? 2 : 1;
            p.schedule = pp == 4 ? ECH_SCHEDULE_INTERLEAVED : ECH_SCHEDULE_1F1B;
            p.split = pp == 8 ? ECH_SPLIT_ENDS : ECH_SPLIT_BALANCED;
            ech_footprint_of(&job, &p, NULL, &f);
            double sum = 0;
            int64_t layers = 0;
            for (int r = 0; r < pp; r++) {
                sum += f.stage[r].params;
                layers += f.stage[r].layers;
            }
            const int64_t width = m.embed_dim > 0 ? m.embed_dim : m.hidden;
            const double copy = m.tie_embeddings && pp > 1 ? (double)m.vocab * (double)width : 0;
            assert_int_equal(layers, m.layers);
            if (sum != (double)count.total + copy)
                fail_msg("%s pp %d: %.0f of %lld", name[i], pp, sum, (long long)count.total);
        }
}

/* --- offload --- */

/* Bytes of a class that an offload leaves in the step, at its fullest moment. */
static double left(const ech_job *job, const ech_point *p, ech_use use)
{
    static ech_footprint f;
    ech_footprint_of(job, p, NULL, &f);
    assert_int_equal(f.stage[0].fullest, ECH_MOMENT_STEP);
    return f.stage[0].held[use];
}

/* One card, parameters and optimizer on the host: what a step works with is on the device all the same.
 * Llama-2-13B: 4 h h + 3 h f + 2 h a layer.  Two layers gathered, gradients of the one in work and of
 * those on their way out; without resharding all weights but the embedding's, which backward does not
 * read, less what backward has done with. */
static void test_weights_in_use(void **arg)
{
    (void)arg;
    enum { H = 5120, F = 13824, LAYERS = 40, VOCAB = 32000, WINDOW = 2 };
    const double layer = 4.0 * H * H + 3.0 * H * F + 2.0 * H;
    const double head = (double)VOCAB * H + H;
    ech_model m;
    assert_ok(ech_model_load("llama-2-13b", &m));
    ech_job job = job_of(&m, ECH_SYSTEM_ECHELON);
    ech_point p = ech_point_default();
    job.gpus = 1;
    p.zero_stage = 3;
    p.recompute = ECH_RECOMPUTE_FULL;
    const ech_offload places[] = {ECH_OFFLOAD_HOST, ECH_OFFLOAD_NVME};
    for (int i = 0; i < 2; i++) {
        p.offload_optimizer = p.offload_params = places[i];
        p.reshard_after_forward = true;
        assert_near(left(&job, &p, ECH_USE_PARAMS), 0, 0);
        assert_near(left(&job, &p, ECH_USE_GATHERED), 2 * 2 * layer, 1);
        assert_near(left(&job, &p, ECH_USE_BUCKETS), 4 * (1 + WINDOW) * layer, 1);
        p.reshard_after_forward = false;
        const double top = 2 * LAYERS * layer;
        const double got = left(&job, &p, ECH_USE_GATHERED);
        if (got < top - 2 * WINDOW * layer || got > top + 2 * head)
            fail_msg("%.0f gathered, %.0f in layers", got, top);
    }
    /* without offload nothing is gathered: one rank has it all */
    p.offload_optimizer = p.offload_params = ECH_OFFLOAD_NONE;
    assert_near(left(&job, &p, ECH_USE_PARAMS), 2 * (LAYERS * layer + head + (double)VOCAB * H), 1);
    assert_near(left(&job, &p, ECH_USE_GATHERED), 0, 0);
    assert_near(left(&job, &p, ECH_USE_BUCKETS), 0, 0);
}

/* Gradients that are reduced at the end stay whole until then, whatever is offloaded. */
static void test_whole_gradients_stay(void **arg)
{
    (void)arg;
    ech_job job = ech_job_default(ECH_SYSTEM_ECHELON);
    ech_point p = ech_point_default();
    double held[ECH_N_USES];
    job.global_batch = 32;
    p.dp = 4;
    p.zero_stage = 3;
    p.offload_optimizer = ECH_OFFLOAD_HOST;
    (void)ech_footprint_state(&job, &p, 1e9, NULL, held);
    assert_near(held[ECH_USE_GRADS], 4e9, 1);
    p.reduce_each = true;
    (void)ech_footprint_state(&job, &p, 1e9, NULL, held);
    assert_near(held[ECH_USE_GRADS], 0, 0);
}

/* --- activations --- */

/* The block of Korthikanti et al.: GELU, dropout, unfused attention, h 4096, 32 heads and layers. */
static ech_model classic(void)
{
    ech_model m = ech_model_default(ECH_ARCH_GPT2);
    m.layers = 32;
    m.hidden = 4096;
    m.heads = m.kv_heads = 32;
    m.head_dim = 128;
    m.ffn = 4 * 4096;
    m.vocab = 51200;
    m.context = 4096;
    m.dropout = 0.1;
    return m;
}

/* Saved activations less what the embedding and the head save. */
static double saved(const ech_job *job, const ech_point *p, int rank)
{
    static ech_footprint f;
    ech_footprint_of(job, p, NULL, &f);
    return f.stage[rank].held[ECH_USE_SAVED];
}

static void test_classic_block(void **arg)
{
    (void)arg;
    const ech_model m = classic();
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    job.generation = ECH_GENERATION_MEGATRON_2021;
    ech_point p = ech_point_default();
    const double u = 4096.0 * 4096;
    const double ends = 2 * 2 * u + u + 8 * 4096; /* head, mask of the embedding, tokens */
    assert_near(saved(&job, &p, 0), 32 * u * (34 + 5 * 32), ends);
    assert_near(u * (34 + 5 * 32) / GB, 3.25, 0.005);
    assert_near(saved(&job, &p, 0) / GB, 104, 0.4);
    p.recompute = ECH_RECOMPUTE_ATTENTION;
    assert_near(saved(&job, &p, 0), 32 * u * 34, ends);
    assert_near(saved(&job, &p, 0) / GB, 18.3, 0.1);
    p.recompute = ECH_RECOMPUTE_FULL;
    assert_near(saved(&job, &p, 0), 32 * u * 2, ends);
    assert_near(32 * u * 2 / GB, 1.07, 0.005);
}

/* u (10 + 24/t + 5 a s / (h t)), and with sequence parallelism all of it over t. */
static void test_classic_block_cut(void **arg)
{
    (void)arg;
    const ech_model m = classic();
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    job.generation = ECH_GENERATION_MEGATRON_2021;
    const double u = 4096.0 * 4096;
    const double ends = 2 * 2 * u + u + 8 * 4096;
    for (int t = 1; t <= 8; t *= 2) {
        ech_point p = ech_point_default();
        p.tp = t;
        assert_near(saved(&job, &p, 0), 32 * u * (10 + 24.0 / t + 5.0 * 32 / t), ends);
        p.sequence_parallel = true;
        assert_near(saved(&job, &p, 0), 32 * u * (34 + 5 * 32) / t, ends);
        p.recompute = ECH_RECOMPUTE_ATTENTION;
        assert_near(saved(&job, &p, 0), 32 * u * 34 / t, ends);
    }
}

/* 2 (4h + 2 a d + 2 k d + 3f) + 4a bytes a token: about 34h again for Llama-3-8B. */
static void test_modern_block(void **arg)
{
    (void)arg;
    ech_model m;
    assert_ok(ech_model_load("llama-3-8b", &m));
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    const ech_point p = ech_point_default();
    const double token = 2.0 * (4 * 4096 + 2 * 32 * 128 + 2 * 8 * 128 + 3 * 14336) + 4 * 32;
    assert_near(token / 4096, 34, 0.1);
    const double ends = 4096.0 * (2 * 2 * 4096 + 8);
    assert_near(saved(&job, &p, 0), 32 * 4096 * token, ends);
}

/* Llama-3-8B, two sequences of 8192: 8.4 GB of logits fused, 29-34 eager; a chunk of 1024: 0.5. */
static void test_logits(void **arg)
{
    (void)arg;
    ech_model m;
    static ech_footprint f;
    assert_ok(ech_model_load("llama-3-8b", &m));
    ech_job job = job_of(&m, ECH_SYSTEM_TORCHTITAN);
    job.seq = 8192;
    job.global_batch = 16;
    ech_point p = ech_point_default();
    p.dp = 8;
    p.micro = 2;
    p.zero_stage = 3;
    const struct {
        ech_loss_way way;
        double low, high;
    } cases[] = {{ECH_LOSS_FUSED, 8.35, 8.45},
                 {ECH_LOSS_EAGER, 29, 34},
                 {ECH_LOSS_DEFAULT, 29, 34},
                 {ECH_LOSS_CHUNKED, 0.52, 0.53}};
    for (int i = 0; i < 4; i++) {
        job.loss = cases[i].way;
        job.loss_chunk = 1024;
        ech_footprint_of(&job, &p, NULL, &f);
        const double gb = f.stage[0].held[ECH_USE_LOGITS] / GB;
        if (i == 3) /* so few that they are no peak */
            assert_true(gb < cases[i].high);
        else
            assert_true(gb >= cases[i].low && gb <= cases[i].high);
    }
}

/* --- schedules --- */

static void test_live(void **arg)
{
    (void)arg;
    ech_model m;
    static ech_footprint f;
    assert_ok(ech_model_load("llama-2-7b", &m));
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    job.global_batch = 16;
    for (int p = 2; p <= 8; p *= 2)
        for (int v = 1; v <= 4; v *= 2) {
            ech_point point = ech_point_default();
            point.pp = p;
            point.split = ECH_SPLIT_EVEN;
            point.vpp = v;
            point.schedule = v > 1 ? ECH_SCHEDULE_INTERLEAVED : ECH_SCHEDULE_1F1B;
            ech_footprint_of(&job, &point, NULL, &f);
            assert_int_equal(f.n_stages, p);
            for (int i = 0; i < p; i++) {
                const double live = v == 1 ? p - i : ((v - 1.0) * p + 2.0 * (p - 1 - i) + 1) / v;
                assert_near(f.stage[i].live, live, 1e-12);
            }
            point.schedule = ECH_SCHEDULE_GPIPE;
            point.vpp = 1;
            ech_footprint_of(&job, &point, NULL, &f);
            assert_near(f.stage[p - 1].live, 16, 0);
        }
}

/* The tables themselves: what a rank holds at its fullest, in chunks. */
static void test_live_of_tables(void **arg)
{
    (void)arg;
    ech_model m;
    static ech_footprint f;
    assert_ok(ech_model_load("llama-2-7b", &m));
    ech_job job = job_of(&m, ECH_SYSTEM_ECHELON);
    const ech_schedule_kind kinds[] = {ECH_SCHEDULE_1F1B, ECH_SCHEDULE_GPIPE,
                                       ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_ZB_H1,
                                       ECH_SCHEDULE_ZB_V};
    for (int k = 0; k < 5; k++)
        for (int p = 2; p <= 4; p++)
            for (int micros = p; micros <= 4 * p; micros += p) {
                ech_schedule s = {0};
                const int chunks = kinds[k] == ECH_SCHEDULE_INTERLEAVED ? 2 : 1;
                const ech_schedule_spec spec = {
                    .kind = kinds[k], .ranks = p, .micros = micros, .chunks = chunks};
                ech_point point = ech_point_default();
                point.pp = p;
                point.vpp = chunks;
                point.schedule = kinds[k];
                job.global_batch = micros;
                ech_footprint_of(&job, &point, NULL, &f);
                assert_ok(ech_schedule_make(&spec, &s));
                for (int r = 0; r < p; r++) {
                    const ech_schedule_live live = ech_schedule_live_of(&s, r);
                    const bool is_v = kinds[k] == ECH_SCHEDULE_ZB_V; /* a bound, W to do counted */
                    const double per_rank = (double)s.stages / p;
                    assert_near(f.stage[r].live, (is_v ? live.both : live.saved) / per_rank,
                                is_v ? 0.5 : 1e-9);
                }
                ech_schedule_fini(&s);
            }
}

/* 70B as tp 8, pp 4, dp 16: 2.19e9 parameters a GPU, 35 GB at 16 bytes, 45-50 with the rest. */
static void test_seventy_on_512(void **arg)
{
    (void)arg;
    ech_model m;
    static ech_footprint f;
    assert_ok(ech_model_load("llama-2-70b", &m));
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    job.gpus = 512;
    job.global_batch = 1024;
    job.grad_bytes = 2;
    ech_point p = ech_point_default();
    p.tp = 8;
    p.pp = 4;
    p.dp = 16;
    p.sequence_parallel = true;
    p.split = ECH_SPLIT_EVEN;
    ech_footprint_of(&job, &p, NULL, &f);
    assert_near(f.stage[0].params / 1e9, 2.19, 0.02);
    const double state_gb = (f.stage[0].held[ECH_USE_PARAMS] + f.stage[0].held[ECH_USE_GRADS] +
                             f.stage[0].held[ECH_USE_MASTER] + f.stage[0].held[ECH_USE_OPTIMIZER]) /
                            GB;
    assert_near(state_gb, 35, 0.4);
    assert_true(f.reserved_bytes / GB > 45 && f.reserved_bytes / GB < 52);
}

/* The derivation says the very bytes. */
static void test_derivation(void **arg)
{
    (void)arg;
    ech_model m;
    static ech_footprint f;
    ech_derivation d = {0};
    assert_ok(ech_model_load("llama-3-70b", &m));
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    ech_point p = ech_point_default();
    p.tp = 8;
    p.sequence_parallel = true;
    ech_footprint_of(&job, &p, &d, &f);
    assert_false(d.failed);
    assert_true(d.n > 20 && d.n_sections >= 6);
    int seen = 0;
    for (int i = 0; i < d.n; i++) {
        assert_true(d.line[i].section >= 0 && d.line[i].section < d.n_sections);
        if (strcmp(d.line[i].what, "reserved") == 0) {
            assert_near(d.line[i].value, f.reserved_bytes, 0);
            seen++;
        }
        if (strcmp(d.line[i].what, "the MLP's matrices") == 0) {
            assert_near(d.line[i].value, 3.0 * 8192 * 28672 / 8, 0);
            assert_string_equal(d.line[i].formula, "3 x 8192 x 3584");
            seen++;
        }
    }
    assert_int_equal(seen, 2);
    ech_derivation_fini(&d);
    ech_job plain = ech_job_default(ECH_SYSTEM_ECHELON);
    plain.grad_bytes = 2;
    const ech_point one = ech_point_default();
    (void)ech_footprint_state(&plain, &one, 7e9, &d, NULL);
    ech_text t = {0};
    ech_derivation_print(&d, &t);
    assert_non_null(strstr(ech_text_get(&t), "= 112 GB"));
    ech_text_fini(&t);
    ech_derivation_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sixteen_bytes),  cmocka_unit_test(test_stages),
        cmocka_unit_test(test_groups),         cmocka_unit_test(test_reduction_is_policy),
        cmocka_unit_test(test_weights_in_use), cmocka_unit_test(test_whole_gradients_stay),
        cmocka_unit_test(test_optimizers),     cmocka_unit_test(test_stages_add_up),
        cmocka_unit_test(test_classic_block),  cmocka_unit_test(test_classic_block_cut),
        cmocka_unit_test(test_modern_block),   cmocka_unit_test(test_logits),
        cmocka_unit_test(test_live),           cmocka_unit_test(test_live_of_tables),
        cmocka_unit_test(test_seventy_on_512), cmocka_unit_test(test_derivation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
