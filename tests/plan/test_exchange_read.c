/* RUN: np=1 timeout=20 tags=fast */
/* What is read from texts as people write them: values, the systems' own defaults, findings. */
#include "exchange_case.h"

#include "train/schema.h"

#include <stdlib.h>

/* Read into a blank; the caller releases with done(). */
static exchange_read *reads(ech_format f, int64_t gpus, const char *model, const char *text)
{
    exchange_read *r = calloc(1, sizeof *r);
    assert_non_null(r);
    exchange_blank(r);
    r->job.gpus = gpus;
    if (model) {
        assert_ok(ech_model_load(model, &r->model));
        r->job.model = &r->model;
    }
    exchange_parse(f, text, r);
    return r;
}

static void done(exchange_read *r)
{
    exchange_release(r);
    free(r);
}

static void refused(ech_format f, const char *text, ech_status status, const char *words)
{
    exchange_read *r = calloc(1, sizeof *r);
    assert_non_null(r);
    exchange_blank(r);
    r->job.gpus = 16;
    const ech_point before = r->point;
    assert_fails(ech_format_parse(f, text, strlen(text), "file", &r->into, &r->notes), status,
                 words);
    assert_memory_equal(&before, &r->point, sizeof before); /* nothing is changed */
    assert_int_equal(r->job.gpus, 16);
    done(r);
}

#define GPT                                                                                        \
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "               \
    "--max-position-embeddings 2048 --vocab-size 50257 "

/* --- Megatron-LM --- */

static void test_megatron_defaults(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_MEGATRON, 64, NULL, GPT "--micro-batch-size 4");
    assert_int_equal(r->job.system, ECH_SYSTEM_MEGATRON);
    assert_int_equal(r->point.tp, 1);
    assert_int_equal(r->point.dp, 64);
    assert_int_equal(r->point.zero_stage, 0); /* the distributed optimizer is off */
    assert_int_equal(r->point.recompute, 0);
    assert_int_equal(r->point.split, ECH_SPLIT_EVEN);
    assert_int_equal(r->job.precision, ECH_PRECISION_FP32);
    assert_false(r->job.has_master);
    assert_int_equal(r->job.global_batch, 256); /* micro x dp */
    assert_int_equal(r->model.ffn, 4 * 2048);
    assert_true(r->model.tie_embeddings && r->model.qkv_bias && r->model.learned_positions);
    assert_int_equal(r->model.norm, ECH_NORM_LAYER);
    assert_near(r->model.dropout, 0.1, 0);
    exchange_count(&r->notes, 0);
    done(r);
}

/* As launch scripts have it: variables, lists, quotes, comments, continued lines. */
static void test_megatron_scripts(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_MEGATRON, 0, NULL,
                             "#!/bin/bash\n"
                             "GPUS_PER_NODE=8 # of a node\n"
                             "TP=4\n"
                             "DISTRIBUTED=\"\n    --nproc_per_node $GPUS_PER_NODE \\\n"
                             "    --nnodes 4\n\"\n"
                             "MODEL=(\n    --num-layers 40\n    --hidden-size=5120\n"
                             "    --num-attention-heads 40 --seq-length 4096\n"
                             "    --max-position-embeddings 4096 --ffn-hidden-size 13824\n"
                             "    --swiglu --normalization RMSNorm --disable-bias-linear\n"
                             "    --position-embedding-type rope\n"
                             "    --untie-embeddings-and-output-weights --vocab-size 32000\n)\n"
                             "torchrun $DISTRIBUTED pretrain_gpt.py ${MODEL[@]} \\\n"
                             "    --tensor-model-parallel-size ${TP} \\\r\n"
                             "    --pipeline-model-parallel-size '2' \\\n"
                             "    --bf16 --sequence-parallel --use-distributed-optimizer \\\n"
                             "    --micro-batch-size 1 --global-batch-size 512 \\\n"
                             "    --recompute-granularity selective --lr 1e-4 --save /ckpt\n");
    assert_int_equal(r->job.gpus, 32);
    assert_true(r->into.has_gpus && r->into.has_model);
    assert_int_equal(r->point.tp, 4);
    assert_int_equal(r->point.pp, 2);
    assert_int_equal(r->point.dp, 4);
    assert_int_equal(r->point.zero_stage, 1);
    assert_true(r->point.sequence_parallel);
    assert_int_equal(r->point.recompute, ECH_RECOMPUTE_ATTENTION);
    assert_int_equal(r->job.precision, ECH_PRECISION_BF16);
    assert_int_equal(r->job.grad_bytes, 4);
    ech_param_count count;
    assert_ok(ech_model_count(&r->model, &count));
    assert_int_equal(count.total, INT64_C(13015864320)); /* Llama 2 13B */
    exchange_count(&r->notes, 0);
    done(r);
}

