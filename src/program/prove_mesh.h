/** @file program/prove_mesh.h
 *  The proof's own arithmetic of ranks: strides, coordinates, group members, attributes.  It is
 *  written anew, so that a fault of layout.c or expr.c is not taken over by what should find it.
 *  Internal to program/: match.c and cover.c use it.  Pure; every call is local. */
#ifndef ECH_PROGRAM_PROVE_MESH_H
#define ECH_PROGRAM_PROVE_MESH_H

#include "layout/layout.h" /* ech_layout */
#include "program/expr.h"  /* ech_expr */

/** Ranks as numbers of mixed radix: rank = sum of coordinate * stride over the axes of the mesh.
 *  Members of a group are `stride` apart.  Axes that are not of the mesh have groups of one, but
 *  for kv (runs of tp), tied (two ranks of a pp group, the others alone) and world (all). */
typedef struct ech_mesh {
    int world;
    int degree[ECH_N_AXES];
    int stride
        [ECH_N_AXES]; /**< 0 for groups of one that are no axis of the mesh; tied: of a pair */
    int tied;         /**< coordinate on pp of a pair's first; TIED's degree 1: none */
} ech_mesh;

/** Strides from degrees and order.  What it accepts has ranks and coordinates one to one, so that
 *  the groups of every axis partition the ranks.
 *  @param l    borrowed
 *  @param out  set on success
 *  @return ECH_OK | ECH_E_PROOF: the order does not name each axis once, the degrees do not
 *          multiply to the world, kv does not divide tp, tied names no two pipeline ranks, an axis
 *          without groups has a degree */
ECH_MUST_USE ech_status ech_mesh_make(const ech_layout *l, ech_mesh *out);

/** The part of a mesh where only these axes vary: its ranks are those whose other coordinates are
 *  0, numbered anew. */
ech_mesh ech_mesh_part(const ech_mesh *m, const ech_layout *l, const bool varies[ECH_N_AXES]);

/** Coordinate of a rank along an axis. */
int ech_mesh_coord(const ech_mesh *m, int rank, ech_axis axis);

/** All of them. */
void ech_mesh_coords(const ech_mesh *m, int rank, int64_t coord[ECH_N_AXES]);

/** Ranks of a rank's group: the degree, but 1 over tied outside the pairs. */
int ech_mesh_size(const ech_mesh *m, int rank, ech_axis axis);

/** The rank that differs from `rank` in this coordinate alone.  index < ech_mesh_size. */
int ech_mesh_member(const ech_mesh *m, int rank, ech_axis axis, int index);

/** "rank 5 (tp 1, dp 2)" into buf; returns buf. */
const char *ech_mesh_describe(const ech_mesh *m, int rank, char *buf, size_t n);

/** Value of an attribute.
 *  @param e      any nodes, also such as no generator makes
 *  @param coord  of the rank
 *  @param micro  of the invocation
 *  @param out    set on success
 *  @return ECH_OK | ECH_E_PROOF (no postfix expression, division by 0) | ECH_E_ILLEGAL (64 bits do
 *          not hold it) */
ECH_MUST_USE ech_status ech_mesh_eval(const ech_expr *e, const int64_t coord[ECH_N_AXES],
                                      int64_t micro, int64_t *out);

/** Mark the mesh axes on whose coordinates an attribute depends. */
void ech_mesh_note_axes(const ech_expr *e, bool varies[ECH_N_AXES]);

#endif
