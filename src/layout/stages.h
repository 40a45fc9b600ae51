/** @file layout/stages.h
 *  Pipeline stages: which units of the model each virtual stage holds, and which pipeline rank
 *  each virtual stage is on.
 *
 *  The model's units (catalog/canon.h: embedding, layers, head) are cut into p * v virtual stages
 *  of neighbouring units; the first holds the embedding, the last the head.  A virtual stage may
 *  hold no layer, and one in between nothing at all: then it hands on what it is given.
 *  Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2 (virtual stages).
 *  Pure arithmetic; every call is local. */
#ifndef ECH_LAYOUT_STAGES_H
#define ECH_LAYOUT_STAGES_H

#include "base/status.h"   /* ech_status */
#include "catalog/canon.h" /* ech_canon, ech_model */

enum { ECH_MAX_CHUNKS = 32 /**< virtual stages of one pipeline rank */ };

/** Who holds what.  Zero-initialise before the first make. */
typedef struct ech_stages {
    int ranks;    /**< pipeline ranks, p */
    int n;        /**< virtual stages, p * v */
    int *first;   /**< owned [n + 1]: stage s holds units [first[s], first[s + 1]) */
    int *rank_of; /**< owned [n]: pipeline rank of a stage */
} ech_stages;

/** How the units are cut. */
typedef struct ech_stages_spec {
    const ech_model *model; /**< borrowed */
    const ech_canon *canon; /**< borrowed: of the model */
    int ranks, n;
    const int *rank_of; /**< [n] borrowed */
    /** [n] borrowed: layers of each stage, zeros too; NULL: balanced by ech_stages_unit_cost, every
     *  stage having a layer. */
    const int *layers;
    int64_t seq; /**< tokens of a sequence: what attention costs */
} ech_stages_spec;

/** Cut.
 *  @param spec  borrowed
 *  @param out   owned by the caller, set on success
 *  @return ECH_OK | ECH_E_ILLEGAL (layers that do not add up, fewer layers than stages where they
 *          are balanced, a rank with more than ECH_MAX_CHUNKS stages) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_stages_make(const ech_stages_spec *spec, ech_stages *out);

/** Release and zero. */
void ech_stages_fini(ech_stages *s);

/** The virtual stage that holds a unit, 0 .. first[n] - 1. */
int ech_stages_of_unit(const ech_stages *s, int unit);

/** Is the token table of a model with tied embeddings on two pipeline ranks: the first stage's and
 *  the last stage's are not the same. */
bool ech_stages_tie_apart(const ech_stages *s, const ech_canon *canon);

/** What a unit costs where stages are balanced, in FLOPs of one token, forward and backward
 *  (ech_model_unit_flops, causal).  The embedding computes nothing but moves bytes: per token and
 *  table a row read, one added to the table's gradient (read and written), and for all tables
 *  together a row written and one read; a byte counts as ECH_STAGES_FLOPS_PER_BYTE.  What a stage
 *  holds in memory is not balanced.
 *  @param unit  0 .. n_units - 1 */
double ech_stages_unit_cost(const ech_model *m, int unit, int64_t seq);

enum {
    /** FLOPs in the time of one byte from memory: between processors' (10) and accelerators' (300) */
    ECH_STAGES_FLOPS_PER_BYTE = 50
};

/** Cut `n` costs into `parts` runs of neighbours, each with at least one of cost[1 .. n - 2], so that
 *  the dearest run is as cheap as can be, and among those cuts the sum of squares is least: what
 *  need not be dear is even.  Exact.  (The dearest rank is then as cheap as can be where a rank has
 *  one run; with several it is near that.)  Takes O(parts n log n) and, for the squares,
 *  O(parts n r) steps, r the longest run below the dearest's cost.
 *  @param cost   [n] borrowed, >= 0; cost[0] goes to the first run, cost[n - 1] to the last
 *  @param n      at least parts + 2: one in between for every run
 *  @param parts  runs, at least 1
 *  @param first  out [parts + 1]
 *  @return ECH_OK | ECH_E_ILLEGAL (n too small, a cost below 0 or no number) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_stages_balance(const double *cost, int n, int parts, int *first);

#endif