static void test_megatron_stages(void **state)
{
    (void)state;
    static const int first_last[] = {4, 8, 8, 4};
    static const int layout[] = {2, 3, 3, 3, 3, 3, 3, 4};
    exchange_read *r =
        reads(ECH_FORMAT_MEGATRON, 8, NULL,
              GPT "--pipeline-model-parallel-size 4 --micro-batch-size 1 "
                  "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 4");
    assert_int_equal(r->point.split, ECH_SPLIT_LIST);
    assert_memory_equal(r->point.stage_layers, first_last, sizeof first_last);
    assert_ptr_equal(r->point.stage_layers, r->into.stage_layers);
    done(r);
    r = reads(ECH_FORMAT_MEGATRON, 8, NULL,
              GPT "--pipeline-model-parallel-size 4 --micro-batch-size 1 "
                  "--pipeline-model-parallel-layout \"Ett|(ttt|)*6t*4,L\"");
    assert_int_equal(r->point.vpp, 2);
    assert_int_equal(r->point.schedule, ECH_SCHEDULE_INTERLEAVED);
    assert_memory_equal(r->point.stage_layers, layout, sizeof layout);
    done(r);
    r = reads(ECH_FORMAT_MEGATRON, 8, NULL,
              GPT "--pipeline-model-parallel-size 4 --micro-batch-size 1 "
                  "--num-layers-per-virtual-pipeline-stage 2");
    assert_int_equal(r->point.vpp, 3);
    done(r);
    refused(ECH_FORMAT_MEGATRON,
            GPT "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 5",
            ECH_E_CONFIG, "24 layers over pp 4 do not divide by it");
    refused(ECH_FORMAT_MEGATRON,
            GPT "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*3|t*4|t*4|L",
            ECH_E_CONFIG, "with all layers");
}

static void test_megatron_experts(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_MEGATRON, 64, NULL,
                             GPT "--num-experts 8 --moe-router-topk 2 --tensor-model-parallel-size "
                                 "4 --expert-model-parallel-size 8 --micro-batch-size 1 "
                                 "--moe-layer-freq ([0]*1+[1]*3)*6");
    assert_int_equal(r->point.ep, 8);
    assert_int_equal(r->point.etp, 4); /* Megatron: as tp, unless said */
    assert_int_equal(r->model.moe.expert_ffn, 8192);
    for (int64_t i = 0; i < 24; i++)
        assert_int_equal(ech_model_is_sparse(&r->model, i), i % 4 != 0);
    done(r);
    refused(ECH_FORMAT_MEGATRON, GPT "--num-experts 8 --moe-layer-freq ([0]*1+[1]*3)*5",
            ECH_E_CONFIG, "list of 24 layers");
}

