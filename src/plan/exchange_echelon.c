/* Our own configuration (docs/config.md).  What the engine has not built yet can be said all the
 * same: `train` refuses it by name. */
#include "base/checked.h"
#include "layout/layout.h"
#include "plan/exchange_private.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- writing: the model --- */

static const char *yes_no(bool b)
{
    return b ? "true" : "false";
}

static void write_rope(const ech_rope *rope, ech_text *out)
{
    static const char *const kinds[] = {[ECH_ROPE_NONE] = "none",
                                        [ECH_ROPE_DEFAULT] = "default",
                                        [ECH_ROPE_LINEAR] = "linear",
                                        [ECH_ROPE_LLAMA3] = "llama3",
                                        [ECH_ROPE_OTHER] = "default"};
    if (rope->kind == ECH_ROPE_NONE) {
        ech_text_add(out, "  rope: none\n");
        return;
    }
    ech_text_add(out, "  rope:\n    kind: %s\n    theta: ", kinds[rope->kind]);
    ech_text_add_double(out, rope->theta);
    ech_text_add(out, "\n    layout: %s\n", rope->interleaved ? "interleaved" : "half");
    if (rope->partial != 1) {
        ech_text_add(out, "    partial: ");
        ech_text_add_double(out, rope->partial);
        ech_text_add(out, "\n");
    }
    if (rope->kind == ECH_ROPE_LINEAR || rope->kind == ECH_ROPE_LLAMA3) {
        ech_text_add(out, "    factor: ");
        ech_text_add_double(out, rope->factor);
        ech_text_add(out, "\n");
    }
    if (rope->kind == ECH_ROPE_LLAMA3)
        ech_text_add(out,
                     "    low_freq_factor: %g\n    high_freq_factor: %g\n"
                     "    original_context: %lld\n",
                     rope->low_freq_factor, rope->high_freq_factor,
                     (long long)rope->original_context);
}

static void write_sizes(const ech_model *m, ech_text *out)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"layers", m->layers},     {"hidden", m->hidden},     {"heads", m->heads},
                 {"kv_heads", m->kv_heads}, {"head_dim", m->head_dim}, {"ffn", m->ffn},
                 {"vocab", m->vocab},       {"context", m->context},   {"window", m->window}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        if (sizes[i].value > 0)
            ech_text_add(out, "  %s: %lld\n", sizes[i].key, (long long)sizes[i].value);
}

static void write_switches(const ech_model *m, ech_text *out)
{
    static const char *const acts[] = {[ECH_ACT_GELU_TANH] = "gelu_tanh",
                                       [ECH_ACT_GELU] = "gelu",
                                       [ECH_ACT_SWIGLU] = "swiglu",
                                       [ECH_ACT_GEGLU] = "geglu",
                                       [ECH_ACT_RELU] = "relu"};
    ech_text_add(out, "  norm: %s\n  act: %s\n", m->norm == ECH_NORM_RMS ? "rmsnorm" : "layernorm",
                 acts[m->act]);
    ech_text_add(out, "  tie_embeddings: %s\n  qkv_bias: %s\n  qk_norm: %s\n",
                 yes_no(m->tie_embeddings), yes_no(m->qkv_bias), yes_no(m->qk_norm));
    write_rope(&m->rope, out);
}

static void write_mla(const ech_mla *a, ech_text *out)
{
    if (a->kv_lora_rank > 0)
        ech_text_add(out,
                     "  mla: {q_lora_rank: %lld, kv_lora_rank: %lld, qk_nope_dim: %lld, "
                     "qk_rope_dim: %lld, v_dim: %lld}\n",
                     (long long)a->q_lora_rank, (long long)a->kv_lora_rank,
                     (long long)a->qk_nope_dim, (long long)a->qk_rope_dim, (long long)a->v_dim);
}

