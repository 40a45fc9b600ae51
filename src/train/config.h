/** @file train/config.h
 *  The configuration: the whole schema of a run as nested plain structs, read from YAML or JSON.
 *
 *  One table (ech_options) holds every key with its default, unit, legal values and line of help.
 *  It feeds the reader, `--set`, `echelon help config`, docs/config.md and the run record.  A value
 *  whose feature is not built yet is refused by its name; no default is such a value.  All findings
 *  are gathered before anything is refused.  Local, pure but for the reading of files. */
#ifndef ECH_TRAIN_CONFIG_H
#define ECH_TRAIN_CONFIG_H

#include "base/status.h"      /* ech_status */
#include "base/text.h"        /* ech_findings, ech_text */
#include "catalog/model.h"    /* ech_model */
#include "data/token_type.h"  /* ech_token_type */
#include "price/job.h"        /* ech_cp_kind */
#include "program/schedule.h" /* ech_schedule */

#include <stdint.h>

/** "auto" of every integer and size; also "none" of data.ignore_id. */
enum { ECH_AUTO = -1 };

/* Choices.  The enumerators stand in the order of the table (schema.c), which says what each means;
 * a test holds them equal. */

typedef enum ech_zero_reduce {
    ECH_ZERO_REDUCE_LAST, /**< once a step */
    ECH_ZERO_REDUCE_EACH  /**< every micro-batch */
} ech_zero_reduce;
typedef enum ech_sp_inputs {
    ECH_SP_REGATHER, /**< gathered again for the weight gradient */
    ECH_SP_KEEP      /**< gathered once and stored */
} ech_sp_inputs;
typedef enum ech_compute {
    ECH_COMPUTE_FP64,
    ECH_COMPUTE_FP32,
    ECH_COMPUTE_BF16,
    ECH_COMPUTE_FP16,
    ECH_COMPUTE_FP8
} ech_compute;
typedef enum ech_wire { ECH_WIRE_AUTO, ECH_WIRE_FP64, ECH_WIRE_FP32, ECH_WIRE_BF16 } ech_wire;
typedef enum ech_fp8_recipe { ECH_FP8_DELAYED, ECH_FP8_BLOCK } ech_fp8_recipe;
typedef enum ech_numerics { ECH_NUMERICS_FAST, ECH_NUMERICS_CANONICAL } ech_numerics;
typedef enum ech_optim_name {
    ECH_OPTIM_ADAMW,
    ECH_OPTIM_SGD,
    ECH_OPTIM_MUON,
    ECH_OPTIM_ADAM8BIT
} ech_optim_name;
typedef enum ech_lr_schedule {
    ECH_LR_CONSTANT,
    ECH_LR_LINEAR,
    ECH_LR_COSINE,
    ECH_LR_WSD
} ech_lr_schedule;
typedef enum ech_on_death { ECH_ON_DEATH_STOP, ECH_ON_DEATH_RESTART } ech_on_death;
typedef enum ech_on_hang { ECH_ON_HANG_STOP, ECH_ON_HANG_RESTART } ech_on_hang;
typedef enum ech_on_nan { ECH_ON_NAN_STOP, ECH_ON_NAN_SKIP, ECH_ON_NAN_ROLLBACK } ech_on_nan;
typedef enum ech_collectives { ECH_COLLECTIVES_OWN, ECH_COLLECTIVES_LIBRARY } ech_collectives;
typedef enum ech_bind { ECH_BIND_CORE, ECH_BIND_NONE } ech_bind;

/** Owned strings. */
typedef struct ech_strings {
    char **item; /**< owned, each owned */
    int n;
} ech_strings;

/** Owned integers; n = 0: auto. */
typedef struct ech_ints {
    int64_t *item; /**< owned */
    int n;
} ech_ints;

/** data: token files.  Paths are absolute or relative to the current directory once read. */
typedef struct ech_config_data {
    ech_strings train;
    ech_strings valid; /**< none: no evaluation */
    ech_strings mask;  /**< one byte a token, 0: no loss; as many files as train, or none */
    int64_t ignore_id; /**< a label that bears no loss; ECH_AUTO: none */
    char *tokenizer;   /**< owned; NULL: none */
    ech_token_type dtype;
    bool pack;
    int64_t seed; /**< of the sample order */
} ech_config_data;

