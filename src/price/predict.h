/** @file price/predict.h
 *  What a run will take, read off its programs.  Pure. */
#ifndef ECH_TRAIN_PREDICT_H
#define ECH_TRAIN_PREDICT_H

#include "price/simulate.h"  /* ech_step_sums */
#include "program/compile.h" /* ech_run */

/** Fixed before the run: what a step will take. */
typedef struct ech_prediction {
    ech_memory memory[ECH_N_SPACES];
    ech_traffic traffic[ECH_N_AXES]; /**< per rank and training step */
    double step_s;                   /**< NaN before calibration */
} ech_prediction;

/** Predicted memory of a rank (the fuller of both programs at its peak, the arena that holds
 *  either) and traffic of one training step.
 *  @param train  borrowed
 *  @param eval   borrowed; of no classes: no evaluation
 *  @param rank   whose
 *  @param out    filled; step_s is NaN: see ech_predict_step
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_predict(const ech_run *train, const ech_run *eval, int rank,
                                    ech_prediction *out);

/** Where the time of a training step goes on the machine of a calibration: its programs simulated.
 *  @param path     file of `echelon bench --save`
 *  @param train    borrowed
 *  @param threads  of a rank; 0: as measured
 *  @param real     that it computes in
 *  @param out      set on success only
 *  @param line     likewise, its time line, the caller's (ech_timeline_fini); NULL: not wanted
 *  @return ECH_OK | ECH_E_CONFIG (a wrong file, or one that does not cover the programs)
 *        | ECH_E_PARSE | ECH_E_IO | as ech_simulate */
ECH_MUST_USE ech_status ech_predict_step(const char *path, const ech_run *train, int threads,
                                         ech_dtype real, ech_step_sums *out, ech_timeline *line);

/** The rank that has most memory in use at its fullest moment, device memory first; the lowest of
 *  several.
 *  @param rank  out
 *  @param out   its prediction
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_predict_fullest(const ech_run *train, const ech_run *eval, int *rank,
                                            ech_prediction *out);

#endif
