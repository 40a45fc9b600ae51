#include "train/auto_layout.h"

#include "base/checked.h"
#include "plan/own.h"
#include "price/cost_cluster.h"
#include "price/shape.h"
#include "train/auto_private.h"
#include "train/config_layout.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where nothing has been measured: processors of the catalogue.  Their closed forms only have to say
 * which layout is faster. */
static const char *const usual_cluster = "cpu-64c-avx512";

/* Orders that a search knows, as the configuration names them. */
static const char *const orders[ECH_N_ORDERS] = {[ECH_ORDER_TP_CP_DP_PP] = ECH_ORDER_DEFAULT,
                                                 [ECH_ORDER_TP_PP_DP] = "tp-cp-ep-pp-dp",
                                                 [ECH_ORDER_DP_TP_PP] = "dp-tp-cp-ep-pp"};

/* The question. */
typedef struct asked {
    ech_cluster cluster;
    ech_job job;
    ech_own_habits habits;
    ech_search_spec search;
} asked;

/* --- the question --- */

static ech_status make_cluster(const ech_config *cfg, const ech_auto_spec *spec, ech_cluster *out)
{
    const double cap =
        cfg->memory.device_bytes > 0 ? (double)cfg->memory.device_bytes : spec->memory_bytes;
    const double left = cap - (double)cfg->memory.headroom_bytes;
    const double bytes = cap <= 0 ? 1e18 : left > 1 ? left : 1;
    if (spec->calibration)
        ECH_TRY(ech_calibration_cluster(spec->calibration, bytes * spec->calibration->ranks,
                                        spec->calibration_name, out));
    else
        ECH_TRY(ech_cluster_load(usual_cluster, out));
    out->device.usable_bytes = out->device.memory_bytes = bytes;
    out->devices = 0;
    ech_cluster_rebind(out);
    return ECH_OK;
}

ech_own_habits ech_auto_habits(const ech_config *cfg)
{
    return (ech_own_habits){.bucket_bytes = (int64_t)ech_config_bucket_bytes(cfg),
                            .prefetch = (int)cfg->layout.zero.prefetch,
                            .keeps_inputs = cfg->layout.sequence_parallel_inputs == ECH_SP_KEEP,
                            .real = cfg->precision.compute == ECH_COMPUTE_FP64 ? ECH_F64 : ECH_F32,
                            .schedule_group = (int)cfg->layout.schedule_group,
                            .weight_decay = cfg->optim.weight_decay,
                            .clip = cfg->optim.clip,
                            .threads = cfg->run.threads > 0 ? (int)cfg->run.threads : 0};
}

static void make_job(const ech_config *cfg, const ech_auto_spec *spec, asked *q)
{
    ech_job *job = &q->job;
    *job = ech_job_default(ECH_SYSTEM_ECHELON);
    job->model = &cfg->model;
    job->cluster = &q->cluster;
    job->gpus = spec->ranks;
    job->seq = cfg->batch.seq;
    job->global_batch = cfg->batch.global;
    job->precision = ECH_PRECISION_FP32;
    job->generation = ech_generation_of(ECH_SYSTEM_ECHELON, ECH_DEVICE_CPU);
    job->has_master = false;
    job->grad_bytes = job->wire_bytes = 4;
    job->optimizer = cfg->optim.name == ECH_OPTIM_SGD ? ECH_OPTIMIZER_SGD : ECH_OPTIMIZER_ADAMW;
    q->habits = ech_auto_habits(cfg);
}

/* --- pins --- */

static void pin(const ech_config *cfg, const char *path, ech_plan_dim dim, asked *q)
{
    if (ech_auto_is_given(cfg, path))
        q->search.pinned |= UINT32_C(1) << dim;
}

