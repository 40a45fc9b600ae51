/** @file train/inputs.h
 *  What a run reads, by contents: a hash of every token file and mask.  The run record holds them
 *  and every checkpoint, so that a run that goes on can say where a file is no longer what it was.
 *  Local. */
#ifndef ECH_TRAIN_INPUTS_H
#define ECH_TRAIN_INPUTS_H

#include "base/text.h"    /* ech_text */
#include "train/config.h" /* ech_config */

/** One file. */
typedef struct ech_input {
    const char *key;  /**< "train", "valid" or "mask", static */
    const char *path; /**< borrowed from the configuration */
    int64_t count;    /**< tokens; of a mask its bytes */
    char hash[33];    /**< ech_token_file_hash of tokens; of a mask XXH3-128 of its bytes */
} ech_input;

/** All of a configuration.  Zero-initialise; release with ech_inputs_fini. */
typedef struct ech_inputs {
    ech_input *item; /**< owned [n]: train, then valid, then mask, each in its order */
    int n;
} ech_inputs;

/** Hash every file.  Token files without a side file and masks are read whole.
 *  @param cfg  borrowed, outlives out
 *  @param out  set on success only
 *  @return ECH_OK | ECH_E_DATA | ECH_E_IO | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_inputs_hash(const ech_config *cfg, ech_inputs *out);

/** Append {"train":["hash", ...],"valid":[...],"mask":[...]}. */
void ech_inputs_to_json(const ech_inputs *inputs, ech_text *out);

/** Append what is not as in such a text, as "data.train t.bin, data.mask m.bin"; files that it does
 *  not tell of are left out.
 *  @param inputs  now
 *  @param saved   JSON of ech_inputs_to_json; NULL or anything else: nothing is appended
 *  @param out     in/out */
void ech_inputs_changes(const ech_inputs *inputs, const char *saved, ech_text *out);

/** Release and zero. */
void ech_inputs_fini(ech_inputs *inputs);

#endif
