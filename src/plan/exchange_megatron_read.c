/* Reading Megatron-LM's arguments; sources as in exchange_megatron.c. */
#include "plan/exchange_megatron.h"
#include "plan/exchange_private.h"

#include <stdlib.h>
#include <string.h>

/* Arguments that this reader understands, and those with watched beginnings that do not touch what a
 * layout says. */
static const char *const known[] = {"--account-for-embedding-in-pipeline-split",
                                    "--account-for-loss-in-pipeline-split",
                                    "--accumulate-allreduce-grads-in-fp32",
                                    "--bf16",
                                    "--batch-size",
                                    "--checkpoint-activations",
                                    "--context-parallel-size",
                                    "--cp-comm-type",
                                    "--cpu-offloading-num-layers",
                                    "--cpu-offloading-retain-pinned-cpu-buffers",
                                    "--cross-entropy-loss-fusion",
                                    "--data-parallel-random-init",
                                    "--data-parallel-sharding-strategy",
                                    "--decoder-first-pipeline-num-layers",
                                    "--decoder-last-pipeline-num-layers",
                                    "--decoder-num-layers",
                                    "--decoder-seq-length",
                                    "--exp-avg-dtype",
                                    "--exp-avg-sq-dtype",
                                    "--expert-model-parallel-size",
                                    "--expert-tensor-parallel-num-weight-shards",
                                    "--expert-tensor-parallel-size",
                                    "--fp16",
                                    "--fp16-lm-cross-entropy",
                                    "--fp4-format",
                                    "--fp4-param-gather",
                                    "--fp4-quantizer-factory",
                                    "--fp4-recipe",
                                    "--fp8-amax-compute-algo",
                                    "--fp8-amax-history-len",
                                    "--fp8-format",
                                    "--fp8-interval",
                                    "--fp8-margin",
                                    "--fp8-output-proj",
                                    "--fp8-param-gather",
                                    "--fp8-quantizer-factory",
                                    "--fp8-recipe",
                                    "--global-batch-size",
                                    "--grad-reduce-in-bf16",
                                    "--micro-batch-size",
                                    "--microbatch-group-size-per-virtual-pipeline-stage",
                                    "--model-parallel-size",
                                    "--moe-expert-capacity-factor",
                                    "--moe-layer-recompute",
                                    "--num-distributed-optimizer-instances",
                                    "--num-experts",
                                    "--num-layers",
                                    "--num-layers-at-end-in-bf16",
                                    "--num-layers-at-start-in-bf16",
                                    "--num-layers-per-virtual-pipeline-stage",
                                    "--num-virtual-stages-per-pipeline-rank",
                                    "--nnodes",
                                    "--nproc-per-node",
                                    "--nproc_per_node",
                                    "--optimizer",
                                    "--optimizer-cpu-offload",
                                    "--optimizer-cuda-graph",
                                    "--optimizer-offload-fraction",
                                    "--pipeline-model-parallel-comm-backend",
                                    "--pipeline-model-parallel-layout",
                                    "--pipeline-model-parallel-size",
                                    "--rampup-batch-size",
                                    "--recompute-activations",
                                    "--recompute-granularity",
                                    "--recompute-method",
                                    "--recompute-modules",
                                    "--recompute-num-layers",
                                    "--seq-length",
                                    "--sequence-parallel",
                                    "--tensor-model-parallel-size",
                                    "--tensor-parallel-num-weight-shards",
                                    "--torch-fsdp2-no-reshard-after-forward",
                                    "--train-iters",
                                    "--train-samples",
                                    "--use-distributed-optimizer",
                                    "--use-megatron-fsdp",
                                    "--use-torch-fsdp2",
                                    "--use-tp-pp-dp-mapping",
                                    "--hidden-size",
                                    "--ffn-hidden-size",
                                    "--num-attention-heads",
                                    "--num-query-groups",
                                    "--group-query-attention",
                                    "--kv-channels",
                                    "--max-position-embeddings",
                                    "--moe-router-topk",
                                    "--moe-ffn-hidden-size",
                                    "--moe-layer-freq",
                                    "--swiglu",
                                    "--vocab-size",
                                    "--untie-embeddings-and-output-weights",
                                    "--normalization",
                                    "--position-embedding-type",
                                    "--qk-layernorm",
                                    "--multi-latent-attention",
                                    "--disable-bias-linear",
                                    "--moe-shared-expert-intermediate-size"};