/* What the engine has one value of. */
static void pin_fixed(asked *q)
{
    static const ech_plan_dim fixed[] = {ECH_DIM_CP,
                                         ECH_DIM_EP,
                                         ECH_DIM_ETP,
                                         ECH_DIM_RECOMPUTE,
                                         ECH_DIM_OFFLOAD_OPTIMIZER,
                                         ECH_DIM_OFFLOAD_PARAMS,
                                         ECH_DIM_OFFLOAD_ACTIVATIONS,
                                         ECH_DIM_CP_KIND};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        q->search.pinned |= UINT32_C(1) << fixed[i];
}

static void pin_given(const ech_config *cfg, asked *q)
{
    const ech_config_layout *l = &cfg->layout;
    ech_point *p = &q->search.pin;
    p->tp = (int32_t)l->tp;
    p->pp = (int32_t)l->pp;
    p->dp = (int32_t)(l->dp > 0 ? l->dp : 1);
    p->vpp = (int32_t)l->virtual_stages;
    p->zero_stage = (int32_t)l->zero.stage;
    p->zero_group = (int32_t)l->zero.group;
    p->reshard_after_forward = l->zero.reshard_after_forward;
    p->reduce_each = l->zero.reduce == ECH_ZERO_REDUCE_EACH;
    p->sequence_parallel = l->sequence_parallel;
    p->micro = (int32_t)cfg->batch.micro;
    p->schedule = ech_schedule_kind_of(l->schedule);
    for (int k = 0; k < ECH_N_ORDERS; k++)
        if (strcmp(l->order, orders[k]) == 0)
            p->order = (ech_order)k;
    pin(cfg, "layout.tp", ECH_DIM_TP, q);
    pin(cfg, "layout.pp", ECH_DIM_PP, q);
    pin(cfg, "layout.dp", ECH_DIM_DP, q);
    pin(cfg, "layout.virtual_stages", ECH_DIM_VPP, q);
    pin(cfg, "layout.zero.stage", ECH_DIM_ZERO, q);
    pin(cfg, "layout.zero.group", ECH_DIM_ZERO_GROUP, q);
    pin(cfg, "layout.zero.reshard_after_forward", ECH_DIM_RESHARD, q);
    pin(cfg, "layout.zero.reduce", ECH_DIM_REDUCE, q);
    pin(cfg, "layout.sequence_parallel", ECH_DIM_SP, q);
    pin(cfg, "layout.schedule", ECH_DIM_SCHEDULE, q);
    pin(cfg, "layout.stages", ECH_DIM_SPLIT, q);
    pin(cfg, "layout.order", ECH_DIM_ORDER, q);
    pin(cfg, "batch.micro", ECH_DIM_MICRO, q);
}

/* Pins that the search has no words for. */
static ech_status refuse_pins(const ech_config *cfg)
{
    const ech_config_layout *l = &cfg->layout;
    ECH_CHECK(ech_schedule_kind_of(l->schedule) != ECH_SCHEDULE_FILE, ECH_E_CONFIG,
              "layout: auto with layout.schedule %s: a table is not searched with; wanted a name, "
              "or a layout",
              l->schedule);
    bool is_known = false;
    for (int k = 0; k < ECH_N_ORDERS; k++)
        is_known |= strcmp(l->order, orders[k]) == 0;
    ECH_CHECK(is_known, ECH_E_CONFIG, "layout: auto with layout.order %s: wanted %s, %s or %s",
              l->order, orders[0], orders[1], orders[2]);
    ECH_CHECK(l->schedule_group == 0, ECH_E_CONFIG,
              "layout: auto with layout.schedule_group %lld: built: 0",
              (long long)l->schedule_group);
    ECH_CHECK(l->stages.n == 0 || (ech_auto_is_given(cfg, "layout.pp") &&
                                   ech_auto_is_given(cfg, "layout.virtual_stages")),
              ECH_E_CONFIG,
              "layout: auto with layout.stages: wants layout.pp and layout.virtual_stages too");
    return ECH_OK;
}

