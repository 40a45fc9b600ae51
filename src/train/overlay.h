/** @file train/overlay.h
 *  The tree of a configuration file with `--set` values laid over it.  Internal to train.
 *
 *  All nodes are copies, so the result can be changed freely; they keep the places of the originals
 *  and know which `--set` they came from.  Local. */
#ifndef ECH_TRAIN_OVERLAY_H
#define ECH_TRAIN_OVERLAY_H

#include "base/node.h" /* ech_node */
#include "base/text.h" /* ech_text, ech_findings */

/** A copied node: every ech_node of an overlay's tree is the first field of one of these. */
typedef struct ech_overlay_node {
    ech_node node;
    const char *set_by;            /**< borrowed: the `--set` argument; NULL: the file */
    struct ech_overlay_node *made; /**< owned: the one made before it */
} ech_overlay_node;

/** Zero-initialise; release with ech_overlay_fini. */
typedef struct ech_overlay {
    ech_node *root;         /**< a map */
    ech_overlay_node *made; /**< owned: all nodes */
    char **string;          /**< owned, each owned: keys and resolved paths */
    size_t n_strings, strings_capacity;
    ech_node **tree; /**< owned, each owned: what was parsed */
    size_t n_trees, trees_capacity;
} ech_overlay;

/** Take a parsed file (NULL: none).  @param tree  taken, also on failure
 *  @return ECH_OK | ECH_E_CONFIG where it is no map | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_overlay_init(ech_overlay *o, ech_node *tree, const char *name);

/** Lay "a.b=value" over the tree; a malformed argument is a finding.
 *  @param set  borrowed, must outlive the overlay
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_overlay_set(ech_overlay *o, const char *set, ech_findings *findings);

/** Give a string node another value.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_overlay_replace_string(ech_overlay *o, ech_node *node,
                                                   const char *value);

/** The `--set` a node of an overlay came from; NULL: the file. */
const char *ech_overlay_set_by(const ech_node *node);

/** Append a tree as JSON. */
void ech_overlay_to_json(const ech_node *node, ech_text *out);

/** Release and zero. */
void ech_overlay_fini(ech_overlay *o);

#endif
