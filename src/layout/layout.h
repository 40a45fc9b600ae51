/** @file layout/layout.h
 *  The mesh: degrees, rank <-> coordinates, groups, and the order of summation in a group.
 *
 *  world = tp * cp * pp * dp.  Ranks are numbered with the axes of `order` from the innermost
 *  outwards, tp-cp-ep-dp-pp by default.  Pure arithmetic; every call is local. */
#ifndef ECH_LAYOUT_LAYOUT_H
#define ECH_LAYOUT_LAYOUT_H

#include "base/status.h" /* ech_status */

#include <stdint.h>

/** Axes of the mesh and the groups along them; named as in comm_bytes of `train --json`. */
#define ECH_AXIS_LIST(X)                                                                           \
    X(ECH_AXIS_DP, "dp")     /**< data parallel replicas */                                        \
    X(ECH_AXIS_EDP, "edp")   /**< replicas of experts */                                           \
    X(ECH_AXIS_HSDP, "hsdp") /**< replicas of a shard group */                                     \
    X(ECH_AXIS_TP, "tp")                                                                           \
    X(ECH_AXIS_PP, "pp")                                                                           \
    X(ECH_AXIS_CP, "cp")                                                                           \
    X(ECH_AXIS_EP, "ep")                                                                           \
    X(ECH_AXIS_TIED, "tied") /**< stages that share the token table */                             \
    X(ECH_AXIS_WORLD, "world")

typedef enum ech_axis {
#define ECH_AXIS_ENUM(name, text) name,
    ECH_AXIS_LIST(ECH_AXIS_ENUM)
#undef ECH_AXIS_ENUM
        ECH_N_AXES
} ech_axis;

/** "dp", "tp", ...; static storage. */
const char *ech_axis_name(ech_axis axis);

/** The nested tree along which a group's contributions are summed: leaves inside the first factor
 *  first, then those sums inside the second, each level a balanced binary tree.
 *  The product of the factors is the group size. */
typedef struct ech_tree {
    int n;
    int factor[31]; /**< innermost first */
} ech_tree;

/** Degrees and order: a plain value. */
typedef struct ech_layout {
    int world;
    int degree[ECH_N_AXES]; /**< 1 where unused; WORLD = world */
    ech_axis order[4];      /**< the four mesh axes tp cp dp pp, innermost first */
    ech_tree tree[ECH_N_AXES];
} ech_layout;

enum { ECH_MAX_WORLD = 1 << 24 /**< ranks */ };

/** Layout of dp data-parallel replicas, everything else 1, trees by prime factors. */
ech_layout ech_layout_data_parallel(int dp);

/** Coordinates of a rank along every axis (DP, TP, PP, CP set; others derived, WORLD = rank). */
void ech_layout_coords(const ech_layout *l, int rank, int64_t coord[ECH_N_AXES]);

/** Members of rank's group along an axis, in axis order.
 *  @param l        borrowed
 *  @param rank     in [0, l->world)
 *  @param axis     the group's
 *  @param members  out: world ranks, room for degree[axis] of them
 *  @return my index in it */
int ech_layout_group(const ech_layout *l, int rank, ech_axis axis, int *members);

/** Prime factors of n, smallest first (1 gives an empty tree). */
ech_tree ech_tree_default(int n);

/** A tree by hand: the factors' product must be n.  @return ECH_OK | ECH_E_CONFIG */
ECH_MUST_USE ech_status ech_tree_make(const int *factor, int n_factors, int n, ech_tree *out);

/** A contiguous range of indices. */
typedef struct ech_range {
    int64_t begin, end;
} ech_range;

/** Part i of n elements in `parts` contiguous pieces whose lengths differ by at most one. */
ech_range ech_split(int64_t n, int parts, int i);

#endif
