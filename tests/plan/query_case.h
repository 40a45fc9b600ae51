/** @file plan/query_case.h
 *  Queries for tests of the search: a model on a cluster, and whether two answers are one. */
#ifndef ECH_TESTS_PLAN_QUERY_CASE_H
#define ECH_TESTS_PLAN_QUERY_CASE_H

#include "check.h"

#include "plan/search.h"

#include <stdlib.h>

/** What is asked. */
typedef struct query {
    const char *model, *cluster;
    int64_t gpus, seq, global_batch;
    ech_system system;
} query;

/** With what it borrows; do not copy it. */
typedef struct query_case {
    ech_model model;
    ech_cluster cluster;
    ech_job job;
    ech_search_spec spec;
} query_case;

static inline void query_make(query_case *c, const query *q)
{
    *c = (query_case){.spec = {.top = 10}};
    assert_ok(ech_model_load(q->model, &c->model));
    assert_ok(ech_cluster_load(q->cluster, &c->cluster));
    ech_cluster_rebind(&c->cluster);
    ech_model_take_seq(&c->model, q->seq);
    c->job = ech_job_default(q->system);
    c->job.model = &c->model;
    c->job.cluster = &c->cluster;
    c->job.gpus = q->gpus;
    c->job.seq = q->seq;
    c->job.global_batch = q->global_batch;
    c->job.generation = ech_generation_of(q->system, c->cluster.device.kind);
    if (c->cluster.device.peak_flops[c->job.precision] == 0.0) {
        c->job.precision = ECH_PRECISION_FP32;
        c->job.has_master = false;
    }
    c->spec.job = &c->job;
    c->spec.pin = ech_point_default();
}

static inline ech_plan *query_search(const query_case *c, bool is_brute)
{
    ech_search_spec spec = c->spec;
    ech_plan *plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    spec.is_brute = is_brute;
    assert_ok(ech_plan_search(&spec, plan));
    return plan;
}

static inline void same_candidate(const char *what, int i, const ech_candidate *a,
                                  const ech_candidate *b)
{
    ech_text x = {0};
    ech_text y = {0};
    ech_point_print(&a->point, &x);
    ech_point_print(&b->point, &y);
    if (strcmp(ech_text_get(&x), ech_text_get(&y)) != 0 || a->gpus != b->gpus ||
        a->step.step_s != b->step.step_s || a->reserved_bytes != b->reserved_bytes)
        fail_msg(
            "%s %d: %s (%.9g s, %.9g B, %lld GPUs), every layout looked at: %s (%.9g s, %.9g B, "
            "%lld GPUs)",
            what, i, ech_text_get(&x), a->step.step_s, a->reserved_bytes, (long long)a->gpus,
            ech_text_get(&y), b->step.step_s, b->reserved_bytes, (long long)b->gpus);
    ech_text_fini(&x);
    ech_text_fini(&y);
}

/** The same best and the same front. */
static inline void same_plan(const ech_plan *a, const ech_plan *b)
{
    assert_int_equal(a->n_best, b->n_best);
    assert_int_equal(a->n_pareto, b->n_pareto);
    for (int i = 0; i < a->n_best; i++)
        same_candidate("best", i, &a->best[i], &b->best[i]);
    for (int i = 0; i < a->n_pareto; i++)
        same_candidate("front", i, &a->pareto[i], &b->pareto[i]);
}

/** Is the build one whose times say nothing: sanitizers, no optimisation. */
static inline bool is_slow_build(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
    return true;
#else
    return false;
#endif
}

#endif
