/** @file program/compile.h
 *  From model, layout and policy to step programs: training, evaluation, generation.
 *
 *  Programs of one run (training and evaluation) share their state slots.  Every program returned
 *  has been placed and proved (program/prove.h), unless it is only to be priced (purpose).  Pure;
 *  every call is local. */
#ifndef ECH_PROGRAM_COMPILE_H
#define ECH_PROGRAM_COMPILE_H

#include "layout/stages.h"    /* ech_stages */
#include "program/blocks.h"   /* ech_block_spec */
#include "program/prove.h"    /* ech_prove_report */
#include "program/schedule.h" /* ech_schedule */

/** What programs are for, and so how far they are made. */
typedef enum ech_compile_purpose {
    ECH_COMPILE_TO_RUN,   /**< placed and proved */
    ECH_COMPILE_TO_PRICE, /**< placed: as large and as long as those that run */
    ECH_COMPILE_TO_SKETCH /**< neither: what lives when is known, and what it takes; the arena is not,
                               it is told as what its slots hold */
} ech_compile_purpose;

/** What to compile. */
typedef struct ech_compile_spec {
    ech_block_spec block;       /**< mode, plan and form are set by the compiler */
    int micro_batches;          /**< per rank and step */
    ech_schedule_kind schedule; /**< one pipeline rank: 1f1b is each forward with its backward */
    int chunks;                 /**< virtual stages of a pipeline rank; 0 is 1 */
    int group;                  /**< interleaved, ech_schedule_spec */
    const ech_schedule *table;  /**< FILE: borrowed */
    const int *
        stage_layers; /**< borrowed [n_stage_layers]: layers of each virtual stage; NULL: balanced */
    int n_stage_layers;
    bool
        rolls; /**< fold what repeats (program/repeat.h), where a generated table of many micro-batches
                     is one of few with rounds put in; else programs are plain */
    int64_t bucket_bytes; /**< gradients that are not sharded are summed in pieces of about this
                                 size, whole units; sharded ones unit by unit */
    size_t cap_bytes[ECH_N_SPACES]; /**< 0: no cap */
    ech_prove_report *report;       /**< out, borrowed: of the proof, also where it fails; NULL */
    ech_compile_purpose purpose;
} ech_compile_spec;

enum {
    /** Micro-batches of a rank and step from which on `rolls` is asked for: proof and prediction then
     *  take no longer with more of them.  Below, plain programs take less memory, since rings free
     *  nothing early. */
    ECH_COMPILE_ROLLED_FROM = 256
};

/** Indices of the state slots of a run; -1: this run has none.  Parameters, gradients and moments
 *  are slabs of one part each (layout/shard.h), unit after unit; where they are sharded over dp,
 *  of this rank's flat ranges. */
typedef struct ech_run_slots {
    int params[ECH_N_PARTS];  /**< REAL */
    int grads[ECH_N_PARTS];   /**< REAL */
    int moments[ECH_N_PARTS]; /**< REAL, per unit m then v */
    int scalars;              /**< the scalar table */
    int rope;                 /**< fp64 [positions, rot / 2, 2] */
    int tokens;               /**< int32 [micro_batches * rows * seq]; generation: [seq] */
    int labels;               /**< int32, -1: masked */
    int losses;               /**< fp64 [micro_batches]: this rank's loss sums of the step */
    int norm;                 /**< int64 [3, ECH_SUMSQ_WORDS]: exact sums of squares */
    int cache;                /**< generation: keys and values of all layers */
    int logits;               /**< generation: REAL [seq, Vpad] */
} ech_run_slots;

/** What the ranks of a class run: a pipeline rank's. */
typedef struct ech_run_class {
    ech_program program; /**< owned */
    ech_run_slots slots;
    ech_shard_plan plan; /**< what its ranks hold */
} ech_run_class;

/** The programs of a run, all of one kind (training, evaluation): one a pipeline rank, which is the
 *  class's number.  Zero-initialise before the first compile. */
