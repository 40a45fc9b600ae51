/* torchtitan's TOML.  Keys, defaults and meanings: torchtitan/config/job_config.py of 0.2.2, the last
 * line of versions that reads TOML; distributed/pipeline_parallel.py and activation_checkpoint.py. */
#include "base/checked.h"
#include "plan/exchange_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Selective recomputation per operator keeps every second product of matrices; what is not one is
 * computed again. */
static const uint32_t per_op = ECH_RECOMPUTE_OPS;

/* Model names and flavours that are presets here (torchtitan/models). */
static const struct {
    const char *name, *flavor, *preset;
} flavors[] = {
    {"llama3", "8B", "llama-3.1-8b"},
    {"llama3", "70B", "llama-3.1-70b"},
    {"llama3", "405B", "llama-3.1-405b"},
    {"deepseek_v3", "671B", "deepseek-v3"},
    {"deepseek_v3", "236B", "deepseek-v2"},
    {"deepseek_v3", "16B", "deepseek-v2-lite"},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "32B", "qwen3-32b"},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
};

/* --- writing --- */

static void write_model(const ech_job *job, ech_text *out, ech_findings *lost)
{
    const char *name = NULL;
    const char *flavor = NULL;
    for (size_t i = 0; i < COUNT(flavors); i++)
        if (strcmp(flavors[i].preset, job->model->name) == 0) {
            name = flavors[i].name;
            flavor = flavors[i].flavor;
        }
    ech_text_add(out, "[model]\n");
    if (name)
        ech_text_add(out, "name = \"%s\"\nflavor = \"%s\"\n", name, flavor);
    else
        ech_findings_add(lost,
                         "torchtitan: model %s has no name and flavor there: register a spec for "
                         "it and name it in [model]",
                         job->model->name);
    if (job->precision == ECH_PRECISION_FP8)
        ech_text_add(out, "converters = [\"float8\"]\n");
    else if (job->precision == ECH_PRECISION_MXFP8)
        ech_text_add(out, "converters = [\"mx\"]\n");
}

static void write_batch(const ech_job *job, const ech_point *p, ech_text *out)
{
    const int64_t micros = ech_point_micros(job, p);
    /* Under a pipeline its micro-batches are cut from the local batch, else accumulated over. */
    const int64_t local = p->pp > 1 && micros > 0 ? p->micro * micros : p->micro;
    const bool is_full =
        job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32;
    ech_text_add(out,
                 "\n[training]\nlocal_batch_size = %lld\nglobal_batch_size = %lld\n"
                 "seq_len = %lld\n",
                 (long long)local, (long long)job->global_batch, (long long)job->seq);
    if (job->tokens > 0 && job->seq > 0 && job->global_batch > 0)
        ech_text_add(out, "steps = %.0f\n",
                     job->tokens / ((double)job->seq * (double)job->global_batch));
    ech_text_add(out, "mixed_precision_param = \"%s\"\nmixed_precision_reduce = \"float32\"\n",
                 is_full ? "float32" : "bfloat16");
    if (p->offload_params == ECH_OFFLOAD_HOST && p->offload_optimizer == ECH_OFFLOAD_HOST)
        ech_text_add(out, "enable_cpu_offload = true\n");
}

static const char *const schedules[] = {[ECH_SCHEDULE_1F1B] = "1F1B",
                                        [ECH_SCHEDULE_GPIPE] = "GPipe",
                                        [ECH_SCHEDULE_INTERLEAVED] = "Interleaved1F1B",
                                        [ECH_SCHEDULE_ZB_H1] = NULL,
                                        [ECH_SCHEDULE_ZB_V] = "ZBVZeroBubble"};

