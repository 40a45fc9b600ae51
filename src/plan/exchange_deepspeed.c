/* DeepSpeed's JSON.  Keys, defaults and meanings: deepspeed/runtime/config.py, constants.py and
 * zero/config.py, DeepSpeed 0.19.  The model, the sequence's length and pipelines are the training
 * script's, not the JSON's. */
#include "plan/exchange_private.h"

#include <string.h>
#include <strings.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Defaults of zero_optimization that cost memory. */
enum {
    BUCKET_ELEMS = 500000000, /* reduce_bucket_size, allgather_bucket_size */
    LIVE_ELEMS = 1000000000,  /* stage3_max_live_parameters */
    PARAM_BUFFERS = 5,        /* offload_param.buffer_count */
    OPTIMIZER_BUFFERS = 4,    /* offload_optimizer.buffer_count */
    BUFFER_ELEMS = 100000000  /* offload_param.buffer_size */
};

/* --- writing --- */

/* Members of a map, one a line, with commas between. */
typedef struct json_lines {
    ech_text *out;
    int indent;
    bool has_any;
} json_lines;

static void begin_member(json_lines *j, const char *key)
{
    ech_text_add(j->out, "%s%*s\"%s\": ", j->has_any ? ",\n" : "", j->indent, "", key);
    j->has_any = true;
}

static void add_int(json_lines *j, const char *key, int64_t value)
{
    begin_member(j, key);
    ech_text_add(j->out, "%lld", (long long)value);
}

static void add_bool(json_lines *j, const char *key, bool value)
{
    begin_member(j, key);
    ech_text_add(j->out, "%s", value ? "true" : "false");
}

static void add_word(json_lines *j, const char *key, const char *value)
{
    begin_member(j, key);
    ech_text_add_json_string(j->out, value, strlen(value));
}

static json_lines open_map(json_lines *j, const char *key)
{
    begin_member(j, key);
    ech_text_add(j->out, "{\n");
    return (json_lines){j->out, j->indent + 2, false};
}

static void close_map(json_lines *inner)
{
    ech_text_add(inner->out, "\n%*s}", inner->indent - 2, "");
}

static void write_batch(const ech_job *job, const ech_point *p, json_lines *j)
{
    const int64_t micros = ech_point_micros(job, p);
    add_int(j, "train_batch_size", job->global_batch);
    add_int(j, "train_micro_batch_size_per_gpu", p->micro);
    if (micros > 0)
        add_int(j, "gradient_accumulation_steps", micros);
}

static void write_offload(json_lines *zero, const char *key, ech_offload where, int buffers,
                          int64_t elems, const char *size_key)
{
    if (where == ECH_OFFLOAD_NONE)
        return;
    json_lines map = open_map(zero, key);
    add_word(&map, "device", where == ECH_OFFLOAD_NVME ? "nvme" : "cpu");
    add_bool(&map, "pin_memory", true);
    if (where == ECH_OFFLOAD_NVME) {
        add_word(&map, "nvme_path", "/local_nvme");
        if (buffers > 0)
            add_int(&map, "buffer_count", buffers);
        if (size_key && elems > 0)
            add_int(&map, size_key, elems);
    }
    close_map(&map);
}

static void write_zero(const ech_job *job, const ech_point *p, json_lines *j)
{
    const ech_beside *b = &job->beside;
    json_lines zero = open_map(j, "zero_optimization");
    add_int(&zero, "stage", p->zero_stage);
    add_bool(&zero, "overlap_comm", true);
    add_bool(&zero, "contiguous_gradients", true);
    add_int(&zero, "reduce_bucket_size",
            b->reduce_bucket_elems > 0 ? b->reduce_bucket_elems : BUCKET_ELEMS);
    if (p->zero_stage < 3)
        add_int(&zero, "allgather_bucket_size", BUCKET_ELEMS);
    if (p->zero_stage == 3) {
        add_int(&zero, "stage3_max_live_parameters",
                b->live_params > 0 ? b->live_params : LIVE_ELEMS);
        if (p->zero_group > 0 && p->zero_group < (int64_t)p->dp * p->cp)
            add_int(&zero, "mics_shard_size", p->zero_group);
    }
    write_offload(&zero, "offload_optimizer", p->offload_optimizer, b->nvme_optimizer_buffers, 0,
                  NULL);
    write_offload(&zero, "offload_param", p->offload_params, b->nvme_param_buffers,
                  b->nvme_buffer_elems, "buffer_size");
    close_map(&zero);
}

