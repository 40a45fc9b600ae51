/* echelon status: where the ranks of a run stand, read from its flight recorder; no MPI, no model. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/node.h"
#include "cli/command.h"
#include "engine/flight.h"
#include "measure/machine.h"
#include "report/jout.h"
#include "storage/ckpt_folder.h"
#include "storage/ckpt_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH_BYTES = 4096, WORDS_BYTES = 256 };

/* Where nothing is said, as long as faults.watchdog_s is by default. */
static const double PATIENCE_S = 60.0;

/* --- which folder --- */

/* Has a run recorded itself here, readably or not. */
static bool has_record(const char *dir)
{
    ech_flight_view v;
    const ech_status st = ech_flight_read(dir, &v);
    if (st >= 0)
        ech_flight_view_fini(&v);
    else
        ech_error_clear();
    return st >= 0 || st == ECH_E_CORRUPT;
}

/* A run.dir that a checkpoint folder names: as it is, or beside that folder where it is relative and
 * the run was started elsewhere. */
static ech_status settle(const char *ckpt, const char *dir, char *out, size_t n)
{
    char beside[MAX_PATH_BYTES];
    (void)snprintf(out, n, "%s", dir);
    if (dir[0] == '/' || has_record(dir))
        return ECH_OK;
    ECH_TRY(ech_path_join(ckpt, "..", beside, sizeof beside));
    return ech_path_join(beside, dir, out, n);
}