/* Modules of each stage by name. */
static void write_modules(const int *layers, int stages, ech_text *out)
{
    int at = 0;
    ech_text_add(out, "module_fqns_per_model_part = [\n");
    for (int k = 0; k < stages; k++) {
        const char *between = "";
        ech_text_add(out, "    [");
        if (k == 0) {
            ech_text_add(out, "\"tok_embeddings\"");
            between = ", ";
        }
        for (int i = 0; i < layers[k]; i++, between = ", ")
            ech_text_add(out, "%s\"layers.%d\"", between, at++);
        if (k == stages - 1)
            ech_text_add(out, "%s\"norm\", \"output\"", between);
        ech_text_add(out, "],\n");
    }
    ech_text_add(out, "]\n");
}

/* Layers of a stage under torchtitan's rule: embedding and head count as so many layers, what does
 * not divide goes to the first stages. */
static int ruled(int64_t layers, int first_less, int last_less, int stages, int k)
{
    const int64_t all = layers + first_less + last_less;
    const int64_t n = all / stages + (k < all % stages);
    return (int)(n - (k == 0 ? first_less : 0) - (k == stages - 1 ? last_less : 0));
}

static bool is_ruled(const int *cut, int stages, int64_t layers, int less)
{
    for (int k = 0; k < stages; k++)
        if (cut[k] != ruled(layers, less, less, stages, k))
            return false;
    return true;
}

/* The keys by which torchtitan's rule makes this cut; nothing where no key does. */
static bool write_rule(const ech_point *p, const int *cut, int stages, int64_t layers,
                       ech_text *out)
{
    const bool is_looped =
        p->schedule == ECH_SCHEDULE_INTERLEAVED || p->schedule == ECH_SCHEDULE_ZB_V;
    const int less = is_ruled(cut, stages, layers, 0) ? 0 : 1;
    const int64_t all = layers + 2 * less;
    const int64_t each = (all + stages - 1) / stages;
    const bool is_usual = stages == p->pp * (is_looped ? 2 : 1); /* without a word */
    const bool makes_it = (all + each - 1) / each == stages;
    if (!is_ruled(cut, stages, layers, less) || (!is_usual && !makes_it))
        return false;
    ech_text_add(out,
                 "pipeline_parallel_first_stage_less_layers = %d\n"
                 "pipeline_parallel_last_stage_less_layers = %d\n",
                 less, less);
    if (makes_it)
        ech_text_add(out, "pipeline_parallel_layers_per_stage = %lld\n", (long long)each);
    return true;
}

static ech_status write_stages(const ech_job *job, const ech_point *p, ech_text *out)
{
    int *cut;
    int n;
    ECH_TRY(ech_calloc(ECH_EXCHANGE_STAGES, sizeof *cut, &cut));
    const ech_status st = ech_exchange_cut(job, p, cut, &n);
    if (st == ECH_OK && !write_rule(p, cut, n, job->model->layers, out))
        write_modules(cut, n, out);
    free(cut);
    return st;
}

/* Ranks of one copy of the state, of dp alone: fully_shard runs over dp_shard x cp. */
static int32_t shard_degree(const ech_point *p)
{
    if (p->zero_stage < 3)
        return 1;
    return p->zero_group > 0 ? p->zero_group / p->cp : p->dp;
}

static ech_status write_parallelism(const ech_job *job, const ech_point *p, ech_text *out)
{
    const int32_t shard = shard_degree(p);
    ech_text_add(out,
                 "\n[parallelism]\ndata_parallel_replicate_degree = %d\n"
                 "data_parallel_shard_degree = %d\n",
                 p->dp / shard, shard);
    ech_text_add(out, "fsdp_reshard_after_forward = \"%s\"\n",
                 p->reshard_after_forward ? "always" : "never");
    ech_text_add(out, "tensor_parallel_degree = %d\n", p->tp);
    ech_text_add(out, "pipeline_parallel_degree = %d\n", p->pp);
    if (p->pp > 1) {
        ech_text_add(out,
                     "pipeline_parallel_schedule = \"%s\"\n"
                     "pipeline_parallel_microbatch_size = %d\n",
                     schedules[p->schedule], p->micro);
        ECH_TRY(write_stages(job, p, out));
    }
    ech_text_add(out, "context_parallel_degree = %d\n", p->cp);
    if (p->cp > 1)
        ech_text_add(out, "context_parallel_rotate_method = \"%s\"\n",
                     p->cp_kind == ECH_CP_GATHER ? "allgather" : "alltoall");
    if (job->model->moe.experts > 0)
        ech_text_add(out, "expert_parallel_degree = %d\nexpert_tensor_parallel_degree = %d\n",
                     p->ep, p->etp);
    return ECH_OK;
}