/** batch: in sequences. */
typedef struct ech_config_batch {
    int64_t global; /**< a step's sequences over all ranks; resolved from auto: micro x dp */
    int64_t micro;  /**< of one rank's one pass */
    int64_t seq;    /**< tokens; resolved from auto: model.context */
} ech_config_batch;

/** layout.zero. */
typedef struct ech_config_zero {
    int64_t stage, group, prefetch;
    double bucket_mb; /**< MiB of gradients reduced at once */
    bool reshard_after_forward;
    ech_zero_reduce reduce;
} ech_config_zero;

/** layout. */
typedef struct ech_config_layout {
    bool is_auto;   /**< `layout: auto`: keys that are given are pins (train/auto_layout.h) */
    bool is_chosen; /**< the others are chosen too */
    int64_t tp, pp, cp, ep, etp;
    int64_t dp;  /**< resolved from auto: ranks / (tp cp pp) */
    char *order; /**< owned */
    bool sequence_parallel;
    ech_sp_inputs sequence_parallel_inputs;
    ech_config_zero zero;
    char *schedule;     /**< owned: a name, or the path of a FILE.csv */
    ech_schedule table; /**< owned: what that file says; ranks 0: none, or not read */
    int64_t virtual_stages;
    int64_t schedule_group; /**< micro-batches; 0: pp */
    ech_ints stages;        /**< n = 0: auto */
    int *stage_layers;      /**< owned: resolved from stages, [stages.n]; NULL: auto */
    ech_cp_kind cp_kind;
    int64_t cp_ulysses;
    bool zip;
    char *recompute;           /**< owned: none, full, auto, a list of names ... */
    char *offload_optimizer;   /**< owned: none, host, nvme:DIR */
    char *offload_params;      /**< owned: the same */
    char *offload_activations; /**< owned: the same */
    int64_t loss_chunk;        /**< tokens; ECH_AUTO */
} ech_config_layout;

/** precision; grads and wire are resolved from auto (with fp64 everything is fp64). */
typedef struct ech_config_precision {
    ech_compute compute;
    ech_wire grads, wire_grads, wire_tp;
    ech_fp8_recipe fp8_recipe;
    ech_numerics numerics;
} ech_config_precision;

/** optim. */
typedef struct ech_config_optim {
    ech_optim_name name;
    double lr;
    double betas[2];
    double eps;
    double weight_decay;
    double clip; /**< global norm; 0: off */
    ech_lr_schedule schedule;
    int64_t warmup_steps;
    int64_t decay_steps; /**< wsd: length of the last part; ECH_AUTO: a tenth of train.steps */
    double min_lr;
} ech_config_optim;

/** train. */
typedef struct ech_config_train {
    int64_t steps;      /**< the step to stop at, and the horizon of the lr schedule */
    int64_t log_every;  /**< steps */
    int64_t eval_every; /**< steps; 0: at the end only */
    int64_t seed;       /**< of initialisation and dropout */
} ech_config_train;

/** checkpoint. */
typedef struct ech_config_checkpoint {
    char *dir;           /**< owned */
    int64_t every_steps; /**< 0: writes and looks for nothing */
    int64_t keep;        /**< 0: all */
    bool async;
} ech_config_checkpoint;

/** faults. */
typedef struct ech_config_faults {
    int64_t restarts;
    double backoff_s;
    ech_on_death on_death;
    ech_on_hang on_hang;
    ech_on_nan nan;
    double spike_sigma;      /**< 0: off */
    double watchdog_s;       /**< deadline of every wait for a peer; 0: none */
    int64_t sdc_every_steps; /**< 0: off */
} ech_config_faults;

/** memory: caps in bytes, ECH_AUTO: what the machine has. */
typedef struct ech_config_memory {
    int64_t device_bytes, host_bytes, nvme_bytes, headroom_bytes;
} ech_config_memory;

/** comm. */
typedef struct ech_config_comm {
    ech_collectives collectives;
    ech_ints tree; /**< factors of the data-parallel axis, innermost first; n = 0: auto */
} ech_config_comm;

