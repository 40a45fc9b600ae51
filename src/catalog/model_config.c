/* The `model:` map of a configuration: a preset, an HF folder or a shape written out, each changed
 * by the keys that stand beside it. */
#include "base/io.h"
#include "catalog/family.h"
#include "catalog/key_reader.h"
#include "catalog/presets.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const known_keys[] = {
    "preset",   "hf",       "arch",     "layers",  "hidden",  "heads",
    "kv_heads", "head_dim", "ffn",      "vocab",   "context", "norm",
    "norm_eps", "act",      "rope",     "dropout", "window",  "tie_embeddings",
    "qkv_bias", "qk_norm",  "init_std", "moe",     "mla"};

static const char *const rope_keys[] = {
    "kind",   "theta",  "factor", "low_freq_factor", "high_freq_factor", "original_context",
    "layout", "partial"};

static const char *const moe_keys[] = {
    "experts", "topk", "expert_ffn", "shared_experts", "shared_ffn", "first_dense", "score",
    "groups",  "mode", "capacity",   "bound",          "aux",        "z",           "bias_rate"};

static const char *const mla_keys[] = {"q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim",
                                       "v_dim"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { WHOLE_MIN = 1 };

/* Where the model comes from. */
typedef struct source {
    ech_key_reader r;
    bool is_explicit; /* arch and sizes written out */
    bool has_arch;    /* arch is known, so that its defaults are */
} source;

/* Read a size beside its key; required only where nothing else gives it. */
static void read_size(const source *s, const char *key, bool is_required, int64_t *out)
{
    if (ech_key_int(&s->r, ECH_KEYS(key), WHOLE_MIN, out) == ECH_KEY_ABSENT && is_required)
        ech_key_complain(&s->r, NULL, "%s is missing", key);
}

/* Do experts have a width of their own. */
static bool has_expert_ffn(const source *s)
{
    return ech_node_find(ech_key_find(&s->r, "moe"), "expert_ffn") != NULL;
}

/* Sizes that follow from others: heads and widths, unless they are given or were never plain. */
static void derive_sizes(const source *s, const ech_model *old, ech_model *m)
{
    if (old->kv_heads == old->heads)
        m->kv_heads = m->heads;
    read_size(s, "kv_heads", false, &m->kv_heads);
    if (m->arch == ECH_ARCH_GPT2 && old->ffn == 4 * old->hidden)
        m->ffn = 4 * m->hidden;
    const bool needs_ffn = s->is_explicit && s->has_arch && m->arch == ECH_ARCH_LLAMA;
    read_size(s, "ffn", needs_ffn && !has_expert_ffn(s), &m->ffn);
    const bool is_plain = old->heads * old->head_dim == old->hidden;
    if (ech_key_int(&s->r, ECH_KEYS("head_dim"), WHOLE_MIN, &m->head_dim) != ECH_KEY_ABSENT ||
        !is_plain || m->hidden == 0 || m->heads == 0)
        return;
    m->head_dim = m->hidden / m->heads;
    if (m->hidden % m->heads != 0)
        ech_key_complain(&s->r, ech_key_find(&s->r, "heads"),
                         "hidden %" PRId64 " is not a multiple of heads %" PRId64
                         ": nearest is heads %" PRId64 ", or give head_dim",
                         m->hidden, m->heads, ech_nearest_divisor(m->hidden, m->heads));
}

static void read_sizes(const source *s, ech_model *m)
{
    const ech_model old = *m;
    read_size(s, "layers", s->is_explicit, &m->layers);
    read_size(s, "hidden", s->is_explicit, &m->hidden);
    read_size(s, "heads", s->is_explicit, &m->heads);
    read_size(s, "vocab", s->is_explicit, &m->vocab);
    read_size(s, "context", s->is_explicit, &m->context);
    derive_sizes(s, &old, m);
}

static void read_switches(const source *s, ech_model *m)
{
    static const char *const norms[] = {"layernorm", "rmsnorm"};
    static const char *const acts[] = {"gelu_tanh", "gelu", "swiglu", "geglu", "relu"};
    int choice;
    if (ech_key_choice(&s->r, "norm", norms, COUNT(norms), &choice) == ECH_KEY_GOOD) {
        m->norm = choice == 0 ? ECH_NORM_LAYER : ECH_NORM_RMS;
        m->norm_bias = m->norm == ECH_NORM_LAYER;
    }
    if (ech_key_choice(&s->r, "act", acts, COUNT(acts), &choice) == ECH_KEY_GOOD)
        m->act = (ech_act)choice;
    (void)ech_key_real(&s->r, ECH_KEYS("norm_eps"), 0.0, 1.0, &m->norm_eps);
    (void)ech_key_real(&s->r, ECH_KEYS("dropout"), 0.0, 1.0, &m->dropout);
    (void)ech_key_real(&s->r, ECH_KEYS("init_std"), 0.0, 1e6, &m->init_std);
    (void)ech_key_bool(&s->r, "tie_embeddings", &m->tie_embeddings);
    (void)ech_key_bool(&s->r, "qkv_bias", &m->qkv_bias);
    (void)ech_key_bool(&s->r, "qk_norm", &m->qk_norm);
    if (ech_key_int(&s->r, ECH_KEYS("window"), 0, &m->window) == ECH_KEY_GOOD)
        m->window_layers = m->window > 0 ? m->layers : 0;
    if (m->window_layers > m->layers)
        m->window_layers = m->layers;
}

static void read_rope_map(const source *s, const ech_node *map, ech_rope *rope)
{
    static const char *const kinds[] = {"none", "default", "linear", "llama3"};
    static const char *const layouts[] = {"half", "interleaved"};
    const ech_key_reader r = {map, "model.rope", s->r.findings};
    int choice;
    ech_key_check_known(&r, rope_keys, COUNT(rope_keys));
    if (ech_key_choice(&r, "kind", kinds, COUNT(kinds), &choice) == ECH_KEY_GOOD)
        rope->kind = (ech_rope_kind)choice;
    if (ech_key_choice(&r, "layout", layouts, COUNT(layouts), &choice) == ECH_KEY_GOOD)
        rope->interleaved = choice == 1;
    (void)ech_key_real(&r, ECH_KEYS("theta"), 1e-6, 1e30, &rope->theta);
    (void)ech_key_real(&r, ECH_KEYS("factor"), 1e-6, 1e9, &rope->factor);
    (void)ech_key_real(&r, ECH_KEYS("low_freq_factor"), 1e-6, 1e9, &rope->low_freq_factor);
    (void)ech_key_real(&r, ECH_KEYS("high_freq_factor"), 1e-6, 1e9, &rope->high_freq_factor);
    (void)ech_key_int(&r, ECH_KEYS("original_context"), WHOLE_MIN, &rope->original_context);
    (void)ech_key_real(&r, ECH_KEYS("partial"), 0.0, 1.0, &rope->partial);
}

/* A map, the name of a kind, or a number: theta. */
static void read_rope(const source *s, ech_model *m)
{
    const ech_node *node = ech_key_find(&s->r, "rope");
    if (!node)
        return;
    if (m->rope.kind == ECH_ROPE_NONE)
        m->rope.kind = ECH_ROPE_DEFAULT; /* unless the key says none again */
    if (node->kind == ECH_NODE_MAP) {
        read_rope_map(s, node, &m->rope);
    } else if (node->kind == ECH_NODE_STRING) {
        ech_node value = *node;
        value.key = "kind";
        value.next = NULL;
        const ech_node map = {.kind = ECH_NODE_MAP, .child = &value, .n = 1};
        read_rope_map(s, &map, &m->rope);
    } else {
        (void)ech_key_real(&s->r, ECH_KEYS("rope"), 1e-6, 1e30, &m->rope.theta);
    }
    m->learned_positions = m->rope.kind == ECH_ROPE_NONE;
}

/* Keys of moe that shape no parameter: their values are held to the schema here. */
static void check_moe_values(const ech_key_reader *r)
{
    static const char *const scores[] = {"softmax", "sigmoid"};
    static const char *const modes[] = {"dropless", "drop"};
    int choice;
    int64_t whole;
    double real;
    (void)ech_key_choice(r, "score", scores, COUNT(scores), &choice);
    (void)ech_key_choice(r, "mode", modes, COUNT(modes), &choice);
    (void)ech_key_int(r, ECH_KEYS("groups"), WHOLE_MIN, &whole);
    (void)ech_key_real(r, ECH_KEYS("capacity"), 0.0, 1e6, &real);
    (void)ech_key_real(r, ECH_KEYS("aux"), 0.0, 1e6, &real);
    (void)ech_key_real(r, ECH_KEYS("z"), 0.0, 1e6, &real);
    (void)ech_key_real(r, ECH_KEYS("bias_rate"), 0.0, 1e6, &real);
}

static void read_moe(const source *s, ech_model *m)
{
    const ech_node *map = NULL;
    if (ech_key_tree(&s->r, "moe", ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return;
    const ech_key_reader r = {map, "model.moe", s->r.findings};
    ech_moe *moe = &m->moe;
    ech_key_check_known(&r, moe_keys, COUNT(moe_keys));
    check_moe_values(&r);
    const bool was_dense = moe->experts == 0;
    if (ech_key_int(&r, ECH_KEYS("experts"), 0, &moe->experts) == ECH_KEY_ABSENT && map->n > 0 &&
        was_dense)
        ech_key_complain(&r, map, "experts is missing");
    if (moe->experts == 0) {
        *moe = (ech_moe){.sparse_step = 1};
        return;
    }
    if (ech_key_int(&r, ECH_KEYS("topk"), WHOLE_MIN, &moe->topk) == ECH_KEY_ABSENT && was_dense)
        ech_key_complain(&r, map, "topk is missing");
    if (was_dense)
        moe->expert_ffn = m->ffn;
    (void)ech_key_int(&r, ECH_KEYS("expert_ffn"), WHOLE_MIN, &moe->expert_ffn);
    (void)ech_key_int(&r, ECH_KEYS("first_dense"), 0, &moe->first_dense);
    if (ech_key_int(&r, ECH_KEYS("shared_experts"), 0, &moe->shared_experts) == ECH_KEY_GOOD)
        moe->shared_ffn = moe->shared_experts * moe->expert_ffn;
    (void)ech_key_int(&r, ECH_KEYS("shared_ffn"), 0, &moe->shared_ffn);
}

/* Latent attention: all of its widths but q_lora_rank, or none. */
static void read_mla(const source *s, ech_model *m)
{
    const ech_node *map = NULL;
    if (ech_key_tree(&s->r, "mla", ECH_NODE_MAP, &map) != ECH_KEY_GOOD || map->n == 0)
        return;
    const ech_key_reader r = {map, "model.mla", s->r.findings};
    ech_mla *a = &m->mla;
    int64_t *const width[] = {&a->q_lora_rank, &a->kv_lora_rank, &a->qk_nope_dim, &a->qk_rope_dim,
                              &a->v_dim};
    ech_key_check_known(&r, mla_keys, COUNT(mla_keys));
    for (size_t i = 0; i < COUNT(mla_keys); i++) {
        const bool may_be_zero = i == 0;
        if (ech_key_int(&r, ECH_KEYS(mla_keys[i]), may_be_zero ? 0 : 1, width[i]) ==
                ECH_KEY_ABSENT &&
            !may_be_zero && *width[i] == 0)
            ech_key_complain(&r, map, "%s is missing", mla_keys[i]);
    }
    m->head_dim = a->qk_nope_dim + a->qk_rope_dim;
}

/* Load a preset or a file; what is wrong with it becomes a finding. */
static ech_status load(const source *s, const char *key, const char *name, ech_model *out)
{
    const ech_status st = ech_model_load(name, out);
    if (st >= 0 || ech_status_exit_code(st) != 2)
        return st;
    ech_key_complain(&s->r, ech_key_find(&s->r, key), "%s: %s", key, ech_error_message());
    ech_error_clear();
    return ECH_OK;
}

static void load_preset(const source *s, const char *name, ech_model *out)
{
    if (ech_preset_find(name, out))
        return;
    size_t n;
    const char *const *names = ech_model_presets(&n);
    const char *near = ech_nearest_name(name, names, n);
    ech_key_complain(&s->r, ech_key_find(&s->r, "preset"),
                     "preset '%.80s' is not known%s%s (a folder is named by hf)", name,
                     near ? ", nearest is " : "", near ? near : "");
}

static ech_status load_hf(const source *s, const char *base_dir, const char *dir, ech_model *out)
{
    char path[4096];
    ECH_TRY(ech_path_join(base_dir, dir, path, sizeof path));
    if (ech_path_exists(path))
        return load(s, "hf", path, out);
    ech_key_complain(&s->r, ech_key_find(&s->r, "hf"), "hf '%.200s': no such file or folder", path);
    return ECH_OK;
}

/* The model before its other keys; layers stay 0 where it could not be found. */
static ech_status read_source(source *s, const char *base_dir, ech_model *m)
{
    static const char *const archs[] = {"gpt2", "llama"};
    const char *preset = NULL;
    const char *hf = NULL;
    int arch = -1;
    (void)ech_key_string(&s->r, ECH_KEYS("preset"), &preset);
    (void)ech_key_string(&s->r, ECH_KEYS("hf"), &hf);
    const ech_key_got got = ech_key_choice(&s->r, "arch", archs, COUNT(archs), &arch);
    *m = ech_model_default(arch == 0 ? ECH_ARCH_GPT2 : ECH_ARCH_LLAMA);
    (void)snprintf(m->name, sizeof m->name, "%s", arch >= 0 ? archs[arch] : "");
    const int n = (preset != NULL) + (hf != NULL) + (got != ECH_KEY_ABSENT);
    if (n > 1)
        ech_key_complain(&s->r, NULL, "preset, hf and arch exclude each other: keep one of them");
    const bool has_name = ech_key_find(&s->r, "preset") || ech_key_find(&s->r, "hf");
    if (!has_name && got == ECH_KEY_ABSENT)
        ech_key_complain(&s->r, NULL, "arch is missing: gpt2 or llama (or name a preset or hf)");
    s->is_explicit = !has_name;
    s->has_arch = arch >= 0;
    if (n == 1 && preset)
        load_preset(s, preset, m);
    return n == 1 && hf ? load_hf(s, base_dir, hf, m) : ECH_OK;
}

/* Findings about values, "model.KEY is ...": each gets the place of its key, where it has one. */
static void adopt_with_places(const source *s, const ech_findings *found)
{
    for (const char *at = found->n ? ech_text_get(&found->text) : NULL; at;) {
        char key[64] = "";
        const size_t n = strcspn(at, "\n");
        const bool has_key = sscanf(at, "model.%63[a-z_]", key) == 1;
        const ech_node *node = has_key ? ech_key_find(&s->r, key) : NULL;
        if (node && node->line > 0)
            ech_findings_add(s->r.findings, "%.*s (line %d, column %d)", (int)n, at, node->line,
                             node->column);
        else
            ech_findings_add(s->r.findings, "%.*s", (int)n, at);
        at = at[n] ? at + n + 1 : NULL;
    }
}

static void check_values(const source *s, bool is_whole, const ech_model *m)
{
    ech_findings found = {0};
    if (is_whole)
        ech_model_validate(m, &found);
    else
        ech_model_validate_relations(m, &found);
    adopt_with_places(s, &found);
    ech_findings_fini(&found);
}

ech_status ech_model_from_config(const ech_node *node, const char *base_dir, ech_findings *findings,
                                 ech_model *out)
{
    const int before = findings->n;
    source s = {.r = {node, "model", findings}};
    *out = ech_model_default(ECH_ARCH_LLAMA);
    if (!node || node->kind != ECH_NODE_MAP) {
        ech_key_complain(&s.r, node, "%s, wanted a map such as {preset: gpt2-124m}",
                         node ? ech_node_kind_name(node->kind) : "missing");
        return ECH_OK;
    }
    ech_key_check_known(&s.r, known_keys, COUNT(known_keys));
    ECH_TRY(read_source(&s, base_dir, out));
    read_sizes(&s, out);
    read_switches(&s, out);
    read_rope(&s, out);
    read_moe(&s, out);
    read_mla(&s, out);
    ech_model_check_built(out);
    check_values(&s, findings->n == before, out);
    return ECH_OK;
}
