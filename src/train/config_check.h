/** @file train/config_check.h
 *  Findings about a configuration, with the place of the key.  Internal to train.  Local. */
#ifndef ECH_TRAIN_CONFIG_CHECK_H
#define ECH_TRAIN_CONFIG_CHECK_H

#include "train/schema.h" /* ech_option, ech_config */

/** Where findings go, and how many of them are only about what is not built yet. */
typedef struct ech_config_report {
    ech_findings *findings; /**< borrowed */
    int n_unsupported;
} ech_config_report;

/** Add a finding about a key: "FILE:LINE:COLUMN: KEY: words", or "--set KEY=VALUE: words".
 *  @param report  in/out
 *  @param cfg     borrowed
 *  @param key     path of a row
 *  @param fmt     printf format */
void ech_config_report_add(ech_config_report *report, const ech_config *cfg, const char *key,
                           const char *fmt, ...) ECH_PRINTF(4, 5);

/** The same for a value whose feature is not built yet. */
void ech_config_report_unsupported(ech_config_report *report, const ech_config *cfg,
                                   const char *key, const char *fmt, ...) ECH_PRINTF(4, 5);

/** Read the table that layout.schedule names, where it names a file, into layout.table; what is
 *  wrong with it is a finding for every fault.
 *  @param cfg     in/out
 *  @param report  in/out
 *  @return ECH_OK, also with findings | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_config_schedule_read(ech_config *cfg, ech_config_report *report);

/** Name of the file for messages. */
const char *ech_config_name(const ech_config *cfg);

/** ech_config_validate with the count of what is not built yet. */
void ech_config_check(const ech_config *cfg, int ranks, ech_config_report *report);

#endif
