/* RUN: np=1 timeout=20 tags=fast */
/* Drawn jobs and layouts of all presets and systems: every figure is finite and not below 0, classes add
 * up to peaks, the derivation changes nothing and says the same bytes, and what is known to lower
 * memory never raises it. */
#include "check.h"
#include "price/footprint.h"

#include <math.h>

enum { DRAWS = 1000000 };

static uint64_t state = 88172645463325252u;

static int draw(int n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)(state % (uint64_t)n);
}

static ech_model models[16];
static ech_cluster clusters[4];

static void load(void)
{
    static const char *const names[16] = {
        "gpt2-124m",     "llama-2-7b",  "llama-3-8b",           "llama-3-70b", "llama-3.1-405b",
        "mixtral-8x7b",  "deepseek-v2", "deepseek-v3",          "gemma-2-9b",  "phi-2",
        "gpt-oss-20b",   "dbrx",        "qwen2.5-32b-instruct", "falcon-7b",   "bloom-7b1",
        "qwen2-57b-a14b"};
    static const char *const machines[4] = {"a100-sxm-80", "h100-sxm-80", "rtx-3090",
                                            "cpu-64c-avx512"};
    for (int i = 0; i < 16; i++)
        assert_ok(ech_model_load(names[i], &models[i]));
    for (int i = 0; i < 4; i++) {
        assert_ok(ech_cluster_load(machines[i], &clusters[i]));
        ech_cluster_rebind(&clusters[i]);
    }
}

static ech_job draw_job(void)
{
    ech_job job = ech_job_default((ech_system)draw(ECH_N_SYSTEMS));
    job.model = &models[draw(16)];
    job.cluster = &clusters[draw(4)];
    job.generation = draw(3) ? job.generation : (ech_generation)draw(ECH_N_GENERATIONS);
    job.precision = (ech_precision)draw(ECH_N_PRECISIONS);
    job.seq = 256 << draw(8);
    job.optimizer = (ech_optimizer)draw(ECH_N_OPTIMIZERS);
    job.tuning = (ech_tuning)draw(3);
    job.lora_rank = 8 << draw(4);
    job.frozen_layers = draw((int)job.model->layers);
    job.base_bits = 16 >> draw(3);
    job.loss = (ech_loss_way)draw(4);
    job.loss_chunk = 1024;
    job.moe_balance = 1 + draw(3);
    job.moe_capacity = draw(2) ? 1.25 : 0;
    job.is_compiled = draw(2);
    job.beside.save = (ech_save_way)draw(3);
    job.beside.load_copies = draw(3);
    return job;
}

static ech_point draw_point(ech_job *job)
{
    ech_point p = ech_point_default();
    p.tp = 1 << draw(4);
    p.pp = 1 << draw(4);
    p.dp = 1 << draw(5);
    p.cp = 1 << draw(3);
    p.ep = job->model->moe.experts > 0 ? 1 << draw(4) : 1;
    p.vpp = 1 << draw(2);
    p.schedule = p.vpp > 1 ? ECH_SCHEDULE_INTERLEAVED : (ech_schedule_kind)draw(ECH_SCHEDULE_FILE);
    p.zero_stage = draw(4);
    p.micro = 1 << draw(3);
    p.recompute = draw(2) ? (uint32_t)draw(64) : draw(2) ? ECH_RECOMPUTE_FULL : 0;
    p.recompute_layers = draw(3);
    p.cp_kind = (ech_cp_kind)draw(4);
    p.split = (ech_stage_split)draw(3);
    p.offload_optimizer = (ech_offload)draw(3);
    p.offload_params = (ech_offload)draw(3);
    p.offload_activations = (ech_offload)draw(3);
    p.sequence_parallel = p.tp > 1 && draw(2);
    p.reshard_after_forward = draw(2);
    p.reduce_each = draw(2);
    job->gpus = (int64_t)p.tp * p.pp * p.dp * p.cp;
    job->global_batch = (int64_t)p.dp * p.micro * p.pp * (1 + draw(4));
    return p;
}