static const char *type_name(int bytes, ech_precision p)
{
    return bytes == 4 ? "fp32" : p == ECH_PRECISION_FP16 ? "fp16" : "bf16";
}

static void write_types(const ech_job *job, json_lines *j)
{
    const bool is_half = job->precision == ECH_PRECISION_FP16;
    const bool is_full =
        job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32;
    if (!is_full) {
        json_lines map = open_map(j, is_half ? "fp16" : "bf16");
        add_bool(&map, "enabled", true);
        close_map(&map);
        json_lines types = open_map(j, "data_types");
        add_word(&types, "grad_accum_dtype", type_name(job->grad_bytes, job->precision));
        close_map(&types);
        add_word(j, "communication_data_type", type_name(job->wire_bytes, job->precision));
    }
}

/* AdamW is what one gets where nothing is said. */
static void write_optimizer(const ech_job *job, json_lines *j)
{
    if (job->optimizer != ECH_OPTIMIZER_SGD && job->optimizer != ECH_OPTIMIZER_MUON)
        return;
    json_lines map = open_map(j, "optimizer");
    add_word(&map, "type", job->optimizer == ECH_OPTIMIZER_SGD ? "SGD" : "Muon");
    begin_member(&map, "params");
    ech_text_add(map.out, "{}");
    close_map(&map);
}

static void write_recompute(const ech_point *p, json_lines *j, ech_findings *lost)
{
    if (!(p->recompute & ECH_RECOMPUTE_FULL))
        return;
    json_lines map = open_map(j, "activation_checkpointing");
    add_bool(&map, "partition_activations", false);
    add_bool(&map, "cpu_checkpointing", p->offload_activations == ECH_OFFLOAD_HOST);
    close_map(&map);
    ech_findings_add(lost,
                     "deepspeed: activation_checkpointing says how, not whether: the model has "
                     "to call deepspeed.checkpointing, or gradient_checkpointing_enable()");
}

static ech_status refuse(const ech_job *job, const ech_point *p)
{
    ECH_CHECK(p->pp == 1, ECH_E_UNSUPPORTED,
              "deepspeed: pp %d: pipelines are a PipelineModule of the script, not of the JSON",
              p->pp);
    ECH_CHECK(p->cp == 1 || p->cp_kind == ECH_CP_ULYSSES, ECH_E_UNSUPPORTED,
              "deepspeed: cp %d of kind %s: it has Ulysses", p->cp, ech_cp_kind_name(p->cp_kind));
    ECH_CHECK(job->precision != ECH_PRECISION_FP8 && job->precision != ECH_PRECISION_MXFP8 &&
                  job->precision != ECH_PRECISION_NVFP4,
              ECH_E_UNSUPPORTED, "deepspeed: precision %s: it has bf16, fp16 and fp32",
              ech_precision_name(job->precision));
    return ECH_OK;
}

ech_status ech_deepspeed_write(const ech_job *job, const ech_point *p, ech_text *out,
                               ech_findings *lost)
{
    json_lines j = {out, 2, false};
    ECH_TRY(refuse(job, p));
    ech_text_add(out, "{\n");
    write_batch(job, p, &j);
    write_types(job, &j);
    write_zero(job, p, &j);
    if (p->tp > 1) {
        json_lines map = open_map(&j, "tensor_parallel");
        add_int(&map, "autotp_size", p->tp);
        close_map(&map);
    }
    if (p->cp > 1)
        add_int(&j, "sequence_parallel_size", p->cp);
    write_optimizer(job, &j);
    write_recompute(p, &j, lost);
    if (job->is_compiled) {
        json_lines map = open_map(&j, "compile");
        add_bool(&map, "deepcompile", true);
        close_map(&map);
    }
    ech_text_add(out, "\n}\n");
    return ECH_OK;
}

