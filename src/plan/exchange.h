/** @file plan/exchange.h
 *  Layouts in other systems' own words: Megatron-LM arguments, DeepSpeed JSON, torchtitan TOML,
 *  Accelerate FSDP YAML, Echelon YAML, both ways.
 *  Nothing is lost silently: what a format cannot say is a finding.
 *  Pure but for the reading of files; local. */
#ifndef ECH_PLAN_EXCHANGE_H
#define ECH_PLAN_EXCHANGE_H

#include "price/job.h" /* ech_job, ech_point */

#define ECH_FORMAT_LIST(X)                                                                         \
    X(ECH_FORMAT_MEGATRON, "megatron")                                                             \
    X(ECH_FORMAT_DEEPSPEED, "deepspeed")                                                           \
    X(ECH_FORMAT_TORCHTITAN, "torchtitan")                                                         \
    X(ECH_FORMAT_ACCELERATE, "accelerate")                                                         \
    X(ECH_FORMAT_ECHELON, "echelon")

typedef enum ech_format {
#define ECH_FORMAT_ENUM(name, text) name,
    ECH_FORMAT_LIST(ECH_FORMAT_ENUM)
#undef ECH_FORMAT_ENUM
        ECH_N_FORMATS
} ech_format;

/** "megatron", "deepspeed", ...; static storage. */
const char *ech_format_name(ech_format f);

/** Reads a name.  @return is it one */
ECH_MUST_USE bool ech_format_read(const char *name, ech_format *out);

/** Append the layout in a format.
 *  @param f      the format
 *  @param job    borrowed
 *  @param point  borrowed
 *  @param out    appended to, owned by the caller
 *  @param lost   findings: what the format has no word for
 *  @return ECH_OK | ECH_E_UNSUPPORTED (the system cannot do it at all: pipelines in DeepSpeed's
 *          JSON, ...) with the reason | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_format_emit(ech_format f, const ech_job *job, const ech_point *point,
                                        ech_text *out, ech_findings *lost);

enum { ECH_EXCHANGE_STAGES = 4096 /**< virtual stages whose layers a text may list */ };

/** What a text is read into.  With defaults before; what the text says, and what the system does
 *  where the text is silent about something its format has a word for, is set. */
typedef struct ech_exchanged {
    ech_job *job;     /**< borrowed, in/out; gpus 0: not known */
    ech_point *point; /**< borrowed, in/out; stage_layers points below where a list was read */
    ech_model *model; /**< borrowed, set where the text carries a shape; job->model points at it */
    bool has_model;   /**< out: it does */
    bool has_gpus;    /**< out: it says how many ranks there are */
    int stage_layers[ECH_EXCHANGE_STAGES];
} ech_exchanged;

/** Read one.
 *  @param f         the format
 *  @param text      [bytes] borrowed, need not be terminated
 *  @param bytes     of it
 *  @param name      of the file, for findings
 *  @param into      in/out: unchanged on failure but for its room
 *  @param findings  added to: unknown keys that matter with the nearest, values that a layout has
 *                   no word for; contradictions and wrong values too, which then end it
 *  @return ECH_OK | ECH_E_PARSE | ECH_E_CONFIG (with all findings of that kind) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_format_parse(ech_format f, const char *text, size_t bytes,
                                         const char *name, ech_exchanged *into,
                                         ech_findings *findings);

#endif