static void check_stage(const ech_footprint_stage *s)
{
    double sum = 0;
    for (int h = 0; h < ECH_N_USES; h++) {
        if (!isfinite(s->held[h]) || s->held[h] < 0)
            fail_msg("%s: %g bytes", ech_use_name((ech_use)h), s->held[h]);
        sum += s->held[h];
    }
    assert_near(sum, s->peak[s->fullest], 1e-9 * sum);
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        assert_true(isfinite(s->peak[m]) && s->peak[m] <= s->peak[s->fullest] * (1 + 1e-12));
    assert_true(s->live >= 1 && s->params >= s->trained && s->trained >= 0);
    assert_true(isfinite(s->host_bytes) && s->host_bytes >= 0 && s->nvme_bytes >= 0);
}

static void check_whole(const ech_job *job, const ech_footprint *f)
{
    const char *binding = NULL;
    for (int r = 0; r < f->n_stages; r++) {
        check_stage(&f->stage[r]);
        const ech_footprint_stage *s = &f->stage[r];
        assert_true(s->peak[s->fullest] <= f->reserved_bytes * (1 + 1e-12));
    }
    const ech_footprint_stage *s = &f->stage[f->fullest];
    assert_near(f->reserved_bytes, s->peak[s->fullest], 0);
    assert_near(f->allocated_bytes,
                f->reserved_bytes - s->held[ECH_USE_CONTEXT] - s->held[ECH_USE_SLACK],
                1e-9 * f->reserved_bytes);
    assert_true(f->worst_bytes >= f->reserved_bytes);
    for (int m = 0; m < ECH_N_MOMENTS; m++)
        assert_true(isfinite(f->host_peak[m]) && f->host_peak[m] <= f->host_node_bytes);
    const ech_fit fit = ech_footprint_fit(job, f, &binding);
    assert_non_null(binding);
    assert_true(fit != ECH_FIT_YES || f->reserved_bytes < job->cluster->device.usable_bytes);
}

static void expect_less(const ech_job *job, const ech_point *p, const char *what, double before,
                        double after)
{
    if (after <= before * (1 + 1e-9))
        return;
    ech_text t = {0};
    ech_point_print(p, &t);
    fail_msg("%s, %s, %s: %.6g bytes, with %s %.6g", job->model->name, ech_system_name(job->system),
             ech_text_get(&t), before, what, after);
}

/* One change at a time that cannot need more. */
static void check_lower(const ech_job *job, const ech_point *p, double before)
{
    static ech_footprint f;
    ech_point less = *p;
    less.recompute = ECH_RECOMPUTE_FULL;
    less.recompute_layers = 0;
    ech_footprint_of(job, &less, NULL, &f);
    expect_less(job, p, "full recomputation", before, f.reserved_bytes);
    less = *p;
    less.offload_optimizer = ECH_OFFLOAD_HOST;
    ech_footprint_of(job, &less, NULL, &f);
    expect_less(job, p, "the optimizer on the host", before, f.reserved_bytes);
}

static void test_drawn(void **arg)
{
    (void)arg;
    static ech_footprint f;
    static ech_footprint again;
    int legal = 0;
    load();
    for (int i = 0; i < DRAWS; i++) {
        ech_job job = draw_job();
        const ech_point p = draw_point(&job);
        if (!ech_point_is_legal(&job, &p, NULL))
            continue;
        legal++;
        ech_footprint_of(&job, &p, NULL, &f);
        check_whole(&job, &f);
        check_lower(&job, &p, f.reserved_bytes);
        if (legal % 16 != 0)
            continue;
        ech_derivation d = {0};
        ech_footprint_of(&job, &p, &d, &again);
        assert_near(again.reserved_bytes, f.reserved_bytes, 0);
        bool said = false;
        for (int k = 0; k < d.n; k++) {
            assert_true(isfinite(d.line[k].value) && d.line[k].value >= 0);
            said |= strcmp(d.line[k].what, "reserved") == 0 && d.line[k].value == f.reserved_bytes;
        }
        assert_true(said && !d.failed);
        ech_derivation_fini(&d);
    }
    assert_true(legal > 5000);
    print_message("%d legal layouts\n", legal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
