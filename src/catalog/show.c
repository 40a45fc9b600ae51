#include "catalog/show.h"

#include "catalog/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes per parameter of the training state. */
typedef struct state_recipe {
    const char *name; /* "fp32", "bf16" (fp32 gradients), "bf16-grads16" */
    int weights, grads, master, optimizer;
} state_recipe;

static const state_recipe recipes[] = {
    {"fp32", 4, 4, 0, 8},
    {"bf16", 2, 4, 4, 8},
    {"bf16-grads16", 2, 2, 4, 8},
};

/* A group of like units: the embedding, the dense layers, the sparse ones, the head. */
typedef struct group {
    const char *name;
    int64_t units;
    ech_tensors tensors;
} group;

enum { N_GROUPS = 4 };

static void list_groups(const ech_model *m, group out[N_GROUPS])
{
    const int64_t sparse = ech_model_sparse_layers(m);
    const char *const names[N_GROUPS] = {"embedding", "layer", "sparse layer", "head"};
    const int64_t units[N_GROUPS] = {1, m->layers - sparse, sparse, 1};
    for (int i = 0; i < N_GROUPS; i++) {
        out[i].name = names[i];
        out[i].units = units[i];
    }
    if (sparse > 0 && sparse < m->layers)
        out[1].name = "dense layer";
    ech_tensors_embedding(m, &out[0].tensors);
    ech_tensors_layer(m, false, &out[1].tensors);
    ech_tensors_layer(m, true, &out[2].tensors);
    ech_tensors_head(m, &out[3].tensors);
}

/* Digits in groups of three: the totals are long. */
static void add_grouped(ech_text *t, int64_t n)
{
    char digits[32];
    const int len = snprintf(digits, sizeof digits, "%" PRId64, n);
    for (int i = 0; i < len; i++) {
        ech_text_add(t, "%c", digits[i]);
        if ((len - 1 - i) % 3 == 0 && i + 1 < len)
            ech_text_add(t, ",");
    }
}

static void show_tensor(const ech_model_tensor *x, ech_text *t)
{
    ech_text_add(t, "  %-24s [", x->name);
    if (x->copies > 1)
        ech_text_add(t, "%" PRId64 ", ", x->copies);
    ech_text_add(t, "%" PRId64, x->dim[0]);
    if (x->rank > 1)
        ech_text_add(t, ", %" PRId64, x->dim[1]);
    ech_text_add(t, "]\n");
}

static ech_status show_groups(const ech_model *m, ech_text *t)
{
    group groups[N_GROUPS];
    list_groups(m, groups);
    for (int i = 0; i < N_GROUPS; i++) {
        ech_tensor_sum sum;
        if (groups[i].units == 0)
            continue;
        ECH_TRY(ech_tensors_sum(m, &groups[i].tensors, &sum));
        ech_text_add(t, "\n%s", groups[i].name);
        if (groups[i].units > 1)
            ech_text_add(t, " x %" PRId64, groups[i].units);
        ech_text_add(t, ": ");
        add_grouped(t, sum.total);
        ech_text_add(t, " parameters%s\n", groups[i].units > 1 ? " each" : "");
        for (int j = 0; j < groups[i].tensors.n; j++)
            show_tensor(&groups[i].tensors.item[j], t);
    }
    return ECH_OK;
}

