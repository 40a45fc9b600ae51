/* The model of a published row: its name tells the architecture, its columns the sizes. */
#include "plan/validate_private.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Architectures that have no preset of their own. */
typedef enum shape_kind {
    SHAPE_GPT,      /* GPT-2's block: LayerNorm, GELU, biases, learned positions */
    SHAPE_LLAMA,    /* RMSNorm, gated MLP, rotary positions, no biases */
    SHAPE_NEMOTRON, /* LayerNorm, squared ReLU, rotary positions, no biases, head untied */
    SHAPE_GROK,     /* Llama's block with gated experts and the head tied */
    SHAPE_PRESET    /* the preset's switches, with the row's sizes */
} shape_kind;

/* What names tell; the first word that a name holds decides.  first_dense: of the whole model where
 * it is not the preset's. */
static const struct {
    const char *word;
    shape_kind kind;
    const char *preset;
    int64_t first_dense;
    int64_t expert_ffn;   /* where the row has none */
    const char *source;   /* of the two */
    const char *left_out; /* of the model here */
} names[] = {
    {.word = "deepseekv2", .kind = SHAPE_PRESET, .preset = "deepseek-v2"},
    {.word = "deepseekv3 truncated", .kind = SHAPE_PRESET, .preset = "deepseek-v3"},
    {.word = "deepseekv3 (w/o mtp)", .kind = SHAPE_PRESET, .preset = "deepseek-v3"},
    {.word = "deepseekv3",
     .kind = SHAPE_PRESET,
     .preset = "deepseek-v3",
     .left_out = "no multi-token prediction"},
    {.word = "kimi_k2",
     .kind = SHAPE_PRESET,
     .preset = "deepseek-v3",
     .first_dense = 1,
     .source = "Kimi-K2's config.json: first_k_dense_replace"},
    {.word = "gpt oss 120b", .kind = SHAPE_PRESET, .preset = "gpt-oss-120b"},
    {.word = "gpt oss 20b", .kind = SHAPE_PRESET, .preset = "gpt-oss-20b"},
    {.word = "qwen3_30b_a3b", .kind = SHAPE_PRESET, .preset = "qwen3-30b-a3b"},
    {.word = "qwen3_235b_a22b", .kind = SHAPE_PRESET, .preset = "qwen3-30b-a3b"},
    {.word = "mixtral", .kind = SHAPE_PRESET, .preset = "mixtral-8x7b"},
    {.word = "grok 1",
     .kind = SHAPE_GROK,
     .expert_ffn = 32768,
     .source = "xai-org/grok-1 run.py: 6144 * 8 * 2 / 3"},
    {.word = "llama-like-7b", .kind = SHAPE_PRESET, .preset = "llama-2-7b"},
    {.word = "llama-like-70b", .kind = SHAPE_PRESET, .preset = "llama-2-70b"},
    {.word = "llama", .kind = SHAPE_LLAMA},
    {.word = "internlm", .kind = SHAPE_LLAMA},
    {.word = "mistral", .kind = SHAPE_LLAMA},
    {.word = "maxtext", .kind = SHAPE_LLAMA},
    {.word = "nemotron", .kind = SHAPE_NEMOTRON},
    {.word = "gpt", .kind = SHAPE_GPT},
    {.word = "mpt", .kind = SHAPE_GPT},
    {.word = "bloom", .kind = SHAPE_GPT},
    {.word = "megatron", .kind = SHAPE_GPT},
};

enum { N_SHAPES = sizeof names / sizeof names[0] };

static bool has_word(const char *name, const char *word)
{
    char low[128];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof low; n++)
        low[n] = (char)tolower((unsigned char)name[n]);
    low[n] = '\0';
    return strstr(low, word) != NULL;
}

/* Index of what a name tells, -1: nothing. */
static int shape_of_name(const char *name)
{
    for (int i = 0; i < N_SHAPES; i++)
        if (has_word(name, names[i].word))
            return i;
    return -1;
}

