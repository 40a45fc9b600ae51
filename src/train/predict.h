/** @file train/predict.h
 *  What a run will take, read off its programs.  Pure. */
#ifndef ECH_TRAIN_PREDICT_H
#define ECH_TRAIN_PREDICT_H

#include "train/events.h" /* ech_prediction */

/** Predicted memory of a rank (the fuller of both programs at its peak, the arena that holds
 *  either) and traffic of one training step.
 *  @param train  borrowed
 *  @param eval   NULL: no evaluation
 *  @param rank   whose traffic
 *  @param out    filled; step_s is NaN until a machine has been calibrated
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_predict(const ech_program *train, const ech_program *eval, int rank,
                                    ech_prediction *out);

#endif