static void test_megatron_findings(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_MEGATRON, 8, NULL,
                             GPT "--micro-batch-size 1 --tensor-model-paralell-size 4 "
                                 "--tensor-parallel-size 2 --recompute-granularity full "
                                 "--recompute-method uniform --recompute-num-layers 4 "
                                 "--recompute-modules mlp --rampup-batch-size 16 16 100 "
                                 "--optimizer lion --data-path /x --lr-decay-iters 5");
    exchange_says(&r->notes, "file: --tensor-model-paralell-size is not known: nearest is "
                             "--tensor-model-parallel-size");
    exchange_says(&r->notes, "--tensor-parallel-size is not known");
    exchange_says(&r->notes, "--recompute-num-layers 4 with the uniform method");
    exchange_says(&r->notes, "--rampup-batch-size is left out");
    exchange_says(&r->notes, "--optimizer lion is not known: adam is taken");
    exchange_count(&r->notes, 5);
    assert_int_equal(r->point.recompute, ECH_RECOMPUTE_FULL);
    done(r);
    refused(ECH_FORMAT_MEGATRON, GPT "--tensor-model-parallel-size x --context-parallel-size 0",
            ECH_E_CONFIG, "--context-parallel-size is '0', wanted a whole number of 1");
    refused(ECH_FORMAT_MEGATRON, GPT "--tensor-model-parallel-size $TP", ECH_E_CONFIG,
            "'$TP', wanted a whole number of 1 .. 1000000: the variable is not set in this text");
    refused(ECH_FORMAT_MEGATRON, GPT "--tensor-model-parallel-size 3", ECH_E_CONFIG,
            "16 ranks are no multiple of tp 3");
    refused(ECH_FORMAT_MEGATRON, GPT "--bf16 --fp16", ECH_E_CONFIG, "one of them");
    refused(ECH_FORMAT_MEGATRON, "train_batch_size: 8", ECH_E_CONFIG, "none of its words");
    refused(ECH_FORMAT_ECHELON, "train_batch_size: 8\n", ECH_E_CONFIG, "none of its keys");
    refused(ECH_FORMAT_TORCHTITAN, "[nothing]\nx = 1\n", ECH_E_CONFIG, "none of its keys");
    refused(ECH_FORMAT_ACCELERATE, "x: 1\n", ECH_E_CONFIG, "none of its keys");
    refused(ECH_FORMAT_MEGATRON, "--num-layers '4", ECH_E_PARSE, "not closed");
}

/* --- DeepSpeed --- */

static void test_deepspeed_defaults(void **state)
{
    (void)state;
    exchange_read *r =
        reads(ECH_FORMAT_DEEPSPEED, 16, NULL, "{\"train_micro_batch_size_per_gpu\": 4}");
    assert_int_equal(r->job.system, ECH_SYSTEM_DEEPSPEED);
    assert_int_equal(r->point.zero_stage, 0);
    assert_int_equal(r->point.dp, 16);
    assert_int_equal(r->job.global_batch, 64);
    assert_int_equal(r->job.precision, ECH_PRECISION_FP32);
    assert_int_equal(r->job.beside.reduce_bucket_elems, 500000000);
    assert_int_equal(r->job.beside.live_params, 1000000000);
    assert_false(r->into.has_gpus);
    exchange_count(&r->notes, 0);
    done(r);
}

