/* Combinations: what no single key can tell. */
#include "train/config_check.h"

#include "base/checked.h"
#include "catalog/canon.h"
#include "train/config_layout.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    WORDS_BYTES = 2048,
    MAX_ACCUMULATION = 65536, /* micro-batches of a step: its program holds each */
    MAX_SLOTS = 32            /* tensors of a layer that may live at once, and more */
};

/* Of activations; as many again are left for parameters and their state. */
static const int64_t MAX_BYTES = INT64_C(1) << 61;

const char *ech_config_name(const ech_config *cfg)
{
    return cfg->path ? cfg->path : "configuration";
}

static void add_finding(ech_config_report *report, const ech_config *cfg, const char *key,
                        const char *fmt, va_list ap)
{
    char words[WORDS_BYTES];
    size_t n_rows = 0;
    const ech_option *rows = ech_options(&n_rows);
    const ech_option *row = ech_option_find(key);
    const ech_config_place place = row ? cfg->place[row - rows] : (ech_config_place){0};
    (void)vsnprintf(words, sizeof words, fmt, ap);
    if (place.set_by)
        ech_findings_add(report->findings, "--set %.200s: %s", place.set_by, words);
    else if (place.line > 0)
        ech_findings_add(report->findings, "%s:%d:%d: %s: %s", ech_config_name(cfg), place.line,
                         place.column, key, words);
    else
        ech_findings_add(report->findings, "%s: %s: %s", ech_config_name(cfg), key, words);
}

void ech_config_report_add(ech_config_report *report, const ech_config *cfg, const char *key,
                           const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_finding(report, cfg, key, fmt, ap);
    va_end(ap);
}

void ech_config_report_unsupported(ech_config_report *report, const ech_config *cfg,
                                   const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_finding(report, cfg, key, fmt, ap);
    va_end(ap);
    report->n_unsupported++;
}

/* --- layout --- */

/* What the legality table refuses; what is not built yet was refused when its key was read. */
static void check_layout(const ech_config *cfg, int ranks, ech_config_report *report)
{
    ech_legal_report found;
    if (cfg->layout.is_auto && !cfg->layout.is_chosen)
        return;
    const ech_legal_query query = ech_config_legal_query(cfg, ranks);
    ech_legal_check(&query, &found);
    for (int i = 0; i < found.n; i++) {
        const ech_legal_finding *f = &found.item[i];
        ech_text words = {0};
        ech_legal_print(f, &words);
        if (f->verdict == ECH_VERDICT_REFUSED && !f->is_unbuilt)
            ech_config_report_add(report, cfg, f->key, "%s", ech_text_get(&words));
        ech_text_fini(&words);
    }
}

/* --- batch and model --- */

static void check_pass(const ech_config *cfg, ech_config_report *report)
{
    int64_t pass = 0;
    if (cfg->layout.dp != ECH_AUTO && ech_mul_i64(cfg->batch.micro, cfg->layout.dp, &pass) < 0) {
        ech_error_clear();
        ech_config_report_add(report, cfg, "batch.micro", "micro x dp leaves 64 bits");
    }
}

/* Micro-batches of a step: an int in the program, whose items must be countable as well. */
static int64_t most_accumulation(const ech_model *m)
{
    const int64_t items = (int64_t)INT_MAX / (8 * (m->layers + 4));
    return items < MAX_ACCUMULATION ? items : MAX_ACCUMULATION;
}

static void check_accumulation(const ech_config *cfg, ech_config_report *report)
{
    const ech_config_batch *b = &cfg->batch;
    const int64_t most = most_accumulation(&cfg->model);
    int64_t pass = 0;
    int64_t legal = 0;
    if (cfg->layout.dp == ECH_AUTO || b->global == ECH_AUTO ||
        ech_mul_i64(b->micro, cfg->layout.dp, &pass) < 0 || b->global / pass <= most)
        return;
    const bool fits = ech_mul_i64(pass, most, &legal) == ECH_OK;
    ech_error_clear();
    ech_config_report_add(report, cfg, "batch.global",
                          "%lld sequences in micro-batches of %lld x dp %lld are accumulated over "
                          "%lld passes, at most %lld; nearest legal value %lld",
                          (long long)b->global, (long long)b->micro, (long long)cfg->layout.dp,
                          (long long)(b->global / pass), (long long)most,
                          (long long)(fits ? legal : INT64_MAX / pass * pass));
}

/* a b c, or INT64_MAX beyond it; none is negative. */
static int64_t product(int64_t a, int64_t b, int64_t c)
{
    int64_t p = 0;
    if (ech_mul_i64(a, b, &p) == ECH_OK && ech_mul_i64(p, c, &p) == ECH_OK)
        return p;
    ech_error_clear();
    return INT64_MAX;
}

/* Elements of the widest tensor of a token. */
static int64_t widest(const ech_model *m)
{
    const int64_t width[] = {m->hidden, ech_vocab_padded(m->vocab), 2 * m->ffn,
                             product(m->heads + 2 * m->kv_heads, m->head_dim, 1)};
    int64_t most = 1;
    for (size_t i = 0; i < sizeof width / sizeof width[0]; i++)
        most = width[i] > most ? width[i] : most;
    return most;
}

