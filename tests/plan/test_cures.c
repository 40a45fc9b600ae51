/* RUN: np=1 timeout=60 tags=fast */
/* Cures against the prices of what they change, asked once more; their order; what is told twice. */
#include "check.h"

#include "plan/cures.h"
#include "plan/fit.h"
#include "plan/network.h"
#include "price/step.h"

#include <math.h>
#include <stdlib.h>

typedef struct scene {
    ech_model model;
    ech_cluster cluster;
    ech_job job;
    ech_point point;
} scene;

static void make(scene *s, const char *model, const char *cluster, ech_system system, int gpus)
{
    *s = (scene){0};
    assert_ok(ech_model_load(model, &s->model));
    assert_ok(ech_cluster_load(cluster, &s->cluster));
    ech_cluster_rebind(&s->cluster);
    s->job = ech_job_default(system);
    s->job.model = &s->model;
    s->job.cluster = &s->cluster;
    s->job.gpus = gpus;
    s->job.seq = 2048;
    s->point = ech_point_default();
    s->point.dp = gpus;
    s->point.micro = 2;
    s->job.global_batch = 2 * gpus;
    ech_point_follow_system(&s->job, &s->point);
}

static double token_s(const ech_job *job, const ech_point *point)
{
    ech_pricer *pricer = NULL;
    ech_step_price price;
    assert_ok(ech_pricer_create(job, NULL, &pricer));
    ech_pricer_step(pricer, point, NULL, &price);
    ech_pricer_destroy(&pricer);
    return price.step_s / ((double)job->global_batch * (double)job->seq);
}

static void assert_priced(const scene *s, const ech_footprint *now, const ech_cure *c)
{
    ech_footprint f;
    const char *binding;
    assert_true(ech_point_is_legal(&c->job, &c->point, NULL));
    ech_footprint_of(&c->job, &c->point, NULL, &f);
    assert_near(f.reserved_bytes, c->reserved_bytes, 0.5);
    assert_near(now->reserved_bytes - f.reserved_bytes, c->saves_bytes, 0.5);
    assert_int_equal(ech_footprint_fit(&c->job, &f, &binding), c->fit);
    assert_int_not_equal(c->fit, ECH_FIT_NO);
    assert_near(token_s(&c->job, &c->point) / token_s(&s->job, &s->point), c->time_ratio, 1e-9);
    assert_true(c->change[0] == '-' && !strstr(c->change, "  "));
    assert_non_null(c->gloss[0]);
    assert_true((c->gloss[1] != NULL) == (c->changes == 2));
}

/* Single ones first, then what asks for less. */
static void assert_ordered(const ech_cures *c)
{
    for (int i = 1; i < c->n; i++) {
        const ech_cure *a = &c->cure[i - 1];
        const ech_cure *b = &c->cure[i];
        assert_true(a->changes <= b->changes);
        if (a->changes < b->changes)
            continue;
        assert_true(a->cost <= b->cost);
        assert_string_not_equal(a->change, b->change);
    }
}

/* A pair is told only where neither of its changes does it alone. */
static void assert_pairs_are_needed(const ech_cures *c)
{
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->n; k++)
            if (c->cure[i].changes == 2 && c->cure[k].changes == 1)
                assert_true(c->cure[i].gloss[0] != c->cure[k].gloss[0] &&
                            c->cure[i].gloss[1] != c->cure[k].gloss[0]);
}

/* No option twice in what is to be typed. */
static void assert_said_once(const ech_cures *c)
{
    for (int i = 0; i < c->n; i++)
        for (const char *at = strstr(c->cure[i].change, "--"); at; at = strstr(at + 2, "--")) {
            const size_t n = strcspn(at, " ");
            for (const char *p = strstr(at + 2, "--"); p; p = strstr(p + 2, "--"))
                if (strcspn(p, " ") == n && strncmp(p, at, n) == 0)
                    fail_msg("%s", c->cure[i].change);
        }
}

static void assert_legal(const scene *s)
{
    ech_findings why = {0};
    if (!ech_point_is_legal(&s->job, &s->point, &why))
        fail_msg("%s", ech_text_get(&why.text));
    ech_findings_fini(&why);
}

static void check(scene *s, int least)
{
    ech_footprint now;
    ech_cures *c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_legal(s);
    ech_footprint_of(&s->job, &s->point, NULL, &now);
    assert_ok(ech_cures_find(&s->job, &s->point, c));
    assert_true(c->n >= least && c->tried >= c->n);
    for (int i = 0; i < c->n; i++)
        assert_priced(s, &now, &c->cure[i]);
    assert_ordered(c);
    assert_pairs_are_needed(c);
    assert_said_once(c);
    free(c);
}

static void test_cures_are_priced(void **state)
{
    scene s;
    (void)state;
    make(&s, "llama-2-13b", "a100-sxm-40", ECH_SYSTEM_MEGATRON, 8);
    check(&s, 5);
    make(&s, "llama-2-7b", "v100-sxm-16", ECH_SYSTEM_FSDP2, 8);
    s.job.precision = ECH_PRECISION_FP16;
    check(&s, 3);
    make(&s, "mixtral-8x7b", "h100-sxm-80", ECH_SYSTEM_MEGATRON, 16);
    check(&s, 1);
    make(&s, "llama-3-8b", "rtx-3090", ECH_SYSTEM_DEEPSPEED, 4);
    s.point.zero_stage = 1;
    check(&s, 1);
}

