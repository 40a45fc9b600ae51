/** @file train/generate.h
 *  A trained model that writes on: new tokens against a cache of the keys and values of those
 *  before, on one rank, one program for a whole chunk of a prompt and for a single token.
 *
 *  What is computed for a token does not depend on how its predecessors were cut into chunks beyond
 *  the rounding of the kernels; with the reference kernels not at all.  Local; feeding and sampling
 *  reserve nothing. */
#ifndef ECH_TRAIN_GENERATE_H
#define ECH_TRAIN_GENERATE_H

#include "catalog/canon.h"   /* ech_canon */
#include "train/held.h"      /* ech_held */
#include "kernels/kernels.h" /* ech_kernel_set */
#include "train/sample.h"    /* ech_sampling */

/** What a generator is made of. */
typedef struct ech_generator_config {
    const ech_model *model;        /**< borrowed */
    const ech_canon *canon;        /**< borrowed: of model */
    ech_dtype real;                /**< ECH_F32 or ECH_F64 */
    int64_t context;               /**< tokens the cache holds, 1 .. model.context */
    int64_t chunk;                 /**< most tokens at once, >= 1; held within context */
    const ech_kernel_set *kernels; /**< borrowed; NULL: reference kernels alone */
    int threads;                   /**< of the kernels */
    bool poison;                   /**< NaN where a life ends (tests) */
} ech_generator_config;

/** A generator; opaque.  Its weights are the caller's to fill. */
typedef struct ech_generator ech_generator;

/** Compile the program and reserve its memory: weights, cache, logits of a chunk.
 *  @param config  borrowed, copied
 *  @param out     owned by the caller, set on success only
 *  @return ECH_OK | ECH_E_ILLEGAL (context or chunk) | ECH_E_NOMEM | ECH_E_UNSUPPORTED (a kind of
 *          op without a kernel) */
ECH_MUST_USE ech_status ech_generator_create(const ech_generator_config *config,
                                             ech_generator **out);

/** Release; accepts NULL, nulls the pointer. */
void ech_generator_destroy(ech_generator **g);

/** Its weights, borrowed; fill them (train/held.h) before the first token. */
ech_held ech_generator_held(ech_generator *g);

/** Tokens in the cache. */
int64_t ech_generator_position(const ech_generator *g);

/** Forget all but the first `position` tokens. */
void ech_generator_rewind(ech_generator *g, int64_t position);

/** Append tokens to the cache, a chunk at a time.
 *  @param g    its cache and logits change
 *  @param ids  [n]
 *  @param n    any number that the cache has room for
 *  @return ECH_OK | ECH_E_DATA: an id beyond the vocabulary, or no room; nothing was fed then */
ECH_MUST_USE ech_status ech_generator_feed(ech_generator *g, const int32_t *ids, int64_t n);

/** Tokens of the last chunk fed, 0 before the first. */
int64_t ech_generator_rows(const ech_generator *g);

/** Logits that follow token `row` of the last chunk: [vocab_padded] of real, of which the first
 *  model.vocab mean something; valid until the next chunk. */
const void *ech_generator_logits(const ech_generator *g, int64_t row);

/** Why a text ended. */
typedef enum ech_generate_end {
    ECH_GENERATE_END_TOKEN, /**< a token that ends a text, or begins the next one, was drawn */
    ECH_GENERATE_TOKENS,    /**< as many as were asked for */
    ECH_GENERATE_CONTEXT    /**< the cache is full */
} ech_generate_end;

/** What to write. */
typedef struct ech_generate_request {
    const int32_t *prompt; /**< [n_prompt] fed first */
    int64_t n_prompt;      /**< with what the cache holds already at least 1 */
    int64_t tokens;        /**< new ones at most, >= 0 */
    int64_t vocab;         /**< ids drawn from: the first so many, 1 .. model.vocab */
    int32_t end[2];        /**< ids that end the text, not handed out; -1: none */
    ech_sampling sampling;
    ech_status (*take)(void *user, int32_t id); /**< a new token; a failure ends the text */
    void *user;
} ech_generate_request;

/** Feed the prompt and draw tokens until the text ends.
 *  @param g        a generator
 *  @param request  borrowed
 *  @param end      out on success
 *  @return ECH_OK | ECH_E_DATA (prompt) | ECH_E_USAGE (sampling) | ECH_E_FAILED (logits that are
 *          not numbers) | what take returns */
ECH_MUST_USE ech_status ech_generate(ech_generator *g, const ech_generate_request *request,
                                     ech_generate_end *end);

#endif
