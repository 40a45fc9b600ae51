#include "kernels/cpu/team.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Looks at the word before a waiter goes to sleep: some 20 us, about what a wake-up costs.  Longer
 * would take processors from other ranks. */
enum { SPIN_LOOKS = 400, CACHE_LINE = 64, HUGE_PAGE = 2 << 20 };

/* Elements that make a task worth the taking. */
enum { GRAIN_ELEMS = 16384 };

typedef struct team {
    /* The run in hand, written by the caller before `round` is advanced. */
    ech_team_task task;
    const void *ctx;
    int64_t n_tasks;
    int64_t group; /* tasks taken at a time */
    int threads;
    _Alignas(CACHE_LINE) _Atomic int64_t next; /* first task nobody took */
    _Alignas(CACHE_LINE) _Atomic uint32_t round;
    _Atomic uint32_t sleepers;                  /* members asleep on round */
    _Alignas(CACHE_LINE) _Atomic uint32_t busy; /* threads not yet done with the round */
    _Atomic uint32_t is_caller_asleep;
    _Atomic bool is_ending;
    int n; /* members, the caller included; 0: not started */
    pthread_t thread[ECH_TEAM_MAX];
    int cpu[ECH_TEAM_MAX];
    bool is_bound;
    cpu_set_t caller_cpus; /* to be given back */
    char *scratch;         /* owned [n][ECH_TEAM_SCRATCH_BYTES] */
} team;

static team the_team;

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, ECH_TEAM_MAX, NULL, NULL, 0);
}

static void relax(void)
{
    __builtin_ia32_pause();
}

/* Take tasks until none is left. */
static void take_tasks(team *t, int member)
{
    for (;;) {
        const int64_t begin = atomic_fetch_add_explicit(&t->next, t->group, memory_order_relaxed);
        if (begin >= t->n_tasks)
            return;
        for (int64_t task = begin; task < begin + t->group && task < t->n_tasks; task++)
            t->task(t->ctx, task, member);
    }
}

/* Round after `seen`: a short busy wait, then asleep. */
static uint32_t wait_round(team *t, uint32_t seen)
{
    for (int i = 0; i < SPIN_LOOKS; i++) {
        const uint32_t round = atomic_load(&t->round);
        if (round != seen)
            return round;
        relax();
    }
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->round) == seen)
        futex_wait(&t->round, seen);
    atomic_fetch_sub(&t->sleepers, 1);
    return atomic_load(&t->round);
}

static void leave_round(team *t)
{
    if (atomic_fetch_sub(&t->busy, 1) == 1 && atomic_load(&t->is_caller_asleep))
        futex_wake(&t->busy);
}

static void *member_main(void *arg)
{
    team *t = &the_team;
    const int member = (int)(intptr_t)arg;
    uint32_t round = 0;
    for (;;) {
        round = wait_round(t, round);
        if (atomic_load(&t->is_ending))
            return NULL;
        if (member < t->threads)
            take_tasks(t, member);
        leave_round(t);
    }
}

static void begin_round(team *t)
{
    atomic_fetch_add(&t->round, 1);
    if (atomic_load(&t->sleepers) > 0)
        futex_wake(&t->round);
}

static void wait_members(team *t)
{
    for (int i = 0; i < SPIN_LOOKS && atomic_load(&t->busy) > 0; i++)
        relax();
    atomic_store(&t->is_caller_asleep, 1);
    uint32_t busy;
    while ((busy = atomic_load(&t->busy)) > 0)
        futex_wait(&t->busy, busy);
    atomic_store(&t->is_caller_asleep, 0);
}

int ech_team_size(int threads)
{
    return threads < the_team.n ? threads : the_team.n;
}

static void run_alone(const team *t)
{
    for (int64_t i = 0; i < t->n_tasks; i++)
        t->task(t->ctx, i, 0);
}

