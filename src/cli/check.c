/* echelon check: compiles every rank's program, proves it and prints what it will take. */
#include "base/clock.h"
#include "cli/check_program.h"
#include "cli/auto_layout.h"
#include "cli/command.h"
#include "cli/cures.h"
#include "cli/proof_table.h"
#include "cli/run_setup.h"
#include "program/program_file.h"
#include "report/train_events.h"
#include "train/loop.h"
#include "price/predict.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct check_options {
    const char *config;  /* NULL: a program from a file */
    const char *program; /* file to prove, NULL: a configuration */
    const char *written; /* file that the training program is written to, NULL: none */
    const char *hostfile;
    const char *cluster; /* calibration, NULL: no seconds */
    int64_t ranks;       /* 0: not given */
    bool json, json_ranks, oversubscribe;
    ech_opt_list sets;
} check_options;

static const int64_t NOT_GIVEN = INT64_MIN;

static ech_status check_usage(const check_options *o, const ech_opt_list *words)
{
    const bool has_ranks = o->ranks != NOT_GIVEN;
    ECH_CHECK(!o->program || !(words->n || o->sets.n || has_ranks || o->written || o->hostfile ||
                               o->cluster || o->oversubscribe),
              ECH_E_USAGE,
              "check --program FILE wants nothing else but --json: the file is the "
              "whole program");
    ECH_CHECK(o->program ||
                  (words->n == 1 && (!has_ranks || (o->ranks > 0 && o->ranks <= ECH_MAX_WORLD))),
              ECH_E_USAGE,
              "check wants one configuration and --ranks 1..%d; see 'echelon help check'",
              ECH_MAX_WORLD);
    ECH_CHECK(!o->oversubscribe || o->hostfile, ECH_E_USAGE,
              "--oversubscribe wants --hostfile: on one host ranks may share processors anyway");
    return ECH_OK;
}

static ech_status parse(int argc, char **argv, check_options *o)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {
        {"ranks", ECH_OPT_INT, &o->ranks},
        {"set", ECH_OPT_LIST, &o->sets},
        {"program", ECH_OPT_STRING, &o->program},
        {"write-program", ECH_OPT_STRING, &o->written},
        {"json", ECH_OPT_FLAG, &o->json},
        {"json-ranks", ECH_OPT_FLAG, &o->json_ranks},
        {"hostfile", ECH_OPT_STRING, &o->hostfile},
        {"cluster", ECH_OPT_STRING, &o->cluster},
        {"oversubscribe", ECH_OPT_FLAG, &o->oversubscribe},
    };
    *o = (check_options){.ranks = NOT_GIVEN};
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st >= 0)
        st = check_usage(o, &words);
    if (st >= 0 && !o->program)
        o->config = words.item[0];
    o->ranks = o->ranks == NOT_GIVEN ? 0 : o->ranks;
    ech_opt_list_fini(&words);
    return st;
}

/* Programs of a configuration, compiled and proved. */
typedef struct compiled {
    const char *chosen; /* how layout: auto was decided, borrowed; NULL: it is not */
    ech_canon canon;
    ech_run train, eval; /* eval: of no classes without evaluation */
    ech_prove_report train_proof, eval_proof;
    ech_step_sums priced; /* with a calibration */
    bool is_priced;
} compiled;

static ech_status compile_session(ech_session_config sc, const ech_config *cfg, compiled *c)
{
    ECH_TRY(ech_canon_create(&cfg->model, &c->canon));
    sc.compile.block.model = &cfg->model;
    sc.compile.block.canon = &c->canon;
    sc.compile.report = &c->train_proof;
    ECH_TRY(ech_run_compile(&sc.compile, ECH_MODE_TRAIN, &c->train));
    if (!sc.has_eval)
        return ECH_OK;
    sc.compile.report = &c->eval_proof;
    ECH_TRY(ech_run_compile(&sc.compile, ECH_MODE_EVAL, &c->eval));
    return ech_run_chain(&c->train, &c->eval);
}

static ech_status compile_all(const ech_config *cfg, compiled *c)
{
    const ech_session_config sc = ech_loop_session_config(cfg, NULL, 1, 0);
    return ech_cures_add(cfg, &sc, compile_session(sc, cfg, c));
}

static ech_status price(const check_options *o, const ech_config *cfg, compiled *c)
{
    const int threads = cfg->run.threads > 0 ? (int)cfg->run.threads : 0;
    const ech_dtype real = cfg->precision.compute == ECH_COMPUTE_FP64 ? ECH_F64 : ECH_F32;
    if (!o->cluster)
        return ECH_OK;
    ECH_TRY(ech_run_unroll(&c->train)); /* what is simulated is what engines run */
    ECH_TRY(ech_predict_step(o->cluster, &c->train, threads, real, &c->priced, NULL));
    c->is_priced = true;
    return ECH_OK;
}

