/* echelon train: reads the configuration, starts or joins the ranks, runs the loop, tells of it. */
#include "base/checked.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "cli/auto_layout.h"
#include "cli/command.h"
#include "cli/cures.h"
#include "cli/launch.h"
#include "cli/run_setup.h"
#include "cli/watch.h"
#include "engine/virtual.h"
#include "report/run_folder.h"
#include "report/trace.h"
#include "report/train_events.h"
#include "train/checkpoint.h"
#include "train/loop.h"
#include "price/predict.h"
#include "train/weights.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct train_options {
    const char *config;
    const char *hostfile, *resume, *transport, *dump_grads, *kernels;
    const char *trace, *report;
    const char *cluster; /* calibration, NULL: no seconds are predicted */
    int64_t ranks, steps, trace_step;
    bool json, json_ranks, verify_plan, oversubscribe;
    ech_opt_list sets;
} train_options;

static volatile sig_atomic_t stop_requested;

/* The first signal asks for a checkpoint and an orderly end at the next common point, the second
 * ends the process at once. */
static void on_signal(int sig)
{
    if (stop_requested) {
        (void)signal(sig, SIG_DFL);
        (void)raise(sig);
    }
    stop_requested = 1;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    /* SA_RESTART: a write to a slow reader goes on where it was */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        (void)sigaction(signals[i], &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* --- options --- */

static const int64_t NOT_GIVEN = INT64_MIN;

static ech_status parse(int argc, char **argv, train_options *o)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {
        {"ranks", ECH_OPT_INT, &o->ranks},
        {"hostfile", ECH_OPT_STRING, &o->hostfile},
        {"oversubscribe", ECH_OPT_FLAG, &o->oversubscribe},
        {"set", ECH_OPT_LIST, &o->sets},
        {"steps", ECH_OPT_INT, &o->steps},
        {"resume", ECH_OPT_STRING, &o->resume},
        {"trace", ECH_OPT_STRING, &o->trace},
        {"trace-step", ECH_OPT_INT, &o->trace_step},
        {"report", ECH_OPT_STRING, &o->report},
        {"cluster", ECH_OPT_STRING, &o->cluster},
        {"verify-plan", ECH_OPT_FLAG, &o->verify_plan},
        {"transport", ECH_OPT_STRING, &o->transport},
        {"kernels", ECH_OPT_STRING, &o->kernels},
        {"dump-grads", ECH_OPT_STRING, &o->dump_grads},
        {"json", ECH_OPT_FLAG, &o->json},
        {"json-ranks", ECH_OPT_FLAG, &o->json_ranks},
    };
    *o = (train_options){.resume = "auto",
                         .kernels = "auto",
                         .ranks = NOT_GIVEN,
                         .steps = NOT_GIVEN,
                         .trace_step = NOT_GIVEN};
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st >= 0 && words.n != 1)
        st = ECH_RAISE(ECH_E_USAGE,
                       "train wants one configuration, got %zu; see 'echelon help train'", words.n);
    if (st >= 0)
        o->config = words.item[0];
    ech_opt_list_fini(&words);
    return st;
}

static ech_status refuse_unbuilt(const train_options *o)
{
    ECH_CHECK(!o->report, ECH_E_UNSUPPORTED, "--report is not built yet");
    ECH_CHECK(!o->verify_plan, ECH_E_UNSUPPORTED, "--verify-plan is not built yet");
    return ECH_OK;
}

static ech_status check_trace(const train_options *o)
{
    ECH_CHECK(o->trace || o->trace_step == NOT_GIVEN, ECH_E_USAGE,
              "--trace-step without --trace, which names the file");
    if (!o->trace)
        return ECH_OK;
    ECH_TRY(ech_trace_check_path(o->trace));
    ECH_CHECK(o->trace_step == NOT_GIVEN || o->trace_step >= 1, ECH_E_USAGE,
              "--trace-step %lld: wanted a step >= 1", (long long)o->trace_step);
    return ECH_OK;
}

