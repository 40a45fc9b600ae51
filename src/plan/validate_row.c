/* A published row as a job and a layout. */
#include "base/locale.h"
#include "plan/validate_private.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a row is read from and into. */
typedef struct row_reader {
    const ech_table_row *row;
    const char *path;
    ech_findings *findings;
    const ech_software *software;
    ech_row_numbers n;
    ech_published *out;
} row_reader;

/* --- words for the row --- */

static void add_words(char *to, size_t room, const char *fmt, va_list args)
{
    const size_t n = strlen(to);
    if (n > 0 && n + 2 < room)
        (void)snprintf(to + n, room - n, ", ");
    const size_t at = strlen(to);
    (void)vsnprintf(to + at, room - at, fmt, args);
}

void ech_published_assume(ech_published *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_words(p->assumed, sizeof p->assumed, fmt, args);
    va_end(args);
}

void ech_published_skip(ech_published *p, const char *fmt, ...)
{
    if (p->skipped[0])
        return;
    va_list args;
    va_start(args, fmt);
    add_words(p->skipped, sizeof p->skipped, fmt, args);
    va_end(args);
    for (char *at = p->skipped; *at; at++) /* one line, whatever was quoted */
        if (*at == '\n')
            *at = at[1] ? ';' : '\0';
}

/* --- cells --- */

static const char *cell(const row_reader *r, ech_column c)
{
    return r->row->cell[c];
}

static void complain(row_reader *r, ech_column c, const char *wanted)
{
    ech_findings_add(r->findings, "%s:%d:%d: %s '%s': wanted %s", r->path, r->row->line,
                     r->row->place[c], ech_column_name(c), cell(r, c), wanted);
}

/* No product of three degrees leaves 64 bits, no count of GPUs 32. */
enum { MAX_DEGREE = 1 << 20, MAX_GPUS = 1 << 30 };

/* A whole number of 1 .. most, 0 where the cell is empty. */
static int64_t read_count(row_reader *r, ech_column c, int64_t most)
{
    const char *words = cell(r, c);
    if (!words[0])
        return 0;
    char *end;
    errno = 0;
    const long long value = strtoll(words, &end, 10);
    if (!isdigit((unsigned char)words[0]) || *end || errno || value < 1 || value > most) {
        char wanted[64];
        (void)snprintf(wanted, sizeof wanted, "a whole number of 1 to %lld, or nothing",
                       (long long)most);
        complain(r, c, wanted);
        return 0;
    }
    return value;
}

/* A number above 0 that begins at `words` within column c, 0 where that is empty. */
static double read_number(row_reader *r, ech_column c, const char *words)
{
    if (!words[0])
        return 0.0;
    char *end;
    const double value = ech_c_strtod(words, &end);
    if (*end || !(value > 0.0) || !isfinite(value)) {
        complain(r, c, "a number above 0");
        return 0.0;
    }
    return value;
}

static bool has(const row_reader *r, ech_column c, const char *word)
{
    return strstr(cell(r, c), word) != NULL;
}

/* One of n words, `other` where the cell is empty; else a finding. */
static int read_choice(row_reader *r, ech_column c, const char *const *words, int n, int other)
{
    ech_text wanted = {0};
    int found = cell(r, c)[0] ? -1 : other;
    for (int i = 0; i < n; i++) {
        if (strcmp(cell(r, c), words[i]) == 0)
            found = i;
        ech_text_add(&wanted, "%s%s", i ? ", " : "", words[i]);
    }
    if (found < 0)
        complain(r, c, ech_text_get(&wanted));
    ech_text_fini(&wanted);
    return found < 0 ? other : found;
}

