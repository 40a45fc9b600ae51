#include "cli/sim_cluster.h"
#include "base/clock.h"
#include "cli/beside_options.h"
#include "cli/explain.h"
#include "cli/plan_options.h"
#include "cli/sim_report.h"
#include "report/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPS = 512 };

typedef struct options {
    ech_plan_options plan;
    ech_beside_options beside;
    const char *trace, *network;
    double measured_s; /* NaN: not given */
    bool json, explain, ops;
} options;

bool ech_sim_is_cluster(int argc, char **argv)
{
    static const char option[] = "--model";
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], option, sizeof option - 1) == 0 &&
            (argv[i][sizeof option - 1] == '\0' || argv[i][sizeof option - 1] == '='))
            return true;
    return false;
}

/* --- the command line --- */

static ech_status read_network(const char *name, ech_job *job)
{
    static const char *const names[] = {"flat", "hierarchical"};
    if (!name)
        return ECH_OK;
    ECH_CHECK(strcmp(name, "simgrid") != 0, ECH_E_UNSUPPORTED,
              "--network simgrid: this build has no SimGrid; flat and hierarchical are built in");
    for (int i = 0; i < 2; i++)
        if (strcmp(name, names[i]) == 0) {
            job->network = (ech_network)i;
            return ECH_OK;
        }
    const char *near = ech_nearest_name(name, names, 2);
    return ECH_RAISE(ECH_E_USAGE, "--network %s: wanted flat, hierarchical or simgrid%s%s%s", name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ech_status parse(int argc, char **argv, options *o)
{
    ech_opt rows[ECH_PLAN_MAX_ROWS + ECH_BESIDE_ROWS + 8];
    size_t n = ech_plan_options_rows(&o->plan, rows);
    n += ech_beside_options_rows(&o->beside, rows + n);
    o->measured_s = NAN;
    rows[n++] = (ech_opt){"trace", ECH_OPT_STRING, &o->trace};
    rows[n++] = (ech_opt){"network", ECH_OPT_STRING, &o->network};
    rows[n++] = (ech_opt){"measured", ECH_OPT_REAL, &o->measured_s};
    rows[n++] = (ech_opt){"ops", ECH_OPT_FLAG, &o->ops};
    rows[n++] = (ech_opt){"json", ECH_OPT_FLAG, &o->json};
    rows[n++] = (ech_opt){"explain", ECH_OPT_FLAG, &o->explain};
    ECH_TRY(ech_opt_parse(argc, argv, rows, n, NULL));
    ECH_CHECK(!(o->measured_s <= 0.0), ECH_E_USAGE, "--measured %g: wanted seconds of a step",
              o->measured_s);
    return o->trace ? ech_trace_check_path(o->trace) : ECH_OK;
}

static ech_status read_job(options *o)
{
    ech_findings findings = {0};
    ech_status st = ech_plan_options_begin(&o->plan, &findings);
    if (st >= 0)
        st = read_network(o->network, &o->plan.job);
    if (st >= 0) {
        ech_beside_options_apply(&o->beside, &o->plan.job, &findings);
        st = ech_plan_options_apply(&o->plan, ECH_PLAN_ONE, &findings);
    }
    if (st >= 0)
        st = ech_findings_raise(&findings, ECH_E_USAGE);
    ech_findings_fini(&findings);
    return st;
}

/* --- pricing --- */

static ech_status list_ops(ech_pricer *pricer, ech_sim_report *r)
{
    ECH_TRY(ech_calloc(MOST_OPS, sizeof *r->op, &r->op));
    const int n = ech_pricer_ops(pricer, r->point, r->op, MOST_OPS);
    r->n_ops = n < MOST_OPS ? n : MOST_OPS;
    return ECH_OK;
}

static ech_status compare_measured(ech_sim_report *r)
{
    ech_step_price at = r->step;
    if (!isfinite(r->measured_s))
        return ECH_OK;
    at.step_s = r->measured_s;
    r->measured = ech_step_rates_of(r->job, &at);
    return ech_implied_link_of(r->job, r->point, r->measured_s, &r->link);
}

static ech_status price(const options *o, ech_pricer *pricer, ech_derivation *notes,
                        ech_sim_report *r)
{
    const double t0 = ech_clock_s();
    const ech_own_spec own = {.job = r->job,
                              .point = r->point,
                              .calibration = o->plan.calibration,
                              .line = o->trace ? &r->own_line : NULL};
    ECH_TRY(ech_own_answer(&own, notes, &r->own));
    r->memory = r->own.memory;
    r->fit = ech_footprint_fit(r->job, &r->memory, &r->binding);
    ech_derivation *closed = r->own.is_timed ? NULL : notes; /* simulated: no closed form's */
    ech_pricer_step(pricer, r->point, closed, &r->step);
    ech_own_price(&r->own, &r->step);
    r->rates = ech_step_rates_of(r->job, &r->step);
    if (notes)
        ech_step_rates_explain(r->job, &r->step, &r->rates, notes);
    ech_goal_of(r->job, r->point, &r->step, notes, &r->goal);
    r->even = ech_break_even_of(r->job, r->point, &r->step, notes);
    if (!r->own.is_timed)
        ECH_TRY(ech_stage_line_of(r->job, pricer, r->point, &r->step, &r->line));
    r->line_s = ech_clock_s() - t0;
    if (o->ops)
        ECH_TRY(list_ops(pricer, r));
    return compare_measured(r);
}

/* --- telling --- */

static ech_status write_trace(const options *o, ech_sim_report *r)
{
    static const char *const name = "simulated";
    ech_timeline *mine = r->own.is_timed ? &r->own_line.line : &r->line.line;
    const ech_timeline *line = mine;
    (void)snprintf(mine->note, sizeof mine->note, "%.60s on %lld x %.90s%s", r->job->model->name,
                   (long long)r->job->gpus, r->job->cluster->name,
                   r->own.is_timed ? ", simulated with its measured costs"
                                   : ", one rank of each stage; bars are a stage's whole work");
    ECH_CHECK(mine->world > 0, ECH_E_USAGE,
              "--trace %s: the schedule has %lld cells, at most %d are drawn: a smaller "
              "--global-batch shows the same",
              o->trace, (long long)r->line.cells, ECH_STAGE_LINE_CELLS);
    ECH_TRY(ech_trace_try_path(o->trace));
    return ech_trace_write_as(&line, &name, 1, o->trace);
}

static ech_status tell(const options *o, const ech_sim_report *r, const ech_derivation *notes)
{
    ech_jout j = {0};
    ech_text out = {0};
    if (o->json) {
        ech_jout_open(&j, NULL, '{');
        ech_sim_members(r, &j);
        ech_jout_string(&j, "assumed", ech_text_get(&o->plan.assumed));
        if (o->explain)
            ech_derivation_members(notes, &j);
        ech_jout_close(&j);
        return ech_cli_print_json(&j);
    }
    ech_sim_words(r, &out);
    if (o->plan.assumed.bytes)
        ech_text_add(&out, "\nassumed:\n%s\n", ech_text_get(&o->plan.assumed));
    if (o->explain) {
        ech_text_add(&out, "\n");
        ech_derivation_print(notes, &out);
    }
    return ech_cli_print(&out);
}

static ech_status simulate(const options *o)
{
    ech_derivation notes = {0};
    ech_pricer *pricer = NULL;
    ech_sim_report *r = NULL;
    ech_status st;
    ECH_TRY_GOTO(st, ech_calloc(1, sizeof *r, &r), done);
    r->job = &o->plan.job;
    r->point = &o->plan.point;
    r->measured_s = o->measured_s;
    ECH_TRY_GOTO(st, ech_pricer_create(r->job, NULL, &pricer), done);
    ECH_TRY_GOTO(st, price(o, pricer, o->explain ? &notes : NULL, r), done);
    if (o->trace)
        ECH_TRY_GOTO(st, write_trace(o, r), done);
    st = tell(o, r, &notes);
done:
    if (r) {
        ech_stage_line_fini(&r->line);
        ech_own_line_fini(&r->own_line);
        free(r->op);
    }
    free(r);
    ech_pricer_destroy(&pricer);
    ech_derivation_fini(&notes);
    return st;
}

int ech_sim_cluster(int argc, char **argv)
{
    options *o = NULL;
    ech_status st = ech_calloc(1, sizeof *o, &o);
    if (st >= 0)
        st = parse(argc, argv, o);
    if (st >= 0)
        st = read_job(o);
    if (st >= 0)
        st = simulate(o);
    if (o)
        ech_plan_options_fini(&o->plan);
    free(o);
    return st < 0 ? ech_cli_fail(st) : 0;
}
