/** @file train/config_value.h
 *  One value of the configuration: from a node into its field, and back.  Internal to train.
 *  Local. */
#ifndef ECH_TRAIN_CONFIG_VALUE_H
#define ECH_TRAIN_CONFIG_VALUE_H

#include "base/node.h"    /* ech_node */
#include "train/schema.h" /* ech_option */

/** Read a node into the row's field, freeing what it held.
 *  @param row       any row but a model's
 *  @param node      borrowed
 *  @param base_dir  folder relative paths are taken from; "" or ".": the current one
 *  @param cfg       in/out; the field is unchanged where the value is refused
 *  @param problem   in/out: words are added where the value is refused, with the nearest legal one
 *  @return ECH_OK, also where the value is refused | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_value_read(const ech_option *row, const ech_node *node,
                                       const char *base_dir, ech_config *cfg, ech_text *problem);

/** ech_config_init with default paths taken from a folder.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_config_init_in(const char *base_dir, ech_config *out);

/** Append the field as JSON; relative paths become absolute. */
void ech_value_print(const ech_option *row, const ech_config *cfg, ech_text *out);

/** Does the engine act upon the value the field has. */
bool ech_value_is_built(const ech_option *row, const ech_config *cfg);

/** Is a word of a row a file that the row's "FILE.csv" stands for: then it is kept as its path. */
bool ech_value_is_file(const ech_option *row, const char *word);

/** Free what the field owns and null it. */
void ech_value_free(const ech_option *row, ech_config *cfg);

/** The index-th of "a|b|c" with its length; NULL past the end. */
const char *ech_choice_get(const char *allowed, size_t index, size_t *bytes);

#endif