static void read_numbers(row_reader *r)
{
    const struct {
        ech_column column;
        int64_t *to;
        int64_t most;
    } counts[] = {{ECH_COLUMN_LAYERS, &r->n.layers, ECH_MODEL_LAYERS_MAX},
                  {ECH_COLUMN_HIDDEN, &r->n.hidden, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_FFN, &r->n.ffn, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_HEADS, &r->n.heads, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_KV_HEADS, &r->n.kv_heads, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_VOCAB, &r->n.vocab, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_EXPERTS, &r->n.experts, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_TOPK, &r->n.topk, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_SEQ, &r->n.seq, ECH_MODEL_SIZE_MAX},
                  {ECH_COLUMN_GLOBAL_BATCH, &r->n.global_batch, MAX_GPUS},
                  {ECH_COLUMN_MICRO_BATCH, &r->n.micro, MAX_DEGREE},
                  {ECH_COLUMN_GPUS, &r->n.gpus, MAX_GPUS},
                  {ECH_COLUMN_TP, &r->n.tp, MAX_DEGREE},
                  {ECH_COLUMN_PP, &r->n.pp, MAX_DEGREE},
                  {ECH_COLUMN_VPP, &r->n.vpp, MAX_DEGREE},
                  {ECH_COLUMN_DP, &r->n.dp, MAX_DEGREE},
                  {ECH_COLUMN_CP, &r->n.cp, MAX_DEGREE},
                  {ECH_COLUMN_EP, &r->n.ep, MAX_DEGREE}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i].to = read_count(r, counts[i].column, counts[i].most);
    const char *billions = cell(r, ECH_COLUMN_PARAMS_B);
    const char *dot = strchr(billions, '.');
    r->n.params = 1e9 * read_number(r, ECH_COLUMN_PARAMS_B, billions);
    r->n.params_rounding = 0.5e9 * pow(10.0, dot ? -(double)strlen(dot + 1) : 0.0);
}

/* "bloom-mem" of "bloom-mem-042". */
static void read_id(row_reader *r)
{
    const char *id = cell(r, ECH_COLUMN_ID);
    size_t n = strlen(id);
    if (n == 0 || n >= sizeof r->out->id)
        complain(r, ECH_COLUMN_ID, "a name of 1..39 characters");
    (void)snprintf(r->out->id, sizeof r->out->id, "%s", id);
    while (n > 0 && isdigit((unsigned char)id[n - 1]))
        n--;
    while (n > 0 && id[n - 1] == '-')
        n--;
    if (n >= sizeof r->out->family)
        n = sizeof r->out->family - 1;
    (void)snprintf(r->out->family, sizeof r->out->family, "%.*s", (int)n, id);
}

static void find_software(row_reader *r)
{
    const char *name = cell(r, ECH_COLUMN_SOFTWARE);
    r->software = name[0] ? ech_software_find(name)
                          : ech_software_of(r->out->family, cell(r, ECH_COLUMN_MODEL),
                                            cell(r, ECH_COLUMN_ZERO));
    if (r->software)
        return;
    ech_text names = {0};
    ech_software_names(&names);
    if (name[0])
        complain(r, ECH_COLUMN_SOFTWARE, ech_text_get(&names));
    else
        ech_published_skip(r->out, "software not known; say it in a column 'software': %s",
                           ech_text_get(&names));
    ech_text_fini(&names);
}

/* --- what was measured --- */

static void read_measured(row_reader *r)
{
    static const char *const kinds[] = {"tokens_s_gpu", "iter_time_s", "tflops_per_gpu", "mfu",
                                        "peak_mem_gib"};
    static const char *const memory[] = {"reserved", "allocated", "activations"};
    ech_published *p = r->out;
    p->kind = (ech_measured_kind)read_choice(r, ECH_COLUMN_KIND, kinds, ECH_N_MEASURED,
                                             ECH_MEASURED_ITER_TIME_S);
    if (!cell(r, ECH_COLUMN_KIND)[0])
        complain(r, ECH_COLUMN_KIND, "what was measured");
    const char *value = cell(r, ECH_COLUMN_VALUE);
    p->is_over = value[0] == '>';
    p->measured = read_number(r, ECH_COLUMN_VALUE, value + (p->is_over ? 1 : 0));
    if (p->measured == 0.0)
        ech_published_skip(p, "no measured value");
    const int told = has(r, ECH_COLUMN_NOTES, "max allocated")     ? 1
                     : has(r, ECH_COLUMN_NOTES, "activation part") ? 2
                                                                   : 0;
    const int which = read_choice(r, ECH_COLUMN_MEMORY_KIND, memory, 3, told);
    p->is_allocated = p->kind == ECH_MEASURED_PEAK_MEM_GIB && which == 1;
    p->is_part = p->kind == ECH_MEASURED_PEAK_MEM_GIB && which == 2;
}

/* FLOPs of a step as the source counts them. */
static double flops_of(const row_reader *r)
{
    const ech_model *m = &r->out->model;
    const double s = (double)r->n.seq, b = (double)r->n.global_batch, h = (double)m->hidden;
    const double l = (double)m->layers, v = (double)m->vocab;
    if (r->software->flops == ECH_FLOPS_HARDWARE)
        return 96.0 * b * s * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h));
    return b * s * ech_model_flops_per_token(m, r->n.seq, false);
}

/* --- the job --- */

