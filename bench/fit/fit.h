/** @file fit/fit.h
 *  What is fitted to, and the figures of a fit.  Local. */
#ifndef ECH_BENCH_FIT_H
#define ECH_BENCH_FIT_H

#include "plan/calibrate.h" /* ech_calibrate_row */

#include <stdio.h>

enum { FIT_FAMILIES = 32 };

/** Rows: the headline (dense, settings stated, times) first, then hints: rows with something filled
 *  in, which still tell of devices.  Zero-initialise; release with fit_rows_fini. */
typedef struct fit_rows {
    ech_calibrate_row *row; /**< owned [n] */
    int n, n_stated;
    const char *family[FIT_FAMILIES]; /**< borrowed: of the headline, in the table's order */
    int n_families;
} fit_rows;

/** Figures of a set of predictions. */
typedef struct fit_figures {
    ech_family_stats stats;
    const ech_published *worst_row; /**< NULL where there is no row */
} fit_figures;

/** Figures of the headline's rows of a family.
 *  @param rows     borrowed
 *  @param seconds  predicted, [rows->n] borrowed
 *  @param family   NULL: all */
fit_figures fit_figures_of(const fit_rows *rows, const double *seconds, const char *family);

/** Fit from the priors: they, and two sets about them, are begun from; the best end counts.
 *  @param skip       families that are left out, joined by "+"; NULL: none
 *  @param objective  out; NULL: not wanted */
ech_constants fit_from_priors(const fit_rows *rows, const char *skip, int iterations,
                              double *objective);

/** Leave out each family, those of one source or cluster together, and predict it.
 *  @param path     a line of constants a fold is written to it
 *  @param seconds  out: of each row of the headline, by the fit without it */
void fit_folds(const fit_rows *rows, const char *path, int iterations, double *seconds);

/** Print for each constant how many rows of the headline it moves by more than 0.3 % when it is 20 %
 *  larger, and of which families they are. */
void fit_print_moves(const fit_rows *rows, const ech_constants *c);

/** Print the rank correlation and the regret of a model without error where measurements have some. */
void fit_print_noise(const fit_rows *rows);

/** Say what went wrong and end, unless nothing did. */
void fit_must(ech_status st);

/** Zeroed room; ends where there is none. */
void *fit_room(size_t n, size_t size);

/** Open a file for writing, or end. */
FILE *fit_open(const char *path);

/** Release and zero. */
void fit_rows_fini(fit_rows *rows);

#endif
