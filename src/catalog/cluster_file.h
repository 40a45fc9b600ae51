/** @file catalog/cluster_file.h
 *  The file of a cluster: a known one and what is different there.
 *
 *      base: h100-sxm-80              # a known cluster; everything below is optional
 *      name: ours
 *      nodes: 16                      # or devices: 128; left out: as many as are asked for
 *      devices_per_node: 8
 *      device: {memory: 80 GB, usable_memory: 79.1 GiB, memory_bandwidth: 3352 GB/s,
 *               host_link: 64 GB/s, power: 700 W, dollars_per_hour: 2.1,
 *               peak: {bf16: 989 TFLOP/s}, gemm: {bf16: 700 TFLOP/s}}
 *      levels:                        # from the innermost; one of the base by its name keeps the rest
 *        - {name: nvlink, span: 8, bandwidth: 450 GB/s, latency: 3.4 us, reduction: true}
 *        - {name: leaf, span: 256, bandwidth: 400 Gb/s, alone_bandwidth: 400 Gb/s, latency: 10 us}
 *        - {name: spine, span: all, bandwidth: 400 Gb/s, oversubscription: 4, latency: 14 us}
 *      network: {ports: 4, bandwidth: 100 Gb/s}   # of a node: the last level; instead of levels
 *      host: {memory: 2048 GiB, bandwidth: 614 GB/s, compute: 14 TFLOP/s}
 *      nvme: {capacity: 30 TB, read: 54 GB/s, write: 31 GB/s}     # of a node; or none
 *      storage: {read: 40 GB/s, write: 20 GB/s}                   # shared, of the whole cluster
 *      failure_hours: 51000           # device-hours between failures that stop a run
 *      node_watts: 4600
 *      power_overhead: 1.2
 *
 *  Plain numbers go under keys with the unit behind them (bandwidth_bytes_per_s: 450e9).  A device's
 *  memory is given as its maker prints it, "80 GB"; what frameworks see of it is usable_memory.
 *  Inside catalog only.  Local. */
#ifndef ECH_CATALOG_CLUSTER_FILE_H
#define ECH_CATALOG_CLUSTER_FILE_H

#include "catalog/cluster.h" /* ech_cluster */

/** A known cluster by name, no file.
 *  @return ECH_OK | ECH_E_CONFIG, *out unchanged */
ECH_MUST_USE ech_status ech_cluster_of_name(const char *name, ech_cluster *out);

/** Read a file.
 *  @return ECH_OK | ECH_E_CONFIG with all findings | ECH_E_PARSE | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cluster_read_file(const char *path, ech_cluster *out);

/** Read a text as such a file.
 *  @param text   borrowed
 *  @param bytes  its length
 *  @param name   in front of each finding
 *  @param out    set on success only
 *  @return as above */
ECH_MUST_USE ech_status ech_cluster_parse(const char *text, size_t bytes, const char *name,
                                          ech_cluster *out);

#endif
