/* Every family and the list of its kernels for one REAL.  Included once by ref_f32.c and once by
 * ref_f64.c, with REAL and REF_KERNELS (the name of the list) defined. */
#include "kernels/ref/ref.h" /* ech_kernel */

#include "base/rng.h"      /* dropout masks */
#include "kernels/sumsq.h" /* exact sums */

#include <math.h>
#include <string.h>

#include "kernels/ref/ref_common.inc.h"
#include "kernels/ref/ref_linear.inc.h"
#include "kernels/ref/ref_norm.inc.h" /* add_column_sums of ref_linear */
#include "kernels/ref/ref_embed.inc.h"
#include "kernels/ref/ref_attention.inc.h"
#include "kernels/ref/ref_act.inc.h"
#include "kernels/ref/ref_loss.inc.h"
#include "kernels/ref/ref_optim.inc.h"

const ech_kernel REF_KERNELS[ECH_N_OPS] = {
    [ECH_OP_SCALE] = scale,
    [ECH_OP_ADD] = add,
    [ECH_OP_EMBED] = embed,
    [ECH_OP_EMBED_BACKWARD] = embed_backward,
    [ECH_OP_POSITIONS] = positions,
    [ECH_OP_POSITIONS_BACKWARD] = positions_backward,
    [ECH_OP_BIAS] = bias,
    [ECH_OP_BIAS_BACKWARD] = bias_backward,
    [ECH_OP_LAYERNORM] = layernorm,
    [ECH_OP_LAYERNORM_BACKWARD] = layernorm_backward,
    [ECH_OP_RMSNORM] = rmsnorm,
    [ECH_OP_RMSNORM_BACKWARD] = rmsnorm_backward,
    [ECH_OP_LINEAR] = linear,
    [ECH_OP_LINEAR_DGRAD] = linear_dgrad,
    [ECH_OP_LINEAR_WGRAD] = linear_wgrad,
    [ECH_OP_QK_NORM] = qk_norm,
    [ECH_OP_QK_NORM_BACKWARD] = qk_norm_backward,
    [ECH_OP_ROPE] = rope,
    [ECH_OP_ATTENTION] = attention,
    [ECH_OP_ATTENTION_BACKWARD] = attention_backward,
    [ECH_OP_ATTENTION_CACHED] = attention_cached,
    [ECH_OP_SWIGLU] = swiglu,
    [ECH_OP_SWIGLU_BACKWARD] = swiglu_backward,
    [ECH_OP_GELU] = gelu,
    [ECH_OP_GELU_BACKWARD] = gelu_backward,
    [ECH_OP_DROPOUT] = dropout,
    [ECH_OP_XENT_SHARD] = xent_shard,
    [ECH_OP_XENT] = xent,
    [ECH_OP_XENT_BACKWARD] = xent_backward,
    [ECH_OP_KV_FOLD] = kv_fold,
    [ECH_OP_KV_SPREAD] = kv_spread,
    [ECH_OP_SUMSQ] = sumsq,
    [ECH_OP_ADAMW] = adamw,
    [ECH_OP_SGD] = sgd,
};
