/** @file data/tokenizer.h
 *  Text to ids and back, for the tokenizers the ecosystem ships, behind one type.
 *
 *  Read: HF tokenizer.json (byte-level BPE of the GPT-2, Llama-3 and Qwen kind; Llama-2 style BPE
 *  with byte fall-back), GPT-2's encoder.json + vocab.bpe (or vocab.json + merges.txt), llama2.c's
 *  tokenizer.bin (merges by score).  What a file asks for and this code does not do is refused by
 *  name, never skipped.  Sources: Sennrich et al. 2016 (BPE); Radford et al. 2019 (byte level).
 *  Local.  Encoding fills a cache, so one tokenizer serves one thread at a time; decoding is
 *  read-only. */
#ifndef ECH_DATA_TOKENIZER_H
#define ECH_DATA_TOKENIZER_H

#include "base/text.h" /* ech_text */

#include <stdint.h>

/** A growing list of ids.  Zero-initialise; release with ech_ids_fini. */
typedef struct ech_ids {
    int32_t *data; /**< owned */
    size_t n;
    size_t capacity;
} ech_ids;

/** Release and zero. */
void ech_ids_fini(ech_ids *ids);

/** A tokenizer; opaque. */
typedef struct ech_tokenizer ech_tokenizer;

/** Load a tokenizer.
 *
 *  @param path  tokenizer.json; encoder.json or vocab.json (merges beside it); a llama2.c .bin; or
 *               a folder with one of them.  A tokenizer_config.json beside it names BOS and EOS.
 *  @param out   owned by the caller, release with ech_tokenizer_destroy; set on success only
 *  @return ECH_OK | ECH_E_IO | ECH_E_PARSE (not JSON) | ECH_E_DATA (contents that contradict
 *          themselves) | ECH_E_UNSUPPORTED (a part not built, by name) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_tokenizer_open(const char *path, ech_tokenizer **out);

/** Load HF tokenizer.json from memory; `name` for messages.  Errors as above. */
ECH_MUST_USE ech_status ech_tokenizer_from_json(const char *json, size_t bytes, const char *name,
                                                ech_tokenizer **out);

/** Load llama2.c's tokenizer.bin from memory; `name` for messages.  Errors as above. */
ECH_MUST_USE ech_status ech_tokenizer_from_llama2c(const void *data, size_t bytes, const char *name,
                                                   ech_tokenizer **out);

/** Release; accepts NULL, nulls the pointer. */
void ech_tokenizer_destroy(ech_tokenizer **t);

/** How to encode; values are or-ed. */
enum {
    ECH_ENCODE_PLAIN = 0,
    ECH_ENCODE_BOS = 1,             /**< begin with BOS */
    ECH_ENCODE_EOS = 2,             /**< end with EOS */
    ECH_ENCODE_SPECIAL_AS_TEXT = 4, /**< special tokens in the text are ordinary text */
    ECH_ENCODE_CONTINUES = 8 /**< the text continues an earlier one: no leading space added */
};

/** Append the ids of text.  Text need not be UTF-8: bytes that are not become byte tokens.
 *  @param t      its cache changes
 *  @param text   borrowed, [bytes]
 *  @param bytes  its length
 *  @param flags  ECH_ENCODE_*
 *  @param out    appended to; on failure holds a part
 *  @return ECH_OK | ECH_E_DATA (a byte without token, BOS or EOS asked of a tokenizer without)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_tokenizer_encode(ech_tokenizer *t, const char *text, size_t bytes,
                                             unsigned flags, ech_ids *out);

/** ECH_ENCODE_BOS and _EOS as documents of a training set want them: EOS after each for GPT-2
 *  kinds; BOS where the file's template adds it; llama2.c: BOS only. */
unsigned ech_tokenizer_document_flags(const ech_tokenizer *t);

/** Bytes one token adds to the text.
 *  @param t         borrowed
 *  @param previous  token before it, -1 at the beginning (Llama: a leading space is dropped there
 *                   and after BOS)
 *  @param id        in [0, vocab); special tokens give their name
 *  @param bytes     out: how many
 *  @return borrowed, not terminated; NULL for an id that is no token */
const char *ech_tokenizer_piece(const ech_tokenizer *t, int32_t previous, int32_t id,
                                size_t *bytes);

/** Append the text of ids.
 *  @param t             borrowed
 *  @param ids           [n]
 *  @param n             how many
 *  @param keep_special  write special tokens by name instead of dropping them
 *  @param out           appended to
 *  @return ECH_OK | ECH_E_DATA (an id that is no token) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_tokenizer_decode(const ech_tokenizer *t, const int32_t *ids, size_t n,
                                             bool keep_special, ech_text *out);

/** Vocabulary size: largest id + 1, added tokens included. */
int32_t ech_tokenizer_vocab(const ech_tokenizer *t);

/** Token that begins a text; the one that ends it where there is no other; -1: none. */
int32_t ech_tokenizer_bos(const ech_tokenizer *t);

/** Token that ends a text; -1: none. */
int32_t ech_tokenizer_eos(const ech_tokenizer *t);

/** Is id a special token (control, not text). */
bool ech_tokenizer_is_special(const ech_tokenizer *t, int32_t id);

/** Id of an added token by its text ("<|endoftext|>"), -1: none. */
int32_t ech_tokenizer_find(const ech_tokenizer *t, const char *content);

/** 32 hexadecimal digits over the vocabulary: pieces in order of id. */
void ech_tokenizer_hash(const ech_tokenizer *t, char out[33]);

#endif
