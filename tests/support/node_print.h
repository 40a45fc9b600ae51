/** @file support/node_print.h
 *  Node trees as JSON and their comparison, for round trips in tests and fuzzing. */
#ifndef ECH_TESTS_NODE_PRINT_H
#define ECH_TESTS_NODE_PRINT_H

#include "base/node.h" /* ech_node */
#include "base/text.h" /* ech_text */

/** Append node as JSON that reads back as an equal tree (reals keep a point or an exponent). */
void node_print(ech_text *t, const ech_node *node);

/** Same kinds, keys, order and values; places are not compared. */
bool node_is_equal(const ech_node *a, const ech_node *b);

/** What must hold in any parsed tree: counts, keys in maps only, terminated strings, depth. */
bool node_is_sound(const ech_node *node, int depth);

#endif
