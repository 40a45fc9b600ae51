/* echelon bench: measures this machine, under the load that training has, and calibrates prices. */
#include "base/checked.h"
#include "base/io.h"
#include "base/log.h"
#include "cli/auto_layout.h"
#include "cli/bench_step.h"
#include "cli/bench_table.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/run_setup.h"
#include "measure/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_part {
    const char *name;
    ech_status (*measure)(ech_bench *b, ech_calibration *c, ech_bench_found *found);
    bool needs_ranks;
} bench_part;

static const bench_part parts[] = {
    {"gemm", ech_bench_gemm, false},
    {"attention", ech_bench_attention, false},
    {"memory", ech_bench_memory, false},
    {"comm", ech_bench_comm, true},
};

enum { N_PARTS = sizeof parts / sizeof parts[0] };

typedef struct bench_options {
    const char *part;   /* of parts, "all" or "step" */
    const char *config; /* step */
    const char *kernels, *dtype, *save, *cluster;
    int64_t ranks, threads, rounds;
    bool json, quick;
    ech_opt_list sets;
} bench_options;

static const int64_t NOT_GIVEN = INT64_MIN;

/* --- options --- */

static ech_status check_part(const ech_opt_list *words, bench_options *o)
{
    static const char *const known[] = {"gemm", "attention", "memory", "comm", "all", "step"};
    ECH_CHECK(
        words->n >= 1, ECH_E_USAGE,
        "bench wants what to measure: gemm, attention, memory, comm, all or step; see 'echelon "
        "help bench'");
    o->part = words->item[0];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i], o->part) == 0) {
            const bool is_step = strcmp(o->part, "step") == 0;
            ECH_CHECK(words->n == (is_step ? 2 : 1), ECH_E_USAGE, "bench %s wants %s", o->part,
                      is_step ? "one configuration" : "no further word");
            o->config = is_step ? words->item[1] : NULL;
            return ECH_OK;
        }
    ECH_CHECK(strcmp(o->part, "storage") != 0, ECH_E_UNSUPPORTED,
              "bench storage is in the specification and not built yet");
    const char *near = ech_nearest_name(o->part, known, sizeof known / sizeof known[0]);
    return ECH_RAISE(ECH_E_USAGE,
                     "bench %s: no such part%s%s; wanted gemm, attention, memory, comm, "
                     "all or step",
                     o->part, near ? ", did you mean " : "", near ? near : "");
}

static ech_status check_numbers(bench_options *o)
{
    const bool is_step = o->config != NULL;
    ECH_CHECK(o->ranks == NOT_GIVEN || (o->ranks >= 1 && o->ranks <= 1024), ECH_E_USAGE,
              "--ranks %lld: wanted 1..1024", (long long)o->ranks);
    ECH_CHECK(o->threads == NOT_GIVEN || (o->threads >= 1 && o->threads <= 1024), ECH_E_USAGE,
              "--threads %lld: wanted 1..1024", (long long)o->threads);
    ECH_CHECK(o->rounds >= 1 && o->rounds <= ECH_BENCH_MAX_ROUNDS, ECH_E_USAGE,
              "--rounds %lld: wanted 1..%d", (long long)o->rounds, ECH_BENCH_MAX_ROUNDS);
    ECH_CHECK(strcmp(o->dtype, "fp32") == 0 || strcmp(o->dtype, "fp64") == 0, ECH_E_USAGE,
              "--dtype %s: wanted fp32 or fp64", o->dtype);
    ECH_CHECK(is_step || (!o->cluster && !o->sets.n), ECH_E_USAGE,
              "--cluster and --set belong to bench step");
    ECH_CHECK(!is_step || !o->save || (o->cluster && strcmp(o->cluster, o->save) == 0), ECH_E_USAGE,
              "bench step --save FILE puts into FILE how much longer its kernels take in a step: "
              "wanted the same FILE as --cluster");
    o->ranks = o->ranks == NOT_GIVEN ? 0 : o->ranks;
    o->threads = o->threads == NOT_GIVEN ? 0 : o->threads;
    return ECH_OK;
}

static ech_status parse(int argc, char **argv, bench_options *o)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {
        {"ranks", ECH_OPT_INT, &o->ranks},        {"threads", ECH_OPT_INT, &o->threads},
        {"rounds", ECH_OPT_INT, &o->rounds},      {"kernels", ECH_OPT_STRING, &o->kernels},
        {"dtype", ECH_OPT_STRING, &o->dtype},     {"save", ECH_OPT_STRING, &o->save},
        {"cluster", ECH_OPT_STRING, &o->cluster}, {"set", ECH_OPT_LIST, &o->sets},
        {"quick", ECH_OPT_FLAG, &o->quick},       {"json", ECH_OPT_FLAG, &o->json},
    };
    *o = (bench_options){
        .kernels = "auto", .dtype = "fp32", .ranks = NOT_GIVEN, .threads = NOT_GIVEN, .rounds = 3};
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st >= 0)
        st = check_part(&words, o);
    if (st >= 0)
        st = check_numbers(o);
    ech_opt_list_fini(&words);
    return st;
}