/* --- reading --- */

static const char *const top_keys[] = {"train_batch_size",
                                       "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps",
                                       "managed_gradient_accumulation",
                                       "optimizer",
                                       "scheduler",
                                       "fp16",
                                       "bf16",
                                       "bfloat16",
                                       "amp",
                                       "torch_autocast",
                                       "zero_optimization",
                                       "activation_checkpointing",
                                       "data_types",
                                       "communication_data_type",
                                       "seq_parallel_communication_data_type",
                                       "gradient_clipping",
                                       "prescale_gradients",
                                       "gradient_predivide_factor",
                                       "gradient_allreduce_op",
                                       "sparse_gradients",
                                       "steps_per_print",
                                       "wall_clock_breakdown",
                                       "memory_breakdown",
                                       "dump_state",
                                       "pipeline",
                                       "tensor_parallel",
                                       "expert_parallel",
                                       "sequence_parallel_size",
                                       "compile",
                                       "aio",
                                       "autotuning",
                                       "comms_logger",
                                       "compression_training",
                                       "curriculum_learning",
                                       "data_efficiency",
                                       "dataloader_drop_last",
                                       "disable_allgather",
                                       "eigenvalue",
                                       "elasticity",
                                       "flops_profiler",
                                       "graph_harvesting",
                                       "hybrid_engine",
                                       "checkpoint",
                                       "csv_monitor",
                                       "tensorboard",
                                       "wandb",
                                       "comet",
                                       "monitor_config",
                                       "nebula",
                                       "datastates_ckpt",
                                       "progressive_layer_drop",
                                       "sparse_attention",
                                       "timers",
                                       "use_data_before_expert_parallelism",
                                       "vocabulary_size",
                                       "weight_quantization",
                                       "zero_allow_untested_optimizer",
                                       "zero_force_ds_cpu_optimizer",
                                       "log_level",
                                       "seed"};

static const char *const zero_keys[] = {"stage",
                                        "contiguous_gradients",
                                        "reduce_scatter",
                                        "reduce_bucket_size",
                                        "use_multi_rank_bucket_allreduce",
                                        "allgather_partitions",
                                        "allgather_bucket_size",
                                        "overlap_comm",
                                        "load_from_fp32_weights",
                                        "elastic_checkpoint",
                                        "offload_param",
                                        "offload_optimizer",
                                        "zenflow",
                                        "sub_group_size",
                                        "cpu_offload",
                                        "cpu_offload_params",
                                        "cpu_offload_param",
                                        "cpu_offload_use_pin_memory",
                                        "stage3_prefetch_bucket_size",
                                        "prefetch_bucket_size",
                                        "stage3_param_persistence_threshold",
                                        "param_persistence_threshold",
                                        "stage3_model_persistence_threshold",
                                        "model_persistence_threshold",
                                        "stage3_max_live_parameters",
                                        "max_live_parameters",
                                        "stage3_max_reuse_distance",
                                        "max_reuse_distance",
                                        "stage3_gather_16bit_weights_on_model_save",
                                        "stage3_gather_fp16_weights_on_model_save",
                                        "gather_16bit_weights_on_model_save",
                                        "stage3_module_granularity_threshold",
                                        "module_granularity_threshold",
                                        "stage3_use_all_reduce_for_fetch_params",
                                        "use_all_reduce_for_fetch_params",
                                        "stage3_allgather_sequential",
                                        "allgather_sequential",
                                        "ignore_unused_parameters",
                                        "legacy_stage1",
                                        "round_robin_gradients",
                                        "zero_hpz_partition_size",
                                        "zero_quantized_weights",
                                        "zero_quantized_nontrainable_weights",
                                        "zero_quantized_gradients",
                                        "zeropp_loco_param",
                                        "mics_shard_size",
                                        "mics_hierarchical_params_gather",
                                        "memory_efficient_linear",
                                        "pipeline_loading_checkpoint",
                                        "override_module_apply",
                                        "log_trace_cache_warnings",
                                        "enable_sanity_checks",
                                        "save_muon_momentum_buffer_in_memory",
                                        "leaf_module"};

