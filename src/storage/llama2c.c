#include "storage/llama2c.h"

#include "base/checked.h"
#include "base/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_INTS = 7,
    HEADER_BYTES = HEADER_INTS * 4,
    NEW_FORMAT_MAGIC = 0x616b3432 /* "ak42": versions 1 and 2 begin so */
};

/* The seven numbers. */
typedef struct header {
    int64_t dim, hidden, layers, heads, kv_heads, vocab, context;
    bool is_tied;
} header;

/* Arrays of the file in their order, as elements from the first float. */
typedef enum section {
    TOKEN_EMBED,
    ATTN_NORM,
    WQ,
    WK,
    WV,
    WO,
    FFN_NORM,
    W1,
    W2,
    W3,
    FINAL_NORM,
    ROPE_COS,
    ROPE_SIN,
    CLASSIFIER,
    N_SECTIONS
} section;

typedef struct layout {
    int64_t start[N_SECTIONS + 1];
} layout;

static ech_status read_numbers(const ech_file *f, header *h)
{
    int32_t n[HEADER_INTS];

    ECH_CHECK(ech_file_bytes(f) >= HEADER_BYTES, ECH_E_CORRUPT,
              "%s: %lld bytes, a llama2.c header has %d", ech_file_path(f),
              (long long)ech_file_bytes(f), (int)HEADER_BYTES);
    ECH_TRY(ech_file_read_at(f, n, sizeof n, 0));
    ECH_CHECK(n[0] != NEW_FORMAT_MAGIC, ECH_E_UNSUPPORTED,
              "%s: llama2.c's export version %d; only the legacy layout (version 0) is read",
              ech_file_path(f), n[1]);
    *h = (header){n[0], n[1], n[2], n[3], n[4], n[5] < 0 ? -(int64_t)n[5] : n[5], n[6], n[5] >= 0};
    return ECH_OK;
}

/* All that is wrong, at once. */
static ech_status check_numbers(const char *path, const header *h)
{
    const struct {
        const char *name;
        int64_t value;
    } size[] = {{"dim", h->dim},        {"hidden_dim", h->hidden},   {"n_layers", h->layers},
                {"n_heads", h->heads},  {"n_kv_heads", h->kv_heads}, {"vocab_size", h->vocab},
                {"seq_len", h->context}};
    ech_findings f = {0};

    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].value <= 0)
            ech_findings_add(&f, "%s: %s is %lld, a size must be positive", path, size[i].name,
                             (long long)size[i].value);
    if (f.n == 0 && h->dim % h->heads != 0)
        ech_findings_add(&f, "%s: dim %lld does not divide into %lld heads", path,
                         (long long)h->dim, (long long)h->heads);
    else if (f.n == 0 && h->dim / h->heads % 2 != 0)
        ech_findings_add(&f, "%s: head size %lld is odd, rotary pairs need an even one", path,
                         (long long)(h->dim / h->heads));
    if (f.n == 0 && h->heads % h->kv_heads != 0)
        ech_findings_add(&f, "%s: %lld heads do not divide into %lld groups", path,
                         (long long)h->heads, (long long)h->kv_heads);
    const ech_status st = ech_findings_raise(&f, ECH_E_CORRUPT);
    ech_findings_fini(&f);
    return st;
}

/* Elements of a section: a x b x c. */
static ech_status add_section(layout *l, section s, int64_t a, int64_t b, int64_t c)
{
    int64_t elems = 0;

    ECH_TRY(ech_mul_i64(a, b, &elems));
    ECH_TRY(ech_mul_i64(elems, c, &elems));
    return ech_add_i64(l->start[s], elems, &l->start[s + 1]);
}

