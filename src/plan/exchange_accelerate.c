/* Accelerate's YAML for FSDP.  Keys, defaults and meanings: accelerate/commands/config/config_args.py,
 * commands/launch.py, utils/dataclasses.py and parallelism_config.py of Accelerate 1.15.  The model,
 * batch and length are the training script's. */
#include "plan/exchange_private.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { USUAL_NODE = 8 /* devices, where no cluster is known */ };

/* --- writing --- */

static const char *yes_no(bool b)
{
    return b ? "true" : "false";
}

static void write_machines(const ech_job *job, ech_text *out)
{
    const int usual = job->cluster ? job->cluster->devices_per_node : USUAL_NODE;
    const int64_t node = job->gpus < usual || job->gpus % usual != 0 ? job->gpus : usual;
    ech_text_add(out, "num_machines: %lld\nnum_processes: %lld\n", (long long)(job->gpus / node),
                 (long long)job->gpus);
    ech_text_add(out, "machine_rank: 0\nmain_training_function: main\nrdzv_backend: static\n"
                      "same_network: true\nuse_cpu: false\ndebug: false\n");
}

static void write_fsdp(const ech_point *p, ech_text *out)
{
    ech_text_add(out, "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: %s\n",
                 yes_no(p->reshard_after_forward));
    ech_text_add(out, "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
                      "  fsdp_cpu_ram_efficient_loading: true\n");
    ech_text_add(out, "  fsdp_offload_params: %s\n", yes_no(p->offload_params == ECH_OFFLOAD_HOST));
    ech_text_add(out, "  fsdp_activation_checkpointing: %s\n",
                 yes_no((p->recompute & ECH_RECOMPUTE_FULL) != 0));
}

static void write_mesh(const ech_point *p, ech_text *out)
{
    const int32_t shard = p->zero_group > 0 ? p->zero_group / p->cp : p->dp;
    if (p->tp == 1 && p->cp == 1 && shard == p->dp)
        return;
    ech_text_add(out, "parallelism_config:\n");
    ech_text_add(out, "  parallelism_config_dp_replicate_size: %d\n", p->dp / shard);
    ech_text_add(out, "  parallelism_config_dp_shard_size: %d\n", shard);
    ech_text_add(out, "  parallelism_config_tp_size: %d\n", p->tp);
    ech_text_add(out, "  parallelism_config_cp_size: %d\n", p->cp);
    if (p->cp > 1)
        ech_text_add(out, "  parallelism_config_cp_comm_strategy: %s\n",
                     p->cp_kind == ECH_CP_GATHER ? "allgather" : "alltoall");
}

static ech_status refuse(const ech_job *job, const ech_point *p)
{
    ECH_CHECK(p->pp == 1, ECH_E_UNSUPPORTED, "accelerate: pp %d: it has no pipelines", p->pp);
    ECH_CHECK(p->zero_stage == 3 || p->zero_stage == 0, ECH_E_UNSUPPORTED,
              "accelerate: zero stage %d: fully_shard is stage 3, replicas are 0 (--zero 3)",
              p->zero_stage);
    ECH_CHECK(p->zero_stage == 3 || (p->tp == 1 && p->cp == 1), ECH_E_UNSUPPORTED,
              "accelerate: tp %d and cp %d need sharding beside them (--zero 3)", p->tp, p->cp);
    ECH_CHECK(p->zero_group == 0 || p->zero_group % p->cp == 0, ECH_E_UNSUPPORTED,
              "accelerate: zero group %d is no multiple of cp %d, over which it always shards",
              p->zero_group, p->cp);
    ECH_CHECK(p->cp == 1 || p->cp_kind == ECH_CP_GATHER || p->cp_kind == ECH_CP_RING,
              ECH_E_UNSUPPORTED, "accelerate: cp of kind %s: it has gather and ring",
              ech_cp_kind_name(p->cp_kind));
    ECH_CHECK(job->precision != ECH_PRECISION_NVFP4 && job->precision != ECH_PRECISION_MXFP8,
              ECH_E_UNSUPPORTED, "accelerate: precision %s: it has bf16, fp16, fp8 and fp32",
              ech_precision_name(job->precision));
    return ECH_OK;
}

static const char *precision_word(ech_precision p)
{
    return p == ECH_PRECISION_BF16   ? "bf16"
           : p == ECH_PRECISION_FP16 ? "fp16"
           : p == ECH_PRECISION_FP8  ? "fp8"
                                     : "no";
}

