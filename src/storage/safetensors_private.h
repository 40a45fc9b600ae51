/** @file storage/safetensors_private.h
 *  Inside of an open safetensors file, shared by reader, header rules and writer.  Private. */
#ifndef ECH_STORAGE_SAFETENSORS_PRIVATE_H
#define ECH_STORAGE_SAFETENSORS_PRIVATE_H

#include "base/io.h"             /* ech_file */
#include "storage/safetensors.h" /* ech_st_tensor */

struct ech_st {
    ech_file *file;                /**< owned; NULL for an image in memory */
    char *header;                  /**< owned JSON text; names point into it */
    ech_st_tensor *tensor;         /**< owned, by offset */
    const ech_st_tensor **by_name; /**< owned, sorted */
    int64_t *dim;                  /**< owned: all dimensions */
    ech_st_meta *meta;             /**< owned, sorted by key */
    size_t n, n_dims, n_meta;
    size_t tensor_cap, dim_cap, meta_cap;
};

/** Parse and check a header (rules 2 to 6).
 *  @param st            zero but for header and file; filled, also in part on failure
 *  @param header_bytes  of st->header; the text is changed
 *  @param data_bytes    bytes behind the header
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_st_parse(ech_st *st, int64_t header_bytes, int64_t data_bytes);

/** Release all but the struct itself. */
void ech_st_fini(ech_st *st);

#endif