/* Layers of a virtual stage where they are all alike; 0: they are not. */
static int64_t stage_layers(const ech_job *job, const ech_point *p)
{
    const int64_t n = ech_exchange_stages(p);
    const int64_t layers = job->model ? job->model->layers : 0;
    return layers > 0 && layers % n == 0 ? layers / n : 0;
}

static void write_recompute(const ech_job *job, const ech_point *p, ech_text *out)
{
    const int64_t layers = stage_layers(job, p);
    ech_text_add(out, "\n[activation_checkpoint]\n");
    if (!p->recompute)
        ech_text_add(out, "mode = \"none\"\n");
    else if (!(p->recompute & ECH_RECOMPUTE_FULL))
        ech_text_add(out, "mode = \"selective\"\nselective_ac_option = \"op\"\n");
    else if (p->recompute_layers > 0 && layers > 0 && layers % p->recompute_layers == 0)
        ech_text_add(out, "mode = \"selective\"\nselective_ac_option = \"%lld\"\n",
                     (long long)(layers / p->recompute_layers));
    else
        ech_text_add(out, "mode = \"full\"\n");
}

static void write_rest(const ech_job *job, ech_text *out)
{
    if (job->is_compiled)
        ech_text_add(out, "\n[compile]\nenable = true\ncomponents = [\"model\", \"loss\"]\n");
    if (job->precision == ECH_PRECISION_FP8)
        ech_text_add(out, "\n[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\n"
                          "precompute_float8_dynamic_scale_for_fsdp = true\n"
                          "filter_fqns = [\"output\"]\n");
    if (job->precision == ECH_PRECISION_MXFP8)
        ech_text_add(out, "\n[quantize.linear.mx]\nrecipe_name = \"mxfp8_cublas\"\n");
}

static ech_status refuse(const ech_job *job, const ech_point *p)
{
    ECH_CHECK(p->zero_stage == 0 || p->zero_stage == 3, ECH_E_UNSUPPORTED,
              "torchtitan: zero stage %d: fully_shard is stage 3, replicas are 0 (--zero 3)",
              p->zero_stage);
    ECH_CHECK(p->zero_stage == 3 || p->cp == 1, ECH_E_UNSUPPORTED,
              "torchtitan: cp %d without sharding: fully_shard always runs over cp", p->cp);
    ECH_CHECK(p->pp == 1 || ((size_t)p->schedule < COUNT(schedules) && schedules[p->schedule]),
              ECH_E_UNSUPPORTED, "torchtitan: schedule %s: it has 1f1b, gpipe, interleaved, zb-v",
              ech_schedule_name(p->schedule));
    ECH_CHECK(p->zero_group == 0 || p->zero_group % p->cp == 0, ECH_E_UNSUPPORTED,
              "torchtitan: zero group %d is no multiple of cp %d, over which it always shards",
              p->zero_group, p->cp);
    ECH_CHECK(job->tuning == ECH_TUNING_FULL, ECH_E_UNSUPPORTED,
              "torchtitan: frozen weights and adapters have no key");
    ECH_CHECK(job->precision != ECH_PRECISION_FP16 && job->precision != ECH_PRECISION_NVFP4,
              ECH_E_UNSUPPORTED, "torchtitan: precision %s: it has bf16, fp8, mxfp8 and fp32",
              ech_precision_name(job->precision));
    ECH_CHECK(job->optimizer == ECH_OPTIMIZER_ADAMW, ECH_E_UNSUPPORTED,
              "torchtitan: optimizer %s: it has AdamW", ech_optimizer_name(job->optimizer));
    return ECH_OK;
}

