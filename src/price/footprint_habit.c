/* What generations of software keep beside the formulas.  Nothing here belongs to a model or a row.
 *
 * Sources
 *   keeps_scores        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1: softmax's output, its
 *                       mask and the dropped-out copy; flash attention (Dao et al. 2022) keeps none
 *   keeps_gate          SwiGLU as separate ops: the activated gate is an input of the product
 *   keeps_expert_out    Megatron-LM before core 0.12 weights outputs of experts after the second
 *                       matrix, since then inputs of it
 *   keeps_wgrad_blanks  Transformer Engine from 2.3 on caches one 16-bit blank for each shape of weight
 *                       whose gradient is accumulated in place (module/base.py, get_dummy_wgrad)
 *   makes_wgrad         gradients of tables are 16-bit tensors before they are added to the buffer
 *   replays_masks       Echelon's dropout is made again from its keys
 *   logits              eager PyTorch: logits in 16 bits, their fp32 copy, its log-softmax, gradients
 *                       in fp32 and 16 bits: 16; compiled, one of them is fused away: 14; Megatron's
 *                       vocabulary-parallel loss: 16 bits and one fp32 copy; fused, Transformer Engine's
 *                       kernel writes the gradient over the 16-bit logits; Echelon's over its fp32 ones
 *   context, groups     0.5-1 GiB for a CUDA context with its libraries; NCCL 0.3-2 GiB in all
 *   slack               reserved over allocated: PyTorch's expandable segments (torchtitan) 1 %; the
 *                       older allocator 5-8 % (SimuMax: 70.7 of 66.4 GiB), before 2022 16 % (fitted to
 *                       the log of BLOOM's tuning, which tells what the driver counts)
 *   uncertainty         what published rows are missed by: docs/planner/memory.md */
#include "price/footprint_private.h"

#define MB(x) ((x)*1e6)

/* Bytes of an element of the logits. */
enum {
    EAGER = 16,
    COMPILED = 14,
    FUSED = 4,
    /* over tp, torch.distributed's loss_parallel: log-softmax kept, its exponential, their sum and the
     * product with the gradient beside each other in fp32, the 16-bit logits and their fp32 copy */
    LOSS_PARALLEL = 20
};

static const ech_habit habits[ECH_N_GENERATIONS] = {
    [ECH_GENERATION_MEGATRON_2021] = {.keeps_scores = true,
                                      .keeps_expert_out = true,
                                      .makes_wgrad = true,
                                      .logits = 6,
                                      .logits_kept = 6,
                                      .context_bytes = MB(800),
                                      .group_bytes = MB(400),
                                      .workspace_bytes = MB(100),
                                      .slack = 0.16,
                                      .uncertainty = 0.15},
    [ECH_GENERATION_MEGATRON_FLASH] = {.keeps_expert_out = true,
                                       .makes_wgrad = true,
                                       .logits = 6,
                                       .logits_kept = 6,
                                       .context_bytes = MB(800),
                                       .group_bytes = MB(400),
                                       .workspace_bytes = MB(100),
                                       .slack = 0.08,
                                       .uncertainty = 0.10},
    [ECH_GENERATION_FSDP1] = {.keeps_gate = true,
                              .keeps_expert_out = true,
                              .makes_wgrad = true,
                              .logits = EAGER,
                              .logits_kept = EAGER,
                              .context_bytes = MB(600),
                              .group_bytes = MB(300),
                              .workspace_bytes = MB(64),
                              .slack = 0.05,
                              .uncertainty = 0.10},
    [ECH_GENERATION_FSDP2_COMPILE] = {.keeps_expert_out = true,
                                      .makes_wgrad = true,
                                      .logits = COMPILED,
                                      .logits_kept = COMPILED - 4,
                                      .context_bytes = MB(600),
                                      .group_bytes = MB(300),
                                      .workspace_bytes = MB(64),
                                      .slack = 0.01,
                                      .uncertainty = 0.06},
    [ECH_GENERATION_NEMO_24] = {.keeps_expert_out = true,
                                .makes_wgrad = true,
                                .caches_fp8 = true,
                                .logits = 6,
                                .logits_kept = 6,
                                .context_bytes = MB(800),
                                .group_bytes = MB(400),
                                .workspace_bytes = MB(128),
                                .slack = 0.06,
                                .uncertainty = 0.08},
    [ECH_GENERATION_MCORE_14] = {.keeps_wgrad_blanks = true,
                                 .makes_wgrad = true,
                                 .caches_fp8 = true,
                                 .logits = 6,
                                 .logits_kept = 6,
                                 .logits_fused = 2,
                                 .context_bytes = MB(800),
                                 .group_bytes = MB(400),
                                 .workspace_bytes = MB(32),
                                 .slack = 0.05,
                                 .uncertainty = 0.03},
    [ECH_GENERATION_ECHELON] =
        {.replays_masks = true, .logits = 4, .logits_kept = 4, .slack = 0.005, .uncertainty = 0.03},
};

static void set_logits(ech_habit *h, double bytes)
{
    h->logits = h->logits_kept = bytes;
}

/* The loss as it was asked for. */
static void set_loss(const ech_job *job, ech_habit *h)
{
    if (job->loss == ECH_LOSS_EAGER)
        set_logits(h, EAGER);
    else if (job->loss != ECH_LOSS_DEFAULT)
        set_logits(h, h->logits_fused > 0 ? h->logits_fused : FUSED);
}

ech_habit ech_habit_of(const ech_job *job, const ech_point *p)
{
    ech_habit h = habits[job->generation];
    if (ech_is_torch(job) && !job->is_compiled) {
        h.keeps_gate = true;
        set_logits(&h, EAGER);
    }
    if (ech_is_torch(job) && p->tp > 1)
        set_logits(&h, LOSS_PARALLEL);
    if (job->system == ECH_SYSTEM_DEEPSPEED) {
        h.makes_wgrad = false; /* its gradients are those tensors */
        if (job->generation != ECH_GENERATION_MEGATRON_2021)
            set_logits(&h, EAGER); /* the models of Transformers */
    }
    set_loss(job, &h);
    return h;
}