static ech_status ask(const ech_config *cfg, const ech_auto_spec *spec, asked *q)
{
    ECH_TRY(refuse_pins(cfg));
    ECH_TRY(make_cluster(cfg, spec, &q->cluster));
    make_job(cfg, spec, q);
    q->search = (ech_search_spec){
        .job = &q->job, .pin = ech_point_default(), .top = ECH_OWN_TOP, .wants_edge = true};
    if (cfg->layout.stage_layers) {
        q->search.pin.split = ECH_SPLIT_LIST;
        q->search.pin.stage_layers = cfg->layout.stage_layers;
    }
    pin_fixed(q);
    pin_given(cfg, q);
    return ECH_OK;
}

/* --- the answer --- */

static ech_status set_number(ech_config *cfg, const char *path, int64_t value)
{
    char words[32];
    (void)snprintf(words, sizeof words, "%" PRId64, value);
    return ech_auto_set(cfg, path, words);
}

static ech_status set_bool(ech_config *cfg, const char *path, bool value)
{
    return ech_auto_set(cfg, path, value ? "true" : "false");
}

/* Stages that are not balanced by cost, as a list. */
static ech_status put_stages(ech_config *cfg, const ech_job *job, const ech_point *p)
{
    ech_stage_shape *stage = NULL;
    ech_text list = {0};
    if (p->split == ECH_SPLIT_BALANCED || p->split == ECH_SPLIT_LIST || p->pp == 1)
        return ECH_OK; /* as it is, or as it was given */
    ECH_TRY(ech_calloc(ECH_SHAPE_STAGES, sizeof *stage, &stage));
    const int n = ech_shape_cut(job, p, stage);
    for (int k = 0; k < n; k++)
        ech_text_add(&list, "%s%d", k ? ", " : "[", stage[k].dense + stage[k].sparse);
    ech_text_add(&list, "]");
    const ech_status st = list.failed ? ECH_RAISE(ECH_E_NOMEM, "layout.stages")
                                      : ech_auto_set(cfg, "layout.stages", ech_text_get(&list));
    ech_text_fini(&list);
    free(stage);
    return st;
}

static ech_status put_point(ech_config *cfg, const ech_job *job, const ech_point *p)
{
    ECH_TRY(put_stages(cfg, job, p));
    ECH_TRY(ech_auto_set(cfg, "layout.order", orders[p->order]));
    ECH_TRY(set_number(cfg, "layout.tp", p->tp));
    ECH_TRY(set_number(cfg, "layout.pp", p->pp));
    ECH_TRY(set_number(cfg, "layout.dp", p->dp));
    ECH_TRY(set_number(cfg, "layout.virtual_stages", p->vpp));
    ECH_TRY(set_number(cfg, "layout.zero.stage", p->zero_stage));
    ECH_TRY(set_number(cfg, "layout.zero.group", p->zero_group));
    ECH_TRY(set_bool(cfg, "layout.zero.reshard_after_forward", p->reshard_after_forward));
    ECH_TRY(ech_auto_set(cfg, "layout.zero.reduce", p->reduce_each ? "each" : "last"));
    ECH_TRY(set_bool(cfg, "layout.sequence_parallel", p->sequence_parallel));
    ECH_TRY(ech_auto_set(cfg, "layout.schedule", ech_schedule_name(p->schedule)));
    return set_number(cfg, "batch.micro", p->micro);
}

/* Why, in one line. */
static void tell(const asked *q, const ech_auto_spec *spec, const ech_plan *plan, ech_text *words)
{
    char bytes[32];
    char cap[32];
    const ech_candidate *c = &plan->best[0];
    ech_text_add(words, "layout: auto: ");
    ech_point_print(&c->point, words);
    ech_text_add(words, " on %d ranks: %.4g s a step (%s%s), %s of memory a rank", spec->ranks,
                 c->step.step_s, spec->calibration ? "simulated on " : "formulas for ",
                 spec->calibration ? spec->calibration_name : usual_cluster,
                 ech_format_bytes(c->reserved_bytes, bytes, sizeof bytes));
    if (q->cluster.device.usable_bytes < 1e18)
        ech_text_add(words, " of %s",
                     ech_format_bytes(q->cluster.device.usable_bytes, cap, sizeof cap));
    if (plan->n_best > 1) {
        const double ratio = plan->best[1].step.step_s / c->step.step_s;
        ech_text_add(words, "; next: ");
        ech_point_print(&plan->best[1].point, words);
        if (ratio < 1.0005)
            ech_text_add(words, ", as fast");
        else
            ech_text_add(words, ", %.3g times as long", ratio);
    }
}