/* Experts of a model written out, and what a job adds to them in any case. */
static void write_moe(const ech_job *job, bool is_preset, ech_text *out)
{
    const ech_moe *moe = &job->model->moe;
    if (moe->experts == 0 || (is_preset && job->moe_capacity == 0))
        return;
    ech_text_add(out, "  moe:\n");
    if (!is_preset)
        ech_text_add(out,
                     "    experts: %lld\n    topk: %lld\n    expert_ffn: %lld\n"
                     "    shared_experts: %lld\n    shared_ffn: %lld\n    first_dense: %lld\n",
                     (long long)moe->experts, (long long)moe->topk, (long long)moe->expert_ffn,
                     (long long)moe->shared_experts, (long long)moe->shared_ffn,
                     (long long)moe->first_dense);
    if (job->moe_capacity > 0) {
        ech_text_add(out, "    mode: drop\n    capacity: ");
        ech_text_add_double(out, job->moe_capacity);
        ech_text_add(out, "\n");
    }
}

/* Is the model the preset or the file that its name says; a shape in words is neither. */
static bool has_name(const ech_model *m)
{
    ech_model named;
    const bool is_read = !strchr(m->name, '=') && ech_model_load(m->name, &named) == ECH_OK;
    ech_error_clear();
    return is_read && !ech_exchange_model_difference(m, &named);
}

static void write_model(const ech_job *job, ech_text *out)
{
    const ech_model *m = job->model;
    const bool is_preset = has_name(m);
    ech_text_add(out, "model:\n");
    if (is_preset) {
        const bool is_path = strchr(m->name, '/') || ech_has_suffix(m->name, ".json");
        ech_text_add(out, "  %s: ", is_path ? "hf" : "preset");
        ech_text_add_json_string(out, m->name, strlen(m->name));
        ech_text_add(out, "\n");
    } else {
        ech_text_add(out, "  arch: %s\n", m->arch == ECH_ARCH_GPT2 ? "gpt2" : "llama");
        write_sizes(m, out);
        write_switches(m, out);
        write_mla(&m->mla, out);
    }
    write_moe(job, is_preset, out);
}

/* --- writing: the layout --- */

static void write_zero(const ech_point *p, ech_text *out)
{
    if (p->zero_stage == 0)
        return;
    ech_text_add(out, "  zero:\n    stage: %d\n", p->zero_stage);
    if (p->zero_group > 0)
        ech_text_add(out, "    group: %d\n", p->zero_group);
    if (p->zero_stage == 3)
        ech_text_add(out, "    reshard_after_forward: %s\n", yes_no(p->reshard_after_forward));
    if (p->zero_stage >= 2)
        ech_text_add(out, "    reduce: %s\n", p->reduce_each ? "each" : "last");
}

static ech_status write_stages(const ech_job *job, const ech_point *p, ech_text *out)
{
    int *cut;
    int n;
    if (p->pp == 1)
        return ECH_OK;
    ech_text_add(out, "  schedule: %s\n", ech_schedule_name(p->schedule));
    if (p->schedule == ECH_SCHEDULE_INTERLEAVED)
        ech_text_add(out, "  virtual_stages: %d\n", p->vpp);
    if (p->split == ECH_SPLIT_BALANCED)
        return ECH_OK;
    ECH_TRY(ech_calloc(ECH_EXCHANGE_STAGES, sizeof *cut, &cut));
    const ech_status st = ech_exchange_cut(job, p, cut, &n);
    if (st == ECH_OK) {
        ech_text_add(out, "  stages: [");
        for (int i = 0; i < n; i++)
            ech_text_add(out, "%s%d", i ? ", " : "", cut[i]);
        ech_text_add(out, "]\n");
    }
    free(cut);
    return st;
}

/* Words of the configuration; other bits have none. */
static const struct {
    const char *word;
    uint32_t bit;
} recomputed[] = {{"norm", ECH_RECOMPUTE_NORM},
                  {"swiglu", ECH_RECOMPUTE_ACT},
                  {"attention", ECH_RECOMPUTE_ATTENTION},
                  {"moe", ECH_RECOMPUTE_MOE}};

static void write_recompute(const ech_point *p, ech_text *out)
{
    const char *between = "";
    if (!p->recompute)
        return;
    ech_text_add(out, "  recompute: ");
    if (p->recompute & ECH_RECOMPUTE_FULL) {
        if (p->recompute_layers > 0)
            ech_text_add(out, "first:%d\n", p->recompute_layers);
        else
            ech_text_add(out, "full\n");
        return;
    }
    for (size_t i = 0; i < COUNT(recomputed); i++)
        if (p->recompute & recomputed[i].bit) {
            ech_text_add(out, "%s%s", between, recomputed[i].word);
            between = ",";
        }
    ech_text_add(out, "%s\n", between[0] ? "" : "none");
}

