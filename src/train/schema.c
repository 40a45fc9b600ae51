#include "train/schema.h"

#include "layout/layout.h"

#include <stddef.h>
#include <string.h>

#define AT(field) offsetof(ech_config, field)
#define MODEL(name, fallback, unit, doc)                                                           \
    {                                                                                              \
        "model." name, ECH_OPTION_MODEL, 0, fallback, unit, NULL, NULL, doc                        \
    }

static const ech_option rows[] = {
    MODEL("preset", "none", "", "a model of the catalogue by name; the other keys change it"),
    MODEL("hf", "none", "",
          "a Hugging Face model: a folder, whose weights training starts from where it has any, or "
          "a config.json, its shape alone; other keys change it"),
    MODEL("arch", "none", "", "gpt2 or llama: the shape is given by the keys below"),
    MODEL("layers", "required", "", "transformer layers"),
    MODEL("hidden", "required", "", "width of the residual stream"),
    MODEL("heads", "required", "", "query heads"),
    MODEL("kv_heads", "heads", "", "key and value heads; divides heads; built: heads with gpt2"),
    MODEL("head_dim", "hidden / heads", "", "width of a head"),
    MODEL("ffn", "4 hidden (gpt2), required (llama)", "", "inner width of the MLP"),
    MODEL("vocab", "required", "tokens", "size of the vocabulary"),
    MODEL("context", "required", "tokens", "longest sequence"),
    MODEL("norm", "layernorm (gpt2), rmsnorm (llama)", "",
          "layernorm or rmsnorm; built: the default"),
    MODEL("norm_eps", "1e-5", "", "added to the variance in a norm"),
    MODEL("act", "gelu_tanh (gpt2), swiglu (llama)", "",
          "gelu_tanh, gelu, relu, swiglu or geglu; built: the default"),
    MODEL("rope", "none (gpt2), default (llama)", "",
          "a kind, theta as a number, or a map of the keys below; none: learned positions; "
          "built: none with gpt2, the others with llama"),
    MODEL("rope.kind", "default", "", "none, default, linear or llama3"),
    MODEL("rope.theta", "10000", "", "base of the frequencies"),
    MODEL("rope.layout", "half", "",
          "half (element i with i + d/2) or interleaved (2i with 2i + 1)"),
    MODEL("rope.factor", "1", "", "stretch of positions, linear and llama3"),
    MODEL("rope.low_freq_factor", "required (llama3)", "", "bound of the long waves"),
    MODEL("rope.high_freq_factor", "required (llama3)", "", "bound of the short waves"),
    MODEL("rope.original_context", "required (llama3)", "tokens", "before it was stretched"),
    MODEL("rope.partial", "1", "", "share of the head that is rotated; built: 1"),
    MODEL("dropout", "0", "", "share dropped, 0 or more and below 1"),
    MODEL("window", "0", "tokens", "sliding attention window, 0: none; built: none below context"),
    MODEL("tie_embeddings", "true (gpt2), false (llama)", "", "head and token table are one"),
    MODEL("qkv_bias", "true (gpt2), false (llama)", "",
          "biases of query, key and value; built: the default with gpt2"),
    MODEL("qk_norm", "false", "",
          "RMSNorm on queries and keys of a head; built: with llama, without qkv_bias"),
    MODEL("init_std", "0.02", "", "of normal initialisation; residual outputs / sqrt(2 layers)"),
    MODEL("moe", "none", "", "mixture of experts, a map of the keys below; built: none"),
    MODEL("moe.experts", "required", "", "routed experts; 0: dense"),
    MODEL("moe.topk", "required", "", "experts of a token"),
    MODEL("moe.expert_ffn", "ffn", "", "inner width of an expert"),
    MODEL("moe.shared_experts", "0", "", "experts every token goes through"),
    MODEL("moe.shared_ffn", "shared_experts expert_ffn", "", "inner width of all of them together"),
    MODEL("moe.first_dense", "0", "", "first layers with a dense MLP"),
    MODEL("moe.score", "softmax", "", "softmax (renormalised over the chosen) or sigmoid"),
    MODEL("moe.groups", "1", "", "groups of experts a token is limited to"),
    MODEL("moe.mode", "dropless", "", "dropless or drop"),
    MODEL("moe.capacity", "none", "", "tokens of an expert over the even share, drop"),
    MODEL("moe.bound", "worst case", "", "tokens room is made for, dropless"),
    MODEL("moe.aux", "0", "", "coefficient of the balance loss"),
    MODEL("moe.z", "0", "", "coefficient of the router's z loss"),
    MODEL("moe.bias_rate", "0", "", "step of the balance bias"),
    MODEL("mla", "none", "", "latent attention, a map of the keys below; built: none"),
    MODEL("mla.q_lora_rank", "0", "", "width of the queries' latent; 0: none"),
    MODEL("mla.kv_lora_rank", "required", "", "width of the latent of keys and values"),
    MODEL("mla.qk_nope_dim", "required", "", "dimensions of a head without positions"),
    MODEL("mla.qk_rope_dim", "required", "", "rotated dimensions of a head"),
    MODEL("mla.v_dim", "required", "", "width of a head's values"),

    {"data.train", ECH_OPTION_PATHS, AT(data.train), "none", "", NULL, NULL,
     "token files to train on: Megatron .bin with .idx, llm.c or bare (nanoGPT)"},
    {"data.valid", ECH_OPTION_PATHS, AT(data.valid), "none", "", NULL, NULL,
     "held-out token files; none: no evaluation"},
    {"data.mask", ECH_OPTION_PATHS, AT(data.mask), "none", "", NULL, NULL,
     "one mask file for each of data.train: a byte a token, 0 bears no loss"},
    {"data.ignore_id", ECH_OPTION_INT_NONE, AT(data.ignore_id), "none", "token", ">=0", NULL,
     "a label that bears no loss"},
    {"data.tokenizer", ECH_OPTION_PATH, AT(data.tokenizer), "none", "", NULL, NULL,
     "tokenizer.json, to write beside exported weights; training needs none"},
    {"data.dtype", ECH_OPTION_CHOICE, AT(data.dtype), "auto", "",
     "auto|uint8|int8|int16|int32|int64|uint16|uint32", NULL,
     "element type of token files; auto: what the file says, uint16 for a bare one"},
    {"data.pack", ECH_OPTION_BOOL, AT(data.pack), "true", "", NULL, "true",
     "samples are cut from the concatenated documents"},
    {"data.seed", ECH_OPTION_INT, AT(data.seed), "1", "", ">=0", NULL,
     "seed of the order of samples, the same on any layout"},

    {"batch.global", ECH_OPTION_INT_AUTO, AT(batch.global), "auto", "sequences", ">=1", NULL,
     "sequences of one step over all ranks; auto: micro x dp.  Accumulation is derived"},
    {"batch.micro", ECH_OPTION_INT, AT(batch.micro), "1", "sequences", ">=1", NULL,
     "sequences of one pass on one rank"},
    {"batch.seq", ECH_OPTION_INT_AUTO, AT(batch.seq), "auto", "tokens", ">=1", NULL,
     "length of a sequence; auto: model.context"},

    {"layout.auto", ECH_OPTION_BOOL, AT(layout.is_auto), "false", "", NULL, NULL,
     "the fastest layout that fits memory.device is searched for among those the engine executes, "
     "also as `layout: auto`; other keys of layout and batch.micro, where given, stay"},
    {"layout.tp", ECH_OPTION_INT, AT(layout.tp), "1", "ranks", "1..1000000", NULL,
     "tensor parallelism; divides the heads"},
    {"layout.pp", ECH_OPTION_INT, AT(layout.pp), "1", "ranks", "1..1000000", NULL,
     "pipeline parallelism: stages of neighbouring layers"},
    {"layout.cp", ECH_OPTION_INT, AT(layout.cp), "1", "ranks", "1..1000000", "1",
     "context parallelism"},
    {"layout.ep", ECH_OPTION_INT, AT(layout.ep), "1", "ranks", "1..1000000", "1",
     "expert parallelism"},
    {"layout.etp", ECH_OPTION_INT, AT(layout.etp), "1", "ranks", "1..1000000", "1",
     "tensor parallelism of experts"},
    {"layout.dp", ECH_OPTION_INT_AUTO, AT(layout.dp), "auto", "ranks", "1..1000000", NULL,
     "data parallelism; auto: ranks / (tp cp pp), and must match if given"},
    {"layout.order", ECH_OPTION_WORD, AT(layout.order), ECH_ORDER_DEFAULT, "", NULL, NULL,
     "order of the axes over the ranks, fastest first: any order of these five; ep folds into the "
     "others and has no place of its own"},
    {"layout.sequence_parallel", ECH_OPTION_BOOL, AT(layout.sequence_parallel), "false", "", NULL,
     NULL, "norms, dropout and residual sharded by sequence over tp"},
    {"layout.sequence_parallel_inputs", ECH_OPTION_CHOICE, AT(layout.sequence_parallel_inputs),
     "regather", "", "regather|keep", NULL,
     "gathered inputs of column-parallel matrices: gathered again in backward, or kept"},
    {"layout.zero.stage", ECH_OPTION_INT, AT(layout.zero.stage), "0", "", "0..3", NULL,
     "what is sharded: 1 optimizer state, 2 and gradients, 3 and parameters"},
    {"layout.zero.group", ECH_OPTION_INT, AT(layout.zero.group), "0", "ranks", ">=0", NULL,
     "neighbouring data parallel ranks it is sharded over, replicas beside them; 0: all of dp"},
    {"layout.zero.prefetch", ECH_OPTION_INT, AT(layout.zero.prefetch), "1", "units", ">=0", NULL,
     "units gathered ahead, stage 3"},
    {"layout.zero.bucket_mb", ECH_OPTION_REAL, AT(layout.zero.bucket_mb), "25", "MiB", ">0", NULL,
     "gradients summed at once, whole units, where none are sharded (stage 0); from stage 1 on "
     "they go unit by unit; results do not depend on it"},
    {"layout.zero.reshard_after_forward", ECH_OPTION_BOOL, AT(layout.zero.reshard_after_forward),
     "true", "", NULL, NULL, "parameters are freed after forward and gathered again, stage 3"},
    {"layout.zero.reduce", ECH_OPTION_CHOICE, AT(layout.zero.reduce), "last", "", "last|each", NULL,
     "gradients are reduced once a step, or after each micro-batch, stages 2 and 3"},
    {"layout.schedule", ECH_OPTION_WORD, AT(layout.schedule), "1f1b", "",
     "gpipe|1f1b|interleaved|zb-h1|zb-v|FILE.csv", NULL,
     "pipeline schedule, or a table of your own: a line a pipeline rank, cells such as 3B12 "
     "(stage, "
     "F, B, I or W, micro-batch); with pp 1 all names but gpipe are the same"},
    {"layout.virtual_stages", ECH_OPTION_INT, AT(layout.virtual_stages), "1", "chunks", "1..32",
     NULL, "chunks of layers on one rank, interleaved; zb-v always has two"},
    {"layout.schedule_group", ECH_OPTION_INT, AT(layout.schedule_group), "0", "micro-batches",
     "0..65536", NULL,
     "micro-batches that go through a chunk together, interleaved: pp or more; 0: pp"},
    {"layout.stages", ECH_OPTION_INTS_AUTO, AT(layout.stages), "auto", "layers", ">=0", NULL,
     "layers of each stage in the order of the model, as a list, zeros too; auto: balanced by "
     "cost"},
    {"layout.cp_kind", ECH_OPTION_CHOICE, AT(layout.cp_kind), "ring", "", "ring|gather|ulysses|usp",
     "ring", "how attention crosses cp"},
    {"layout.cp_ulysses", ECH_OPTION_INT, AT(layout.cp_ulysses), "1", "ranks", "1..1000000", "1",
     "the Ulysses part of cp, for usp"},
    {"layout.zip", ECH_OPTION_BOOL, AT(layout.zip), "false", "", NULL, "false",
     "two micro-batches interleaved op by op"},
    {"layout.recompute", ECH_OPTION_WORD, AT(layout.recompute), "none", "",
     "none|full|auto|selective|sqrt|every:N|first:N|inflight:N|norm,swiglu,attention,moe", "none",
     "activations computed again in backward instead of stored"},
    {"layout.offload.optimizer", ECH_OPTION_WORD, AT(layout.offload_optimizer), "none", "",
     "none|host|nvme:DIR", "none", "where optimizer state lives"},
    {"layout.offload.params", ECH_OPTION_WORD, AT(layout.offload_params), "none", "",
     "none|host|nvme:DIR", "none", "where parameters wait"},
    {"layout.offload.activations", ECH_OPTION_WORD, AT(layout.offload_activations), "none", "",
     "none|host|nvme:DIR", "none", "where stored activations wait"},
    {"layout.loss_chunk", ECH_OPTION_INT_AUTO, AT(layout.loss_chunk), "auto", "tokens", ">=1",
     "auto", "tokens whose logits are held at once"},

    {"precision.compute", ECH_OPTION_CHOICE, AT(precision.compute), "fp32", "",
     "fp64|fp32|bf16|fp16|fp8", "fp64|fp32",
     "type of weights, activations and products; fp64: of every slot and message"},
    {"precision.grads", ECH_OPTION_CHOICE, AT(precision.grads), "auto", "", "auto|fp64|fp32|bf16",
     "auto|fp64|fp32", "type of accumulated gradients; auto: fp32, fp64 under compute fp64"},
    {"precision.wire.grads", ECH_OPTION_CHOICE, AT(precision.wire_grads), "auto", "",
     "auto|fp64|fp32|bf16", "auto|fp64|fp32", "type of gradients in messages; auto: as grads"},
    {"precision.wire.tp", ECH_OPTION_CHOICE, AT(precision.wire_tp), "auto", "",
     "auto|fp64|fp32|bf16", "auto|fp64|fp32", "type of tp messages; auto: as compute"},
    {"precision.fp8.recipe", ECH_OPTION_CHOICE, AT(precision.fp8_recipe), "delayed", "",
     "delayed|block", "delayed", "how fp8 scales are found, under compute fp8"},
    {"precision.numerics", ECH_OPTION_CHOICE, AT(precision.numerics), "fast", "", "fast|canonical",
     "fast", "canonical: bit-equal across layouts"},

    {"optim.name", ECH_OPTION_CHOICE, AT(optim.name), "adamw", "", "adamw|sgd|muon|adam8bit",
     "adamw|sgd", "optimizer"},
    {"optim.lr", ECH_OPTION_REAL, AT(optim.lr), "3e-4", "", ">=0", NULL, "peak learning rate"},
    {"optim.betas", ECH_OPTION_PAIR, AT(optim.betas), "[0.9, 0.95]", "", "0..<1", NULL,
     "decay of the first and the second moment, adamw"},
    {"optim.eps", ECH_OPTION_REAL, AT(optim.eps), "1e-8", "", ">0", NULL,
     "added to the root of the second moment, adamw"},
    {"optim.weight_decay", ECH_OPTION_REAL, AT(optim.weight_decay), "0.1", "", ">=0", NULL,
     "decoupled decay of matrices; norms, biases and embeddings have none"},
    {"optim.clip", ECH_OPTION_REAL, AT(optim.clip), "1.0", "", ">=0", NULL,
     "largest global gradient norm; 0: off"},
    {"optim.schedule", ECH_OPTION_CHOICE, AT(optim.schedule), "constant", "",
     "constant|linear|cosine|wsd", NULL, "learning rate after warm-up, over train.steps"},
    {"optim.warmup_steps", ECH_OPTION_INT, AT(optim.warmup_steps), "0", "steps", ">=0", NULL,
     "linear rise from 0 to lr, reached at this step"},
    {"optim.decay_steps", ECH_OPTION_INT_AUTO, AT(optim.decay_steps), "auto", "steps", ">=0", NULL,
     "wsd: length of the linear fall to min_lr at the end; auto: a tenth of train.steps"},
    {"optim.min_lr", ECH_OPTION_REAL, AT(optim.min_lr), "0", "", ">=0", NULL,
     "learning rate at the end of linear, cosine and wsd"},

    {"train.steps", ECH_OPTION_INT, AT(train.steps), "1000", "steps", ">=1", NULL,
     "the step to stop at, and the horizon of the learning rate (--steps changes only the stop)"},
    {"train.log_every", ECH_OPTION_INT, AT(train.log_every), "1", "steps", ">=1", NULL,
     "steps between lines of progress"},
    {"train.eval_every", ECH_OPTION_INT, AT(train.eval_every), "100", "steps", ">=0", NULL,
     "steps between evaluations on data.valid; 0: at the end only"},
    {"train.seed", ECH_OPTION_INT, AT(train.seed), "42", "", ">=0", NULL,
     "seed of initialisation and dropout"},

    {"checkpoint.dir", ECH_OPTION_PATH, AT(checkpoint.dir), "ckpt", "", NULL, NULL,
     "where checkpoints are written, a folder step-N each, and looked for when a run starts"},
    {"checkpoint.every_steps", ECH_OPTION_INT, AT(checkpoint.every_steps), "0", "steps", ">=0",
     NULL, "steps between checkpoints, and one at the end; 0: none at all"},
    {"checkpoint.keep", ECH_OPTION_INT, AT(checkpoint.keep), "0", "checkpoints", ">=0", NULL,
     "newest ones of this run kept, those of earlier runs besides; 0: all"},
    {"checkpoint.async", ECH_OPTION_BOOL, AT(checkpoint.async), "false", "", NULL, "false",
     "written under later steps"},

    {"faults.restarts", ECH_OPTION_INT, AT(faults.restarts), "0", "", ">=0", "0",
     "times a run that died is started again"},
    {"faults.backoff_s", ECH_OPTION_REAL, AT(faults.backoff_s), "1", "s", ">=0", "1",
     "wait before a restart"},
    {"faults.on_death", ECH_OPTION_CHOICE, AT(faults.on_death), "stop", "", "stop|restart", "stop",
     "when a rank dies"},
    {"faults.on_hang", ECH_OPTION_CHOICE, AT(faults.on_hang), "stop", "", "stop|restart", "stop",
     "when a rank does not answer"},
    {"faults.nan", ECH_OPTION_CHOICE, AT(faults.nan), "stop", "", "stop|skip|rollback", "stop|skip",
     "when loss or gradient is not finite: the same decision on every rank; skip stops after 10 "
     "steps in a row"},
    {"faults.spike_sigma", ECH_OPTION_REAL, AT(faults.spike_sigma), "0", "sigma", ">=0", "0",
     "a loss this far off is treated like nan; 0: off"},
    {"faults.watchdog_s", ECH_OPTION_REAL, AT(faults.watchdog_s), "60", "s", ">=0", NULL,
     "deadline of a wait for a peer, but for one at its files (a save), unless it is stopped or "
     "gone; "
     "0: none"},
    {"faults.sdc_every_steps", ECH_OPTION_INT, AT(faults.sdc_every_steps), "0", "steps", ">=0", "0",
     "steps between comparisons of replicated state; 0: off"},

    {"memory.device", ECH_OPTION_BYTES_AUTO, AT(memory.device_bytes), "auto", "bytes", ">0", NULL,
     "cap on device memory of a rank, as 8GiB; auto: in train its share of what the machine has "
     "free, in check none"},
    {"memory.host", ECH_OPTION_BYTES_AUTO, AT(memory.host_bytes), "auto", "bytes", ">0", NULL,
     "cap on host memory"},
    {"memory.nvme", ECH_OPTION_BYTES_AUTO, AT(memory.nvme_bytes), "auto", "bytes", ">0", NULL,
     "cap on spilled bytes"},
    {"memory.headroom", ECH_OPTION_BYTES, AT(memory.headroom_bytes), "0", "bytes", ">=0", NULL,
     "left free below each cap"},

    {"comm.collectives", ECH_OPTION_CHOICE, AT(comm.collectives), "own", "", "own|library", "own",
     "own: order and traffic are exact; library: those of MPI"},
    {"comm.tree", ECH_OPTION_INTS_AUTO, AT(comm.tree), "auto", "", ">=2", NULL,
     "factors of dp (shard group and replicas), innermost first: the order in which ranks are "
     "summed; auto: its primes"},

    {"run.dir", ECH_OPTION_PATH_AUTO, AT(run.dir), "auto", "", NULL, NULL,
     "folder of run record and metrics; auto: runs/NAME beside the configuration file"},
    {"run.threads", ECH_OPTION_INT_AUTO, AT(run.threads), "auto", "threads", "1..512", NULL,
     "of one rank; auto: cores / ranks on this host"},
    {"run.bind", ECH_OPTION_CHOICE, AT(run.bind), "core", "", "core|none", NULL,
     "threads keep to a core of their own where there are enough"},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

const ech_option *ech_options(size_t *n)
{
    *n = N_ROWS;
    return rows;
}

const ech_option *ech_option_find(const char *path)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].path, path) == 0)
            return &rows[i];
    return NULL;
}

bool ech_option_is_section(const char *path)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < N_ROWS; i++)
        if (strncmp(rows[i].path, path, n) == 0 && rows[i].path[n] == '.')
            return true;
    return false;
}
