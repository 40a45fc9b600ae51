/* Megatron-LM's arguments.  Names, defaults and meanings: megatron/training/arguments.py and
 * megatron/core/transformer/transformer_config.py, Megatron-LM of August 2026. */
#include "plan/exchange_megatron.h"
#include "plan/exchange_private.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

enum { USUAL_NODE = 8 /* devices, where no cluster is known */ };

/* --- writing --- */

static void add_int(ech_text *out, const char *name, int64_t value)
{
    ech_megatron_arg(out, name, "%lld", (long long)value);
}

static void add_flag(ech_text *out, const char *name)
{
    ech_megatron_arg(out, name, "%s", "");
}

/* The command that starts it: how many ranks there are is told to the launcher alone. */
static void write_launch(const ech_job *job, ech_text *out)
{
    const int usual = job->cluster ? job->cluster->devices_per_node : USUAL_NODE;
    const int64_t node = job->gpus < usual || job->gpus % usual != 0 ? job->gpus : usual;
    ech_text_add(out, "torchrun --nnodes %lld --nproc-per-node %lld pretrain_gpt.py",
                 (long long)(job->gpus / node), (long long)node);
}

/* "Et*3|t*4|t*3L" */
static void write_layout_string(const int *layers, int stages, ech_text *out)
{
    ech_text_add(out, " \\\n    --pipeline-model-parallel-layout \"E");
    for (int i = 0; i < stages; i++) {
        if (layers[i] > 0)
            ech_text_add(out, "t*%d", layers[i]);
        if (i + 1 < stages)
            ech_text_add(out, "|");
    }
    ech_text_add(out, "L\"");
}

/* Stages: even ones by the number of layers, others by a list. */
static ech_status write_stages(const ech_job *job, const ech_point *p, ech_text *out)
{
    const int64_t layers = job->model->layers;
    int *cut;
    int n;
    ECH_TRY(ech_calloc(ECH_EXCHANGE_STAGES, sizeof *cut, &cut));
    const ech_status st = ech_exchange_cut(job, p, cut, &n);
    bool is_even = true;
    bool is_ends = true;
    for (int i = 0; i < n; i++) {
        is_even = is_even && cut[i] == layers / n;
        is_ends = is_ends && cut[i] == (layers + 2) / n - (i == 0) - (i == n - 1);
    }
    is_even = is_even && layers % n == 0;
    is_ends = is_ends && (layers + 2) % n == 0;
    if (is_even || is_ends) {
        if (is_ends && !is_even) {
            add_flag(out, "account-for-embedding-in-pipeline-split");
            add_flag(out, "account-for-loss-in-pipeline-split");
        }
        if (n > p->pp)
            add_int(out, "num-layers-per-virtual-pipeline-stage",
                    (is_even ? layers : layers + 2) / n);
    } else {
        write_layout_string(cut, n, out);
    }
    free(cut);
    return st;
}

static void write_cp(const ech_point *p, ech_text *out)
{
    static const char *const kinds[] = {[ECH_CP_RING] = "p2p",
                                        [ECH_CP_GATHER] = "all_gather",
                                        [ECH_CP_ULYSSES] = "a2a",
                                        [ECH_CP_USP] = "a2a+p2p"};
    add_int(out, "context-parallel-size", p->cp);
    ech_megatron_arg(out, "cp-comm-type", "%s", kinds[p->cp_kind]);
}

static ech_status write_mesh(const ech_job *job, const ech_point *p, ech_text *out)
{
    add_int(out, "tensor-model-parallel-size", p->tp);
    add_int(out, "pipeline-model-parallel-size", p->pp);
    if (p->pp > 1)
        ECH_TRY(write_stages(job, p, out));
    if (p->cp > 1)
        write_cp(p, out);
    if (job->model->moe.experts > 0) {
        add_int(out, "expert-model-parallel-size", p->ep);
        add_int(out, "expert-tensor-parallel-size", p->etp);
    }
    if (p->sequence_parallel)
        add_flag(out, "sequence-parallel");
    if (p->order == ECH_ORDER_TP_PP_DP)
        add_flag(out, "use-tp-pp-dp-mapping");
    return ECH_OK;
}

/* Stage 1 is the distributed optimizer, 2 and 3 are Megatron-FSDP's. */
static void write_sharding(const ech_point *p, ech_text *out)
{
    const int64_t all = (int64_t)p->dp * p->cp;
    if (p->zero_stage >= 1)
        add_flag(out, "use-distributed-optimizer");
    if (p->zero_stage >= 2) {
        add_flag(out, "use-megatron-fsdp");
        ech_megatron_arg(out, "data-parallel-sharding-strategy", "%s",
                         p->zero_stage == 3 ? "optim_grads_params" : "optim_grads");
        ech_megatron_arg(out, "ckpt-format", "fsdp_dtensor");
        add_flag(out, "no-gradient-accumulation-fusion");
    }
    if (p->zero_stage >= 1 && p->zero_group > 0 && all % p->zero_group == 0 && all > p->zero_group)
        add_int(out, "num-distributed-optimizer-instances", all / p->zero_group);
    add_flag(out, "overlap-grad-reduce");
    if (p->zero_stage >= 1)
        add_flag(out, "overlap-param-gather");
}

