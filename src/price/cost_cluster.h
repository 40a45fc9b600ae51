/** @file price/cost_cluster.h
 *  A measured machine as a cluster: one device for each rank that was measured, so that what is
 *  asked about clusters can be asked about it.  Pure but for the reading of files; local. */
#ifndef ECH_PRICE_COST_CLUSTER_H
#define ECH_PRICE_COST_CLUSTER_H

#include "catalog/cluster.h" /* ech_cluster */
#include "price/cost.h"      /* ech_calibration */

/** Does a file look like a calibration (`echelon bench --save`) and not like a cluster's: does it have a
 *  key `cost`.
 *  @param path  its name
 *  @param is    out
 *  @return ECH_OK, also where it cannot be read as YAML | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_calibration_is_file(const char *path, bool *is);

/** The machine as a cluster of one node: `ranks` devices of `threads` cores each, with the best rates
 *  that were measured (matrix products, memory, messages) and an equal share of the memory.  What was
 *  not measured is that of the catalogue's usual node of processors, prices and power are not known.
 *  @param c             borrowed
 *  @param memory_bytes  of the whole machine; 0: as the file says
 *  @param name          of it, cut to fit
 *  @param out           set on success
 *  @return ECH_OK | ECH_E_CONFIG: matrix products were not measured, or nobody says the memory */
ECH_MUST_USE ech_status ech_calibration_cluster(const ech_calibration *c, double memory_bytes,
                                                const char *name, ech_cluster *out);

#endif
