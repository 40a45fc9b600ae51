/* RUN: np=1 timeout=60 tags=fast */
/* The configuration: values, findings all at once, --set, JSON, and back again. */
#include "base/io.h"
#include "kernels/cpu/team.h"
#include "train/config_layout.h"
#include "train/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "config-test-XXXXXX";
static int failures;

#define MODEL                                                                                      \
    "model: {arch: llama, layers: 2, hidden: 64, heads: 4, ffn: 128, vocab: 100, context: 64}\n"

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __func__, __LINE__, #cond);               \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static void expect_int(const char *what, int64_t got, int64_t want)
{
    if (got == want)
        return;
    (void)fprintf(stderr, "%s: got %lld, wanted %lld\n", what, (long long)got, (long long)want);
    failures++;
}

static void expect_text(const char *what, const char *got, const char *want)
{
    if (got && strcmp(got, want) == 0)
        return;
    (void)fprintf(stderr, "%s: got '%s', wanted '%s'\n", what, got ? got : "(null)", want);
    failures++;
}

/* The message holds these words. */
static void expect_words(const char *want)
{
    if (strstr(ech_error_message(), want))
        return;
    (void)fprintf(stderr, "wanted the words\n  %s\nin\n%s\n", want, ech_error_message());
    failures++;
}

static const char *write_config(const char *text)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/run.yaml", folder);
    if (ech_write_whole(path, text, strlen(text)) < 0) {
        (void)fprintf(stderr, "%s\n", ech_error_message());
        exit(EXIT_FAILURE);
    }
    return path;
}

/* Load `text` as a file with n sets for `ranks` ranks. */
static ech_status load(const char *text, int ranks, const char *const *sets, size_t n,
                       ech_config *out)
{
    const ech_config_source source = {
        .path = write_config(text), .sets = sets, .n_sets = n, .ranks = ranks};
    ech_error_clear();
    return ech_config_load(&source, out);
}

static void load_well(const char *text, int ranks, ech_config *out)
{
    if (load(text, ranks, NULL, 0, out) < 0) {
        (void)fprintf(stderr, "refused:\n%s\n%s\n", text, ech_error_message());
        exit(EXIT_FAILURE);
    }
}

/* The text is refused with this status. */
static void refuse(const char *text, int ranks, ech_status want)
{
    ech_config cfg;
    const ech_status st = load(text, ranks, NULL, 0, &cfg);
    if (st >= 0)
        ech_config_fini(&cfg);
    if (st != want) {
        (void)fprintf(stderr, "got %s, wanted %s for:\n%s\n%s\n", ech_status_name(st),
                      ech_status_name(want), text, ech_error_message());
        failures++;
    }
}

/* --- the table --- */

static void test_defaults_are_built(void)
{
    ech_config cfg;
    load_well(MODEL, 3, &cfg);
    expect_int("dp", cfg.layout.dp, 3);
    expect_int("global", cfg.batch.global, 3);
    expect_int("micro", cfg.batch.micro, 1);
    expect_int("seq", cfg.batch.seq, 64);
    expect_int("world", ech_config_world(&cfg), 3);
    expect_int("accumulation", ech_config_accumulation(&cfg), 1);
    expect_int("bucket", (int64_t)ech_config_bucket_bytes(&cfg), 25 << 20);
    expect_int("threads", cfg.run.threads, ECH_AUTO);
    expect_int("grads", cfg.precision.grads, ECH_WIRE_FP32);
    expect_int("wire", cfg.precision.wire_grads, ECH_WIRE_FP32);
    EXPECT(cfg.optim.betas[0] == 0.9 && cfg.optim.betas[1] == 0.95);
    EXPECT(cfg.optim.lr == 3e-4);
    EXPECT(cfg.data.train.n == 0 && cfg.data.tokenizer == NULL && cfg.data.pack);
    char want[128];
    (void)snprintf(want, sizeof want, "%s/ckpt", folder);
    expect_text("checkpoint.dir", cfg.checkpoint.dir, want);
    (void)snprintf(want, sizeof want, "%s/runs/run", folder);
    expect_text("run.dir", cfg.run.dir, want);
    ech_config_fini(&cfg);
}