/* --- the file --- */

/* Parts of one file are measured alike, or they do not belong together. */
static ech_status check_alike(const bench_options *o, int ranks, const ech_calibration *c)
{
    const int64_t threads = o->threads ? o->threads : 1;
    ECH_CHECK(
        c->ranks == ranks && c->threads == threads &&
            strcmp(ech_dtype_name(c->real), o->dtype) == 0,
        ECH_E_USAGE,
        "--save %s: its parts were measured with %d ranks of %d threads in %s, these would be "
        "with %d of %lld in %s; wanted the same, or another file",
        o->save, c->ranks, c->threads, ech_dtype_name(c->real), ranks, (long long)threads,
        o->dtype);
    return ECH_OK;
}

/* What the file holds already; nothing where there is none. */
static ech_status read_saved(const bench_options *o, int ranks, ech_calibration *c)
{
    bool exists = false;
    ech_calibration_init(c);
    if (o->save)
        ECH_TRY(ech_path_look(o->save, &exists));
    if (!exists)
        return ECH_OK;
    ECH_TRY(ech_calibration_read(o->save, c));
    c->in_step = NAN; /* it belonged to the costs before */
    return check_alike(o, ranks, c);
}

static ech_status save(const bench_options *o, const ech_calibration *c)
{
    ech_text text = {0};
    ech_calibration_write(c, &text);
    ech_status st = text.failed ? ECH_RAISE(ECH_E_NOMEM, "the text of %s", o->save)
                                : ech_write_whole(o->save, ech_text_get(&text), text.bytes);
    ech_text_fini(&text);
    return st;
}

/* --- measuring --- */

static ech_status measure_parts(const bench_options *o, ech_bench *b, ech_calibration *c,
                                ech_bench_found *found)
{
    const bool is_all = strcmp(o->part, "all") == 0;
    for (int i = 0; i < N_PARTS; i++) {
        const bool is_asked = is_all || strcmp(o->part, parts[i].name) == 0;
        const bool is_alone = b->config.transport->size == 1;
        if (!is_asked || (is_all && is_alone && parts[i].needs_ranks))
            continue;
        ECH_TRY(parts[i].measure(b, c, found));
    }
    return ECH_OK;
}

static ech_status measure(const bench_options *o, ech_run_setup *setup, ech_calibration *c)
{
    ech_bench b = {0};
    ech_bench_found found = {0};
    ech_bench_config config = ech_bench_config_default();
    config.transport = setup->transport[0];
    config.kernels = setup->kernels;
    config.threads = setup->threads;
    config.real = strcmp(o->dtype, "fp64") == 0 ? ECH_F64 : ECH_F32;
    config.rounds = (int)o->rounds;
    config.is_small = o->quick;
    if (o->quick) {
        config.point_s = 0.0002;
        config.ring_bytes = (size_t)24 << 20;
    }
    ech_status st = ech_run_setup_agree(setup, ech_bench_open(&config, &b));
    if (st >= 0)
        st = measure_parts(o, &b, c, &found);
    if (st >= 0 && setup->transport[0]->rank == 0) {
        st = o->save ? save(o, c) : ECH_OK;
        if (st >= 0)
            st = ech_bench_print(c, &found, o->json);
    }
    ech_bench_found_fini(&found);
    ech_bench_close(&b);
    return st;
}

/* --- ranks --- */

/* layout: auto is decided as train would. */
static ech_status choose_layout(const bench_options *o, int ranks, ech_config *cfg)
{
    ech_text chosen = {0};
    const ech_status st =
        ech_cli_auto_layout(cfg, &(ech_cli_auto){.ranks = ranks, .cluster = o->cluster}, &chosen);
    if (st < 0)
        ech_config_fini(cfg);
    ech_text_fini(&chosen);
    return st;
}

/* No model: what a run is set up with, of a configuration's defaults. */
static ech_status load_config(const bench_options *o, int ranks, ech_config *cfg)
{
    if (o->config) {
        const ech_config_source source = {
            .path = o->config, .sets = o->sets.item, .n_sets = o->sets.n, .ranks = ranks};
        ECH_TRY(ech_config_load(&source, cfg));
        ECH_TRY(choose_layout(o, ranks, cfg));
    } else {
        ECH_TRY(ech_config_init(cfg));
        cfg->precision.compute =
            strcmp(o->dtype, "fp64") == 0 ? ECH_COMPUTE_FP64 : ECH_COMPUTE_FP32;
        cfg->run.threads = 1;
        const ech_status st = ech_config_resolve(cfg, ranks);
        if (st < 0) {
            ech_config_fini(cfg);
            return st;
        }
    }
    if (o->threads)
        cfg->run.threads = o->threads;
    return ECH_OK;
}