/* What can be said of the options alone; those not given become 0. */
static ech_status check_options(train_options *o)
{
    ECH_TRY(refuse_unbuilt(o));
    ECH_CHECK(o->resume[0], ECH_E_USAGE, "--resume wants auto, no or the path of a checkpoint");
    ECH_CHECK(!o->oversubscribe || o->hostfile, ECH_E_USAGE,
              "--oversubscribe wants --hostfile: on one host ranks may share processors anyway");
    ECH_CHECK(!o->hostfile || !o->transport || strcmp(o->transport, "mpi") == 0, ECH_E_USAGE,
              "--hostfile with --transport %s, which is one process; wanted mpi", o->transport);
    ECH_CHECK(o->ranks == NOT_GIVEN || (o->ranks >= 1 && o->ranks <= ECH_MAX_VIRTUAL), ECH_E_USAGE,
              "--ranks %lld: wanted 1..%d", (long long)o->ranks, ECH_MAX_VIRTUAL);
    ECH_CHECK(o->steps == NOT_GIVEN || o->steps >= 1, ECH_E_USAGE,
              "--steps %lld: wanted a step >= 1 to stop at", (long long)o->steps);
    /* a rank's host may have other files: there rank 0 looks, and all hear of it */
    const bool is_path =
        strcmp(o->resume, ECH_RESUME_AUTO) != 0 && strcmp(o->resume, ECH_RESUME_NO) != 0;
    if (is_path && ech_launch_detect().launcher == ECH_LAUNCHER_NONE)
        ECH_CHECK(
            ech_path_exists(o->resume), ECH_E_USAGE,
            "--resume %s: no such file or folder; wanted auto, no or the path of a checkpoint",
            o->resume);
    ECH_TRY(check_trace(o));
    o->json |= o->json_ranks;
    o->trace_step = o->trace_step == NOT_GIVEN ? 0 : o->trace_step;
    o->ranks = o->ranks == NOT_GIVEN ? 0 : o->ranks;
    o->steps = o->steps == NOT_GIVEN ? 0 : o->steps;
    return ECH_OK;
}

/* --- events for people --- */

typedef struct teller {
    ech_train_sink json; /* run folder's file and, with --json, stdout */
    bool is_json;
    int64_t steps;
    const char *trace;             /* file of the time line; NULL: none */
    const ech_timeline *predicted; /* the same step simulated, borrowed; NULL: none */
} teller;

static ech_status print_line(const char *line, void *user)
{
    (void)user;
    const bool ok = fputs(line, stdout) >= 0 && fputc('\n', stdout) >= 0 && fflush(stdout) == 0;
    ECH_CHECK(ok, ECH_E_IO, "standard output cannot be written");
    return ECH_OK;
}

static void print_memory(const ech_prediction *p)
{
    char a[32];
    char b[32];
    for (int s = 0; s < ECH_N_SPACES; s++) {
        if (!p->memory[s].arena)
            continue;
        (void)printf("predicted %s memory of a rank: %s at the peak, arena %s\n",
                     ech_space_name((ech_space)s),
                     ech_format_bytes((double)p->memory[s].total, a, sizeof a),
                     ech_format_bytes((double)p->memory[s].arena, b, sizeof b));
        for (int c = 0; c < ECH_N_CLASSES; c++)
            if (p->memory[s].at_peak[c])
                (void)printf("  %-12s %15zu bytes\n", ech_class_name((ech_class)c),
                             p->memory[s].at_peak[c]);
    }
    for (int x = 0; x < ECH_N_AXES; x++)
        if (p->traffic[x].wire_bytes)
            (void)printf("predicted traffic over %s: %lld bytes sent by a rank in a step\n",
                         ech_axis_name((ech_axis)x), (long long)p->traffic[x].wire_bytes);
}

static ech_status tell_start(void *user, const ech_event_start *e)
{
    const teller *t = user;
    ECH_TRY(t->json.start(t->json.user, e));
    if (t->is_json)
        return ECH_OK;
    (void)printf("%lld parameters, %d rank%s (%s), kernels %s, %d thread%s a rank\n",
                 (long long)e->params, e->ranks, e->ranks == 1 ? "" : "s", e->transport, e->kernels,
                 e->threads, e->threads == 1 ? "" : "s");
    print_memory(e->predicted);
    return ECH_OK;
}

