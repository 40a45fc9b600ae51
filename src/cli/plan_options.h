/** @file cli/plan_options.h
 *  Options that plan, fit and sim share: a model, a cluster, a job, and a layout or pins of one.
 *
 *  Values are taken as text and read together, so that all that is wrong is said at once.
 *
 *      ech_plan_options o = {0};
 *      n = ech_plan_options_rows(&o, rows);        then rows of the command's own, ech_opt_parse
 *      ech_plan_options_begin(&o, &findings);      job and layout with the system's defaults
 *      (fit: ech_format_parse into &o.job, &o.point, &o.model)
 *      ech_plan_options_apply(&o, ECH_PLAN_ONE, &findings);
 *      ech_findings_raise(&findings, ECH_E_USAGE)
 *      ...
 *      ech_plan_options_fini(&o)
 *
 *  Local. */
#ifndef ECH_CLI_PLAN_OPTIONS_H
#define ECH_CLI_PLAN_OPTIONS_H

#include "cli/command.h" /* ech_opt */
#include "plan/search.h" /* ech_plan_dim, ech_job, ech_point */
#include "price/cost.h"  /* ech_calibration */

/** Options that take a value. */
#define ECH_PLAN_TEXT_LIST(X)                                                                      \
    X(MODEL, "model")                                                                              \
    X(CLUSTER, "cluster")                                                                          \
    X(GPUS, "gpus")                                                                                \
    X(SEQ, "seq")                                                                                  \
    X(GLOBAL_BATCH, "global-batch")                                                                \
    X(TOKENS, "tokens")                                                                            \
    X(PRECISION, "precision")                                                                      \
    X(ENGINE, "engine")                                                                            \
    X(GENERATION, "generation")                                                                    \
    X(OVERLAP, "overlap")                                                                          \
    X(TUNING, "tuning")                                                                            \
    X(BASE_BITS, "base-bits")                                                                      \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(GRADS, "grads")                                                                              \
    X(LOSS, "loss")                                                                                \
    X(MOE_BALANCE, "moe-balance")                                                                  \
    X(MOE_CAPACITY, "moe-capacity")                                                                \
    X(HEADROOM, "headroom")                                                                        \
    X(TP, "tp")                                                                                    \
    X(PP, "pp")                                                                                    \
    X(VPP, "vpp")                                                                                  \
    X(DP, "dp")                                                                                    \
    X(CP, "cp")                                                                                    \
    X(EP, "ep")                                                                                    \
    X(ETP, "etp")                                                                                  \
    X(ZERO, "zero")                                                                                \
    X(ZERO_GROUP, "zero-group")                                                                    \
    X(MICRO, "micro")                                                                              \
    X(RECOMPUTE, "recompute")                                                                      \
    X(SCHEDULE, "schedule")                                                                        \
    X(ORDER, "order")                                                                              \
    X(SPLIT, "split")                                                                              \
    X(STAGES, "stages")                                                                            \
    X(CP_KIND, "cp-kind")                                                                          \
    X(OFFLOAD_OPTIMIZER, "offload-optimizer")                                                      \
    X(OFFLOAD_PARAMS, "offload-params")                                                            \
    X(OFFLOAD_ACTIVATIONS, "offload-activations")

/** Options that take none. */
#define ECH_PLAN_FLAG_LIST(X)                                                                      \
    X(SP, "sp")                                                                                    \
    X(NO_SP, "no-sp")                                                                              \
    X(RESHARD, "reshard")                                                                          \
    X(NO_RESHARD, "no-reshard")                                                                    \
    X(REDUCE_EACH, "reduce-each")                                                                  \
    X(REDUCE_LAST, "reduce-last")                                                                  \
    X(COMPILE, "compile")                                                                          \
    X(NO_COMPILE, "no-compile")                                                                    \
    X(NO_MASTER, "no-master")

typedef enum ech_plan_text {
#define ECH_PLAN_TEXT_ENUM(name, text) ECH_PLAN_TEXT_##name,
    ECH_PLAN_TEXT_LIST(ECH_PLAN_TEXT_ENUM)
#undef ECH_PLAN_TEXT_ENUM
        ECH_PLAN_N_TEXTS
} ech_plan_text;

typedef enum ech_plan_flag {
#define ECH_PLAN_FLAG_ENUM(name, text) ECH_PLAN_FLAG_##name,
    ECH_PLAN_FLAG_LIST(ECH_PLAN_FLAG_ENUM)
#undef ECH_PLAN_FLAG_ENUM
        ECH_PLAN_N_FLAGS
} ech_plan_flag;

enum { ECH_PLAN_MAX_ROWS = ECH_PLAN_N_TEXTS + ECH_PLAN_N_FLAGS };

/** What is wanted of what is not given. */
typedef enum ech_plan_want {
    ECH_PLAN_SEARCH, /**< dimensions that are not given are searched */
    ECH_PLAN_ONE     /**< one layout: they are 1 or none, dp makes up the GPUs */
} ech_plan_want;

/** Values as typed and as read.  Zero-initialise; release with ech_plan_options_fini. */
typedef struct ech_plan_options {
    const char *text[ECH_PLAN_N_TEXTS]; /**< borrowed from argv; NULL: not given */
    bool flag[ECH_PLAN_N_FLAGS];
    /* read */
    ech_model model;
    ech_cluster cluster;
    bool has_model, has_cluster; /**< they could be read */
    ech_calibration
        *calibration;  /**< owned: the cluster is a machine that 'echelon bench --save' has
                                       measured; NULL: it is not */
    ech_job job;       /**< borrows model and cluster of this struct: do not copy it */
    ech_point point;   /**< stage_layers: owned by this struct, where a list was given */
    uint32_t given;    /**< bit (1 << ech_plan_dim): this dimension was given */
    double headroom;   /**< share of the capacity to leave free */
    int *stage_layers; /**< owned */
    int n_stage_layers;
    ech_text assumed; /**< what was filled in, one thing a line: "sequences of 4096 tokens" */
} ech_plan_options;

