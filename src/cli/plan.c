/* echelon plan: the best layouts of a job, why, and what to type. */
#include "cli/command.h"
#include "cli/explain.h"
#include "cli/plan_options.h"
#include "cli/plan_print.h"
#include "cli/plan_retype.h"
#include "plan/exchange.h"
#include "plan/own.h"
#include "report/plan_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_options {
    ech_plan_options plan;
    const char *emit, *html, *goal;
    int64_t top;
    double asked_days; /* as typed; NaN: not */
    double days;       /* 0: no such wish */
    bool json, explain, offload, fewer, edge, brute;
    bool keeps_closed; /* no offload yet */
    bool has_format;
    ech_format format;
    ech_search_spec spec;
    ech_text job_options; /* owned: the job as options again */
} plan_options;

/* What is found, on the heap. */
typedef struct found {
    ech_plan plan;
    ech_cures cures;
    bool has_cures;
} found;

/* --- the command line --- */

/* The systems of formats: what is wanted in Megatron's words is searched as Megatron has it. */
static const char *const format_systems[ECH_N_FORMATS] = {[ECH_FORMAT_MEGATRON] = "megatron",
                                                          [ECH_FORMAT_DEEPSPEED] = "deepspeed",
                                                          [ECH_FORMAT_TORCHTITAN] = "torchtitan",
                                                          [ECH_FORMAT_ACCELERATE] = "fsdp2",
                                                          [ECH_FORMAT_ECHELON] = "echelon"};

static void read_format(plan_options *o, ech_findings *findings)
{
    const char *names[ECH_N_FORMATS];
    if (!o->emit)
        return;
    o->has_format = ech_format_read(o->emit, &o->format);
    if (o->has_format && !o->plan.text[ECH_PLAN_TEXT_ENGINE])
        o->plan.text[ECH_PLAN_TEXT_ENGINE] = format_systems[o->format];
    if (o->has_format)
        return;
    for (int i = 0; i < ECH_N_FORMATS; i++)
        names[i] = ech_format_name((ech_format)i);
    const char *near = ech_nearest_name(o->emit, names, ECH_N_FORMATS);
    ech_findings_add(findings, "--emit '%.80s' is not known", o->emit);
    if (near)
        ech_text_add(&findings->text, ", nearest is %s", near);
    else
        for (int i = 0; i < ECH_N_FORMATS; i++)
            ech_text_add(&findings->text, "%s%s", i ? " " : "; known: ", names[i]);
}

static void check_own(plan_options *o, ech_findings *findings)
{
    if (o->top < 1 || o->top > ECH_SEARCH_TOP)
        ech_findings_add(findings, "--top %lld: wanted 1 to %d", (long long)o->top, ECH_SEARCH_TOP);
    if (o->asked_days <= 0.0)
        ech_findings_add(findings, "--days %g: wanted more than none", o->asked_days);
    o->days = o->asked_days > 0.0 ? o->asked_days : 0.0;
    if (o->goal && strcmp(o->goal, "time") != 0 && strcmp(o->goal, "cost") != 0)
        ech_findings_add(findings, "--goal %s: wanted time or cost", o->goal);
    read_format(o, findings);
}

static ech_status parse(int argc, char **argv, plan_options *o)
{
    ech_opt rows[ECH_PLAN_MAX_ROWS + 16];
    size_t n = ech_plan_options_rows(&o->plan, rows);
    o->top = 5;
    o->asked_days = NAN;
    rows[n++] = (ech_opt){"top", ECH_OPT_INT, &o->top};
    rows[n++] = (ech_opt){"days", ECH_OPT_REAL, &o->asked_days};
    rows[n++] = (ech_opt){"goal", ECH_OPT_STRING, &o->goal};
    rows[n++] = (ech_opt){"emit", ECH_OPT_STRING, &o->emit};
    rows[n++] = (ech_opt){"html", ECH_OPT_STRING, &o->html};
    rows[n++] = (ech_opt){"offload", ECH_OPT_FLAG, &o->offload};
    rows[n++] = (ech_opt){"fewer", ECH_OPT_FLAG, &o->fewer};
    rows[n++] = (ech_opt){"edge", ECH_OPT_FLAG, &o->edge};
    rows[n++] = (ech_opt){"brute", ECH_OPT_FLAG, &o->brute};
    rows[n++] = (ech_opt){"explain", ECH_OPT_FLAG, &o->explain};
    rows[n++] = (ech_opt){"json", ECH_OPT_FLAG, &o->json};
    return ech_opt_parse(argc, argv, rows, n, NULL);
}

