#include "audit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One operand, or the scratch: a mapping [guard page | room | guard page]. */
typedef struct guarded {
    unsigned char *map; /* owned; NULL: absent or on another's memory */
    size_t map_bytes;
    unsigned char *room;
    size_t room_bytes;
    unsigned char *data; /* the operand, inside of room */
    size_t bytes;
} guarded;

enum { N_OPERANDS = ECH_MAX_ARGS + 1, WORK = ECH_MAX_ARGS };

/* One run: where operands stand, what fills the rest, how many threads. */
typedef struct setting {
    bool is_at_end;
    unsigned char canary;
    int threads;
} setting;

static const setting settings[2] = {{false, 0x5a, 1}, {true, 0xa5, 3}};

typedef struct run {
    setting set;
    ech_kernel_call call;
    guarded operand[N_OPERANDS];
} run;

/* --- faults --- */

/* Of the run in progress, for the handler alone. */
static const run *volatile running;
static const kernel_case *volatile running_case;

static void say(const char *text)
{
    const ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

/* Only calls that are safe in a handler. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    const unsigned char *at = info->si_addr;
    (void)signal_number;
    (void)context;
    say("audit: ");
    say(running_case ? running_case->name : "no case");
    for (int i = 0; running && i < N_OPERANDS; i++) {
        const guarded *g = &running->operand[i];
        if (!g->map || at < g->map || at >= g->map + g->map_bytes)
            continue;
        const char digits[] = {(char)('0' + i / 10), (char)('0' + i % 10), 0};
        say(at < g->room ? ": touches memory before operand " : ": touches memory after operand ");
        say(digits);
    }
    say(": fault\n");
    _exit(1);
}

static void watch_faults(const run *r, const kernel_case *c, struct sigaction old[2])
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    running = r;
    running_case = c;
    (void)sigaction(SIGSEGV, &action, &old[0]);
    (void)sigaction(SIGBUS, &action, &old[1]);
}

static void unwatch_faults(struct sigaction old[2])
{
    (void)sigaction(SIGSEGV, &old[0], NULL);
    (void)sigaction(SIGBUS, &old[1], NULL);
    running = NULL;
    running_case = NULL;
}

/* --- operands --- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static guarded guarded_make(size_t bytes, size_t align, const setting *s)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    guarded g = {.bytes = bytes};
    g.room_bytes = round_up(bytes > 0 ? bytes : 1, page);
    g.map_bytes = g.room_bytes + 2 * page;
    void *map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map, page, PROT_NONE) != 0 ||
        mprotect((char *)map + page + g.room_bytes, page, PROT_NONE) != 0) {
        perror("audit: guard pages");
        abort();
    }
    g.map = map;
    g.room = g.map + page;
    g.data = s->is_at_end ? g.room + g.room_bytes - round_up(bytes, align) : g.room;
    memset(g.room, s->canary, g.room_bytes);
    return g;
}

static void guarded_free(guarded *g)
{
    if (g->map)
        (void)munmap(g->map, g->map_bytes);
    g->map = NULL;
}

/* Does an argument, or another that lies on its memory, only get read. */
static bool is_only_read(const kernel_case *c, int arg)
{
    for (int i = 0; i < c->call.n_args; i++)
        if ((i == arg || c->alias[i] == arg) && c->access[i] != ECH_READ)
            return false;
    return true;
}

static void run_init(run *r, const kernel_case *c, const setting *s)
{
    memset(r, 0, sizeof *r);
    r->set = *s;
    r->call = c->call;
    r->call.threads = s->threads;
    for (int i = 0; i < c->call.n_args; i++) {
        if (!c->call.arg[i].data)
            continue;
        if (c->alias[i] >= 0) {
            r->call.arg[i].data = r->call.arg[c->alias[i]].data;
            continue;
        }
        const size_t align = c->is_packed[i] ? ech_dtype_bytes(c->call.arg[i].dtype) : 64;
        guarded *g = &r->operand[i];
        *g = guarded_make(kernel_case_arg_bytes(c, i), align, s);
        if (c->access[i] != ECH_WRITE)
            memcpy(g->data, c->call.arg[i].data, g->bytes);
        r->call.arg[i].data = g->data;
    }
    if (c->call.work_bytes > 0) {
        r->operand[WORK] = guarded_make(c->call.work_bytes, 64, s);
        r->call.work = r->operand[WORK].data;
    }
}

static void run_fini(run *r)
{
    for (int i = 0; i < N_OPERANDS; i++)
        guarded_free(&r->operand[i]);
}

/* --- findings --- */

static bool found(const kernel_case *c, char *why, size_t n, int operand, const char *what)
{
    (void)snprintf(why, n, "%s: operand %d %s", c->name, operand, what);
    return false;
}

static bool check_surroundings(const run *r, const kernel_case *c, char *why, size_t n)
{
    for (int i = 0; i < N_OPERANDS; i++) {
        const guarded *g = &r->operand[i];
        for (size_t k = 0; g->map && k < g->room_bytes; k++) {
            const bool is_inside = g->room + k >= g->data && g->room + k < g->data + g->bytes;
            if (!is_inside && g->room[k] != r->set.canary)
                return found(c, why, n, i,
                             g->room + k < g->data ? "was written before its start"
                                                   : "was written past its end");
        }
    }
    return true;
}

static bool check_inputs(const run *r, const kernel_case *c, char *why, size_t n)
{
    for (int i = 0; i < c->call.n_args; i++) {
        const guarded *g = &r->operand[i];
        if (g->map && is_only_read(c, i) && memcmp(g->data, c->call.arg[i].data, g->bytes) != 0)
            return found(c, why, n, i, "is an input and was changed");
    }
    return true;
}

/* A byte that still holds the canary in both runs was not written. */
static bool check_outputs(const run *a, const run *b, const kernel_case *c, char *why, size_t n)
{
    for (int i = 0; i < c->call.n_args; i++) {
        const guarded *ga = &a->operand[i], *gb = &b->operand[i];
        for (size_t k = 0; ga->map && k < ga->bytes; k++) {
            if (ga->data[k] == gb->data[k])
                continue;
            const bool is_unwritten = ga->data[k] == a->set.canary && gb->data[k] == b->set.canary;
            return found(c, why, n, i,
                         is_unwritten ? "was not written to the last byte"
                                      : "depends on old contents, addresses or threads");
        }
    }
    return true;
}

static bool run_checked(run *r, ech_kernel kernel, const kernel_case *c, char *why, size_t n)
{
    struct sigaction old[2];
    watch_faults(r, c, old);
    kernel(&r->call);
    unwatch_faults(old);
    return check_surroundings(r, c, why, n) && check_inputs(r, c, why, n);
}

bool audit_kernel(ech_kernel kernel, const kernel_case *c, char *why, size_t n)
{
    run runs[2];
    run_init(&runs[0], c, &settings[0]);
    run_init(&runs[1], c, &settings[1]);
    const bool is_clean = run_checked(&runs[0], kernel, c, why, n) &&
                          run_checked(&runs[1], kernel, c, why, n) &&
                          check_outputs(&runs[0], &runs[1], c, why, n);
    run_fini(&runs[0]);
    run_fini(&runs[1]);
    return is_clean;
}

static int audit_kind(const ech_kernel_set *set, ech_op_kind kind, ech_dtype real)
{
    int failures = 0;
    for (int variant = 0; variant < kernel_case_variants(kind); variant++) {
        for (uint64_t seed = 0; seed < KERNEL_CASE_SEEDS; seed++) {
            char why[256];
            kernel_case c;
            kernel_case_make(&c, kind, variant, real, seed);
            if (!audit_kernel(set->kernel[kind], &c, why, sizeof why)) {
                fprintf(stderr, "audit of set '%s': %s\n", set->name, why);
                failures++;
            }
            kernel_case_fini(&c);
        }
    }
    return failures;
}

int audit_kernel_set(const ech_kernel_set *set, ech_dtype real)
{
    int failures = 0;
    for (int kind = 0; kind < KERNEL_CASE_KINDS; kind++)
        if (kernel_set_has(set, (ech_op_kind)kind, real))
            failures += audit_kind(set, (ech_op_kind)kind, real);
    return failures;
}
