/* echelon sim: what a step of a configuration takes, by simulation of the programs that train runs;
 * of a model on a cluster of the catalogue: sim_cluster.c. */
#include "base/clock.h"
#include "base/locale.h"
#include "cli/auto_layout.h"
#include "cli/command.h"
#include "cli/cures.h"
#include "cli/sim_cluster.h"
#include "price/simulate.h"
#include "price/unit.h"
#include "program/compile.h"
#include "report/trace.h"
#include "report/train_events.h"
#include "train/loop.h"
#include "price/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct sim_options {
    const char *config, *cluster, *trace;
    const char *unit;     /* as typed, NULL: not given */
    ech_unit_times times; /* of it */
    int64_t ranks;        /* 0: what the layout says */
    double peak_flops;    /* of a rank; NaN: not known */
    bool json;
    ech_opt_list sets;
} sim_options;

/* What there is to tell. */
typedef struct sim_answer {
    const ech_config *cfg;
    const ech_run *run;
    ech_dtype real; /* that it computes in */
    ech_step_sums sums;
    ech_event_start model; /* its FLOPs and their convention */
    ech_memory memory[ECH_N_SPACES];
    double recompute_flops; /* of all ranks */
    double simulate_s;
} sim_answer;

/* --- the command line --- */

/* Three numbers between commas. */
static ech_status read_times(const char *text, ech_unit_times *out)
{
    double *to[] = {&out->forward_s, &out->input_s, &out->weight_s};
    const char *at = text;
    for (int i = 0; i < 3; i++) {
        char *end;
        *to[i] = ech_c_strtod(at, &end);
        ECH_CHECK(end != at && *end == (i < 2 ? ',' : '\0') && isfinite(*to[i]) && *to[i] >= 0.0,
                  ECH_E_USAGE, "--unit %s: wanted F,B,W: three numbers of seconds, such as 1,1,1",
                  text);
        at = end + 1;
    }
    return ECH_OK;
}

static ech_status check_usage(sim_options *o, const ech_opt_list *words)
{
    ECH_CHECK(words->n == 1 && o->ranks >= 0 && o->ranks <= ECH_MAX_WORLD, ECH_E_USAGE,
              "sim wants one configuration and --ranks 1..%d; see 'echelon help sim'",
              ECH_MAX_WORLD);
    o->config = words->item[0];
    ECH_CHECK((o->cluster == NULL) != (o->unit == NULL), ECH_E_USAGE,
              "sim wants either --cluster FILE, a machine measured by 'echelon bench all --ranks N "
              "--save FILE', or --unit F,B,W, seconds of equal stages");
    ECH_CHECK(!(o->peak_flops <= 0.0), ECH_E_USAGE, "--peak-flops %g: wanted FLOP/s of a rank",
              o->peak_flops);
    if (o->trace)
        ECH_TRY(ech_trace_check_path(o->trace));
    if (o->cluster)
        ECH_TRY(ech_cli_check_path(o->cluster));
    return o->unit ? read_times(o->unit, &o->times) : ECH_OK;
}

static ech_status parse(int argc, char **argv, sim_options *o)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {
        {"ranks", ECH_OPT_INT, &o->ranks},    {"cluster", ECH_OPT_STRING, &o->cluster},
        {"unit", ECH_OPT_STRING, &o->unit},   {"peak-flops", ECH_OPT_REAL, &o->peak_flops},
        {"trace", ECH_OPT_STRING, &o->trace}, {"set", ECH_OPT_LIST, &o->sets},
        {"json", ECH_OPT_FLAG, &o->json},
    };
    *o = (sim_options){.peak_flops = NAN};
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st >= 0)
        st = check_usage(o, &words);
    ech_opt_list_fini(&words);
    return st;
}

/* --- figures --- */

static double tokens_of(const sim_answer *a)
{
    return (double)a->cfg->batch.global * (double)a->cfg->batch.seq;
}

/* Model FLOPs a second of a rank. */
static double rate_of(const sim_answer *a, double more_flops)
{
    const int world = a->run->program[0]->layout.world;
    return (tokens_of(a) * a->model.flops_per_token + more_flops) / a->sums.step_s / world;
}