static ech_status make_layout(const header *h, layout *l)
{
    const int64_t d = h->dim;
    const int64_t kv = h->kv_heads * (h->dim / h->heads);
    const int64_t half = h->dim / h->heads / 2;

    *l = (layout){0};
    ECH_TRY(add_section(l, TOKEN_EMBED, h->vocab, d, 1));
    ECH_TRY(add_section(l, ATTN_NORM, h->layers, d, 1));
    ECH_TRY(add_section(l, WQ, h->layers, d, d));
    ECH_TRY(add_section(l, WK, h->layers, kv, d));
    ECH_TRY(add_section(l, WV, h->layers, kv, d));
    ECH_TRY(add_section(l, WO, h->layers, d, d));
    ECH_TRY(add_section(l, FFN_NORM, h->layers, d, 1));
    ECH_TRY(add_section(l, W1, h->layers, h->hidden, d));
    ECH_TRY(add_section(l, W2, h->layers, d, h->hidden));
    ECH_TRY(add_section(l, W3, h->layers, h->hidden, d));
    ECH_TRY(add_section(l, FINAL_NORM, d, 1, 1));
    ECH_TRY(add_section(l, ROPE_COS, h->context, half, 1));
    ECH_TRY(add_section(l, ROPE_SIN, h->context, half, 1));
    return add_section(l, CLASSIFIER, h->is_tied ? 0 : h->vocab, d, 1);
}

/* Header and layout of an open file: its length must be exactly what the header asks for. */
static ech_status read_header(const ech_file *f, header *h, layout *l)
{
    int64_t bytes = 0;

    ECH_TRY(read_numbers(f, h));
    ECH_TRY(check_numbers(ech_file_path(f), h));
    ech_status st = make_layout(h, l);
    if (st == ECH_OK)
        st = ech_mul_i64(l->start[N_SECTIONS], 4, &bytes);
    if (st == ECH_OK)
        st = ech_add_i64(bytes, HEADER_BYTES, &bytes);
    ECH_CHECK(st == ECH_OK && bytes == ech_file_bytes(f), ECH_E_CORRUPT,
              "%s: %lld bytes, its header asks for %s%lld", ech_file_path(f),
              (long long)ech_file_bytes(f), st == ECH_OK ? "" : "more than ",
              st == ECH_OK ? (long long)bytes : (long long)INT64_MAX);
    return ECH_OK;
}

static void fill_model(const char *path, const header *h, ech_model *m)
{
    *m = ech_model_default(ECH_ARCH_LLAMA);
    (void)snprintf(m->name, sizeof m->name, "%s", path);
    (void)snprintf(m->family, sizeof m->family, "llama");
    m->layers = h->layers;
    m->hidden = h->dim;
    m->heads = h->heads;
    m->kv_heads = h->kv_heads;
    m->head_dim = h->dim / h->heads;
    m->ffn = h->hidden;
    m->vocab = h->vocab;
    m->context = h->context;
    m->tie_embeddings = h->is_tied;
    m->norm_eps = 1e-5;
    m->rope.theta = 10000.0;
}

ech_status ech_llama2c_model(const char *path, ech_model *out)
{
    ech_file *f = NULL;
    header h;
    layout l;

    ECH_TRY(ech_file_open(path, &f));
    const ech_status st = read_header(f, &h, &l);
    ech_file_close(&f);
    ECH_TRY(st);
    fill_model(path, &h, out);
    return ECH_OK;
}

void ech_rotary_to_half_split(const float *in, int64_t head_dim, int64_t cols, float *out)
{
    const int64_t half = head_dim / 2;

    for (int64_t s = 0; s < 2; s++)
        for (int64_t i = 0; i < half; i++)
            memcpy(out + (s * half + i) * cols, in + (2 * i + s) * cols,
                   (size_t)cols * sizeof *out);
}

/* --- weights --- */

/* What reading needs at hand. */
typedef struct reader {
    const ech_file *f;
    header h;
    layout l;
    const ech_canon *c;
    void *const *param;
    float *head; /* owned, [head_dim, dim]: one head before its rows are permuted */
} reader;

static float *values_of(const reader *r, ech_param_kind kind, int layer)
{
    const ech_param *p = ech_canon_find(r->c, kind, layer);

    ECH_ASSERT(p);
    return r->param[p - r->c->param];
}

/* n floats of a section, from element `first` of it. */
static ech_status read_floats(const reader *r, section s, int64_t first, int64_t n, float *out)
{
    const int64_t at = r->l.start[s] + first;

    ECH_ASSERT(at + n <= r->l.start[s + 1]);
    return ech_file_read_at(r->f, out, (size_t)n * sizeof *out, HEADER_BYTES + 4 * at);
}

/* One layer's share of a section, which the canonical tensor holds as it is. */
static ech_status read_layer(const reader *r, section s, int layer, float *out)
{
    const int64_t n = (r->l.start[s + 1] - r->l.start[s]) / r->h.layers;

    return read_floats(r, s, layer * n, n, out);
}