static ech_status tell_step(void *user, const ech_event_step *e)
{
    const teller *t = user;
    ECH_TRY(t->json.step(t->json.user, e));
    if (!t->is_json)
        (void)printf("step %lld/%lld  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s  %.3f s%s\n",
                     (long long)e->step, (long long)t->steps, e->loss, e->grad_norm, e->lr,
                     e->tokens_per_s, e->step_s, e->skipped ? "  (no update)" : "");
    (void)fflush(stdout);
    return ECH_OK;
}

static ech_status tell_eval(void *user, const ech_event_eval *e)
{
    const teller *t = user;
    ECH_TRY(t->json.eval(t->json.user, e));
    if (!t->is_json)
        (void)printf("held-out loss after step %lld: %.4f nats a token, perplexity %.2f\n",
                     (long long)e->step, e->loss, e->perplexity);
    return ECH_OK;
}

static ech_status tell_checkpoint(void *user, const ech_event_checkpoint *e)
{
    const teller *t = user;
    ECH_TRY(t->json.checkpoint(t->json.user, e));
    if (!t->is_json)
        (void)printf("checkpoint of step %lld in %s (%.2f s)\n", (long long)e->step, e->path,
                     e->write_s);
    return ECH_OK;
}

static ech_status tell_fault(void *user, const ech_event_fault *e)
{
    const teller *t = user;
    return t->json.fault(t->json.user, e);
}

static ech_status tell_end(void *user, const ech_event_end *e)
{
    const teller *t = user;
    const ech_engine_memory *m = &e->memory[ECH_SPACE_DEVICE];
    ECH_TRY(t->json.end(t->json.user, e));
    if (t->is_json)
        return ECH_OK;
    (void)printf(
        "memory of rank 0: predicted %zu, allocated %zu bytes; largest difference over ranks "
        "and classes %lld\n",
        e->predicted->memory[ECH_SPACE_DEVICE].total, m->total, (long long)e->memory_diff_bytes);
    for (int x = 0; x < ECH_N_AXES; x++)
        if (e->sent->wire_bytes[x])
            (void)printf("traffic over %s in the last step: predicted %lld, sent %lld bytes\n",
                         ech_axis_name((ech_axis)x), (long long)e->predicted->traffic[x].wire_bytes,
                         (long long)e->sent->wire_bytes[x]);
    (void)printf("largest difference in traffic over ranks, groups and steps: %lld bytes\n",
                 (long long)e->comm_diff_bytes);
    if (isfinite(e->kernel_share)) /* no steps, no time */
        (void)printf(
            "of the steps' time: kernels %.1f %%, messages %.1f %%, waiting %.1f %%, executor "
            "%.2f %%\n",
            100.0 * e->kernel_share, 100.0 * e->comm_share, 100.0 * e->blocked_share,
            100.0 * (1.0 - e->kernel_share - e->comm_share - e->blocked_share));
    return ECH_OK;
}

/* Time lines side by side: what was measured, and with a calibration what was predicted. */
static ech_status tell_trace(void *user, const ech_event_trace *e)
{
    const teller *t = user;
    const char *const name[] = {"measured", "predicted"};
    const ech_timeline *const line[] = {e->line, t->predicted};
    ECH_TRY(ech_trace_write_as(line, name, t->predicted ? 2 : 1, t->trace));
    if (e->line->lost)
        ech_log_root(ECH_LOG_WARN, "%zu bars of step %lld had no room and are not in %s",
                     e->line->lost, (long long)e->step, t->trace);
    ech_log_root(ECH_LOG_INFO, "time line of step %lld in %s", (long long)e->step, t->trace);
    return ECH_OK;
}

/* --- one process of the run --- */

typedef struct process {
    const train_options *o;
    ech_config cfg;
    ech_run_setup setup;
    ech_feed feed;
    ech_session *session;
    ech_watch *watch; /* NULL: where the ranks stand is not recorded */
    ech_metrics *metrics;
    teller teller;
    ech_resume from;
    ech_inputs inputs;   /* on rank 0's process */
    ech_text data;       /* the same as JSON */
    const char *weights; /* what the run starts from, borrowed; NULL: the seed */
    uint64_t weights_hash;
    ech_legal_report costs;
    ech_text chosen;        /* owned: how layout: auto was decided; empty: it is not */
    double step_s;          /* predicted, with a calibration */
    ech_timeline predicted; /* owned: the step that a trace shows, simulated */
    int argc;
    char **argv;
} process;

