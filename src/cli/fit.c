/* echelon fit: one layout, one answer: does it fit, how much of what, what to change if not. */
#include "base/io.h"
#include "cli/beside_options.h"
#include "cli/command.h"
#include "cli/explain.h"
#include "cli/fit_print.h"
#include "cli/plan_options.h"
#include "plan/exchange.h"
#include "train/auto_layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FILE_BYTES = 1 << 20 /* of another system's file, at most */ };

typedef struct fit_options {
    ech_plan_options plan;
    ech_beside_options beside;
    const char *from; /* a format; its file is the one word; NULL: none */
    const char *file;
    const char *disk, *rate; /* as typed */
    ech_fit_storage storage;
    bool json, explain;
    ech_exchanged *layout; /* owned: of the file */
    ech_findings told;     /* owned: about the file */
    ech_own_habits habits; /* of an Echelon configuration */
    bool has_habits;
} fit_options;

/* --- the command line --- */

static ech_status read_bytes(const char *option, const char *text, double *out)
{
    int64_t bytes;
    if (!text)
        return ECH_OK;
    const ech_status st = ech_parse_bytes(text, &bytes);
    ECH_CHECK(st >= 0 && bytes > 0, ECH_E_USAGE, "--%s %s: wanted bytes, such as 2GB or 512GiB",
              option, text);
    *out = (double)bytes;
    return ECH_OK;
}

static ech_status check_usage(fit_options *o, const ech_opt_list *words, int64_t keep)
{
    ECH_CHECK(words->n == (o->from ? 1u : 0u), ECH_E_USAGE,
              o->from ? "fit --from FORMAT FILE wants one file"
                      : "fit: unexpected word '%s'; a file comes behind --from FORMAT",
              words->n ? words->item[0] : "");
    o->file = o->from ? words->item[0] : NULL;
    ECH_CHECK(keep >= 1 && keep <= 1000000, ECH_E_USAGE, "--keep %lld: wanted 1..1000000",
              (long long)keep);
    o->storage.keep = (int)keep;
    ECH_CHECK(o->storage.interval_s >= 0.0, ECH_E_USAGE, "--save-every %g: wanted seconds",
              o->storage.interval_s);
    ECH_TRY(read_bytes("storage-write", o->rate, &o->storage.write_bytes_per_s));
    return read_bytes("disk", o->disk, &o->storage.room_bytes);
}

static ech_status parse(int argc, char **argv, fit_options *o)
{
    ech_opt_list words = {0};
    ech_opt rows[ECH_PLAN_MAX_ROWS + ECH_BESIDE_ROWS + 8];
    int64_t keep = 1;
    size_t n = ech_plan_options_rows(&o->plan, rows);
    n += ech_beside_options_rows(&o->beside, rows + n);
    rows[n++] = (ech_opt){"from", ECH_OPT_STRING, &o->from};
    rows[n++] = (ech_opt){"storage-write", ECH_OPT_STRING, &o->rate};
    rows[n++] = (ech_opt){"save-every", ECH_OPT_REAL, &o->storage.interval_s};
    rows[n++] = (ech_opt){"keep", ECH_OPT_INT, &keep};
    rows[n++] = (ech_opt){"disk", ECH_OPT_STRING, &o->disk};
    rows[n++] = (ech_opt){"json", ECH_OPT_FLAG, &o->json};
    rows[n++] = (ech_opt){"explain", ECH_OPT_FLAG, &o->explain};
    ech_status st = ech_opt_parse(argc, argv, rows, n, &words);
    if (st >= 0)
        st = check_usage(o, &words, keep);
    ech_opt_list_fini(&words);
    return st;
}

/* --- the job --- */

/* The engine whose habits a format stands for. */
static ech_system system_of(ech_format f)
{
    static const ech_system systems[] = {[ECH_FORMAT_MEGATRON] = ECH_SYSTEM_MEGATRON,
                                         [ECH_FORMAT_DEEPSPEED] = ECH_SYSTEM_DEEPSPEED,
                                         [ECH_FORMAT_TORCHTITAN] = ECH_SYSTEM_TORCHTITAN,
                                         [ECH_FORMAT_ACCELERATE] = ECH_SYSTEM_FSDP2,
                                         [ECH_FORMAT_ECHELON] = ECH_SYSTEM_ECHELON};
    return systems[f];
}