/* On the edge only what fits well is a cure; where it does not fit, the edge is better than nothing. */
static void test_edge(void **state)
{
    scene s;
    ech_footprint f;
    const char *binding;
    ech_cures *c = calloc(1, sizeof *c);
    (void)state;
    assert_non_null(c);
    make(&s, "llama-2-7b", "a100-sxm-80", ECH_SYSTEM_MEGATRON, 8);
    ech_footprint_of(&s.job, &s.point, NULL, &f);
    s.cluster.device.usable_bytes = 1.01 * f.reserved_bytes;
    assert_int_equal(ech_footprint_fit(&s.job, &f, &binding), ECH_FIT_EDGE);
    assert_ok(ech_cures_find(&s.job, &s.point, c));
    assert_true(c->n > 0);
    for (int i = 0; i < c->n; i++)
        assert_int_equal(c->cure[i].fit, ECH_FIT_YES);
    free(c);
}

/* What Echelon executes is cured by what it executes: no recomputation, no offload today. */
static void test_cures_run(void **state)
{
    scene s;
    ech_findings why = {0};
    ech_cures *c = calloc(1, sizeof *c);
    (void)state;
    assert_non_null(c);
    make(&s, "llama-2-7b", "cpu-64c-avx512", ECH_SYSTEM_ECHELON, 8);
    s.cluster.device.usable_bytes = 60e9;
    s.job.precision = ECH_PRECISION_FP32;
    s.job.has_master = false;
    s.job.grad_bytes = s.job.wire_bytes = 4;
    assert_legal(&s);
    assert_true(ech_point_is_executable(&s.job, &s.point, &why));
    assert_ok(ech_cures_find(&s.job, &s.point, c));
    assert_true(c->n > 0);
    for (int i = 0; i < c->n; i++)
        assert_true(ech_point_is_executable(&c->cure[i].job, &c->cure[i].point, &why));
    ech_findings_fini(&why);
    free(c);
}

/* A model that no pair makes fit: the nearest is told, and that it is no cure. */
static void test_nothing_helps(void **state)
{
    scene s;
    ech_cures *c = calloc(1, sizeof *c);
    (void)state;
    assert_non_null(c);
    make(&s, "llama-3.1-405b", "rtx-3090", ECH_SYSTEM_MEGATRON, 1);
    s.cluster.devices = 1;
    assert_ok(ech_cures_find(&s.job, &s.point, c));
    assert_int_equal(c->n, 0);
    assert_true(c->has_nearest && c->nearest.reserved_bytes > s.cluster.device.usable_bytes);
    free(c);
}

/* The cluster's size bounds what more machines can do. */
static void test_no_more_than_there_are(void **state)
{
    scene s;
    ech_cures *c = calloc(1, sizeof *c);
    (void)state;
    assert_non_null(c);
    make(&s, "llama-2-13b", "a100-sxm-40", ECH_SYSTEM_MEGATRON, 8);
    s.cluster.devices = 16;
    assert_ok(ech_cures_find(&s.job, &s.point, c));
    for (int i = 0; i < c->n; i++)
        assert_true(c->cure[i].job.gpus <= 16);
    free(c);
}

/* What is shared over data parallel ranks halves with twice as many; the rest stays. */
static void test_what_shrinks(void **state)
{
    scene s;
    ech_fit_report *r = calloc(1, sizeof *r);
    ech_footprint more;
    (void)state;
    assert_non_null(r);
    make(&s, "llama-2-7b", "a100-sxm-80", ECH_SYSTEM_MEGATRON, 8);
    s.point.zero_stage = 1;
    const ech_fit_spec spec = {.job = &s.job, .point = &s.point, .storage = {.keep = 2}};
    assert_ok(ech_fit_make(&spec, r));
    const double *held = r->memory.stage[0].held;
    assert_near(r->shared[ECH_USE_OPTIMIZER], held[ECH_USE_OPTIMIZER], 1.0);
    assert_near(r->shared[ECH_USE_PARAMS], 0.0, 1.0);
    assert_near(r->saving.room_bytes, 3 * r->saving.checkpoint_bytes, 1.0);
    ech_job job = s.job;
    ech_point point = s.point;
    job.gpus *= 1024;
    job.global_batch *= 1024;
    point.dp *= 1024;
    ech_footprint_of(&job, &point, NULL, &more);
    assert_near(more.reserved_bytes / r->fixed_bytes, 1.0, 0.02);
    ech_fit_fini(r);
    free(r);
}

/* The rate that a step implies, found again from a step that was priced at it. */
static void test_implied_link(void **state)
{
    scene s;
    ech_implied_link link;
    (void)state;
    make(&s, "llama-2-7b", "a100-sxm-80", ECH_SYSTEM_MEGATRON, 64);
    ech_link_level *outer = &s.cluster.level[s.cluster.n_levels - 1];
    const double stated = outer->bytes_per_s;
    outer->bytes_per_s /= 20;
    outer->alone_bytes_per_s /= 20;
    const double tokens = (double)s.job.global_batch * (double)s.job.seq;
    const double slow = token_s(&s.job, &s.point) * tokens;
    outer->bytes_per_s *= 20;
    outer->alone_bytes_per_s *= 20;
    assert_ok(ech_implied_link_of(&s.job, &s.point, slow, &link));
    assert_true(link.is_found);
    assert_near(link.stated_bytes_per_s / stated, 1.0, 1e-12);
    assert_near(link.implied_bytes_per_s / stated, 1.0 / 20, 1e-6);
    const double fast = token_s(&s.job, &s.point) * tokens;
    assert_ok(ech_implied_link_of(&s.job, &s.point, 0.5 * fast, &link));
    assert_false(link.is_found); /* no link makes it that fast */
    assert_true(isnan(link.implied_bytes_per_s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cures_are_priced), cmocka_unit_test(test_edge),
        cmocka_unit_test(test_nothing_helps),    cmocka_unit_test(test_no_more_than_there_are),
        cmocka_unit_test(test_cures_run),        cmocka_unit_test(test_what_shrinks),
        cmocka_unit_test(test_implied_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