static void add_seconds(const compiled *c, ech_prediction *p)
{
    if (c->is_priced)
        p->step_s = c->priced.step_s;
}

static void compiled_fini(compiled *c)
{
    ech_run_fini(&c->train);
    ech_run_fini(&c->eval);
    ech_canon_fini(&c->canon);
}

/* Of a run: items, ops and FLOPs of every rank's step. */
typedef struct run_counts {
    int64_t items, ops;
    int64_t listed; /* items as they are listed: those of rounds once */
    double flops;
} run_counts;

/* Items and ops of one rank a class, FLOPs of all ranks. */
static run_counts count_run(const ech_run *run)
{
    run_counts n = {0};
    for (int k = 0; k < run->n_classes; k++) {
        const int ranks = run->program[0]->layout.world / run->n_classes;
        int64_t items;
        int64_t ops;
        ech_program_count(run->program[k], &items, &ops);
        n.items += items;
        n.ops += ops;
        n.listed += run->program[k]->n_items;
        n.flops += ranks * ech_program_flops(run->program[k]);
    }
    return n;
}

static const ech_layout *layout_of(const compiled *c)
{
    return &c->train.program[0]->layout;
}

static ech_status predict_ranks(const compiled *c, ech_prediction **out)
{
    const int n = layout_of(c)->world;
    ECH_TRY(ech_calloc((size_t)n, sizeof **out, out));
    for (int r = 0; r < n; r++) {
        ECH_TRY(ech_predict(&c->train, &c->eval, r, &(*out)[r]));
        add_seconds(c, &(*out)[r]);
    }
    return ECH_OK;
}

/* Each virtual stage: its units, and of its pipeline rank what it keeps at most, in stages' forwards of a
 * micro-batch, and its arena. */
static void add_stages(const ech_run *run, ech_jout *j)
{
    ech_jout_open(j, "stages", '[');
    for (int s = 0; s < run->stages.n; s++) {
        const int r = run->stages.rank_of[s];
        const ech_schedule_live live = ech_schedule_live_of(&run->schedule, r);
        const ech_program *p = run->program[r];
        ech_jout_open(j, NULL, '{');
        ech_jout_int(j, "stage", s);
        ech_jout_int(j, "rank", r);
        ech_jout_open(j, "units", '[');
        for (int u = run->stages.first[s]; u < run->stages.first[s + 1]; u++)
            ech_jout_int(j, NULL, u);
        ech_jout_close(j);
        ech_jout_int(j, "live", live.saved);
        ech_jout_int(j, "deferred", live.deferred);
        ech_jout_int(
            j, "arena_bytes",
            (int64_t)(p->state_bytes[ECH_SPACE_DEVICE] + p->transient_bytes[ECH_SPACE_DEVICE]));
        ech_jout_close(j);
    }
    ech_jout_close(j);
}

static void add_document(const ech_event_start *e, const compiled *c, ech_jout *j)
{
    ech_jout_open(j, NULL, '{');
    ech_jout_run(j, e);
    ech_jout_prediction(j, "predicted", e->predicted);
    const run_counts n = count_run(&c->train);
    ech_jout_real(j, "flops", n.flops / e->ranks);
    ech_jout_int(j, "ops", n.ops);
    ech_jout_int(j, "classes", c->train.n_classes);
    ech_jout_string(j, "schedule", c->train.schedule.name);
    add_stages(&c->train, j);
    ech_jout_real(j, "compile_s", c->train.compile_s + c->eval.compile_s);
    ech_jout_real(j, "prove_s", c->train.prove_s + c->eval.prove_s);
    ech_jout_open(j, "proof", '[');
    ech_cli_jout_proof(j, c->train.program[0], &c->train_proof);
    if (c->eval.n_classes)
        ech_cli_jout_proof(j, c->eval.program[0], &c->eval_proof);
    ech_jout_close(j);
    if (e->by_rank)
        ech_jout_predictions(j, e->by_rank, e->ranks);
    ech_jout_close(j);
}