static const char *layout_auto(const process *p)
{
    return p->chosen.bytes ? ech_text_get(&p->chosen) : NULL;
}

static int64_t last_step(const process *p)
{
    return p->o->steps > 0 ? p->o->steps : p->cfg.train.steps;
}

static int64_t trace_step(const process *p)
{
    if (!p->o->trace)
        return 0;
    return p->o->trace_step > 0 ? p->o->trace_step : last_step(p);
}

static ech_status open_outputs(process *p)
{
    char path[4096];
    const ech_run_facts facts = {&p->cfg,
                                 layout_auto(p),
                                 p->argc,
                                 (const char *const *)p->argv,
                                 p->setup.world,
                                 p->setup.transport_name,
                                 p->setup.kernels_name,
                                 p->weights,
                                 p->weights_hash,
                                 &p->inputs};
    if (p->o->trace)
        ECH_TRY(ech_trace_try_path(p->o->trace));
    ECH_TRY(ech_checkpoint_prepare(&p->cfg, p->o->dump_grads, &p->from.hold));
    ECH_TRY(ech_run_folder_create(&facts));
    ECH_TRY(ech_run_metrics_path(&p->cfg, path, sizeof path));
    ECH_TRY(ech_metrics_create(path, p->from.path[0] != '\0', p->o->json ? print_line : NULL, NULL,
                               &p->metrics));
    p->teller = (teller){ech_train_events_sink(p->metrics), p->o->json, last_step(p), p->o->trace,
                         p->o->trace && p->o->cluster ? &p->predicted : NULL};
    return ECH_OK;
}

/* The state of a checkpoint, or weights of a folder that the model names.  Each rank reads its own copy of the files, so what it
 * found there is compared. */
static ech_status start_weights(process *p)
{
    uint64_t read = 0;
    const bool is_anew = !p->from.path[0];
    p->weights = is_anew ? ech_weights_of_config(&p->cfg) : p->from.path;
    if (p->weights && is_anew)
        ECH_TRY(ech_run_setup_agree(&p->setup, ech_weights_start(p->weights, p->session, &read)));
    ECH_TRY(ech_run_setup_compare(&p->setup, read, "other weights to start from"));
    ECH_TRY(ech_run_setup_agree(&p->setup,
                                ech_session_hash(p->session, ECH_HELD_PARAMS, &p->weights_hash)));
    if (p->weights && is_anew)
        ech_log_root(ECH_LOG_INFO, "starts from the weights in %s", p->weights);
    return ECH_OK;
}

static ech_status resume(process *p)
{
    const ech_resume_request asked = {
        .cfg = &p->cfg, .wish = p->o->resume, .steps = last_step(p), .inputs = &p->inputs};
    ECH_TRY(ech_run_setup_agree(&p->setup, ech_resume_find(&asked, p->session, &p->from)));
    if (p->from.path[0])
        ech_log_root(ECH_LOG_INFO, "goes on after step %lld from %s%s", (long long)p->from.at.step,
                     p->from.path,
                     p->from.at.step >= last_step(p) ? ": that is where to stop, nothing is left "
                                                       "to do"
                                                     : "");
    return ECH_OK;
}

/* The run ends with what is wrong with its files; that it would not fit either is told as well. */
static ech_status check_size_too(const process *p, const ech_session_config *sc, ech_status st)
{
    ech_text told = {0};
    st = ech_run_join_findings(ECH_OK, st, &told);
    st = ech_run_join_findings(st, ech_cures_add(&p->cfg, sc, ech_session_check(sc)), &told);
    ech_text_fini(&told);
    return st;
}

static ech_status hash_inputs(process *p)
{
    ECH_TRY(ech_inputs_hash(&p->cfg, &p->inputs));
    ech_inputs_to_json(&p->inputs, &p->data);
    ECH_CHECK(!p->data.failed, ECH_E_NOMEM, "no memory for the data's hashes");
    return ECH_OK;
}

/* On rank 0 alone, which tells it. */
static ech_status predict_seconds(process *p)
{
    ech_step_sums sums;
    if (!p->o->cluster)
        return ECH_OK;
    ECH_TRY(ech_predict_step(p->o->cluster, &p->session->train, p->setup.threads,
                             p->session->config.compile.block.real, &sums,
                             p->o->trace ? &p->predicted : NULL));
    p->step_s = sums.step_s;
    return ECH_OK;
}

