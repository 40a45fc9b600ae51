/** @file plan/validate_private.h
 *  Between the files of validate: a table's cells, what is known of the software that measured, and
 *  the steps from a row's words to a job.  Inside plan only.  Local. */
#ifndef ECH_PLAN_VALIDATE_PRIVATE_H
#define ECH_PLAN_VALIDATE_PRIVATE_H

#include "plan/validate.h" /* ech_published */

/** Columns, by their names in the first line; must: a table without it is refused. */
#define ECH_COLUMN_LIST(X)                                                                         \
    X(ECH_COLUMN_ID, "id", true)                                                                   \
    X(ECH_COLUMN_SOURCE, "source", false)                                                          \
    X(ECH_COLUMN_YEAR, "year", false)                                                              \
    X(ECH_COLUMN_MODEL, "model", true)                                                             \
    X(ECH_COLUMN_PARAMS_B, "params_b", false)                                                      \
    X(ECH_COLUMN_LAYERS, "layers", true)                                                           \
    X(ECH_COLUMN_HIDDEN, "hidden", true)                                                           \
    X(ECH_COLUMN_FFN, "ffn", true)                                                                 \
    X(ECH_COLUMN_HEADS, "heads", true)                                                             \
    X(ECH_COLUMN_KV_HEADS, "kv_heads", true)                                                       \
    X(ECH_COLUMN_VOCAB, "vocab", true)                                                             \
    X(ECH_COLUMN_EXPERTS, "experts", true)                                                         \
    X(ECH_COLUMN_TOPK, "topk", true)                                                               \
    X(ECH_COLUMN_SEQ, "seq", true)                                                                 \
    X(ECH_COLUMN_GLOBAL_BATCH, "global_batch", true)                                               \
    X(ECH_COLUMN_MICRO_BATCH, "micro_batch", true)                                                 \
    X(ECH_COLUMN_GPUS, "gpus", true)                                                               \
    X(ECH_COLUMN_GPU_TYPE, "gpu_type", true)                                                       \
    X(ECH_COLUMN_INTERCONNECT, "interconnect", true)                                               \
    X(ECH_COLUMN_TP, "tp", true)                                                                   \
    X(ECH_COLUMN_PP, "pp", true)                                                                   \
    X(ECH_COLUMN_VPP, "vpp", true)                                                                 \
    X(ECH_COLUMN_DP, "dp", true)                                                                   \
    X(ECH_COLUMN_CP, "cp", true)                                                                   \
    X(ECH_COLUMN_EP, "ep", true)                                                                   \
    X(ECH_COLUMN_ZERO, "zero_or_fsdp", true)                                                       \
    X(ECH_COLUMN_RECOMPUTE, "recompute", true)                                                     \
    X(ECH_COLUMN_PRECISION, "precision", true)                                                     \
    X(ECH_COLUMN_SCHEDULE, "schedule", true)                                                       \
    X(ECH_COLUMN_KIND, "measured_kind", true)                                                      \
    X(ECH_COLUMN_VALUE, "measured_value", true)                                                    \
    X(ECH_COLUMN_VERIFIED, "verified", false)                                                      \
    X(ECH_COLUMN_NOTES, "notes", false)                                                            \
    X(ECH_COLUMN_SOFTWARE, "software", false)                                                      \
    X(ECH_COLUMN_MEMORY_KIND, "memory_kind", false)                                                \
    X(ECH_COLUMN_COMPILED, "compiled", false)                                                      \
    X(ECH_COLUMN_OVERLAP, "overlap", false)                                                        \
    X(ECH_COLUMN_REDUCE, "reduce", false)

typedef enum ech_column {
#define ECH_COLUMN_ENUM(name, text, must) name,
    ECH_COLUMN_LIST(ECH_COLUMN_ENUM)
#undef ECH_COLUMN_ENUM
        ECH_N_COLUMNS
} ech_column;

/** Its name in a table; static storage. */
const char *ech_column_name(ech_column c);

/** One line of a table. */
typedef struct ech_table_row {
    int line;                        /**< it begins on */
    const char *cell[ECH_N_COLUMNS]; /**< "" where empty or where there is no such column */
    int place
        [ECH_N_COLUMNS]; /**< column of its first character in the line, from 1; 0: none such */
} ech_table_row;

/** A table read.  Zero-initialise; release with ech_table_fini. */
typedef struct ech_table {
    char *text;         /**< owned: the cells point into it */
    ech_table_row *row; /**< owned [n] */
    size_t n;
    const char *path; /**< borrowed */
} ech_table;

/** Parse a table of comma-separated values (RFC 4180): cells in quotes may hold commas, line ends and
 *  doubled quotes.  The first line names the columns, in any order; unknown ones are passed over.
 *  @param text   [bytes] borrowed
 *  @param bytes  of it
 *  @param name   of the file, for messages; borrowed, outlives the table
 *  @param out    set on success
 *  @return ECH_OK | ECH_E_CONFIG (columns that are missing or twice there, all of them)
 *        | ECH_E_PARSE (a quote that does not end, lines with too many or too few cells, no line)
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_table_parse(const char *text, size_t bytes, const char *name,
                                        ech_table *out);

/** Release and zero. */
void ech_table_fini(ech_table *t);