static void write_precision(const ech_job *job, ech_text *out)
{
    const bool is_half = job->precision == ECH_PRECISION_FP16;
    if (is_half)
        add_flag(out, "fp16");
    else if (job->precision != ECH_PRECISION_FP32 && job->precision != ECH_PRECISION_TF32)
        add_flag(out, "bf16");
    if (job->precision == ECH_PRECISION_FP8) {
        ech_megatron_arg(out, "fp8-format", "hybrid");
    } else if (job->precision == ECH_PRECISION_MXFP8) {
        ech_megatron_arg(out, "fp8-format", "e4m3");
        ech_megatron_arg(out, "fp8-recipe", "mxfp8");
    } else if (job->precision == ECH_PRECISION_NVFP4) {
        ech_megatron_arg(out, "fp4-format", "e2m1");
    }
    if (job->grad_bytes == 4 && is_half)
        add_flag(out, "accumulate-allreduce-grads-in-fp32");
    if (job->grad_bytes == 2 && !is_half && job->precision != ECH_PRECISION_FP32)
        add_flag(out, "grad-reduce-in-bf16");
}

static void write_moments(const char *dtype, ech_text *out)
{
    ech_megatron_arg(out, "exp-avg-dtype", "%s", dtype);
    ech_megatron_arg(out, "exp-avg-sq-dtype", "%s", dtype);
}

static void write_optimizer(const ech_job *job, const ech_point *p, ech_text *out)
{
    const bool is_small =
        job->optimizer == ECH_OPTIMIZER_ADAMW_BF16 || job->optimizer == ECH_OPTIMIZER_ADAMW_8BIT;
    const char *name = job->optimizer == ECH_OPTIMIZER_SGD    ? "sgd"
                       : job->optimizer == ECH_OPTIMIZER_MUON ? "muon"
                                                              : "adam";
    ech_megatron_arg(out, "optimizer", "%s", name);
    if (is_small || p->offload_optimizer == ECH_OFFLOAD_HOST)
        add_flag(out, "use-precision-aware-optimizer");
    if (is_small)
        write_moments(job->optimizer == ECH_OPTIMIZER_ADAMW_BF16 ? "bf16" : "fp8", out);
    if (p->offload_optimizer == ECH_OFFLOAD_HOST)
        add_flag(out, "optimizer-cpu-offload");
    if (p->offload_activations == ECH_OFFLOAD_HOST && p->pp == 1 && !p->recompute)
        add_int(out, "cpu-offloading-num-layers", job->model->layers - 1);
}

/* Modules of selective recomputation.  ACT alone has none: "mlp" is the whole MLP. */
static const struct {
    const char *word;
    uint32_t bit;
} modules[] = {
    {"core_attn", ECH_RECOMPUTE_ATTENTION},
    {"layernorm", ECH_RECOMPUTE_NORM},
    {"moe_act", ECH_RECOMPUTE_MOE},
    {"mla_up_proj", ECH_RECOMPUTE_MLA},
};
enum { N_MODULES = sizeof modules / sizeof *modules };

static void write_recompute(const ech_point *p, ech_text *out)
{
    ech_text words = {0};
    if (p->recompute & ECH_RECOMPUTE_FULL) {
        ech_megatron_arg(out, "recompute-granularity", "full");
        ech_megatron_arg(out, "recompute-method", p->recompute_layers > 0 ? "block" : "uniform");
        add_int(out, "recompute-num-layers", p->recompute_layers > 0 ? p->recompute_layers : 1);
        return;
    }
    for (int i = 0; i < N_MODULES; i++)
        if (p->recompute & modules[i].bit)
            ech_text_add(&words, "%s%s", words.bytes ? " " : "", modules[i].word);
    if (words.bytes > 0) {
        ech_megatron_arg(out, "recompute-granularity", "selective");
        ech_megatron_arg(out, "recompute-modules", "%s", ech_text_get(&words));
    }
    ech_text_fini(&words);
}

static void write_length(const ech_job *job, ech_text *out)
{
    if (job->tokens > 0 && job->seq > 0 && job->global_batch > 0) {
        const double samples = job->tokens / (double)job->seq;
        ech_megatron_arg(out, "train-samples", "%.0f", samples);
    }
}

/* What cannot be run at all, whatever is left out. */
static ech_status refuse(const ech_job *job, const ech_point *p)
{
    ECH_CHECK(p->pp == 1 || p->schedule == ECH_SCHEDULE_1F1B ||
                  p->schedule == ECH_SCHEDULE_INTERLEAVED,
              ECH_E_UNSUPPORTED, "megatron: schedule %s: it has 1f1b and interleaved",
              ech_schedule_name(p->schedule));
    ECH_CHECK(job->tuning == ECH_TUNING_FULL, ECH_E_UNSUPPORTED,
              "megatron: frozen weights and adapters have no argument in pretrain_gpt.py");
    ECH_CHECK(p->offload_params == ECH_OFFLOAD_NONE, ECH_E_UNSUPPORTED,
              "megatron: parameters cannot wait outside of the device");
    return ECH_OK;
}

ech_status ech_megatron_write(const ech_job *job, const ech_point *p, ech_text *out,
                              ech_findings *lost)
{
    ECH_TRY(refuse(job, p));
    if (job->model->act == ECH_ACT_GEGLU)
        ech_findings_add(lost,
                         "megatron: the gate's gelu is x sigmoid(1.702 x) there (--quick-geglu)");
    write_launch(job, out);
    ECH_TRY(write_mesh(job, p, out));
    write_sharding(p, out);
    add_int(out, "micro-batch-size", p->micro);
    add_int(out, "global-batch-size", job->global_batch);
    add_int(out, "seq-length", job->seq);
    write_precision(job, out);
    write_optimizer(job, p, out);
    write_recompute(p, out);
    if (job->loss == ECH_LOSS_FUSED)
        add_flag(out, "cross-entropy-loss-fusion");
    if (job->model->moe.experts > 0 && job->moe_capacity > 0)
        ech_megatron_arg(out, "moe-expert-capacity-factor", "%g", job->moe_capacity);
    write_length(job, out);
    ech_megatron_write_model(job->model, out);
    ech_text_add(out, "\n");
    return ECH_OK;
}