/* What every rank can do alone is done first and agreed on, so that all of them go on or none. */
static ech_status prepare(process *p)
{
    ech_session_config sc = ech_run_session_config(&p->cfg, &p->setup);
    sc.records = p->o->trace != NULL;
    const bool scans = p->setup.transport[0]->rank == 0 && !ech_launch_is_checked();
    ech_status st = ech_feed_open(&p->cfg, scans, &p->feed);
    if (st < 0 && p->setup.n_local == p->setup.world)
        st = check_size_too(p, &sc, st);
    ECH_TRY(ech_run_setup_agree_on_root(&p->setup, st));
    st = ech_session_create(&sc, p->setup.transport, p->setup.n_local, &p->session);
    if (p->setup.n_local == p->setup.world) /* nobody waits meanwhile */
        st = ech_cures_add(&p->cfg, &sc, st);
    ECH_TRY(ech_run_setup_agree(&p->setup, st));
    if (p->setup.transport[0]->rank == 0)
        st = hash_inputs(p);
    ECH_TRY(ech_run_setup_agree_on_root(&p->setup, st));
    ECH_TRY(resume(p));
    ECH_TRY(start_weights(p));
    if (p->setup.transport[0]->rank == 0)
        st = predict_seconds(p);
    if (st >= 0 && p->setup.transport[0]->rank == 0)
        st = open_outputs(p);
    ECH_TRY(ech_run_setup_agree_on_root(&p->setup, st));
    ECH_TRY(ech_watch_open(&p->cfg, &p->setup, &p->watch));
    ech_session_set_flight(p->session, ech_watch_flight(p->watch));
    return ECH_OK;
}

static ech_status run_loop(process *p, ech_loop_end *end)
{
    ECH_TRY(prepare(p));
    ech_run_setup_costs(&p->cfg, &p->setup, &p->costs);
    if (p->setup.transport[0]->rank == 0) {
        if (p->chosen.bytes)
            (void)fprintf(stderr, "echelon: %s\n", layout_auto(p));
        ech_run_say_costs(&p->costs);
    }
    const ech_loop_config lc = {
        .cfg = &p->cfg,
        .session = p->session,
        .feed = &p->feed,
        .from = &p->from,
        .steps = last_step(p),
        .dump_grads = p->o->dump_grads,
        .stop = &stop_requested,
        .layout_auto = layout_auto(p),
        .legal = &p->costs,
        .transport = p->setup.transport_name,
        .kernels = p->setup.kernels_name,
        .step_s = p->o->cluster ? &p->step_s : NULL,
        .data = p->data.bytes ? ech_text_get(&p->data) : NULL,
        .wants_ranks = p->o->json_ranks,
        .trace_step = trace_step(p),
        .sink = {&p->teller, tell_start, tell_step, tell_eval, tell_checkpoint, tell_fault,
                 tell_end, tell_trace},
    };
    return ech_loop_run(&lc, end);
}

static bool others_may_wait(const ech_run_setup *s)
{
    return s->world > 1 && s->n_local == 1 && s->transport && s->transport[0] &&
           s->transport[0]->abort && !s->is_agreed_failure;
}

/* The event of a hang, by the rank that tells of it, whichever that is. */
static void tell_hang(process *p, const ech_watch_hang *hang)
{
    char path[4096];
    char words[1280];
    const ech_event_fault e = {.kind = "hang",
                               .rank = hang->why.rank,
                               .step = p->session->local[0].step,
                               .action = "stop",
                               .detail = words};
    (void)snprintf(words, sizeof words, "%s", ech_error_message());
    ech_status st = ECH_OK;
    if (!p->metrics)
        st = ech_run_metrics_path(&p->cfg, path, sizeof path);
    if (!p->metrics && st >= 0)
        st = ech_metrics_create(path, true, p->o->json ? print_line : NULL, NULL, &p->metrics);
    const ech_train_sink sink = ech_train_events_sink(p->metrics);
    if (st < 0 || sink.fault(sink.user, &e) < 0)
        ech_log(ECH_LOG_WARN, "the event of the hang is lost: %s", ech_error_message());
}

