/** @file train/session.h
 *  A run in memory: programs, engines and state of the ranks that live in this process (one over
 *  MPI or alone, all of them with virtual ranks), and what can be done with them: feed, step,
 *  evaluate.
 *
 *  The loop (loop.h) decides what to do when; the session does it.  Calls that say *collective*
 *  must be made by every process of the run in the same order.  A step allocates nothing. */
#ifndef ECH_TRAIN_SESSION_H
#define ECH_TRAIN_SESSION_H

#include "engine/engine.h"   /* ech_engine */
#include "engine/explain.h"  /* ech_explanation */
#include "program/compile.h" /* ech_compile_spec */
#include "program/deps.h"    /* ech_deps */
#include "train/held.h"      /* ech_held */

/** What a session is made of.  Pointers are borrowed and outlive the session unless said. */
typedef struct ech_session_config {
    const ech_model *model;
    ech_compile_spec compile;      /**< block.model, canon and mode are set by the session */
    uint64_t seed;                 /**< initialisation, dropout */
    const ech_kernel_set *kernels; /**< NULL: reference kernels alone */
    int threads;                   /**< of one rank's kernels */
    bool poison;                   /**< NaN where a life ends (tests) */
    double watchdog_s;             /**< deadline of a wait, 0: none */
    bool has_eval;                 /**< compile the evaluation program too */
    bool records;                  /**< steps can be recorded: memory for their bars is reserved */
} ech_session_config;

/** One rank that lives here. */
typedef struct ech_local_rank {
    int rank;
    const ech_run_class *klass; /**< what it runs and holds; borrowed from the session */
    ech_transport *transport;   /**< borrowed */
    ech_comm *comm;             /**< owned */
    ech_engine *engine;         /**< owned */
    ech_recorder *recorder;     /**< owned; NULL without config.records */
    ech_flight_record *flight;  /**< borrowed; NULL: it does not record where it stands */
    int64_t step;               /**< in work, or the last one made; from 1 */
} ech_local_rank;

/** A session.  Read its fields; change it through the calls. */
typedef struct ech_session {
    ech_session_config config;
    ech_model model;
    ech_canon canon; /**< owned */
    ech_run train;   /**< owned */
    ech_run eval;    /**< owned; no classes without evaluation */
    ech_kernel_table kernels;
    ech_local_rank *local; /**< owned, [n_local] */
    int n_local;
    ech_deps *fuzz_deps
        [2]; /**< owned [classes]: of train, eval; derived when fuzzing is first asked for */
    uint64_t fuzz_seed; /**< 0: in program order */
} ech_session;

/** What a step came to, the same on every rank. */
typedef struct ech_step_result {
    double loss;      /**< mean over the step's unmasked tokens, nats; NaN without tokens */
    double grad_norm; /**< global, unscaled, before clipping */
    int64_t tokens;   /**< unmasked, over all ranks */
    bool is_finite;   /**< loss and gradient norm */
    bool is_updated;  /**< commit ran */
    bool is_stopping; /**< some rank was asked to stop */
} ech_step_result;

/** What to do with a finished gradient. */
typedef enum ech_commit { ECH_COMMIT_IF_FINITE, ECH_COMMIT_NEVER } ech_commit;

/** Would the programs of this session compile and fit?  Local; nothing is kept.
 *  @return ECH_OK | what compiling returns, ECH_E_INFEASIBLE over a cap among it */
ECH_MUST_USE ech_status ech_session_check(const ech_session_config *config);

/** Compile, create engines for n_local transports, initialise weights and tables.
 *  *Collective*, blocking.
 *  @param config     borrowed, copied
 *  @param transport  [n_local] borrowed
 *  @param n_local    ranks that live here: 1, or the whole world
 *  @param out        owned by the caller, set on success only
 *  @return ECH_OK
 *        | ECH_E_INFEASIBLE  over a cap
 *        | ECH_E_CONFIG      ranks have compiled different programs
 *        | ECH_E_UNSUPPORTED a kind of op without a kernel, a model that is not executed
 *        | ECH_E_ILLEGAL | ECH_E_PROOF | ECH_E_COMM | ECH_E_NOMEM;  nothing is left on failure */
ECH_MUST_USE ech_status ech_session_create(const ech_session_config *config,
                                           ech_transport *const *transport, int n_local,
                                           ech_session **out);

/** From now on the ranks that live here record where they stand.
 *  @param s       in/out
 *  @param flight  borrowed, outlives the session; NULL: they do not */
void ech_session_set_flight(ech_session *s, ech_flight *flight);

