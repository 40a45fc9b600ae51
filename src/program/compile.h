/** @file program/compile.h
 *  From model, layout and policy to step programs: training, evaluation, generation.
 *
 *  Programs of one run (training and evaluation) share their state slots.  Every program returned
 *  has been placed, and its dependences and types have been checked.  Pure; every call is local. */
#ifndef ECH_PROGRAM_COMPILE_H
#define ECH_PROGRAM_COMPILE_H

#include "program/blocks.h" /* ech_block_spec */

/** What to compile. */
typedef struct ech_compile_spec {
    ech_block_spec block;   /**< mode is set by the compiler */
    int micro_batches;      /**< per rank and step */
    bool all_forward_first; /**< gpipe: every forward before the first backward */
    int64_t bucket_bytes;   /**< gradients are reduced in pieces of about this size, whole units */
    size_t cap_bytes[ECH_N_SPACES]; /**< 0: no cap */
} ech_compile_spec;

/** Indices of the state slots of a run; -1: this run has none. */
typedef struct ech_run_slots {
    int params;      /**< REAL [canon elems] */
    int grads;       /**< REAL [canon elems] */
    int moments;     /**< REAL, per unit m then v */
    int scalars;     /**< the scalar table */
    int rope;        /**< fp64 [positions, rot / 2, 2] */
    int tokens;      /**< int32 [micro_batches * rows * seq]; generation: [seq] */
    int labels;      /**< int32, -1: masked */
    int losses;      /**< fp64 [micro_batches]: this rank's loss sums of the step */
    int rank_losses; /**< fp64 [dp, 2]: every rank's loss sum and wish to stop */
    int rank_tokens; /**< int64 [dp] */
    int cache;       /**< generation: keys and values of all layers */
    int logits;      /**< generation: REAL [seq, Vpad] */
} ech_run_slots;

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
 *  (micro * dp + dp rank) * rows. */
int64_t ech_first_row(const ech_program *p, int rank, int micro);

#endif
