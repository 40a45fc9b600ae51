/** @file layout/layout.h
 *  The mesh: degrees, rank <-> coordinates, groups, and the order of summation in a group.
 *
 *  world = tp * cp * dp * hsdp * pp.  Ranks are numbered with the axes of `order` from the innermost
 *  outwards, tp-cp-dp-hsdp-pp by default.  Data parallel ranks are two axes: dp is the group over
 *  which state may be sharded (ZeRO, FSDP), hsdp counts the replicas of such a group; what the
 *  configuration calls dp is their product.  kv is no axis of the mesh: it is the runs of
 *  neighbouring tp ranks that hold the same key/value heads, where tp is larger than the head
 *  groups allow.  Nor is tied: two pipeline ranks that each hold the token table are a pair, every
 *  other rank is alone.  Pure arithmetic; every call is local. */
#ifndef ECH_LAYOUT_LAYOUT_H
#define ECH_LAYOUT_LAYOUT_H

#include "base/status.h" /* ech_status */

#include <stdbool.h>
#include <stdint.h>

/** Axes of the mesh and the groups along them; named as in comm_bytes of `train --json`. */
#define ECH_AXIS_LIST(X)                                                                           \
    X(ECH_AXIS_DP, "dp")     /**< data parallel; with ZeRO or FSDP the shard group */              \
    X(ECH_AXIS_EDP, "edp")   /**< replicas of experts */                                           \
    X(ECH_AXIS_HSDP, "hsdp") /**< replicas of a shard group */                                     \
    X(ECH_AXIS_TP, "tp")                                                                           \
    X(ECH_AXIS_KV, "kv") /**< part of tp: ranks that hold the same key/value heads */              \
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

enum { ECH_MESH_AXES = 5 /**< axes whose product is the world */ };

/** Degrees and order: a plain value. */
typedef struct ech_layout {
    int world;
    int degree[ECH_N_AXES];        /**< 1 where unused; WORLD = world */
    bool is_nested;                /**< dp and hsdp are consecutive factors of one tree */
    ech_axis order[ECH_MESH_AXES]; /**< tp cp dp hsdp pp, innermost first; hsdp follows dp */
    int node_ranks;                /**< ranks of one node, of consecutive numbers; 0: one node */
    int tied[2]; /**< pipeline ranks that each hold the token table; equal: none, TIED is 1 */
    ech_tree tree[ECH_N_AXES];
} ech_layout;

enum { ECH_MAX_WORLD = 1 << 24 /**< ranks */ };

/** Layout of dp data-parallel replicas, everything else 1, trees by prime factors. */
ech_layout ech_layout_data_parallel(int dp);

/** What a layout is made of; every degree at least 1. */
typedef struct ech_layout_spec {
    int tp, cp, pp;
    int dp;          /**< all data parallel ranks */
    int shard_group; /**< of them share state; 0: all.  Divides dp */
    int tied[2];  /**< pipeline ranks that each hold the token table: {first, last}; equal: none */
    int kv_share; /**< neighbouring tp ranks that hold the same key/value heads; divides tp */
    /** Of the four axes, innermost first; all zero: tp cp dp pp. */
    ech_axis order[4];
    const int
        *tree; /**< [n_tree] borrowed: factors of dp, innermost first; n_tree 0: prime factors */
    int n_tree;
    int node_ranks; /**< ranks of one node; divides the world; 0: one node */
} ech_layout_spec;

/** The order of the axes where none is given. */
#define ECH_ORDER_DEFAULT "tp-cp-ep-dp-pp"

/** Read an order of axes, innermost first.
 *  @param words  borrowed: tp, cp, ep, dp and pp, once each, between dashes
 *  @param order  set on success: the four without ep, which folds into the others
 *  @return is it an order */
ECH_MUST_USE bool ech_order_read(const char *words, ech_axis order[4]);

/** From a rank to the next one along an axis: the product of the degrees within it.
 *  @param order   [n] innermost first, borrowed
 *  @param n       axes
 *  @param degree  of every axis, borrowed; their product fits
 *  @param axis    one of them (else the product of all) */
int ech_order_stride(const ech_axis *order, int n, const int degree[ECH_N_AXES], ech_axis axis);

/** A layout from its degrees.  Sums over dp, then hsdp, follow the tree of all data parallel ranks
 *  where the shard group is a product of its first factors; else each axis has its own.
 *  @param spec  borrowed
 *  @param out   set on success
 *  @return ECH_OK | ECH_E_CONFIG (degrees that do not divide, an order that is none, a tree of
 *          another size, a tied pipeline rank that is none) | ECH_E_ILLEGAL (more than
 *          ECH_MAX_WORLD ranks) */
ECH_MUST_USE ech_status ech_layout_make(const ech_layout_spec *spec, ech_layout *out);

/** Data parallel ranks: dp * hsdp. */
int ech_layout_data_degree(const ech_layout *l);

/** Which of them a rank is, dp innermost. */
int64_t ech_layout_data_index(const ech_layout *l, const int64_t coord[ECH_N_AXES]);

/** Are sums over dp and then over hsdp those over all data parallel ranks at once, bit for bit. */
bool ech_layout_is_nested(const ech_layout *l);

/** Does every group of `outer` consist of whole groups of `inner`: world of all, tp of kv, pp of
 *  tied. */
bool ech_axis_contains(ech_axis outer, ech_axis inner);

/** Coordinates of a rank along every axis (the mesh, KV and TIED set, others 0, WORLD = rank). */
void ech_layout_coords(const ech_layout *l, int rank, int64_t coord[ECH_N_AXES]);

/** Ranks in a rank's group along an axis: its degree, but 1 over TIED outside the pairs. */
int ech_layout_group_size(const ech_layout *l, int rank, ech_axis axis);

/** Members of rank's group along an axis, in axis order.
 *  @param l        borrowed
 *  @param rank     in [0, l->world)
 *  @param axis     the group's
 *  @param members  out: world ranks, as many as ech_layout_group_size says
 *  @return my index in it */
int ech_layout_group(const ech_layout *l, int rank, ech_axis axis, int *members);

/** Neighbours on one node along an axis: the largest k such that members [j k, (j + 1) k) of every
 *  group of the axis share a node, for all j, where that is more than one rank and less than the
 *  whole group; else 1. */
int ech_layout_node_run(const ech_layout *l, ech_axis axis);

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