/* One head of wq or wk into out, its rows from interleaved to half-split order. */
static ech_status read_rotary_head(const reader *r, section s, int64_t head, float *out)
{
    const int64_t d = r->h.dim / r->h.heads;
    const int64_t n = d * r->h.dim;

    ECH_TRY(read_floats(r, s, head * n, n, r->head));
    ech_rotary_to_half_split(r->head, d, r->h.dim, out);
    return ECH_OK;
}

/* Head groups: query heads, key, value of each group follow one another. */
static ech_status read_qkv(const reader *r, int layer)
{
    const int64_t ratio = r->h.heads / r->h.kv_heads;
    const int64_t n = r->h.dim / r->h.heads * r->h.dim; /* elements of a head */
    float *out = values_of(r, ECH_PARAM_QKV, layer);

    for (int64_t g = 0; g < r->h.kv_heads; g++) {
        const int64_t kv = layer * r->h.kv_heads + g;
        for (int64_t q = 0; q < ratio; q++, out += n)
            ECH_TRY(read_rotary_head(r, WQ, kv * ratio + q, out));
        ECH_TRY(read_rotary_head(r, WK, kv, out));
        ECH_TRY(read_floats(r, WV, kv * n, n, out + n));
        out += 2 * n;
    }
    return ECH_OK;
}

static ech_status read_one_layer(const reader *r, int layer)
{
    float *gate_up = values_of(r, ECH_PARAM_GATE_UP, layer);

    ECH_TRY(read_layer(r, ATTN_NORM, layer, values_of(r, ECH_PARAM_ATTN_NORM, layer)));
    ECH_TRY(read_qkv(r, layer));
    ECH_TRY(read_layer(r, WO, layer, values_of(r, ECH_PARAM_ATTN_OUT, layer)));
    ECH_TRY(read_layer(r, FFN_NORM, layer, values_of(r, ECH_PARAM_MLP_NORM, layer)));
    ECH_TRY(read_layer(r, W1, layer, gate_up));                          /* gate */
    ECH_TRY(read_layer(r, W3, layer, gate_up + r->h.hidden * r->h.dim)); /* up */
    return read_layer(r, W2, layer, values_of(r, ECH_PARAM_DOWN, layer));
}

static ech_status read_all(const reader *r)
{
    const int64_t table = r->h.vocab * r->h.dim;

    for (int i = 0; i < r->c->n_params; i++) /* the padding */
        memset(r->param[i], 0, (size_t)r->c->param[i].elems * sizeof(float));
    ECH_TRY(read_floats(r, TOKEN_EMBED, 0, table, values_of(r, ECH_PARAM_TOKEN_EMBED, -1)));
    for (int layer = 0; layer < r->h.layers; layer++)
        ECH_TRY(read_one_layer(r, layer));
    ECH_TRY(read_floats(r, FINAL_NORM, 0, r->h.dim, values_of(r, ECH_PARAM_FINAL_NORM, -1)));
    if (r->h.is_tied)
        return ECH_OK;
    return read_floats(r, CLASSIFIER, 0, table, values_of(r, ECH_PARAM_HEAD, -1));
}

ech_status ech_llama2c_read(const char *path, const ech_model *m, const ech_canon *c,
                            void *const *param)
{
    reader r = {.c = c, .param = param};
    ech_file *f = NULL;
    ech_status st;

    ECH_TRY_GOTO(st, ech_file_open(path, &f), end);
    ECH_TRY_GOTO(st, read_header(f, &r.h, &r.l), end);
    r.f = f;
    if (r.h.dim != m->hidden || r.h.layers != m->layers || r.h.vocab != m->vocab ||
        r.h.heads != m->heads || r.h.kv_heads != m->kv_heads || r.h.hidden != m->ffn ||
        r.h.is_tied != m->tie_embeddings) {
        st = ECH_RAISE(ECH_E_CORRUPT, "%s: changed since its header was read", path);
        goto end;
    }
    ECH_TRY_GOTO(st, ech_calloc((size_t)(r.h.dim / r.h.heads * r.h.dim), sizeof *r.head, &r.head),
                 end);
    ECH_TRY_GOTO(st, read_all(&r), end);
end:
    free(r.head);
    ech_file_close(&f);
    return st;
}