/** Record what the ranks that live here are at outside of steps and evaluations, "writing a
 *  checkpoint"; the next step overwrites it.
 *  @param s      in/out
 *  @param words  at most ECH_FLIGHT_NAME_BYTES - 1 bytes count
 *  @param step   in work, or the last one made */
void ech_session_say(ech_session *s, const char *words, int64_t step);

/** Record that the ranks that live here end in order.
 *  @param s          in/out
 *  @param exit_code  of the process */
void ech_session_say_end(ech_session *s, int exit_code);

/** Who waits for whom, now, as far as a rank of this process can tell.
 *  @param s       borrowed
 *  @param flight  borrowed: of the run
 *  @param out     set on success
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_session_explain(const ech_session *s, const ech_flight *flight,
                                            ech_explanation *out);

/** Release; accepts NULL, nulls the pointer.  The transports stay. */
void ech_session_destroy(ech_session **s);

/** Token slot of local rank i: int32 [micro_batches * rows, seq], or NULL on a stage that takes none;
 *  write it before a step or an evaluation.  Local row i of micro-batch k is row ech_first_row(program, rank, k) + i of the
 *  global batch. */
int32_t *ech_session_tokens(ech_session *s, int i);

/** Its label slot, of the same shape; -1: no loss. */
int32_t *ech_session_labels(ech_session *s, int i);

/** What local rank i holds of parameters, gradients and moments; borrowed from the session. */
ech_held ech_session_held(ech_session *s, int i);

/** All ranks' elements of a class as one model in canonical order.  *Collective*, blocking, outside
 *  steps and not counted as their traffic; with the padded rows that a file has not.
 *  @param s    session
 *  @param what class
 *  @param out  [canon.elems] of config.compile.block.real on the process of rank 0; others may give
 *              NULL.  Elements that the run does not have (moments under SGD) stay 0
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_COMM | ECH_E_TIMEOUT */
ECH_MUST_USE ech_status ech_session_collect(ech_session *s, ech_held_class what, void *out);

/** Hash of all ranks' elements of a class: a function of the canonical values, not of how they are
 *  dealt out.  *Collective*, blocking, outside steps.
 *  @return ECH_OK | what the transport's exchange returns */
ECH_MUST_USE ech_status ech_session_hash(ech_session *s, ech_held_class what, uint64_t *out);

/** One step's settings. */
typedef struct ech_step_request {
    int64_t step;    /**< optimizer step about to be made, from 0: key of dropout */
    int64_t updates; /**< updates made so far: bias correction */
    double lr, loss_scale;
    ech_commit commit;
    bool wants_stop; /**< this process was asked to stop: all ranks learn of it with the loss */
    bool records;    /**< keep what it does, for ech_trace_gather; wants config.records */
} ech_step_request;

/** Run one training step on the batch fed.  *Collective*.
 *  A step without a single unmasked token updates nothing.  A loss or norm that is not finite
 *  updates nothing either, on every rank alike; what then is the caller's decision.
 *  @return ECH_OK | ECH_E_TIMEOUT naming ranks | ECH_E_DEADLOCK | ECH_E_COMM */
ECH_MUST_USE ech_status ech_session_step(ech_session *s, const ech_step_request *request,
                                         ech_step_result *out);

/** Sums over all ranks. */
typedef struct ech_eval_result {
    double loss_sum;  /**< of token losses */
    int64_t tokens;   /**< unmasked */
    bool is_stopping; /**< some rank was asked to stop */
} ech_eval_result;

/** Forward pass over the batch fed.  *Collective*.
 *  @param wants_stop  this process was asked to stop: all ranks learn of it
 *  @return as ech_session_step */
ECH_MUST_USE ech_status ech_session_eval(ech_session *s, bool wants_stop, ech_eval_result *out);

/** Agree on how it went, in words: every process returns the worst status, and the message of a rank
 *  that had it.  *Collective*, blocking; allocates where something failed.
 *  @param s     session
 *  @param mine  this process's status, its message the last error's
 *  @return the worst | ECH_E_COMM | ECH_E_TIMEOUT | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_session_agree(ech_session *s, ech_status mine);

/** From now on run segments in orders drawn from seed (virtual ranks only; 0: in program order).
 *  @return ECH_OK | ECH_E_NOMEM | ECH_E_PROOF */
ECH_MUST_USE ech_status ech_session_fuzz(ech_session *s, uint64_t seed);

/** The first rank whose loss was not finite in the last step, the same on every process (-1: none),
 *  and its first such micro-batch (else -1).  *Collective*.
 *  @return ECH_OK | what the transport's exchange returns */
ECH_MUST_USE ech_status ech_session_find_nonfinite(ech_session *s, int *rank, int *micro);

#endif
