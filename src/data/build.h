/** @file data/build.h
 *  Text files to a token file, and to a tokenizer: what `data build` and `data tokenizer` do.
 *  Streams; memory does not grow with the text (but for the trainer's table of distinct words).
 *  Local. */
#ifndef ECH_DATA_BUILD_H
#define ECH_DATA_BUILD_H

#include "data/bpe_train.h"   /* ech_bpe_config */
#include "data/text_source.h" /* ech_text_options */
#include "data/token_file.h"  /* ech_token_type */
#include "data/tokenizer.h"   /* ech_tokenizer */

/** Called now and then: input bytes read of all, tokens written. */
typedef void (*ech_build_progress)(int64_t read_bytes, int64_t all_bytes, int64_t n_tokens,
                                   void *user);

/** The inputs of both. */
typedef struct ech_build_input {
    const char *const *files; /**< [n_files] borrowed */
    int n_files;
    ech_text_options text;
    ech_build_progress progress; /**< NULL: none */
    void *user;
} ech_build_input;

/** What to build. */
typedef struct ech_build_config {
    ech_build_input input;
    ech_tokenizer *tokenizer;   /**< borrowed; its cache changes */
    const char *tokenizer_name; /**< for the side file; borrowed */
    unsigned document_flags;    /**< ECH_ENCODE_BOS, _EOS, _SPECIAL_AS_TEXT */
    ech_token_type dtype;       /**< AUTO: by vocabulary */
    const char *out;            /**< the .bin; borrowed */
} ech_build_config;

/** What was built. */
typedef struct ech_build_result {
    int64_t text_bytes; /**< uncompressed */
    int64_t n_tokens;
    int64_t n_documents;
} ech_build_result;

/** Encode all documents and publish the token file.
 *  @return ECH_OK | as ech_text_source_next, ech_tokenizer_encode, ech_token_writer_*; on failure
 *          nothing is left at the output paths */
ECH_MUST_USE ech_status ech_data_build(const ech_build_config *config, ech_build_result *result);

/** Train a tokenizer on the inputs and append its tokenizer.json to `json`.
 *  @return ECH_OK | as ech_text_source_next, ech_bpe_trainer_* */
ECH_MUST_USE ech_status ech_data_train_tokenizer(const ech_build_input *input,
                                                 const ech_bpe_config *config, ech_text *json,
                                                 ech_bpe_result *result);

#endif
