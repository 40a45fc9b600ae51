#include "plan/exchange.h"

#include "base/checked.h"
#include "plan/exchange_private.h"
#include "price/shape.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    ech_exchange_writer write;
    ech_exchange_reader read;
} formats[ECH_N_FORMATS] = {
    [ECH_FORMAT_MEGATRON] = {"megatron", ech_megatron_write, ech_megatron_read},
    [ECH_FORMAT_DEEPSPEED] = {"deepspeed", ech_deepspeed_write, ech_deepspeed_read},
    [ECH_FORMAT_TORCHTITAN] = {"torchtitan", ech_torchtitan_write, ech_torchtitan_read},
    [ECH_FORMAT_ACCELERATE] = {"accelerate", ech_accelerate_write, ech_accelerate_read},
    [ECH_FORMAT_ECHELON] = {"echelon", ech_echelon_write, ech_echelon_read},
};

const char *ech_format_name(ech_format f)
{
    return (unsigned)f < ECH_N_FORMATS ? formats[f].name : "none such";
}

bool ech_format_read(const char *name, ech_format *out)
{
    for (int i = 0; i < ECH_N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) {
            *out = (ech_format)i;
            return true;
        }
    return false;
}

/* What is read where nothing is said, with the numbers that every text should say at 0: a reader
 * would have to be told them. */
static void blank(const ech_job *job, ech_job *j, ech_point *p)
{
    *j = ech_job_default(job->system);
    j->model = job->model;
    j->cluster = job->cluster;
    j->gpus = 0;
    j->seq = 0;
    j->global_batch = 0;
    *p = ech_point_default();
    p->micro = 0;
}

/* Read the text back and tell what it does not say. */
static ech_status tell_lost(ech_format f, const ech_job *job, const ech_point *point,
                            const ech_text *text, ech_findings *lost)
{
    ech_job j;
    ech_point p;
    ech_model m = *job->model;
    ech_exchanged *back;
    ech_findings notes = {0};
    blank(job, &j, &p);
    ECH_TRY(ech_calloc(1, sizeof *back, &back));
    back->job = &j;
    back->point = &p;
    back->model = &m;
    ech_status st = ech_format_parse(f, ech_text_get(text), text->bytes, "emitted", back, &notes);
    if (st == ECH_OK)
        st = ech_exchange_compare(f, job, point, back, lost);
    ech_findings_fini(&notes);
    free(back);
    return st;
}

ech_status ech_format_emit(ech_format f, const ech_job *job, const ech_point *point, ech_text *out,
                           ech_findings *lost)
{
    ech_text text = {0};
    ech_status st = formats[f].write(job, point, &text, lost);
    if (st == ECH_OK)
        st = tell_lost(f, job, point, &text, lost);
    if (st == ECH_OK)
        ech_text_add_bytes(out, ech_text_get(&text), text.bytes);
    const bool failed = text.failed || out->failed || lost->text.failed;
    ech_text_fini(&text);
    ECH_TRY(st);
    ECH_CHECK(!failed, ECH_E_NOMEM, "no memory to write a layout");
    return ECH_OK;
}

ech_status ech_format_parse(ech_format f, const char *text, size_t bytes, const char *name,
                            ech_exchanged *into, ech_findings *findings)
{
    ech_findings errors = {0};
    const ech_exchange_source src = {text, bytes, name, findings, &errors};
    ech_job job = *into->job;
    ech_point point = *into->point;
    ech_model model = *into->model;
    ech_exchanged *got;
    ECH_TRY(ech_calloc(1, sizeof *got, &got));
    got->job = &job;
    got->point = &point;
    got->model = &model;
    ech_status st = formats[f].read(&src, got);
    if (point.cp == 1)
        point.cp_kind = ECH_CP_RING; /* what nothing uses has its usual value */
    if (st == ECH_OK)
        st = ech_findings_raise(&errors, ECH_E_CONFIG);
    if (st == ECH_OK) {
        *into->model = model;
        *into->job = job;
        *into->point = point;
        into->has_model = got->has_model;
        into->has_gpus = got->has_gpus;
        memcpy(into->stage_layers, got->stage_layers, sizeof into->stage_layers);
        if (got->has_model)
            into->job->model = into->model;
        if (point.stage_layers == got->stage_layers)
            into->point->stage_layers = into->stage_layers;
    }
    free(got);
    ech_findings_fini(&errors);
    return st;
}

void ech_exchange_check_any(const ech_exchange_source *src, const ech_node *map,
                            const char *const *known, size_t n, const char *what)
{
    const ech_key_reader r = {map, src->name, src->errors};
    for (size_t i = 0; i < n; i++)
        if (ech_key_find(&r, known[i]))
            return;
    if (map->n > 0)
        ech_findings_add(src->errors, "%s: none of its keys is %s: is it another format?",
                         src->name, what);
}

void ech_exchange_be(ech_exchanged *into, ech_system system)
{
    ech_job *job = into->job;
    const ech_job usual = ech_job_default(system);
    job->system = system;
    job->generation =
        job->cluster ? ech_generation_of(system, job->cluster->device.kind) : usual.generation;
    job->is_compiled = usual.is_compiled;
    job->has_master = usual.has_master;
    job->grad_bytes = usual.grad_bytes;
    job->wire_bytes = usual.wire_bytes;
    job->is_optimizer_grouped = usual.is_optimizer_grouped;
}

void ech_exchange_ranks(const ech_exchange_source *src, ech_exchanged *into, int64_t dp)
{
    ech_job *job = into->job;
    ech_point *p = into->point;
    const int64_t others = (int64_t)p->tp * p->cp * p->pp;
    if (dp > 0) {
        p->dp = (int32_t)dp;
        if (into->has_gpus && job->gpus != others * dp)
            ech_findings_add(src->errors,
                             "%s: %lld ranks are not tp %d x cp %d x pp %d x dp %lld = %lld",
                             src->name, (long long)job->gpus, p->tp, p->cp, p->pp, (long long)dp,
                             (long long)(others * dp));
        job->gpus = others * dp;
        into->has_gpus = true;
    } else if (job->gpus > 0 && job->gpus % others == 0 &&
               job->gpus / others <= ECH_EXCHANGE_DEGREE_MAX) {
        p->dp = (int32_t)(job->gpus / others);
    } else if (job->gpus > 0) {
        ech_findings_add(src->errors,
                         "%s: %lld ranks are no multiple of tp %d x cp %d x pp %d = %lld",
                         src->name, (long long)job->gpus, p->tp, p->cp, p->pp, (long long)others);
    }
}

ech_status ech_exchange_cut(const ech_job *job, const ech_point *point, int *layers, int *stages)
{
    ech_stage_shape *stage;
    ECH_TRY(ech_calloc(ECH_EXCHANGE_STAGES, sizeof *stage, &stage));
    *stages = ech_shape_cut(job, point, stage);
    for (int i = 0; i < *stages; i++)
        layers[i] = stage[i].dense + stage[i].sparse;
    free(stage);
    return ECH_OK;
}

bool ech_exchange_degree(const ech_key_reader *r, const char *key, int64_t min, int32_t *out)
{
    int64_t x;
    const ech_key_got got = ech_key_int(r, ECH_KEYS(key), min, &x);
    if (got == ECH_KEY_GOOD && x > ECH_EXCHANGE_DEGREE_MAX)
        ech_key_complain(r, ech_key_find(r, key), "%s is %lld, wanted at most %d", key,
                         (long long)x, ECH_EXCHANGE_DEGREE_MAX);
    else if (got == ECH_KEY_GOOD)
        *out = (int32_t)x;
    return got != ECH_KEY_ABSENT;
}