/* FLOPs in blocks that compute forward again, of one rank. */
static double recompute_flops(const ech_program *p)
{
    double sum = 0.0;
    for (int i = 0; i < p->n_items; i++) {
        const ech_block *b = &p->block[p->item[i].block];
        for (int k = 0; k < b->n_ops && b->role == ECH_ROLE_RECOMPUTE; k++) {
            const ech_op_row *row = ech_op_row_get(b->op[k].kind);
            sum += row->flops ? row->flops(&b->op[k]) : 0.0;
        }
    }
    return sum;
}

/* Memory of the class with the highest total. */
static ech_status find_memory(const ech_run *run, ech_memory out[ECH_N_SPACES])
{
    for (int c = 0; c < run->n_classes; c++) {
        ech_memory m[ECH_N_SPACES];
        for (int s = 0; s < ECH_N_SPACES; s++)
            ECH_TRY(ech_program_memory(run->program[c], (ech_space)s, &m[s]));
        if (c > 0 && m[ECH_SPACE_DEVICE].total <= out[ECH_SPACE_DEVICE].total)
            continue;
        for (int s = 0; s < ECH_N_SPACES; s++)
            out[s] = m[s];
    }
    return ECH_OK;
}

/* --- telling --- */

static void add_time(const sim_answer *a, ech_jout *j)
{
    const ech_step_sums *s = &a->sums;
    ech_jout_open(j, "time", '{');
    ech_jout_real(j, "compute", s->compute_s);
    ech_jout_real(j, "recompute", s->recompute_s);
    ech_jout_real(j, "bubble", s->bubble_s);
    ech_jout_open(j, "exposed", '{');
    for (int k = 0; k < ECH_N_AXES; k++)
        ech_jout_real(j, ech_axis_name((ech_axis)k), s->exposed_s[k]);
    ech_jout_close(j);
    ech_jout_real(j, "optimizer", s->optimizer_s);
    ech_jout_null(j, "fixed");
    ech_jout_close(j);
    ech_jout_open(j, "critical_path", '{');
    ech_jout_real(j, "compute", s->critical_compute_s);
    ech_jout_real(j, "comm", s->critical_comm_s);
    ech_jout_close(j);
}