static void run_grouped(int threads, int64_t group)
{
    team *t = &the_team;
    ECH_ASSERT(t->n > 0); /* the set was started */
    t->threads = ech_team_size(threads);
    t->group = group;
    if (t->threads <= 1 || t->n_tasks <= group) {
        run_alone(t);
        return;
    }
    atomic_store(&t->next, 0);
    atomic_store(&t->busy, (uint32_t)(t->n - 1));
    begin_round(t);
    take_tasks(t, 0);
    wait_members(t);
}

void ech_team_run(int threads, int64_t n_tasks, ech_team_task task, const void *ctx)
{
    the_team.task = task;
    the_team.ctx = ctx;
    the_team.n_tasks = n_tasks;
    run_grouped(threads, 1);
}

void ech_team_run_rows(int threads, int64_t n_rows, int64_t row_elems, ech_team_task task,
                       const void *ctx)
{
    the_team.task = task;
    the_team.ctx = ctx;
    the_team.n_tasks = n_rows;
    run_grouped(threads, row_elems >= GRAIN_ELEMS ? 1 : GRAIN_ELEMS / (row_elems + 1) + 1);
}

float *ech_team_scratch(int member)
{
    return (float *)(void *)(the_team.scratch + (size_t)member * ECH_TEAM_SCRATCH_BYTES);
}

static ech_status bind_thread(pthread_t thread, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    const int err = pthread_setaffinity_np(thread, sizeof set, &set);
    ECH_CHECK(err == 0, ECH_E_ENV, "cannot bind a thread to processor %d: %s", cpu, strerror(err));
    return ECH_OK;
}

static ech_status start_member(team *t, const int *cpus, int member)
{
    const int err = pthread_create(&t->thread[member], NULL, member_main, (void *)(intptr_t)member);
    ECH_CHECK(err == 0, ECH_E_ENV, "cannot start thread %d: %s", member, strerror(err));
    t->n = member + 1;
    return cpus ? bind_thread(t->thread[member], cpus[member]) : ECH_OK;
}

static ech_status bind_caller(team *t, int cpu)
{
    const int err = pthread_getaffinity_np(pthread_self(), sizeof t->caller_cpus, &t->caller_cpus);
    ECH_CHECK(err == 0, ECH_E_ENV, "cannot read the processors of the caller: %s", strerror(err));
    ECH_TRY(bind_thread(pthread_self(), cpu));
    t->is_bound = true;
    return ECH_OK;
}

static ech_status start_all(team *t, const int *cpus, int n)
{
    const size_t used = (size_t)n * ECH_TEAM_SCRATCH_BYTES;
    const size_t bytes = (used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    t->scratch = aligned_alloc(HUGE_PAGE, bytes);
    ECH_CHECK(t->scratch, ECH_E_NOMEM, "no %zu bytes for the scratch of %d threads", bytes, n);
    (void)madvise(t->scratch, bytes, MADV_HUGEPAGE); /* a help, not a need */
    memset(t->scratch, 0, bytes);                    /* touched now, not in a step */
    t->n = 1;
    if (cpus)
        ECH_TRY(bind_caller(t, cpus[0]));
    for (int member = 1; member < n; member++)
        ECH_TRY(start_member(t, cpus, member));
    return ECH_OK;
}

ech_status ech_team_start(const int *cpus, int n)
{
    ECH_CHECK(n >= 1 && n <= ECH_TEAM_MAX, ECH_E_CONFIG, "%d threads, must be 1..%d", n,
              ECH_TEAM_MAX);
    ech_team_stop();
    const ech_status st = start_all(&the_team, cpus, n);
    if (st < 0)
        ech_team_stop();
    return st;
}

void ech_team_stop(void)
{
    team *t = &the_team;
    atomic_store(&t->is_ending, true);
    begin_round(t);
    for (int member = 1; member < t->n; member++)
        (void)pthread_join(t->thread[member], NULL);
    if (t->is_bound)
        (void)pthread_setaffinity_np(pthread_self(), sizeof t->caller_cpus, &t->caller_cpus);
    free(t->scratch);
    memset((void *)t, 0, sizeof *t);
}