/* Micro-batches whose tensors a rank may hold at once: all where all go forward first, or a table
 * says; else no more than twice the stages. */
static int64_t most_in_flight(const ech_config *cfg, int64_t accumulation)
{
    const ech_config_layout *l = &cfg->layout;
    const ech_schedule_kind kind = ech_schedule_kind_of(l->schedule);
    const int64_t stages = product(2, l->pp, l->virtual_stages > 2 ? l->virtual_stages : 2);
    if (kind == ECH_SCHEDULE_GPIPE || kind == ECH_SCHEDULE_FILE)
        return accumulation;
    if (l->pp == 1)
        return 1;
    return stages < accumulation ? stages : accumulation;
}

/* The tokens of a pass that leave every sum of bytes within 64 bits: MAX_SLOTS tensors a layer, of
 * every micro-batch in flight. */
static int64_t most_tokens(const ech_config *cfg, int64_t accumulation)
{
    const int64_t tensors =
        product(MAX_SLOTS, cfg->model.layers + 2, most_in_flight(cfg, accumulation));
    const int64_t by_slots = MAX_BYTES / 8 / widest(&cfg->model) / tensors;
    const int64_t by_ids = MAX_BYTES / 8 / accumulation;
    return by_slots < by_ids ? by_slots : by_ids;
}

/* Sizes whose bytes leave 64 bits: nothing that comes after multiplies with checks of its own. */
static void check_activations(const ech_config *cfg, ech_config_report *report)
{
    const ech_config_batch *b = &cfg->batch;
    int64_t accumulation = 1;
    if (cfg->model.layers < 1 || b->seq < 1)
        return;
    if (cfg->layout.dp != ECH_AUTO && b->global != ECH_AUTO)
        accumulation = b->global / product(b->micro, cfg->layout.dp, 1);
    accumulation = accumulation < 1 ? 1 : accumulation;
    const int64_t most = most_tokens(cfg, accumulation);
    if (product(b->micro, b->seq, 1) <= most)
        return;
    if (most < 1) {
        ech_config_report_add(
            report, cfg, "model",
            "a token's tensors have up to %lld elements: their bytes leave 64 bits",
            (long long)widest(&cfg->model));
        return;
    }
    const bool is_seq = b->seq > most;
    const int64_t legal = is_seq ? most : most / b->seq;
    ech_config_report_add(
        report, cfg, is_seq ? "batch.seq" : "batch.micro",
        "micro %lld x seq %lld tokens of up to %lld elements: their bytes leave 64 bits; nearest "
        "legal value %lld",
        (long long)b->micro, (long long)b->seq, (long long)widest(&cfg->model), (long long)legal);
}

/* The same for what is kept of every parameter. */
static void check_state(const ech_config *cfg, ech_config_report *report)
{
    ech_param_count count;
    const ech_model *m = &cfg->model;
    if (m->layers < 1 || !m->is_executable)
        return;
    if (ech_model_count(m, &count) < 0) { /* then the model's own check says so */
        ech_error_clear();
        return;
    }
    const int64_t padding = product(2 * ECH_VOCAB_MULTIPLE, m->hidden, 1);
    const int64_t most = ECH_CANON_ELEMS_MAX - padding;
    if (count.total > most)
        ech_config_report_add(report, cfg, "model",
                              "%lld parameters: the bytes of their state leave 64 bits; at most "
                              "%lld",
                              (long long)count.total, (long long)most);
}

static void check_sequence(const ech_config *cfg, ech_config_report *report)
{
    const int64_t seq = cfg->batch.seq;
    const int64_t context = cfg->model.context;
    const int64_t cp = cfg->layout.cp;
    if (context > 0 && seq > context)
        ech_config_report_add(report, cfg, "batch.seq",
                              "%lld tokens, the model's context is %lld; nearest legal value %lld",
                              (long long)seq, (long long)context, (long long)context);
    if (seq > 0 && cp > 1 && seq % (2 * cp) != 0)
        ech_config_report_add(report, cfg, "batch.seq",
                              "%lld is no multiple of 2 cp = %lld; nearest legal value %lld",
                              (long long)seq, (long long)(2 * cp),
                              (long long)(ech_ceil_div(seq, 2 * cp) * 2 * cp));
}

/* Largest id + 1 that a type holds (int64 and uint32: all that a model can have). */
static int64_t ids_of(ech_token_type dtype)
{
    const int64_t bits = 8 * ech_token_type_bytes(dtype);
    const bool is_signed = dtype == ECH_TOKEN_I8 || dtype == ECH_TOKEN_I16 ||
                           dtype == ECH_TOKEN_I32 || dtype == ECH_TOKEN_I64;
    return bits > 32 ? INT64_MAX : INT64_C(1) << (bits - is_signed);
}

