/** @file plan/calibrate.h
 *  Fitting the constants of price/constants.h to measured step times.
 *
 *  Minimises, over the logarithms of the free constants, the sum of
 *      weight * rho((ln predicted - ln measured) / noise)  and  ((ln value - ln prior) / sigma)^2
 *  by Levenberg and Marquardt with numeric derivatives; rho is Huber's: beyond twice the noise rows
 *  count linearly, as some published values are slips.  What the rows do not tell stays at its prior.
 *  Sources: Marquardt 1963, doi:10.1137/0111030; Huber 1964, doi:10.1214/aoms/1177703732.
 *  Pure; local. */
#ifndef ECH_PLAN_CALIBRATE_H
#define ECH_PLAN_CALIBRATE_H

#include "plan/validate.h"   /* ech_published */
#include "price/constants.h" /* ech_constants */

/** What published values of one setting move by: 3 to 10 % (software, nodes, slips). */
#define ECH_CALIBRATE_NOISE 0.05

/** One measurement to fit to. */
typedef struct ech_calibrate_row {
    const ech_published *row; /**< borrowed: job, point and measured_s count */
    double weight;            /**< 0: it does not count */
} ech_calibrate_row;

/** What is fitted to. */
typedef struct ech_calibrate_spec {
    const ech_calibrate_row *row; /**< borrowed [n] */
    int n;
    const char *skip; /**< borrowed: families that are left out, joined by "+"; NULL: none */
    int iterations; /**< at most so many steps, each of free constants + 1 evaluations of all rows */
} ech_calibrate_spec;

/** Is a family among those that are joined by "+"?  Of NULL: no. */
bool ech_calibrate_names(const char *families, const char *family);

/** Seconds that rows are priced at.
 *  @param row        borrowed [n]
 *  @param constants  borrowed
 *  @param seconds    out [n]
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_calibrate_predict(const ech_calibrate_row *row, int n,
                                              const ech_constants *constants, double *seconds);

/** Fit.
 *  @param spec       borrowed
 *  @param constants  in: where to begin; out: the fit, within the bounds of each constant
 *  @param objective  out: what was reached; NULL: not wanted
 *  @return ECH_OK | ECH_E_NOMEM (constants unchanged) */
ECH_MUST_USE ech_status ech_calibrate(const ech_calibrate_spec *spec, ech_constants *constants,
                                      double *objective);

#endif