enum { N_KNOWN = sizeof known / sizeof *known };

/* An unknown argument that begins so is about the layout. */
static const char *const watched[] = {
    "--tensor-",       "--tp",         "--pipeline-",  "--pp",
    "--context-",      "--cp",         "--expert-",    "--ep",
    "--sequence-",     "--recompute-", "--num-layers", "--num-virtual",
    "--virtual",       "--num-expert", "--micro",      "--global-batch",
    "--data-parallel", "--dp",         "--zero",       "--num-dist",
    "--decoder-",      "--account-",   "--cpu-off",    "--optimizer-",
    "--fp8-",          "--fp4-"};
enum { N_WATCHED = sizeof watched / sizeof *watched };

/* Arguments that change what is priced in a way that no layout here can say. */
static const struct {
    const char *name, *what;
} beyond[] = {
    {"--rampup-batch-size", "the batch is taken to have its final size"},
    {"--tensor-parallel-num-weight-shards", "weights are taken to be cut over tp alone"},
    {"--expert-tensor-parallel-num-weight-shards", "experts are taken to be cut over etp alone"},
    {"--moe-layer-recompute", "experts' activations alone are taken to be recomputed"},
    {"--distribute-saved-activations", "saved inputs are taken to be whole"},
    {"--fine-grained-activation-offloading", "activations are taken to stay on the device"},
    {"--hybrid-layer-pattern", "all layers are taken to be transformer layers"},
    {"--hybrid-override-pattern", "all layers are taken to be transformer layers"},
    {"--mtp-num-layers", "layers that predict further tokens are not counted"},
    {"--moe-latent-size", "experts are taken to have the model's width"},
    {"--linear-attention-freq", "attention is taken to be quadratic everywhere"},
    {"--yaml-cfg", "the file it names is not read"},
    {"--decoder-num-layers", "--num-layers is read"},
};
enum { N_BEYOND = sizeof beyond / sizeof *beyond };

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool is_known(const char *word)
{
    for (int i = 0; i < N_KNOWN; i++)
        if (strcmp(known[i], word) == 0)
            return true;
    for (int i = 0; i < N_BEYOND; i++)
        if (strcmp(beyond[i].name, word) == 0)
            return true;
    return false;
}

/* Are two names the same but for up to three characters in one place. */
static bool is_slip(const char *a, const char *b)
{
    const size_t na = strlen(a);
    const size_t nb = strlen(b);
    const size_t longer = na > nb ? na : nb;
    const size_t shorter = na > nb ? nb : na;
    size_t front = 0;
    size_t back = 0;
    while (front < shorter && a[front] == b[front])
        front++;
    while (back < shorter - front && a[na - 1 - back] == b[nb - 1 - back])
        back++;
    return longer - front - back <= 3 && front + back >= 8;
}

/* Megatron has some 900 arguments, most of them about other things: only those that look like ours
 * are told. */
static void tell_unknown(const ech_words *w, ech_findings *notes)
{
    for (int i = 0; i < w->n; i++) {
        const char *word = w->word[i];
        bool is_ours = false;
        if (!ech_word_is_option(word) || is_known(word))
            continue;
        for (int k = 0; k < N_WATCHED && !is_ours; k++)
            is_ours = begins(word, watched[k]);
        const char *near = ech_nearest_name(word, known, N_KNOWN);
        if (is_ours || (near && is_slip(word, near)))
            ech_findings_add(notes, "%s: %.80s is not known%s%s", w->name, word,
                             near ? ": nearest is " : " and left out", near ? near : "");
    }
    for (int i = 0; i < N_BEYOND; i++)
        if (ech_words_has(w, beyond[i].name))
            ech_findings_add(notes, "%s: %s is left out: %s", w->name, beyond[i].name,
                             beyond[i].what);
}

/* A text without one argument that is Megatron's is not Megatron's. */
static void check_any(const ech_words *w)
{
    for (int i = 0; i < w->n; i++)
        if (ech_word_is_option(w->word[i]) && is_known(w->word[i]))
            return;
    if (w->n > 0)
        ech_findings_add(w->errors,
                         "%s: none of its words is an argument of Megatron-LM: is it another "
                         "format?",
                         w->name);
}

