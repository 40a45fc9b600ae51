/* Pins of a layout out of the planner's options: degrees, names, stages, and what follows them. */
#include "cli/plan_options_private.h"

#include <stdlib.h>
#include <string.h>

typedef struct degree_option {
    ech_plan_text which;
    ech_plan_dim dim;
    int32_t *(*at)(ech_point *p);
} degree_option;

#define DEGREE_AT(function, field)                                                                 \
    static int32_t *function(ech_point *p)                                                         \
    {                                                                                              \
        return &p->field;                                                                          \
    }
DEGREE_AT(tp_of, tp)
DEGREE_AT(pp_of, pp)
DEGREE_AT(vpp_of, vpp)
DEGREE_AT(dp_of, dp)
DEGREE_AT(cp_of, cp)
DEGREE_AT(ep_of, ep)
DEGREE_AT(etp_of, etp)
DEGREE_AT(micro_of, micro)
DEGREE_AT(zero_of, zero_stage)
DEGREE_AT(group_of, zero_group)
#undef DEGREE_AT

static const degree_option degrees[] = {
    {ECH_PLAN_TEXT_TP, ECH_DIM_TP, tp_of},
    {ECH_PLAN_TEXT_PP, ECH_DIM_PP, pp_of},
    {ECH_PLAN_TEXT_VPP, ECH_DIM_VPP, vpp_of},
    {ECH_PLAN_TEXT_DP, ECH_DIM_DP, dp_of},
    {ECH_PLAN_TEXT_CP, ECH_DIM_CP, cp_of},
    {ECH_PLAN_TEXT_EP, ECH_DIM_EP, ep_of},
    {ECH_PLAN_TEXT_ETP, ECH_DIM_ETP, etp_of},
    {ECH_PLAN_TEXT_MICRO, ECH_DIM_MICRO, micro_of},
    {ECH_PLAN_TEXT_ZERO, ECH_DIM_ZERO, zero_of},
    {ECH_PLAN_TEXT_ZERO_GROUP, ECH_DIM_ZERO_GROUP, group_of},
};

static void give(ech_plan_options *o, ech_plan_dim dim)
{
    o->given |= UINT32_C(1) << dim;
}

bool ech_plan_is_given(const ech_plan_options *o, ech_plan_dim dim)
{
    return o->given >> dim & 1;
}

static void read_degrees(ech_plan_options *o, ech_findings *findings)
{
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        const degree_option *d = &degrees[i];
        const bool is_zero = d->dim == ECH_DIM_ZERO;
        int64_t x;
        if (!ech_plan_read_whole(o, d->which,
                                 (ech_plan_range){is_zero ? "a stage" : "a degree",
                                                  is_zero || d->dim == ECH_DIM_ZERO_GROUP ? 0 : 1,
                                                  is_zero ? 3 : 1 << 24},
                                 &x, findings))
            continue;
        *d->at(&o->point) = (int32_t)x;
        give(o, d->dim);
    }
}

static void read_switch(ech_plan_options *o, ech_plan_flag on, ech_plan_flag off, ech_plan_dim dim,
                        bool *out, ech_findings *findings)
{
    if (o->flag[on] && o->flag[off])
        ech_findings_add(findings, "--%s and --%s exclude each other", ech_plan_flag_name(on),
                         ech_plan_flag_name(off));
    if (!o->flag[on] && !o->flag[off])
        return;
    *out = o->flag[on];
    give(o, dim);
}

/* A number of the name that was given, into an enum. */
static bool read_named(ech_plan_options *o, ech_plan_text which, ech_plan_dim dim, int *out,
                       ech_findings *findings)
{
    *out = ech_plan_read_choice(o, which, findings);
    if (*out >= 0)
        give(o, dim);
    return *out >= 0;
}

static void read_names(ech_plan_options *o, ech_findings *findings)
{
    ech_point *p = &o->point;
    int i;
    if (read_named(o, ECH_PLAN_TEXT_SCHEDULE, ECH_DIM_SCHEDULE, &i, findings))
        p->schedule = (ech_schedule_kind)i;
    if (read_named(o, ECH_PLAN_TEXT_ORDER, ECH_DIM_ORDER, &i, findings))
        p->order = (ech_order)i;
    if (read_named(o, ECH_PLAN_TEXT_SPLIT, ECH_DIM_SPLIT, &i, findings))
        p->split = (ech_stage_split)i;
    if (read_named(o, ECH_PLAN_TEXT_CP_KIND, ECH_DIM_CP_KIND, &i, findings))
        p->cp_kind = (ech_cp_kind)i;
    if (read_named(o, ECH_PLAN_TEXT_OFFLOAD_OPTIMIZER, ECH_DIM_OFFLOAD_OPTIMIZER, &i, findings))
        p->offload_optimizer = (ech_offload)i;
    if (read_named(o, ECH_PLAN_TEXT_OFFLOAD_PARAMS, ECH_DIM_OFFLOAD_PARAMS, &i, findings))
        p->offload_params = (ech_offload)i;
    if (read_named(o, ECH_PLAN_TEXT_OFFLOAD_ACTIVATIONS, ECH_DIM_OFFLOAD_ACTIVATIONS, &i, findings))
        p->offload_activations = (ech_offload)i;
    read_switch(o, ECH_PLAN_FLAG_SP, ECH_PLAN_FLAG_NO_SP, ECH_DIM_SP, &p->sequence_parallel,
                findings);
    read_switch(o, ECH_PLAN_FLAG_RESHARD, ECH_PLAN_FLAG_NO_RESHARD, ECH_DIM_RESHARD,
                &p->reshard_after_forward, findings);
    read_switch(o, ECH_PLAN_FLAG_REDUCE_EACH, ECH_PLAN_FLAG_REDUCE_LAST, ECH_DIM_REDUCE,
                &p->reduce_each, findings);
}

