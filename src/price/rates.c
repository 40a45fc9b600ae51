#include "price/rates.h"

#include <math.h>
#include <string.h>

/* Megatron-LM of 2021 fuses bias, dropout and residual, and scale, mask and softmax; scores are stored
 * with their dropout.  Scores: product written 2, softmax read and written 4, dropout read, written,
 * mask 5, read again 2; backward: gradients of both products 6, dropout 5, softmax 6. */
static const ech_kernel_habit megatron_2021 = {
    .attention = ECH_ATTENTION_STORED,
    .norm = {2, 5},
    .residual = {3.5, 6.5},
    .act = {2, 4},
    .gated = {5, 7},
    .heads = {1, 3},
    .context = {2, 2},
    .loss_bytes = {20, 12},
    .scores_bytes = {13, 19},
    .launches = {55, 85},
    .accumulates = true,
    .update_bytes = 50,
};
/* 2023: attention and norms are fused, rotation and the gate are PyTorch's. */
static const ech_kernel_habit megatron_flash = {
    .attention = ECH_ATTENTION_FLASH,
    .norm = {2, 4},
    .residual = {3, 5},
    .act = {2, 3},
    .gated = {5, 8},
    .heads = {5, 6},
    .context = {0, 0},
    .loss_bytes = {14, 8},
    .scores_bytes = {13, 19},
    .launches = {22, 36},
    .accumulates = true,
    .fuses_accumulation = true,
    .update_bytes = 42,
    .hides_dp = true,
    .bucket_bytes = 160e6,
};
/* PyTorch FSDP, eager: norms and activations are kernels of their own, nothing is fused. */
static const ech_kernel_habit fsdp1 = {
    .attention = ECH_ATTENTION_FLASH,
    .norm = {2, 5},
    .residual = {3, 3},
    .act = {2, 3},
    .gated = {5, 8},
    .heads = {2, 4},
    .context = {0, 0},
    .loss_bytes = {20, 14},
    .scores_bytes = {13, 19},
    .launches = {32, 55},
    .update_bytes = 60,
    .hides_dp = true,
};
static const ech_kernel_habit fsdp2 = {
    .attention = ECH_ATTENTION_FLASH,
    .norm = {2, 4},
    .residual = {2, 3},
    .act = {2, 3},
    .gated = {3, 5},
    .heads = {3, 3},
    .context = {0, 0},
    .loss_bytes = {10, 6},
    .scores_bytes = {13, 19},
    .launches = {18, 30},
    .update_bytes = 44,
    .hides_dp = true,
};
static const ech_kernel_habit nemo = {
    .attention = ECH_ATTENTION_FLASH,
    .norm = {2, 4},
    .residual = {3, 4},
    .act = {2, 3},
    .gated = {3, 5},
    .heads = {2, 3},
    .context = {0, 0},
    .loss_bytes = {10, 6},
    .scores_bytes = {13, 19},
    .launches = {20, 32},
    .accumulates = true,
    .fuses_accumulation = true,
    .update_bytes = 42,
    .hides_dp = true,
    .hides_tp = true,
    .hides_p2p = true,
    .sends_once = true,
    .bucket_bytes = 160e6,
};
static const ech_kernel_habit *const habit_of[ECH_N_GENERATIONS] = {
    [ECH_GENERATION_MEGATRON_2021] = &megatron_2021,
    [ECH_GENERATION_MEGATRON_FLASH] = &megatron_flash,
    [ECH_GENERATION_FSDP1] = &fsdp1,
    [ECH_GENERATION_FSDP2_COMPILE] = &fsdp2,
    [ECH_GENERATION_NEMO_24] = &nemo,
    [ECH_GENERATION_MCORE_14] = &nemo,
    [ECH_GENERATION_ECHELON] = &fsdp1,
};

static double gemm_share(const ech_constants *c, ech_device_kind kind)
{
    switch (kind) {
    case ECH_DEVICE_AMPERE:
        return c->value[ECH_K_GEMM_AMPERE];
    case ECH_DEVICE_HOPPER:
        return c->value[ECH_K_GEMM_HOPPER];
    case ECH_DEVICE_BLACKWELL:
        return c->value[ECH_K_GEMM_BLACKWELL];
    case ECH_DEVICE_CPU:
    case ECH_DEVICE_VOLTA:
    case ECH_DEVICE_AMPERE_GX:
    case ECH_DEVICE_ADA:
    case ECH_DEVICE_CDNA3:
    case ECH_N_DEVICE_KINDS:
        break;
    }
    return c->value[ECH_K_GEMM_OTHER];
}

