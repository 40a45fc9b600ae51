/* What two layouts differ in: one table of all fields, so that a writer cannot lose one silently. */
#include "plan/exchange_private.h"
#include "base/checked.h"

#include "program/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How a field is kept and named. */
typedef enum field_kind {
    FIELD_I32,
    FIELD_I64,
    FIELD_INT,
    FIELD_BOOL,
    FIELD_REAL,
    FIELD_ENUM
} field_kind;

typedef struct field {
    const char *what;
    field_kind kind;
    bool is_job;
    size_t offset;
    const char *(*name)(int value); /* ENUM */
} field;

static const char *system_name(int v)
{
    return ech_system_name((ech_system)v);
}
static const char *precision_name(int v)
{
    return ech_precision_name((ech_precision)v);
}
static const char *optimizer_name(int v)
{
    return ech_optimizer_name((ech_optimizer)v);
}
static const char *schedule_name(int v)
{
    return ech_schedule_name((ech_schedule_kind)v);
}
static const char *cp_name(int v)
{
    return ech_cp_kind_name((ech_cp_kind)v);
}
static const char *order_name(int v)
{
    return ech_order_name((ech_order)v);
}
static const char *offload_name(int v)
{
    return ech_offload_name((ech_offload)v);
}

static const char *tuning_name(int v)
{
    static const char *const names[] = {"full", "frozen", "lora"};
    return names[v];
}

static const char *loss_name(int v)
{
    static const char *const names[] = {"default", "fused", "eager", "chunked"};
    return names[v];
}

#define JOB(what, kind, member, name)                                                              \
    {                                                                                              \
        what, kind, true, offsetof(ech_job, member), name                                          \
    }
#define POINT(what, kind, member, name)                                                            \
    {                                                                                              \
        what, kind, false, offsetof(ech_point, member), name                                       \
    }

/* Not here: the model (compared as a whole), the cluster, and what is no layout but an assumption of
 * the prediction: generation, grouped and paged optimizer steps, balance of experts. */