/* --- pieces --- */

static void read_degree(const ech_words *w, const char *option, int32_t *out)
{
    int64_t x;
    if (ech_words_int(w, option, 1, ECH_EXCHANGE_DEGREE_MAX, &x))
        *out = (int32_t)x;
}

static bool is_word(const ech_words *w, const char *option, const char *value)
{
    const char *got = ech_words_string(w, option);
    return got && strcmp(got, value) == 0;
}

static void read_cp(const ech_words *w, ech_findings *notes, ech_point *p)
{
    static const struct {
        const char *word;
        ech_cp_kind kind;
    } kinds[] = {{"p2p", ECH_CP_RING},
                 {"allgather", ECH_CP_GATHER},
                 {"all_gather", ECH_CP_GATHER},
                 {"a2a", ECH_CP_ULYSSES},
                 {"a2a+p2p", ECH_CP_USP}};
    const char *const *words;
    const int n = ech_words_values(w, "--cp-comm-type", &words);
    p->cp_kind = ECH_CP_RING;
    for (size_t i = 0; n > 0 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].word, words[0]) == 0)
            p->cp_kind = kinds[i].kind;
    for (int i = 1; i < n; i++)
        if (strcmp(words[i], words[0]) != 0) {
            ech_findings_add(notes,
                             "%s: --cp-comm-type differs from layer to layer: %s is taken for "
                             "all",
                             w->name, words[0]);
            return;
        }
}

/* torchrun's part: ranks. */
static void read_launch(const ech_words *w, ech_exchanged *into)
{
    int64_t node = 0;
    int64_t nodes = 1;
    const char *option =
        ech_words_has(w, "--nproc_per_node") ? "--nproc_per_node" : "--nproc-per-node";
    if (!ech_words_int(w, option, 1, ECH_EXCHANGE_DEGREE_MAX, &node))
        return;
    (void)ech_words_int(w, "--nnodes", 1, ECH_EXCHANGE_DEGREE_MAX, &nodes);
    into->job->gpus = node * nodes;
    into->has_gpus = true;
}

static void read_mesh(const ech_words *w, ech_findings *notes, ech_exchanged *into)
{
    ech_point *p = into->point;
    p->tp = p->pp = p->cp = p->ep = 1;
    read_degree(w, "--model-parallel-size", &p->tp); /* its old name */
    read_degree(w, "--tensor-model-parallel-size", &p->tp);
    read_degree(w, "--pipeline-model-parallel-size", &p->pp);
    read_degree(w, "--context-parallel-size", &p->cp);
    read_degree(w, "--expert-model-parallel-size", &p->ep);
    p->etp = into->job->model && into->job->model->moe.experts == 0 ? 1 : p->tp;
    read_degree(w, "--expert-tensor-parallel-size", &p->etp);
    read_cp(w, notes, p);
    /* Megatron turns it off where there is no tp. */
    p->sequence_parallel = ech_words_has(w, "--sequence-parallel") && p->tp > 1;
    p->order =
        ech_words_has(w, "--use-tp-pp-dp-mapping") ? ECH_ORDER_TP_PP_DP : ECH_ORDER_TP_CP_DP_PP;
}

/* --- stages --- */

static void set_vpp(ech_point *p, int64_t vpp)
{
    p->vpp = (int32_t)vpp;
    p->schedule = vpp > 1 ? ECH_SCHEDULE_INTERLEAVED : ECH_SCHEDULE_1F1B;
}

/* A layout string being read: stages between bars, "t" a layer, "x*3" repeats a letter or a part in
 * parentheses. */
typedef struct layout_string {
    const char *at; /* NULL: not understood */
    int *layers;
    int stages; /* the last is layers[stages - 1] */
    int64_t total;
} layout_string;

static void add_layers(layout_string *s, int64_t n)
{
    s->total += n;
    if (s->total > ECH_MODEL_LAYERS_MAX)
        s->at = NULL;
    else
        s->layers[s->stages - 1] += (int)n;
}

static void next_stage(layout_string *s)
{
    if (s->stages == ECH_EXCHANGE_STAGES) {
        s->at = NULL;
        return;
    }
    s->layers[s->stages++] = 0;
}

