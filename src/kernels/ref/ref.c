/* The reference set: complete, fp32 and fp64, one thread. */
#include "kernels/ref/ref.h"

/* First REAL argument of a kind, whose type is that of the call. */
static int first_real(ech_op_kind kind)
{
    switch (kind) {
    case ECH_OP_EMBED: /* ids come before the table */
    case ECH_OP_EMBED_BACKWARD:
        return 1;
    case ECH_OP_XENT: /* parts, always fp64, and labels come before the log-sums */
        return 2;
    default:
        return 0;
    }
}

static ech_dtype real_of(const ech_kernel_call *call)
{
    return call->arg[first_real(call->kind)].dtype;
}

static void run_typed(const ech_kernel_call *call)
{
    const ech_kernel *list = real_of(call) == ECH_F64 ? ech_ref_kernels_f64 : ech_ref_kernels_f32;
    list[call->kind](call);
}

static bool is_supported(ech_op_kind kind, ech_dtype real)
{
    (void)kind;
    return real == ECH_F32 || real == ECH_F64;
}

static const ech_kernel_set ref_set = {
    .name = "ref",
    .priority = 0,
    .supports = is_supported,
    .kernel =
        {
            [ECH_OP_ZERO] = ech_ref_zero,
            [ECH_OP_COPY] = ech_ref_copy,
            [ECH_OP_SCALE] = run_typed,
            [ECH_OP_ADD] = run_typed,
            [ECH_OP_EMBED] = run_typed,
            [ECH_OP_EMBED_BACKWARD] = run_typed,
            [ECH_OP_POSITIONS] = run_typed,
            [ECH_OP_POSITIONS_BACKWARD] = run_typed,
            [ECH_OP_BIAS] = run_typed,
            [ECH_OP_BIAS_BACKWARD] = run_typed,
            [ECH_OP_LAYERNORM] = run_typed,
            [ECH_OP_LAYERNORM_BACKWARD] = run_typed,
            [ECH_OP_RMSNORM] = run_typed,
            [ECH_OP_RMSNORM_BACKWARD] = run_typed,
            [ECH_OP_LINEAR] = run_typed,
            [ECH_OP_LINEAR_DGRAD] = run_typed,
            [ECH_OP_LINEAR_WGRAD] = run_typed,
            [ECH_OP_QK_NORM] = run_typed,
            [ECH_OP_QK_NORM_BACKWARD] = run_typed,
            [ECH_OP_ROPE] = run_typed,
            [ECH_OP_ATTENTION] = run_typed,
            [ECH_OP_ATTENTION_BACKWARD] = run_typed,
            [ECH_OP_ATTENTION_CACHED] = run_typed,
            [ECH_OP_SWIGLU] = run_typed,
            [ECH_OP_SWIGLU_BACKWARD] = run_typed,
            [ECH_OP_GELU] = run_typed,
            [ECH_OP_GELU_BACKWARD] = run_typed,
            [ECH_OP_DROPOUT] = run_typed,
            [ECH_OP_XENT_SHARD] = run_typed,
            [ECH_OP_XENT] = run_typed,
            [ECH_OP_XENT_BACKWARD] = run_typed,
            [ECH_OP_COUNT_TOKENS] = ech_ref_count_tokens,
            [ECH_OP_LOSS_SEED] = ech_ref_loss_seed,
            [ECH_OP_SUM_CELLS] = ech_ref_sum_cells,
            [ECH_OP_KV_FOLD] = run_typed,
            [ECH_OP_KV_SPREAD] = run_typed,
            [ECH_OP_SUMSQ] = run_typed,
            [ECH_OP_CLIP] = ech_ref_clip,
            [ECH_OP_ADAMW] = run_typed,
            [ECH_OP_SGD] = run_typed,
        },
};

const ech_kernel_set *ech_kernel_set_ref(void)
{
    return &ref_set;
}