ech_status ech_accelerate_write(const ech_job *job, const ech_point *p, ech_text *out,
                                ech_findings *lost)
{
    (void)lost;
    ECH_TRY(refuse(job, p));
    ech_text_add(out, "compute_environment: LOCAL_MACHINE\ndistributed_type: %s\n",
                 p->zero_stage == 3 ? "FSDP" : "MULTI_GPU");
    ech_text_add(out, "mixed_precision: '%s'\n", precision_word(job->precision));
    write_machines(job, out);
    if (job->precision == ECH_PRECISION_FP8)
        ech_text_add(out, "fp8_config:\n  backend: AO\n");
    if (job->is_compiled)
        ech_text_add(out, "dynamo_config:\n  dynamo_backend: INDUCTOR\n");
    if (p->zero_stage == 3) {
        write_fsdp(p, out);
        write_mesh(p, out);
    }
    return ECH_OK;
}

/* --- reading --- */

static const char *const top_keys[] = {"compute_environment",
                                       "distributed_type",
                                       "mixed_precision",
                                       "use_cpu",
                                       "debug",
                                       "num_processes",
                                       "machine_rank",
                                       "num_machines",
                                       "gpu_ids",
                                       "main_process_ip",
                                       "main_process_port",
                                       "rdzv_backend",
                                       "same_network",
                                       "main_training_function",
                                       "enable_cpu_affinity",
                                       "fp8_config",
                                       "deepspeed_config",
                                       "fsdp_config",
                                       "parallelism_config",
                                       "megatron_lm_config",
                                       "mpirun_config",
                                       "downcast_bf16",
                                       "tpu_name",
                                       "tpu_zone",
                                       "tpu_use_cluster",
                                       "tpu_use_sudo",
                                       "command_file",
                                       "commands",
                                       "tpu_vm",
                                       "tpu_env",
                                       "dynamo_config",
                                       "dynamo_backend",
                                       "fp16",
                                       "deepspeed_plugin"};
static const char *const fsdp_keys[] = {"fsdp_version",
                                        "fsdp_sharding_strategy",
                                        "fsdp_reshard_after_forward",
                                        "fsdp_auto_wrap_policy",
                                        "fsdp_transformer_layer_cls_to_wrap",
                                        "fsdp_min_num_params",
                                        "fsdp_backward_prefetch",
                                        "fsdp_backward_prefetch_policy",
                                        "fsdp_forward_prefetch",
                                        "fsdp_state_dict_type",
                                        "fsdp_offload_params",
                                        "fsdp_use_orig_params",
                                        "fsdp_cpu_ram_efficient_loading",
                                        "fsdp_sync_module_states",
                                        "fsdp_activation_checkpointing"};
static const char *const mesh_keys[] = {"parallelism_config_dp_replicate_size",
                                        "parallelism_config_dp_shard_size",
                                        "parallelism_config_tp_size",
                                        "parallelism_config_cp_size",
                                        "parallelism_config_cp_backend",
                                        "parallelism_config_cp_comm_strategy",
                                        "parallelism_config_sp_size",
                                        "parallelism_config_sp_backend",
                                        "parallelism_config_sp_seq_length",
                                        "parallelism_config_sp_seq_length_is_variable",
                                        "parallelism_config_sp_attn_implementation"};

/* A map of the document with its keys checked; NULL: absent. */
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

/* Version 1 wrote a strategy, by name or number, where version 2 has a boolean. */
static void read_strategy(const ech_key_reader *fsdp, const ech_exchange_source *src, ech_point *p)
{
    static const char *const names[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                        "HYBRID_SHARD_ZERO2"};
    const ech_node *new_key = ech_key_find(fsdp, "fsdp_reshard_after_forward");
    const ech_node *node = new_key && new_key->kind == ECH_NODE_STRING
                               ? new_key
                               : ech_key_find(fsdp, "fsdp_sharding_strategy");
    int which = -1;
    p->zero_stage = 3;
    p->reshard_after_forward = true;
    if (new_key && new_key->kind == ECH_NODE_BOOL) {
        p->reshard_after_forward = new_key->boolean;
        return;
    }
    if (!node)
        return;
    if (node->kind == ECH_NODE_INT && node->integer >= 1 && node->integer <= 5)
        which = (int)node->integer - 1;
    for (size_t i = 0; node->kind == ECH_NODE_STRING && i < COUNT(names); i++)
        if (strcmp(names[i], node->string) == 0)
            which = (int)i;
    if (which < 0) {
        char buf[64];
        ech_key_complain(fsdp, node,
                         "%s is %s, wanted FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, "
                         "HYBRID_SHARD or HYBRID_SHARD_ZERO2",
                         node->key, ech_key_describe(node, buf, sizeof buf));
        return;
    }
    p->zero_stage = which == 2 ? 0 : 3;
    p->reshard_after_forward = which == 0 || which == 3;
    if (which >= 3)
        p->zero_group = -1; /* a node: known once the ranks are */
    (void)src;
}