/* A rank that does not answer ends the job: one rank says which and why. */
static ech_status end_hang(process *p, ech_status st, ech_watch_hang *hang)
{
    char words[1280];
    st = ech_watch_find(p->session, p->watch, st, hang);
    if (!hang->is_mine)
        return st;
    (void)snprintf(words, sizeof words, "%s", ech_error_message());
    tell_hang(p, hang);
    return ECH_RAISE(st, "%s", words);
}

/* The other ranks may be waiting for this one: say why, then end the job. */
static void abort_job(process *p, const ech_watch_hang *hang, ech_status st, int *code)
{
    if (hang->is_told && ech_watch_await_end())
        _exit(ech_status_exit_code(st)); /* the job is being ended: nothing is left to say */
    *code = ech_cli_fail(st);            /* also where who was to tell has not ended it */
    ech_launch_say_ended(*code);
    (void)fflush(stdout);
    if (hang->is_mine)
        ech_watch_kill_stopped(p->watch);
    p->setup.transport[0]->abort(p->setup.transport[0], *code);
}

static ech_status run_process(process *p, const ech_run_request *request, int *code)
{
    ech_loop_end end = ECH_LOOP_FINISHED;
    ech_watch_hang hang;
    catch_signals();
    ech_status st = ech_run_setup_open(request, &p->setup);
    if (st >= 0)
        st = run_loop(p, &end);
    if (st >= 0 && end == ECH_LOOP_STOPPED && p->cfg.checkpoint.every_steps == 0)
        ech_log_root(ECH_LOG_WARN,
                     "stopped on request; nothing was saved (checkpoint.every_steps: 0)");
    st = end_hang(p, st, &hang);
    if (p->session)
        ech_session_say_end(p->session, st < 0                    ? ech_status_exit_code(st)
                                        : end == ECH_LOOP_STOPPED ? 5
                                                                  : 0);
    ech_timeline_fini(&p->predicted);
    ech_session_destroy(&p->session);
    ech_feed_close(&p->feed);
    ech_metrics_destroy(&p->metrics);
    ech_resume_fini(&p->from);
    ech_inputs_fini(&p->inputs);
    ech_text_fini(&p->data);
    if (st < 0 && others_may_wait(&p->setup))
        abort_job(p, &hang, st, code);
    ech_watch_close(&p->setup, &p->watch);
    ech_run_setup_close(&p->setup);
    *code = end == ECH_LOOP_STOPPED ? 5 : 0;
    return st;
}

/* Ranks on hosts: all slots where --ranks does not say how many. */
static ech_status open_hosts(const train_options *o, int *ranks, ech_hostfile *hosts)
{
    ECH_TRY(ech_hostfile_read(o->hostfile, hosts));
    *ranks = o->ranks ? (int)o->ranks : (int)hosts->slots;
    ECH_CHECK(*ranks <= ECH_MAX_VIRTUAL, ECH_E_USAGE, "%d slots in %s; wanted --ranks 1..%d",
              *ranks, o->hostfile, ECH_MAX_VIRTUAL);
    return ech_hostfile_fill(hosts, *ranks);
}

static ech_status start_ranks(const process *p, int ranks, const ech_hostfile *hosts, int *code)
{
    if (p->o->hostfile)
        ECH_TRY(ech_run_check_nodes(&p->cfg, hosts->host, hosts->n, ranks, p->o->oversubscribe));
    return ech_run_launch(p->argc, p->argv, ranks, p->o->hostfile ? hosts : NULL, &p->cfg, code);
}

/* This process starts the ranks, is one of them, or is all of them. */
static ech_status run_as(process *p, const ech_launch_place *place, int ranks,
                         const ech_hostfile *hosts, int *code)
{
    const train_options *o = p->o;
    const bool is_inproc = o->transport && strcmp(o->transport, "inproc") == 0;
    const bool starts =
        place->launcher == ECH_LAUNCHER_NONE && !is_inproc && (ranks > 1 || o->hostfile);
    const ech_run_request request = {.place = place,
                                     .ranks = ranks,
                                     .steps = o->steps,
                                     .transport = o->transport,
                                     .kernels = o->kernels,
                                     .resume = o->resume,
                                     .cfg = &p->cfg};
    ECH_TRY(ech_run_setup_check(&request));
    return starts ? start_ranks(p, ranks, hosts, code) : run_process(p, &request, code);
}

