/* Which host of a job that never began cannot be reached. */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOST_NAME_BYTES = 256 };

bool ech_launch_is_this_host(const char *name)
{
    char own[HOST_NAME_BYTES] = "";
    (void)gethostname(own, sizeof own - 1);
    const size_t bytes = strcspn(own, "."); /* with or without its domain */
    return strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 ||
           strcmp(name, own) == 0 || (bytes > 0 && strncmp(name, own, bytes) == 0 && !name[bytes]);
}

_Noreturn static void become_ssh(const char *ssh, const char *host)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        (void)dup2(null, fd);
    (void)execl(ssh, "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host, "true",
                (char *)NULL);
    _exit(127);
}

/* The way that mpirun takes by itself; no password is asked for. */
static bool is_reached(const char *ssh, const char *host)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0)
        become_ssh(ssh, host);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

const char *ech_launch_find_unreached(const ech_hostfile *hosts)
{
    char ssh[4096];
    const bool has_ssh = ech_launch_find_program("ssh", ssh, sizeof ssh) != NULL;
    for (int i = 0; i < hosts->n; i++) {
        const char *name = hosts->host[i].name;
        if (hosts->host[i].n < 1 || ech_launch_is_this_host(name))
            continue;
        if (!has_ssh || name[0] == '-' || !is_reached(ssh, name))
            return name;
    }
    return NULL;
}