static void read_fsdp(const ech_key_reader *top, const ech_exchange_source *src,
                      ech_exchanged *into)
{
    const ech_key_reader fsdp = inner(top, src, "fsdp_config", fsdp_keys, COUNT(fsdp_keys));
    ech_point *p = into->point;
    int64_t version = 1;
    bool is_offloaded = false;
    bool is_recomputed = false;
    (void)ech_key_int(&fsdp, ECH_KEYS("fsdp_version"), 1, &version);
    if (version > 2)
        ech_key_complain(&fsdp, ech_key_find(&fsdp, "fsdp_version"),
                         "fsdp_version is %lld, wanted 1 "
                         "or 2",
                         (long long)version);
    read_strategy(&fsdp, src, p);
    (void)ech_key_bool(&fsdp, "fsdp_offload_params", &is_offloaded);
    (void)ech_key_bool(&fsdp, "fsdp_activation_checkpointing", &is_recomputed);
    /* Its gradients and optimizer state go with the parameters. */
    p->offload_params = p->offload_optimizer = is_offloaded ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
    p->recompute = is_recomputed ? ECH_RECOMPUTE_FULL : 0;
}

/* What accelerate hands on to DeepSpeed without a file of its own. */
static void read_deepspeed(const ech_key_reader *top, const ech_exchange_source *src,
                           ech_exchanged *into)
{
    static const char *const devices[] = {"none", "cpu", "nvme"};
    const ech_key_reader r = inner(top, src, "deepspeed_config", NULL, 0);
    ech_point *p = into->point;
    int64_t stage = 2;
    int choice = 0;
    ech_exchange_be(into, ECH_SYSTEM_DEEPSPEED);
    if (ech_key_find(&r, "deepspeed_config_file"))
        ech_findings_add(src->notes, "%s: deepspeed_config_file is not read: read it as deepspeed",
                         src->name);
    if (ech_key_int(&r, ECH_KEYS("zero_stage"), 0, &stage) == ECH_KEY_GOOD && stage > 3)
        ech_key_complain(&r, ech_key_find(&r, "zero_stage"), "zero_stage is %lld, wanted 0 .. 3",
                         (long long)stage);
    p->zero_stage = stage <= 3 ? (int32_t)stage : 3;
    p->reduce_each = p->zero_stage >= 2;
    if (ech_key_choice(&r, "offload_optimizer_device", devices, COUNT(devices), &choice) ==
        ECH_KEY_GOOD)
        p->offload_optimizer = (ech_offload)choice;
    if (ech_key_choice(&r, "offload_param_device", devices, COUNT(devices), &choice) ==
        ECH_KEY_GOOD)
        p->offload_params = (ech_offload)choice;
}

static void read_kind(const ech_key_reader *top, const ech_exchange_source *src,
                      ech_exchanged *into)
{
    const char *kind = string_of(top, "distributed_type", "NO");
    ech_exchange_be(into, ECH_SYSTEM_FSDP2);
    if (strcmp(kind, "FSDP") == 0)
        read_fsdp(top, src, into);
    else if (strcmp(kind, "DEEPSPEED") == 0)
        read_deepspeed(top, src, into);
    else if (strcmp(kind, "NO") != 0 && strncmp(kind, "MULTI_", 6) != 0)
        ech_key_complain(top, ech_key_find(top, "distributed_type"),
                         "distributed_type is '%.40s', wanted FSDP, DEEPSPEED, MULTI_GPU or NO",
                         kind);
}

static void read_precision(const ech_key_reader *top, ech_job *job)
{
    static const char *const words[] = {"no", "fp16", "bf16", "fp8"};
    static const ech_precision kinds[] = {ECH_PRECISION_FP32, ECH_PRECISION_FP16,
                                          ECH_PRECISION_BF16, ECH_PRECISION_FP8};
    int choice = 0;
    bool is_half = false;
    job->precision = ECH_PRECISION_FP32;
    if (ech_key_choice(top, "mixed_precision", words, COUNT(words), &choice) == ECH_KEY_GOOD)
        job->precision = kinds[choice];
    else if (ech_key_bool(top, "fp16", &is_half) == ECH_KEY_GOOD && is_half)
        job->precision = ECH_PRECISION_FP16;
}

