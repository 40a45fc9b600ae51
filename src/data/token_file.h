/** @file data/token_file.h
 *  Token files: one read-only view over the forms the ecosystem writes.
 *
 *  Forms: Megatron .bin with its .idx beside it; llm.c (magic 20240520, uint16; 20240801, uint32);
 *  anything else is nanoGPT's, bare little-endian uint16, one document.  Everything a header or an
 *  index says is checked against the file's size before it is used.  Tokens are read with pread
 *  into the caller's buffer, never mapped: a file cut short by others is an error, not a signal.
 *  Local.  An open file is read-only and may be read by several threads at once. */
#ifndef ECH_DATA_TOKEN_FILE_H
#define ECH_DATA_TOKEN_FILE_H

#include "data/token_type.h" /* ech_token_type, ech_token_form */

/** How to open. */
typedef struct ech_token_options {
    ech_token_type dtype; /**< AUTO, or what the elements of a bare file are; a header or an index
                                that says otherwise is refused */
    int64_t vocab;        /**< every id must be below it; 0: unknown, ids must be >= 0 */
    bool skips_scan; /**< another process has looked at every id: max_id is -1 (unknown) without a
                          side file, and ids are checked as they are read */
    bool trusts_side_file; /**< the side file's largest id replaces the scan, if its size matches */
} ech_token_options;

/** AUTO, vocabulary unknown, side file trusted. */
ech_token_options ech_token_options_default(void);

/** What a file holds. */
typedef struct ech_token_info {
    ech_token_form form;
    ech_token_type dtype;
    int64_t n_tokens;
    int64_t n_documents; /**< 1 where the form does not say */
    int64_t max_id;      /**< largest id; -1: not looked for */
    int64_t vocab;       /**< from the side file; 0: unknown */
    bool has_side_file;
} ech_token_info;

/** An open token file; opaque. */
typedef struct ech_token_file ech_token_file;

/** Open and check a token file.
 *
 *  Unless the side file vouches for the largest id or opt->skips_scan, reads the whole file once.
 *
 *  @param path  the .bin
 *  @param opt   borrowed; NULL: defaults
 *  @param out   owned by the caller, release with ech_token_file_close; set on success only
 *  @return ECH_OK
 *        | ECH_E_IO     unreadable
 *        | ECH_E_DATA   absent, empty, odd size, header or index against the file's size, negative
 *                       length, offsets that are no running sum, document list not rising to the
 *                       end, id not below vocab, 16 bit with a vocabulary beyond 65536, bare file
 *                       that looks like 32 bit
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_token_file_open(const char *path, const ech_token_options *opt,
                                            ech_token_file **out);

/** Close; accepts NULL, nulls the pointer. */
void ech_token_file_close(ech_token_file **f);

/** What the file holds; borrowed. */
const ech_token_info *ech_token_file_info(const ech_token_file *f);

/** Path as given; borrowed. */
const char *ech_token_file_path(const ech_token_file *f);

/** Read n tokens from `start` as int32 ids; does not allocate.
 *  @param f      borrowed
 *  @param start  first token, [0, n_tokens]
 *  @param n      how many; start + n <= n_tokens (asserted)
 *  @param out    [n] ids, each in [0, vocab)
 *  @return ECH_OK | ECH_E_DATA (an id out of range, with its place) | ECH_E_CORRUPT (file became
 *          shorter) | ECH_E_IO */
ECH_MUST_USE ech_status ech_token_file_read(const ech_token_file *f, int64_t start, int64_t n,
                                            int32_t *out);

/** First token and length of document i (0 <= i < n_documents, asserted).
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_IO */
ECH_MUST_USE ech_status ech_token_file_document(const ech_token_file *f, int64_t i, int64_t *start,
                                                int64_t *n);

/** Unigram entropy of the file in nats per token: what a model reaches that knows only how often
 *  each token occurs.  Reads the whole file; memory 8 bytes an id.
 *  @return as ech_token_file_read | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_token_file_unigram(const ech_token_file *f, double *entropy_nats,
                                               int64_t *n_distinct);

/** Check every block's hash against the side file, and every id.
 *  @return ECH_OK | ECH_E_CORRUPT (which block) | ECH_E_DATA (no side file, or it does not fit the
 *          file) | ECH_E_IO */
ECH_MUST_USE ech_status ech_token_file_verify(const ech_token_file *f);

/** Content hash of the tokens as stored, for the run record: 32 hexadecimal digits.  Taken from the
 *  side file where there is one, else the whole file is read; the same either way.
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_token_file_hash(const ech_token_file *f, char out[33]);

/** A loss mask beside a token file: one byte a token, 0 = this token is not a target. */
typedef struct ech_mask_file ech_mask_file;

/** Open a mask for a file of n_tokens.
 *  @return ECH_OK | ECH_E_DATA (its size is not n_tokens) | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_mask_file_open(const char *path, int64_t n_tokens, ech_mask_file **out);

/** Read n mask bytes from `start`; does not allocate.
 *  @return ECH_OK | ECH_E_CORRUPT | ECH_E_IO */
ECH_MUST_USE ech_status ech_mask_file_read(const ech_mask_file *m, int64_t start, int64_t n,
                                           uint8_t *out);

/** Close; accepts NULL, nulls the pointer. */
void ech_mask_file_close(ech_mask_file **m);

#endif
