/** @file data/split.h
 *  Internal to data: cuts text into pre-tokens by regular expressions, as tokenizer files give
 *  them.
 *
 *  Patterns run through PCRE2 (with its JIT where there is one) with Unicode properties; \s and \S
 *  are rewritten to exactly Unicode's White_Space, which PCRE2's own differ from by U+180E.  Bytes
 *  that are not UTF-8 are pieces of their own.  Local; one thread at a time. */
#ifndef ECH_DATA_SPLIT_H
#define ECH_DATA_SPLIT_H

#include "base/status.h" /* ech_status */

/** GPT-2's pattern (Radford et al. 2019), what "ByteLevel" stands for in tokenizer.json. */
extern const char ech_split_gpt2[];

/** One step of splitting: each piece of the step before is cut into its matches and what lies
 *  between. */
typedef struct ech_split_step {
    const char *pattern; /**< borrowed during create */
    bool is_literal;     /**< a plain string */
    bool drops_gaps;     /**< what lies between matches is dropped */
} ech_split_step;

/** A list of steps, compiled; opaque. */
typedef struct ech_splitter ech_splitter;

/** Compile a list of steps.
 *  @param steps    [n_steps] borrowed during the call
 *  @param n_steps  may be 0
 *  @param out      owned by the caller, release with ech_splitter_destroy
 *  @return ECH_OK | ECH_E_DATA (a pattern that does not compile: where and why) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_splitter_create(const ech_split_step *steps, size_t n_steps,
                                            ech_splitter **out);

/** Release; accepts NULL, nulls the pointer. */
void ech_splitter_destroy(ech_splitter **s);

/** What is called for each piece, in order; a negative return ends the run. */
typedef ech_status (*ech_split_piece)(void *user, const char *piece, size_t bytes);

/** Cut text into pieces; without steps the whole text is one.
 *  @param s      its match data changes
 *  @param text   borrowed [bytes], any bytes
 *  @param bytes  its length
 *  @param piece  called for each non-empty piece
 *  @param user   its first argument
 *  @return ECH_OK | ECH_E_DATA (a pattern takes too long on this text) | what piece returned */
ECH_MUST_USE ech_status ech_splitter_run(ech_splitter *s, const char *text, size_t bytes,
                                         ech_split_piece piece, void *user);

#endif