static void test_deepspeed_values(void **state)
{
    (void)state;
    exchange_read *r =
        reads(ECH_FORMAT_DEEPSPEED, 0, NULL,
              "{\"train_batch_size\": 512, \"train_micro_batch_size_per_gpu\": 2,\n"
              " \"gradient_accumulation_steps\": 8, \"bf16\": {\"enabled\": true},\n"
              " \"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 2e8,\n"
              "   \"offload_optimizer\": {\"device\": \"nvme\", \"buffer_count\": 6},\n"
              "   \"offload_param\": {\"device\": \"cpu\"}, \"stage3_max_live_parameters\": 3e8},\n"
              " \"activation_checkpointing\": {\"cpu_checkpointing\": true},\n"
              " \"data_types\": {\"grad_accum_dtype\": \"fp32\"},\n"
              " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4}}}");
    assert_int_equal(r->job.gpus, 32);
    assert_true(r->into.has_gpus);
    assert_int_equal(r->point.dp, 32);
    assert_int_equal(r->point.micro, 2);
    assert_int_equal(ech_point_micros(&r->job, &r->point), 8);
    assert_int_equal(r->point.zero_stage, 3);
    assert_int_equal(r->point.offload_optimizer, ECH_OFFLOAD_NVME);
    assert_int_equal(r->point.offload_params, ECH_OFFLOAD_HOST);
    assert_int_equal(r->point.offload_activations, ECH_OFFLOAD_HOST);
    assert_int_equal(r->job.beside.nvme_optimizer_buffers, 6);
    assert_int_equal(r->job.beside.reduce_bucket_elems, 200000000);
    assert_int_equal(r->job.beside.live_params, 300000000);
    assert_int_equal(r->job.precision, ECH_PRECISION_BF16);
    assert_int_equal(r->job.grad_bytes, 4);
    assert_int_equal(r->job.wire_bytes, 2);
    exchange_says(&r->notes, "activation_checkpointing says how, not whether");
    exchange_count(&r->notes, 1);
    done(r);
    /* As Transformers writes it, sizes left to it. */
    r = reads(ECH_FORMAT_DEEPSPEED, 8, NULL,
              "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
              " \"gradient_accumulation_steps\": \"auto\", \"fp16\": {\"enabled\": \"auto\"},\n"
              " \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2,\n"
              " \"cpu_offload\": true, \"reduce_bucket_size\": \"auto\"}}");
    assert_int_equal(r->point.zero_stage, 2);
    assert_int_equal(r->point.offload_optimizer, ECH_OFFLOAD_HOST);
    assert_int_equal(r->point.micro, 1); /* as it was */
    exchange_says(&r->notes, "train_micro_batch_size_per_gpu is 'auto': 1 is taken");
    exchange_count(&r->notes, 1);
    done(r);
}

static void test_deepspeed_findings(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_DEEPSPEED, 8, NULL,
                             "{\"train_batch_size\": 8, \"zero_optimisation\": {\"stage\": 3},\n"
                             " \"zero_optimization\": {\"stage\": 1, \"reduce_buket_size\": 1}}");
    exchange_says(&r->notes, "zero_optimisation");
    exchange_says(&r->notes, "nearest is 'zero_optimization'");
    exchange_says(&r->notes, "nearest is 'reduce_bucket_size'");
    assert_int_equal(r->point.zero_stage, 1);
    done(r);
    refused(ECH_FORMAT_DEEPSPEED, "{\"zero_optimization\": {\"stage\": 4}}", ECH_E_CONFIG,
            "stage is 4, wanted 0 .. 3");
    refused(ECH_FORMAT_DEEPSPEED, "{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}",
            ECH_E_CONFIG, "one of them");
    refused(ECH_FORMAT_DEEPSPEED,
            "{\"train_batch_size\": 100, \"train_micro_batch_size_per_gpu\": 3, "
            "\"gradient_accumulation_steps\": 2}",
            ECH_E_CONFIG, "no multiple of micro-batch 3 x accumulation 2");
    refused(ECH_FORMAT_DEEPSPEED, "{\"layout\": {\"tp\": 2}}", ECH_E_CONFIG,
            "none of its keys is DeepSpeed's");
    refused(ECH_FORMAT_DEEPSPEED, "[1]", ECH_E_CONFIG, "wanted a map");
    refused(ECH_FORMAT_DEEPSPEED, "{\"a\": 1, \"a\": 2}", ECH_E_PARSE, "file:");
}

/* Configurations for Transformers leave to it what its own arguments say. */
static void test_deepspeed_auto(void **state)
{
    (void)state;
    exchange_read *r =
        reads(ECH_FORMAT_DEEPSPEED, 8, NULL,
              "{\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"},"
              " \"train_micro_batch_size_per_gpu\": \"auto\","
              " \"zero_optimization\": {\"stage\": 2}}");
    assert_int_equal(r->job.precision, ECH_PRECISION_BF16);
    assert_true(r->job.has_master);
    exchange_says(&r->notes, "bf16 is 'auto': it is taken as on");
    exchange_says(&r->notes, "train_micro_batch_size_per_gpu is 'auto': 1 is taken");
    done(r);
    r = reads(ECH_FORMAT_DEEPSPEED, 8, NULL,
              "{\"fp16\": {\"enabled\": \"auto\"}, \"train_micro_batch_size_per_gpu\": 1}");
    assert_int_equal(r->job.precision, ECH_PRECISION_FP16);
    done(r);
}

