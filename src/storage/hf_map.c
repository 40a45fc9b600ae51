#include "storage/hf_weights.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which part of a canonical parameter an HF tensor holds, and in which order. */
typedef enum form {
    FORM_SAME,      /* the same elements in the same order */
    FORM_HEAD,      /* one value for each element of a head */
    FORM_VOCAB,     /* rows without the vocabulary padding */
    FORM_TRANSPOSE, /* [in, out] for the canonical [out, in] */
    FORM_Q,         /* query rows, heads in order */
    FORM_K,         /* key rows */
    FORM_V,         /* value rows */
    FORM_QKV,       /* all queries, all keys, all values one after the other (bias) */
    FORM_QKV_T,     /* the same as columns: [in, q | k | v] */
    FORM_GATE,      /* first half */
    FORM_UP         /* second half */
} form;

/* One HF tensor.  A name with %d stands once a layer; a row applies where the model has the
 * parameter. */
typedef struct row {
    const char *name; /* behind the prefix */
    ech_param_kind kind;
    form form;
    bool has_no_prefix;
} row;

static const row llama_rows[] = {
    {"embed_tokens.weight", ECH_PARAM_TOKEN_EMBED, FORM_VOCAB, false},
    {"layers.%d.input_layernorm.weight", ECH_PARAM_ATTN_NORM, FORM_SAME, false},
    {"layers.%d.self_attn.q_proj.weight", ECH_PARAM_QKV, FORM_Q, false},
    {"layers.%d.self_attn.k_proj.weight", ECH_PARAM_QKV, FORM_K, false},
    {"layers.%d.self_attn.v_proj.weight", ECH_PARAM_QKV, FORM_V, false},
    {"layers.%d.self_attn.q_proj.bias", ECH_PARAM_QKV_BIAS, FORM_Q, false},
    {"layers.%d.self_attn.k_proj.bias", ECH_PARAM_QKV_BIAS, FORM_K, false},
    {"layers.%d.self_attn.v_proj.bias", ECH_PARAM_QKV_BIAS, FORM_V, false},
    {"layers.%d.self_attn.q_norm.weight", ECH_PARAM_Q_NORM, FORM_HEAD, false},
    {"layers.%d.self_attn.k_norm.weight", ECH_PARAM_K_NORM, FORM_HEAD, false},
    {"layers.%d.self_attn.o_proj.weight", ECH_PARAM_ATTN_OUT, FORM_SAME, false},
    {"layers.%d.self_attn.o_proj.bias", ECH_PARAM_ATTN_OUT_BIAS, FORM_SAME, false},
    {"layers.%d.post_attention_layernorm.weight", ECH_PARAM_MLP_NORM, FORM_SAME, false},
    {"layers.%d.mlp.gate_proj.weight", ECH_PARAM_GATE_UP, FORM_GATE, false},
    {"layers.%d.mlp.up_proj.weight", ECH_PARAM_GATE_UP, FORM_UP, false},
    {"layers.%d.mlp.down_proj.weight", ECH_PARAM_DOWN, FORM_SAME, false},
    {"norm.weight", ECH_PARAM_FINAL_NORM, FORM_SAME, false},
    {"lm_head.weight", ECH_PARAM_HEAD, FORM_VOCAB, true},
};