static ech_status run_measure(const bench_options *o, const ech_config *cfg, ech_run_setup *setup)
{
    ech_calibration *c;
    ECH_TRY(ech_calloc(1, sizeof *c, &c));
    ech_status st = ECH_OK;
    if (o->config) {
        const ech_bench_step_options step = {cfg, o->cluster, o->save != NULL, o->rounds, o->json};
        st = ech_bench_step_command(&step, setup);
    } else {
        st = ech_run_setup_agree(setup, read_saved(o, setup->world, c));
        if (st >= 0)
            st = measure(o, setup, c);
    }
    free(c);
    return st;
}

static ech_status run_process(const bench_options *o, const ech_launch_place *place, int ranks,
                              const ech_config *cfg, int *code)
{
    ech_run_setup setup = {0};
    const ech_run_request request = {
        .place = place, .ranks = ranks, .kernels = o->kernels, .cfg = cfg};
    ech_status st = ech_run_setup_open(&request, &setup);
    if (st >= 0)
        st = run_measure(o, cfg, &setup);
    if (st < 0 && setup.world > 1 && setup.transport && setup.transport[0] &&
        setup.transport[0]->abort && !setup.is_agreed_failure) {
        *code = ech_cli_fail(st); /* the others may be waiting for this one */
        ech_launch_say_ended(*code);
        (void)fflush(stdout);
        setup.transport[0]->abort(setup.transport[0], *code);
    }
    ech_run_setup_close(&setup);
    return st;
}

/* What one process can refuse is refused before ranks are started. */
static ech_status check_before(const bench_options *o, int ranks, const ech_config *cfg)
{
    ech_calibration *c;
    ECH_CHECK(strcmp(o->part, "comm") != 0 || ranks > 1, ECH_E_USAGE,
              "bench comm wants --ranks 2 or more: one rank has nobody to talk to");
    ECH_CHECK(!o->config || ech_config_world(cfg) == ranks, ECH_E_USAGE,
              "the layout of %s makes %lld ranks, --ranks says %d", o->config,
              (long long)ech_config_world(cfg), ranks);
    ECH_TRY(ech_calloc(1, sizeof *c, &c));
    ech_status st = read_saved(o, ranks, c);
    if (st >= 0 && o->cluster)
        st = ech_calibration_read(o->cluster, c);
    free(c);
    return st;
}

static ech_status run(int argc, char **argv, const bench_options *o, int *code)
{
    const ech_launch_place place = ech_launch_detect();
    const bool is_rank = place.launcher != ECH_LAUNCHER_NONE;
    const int ranks = is_rank ? place.size : o->ranks ? (int)o->ranks : 1;
    ech_config cfg;
    ECH_TRY(ech_launch_check(&place, is_rank ? o->ranks : 0));
    ECH_TRY(load_config(o, ranks, &cfg));
    const ech_run_request request = {
        .place = &place, .ranks = ranks, .kernels = o->kernels, .cfg = &cfg};
    ech_status st = ech_run_setup_check(&request);
    if (st >= 0 && !is_rank)
        st = check_before(o, ranks, &cfg);
    if (st >= 0 && !is_rank && ranks > 1)
        st = ech_launch_run(&(ech_launch_request){ranks, NULL, argc, argv}, code);
    else if (st >= 0)
        st = run_process(o, &place, ranks, &cfg, code);
    ech_config_fini(&cfg);
    return st;
}

static int cmd_bench(int argc, char **argv)
{
    bench_options o;
    int code = 0;
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = run(argc, argv, &o, &code);
    ech_opt_list_fini(&o.sets);
    if (st >= 0)
        return code;
    code = ech_cli_fail(st);
    ech_launch_say_ended(code);
    return code;
}

const ech_command ech_command_bench = {
    "bench",
    "measures this machine and calibrates predicted times",
    "Usage: echelon bench gemm|attention|memory|comm|all [OPTIONS]\n"
    "       echelon bench step CONFIG [OPTIONS]\n"
    "\n"
    "Measures what one rank does on this machine while all ranks measure the same: matrix "
    "products,\n"
    "attention, every other kind of op by the bytes it moves, messages and collectives.  Prints\n"
    "rates (medians of rounds) and their spread over the rounds.  With step, runs training steps "
    "of\n"
    "a configuration on random tokens, op by op, and prints predicted beside measured seconds by\n"
    "kind of op; it needs no data.  With --cluster FILE --save FILE, measured last, FILE also "
    "learns how\n"
    "much longer kernels take in a step than by themselves, and predicts with it.\n"
    "\n"
    "  --ranks N       ranks that measure at the same time (default: 1; comm: at least 2)\n"
    "  --threads N     threads of each rank (default: 1; step: run.threads)\n"
    "  --save FILE     puts what was measured into FILE and keeps its other parts; they must have\n"
    "                  been measured with the same ranks, threads and type\n"
    "  --rounds N      measurements of each point, in turn (default: 3); of step: steps\n"
    "  --dtype TYPE    fp32 (the default) or fp64\n"
    "  --kernels NAME  auto, cpu or ref\n"
    "  --quick         few small points: a trial, no calibration\n"
    "  --cluster FILE  step: predictions of FILE\n"
    "  --set KEY=VALUE step: overrides a key; may be repeated\n"
    "  --json          one JSON document\n",
    cmd_bench,
};