/* The best product that was measured; where none of this precision was, the peak's share that the
 * device's 16-bit products reach, or what others reach where nothing is known. */
static double best_product(const ech_device *d, const ech_constants *c, ech_precision p)
{
    const double peak = d->peak_flops[ECH_PRECISION_BF16], best = d->gemm_flops[ECH_PRECISION_BF16];
    if (d->gemm_flops[p] > 0)
        return d->gemm_flops[p];
    return d->peak_flops[p] *
           (peak > 0 && best > 0 ? best / peak : c->value[ECH_K_GEMM_UNMEASURED]);
}

/* What large products reach: the best, and of that what clocks under load leave. */
static double sustained(const ech_device *d, const ech_constants *c, ech_precision p)
{
    const double best = best_product(d, c, p);
    double share = gemm_share(c, d->kind);
    if (d->kind == ECH_DEVICE_HOPPER && d->watts > 0 && d->watts < 700)
        share *= pow(d->watts / 700, c->value[ECH_K_GEMM_POWER]);
    if (p >= ECH_PRECISION_FP8)
        share *=
            c->value[d->kind == ECH_DEVICE_BLACKWELL ? ECH_K_GEMM_FP8_BLACKWELL : ECH_K_GEMM_FP8];
    return best * share;
}

static double flash_share(const ech_constants *c, ech_device_kind kind, ech_generation g)
{
    const bool is_new = g == ECH_GENERATION_NEMO_24 || g == ECH_GENERATION_MCORE_14;
    if (kind == ECH_DEVICE_AMPERE)
        return c->value[g == ECH_GENERATION_FSDP1 ? ECH_K_FLASH_1 : ECH_K_FLASH_2_AMPERE];
    if (kind == ECH_DEVICE_HOPPER)
        return c->value[is_new                      ? ECH_K_FLASH_3_HOPPER
                        : g == ECH_GENERATION_FSDP1 ? ECH_K_FLASH_1_HOPPER
                                                    : ECH_K_FLASH_2_HOPPER];
    return c->value[kind == ECH_DEVICE_BLACKWELL ? ECH_K_FLASH_BLACKWELL : ECH_K_FLASH_OTHER];
}

static bool starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static double level_share(const ech_constants *c, const ech_link_level *l, int i)
{
    if (starts_with(l->name, "pcie"))
        return c->value[ECH_K_PCIE];
    if (starts_with(l->name, "omni-path"))
        return c->value[ECH_K_OMNIPATH];
    if (starts_with(l->name, "roce") || starts_with(l->name, "ethernet"))
        return c->value[ECH_K_ROCE];
    return c->value[i == 0 ? ECH_K_NVLINK : ECH_K_NETWORK];
}

static void set_levels(const ech_cluster *cluster, const ech_constants *c, ech_rates *out)
{
    out->n_levels = cluster->n_levels;
    for (int i = 0; i < cluster->n_levels; i++) {
        const ech_link_level *l = &cluster->level[i];
        out->level[i] = (ech_rate_level){
            .span = l->span > 0 && i + 1 < cluster->n_levels ? (double)l->span : 1e18,
            .bytes_per_s = l->bytes_per_s * level_share(c, l, i),
            .alone_bytes_per_s = fmax(l->alone_bytes_per_s, l->bytes_per_s) * level_share(c, l, i),
            .latency_s = l->latency_s,
            .reduction = l->has_reduction ? c->value[ECH_K_REDUCTION] : 1,
        };
    }
}