ech_status ech_torchtitan_write(const ech_job *job, const ech_point *p, ech_text *out,
                                ech_findings *lost)
{
    ECH_TRY(refuse(job, p));
    write_model(job, out, lost);
    write_batch(job, p, out);
    ECH_TRY(write_parallelism(job, p, out));
    write_recompute(job, p, out);
    write_rest(job, out);
    return ECH_OK;
}

/* --- reading --- */

static const char *const sections[] = {"job",
                                       "profiling",
                                       "metrics",
                                       "model",
                                       "optimizer",
                                       "lr_scheduler",
                                       "training",
                                       "parallelism",
                                       "checkpoint",
                                       "activation_checkpoint",
                                       "compile",
                                       "quantize",
                                       "comm",
                                       "memory_estimation",
                                       "fault_tolerance",
                                       "experimental",
                                       "validation",
                                       "debug"};
static const char *const training_keys[] = {"dataset",
                                            "dataset_path",
                                            "local_batch_size",
                                            "global_batch_size",
                                            "seq_len",
                                            "max_norm",
                                            "steps",
                                            "enable_cpu_offload",
                                            "dtype",
                                            "mixed_precision_param",
                                            "mixed_precision_reduce",
                                            "gc_freq",
                                            "gc_debug",
                                            "dataloader",
                                            "seed",
                                            "deterministic"};
static const char *const parallelism_keys[] = {"data_parallel_replicate_degree",
                                               "data_parallel_shard_degree",
                                               "fsdp_reshard_after_forward",
                                               "tensor_parallel_degree",
                                               "disable_loss_parallel",
                                               "enable_async_tensor_parallel",
                                               "pipeline_parallel_degree",
                                               "module_fqns_per_model_part",
                                               "pipeline_parallel_first_stage_less_layers",
                                               "pipeline_parallel_last_stage_less_layers",
                                               "pipeline_parallel_layers_per_stage",
                                               "pipeline_parallel_schedule",
                                               "pipeline_parallel_schedule_csv",
                                               "pipeline_parallel_microbatch_size",
                                               "pipeline_parallel_expert_parallel_overlap",
                                               "context_parallel_degree",
                                               "context_parallel_load_balancer",
                                               "context_parallel_rotate_method",
                                               "expert_parallel_degree",
                                               "expert_tensor_parallel_degree",
                                               "expert_parallel_comm_backend"};
static const char *const recompute_keys[] = {"mode",
                                             "selective_ac_option",
                                             "per_op_sac_force_recompute_mm_shapes_by_fqns",
                                             "early_stop",
                                             "memory_budget",
                                             "visualize_memory_budget_pareto",
                                             "preserve_rng_state",
                                             "determinism_check",
                                             "debug"};

/* A section, with its keys checked; its map is NULL where it is not there: every key is absent. */
static ech_key_reader section(const ech_node *root, const ech_exchange_source *src,
                              const char *name, const char *const *known, size_t n)
{
    const ech_key_reader top = {root, src->name, src->errors};
    const ech_node *map = NULL;
    (void)ech_key_tree(&top, name, ECH_NODE_MAP, &map);
    if (map && n > 0) {
        const ech_key_reader told = {map, src->name, src->notes};
        ech_key_check_known(&told, known, n);
    }
    return (ech_key_reader){map, src->name, src->errors};
}

static bool is_string(const ech_key_reader *r, const char *key, const char *value)
{
    const ech_node *node = ech_key_find(r, key);
    return node && node->kind == ECH_NODE_STRING && strcmp(node->string, value) == 0;
}

