/* RUN: np=1 timeout=20 tags=fast */
/* What ranks hold adds up to the model, whatever the degrees; layers are cut into stages as
 * layout/stages.h cuts them. */
#include "check.h"
#include "catalog/tensors.h"
#include "layout/shard.h"
#include "layout/stages.h"
#include "price/shape.h"

static ech_job job_of(const ech_model *m, ech_system system)
{
    ech_job job = ech_job_default(system);
    job.model = m;
    job.seq = 4096;
    job.global_batch = 64;
    return job;
}

/* Elements of the whole model, copies counted once: nothing is padded at tp 1 outside of Megatron and
 * Echelon, and a tied table stands in the embedding. */
static double whole_model(const ech_job *job, const ech_point *p)
{
    const ech_model *m = job->model;
    const int64_t sparse = ech_model_sparse_layers(m);
    ech_shape s;
    ech_shape_of(job, p, &s);
    const ech_shape_params unit[4] = {s.embedding, s.layer[0], s.layer[1], s.head};
    const double times[4] = {1, (double)(m->layers - sparse), (double)sparse, 1};
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += times[i] * (unit[i].cut * p->tp + unit[i].whole + unit[i].expert * p->ep * p->etp);
    return sum;
}

static bool divides(const ech_model *m, int tp)
{
    return m->heads % tp == 0 && m->kv_heads % tp == 0 && m->ffn % tp == 0 && m->vocab % tp == 0 &&
           m->moe.shared_ffn % tp == 0;
}

static void test_ranks_add_up(void **state)
{
    (void)state;
    size_t n;
    int checked = 0;
    const char *const *name = ech_model_presets(&n);
    for (size_t i = 0; i < n; i++) {
        ech_model m;
        ech_param_count count;
        assert_ok(ech_model_load(name[i], &m));
        assert_ok(ech_model_count(&m, &count));
        const ech_job job = job_of(&m, ECH_SYSTEM_TORCHTITAN);
        for (int tp = 1; tp <= 8; tp *= 2)
            for (int ep = 1; ep <= 8; ep *= 2) {
                ech_point p = ech_point_default();
                p.tp = tp;
                if (!divides(&m, tp) || (ep > 1 && (m.moe.experts == 0 || m.moe.experts % ep)))
                    continue;
                p.ep = ep;
                /* biases of outputs are copied over expert-tp */
                p.etp =
                    m.moe.experts > 0 && !m.moe.expert_bias && m.moe.expert_ffn % 2 == 0 && ep < 8
                        ? 2
                        : 1;
                if (whole_model(&job, &p) != (double)count.total)
                    fail_msg("%s tp %d ep %d etp %d: %.0f of %lld", name[i], tp, ep, p.etp,
                             whole_model(&job, &p), (long long)count.total);
                checked++;
            }
    }
    assert_true(checked > 100);
}

/* A copied key/value head is a head more. */
static void test_copies_of_heads(void **state)
{
    (void)state;
    ech_model m;
    ech_shape s;
    ech_param_count count;
    assert_ok(ech_model_load("llama-3-70b", &m));
    assert_ok(ech_model_count(&m, &count));
    ech_job job = job_of(&m, ECH_SYSTEM_FSDP2);
    ech_point p = ech_point_default();
    p.tp = 16;
    ech_shape_of(&job, &p, &s);
    assert_int_equal(s.attention.kv_heads, 1);
    assert_int_equal(s.attention.heads, 4);
    const double copies = 8.0 * 128 * 8192 * 2 * 80;
    assert_near(whole_model(&job, &p), (double)count.total + copies, 0.5);
}