static ech_status print_json(const check_options *o, const ech_config *cfg, const compiled *c)
{
    ech_jout j = {0};
    ech_prediction p;
    ech_prediction *by_rank = NULL;
    ech_legal_report legal;
    int fullest;
    ech_event_start e = {.layout_auto = c->chosen,
                         .legal = &legal,
                         .ranks = layout_of(c)->world,
                         .layout = layout_of(c),
                         .predicted = &p};
    ech_run_setup_costs(cfg, NULL, &legal);
    ECH_TRY(ech_predict_fullest(&c->train, &c->eval, &fullest, &p));
    add_seconds(c, &p);
    ECH_TRY(ech_loop_describe(&cfg->model, cfg->batch.seq, &e));
    const ech_status st = o->json_ranks ? predict_ranks(c, &by_rank) : ECH_OK;
    e.by_rank = by_rank;
    if (st >= 0)
        add_document(&e, c, &j);
    free(by_rank);
    return st < 0 ? st : ech_cli_print_json(&j);
}

static void print_costs(const ech_config *cfg)
{
    ech_legal_report legal;
    ech_run_setup_costs(cfg, NULL, &legal);
    for (int i = 0; i < legal.n; i++)
        (void)printf("%s, %s: %s\n", ech_verdict_name(legal.item[i].verdict), legal.item[i].key,
                     legal.item[i].message);
}

static void print_seconds(const ech_step_sums *s)
{
    (void)printf("a step takes %.4f s: kernels %.4f, updates %.4f, bubble %.4f", s->step_s,
                 s->compute_s, s->optimizer_s, s->bubble_s);
    for (int a = 0; a < ECH_N_AXES; a++)
        if (s->exposed_s[a] > 0)
            (void)printf(", exposed over %s %.4f", ech_axis_name((ech_axis)a), s->exposed_s[a]);
    (void)printf("\n");
}

/* Each pipeline rank: its layers, memory, and forwards kept at its fullest. */
static void print_stages(const compiled *c)
{
    const ech_run *run = &c->train;
    if (run->n_classes == 1)
        return;
    (void)printf("schedule %s, %d virtual stages, %d micro-batches:\n", run->schedule.name,
                 run->stages.n, run->schedule.micros);
    for (int s = 0; s < run->stages.n; s++) {
        const int r = run->stages.rank_of[s];
        const ech_schedule_live live = ech_schedule_live_of(&run->schedule, r);
        const ech_program *p = run->program[r];
        (void)printf("  stage %d on pipeline rank %d: units %d..%d of %d; the rank keeps up to %d "
                     "forwards, arena %zu bytes\n",
                     s, r, run->stages.first[s], run->stages.first[s + 1] - 1,
                     run->stages.first[run->stages.n], live.both,
                     p->state_bytes[ECH_SPACE_DEVICE] + p->transient_bytes[ECH_SPACE_DEVICE]);
    }
}

static ech_status print_words(const ech_config *cfg, const compiled *c)
{
    char buf[32];
    ech_prediction p;
    int fullest;
    const ech_memory *m = &p.memory[ECH_SPACE_DEVICE];
    const int world = layout_of(c)->world;
    const run_counts n = count_run(&c->train);
    ECH_TRY(ech_predict_fullest(&c->train, &c->eval, &fullest, &p));
    add_seconds(c, &p);
    if (c->chosen)
        (void)printf("%s\n", c->chosen);
    (void)printf(
        "%d rank%s, %d class%s; %lld items, %lld ops a step; compiled in %.3f s, proved in "
        "%.3f s\n",
        world, world == 1 ? "" : "s", c->train.n_classes, c->train.n_classes == 1 ? "" : "es",
        (long long)n.items, (long long)n.ops, c->train.compile_s + c->eval.compile_s,
        c->train.prove_s + c->eval.prove_s);
    if (n.listed < n.items)
        (void)printf("rounds of micro-batches are listed once: %lld items stand for all\n",
                     (long long)n.listed);
    ech_cli_print_proof(c->train.program[0], &c->train_proof);
    if (c->eval.n_classes)
        ech_cli_print_proof(c->eval.program[0], &c->eval_proof);
    print_stages(c);
    (void)printf("memory of rank %d at its fullest moment%s:\n", fullest,
                 world > 1 ? ", the fullest rank" : "");
    for (int k = 0; k < ECH_N_CLASSES; k++)
        (void)printf("  %-12s %15zu bytes\n", ech_class_name((ech_class)k), m->at_peak[k]);
    (void)printf("  %-12s %15zu bytes = %s; arena %zu\n", "total", m->total,
                 ech_format_bytes((double)m->total, buf, sizeof buf), m->arena);
    for (int a = 0; a < ECH_N_AXES; a++)
        if (p.traffic[a].wire_bytes)
            (void)printf("sent over %-5s %15lld bytes a step by it (payload %lld)\n",
                         ech_axis_name((ech_axis)a), (long long)p.traffic[a].wire_bytes,
                         (long long)p.traffic[a].payload_bytes);
    if (c->is_priced)
        print_seconds(&c->priced);
    print_costs(cfg);
    return ECH_OK;
}