static const row gpt2_rows[] = {
    {"wte.weight", ECH_PARAM_TOKEN_EMBED, FORM_VOCAB, false},
    {"wpe.weight", ECH_PARAM_POSITION_EMBED, FORM_SAME, false},
    {"h.%d.ln_1.weight", ECH_PARAM_ATTN_NORM, FORM_SAME, false},
    {"h.%d.ln_1.bias", ECH_PARAM_ATTN_NORM_BIAS, FORM_SAME, false},
    {"h.%d.attn.c_attn.weight", ECH_PARAM_QKV, FORM_QKV_T, false},
    {"h.%d.attn.c_attn.bias", ECH_PARAM_QKV_BIAS, FORM_QKV, false},
    {"h.%d.attn.c_proj.weight", ECH_PARAM_ATTN_OUT, FORM_TRANSPOSE, false},
    {"h.%d.attn.c_proj.bias", ECH_PARAM_ATTN_OUT_BIAS, FORM_SAME, false},
    {"h.%d.ln_2.weight", ECH_PARAM_MLP_NORM, FORM_SAME, false},
    {"h.%d.ln_2.bias", ECH_PARAM_MLP_NORM_BIAS, FORM_SAME, false},
    {"h.%d.mlp.c_fc.weight", ECH_PARAM_UP, FORM_TRANSPOSE, false},
    {"h.%d.mlp.c_fc.bias", ECH_PARAM_UP_BIAS, FORM_SAME, false},
    {"h.%d.mlp.c_proj.weight", ECH_PARAM_DOWN, FORM_TRANSPOSE, false},
    {"h.%d.mlp.c_proj.bias", ECH_PARAM_DOWN_BIAS, FORM_SAME, false},
    {"ln_f.weight", ECH_PARAM_FINAL_NORM, FORM_SAME, false},
    {"ln_f.bias", ECH_PARAM_FINAL_NORM_BIAS, FORM_SAME, false},
    {"lm_head.weight", ECH_PARAM_HEAD, FORM_VOCAB, true},
};

static const struct {
    const char *prefix;
    const row *rows;
    size_t n;
} arch_rows[] = {
    [ECH_ARCH_GPT2] = {"transformer.", gpt2_rows, sizeof gpt2_rows / sizeof *gpt2_rows},
    [ECH_ARCH_LLAMA] = {"model.", llama_rows, sizeof llama_rows / sizeof *llama_rows},
};

/* The map while it grows; counted first, then filled. */
typedef struct builder {
    const ech_model *m;
    const ech_canon *c;
    ech_hf_map map;
    size_t tensor_cap, box_cap;
} builder;

/* --- boxes --- */

static ech_status add_box(builder *b, ech_hf_box box)
{
    ECH_TRY(ech_grow(&b->map.box, b->map.n_boxes, &b->box_cap, sizeof *b->map.box));
    b->map.box[b->map.n_boxes++] = box;
    b->map.tensor[b->map.n_tensors - 1].n_boxes++;
    return ECH_OK;
}

/* n elements in one run. */
static ech_status add_run(builder *b, int param, int64_t hf, int64_t canon, int64_t n)
{
    return add_box(b, (ech_hf_box){.param = param,
                                   .hf_first = hf,
                                   .canon_first = canon,
                                   .count = {1, 1, n},
                                   .hf_stride = {n, n, 1},
                                   .canon_stride = {n, n, 1}});
}

/* Head groups in a canonical QKV tensor [g, r + 2, d_h, cols]. */
typedef struct groups {
    int64_t n, ratio, head; /* g, r, d_h */
    int64_t cols;           /* H, or 1 for the bias */
} groups;

static groups groups_of(const ech_model *m, int64_t cols)
{
    return (groups){m->kv_heads, m->heads / m->kv_heads, m->head_dim, cols};
}

/* Part 0, 1, 2 = q, k, v: its rows in a group, and where they start there. */
static int64_t part_rows(groups g, int part)
{
    return part == 0 ? g.ratio * g.head : g.head;
}

static int64_t part_start(groups g, int part)
{
    return part == 0 ? 0 : (g.ratio + part - 1) * g.head;
}

/* HF rows of one part, group after group (heads are in order of their groups): hf + [g, rows,
 * cols]. */
static ech_status add_part(builder *b, int param, groups g, int part, int64_t hf)
{
    const int64_t run = part_rows(g, part) * g.cols;
    const int64_t group = (g.ratio + 2) * g.head * g.cols;

    return add_box(b, (ech_hf_box){.param = param,
                                   .hf_first = hf,
                                   .canon_first = part_start(g, part) * g.cols,
                                   .count = {1, g.n, run},
                                   .hf_stride = {g.n * run, run, 1},
                                   .canon_stride = {0, group, 1}});
}

/* One head of a model with interleaved rotary pairs: HF pairs row i with i + d/2, so that its row
 * s d/2 + i is the model's row 2i + s. */