static const char *const offload_keys[] = {
    "device",     "nvme_path",     "buffer_count",      "buffer_size",    "max_in_cpu",
    "pin_memory", "fast_init",     "pipeline_read",     "pipeline_write", "pipeline",
    "ratio",      "super_offload", "cpuadam_cores_perc"};

static const char *const recompute_keys[] = {"partition_activations",
                                             "number_checkpoints",
                                             "contiguous_memory_optimization",
                                             "synchronize_checkpoint_boundary",
                                             "profile",
                                             "cpu_checkpointing"};

/* Is it "auto": Transformers fills it in. */
static bool is_auto(const ech_key_reader *r, const char *key)
{
    const ech_node *node = ech_key_find(r, key);
    return node && node->kind == ECH_NODE_STRING && strcmp(node->string, "auto") == 0;
}

/* A size that may be "auto".  @return is it there */
static bool read_size(const ech_key_reader *r, const char *key, int64_t min, int64_t *out)
{
    return !is_auto(r, key) && ech_key_int(r, ECH_KEYS(key), min, out) == ECH_KEY_GOOD;
}

static bool is_enabled(const ech_key_reader *r, const char *key)
{
    const ech_node *map = NULL;
    bool enabled = false;
    if (ech_key_tree(r, key, ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return false;
    const ech_key_reader inner = {map, r->name, r->findings};
    if (!is_auto(&inner, "enabled"))
        (void)ech_key_bool(&inner, "enabled", &enabled);
    return enabled;
}

static ech_offload read_offload(const ech_key_reader *zero, const ech_exchange_source *src,
                                const char *key, int *buffers, int64_t *elems)
{
    static const char *const devices[] = {"none", "cpu", "nvme"};
    const ech_node *map = NULL;
    int choice = 0;
    int64_t n = 0;
    double ratio = 1;
    if (ech_key_tree(zero, key, ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return ECH_OFFLOAD_NONE;
    const ech_key_reader r = {map, zero->name, zero->findings};
    const ech_key_reader told = {map, zero->name, src->notes};
    ech_key_check_known(&told, offload_keys, COUNT(offload_keys));
    (void)ech_key_choice(&r, "device", devices, COUNT(devices), &choice);
    if (choice == 2 && read_size(&r, "buffer_count", 0, &n))
        *buffers = (int)n;
    if (choice == 2 && read_size(&r, "buffer_size", 0, &n))
        *elems = n;
    if (ech_key_real(&r, ECH_KEYS("ratio"), 0, 1, &ratio) == ECH_KEY_GOOD && ratio < 1)
        ech_key_complain(&told, ech_key_find(&r, "ratio"),
                         "%s.ratio %g: all of it is taken to be offloaded", key, ratio);
    return (ech_offload)choice;
}

/* Names of keys before 0.4: booleans. */
static ech_offload old_offload(const ech_key_reader *zero, const char *key, ech_offload now)
{
    bool is_on = false;
    (void)ech_key_bool(zero, key, &is_on);
    return is_on && now == ECH_OFFLOAD_NONE ? ECH_OFFLOAD_HOST : now;
}

static void read_groups(const ech_key_reader *r, const ech_exchange_source *src, ech_point *p)
{
    const ech_key_reader told = {r->map, r->name, src->notes};
    int64_t n = 0;
    p->zero_group = 0;
    const ech_node *mics = ech_key_find(r, "mics_shard_size");
    if (mics && mics->kind == ECH_NODE_INT && mics->integer > 0 &&
        mics->integer <= ECH_EXCHANGE_DEGREE_MAX)
        p->zero_group = (int32_t)mics->integer;
    if (ech_key_int(r, ECH_KEYS("zero_hpz_partition_size"), 0, &n) == ECH_KEY_GOOD && n > 1)
        ech_key_complain(&told, ech_key_find(r, "zero_hpz_partition_size"),
                         "zero_hpz_partition_size %lld: the second copy of weights is left out",
                         (long long)n);
}

static void read_zero(const ech_key_reader *top, const ech_exchange_source *src,
                      ech_exchanged *into)
{
    ech_point *p = into->point;
    ech_beside *b = &into->job->beside;
    const ech_node *map = NULL;
    int64_t stage = 0;
    p->zero_stage = 0;
    p->zero_group = 0;
    p->reshard_after_forward = true;
    p->reduce_each = false;
    p->offload_optimizer = p->offload_params = ECH_OFFLOAD_NONE;
    b->reduce_bucket_elems = BUCKET_ELEMS;
    b->live_params = LIVE_ELEMS;
    if (ech_key_tree(top, "zero_optimization", ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return;
    const ech_key_reader r = {map, top->name, top->findings};
    const ech_key_reader told = {map, top->name, src->notes};
    ech_key_check_known(&told, zero_keys, COUNT(zero_keys));
    if (ech_key_int(&r, ECH_KEYS("stage"), 0, &stage) == ECH_KEY_GOOD && stage > 3)
        ech_key_complain(&r, ech_key_find(&r, "stage"), "stage is %lld, wanted 0 .. 3",
                         (long long)stage);
    p->zero_stage = stage <= 3 ? (int32_t)stage : 0;
    p->reduce_each = p->zero_stage >= 2; /* its partitions of gradients are filled at once */
    (void)read_size(&r, "reduce_bucket_size", 0, &b->reduce_bucket_elems);
    (void)read_size(&r, "stage3_max_live_parameters", 0, &b->live_params);
    p->offload_optimizer = read_offload(&r, src, "offload_optimizer", &b->nvme_optimizer_buffers,
                                        &b->nvme_buffer_elems);
    p->offload_params =
        read_offload(&r, src, "offload_param", &b->nvme_param_buffers, &b->nvme_buffer_elems);
    p->offload_optimizer = old_offload(&r, "cpu_offload", p->offload_optimizer);
    p->offload_params = old_offload(&r, "cpu_offload_params", p->offload_params);
    read_groups(&r, src, p);
}

/* Is the switch of a type left to Transformers? */
static bool is_open(const ech_key_reader *r, const char *key)
{
    const ech_node *node = ech_key_find(r, key);
    if (!node || node->kind != ECH_NODE_MAP)
        return is_auto(r, key);
    const ech_key_reader inner = {node, r->name, r->findings};
    return is_auto(&inner, "enabled");
}

/* What Transformers would fill in: bf16 where both are left to it, the usual of today. */
static void take_open(const ech_key_reader *r, const ech_exchange_source *src, bool *is_half,
                      bool *is_brain)
{
    const ech_key_reader told = {r->map, r->name, src->notes};
    if (*is_half || *is_brain)
        return;
    *is_brain = is_open(r, "bf16") || is_open(r, "bfloat16");
    *is_half = !*is_brain && is_open(r, "fp16");
    if (*is_half || *is_brain)
        ech_key_complain(&told, ech_key_find(r, *is_half ? "fp16" : "bf16"),
                         "%s is 'auto': it is taken as on (--precision)",
                         *is_half ? "fp16" : "bf16");
}

static int bytes_of_type(const ech_key_reader *r, const char *key, int usual)
{
    static const char *const names[] = {"fp32", "fp16", "bf16"};
    int choice;
    const ech_key_got got = ech_key_choice(r, key, names, COUNT(names), &choice);
    return got == ECH_KEY_GOOD ? (choice == 0 ? 4 : 2) : usual;
}

static void read_types(const ech_key_reader *r, const ech_exchange_source *src, ech_job *job)
{
    bool is_half = is_enabled(r, "fp16");
    bool is_brain = is_enabled(r, "bf16") || is_enabled(r, "bfloat16");
    const ech_node *map = NULL;
    if (is_half && is_brain)
        ech_key_complain(r, ech_key_find(r, "fp16"), "fp16 and bf16 are both enabled: one of them");
    take_open(r, src, &is_half, &is_brain);
    job->precision = is_half    ? ECH_PRECISION_FP16
                     : is_brain ? ECH_PRECISION_BF16
                                : ECH_PRECISION_FP32;
    const int usual = is_half || is_brain ? 2 : 4;
    job->has_master = usual == 2;
    job->grad_bytes = job->wire_bytes = usual;
    if (ech_key_tree(r, "data_types", ECH_NODE_MAP, &map) == ECH_KEY_GOOD) {
        const ech_key_reader types = {map, r->name, r->findings};
        job->grad_bytes = bytes_of_type(&types, "grad_accum_dtype", usual);
    }
    job->wire_bytes = bytes_of_type(r, "communication_data_type", usual);
}

static void read_optimizer(const ech_key_reader *r, const ech_exchange_source *src, ech_job *job)
{
    static const struct {
        const char *word;
        ech_optimizer kind;
    } names[] = {{"adam", ECH_OPTIMIZER_ADAMW},
                 {"adamw", ECH_OPTIMIZER_ADAMW},
                 {"sgd", ECH_OPTIMIZER_SGD},
                 {"muon", ECH_OPTIMIZER_MUON},
                 {"onebitadam", ECH_OPTIMIZER_ADAMW}};
    const ech_node *map = NULL;
    const char *type = NULL;
    job->optimizer = ECH_OPTIMIZER_ADAMW;
    if (ech_key_tree(r, "optimizer", ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return;
    const ech_key_reader inner = {map, r->name, r->findings};
    if (ech_key_string(&inner, ECH_KEYS("type"), &type) != ECH_KEY_GOOD)
        return;
    for (size_t i = 0; i < COUNT(names); i++)
        if (strcasecmp(names[i].word, type) == 0) {
            job->optimizer = names[i].kind;
            return;
        }
    const ech_key_reader told = {map, r->name, src->notes};
    ech_key_complain(&told, ech_key_find(&inner, "type"),
                     "optimizer '%.40s' is not known: adamw is taken", type);
}

static void read_recompute(const ech_key_reader *r, const ech_exchange_source *src, ech_point *p)
{
    const ech_node *map = NULL;
    bool on_host = false;
    bool is_cut = false;
    p->offload_activations = ECH_OFFLOAD_NONE;
    p->recompute = 0;
    p->recompute_layers = 0;
    if (ech_key_tree(r, "activation_checkpointing", ECH_NODE_MAP, &map) != ECH_KEY_GOOD)
        return;
    const ech_key_reader inner = {map, r->name, r->findings};
    const ech_key_reader told = {map, r->name, src->notes};
    ech_key_check_known(&told, recompute_keys, COUNT(recompute_keys));
    (void)ech_key_bool(&inner, "cpu_checkpointing", &on_host);
    (void)ech_key_bool(&inner, "partition_activations", &is_cut);
    p->recompute = ECH_RECOMPUTE_FULL;
    p->offload_activations = on_host ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
    ech_key_complain(&told, map,
                     "activation_checkpointing says how, not whether: the model is taken "
                     "to recompute every layer");
    if (is_cut)
        ech_key_complain(&told, ech_key_find(&inner, "partition_activations"),
                         "partition_activations: saved inputs are taken to be whole");
}

/* DeepSpeed's own rules for the three sizes of which two make the third. */
static void read_batch(const ech_key_reader *r, const ech_exchange_source *src, ech_exchanged *into)
{
    ech_point *p = into->point;
    int64_t all = 0;
    int64_t micro = 0;
    int64_t steps = 0;
    (void)read_size(r, "train_batch_size", 1, &all);
    (void)read_size(r, "train_micro_batch_size_per_gpu", 1, &micro);
    (void)read_size(r, "gradient_accumulation_steps", 1, &steps);
    if (micro > ECH_EXCHANGE_DEGREE_MAX || steps > ECH_EXCHANGE_DEGREE_MAX)
        micro = steps = 0;
    if (all > 0 && micro > 0 && steps > 0) {
        if (all % (micro * steps) != 0)
            ech_key_complain(r, ech_key_find(r, "train_batch_size"),
                             "train_batch_size %lld is no multiple of micro-batch %lld x "
                             "accumulation %lld",
                             (long long)all, (long long)micro, (long long)steps);
        ech_exchange_ranks(
            src, into, all / (micro * steps) > ECH_EXCHANGE_DEGREE_MAX ? 0 : all / (micro * steps));
    } else {
        ech_exchange_ranks(src, into, 0);
    }
    if (!steps)
        steps = all > 0 && micro > 0 && p->dp > 0 ? all / micro / p->dp : 1;
    if (!micro && all > 0)
        micro = all / p->dp / (steps > 0 ? steps : 1);
    if (!all && micro > 0)
        all = micro * (steps > 0 ? steps : 1) * p->dp;
    if (micro > 0 && micro <= ECH_EXCHANGE_DEGREE_MAX)
        p->micro = (int32_t)micro;
    if (micro <= 0 && is_auto(r, "train_micro_batch_size_per_gpu")) {
        const ech_key_reader told = {r->map, r->name, src->notes};
        ech_key_complain(&told, ech_key_find(r, "train_micro_batch_size_per_gpu"),
                         "train_micro_batch_size_per_gpu is 'auto': %d is taken (--micro)",
                         p->micro);
    }
    if (all > 0)
        into->job->global_batch = all;
}

static void read_model_parallel(const ech_key_reader *r, const ech_exchange_source *src,
                                ech_point *p)
{
    const ech_node *map = NULL;
    int32_t tp = 1;
    p->tp = p->pp = p->vpp = p->ep = p->etp = 1;
    p->cp = 1;
    p->sequence_parallel = false;
    p->schedule = ECH_SCHEDULE_1F1B;
    if (ech_key_tree(r, "tensor_parallel", ECH_NODE_MAP, &map) == ECH_KEY_GOOD) {
        const ech_key_reader inner = {map, r->name, r->findings};
        (void)ech_exchange_degree(&inner, "autotp_size", 0, &tp);
        p->tp = tp > 1 ? tp : 1;
    }
    if (ech_exchange_degree(r, "sequence_parallel_size", 1, &p->cp))
        p->cp_kind = ECH_CP_ULYSSES;
    if (ech_key_find(r, "expert_parallel")) {
        const ech_key_reader told = {r->map, r->name, src->notes};
        ech_key_complain(&told, ech_key_find(r, "expert_parallel"),
                         "expert_parallel is not read: ep 1 is taken");
    }
}

static void read_all(const ech_node *root, const ech_exchange_source *src, ech_exchanged *into)
{
    const ech_key_reader r = {root, src->name, src->errors};
    const ech_key_reader told = {root, src->name, src->notes};
    const ech_node *map = NULL;
    ech_key_check_known(&told, top_keys, COUNT(top_keys));
    ech_exchange_check_any(src, root, top_keys, COUNT(top_keys), "DeepSpeed's");
    ech_exchange_be(into, ECH_SYSTEM_DEEPSPEED);
    into->job->tuning = ECH_TUNING_FULL;
    into->job->loss = ECH_LOSS_DEFAULT;
    into->point->order = ECH_ORDER_TP_CP_DP_PP;
    read_model_parallel(&r, src, into->point);
    read_zero(&r, src, into);
    read_types(&r, src, into->job);
    read_optimizer(&r, src, into->job);
    read_recompute(&r, src, into->point);
    read_batch(&r, src, into);
    into->job->is_compiled = false;
    if (ech_key_tree(&r, "compile", ECH_NODE_MAP, &map) == ECH_KEY_GOOD) {
        const ech_key_reader inner = {map, src->name, src->errors};
        (void)ech_key_bool(&inner, "deepcompile", &into->job->is_compiled);
    }
}

ech_status ech_deepspeed_read(const ech_exchange_source *src, ech_exchanged *into)
{
    ech_node *root = NULL;
    ECH_TRY(ech_node_parse_json(src->text, src->bytes, src->name, &root));
    if (root->kind == ECH_NODE_MAP)
        read_all(root, src, into);
    else
        ech_findings_add(src->errors, "%s: %s, wanted a map of DeepSpeed's keys", src->name,
                         ech_node_kind_name(root->kind));
    ech_node_destroy(&root);
    return ECH_OK;
}