/** run. */
typedef struct ech_config_run {
    char *dir;       /**< owned; resolved from auto: runs/NAME beside the configuration */
    int64_t threads; /**< of one rank; ECH_AUTO: cores / local ranks, at least one */
    ech_bind bind;
} ech_config_run;

/** Where a key was set. */
typedef struct ech_config_place {
    int line, column;   /**< in the file; 0: unknown */
    const char *set_by; /**< NULL: the file or a default; else the `--set` argument, borrowed */
} ech_config_place;

/** A whole configuration.  Everything it points to is its own but ech_config_place.set_by. */
typedef struct ech_config {
    char *path;       /**< owned: the file it was read from; NULL: defaults alone */
    ech_model model;  /**< by catalog */
    char *model_json; /**< owned: the model map as given (paths resolved), for the record */
    char *model_hf;   /**< owned: what model.hf names, absolute; NULL: not given */
    ech_config_data data;
    ech_config_batch batch;
    ech_config_layout layout;
    ech_config_precision precision;
    ech_config_optim optim;
    ech_config_train train;
    ech_config_checkpoint checkpoint;
    ech_config_faults faults;
    ech_config_memory memory;
    ech_config_comm comm;
    ech_config_run run;
    ech_config_place *place; /**< owned, one for each row of the table */
} ech_config;

/** What a configuration is read from and for. */
typedef struct ech_config_source {
    const char *path; /**< file, YAML (or JSON, which is YAML); NULL: defaults and sets */
    const char *text; /**< borrowed: read instead of the file, which only gives the names */
    size_t text_bytes;
    const char *const *sets; /**< [n_sets] "a.b=value", later ones win; borrowed, outlive cfg */
    size_t n_sets;
    int ranks;       /**< ranks of the run; 0: not known, the layout says how many */
    bool needs_data; /**< no data.train is a finding; beside others, a file that is not there too */
} ech_config_source;

/** Read, resolve and validate: the one call a command needs.
 *  Relative paths are taken from the folder of the file that names them, those of `sets` from the
 *  current directory.
 *  @param source  borrowed
 *  @param out     set on success only; release with ech_config_fini
 *  @return ECH_OK
 *        | ECH_E_IO           the file cannot be read
 *        | ECH_E_PARSE        it is no YAML
 *        | ECH_E_CONFIG       with all findings, a line each: unknown keys with the nearest known
 *                             one, wrong types, values out of range, impossible combinations with
 *                             the nearest legal one
 *        | ECH_E_UNSUPPORTED  every finding is a value not built yet
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_config_load(const ech_config_source *source, ech_config *out);

/** Defaults alone (no model, nothing resolved).
 *  @param out  set on success only; release with ech_config_fini
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_config_init(ech_config *out);

/** Fill in what is auto from the model and the number of ranks: layout.dp, batch.global, batch.seq,
 *  precision.grads and wire, run.dir; layout.stage_layers follows layout.stages.  What cannot be resolved stays auto and is a finding of
 *  ech_config_validate.  Idempotent.
 *  @param cfg    in/out
 *  @param ranks  0: not known, dp auto becomes 1
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_config_resolve(ech_config *cfg, int ranks);

/** Check the combinations of a resolved configuration and add every finding.
 *  @param cfg       borrowed
 *  @param ranks     0: not known
 *  @param findings  in/out
 *  @return ECH_OK, also with findings | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_config_validate(const ech_config *cfg, int ranks,
                                            ech_findings *findings);

/** Ranks the layout makes: tp cp pp dp of a resolved configuration. */
int64_t ech_config_world(const ech_config *cfg);

/** Micro-batches a rank accumulates in one step: global / (micro dp). */
int64_t ech_config_accumulation(const ech_config *cfg);

/** Bytes of one gradient bucket. */
size_t ech_config_bucket_bytes(const ech_config *cfg);

/** Append the whole configuration as a JSON document (which is YAML): reading it again gives an
 *  equal configuration.
 *  @param cfg  borrowed
 *  @param out  in/out */
void ech_config_to_json(const ech_config *cfg, ech_text *out);

/** Release and zero. */
void ech_config_fini(ech_config *cfg);

#endif