/* Stages in a list have their number only with pp. */
static void check_pins(const ech_plan_options *o, ech_findings *findings)
{
    const bool has_list = o->n_stage_layers > 0;
    if (has_list && !(o->given >> ECH_DIM_PP & 1))
        ech_findings_add(findings, "--stages needs --pp (and --vpp): which rank has which stage");
}

static ech_status read_job(plan_options *o)
{
    ech_findings findings = {0};
    check_own(o, &findings);
    ech_status st = ech_plan_options_begin(&o->plan, &findings);
    if (st >= 0)
        st = ech_plan_options_apply(&o->plan, ECH_PLAN_SEARCH, &findings);
    check_pins(&o->plan, &findings);
    if (st >= 0 && o->days > 0.0 && o->plan.job.tokens <= 0.0 && !findings.n)
        ech_findings_add(&findings, "--days needs --tokens: how much is to be trained");
    if (st >= 0)
        st = ech_findings_raise(&findings, ECH_E_USAGE);
    ech_findings_fini(&findings);
    return st;
}

static ech_status list_clusters(bool as_json)
{
    size_t n;
    ech_text out = {0};
    ech_jout j = {0};
    const char *const *names = ech_cluster_names(&n);
    if (as_json) {
        ech_jout_open(&j, NULL, '{');
        ech_jout_open(&j, "clusters", '[');
        for (size_t i = 0; i < n; i++)
            ech_jout_string(&j, NULL, names[i]);
        ech_jout_close(&j);
        ech_jout_close(&j);
        return ech_cli_print_json(&j);
    }
    for (size_t i = 0; i < n; i++)
        ech_text_add(&out, "%s\n", names[i]);
    return ech_cli_print(&out);
}

/* --- searching --- */

static ech_search_spec spec_of(plan_options *o)
{
    return (ech_search_spec){.job = &o->plan.job,
                             .pin = o->plan.point,
                             .pinned = o->plan.given,
                             .top = (int)o->top,
                             .may_use_fewer = o->fewer,
                             .may_offload = o->offload,
                             .keeps_closed = o->keeps_closed,
                             .headroom = o->plan.headroom,
                             .wants_edge = o->edge,
                             .is_brute = o->brute};
}

/* Our own engine's layouts by their programs, all others by formulas. */
static ech_status search_once(plan_options *o, found *f)
{
    const ech_own_ask how = {.calibration = o->plan.calibration};
    o->spec = spec_of(o);
    return ech_own_search(&o->spec, &how, &f->plan);
}

/* Plans leave a fifth of the memory free unless told otherwise (facts, section 1); where nothing does,
 * less; where nothing fits at all, with offload. */
static ech_status search_roomy(plan_options *o, found *f)
{
    const double usual = 0.2;
    const bool is_said = o->plan.text[ECH_PLAN_TEXT_HEADROOM] || o->edge;
    if (is_said)
        return search_once(o, f);
    for (int i = 0; i < 4; i++) {
        o->keeps_closed = i < 2 && !o->offload;
        o->plan.headroom = i % 2 ? 0.0 : usual;
        ECH_TRY(search_once(o, f));
        if (f->plan.n_best > 0)
            break;
    }
    ech_text_add(&o->plan.assumed, "%s%s", o->plan.assumed.bytes ? "\n" : "",
                 o->plan.headroom > 0.0
                     ? "20 % of the memory left free (--headroom)"
                     : "nothing leaves 20 % of the memory free: less is (--headroom)");
    return ECH_OK;
}

/* The number of GPUs whose fastest layout costs least. */
static int64_t cheapest(const ech_plan *plan)
{
    double least = INFINITY;
    int64_t gpus = 0;
    for (int i = 0; i < plan->n_pareto; i++) {
        const ech_candidate *c = &plan->pareto[i];
        const double gpu_s = c->step.step_s * (double)c->gpus;
        if (gpu_s < least) {
            least = gpu_s;
            gpus = c->gpus;
        }
    }
    return gpus;
}

static ech_status search(plan_options *o, found *f)
{
    const bool is_cost = o->goal && strcmp(o->goal, "cost") == 0;
    o->fewer |= is_cost;
    ECH_TRY(search_roomy(o, f));
    const int64_t gpus = is_cost ? cheapest(&f->plan) : 0;
    if (gpus > 0 && gpus != o->plan.job.gpus) {
        o->plan.job.gpus = gpus;
        ECH_TRY(search_once(o, f));
    }
    if (f->plan.n_best > 0 || !f->plan.has_nearest)
        return ECH_OK;
    f->has_cures = true;
    return ech_cures_find(&o->plan.job, &f->plan.nearest.point, &f->cures);
}

/* --- telling --- */

