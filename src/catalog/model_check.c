/* What must hold between the sizes of a model. */
#include "catalog/family.h"

#include <inttypes.h>
#include <math.h>

int64_t ech_nearest_divisor(int64_t n, int64_t wanted)
{
    for (int64_t d = 0; d < n; d++) {
        if (wanted - d >= 1 && n % (wanted - d) == 0)
            return wanted - d;
        if (wanted + d <= n && n % (wanted + d) == 0)
            return wanted + d;
    }
    return n;
}

static void check_size(const char *what, int64_t value, int64_t max, ech_findings *f)
{
    if (value < 1)
        ech_findings_add(f, "model.%s is %" PRId64 ", it must be at least 1", what, value);
    else if (value > max)
        ech_findings_add(f, "model.%s is %" PRId64 ", at most %" PRId64 " is believed", what, value,
                         max);
}

static void check_sizes(const ech_model *m, ech_findings *f)
{
    check_size("layers", m->layers, ECH_MODEL_LAYERS_MAX, f);
    check_size("hidden", m->hidden, ECH_MODEL_SIZE_MAX, f);
    check_size("heads", m->heads, ECH_MODEL_SIZE_MAX, f);
    check_size("kv_heads", m->kv_heads, ECH_MODEL_SIZE_MAX, f);
    check_size("head_dim", m->head_dim, ECH_MODEL_SIZE_MAX, f);
    check_size("vocab", m->vocab, ECH_MODEL_SIZE_MAX, f);
    check_size("context", m->context, ECH_MODEL_SIZE_MAX, f);
    const bool needs_ffn =
        m->moe.experts == 0 || m->moe.sparse_step != 1 || m->moe.first_dense > 0 || m->ffn != 0;
    if (needs_ffn)
        check_size("ffn", m->ffn, ECH_MODEL_SIZE_MAX, f);
}

static void check_attention(const ech_model *m, ech_findings *f)
{
    if (m->heads > 0 && m->kv_heads > 0 && m->heads % m->kv_heads != 0)
        ech_findings_add(f,
                         "model.kv_heads is %" PRId64 ", it must divide heads %" PRId64
                         ": nearest is %" PRId64,
                         m->kv_heads, m->heads, ech_nearest_divisor(m->heads, m->kv_heads));
    if (m->arch == ECH_ARCH_GPT2 && m->is_executable && m->heads > 0 && m->head_dim > 0 &&
        m->hidden > 0 && m->heads * m->head_dim != m->hidden)
        ech_findings_add(f,
                         "model.head_dim is %" PRId64 ", arch gpt2 wants hidden / heads = %" PRId64
                         " / %" PRId64,
                         m->head_dim, m->hidden, m->heads);
    if (m->rope.kind == ECH_ROPE_NONE)
        return;
    const double rotated = m->rope.partial * (double)m->head_dim;
    if (!(m->rope.partial > 0.0 && m->rope.partial <= 1.0))
        ech_findings_add(f, "model.rope.partial is %g, it must be above 0 and at most 1",
                         m->rope.partial);
    else if (m->is_executable && m->head_dim > 0 && fmod(floor(rotated), 2.0) != 0.0)
        ech_findings_add(f,
                         "model.head_dim is %" PRId64 ": rotary positions need an even number of "
                         "rotated dimensions, nearest is %" PRId64,
                         m->head_dim, m->head_dim + 1);
    if (!(m->rope.theta > 0.0 && isfinite(m->rope.theta)))
        ech_findings_add(f, "model.rope.theta is %g, it must be positive", m->rope.theta);
    if (!(m->rope.factor > 0.0 && isfinite(m->rope.factor)))
        ech_findings_add(f, "model.rope.factor is %g, it must be positive", m->rope.factor);
    if (m->rope.kind == ECH_ROPE_LLAMA3 &&
        !(m->rope.low_freq_factor > 0.0 && m->rope.high_freq_factor > m->rope.low_freq_factor &&
          m->rope.original_context > 0))
        ech_findings_add(f, "model.rope llama3 wants 0 < low_freq_factor < high_freq_factor and "
                            "original_context > 0");
}

static void check_moe(const ech_model *m, ech_findings *f)
{
    const ech_moe *moe = &m->moe;
    if (moe->experts == 0)
        return;
    check_size("moe.experts", moe->experts, ECH_MODEL_SIZE_MAX, f);
    check_size("moe.expert_ffn", moe->expert_ffn, ECH_MODEL_SIZE_MAX, f);
    check_size("moe.sparse_step", moe->sparse_step, ECH_MODEL_SIZE_MAX, f);
    if (moe->topk < 1 || moe->topk > moe->experts)
        ech_findings_add(f,
                         "model.moe.topk is %" PRId64 ", it must be 1 .. experts %" PRId64
                         ": nearest is %" PRId64,
                         moe->topk, moe->experts, moe->topk < 1 ? 1 : moe->experts);
    if (moe->first_dense < 0)
        ech_findings_add(f, "model.moe.first_dense is %" PRId64 ", it must not be negative",
                         moe->first_dense);
    if (moe->shared_experts < 0 || moe->shared_ffn < 0)
        ech_findings_add(f, "model.moe.shared_experts and shared_ffn must not be negative");
}