static ech_status print_json(const sim_answer *a)
{
    ech_jout j = {0};
    const ech_step_sums *s = &a->sums;
    const int world = a->run->program[0]->layout.world;
    const double peak = a->model.peak_flops;
    ech_jout_open(&j, NULL, '{');
    ech_jout_real(&j, "step_s", s->step_s);
    ech_jout_real(&j, "tokens_per_s_per_gpu", tokens_of(a) / s->step_s / world);
    ech_jout_real(&j, "tflops_per_gpu", rate_of(a, 0.0) / 1e12);
    ech_jout_real(&j, "mfu", rate_of(a, 0.0) / peak);
    ech_jout_real(&j, "hfu", rate_of(a, a->recompute_flops) / peak);
    ech_jout_string(&j, "flops_convention", a->model.flops_convention);
    ech_jout_real(&j, "peak_flops", peak);
    ech_jout_real(&j, "bubble", s->bubble_s / s->step_s);
    add_time(a, &j);
    ech_jout_memory(&j, "memory_bytes", a->memory);
    ech_jout_open(&j, "simulated", '{');
    ech_jout_int(&j, "ranks", world);
    ech_jout_int(&j, "followed", s->followed);
    ech_jout_int(&j, "ops", s->ops);
    ech_jout_real(&j, "seconds", a->simulate_s);
    ech_jout_close(&j);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

static void print_share(const char *what, double seconds, double step_s)
{
    (void)printf("  %-22s %12.6f s %6.2f %%\n", what, seconds, 100.0 * seconds / step_s);
}

static ech_status print_words(const sim_answer *a)
{
    char what[32];
    char bytes[32];
    const ech_step_sums *s = &a->sums;
    const int world = a->run->program[0]->layout.world;
    (void)printf("step %.6f s; %d of %d ranks followed, %lld ops simulated in %.3f s\n", s->step_s,
                 s->followed, world, (long long)s->ops, a->simulate_s);
    (void)puts("where it goes (mean of all ranks):");
    print_share("compute", s->compute_s, s->step_s);
    if (s->recompute_s > 0.0)
        print_share("  of it recompute", s->recompute_s, s->step_s);
    print_share("optimizer", s->optimizer_s, s->step_s);
    print_share("bubble", s->bubble_s, s->step_s);
    for (int k = 0; k < ECH_N_AXES; k++) {
        (void)snprintf(what, sizeof what, "exposed %s", ech_axis_name((ech_axis)k));
        if (s->exposed_s[k] > 0.0)
            print_share(what, s->exposed_s[k], s->step_s);
    }
    (void)printf("critical path: kernels %.6f s, messages %.6f s; busiest is rank %d with %.6f s\n",
                 s->critical_compute_s, s->critical_comm_s, s->busiest_rank, s->busiest_s);
    (void)printf("a rank: %.6g tokens/s, %.6g TFLOP/s (%s)\n", tokens_of(a) / s->step_s / world,
                 rate_of(a, 0.0) / 1e12, a->model.flops_convention);
    if (isfinite(a->model.peak_flops))
        (void)printf("MFU %.2f %%, HFU %.2f %% of %g FLOP/s\n",
                     100.0 * rate_of(a, 0.0) / a->model.peak_flops,
                     100.0 * rate_of(a, a->recompute_flops) / a->model.peak_flops,
                     a->model.peak_flops);
    (void)printf("memory of the fullest rank: %s\n",
                 ech_format_bytes((double)a->memory[ECH_SPACE_DEVICE].total, bytes, sizeof bytes));
    return ECH_OK;
}

/* --- simulating --- */

static ech_status write_trace(const sim_options *o, ech_timeline *line)
{
    static const char *const name = "simulated";
    const ech_timeline *one = line;
    (void)snprintf(line->note, sizeof line->note, "simulated with %s %s",
                   o->cluster ? "--cluster" : "--unit", o->cluster ? o->cluster : o->unit);
    return ech_trace_write_as(&one, &name, 1, o->trace);
}

static ech_status simulate_unit(const sim_options *o, sim_answer *a, ech_timeline *line)
{
    ech_unit unit = {0};
    const ech_run *run = a->run;
    ECH_TRY(ech_unit_make(run->program, run->n_classes, o->times, &unit));
    const ech_simulate_spec spec = {.program = run->program,
                                    .n_classes = run->n_classes,
                                    .class_of = run->class_of,
                                    .costs = ech_unit_costs(&unit)};
    const ech_status st = ech_simulate(&spec, &a->sums, line);
    ech_unit_fini(&unit);
    return st;
}

/* The time it takes counts reading the machine's file. */
static ech_status simulate(const sim_options *o, sim_answer *a)
{
    ech_timeline line = {0};
    ech_timeline *wanted = o->trace ? &line : NULL;
    const double t0 = ech_clock_s();
    ECH_TRY(o->unit ? simulate_unit(o, a, wanted)
                    : ech_predict_step(o->cluster, a->run, 0, a->real, &a->sums, wanted));
    a->simulate_s = ech_clock_s() - t0;
    const ech_status st = o->trace ? write_trace(o, &line) : ECH_OK;
    ech_timeline_fini(&line);
    return st;
}

static ech_status price(const sim_options *o, sim_answer *a)
{
    if (o->trace)
        ECH_TRY(ech_trace_try_path(o->trace));
    ECH_TRY(simulate(o, a));
    ECH_CHECK(a->sums.step_s > 0.0, ECH_E_USAGE, "--unit %s: a step that takes no time", o->unit);
    ECH_TRY(ech_loop_describe(&a->cfg->model, a->cfg->batch.seq, &a->model));
    a->model.peak_flops = o->peak_flops;
    const int world = a->run->program[0]->layout.world;
    for (int r = 0; r < world; r++)
        a->recompute_flops += recompute_flops(&ech_run_of(a->run, r)->program);
    ECH_TRY(find_memory(a->run, a->memory));
    return o->json ? print_json(a) : print_words(a);
}

static ech_status compile(const ech_config *cfg, ech_canon *canon, ech_run *run, ech_dtype *real)
{
    ech_session_config sc = ech_loop_session_config(cfg, NULL, 1, 0);
    *real = sc.compile.block.real;
    ECH_TRY(ech_canon_create(&cfg->model, canon));
    sc.compile.block.model = &cfg->model;
    sc.compile.block.canon = canon;
    ECH_TRY(ech_cures_add(cfg, &sc, ech_run_compile(&sc.compile, ECH_MODE_TRAIN, run)));
    return ech_run_unroll(run);
}

static ech_status simulate_config(const sim_options *o)
{
    ech_config cfg;
    ech_canon canon = {0};
    ech_run run = {0};
    const ech_config_source source = {
        .path = o->config, .sets = o->sets.item, .n_sets = o->sets.n, .ranks = (int)o->ranks};
    ECH_TRY(ech_config_load(&source, &cfg));
    sim_answer a = {.cfg = &cfg, .run = &run};
    ech_text chosen = {0};
    ech_status st = ech_cli_auto_layout(
        &cfg, &(ech_cli_auto){.ranks = (int)o->ranks, .cluster = o->cluster}, &chosen);
    if (st >= 0 && chosen.bytes && !o->json)
        (void)puts(ech_text_get(&chosen));
    if (st >= 0)
        st = compile(&cfg, &canon, &run, &a.real);
    if (st >= 0)
        st = price(o, &a);
    ech_run_fini(&run);
    ech_canon_fini(&canon);
    ech_text_fini(&chosen);
    ech_config_fini(&cfg);
    return st;
}

static int cmd_sim(int argc, char **argv)
{
    sim_options o;
    if (ech_sim_is_cluster(argc, argv))
        return ech_sim_cluster(argc, argv);
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = simulate_config(&o);
    ech_opt_list_fini(&o.sets);
    return st < 0 ? ech_cli_fail(st) : 0;
}

const ech_command ech_command_sim = {
    "sim",
    "prices a layout in detail: time line, bubble, exposed communication",
    "Usage: echelon sim CONFIG (--cluster FILE | --unit F,B,W) [OPTIONS]\n"
    "       echelon sim --model M --cluster C --gpus N [LAYOUT] [OPTIONS]\n"
    "\n"
    "First form: simulates a step of the programs that train would run, without starting a rank: "
    "kernels in\n"
    "order, messages beside them.  Prints where the step's time goes: compute, optimizer, bubble\n"
    "(what the schedule costs where messages are free) and communication that is not hidden, by\n"
    "group; and the critical path.\n"
    "\n"
    "  --cluster FILE   a measured machine, as 'echelon bench all --ranks N --save FILE'\n"
    "                   writes it\n"
    "  --unit F,B,W     instead: every stage's forward takes F seconds, its gradients of inputs B\n"
    "                   and of weights W, a backward that is not split both together; messages\n"
    "                   and all else are free.  Bubbles are then those of the textbook:\n"
    "                   (p - 1) / (m + p - 1) for 1f1b, whatever the model\n"
    "  --ranks N        ranks of the run (default: what the layout says)\n"
    "  --peak-flops X   of a rank, FLOP/s: tells MFU and HFU\n"
    "  --trace FILE     the time line: FILE.json for Perfetto, FILE.svg a picture\n"
    "  --set KEY=VALUE  overrides a key; may be repeated\n"
    "  --json           one JSON document\n"
    "\n"
    "Second form: a step of a known model on a known cluster, by closed forms, and its pipeline "
    "by\n"
    "the schedule's table; memory, MFU with its convention and peak, what the network has to do,\n"
    "goodput with failures.  Memory is told, not asked: 'echelon fit' refuses.\n"
    "The job, the layout and what is done beside steps are given by the options of fit: 'echelon\n"
    "help fit'.\n"
    "\n"
    "  --network N        flat (one ring through all levels) or hierarchical collectives\n"
    "  --measured S       seconds that a step took: its MFU, and the link that would explain it\n"
    "  --ops              every op with its efficiency and what bounds it\n"
    "  --trace FILE       the time line of the stages: FILE.json for Perfetto, FILE.svg a picture\n"
    "  --explain          every formula with these numbers\n"
    "  --json             one JSON document\n",
    cmd_sim,
};