static int64_t take_times(layout_string *s)
{
    char *end;
    if (*s->at != '*')
        return 1;
    const long n = strtol(s->at + 1, &end, 10);
    const bool is_good = end != s->at + 1 && n >= 0 && n <= ECH_EXCHANGE_STAGES;
    s->at = is_good ? end : NULL;
    return is_good ? n : 0;
}

static void take_letter(layout_string *s)
{
    const char c = *s->at++;
    const int64_t times = take_times(s);
    if (!s->at)
        return;
    if (c == 't' || c == 'T')
        add_layers(s, times);
    else if (c == '|')
        for (int64_t i = 0; s->at && i < times; i++)
            next_stage(s);
    else if (!strchr("ELeml", c))
        s->at = NULL;
}

/* "(...)*3": the part is read so many times. */
static void take_part(layout_string *s)
{
    const char *from = s->at + 1;
    const char *close = strchr(from, ')');
    if (!close || memchr(from, '(', (size_t)(close - from))) {
        s->at = NULL;
        return;
    }
    s->at = close + 1;
    const int64_t times = take_times(s);
    const char *behind = s->at;
    for (int64_t i = 0; s->at && i < times; i++) {
        s->at = from;
        while (s->at && s->at < close)
            take_letter(s);
        if (s->at)
            s->at = behind;
    }
}

static bool read_layout_string(const char *words, int *layers, int *stages)
{
    layout_string s = {.at = words, .layers = layers, .stages = 1};
    layers[0] = 0;
    while (s.at && *s.at) {
        if (*s.at == ',' || *s.at == ' ')
            s.at++;
        else if (*s.at == '(')
            take_part(&s);
        else
            take_letter(&s);
    }
    *stages = s.stages;
    return s.at != NULL;
}

static void read_layout(const ech_words *w, const char *words, ech_exchanged *into)
{
    ech_point *p = into->point;
    const ech_model *m = into->job->model;
    int stages = 0;
    int64_t sum = 0;
    const bool is_good = read_layout_string(words, into->stage_layers, &stages);
    for (int i = 0; is_good && i < stages; i++)
        sum += into->stage_layers[i];
    if (!is_good || stages % p->pp != 0 || (m && sum != m->layers)) {
        ech_findings_add(w->errors,
                         "%s: --pipeline-model-parallel-layout '%.60s': wanted pp %d or a "
                         "multiple of stages with all layers, such as Et*3|t*4|t*3L",
                         w->name, words, p->pp);
        return;
    }
    set_vpp(p, stages / p->pp);
    p->split = ECH_SPLIT_LIST;
    p->stage_layers = into->stage_layers;
}

/* First and last pipeline rank have other numbers of layers than the rest. */
static void read_uneven(const ech_words *w, ech_exchanged *into)
{
    ech_point *p = into->point;
    int64_t ends[2] = {-1, -1};
    const bool has_first =
        ech_words_int(w, "--decoder-first-pipeline-num-layers", 0, ECH_MODEL_LAYERS_MAX, &ends[0]);
    const bool has_last =
        ech_words_int(w, "--decoder-last-pipeline-num-layers", 0, ECH_MODEL_LAYERS_MAX, &ends[1]);
    const int64_t n = (int64_t)p->pp * p->vpp;
    const int64_t layers = into->job->model ? into->job->model->layers : 0;
    const int64_t rest = layers - (has_first ? ends[0] : 0) - (has_last ? ends[1] : 0);
    const int64_t ranks = p->pp - has_first - has_last;
    if (!layers || n > ECH_EXCHANGE_STAGES || ranks < 0 ||
        (ranks == 0 ? rest != 0 : rest < 0 || rest % (ranks * p->vpp) != 0)) {
        ech_findings_add(w->errors,
                         "%s: --decoder-first-pipeline-num-layers and its last: the rest "
                         "(%lld layers) does not divide over %lld ranks",
                         w->name, (long long)rest, (long long)ranks);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t rank = i % p->pp;
        const int64_t of_rank = has_first && rank == 0          ? ends[0]
                                : has_last && rank == p->pp - 1 ? ends[1]
                                                                : rest / (ranks > 0 ? ranks : 1);
        into->stage_layers[i] = (int)(of_rank / p->vpp);
    }
    p->split = ECH_SPLIT_LIST;
    p->stage_layers = into->stage_layers;
}

