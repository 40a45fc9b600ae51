/* Starting ranks through mpirun, and what they report back. */
#include "cli/launch.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/io_folder.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_DIR_VARIABLE "ECHELON_STATUS_DIR"
#define SUPERVISOR_VARIABLE "ECHELON_SUPERVISOR"

enum { MAX_PATH_BYTES = 4096, VERSION_BYTES = 256, MAX_MPIRUN_ARGS = 16 };

/* --- programs --- */

const char *ech_launch_find_program(const char *name, char *buf, size_t n)
{
    const char *at = getenv("PATH");
    while (at) {
        const size_t bytes = strcspn(at, ":");
        const int written = snprintf(buf, n, "%.*s%s%s", (int)bytes, at, bytes ? "/" : "./", name);
        if (written > 0 && (size_t)written < n && access(buf, X_OK) == 0 &&
            !ech_path_is_folder(buf))
            return buf;
        at = at[bytes] == ':' ? at + bytes + 1 : NULL;
    }
    return NULL;
}

const char *ech_launch_program_version(const char *path, char *buf, size_t n)
{
    int fd[2];
    size_t used = 0;
    if (pipe2(fd, O_CLOEXEC) != 0)
        return NULL;
    const pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(fd[1], 1);
        (void)dup2(fd[1], 2);
        (void)execl(path, path, "--version", (char *)NULL);
        _exit(127);
    }
    (void)close(fd[1]);
    while (pid > 0 && used + 1 < n) {
        const ssize_t got = read(fd[0], buf + used, n - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    (void)close(fd[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    buf[used] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return used ? buf : NULL;
}

const char *ech_launch_own_folder(char *buf, size_t n)
{
    const ssize_t got = readlink("/proc/self/exe", buf, n - 1);
    if (got <= 0)
        return ".";
    buf[got] = '\0';
    char *slash = strrchr(buf, '/');
    if (slash)
        *slash = '\0';
    return buf;
}

/* --- what ranks report --- */

static void write_report(const char *what, const char *words)
{
    char name[64];
    char path[MAX_PATH_BYTES];
    const char *dir = getenv(STATUS_DIR_VARIABLE);
    if (!dir || !ech_path_is_folder(dir)) /* another host's folder: mpirun's own status has to do */
        return;
    (void)snprintf(name, sizeof name, "%s-%d", what, ech_launch_detect().rank);
    if (ech_path_join(dir, name, path, sizeof path) < 0 ||
        ech_write_whole(path, words, strlen(words)) < 0)
        ech_log(ECH_LOG_WARN, "the starting process does not learn how this rank ends: %s",
                ech_error_message());
}

bool ech_launch_is_checked(void)
{
    return getenv(STATUS_DIR_VARIABLE) != NULL;
}

/* Told with its start, so that another host's pid is none here. */
ech_process ech_launch_supervisor(void)
{
    const char *words = getenv(SUPERVISOR_VARIABLE);
    long long pid = 0;
    long long start = 0;
    if (!words || sscanf(words, "%lld %lld", &pid, &start) != 2)
        return (ech_process){0};
    const ech_process p = {pid, start};
    return ech_process_is_alive(&p) ? p : (ech_process){0};
}

void ech_launch_say_started(void)
{
    /* ranks of another host report there, so the first of each host does */
    if (ech_launch_detect().rank == 0 || ech_launch_detect().local_rank == 0)
        write_report("started", "");
}

void ech_launch_say_ended(int exit_code)
{
    char words[64];
    if (exit_code == 0)
        return;
    (void)snprintf(words, sizeof words, "%d %.9f", exit_code, ech_clock_s());
    write_report("ended", words);
}

/* What the reports say together. */
typedef struct job_report {
    bool is_started;
    int first_code; /* of the rank that ended first with another status than 0; 0: none */
    double first_s;
} job_report;

static void read_ended(const char *path, job_report *report)
{
    char *text = NULL;
    size_t bytes = 0;
    int code = 0;
    double when = 0;
    if (ech_read_whole(path, 256, &text, &bytes) < 0)
        return;
    if (sscanf(text, "%d %lf", &code, &when) == 2 && code != 0 &&
        (report->first_code == 0 || when < report->first_s)) {
        report->first_code = code;
        report->first_s = when;
    }
    free(text);
}

/* Read all reports and remove the folder. */
static job_report collect_reports(const char *dir)
{
    job_report report = {0};
    char **names = NULL;
    size_t n = 0;
    char path[MAX_PATH_BYTES];
    if (ech_list_folder(dir, &names, &n) < 0)
        return report;
    for (size_t i = 0; i < n; i++) {
        if (ech_path_join(dir, names[i], path, sizeof path) < 0)
            continue;
        report.is_started |= strncmp(names[i], "started-", 8) == 0;
        if (strncmp(names[i], "ended-", 6) == 0)
            read_ended(path, &report);
    }
    ech_names_destroy(&names, n);
    if (ech_folder_remove(dir) < 0)
        ech_log(ECH_LOG_WARN, "left behind: %s", ech_error_message());
    return report;
}

/* --- mpirun --- */

typedef struct mpirun_command {
    char path[MAX_PATH_BYTES];
    char self[MAX_PATH_BYTES];
    char ranks[16];
    char hosts[MAX_PATH_BYTES]; /* file of the hosts, in the status folder */
    bool is_open_mpi;
    const char *arg[MAX_MPIRUN_ARGS]; /* of mpirun itself */
    int n_args;
    char supervisor[48]; /* this process, for the ranks */
} mpirun_command;

static void add_arg(mpirun_command *m, const char *arg)
{
    ECH_ASSERT(m->n_args < MAX_MPIRUN_ARGS);
    m->arg[m->n_args++] = arg;
}

static ech_status find_mpirun(mpirun_command *m)
{
    char version[VERSION_BYTES] = "";
    ECH_CHECK(ech_launch_find_program("mpirun", m->path, sizeof m->path) ||
                  ech_launch_find_program("mpiexec", m->path, sizeof m->path),
              ECH_E_ENV,
              "--ranks needs mpirun, and PATH has none: install Open MPI or MPICH (Debian: "
              "openmpi-bin), or use --transport inproc");
    (void)ech_launch_program_version(m->path, version, sizeof version);
    m->is_open_mpi = strstr(version, "Open MPI") || strstr(version, "OpenRTE");
    return ECH_OK;
}

static ech_status build_command(const ech_launch_request *request, mpirun_command *m)
{
    const ssize_t got = readlink("/proc/self/exe", m->self, sizeof m->self - 1);
    ECH_CHECK(got > 0, ECH_E_ENV, "the path of this executable cannot be told: %s",
              strerror(errno));
    m->self[got] = '\0';
    ECH_TRY(find_mpirun(m));
    (void)snprintf(m->ranks, sizeof m->ranks, "%d", request->ranks);
    const ech_process self = ech_process_self();
    (void)snprintf(m->supervisor, sizeof m->supervisor, "%lld %lld", (long long)self.pid,
                   (long long)self.start);
    add_arg(m, "mpirun");
    add_arg(m, "-n");
    add_arg(m, m->ranks);
    if (m->is_open_mpi) {
        /* more ranks than cores are the normal case; threads are bound by the ranks themselves */
        add_arg(m, "--oversubscribe");
        add_arg(m, "--bind-to");
        add_arg(m, "none");
        if (geteuid() == 0)
            add_arg(m, "--allow-run-as-root");
    }
    return ECH_OK;
}

/* mpirun reads hosts whose slots are exactly their ranks, so it places them as they were checked. */
static ech_status add_hosts(const ech_launch_request *request, const char *dir, mpirun_command *m)
{
    ech_text text = {0};
    if (!request->hosts)
        return ECH_OK;
    ech_hostfile_print(request->hosts, m->is_open_mpi, &text);
    ech_status st = ech_path_join(dir, "hosts", m->hosts, sizeof m->hosts);
    if (st >= 0)
        st = ech_write_whole(m->hosts, ech_text_get(&text), text.bytes);
    ech_text_fini(&text);
    add_arg(m, m->is_open_mpi ? "--hostfile" : "-f");
    add_arg(m, m->hosts);
    if (m->is_open_mpi) {
        add_arg(m, "--map-by");
        add_arg(m, "slot");
    }
    return st;
}

static void say_command(const mpirun_command *m)
{
    char words[512] = "";
    size_t used = 0;
    for (int i = 1; i < m->n_args && used < sizeof words; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, " %s", m->arg[i]);
    ech_log(ECH_LOG_INFO, "starting %s ranks: %s%s", m->ranks, m->path, words);
}

_Noreturn static void become_mpirun(const mpirun_command *m, const ech_launch_request *request,
                                    const char *dir, const sigset_t *mask)
{
    const size_t n = (size_t)(m->n_args + 1 + request->argc);
    const char **argv = calloc(n + 1, sizeof *argv);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);                    /* signals reach it through its parent alone */
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* nor does it outlive it */
    if (argv && null >= 0 && dup2(null, 0) >= 0 && setenv(STATUS_DIR_VARIABLE, dir, 1) == 0 &&
        setenv(SUPERVISOR_VARIABLE, m->supervisor, 1) == 0) {
        memcpy(argv, m->arg, (size_t)m->n_args * sizeof *argv);
        argv[m->n_args] = m->self;
        for (int i = 0; i < request->argc; i++)
            argv[m->n_args + 1 + i] = request->argv[i];
        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        (void)execv(m->path, (char *const *)(uintptr_t)argv);
    }
    (void)fprintf(stderr, "echelon: %s cannot be started: %s\n", m->path, strerror(errno));
    _exit(127);
}

/* --- waiting --- */

static void fill_signals(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGHUP);
    (void)sigaddset(set, SIGUSR1);
    (void)sigaddset(set, SIGCHLD);
}

/* Wait for mpirun; signals are blocked and taken one by one, so nothing runs in a handler.
 *  The first request to stop reaches the ranks as SIGUSR1, which mpirun passes on; SIGTERM would
 * have it kill them two seconds later. */
static int wait_for_job(pid_t pid, const sigset_t *signals, int *n_requests)
{
    int status = 0;
    *n_requests = 0;
    for (;;) {
        const pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return status;
        ECH_ASSERT(ended == 0 || errno == EINTR);
        const int got = sigwaitinfo(signals, NULL);
        if (got <= 0 || got == SIGCHLD)
            continue;
        (*n_requests)++;
        (void)kill(pid, *n_requests == 1 ? SIGUSR1 : *n_requests == 2 ? SIGTERM : SIGKILL);
    }
}

/* Nobody reported.  Where a host cannot be reached no rank was started; where rank 0 would be on this
 * host, it would have said so. */
static bool has_never_begun(const ech_hostfile *hosts, const char **unreached)
{
    *unreached = hosts ? ech_launch_find_unreached(hosts) : NULL;
    return !hosts || *unreached || ech_launch_is_this_host(hosts->host[0].name);
}

static int say_never_begun(const mpirun_command *m, int code, const char *unreached)
{
    if (unreached)
        (void)fprintf(
            stderr,
            "echelon: error: no rank started; host %s could not be reached: %s ended with "
            "status %d, and 'ssh %s true' fails\n",
            unreached, m->path, code, unreached);
    else
        (void)fprintf(stderr, "echelon: error: no rank came up: %s ended with status %d\n", m->path,
                      code);
    return ech_status_exit_code(ECH_E_ENV);
}

/* One exit status out of what the ranks reported and what mpirun returned. */
static int judge(const job_report *report, int status, int n_requests, const mpirun_command *m,
                 const ech_hostfile *hosts)
{
    const char *unreached = NULL;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (report->first_code != 0)
        return report->first_code;
    if (code == 0 && (report->is_started || hosts)) /* rank 0 may report on another host */
        return 0;
    if (!report->is_started && !(hosts && n_requests) && has_never_begun(hosts, &unreached))
        return say_never_begun(m, code, unreached);
    (void)fprintf(stderr, "echelon: error: a rank died without a word%s: %s ended with status %d\n",
                  n_requests ? " after a request to stop" : "", m->path, code);
    return ech_status_exit_code(ECH_E_FAILED);
}

static ech_status make_status_dir(char *dir, size_t n)
{
    const char *tmp = getenv("TMPDIR");
    const int bytes = snprintf(dir, n, "%s/echelon-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
    ECH_CHECK(bytes > 0 && (size_t)bytes < n && mkdtemp(dir), ECH_E_IO,
              "no private folder for the status of the ranks (%s): %s", dir, strerror(errno));
    return ECH_OK;
}

ech_status ech_launch_run(const ech_launch_request *request, int *exit_code)
{
    mpirun_command m = {0};
    char dir[MAX_PATH_BYTES];
    sigset_t signals;
    sigset_t before;
    int n_requests = 0;
    ECH_TRY(build_command(request, &m));
    ECH_TRY(make_status_dir(dir, sizeof dir));
    const ech_status hosts = add_hosts(request, dir, &m);
    if (hosts < 0) {
        (void)collect_reports(dir);
        return hosts;
    }
    say_command(&m);
    (void)fflush(NULL);
    fill_signals(&signals);
    (void)sigprocmask(SIG_BLOCK, &signals, &before);
    const pid_t pid = fork();
    if (pid == 0)
        become_mpirun(&m, request, dir, &before);
    const int status = pid > 0 ? wait_for_job(pid, &signals, &n_requests) : 0;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    const job_report report = collect_reports(dir);
    ECH_CHECK(pid > 0, ECH_E_ENV, "no process for mpirun: %s", strerror(errno));
    *exit_code = judge(&report, status, n_requests, &m, request->hosts);
    return ECH_OK;
}
