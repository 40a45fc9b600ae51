/** @file plan/validate.h
 *  The cost and memory models against published measurements.
 *
 *  A row of the table is turned into a job and a layout, priced, and compared in the row's own unit
 *  and convention.  What a row does not state is filled in by the habit of its family or the best
 *  feasible choice, told in `assumed`, and kept out of the headline.  A row that cannot be priced is
 *  listed with its reason.  Pure but for the reading of the file; local. */
#ifndef ECH_PLAN_VALIDATE_H
#define ECH_PLAN_VALIDATE_H

#include "price/footprint.h" /* ech_footprint */
#include "price/step.h"      /* ech_step_price */

/** What a row measured. */
typedef enum ech_measured_kind {
    ECH_MEASURED_TOKENS_S_GPU,
    ECH_MEASURED_ITER_TIME_S,
    ECH_MEASURED_TFLOPS_PER_GPU,
    ECH_MEASURED_MFU,
    ECH_MEASURED_PEAK_MEM_GIB,
    ECH_N_MEASURED
} ech_measured_kind;

/** One row, read. */
typedef struct ech_published {
    char id[40];
    char family[24];     /**< id without its number */
    int family_index;    /**< of its set in ech_validation.family, once priced */
    ech_model model;     /**< its shape */
    ech_cluster cluster; /**< its machine */
    ech_job job;         /**< borrows model and cluster of this row */
    ech_point point;
    ech_measured_kind kind;
    double measured;       /**< in its unit */
    bool is_over;          /**< "> 80": it did not fit */
    bool is_allocated;     /**< memory: allocated, not reserved */
    bool is_part;          /**< memory of activations alone */
    double flops_per_step; /**< by the source's convention, where it measured FLOP/s or MFU */
    bool is_moe;
    char group[160];    /**< rows of one model, batch and GPU count: for rank and regret */
    char assumed[160];  /**< "" or what was filled in */
    int assumed_stated; /**< characters of it that hold whatever is chosen among option */
    char skipped[200];  /**< "" or why it is not priced */

    bool asks_recompute, asks_micro, asks_chunks; /**< not stated: chosen among option */
    ech_point *option; /**< owned [n_options]: the layouts it can mean; NULL: not asked yet */
    int n_options;
    int taken;   /**< number of the one that is point, from 1; 0: none yet */
    ech_fit fit; /**< the verdict on its memory, of all options alike */

    double measured_s;  /**< of a step; NaN for memory */
    double predicted_s; /**< likewise; NaN where skipped */
    double predicted;   /**< in its unit; NaN where skipped */
} ech_published;

/** Statistics of a set of rows.  The error of a row is e = predicted / measured - 1, of seconds a step
 *  or of bytes; rows that did not fit ("> 80") have none.  NaN where there is no row or group. */
typedef struct ech_family_stats {
    char name[24];
    int n;         /**< rows with an error */
    int n_assumed; /**< of them with something filled in */
    int n_skipped; /**< rows beside them that are not priced */
    double mape;   /**< mean of |e| */
    double median; /**< of |e| */
    double p90;    /**< the ceil(0.9 n)-th smallest |e| */
    double worst;  /**< largest |e| */
    double bias;   /**< mean of e */
    double rank; /**< Spearman's between predicted and measured times within each group of at least
                        ECH_GROUP_LAYOUTS layouts (a layout that is published more than once: the mean
                        of its times), mean weighted by layouts */
    double regret; /**< measured time of the layout of a group that is predicted to be fastest over
                        the measured time of its fastest, minus 1; mean over groups */
    int n_groups;
    int false_fits;    /**< rows that did not fit and are said to fit without doubt */
    int false_misfits; /**< rows that ran and are said not to fit */
} ech_family_stats;

enum { ECH_GROUP_LAYOUTS = 3 };

/** All rows. */
typedef struct ech_validation {
    ech_published *row; /**< owned [n] */
    int n;
    /** owned [n_families]: each family in the order of the table, memory apart as "NAME-mem", then the
     *  totals: "dense stated" (times of dense models with nothing filled in: the headline), "dense
     *  assumed", "moe", "all" (times), "memory allocated", "memory" (reserved, and activations) */
    ech_family_stats *family;
    int n_families; /**< totals included */
    int n_totals;   /**< the last so many */
} ech_validation;

/** Read a table: columns by name, CSV with quotes.
 *  @param text   [bytes] borrowed
 *  @param bytes  of it
 *  @param name   of the file, for findings
 *  @param out    rows set on success, not priced yet; owned by the caller
 *  @return ECH_OK | ECH_E_CONFIG (all findings, file:line:column) | ECH_E_PARSE | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_validation_parse(const char *text, size_t bytes, const char *name,
                                             ech_validation *out);

/** The same from a file.  @return also ECH_E_IO */
ECH_MUST_USE ech_status ech_validation_read(const char *path, ech_validation *out);

/** Price every row and make the statistics.  May be called again with other constants: the layouts
 *  that a row can mean are found once, which of them it does mean is asked each time.
 *  @param constants  borrowed; NULL: the built-in table
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_validation_price(ech_validation *v,
                                             const struct ech_constants *constants);

/** Statistics of step times that rows are predicted to take, by whatever constants.
 *  @param row      borrowed [n]; times, of one table
 *  @param seconds  predicted, borrowed [n]
 *  @param out      set but for its name
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_rows_count(const ech_published *const *row, const double *seconds,
                                       int n, ech_family_stats *out);

/** Release and zero. */
void ech_validation_fini(ech_validation *v);

#endif