static void show_sizes(const ech_model *m, ech_text *t)
{
    ech_text_add(t,
                 "%s (family %s)\n"
                 "  layers %" PRId64 ", hidden %" PRId64 ", heads %" PRId64 " of %" PRId64
                 ", kv heads %" PRId64 ", ffn %" PRId64 "\n"
                 "  vocabulary %" PRId64 ", context %" PRId64 "%s\n",
                 m->name, m->family, m->layers, m->hidden, m->heads, m->head_dim, m->kv_heads,
                 m->ffn, m->vocab, m->context, m->tie_embeddings ? ", head tied to the table" : "");
    if (m->moe.experts > 0)
        ech_text_add(t,
                     "  experts %" PRId64 ", %" PRId64 " a token, width %" PRId64
                     ", shared width %" PRId64 "\n",
                     m->moe.experts, m->moe.topk, m->moe.expert_ffn, m->moe.shared_ffn);
    if (m->window > 0)
        ech_text_add(t, "  sliding window of %" PRId64 " in %" PRId64 " layers\n", m->window,
                     m->window_layers);
    if (!m->is_executable)
        ech_text_add(t, "  known for counting, cannot be run: %s\n", m->not_executable);
}

static int recipe_bytes(const state_recipe *r)
{
    return r->weights + r->grads + r->master + r->optimizer;
}

static void show_state(const ech_param_count *c, ech_text *t)
{
    ech_text_add(t, "\nmemory of the training state (weights, gradients, master copy, AdamW)\n");
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        char buf[32];
        const double bytes = (double)c->total * recipe_bytes(&recipes[i]);
        ech_text_add(t, "  %-14s %2d B a parameter: %s\n", recipes[i].name,
                     recipe_bytes(&recipes[i]), ech_format_bytes(bytes, buf, sizeof buf));
    }
}

static void show_flops(const ech_model *m, int64_t seq, ech_text *t)
{
    ech_text_add(t,
                 "\nFLOPs a token, forward and backward, %" PRId64 " tokens: %.4g, causal %.4g\n"
                 "  convention: 6 N_matmul + 12 L s a d_h; causal halves the second term\n",
                 seq, ech_model_flops_per_token(m, seq, false),
                 ech_model_flops_per_token(m, seq, true));
}

/* 0 stands for the whole context. */
static ech_status resolve_seq(const ech_model *m, int64_t *seq)
{
    if (*seq == 0)
        *seq = m->context;
    ech_findings findings = {0};
    ech_model_validate_seq(m, *seq, &findings);
    const ech_status st = ech_findings_raise(&findings, ECH_E_ILLEGAL);
    ech_findings_fini(&findings);
    return st;
}

ech_status ech_model_show(const ech_model *m, int64_t seq, ech_text *out)
{
    ech_param_count c;
    ECH_TRY(resolve_seq(m, &seq));
    ECH_TRY(ech_model_count(m, &c));
    show_sizes(m, out);
    ech_text_add(out, "\nparameters ");
    add_grouped(out, c.total);
    if (c.active != c.total) {
        ech_text_add(out, ", active for a token ");
        add_grouped(out, c.active);
    }
    ech_text_add(out, "\n");
    ECH_TRY(show_groups(m, out));
    show_state(&c, out);
    show_flops(m, seq, out);
    ECH_CHECK(!out->failed, ECH_E_NOMEM, "no memory for the words about a model");
    return ECH_OK;
}

static void json_int(ech_text *t, const char *key, int64_t value)
{
    ech_text_add(t, ",\"%s\":%" PRId64, key, value);
}

static void json_bool(ech_text *t, const char *key, bool value)
{
    ech_text_add(t, ",\"%s\":%s", key, value ? "true" : "false");
}

static void json_string(ech_text *t, const char *key, const char *value)
{
    ech_text_add(t, ",\"%s\":", key);
    ech_text_add_json_string(t, value, strlen(value));
}

static void json_double(ech_text *t, const char *key, double value)
{
    ech_text_add(t, ",\"%s\":", key);
    ech_text_add_double(t, value);
}

