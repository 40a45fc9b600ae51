/* A witness of allocation: counts calls of malloc and its kin and of mmap, by the library that made
 * them.  Preloaded (LD_PRELOAD) into echelon; it shares no code with src/ and marks the steps by
 * standing in front of one function of libechelon, ech_session_step.
 *
 * Two windows: up to the return from step $ECH_ALLOC_FROM (default 2), and from there to the return
 * from the last step, so that what the loop does between steps counts too.  When the process ends
 * it writes to $ECH_ALLOC_OUT followed by its MPI rank (0 alone) one JSON object:
 *   {"steps": 6, "before": {"libechelon.so": 812, ...}, "inside": {"libmpi.so.40": 3, ...},
 *    "example": {"libmpi.so.40": "PMPI_Isend"}}
 * A call made by the C library (strdup, fopen) belongs to the library that called it.
 *
 * With $ECH_ALLOC_BALLAST it takes so many bytes at the beginning, for witnesses of memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

int ech_session_step(void *session, const void *request, void *out); /* returns an enumeration */

enum { MAX_LIBRARIES = 128, MAX_FRAMES = 24 };

typedef struct library {
    const void *base;
    char name[128];
    long before, pending, inside; /* pending: since the last return from a step */
    char example[128];
} library;

static library libraries[MAX_LIBRARIES];
static int n_libraries;
static long steps, from = 2;
static bool is_inside;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool is_busy; /* this thread is inside the witness */
static bool is_ready;
static const void *own_base, *libc_base;

static library *library_of(const Dl_info *info)
{
    const char *slash = info->dli_fname ? strrchr(info->dli_fname, '/') : NULL;
    for (int i = 0; i < n_libraries; i++)
        if (libraries[i].base == info->dli_fbase)
            return &libraries[i];
    if (n_libraries == MAX_LIBRARIES)
        abort();
    library *l = &libraries[n_libraries++];
    l->base = info->dli_fbase;
    (void)snprintf(l->name, sizeof l->name, "%s",
                   slash             ? slash + 1
                   : info->dli_fname ? info->dli_fname
                                     : "unknown");
    return l;
}

/* The first caller outside the C library and this one. */
static bool find_caller(const void *direct, Dl_info *info)
{
    void *frame[MAX_FRAMES];
    if (dladdr(direct, info) && info->dli_fbase != libc_base)
        return true;
    const int n = backtrace(frame, MAX_FRAMES);
    for (int i = 0; i < n; i++)
        if (dladdr(frame[i], info) && info->dli_fbase != libc_base && info->dli_fbase != own_base)
            return true;
    return dladdr(direct, info) != 0;
}

static void note(const void *direct)
{
    Dl_info info;
    if (!is_ready || is_busy)
        return;
    is_busy = true;
    if (find_caller(direct, &info)) {
        (void)pthread_mutex_lock(&lock);
        library *l = library_of(&info);
        if (is_inside) {
            l->pending++;
            if (!l->example[0])
                (void)snprintf(l->example, sizeof l->example, "%s+%lx",
                               info.dli_sname ? info.dli_sname : "",
                               (unsigned long)((const char *)direct - (const char *)l->base));
        } else {
            l->before++;
        }
        (void)pthread_mutex_unlock(&lock);
    }
    is_busy = false;
}

/* --- what is counted --- */

void *malloc(size_t n)
{
    note(__builtin_return_address(0));
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    note(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t n)
{
    note(__builtin_return_address(0));
    return __libc_realloc(old, n);
}

void *memalign(size_t align, size_t n)
{
    note(__builtin_return_address(0));
    return __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    note(__builtin_return_address(0));
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    note(__builtin_return_address(0));
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    note(__builtin_return_address(0));
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

/* --- steps --- */

int ech_session_step(void *session, const void *request, void *out)
{
    typedef int (*step_call)(void *, const void *, void *);
    static step_call real;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "ech_session_step");
    const int st = real(session, request, out);
    (void)pthread_mutex_lock(&lock);
    is_inside = ++steps >= from;
    for (int i = 0; i < n_libraries; i++) {
        libraries[i].inside += libraries[i].pending;
        libraries[i].pending = 0;
    }
    (void)pthread_mutex_unlock(&lock);
    return st;
}

/* --- beginning and end --- */

/* Memory that nobody in the process explains: a fault made on purpose. */
static void take_ballast(size_t bytes)
{
    void *ballast = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ballast == MAP_FAILED)
        abort();
    memset(ballast, 1, bytes);
}

__attribute__((constructor)) static void begin(void)
{
    void *frame[2];
    Dl_info info;
    is_busy = true;
    (void)backtrace(frame, 2); /* loads its unwinder, which allocates */
    if (dladdr((const void *)(size_t)&begin, &info))
        own_base = info.dli_fbase;
    if (dladdr(dlsym(RTLD_NEXT, "printf"), &info))
        libc_base = info.dli_fbase;
    if (getenv("ECH_ALLOC_FROM"))
        from = atol(getenv("ECH_ALLOC_FROM"));
    if (getenv("ECH_ALLOC_BALLAST"))
        take_ballast((size_t)atoll(getenv("ECH_ALLOC_BALLAST")));
    is_busy = false;
    is_ready = true;
}

static void put_counts(FILE *out, const char *key, bool is_before)
{
    const char *comma = "";
    fprintf(out, "\"%s\": {", key);
    for (int i = 0; i < n_libraries; i++) {
        const long n = is_before ? libraries[i].before : libraries[i].inside;
        if (n)
            fprintf(out, "%s\"%s\": %ld", comma, libraries[i].name, n);
        comma = n ? ", " : comma;
    }
    fputs("}", out);
}

__attribute__((destructor)) static void end(void)
{
    char path[4096];
    const char *prefix = getenv("ECH_ALLOC_OUT");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const char *comma = "";
    is_ready = false;
    if (!prefix || steps == 0)
        return;
    (void)snprintf(path, sizeof path, "%s%s", prefix, rank ? rank : "0");
    FILE *out = fopen(path, "w");
    if (!out)
        abort();
    fprintf(out, "{\"steps\": %ld, ", steps);
    put_counts(out, "before", true);
    fputs(", ", out);
    put_counts(out, "inside", false);
    fputs(", \"example\": {", out);
    for (int i = 0; i < n_libraries; i++)
        if (libraries[i].inside) {
            fprintf(out, "%s\"%s\": \"%s\"", comma, libraries[i].name, libraries[i].example);
            comma = ", ";
        }
    fputs("}}\n", out);
    if (fclose(out) != 0)
        abort();
}
