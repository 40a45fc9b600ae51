/** @file plan/exchange_private.h
 *  What the formats of plan/exchange.h share.  Inside plan only.
 *
 *  A format is two functions.  Its writer says all it has words for; ech_format_emit then reads the
 *  text back and compares (exchange_fields.c), so that no writer can lose anything silently.
 *  Local. */
#ifndef ECH_PLAN_EXCHANGE_PRIVATE_H
#define ECH_PLAN_EXCHANGE_PRIVATE_H

#include "catalog/key_reader.h" /* ech_key_reader */
#include "plan/exchange.h"      /* ech_format, ech_exchanged */

/** Where a text comes from and where complaints about it go. */
typedef struct ech_exchange_source {
    const char *text; /**< [bytes] borrowed */
    size_t bytes;
    const char *name;     /**< borrowed: of the file */
    ech_findings *notes;  /**< borrowed: what is not understood, or a layout has no word for */
    ech_findings *errors; /**< borrowed: what cannot be meant: they end it */
} ech_exchange_source;

typedef ech_status (*ech_exchange_writer)(const ech_job *job, const ech_point *point, ech_text *out,
                                          ech_findings *lost);
typedef ech_status (*ech_exchange_reader)(const ech_exchange_source *src, ech_exchanged *into);

/* A format's two halves, each in the file of its name: what ech_format_emit and ech_format_parse call
 * (plan/exchange.h says what their arguments and errors are). */
ECH_MUST_USE ech_status ech_megatron_write(const ech_job *job, const ech_point *point,
                                           ech_text *out, ech_findings *lost);
ECH_MUST_USE ech_status ech_megatron_read(const ech_exchange_source *src, ech_exchanged *into);
ECH_MUST_USE ech_status ech_deepspeed_write(const ech_job *job, const ech_point *point,
                                            ech_text *out, ech_findings *lost);
ECH_MUST_USE ech_status ech_deepspeed_read(const ech_exchange_source *src, ech_exchanged *into);
ECH_MUST_USE ech_status ech_torchtitan_write(const ech_job *job, const ech_point *point,
                                             ech_text *out, ech_findings *lost);
ECH_MUST_USE ech_status ech_torchtitan_read(const ech_exchange_source *src, ech_exchanged *into);
ECH_MUST_USE ech_status ech_accelerate_write(const ech_job *job, const ech_point *point,
                                             ech_text *out, ech_findings *lost);
ECH_MUST_USE ech_status ech_accelerate_read(const ech_exchange_source *src, ech_exchanged *into);
ECH_MUST_USE ech_status ech_echelon_write(const ech_job *job, const ech_point *point, ech_text *out,
                                          ech_findings *lost);
ECH_MUST_USE ech_status ech_echelon_read(const ech_exchange_source *src, ech_exchanged *into);

/** An error where a map has members and none of them is among n known ones: it is another format's.
 *  @param what  "DeepSpeed's" */
void ech_exchange_check_any(const ech_exchange_source *src, const ech_node *map,
                            const char *const *known, size_t n, const char *what);

/** A system is set: job->system and everything that follows from it by habit (number types of
 *  gradients, master weights, grouped optimizer, generation of kernels on the job's device). */
void ech_exchange_be(ech_exchanged *into, ech_system system);

/** dp and gpus from each other: `dp` data parallel ranks where the text says so (0: it does not),
 *  else gpus / (tp cp pp), which must divide. */
void ech_exchange_ranks(const ech_exchange_source *src, ech_exchanged *into, int64_t dp);

/** Layers of each virtual stage, in the order of the model, as point->split has them.
 *  @param point   at most ECH_EXCHANGE_STAGES stages
 *  @param layers  out [ECH_EXCHANGE_STAGES]
 *  @param stages  out
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_exchange_cut(const ech_job *job, const ech_point *point, int *layers,
                                         int *stages);

/** What job and point say and back does not, a line each.  Only what has a meaning under the layout
 *  is compared: no cp_kind where cp is 1, ...
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_exchange_compare(ech_format f, const ech_job *job,
                                             const ech_point *point, const ech_exchanged *back,
                                             ech_findings *lost);

/** Virtual stages that a point has (pp * vpp, two a rank in a V). */
int64_t ech_exchange_stages(const ech_point *point);

/** What two shapes differ in first, names apart: "biases"; NULL: nothing.  Static storage. */
const char *ech_exchange_model_difference(const ech_model *a, const ech_model *b);

/** Degrees of a text: 1 .. 10^6. */
enum { ECH_EXCHANGE_DEGREE_MAX = 1000000 };

/** A whole number of min .. 10^6 under a key into an int32; absent: unchanged.  @return was it there */
bool ech_exchange_degree(const ech_key_reader *r, const char *key, int64_t min, int32_t *out);

#endif