static void read_chunks(const ech_words *w, ech_exchanged *into)
{
    ech_point *p = into->point;
    const int64_t ends = ech_words_has(w, "--account-for-embedding-in-pipeline-split") +
                         ech_words_has(w, "--account-for-loss-in-pipeline-split");
    const int64_t layers = into->job->model ? into->job->model->layers + ends : 0;
    int64_t each = 0;
    int64_t vpp = 1;
    p->split = ends == 2 ? ECH_SPLIT_ENDS : ECH_SPLIT_EVEN;
    if (ends == 1)
        ech_findings_add(w->errors,
                         "%s: embedding and loss count as layers of the split together "
                         "or not at all, else give --pipeline-model-parallel-layout",
                         w->name);
    if (ech_words_int(w, "--num-layers-per-virtual-pipeline-stage", 1, ECH_MODEL_LAYERS_MAX,
                      &each)) {
        vpp = layers / p->pp / each;
        if (layers == 0 || vpp == 0 || vpp * p->pp * each != layers)
            ech_findings_add(
                w->errors,
                "%s: --num-layers-per-virtual-pipeline-stage %lld: %lld layers over pp "
                "%d do not divide by it",
                w->name, (long long)each, (long long)layers, p->pp);
    } else {
        (void)ech_words_int(w, "--num-virtual-stages-per-pipeline-rank", 1, ECH_EXCHANGE_STAGES,
                            &vpp);
    }
    set_vpp(p, vpp > 0 && vpp <= ECH_EXCHANGE_STAGES ? vpp : 1);
}

static void read_stages(const ech_words *w, ech_exchanged *into)
{
    const char *words = ech_words_string(w, "--pipeline-model-parallel-layout");
    into->point->split = ECH_SPLIT_EVEN;
    into->point->stage_layers = NULL;
    set_vpp(into->point, 1);
    if (words) {
        read_layout(w, words, into);
        return;
    }
    read_chunks(w, into);
    if (ech_words_has(w, "--decoder-first-pipeline-num-layers") ||
        ech_words_has(w, "--decoder-last-pipeline-num-layers"))
        read_uneven(w, into);
}

/* --- state --- */

static void read_sharding(const ech_words *w, ech_exchanged *into)
{
    static const char *const strategies[] = {"no_shard", "optim", "optim_grads",
                                             "optim_grads_params"};
    ech_point *p = into->point;
    const char *strategy = ech_words_string(w, "--data-parallel-sharding-strategy");
    p->zero_stage = ech_words_has(w, "--use-distributed-optimizer") ? 1 : 0;
    p->reshard_after_forward = true;
    if (ech_words_has(w, "--use-megatron-fsdp")) {
        p->zero_stage = 3;
        for (int i = 0; strategy && i < 4; i++)
            if (strcmp(strategies[i], strategy) == 0)
                p->zero_stage = i;
    }
    if (ech_words_has(w, "--use-torch-fsdp2")) {
        p->zero_stage = 3;
        p->reshard_after_forward = !ech_words_has(w, "--torch-fsdp2-no-reshard-after-forward");
    }
    p->reduce_each = p->zero_stage >= 2;
}

/* Replicas of the sharded optimizer: known once dp is. */
static void read_instances(const ech_words *w, ech_exchanged *into)
{
    ech_point *p = into->point;
    const int64_t all = (int64_t)p->dp * p->cp;
    int64_t instances = 1;
    p->zero_group = 0;
    if (!ech_words_int(w, "--num-distributed-optimizer-instances", 1, ECH_EXCHANGE_DEGREE_MAX,
                       &instances) ||
        instances == 1)
        return;
    if (all % instances != 0)
        ech_findings_add(w->errors,
                         "%s: --num-distributed-optimizer-instances %lld does not divide "
                         "dp x cp = %lld",
                         w->name, (long long)instances, (long long)all);
    else
        p->zero_group = (int32_t)(all / instances);
}

