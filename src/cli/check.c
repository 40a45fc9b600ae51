/* echelon check: compiles every rank's program, proves it and prints what it will take. */
#include "base/clock.h"
#include "cli/command.h"
#include "cli/cures.h"
#include "cli/proof_table.h"
#include "cli/run_setup.h"
#include "program/program_file.h"
#include "report/train_events.h"
#include "train/loop.h"
#include "train/predict.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct check_options {
    const char *config;  /* NULL: a program from a file */
    const char *program; /* file to prove, NULL: a configuration */
    const char *written; /* file that the training program is written to, NULL: none */
    const char *hostfile;
    int64_t ranks; /* 0: not given */
    bool json, json_ranks, oversubscribe;
    ech_opt_list sets;
} check_options;

static const int64_t NOT_GIVEN = INT64_MIN;

static ech_status check_usage(const check_options *o, const ech_opt_list *words)
{
    const bool has_ranks = o->ranks != NOT_GIVEN;
    ECH_CHECK(!o->program || !(words->n || o->sets.n || has_ranks || o->written || o->hostfile ||
                               o->oversubscribe),
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
    ech_canon canon;
    ech_program train, eval;
    ech_prove_report train_proof, eval_proof;
    bool has_eval;
    double compile_s;
} compiled;

static ech_status compile_session(ech_session_config sc, const ech_config *cfg, compiled *c)
{
    ech_run_slots slots;
    const double t0 = ech_clock_s();
    ECH_TRY(ech_canon_create(&cfg->model, &c->canon));
    sc.compile.block.model = &cfg->model;
    sc.compile.block.canon = &c->canon;
    sc.compile.report = &c->train_proof;
    ECH_TRY(ech_compile_train(&sc.compile, &c->train, &slots));
    c->has_eval = sc.has_eval;
    if (sc.has_eval) {
        sc.compile.report = &c->eval_proof;
        ECH_TRY(ech_compile_eval(&sc.compile, &c->eval, &slots));
        ECH_TRY(ech_program_chain(&c->train, &c->eval));
    }
    c->compile_s = ech_clock_s() - t0;
    return ECH_OK;
}

static ech_status compile_all(const ech_config *cfg, compiled *c)
{
    const ech_session_config sc = ech_loop_session_config(cfg, NULL, 1, 0);
    return ech_cures_add(cfg, &sc, compile_session(sc, cfg, c));
}

static void compiled_fini(compiled *c)
{
    ech_program_fini(&c->train);
    ech_program_fini(&c->eval);
    ech_canon_fini(&c->canon);
}

static int64_t n_ops(const ech_program *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_items; i++)
        n += p->block[p->item[i].block].n_ops;
    return n;
}

static const ech_program *eval_of(const compiled *c)
{
    return c->has_eval ? &c->eval : NULL;
}

static ech_status predict_ranks(const compiled *c, ech_prediction **out)
{
    const int n = c->train.layout.world;
    ECH_TRY(ech_calloc((size_t)n, sizeof **out, out));
    for (int r = 0; r < n; r++)
        ECH_TRY(ech_predict(&c->train, eval_of(c), r, &(*out)[r]));
    return ECH_OK;
}

static void add_document(const ech_event_start *e, const compiled *c, ech_jout *j)
{
    ech_jout_open(j, NULL, '{');
    ech_jout_run(j, e);
    ech_jout_prediction(j, "predicted", e->predicted);
    ech_jout_real(j, "flops", ech_program_flops(&c->train));
    ech_jout_int(j, "ops", n_ops(&c->train));
    ech_jout_real(j, "compile_s", c->compile_s);
    ech_jout_open(j, "proof", '[');
    ech_cli_jout_proof(j, &c->train, &c->train_proof);
    if (c->has_eval)
        ech_cli_jout_proof(j, &c->eval, &c->eval_proof);
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
    ech_event_start e = {.legal = &legal,
                         .ranks = c->train.layout.world,
                         .layout = &c->train.layout,
                         .predicted = &p};
    ech_run_setup_costs(cfg, NULL, &legal);
    ECH_TRY(ech_predict(&c->train, eval_of(c), 0, &p));
    ECH_TRY(ech_loop_describe(&cfg->model, cfg->batch.seq, &e));
    const ech_status st = o->json_ranks ? predict_ranks(c, &by_rank) : ECH_OK;
    e.by_rank = by_rank;
    if (st >= 0) {
        add_document(&e, c, &j);
        (void)puts(ech_jout_get(&j));
    }
    free(by_rank);
    ech_jout_fini(&j);
    return st;
}