static void test_padded_vocabulary(void **state)
{
    (void)state;
    ech_model m = ech_model_default(ECH_ARCH_GPT2);
    m.vocab = 50257;
    m.hidden = 64;
    m.heads = m.kv_heads = 8;
    m.head_dim = 8;
    m.ffn = 256;
    m.layers = 2;
    ech_shape s;
    ech_point p = ech_point_default();
    p.tp = 8;
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    ech_shape_of(&job, &p, &s);
    assert_int_equal(s.vocab_whole, 51200); /* the figure of the papers */
    assert_int_equal(s.vocab, 6400);
    job.system = ECH_SYSTEM_ECHELON;
    ech_shape_of(&job, &p, &s);
    assert_int_equal(s.vocab_whole, 50304);
    job.system = ECH_SYSTEM_FSDP2;
    ech_shape_of(&job, &p, &s);
    assert_int_equal(s.vocab, 6283);
    job.system = ECH_SYSTEM_DEEPSPEED; /* cut over tp it is Megatron's model */
    ech_shape_of(&job, &p, &s);
    assert_int_equal(s.vocab, 6400);
    p.tp = 1;
    ech_shape_of(&job, &p, &s);
    assert_int_equal(s.vocab, 50257);
}

/* Our own system: the plan that the engine follows, padding of flat ranges aside. */
static void test_equals_plan(void **state)
{
    (void)state;
    const char *const models[] = {"gpt2-124m", "llama-3.2-1b", "llama-2-7b", "qwen2.5-7b-instruct"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int tp = 1; tp <= 4; tp++) {
            ech_model m;
            ech_canon canon;
            ech_shard_plan plan;
            ech_shape s;
            assert_ok(ech_model_load(models[i], &m));
            if (m.heads % tp != 0)
                continue;
            assert_ok(ech_canon_create(&m, &canon));
            const ech_shard_spec spec = {.model = &m, .canon = &canon, .tp = tp, .shards = 1};
            assert_ok(ech_shard_plan_make(&spec, &plan));
            const ech_job job = job_of(&m, ECH_SYSTEM_ECHELON);
            ech_point p = ech_point_default();
            p.tp = tp;
            ech_shape_of(&job, &p, &s);
            const ech_shape_params unit[] = {s.embedding, s.layer[0], s.head};
            for (int k = 0; k < ECH_N_UNIT_KINDS; k++) {
                int64_t elems = 0;
                for (int part = 0; part < ECH_N_PARTS; part++)
                    elems += plan.unit[k].part[part].elems;
                assert_near(ech_shape_sum(unit[k]), (double)elems, 0);
            }
            ech_canon_fini(&canon);
        }
}

static void test_flops_of_units(void **state)
{
    (void)state;
    ech_model m;
    assert_ok(ech_model_load("deepseek-v2-lite", &m));
    const ech_job job = job_of(&m, ECH_SYSTEM_FSDP2);
    const ech_point p = ech_point_default();
    ech_shape s;
    ech_shape_of(&job, &p, &s);
    const double attention = 6.0 * 4096 * 16 * (192 + 128) / 2;
    assert_near(6 * s.matrix[0] + attention, ech_model_unit_flops(&m, 1, 4096, true), 0.5);
    const double experts = 6.0 * 6 * 3 * 2048 * 1408;
    assert_near(6 * s.matrix[1] + experts + attention, ech_model_unit_flops(&m, 2, 4096, true),
                0.5);
}

/* Dearest stage and sum of squares of a cut. */
static void judge(const ech_job *job, int stages, const int *layers, double out[2])
{
    out[0] = out[1] = 0;
    for (int k = 0, at = 1; k < stages; k++) {
        double cost = k == 0 ? ech_stages_unit_cost(job->model, 0, job->seq) : 0;
        for (int i = 0; i < layers[k]; i++)
            cost += ech_stages_unit_cost(job->model, at++, job->seq);
        if (k == stages - 1)
            cost += ech_stages_unit_cost(job->model, at, job->seq);
        out[0] = cost > out[0] ? cost : out[0];
        out[1] += cost * cost;
    }
}