typedef struct ech_run {
    int n_classes;
    ech_run_class *klass; /**< owned [n_classes] */
    int *class_of;        /**< owned [world] */
    const ech_program *
        *program; /**< owned [n_classes]: the programs again, as proof and price take them */
    const ech_shard_plan **plan; /**< owned [n_classes]: the plans again */
    ech_stages stages;           /**< owned */
    ech_schedule schedule;       /**< owned */
    ech_state_form form;
    double compile_s, prove_s; /**< seconds that compiling and proving took */
} ech_run;

/** Compile the programs of all ranks for a mode and prove them together.
 *  @param spec  borrowed
 *  @param mode  TRAIN or EVAL
 *  @param out   owned by the caller (ech_run_fini), set on success only
 *  @return ECH_OK
 *        | ECH_E_ILLEGAL     stages or schedule that cannot be
 *        | ECH_E_CONFIG      a table that is wrong
 *        | ECH_E_INFEASIBLE  over a cap: which rank, which cell of the schedule
 *        | ECH_E_PROOF       a fault of this code
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_run_compile(const ech_compile_spec *spec, ech_mode mode, ech_run *out);

/** Release and zero. */
void ech_run_fini(ech_run *run);

/** Plain programs in place of rolled ones, as engines run them; those that are plain stay.
 *  @return ECH_OK | ECH_E_UNSUPPORTED (too many items to list) | ECH_E_NOMEM; on failure some are
 *          plain and some are not */
ECH_MUST_USE ech_status ech_run_unroll(ech_run *run);

/** What a rank runs. */
const ech_run_class *ech_run_of(const ech_run *run, int rank);

/** May evaluation follow training and the other way round, on every class. */
ECH_MUST_USE ech_status ech_run_chain(const ech_run *prev, const ech_run *next);

/** How the model is dealt out over a run's ranks: the plan that its programs are compiled for.
 *  @param spec  borrowed; its canon outlives the plan
 *  @param out   set on success
 *  @return ECH_OK | ECH_E_ILLEGAL (tp does not divide the heads) */
ECH_MUST_USE ech_status ech_compile_plan(const ech_compile_spec *spec, ech_shard_plan *out);

/** The mesh of a run: degrees and order as given, filled up with what follows from the model and the
 *  pipeline: ranks that hold the same key/value heads, and those that both hold a tied token table.
 *  @param pipeline  borrowed: schedule, chunks and table
 *  @param model     borrowed; tp divides its heads
 *  @param degrees   kv_share and tied are not looked at
 *  @param out       set on success
 *  @return ECH_OK | ECH_E_CONFIG | ECH_E_ILLEGAL as ech_layout_make */
ECH_MUST_USE ech_status ech_compile_layout(const ech_compile_spec *pipeline, const ech_model *model,
                                           ech_layout_spec degrees, ech_layout *out);

/** What is sharded over dp under the spec's policy; nothing with one rank there. */
ech_state_form ech_compile_form(const ech_compile_spec *spec);

/** Training step: segments accumulate, reduce, commit.
 *  @param spec   borrowed
 *  @param out    owned by the caller (ech_program_fini)
 *  @param slots  out
 *  @return ECH_OK
 *        | ECH_E_INFEASIBLE  over a cap
 *        | ECH_E_PROOF       a fault of this code
 *        | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_compile_train(const ech_compile_spec *spec, ech_program *out,
                                          ech_run_slots *slots);

/** Evaluation of one global batch: forward only, loss sum and token count over all ranks.
 *  Parameters and errors as above. */
ECH_MUST_USE ech_status ech_compile_eval(const ech_compile_spec *spec, ech_program *out,
                                         ech_run_slots *slots);

/** Forward of up to block.seq new tokens on one rank against a cache of block.context tokens.
 *  Parameters and errors as above. */
ECH_MUST_USE ech_status ech_compile_generate(const ech_compile_spec *spec, ech_program *out,
                                             ech_run_slots *slots);

/** Global index, within the step's batch, of a rank's first sequence of a micro-batch:
 *  (micro * D + i) * rows for the i-th of D data parallel ranks (dp and hsdp). */
int64_t ech_first_row(const ech_program *p, int rank, int micro);

#endif
