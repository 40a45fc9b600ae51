/* What is known of the software that published measurements were made with: its settings where a
 * table does not say otherwise.  A row of the first table is a code base at
 * a time, never a measurement: which of the systems and generations of kernels it is, its defaults. */
#include "plan/validate_private.h"

#include <string.h>

static const ech_software software[] = {
    {.name = "megatron-lm-2021",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_MEGATRON_2021,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 4,
     .flops = ECH_FLOPS_HARDWARE,
     .dropout = 0.1,
     .source =
         "Megatron-LM v2.x arguments.py: gradients accumulate in fp32 with bf16 only, dropout 0.1"},
    {.name = "deepspeed-2021",
     .system = ECH_SYSTEM_DEEPSPEED,
     .generation = ECH_GENERATION_MEGATRON_2021,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 2,
     .reduces_each = true,
     .zero_stage = 3,
     .is_rank_by_rank = true,
     .flops = ECH_FLOPS_HARDWARE,
     .dropout = 0.1,
     .source = "Narayanan et al. 2021, section 5.2: ZeRO-3 of DeepSpeed with Megatron's kernels"},
    {.name = "megatron-lm-2022",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_MEGATRON_2021,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 4,
     .flops = ECH_FLOPS_MODEL,
     .dropout = 0.1,
     .source =
         "Korthikanti et al. 2022, arXiv:2205.05198, section 4 (dropout) and appendix A: FLOPs "
         "without recomputation"},
    {.name = "megatron-lm-fp16",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_MEGATRON_2021,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 4,
     .flops = ECH_FLOPS_HARDWARE,
     .dropout = 0.1,
     .source = "vTrain's validation configurations: Megatron-LM in fp16, unfused attention"},
    {.name = "megatron-deepspeed",
     .system = ECH_SYSTEM_DEEPSPEED,
     .generation = ECH_GENERATION_MEGATRON_2021,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 4,
     .zero_stage = 1,
     .is_rank_by_rank = true,
     .flops = ECH_FLOPS_HARDWARE,
     .dropout = 0.1,
     .heads = 64,
     .source = "bigscience tr11 chronicles: DeepSpeed ZeRO-1 in fp16, its BF16 optimizer with fp32 "
               "gradients; 64 heads where no other number is tried"},
    {.name = "llm-foundry",
     .system = ECH_SYSTEM_FSDP2,
     .generation = ECH_GENERATION_FSDP1,
     .grad_bytes_fp16 = 4,
     .grad_bytes_bf16 = 4,
     .reduces_each = true,
     .zero_stage = 3,
     .flops = ECH_FLOPS_MODEL,
     .loss = ECH_LOSS_FUSED,
     .source = "Composer's FSDP: shards in fp32, gradients reduced every micro-batch; mp_mode PURE "
               "reduces in 16 bits; fused_crossentropy"},
    {.name = "internevo",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_MEGATRON_FLASH,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 2,
     .zero_stage = 1,
     .is_rank_by_rank = true,
     .flops = ECH_FLOPS_MODEL,
     .source = "InternEvo train_performance: hybrid ZeRO-1 within parts of the ranks by "
               "broadcasts, 16-bit gradients, flash attention"},
    {.name = "colossalai",
     .system = ECH_SYSTEM_DEEPSPEED,
     .generation = ECH_GENERATION_MEGATRON_FLASH,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 2,
     .recomputes = true,
     .zero_stage = 2,
     .flops = ECH_FLOPS_HARDWARE,
     .source = "ColossalAI's benchmark utilities: Megatron's formula, whatever the model, with all "
               "layers recomputed; its samples per second agree"},
    {.name = "megatron-core-0.8",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_NEMO_24,
     .grad_bytes_fp16 = 4,
     .grad_bytes_bf16 = 4,
     .has_sp = true,
     .zero_stage = 1,
     .flops = ECH_FLOPS_MODEL,
     .source = "Megatron-LM r0.8 README and training.py: model FLOPs, attention in full"},
    {.name = "nemo-24",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_NEMO_24,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 2,
     .has_sp = true,
     .zero_stage = 1,
     .flops = ECH_FLOPS_MODEL,
     .source =
         "NeMo 24.07 launcher scripts: distributed Adam, gradients in bf16, sequence parallel"},
    {.name = "maxtext",
     .system = ECH_SYSTEM_FSDP2,
     .generation = ECH_GENERATION_FSDP2_COMPILE,
     .grad_bytes_fp16 = 4,
     .grad_bytes_bf16 = 4,
     .zero_stage = 3,
     .flops = ECH_FLOPS_MODEL,
     .source = "MaxText on XLA: compiled, fp32 parameters sharded over all devices"},
    {.name = "megatron-fsdp",
     .system = ECH_SYSTEM_FSDP2,
     .generation = ECH_GENERATION_MCORE_14,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 2,
     .has_master = true,
     .has_sp = true,
     .zero_stage = 3,
     .flops = ECH_FLOPS_MODEL,
     .loss = ECH_LOSS_FUSED,
     .source = "Megatron-Bridge performance scripts with FSDP, gradients in bf16, fused loss"},
    {.name = "megatron-bridge",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_MCORE_14,
     .grad_bytes_fp16 = 2,
     .grad_bytes_bf16 = 2,
     .has_sp = true,
     .zero_stage = 1,
     .flops = ECH_FLOPS_MODEL,
     .loss = ECH_LOSS_FUSED,
     .source = "Megatron-Bridge performance scripts: distributed optimizer, gradients in bf16, "
               "fused loss"},
    {.name = "megatron-core-0.14",
     .system = ECH_SYSTEM_MEGATRON,
     .generation = ECH_GENERATION_MCORE_14,
     .grad_bytes_fp16 = 4,
     .grad_bytes_bf16 = 4,
     .has_sp = true,
     .zero_stage = 1,
     .cp_kind = ECH_CP_ULYSSES,
     .flops = ECH_FLOPS_MODEL,
     .loss = ECH_LOSS_FUSED,
     .source = "SimuMax v1.2 docs: Megatron-LM 0.14, context parallel by all-to-all, "
               "cross-entropy-loss-fusion"},
    {.name = "torchtitan",
     .system = ECH_SYSTEM_TORCHTITAN,
     .generation = ECH_GENERATION_FSDP2_COMPILE,
     .grad_bytes_fp16 = 4,
     .grad_bytes_bf16 = 4,
     .has_sp = true,
     .zero_stage = 3,
     .flops = ECH_FLOPS_MODEL,
     .source =
         "torchtitan: fp32 shards, gradients reduced in fp32, sequence parallel with tp; with "
         "pipelines weights stay gathered and gradients are reduced once"},
};

