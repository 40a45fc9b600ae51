#include "catalog/canon.h"

#include "base/checked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Name, initialisation and decay of each kind; shapes are in list_*() below. */
static const struct {
    const char *name; /* after "layers.N." in a layer */
    ech_init init;
    bool is_residual_out; /* writes into the residual stream: std divided by sqrt(2 L) */
    bool is_decayed;
} kind_rows[ECH_N_PARAM_KINDS] = {
    [ECH_PARAM_TOKEN_EMBED] = {"embed.token.weight", ECH_INIT_NORMAL, false, false},
    [ECH_PARAM_POSITION_EMBED] = {"embed.position.weight", ECH_INIT_NORMAL, false, false},
    [ECH_PARAM_ATTN_NORM] = {"attn_norm.weight", ECH_INIT_ONE, false, false},
    [ECH_PARAM_ATTN_NORM_BIAS] = {"attn_norm.bias", ECH_INIT_ZERO, false, false},
    [ECH_PARAM_QKV] = {"attn.qkv.weight", ECH_INIT_NORMAL, false, true},
    [ECH_PARAM_QKV_BIAS] = {"attn.qkv.bias", ECH_INIT_ZERO, false, false},
    [ECH_PARAM_Q_NORM] = {"attn.q_norm.weight", ECH_INIT_ONE, false, false},
    [ECH_PARAM_K_NORM] = {"attn.k_norm.weight", ECH_INIT_ONE, false, false},
    [ECH_PARAM_ATTN_OUT] = {"attn.out.weight", ECH_INIT_NORMAL, true, true},
    [ECH_PARAM_ATTN_OUT_BIAS] = {"attn.out.bias", ECH_INIT_ZERO, false, false},
    [ECH_PARAM_MLP_NORM] = {"mlp_norm.weight", ECH_INIT_ONE, false, false},
    [ECH_PARAM_MLP_NORM_BIAS] = {"mlp_norm.bias", ECH_INIT_ZERO, false, false},
    [ECH_PARAM_GATE_UP] = {"mlp.gate_up.weight", ECH_INIT_NORMAL, false, true},
    [ECH_PARAM_UP] = {"mlp.up.weight", ECH_INIT_NORMAL, false, true},
    [ECH_PARAM_UP_BIAS] = {"mlp.up.bias", ECH_INIT_ZERO, false, false},
    [ECH_PARAM_DOWN] = {"mlp.down.weight", ECH_INIT_NORMAL, true, true},
    [ECH_PARAM_DOWN_BIAS] = {"mlp.down.bias", ECH_INIT_ZERO, false, false},
    [ECH_PARAM_FINAL_NORM] = {"final_norm.weight", ECH_INIT_ONE, false, false},
    [ECH_PARAM_FINAL_NORM_BIAS] = {"final_norm.bias", ECH_INIT_ZERO, false, false},
    [ECH_PARAM_HEAD] = {"head.weight", ECH_INIT_NORMAL, false, true},
};

/* One unit's list: kinds and shapes, before names and offsets. */
typedef struct unit_list {
    int n;
    struct {
        ech_param_kind kind;
        int rank;
        int64_t dim[4];
    } item[ECH_N_PARAM_KINDS];
} unit_list;

/* Dimensions that a tensor lacks are given as 0. */
static void list_add(unit_list *u, ech_param_kind kind, int64_t d0, int64_t d1, int64_t d2,
                     int64_t d3)
{
    const int64_t dim[4] = {d0, d1, d2, d3};
    int rank = 0;
    while (rank < 4 && dim[rank] > 0) {
        u->item[u->n].dim[rank] = dim[rank];
        rank++;
    }
    u->item[u->n].kind = kind;
    u->item[u->n].rank = rank;
    u->n++;
}

static void list_vector(unit_list *u, bool is_there, ech_param_kind kind, int64_t n)
{
    if (is_there)
        list_add(u, kind, n, 0, 0, 0);
}

static void list_embedding(const ech_model *m, unit_list *u)
{
    list_add(u, ECH_PARAM_TOKEN_EMBED, ech_vocab_padded(m->vocab), m->hidden, 0, 0);
    if (m->learned_positions)
        list_add(u, ECH_PARAM_POSITION_EMBED, m->context, m->hidden, 0, 0);
}

