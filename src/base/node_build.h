/** @file base/node_build.h
 *  Building of node trees, shared by the YAML and JSON adapters.  Inside base only.
 *
 *  A tree is its root and a chain of memory chunks that hold every other node, key and string, so
 *  that releasing it is quick and cannot miss anything.  Local. */
#ifndef ECH_BASE_NODE_BUILD_H
#define ECH_BASE_NODE_BUILD_H

#include "base/node.h" /* ech_node */

/** A tree being built; opaque. */
typedef struct ech_node_tree ech_node_tree;

/** New tree with a null root.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_node_tree_create(ech_node_tree **out);

/** Release a tree; accepts NULL, nulls the pointer. */
void ech_node_tree_destroy(ech_node_tree **tree);

/** Its root; ech_node_destroy on it releases the whole tree. */
ech_node *ech_node_tree_root(ech_node_tree *tree);

/** One more value (zeroed) owned by tree.
 *  @return ECH_OK | ECH_E_PARSE (more than ECH_NODE_MAX_NODES) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_node_tree_add(ech_node_tree *tree, ech_node **out);

/** Copy of bytes with a NUL after them, owned by tree.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_node_tree_add_string(ech_node_tree *tree, const char *s, size_t bytes,
                                                 const char **out);

/** Second of two members of map with the same key, in *out (NULL: no such).
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_node_find_duplicate(const ech_node *map, const ech_node **out);

#endif