static ech_status read_model(const ech_node *root, const ech_exchange_source *src,
                             ech_exchanged *into)
{
    const ech_key_reader r = section(root, src, "model", NULL, 0);
    const char *name = "llama3";
    const char *flavor = "debugmodel";
    const ech_node *list = NULL;
    into->has_model = false;
    (void)ech_key_string(&r, ECH_KEYS("name"), &name);
    (void)ech_key_string(&r, ECH_KEYS("flavor"), &flavor);
    for (size_t i = 0; i < COUNT(flavors); i++)
        if (strcmp(flavors[i].name, name) == 0 && strcmp(flavors[i].flavor, flavor) == 0) {
            ECH_TRY(ech_model_load(flavors[i].preset, into->model));
            into->has_model = true;
            into->job->model = into->model;
        }
    if (!into->has_model && r.map && ech_key_find(&r, "flavor"))
        ech_findings_add(src->notes,
                         "%s: model %s %s is not known here: it has to be named beside "
                         "the file",
                         src->name, name, flavor);
    into->job->precision = ECH_PRECISION_BF16;
    if (ech_key_tree(&r, "converters", ECH_NODE_LIST, &list) == ECH_KEY_GOOD)
        for (const ech_node *item = list->child; item; item = item->next) {
            const char *word = item->kind == ECH_NODE_STRING ? item->string : "";
            if (strstr(word, "float8"))
                into->job->precision = ECH_PRECISION_FP8;
            else if (strstr(word, "mx"))
                into->job->precision = ECH_PRECISION_MXFP8;
            else
                ech_findings_add(src->notes, "%s: converter '%.40s' is not known", src->name, word);
        }
    return ECH_OK;
}

/* Batch sizes before they are related to the layout. */
typedef struct titan_batch {
    int64_t local, all, micro, steps;
} titan_batch;

static titan_batch read_training(const ech_node *root, const ech_exchange_source *src,
                                 ech_exchanged *into)
{
    const ech_key_reader r = section(root, src, "training", training_keys, COUNT(training_keys));
    ech_job *job = into->job;
    titan_batch b = {.local = 8, .all = -1, .micro = 1, .steps = 0};
    bool is_offloaded = false;
    job->seq = 2048;
    (void)ech_key_int(&r, ECH_KEYS("local_batch_size"), 1, &b.local);
    (void)ech_key_int(&r, ECH_KEYS("global_batch_size"), -1, &b.all);
    (void)ech_key_int(&r, ECH_KEYS("seq_len"), 1, &job->seq);
    (void)ech_key_int(&r, ECH_KEYS("steps"), 1, &b.steps);
    (void)ech_key_bool(&r, "enable_cpu_offload", &is_offloaded);
    into->point->offload_optimizer = into->point->offload_params =
        is_offloaded ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
    into->point->offload_activations = ECH_OFFLOAD_NONE;
    if (is_string(&r, "mixed_precision_param", "float32"))
        job->precision = ECH_PRECISION_FP32;
    if (is_string(&r, "dtype", "bfloat16")) { /* all state in 16 bits */
        job->grad_bytes = 2;
        job->optimizer = ECH_OPTIMIZER_ADAMW_BF16;
        ech_findings_add(src->notes,
                         "%s: training.dtype bfloat16: weights, gradients and moments are "
                         "taken to be of 16 bits",
                         src->name);
    }
    return b;
}

static void read_schedule(const ech_key_reader *r, const ech_exchange_source *src, ech_point *p)
{
    const char *word = "1F1B";
    const ech_node *csv = ech_key_find(r, "pipeline_parallel_schedule_csv");
    bool is_known = false;
    p->schedule = ECH_SCHEDULE_1F1B;
    (void)ech_key_string(r, ECH_KEYS("pipeline_parallel_schedule"), &word);
    for (size_t i = 0; i < COUNT(schedules) && !is_known; i++)
        if (schedules[i] && strcasecmp(schedules[i], word) == 0) {
            p->schedule = (ech_schedule_kind)i;
            is_known = true;
        }
    if (csv && csv->kind == ECH_NODE_STRING && csv->string[0] != '\0') {
        is_known = false;
        word = csv->string;
        p->schedule = ECH_SCHEDULE_1F1B;
    }
    if (p->pp > 1 && !is_known)
        ech_findings_add(src->notes, "%s: pipeline schedule %.60s is not known: 1F1B is taken",
                         src->name, word);
}