static void write_offload(const ech_point *p, ech_text *out)
{
    const struct {
        const char *key;
        ech_offload where;
    } parts[] = {{"optimizer", p->offload_optimizer},
                 {"params", p->offload_params},
                 {"activations", p->offload_activations}};
    if (!p->offload_optimizer && !p->offload_params && !p->offload_activations)
        return;
    ech_text_add(out, "  offload:\n");
    for (size_t i = 0; i < COUNT(parts); i++)
        if (parts[i].where != ECH_OFFLOAD_NONE)
            ech_text_add(out, "    %s: %s\n", parts[i].key,
                         parts[i].where == ECH_OFFLOAD_NVME ? "nvme:spill" : "host");
}

static const char *const orders[ECH_N_ORDERS] = {[ECH_ORDER_TP_CP_DP_PP] = "tp-cp-ep-dp-pp",
                                                 [ECH_ORDER_TP_PP_DP] = "tp-cp-ep-pp-dp",
                                                 [ECH_ORDER_DP_TP_PP] = "dp-tp-cp-ep-pp"};

static ech_status write_layout(const ech_job *job, const ech_point *p, ech_text *out)
{
    ech_text_add(out, "layout:\n  tp: %d\n  pp: %d\n  cp: %d\n  dp: %d\n", p->tp, p->pp, p->cp,
                 p->dp);
    if (job->model->moe.experts > 0)
        ech_text_add(out, "  ep: %d\n  etp: %d\n", p->ep, p->etp);
    if (p->order != ECH_ORDER_TP_CP_DP_PP)
        ech_text_add(out, "  order: %s\n", orders[p->order]);
    if (p->sequence_parallel)
        ech_text_add(out, "  sequence_parallel: true\n");
    if (p->cp > 1)
        ech_text_add(out, "  cp_kind: %s\n", ech_cp_kind_name(p->cp_kind));
    write_zero(p, out);
    ECH_TRY(write_stages(job, p, out));
    write_recompute(p, out);
    write_offload(p, out);
    if (job->loss == ECH_LOSS_CHUNKED)
        ech_text_add(out, "  loss_chunk: %lld\n", (long long)job->loss_chunk);
    return ECH_OK;
}

static void write_precision(const ech_job *job, ech_text *out)
{
    const bool is_small =
        job->precision != ECH_PRECISION_FP32 && job->precision != ECH_PRECISION_TF32;
    const char *compute = job->precision == ECH_PRECISION_FP16  ? "fp16"
                          : job->precision == ECH_PRECISION_FP8 ? "fp8"
                          : is_small                            ? "bf16"
                                                                : "fp32";
    ech_text_add(out, "precision:\n  compute: %s\n", compute);
    if (is_small)
        ech_text_add(out, "  grads: %s\n  wire:\n    grads: %s\n",
                     job->grad_bytes == 2 ? "bf16" : "fp32",
                     job->wire_bytes == 2 ? "bf16" : "fp32");
}

static void write_optimizer(const ech_job *job, ech_text *out)
{
    const char *name =
        job->optimizer == ECH_OPTIMIZER_ADAMW_BF16 ? "adamw" : ech_optimizer_name(job->optimizer);
    ech_text_add(out, "optim:\n  name: %s\n", name);
    if (job->tokens > 0 && job->global_batch > 0 && job->seq > 0)
        ech_text_add(out, "train:\n  steps: %.0f\n",
                     job->tokens / ((double)job->global_batch * (double)job->seq));
}

ech_status ech_echelon_write(const ech_job *job, const ech_point *p, ech_text *out,
                             ech_findings *lost)
{
    (void)lost;
    ECH_CHECK(p->schedule != ECH_SCHEDULE_FILE, ECH_E_UNSUPPORTED,
              "echelon: a schedule from a table: its file has to be named by hand");
    ECH_CHECK(job->tuning == ECH_TUNING_FULL, ECH_E_UNSUPPORTED,
              "echelon: frozen weights and adapters have no key");
    write_model(job, out);
    ech_text_add(out, "batch:\n  global: %lld\n  micro: %d\n  seq: %lld\n",
                 (long long)job->global_batch, p->micro, (long long)job->seq);
    ECH_TRY(write_layout(job, p, out));
    write_precision(job, out);
    write_optimizer(job, out);
    return ECH_OK;
}