static void print_costs(const ech_config *cfg)
{
    ech_legal_report legal;
    ech_run_setup_costs(cfg, NULL, &legal);
    for (int i = 0; i < legal.n; i++)
        (void)printf("%s, %s: %s\n", ech_verdict_name(legal.item[i].verdict), legal.item[i].key,
                     legal.item[i].message);
}

static ech_status print_words(const ech_config *cfg, const compiled *c)
{
    char buf[32];
    ech_prediction p;
    const ech_memory *m = &p.memory[ECH_SPACE_DEVICE];
    ECH_TRY(ech_predict(&c->train, eval_of(c), 0, &p));
    (void)printf("%d rank%s, one class; %d items, %lld ops a step; compiled and proved in %.3f s\n",
                 c->train.layout.world, c->train.layout.world == 1 ? "" : "s", c->train.n_items,
                 (long long)n_ops(&c->train), c->compile_s);
    ech_cli_print_proof(&c->train, &c->train_proof);
    if (c->has_eval)
        ech_cli_print_proof(&c->eval, &c->eval_proof);
    (void)printf("memory of a rank at its fullest moment:\n");
    for (int k = 0; k < ECH_N_CLASSES; k++)
        (void)printf("  %-12s %15zu bytes\n", ech_class_name((ech_class)k), m->at_peak[k]);
    (void)printf("  %-12s %15zu bytes = %s; arena %zu\n", "total", m->total,
                 ech_format_bytes((double)m->total, buf, sizeof buf), m->arena);
    for (int a = 0; a < ECH_N_AXES; a++)
        if (p.traffic[a].wire_bytes)
            (void)printf("sent over %-5s %15lld bytes a step by rank 0 (payload %lld)\n",
                         ech_axis_name((ech_axis)a), (long long)p.traffic[a].wire_bytes,
                         (long long)p.traffic[a].payload_bytes);
    print_costs(cfg);
    return ECH_OK;
}

static ech_status check_loaded(const check_options *o, const ech_config *cfg)
{
    compiled c = {0};
    ech_status st = compile_all(cfg, &c);
    if (st >= 0 && o->written)
        st = ech_program_save(&c.train, o->written);
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
    ech_status st = ECH_OK;
    if (hosts->n)
        st = ech_run_check_nodes(&cfg, hosts->host, hosts->n, ranks, o->oversubscribe);
    if (st >= 0)
        st = check_loaded(o, &cfg);
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

static void print_program(const check_options *o, const ech_program *p,
                          const ech_prove_report *report)
{
    ech_jout j = {0};
    if (!o->json) {
        (void)printf("%d items, %lld ops\n", p->n_items, (long long)n_ops(p));
        ech_cli_print_proof(p, report);
        return;
    }
    ech_jout_open(&j, NULL, '{');
    ech_jout_string(&j, "program", p->name);
    ech_jout_int(&j, "ranks", p->layout.world);
    ech_jout_int(&j, "items", p->n_items);
    ech_jout_int(&j, "ops", n_ops(p));
    ech_jout_open(&j, "proof", '[');
    ech_cli_jout_proof(&j, p, report);
    ech_jout_close(&j);
    ech_jout_close(&j);
    (void)puts(ech_jout_get(&j));
    ech_jout_fini(&j);
}

/* A program that nobody here has made. */
static ech_status check_program(const check_options *o)
{
    ech_program p;
    ech_prove_report report;
    ECH_TRY(ech_program_load(o->program, &p));
    const ech_program *one = &p;
    const ech_prove_spec spec = {.program = &one, .n_classes = 1}; /* of no model: no cover */
    const ech_status proof = ech_prove(&spec, &report);
    if (proof != ECH_E_NOMEM)
        print_program(o, &p, &report);
    ech_program_fini(&p);
    return proof;
}

static int cmd_check(int argc, char **argv)
{
    check_options o;
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = o.program ? check_program(&o) : check_on_hosts(&o);
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
    "  --set KEY=VALUE  overrides a key; may be repeated\n"
    "  --write-program FILE  writes the training program\n"
    "  --program FILE   proves the program in FILE\n"
    "  --json           one JSON document\n"
    "  --json-ranks     the same with every rank's prediction\n",
    cmd_check,
};