/* --- torchtitan --- */

static void test_torchtitan_defaults(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_TORCHTITAN, 32, NULL, "");
    assert_int_equal(r->point.zero_stage, 3);
    assert_int_equal(r->point.dp, 32); /* -1: all that is left */
    assert_int_equal(r->point.micro, 8);
    assert_int_equal(r->job.global_batch, 256);
    assert_int_equal(r->job.seq, 2048);
    assert_int_equal(r->job.precision, ECH_PRECISION_BF16);
    assert_int_equal(r->point.recompute, ECH_RECOMPUTE_FULL); /* selective, every second layer */
    assert_true(r->point.reshard_after_forward);
    assert_false(r->job.is_compiled);
    done(r);
}

static void test_torchtitan_values(void **state)
{
    (void)state;
    exchange_read *r =
        reads(ECH_FORMAT_TORCHTITAN, 0, NULL,
              "[model]\nname = \"llama3\"\nflavor = \"405B\"\nconverters = [\"float8\"]\n"
              "[training]\nlocal_batch_size = 32\nseq_len = 8192\nsteps = 3000\n"
              "[parallelism]\ndata_parallel_replicate_degree = 2\n"
              "data_parallel_shard_degree = 4\ntensor_parallel_degree = 8 # in a node\n"
              "pipeline_parallel_degree = 8\npipeline_parallel_schedule = \"Interleaved1F1B\"\n"
              "pipeline_parallel_microbatch_size = 2\n"
              "[activation_checkpoint]\nmode = \"full\"\n[compile]\nenable = true\n");
    assert_int_equal(r->job.gpus, 512);
    assert_int_equal(r->model.layers, 126);
    assert_int_equal(r->point.vpp, 2); /* a looped schedule's usual */
    assert_int_equal(r->point.split, ECH_SPLIT_ENDS);
    assert_int_equal(r->point.dp, 8);
    assert_int_equal(r->point.zero_group, 4);
    assert_int_equal(r->point.micro, 2);
    assert_int_equal(r->job.global_batch, 256);
    assert_int_equal(ech_point_micros(&r->job, &r->point), 16);
    assert_int_equal(r->job.precision, ECH_PRECISION_FP8);
    assert_false(r->point.reshard_after_forward); /* the default under a pipeline */
    assert_true(r->point.sequence_parallel);
    assert_true(r->job.is_compiled);
    assert_near(r->job.tokens, 3000.0 * 256 * 8192, 0);
    exchange_count(&r->notes, 0);
    done(r);
    r = reads(ECH_FORMAT_TORCHTITAN, 4, NULL,
              "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
              "pipeline_parallel_degree = 4\n[activation_checkpoint]\nmode = \"selective\"\n"
              "selective_ac_option = \"op\"\n");
    static const int layers[] = {8, 9, 8, 7}; /* 34 = 9 + 9 + 8 + 8, less one at either end */
    assert_int_equal(r->point.split, ECH_SPLIT_LIST);
    assert_memory_equal(r->point.stage_layers, layers, sizeof layers);
    assert_int_equal(r->point.recompute, ECH_RECOMPUTE_OPS);
    done(r);
}

static void test_torchtitan_findings(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_TORCHTITAN, 8, NULL,
                             "[paralelism]\n[parallelism]\ntensor_parallel_degre = 2\n"
                             "[model]\nname = \"llama4\"\nflavor = \"17bx128e\"\n"
                             "[activation_checkpoint]\nmode = \"memory_budget\"\n");
    exchange_says(&r->notes, "nearest is 'parallelism'");
    exchange_says(&r->notes, "nearest is 'tensor_parallel_degree'");
    exchange_says(&r->notes, "model llama4 17bx128e is not known here");
    exchange_says(&r->notes, "'memory_budget' is taken as none");
    exchange_count(&r->notes, 4);
    done(r);
    refused(ECH_FORMAT_TORCHTITAN, "[parallelism]\ndata_parallel_shard_degree = 0\n", ECH_E_CONFIG,
            "wanted -1 or");
    refused(ECH_FORMAT_TORCHTITAN,
            "[parallelism]\npipeline_parallel_degree = 4\n"
            "module_fqns_per_model_part = [[\"a\"], [\"b\"], [\"c\"]]\n",
            ECH_E_CONFIG, "3 stages are no multiple");
    refused(ECH_FORMAT_TORCHTITAN, "[training]\nseq_len = \"long\"\n", ECH_E_CONFIG,
            "seq_len is 'long'");
    refused(ECH_FORMAT_TORCHTITAN, "[training\n", ECH_E_PARSE, "file:1:10");
}

