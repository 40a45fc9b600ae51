#include "catalog/model.h"

#include <string.h>

ech_model ech_model_default(ech_arch arch)
{
    ech_model m;
    memset(&m, 0, sizeof m);
    m.arch = arch;
    m.init_std = 0.02;
    m.norm_eps = 1e-5;
    m.rope.theta = 10000.0;
    m.rope.factor = 1.0;
    m.rope.partial = 1.0;
    m.moe.sparse_step = 1;
    m.is_executable = true;
    if (arch == ECH_ARCH_GPT2) {
        memcpy(m.family, "gpt2", sizeof "gpt2");
        m.norm = ECH_NORM_LAYER;
        m.act = ECH_ACT_GELU_TANH;
        m.rope.kind = ECH_ROPE_NONE;
        m.learned_positions = true;
        m.qkv_bias = true;
        m.out_bias = true;
        m.mlp_bias = true;
        m.norm_bias = true;
        m.tie_embeddings = true;
    } else {
        memcpy(m.family, "llama", sizeof "llama");
        m.norm = ECH_NORM_RMS;
        m.act = ECH_ACT_SWIGLU;
        m.rope.kind = ECH_ROPE_DEFAULT;
    }
    return m;
}

void ech_model_take_seq(ech_model *m, int64_t seq)
{
    if (m->is_context_open && seq >= 1 && seq <= ECH_MODEL_SIZE_MAX)
        m->context = seq;
}