static ech_model model_of_kind(shape_kind kind)
{
    ech_model m = ech_model_default(kind == SHAPE_GPT ? ECH_ARCH_GPT2 : ECH_ARCH_LLAMA);
    if (kind == SHAPE_NEMOTRON) {
        m.norm = ECH_NORM_LAYER;
        m.norm_bias = true;
        m.act = ECH_ACT_RELU;
    }
    if (kind == SHAPE_GROK) {
        m.act = ECH_ACT_GEGLU;
        m.tie_embeddings = true;
    }
    return m;
}

static void set_size(int64_t *size, int64_t stated)
{
    if (stated > 0)
        *size = stated;
}

/* First layers that are dense: as many in proportion where the row has fewer layers than the model,
 * never none. */
static int64_t dense_of(int64_t of_whole, int64_t layers, int64_t whole)
{
    if (of_whole == 0 || layers >= whole)
        return of_whole;
    return (of_whole * layers + whole - 1) / whole;
}

static void set_experts(const ech_row_numbers *n, int64_t first_dense, int64_t whole, ech_model *m)
{
    if (n->experts == 0)
        return;
    m->moe.experts = n->experts;
    set_size(&m->moe.topk, n->topk);
    set_size(&m->moe.expert_ffn, n->ffn);
    m->moe.first_dense = dense_of(first_dense ? first_dense : m->moe.first_dense, m->layers, whole);
    if (m->ffn == 0)
        m->ffn = m->moe.expert_ffn;
}

/* The row's sizes over the architecture's. */
static void set_sizes(const ech_row_numbers *n, int64_t first_dense, ech_model *m)
{
    const int64_t whole = m->layers ? m->layers : n->layers;
    const bool has_own_head = m->head_dim > 0 && m->hidden > 0 &&
                              m->head_dim * m->heads != m->hidden; /* of the preset, not h / a */
    set_size(&m->layers, n->layers);
    set_size(&m->hidden, n->hidden);
    set_size(&m->heads, n->heads);
    set_size(&m->kv_heads, n->kv_heads);
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    set_size(&m->vocab, n->vocab);
    if (n->experts == 0)
        set_size(&m->ffn, n->ffn);
    set_experts(n, first_dense, whole, m);
    if (!has_own_head && m->heads > 0)
        m->head_dim = m->hidden / m->heads;
    if (m->mla.kv_lora_rank > 0)
        m->kv_heads = m->heads;
    if (m->window_layers > m->layers)
        m->window_layers = m->layers;
    m->context = m->learned_positions || m->context < n->seq ? n->seq : m->context;
}

/* Heads where a row has none: the habit, else of a size near 128; dividing h, shared evenly by tp. */
static int64_t usual_heads(int64_t hidden, int64_t tp, int64_t habit)
{
    enum { WIDEST = 1 << 20 };
    int64_t best = 0;
    if (hidden > WIDEST)
        return 0;
    if (habit > 0 && hidden % habit == 0 && (tp == 0 || habit % tp == 0))
        return habit;
    for (int64_t a = tp > 0 ? tp : 1; a <= hidden / 32; a += tp > 0 ? tp : 1)
        if (hidden % a == 0 && (!best || llabs(hidden / a - 128) < llabs(hidden / best - 128)))
            best = a;
    return best;
}

/* Layers where a row has none: what its parameters leave for layers of 12 h^2, as a multiple of its
 * virtual stages. */
static int64_t usual_layers(const ech_row_numbers *n)
{
    const int64_t stages = (n->pp ? n->pp : 1) * (n->vpp ? n->vpp : 1);
    const double h = (double)n->hidden;
    const double layers = (n->params - (double)n->vocab * h) / (12.0 * h * h);
    if (!(layers >= 0.5 && layers <= (double)ECH_MODEL_LAYERS_MAX))
        return 0;
    return (int64_t)llround(layers / (double)stages) * stages;
}