/* --- Accelerate --- */

static void test_accelerate_values(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_ACCELERATE, 0, NULL,
                             "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"
                             "num_processes: 16\nnum_machines: 2\nmixed_precision: bf16\n"
                             "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n"
                             "  fsdp_reshard_after_forward: false\n"
                             "  fsdp_activation_checkpointing: true\n"
                             "dynamo_backend: INDUCTOR\n");
    assert_int_equal(r->job.system, ECH_SYSTEM_FSDP2);
    assert_int_equal(r->point.dp, 16);
    assert_int_equal(r->point.zero_stage, 3);
    assert_false(r->point.reshard_after_forward);
    assert_int_equal(r->point.recompute, ECH_RECOMPUTE_FULL);
    assert_int_equal(r->point.offload_params, ECH_OFFLOAD_HOST);
    assert_int_equal(r->point.offload_optimizer, ECH_OFFLOAD_HOST);
    assert_false(r->job.has_master);
    assert_true(r->job.is_compiled);
    exchange_count(&r->notes, 0);
    done(r);
    /* Version 1 by strategy; a hybrid's group is a node. */
    r = reads(ECH_FORMAT_ACCELERATE, 0, NULL,
              "distributed_type: FSDP\nnum_processes: 32\n"
              "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD_ZERO2}\n");
    assert_int_equal(r->point.zero_group, 8);
    assert_false(r->point.reshard_after_forward);
    assert_int_equal(r->job.precision, ECH_PRECISION_FP32);
    done(r);
    r = reads(
        ECH_FORMAT_ACCELERATE, 0, NULL,
        "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_sharding_strategy: 3}\n");
    assert_int_equal(r->point.zero_stage, 0);
    done(r);
    r = reads(ECH_FORMAT_ACCELERATE, 0, NULL,
              "distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: fp16\n");
    assert_int_equal(r->point.zero_stage, 0);
    assert_int_equal(r->job.precision, ECH_PRECISION_FP16);
    done(r);
    r = reads(ECH_FORMAT_ACCELERATE, 0, NULL,
              "distributed_type: DEEPSPEED\nnum_processes: 4\n"
              "deepspeed_config: {zero_stage: 3, offload_param_device: cpu}\n");
    assert_int_equal(r->job.system, ECH_SYSTEM_DEEPSPEED);
    assert_int_equal(r->point.zero_stage, 3);
    assert_int_equal(r->point.offload_params, ECH_OFFLOAD_HOST);
    done(r);
}

static void test_accelerate_findings(void **state)
{
    (void)state;
    exchange_read *r = reads(ECH_FORMAT_ACCELERATE, 0, NULL,
                             "distributed_type: FSDP\nnum_proceses: 16\nnum_processes: 8\n"
                             "fsdp_config: {fsdp_ofload_params: true}\n");
    exchange_says(&r->notes, "nearest is 'num_processes'");
    exchange_says(&r->notes, "nearest is 'fsdp_offload_params'");
    done(r);
    refused(ECH_FORMAT_ACCELERATE, "distributed_type: MEGATRON_LM\n", ECH_E_CONFIG,
            "wanted FSDP, DEEPSPEED");
    refused(ECH_FORMAT_ACCELERATE,
            "distributed_type: FSDP\nnum_processes: 16\nparallelism_config: "
            "{parallelism_config_dp_shard_size: 8, parallelism_config_tp_size: 4}\n",
            ECH_E_CONFIG, "16 ranks are not tp 4");
    refused(ECH_FORMAT_ACCELERATE,
            "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL}\n", ECH_E_CONFIG,
            "wanted FULL_SHARD");
}