/* Which software a family of ids was measured with: first that goes with the row's words. */
static const struct {
    const char *family;
    const char *model, *zero; /* words in these columns; NULL: any */
    const char *software;
} families[] = {
    {"dgxc", "maxtext", NULL, "maxtext"},
    {"mbridge", NULL, "fsdp", "megatron-fsdp"},
    {"narayanan-t2", NULL, "zero3", "deepspeed-2021"},
    {"narayanan-t1", NULL, NULL, "megatron-lm-2021"},
    {"narayanan-t2", NULL, NULL, "megatron-lm-2021"},
    {"korthikanti-t5", NULL, NULL, "megatron-lm-2022"},
    {"korthikanti-mfu", NULL, NULL, "megatron-lm-2022"},
    {"korthikanti-mem", NULL, NULL, "megatron-lm-2022"},
    {"vtrain-multi", NULL, NULL, "megatron-lm-fp16"},
    {"vtrain-single", NULL, NULL, "megatron-lm-fp16"},
    {"bloom", NULL, NULL, "megatron-deepspeed"},
    {"bloom-mem", NULL, NULL, "megatron-deepspeed"},
    {"bloom-oom", NULL, NULL, "megatron-deepspeed"},
    {"bloom-prod", NULL, NULL, "megatron-deepspeed"},
    {"llmfoundry", NULL, NULL, "llm-foundry"},
    {"internevo", NULL, NULL, "internevo"},
    {"colossal", NULL, NULL, "colossalai"},
    {"mcore-h100", NULL, NULL, "megatron-core-0.8"},
    {"nemo-h100", NULL, NULL, "nemo-24"},
    {"nemo-h100-ft", NULL, NULL, "nemo-24"},
    {"nemo-longseq", NULL, NULL, "nemo-24"},
    {"dgxc", NULL, NULL, "nemo-24"},
    {"mbridge", NULL, NULL, "megatron-bridge"},
    {"simumax", NULL, NULL, "megatron-core-0.14"},
    {"titan", NULL, NULL, "torchtitan"},
};

enum {
    N_SOFTWARE = sizeof software / sizeof software[0],
    N_FAMILIES = sizeof families / sizeof families[0]
};

const ech_software *ech_software_find(const char *name)
{
    for (int i = 0; i < N_SOFTWARE; i++)
        if (strcmp(software[i].name, name) == 0)
            return &software[i];
    return NULL;
}

const ech_software *ech_software_of(const char *family, const char *model, const char *zero)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].family, family) == 0 &&
            (!families[i].model || strstr(model, families[i].model)) &&
            (!families[i].zero || strstr(zero, families[i].zero)))
            return ech_software_find(families[i].software);
    return NULL;
}

void ech_software_names(ech_text *out)
{
    for (int i = 0; i < N_SOFTWARE; i++)
        ech_text_add(out, "%s%s", i ? ", " : "", software[i].name);
}
