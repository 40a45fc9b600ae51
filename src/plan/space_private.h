/** @file plan/space_private.h
 *  What the files of the space share.  Inside plan only. */
#ifndef ECH_PLAN_SPACE_PRIVATE_H
#define ECH_PLAN_SPACE_PRIVATE_H

#include "plan/space.h" /* ech_space */

/** Values of one dimension, each once. */
typedef struct ech_values {
    int32_t v[ECH_SPACE_VALUES];
    int n;
} ech_values;

/** One more, unless it is there. */
void ech_values_add(ech_values *list, int64_t x);

/** A list of one. */
ech_values ech_values_only(int32_t x);

/** Is a layout legal; its reason is counted where not. */
bool ech_space_takes(ech_space *s, const ech_point *p);

/** Has a dimension the pin's value.  A list of stages is read by so many: with it pp and virtual stages
 *  are fixed too. */
bool ech_space_is_fixed(const ech_space *s, ech_plan_dim dim);

/** A mesh with all else at values that nothing is said against. */
ech_point ech_space_plain(const ech_space *s, const ech_mesh *mesh);

/** Put a part into a layout. */
void ech_space_set_pipe(ech_point *p, const ech_pipe *pipe);

/** Put a part into a layout. */
void ech_space_set_state(ech_point *p, const ech_state_way *s);

#endif