static void check_dtype(const ech_config *cfg, ech_config_report *report)
{
    const ech_token_type dtype = cfg->data.dtype;
    if (dtype != ECH_TOKEN_AUTO && cfg->model.vocab > ids_of(dtype))
        ech_config_report_add(
            report, cfg, "data.dtype",
            "%s cannot hold a vocabulary of %lld tokens, at most %lld; legal: auto%s",
            ech_token_type_name(dtype), (long long)cfg->model.vocab, (long long)ids_of(dtype),
            cfg->model.vocab > 65536 ? ", int32 or uint32" : ", uint16 or int32");
}

static void check_data(const ech_config *cfg, ech_config_report *report)
{
    const ech_config_data *d = &cfg->data;
    if (d->mask.n > 0 && d->mask.n != d->train.n)
        ech_config_report_add(report, cfg, "data.mask",
                              "%d mask files for %d files of data.train, wanted one for each",
                              d->mask.n, d->train.n);
    if (d->mask.n > 0 && d->ignore_id != ECH_AUTO)
        ech_config_report_add(report, cfg, "data.ignore_id",
                              "data.mask is given too; wanted one of the two");
    if (d->ignore_id != ECH_AUTO && cfg->model.vocab > 0 && d->ignore_id >= cfg->model.vocab)
        ech_config_report_add(report, cfg, "data.ignore_id",
                              "%lld is no token of a vocabulary of %lld; largest legal value %lld",
                              (long long)d->ignore_id, (long long)cfg->model.vocab,
                              (long long)cfg->model.vocab - 1);
    check_dtype(cfg, report);
}

/* --- the rest --- */

static void check_optim(const ech_config *cfg, ech_config_report *report)
{
    const ech_config_optim *o = &cfg->optim;
    const int64_t steps = cfg->train.steps;
    const int64_t decay = o->decay_steps == ECH_AUTO ? 0 : o->decay_steps;
    if (o->schedule != ECH_LR_CONSTANT && o->min_lr > o->lr)
        ech_config_report_add(report, cfg, "optim.min_lr", "%g is above optim.lr %g", o->min_lr,
                              o->lr);
    if (o->warmup_steps > steps && o->schedule != ECH_LR_CONSTANT)
        ech_config_report_add(report, cfg, "optim.warmup_steps",
                              "%lld steps of warm-up in a run of train.steps %lld",
                              (long long)o->warmup_steps, (long long)steps);
    else if (o->schedule == ECH_LR_WSD && decay > steps - o->warmup_steps)
        ech_config_report_add(
            report, cfg, "optim.decay_steps",
            "%lld steps after %lld of warm-up in a run of train.steps %lld; nearest "
            "legal value %lld",
            (long long)decay, (long long)o->warmup_steps, (long long)steps,
            (long long)(steps - o->warmup_steps));
}

static void check_checkpoint(const ech_config *cfg, ech_config_report *report)
{
    if (cfg->checkpoint.every_steps > 0 && !cfg->checkpoint.dir)
        ech_config_report_add(report, cfg, "checkpoint.dir",
                              "none, but checkpoint.every_steps is %lld; wanted a folder, or "
                              "every_steps 0",
                              (long long)cfg->checkpoint.every_steps);
}

static const char *wire_name(ech_wire w)
{
    static const char *const name[] = {"auto", "fp64", "fp32", "bf16"};
    return name[w];
}

/* Only one type for everything is built: fp64 or fp32. */
static void check_precision(const ech_config *cfg, ech_config_report *report)
{
    static const char *const key[] = {"precision.grads", "precision.wire.grads",
                                      "precision.wire.tp"};
    const ech_config_precision *p = &cfg->precision;
    const ech_wire value[] = {p->grads, p->wire_grads, p->wire_tp};
    if (p->compute != ECH_COMPUTE_FP32)
        return;
    for (int i = 0; i < 3; i++)
        if (value[i] == ECH_WIRE_FP64)
            ech_config_report_unsupported(
                report, cfg, key[i], "%s under compute fp32 is not built yet; legal: auto or fp32",
                wire_name(value[i]));
}

void ech_config_check(const ech_config *cfg, int ranks, ech_config_report *report)
{
    if (cfg->model.layers > 0 && !cfg->model.is_executable)
        ech_config_report_unsupported(report, cfg, "model", "this model is not built yet: %s",
                                      cfg->model.not_executable);
    check_layout(cfg, ranks, report);
    check_pass(cfg, report);
    check_accumulation(cfg, report);
    check_activations(cfg, report);
    check_state(cfg, report);
    check_sequence(cfg, report);
    check_data(cfg, report);
    check_optim(cfg, report);
    check_checkpoint(cfg, report);
    check_precision(cfg, report);
}

ech_status ech_config_validate(const ech_config *cfg, int ranks, ech_findings *findings)
{
    ech_config_report report = {findings, 0};
    ech_config_check(cfg, ranks, &report);
    return findings->text.failed ? ECH_RAISE(ECH_E_NOMEM, "no memory for the findings") : ECH_OK;
}
