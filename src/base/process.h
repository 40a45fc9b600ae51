/** @file base/process.h
 *  Processes of this host, told apart by pid and start: a pid alone may belong to another by now.
 *  Read from /proc.  Local. */
#ifndef ECH_BASE_PROCESS_H
#define ECH_BASE_PROCESS_H

#include "base/status.h" /* ECH_MUST_USE */

#include <stdbool.h>
#include <stdint.h>

/** A process; pid 0: none. */
typedef struct ech_process {
    int64_t pid;
    int64_t start; /**< clock ticks from the start of the system to its own */
} ech_process;

/** This process. */
ech_process ech_process_self(void);

/** The process that has a pid now; pid 0 where there is none. */
ech_process ech_process_of(int64_t pid);

/** The letter of /proc/PID/stat: R running, S asleep, D in a call of the kernel, T stopped, t traced,
 *  Z ended and not yet waited for; '\0' where the process is gone. */
char ech_process_state(const ech_process *p);

/** Is it there and able to go on: neither gone nor a zombie. */
bool ech_process_is_alive(const ech_process *p);

/** Kill it (SIGKILL, which stopped processes obey too), never another that has its pid by now, and
 *  never this process.
 *  @return was there something to kill, and was it allowed */
bool ech_process_kill(const ech_process *p);

#endif
