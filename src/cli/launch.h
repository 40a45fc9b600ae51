/** @file cli/launch.h
 *  Ranks as processes: is this process one of them, and starting N of them through mpirun.
 *
 *  The process that a user starts with `--ranks N` checks everything it can, starts mpirun with
 *  this very executable and the same arguments, forwards signals and hands back the job's exit
 *  status.  The status of the rank that failed first reaches it through a file in a private folder,
 *  since what mpirun itself returns depends on which rank it noticed first. */
#ifndef ECH_CLI_LAUNCH_H
#define ECH_CLI_LAUNCH_H

#include "base/process.h" /* ech_process */
#include "base/status.h"  /* ech_status */
#include "cli/hostfile.h" /* ech_hostfile */

#include <stdint.h>

/** What started this process. */
typedef enum ech_launcher {
    ECH_LAUNCHER_NONE,     /**< started by hand */
    ECH_LAUNCHER_OPEN_MPI, /**< its mpirun, or srun with its plugin */
    ECH_LAUNCHER_PMI,      /**< MPICH's mpirun and its kin */
    ECH_LAUNCHER_SLURM     /**< srun */
} ech_launcher;

/** This process among the ranks of a job. */
typedef struct ech_launch_place {
    ech_launcher launcher;
    int rank, size;             /**< 0 of 1 where started by hand */
    int local_rank, local_size; /**< on this host; -1, 0 where not known */
} ech_launch_place;

/** Find out from the environment.
 *  @return the place */
ech_launch_place ech_launch_detect(void);

/** "Open MPI's mpirun" and the like; static storage. */
const char *ech_launcher_name(ech_launcher launcher);

/** Refuse `--ranks` that is not the number of ranks the launcher started.
 *  @param place  borrowed
 *  @param ranks  as asked; 0: not asked
 *  @return ECH_OK | ECH_E_USAGE with a table of what was asked and started */
ECH_MUST_USE ech_status ech_launch_check(const ech_launch_place *place, int64_t ranks);

/** What to start. */
typedef struct ech_launch_request {
    int ranks;
    const ech_hostfile *hosts; /**< borrowed, filled with these ranks; NULL: this host */
    int argc;                  /**< of the sub-command: argv[0] is its name */
    char **argv;               /**< borrowed; handed on to every rank as it is */
} ech_launch_request;

/** Start the ranks, wait for them, and say how the job ended.  Blocking; at most one at a time.
 *  SIGINT, SIGTERM and SIGUSR1 reach the ranks as SIGUSR1 (stop after the step), a second one as
 *  SIGTERM.
 *  @param request    borrowed
 *  @param exit_code  out: exit status of the job: that of the rank that failed first; 4 where no
 *                    rank came up (with the host that cannot be reached, if there is one); 1 where
 *                    a rank died without a word
 *  @return ECH_OK     the job ran or mpirun could not start it (said on stderr); *exit_code is set
 *        | ECH_E_ENV  there is no mpirun
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_launch_run(const ech_launch_request *request, int *exit_code);

/** Is this the name of the host that this process runs on. */
bool ech_launch_is_this_host(const char *name);

/** The first host with ranks that ssh does not reach, or NULL.  Blocking: up to some five seconds a
 *  host that does not answer.
 *  @param hosts  borrowed, filled
 *  @return its name, of hosts */
const char *ech_launch_find_unreached(const ech_hostfile *hosts);

/** In a rank: has `echelon --ranks N` started it, and so checked configuration and data? */
bool ech_launch_is_checked(void);

/** In a rank: the process of `echelon --ranks N` that has started it, on the same host; pid 0:
 *  another host's, or none. */
ech_process ech_launch_supervisor(void);

/** In a rank: tell the starting process that this rank came up.  No-op elsewhere. */
void ech_launch_say_started(void);

/** In a rank: tell it that this rank ends with this exit status.  No-op elsewhere and for 0. */
void ech_launch_say_ended(int exit_code);

/** Path of a program found through PATH into buf, or NULL. */
const char *ech_launch_find_program(const char *name, char *buf, size_t n);

/** First line of `PROGRAM --version` into buf, or NULL. */
const char *ech_launch_program_version(const char *path, char *buf, size_t n);

/** Folder of this executable into buf, "." where it cannot be told. */
const char *ech_launch_own_folder(char *buf, size_t n);

#endif