/** How a source counts the FLOPs of its FLOP/s and MFU. */
typedef enum ech_flops_convention {
    ECH_FLOPS_MODEL,   /**< 6 N_matmul + 12 L s a d a token: attention in full */
    ECH_FLOPS_HARDWARE /**< 96 B s L h^2 (1 + s / 6h + V / 16 L h): with full recomputation, layers
                            of 12 h^2 (Narayanan et al. 2021, arXiv:2104.04473, equation 3) */
} ech_flops_convention;

/** What is known of the software that a source measured with, whatever the row: its settings where
 *  no column says otherwise. */
typedef struct ech_software {
    const char *name; /**< in the column `software` */
    ech_system system;
    ech_generation generation;
    int grad_bytes_fp16, grad_bytes_bf16; /**< of an accumulated and reduced gradient element */
    bool has_master;                      /**< in fp32, where its system usually has none */
    bool has_sp;                          /**< sequence parallel wherever tp > 1 */
    bool is_rank_by_rank;                 /**< shards by broadcasts and reductions */
    bool reduces_each;                    /**< gradients every micro-batch */
    bool recomputes;                      /**< everything, where a row does not say */
    int zero_stage;                       /**< where a row does not say */
    ech_cp_kind cp_kind;
    ech_flops_convention flops;
    ech_loss_way loss;
    double dropout;     /**< of models without a preset */
    int64_t heads;      /**< where a row has none and the width divides; 0: no habit */
    const char *source; /**< where these settings are told */
} ech_software;

/** Software by the name in its column; NULL: none such. */
const ech_software *ech_software_find(const char *name);

/** The software of a row without that column: by its id's family and, where that used several, by
 *  words in its columns `model` and `zero_or_fsdp`; NULL: not known. */
const ech_software *ech_software_of(const char *family, const char *model, const char *zero);

/** Names of all software, comma by comma, appended. */
void ech_software_names(ech_text *out);

/** A row's numbers, read from its cells: 0 where empty. */
typedef struct ech_row_numbers {
    double params;          /**< elements, not billions */
    double params_rounding; /**< half a unit of its last digit */
    int64_t layers, hidden, ffn, heads, kv_heads, vocab, experts, topk, seq, global_batch;
    int64_t micro, gpus, tp, pp, vpp, dp, cp, ep;
} ech_row_numbers;

/** Add words to assumed (", " between them); cut where it is full. */
void ech_published_assume(ech_published *p, const char *fmt, ...) ECH_PRINTF(2, 3);

/** Set why a row is not priced, unless something was already. */
void ech_published_skip(ech_published *p, const char *fmt, ...) ECH_PRINTF(2, 3);

/** The model of a row: what its name says of the architecture, the row's sizes, and for what is not
 *  stated the family's habit (told in p->assumed) or a reason in p->skipped.
 *  @param name  the row's model
 *  @param n     its sizes
 *  @param habit  heads that its software usually has, 0: none
 *  @param p     in/out: model (its dropout is left to the software), is_moe, assumed, skipped
 *  @return ECH_OK | ECH_E_ILLEGAL (a count that leaves 64 bits) */
ECH_MUST_USE ech_status ech_published_shape(const char *name, const ech_row_numbers *n,
                                            int64_t habit, ech_published *p);

/** The cluster of a row: the catalogue's of that GPU, its network as the row says.
 *  @param gpu      as published: "A100-80GB-SXM"
 *  @param network  as published: "NVLink3 + 8x200Gb HDR IB per node"
 *  @param p        in/out: cluster, skipped
 *  @return ECH_OK, also where the GPU is not known (skipped says so) | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_published_machine(const char *gpu, const char *network,
                                              ech_published *p);

/** A row's job and layout.
 *  @param row       borrowed
 *  @param path      of the table, for findings
 *  @param findings  added to: cells that cannot be read, file:line:column
 *  @param out       set; its job borrows its model and cluster where it stands
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_published_read(const ech_table_row *row, const char *path,
                                           ech_findings *findings, ech_published *out);

/** How software cuts `layers` into `stages` where it does not say. */
ech_stage_split ech_published_split(int64_t layers, int64_t stages);

/** Seconds of a step that a value in the row's own unit stands for, and the other way round (each
 *  conversion is its own inverse); NaN for memory. */
double ech_published_seconds(const ech_published *p, double value);

/** The layouts that a row can mean, where it does not say all, per micro-batch and number of chunks:
 *  without recomputation where that fits, else with what is usually selected and with as few layers
 *  in full as fit; where none of all fits, the one that needs the least memory.
 *  Sets p->option and p->fit; skipped where no layout is legal.
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_published_fill(ech_published *p);

/** What a memory row predicts, GiB: of activations, allocated, or reserved. */
double ech_published_gib(const ech_published *p, const ech_footprint *f);

/** Statistics of priced rows into v->family.  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_validation_count(ech_validation *v);

#endif
