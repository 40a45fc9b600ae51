/** @file layout/place.h
 *  Ranks on nodes: which node each rank is on, as runs of neighbouring ranks.
 *
 *  Groups that talk most lie on one node where ranks are numbered node after node and every node
 *  holds as many; the legality table (legal.h) says so of runs that are otherwise.  Local. */
#ifndef ECH_LAYOUT_PLACE_H
#define ECH_LAYOUT_PLACE_H

#include "base/status.h" /* ech_status */

#include <stdbool.h>
#include <stdint.h>

enum { ECH_HOST_BYTES = 64 /**< of a host's name, its end included */ };

/** A run of neighbouring ranks on one node; a node that holds several runs is several of these. */
typedef struct ech_node_run {
    char name[ECH_HOST_BYTES]; /**< of the host */
    int first, n;              /**< ranks first .. first + n - 1 */
    int slots;                 /**< ranks that it is meant to take; 0: not known */
} ech_node_run;

/** Runs out of the host of every rank.
 *  @param host    borrowed [ranks]: names, ended by a NUL
 *  @param ranks   at least 1
 *  @param out     owned by the caller, free(): the runs
 *  @param n       out: how many
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_node_runs(const char (*host)[ECH_HOST_BYTES], int ranks,
                                      ech_node_run **out, int *n);

/** Deal ranks out to nodes with slots, one after the other: each takes its slots, the last what is
 *  left.  With more ranks than slots every node takes its share of them in proportion to its slots.
 *  @param node   in/out [n]: first and n are set; slots at least 1
 *  @param n      nodes
 *  @param ranks  at least 1 */
void ech_node_fill(ech_node_run *node, int n, int ranks);

/** Ranks that lie on one node together: of each, where all hold as many; of the smallest, where it
 *  has several and divides the others; 0 where neither is so or a node's ranks are scattered.
 *  @param node  borrowed [n]; those without ranks do not count
 *  @param n     runs */
int ech_node_ranks(const ech_node_run *node, int n);

/** Is a node's name met again after another's. */
bool ech_node_is_scattered(const ech_node_run *node, int n);

#endif