static ech_status add_rotary_head(builder *b, int param, groups g, int64_t hf, int64_t canon)
{
    const int64_t half = g.head / 2;

    for (int64_t s = 0; s < 2; s++)
        ECH_TRY(add_box(b, (ech_hf_box){.param = param,
                                        .hf_first = hf + s * half * g.cols,
                                        .canon_first = canon + s * g.cols,
                                        .count = {1, half, g.cols},
                                        .hf_stride = {half * g.cols, g.cols, 1},
                                        .canon_stride = {0, 2 * g.cols, 1}}));
    return ECH_OK;
}

/* Query or key rows of such a model, head by head. */
static ech_status add_rotary_part(builder *b, int param, groups g, int part)
{
    const int64_t head = g.head * g.cols;
    const int64_t n = part == 0 ? g.ratio : 1;

    for (int64_t i = 0; i < g.n; i++)
        for (int64_t j = 0; j < n; j++)
            ECH_TRY(add_rotary_head(b, param, g, (i * n + j) * head,
                                    (i * (g.ratio + 2) + j) * head + part_start(g, part) * g.cols));
    return ECH_OK;
}

/* HF columns of one part: element (x, group, row) of [H, .. | g, rows | ..], whose rows have width
 * columns. */
static ech_status add_part_columns(builder *b, int param, groups g, int part, int64_t first,
                                   int64_t width)
{
    const int64_t rows = part_rows(g, part);

    return add_box(b, (ech_hf_box){.param = param,
                                   .hf_first = first,
                                   .canon_first = part_start(g, part) * g.cols,
                                   .count = {g.cols, g.n, rows},
                                   .hf_stride = {width, rows, 1},
                                   .canon_stride = {1, (g.ratio + 2) * g.head * g.cols, g.cols}});
}

static ech_status add_all_parts(builder *b, int param, groups g, bool is_transposed)
{
    const int64_t width = g.n * (g.ratio + 2) * g.head;
    int64_t first = 0;

    for (int part = 0; part < 3; part++) {
        if (is_transposed)
            ECH_TRY(add_part_columns(b, param, g, part, first, width));
        else
            ECH_TRY(add_part(b, param, g, part, first));
        first += g.n * part_rows(g, part);
    }
    return ECH_OK;
}

static ech_status add_transpose(builder *b, int param, int64_t out, int64_t in)
{
    return add_box(b, (ech_hf_box){.param = param,
                                   .count = {1, in, out},
                                   .hf_stride = {in * out, out, 1},
                                   .canon_stride = {0, 1, in}});
}

/* --- shapes: what HF's tensor looks like --- */

static void set_shape(ech_hf_tensor *t, int rank, int64_t rows, int64_t cols)
{
    t->rank = rank;
    t->dim[0] = rows;
    t->dim[1] = rank == 2 ? cols : 0;
    t->elems =
        rows * (rank == 2 ? cols : 1); /* no larger than the canonical tensor's, checked there */
}

static bool is_rotary_interleaved(const ech_model *m)
{
    return m->rope.kind != ECH_ROPE_NONE && m->rope.interleaved;
}

