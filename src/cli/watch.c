/* The flight recorder around a run, and the end of one that hangs. */
#include "cli/watch.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "cli/launch.h"
#include "measure/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- opening --- */

static void this_host(char *buf, size_t n)
{
    ech_machine m;
    ech_machine_get(&m);
    (void)snprintf(buf, n, "%.63s", m.host[0] ? m.host : "localhost");
}

/* Ranks of this host, ascending.  @return how many */
static int ranks_here(const ech_run_setup *s, const char *host, int *rank)
{
    int n = 0;
    for (int i = 0; i < s->n_nodes; i++)
        for (int k = 0; k < s->nodes[i].n; k++)
            if (strcmp(s->nodes[i].name, host) == 0)
                rank[n++] = s->nodes[i].first + k;
    for (int r = 0; r < s->world && !s->nodes; r++)
        rank[n++] = r;
    return n;
}

/* All ranks' values of an int64; one process has its own alone. */
static ech_status share(const ech_run_setup *s, int64_t mine, int64_t *all)
{
    ech_transport *t = s->transport[0];
    all[0] = mine;
    return s->n_local > 1 || t->size == 1 ? ECH_OK : t->exchange(t, &mine, sizeof mine, all);
}

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static ech_status create(const ech_flight_spec *spec)
{
    ECH_TRY(ech_make_folders(spec->dir));
    return ech_flight_create(spec);
}

static void say_without(const char *why)
{
    ech_log(ECH_LOG_WARN, "where the ranks stand is not recorded: %s", why);
    ech_error_clear();
}

/* The first rank of each host makes the file, then all open it. */
static ech_status make_and_map(const ech_run_setup *s, ech_flight_spec *spec, int64_t *all,
                               ech_flight **out)
{
    ech_status st = ECH_OK;
    const int me = s->transport[0]->rank;
    ECH_TRY(share(s, now_ns(), all));
    spec->run = all[0];
    if (spec->n > 0 && spec->rank[0] == me)
        st = create(spec);
    if (st < 0)
        say_without(ech_error_message());
    ECH_TRY(share(s, st, all)); /* the files are there now */
    if (spec->n > 0 && all[s->n_local > 1 || s->world == 1 ? 0 : spec->rank[0]] >= 0 &&
        ech_flight_open(spec, out) < 0)
        say_without(ech_error_message());
    return ECH_OK;
}

/* Ranks that write files are waited for without a deadline; not those that are stopped or gone, once
 * they have been so for as long as others may be silent.  One look a quarter of a second. */
struct ech_watch {
    ech_flight *flight; /* owned */
    double watchdog_s, next_look_s;
    int world;
    double since_s[]; /* [world] seen stopped or gone; 0: it is not */
};

static void look(ech_watch *w)
{
    ech_flight_view view;
    const double now = ech_clock_s();
    if (now < w->next_look_s)
        return;
    w->next_look_s = now + 0.25;
    if (ech_flight_look(w->flight, &view) < 0) { /* nothing is known of anybody */
        ech_error_clear();
        return;
    }
    for (int i = 0; i < view.n_ranks; i++) {
        const ech_flight_rank *r = &view.rank[i];
        const char state = r->process.pid > 0 ? ech_process_state(&r->process) : 'R';
        const bool is_still = state == 'T' || state == 't' || state == 'Z' || state == '\0';
        if (!is_still)
            w->since_s[r->rank] = 0.0;
        else if (w->since_s[r->rank] <= 0.0)
            w->since_s[r->rank] = now;
    }
    ech_flight_view_fini(&view);
}

static bool is_lost(void *user, int rank)
{
    ech_watch *w = user;
    if (w->watchdog_s <= 0.0)
        return false;
    look(w);
    return w->since_s[rank] > 0.0 && ech_clock_s() - w->since_s[rank] >= w->watchdog_s;
}

static ech_status open_watch(const ech_config *cfg, ech_run_setup *setup, ech_watch *w, int *rank,
                             int64_t *all)
{
    char host[64];
    this_host(host, sizeof host);
    ech_flight_spec spec = {.dir = cfg->run.dir,
                            .host = host,
                            .rank = rank,
                            .n = ranks_here(setup, host, rank),
                            .world = setup->world,
                            .watchdog_s = cfg->faults.watchdog_s,
                            .supervisor = ech_launch_supervisor(),
                            .program = {NULL, "evaluation"}};
    return make_and_map(setup, &spec, all, &w->flight);
}

