/** @file measure/cores.h
 *  The processors that this process may use, by physical core, and a rank's share of them.
 *  Local; the only file that sees hwloc. */
#ifndef ECH_MEASURE_CORES_H
#define ECH_MEASURE_CORES_H

/** One processor as the system numbers it: a hardware thread of a core. */
typedef struct ech_cpu {
    int cpu;    /**< the system's number */
    int core;   /**< physical core, counted from 0 in the order of packages and caches */
    int thread; /**< of that core, from 0 */
} ech_cpu;

enum { ECH_CPUS_MAX = 1024 };

/** Processors that the calling thread may use, core after core.  Where the topology cannot be read,
 *  each processor counts as a core.
 *  @param out  room for ECH_CPUS_MAX
 *  @return how many; 0: the system does not tell */
int ech_cpus_get(ech_cpu *out);

/** Processors for the threads of one of several ranks on this machine.  Each rank has a block of
 *  whole neighbouring cores where there are as many cores as ranks; its first threads get a core
 *  each, the next the cores' second hardware threads, and then they share.  More ranks than cores
 *  take processors in turn.
 *  @param all      borrowed [n], as ech_cpus_get
 *  @param n        at least 1
 *  @param ranks    on this machine
 *  @param me       which of them, 0 .. ranks - 1
 *  @param threads  of this rank
 *  @param cpus     out [threads] */
void ech_cpus_deal(const ech_cpu *all, int n, int ranks, int me, int threads, int *cpus);

#endif