/* Each row's choices, written out, land on the enumerators of config.h. */
static void test_choices_match_enumerators(void)
{
    static const struct {
        const char *set;
        size_t offset;
        unsigned want;
    } rows[] = {
        {"data.dtype=uint16", offsetof(ech_config, data.dtype), ECH_TOKEN_U16},
        {"data.dtype=int32", offsetof(ech_config, data.dtype), ECH_TOKEN_I32},
        {"data.dtype=uint32", offsetof(ech_config, data.dtype), ECH_TOKEN_U32},
        {"precision.compute=fp64", offsetof(ech_config, precision.compute), ECH_COMPUTE_FP64},
        {"precision.compute=fp32", offsetof(ech_config, precision.compute), ECH_COMPUTE_FP32},
        {"precision.grads=fp32", offsetof(ech_config, precision.grads), ECH_WIRE_FP32},
        {"layout.zero.reduce=each", offsetof(ech_config, layout.zero.reduce), ECH_ZERO_REDUCE_EACH},
        {"layout.sequence_parallel_inputs=keep",
         offsetof(ech_config, layout.sequence_parallel_inputs), ECH_SP_KEEP},
        {"optim.name=sgd", offsetof(ech_config, optim.name), ECH_OPTIM_SGD},
        {"optim.schedule=linear", offsetof(ech_config, optim.schedule), ECH_LR_LINEAR},
        {"optim.schedule=cosine", offsetof(ech_config, optim.schedule), ECH_LR_COSINE},
        {"optim.schedule=wsd", offsetof(ech_config, optim.schedule), ECH_LR_WSD},
        {"run.bind=none", offsetof(ech_config, run.bind), ECH_BIND_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ech_config cfg;
        unsigned got = 0;
        if (load(MODEL "layout: {zero: {stage: 2}}\n", 1, &rows[i].set, 1, &cfg) < 0) {
            (void)fprintf(stderr, "%s: %s\n", rows[i].set, ech_error_message());
            failures++;
            continue;
        }
        memcpy(&got, (const char *)&cfg + rows[i].offset, sizeof got);
        expect_int(rows[i].set, got, rows[i].want);
        ech_config_fini(&cfg);
    }
}

/* Every documented key of model is one the catalogue knows. */
static void test_model_rows_are_known(void)
{
    size_t n = 0;
    const ech_option *row = ech_options(&n);
    for (size_t i = 0; i < n; i++) {
        char set[128];
        const char *sets[] = {set};
        ech_config cfg;
        if (row[i].type != ECH_OPTION_MODEL)
            continue;
        (void)snprintf(set, sizeof set, "%s=null", row[i].path);
        if (load(MODEL, 1, sets, 1, &cfg) == ECH_OK)
            ech_config_fini(&cfg);
        else if (strstr(ech_error_message(), "unknown key")) {
            (void)fprintf(stderr, "%s: %s\n", set, ech_error_message());
            failures++;
        }
    }
}

/* Every row that says what is built refuses something by name, and says it is not built yet. */
static void test_unbuilt_is_refused_by_name(void)
{
    static const char *const sets[] = {"layout.cp=2",
                                       "layout.ep=2",
                                       "layout.etp=2",
                                       "layout.cp_kind=ulysses",
                                       "layout.cp_ulysses=2",
                                       "layout.zip=true",
                                       "layout.recompute=full",
                                       "layout.recompute=[norm, swiglu]",
                                       "layout.recompute=every:2",
                                       "layout.recompute=selective",
                                       "layout.offload.optimizer=host",
                                       "layout.offload.params=nvme:/x",
                                       "layout.offload.activations=host",
                                       "layout.loss_chunk=128",
                                       "precision.compute=bf16",
                                       "precision.compute=fp8",
                                       "precision.grads=bf16",
                                       "precision.grads=fp64",
                                       "precision.wire.grads=bf16",
                                       "precision.wire.tp=bf16",
                                       "precision.fp8.recipe=block",
                                       "precision.numerics=canonical",
                                       "optim.name=muon",
                                       "optim.name=adam8bit",
                                       "checkpoint.async=true",
                                       "faults.restarts=3",
                                       "faults.backoff_s=2",
                                       "faults.on_death=restart",
                                       "faults.on_hang=restart",
                                       "faults.nan=rollback",
                                       "faults.spike_sigma=6",
                                       "faults.sdc_every_steps=100",
                                       "comm.collectives=library",
                                       "data.pack=false"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        ech_config cfg;
        const ech_status st = load(MODEL, 8, &sets[i], 1, &cfg);
        if (st == ECH_OK)
            ech_config_fini(&cfg);
        /* degrees also break ep etp | dp cp tp, so other findings may stand beside */
        if (st != ECH_E_UNSUPPORTED && st != ECH_E_CONFIG) {
            (void)fprintf(stderr, "%s: got %s\n", sets[i], ech_status_name(st));
            failures++;
        }
        expect_words("not built yet");
        expect_words(sets[i]);
    }
    refuse(MODEL "layout: {recompute: full}\n", 1, ECH_E_UNSUPPORTED);
    refuse(MODEL "layout: {recompute: full, dpp: 1}\n", 1, ECH_E_CONFIG);
}

/* --- layouts --- */

static void test_layout_values(void)
{
    ech_config cfg;
    ech_layout l;
    load_well(MODEL "layout: {tp: 2, dp: 12, order: dp-tp-ep-cp-pp, sequence_parallel: true,\n"
                    "         sequence_parallel_inputs: keep, zero: {stage: 3, group: 6,\n"
                    "         prefetch: 2, reshard_after_forward: false, reduce: each}}\n"
                    "batch: {global: 96, micro: 4}\n"
                    "comm: {tree: [3, 2, 2]}\n",
              24, &cfg);
    expect_int("accumulation", ech_config_accumulation(&cfg), 2);
    expect_int("inputs", cfg.layout.sequence_parallel_inputs, ECH_SP_KEEP);
    expect_int("reduce", cfg.layout.zero.reduce, ECH_ZERO_REDUCE_EACH);
    expect_int("layout", ech_config_layout_make(&cfg, 0, &l), ECH_OK);
    expect_int("world", l.world, 24);
    expect_int("tp", l.degree[ECH_AXIS_TP], 2);
    expect_int("shard group", l.degree[ECH_AXIS_DP], 6);
    expect_int("replicas", l.degree[ECH_AXIS_HSDP], 2);
    expect_int("kv", l.degree[ECH_AXIS_KV], 1);
    EXPECT(ech_layout_is_nested(&l)); /* 6 = 3 x 2 */
    EXPECT(l.order[0] == ECH_AXIS_DP && l.order[1] == ECH_AXIS_HSDP && l.order[2] == ECH_AXIS_TP);
    expect_int("inner factors", l.tree[ECH_AXIS_DP].n, 2);
    expect_int("first factor", l.tree[ECH_AXIS_DP].factor[0], 3);
    ech_config_fini(&cfg);
    /* nothing is sharded: the whole of dp is one group, whatever group says of it */
    load_well(MODEL "layout: {dp: 4, zero: {group: 4}}\n", 4, &cfg);
    expect_int("layout", ech_config_layout_make(&cfg, 0, &l), ECH_OK);
    expect_int("whole group", l.degree[ECH_AXIS_DP], 4);
    EXPECT(l.order[0] == ECH_AXIS_TP && l.order[2] == ECH_AXIS_DP && l.order[4] == ECH_AXIS_PP);
    ech_config_fini(&cfg);
}

/* Two key/value heads on four ranks: each is held by two neighbours. */
static void test_layout_shares_heads(void)
{
    static const char *const sets[] = {"model.kv_heads=2"};
    ech_config cfg;
    ech_layout l;
    EXPECT(load(MODEL "layout: {tp: 4}\n", 4, sets, 1, &cfg) == ECH_OK);
    expect_int("layout", ech_config_layout_make(&cfg, 0, &l), ECH_OK);
    expect_int("kv", l.degree[ECH_AXIS_KV], 2);
    ech_config_fini(&cfg);
}

static void test_layout_findings_at_once(void)
{
    refuse(MODEL "layout: {tp: 3, dp: 2, order: tp-dp, sequence_parallel: true,\n"
                 "         zero: {group: 5, reduce: each, prefetch: 9}}\n"
                 "batch: {global: 7, micro: 2, seq: 63}\n"
                 "comm: {tree: [5]}\n",
           8, ECH_E_CONFIG);
    expect_words("run.yaml:2:10: layout.tp: the layout makes 6 ranks, the run has 8; start them "
                 "with --ranks 6");
    expect_words("nearest legal values 2 and 4");
    expect_words("layout.tp: 3 does not divide the model's 4 heads; nearest legal values 2 and 4");
    expect_words("layout.order: 'tp-dp' is no order");
    expect_words("layout.zero.group: 5 does not divide the 2 data parallel ranks; nearest legal "
                 "value 2");
    expect_words("layout.zero.group: a shard group of 5, but zero.stage 0 shards nothing");
    expect_words("layout.zero.reduce: each with zero.stage 0: whole gradients are kept anyway");
    expect_words("layout.zero.prefetch: 9 units ahead, the model has 4; nearest legal value 3");
    expect_words("batch.global: 7 is no multiple of micro 2 x dp 2 = 4");
    expect_words("comm.tree: the factors multiply to 5, the data-parallel axis has 2 ranks; "
                 "legal: auto or [2]");
    refuse(MODEL "layout: {tp: 4, sequence_parallel: true}\nbatch: {micro: 2, seq: 63}\n", 4,
           ECH_E_CONFIG);
    expect_words("batch.seq: sequence parallelism deals out micro 2 x seq 63 tokens to tp 4 ranks");
    expect_words("micro a multiple of 4 would); nearest legal values 62 and 64");
}

/* --- reading --- */

static void test_values(void)
{
    ech_config cfg;
    load_well(MODEL "data: {train: [a.bin, /x/b.bin], valid: held.bin, ignore_id: 99, seed: 7}\n"
                    "batch: {global: 12, micro: 2, seq: 32}\n"
                    "layout: {dp: 3, zero: {bucket_mb: 0.5}, schedule: gpipe}\n"
                    "optim: {name: sgd, lr: 1e-1, betas: [0, 0.5], clip: 0, schedule: cosine,\n"
                    "        warmup_steps: 3, min_lr: 1.0e-5}\n"
                    "train: {steps: 10, eval_every: 0}\n"
                    "comm: {tree: [3]}\n"
                    "run: {dir: 2024, threads: 1}\n"
                    "checkpoint:\n",
              3, &cfg);
    char want[128];
    (void)snprintf(want, sizeof want, "%s/a.bin", folder);
    expect_int("train files", cfg.data.train.n, 2);
    expect_text("relative to the file", cfg.data.train.item[0], want);
    expect_text("absolute", cfg.data.train.item[1], "/x/b.bin");
    expect_int("one path is a list of one", cfg.data.valid.n, 1);
    expect_int("ignore_id", cfg.data.ignore_id, 99);
    expect_int("accumulation", ech_config_accumulation(&cfg), 2);
    expect_int("bucket", (int64_t)ech_config_bucket_bytes(&cfg), 1 << 19);
    EXPECT(cfg.optim.lr == 0.1 && cfg.optim.betas[0] == 0 && cfg.optim.betas[1] == 0.5);
    EXPECT(cfg.optim.min_lr == 1e-5 && cfg.optim.clip == 0);
    expect_int("tree", cfg.comm.tree.n, 1);
    expect_int("factor", cfg.comm.tree.item[0], 3);
    (void)snprintf(want, sizeof want, "%s/2024", folder);
    expect_text("a path that looks like a number", cfg.run.dir, want);
    expect_int("layers", cfg.model.layers, 2);
    ech_config_fini(&cfg);
}

static void test_all_findings_at_once(void)
{
    refuse(
        "model: {arch: llama, lyers: 2, hidden: 64, heads: 4, ffn: 128, vocab: 10, context: 64}\n"
        "data: {train: [a.bin], sed: 2}\n"
        "batch: {global: 7, micro: 2}\n"
        "layout: {dp: 2, zero: {stge: 1}}\n"
        "optim: {lr: fast, name: sdg, betas: [0.9], eps: 0, warmup_steps: 1.0}\n"
        "lr: 1e-3\n"
        "train: {steps: -1}\n"
        "checkpoint: 3\n",
        2, ECH_E_CONFIG);
    char want[256];
    (void)snprintf(want, sizeof want,
                   "%s/run.yaml:2:24: data.sed: unknown key; did you mean data.seed?", folder);
    expect_words(want);
    expect_words("unknown key 'lyers', nearest is 'layers'");
    expect_words("run.yaml:1:22: model");
    expect_words(
        "batch.global: 7 is no multiple of micro 2 x dp 2 = 4; nearest legal values 4 and 8");
    expect_words("layout.zero.stge: unknown key; did you mean layout.zero.stage?");
    expect_words("optim.lr: 'fast' is a string, wanted a number >=0");
    expect_words(
        "optim.name: 'sdg' is not known, wanted adamw, sgd, muon or adam8bit; did you mean sgd?");
    expect_words("optim.betas: a list, wanted a list of two numbers in 0..<1");
    expect_words("optim.eps: 0 is out of range");
    expect_words("optim.warmup_steps: '1.0' is a");
    expect_words("(1)");
    expect_words("run.yaml:6:1: lr: unknown key; did you mean optim.lr?");
    expect_words("train.steps: -1 is out of range, wanted an integer >=1; nearest legal value 1");
    expect_words("checkpoint: an integer, wanted a map of keys");
}

static void test_impossible_combinations(void)
{
    refuse(MODEL "layout: {dp: 3}\n", 4, ECH_E_CONFIG);
    expect_words("tp 1 x cp 1 x pp 1 x dp 3 = 3 ranks");
    expect_words("legal dp for 4 ranks: 4");
    refuse(MODEL "batch: {seq: 65}\n", 1, ECH_E_CONFIG);
    expect_words("65 tokens, the model's context is 64; nearest legal value 64");
    ech_config cfg;
    load_well(MODEL "batch: {seq: 64}\n", 1, &cfg);
    ech_config_fini(&cfg);
    refuse(MODEL "data: {train: [a, b], mask: [m]}\n", 1, ECH_E_CONFIG);
    expect_words("1 mask files for 2 files");
    refuse(MODEL "data: {train: a, mask: m, ignore_id: 3}\n", 1, ECH_E_CONFIG);
    expect_words("wanted one of the two");
    refuse(MODEL "data: {ignore_id: 100}\n", 1, ECH_E_CONFIG);
    expect_words("largest legal value 99");
    refuse("model: {preset: gpt2-124m, vocab: 70000}\ndata: {dtype: uint16}\n", 1, ECH_E_CONFIG);
    expect_words("uint16 cannot hold a vocabulary of 70000");
    refuse(MODEL "comm: {tree: [2, 2]}\n", 6, ECH_E_CONFIG);
    expect_words(
        "the factors multiply to 4, the data-parallel axis has 6 ranks; legal: auto or [2, 3]");
    refuse(MODEL "optim: {schedule: linear, lr: 1e-4, min_lr: 1e-3}\n", 1, ECH_E_CONFIG);
    expect_words("0.001 is above optim.lr 0.0001");
    refuse(MODEL "optim: {schedule: wsd, warmup_steps: 60, decay_steps: 50}\ntrain: {steps: 100}\n",
           1, ECH_E_CONFIG);
    expect_words("nearest legal value 40");
    refuse(MODEL "layout: {order: tp-cp-tp-dp-pp}\n", 1, ECH_E_CONFIG);
    expect_words("no order of tp");
    refuse("data: {seed: 2}\n", 1, ECH_E_CONFIG);
    expect_words("model: missing; wanted a preset");
    refuse("[1, 2]\n", 1, ECH_E_CONFIG);
    expect_words("wanted a map of sections");
    refuse("model: {preset: mixtral-8x7b}\n", 1, ECH_E_UNSUPPORTED);
    expect_words("not built yet");
}

static void test_data_is_needed(void)
{
    ech_config cfg;
    const ech_config_source source = {.path = write_config(MODEL), .ranks = 1, .needs_data = true};
    expect_int("status", ech_config_load(&source, &cfg), ECH_E_CONFIG);
    expect_words("data.train: no token file is named");
}

static void test_bad_files(void)
{
    ech_config cfg;
    const ech_config_source absent = {.path = "no/such.yaml", .ranks = 1};
    expect_int("absent", ech_config_load(&absent, &cfg), ECH_E_CONFIG);
    refuse("model: {a: 1, a: 2}\n", 1, ECH_E_PARSE);
    refuse("model: [\n", 1, ECH_E_PARSE);
    refuse("optim: {lr: .nan}\n" MODEL, 1, ECH_E_PARSE);
    refuse("", 1, ECH_E_CONFIG);
    refuse(MODEL "precision: {compute: \"fp32\\0x\"}\n", 1, ECH_E_CONFIG);
    expect_words("precision.compute: 'fp32' is a string, wanted fp64, fp32");
    refuse(MODEL "run: {dir: \"a\\0b\"}\n", 1, ECH_E_CONFIG);
    refuse(MODEL "batch: {seq: \"auto\\0\"}\n", 1, ECH_E_CONFIG);
}

/* --- set, JSON, round trip --- */

static void test_set(void)
{
    static const char *const sets[] = {
        "optim.lr=1e-5",       "train.steps=3",           "data.train=[x.bin, /y.bin]",
        "model.layers=5",      "optim={name: sgd}",       "optim.betas=[0.1, 0.2]",
        "train.steps=4",       "layout.zero.bucket_mb=1", "comm.tree=2,2",
        "data.tokenizer=none", "checkpoint.dir=out"};
    ech_config cfg;
    if (load(MODEL "optim: {lr: 1, clip: 2}\ndata: {train: a.bin}\n", 4, sets,
             sizeof sets / sizeof sets[0], &cfg) < 0) {
        (void)fprintf(stderr, "%s\n", ech_error_message());
        failures++;
        return;
    }
    EXPECT(cfg.optim.lr == 1e-5 && cfg.optim.clip == 2 && cfg.optim.name == ECH_OPTIM_SGD);
    EXPECT(cfg.optim.betas[0] == 0.1 && cfg.optim.betas[1] == 0.2);
    expect_int("the last one wins", cfg.train.steps, 4);
    expect_int("files", cfg.data.train.n, 2);
    expect_text("relative to the current folder", cfg.data.train.item[0], "x.bin");
    expect_text("checkpoint", cfg.checkpoint.dir, "out");
    expect_int("layers", cfg.model.layers, 5);
    expect_int("hidden stays", cfg.model.hidden, 64);
    expect_int("tree", cfg.comm.tree.n, 2);
    ech_config_fini(&cfg);
}

static void test_set_findings(void)
{
    static const char *const sets[] = {"optim.lrr=1", "steps",      "=3",          "optim.lr=[",
                                       "a..b=1",      "optim.lr=x", "train.steps="};
    ech_config cfg;
    expect_int("status", load(MODEL, 1, sets, sizeof sets / sizeof sets[0], &cfg), ECH_E_CONFIG);
    expect_words("--set optim.lrr=1: optim.lrr: unknown key; did you mean optim.lr?");
    expect_words("--set steps: wanted KEY=VALUE");
    expect_words("--set =3: wanted KEY=VALUE");
    expect_words("--set a..b=1: wanted KEY=VALUE");
    expect_words("--set optim.lr=[: ");
    expect_words("--set optim.lr=x: optim.lr: 'x' is a string");
    expect_words("--set train.steps=: train.steps: null");
}

static void test_json(void)
{
    ech_config cfg;
    load_well("{\n\t\"model\": {\"preset\": \"gpt2-124m\"},\n\t\"optim\": {\"lr\": 1e-5},\n"
              "\t\"batch\": {\"global\": 4, \"micro\": 2, \"seq\": 1024}\n}\n",
              2, &cfg);
    EXPECT(cfg.optim.lr == 1e-5);
    expect_int("layers", cfg.model.layers, 12);
    ech_config_fini(&cfg);
    refuse("{\"model\": {\"preset\": \"gpt2-124m\"}, \"optm\": {\"lr\": 1e-5}}", 2, ECH_E_CONFIG);
    expect_words("optm: unknown key; did you mean optim?");
}

static void test_round_trip(void)
{
    ech_config first;
    ech_config second;
    ech_text a = {0};
    ech_text b = {0};
    load_well(MODEL "data: {train: [a.bin, /x/b.bin], tokenizer: t.json, ignore_id: 3}\n"
                    "batch: {global: 12, micro: 2}\n"
                    "optim: {lr: 0.1, betas: [0.3, 0.123456789012345678], min_lr: 1e-300}\n"
                    "comm: {tree: [2, 3]}\n"
                    "checkpoint: {dir: \"a \\\"quoted\\\" name\"}\n",
              6, &first);
    ech_config_to_json(&first, &a);
    load_well(ech_text_get(&a), 6, &second);
    ech_config_to_json(&second, &b);
    expect_text("read again", ech_text_get(&b), ech_text_get(&a));
    EXPECT(second.optim.betas[1] == first.optim.betas[1] && second.optim.min_lr == 1e-300);
    expect_int("dp stays resolved", second.layout.dp, 6);
    expect_int("same model", memcmp(&first.model, &second.model, sizeof first.model), 0);
    ech_text_fini(&a);
    ech_text_fini(&b);
    ech_config_fini(&first);
    ech_config_fini(&second);
}

/* A Hugging Face folder, relative to the file or, from --set, to the current folder; in the record
 * it is absolute, so that the record works from anywhere. */
static void test_hf_folder(void)
{
    static const char hf[] = "{\"model_type\": \"gpt2\", \"n_layer\": 3, \"n_embd\": 8, "
                             "\"n_head\": 2, \"vocab_size\": 50, \"n_positions\": 16}";
    char path[256];
    char set[256];
    const char *sets[] = {set};
    ech_config cfg;
    ech_config again;
    ech_text text = {0};
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    if (ech_write_whole(path, hf, strlen(hf)) < 0)
        exit(EXIT_FAILURE);
    load_well("model: {hf: config.json}\n", 1, &cfg);
    expect_int("layers", cfg.model.layers, 3);
    ech_config_to_json(&cfg, &text);
    ech_config_fini(&cfg);
    const ech_config_source elsewhere = {
        .path = "else/where.yaml", .text = text.data, .text_bytes = text.bytes, .ranks = 1};
    if (ech_config_load(&elsewhere, &again) < 0) {
        (void)fprintf(stderr, "%s\n", ech_error_message());
        failures++;
    } else {
        expect_int("layers again", again.model.layers, 3);
        ech_config_fini(&again);
    }
    ech_text_fini(&text);
    (void)snprintf(set, sizeof set, "model.hf=%s", folder);
    if (load("model: {layers: 2}\n", 1, sets, 1, &cfg) < 0) {
        (void)fprintf(stderr, "%s\n", ech_error_message());
        failures++;
    } else {
        expect_int("a key beside it changes it", cfg.model.layers, 2);
        expect_int("the rest is the folder's", cfg.model.hidden, 8);
        ech_config_fini(&cfg);
    }
    (void)unlink(path);
}

static void test_fp64_follows(void)
{
    ech_config cfg;
    load_well(MODEL "precision: {compute: fp64, grads: fp32, wire: {grads: fp32}}\n", 1, &cfg);
    expect_int("grads", cfg.precision.grads, ECH_WIRE_FP64);
    expect_int("wire.grads", cfg.precision.wire_grads, ECH_WIRE_FP64);
    expect_int("wire.tp", cfg.precision.wire_tp, ECH_WIRE_FP64);
    ech_config_fini(&cfg);
}

static void test_nearest(void)
{
    expect_text("sibling", ech_option_nearest("optim.warmup"), "optim.warmup_steps");
    expect_text("transposed", ech_option_nearest("trian"), "train");
    expect_text("elsewhere", ech_option_nearest("model.bucket_mb"), "layout.zero.bucket_mb");
    EXPECT(ech_option_nearest("optim.zzzzzzzz") == NULL);
}

/* A configuration asks for no more threads than a team of kernels has. */
static void test_most_threads(void)
{
    char legal[32];
    (void)snprintf(legal, sizeof legal, "1..%d", ECH_TEAM_MAX);
    expect_text("run.threads", ech_option_find("run.threads")->allowed, legal);
}

int main(void)
{
    if (!mkdtemp(folder))
        return EXIT_FAILURE;
    test_defaults_are_built();
    test_choices_match_enumerators();
    test_model_rows_are_known();
    test_unbuilt_is_refused_by_name();
    test_layout_values();
    test_layout_shares_heads();
    test_layout_findings_at_once();
    test_values();
    test_all_findings_at_once();
    test_impossible_combinations();
    test_data_is_needed();
    test_bad_files();
    test_set();
    test_set_findings();
    test_json();
    test_round_trip();
    test_hf_folder();
    test_fp64_follows();
    test_nearest();
    test_most_threads();
    char path[64];
    (void)snprintf(path, sizeof path, "%s/run.yaml", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
