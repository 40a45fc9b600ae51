/* A job and a layout as the compiler of programs is asked about them. */
#include "base/checked.h"
#include "plan/own_private.h"
#include "price/shape.h"

#include <stdlib.h>

ech_own_habits ech_own_habits_default(void)
{
    return (ech_own_habits){
        .bucket_bytes = 25 << 20, .prefetch = 1, .real = ECH_F32, .weight_decay = 0.1, .clip = 1.0};
}

bool ech_own_can(const ech_own_spec *spec, ech_findings *why)
{
    const ech_job *job = spec->job;
    bool can = ech_point_is_executable(job, spec->point, why);
    if (job->optimizer != ECH_OPTIMIZER_ADAMW && job->optimizer != ECH_OPTIMIZER_SGD) {
        can = false;
        ech_findings_add(why, "optimizer: the engine has adamw and sgd, not %s",
                         ech_optimizer_name(job->optimizer));
    }
    if (job->loss != ECH_LOSS_DEFAULT && job->loss != ECH_LOSS_FUSED) {
        can = false;
        ech_findings_add(why, "loss: the engine's is fused");
    }
    if (job->model->context > 0 && job->seq > job->model->context) {
        can = false;
        ech_findings_add(why, "seq: %lld tokens, the model's context is %lld", (long long)job->seq,
                         (long long)job->model->context);
    }
    return can;
}

/* --- the pipeline --- */

/* One pipeline rank, and one chunk a rank, run under 1f1b. */
static ech_schedule_kind schedule_of(const ech_point *p)
{
    const bool is_alone = p->pp == 1 && p->schedule != ECH_SCHEDULE_GPIPE;
    const bool has_one_chunk = p->schedule == ECH_SCHEDULE_INTERLEAVED && p->vpp == 1;
    return is_alone || has_one_chunk ? ECH_SCHEDULE_1F1B : p->schedule;
}

static ech_status list_layers(const ech_own_spec *spec, ech_own_compile *c)
{
    const int n = spec->point->pp * c->spec.chunks;
    ech_stage_shape *stage = NULL;
    ECH_TRY(ech_calloc(ECH_SHAPE_STAGES, sizeof *stage, &stage));
    ech_status st = ech_calloc((size_t)n, sizeof *c->stage_layers, &c->stage_layers);
    if (st >= 0) {
        (void)ech_shape_cut(spec->job, spec->point, stage);
        for (int k = 0; k < n; k++)
            c->stage_layers[k] = stage[k].dense + stage[k].sparse;
        c->spec.stage_layers = c->stage_layers;
        c->spec.n_stage_layers = n;
    }
    free(stage);
    return st;
}

static ech_status fill_pipeline(const ech_own_spec *spec, const ech_own_habits *habits,
                                ech_own_compile *c)
{
    const ech_point *p = spec->point;
    const int64_t micros = ech_point_micros(spec->job, p);
    c->spec.schedule = schedule_of(p);
    c->spec.chunks = ech_schedule_chunks(c->spec.schedule, p->vpp);
    c->spec.group = habits->schedule_group;
    c->spec.micro_batches = (int)micros;
    c->spec.rolls = micros >= ECH_COMPILE_ROLLED_FROM;
    return p->split == ECH_SPLIT_BALANCED || p->pp == 1 ? ECH_OK : list_layers(spec, c);
}

/* --- the mesh --- */

static ech_status fill_layout(const ech_own_spec *spec, ech_own_compile *c)
{
    static const ech_axis orders[ECH_N_ORDERS][4] = {
        [ECH_ORDER_TP_CP_DP_PP] = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_DP, ECH_AXIS_PP},
        [ECH_ORDER_TP_PP_DP] = {ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_PP, ECH_AXIS_DP},
        [ECH_ORDER_DP_TP_PP] = {ECH_AXIS_DP, ECH_AXIS_TP, ECH_AXIS_CP, ECH_AXIS_PP}};
    const ech_point *p = spec->point;
    ech_layout_spec degrees = {.tp = p->tp,
                               .cp = p->cp,
                               .pp = p->pp,
                               .dp = p->dp,
                               .shard_group = p->zero_stage ? p->zero_group : 0};
    for (int k = 0; k < 4; k++)
        degrees.order[k] = orders[p->order][k];
    return ech_compile_layout(&c->spec, spec->job->model, degrees, &c->spec.block.layout);
}

static ech_shard_policy policy_of(const ech_point *p, const ech_own_habits *habits)
{
    const bool is_sequence_parallel = p->sequence_parallel && p->tp > 1;
    return (ech_shard_policy){.is_sequence_parallel = is_sequence_parallel,
                              .keeps_inputs = is_sequence_parallel && habits->keeps_inputs,
                              .zero_stage = p->zero_stage,
                              .reduces_each = p->reduce_each,
                              .reshards_after_forward = p->reshard_after_forward,
                              .prefetch = habits->prefetch};
}

ech_status ech_own_compile_make(const ech_own_spec *spec, ech_own_compile *out)
{
    const ech_own_habits usual = ech_own_habits_default();
    const ech_own_habits *habits = spec->habits ? spec->habits : &usual;
    const ech_job *job = spec->job;
    ECH_TRY(ech_canon_create(job->model, &out->canon));
    out->spec = (ech_compile_spec){
        .block = {.model = job->model,
                  .canon = &out->canon,
                  .policy = policy_of(spec->point, habits),
                  .real = habits->real,
                  .rows = spec->point->micro,
                  .seq = job->seq,
                  .optim = job->optimizer == ECH_OPTIMIZER_SGD ? ECH_UPDATE_SGD : ECH_UPDATE_ADAMW,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = habits->weight_decay,
                  .clip = habits->clip},
        .bucket_bytes = habits->bucket_bytes,
        .purpose = spec->is_sketch ? ECH_COMPILE_TO_SKETCH : ECH_COMPILE_TO_PRICE};
    ECH_TRY(fill_pipeline(spec, habits, out));
    return fill_layout(spec, out);
}

void ech_own_compile_fini(ech_own_compile *c)
{
    ech_canon_fini(&c->canon);
    free(c->stage_layers);
    *c = (ech_own_compile){0};
}