static ech_status check_trace_step(const process *p)
{
    ECH_CHECK(trace_step(p) <= last_step(p), ECH_E_USAGE,
              "--trace-step %lld: the run stops at step %lld", (long long)trace_step(p),
              (long long)last_step(p));
    return ECH_OK;
}

static ech_status run(int argc, char **argv, const train_options *o, int *code)
{
    const ech_launch_place place = ech_launch_detect();
    const bool is_rank = place.launcher != ECH_LAUNCHER_NONE;
    int ranks = is_rank ? place.size : o->ranks ? (int)o->ranks : 1;
    ech_hostfile hosts = {0};
    process p = {.o = o, .argc = argc, .argv = argv};
    ECH_TRY(ech_launch_check(&place, is_rank ? o->ranks : 0));
    ech_status st = o->hostfile && !is_rank ? open_hosts(o, &ranks, &hosts) : ECH_OK;
    const ech_config_source source = {.path = o->config,
                                      .sets = o->sets.item,
                                      .n_sets = o->sets.n,
                                      .ranks = ranks,
                                      .needs_data = true};
    if (st >= 0)
        st = ech_config_load(&source, &p.cfg);
    if (st >= 0) {
        /* A rank asks for itself; who starts them asks what a rank of the first host will. */
        const int here = is_rank ? place.local_size : hosts.n ? hosts.host[0].n : 0;
        st = ech_cli_auto_layout(&p.cfg, &(ech_cli_auto){ranks, here, o->cluster, o->resume},
                                 &p.chosen);
        if (st >= 0)
            st = check_trace_step(&p);
        if (st >= 0)
            st = run_as(&p, &place, ranks, &hosts, code);
        ech_config_fini(&p.cfg);
        ech_text_fini(&p.chosen);
    }
    ech_hostfile_fini(&hosts);
    return st;
}

static int cmd_train(int argc, char **argv)
{
    train_options o;
    int code = 0;
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = check_options(&o);
    if (st >= 0)
        st = run(argc, argv, &o, &code);
    ech_opt_list_fini(&o.sets);
    return st < 0 ? ech_cli_fail(st) : code;
}

const ech_command ech_command_train = {
    "train",
    "trains a model from a configuration",
    "Usage: echelon train CONFIG [OPTIONS]\n"
    "\n"
    "Trains as CONFIG says ('echelon help config' lists every key).  With layout: auto it first\n"
    "finds the fastest layout of so many ranks that fits memory.device, among those that the "
    "engine\n"
    "executes, and says which and why; keys of layout that are given, and batch.micro, stay.  A "
    "run\n"
    "that goes on from a checkpoint with as many ranks keeps the layout in its run record.\n"
    "\n"
    "  --ranks N          starts N local ranks through mpirun; under mpirun or srun: joins them\n"
    "  --hostfile FILE    hosts for the ranks, lines 'HOST slots=N' as Open MPI's; fills them in\n"
    "                     order, all slots without --ranks; ssh must reach them\n"
    "  --oversubscribe    with --hostfile: more ranks than slots\n"
    "  --set KEY=VALUE    overrides a key, such as optim.lr=1e-3; may be repeated\n"
    "  --steps N          the step to stop at, counted from the run's first start\n"
    "  --resume WHAT      auto (the default): goes on from the newest whole checkpoint of\n"
    "                     checkpoint.dir, if there is one; no: starts anew; or the path of a\n"
    "                     checkpoint, or of a folder with some\n"
    "  --cluster FILE     predicts the seconds of a step (start event) for the machine that\n"
    "                     'echelon bench --save FILE' has measured; layout: auto then goes by "
    "them\n"
    "  --transport NAME   self, mpi, or inproc: virtual ranks in one process\n"
    "  --kernels NAME     auto, cpu or ref\n"
    "  --dump-grads FILE  gradients of the last step, safetensors with HF names\n"
    "  --trace FILE       the time line of one step, of all ranks: FILE.json is a trace for\n"
    "                     Perfetto, FILE.svg a picture; with --cluster the predicted one beside "
    "it\n"
    "  --trace-step N     which step, counted as --steps does; the last one unless given\n"
    "  --json             one event a line on stdout\n"
    "  --json-ranks       the same; start and end give every rank's figures\n",
    cmd_train,
};