/* --- Echelon --- */

static void test_echelon_values(void **state)
{
    (void)state;
    static const int layers[] = {5, 6, 6, 5};
    exchange_read *r = reads(ECH_FORMAT_ECHELON, 16, NULL,
                             "model: {preset: tinyllama-1.1b}\nbatch: {micro: 2, global: 64}\n"
                             "layout:\n  tp: 2\n  pp: 4\n  schedule: 1f1b\n"
                             "  stages: [5, 6, 6, 5]\n  order: tp-pp-cp-ep-dp\n"
                             "  zero: {stage: 2, reduce: each}\n  recompute: every:3\n");
    assert_int_equal(r->job.precision, ECH_PRECISION_FP32);
    assert_int_equal(r->point.dp, 2);
    assert_int_equal(r->job.seq, 2048); /* the model's context */
    assert_memory_equal(r->point.stage_layers, layers, sizeof layers);
    assert_true(r->point.reduce_each);
    assert_int_equal(r->point.recompute_layers, 2);
    exchange_says(&r->notes, "layout.order 'tp-pp-cp-ep-dp' is taken as");
    done(r);
    refused(ECH_FORMAT_ECHELON, "layout: {pp: 2, stages: [1, 2, 3]}\n", ECH_E_CONFIG,
            "3 numbers, wanted 2 stages");
    refused(ECH_FORMAT_ECHELON, "layout: {recompute: sometimes}\n", ECH_E_CONFIG,
            "layout.recompute 'sometimes'");
    refused(ECH_FORMAT_ECHELON, "model: {preset: lama-2-7b}\n", ECH_E_CONFIG, "llama-2-7b");
    refused(ECH_FORMAT_ECHELON, "layout: {offload: {params: disk}}\n", ECH_E_CONFIG,
            "wanted none, host or nvme:DIR");
}

/* Every key of the schema is known to the reader of layouts: one name each, in train/schema.c. */
static void test_echelon_knows_the_schema(void **state)
{
    (void)state;
    size_t n;
    const ech_option *option = ech_options(&n);
    for (size_t i = 0; i < n; i++) {
        ech_text text = {0};
        exchange_read *r;
        const char *at = option[i].path;
        for (int depth = 0; *at; depth++) {
            const size_t part = strcspn(at, ".");
            ech_text_add(&text, "%*s%.*s:%s\n", 2 * depth, "", (int)part, at,
                         at[part] ? "" : " null");
            at += part + (at[part] == '.');
        }
        if (strncmp(option[i].path, "model", 5) != 0) {
            r = reads(ECH_FORMAT_ECHELON, 1, "llama-2-7b", ech_text_get(&text));
            exchange_count(&r->notes, 0);
            done(r);
        }
        ech_text_fini(&text);
    }
    exchange_read *r = reads(ECH_FORMAT_ECHELON, 1, "llama-2-7b", "layout: {zero: {stag: 1}}\n");
    exchange_says(&r->notes, "nearest is 'stage'");
    done(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_megatron_defaults), cmocka_unit_test(test_megatron_scripts),
        cmocka_unit_test(test_megatron_stages),   cmocka_unit_test(test_megatron_experts),
        cmocka_unit_test(test_megatron_findings), cmocka_unit_test(test_deepspeed_defaults),
        cmocka_unit_test(test_deepspeed_values),  cmocka_unit_test(test_deepspeed_findings),
        cmocka_unit_test(test_deepspeed_auto),    cmocka_unit_test(test_torchtitan_defaults),
        cmocka_unit_test(test_torchtitan_values), cmocka_unit_test(test_torchtitan_findings),
        cmocka_unit_test(test_accelerate_values), cmocka_unit_test(test_accelerate_findings),
        cmocka_unit_test(test_echelon_values),    cmocka_unit_test(test_echelon_knows_the_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
