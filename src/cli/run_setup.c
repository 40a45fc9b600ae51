#include "cli/run_setup.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/cures.h"
#include "cli/watch.h"
#include "engine/module.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"
#include "measure/cores.h"
#include "measure/machine.h"
#include "train/config_layout.h"
#include "train/config_value.h"
#include "train/loop.h"
#include "train/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- transports --- */

static const char *transport_name(const ech_run_request *r)
{
    return r->transport ? r->transport : r->ranks > 1 ? "mpi" : "self";
}

static bool is_among(const char *name, const char *const *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

ech_status ech_run_setup_check(const ech_run_request *r)
{
    static const char *const transports[] = {"self", "inproc", "mpi"};
    static const char *const kernels[] = {"auto", "cpu", "ref"};
    const char *name = transport_name(r);
    ECH_CHECK(is_among(name, transports, 3), ECH_E_USAGE,
              "--transport %s: wanted self, inproc or mpi", name);
    ECH_CHECK(r->place->size == 1 || strcmp(name, "mpi") == 0, ECH_E_USAGE,
              "--transport %s is one process, %s started %d: each would be a whole run in the same "
              "folders; wanted mpi, or echelon by itself",
              name, ech_launcher_name(r->place->launcher), r->place->size);
    ECH_CHECK(strcmp(name, "self") != 0 || r->ranks == 1, ECH_E_USAGE,
              "--transport self has one rank, %d were asked for", r->ranks);
    ECH_CHECK(is_among(r->kernels, kernels, 3), ECH_E_USAGE,
              "--kernels %s: wanted auto, cpu or ref", r->kernels);
    ECH_CHECK(strcmp(r->kernels, "cpu") != 0 || r->cfg->precision.compute == ECH_COMPUTE_FP32,
              ECH_E_USAGE, "--kernels cpu computes in fp32; wanted auto or ref for this precision");
    return ECH_OK;
}

static ech_status open_transports(const ech_run_request *r, ech_run_setup *s)
{
    const char *name = transport_name(r);
    const bool is_inproc = strcmp(name, "inproc") == 0;
    s->world = r->ranks;
    s->n_local = is_inproc ? r->ranks : 1;
    s->transport_name = name;
    ECH_TRY(ech_calloc((size_t)s->n_local, sizeof(ech_transport *), &s->transport));
    if (is_inproc)
        return ech_transport_inproc(r->ranks, s->transport);
    if (strcmp(name, "self") == 0)
        return ech_transport_self(s->transport);
    ECH_TRY(ech_module_transport("mpi", s->transport));
    s->transport[0]->deadline_s = r->cfg->faults.watchdog_s;
    ech_log_set_rank(s->transport[0]->rank);
    ECH_CHECK(s->transport[0]->size == r->ranks, ECH_E_ENV,
              "MPI has %d ranks, the launcher said %d", s->transport[0]->size, r->ranks);
    return ECH_OK;
}

ech_status ech_run_setup_compare(ech_run_setup *s, uint64_t mine, const char *what)
{
    uint64_t *all = NULL;
    ech_transport *t = s->transport[0];
    if (s->n_local > 1 || t->size == 1)
        return ECH_OK;
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    ech_status st = t->exchange(t, &mine, sizeof mine, all);
    for (int i = 0; i < t->size && st >= 0; i++)
        if (all[i] != all[0])
            st = ECH_RAISE(ECH_E_CONFIG, "rank %d has %s than rank 0", i, what);
    s->is_agreed_failure = st == ECH_E_CONFIG;
    free(all);
    return st;
}

/* What a rank was started with, in words that can be compared and said. */
enum { N_WORDS = 5, WORD_BYTES = 64 };
typedef char word[WORD_BYTES];

static const char *const word_names[N_WORDS] = {"echelon", "train.seed", "--steps", "--kernels",
                                                "--resume"};

/* A long text by its end and its hash. */
static void put_word(const char *text, size_t n, word out)
{
    if (n < 40)
        (void)snprintf(out, WORD_BYTES, "%s", text);
    else
        (void)snprintf(out, WORD_BYTES, "...%s (%016llx)", text + n - 36,
                       (unsigned long long)ech_hash64(text, n));
}

static void describe_start(const ech_run_request *r, word w[N_WORDS])
{
    const char *resume = r->resume ? r->resume : "";
    (void)snprintf(w[0], WORD_BYTES, "%s", ECH_VERSION);
    (void)snprintf(w[1], WORD_BYTES, "%lld", (long long)r->cfg->train.seed);
    (void)snprintf(w[2], WORD_BYTES, "%lld", (long long)r->steps);
    (void)snprintf(w[3], WORD_BYTES, "%s", r->kernels);
    put_word(resume, strlen(resume), w[4]);
}

static ech_status refuse_start(const char *name, int rank, const word theirs, const word zeros)
{
    return ECH_RAISE(ECH_E_CONFIG, "rank %d was started with another %s than rank 0: %s, rank 0 %s",
                     rank, name, theirs, zeros);
}

static ech_status compare_words(const ech_run_request *r, ech_transport *t)
{
    word mine[N_WORDS] = {""};
    word(*all)[N_WORDS] = NULL;
    describe_start(r, mine);
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    ech_status st = t->exchange(t, mine, sizeof mine, all);
    for (int i = 0; i < t->size; i++)
        for (int k = 0; k < N_WORDS && st >= 0; k++)
            if (strcmp(all[i][k], all[0][k]) != 0)
                st = refuse_start(word_names[k], i, all[i][k], all[0][k]);
    free(all);
    return st;
}

/* A key's resolved value; all keys of the model as one. */
static void add_value(const ech_config *cfg, const ech_option *row, ech_text *out)
{
    if (row->type == ECH_OPTION_MODEL)
        ech_text_add(out, "%s", cfg->model_json ? cfg->model_json : "none");
    else
        ech_value_print(row, cfg, out);
}

/* The keys of the table of which a rank has another hash than rank 0: the first of the first such
 * rank.  Every rank finds the same. */
static bool find_other(const uint64_t *all, int ranks, size_t n, int *rank, size_t *key)
{
    for (size_t i = 0; i < (size_t)ranks * n; i++)
        if (all[i] != all[i % n]) {
            *rank = (int)(i / n);
            *key = i % n;
            return true;
        }
    return false;
}

/* Both values in words. */
static ech_status tell_other(const ech_run_request *r, ech_transport *t, const ech_option *row,
                             int rank)
{
    word mine = "";
    word *all = NULL;
    ech_text value = {0};
    const bool is_model = row->type == ECH_OPTION_MODEL;
    add_value(r->cfg, row, &value);
    put_word(ech_text_get(&value), value.bytes, mine);
    for (char *at = strchr(mine, '\n'); at; at = strchr(at, '\n'))
        *at = ' ';
    ech_text_fini(&value);
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    ech_status st = t->exchange(t, mine, sizeof mine, all);
    if (st >= 0)
        st = refuse_start(is_model ? "model" : row->path, rank, all[rank], all[0]);
    free(all);
    return st;
}

static ech_status compare_keys(const ech_run_request *r, ech_transport *t)
{
    size_t n = 0;
    size_t key = 0;
    int rank = 0;
    uint64_t *all = NULL;
    const ech_option *row = ech_options(&n);
    ECH_TRY(ech_calloc(((size_t)t->size + 1) * n, sizeof *all, &all));
    uint64_t *mine = all + (size_t)t->size * n;
    for (size_t i = 0; i < n; i++) {
        ech_text value = {0};
        add_value(r->cfg, &row[i], &value);
        mine[i] = ech_hash64(ech_text_get(&value), value.bytes);
        ech_text_fini(&value);
    }
    const ech_status st = t->exchange(t, mine, n * sizeof *mine, all);
    const bool differs = st >= 0 && find_other(all, t->size, n, &rank, &key);
    free(all);
    return differs ? tell_other(r, t, &row[key], rank) : st;
}

/* Ranks of different versions, seeds or configurations would train different models or hang. */
static ech_status compare_starts(const ech_run_request *r, ech_run_setup *s)
{
    ech_transport *t = s->transport[0];
    if (s->n_local > 1 || t->size == 1)
        return ECH_OK;
    ech_status st = compare_words(r, t); /* the version first: another one has other keys */
    if (st >= 0)
        st = compare_keys(r, t);
    s->is_agreed_failure = st == ECH_E_CONFIG;
    return st;
}

/* --- kernels --- */

static void warn_of_wide_heads(const ech_model *m)
{
    if (m->head_dim > ECH_CPU_HEAD_DIM_MAX)
        ech_log_root(ECH_LOG_WARN,
                     "head_dim %lld is above the fast kernels' %d: attention runs on the reference "
                     "kernel, on one thread",
                     (long long)m->head_dim, ECH_CPU_HEAD_DIM_MAX);
}

static ech_status choose_kernels(const ech_run_request *r, ech_run_setup *s)
{
    const bool is_auto = strcmp(r->kernels, "auto") == 0;
    s->kernels_name = "ref";
    if (strcmp(r->kernels, "ref") == 0 ||
        (is_auto && r->cfg->precision.compute == ECH_COMPUTE_FP64))
        return ECH_OK;
    const ech_status st = ech_module_kernels("cpu", &s->kernels);
    if (st < 0 && is_auto) {
        ech_log_root(ECH_LOG_WARN,
                     "fast kernels are not to be had, the reference ones are used: %s",
                     ech_error_message());
        ech_error_clear();
        return ECH_OK;
    }
    if (st >= 0) {
        s->kernels_name = "cpu";
        warn_of_wide_heads(&r->cfg->model);
    }
    return st;
}

/* This rank's processors among those that the process may use; at most as many as a team has
 * members, which is also the largest run.threads. */
static int share_of_cpus(const ech_run_request *r, int cpus[ECH_TEAM_MAX])
{
    ech_cpu all[ECH_CPUS_MAX];
    const ech_launch_place *p = r->place;
    const int locals = p->local_size > 0 ? p->local_size : 1;
    const int me = p->local_rank >= 0 && p->local_rank < locals ? p->local_rank : 0;
    const int n = ech_cpus_get(all);
    const int64_t asked = r->cfg->run.threads;
    int threads = asked > 0 ? (int)asked : n / locals;
    threads = threads < 1 ? 1 : threads > ECH_TEAM_MAX ? ECH_TEAM_MAX : threads;
    for (int i = 0; i < threads && !n; i++)
        cpus[i] = i;
    if (n)
        ech_cpus_deal(all, n, locals, me, threads, cpus);
    return threads;
}

static ech_status start_threads(const ech_run_request *r, ech_run_setup *s)
{
    int cpus[ECH_TEAM_MAX];
    s->threads = share_of_cpus(r, cpus);
    if (!s->kernels) {
        s->threads = 1; /* the reference kernels are not threaded */
        return ECH_OK;
    }
    /* more ranks than processors must be free to move */
    const bool binds =
        r->cfg->run.bind == ECH_BIND_CORE && (s->threads > 1 || r->place->local_size < 2);
    if (!s->kernels->start)
        return ECH_OK;
    return s->kernels->start(binds ? cpus : NULL, s->threads);
}

/* --- memory --- */

/* Read before the first message, and so before any rank of this machine has taken its share. */
static size_t share_of_memory(int ranks_here)
{
    ech_machine m;
    ech_machine_get(&m);
    int64_t bytes = m.available_bytes;
    if (m.limit_bytes > 0 && (bytes < 0 || m.limit_bytes < bytes))
        bytes = m.limit_bytes;
    return bytes > 0 ? (size_t)(bytes / ranks_here) : 0;
}

ech_session_config ech_run_session_config(const ech_config *cfg, const ech_run_setup *setup)
{
    ech_session_config c =
        ech_loop_session_config(cfg, setup->kernels, setup->threads, setup->node_ranks);
    const size_t headroom = (size_t)cfg->memory.headroom_bytes;
    size_t *cap = &c.compile.cap_bytes[ECH_SPACE_DEVICE];
    if (!*cap && setup->memory_bytes)
        *cap = setup->memory_bytes > headroom ? setup->memory_bytes - headroom : 1;
    return c;
}

/* --- nodes and what the layout costs on them --- */

void ech_run_setup_costs(const ech_config *cfg, const ech_run_setup *setup, ech_legal_report *out)
{
    ech_machine m;
    ech_legal_query query = ech_config_legal_query(cfg, setup ? setup->world : 0);
    if (setup && setup->nodes) {
        ech_machine_get(&m);
        query.node = setup->nodes;
        query.n_nodes = setup->n_nodes;
        query.node_cores = m.cores_online;
    }
    ech_legal_check(&query, out);
}

ech_status ech_run_check_nodes(const ech_config *cfg, const ech_node_run *node, int n, int ranks,
                               bool may_oversubscribe)
{
    ech_findings findings = {0};
    ech_legal_report report;
    ech_legal_query query = ech_config_legal_query(cfg, ranks);
    query.node = node;
    query.n_nodes = n;
    query.may_oversubscribe = may_oversubscribe;
    ech_legal_check(&query, &report);
    for (int i = 0; i < report.n; i++) {
        ech_text words = {0};
        ech_legal_print(&report.item[i], &words);
        if (report.item[i].verdict == ECH_VERDICT_REFUSED)
            ech_findings_add(&findings, "%s: %s", report.item[i].key, ech_text_get(&words));
        ech_text_fini(&words);
    }
    const ech_status st = ech_findings_raise(&findings, ECH_E_USAGE);
    ech_findings_fini(&findings);
    return st;
}

/* Every rank tells its host, and all see the same: whole nodes of as many ranks each, or none goes
 * on.  *Collective*. */
static ech_status find_nodes(const ech_run_request *r, ech_run_setup *s)
{
    ech_machine m;
    char mine[ECH_HOST_BYTES] = "";
    char(*all)[ECH_HOST_BYTES] = NULL;
    ech_transport *t = s->transport[0];
    if (s->n_local > 1 || t->size == 1)
        return ECH_OK;
    ech_machine_get(&m);
    (void)snprintf(mine, sizeof mine, "%.63s", m.host);
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    ech_status st = t->exchange(t, mine, sizeof mine, all);
    if (st >= 0)
        st = ech_node_runs((const char(*)[ECH_HOST_BYTES])all, t->size, &s->nodes, &s->n_nodes);
    free(all);
    ECH_TRY(st);
    s->node_ranks = ech_node_ranks(s->nodes, s->n_nodes);
    if (s->n_nodes > 1 && s->node_ranks)
        ech_log_root(ECH_LOG_INFO, "%d hosts, %s%d ranks on each", s->n_nodes,
                     s->node_ranks * s->n_nodes < t->size ? "at least " : "", s->node_ranks);
    st = ech_run_check_nodes(r->cfg, s->nodes, s->n_nodes, t->size, true);
    s->is_agreed_failure = st == ECH_E_USAGE;
    return st;
}

void ech_run_say_costs(const ech_legal_report *costs)
{
    for (int i = 0; i < costs->n; i++)
        (void)fprintf(stderr, "echelon: %s, %s: %s\n", ech_verdict_name(costs->item[i].verdict),
                      costs->item[i].key, costs->item[i].message);
}

/* --- the whole --- */

ech_status ech_run_setup_open(const ech_run_request *r, ech_run_setup *out)
{
    ech_status st = ech_run_setup_check(r);
    const bool is_inproc = strcmp(transport_name(r), "inproc") == 0;
    out->memory_bytes = share_of_memory(is_inproc                  ? r->ranks
                                        : r->place->local_size > 0 ? r->place->local_size
                                                                   : 1);
    if (st >= 0)
        st = open_transports(r, out);
    if (st >= 0)
        st = compare_starts(r, out);
    if (st >= 0)
        st = find_nodes(r, out);
    if (st >= 0) {
        st = choose_kernels(r, out);
        if (st >= 0)
            st = start_threads(r, out);
        st = ech_run_setup_agree(out, st);
    }
    return st;
}

void ech_run_setup_close(ech_run_setup *s)
{
    if (s->kernels && s->kernels->stop)
        s->kernels->stop();
    for (int i = 0; s->transport && i < s->n_local; i++)
        if (s->transport[i])
            s->transport[i]->destroy(s->transport[i]);
    free(s->transport);
    free(s->nodes);
    s->nodes = NULL;
    s->transport = NULL;
    s->n_local = 0;
}

ech_status ech_run_setup_agree(ech_run_setup *s, ech_status mine)
{
    int32_t *all = NULL;
    ech_transport *t = s->transport[0];
    if (s->n_local > 1 || t->size == 1)
        return mine;
    const int32_t value = mine;
    ECH_TRY(ech_calloc((size_t)t->size, sizeof *all, &all));
    const ech_status st = t->exchange(t, &value, sizeof value, all);
    int first = 0; /* rank that failed */
    while (st >= 0 && first < t->size && all[first] >= 0)
        first++;
    const ech_status theirs = st >= 0 && first < t->size ? (ech_status)all[first] : ECH_OK;
    free(all);
    ECH_TRY(st);
    s->is_agreed_failure = theirs < 0;
    if (theirs < 0 && mine >= 0)
        return ECH_RAISE(theirs, "rank %d could not start: %s", first, ech_status_text(theirs));
    if (mine < 0 && t->rank == first && first > 0) /* rank 0 does not know what it was */
        ech_log(ECH_LOG_ERROR, "%s", ech_error_message());
    return mine;
}

ech_status ech_run_setup_agree_on_root(ech_run_setup *s, ech_status mine)
{
    s->transport[0]->spares_root = true;
    const ech_status st = ech_run_setup_agree(s, mine);
    s->transport[0]->spares_root = false;
    return st;
}

ech_status ech_run_join_findings(ech_status before, ech_status now, ech_text *told)
{
    if (now >= 0)
        return before;
    ech_text_add(told, "%s%s", told->bytes ? "\n" : "", ech_error_message());
    const bool both = before < 0 && !told->failed;
    /* a file or key that is wrong has to be put right before anything can fit */
    const ech_status st = before < 0 && before != ECH_E_INFEASIBLE ? before : now;
    return both ? ECH_RAISE(st, "%s", ech_text_get(told)) : now;
}

/* Files are opened and programs compiled once here, so that what is wrong with them is said once
 * and nothing is started. */
static ech_status check_run(const ech_config *cfg, int ranks_here)
{
    ech_feed feed;
    const ech_run_setup setup = {.threads = 1, .memory_bytes = share_of_memory(ranks_here)};
    const ech_session_config session = ech_run_session_config(cfg, &setup);
    const char *weights = ech_weights_of_config(cfg);
    ech_text told = {0};
    ech_status st = ech_run_join_findings(
        ECH_OK, ech_cures_add(cfg, &session, ech_session_check(&session)), &told);
    if (weights)
        st = ech_run_join_findings(st, ech_weights_check(weights, &cfg->model), &told);
    const ech_status data = ech_feed_open(cfg, true, &feed);
    if (data >= 0)
        ech_feed_close(&feed);
    st = ech_run_join_findings(st, data, &told);
    ech_text_fini(&told);
    return st;
}

ech_status ech_run_launch(int argc, char **argv, int ranks, const ech_hostfile *hosts,
                          const ech_config *cfg, int *code)
{
    ECH_TRY(check_run(cfg, hosts ? 1 : ranks)); /* a host of several may hold one rank */
    const ech_status st = ech_launch_run(&(ech_launch_request){ranks, hosts, argc, argv}, code);
    if (st >= 0)
        ech_watch_kill_left(cfg->run.dir);
    return st;
}