static void set_software(const ech_job *job, const ech_constants *c, ech_rates *out)
{
    const ech_generation g = job->generation;
    ech_constant traffic = ECH_K_TRAFFIC_FUSED, launch = ECH_K_LAUNCH_FUSED;
    if (g == ECH_GENERATION_MEGATRON_2021) {
        traffic = ECH_K_TRAFFIC_2021;
        launch = ECH_K_LAUNCH_2021;
    } else if (g == ECH_GENERATION_FSDP1 ||
               (!job->is_compiled && g == ECH_GENERATION_FSDP2_COMPILE)) {
        traffic = ECH_K_TRAFFIC_EAGER;
        launch = ECH_K_LAUNCH_EAGER;
    }
    out->habit = g == ECH_GENERATION_FSDP2_COMPILE && !job->is_compiled ? &fsdp1 : habit_of[g];
    out->traffic = c->value[traffic];
    out->launch_s = c->value[launch];
    out->optimizer = c->value[ECH_K_OPTIMIZER];
    out->step_s = c->value[ECH_K_STEP];
    out->straggler = c->value[ECH_K_STRAGGLER];
    out->micro_s = c->value[ECH_K_MICRO];
    out->interference = c->value[ECH_K_INTERFERENCE];
    out->dp_hidden = c->value[ECH_K_DP_HIDDEN];
    const bool may_hide = job->overlap != ECH_OVERLAP_NONE;
    const bool hides_tp =
        job->overlap == ECH_OVERLAP_ASYNC_TP || (may_hide && out->habit->hides_tp);
    out->tp_hidden =
        !hides_tp ? 0 : c->value[out->habit->hides_tp ? ECH_K_TP_HIDDEN : ECH_K_TP_ASYNC];
    out->hides_dp = may_hide && out->habit->hides_dp;
    out->hides_p2p = may_hide && out->habit->hides_p2p;
    out->has_roots = job->is_rank_by_rank;
    out->grouped = c->value[ECH_K_GROUPED];
    out->alltoall = c->value[ECH_K_ALLTOALL];
    out->permute = c->value[ECH_K_PERMUTE];
    out->copies = out->habit->sends_once ? (double)job->model->moe.topk : 0;
}

void ech_rates_of(const ech_job *job, const ech_constants *constants, ech_rates *out)
{
    const ech_device *d = &job->cluster->device;
    const double *k = constants->value;
    const ech_precision p16 =
        job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32
            ? job->precision
        : job->precision == ECH_PRECISION_FP16 ? ECH_PRECISION_FP16
                                               : ECH_PRECISION_BF16;
    *out = (ech_rates){0};
    set_software(job, constants, out);
    set_levels(job->cluster, constants, out);
    out->peak = d->peak_flops[job->precision];
    out->flops = sustained(d, constants, job->precision);
    out->flops16 = sustained(d, constants, p16);
    out->units = d->units > 0 ? d->units : 1;
    out->ramp_s = k[ECH_K_GEMM_RAMP];
    out->tail = k[ECH_K_GEMM_TAIL];
    out->epilogue = k[ECH_K_GEMM_EPILOGUE];
    out->wgrad = k[ECH_K_GEMM_WGRAD];
    out->bent = k[ECH_K_GEMM_BENT];
    out->crooked = k[ECH_K_GEMM_CROOKED];
    out->heads_bent = k[ECH_K_HEADS_BENT];
    out->heads_crooked = k[ECH_K_HEADS_CROOKED];
    out->memory_bytes_per_s = d->memory_bytes_per_s * k[ECH_K_MEMORY];
    out->scores_rate = k[ECH_K_SCORES_RATE];
    out->flash_flops[0] = d->peak_flops[p16] * flash_share(constants, d->kind, job->generation);
    out->flash_flops[1] = out->flash_flops[0] * k[ECH_K_FLASH_BACKWARD];
    out->kernel_s = k[ECH_K_KERNEL];
    out->start_s = k[ECH_K_START];
    out->payload_s = k[ECH_K_PAYLOAD];
    out->half_way_bytes = k[ECH_K_HALF_WAY];
    out->softmax = k[ECH_K_FLASH_SOFTMAX];
    out->hop_s = k[ECH_K_HOP];
    out->inner_hop_s = k[ECH_K_INNER_HOP];
    out->wait_s = k[ECH_K_WAIT];
    out->host_bytes_per_s = d->link_bytes_per_s;
    out->act_bytes =
        job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32 ? 4 : 2;
    out->weight_bytes = out->act_bytes;
    const bool is_narrow = job->precision >= ECH_PRECISION_FP8;
    out->operand_bytes = is_narrow ? 1 : out->act_bytes;
    out->gather_share = is_narrow && out->habit->hides_tp ? 0.5 : 1;
    out->accumulate = k[ECH_K_ACCUMULATE];
    out->grad_bytes = job->grad_bytes > 0 ? job->grad_bytes : 4;
    out->is_hierarchical = job->network == ECH_NETWORK_HIERARCHICAL;
}
