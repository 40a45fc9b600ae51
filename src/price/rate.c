#include "price/rate.h"
#include "price/trained.h"

#include <math.h>

ech_step_rates ech_step_rates_of(const ech_job *job, const ech_step_price *step)
{
    const double tokens = (double)job->global_batch * (double)job->seq;
    const double peak = job->cluster->device.peak_flops[job->precision];
    const double gpu_s = step->step_s * (double)job->gpus;
    ech_step_rates r = {.flops_per_token = ech_model_flops_per_token(job->model, job->seq, false) *
                                           ech_trained_flops_share(job),
                        .peak_flops = peak > 0.0 ? peak : NAN,
                        .tokens_per_s_per_gpu = tokens / gpu_s};
    r.flops_per_s_per_gpu = r.flops_per_token * r.tokens_per_s_per_gpu;
    r.mfu = r.flops_per_s_per_gpu / r.peak_flops;
    r.hfu = r.mfu + step->again_flops / gpu_s / r.peak_flops;
    r.mfu_causal = step->model_flops / gpu_s / r.peak_flops;
    return r;
}

void ech_step_rates_explain(const ech_job *job, const ech_step_price *step, const ech_step_rates *r,
                            ech_derivation *notes)
{
    const ech_model *m = job->model;
    ech_param_count n = {0};
    if (ech_model_count(m, &n) != ECH_OK)
        return;
    ech_derive_section(notes, "Rates");
    ech_derive(notes, "model FLOPs a token", r->flops_per_token, "FLOP",
               "Chowdhery et al. 2022, arXiv:2204.02311, appendix B",
               "(6 * %.6g + 12 * %lld * s %lld * %lld * %lld, windows deducted) * %.3g trained",
               (double)n.matmul, (long long)m->layers, (long long)job->seq, (long long)m->heads,
               (long long)m->head_dim, ech_trained_flops_share(job));
    ech_derive(notes, "tokens a second and GPU", r->tokens_per_s_per_gpu, "1/s", "",
               "%lld * %lld / (%.6g s * %lld GPUs)", (long long)job->global_batch,
               (long long)job->seq, step->step_s, (long long)job->gpus);
    ech_derive(notes, "MFU", r->mfu, "1", "dense peak of the device",
               "%.6g FLOP * %.6g /s / %.5g FLOP/s", r->flops_per_token, r->tokens_per_s_per_gpu,
               r->peak_flops);
}
