/** @file data/tokenizer_gpt2.h
 *  Internal to data: GPT-2's pair of files, a vocabulary in JSON and a list of merges.  Local. */
#ifndef ECH_DATA_TOKENIZER_GPT2_H
#define ECH_DATA_TOKENIZER_GPT2_H

#include "data/tokenizer.h" /* ech_tokenizer */

/** Load encoder.json and vocab.bpe (or vocab.json and merges.txt).
 *  @param vocab_path   {"token": id, ...} in GPT-2's alphabet
 *  @param merges_path  a comment line "#version ...", then a pair a line
 *  @param out          owned by the caller; set on success only
 *  @return ECH_OK | ECH_E_IO | ECH_E_PARSE | ECH_E_DATA | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_tokenizer_open_gpt2(const char *vocab_path, const char *merges_path,
                                                ech_tokenizer **out);

#endif