static void read_precision(const ech_words *w, ech_job *job)
{
    const bool is_half = ech_words_has(w, "--fp16");
    const bool is_brain = ech_words_has(w, "--bf16");
    if (is_half && is_brain)
        ech_findings_add(w->errors, "%s: --fp16 and --bf16: one of them", w->name);
    job->precision = is_half    ? ECH_PRECISION_FP16
                     : is_brain ? ECH_PRECISION_BF16
                                : ECH_PRECISION_FP32;
    if (ech_words_has(w, "--fp8-format"))
        job->precision =
            is_word(w, "--fp8-recipe", "mxfp8") ? ECH_PRECISION_MXFP8 : ECH_PRECISION_FP8;
    if (ech_words_has(w, "--fp4-format"))
        job->precision = ECH_PRECISION_NVFP4;
    const bool is_small = is_half ? !ech_words_has(w, "--accumulate-allreduce-grads-in-fp32")
                                  : is_brain && ech_words_has(w, "--grad-reduce-in-bf16");
    job->grad_bytes = job->wire_bytes = is_small ? 2 : 4;
    job->has_master = is_half || is_brain;
}

static void read_optimizer(const ech_words *w, ech_findings *notes, ech_exchanged *into)
{
    ech_job *job = into->job;
    const char *name = ech_words_string(w, "--optimizer");
    job->optimizer = ECH_OPTIMIZER_ADAMW;
    if (name && strcmp(name, "sgd") == 0)
        job->optimizer = ECH_OPTIMIZER_SGD;
    else if (name && (strcmp(name, "muon") == 0 || strcmp(name, "dist_muon") == 0))
        job->optimizer = ECH_OPTIMIZER_MUON;
    else if (name && strcmp(name, "adam") != 0)
        ech_findings_add(notes, "%s: --optimizer %.20s is not known: adam is taken", w->name, name);
    else if (is_word(w, "--exp-avg-dtype", "fp8"))
        job->optimizer = ECH_OPTIMIZER_ADAMW_8BIT;
    else if (is_word(w, "--exp-avg-dtype", "bf16") || is_word(w, "--exp-avg-dtype", "fp16"))
        job->optimizer = ECH_OPTIMIZER_ADAMW_BF16;
    double share = 1;
    into->point->offload_optimizer =
        ech_words_has(w, "--optimizer-cpu-offload") ? ECH_OFFLOAD_HOST : ECH_OFFLOAD_NONE;
    if (ech_words_real(w, "--optimizer-offload-fraction", &share) && share != 1)
        ech_findings_add(notes,
                         "%s: --optimizer-offload-fraction %g: all of it is taken to be on "
                         "the host",
                         w->name, share);
}

/* --- recomputation --- */

static uint32_t module_bit(const char *word)
{
    static const struct {
        const char *word;
        uint32_t bit;
    } modules[] = {{"core_attn", ECH_RECOMPUTE_ATTENTION},
                   {"layernorm", ECH_RECOMPUTE_NORM},
                   {"moe_act", ECH_RECOMPUTE_MOE},
                   {"mla_up_proj", ECH_RECOMPUTE_MLA}};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strcmp(modules[i].word, word) == 0)
            return modules[i].bit;
    return 0;
}

static void read_modules(const ech_words *w, ech_findings *notes, ech_point *p)
{
    const char *const *words;
    const int n = ech_words_values(w, "--recompute-modules", &words);
    p->recompute = n > 0 ? 0 : ECH_RECOMPUTE_ATTENTION; /* Megatron's default */
    for (int i = 0; i < n; i++) {
        const uint32_t bit = module_bit(words[i]);
        p->recompute |= bit;
        if (!bit)
            ech_findings_add(notes,
                             "%s: --recompute-modules %.30s is left out: known are core_attn, "
                             "layernorm, moe_act, mla_up_proj",
                             w->name, words[i]);
    }
}

/* Of every stage so many layers; one by one where a unit is one layer. */
static void read_full(const ech_words *w, ech_findings *notes, ech_point *p)
{
    int64_t n = 1;
    const bool has_n = ech_words_int(w, "--recompute-num-layers", 1, ECH_MODEL_LAYERS_MAX, &n);
    p->recompute = ECH_RECOMPUTE_FULL;
    if (is_word(w, "--recompute-method", "block"))
        p->recompute_layers = (int32_t)n;
    else if (has_n && n > 1)
        ech_findings_add(notes,
                         "%s: --recompute-num-layers %lld with the uniform method: units of "
                         "one layer are taken, which keep more inputs",
                         w->name, (long long)n);
}

