/** @file program/compile.h
 *  From model, layout and policy to step programs: training, evaluation, generation.
 *
 *  Programs of one run (training and evaluation) share their state slots.  Every program returned
 *  has been placed and proved (program/prove.h).  Pure; every call is local. */
#ifndef ECH_PROGRAM_COMPILE_H
#define ECH_PROGRAM_COMPILE_H

#include "program/blocks.h" /* ech_block_spec */
#include "program/prove.h"  /* ech_prove_report */

/** What to compile. */
typedef struct ech_compile_spec {
    ech_block_spec block;   /**< mode, plan and form are set by the compiler */
    int micro_batches;      /**< per rank and step */
    bool all_forward_first; /**< gpipe: every forward before the first backward */
    int64_t bucket_bytes;   /**< gradients that are not sharded are summed in pieces of about this
                                 size, whole units; sharded ones unit by unit */
    size_t cap_bytes[ECH_N_SPACES]; /**< 0: no cap */
    ech_prove_report *report;       /**< out, borrowed: of the proof, also where it fails; NULL */
} ech_compile_spec;

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

/** How the model is dealt out over a run's ranks: the plan that its programs are compiled for.
 *  @param spec  borrowed; its canon outlives the plan
 *  @param out   set on success
 *  @return ECH_OK | ECH_E_ILLEGAL (tp does not divide the heads) */
ECH_MUST_USE ech_status ech_compile_plan(const ech_compile_spec *spec, ech_shard_plan *out);

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
