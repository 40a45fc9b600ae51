/** @file storage/safetensors_index.h
 *  The text of model.safetensors.index.json: which shard holds which tensor.  What it says is
 *  checked against the shards by safetensors_set.c.  Private to storage.  Local. */
#ifndef ECH_STORAGE_SAFETENSORS_INDEX_H
#define ECH_STORAGE_SAFETENSORS_INDEX_H

#include "base/status.h"         /* ech_status */
#include "storage/safetensors.h" /* ech_st */

/** One tensor of the weight_map. */
typedef struct ech_st_mapping {
    const char *name;  /**< of the tensor */
    const char *shard; /**< the file that should hold it, as written: any text */
    ech_st *file;      /**< for the user of the index; NULL after parsing */
} ech_st_mapping;

/** A parsed index.  Zero-initialise; release with ech_st_index_fini. */
typedef struct ech_st_index {
    char *text;          /**< owned; names point into it */
    ech_st_mapping *map; /**< owned, sorted by shard, then name */
    size_t n, cap;
} ech_st_index;

/** Parse x->text: strict JSON, one weight_map of strings, no tensor twice; other members are
 *  skipped.
 *  @param x      text set, the rest zero; filled, also in part on failure
 *  @param bytes  of the text, which is changed
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_index_parse(ech_st_index *x, size_t bytes);

/** Order of mappings by tensor name, for qsort and bsearch within one shard. */
int ech_st_mapping_by_tensor(const void *a, const void *b);

/** Release and zero. */
void ech_st_index_fini(ech_st_index *x);

#endif
