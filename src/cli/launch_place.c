/* Which rank of which job this process is, by the environment its launcher set. */
#include "cli/launch.h"

#include <stdlib.h>
#include <string.h>

/* Variables of one launcher; all it sets are integers. */
typedef struct launcher_row {
    ech_launcher launcher;
    const char *name;
    const char *rank, *size, *local_rank, *local_size;
} launcher_row;

static const launcher_row launchers[] = {
    {ECH_LAUNCHER_OPEN_MPI, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {ECH_LAUNCHER_PMI, "mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    /* the step's count: an allocation alone (salloc, sbatch) sets the job's only */
    {ECH_LAUNCHER_SLURM, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
     "SLURM_NTASKS_PER_NODE"}, /* where the step does not tell */
};

enum { N_LAUNCHERS = sizeof launchers / sizeof launchers[0], MAX_RANKS = 1 << 24 };

/* A number >= 0 from the environment, or `absent`. */
static int env_int(const char *name, int absent)
{
    const char *s = getenv(name);
    char *end = NULL;
    if (!s)
        return absent;
    const long x = strtol(s, &end, 10);
    return end != s && *end == '\0' && x >= 0 && x <= MAX_RANKS ? (int)x : absent;
}

/* One item of "2(x3),1": tasks of a node, and of how many nodes in a row.  NULL: no such item. */
static const char *read_nodes(const char *at, int *tasks, int *nodes)
{
    char *end = NULL;
    const long n = strtol(at, &end, 10);
    long times = 1;
    if (end == at || n < 1 || n > MAX_RANKS)
        return NULL;
    if (strncmp(end, "(x", 2) == 0) {
        at = end + 2;
        times = strtol(at, &end, 10);
        if (end == at || *end != ')' || times < 1 || times > MAX_RANKS)
            return NULL;
        end++;
    }
    *tasks = (int)n;
    *nodes = (int)times;
    return *end == ',' ? end + 1 : *end == '\0' ? end : NULL;
}

/* Tasks of this step on this node; 0: not known. */
static int slurm_local_size(void)
{
    const char *at = getenv("SLURM_STEP_TASKS_PER_NODE");
    int node = env_int("SLURM_NODEID", -1);
    int tasks = 0;
    int nodes = 0;
    while (at && *at && node >= 0) {
        at = read_nodes(at, &tasks, &nodes);
        if (at && node < nodes)
            return tasks;
        node -= nodes;
    }
    return 0;
}

/* `srun --pty bash` is a step of one task too, whose shell starts whatever its user types. */
static bool is_interactive_step(const launcher_row *row, int size)
{
    return row->launcher == ECH_LAUNCHER_SLURM && size == 1;
}

static ech_launch_place place_of(const launcher_row *row, int rank, int size)
{
    int local_size = row->launcher == ECH_LAUNCHER_SLURM ? slurm_local_size() : 0;
    if (!local_size)
        local_size = env_int(row->local_size, 0);
    return (ech_launch_place){row->launcher, rank, size, env_int(row->local_rank, -1), local_size};
}

ech_launch_place ech_launch_detect(void)
{
    for (int i = 0; i < N_LAUNCHERS; i++) {
        const launcher_row *row = &launchers[i];
        const int size = env_int(row->size, 0);
        const int rank = env_int(row->rank, -1);
        if (size > 0 && rank >= 0 && rank < size && !is_interactive_step(row, size))
            return place_of(row, rank, size);
    }
    return (ech_launch_place){ECH_LAUNCHER_NONE, 0, 1, -1, 0};
}

const char *ech_launcher_name(ech_launcher launcher)
{
    for (int i = 0; i < N_LAUNCHERS; i++)
        if (launchers[i].launcher == launcher)
            return launchers[i].name;
    return "nothing";
}

ech_status ech_launch_check(const ech_launch_place *place, int64_t ranks)
{
    ECH_CHECK(ranks >= 0 && ranks <= MAX_RANKS, ECH_E_USAGE,
              "--ranks %lld: wanted a number of ranks in 1..%d", (long long)ranks, MAX_RANKS);
    if (place->launcher == ECH_LAUNCHER_NONE || ranks == 0 || ranks == place->size)
        return ECH_OK;
    return ECH_RAISE(ECH_E_USAGE,
                     "the ranks asked for are not those that were started\n"
                     "  --ranks             %lld\n"
                     "  started by %s: %d\n"
                     "leave --ranks out, or start echelon by itself with --ranks %lld",
                     (long long)ranks, ech_launcher_name(place->launcher), place->size,
                     (long long)ranks);
}
