/** @file plan/space.h
 *  The space of layouts that a search looks at: finite lists of values for each dimension, level by
 *  level.  docs/planner/search.md tells them.
 *
 *  A layout is a mesh (degrees), a pipe (virtual stages, schedule, cut, order), a work (micro-batch,
 *  sequence parallelism, recomputation) and a state (ZeRO).  Values are tried against the legality of
 *  price/job.h level by level, the rest at values that nothing is said against; the product of what
 *  is left is legal.  A dimension that is pinned has the one value.
 *  Pure; the list of meshes is allocated, all else goes to the caller's room; local. */
#ifndef ECH_PLAN_SPACE_H
#define ECH_PLAN_SPACE_H

#include "plan/search.h" /* ech_search_spec */
#include "price/shape.h" /* ech_stage_shape */

/** Degrees. */
typedef struct ech_mesh {
    int32_t tp, pp, cp, ep, etp, dp;
} ech_mesh;

/** How layers are cut and run. */
typedef struct ech_pipe {
    int32_t vpp;
    ech_schedule_kind schedule;
    ech_stage_split split;
    ech_order order;
} ech_pipe;

/** What a rank does with a micro-batch. */
typedef struct ech_work_way {
    int32_t micro, recompute_layers;
    uint32_t recompute;
    ech_cp_kind cp_kind;
    bool sequence_parallel;
    ech_offload activations;
} ech_work_way;

/** How state is kept. */
typedef struct ech_state_way {
    int32_t zero_stage, zero_group;
    bool reshard, reduce_each;
    ech_offload optimizer, params;
} ech_state_way;

enum {
    ECH_SPACE_PIPES = 256,
    ECH_SPACE_WORKS = 2048,
    ECH_SPACE_STATES = 192,
    ECH_SPACE_VALUES = 256 /**< of one dimension */
};

/** What is searched, on so many GPUs. */
typedef struct ech_space {
    const ech_search_spec *spec; /**< borrowed */
    ech_job job;                 /**< with gpus as below */
    bool has_offload;            /**< dimensions of offload are open */
    ech_mesh *mesh;              /**< owned [n_meshes] */
    size_t n_meshes, capacity;
    ech_stage_shape *cut[2]; /**< owned [2, ECH_SHAPE_STAGES]: room to compare cuts */
    ech_rejection rejected[ECH_SEARCH_REASONS]; /**< values that legality refused, at any level */
    int n_rejected;
} ech_space;

/** List the meshes.
 *  @param spec         borrowed
 *  @param gpus         of this space
 *  @param has_offload  dimensions of offload are open
 *  @param out          owned by the caller, set on success, also with no mesh at all
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_space_make(const ech_search_spec *spec, int64_t gpus, bool has_offload,
                                       ech_space *out);

/** Release and zero. */
void ech_space_fini(ech_space *s);

/** Pipes of a mesh, into out [ECH_SPACE_PIPES].  @return how many */
int ech_space_pipes(ech_space *s, const ech_mesh *mesh, ech_pipe *out);

/** Works of a pipe, into out [ECH_SPACE_WORKS].  @return how many */
int ech_space_works(ech_space *s, const ech_mesh *mesh, const ech_pipe *pipe, ech_work_way *out);

/** States of a mesh, into out [ECH_SPACE_STATES].  @return how many */
int ech_space_states(ech_space *s, const ech_mesh *mesh, ech_state_way *out);

/** Does it count: where a step has one micro-batch, reducing each and reducing the last are one; with
 *  several, stage 2 that reduces the last holds what stage 1 holds. */
bool ech_space_counts(const ech_space *s, const ech_mesh *mesh, const ech_work_way *work,
                      const ech_state_way *state);

/** Put the parts together. */
ech_point ech_space_point(const ech_space *s, const ech_mesh *mesh, const ech_pipe *pipe,
                          const ech_work_way *work, const ech_state_way *state);

/** Count a reason: n more; is_memory: of memory, else of legality. */
void ech_space_reject(ech_space *s, const char *reason, bool is_memory, int64_t n);

/** Is a dimension pinned. */
static inline bool ech_is_pinned(const ech_search_spec *spec, ech_plan_dim dim)
{
    return spec->pinned >> dim & 1;
}

#endif
