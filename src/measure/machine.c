#include "measure/machine.h"

#include "base/io.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 16 << 20 };

/* A small file of /proc or /sys, or NULL; the caller frees it. */
static char *slurp(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!ech_path_exists(path) || ech_read_whole(path, MAX_FILE_BYTES, &text, &bytes) < 0)
        return NULL;
    return text;
}

/* Number after "NAME:" on a line of its own, in kB there; bytes, or -1. */
static int64_t meminfo_value(const char *text, const char *name, int64_t unit)
{
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == ':')
            return strtoll(at + strlen(name) + 1, NULL, 10) * unit;
    return -1;
}

static void read_memory(ech_machine *m)
{
    char *text = slurp("/proc/meminfo");
    m->memory_bytes = meminfo_value(text, "MemTotal", 1024);
    m->available_bytes = meminfo_value(text, "MemAvailable", 1024);
    m->huge_pages = meminfo_value(text, "HugePages_Total", 1);
    m->huge_page_bytes = meminfo_value(text, "Hugepagesize", 1024);
    free(text);
}

/* Version 2 of control groups, then version 1; "max" and absurd numbers are no limit. */
static void read_group_limits(ech_machine *m)
{
    const int64_t no_limit = INT64_C(1) << 60;
    long long quota = 0;
    long long period = 0;
    char *text = slurp("/sys/fs/cgroup/memory.max");
    if (!text)
        text = slurp("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    const int64_t limit = text ? strtoll(text, NULL, 10) : 0;
    m->limit_bytes = limit > 0 && limit < no_limit ? limit : -1;
    free(text);
    text = slurp("/sys/fs/cgroup/cpu.max");
    m->cores_quota = -1;
    if (text && sscanf(text, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
        m->cores_quota = (double)quota / (double)period;
    free(text);
}

/* Value of "NAME   : VALUE" in /proc/cpuinfo, its first occurrence. */
static void copy_cpu_name(const char *text, char *out, size_t n)
{
    const char *at = text ? strstr(text, "model name") : NULL;
    const char *colon = at ? strchr(at, ':') : NULL;
    if (colon)
        (void)snprintf(out, n, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
}

static bool has_flag(const char *flags, size_t bytes, const char *flag)
{
    const size_t n = strlen(flag);
    for (size_t at = 0; at < bytes; at += strcspn(flags + at, " \n") + 1)
        if (strcspn(flags + at, " \n") == n && memcmp(flags + at, flag, n) == 0)
            return true;
    return false;
}

static void read_cpu(ech_machine *m)
{
    cpu_set_t set;
    char *text = slurp("/proc/cpuinfo");
    const char *line = text ? strstr(text, "\nflags") : NULL;
    const char *flags = line ? strchr(line, ':') : NULL;
    const size_t bytes = flags ? strcspn(flags, "\n") : 0;
    copy_cpu_name(text, m->cpu, sizeof m->cpu);
    m->has_avx2 = has_flag(flags, bytes, "avx2");
    m->has_fma = has_flag(flags, bytes, "fma");
    m->has_avx512f = has_flag(flags, bytes, "avx512f");
    m->has_avx512_bf16 = has_flag(flags, bytes, "avx512_bf16");
    m->has_amx_bf16 = has_flag(flags, bytes, "amx_bf16");
    free(text);
    m->cores_online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    m->cores_usable =
        sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : m->cores_online;
}

static int64_t soft_limit(__rlimit_resource_t which)
{
    struct rlimit limit;
    if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return -1;
    return (int64_t)limit.rlim_cur;
}

static void read_system(ech_machine *m)
{
    struct utsname u;
    struct statvfs shm;
    if (uname(&u) == 0) {
        (void)snprintf(m->host, sizeof m->host, "%.100s", u.nodename);
        (void)snprintf(m->system, sizeof m->system, "%.40s %.60s %.40s", u.sysname, u.release,
                       u.machine);
    }
    m->shm_free_bytes = -1;
    if (statvfs("/dev/shm", &shm) == 0)
        m->shm_free_bytes = (int64_t)(shm.f_bavail * shm.f_frsize);
    m->locked_bytes = soft_limit(RLIMIT_MEMLOCK);
    m->open_files = soft_limit(RLIMIT_NOFILE);
}

/* The choice in brackets: "always [madvise] never". */
static void read_thp(ech_machine *m)
{
    char *text = slurp("/sys/kernel/mm/transparent_hugepage/enabled");
    const char *open = text ? strchr(text, '[') : NULL;
    if (open)
        (void)snprintf(m->thp, sizeof m->thp, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    free(text);
}

void ech_machine_get(ech_machine *out)
{
    *out = (ech_machine){0};
    read_memory(out);
    read_group_limits(out);
    read_cpu(out);
    read_system(out);
    read_thp(out);
}