/* Names of modules: "layers.12" is a layer, everything else none. */
static void read_modules(const ech_node *list, const ech_exchange_source *src, ech_exchanged *into,
                         int *stages)
{
    int n = 0;
    for (const ech_node *part = list->child; part; part = part->next) {
        if (n == ECH_EXCHANGE_STAGES || part->kind != ECH_NODE_LIST) {
            ech_findings_add(src->errors,
                             "%s: module_fqns_per_model_part: wanted a list of at most "
                             "%d lists of names",
                             src->name, ECH_EXCHANGE_STAGES);
            return;
        }
        int layers = 0;
        for (const ech_node *item = part->child; item; item = item->next)
            layers += item->kind == ECH_NODE_STRING && strncmp(item->string, "layers.", 7) == 0;
        into->stage_layers[n++] = layers;
    }
    *stages = n;
}

/* torchtitan's rule, as a list where it is neither even nor one of ends. */
static void rule_stages(int64_t layers, int first, int last, int stages, ech_exchanged *into)
{
    ech_point *p = into->point;
    if (first == last && first <= 1 && (layers + 2 * first) % stages == 0) {
        p->split = first ? ECH_SPLIT_ENDS : ECH_SPLIT_EVEN;
        return;
    }
    for (int k = 0; k < stages; k++)
        into->stage_layers[k] = ruled(layers, first, last, stages, k);
    p->split = ECH_SPLIT_LIST;
    p->stage_layers = into->stage_layers;
}

static void check_list(const ech_exchange_source *src, const ech_exchanged *into, int stages,
                       int64_t layers)
{
    int64_t sum = 0;
    bool is_negative = false;
    for (int k = 0; k < stages; k++) {
        sum += into->stage_layers[k];
        is_negative = is_negative || into->stage_layers[k] < 0;
    }
    if (is_negative || (layers > 0 && sum != layers))
        ech_findings_add(src->errors, "%s: %d pipeline stages have %lld layers, the model has %lld",
                         src->name, stages, (long long)sum, (long long)layers);
}

static void read_stages(const ech_key_reader *r, const ech_exchange_source *src,
                        ech_exchanged *into)
{
    ech_point *p = into->point;
    const int64_t layers = into->job->model ? into->job->model->layers : 0;
    const bool is_looped =
        p->schedule == ECH_SCHEDULE_INTERLEAVED || p->schedule == ECH_SCHEDULE_ZB_V;
    int32_t first = 1;
    int32_t last = 1;
    int64_t each = 0;
    int64_t stages = (int64_t)p->pp * (is_looped ? 2 : 1);
    int listed = 0;
    const ech_node *list = NULL;
    p->split = ECH_SPLIT_ENDS;
    p->stage_layers = NULL;
    (void)ech_exchange_degree(r, "pipeline_parallel_first_stage_less_layers", 0, &first);
    (void)ech_exchange_degree(r, "pipeline_parallel_last_stage_less_layers", 0, &last);
    (void)ech_key_int(r, ECH_KEYS("pipeline_parallel_layers_per_stage"), 1, &each);
    if (ech_key_tree(r, "module_fqns_per_model_part", ECH_NODE_LIST, &list) == ECH_KEY_GOOD)
        read_modules(list, src, into, &listed);
    if (listed > 0)
        stages = listed;
    else if (each > 0 && layers > 0)
        stages = (layers + first + last + each - 1) / each;
    if (stages % p->pp != 0 || stages > ECH_EXCHANGE_STAGES) {
        ech_findings_add(src->errors,
                         "%s: %lld stages are no multiple of "
                         "pipeline_parallel_degree %d (at most %d)",
                         src->name, (long long)stages, p->pp, ECH_EXCHANGE_STAGES);
        return;
    }
    p->vpp = (int32_t)(stages / p->pp);
    if (listed > 0) {
        p->split = ECH_SPLIT_LIST;
        p->stage_layers = into->stage_layers;
    } else if (layers > 0) {
        rule_stages(layers, first, last, (int)stages, into);
    }
    if (p->split == ECH_SPLIT_LIST)
        check_list(src, into, (int)stages, layers);
}

