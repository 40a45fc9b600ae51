/** @file catalog/presets.h
 *  Known models by name: sizes as data, everything else from the family.  Sources: the models'
 *  published config.json files and papers.  Inside catalog only.  Local, pure. */
#ifndef ECH_CATALOG_PRESETS_H
#define ECH_CATALOG_PRESETS_H

#include "catalog/model.h" /* ech_model */

/** Build a preset by its name or one of its other names.
 *  @return whether there is one; *out is unchanged otherwise */
bool ech_preset_find(const char *name, ech_model *out);

#endif