ech_status ech_watch_open(const ech_config *cfg, ech_run_setup *setup, ech_watch **out)
{
    ech_watch *w = NULL;
    int *rank = NULL;
    int64_t *all = NULL;
    const size_t n = (size_t)setup->world;
    *out = NULL;
    ech_status st = ech_calloc(1, sizeof *w + n * sizeof w->since_s[0], &w);
    if (st >= 0)
        st = ech_calloc(n, sizeof *rank, &rank);
    if (st >= 0)
        st = ech_calloc(n, sizeof *all, &all);
    st = ech_run_setup_agree(setup, st);
    if (st >= 0) {
        w->watchdog_s = cfg->faults.watchdog_s;
        st = open_watch(cfg, setup, w, rank, all);
    }
    free(rank);
    free(all);
    if (st < 0 || !w->flight) {
        free(w);
        return st;
    }
    setup->transport[0]->is_lost = is_lost;
    setup->transport[0]->lost_user = w;
    *out = w;
    return ECH_OK;
}

ech_flight *ech_watch_flight(const ech_watch *w)
{
    return w ? w->flight : NULL;
}

void ech_watch_close(ech_run_setup *setup, ech_watch **watch)
{
    ech_watch *w = *watch;
    *watch = NULL;
    if (!w)
        return;
    if (setup->transport && setup->transport[0])
        setup->transport[0]->is_lost = NULL;
    ech_flight_close(&w->flight);
    free(w);
}

/* --- a hang --- */

/* A wait has reached its deadline: this rank is the first of its host to say so. */
static ech_status explain(const ech_session *session, const ech_flight *flight, ech_status st,
                          ech_explanation *why)
{
    char words[512];
    (void)snprintf(words, sizeof words, "%s", ech_error_message());
    if (ech_session_explain(session, flight, why) < 0)
        return ECH_RAISE(st, "%s", words);
    if (why->rank < 0)
        return ECH_RAISE(st, "%s (%s)", words, why->line);
    return ECH_RAISE(st, "no progress for %g s: %s", session->config.watchdog_s, why->line);
}

ech_status ech_watch_find(const ech_session *session, const ech_watch *w, ech_status st,
                          ech_watch_hang *out)
{
    ech_flight *flight = ech_watch_flight(w);
    *out = (ech_watch_hang){.why = {.rank = -1}};
    if (st >= 0 || !session || !flight)
        return st;
    const int me = session->local[0].rank;
    /* what follows from the end that another brings about is not told either */
    out->is_told =
        ech_flight_is_told_by_other(flight, me) && (st == ECH_E_TIMEOUT || st == ECH_E_COMM);
    if (out->is_told || st != ECH_E_TIMEOUT)
        return st;
    out->is_mine = ech_flight_claim(flight, me);
    out->is_told = !out->is_mine;
    return out->is_mine ? explain(session, flight, st, &out->why) : st;
}

void ech_watch_kill_stopped(const ech_watch *w)
{
    ech_flight_view view;
    if (!w || ech_flight_look(w->flight, &view) < 0)
        return;
    /* mpirun would return the signal's status; where nobody of ours stands between, it is left to kill
     * what it has started */
    for (int i = 0; i < view.n_ranks && view.supervisor.pid > 0; i++) {
        const char state = ech_process_state(&view.rank[i].process);
        if (state == 'T' || state == 't')
            (void)ech_process_kill(&view.rank[i].process);
    }
    ech_flight_view_fini(&view);
}

bool ech_watch_await_end(void)
{
    const struct timespec pause = {5, 0};
    return nanosleep(&pause, NULL) != 0;
}

/* They are mpirun's children or init's: who kills them does not see their end otherwise. */
static void await_gone(const ech_flight_view *view)
{
    enum { TRIES = 200 };
    const struct timespec pause = {0, 5000000};
    for (int i = 0, k = 0; i < view->n_ranks && k < TRIES; i++)
        for (; ech_process_is_alive(&view->rank[i].process) && k < TRIES; k++)
            (void)nanosleep(&pause, NULL);
}

void ech_watch_kill_left(const char *dir)
{
    char host[64];
    ech_flight_view view;
    const ech_process self = ech_process_self();
    this_host(host, sizeof host);
    if (ech_flight_read(dir, &view) < 0) {
        ech_error_clear(); /* the run has not come so far */
        return;
    }
    const bool is_mine =
        view.supervisor.pid == self.pid && view.supervisor.start == self.start && self.pid > 0;
    for (int i = 0; i < view.n_ranks && is_mine; i++)
        if (strcmp(view.host[view.rank[i].host], host) == 0)
            (void)ech_process_kill(&view.rank[i].process);
    if (is_mine)
        await_gone(&view);
    ech_flight_view_fini(&view);
}
