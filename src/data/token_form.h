/** @file data/token_form.h
 *  Internal to data: finds out which form a token file has and checks all that its header or index
 *  says against the files' sizes, in constant memory.  Local. */
#ifndef ECH_DATA_TOKEN_FORM_H
#define ECH_DATA_TOKEN_FORM_H

#include "base/io.h"         /* ech_file */
#include "data/token_type.h" /* ech_token_form, ech_token_type */

/** Where tokens and documents stand. */
typedef struct ech_token_layout {
    ech_token_form form;
    ech_token_type dtype;
    int64_t data_offset; /**< of the first token in the .bin */
    int64_t n_tokens;
    int64_t n_sequences; /**< Megatron, else 1 */
    int64_t n_documents; /**< Megatron, else 1 */
} ech_token_layout;

/** "X.bin" gives "X.idx"; anything else gets ".idx" appended.
 *  @param path  borrowed
 *  @param buf   out
 *  @param n     its size
 *  @return ECH_OK | ECH_E_USAGE (too long) */
ECH_MUST_USE ech_status ech_token_index_path(const char *path, char *buf, size_t n);

/** Read and check a Megatron index against a .bin of bin_bytes.
 *  @return ECH_OK | ECH_E_DATA | ECH_E_CORRUPT | ECH_E_IO */
ECH_MUST_USE ech_status ech_token_index_check(const ech_file *idx, int64_t bin_bytes,
                                              ech_token_layout *out);

/** Tokens [start, start + n) of document i of a checked index.
 *  @return ECH_OK | ECH_E_CORRUPT (it changed since) | ECH_E_IO */
ECH_MUST_USE ech_status ech_token_index_document(const ech_file *idx, const ech_token_layout *lay,
                                                 int64_t i, int64_t *start, int64_t *n);

/** Layout of a .bin without index: llm.c by its magic, else bare.
 *  @param bin    open file
 *  @param dtype  of a bare file; AUTO: uint16, refused where it looks like 32 bit
 *  @param out    set on success
 *  @return ECH_OK | ECH_E_DATA | ECH_E_CORRUPT | ECH_E_IO */
ECH_MUST_USE ech_status ech_token_bare_layout(const ech_file *bin, ech_token_type dtype,
                                              ech_token_layout *out);

#endif