static void read_recompute(const ech_words *w, ech_findings *notes, ech_point *p)
{
    p->recompute = 0;
    p->recompute_layers = 0;
    if (is_word(w, "--recompute-granularity", "full") ||
        ech_words_has(w, "--checkpoint-activations"))
        read_full(w, notes, p);
    else if (is_word(w, "--recompute-granularity", "selective") ||
             ech_words_has(w, "--recompute-activations"))
        read_modules(w, notes, p);
    if (ech_words_has(w, "--moe-layer-recompute"))
        p->recompute |= ECH_RECOMPUTE_MOE;
}

static void read_activations(const ech_words *w, ech_findings *notes, ech_exchanged *into)
{
    int64_t n = 0;
    const int64_t layers = into->job->model ? into->job->model->layers : 0;
    into->point->offload_activations = ECH_OFFLOAD_NONE;
    into->point->offload_params = ECH_OFFLOAD_NONE;
    if (!ech_words_int(w, "--cpu-offloading-num-layers", 0, ECH_MODEL_LAYERS_MAX, &n) || n == 0)
        return;
    into->point->offload_activations = ECH_OFFLOAD_HOST;
    if (n + 1 < layers)
        ech_findings_add(notes,
                         "%s: --cpu-offloading-num-layers %lld of %lld: all layers are taken",
                         w->name, (long long)n, (long long)layers);
}

/* --- batch --- */

static void read_batch(const ech_words *w, ech_exchanged *into)
{
    int64_t micro = 0;
    if (ech_words_int(w, "--micro-batch-size", 1, ECH_EXCHANGE_DEGREE_MAX, &micro) ||
        ech_words_int(w, "--batch-size", 1, ECH_EXCHANGE_DEGREE_MAX, &micro))
        into->point->micro = (int32_t)micro;
    (void)ech_words_int(w, "--seq-length", 1, ECH_MODEL_SIZE_MAX, &into->job->seq);
    if (!ech_words_int(w, "--global-batch-size", 1, ECH_MODEL_SIZE_MAX, &into->job->global_batch) &&
        micro > 0)
        into->job->global_batch = micro * into->point->dp;
}

static void read_length(const ech_words *w, ech_job *job)
{
    int64_t n = 0;
    if (ech_words_int(w, "--train-samples", 0, INT64_MAX, &n))
        job->tokens = (double)n * (double)job->seq;
    else if (ech_words_int(w, "--train-iters", 0, INT64_MAX, &n))
        job->tokens = (double)n * (double)job->global_batch * (double)job->seq;
}

static void read_all(const ech_words *w, const ech_exchange_source *src, ech_exchanged *into)
{
    ech_job *job = into->job;
    ech_findings *notes = src->notes;
    check_any(w);
    tell_unknown(w, notes);
    ech_exchange_be(into, ECH_SYSTEM_MEGATRON);
    into->has_model = ech_megatron_read_model(w, notes, into->model);
    if (into->has_model)
        job->model = into->model;
    read_launch(w, into);
    read_mesh(w, notes, into);
    ech_exchange_ranks(src, into, 0);
    read_stages(w, into);
    read_sharding(w, into);
    read_instances(w, into);
    read_precision(w, job);
    read_optimizer(w, notes, into);
    read_recompute(w, notes, into->point);
    read_activations(w, notes, into);
    read_batch(w, into);
    read_length(w, job);
    job->tuning = ECH_TUNING_FULL;
    job->loss = ech_words_has(w, "--cross-entropy-loss-fusion") ? ECH_LOSS_FUSED : ECH_LOSS_DEFAULT;
    job->moe_capacity = 0;
    (void)ech_words_real(w, "--moe-expert-capacity-factor", &job->moe_capacity);
}

ech_status ech_megatron_read(const ech_exchange_source *src, ech_exchanged *into)
{
    ech_words words = {0};
    ECH_TRY(ech_words_read(src->text, src->bytes, src->name, src->errors, &words));
    read_all(&words, src, into);
    ech_words_fini(&words);
    return ECH_OK;
}