/* While a run holds the folder its lock says "..., run.dir DIR, since ...". */
static bool read_lock(const char *ckpt, char *dir, size_t n)
{
    static const char before[] = ", run.dir ";
    char path[MAX_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    if (ech_path_join(ckpt, "lock", path, sizeof path) < 0 ||
        ech_read_whole(path, MAX_PATH_BYTES, &text, &bytes) < 0) {
        ech_error_clear();
        return false;
    }
    const char *at = strstr(text, before);
    const char *end = NULL;
    at = at ? at + sizeof before - 1 : NULL;
    for (const char *s = at; s && (s = strstr(s, ", since ")) != NULL; s++)
        end = s; /* the last one: a folder's name may hold the words */
    const bool found = at && end && (size_t)(end - at) < n;
    if (found)
        (void)snprintf(dir, n, "%.*s", (int)(end - at), at);
    free(text);
    return found;
}

static ech_status read_manifest(const char *folder, char *dir, size_t n)
{
    char path[MAX_PATH_BYTES];
    ech_node *root = NULL;
    ECH_TRY(ech_path_join(folder, ECH_CKPT_MANIFEST, path, sizeof path));
    ECH_TRY(ech_node_read_file(path, true, &root));
    const ech_node *at = ech_node_find(ech_node_find(ech_node_find(root, "config"), "run"), "dir");
    const bool found = at && at->kind == ECH_NODE_STRING && at->string_bytes < n;
    if (found)
        (void)snprintf(dir, n, "%s", at->string);
    ech_node_destroy(&root);
    ECH_CHECK(found, ECH_E_DATA, "%s: names no run.dir", path);
    return ECH_OK;
}

/* The newest checkpoint of a folder names the run that wrote it. */
static ech_status read_newest(const char *ckpt, char *dir, size_t n)
{
    char path[MAX_PATH_BYTES];
    ech_ckpt_entry *entry = NULL;
    size_t n_entries = 0;
    ECH_TRY(ech_ckpt_list(ckpt, &entry, &n_entries));
    ech_status st = n_entries ? ech_path_join(ckpt, entry[0].name, path, sizeof path)
                              : ECH_RAISE(ECH_E_DATA,
                                          "%s: is no run folder (no flight-HOST) and no folder of "
                                          "checkpoints",
                                          ckpt);
    free(entry);
    return st < 0 ? st : read_manifest(path, dir, n);
}

/* The run folder that a path of the command line stands for. */
static ech_status find_run(const char *path, char *out, size_t n)
{
    char dir[MAX_PATH_BYTES];
    char manifest[MAX_PATH_BYTES];
    char parent[MAX_PATH_BYTES];
    ECH_TRY(ech_cli_check_path(path));
    ECH_CHECK(ech_path_is_folder(path), ECH_E_USAGE,
              "%s: wanted a run folder or one of checkpoints", path);
    (void)snprintf(out, n, "%s", path);
    ECH_CHECK(strlen(path) < n, ECH_E_USAGE, "the path is too long");
    if (has_record(path))
        return ECH_OK;
    ECH_TRY(ech_path_join(path, ECH_CKPT_MANIFEST, manifest, sizeof manifest));
    if (ech_path_exists(manifest)) {
        ECH_TRY(read_manifest(path, dir, sizeof dir));
        ECH_TRY(ech_path_join(path, "..", parent, sizeof parent));
        return settle(parent, dir, out, n);
    }
    if (!read_lock(path, dir, sizeof dir))
        ECH_TRY(read_newest(path, dir, sizeof dir));
    return settle(path, dir, out, n);
}

/* --- what it comes to --- */

/* How a rank's process is. */
typedef enum life {
    LIFE_UNKNOWN,
    LIFE_STARTING,
    LIFE_RUNNING,
    LIFE_STOPPED,
    LIFE_ENDED,
    LIFE_GONE
} life;

static const char *const life_words[] = {
    [LIFE_UNKNOWN] = "on another host", [LIFE_STARTING] = "starting", [LIFE_RUNNING] = "running",
    [LIFE_STOPPED] = "stopped",         [LIFE_ENDED] = "ended",       [LIFE_GONE] = "gone",
};

typedef struct answer {
    ech_flight_view view;
    life *life; /* owned [n_ranks] */
    const char *state;
    int64_t step; /* of the rank that is least far */
    double now_s;
} answer;

static life life_of(const ech_flight_view *v, const ech_flight_rank *r, const char *host)
{
    if (r->exit_code >= 0)
        return LIFE_ENDED;
    if (strcmp(v->host[r->host], host) != 0)
        return LIFE_UNKNOWN;
    if (r->process.pid == 0)
        return LIFE_STARTING;
    const char state = ech_process_state(&r->process);
    if (state == '\0' || state == 'Z' || state == 'X')
        return LIFE_GONE;
    return state == 'T' || state == 't' ? LIFE_STOPPED : LIFE_RUNNING;
}

static int count(const answer *a, life which)
{
    int n = 0;
    for (int i = 0; i < a->view.n_ranks; i++)
        n += a->life[i] == which;
    return n;
}

static const char *word_of_end(const answer *a)
{
    for (int i = 0; i < a->view.n_ranks; i++)
        if (a->view.rank[i].exit_code != 0 && a->view.rank[i].exit_code != 5)
            return "failed";
    return "finished";
}

/* No rank here has shown a sign of life for longer than a wait may last; rank 0 at its files is
 * waited for. */
static bool is_hung(const answer *a)
{
    const double limit = a->view.watchdog_s > 0.0 ? a->view.watchdog_s : PATIENCE_S;
    double last = 0.0;
    int here = 0;
    for (int i = 0; i < a->view.n_ranks; i++) {
        const ech_flight_rank *r = &a->view.rank[i];
        if (a->life[i] != LIFE_RUNNING && a->life[i] != LIFE_STOPPED)
            continue;
        if (r->rank == 0 && r->at.state == ECH_FLIGHT_OUTSIDE && a->life[i] == LIFE_RUNNING)
            return false;
        here++;
        last = r->moved_s > last ? r->moved_s : last;
    }
    return here > 0 && a->now_s - last > limit;
}

static ech_status judge(answer *a)
{
    ech_machine m;
    ech_machine_get(&m);
    a->now_s = ech_clock_s();
    ECH_TRY(ech_calloc((size_t)a->view.n_ranks, sizeof *a->life, &a->life));
    a->step = a->view.rank[0].at.step;
    for (int i = 0; i < a->view.n_ranks; i++) {
        const ech_flight_rank *r = &a->view.rank[i];
        a->life[i] = life_of(&a->view, r, m.host);
        a->step = r->at.step < a->step ? r->at.step : a->step;
    }
    a->state = count(a, LIFE_ENDED) == a->view.n_ranks ? word_of_end(a)
               : count(a, LIFE_GONE) > 0               ? "dead"
               : is_hung(a)                            ? "hung"
                                                       : "running";
    return ECH_OK;
}

/* --- telling --- */

static bool has_supervisor(const answer *a)
{
    return ech_process_is_alive(&a->view.supervisor);
}

static const char *where(const answer *a, int i, char *buf, size_t n)
{
    const ech_flight_rank *r = &a->view.rank[i];
    if (a->life[i] == LIFE_ENDED)
        (void)snprintf(buf, n, "ended with exit %d", r->exit_code);
    else if (r->process.pid == 0)
        (void)snprintf(buf, n, "starting");
    else
        (void)ech_flight_describe(r, buf, n);
    return buf;
}

static void add_rank(const answer *a, int i, ech_jout *j)
{
    char words[WORDS_BYTES];
    const ech_flight_rank *r = &a->view.rank[i];
    const bool is_here = a->life[i] != LIFE_UNKNOWN && a->life[i] != LIFE_STARTING;
    ech_jout_open(j, NULL, '{');
    ech_jout_int(j, "rank", r->rank);
    ech_jout_string(j, "host", a->view.host[r->host]);
    if (r->process.pid)
        ech_jout_int(j, "pid", r->process.pid);
    else
        ech_jout_null(j, "pid");
    ech_jout_string(j, "op", where(a, i, words, sizeof words));
    ech_jout_int(j, "step", r->at.step);
    ech_jout_string(j, "process", a->life[i] == LIFE_UNKNOWN ? NULL : life_words[a->life[i]]);
    if (is_here && a->life[i] != LIFE_ENDED)
        ech_jout_real(j, "for_s", a->now_s - r->at.since_s);
    else
        ech_jout_null(j, "for_s");
    ech_jout_close(j);
}

static ech_status print_json(const answer *a)
{
    ech_jout j = {0};
    ech_jout_open(&j, NULL, '{');
    ech_jout_string(&j, "state", a->state);
    ech_jout_int(&j, "step", a->step);
    ech_jout_open(&j, "supervisor", '{');
    if (has_supervisor(a))
        ech_jout_int(&j, "pid", a->view.supervisor.pid);
    else
        ech_jout_null(&j, "pid");
    ech_jout_close(&j);
    ech_jout_open(&j, "ranks", '[');
    for (int i = 0; i < a->view.n_ranks; i++)
        add_rank(a, i, &j);
    ech_jout_close(&j);
    ech_jout_close(&j);
    return ech_cli_print_json(&j);
}

static ech_status print_words(const answer *a)
{
    char words[WORDS_BYTES];
    ech_text t = {0};
    ech_text_add(&t, "%s, step %lld", a->state, (long long)a->step);
    if (has_supervisor(a))
        ech_text_add(&t, ", started by process %lld", (long long)a->view.supervisor.pid);
    if (a->view.n_ranks < a->view.world)
        ech_text_add(&t, "; %d of %d ranks are known here", a->view.n_ranks, a->view.world);
    ech_text_add(&t, "\n%5s  %-16s %8s  %-8s %10s  %s\n", "rank", "host", "pid", "process", "for",
                 "where it stands");
    for (int i = 0; i < a->view.n_ranks; i++) {
        char age[24] = "";
        const ech_flight_rank *r = &a->view.rank[i];
        if (a->life[i] == LIFE_RUNNING || a->life[i] == LIFE_STOPPED || a->life[i] == LIFE_GONE)
            (void)snprintf(age, sizeof age, "%.1f s", a->now_s - r->at.since_s);
        ech_text_add(&t, "%5d  %-16s %8lld  %-8s %10s  %s\n", r->rank, a->view.host[r->host],
                     (long long)r->process.pid, life_words[a->life[i]], age,
                     where(a, i, words, sizeof words));
    }
    return ech_cli_print(&t);
}

static ech_status tell(const char *path, bool as_json)
{
    char dir[MAX_PATH_BYTES];
    answer a = {.state = ""};
    ECH_TRY(find_run(path, dir, sizeof dir));
    ECH_TRY(ech_flight_read(dir, &a.view));
    ech_status st = judge(&a);
    if (st >= 0)
        st = as_json ? print_json(&a) : print_words(&a);
    free(a.life);
    ech_flight_view_fini(&a.view);
    return st;
}

static int cmd_status(int argc, char **argv)
{
    bool as_json = false;
    ech_opt_list words = {0};
    const ech_opt opts[] = {{"json", ECH_OPT_FLAG, &as_json}};
    ech_status st = ech_opt_parse(argc, argv, opts, 1, &words);
    if (st >= 0 && words.n != 1)
        st = ECH_RAISE(ECH_E_USAGE,
                       "status wants one run folder, got %zu; see 'echelon help status'", words.n);
    if (st >= 0)
        st = tell(words.item[0], as_json);
    ech_opt_list_fini(&words);
    return st < 0 ? ech_cli_fail(st) : 0;
}

const ech_command ech_command_status = {
    "status",
    "where a running job stands",
    "Usage: echelon status RUN [--json]\n"
    "\n"
    "Says where each rank of a run stands: its process, since when, in which item and op of its\n"
    "program, layer and micro-batch.  RUN is the run folder or the folder of its checkpoints.\n"
    "\n"
    "The job is running; finished or failed, once every rank has ended in order; dead, where a\n"
    "rank is gone without; hung, where no rank has shown a sign of life for longer than\n"
    "faults.watchdog_s (60 s where that is 0).  While rank 0 is alive here, not stopped, and\n"
    "outside of programs (starting, at a checkpoint) the job is never called hung, however long\n"
    "that takes.  Ranks of other hosts are told as their file here says, not whether they live.\n"
    "\n"
    "The exit status is 0 whatever the state: running, finished, failed, dead or hung.  Scripts\n"
    "read `state` of --json.\n"
    "\n"
    "  --json   one document: state, step, supervisor (the process of 'train --ranks'), ranks\n",
    cmd_status,
};