static ech_precision precision_of(const row_reader *r)
{
    static const struct {
        const char *word;
        ech_precision precision;
    } words[] = {{"NVFP4", ECH_PRECISION_NVFP4},  {"MXFP8", ECH_PRECISION_MXFP8},
                 {"FP8-MX", ECH_PRECISION_MXFP8}, {"FP8", ECH_PRECISION_FP8},
                 {"fp8", ECH_PRECISION_FP8},      {"fp16", ECH_PRECISION_FP16},
                 {"bf16", ECH_PRECISION_BF16},    {"BF16", ECH_PRECISION_BF16},
                 {"tf32", ECH_PRECISION_TF32},    {"fp32", ECH_PRECISION_FP32}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (has(r, ECH_COLUMN_PRECISION, words[i].word))
            return words[i].precision;
    return ECH_N_PRECISIONS;
}

static bool is_yes(row_reader *r, ech_column c, bool other)
{
    static const char *const words[] = {"no", "yes"};
    return read_choice(r, c, words, 2, other) == 1;
}

/* What a fine-tuning run trains, by the model's name. */
static void set_tuning(row_reader *r, ech_job *job)
{
    if (!has(r, ECH_COLUMN_MODEL, "LoRA"))
        return;
    job->tuning = ECH_TUNING_LORA;
    job->lora_rank = 32; /* NeMo's adapter_dim and Megatron-Bridge's dim by default */
    ech_published_assume(r->out, "LoRA rank 32");
}

/* Bytes of gradients: a row's own word, else the software's. */
static void set_gradients(row_reader *r, ech_job *job)
{
    static const char *const words[] = {"fp32", "16bit"};
    const ech_software *s = r->software;
    const int bytes =
        job->precision == ECH_PRECISION_FP16 ? s->grad_bytes_fp16 : s->grad_bytes_bf16;
    const int told = has(r, ECH_COLUMN_NOTES, "mp_mode PURE") || bytes == 2 ? 1 : 0;
    job->grad_bytes = bytes;
    job->wire_bytes = read_choice(r, ECH_COLUMN_REDUCE, words, 2, told) ? 2 : 4;
}

static void set_job(row_reader *r)
{
    static const char *const overlaps[] = {"default", "none", "async-tp"};
    ech_published *p = r->out;
    const ech_software *s = r->software;
    ech_job job = ech_job_default(s->system);
    job.generation = s->generation;
    job.gpus = r->n.gpus;
    job.seq = r->n.seq;
    job.global_batch = r->n.global_batch;
    job.loss = s->loss;
    job.is_rank_by_rank = job.is_rank_by_rank || s->is_rank_by_rank;
    job.has_master = job.has_master || s->has_master;
    job.beside.save = ECH_SAVE_SHARDED; /* a step is measured, not a whole model gathered */
    job.precision = precision_of(r);
    if (job.precision == ECH_N_PRECISIONS) {
        complain(r, ECH_COLUMN_PRECISION, "a precision, such as bf16, fp16, fp8, MXFP8, NVFP4");
        job.precision = ECH_PRECISION_BF16;
    }
    job.is_compiled =
        is_yes(r, ECH_COLUMN_COMPILED,
               s->generation != ECH_GENERATION_FSDP1 && !has(r, ECH_COLUMN_NOTES, "eager"));
    const int told = has(r, ECH_COLUMN_NOTES, "overlap disabled") ? 1
                     : has(r, ECH_COLUMN_NOTES, "AsyncTP")        ? 2
                                                                  : 0;
    job.overlap = (ech_overlap)read_choice(r, ECH_COLUMN_OVERLAP, overlaps, 3, told);
    if (has(r, ECH_COLUMN_MODEL, "tokendrop"))
        job.moe_capacity = 1.0; /* forced balance: each expert its share */
    if (p->model.arch == ECH_ARCH_GPT2)
        p->model.dropout = s->dropout;
    set_gradients(r, &job);
    set_tuning(r, &job);
    p->job = job;
}

/* --- the layout --- */

/* dp: what is left of the GPUs; what the source prints may leave out cp or ep, or slip. */
static void set_degrees(row_reader *r, ech_point *point)
{
    ech_row_numbers *n = &r->n;
    const int64_t rest = (n->tp ? n->tp : 1) * (n->pp ? n->pp : 1) * (n->cp ? n->cp : 1);
    if (n->gpus == 0 || n->gpus % rest != 0) {
        ech_published_skip(r->out, "no layout: tp x pp x cp = %lld does not divide %lld GPUs",
                           (long long)rest, (long long)n->gpus);
        return;
    }
    n->dp = n->gpus / rest;
    point->tp = n->tp ? (int32_t)n->tp : 1;
    point->pp = n->pp ? (int32_t)n->pp : 1;
    point->vpp = n->vpp ? (int32_t)n->vpp : 1;
    point->cp = n->cp ? (int32_t)n->cp : 1;
    point->ep = n->ep ? (int32_t)n->ep : 1;
    point->dp = (int32_t)n->dp;
    point->micro = n->micro ? (int32_t)n->micro : 1;
    point->cp_kind = r->software->cp_kind;
}

/* Expert tensor parallelism: 1 where the experts' ranks have room for it. */
static void set_experts(ech_point *point)
{
    const int64_t ranks = (int64_t)point->tp * point->cp * point->dp;
    point->etp = 1;
    if (point->ep > 1 && ranks % point->ep != 0)
        point->etp = point->tp;
}

/* "zero1 over 8 GPUs in node", "fsdp:SHARD_GRAD_OP", "fsdp over 64", "ddp/dist-optimizer". */
static void set_sharding(row_reader *r, ech_point *point)
{
    const char *words = cell(r, ECH_COLUMN_ZERO);
    const char *zero = strstr(words, "zero");
    if (!words[0] || strcmp(words, "not stated") == 0)
        point->zero_stage = r->software->zero_stage;
    else if (strncmp(words, "fsdp", 4) == 0)
        point->zero_stage = 3;
    else if (strcmp(words, "ddp/dist-optimizer") == 0)
        point->zero_stage = 1;
    else if (zero && zero[4] >= '0' && zero[4] <= '3')
        point->zero_stage = zero[4] - '0';
    else if (strcmp(words, "none") != 0)
        complain(r, ECH_COLUMN_ZERO,
                 "none, zero0..zero3, fsdp:FULL_SHARD, fsdp:SHARD_GRAD_OP, "
                 "fsdp, ddp/dist-optimizer, or nothing");
    /* Torch's pipelines gather units once for all micro-batches. */
    point->reshard_after_forward = !strstr(words, "SHARD_GRAD_OP") && point->pp == 1;
    const char *over = strstr(words, " over ");
    const long group = over && isdigit((unsigned char)over[6]) ? strtol(over + 6, NULL, 10) : 0;
    if (group > 0 && group < (long)point->dp * point->cp)
        point->zero_group = (int32_t)group;
    point->reduce_each = r->software->reduces_each && point->zero_stage >= 2;
}

/* What a row says of recomputation, in words that are read; nothing, where the software has no habit:
 * none, and the options are left to choose among. */
static const char *recompute_words(row_reader *r)
{
    const char *words = cell(r, ECH_COLUMN_RECOMPUTE);
    const bool is_open = !words[0] || strcmp(words, "unknown") == 0;
    r->out->asks_recompute = is_open && !r->software->recomputes;
    if (is_open && r->software->recomputes) {
        ech_published_assume(r->out, "recompute full");
        return "full";
    }
    if (is_open || strncmp(words, "not stated (full-recompute off", 30) == 0)
        return "none";
    return strncmp(words, "selective", 9) == 0 ? "selective" : words;
}

static void set_recompute(row_reader *r, ech_point *point)
{
    int32_t layers = 0;
    if (!ech_recompute_read(recompute_words(r), &r->out->job, &point->recompute, &layers))
        complain(r, ECH_COLUMN_RECOMPUTE, "none, full, selective+SP, selective-op, or nothing");
    point->recompute_layers = layers;
    point->sequence_parallel =
        point->tp > 1 && (r->software->has_sp || has(r, ECH_COLUMN_RECOMPUTE, "+SP"));
}

static void set_schedule(row_reader *r, ech_point *point)
{
    static const char *const words[] = {"none",  "1f1b",  "interleaved-1f1b",
                                        "gpipe", "zb-h1", "zb-v"};
    static const ech_schedule_kind kinds[] = {ECH_SCHEDULE_1F1B,        ECH_SCHEDULE_1F1B,
                                              ECH_SCHEDULE_INTERLEAVED, ECH_SCHEDULE_GPIPE,
                                              ECH_SCHEDULE_ZB_H1,       ECH_SCHEDULE_ZB_V};
    const char *said = cell(r, ECH_COLUMN_SCHEDULE);
    const int which = read_choice(r, ECH_COLUMN_SCHEDULE, words, 6, 1);
    point->schedule = point->vpp > 1 ? ECH_SCHEDULE_INTERLEAVED : kinds[which];
    /* Not said: how many chunks an interleaved rank has; or the schedule at all. */
    r->out->asks_chunks = point->pp > 1 && r->n.vpp == 0 && (which == 2 || !said[0]);
}

/* As many layers each where they divide; else the embedding and the head count as a layer each, where
 * that divides (Megatron's account_for_embedding, BLOOM's 72 - 2); else by cost. */
ech_stage_split ech_published_split(int64_t layers, int64_t stages)
{
    return layers % stages == 0         ? ECH_SPLIT_EVEN
           : (layers + 2) % stages == 0 ? ECH_SPLIT_ENDS
                                        : ECH_SPLIT_BALANCED;
}

static void set_point(row_reader *r)
{
    ech_point point = ech_point_default();
    set_degrees(r, &point);
    set_experts(&point);
    set_sharding(r, &point);
    set_recompute(r, &point);
    set_schedule(r, &point);
    point.split = ech_published_split(r->out->model.layers, (int64_t)point.pp * point.vpp);
    r->out->asks_micro = r->n.micro == 0;
    r->out->point = point;
}

/* Rows of one model, machine and batch, that differ in their layouts. */
static void set_group(row_reader *r)
{
    const ech_published *p = r->out;
    (void)snprintf(r->out->group, sizeof r->out->group,
                   "%lldx%lld/%lld %.24s %lldx%.40s s%lld b%lld %s", (long long)p->model.layers,
                   (long long)p->model.hidden, (long long)p->model.heads, p->family,
                   (long long)r->n.gpus, p->cluster.device_name, (long long)r->n.seq,
                   (long long)r->n.global_batch, ech_precision_name(p->job.precision));
}

static void require(row_reader *r)
{
    const ech_column needed[] = {ECH_COLUMN_SEQ, ECH_COLUMN_GLOBAL_BATCH, ECH_COLUMN_GPUS};
    const int64_t values[] = {r->n.seq, r->n.global_batch, r->n.gpus};
    for (int i = 0; i < 3; i++)
        if (values[i] == 0)
            ech_published_skip(r->out, "no %s", ech_column_name(needed[i]));
}

ech_status ech_published_read(const ech_table_row *row, const char *path, ech_findings *findings,
                              ech_published *out)
{
    *out = (ech_published){.predicted = NAN, .predicted_s = NAN, .measured_s = NAN};
    row_reader r = {.row = row, .path = path, .findings = findings, .out = out};
    read_id(&r);
    read_numbers(&r);
    read_measured(&r);
    require(&r);
    find_software(&r);
    ECH_TRY(ech_published_shape(cell(&r, ECH_COLUMN_MODEL), &r.n,
                                r.software ? r.software->heads : 0, out));
    ECH_TRY(ech_published_machine(cell(&r, ECH_COLUMN_GPU_TYPE), cell(&r, ECH_COLUMN_INTERCONNECT),
                                  out));
    if (has(&r, ECH_COLUMN_VERIFIED, "no"))
        ech_published_assume(out, "some settings from memory");
    if (r.software && !out->skipped[0]) {
        set_job(&r);
        set_point(&r);
        set_group(&r);
    }
    out->assumed_stated = (int)strlen(out->assumed);
    if (r.software && !out->skipped[0]) {
        out->flops_per_step = flops_of(&r);
        out->measured_s = ech_published_seconds(out, out->measured);
    }
    return ECH_OK;
}

/* Dense peak that MFU is told against: of bf16, where the row computes in 8 or 4 bits too. */
static double peak_of(const ech_published *p)
{
    const ech_device *d = &p->cluster.device;
    return d->peak_flops[p->job.precision] > 0.0 ? d->peak_flops[p->job.precision]
                                                 : d->peak_flops[ECH_PRECISION_BF16];
}

double ech_published_seconds(const ech_published *p, double value)
{
    const double gpus = (double)p->job.gpus;
    switch (p->kind) {
    case ECH_MEASURED_ITER_TIME_S:
        return value;
    case ECH_MEASURED_TOKENS_S_GPU:
        return (double)p->job.global_batch * (double)p->job.seq / (value * gpus);
    case ECH_MEASURED_TFLOPS_PER_GPU:
        return p->flops_per_step / (value * 1e12 * gpus);
    case ECH_MEASURED_MFU:
        return p->flops_per_step / (value / 100.0 * peak_of(p) * gpus);
    default:
        return NAN;
    }
}
