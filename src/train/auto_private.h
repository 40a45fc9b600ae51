/** @file train/auto_private.h
 *  What the files of train/auto_layout.h share.  Local. */
#ifndef ECH_TRAIN_AUTO_PRIVATE_H
#define ECH_TRAIN_AUTO_PRIVATE_H

#include "train/auto_layout.h" /* ech_auto_spec */
#include "train/schema.h"      /* ech_option */

/** Is a key one that the search sets: those of layout, and batch.micro. */
bool ech_auto_sets(const ech_option *row);

/** Was a key given, in the file or by --set. */
bool ech_auto_is_given(const ech_config *cfg, const char *path);

/** Give a key a value in words, as a default has them: it does not become given.
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_PARSE */
ECH_MUST_USE ech_status ech_auto_set(ech_config *cfg, const char *path, const char *value);

/** Take the layout of the run's record over, where this run goes on with it.
 *  @param kept  out: it was
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_auto_keep(ech_config *cfg, const ech_auto_spec *spec, ech_text *words,
                                      bool *kept);

#endif