/* As good as the engine's own cut, to the last bit but for the order of sums. */
static void check_cut(const ech_job *job, int pp, double slack)
{
    ech_point p = ech_point_default();
    ech_stage_shape stage[64];
    ech_canon canon;
    ech_stages made = {0};
    int rank_of[64];
    int ours[64];
    int theirs[64];
    double a[2];
    double b[2];
    p.pp = pp;
    p.split = ECH_SPLIT_BALANCED;
    assert_int_equal(ech_shape_cut(job, &p, stage), pp);
    for (int k = 0; k < pp; k++) {
        rank_of[k] = k;
        ours[k] = stage[k].dense + stage[k].sparse;
        assert_int_equal(stage[k].rank, k);
        assert_true(ours[k] > 0);
    }
    ech_model as_dense = *job->model; /* the cut asks no more of the canon than its units */
    as_dense.is_executable = true;
    assert_ok(ech_canon_create(&as_dense, &canon));
    const ech_stages_spec spec = {.model = job->model,
                                  .canon = &canon,
                                  .ranks = pp,
                                  .n = pp,
                                  .rank_of = rank_of,
                                  .seq = job->seq};
    assert_ok(ech_stages_make(&spec, &made));
    for (int k = 0; k < pp; k++)
        theirs[k] = made.first[k + 1] - made.first[k] - (k == 0) - (k == pp - 1);
    judge(job, pp, ours, a);
    judge(job, pp, theirs, b);
    if (a[0] > b[0] * (1 + slack) || (slack < 1e-6 && a[1] > b[1] * (1 + slack)))
        fail_msg("%s pp %d: dearest %g, engine's %g; squares %g, %g", job->model->name, pp, a[0],
                 b[0], a[1], b[1]);
    ech_stages_fini(&made);
    ech_canon_fini(&canon);
}

static void test_balanced_cut(void **state)
{
    (void)state;
    const char *const models[] = {"gpt2-124m",   "llama-3.2-1b",   "llama-2-7b",
                                  "llama-3-70b", "llama-3.1-405b", "mixtral-8x7b"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        ech_model m;
        assert_ok(ech_model_load(models[i], &m));
        const ech_job job = job_of(&m, ECH_SYSTEM_ECHELON);
        for (int pp = 1; pp <= 16 && pp <= m.layers; pp++)
            check_cut(&job, pp, 1e-12);
    }
    ech_model m;
    assert_ok(ech_model_load("deepseek-v3", &m));
    const ech_job job = job_of(&m, ECH_SYSTEM_ECHELON);
    for (int pp = 1; pp <= 16; pp++) /* two kinds: within a layer */
        check_cut(&job, pp, 1.01 / (61 / pp));
}

static void test_even_cut(void **state)
{
    (void)state;
    ech_model m;
    ech_stage_shape stage[64];
    const int list[] = {1, 2, 2, 3};
    assert_ok(ech_model_load("deepseek-v2-lite", &m)); /* 27 layers, the first dense */
    m.layers = 70;
    ech_job job = job_of(&m, ECH_SYSTEM_MEGATRON);
    ech_point p = ech_point_default();
    p.pp = 12;
    p.split = ECH_SPLIT_ENDS; /* 70 = 12 * 6 - 2 */
    assert_int_equal(ech_shape_cut(&job, &p, stage), 12);
    assert_int_equal(stage[0].dense, 1);
    assert_int_equal(stage[0].sparse, 4);
    assert_int_equal(stage[5].sparse, 6);
    assert_int_equal(stage[11].sparse, 5);
    assert_int_equal(stage[11].first, 65);
    m.layers = 8;
    p.pp = 4;
    p.split = ECH_SPLIT_LIST;
    p.stage_layers = list;
    assert_int_equal(ech_shape_cut(&job, &p, stage), 4);
    for (int k = 0; k < 4; k++)
        assert_int_equal(stage[k].dense + stage[k].sparse, list[k]);
    p.split = ECH_SPLIT_EVEN;
    p.schedule = ECH_SCHEDULE_INTERLEAVED;
    p.pp = p.vpp = 2;
    assert_int_equal(ech_shape_cut(&job, &p, stage), 4);
    assert_int_equal(stage[2].rank, 0);
    assert_int_equal(stage[3].first, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_add_up),      cmocka_unit_test(test_copies_of_heads),
        cmocka_unit_test(test_padded_vocabulary), cmocka_unit_test(test_equals_plan),
        cmocka_unit_test(test_flops_of_units),    cmocka_unit_test(test_balanced_cut),
        cmocka_unit_test(test_even_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