static void read_mesh(const ech_key_reader *r, const ech_exchange_source *src, ech_exchanged *into)
{
    ech_point *p = into->point;
    int32_t replicas = 1;
    int64_t shard = -1;
    p->tp = p->pp = p->cp = p->ep = p->etp = 1;
    (void)ech_exchange_degree(r, "tensor_parallel_degree", 1, &p->tp);
    (void)ech_exchange_degree(r, "pipeline_parallel_degree", 1, &p->pp);
    (void)ech_exchange_degree(r, "context_parallel_degree", 1, &p->cp);
    (void)ech_exchange_degree(r, "expert_parallel_degree", 1, &p->ep);
    (void)ech_exchange_degree(r, "expert_tensor_parallel_degree", 1, &p->etp);
    (void)ech_exchange_degree(r, "data_parallel_replicate_degree", 1, &replicas);
    (void)ech_key_int(r, ECH_KEYS("data_parallel_shard_degree"), -1, &shard);
    if (shard > ECH_EXCHANGE_DEGREE_MAX || shard == 0)
        ech_findings_add(src->errors, "%s: data_parallel_shard_degree %lld: wanted -1 or 1 .. %d",
                         src->name, (long long)shard, ECH_EXCHANGE_DEGREE_MAX);
    ech_exchange_ranks(
        src, into, shard > 0 && shard * replicas <= ECH_EXCHANGE_DEGREE_MAX ? shard * replicas : 0);
    if (shard < 0 && p->dp % replicas != 0)
        ech_findings_add(src->errors, "%s: data_parallel_replicate_degree %d does not divide dp %d",
                         src->name, replicas, p->dp);
    const int32_t group = p->dp / replicas * p->cp;
    p->zero_stage = group > 1 ? 3 : 0;
    p->zero_group = replicas > 1 && p->zero_stage == 3 ? group : 0;
    p->sequence_parallel = p->tp > 1; /* its tensor parallelism always is */
    p->order = ECH_ORDER_TP_CP_DP_PP;
    p->cp_kind =
        is_string(r, "context_parallel_rotate_method", "alltoall") ? ECH_CP_RING : ECH_CP_GATHER;
    /* "default": always but under a pipeline, where weights would be gathered for each micro-batch. */
    p->reshard_after_forward = is_string(r, "fsdp_reshard_after_forward", "always") ||
                               (!is_string(r, "fsdp_reshard_after_forward", "never") && p->pp == 1);
}

static void read_recompute(const ech_node *root, const ech_exchange_source *src,
                           ech_exchanged *into)
{
    const ech_key_reader r =
        section(root, src, "activation_checkpoint", recompute_keys, COUNT(recompute_keys));
    ech_point *p = into->point;
    const int64_t layers = stage_layers(into->job, p);
    const char *mode = "selective";
    const char *option = "2";
    (void)ech_key_string(&r, ECH_KEYS("mode"), &mode);
    (void)ech_key_string(&r, ECH_KEYS("selective_ac_option"), &option);
    p->recompute_layers = 0;
    p->recompute = 0;
    if (strcmp(mode, "none") == 0)
        return;
    if (strcmp(mode, "full") == 0) {
        p->recompute = ECH_RECOMPUTE_FULL;
        return;
    }
    if (strcmp(mode, "selective") != 0) {
        ech_findings_add(src->notes, "%s: activation_checkpoint.mode '%.40s' is taken as none",
                         src->name, mode);
        return;
    }
    const long every = strtol(option, NULL, 10);
    if (strcmp(option, "op") == 0) {
        p->recompute = per_op;
        return;
    }
    p->recompute = ECH_RECOMPUTE_FULL;
    if (every < 0 || every > ECH_MODEL_LAYERS_MAX || (every == 0 && option[0] != '0')) {
        ech_findings_add(src->errors,
                         "%s: selective_ac_option '%.40s': wanted 'op' or a number of "
                         "layers",
                         src->name, option);
    } else if (every > 1 && layers > 0) {
        p->recompute_layers = (int32_t)((layers + every - 1) / every);
        if (layers % every != 0)
            ech_findings_add(src->notes, "%s: every %ld-th of %lld layers is taken as %d of them",
                             src->name, every, (long long)layers, p->recompute_layers);
    } else if (every > 1) {
        ech_findings_add(src->notes,
                         "%s: selective_ac_option %ld: all layers are taken, as the model "
                         "or its stages are not known to divide",
                         src->name, every);
    }
}

