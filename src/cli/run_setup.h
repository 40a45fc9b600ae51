/** @file cli/run_setup.h
 *  What stands around a run in one process: transports of the ranks that live here, the kernel set,
 *  threads and processors.  Collective calls say so. */
#ifndef ECH_CLI_RUN_SETUP_H
#define ECH_CLI_RUN_SETUP_H

#include "base/text.h"       /* ech_text */
#include "cli/launch.h"      /* ech_launch_place */
#include "comm/comm.h"       /* ech_transport */
#include "kernels/kernels.h" /* ech_kernel_set */
#include "layout/legal.h"    /* ech_legal_report */
#include "train/config.h"    /* ech_config */
#include "train/session.h"   /* ech_session_config */

/** What is asked for; borrowed. */
typedef struct ech_run_request {
    const ech_launch_place *place;
    int ranks;
    int64_t steps;         /**< to stop at, 0: as cfg says; every rank's must be the same */
    const char *transport; /**< NULL: self for one rank, mpi for more */
    const char *kernels;   /**< auto, cpu, ref */
    const char *resume;    /**< as --resume says; NULL: nothing.  Every rank's must be the same */
    const ech_config *cfg;
} ech_run_request;

/** What is there.  Zero-initialise. */
typedef struct ech_run_setup {
    int world, n_local;
    ech_transport **transport; /**< owned, [n_local] */
    const char *transport_name;
    const ech_kernel_set *kernels; /**< NULL: reference alone */
    const char *kernels_name;
    int threads;
    ech_node_run *nodes; /**< owned [n_nodes]: which ranks are on which host; NULL: one process */
    int n_nodes;
    int node_ranks;         /**< ranks of a node; 0: not known */
    size_t memory_bytes;    /**< that a rank can have here; 0: not known */
    bool is_agreed_failure; /**< every rank knows of the failure: nobody waits */
} ech_run_setup;

/** What the legality table says of the run: of a configuration, and where it runs already of its
 *  nodes.  Local.
 *  @param cfg    borrowed; resolved and validated
 *  @param setup  borrowed; NULL: not running
 *  @param out    set: nothing in it is refused */
void ech_run_setup_costs(const ech_config *cfg, const ech_run_setup *setup, ech_legal_report *out);

/** Refuse nodes that the legality table refuses, with a table of ranks and hosts.  Local.
 *  @param cfg                borrowed; resolved and validated
 *  @param node               borrowed [n]
 *  @param n                  runs of ranks on nodes
 *  @param ranks              of the run
 *  @param may_oversubscribe  more ranks than slots were asked for
 *  @return ECH_OK | ECH_E_USAGE with all findings */
ECH_MUST_USE ech_status ech_run_check_nodes(const ech_config *cfg, const ech_node_run *node, int n,
                                            int ranks, bool may_oversubscribe);

/** Say each finding on stderr, a line each. */
void ech_run_say_costs(const ech_legal_report *costs);

/** Names and counts that need nothing opened to be refused.  Local.
 *  @return ECH_OK | ECH_E_USAGE */
ECH_MUST_USE ech_status ech_run_setup_check(const ech_run_request *request);

/** Open transports and kernels, bind and start threads.  *Collective* over MPI.  Waits for other
 *  ranks have faults.watchdog_s as deadline from then on.
 *  @param request  borrowed
 *  @param out      to be closed also on failure, or its job aborted where the failure is not agreed
 *  @return ECH_OK | ECH_E_USAGE | ECH_E_ENV | ECH_E_CONFIG: ranks hold different configurations
 *        | ECH_E_TIMEOUT naming ranks */
ECH_MUST_USE ech_status ech_run_setup_open(const ech_run_request *request, ech_run_setup *out);

/** Stop threads and destroy transports; a closed one is fine. */
void ech_run_setup_close(ech_run_setup *setup);

/** The session that a run on this setup creates: where cfg sets no cap on memory, what the machine
 *  can give a rank is the cap. */
ech_session_config ech_run_session_config(const ech_config *cfg, const ech_run_setup *setup);

/** Agree on how it went: a rank that failed keeps its status, the others get that of the first that
 *  failed.  *Collective*.
 *  @return ECH_OK | a status of this rank or of another | ECH_E_COMM | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_run_setup_agree(ech_run_setup *setup, ech_status mine);

/** The same after what rank 0 alone did with files, which may take long: it is waited for without
 *  deadline. */
ECH_MUST_USE ech_status ech_run_setup_agree_on_root(ech_run_setup *setup, ech_status mine);

/** Do all processes hold the same value?  *Collective*.
 *  @param what  what a rank that differs has, such as "another configuration"
 *  @return ECH_OK | ECH_E_CONFIG on every process, naming the first that differs | what exchanging
 *  returns */
ECH_MUST_USE ech_status ech_run_setup_compare(ech_run_setup *setup, uint64_t mine,
                                              const char *what);

/** Tell several things that are wrong at once.  Local.
 *  @param before  status so far, its words in told
 *  @param now     of another check, its words the last error's
 *  @param told    in/out: words of all that failed
 *  @return one of both, raised with the words of all: that of a wrong key or file before that of a
 *          run that does not fit */
ECH_MUST_USE ech_status ech_run_join_findings(ech_status before, ech_status now, ech_text *told);

/** Start `ranks` processes of this command through mpirun once the configuration has been checked.
 *  @param argc      of the sub-command: argv[0] is its name
 *  @param argv      borrowed, handed on to every rank
 *  @param ranks     how many
 *  @param hosts     borrowed, filled; NULL: this host
 *  @param cfg       resolved and validated
 *  @param code      out: exit status of the job
 *  @return ECH_OK | as ech_session_check, ech_feed_open, ech_launch_run */
ECH_MUST_USE ech_status ech_run_launch(int argc, char **argv, int ranks, const ech_hostfile *hosts,
                                       const ech_config *cfg, int *code);

#endif
