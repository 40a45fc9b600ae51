#include "base/process.h"
#include "base/io.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* State and start of a pid: fields 3 and 22 of its stat, behind the name, which may hold anything. */
static bool read_stat(int64_t pid, char *state, int64_t *start)
{
    enum { BEFORE_START = 18 }; /* fields between the state and the start */
    char path[48];
    char *text = NULL;
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (pid <= 0 || ech_read_whole(path, 4096, &text, &bytes) < 0) {
        ech_error_clear(); /* a process that is gone is an answer */
        return false;
    }
    const char *at = strrchr(text, ')');
    bool found = at && at[1] == ' ' && at[2] != '\0';
    if (found) {
        *state = at[2];
        at += 3;
        for (int i = 0; i < BEFORE_START && at; i++)
            at = strchr(at + 1, ' ');
        long long ticks = 0;
        found = at && sscanf(at, "%lld", &ticks) == 1;
        *start = ticks;
    }
    free(text);
    return found;
}

ech_process ech_process_of(int64_t pid)
{
    char state;
    ech_process p = {.pid = pid};
    return read_stat(pid, &state, &p.start) ? p : (ech_process){0};
}

ech_process ech_process_self(void)
{
    return ech_process_of((int64_t)getpid());
}

char ech_process_state(const ech_process *p)
{
    char state;
    int64_t start;
    return read_stat(p->pid, &state, &start) && start == p->start ? state : '\0';
}

bool ech_process_is_alive(const ech_process *p)
{
    const char state = ech_process_state(p);
    return state != '\0' && state != 'Z' && state != 'X';
}

/* The handle first, then the look: what the handle stands for cannot change in between. */
bool ech_process_kill(const ech_process *p)
{
    if (p->pid <= 1 || p->pid > INT32_MAX || p->pid == (int64_t)getpid())
        return false;
    const int fd = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);
    bool killed = false;
    if (fd < 0) /* a kernel without handles: a look and a kill have to do */
        return ech_process_is_alive(p) && kill((pid_t)p->pid, SIGKILL) == 0;
    if (ech_process_is_alive(p))
        killed = syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
    (void)close(fd);
    return killed;
}
