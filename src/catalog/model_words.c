/* A shape on one line, "layers=24,hidden=2304,heads=24,vocab=51200,arch=gpt": the words become the
 * `model:` map of a configuration, which reads and checks them. */
#include "catalog/key_reader.h"
#include "catalog/model.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { WORDS_MAX = 48, CONTEXT_UNSAID = 2048 };

/* Words and the map inside `model:` that each goes to ("": model itself). */
static const char *const known[] = {
    "preset",         "hf",         "arch",        "layers",      "hidden",       "heads",
    "kv_heads",       "head_dim",   "ffn",         "vocab",       "context",      "norm",
    "norm_eps",       "act",        "rope",        "dropout",     "window",       "tie_embeddings",
    "qkv_bias",       "qk_norm",    "init_std",    "experts",     "topk",         "expert_ffn",
    "shared_experts", "shared_ffn", "first_dense", "q_lora_rank", "kv_lora_rank", "qk_nope_dim",
    "qk_rope_dim",    "v_dim"};

enum { FIRST_MOE = 21, FIRST_MLA = 27 };

/* One word, cut at its '='. */
typedef struct word {
    char key[32];
    char value[256];
    size_t index; /* in known; COUNT(known): none of them */
} word;

typedef struct words {
    word item[WORDS_MAX];
    int n;
} words;

static size_t find_known(const char *key)
{
    size_t i = 0;
    while (i < COUNT(known) && strcmp(key, known[i]) != 0)
        i++;
    return i;
}

/* Values go into a document unquoted: nothing that could be read as more than one plain value. */
static bool is_plain(const char *value)
{
    for (const char *c = value; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._+-/", *c))
            return false;
    return value[0] != '\0' && !(value[0] == '-' && value[1] == '\0');
}

static void complain_unknown(const word *w, ech_findings *findings)
{
    const char *near = ech_nearest_name(w->key, known, COUNT(known));
    ech_findings_add(findings, "model: unknown key '%.40s'%s%s%s", w->key,
                     near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
}

static bool is_twice(const words *all, const word *w)
{
    for (int i = 0; i < all->n; i++)
        if (all->item[i].index == w->index)
            return true;
    return false;
}

/* Take one word of n bytes, or complain about it. */
static void take(const char *at, size_t n, words *all, ech_findings *findings)
{
    word w = {.key = ""};
    const char *equals = memchr(at, '=', n);
    const size_t key = equals ? (size_t)(equals - at) : n;
    if (!equals || key == 0 || key >= sizeof w.key || n - key - 1 >= sizeof w.value) {
        ech_findings_add(findings, "model: '%.*s' is not KEY=VALUE", n < 60 ? (int)n : 60, at);
        return;
    }
    memcpy(w.key, at, key);
    memcpy(w.value, equals + 1, n - key - 1);
    w.index = find_known(w.key);
    if (w.index == COUNT(known))
        complain_unknown(&w, findings);
    else if (!is_plain(w.value))
        ech_findings_add(findings, "model: %s is '%.60s', wanted one plain value", w.key, w.value);
    else if (is_twice(all, &w))
        ech_findings_add(findings, "model: %s is given twice", w.key);
    else if (all->n < WORDS_MAX)
        all->item[all->n++] = w;
}

static void split(const char *text, words *all, ech_findings *findings)
{
    all->n = 0;
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        take(at, n, all, findings);
        at += n;
        if (*at == '\0')
            return;
    }
}

/* Members of the map whose keys are known[first .. end). */
static int print_members(const words *all, size_t first, size_t end, ech_text *out)
{
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        const word *w = &all->item[i];
        const bool is_gpt = strcmp(w->key, "arch") == 0 && strcmp(w->value, "gpt") == 0;
        if (w->index >= first && w->index < end)
            ech_text_add(out, "%s%s: %s", n++ ? ", " : "", w->key, is_gpt ? "gpt2" : w->value);
    }
    return n;
}

static bool has(const words *all, const char *key)
{
    const word w = {.index = find_known(key)};
    return is_twice(all, &w);
}

/* The `model:` map as YAML.  Returns whether its context was left open. */
static bool print_map(const words *all, ech_text *out)
{
    const bool is_open = !has(all, "context") && !has(all, "preset") && !has(all, "hf");
    ech_text_add(out, "{");
    const int n = print_members(all, 0, FIRST_MOE, out);
    if (is_open)
        ech_text_add(out, "%scontext: %d", n ? ", " : "", CONTEXT_UNSAID);
    ech_text_add(out, "%smoe: {", n || is_open ? ", " : "");
    (void)print_members(all, FIRST_MOE, FIRST_MLA, out);
    ech_text_add(out, "}, mla: {");
    (void)print_members(all, FIRST_MLA, COUNT(known), out);
    ech_text_add(out, "}}");
    return is_open;
}

/* The words have no lines: their places would mislead. */
static void forget_places(ech_node *node)
{
    for (ech_node *x = node; x; x = x->next) {
        x->line = 0;
        if (x->kind == ECH_NODE_MAP)
            forget_places(x->child);
    }
}

static ech_status read_map(const ech_text *map, ech_findings *findings, ech_model *m)
{
    ech_node *node = NULL;
    ECH_CHECK(!map->failed, ECH_E_NOMEM, "no memory for the words of a model");
    ECH_TRY(ech_node_parse_yaml(map->data, map->bytes, "model", &node));
    forget_places(node);
    const ech_status st = ech_model_from_config(node, ".", findings, m);
    ech_node_destroy(&node);
    ECH_TRY(st);
    return ech_findings_raise(findings, ECH_E_CONFIG);
}

ech_status ech_model_from_words(const char *text, ech_model *out)
{
    words all;
    ech_findings findings = {0};
    ech_text map = {0};
    ech_model m;
    split(text, &all, &findings);
    const bool is_open = print_map(&all, &map);
    const ech_status st = read_map(&map, &findings, &m);
    if (st == ECH_OK) {
        m.is_context_open = is_open;
        (void)snprintf(m.name, sizeof m.name, "%s", text);
        *out = m;
    }
    ech_text_fini(&map);
    ech_findings_fini(&findings);
    return st;
}