/* Our own configuration says more than a job and a layout hold.  One that the engine does not run is left
 * to what was read of it. */
static ech_status read_habits(fit_options *o)
{
    ech_config cfg;
    const ech_config_source source = {.path = o->file, .ranks = (int)o->plan.job.gpus};
    const ech_status st = ech_config_load(&source, &cfg);
    o->has_habits = st >= 0;
    if (st == ECH_E_NOMEM)
        return st;
    if (st < 0) {
        ech_error_clear();
        return ECH_OK;
    }
    o->habits = ech_auto_habits(&cfg);
    ech_config_fini(&cfg);
    return ECH_OK;
}

/* What another system's file says; what it has no word for goes into o->told. */
static ech_status parse_file(fit_options *o, ech_format format)
{
    char *text = NULL;
    size_t bytes = 0;
    double gpus = 0.0; /* batches may be told a GPU; what is wrong with the number is told later */
    const char *asked = o->plan.text[ECH_PLAN_TEXT_GPUS];
    if (asked && ech_plan_read_count(asked, true, &gpus) && gpus <= ECH_MAX_WORLD)
        o->plan.job.gpus = (int64_t)gpus;
    ECH_TRY(ech_calloc(1, sizeof *o->layout, &o->layout));
    o->layout->job = &o->plan.job;
    o->layout->point = &o->plan.point;
    o->layout->model = &o->plan.model;
    ECH_TRY(ech_read_whole(o->file, FILE_BYTES, &text, &bytes));
    const ech_status st = ech_format_parse(format, text, bytes, o->file, o->layout, &o->told);
    free(text);
    ECH_TRY(st);
    o->plan.has_model |= o->layout->has_model;
    /* the file decides what options leave open: not the system's own choice */
    o->plan.given |= UINT32_C(1) << ECH_DIM_ZERO | UINT32_C(1) << ECH_DIM_SP |
                     UINT32_C(1) << ECH_DIM_REDUCE | UINT32_C(1) << ECH_DIM_SPLIT |
                     UINT32_C(1) << ECH_DIM_CP_KIND;
    return format == ECH_FORMAT_ECHELON ? read_habits(o) : ECH_OK;
}

