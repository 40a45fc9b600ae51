/** @file data/bpe_train.h
 *  Trains a byte-level BPE: counts pre-tokens (GPT-2's pattern), then merges the most frequent pair
 *  again and again; ties go to the smaller pair of ids, so the result is a function of the text
 *  alone.  Ids: 256 bytes in GPT-2's order, merges in the order learned, then special tokens.
 *  Source: Sennrich et al. 2016, arXiv:1508.07909, section 3.2.  Local. */
#ifndef ECH_DATA_BPE_TRAIN_H
#define ECH_DATA_BPE_TRAIN_H

#include "base/text.h" /* ech_text */

#include <stdint.h>

/** What to train. */
typedef struct ech_bpe_config {
    int64_t vocab;              /**< all tokens, special ones included; >= 256 + n_special */
    int64_t min_count;          /**< a pair seen less often is not merged; >= 1 */
    const char *const *special; /**< [n_special] borrowed by the trainer */
    int n_special;
} ech_bpe_config;

/** vocab 0 (to be set), min_count 2, special "<|endoftext|>". */
ech_bpe_config ech_bpe_config_default(void);

/** What training gave. */
typedef struct ech_bpe_result {
    int64_t vocab;      /**< tokens made; less than asked where the text has no more pairs */
    int64_t n_words;    /**< distinct pre-tokens */
    int64_t text_bytes; /**< read */
} ech_bpe_result;

/** A trainer; opaque. */
typedef struct ech_bpe_trainer ech_bpe_trainer;

/** Make a trainer.
 *  @param config  borrowed, copied
 *  @param out     owned by the caller, release with ech_bpe_trainer_destroy
 *  @return ECH_OK | ECH_E_CONFIG (vocab or min_count, with the legal range) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_bpe_trainer_create(const ech_bpe_config *config, ech_bpe_trainer **out);

/** Count the pre-tokens of a text; pieces of one document should be cut where pre-tokens end
 *  (between a letter and white space).
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_bpe_trainer_add(ech_bpe_trainer *t, const char *text, size_t bytes);

/** Learn the merges and append an HF tokenizer.json to `json`.  Once per trainer.
 *  Cost: O(text) to count, then about O(merges * log pairs + symbols moved).
 *  @return ECH_OK | ECH_E_DATA (no text) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_bpe_trainer_finish(ech_bpe_trainer *t, ech_text *json,
                                               ech_bpe_result *result);

/** Release; accepts NULL, nulls the pointer. */
void ech_bpe_trainer_destroy(ech_bpe_trainer **t);

#endif
