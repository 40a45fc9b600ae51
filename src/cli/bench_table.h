/** @file cli/bench_table.h
 *  What `echelon bench` found, as a table for people and as JSON.  Local. */
#ifndef ECH_CLI_BENCH_TABLE_H
#define ECH_CLI_BENCH_TABLE_H

#include "measure/bench.h" /* ech_bench_found */

/** Print points with their rates and spreads on stdout.
 *  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_bench_print(const ech_calibration *c, const ech_bench_found *found,
                                        bool as_json);

#endif
