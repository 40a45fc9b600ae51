#include "plan/exchange_megatron.h"
#include "plan/exchange_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bands of --use-rope-scaling: Megatron's constants, Llama 3.1's. */
static const double rope_low = 1;
static const double rope_high = 4;
enum { ROPE_CONTEXT = 8192 };

void ech_megatron_arg(ech_text *out, const char *name, const char *fmt, ...)
{
    char value[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    if (out->bytes > 0)
        ech_text_add(out, " \\\n    ");
    ech_text_add(out, "--%s%s%s", name, value[0] ? " " : "", value);
}

static void add_int(ech_text *out, const char *name, int64_t value)
{
    ech_megatron_arg(out, name, "%lld", (long long)value);
}

static void add_flag(ech_text *out, const char *name, bool is_wanted)
{
    if (is_wanted)
        ech_megatron_arg(out, name, "%s", "");
}

static void add_real(ech_text *out, const char *name, double value)
{
    ech_text number = {0};
    ech_text_add_double(&number, value);
    ech_megatron_arg(out, name, "%s", ech_text_get(&number));
    ech_text_fini(&number);
}

/* --- patterns of layers --- */

/* A list being read; at is NULL once it is none. */
typedef struct pattern {
    const char *at;
    bool *flag;
    int n, cap;
    int depth;
} pattern;

enum { PATTERN_DEPTH = 8 };

static void read_sum(pattern *p);

static bool take(pattern *p, char c)
{
    while (p->at && *p->at == ' ')
        p->at++;
    if (!p->at || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* [0,1,1] */
static void read_list(pattern *p)
{
    do {
        const bool is_one = take(p, '1');
        if ((!is_one && !take(p, '0')) || p->n == p->cap) {
            p->at = NULL;
            return;
        }
        p->flag[p->n++] = is_one;
    } while (take(p, ','));
    if (!take(p, ']'))
        p->at = NULL;
}

/* A list or a sum in parentheses, repeated "*3" times. */
static void read_term(pattern *p)
{
    const int from = p->n;
    if (take(p, '[')) {
        read_list(p);
    } else if (take(p, '(') && p->depth < PATTERN_DEPTH) {
        p->depth++;
        read_sum(p);
        p->depth--;
        if (!take(p, ')'))
            p->at = NULL;
    } else {
        p->at = NULL;
    }
    while (take(p, '*')) {
        char *end;
        const long times = strtol(p->at, &end, 10);
        const int n = p->n - from;
        if (end == p->at || times < 0 || times > p->cap || n * times > p->cap - from) {
            p->at = NULL;
            return;
        }
        p->at = end;
        for (long k = 1; k < times; k++)
            memcpy(p->flag + from + k * n, p->flag + from, (size_t)n * sizeof *p->flag);
        p->n = from + (int)(n * times);
    }
}

static void read_sum(pattern *p)
{
    do
        read_term(p);
    while (p->at && take(p, '+'));
}

int ech_megatron_pattern(const char *words, bool *flag, int cap)
{
    pattern p = {.at = words, .flag = flag, .cap = cap};
    read_sum(&p);
    while (p.at && *p.at == ' ')
        p.at++;
    return p.at && *p.at == '\0' ? p.n : -1;
}

/* Which layers have experts, as runs: "([0]*3+[1]*58)"; nothing where all have. */
static void write_sparse(const ech_model *m, ech_text *out)
{
    ech_text list = {0};
    int runs = 0;
    for (int64_t i = 0; i < m->layers;) {
        const bool is_sparse = ech_model_is_sparse(m, i);
        int64_t n = 1;
        while (i + n < m->layers && ech_model_is_sparse(m, i + n) == is_sparse)
            n++;
        ech_text_add(&list, "%s[%d]*%lld", runs++ ? "+" : "", is_sparse, (long long)n);
        i += n;
    }
    if (runs > 1 || !ech_model_is_sparse(m, 0)) {
        if (out->bytes > 0)
            ech_text_add(out, " \\\n    ");
        ech_text_add(out, "--moe-layer-freq \"(%s)\"", ech_text_get(&list));
    }
    ech_text_fini(&list);
}

/* --- writing --- */

static void write_moe(const ech_model *m, ech_text *out)
{
    const ech_moe *moe = &m->moe;
    add_int(out, "num-experts", moe->experts);
    add_int(out, "moe-router-topk", moe->topk);
    add_int(out, "moe-ffn-hidden-size", moe->expert_ffn);
    write_sparse(m, out);
    if (moe->shared_ffn > 0)
        add_int(out, "moe-shared-expert-intermediate-size", moe->shared_ffn);
    add_flag(out, "moe-shared-expert-gate", moe->shared_gate);
    if (moe->router_bias) {
        ech_megatron_arg(out, "moe-router-score-function", "sigmoid");
        add_flag(out, "moe-router-enable-expert-bias", true);
    }
    add_flag(out, "moe-grouped-gemm", true);
    ech_megatron_arg(out, "moe-token-dispatcher-type", "alltoall");
}

static void write_mla(const ech_mla *mla, ech_text *out)
{
    add_flag(out, "multi-latent-attention", true);
    if (mla->q_lora_rank > 0)
        add_int(out, "q-lora-rank", mla->q_lora_rank);
    add_int(out, "kv-lora-rank", mla->kv_lora_rank);
    add_int(out, "qk-head-dim", mla->qk_nope_dim);
    add_int(out, "qk-pos-emb-head-dim", mla->qk_rope_dim);
    add_int(out, "v-head-dim", mla->v_dim);
}

static void write_positions(const ech_model *m, ech_text *out)
{
    if (m->learned_positions) {
        ech_megatron_arg(out, "position-embedding-type", "learned_absolute");
        return;
    }
    ech_megatron_arg(out, "position-embedding-type",
                     m->rope.kind == ECH_ROPE_NONE ? "none" : "rope");
    if (m->rope.kind == ECH_ROPE_NONE)
        return;
    if (m->mla.kv_lora_rank > 0 && m->rope.kind != ECH_ROPE_OTHER)
        ech_megatron_arg(out, "rope-type", "rope"); /* with latent attention it is yarn else */
    ech_megatron_arg(out, "rotary-base", "%.0f", m->rope.theta);
    if (m->rope.partial < 1)
        add_real(out, "rotary-percent", m->rope.partial);
    add_flag(out, "rotary-interleaved", m->rope.interleaved);
    if (m->rope.kind == ECH_ROPE_LLAMA3) {
        add_flag(out, "use-rope-scaling", true);
        add_real(out, "rope-scaling-factor", m->rope.factor);
    } else if (m->rope.kind == ECH_ROPE_LINEAR) {
        ech_megatron_arg(out, "rotary-seq-len-interpolation-factor", "%.0f", m->rope.factor);
    }
}

static void write_switches(const ech_model *m, ech_text *out)
{
    const bool has_mlp_bias = m->mlp_bias && m->out_bias;
    ech_megatron_arg(out, "normalization", m->norm == ECH_NORM_RMS ? "RMSNorm" : "LayerNorm");
    add_real(out, "norm-epsilon", m->norm_eps);
    add_flag(out, "swiglu", m->act == ECH_ACT_SWIGLU);
    add_flag(out, "quick-geglu", m->act == ECH_ACT_GEGLU); /* a sigmoid for its gelu */
    add_flag(out, "disable-bias-linear", !has_mlp_bias);
    add_flag(out, "add-qkv-bias", m->qkv_bias && !has_mlp_bias);
    add_flag(out, "qk-layernorm", m->qk_norm);
    add_flag(out, "untie-embeddings-and-output-weights", !m->tie_embeddings);
    add_real(out, "attention-dropout", m->dropout);
    add_real(out, "hidden-dropout", m->dropout);
    if (m->window > 0 && m->window_layers == m->layers)
        ech_megatron_arg(out, "window-size", "%lld,0", (long long)m->window - 1);
}

void ech_megatron_write_model(const ech_model *m, ech_text *out)
{
    add_int(out, "num-layers", m->layers);
    add_int(out, "hidden-size", m->hidden);
    add_int(out, "num-attention-heads", m->heads);
    if (m->mla.kv_lora_rank > 0) {
        write_mla(&m->mla, out);
    } else {
        if (m->kv_heads != m->heads) {
            add_flag(out, "group-query-attention", true);
            add_int(out, "num-query-groups", m->kv_heads);
        }
        if (m->heads * m->head_dim != m->hidden)
            add_int(out, "kv-channels", m->head_dim);
    }
    if (m->ffn > 0) /* all layers have experts */
        add_int(out, "ffn-hidden-size", m->ffn);
    add_int(out, "max-position-embeddings", m->context);
    write_positions(m, out);
    write_switches(m, out);
    if (m->moe.experts > 0)
        write_moe(m, out);
    add_int(out, "vocab-size", m->vocab);
}

/* --- reading --- */

static void read_size(const ech_words *w, const char *option, int64_t *out)
{
    (void)ech_words_int(w, option, 1, ECH_MODEL_SIZE_MAX, out);
}

/* Dense layers of a list of flags: a run at the beginning, else one by one. */
static void set_dense(const ech_words *w, const bool *sparse, int n, ech_model *m)
{
    int first = 0;
    while (first < n && !sparse[first])
        first++;
    m->moe.first_dense = first;
    for (int i = first; i < n; i++) {
        if (sparse[i])
            continue;
        if (i >= ECH_MOE_MASK_LAYERS) {
            ech_findings_add(w->errors,
                             "%s: --moe-layer-freq: layer %d is dense behind sparse "
                             "ones: up to %d can be told apart",
                             w->name, i, ECH_MOE_MASK_LAYERS);
            return;
        }
        m->moe.dense_mask[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

static void read_sparse(const ech_words *w, ech_model *m)
{
    const char *words = ech_words_string(w, "--moe-layer-freq");
    bool sparse[ECH_MODEL_LAYERS_MAX];
    char *end;
    if (!words)
        return;
    const long step = strtol(words, &end, 10);
    if (end != words && *end == '\0' && step >= 1 && step <= ECH_MODEL_LAYERS_MAX) {
        m->moe.sparse_step = step;
        return;
    }
    const int n = ech_megatron_pattern(words, sparse, (int)ECH_MODEL_LAYERS_MAX);
    if (n != m->layers)
        ech_findings_add(w->errors,
                         "%s: --moe-layer-freq '%.60s': wanted a whole number or a list "
                         "of %lld layers such as ([0]*3+[1]*%lld)",
                         w->name, words, (long long)m->layers, (long long)m->layers - 3);
    else
        set_dense(w, sparse, n, m);
}

static void read_moe(const ech_words *w, ech_model *m)
{
    ech_moe *moe = &m->moe;
    moe->sparse_step = 1;
    moe->topk = 2;
    moe->expert_ffn = m->ffn;
    read_size(w, "--num-experts", &moe->experts);
    read_size(w, "--moe-router-topk", &moe->topk);
    read_size(w, "--moe-ffn-hidden-size", &moe->expert_ffn);
    read_size(w, "--moe-shared-expert-intermediate-size", &moe->shared_ffn);
    moe->shared_experts = moe->shared_ffn > 0;
    moe->shared_gate = ech_words_has(w, "--moe-shared-expert-gate");
    moe->router_bias = ech_words_has(w, "--moe-router-enable-expert-bias");
    moe->expert_bias = m->mlp_bias;
    read_sparse(w, m);
}

static void read_mla(const ech_words *w, ech_model *m)
{
    m->mla = (ech_mla){.kv_lora_rank = 32, .qk_nope_dim = 128, .qk_rope_dim = 64, .v_dim = 128};
    read_size(w, "--q-lora-rank", &m->mla.q_lora_rank);
    read_size(w, "--kv-lora-rank", &m->mla.kv_lora_rank);
    read_size(w, "--qk-head-dim", &m->mla.qk_nope_dim);
    read_size(w, "--qk-pos-emb-head-dim", &m->mla.qk_rope_dim);
    read_size(w, "--v-head-dim", &m->mla.v_dim);
    m->head_dim = m->mla.qk_nope_dim + m->mla.qk_rope_dim;
    m->kv_heads = m->heads;
}

static void read_attention(const ech_words *w, ech_model *m)
{
    m->kv_heads = m->heads;
    if (ech_words_has(w, "--group-query-attention")) {
        m->kv_heads = 1;
        read_size(w, "--num-query-groups", &m->kv_heads);
    }
    m->head_dim = m->heads > 0 ? m->hidden / m->heads : 0;
    read_size(w, "--kv-channels", &m->head_dim);
    if (ech_words_has(w, "--multi-latent-attention"))
        read_mla(w, m);
    m->qk_norm = ech_words_has(w, "--qk-layernorm");
}

/* Llama 3's bands unless the factor alone is given. */
static void read_rope(const ech_words *w, ech_rope *rope)
{
    int64_t base = 10000;
    int64_t factor = 1;
    read_size(w, "--rotary-base", &base);
    *rope = (ech_rope){.kind = ECH_ROPE_DEFAULT, .theta = (double)base, .factor = 1, .partial = 1};
    (void)ech_words_real(w, "--rotary-percent", &rope->partial);
    rope->interleaved = ech_words_has(w, "--rotary-interleaved");
    if (ech_words_has(w, "--use-rope-scaling")) {
        rope->kind = ECH_ROPE_LLAMA3;
        rope->factor = 8;
        rope->low_freq_factor = rope_low;
        rope->high_freq_factor = rope_high;
        rope->original_context = ROPE_CONTEXT;
        (void)ech_words_real(w, "--rope-scaling-factor", &rope->factor);
    } else if (ech_words_int(w, "--rotary-seq-len-interpolation-factor", 1, ECH_MODEL_SIZE_MAX,
                             &factor)) {
        rope->kind = ECH_ROPE_LINEAR;
        rope->factor = (double)factor;
    }
}

static void read_positions(const ech_words *w, ech_findings *notes, ech_model *m)
{
    const char *kind = ech_words_string(w, "--position-embedding-type");
    const char *type = ech_words_string(w, "--rope-type");
    const bool is_latent = ech_words_has(w, "--multi-latent-attention");
    const bool is_yarn =
        (kind && strcmp(kind, "yarn") == 0) || (is_latent && (!type || strcmp(type, "rope") != 0));
    const bool is_rope = (kind && strcmp(kind, "rope") == 0) ||
                         ech_words_has(w, "--use-rotary-position-embeddings") || is_latent ||
                         is_yarn;
    m->rope = (ech_rope){.kind = ECH_ROPE_NONE, .partial = 1};
    m->learned_positions = !is_rope && (!kind || strcmp(kind, "learned_absolute") == 0);
    if (is_rope || (kind && strcmp(kind, "mrope") == 0))
        read_rope(w, &m->rope);
    if (is_yarn)
        m->rope.kind = ECH_ROPE_OTHER;
    if (kind && strcmp(kind, "relative") == 0)
        ech_findings_add(
            notes, "%s: --position-embedding-type relative is not known: none is taken", w->name);
}

static void read_switches(const ech_words *w, ech_findings *notes, ech_model *m)
{
    const char *norm = ech_words_string(w, "--normalization");
    const bool has_bias = !ech_words_has(w, "--disable-bias-linear");
    m->norm = norm && strcmp(norm, "RMSNorm") == 0 ? ECH_NORM_RMS : ECH_NORM_LAYER;
    m->norm_bias = m->norm == ECH_NORM_LAYER;
    m->norm_eps = 1e-5;
    (void)ech_words_real(w, "--norm-epsilon", &m->norm_eps);
    m->act = ech_words_has(w, "--swiglu") ? ECH_ACT_SWIGLU : ECH_ACT_GELU_TANH;
    if (ech_words_has(w, "--squared-relu"))
        m->act = ECH_ACT_RELU;
    if (ech_words_has(w, "--quick-geglu"))
        m->act = ECH_ACT_GEGLU;
    m->mlp_bias = m->out_bias = has_bias;
    m->qkv_bias = has_bias || ech_words_has(w, "--add-qkv-bias");
    m->tie_embeddings = !ech_words_has(w, "--untie-embeddings-and-output-weights");
    m->dropout = 0.1;
    (void)ech_words_real(w, "--hidden-dropout", &m->dropout);
    const char *window = ech_words_string(w, "--window-size");
    if (window) {
        const char *digits = window + strspn(window, "( [");
        const long long left = strtoll(digits, NULL, 10);
        m->window = left > 0 && left < ECH_MODEL_SIZE_MAX ? left + 1 : 0;
        m->window_layers = m->window > 0 ? m->layers : 0;
        if (ech_words_has(w, "--window-attn-skip-freq"))
            ech_findings_add(notes,
                             "%s: --window-attn-skip-freq: every layer is taken to have the "
                             "window",
                             w->name);
    }
}

bool ech_megatron_read_model(const ech_words *w, ech_findings *notes, ech_model *out)
{
    ech_model m = ech_model_default(ECH_ARCH_LLAMA);
    const int before = w->errors->n;
    if (!ech_words_int(w, "--num-layers", 1, ECH_MODEL_LAYERS_MAX, &m.layers))
        return false;
    (void)snprintf(m.name, sizeof m.name, "%.90s", w->name);
    (void)snprintf(m.family, sizeof m.family, "megatron");
    read_size(w, "--hidden-size", &m.hidden);
    read_size(w, "--num-attention-heads", &m.heads);
    read_switches(w, notes, &m);
    read_attention(w, &m);
    /* Megatron: 4 h, with a gate 2/3 of it in whole 64s. */
    m.ffn = m.act == ECH_ACT_SWIGLU ? 4 * m.hidden * 2 / 3 / 64 * 64 : 4 * m.hidden;
    read_size(w, "--ffn-hidden-size", &m.ffn);
    (void)ech_words_int(w, "--seq-length", 1, ECH_MODEL_SIZE_MAX, &m.context);
    read_size(w, "--max-position-embeddings", &m.context);
    read_size(w, "--vocab-size", &m.vocab);
    read_positions(w, notes, &m);
    if (ech_words_has(w, "--num-experts"))
        read_moe(w, &m);
    if (m.vocab == 0) {
        m.vocab = 50304;
        ech_findings_add(notes,
                         "%s: --vocab-size is not said (it comes with the tokenizer): %lld is "
                         "taken",
                         w->name, (long long)m.vocab);
    }
    if (m.learned_positions && m.norm == ECH_NORM_LAYER)
        m.arch = ECH_ARCH_GPT2;
    m.is_executable = false;
    (void)snprintf(m.not_executable, sizeof m.not_executable,
                   "its shape is from Megatron's arguments: for planning alone");
    if (w->errors->n == before)
        ech_model_validate(&m, w->errors);
    *out = m;
    return true;
}
