/** @file data/tokenizer_parts.h
 *  Internal to data: what a tokenizer is made of.  Loaders fill it and call ech_tokenizer_seal;
 *  encoding and decoding read it.  Local. */
#ifndef ECH_DATA_TOKENIZER_PARTS_H
#define ECH_DATA_TOKENIZER_PARTS_H

#include "data/bpe.h"         /* ech_merges */
#include "data/piece_cache.h" /* ech_piece_cache */
#include "data/split.h"       /* ech_splitter */
#include "data/tokenizer.h"   /* ech_tokenizer */
#include "data/vocab.h"       /* ech_vocab */

/** How text becomes the first symbols. */
typedef enum ech_tokenizer_kind {
    ECH_TOKENIZER_BYTES, /**< byte level: pre-tokens by pattern, a symbol a byte (GPT-2) */
    ECH_TOKENIZER_MARKER /**< a symbol a character, a marker for each space, bytes where a character
                              has none (SentencePiece's BPE, llama2.c) */
} ech_tokenizer_kind;

/** Where a marker is put before text that does not begin with one. */
typedef enum ech_prepend {
    ECH_PREPEND_NEVER,
    ECH_PREPEND_FIRST, /**< at the beginning of the text only */
    ECH_PREPEND_EACH   /**< after each added token too */
} ech_prepend;

/** A token found in the text before anything else. */
typedef struct ech_added {
    int32_t id;
    char *content; /**< owned */
    size_t bytes;
    bool is_special;
    bool eats_left, eats_right; /**< white space beside it belongs to it */
    bool is_late;               /**< found after those that are not */
} ech_added;

/** The inside of a tokenizer; read-only after seal but for cache and working memory. */
struct ech_tokenizer {
    ech_tokenizer_kind kind;
    ech_vocab raw;     /**< strings as the file has them */
    ech_vocab text;    /**< the bytes each token stands for; made by seal */
    ech_merges merges; /**< keyed by pairs of ids */
    bool *special;     /**< owned [n_vocab] */
    int32_t n_vocab;   /**< largest id + 1 */

    ech_added *added; /**< owned [n_added] */
    size_t n_added, added_capacity;
    bool added_first[256]; /**< first bytes of added tokens */

    int32_t bos, eos; /**< -1: none */
    unsigned document_flags;

    int32_t byte_id[256]; /**< symbol of each byte, -1: none; made by seal */
    int32_t unk;          /**< for what has no symbol, -1: an error */
    bool fuses_unk;       /**< a run of them is one */
    bool ignores_merges;  /**< BYTES: a piece that is a token is that token */

    ech_splitter *splitter; /**< owned; BYTES */
    bool prefixes_space;    /**< BYTES: a space before text that has none */
    bool normalizes_nfc;

    char marker[4]; /**< MARKER: what a space becomes */
    size_t marker_bytes;
    ech_prepend prepend;
    bool prepends_always; /**< even before text that begins with a marker */
    bool replaces_space;
    bool cuts_each;    /**< a piece begins at each marker */
    bool cuts_runs;    /**< a piece may begin at each run of markers, since no token has one after
                            another character; found by seal */
    bool strips_first; /**< decoding drops the space at the beginning */

    ech_piece_cache cache;
    ech_bpe_scratch scratch;
    char *buffer; /**< owned: normalised text */
    size_t buffer_capacity;
    int32_t *symbols; /**< owned: symbols of one piece */
    size_t symbol_capacity;
};

/** An empty tokenizer of a kind: no BOS, EOS or unknown token.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_tokenizer_create(ech_tokenizer_kind kind, ech_tokenizer **out);

/** Add an added token; `added` is borrowed, its content copied.
 *  @return ECH_OK | ECH_E_DATA (contradicts the vocabulary) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_tokenizer_add(ech_tokenizer *t, const ech_added *added);

/** After everything is filled: pieces of text, symbols of bytes, working memory.
 *  @return ECH_OK | ECH_E_DATA | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_tokenizer_seal(ech_tokenizer *t);

/** GPT-2's alphabet: the code point that stands for a byte in byte-level vocabularies. */
uint32_t ech_byte_to_code(uint8_t byte);

/** The byte a code point stands for, -1: none. */
int ech_code_to_byte(uint32_t code);

/** Canonical composition (Unicode NFC) of valid UTF-8; other bytes stay.
 *  @param text   borrowed [bytes]
 *  @param bytes  its length
 *  @param out    appended to
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_nfc(const char *text, size_t bytes, ech_text *out);

/** Is text in NFC already, by a quick look that may say no wrongly. */
bool ech_nfc_is_plain(const char *text, size_t bytes);

#endif