/* --- reading --- */

/* Keys of the sections that a layout is made of; a test holds them equal to the schema. */
static const char *const top_keys[] = {"model",     "data",   "batch", "layout",
                                       "precision", "optim",  "train", "checkpoint",
                                       "faults",    "memory", "comm",  "run"};
static const char *const batch_keys[] = {"global", "micro", "seq"};
static const char *const layout_keys[] = {"auto",
                                          "tp",
                                          "pp",
                                          "cp",
                                          "ep",
                                          "etp",
                                          "dp",
                                          "order",
                                          "sequence_parallel",
                                          "sequence_parallel_inputs",
                                          "zero",
                                          "schedule",
                                          "virtual_stages",
                                          "schedule_group",
                                          "stages",
                                          "cp_kind",
                                          "cp_ulysses",
                                          "zip",
                                          "recompute",
                                          "offload",
                                          "loss_chunk"};
static const char *const zero_keys[] = {
    "stage", "group", "prefetch", "bucket_mb", "reshard_after_forward", "reduce"};
static const char *const offload_keys[] = {"optimizer", "params", "activations"};
static const char *const precision_keys[] = {"compute", "grads", "wire", "fp8", "numerics"};
static const char *const wire_keys[] = {"grads", "tp"};
static const char *const optim_keys[] = {"name",         "lr",    "betas",    "eps",
                                         "weight_decay", "clip",  "schedule", "warmup_steps",
                                         "decay_steps",  "min_lr"};

/* A map with its keys checked; NULL: absent. */
static ech_key_reader inner(const ech_key_reader *top, const ech_exchange_source *src,
                            const char *name, const char *const *known, size_t n)
{
    const ech_node *map = NULL;
    (void)ech_key_tree(top, name, ECH_NODE_MAP, &map);
    if (map && n > 0) {
        const ech_key_reader told = {map, src->name, src->notes};
        ech_key_check_known(&told, known, n);
    }
    return (ech_key_reader){map, src->name, src->errors};
}

static const char *string_of(const ech_key_reader *r, const char *key, const char *usual)
{
    const ech_node *node = ech_key_find(r, key);
    return node && node->kind == ECH_NODE_STRING ? node->string : usual;
}

static bool is_auto(const ech_key_reader *r, const char *key)
{
    return strcmp(string_of(r, key, ""), "auto") == 0;
}

/* A whole number that may be "auto".  @return is it a number */
static bool read_size(const ech_key_reader *r, const char *key, int64_t *out)
{
    return !is_auto(r, key) && ech_key_int(r, ECH_KEYS(key), 1, out) == ECH_KEY_GOOD;
}

static ech_status read_model(const ech_key_reader *top, const ech_exchange_source *src,
                             ech_exchanged *into)
{
    const ech_node *node = ech_key_find(top, "model");
    const int before = src->errors->n;
    if (!node)
        return ECH_OK;
    ECH_TRY(ech_model_from_config(node, ".", src->errors, into->model));
    if (src->errors->n > before)
        return ECH_OK;
    into->has_model = true;
    into->job->model = into->model;
    const ech_key_reader model = {node, src->name, src->errors};
    const ech_key_reader moe = inner(&model, src, "moe", NULL, 0);
    into->job->moe_capacity = 0;
    if (strcmp(string_of(&moe, "mode", "dropless"), "drop") == 0)
        (void)ech_key_real(&moe, ECH_KEYS("capacity"), 0, 1e6, &into->job->moe_capacity);
    return ECH_OK;
}