/* Memory with its derivation: of the programs too where they were asked. */
static ech_status derive_memory(const plan_options *o, const ech_candidate *c,
                                ech_derivation *notes)
{
    const ech_own_spec ask = {
        .job = &o->plan.job, .point = &c->point, .calibration = o->plan.calibration};
    ech_own *own = calloc(1, sizeof *own);
    ech_status st = ECH_OK;
    ECH_CHECK(own, ECH_E_NOMEM, "a footprint");
    if (c->is_exact)
        st = ech_own_answer(&ask, notes, own);
    else
        ech_footprint_of(&o->plan.job, &c->point, notes, &own->memory);
    free(own);
    return st;
}

/* Which formulas with which numbers made a layout's price. */
static ech_status derive(const plan_options *o, const ech_candidate *c, ech_derivation *notes)
{
    ech_pricer *pricer = NULL;
    ech_step_price step;
    ech_goal_cost goal;
    ECH_TRY(derive_memory(o, c, notes));
    ECH_TRY(ech_pricer_create(&o->plan.job, NULL, &pricer));
    ech_pricer_step(pricer, &c->point, notes, &step);
    ech_goal_of(&o->plan.job, &c->point, &c->step, notes, &goal);
    ech_pricer_destroy(&pricer);
    return ECH_OK;
}

/* The winner in another system's words, or the next best that it has words for; what is not in them,
 * and which of the best it is, is said in `lost`. */
static ech_status emit(const plan_options *o, const found *f, ech_text *out, ech_findings *lost)
{
    ech_status st = ECH_E_UNSUPPORTED;
    for (int i = 0; i < f->plan.n_best && st == ECH_E_UNSUPPORTED; i++) {
        st = ech_format_emit(o->format, &o->plan.job, &f->plan.best[i].point, out, lost);
        if (st >= 0 && i > 0)
            ech_findings_add(lost, "this is number %d of the best: %s cannot say those before it",
                             i + 1, ech_format_name(o->format));
    }
    return st;
}

/* The page of the answer: with the derivation of what it tells. */
static ech_status write_page(const plan_options *o, const found *f)
{
    const ech_plan *plan = &f->plan;
    const ech_candidate *told = plan->n_best > 0    ? &plan->best[0]
                                : plan->has_nearest ? &plan->nearest
                                                    : NULL;
    ech_derivation notes = {0};
    ech_status st = told ? derive(o, told, &notes) : ECH_OK;
    const ech_plan_page page = {.spec = &o->spec,
                                .plan = plan,
                                .cures = f->has_cures ? &f->cures : NULL,
                                .notes = &notes,
                                .calibration = o->plan.calibration,
                                .job_options = ech_text_get(&o->job_options),
                                .assumed = ech_text_get(&o->plan.assumed),
                                .days = o->days};
    if (st >= 0)
        st = ech_plan_page_write(&page, o->html);
    ech_derivation_fini(&notes);
    return st;
}

static ech_plan_answer answer_of(const plan_options *o, const found *f)
{
    return (ech_plan_answer){.spec = &o->spec,
                             .job = &o->plan.job,
                             .plan = &f->plan,
                             .cures = f->has_cures ? &f->cures : NULL,
                             .job_options = ech_text_get(&o->job_options),
                             .assumed = ech_text_get(&o->plan.assumed),
                             .days = o->days};
}

static ech_status tell_json(const plan_options *o, const found *f, const ech_derivation *notes)
{
    ech_jout j = {0};
    ech_text emitted = {0};
    ech_findings lost = {0};
    ech_status st = ECH_OK;
    const ech_plan_answer a = answer_of(o, f);
    ech_jout_open(&j, NULL, '{');
    ech_plan_members(&a, &j);
    if (o->has_format && f->plan.n_best > 0) {
        st = emit(o, f, &emitted, &lost);
        ech_jout_string(&j, "emitted", ech_text_get(&emitted));
        ech_jout_string(&j, "emit_lost", ech_text_get(&lost.text));
    }
    if (o->explain)
        ech_derivation_members(notes, &j);
    ech_jout_close(&j);
    ech_text_fini(&emitted);
    ech_findings_fini(&lost);
    if (st < 0) {
        ech_jout_fini(&j);
        return st;
    }
    return ech_cli_print_json(&j);
}

static ech_status tell_words(const plan_options *o, const found *f, const ech_derivation *notes)
{
    ech_text out = {0};
    ech_findings lost = {0};
    ech_status st = ECH_OK;
    const ech_plan_answer a = answer_of(o, f);
    if (o->has_format && f->plan.n_best > 0)
        st = emit(o, f, &out, &lost);
    else
        ech_plan_words(&a, &out);
    if (st >= 0 && o->explain && !o->has_format) {
        ech_text_add(&out, "\n");
        ech_derivation_print(notes, &out);
    }
    if (st >= 0)
        st = ech_cli_print(&out);
    if (st >= 0 && lost.n) /* standard output is a file of the other system's */
        (void)fprintf(stderr, "%s\n", ech_text_get(&lost.text));
    ech_findings_fini(&lost);
    ech_text_fini(&out);
    return st;
}