static void list_attention(const ech_model *m, unit_list *u)
{
    const int64_t per_group = m->heads / m->kv_heads + 2; /* r queries, one key, one value */
    list_add(u, ECH_PARAM_ATTN_NORM, m->hidden, 0, 0, 0);
    list_vector(u, m->norm_bias, ECH_PARAM_ATTN_NORM_BIAS, m->hidden);
    list_add(u, ECH_PARAM_QKV, m->kv_heads, per_group, m->head_dim, m->hidden);
    if (m->qkv_bias)
        list_add(u, ECH_PARAM_QKV_BIAS, m->kv_heads, per_group, m->head_dim, 0);
    list_vector(u, m->qk_norm, ECH_PARAM_Q_NORM, m->head_dim);
    list_vector(u, m->qk_norm, ECH_PARAM_K_NORM, m->head_dim);
    list_add(u, ECH_PARAM_ATTN_OUT, m->hidden, m->heads * m->head_dim, 0, 0);
    list_vector(u, m->out_bias, ECH_PARAM_ATTN_OUT_BIAS, m->hidden);
}

static void list_mlp(const ech_model *m, unit_list *u)
{
    list_add(u, ECH_PARAM_MLP_NORM, m->hidden, 0, 0, 0);
    list_vector(u, m->norm_bias, ECH_PARAM_MLP_NORM_BIAS, m->hidden);
    if (m->act == ECH_ACT_SWIGLU || m->act == ECH_ACT_GEGLU) {
        list_add(u, ECH_PARAM_GATE_UP, 2, m->ffn, m->hidden, 0);
    } else {
        list_add(u, ECH_PARAM_UP, m->ffn, m->hidden, 0, 0);
        list_vector(u, m->mlp_bias, ECH_PARAM_UP_BIAS, m->ffn);
    }
    list_add(u, ECH_PARAM_DOWN, m->hidden, m->ffn, 0, 0);
    list_vector(u, m->mlp_bias, ECH_PARAM_DOWN_BIAS, m->hidden);
}

static void list_head(const ech_model *m, unit_list *u)
{
    list_add(u, ECH_PARAM_FINAL_NORM, m->hidden, 0, 0, 0);
    list_vector(u, m->norm_bias, ECH_PARAM_FINAL_NORM_BIAS, m->hidden);
    if (!m->tie_embeddings)
        list_add(u, ECH_PARAM_HEAD, ech_vocab_padded(m->vocab), m->hidden, 0, 0);
}

/* Append one unit to the canon, without gaps. */
static ech_status append_unit(ech_canon *c, const ech_model *m, int unit, const unit_list *u)
{
    const int layer = ech_canon_unit_kind(c, unit) == ECH_UNIT_LAYER ? unit - 1 : -1;
    c->unit_first[unit] = c->n_params;
    c->unit_offset[unit] = c->elems;
    for (int i = 0; i < u->n; i++) {
        ech_param *p = &c->param[c->n_params];
        p->kind = u->item[i].kind;
        p->layer = layer;
        p->unit = unit;
        p->rank = u->item[i].rank;
        p->elems = 1;
        for (int d = 0; d < p->rank; d++) {
            p->dim[d] = u->item[i].dim[d];
            ECH_TRY(ech_mul_i64(p->elems, p->dim[d], &p->elems));
        }
        const char *name = kind_rows[p->kind].name;
        if (layer < 0)
            (void)snprintf(p->name, sizeof p->name, "%s", name);
        else
            (void)snprintf(p->name, sizeof p->name, "layers.%d.%s", layer, name);
        p->init = kind_rows[p->kind].init;
        if (p->init == ECH_INIT_NORMAL)
            p->init_std = kind_rows[p->kind].is_residual_out
                              ? m->init_std / sqrt(2.0 * (double)m->layers)
                              : m->init_std;
        p->is_decayed = kind_rows[p->kind].is_decayed;
        p->offset = c->elems;
        p->unit_offset = c->elems - c->unit_offset[unit];
        ECH_TRY(ech_add_i64(c->elems, p->elems, &c->elems));
        c->n_params++;
    }
    c->unit_elems[unit] = c->elems - c->unit_offset[unit];
    c->unit_first[unit + 1] = c->n_params;
    return ECH_OK;
}

