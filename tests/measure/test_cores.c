/* RUN: np=1 timeout=20 tags=fast */
/* Processors by core, on machines described in words, and how ranks share them. */
#include "check.h"

#include "measure/cores.h"

#include <sched.h>
#include <stdlib.h>

static void test_described_machine(void **state)
{
    ech_cpu cpu[ECH_CPUS_MAX];
    (void)state;
    /* two packages of three cores with two threads; threads of a core are 6 apart, as on most */
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "package:2 core:3 pu:2(indexes=2*6:1*1)", 1), 0);
    const int n = ech_cpus_get(cpu);
    assert_int_equal(unsetenv("HWLOC_SYNTHETIC"), 0);
    assert_int_equal(n, 12);
    for (int i = 0; i < n; i++) {
        assert_int_equal(cpu[i].core, i / 2);
        assert_int_equal(cpu[i].thread, i % 2);
    }
    /* each processor once */
    int seen = 0;
    for (int i = 0; i < n; i++)
        seen |= 1 << cpu[i].cpu;
    assert_int_equal(seen, (1 << 12) - 1);
}

static void test_this_machine(void **state)
{
    ech_cpu cpu[ECH_CPUS_MAX];
    cpu_set_t set, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    const int n = ech_cpus_get(cpu);
    assert_int_equal(n, CPU_COUNT(&set));
    for (int i = 0; i < n; i++)
        assert_true(CPU_ISSET((size_t)cpu[i].cpu, &set));
    CPU_ZERO(&one); /* a thread that may use one processor has that one */
    CPU_SET((size_t)cpu[n - 1].cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    ech_cpu alone[ECH_CPUS_MAX];
    assert_int_equal(ech_cpus_get(alone), 1);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
    assert_int_equal(alone[0].cpu, cpu[n - 1].cpu);
    assert_int_equal(alone[0].core, 0);
}

/* Cores 0..n-1 with two threads each: processor c and processor n + c. */
static int machine(int cores, ech_cpu *out)
{
    for (int c = 0; c < cores; c++)
        for (int t = 0; t < 2; t++)
            out[2 * c + t] = (ech_cpu){c + cores * t, c, t};
    return 2 * cores;
}

static void expect_deal(int cores, int ranks, int me, int threads, const int *want)
{
    ech_cpu all[ECH_CPUS_MAX];
    int got[16];
    const int n = machine(cores, all);
    ech_cpus_deal(all, n, ranks, me, threads, got);
    for (int i = 0; i < threads; i++)
        if (got[i] != want[i])
            fail_msg("%d cores, rank %d of %d, thread %d: got %d, wanted %d", cores, me, ranks, i,
                     got[i], want[i]);
}

static void test_deal_by_hand(void **state)
{
    (void)state;
    expect_deal(4, 2, 0, 2, (int[]){0, 1});
    expect_deal(4, 2, 1, 2, (int[]){2, 3});
    expect_deal(4, 2, 1, 4, (int[]){2, 3, 6, 7}); /* then the cores' second threads */
    expect_deal(4, 2, 1, 5, (int[]){2, 3, 6, 7, 2});
    expect_deal(4, 1, 0, 4, (int[]){0, 1, 2, 3});
    expect_deal(5, 2, 0, 3, (int[]){0, 1, 2}); /* three cores and two */
    expect_deal(5, 2, 1, 2, (int[]){3, 4});
    expect_deal(2, 3, 0, 1, (int[]){0}); /* more ranks than cores: processors in turn */
    expect_deal(2, 3, 1, 1, (int[]){1});
    expect_deal(2, 3, 2, 1, (int[]){2});
    expect_deal(2, 6, 5, 1, (int[]){1});
}

/* Where there are as many cores as ranks, no core has threads of two ranks. */
static void test_ranks_share_no_core(void **state)
{
    (void)state;
    for (int cores = 1; cores <= 16; cores++)
        for (int ranks = 1; ranks <= cores; ranks++) {
            ech_cpu all[ECH_CPUS_MAX];
            int owner[16];
            const int n = machine(cores, all);
            const int threads = n / ranks;
            for (int c = 0; c < cores; c++)
                owner[c] = -1;
            for (int me = 0; me < ranks; me++) {
                int cpus[32];
                ech_cpus_deal(all, n, ranks, me, threads, cpus);
                for (int i = 0; i < threads; i++) {
                    const int core = cpus[i] % cores;
                    assert_true(owner[core] == -1 || owner[core] == me);
                    owner[core] = me;
                }
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_described_machine),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_deal_by_hand),
        cmocka_unit_test(test_ranks_share_no_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
