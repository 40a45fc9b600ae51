/** @file data/side_file.h
 *  Internal to data: the JSON beside a token file ("X.bin.json"), with what the common forms lack:
 *  vocabulary size, largest id, a hash per block.  Local. */
#ifndef ECH_DATA_SIDE_FILE_H
#define ECH_DATA_SIDE_FILE_H

#include "data/token_type.h" /* ech_token_type */

/** Bytes of .bin under one hash in the side files written here. */
#define ECH_TOKEN_BLOCK_BYTES ((int64_t)1 << 22)

/** What a side file says. */
typedef struct ech_side_file {
    ech_token_type dtype;
    int64_t n_tokens;
    int64_t n_documents;
    int64_t vocab;
    int64_t max_id;
    int64_t block_bytes; /**< bytes of tokens under one hash; the last block is shorter */
    uint64_t *hash;      /**< owned, [n_blocks]: XXH3 of each block */
    size_t n_blocks;
} ech_side_file;

/** Path of the side file of a token file: ".json" appended.
 *  @return ECH_OK | ECH_E_USAGE (too long) */
ECH_MUST_USE ech_status ech_side_file_path(const char *path, char *buf, size_t n);

/** Read and check a side file by its own path.
 *  @param path   of the JSON
 *  @param found  out: is there a side file (absent, or JSON of another make: no)
 *  @param out    set where found; release with ech_side_file_fini
 *  @return ECH_OK | ECH_E_PARSE | ECH_E_DATA (a field is missing or contradicts another)
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_side_file_read(const char *path, bool *found, ech_side_file *out);

/** Release and zero. */
void ech_side_file_fini(ech_side_file *s);

#endif