static ech_status build(const ech_model *m, ech_canon *c)
{
    unit_list embedding = {0};
    unit_list layer = {0};
    unit_list head = {0};
    list_embedding(m, &embedding);
    list_attention(m, &layer);
    list_mlp(m, &layer);
    list_head(m, &head);

    c->n_units = (int)m->layers + 2;
    c->vocab_padded = ech_vocab_padded(m->vocab);
    const size_t units = (size_t)c->n_units;
    const size_t params = (size_t)(embedding.n + head.n) + (size_t)m->layers * (size_t)layer.n;
    ECH_TRY(ech_calloc(params, sizeof *c->param, &c->param));
    ECH_TRY(ech_calloc(units, sizeof *c->unit_elems, &c->unit_elems));
    ECH_TRY(ech_calloc(units, sizeof *c->unit_offset, &c->unit_offset));
    ECH_TRY(ech_calloc(units + 1, sizeof *c->unit_first, &c->unit_first));

    ECH_TRY(append_unit(c, m, 0, &embedding));
    for (int i = 1; i < c->n_units - 1; i++)
        ECH_TRY(append_unit(c, m, i, &layer));
    ECH_TRY(append_unit(c, m, c->n_units - 1, &head));
    ECH_CHECK(
        c->elems <= ECH_CANON_ELEMS_MAX, ECH_E_ILLEGAL,
        "model '%s': %lld elements of parameters, at most %lld: the bytes of their state leave "
        "64 bits",
        m->name, (long long)c->elems, (long long)ECH_CANON_ELEMS_MAX);
    return ECH_OK;
}

int64_t ech_vocab_padded(int64_t vocab)
{
    return ech_ceil_div(vocab, ECH_VOCAB_MULTIPLE) * ECH_VOCAB_MULTIPLE;
}

ech_status ech_canon_create(const ech_model *m, ech_canon *out)
{
    memset(out, 0, sizeof *out);
    ECH_CHECK(m->is_executable, ECH_E_UNSUPPORTED, "model '%s' cannot be run: %s", m->name,
              m->not_executable);
    const int64_t sizes[] = {m->layers,   m->hidden, m->heads, m->kv_heads,
                             m->head_dim, m->ffn,    m->vocab, m->context};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ECH_CHECK(sizes[i] > 0 && sizes[i] <= ECH_MODEL_SIZE_MAX, ECH_E_ILLEGAL,
                  "model '%s': a size is %lld, it must be 1 .. %lld", m->name, (long long)sizes[i],
                  (long long)ECH_MODEL_SIZE_MAX);
    ECH_CHECK(m->layers <= ECH_MODEL_LAYERS_MAX, ECH_E_ILLEGAL, "model '%s': %lld layers", m->name,
              (long long)m->layers);
    ECH_CHECK(m->heads % m->kv_heads == 0, ECH_E_ILLEGAL,
              "model '%s': %lld heads do not divide into %lld groups", m->name, (long long)m->heads,
              (long long)m->kv_heads);

    ech_canon c = {0};
    const ech_status st = build(m, &c);
    if (st < 0) {
        ech_canon_fini(&c);
        return st;
    }
    *out = c;
    return ECH_OK;
}

void ech_canon_fini(ech_canon *c)
{
    free(c->param);
    free(c->unit_elems);
    free(c->unit_offset);
    free(c->unit_first);
    memset(c, 0, sizeof *c);
}

ech_unit_kind ech_canon_unit_kind(const ech_canon *c, int unit)
{
    if (unit == 0)
        return ECH_UNIT_EMBEDDING;
    return unit == c->n_units - 1 ? ECH_UNIT_HEAD : ECH_UNIT_LAYER;
}

int ech_canon_first_unit(const ech_canon *c, ech_unit_kind kind)
{
    return kind == ECH_UNIT_HEAD ? c->n_units - 1 : (int)kind;
}

const ech_param *ech_canon_find(const ech_canon *c, ech_param_kind kind, int layer)
{
    const bool is_head = kind >= ECH_PARAM_FINAL_NORM;
    const int unit = layer >= 0
                         ? layer + 1
                         : ech_canon_first_unit(c, is_head ? ECH_UNIT_HEAD : ECH_UNIT_EMBEDDING);
    if (unit >= c->n_units)
        return NULL;
    for (int i = c->unit_first[unit]; i < c->unit_first[unit + 1]; i++)
        if (c->param[i].kind == kind && c->param[i].layer == layer)
            return &c->param[i];
    return NULL;
}