/* The canonical parameter as rows and columns: everything but a last dimension H makes the rows. */
static ech_status add_form(builder *b, const row *r, int param, ech_hf_tensor *t)
{
    const ech_param *p = &b->c->param[param];
    const bool is_vector = p->rank == 1 || r->kind == ECH_PARAM_QKV_BIAS;
    const int64_t cols = is_vector ? 1 : p->dim[p->rank - 1];
    const int64_t rows = p->elems / cols;
    const int rank = is_vector ? 1 : 2;
    const groups g = groups_of(b->m, cols);
    const bool is_interleaved = is_rotary_interleaved(b->m);

    switch (r->form) {
    case FORM_SAME:
        set_shape(t, rank, rows, cols);
        return add_run(b, param, 0, 0, t->elems);
    case FORM_VOCAB:
        set_shape(t, rank, b->m->vocab, cols);
        return add_run(b, param, 0, 0, t->elems);
    case FORM_TRANSPOSE:
        set_shape(t, 2, cols, rows);
        return add_transpose(b, param, rows, cols);
    case FORM_HEAD:
        set_shape(t, 1, rows, 1);
        return is_interleaved ? add_rotary_head(b, param, g, 0, 0)
                              : add_run(b, param, 0, 0, t->elems);
    case FORM_Q:
    case FORM_K:
    case FORM_V:
        set_shape(t, rank, g.n * part_rows(g, (int)(r->form - FORM_Q)), cols);
        if (is_interleaved && r->form != FORM_V)
            return add_rotary_part(b, param, g, (int)(r->form - FORM_Q));
        return add_part(b, param, g, (int)(r->form - FORM_Q), 0);
    case FORM_QKV:
        set_shape(t, 1, rows, 1);
        return add_all_parts(b, param, g, false);
    case FORM_QKV_T:
        set_shape(t, 2, cols, rows);
        return add_all_parts(b, param, g, true);
    case FORM_GATE:
    case FORM_UP:
        set_shape(t, 2, rows / 2, cols);
        return add_run(b, param, 0, r->form == FORM_UP ? t->elems : 0, t->elems);
    }
    return ECH_RAISE(ECH_E_UNSUPPORTED, "unknown form");
}

/* --- the map --- */

static ech_status add_tensor(builder *b, const row *r, const ech_param *p)
{
    const char *prefix = r->has_no_prefix ? "" : b->map.prefix;
    char behind[80];
    ech_hf_tensor *t;

    ECH_TRY(ech_grow(&b->map.tensor, b->map.n_tensors, &b->tensor_cap, sizeof *b->map.tensor));
    t = &b->map.tensor[b->map.n_tensors++];
    *t = (ech_hf_tensor){.first_box = b->map.n_boxes};
    const char *number = strstr(r->name, "%d");
    if (number)
        (void)snprintf(behind, sizeof behind, "%.*s%d%s", (int)(number - r->name), r->name,
                       p->layer, number + 2);
    else
        (void)snprintf(behind, sizeof behind, "%s", r->name);
    (void)snprintf(t->name, sizeof t->name, "%s%s", prefix, behind);
    return add_form(b, r, (int)(p - b->c->param), t);
}

/* All rows of one canonical parameter: HF's order is that of the canonical tensors. */
static ech_status add_param(builder *b, const ech_param *p)
{
    const row *rows = arch_rows[b->m->arch].rows;
    const size_t before = b->map.n_tensors;

    for (size_t i = 0; i < arch_rows[b->m->arch].n; i++)
        if (rows[i].kind == p->kind)
            ECH_TRY(add_tensor(b, &rows[i], p));
    ECH_CHECK(b->map.n_tensors > before, ECH_E_UNSUPPORTED,
              "model '%s': parameter '%s' has no name in Hugging Face's %s models", b->m->name,
              p->name, b->m->arch == ECH_ARCH_GPT2 ? "GPT-2" : "Llama");
    return ECH_OK;
}

ech_status ech_hf_map_create(const ech_model *m, const ech_canon *c, ech_hf_map *out)
{
    builder b = {.m = m, .c = c};
    ech_status ok = ECH_OK;

    ECH_CHECK(!is_rotary_interleaved(m) || (m->arch == ECH_ARCH_LLAMA && m->rope.partial == 1.0),
              ECH_E_UNSUPPORTED,
              "model '%s': interleaved rotary pairs have a Hugging Face form only in Llama models "
              "that rotate whole heads",
              m->name);
    b.map.prefix = arch_rows[m->arch].prefix;
    b.map.is_tied = m->tie_embeddings;
    for (int i = 0; ok == ECH_OK && i < c->n_params; i++)
        ok = add_param(&b, &c->param[i]);
    if (ok < 0) {
        ech_hf_map_fini(&b.map);
        return ok;
    }
    *out = b.map;
    return ECH_OK;
}

void ech_hf_map_fini(ech_hf_map *map)
{
    free(map->tensor);
    free(map->box);
    *map = (ech_hf_map){0};
}