static ech_status read_format(fit_options *o, ech_format *format)
{
    const char *names[ECH_N_FORMATS];
    if (ech_format_read(o->from, format)) {
        if (!o->plan.text[ECH_PLAN_TEXT_ENGINE])
            o->plan.text[ECH_PLAN_TEXT_ENGINE] = ech_system_name(system_of(*format));
        return ech_cli_check_path(o->file);
    }
    for (int i = 0; i < ECH_N_FORMATS; i++)
        names[i] = ech_format_name((ech_format)i);
    const char *near = ech_nearest_name(o->from, names, ECH_N_FORMATS);
    return ECH_RAISE(ECH_E_USAGE,
                     "--from %s: wanted megatron, deepspeed, torchtitan, accelerate or "
                     "echelon%s%s%s",
                     o->from, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Bytes to leave free are none that can be allocated. */
static void leave_headroom(ech_plan_options *o)
{
    o->cluster.device.usable_bytes -= o->headroom * o->cluster.device.memory_bytes;
}

static ech_status read_job(fit_options *o)
{
    ech_findings findings = {0};
    ech_format format = ECH_FORMAT_ECHELON;
    if (o->from)
        ECH_TRY(read_format(o, &format));
    ech_status st = ech_plan_options_begin(&o->plan, &findings);
    if (st >= 0 && o->from)
        st = parse_file(o, format);
    if (st >= 0) {
        ech_beside_options_apply(&o->beside, &o->plan.job, &findings);
        st = ech_plan_options_apply(&o->plan, ECH_PLAN_ONE, &findings);
    }
    if (st >= 0)
        st = ech_findings_raise(&findings, ECH_E_USAGE);
    if (st >= 0)
        leave_headroom(&o->plan);
    ech_findings_fini(&findings);
    return st;
}

/* --- the answer --- */

static ech_status print_json(const ech_fit_answer *a, const fit_options *o,
                             const ech_derivation *notes)
{
    ech_jout j = {0};
    ech_jout_open(&j, NULL, '{');
    ech_fit_members(a, &j);
    ech_jout_string(&j, "assumed", ech_text_get(&o->plan.assumed));
    ech_jout_string(&j, "from", ech_text_get(&o->told.text));
    if (o->explain)
        ech_derivation_members(notes, &j);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

static ech_status print_words(const ech_fit_answer *a, const fit_options *o,
                              const ech_derivation *notes)
{
    ech_text out = {0};
    ech_fit_words(a, &out);
    if (o->plan.assumed.bytes)
        ech_text_add(&out, "\nassumed:\n%s\n", ech_text_get(&o->plan.assumed));
    if (o->told.n)
        ech_text_add(&out, "\nof %s not taken:\n%s\n", o->file, ech_text_get(&o->told.text));
    if (o->explain) {
        ech_text_add(&out, "\n");
        ech_derivation_print(notes, &out);
    }
    return ech_cli_print(&out);
}

static ech_status answer(const fit_options *o, ech_fit *fit)
{
    ech_derivation notes = {0};
    ech_fit_report *report = NULL;
    const ech_fit_spec spec = {.job = &o->plan.job,
                               .point = &o->plan.point,
                               .storage = o->storage,
                               .calibration = o->plan.calibration,
                               .habits = o->has_habits ? &o->habits : NULL,
                               .notes = o->explain ? &notes : NULL};
    ech_status st = ech_calloc(1, sizeof *report, &report);
    if (st >= 0)
        st = ech_fit_make(&spec, report);
    if (st >= 0) {
        const ech_fit_answer whole = {spec.job, spec.point, report};
        *fit = report->fit;
        st = o->json ? print_json(&whole, o, &notes) : print_words(&whole, o, &notes);
        ech_fit_fini(report);
    }
    free(report);
    ech_derivation_fini(&notes);
    return st;
}

static void drop(fit_options *o)
{
    if (!o)
        return;
    ech_plan_options_fini(&o->plan);
    ech_findings_fini(&o->told);
    free(o->layout);
    free(o);
}

static int cmd_fit(int argc, char **argv)
{
    fit_options *o = NULL;
    ech_fit fit = ECH_FIT_NO;
    ech_status st = ech_calloc(1, sizeof *o, &o);
    if (st >= 0)
        st = parse(argc, argv, o);
    if (st >= 0)
        st = read_job(o);
    if (st >= 0)
        st = answer(o, &fit);
    drop(o);
    if (st < 0)
        return ech_cli_fail(st);
    return fit == ECH_FIT_NO ? ech_status_exit_code(ECH_E_INFEASIBLE) : 0;
}

const ech_command ech_command_fit = {
    "fit",
    "does one layout fit, and what to change if not",
    "Usage: echelon fit --model M --cluster C --gpus N [LAYOUT] [OPTIONS]\n"
    "       echelon fit --from FORMAT FILE --cluster C [OPTIONS]\n"
    "\n"
    "Tells what each pipeline stage's fullest device holds, by class and moment (start, step,\n"
    "optimizer, save, load), on the device and on the host; whether that fits, on the edge "
    "included;\n"
    "what decides; and the cheapest changes that would make it fit.  Exit status 3: it does not.\n"
    "\n" ECH_PLAN_OPTIONS_JOB
    "The layout (what is not given is 1 or none; --dp makes up the GPUs)\n" ECH_PLAN_OPTIONS_LAYOUT
        ECH_BESIDE_OPTIONS_USAGE "Checkpoints\n"
    "  --storage-write B  bytes a second that the job can write, such as 2GB\n"
    "  --save-every S     seconds between saves (default: what failures ask for)\n"
    "  --keep N           that stay (default 1); --disk BYTES: room for them\n"
    "Answers\n"
    "  --from FORMAT FILE a layout from megatron arguments, deepspeed JSON, torchtitan TOML,\n"
    "                     accelerate YAML or an echelon configuration; options here go before it\n"
    "  --explain          every formula with these numbers\n"
    "  --json             one JSON document\n",
    cmd_fit,
};
