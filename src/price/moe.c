#include "price/kernel_price.h"

#include <math.h>

/* A rank's experts take `routed` rows when balanced; its step waits for the fullest rank. */
void ech_kernels_experts(ech_kernels *to, const ech_job *job, const ech_shape *shape)
{
    const ech_rates *r = to->rates;
    const ech_moe *moe = &job->model->moe;
    const double h = (double)shape->hidden, elem = r->act_bytes;
    const double rows = shape->routed * shape->imbalance, f = (double)shape->expert_ffn;
    const double experts = (double)shape->experts, each = experts > 0 ? rows / experts : 0;
    const double *passes = shape->is_gated ? r->habit->gated : r->habit->act;
    const double wide = shape->is_gated ? 2 * f : f;
    to->stays_wide = true;
    ech_kernels_linear(to, "router", (double)shape->own_tokens, (double)moe->experts, h, 1, 0);
    to->stays_wide = false;
    ech_kernels_traffic(to, "permute", 4 * r->permute * rows * h * elem,
                        4 * r->permute * rows * h * elem, ECH_RECOMPUTE_MOE);
    ech_kernels_linear(to, "experts: up", each, wide, h, fmax(experts, 1), ECH_RECOMPUTE_MOE);
    ech_kernels_traffic(to, "experts: activation", passes[0] * rows * f * elem,
                        passes[1] * rows * f * elem, ECH_RECOMPUTE_MOE | ECH_RECOMPUTE_ACT);
    ech_kernels_linear(to, "experts: down", each, h, f, fmax(experts, 1), 0);
    if (shape->shared_ffn > 0) {
        const double tokens = (double)shape->micro_tokens, s = (double)shape->shared_ffn;
        ech_kernels_linear(to, "shared: up", tokens, shape->is_gated ? 2 * s : s, h, 1, 0);
        ech_kernels_traffic(to, "shared: activation", passes[0] * tokens * s * elem,
                            passes[1] * tokens * s * elem, ECH_RECOMPUTE_ACT);
        ech_kernels_linear(to, "shared: down", tokens, h, s, 1, 0);
    }
}