/* What a row leaves out and its architecture does not give.  Gated MLPs have no usual width. */
static void fill_sizes(const ech_row_numbers *n, shape_kind kind, int64_t habit, ech_published *p)
{
    ech_model *m = &p->model;
    const bool is_plain = kind == SHAPE_GPT || kind == SHAPE_NEMOTRON;
    if (m->layers == 0 && is_plain && n->params > 0.0 && m->hidden > 0) {
        m->layers = usual_layers(n);
        ech_published_assume(p, "%lld layers", (long long)m->layers);
    }
    if (m->heads == 0 && m->hidden > 0) {
        m->heads = usual_heads(m->hidden, n->tp, habit);
        m->kv_heads = m->kv_heads ? m->kv_heads : m->heads;
        m->head_dim = m->heads ? m->hidden / m->heads : 0;
        ech_published_assume(p, "%lld heads", (long long)m->heads);
    }
    if (m->ffn == 0 && is_plain && m->hidden > 0) {
        m->ffn = 4 * m->hidden;
        ech_published_assume(p, "ffn 4h");
    }
}

static double count_of(const ech_model *m)
{
    ech_param_count c;
    if (ech_model_count(m, &c) < 0) {
        ech_error_clear();
        return NAN;
    }
    return (double)c.total;
}

/* Is the head the token table again: no column says.  Where the published count, which is rounded,
 * cannot be of a model that has one table for both, and can rather of one with two, it has two. */
static void choose_tie(const ech_row_numbers *n, ech_model *m)
{
    ech_model other = *m;
    other.tie_embeddings = !m->tie_embeddings;
    const double off = fabs(count_of(m) - n->params);
    if (n->params > 0.0 && off > n->params_rounding && fabs(count_of(&other) - n->params) < off)
        *m = other;
}

static void check_sizes(ech_published *p)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"layers", p->model.layers},
                 {"hidden", p->model.hidden},
                 {"heads", p->model.heads},
                 {"ffn", p->model.ffn},
                 {"vocab", p->model.vocab}};
    char missing[64] = "";
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t n = strlen(missing);
        if (sizes[i].value <= 0)
            (void)snprintf(missing + n, sizeof missing - n, "%s%s", n ? ", " : "", sizes[i].name);
    }
    if (missing[0]) {
        ech_published_skip(p, "no shape: %s not stated, and no preset of that name", missing);
        return;
    }
    ech_findings findings = {0};
    ech_model_validate(&p->model, &findings);
    if (findings.n)
        ech_published_skip(p, "no such shape: %s", ech_text_get(&findings.text));
    ech_findings_fini(&findings);
}

ech_status ech_published_shape(const char *name, const ech_row_numbers *n, int64_t habit,
                               ech_published *p)
{
    const int at = shape_of_name(name);
    /* A name that tells nothing: a gated MLP is narrower than 4h. */
    const bool is_gated = n->ffn > 0 && n->ffn != 4 * n->hidden;
    const shape_kind kind = at >= 0 ? names[at].kind : is_gated ? SHAPE_LLAMA : SHAPE_GPT;
    if (kind == SHAPE_PRESET)
        ECH_TRY(ech_model_load(names[at].preset, &p->model));
    else
        p->model = model_of_kind(kind);
    if (kind == SHAPE_PRESET && n->layers == 0)
        ech_published_assume(p, "shape of %s", names[at].preset);
    ech_row_numbers sizes = *n;
    if (at >= 0 && n->ffn == 0 && names[at].expert_ffn) {
        sizes.ffn = names[at].expert_ffn;
        ech_published_assume(p, "expert ffn %lld", (long long)sizes.ffn);
    }
    if (at >= 0 && names[at].left_out)
        ech_published_assume(p, "%s", names[at].left_out);
    set_sizes(&sizes, at >= 0 ? names[at].first_dense : 0, &p->model);
    fill_sizes(&sizes, kind, habit, p);
    (void)snprintf(p->model.name, sizeof p->model.name, "%s", name);
    p->is_moe = p->model.moe.experts > 0;
    check_sizes(p);
    if (kind == SHAPE_GPT && !p->skipped[0])
        choose_tie(n, &p->model);
    return ECH_OK;
}
