/** @file plan/exchange_case.h
 *  Jobs and layouts that the tests of exchange start from, and what a text is read into. */
#ifndef ECH_TESTS_PLAN_EXCHANGE_CASE_H
#define ECH_TESTS_PLAN_EXCHANGE_CASE_H

#include "check.h"

#include "plan/exchange.h"

/** A model, a job and a layout of a system. */
typedef struct exchange_case {
    ech_model model;
    ech_cluster cluster;
    ech_job job;
    ech_point point;
} exchange_case;

/** What was read, with all that it needs. */
typedef struct exchange_read {
    ech_model model;
    ech_job job;
    ech_point point;
    ech_exchanged into;
    ech_findings notes;
} exchange_read;

/** A job with a preset on so many ranks, data parallel; to be changed by the caller. */
static inline exchange_case exchange_make(ech_system system, const char *preset, int64_t gpus)
{
    exchange_case c = {.job = ech_job_default(system), .point = ech_point_default()};
    assert_ok(ech_model_load(preset, &c.model));
    assert_ok(ech_cluster_load("h100-sxm-80", &c.cluster));
    c.job.gpus = gpus;
    c.job.seq = 2048;
    c.job.global_batch = 1024;
    c.point.dp = (int32_t)gpus;
    return c;
}

/** Before anything was read: what a caller has who knows nothing. */
static inline void exchange_blank(exchange_read *r)
{
    *r = (exchange_read){.job = ech_job_default(ECH_SYSTEM_ECHELON), .point = ech_point_default()};
    r->job.gpus = 0;
    r->job.model = NULL;
    r->into.job = &r->job;
    r->into.point = &r->point;
    r->into.model = &r->model;
}

/** Read; the test fails where it cannot be. */
static inline void exchange_parse(ech_format f, const char *text, exchange_read *r)
{
    assert_ok(ech_format_parse(f, text, strlen(text), "file", &r->into, &r->notes));
}

/** Emit; the text is the caller's. */
static inline void exchange_emit(ech_format f, exchange_case *c, ech_text *text, ech_findings *lost)
{
    c->job.model = &c->model;
    ech_cluster_rebind(&c->cluster);
    c->job.cluster = &c->cluster;
    assert_ok(ech_format_emit(f, &c->job, &c->point, text, lost));
}

/** No such words among the findings. */
static inline void exchange_says(const ech_findings *f, const char *words)
{
    if (!strstr(ech_text_get(&f->text), words))
        fail_msg("'%s' is not among the %d findings:\n%s", words, f->n, ech_text_get(&f->text));
}

/** There are so many findings. */
static inline void exchange_count(const ech_findings *f, int n)
{
    if (f->n != n)
        fail_msg("%d findings, wanted %d:\n%s", f->n, n, ech_text_get(&f->text));
}

#define SAME(member)                                                                               \
    do {                                                                                           \
        if (a->member != b->member)                                                                \
            fail_msg("%s: %lld was written, %lld read from:\n%s", #member, (long long)a->member,   \
                     (long long)b->member, text);                                                  \
    } while (0)

/** Every field that all formats of a layout may carry. */
static inline void exchange_same(const exchange_case *a, const exchange_read *b, const char *text)
{
    SAME(job.system);
    SAME(job.gpus);
    SAME(job.precision);
    SAME(job.is_compiled);
    SAME(job.has_master);
    SAME(job.grad_bytes);
    SAME(job.wire_bytes);
    SAME(job.optimizer);
    SAME(point.tp);
    SAME(point.pp);
    SAME(point.vpp);
    SAME(point.dp);
    SAME(point.cp);
    SAME(point.cp_kind);
    SAME(point.ep);
    SAME(point.etp);
    SAME(point.zero_stage);
    SAME(point.zero_group);
    SAME(point.recompute);
    SAME(point.recompute_layers);
    SAME(point.schedule);
    SAME(point.order);
    SAME(point.offload_optimizer);
    SAME(point.offload_params);
    SAME(point.offload_activations);
    SAME(point.sequence_parallel);
    SAME(point.reshard_after_forward);
}

/** And the batch, where the format has words for it. */
static inline void exchange_same_batch(const exchange_case *a, const exchange_read *b,
                                       const char *text)
{
    SAME(job.seq);
    SAME(job.global_batch);
    SAME(point.micro);
}

static inline void exchange_release(exchange_read *r)
{
    ech_findings_fini(&r->notes);
}

#endif
