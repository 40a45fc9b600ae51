/** @file catalog/cluster.h
 *  Clusters: devices in nodes, nodes in a network, described level by level.
 *
 *  A level is a domain of devices that reach each other over one kind of link: an NVLink domain, a
 *  node over PCIe, a rail or leaf switch, the spine.  Level 0 is the innermost.  Two devices talk
 *  over the lowest level that has both.  Bandwidths are one way and per device: what one device can
 *  send into that level while all its neighbours do the same is `bytes_per_s`, so network cards
 *  shared by devices and oversubscription are in it; `alone_bytes_per_s` is what one device gets when
 *  its neighbours are silent.
 *  From a name (h100-sxm-80: nodes of 8 with NVLink and one port a GPU; a100-sxm-80:4x100: the same
 *  with four ports of 100 Gbit/s a node) or from a file (YAML or JSON).
 *  Pure but for the reading of files; every call is local. */
#ifndef ECH_CATALOG_CLUSTER_H
#define ECH_CATALOG_CLUSTER_H

#include "base/node.h"      /* ech_node */
#include "base/text.h"      /* ech_findings */
#include "catalog/device.h" /* ech_device */

enum { ECH_CLUSTER_LEVELS = 6, ECH_CLUSTER_NAME = 64 };

/** One level of the network. */
typedef struct ech_link_level {
    char name[24];            /**< "nvlink", "pcie", "ib", "spine" */
    int64_t span;             /**< devices in one domain; of the last level: 0, all */
    double bytes_per_s;       /**< per device, one way, all devices of the domain at it */
    double alone_bytes_per_s; /**< per device, its neighbours silent */
    double latency_s;         /**< of one message */
    bool has_reduction;       /**< switches sum (NVLS, SHARP): all-reduce alone gains */
} ech_link_level;

/** A cluster: a plain value. */
typedef struct ech_cluster {
    char name[ECH_CLUSTER_NAME];
    char device_name[ECH_CLUSTER_NAME]; /**< what device.name points at */
    ech_device device;                  /**< values of a file override the table's */
    int devices_per_node;
    int64_t devices; /**< in all; 0: as many as are asked for */
    int n_levels;
    ech_link_level level[ECH_CLUSTER_LEVELS];
    double host_bytes;       /**< memory of a node's host; 0: the device is the host */
    double host_bytes_per_s; /**< its bandwidth, a node */
    double host_flops;       /**< fp32 FLOP/s of a node's host (optimizer on the host) */
    double nvme_bytes, nvme_read_bytes_per_s, nvme_write_bytes_per_s; /**< of a node; 0: none */
    double storage_read_bytes_per_s,
        storage_write_bytes_per_s; /**< shared storage, of the whole cluster; 0: not said: it grows with the nodes (plan/goal.c) */
    double failure_hours;  /**< mean device-hours between failures that stop a run */
    double node_watts;     /**< of a node beyond its devices */
    double power_overhead; /**< PUE, >= 1 */
} ech_cluster;

/** By name or file (a name with a '/' or ending in .yaml, .yml, .json is a file).  A name is that of
 *  a device as ech_device_find reads it, with ":PORTSxGBIT" behind it for another network.
 *  @param name_or_path  borrowed
 *  @param out           set on success only
 *  @return ECH_OK | ECH_E_CONFIG (unknown names with the nearest, all findings of a file, such as a
 *          bandwidth that can only be meant both ways, or GiB for GB) | ECH_E_PARSE | ECH_E_IO
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cluster_load(const char *name_or_path, ech_cluster *out);

/** Names of all known clusters, sorted: those of the devices, each in its usual node; static storage. */
const char *const *ech_cluster_names(size_t *n);

/** Append all known clusters, for `--cluster list`: a line each with its node and links, or one JSON
 *  list of objects (name, device, devices_per_node, memory and bandwidth of the device, peak_flops by
 *  precision, levels).
 *  @param is_json  which of them
 *  @param out      appended to, owned by the caller
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_cluster_list(bool is_json, ech_text *out);

/** Give it another network between nodes: the last level becomes `ports` network ports a node.
 *  @param c                     in/out
 *  @param ports                 of a node, >= 1
 *  @param bytes_per_s_per_port  line rate of one, one way, > 0
 *  @return ECH_OK | ECH_E_CONFIG (not positive), *c unchanged */
ECH_MUST_USE ech_status ech_cluster_set_network(ech_cluster *c, int ports,
                                                double bytes_per_s_per_port);

/** The lowest level whose domains hold `span` neighbouring devices (the last level where none does).
 *  Device numbers are ranks: node after node. */
int ech_cluster_level_of(const ech_cluster *c, int64_t span);

/** Restore device.name after the value was copied (needed only where a file renamed the device: else
 *  it is static). */
void ech_cluster_rebind(ech_cluster *c);

#endif
