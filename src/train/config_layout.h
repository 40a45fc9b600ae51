/** @file train/config_layout.h
 *  The one translation of a configuration into a layout, and into a question to the legality table.
 *  Local, pure. */
#ifndef ECH_TRAIN_CONFIG_LAYOUT_H
#define ECH_TRAIN_CONFIG_LAYOUT_H

#include "layout/layout.h"  /* ech_layout */
#include "layout/legal.h"   /* ech_legal_query */
#include "program/blocks.h" /* ech_shard_policy */
#include "train/config.h"   /* ech_config */

/** What the legality table is asked about a configuration; nothing of nodes.
 *  @param cfg    borrowed by the result; resolved as far as it can be
 *  @param ranks  of the run; 0: not known */
ech_legal_query ech_config_legal_query(const ech_config *cfg, int ranks);

/** The layout of a validated configuration.
 *  @param cfg         borrowed; resolved
 *  @param node_ranks  ranks of each node, 0: not known, or one node
 *  @param out         set on success
 *  @return ECH_OK | ECH_E_CONFIG | ECH_E_ILLEGAL as ech_layout_make: the configuration was not
 *          validated */
ECH_MUST_USE ech_status ech_config_layout_make(const ech_config *cfg, int node_ranks,
                                               ech_layout *out);

/** How a validated configuration shards activations and state. */
ech_shard_policy ech_config_policy(const ech_config *cfg);

#endif