/** Rows of all shared options.
 *  @param o     where values go; must stay where it is
 *  @param rows  out [ECH_PLAN_MAX_ROWS]
 *  @return how many */
size_t ech_plan_options_rows(ech_plan_options *o, ech_opt *rows);

/** Job and layout with the defaults of the system that --engine names.
 *  @param o         in/out: job, point
 *  @param findings  added to
 *  @return ECH_OK, also with findings */
ECH_MUST_USE ech_status ech_plan_options_begin(ech_plan_options *o, ech_findings *findings);

/** Read everything that was given into job and layout, and fill in what follows.  With ECH_PLAN_ONE
 *  and no finding the layout's legality is asked too.
 *  @param o         in/out
 *  @param want      of what is not given
 *  @param findings  added to: unknown names with the nearest, numbers with wrong units, what is
 *                   missing, contradictions
 *  @return ECH_OK, also with findings | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_plan_options_apply(ech_plan_options *o, ech_plan_want want,
                                               ech_findings *findings);

/** Release and zero. */
void ech_plan_options_fini(ech_plan_options *o);

/** A count with a suffix: 4096, 8k (binary: 8192), 15T, 300B, 2e12.
 *  @param text    borrowed
 *  @param binary  k, M, G are powers of 1024
 *  @param out     set on success
 *  @return is it one; not with a unit of bytes behind it */
ECH_MUST_USE bool ech_plan_read_count(const char *text, bool binary, double *out);

/** Words of the shared options for a command's usage. */
#define ECH_PLAN_OPTIONS_JOB                                                                       \
    "The job\n"                                                                                    \
    "  --model M          a name ('echelon model list'), a config.json or its folder, or a "       \
    "shape:\n"                                                                                     \
    "                     layers=24,hidden=2304,heads=24,ffn=9216,vocab=51200,arch=gpt|llama\n"    \
    "                     [,kv_heads=8][,experts=8,topk=2,expert_ffn=..]\n"                        \
    "  --cluster C        a name ('echelon plan --cluster list') or a file\n"                      \
    "  --gpus N           devices; of processors: nodes\n"                                         \
    "  --seq N            tokens of a sequence (8k is 8192)\n"                                     \
    "  --global-batch N   sequences of a step\n"                                                   \
    "  --tokens N         to train on in all (15T, 300B): days, money, energy\n"                   \
    "  --precision P      fp32 tf32 fp16 bf16 fp8 mxfp8 nvfp4 (default bf16)\n"                    \
    "  --engine E         echelon megatron deepspeed fsdp2 torchtitan (default echelon)\n"         \
    "  --generation G     of its kernels: megatron-2021 megatron-flash fsdp1 fsdp2-compile\n"      \
    "                     nemo-24+ mcore-0.14 echelon\n"                                           \
    "  --tuning T         full, frozen:N (first N layers and the embedding), lora:R (rank)\n"      \
    "  --base-bits N      of frozen weights: 16, 8 or 4\n"                                         \
    "  --optimizer O      adamw adam8bit adamw-bf16 sgd muon\n"                                    \
    "  --no-master        no fp32 weights beside 16-bit ones\n"                                    \
    "  --grads P          fp32 or bf16: gradients as they are summed and sent\n"                   \
    "  --loss L           fused, eager, chunked:TOKENS (default: as the engine does)\n"            \
    "  --[no-]compile     kernels fused by a compiler\n"                                           \
    "  --overlap O        none, async-tp (default: as the generation does)\n"                      \
    "  --moe-balance X    tokens of the fullest rank over the mean (default 1)\n"                  \
    "  --moe-capacity X   capacity factor; 0: no token is dropped\n"                               \
    "  --headroom X       to leave free: 0.2, 20% or 8GiB (plan: 20% where that is possible)\n"

#define ECH_PLAN_OPTIONS_LAYOUT                                                                    \
    "  --tp --pp --vpp --dp --cp --ep --etp N   degrees; vpp: virtual stages of a rank\n"          \
    "  --micro N          sequences of a micro-batch\n"                                            \
    "  --zero N           0 to 3 (FSDP is 3); --zero-group N: ranks that share state (HSDP)\n"     \
    "  --[no-]reshard     stage 3: gathered weights go between forward and backward\n"             \
    "  --reduce-each, --reduce-last   gradients every micro-batch, or once a step\n"               \
    "  --[no-]sp          sequence parallelism\n"                                                  \
    "  --recompute R      none, full, full:N (layers of a stage), selective, or a list:\n"         \
    "                     attention,norm,act,moe,mla,ops\n"                                        \
    "  --schedule S       1f1b gpipe interleaved zb-h1 zb-v; with --vpp 1f1b is interleaved\n"     \
    "  --split S          stages: balanced (by cost), even, ends; --stages 9,10,10,9: a list\n"    \
    "  --order O          tp-cp-dp-pp tp-cp-pp-dp dp-tp-cp-pp, innermost first\n"                  \
    "  --cp-kind K        ring gather ulysses usp\n"                                               \
    "  --offload-optimizer, --offload-params, --offload-activations none|host|nvme\n"

#endif