static void read_mesh(const ech_key_reader *r, const ech_exchange_source *src, ech_exchanged *into)
{
    ech_point *p = into->point;
    const char *order = string_of(r, "order", ECH_ORDER_DEFAULT);
    int64_t dp = 0;
    ech_axis axes[4];
    ech_axis known[4];
    p->tp = p->pp = p->cp = p->ep = p->etp = 1;
    (void)ech_exchange_degree(r, "tp", 1, &p->tp);
    (void)ech_exchange_degree(r, "pp", 1, &p->pp);
    (void)ech_exchange_degree(r, "cp", 1, &p->cp);
    (void)ech_exchange_degree(r, "ep", 1, &p->ep);
    (void)ech_exchange_degree(r, "etp", 1, &p->etp);
    (void)read_size(r, "dp", &dp);
    ech_exchange_ranks(src, into, dp <= ECH_EXCHANGE_DEGREE_MAX ? dp : 0);
    p->order = ECH_N_ORDERS;
    for (int i = 0; ech_order_read(order, axes) && i < ECH_N_ORDERS; i++)
        if (ech_order_read(orders[i], known) && memcmp(axes, known, sizeof axes) == 0)
            p->order = (ech_order)i;
    if (p->order == ECH_N_ORDERS) {
        p->order = ECH_ORDER_TP_CP_DP_PP;
        ech_findings_add(src->notes, "%s: layout.order '%.40s' is taken as %s", src->name, order,
                         ECH_ORDER_DEFAULT);
    }
}

static void read_zero(const ech_key_reader *layout, const ech_exchange_source *src, ech_point *p)
{
    static const char *const reduces[] = {"last", "each"};
    const ech_key_reader r = inner(layout, src, "zero", zero_keys, COUNT(zero_keys));
    int reduce = 0;
    p->zero_stage = p->zero_group = 0;
    p->reshard_after_forward = true;
    if (ech_exchange_degree(&r, "stage", 0, &p->zero_stage) && p->zero_stage > 3) {
        ech_key_complain(&r, ech_key_find(&r, "stage"), "layout.zero.stage is %d, wanted 0 .. 3",
                         p->zero_stage);
        p->zero_stage = 0;
    }
    (void)ech_exchange_degree(&r, "group", 0, &p->zero_group);
    (void)ech_key_bool(&r, "reshard_after_forward", &p->reshard_after_forward);
    (void)ech_key_choice(&r, "reduce", reduces, COUNT(reduces), &reduce);
    p->reduce_each = reduce == 1;
}

static void read_list(const ech_node *list, const ech_exchange_source *src, ech_exchanged *into)
{
    ech_point *p = into->point;
    const int64_t want = ech_exchange_stages(p);
    const int64_t layers = into->job->model ? into->job->model->layers : 0;
    int64_t sum = 0;
    int n = 0;
    for (const ech_node *item = list->child; item && n < ECH_EXCHANGE_STAGES; item = item->next) {
        const bool is_good = item->kind == ECH_NODE_INT && item->integer >= 0 &&
                             item->integer <= ECH_MODEL_LAYERS_MAX;
        into->stage_layers[n] = is_good ? (int)item->integer : -1;
        sum += into->stage_layers[n++];
        if (!is_good)
            sum = -1;
    }
    if (list->n != want || sum < 0 || (layers > 0 && sum != layers)) {
        ech_findings_add(src->errors,
                         "%s: layout.stages: %lld numbers, wanted %lld stages that have "
                         "%lld layers together (line %d)",
                         src->name, (long long)list->n, (long long)want, (long long)layers,
                         list->line);
        return;
    }
    p->split = ECH_SPLIT_LIST;
    p->stage_layers = into->stage_layers;
}

static void read_stages(const ech_key_reader *r, const ech_exchange_source *src,
                        ech_exchanged *into)
{
    ech_point *p = into->point;
    const char *schedule = string_of(r, "schedule", "1f1b");
    const ech_node *list = NULL;
    int64_t group = 0;
    p->vpp = 1;
    p->split = ECH_SPLIT_BALANCED;
    p->stage_layers = NULL;
    p->schedule = ech_schedule_kind_of(schedule);
    if (p->schedule == ECH_SCHEDULE_FILE) {
        p->schedule = ECH_SCHEDULE_1F1B;
        ech_findings_add(src->notes, "%s: layout.schedule '%.60s' is a table: 1f1b is taken",
                         src->name, schedule);
    }
    (void)ech_exchange_degree(r, "virtual_stages", 1, &p->vpp);
    p->vpp = ech_schedule_chunks(p->schedule, p->vpp);
    if (ech_key_int(r, ECH_KEYS("schedule_group"), 0, &group) == ECH_KEY_GOOD && group > p->pp)
        ech_findings_add(src->notes, "%s: layout.schedule_group %lld is taken as pp %d", src->name,
                         (long long)group, p->pp);
    if (!is_auto(r, "stages") && ech_key_tree(r, "stages", ECH_NODE_LIST, &list) == ECH_KEY_GOOD &&
        p->pp > 1)
        read_list(list, src, into);
}