static void read_mesh(const ech_key_reader *top, const ech_exchange_source *src,
                      ech_exchanged *into)
{
    const ech_key_reader r = inner(top, src, "parallelism_config", mesh_keys, COUNT(mesh_keys));
    ech_point *p = into->point;
    int32_t replicas = 1;
    int32_t shard = 0;
    int32_t ulysses = 1;
    p->tp = p->cp = 1;
    (void)ech_exchange_degree(&r, "parallelism_config_tp_size", 1, &p->tp);
    (void)ech_exchange_degree(&r, "parallelism_config_cp_size", 1, &p->cp);
    (void)ech_exchange_degree(&r, "parallelism_config_sp_size", 1, &ulysses);
    (void)ech_exchange_degree(&r, "parallelism_config_dp_replicate_size", 1, &replicas);
    const bool has_shard = ech_exchange_degree(&r, "parallelism_config_dp_shard_size", 1, &shard);
    p->cp_kind =
        strcmp(string_of(&r, "parallelism_config_cp_comm_strategy", "allgather"), "alltoall") == 0
            ? ECH_CP_RING
            : ECH_CP_GATHER;
    if (ulysses > 1 && p->cp == 1) {
        p->cp = ulysses;
        p->cp_kind = ECH_CP_ULYSSES;
    }
    p->sequence_parallel = p->tp > 1; /* plans of tensor parallelism have it */
    const int64_t dp = has_shard ? (int64_t)replicas * shard : 0;
    ech_exchange_ranks(src, into, dp <= ECH_EXCHANGE_DEGREE_MAX ? dp : 0);
    const int node = into->job->cluster ? into->job->cluster->devices_per_node : USUAL_NODE;
    const int64_t all = (int64_t)p->dp * p->cp;
    if (replicas > 1 && has_shard && shard > 1)
        p->zero_group = shard * p->cp;
    else if (p->zero_group < 0)
        p->zero_group = all > node && all % node == 0 ? node : 0;
}

static void read_all(const ech_node *root, const ech_exchange_source *src, ech_exchanged *into)
{
    const ech_key_reader top = {root, src->name, src->errors};
    const ech_key_reader told = {root, src->name, src->notes};
    ech_job *job = into->job;
    ech_point *p = into->point;
    ech_key_check_known(&told, top_keys, COUNT(top_keys));
    ech_exchange_check_any(src, root, top_keys, COUNT(top_keys), "Accelerate's");
    p->zero_stage = p->zero_group = 0;
    p->pp = p->vpp = p->ep = p->etp = 1;
    p->schedule = ECH_SCHEDULE_1F1B;
    p->order = ECH_ORDER_TP_CP_DP_PP;
    p->sequence_parallel = p->reduce_each = false;
    p->recompute = 0;
    p->recompute_layers = 0;
    p->offload_params = p->offload_optimizer = p->offload_activations = ECH_OFFLOAD_NONE;
    read_kind(&top, src, into);
    if (ech_key_int(&top, ECH_KEYS("num_processes"), -1, &job->gpus) == ECH_KEY_GOOD &&
        job->gpus > 0)
        into->has_gpus = true;
    if (job->gpus < 0)
        job->gpus = 0;
    read_precision(&top, job);
    read_mesh(&top, src, into);
    const ech_key_reader dynamo = inner(&top, src, "dynamo_config", NULL, 0);
    const char *backend =
        string_of(&dynamo, "dynamo_backend", string_of(&top, "dynamo_backend", "NO"));
    job->is_compiled = strcmp(backend, "NO") != 0 && strcmp(backend, "no") != 0;
}

ech_status ech_accelerate_read(const ech_exchange_source *src, ech_exchanged *into)
{
    ech_node *root = NULL;
    ECH_TRY(ech_node_parse_yaml(src->text, src->bytes, src->name, &root));
    if (root->kind == ECH_NODE_MAP)
        read_all(root, src, into);
    else
        ech_findings_add(src->errors, "%s: %s, wanted a map of Accelerate's keys", src->name,
                         ech_node_kind_name(root->kind));
    ech_node_destroy(&root);
    return ECH_OK;
}
