/** @file program/placement.h
 *  What a tensor means across ranks: placement types per mesh axis, and the scale monomial of a
 *  gradient (docs/architecture.md, "Placement").  Pure values. */
#ifndef ECH_PROGRAM_PLACEMENT_H
#define ECH_PROGRAM_PLACEMENT_H

#include "layout/layout.h" /* ech_axis */

typedef enum ech_place_kind {
    ECH_PLACE_INVARIANT,   /**< I: replicated, and so is its gradient */
    ECH_PLACE_REPLICATED,  /**< R: replicated; its gradient is a partial sum */
    ECH_PLACE_SHARDED,     /**< S(dim, map) */
    ECH_PLACE_PARTIAL,     /**< P: the value is the sum over the axis */
    ECH_PLACE_PARTIAL_MAX, /**< Pmax: the value is the maximum over the axis */
    ECH_PLACE_UNRELATED    /**< V */
} ech_place_kind;

/** How the indices of a sharded dimension are dealt out. */
typedef enum ech_index_map {
    ECH_MAP_SEQUENCES,  /**< tokens: whole sequences, in runs (data parallel) */
    ECH_MAP_CONTIGUOUS, /**< runs of equal length; of tokens: sequences may be cut */
    ECH_MAP_ZIGZAG,     /**< halves i and 2c-1-i (context parallel) */
    ECH_MAP_HEAD_GROUP, /**< KV head groups with their query heads */
    ECH_MAP_GATE_UP,    /**< the same slice of gate and up */
    ECH_MAP_FLAT,       /**< flat ranges of a part of a unit (ZeRO) */
    ECH_MAP_SLICES /**< of several tensors, each by its own map: a part cut over tp, as bytes */
} ech_index_map;

/** Placement over one axis. */
typedef struct ech_place {
    ech_place_kind kind;
    int dim;           /**< SHARDED */
    ech_index_map map; /**< SHARDED */
} ech_place;

/** Scale of a gradient as a monomial: loss_scale^a * (1/tokens)^b * aux^c * factor.  A forward
 *  value has the scale 1 (all zero, factor 1). */
typedef struct ech_scale {
    int loss_scale;
    int per_token;
    int aux;
    double factor;
} ech_scale;

/** Placement over every axis, and the scale. */
typedef struct ech_placement {
    ech_place over[ECH_N_AXES];
    ech_scale scale;
} ech_placement;

/** I over every axis, scale 1. */
ech_placement ech_placement_invariant(void);

/** Scale of every gradient: loss_scale / tokens. */
ech_scale ech_grad_scale(void);

/** p with its placement over one axis replaced. */
ech_placement ech_placement_with(ech_placement p, ech_axis axis, ech_place place);

/** S(dim, map). */
ech_place ech_place_sharded(int dim, ech_index_map map);

/** Any kind but SHARDED. */
ech_place ech_place_of(ech_place_kind kind);

/** Same kind and, where sharded, the same dimension and map. */
bool ech_place_is_equal(ech_place a, ech_place b);

/** Same powers and the same factor. */
bool ech_scale_is_equal(ech_scale a, ech_scale b);

/** Equal over every axis, and in scale. */
bool ech_placement_is_equal(const ech_placement *a, const ech_placement *b);

/** "I", "R", "S(0, contiguous)", "P", ... into buf; returns buf. */
const char *ech_place_format(ech_place p, char *buf, size_t n);

/** "loss_scale / tokens" and the like into buf; returns buf. */
const char *ech_scale_format(ech_scale s, char *buf, size_t n);

#endif