static void finish_batch(const ech_exchange_source *src, const titan_batch *b, ech_exchanged *into)
{
    ech_point *p = into->point;
    ech_job *job = into->job;
    job->global_batch = b->all > 0 ? b->all : b->local * p->dp;
    const int64_t micro = p->pp > 1 ? b->micro : b->local;
    if (micro > ECH_EXCHANGE_DEGREE_MAX || b->local % micro != 0) {
        ech_findings_add(src->errors,
                         "%s: local_batch_size %lld is no multiple of "
                         "pipeline_parallel_microbatch_size %lld",
                         src->name, (long long)b->local, (long long)micro);
        return;
    }
    p->micro = (int32_t)micro;
    if (b->steps > 0)
        job->tokens = (double)b->steps * (double)job->global_batch * (double)job->seq;
    /* A pipeline is filled and drained once for each local batch. */
    if (p->pp > 1 && job->global_batch > b->local * p->dp)
        ech_findings_add(src->notes,
                         "%s: %lld local batches are accumulated: the pipeline is taken "
                         "to run them through at once",
                         src->name, (long long)(job->global_batch / (b->local * p->dp)));
}

static ech_status read_all(const ech_node *root, const ech_exchange_source *src,
                           ech_exchanged *into)
{
    const ech_key_reader told = {root, src->name, src->notes};
    ech_job *job = into->job;
    ech_key_check_known(&told, sections, COUNT(sections));
    ech_exchange_check_any(src, root, sections, COUNT(sections), "torchtitan's");
    ech_exchange_be(into, ECH_SYSTEM_TORCHTITAN);
    job->tuning = ECH_TUNING_FULL;
    job->loss = ECH_LOSS_DEFAULT;
    job->optimizer = ECH_OPTIMIZER_ADAMW;
    ECH_TRY(read_model(root, src, into));
    titan_batch b = read_training(root, src, into);
    const ech_key_reader r =
        section(root, src, "parallelism", parallelism_keys, COUNT(parallelism_keys));
    (void)ech_key_int(&r, ECH_KEYS("pipeline_parallel_microbatch_size"), 1, &b.micro);
    read_mesh(&r, src, into);
    read_schedule(&r, src, into->point);
    into->point->vpp = 1;
    into->point->split = ECH_SPLIT_BALANCED;
    if (into->point->pp > 1)
        read_stages(&r, src, into);
    read_recompute(root, src, into);
    finish_batch(src, &b, into);
    into->point->reduce_each = into->point->pp == 1 && into->point->zero_stage == 3;
    const ech_key_reader compile = section(root, src, "compile", NULL, 0);
    job->is_compiled = false;
    (void)ech_key_bool(&compile, "enable", &job->is_compiled);
    return ECH_OK;
}

ech_status ech_torchtitan_read(const ech_exchange_source *src, ech_exchanged *into)
{
    ech_node *root = NULL;
    ECH_TRY(ech_node_parse_toml(src->text, src->bytes, src->name, &root));
    const ech_status st = read_all(root, src, into);
    ech_node_destroy(&root);
    return st;
}
