#include "price/trained.h"
#include "price/footprint_private.h"

void ech_trained_bound(const ech_job *job, double *backward_share, double *weight_share)
{
    const double frozen = (double)job->frozen_layers / (double)job->model->layers;
    *backward_share = job->tuning == ECH_TUNING_FROZEN ? 1 - frozen : 1;
    *weight_share = job->tuning == ECH_TUNING_LORA ? 0 : *backward_share;
}

double ech_trained_flops_share(const ech_job *job)
{
    double backward;
    double weights;
    ech_trained_bound(job, &backward, &weights);
    return (1 + backward + weights) / 3;
}

void ech_trained_of(const ech_job *job, const ech_point *point, ech_trained *out)
{
    ech_memory_plan plan;
    ech_rank_load load[ECH_FOOTPRINT_STAGES];
    *out = (ech_trained){.is_all = true, .share = 1, .backward_share = 1, .weight_share = 1};
    if (job->tuning == ECH_TUNING_FULL)
        return;
    out->is_all = false;
    ech_memory_plan_of(job, point, 1, &plan);
    const int ranks = ech_memory_loads(&plan, load);
    double all = 0;
    for (int r = 0; r < ranks; r++) {
        const ech_rank_load *l = &load[r];
        const double trained = l->trained[0] + l->trained[1];
        if (trained < out->dense + out->expert)
            continue;
        out->dense = l->trained[0];
        out->expert = l->trained[1];
        all = trained + l->frozen[0] + l->frozen[1] + l->fixed;
    }
    out->share = all > 0 ? (out->dense + out->expert) / all : 0;
    ech_trained_bound(job, &out->backward_share, &out->weight_share);
    if (job->tuning == ECH_TUNING_LORA)
        out->weight_share = out->share;
}

double ech_trained_state_bytes(const ech_job *job)
{
    const ech_point alone = ech_point_default();
    ech_state_rules rules;
    ech_state_rules_of(job, &alone, &rules);
    return rules.trained[0].master + rules.trained[0].moments;
}