/* Nothing is legal, or nothing fits. */
static ech_status refuse(const asked *q, const ech_auto_spec *spec, const ech_plan *plan)
{
    char cap[32];
    char need[32];
    ech_text why = {0};
    ech_text_add(&why,
                 "layout: auto: no layout of %d ranks that the engine executes fits %s of "
                 "memory a rank",
                 spec->ranks, ech_format_bytes(q->cluster.device.usable_bytes, cap, sizeof cap));
    if (plan->has_nearest) {
        ech_text_add(&why, "; nearest: ");
        ech_point_print(&plan->nearest.point, &why);
        ech_text_add(&why, ", about %s",
                     ech_format_bytes(plan->nearest.reserved_bytes, need, sizeof need));
    }
    for (int i = 0; i < plan->n_rejected; i++)
        ech_text_add(&why, "\n  %s: %lld layouts", plan->rejected[i].reason,
                     (long long)plan->rejected[i].count);
    const ech_status st = ECH_RAISE(ECH_E_INFEASIBLE, "%s", ech_text_get(&why));
    ech_text_fini(&why);
    return st;
}

/* Layouts that are not executed were never meant. */
static void drop_formulas(ech_plan *plan)
{
    int kept = 0;
    for (int i = 0; i < plan->n_best; i++)
        if (plan->best[i].is_exact)
            plan->best[kept++] = plan->best[i];
    plan->n_best = kept;
}

static ech_status search(const asked *q, const ech_auto_spec *spec, ech_plan *plan)
{
    const ech_own_ask how = {.calibration = spec->calibration, .habits = &q->habits};
    const ech_status st = ech_own_search(&q->search, &how, plan);
    if (st == ECH_E_ILLEGAL)
        return ECH_RAISE(ECH_E_INFEASIBLE, "layout: auto: %s", ech_error_message());
    ECH_TRY(st);
    drop_formulas(plan);
    return plan->n_best ? ECH_OK : refuse(q, spec, plan);
}

static ech_status choose(ech_config *cfg, const ech_auto_spec *spec, ech_text *words)
{
    asked q = {0};
    ech_plan *plan = NULL;
    ECH_TRY(ask(cfg, spec, &q));
    ECH_TRY(ech_calloc(1, sizeof *plan, &plan));
    ech_status st = search(&q, spec, plan);
    if (st >= 0)
        st = put_point(cfg, &q.job, &plan->best[0].point);
    if (st >= 0)
        tell(&q, spec, plan, words);
    free(plan);
    return st;
}

ech_status ech_auto_choose(ech_config *cfg, const ech_auto_spec *spec, ech_text *words)
{
    ech_findings findings = {0};
    bool is_kept = false;
    if (!cfg->layout.is_auto || cfg->layout.is_chosen)
        return ECH_OK;
    ECH_TRY(ech_auto_keep(cfg, spec, words, &is_kept));
    if (!is_kept)
        ECH_TRY(choose(cfg, spec, words));
    ECH_CHECK(!words->failed, ECH_E_NOMEM, "layout: auto");
    cfg->layout.is_chosen = true;
    ECH_TRY(ech_config_resolve(cfg, spec->ranks));
    ech_status st = ech_config_validate(cfg, spec->ranks, &findings);
    if (st >= 0)
        st = ech_findings_raise(&findings, ECH_E_CONFIG);
    ech_findings_fini(&findings);
    return st;
}
