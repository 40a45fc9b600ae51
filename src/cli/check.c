/* echelon check: compiles every rank's program, proves it and prints what it will take. */
#include "base/clock.h"
#include "cli/command.h"
#include "program/deps.h"
#include "program/types.h"
#include "report/train_events.h"
#include "train/loop.h"
#include "train/predict.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct check_options {
    const char *config;
    int64_t ranks;
    bool json, json_ranks;
    ech_opt_list sets;
} check_options;

static ech_status parse(int argc, char **argv, check_options *o)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {
        {"ranks", ECH_OPT_INT, &o->ranks},
        {"set", ECH_OPT_LIST, &o->sets},
        {"json", ECH_OPT_FLAG, &o->json},
        {"json-ranks", ECH_OPT_FLAG, &o->json_ranks},
    };
    *o = (check_options){.ranks = -1}; /* not given: what the layout says */
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st >= 0 && (words.n != 1 || o->ranks == 0 || o->ranks < -1 || o->ranks > ECH_MAX_WORLD))
        st = ECH_RAISE(ECH_E_USAGE,
                       "check wants one configuration and --ranks 1..%d; see 'echelon help check'",
                       ECH_MAX_WORLD);
    if (st >= 0)
        o->config = words.item[0];
    ech_opt_list_fini(&words);
    return st;
}

/* Programs of a configuration, compiled; compiling proves them. */
typedef struct compiled {
    ech_canon canon;
    ech_program train, eval;
    bool has_eval;
    double compile_s;
} compiled;

static ech_status compile_all(const ech_config *cfg, compiled *c)
{
    ech_run_slots slots;
    const double t0 = ech_clock_s();
    ech_session_config sc = ech_loop_session_config(cfg, NULL, 1);
    ECH_TRY(ech_canon_create(&cfg->model, &c->canon));
    sc.compile.block.model = &cfg->model;
    sc.compile.block.canon = &c->canon;
    ECH_TRY(ech_compile_train(&sc.compile, &c->train, &slots));
    c->has_eval = sc.has_eval;
    if (sc.has_eval) {
        ECH_TRY(ech_compile_eval(&sc.compile, &c->eval, &slots));
        ECH_TRY(ech_program_chain(&c->train, &c->eval));
    }
    c->compile_s = ech_clock_s() - t0;
    return ECH_OK;
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
    if (e->by_rank)
        ech_jout_predictions(j, e->by_rank, e->ranks);
    ech_jout_close(j);
}

static ech_status print_json(const check_options *o, const ech_config *cfg, const compiled *c)
{
    ech_jout j = {0};
    ech_prediction p;
    ech_prediction *by_rank = NULL;
    ech_event_start e = {
        .ranks = c->train.layout.world, .layout = &c->train.layout, .predicted = &p};
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

static ech_status print_words(const compiled *c)
{
    char buf[32];
    ech_prediction p;
    const ech_memory *m = &p.memory[ECH_SPACE_DEVICE];
    ECH_TRY(ech_predict(&c->train, eval_of(c), 0, &p));
    (void)printf("%d rank%s, one class; %d items, %lld ops a step; placements, scales, dependences "
                 "and messages "
                 "in flight check (%.3f s)\n",
                 c->train.layout.world, c->train.layout.world == 1 ? "" : "s", c->train.n_items,
                 (long long)n_ops(&c->train), c->compile_s);
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
    return ECH_OK;
}

static ech_status run(const check_options *o)
{
    ech_config cfg;
    compiled c = {0};
    const ech_config_source source = {.path = o->config,
                                      .sets = o->sets.item,
                                      .n_sets = o->sets.n,
                                      .ranks = o->ranks > 0 ? (int)o->ranks : 0};
    ECH_TRY(ech_config_load(&source, &cfg));
    ech_status st = compile_all(&cfg, &c);
    if (st >= 0)
        st = o->json || o->json_ranks ? print_json(o, &cfg, &c) : print_words(&c);
    compiled_fini(&c);
    ech_config_fini(&cfg);
    return st;
}

static int cmd_check(int argc, char **argv)
{
    check_options o;
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = run(&o);
    ech_opt_list_fini(&o.sets);
    return st < 0 ? ech_cli_fail(st) : 0;
}

const ech_command ech_command_check = {
    "check",
    "compiles every rank's program, proves it and prints memory and traffic",
    "Usage: echelon check CONFIG [OPTIONS]\n"
    "\n"
    "Compiles the programs that train would run and checks placements, gradient scales, "
    "dependences\n"
    "and messages in flight, without starting a rank; prints predicted memory by class and "
    "traffic\n"
    "by group.\n"
    "\n"
    "  --ranks N        ranks of the run (default: what the layout says)\n"
    "  --set KEY=VALUE  overrides a key; may be repeated\n"
    "  --json           one JSON document\n"
    "  --json-ranks     the same with every rank's prediction\n",
    cmd_check,
};