/* "every:3" and its like: the share that is recomputed, of a virtual stage's layers. */
static bool read_share(const char *words, const ech_exchange_source *src, ech_exchanged *into)
{
    ech_point *p = into->point;
    const int64_t layers = into->job->model ? into->job->model->layers : 0;
    const int64_t each = layers / ech_exchange_stages(p);
    const bool is_every = strncmp(words, "every:", 6) == 0;
    if (!is_every && strcmp(words, "sqrt") != 0 && strcmp(words, "auto") != 0 &&
        strncmp(words, "inflight:", 9) != 0)
        return false;
    const long n = is_every ? strtol(words + 6, NULL, 10) : 1;
    p->recompute = ECH_RECOMPUTE_FULL;
    if (n > 1 && each > 0)
        p->recompute_layers = (int32_t)((each + n - 1) / n);
    if (!is_every || (each > 0 && each % n != 0))
        ech_findings_add(src->notes, "%s: layout.recompute %.40s is taken as %s", src->name, words,
                         p->recompute_layers ? "as many layers of each stage" : "full");
    return true;
}

static void read_recompute(const ech_key_reader *r, const ech_exchange_source *src,
                           ech_exchanged *into)
{
    ech_point *p = into->point;
    const char *words = string_of(r, "recompute", "none");
    p->recompute = 0;
    p->recompute_layers = 0;
    if (read_share(words, src, into) ||
        ech_recompute_read(words, into->job, &p->recompute, &p->recompute_layers))
        return;
    ech_findings_add(src->errors,
                     "%s: layout.recompute '%.60s': wanted none, full, selective, "
                     "first:N, every:N or norm,swiglu,attention,moe",
                     src->name, words);
}

static ech_offload read_place(const ech_key_reader *r, const char *key)
{
    const char *word = string_of(r, key, "none");
    if (strncmp(word, "nvme", 4) == 0)
        return ECH_OFFLOAD_NVME;
    if (strcmp(word, "host") != 0 && strcmp(word, "none") != 0)
        ech_key_complain(r, ech_key_find(r, key),
                         "layout.offload.%s is '%.40s', wanted none, host or "
                         "nvme:DIR",
                         key, word);
    return strcmp(word, "host") == 0 ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
}

static void read_rest(const ech_key_reader *r, const ech_exchange_source *src, ech_exchanged *into)
{
    static const char *const kinds[] = {"ring", "gather", "ulysses", "usp"};
    ech_point *p = into->point;
    const ech_key_reader offload = inner(r, src, "offload", offload_keys, COUNT(offload_keys));
    int kind = 0;
    int64_t chunk = 0;
    p->sequence_parallel = false;
    (void)ech_key_bool(r, "sequence_parallel", &p->sequence_parallel);
    (void)ech_key_choice(r, "cp_kind", kinds, COUNT(kinds), &kind);
    p->cp_kind = (ech_cp_kind)kind;
    p->offload_optimizer = read_place(&offload, "optimizer");
    p->offload_params = read_place(&offload, "params");
    p->offload_activations = read_place(&offload, "activations");
    into->job->loss = ECH_LOSS_DEFAULT;
    if (read_size(r, "loss_chunk", &chunk)) {
        into->job->loss = ECH_LOSS_CHUNKED;
        into->job->loss_chunk = chunk;
    }
}

static int bytes_of(const ech_key_reader *r, const char *key, int usual)
{
    const char *word = string_of(r, key, "auto");
    return strcmp(word, "bf16") == 0 ? 2 : strcmp(word, "auto") == 0 ? usual : 4;
}

