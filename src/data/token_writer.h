/** @file data/token_writer.h
 *  Writes Megatron's .bin and .idx, and a side file "X.bin.json" beside X.bin: vocabulary size,
 *  largest id, document count and a hash per block, which none of the common forms carries.
 *
 *  Nothing stands at the three paths before ech_token_writer_finish; the .bin is published last, so
 *  a reader never sees it without its index.  Memory: 12 bytes a document.  Local. */
#ifndef ECH_DATA_TOKEN_WRITER_H
#define ECH_DATA_TOKEN_WRITER_H

#include "data/token_file.h" /* ech_token_type */

/** A writer; opaque. */
typedef struct ech_token_writer ech_token_writer;

/** Start a file.
 *  @param path       the .bin; its name must end in ".bin"
 *  @param vocab      vocabulary size, > 0
 *  @param dtype      AUTO: uint16 below a vocabulary of 65500, else int32 (Megatron's rule)
 *  @param tokenizer  what made the ids, for the side file; borrowed, NULL: unknown
 *  @param out        owned by the caller, release with ech_token_writer_destroy
 *  @return ECH_OK | ECH_E_DATA (dtype cannot hold vocab) | ECH_E_USAGE (name, vocab, or a dtype
 *          Megatron has no code for) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_token_writer_create(const char *path, int64_t vocab,
                                                ech_token_type dtype, const char *tokenizer,
                                                ech_token_writer **out);

/** Append ids to the current document.
 *  @return ECH_OK | ECH_E_DATA (an id outside [0, vocab): nothing of this call is written)
 *        | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_token_writer_add(ech_token_writer *w, const int32_t *ids, size_t n);

/** End the current document; one without tokens is dropped.
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_token_writer_end_document(ech_token_writer *w);

/** End the last document and publish the three files.
 *  @return ECH_OK | ECH_E_DATA (no tokens; nothing is written) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_token_writer_finish(ech_token_writer *w);

/** Tokens so far. */
int64_t ech_token_writer_tokens(const ech_token_writer *w);

/** Documents ended so far. */
int64_t ech_token_writer_documents(const ech_token_writer *w);

/** Release; unfinished files vanish.  Accepts NULL, nulls the pointer. */
void ech_token_writer_destroy(ech_token_writer **w);

#endif