static void check_latent(const ech_model *m, ech_findings *f)
{
    const ech_mla *a = &m->mla;
    if (a->kv_lora_rank == 0)
        return;
    check_size("kv_lora_rank", a->kv_lora_rank, ECH_MODEL_SIZE_MAX, f);
    check_size("qk_nope_dim", a->qk_nope_dim, ECH_MODEL_SIZE_MAX, f);
    check_size("qk_rope_dim", a->qk_rope_dim, ECH_MODEL_SIZE_MAX, f);
    check_size("v_dim", a->v_dim, ECH_MODEL_SIZE_MAX, f);
}

/* What has a block and an HF form to be written in, and so can be trained. */
static void check_gpt2_built(ech_model *m)
{
    if (m->norm != ECH_NORM_LAYER)
        ech_model_refuse(m, "norm rmsnorm with arch gpt2 is not built yet");
    if (m->act != ECH_ACT_GELU_TANH)
        ech_model_refuse(m, "an act other than gelu_tanh with arch gpt2 is not built yet");
    if (m->rope.kind != ECH_ROPE_NONE)
        ech_model_refuse(m, "rope with arch gpt2 is not built yet");
    if (m->kv_heads != m->heads || m->qk_norm || !m->qkv_bias)
        ech_model_refuse(m, "kv_heads other than heads, qk_norm and qkv_bias: false with arch "
                            "gpt2 are not built yet");
}

static void check_llama_built(ech_model *m)
{
    if (m->norm != ECH_NORM_RMS)
        ech_model_refuse(m, "norm layernorm with arch llama is not built yet");
    if (m->act != ECH_ACT_SWIGLU)
        ech_model_refuse(m, "an act other than swiglu with arch llama is not built yet");
    if (m->rope.kind == ECH_ROPE_NONE)
        ech_model_refuse(m, "arch llama without rope is not built yet");
    if (m->qk_norm && m->qkv_bias != m->out_bias)
        ech_model_refuse(m, "qk_norm together with qkv_bias is not built yet");
}

void ech_model_check_built(ech_model *m)
{
    if (m->moe.experts > 0)
        ech_model_refuse(m, "mixture of experts is not built yet");
    if (m->mla.kv_lora_rank > 0)
        ech_model_refuse(m, "latent attention is not built yet");
    if (m->rope.kind != ECH_ROPE_NONE && m->rope.partial != 1.0)
        ech_model_refuse(m, "rope over a part of the head is not built yet");
    if (m->window > 0 && m->window_layers > 0 && m->window < m->context)
        ech_model_refuse(m, "window below context is not built yet (%" PRId64 " < %" PRId64 ")",
                         m->window, m->context);
    if (m->arch == ECH_ARCH_GPT2)
        check_gpt2_built(m);
    else
        check_llama_built(m);
}

void ech_model_validate_relations(const ech_model *m, ech_findings *findings)
{
    check_attention(m, findings);
    if (!(m->dropout >= 0.0 && m->dropout < 1.0))
        ech_findings_add(findings, "model.dropout is %g, it must be 0 or more and below 1",
                         m->dropout);
    if (!(m->norm_eps > 0.0 && m->norm_eps < 1.0))
        ech_findings_add(findings, "model.norm_eps is %g, it must be above 0 and below 1",
                         m->norm_eps);
    if (!(m->init_std >= 0.0 && isfinite(m->init_std)))
        ech_findings_add(findings, "model.init_std is %g, it must not be negative", m->init_std);
    if (m->window < 0)
        ech_findings_add(findings, "model.window is %" PRId64 ", 0 (none) or more", m->window);
}

void ech_model_validate(const ech_model *m, ech_findings *findings)
{
    const int before = findings->n;
    check_sizes(m, findings);
    check_moe(m, findings);
    check_latent(m, findings);
    ech_model_validate_relations(m, findings);
    ech_param_count count;
    if (findings->n == before && ech_model_count(m, &count) < 0)
        ech_findings_add(findings, "model: its number of parameters does not fit 64 bits");
}

static const char *positions_of(const ech_model *m)
{
    if (m->alibi)
        return "the length it was trained with";
    return m->learned_positions ? "the size of its position table"
                                : "the positions its rotary embedding is made for";
}

void ech_model_validate_seq(const ech_model *m, int64_t seq, ech_findings *findings)
{
    if (seq < 1)
        ech_findings_add(findings, "a sequence of %" PRId64 " tokens: at least 1 is needed", seq);
    else if (seq > (m->is_context_open ? ECH_MODEL_SIZE_MAX : m->context))
        ech_findings_add(findings,
                         "a sequence of %" PRId64 " tokens is longer than the model's context of "
                         "%" PRId64 " (%s): %" PRId64 " at most",
                         seq, m->context, positions_of(m), m->context);
}
