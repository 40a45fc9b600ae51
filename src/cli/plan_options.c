/* Options that plan, fit and sim share, read together so that all that is wrong is said at once. */
#include "cli/plan_options_private.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/locale.h"
#include "price/cost_cluster.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t ech_plan_options_rows(ech_plan_options *o, ech_opt *rows)
{
    size_t n = 0;
    for (int i = 0; i < ECH_PLAN_N_TEXTS; i++)
        rows[n++] = (ech_opt){ech_plan_text_name((ech_plan_text)i), ECH_OPT_STRING, &o->text[i]};
    for (int i = 0; i < ECH_PLAN_N_FLAGS; i++)
        rows[n++] = (ech_opt){ech_plan_flag_name((ech_plan_flag)i), ECH_OPT_FLAG, &o->flag[i]};
    return n;
}

void ech_plan_options_fini(ech_plan_options *o)
{
    free(o->stage_layers);
    free(o->calibration);
    ech_text_fini(&o->assumed);
    *o = (ech_plan_options){0};
}

/* --- begin --- */

ech_status ech_plan_options_begin(ech_plan_options *o, ech_findings *findings)
{
    const int system = ech_plan_read_choice(o, ECH_PLAN_TEXT_ENGINE, findings);
    o->job = ech_job_default(system >= 0 ? (ech_system)system : ECH_SYSTEM_ECHELON);
    o->job.gpus = 0; /* not said yet */
    o->job.seq = 0;
    o->job.global_batch = 0;
    o->job.model = &o->model;
    o->job.cluster = &o->cluster;
    o->point = ech_point_default();
    o->headroom = 0.0;
    return ECH_OK;
}

/* --- the job --- */

static void read_tokens(ech_plan_options *o, ech_findings *findings)
{
    double x;
    const char *text = o->text[ECH_PLAN_TEXT_TOKENS];
    if (!text)
        return;
    if (ech_plan_read_count(text, false, &x) && x >= 1.0) {
        o->job.tokens = x;
        return;
    }
    ech_findings_add(findings,
                     "--tokens %s: wanted a number of tokens, such as 15T, 300B or 2e12%s", text,
                     ech_plan_is_byte_unit(text) ? "; it has no unit of bytes" : "");
}

/* A share, per cent, or bytes of the device's memory. */
static void read_headroom(ech_plan_options *o, ech_findings *findings)
{
    const char *text = o->text[ECH_PLAN_TEXT_HEADROOM];
    char *end;
    int64_t bytes;
    if (!text)
        return;
    double x = ech_c_strtod(text, &end);
    const bool is_number = end != text && isfinite(x);
    if (is_number && strcmp(end, "%") == 0)
        x /= 100.0;
    else if (is_number && *end && ech_parse_bytes(text, &bytes) == ECH_OK)
        x = o->has_cluster ? (double)bytes / o->cluster.device.memory_bytes : 0.0;
    else if (!is_number || *end)
        x = -1.0;
    ech_error_clear();
    if (x >= 0.0 && x < 1.0) {
        o->headroom = x;
        return;
    }
    ech_findings_add(findings,
                     "--headroom %s: wanted a share below 1 (0.2), per cent (20%%) or bytes of the "
                     "device with their unit (8GiB)",
                     text);
}

static void assume(ech_plan_options *o, const char *fmt, ...) ECH_PRINTF(2, 3);