static const field fields[] = {
    JOB("system", FIELD_ENUM, system, system_name),
    JOB("ranks", FIELD_I64, gpus, NULL),
    JOB("seq", FIELD_I64, seq, NULL),
    JOB("global batch", FIELD_I64, global_batch, NULL),
    JOB("precision", FIELD_ENUM, precision, precision_name),
    JOB("compiled", FIELD_BOOL, is_compiled, NULL),
    JOB("fp32 master weights", FIELD_BOOL, has_master, NULL),
    JOB("bytes of a gradient", FIELD_INT, grad_bytes, NULL),
    JOB("bytes of a gradient on the wire", FIELD_INT, wire_bytes, NULL),
    JOB("optimizer", FIELD_ENUM, optimizer, optimizer_name),
    JOB("tuning", FIELD_ENUM, tuning, tuning_name),
    JOB("lora rank", FIELD_I64, lora_rank, NULL),
    JOB("frozen layers", FIELD_I64, frozen_layers, NULL),
    JOB("bits of frozen weights", FIELD_INT, base_bits, NULL),
    JOB("loss", FIELD_ENUM, loss, loss_name),
    JOB("loss chunk", FIELD_I64, loss_chunk, NULL),
    JOB("expert capacity", FIELD_REAL, moe_capacity, NULL),
    POINT("tp", FIELD_I32, tp, NULL),
    POINT("pp", FIELD_I32, pp, NULL),
    POINT("vpp", FIELD_I32, vpp, NULL),
    POINT("dp", FIELD_I32, dp, NULL),
    POINT("cp", FIELD_I32, cp, NULL),
    POINT("ep", FIELD_I32, ep, NULL),
    POINT("etp", FIELD_I32, etp, NULL),
    POINT("zero stage", FIELD_I32, zero_stage, NULL),
    POINT("zero group", FIELD_I32, zero_group, NULL),
    POINT("micro-batch", FIELD_I32, micro, NULL),
    POINT("recomputed layers", FIELD_I32, recompute_layers, NULL),
    POINT("schedule", FIELD_ENUM, schedule, schedule_name),
    POINT("cp kind", FIELD_ENUM, cp_kind, cp_name),
    POINT("order", FIELD_ENUM, order, order_name),
    POINT("offload of the optimizer", FIELD_ENUM, offload_optimizer, offload_name),
    POINT("offload of parameters", FIELD_ENUM, offload_params, offload_name),
    POINT("offload of activations", FIELD_ENUM, offload_activations, offload_name),
    POINT("sequence parallel", FIELD_BOOL, sequence_parallel, NULL),
    POINT("reshard after forward", FIELD_BOOL, reshard_after_forward, NULL),
    POINT("reduce every micro-batch", FIELD_BOOL, reduce_each, NULL),
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static double value_of(const field *f, const ech_job *job, const ech_point *p)
{
    const char *at = (f->is_job ? (const char *)job : (const char *)p) + f->offset;
    int32_t i32;
    int64_t i64;
    int i;
    bool b;
    double d;
    switch (f->kind) {
    case FIELD_I32:
        memcpy(&i32, at, sizeof i32);
        return i32;
    case FIELD_I64:
        memcpy(&i64, at, sizeof i64);
        return (double)i64;
    case FIELD_BOOL:
        memcpy(&b, at, sizeof b);
        return b;
    case FIELD_REAL:
        memcpy(&d, at, sizeof d);
        return d;
    case FIELD_INT:
    case FIELD_ENUM:
        break;
    }
    memcpy(&i, at, sizeof i);
    return i;
}

/* --- models --- */

static bool is_gelu(ech_act a)
{
    return a == ECH_ACT_GELU || a == ECH_ACT_GELU_TANH;
}

static bool same_experts(const ech_moe *a, const ech_moe *b)
{
    return a->experts == b->experts &&
           (a->experts == 0 || (a->topk == b->topk && a->expert_ffn == b->expert_ffn &&
                                a->shared_ffn == b->shared_ffn));
}

static bool has_dense_layer(const ech_model *m)
{
    for (int64_t i = 0; i < m->layers; i++)
        if (!ech_model_is_sparse(m, i))
            return true;
    return false;
}

static bool same_sparse_layers(const ech_model *a, const ech_model *b)
{
    for (int64_t i = 0; a->moe.experts > 0 && i < a->layers; i++)
        if (ech_model_is_sparse(a, i) != ech_model_is_sparse(b, i))
            return false;
    return true;
}

static bool same_moe_switches(const ech_moe *a, const ech_moe *b)
{
    return a->experts == 0 ||
           (a->shared_gate == b->shared_gate && a->router_bias == b->router_bias &&
            a->expert_bias == b->expert_bias);
}

static bool same_heads(const ech_model *a, const ech_model *b)
{
    const ech_mla *x = &a->mla;
    const ech_mla *y = &b->mla;
    if (x->kv_lora_rank != y->kv_lora_rank || a->heads != b->heads)
        return false;
    if (x->kv_lora_rank > 0)
        return x->q_lora_rank == y->q_lora_rank && x->qk_nope_dim == y->qk_nope_dim &&
               x->qk_rope_dim == y->qk_rope_dim && x->v_dim == y->v_dim;
    return a->kv_heads == b->kv_heads && a->head_dim == b->head_dim;
}

static bool same_positions(const ech_model *a, const ech_model *b)
{
    const ech_rope *x = &a->rope;
    const ech_rope *y = &b->rope;
    if (a->learned_positions != b->learned_positions || x->kind != y->kind ||
        a->alibi != b->alibi || a->position_extra != b->position_extra)
        return false;
    return x->kind == ECH_ROPE_NONE || x->kind == ECH_ROPE_OTHER ||
           (x->theta == y->theta && x->partial == y->partial && x->interleaved == y->interleaved &&
            (x->kind == ECH_ROPE_DEFAULT || x->factor == y->factor));
}

const char *ech_exchange_model_difference(const ech_model *a, const ech_model *b)
{
    const bool same_ffn = a->ffn == b->ffn || !has_dense_layer(a);
    const bool same_size = a->layers == b->layers && a->hidden == b->hidden && same_ffn &&
                           a->vocab == b->vocab && a->context == b->context &&
                           a->embed_dim == b->embed_dim;
    const bool same_norms = a->norm == b->norm && a->norm_bias == b->norm_bias &&
                            a->parallel_norms == b->parallel_norms &&
                            a->post_norms == b->post_norms && a->qk_norm == b->qk_norm &&
                            a->embed_norm == b->embed_norm && a->no_final_norm == b->no_final_norm;
    const bool same_biases = a->qkv_bias == b->qkv_bias && a->out_bias == b->out_bias &&
                             a->mlp_bias == b->mlp_bias && a->head_bias == b->head_bias;
    const struct {
        bool is_same;
        const char *what;
    } parts[] = {
        {same_size, "sizes"},
        {same_heads(a, b), "attention heads"},
        {same_experts(&a->moe, &b->moe), "experts"},
        {same_sparse_layers(a, b), "layers with experts"},
        {a->tie_embeddings == b->tie_embeddings, "tied embeddings"},
        {same_norms, "norms"},
        {same_biases, "biases"},
        {a->act == b->act || (is_gelu(a->act) && is_gelu(b->act)), "activations"},
        {a->window == b->window && a->window_layers == b->window_layers, "attention windows"},
        {a->sinks == b->sinks, "attention sinks"},
        {same_moe_switches(&a->moe, &b->moe), "the router's biases and gates"},
        {same_positions(a, b), "positions"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].is_same)
            return parts[i].what;
    return NULL;
}

/* --- layouts --- */

int64_t ech_exchange_stages(const ech_point *p)
{
    return p->pp == 1 ? 1 : (int64_t)p->pp * ech_schedule_chunks(p->schedule, p->vpp);
}

/* What means nothing under this layout has one value. */
static void normalise(ech_job *job, ech_point *p)
{
    const bool is_dense = job->model->moe.experts == 0;
    if (p->pp == 1 || (p->schedule == ECH_SCHEDULE_INTERLEAVED && p->vpp == 1))
        p->schedule = ECH_SCHEDULE_1F1B;
    p->vpp = p->pp == 1 ? 1 : ech_schedule_chunks(p->schedule, p->vpp);
    if (is_dense)
        p->ep = p->etp = 1;
    if (is_dense)
        job->moe_capacity = 0;
    if (p->cp == 1)
        p->cp_kind = ECH_CP_RING;
    if (p->tp == 1)
        p->sequence_parallel = false;
    if ((int64_t)p->dp * p->cp == 1) /* nobody to share state with */
        p->zero_stage = 0;
    if (job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32)
        job->has_master = false; /* the weights are their own */
    if (p->zero_group == (int64_t)p->dp * p->cp || p->zero_stage == 0)
        p->zero_group = 0;
    if (p->zero_stage < 3)
        p->reshard_after_forward = true;
    if (p->zero_stage < 2 || ech_point_micros(job, p) == 1)
        p->reduce_each = false;
    if (p->recompute & ECH_RECOMPUTE_FULL)
        p->recompute = ECH_RECOMPUTE_FULL;
    else
        p->recompute_layers = 0;
    if ((int64_t)p->dp * p->tp * p->cp == 1 || p->pp == 1)
        p->order = p->order == ECH_ORDER_TP_PP_DP ? ECH_ORDER_TP_CP_DP_PP : p->order;
    if (job->loss != ECH_LOSS_CHUNKED)
        job->loss_chunk = 0;
    if (job->tuning == ECH_TUNING_FULL)
        job->lora_rank = job->frozen_layers = job->base_bits = 0;
}

static void print_value(const field *f, double value, ech_text *out)
{
    if (f->kind == FIELD_ENUM)
        ech_text_add(out, "%s", f->name((int)value));
    else if (f->kind == FIELD_BOOL)
        ech_text_add(out, "%s", value != 0 ? "yes" : "no");
    else
        ech_text_add_double(out, value);
}

static void add_lost(ech_format format, const field *f, double wanted, double got,
                     ech_findings *lost)
{
    ech_text a = {0};
    ech_text b = {0};
    print_value(f, wanted, &a);
    print_value(f, got, &b);
    /* Numbers that every job has are 0 where nothing was said (ech_format_emit). */
    if (got == 0 && f->kind != FIELD_BOOL && f->kind != FIELD_ENUM)
        ech_findings_add(lost,
                         "%s: %s %s is not in it: the format has no word for it, or it is "
                         "said elsewhere",
                         ech_format_name(format), f->what, ech_text_get(&a));
    else
        ech_findings_add(lost, "%s: %s is %s here and would be %s there", ech_format_name(format),
                         f->what, ech_text_get(&a), ech_text_get(&b));
    ech_text_fini(&b);
    ech_text_fini(&a);
}

static void compare_recompute(ech_format f, const ech_point *a, const ech_point *b,
                              ech_findings *lost)
{
    ech_text is = {0};
    ech_text would = {0};
    if (a->recompute != b->recompute) {
        ech_recompute_print(a->recompute, a->recompute_layers, &is);
        ech_recompute_print(b->recompute, b->recompute_layers, &would);
        ech_findings_add(lost, "%s: recomputation is %s here and would be %s there",
                         ech_format_name(f), ech_text_get(&is), ech_text_get(&would));
    }
    ech_text_fini(&would);
    ech_text_fini(&is);
}

static void print_layers(const int *layers, int n, ech_text *out)
{
    for (int i = 0; i < n; i++)
        ech_text_add(out, "%s%d", i ? "," : "", layers[i]);
}

/* Layers of the stages, however their cut is named. */
static ech_status compare_cut(ech_format f, const ech_job *job, const ech_point *a,
                              const ech_exchanged *back, ech_findings *lost)
{
    const int64_t stages = ech_exchange_stages(a);
    int *layers;
    int n;
    int m;
    if (stages == 1 || stages != ech_exchange_stages(back->point) || stages > ECH_EXCHANGE_STAGES)
        return ECH_OK;
    ECH_TRY(ech_calloc(2 * ECH_EXCHANGE_STAGES, sizeof *layers, &layers));
    int *there = layers + ECH_EXCHANGE_STAGES;
    ech_job seen = *back->job; /* costs of units are the job's: its sequence may not be said */
    seen.seq = job->seq;
    seen.model = job->model;
    ech_status st = ech_exchange_cut(job, a, layers, &n);
    if (st == ECH_OK)
        st = ech_exchange_cut(&seen, back->point, there, &m);
    if (st == ECH_OK && (n != m || memcmp(layers, there, (size_t)n * sizeof *layers) != 0)) {
        ech_text is = {0};
        ech_text would = {0};
        print_layers(layers, n, &is);
        print_layers(there, m, &would);
        ech_findings_add(lost, "%s: stages have %s layers here and would have %s there",
                         ech_format_name(f), ech_text_get(&is), ech_text_get(&would));
        ech_text_fini(&would);
        ech_text_fini(&is);
    }
    free(layers);
    return st;
}

ech_status ech_exchange_compare(ech_format format, const ech_job *job, const ech_point *point,
                                const ech_exchanged *back, ech_findings *lost)
{
    ech_job j = *job;
    ech_job k = *back->job;
    ech_point p = *point;
    ech_point q = *back->point;
    normalise(&j, &p);
    normalise(&k, &q);
    for (int i = 0; i < N_FIELDS; i++) {
        const double wanted = value_of(&fields[i], &j, &p);
        const double got = value_of(&fields[i], &k, &q);
        if (!(wanted == got))
            add_lost(format, &fields[i], wanted, got, lost);
    }
    compare_recompute(format, &p, &q, lost);
    /* A length of the run is rounded to whole steps. */
    if (fabs(j.tokens - k.tokens) > (double)j.global_batch * (double)j.seq)
        ech_findings_add(lost, "%s: %g tokens are not in it", ech_format_name(format), j.tokens);
    const char *other =
        back->has_model ? ech_exchange_model_difference(j.model, back->model) : NULL;
    if (other)
        ech_findings_add(lost, "%s: the model %s is not all in it: %s would be others there",
                         ech_format_name(format), j.model->name, other);
    return compare_cut(format, job, point, back, lost);
}