/* What is not reached, after everything was told. */
static ech_status check_goal(const plan_options *o, const found *f)
{
    ech_goal_cost goal;
    const ech_plan *p = &f->plan;
    ECH_CHECK(p->n_best > 0, ECH_E_INFEASIBLE, "no layout fits on %lld x %s",
              (long long)o->plan.job.gpus, o->plan.cluster.name);
    ech_goal_of(&o->plan.job, &p->best[0].point, &p->best[0].step, NULL, &goal);
    ECH_CHECK(o->days <= 0.0 || goal.days <= o->days, ECH_E_INFEASIBLE,
              "%g days: no layout on %lld GPUs is that fast; the best takes %.3g days, so that at "
              "its pace about %.0f GPUs would",
              o->days, (long long)o->plan.job.gpus, goal.days,
              ceil(goal.days / o->days * (double)o->plan.job.gpus));
    return ECH_OK;
}

static ech_status answer(plan_options *o, found *f)
{
    ech_derivation notes = {0};
    ech_status st = search(o, f);
    ech_plan_retype(&o->plan, &o->job_options);
    if (st >= 0 && o->explain && f->plan.n_best > 0)
        st = derive(o, &f->plan.best[0], &notes);
    if (st >= 0 && o->html)
        st = write_page(o, f);
    if (st >= 0)
        st = o->json ? tell_json(o, f, &notes) : tell_words(o, f, &notes);
    if (st >= 0)
        st = check_goal(o, f);
    ech_derivation_fini(&notes);
    return st;
}

static bool wants_clusters(const plan_options *o)
{
    const char *cluster = o->plan.text[ECH_PLAN_TEXT_CLUSTER];
    return cluster && strcmp(cluster, "list") == 0;
}

static ech_status run(int argc, char **argv, plan_options *o)
{
    ECH_TRY(parse(argc, argv, o));
    if (wants_clusters(o))
        return list_clusters(o->json);
    ECH_TRY(read_job(o));
    found *f = calloc(1, sizeof *f);
    ECH_CHECK(f, ECH_E_NOMEM, "a plan");
    const ech_status st = answer(o, f);
    free(f);
    return st;
}

static int cmd_plan(int argc, char **argv)
{
    plan_options *o = calloc(1, sizeof *o);
    if (!o)
        return ech_cli_fail(ECH_RAISE(ECH_E_NOMEM, "options of plan"));
    const ech_status st = run(argc, argv, o);
    ech_plan_options_fini(&o->plan);
    ech_text_fini(&o->job_options);
    free(o);
    return ech_cli_fail(st);
}

const ech_command ech_command_plan = {
    "plan",
    "searches layouts",
    "Usage: echelon plan --model M --cluster C --gpus N [OPTIONS]\n"
    "\n"
    "Searches all layouts of a job that its engine can have and tells the fastest, what it holds\n"
    "and where its time goes, the Pareto front of time and memory, by what the neighbours of the\n"
    "winner lose, and what was rejected.  Nothing is run.  What is pinned is not searched.\n"
    "\n" ECH_PLAN_OPTIONS_JOB "\n"
    "Pins\n" ECH_PLAN_OPTIONS_LAYOUT "\n"
    "The answer\n"
    "  --top K            so many layouts (default 5)\n"
    "  --offload          optimizer, parameters and activations may go to the host; without,\n"
    "                     that is searched only where nothing fits\n"
    "  --fewer            fewer GPUs too (halves), for the front of time, memory, GPUs and cost\n"
    "  --goal G           time (default) or cost: the number of GPUs that costs least\n"
    "  --days X           the tokens in X days, or exit 3 and what is possible\n"
    "  --edge             layouts on the edge of the memory count as fitting\n"
    "  --brute            look at every layout, skip none: slow, the same answer\n"
    "  --emit FORMAT      the winner as megatron, deepspeed, torchtitan, accelerate or echelon;\n"
    "                     the engine is then that format's unless --engine says another\n"
    "  --explain          the derivation of the winner's memory, time and cost\n"
    "  --html FILE        the answer as a page that needs nothing beside it\n"
    "  --json             one JSON document\n"
    "\n"
    "Exit 3: no layout fits; the nearest is told, and what would help.\n",
    cmd_plan,
};