static void json_sizes(const ech_model *m, ech_text *t)
{
    json_string(t, "name", m->name);
    json_string(t, "family", m->family);
    json_int(t, "hidden", m->hidden);
    json_int(t, "heads", m->heads);
    json_int(t, "kv_heads", m->kv_heads);
    json_int(t, "head_dim", m->head_dim);
    json_int(t, "ffn", m->ffn);
    json_int(t, "vocab", m->vocab);
    json_int(t, "context", m->context);
    json_int(t, "window", m->window);
    json_int(t, "window_layers", m->window_layers);
    json_bool(t, "tie_embeddings", m->tie_embeddings);
    json_int(t, "experts", m->moe.experts);
    json_int(t, "topk", m->moe.experts > 0 ? m->moe.topk : 0);
    json_int(t, "sparse_layers", ech_model_sparse_layers(m));
    json_bool(t, "executable", m->is_executable);
    if (m->is_executable)
        ech_text_add(t, ",\"not_executable\":null");
    else
        json_string(t, "not_executable", m->not_executable);
}

static void json_shapes(const ech_model *m, ech_text *t)
{
    group groups[N_GROUPS];
    const char *comma = "";
    list_groups(m, groups);
    ech_text_add(t, ",\"shapes\":[");
    for (int i = 0; i < N_GROUPS; i++) {
        for (int j = 0; groups[i].units > 0 && j < groups[i].tensors.n; j++) {
            const ech_model_tensor *x = &groups[i].tensors.item[j];
            ech_text_add(t, "%s{\"unit\":\"%s\",\"name\":\"%s\",\"shape\":[%" PRId64, comma,
                         groups[i].name, x->name, x->dim[0]);
            if (x->rank > 1)
                ech_text_add(t, ",%" PRId64, x->dim[1]);
            ech_text_add(t, "],\"units\":%" PRId64 ",\"copies\":%" PRId64 "}", groups[i].units,
                         x->copies);
            comma = ",";
        }
    }
    ech_text_add(t, "]");
}

/* Beyond 2^64 only as a double: no machine holds that. */
static void json_bytes(ech_text *t, const char *key, int64_t params, int bytes)
{
    uint64_t product;
    if (__builtin_mul_overflow((uint64_t)params, (uint64_t)bytes, &product))
        json_double(t, key, (double)params * bytes);
    else
        ech_text_add(t, ",\"%s\":%" PRIu64, key, product);
}

static void json_state(const ech_param_count *c, ech_text *t)
{
    ech_text_add(t, ",\"state_bytes\":{");
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        const state_recipe *r = &recipes[i];
        ech_text_add(t, "%s\"%s\":{\"bytes_per_param\":%d", i ? "," : "", r->name, recipe_bytes(r));
        json_bytes(t, "params", c->total, r->weights);
        json_bytes(t, "grads", c->total, r->grads);
        json_bytes(t, "master", c->total, r->master);
        json_bytes(t, "optimizer", c->total, r->optimizer);
        json_bytes(t, "total", c->total, recipe_bytes(r));
        ech_text_add(t, "}");
    }
    ech_text_add(t, "}");
}

ech_status ech_model_show_json(const ech_model *m, int64_t seq, ech_text *out)
{
    ech_param_count c;
    ECH_TRY(resolve_seq(m, &seq));
    ECH_TRY(ech_model_count(m, &c));
    ech_text_add(out, "{\"params\":%" PRId64, c.total);
    json_int(out, "params_active", c.active);
    json_int(out, "params_embedding", c.embedding);
    json_int(out, "params_matmul", c.matmul);
    json_int(out, "params_layer_first", c.per_layer_first);
    json_int(out, "params_layer_last", c.per_layer_last);
    json_int(out, "layers", m->layers);
    json_sizes(m, out);
    json_shapes(m, out);
    json_state(&c, out);
    json_int(out, "seq", seq);
    json_double(out, "flops_per_token", ech_model_flops_per_token(m, seq, false));
    json_double(out, "flops_per_token_causal", ech_model_flops_per_token(m, seq, true));
    json_string(out, "flops_convention", "6*N_matmul + 12*L*s*a*d_h (causal: half of the second)");
    ech_text_add(out, "}\n");
    ECH_CHECK(!out->failed, ECH_E_NOMEM, "no memory for the JSON about a model");
    return ECH_OK;
}
