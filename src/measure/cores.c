#include "measure/cores.h"

#include "layout/layout.h"

#include <hwloc.h>
#include <sched.h>

/* What the scheduler allows, each processor its own core. */
static int cpus_by_affinity(ech_cpu *out)
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (size_t c = 0; c < CPU_SETSIZE && n < ECH_CPUS_MAX; c++)
        if (CPU_ISSET(c, &set)) {
            out[n] = (ech_cpu){.cpu = (int)c, .core = n};
            n++;
        }
    return n;
}

/* Allowed hardware threads of each core in turn; a core without any does not count. */
static int cpus_by_core(hwloc_topology_t topology, hwloc_const_cpuset_t allowed, ech_cpu *out)
{
    int n = 0;
    int n_cores = 0;
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL) {
        int thread = 0;
        for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0;
             cpu = hwloc_bitmap_next(core->cpuset, cpu))
            if (hwloc_bitmap_isset(allowed, (unsigned)cpu) && n < ECH_CPUS_MAX)
                out[n++] = (ech_cpu){cpu, n_cores, thread++};
        n_cores += thread > 0;
    }
    return n;
}

/* Only cores and processors are asked for: no devices, no caches. */
static int load(hwloc_topology_t topology)
{
    if (hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 ||
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) != 0)
        return -1;
    return hwloc_topology_load(topology);
}

static int cpus_by_topology(hwloc_topology_t topology, ech_cpu *out)
{
    int n = 0;
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    if (allowed && load(topology) == 0) {
        const bool is_here = hwloc_topology_is_thissystem(topology);
        if (!is_here || hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) != 0)
            (void)hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
        n = cpus_by_core(topology, allowed, out);
    }
    hwloc_bitmap_free(allowed);
    return n;
}

int ech_cpus_get(ech_cpu *out)
{
    hwloc_topology_t topology;
    int n = 0;
    if (hwloc_topology_init(&topology) == 0) {
        n = cpus_by_topology(topology, out);
        hwloc_topology_destroy(topology);
    }
    return n ? n : cpus_by_affinity(out);
}

/* Processors of cores [cores.begin, cores.end) in turn: every core's first thread, then every
 * core's second ...; returns how many are below `room`. */
static int cpus_of_block(const ech_cpu *all, int n, ech_range cores, int room, int *cpus)
{
    int taken = 0;
    for (int thread = 0; taken < room; thread++) {
        bool is_any = false;
        for (int i = 0; i < n && taken < room; i++)
            if (all[i].core >= cores.begin && all[i].core < cores.end && all[i].thread == thread) {
                cpus[taken++] = all[i].cpu;
                is_any = true;
            }
        if (!is_any)
            break;
    }
    return taken;
}

void ech_cpus_deal(const ech_cpu *all, int n, int ranks, int me, int threads, int *cpus)
{
    const int n_cores = all[n - 1].core + 1;
    const bool has_block = ranks <= n_cores;
    const ech_range cores = has_block ? ech_split(n_cores, ranks, me) : (ech_range){0, n_cores};
    int order[ECH_CPUS_MAX];
    const int room = cpus_of_block(all, n, cores, ECH_CPUS_MAX, order);
    for (int i = 0; i < threads; i++)
        cpus[i] = order[(has_block ? i : me * threads + i) % room];
}
