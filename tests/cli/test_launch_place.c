/* RUN: np=1 timeout=10 tags=fast */
/* Which rank of which job a process is, by what launchers set. */
#include "cli/launch_place.c" /* the command line is no library */

#include <stdio.h>

static int failures;

static void clear_environment(void)
{
    static const char *const names[] = {"SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"};
    for (int i = 0; i < N_LAUNCHERS; i++) {
        (void)unsetenv(launchers[i].rank);
        (void)unsetenv(launchers[i].size);
        (void)unsetenv(launchers[i].local_rank);
        (void)unsetenv(launchers[i].local_size);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unsetenv(names[i]);
}

static void expect_int(const char *what, int got, int want)
{
    if (got == want)
        return;
    (void)fprintf(stderr, "%s: got %d, wanted %d\n", what, got, want);
    failures++;
}

/* srun's environment of rank `rank` of `size` on a node; NULL: not set. */
static ech_launch_place under_srun(const char *size, const char *node, const char *per_node)
{
    clear_environment();
    (void)setenv("SLURM_PROCID", "0", 1);
    (void)setenv("SLURM_STEP_NUM_TASKS", size, 1);
    (void)setenv("SLURM_LOCALID", "0", 1);
    if (node)
        (void)setenv("SLURM_NODEID", node, 1);
    if (per_node)
        (void)setenv("SLURM_STEP_TASKS_PER_NODE", per_node, 1);
    return ech_launch_detect();
}

static void test_a_shell_of_srun_is_no_rank(void)
{
    expect_int("srun --pty bash", (int)under_srun("1", "0", "1").launcher, ECH_LAUNCHER_NONE);
    expect_int("srun -n 2", (int)under_srun("2", "0", "2").launcher, ECH_LAUNCHER_SLURM);
}

static void test_local_size(void)
{
    static const struct {
        const char *node, *per_node;
        int want;
    } rows[] = {
        {"0", "2(x3),1", 2}, {"2", "2(x3),1", 2}, {"3", "2(x3),1", 1}, {"4", "2(x3),1", 0},
        {"0", "7", 7},       {"1", "4,3(x2)", 3}, {"0", "4,3(x2)", 4}, {"2", "4,3(x2)", 3},
        {NULL, "7", 0},      {"0", NULL, 0},      {"0", "", 0},        {"0", "x", 0},
        {"1", "2(x", 0},     {"1", "2(x3", 0},    {"0", "-2", 0},      {"1", "2(x0),1", 0},
        {"1", "2,,3", 0},    {"0", "2;3", 0},
    };
    char what[64];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)snprintf(what, sizeof what, "node %s of '%s'", rows[i].node ? rows[i].node : "(none)",
                       rows[i].per_node ? rows[i].per_node : "(none)");
        expect_int(what, under_srun("7", rows[i].node, rows[i].per_node).local_size, rows[i].want);
    }
    (void)under_srun("7", "0", NULL);
    (void)setenv("SLURM_NTASKS_PER_NODE", "5", 1);
    expect_int("of the job, where the step does not tell", ech_launch_detect().local_size, 5);
    (void)setenv("SLURM_STEP_TASKS_PER_NODE", "4,3", 1);
    expect_int("of the step before that of the job", ech_launch_detect().local_size, 4);
}

int main(void)
{
    test_a_shell_of_srun_is_no_rank();
    test_local_size();
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