static void read_precision(const ech_key_reader *top, const ech_exchange_source *src, ech_job *job)
{
    static const char *const words[] = {"fp32", "bf16", "fp16", "fp8", "fp64"};
    static const ech_precision kinds[] = {ECH_PRECISION_FP32, ECH_PRECISION_BF16,
                                          ECH_PRECISION_FP16, ECH_PRECISION_FP8,
                                          ECH_PRECISION_FP32};
    const ech_key_reader r = inner(top, src, "precision", precision_keys, COUNT(precision_keys));
    const ech_key_reader wire = inner(&r, src, "wire", wire_keys, COUNT(wire_keys));
    int choice = 0;
    (void)ech_key_choice(&r, "compute", words, COUNT(words), &choice);
    job->precision = kinds[choice];
    job->has_master = job->precision != ECH_PRECISION_FP32;
    job->grad_bytes = bytes_of(&r, "grads", 4);
    job->wire_bytes = bytes_of(&wire, "grads", job->grad_bytes);
    if (choice == 4)
        ech_findings_add(src->notes, "%s: precision.compute fp64 is priced as fp32", src->name);
}

static void read_optimizer(const ech_key_reader *top, const ech_exchange_source *src, ech_job *job)
{
    const ech_key_reader r = inner(top, src, "optim", optim_keys, COUNT(optim_keys));
    const char *name = string_of(&r, "name", "adamw");
    if (!ech_optimizer_read(name, &job->optimizer))
        ech_key_complain(&r, ech_key_find(&r, "name"),
                         "optim.name is '%.40s', wanted adamw, sgd, muon or adam8bit", name);
}

static void read_batch(const ech_key_reader *top, const ech_exchange_source *src,
                       ech_exchanged *into)
{
    const ech_key_reader r = inner(top, src, "batch", batch_keys, COUNT(batch_keys));
    const ech_key_reader train = inner(top, src, "train", NULL, 0);
    ech_job *job = into->job;
    int64_t steps = 0;
    into->point->micro = 1;
    (void)ech_exchange_degree(&r, "micro", 1, &into->point->micro);
    if (!read_size(&r, "global", &job->global_batch))
        job->global_batch = (int64_t)into->point->micro * into->point->dp;
    if (!read_size(&r, "seq", &job->seq) && job->model)
        job->seq = job->model->context;
    if (ech_key_int(&train, ECH_KEYS("steps"), 1, &steps) == ECH_KEY_GOOD)
        job->tokens = (double)steps * (double)job->global_batch * (double)job->seq;
}

static ech_status read_all(const ech_node *root, const ech_exchange_source *src,
                           ech_exchanged *into)
{
    const ech_key_reader top = {root, src->name, src->errors};
    const ech_key_reader told = {root, src->name, src->notes};
    ech_key_check_known(&told, top_keys, COUNT(top_keys));
    ech_exchange_check_any(src, root, top_keys, COUNT(top_keys), "Echelon's");
    ech_exchange_be(into, ECH_SYSTEM_ECHELON);
    into->job->tuning = ECH_TUNING_FULL;
    ECH_TRY(read_model(&top, src, into));
    const ech_node *layout_node = ech_key_find(&top, "layout");
    const bool is_map = layout_node && layout_node->kind == ECH_NODE_MAP;
    const ech_key_reader none = {NULL, src->name, src->errors};
    const ech_key_reader r =
        is_map ? inner(&top, src, "layout", layout_keys, COUNT(layout_keys)) : none;
    bool is_chosen = is_auto(&top, "layout");
    (void)ech_key_bool(&r, "auto", &is_chosen);
    if (is_chosen)
        ech_findings_add(src->notes,
                         "%s: the layout is chosen when the run starts: what is written is "
                         "taken for it",
                         src->name);
    read_mesh(&r, src, into);
    read_zero(&r, src, into->point);
    read_stages(&r, src, into);
    read_recompute(&r, src, into);
    read_rest(&r, src, into);
    read_precision(&top, src, into->job);
    read_optimizer(&top, src, into->job);
    read_batch(&top, src, into);
    return ECH_OK;
}

ech_status ech_echelon_read(const ech_exchange_source *src, ech_exchanged *into)
{
    ech_node *root = NULL;
    ech_status st = ECH_OK;
    ECH_TRY(ech_node_parse_yaml(src->text, src->bytes, src->name, &root));
    if (root->kind == ECH_NODE_MAP)
        st = read_all(root, src, into);
    else
        ech_findings_add(src->errors, "%s: %s, wanted a map of a configuration's sections",
                         src->name, ech_node_kind_name(root->kind));
    ech_node_destroy(&root);
    return st;
}