static void read_recompute(ech_plan_options *o, ech_findings *findings)
{
    const char *text = o->text[ECH_PLAN_TEXT_RECOMPUTE];
    if (!text)
        return;
    if (ech_recompute_read(text, &o->job, &o->point.recompute, &o->point.recompute_layers))
        give(o, ECH_DIM_RECOMPUTE);
    else
        ech_findings_add(findings,
                         "--recompute %s: wanted none, full, full:N, selective or a list of "
                         "attention, norm, act, moe, mla, ops",
                         text);
}

/* "9,10,10,9". */
static ech_status read_stages(ech_plan_options *o, ech_findings *findings)
{
    const char *text = o->text[ECH_PLAN_TEXT_STAGES];
    int n = 1;
    if (!text)
        return ECH_OK;
    for (const char *at = text; *at; at++)
        n += *at == ',';
    free(o->stage_layers);
    o->stage_layers = calloc((size_t)n, sizeof *o->stage_layers);
    ECH_CHECK(o->stage_layers, ECH_E_NOMEM, "%d stages", n);
    for (int i = 0; i < n; i++) {
        char *end;
        const long layers = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || layers < 0 || layers > ECH_MODEL_LAYERS_MAX) {
            ech_findings_add(findings,
                             "--stages %s: wanted layers of each stage, such as 9,10,10,9",
                             o->text[ECH_PLAN_TEXT_STAGES]);
            return ECH_OK;
        }
        o->stage_layers[i] = (int)layers;
        text = *end ? end + 1 : end;
    }
    o->n_stage_layers = n;
    o->point.stage_layers = o->stage_layers;
    o->point.split = ECH_SPLIT_LIST;
    give(o, ECH_DIM_SPLIT);
    return ECH_OK;
}

void ech_plan_check_stages(const ech_plan_options *o, ech_findings *findings)
{
    const ech_point *p = &o->point;
    const int stages = p->pp == 1 ? 1 : p->pp * ech_schedule_chunks(p->schedule, p->vpp);
    if (o->n_stage_layers && o->n_stage_layers != stages)
        ech_findings_add(findings, "--stages lists %d stages, pp %d x vpp %d makes %d",
                         o->n_stage_layers, p->pp, p->vpp, stages);
}

/* A list of stages says how many chunks a rank has, where nobody does. */
static void follow_list(ech_plan_options *o)
{
    ech_point *p = &o->point;
    if (!o->n_stage_layers || !ech_plan_is_given(o, ECH_DIM_PP) ||
        ech_plan_is_given(o, ECH_DIM_VPP) || o->n_stage_layers % p->pp ||
        ech_plan_is_given(o, ECH_DIM_SCHEDULE))
        return;
    p->vpp = o->n_stage_layers / p->pp;
    give(o, ECH_DIM_VPP);
}

/* What other systems say with vpp alone: virtual stages under 1F1B are interleaved. */
static void follow_vpp(ech_plan_options *o)
{
    ech_point *p = &o->point;
    if (!ech_plan_is_given(o, ECH_DIM_VPP) || p->vpp == 1 || p->schedule != ECH_SCHEDULE_1F1B)
        return;
    if (ech_plan_is_given(o, ECH_DIM_SCHEDULE) || p->pp > 1)
        p->schedule = ECH_SCHEDULE_INTERLEAVED;
}

/* FSDP is stage 3; what the system leaves no choice of follows, unless it was said. */
static void follow_system(ech_plan_options *o)
{
    ech_point *p = &o->point;
    const ech_system s = o->job.system;
    if (!ech_plan_is_given(o, ECH_DIM_ZERO) &&
        (s == ECH_SYSTEM_FSDP2 || s == ECH_SYSTEM_TORCHTITAN))
        p->zero_stage = 3;
    const ech_point said = *p;
    ech_point_follow_system(&o->job, p);
    if (ech_plan_is_given(o, ECH_DIM_SP))
        p->sequence_parallel = said.sequence_parallel;
    if (ech_plan_is_given(o, ECH_DIM_REDUCE))
        p->reduce_each = said.reduce_each;
    if (ech_plan_is_given(o, ECH_DIM_SPLIT))
        p->split = said.split;
    if (ech_plan_is_given(o, ECH_DIM_CP_KIND))
        p->cp_kind = said.cp_kind;
}

/* What no layout of a system does. */
static void check_reduce(const ech_plan_options *o, ech_findings *findings)
{
    if (o->job.system == ECH_SYSTEM_DEEPSPEED && o->point.zero_stage >= 2 &&
        o->flag[ECH_PLAN_FLAG_REDUCE_LAST])
        ech_findings_add(findings,
                         "--reduce-last with --zero %d: DeepSpeed's backward reduces every "
                         "micro-batch; legal: --reduce-each",
                         o->point.zero_stage);
}

ech_status ech_plan_read_pins(ech_plan_options *o, ech_findings *findings)
{
    read_degrees(o, findings);
    read_names(o, findings);
    check_reduce(o, findings);
    read_recompute(o, findings);
    return read_stages(o, findings);
}

void ech_plan_follow_pins(ech_plan_options *o, ech_plan_want want)
{
    follow_list(o);
    follow_vpp(o);
    if (want == ECH_PLAN_ONE && o->has_model)
        follow_system(o);
}