static void assume(ech_plan_options *o, const char *fmt, ...)
{
    char line[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    ech_text_add(&o->assumed, "%s%s", o->assumed.bytes ? "\n" : "", line);
}

/* A machine that bench has measured is a cluster too. */
static ech_status load_cluster(ech_plan_options *o, const char *text)
{
    bool is_there = false;
    bool is_measured = false;
    if (strpbrk(text, "/."))
        ECH_TRY(ech_path_look(text, &is_there));
    if (is_there)
        ECH_TRY(ech_calibration_is_file(text, &is_measured));
    if (!is_measured) {
        const ech_status st = ech_cluster_load(text, &o->cluster);
        /* what was typed and is not there is a wrong word; what cannot be read is the machine's */
        ECH_CHECK(st != ECH_E_IO || is_there, ECH_E_USAGE, "%s: no such file", text);
        return st;
    }
    if (!o->calibration)
        ECH_TRY(ech_calloc(1, sizeof *o->calibration, &o->calibration));
    ECH_TRY(ech_calibration_read(text, o->calibration));
    return ech_calibration_cluster(o->calibration, 0.0, text, &o->cluster);
}

static ech_status read_cluster(ech_plan_options *o, ech_findings *findings)
{
    const char *text = o->text[ECH_PLAN_TEXT_CLUSTER];
    if (!text) {
        if (!o->has_cluster)
            ech_findings_add(findings,
                             "--cluster is missing: a name ('echelon plan --cluster list' "
                             "tells them) or a file");
        return ECH_OK;
    }
    const ech_status st = load_cluster(o, text);
    if (st == ECH_E_IO || st == ECH_E_NOMEM)
        return st;
    o->has_cluster = st == ECH_OK;
    if (st != ECH_OK)
        ech_findings_add(findings, "--cluster %s", ech_error_message());
    ech_error_clear();
    ech_cluster_rebind(&o->cluster);
    return ECH_OK;
}

static ech_status read_model(ech_plan_options *o, ech_findings *findings)
{
    const char *text = o->text[ECH_PLAN_TEXT_MODEL];
    if (!text) {
        if (!o->has_model)
            ech_findings_add(findings,
                             "--model is missing: a name ('echelon model list' tells them), a "
                             "config.json, or a shape such as layers=24,hidden=2304,..");
        return ECH_OK;
    }
    const ech_status st = ech_model_load(text, &o->model);
    if (st == ECH_E_IO || st == ECH_E_NOMEM)
        return st;
    o->has_model = st == ECH_OK;
    if (st != ECH_OK)
        ech_findings_add(findings, "--model %s", ech_error_message());
    ech_error_clear();
    return ECH_OK;
}

/* "lora:16", "frozen:24", "full". */
static void read_tuning(ech_plan_options *o, ech_findings *findings)
{
    const char *text = o->text[ECH_PLAN_TEXT_TUNING];
    const char *colon = text ? strchr(text, ':') : NULL;
    char *end = NULL;
    if (!text || strcmp(text, "full") == 0)
        return;
    const long n = colon ? strtol(colon + 1, &end, 10) : 0;
    const bool is_number = colon && end != colon + 1 && !*end && n >= 1;
    if (is_number && strncmp(text, "lora:", 5) == 0 && n <= 65536) {
        o->job.tuning = ECH_TUNING_LORA;
        o->job.lora_rank = n;
    } else if (is_number && strncmp(text, "frozen:", 7) == 0 &&
               (!o->has_model || n <= o->model.layers)) {
        o->job.tuning = ECH_TUNING_FROZEN;
        o->job.frozen_layers = n;
    } else
        ech_findings_add(findings,
                         "--tuning %s: wanted full, frozen:N (the first N layers%s) or lora:R (a "
                         "rank)",
                         text, o->has_model ? ", at most those of the model" : "");
}

/* What is never stepped is loaded as it is published, also where trained weights are fp32 shards. */
static void assume_base(ech_plan_options *o)
{
    const ech_job *job = &o->job;
    const bool is_wide =
        job->precision == ECH_PRECISION_FP32 || job->precision == ECH_PRECISION_TF32;
    if (job->tuning != ECH_TUNING_LORA || job->base_bits || is_wide)
        return;
    o->job.base_bits = 16;
    assume(o, "the base of adapters in 16 bits (--base-bits)");
}

static void read_loss(ech_plan_options *o, ech_findings *findings)
{
    const char *text = o->text[ECH_PLAN_TEXT_LOSS];
    double chunk;
    if (!text)
        return;
    if (strcmp(text, "fused") == 0)
        o->job.loss = ECH_LOSS_FUSED;
    else if (strcmp(text, "eager") == 0)
        o->job.loss = ECH_LOSS_EAGER;
    else if (strncmp(text, "chunked:", 8) == 0 && ech_plan_read_count(text + 8, true, &chunk) &&
             chunk >= 1.0) {
        o->job.loss = ECH_LOSS_CHUNKED;
        o->job.loss_chunk = (int64_t)chunk;
    } else
        ech_findings_add(findings, "--loss %s: wanted fused, eager or chunked:TOKENS", text);
}

static void read_training(ech_plan_options *o, ech_findings *findings)
{
    int64_t bits;
    ech_job *job = &o->job;
    const char *grads = o->text[ECH_PLAN_TEXT_GRADS];
    const int optimizer = ech_plan_read_choice(o, ECH_PLAN_TEXT_OPTIMIZER, findings);
    if (optimizer >= 0)
        job->optimizer = (ech_optimizer)optimizer;
    if (ech_plan_read_whole(o, ECH_PLAN_TEXT_BASE_BITS,
                            (ech_plan_range){"bits of frozen weights", 4, 16}, &bits, findings))
        job->base_bits = (int)bits;
    if (job->base_bits && job->base_bits != 4 && job->base_bits != 8 && job->base_bits != 16)
        ech_findings_add(findings, "--base-bits %d: wanted 4, 8 or 16", job->base_bits);
    if (grads && strcmp(grads, "fp32") != 0 && strcmp(grads, "bf16") != 0)
        ech_findings_add(findings, "--grads %s: wanted fp32 or bf16", grads);
    else if (grads)
        job->grad_bytes = job->wire_bytes = strcmp(grads, "fp32") == 0 ? 4 : 2;
    if (o->flag[ECH_PLAN_FLAG_NO_MASTER])
        job->has_master = false;
    if (o->flag[ECH_PLAN_FLAG_COMPILE] || o->flag[ECH_PLAN_FLAG_NO_COMPILE])
        job->is_compiled = o->flag[ECH_PLAN_FLAG_COMPILE];
    (void)ech_plan_read_real(o, ECH_PLAN_TEXT_MOE_BALANCE,
                             "tokens of the fullest rank over the mean, >= 1", 1.0,
                             &job->moe_balance, findings);
    (void)ech_plan_read_real(o, ECH_PLAN_TEXT_MOE_CAPACITY, "a factor, >= 0", 0.0,
                             &job->moe_capacity, findings);
    read_tuning(o, findings);
    assume_base(o);
    read_loss(o, findings);
}

/* What a device without the usual 16 bits has instead, the nearest first. */
static void follow_device(ech_plan_options *o)
{
    static const ech_precision instead[] = {ECH_PRECISION_FP16, ECH_PRECISION_FP32};
    const ech_device *device = &o->cluster.device;
    if (!o->has_cluster || device->peak_flops[o->job.precision] > 0.0)
        return;
    for (size_t i = 0; i < sizeof instead / sizeof instead[0]; i++)
        if (device->peak_flops[instead[i]] > 0.0) {
            assume(o, "%s: %s has no units for %s (--precision)", ech_precision_name(instead[i]),
                   device->name, ech_precision_name(o->job.precision));
            o->job.precision = instead[i];
            return;
        }
}

static void read_kernels(ech_plan_options *o, ech_findings *findings)
{
    const int precision = ech_plan_read_choice(o, ECH_PLAN_TEXT_PRECISION, findings);
    const int generation = ech_plan_read_choice(o, ECH_PLAN_TEXT_GENERATION, findings);
    const int overlap = ech_plan_read_choice(o, ECH_PLAN_TEXT_OVERLAP, findings);
    if (overlap >= 0)
        o->job.overlap = (ech_overlap)overlap;
    if (precision >= 0)
        o->job.precision = (ech_precision)precision;
    else if (o->calibration && o->calibration->real == ECH_F32 &&
             o->job.system == ECH_SYSTEM_ECHELON) {
        o->job.precision = ECH_PRECISION_FP32;
        assume(o, "fp32, as the machine was measured (--precision)");
    } else
        follow_device(o);
    if (o->job.precision == ECH_PRECISION_FP32 || o->job.precision == ECH_PRECISION_TF32) {
        o->job.has_master = false; /* the weights are it */
        if (!o->text[ECH_PLAN_TEXT_GRADS])
            o->job.grad_bytes = o->job.wire_bytes = 4;
    }
    if (generation >= 0)
        o->job.generation = (ech_generation)generation;
    else if (o->has_cluster)
        o->job.generation = ech_generation_of(o->job.system, o->cluster.device.kind);
    if (generation < 0 && o->job.system == ECH_SYSTEM_ECHELON &&
        o->job.generation != ECH_GENERATION_ECHELON)
        assume(o, "on %s Echelon is priced with the kernels of %s (--generation, --engine)",
               o->cluster.device.name, ech_generation_name(o->job.generation));
}

/* A length that the model was never trained for is a note, one that it has no rows for a finding. */
static void check_seq(ech_plan_options *o, ech_findings *findings)
{
    const ech_model *m = &o->model;
    if (o->has_model)
        ech_model_take_seq(&o->model, o->job.seq);
    if (!o->has_model || o->job.seq <= m->context)
        return;
    if (m->learned_positions)
        ech_model_validate_seq(m, o->job.seq, findings);
    else
        assume(o, "sequences longer than the model's context of %lld tokens",
               (long long)m->context);
}

static void fill_seq(ech_plan_options *o)
{
    enum { USUAL = 4096 };
    if (o->job.seq || !o->has_model)
        return;
    o->job.seq = o->model.context < USUAL && !o->model.is_context_open ? o->model.context : USUAL;
    assume(o, "sequences of %lld tokens (--seq)", (long long)o->job.seq);
}

/* --- all of it --- */

/* Replicas of a layout that does not say them, or GPUs that are not said. */
static void fill_gpus(ech_plan_options *o, ech_plan_want want, ech_findings *findings)
{
    ech_point *p = &o->point;
    const int64_t replica = (int64_t)p->tp * p->cp * p->pp;
    const bool knows_all = ech_plan_is_given(o, ECH_DIM_TP) && ech_plan_is_given(o, ECH_DIM_PP) &&
                           ech_plan_is_given(o, ECH_DIM_DP) && ech_plan_is_given(o, ECH_DIM_CP);
    if (!o->job.gpus && (want == ECH_PLAN_ONE || knows_all))
        o->job.gpus = replica * p->dp;
    if (!o->job.gpus && o->has_cluster && o->cluster.devices)
        o->job.gpus = o->cluster.devices;
    if (!o->job.gpus && !o->text[ECH_PLAN_TEXT_GPUS]) /* else it is said what is wrong with it */
        ech_findings_add(findings, "--gpus is missing: how many devices");
    if (want == ECH_PLAN_ONE && !ech_plan_is_given(o, ECH_DIM_DP) && p->dp == 1 &&
        o->job.gpus % replica == 0)
        p->dp = (int32_t)(o->job.gpus / replica);
    if (o->has_cluster && o->cluster.devices && o->job.gpus > o->cluster.devices)
        ech_findings_add(findings, "--gpus %lld: %s has %lld", (long long)o->job.gpus,
                         o->cluster.name, (long long)o->cluster.devices);
}

/* Some four million tokens, as models of today take, a power of two of sequences where the GPUs are one:
 * as many for each GPU, one at least, whole micro-batches where their size is given. */
static int64_t usual_batch(const ech_plan_options *o)
{
    const double usual_tokens = 4.0 * 1024 * 1024;
    int64_t batch = 1;
    int64_t unit = o->job.gpus;
    while ((double)(batch * o->job.seq) < usual_tokens)
        batch *= 2;
    if (batch % o->point.micro)
        unit *= o->point.micro;
    const int64_t times = (batch + unit / 2) / unit;
    return unit * (times > 1 ? times : 1);
}

/* A search without a batch takes the usual one. */
static void fill_batch(ech_plan_options *o, ech_plan_want want)
{
    if (o->job.global_batch || !o->job.seq || !o->job.gpus)
        return;
    if (want == ECH_PLAN_ONE)
        o->job.global_batch = (int64_t)o->point.dp * o->point.micro;
    else
        o->job.global_batch = usual_batch(o);
    assume(o, "%lld sequences a step (--global-batch)", (long long)o->job.global_batch);
}

static void read_sizes(ech_plan_options *o, ech_findings *findings)
{
    const double most = 1 << 24;
    (void)ech_plan_read_whole(o, ECH_PLAN_TEXT_GPUS, (ech_plan_range){"devices", 1, most},
                              &o->job.gpus, findings);
    (void)ech_plan_read_whole(o, ECH_PLAN_TEXT_SEQ,
                              (ech_plan_range){"tokens of a sequence", 1, 1 << 30}, &o->job.seq,
                              findings);
    (void)ech_plan_read_whole(o, ECH_PLAN_TEXT_GLOBAL_BATCH,
                              (ech_plan_range){"sequences of a step", 1, 1 << 30},
                              &o->job.global_batch, findings);
    read_tokens(o, findings);
}

static void fill_rest(ech_plan_options *o, ech_plan_want want, ech_findings *findings)
{
    ech_plan_follow_pins(o, want);
    fill_seq(o);
    fill_gpus(o, want, findings);
    fill_batch(o, want);
    check_seq(o, findings);
    if (want == ECH_PLAN_ONE || ech_plan_is_given(o, ECH_DIM_PP))
        ech_plan_check_stages(o, findings);
}

ech_status ech_plan_options_apply(ech_plan_options *o, ech_plan_want want, ech_findings *findings)
{
    const int before = findings->n;
    read_sizes(o, findings);
    ECH_TRY(read_cluster(o, findings));
    ECH_TRY(read_model(o, findings));
    read_kernels(o, findings);
    read_training(o, findings);
    read_headroom(o, findings);
    ECH_TRY(ech_plan_read_pins(o, findings));
    fill_rest(o, want, findings);
    if (want == ECH_PLAN_ONE && findings->n == before &&
        !ech_point_is_legal(&o->job, &o->point, findings))
        ECH_ASSERT(findings->n > before);
    return ECH_OK;
}