/* One file; of several classes one each, FILE.0, FILE.1, ... */
static ech_status save_programs(const ech_run *run, const char *path)
{
    char name[4096];
    if (run->n_classes == 1)
        return ech_program_save(run->program[0], path);
    for (int k = 0; k < run->n_classes; k++) {
        (void)snprintf(name, sizeof name, "%s.%d", path, k);
        ECH_TRY(ech_program_save(run->program[k], name));
    }
    return ECH_OK;
}

static ech_status check_loaded(const check_options *o, const ech_config *cfg, const char *chosen)
{
    compiled c = {.chosen = chosen};
    ech_status st = compile_all(cfg, &c);
    if (st >= 0)
        st = price(o, cfg, &c);
    if (st >= 0 && o->written)
        st = save_programs(&c.train, o->written);
    if (st >= 0)
        st = o->json || o->json_ranks ? print_json(o, cfg, &c) : print_words(cfg, &c);
    compiled_fini(&c);
    return st;
}

/* Ranks where nothing gives their number: what the layout says. */
static ech_status check_config(const check_options *o, const ech_hostfile *hosts)
{
    ech_config cfg;
    const int ranks = o->ranks ? (int)o->ranks : (int)hosts->slots;
    const ech_config_source source = {
        .path = o->config, .sets = o->sets.item, .n_sets = o->sets.n, .ranks = ranks};
    ECH_TRY(ech_config_load(&source, &cfg));
    ech_text chosen = {0};
    ech_status st =
        ech_cli_auto_layout(&cfg, &(ech_cli_auto){.ranks = ranks, .cluster = o->cluster}, &chosen);
    if (st >= 0 && hosts->n)
        st = ech_run_check_nodes(&cfg, hosts->host, hosts->n, ranks, o->oversubscribe);
    if (st >= 0)
        st = check_loaded(o, &cfg, chosen.bytes ? ech_text_get(&chosen) : NULL);
    ech_text_fini(&chosen);
    ech_config_fini(&cfg);
    return st;
}

static ech_status check_on_hosts(const check_options *o)
{
    ech_hostfile hosts = {0};
    ech_status st = o->hostfile ? ech_hostfile_read(o->hostfile, &hosts) : ECH_OK;
    if (st >= 0 && o->hostfile)
        st = ech_hostfile_fill(&hosts, o->ranks ? (int)o->ranks : (int)hosts.slots);
    if (st >= 0)
        st = check_config(o, &hosts);
    ech_hostfile_fini(&hosts);
    return st;
}

static int cmd_check(int argc, char **argv)
{
    check_options o;
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = o.program ? ech_cli_check_program(o.program, o.json) : check_on_hosts(&o);
    ech_opt_list_fini(&o.sets);
    return st < 0 ? ech_cli_fail(st) : 0;
}

const ech_command ech_command_check = {
    "check",
    "compiles every rank's program, proves it and prints memory and traffic",
    "Usage: echelon check CONFIG [OPTIONS]\n"
    "       echelon check --program FILE [--json]\n"
    "\n"
    "Compiles the programs that train would run and proves them, without starting a rank: "
    "placements\n"
    "and gradient scales, lives of memory, dependences, messages that match and never wait for "
    "ever,\n"
    "every parameter held and updated once.  Prints predicted memory by class and traffic by "
    "group.\n"
    "With --program, proves a program from a file that --write-program or anybody else has "
    "written;\n"
    "cover (every parameter held and updated once) is then left out, since the file has no model "
    "to\n"
    "compare with.\n"
    "\n"
    "  --ranks N        ranks of the run (default: what the layout says)\n"
    "  --hostfile FILE  also checks the rules for ranks on these hosts, as train reads them; all\n"
    "                   slots without --ranks\n"
    "  --oversubscribe  with --hostfile: more ranks than slots\n"
    "  --cluster FILE   also predicts the seconds of a step, on the machine that 'echelon bench\n"
    "                   --save FILE' has measured\n"
    "  --set KEY=VALUE  overrides a key; may be repeated\n"
    "  --write-program FILE  writes the training program; of a pipeline one each stage's,\n"
    "                   FILE.0, FILE.1, ...\n"
    "  --program FILE   proves the program in FILE; where only FILE.0, FILE.1, ... are there, one\n"
    "                   a pipeline rank, all of them together\n"
    "  --json           one JSON document\n"
    "  --json-ranks     the same with every rank's prediction\n",
    cmd_check,
};
