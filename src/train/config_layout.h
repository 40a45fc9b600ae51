/** @file train/config_layout.h
 *  The one translation of a configuration into a layout, and into a question to the legality table.
 *  Local, pure. */
#ifndef ECH_TRAIN_CONFIG_LAYOUT_H
#define ECH_TRAIN_CONFIG_LAYOUT_H

#include "layout/layout.h"   /* ech_layout */
#include "layout/legal.h"    /* ech_legal_query */
#include "program/blocks.h"  /* ech_shard_policy */
#include "program/compile.h" /* ech_compile_spec */
#include "train/config.h"    /* ech_config */

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

/** The schedule that a validated configuration runs: the one that layout.schedule names, but 1f1b
 *  where that comes to the same (one pipeline rank and neither gpipe nor a table; interleaved with
 *  one chunk a rank). */
ech_schedule_kind ech_config_schedule(const ech_config *cfg);

/** Fill in what a compilation has to know of the pipeline: schedule, chunks, group, table, layers of
 *  the stages.
 *  @param cfg   borrowed: outlives the use of spec, which borrows table and layers
 *  @param spec  in/out: those fields are set */
void ech_config_pipeline(const ech_config *cfg, ech_compile_spec *spec);

/** How a validated configuration shards activations and state. */
ech_shard_policy ech_config_policy(const ech_config *cfg);

#endif
